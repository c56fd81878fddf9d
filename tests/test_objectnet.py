# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""ObjectNet is read without its border, and by its own files."""

import json

import hostile
import numpy as np
import pictures
import pytest
import small_imagenets

from vit_jax.data.sources import objectnet
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def opened(root, data_dir=""):
    options = Options(data_dir=str(data_dir))
    return sources.open_source(f"objectnet:{root}", options, val_percent=10, test_percent=10)


def test_only_the_classes_of_imagenet_are_read_and_each_stands_for_its_own(tmp_path):
    source = opened(small_imagenets.objectnet(tmp_path / "x"))
    assert source.classes == ("alarm_clock", "bike", "chair")
    assert source.stands_for == (
        ("n02708093", "n03196217"),
        ("n03792782",),
        ("n02791124", "n03376595", "n04099969"),
    )
    assert {name: len(split) for name, split in source.splits.items()} == {"test": 6}
    assert "3 classes that are ImageNet's; 2 others left out" in source.notes[0]
    assert source.splits["test"].name(3) == "images/bike/1.png"


def test_the_border_is_cut_off_to_the_pixel(tmp_path):
    split = opened(small_imagenets.objectnet(tmp_path / "x")).splits["test"]
    read = tf.function(split.reader())
    for index, seed in enumerate((0, 1, 100, 101, 200, 201)):
        image, labels = read(tf.constant(index, tf.int64))
        np.testing.assert_array_equal(image, pictures.noise(12, 12, seed=seed)[2:10, 2:10])
        assert labels.numpy().tolist() == [seed // 100]


def test_what_is_no_file_is_left_out_and_told(tmp_path):
    """TensorFlow would wait for a pipe for ever."""
    root = small_imagenets.objectnet(tmp_path / "x")
    hostile.no_files(root / "images" / "bike")
    source = opened(root)
    assert len(source.splits["test"]) == 6
    assert source.notes[1] == ("3 pipes, sockets or devices left out; first images/bike/device.jpg")


def test_it_is_found_among_the_files_that_people_fetch(tmp_path):
    small_imagenets.objectnet(tmp_path / "downloads" / "manual" / "objectnet-1.0")
    assert len(opened("objectnet-1.0", tmp_path).classes) == 3


def write(name, change):
    def damage(root):
        path = root / "mappings" / name
        path.write_text(change(path.read_text()))

    return damage


def numbers_from_1(text):
    return json.dumps({k: line + 1 for k, line in json.loads(text).items()})


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda r: (r / "mappings" / "imagenet_to_label_2012_v2").unlink(), "has no mappings/imag"),
        (write("objectnet_to_imagenet_1k.json", lambda t: t[:-3]), "is not ObjectNet's"),
        (write("objectnet_to_imagenet_1k.json", lambda t: t.replace("barber", "bar")), "bar chair"),
        (write("folder_to_objectnet_label.json", lambda t: t.replace("Chair", "Seat")), "Chair"),
        (write("pytorch_to_imagenet_2012_id.json", numbers_from_1), "number 1000 lines from 0"),
        (write("imagenet_to_label_2012_v2", lambda t: t.replace("another 0", "barber chair")),
         "does not have 'barber chair' once"),
        (lambda r: [p.unlink() for p in (r / "images" / "bike").iterdir()], "no images in"),
    ],
)  # fmt: skip
def test_what_is_not_objectnet_is_refused(tmp_path, damage, said):
    root = small_imagenets.objectnet(tmp_path / "x")
    damage(root)
    with pytest.raises(BadInput, match=said) as caught:
        opened(root)
    assert "objectnet:" in str(caught.value)


def test_nothing_there_says_where_to_get_it(tmp_path):
    with pytest.raises(BadInput, match=r"objectnet-1\.0\.zip, https://objectnet\.dev"):
        objectnet.open_objectnet("objectnet-1.0", str(tmp_path))


def test_an_image_that_cannot_be_decoded_is_named(tmp_path):
    root = small_imagenets.objectnet(tmp_path / "x")
    (root / "images" / "bike" / "1.png").write_bytes(b"no image")
    pipe = pictures.batches(opened(root).splits["test"], "decode|resize(4)")
    with pytest.raises(BadInput, match=r"images/bike/1\.png cannot be decoded"):
        list(pipe.evaluation())
