# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps the last states of a run on the hosts' own disks or memory, for a quick restart.

Each process writes the arrays on its devices to a folder of its host, unless another process there
holds the same. If no other host holds them, it sends its file to a host that keeps a copy. A
restart asks all processes for what their hosts hold, and takes the newest step of which every
process can get its arrays, intact. The workdir keeps its own checkpoints; nothing here is needed to
continue, and a failure here is a warning. `local_folders` defines the layout. Start from `opened`.
"""

import collections
import contextlib
import hashlib
import ipaddress
import json
import logging
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from vit_jax.checkpoints import local_folders, peer_copies, shard_files
from vit_jax.checkpoints.local_folders import RUNS, run_of, step_of, steps
from vit_jax.errors import BadInput, no_space
from vit_jax.runtime import coordination
from vit_jax.runtime.coordinated_stop import SAVE_NEAR, Backstop
from vit_jax.step.state import TrainState
from vit_jax.storage import files as storage

_KEY = "checkpoint.local.path"
_Held = list[dict[str, list[int]]]  # by process: name of a step -> numbers of the files it holds
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def opened(
    path: str,
    workdir: Path,
    abstract: TrainState,
    facts: Mapping[str, str],
    *,
    every: int,
    every_minutes: float,
) -> "Iterator[LocalTier | None]":
    """Yields the local tier of a run; None if it cannot be used. All processes call it.

    Args:
      path: a folder of this host.
      workdir: the existing folder of the run.
      abstract: shapes, dtypes and shardings of the whole state.
      facts: what a state depends on beside its layout: states of other facts are ignored.
      every: steps between saves; 0: never for this reason.
      every_minutes: also saves when the newest state is this old; 0: never.

    Raises:
      BadInput: the run begins, and a folder is not writable.
    """
    run = fresh = ""
    if coordination.is_first() and not (run := run_of(workdir)):
        run = fresh = secrets.token_hex(6)
        local_folders.write_run(workdir, run)
    run, fresh, secret, start = coordination.share(
        "local tier", [run, fresh, secrets.token_hex(16), secrets.token_hex(4)]
    )
    folder, problem = local_folders.folder_of(path, run), ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage.write(folder / f"{jax.process_index()}.lock", "")
        storage.remove(folder / f"{jax.process_index()}.lock")
    except OSError as e:
        full = no_space(e, folder)
        problem = f"{_KEY}={path}: {full or f'cannot write there: {e.strerror}'}"
    problems = coordination.gather("folder of the local tier", problem)
    if any(problems):
        number, problem = next((i, text) for i, text in enumerate(problems) if text)
        where = f" on process {number}" if problems[1:] else ""
        if fresh:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise BadInput(
                f"{problem}{where}. Give a folder on the disk of each host, such as "
                '/dev/shm/NAME, or "" to keep no local tier.'
            )
        log.warning("%s%s; the run goes on without its local tier", problem, where)
        yield None
        return
    layout = shard_files.Layout(abstract.saved())
    text = json.dumps([dict(facts), layout.digest], sort_keys=True)
    identity = hashlib.sha256(text.encode()).hexdigest()[:16]
    backstop = Backstop(every_minutes, kind=SAVE_NEAR)
    with LocalTier(folder, layout, identity, secret, start, every, backstop) as tier:
        yield tier


class LocalTier:
    """The local tier of a run, as one process sees it; see `opened`. All processes call alike."""

    def __init__(
        self,
        folder: Path,
        layout: shard_files.Layout,
        identity: str,
        secret: str,
        start: str,
        every: int,
        backstop: Backstop,
    ):
        self.folder = folder
        self._layout, self._identity, self._secret = layout, identity, secret
        self._start, self._every, self._backstop = start, every, backstop
        self._own = jax.process_index()
        self._kept = ""  # name of the newest step that all processes have written or restored
        self._current = ""  # name of the step that is being written, or was
        self._writing: Future[bool] | None = None
        self._warned = ""
        self._held: _Held = []
        self._background = ThreadPoolExecutor(1, "local tier")
        self._server: peer_copies.Server | None = None
        if not coordination.alone():
            host = _reachable(coordination.address())
            try:
                self._server = peer_copies.Server(folder, host, secret, identity)
            except OSError as e:
                log.warning("no other process reaches the local tier of this one, which cannot "
                            "listen at %s: %s", host, e.strerror or e)  # fmt: skip
        me = [_machine(), str(folder), *(self._server.address if self._server else ("", 0))]
        everyone = _gathered("local tiers", me)
        self._addresses: list[peer_copies.Address] = [tuple(one[2:]) for one in everyone]
        places = [tuple(one[:2]) for one in everyone]
        self._writes = writes(self._own, places, layout)
        self._peer = peer_of(self._own, places, layout)
        self._mention_others()

    def __enter__(self) -> "LocalTier":
        return self

    def __exit__(self, *_: object) -> None:
        self._background.shutdown()
        if self._server:
            self._server.stop()
        with contextlib.suppress(OSError):  # usually it holds states
            self.folder.rmdir()

    def _mention_others(self) -> None:
        others = [p for p in storage.listed(self.folder.parent) if p.name.startswith(RUNS)]
        others.remove(self.folder)
        if others:
            log.info("%s holds local tiers of %d other runs, which are ignored; remove those of "
                     "runs that will not go on", self.folder.parent, len(others))  # fmt: skip

    # ------------------------------------------------------------ restoring

    def newest(self) -> int:
        """Returns the newest step whose files all exist, unread; -1 if there is none."""
        mine, other = dict[str, list[int]](), 0
        for name in steps(self.folder):
            files = [shard_files.described(self.folder / name, p) for p in range(self._count)]
            mine[name] = [p for p, f in enumerate(files) if f.get("identity") == self._identity]
            other += any(f and f["identity"] != self._identity for f in files)
        if other:
            log.warning("%s: ignored %d steps that were saved with another configuration, data, "
                        "mesh or number of processes", self.folder, other)  # fmt: skip
        self._held = _gathered("steps in the local tier", mine)
        return max(map(step_of, filter(self._plan, self._names())), default=-1)

    def restore(self, at_least: int) -> tuple[TrainState, int] | None:
        """Returns the newest intact state and its step; None if none is at `at_least` or later.

        `newest` must have been called. Damaged files are not used: another copy, or an older step.
        """
        for name in self._names():
            if (step := step_of(name)) < at_least:
                break
            content = self._content(name)
            if content is not None:
                self._kept = name
                return TrainState(**self._layout.rebuilt(content)), step
            log.info("step %d of the local tier %s is not whole", step, self.folder)
        return None

    @property
    def _count(self) -> int:
        return jax.process_count()

    def _names(self) -> list[str]:
        """Returns the names of the steps that some process holds, newest first."""
        names = {name for held in self._held for name in held}
        return sorted(names, key=lambda name: (step_of(name), name), reverse=True)

    def _plan(self, name: str) -> list[tuple[int, int]] | None:
        """Returns where each process gets its arrays: (process that has the file, its number).

        Returns None if the arrays of some process are nowhere.
        """
        files = collections.defaultdict[Any, dict[int, int]](dict)  # arrays -> process -> number
        for process, held in enumerate(self._held):
            for number in held.get(name, ()):
                files[self._layout.held(number)].setdefault(process, number)
        plan = []
        for process in range(self._count):
            fitting = files.get(self._layout.held(process))
            if not fitting:
                return None
            # Many that lack their arrays do not all ask the same process.
            holder = process if process in fitting else list(fitting)[process % len(fitting)]
            plan.append((holder, fitting[holder]))
        return plan

    def _content(self, name: str) -> Any:
        """Returns the content of this process's file at a step; None if it cannot be had intact."""
        while plan := self._plan(name):
            served = [i for i, (holder, _) in enumerate(plan) if holder != i]
            if served:
                log.info("step %d of the local tier: other processes serve the arrays of %s",
                         step_of(name), _numbers(served))  # fmt: skip
            holder, number = plan[self._own]
            problem = ""
            if holder != self._own:
                try:
                    peer_copies.fetch(
                        self._addresses[holder], self._secret, self.folder / name, number,
                        self._identity,
                    )  # fmt: skip
                except OSError as e:
                    problem = e.strerror or str(e)
            content = None if problem else shard_files.read(self.folder / name, number)
            if content is None or content.nbytes != self._layout.size(self._own):
                problem = problem or "it has changed"
            if problem:
                log.warning("%s, file %d of process %d: %s; it is not used",
                            self.folder / name, number, holder, problem)  # fmt: skip
            bad = [holder, number] if problem else []
            reports = _gathered(f"step {name} of the local tier", bad)
            wrong = {tuple(one) for one in reports if one}
            if not wrong:
                return content
            for holder, number in wrong:
                self._held[holder][name].remove(number)
        return None

    # ------------------------------------------------------------ saving

    def due(self, step: int) -> bool:
        """Returns True, after a step, if all save now."""
        return self._backstop.due() or (self._every > 0 and step % self._every == 0)

    def save(self, step: int, state: TrainState) -> None:
        """Starts a save; returns once the arrays may be overwritten. Never raises for a disk.

        A process that is still writing the state before makes all skip this one.
        """
        if self._writing is None:
            status = "none"
        elif not self._writing.done():
            status = "busy"
        else:
            status = "written" if self._writing.result() else "failed"
        reports = coordination.gather("last save in the local tier", status)
        self._backstop.saved()
        if "busy" in reports:
            log.info("step %d is not saved in the local tier: %s is still being written",
                     step, self._current)  # fmt: skip
            return
        if set(reports) == {"written"}:
            self._kept = self._current
        self._current = f"{step}-{self._start}"
        arrays = self._layout.copied(state.saved()) if self._writes else []
        keep = {self._kept, self._current}
        self._writing = self._background.submit(self._write, self._current, arrays, keep)

    def _write(self, name: str, arrays: list[Any], keep: set[str]) -> bool:
        """Writes and sends the file of this process; returns True if it is written."""
        for old in set(steps(self.folder)) - keep:
            shutil.rmtree(self.folder / old, ignore_errors=True)
        if not self._writes:
            return True
        folder = self.folder / name
        try:
            shard_files.store(folder, self._own, shard_files.buffers(arrays), self._identity)
        except OSError as e:
            reason = no_space(e, folder) or e.strerror or str(e)
            self._warn(f"step {step_of(name)} is not saved in the local tier: {reason}; training "
                       "goes on, and the workdir keeps its checkpoints")  # fmt: skip
            return False
        arrays.clear()  # the thread still has the list
        if self._peer is not None:
            try:
                peer_copies.send(self._addresses[self._peer], self._secret, folder, self._own)
            except OSError as e:
                self._warn(f"step {step_of(name)} has no copy on process {self._peer}: "
                           f"{e.strerror or e}")  # fmt: skip
        return True

    def _warn(self, text: str) -> None:
        """Logs a warning, but not the same one for each step."""
        kind = re.sub(r"\d+", "", text)
        if kind != self._warned:
            log.warning("%s", text)
        self._warned = kind

    def discard(self) -> None:
        """Removes the local tier of a run that is finished."""
        if self._writing:
            self._writing.result()
        coordination.barrier("end of the local tier")
        shutil.rmtree(self.folder, ignore_errors=True)


