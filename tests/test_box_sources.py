# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images with boxes: their formats and layouts, what is wrong in them, and hostile files."""

import json
from pathlib import Path

import boxed
import hostile
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sources import message, opened
from PIL import Image

from vit_jax.cli.main import main
from vit_jax.data.formats import coco_file, voc_file, yolo_file
from vit_jax.data.formats.polygons import crosses_itself
from vit_jax.data.ops import chain
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

WRITERS = {"coco": boxed.coco, "voc": boxed.voc, "yolo": boxed.yolo}


def edited(path: Path, **changes):
    """Changes the lists of a COCO file by functions."""
    content = json.loads(path.read_text())
    for key, change in changes.items():
        content[key] = change(content[key])
    path.write_text(json.dumps(content))


def truths(source, split):
    read = source.splits[split].truth_reader()
    return [read(index) for index in range(len(source.splits[split]))]


def checked(capsys, spec):
    """What `data check` lists: (file, reason)."""
    code = main(["data", "check", str(spec), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (2 if report["bad"] else 0)
    return [(one["file"], one["reason"]) for one in report["bad"]]


@pytest.mark.parametrize("kind", WRITERS)
def test_formats_hold_the_same_boxes(tmp_path, kind):
    source = opened(f"{kind}:{WRITERS[kind](tmp_path / 'data')}")
    assert {name: len(split) for name, split in source.splits.items()} == {
        "train": 6, "val": 3, "test": 3,
    }  # fmt: skip
    classes = ("disc", "square") if kind == "voc" else boxed.NAMES  # those that occur
    assert source.classes == classes
    seed = 0
    for split in ("train", "val", "test"):
        python, in_tf = source.splits[split].numpy_reader(), source.splits[split].fields_reader()
        for index, truth in enumerate(truths(source, split)):
            image, boxes, labels = boxed.drawn(seed)
            np.testing.assert_allclose(truth.boxes, boxes, atol=1e-6)
            np.testing.assert_array_equal(truth.classes, labels)
            assert not truth.ignored.any()
            assert truth.sides in (image.shape[:2], None)
            fields = python(index)
            with Image.open(fields["image"].path) as picture:
                np.testing.assert_array_equal(np.asarray(picture), image)
            assert fields["boxes"].shape == (4, 4)
            np.testing.assert_allclose(fields["boxes"][: len(boxes)], boxes, atol=1e-5)
            assert fields["box_classes"].tolist() == [*labels, -1, -1, -1, -1][:4]
            other = in_tf(tf.constant(index, tf.int64))
            assert other["image"].numpy() == fields["image"].read()
            for key in ("boxes", "box_classes", "labels"):
                np.testing.assert_array_equal(other[key], fields[key])
            seed += 1


@pytest.mark.parametrize("kind", WRITERS)
def test_boxes_move_with_large_scale_jitter(tmp_path, kind):
    """The colour inside each box that is wide enough stays that of its class."""
    source = opened(f"{kind}:{WRITERS[kind](tmp_path / 'data')}")
    ops = chain.parse("x", "decode|scale_jitter({size}, 0.5, 2.0)|flip_lr", (48, 64))
    fields = ("image", "labels", "boxes", "box_classes")
    pipe = Pipeline(source.splits["train"], ops, 6, 0, (48, 64), 2, 1, fields=fields, most_boxes=9)
    seen = wide = 0
    for batch in pipe.train(0, 4):
        for image, boxes, classes in zip(
            batch["image"], batch["boxes"], batch["box_classes"], strict=True
        ):
            assert boxes.shape == (9, 4)
            for at in np.flatnonzero(classes >= 0):
                left, top, right, bottom = boxes[at]
                if min(right - left, bottom - top) < 8:
                    continue
                x, y = int((left + right) / 2), int((top + bottom) / 2)
                centre = image[y - 1 : y + 2, x - 1 : x + 2].reshape(-1, 3).mean(axis=0)
                nearest = np.abs(boxed.COLOURS - centre).sum(axis=1).argmin()
                seen, wide = seen + (nearest == classes[at]), wide + 1
    assert wide > 20
    assert seen >= 0.9 * wide  # others are covered or cut


# ---------------------------------------------------------------- COCO


def test_splits_of_coco_are_found_from_a_file_or_its_folders(tmp_path):
    root = boxed.coco(tmp_path / "data")
    train = root / "annotations/instances_train.json"
    whole = {"train": 6, "val": 3, "test": 3}
    for place in (root, root / "annotations", train):
        source = opened(f"coco:{place}")
        assert {name: len(split) for name, split in source.splits.items()} == whole
        assert any("images in" in note and "instances_val" in note for note in source.notes)
    assert {*opened(f"coco:{root}/annotations/instances_val.json").splits} == {"val"}


@pytest.mark.parametrize(
    "file, images",
    [
        ("annotations/instances_train2017.json", "train2017"),
        ("annotations/instances_train2017.json", "images/train2017"),
        ("annotations/instances_train.json", "images"),
        ("annotations/train.json", "images/train"),
        ("data.json", "."),
        ("data.json", "images"),
        ("train/_annotations.coco.json", "train"),
    ],
)
def test_images_of_coco_are_found_beside_the_file(tmp_path, file, images):
    made = boxed.coco(tmp_path / "made", (("train", 3),))
    (tmp_path / "data" / file).parent.mkdir(parents=True)
    (tmp_path / "data" / images).mkdir(parents=True, exist_ok=True)
    (made / "annotations/instances_train.json").rename(tmp_path / "data" / file)
    for path in (made / "train").iterdir():
        path.rename(tmp_path / "data" / images / path.name)
    source = opened(f"coco:{tmp_path}/data/{file}")
    assert len(source.splits["train"]) == 3
    np.testing.assert_array_equal(truths(source, "train")[0].boxes, boxed.drawn(0)[1])


def test_categories_with_gaps_and_crowd_regions(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 3),))
    file = root / "annotations/instances_train.json"
    crowd = boxed.annotation(900, 100, 7, [0, 0, 30, 30], iscrowd=1, area=123.5,
                             segmentation={"counts": [1, 2], "size": [3, 4]})  # fmt: skip
    beyond = boxed.annotation(901, 100, 11, [-5, 10, 20, 1000])
    flat = boxed.annotation(902, 100, 11, [5, 5, 5, 9])
    edited(file, annotations=lambda given: [*given, crowd, beyond, flat])
    source = opened(f"coco:{file}")
    assert source.classes == boxed.NAMES  # sorted by id
    image, _, labels = boxed.drawn(0)
    true = truths(source, "train")[0]
    assert true.id == 100
    assert true.ignored.tolist() == [False] * 4 + [True, False, False]
    assert true.classes.tolist() == [*labels, 1, 2, 2]
    assert true.areas[4] == 123.5
    assert true.boxes[5].tolist() == [-5, 10, 20, 1000]
    fields = source.splits["train"].numpy_reader()(0)
    assert fields["box_classes"].tolist() == [*labels, 2]
    np.testing.assert_array_equal(fields["boxes"][4], [0, 10, 20, image.shape[0]])
    notes = " ".join(source.notes)
    assert "train: 1 crowd regions or difficult objects" in notes
    assert "train: 1 boxes without area inside the image" in notes


