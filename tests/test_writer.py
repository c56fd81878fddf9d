# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writing: every image once, the same bytes for any workers and after any interruption."""

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import archive_files
import pytest

from vit_jax.data.prepare import layouts, writer
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.source import Options
from vit_jax.data.splits import split as splits
from vit_jax.data.splits import subset
from vit_jax.errors import BadInput

FILES = {
    f"{s}/{c}/{i}.jpg": archive_files.picture(i + 100 * (c == "b") + 50 * (s == "test"))
    for s, n in (("train", 20), ("test", 4))
    for c in ("a", "b")
    for i in range(n)
}
CHILD = """
import os, signal, sys
from pathlib import Path
from vit_jax.data.prepare import layouts, writer
writer._REPORT_EVERY = 1
target = writer.Target("mine", "", "1.0.0", Path(sys.argv[2]), {"train": 5, "test": 2})
def progress(done, total):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
with writer.held(target) as hidden:
    index = layouts.index_images(Path(sys.argv[1]), hidden / "scratch")
    writer.write(index, target, 2, progress)
"""


@pytest.fixture(autouse=True, scope="module")
def _tf():
    tfds_source._tfds()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return archive_files.unpacked(tmp_path_factory.mktemp("images"), FILES)


def target(folder, name="mine", **changes):
    settings = {"shards": {"train": 5, "test": 2}} | changes
    return writer.Target(name, "", "1.0.0", folder, **settings)


def write(images, where, workers=2, progress=lambda done, total: None):
    with writer.held(where) as hidden:
        index = layouts.index_images(images, hidden / "scratch")
        writer.write(index, where, workers, progress)
    return where.folder


@pytest.fixture(scope="module")
def whole(images, tmp_path_factory):
    """Written at one go."""
    return archive_files.tree(write(images, target(tmp_path_factory.mktemp("whole"))))


def test_every_image_is_there_once_with_its_label(images, tmp_path):
    write(images, target(tmp_path))
    options = Options(str(tmp_path))
    source = sources.open_source("tfds:mine", options, val_percent=0, test_percent=0)
    assert source.classes == ("a", "b")
    for split in ("train", "test"):
        expected = [(c, int("/b/" in n)) for n, c in FILES.items() if n.startswith(split)]
        assert sorted(archive_files.pairs(source.splits[split])) == sorted(expected)


def test_tfds_reads_what_was_written(images, tmp_path):
    tfds = tfds_source._tfds()
    write(images, target(tmp_path))
    builder = tfds.builder("mine:1.0.0", data_dir=str(tmp_path))
    assert builder.info.splits["train"].num_examples == 40
    assert builder.info.splits["train"].shard_lengths == [8] * 5
    assert builder.info.supervised_keys == ("image", "label")
    decoders = {"image": tfds.decode.SkipDecoding()}
    found = builder.as_dataset(split="test", decoders=decoders).as_numpy_iterator()
    seen = {(e["file_name"].decode(), e["image"], int(e["label"])) for e in found}
    tests = {n.removeprefix("test/"): c for n, c in FILES.items() if n.startswith("test")}
    assert seen == {(n, c, int(n[0] == "b")) for n, c in tests.items()}
    pixels = next(iter(builder.as_dataset(split="train[:1]").as_numpy_iterator()))["image"]
    assert pixels.shape == (5, 4, 3)


def test_images_of_a_prepared_dataset_are_excluded_by_the_names_of_their_files(images, tmp_path):
    write(images, target(tmp_path))
    source = sources.open_source("tfds:mine", Options(str(tmp_path)), val_percent=0, test_percent=0)
    gone = ["a/3.jpg", "b/7"]
    (tmp_path / "list").write_text("\n".join(gone))
    split = source.splits["train"]
    part, notes = subset.choose(split, exclude=str(tmp_path / "list"), classes=2)
    left = {os.fsdecode(name) for name in splits.split_ids(part)}
    every = {os.fsdecode(name) for name in splits.split_ids(split)}
    assert len(every) == 40
    assert every - left == {"a/3.jpg"}
    assert "first b/7" in notes[0]


