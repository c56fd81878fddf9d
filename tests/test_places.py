# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on folders: rights, room, and the clock."""

import errno
import http.server
import os
import threading
import types

import pytest
from test_train import QUICKSTART, TINY

from vit_jax.config import load as config_lib
from vit_jax.preflight.doctor import folders
from vit_jax.storage import files as storage

GIB = 2**30


def test_workdir_that_can_be_written_is_left_as_it_was(tmp_path):
    [found] = folders.workdir(tmp_path / "runs" / "new")
    assert found.ok
    assert f"it would be made in {tmp_path}" in found.said
    assert list(tmp_path.iterdir()) == []
    [found] = folders.workdir(tmp_path)
    assert found.said == f"{tmp_path} can be written"


@pytest.mark.parametrize("below", ["", "runs/new"])
@pytest.mark.parametrize("what", ["file", "loop", "link to nothing"])
def test_workdir_that_is_no_folder_or_lies_below_none(tmp_path, monkeypatch, what, below):
    room(monkeypatch, 2 * GIB)
    place = tmp_path / "x"
    place.touch() if what == "file" else place.symlink_to("x" if what == "loop" else "absent")
    for found in (folders.workdir(place / below), folders.disk({"workdir": place / below}, 0, 0)):
        assert not found[0].ok
        assert f"{place} is not a folder" in found[0].said
    assert folders.clock(place / below, tmp_path)[0].ok
    assert list(tmp_path.iterdir()) == [place]


def test_workdir_may_be_a_link_to_a_folder(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "x").symlink_to("there")
    assert folders.workdir(tmp_path / "x" / "new")[0].ok


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_workdir_that_cannot_be_written(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folders, "_written", refuse)
    [found] = folders.workdir(tmp_path)
    assert os.strerror(number) in found.said
    assert "--workdir" in found.fix


def test_workdir_that_reads_back_something_else(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "read_all", lambda _: [b"other"])
    [found] = folders.workdir(tmp_path)
    assert "what was written is not what is read" in found.said
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- room


def room(monkeypatch, free, inodes=5):
    usage = types.SimpleNamespace(free=free, total=100 * GIB)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: usage)
    nodes = types.SimpleNamespace(f_files=9, f_favail=inodes)
    monkeypatch.setattr(folders.os, "statvfs", lambda _: nodes)


@pytest.mark.parametrize(
    "free, inodes, size, said",
    [
        (2 * GIB, 5, 0, None),
        (GIB // 2, 5, 0, "has 0.5 GiB free of 100.0 GiB, 1.0 GiB are needed"),
        (5 * GIB, 5, 2 * GIB, "6.0 GiB are needed for 3 checkpoints of 2.0 GiB"),
        (7 * GIB, 5, 2 * GIB, None),
        (7 * GIB, 0, 0, "has no room for another file"),
    ],
)
def test_room_that_a_run_needs(tmp_path, monkeypatch, free, inodes, size, said):
    room(monkeypatch, free, inodes)
    [found] = folders.disk({"workdir": tmp_path / "new"}, size, 3)
    assert found.ok == (said is None)
    assert (said or "2.0 GiB free" * (not size)) in found.said


def test_checkpoints_are_only_in_the_workdir(tmp_path, monkeypatch):
    room(monkeypatch, 5 * GIB)
    found = folders.disk({"workdir": tmp_path, "datasets": tmp_path}, 2 * GIB, 3)
    assert [f.said.split()[0] for f in found] == ["workdir"]


def test_checkpoint_holds_parameters_two_moments_and_an_average(tmp_path):
    """Whatever the mesh of the run."""
    sizes = []
    for decay in ("0", "0.9"):
        given = f"--config.ema.decay={decay}", "--config.mesh.fsdp=16"
        file = tmp_path / "config.yaml"
        file.write_text(config_lib.to_yaml(config_lib.load(QUICKSTART, [*TINY, *given])))
        sizes.append(folders.checkpoints(str(file))[0])
    parameters = sizes[1] - sizes[0]
    assert parameters > 10_000
    assert sizes[0] == 3 * parameters + 3 * 4  # and three counts


@pytest.mark.parametrize(
    "given, kept",
    [
        (("keep_last=3", "keep_best=val/loss"), 5),
        (("keep_last=1", "keep_best=", "every=4 steps", "keep_every=6 steps"), 2 + 10),
        (("keep_last=1", "keep_best=", "every=0", "keep_every=6 steps"), 2),
    ],
    ids=str,
)
def test_checkpoints_that_stay_count(tmp_path, given, kept):
    keys = [f"--config.checkpoint.{text}" for text in given]
    file = tmp_path / "config.yaml"
    loaded = config_lib.load(QUICKSTART, [*TINY, "--config.length=120 steps", *keys])
    file.write_text(config_lib.to_yaml(loaded))
    assert folders.checkpoints(str(file))[1] == kept


# ---------------------------------------------------------------- clock


@pytest.mark.parametrize(
    "times, said",
    [
        ((100.0, 100.0, 100.1), None),
        ((100.0, 91.0, 100.0), None),
        ((100.0, 40.0, 101.0), "it is 60 s ahead of the file system of"),
        ((100.0, 161.0, 101.0), "it is 60 s behind the file system of"),
    ],
)
def test_clock_against_the_file_system(tmp_path, monkeypatch, times, said):
    monkeypatch.setattr(folders, "_written", lambda _: times)
    [found] = folders.clock(tmp_path, tmp_path)
    assert found.ok == (said is None)
    assert (said or "as the file system of") in found.said


def test_clock_that_started_anew_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.time, "time", lambda: 1000.0)
    [found] = folders.clock(tmp_path, tmp_path)
    assert "it is 1970-01-01 00:16:40 UTC here" in found.said
    assert "set-ntp" in found.fix


@pytest.mark.parametrize("late, ok", [(0, True), (3600, False)])
def test_clock_against_googles(tmp_path, monkeypatch, late, ok):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, timestamp=None):
            return super().date_time_string(folders.time.time() + late)

        def log_message(self, *_):
            pass

    product = tmp_path / "sys/class/dmi/id/product_name"
    product.parent.mkdir(parents=True)
    product.write_text("Google Compute Engine\n")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(folders, "_METADATA", f"http://127.0.0.1:{server.server_port}/")
        [found] = folders.clock(tmp_path, tmp_path)
        monkeypatch.setenv("VIT_JAX_OFFLINE", "1")
        [offline] = folders.clock(tmp_path, tmp_path)
        server.shutdown()
        thread.join()
    assert found.ok == ok
    assert "Google" in found.said
    assert offline.ok
    assert "Google" not in offline.said


def test_bucket_is_written_to_and_left_as_it_was(store):
    [found] = folders.workdir(storage.path("gs://bucket/runs/new"))
    assert found.ok
    assert "would be made" not in found.line()
    [missing] = folders.workdir(storage.path("gs://another/run"))
    assert not missing.ok
    assert "there is no bucket another" in missing.line()
    assert folders.clock(storage.path("gs://bucket/runs/new"))[0].ok
    assert not store.names("bucket/")
