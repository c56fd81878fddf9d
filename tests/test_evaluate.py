# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax evaluate`: its figures are those of the run, and classes go by their names."""

import json
import os

import model_commands
import numpy as np
import pictures
import pytest
from test_pages import check

import vit_jax
from vit_jax.cli.main import main


def evaluated(capsys, folder, *words):
    """The JSON, the parsed page and what was printed."""
    code, printed, said = model_commands.command(capsys, "evaluate", *words, f"--out={folder}")
    assert code == 0, said
    page = check((folder / "evaluation.html").read_text())
    return json.loads((folder / "evaluation.json").read_text()), page, printed


def test_figures_are_those_that_the_run_has_measured(digits_run, tmp_path, capsys):
    found, page, printed = evaluated(capsys, tmp_path, digits_run, "--data=digits", "--split=val")
    assert_measured(found, digits_run, "val")
    assert f"top-1 {found['top1']:.2%}" in printed
    assert any(f"top-1 {found['top1']:.2%}" in words for words in page.words)


def assert_measured(found, run, split):
    results = json.loads((run / "results.json").read_text())
    for key in ("top1", "top5", "examples"):
        assert found[key] == pytest.approx(results[split][key]), key


def test_classes_and_confusions_add_up(digits_run, tmp_path, capsys):
    found, page, printed = evaluated(capsys, tmp_path, digits_run)  # its own data, split test
    assert_measured(found, digits_run, "test")
    confusion = np.array(found["confusion"])
    rows = found["classes"]
    assert [(row["label"], row["name"]) for row in rows] == [(k, str(k)) for k in range(10)]
    assert confusion.sum() == found["examples"] == 365
    assert confusion.sum(axis=1).tolist() == [row["examples"] for row in rows]
    right = [row["examples"] * row["accuracy"] for row in rows]
    np.testing.assert_allclose(right, np.diag(confusion))
    assert sum(right) == pytest.approx(found["top1"] * 365)
    for row, taken in zip(rows, confusion.sum(axis=0), strict=True):
        if taken:
            assert row["precision"] == pytest.approx(confusion[row["label"]][row["label"]] / taken)
        else:
            assert row["precision"] is None
    accuracies = [row["accuracy"] for row in rows]
    assert found["mean_class_accuracy"] == pytest.approx(np.mean(accuracies))
    assert sum(tag == "img" for tag, _ in page.seen) == 2
    assert "precision" in printed


def folder_of_digits(root, *, names=str):
    """The first 40 digits in class folders that are not in the order of the classes."""
    for number, (image, label) in enumerate(model_commands.digits(40)):
        place = root / names(label)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(pictures.encode(image))
    return root


def test_images_without_labels_are_refused(digits_run, tmp_path, capsys):
    images = pictures.folder(tmp_path / "images", *(f"{k}.png" for k in range(9)))
    assert main(["evaluate", str(digits_run), f"--data=folder:{images}"]) == 2
    assert f"--data=folder:{images}: its images have no labels" in capsys.readouterr().err


@pytest.mark.integration
def test_classes_of_other_data_go_by_their_names(digits_run, tmp_path, capsys):
    images = folder_of_digits(tmp_path / "images")
    (images / "0").rename(tmp_path / "zeros")  # the others move up by one
    found, _, _ = evaluated(capsys, tmp_path / "a", digits_run, f"--data=folder:{images}")
    confusion = np.array(found["confusion"])
    assert confusion.shape == (10, 10)
    assert confusion[0].sum() == 0
    assert found["classes"][0] == {
        "label": 0, "name": "0", "examples": 0, "accuracy": None,
        "precision": 0.0 if confusion[:, 0].sum() else None,
    }  # fmt: skip
    model, params, preprocess = vit_jax.load(digits_run)
    shown = [(image, label) for image, label in model_commands.digits(40) if label]
    logits = model_commands.logits(model, params, preprocess([x for x, _ in shown]))
    expected = np.zeros((10, 10), int)
    for (_, label), best in zip(shown, np.argmax(logits, axis=1), strict=True):
        expected[label, best] += 1
    np.testing.assert_array_equal(confusion, expected)


@pytest.mark.integration
def test_weights_without_names_are_matched_by_number_or_by_names_given(
    digits_run, tmp_path, capsys
):
    model, params, _ = vit_jax.load(digits_run)
    file, names = tmp_path / "weights.npz", tmp_path / "names.txt"
    vit_jax.save(file, model, params)
    common = (file, "--heads=2", "--split=train[:200]")
    whole, _, _ = evaluated(capsys, tmp_path / "a", *common, "--data=digits")
    assert whole["examples"] == 200
    images = folder_of_digits(tmp_path / "images", names="digit{}".format)
    (images / "digit0").rename(tmp_path / "zeros")
    common = (file, "--heads=2", f"--data=folder:{images}")
    code, _, said = model_commands.command(capsys, "evaluate", *common, f"--out={tmp_path / 'b'}")
    assert code == 2
    assert "has 10 classes without names" in said
    assert "has 9; give the names with --names=FILE" in said
    names.write_text("\n".join(f"digit{k}" for k in range(10)))
    found, _, _ = evaluated(capsys, tmp_path / "b", *common, f"--names={names}")
    assert found["classes"][0]["examples"] == 0
    assert sum(row["examples"] for row in found["classes"]) == found["examples"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--data=digitz"], "unknown --data 'digitz'. Did you mean 'digits'?"),
        (["--data=folder:gone"], "gone"),
        (["--split=tst"], "'tst'. Did you mean 'test'?"),
        (["--names=gone.txt"], "--names=gone.txt cannot be read"),
        (["--out=/proc/none"], "--out=/proc/none/evaluation.json cannot be written"),
        (["--out=file"], "cannot be written"),
        (["--out=-"], "--out=- is not a path; give one"),
        (["--image_size=-2"], "--image_size=-2; give pixels"),
    ],
)
def test_bad_input_is_one_message(digits_run, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, printed, said = model_commands.command(capsys, "evaluate", digits_run, *words)
    assert (code, printed) == (2, "")
    assert message in said
    assert "Traceback" not in said
    assert not [name for name in os.listdir(tmp_path) if name.endswith((".json", ".html"))]


def test_data_whose_classes_the_model_does_not_have(digits_run, image_folder, tmp_path, capsys):
    code, _, said = model_commands.command(
        capsys, "evaluate", digits_run, f"--data=folder:{image_folder}", f"--out={tmp_path}"
    )
    assert code == 2
    assert "2 classes of" in said
    assert "'blue', 'red'" in said
