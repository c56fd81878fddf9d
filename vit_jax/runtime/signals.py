# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What asks a run to stop: signals, a STOP file, the maintenance notice of Google Cloud.

Signals are ours alone: jax's preemption service, which would take SIGTERM once several processes
are connected, is switched off (`coordination`), and orbax then asks nobody. The handlers do nothing
but write the number into a pipe (`signal.set_wakeup_fd`), which C code does at once, whatever the
main thread is in; a thread reads it. Must not import jax. Start from `heard`.
"""

import contextlib
import http.client
import logging
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vit_jax.errors import PeerLost
from vit_jax.runtime.process_exit import NOTICES
from vit_jax.storage import files as storage
from vit_jax.storage import offline

INSISTING = (signal.SIGTERM, signal.SIGINT)  # a second one ends a process at once
NUMBERS = (*INSISTING, *NOTICES)
SAME_SECS = 0.1  # a launcher hands on what the terminal has sent already: that is one signal
POLL_SECS = 2.0  # between two looks at the STOP file
NOTICE_SECS = 5.0  # between two questions for a notice; a spot machine has 30 s from it on
ASK_SECS = 2.0  # for an answer
FILE = "STOP"  # in a workdir
_METADATA = "metadata.google.internal"
_PRODUCT = Path("/sys/class/dmi/id/product_name")
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def heard(
    first: Callable[[signal.Signals], None], again: Callable[[signal.Signals], None]
) -> Iterator[None]:
    """Calls `first` when a signal asks for a stop, `again` when a person or launcher insists.

    The first of `NUMBERS` and the first of `INSISTING` call `first`, later ones of `INSISTING` call
    `again`, in a thread of their own; other notices change nothing. Signals that are ignored, as
    nohup and shells in the background have it, stay so. Outside the main thread, where Python
    allows no handlers, nothing is heard.
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
        for number, handler in ours.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous)
        os.write(into, b"\0")
        listener.join()
        os.close(out)
        os.close(into)


@contextlib.contextmanager
def collected() -> Iterator[list[int]]:
    """Yields a list of the signals that ask for an end: the first, then each that insists.

    They count as for `heard`. Signals that nohup ignores are not heard.
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
        for number, handler in ours.items():
            signal.signal(number, handler)


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
    """The file STOP in a workdir. One that is there already, whatever its time, asks for nothing.

    So a run that was stopped and is started again goes on, even where clocks differ, and nothing is
    lost if it was killed before it could remove the file.

    Args:
      workdir: need not exist yet. Made as early as possible: what is there now is old.
    """

    def __init__(self, workdir: Path):
        self._file = workdir / FILE
        self._old: Any = None
        with contextlib.suppress(OSError, PeerLost):  # storage that does not answer now
            self._old = self._version()

    def __str__(self) -> str:
        return str(self._file)

    def _version(self) -> tuple[int, str]:
        return storage.size_and_version(str(self._file))

    def remove_old(self) -> None:
        """Removes the file from before the start, once the start is accepted."""
        with contextlib.suppress(OSError, PeerLost):
            if self._old is not None and self._version() == self._old:
                storage.remove(self._file)
                log.info("removed %s, which is older than this start", self._file)

    @contextlib.contextmanager
    def watched(self, found: Callable[[], None]) -> Iterator[None]:
        """Calls `found` once, in another thread, when the file is written in the block."""

        def look() -> bool:
            with contextlib.suppress(OSError, PeerLost):
                if self._version() != self._old:
                    found()
                    return True
            return False

        with _polling("STOP", POLL_SECS, look):
            yield


def notice() -> str | None:
    """What Google Cloud says of this machine's near end, "" if nothing; None if nobody answers.

    `GCE_METADATA_HOST` names another server, as in Google's own libraries.
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
    event = said["maintenance-event"]  # a machine that migrates goes on
    return f"maintenance-event={event}" if event.startswith("TERMINATE") else ""


def on_google_cloud() -> bool:
    """Whether there is a server to ask: this is known without asking, which may take long."""
    if not offline.allowed():
        return False
    if os.environ.get("GCE_METADATA_HOST"):
        return True
    with contextlib.suppress(OSError):
        return "Google" in _PRODUCT.read_text(encoding="utf-8")
    return False


@contextlib.contextmanager
def maintenance(found: Callable[[str], None]) -> Iterator[None]:
    """Calls `found` with the notice that this machine ends soon; asks on Google Cloud alone."""
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
