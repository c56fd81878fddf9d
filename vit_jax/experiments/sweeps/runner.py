# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the points of a sweep on this machine, each in its own process, several at a time.

Exit codes of runs follow the contract of all commands (docs/runs.md). A run that died or was
stopped runs again from its checkpoint. A run that failed is given up, and the others go on. Start
from `run`.
"""

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vit_jax.build import run as build
from vit_jax.build import splits
from vit_jax.checkpoints import restart_limit, step_folders
from vit_jax.errors import SAVED, SIGNALS, BadInput, runs_again, together, writing
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps.folder import FAILED_FILE, LOG_FILE, Entry
from vit_jax.experiments.sweeps.points import Point, Problems, Sweep
from vit_jax.runtime import signals
from vit_jax.storage import cache
from vit_jax.storage import files as storage

MOST_CHARACTERS = 2000  # the longest message
POLL_SECS = 0.1
LOCK_FILE = "sweep.lock"
Command = Callable[[Path], list[str]]  # workdir of a run -> the command that starts it
log = logging.getLogger("vit_jax")


def beside(folder: Path) -> Path:
    """Returns the folder itself, or for a folder in a bucket a local one for its lock and log."""
    if not storage.is_remote(folder):
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    local = cache.root() / "sweeps" / name
    local.mkdir(parents=True, exist_ok=True)
    return local


def train_command(folder: Path) -> list[str]:
    """Returns the words of `vit_jax train` in this interpreter, for a workdir with config.yaml."""
    config = folder / step_folders.CONFIG_FILE
    return [sys.executable, "-m", "vit_jax", "train", f"--config={config}", f"--workdir={folder}"]


class Stopped(RuntimeError):
    """The end of a sweep by a signal or a file STOP; the same command continues the sweep."""

    def __init__(self, why: str):
        super().__init__(f"stopped by {why}; run again to continue.")
        self.exit_code = SAVED


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
      parallel: number of runs at a time.
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
    if not all(sweep_folder.is_done(workdir / p.run) for p in points):
        points += [p for name in wanted if name not in ready for p in _foreseen(sweep, name)]
    _check_data(points, workdir)
    with _locked(workdir) as lock, _stops(stop_file) as stops:
        stop_file.remove_old()
        for name in wanted:
            if name not in ready:
                ready[name] = _settled(sweep, name, workdir)
                _check_data(ready[name], workdir)
            sweep_folder.write(sweep, name, ready[name], workdir)
            failed = _Stage(ready[name], workdir, parallel, command, lock).run(stops)
            if failed:
                break
    return sweep_folder.entries(workdir, running=())


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
        config = point.config
        if config.model.variant != "auto" and config.data.image_size:
            try:
                build.check(config)
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
        for c in (p.config for p in points if not sweep_folder.is_done(workdir / p.run))
    }
    problems = [problem for config in reads.values() for problem in splits.problems(config)]
    if problems:
        raise together(problems)


def finished(sweep: Sweep, stage: str, workdir: Path) -> list[Entry]:
    """Returns all runs of a stage.

    Raises:
      BadInput: runs are not finished; the message names all of them.
    """
    begun = (workdir / sweep_folder.RECORD_FILE).exists()
    states = {e.run: e for e in (sweep_folder.entries(workdir, ()) if begun else ())}
    points = _points(sweep, stage, workdir)
    missing = [
        f"{p.run} ({states[p.run].state if p.run in states else 'missing'})"
        for p in points
        if p.run not in states or states[p.run].state != "done"
    ]
    if missing:
        raise BadInput(
            f"the next stage needs all runs of {stage!r}, but these are not finished: "
            f"{', '.join(missing)}; run --stage={stage} first."
        )
    sweep_folder.settled(points, workdir)  # the runs must be the same as then
    return [states[point.run] for point in points]


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


# ---------------------------------------------------------------- processes


@dataclasses.dataclass
class _Stops:
    """The requests to stop so far.

    Attributes:
      numbers: signal numbers; SIGTERM stands for the file STOP.
      file: True once the file STOP was seen.
    """

    numbers: list[int]
    file: bool = False

    def check(self) -> None:
        """Raises Stopped if there was a request to stop."""
        if self.numbers:
            raise Stopped(signals.FILE if self.file else signal.Signals(self.numbers[0]).name)


@contextlib.contextmanager
def _stops(stop_file: signals.StopFile) -> Iterator[_Stops]:
    """Collects signals, and a file STOP that appears in the sweep's folder after the start."""
    with signals.collected() as numbers:
        stops = _Stops(numbers)

        def request() -> None:
            stops.file = True
            numbers.append(signal.SIGTERM)

        with stop_file.watched(request):
            yield stops


@dataclasses.dataclass
class _Job:
    """A run that is not finished, and how often it was started since its last checkpoint."""

    point: Point
    folder: Path
    newest: int  # step of the newest checkpoint
    restarts: int = 0


