# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What asks a run to stop: signals in whatever the main thread is in, and Google Cloud's notice."""

import ctypes
import http.server
import os
import queue
import signal
import socket
import threading
import time

import pytest

from vit_jax.runtime import signals
from vit_jax.storage import files as storage


@pytest.fixture
def calls():
    return queue.SimpleQueue()


def hearing(calls):
    return signals.heard(lambda n: calls.put(("first", n)), lambda n: calls.put(("again", n)))


def test_first_and_second_are_told_apart_and_handlers_put_back(calls):
    before = [signal.getsignal(n) for n in signals.NUMBERS]
    with hearing(calls):
        os.kill(os.getpid(), signal.SIGINT)
        assert calls.get(timeout=20) == ("first", signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls.get(timeout=20) == ("again", signal.SIGTERM)
    assert [signal.getsignal(n) for n in signals.NUMBERS] == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("notice", signals.NOTICES, ids=lambda n: n.name)
def test_notices_stop_and_never_insist(calls, monkeypatch, notice):
    """A closed terminal hangs up twice, a scheduler warns before it ends, XCPU repeats."""
    monkeypatch.setattr(signals, "SAME_SECS", 0.0)
    with hearing(calls):
        for number in (notice, notice, signal.SIGUSR2, signal.SIGTERM, notice):
            os.kill(os.getpid(), number)
            time.sleep(0.05)
        assert [calls.get(timeout=20) for _ in range(2)] == [
            ("first", notice),
            ("first", signal.SIGTERM),
        ]
        assert calls.empty()
        os.kill(os.getpid(), signal.SIGINT)
        assert calls.get(timeout=20) == ("again", signal.SIGINT)


def test_signals_that_are_handed_on_count_alike():
    sent = (signal.SIGUSR1, signal.SIGXCPU, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM)
    before = [signal.getsignal(n) for n in signals.NUMBERS]
    with signals.collected() as received:
        for number in sent:
            signal.raise_signal(number)
    assert received == [signal.SIGUSR1, signal.SIGTERM]  # the second SIGTERM insists
    with signals.collected() as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(n) for n in signals.NUMBERS] == before


def test_copies_of_a_signal_are_one(calls, monkeypatch):
    monkeypatch.setattr(signals, "SAME_SECS", 5.0)
    with hearing(calls):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.02)
    assert calls.get(timeout=20) == ("first", signal.SIGTERM)
    assert calls.empty()


def test_signal_is_heard_while_the_main_thread_is_in_c(calls):
    """Python's own handlers run when C returns: after a compilation, that may be minutes."""
    when = []

    def note(number):
        when.append(time.monotonic())

    with signals.heard(note, note):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        libc, begun = ctypes.CDLL(None), time.monotonic()
        while time.monotonic() - begun < 1:
            libc.usleep(100_000)
            if when:
                break
    assert when


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signals_stay_ignored(calls, number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with hearing(calls):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            assert calls.get(timeout=20) == ("first", signal.SIGTERM)
        with signals.collected() as received:
            signal.raise_signal(number)
        assert received == []
    finally:
        signal.signal(number, before)


def test_outside_the_main_thread_nothing_is_heard_and_nothing_fails(calls):
    before, inside = signal.getsignal(signal.SIGINT), []

    def quietly():
        with hearing(calls):
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join(20)
    assert inside == [before]


# ---------------------------------------------------------------- Google Cloud


@pytest.fixture
def metadata(monkeypatch):
    """A metadata server on loopback: path -> what it says."""
    said = {"preempted": "FALSE", "maintenance-event": "NONE"}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            known = said.get(self.path.removeprefix("/computeMetadata/v1/instance/"))
            asked = self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known and asked else 403)
            self.end_headers()
            self.wfile.write((known or "").encode())

        def log_message(self, *_): ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # is not asked
    monkeypatch.setattr(signals, "NOTICE_SECS", 0.01)
    yield said
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "name, value, notice",
    [
        ("preempted", "FALSE", ""),
        ("preempted", "TRUE", "preempted=TRUE"),
        ("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", ""),
        (
            "maintenance-event",
            "TERMINATE_ON_HOST_MAINTENANCE",
            "maintenance-event=TERMINATE_ON_HOST_MAINTENANCE",
        ),
    ],
)
def test_notice_of_the_metadata_server(metadata, name, value, notice):
    metadata[name] = value
    assert signals.notice() == notice


def test_notice_is_seen_when_it_comes_also_after_a_server_that_failed(metadata, calls):
    metadata.pop("preempted")  # answers with an error
    with signals.maintenance(calls.put):
        time.sleep(0.05)
        assert calls.empty()
        metadata["preempted"] = "TRUE"
        assert calls.get(timeout=20) == "preempted=TRUE"
        time.sleep(0.05)
    assert calls.empty()


def test_without_google_cloud_nobody_is_asked(monkeypatch, tmp_path, calls):
    def asked(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    monkeypatch.setattr(signals, "_PRODUCT", tmp_path / "product_name")
    monkeypatch.setattr(signals, "notice", asked)
    monkeypatch.setattr(socket, "create_connection", asked)
    assert not signals.on_google_cloud()
    (tmp_path / "product_name").write_text("Standard PC\n")
    assert not signals.on_google_cloud()
    with signals.maintenance(calls.put):
        pass
    (tmp_path / "product_name").write_text("Google Compute Engine\n")
    assert signals.on_google_cloud()
    monkeypatch.setenv("VIT_JAX_OFFLINE", "1")
    assert not signals.on_google_cloud()


def test_stop_object_of_a_bucket_stops_and_one_from_before_is_removed(store):
    workdir, found = storage.path("gs://bucket/run"), threading.Event()
    storage.write(workdir / "STOP", "")
    old = signals.StopFile(workdir)
    old.remove_old()
    assert not store.names("bucket/run/")
    with old.watched(found.set):
        storage.write(workdir / "STOP", "")
        assert found.wait(30)
    old.remove_old()
    assert store.names("bucket/run/")


@pytest.mark.parametrize("age", [-10 * 365 * 86400, -1, 0, 1, 86400, 10 * 365 * 86400])
def test_stop_from_before_is_old_whatever_its_time(tmp_path, monkeypatch, age):
    """Clocks differ, and files are copied."""
    found, stop = threading.Event(), tmp_path / "STOP"
    monkeypatch.setattr(signals, "POLL_SECS", 0.01)
    stop.touch()
    os.utime(stop, (time.time() + age,) * 2)
    old = signals.StopFile(tmp_path)
    with old.watched(found.set):
        assert not found.wait(0.1)
        old.remove_old()
        assert not stop.exists()
        assert not found.wait(0.1)
        stop.touch()
        os.utime(stop, (time.time() + age,) * 2)
        assert found.wait(30)


def test_stop_that_is_written_again_before_the_start_is_accepted_counts(tmp_path, monkeypatch):
    found = threading.Event()
    monkeypatch.setattr(signals, "POLL_SECS", 0.01)
    (tmp_path / "STOP").touch()
    old = signals.StopFile(tmp_path)
    with old.watched(found.set):
        os.utime(tmp_path / "STOP", (5, 5))
        old.remove_old()
        assert found.wait(30)
    assert (tmp_path / "STOP").exists()
