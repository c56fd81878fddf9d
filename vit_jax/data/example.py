# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines the fields of an example: their types, their axes, and how missing values look.

An example is a dict of tensors. Every example has `image` and `labels`; a source may give more
fields. A row that pads the last batch of an evaluation repeats the first example in every field.
Start from `FIELDS`.
"""

import dataclasses
from collections.abc import Mapping

from vit_jax.data.tensorflow import Tensor
from vit_jax.errors import BadInput, unknown


@dataclasses.dataclass(frozen=True)
class Field:
    """The type of a field.

    Attributes:
      dtype: the dtype; `string` fields stay on the host.
      axes: one name or size per axis. H and W may differ between the examples of a source, up to
        the end of a chain. All other sizes are the same for every example of a source.
      missing: stands where an example has no value, e.g. fewer than K labels, or an area of a mask
        that no pixel of the image covers.
    """

    dtype: str
    axes: tuple[str | int, ...]
    missing: int = 0

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.axes))}]"


FIELDS: dict[str, Field] = {
    "image": Field("uint8", ("H", "W", "C")),  # or the bytes of a file, before `decode`
    "labels": Field("int32", ("K",), -1),
    "mask": Field("int32", ("H", "W"), -1),  # the class of each pixel
    # Left, top, right, bottom in pixels of the image; the whole image is 0, 0, W, H.
    "boxes": Field("float32", ("M", 4)),
    "box_classes": Field("int32", ("M",), -1),
    "text": Field("string", ()),
    "id": Field("string", ()),
}
BOXES = ("boxes", "box_classes")  # fields with a row for each box
CLASSES = ("labels", "mask", "box_classes")  # fields that hold numbers of classes
GRID = "grid"  # int32 [2], rows and columns of the patches of an image, from the op `naflex`
SPATIAL = ("mask", *BOXES)  # fields that move with the pixels of the image


def check(example: Mapping[str, Tensor], name: str) -> None:
    """Checks the fields that a source gives beside images and labels.

    Raises:
      BadInput: a field is unknown, missing or has another type; the message names the example.
    """
    for key, value in example.items():
        if key not in FIELDS:
            raise unknown(f"field of {name}", key, FIELDS)
        if key in ("image", "labels"):
            continue
        field = FIELDS[key]
        shape: list[int | None] = [] if value.shape.rank is None else value.shape.as_list()
        known = len(shape) == len(field.axes) and all(
            axis in ("H", "W") or size == axis or (axis == "M" and size)
            for size, axis in zip(shape, field.axes, strict=True)
        )
        if not known or value.dtype.name != field.dtype:
            raise BadInput(
                f"{name}: its field {key} is {value.dtype.name} {shape}, expected {field}; all "
                f"sizes but H and W are the same for every example (fill up with {field.missing})."
            )
    if lacking := [key for key in ("image", "labels") if key not in example]:
        raise BadInput(f"{name} has no {' and no '.join(lacking)}; give labels of -1 for no label.")
    if "box_classes" in example and "boxes" not in example:
        raise BadInput(f"{name} has box_classes, but no boxes.")
