# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The grammar of sources, the digits, and the fingerprint of a dataset."""

import importlib.util
import itertools
import json
import shlex
import shutil
import subprocess
import sys

import model_commands
import numpy as np
import pytest
from opened_sources import message, opened

from vit_jax.cli import data
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf

# ---------------------------------------------------------------- the grammar


@pytest.mark.parametrize("spec", ["", "digit", "cifar10", "/some/path", "Digits", ":x"])
def test_unknown_kind_lists_all(spec):
    said = message(spec)
    named = repr(spec) if spec else "is not set"
    assert [k for k in (named, "digits", "folder", "csv", "tfds") if k not in said] == []


@pytest.mark.parametrize(
    "spec, meant",
    [
        ("/path/to/images", "folder"), ("./images", "folder"), ("~/images", "folder"),
        ("..", "folder"), ("there", "folder"), ("x.csv", "csv"), ("/data/*.tar", "tar"),
        ("x.tar.gz", "tar"), ("x/train.TFRecord", "records"), ("x-00000-of-00064", "records"),
        ("gs://bucket/images", "folder"),
    ],
)  # fmt: skip
def test_a_path_without_a_kind_is_told_its_kind(tmp_path, monkeypatch, spec, meant):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    quoted = shlex.quote(f"{meant}:{spec}")
    assert f"{spec!r} is a path without a kind; did you mean {quoted}?" in message(spec)


@pytest.mark.parametrize(
    "spec, meant",
    [
        ("{}/sp ace", "did you mean 'folder:{}/sp ace'? Known"),
        ("file://{}/sp%20ace", "did you mean 'folder:{}/sp ace'? Known"),
        ("Folder:{}/sp ace", "Did you mean 'folder:{}/sp ace'? Known"),
        ("floder:{}", "Did you mean folder:{}? Known"),
        ("vtab/eurosat", "Did you mean vtab:eurosat? Known"),
        ("no/there", "did you mean folder:no/there? But no/there does not exist. Known"),
        ("lay/nothere/x", "But lay/nothere/x does not exist."),
        ("{}/1.png", "is one image; give folder:PATH, a folder with a folder of images"),
    ],
)
def test_what_is_suggested_keeps_the_path(tmp_path, spec, meant):
    (tmp_path / "sp ace").mkdir()
    assert meant.format(tmp_path) in message(spec.format(tmp_path))


def test_data_check_tells_of_paths_that_lead_nowhere(capsys):
    for spec, shown in (("lay/nothere/x", "does not exist"), ("1.png", "is one image")):
        code, _, said = model_commands.command(capsys, "data", "check", spec)
        assert (code, shown in said) == (2, True)


@pytest.mark.parametrize("spec", ["CSV:/data/x.csv", "hf:cifar10", "cifar10", "tars:a.tar"])
def test_another_name_is_not_taken_for_a_path(spec):
    assert "is a path" not in message(spec)


def test_every_command_tells_the_kind_of_a_path(digits_run, capsys, tmp_path):
    usual = ["--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}"]
    for words in (
        ["train", *usual, f"--config.data.source={tmp_path}"],
        ["data", "check", tmp_path],
        ["data", "show", tmp_path],
        ["evaluate", digits_run, f"--data={tmp_path}", f"--out={tmp_path / 'out'}"],
        ["features", digits_run, f"--data={tmp_path}", f"--out={tmp_path / 'out'}"],
        ["fewshot", digits_run, f"--data={tmp_path}"],
    ):
        code, printed, said = model_commands.command(capsys, *words)
        assert (code, printed) == (2, "")
        assert f"did you mean folder:{tmp_path}?" in said


@pytest.mark.parametrize(
    "spec, usage",
    [
        ("folder", "folder:PATH"),
        ("csv:", "csv:FILE"),
        ("tfds", "tfds:NAME"),
        ("records:", "records:GLOB"),
        ("tar", "tar:GLOB"),
        ("mix:", "mix:N*SOURCE,N*SOURCE"),
        ("digits:8", "digits"),
    ],
)
def test_kind_without_its_rest_shows_how_to_write_it(spec, usage):
    said = message(spec)
    assert f"write it as {usage}." in said


# ---------------------------------------------------------------- digits


def test_digits_are_those_of_sklearn():
    from sklearn.datasets import load_digits

    wanted = load_digits()
    source = opened("digits")
    split = source.splits["train"]
    assert source.classes == tuple("0123456789")
    assert len(split) == 1797
    read = tf.function(split.reader())
    got = [read(tf.constant(i, tf.int64)) for i in range(1797)]
    assert [label.numpy().tolist() for _, label in got] == [[t] for t in wanted.target]
    images = np.stack([image.numpy() for image, _ in got])
    assert images.dtype == np.uint8
    assert images.shape == (1797, 8, 8, 3)
    grey = np.round(wanted.images * 255 / 16)
    assert (images == grey[..., None]).all()
    assert (images.min(), images.max()) == (0, 255)


