# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks that the folders of a run are writable, have room, and agree with the clock.

Start from `workdir`, `disk` and `clock`.
"""

import email.utils
import math
import os
import shutil
import time
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path

from vit_jax.errors import BadInput, PeerLost
from vit_jax.preflight.doctor.finding import Finding
from vit_jax.storage import files as storage
from vit_jax.storage import offline

LEAST_BYTES = 2**30
MOST_SKEW_SECS = 10.0  # locks and certificates tolerate this easily
_METADATA = "http://169.254.169.254/computeMetadata/v1/instance/id"  # Google's, on its own machines
_GIB = 2**30


def workdir(folder: Path) -> list[Finding]:
    """Checks that a file can be written, read back and removed where a run would write."""
    try:
        base = storage.existing(storage.workdir(str(folder)))
        _written(base)
    except (OSError, BadInput, PeerLost) as e:
        said = f"{folder} cannot be written: {getattr(e, 'strerror', None) or e}"
        return [Finding("workdir", said, "give a --workdir that is writable, or mend its rights")]
    made = "" if base == folder.absolute() else f"; it would be made in {base}"
    return [Finding("workdir", f"{folder} can be written{made}")]


def _written(folder: Path) -> tuple[float, float, float]:
    """Writes a file; returns (time before, the file's time in the file system, time after)."""
    path = folder / f".vit_jax-doctor-{uuid.uuid4().hex}"
    before = time.time()
    try:
        storage.write(path, "doctor")
        if storage.read_all([path]) != [b"doctor"]:
            raise OSError(5, "what was written is not what is read")
        return before, path.stat().st_mtime, time.time()
    finally:
        storage.remove(path)


# ---------------------------------------------------------------- room


def disk(places: Mapping[str, Path], checkpoint_bytes: int, checkpoints: int) -> list[Finding]:
    """Checks for room: a GiB everywhere, and in the workdir the size of the checkpoints.

    Args:
      places: purpose -> folder; `workdir` is the folder of the run.
      checkpoint_bytes: size of one checkpoint; 0 if unknown.
      checkpoints: largest number at a time, including one that is being written.
    """
    found, free = [], []
    for name, folder in places.items():
        need, why = LEAST_BYTES, ""
        if name == "workdir" and checkpoint_bytes:
            need = max(need, checkpoint_bytes * checkpoints)
            why = f" for {checkpoints} checkpoints of {_size(checkpoint_bytes)}"
        try:
            usage = shutil.disk_usage(storage.existing(folder))
            nodes = os.statvfs(storage.existing(folder))
        except OSError as e:
            said = f"{name} {folder} cannot be looked at: {e.strerror}"
            found.append(Finding("disk", said, "mend its rights, or give another folder"))
            continue
        free.append(f"{name} {_size(usage.free)} free{why}")
        said = f"{name} {folder} has {_size(usage.free)} free of {_size(usage.total)}"
        fix = "remove what is not needed there, or give another folder"
        if usage.free < need:
            found.append(Finding("disk", f"{said}, {_size(need)} are needed{why}", fix))
        elif nodes.f_files and not nodes.f_favail:
            found.append(Finding("disk", f"{name} {folder} has no room for another file", fix))
    return found or [Finding("disk", "; ".join(free))]


def _size(count: int) -> str:
    return f"{count / _GIB:,.1f} GiB" if count >= _GIB / 10 else f"{count / 2**20:,.1f} MiB"


def checkpoints(config_yaml: str) -> tuple[int, int]:
    """Returns the bytes of a checkpoint, and the largest number of checkpoints at a time.

    Runs in a child process.
    """
    import jax

    from vit_jax.build import defaults, program
    from vit_jax.config import load as config_lib
    from vit_jax.preflight.plan import compile_for

    classes, examples = compile_for.size(config_yaml)
    alone = {"mesh.replica": 0, "mesh.data": -1, "mesh.fsdp": 1, "mesh.tensor": 1}
    config = config_lib.changed(defaults.settle(config_lib.load(config_yaml)), alone)
    made = program.make(config, classes=classes, examples=examples, devices=jax.devices()[:1])
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made.abstract))
    kept = config.checkpoint.keep_last + bool(config.checkpoint.keep_best)
    if between := math.lcm(made.steps.checkpoint, made.steps.keep_every):
        kept += made.steps.total // between
    return size, kept + 1  # plus the one that is being written


# ---------------------------------------------------------------- clock


def clock(folder: Path, root: Path = Path("/")) -> list[Finding]:
    """Compares this machine's clock with the workdir's, Google's, and the age of this file.

    A wrong clock makes locks look abandoned and certificates invalid.

    Args:
      folder: folder of the run.
      root: root of the folder `sys`, for tests.
    """
    ours, compared = time.time(), []
    if ours < Path(__file__).stat().st_mtime - 3600:
        said = f"it is {_date(ours)} here, earlier than the files of vit_jax were installed"
        return [Finding("clock", said, "set the clock: sudo timedatectl set-ntp true")]
    try:
        before, theirs, after = _written(storage.existing(folder))
        skew = max(before - theirs, 0) - max(theirs - after, 0)
        compared.append((f"the file system of {folder}", skew))
    except (OSError, PeerLost):  # the check of the workdir reports this
        pass
    if (told := _google(root)) is not None:
        compared.append(("Google's metadata server", time.time() - told))
    wrong = [(name, skew) for name, skew in compared if abs(skew) > MOST_SKEW_SECS]
    if wrong:
        name, skew = wrong[0]
        said = f"it is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {name}"
        return [Finding("clock", said, "set whichever is wrong: sudo timedatectl set-ntp true")]
    names = " and ".join(name for name, _ in compared)
    return [Finding("clock", f"{_date(ours)}" + (f", as {names} has it" if names else ""))]


def _date(secs: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(secs))


def _google(root: Path) -> float | None:
    """Returns the time of Google's metadata server; None on other machines, and offline."""
    try:
        maker = (root / "sys/class/dmi/id/product_name").read_text(encoding="utf-8")
        if "Google" not in maker or not offline.allowed():
            return None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(_METADATA, headers={"Metadata-Flavor": "Google"})
        with opener.open(request, timeout=3) as answer:
            return email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (OSError, TypeError, ValueError):  # no such file, no answer, no date in it
        return None