def test_check_lists_what_is_wrong_in_coco(tmp_path, capsys):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    file = root / "annotations/instances_train.json"
    assert checked(capsys, f"coco:{root}") == []
    star = [10, 0, 16, 20, 0, 8, 20, 8, 4, 20]
    more = [
        boxed.annotation(901, 100, 3, [5, 5, 5, 9]),
        boxed.annotation(902, 100, 3, [30, 30, 90, 40]),
        boxed.annotation(903, 100, 8, [0, 0, 9, 9]),
        boxed.annotation(904, 999, 3, [0, 0, 9, 9]),
        boxed.annotation(1, 101, 3, [0, 0, 9, 9], segmentation=[[0, 0, 9, 0, 9, 9, 0, 9]]),
        boxed.annotation(905, 101, 3, [0, 0, 9, 9], segmentation=[star]),
    ]
    edited(
        file,
        annotations=lambda given: [*given, *more],
        images=lambda given: [given[0] | {"width": 7}, *given[1:]],
    )
    found = checked(capsys, f"coco:{file}")
    expected = [
        (str(file), "there is no category 8"),
        (str(file), "there is no image 999"),
        ("annotation 1", "another has this id"),
        ("train/0000.png", "its boxes are for 7 x"),
        ("train/0000.png", "box 5 (disc) from (5, 5) to (5, 9) has no area"),
        ("train/0000.png", "box 6 (disc) from (30, 30) to (90, 40) is outside the image of"),
    ]
    assert len(found) == len(expected)
    for file_part, reason in expected:
        assert any(file_part in a and reason in b for a, b in found), (file_part, reason)
    assert main(["data", "check", f"coco:{file}"]) == 2
    shown = capsys.readouterr().out
    assert "1 notes on polygons" in shown
    assert "annotation 905: its polygon crosses itself" in shown
    notes = " ".join(opened(f"coco:{file}").notes)
    assert "1 boxes left out, whose category is not listed, first: " in notes

    (root / "train/0001.png").unlink()
    edited(
        file,
        images=lambda given: [*given, given[0]],
        annotations=lambda given: [
            {"id": 3, "image_id": 100, "category_id": 3, "bbox": [1, 2, None, 4]}
        ],
    )
    found = checked(capsys, f"coco:{file}")
    assert len(found) == 3
    for reason in ("there is no image", "two images have this id", "its bbox is [1, 2, null, 4]"):
        assert any(reason in b for _, b in found)
    said = message(f"coco:{file}")
    assert "0001.png" in said
    assert said.endswith("Correct the files.")


