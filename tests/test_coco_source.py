# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images with boxes in files of COCO: layouts, what is wrong in them, and hostile values."""

import json

import boxed
import hostile
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sources import message, opened

from vit_jax.cli.main import main
from vit_jax.data.formats import coco_file
from vit_jax.data.formats.boxes import NOT_READ
from vit_jax.data.formats.polygons import Unchecked, crosses_itself, run_lengths, wrong_runs
from vit_jax.errors import BadInput


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
        ("annotations/instances_default.json", "images/default"),
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
    np.testing.assert_array_equal(boxed.truths(source, "train")[0].boxes, boxed.drawn(0)[1])


def test_backslashes_in_names_of_coco_part_folders(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    (root / "train/a\\b.png").write_bytes((root / "train/0001.png").read_bytes())
    (root / "train/sub").mkdir()
    (root / "train/0000.png").rename(root / "train/sub/0.png")
    names = iter(["sub\\0.png", "a\\b.png"])  # the second is the name of a file
    boxed.edited(
        root / "annotations/instances_train.json",
        images=lambda given: [one | {"file_name": next(names)} for one in given],
    )
    read = opened(f"coco:{root}").splits["train"].numpy_reader()
    paths = [str(read(row)["image"].path) for row in range(2)]
    assert paths == [f"{root}/train/sub/0.png", f"{root}/train/a\\b.png"]


def test_folders_without_images_of_coco_are_told_once(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 3),))
    (root / "train").rename(root / "elsewhere")
    said = message(f"coco:{root}")
    assert said.count("there is no image") == 1
    assert f"0000.png, nor any other of its 3, in one of the folders {root}/train, " in said
    assert f"{root}/images/train, " in said


def test_categories_with_gaps_and_crowd_regions(tmp_path):
    root = boxed.coco(tmp_path / "data", (("train", 3),))
    file = root / "annotations/instances_train.json"
    crowd = boxed.annotation(900, 100, 7, [0, 0, 30, 30], iscrowd=1, area=123.5,
                             segmentation={"counts": [1, 2], "size": [3, 4]})  # fmt: skip
    beyond = boxed.annotation(901, 100, 11, [-5, 10, 20, 1000])
    flat = boxed.annotation(902, 100, 11, [5, 5, 5, 9])
    boxed.edited(file, annotations=lambda given: [*given, crowd, beyond, flat])
    source = opened(f"coco:{file}")
    assert source.classes == boxed.NAMES  # sorted by id
    image, _, labels = boxed.drawn(0)
    true = boxed.truths(source, "train")[0]
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
    assert boxed.checked(capsys, f"coco:{root}") == []
    star = [10, 0, 16, 20, 0, 8, 20, 8, 4, 20]
    more = [
        boxed.annotation(901, 100, 3, [5, 5, 5, 9]),
        boxed.annotation(902, 100, 3, [30, 30, 90, 40]),
        boxed.annotation(903, 100, 8, [0, 0, 9, 9]),
        boxed.annotation(904, 999, 3, [0, 0, 9, 9]),
        boxed.annotation(1, 101, 3, [0, 0, 9, 9], segmentation=[[0, 0, 9, 0, 9, 9, 0, 9]]),
        boxed.annotation(905, 101, 3, [0, 0, 9, 9], segmentation=[star]),
    ]
    boxed.edited(
        file,
        annotations=lambda given: [*given, *more],
        images=lambda given: [given[0] | {"width": 7}, *given[1:]],
    )
    found = boxed.checked(capsys, f"coco:{file}")
    expected = [
        (str(file), "there is no category 8"),
        (str(file), "there is no image 999"),
        ("annotation 1", "another has this id"),
        ("annotation 905", "its polygon crosses itself, at the edge from (10, 0)"),
        ("train/0000.png", "its boxes are for 7 x"),
        ("train/0000.png", "box 5 (disc) from (5, 5) to (5, 9) has no area"),
        ("train/0000.png", "box 6 (disc) from (30, 30) to (90, 40) is outside the image of"),
    ]
    assert len(found) == len(expected)
    for file_part, reason in expected:
        assert any(file_part in a and reason in b for a, b in found), (file_part, reason)
    assert main(["data", "check", f"coco:{file}"]) == 2
    shown = capsys.readouterr().out
    assert "annotation 905: its polygon crosses itself" in shown
    notes = " ".join(opened(f"coco:{file}").notes)
    assert "1 boxes left out, whose category is not listed, first: " in notes

    (root / "train/0001.png").unlink()
    boxed.edited(
        file,
        images=lambda given: [*given, given[0]],
        annotations=lambda given: [
            {"id": 3, "image_id": 100, "category_id": 3, "bbox": [1, 2, None, 4]}
        ],
    )
    reasons = [reason for _, reason in boxed.checked(capsys, f"coco:{file}")]
    wrong = ("there is no image", "its bbox is [1, 2, null, 4]", "two images have this id")
    for reason, expected in zip(reasons, [*wrong, *["its boxes are for 7 x"] * 2], strict=True):
        assert expected in reason
    said = message(f"coco:{file}")
    assert "0001.png" in said
    assert said.endswith("Correct the files.")


