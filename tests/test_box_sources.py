# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What all sources of boxes share: the same boxes, mixtures, checks, held-out images."""

import json

import boxed
import jax
import numpy as np
import pytest
from opened_sources import message, opened
from PIL import Image

from vit_jax.build import objectives
from vit_jax.cli.main import main
from vit_jax.data.ops import chain
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

WRITERS = {"coco": boxed.coco, "voc": boxed.voc, "yolo": boxed.yolo}


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
        for index, truth in enumerate(boxed.truths(source, split)):
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


def test_check_counts_boxes_and_mixtures_have_them(tmp_path, capsys):
    coco = boxed.coco(tmp_path / "coco", (("train", 6),))
    yolo = boxed.yolo(tmp_path / "yolo", (("train", 6),))
    assert main(["data", "check", f"coco:{coco}"]) == 0
    shown = capsys.readouterr().out
    total = sum(len(boxed.drawn(seed)[1]) for seed in range(6))
    rows = [line.split() for line in shown.splitlines() if line.startswith(boxed.NAMES)]
    assert sum(int(row[2]) for row in rows) == total
    mixed = opened(f"mix:1*coco:{coco},1*yolo:{yolo}")
    found = boxed.truths(mixed, "train")
    assert sum(len(true.boxes) for true in found) == 2 * total


def test_mixtures_keep_crowds_areas_and_sides(tmp_path):
    """The second part lacks the first class of the first, so its classes have other numbers."""
    specs = []
    for place in ("a", "b"):
        root = boxed.coco(tmp_path / place, (("train", 3),))
        file = root / "annotations/instances_train.json"
        crowd = boxed.annotation(900, 100, 7, [-5, 0, 30, 30], iscrowd=1, area=123.5)
        boxed.edited(file, annotations=lambda given, crowd=crowd: [*given, crowd])
        specs.append(f"1*coco:{file}")
    plural = [one | {"name": one["name"] + "s"} for one in boxed.categories()]
    boxed.edited(file, categories=lambda _: plural)
    mixed = opened(f"mix:{','.join(specs)}")
    parts = [boxed.truths(opened(spec[2:]), "train") for spec in specs]
    found = boxed.truths(mixed, "train")
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


NO_BOX = [
    ([], "it has no boxes"),
    ([(3, [5, 5, 5, 9])], "1 boxes without area inside the image left out of training"),
    ([(8, [5, 5, 9, 9])] * 2, "2 boxes left out, whose category is not listed"),
    ([(3, [5, 5, 9, 9], {"iscrowd": 1})], "1 crowd regions or difficult objects"),
]


@pytest.mark.parametrize("rows, why", NO_BOX)
@pytest.mark.parametrize("split", ["train", "val"])
def test_splits_without_any_box_are_a_problem(tmp_path, capsys, split, rows, why):
    root = boxed.coco(tmp_path / "data", (("train", 1), ("val", 1)))
    number = {"train": 100, "val": 101}[split]
    made = [boxed.annotation(n, number, k, box, **(more or [{}])[0])
            for n, (k, box, *more) in enumerate(rows)]  # fmt: skip
    boxed.edited(root / f"annotations/instances_{split}.json", annotations=lambda _: made)
    found = boxed.checked(capsys, f"coco:{root}")
    assert any(place == f"split {split}" and why in reason for place, reason in found)
    if split == "train":
        assert why in message(f"coco:{root}")
    else:
        notes = " ".join(opened(f"coco:{root}").notes)
        assert "1 splits without a box that counts, first: split val" in notes


