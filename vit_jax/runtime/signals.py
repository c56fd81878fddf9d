# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Hears requests to stop a run: signals, a STOP file, the maintenance notice of Google Cloud.

Only this module handles signals. `coordination` switches off jax's preemption service, which would
take SIGTERM once several processes are connected; orbax then has no service to ask. A signal writes
its number into a pipe (`signal.set_wakeup_fd`). C code does this at once, even while the main
thread is busy, and a thread reads the pipe. This module must not import jax. Start from `heard`.
"""

import contextlib
import http.client
import logging
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vit_jax.errors import PeerLost
from vit_jax.runtime import process_exit
from vit_jax.runtime.process_exit import NOTICES
from vit_jax.storage import files as storage
from vit_jax.storage import offline

INSISTING = (signal.SIGTERM, signal.SIGINT)  # a second one ends a process at once
NUMBERS = (*INSISTING, *NOTICES)
SAME_SECS = 0.1  # a launcher repeats a signal that the terminal has sent: both count as one
POLL_SECS = 2.0  # interval of checks of the STOP file
NOTICE_SECS = 5.0  # interval of checks for a notice, after which a spot machine has 30 s
ASK_SECS = 2.0  # timeout of a request
FILE = "STOP"  # in a workdir
_METADATA = "metadata.google.internal"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def heard(
    first: Callable[[signal.Signals], None], again: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """Calls `first` when a signal asks for a stop, `again` when a person or launcher insists.

    The first of `NUMBERS` and the first of `INSISTING` call `first`. Later ones of `INSISTING` call
    `again`. Both run in a separate thread. Other notices change nothing. Signals that are ignored,
    as under nohup and in background shells, stay ignored. Outside the main thread Python allows no
    handlers, so no signal is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.getsignal(n) for n in NUMBERS}
    ours = {n: handler for n, handler in before.items() if handler != signal.SIG_IGN}
    out, into = os.pipe()
    os.set_blocking(into, False)

    def listen() -> None:
        when: dict[int, float] = {}
        insisted = False
        while number := os.read(out, 1)[0]:
            now = time.monotonic()
            if number not in ours or now - when.get(number, -SAME_SECS) < SAME_SECS:
                continue
            if number in INSISTING:
                (again if insisted else first)(signal.Signals(number))
                insisted = True
            elif not when:
                first(signal.Signals(number))
            when[number] = now

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    previous = signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    listener.start()
    for number in ours:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        _put_back(ours)
        signal.set_wakeup_fd(previous)
        os.write(into, b"\0")
        listener.join()
        os.close(out)
        os.close(into)


def _put_back(handlers: Mapping[signal.Signals, Any]) -> None:
    """Restores handlers; a command ignores notices from here on, and keeps its exit code."""
    for number, handler in handlers.items():
        ignored = process_exit.is_command and number in NOTICES
        signal.signal(number, signal.SIG_IGN if ignored else handler)


@contextlib.contextmanager
def collected() -> Iterator[list[int]]:
    """Yields a list that collects the signals that ask for an end: the first, then insisting ones.

    Signals count as in `heard`, but a quick repetition counts too. Ignored signals stay ignored.
    """
    received: list[int] = []
    insisting: list[int] = []
    before = {n: signal.getsignal(n) for n in NUMBERS}
    ours = {n: handler for n, handler in before.items() if handler != signal.SIG_IGN}

    def note(number: int, _: Any) -> None:
        if number in INSISTING:
            insisting.append(number)
        if not received or (number in INSISTING and len(insisting) > 1):
            received.append(number)

    for number in ours:
        signal.signal(number, note)
    try:
        yield received
    finally:
        _put_back(ours)


@contextlib.contextmanager
def _polling(name: str, every_secs: float, look: Callable[[], bool]) -> Iterator[None]:
    """Calls `look` in a thread until it returns True or the block ends."""
    ended = threading.Event()

    def poll() -> None:
        while not look() and not ended.wait(every_secs):
            pass

    threading.Thread(target=poll, name=name, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


class StopFile:
    """The file STOP in a workdir. A file that already exists is ignored, whatever its timestamp.

    A stopped run therefore goes on when it is started again, even if clocks differ, or if the run
    was killed before it could remove the file.

    Args:
      workdir: the folder, which need not exist yet. Create this object as early as possible: a
        file that exists now counts as old.
    """

    def __init__(self, workdir: Path):
        self._file = workdir / FILE
        self._old: Any = None
        with contextlib.suppress(OSError, PeerLost):  # storage may not answer now
            self._old = self._version()

    def __str__(self) -> str:
        return str(self._file)

    def _version(self) -> tuple[int, str]:
        return storage.size_and_version(str(self._file))

    def remove_old(self) -> None:
        """Removes the file that is older than this start; call it once the start is accepted."""
        with contextlib.suppress(OSError, PeerLost):
            if self._old is not None and self._version() == self._old:
                storage.remove(self._file)
                log.info("removed %s, which is older than this start", self._file)

    @contextlib.contextmanager
    def watched(self, found: Callable[[], None]) -> Iterator[None]:
        """Calls `found` once, in another thread, if the file is written during the block."""

        def look() -> bool:
            with contextlib.suppress(OSError, PeerLost):
                if self._version() != self._old:
                    found()
                    return True
            return False

        with _polling("STOP", POLL_SECS, look):
            yield


def notice() -> str | None:
    """Returns Google Cloud's notice that this machine ends soon; "" without a notice.

    Returns None if the server does not answer. `GCE_METADATA_HOST` names another server, as in
    Google's own libraries.
    """
    server = os.environ.get("GCE_METADATA_HOST") or _METADATA
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    said = {}
    for name in ("preempted", "maintenance-event"):
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{name}",
            headers={"Metadata-Flavor": "Google"},
        )
        try:
            with opener.open(request, timeout=ASK_SECS) as answer:
                said[name] = answer.read(1000).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException):
            return None
    if said["preempted"] == "TRUE":
        return "preempted=TRUE"
    event = said["maintenance-event"]  # a machine that only migrates goes on
    return f"maintenance-event={event}" if event.startswith("TERMINATE") else ""


def on_google_cloud() -> bool:
    """Returns True if a metadata server is expected and downloads are allowed.

    It sends no request, because a request may take long.
    """
    if not offline.allowed():
        return False
    if os.environ.get("GCE_METADATA_HOST"):
        return True
    with contextlib.suppress(OSError):
        return "Google" in _PRODUCT.read_text(encoding="utf-8")
    return False


@contextlib.contextmanager
def maintenance(found: Callable[[str], None]) -> Iterator[None]:
    """Calls `found` with the notice that this machine ends soon; polls only on Google Cloud."""
    if not on_google_cloud():
        yield
        return

    def look() -> bool:
        said = notice()
        if said:
            found(said)
        return bool(said)

    with _polling("maintenance", NOTICE_SECS, look):
        yield
