# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A run of two processes that is struck in every start, and ends as if nothing had happened.

    pytest -m chaos -n 0 -s

A round is one start, which ends by one fault at a random moment. What starts the run again follows
the exit codes alone, as a launcher does. From the environment: VIT_JAX_CHAOS_ROUNDS (50),
VIT_JAX_CHAOS_SEED (of which round gets what; another one each time), VIT_JAX_CHAOS_RECORD (a JSON
file of what happened, which docs/experiments.md tabulates). Start from the test.
"""

import collections
import dataclasses
import json
import os
import random
import re
import signal
import statistics
import time
from pathlib import Path

import pytest
from interrupted_runs import OPTIONS, assert_equal
from test_processes import launch
from test_train import logged

from vit_jax.checkpoints.step_folders import committed

FAULTS = ("kill", "signal", "damage", "slow disk")
MOMENTS = ("start", "steps", "save")
AGAIN = {42, 43, 134, 137, 128 + signal.SIGTERM}
LONGEST_SECS = 1800  # of a start without a fault
ROUND_STEPS = 16  # of the whole length, for each round
BARREN = 3  # rounds without a new checkpoint, after which there must be one: a run gives up at 5
RUN = (
    *OPTIONS["accumulation"], *OPTIONS["ema"], *OPTIONS["mixup"],
    "--config.batch_size=8",
    "--config.checkpoint.every=10 steps",
    "--config.checkpoint.keep_last=3",
    "--config.report.page=false",
    "--config.checkpoint.keep_best=",
    "--config.evals.val.every=25 steps",
    "--config.evals.val.batch_size=64",
)  # fmt: skip
SLOW_DISK = {
    "PYTHONPATH": os.pathsep.join(
        [str(Path(__file__).with_name("slow_disk")), os.environ.get("PYTHONPATH", "")]
    )
}


@dataclasses.dataclass
class Round:
    """The events of one start."""

    fault: str
    moment: str = ""  # that was waited for
    phase: str = ""  # that the run was in
    detail: str = ""
    codes: list[int] = dataclasses.field(default_factory=list)
    secs_until_gone: float = 0.0
    resumed_at: int | None = None  # None: gone before
    steps_lost: int = 0


class Start:
    """Two processes that train in `workdir`.

    Args:
      patience_secs: for them to start, for one to wait for the other.
    """

    def __init__(self, workdir: Path, length: int, patience_secs: float, *, slow: bool = False):
        more = (
            f"--config.length={length} steps",
            f"--config.processes.connect_secs={patience_secs:.0f}",
        )
        each = dict.fromkeys(range(2), [SLOW_DISK] if slow else [])
        self.workdir = workdir
        self.children = launch(2, workdir, *RUN, *more, devices=2, each=each)

    def said(self, index: int = 0) -> str:
        """Returns what a process has printed so far."""
        return Path(f"{self.workdir}.log.{index}").read_text()

    @property
    def alive(self) -> bool:
        return all(child.poll() is None for child in self.children)

    @property
    def resumed_at(self) -> int | None:
        """Where the run has begun; None if it has not yet."""
        if "compiling the step" not in self.said():
            return None
        found = re.search(r"start: resuming \S+ at step (\d+)", self.said())
        return int(found[1]) if found else 0

    @property
    def newest(self) -> int:
        """The last step that was logged, now or by an earlier start."""
        return max((step for step, _ in logged(self.workdir)), default=0)

    @property
    def saving(self) -> bool:
        return any(self.workdir.glob("checkpoints/*tmp*"))

    @property
    def phase(self) -> str:
        """Where the run is, as its log and its files show."""
        if "processes: 2" not in self.said():
            return "connecting"
        if "start: " not in self.said():
            return "building"
        if self.resumed_at is None:
            return "restoring"
        if self.newest == self.resumed_at:
            return "compiling"
        return "saving" if self.saving else "training"

    def until(self, condition) -> bool:
        """Waits for something; False if the run ended before."""
        end = time.monotonic() + LONGEST_SECS
        while self.alive:
            if condition():
                return True
            assert time.monotonic() < end, f"stuck: {self.said()}"
            time.sleep(0.05)
        return False

    def reach(self, moment: str, chance: random.Random, start_secs: float) -> bool:
        """Waits for a moment to strike; False if the run ended before."""
        if moment == "start":
            end = time.monotonic() + chance.uniform(0, start_secs)
            return self.until(lambda: time.monotonic() > end)
        steps = chance.randint(1, 2 * ROUND_STEPS)
        if not self.until(lambda: self.resumed_at is not None):
            return False
        first = self.resumed_at or 0
        if moment == "steps":
            return self.until(lambda: self.newest >= first + steps)
        if not self.until(lambda: newest_checkpoint(self.workdir) > first):
            return False
        saving = self.until(lambda: self.saving)
        time.sleep(chance.uniform(0, 0.1))
        return saving

    def gone(self, secs: float) -> tuple[list[int], float]:
        """(exit codes as a shell shows them, seconds until the last has ended)."""
        begin = time.monotonic()
        try:
            while any(child.poll() is None for child in self.children):
                assert time.monotonic() - begin < secs, f"hangs: {self.said(0)}\n{self.said(1)}"
                time.sleep(0.01)
        finally:
            for child in self.children:
                child.kill()
                child.wait()
                child.log.close()
        codes = [c.returncode if c.returncode >= 0 else 128 - c.returncode for c in self.children]
        return codes, round(time.monotonic() - begin, 1)


def newest_checkpoint(workdir: Path) -> int:
    return max(committed(workdir), default=0)


def strike(start: Start, now: Round, chance: random.Random) -> None:
    """Does what a fault is, but for damage, which comes when the processes are gone."""
    number, victims = signal.SIGKILL, chance.choice([[0], [1], [0, 1]])
    if now.fault == "signal":
        number, victims = signal.SIGTERM, [chance.randrange(2)]
    if now.fault == "slow disk":
        number = chance.choice([signal.SIGTERM, signal.SIGKILL])
        start.children[0].send_signal(signal.SIGSTOP)  # a disk that does not answer for a while
        time.sleep(chance.uniform(0, 2))
        start.children[0].send_signal(signal.SIGCONT)
    now.detail = f"{number.name} to {victims}"
    for victim in victims:
        start.children[victim].send_signal(number)


def damage(workdir: Path, chance: random.Random) -> str:
    """Spoils one file of the newest checkpoint; says which, and how."""
    step = workdir / "checkpoints" / str(newest_checkpoint(workdir))
    path = chance.choice(sorted(p for p in step.rglob("*") if p.is_file()))
    content = bytearray(path.read_bytes())
    how = chance.choice(["flip", "truncate", "zero", "delete"]) if content else "delete"
    if how == "flip":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    elif how == "truncate":
        path.write_bytes(content[: chance.randrange(len(content))])
    elif how == "zero":
        path.write_bytes(bytes(len(content)))
    else:
        path.unlink()
    return f"{how} {path.relative_to(step.parent)}"


def judge(now: Round, start: Start) -> None:
    """Says if a start ended as it may."""
    told = f"{now}\n{start.said(0)}\n{start.said(1)}"
    assert set(now.codes) <= AGAIN | {0}, told
    if "SIGTERM" in now.detail and now.resumed_at is not None and 0 not in now.codes:
        assert now.codes == [42, 42], told
        assert newest_checkpoint(start.workdir) >= start.newest, told


def summary(rounds: list[Round]) -> str:
    """The table of docs/experiments.md."""
    lines = ["| fault | rounds | exit codes | until gone, median s | steps lost, median, most |"]
    lines += ["|---|---|---|---|---|"]
    for fault in FAULTS:
        found = [r for r in rounds if r.fault == fault]
        if found:
            codes = collections.Counter(" ".join(map(str, sorted(r.codes))) for r in found)
            lost = [r.steps_lost for r in found]
            lines.append(
                f"| {fault} | {len(found)} | {', '.join(f'{c} ({n})' for c, n in codes.items())} | "
                f"{statistics.median(r.secs_until_gone for r in found):.1f} | "
                f"{statistics.median(lost):g}, {max(lost)} |"
            )
    phases = collections.Counter(r.phase for r in rounds)
    return "\n".join([*lines, "", f"phases: {dict(phases)}"])


@dataclasses.dataclass
class Run:
    """One run, through all its starts."""

    workdir: Path
    quiet: Path
    length: int
    start_secs: float  # until the first step of a start, without a fault
    kept: int = 0  # its newest checkpoint when the last start had ended, before any damage
    damaged: Round | None = None  # its newest checkpoint, by this round, and not restored since
    barren: int = 0  # starts since its last new checkpoint

    def round(self, chance: random.Random) -> Round | None:
        """Starts the run and strikes it; None if it was done before."""
        spare = len(committed(self.workdir)) > 1 and not self.damaged
        now = Round(chance.choice([f for f in FAULTS if f != "damage" or spare]))
        now.moment = chance.choice(MOMENTS) if self.barren < BARREN else "save"
        slow = now.fault == "slow disk"
        start = Start(self.workdir, self.length, self.start_secs + 20, slow=slow)
        try:
            struck = start.reach(now.moment, chance, self.start_secs)
            if struck:
                now.phase = start.phase
                strike(start, now, chance)
        finally:
            now.codes, now.secs_until_gone = start.gone(2 * self.start_secs + 90)
        if not struck and now.codes == [0, 0]:
            return None
        now.resumed_at = start.resumed_at
        assert struck, f"ended without a fault: {now}\n{start.said(0)}\n{start.said(1)}"
        judge(now, start)
        assert logged(self.workdir).items() <= logged(self.quiet).items()
        self._account(now, start)
        if now.fault == "damage":
            now.detail += f", then {damage(self.workdir, chance)}"
        return now

    def _account(self, now: Round, start: Start) -> None:
        """Whose fault it is that steps are done again."""
        self.barren += 1
        if now.resumed_at is not None:
            if now.resumed_at != self.kept:
                assert self.damaged, f"step {self.kept} is not damaged: {start.said()}"
                self.damaged.steps_lost += self.kept - now.resumed_at
            self.damaged, self.kept = None, newest_checkpoint(self.workdir)
            now.steps_lost = start.newest - self.kept
            self.barren = 0 if self.kept > now.resumed_at else self.barren
        self.damaged = now if now.fault == "damage" else self.damaged

    def finish(self) -> None:
        """Starts it until it is done, without faults; it must be the quiet one."""
        codes = []
        while codes != [0, 0]:
            start = Start(self.workdir, self.length, self.start_secs + 20)
            codes, _ = start.gone(LONGEST_SECS)
            assert set(codes) <= AGAIN | {0}, f"{codes}\n{start.said(0)}\n{start.said(1)}"
        assert_equal(self.workdir, self.quiet)
        results = [(w / "results.json").read_text() for w in (self.workdir, self.quiet)]
        assert results[0] == results[1]


@pytest.mark.chaos
@pytest.mark.timeout(6 * 3600)
def test_whatever_strikes_a_run_it_ends_as_the_quiet_one(tmp_path):
    count = int(os.environ.get("VIT_JAX_CHAOS_ROUNDS", "50"))
    seed = int(os.environ.get("VIT_JAX_CHAOS_SEED") or time.time())
    print(f"VIT_JAX_CHAOS_SEED={seed}", flush=True)
    quiet, length, rounds = tmp_path / "quiet", ROUND_STEPS * count, []
    begin, start = time.monotonic(), Start(quiet, length, 600)
    assert start.until(lambda: start.newest), start.said()
    start_secs = time.monotonic() - begin
    assert start.gone(LONGEST_SECS)[0] == [0, 0], start.said()
    print(f"a start takes {start_secs:.0f} s", flush=True)

    run = Run(tmp_path / "run", quiet, length, start_secs)
    try:
        while len(rounds) < count:
            now = run.round(random.Random(f"{seed}/{len(rounds)}"))
            if now is None:  # the run was quicker than its faults: another one
                run.finish()
                run = Run(tmp_path / f"run{len(rounds)}", quiet, length, start_secs)
            else:
                rounds.append(now)
                print(len(rounds), now, flush=True)
        run.finish()
    finally:
        print(summary(rounds), flush=True)
        if os.environ.get("VIT_JAX_CHAOS_RECORD"):
            record = {"seed": seed, "rounds": [dataclasses.asdict(r) for r in rounds]}
            text = json.dumps(record, indent=1) + "\n"
            Path(os.environ["VIT_JAX_CHAOS_RECORD"]).write_text(text)
