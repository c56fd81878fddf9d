# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds other processes that hold an accelerator of this machine.

Start from `check`.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from vit_jax.preflight.doctor.finding import Finding

_DEVICES = {"tpu": r"/dev/(accel\d+|vfio/\d+)", "gpu": r"/dev/nvidia\d+"}
# These watch GPUs or draw on a screen, and leave room for others.
_HARMLESS = (
    "nvidia-persiste", "nv-hostengine", "dcgm-exporter", "Xorg", "Xwayland", "gnome-shell",
)  # fmt: skip
_LOCK = "tmp/libtpu_lockfile"  # file of libtpu, which stays even if no process holds it


def check(present: Sequence[str], root: Path = Path("/"), own: int | None = None) -> list[Finding]:
    """Reports each process that holds an accelerator, by its open files and libtpu's lock.

    Args:
      present: result of `detect.present_accelerators`.
      root: root of the file system, for tests.
      own: id of this process, which does not count.
    """
    if not present:
        return [Finding("holders", "this machine has no accelerator that a process could hold")]
    pattern = re.compile("|".join(_DEVICES[kind] for kind in present))
    held, hidden = _open_devices(root, pattern)
    found = []
    if "tpu" in present:
        lock = root / _LOCK
        for pid in _lock_owners(root, lock):
            held.setdefault(pid, []).append(f"/{_LOCK}")
        if lock.exists() and not os.access(lock, os.R_OK | os.W_OK):
            said = f"/{_LOCK} belongs to {_owner(lock)}, so libtpu takes the TPU for used"
            found.append(Finding("holders", said, f"sudo rm /{_LOCK}"))
    held.pop(os.getpid() if own is None else own, None)
    for pid, devices in sorted(held.items()):
        name, command = _command(root, pid)
        if name not in _HARMLESS:
            said = f"process {pid} ({command}) holds {', '.join(sorted(set(devices)))}"
            found.append(Finding("holders", said, f"wait until it ends, or: kill {pid}"))
    unseen = f"; {hidden} processes of others cannot be looked into (sudo can)" if hidden else ""
    return found or [Finding("holders", f"no other process holds the {present[0].upper()}{unseen}")]


def _open_devices(root: Path, pattern: re.Pattern[str]) -> tuple[dict[int, list[str]], int]:
    """Returns ({process: its open devices}, number of processes that cannot be read)."""
    held: dict[int, list[str]] = {}
    hidden = 0
    for process in (root / "proc").glob("[0-9]*"):
        try:
            links = [os.readlink(fd) for fd in (process / "fd").iterdir()]
        except PermissionError:
            hidden += 1
            continue
        except OSError:  # the process has just ended
            continue
        devices = [link for link in links if pattern.fullmatch(link)]
        if devices:
            held[int(process.name)] = devices
    return held, hidden


def _lock_owners(root: Path, lock: Path) -> list[int]:
    """Returns the processes that have locked a file, according to the kernel."""
    try:
        stat = lock.stat()
        lines = (root / "proc/locks").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    rows = [line.split() for line in lines]
    return [int(row[4]) for row in rows if len(row) > 5 and row[5] == place and int(row[4]) > 0]


def _command(root: Path, pid: int) -> tuple[str, str]:
    """Returns (name in the kernel, command line) of a process."""
    folder = root / "proc" / str(pid)
    try:
        name = (folder / "comm").read_text(encoding="utf-8").strip()
        words = (folder / "cmdline").read_text(errors="replace", encoding="utf-8").split("\0")
    except OSError:
        return "", "ended meanwhile"
    return name, " ".join(filter(None, words))[:100] or name


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"
