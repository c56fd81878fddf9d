# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens folders of images and of masks, which give the class of each pixel.

Names of folders tell images from masks and the splits, in any order and depth: `train/images`,
`annotations/training`, `trainannot`, `leftImg8bit/val/CITY`. An image and its mask have the same
name, but for a beginning or an end that all images or all masks share. Start from `open_masks`.
"""

import collections
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vit_jax.data.formats import class_file, mask_file
from vit_jax.data.formats.boxes import Problem
from vit_jax.data.formats.class_file import Classes
from vit_jax.data.formats.mask_file import StoredMask
from vit_jax.data.formats.stored import WholeFile
from vit_jax.data.ops.decode import EXTENSIONS, BadImage
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_Opened = tuple[Sequence[str], dict[str, Split], list[str]]

# What an image and its mask must have in common.
_Rule = tuple[Callable[["_File"], Any], Callable[["_File"], Any]]

_SPLITS = {"train": "train(ing)?", "val": "val(id(ation)?)?|dev", "test": "test(ing)?"}
_IMAGES = "images?|imgs?|jpegimages|leftimg8bit|inputs?|rgb|photos?|pictures?"
_MASKS = (
    "masks?|labels?|annot(ation)?s?|gt|gtfine|ground_?truths?|seg|segs|segmentations?|"
    "segmentationclass(aug)?|segmentation_?masks?|trimaps?"
)
# Masks that stand beside others of the same image; the first kind that is there is read.
_PREFERRED = ("labelTrainIds", "labelIds")
_BESIDE = re.compile(r"[_\-.](mask|masks|label|labels|seg|gt|annotation|l)$", re.IGNORECASE)
_LAYOUT = (
    "expected PATH/images and PATH/masks with files of the same names, with folders train and val "
    "above or below them, masks as PNG, TIFF, BMP or GIF, and PATH/classes.txt"
)
_ADD_MASK = "add a mask of the same name, or move the images away"
_SHOWN = 5  # files that a message lists


class _File(NamedTuple):
    """An image file.

    Attributes:
      path: relative to the root.
      split: "" if no folder names one.
      kind: image, mask, or "" if no folder says.
      place: the other folders, and the name without its ending.
    """

    path: str
    split: str
    kind: str
    place: tuple[str, ...]


def open_masks(rest: str, options: Any) -> _Opened:
    """Returns class names, splits and notes of a folder of images and masks.

    Raises:
      BadInput: the folder is missing, has another layout or no file of classes, or a mask is
        missing.
    """
    found = find(rest, options)
    if missing := found.missing:
        listed = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise BadInput(
            f"data.source=masks:{rest}: {len(missing)} of {found.images} images have no mask: "
            f"{listed}; {_ADD_MASK}."
        )
    return found.opened


def examined(rest: str, options: Any) -> tuple[list[Problem], Source | None]:
    """Returns the images without a mask, and the source of the others.

    The source is None if every image has a mask.

    Raises:
      BadInput: nothing of the folder can be read.
    """
    found = find(rest, options)
    problems = [Problem(path, f"it has no mask; {_ADD_MASK}") for path in found.missing]
    classes, splits, notes = found.opened
    return problems, Source(
        f"masks:{rest}", tuple(classes), splits, tuple(notes)
    ) if problems else None


class Found(NamedTuple):
    """A folder of images and masks.

    Attributes:
      opened: class names, splits and notes; of the images that have masks.
      missing: the images without masks, where others of their split have some.
      images: number of all images.
    """

    opened: _Opened
    missing: list[str]
    images: int


def find(rest: str, options: Any) -> Found:
    """Returns what a folder of images and masks holds.

    Raises:
      BadInput: the folder is missing, or has another layout or no file of classes.
    """
    key, root = f"data.source=masks:{rest}", storage.tree(rest)
    if not root.is_dir():
        kind = storage.kind(root)
        problem = f"is a {kind}" if kind else "does not exist"
        raise BadInput(f"{key}: {root} {problem}; {_LAYOUT}.")
    images, masks, left_out = _sorted_files(root)
    if not images or not masks:
        lacking = "images" if not images else "masks"
        entries = ", ".join(sorted(p.name for p in root.iterdir())[:8]) or "nothing"
        raise BadInput(f"{key}: no {lacking} in {root}; {_LAYOUT}; found there: {entries}.")
    classes = class_file.read(class_file.find(root, options.label_names, key))
    pairs: dict[str, list[tuple[str, str]]] = {}
    rules = _rules(images, masks)
    notes, missing, used = classes.notes(), list[str](), set[str]()
    for split in dict.fromkeys(file.split for file in images):
        own = [file for file in images if file.split == split]
        own_masks = [file for file in masks if file.split == split]
        if not own_masks:
            notes.append(f"{split or 'images'}: {len(own)} images left out, which have no masks")
            continue
        if split == "test" and _are_withheld(root, classes, own_masks):
            notes.append(f"test: {len(own)} images left out, whose masks hold no class")
            masks = [file for file in masks if file.split != split]
            continue
        for files in (own, own_masks):
            _check_names(key, files)
        matched = _matched(own, own_masks, rules)
        missing += [file.path for file in own if file.path not in matched]
        pairs[split or "all"] = sorted(matched.items())
        used |= {*matched.values()}
    if unused := len(masks) - len(used):
        notes.append(f"{unused} masks left out, which have no image")
    if left_out:
        notes.append(f"{len(left_out)} images left out, first {left_out[0]}: no folder says what "
                     "they are")  # fmt: skip
    if "all" in pairs and len(pairs) > 1:
        raise BadInput(f"{key}: some images lie in a folder of a split and some do not.")
    return Found((classes.names, of_pairs(root, classes, pairs), notes), missing, len(images))


def _sorted_files(root: Path) -> tuple[list[_File], list[_File], list[str]]:
    """Returns images, masks, and the paths of files that may be neither."""
    files = [_described(path) for path in walked(root)]
    images, masks, others = (
        [file for file in files if file.kind == kind] for kind in ("image", "mask", "")
    )
    if masks and not images:
        images, others = others, []
    if not masks:
        images, masks, others = *_beside(images + others), []
    for ending in _PREFERRED:
        if preferred := [file for file in masks if file.place[-1].endswith(ending)]:
            masks = preferred
            break
    return images, masks, [file.path for file in others]


def walked(root: Path) -> Iterator[str]:
    """Yields the paths of image files below a folder, relative to it, in order.

    Raises:
      BadInput: links lead to a folder twice, as in a loop.
    """
    seen: dict[str, str] = {}
    for place, folders, names in os.walk(root, followlinks=True):
        if (other := seen.setdefault(os.path.realpath(place), place)) != place:
            raise BadInput(
                f"{place} and {other} are one folder, so its images would count twice; remove the "
                "link."
            )
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in sorted(names):
            path = os.path.join(place, name)
            is_image = name.lower().endswith(EXTENSIONS) and name[0] != "."
            if is_image and not storage.is_odd(path):
                yield os.path.relpath(path, root)


def _described(path: str) -> _File:
    *folders, name = Path(path).parts
    split, kind, place = "", "", list[str]()
    for folder in folders:
        of_split, of_kind = _meaning(folder.lower())
        split, kind = of_split or split, of_kind or kind
        if not (of_split or of_kind):
            place.append(folder)
    return _File(path, split, kind, (*place, os.path.splitext(name)[0]))


def _meaning(folder: str) -> tuple[str, str]:
    """Returns the split and the kind that the name of a folder states; "" for what it does not."""
    for kind, names in (("image", _IMAGES), ("mask", _MASKS), ("", "")):
        for split, pattern in (*_SPLITS.items(), ("", "")):
            if not (names or pattern):
                continue
            either = rf"({pattern})[_\- ]?({names})|({names})[_\- ]?({pattern})"
            if re.fullmatch(either, folder):
                return split, kind
    return "", ""


def _beside(files: Sequence[_File]) -> tuple[list[_File], list[_File]]:
    """Returns the images and the masks of files that share their folders."""
    masks = [file for file in files if _BESIDE.search(file.place[-1])]
    if not masks:
        masks = [file for file in files if file.path.lower().endswith(".png")]
    if len(masks) == len(files):
        return list(files), []
    paths = {file.path for file in masks}
    return [file for file in files if file.path not in paths], masks


def _rules(images: Sequence[_File], masks: Sequence[_File]) -> list[_Rule]:
    """Returns what must be the same in the names of an image and its mask; the surest first."""
    image_names, mask_names = ([file.place[-1] for file in files] for files in (images, masks))
    rules: list[_Rule] = [
        (lambda f: f.place, lambda f: f.place),
        (lambda f: f.place[-1], lambda f: f.place[-1]),
        (_without_shared(image_names, False), _without_shared(mask_names, False)),
        (lambda f: f.place[-1], _without_shared(mask_names, False)),
        (_without_shared(image_names, True), _without_shared(mask_names, True)),
    ]
    words = [{re.sub(r"\d+", "0", name) for name in names} for names in (image_names, mask_names)]
    if len(words[0]) == len(words[1]) == 1:  # only numbers tell the files apart
        rules.append((_numbers, _numbers))
    return rules


def _check_names(key: str, files: Sequence[_File]) -> None:
    first: dict[tuple[str, ...], _File] = {}
    for file in files:
        if (other := first.setdefault(file.place, file)) is not file:
            raise BadInput(f"{key}: {other.path} and {file.path} have one name; move one away.")


def _matched(
    images: Sequence[_File], masks: Sequence[_File], rules: Sequence[_Rule]
) -> dict[str, str]:
    """Returns the path of the mask of each image, by the first rule that fits any of them."""
    for of_image, of_mask in rules:
        keys = collections.Counter(map(of_mask, masks))
        mask_of = {of_mask(file): file.path for file in masks if keys[of_mask(file)] == 1}
        twice = collections.Counter(map(of_image, images))
        pairs = {
            file.path: mask_of[of_image(file)]
            for file in images
            if of_image(file) in mask_of and twice[of_image(file)] == 1
        }
        if pairs:
            return pairs
    return {}


def _are_withheld(root: Path, classes: Classes, masks: Sequence[_File]) -> bool:
    """Returns True for the masks of Cityscapes' test images, published without any class."""
    if not all("_gtFine_" in file.place[-1] for file in masks):
        return False
    for file in (masks[0], masks[-1]):
        try:
            mask = StoredMask(str(root / file.path), classes).read()
        except (BadImage, OSError):  # to be told when it is read as an example
            return False
        if not mask_file.is_empty(mask):
            return False
    return True