def test_neighbours_in_a_file_are_of_all_classes(whole):
    """So any slice of a split is a random one."""
    read = [whole[f"mine-train.tfrecord-0000{i}-of-00005"] for i in range(5)]
    labels = [[b"a/" in r, b"b/" in r] for r in read]
    assert labels == [[True, True]] * 5


@pytest.mark.parametrize("workers", [1, 7])
def test_the_result_does_not_depend_on_the_number_of_workers(images, tmp_path, whole, workers):
    assert archive_files.tree(write(images, target(tmp_path), workers)) == whole


def test_the_result_does_not_depend_on_how_the_images_are_packed(tmp_path, whole):
    archive = archive_files.tar(tmp_path / "x.tgz", dict(reversed(FILES.items())), "w:gz")
    assert archive_files.tree(write(archive, target(tmp_path))) == whole
    assert sorted(os.listdir(tmp_path / "mine")) == ["1.0.0"]


@pytest.mark.parametrize("after", [1, 9, 30, 47])
def test_a_failure_is_resumed_to_the_same_bytes(images, tmp_path, whole, monkeypatch, after):
    where, calls, lock = target(tmp_path), iter(range(1000)), threading.Lock()
    original = writer._record

    def fail(example, content):
        with lock:
            if next(calls) == after:
                raise OSError(errno.ENOSPC, "No space left on device", "x")
        return original(example, content)

    monkeypatch.setattr(writer, "_record", fail)
    with pytest.raises(BadInput, match=r"No space left on device: x.*finished files are kept"):
        write(images, where, 1)
    assert not where.folder.exists()
    kept = {p.name: p.stat().st_mtime_ns for p in where.hidden.glob("*-of-0000?")}
    assert len(kept) == {1: 0, 9: 2, 30: 4, 47: 6}[after]
    monkeypatch.undo()
    seen = []
    assert archive_files.tree(write(images, where, 2, lambda *p: seen.append(p))) == whole
    assert {n: (where.folder / n).stat().st_mtime_ns for n in kept} == kept
    assert max(seen) == (48, 48)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 20, 46])
