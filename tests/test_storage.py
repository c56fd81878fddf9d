# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Small files on a disk and in a bucket, the latter against an object store on loopback."""

import concurrent.futures
import errno
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vit_jax.checkpoints import retention, step_folders
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, PeerLost
from vit_jax.storage import bucket, checksums
from vit_jax.storage import files as storage
from vit_jax.training import refused_start, workdir
from vit_jax.weights import files


@pytest.mark.parametrize("text", ["/a b/ü", "runs/x", "~/runs", "a:b", "x/gs:/y"])
def test_local_path_is_what_it_always_was(text):
    found = storage.workdir(text)
    assert found == Path(text).expanduser()
    assert isinstance(found, Path)


@pytest.mark.parametrize(
    "text, said",
    [
        ("s3://bucket/run", "s3:// is not read"),
        ("gs:///run", "gs://BUCKET/NAME"),
        ("gs://bucket", "a name inside a bucket"),
        ("gs://bucket/", "a name inside a bucket"),
        ("gs://b/run", "gs://BUCKET/NAME"),
        ("gs://bucket/../run", "has no .."),
        ("gs://bucket/run*", "none of *"),
        ("gs://bucket/run[1]", "none of *"),
    ],
)
def test_address_that_cannot_be_a_workdir_is_refused(text, said):
    with pytest.raises(BadInput, match=said.replace("*", r"\*").replace(".", r"\.")):
        storage.workdir(text)


def test_without_the_extra_a_bucket_is_refused_and_the_extra_named(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "gcsfs" else real(name, *a)
    )
    command = ["train", "--config=configs/quickstart.py", "--workdir=gs://bucket/run"]
    monkeypatch.chdir(Path(__file__).parents[1])
    assert main.main(command) == 2
    assert "pip install 'vit_jax[gcs]'" in capsys.readouterr().err


def test_bucket_that_is_not_there_and_one_without_access_are_told_apart(store):
    with pytest.raises(BadInput, match="there is no bucket bukket"):
        storage.workdir("gs://bukket/run")
    store.forbidden = "bucket/run"
    with pytest.raises(BadInput, match="no access"):
        storage.workdir("gs://bucket/run")
    assert not store.objects


def test_workdir_is_asked_for_once_and_need_not_exist(store):
    assert str(storage.workdir("gs://bucket/a run/ü")) == "gs://bucket/a run/ü"
    assert store.counted() == {"list": 1}


def test_write_is_one_put_and_replaces_the_whole(store):
    place = storage.path("gs://bucket/run/x.json")
    storage.write(place, "long ü content")
    storage.write(place, b"short")
    assert store.counted() == {"write": 2}
    assert store.objects["bucket", "run/x.json"][0] == b"short" == place.read_bytes()


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n", b"\n\n", b"\r\n--", b""])
def test_bytes_that_look_like_ends_of_lines_come_back(store, end):
    content = end + b"a" + end
    place = storage.path("gs://bucket/a")
    storage.write(place, content)
    assert store.objects["bucket", "a"][0] == place.read_bytes() == content


@pytest.mark.parametrize(
    "pattern, folder",
    [("/x*", "/"), ("a/b*/c", "a"), ("*.tar", ""), ("a/b", "a/b"), ("gs://b/x/*.tar", "gs://b/x")],
)
def test_plain_part_of_a_pattern(pattern, folder):
    assert storage.plain(pattern) == folder


def test_an_object_or_a_range_of_it_is_read_by_one_request(store):
    place = storage.path("gs://bucket/data/x.jpg")
    storage.write(place, b"0123456789")
    store.asked.clear()
    assert place.read_bytes() == b"0123456789"
    assert place.read_range(2, 5) == b"234"  # type: ignore[attr-defined]
    assert place.read_range(3, 3) == b""  # type: ignore[attr-defined]
    assert store.counted() == {"read": 2}


def test_write_to_a_disk_leaves_the_old_content_where_it_fails(tmp_path, monkeypatch):
    storage.write(tmp_path / "x", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.write(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_writers_of_one_file_do_not_meet(tmp_path):
    """Also those of names that are as long as a disk allows."""
    place = tmp_path / ("x" * 255)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: storage.write(place, str(i) * 1000), range(10, 200)))
    found = place.read_text()
    assert found in [str(i) * 1000 for i in range(10, 200)]
    assert list(tmp_path.iterdir()) == [place]


def test_create_is_for_one_alone(folder):
    storage.make_folder(folder)
    assert storage.create(folder / "x", "first")
    assert not storage.create(folder / "x", b"second")
    assert storage.read_all([folder / "x"]) == [b"first"]
    assert storage.listed(folder) == [folder / "x"]