@pytest.mark.parametrize(
    "text, part",
    [
        ("[1]", "expected COCO's instances"),
        ("{}", "expected COCO's instances"),
        ("[" * 100_000, "expected COCO's instances"),
        ('{"images": [], "annotations": [], "categories": []}', "categories"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]}', "no images"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, '
         '{"id": 1, "name": "b"}]}', "two categories"),
        ('{"images": [], "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}, '
         '{"image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1]}], "categories": '
         '[{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}', "1 and 2 have one name, 'a'"),
        ('{"annotations": [{"image_id": 1, "file_name": "a", "segments_info": []}]}', "panoptic"),
        ("\0", "expected COCO's instances"),
    ],
)  # fmt: skip
def test_other_files_than_cocos(tmp_path, text, part):
    (tmp_path / "x.json").write_text(text)
    said = message(f"coco:{tmp_path}/x.json")
    assert part in said
    assert str(tmp_path / "x.json") in said


def test_files_of_coco_that_are_ambiguous_or_absent(tmp_path):
    assert "does not exist" in message(f"coco:{tmp_path}/gone.json")
    assert "no JSON files" in message(f"coco:{tmp_path}")
    for year in (2014, 2017):
        (tmp_path / f"instances_train{year}.json").write_text("{}")
    assert "two files for train" in message(f"coco:{tmp_path}")
    root = boxed.coco(tmp_path / "data", (("train", 1), ("val", 1)))
    plural = [one | {"name": one["name"] + "s"} for one in boxed.categories()]
    edited(root / "annotations/instances_val.json", categories=lambda _: plural)
    assert "the same categories" in message(f"coco:{root}")
    more = [{"id": 1, "name": "first"}, *boxed.categories()]
    edited(root / "annotations/instances_val.json", categories=lambda _: more)
    assert opened(f"coco:{root}").classes == ("first", *boxed.NAMES)


GOOD = {
    "images": [{"id": 1, "file_name": "a.png", "width": 4, "height": 4}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1,
                     "segmentation": [[0, 0, 1, 0, 1, 1]], "iscrowd": 0}],
    "categories": [{"id": 1, "name": "a"}],
}  # fmt: skip


