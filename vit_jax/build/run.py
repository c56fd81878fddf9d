# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Everything that a configuration stands for: its program and its data.

Together with `program` and `splits`, this is the only place that unpacks the config sections. Each
section becomes the arguments of one function, so no key can go unused. `check` finds errors without
TensorFlow or a device; start from `build`.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from vit_jax.build import objectives, placement, program, splits
from vit_jax.build.program import Program
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.config import sections, validation
from vit_jax.data import readers
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.pipeline import pipeline
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Split
from vit_jax.data.tasks.test_sets import Evaluation
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.runtime import compile_ahead, coordinated_stop, coordination, recovery
from vit_jax.step import losses
from vit_jax.step.objective import Objective

if TYPE_CHECKING:
    from vit_jax.data.tasks import shots


def check(config: sections.Config) -> None:
    """Checks the values of a configuration, without TensorFlow or a device.

    Raises:
      BadInput: the first error found.
    """
    config_lib.check(config)
    cfg = variants.of(config.model, 2)
    images = images_lib.of(config.data)
    variants.check_image_size(cfg, *images.size)
    objective = objectives.make(config, cfg)
    validation.check_together(config, objective.EVALUATED, averages=objective.AVERAGE)
    objectives.check_views(config, objective)
    if config.data.device_ops:
        from vit_jax.build import device_ops

        device_ops.check(config, objective)
    _check_chains(config, cfg, objective)
    if config.pack > 1:
        from vit_jax.build import naflex

        naflex.check_packing(config, cfg, objective)
    placement.check(config, objective, cfg)
    specs = [("data.source", config.data.source)]
    specs += [(f"evals.{n}.source", part.source) for n, part in config.evals.items() if part.source]
    specs += [("source in fewshot.sources", spec) for _, spec in config.fewshot.sources]
    for key, spec in specs:
        if spec.partition(":")[0] not in sources.KINDS:
            raise sources.unknown_kind(key, spec)
    losses.find(config.loss.name)
    for name, part in config.evals.items():
        if part.evaluator:
            from vit_jax.evaluators import custom

            custom.find(name, part.evaluator, config.checkpoint.keep_best)


def _check_chains(config: sections.Config, cfg: variants.Config, objective: Objective) -> None:
    """Raises BadInput for a chain that is wrong, or that model and objective cannot take."""
    data, images = config.data, images_lib.of(config.data)
    chains = {"data.train_ops": data.train_ops, "data.eval_ops": data.eval_ops}
    for key, chain in (chains | {"fewshot.ops": config.fewshot.ops}).items():
        last = preprocess.parse(key, chain, images.size, images.channels)[-1]
        if preprocess.adds_grid(last) and not (key == "data.train_ops" and data.views):
            from vit_jax.build import naflex

            naflex.check(config, cfg, objective, key, chain, last)


@dataclasses.dataclass(frozen=True)
class Run:
    """A program with its data."""

    program: Program
    source: Source
    train_pipeline: Pipeline
    evaluations: dict[str, Evaluation]
    eval_pipelines: dict[str, dict[str, Pipeline]]  # by evaluation and part
    tasks: "dict[str, shots.Task]"  # few-shot tasks, by the name of their metrics

    @property
    def config(self) -> sections.Config:
        """The configuration of the run."""
        return self.program.config

    @property
    def learned_classes(self) -> Sequence[str]:
        """The class names by label; empty if the objective learns no classes."""
        return self.source.classes if self.program.objective.LABELLED else ()

    def train_batches(self, first_step: int) -> Iterator[dict[str, jax.Array]]:
        """Yields global batches, from `first_step` on."""
        size, over = self.config.batch_size, self.program.batch_sharding
        rows = pipeline.local_rows(over, size)
        batches = self.train_pipeline.train(first_step, self.program.steps.total, rows)
        ahead = self.config.data.prefetch
        return coordinated_stop.feed(pipeline.to_devices(batches, over, size, ahead))

    def skipped_images(self, workdir: Path) -> list[dict[str, str]]:
        """Returns `file` and `reason` of every image that any process has left out of training."""
        from vit_jax.data.pipeline import skipped_images

        before = skipped_images.read_skipped(workdir)
        own = json.dumps(sorted({*before, *self.train_pipeline.skipped}))
        lists = map(json.loads, coordination.gather("skipped images", own))
        images = sorted(set(map(tuple, itertools.chain.from_iterable(lists))))
        return [{"file": file, "reason": reason} for file, reason in images]

    def fingerprint(self) -> dict[str, str]:
        """Returns the values that must agree in all processes that read the same examples."""
        split = self.train_pipeline.split
        values = {"training examples": f"{len(split)} ({split.digest()})"}
        for name, one in self.evaluations.items():
            digests = [part.digest(1000) for part in one.parts.values()]
            values[f"evaluation {name}"] = f"{len(one)} ({' '.join(digests)})"
        values |= {name: task.digest() for name, task in self.tasks.items()}
        return self.source.fingerprint() | values

    def eval_batches(self, name: str) -> Iterator[tuple[str, dict[str, jax.Array]]]:
        """Yields (part, global batch) of a named evaluation; see `classification.evaluate`."""
        columns, with_columns = self.evaluations[name].columns, {}
        if columns is not None:
            with_columns["columns"] = jax.make_array_from_callback(
                columns.shape, self.program.rules.replicated, lambda index: columns[index]
            )
        over = self.program.batch_sharding
        for part, pipe in self.eval_pipelines[name].items():
            batches = pipe.evaluation(pipeline.local_rows(over, pipe.batch_size))
            placed = pipeline.to_devices(batches, over, pipe.batch_size, 0)
            for batch in coordinated_stop.feed(placed):
                yield part, batch | with_columns

    def features(self, params: Any, split: Split) -> np.ndarray:
        """Returns the representations of images, float32 [n, D], prepared for few-shot tasks."""
        from vit_jax.evaluators import features

        size = placement.few_shot_batch(self.config)
        pipe = few_shot_pipeline(self.config, split, size)
        return features.compute(
            self.program.features_step,
            params,
            lambda rows: coordinated_stop.feed(pipe.evaluation(rows)),
            self.program.rules,
            size,
        )


