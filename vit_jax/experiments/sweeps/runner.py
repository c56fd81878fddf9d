# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the points of a sweep on this machine, stage after stage, and keeps its files up to date.

A stage with a rule (`halving`) runs in rounds: to each rung, then to the end. Start from `run`;
`stage` starts the processes.
"""

import contextlib
import fcntl
import functools
import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from vit_jax.build import defaults, splits
from vit_jax.build import run as build
from vit_jax.checkpoints import step_folders
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, together, writing
from vit_jax.experiments.sweeps import cost, rungs
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import places as places_lib
from vit_jax.experiments.sweeps import stage as stage_lib
from vit_jax.experiments.sweeps.folder import Entry
from vit_jax.experiments.sweeps.halving import Halving
from vit_jax.experiments.sweeps.page import Page
from vit_jax.experiments.sweeps.places import Places
from vit_jax.experiments.sweeps.points import Point, Problems, Sweep
from vit_jax.experiments.sweeps.stage import Command, Stage, Stops, beside
from vit_jax.runtime import signals
from vit_jax.storage import files as storage

LOCK_FILE = "sweep.lock"
AUTO = 0  # in place of a number of runs: as many as this machine carries
log = logging.getLogger("vit_jax")


def train_command(folder: Path) -> list[str]:
    """Returns the words of `vit_jax train` in this interpreter, for a workdir with config.yaml."""
    config = folder / step_folders.CONFIG_FILE
    return [sys.executable, "-m", "vit_jax", "train", f"--config={config}", f"--workdir={folder}"]


def run(
    sweep: Sweep,
    workdir: Path,
    *,
    stage: str = "",
    parallel: int = 1,
    command: Command = train_command,
) -> list[Entry]:
    """Runs the unfinished runs of a sweep, and keeps sweep.csv up to date.

    Args:
      sweep: from `sweep.read`.
      workdir: the folder of the sweep; made if needed.
      stage: runs only this stage; "": all stages in their order.
      parallel: number of runs at a time; `AUTO` chooses it.
      command: returns the command that starts a run.

    Returns:
      All runs. If a run has failed, later stages are not begun.

    Raises:
      BadInput: a point cannot be used, a run of another sweep is in its place, or a run of the
        stage before is not finished; nothing was started.
      Stopped: a signal came, or a file STOP appeared in `workdir`; the processes have ended.
    """
    stop_file, wanted = signals.StopFile(workdir), [stage] if stage else list(sweep.stages)
    ready = {
        name: _settled(sweep, name, workdir) for name in wanted if sweep.before(name) not in wanted
    }
    points = list(itertools.chain.from_iterable(ready.values()))
    if not all(sweep_folder.is_over(workdir / p.run) for p in points):
        points += [p for name in wanted if name not in ready for p in _foreseen(sweep, name)]
    _check_data(points, workdir)
    steps = {name: rungs.steps(sweep.rules.get(name), ready[name], workdir) for name in ready}
    with _locked(workdir) as lock, stage_lib.stops(stop_file) as stops:
        stop_file.remove_old()
        page = Page(workdir)
        for name in wanted:
            if name not in ready:
                ready[name] = _settled(sweep, name, workdir)
                _check_data(ready[name], workdir)
                steps[name] = rungs.steps(sweep.rules.get(name), ready[name], workdir)
            sweep_folder.write(sweep, name, ready[name], workdir)
            start = functools.partial(
                Stage,
                workdir=workdir,
                places=_places(ready[name], workdir, parallel),
                command=command,
                lock=lock,
                saved=functools.partial(_saved, workdir, page),
            )
            with page.ending():
                rule = sweep.rules.get(name)
                failed = _rounds(start, rule, ready[name], steps[name], workdir, stops)
            if failed:
                break
    return sweep_folder.entries(workdir, running=())


def _rounds(
    start: Callable[..., Stage],
    rule: Halving | None,
    points: Sequence[Point],
    steps: Mapping[str, Sequence[int]],
    workdir: Path,
    stops: Stops,
) -> int:
    """Runs a stage to each rung of its rule and to the end; returns how many runs were given up.

    Nothing is decided at a rung that a failed run has not reached.
    """
    for number in range(len(rule.rungs) if rule else 0):
        assert rule is not None
        at = {point.run: steps[point.run][number] for point in points}
        folders = {workdir / run: step for run, step in at.items()}

        def reached(
            folder: Path, metric: str = rule.metric, folders: dict[Path, int] = folders
        ) -> bool:
            return rungs.measured(folder, metric, folders[folder]) is not None

        failed = start(_longest_first(points, workdir), reached=reached).run(stops)
        if failed:
            return failed
        points = rungs.decide(rule, points, at, workdir)
    for point in points:
        sweep_folder.lift_stop(workdir, point.run)
    return start(_longest_first(points, workdir)).run(stops)


def _longest_first(points: Sequence[Point], workdir: Path) -> list[Point]:
    """Orders runs by their planned chip-hours, so that no long run is left for the end.

    Runs that were not planned stay in their order.
    """
    hours = cost.planned(workdir)
    return sorted(points, key=lambda point: -hours.get(point.run, 0.0))


def _places(points: Sequence[Point], workdir: Path, parallel: int) -> Places:
    """Returns the places of a fixed number of runs, or those that this machine carries.

    Runs that are over count too, so that the others find the same places after a stop.
    """
    if parallel != AUTO or all(sweep_folder.is_over(workdir / p.run) for p in points):
        return places_lib.Fixed(parallel or 1)
    platforms = {point.config.platform for point in points}
    if len(platforms) > 1:
        log.info("--parallel=auto: 1 run at a time; the runs name different platforms")
        return places_lib.Fixed(1)
    planner, machine = cost.Planner(), places_lib.here(*platforms)
    configs = {point.run: point.config for point in points}
    folders = [workdir / run for run in configs]
    places = places_lib.auto(list(configs.values()), folders, machine, planner)
    prints = {run: config_lib.fingerprint(config) for run, config in configs.items()}
    hours = {run: planner.chip_hours[p] for run, p in prints.items() if p in planner.chip_hours}
    if hours:
        cost.write_planned(workdir, hours)
    return places


def _saved(workdir: Path, page: Page, running: set[str], event: bool) -> None:
    """Brings sweep.csv up to date after a start or an end, and the page if it is due."""
    if event:
        sweep_folder.write_csv(workdir, sweep_folder.entries(workdir, running))
    page.refresh(running)


def _settled(sweep: Sweep, stage: str, workdir: Path) -> list[Point]:
    """Returns the checked points of a stage."""
    return sweep_folder.settled(_points(sweep, stage, workdir), workdir)


def _points(sweep: Sweep, stage: str, workdir: Path) -> list[Point]:
    before = sweep.before(stage)
    rows = [] if before is None else [e.row(workdir) for e in finished(sweep, before, workdir)]
    return sweep.points(stage, rows)


def _foreseen(sweep: Sweep, stage: str) -> list[Point]:
    """Returns the points that a stage is expected to have, checked.

    Values that would be read from weights are not checked: a later run may make these weights.
    """
    problems = Problems()
    for point in sweep.expected[stage]:
        if not defaults.open_keys(point.config):
            try:
                build.check(point.config)
            except BadInput as e:
                problems.add(point.run, e)
    problems.check()
    return sweep.expected[stage]


def _check_data(points: Sequence[Point], workdir: Path) -> None:
    """Raises BadInput if unfinished runs lack images or labels.

    Raises:
      BadInput: lists everything that is missing.
    """
    reads = {
        (c.data, tuple(c.evals.items()), c.fewshot.sources): c
        for c in (p.config for p in points if not sweep_folder.is_over(workdir / p.run))
    }
    problems = [problem for config in reads.values() for problem in splits.problems(config)]
    if problems:
        raise together(problems)


def finished(sweep: Sweep, stage: str, workdir: Path) -> list[Entry]:
    """Returns the runs of a stage without those that its rule has stopped early.

    Raises:
      BadInput: runs are not finished; the message names all of them.
    """
    begun = (workdir / sweep_folder.RECORD_FILE).exists()
    states = {e.run: e for e in (sweep_folder.entries(workdir, ()) if begun else ())}
    points = _points(sweep, stage, workdir)
    missing = [
        f"{p.run} ({states[p.run].state if p.run in states else 'missing'})"
        for p in points
        if p.run not in states or states[p.run].state not in ("done", "stopped")
    ]
    if missing:
        raise BadInput(
            f"the next stage needs all runs of {stage!r}, but these are not finished: "
            f"{', '.join(missing)}; run --stage={stage} first."
        )
    sweep_folder.settled(points, workdir)  # the runs must be the same as then
    return [states[point.run] for point in points if states[point.run].state == "done"]


@contextlib.contextmanager
def _locked(workdir: Path) -> Iterator[int]:
    """Keeps a second sweep out while this sweep, or a run that it left behind, is at work."""
    with writing(workdir):
        storage.make_folder(workdir)
        file = open(beside(workdir) / LOCK_FILE, "a", encoding="utf-8")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise BadInput(
                f"another sweep, or a run that it left behind, is at work in {workdir}; wait for "
                "it to end."
            ) from e
        except OSError:  # some network file systems cannot lock
            log.info("%s cannot be locked; make sure that no other sweep is at work there", workdir)
        yield file.fileno()