@given(
    where=st.sampled_from([(k, f) for k, v in GOOD.items() for f in v[0]]), value=hostile.VALUES,
    polygons=st.booleans(),
)  # fmt: skip
def test_hostile_values_in_coco(tmp_path_factory, where, value, polygons):
    content = json.loads(json.dumps(GOOD))
    content[where[0]][0][where[1]] = value
    path = tmp_path_factory.mktemp("hostile") / "x.json"
    path.write_text(json.dumps(content))
    try:
        read = coco_file.read(path, polygons)
    except BadInput as e:
        assert str(path) in str(e)  # noqa: PT017
        return
    assert len(read.content.boxes) + len(read.content.problems) >= 1
    assert np.isfinite(read.content.boxes).all()


@pytest.mark.parametrize("unused", [0, 2])
def test_category_that_no_annotation_uses_may_have_the_name_of_another(tmp_path, unused):
    path = tmp_path / "x.json"
    own, other = {"id": 1, "name": "a"}, {"id": unused, "name": "a"}
    path.write_text(json.dumps(GOOD | {"categories": [other, own]}))
    assert coco_file.read(path).categories == {1: "a"}
    path.write_text(json.dumps(GOOD | {"categories": [other, own], "annotations": []}))
    assert coco_file.read(path).categories == {1: "a"}


def test_numbers_of_annotations(tmp_path):
    def read(**changes):
        path = tmp_path / "x.json"
        path.write_text(json.dumps(GOOD | {"annotations": [GOOD["annotations"][0] | changes]}))
        return coco_file.read(path).content

    content = read(area=None, bbox=[1, 2, 3, 4], image_id=1.0, category_id=1.0)
    assert (content.areas.tolist(), content.rows.tolist()) == ([12.0], [0])
    for changes, part in (
        ({"image_id": 1.5}, "its image_id is 1.5"),
        ({"category_id": True}, "its category_id is true"),
        ({"bbox": [0, 0, 1e308, 1e308]}, "its bbox is [0, 0, 1e+308"),
        ({"area": "x"}, 'its area "x"'),
    ):
        (problem,) = read(**changes).problems
        assert part in problem.reason


