# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: whether it holds one to continue, and what is written before training.

Start from `continue_or_check`.
"""

import logging
from pathlib import Path
from typing import Any

from vit_jax import build, loading, reporting, settle, storage
from vit_jax import config as config_lib
from vit_jax.config import ConfigDict
from vit_jax.errors import BadInput, together, writing
from vit_jax.models import files
from vit_jax.step_folders import committed, saved

log = logging.getLogger("vit_jax")


def continue_or_check(config: ConfigDict, workdir: Path) -> dict[str, Any] | None:
    """Settles and checks the configuration; returns the results if the run is finished already.

    Raises:
      BadInput: a wrong value, or a run in `workdir` that another configuration made.
    """
    saved_file, results = workdir / loading.CONFIG_FILE, workdir / reporting.RESULTS_FILE
    try:
        begun = storage.exists(saved_file)
    except OSError as e:
        raise BadInput(f"cannot look into {workdir}: {e.strerror}; give another --workdir.") from e
    if begun:
        saved = config_lib.load(str(saved_file))
        settle.adopt(config, saved)
        compare(saved, config, workdir)
    else:
        try:
            settle.settle(config)
        except BadInput as e:
            raise together([e, *build.problems(config)]) from e
    build.check(config)
    if begun and storage.exists(results):
        log.info("%s is finished; nothing to do.", workdir)
        return files.read_json(results)
    return None


def has_checkpoint(workdir: Path) -> bool:
    """Whether a step was saved in a workdir; without one nothing has been trained yet."""
    return bool(saved(workdir))


def resumption(workdir: Path) -> str:
    """What to do once a process is gone."""
    steps = committed(workdir)
    where = f"to continue from step {steps[-1]}" if steps else "to start from the beginning"
    return f"Run again {where}."


def compare(saved: ConfigDict, given: ConfigDict, workdir: Path) -> None:
    """Refuses to continue a run with other values for keys that change results; logs the rest."""
    differences = config_lib.differences(saved, given)
    listed = {
        kind: [
            f"  {key}: {old!r} in {workdir}, now {new!r}"
            for key, old, new in differences
            if config_lib.changes_results(key) == kind
        ]
        for kind in (True, False)
    }
    if listed[True]:
        raise BadInput(
            f"{workdir} holds a run with another configuration:\n" + "\n".join(listed[True]) + "\n"
            "Give another --workdir, or these values."
        )
    if listed[False]:
        log.info("continuing with changes that do not touch results:\n%s", "\n".join(listed[False]))


def prepare(workdir: Path, config: ConfigDict) -> None:
    """Makes the workdir and writes the configuration into it."""
    with writing(workdir):
        storage.make_folder(workdir)
        storage.write(workdir / loading.CONFIG_FILE, config_lib.to_yaml(config))


def remove_new(workdir: Path, before: set[Path] | None) -> None:
    """Removes what a run that never began has written; `before` is None if there was no workdir."""
    for path in set(storage.listed(workdir)) - (before or set()):
        storage.remove(path)
    if before is None:
        storage.remove(workdir)