@pytest.mark.parametrize(
    "text, part",
    [
        ("[1]", "its top level is not an object"),
        ("{}", "lacks the list images and the list annotations and the list categories"),
        ("[" * 100_000, "its top level is not an object"),
        ('{"images": [' + "[" * 100_000, "expected COCO's instances"),
        ('{"images": [], "annotations": [], "categories": []}', "list of categories is empty"),
        ('{"images": [], "annotations": []}', "it lacks the list categories"),
        ('{"images": [], "images": []}', "it has two lists images"),
        ('{"images": {}}', "its images are not a list"),
        ('{"images": [1', "no comma or ] at character 13"),
        ('{"images": [1 2]}', "no comma or ]"),
        ('{"images": [1,]}', "it is not JSON"),
        ('{"images"}', "it is not JSON"),
        ("{1: 2}", "it is not JSON"),
        ('{"images": [], "annotations": [], "categories": ["cat"]}', 'categories[0] is "cat"'),
        ('{"images": [], "annotations": [], "categories": []} x', "after the object"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]}', "no images"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}, '
         '{"id": 1, "name": "b"}]}', "two categories"),
        ('{"images": [], "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}, '
         '{"image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1]}], "categories": '
         '[{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}', "1 and 2 have one name, 'a'"),
        ('{"annotations": [{"image_id": 1, "file_name": "a", "segments_info": []}]}', "panoptic"),
        ("\0", "its top level is not an object"),
        ('{"images": ["ä"]}', "it is not text in UTF-8"),
    ],
)  # fmt: skip
def test_other_files_than_cocos(tmp_path, text, part):
    (tmp_path / "x.json").write_bytes(text.encode("utf-8" if "ä" not in text else "latin-1"))
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
    boxed.edited(root / "annotations/instances_val.json", categories=lambda _: plural)
    assert "the same categories" in message(f"coco:{root}")
    more = [{"id": 1, "name": "first"}, *boxed.categories()]
    boxed.edited(root / "annotations/instances_val.json", categories=lambda _: more)
    assert opened(f"coco:{root}").classes == ("first", *boxed.NAMES)


GOOD = {
    "images": [{"id": 1, "file_name": "a.png", "width": 4, "height": 4}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1,
                     "segmentation": [[0, 0, 1, 0, 1, 1]], "iscrowd": 0}],
    "categories": [{"id": 1, "name": "a"}],
}  # fmt: skip


@pytest.mark.integration
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


ONE = GOOD["annotations"][0]


def without(one, key):
    return {k: v for k, v in one.items() if k != key}


@pytest.mark.parametrize(
    "key, members, where, reason",
    [
        ("annotations", [ONE, without(ONE, "image_id")], "annotation 1", "it has no image_id"),
        ("annotations", [ONE, without(ONE, "bbox")], "annotation 1", "it has no bbox"),
        ("annotations", [{"id": 7}], "annotation 7", "no image_id and no category_id and no bbox"),
        ("annotations", [ONE, {}], "annotations[1]", "it has no image_id"),
        ("annotations", [ONE, None], "annotations[1]", "it is null, expected an object"),
        ("annotations", [[ONE]], "annotations[0]", "it is [{"),
        ("annotations", [ONE | {"iscrowd": "yes"}], "annotation 1", 'its iscrowd is "yes"'),
        ("annotations", [ONE | {"iscrowd": None}], "annotation 1", "its iscrowd is null"),
        ("annotations", [ONE | {"iscrowd": 2}], "annotation 1", "its iscrowd is 2, expected 0 or"),
        ("images", [{"id": 1}], "image 1", "it has no file_name"),
        ("images", [*GOOD["images"], {"file_name": "b.png"}], "images[1]", "it has no id"),
        ("images", [*GOOD["images"], "b.png"], "images[1]", 'it is "b.png", expected an object'),
    ],
)
def test_members_that_lack_something_are_one_problem_each(tmp_path, key, members, where, reason):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(GOOD | {key: members}))
    (problem,) = coco_file.read(path).content.problems
    assert problem.where == f"{path}, {where}"
    assert reason in problem.reason
    assert not problem.left_out


@pytest.mark.parametrize("order", [1, -1])
def test_only_members_of_the_lists_are_read(tmp_path, order):
    """Objects elsewhere, and members with more than they need, change nothing."""
    image = GOOD["images"][0] | {"image_id": 1, "extra": {"file_name": "b.png", "id": 2}}
    one = ONE | {"file_name": "c.png", "extra": [{"image_id": 1, "bbox": [1]}]}
    more = {"info": {"images": [{"id": 3, "file_name": "d.png"}]}, "licenses": [{"image_id": 5}]}
    content = {**more, "images": [image], "annotations": [one], "categories": GOOD["categories"]}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(dict([*content.items()][::order]), indent=order + 1))
    read = coco_file.read(path).content
    assert (read.paths, read.ids, len(read.boxes), read.problems) == (["a.png"], [1], 1, [])


