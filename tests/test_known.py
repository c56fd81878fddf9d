# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sizes of named datasets, against what TFDS and VTAB's table say."""

import pytest

from vit_jax.data.catalog import downloads, prepared, sizes
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.paper import robustness

ROBUST = [
    "imagenet_v2/matched-frequency", "imagenet_v2/threshold-0.7", "imagenet_v2/topimages",
    "imagenet_a", "imagenet_r", "imagenet_sketch", "imagenet2012_corrupted/fog_3",
]  # fmt: skip


@pytest.mark.parametrize("name", ROBUST)
def test_test_sets_of_imagenet_have_its_classes_and_one_split(name, tmp_path):
    builder = tfds_source._tfds().builder(name, data_dir=str(tmp_path))
    [(split, _)] = sizes.SIZES[name].items()
    assert split == ("validation" if "corrupted" in name else "test")
    assert sizes.CLASSES[name] == {"label": builder.info.features["label"].num_classes}
    assert "file_name" in builder.info.features


def test_every_corruption_is_a_dataset_of_tfds():
    builder = tfds_source._tfds().builder_cls("imagenet2012_corrupted")
    wanted = robustness.parts("imagenet2012_corrupted/{corruption}_{severity}").values()
    assert len(set(wanted)) == 75
    assert {name.partition("/")[2] for name in wanted} < set(builder.builder_configs)
    assert set(wanted) <= set(sizes.SIZES)


def test_every_test_set_that_a_recipe_names_is_known():
    for name, one in robustness.sets().items():
        kind, _, dataset = one.source.partition(":")
        if kind == "tfds":
            dataset = next(iter(robustness.parts(dataset).values()))
            assert downloads.version(dataset), name
            assert list(sizes.SIZES[dataset]) == [one.split]


def test_what_is_missing_of_imagenet_c_is_said_for_all_75(tmp_path):
    needs = downloads.needs("imagenet2012_corrupted", str(tmp_path))
    assert len(needs) == 75
    text = needs[0].text()
    assert "ILSVRC2012_img_val.tar  6744924160 bytes" in text
    assert "frost1.png  1199930 bytes" in text
    assert "img_train" not in text
    assert "https://zenodo.org/record/2235448" in text


def test_what_is_missing_of_imagenet_v2_is_the_archive_of_its_own(tmp_path):
    found = {}
    for name in ("imagenet_v2", "imagenet_v2/topimages", "imagenet_v2/threshold-0.7"):
        [need] = downloads.needs(name, str(tmp_path))
        found[need.dataset] = [d.name for d in need.downloads]
    assert found == {
        "imagenet_v2/matched-frequency:3.0.0": ["imagenetv2-matched-frequency.tar.gz"],
        "imagenet_v2/topimages:3.0.0": ["imagenetv2-top-images.tar.gz"],
        "imagenet_v2/threshold-0.7:3.0.0": ["imagenetv2-threshold0.7.tar.gz"],
    }


def test_a_path_is_taken_as_given_where_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "d" / "downloads" / "manual"
    assert prepared.manual_path("x.json", "d") == place.relative_to(tmp_path) / "x.json"
    assert prepared.manual_path("", "d") == place.relative_to(tmp_path)
    (tmp_path / "x.json").touch()
    assert prepared.manual_path("x.json", "d").name == "x.json"
    assert prepared.manual_path("x.json", "d").exists()