def test_create_on_a_disk_without_hard_links(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    test_create_is_for_one_alone(tmp_path)
    with pytest.raises(FileNotFoundError):
        storage.create(tmp_path / "absent" / "x", "")


@pytest.fixture(params=["disk", "bucket"])
def folder(request, tmp_path, store):
    return tmp_path / "run" if request.param == "disk" else storage.path("gs://bucket/run")


def test_folders_are_listed_read_walked_and_removed(folder):
    assert storage.listed(folder) == []
    storage.make_folder(folder / "b" / "c")
    for name in ("a", "b/c/d", "b/ü e"):
        storage.write(folder / name, name)
    storage.write(folder.with_name("run2"), "stays")
    assert storage.listed(folder) == [folder / "a", folder / "b"]
    assert storage.read_all([folder / "a", folder / "b" / "c" / "d"]) == [b"a", b"b/c/d"]
    walked = {str(at.relative_to(folder)): set(files) for at, _, files in storage.walk(folder)}
    assert walked == {".": {"a"}, "b": {"ü e"}, "b/c": {"d"}}
    storage.remove(folder / "a")
    storage.remove(folder)
    storage.remove(folder)
    assert not folder.exists()
    assert folder.with_name("run2").exists()


def test_walk_does_not_visit_what_is_taken_out(folder):
    storage.make_folder(folder / "skip")
    storage.write(folder / "skip" / "x", "")
    for _, inside, names in storage.walk(folder):
        assert "x" not in names
        inside.clear()


def test_what_another_process_writes_is_seen_at_once(store):
    run = storage.path("gs://bucket/run")
    storage.write(run / "a", "")
    assert [p.name for p in storage.listed(run)] == ["a"]
    store.put("bucket", "run/b", b"")
    assert [p.name for p in storage.listed(run)] == ["a", "b"]
    assert (run / "b").exists()


def test_store_that_fails_now_and_then_is_asked_again(store):
    store.fail_every = 3
    places = [storage.path(f"gs://bucket/run/{n}") for n in range(4)]
    for place in places:
        storage.write(place, place.name)
    assert storage.read_all(places) == [b"0", b"1", b"2", b"3"]


def test_store_that_never_answers_asks_for_another_start(store, monkeypatch):
    def lost(*_):
        raise ConnectionError("gone")

    monkeypatch.setattr(bucket.store(), "pipe_file", lost)
    with pytest.raises(PeerLost, match="does not answer: gone") as caught:
        storage.write(storage.path("gs://bucket/run/x"), "")
    assert caught.value.exit_code == 43


def test_step_in_a_bucket_counts_with_its_mark_and_its_checksums(store):
    run = storage.path("gs://bucket/run")
    for name in ("4/state/x", "8/state/x", "8/commit_success.txt", "8/checksums.sha256", "9x/y"):
        storage.write(run / "checkpoints" / name, "")
    assert step_folders.committed(run) == [8]
    step_folders.remove_leftovers(run)
    assert store.names("bucket/run/checkpoints/4") == []
    step_folders.set_aside(run / "checkpoints" / "8")
    assert step_folders.committed(run) == []
    assert step_folders.aside(run) == ["8.damaged"]


def test_what_a_run_that_never_began_has_written_is_removed(store):
    run = storage.path("gs://bucket/run")
    with pytest.raises(BadInput), refused_start.unchanged_if_refused(run):  # noqa: PT012
        storage.write(run / "config.yaml", "")
        storage.write(run / "metrics" / "000000001-000000.jsonl", "")
        raise BadInput("")
    assert store.objects == {}


@pytest.mark.integration
def test_train_in_a_bucket_imports_no_tensorflow_for_it(store):
    code = (
        "import vit_jax; from etils import epath; epath.Path('.').exists();"  # jax's cache does
        "from vit_jax.storage import files as storage; p = storage.workdir('gs://bucket/run');"
        "storage.write(p / 'x', 'y'); assert (p / 'x').read_text() == 'y'; import sys;"
        "assert epath.Path('gs://bucket/run/x').exists();"
        "assert 'tensorflow' not in sys.modules"
    )
    clean = {k: v for k, v in os.environ.items() if k != "EPATH_USE_TF"}  # set in this process
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, env=clean)
    assert store.names() == ["bucket/run/x"]


class ProxyError(Exception):
    """As aiohttp and others have: no OSError."""


@pytest.mark.parametrize(
    "ask",
    [
        lambda place: place.exists(),
        storage.is_dir,
        lambda place: place.stat(),
        files.read_json,
        lambda place: config_lib.load(str(place.with_suffix(".yaml"))),
        lambda place: place.rename(place.with_name("y")),
        lambda place: place.open("rb").__enter__(),
        lambda place: workdir.continue_or_check(None, place),  # type: ignore[arg-type]
        lambda place: checksums.write(place.parent),
        lambda place: checksums.damage(place.parent),
        lambda place: retention.add(place.parent, {}),
        lambda place: retention.read(place.parent),
        step_folders.remove,
        step_folders.set_aside,
    ],
)
def test_every_question_to_a_store_that_is_gone_asks_for_another_start(store, monkeypatch, ask):
    place = storage.path("gs://bucket/run/x")
    storage.write(place, "")

    def lost(*_, **__):
        raise ProxyError("gone")

    for name in ("info", "exists", "open", "cat", "rm", "mv", "pipe_file"):
        monkeypatch.setattr(bucket.store(), name, lost)
    with pytest.raises(PeerLost, match="does not answer: gone"):
        ask(place)


def test_file_is_looked_for_opened_and_renamed(folder):
    storage.make_folder(folder)
    assert not (folder / "a").exists()
    storage.write(folder / "a", "text")
    assert (folder / "a").exists()
    assert folder.exists()
    (folder / "a").rename(folder / "b")
    with (folder / "b").open("rb") as file:
        assert file.read() == b"text"
    with pytest.raises(FileNotFoundError), (folder / "a").open("rb"):
        pass
