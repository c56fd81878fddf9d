# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masks of TFDS datasets: the features that hold them, and what their numbers stand for."""

import io
import json
import types

import numpy as np
import pytest
from opened_sources import message, opened
from PIL import Image
from test_tfds_source import FORMATS, as_builder, prepare

from vit_jax.cli.main import main
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources import tfds_masks
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

COUNT = 7
PETS = {"train": range(4), "test": range(4, COUNT)}  # one or more in each of three shards


def pixels(i):
    """Returns image i and the numbers of its mask, 1 to 3 as in a trimap; sides differ."""
    generator = np.random.default_rng(i)
    sides = (4 + i % 3, 6)
    return generator.integers(0, 255, (*sides, 3), np.uint8), 1 + generator.integers(
        0, 3, sides
    ).astype(np.uint8)


def file_of(folder, name, array):
    Image.fromarray(array).save(folder / name)
    return str(folder / name)


def kinds():
    return tfds_source._tfds().features


def prepared(folder, *, mask=None, more=(), numbers=lambda i: pixels(i)[1], splits=None, **kind):
    """Writes `tiny_pics` with the features of the builder of oxford_iiit_pet, or others."""
    features = {
        "image": kinds().Image(shape=(None, None, 3), encoding_format="png"),
        "mask": mask or kinds().Image(shape=(None, None, 1), use_colormap=True),
        **dict(more),
    }
    fillers = {
        "image": lambda i: file_of(folder, f"{i}.png", pixels(i)[0]),
        "mask": lambda i: file_of(folder, f"m{i}.png", numbers(i)),
        "label": lambda i: i % 2,
    }
    supervised = ("image", "label") if "label" in features else None
    return prepare(folder, features=features, fillers=fillers, splits=splits or PETS,
                   supervised=supervised, **kind)  # fmt: skip


def label():
    return {"label": kinds().ClassLabel(names=["cat", "dog"])}


def listed(folder, text):
    (folder / "classes.txt").write_text(text, encoding="utf-8")
    return str(folder / "classes.txt")


@pytest.mark.parametrize("file_format", FORMATS)
def test_masks_of_pets(tmp_path, monkeypatch, file_format):
    """Trimaps: 1 is the animal, 2 the background, 3 neither. Labels come first, unless asked."""
    folder = str(prepared(tmp_path, more=label(), file_format=file_format))
    as_builder(monkeypatch, "oxford_iiit_pet")
    assert opened("tfds:tiny_pics", data_dir=folder).classes == ("cat", "dog")
    source = opened("tfds:tiny_pics", data_dir=folder, label_key="mask")
    assert source.classes == ("pet", "background")
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 4, "test": 3}
    seen = set()
    for split in source.splits.values():
        python, in_tf = split.numpy_reader(), tf.function(split.fields_reader())
        for row in range(len(split)):
            one, other = python(row), in_tf(tf.constant(row, tf.int64))
            content = one["image"] if isinstance(one["image"], bytes) else one["image"].read()
            assert other["image"].numpy() == content
            image = np.asarray(Image.open(io.BytesIO(content)))
            (i,) = (i for i in range(COUNT) if np.array_equal(pixels(i)[0], image))
            expected = np.array([-9, 0, 1, -1])[pixels(i)[1]]
            np.testing.assert_array_equal(one["mask"].read(), expected)
            np.testing.assert_array_equal(other["mask"], expected)
            assert other["labels"].numpy().tolist() == one["labels"].tolist() == [-1]
            seen.add(i)
    assert seen == {*range(COUNT)}


def test_cityscapes_has_19_classes_and_no_masks_for_test(tmp_path, monkeypatch):
    """Numbers of cityscapesScripts' labels.py (`id` and `trainId`)."""
    train_ids = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11,
                 25: 12, 26: 13, 27: 14, 28: 15, 31: 16, 32: 17, 33: 18}  # fmt: skip
    every = np.arange(34, dtype=np.uint8)[None]
    image = {"image": kinds().Image(shape=(None, None, 3), encoding_format="png")}
    splits = {"train": range(3), "validation": range(3, 6), "test": range(6, 9)}
    folder = prepared(
        tmp_path, more=image, numbers=lambda i: every if i < 6 else every % 7, splits=splits
    )
    as_builder(monkeypatch, "cityscapes")
    source = opened("tfds:tiny_pics", data_dir=str(folder))
    assert len(source.classes) == 19
    assert source.classes[0] == "road"
    assert source.classes[18] == "bicycle"
    mask = source.splits["train"].numpy_reader()(0)["mask"].read()
    assert mask.tolist() == [[train_ids.get(n, -1) for n in range(34)]]
    assert len(source.splits["test"]) == 3
    assert "test: 3 images left out, whose masks hold no class" in source.notes


