# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs points side by side, each in its own process, until they are done or have reached a rung.

Exit codes of runs follow the contract of all commands (docs/runs.md). A run that died or was
stopped runs again from its checkpoint. A run that failed is given up, and the others go on. Start
from `Stage`.
"""

import collections
import contextlib
import dataclasses
import hashlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vit_jax.checkpoints import restart_limit, step_folders
from vit_jax.errors import SAVED, SIGNALS, runs_again
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps.folder import FAILED_FILE, LOG_FILE
from vit_jax.experiments.sweeps.places import Place, Places
from vit_jax.experiments.sweeps.points import Point
from vit_jax.runtime import signals
from vit_jax.storage import cache
from vit_jax.storage import files as storage

MOST_CHARACTERS = 2000  # the longest message
POLL_SECS = 0.1
LOOK_SECS = 1.0  # interval of looks at the metrics of runs that end at a rung
_REMOTE = 30  # times the interval in a bucket, where each row is an object
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


class Stopped(RuntimeError):
    """The end of a sweep by a signal or a file STOP; the same command continues the sweep."""

    def __init__(self, why: str):
        super().__init__(f"stopped by {why}; run again to continue.")
        self.exit_code = SAVED


@dataclasses.dataclass
class Stops:
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
def stops(stop_file: signals.StopFile) -> Iterator[Stops]:
    """Collects signals, and a file STOP that appears in the sweep's folder after the start."""
    with signals.collected() as numbers:
        requests = Stops(numbers)

        def request() -> None:
            requests.file = True
            numbers.append(signal.SIGTERM)

        with stop_file.watched(request):
            yield requests


@dataclasses.dataclass
class _Job:
    """A run that is not finished, and how often it was started since its last checkpoint."""

    point: Point
    folder: Path
    newest: int  # step of the newest checkpoint
    restarts: int = 0


@dataclasses.dataclass
class _Active:
    """A run with its process.

    Attributes:
      job: the run.
      process: its process.
      place: the place that it takes until it ends.
      log_start: length of its log before this process, in bytes.
      paused: True once it was asked to end because it has reached the rung.
    """

    job: _Job
    process: subprocess.Popen[bytes]
    place: Place
    log_start: int
    paused: bool = False


class Stage:
    """Runs of one stage: waiting ones and active ones.

    Args:
      points: the runs.
      workdir: the folder of the sweep.
      places: where they run.
      command: returns the command that starts a run.
      lock: descriptor of the lock that every process holds.
      saved: called with the names of the active runs, and True after a start or an end.
      reached: workdir of a run -> True if the run has reached the rung at which it ends; None if
        all runs go to their end.
    """

    def __init__(
        self,
        points: Sequence[Point],
        workdir: Path,
        *,
        places: Places,
        command: Command,
        lock: int,
        saved: Callable[[set[str], bool], None],
        reached: Callable[[Path], bool] | None = None,
    ):
        self.points, self.workdir, self.places = points, workdir, places
        self.command, self.lock, self.saved, self.reached = command, lock, saved, reached
        jobs = [_Job(p, workdir / p.run, step_folders.newest(workdir / p.run)) for p in points]
        self.waiting = collections.deque(j for j in jobs if not self.is_over(j.folder))
        self.active: list[_Active] = []
        self.done, self.failed = len(jobs) - len(self.waiting), 0
        self.looked = 0.0
        for job in self.waiting:  # a run that failed is tried again
            storage.remove(job.folder / FAILED_FILE)
            storage.remove(job.folder / restart_limit.FILE)

    def run(self, stops: Stops) -> int:
        """Runs until all runs are over or given up; returns how many were given up.

        Raises:
          Stopped: there was a request to stop; the processes have ended.
        """
        self.save()
        forwarded, received = 0, stops.numbers
        try:
            while self.active or (self.waiting and not received):
                while self.waiting and not received and (place := self.free()):
                    self.start(self.waiting.popleft(), place)
                    self.save()
                for number in received[forwarded:]:
                    self.forward(number, again=forwarded > 0)
                    forwarded += 1
                for one in [a for a in self.active if a.process.poll() is not None]:
                    self.active.remove(one)
                    self.ended(one, stopping=bool(received))
                    self.save()
                self.look()
                time.sleep(POLL_SECS)
            stops.check()
        finally:
            for one in self.active:  # not empty only if this process fails
                one.process.kill()
                one.process.wait()
        return self.failed

    def is_over(self, folder: Path) -> bool:
        """Returns True if a run is done, or has reached the rung."""
        return sweep_folder.is_done(folder) or bool(self.reached and self.reached(folder))

    def free(self) -> Place | None:
        """Returns a place without a run; None if all are taken."""
        taken = [one.place for one in self.active]
        return next((place for place in self.places.now() if place not in taken), None)

    def save(self, *, event: bool = True) -> None:
        """Brings the files of the sweep up to date."""
        self.saved({one.job.point.run for one in self.active}, event)

    def look(self) -> None:
        """Ends the runs that have reached the rung, and saves; does so now and then."""
        pause = LOOK_SECS * (_REMOTE if storage.is_remote(self.workdir) else 1)
        if time.monotonic() - self.looked < pause:
            return
        for one in self.active:
            if self.reached and not one.paused and self.reached(one.job.folder):
                one.paused = True
                if not sweep_folder.is_done(one.job.folder):
                    one.process.send_signal(signal.SIGTERM)
        self.save(event=False)
        self.looked = time.monotonic()

    def start(self, job: _Job, place: Place) -> None:
        """Starts the process of a run."""
        words = self.command(job.folder)
        file = beside(job.folder) / LOG_FILE
        given = "".join(f"{name}={value} " for name, value in place.environment.items())
        with open(file, "ab") as output:
            output.write(f"$ {given}{' '.join(words)}\n".encode())
            output.flush()
            log_start = output.tell()  # later, `tell` moves with the output of the process
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **place.environment},
                pass_fds=(self.lock,),  # held until the last run has ended
                process_group=0,  # a terminal's Ctrl-C reaches only this process, which forwards it
            )
            self.active.append(_Active(job, process, place, log_start))
        since = f", from step {job.newest}" if job.newest >= 0 else ""
        where = f" on {place.name}" if place.name else ""
        log.info("%s runs%s%s; its log is %s", job.point.run, where, since, file)

    def forward(self, number: int, *, again: bool) -> None:
        """Forwards a signal to all runs; a second signal kills the runs that have not ended."""
        name = signal.Signals(number).name
        log.info("%s: %s %d runs", name, "killing" if again else "ending", len(self.active))
        for one in self.active:
            if again:
                one.process.kill()
            elif not one.paused:  # a second request would end it without saving
                one.process.send_signal(number)

    def ended(self, one: _Active, *, stopping: bool) -> None:
        """Counts a run whose process has ended as over, lets it wait again, or gives it up."""
        job, code = one.job, one.process.returncode
        file = beside(job.folder) / LOG_FILE
        if storage.is_remote(job.folder):
            storage.write(job.folder / LOG_FILE, file.read_bytes())
        newest = step_folders.newest(job.folder)
        if newest > job.newest:
            job.newest, job.restarts = newest, 0
        if self.is_over(job.folder):
            self.done += 1
            how = "is done" if sweep_folder.is_done(job.folder) else "has reached the rung"
            log.info("%s %s: %d of %d", job.point.run, how, self.done, len(self.points))
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
