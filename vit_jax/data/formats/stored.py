# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Says where an image is stored, in a few bytes that another process reads it by.

Start from `Stored`; `read_image` reads one. Worker processes import this module.
"""

import dataclasses
import functools
from typing import Protocol

import numpy as np

from vit_jax.data.formats import byte_ranges
from vit_jax.data.numpy_ops import draws
from vit_jax.storage import files as storage


class Stored(Protocol):
    """An image that is read when it is needed. It can be pickled."""

    def read(self) -> bytes | np.ndarray:
        """Returns the bytes of a file, or uint8 [H, W, C]; raises OSError if it is gone."""
        ...


@dataclasses.dataclass(frozen=True)
class WholeFile:
    """A file, or an object in a bucket."""

    path: str

    def read(self) -> bytes:
        """Returns its bytes."""
        if storage.is_remote(self.path):
            return storage.as_path(self.path).read_bytes()
        with open(self.path, "rb") as file:
            return file.read()


@dataclasses.dataclass(frozen=True)
class FileRange:
    """A range of bytes of a large file, such as a member of a tar."""

    path: str
    start: int
    size: int

    def read(self) -> bytes:
        """Returns its bytes."""
        return _opened(self.path).read(self.size, self.start)


@dataclasses.dataclass(frozen=True)
class Staged:
    """An image that has a copy; the origin serves where the copy is gone or has become shorter."""

    copy: WholeFile | FileRange
    size: int
    origin: WholeFile | FileRange

    def read(self) -> bytes:
        """Returns its bytes."""
        try:
            content = self.copy.read()
        except OSError:
            return self.origin.read()
        return content if len(content) == self.size else self.origin.read()


@dataclasses.dataclass(frozen=True)
class Noise:
    """Noise that a number determines."""

    number: int
    shape: tuple[int, int, int]

    def read(self) -> np.ndarray:
        """Returns its pixels."""
        return draws.noise((self.number, 0), self.shape)


@functools.cache  # all files stay open
def _opened(path: str) -> byte_ranges.File:
    storage.allow_open(_opened.cache_info().currsize)
    return byte_ranges.open_file(path)  # type: ignore[return-value]


def read_image(image: "bytes | np.ndarray | Stored") -> bytes | np.ndarray:
    """Returns an image that may be stored elsewhere, the bytes of a file or uint8 [H, W, C].

    Raises:
      OSError: it is gone.
      StoreLost: the object store does not answer.
    """
    return image if isinstance(image, bytes | np.ndarray) else image.read()
