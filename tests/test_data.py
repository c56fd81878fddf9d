# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The command `vit_jax data`: what it prints, what it writes, how it ends."""

import io
import json
import os
import re

import numpy as np
import pictures
import pytest
from PIL import Image

from vit_jax.cli import main
from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.ops import chain as preprocess
from vit_jax.storage import offline


@pytest.fixture
def images(tmp_path):
    return pictures.folder(tmp_path / "images", *[f"{c}/{i}.png" for c in "ab" for i in range(4)])


def run(capsys, *argv):
    code = main.main(["data", *map(str, argv)])
    said = capsys.readouterr()
    return code, said.out, said.err


# ---------------------------------------------------------------- check


def test_check_lists_every_bad_file_and_exits_with_2(images, capsys):
    (images / "a" / "text.jpg").write_text("not an image")
    (images / "b" / "empty.png").write_bytes(b"")
    whole = pictures.encode(pictures.smooth(40, 50), "JPEG")
    (images / "b" / "half.jpeg").write_bytes(whole[: len(whole) // 2])
    (images / "b" / "really_a.png").write_bytes(whole)
    code, out, _ = run(capsys, "check", f"folder:{images}", "--json")
    found = json.loads(out)
    assert code == 2
    assert set(found) == {"images", "classes", "bad"}
    assert (found["images"], found["classes"]) == (12, 2)
    assert {b["file"] for b in found["bad"]} == {"a/text.jpg", "b/empty.png", "b/half.jpeg"}
    assert all(b["reason"] for b in found["bad"])
    code, out, _ = run(capsys, "check", f"folder:{images}")
    assert code == 2
    assert "12 images in 2 classes, 3 bad" in out


def test_check_of_good_images_exits_with_0(images, capsys):
    code, out, _ = run(capsys, "check", f"folder:{images}", "--json", "--workers=2")
    assert code == 0
    assert json.loads(out) == {"images": 8, "classes": 2, "bad": []}


def test_check_of_a_name_says_what_is_missing(tmp_path, capsys):
    code, out, _ = run(capsys, "check", "vtab", f"--data_dir={tmp_path}", "--json")
    assert code == 2
    found = json.loads(out)["datasets"]
    assert len(found) == 16  # some of the 19 tasks share a dataset
    assert {need["state"] for need in found} == {"needs files"}
    for name in ("vtab:eurosat", "vtab:eurosat/full", "vtab/eurosat", "tfds:eurosat"):
        code, out, _ = run(capsys, "check", name, f"--data_dir={tmp_path}")
        assert code == 2
        assert "EuroSAT.zip  94280567 bytes  sha256 8ebea6" in out
        assert str(tmp_path) in out


def test_tasks_of_one_dataset_are_named_also_where_it_is_ready(tmp_path, capsys, monkeypatch):
    also = ("vtab/clevr_dist",)
    need = downloads.Need("vtab/clevr_count", "clevr:3.1.0", "ready", str(tmp_path), also=also)
    state = prepared.Prepared("clevr:3.1.0", str(tmp_path), "tfrecord", 8, {}, (), ())
    monkeypatch.setattr(downloads, "needs", lambda name, data_dir: [need])
    monkeypatch.setattr(prepared, "check", lambda folder: state)
    code, out, _ = run(capsys, "check", "vtab/clevr_count")
    assert code == 0
    assert "also vtab/clevr_dist" in out


def test_check_of_records_with_several_labels_takes_their_number(tmp_path, capsys):
    image = pictures.encode(pictures.noise(6, 6), "PNG")
    contents = [pictures.record(img=image, ks=[0, 1][:n]) for n in (1, 2, 2)]
    pictures.records(tmp_path / "x.tfrecord", contents)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    keys = ["--image_key=img", "--label_key=ks"]
    assert run(capsys, "check", f"records:{tmp_path}", *keys)[0] == 2
    code, out, _ = run(capsys, "check", f"records:{tmp_path}", *keys, "--max_labels=2", "--json")
    assert code == 0
    assert json.loads(out) == {"images": 3, "classes": 2, "bad": []}


def test_check_takes_every_kind_of_source(capsys):
    assert run(capsys, "check", "digits")[:2] == (0, "1797 images in 10 classes, 0 bad\n")


def test_name_of_a_bad_file_may_be_any_bytes(images, capsys):
    (images / "a" / os.fsdecode(b"\xff.png")).write_bytes(b"")
    code, out, _ = run(capsys, "check", f"folder:{images}")
    assert code == 2
    assert "a/\\udcff.png: " in out


# ---------------------------------------------------------------- show


def test_show_writes_a_picture(images, tmp_path, capsys):
    out = tmp_path / "sheet.png"
    args = ["show", f"folder:{images}", f"--out={out}", "--size=6", "--ops=decode|flip_lr"]
    assert run(capsys, *args) == (0, f"{out}\n", "")
    first = out.read_bytes()
    sheet = np.asarray(Image.open(io.BytesIO(first)))
    assert sheet.shape[1] > 600
    assert len(np.unique(sheet)) > 100
    run(capsys, *args)
    assert out.read_bytes() == first
    run(capsys, *args, "--seed=1")
    assert out.read_bytes() != first


# ---------------------------------------------------------------- prepare


def test_what_is_prepared_is_checked_and_trained_on(images, tmp_path, capsys):
    to = f"--data_dir={tmp_path / 'sets'}"
    code, out, _ = run(capsys, "prepare", "mine", f"--from={images}", to)
    assert code == 0
    assert "tfds:mine" in out
    code, out, _ = run(capsys, "check", "tfds:mine", to, "--json", "--offline")
    assert code == 0
    [found] = json.loads(out)["datasets"]
    assert found["splits"]["train"]["records"] == 8
    assert found["problems"] == []
    code, out, _ = run(capsys, "prepare", "mine", f"--from={images}", to)
    assert code == 0
    assert "already" in out


# ---------------------------------------------------------------- bad input


@pytest.fixture(autouse=True)
def _network_is_as_it_was(monkeypatch):
    for name in ("VIT_JAX_OFFLINE", "NO_GCE_CHECK", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("argv", [("--offline", "check"), ("check", "--offline")])
def test_offline_is_heard_before_and_after_the_action(images, capsys, argv):
    assert offline.allowed()
    assert run(capsys, *argv, f"folder:{images}")[0] == 0
    assert not offline.allowed()


@pytest.mark.parametrize(
    "argv, parts",
    [
        (["check", "floder:/x"], ["'floder:/x'", "folder"]),
        (["check", "folder:"], ["folder:PATH"]),
        (["check", "folder:/no/such"], ["/no/such", "does not exist"]),
        (["check", "imagenet2013"], ["imagenet2013", "imagenet2012"]),
        (["show", "digits", "--size=0"], ["--size=0", "1 to 4096"]),
        (["show", "digits", "--ops=decode|spin"], ["--ops", "'spin'", "flip_lr"]),
        (["show", "digits", "--ops=decode|resize(8)", "--size=9"], ["size"]),
        (
            ["show", "digits", "--size=8", "--ops=decode", "--out=/proc/none/x.png"],
            ["--out=/proc/none/x.png cannot be written"],
        ),
        (["show", "digits", "--out=-"], ["--out=- is not a path"]),
        (["bench", "digits"], ["pixels"]),
        (["check", "digits", "--workers=-1"], ["--workers=-1"]),
        (["prepare", "mine", "--from=/no/such"], ["/no/such"]),
        (["prepare", "imagenet21k", "--from=/"], ["--release", "winter21", "fall11"]),
    ],
)
def test_bad_input_is_one_message(tmp_path, monkeypatch, capsys, argv, parts):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("vit_jax:") == 1
    assert [p for p in parts if p not in err] == []
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- its pages


def test_chains_of_the_page_have_the_published_sizes(root):
    text = (root / "docs" / "preprocessing.md").read_text()
    rows = re.findall(r"^\| `(decode\\.*?)` \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for chain, of in rows:
        sizes = [int(n) for n in re.findall(r"\b(224|256|384|448)\b", of)]
        size = 224 if 224 in sizes else 384
        ops = preprocess.parse("k", chain.replace("\\|", "|"), size)
        made = [op.size for op in ops if hasattr(op, "size")]
        assert made[-1] == size
        assert set(sizes) <= set(made)


def test_the_pages_list_every_source_and_every_op(root):
    from vit_jax.data.sources import registry as sources

    text = (root / "docs" / "data.md").read_text()
    for usage, _ in sources.KINDS.values():
        assert f"`{usage.partition(':')[0]}" in text
    text = (root / "docs" / "preprocessing.md").read_text()
    for name in preprocess.OPS:
        assert re.search(rf"`{name}[(`|]", text), name
