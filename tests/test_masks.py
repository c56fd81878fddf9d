# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images with masks: files of classes, kinds of masks, layouts of folders, and what is wrong."""

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from vit_jax.cli.main import main
from vit_jax.data.formats import class_file, mask_file
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.sources import registry
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput

LABELS = np.array([[0, 1, 2], [2, -1, 0]], np.int32)


def classes_of(tmp_path, text, name="classes.txt"):
    path = tmp_path / name
    path.write_text(text)
    return class_file.read(path)


def encoded(array, mode=None, palette=None, kind="PNG", **options):
    picture = Image.fromarray(np.asarray(array), mode)
    if palette is not None:
        picture.putpalette(np.resize(np.asarray(palette, np.uint8), 768).tobytes())
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize(
    "text, of_value, of_colour",
    [
        ("sky\nroad\ntraffic light\n", {0: 0, 1: 1, 2: 2, 255: -1}, {}),
        ("1 sky\n2 road\n3 traffic light\n", {0: -1, 1: 0, 2: 1, 3: 2, 255: -1}, {}),
        ("0: sky\n1: road\n2: traffic light\n", {0: 0, 1: 1, 2: 2, 255: -1}, {}),
        ("7 sky\n0 road\n255 traffic light", {7: 0, 0: 1, 255: 2}, {}),
        (
            "name,r,g,b\nsky,1,2,3\nroad,4,5,6\nvoid,0,0,0\ntraffic light,7,8,9",
            {0: 0, 1: 1, 2: -1, 3: 2, 255: -1},
            {(1, 2, 3): 0, (4, 5, 6): 1, (0, 0, 0): -1, (7, 8, 9): 2},
        ),
        ("1 2 3 sky\n4 5 6\troad\n7 8 9\ttraffic light",
         {0: 0, 1: 1, 2: 2, 255: -1}, {(1, 2, 3): 0, (4, 5, 6): 1, (7, 8, 9): 2}),
        ("# label:color_rgb:parts:actions\nsky:1,2,3::\nroad:4,5,6::\ntraffic light:7,8,9::\n",
         {0: 0, 1: 1, 2: 2, 255: -1}, {(1, 2, 3): 0, (4, 5, 6): 1, (7, 8, 9): 2}),
        ("5 sky #010203\n4 road #040506\n3 traffic light 7 8 9",
         {5: 0, 4: 1, 3: 2, 255: -1}, {(1, 2, 3): 0, (4, 5, 6): 1, (7, 8, 9): 2}),
    ],
)  # fmt: skip
def test_file_of_classes_in_many_forms(tmp_path, text, of_value, of_colour):
    classes = classes_of(tmp_path, text)
    assert classes.names == ("sky", "road", "traffic light")
    assert (dict(classes.of_value), dict(classes.of_colour)) == (of_value, of_colour)


@pytest.mark.parametrize(
    "text",
    [
        "class 1\nclass 2",
        "0 class 1 230 159 0\n1 class 2 86 180 233",
        "4 class 1\n2 class 2",
        "class_1\nclass_2",
        "class 1\nclass 2\nvoid",
    ],
)
def test_names_that_end_in_numbers_are_names(tmp_path, text):
    names = classes_of(tmp_path, text).names
    assert [name.replace("_", " ") for name in names] == ["class 1", "class 2"]


def test_names_keep_their_commas(tmp_path):
    text = "1\tbuilding, edifice\n2\tsky"
    assert classes_of(tmp_path, text).names == ("building, edifice", "sky")


@pytest.mark.parametrize(
    "text, part",
    [
        ("Idx\tRatio\tTrain\tVal\tName\n1\t0.15\t11664\t1172\twall\n2\t0.1\t6\t2\tsky", "neither"),
        ("sky 7\nroad 0", "before the name"), ("sky 7\nroad 0\nvoid", "before the name"),
        *((text, "before the name") for text in (
            "name,id\nroad,2\nsky,0", "sky;7\nroad;0", "sky=7\nroad=0", "sky (7)\nroad (0)",
            "7. sky\n0. road", "1) sky\n2) road", "3-sky\n4-road", "sky 1 2\nroad 2 2",
            "sky_7\nroad_0", "sky,7\nvoid", "1. sky 1 2 3\n2. road 4 5 6", "0 sky 7\n1 road 8",
        )),
        ("1 sky\nroad", "'road'"),
        ("class 1 10 20 30\nclass 2 40 50 60", "colour"), ("1 2 sky\n3 4 road", "which number"),
        ("1 64 128 64 sky\n2 1 1 1 road", "which number"), ("7\n8", "no name"),
    ],
)  # fmt: skip
def test_lines_that_can_be_read_in_two_ways(tmp_path, text, part):
    with pytest.raises(BadInput, match=r"classes\.txt") as caught:
        classes_of(tmp_path, text)
    assert part in str(caught.value).partition("; write one class")[0]