def build(config: sections.Config, compile_first: Sequence[str] = ()) -> Run:
    """Builds everything that a settled, checked configuration describes.

    Args:
      config: the settled and checked configuration.
      compile_first: `create`, `step` or both: the functions to trace here and to compile in a
        thread while the images are opened. Opening takes about as long, including the import of
        TensorFlow.

    Raises:
      BadInput: the data, the mesh or a combination of values cannot be used.
    """
    placement.make_rules(config)  # reports errors of the mesh before any data is read
    recovery.passed("program")
    few_shot = splits.few_shot_sources(config)  # likewise
    source, notes, split, evals = splits.open_all(config)
    recovery.passed("data")
    classes = len(source.classes)
    objective = objectives.make(config, variants.of(config.model, classes))
    objectives.check_classes(config, objective, classes)
    objectives.check_evaluations(objective, evals)

    with compile_ahead.ahead() as submit:

        def make(labels: int) -> Program:
            computation = program.make(config, classes=classes, examples=len(split), labels=labels)
            for name in compile_first:
                computation.start_compiling(name, submit)
            recovery.passed("program")
            return computation

        computation = make(split.table.most_labels) if split.table.most_labels else None
        wanted = objectives.fields(objective, images_lib.of(config.data), source.classes)
        train, labels, pipelines = _pipelines(config, wanted, split, evals, notes)
        tasks = _tasks(config, few_shot)
        recovery.passed("data")
        computation = computation or make(labels)
        for name in config.evals:
            _, evaluator = computation.evaluator(name)
            if evaluator is not None:
                from vit_jax.evaluators import custom

                custom.try_on_random_logits(evaluator, classes, labels)
    return Run(
        program=computation,
        source=dataclasses.replace(source, notes=tuple(notes)),
        train_pipeline=train,
        evaluations=evals,
        eval_pipelines=pipelines,
        tasks=tasks,
    )


def _tasks(config: sections.Config, opened: Mapping[str, Source]) -> "dict[str, shots.Task]":
    """Makes the few-shot tasks; reads the first image of each split."""

    def make(name: str, source: Source) -> "shots.Task":
        from vit_jax.data.tasks import shots

        task = shots.make_task(source, config.fewshot.shots, config.fewshot.seeds)
        try:
            for split in (task.train, task.test):
                few_shot_pipeline(config, split, 1).probe()
        except BadInput as e:
            raise BadInput(f"{name}: {e}") from e
        return task

    return splits.call_all(
        {name: functools.partial(make, name, source) for name, source in opened.items()}
    )


def few_shot_pipeline(config: sections.Config, split: Split, batch_size: int) -> Pipeline:
    """Makes a pipeline that reads a split as few-shot tasks do."""
    return plain_pipeline(config.data, split, batch_size, "fewshot.ops", config.fewshot.ops)


def plain_pipeline(
    data: sections.Data, split: Split, batch_size: int, key: str = "data.eval_ops", chain: str = ""
) -> Pipeline:
    """Makes a pipeline that reads a split as evaluations do, or by the chain of another key."""
    images = images_lib.of(data)
    ops = preprocess.parse(key, chain or data.eval_ops, images.size, images.channels)
    make = readers.pipeline_of(readers.usable(data.reader))
    more = (data.workers, data.prefetch)
    return make(split, ops, batch_size, 0, images.size, *more, channels=images.channels)