def test_names_of_files_may_be_whole_paths(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    (root / "train").rename(tmp_path / "elsewhere")
    file = root / "annotations/instances_train.json"
    edited(file, images=lambda given: [
        one | {"file_name": f"{tmp_path}/elsewhere/{one['file_name']}"} for one in given
    ])  # fmt: skip
    source = opened(f"coco:{file}")
    assert source.splits["train"].numpy_reader()(0)["image"].read()


@pytest.mark.parametrize(
    "segmentation", ["[[1, 2.5e3, -3]]", "[]", '{"counts": [3], "size": [1]}', '"["']
)
@pytest.mark.parametrize("last", [False, True])
def test_polygons_are_left_out_of_the_text_without_harm(tmp_path, segmentation, last):
    rest = '"id": 7, "image_id": 1, "category_id": 1, "bbox": [0, 1, 2, 3]'
    rest += ', "note": "\\"segmentation\\": [1]"'
    own = f'"segmentation" : {segmentation}'
    one = f"{{{rest}, {own}}}" if last else f"{{{own}, {rest}}}"
    lists = json.dumps(GOOD).replace(json.dumps(GOOD["annotations"]), f"[{one}, {one}]")
    path = tmp_path / "x.json"
    path.write_text(lists)
    np.testing.assert_array_equal(coco_file.read(path).content.boxes, [[0, 1, 2, 4]] * 2)


@pytest.mark.parametrize(
    "polygon, reason",
    [
        ([0, 0, 9, 0, 9, 9, 0, 9], ""),
        ([0, 0, 9, 9, 9, 0, 0, 9], "crosses itself, at the edge from (0, 0)"),
        ([0, 0, 9, 0, 9, 0, 9, 9, 0, 0], ""),  # corners stand twice
        ([0, 0, 4, 0, 4, 4, 2, 0, 0, 4], ""),  # touches itself
        ([0, 0, 1, 1], "is not a list"),
        ([0, 0, 1, 1, 2], "is not a list"),
        ("x", "is not a list"),
        ([[0, 0], [1, 1], [0, 1]], "is not a list"),
        ([0.0, 0, 1, 1, 2, float("nan")], "is not a list"),
        (list(range(10_000)), "has 5,000 corners"),
    ],
)
def test_polygons_that_cross_themselves(polygon, reason):
    assert crosses_itself(polygon).startswith(reason)
    assert bool(crosses_itself(polygon)) == bool(reason)


def test_polygons_are_notes_and_no_errors(tmp_path, capsys):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    file = root / "annotations/instances_train.json"
    star = [10, 0, 16, 20, 0, 8, 20, 8, 4, 20]
    rows = [boxed.annotation(900 + n, 101, 3, [0, 0, 9, 9], segmentation=[polygon])
            for n, polygon in enumerate((star, [*range(10_000)]))]  # fmt: skip
    edited(file, annotations=lambda given: [*given, *rows])
    assert main(["data", "check", f"coco:{file}", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bad"] == []
    assert ["crosses itself" in report["notes"][0]["reason"],
            "checked up to 4,096" in report["notes"][1]["reason"]] == [True, True]  # fmt: skip


def test_long_polygon_crosses_itself_once():
    angle = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert crosses_itself(circle.reshape(-1).tolist()) == ""
    circle[[700, 701]] = circle[[701, 700]]
    assert "crosses itself" in crosses_itself(circle.reshape(-1).tolist())


# ---------------------------------------------------------------- Pascal VOC


def test_difficult_objects_and_lists_of_voc(tmp_path, capsys):
    root = boxed.voc(tmp_path / "data", (("trainval", 3), ("test", 2)), difficult={(0, 1)})
    source = opened(f"voc:{root}")
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 3, "test": 2}
    true = truths(source, "train")[0]
    assert true.ignored.tolist() == [False, True, False, False]
    assert true.id == "0000"
    fields = source.splits["train"].numpy_reader()(0)
    np.testing.assert_array_equal(fields["boxes"][:3], boxed.drawn(0)[1][[0, 2, 3]])
    assert checked(capsys, f"voc:{root}") == []


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


def test_classes_of_voc_are_its_own_or_those_of_a_file(tmp_path):
    root = boxed.voc(tmp_path / "data", (("train", 1),))
    xml = root / "Annotations/0000.xml"
    xml.write_text(boxed.voc_xml([boxed.voc_object("dog", [0, 0, 9, 9])], (40, 40)))
    source = opened(f"voc:{root}")
    assert len(source.classes) == 20
    assert source.classes[truths(source, "train")[0].classes[0]] == "dog"
    names = tmp_path / "names.txt"
    names.write_text("cat\nbird\n")
    source = opened(f"voc:{root}", label_names=str(names))
    assert truths(source, "train")[0].classes.size == 0
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
    (root / "JPEGImages/0000.png").unlink()
    assert "0000.xml" in message(f"voc:{root}")
    found = checked(capsys, f"voc:{root}")
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


def test_folders_that_are_not_vocs(tmp_path):
    assert "SegmentationClass" in message(f"voc:{tmp_path}")
    assert "lacks Annotations" in message(f"voc:{tmp_path}/ImageSets/Main")


# ---------------------------------------------------------------- YOLO


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
    np.testing.assert_allclose(truths(source, "train")[0].boxes, boxed.drawn(0)[1], atol=1e-6)


@pytest.mark.parametrize("given", ["data.yaml", ".", "../data", "./data.yaml"])
def test_relative_paths_of_yolo_have_their_boxes(tmp_path, monkeypatch, given):
    monkeypatch.chdir(boxed.yolo(tmp_path / "data", (("train", 2),)))
    read = truths(opened(f"yolo:{given}"), "train")
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
    found = checked(capsys, f"yolo:{root}")
    expected = ["no class 7, only 0 to 2", "has no area", "is outside the image"]
    assert [part in reason for part, (_, reason) in zip(expected, found, strict=True)] == [True] * 3
    assert (opened(f"yolo:{root}").splits["train"].numpy_reader()(0)["box_classes"] >= 0).sum() == 1
    (root / "labels/train/0001.txt").write_text("a b c")
    assert "labels/train/0001.txt: 'a b c' is not a class" in message(f"yolo:{root}")
    assert any("is not a class" in reason for _, reason in checked(capsys, f"yolo:{root}"))


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
        ("names: [a]\ntrain: gone", "give a folder of images"),
        ("names: [a]\ntrain: labels", "there are no images"),
        ("names: !!python/object/apply:os.system [x]", "expected YAML"),
        ('names: !!int ""', "expected YAML"),
        ("names: !!bool x", "expected YAML"),
        ('names: !!timestamp "x"', "expected YAML"),
        ("names: [yes, 'no']\ntrain: images", "quote it"),
        ("names: [a]\nkpt_shape: [17, 3]\ntrain: images", "poses, which are not read"),
    ],
)
def test_other_files_than_yolos(tmp_path, text, part):
    (tmp_path / "labels").mkdir()
    (tmp_path / "data.yaml").write_text(text)
    assert part in message(f"yolo:{tmp_path}")


