# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masks: files of classes, kinds of masks, and what is wrong."""

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from vit_jax.data.formats import class_file, mask_file
from vit_jax.data.ops.decode import BadImage
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
        ("Pixel Value, Class\n0, sky\n1, road\n2, traffic light\n",
         {0: 0, 1: 1, 2: 2, 255: -1}, {}),
        ("5 sky #010203\n4 road #040506\n3 traffic light 7 8 9",
         {5: 0, 4: 1, 3: 2, 255: -1}, {(1, 2, 3): 0, (4, 5, 6): 1, (7, 8, 9): 2}),
    ],
)  # fmt: skip
def test_file_of_classes_in_many_forms(tmp_path, text, of_value, of_colour):
    classes = classes_of(tmp_path, text)
    assert classes.names == ("sky", "road", "traffic light")
    assert (dict(classes.of_value), dict(classes.of_colour)) == (of_value, of_colour)


def test_list_of_labelme_counts_from_minus_1(tmp_path):
    """As labelme2voc does, which saves -1 as 255."""
    classes = classes_of(tmp_path, "__ignore__\n_background_\ncat\n")
    assert classes.names == ("_background_", "cat")
    assert dict(classes.of_value) == {0: 0, 1: 1, 255: -1}
    classes = classes_of(tmp_path, "0 __ignore__\n1 _background_\n2 cat\n")
    assert dict(classes.of_value) == {0: -1, 1: 0, 2: 1, 255: -1}
    with pytest.raises(BadInput, match=r"'__ignore__', may be 0, or -1"):
        classes_of(tmp_path, "__ignore__\ndog\ncat\n")


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
     ([{"name": "sky", "id": "1"}, {"name": "road", "id": "2"}], "id '1'"),
     ({"sky": True, "road": 2}, "sky has True"), ({"sky": [True, 2, 3], "road": [4, 5, 6]}, "True"),
     ([{"name": "sky", "id": True}, {"name": "road", "id": 2}], "id True"),
     ({"sky": [-1, 2, 3], "road": [4, 5, 6]}, "0 to 255 are possible")],
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
@pytest.mark.parametrize("name", ["classes.json", "classes.JSON"])
def test_file_of_classes_in_json(tmp_path, content, name):
    classes = classes_of(tmp_path, json.dumps(content), name)
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


# --- colours of the data ---

RED, DARK, BLUE = [255, 0, 0], [90, 90, 90], [0, 0, 255]


@pytest.mark.parametrize("text, palette, expected", [
    ("a 255 0 0\nvoid 0 0 0\nb 0 0 255", None, [RED, BLUE]),
    ("2 b 0 0 255\n1 a 255 0 0\n", [DARK, RED, BLUE], [BLUE, RED]),  # the file goes first
    ("a\nvoid\nb", [RED, DARK, BLUE], [RED, BLUE]),
    ("a\nvoid\nb", None, None),
    ("a\nb\nc", [[n] * 3 for n in range(3)], None),  # a scale of gray
    ("a\nb\nc", [RED, BLUE, RED], None),  # classes look alike
])  # fmt: skip
def test_colours_of_the_data(tmp_path, text, palette, expected):
    content = encoded(np.zeros((2, 2), np.uint8), palette=palette)
    found = mask_file.colours(content, classes_of(tmp_path, text))
    assert (None if found is None else found.tolist()) == expected


@pytest.mark.parametrize("palette, expected", [(None, None), ([BLUE, RED], [BLUE, RED])])
def test_colours_of_some_classes_alone_are_not_taken(tmp_path, palette, expected):
    text = json.dumps([{"name": "a", "id": 0, "color": RED}, {"name": "b", "id": 1}])
    content = encoded(np.zeros((2, 2), np.uint8), palette=palette)
    found = mask_file.colours(content, classes_of(tmp_path, text, "classes.json"))
    assert (None if found is None else found.tolist()) == expected


def test_palette_whose_numbers_are_not_read_gives_no_colours(tmp_path):
    """Without numbers, the file's colours say what a pixel is, so 1 in the palette is not b."""
    of_colours = json.dumps([{"name": "a", "color": RED}, {"name": "b"}])
    content = encoded(np.ones((2, 2), np.uint8), palette=[BLUE, RED])
    classes = classes_of(tmp_path, of_colours, "classes.json")
    assert (mask_file.read(content, classes) == 0).all()
    assert mask_file.colours(content, classes) is None