@pytest.mark.parametrize("at", [("categories", "id"), ("annotations", "category_id")])
@pytest.mark.parametrize("both", [False, True])
def test_ids_of_categories_may_be_strings_of_digits(tmp_path, at, both):
    content = json.loads(json.dumps(GOOD))
    for key, field in [at, *[("categories", "id"), ("annotations", "category_id")] * both]:
        content[key][0][field] = "1"
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    read = coco_file.read(path)
    assert (read.categories, read.content.classes.tolist()) == ({1: "a"}, [0])


@pytest.mark.parametrize("image", [1, "1"])
@pytest.mark.parametrize("annotation", [1, 1.0, "1", "01"])
def test_ids_of_images_are_the_same_with_quotes_and_without(tmp_path, image, annotation):
    content = json.loads(json.dumps(GOOD))
    content["images"][0]["id"], content["annotations"][0]["image_id"] = image, annotation
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    read = coco_file.read(path).content
    assert read.ids == [image]  # as the file has it, for the detections of an evaluation
    assert len(read.boxes) == (annotation != "01")
    assert [problem.reason for problem in read.problems] == (
        ["there is no image '01'"] if annotation == "01" else []
    )


@pytest.mark.parametrize("values", [True, 1, 1.0, False, 0])
def test_crowd_regions_may_be_true_or_one(tmp_path, values):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(GOOD | {"annotations": [ONE | {"iscrowd": values}]}))
    assert coco_file.read(path).content.ignored.tolist() == [bool(values)]


@pytest.mark.parametrize(
    "counts, size, reason",
    [
        ([3, 5, 8], [4, 4], ""),
        ([3, 5, 9], [4, 4], "its mask has runs of 17 pixels, expected 16"),
        ([3, -5, 18], [4, 4], "its mask has counts that are not lengths"),
        ("354", [4, 4], "its mask has runs of 12 pixels, expected 16"),
        ("garbage\0", [4, 4], "its mask has counts that are not lengths"),
        ([9], [3, 3], "its mask has 3 x 3 pixels, its image 4 x 4"),
        ([9], [3], "its mask has no size of rows and columns"),
        (None, [4, 4], "its mask has counts that are not lengths"),
    ],
)
def test_run_lengths_of_masks_are_checked(tmp_path, counts, size, reason):
    path = tmp_path / "x.json"
    mask = {"counts": counts, "size": size}
    path.write_text(json.dumps(GOOD | {"annotations": [ONE | {"segmentation": mask}]}))
    assert coco_file.read(path).content.problems == []
    problems = coco_file.read(path, polygons=True).content.problems
    assert [one.reason.startswith(reason) for one in problems] == [True] * bool(reason)
    assert {one.left_out for one in problems} <= {NOT_READ}


def test_run_lengths_are_those_of_pycocotools():
    masks = pytest.importorskip("pycocotools.mask")
    rng = np.random.default_rng(0)
    for _ in range(30):
        drawn = np.kron(rng.random(rng.integers(1, 40, 2)), np.ones((3, 3))) < rng.random()
        text = masks.encode(np.asfortranarray(drawn.astype(np.uint8)))
        mask = {"size": text["size"], "counts": text["counts"].decode()}
        assert wrong_runs(mask) == ""
        flat = np.concatenate([[0], drawn.flatten("F")])
        ends = np.concatenate([np.flatnonzero(np.diff(flat)), [drawn.size]])
        assert run_lengths(mask["counts"]) == np.diff(ends, prepend=0).tolist()


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
    boxed.edited(file, images=lambda given: [
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
    ],
)
def test_polygons_that_cross_themselves(polygon, reason):
    assert crosses_itself(polygon).startswith(reason)
    assert bool(crosses_itself(polygon)) == bool(reason)


def test_polygons_of_many_corners_are_not_checked():
    with pytest.raises(Unchecked, match=r"has 5,000 corners, and is checked up to 4,096"):
        crosses_itself([*range(10_000)])


def test_crossing_polygons_are_faults_that_leave_training_alone(tmp_path, capsys):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    file = root / "annotations/instances_train.json"
    star = [10, 0, 16, 20, 0, 8, 20, 8, 4, 20]
    rows = [boxed.annotation(900 + n, 101, 3, [0, 0, 9, 9], segmentation=[polygon])
            for n, polygon in enumerate((star, [*range(10_000)]))]  # fmt: skip
    boxed.edited(file, annotations=lambda given: [*given, *rows])
    assert main(["data", "check", f"coco:{file}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [(entry["file"][-14:], entry["reason"]) for entry in report["bad"]] == [
        ("annotation 900", "its polygon crosses itself, at the edge from (10, 0)")
    ]
    assert [note["reason"] for note in report["notes"]] == [
        "its polygon has 5,000 corners, and is checked up to 4,096"
    ]
    boxed.edited(file, annotations=lambda given: given[:-2] + given[-1:])
    assert main(["data", "check", f"coco:{file}"]) == 0
    assert "1 polygons not checked" in capsys.readouterr().out


def test_long_polygon_crosses_itself_once():
    angle = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert crosses_itself(circle.reshape(-1).tolist()) == ""
    circle[[700, 701]] = circle[[701, 700]]
    assert "crosses itself" in crosses_itself(circle.reshape(-1).tolist())