# ---------------------------------------------------------------- all kinds


def test_check_counts_boxes_and_mixtures_have_them(tmp_path, capsys):
    coco = boxed.coco(tmp_path / "coco", (("train", 6),))
    yolo = boxed.yolo(tmp_path / "yolo", (("train", 6),))
    assert main(["data", "check", f"coco:{coco}"]) == 0
    shown = capsys.readouterr().out
    total = sum(len(boxed.drawn(seed)[1]) for seed in range(6))
    rows = [line.split() for line in shown.splitlines() if line.startswith(boxed.NAMES)]
    assert sum(int(row[2]) for row in rows) == total
    mixed = opened(f"mix:1*coco:{coco},1*yolo:{yolo}")
    found = truths(mixed, "train")
    assert sum(len(true.boxes) for true in found) == 2 * total


def test_mixtures_keep_crowds_areas_and_sides(tmp_path):
    """The second part lacks the first class of the first, so its classes have other numbers."""
    specs = []
    for place in ("a", "b"):
        root = boxed.coco(tmp_path / place, (("train", 3),))
        file = root / "annotations/instances_train.json"
        crowd = boxed.annotation(900, 100, 7, [-5, 0, 30, 30], iscrowd=1, area=123.5)
        edited(file, annotations=lambda given, crowd=crowd: [*given, crowd])
        specs.append(f"1*coco:{file}")
    plural = [one | {"name": one["name"] + "s"} for one in boxed.categories()]
    edited(file, categories=lambda _: plural)
    mixed = opened(f"mix:{','.join(specs)}")
    parts = [truths(opened(spec[2:]), "train") for spec in specs]
    found = truths(mixed, "train")
    assert len({true.id for true in found}) == 6
    for true, own in zip(found, [*parts[0], *parts[1]], strict=True):
        for key in ("boxes", "ignored", "areas", "sides"):
            np.testing.assert_array_equal(getattr(true, key), getattr(own, key))
    assert [found[k].ignored.sum() for k in (0, 3)] == [1, 1]
    names = [[mixed.classes[label] for label in found[k].classes] for k in (0, 3)]
    assert names[1] == [name + "s" for name in names[0]]
    for folder in ("c/train/x", "c/train/y"):
        (tmp_path / folder).mkdir(parents=True)
        Image.new("RGB", (9, 9)).save(tmp_path / folder / "a.png")
    assert not opened(f"mix:{specs[0]},1*folder:{tmp_path}/c").splits["train"].has_boxes()


@pytest.mark.parametrize("turned", [False, True])
def test_images_of_another_size_than_their_boxes_are_not_trained_on(tmp_path, turned):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    rows, columns = boxed.drawn(0)[0].shape[:2]
    stated = {"width": rows, "height": columns} if turned else {"width": 7}
    edited(
        root / "annotations/instances_train.json",
        images=lambda given: [given[0] | stated, *given[1:]],
    )
    read = opened(f"coco:{root}").splits["train"].fields_reader()
    with pytest.raises(BadImage) as caught:
        read(tf.constant(0, tf.int64))
    sides = f"{rows} x {columns}" if turned else f"7 x {rows}"
    said = f"the image has {columns} x {rows} pixels, its boxes are for {sides}"
    assert said in str(caught.value)
    assert ("if an EXIF tag turns the image" in str(caught.value)) == turned
    read(tf.constant(1, tf.int64))


