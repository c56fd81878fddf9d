# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns command-line arguments into a job: loads and checks configurations, hashes the code.

Start from `assemble`.
"""

import argparse
import dataclasses
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_jax.cli import arguments
from vit_jax.config import load as config_lib
from vit_jax.config import recipes, sections
from vit_jax.errors import BadInput, PeerLost
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import points as sweep_lib
from vit_jax.experiments.sweeps import runner as sweep_runner
from vit_jax.hardware import topology
from vit_jax.runtime import rendezvous
from vit_jax.storage import files as storage

from . import artefact, check
from .job import Job, Run, name_of, name_of_run, number

log = logging.getLogger("vit_jax")
HERE = ("local", "slurm")  # engines whose machines see this machine's folders


@dataclasses.dataclass(frozen=True)
class Assembled:
    """A job, and the data that only `submit` needs.

    Attributes:
      job: the job, with at least one run.
      configs: configurations of the runs.
      stage: the sweep, the name of its stage and all points of it; None without a sweep.
    """

    job: Job
    configs: tuple[sections.Config, ...]
    stage: tuple[sweep_lib.Sweep, str, list[sweep_lib.Point]] | None = None


def place(args: argparse.Namespace, engine: str) -> tuple[str, str, Path]:
    """Returns (workdir, name, folder of the files) of a job.

    Raises:
      BadInput: there is no workdir, or the engine's machines cannot see it.
    """
    workdir = args.workdir.rstrip("/") if args.workdir.strip("/") else args.workdir
    if not workdir:
        raise BadInput("--workdir is empty; give the folder of the run.")
    try:
        workdir.encode()
    except UnicodeEncodeError as e:
        raise BadInput(f"--workdir={workdir!r} is not UTF-8; give another.") from e
    storage.check_address(workdir)
    remote = storage.is_remote(workdir)
    if engine not in HERE and not remote:
        raise BadInput(
            f"--workdir={workdir} is a folder of this machine, which the machines of {engine} "
            "cannot see; give gs://BUCKET/FOLDER."
        )
    if not remote:
        workdir = os.path.abspath(os.path.expanduser(workdir))
    name = args.name or name_of(workdir)
    beside = Path("runs", "launch", name) if remote else Path(workdir, "launch")
    folder = Path(os.path.expanduser(args.out)) if args.out else beside
    if "\n" in str(folder):
        raise BadInput(f"{str(folder)!r} has a line break; give another --workdir or --out.")
    return workdir, name, Path(os.path.abspath(folder))


def assemble(
    args: argparse.Namespace, overrides: Sequence[str], engine: str, code: str
) -> Assembled:
    """Returns the job that the arguments describe.

    Args:
      args: arguments of `main`, including the engine's own.
      overrides: `--config.key=value` arguments.
      engine: name of the engine.
      code: the transport, see `artefact`.

    Raises:
      BadInput: the job cannot be launched.
    """
    workdir, name, folder = place(args, engine)
    overrides = tuple(arguments.overrides(args, overrides))
    accelerator = topology.find(args.accelerator) if args.accelerator else None
    if args.sweep:
        configs, runs, stage = _points(args, overrides, workdir, name, engine)
    else:
        configs, stage = (config_lib.load(args.config, overrides),), None
        runs = (_run(name, workdir, configs[0], overrides),)
    for one in configs if stage is None else [p.config for p in stage[2]]:
        check.check(one, accelerator, args.slices, args.procs_per_node)
    job = Job(
        name, runs, workdir, str(folder), accelerator, args.slices, args.procs_per_node,
        environment=_environment(args.env), parallel=args.parallel or 0,
        sweep=_words(args, overrides, workdir) if args.sweep else (),
        **_code(args, code),
    )  # fmt: skip
    return Assembled(job, configs, stage)


def _run(
    name: str, workdir: str, config: sections.Config, overrides: Sequence[str], number: int = 0
) -> Run:
    fingerprint = config_lib.fingerprint(config)
    return Run(name, workdir, config_lib.to_yaml(config), fingerprint, tuple(overrides), number)


def _points(
    args: argparse.Namespace, overrides: Sequence[str], workdir: str, name: str, engine: str
) -> tuple[
    tuple[sections.Config, ...], tuple[Run, ...], tuple[sweep_lib.Sweep, str, list[sweep_lib.Point]]
]:
    """Returns the unfinished runs of a stage, in the same folders as `vit_jax sweep`.

    Verbs that look at a submitted job get all runs; so does `render` if the store does not answer.
    """
    sweep = sweep_lib.read(args.config, overrides)
    if args.stage:
        sweep_lib.check_stage(sweep, args.stage)
    stage = args.stage or next(iter(sweep.stages))
    if stage in sweep.rules and engine != "local":
        raise BadInput(
            f"the stage {stage!r} stops runs early by successive halving, which needs all its runs "
            f"on one machine; {engine} starts each by itself. Use the engine local there, or "
            "`vit_jax sweep`."
        )
    before, rows = sweep.before(stage), []
    try:
        home = storage.workdir(workdir)
        if before is not None:
            rows = [e.row(home) for e in sweep_runner.finished(sweep, before, home)]
        points = left = sweep_folder.settled(sweep.points(stage, rows), home)
        if args.verb in ("render", "submit"):
            left = [p for p in points if not sweep_folder.is_over(home / p.run)]
    except PeerLost as e:
        if args.verb == "submit" or before is not None:
            raise
        points = left = sweep.points(stage, [])
        log.warning("%s: all points are shown, also those that may be finished: %s", workdir, e)
    if not left:
        later = list(sweep.stages)[list(sweep.stages).index(stage) + 1 :]
        then = f"--stage={later[0]} is next" if later else f"vit_jax sweep --collect {workdir}"
        raise BadInput(f"all {len(points)} runs of the sweep are finished; {then}.")
    runs = [
        _run(name_of_run(name, p.run), f"{workdir}/{p.run}", p.config, (), number(p.run))
        for p in left
    ]
    return tuple(p.config for p in left), tuple(runs), (sweep, stage, points)


def _words(args: argparse.Namespace, overrides: Sequence[str], workdir: str) -> tuple[str, ...]:
    stage = [f"--stage={args.stage}"] if args.stage else []
    words = [f"--config={args.config}", f"--workdir={workdir}", f"--parallel={args.parallel or 1}"]
    return ("sweep", *words, *stage, *overrides)


def _environment(texts: Sequence[str]) -> dict[str, str]:
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise BadInput(f"--env={wrong[0]}; write --env=NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts)


def _code(args: argparse.Namespace, transport: str) -> dict[str, Any]:
    """Returns code, packages and artefact of a job."""
    if transport == "folder":
        return {"code": rendezvous.code_version(), "packages": artefact.here()}
    packages = artefact.locked()
    if transport == "rsync":
        return {"code": rendezvous.code_version(), "packages": packages}
    if transport == "image":
        return {"code": artefact.digest_of_image(args.image), "packages": packages}
    packed = artefact.pack(recipes.root())
    return {"code": artefact.digest(packed), "packages": packages, "artefact": packed}


def begin(
    sweep: sweep_lib.Sweep, stage: str, points: Sequence[sweep_lib.Point], workdir: str
) -> None:
    """Records the runs of a stage in the folder of the sweep, like `vit_jax sweep`.

    Raises:
      BadInput: the folder is not writable.
    """
    sweep_folder.write(sweep, stage, points, storage.workdir(workdir))
