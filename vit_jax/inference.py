# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights on all devices, and images through their own preprocessing, for what only looks.

Start from `open_model`, then `Model.of_split` or `Model.of_files`.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax import config as config_lib
from vit_jax import distributed, loading, sharding
from vit_jax.data import decode, preprocess, reading
from vit_jax.data.pipeline import NumpyBatch, Pipeline
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput, together
from vit_jax.evaluators import features
from vit_jax.models import files, variants
from vit_jax.models.pretrained import Weights

EACH = 64  # images at a time on each device
GROUP = 4096  # images whose results are held at a time
Progress = Callable[[int], None]  # images that are done


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that is ready to be applied.

    Attributes:
      weights: where its parameters are from; without values.
      size: rows and columns of pixels.
      names: of its classes; () where nobody says.
      sigmoid: whether a class is likely by itself; else classes exclude each other.
      params: on every device.
      rules: mesh and placement; images are split over all devices.
    """

    weights: Weights
    size: tuple[int, int]
    names: tuple[str, ...]
    sigmoid: bool
    params: Any = dataclasses.field(repr=False)
    rules: sharding.Rules

    @property
    def cfg(self) -> variants.Config:
        """Of the model."""
        return self.weights.config

    @property
    def batch_size(self) -> int:
        """Images at a time, all devices together."""
        return EACH * self.rules.batch_ways

    def name(self, label: int) -> str:
        """Of a class; its number where it has none."""
        return self.names[label] if self.names else str(label)

    def probabilities(self, logits_NY: np.ndarray) -> np.ndarray:
        """float32 [N, Y] in [0, 1], from logits [N, Y]."""
        made = jax.nn.sigmoid if self.sigmoid else jax.nn.softmax
        return np.asarray(made(logits_NY))

    def step(self, *, head: bool) -> features.Step:
        """`features.make_step` of this model: logits with the head, else representations."""
        if head and not self.weights.classes:
            raise BadInput("these weights have no head, so they say nothing about classes.")
        images, half = self.weights.images, (0.5, 0.5, 0.5)  # of files: images come normalised
        mean, std = images.get("mean", half), images.get("std", half)
        return features.make_step(self.cfg, self.rules, mean=mean, std=std, head=head)

    def of_split(
        self, step: features.Step, split: Split, progress: Progress = lambda _: None
    ) -> np.ndarray:
        """What a step makes of every image of a split, as the weights' own evaluation sees them.

        Returns:
          float32 [N, D], in the order of the split.
        """
        return features.compute(
            step, self.params, self._rows(split), self.rules, self.batch_size, progress
        )

    def _rows(self, split: Split) -> features.Rows:
        workers = os.cpu_count() or 1
        if self.weights.format != "run":
            reader = loading.reader(self.weights, self.size)
            return lambda _: reading.batches(split, reader, self.batch_size, workers)
        side = self.size[0]
        ops = preprocess.parse("data.eval_ops", self.weights.images["ops"], side)
        if not any(isinstance(op, decode.Decode) for op in ops):
            ops = (decode.Decode(), *ops)
        made = Pipeline(split, ops, self.batch_size, 0, side, workers, prefetch=2)
        return made.evaluation

    def of_files(
        self, step: features.Step, paths: Sequence[str]
    ) -> Iterator[tuple[list[str], np.ndarray, dict[str, str]]]:
        """What a step makes of image files, some thousands at a time.

        Args:
          step: from `step`.
          paths: of image files.

        Yields:
          The paths of the next N images; float32 [N, D] of each; and path -> reason of those in
          between that cannot be read.
        """
        reader = loading.reader(self.weights, self.size)

        def one(path: str) -> np.ndarray | BadInput:
            try:
                return reader(path)[0]
            except BadInput as e:
                return e

        def batches(
            paths: Sequence[str], read: list[str], bad: dict[str, str]
        ) -> Iterator[NumpyBatch]:
            for start in range(0, len(paths), self.batch_size):
                part, rows = paths[start : start + self.batch_size], list[np.ndarray]()
                for path, image in zip(part, threads.map(one, part), strict=True):
                    if isinstance(image, BadInput):
                        bad[path] = str(image)
                    else:
                        read.append(path)
                        rows.append(image)
                if rows:
                    padding = [np.zeros_like(rows[0])] * (self.batch_size - len(rows))
                    mask_B = np.arange(self.batch_size) < len(rows)
                    yield {"image": np.stack(rows + padding), "mask": mask_B}

        group = self.batch_size * max(1, GROUP // self.batch_size)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for start in range(0, len(paths), group):
                read, bad = list[str](), dict[str, str]()
                made = batches(paths[start : start + group], read, bad)
                first = next(made, None)
                found = np.zeros((0, 0), np.float32)
                if first is not None:
                    rows = itertools.chain([first], made)
                    found = features.compute(
                        step, self.params, lambda _, rows=rows: rows, self.rules, self.batch_size
                    )
                yield read, found, bad


def open_model(text: str, *, heads: int = 0, image_size: int = 0) -> Model:
    """The model of FILE_OR_RUN, on all devices of this process.

    Args:
      text: FILE_OR_RUN, see `loading`.
      heads: attention heads, for a file that does not say.
      image_size: pixels of a side; 0: what the weights were made for.

    Raises:
      BadInput: nothing there, not readable, or something that the file does not say.
    """
    if not distributed.present_accelerators():
        jax.config.update("jax_platforms", "cpu")  # or libtpu complains that it has no TPU
    weights = loading.read_weights(text, heads=heads)
    size = (image_size, image_size) if image_size else weights.image_size
    if size is None:
        raise BadInput(f"{text} does not say for what image size it was made; give --image_size=N.")
    variants.check_image_size(weights.config, *size)
    names, sigmoid = ((), False)
    if weights.format == "run":
        names, sigmoid = _of_run(text, weights.classes)
    params = loading.fit(weights, weights.config, size, fresh_head=False).params
    mesh = sharding.make_mesh(replica=0, data=-1, fsdp=1, tensor=1)
    rules = sharding.Rules(mesh, (("act_batch", ("replica", "data")),))
    params = jax.device_put(params, rules.replicated)
    return Model(weights, size, names, sigmoid, params, rules)


def _of_run(text: str, classes: int) -> tuple[tuple[str, ...], bool]:
    """What a run says of its classes: their names, and whether each is likely by itself."""
    run = loading.find_run(text)
    assert run is not None, text
    loss = config_lib.load(str(run.workdir / loading.CONFIG_FILE)).loss.name
    path = run.workdir / loading.CLASSES_FILE
    names = files.read_json(path).get("classes", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f'{path} is not {{"classes": [names]}}; repair it, or remove it.')
    if names and classes and len(names) != classes:
        raise BadInput(
            f"{path} names {len(names)} classes, the model has {classes}; repair it, or remove it."
        )
    return tuple(names), loss == "sigmoid"


def image_files(given: Sequence[str]) -> list[str]:
    """The image files that are named, and those in folders that are, by name.

    Raises:
      BadInput: one that is not there, a folder without images, or none at all.
    """
    found, problems = list[str](), list[BadInput]()
    for text in given:
        path = Path(os.path.expanduser(text))
        if path.is_dir():
            inside = sorted(
                str(p) for p in path.rglob("*") if p.suffix.lower() in decode.EXTENSIONS
            )
            if not inside:
                kinds = ", ".join(decode.EXTENSIONS)
                problems.append(BadInput(f"{text} has no images in it: none ends with {kinds}."))
            found += inside
        elif path.exists():
            found.append(str(path))
        else:
            problems.append(BadInput(f"{text} is not there; give images or folders of them."))
    if problems:
        raise together(problems)
    if not found:
        raise BadInput("no images; give files, folders, or - for a list on standard input.")
    return found
