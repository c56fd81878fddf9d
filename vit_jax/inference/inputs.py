# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lists the images that a user names, and runs a split through a model's own preprocessing.

That preprocessing may be Pillow's and is then slower than a pipeline. It is for weights from
elsewhere; runs have chains and use `pipeline`. Start from `image_files` and `batches`.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from vit_jax.data.example import GRID
from vit_jax.data.ops import decode
from vit_jax.data.pipeline.pipeline import NumpyBatch
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import op_errors, plain
from vit_jax.errors import BadInput, together
from vit_jax.models.naflex import Canvas
from vit_jax.storage import files as storage
from vit_jax.weights.preprocessing import Reader

log = logging.getLogger("vit_jax")


def batches(split: Split, reader: Reader, batch_size: int, workers: int) -> Iterator[NumpyBatch]:
    """Yields every example once, in order; fills the last batch with rows whose mask is False.

    Args:
      split: the examples.
      reader: function from image to float32 [1, H, W, C], or a canvas of it.
      batch_size: number of rows, B.
      workers: number of threads.

    Yields:
      The fields of `as_batch`.

    Raises:
      BadInput: an image cannot be read; the message names it.
    """
    read = split.image_reader()

    def image(index: int) -> Any:
        try:
            return reader(read(index))
        except BadInput as e:
            raise BadInput(f"{split.name(index)}: {e}") from e
        except (OSError, *op_errors()) as e:
            raise BadInput(f"{split.name(index)} cannot be read: {plain(e)}.") from e

    with ThreadPoolExecutor(workers) as threads:
        for start in range(0, len(split), batch_size):
            rows = list(threads.map(image, range(start, min(start + batch_size, len(split)))))
            yield as_batch(rows, batch_size)


def as_batch(rows: Sequence[Any], batch_size: int) -> NumpyBatch:
    """Returns what a reader made of single images as a batch, filled up with zeros.

    It has `image` float32 [B, H, W, C], normalised, `_mask` bool [B], and for a model with
    `naflex` `grid` int32 [B, 2].
    """
    canvases = isinstance(rows[0], Canvas)
    names = ("image", GRID) if canvases else ("image",)
    parts = zip(*rows, strict=True) if canvases else [rows]
    batch = {}
    for name, arrays in zip(names, parts, strict=True):
        lacking = [np.zeros_like(arrays[0])] * (batch_size - len(rows))
        batch[name] = np.concatenate([*arrays, *lacking])
    return batch | {"_mask": np.arange(batch_size) < len(rows)}


def image_files(names: Sequence[str], stdin: TextIO) -> list[str]:
    """Lists the given image files, and the images in given folders, sorted by name.

    It leaves out pipes, sockets and devices inside the folders, and logs a warning.

    Args:
      names: files, folders, and `-` for a list of them on `stdin`.
      stdin: the stream with that list, one path a line.

    Raises:
      BadInput: a path is missing, not a file, or not readable; a folder has no images; or no
        image is given.
    """
    images, odd, problems, named = list[str](), list[str](), list[BadInput](), list[str]()
    for text in names:
        named += _lines(stdin) if text == "-" else [text]
    for text in named:
        path = str(Path(os.path.expanduser(text)))
        try:
            kind = storage.kind(path)
            files, others = _inside(path) if kind == storage.FOLDER else ([path], [])
        except OSError as e:
            where = f" ({e.filename})" if e.filename != path else ""
            problems.append(
                BadInput(
                    f"{text} cannot be read: {e.strerror}{where}; give images or folders of them "
                    "that can be read."
                )
            )
            continue
        odd += others
        if kind == storage.FOLDER and not files:
            why = f": none ends with {', '.join(decode.EXTENSIONS)}"
            why = f", only pipes, sockets or devices: {_few(others)}" if others else why
            problems.append(BadInput(f"{text} has no images in it{why}."))
        elif kind == "":
            problems.append(BadInput(f"{text} does not exist; give images or folders of them."))
        elif kind not in (storage.FILE, storage.FOLDER):
            problems.append(
                BadInput(f"{text} is a {kind}, not a file; give images or folders of them.")
            )
        images += files
    if problems:
        raise together(problems)
    if not images:
        raise BadInput("no images; give files, folders, or - for a list on standard input.")
    if odd:
        log.warning("left out, as pipes, sockets or devices: %s", _few(odd))
    return images


def _lines(stdin: TextIO) -> list[str]:
    """Returns the non-empty lines of a list on standard input."""
    try:
        return [line for line in storage.read_open_list(stdin).splitlines() if line]
    except OSError as e:
        raise BadInput(
            f"standard input cannot be read: {e.strerror}; give a list of images, one a line."
        ) from e


def _inside(folder: str) -> tuple[list[str], list[str]]:
    """Lists the images below a folder, and the pipes, sockets and devices with image names.

    Raises:
      OSError: a folder below it cannot be listed.
    """

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # that one was removed meanwhile
            raise error

    images, odd = list[str](), list[str]()
    for place, _, names in os.walk(folder, onerror=fail):
        for name in names:
            if os.path.splitext(name)[1].lower() in decode.EXTENSIONS:
                path = os.path.join(place, name)
                (odd if storage.is_odd(path) else images).append(path)
    return sorted(images), sorted(odd)


def _few(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more
