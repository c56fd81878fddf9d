# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Resolves the images that a model receives: rows, columns, channels, mean and deviation.

Every room reads these values from `Images`, none from `data.image_size` and its neighbours. Must
not: import other modules of this room, since `schema` imports this one. Start from `of`.
"""

import dataclasses
import re
from typing import TYPE_CHECKING

from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.config import sections

LARGEST = 2**16  # pixels of a side


@dataclasses.dataclass(frozen=True)
class Images:
    """The images that a model receives.

    Attributes:
      size: rows and columns of pixels; (0, 0) if `init` or a default still has to give them.
      channels: number of channels, C.
      mean: C means of the channels, pixels scaled to [0, 1].
      std: C standard deviations.
    """

    size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image: rows, columns, channels."""
        return (*self.size, self.channels)


def of(data: "sections.Data") -> Images:
    """Returns the images that a section `data` describes.

    Raises:
      BadInput: the size has another form; or mean or std has neither one number, nor equal
        numbers, nor one for each channel.
    """
    size = parse(data.image_size)
    if size is None:  # in a config.yaml that somebody has changed
        raise BadInput(
            f"data.image_size={data.image_size!r} is not a size; give a side in pixels, or "
            "ROWSxCOLUMNS."
        )
    mean = _per_channel("data.mean", data.mean, data.channels)
    std = _per_channel("data.std", data.std, data.channels)
    return Images(size, data.channels, mean, std)


def _per_channel(key: str, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Returns one number for each channel; equal numbers stand for any number of channels."""
    if len(values) == channels:
        return tuple(values)
    if len(set(values)) == 1:
        return tuple(values[:1]) * channels
    raise BadInput(
        f"{key}={tuple(values)} has {len(values)} numbers, and data.channels={channels}; give one "
        "number for all channels, or one for each."
    )


# ---------------------------------------------------------------- sizes as values of a key


def parse(value: int | str) -> tuple[int, int] | None:
    """Returns the rows and columns that `224` or `"224x112"` stands for; None for another value."""
    if isinstance(value, str):
        sides = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6})", value)
        if sides is None:
            return None
        rows, columns = int(sides[1]), int(sides[2])
        return (rows, columns) if 1 <= rows <= LARGEST and 1 <= columns <= LARGEST else None
    is_side = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return (value, value) if is_side else None


def plain(value: int | str) -> int | str:
    """Returns a size as it is saved: a square as its side; a value of another form unchanged."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9_]+\s*", value):
        try:
            return int(value)
        except ValueError:  # more digits than Python converts, or _ in a wrong place
            return value
    size = parse(value)
    return value if size is None else text(size)


def text(size: tuple[int, int]) -> int | str:
    """Returns the value of `data.image_size` for rows and columns."""
    rows, columns = size
    return rows if rows == columns else f"{rows}x{columns}"
