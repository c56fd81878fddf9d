# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Allows one run at a time in a workdir, by a small lock file that its owner keeps rewriting.

The lock does not use file system locks, so it works on object stores. An owner on this host is
alive while its process is. An owner on another host is alive while its file is rewritten. A dead
owner never blocks a new run: a start waits until it knows. Clocks of two hosts are never compared,
because they may differ.

Several runs may start at the same moment: the run that creates the file gets the workdir, and the
others name it. Several runs may find a dead owner: the run that creates a claim to its place, which
is itself a lock, takes over. A run may be paused so long that another takes over. It then reads its
file again, sees this, and ends. Start from `held`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from vit_jax.errors import BadInput, PeerLost, writing
from vit_jax.runtime import coordination, process_exit
from vit_jax.storage import files as storage

FILE = "lock.json"
BEAT_SECS = 30.0  # interval at which the file is rewritten
DEAD_SECS = 120.0  # an owner on another host is dead after this time without a rewrite
SETTLE_SECS = 0.05  # wait before something is read once more
log = logging.getLogger("vit_jax")


class Taken(BadInput):
    """Another run is at work in the workdir."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that holds a workdir.

    Attributes:
      host: name of the host.
      machine: boot and PID namespace; equal for processes that see each other's PIDs.
      pid: process number.
      started: start time of the process, by the clock of its kernel: PIDs are used again.
      since: start time of the run, as text.
      beat: time at which the file was written, seconds since 1970.
      token: a value that differs for each start.
    """

    host: str
    machine: str
    pid: int
    started: str
    since: str
    beat: float
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def started(pid: int) -> str:
    """Returns the start time of a process of this machine; "" if it is gone or unknown."""
    try:
        # The name, in brackets, may contain anything; the 22nd field is the 20th after it.
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else fields[18]


