# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies trained weights to images, on all devices and with the weights' own preprocessing.

This module must not train. Start from `open_model`, then `Model.of_split` or `Model.of_files`.
"""

import dataclasses
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import sharding
from vit_jax.build import splits
from vit_jax.checkpoints import step_folders
from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.data import readers
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.pipeline.pipeline import NumpyBatch, local_rows
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput
from vit_jax.evaluators import features
from vit_jax.inference import inputs
from vit_jax.inference import packing as packing_lib
from vit_jax.models import variants
from vit_jax.runtime import coordination
from vit_jax.step import metrics
from vit_jax.storage import files as storage
from vit_jax.weights import image_chains, loading
from vit_jax.weights.convert import Weights

EACH = 64  # images in a batch on each device
Progress = Callable[[int], None]  # called with the number of finished images
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is ready to be applied.

    Attributes:
      weights: the weights as read: configuration, format and preprocessing.
      size: rows and columns of pixels.
      names: the class names; () if they are unknown.
      sigmoid: True if each class has its own probability; False if classes exclude each other.
      cfg: the configuration of the model.
      params: the parameters, replicated on every device.
      rules: mesh and placement; images are split over all devices.
      pack: patches of a sequence into which several images are packed; 0: one image in each.
    """

    weights: Weights
    size: tuple[int, int]
    names: tuple[str, ...]
    sigmoid: bool
    cfg: variants.Config
    params: Any = dataclasses.field(repr=False)
    rules: sharding.Rules
    pack: int = 0

    @property
    def channels(self) -> int:
        """The number of channels of the images."""
        return self.weights.channels

    @property
    def chain(self) -> str:
        """The ops that prepare images, for weights other than a run's as near as ops come."""
        images = self.weights.images
        return images.get("ops") or image_chains.of(self.weights.format, images).evaluation

    @property
    def batch_size(self) -> int:
        """The number of images in a batch, over all devices."""
        return EACH * self.rules.batch_parts

    def step(self, of_logits: Callable[[jax.Array], jax.Array] | None = None) -> features.Step:
        """Makes a step with `features.make_step`, for representations or a function of logits.

        Raises:
          BadInput: `of_logits` is given and the weights have no head.
        """
        if of_logits and not self.weights.classes:
            raise BadInput("these weights have no head, so they say nothing about classes.")
        images, half = self.weights.images, (0.5,) * self.channels  # unused: files come normalised
        mean, std = images.get("mean", half), images.get("std", half)
        return features.make_step(self.cfg, self.rules, mean=mean, std=std, of_logits=of_logits)

    def best(
        self, most: int, columns_CG: np.ndarray | None = None
    ) -> Callable[[jax.Array], jax.Array]:
        """Makes a function for `step` that maps logits [B, Y] to [B, 2T], T = min(most, Y).

        The first T columns are class numbers, the likeliest first; among equals the lower number
        comes first. The other T columns are the probabilities. They do not add up to 1 if each
        class has its own probability (`sigmoid`).

        Args:
          most: the largest number of classes to return.
          columns_CG: the classes to choose among, see `metrics.of_columns`; None: all.
        """

        def best(logits_BY: jax.Array) -> jax.Array:
            if columns_CG is not None:
                logits_BY = metrics.of_columns(logits_BY, jnp.asarray(columns_CG))
            _, best_BT = jax.lax.top_k(logits_BY, min(most, logits_BY.shape[1]))
            made_BY = (jax.nn.sigmoid if self.sigmoid else jax.nn.softmax)(logits_BY)
            likely_BT = jnp.take_along_axis(made_BY, best_BT, axis=1)
            return jnp.concatenate([best_BT.astype(jnp.float32), likely_BT], axis=1)

        return best

    def of_split(
        self,
        step: features.Step,
        split: Split,
        progress: Progress = lambda _: None,
        *,
        few_shot: bool = False,
    ) -> np.ndarray:
        """Applies a step to every image of a split.

        Args:
          step: from `step`.
          split: the images.
          progress: called with the number of finished images.
          few_shot: whether to prepare images for few-shot tasks: by `fewshot.ops` of the run, by
            its default for the published .npz files. Otherwise images are prepared as in the
            evaluation of the weights, and always so for timm and Hugging Face.

        Returns:
          float32 [N, D], in the order of the split.
        """
        rows = self._rows(split, few_shot=few_shot)
        return self._compute(step, rows, progress)

    def _compute(self, step: features.Step, rows: features.Rows, progress: Progress) -> np.ndarray:
        """Returns what a step gives for each image, float32 [N, D]."""
        if not self.pack:
            return features.compute(step, self.params, rows, self.rules, self.batch_size, progress)
        parts, patch = self.rules.batch_parts, self.cfg.stride
        cells = math.prod(variants.grid(self.cfg, *self.size))
        sequences = parts * max(1, round(EACH * cells / self.pack))
        packing = packing_lib.Packing(self.pack, patch, sequences)
        # Batches are read as without packing: their rows are images, and not sequences.
        over = self.rules.sharding(("act_batch",), (self.batch_size,), "batch")
        own = local_rows(over, self.batch_size)
        return features.compute(
            step, self.params, lambda _: packing.batches(rows(own)), self.rules, sequences,
            progress, packing.order,
        )  # fmt: skip

    def _rows(self, split: Split, *, few_shot: bool) -> features.Rows:
        workers, images = os.cpu_count() or 1, self.weights.images
        key, chain = "data.eval_ops", images.get("ops", "")
        if few_shot and self.weights.format in ("run", "npz", "big_vision"):
            key = "fewshot.ops"
            chain = images.get("fewshot_ops", sections.KEYS[key].default)
        if not chain:
            reader = loading.reader(self.weights, self.size)
            return lambda _: inputs.batches(split, reader, self.batch_size, workers)
        ops = preprocess.parse(key, chain, self.size, self.channels)
        if not any(isinstance(op, decode.Decode) for op in ops):
            ops = (decode.Decode(channels=self.channels), *ops)
        pipeline = readers.pipeline_of(readers.usable(images.get("reader", "tf")))(
            split, ops, self.batch_size, 0, self.size, workers, prefetch=2, channels=self.channels
        )
        return pipeline.evaluation

    def of_files(
        self, step: features.Step, paths: Sequence[str], progress: Progress = lambda _: None
    ) -> tuple[list[str], np.ndarray, dict[str, str]]:
        """Applies a step to image files.

        Args:
          step: from `step`.
          paths: the image files.
          progress: called with the number of finished images.

        Returns:
          The N readable paths, in order; float32 [N, D]; and path -> reason for the unreadable.

        Raises:
          BadInput: no file can be read.
        """
        read, bad = list[str](), dict[str, str]()

        def batches(_: range) -> Iterator[NumpyBatch]:
            rows = list[Any]()
            for path, image in self.read_files(paths):
                if isinstance(image, BadInput):
                    bad[path] = str(image)
                    continue
                read.append(path)
                rows.append(image)
                if len(rows) == self.batch_size:
                    yield inputs.as_batch(rows, self.batch_size)
                    rows = []
            if rows:
                yield inputs.as_batch(rows, self.batch_size)

        outputs = self._compute(step, batches, lambda done: progress(done + len(bad)))
        return read, outputs, bad

    def read_files(self, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yields each path, in order, with its image or the error that reading it gave.

        An image is float32 [1, H, W, C], preprocessed for the model, or a `naflex.Canvas` of one.

        Raises:
          BadInput: no file can be read.
        """
        reader = loading.reader(self.weights, self.size)

        def one(path: str) -> Any:
            try:
                return reader(path)
            except BadInput as e:
                return e

        wrong = list[BadInput]()
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for start in range(0, len(paths), self.batch_size):  # keeps one batch in memory
                part = paths[start : start + self.batch_size]
                for path, image in zip(part, threads.map(one, part), strict=True):
                    wrong += [image] if isinstance(image, BadInput) else []
                    yield path, image
        if len(wrong) == len(paths):
            raise BadInput(f"none of {len(paths)} images can be read, first: {wrong[0]}")


def open_model(
    text: str,
    *,
    heads: int = 0,
    image_size: tuple[int, int] | None = None,
    patch: int = 0,
    merge: int | None = None,
    names: str = "",
    pack: int = 0,
) -> Model:
    """Loads the model of FILE_OR_RUN onto all devices of this process.

    Args:
      text: FILE_OR_RUN, see `loading`.
      heads: the number of attention heads, for a file that does not store it.
      image_size: rows and columns of pixels; None: the size that the weights were made for.
      patch: pixels a side of a patch; 0: that of the weights.
      merge: pairs of tokens that each layer merges; None: as in the run.
      names: a file of class names, one a line; "": the names in the run, or in config.json beside
        the file.
      pack: patches of a sequence into which several images are packed; 0: one image in each.

    Raises:
      BadInput: the weights are missing or not readable, or the file lacks a necessary fact.
    """
    if not coordination.present_accelerators():
        jax.config.update("jax_platforms", "cpu")  # or libtpu complains about a missing TPU
    weights = loading.read_weights(text, heads=heads, patch=patch, merge=merge)
    size = image_size or weights.image_size
    if size is None:
        raise BadInput(f"{text} does not give its image size; give --image_size=N.")
    variants.check_image_size(weights.config, *size)
    known, sigmoid = (_of_run if weights.format == "run" else _of_file)(text, weights)
    if names:
        known = read_names(names)
        if len(known) != weights.classes:
            raise BadInput(
                f"--names={names} has {len(known)} names, the model {weights.classes} classes; "
                "give the list that it was trained with."
            )
    _check_pack(weights.config, size, pack)
    cfg, params = loading.ordinary(weights, size)
    mesh = sharding.make_mesh(replica=0, data=-1, fsdp=1, tensor=1)
    rules = sharding.Rules(mesh, (("act_batch", ("replica", "data")),))
    params = jax.device_put(params, rules.replicated)
    return Model(weights, size, known, sigmoid, cfg, params, rules, pack)


def _check_pack(cfg: variants.Config, size: tuple[int, int], pack: int) -> None:
    """Raises BadInput for images that cannot be packed, or sequences too short for one of them."""
    if not pack:
        return
    if not getattr(cfg, "naflex", 0):
        raise BadInput(
            f"--pack={pack}: only models of images of any aspect ratio (model.naflex, "
            "docs/naflex.md) take several in a sequence; leave it out."
        )
    if pack < (most := math.prod(variants.grid(cfg, *size))):
        raise BadInput(
            f"--pack={pack}: an image has up to {most} patches; give at least as many for a "
            "sequence, or a smaller --image_size."
        )


def _of_file(text: str, weights: Weights) -> tuple[tuple[str, ...], bool]:
    """Returns the class names in config.json beside a file, and its `sigmoid` as in `_of_run`."""
    known = weights.names if weights.classes else ()  # names without a head mean nothing
    if known and len(known) != weights.classes:
        raise BadInput(
            f"{text}: config.json beside it names {len(known)} classes, the model has "
            f"{weights.classes}; repair it, or remove the names."
        )
    return known, weights.sigmoid


def _of_run(text: str, weights: Weights) -> tuple[tuple[str, ...], bool]:
    """Returns the class names of a run, and True if each class has its own probability.

    A run without a head has no class names, although its data has classes.
    """
    if not weights.classes:
        return (), False
    run = loading.find_run(text)
    assert run is not None, text
    loss = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE)).loss.name
    path, names = run.workdir / step_folders.CLASSES_FILE, loading.class_names(run.workdir)
    if names and len(names) != weights.classes:
        raise BadInput(
            f"{path} names {len(names)} classes, the model has {weights.classes}; repair it, or "
            "remove it."
        )
    return names, loss == "sigmoid"


def open_data(text: str, spec: str, data_dir: str) -> Source:
    """Opens the source to apply a model to.

    The run's own source has the splits of the run. Another source holds nothing out.

    Args:
      text: FILE_OR_RUN; a run provides the data options.
      spec: `kind:rest`; "": the source that the run was trained on.
      data_dir: the folder of prepared datasets; "": that of the run, or TFDS's default.

    Raises:
      BadInput: see `sources.open_source`; or `spec` is empty and `text` is a file.
    """
    if not loading.may_be_run(text):
        if not spec:
            raise BadInput(
                f"{text} is no folder of a run, and a file has no data of its own; check the path, "
                "or give --data=SOURCE."
            )
        options = Options(data_dir=data_dir)
        return sources.open_source(spec, options, val_percent=0, test_percent=0)
    run = loading.find_run(text)
    assert run is not None, text
    data = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE)).data
    more = {"data_dir": data_dir} if data_dir else {}
    if spec not in ("", data.source):
        more |= {"source": spec, "val_percent": 0, "test_percent": 0}
    return splits.open_source(config_lib.changed(data, more))


def choose_split(source: Source, expression: str) -> tuple[str, Split]:
    """Returns the name of a split and the split, chosen by name or slice.

    The empty expression chooses `test`, or the only split.

    Raises:
      BadInput: the split does not exist, or there are several and no `test`, or none at all.
    """
    if not source.splits:
        why = "".join(f"; {note}" for note in source.notes)
        raise BadInput(f"{source.spec} has no image to evaluate on{why}. Give another --data.")
    if expression:
        return expression, source.split(expression)
    if "test" in source.splits:
        return "test", source.splits["test"]
    if len(source.splits) > 1:
        raise BadInput(
            f"{source.spec} has no split test but {', '.join(source.splits)}; give --split=NAME."
        )
    return next(iter(source.splits.items()))


def read_names(path: str) -> tuple[str, ...]:
    """Reads class names from the lines of a file or pipe.

    Raises:
      BadInput: the file cannot be read, or a line is empty.
    """
    try:
        lines = storage.read_list(os.path.expanduser(path)).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as e:  # ValueError: not UTF-8, or a null byte in the path
        raise BadInput(f"--names={path} cannot be read: {e}; give names, one a line.") from e
    if not all(line.strip() for line in lines):
        raise BadInput(f"--names={path} has an empty line; give names, one a line, in order.")
    return tuple(line.strip() for line in lines)
