# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TFRecords of tf.train.Example: what is read from them, and what wrong ones are told."""

import logging

import numpy as np
import pictures
import pytest
from opened_sources import examples, labels, message, names, opened

from vit_jax.data import readers
from vit_jax.data.inspect import check
from vit_jax.data.ops import chain
from vit_jax.data.sources import record_index
from vit_jax.data.sources import records as record_source
from vit_jax.data.splits import split as splits
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

CLASSES = [f"class {k}" for k in range(9)]


def image(i):
    return pictures.encode(pictures.noise(4, 5, seed=i))


def example(i, labels=None, **more):
    labels = i % 9 if labels is None else labels
    return pictures.record(image__encoded=image(i), image__class__label=labels, **more)


def folder(root, files, classes=CLASSES):
    """Files of these names, each a list of records; and labels.txt."""
    for name, contents in files.items():
        pictures.records(root / name, contents)
    if classes:
        (root / "labels.txt").write_text("\n".join(classes) + "\n")
    return root


@pytest.fixture
def many(tmp_path):
    """train 0 to 6 in three files, val 7 and 8."""
    parts = [range(3), range(3, 4), range(4, 7)]
    files = {f"x-train-{i:05d}-of-00003": map(example, part) for i, part in enumerate(parts)}
    return folder(tmp_path, files | {"x-val-00000-of-00001": map(example, range(7, 9))})


# ---------------------------------------------------------------- reading


def test_splits_images_and_labels(many):
    source = opened(f"records:{many}")
    assert source.classes == tuple(CLASSES)
    assert examples(source.splits["train"]) == [(image(i), [i % 9]) for i in range(7)]
    assert examples(source.splits["test"]) == [(image(i), [i % 9]) for i in (7, 8)]
    assert source.notes == ("test: the validation split, since there is no test split",)


def test_name_is_file_and_number(many):
    found = names(opened(f"records:{many}"))["train"]
    assert found[2:5] == [
        "x-train-00000-of-00003/2", "x-train-00001-of-00003/0", "x-train-00002-of-00003/0",
    ]  # fmt: skip


def test_a_path_may_be_any_bytes(tmp_path):
    """TensorFlow does not take them as text."""
    folder(tmp_path / "x", {"train.tfrecord": [example(0, file_name="a"), example(1)]})
    root = (tmp_path / "x").rename(tmp_path / "\udcff")
    assert labels(opened(f"records:{root}").splits["train"]) == [[0], [1]]
    assert record_source.ids([f"{root}/train.tfrecord"], "file_name").tolist() == [b"a", b""]


def test_table_knows_its_files(many):
    table = opened(f"records:{many}").splits["train"].table
    assert table.shards.tolist() == [0, 3, 4, 7]
    assert table.numbered


def test_val_and_test_are_held_out_by_row(tmp_path):
    folder(tmp_path, {"a.tfrecord": map(example, range(200))})
    source = opened(f"records:{tmp_path}/*.tfrecord", val=20, test=10)
    rows = {name: set(map(int, split.rows)) for name, split in source.splits.items()}
    assert set.union(*rows.values()) == set(range(200))
    assert sum(map(len, rows.values())) == 200
    assert 8 < len(rows["test"]) < 35
    assert 15 < len(rows["val"]) < 60


@pytest.mark.parametrize(
    "keys",
    [("image", "label"), ("jpg", "cls"), ("image_bytes", "image__class__label_index")],
)
def test_usual_names_of_features_are_found(tmp_path, keys):
    records = [pictures.record(**{keys[0]: image(i), keys[1]: i, "other": "x"}) for i in range(3)]
    source = opened(f"records:{folder(tmp_path, {'a.tfrecord': records})}")
    assert examples(source.splits["train"]) == [(image(i), [i]) for i in range(3)]


def test_names_of_features_may_be_given(tmp_path):
    records = [
        pictures.record(image=image(9), label=8, mine=image(i), coarse=i, title=f"t{i}")
        for i in range(3)
    ]
    keys = {"image_key": "mine", "label_key": "coarse", "name_key": "title"}
    source = opened(f"records:{folder(tmp_path, {'a.tfrecord': records})}", **keys)
    assert examples(source.splits["train"]) == [(image(i), [i]) for i in range(3)]
    assert source.splits["train"].table.ids().tolist() == [b"t0", b"t1", b"t2"]


def test_ids_of_all_files_are_read_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    parts = {"0.tfrecord": range(3), "1.tfrecord": [], "2.tfrecord": range(3, 5)}
    files = {n: [example(i, image__filename="n" * i) for i in p] for n, p in parts.items()}
    table = opened(f"records:{folder(tmp_path, files)}").splits["train"].table
    assert table.ids().tolist() == [b"n" * i for i in range(5)]
    monkeypatch.setattr(record_index, "spans", None)
    assert table.ids().tolist() == [b"n" * i for i in range(5)]


