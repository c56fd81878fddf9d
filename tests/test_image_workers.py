# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The processes of data.reader=python: what they send and receive, hold open, and end by."""

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
import types

import numpy as np
import own_ops
import pictures
import pytest

from vit_jax.data import readers
from vit_jax.data.formats import byte_ranges, stored
from vit_jax.data.python_reader import pool
from vit_jax.data.splits import split as splits_lib
from vit_jax.errors import BadInput, PeerLost, RunFailed, StoreLost


def pipe_of(*ops, images=12, side=8, batch_size=4, workers=1):
    """Batches of black images in memory after some ops."""
    examples = splits_lib.of_arrays(
        "black", np.zeros([images, side, side, 3], np.uint8), np.zeros([images, 1], np.int32)
    )
    return readers.pipeline_of("python")(
        examples, ops, batch_size, 0, (side, side), workers=workers, prefetch=2
    )


def outcome(function, secs=30):
    """What the function returns or raises; fails if it does neither within some seconds."""
    outcomes = []

    def call():
        try:
            outcomes.append(function())
        except Exception as e:
            outcomes.append(e)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(secs)
    assert outcomes, f"waits for more than {secs} s"
    return outcomes[0]


def first(pipe):
    return outcome(lambda: next(pipe.train(0, 9)))


def test_long_messages_in_both_directions_do_not_wait_for_each_other():
    error = first(pipe_of(own_ops.Wordy(), images=1024, side=32, batch_size=1024))  # 3 MB, 10 MB
    assert isinstance(error, BadInput)
    assert "black/" in str(error)


def test_rows_after_a_bug_are_left_alone(monkeypatch):
    failures, wait_for = [], pool.Job.wait_for

    def waited(job, numbers):
        failures.extend(wait_for(job, numbers))
        return failures

    monkeypatch.setattr(pool.Job, "wait_for", waited)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        next(pipe_of(own_ops.Broken(), batch_size=12).train(0, 1))
    assert [one.row for one in failures] == [0, 3, 6, 9]  # the first row of each message


def test_an_op_that_processes_cannot_import_is_one_message(monkeypatch):
    class Local(own_ops.Own):
        pass

    error = first(pipe_of(Local()))
    assert isinstance(error, BadInput)
    assert "put its class into a module" in str(error)
    main = type("Main", (own_ops.Own,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Main", main, raising=False)
    error = first(pipe_of(main()))  # it can be pickled here
    assert isinstance(error, BadInput)
    assert "put its class into a module" in str(error)
    assert first(pipe_of(own_ops.Own())).keys() == {"image", "labels", "_mask"}
    assert not pool.shared().jobs


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_job_needs_two_descriptors_and_no_worker_dies_for_want_of_more():
    next(pipe_of(own_ops.Own()).train(0, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir("/proc/self/fd"))) + 4
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        with contextlib.suppress(OSError):
            while len(taken) < most:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(2):
            os.close(taken.pop())
        made = first(pipe_of(own_ops.Own()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
    assert not isinstance(made, Exception), made


def held():
    """The descriptors of this process, and the pieces of memory that it shares."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return len(os.listdir("/proc/self/fd")), maps.read().count("memfd")


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("sent, error", [(signal.SIGKILL, PeerLost), (signal.SIGSEGV, RunFailed)])
def test_a_dead_worker_ends_all_and_leaves_nothing_behind(sent, error):
    pool.shared().end()
    before = held()
    batches = pipe_of(own_ops.Own(0.01), workers=2).train(0, 1000)
    next(batches)
    workers = [one.process for one in pool.shared()._workers]
    end = time.monotonic() + 20
    while not pool.shared()._places[0, 0]:  # the job that the first worker is at
        assert time.monotonic() < end
        time.sleep(0.001)
    os.kill(workers[0].pid, sent)
    with pytest.raises(error, match=rf"ended by signal {sent:d} at black/00\d\d.*data.workers"):
        list(batches)
    assert [one.returncode for one in workers[1:]] == [-9] * len(workers[1:])
    del batches
    pool.shared().end()
    assert all(now <= then for now, then in zip(held(), before, strict=True))


async def at_once(_):
    """Waits for no time between two requests."""


def test_a_store_that_does_not_answer_ends_the_run_for_another_start(store, monkeypatch):
    content = pictures.encode(pictures.noise(9, 9, seed=1), "PNG")
    store.put("bucket", "a.png", content)
    image = stored.WholeFile("gs://bucket/a.png")
    table = splits_lib.Table(
        1, str, lambda: None, numpy_reader=lambda: lambda _: {"image": image, "labels": [0]}
    )
    split = splits_lib.Split(table, range(1))
    pipe = readers.pipeline_of("python")(split, (), 1, 0, (9, 9), 1, 1, bad_images="skip")
    store.fail_every = 1
    monkeypatch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=at_once))
    with pytest.raises(StoreLost, match="the store does not answer"):
        pipe.probe()


def test_files_that_are_read_by_ranges_are_opened_once(tmp_path, monkeypatch):
    opened, open_file = [], byte_ranges.open_file
    monkeypatch.setattr(
        byte_ranges, "open_file", lambda path: opened.append(path) or open_file(path)
    )
    for number in range(70):
        (tmp_path / str(number)).write_bytes(b"some bytes")
    for _ in range(2):
        for number in range(70):
            assert stored.FileRange(str(tmp_path / str(number)), 5, 5).read() == b"bytes"
    assert len(opened) == 70
