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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from vit_jax.errors import PeerLost
from vit_jax.runtime import process_exit
from vit_jax.storage import cache
from vit_jax.storage import files as storage

# A closed terminal, a scheduler's warning (Slurm's --signal), a used-up limit on processor time.
# They may arrive repeatedly, and SIGTERM may follow while the run saves.
NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
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

    `_Meaning` decides which. Both run in a separate thread. Outside the main thread Python allows
    no handlers, so no signal is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    out, into = os.pipe()
    os.set_blocking(into, False)

    def listen() -> None:
        meaning, times = _Meaning(), dict[int, float]()
        while number := os.read(out, 1)[0]:
            now = time.monotonic()
            if number in NUMBERS and now - times.get(number, -SAME_SECS) >= SAME_SECS:
                times[number] = now
                kind = meaning.of_next(number)
                if kind:
                    {"first": first, "again": again}[kind](signal.Signals(number))

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    previous = signal.set_wakeup_fd(into, warn_on_full_buffer=False)
    listener.start()
    try:
        with _handling(lambda *_: None):
            yield
    finally:
        signal.set_wakeup_fd(previous)
        os.write(into, b"\0")
        listener.join()
        os.close(out)
        os.close(into)


@contextlib.contextmanager
def collected() -> Iterator[list[int]]:
    """Yields a list that collects the signals that ask for an end: the first, then insisting ones.

    Signals count as in `heard`, but a quick repetition counts too.
    """
    received: list[int] = []
    meaning = _Meaning()

    def note(number: int, _: Any) -> None:
        kind = meaning.of_next(number)
        if kind == "again" or (kind and not received):
            received.append(number)

    with _handling(note):
        yield received


class _Meaning:
    """Tells requests to stop, and those that insist, from repetitions that change nothing."""

    def __init__(self) -> None:
        self._asked = self._insisted = False

    def of_next(self, number: int) -> Literal["first", "again", ""]:
        """Returns `first` for a request, `again` for one that insists, "" for a repeated notice.

        A notice is a request if no signal precedes it. The first of `INSISTING` is a request, and
        later ones insist.
        """
        if number not in INSISTING:
            kind = "" if self._asked else "first"
        else:
            kind, self._insisted = "again" if self._insisted else "first", True
        self._asked = True
        return kind


@contextlib.contextmanager
def _handling(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handles `NUMBERS` while the block runs; signals that are ignored, as under nohup, stay so.

    A command ignores notices from the end of the block on, because a scheduler may repeat them
    while Python takes a moment to end: they would change the exit code.
    """
    before: dict[signal.Signals, Any] = {n: signal.getsignal(n) for n in NUMBERS}
    handled = {n: earlier for n, earlier in before.items() if earlier != signal.SIG_IGN}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in handled.items():
            ignored = process_exit.is_command and number in NOTICES
            signal.signal(number, signal.SIG_IGN if ignored else earlier)


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
    def watched(self, act: Callable[[], None]) -> Iterator[None]:
        """Calls `act` once, in another thread, if the file is written during the block."""

        def look() -> bool:
            with contextlib.suppress(OSError, PeerLost):
                if self._version() != self._old:
                    act()
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
    answers = {}
    for name in ("preempted", "maintenance-event"):
        request = urllib.request.Request(
            f"http://{server}/computeMetadata/v1/instance/{name}",
            headers={"Metadata-Flavor": "Google"},
        )
        try:
            with opener.open(request, timeout=ASK_SECS) as answer:
                answers[name] = answer.read(1000).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException):
            return None
    if answers["preempted"] == "TRUE":
        return "preempted=TRUE"
    event = answers["maintenance-event"]  # a machine that only migrates goes on
    return f"maintenance-event={event}" if event.startswith("TERMINATE") else ""


def on_google_cloud() -> bool:
    """Returns True if a metadata server is expected and downloads are allowed.

    It sends no request, because a request may take long.
    """
    if not cache.may_download():
        return False
    if os.environ.get("GCE_METADATA_HOST"):
        return True
    with contextlib.suppress(OSError):
        return "Google" in _PRODUCT.read_text(encoding="utf-8")
    return False


@contextlib.contextmanager
def maintenance(act: Callable[[str], None]) -> Iterator[None]:
    """Calls `act` with the notice that this machine ends soon; polls only on Google Cloud."""
    if not on_google_cloud():
        yield
        return

    def look() -> bool:
        text = notice()
        if text:
            act(text)
        return bool(text)

    with _polling("maintenance", NOTICE_SECS, look):
        yield
