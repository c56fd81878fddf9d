# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes every image of a source and lists the bad ones. Start from `check_images`."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

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
    """

    images: int
    classes: int
    bad: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the object that `vit_jax data check --json` prints."""
        bad = [{"file": file, "reason": reason} for file, reason in self.bad]
        return {"images": self.images, "classes": self.classes, "bad": bad}

    def as_text(self) -> str:
        """Formats the same result for people."""
        lines = [f"{self.images} images in {self.classes} classes, {len(self.bad)} bad"]
        return "\n".join(lines + [f"  {file}: {reason}" for file, reason in self.bad])


def check_images(
    source: Source, workers: int, progress: Progress = lambda *_: None, channels: int = 3
) -> Report:
    """Decodes each image once with Pillow, which also has the last word in training.

    So every good image can be used for training. A file that Pillow refuses counts as bad even if
    TensorFlow's more tolerant JPEG decoder would accept it. Empty and unreadable files are bad too.

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
    done = 0
    with ThreadPoolExecutor(workers) as threads:
        for split in tables:
            read = split.image_reader()
            reasons = _ordered(
                threads, lambda i, read=read: _reason(op, read, i), range(len(split)), 16 * workers
            )
            for index, reason in enumerate(reasons):
                if reason:
                    bad.append((split.name(index), reason))
                done += 1
                progress(done, total)
    return Report(total, len(source.classes), tuple(bad))


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


def _reason(op: decode.Decode, read: Any, index: int) -> str:
    """Returns why an image is bad, or "" for a good image."""
    try:
        content = read(index)
        if isinstance(content, bytes):
            op.in_python(content)
    except decode.BadImage as e:
        return str(e)
    except (OSError, UnicodeDecodeError, *op_errors()) as e:  # the second quotes a bad record
        return f"cannot be read: {plain(e)}"
    return ""
