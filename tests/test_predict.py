# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax predict`, and the arguments that it shares with other commands."""

import csv
import dataclasses
import io
import os
import subprocess
import sys

import model_commands
import numpy as np
import pytest

import vit_jax
from vit_jax.cli import main
from vit_jax.models import variants


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.integration
def test_likeliest_classes_of_each_image_are_written(digits_run, tmp_path, capsys):
    paths, out = (
        model_commands.digit_files(tmp_path / "images", 12),
        tmp_path / "made" / "preds.csv",
    )
    code, printed, _ = model_commands.command(
        capsys, "predict", digits_run, tmp_path / "images", "--topk=3", f"--out={out}"
    )
    assert (code, printed) == (0, "")
    found = rows(out.read_text())
    assert list(found[0]) == ["image", "rank", "class", "name", "probability"]
    assert [row["image"] for row in found] == [path for path in paths for _ in range(3)]
    assert [row["rank"] for row in found] == ["1", "2", "3"] * 12
    assert all(row["name"] == row["class"] for row in found)  # the digits' names
    model, params, preprocess = vit_jax.load(digits_run)
    logits_NY = model_commands.logits(model, params, preprocess(paths))
    best = np.argsort(-logits_NY, axis=1, kind="stable")[:, :3]
    assert [int(row["class"]) for row in found] == best.ravel().tolist()
    likely = np.exp(logits_NY) / np.exp(logits_NY).sum(axis=1, keepdims=True)
    shown = [float(row["probability"]) for row in found]
    np.testing.assert_allclose(shown, np.take_along_axis(likely, best, 1).ravel(), atol=2e-6)


def test_list_on_standard_input_to_standard_output(digits_run, tmp_path, capsys, monkeypatch):
    paths = model_commands.digit_files(tmp_path, 2)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(paths)))
    code, printed, _ = model_commands.command(capsys, "predict", digits_run, "-", "--topk=1")
    assert code == 0
    assert [row["image"] for row in rows(printed)] == paths


def test_more_classes_than_there_are(digits_run, tmp_path, capsys):
    paths = model_commands.digit_files(tmp_path, 1)
    code, printed, _ = model_commands.command(capsys, "predict", digits_run, *paths, "--topk=99")
    assert code == 0
    assert len(rows(printed)) == 10
    assert sum(float(row["probability"]) for row in rows(printed)) == pytest.approx(1, abs=1e-5)


def test_weights_without_names_have_numbers_and_take_names(digits_run, tmp_path, capsys):
    model, params, _ = vit_jax.load(digits_run)
    file, names = tmp_path / "weights.npz", tmp_path / "names.txt"
    vit_jax.save(file, model, params)
    paths = model_commands.digit_files(tmp_path, 1)
    code, printed, _ = model_commands.command(
        capsys, "predict", file, *paths, "--heads=2", "--topk=1"
    )
    assert code == 0
    [bare] = rows(printed)
    assert bare["name"] == ""
    names.write_text("\n".join(f"digit {k}" for k in range(10)))
    more = ("--heads=2", "--topk=1", f"--names={names}")
    _, printed, _ = model_commands.command(capsys, "predict", file, *paths, *more)
    assert rows(printed)[0]["name"] == f"digit {bare['class']}"