def test_file_without_records_is_told(tmp_path):
    """It may be what an interrupted copy left."""
    files = {"x-00000-of-00002": map(example, range(4)), "x-00001-of-00002": []}
    source = opened(f"records:{folder(tmp_path, files)}")
    assert source.notes[0] == "1 of 2 files hold no record, first x-00001-of-00002"


def test_several_labels_are_padded(tmp_path):
    """As JFT-300M has 1.26 an image."""
    wanted = [[3], [1, 0, 8], [], [5, 5]]
    records = [example(i, labels) for i, labels in enumerate(wanted)]
    source = opened(f"records:{folder(tmp_path, {'a.tfrecord': records})}", max_labels=4)
    assert labels(source.splits["train"]) == [one + [-1] * (4 - len(one)) for one in wanted]
    assert source.splits["train"].reader()(tf.constant(0, tf.int64))[1].dtype == tf.int32


def test_first_record_may_have_no_label(tmp_path):
    records = [
        pictures.record(image=image(0), labels=[]),
        pictures.record(image=image(1), labels=4),
    ]
    source = opened(f"records:{folder(tmp_path, {'a.tfrecord': records})}", max_labels=2)
    assert labels(source.splits["train"]) == [[-1, -1], [4, -1]]


def test_labels_may_be_names_of_classes(tmp_path):
    wanted = [["dog"], ["cat", "Käse"], ["cat"]]
    records = [pictures.record(image=image(i), label=names) for i, names in enumerate(wanted)]
    root = folder(tmp_path, {"a.tfrecord": records}, ["cat", "dog", "Käse"])
    source = opened(f"records:{root}", max_labels=2)
    assert labels(source.splits["train"]) == [[1, -1], [0, 2], [0, -1]]


def test_batches_of_records_are_images(many):
    split = opened(f"records:{many}").splits["train"]
    pipe = pictures.batches(split, "decode|resize({size})", batch_size=7)
    (batch,) = pipe.train(0, 1)
    assert sorted(batch["labels"][:, 0].tolist()) == list(range(7))
    assert batch["image"].shape == (7, 4, 4, 3)


def test_shape_of_jft(tmp_path, caplog):
    """18,291 classes, 1.26 labels an image, many files that are indexed at once."""
    rng = np.random.default_rng(0)
    names = [f"{k:05d}" for k in range(18_291)]
    pixel = image(0)
    wanted = {f: [rng.choice(18_291, 1 + (i % 4 == 0), False) for i in range(8)] for f in range(40)}
    files = {
        f"jft-train-{f:05d}-of-00040": [
            pictures.record(image__encoded=pixel, image__class__label=list(map(int, one)))
            for one in wanted[f]
        ]
        for f in wanted
    }
    with caplog.at_level(logging.INFO, "vit_jax"):
        source = opened(f"records:{folder(tmp_path, files, names)}", max_labels=8)
    assert "indexing 40 record files" in caplog.text
    assert len(source.classes) == 18_291
    split = source.splits["train"]
    assert len(split) == 320
    every = [one for f in range(40) for one in wanted[f]]
    for i in range(0, 320, 37):
        got = split.reader()(tf.constant(i, tf.int64))[1].numpy()
        assert got[got >= 0].tolist() == every[i].tolist()


# ---------------------------------------------------------------- what is wrong


def told(tmp_path, records, **options):
    """Returns the message about an example that cannot be read, which both readers give."""
    options = {"max_labels": 2} | options
    source = opened(f"records:{folder(tmp_path, {'a.tfrecord': records})}", **options)
    split, said = source.splits["train"], []
    ops = chain.parse("ops", "decode|resize({size})", 4)
    for reader in ("tf", "python"):
        pipe = readers.pipeline_of(reader)(split, ops, 1, 0, (4, 4), 2, 1)
        with pytest.raises(BadInput) as caught:
            list(pipe.evaluation())
        said.append(str(caught.value))
    [bad] = check.check_images(source, 1).bad
    assert bad[0] in said[1]
    assert bad[1] in said[1]
    assert [part.partition(" ")[0] for part in said] == [bad[0]] * 2
    return said[0] if said[0] == said[1] else "; ".join(said)