@pytest.mark.parametrize("kind", WRITERS)
def test_check_tells_images_without_boxes(tmp_path, capsys, kind):
    root = WRITERS[kind](tmp_path / "data", (("train", 12),))
    empty = [seed for seed in range(12) if not len(boxed.drawn(seed)[1])]
    assert main(["data", "check", f"{kind}:{root}", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["no_boxes"]
    assert [name[-8:] for name in names] == [f"{seed:04d}.png" for seed in empty]
    assert main(["data", "check", f"{kind}:{root}"]) == 0
    assert f"{len(empty)} images without boxes, first: {names[0]}" in capsys.readouterr().out


def test_faults_that_hinder_opening_hide_no_others(tmp_path, capsys):
    """Boxes outside are told beside an absent image and a box of NaN, five of each kind."""
    root = boxed.coco(tmp_path / "data", (("train", 3),))
    (root / "train/0002.png").unlink()
    more = [boxed.annotation(900 + n, 100, 3, [n, 0, 900, 9]) for n in range(7)]
    more += [boxed.annotation(990, 100, 3, [0, 0, float("nan"), 9])]
    file = root / "annotations/instances_train.json"
    boxed.edited(file, annotations=lambda given: [*given, *more])
    reasons = [reason for _, reason in boxed.checked(capsys, f"coco:{root}")]
    counts = [sum(part in reason for reason in reasons)
              for part in ("there is no image", "its bbox is", "is outside the image")]  # fmt: skip
    assert counts == [1, 1, 7]
    assert len(reasons) == 9
    assert main(["data", "check", f"coco:{root}"]) == 2
    shown = capsys.readouterr().out
    assert shown.count("is outside the image") == 5
    assert "and 2 more of these kinds, which --json lists" in shown
    assert "there is no image" in shown


@pytest.mark.parametrize("turned", [False, True])
def test_images_of_another_size_than_their_boxes_are_not_trained_on(tmp_path, turned):
    root = boxed.coco(tmp_path / "data", (("train", 2),))
    rows, columns = boxed.drawn(0)[0].shape[:2]
    stated = {"width": rows, "height": columns} if turned else {"width": 7}
    boxed.edited(
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
    """Also boxes whose width or height is below a pixel."""
    root = boxed.coco(tmp_path / "data", (("train", 24),))
    tiny = [boxed.annotation(900 + n, 100, 3, [5, 5, 5 + wide, 5 + high])
            for n, (wide, high) in enumerate(((0.4, 0.4), (9, 0.1), (0.1, 9)))]  # fmt: skip
    boxed.edited(root / "annotations/instances_train.json", annotations=lambda own: [*own, *tiny])
    out = tmp_path / "sheet.png"
    chain_ = "decode|resize_inside({size})|pad({size})"
    assert (
        main(["data", "show", f"coco:{root}", f"--out={out}", f"--ops={chain_}", "--size=64"]) == 0
    )
    with Image.open(out) as picture:
        colours = {colour for _, colour in picture.getcolors(1 << 20)}
    assert {(230, 159, 0), (86, 180, 233)} <= colours  # frames of both classes


@pytest.mark.parametrize(
    "given, expected",
    [
        ("detection", "detection(most=4)"),
        ("detection()", "detection(most=4)"),
        ("detection(width=8, strides=(8,16))", "detection(width=8, strides=(8,16),most=4)"),
        ("detection(most=2, depth=1)", "detection(depth=1,most=4)"),
        ("detection(depth=1, most=2)", "detection(depth=1,most=4)"),
        ("mine:Boxes(few=True)", "let the method batch of mine:Boxes(few=True) give boxes [4, 4]."),
    ],
)
@pytest.mark.parametrize("kind", [*WRITERS, "mix"])
def test_image_with_too_many_boxes_is_named_with_the_setting(tmp_path, kind, given, expected):
    kinds, counts = ["coco", "yolo"] if kind == "mix" else [kind], (("val", 1), ("train", 3))
    specs = [f"{one}:{WRITERS[one](tmp_path / one, counts)}" for one in kinds]
    source = opened(f"mix:1*{specs[0]},1*{specs[1]}" if kind == "mix" else specs[0])
    wanted = objectives.Fields({"boxes": jax.ShapeDtypeStruct((2, 4), np.float32)}, None)
    said = set()
    for split in source.splits.values():
        with pytest.raises(BadInput) as caught:
            objectives.check_boxes(given, wanted, split)
        said.add(str(caught.value))
    (text,) = said  # once, whatever reads the data
    assert "0000.png has 4 boxes, and the objective takes 2" in text
    if given.startswith("detection"):
        expected = f"write --config.objective='{expected}'."
    assert text.endswith(expected)


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