@pytest.mark.integration
def test_images_that_cannot_be_read_are_told_once_the_others_are_written(
    digits_run, tmp_path, capsys
):
    paths, out = model_commands.digit_files(tmp_path, 2), tmp_path / "preds.csv"
    (tmp_path / "broken.png").write_bytes(b"\x89PNG no more")
    code, _, said = model_commands.command(
        capsys, "predict", digits_run, *paths, tmp_path / "broken.png", f"--out={out}"
    )
    assert code == 2
    assert "1 of 3 images cannot be read and are left out, first: " in said
    assert "broken.png" in said
    assert {row["image"] for row in rows(out.read_text())} == set(paths)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--topk=0"], "--topk=0; give a number of classes from 1 on"),
        (["--image_size=-1"], "--image_size=-1; give pixels"),
        (["--image_size=9"], "use 8 or 10 (--image_size)"),
        (["--heads=3"], "heads=3 (--heads), but these weights have 2 heads"),
        (["--out=-"], "--out=- is not a path; give one"),
        (["--out=."], "--out=. is a folder; give a file"),
        (["--out=/proc/none/preds.csv"], "--out=/proc/none/preds.csv cannot be written"),
        (["--out=images/0000.png/preds.csv"], "images/0000.png is not a folder; give another"),
        (["gone.png"], "gone.png does not exist; give images or folders"),
        (["--names=gone.txt"], "--names=gone.txt cannot be read"),
    ],
)
def test_bad_input_is_one_message(digits_run, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    paths = model_commands.digit_files(tmp_path / "images", 1)
    code, printed, said = model_commands.command(capsys, "predict", digits_run, *paths, *words)
    assert (code, printed) == (2, "")
    assert message in said
    assert "Traceback" not in said
    assert sorted(os.listdir(tmp_path)) == ["images"]


def test_weights_without_a_head_have_no_classes(digits_run, tmp_path, capsys):
    model, params, _ = vit_jax.load(digits_run)
    headless = variants.make(dataclasses.replace(model.cfg, classes=0))
    rest = {name: value for name, value in params.items() if name != "head"}
    vit_jax.save(tmp_path / "headless.npz", headless, rest)
    paths = model_commands.digit_files(tmp_path, 1)
    code, _, said = model_commands.command(
        capsys, "predict", tmp_path / "headless.npz", *paths, "--heads=2"
    )
    assert code == 2
    assert "no head" in said


def test_what_is_no_file_is_written_to_and_not_replaced(digits_run, tmp_path, capsys):
    paths = model_commands.digit_files(tmp_path, 1)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    code, _, _ = model_commands.command(
        capsys, "predict", digits_run, *paths, f"--out={tmp_path / 'pipe'}", "--topk=1"
    )
    assert code == 0
    assert len(rows(os.read(reader, 10_000).decode())) == 1
    os.close(reader)


@pytest.mark.integration
@pytest.mark.parametrize("to_file", [True, False])
def test_names_of_files_may_be_any_bytes(digits_run, tmp_path, monkeypatch, to_file):
    [path] = model_commands.digit_files(tmp_path, 1)
    name = os.fsencode(tmp_path) + b"/caf\xe9.png"
    os.rename(path, name)
    read = io.TextIOWrapper(io.BytesIO(name + b"\n"), "utf-8")  # strict, as where people work
    printed = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdin", read)
    monkeypatch.setattr(sys, "stdout", printed)
    out = [f"--out={tmp_path / 'preds.csv'}"] if to_file else []
    assert main.main(["predict", str(digits_run), "-", "--topk=1", *out]) == 0
    printed.flush()
    content = (tmp_path / "preds.csv").read_bytes() if to_file else printed.buffer.getvalue()
    assert content.splitlines()[1].startswith(name + b",1,")


@pytest.mark.integration
def test_names_are_utf_8_whatever_the_locale(digits_run, tmp_path):
    """Paths, classes and output may hold such names; checkpoints are read from such a path too."""
    run = model_commands.with_classes(
        digits_run, tmp_path / "Läufe", {"classes": list("零一二三四五六七八九")}
    )
    [path] = model_commands.digit_files(tmp_path / "Käfer", 1)
    odd = os.fsencode(tmp_path) + b"/\xff.png"
    os.rename(path, odd)
    os.symlink(odd, tmp_path / "Käfer" / "猫.png")
    (tmp_path / "Liste.txt").write_bytes(odd + b"\n")
    environ = os.environ | {
        "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii",
    }  # fmt: skip
    with open(tmp_path / "Liste.txt", "rb") as listed:
        done = subprocess.run(
            [sys.executable, "-m", "vit_jax", "predict", run, tmp_path / "Käfer", "-", "--topk=1"],
            env=environ, stdin=listed, capture_output=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    _, first, second = done.stdout.splitlines()
    assert first.startswith(os.fsencode(tmp_path / "Käfer" / "猫.png") + b",1,")
    assert second.startswith(odd + b",1,")
    assert first.split(b",")[3].decode() in "零一二三四五六七八九"


def test_what_is_printed_is_utf_8_whatever_the_stream_is(image_folder, tmp_path, monkeypatch):
    name = "Käfer 猫"
    os.symlink(image_folder / "train", tmp_path / name)
    streams = {s: io.TextIOWrapper(io.BytesIO(), "ascii") for s in ("stdout", "stderr")}
    for stream, made in streams.items():
        monkeypatch.setattr(sys, stream, made)
    assert main.main(["data", "show", f"folder:{tmp_path}/{name}", f"--out={tmp_path}/猫.png"]) == 0
    assert main.main(["data", "check", f"folder:{tmp_path}/猫.gone"]) == 2
    for made in streams.values():
        made.flush()
        assert "猫" in made.buffer.getvalue().decode()
