# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the lists of training images that a run has skipped. Start from `read_skipped`."""

import contextlib
import functools
import json
import logging
from pathlib import Path

from vit_jax.storage import files as storage

log = logging.getLogger("vit_jax")
SKIPPED_FILE = "skipped-{}.json"  # {}: number of the process


def read_skipped(workdir: Path) -> set[tuple[str, str]]:
    """Returns (file, reason) of every training image that any start of a run has skipped so far."""
    before, _, after = SKIPPED_FILE.partition("{}")
    files = [
        p for p in storage.listed(workdir) if p.name.startswith(before) and p.name.endswith(after)
    ]
    texts = storage.read_all(files)
    return set().union(*(pairs(path, text) for path, text in zip(files, texts, strict=True)))


def pairs(path: Path, text: bytes) -> set[tuple[str, str]]:
    """Parses a file of skipped images; returns an empty set if the file is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(text)
        if isinstance(content, list) and all(
            isinstance(row, list) and [type(part) for part in row] == [str, str] for row in content
        ):
            return {(file, reason) for file, reason in content}
    _damaged(path)
    return set()


@functools.cache  # the file is read for every row; one warning is enough
def _damaged(path: Path) -> None:
    log.warning("%s is damaged: its list of skipped images is lost", path)
