# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One run at a time in a workdir: a small file that says who, and is rewritten while they live.

No lock of the file system is asked for, so it works on object stores. An owner on this host lives
while its process does; one on another host while its file is rewritten. A dead owner never blocks
a new run: a start waits until it knows. It compares no clocks of two hosts, which may differ.

Several runs may start at the same moment: the one that creates the file has the workdir, and the
others name it. Several may find a dead owner: the one that creates a claim to its place, itself a
lock, takes over. A run that was paused so long that another took over reads its file again, sees
that, and ends. Start from `held`.
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
BEAT_SECS = 30.0  # between two times that the file is rewritten
DEAD_SECS = 120.0  # without that, after which an owner on another host is dead
SETTLE_SECS = 0.05  # before something is read once more
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Owner:
    """Who holds a workdir.

    Attributes:
      host: name.
      machine: what is equal for processes that see each other's numbers: boot and name space.
      pid: number of the process.
      started: when the process was, by the clock of its kernel: numbers are used again.
      since: when the run began, as text.
      beat: when the file was written, seconds since 1970.
      token: differs for each start.
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
    """When a process of this machine was started; "" if there is none, or no way to know."""
    try:
        # The name, in brackets, may hold anything; the 22nd field is the 20th after it.
        state, *fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else fields[18]


def _machine() -> str:
    """What processes that see each other's numbers have alike; without /proc only age tells: ""."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return ""


def this() -> Owner:
    """This process, as an owner from now on."""
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
    """Who a workdir says holds it; None if nobody, or if the file is no such file.

    Raises:
      BadInput: the file cannot be read.
    """
    content = _content(workdir / FILE)
    return None if content is None else _owner(workdir / FILE, content)


def _content(file: Path) -> bytes | None:
    """Of a lock; None if there is none."""
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
    """Who a lock names; None if it is damaged."""
    try:
        found = json.loads(content)
        names = [field.name for field in dataclasses.fields(Owner)]
        owner = Owner(**{name: found[name] for name in names})
        owner = dataclasses.replace(owner, pid=int(owner.pid), beat=float(owner.beat))
        if math.isfinite(owner.beat):
            return owner
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    log.warning("%s is damaged and not taken for a lock", file)
    return None


def _text(owner: Owner, now: float) -> str:
    return json.dumps(dataclasses.asdict(dataclasses.replace(owner, beat=now))) + "\n"


def is_dead(owner: Owner, now: float) -> bool | None:
    """Returns whether an owner is gone, for a page to tell; None where only time will tell.

    Args:
      owner: from `read`.
      now: seconds since 1970; the clock of another host may differ, so nothing is taken over by it.
    """
    if _is_here(owner):
        return started(owner.pid) != owner.started
    return True if now - owner.beat > DEAD_SECS else None


def _is_here(owner: Owner) -> bool:
    """Returns whether this host shows the processes that an owner is one of."""
    return bool(owner.machine) and owner.machine == _machine()


def acquire(
    workdir: Path,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Owner:
    """Makes this process the owner; waits for an owner elsewhere to show that it lives.

    Raises:
      BadInput: it does, and is named; or the workdir cannot be written.
    """
    me = this()
    with writing(workdir):
        other = _take(workdir / FILE, me, clock, sleep)
    if other is None:
        sleep(SETTLE_SECS)  # for one that was paused before it wrote, or is of another version
        found = read(workdir)
        other = None if found and found.token == me.token else found or me
    if other:
        raise _refusal(workdir, other)
    return me


def _take(
    file: Path, me: Owner, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Owner | None:
    """Makes a file the lock of `me`; returns who has it instead, None if nobody.

    Where it is that of a dead one, the only one to write over it is who holds the claim to it: a
    lock, too, for who holds it may die.
    """
    while not storage.create(file, _text(me, clock())):
        found = _left(file, sleep)
        if isinstance(found, Owner):  # a request that storage repeats finds our own
            return found if found.token != me.token else None
        if found is None:
            sleep(SETTLE_SECS)  # one that has ended, or a disk elsewhere that does not show it yet
            continue
        claim = file.with_name(f".{FILE}.{hashlib.sha256(found).hexdigest()[:16]}")
        rival = _take(claim, me, clock, sleep)
        if rival:
            sleep(SETTLE_SECS)
            if _content(file) == found:
                return rival
            continue
        try:
            if _content(file) == found:  # else another has held the claim before
                storage.write(file, _text(me, clock()))
                return None
        finally:
            storage.remove(claim)
    return None


def _left(file: Path, sleep: Callable[[float], None]) -> Owner | bytes | None:
    """What a dead owner has left, or damage has; the owner if it lives; None: look again.

    Waits for an owner elsewhere to show that it lives, for `DEAD_SECS` of this process.
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
        sleep(SETTLE_SECS)  # without hard links a new one is seen before it is whole
    return content if content == _content(file) else None


def _refusal(workdir: Path, owner: Owner) -> BadInput:
    return BadInput(
        f"another run is at work in {workdir}: {owner}. Wait for it, stop it, or give another "
        "--workdir."
    )


def beat(workdir: Path, me: Owner, clock: Callable[[], float] = time.time) -> Owner | None:
    """Shows that this process lives; returns who has taken over meanwhile, None if nobody."""
    other = read(workdir)
    if other and other.token != me.token:
        return other
    storage.write(workdir / FILE, _text(me, clock()))
    return None


def release(workdir: Path, me: Owner) -> None:
    """Removes the file, if it is still ours."""
    other = read(workdir)
    if other and other.token == me.token:
        storage.remove(workdir / FILE)


@contextlib.contextmanager
def held(workdir: Path) -> Iterator[float | None]:
    """Process 0 holds a workdir for all, as long as the block lasts.

    Makes the workdir, and removes it if nothing was written. Where another run takes over, all
    processes end with code 2 and save nothing.

    Yields:
      When an owner that is gone was last seen, in seconds since 1970; None if there was none.

    Raises:
      BadInput: on all processes alike: another run holds it.
    """
    with contextlib.ExitStack() as stack:
        refused, seen = "", None
        if coordination.is_first():
            try:
                seen = stack.enter_context(_held(workdir))
            except BadInput as e:
                refused = str(e)
        refused = coordination.share("lock of the workdir", refused)
        if refused:
            raise BadInput(refused)
        yield seen


@contextlib.contextmanager
def _held(workdir: Path) -> Iterator[float | None]:
    """As `held`, of this process."""
    with writing(workdir):
        folders = () if storage.is_remote(workdir) else (workdir, *workdir.parents)
        new = [folder for folder in folders if not folder.exists()]
        storage.make_folder(workdir)
    before = read(workdir)
    me, ended = acquire(workdir), threading.Event()

    def keep() -> None:
        wait = BEAT_SECS / 10  # soon after the start: another may wait for a sign of life
        while not ended.wait(wait):
            wait = BEAT_SECS
            try:
                other = beat(workdir, me)
            except (OSError, BadInput, PeerLost) as e:  # storage that does not answer now
                log.warning("cannot renew %s: %s", workdir / FILE, e)
                continue
            if other:
                coordination.leave(
                    BadInput.exit_code,
                    f"another run has taken over {workdir}: {other}. This one ends unsaved.",
                )

    thread = threading.Thread(target=keep, name="lock", daemon=True)
    thread.start()
    try:
        with process_exit.last(functools.partial(release, workdir, me)):
            yield before.beat if before else None
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(OSError, BadInput, PeerLost):
            release(workdir, me)
            for folder in new:
                folder.rmdir()  # refused where something was written
