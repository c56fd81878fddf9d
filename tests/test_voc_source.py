# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images with boxes in the layout of Pascal VOC, what is wrong in it, and hostile files."""

import shutil

import boxed
import numpy as np
import pytest
from opened_sources import message, opened
from PIL import Image

from vit_jax.cli.main import main
from vit_jax.data.formats import voc_file


def test_difficult_objects_and_lists_of_voc(tmp_path, capsys):
    root = boxed.voc(tmp_path / "data", (("trainval", 3), ("test", 2)), difficult={(0, 1)})
    source = opened(f"voc:{root}")
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 3, "test": 2}
    true = boxed.truths(source, "train")[0]
    assert true.ignored.tolist() == [False, True, False, False]
    assert true.id == "0000"
    fields = source.splits["train"].numpy_reader()(0)
    np.testing.assert_array_equal(fields["boxes"][:3], boxed.drawn(0)[1][[0, 2, 3]])
    assert boxed.checked(capsys, f"voc:{root}") == []


def test_voc_has_masks_and_boxes(tmp_path):
    root = boxed.voc(tmp_path / "data", (("train", 3),))
    for folder in ("SegmentationClass", "ImageSets/Segmentation"):
        (root / folder).mkdir()
    rows, columns = boxed.drawn(0)[0].shape[:2]
    Image.fromarray(np.zeros((rows, columns), np.uint8)).save(root / "SegmentationClass/0000.png")
    (root / "JPEGImages/0000.png").rename(root / "JPEGImages/0000.jpg")
    (root / "ImageSets/Segmentation/train.txt").write_text("0000\n")
    source = opened(f"voc:{root}")
    assert "mask" in source.splits["train"].numpy_reader()(0)
    assert f"for boxes, give voc:{root}/ImageSets/Main" in " ".join(source.notes)
    assert "mask" in opened(f"voc:{root}/ImageSets/Segmentation").splits["train"].numpy_reader()(0)
    source = opened(f"voc:{root}/ImageSets/Main")
    assert len(source.splits["train"]) == 3
    assert "boxes" in source.splits["train"].numpy_reader()(0)


@pytest.mark.parametrize(
    "folders, sizes",
    [
        (("train", "valid", "test"), {"train": 3, "val": 3, "test": 3}),
        (("train", "val"), {"train": 3, "test": 3}),
        (("train",), {"train": 3}),
        ((".",), {"train": 3}),
    ],
)
def test_voc_with_images_beside_their_files(tmp_path, folders, sizes):
    made = boxed.voc(tmp_path / "made", (("train", 3),))
    for folder in folders:
        root = tmp_path / "data" / folder
        root.mkdir(parents=True, exist_ok=True)
        for path in (*(made / "JPEGImages").iterdir(), *(made / "Annotations").iterdir()):
            shutil.copy(path, root)
    source = opened(f"voc:{tmp_path}/data")
    assert {name: len(split) for name, split in source.splits.items()} == sizes
    image = np.asarray(Image.open(source.splits["train"].numpy_reader()(0)["image"].path))
    seed = int(source.splits["train"].name(0)[-8:-4])
    np.testing.assert_array_equal(image, boxed.drawn(seed)[0])
    np.testing.assert_array_equal(boxed.truths(source, "train")[0].boxes, boxed.drawn(seed)[1])


def test_voc_without_lists_is_read_whole(tmp_path):
    root = boxed.voc(tmp_path / "data", (("train", 3), ("val", 2)))
    shutil.rmtree(root / "ImageSets")
    source = opened(f"voc:{root}")
    assert sum(map(len, source.splits.values())) == 5
    assert f"all: all of {root}/Annotations" in source.notes
    assert "lacks Annotations, or lists" in message(f"voc:{root}/ImageSets/Main")


def test_classes_of_voc_are_its_own_or_those_of_a_file(tmp_path):
    root = boxed.voc(tmp_path / "data", (("train", 1),))
    xml = root / "Annotations/0000.xml"
    xml.write_text(
        boxed.voc_xml([boxed.voc_object(k, [0, 0, 9, 9]) for k in ("dog", "cat")], (40, 40))
    )
    source = opened(f"voc:{root}")
    assert len(source.classes) == 20
    assert source.classes[boxed.truths(source, "train")[0].classes[0]] == "dog"
    names = tmp_path / "names.txt"
    names.write_text("cat\nbird\n")
    source = opened(f"voc:{root}", label_names=str(names))
    assert boxed.truths(source, "train")[0].classes.tolist() == [0]
    assert "1 boxes left out, whose class has no name in the file of classes" in source.notes[0]


BOMB = (
    '<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<annotation><object><name>&b;</name></object></annotation>"
)


@pytest.mark.parametrize(
    "text, part",
    [
        (BOMB, "it has a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "it has a document type"),
        ("<annotation>", "it is not XML"),
        ('<?xml version="1.0" encoding="foo"?><annotation/>', "it is not XML: unknown encoding"),
        ("<html/>", "expected <annotation>"),
        ("<annotation><object><name>a</name></object></annotation>", "'' stands where a number"),
        (boxed.voc_xml([boxed.voc_object("a", [1, 2, float("nan"), 3])]), "'nan' stands where"),
        (boxed.voc_xml([boxed.voc_object("", [1, 2, 3, 3])]), "an object has no name"),
    ],
)
def test_damaged_and_hostile_files_of_voc(tmp_path, capsys, text, part):
    for encoding in ("utf-8", "utf-16"):
        with pytest.raises(ValueError, match=part):
            voc_file.read(text.encode(encoding))
    root = boxed.voc(tmp_path / "data", (("train", 1),))
    (root / "Annotations/0000.xml").write_text(text)
    main(["data", "check", f"voc:{root}"])
    assert "without boxes" not in capsys.readouterr().out
    (root / "JPEGImages/0000.png").unlink()
    assert "0000.xml" in message(f"voc:{root}")
    found = boxed.checked(capsys, f"voc:{root}")
    assert part in found[0][1]
    assert found[1][1] == "there is no image 0000 in JPEGImages"


@pytest.mark.parametrize("val", ["0002\n", "0001\n0003\n"])
def test_images_of_trainval_are_not_measured_as_val(tmp_path, val):
    root = boxed.voc(tmp_path / "data", (("trainval", 3), ("test", 2)))
    (root / "ImageSets/Main/val.txt").write_text(val)
    source = opened(f"voc:{root}")
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 3, "test": 2}
    assert any(note.startswith("val: left out") for note in source.notes)
    names = (root / "ImageSets/Main/train.txt", root / "ImageSets/Main/val.txt")
    for path, name in zip(names, ("0000", "0001"), strict=True):
        path.write_text(name)
    assert {*opened(f"voc:{root}").splits} == {"train", "val", "test"}


@pytest.mark.parametrize("column", ["", "  1", " -1", "  0"])
@pytest.mark.parametrize("name", ["0000", "my image 1", "my image"])
def test_names_of_voc_may_have_spaces_and_a_column_behind_them(tmp_path, name, column):
    root = boxed.voc(tmp_path / "data", (("train", 1),))
    for path in (root / "Annotations/0000.xml", root / "JPEGImages/0000.png"):
        path.rename(path.with_stem(name))
    (root / "ImageSets/Main/train.txt").write_text(f"{name}{column}\n")
    assert [true.id for true in boxed.truths(opened(f"voc:{root}"), "train")] == [name]


def test_folders_that_are_not_vocs(tmp_path):
    assert "SegmentationClass" in message(f"voc:{tmp_path}")
    assert "lacks Annotations" in message(f"voc:{tmp_path}/ImageSets/Main")