@pytest.mark.parametrize(
    "content, part",
    [({"sky": "1", "road": "2"}, "'1'"), ({"sky": [1, 2], "road": [3, 4]}, "[1, 2]"),
     ([{"name": "sky", "id": "1"}, {"name": "road", "id": "2"}], "id '1'")],
)  # fmt: skip
def test_json_whose_numbers_cannot_be_read(tmp_path, content, part):
    with pytest.raises(BadInput) as caught:
        classes_of(tmp_path, json.dumps(content), "classes.json")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        ["sky", "road"],
        {"sky": 0, "road": 1},
        {"0": "sky", "1": "road"},
        {"sky": [1, 2, 3], "road": [4, 5, 6]},
        {"categories": [{"id": 0, "name": "sky"}, {"id": 1, "name": "road", "color": [4, 5, 6]}]},
    ],
)
def test_file_of_classes_in_json(tmp_path, content):
    classes = classes_of(tmp_path, json.dumps(content), "classes.json")
    assert classes.names == ("sky", "road")
    assert dict(classes.of_value) == {0: 0, 1: 1, 255: -1}


@pytest.mark.parametrize(
    "text, part",
    [
        ("", "none"), ("sky\n", "sky"), ("sky\nvoid\n", "sky"), ("sky\nsky\n", "twice"),
        ("0 sky\n0 road\n", "two classes"), ("sky 1 2 3\nroad 1 2 3\n", "two classes"),
        ("sky 1 2 300\nroad 1 2 3\n", "255"), ("sky 1 2 3\nroad\n", "'road'"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_classes(tmp_path, text, part):
    with pytest.raises(BadInput, match=r"classes\.txt") as caught:
        classes_of(tmp_path, text)
    assert part in str(caught.value).partition("; write one class")[0]


def test_file_of_classes_in_another_encoding(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_bytes(b"sky\nstra\xdfe")
    with pytest.raises(BadInput, match="utf-8"):
        class_file.read(path)


GRAY = np.array([[0, 1, 2], [2, 255, 0]], np.uint8)
COLOURS = np.array([[9, 9, 9], [200, 0, 0], [0, 0, 200]], np.uint8)
RGB = np.where(LABELS[..., None] >= 0, COLOURS[np.maximum(LABELS, 0)], 0).astype(np.uint8)
NUMBERED = "a\nb\nc"
# A gray PNG file of 2 x 1 pixels of 4 bits, 0 and 15, which Pillow reads as 0 and 255.
FOUR_BITS = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 2, 1, 4, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\x0f")),
        (b"IEND", b""),
    )
)
COLOURED = "a 9 9 9\nb 200 0 0\nc 0 0 200\nvoid 0 0 0"


@pytest.mark.parametrize(
    "text, content",
    [
        (NUMBERED, encoded(GRAY)),
        (NUMBERED, encoded(GRAY, "P", COLOURS)),
        (NUMBERED, encoded(GRAY.astype(np.uint16))),
        (NUMBERED, encoded(np.repeat(GRAY[..., None], 3, -1))),
        ("1 a\n2 b\n3 c", encoded(np.where(LABELS < 0, 0, LABELS + 1).astype(np.uint8))),
        (COLOURED, encoded(RGB)),
        (COLOURED, encoded(np.dstack([RGB, np.full((2, 3), 255, np.uint8)]))),
        (COLOURED, encoded(3 - GRAY % 4, "P", [[0, 0, 0], *COLOURS[::-1]])),
        ("0 a 9 9 9\n1 b 200 0 0\n2 c 0 0 200", encoded(GRAY, "P", COLOURS[::-1])),
    ],
)
def test_every_kind_of_mask_is_read(tmp_path, text, content):
    np.testing.assert_array_equal(mask_file.read(content, classes_of(tmp_path, text)), LABELS)


def test_black_and_white_masks_with_their_colours(tmp_path):
    classes = classes_of(tmp_path, "field 0 0 0\nroad 255 255 255")
    picture = encoded(np.array([[0, 255]], np.uint8))
    np.testing.assert_array_equal(mask_file.read(picture, classes), [[0, 1]])


def test_masks_of_0_and_255_need_a_line_that_says_what_255_is(tmp_path):
    """Else the second class is void, and a model of the first alone has a mIoU of 100 %."""
    picture = encoded(np.array([[0, 255]], np.uint8))
    with pytest.raises(BadImage, match=r"are 0, 255, .*`255 road`.*`255 void`"):
        mask_file.read(picture, classes_of(tmp_path, "background\nroad"))
    for text, wanted in (
        ("0 background\n255 road", [[0, 1]]),
        ("0 background\n1 road\n255 void", [[0, -1]]),
        ("background\nroad\nsky", [[0, -1]]),
    ):
        found = mask_file.read(picture, classes_of(tmp_path, text))
        np.testing.assert_array_equal(found, wanted)
    both = encoded(np.array([[0, 1, 255]], np.uint8))
    found = mask_file.read(both, classes_of(tmp_path, "background\nroad"))
    np.testing.assert_array_equal(found, [[0, 1, -1]])


@pytest.mark.parametrize(
    "text, content, parts",
    [
        (NUMBERED, encoded(GRAY + 3), ("pixels of 3 (2, first at row 0, column 0)", "0-2, 255")),
        (NUMBERED, encoded(np.full((2, 2), 3, np.uint8)), ("count from 1",)),
        (NUMBERED, encoded(RGB), ("coloured", "no colours")),
        (COLOURED, encoded(RGB + 1), ("(10, 10, 10)", "void")),
        (NUMBERED, encoded(GRAY, kind="JPEG"), ("JPEG", "PNG")),
        (NUMBERED, encoded(GRAY, kind="WEBP"), ("WEBP", "PNG")),
        (NUMBERED, b"P5 3 1 2 " + bytes([0, 1, 2]), ("PPM", "PNG")),
        (NUMBERED, encoded(GRAY.astype(np.float32), kind="TIFF"), ("kind F", "PNG")),
        (NUMBERED, encoded(GRAY, kind="TIFF", tiffinfo={262: 0}), ("inverted",)),
        (NUMBERED, FOUR_BITS, ("4 bits", "8 bits")),
        (NUMBERED, b"", ("empty",)),
        (NUMBERED, encoded(GRAY)[:50], ("",)),
    ],
)
def test_masks_that_cannot_be_used(tmp_path, text, content, parts):
    with pytest.raises(BadImage) as caught:
        mask_file.read(content, classes_of(tmp_path, text))
    assert [part for part in parts if part not in str(caught.value)] == []


# --- layouts ---


def folder_of(root, files, classes="a\nb\nc\n", sides=(4, 6)):
    """Writes gray images, and masks where the path says so."""
    for number, path in enumerate(files):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full(sides, number % 3, np.uint8)
        Image.fromarray(pixels).save(root / path)
    if classes:
        (root / "classes.txt").write_text(classes)
    return root


def opened(root, **options):
    return registry.open_source(f"masks:{root}", Options(**options), val_percent=0, test_percent=0)


def pairs(source, split):
    read = source.splits[split].numpy_reader()
    fields = [read(i) for i in range(len(source.splits[split]))]
    return [(str(f["image"].path), str(f["mask"].path)) for f in fields]


@pytest.mark.parametrize(
    "images, masks, splits",
    [
        (["train/images/a.jpg", "val/images/b.jpg"], ["train/masks/a.png", "val/masks/b.png"], 2),
        (["images/training/a.jpg", "images/validation/b.jpg"],
         ["annotations/training/a.png", "annotations/validation/b.png"], 2),
        (["train/a.png", "test/b.png"], ["trainannot/a.png", "testannot/b.png"], 2),
        (["leftImg8bit/train/x/x_01_leftImg8bit.png", "leftImg8bit/val/y/y_02_leftImg8bit.png"],
         ["gtFine/train/x/x_01_gtFine_labelTrainIds.png",
          "gtFine/val/y/y_02_gtFine_labelTrainIds.png"], 2),
        (["img/a.jpg", "img/b.jpg"], ["labels/a_L.png", "labels/b_L.png"], 1),
        (["images/img_1.jpg", "images/img_2.jpg"], ["masks/mask_1.png", "masks/mask_2.png"], 1),
        (["images/a.jpg", "images/b.jpg"], ["annotations/trimaps/a.png",
                                           "annotations/trimaps/b.png"], 1),
        (["a.jpg", "b.jpg"], ["a.png", "b.png"], 1),
        (["a.png", "b.png"], ["a_mask.png", "b_mask.png"], 1),
        (["x/Images/10.jpg", "x/Images/2.jpg"], ["x/Masks/m010.png", "x/Masks/m002.png"], 1),
    ],
)  # fmt: skip
def test_layouts_of_folders(tmp_path, images, masks, splits):
    root = folder_of(tmp_path, [*images, *masks])
    source = opened(root)
    found = {pair for split in source.splits for pair in pairs(source, split)}
    expected = {(f"{root}/{a}", f"{root}/{b}") for a, b in zip(images, masks, strict=True)}
    assert found == expected
    assert len({frozenset(pairs(source, split)) for split in source.splits} - {frozenset()}) == (
        splits
    )


def test_other_masks_of_cityscapes_are_not_read(tmp_path):
    names = [f"leftImg8bit/train/x/x_{n}_leftImg8bit.png" for n in "12"]
    names += [f"gtFine/train/x/x_{n}_gtFine_{kind}.png" for n in "12"
              for kind in ("color", "instanceIds", "labelIds")]  # fmt: skip
    source = opened(folder_of(tmp_path, names))
    assert pairs(source, "train")[0][1].endswith("labelIds.png")


@pytest.mark.parametrize("target", ["data", "data/train", "elsewhere"])
def test_links_to_folders_are_followed_and_none_counts_twice(tmp_path, target):
    root = folder_of(tmp_path / "data", ["train/images/a.jpg", "train/masks/a.png"])
    folder_of(tmp_path / "elsewhere", ["images/b.jpg", "masks/b.png"], "")
    (root / "test").symlink_to(tmp_path / target)
    if target == "elsewhere":
        assert len(opened(root).splits["test"]) == 1
        return
    with pytest.raises(BadInput, match=r"are one folder.*remove the link"):
        opened(root)


@pytest.mark.parametrize(
    "files",
    [
        ["images/cam1_10.jpg", "images/cam2_11.jpg", "masks/cam2_10.png", "masks/cam1_11.png"],
        ["images/a_10.jpg", "images/b_11.jpg", "masks/b_10.png", "masks/a_11.png"],
        ["images/foo_bar.jpg", "masks/baz_qux.png"],
        ["train/images/a.jpg", "train/images/b.jpg", "train/masks/a.png", "train/masks/b.png",
         "val/images/x_1_a.jpg", "val/masks/x_2_b.png"],
        ["images/12_5.jpg", "images/12_6.jpg", "masks/5.png", "masks/6_1.png"],
    ],
)  # fmt: skip
def test_names_that_only_resemble_each_other_make_no_pairs(tmp_path, files):
    with pytest.raises(BadInput, match="images have no mask"):
        opened(folder_of(tmp_path, files))


@pytest.mark.parametrize("of_test", ["", "labelIds", "labelTrainIds"])
def test_validation_split_of_cityscapes_is_test(tmp_path, of_test):
    """Whether test images have no masks, masks of another kind, or masks without a class."""
    kinds = {"train": "labelTrainIds", "val": "labelTrainIds", "test": of_test}
    names = [f"leftImg8bit/{split}/x/x_{n}_leftImg8bit.png" for split in kinds for n in "12"]
    masks = [f"gtFine/{s}/x/x_{n}_gtFine_{kind}.png" for s, kind in kinds.items() if kind
             for n in "12"]  # fmt: skip
    root = folder_of(tmp_path, [*names, *masks])
    for name in masks[4:]:
        Image.fromarray(np.full((4, 6), 255, np.uint8)).save(root / name)
    source = opened(root)
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 2, "test": 2}
    assert all("/val/" in path for pair in pairs(source, "test") for path in pair)
    if of_test == "labelTrainIds":
        assert "test: 2 images left out, whose masks hold no class" in source.notes
        Image.fromarray(np.zeros((4, 6), np.uint8)).save(root / masks[-1])
        assert {*opened(root).splits} == {"train", "val", "test"}


@pytest.mark.parametrize(
    "files, classes, parts",
    [
        (
            ["images/a.jpg", "images/b.jpg", "masks/a.png"],
            "a\nb",
            ["1 of 2 images", "images/b.jpg"],
        ),
        (["images/a.jpg"], "a\nb", ["no masks", "expected PATH/images"]),
        (["masks/a.png"], "a\nb", ["no images"]),
        (["images/a.jpg", "masks/a.png"], "", ["classes.txt", "label_names"]),
        (["images/a.jpg", "masks/a.png"], "a", ["two classes or more"]),
    ],
)
def test_folders_that_lack_something(tmp_path, files, classes, parts):
    with pytest.raises(BadInput) as caught:
        opened(folder_of(tmp_path, files, classes))
    assert [part for part in [str(tmp_path), *parts] if part not in str(caught.value)] == []


def test_scenes_of_ade20k_are_no_classes(tmp_path):
    root = folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], "")
    (root / "sceneCategories.txt").write_text("a airport\nb bakery")
    with pytest.raises(BadInput, match="no file of classes"):
        opened(root)