def _machine() -> str:
    """Returns boot and PID namespace; "" without /proc: then only the age of the file counts."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def this_process() -> Owner:
    """Returns this process as an owner from now on."""
    return Owner(
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        started=started(os.getpid()),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
        beat=time.time(),
        token=uuid.uuid4().hex,
    )


def read(workdir: Path) -> Owner | None:
    """Returns the owner of a workdir; None if it has no owner or the file is damaged.

    Raises:
      BadInput: the file cannot be read.
    """
    content = _content(workdir / FILE)
    return None if content is None else _owner(workdir / FILE, content)


def _content(file: Path) -> bytes | None:
    """Returns the content of a lock; None if it does not exist."""
    try:
        return storage.read_all([file])[0]
    except OSError as e:
        if isinstance(e, FileNotFoundError) and not os.path.islink(file):
            return None
        raise BadInput(
            f"{file} cannot be read: {e.strerror or e}; mend that, or remove it if no run is at "
            "work there."
        ) from e


def _owner(file: Path, content: bytes) -> Owner | None:
    """Returns the owner that a lock names; None if the lock is damaged."""
    try:
        fields = json.loads(content)
        names = [field.name for field in dataclasses.fields(Owner)]
        owner = Owner(**{name: fields[name] for name in names})
        owner = dataclasses.replace(owner, pid=int(owner.pid), beat=float(owner.beat))
        if math.isfinite(owner.beat):
            return owner
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    log.warning("%s is damaged and does not count as a lock", file)
    return None


def _text(owner: Owner, now: float) -> str:
    return json.dumps(dataclasses.asdict(dataclasses.replace(owner, beat=now))) + "\n"


def is_dead(owner: Owner, now: float) -> bool | None:
    """Returns True if an owner is gone, False if not, None where only time will tell.

    This is only for display.

    Args:
      owner: from `read`.
      now: seconds since 1970; the clock of another host may differ, so no takeover relies on it.
    """
    if _is_here(owner):
        return started(owner.pid) != owner.started
    return True if now - owner.beat > DEAD_SECS else None


def _is_here(owner: Owner) -> bool:
    """Returns True if this host can see the process of an owner."""
    return bool(owner.machine) and owner.machine == _machine()


def acquire(
    workdir: Path,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Owner:
    """Makes this process the owner; waits for an owner elsewhere to show that it lives.

    Raises:
      Taken: another owner lives, and the message names it.
      BadInput: the workdir is not writable.
    """
    me = this_process()
    with writing(workdir):
        other = _take(workdir / FILE, me, clock, sleep)
    if other is None:
        sleep(SETTLE_SECS)  # for a rival that was paused before it wrote, or is an older version
        owner = read(workdir)
        other = None if owner and owner.token == me.token else owner or me
    if other:
        raise _refusal(workdir, other)
    return me


def _take(
    file: Path, me: Owner, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Owner | None:
    """Makes a file the lock of `me`; returns the owner that has it instead, or None.

    Only the holder of the claim to a dead owner's lock may overwrite that lock. The claim is a lock
    too, because its holder may also die.
    """
    while not storage.create(file, _text(me, clock())):
        left = _left(file, sleep)
        if isinstance(left, Owner):  # a request that storage repeats finds our own lock
            return left if left.token != me.token else None
        if left is None:
            sleep(SETTLE_SECS)  # the owner has ended, or a network disk does not show the file yet
            continue
        claim = file.with_name(f".{FILE}.{hashlib.sha256(left).hexdigest()[:16]}")
        rival = _take(claim, me, clock, sleep)
        if rival:
            sleep(SETTLE_SECS)
            if _content(file) == left:
                return rival
            continue
        try:
            if _content(file) == left:  # otherwise another run held the claim before
                storage.write(file, _text(me, clock()))
                return None
        finally:
            storage.remove(claim)
    return None


def _left(file: Path, sleep: Callable[[float], None]) -> Owner | bytes | None:
    """Returns what a dead owner or damage left; the owner if it lives; None: look again.

    Waits for an owner elsewhere to show that it lives, for `DEAD_SECS` by this process's clock.
    """
    content, waited, before = _content(file), 0.0, None
    while content is not None and (other := _owner(file, content)):
        lives = _is_here(other) and started(other.pid) == other.started
        if lives or (before and other.beat != before.beat):
            return other
        if _is_here(other) or waited > DEAD_SECS:
            log.info("%s was locked by %s, which is gone", file.parent, other)
            return content
        if before is None:
            log.info("%s is locked by %s; waiting up to %d s for a sign of life",
                     file.parent, other, DEAD_SECS)  # fmt: skip
        sleep(1.0)
        waited, before, content = waited + 1.0, other, _content(file)
    if content is not None:
        sleep(SETTLE_SECS)  # without hard links a new file is visible before it is complete
    return content if content == _content(file) else None


def _refusal(workdir: Path, owner: Owner) -> Taken:
    return Taken(
        f"another run is at work in {workdir}: {owner}. Wait for it, stop it, or give another "
        "--workdir."
    )


def beat(workdir: Path, me: Owner, clock: Callable[[], float] = time.time) -> Owner | None:
    """Shows that this process lives; returns the owner that has taken over meanwhile, or None."""
    other = read(workdir)
    if other and other.token != me.token:
        return other
    storage.write(workdir / FILE, _text(me, clock()))
    return None


def release(workdir: Path, me: Owner) -> None:
    """Removes the file if it still belongs to this process."""
    other = read(workdir)
    if other and other.token == me.token:
        storage.remove(workdir / FILE)


@contextlib.contextmanager
def held(workdir: Path, refusal: type[BadInput | PeerLost] = BadInput) -> Iterator[float | None]:
    """Holds a workdir for all processes while the block runs; process 0 has the lock.

    It makes the workdir, and removes it if nothing was written. If another run takes over, all
    processes end with the code of `refusal` and save nothing.

    Args:
      workdir: the folder of the run.
      refusal: PeerLost if the owner may be another part of this run, so that it starts again.

    Yields:
      The time at which an owner that is gone was last seen, in seconds since 1970, or None.

    Raises:
      BadInput, or `refusal`: another run holds the workdir; raised on all processes alike.
      BadInput: the lock cannot be read or written.
    """
    with contextlib.ExitStack() as stack:
        refused, taken, seen = "", False, None
        if coordination.is_first():
            try:
                seen = stack.enter_context(_held(workdir, refusal.exit_code))
            except BadInput as e:
                refused, taken = str(e), isinstance(e, Taken)
        refused, taken = coordination.share("lock of the workdir", [refused, taken])
        if refused:
            raise (refusal if taken else BadInput)(refused)
        yield seen


@contextlib.contextmanager
def _held(workdir: Path, taken_over: int) -> Iterator[float | None]:
    """Holds the lock of a workdir in this process; see `held`."""
    with writing(workdir):
        new = storage.make_folder(workdir)
    before = read(workdir)
    me, ended = acquire(workdir), threading.Event()

    def keep() -> None:
        wait = BEAT_SECS / 10  # soon after the start: another run may wait for a sign of life
        while not ended.wait(wait):
            wait = BEAT_SECS
            try:
                other = beat(workdir, me)
            except (OSError, BadInput, PeerLost) as e:  # storage may not answer now
                log.warning("cannot renew %s: %s", workdir / FILE, e)
                continue
            if other:
                coordination.end_all(
                    taken_over,
                    f"another run has taken over {workdir}: {other}. This one ends unsaved.",
                )

    thread = threading.Thread(target=keep, name="lock", daemon=True)
    thread.start()
    try:
        with process_exit.before_exit(functools.partial(release, workdir, me)):
            yield before.beat if before else None
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(OSError, BadInput, PeerLost):
            release(workdir, me)
            for folder in new:
                folder.rmdir()  # fails if something was written
