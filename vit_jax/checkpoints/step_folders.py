# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The layout of a run's steps in its workdir: which count, how to remove one or set it aside.

`checkpoints/12` counts once it contains two files: orbax's commit mark and the checksums. This
module never interprets the contents of steps, so that damage in one step hides no other step. It
raises BadInput, and never reports damage, where this account lacks the right to read. Start from
`committed`.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from vit_jax.errors import permitted
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

FOLDER = "checkpoints"
ASIDE = ".damaged"  # suffix of a step that was set aside
_COMMIT = "commit_success.txt"  # orbax writes it last
_OLDER = "_CHECKPOINT_METADATA"  # orbax wrote it before this project wrote checksums
_PARTIAL = ".orbax-checkpoint-tmp"  # in names of local folders that are being written or removed
log = logging.getLogger("vit_jax")


def committed(workdir: Path) -> list[int]:
    """Returns the steps that count, ascending; does not check them for damage."""
    return [step for step, path in _numbered(workdir).items() if _counts(path)]


def newest(workdir: Path) -> int:
    """Returns the newest step that counts, or -1."""
    return max(committed(workdir), default=-1)


def saved(workdir: Path) -> list[int]:
    """Returns the steps that count, or did until a part of them was lost, ascending."""
    return [step for step, path in _numbered(workdir).items() if not _is_cut_short(path)]


def is_older(folder: Path) -> bool:
    """Returns True if a step was saved by a version that wrote no checksums."""
    return _has(folder, _OLDER) and not _has(folder, checksums.FILE)


def _has(folder: Path, name: str) -> bool:
    with permitted("read"):
        return (folder / name).exists()


def _numbered(workdir: Path) -> dict[int, Path]:
    root = workdir / FOLDER
    with permitted("read"):
        steps = {
            int(path.name): path
            for path in storage.listed(root)
            if path.name.isdecimal()
            and path.name == str(int(path.name))
            and (storage.is_remote(root) or path.is_dir())  # one request less for each step
        }
    return dict(sorted(steps.items()))


def _counts(folder: Path) -> bool:
    return (_has(folder, _COMMIT) and _has(folder, checksums.FILE)) or is_older(folder)


def _is_cut_short(folder: Path) -> bool:
    """Returns True if a folder with the name of a step is left from an interrupted save or removal.

    On a disk this is never so: a step gets its name when it is complete, and loses the name before
    it is removed. A step without marks on a disk is therefore damaged. In a bucket nothing is
    renamed: a step is written in its final place, the commit mark is written last, and the mark is
    removed first. There, a step that lost its mark by damage looks the same.
    """
    return storage.is_remote(folder) and not _has(folder, _COMMIT) and not is_older(folder)


def damage(
    folder: Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    part: tuple[int, int] = (0, 1),
) -> str:
    """Returns the damage of a step's files, see `checksums.damage`; "" if none is known."""
    if is_older(folder):
        log.info("%s has no checksums: an earlier version saved it; it is not verified", folder)
        return ""
    if not _has(folder, _COMMIT):
        return f"{_COMMIT} is missing"
    return checksums.damage(folder, wanted=wanted, part=part)


def remove_leftovers(workdir: Path) -> None:
    """Removes the files of interrupted saves; only for the single writer, before it writes."""
    root, numbered = workdir / FOLDER, set(_numbered(workdir).values())
    for path in storage.listed(root):
        if _PARTIAL in path.name or (path in numbered and _is_cut_short(path)):
            remove(path)
            log.info("removed %s: a save that was cut short", path)


def remove(folder: Path) -> None:
    """Removes a step, or only the link if it is a link; a half-removed step does not count."""
    if storage.is_remote(folder):
        for mark in (_COMMIT, _OLDER, checksums.FILE):
            storage.remove(folder / mark)
    elif _PARTIAL not in folder.name:
        unnamed = folder.with_name(f"{folder.name}{_PARTIAL}-removed")
        storage.remove(unnamed)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(unnamed)
        folder = unnamed
    storage.remove(folder)


def set_aside(folder: Path) -> Path:
    """Renames a damaged step so that it is no longer a step; returns the new path."""
    names = (f"{folder.name}{ASIDE}{n}" for n in ("", *(f"-{i}" for i in range(2, 1000))))
    with permitted("set aside, damaged as it is"):
        target = next(p for name in names if not (p := folder.with_name(name)).exists())
        folder.rename(target)
    return target


def aside(workdir: Path) -> list[str]:
    """Returns the names of the steps that were set aside."""
    root = workdir / FOLDER
    return [p.name for p in storage.listed(root) if ASIDE in p.name]


def step_of(name: str) -> int:
    """Returns the step number in a name that `set_aside` gave."""
    return int(name.partition(ASIDE)[0])


def put_back(workdir: Path, names: Iterable[str]) -> None:
    """Gives steps that were set aside their original names again."""
    for name in names:
        folder = workdir / FOLDER / name
        folder.rename(folder.with_name(str(step_of(name))))


def all_damaged(workdir: Path, damaged: Mapping[int, str]) -> str:
    """Returns the message for a run whose steps are all damaged; `damaged` maps step to damage."""
    steps = "; ".join(f"step {step} ({damage})" for step, damage in damaged.items())
    before = ", ".join(aside(workdir))
    return (
        f"{workdir / FOLDER} holds no checkpoint that is whole: damaged are {steps or before}"
        f"{f', and {before} set aside before' if steps and before else ''}. Nothing was changed. "
        "Bring one back from a copy; or, to start the run from the beginning, remove that folder. "
        "Then run the same command again."
    )


CONFIG_FILE = "config.yaml"
CLASSES_FILE = "classes.json"  # class names of a run, by label
BASE_FILE = "base.json"  # what the parameters that a run does not train are in
