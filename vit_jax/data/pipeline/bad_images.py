# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Files that the fast path could not decode: which go through Pillow, which are replaced.

What becomes of an example depends on its index alone, so it is the same in every process and after
every restart, however it came to be known. Start from `Doubtful`.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.ops import decode
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.data.tf_errors import plain
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


class Doubtful:
    """A split whose reader knows the examples that were found to be doubtful.

    `_instead` maps the index of an example that is no image to the example that takes its place,
    and that of one that only Pillow decodes to itself.
    """

    def __init__(self, split: Split, exif: bool):
        self._split, self._exif = split, exif
        self._read = split.reader()
        self._instead: dict[int, int] = {}
        self._next_good: dict[int, int] = {}  # after examples that are no images, used or not
        self._in_graph: Any = None  # the same as a table of TensorFlow, which `careful_reader` asks

    def at(self, index: int) -> int:
        """The example that is read at an index."""
        return self._instead.get(index, index)

    def is_known(self, index: int) -> bool:
        """Whether something was found out about the example."""
        return index in self._instead

    def image(self, index: int) -> np.ndarray:
        """uint8 [H, W, C] of an example, decoded all by itself.

        Raises:
          BadImage: no decoder makes an image of it.
          BadInput: it cannot even be read.
          StoreLost: the object store does not answer.
        """
        try:
            content = self._read(tf.constant(index, tf.int64))[0].numpy()
        except (tf.errors.OpError, OSError, UnicodeDecodeError) as e:
            raise_lost(e)
            raise BadInput(
                f"{self._split.name(index)} cannot be read: {plain(e)}. "
                "Restore it, or remove it from the source."
            ) from None
        return decode.image(content, self._exif) if isinstance(content, bytes) else content

    def examine(
        self, index: int, process: Callable[[Tensor], Any], chain: str, error: Exception
    ) -> str:
        """Why an example that failed is no image; empty where it is one: `add_careful` it is.

        Args:
          index: of the example.
          process: what is made of its image.
          chain: the name of `process`.
          error: with which it failed.

        Raises:
          BadInput: it cannot be read, or not be processed.
          StoreLost: the error, or another try, says that the store does not answer.
        """
        raise_lost(error)
        try:
            if not self.is_known(index):
                process(tf.constant(self.image(index)))
                self.add_careful(index)
                return ""
        except decode.BadImage as e:
            return str(e)
        except (tf.errors.OpError, UnicodeDecodeError) as e:
            error = e
        raise BadInput(
            f"{self._split.name(index)} does not go through {chain}: {plain(error)}. "
            "Remove or replace the image, or change the chain."
        ) from None

    def add_careful(self, index: int) -> None:
        """From now on `image` decodes the example."""
        self._add(index, index)

    def replace(self, index: int) -> None:
        """From now on the next good example, by index, takes the place of a bad one.

        Raises:
          BadInput: there is none, or a file that comes before it cannot be read.
        """
        examples, passed = len(self._split), [index]
        while len(passed) < examples:
            other = (passed[-1] + 1) % examples
            try:
                if other not in self._next_good:
                    self.image(other)
                self._next_good |= dict.fromkeys(passed, self._next_good.get(other, other))
                self._add(index, self._next_good[index])
                return
            except decode.BadImage:
                passed.append(other)
        raise BadInput(
            f"none of the {examples} images of the split can be decoded, the first being "
            f"{self._split.name(0)}; see what `vit_jax data check` says."
        )

    def _add(self, index: int, other: int) -> None:
        self._instead[index] = other
        if self._in_graph is not None:
            self._in_graph.insert(tf.constant(index, tf.int64), tf.constant(other, tf.int64))

    def reader(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """As `Split.reader`, with what is known by now."""
        return self.careful_reader() if self._instead else self._read

    def careful_reader(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """As `Split.reader`, with what is known when it reads."""
        if self._in_graph is None:
            self._in_graph = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
            for index, other in self._instead.items():
                self._add(index, other)
        instead = self._in_graph.lookup

        def careful(content: bytes) -> np.ndarray:
            return decode.image(content, self._exif)

        def read(index: Tensor) -> tuple[Tensor, Tensor]:
            found = instead(index)
            index = tf.where(found < 0, index, found)
            image, labels = self._read(index)
            if image.dtype != tf.string:  # pixels, which no other decoder reads
                return image, labels

            def as_png() -> Tensor:  # lossless, and plain: the chain decodes it
                pixels = decode.in_python(careful, image, tf.uint8, [None, None, 3])
                return tf.io.encode_png(pixels, compression=0)

            return tf.cond(tf.equal(instead(index), index), as_png, lambda: image), labels

        return read


def raise_lost(error: Exception) -> None:
    """Raises the `StoreLost` that a function inside a graph raised: TensorFlow keeps its text."""
    if found := re.search(r"\bStoreLost: (.*)", str(error)):
        raise storage.StoreLost(f"{found[1].removesuffix(' Run again.')} Run again.") from error
