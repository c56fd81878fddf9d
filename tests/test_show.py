# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The contact sheet: which images, how large, and that a text is whole or ends in an ellipsis."""

import dataclasses
import io

import numpy as np
import pictures
import pytest
from PIL import Image, ImageDraw

from vit_jax.data.inspect import show
from vit_jax.data.tensorflow import tf

NAMES = [f"class {i}" for i in range(20)]


@pytest.fixture
def written(monkeypatch):
    """Every text that is drawn, with the box it fills."""
    texts, draw_text = [], ImageDraw.ImageDraw.text

    def text(self, xy, text, fill, font):
        texts.append((text, self.textbbox(xy, text, font=font)))
        draw_text(self, xy, text, fill, font)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return texts


def sheet(size=4, names=NAMES, rows=2, columns=3, examples=20, source="folder:x", chain="decode"):
    pipe = pictures.batches(pictures.split(examples, size), chain, image_size=size)
    data = show.sheet(pipe, names, source=source, chain=chain, rows=rows, columns=columns)
    page = Image.open(io.BytesIO(data))
    assert (page.format, page.mode) == ("PNG", "RGB")
    return page, pipe


def tiles(page, rows, columns, side):
    """uint8 [rows * columns, side, side, 3], from the layout: margins of 12, lines of 21."""
    pixels = np.asarray(page)
    top = pixels.shape[0] - rows * (side + 21 + 12)
    return np.stack(
        [
            pixels[y : y + side, x : x + side]
            for y in (top + row * (side + 33) for row in range(rows))
            for x in (12 + column * (side + 12) for column in range(columns))
        ]
    )


@pytest.mark.parametrize(
    "size, factor, chain",
    [(4, 56, "flip_lr|color_jitter(0.5)"), (100, 2, "decode"), (224, 1, "decode")],
)
def test_images_are_the_first_of_training_enlarged_by_a_whole_number(size, factor, chain):
    page, pipe = sheet(size, rows=2, columns=2, chain=chain)
    first = next(dataclasses.replace(pipe, batch_size=4).train(0, 1))["image"]
    wanted = first.repeat(factor, axis=1).repeat(factor, axis=2)
    assert (tiles(page, 2, 2, size * factor) == wanted).all()


def test_large_images_are_shrunk():
    page, pipe = sheet(300, rows=1, columns=2, examples=3)
    assert page.width == 2 * (224 + 12) + 12
    image = next(dataclasses.replace(pipe, batch_size=1).train(0, 1))["image"][0]
    wanted = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.LANCZOS))
    assert (tiles(page, 1, 2, 224)[0] == wanted).all()


def test_sheet_is_the_same_each_time_and_another_with_another_seed():
    pages = [np.asarray(sheet()[0]) for _ in range(2)]
    assert (pages[0] == pages[1]).all()
    pipe = pictures.batches(pictures.split(20), seed=2)
    other = show.sheet(pipe, NAMES, source="folder:x", chain="decode", rows=2, columns=3)
    assert (np.asarray(Image.open(io.BytesIO(other))) != pages[0]).any()


def test_heading_and_a_name_for_each_image(written):
    _, pipe = sheet(source="folder:/data/birds", chain="decode|flip_lr", rows=2, columns=3)
    labels = next(dataclasses.replace(pipe, batch_size=6).train(0, 1))["labels"][:, 0]
    assert [text for text, _ in written] == [
        "folder:/data/birds: 20 training examples, 20 classes",
        "decode|flip_lr",
        *(f"class {k}" for k in labels),
    ]


@pytest.mark.parametrize("columns", [1, 3])
def test_no_text_is_cut_off_or_lies_on_another(written, columns):
    names = ["n" * 500, "W" * 40, "two words " * 9, "short"] * 5
    source = "csv:/a/folder/" + "x" * 300 + "/with spaces in it/table.csv"
    chain = "|".join(["decode", *["affine(10, 0.1, 2)"] * 9])
    page, _ = sheet(names=names, columns=columns, source=source, chain=chain)
    heading = len(written) - 2 * columns
    assert "".join(text for text, _ in written[:heading]) == (
        source + ": 20 training examples, 20 classes" + chain
    )
    for number, (_, (left, top, right, bottom)) in enumerate(written):
        assert left >= 12 - 1
        assert right <= page.width - 12 + 1
        assert top >= 12
        assert bottom <= page.height
        if number >= heading:
            column = (number - heading) % columns
            assert right <= 12 + column * 236 + 224 + 1
        elif number:
            assert top >= written[number - 1][1][3] - 1
    for text, _ in written[heading:]:
        assert any(text == n or (text[-1] == "…" and n.startswith(text[:-1])) for n in names)
        assert len(text) > 4


def test_several_labels_or_none_and_names_of_odd_characters(written):
    split = pictures.split(8)
    labels = np.int32([[0, 1], [2, -1], [-1, -1], [3, -1]] * 2)

    def reader():
        read = split.table.reader()
        return lambda row: (read(row)[0], tf.gather(tf.constant(labels), row))

    table = dataclasses.replace(split.table, reader=reader)
    pipe = pictures.batches(dataclasses.replace(split, table=table))
    names = ["cat", "dog", "a\nb\tc", "x\x00\udcff"]
    show.sheet(pipe, names, source="s", chain="decode", rows=2, columns=4)
    assert {text for text, _ in written[2:]} == {"cat, dog", "a b c", "(no label)", "x??"}


def test_more_images_than_examples_begin_again():
    page, _ = sheet(examples=3, rows=2, columns=3)
    shown = {tile.tobytes() for tile in tiles(page, 2, 3, 224)}
    assert len(shown) == 3


def test_heading_is_broken_between_ops(written):
    chain = "|".join(["decode", *["affine(10, 0.1, 2)"] * 9])
    sheet(chain=chain, source="s", columns=1)
    lines = [text for text, _ in written[:-2]]
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith("decode")) :]
    assert "".join(lines) == chain
    assert len(lines) > 3
    assert {line[-1] for line in lines[:-1]} == {"|"}
