# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies the files of a split before a run: `vit_jax data stage`. Start from `stage`."""

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vit_jax.data.splits import order
from vit_jax.data.splits.split import Split
from vit_jax.data.staging import background
from vit_jax.data.staging.copies import Copies, in_units
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


def stage(split: Split, copies: Copies, workers: int, progress: Callable[[int, int], None]) -> str:
    """Copies the files of a split, or those of them that fit; returns what to tell the user.

    Files that do not all fit are taken in the order in which a run with seed 0 reads them.

    Args:
      split: the examples.
      copies: the folder to copy to.
      workers: number of files that are copied at the same time.
      progress: called with the files done and all files.

    Raises:
      BadInput: the split has no files to copy, or the disk is too small for what was asked.
      OSError: a file cannot be read.
      StoreLost: the object store does not answer.
    """
    background.check("data stage", split)
    seed = order.stream_seed(0, "order")
    indices = split.numpy_order(seed)(np.arange(len(split)))
    paths = list(background.paths_in_order(split, iter([indices])))
    with ThreadPoolExecutor(workers) as threads:
        sizes = list(threads.map(lambda path: storage.size_and_version(path)[0], paths))
        new = sum(s for p, s in zip(paths, sizes, strict=True) if not copies.has(p, s))
        new = min(new, copies.room())
        if new > copies.free():
            raise _full(copies, new, len(paths))
        places = []
        try:
            for place in threads.map(lambda path: copies.whole(path) or copies.copy(path), paths):
                places.append(place)
                progress(len(places), len(paths))
        except OSError as e:
            threads.shutdown(wait=False, cancel_futures=True)
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise _full(copies, new - copies.copied, len(paths)) from e
    return _summary(copies, sizes, [place is not None for place in places])


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
    ]
    if copies.copied:
        origin, folder = (
            copies.copied / max(s, 1e-9) for s in (copies.read_secs, copies.check_secs)
        )
        lines += [
            f"one thread read {in_units(origin)}/s from the origin and {in_units(folder)}/s from "
            "the copies"
        ]
    if not all(there):
        lines += [f"--budget={in_units(copies.most)} leaves out {len(sizes) - sum(there):,} files"]
    lines += [f"train with --config.data.stage={copies.folder}"]
    return "\n".join(lines)