def _gathered(name: str, value: Any) -> list[Any]:
    """Returns the JSON values of all processes, by the numbers that jax gives them."""
    values = coordination.gather(name, json.dumps([jax.process_index(), value]))
    return [value for _, value in sorted(map(json.loads, values), key=lambda one: one[0])]


def _machine() -> str:
    """Returns the name of this host and its boot: several hosts may be called localhost."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{socket.gethostname()} {boot}"


def _reachable(own: str) -> str:
    """Returns an address of this host that other hosts reach; all processes call it.

    A process that reaches process 0 over loopback is on its host, and has its address. Process 0
    knows another one if a process of another host is connected.
    """
    first = coordination.share("address of process 0", own)
    return first if ipaddress.ip_address(own.partition("%")[0]).is_loopback else own


def _numbers(processes: list[int]) -> str:
    more = f" and {len(processes) - 3} more" if processes[3:] else ""
    return f"process {', '.join(map(str, processes[:3]))}{more}"


def writes(process: int, places: list[tuple[str, ...]], layout: shard_files.Layout) -> bool:
    """Returns True unless an earlier process of the same place holds the same arrays."""
    earlier = [p for p in range(process) if places[p] == places[process]]
    return all(layout.held(p) != layout.held(process) for p in earlier)


def peer_of(process: int, places: list[tuple[str, ...]], layout: shard_files.Layout) -> int | None:
    """Returns the process that keeps a copy of the arrays of `process`; None if none is needed.

    A process in another place may hold the same arrays anyway, such as one of another slice. Else
    it is the process of equal rank in the next place.

    Args:
      process: a number.
      places: for each process the place, such as a host, whose loss loses all files there.
      layout: the parts that each process holds.
    """
    here, own = places[process], layout.held(process)
    others = [p for p, place in enumerate(places) if place != here]
    if not others or not writes(process, places, layout):
        return None
    if any(layout.held(p) == own for p in others):
        return None
    order = list(dict.fromkeys(places))
    there = order[(order.index(here) + 1) % len(order)]
    members = [p for p, place in enumerate(places) if place == there]
    rank = sum(place == here for place in places[:process])
    return members[rank % len(members)]