def test_file_of_classes_may_have_any_name(tmp_path):
    root = folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], "")
    (root / "my labels.txt").write_text("a\nb")
    (root / "my colours.txt").write_text("a\nb\nc")
    with pytest.raises(BadInput, match=r"my colours\.txt, my labels\.txt"):
        opened(root)
    assert opened(root, label_names=f"{root}/my colours.txt").classes == ("a", "b", "c")


def test_pascal_voc(tmp_path):
    files = [f"JPEGImages/{n}.jpg" for n in "ab"] + [f"SegmentationClass/{n}.png" for n in "ab"]
    folder_of(tmp_path, [*files, "SegmentationObject/a.png"], "")
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\n")
    (lists / "val.txt").write_text("b\n")
    source = registry.open_source(f"voc:{tmp_path}", Options(), val_percent=0, test_percent=0)
    assert len(source.classes) == 21
    assert source.classes[20] == "tvmonitor"
    assert pairs(source, "train") == [
        (f"{tmp_path}/JPEGImages/a.jpg", f"{tmp_path}/SegmentationClass/a.png")
    ]
    (lists / "val.txt").write_text("b\nc\n")
    with pytest.raises(BadInput, match=r"JPEGImages/c.jpg"):
        registry.open_source(f"voc:{tmp_path}", Options(), val_percent=0, test_percent=0)