def drawn_pipeline(
    config: sections.Config, source: Source, fields: tuple[str, ...] | None = ("image", "labels")
) -> tuple[Pipeline, str]:
    """Makes a pipeline that reads the training examples as the step receives them, for pictures.

    It makes one image of each example. If the run has several views, it makes the first.

    Args:
      config: the settled configuration.
      source: opened source of `config.data`.
      fields: see `Pipeline`.

    Returns:
      The pipeline, and the text that its chain was parsed from.
    """
    data, images = config.data, images_lib.of(config.data)
    split = splits.in_windows(splits.training_examples(source, data)[0], data)
    shape, chain = (images.size, images.channels), data.train_ops
    ops, size = preprocess.parse("data.train_ops", chain, *shape), images.size
    if data.device_ops:
        from vit_jax.build import device_ops

        size = device_ops.host_shape(data)[:2]
    if views := preprocess.parse_views("data.views", data.views, *shape):
        ops, size, chain = views[0].ops, views[0].size(size), data.views
    pipe = readers.pipeline_of(readers.usable(data.reader))(
        split, ops, 1, config.seed, size, data.workers, 1, data.bad_images,
        channels=images.channels, fields=fields,
    )  # fmt: skip
    return pipe, chain


def _pipelines(
    config: sections.Config,
    wanted: objectives.Fields,
    split: Split,
    evaluations: splits.Evaluations,
    notes: list[str],
) -> tuple[Pipeline, int, dict[str, dict[str, Pipeline]]]:
    """Returns the training pipeline, K of its examples, and the pipelines of each evaluation.

    It adds to the notes.
    """
    data = config.data
    readers: dict[str, Callable[[], Any]] = {
        "": functools.partial(_pipeline, config, wanted, "", split)
    }
    for name, one in evaluations.items():
        readers[name] = functools.partial(_part_pipelines, config, wanted, name, one)
    pipes = splits.call_all(readers)
    train, labels = pipes.pop("")
    train = _cached(train, data, notes)
    for name, section in config.evals.items():
        if section.source:  # read only once, at the end
            notes.append(f"{name} is {section.source}: {_sizes_in_words(evaluations[name])}")
        else:
            pipes[name] = {part: _cached(p, data, notes) for part, p in pipes[name].items()}
    return train, labels, pipes


def _sizes_in_words(one: Evaluation) -> str:
    parts = f" in {len(one.parts)} parts" if len(one.parts) > 1 else ""
    among = "" if one.columns is None else f", among {len(one.columns)} classes"
    return f"{len(one):,} images{parts}{among}"


def _part_pipelines(
    config: sections.Config, wanted: objectives.Fields, name: str, one: Evaluation
) -> dict[str, Pipeline]:
    """Makes a pipeline of each part; reads the first image of the first part."""
    pipelines = {}
    for part, split in one.parts.items():
        pipelines[part] = _pipeline(config, wanted, name, split, probe=not pipelines)[0]
    return pipelines


def _pipeline(
    config: sections.Config, wanted: objectives.Fields, name: str, split: Split, probe: bool = True
) -> tuple[Pipeline, int]:
    """Makes the pipeline of training ("") or of a named evaluation.

    Also returns K of its first example.
    """
    data, images = config.data, images_lib.of(config.data)
    objectives.check_boxes(config.objective, wanted, split)
    key, chain = ("eval_ops", data.eval_ops) if name else ("train_ops", data.train_ops)
    ops = preprocess.parse(f"data.{key}", chain, images.size, images.channels)
    views = preprocess.parse_views("data.views", data.views, images.size, images.channels)
    if name and any(view.name == "image" for view in views):
        views = ()  # otherwise an evaluation sees the same views, drawn the same way each time
    batch_size = (config.evals[name].batch_size if name else 0) or config.batch_size
    size = images.size
    if data.device_ops and not name:
        from vit_jax.build import device_ops

        size = device_ops.host_shape(data)[:2]
    pipe = readers.pipeline_of(data.reader)(
        split, ops, batch_size, config.seed, size, data.workers,
        data.prefetch, "error" if name else data.bad_images,
        views=views, channels=images.channels, fields=wanted.names,
        most_boxes=wanted.most_boxes, texts=wanted.texts(drawn=not name),
    )  # fmt: skip
    return pipe, pipe.probe()["labels"].shape[1] if probe else 0


def _cached(pipe: Pipeline, data: sections.Data, notes: list[str]) -> Pipeline:
    """Returns the same pipeline, reading from memory if `data.cache` asks for it."""
    if data.cache == "none":
        return pipe
    cached, note = pipe.cached(data.cache)
    notes += [note] if note else []
    return cached
