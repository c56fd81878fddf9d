# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The layout of a run's local tier on one host: which steps are there, and whose they are.

`PATH/vit_jax-RUN/STEP-START` holds the files of a step. RUN is a number in the workdir, so that a
new run in the same workdir takes nothing over. START is a number of the start that saved: parts of
two starts are never put together. `local_tier` uses the folders. Start from `newest_step`.
"""

import contextlib
import json
import re
from pathlib import Path

from vit_jax.storage import files as storage

FILE = "local_tier.json"  # in the workdir: the number of the run
RUNS = "vit_jax-"
_STEP = re.compile(r"(\d+)-[0-9a-f]{8}")


def run_of(workdir: Path) -> str:
    """Returns the number of a run; "" if it has none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(storage.read_all([workdir / FILE])[0])["run"])
    return ""


def write_run(workdir: Path, run: str) -> None:
    """Writes the number of a run into its workdir."""
    storage.write(workdir / FILE, json.dumps({"run": run}) + "\n")


def folder_of(path: str, run: str) -> Path:
    """Returns the folder of a run on this host."""
    return Path(path) / f"{RUNS}{run}"


def steps(folder: Path) -> list[str]:
    """Returns the names of the steps in the folder of a run; [] if it cannot be read."""
    with contextlib.suppress(OSError):
        return [path.name for path in storage.listed(folder) if _STEP.fullmatch(path.name)]
    return []


def step_of(name: str) -> int:
    """Returns the step in the name of a folder."""
    return int(name.partition("-")[0])


def newest_step(path: str, workdir: Path) -> int:
    """Returns the newest step of a run on this host, which may not be whole; -1 if there is none.

    Args:
      path: the folder of the host; "": there is no local tier.
      workdir: the folder of the run.
    """
    run = run_of(workdir) if path else ""
    return max(map(step_of, steps(folder_of(path, run))), default=-1) if run else -1
