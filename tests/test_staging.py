# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies of files on a disk of the host: whole or not there, and read like their originals."""

import errno
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pictures
import pytest
from opened_sources import opened

from vit_jax.cli import main
from vit_jax.data import readers
from vit_jax.data.ops import chain
from vit_jax.data.staging import background, copies
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
    staging.join()
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
    staging.join()
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


def stage(*arguments):
    return main.main(["data", "stage", *map(str, arguments)])


def test_command_copies_and_a_run_of_it_again_copies_only_what_is_damaged(tmp_path, capsys):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    assert stage(f"folder:{root}", f"--to={to}", "--budget=1MB", "--workers=2") == 0
    said = capsys.readouterr().out
    assert "24 of 24 files" in said
    assert f"--config.data.stage={to}" in said
    names = sorted(p for p in to.rglob("*.png"))
    assert [p.relative_to(to).as_posix() for p in names] == sorted(
        str(p).lstrip("/") for p in root.rglob("*.png")
    )
    rows = [json.loads(line) for line in (to / copies.LIST).read_text().split("\n") if line]
    for row in rows:
        content = (root / f"/{row['name']}").read_bytes()
        assert (row["size"], row["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    content = names[3].read_bytes()
    names[3].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # one bit
    names[5].unlink()
    changed = root / "a" / "00.png"
    changed.write_bytes(pictures.encode(pictures.noise(9, 9, seed=99)))
    before = {p: p.stat().st_ino for p in names if p.exists()}
    assert stage(f"folder:{root}", f"--to={to}", "--budget=1MB") == 0
    assert names[3].read_bytes() == content
    assert (to / str(changed).lstrip("/")).read_bytes() == changed.read_bytes()
    kept = [p for p in before if p.stat().st_ino == before[p]]
    assert len(kept) == 21
    assert not list((to / copies.PARTS).iterdir())


def test_budget_takes_what_is_read_first(tmp_path, capsys):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    sizes = [p.stat().st_size for p in root.rglob("*.png")]
    budget = 5 * max(sizes)
    assert stage(f"folder:{root}", f"--to={to}", f"--budget={budget}", "--workers=1") == 0
    there = {str(p.relative_to(to)) for p in to.rglob("*.png")}
    split = opened(f"folder:{root}").split("train")
    order = split.numpy_order(background.order.stream_seed(0, "order"))(np.arange(24))
    read = split.numpy_reader()
    assert there >= {read(i)["image"].path.lstrip("/") for i in order[:5]}
    assert sum(p.stat().st_size for p in to.rglob("*.png")) <= budget
    assert f"leaves out {24 - len(there)} files" in capsys.readouterr().out


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
        ((f"folder:{root}", f"--to={tmp_path / 'n'}", "--budget=lots"), "such as 400GB"),
    ]:
        assert stage(*arguments) == 2
        said = capfd.readouterr().err
        assert shown in said
        assert "Traceback" not in said


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
    staging.join()
    same(list(pipe.train(0, 3)), staged.train(0, 3))
    staging.close()
    [warning] = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert os.strerror(errno.ENOSPC) in warning


def test_copy_that_disappears_or_is_cut_is_read_from_the_origin(tmp_path):
    origin, copy = tmp_path / "a", tmp_path / "b"
    origin.write_bytes(b"content")
    copy.write_bytes(b"con")
    read = background.WholeFile(str(copy)), 7, background.WholeFile(str(origin))
    assert background.Staged(*read).read() == b"content"
    copy.unlink()
    assert background.Staged(*read).read() == b"content"
    part = [background.FileRange(str(tmp_path / name), 3, 4) for name in ("c", "a")]
    (tmp_path / "c").write_bytes(b"CONTENT")
    assert background.Staged(part[0], 4, part[1]).read() == b"TENT"


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


def test_a_kill_leaves_no_part_under_a_name_and_others_copy_meanwhile(tmp_path, monkeypatch):
    root, to = source(tmp_path / "origin"), tmp_path / "nvme"
    path = str(root / "x.tar")
    child = subprocess.Popen(
        [sys.executable, "-c", _COPY, str(to), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()  # some bytes are written
    monkeypatch.setattr(copies, "_ABANDONED_SECS", -1)
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


@pytest.mark.integration
def test_the_commands_of_the_page(tmp_path, capfd, caplog, image_folder):
    page = (Path(__file__).parent.parent / "docs" / "feeding.md").read_text(encoding="utf-8")
    commands = re.findall(r"^vit_jax ((?:data stage|train) .*/local/nvme.*)$", page, re.MULTILINE)
    assert len(commands) == 2
    places = {"/path/to/images": str(image_folder), "/local/nvme": str(tmp_path / "nvme"),
              "runs/staged": str(tmp_path / "run")}  # fmt: skip
    short = ["--config.length=3 steps", "--config.schedule.warmup=1 steps",
             "--config.data.image_size=16",
             "--config.data.train_ops=decode|inception_crop({size})|flip_lr",
             "--config.data.eval_ops=decode|resize({size})"]  # fmt: skip
    for command in commands:
        for given, here in places.items():
            command = command.replace(given, here)
        more = short if command.startswith("train") else []
        assert main.main([*shlex.split(command), *more]) == 0, capfd.readouterr().err
    rows = [json.loads(x) for x in (tmp_path / "run" / "goodput.jsonl").read_text().splitlines()]
    [row] = [row for row in rows if row["event"] == "staged"]
    assert row["bytes"] > 0
    assert row["copies"] + row["origin"] >= 3
    assert "are staged in" in caplog.text + capfd.readouterr().err
