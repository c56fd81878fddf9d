# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes every image of a source, and its mask, and lists the bad ones.

Start from `check_images`.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from vit_jax import console
from vit_jax.data.formats import mask_file
from vit_jax.data.formats.stored import read_image
from vit_jax.data.ops import decode
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import op_errors, plain

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
    """

    images: int
    classes: int
    bad: tuple[tuple[str, str], ...]
    masks: tuple[tuple[str, int, int], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `vit_jax data check --json` prints."""
        bad = [{"file": file, "reason": reason} for file, reason in self.bad]
        masks = [{"name": n, "images": i, "pixels": p} for n, i, p in self.masks]
        found: dict[str, Any] = {"images": self.images, "classes": self.classes, "bad": bad}
        return found | ({"masks": masks} if masks else {})

    def as_text(self) -> str:
        """Formats the same result for people."""
        lines = [f"{self.images} images in {self.classes} classes, {len(self.bad)} bad"]
        lines += [f"  {file}: {reason}" for file, reason in self.bad]
        if self.masks:
            pixels = max(sum(count for _, _, count in self.masks), 1)
            rows = [[n, f"{i:,}", f"{p:,}", f"{p / pixels:.2%}"] for n, i, p in self.masks]
            lines += ["", console.table(["class", "images", "pixels", "share"], rows)]
        return "\n".join(lines)


def check_images(
    source: Source, workers: int, progress: Progress = lambda *_: None, channels: int = 3
) -> Report:
    """Decodes each image once with Pillow, which also has the last word in training.

    So every good image can be used for training. A file that Pillow refuses counts as bad even if
    TensorFlow's more tolerant JPEG decoder would accept it. Empty and unreadable files are bad too,
    and so is an image whose mask cannot be read, has another size, an unknown class or no class.

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
    done = 0
    with ThreadPoolExecutor(workers) as threads:
        for split in tables:
            read, mask_of = split.image_reader(), _mask_reader(split)
            checked = _ordered(
                threads,
                functools.partial(_examined, op, read, mask_of, len(counts)),
                range(len(split)),
                16 * workers,
            )
            for index, (reason, pixels) in enumerate(checked):
                if reason:
                    bad.append((split.name(index), reason))
                if pixels is not None:
                    counts += np.stack([pixels > 0, pixels], axis=1)
                done += 1
                progress(done, total)
    names = (*source.classes, "(no class)") if counts.any() else ()
    masks = tuple((n, int(counts[k, 0]), int(counts[k, 1])) for k, n in enumerate(names))
    return Report(total, len(source.classes), tuple(bad), masks)


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


def _examined(
    op: decode.Decode, read: Any, mask_of: Any, counts: int, index: int
) -> tuple[str, np.ndarray | None]:
    """Returns why an example is bad, or "", and the pixels of each class, int64 [counts]."""
    mask = None
    try:
        content = read(index)
        image = op.in_python(content) if isinstance(content, bytes) else content
        if mask_of is None:
            return "", None
        mask = mask_of(index)
        labels_HW = np.asarray(read_image(mask))
        reason = mask_file.fault(labels_HW, image.shape[:2], counts - 1)
    except decode.BadImage as e:
        return (str(e) if mask is None else _of_mask(mask, str(e))), None
    except (OSError, UnicodeDecodeError, *op_errors()) as e:  # the second quotes a bad record
        reason = f"cannot be read: {plain(e)}"
        return (reason if mask is None else _of_mask(mask, reason)), None
    if not reason and mask_file.is_empty(labels_HW):
        reason = "no pixel has a class"
    labels_HW = np.where((labels_HW < 0) | (labels_HW >= counts), counts - 1, labels_HW)
    pixels = np.bincount(labels_HW.reshape(-1), minlength=counts)[:counts]
    return (_of_mask(mask, reason) if reason else ""), pixels


def _of_mask(mask: Any, reason: str) -> str:
    return f"its mask {path}: {reason}" if (path := getattr(mask, "path", "")) else reason
