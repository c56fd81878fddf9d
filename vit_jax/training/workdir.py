# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Looks for a run to continue in a workdir, and writes the files that a run needs before training.

`refused_start` undoes these writes if the start is refused. Start from `continue_or_check`.
"""

import contextlib
import dataclasses
import json
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from vit_jax.build import defaults, splits
from vit_jax.build import run as build
from vit_jax.checkpoints import local_folders, step_folders
from vit_jax.checkpoints.step_folders import FOLDER, committed, saved
from vit_jax.config import load as config_lib
from vit_jax.config import provenance, sections, trainable
from vit_jax.errors import BadInput, permitted, together, writing
from vit_jax.reports import summary
from vit_jax.runtime import coordination
from vit_jax.step.objective import Objective
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.weights.loading import Run

log = logging.getLogger("vit_jax")


def continue_or_check(
    config: sections.Config, workdir: Path
) -> tuple[sections.Config, dict[str, Any] | None]:
    """Settles and checks the configuration.

    All processes of a run must call it together.

    Returns:
      The settled configuration, and the results if the run is already finished.

    Raises:
      BadInput: a value is wrong, or another configuration made the run in `workdir`.
    """
    results = workdir / summary.RESULTS_FILE
    file, damaged = _config_of_run(workdir) if coordination.is_first() else (None, False)
    config_file = coordination.share("file of the configuration", str(file or ""))
    if config_file:
        saved = config_lib.read(config_file)
        if config.branch or saved.branch:
            from vit_jax.training import branch

            config = branch.settle_again(config, saved, workdir)
        config = defaults.take_from_run(config, saved)
        compare(saved, config, workdir)
    elif config.branch:
        from vit_jax.training import branch

        config = branch.settle(config, workdir)
    else:
        if config.trainable != trainable.ALL and not config.init:
            raise BadInput(
                f"trainable={config.trainable!r} leaves other parameters as they are in init, and "
                "there is none; give --config.init=FILE_OR_RUN, or --config.trainable=all."
            )
        try:
            config = defaults.settle(config)
        except BadInput as e:
            raise together([e, *splits.problems(config)]) from e
    if config.distillation.teacher:  # a run may go on, and a branch of the hub may move
        given = config.distillation
        name, settings = coordination.share("teacher", [given.teacher, given.teacher_settings])
        taught = dataclasses.replace(given, teacher=name, teacher_settings=settings)
        config = dataclasses.replace(config, distillation=taught)
    build.check(config)
    if config_file and results.exists():
        from vit_jax.weights import files

        if file and damaged:
            with writing(workdir):
                storage.write(workdir / step_folders.CONFIG_FILE, storage.read_all([file])[0])
        log.info("%s is finished; nothing to do.", workdir)
        return config, files.read_json(results)
    return config, None


def _config_of_run(workdir: Path) -> tuple[Path | None, bool]:
    """Returns the file with the configuration of a run, and True if `config.yaml` is damaged.

    The file is None if the workdir holds no run. Normally it is `config.yaml`. If that is missing
    or damaged, it is the newest undamaged copy in a step. The copy also counts if the two differ in
    keys that change results. `prepare` writes `config.yaml` again.
    """
    file = workdir / step_folders.CONFIG_FILE
    try:
        there, steps = file.exists(), saved(workdir)
    except OSError as e:
        raise BadInput(f"cannot look into {workdir}: {e.strerror}; give another --workdir.") from e
    copy = next(filter(_is_whole, (_copy(workdir, step) for step in reversed(steps))), None)
    if copy is None:
        if steps and not there:
            raise BadInput(
                f"{file} is missing, and no checkpoint has an undamaged copy, so the settings of "
                "the run are unknown. Restore the file; or, to start the run from the beginning, "
                f"remove {workdir / FOLDER}."
            )
        return (file if there else None), False
    config, damage = _read(file, storage.read_all([copy])[0])
    if config is None:
        log.warning("%s %s; its copy %s is used instead", file, damage, copy)
        return copy, True
    differences = config_lib.differences(config_lib.read(str(copy)), config)
    if any(config_lib.changes_results(key) for key, *_ in differences):
        log.warning(
            "%s was changed; the run was trained with %s, which is used instead", file, copy
        )
        return copy, False
    return file, False


def _copy(workdir: Path, step: int) -> Path:
    return workdir / FOLDER / str(step) / step_folders.CONFIG_FILE


def _is_whole(copy: Path) -> bool:
    """Returns True if the configuration in a step is undamaged and this version can load it."""
    with permitted("read"):
        there = copy.exists()
    if not there or checksums.damage(copy.parent, wanted=lambda name: name == copy.name):
        return False
    with contextlib.suppress(BadInput):
        config_lib.read(str(copy))
        return True
    return False


def _read(file: Path, copy: bytes) -> tuple[sections.Config | None, str]:
    """Reads `config.yaml` and compares its keys with a whole copy.

    Returns:
      The configuration and ""; or None and a description of the damage.
    """
    try:
        with permitted("read"):
            content = storage.read_all([file])[0]
    except FileNotFoundError:
        return None, "is missing"
    except OSError as e:
        return None, f"cannot be read: {e.strerror}"
    try:
        config = config_lib.read(str(file))
    except BadInput as e:
        return None, f"is damaged ({e})"
    lost = _keys(copy) - _keys(content)
    return (None, f"is cut short ({len(lost)} keys are missing)") if lost else (config, "")


def _keys(content: bytes) -> set[str]:
    """Returns the dotted keys in the content of a `config.yaml`."""
    return {key for key, _ in config_lib.flatten(yaml.safe_load(content))}


def has_checkpoint(workdir: Path) -> bool:
    """Returns True if a workdir has a saved step; without one, training starts from step 0."""
    return bool(saved(workdir))


def has_checkpoint_for_all(workdir: Path) -> bool:
    """Returns `has_checkpoint`; all processes of a run call it together, and process 0 looks."""
    own = has_checkpoint(workdir) if coordination.is_first() else None
    return coordination.share("a checkpoint exists", own)


def resumption(workdir: Path, local: str = "") -> str:
    """Returns the sentence that says how to go on after the loss of a process.

    Args:
      workdir: the folder of the run.
      local: the folder of its local tier, see `local_folders.newest_step`.
    """
    steps = committed(workdir)
    where = f"to continue from step {steps[-1]}" if steps else "to start from the beginning"
    if (near := local_folders.newest_step(local, workdir)) > max(steps, default=-1):
        where += f", or from step {near} if the local tier has all of it"
    return f"Run again {where}."


def compare(saved: sections.Config, current: sections.Config, workdir: Path) -> None:
    """Compares the saved configuration with the given one, and logs harmless changes.

    Raises:
      BadInput: a key that changes results has another value.
    """
    differences = config_lib.differences(saved, current)
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
    config: sections.Config,
    classes: Sequence[str],
    recipe: provenance.Recipe | None = None,
    devices: str = "",
    examples: str = "",
    parent: Path | None = None,
    colours: np.ndarray | None = None,
) -> None:
    """Makes the workdir and writes the configuration, the class names and the provenance into it.

    Logs a warning if a run with saved steps continues with other training examples.

    Args:
      workdir: the folder of the run.
      config: the resolved configuration.
      classes: the class names, by label.
      recipe: the recipe of the run, if it has one.
      devices: a description of the devices.
      examples: the identity of the training examples, see `provenance.Origin`.
      parent: the folder of the run that goes on at the beginning of a branch, if not `workdir`.
      colours: the colour that the data give each class of masks, uint8 [Y, 3].
    """
    previous = parent or workdir
    before = provenance.read(previous)
    if before.examples not in ("", examples) and has_checkpoint(previous):
        log.warning("the training examples have changed since the run was last started: %s, before "
                    "%s; it goes on with the new ones, unlike a run that never stopped",
                    examples, before.examples)  # fmt: skip
    with writing(workdir):
        storage.make_folder(workdir)
        storage.write(workdir / step_folders.CONFIG_FILE, config_lib.to_yaml(config))
        names: dict[str, Any] = {"classes": list(classes)}
        if colours is not None:
            names["colours"] = colours.tolist()
        text = json.dumps(names, indent=1)
        storage.write(workdir / step_folders.CLASSES_FILE, text + "\n")
        recorded = before.init_sha256, before.init_published, before.init_revision
        init = recorded if has_checkpoint(previous) else _identity(config)
        provenance.write(workdir, recipe or before.recipe, devices, examples, config.branch, init)


def write_results(workdir: Path, results: dict[str, Any]) -> None:
    """Writes results.json, which marks the run as finished."""
    if coordination.is_first():
        text = json.dumps(results, indent=2) + "\n"
        storage.write(workdir / summary.RESULTS_FILE, text)


def _identity(config: sections.Config) -> tuple[str, str, str]:
    """Returns SHA-256, published name and commit of the weights file in `init`; empty for a run."""
    if not config.init:
        return "", "", ""
    from vit_jax.weights import download, loading

    if loading.may_be_run(config.init):
        return "", "", ""
    return (*download.identity(config.init), download.revision(config.init))


def parent_of_branch(config: sections.Config, workdir: Path) -> "Run | None":
    """Returns the run and step that a branch begins with; None if it has a checkpoint already."""
    if not config.branch:
        return None
    from vit_jax.training import branch

    return branch.parent_to_begin_with(config, workdir)


def check_classes(workdir: Path, classes: Sequence[str]) -> None:
    """Checks that the data has the classes that the run in a workdir was trained with.

    All processes of a run must call it together.

    Args:
      workdir: the folder of the run. Without a saved step, all classes are accepted. If the names
        of the trained classes are unknown, only their number is compared.
      classes: the class names that the run learns, by label; without any, nothing is compared.

    Raises:
      BadInput: a class is new, missing, or has another label.
    """
    refused = ""
    if classes and coordination.is_first() and has_checkpoint(workdir):
        trained: tuple[str, ...] = ()
        with contextlib.suppress(BadInput):  # `prepare` writes a damaged file again
            from vit_jax.weights import loading

            trained = loading.class_names(workdir)
        if not trained:
            refused = _other_number(workdir, len(classes))
        elif trained != tuple(classes):
            refused = _other_classes(workdir, trained, classes)
    refused = coordination.share("classes of the run", refused)
    if refused:
        raise BadInput(refused)


def check_teachers(objective: Objective, classes: Sequence[str]) -> None:
    """Raises BadInput if a run that the objective reads has the classes in another order."""
    learned = tuple(classes)
    for name, model in objective.reads.items():
        if not (model.classes and learned) or model.classes == learned:
            continue
        pairs = enumerate(zip(model.classes, learned, strict=False))
        label = next((n for n, pair in pairs if pair[0] != pair[1]), len(learned) - 1)
        raise BadInput(
            f"the {name} {model.name} has other classes than the data, or another order: class "
            f"{label} is {model.classes[label]!r} there and {learned[label]!r} here; give a {name} "
            "that was trained on these classes."
        )


def _other_classes(workdir: Path, trained: Sequence[str], classes: Sequence[str]) -> str:
    """Returns the message for data with other classes, or with the classes in another order."""
    new = [name for name in classes if name not in set(trained)]
    gone = [name for name in trained if name not in set(classes)]
    parts = [f"new are {_some(new)}"] if new else []
    parts += [f"missing are {_some(gone)}"] if gone else []
    if not parts:
        text = "the data has the classes of the run in another order"
    elif len(classes) == len(trained):
        text = f"the data has other classes than the run was trained with: {'; '.join(parts)}"
    else:
        text = f"{_numbers(len(classes), len(trained))}: {'; '.join(parts)}"
    return text + _instead(workdir)


def _other_number(workdir: Path, count: int) -> str:
    """Returns the message for another number of classes, for a run without readable class names.

    Returns "" if the numbers are equal, after a warning in the log, or if the trained number is
    unknown.
    """
    trained = _trained_classes(workdir)
    file = workdir / step_folders.CLASSES_FILE
    reason = f"its {file.name} is {'damaged' if file.exists() else 'missing'}"
    if trained == count:
        log.warning("the names of the classes were not compared with those of the run: %s", reason)
    if trained in (0, count):
        return ""
    which = "new" if trained < count else "missing"
    text = f"{_numbers(count, trained)}; {reason}, so it is unknown which are {which}"
    return text + _instead(workdir)


def _trained_classes(workdir: Path) -> int:
    """Returns the number of classes of the head in the newest readable step; 0 if unknown."""
    from vit_jax.checkpoints.checkpoints import Checkpoints

    with Checkpoints(workdir, read_only=True) as checkpoints:
        for step in reversed(checkpoints.steps):
            with contextlib.suppress(Exception):  # later reads report it
                return checkpoints.weight_shapes(step)["head"]["kernel"].shape[-1]
    return 0


def _numbers(now: int, trained: int) -> str:
    return f"the data has {now} classes, the run was trained with {trained}"


def _instead(workdir: Path) -> str:
    return (
        f". Nothing in {workdir} was changed. Give the data with the same classes to continue; or "
        "train on this data in another --workdir, with "
        f"--config.init={shlex.quote(str(workdir))} from these weights."
    )


def _some(names: Sequence[str], most: int = 5) -> str:
    """Returns the first names as text, with the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
