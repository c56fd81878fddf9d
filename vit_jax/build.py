# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a configuration to everything a run is made of: its program and its data.

With `program`, the one place that unpacks the sections: each becomes the arguments of one function,
so a key that nobody takes cannot exist.
`check` finds what is wrong without TensorFlow or a device; start from `build`.
"""

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax

from vit_jax import checks, distributed, duration, losses, memory, program
from vit_jax import config as config_lib
from vit_jax.config import ConfigDict
from vit_jax.data import memory_cache, pipeline, preprocess, sources, subset, windows
from vit_jax.data.pipeline import Pipeline
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput, together, unknown
from vit_jax.models import variants
from vit_jax.program import Program


def check(config: ConfigDict) -> None:
    """Finds what is wrong with the values of a configuration, without TensorFlow or a device.

    Raises:
      BadInput: the first thing found.
    """
    checks.check_numbers(config)
    checks.check_tuples(config)
    checks.check_data(config.data)
    if config.batch_size % config.accumulation:
        fits = [a for a in range(1, config.batch_size + 1) if config.batch_size % a == 0]
        raise BadInput(
            f"accumulation={config.accumulation} does not divide batch_size={config.batch_size}; "
            f"{_nearest(config.accumulation, fits)} would."
        )
    cfg = variants.config(**config.model, classes=2)
    variants.check_image_size(cfg, config.data.image_size, config.data.image_size)
    if program.masked_objective(config, cfg) is not None:
        checks.check_masked(config)
    for key in ("train_ops", "eval_ops"):
        preprocess.parse(f"data.{key}", config.data[key], config.data.image_size)
    kind = config.data.source.partition(":")[0]
    if kind not in sources.KINDS:
        raise unknown(
            "data.source", config.data.source, [usage for usage, _ in sources.KINDS.values()]
        )
    if config.loss.name not in losses.LOSSES:
        raise unknown("loss", config.loss.name, losses.LOSSES)
    for key, value in config_lib.flatten(config):
        if key in _DURATIONS or re.fullmatch(r"evals\.\w+\.every", key):
            duration.parse(f"config.{key}", value)
        if key == "schedule.step.drops":
            for text in value:
                duration.parse(f"config.{key}", text)
    if duration.parse("config.length", config.length).unit == "percent":
        raise BadInput(f"length={config.length!r}: percent is of the length; give another unit.")
    program.profile_steps(config.profile)


_DURATIONS = (
    "length", "schedule.warmup", "schedule.cooldown",
    "checkpoint.every", "checkpoint.keep_every", "report.every",
)  # fmt: skip


def _nearest(value: int, fits: list[int]) -> str:
    near = sorted(sorted(fits, key=lambda f: abs(f - value))[:3])
    return " or ".join(map(str, near))


@dataclasses.dataclass(frozen=True)
class Run(Program):
    """Everything a run is made of: a program with its data."""

    source: sources.Source
    train_pipeline: Pipeline
    eval_pipelines: dict[str, Pipeline]

    def train_batches(self, first_step: int) -> Iterator[dict[str, jax.Array]]:
        """Global batches from a step on."""
        size = self.config.batch_size
        rows = pipeline.local_rows(self.batch_sharding, size)
        batches = self.train_pipeline.train(first_step, self.steps.total, rows)
        return pipeline.to_devices(batches, self.batch_sharding, size, self.config.data.prefetch)

    def skipped_images(self) -> list[dict[str, str]]:
        """`file` and `reason` of what any process has left out of training since it started."""
        own = json.dumps(self.train_pipeline.skipped)
        lists = map(json.loads, distributed.gather("skipped images", own))
        found = sorted(set(map(tuple, itertools.chain.from_iterable(lists))))
        return [{"file": file, "reason": reason} for file, reason in found]

    def fingerprint(self) -> dict[str, str]:
        """What is equal in all processes that read the same examples."""
        split = self.train_pipeline.split
        return self.source.fingerprint() | {"training examples": f"{len(split)} ({split.digest()})"}

    def eval_batches(self, name: str) -> Iterator[dict[str, jax.Array]]:
        """Global batches of a named evaluation."""
        pipe = self.eval_pipelines[name]
        rows = pipeline.local_rows(self.batch_sharding, pipe.batch_size)
        batches = pipe.evaluation(rows)
        return pipeline.to_devices(batches, self.batch_sharding, pipe.batch_size, 0)


def build(config: ConfigDict) -> Run:
    """Builds everything that a settled, checked configuration describes; compiles nothing yet.

    Raises:
      BadInput: the data, the mesh, or a combination of values cannot be used.
    """
    program.make_rules(config)  # what is wrong with the mesh is said before any data is read
    source, train, evals, labels = _data(config)
    classes, examples = len(source.classes), len(train.split)
    made = program.make(config, classes=classes, examples=examples, labels=labels)
    return Run(**vars(made), source=source, train_pipeline=train, eval_pipelines=evals)


def open_source(data: ConfigDict, spec: str = "") -> sources.Source:
    """The source of a `data` section, or another one with its options."""
    return sources.open_source(
        spec or data.source,
        sources.Options(data_dir=data.data_dir, **data.records),
        val_percent=data.val_percent,
        test_percent=data.test_percent,
    )


def problems(data: ConfigDict) -> list[BadInput]:
    """What keeps the data of a section from being opened; empty when nothing does."""
    try:
        open_source(data)
    except BadInput as e:
        return [e]
    return []


def _data(config: ConfigDict) -> tuple[sources.Source, Pipeline, dict[str, Pipeline], int]:
    """Source, pipelines of training and of evaluations, and K of the training examples."""
    data = config.data
    labels: dict[str, int] = {}
    source = open_source(data)
    notes = list(source.notes)

    def training() -> Split:
        split, said = training_examples(source, data)
        notes.extend(said)
        return windows.in_windows(split, data.window_shards) if data.window_shards else split

    def make(name: str, split: Split) -> Pipeline:
        key = "eval_ops" if name else "train_ops"
        ops = preprocess.parse(f"data.{key}", data[key], data.image_size)
        batch_size = (config.evals[name].batch_size if name else 0) or config.batch_size
        pipe = Pipeline(
            split, ops, batch_size, config.seed, data.image_size, data.workers,
            data.prefetch, "error" if name else data.bad_images,
        )  # fmt: skip
        labels[name] = pipe.probe()["labels"].shape[1]
        return pipe

    wanted: dict[str, Callable[[], Split]] = {"": training}  # what is trained on has no name
    for name, section in config.evals.items():
        wanted[name] = functools.partial(source.split, section.split)
    splits = _all(wanted)  # before any image is read, which needs TensorFlow
    pipes = _all({name: functools.partial(make, name, split) for name, split in splits.items()})
    pipes = {name: _kept(pipe, data, notes) for name, pipe in pipes.items()}
    return dataclasses.replace(source, notes=tuple(notes)), pipes.pop(""), pipes, labels[""]


_T = TypeVar("_T")


def _all(makers: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
    """What each maker makes; raises one BadInput with what all of them say."""
    made, found = {}, list[BadInput]()
    for name, maker in makers.items():
        try:
            made[name] = maker()
        except BadInput as e:
            found.append(e)
    if found:
        raise together(found)
    return made


def training_examples(source: sources.Source, data: ConfigDict) -> tuple[Split, list[str]]:
    """The examples that are trained on, and notes."""
    return subset.choose(
        source.split(data.split),
        examples=data.examples,
        fraction=data.fraction,
        balanced=data.balanced,
        exclude=data.exclude,
        classes=len(source.classes),
    )


def _kept(pipe: Pipeline, data: ConfigDict, notes: list[str]) -> Pipeline:
    """The same, read from memory where `data.cache` says so."""
    split, ops, note = memory_cache.keep(pipe.split, data.cache, pipe.ops, data.workers)
    notes += [note] if note else []
    return dataclasses.replace(pipe, split=split, ops=ops)


def out_of_memory(run: Run) -> BadInput:
    """What a run that ran out of memory needs, and which settings would need less."""
    size, parts, ways = run.config.batch_size, run.config.accumulation, run.rules.batch_ways
    more = [parts * f for f in (2, 4, 8, 16) if size % (parts * f * ways) == 0]
    settings: list[dict[str, Any]] = [{"accumulation": a} for a in more]
    remat = program.stronger_remat(run.config.model.remat)
    settings += [{"model.remat": policy} for policy in remat]
    settings += [
        {"accumulation": a, "model.remat": policy} for a in more[-1:] for policy in remat[-1:]
    ]
    if size % (2 * parts * ways) == 0:
        settings.append({"batch_size": size // 2})
    limit = memory.limit_bytes(run.rules.mesh.local_devices[0])
    return memory.advice(
        lambda changes: run.changed(changes).lower_step().compile(), settings, limit
    )