# --- data check ---


def test_check_finds_masks_of_a_source_with_other_classes():
    """A source of one's own may give any number."""
    from vit_jax.data.inspect import check
    from vit_jax.data.sources.source import Source
    from vit_jax.data.splits.split import Split, Table

    def fields(row):
        mask = np.array([[0, 1], [-1, row]], np.int32)
        return {"image": np.zeros((2, 2, 3), np.uint8), "labels": np.array([-1]), "mask": mask}

    table = Table(4, str, None, numbered=True, numpy_reader=lambda: fields)
    report = check.check_images(Source("own", ("a", "b"), {"all": Split(table, range(4))}), 1)
    assert [name for name, _ in report.bad] == ["2", "3"]
    assert (
        "pixels of 3 (1, first at row 1, column 1) are of no class, of which there are 2"
        in (report.bad[1][1])
    )
    assert [pixels for _, _, pixels in report.masks] == [5, 5, 6]


def test_check_names_each_fault_of_a_mask(tmp_path, capsys):
    root = folder_of(tmp_path, [f"{kind}/{n}.png" for kind in ("images", "masks") for n in "abcde"])
    Image.fromarray(np.zeros((6, 4), np.uint8)).save(root / "masks/a.png")
    Image.fromarray(np.full((4, 6), 9, np.uint8)).save(root / "masks/b.png")
    Image.fromarray(np.full((4, 6), 255, np.uint8)).save(root / "masks/c.png")
    (root / "masks/d.png").write_bytes(b"")
    Image.fromarray(np.array([[0, 1, 1, 255]] * 4 + [[1] * 4] * 2, np.uint8).T).save(
        root / "masks/e.png"
    )
    assert main(["data", "check", f"masks:{root}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    bad = {entry["file"]: entry["reason"] for entry in report["bad"]}
    assert sorted(bad) == [f"images/{n}.png" for n in "abcd"]
    for name, part in {"a": "4 x 6 pixels, its image 6 x 4", "b": "of 9", "c": "no pixel has",
                       "d": "empty"}.items():  # fmt: skip
        assert part in bad[f"images/{name}.png"]
        assert f"masks/{name}.png" in bad[f"images/{name}.png"]
    pixels = {entry["name"]: entry["pixels"] for entry in report["masks"]}
    assert pixels["b"] == 16
    assert pixels["c"] == 0