@pytest.mark.parametrize(
    "val, test, sizes, first_of_test",
    [
        (10, 20, {"train": 1280, "val": 152, "test": 365}, [8, 14, 15, 19, 24]),
        (10, 10, {"train": 1433, "val": 171, "test": 193}, [15, 38, 66, 70, 74]),
        (0, 20, {"train": 1432, "test": 365}, [8, 14, 15, 19, 24]),
    ],
)
def test_golden_splits_of_digits(val, test, sizes, first_of_test):
    """Changing these numbers makes published accuracies incomparable."""
    source = opened("digits", val, test)
    rows = {name: [int(r) for r in split.rows] for name, split in source.splits.items()}
    assert {name: len(r) for name, r in rows.items()} == sizes
    assert rows["test"][:5] == first_of_test
    assert sorted(itertools.chain(*rows.values())) == list(range(1797))
    assert f"test: {test} % held out of train" in source.notes
    assert source.splits["train"].name(0) == f"digits/{rows['train'][0]:04d}"


def test_digits_are_read_without_importing_sklearn_or_scipy():
    """A second each. (TensorFlow, which comes later, brings them where they are installed.)"""
    script = """
import json, sys
from vit_jax.data.sources import registry as sources
source = sources.open_source("digits", sources.Options(), val_percent=10, test_percent=20)
heavy = ("tensorflow", "sklearn", "scipy", "pandas")
print(json.dumps([[m for m in heavy if m in sys.modules], len(source.splits["test"])]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], 365]


def test_digits_without_sklearn_say_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install scikit-learn" in message("digits")


# ---------------------------------------------------------------- the fingerprint


def test_fingerprint_is_that_of_the_data_wherever_it_lies(tmp_path, image_folder):
    copy = shutil.copytree(image_folder, tmp_path / "copy")
    source = opened(f"folder:{image_folder}")
    found = opened(f"folder:{copy}").fingerprint()
    assert found == source.fingerprint()
    assert found["split train"].startswith("40 examples (")
    assert found["classes"].startswith("2 (")
    next(copy.glob("train/red/*.jpg")).rename(copy / "train" / "red" / "other.jpg")
    changed = opened(f"folder:{copy}").fingerprint()
    assert [k for k in found if changed[k] != found[k]] == ["split train"]
    (copy / "train" / "red").rename(copy / "train" / "pink")
    (copy / "test" / "red").rename(copy / "test" / "pink")
    assert opened(f"folder:{copy}").fingerprint()["classes"] != found["classes"]


@pytest.mark.parametrize("kind", ["folder", "csv"])
def test_slices_of_files_that_lie_class_by_class_have_every_class(tmp_path, kind):
    for name in "abcde":
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "test" / name).mkdir(parents=True)
        for i in range(40):
            (tmp_path / "train" / name / f"{i}.jpg").write_bytes(b"x")
        (tmp_path / "test" / name / "0.jpg").write_bytes(b"x")
    spec = f"folder:{tmp_path}"
    if kind == "csv":
        rows = [f"train/{name}/{i}.jpg,{name},train" for name in "abcde" for i in range(40)]
        rows += [f"test/{name}/0.jpg,{name},test" for name in "abcde"]
        (tmp_path / "all.csv").write_text("\n".join(rows))
        spec = f"csv:{tmp_path / 'all.csv'}"
    source = sources.open_source(spec, Options(), val_percent=0, test_percent=0)
    first, last = source.split("train[:80%]"), source.split("train[80%:]")
    assert (len(first), len(last)) == (160, 40)
    names = [{part.name(i) for i in range(len(part))} for part in (first, last)]
    assert not names[0] & names[1]
    for part, least in ((first, 20), (last, 2)):
        labels = part.table.labels()[np.asarray(part.rows), 0]
        assert np.bincount(labels, minlength=5).min() >= least
    assert (np.diff(first.rows) > 0).all()  # near files stay near


@pytest.mark.parametrize(
    "spec, name", [("tfds:mnist", "mnist"), ("vtab:eurosat/full", "vtab/eurosat")]
)
def test_the_files_that_are_checked_are_those_of_the_dataset(monkeypatch, capsys, spec, name):
    checked = []
    monkeypatch.setattr(data, "_prepared", lambda name, _: checked.append(name) or ({}, [], 2))
    assert model_commands.command(capsys, "data", "check", spec)[0] == 2
    assert checked == [name]
