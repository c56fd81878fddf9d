# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What asks a run to stop: SIGTERM, SIGINT, a STOP file, the maintenance notice of Google Cloud.

Signals are ours alone: jax's preemption service, which would take SIGTERM once several processes
are connected, is switched off (`distributed`), and orbax then asks nobody. The handlers do nothing
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

from vit_jax import offline, storage
from vit_jax.errors import PeerLost

NUMBERS = (signal.SIGTERM, signal.SIGINT)
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
    """Calls `first` for the first of `NUMBERS`, `again` for later ones, in a thread of their own.

    Those that are ignored, as nohup and shells in the background have it, stay so. Outside the main
    thread, where Python allows no handlers, nothing is heard.
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
        while number := os.read(out, 1)[0]:
            now = time.monotonic()
            if number in ours and now - when.get(number, -SAME_SECS) >= SAME_SECS:
                (again if when else first)(signal.Signals(number))
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
    """The signals that ask for an end, as they come; what nohup ignores is not heard."""
    received: list[int] = []
    before = {s: signal.getsignal(s) for s in (*NUMBERS, signal.SIGHUP)}
    heard = {s: handler for s, handler in before.items() if handler != signal.SIG_IGN}
    for number in heard:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield received
    finally:
        for number, handler in heard.items():
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


@contextlib.contextmanager
def stop_file(workdir: Path, since: float, found: Callable[[], None]) -> Iterator[None]:
    """Calls `found` when a file STOP is in the workdir; one from before `since` is removed.

    So a run that was stopped and is started again goes on, and nothing is lost if it was killed
    before it could remove the file.

    Args:
      workdir: need not exist yet.
      since: when this start began, by `time.time`.
      found: called once, in another thread.
    """
    file, first = workdir / FILE, True

    def look() -> bool:
        nonlocal first
        with contextlib.suppress(OSError, PeerLost):  # storage that does not answer now
            try:
                changed = storage.changed(file)
            except FileNotFoundError:
                first = False
                return False
            if not first or changed >= since:
                found()
                return True
            storage.remove(file)
            first = False
            log.info("removed %s, which is older than this start", file)
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
