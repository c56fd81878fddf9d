# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Rows of metrics, on a disk and in a bucket."""

import pytest

from vit_jax.errors import PeerLost
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl


@pytest.fixture(params=["disk", "bucket"])
def workdir(request, tmp_path, store):
    return tmp_path if request.param == "disk" else storage.path("gs://bucket/run")


def add(workdir, step, *new):
    file = jsonl.open_for_append(workdir / jsonl.METRICS_FILE, step)
    for row in new:
        file.add(row)
    file.close()


def row(step, **more):
    return {"step": step, **more}


def read(workdir):
    return jsonl.read_rows(workdir / "metrics.jsonl")


def test_rows_come_back_in_the_order_in_which_they_were_written(workdir):
    written = [row(2, loss=0.5), row(10, loss=0.25), row(10, val=1), row(1000, loss=0.1)]
    add(workdir, 0, *written)
    assert read(workdir) == written
    assert jsonl.rows_path(workdir / jsonl.METRICS_FILE).exists()


def test_rows_after_the_checkpoint_are_cut_off(workdir):
    add(workdir, 0, row(2), row(4), row(4, val=1), row(6, old=1))
    add(workdir, 4, row(6, new=1))
    assert read(workdir) == [row(2), row(4), row(4, val=1), row(6, new=1)]


def test_row_of_the_step_of_the_checkpoint_is_added_after_those_there(workdir):
    add(workdir, 0, row(4), row(4, val=1))
    add(workdir, 4, row(4, test=1))
    assert read(workdir) == [row(4), row(4, val=1), row(4, test=1)]


def test_no_rows_are_no_error(workdir):
    assert read(workdir) == []


def test_row_is_one_request(store):
    file = jsonl.open_for_append(storage.path("gs://bucket/run") / jsonl.METRICS_FILE, 0)
    store.asked.clear()
    for step in range(5):
        file.add(row(step))
    file.sync()
    assert store.counted() == {"write": 5}
    file.close()


def test_kill_while_rows_are_cut_off_is_made_good_by_the_next_start(store, monkeypatch):
    workdir = storage.path("gs://bucket/run")
    add(workdir, 0, *(row(step) for step in range(1, 9)))
    real, left = storage.remove, [2]

    def killed(place):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(place)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            jsonl.open_for_append(workdir / jsonl.METRICS_FILE, 4)
    add(workdir, 4, row(5, new=1))
    assert read(workdir) == [row(1), row(2), row(3), row(4), row(5, new=1)]


def test_reader_of_the_rows_that_stay_is_not_hurt_by_the_cut(store, monkeypatch):
    workdir = storage.path("gs://bucket/run")
    add(workdir, 0, row(2), row(4), row(6))
    real = storage.listed

    def cut_meanwhile(folder):
        found = real(folder)
        storage.remove(folder / "000000006-000002.jsonl")
        return found

    monkeypatch.setattr(storage, "listed", cut_meanwhile)
    assert jsonl.read_rows(workdir / "metrics.jsonl", 4) == [row(2), row(4)]


def test_row_that_could_not_be_put_raises_before_a_checkpoint_builds_on_it(store, monkeypatch):
    file = jsonl.open_for_append(storage.path("gs://bucket/run") / jsonl.METRICS_FILE, 0)

    def lost(place, content):
        raise storage.StoreLost("gone")

    monkeypatch.setattr(storage, "write", lost)

    def add_and_sync():
        file.add(row(1))
        file.sync()

    with pytest.raises(PeerLost):
        add_and_sync()
    file.close()


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", "1e999", "[1, [-1e999]]"])
def test_row_with_a_number_that_is_not_finite_is_no_row(workdir, bad):
    add(workdir, 0, row(2), row(3, loss=0.5), row(4))
    place = jsonl.rows_path(workdir / jsonl.METRICS_FILE)
    path = place if place.is_file() else place / "000000003-000001.jsonl"
    text = storage.read_all([path])[0].decode()
    assert "0.5" in text
    storage.write(path, text.replace("0.5", bad))
    assert read(workdir) == [row(2), row(4)]
    add(workdir, 4, row(5))
    assert read(workdir) == [row(2), row(4), row(5)]


def test_number_that_is_not_finite_is_refused(workdir):
    file = jsonl.open_for_append(workdir / jsonl.METRICS_FILE, 0)
    with pytest.raises(ValueError, match="JSON"):
        file.add(row(1, loss=float("nan")))
    file.close()


def test_lines_that_are_no_rows_are_numbered_but_for_a_torn_last_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert jsonl.damaged_lines(path) == []
    path.write_text('{"step": 1}\n{"st\n{"step": 2}\n[1]\n{"step": 3, "a": NaN}\n{"step": "4"}\n')
    assert jsonl.damaged_lines(path) == [2, 4, 5, 6]
    path.write_text('{"step": 1}\n{"step": 2, "tra')
    assert jsonl.damaged_lines(path) == []
