# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Handles files that the fast path could not decode: Pillow decodes some, others are replaced.

The outcome for an example depends only on its index, so it is the same in every process and after
every restart. Start from `FallbackReader`.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.ops import decode
from vit_jax.data.splits.split import Fields, Split
from vit_jax.data.tensorflow import Tensor, plain, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


class Replacements:
    """Knows which example of a split takes the place of one that cannot be decoded."""

    def __init__(self, split: Split):
        self._split = split
        self._instead: dict[int, int] = {}
        self._next_good: dict[int, int] = {}  # for undecodable examples, whether used or not

    def at(self, index: int) -> int:
        """Returns the index of the example that is read in place of `index`."""
        return self._instead.get(index, index)

    def image(self, index: int) -> np.ndarray:
        """Decodes one example on its own and returns uint8 [H, W, C].

        Raises:
          BadImage: no decoder can make an image of it.
          BadInput: the example cannot be read.
          StoreLost: the object store does not answer.
        """
        raise NotImplementedError

    def replace(self, index: int) -> None:
        """Replaces a bad example, from now on, with the next good one by index.

        Raises:
          BadInput: the split has no good example, or a file before the next good one cannot be
            read.
          StoreLost: the object store does not answer.
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
            f"{self._split.name(0)}; `vit_jax data check` lists the reasons."
        )

    def _add(self, index: int, other: int) -> None:
        self._instead[index] = other


class FallbackReader(Replacements):
    """A reader of a split that falls back to Pillow, or to another example.

    `_instead` maps the index of an undecodable example to the index of its replacement. It maps the
    index of an example that only Pillow decodes to that same index.
    """

    def __init__(self, split: Split, op: decode.Decode):
        super().__init__(split)
        self._op = op
        self._read = split.fields_reader()
        self._in_graph: Any = None  # `_instead` as a TensorFlow table, for `updating_reader`

    def needs_fallback(self, index: int) -> bool:
        """Returns True if the fast path is known to fail for this example."""
        return index in self._instead

    def image(self, index: int) -> np.ndarray:
        """Decodes one example on its own; see `Replacements.image`."""
        try:
            content = self._read(tf.constant(index, tf.int64))["image"].numpy()
        except (tf.errors.OpError, OSError, UnicodeDecodeError) as e:
            raise_if_store_lost(e)
            raise BadInput(
                f"{self._split.name(index)} cannot be read: {plain(e)}. "
                "Restore it, or remove it from the source."
            ) from None
        return self._op.image(content) if isinstance(content, bytes) else content

    def examine(
        self, index: int, process: Callable[[Tensor], Any], chain: str, error: Exception
    ) -> str:
        """Returns why a failed example is not a usable image, or "" if Pillow decodes it.

        Registers an example that Pillow decodes with `use_pillow_for`.

        Args:
          index: the index of the example.
          process: the function that is applied to its image.
          chain: the name of `process`.
          error: the error with which the example failed.

        Raises:
          BadInput: the example cannot be read or cannot be processed.
          StoreLost: the error, or a second try, shows that the object store does not answer.
        """
        raise_if_store_lost(error)
        try:
            if not self.needs_fallback(index):
                process(tf.constant(self.image(index)))
                self.use_pillow_for(index)
                return ""
        except decode.BadImage as e:
            return str(e)
        except (tf.errors.OpError, UnicodeDecodeError) as e:
            error = e
        raise BadInput(
            f"{self._split.name(index)} does not go through {chain}: {plain(error)}. "
            "Remove or replace the image, or change the chain."
        ) from None

    def use_pillow_for(self, index: int) -> None:
        """Makes `image` decode this example from now on."""
        self._add(index, index)

    def _add(self, index: int, other: int) -> None:
        super()._add(index, other)
        if self._in_graph is not None:
            self._in_graph.insert(tf.constant(index, tf.int64), tf.constant(other, tf.int64))

    def reader(self) -> Callable[[Tensor], Fields]:
        """Returns a reader like `Split.fields_reader` with the replacements known now."""
        return self.updating_reader() if self._instead else self._read

    def updating_reader(self) -> Callable[[Tensor], Fields]:
        """Returns a reader like `Split.fields_reader` that looks up replacements at each read."""
        if self._in_graph is None:
            self._in_graph = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
            for index, other in self._instead.items():
                self._add(index, other)
        instead = self._in_graph.lookup

        def read(index: Tensor) -> Fields:
            other = tf.ensure_shape(instead(index), [])
            index = tf.where(other < 0, index, other)
            fields = self._read(index)
            image = fields["image"]
            if image.dtype != tf.string:  # pixels need no decoder
                return fields

            def as_png() -> Tensor:  # lossless, and a format that the chain decodes
                pixels = decode.in_python(
                    self._op.image, image, tf.uint8, [None, None, self._op.channels]
                )
                return tf.io.encode_png(pixels, compression=0)

            decodable = tf.cond(tf.equal(instead(index), index), as_png, lambda: image)
            return fields | {"image": decodable}

        return read


def raise_if_store_lost(error: Exception) -> None:
    """Raises StoreLost if the error text names it; a graph keeps only the text of an error."""
    if match := re.search(r"\bStoreLost: (.*)", str(error)):
        raise storage.StoreLost(f"{match[1].removesuffix(' Run again.')} Run again.") from error