def _numbers(file: _File) -> Any:
    return tuple(map(int, re.findall(r"\d+", file.place[-1]))) or file.path


def _without_shared(names: Sequence[str], prefix: bool) -> Callable[[_File], str]:
    """Returns a function that cuts off the end, and the beginning, that all names share.

    What is shared begins, or ends, at a character that is neither a letter nor a digit. One name
    shares nothing.
    """
    names = names if len({*names}) > 1 else ["", *names]
    end = _begin([name[::-1] for name in names])[::-1]
    end = end[match.start() :] if (match := re.search(r"[\W_]", end)) else ""
    begin = _begin(names) if prefix else ""
    begin = match[0] if (match := re.match(r".*[\W_]|[A-Za-z]+", begin)) else ""

    def cut(file: _File) -> str:
        return file.place[-1].removesuffix(end).removeprefix(begin)

    return cut


def _begin(names: Sequence[str]) -> str:
    """Returns the characters with which all names begin."""
    low, high = min(names), max(names)
    return low[: next((i for i, c in enumerate(low) if high[i : i + 1] != c), len(low))]


# ---------------------------------------------------------------- reading


def of_pairs(
    root: Path, classes: Classes, pairs: dict[str, list[tuple[str, str]]]
) -> dict[str, Split]:
    """Returns splits of images with masks; they have no labels.

    Args:
      root: the folder.
      classes: what the pixels of the masks stand for.
      pairs: split -> (image, mask) relative to the folder.
    """
    files = [(split, image, mask) for split, some in pairs.items() for image, mask in some]
    images = [f"{root}/{image}" for _, image, _ in files]
    masks = [f"{root}/{mask}" for _, _, mask in files]
    no_labels = np.full((len(files), 1), -1, np.int32)

    def mask_at(row: np.ndarray, content: Any) -> np.ndarray:
        path, content = masks[int(row)], np.asarray(content, object).item()
        try:
            mask = StoredMask(path, classes).read()
            problem = mask_file.fault(mask, mask_file.sides(content), len(classes.names))
        except (BadImage, OSError) as e:
            problem = getattr(e, "strerror", None) or str(e)
        if problem:
            raise BadImage(f"its mask {path}: {problem}")
        return mask

    def reader() -> Callable[[Tensor], dict[str, Tensor]]:
        paths = tf.constant([os.fsencode(path) for path in images])

        def fields(row: Tensor) -> dict[str, Tensor]:
            content = tf.io.read_file(tf.gather(paths, row))
            mask = tf.numpy_function(mask_at, [row, content], tf.int32, stateful=False)
            mask.set_shape([None, None])
            return {"image": content, "labels": tf.constant([-1], tf.int32), "mask": mask}

        return fields

    def colours() -> np.ndarray | None:
        try:
            return mask_file.colours(WholeFile(masks[0]).read(), classes)
        except OSError:  # to be told when it is read as an example
            return None

    def numpy_reader() -> Callable[[int], NumpyFields]:
        return lambda row: {
            "image": WholeFile(images[row]),
            "labels": no_labels[row],
            "mask": StoredMask(masks[row], classes),
        }

    table = Table(
        len(files), lambda row: files[row][1], reader, labels=lambda: no_labels, most_labels=1,
        numpy_reader=numpy_reader, colours=colours,
    )  # fmt: skip
    of_split = {s: np.flatnonzero([file[0] == s for file in files]) for s in pairs}
    return {split: Split(table, rows) for split, rows in of_split.items() if len(rows)}
