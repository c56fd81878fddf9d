# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies of files on a disk of the host: whole or not there, and read like their originals."""

import dataclasses
import errno
import hashlib
import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pictures
import pytest
from opened_sources import opened

from vit_jax.cli import main
from vit_jax.data import readers
from vit_jax.data.formats import stored
from vit_jax.data.inspect import bench
from vit_jax.data.ops import chain
from vit_jax.data.sources import record_index
from vit_jax.data.staging import background, command, copies
from vit_jax.errors import BadInput


def source(root):
    """Two classes of 12 images as folder, tar and records."""
    contents = {}
    for number in range(24):
        name = f"{'ab'[number % 2]}/{number:02}.png"
        contents[name] = pictures.encode(pictures.noise(8, 8, seed=number))
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(contents[name])
    pictures.tar(root / "x.tar", contents)
    records = [
        pictures.record(image=image, label=name[0], text=name) for name, image in contents.items()
    ]
    pictures.records(root / "a.tfrecord", records[:11])
    pictures.records(root / "b.tfrecord", records[11:])
    (root / "labels.txt").write_text("a\nb\n")
    (root / "x.csv").write_text("".join(f"{name},{name[0]}\n" for name in contents))
    return root


def spec(root, kind):
    return {
        "folder": f"folder:{root}",
        "csv": f"csv:{root}/x.csv",
        "tar": f"tar:{root}/x.tar",
        "records": f"records:{root}/*.tfrecord",
        "mix": f"mix:1*folder:{root},2*tar:{root}/x.tar",
    }[kind]


def pipe_of(split, reader="python"):
    ops = chain.parse("ops", "decode|random_crop({size})", 6)
    return readers.pipeline_of(reader)(split, ops, 4, 5, (6, 6), 2, 1, fields=None)