@pytest.mark.parametrize(
    "bad, shown",
    [
        (lambda: pictures.record(image__class__label=1), "image/encoded"),
        (lambda: example(1, 9), "image/class/label is not one of the 9 classes"),
        (lambda: example(1, -1), "image/class/label is not one of the 9 classes"),
        (lambda: example(1, [1, 2, 3]), "more labels than data.records.max_labels=2; raise it"),
        (lambda: example(1, ["x"]), "image/class/label"),
        (lambda: b"\xff\xff no proto", "it is not a tf.train.Example"),
    ],
)
def test_wrong_record_is_named(tmp_path, bad, shown):
    said = told(tmp_path, [example(0), bad(), example(2)])
    assert "a.tfrecord/1" in said
    assert shown in said


def test_records_of_any_length_look_right():
    for size in (0, 1, 100, 127, 128, 16_000, 17_000, 2_100_000):
        data = pictures.record(image=bytes(size))
        assert record_source._looks_right(data)
        assert not record_source._looks_right(data[:-1])
        assert not record_source._looks_right(data + b"x")


def test_record_without_a_label_where_each_has_one(tmp_path):
    said = told(tmp_path, [example(0), example(1, [])], max_labels=1)
    assert "a.tfrecord/1" in said
    assert "data.records.max_labels=2" in said


def test_unknown_name_of_a_class(tmp_path):
    records = [pictures.record(image=image(i), label=n) for i, n in enumerate(["class 1", "elk"])]
    assert "label is not one of the 9 classes" in told(tmp_path, records)


@pytest.mark.parametrize(
    "features, options, shown",
    [
        ({"picture": b"x", "label": 1}, {}, "image_key"),
        ({"image": b"x", "kind": 1}, {}, "label_key"),
        ({"image": b"x", "label": 1.5}, {}, "label_key"),
        ({"image": 3, "label": 1}, {}, "image_key"),
        ({"image": b"x", "label": 1}, {"image_key": "pixels"}, "no 'pixels'"),
        ({"image": b"x", "label": 1}, {"name_key": "label"}, "name_key"),
    ],
)
def test_features_are_listed_where_none_fits(tmp_path, features, options, shown):
    root = folder(tmp_path, {"a.tfrecord": [pictures.record(**features)]})
    said = message(f"records:{root}", **options)
    assert "a.tfrecord/0" in said
    assert [k for k in (*features, shown) if k not in said] == []


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\xff"])
def test_first_record_that_is_no_example(tmp_path, content):
    root = folder(tmp_path, {"a.tfrecord": [content]})
    assert "a.tfrecord/0 is not a tf.train.Example" in message(f"records:{root}")


def test_number_of_classes_must_come_from_somewhere(tmp_path):
    root = folder(tmp_path, {"a.tfrecord": [example(0)]}, classes=())
    said = message(f"records:{root}")
    assert "data.records.label_names=FILE" in said
    assert str(root / "labels.txt") in said


def test_two_classes_of_one_name_cannot_be_told_by_name(tmp_path):
    """By number they can, as the two cranes of ImageNet."""
    text = pictures.record(image=image(0), label="crane")
    root = folder(tmp_path / "text", {"a.tfrecord": [text]}, ["crane", "crane"])
    assert "'crane' is the name of two classes" in message(f"records:{root}")
    root = folder(tmp_path / "number", {"a.tfrecord": [example(0, 1)]}, ["crane", "crane"])
    assert labels(opened(f"records:{root}").splits["train"]) == [[1]]


@pytest.mark.parametrize(
    "damage, shown",
    [
        (lambda d: d[:-3], "truncated"),
        (lambda d: d[:3] + b"\1" + d[4:], "not a TFRecord file"),
        (lambda d: b"x" * 99, "not a TFRecord file"),
    ],
)
def test_damaged_file_is_named(many, damage, shown):
    path = many / "x-train-00001-of-00003"
    path.write_bytes(damage(path.read_bytes()))
    said = message(f"records:{many}")
    assert str(path) in said
    assert shown in said


def test_missing_file_of_a_set(many):
    (many / "x-train-00001-of-00003").unlink()
    assert "x-train-00001-of-00003" in message(f"records:{many}")


def test_compressed_and_empty_files(tmp_path):
    folder(tmp_path / "empty", {"a.tfrecord": []})
    assert "hold no record" in message(f"records:{tmp_path}/empty")
    (tmp_path / "zip").mkdir()
    (tmp_path / "zip" / "labels.txt").write_text("a\nb\n")
    with tf.io.TFRecordWriter(str(tmp_path / "zip" / "a.tfrecord.gz"), "GZIP") as writer:
        writer.write(b"x" * 50)
    assert "is compressed" in message(f"records:{tmp_path}/zip")


def test_split_that_a_slice_takes_still_reads_its_own(many):
    part = splits.select(opened(f"records:{many}").splits, "train[3:5]", "x")
    assert labels(part) == [[3], [4]]
