# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs all checks of the doctor, in the order of their lines. Start from `examine`."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from vit_jax.config.load import ConfigDict, to_yaml
from vit_jax.hardware import detect
from vit_jax.preflight.doctor import accelerators, coordinator, device_users, limits, packages
from vit_jax.preflight.doctor import folders as folders_lib
from vit_jax.preflight.doctor.finding import Finding
from vit_jax.preflight.doctor.limits import Check
from vit_jax.storage import files as storage

_QUICK_SECS = 20.0  # network storage may need some time
_BUSY = "try again when this machine is less busy"
_STORAGE = "see whether its storage answers: df -h"


def examine(workdir: Path, address: str, config: ConfigDict | None) -> Iterator[Finding]:
    """Runs every check; yields each finding as soon as it is known.

    Args:
      workdir: workdir of the run.
      address: HOST:PORT of the coordinator; "" takes it from the environment.
      config: configuration of the run, if known.
    """
    present, platform = detect.present_accelerators(), config.platform if config else "auto"
    yield from limits.run(
        [
            Check("packages", packages.check, _QUICK_SECS, _STORAGE),
            # Runs before jax starts below, since jax holds the devices too.
            Check(
                "holders", lambda: device_users.check(present), _QUICK_SECS, "try again with sudo"
            ),
        ]
    )
    late = accelerators.SECS + 5  # a child ends before that
    yield from limits.run(
        [
            Check("devices", lambda: _devices(platform, present), late, _BUSY),
            Check("tensorflow", accelerators.tensorflow, late, _BUSY),
            Check("workdir", lambda: folders_lib.workdir(workdir), _QUICK_SECS, _STORAGE),
            Check("disk", lambda: _disk(workdir, config), late, _STORAGE),
            Check("clock", lambda: folders_lib.clock(workdir), _QUICK_SECS, _STORAGE),
            Check(
                "coordinator", lambda: coordinator.check(address, os.environ), _QUICK_SECS,
                "see whether names resolve here: getent hosts HOST",
            ),
        ]
    )  # fmt: skip


def _devices(platform: str, present: Sequence[str]) -> list[Finding]:
    return accelerators.devices(platform, present, os.environ)


def _disk(workdir: Path, config: ConfigDict | None) -> list[Finding]:
    data_dir = config.data.data_dir if config else ""
    data_dir = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    folders = {
        "temporary files": Path(tempfile.gettempdir()),
        "datasets": Path(os.path.expanduser(data_dir)),
    }
    if not storage.is_remote(workdir):  # a bucket has no limit
        folders = {"workdir": workdir, **folders}
    if config is None:
        return folders_lib.disk(folders, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(to_yaml(config), encoding="utf-8")
        try:
            size, kept = limits.call(
                "vit_jax.preflight.doctor.folders:checkpoints", [str(file)], accelerators.SECS,
                {"JAX_PLATFORMS": "cpu"},
            )  # fmt: skip
        except limits.Failed as e:
            said = f"how large a checkpoint is cannot be worked out, {e}"
            return [*folders_lib.disk(folders, 0, 0), Finding("disk", said, "mend what it names")]
    return folders_lib.disk(folders, size, kept)
