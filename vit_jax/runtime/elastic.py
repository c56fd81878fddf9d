# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lets a run go on with the slices that are there, and with all of them when the others return.

A slice is a group of processes that hold a whole copy of the state. The processes meet in a folder
of the workdir, because any of them may be missing, process 0 too. Each keeps rewriting its own
file. The first process of the slices that train leads: its file names the members and the address
of the rendezvous, and it goes on rewriting the file as long as the run lasts. A process that
returns sees this and waits; the leader sees the process, and stops the run, which saves and starts
again with more slices. Clocks of two hosts are never compared: a file counts while it changes.

Two groups may form if the storage shows files late; the lock of the workdir lets only one of them
train. This module must not import jax. Start from `joined`.
"""

import contextlib
import dataclasses
import json
import logging
import math
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.errors import BadInput, PeerLost, writing
from vit_jax.runtime import coordinated_stop, goodput, process_exit, recovery, rendezvous
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.storage import files as storage

FOLDER = "present"  # of the workdir
BEAT_SECS = 2.0  # interval at which a process rewrites its file and reads the others
GONE_SECS = 20.0  # a process is not there after this time without a change
STARTS = 2  # times that a process could have started again, before it is left out
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Group:
    """The processes that train now.

    Attributes:
      who: this process among them; None if it trains alone.
      slices: the number of slices that train.
      whole: the number of slices of the run.
    """

    who: ProcessIdentity | None
    slices: int
    whole: int

    def fitted(self, config: sections.Config, devices: int) -> sections.Config:
        """Returns the configuration for these slices: their global batch is that of all slices.

        Args:
          config: the configuration of the run, for all slices.
          devices: the number of devices of these slices.

        Raises:
          BadInput: a slice does not hold a whole copy of the state.
        """
        mesh, each = config.mesh, devices // self.slices
        if each % (mesh.fsdp * mesh.tensor) or mesh.replica not in (0, 1, self.whole):
            raise BadInput(
                f"elastic.secs={config.elastic.secs} needs a whole copy of the state on the {each} "
                f"devices of each of the {self.whole} slices, but the mesh has {mesh.replica=}, "
                f"{mesh.fsdp=} and {mesh.tensor=}; give sizes that fit into a slice, a smaller "
                "elastic.slices, or elastic.secs=0."
            )
        changes = {"accumulation": config.accumulation * self.whole // self.slices}
        if mesh.replica == self.whole:
            changes["mesh.replica"] = self.slices
        return config_lib.changed(config, changes)

    def note(self, config: sections.Config) -> None:
        """Records the number of slices that train, in the log and as a row of goodput.jsonl."""
        told = {"slices": self.slices, "of": self.whole, "accumulation": config.accumulation}
        goodput.event("slices", **told)
        log.info("training on %(slices)d of %(of)d slices, accumulation=%(accumulation)d", told)


@contextlib.contextmanager
def joined(
    workdir: Path, who: ProcessIdentity | Literal["tpu"], settings: sections.Elastic, results: Path
) -> Iterator[Group]:
    """Waits until enough slices are there, and yields those that train while the block runs.

    If the run is finished, a process of a slice that is not whole does not wait, and goes on alone.

    Args:
      workdir: the folder of the run, on storage that all processes share.
      who: this process among all processes of the run.
      settings: the section `elastic` of the configuration, with `secs`.
      results: a file that the run has once it is finished.

    Raises:
      BadInput: the processes cannot be split into slices, or differ in their number.
      Stopped: the run was asked to stop.
    """
    if who == "tpu":
        raise BadInput(
            "elastic.secs is for GPUs and CPUs: on a TPU the environment of the machines tells the "
            "number of slices. Leave it out."
        )
    slices = settings.slices or who.count
    if who.count % slices:
        raise BadInput(
            f"elastic.slices={slices} does not divide the {who.count} processes; give a number "
            "that does, or 0: each process is a slice."
        )
    meeting = _Meeting(workdir / FOLDER, who, slices)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process_exit.before_exit(meeting.leave))
        stack.callback(meeting.leave)
        start = time.time() - recovery.began(coordinated_stop.began())  # seconds until here
        members, coordinator = meeting.wait(max(settings.secs, STARTS * start), results)
        recovery.passed("waiting")
        if members[0] == who.index:
            stack.enter_context(meeting.going_on())
        else:
            meeting.leave()
        origin = f"{who.origin}, process {who.index} of {who.count}"
        now = dataclasses.replace(
            who, coordinator=coordinator, count=len(members), index=members.index(who.index),
            origin=origin, hosts=(),
        )  # fmt: skip
        yield Group(now if now.count > 1 else None, len(members) * slices // who.count, slices)


def members_of(present: Sequence[int], count: int, slices: int) -> list[int]:
    """Returns the processes that train: those of the first slices that are whole.

    The number of slices divides that of all, so that batches and micro-batches stay divisible.

    Args:
      present: numbers of the processes that are there.
      count: number of processes of the run.
      slices: number of slices of the run.
    """
    size = count // slices
    by_slice = [range(s * size, (s + 1) * size) for s in range(slices)]
    whole = [numbers for numbers in by_slice if set(numbers) <= set(present)]
    most = max((n for n in range(1, len(whole) + 1) if slices % n == 0), default=0)
    return [number for numbers in whole[:most] for number in numbers]


class _Meeting:
    """The folder in which processes meet, as one process sees it."""

    def __init__(self, folder: Path, who: ProcessIdentity, slices: int):
        self._folder, self._who, self._slices = folder, who, slices
        self._file, self._token, self._beat = folder / f"{who.index}.json", uuid.uuid4().hex, 0
        self._members, self._coordinator = list[int](), ""
        self._tokens: dict[str, str] = {}  # of the members, if this process leads
        self._seen: dict[int, tuple[bytes, float]] = {}  # number -> file, time of its last change
        self._made = list[Path]()  # folders that this process has made
        self._looked = False

    def wait(self, secs: float, results: Path) -> tuple[list[int], str]:
        """Returns the members of the group of this process, and the address of process 0 of it.

        Only the first look into the folder may fail; later, storage may not answer for a while.
        """
        me, count, quiet_secs = self._who.index, self._who.count, 0.0  # without a change
        known, told = list[int](), False
        with writing(self._folder):
            others = self._exchanged()
        while True:
            coordinated_stop.check()
            groups = [one for one in others.values() if one["members"]]
            for one in groups:
                if one["members"].get(str(me)) == self._token:
                    return sorted(map(int, one["members"])), one["coordinator"]
            waiting = sorted([me, *(i for i, one in others.items() if not one["members"])])
            if groups or waiting != known:
                if not groups and len(waiting) < count:
                    log.info("%d of %d processes are there; waiting for more", len(waiting), count)
                known, quiet_secs = waiting, 0.0
            if groups and not told:
                told = True
                log.info("the run goes on without process %d; waiting until it starts again", me)
            late = quiet_secs >= secs
            members = members_of(waiting, count, self._slices)
            if members[:1] == [me] and (late or len(waiting) == count):
                return self._lead(members, others)
            if late and not members and results.exists():
                return [me], ""
            time.sleep(BEAT_SECS)
            quiet_secs += BEAT_SECS  # not by a clock: a call to storage may take a minute
            try:
                others = self._exchanged()
            except (OSError, PeerLost) as e:
                log.warning("cannot look into %s: %s", self._folder, e)
                quiet_secs = 0.0

    def _lead(
        self, members: list[int], others: Mapping[int, dict[str, Any]]
    ) -> tuple[list[int], str]:
        address = rendezvous.free_address()
        if self._who.loopback:
            address = f"127.0.0.1:{address.rpartition(':')[2]}"
        tokens = {i: self._token if i == self._who.index else others[i]["token"] for i in members}
        self._tokens, self._coordinator = {str(i): t for i, t in tokens.items()}, address
        self._members = members
        with writing(self._folder):
            self._write()
        return members, address

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Shows that the run goes on, and stops it when more slices can train."""
        ended = threading.Event()
        thread = threading.Thread(target=self._lead_on, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(BEAT_SECS)  # it may wait for storage

    def _lead_on(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECS):
            try:
                number = self.look()
            except (OSError, PeerLost, BadInput) as e:
                log.warning("cannot look into %s: %s", self._folder, e)
                continue
            if number is not None:
                coordinated_stop.request(f"return of process {number} seen")
                break
        while not ended.wait(BEAT_SECS):  # those that returned wait for the end
            with contextlib.suppress(OSError, PeerLost):
                self._write()

    def look(self) -> int | None:
        """Shows that the run goes on; returns a process that returned, if more slices can train."""
        back = self._exchanged().keys() - set(self._members)
        more = members_of([*self._members, *back], self._who.count, self._slices)
        return min(set(more) & back) if len(more) > len(self._members) else None

    def leave(self) -> None:
        """Removes the file of this process; others need not wait until it counts as gone."""
        with contextlib.suppress(OSError, PeerLost):
            storage.remove(self._file)
            for folder in [] if storage.is_remote(self._folder) else [self._folder, *self._made]:
                folder.rmdir()  # fails while it holds anything

    def _exchanged(self) -> dict[int, dict[str, Any]]:
        """Shows that this process is there, and returns the others that are, see `_present`."""
        self._write()
        return self._present()

    def _write(self) -> None:
        self._beat += 1
        told = {
            "token": self._token, "count": self._who.count, "beat": self._beat,
            "coordinator": self._coordinator, "members": self._tokens,
        }  # fmt: skip
        try:
            storage.write(self._file, json.dumps(told) + "\n")
        except FileNotFoundError:  # the first, or the last that left has removed the folder
            self._made += storage.make_folder(self._folder)
            storage.write(self._file, json.dumps(told) + "\n")

    def _present(self) -> dict[int, dict[str, Any]]:
        """Returns the files of the other processes that are there, by number.

        Raises:
          BadInput: a process was told another number of processes.
        """
        now, there = time.monotonic(), dict[int, bytes]()
        for file in storage.listed(self._folder):
            if (match := re.fullmatch(r"(\d+)\.json", file.name)) and file != self._file:
                with contextlib.suppress(FileNotFoundError):
                    there[int(match[1])] = storage.read_all([file])[0]
        for number, content in there.items():
            if self._seen.get(number, (b"", 0))[0] != content:  # it may be left from an old start
                new = number not in self._seen and not self._looked
                self._seen[number] = content, -math.inf if new else now
        self._looked = True
        self._seen = {i: seen for i, seen in self._seen.items() if i in there}
        found = dict[int, dict[str, Any]]()
        for number, (content, changed) in self._seen.items():
            if now - changed < GONE_SECS and (told := _told(content)):
                found[number] = told
        for number, one in found.items():
            if one["count"] != self._who.count:
                raise BadInput(
                    f"process {number} was told that there are {one['count']} processes, process "
                    f"{self._who.index} that there are {self._who.count}; start all with the same "
                    "number."
                )
        return found


def _told(content: bytes) -> dict[str, Any] | None:
    """Returns what a process has written into its file; None if the file is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(content)
        if isinstance(told, dict) and told.keys() >= {"token", "count", "coordinator", "members"}:
            return told
    return None