def test_sheet_shows_boxes_and_names_their_classes(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 24),))
    out = tmp_path / "sheet.png"
    chain_ = "decode|resize_inside({size})|pad({size})"
    assert (
        main(["data", "show", f"coco:{root}", f"--out={out}", f"--ops={chain_}", "--size=64"]) == 0
    )
    with Image.open(out) as picture:
        colours = {colour for _, colour in picture.getcolors(1 << 20)}
    assert {(230, 159, 0), (86, 180, 233)} <= colours  # frames of both classes


@pytest.mark.parametrize("kind", WRITERS)
def test_held_out_images_do_not_depend_on_the_place_of_the_data(tmp_path, kind):
    counts = (("train", 20),)
    chosen = []
    for place in ("a", "b/c"):
        source = opened(f"{kind}:{WRITERS[kind](tmp_path / place, counts)}", 20, 20)
        split = source.splits["val"]
        chosen.append([split.name(index) for index in range(len(split))])
    assert chosen[0] == chosen[1]
    assert 0 < len(chosen[0]) < 20


@pytest.mark.parametrize("spec", ["coco:", "coco:gs://bucket/x.json", "yolo:gs://bucket/x"])
def test_check_opens_no_source_that_cannot_be(capsys, spec):
    assert main(["data", "check", spec]) == 2
    assert (
        "write it as coco:FILE" in (said := capsys.readouterr().err) or "copy it to a disk" in said
    )


def test_classes_beyond_the_names_are_listed(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_boxes.py").write_text(
        "import numpy as np\n"
        "from vit_jax.data import splits\n"
        "def made(options):\n"
        "    zeros = np.zeros((2, 9, 9, 3), np.uint8)\n"
        "    boxes = np.array([[[0, 0, 5, 5], [0, 0, 0, 0]]] * 2, np.float32)\n"
        "    classes = np.array([[1, -1], [7, -1]], np.int32)\n"
        "    labels = np.full((2, 1), -1, np.int32)\n"
        "    return ['a', 'b'], {'all': splits.of_arrays('x', zeros, labels, boxes=boxes, "
        "box_classes=classes)}, []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["data", "check", "python:own_boxes:made", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["bad"] == [
        {"file": "x/0001", "reason": "box 1 is of class 7, of which there are 2"}
    ]
    assert report["boxes"][1] == {"name": "b", "images": 1, "boxes": 1}


def test_lists_of_voc_may_have_blank_lines_and_more_columns(tmp_path):
    root = boxed.voc(tmp_path / "data", (("train", 2),))
    (root / "ImageSets/Main/train.txt").write_bytes(b"\xef\xbb\xbf0000  1\r\n   \r\n0001 -1\r\n")
    assert len(opened(f"voc:{root}").splits["train"]) == 2
    (root / "ImageSets/Main/train.txt").write_bytes(b"0000\n\xff\xfe\n")
    assert "there is no image" in message(f"voc:{root}")


def test_images_without_boxes_are_said_so(tmp_path):
    from vit_jax.data.splits import split as splits

    images = np.zeros((2, 4, 4, 3), np.uint8)
    made = splits.of_arrays("x", images, np.zeros((2, 1), np.int32))
    with pytest.raises(BadInput, match="have no boxes and no box_classes"):
        made.truth_reader()
    own = splits.of_arrays(
        "x", images, np.zeros((2, 1), np.int32),
        boxes=np.array([[[0, 0, 2, 3], [0, 0, 0, 0]]] * 2, np.float32),
        box_classes=np.array([[4, -1]] * 2, np.int32),
    )  # fmt: skip
    true = own.truth_reader()(1)
    assert (true.id, true.classes.tolist(), true.areas.tolist()) == ("x/0001", [4], [6.0])
