# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images with boxes in the layouts of YOLO, what is wrong in them, and hostile files."""

import boxed
import numpy as np
import pytest
from opened_sources import message, opened

from vit_jax.cli.main import main
from vit_jax.data.formats import yolo_file


def test_labels_of_yolo():
    text = "\n0 0.5 0.5 0.2 0.4\n 2.0 0.1 0.1 0.3 0.1 0.2 0.6\n\n"
    assert yolo_file.read_labels("") == []
    boxes = yolo_file.read_labels(text)
    assert [label for label, _ in boxes] == [0, 2]
    np.testing.assert_allclose(
        [box for _, box in boxes], [[0.4, 0.3, 0.6, 0.7], [0.1, 0.1, 0.3, 0.6]]
    )
    for line in ("x 1 1 1 1", "0", "0 1 1 1", "0 1 1 1 1 1", "0 nan 1 1 1", "inf 0 0 1 1"):
        with pytest.raises(ValueError, match=r"class and numbers|numbers after the class"):
            yolo_file.read_labels(line)
    with pytest.raises(ValueError, match=r"line 5: '1\.7 .*' begins with 1\.7"):
        yolo_file.read_labels(f"{text}1.7 0.5 0.5 0.1 0.1")


@pytest.mark.parametrize("change", ["dict", "lists", "parent", "path", "file"])
def test_layouts_of_yolo(tmp_path, change):
    root = boxed.yolo(tmp_path / "data", (("train", 2), ("val", 2)))
    names, rest = "names: [disc, square, never]", "train: images/train\nval: images/val"
    if change == "dict":
        names = "names: {0: disc, 1: square, 2: never}"
    elif change == "lists":
        paths = sorted((root / "images/train").iterdir())
        (root / "train.txt").write_text("".join(f"./{p.relative_to(root)}\n" for p in paths))
        rest = "train: [train.txt]\nval: [images/val]"
    elif change == "parent":
        rest = "train: ../images/train\nval: ../images/val"
    elif change == "path":
        rest = f"path: {root}/images\ntrain: train\nval: val"
    (root / "data.yaml").write_text(f"{names}\n{rest}\nnc: 3\n")
    source = opened(f"yolo:{root}/data.yaml" if change == "file" else f"yolo:{root}")
    assert source.classes == boxed.NAMES
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 2, "test": 2}
    np.testing.assert_allclose(boxed.truths(source, "train")[0].boxes, boxed.drawn(0)[1], atol=1e-6)


def test_folder_beside_the_file_comes_before_one_above(tmp_path):
    """Roboflow writes ../train/images for the folder beside the file."""
    above = boxed.yolo(tmp_path, (("train", 3),))
    root = boxed.yolo(tmp_path / "data", (("train", 2),))
    (root / "data.yaml").write_text("names: [disc, square, never]\ntrain: ../images/train")
    source = opened(f"yolo:{root}")
    assert len(source.splits["train"]) == 2
    assert f"train: images of {root}/images/train" in source.notes
    (root / "images").rename(root / "elsewhere")
    source = opened(f"yolo:{root}")
    assert len(source.splits["train"]) == 3
    assert any(note.endswith(f"{root}/../images/train") for note in source.notes), above


@pytest.mark.parametrize("given", ["data.yaml", ".", "../data", "./data.yaml"])
def test_relative_paths_of_yolo_have_their_boxes(tmp_path, monkeypatch, given):
    monkeypatch.chdir(boxed.yolo(tmp_path / "data", (("train", 2),)))
    read = boxed.truths(opened(f"yolo:{given}"), "train")
    np.testing.assert_allclose(read[0].boxes, boxed.drawn(0)[1], atol=1e-6)


def test_images_of_yolo_without_any_labels(tmp_path):
    root = boxed.yolo(tmp_path / "data", (("train", 2), ("val", 2)))
    (root / "labels/val").rename(root / "labels/other")
    said = message(f"yolo:{root}")
    assert f"no image of val has a file of labels; expected {root}/labels/val/0002.txt" in said


def test_check_lists_what_is_wrong_in_yolo(tmp_path, capsys):
    root = boxed.yolo(tmp_path / "data", (("train", 3),))
    (root / "labels/train/0000.txt").write_text(
        "0 0.5 0.5 0 0.1\n1 0.9 0.5 0.5 0.1\n7 0.5 0.5 0.1 0.1"
    )
    found = boxed.checked(capsys, f"yolo:{root}")
    expected = ["no class 7, only 0 to 2", "has no area", "is outside the image"]
    assert [part in reason for part, (_, reason) in zip(expected, found, strict=True)] == [True] * 3
    assert (opened(f"yolo:{root}").splits["train"].numpy_reader()(0)["box_classes"] >= 0).sum() == 1
    (root / "labels/train/0001.txt").write_text("a b c")
    assert "labels/train/0001.txt: line 1: 'a b c' is not a class" in message(f"yolo:{root}")
    assert any("is not a class" in reason for _, reason in boxed.checked(capsys, f"yolo:{root}"))
    main(["data", "check", f"yolo:{root}"])
    assert "without boxes" not in capsys.readouterr().out
    (root / "labels/train/0001.txt").write_bytes("0 0.5 0.5 0.1 0.1 ä".encode("latin-1"))
    assert "labels/train/0001.txt: it is not text in UTF-8" in message(f"yolo:{root}")


@pytest.mark.parametrize(
    "text, part",
    [
        ("[1", "expected YAML"),
        ("- a", "expected YAML"),
        ("names: [a, b]", "names no split"),
        ("train: images", "no list of names"),
        ("names: [a, a]\ntrain: images", "one name"),
        ("names: {0: a, 2: b}\ntrain: images", "are not 0, 1, 2"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nnames: [*b, *b]\ntrain: images", "no list of names"),
        ("names: [a]\ntrain: {a: b}", "a split is not"),
        ("names: [a]\nnc: 2\ntrain: images", "its nc is 2, and it has 1 names"),
        ("names: [a]\nnc: a\ntrain: images", "its nc is 'a'"),
        ("names: [a]\ntrain: gone", "give a folder of images"),
        ("names: [a]\ntrain: labels", "there are no images"),
        ("names: !!python/object/apply:os.system [x]", "expected YAML"),
        ('names: !!int ""', "expected YAML"),
        ("names: !!bool x", "expected YAML"),
        ('names: !!timestamp "x"', "expected YAML"),
        ("names: [yes, 'no']\ntrain: images", "quote it"),
        ("names: [a]\nkpt_shape: [17, 3]\ntrain: images", "poses, which are not read"),
        ("names: [\xe4]\ntrain: images", "data.yaml: it is not text in UTF-8; expected YAML"),
        ("names: [a]\ntrain: list.txt", "list.txt: it is not text in UTF-8; give a folder"),
    ],
)
def test_other_files_than_yolos(tmp_path, text, part):
    (tmp_path / "labels").mkdir()
    (tmp_path / "list.txt").write_bytes(b"\xe4.png")
    (tmp_path / "data.yaml").write_bytes(text.encode("latin-1"))
    assert part in message(f"yolo:{tmp_path}")
