# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How the steps of a run lie in its workdir: which count, and how one is removed or set aside.

`checkpoints/12` counts once two files are in it: orbax's commit mark and the checksums. Never looks
at what the steps hold, so that damage in one hides no other. What this account has no right to
look at is BadInput, never damage. Start from `committed`.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from vit_jax.errors import permitted
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

FOLDER = "checkpoints"
ASIDE = ".damaged"  # what the name of a step that was set aside ends with
_COMMIT = "commit_success.txt"  # orbax writes it last
_OLDER = "_CHECKPOINT_METADATA"  # orbax wrote it where this project wrote no checksums yet
_PARTIAL = ".orbax-checkpoint-tmp"  # in names of local folders that are being written or removed
log = logging.getLogger("vit_jax")


def committed(workdir: Path) -> list[int]:
    """The steps that count, ascending; whether they are undamaged, nobody has looked."""
    return [step for step, path in _numbered(workdir).items() if _counts(path)]


def newest(workdir: Path) -> int:
    """The newest step that counts; -1: none."""
    return max(committed(workdir), default=-1)


def saved(workdir: Path) -> list[int]:
    """The steps that count, or did until something of them was lost, ascending."""
    return [step for step, path in _numbered(workdir).items() if not _is_cut_short(path)]


def is_older(folder: Path) -> bool:
    """Whether a step was saved by a version that wrote no checksums."""
    return _has(folder, _OLDER) and not _has(folder, checksums.FILE)


def _has(folder: Path, name: str) -> bool:
    with permitted("read"):
        return storage.exists(folder / name)


def _numbered(workdir: Path) -> dict[int, Path]:
    root = workdir / FOLDER
    with permitted("read"):
        found = {
            int(path.name): path
            for path in storage.listed(root)
            if path.name.isdecimal()
            and path.name == str(int(path.name))
            and (storage.is_remote(root) or path.is_dir())  # one that fails says "no" in a bucket
        }
    return dict(sorted(found.items()))


def _counts(folder: Path) -> bool:
    return (_has(folder, _COMMIT) and _has(folder, checksums.FILE)) or is_older(folder)


def _is_cut_short(folder: Path) -> bool:
    """Whether a folder with the name of a step is left from a save, or a removal, cut short.

    None is on a disk: there a step gets its name with everything in it, and loses it before it is
    removed; so one without marks is damaged. Nothing is renamed in a bucket: a step is written
    where it stays, its commit mark last, and that mark goes first. One that has lost it by damage
    looks the same.
    """
    return storage.is_remote(folder) and not _has(folder, _COMMIT) and not is_older(folder)


def damage(
    folder: Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    part: tuple[int, int] = (0, 1),
) -> str:
    """What is wrong with the files of a step, see `checksums.damage`; "" if nothing is known."""
    if is_older(folder):
        log.info("%s has no checksums: an earlier version saved it; it is not verified", folder)
        return ""
    if not _has(folder, _COMMIT):
        return f"{_COMMIT} is missing"
    return checksums.damage(folder, wanted=wanted, part=part)


def tidy(workdir: Path) -> None:
    """Removes what saves that were cut short have left; for the only writer, before it writes."""
    root, numbered = workdir / FOLDER, set(_numbered(workdir).values())
    for path in storage.listed(root):
        if _PARTIAL in path.name or (path in numbered and _is_cut_short(path)):
            remove(path)
            log.info("removed %s: a save that was cut short", path)


def remove(folder: Path) -> None:
    """Removes a step; one that is removed by half does not count. Of a link, only the link."""
    if storage.is_remote(folder):
        for mark in (_COMMIT, _OLDER, checksums.FILE):
            storage.remove(folder / mark)
    elif _PARTIAL not in folder.name:
        unnamed = folder.with_name(f"{folder.name}{_PARTIAL}-removed")
        storage.remove(unnamed)
        with contextlib.suppress(FileNotFoundError):
            storage.rename(folder, unnamed)
        folder = unnamed
    storage.remove(folder)


def set_aside(folder: Path) -> Path:
    """Gives a damaged step a name under which it is no step; returns the new path."""
    names = (f"{folder.name}{ASIDE}{n}" for n in ("", *(f"-{i}" for i in range(2, 1000))))
    with permitted("set aside, damaged as it is"):
        target = next(p for name in names if not storage.exists(p := folder.with_name(name)))
        storage.rename(folder, target)
    return target


def aside(workdir: Path) -> list[str]:
    """The names of the steps that were set aside."""
    root = workdir / FOLDER
    return [p.name for p in storage.listed(root) if ASIDE in p.name]


def step_of(name: str) -> int:
    """Returns the step that lies under a name that `set_aside` gave."""
    return int(name.partition(ASIDE)[0])


def put_back(workdir: Path, names: Iterable[str]) -> None:
    """Gives steps that were set aside the names of steps again."""
    for name in names:
        folder = workdir / FOLDER / name
        storage.rename(folder, folder.with_name(str(step_of(name))))


def nothing_good(workdir: Path, damaged: Mapping[int, str]) -> str:
    """What to say where every step is damaged: step -> what is wrong with it."""
    found = "; ".join(f"step {step} ({what})" for step, what in damaged.items())
    before = ", ".join(aside(workdir))
    return (
        f"{workdir / FOLDER} holds no checkpoint that is whole: damaged are {found or before}"
        f"{f', and {before} set aside before' if found and before else ''}. Nothing was changed. "
        "Bring one back from a copy; or, to start the run from the beginning, remove that folder. "
        "Then run the same command again."
    )


CONFIG_FILE = "config.yaml"
CLASSES_FILE = "classes.json"  # names of the classes of a run, by label
