# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One run at a time in a workdir: a small file that says who, and is rewritten while they live.

No lock of the file system is asked for, so it works on object stores. An owner on this host lives
while its process does; one on another host while its file is rewritten. Who is dead never blocks:
where it is not known yet, one waits. Two that start at the same moment see each other by reading
again what they wrote; who was paused so long that another took over sees it too, and ends. Start
from `held`.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from vit_jax import distributed, ending, storage
from vit_jax.errors import BadInput, PeerLost, writing

FILE = "lock.json"
BEAT_SECS = 30.0  # between two times that the file is rewritten
DEAD_SECS = 120.0  # without that, after which an owner on another host is dead
SETTLE_SECS = 0.05  # the least time between writing and reading again
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
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else fields[18]


def _machine() -> str:
    """What processes that see each other's numbers have alike; without /proc only age tells: ""."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
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
    """Who a workdir says holds it; None if nobody, or if the file is no such file."""
    try:
        found = json.loads(storage.read_all([workdir / FILE])[0])
        names = [field.name for field in dataclasses.fields(Owner)]
        owner = Owner(**{name: found[name] for name in names})
        return dataclasses.replace(owner, pid=int(owner.pid), beat=float(owner.beat))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        log.warning("%s is damaged and not taken for a lock", workdir / FILE)
        return None


def _write(workdir: Path, owner: Owner) -> None:
    storage.write(workdir / FILE, json.dumps(dataclasses.asdict(owner)) + "\n")


def is_dead(owner: Owner, now: float) -> bool | None:
    """Whether an owner is gone; None where only time will tell.

    Args:
      owner: from `read`.
      now: seconds since 1970.
    """
    if owner.machine and owner.machine == _machine():
        return started(owner.pid) != owner.started
    return True if now - owner.beat > DEAD_SECS else None


def acquire(
    workdir: Path,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Owner:
    """Makes this process the owner; waits for an owner elsewhere to show that it lives.

    Raises:
      BadInput: it does, and is named; or the workdir cannot be written.
    """
    me, other, looked = this(), read(workdir), clock()
    if other and is_dead(other, clock()) is None:
        log.info("%s is locked by %s; waiting for a sign of life", workdir, other)
    while other and (dead := is_dead(other, clock())) is not True:
        if dead is False:
            raise _refusal(workdir, other)
        if clock() - looked > DEAD_SECS:  # whatever its clock has said
            break
        sleep(1.0)
        before, other = other, read(workdir)
        if other and other.beat != before.beat:
            raise _refusal(workdir, other)
    if other:
        log.info("%s was locked by %s, which is gone", workdir, other)
    begun = time.monotonic()
    with writing(workdir):
        _write(workdir, dataclasses.replace(me, beat=clock()))
    # Longer than another takes from finding no lock to writing its own.
    sleep(max(SETTLE_SECS, 3 * (time.monotonic() - begun)))
    other = read(workdir)
    if other is None or other.token != me.token:
        raise _refusal(workdir, other or me)
    return me


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
    _write(workdir, dataclasses.replace(me, beat=clock()))
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
        if distributed.is_first():
            try:
                seen = stack.enter_context(_held(workdir))
            except BadInput as e:
                refused = str(e)
        refused = distributed.share("lock of the workdir", refused)
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
        wait = BEAT_SECS / 10  # soon after the start once more, for two that began together
        while not ended.wait(wait):
            wait = BEAT_SECS
            try:
                other = beat(workdir, me)
            except (OSError, PeerLost) as e:  # storage that does not answer now
                log.warning("cannot renew %s: %s", workdir / FILE, e)
                continue
            if other:
                distributed.leave(
                    BadInput.exit_code,
                    f"another run has taken over {workdir}: {other}. This one ends unsaved.",
                )

    thread = threading.Thread(target=keep, name="lock", daemon=True)
    thread.start()
    try:
        with ending.last(functools.partial(release, workdir, me)):
            yield before.beat if before else None
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(OSError, PeerLost):
            release(workdir, me)
            for folder in new:
                folder.rmdir()  # refused where something was written
