# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes every image of a source, and its mask, looks at its boxes, and lists what is bad.

Start from `check_images`.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from vit_jax import console
from vit_jax.data.formats import boxes as box_files
from vit_jax.data.formats import mask_file
from vit_jax.data.formats.boxes import Truth
from vit_jax.data.formats.stored import read_image
from vit_jax.data.ops import decode
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import op_errors, plain

MOST_OF_KIND = 5  # files with boxes that are listed with one reason
Progress = Callable[[int, int], None]  # (images done, total images)


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of checking a source's images.

    Attributes:
      images: number of images, good or bad.
      classes: number of class names.
      bad: (file as `Split.name` gives it, reason), in the order of the source.
      masks: for each class of masks, and last for pixels without one: name, number of images and
        number of pixels; () for a source without masks.
      boxes: for each class of boxes, and last for crowd regions and difficult objects: name, number
        of images and number of boxes; () for a source without boxes.
      no_boxes: names of images without boxes, of a source with boxes; not those whose file of boxes
        cannot be read.
      turned: names of images with masks that metadata turn, where a mask has the size of the image
        as stored.
      notes: (annotation, reason) of polygons that are too long to be checked.
    """

    images: int
    classes: int
    bad: tuple[tuple[str, str], ...]
    masks: tuple[tuple[str, int, int], ...] = ()
    boxes: tuple[tuple[str, int, int], ...] = ()
    no_boxes: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    turned: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `vit_jax data check --json` prints."""
        bad = [{"file": file, "reason": reason} for file, reason in self.bad]
        masks = [{"name": n, "images": i, "pixels": p} for n, i, p in self.masks]
        found: dict[str, Any] = {"images": self.images, "classes": self.classes, "bad": bad}
        boxes = [{"name": n, "images": i, "boxes": b} for n, i, b in self.boxes]
        notes = [{"file": file, "reason": reason} for file, reason in self.notes]
        more = {"masks": masks, "boxes": boxes, "no_boxes": [*self.no_boxes], "notes": notes}
        more["turned"] = [*self.turned]
        return found | {key: value for key, value in more.items() if value}

    def as_text(self, shown: int | None = None) -> str:
        """Formats the same result for people.

        Args:
          shown: how many of the bad files and notes with one reason are listed; None: all.
        """
        lines = [f"{self.images} images in {self.classes} classes, {len(self.bad)} bad"]
        lines += _listed(self.bad, shown)
        if self.notes:
            lines += [f"{len(self.notes):,} polygons not checked"]
            lines += _listed(self.notes, shown)
        if self.masks:
            pixels = max(sum(count for _, _, count in self.masks), 1)
            rows = [[n, f"{i:,}", f"{p:,}", f"{p / pixels:.2%}"] for n, i, p in self.masks]
            lines += ["", console.table(["class", "images", "pixels", "share"], rows)]
        if self.boxes:
            rows = [[n, f"{i:,}", f"{b:,}"] for n, i, b in self.boxes]
            lines += ["", console.table(["class", "images", "boxes"], rows)]
        if self.no_boxes:
            lines.append(f"{len(self.no_boxes):,} images without boxes, first: {self.no_boxes[0]}")
        if self.turned:
            lines.append(
                f"{len(self.turned):,} images with masks that an EXIF tag turns, first: "
                f"{self.turned[0]}; a mask belongs to the image as stored, so look at both"
            )
        return "\n".join(lines)


def _listed(found: Sequence[tuple[str, str]], shown: int | None) -> list[str]:
    """Returns a line for each file and reason; of one kind of reason only the first ones.

    Reasons are of one kind if they differ in numbers, names and paths alone.
    """
    lines, counts = list[str](), collections.Counter[str]()
    for file, reason in found:
        kind = " ".join(word for word in reason.split() if word.isalpha())
        counts[kind] += 1
        if shown is None or counts[kind] <= shown:
            lines.append(f"  {file}: {reason}")
    more = sum(count - shown for count in counts.values() if count > shown) if shown else 0
    return lines + [f"  and {more:,} more of these kinds, which --json lists"] * (more > 0)


def check_images(
    source: Source, workers: int, progress: Progress = lambda *_: None, channels: int = 3
) -> Report:
    """Decodes each image once with Pillow, which also has the last word in training.

    So every good image can be used for training. A file that Pillow refuses counts as bad even if
    TensorFlow's more tolerant JPEG decoder would accept it. Empty and unreadable files are bad too,
    and so is an image whose mask cannot be read, has another size, an unknown class or no class. A
    box without area or outside its image is listed, and a stated size that the image does not have.

    Args:
      source: a source of any kind; images that are stored as pixels are good once they are read.
      workers: number of threads.
      progress: called in this thread after each image.
      channels: data.channels; with other than one or three, a file has to have that many.
    """
    op = decode.Decode(channels=channels)
    tables = _images(source)
    total = sum(len(split) for split in tables)
    bad: list[tuple[str, str]] = []
    counts = np.zeros((len(source.classes) + 1, 2), np.int64)  # images and pixels; last: no class
    boxes = np.zeros_like(counts)  # images and boxes; last: those that training leaves out
    done, names, no_boxes, turned = 0, source.classes, list[str](), list[str]()
    with ThreadPoolExecutor(workers) as threads:
        for split in tables:
            examine = functools.partial(
                _examined,
                op,
                split.image_reader(),
                _mask_reader(split),
                _truth_reader(split),
                names,
            )
            checked = _ordered(threads, examine, range(len(split)), 16 * workers)
            for index, (reasons, pixels, own, is_turned) in enumerate(checked):
                bad += [(split.name(index), reason) for reason in reasons]
                turned += [split.name(index)] * is_turned
                if pixels is not None:
                    counts += np.stack([pixels > 0, pixels], axis=1)
                if own is not None:
                    no_boxes += [split.name(index)] * (not own.any())
                    boxes += np.stack([own > 0, own], axis=1)
                done += 1
                progress(done, total)
    masks = _rows((*names, "(no class)"), counts)
    of_boxes = _rows((*names, "(crowd or difficult)"), boxes)
    return Report(
        total, len(names), tuple(bad), masks, of_boxes, tuple(no_boxes), turned=tuple(turned)
    )


