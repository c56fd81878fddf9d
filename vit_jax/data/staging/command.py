# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies the files of a split before a run: `vit_jax data stage`. Start from `stage`."""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from vit_jax.data.splits import order
from vit_jax.data.splits.split import Split
from vit_jax.data.staging import background
from vit_jax.data.staging.copies import Copies, Unreadable, in_units, reading
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


def stage(split: Split, copies: Copies, workers: int, progress: Callable[[int, int], None]) -> str:
    """Copies the files of a split, or those of them that fit; returns what to tell the user.

    Files that do not all fit are taken in a fixed random order of the whole split. A run reads the
    part that it trains on in another order.

    Args:
      split: examples that `background.check` accepts.
      copies: the folder to copy to.
      workers: number of files that are copied at the same time.
      progress: called with the files done and all files.

    Raises:
      BadInput: a file cannot be read, the folder cannot be written or is too small for what was
        asked, or no file fits into the budget.
      StoreLost: the object store does not answer.
    """
    seed = order.stream_seed(0, "order")
    indices = split.numpy_order(seed)(np.arange(len(split)))
    paths = list(background.paths_in_order(split, iter([indices])))
    places, stop = list[Path | None](), threading.Event()

    def copy(path: str) -> Path | None:
        return copies.whole(path, stop.is_set) or copies.copy(path, stop.is_set)

    with ThreadPoolExecutor(workers) as threads:
        try:
            sizes = list(threads.map(_size, paths))
            new = sum(s for p, s in zip(paths, sizes, strict=True) if not copies.has(p, s))
            new = min(new, copies.room())
            if new > copies.free():
                raise _full(copies, new, len(paths))
            for place in threads.map(copy, paths):
                places.append(place)
                progress(len(places), len(paths))
        except Unreadable as e:
            raise BadInput(f"{e}. Restore it, or remove it from the source.") from e
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _full(copies, new - copies.copied, len(paths)) from e
            raise BadInput(
                f"{copies.folder} cannot be written: {e.strerror or e}; give another folder."
            ) from e
        finally:  # also of an interrupt: running copies end at their next piece
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
    if not any(places):
        raise BadInput(
            f"none of the {len(paths):,} files fits into a budget of {in_units(copies.most)} for "
            f"{copies.folder}; the smallest has {in_units(min(sizes))}. Give a larger --budget."
        )
    return _summary(copies, sizes, [place is not None for place in places])


def _size(path: str) -> int:
    with reading(path):
        return storage.size_and_version(path)[0]


def _full(copies: Copies, need: int, files: int) -> BadInput:
    return BadInput(
        f"{copies.folder} has {in_units(copies.free())} free, and {in_units(need)} of the "
        f"{files:,} files are still to be copied; make room, give another folder, or give a "
        "smaller --budget. The same command continues."
    )


def _summary(copies: Copies, sizes: list[int], there: list[bool]) -> str:
    total = sum(sizes)
    whole = sum(size for size, is_there in zip(sizes, there, strict=True) if is_there)
    lines = [
        f"{in_units(whole)} of {in_units(total)} ({whole / max(total, 1):.0%}), {sum(there):,} of "
        f"{len(sizes):,} files, are in {copies.folder}; {in_units(copies.copied)} copied now"
        f"{copies.speeds()}"
    ]
    if not all(there):
        lines += [
            f"{len(sizes) - sum(there):,} files are over the budget of {in_units(copies.most)}"
        ]
    return "\n".join(lines)
