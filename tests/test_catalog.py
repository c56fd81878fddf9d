# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Datasets by name: their sizes and the labels of ImageNet."""

import dataclasses
import json
import tarfile

import numpy as np
import pytest

from vit_jax.data.catalog import downloads, imagenet_labels, prepared, sizes
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.splits.split import Split, Table
from vit_jax.errors import BadInput
from vit_jax.paper import robustness

# --- sizes ---


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


# --- labels of ImageNet ---


SETS = [[3], [], [5, 700], [1, 2, 3], [0], []]


def named(*names, ids=None):
    """Images that are only names; `ids` are other ones."""
    given = None if ids is None else lambda: np.array([i.encode() for i in ids])
    table = Table(len(names), lambda row: names[row], lambda: None, ids=given)  # type: ignore
    return Split(table, range(len(names)))


def val(number):
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def test_labels_are_matched_by_name_and_empty_sets_left_out():
    names = [f"n01440764/{val(n)}" for n in (4, 2, 1, 3)]
    split, labels = imagenet_labels.match_labels(named(*names), SETS, "here")
    assert [split.name(i) for i in range(len(split))] == [names[0], names[2], names[3]]
    assert labels.dtype == np.int32
    assert labels.tolist() == [[1, 2, 3], [3, -1, -1], [5, 700, -1]]


def test_a_part_of_the_images_and_other_names_are_matched_too():
    split = named("row 0", "row 1", "row 2", ids=[val(5), val(1), val(3)]).take_range(1, 3)
    kept, labels = imagenet_labels.match_labels(split, SETS, "here")
    assert [kept.name(i) for i in range(len(kept))] == ["row 1", "row 2"]
    assert labels.tolist() == [[3, -1], [5, 700]]


@pytest.mark.parametrize("name", ["cat.jpg", val(0), val(7), "x" + val(1), "imagenet2012/val/1"])
def test_an_image_without_a_set_is_refused(name):
    with pytest.raises(BadInput, match=r"here: labels are matched by file name.*example 1 is"):
        imagenet_labels.match_labels(named(val(1), name), SETS, "here")


def test_images_of_which_none_counts_are_refused():
    with pytest.raises(BadInput, match="none of the 2 images has a label"):
        imagenet_labels.match_labels(named(val(2), val(6)), SETS, "here")


def test_the_file_is_found_as_a_path_or_among_the_files_that_people_fetch(tmp_path):
    place = tmp_path / "downloads" / "manual"
    place.mkdir(parents=True)
    (place / "real.json").write_text(json.dumps(SETS))
    (tmp_path / "mine.json").write_text(json.dumps(SETS[:1]))
    assert imagenet_labels.read_label_sets("real.json", str(tmp_path)) == SETS
    assert imagenet_labels.read_label_sets(str(tmp_path / "mine.json"), "") == SETS[:1]


def test_a_missing_file_says_what_it_is_and_where_it_goes(tmp_path):
    with pytest.raises(BadInput) as caught:
        imagenet_labels.read_label_sets("real.json", str(tmp_path))
    said = str(caught.value)
    assert "real.json  388478 bytes  sha256 d83e9bff374c631aae8439eb064c7019" in said
    assert "https://raw.githubusercontent.com/google-research/reassessed-imagenet" in said
    assert f"put it into {tmp_path / 'downloads' / 'manual'}" in said


@pytest.mark.parametrize(
    "content", ["{}", "[]", "[[]]", "[1]", "[[1000]]", "[[-1]]", "[[true]]", '[["cat"]]', "[["]
)
def test_what_is_no_list_of_classes_is_refused(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(BadInput, match=r"x\.json"):
        imagenet_labels.read_label_sets(str(tmp_path / "x.json"), "")


def test_of_reals_labels_46837_sets_count_and_the_original_labels_are_in_90_02_percent(
    data_dir, tmp_path
):
    with tarfile.open(data_dir / "imagenet_labels.tar.gz") as archive:
        content = {n: archive.extractfile(f"imagenet_labels/{n}").read() for n in (
            "real.json", "val_labels.txt", "synsets.csv")}  # fmt: skip
    (tmp_path / "real.json").write_bytes(content["real.json"])
    sets = imagenet_labels.read_label_sets(str(tmp_path / "real.json"), "")
    original = np.array(content["val_labels.txt"].split(), np.int32)
    shuffled = np.random.default_rng(0).permutation(50_000)
    images = named(*(f"row {k}" for k in range(50_000)), ids=[val(k + 1) for k in shuffled])
    split, labels = imagenet_labels.match_labels(images, sets, "here")
    assert len(split) == 46_837
    predicted = original[shuffled[split.rows]]
    assert (predicted[:, None] == labels).any(axis=1).mean() == pytest.approx(0.9002, abs=5e-5)
    synsets = [line.split(",")[1] for line in content["synsets.csv"].decode().splitlines()[1:]]
    assert imagenet_labels.wnids() == synsets


def test_nothing_but_rows_changes():
    whole = named(val(1), val(3))
    split, _ = imagenet_labels.match_labels(whole, SETS, "here")
    assert dataclasses.replace(split, rows=whole.rows) == whole