def _rows(names: Sequence[str], counts: np.ndarray) -> tuple[tuple[str, int, int], ...]:
    if not counts.any():
        return ()
    return tuple((name, int(a), int(b)) for name, (a, b) in zip(names, counts, strict=True))


def _images(source: Source) -> list[Split]:
    """Returns each row of any split once, since splits such as `val` and `validation` overlap."""
    rows: dict[int, list[Any]] = {}
    tables = {id(split.table): split.table for split in source.splits.values()}
    for split in source.splits.values():
        rows.setdefault(id(split.table), []).append(np.asarray(split.rows))
    return [Split(tables[key], np.unique(np.concatenate(parts))) for key, parts in rows.items()]


def _ordered(
    threads: ThreadPoolExecutor, function: Callable[[int], Any], values: Iterable[int], ahead: int
) -> Iterator[Any]:
    """Maps the values in order; keeps at most `ahead` results, since a source may be large."""
    waiting: collections.deque[Any] = collections.deque()
    for value in values:
        waiting.append(threads.submit(function, value))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _mask_reader(split: Split) -> Callable[[int], Any] | None:
    """Returns index -> mask, int32 [H, W] or where it is stored; None for a source without."""
    if split.table.numpy_reader is None or not len(split):
        return None
    fields = split.numpy_reader()
    return (lambda index: fields(index)["mask"]) if "mask" in fields(0) else None


def _truth_reader(split: Split) -> Callable[[int], Truth] | None:
    """Returns index -> true boxes; None for a source without."""
    return split.truth_reader() if len(split) and split.has_boxes() else None


_Examined = tuple[list[str], np.ndarray | None, np.ndarray | None, bool]


def _examined(
    op: decode.Decode, read: Any, mask_of: Any, truth_of: Any, names: Sequence[str], index: int
) -> _Examined:
    """Returns why an example is bad, the pixels of each class, and its boxes, int64 [classes + 1].

    The last pixels have no class, the last boxes are left out of training. And returns True for an
    image that metadata turn, where its mask fits.
    """
    try:
        content = read(index)
        image = op.in_python(content) if isinstance(content, bytes) else content
    except decode.BadImage as e:
        return [str(e)], None, None, False
    except (OSError, UnicodeDecodeError, *op_errors()) as e:  # the second quotes a bad record
        return [f"cannot be read: {plain(e)}"], None, None, False
    reasons, pixels, boxes, turned = list[str](), None, None, False
    if mask_of is not None:
        reason, pixels = _examined_mask(mask_of(index), image.shape[:2], len(names) + 1)
        reasons += [reason] if reason else []
        turned = not reason and isinstance(content, bytes) and _is_turned(content)
    truth: Truth | None = None if truth_of is None else truth_of(index)
    if truth is not None and truth.known:
        reasons += box_files.faults(truth, image.shape[:2], names)
        labels = np.where(truth.ignored, len(names), truth.classes)[truth.classes < len(names)]
        boxes = np.bincount(labels, minlength=len(names) + 1)
    return reasons, pixels, boxes, turned


def _is_turned(content: bytes) -> bool:
    """Returns True for a file whose metadata turn the image."""
    return decode.is_turned(content[: decode.HEAD]) and decode.turn_of(content) is not None


def _examined_mask(mask: Any, sides: tuple[int, int], counts: int) -> tuple[str, np.ndarray | None]:
    """Returns why a mask is bad, or "", and the pixels of each class, int64 [counts]."""
    try:
        labels_HW = np.asarray(read_image(mask))
        reason = mask_file.fault(labels_HW, sides, counts - 1)
    except decode.BadImage as e:
        return _of_mask(mask, str(e)), None
    except OSError as e:
        return _of_mask(mask, f"cannot be read: {plain(e)}"), None
    if not reason and mask_file.is_empty(labels_HW):
        reason = "no pixel has a class"
    labels_HW = np.where((labels_HW < 0) | (labels_HW >= counts), counts - 1, labels_HW)
    pixels = np.bincount(labels_HW.reshape(-1), minlength=counts)[:counts]
    return (_of_mask(mask, reason) if reason else ""), pixels


def _of_mask(mask: Any, reason: str) -> str:
    return f"its mask {path}: {reason}" if (path := getattr(mask, "path", "")) else reason