@dataclasses.dataclass
class _Active:
    """A run with its process."""

    job: _Job
    process: subprocess.Popen[bytes]
    log_start: int  # length of its log before this process, in bytes


class _Stage:
    """The runs of one stage: waiting ones and active ones."""

    def __init__(
        self, points: Sequence[Point], workdir: Path, parallel: int, command: Command, lock: int
    ):
        self.points, self.workdir = points, workdir
        self.parallel, self.command, self.lock = parallel, command, lock
        jobs = [_Job(p, workdir / p.run, step_folders.newest(workdir / p.run)) for p in points]
        self.waiting = collections.deque(j for j in jobs if not sweep_folder.is_done(j.folder))
        self.active: list[_Active] = []
        self.done, self.failed = len(jobs) - len(self.waiting), 0
        for job in self.waiting:  # a run that failed is tried again
            storage.remove(job.folder / FAILED_FILE)
            storage.remove(job.folder / restart_limit.FILE)

    def run(self, stops: _Stops) -> int:
        """Runs until all runs are done or given up; returns how many were given up."""
        self.save()
        forwarded, received = 0, stops.numbers
        try:
            while self.active or (self.waiting and not received):
                while self.waiting and len(self.active) < self.parallel and not received:
                    self.start(self.waiting.popleft())
                    self.save()
                for number in received[forwarded:]:
                    self.forward(number, again=forwarded > 0)
                    forwarded += 1
                for one in [a for a in self.active if a.process.poll() is not None]:
                    self.active.remove(one)
                    self.ended(one, stopping=bool(received))
                    self.save()
                time.sleep(POLL_SECS)
            stops.check()
        finally:
            for one in self.active:  # not empty only if this process fails
                one.process.kill()
                one.process.wait()
        return self.failed

    def save(self) -> None:
        running = {one.job.point.run for one in self.active}
        sweep_folder.write_csv(self.workdir, sweep_folder.entries(self.workdir, running))

    def start(self, job: _Job) -> None:
        words = self.command(job.folder)
        file = beside(job.folder) / LOG_FILE
        with open(file, "ab") as output:
            output.write(f"$ {' '.join(words)}\n".encode())
            output.flush()
            log_start = output.tell()  # later, `tell` moves with the output of the process
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(self.lock,),  # held until the last run has ended
                process_group=0,  # a terminal's Ctrl-C reaches only this process, which forwards it
            )
            self.active.append(_Active(job, process, log_start))
        since = f", from step {job.newest}" if job.newest >= 0 else ""
        log.info("%s runs%s; its log is %s", job.point.run, since, file)

    def forward(self, number: int, *, again: bool) -> None:
        """Forwards a signal to all runs; a second signal kills the runs that have not ended."""
        name = signal.Signals(number).name
        log.info("%s: %s %d runs", name, "killing" if again else "ending", len(self.active))
        for one in self.active:
            one.process.kill() if again else one.process.send_signal(number)

    def ended(self, one: _Active, *, stopping: bool) -> None:
        """Counts a run whose process has ended as done, lets it wait again, or gives it up."""
        job, code = one.job, one.process.returncode
        file = beside(job.folder) / LOG_FILE
        if storage.is_remote(job.folder):
            storage.write(job.folder / LOG_FILE, file.read_bytes())
        newest = step_folders.newest(job.folder)
        if newest > job.newest:
            job.newest, job.restarts = newest, 0
        if sweep_folder.is_done(job.folder):
            self.done += 1
            log.info("%s is done: %d of %d", job.point.run, self.done, len(self.points))
        elif stopping:
            log.info("%s was stopped; it continues when the sweep is run again", job.point.run)
        elif runs_again(code) and job.restarts < restart_limit.MOST:
            job.restarts += 1
            since = f"from step {newest}" if newest >= 0 else "from the beginning"
            log.info("%s %s; again %s", job.point.run, _how(code), since)
            self.waiting.appendleft(job)
        else:
            message = f"{_how(code)}: {last_message(file, one.log_start)}"
            if runs_again(code):
                message = f"{restart_limit.MOST} restarts without a new checkpoint; {message}"
            sweep_folder.fail(self.workdir, job.point.run, code, message)
            self.failed += 1
            log.info("%s failed: %s", job.point.run, message)


def _how(code: int) -> str:
    number = -code if code < 0 else code - SIGNALS
    if runs_again(code) and number in {int(s) for s in signal.Signals}:
        return f"was ended by {signal.Signals(number).name}"
    return f"ended with code {code}"


def last_message(file: Path, start: int = 0) -> str:
    """Returns a command's last message: the text after the last `vit_jax: `, or its last line."""
    with open(file, "rb") as lines:
        lines.seek(start)
        text = "\n" + lines.read().decode(errors="replace").strip()
    _, mark, message = text.rpartition("\nvit_jax: ")
    message = message if mark else text.splitlines()[-1]
    return message[:MOST_CHARACTERS].strip() or "it printed nothing"
