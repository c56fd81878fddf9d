# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Prepared datasets: found by name, compared with what they should be."""

import json
import struct

import numpy as np
import pytest

from vit_jax.data.catalog import prepared
from vit_jax.data.formats.tfrecord import _masked_crc as masked_crc
from vit_jax.errors import BadInput


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def records(*contents):
    """A TFRecord file; the checksums of the contents are not looked at."""
    lengths = [struct.pack("<Q", len(c)) for c in contents]
    sums = masked_crc(np.array([len(c) for c in contents], np.uint64)).astype("<u4")
    parts = zip(lengths, sums, contents, strict=True)
    return b"".join(length + crc.tobytes() + c + b"____" for length, crc, c in parts)


def dataset(root, name="pics", version="1.0.0", config="", classes=3, **splits):
    """A prepared dataset; `splits` has the contents of each shard."""
    splits = splits or {"train": ["abc", "defg"], "test": ["hi"]}
    folder = root / name / config / version
    folder.mkdir(parents=True)
    for split, shards in splits.items():
        for i, shard in enumerate(shards):
            path = folder / f"{name}-{split}.tfrecord-{i:05d}-of-{len(shards):05d}"
            path.write_bytes(records(*(c.encode() for c in shard)))
    info = {"name": name, "version": version, "fileFormat": "tfrecord"}
    info |= {"configName": config} if config else {}
    info["splits"] = [
        {
            "name": split,
            "shardLengths": [str(len(s)) for s in shards],
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        }
        for split, shards in splits.items()
    ]
    (folder / "dataset_info.json").write_text(json.dumps(info))
    label = {"classLabel": {"numClasses": str(classes)}}
    features = {"featuresDict": {"features": {"image": {}, "label": label}}}
    (folder / "features.json").write_text(json.dumps(features))
    return folder


# ---------------------------------------------------------------- finding


def test_the_newest_version_is_found(tmp_path):
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        dataset(tmp_path, version=version)
    (tmp_path / "pics" / "2.0.0").mkdir()  # not finished
    (tmp_path / "pics" / ".incomplete-3.0.0").mkdir()
    assert prepared.find("pics", str(tmp_path)).name == "1.10.0"
    assert prepared.find("pics:1.9.0", str(tmp_path)).name == "1.9.0"
    assert prepared.find("pics:1.9.1", str(tmp_path)) is None
    assert prepared.find("other", str(tmp_path)) is None
    assert prepared.find("../pics", str(tmp_path)) is None


def test_configs_are_found(tmp_path):
    one = dataset(tmp_path, config="one")
    assert prepared.find("pics", str(tmp_path)) == one
    assert prepared.find("pics/one", str(tmp_path)) == one
    two = dataset(tmp_path, config="two")
    assert prepared.find("pics", str(tmp_path)) is None
    (tmp_path / "pics" / ".config").mkdir()
    default = tmp_path / "pics" / ".config" / "metadata.json"
    default.write_text('{"default_config_name": "two"}')
    assert prepared.find("pics", str(tmp_path)) == two
    assert prepared.find("pics/one:1.0.0", str(tmp_path)) == one


def test_the_default_folder_is_that_of_tfds(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert prepared.find("pics", "") is None
    folder = dataset(tmp_path)
    assert prepared.find("pics", "") == folder
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prepared.data_folder("") == tmp_path / "tensorflow_datasets"


def test_a_given_folder_may_be_of_any_level(tmp_path):
    folder = dataset(tmp_path)
    for origin in (folder, folder.parent, tmp_path):
        assert prepared.find_at("pics", origin) == folder
    assert prepared.find_at("other", tmp_path) is None


# ---------------------------------------------------------------- checking


def test_a_whole_dataset_has_no_problems(tmp_path):
    folder = dataset(tmp_path)
    prepared.write_notes(folder, [("x.jpg", "not an image")])
    found = prepared.check(folder)
    assert (found.name, found.classes, found.problems) == ("pics:1.0.0", 3, ())
    assert found.left_out == (("x.jpg", "not an image"),)
    assert {s: (x.examples, x.records) for s, x in found.splits.items()} == {
        "train": (7, 7),
        "test": (2, 2),
    }
    for split in found.splits.values():
        assert split.fingerprint == split.recorded != ""
    said = found.text()
    for part in ("pics:1.0.0", "train: 7 examples", "as when prepared", "x.jpg: not an image"):
        assert part in said


def test_without_a_record_the_fingerprint_is_only_shown(tmp_path):
    found = prepared.check(dataset(tmp_path))
    assert found.problems == ()
    assert found.splits["train"].recorded == ""
    assert "not recorded" in found.text()


@pytest.mark.parametrize("change", ["order", "content", "shards"])
def test_fingerprints_see_order_and_content(tmp_path, change):
    splits = {"train": ["abc", "defg"]}
    folder = dataset(tmp_path, **splits)
    prepared.write_notes(folder)
    notes = (folder / "vit_jax.json").read_text()
    other = {"order": ["acb", "defg"], "content": ["abc", "deFg"], "shards": ["defg", "abc"]}
    changed = dataset(tmp_path / "other", train=other[change])
    (changed / "vit_jax.json").write_text(notes)
    found = prepared.check(changed)
    [problem] = found.problems
    assert problem.startswith("train: fingerprint ")
    state = found.splits["train"]
    assert f"{state.fingerprint} ({state.recorded} when prepared)" in found.text()
    assert "as when prepared" not in found.text()


def test_the_same_records_in_other_files_have_another_or_the_same_name_only(tmp_path):
    """The fingerprint is of content: where the dataset lies does not matter."""
    one, two = dataset(tmp_path / "1"), dataset(tmp_path / "2")
    a, b = prepared.check(one), prepared.check(two)
    assert a.splits == b.splits


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda p: p.unlink(), "train: a file is missing"),
        (lambda p: p.write_bytes(p.read_bytes()[:-3]), "truncated"),
        (lambda p: p.write_bytes(p.read_bytes()[:-3]), "bytes; prepare it again"),
        (lambda p: p.write_bytes(b""), "3 records, its description says 7"),
        (lambda p: p.write_bytes(p.read_bytes() + records(b"x")), "8 records, its description"),
    ],
)
def test_damage_is_a_problem_that_names_the_split(tmp_path, damage, said):
    folder = dataset(tmp_path)
    damage(folder / "pics-train.tfrecord-00001-of-00002")
    [problem] = prepared.check(folder).problems
    assert said in problem
    assert problem.startswith("train")


