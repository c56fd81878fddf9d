# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Evaluations as text and pages: what is listed, in which order, and with how many classes."""

import io

import numpy as np
import pictures
import pytest
from PIL import Image
from test_pages import check

from vit_jax.analysis import confusion
from vit_jax.reports import drawing, evaluation_page


def made(labels, best, classes):
    """Of one label each; names are those of the numbers."""
    labels, best = np.array(labels, np.int32)[:, None], np.array(best)[:, None]
    return evaluation_page.Evaluated(
        weights="runs/<mine>", data="folder:x", split="test",
        classes=tuple(f"name{k}" for k in range(classes)),
        measured=confusion.measure(best, labels, classes),
        mistakes=evaluation_page.mistakes(
            pictures.split(len(labels)), labels, best[:, 0], np.linspace(0, 1, len(labels))
        ),
    )  # fmt: skip


def test_mistakes_are_the_surest_ones():
    labels = np.array([[0, -1], [1, 2], [-1, -1], [2, -1]], np.int32)
    found = evaluation_page.mistakes(
        pictures.split(4), labels, np.array([1, 2, 0, 0]), np.array([0.2, 0.9, 0.3, 0.3])
    )
    assert [(m.example, m.labels, m.taken_for, m.probability) for m in found] == [
        ("noise/2", (), 0, 0.3), ("noise/3", (2,), 0, 0.3), ("noise/0", (0,), 1, 0.2),
    ]  # fmt: skip


def test_worst_classes_come_first_and_those_without_examples_last():
    text = evaluation_page.as_text(made([0, 0, 1, 3, 3], [0, 1, 1, 1, 1], 5))
    lines = [line.split() for line in text.splitlines()]
    start = lines.index(["class", "examples", "accuracy", "precision"]) + 2
    assert [line[0] for line in lines[start : start + 5]] == [
        "name3", "name0", "name1", "name2", "name4",
    ]  # fmt: skip
    assert lines[start : start + 4] == [
        ["name3", "2", "0.0%", "-"], ["name0", "2", "50.0%", "100.0%"],
        ["name1", "1", "100.0%", "25.0%"], ["name2", "0", "-", "-"],
    ]  # fmt: skip
    assert ["name3", "name1", "2"] in lines


@pytest.mark.parametrize("classes", [2, 30, 300])
def test_page_is_whole_with_few_and_with_many_classes(classes):
    rng = np.random.default_rng(0)
    labels, best = rng.integers(0, classes, (2, 500))
    page = check(evaluation_page.page(made(labels, best, classes)))
    assert sum(tag == "img" for tag, _ in page.seen) == 2
    assert sum(tag == "tr" for tag, _ in page.seen) == (
        3 + min(classes * (classes - 1), 20) + 20 + classes
    )
    assert "Evaluation of runs/<mine>" in page.words


def test_no_matrix_of_very_many_classes():
    page = check(evaluation_page.page(made([0, 2400], [0, 1], 2500)))
    assert sum(tag == "img" for tag, _ in page.seen) == 1
    assert "No matrix is drawn of more than 2,000 classes." in page.words


def test_matrix_is_dark_where_examples_are():
    counts = np.array([[9, 0], [2, 0]])  # both are taken for the first class
    drawn = np.asarray(Image.open(io.BytesIO(drawing.confusions(["a", "$b"], counts))).convert("L"))
    dark = (drawn < 80).mean(axis=1)
    assert dark[drawn.shape[0] // 4] > 0.2
    assert dark[drawn.shape[0] * 5 // 8] > 0.2