def test_a_killed_process_is_resumed_to_the_same_bytes(images, tmp_path, whole, after):
    command = [sys.executable, "-c", CHILD, str(images), str(tmp_path), str(after)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not target(tmp_path).folder.exists()
    assert archive_files.tree(write(images, target(tmp_path))) == whole


def test_a_half_written_file_of_a_killed_process_is_written_again(images, tmp_path, whole):
    where = target(tmp_path)
    where.hidden.mkdir(parents=True)
    (where.hidden / "mine-train.tfrecord-00001-of-00005.partial").write_bytes(b"half")
    (where.hidden / "mine-train.tfrecord-00002-of-00005").write_bytes(b"of another plan")
    assert archive_files.tree(write(images, where)) == whole


def test_other_images_do_not_reuse_what_was_written_of_these(images, tmp_path, whole, monkeypatch):
    where = target(tmp_path)
    changed = archive_files.unpacked(
        tmp_path / "other", FILES | {"train/a/0.jpg": archive_files.picture(999, "PNG")}
    )
    monkeypatch.setattr(writer, "_finish", lambda *_: (_ for _ in ()).throw(OSError("stop")))
    with pytest.raises(BadInput, match="stop"):
        write(changed, where)
    monkeypatch.undo()
    assert archive_files.tree(write(images, where)) == whole


def test_two_processes_do_not_write_at_once(images, tmp_path):
    with (
        writer.held(target(tmp_path)),
        pytest.raises(BadInput, match="by another process"),
        writer.held(target(tmp_path)),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_bad_input(images, tmp_path):
    (tmp_path / "mine").write_text("a file is in the way")
    with pytest.raises(BadInput, match=r"mine cannot be prepared: .*--data_dir"):
        write(images, target(tmp_path))


def test_a_disk_that_is_too_small_is_said_before_writing(images, tmp_path, monkeypatch):
    monkeypatch.setattr(writer.shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    size = sum(map(len, FILES.values()))
    with pytest.raises(BadInput, match=f"needs {size} bytes more .* 100 are free"):
        write(images, target(tmp_path))
    assert not list(tmp_path.rglob("*.tfrecord*"))


def test_files_that_are_no_images_are_left_out_and_listed(tmp_path):
    bad = {
        "train/a/html.jpg": b"<html>",
        "train/b/empty.jpg": b"",
        "train/b/cut.png": archive_files.picture(1, "PNG")[:20],
    }
    images = archive_files.unpacked(tmp_path / "images", FILES | bad)
    folder = write(images, target(tmp_path))
    listed = dict(json.loads((folder / "vit_jax.json").read_text())["left_out"])
    assert listed["a/html.jpg"] == "not an image"
    assert listed["b/empty.jpg"] == "the file is empty"
    assert set(listed) == {"a/html.jpg", "b/empty.jpg", "b/cut.png"}
    info = json.loads((folder / "dataset_info.json").read_text())
    lengths = {s["name"]: sum(map(int, s["shardLengths"])) for s in info["splits"]}
    assert lengths == {"train": 40, "test": 8}


def test_a_dataset_that_is_used_whole_takes_no_bad_image(tmp_path):
    images = archive_files.unpacked(tmp_path / "images", FILES | {"train/a/html.jpg": b"<html>"})
    where = target(tmp_path, complete=True)
    with pytest.raises(BadInput, match=r"1 images cannot be read, first a/html.jpg: not an image"):
        write(images, where)
    assert not where.folder.exists()


def test_images_in_any_format_and_size_of_header_are_taken(tmp_path):
    kinds = ("JPEG", "PNG", "BMP", "GIF", "WEBP")
    kinds = {f"{c}/{i}.jpg": archive_files.picture(i, k) for c in "ab" for i, k in enumerate(kinds)}
    folder = write(archive_files.unpacked(tmp_path / "images", kinds), target(tmp_path))
    assert json.loads((folder / "vit_jax.json").read_text())["left_out"] == []


@pytest.mark.parametrize("size, images, expected", [
    (1, 10, 1), (100 << 20, 1000, 1), (1 << 30, 10_000, 6),
    (3 << 40, 14_000_000, 1024), (1 << 40, 7, 7),
])  # fmt: skip
def test_files_have_about_192_mib(tmp_path, size, images, expected):
    images = min(images, 5000)
    member = layouts.Member("x", -(-size // images), "x")
    examples = [layouts.Example(str(i), 0, member) for i in range(images)]
    plan = writer._plan(examples, "train", target(tmp_path, shards={}))
    assert len(plan) == expected
    assert sorted(e.name for _, part in plan for e in part) == sorted(e.name for e in examples)
    assert max(len(p) for _, p in plan) - min(len(p) for _, p in plan) <= 1


def test_a_config_has_its_own_folder_and_name(images, tmp_path):
    where = writer.Target("many", "one", "1.0.0", tmp_path)
    write(images, where)
    assert where.folder == tmp_path / "many" / "one" / "1.0.0"
    builder = tfds_source._tfds().builder("many/one", data_dir=str(tmp_path))
    assert builder.info.full_name == "many/one/1.0.0"


def test_a_full_disk_is_one_message(images, tmp_path, monkeypatch):
    where = target(tmp_path)
    (where.hidden / "done").mkdir(parents=True)
    monkeypatch.setattr(writer, "_resume", lambda *_: None)  # it tidies up
    (where.hidden / "mine-train.tfrecord-00001-of-00005.partial").symlink_to("/dev/full")
    with pytest.raises(BadInput, match=r"No space left on device.*partial.*free some space"):
        write(images, where)
    assert os.listdir(tmp_path / "mine") == [".incomplete-1.0.0"]


def bad(part):
    return FILES | {n: b"<html>" for n in FILES if n.startswith(part)}


@pytest.mark.parametrize("part, split, number", [("test/", "test", 8), ("train/", "train", 40)])
def test_a_split_of_which_nothing_can_be_read_is_refused(tmp_path, part, split, number):
    images = archive_files.unpacked(tmp_path / "images", bad(part))
    where = target(tmp_path / "data")
    said = rf"none of the {number} images of {split} can be read: ./\d+.jpg: not an image; "
    with pytest.raises(BadInput, match=said):
        write(images, where)
    assert not where.folder.exists()


def test_images_that_were_replaced_by_others_of_their_size_are_read_again(tmp_path, whole):
    size = {n: len(c) for n, c in FILES.items()}
    files = FILES | {n: bytes(size[n]) for n in FILES if n.startswith("test/")}
    images, where = archive_files.unpacked(tmp_path / "images", files), target(tmp_path / "data")
    with pytest.raises(BadInput, match="none of the 8 images of test"):
        write(images, where)
    archive_files.unpacked(images, FILES)
    assert archive_files.tree(write(images, where)) == whole


def test_what_can_be_read_must_be_what_the_layout_accepts(tmp_path):
    images = archive_files.unpacked(tmp_path / "images", FILES | {"train/a/html.jpg": b"<html>"})
    where, seen = target(tmp_path / "data"), {}

    def accepts(kept):
        seen.update({split: {e.name for e in examples} for split, examples in kept.items()})
        raise BadInput("too few.")

    index = dataclasses.replace(layouts.index_images(images, tmp_path / "scratch"), accepts=accepts)
    with (
        writer.held(where),
        pytest.raises(BadInput, match=r"too few\. .*: a/html.jpg: not an image"),
    ):
        writer.write(index, where, 1, lambda done, total: None)
    assert seen == {
        s: {n.partition("/")[2] for n in FILES if n.startswith(s)} for s in ("train", "test")
    }
    assert not where.folder.exists()


@pytest.mark.parametrize("at", ["rename", "rmtree"])
def test_a_kill_while_tidying_up_loses_nothing(images, tmp_path, whole, monkeypatch, at):
    where, calls = target(tmp_path), []
    original = shutil.rmtree

    def fail(path, *args, **kwargs):
        calls.append(path.name)
        if at == "rmtree" or path.name.startswith(".incomplete"):
            raise KeyboardInterrupt
        return original(path, *args, **kwargs)

    write_shards = writer._shards

    def shards(*args):  # from here on nothing but the end is left
        monkeypatch.setattr(writer.shutil, "rmtree", fail)
        if at == "rename":
            rename = writer.Path.rename
            monkeypatch.setattr(
                writer.Path, "rename",
                lambda self, to: fail(self) if self == where.hidden else rename(self, to),
            )  # fmt: skip
        return write_shards(*args)

    monkeypatch.setattr(writer, "_shards", shards)
    with pytest.raises(KeyboardInterrupt):
        write(images, where)
    monkeypatch.undo()
    assert calls[0] == "scratch"
    kept = {p.name: p.stat().st_mtime_ns for p in where.hidden.glob("*-of-0000?")}
    assert len(kept) == 7
    assert archive_files.tree(write(images, where)) == whole
    assert {n: (where.folder / n).stat().st_mtime_ns for n in kept} == kept


def test_a_folder_that_holds_something_else_is_in_the_way(images, tmp_path):
    where = target(tmp_path)
    archive_files.unpacked(where.folder, {"mine.txt": b"x"})
    with pytest.raises(BadInput, match=r"1\.0\.0 is in the way: it is not empty"):
        write(images, where)
    assert archive_files.tree(tmp_path) == {"mine/1.0.0/mine.txt": b"x"}


def test_a_try_that_wrote_nothing_leaves_no_folders(tmp_path):
    images = archive_files.unpacked(tmp_path / "images", {"a/1.jpg": b""})
    where = writer.Target("mine", "one", "1.0.0", tmp_path / "data")
    with pytest.raises(BadInput, match="two classes or more, found one: "):
        write(images, where)
    assert list((tmp_path / "data").rglob("*")) == []