def test_classes_of_the_dataset_and_of_a_file(tmp_path):
    names = ["void", "sky", "tree", "road"]
    mask = kinds().LabeledImage(labels=names, shape=(None, None, 1), encoding_format="png")
    folder = str(prepared(tmp_path, mask=mask))
    source = opened("tfds:tiny_pics", data_dir=folder)
    assert source.classes == ("sky", "tree", "road")
    mask = source.splits["train"].numpy_reader()(0)["mask"].read()
    assert {*np.unique(mask)} <= {0, 1, 2}
    file = listed(tmp_path, "1 near\n2 far\n3 ignore\n")
    source = opened("tfds:tiny_pics", data_dir=folder, label_names=file)
    assert source.classes == ("near", "far")


def test_classes_of_the_dataset_that_are_too_few(tmp_path):
    kind = kinds().LabeledImage(labels=["void", "sky"], shape=(None, None, 1))
    said = message("tfds:tiny_pics", data_dir=str(prepared(tmp_path, mask=kind)))
    assert "the masks in mask: needs two classes or more, has sky; give others with" in said
    assert "--config.data.records.label_names=FILE" in said


def test_two_images_beside_a_mask_have_no_advice_that_leads_nowhere(tmp_path):
    features = [kinds().Image(shape=(None, None, channels)) for channels in (3, 3, 1)]
    names = dict(zip(("left", "right", "mask"), features, strict=True))
    builder = types.SimpleNamespace(
        info=types.SimpleNamespace(features=names, supervised_keys=None)
    )
    with pytest.raises(BadInput, match=r"its features: \['left', 'mask', 'right'\]\.$"):
        tfds_source._keys(builder, "tfds:pairs", "mask")


@pytest.mark.parametrize("key, part", [
    ("", "tiny_pics does not name the classes of the masks in mask; give a file with "
     "--config.data.records.label_names=FILE: write one class per line"),
    ("image", "no single image with a class label image; its features: ['image', 'mask']; for "
     "masks, set --config.data.records.label_key to one of: mask"),
])  # fmt: skip
def test_masks_without_names(tmp_path, key, part):
    folder = prepared(tmp_path)
    assert part in message("tfds:tiny_pics", data_dir=str(folder), label_key=key)


def test_instances_of_ade20k_are_not_taken_for_classes(tmp_path):
    """The builder of scene_parse150 reads `annotations_instance`, of the Places Challenge 2017."""
    assert "masks:PATH" in message("tfds:scene_parse150", data_dir=str(tmp_path))
    with pytest.raises(Exception, match="not the 150 classes of ADE20K"):
        tfds_masks.refuse("scene_parse150:1.0.0", "x")


def test_key_of_another_source_is_noted(tmp_path):
    folder = prepared(tmp_path, more=label())
    source = opened("tfds:tiny_pics", data_dir=str(folder), label_key="kind")
    assert source.classes == ("cat", "dog")
    assert "label_key=kind: data.source=tfds:tiny_pics has no such feature" in source.notes[0]


def test_check(tmp_path, capsys):
    """A mask with an unknown number, and one of another size, are listed with their examples."""
    wrong = {0: np.full((4, 6), 9, np.uint8), 1: np.ones((2, 6), np.uint8)}
    folder = prepared(tmp_path, more=label(), numbers=lambda i: wrong.get(i, pixels(i)[1]))
    names = listed(tmp_path, "1 near\n2 far\n3 void\n")
    keys = [f"--data_dir={folder}", "--label_key=mask", f"--label_names={names}"]
    capsys.readouterr()  # what TFDS printed
    assert main(["data", "check", "tfds:tiny_pics", *keys, "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    reasons = sorted(entry["reason"] for entry in report["bad"])
    assert [entry["file"][:20] for entry in report["bad"]] == ["tfds:tiny_pics/1.0.0"] * 2
    assert reasons[0].startswith("its mask mask: pixels of 9 (24, first at row 0")
    assert reasons[1].startswith("its mask mask: the mask has 6 x 2 pixels, its image 6 x 5")
    right = [pixels(i)[1] for i in range(2, COUNT)]
    pixels_of = {entry["name"]: entry["pixels"] for entry in report["masks"]}
    assert pixels_of["far"] == sum((mask == 2).sum() for mask in right)


@pytest.mark.integration
@pytest.mark.parametrize("reader", ["tf", "python"])
def test_show_draws_masks(tmp_path, monkeypatch, capsys, reader):
    folder = prepared(tmp_path, more=label())
    names = listed(tmp_path, "1 near\n2 far\n3 void\n")
    keys = [f"--data_dir={folder}", "--label_key=mask", f"--label_names={names}", "--size=32"]
    monkeypatch.setattr("vit_jax.data.readers.usable", lambda *_: reader)
    assert main(["data", "show", "tfds:tiny_pics", *keys, f"--out={tmp_path}/s.png"]) == 0
    colours = np.asarray(Image.open(tmp_path / "s.png")).reshape(-1, 3)
    legend = {(230, 159, 0), (86, 180, 233)}
    assert legend <= {*map(tuple, np.unique(colours, axis=0).tolist())}
