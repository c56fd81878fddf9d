# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies runs with a head on feature maps to images, for `segmentation` and `detection`.

Start from `Images` (those of `predict`) and `applied` (those of `predict` and `evaluate`).
"""

import collections
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.inference.detector import Detector
    from vit_jax.inference.segmenter import Segmenter

log = logging.getLogger("vit_jax")
Known = TypeVar("Known")


def applied(
    model: "Segmenter | Detector", images: Iterable[tuple[np.ndarray, Known]]
) -> Iterator[tuple[np.ndarray, Known, Any]]:
    """Yields each image, what is known about it, and what the model finds in it."""
    waiting: collections.deque[tuple[np.ndarray, Known]] = collections.deque()

    def pixels() -> Iterator[np.ndarray]:
        for image, known in images:
            waiting.append((image, known))
            yield image

    for found in model.of_images(pixels()):
        yield (*waiting.popleft(), found)


class Images:
    """The images that `predict` is given.

    Attributes:
      paths: their files.
      bad: path -> reason, of those that could not be used so far.
    """

    def __init__(self, names: Sequence[str]):
        """Lists the files; see `inputs.image_files`."""
        from vit_jax.inference import inputs

        self.paths = inputs.image_files(names, sys.stdin)
        self.bad: dict[str, str] = {}

    def predicted(
        self, model: "Segmenter | Detector"
    ) -> Iterator[tuple[str, str, np.ndarray, Any]]:
        """Yields path, name of the picture, image, and what the model finds, of usable images."""
        from vit_jax import console

        names = dict(zip(self.paths, arguments.picture_names(self.paths), strict=True))
        with console.bar("images") as progress:
            for done, (image, path, found) in enumerate(applied(model, self._read(model)), 1):
                yield path, names[path], image, found
                progress(done + len(self.bad), len(self.paths))

    def _read(self, model: "Segmenter | Detector") -> Iterator[tuple[np.ndarray, str]]:
        from vit_jax.data.numpy_ops.resize import Unsuitable
        from vit_jax.data.ops.decode import BadImage

        for path in self.paths:
            try:
                image = model.run.decode.in_python(Path(path).read_bytes())
                model.check(image)
            except (BadImage, Unsuitable, OSError) as e:
                self.bad[path] = f"{path} cannot be used: {getattr(e, 'strerror', None) or e}."
                continue
            yield image, path

    def finish(self, where: str) -> None:
        """Logs where results are; raises BadInput if images could not be used."""
        log.info("%d images: %s", len(self.paths) - len(self.bad), where)
        if len(self.bad) == len(self.paths):
            first = next(iter(self.bad.values()))
            raise BadInput(f"none of {len(self.paths)} images can be read, first: {first}")
        arguments.check_all_read(self.bad, len(self.paths))
