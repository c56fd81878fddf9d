# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: whether it holds one to continue, and what is written before training.

Start from `continue_or_check`.
"""

import contextlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from vit_jax import build, checksums, distributed, loading, origin, reporting, settle, storage
from vit_jax import config as config_lib
from vit_jax.config import ConfigDict
from vit_jax.errors import BadInput, permitted, together, writing
from vit_jax.models import files
from vit_jax.step_folders import FOLDER, committed, saved

log = logging.getLogger("vit_jax")


def continue_or_check(config: ConfigDict, workdir: Path) -> dict[str, Any] | None:
    """Settles and checks the configuration; returns the results if the run is finished already.

    All processes of a run call it together.

    Raises:
      BadInput: a wrong value, or a run in `workdir` that another configuration made.
    """
    results = workdir / reporting.RESULTS_FILE
    found = _begun_with(workdir) if distributed.is_first() else None
    begun = distributed.share("file of the configuration", str(found or ""))
    if begun:
        saved = config_lib.load(begun)
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


def _begun_with(workdir: Path) -> Path | None:
    """The file with the configuration of the run in a workdir; None if no run was begun there.

    That is `config.yaml`, or its copy in the newest step, with checksums, if they tell of different
    results. If it is missing or damaged, it is written again from that copy.
    """
    file = workdir / loading.CONFIG_FILE
    try:
        there, steps = storage.exists(file), saved(workdir)
    except OSError as e:
        raise BadInput(f"cannot look into {workdir}: {e.strerror}; give another --workdir.") from e
    copy = next(filter(_is_whole, (_copy(workdir, step) for step in reversed(steps))), None)
    if copy is None:
        if steps and not there:
            raise BadInput(
                f"{file} is missing, and no checkpoint has a whole copy of it: nothing tells how "
                "the run was made. Bring it back; or, to start the run from the beginning, remove "
                f"{workdir / FOLDER}."
            )
        return file if there else None
    content = storage.read_all([copy])[0]
    damage = _damage(file, content)
    if damage:
        with writing(workdir):
            storage.write(file, content)
        log.warning("%s %s; restored from %s", file, damage, copy)
        return file
    differences = config_lib.differences(config_lib.load(str(copy)), config_lib.load(str(file)))
    if any(config_lib.changes_results(key) for key, *_ in differences):
        log.warning("%s was changed; what counts is %s, which was trained with", file, copy)
        return copy
    return file


def _copy(workdir: Path, step: int) -> Path:
    return workdir / FOLDER / str(step) / loading.CONFIG_FILE


def _is_whole(copy: Path) -> bool:
    """Whether the configuration in a step is as it was saved, and one of this version."""
    with permitted("read"):
        there = storage.exists(copy)
    if not there or checksums.damage(copy.parent, wanted=lambda name: name == copy.name):
        return False
    with contextlib.suppress(BadInput):
        config_lib.load(str(copy))
        return True
    return False


def _damage(file: Path, copy: bytes) -> str:
    """What has happened to a `config.yaml`, beside a copy that is whole; "" if nothing."""
    try:
        with permitted("read"):
            content = storage.read_all([file])[0]
    except FileNotFoundError:
        return "is missing"
    except OSError as e:
        return f"cannot be read: {e.strerror}"
    try:
        config_lib.load(str(file))
    except BadInput as e:
        return f"is damaged ({e})"
    lost = _keys(copy) - _keys(content)
    return f"is cut short ({len(lost)} keys are missing)" if lost else ""


def _keys(content: bytes) -> set[str]:
    """The dotted keys in a file that `config.load` takes."""
    return {key for key, _ in config_lib.flatten(yaml.safe_load(content))}


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


def prepare(
    workdir: Path,
    config: ConfigDict,
    classes: Sequence[str],
    recipe: origin.Recipe | None = None,
    devices: str = "",
) -> None:
    """Makes the workdir; writes the configuration, the names of the classes and `origin` into it.

    Args:
      workdir: of the run.
      config: resolved.
      classes: names, by label.
      recipe: what the run is made from.
      devices: what it is made with.
    """
    with writing(workdir):
        storage.make_folder(workdir)
        storage.write(workdir / loading.CONFIG_FILE, config_lib.to_yaml(config))
        names = json.dumps({"classes": list(classes)}, indent=1)
        storage.write(workdir / loading.CLASSES_FILE, names + "\n")
        origin.write(workdir, recipe, devices)


def remove_new(workdir: Path, before: set[Path] | None) -> None:
    """Removes what a run that never began has written; `before` is None if there was no workdir."""
    for path in set(storage.listed(workdir)) - (before or set()):
        storage.remove(path)
    if before is None:
        storage.remove(workdir)