def test_known_sizes_are_compared(tmp_path, monkeypatch):
    monkeypatch.setitem(prepared.SIZES, "pics", {"train": 8, "test": 2, "validation": 1})
    found = prepared.check(dataset(tmp_path))
    assert found.problems == ("train: 7 examples, pics has 8", "validation: missing")
    assert found.splits["train"].expected == 8
    assert "train: 7 of 8 examples" in found.text()


@pytest.mark.parametrize("name", ["dataset_info.json", "features.json"])
@pytest.mark.parametrize("content", ["", "[]"[:1], None])
def test_a_damaged_description_is_bad_input(tmp_path, name, content):
    path = dataset(tmp_path) / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(BadInput, match=name):
        prepared.check(path.parent)


def test_no_file_stays_open(tmp_path):
    import os

    folder = dataset(tmp_path, train=["ab"] * 40)
    before = len(os.listdir("/proc/self/fd"))
    prepared.check(folder)
    assert len(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------- classes


def named(root, names=("a", "b", "c"), classes=3, **settings):
    folder = dataset(root, classes=classes, **settings)
    (folder / "label.labels.txt").write_text("".join(f"{n}\n" for n in names))
    return folder


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda p: p.write_text("b\na\nc\n"), "label: not the names of classes, or order, as"),
        (lambda p: p.write_text("a\nb\nd\n"), "label: not the names of classes, or order, as"),
        (lambda p: p.unlink(), "label: label.labels.txt, the names of the classes, is missing"),
    ],
)
def test_other_names_of_classes_than_when_prepared_are_a_problem(tmp_path, change, said):
    folder = named(tmp_path)
    prepared.write_notes(folder)
    assert prepared.check(folder).problems == ()
    change(folder / "label.labels.txt")
    [problem] = prepared.check(folder).problems
    assert problem.startswith(said)


def test_as_many_names_as_classes(tmp_path):
    [problem] = prepared.check(named(tmp_path, names="ab")).problems
    assert problem == (
        "label: 2 names of classes in label.labels.txt, features.json says 3"
    )  # fmt: skip


def test_names_that_are_no_text_are_bad_input(tmp_path):
    folder = named(tmp_path)
    (folder / "label.labels.txt").write_bytes(b"\xff\n")
    with pytest.raises(BadInput, match=r"label\.labels\.txt cannot be read"):
        prepared.check(folder)


@pytest.mark.parametrize("name, config, label, classes", [
    ("imagenet2012", "", "label", 1000), ("imagenet21k", "winter21", "label", 19_167),
    ("imagenet21k", "fall11", "label", 21_841), ("cifar10", "", "label", 10),
    ("cifar100", "", "label", 100), ("sun397", "tfds", "label", 397),
    ("smallnorb", "", "label_azimuth", 18), ("smallnorb", "", "label_elevation", 9),
])  # fmt: skip
def test_known_numbers_of_classes_are_compared(tmp_path, monkeypatch, name, config, label, classes):
    monkeypatch.setattr(prepared, "SIZES", {})

    def problems(number):
        folder = dataset(tmp_path / str(number), name=name, config=config)
        full = "/".join(filter(None, (name, config)))
        known = prepared.CLASSES[full] | {label: number}
        features = {k: {"classLabel": {"numClasses": str(n)}} for k, n in known.items()}
        text = json.dumps({"featuresDict": {"features": features}})
        (folder / "features.json").write_text(text)
        for k, n in known.items():
            (folder / f"{k}.labels.txt").write_text("".join(f"{i}\n" for i in range(n)))
        return prepared.check(folder).problems

    assert problems(classes) == ()
    [problem] = problems(classes - 1)
    assert problem.startswith(f"{label}: {classes - 1} classes, {name}")
    assert problem.endswith(f" has {classes}")


def test_a_label_that_is_not_there_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.setitem(prepared.CLASSES, "pics", {"kind": 3})
    assert prepared.check(dataset(tmp_path)).problems == (
        "kind: features.json has no such label",
    )  # fmt: skip


@pytest.mark.parametrize("name, missing", [("cifar10", 1), ("mnist", 0), ("own", 0)])
def test_names_of_classes_are_missed_where_the_dataset_has_them(
    tmp_path, monkeypatch, name, missing
):
    monkeypatch.setattr(prepared, "SIZES", {})
    found = prepared.check(dataset(tmp_path, name=name, classes=10))
    assert len([p for p in found.problems if "label.labels.txt" in p]) == missing