def same(expected, made):
    for a, b in zip(expected, made, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("reader", ["tf", "python"])
@pytest.mark.parametrize("kind", ["folder", "csv", "tar", "records", "mix"])
def test_batches_are_the_same_from_the_copies(tmp_path, kind, reader):
    source(tmp_path / "origin")
    text = {"text_key": "text"} if kind == "records" else {}
    split = opened(spec(tmp_path / "origin", kind), **text).split("train")
    background.check("data.stage", split)
    pipe = pipe_of(split, reader)
    expected = list(pipe.train(3, 9))
    folder = copies.Copies("data.stage", str(tmp_path / "nvme"), 0)
    staged, staging = background.begin(folder, pipe, range(4), 3)
    staging._thread.join()
    originals = [p for p in (tmp_path / "origin").rglob("*") if p.suffix in (".png", ".tar")]
    if kind != "records":  # their texts come from the origin
        originals = [path.rename(path.with_suffix(".gone")) for path in originals]
    same(expected, staged.train(3, 9))
    assert staging.served[0] >= 24
    assert staging.served[1] == 0
    staging.close()


def test_images_come_from_the_origin_until_their_copy_is_whole(tmp_path, monkeypatch):
    split = opened(spec(source(tmp_path / "origin"), "folder")).split("train")
    pipe = pipe_of(split)
    slow = background.threading.Event()
    copy = copies.Copies.copy
    monkeypatch.setattr(copies.Copies, "copy", lambda *args: slow.wait() and copy(*args))
    folder = copies.Copies("data.stage", str(tmp_path / "nvme"), 0)
    staged, staging = background.begin(folder, pipe, range(4), 0)
    same(list(pipe.train(0, 3)), staged.train(0, 3))
    assert staging.served[0] == 0
    slow.set()
    staging._thread.join()
    same(list(pipe.train(0, 3)), staged.train(0, 3))
    assert staging.served[0] >= 12
    staging.close()


def test_files_are_copied_in_the_order_of_their_use_by_this_process(tmp_path):
    split = opened(spec(source(tmp_path), "folder")).split("train")
    pipe, rows = pipe_of(split), range(2, 4)
    paths = list(background.paths_in_order(split, background.epoch(pipe, rows, 7)))
    at = split.numpy_order(background.order.stream_seed(5, "order"))
    positions = [step * 4 + row for step in range(7, 13) for row in rows]
    read = split.numpy_reader()
    assert paths[:12] == [read(i)["image"].path for i in at(np.array(positions))]
    assert sorted(paths) == sorted(read(i)["image"].path for i in range(24))


def with_a_bad_record(root):
    """The first record has a label of no class."""
    image = pictures.encode(pictures.noise(8, 8))
    records = [pictures.record(image=image, label=label, text="x") for label in "cab"]
    pictures.records(source(root) / "a.tfrecord", records)
    return root


@pytest.mark.parametrize("reader", ["tf", "python"])
@pytest.mark.parametrize("kind", ["records", "mix"])
def test_an_example_that_cannot_be_read_hinders_no_other(tmp_path, kind, reader):
    records = f"records:{with_a_bad_record(tmp_path / 'origin')}/*.tfrecord"
    kinds = {"records": records, "mix": f"mix:1*{records},1*folder:{tmp_path}/origin"}
    split = opened(kinds[kind]).split("train")
    background.check("data.stage", split)
    pipe = pipe_of(split.take_indices(np.arange(1, len(split))), reader)
    folder = copies.Copies("data.stage", str(tmp_path / "nvme"), 0)
    paths = set(background.paths_in_order(split, iter([np.arange(len(split))])))
    assert len(paths) == {"records": 2, "mix": 26}[kind]
    staged, staging = background.begin(folder, dataclasses.replace(pipe, split=split), range(4), 0)
    staging.close()
    assert staged.split.numpy_example()["labels"].tolist() == [0]
    if reader == "python":
        assert set(staged.field_names) == {"image", "labels"}
    else:
        assert int(staged.split.fields_reader()(1)["labels"][0]) == 0
    assert bench_of(split) == "a.tfrecord/0 cannot be read: label is not one of the 2 classes"


def bench_of(split):
    with pytest.raises(BadInput) as caught:
        bench.bench(split, 1)
    return str(caught.value).partition(". ")[0]


def test_a_source_without_a_readable_example_is_named(tmp_path):
    root = with_a_bad_record(tmp_path)
    (root / "labels.txt").write_text("x\ny\n")
    split = opened(f"records:{root}/a.tfrecord").split("train")
    with pytest.raises(BadInput, match=r"none of the 3 .* such as a\.tfrecord/0"):
        split.numpy_example()


def test_copying_record_files_reads_no_record(tmp_path, monkeypatch):
    split = opened(spec(source(tmp_path), "records")).split("train")
    monkeypatch.setattr(record_index, "reader", lambda *args: pytest.fail("an index is built"))
    background.check("data.stage", split)
    assert len(list(background.paths_in_order(split, iter([])))) == 2


def stage(*arguments):
    return main.main(["data", "stage", *map(str, arguments)])


def test_command_copies_and_a_run_of_it_again_copies_only_what_is_damaged(tmp_path, capsys):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    assert stage(f"folder:{root}", f"--to={to}", "--budget=1MB", "--workers=2") == 0
    said = capsys.readouterr().out
    assert "24 of 24 files" in said
    assert f"--config.data.stage={to} --config.data.stage_budget=1MB\n" in said
    folder = copies.Copies("x", str(to), 10**6)
    names = [folder.place(str(p)) for p in sorted(root.rglob("*.png"))]
    rows = [json.loads(line) for line in (to / copies.LIST).read_text().split("\n") if line]
    assert sorted(row["path"] for row in rows) == sorted(map(str, root.rglob("*.png")))
    for row in rows:
        content = Path(row["path"]).read_bytes()
        assert folder.place(row["path"]).read_bytes() == content
        assert (row["size"], row["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    content = names[3].read_bytes()
    names[3].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # one bit
    names[5].unlink()
    changed = root / "a" / "00.png"
    changed.write_bytes(pictures.encode(pictures.noise(9, 9, seed=99)))
    before = {p: p.stat().st_ino for p in names if p.exists()}
    assert stage(f"folder:{root}", f"--to={to}", "--budget=1MB") == 0
    assert names[3].read_bytes() == content
    assert folder.place(str(changed)).read_bytes() == changed.read_bytes()
    kept = [p for p in before if p.stat().st_ino == before[p]]
    assert len(kept) == 21
    assert not list((to / copies.PARTS).iterdir())


def test_budget_takes_what_is_read_first(tmp_path, capsys):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    sizes = [p.stat().st_size for p in root.rglob("*.png")]
    budget = 5 * max(sizes)
    assert stage(f"folder:{root}", f"--to={to}", f"--budget={budget}", "--workers=1") == 0
    folder = copies.Copies("x", str(to), 0)
    there = {str(p) for p in root.rglob("*.png") if folder.place(str(p)).exists()}
    split = opened(f"folder:{root}").split("train")
    order = split.numpy_order(background.order.stream_seed(0, "order"))(np.arange(24))
    read = split.numpy_reader()
    assert there >= {read(i)["image"].path for i in order[:5]}
    assert sum(folder.place(p).stat().st_size for p in there) <= budget
    assert f"{24 - len(there)} files are over the budget of " in capsys.readouterr().out


def test_budget_that_nobody_gave_is_not_called_an_argument(tmp_path, capsys, monkeypatch):
    root = source(tmp_path / "origin")
    monkeypatch.setattr(copies.Copies, "free", lambda self: 1500)
    assert stage(f"folder:{root}", f"--to={tmp_path / 'nvme'}") == 0
    assert "files are over the budget of 1.4 KB\n" in (said := capsys.readouterr().out)
    assert "--budget" not in said


@pytest.mark.parametrize(
    "text, size",
    [
        ("", 0),
        ("400GB", 400 * 10**9),
        ("2 GiB", 2**31),
        ("1.5k", 1500),
        ("77", 77),
        ("3tb", 3 * 10**12),
    ],
)
def test_sizes(text, size):
    assert copies.budget("--budget", text) == size


@pytest.mark.parametrize("text", ["much", "-1GB", "0", "4 apples", "1e9", "GB"])
def test_other_sizes_are_refused(text):
    with pytest.raises(BadInput, match=r"--budget=.* such as 400GB"):
        copies.budget("--budget", text)


def test_what_cannot_be_staged_is_one_message(tmp_path, capfd):
    root = source(tmp_path / "origin")
    (tmp_path / "file").write_text("x")
    for arguments, shown in [
        (("digits", f"--to={tmp_path / 'n'}"), "digits/0000, are not in such files"),
        (("synthetic:pets", f"--to={tmp_path / 'n'}"), "take a source of the kind folder"),
        ((f"folder:{root}", f"--to={tmp_path / 'file' / 'n'}"), "cannot be written: Not a dir"),
        ((f"folder:{root}", "--to=gs://bucket/x"), "give a folder on a disk"),
        ((f"folder:{root}", "--to="), "--to=: give a folder on a disk"),
        ((f"folder:{root}", f"--to={tmp_path / 'm'}", "--budget=9"), "budget of 9 bytes for "),
        ((f"folder:{root}", f"--to={tmp_path / 'n'}", "--budget=lots"), "such as 400GB"),
    ]:
        assert stage(*arguments) == 2
        said = capfd.readouterr().err
        assert shown in said
        assert "Traceback" not in said
    assert not (tmp_path / "n").exists()


def test_a_full_disk_is_told_and_training_goes_on_from_the_origin(
    tmp_path, monkeypatch, capfd, caplog
):
    root = source(tmp_path / "origin")
    monkeypatch.setattr(copies.Copies, "free", lambda self: 100)
    assert stage(f"folder:{root}", f"--to={tmp_path / 'nvme'}", "--budget=1MB") == 2
    assert "has 100 bytes free, and" in capfd.readouterr().err
    pipe = pipe_of(opened(f"folder:{root}").split("train"))
    folder = copies.Copies("data.stage", str(tmp_path / "nvme"), 10**6)
    staged, staging = background.begin(folder, pipe, range(4), 0)
    staging._thread.join()
    same(list(pipe.train(0, 3)), staged.train(0, 3))
    staging.close()
    [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert os.strerror(errno.ENOSPC) in warning


def test_copy_that_disappears_or_is_cut_is_read_from_the_origin(tmp_path):
    origin, copy = tmp_path / "a", tmp_path / "b"
    origin.write_bytes(b"content")
    copy.write_bytes(b"con")
    read = stored.WholeFile(str(copy)), 7, stored.WholeFile(str(origin))
    assert stored.Staged(*read).read() == b"content"
    copy.unlink()
    assert stored.Staged(*read).read() == b"content"
    part = [stored.FileRange(str(tmp_path / name), 3, 4) for name in ("c", "a")]
    (tmp_path / "c").write_bytes(b"CONTENT")
    assert stored.Staged(part[0], 4, part[1]).read() == b"TENT"


_COPY = """
import sys
from vit_jax.data.staging import copies
write = copies.os.write
def slow(file, data):
    count = write(file, data[:1000])
    print(flush=True)
    sys.stdin.readline()
    return count
copies.os.write = slow
copies.Copies("x", sys.argv[1], 10**9).copy(sys.argv[2])
"""


def test_a_kill_leaves_no_part_under_a_name_and_others_copy_meanwhile(tmp_path):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    path = str(root / "x.tar")
    child = subprocess.Popen(
        [sys.executable, "-c", _COPY, str(to), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()  # some bytes are written
    mine = copies.Copies("x", str(to), 10**9)
    [part] = (to / copies.PARTS).iterdir()  # the part of a living process stays
    assert mine.whole(path) is None
    place = mine.copy(path)
    assert place.read_bytes() == (root / "x.tar").read_bytes()
    place.unlink()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    assert part.exists()
    again = copies.Copies("x", str(to), 10**9)
    assert not list((to / copies.PARTS).iterdir())
    assert again.whole(path) is None
    assert again.copy(path).read_bytes() == (root / "x.tar").read_bytes()
    assert mine.whole(path) is not None  # it sees what another has listed


def test_a_torn_line_of_the_list_is_left_out(tmp_path):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    paths = [str(root / "x.tar"), str(root / "a.tfrecord")]
    one = copies.Copies("x", str(to), 10**9)
    one.copy(paths[0])
    with open(to / copies.LIST, "a") as file:
        file.write('{"name": "x')
    one.copy(paths[1])
    two = copies.Copies("x", str(to), 10**9)
    assert all(two.whole(path) for path in paths)


def test_a_link_to_nowhere_is_one_message(tmp_path, capfd):
    (source(tmp_path / "origin") / "a" / "link.png").symlink_to(tmp_path / "nowhere")
    assert stage(f"folder:{tmp_path / 'origin'}", f"--to={tmp_path / 'nvme'}") == 2
    said = capfd.readouterr().err
    assert "a/link.png cannot be read: No such file or directory. Restore it" in said
    assert "Traceback" not in said


def test_a_file_that_cannot_be_read_does_not_end_staging(tmp_path, caplog):
    root = source(tmp_path / "origin")
    pipe = pipe_of(opened(f"folder:{root}").split("train"))
    first, *_ = background.paths_in_order(pipe.split, background.epoch(pipe, range(4), 0))
    os.unlink(first)
    folder = copies.Copies("data.stage", str(tmp_path / "nvme"), 0)
    _, staging = background.begin(folder, pipe, range(4), 0)
    staging._thread.join()
    assert "in 23 files are staged" in staging.note()
    assert "; 1 files could not be read; " in staging.note()
    [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"{first} cannot be read: No such file" in warning


def test_no_copy_leaves_the_folder_or_takes_the_place_of_another(tmp_path):
    folder = copies.Copies("x", str(tmp_path), 0)
    names = ["gs://b/a", "gs://b/a/b", "gs://b/a//b", "gs://b/a/./b", "gs://b/a/../../../../x",
             "/gs/b/a", "/b/a", "/a"]  # fmt: skip
    places = [Path(os.path.normpath(folder.place(name))) for name in names]
    assert len({*places}) == len(names)
    assert all(tmp_path in place.parents for place in places)
    assert not any(one in other.parents for one in places for other in places)


def test_writers_in_one_folder_share_its_budget(tmp_path, monkeypatch):
    root = source(tmp_path / "origin")
    one, other = (copies.Copies("x", str(tmp_path / "nvme"), 40_000) for _ in range(2))
    path, write, meanwhile = str(root / "x.tar"), os.write, []
    assert 20_000 < os.path.getsize(path) <= 40_000

    def slow(file, data):
        if not meanwhile:
            meanwhile.append(None)
            meanwhile.append(other.copy(path))
        return write(file, data)

    monkeypatch.setattr(copies.os, "write", slow)
    assert one.copy(path) is not None
    assert meanwhile == [None, None]
    assert other.whole(path) is not None


def test_files_that_fit_exactly_are_all_copied_by_threads(tmp_path, monkeypatch):
    paths = [str(p) for p in source(tmp_path / "origin").rglob("*.png")]
    monkeypatch.setattr(copies.os, "fsync", lambda file: None)
    for number in range(5):
        folder = copies.Copies("x", str(tmp_path / str(number)), sum(map(os.path.getsize, paths)))
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(folder.copy, paths))


def test_copies_that_somebody_removed_make_room(tmp_path):
    paths = [str(source(tmp_path / "origin") / name) for name in ("x.tar", "a/00.png")]
    size = os.path.getsize(paths[0])
    place = copies.Copies("x", str(tmp_path / "nvme"), size).copy(paths[0])
    assert copies.Copies("x", str(tmp_path / "nvme"), size).copy(paths[1]) is None
    place.unlink()
    assert copies.Copies("x", str(tmp_path / "nvme"), size).copy(paths[1]) is not None


def test_an_end_does_not_wait_for_a_store_that_hangs(tmp_path, monkeypatch):
    pipe = pipe_of(opened(f"folder:{source(tmp_path / 'origin')}").split("train"))
    begun, hangs = background.threading.Event(), background.threading.Event()
    monkeypatch.setattr(background, "_CLOSE_SECS", 0.01, raising=False)

    def copy(*args):
        begun.set()
        hangs.wait(20)

    monkeypatch.setattr(copies.Copies, "copy", copy)
    _, staging = background.begin(copies.Copies("x", str(tmp_path), 0), pipe, range(4), 0)
    begun.wait()
    staging.close()
    assert staging._thread.is_alive()
    hangs.set()
    staging._thread.join()


def test_a_copy_is_not_compared_to_its_end_after_a_stop(tmp_path):
    path = str(source(tmp_path / "origin") / "x.tar")
    folder = copies.Copies("x", str(tmp_path / "nvme"), 0)
    assert folder.copy(path)
    with pytest.raises(copies.Interrupted):
        folder.whole(path, lambda: True)


def test_no_order_is_computed_after_the_last_file(tmp_path):
    split = opened(spec(source(tmp_path), "records")).split("train")
    asked = []
    order = (asked.append(k) or np.arange(24) for k in range(100))
    assert len(list(background.paths_in_order(split, order))) == 2
    assert asked == [0]


def test_a_worker_that_reads_copies_does_not_import_jax():
    image = stored.Staged(stored.WholeFile("a"), 1, stored.WholeFile("b"))
    code = "import pickle, sys; pickle.load(sys.stdin.buffer); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(image), check=True)


def test_an_interrupt_does_not_wait_for_copies(tmp_path, monkeypatch):
    split = opened(f"folder:{source(tmp_path / 'origin')}").split("train")
    first = iter([tmp_path])

    def copy(self, path, stopped):
        for place in first:
            return place
        while not stopped():
            time.sleep(0.01)
        raise copies.Interrupted

    def interrupt(done, total):
        raise KeyboardInterrupt

    monkeypatch.setattr(copies.Copies, "copy", copy)
    with pytest.raises(KeyboardInterrupt):
        command.stage(split, copies.Copies("x", str(tmp_path / "nvme"), 0), 2, interrupt)


def test_images_of_no_batch_are_not_counted(tmp_path):
    split = opened(f"folder:{source(tmp_path / 'origin')}").split("train")
    folder = copies.Copies("x", str(tmp_path / "nvme"), 0)
    staged, staging = background.begin(folder, pipe_of(split, "tf"), range(4), 0)
    staged.split.fields_reader()
    assert staging.served == [0, 0]
    staging.close()


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["folder", "records"])
def test_copies_of_a_bucket_are_read_in_its_place(tmp_path, store, kind):
    root = source(tmp_path / "origin")
    for path in root.rglob("*"):
        if path.is_file():
            store.put("bucket", f"data/{path.relative_to(root)}", path.read_bytes())
    expected = list(pipe_of(opened(spec(root, kind)).split("train")).train(0, 3))
    pipe = pipe_of(opened(spec("gs://bucket/data", kind)).split("train"))
    folder = copies.Copies("x", str(tmp_path / "nvme"), 0)
    staged, staging = background.begin(folder, pipe, range(4), 0)
    staging._thread.join()
    next(iter(staged.train(0, 1)))  # the list of records is made from the origin, once
    store.asked.clear()
    same(expected, staged.train(0, 3))
    assert "read" not in store.counted()
    assert staging.served[1] == 0
    staging.close()
    assert folder.whole(f"gs://bucket/data/{'a/00.png' if kind == 'folder' else 'a.tfrecord'}")


@pytest.mark.integration
def test_the_commands_of_the_page(tmp_path, capfd, caplog, image_folder, monkeypatch):
    begin = background.begin

    def begin_and_wait(*args):
        pipe, staging = begin(*args)
        staging._thread.join()
        return pipe, staging

    monkeypatch.setattr(background, "begin", begin_and_wait)
    page = (Path(__file__).parent.parent / "docs" / "feeding.md").read_text(encoding="utf-8")
    page = page.replace("\\\n", "")
    commands = re.findall(r"^vit_jax ((?:data stage|train) .*/local/nvme.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    places = {"/path/to/images": str(image_folder), "/local/nvme": str(tmp_path / "nvme"),
              "runs/staged": str(tmp_path / "run")}  # fmt: skip
    keys = {
        "length": "3 steps",
        "schedule.warmup": "1 steps",
        "batch_size": 8,
        "data.image_size": 16,
    }
    tiny = {"variant": "Ti/4", "depth": 1, "width": 32, "heads": 2, "mlp": 32}
    keys |= {f"model.{key}": value for key, value in tiny.items()}
    short = [f"--config.{key}={value}" for key, value in keys.items()]
    for line in commands:
        for given, here in places.items():
            line = line.replace(given, here)
        more = short if line.startswith("train") else []
        assert main.main([*shlex.split(line), *more]) == 0, capfd.readouterr().err
    rows = [json.loads(x) for x in (tmp_path / "run" / "goodput.jsonl").read_text().splitlines()]
    [row] = [row for row in rows if row["event"] == "staged"]
    assert row["bytes"] > 0
    assert row["copies"] >= 3
    assert row["origin"] == 0
    assert "are staged in" in caplog.text + capfd.readouterr().err


def test_the_summary_says_how_fast_origin_and_folder_are_read(tmp_path, monkeypatch):
    file = tmp_path / "a"
    file.write_bytes(bytes(6000))
    made = copies.Copies("--to", str(tmp_path / "to"), 0)
    assert made.speeds() == ""
    now = [0.0]

    def slow(thing, name, secs):
        real = getattr(thing, name)

        def call(*args, **kwargs):
            now[0] += secs
            return real(*args, **kwargs)

        monkeypatch.setattr(thing, name, call, raising=False)

    monkeypatch.setattr(copies, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    slow(copies.byte_ranges, "open_file", 3.0)
    slow(made, "_locked", 50.0)  # neither waiting for the list
    digest = types.SimpleNamespace(update=lambda _: None, hexdigest=lambda: "same")
    slow(digest, "update", 70.0)  # nor checksums are reading
    monkeypatch.setattr(copies.hashlib, "sha256", lambda *_: digest)
    monkeypatch.setattr(copies, "open", open, raising=False)
    slow(copies, "open", 0.5)
    made.copy(str(file))
    assert made.speeds() == "; a reader gets 2.0 KB/s from the origin and 12.0 KB/s from the folder"
