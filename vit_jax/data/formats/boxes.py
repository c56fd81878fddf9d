# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines what files of boxes say, whatever their format: images, boxes, and what is wrong.

Axes: N images, T boxes of all images. Start from `Annotated`.
"""

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_jax.errors import BadInput

# Left out without harm, as nothing reads polygons and masks.
NOT_READ = "polygons or masks that are wrong, which are not read"
NOT_CHECKED = "polygons that are not checked"
MOST_OUTSIDE = 1.0  # pixels beyond an image that are the rounding of whoever drew the box
# What a message adds where the sides of an image are swapped.
TURNED = "; if an EXIF tag turns the image, turn its pixels"
_SHOWN = 3  # problems that a message lists

ImageId = int | str


class Truth(NamedTuple):
    """The true boxes of an image, also those that training leaves out.

    Attributes:
      id: the number or the name that the data give the image.
      boxes: float64 [n, 4]: left, top, right, bottom in pixels of the image, not clipped to it.
      classes: int32 [n].
      ignored: bool [n], True for crowd regions and difficult objects.
      areas: float64 [n], pixels of each object, which tell small objects from large ones.
      sides: rows and columns of the image as the data state them; None if they do not.
      known: False if the file of the boxes cannot be read.
    """

    id: ImageId
    boxes: np.ndarray
    classes: np.ndarray
    ignored: np.ndarray
    areas: np.ndarray
    sides: tuple[int, int] | None = None
    known: bool = True


def of_fields(name: str, fields: Mapping[str, Any]) -> Truth:
    """Returns the truth of an example that has `boxes` and `box_classes` alone."""
    boxes, classes = np.asarray(fields["boxes"], np.float64), np.asarray(fields["box_classes"])
    boxes, classes = boxes[classes >= 0], classes[classes >= 0]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return Truth(name, boxes, classes, np.zeros(len(boxes), bool), areas)


class Problem(NamedTuple):
    """Something that is wrong in files of boxes.

    Attributes:
      where: the file, and the place in it.
      reason: some words.
      left_out: what is left out because of it, in the plural; "" if nothing can be read until it
        is corrected.
    """

    where: str
    reason: str
    left_out: str = ""


@dataclasses.dataclass(frozen=True)
class Annotated:
    """Images with boxes.

    Attributes:
      paths: the files of the N images.
      names: their names for messages, the same wherever the data are stored.
      ids: what the data call each image.
      sides: int64 [N, 2], rows and columns as the data state them; 0 if they do not.
      rows: int64 [T], the image of each box.
      boxes: float64 [T, 4]: left, top, right, bottom in pixels, or in shares of the sides.
      classes: int32 [T].
      ignored: bool [T], see `Truth`.
      areas: float64 [T], see `Truth`; not used for shares.
      in_shares: True if boxes are shares of the sides, which only the images tell.
      problems: what is wrong.
      unread: images whose file of boxes cannot be read.
    """

    paths: Sequence[str]
    names: Sequence[str]
    ids: Sequence[ImageId]
    sides: np.ndarray
    rows: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    ignored: np.ndarray
    areas: np.ndarray
    in_shares: bool = False
    problems: Sequence[Problem] = ()
    unread: Collection[int] = ()

    def truth(self, boxes: slice | np.ndarray, row: int, sides: tuple[int, int] | None) -> Truth:
        """Returns the truth of an image.

        Args:
          boxes: which of the boxes are on it.
          row: the number of the image.
          sides: its rows and columns, where boxes are shares of them.
        """
        of_image, areas = self.boxes[boxes], self.areas[boxes]
        stated = tuple(self.sides[row].tolist())
        if self.in_shares:
            assert sides is not None
            of_image = of_image * np.tile(sides[::-1], 2)
            areas = np.prod(of_image[:, 2:] - of_image[:, :2], axis=1)
        return Truth(
            self.ids[row], of_image, self.classes[boxes], self.ignored[boxes], areas,
            stated if all(stated) else None, row not in self.unread,
        )  # fmt: skip

    def for_training(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the boxes clipped to their images, float64 [T, 4], and which count, bool [T].

        Crowd regions, difficult objects and boxes without area inside the image do not count.
        """
        ends = np.ones((len(self.rows), 2)) if self.in_shares else self.sides[self.rows, ::-1]
        ends = np.where(ends > 0, ends, np.inf)  # unknown sides clip nothing
        clipped = np.clip(self.boxes, 0, np.tile(ends, 2))
        has_area = (clipped[:, 2:] > clipped[:, :2]).all(axis=1)
        return clipped, has_area & ~self.ignored


def check(key: str, problems: Sequence[Problem], command: str) -> list[str]:
    """Returns a note for each kind of thing that is left out.

    Args:
      key: `data.source=...`, for messages.
      problems: what is wrong.
      command: lists all of them.

    Raises:
      BadInput: something is wrong that nothing can be read with.
    """
    if fatal := [one for one in problems if not one.left_out]:
        listed = "; ".join(f"{one.where}: {one.reason}" for one in fatal[:_SHOWN])
        more = f"; and {len(fatal) - _SHOWN:,} more, which `{command}` lists" * (
            len(fatal) > _SHOWN
        )
        raise BadInput(f"{key}: {listed}{more}. Correct the files.")
    counts = collections.Counter(one.left_out for one in problems)
    first = {one.left_out: one.where for one in reversed(problems)}
    return [f"{n:,} {what}, first: {first[what]}" for what, n in counts.items()]


def wrong_sides(stated: tuple[int, int] | None, sides: tuple[int, int]) -> str:
    """Returns why boxes for an image of `stated` rows and columns do not fit `sides`, or ""."""
    if stated in (None, sides):
        return ""
    turned = TURNED * (stated == sides[::-1])
    return (
        f"the image has {sides[1]} x {sides[0]} pixels, its boxes are for {stated[1]} x {stated[0]}"
        f"{turned}"
    )


def faults(truth: Truth, sides: tuple[int, int], names: Sequence[str]) -> list[str]:
    """Returns what is wrong with the boxes of an image that has these rows and columns."""
    wrong = wrong_sides(truth.sides, sides)
    found = [wrong] if wrong else []
    ends = np.tile(sides[::-1], 2)
    for number, (box, k) in enumerate(zip(truth.boxes, truth.classes.tolist(), strict=True), 1):
        left, top, right, bottom = box.tolist()
        if k >= len(names):
            found.append(f"box {number} is of class {k}, of which there are {len(names)}")
            continue
        of = f"box {number} ({names[k]}) from ({left:g}, {top:g}) to ({right:g}, {bottom:g})"
        if right <= left or bottom <= top:
            found.append(f"{of} has no area")
        elif (box < -MOST_OUTSIDE).any() or (box > ends + MOST_OUTSIDE).any():
            found.append(f"{of} is outside the image of {sides[1]} x {sides[0]}")
    return found
