# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Data in a bucket, against an object store on loopback: the same as on a disk."""

import archive_files
import pytest
from opened_sources import examples, message, names, opened

from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.sources import record_index
from vit_jax.data.sources import records as record_source
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

PICTURES = {
    f"{part}/{name}/{i} \u00fc [x].png": archive_files.picture(i, "PNG")
    for part, count in (("train", 6), ("test", 2))
    for name in ("blue sky", "red")
    for i in range(count)
}


def uploaded(store, root, to="data"):
    """Puts all files below a folder into the bucket."""
    for path in root.rglob("*"):
        if path.is_file():
            store.put("bucket", f"{to}/{path.relative_to(root)}", path.read_bytes())


def record(image, label):
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@pytest.fixture
def laid_out(tmp_path, store, monkeypatch):
    """The same pictures as folders, CSV, tar files and records, on a disk and in the bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # no index of another test
    root = tmp_path / "data"
    archive_files.unpacked(root / "folders", PICTURES)
    (root / "folders" / "train" / "red" / "notes.txt").write_text("not an image")
    rows = [f"{name},{name.split('/')[1]},{name.split('/')[0]}" for name in PICTURES]
    (root / "folders" / "list.csv").write_text("\n".join(rows))
    (root / "tars").mkdir()
    (root / "records").mkdir()
    for n, color in enumerate(("blue sky", "red")):
        some = {k: v for k, v in PICTURES.items() if color in k}
        archive_files.tar(root / "tars" / f"x-{n:05d}-of-00002.tar", some)
        file = root / "records" / f"x-train-{n:05d}-of-00002.tfrecord"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for image in some.values():
                writer.write(record(image, n))
    (root / "records" / "labels.txt").write_text("blue sky\nred\n")
    uploaded(store, root)
    return root


@pytest.mark.parametrize(
    "spec",
    ["folder:{}/folders", "csv:{}/folders/list.csv", "tar:{}/tars/x-*.tar", "tar:{}/tars",
     "records:{}/records", "mix:1*tar:{}/tars,1*records:{}/records"],
)  # fmt: skip
def test_source_in_a_bucket_is_the_one_on_a_disk(laid_out, spec):
    here, there = (opened(spec.replace("{}", r)) for r in (str(laid_out), "gs://bucket/data"))
    assert here.fingerprint() == there.fingerprint()
    assert names(here) == names(there)
    assert [n.replace(str(laid_out), "") for n in here.notes] == [
        n.replace("gs://bucket/data", "") for n in there.notes
    ]
    for name, split in here.splits.items():
        assert examples(split) == examples(there.splits[name])


def test_image_is_one_request_and_an_index_is_built_once(laid_out, store):
    split = opened("tar:gs://bucket/data/tars").split("train")
    store.asked.clear()
    read = split.reader()
    read(tf.constant(3, tf.int64))
    assert store.counted()["read"] == 1
    store.asked.clear()
    opened("tar:gs://bucket/data/tars")
    assert "read" not in store.counted()


@pytest.mark.parametrize(
    "count, size, most, requests", [(12, 200_000, 0.2, 30), (2000, 900, 3.0, 20)]
)
def test_lists_of_records_leave_large_images_out(
    tmp_path, store, monkeypatch, count, size, most, requests
):
    """Skipping small ones would take more time: each part is a request."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place, images = tmp_path / "x-train-00000-of-00001.tfrecord", {}
    with tf.io.TFRecordWriter(str(place)) as writer:
        for n in range(count):
            images[n] = bytes([n % 256]) * size
            writer.write(record(images[n], n % 7))
    store.put("bucket", "large/x-train-00000-of-00001.tfrecord", place.read_bytes())
    layout = record_index.Layout("image", "label", "", False, (), 1)
    store.asked.clear()
    sent = store.sent
    files = RecordFiles(["gs://bucket/large/x-train-00000-of-00001.tfrecord"])
    read = record_index.reader(files, layout)
    assert store.sent - sent < most * place.stat().st_size
    assert store.counted()["read"] <= requests
    for n in (0, 1, count - 1):
        fields = read(n)
        assert fields["image"].read() == images[n]
        assert fields["labels"].tolist() == [n % 7]


def test_index_is_built_again_for_other_content(laid_out, store):
    before = names(opened("tar:gs://bucket/data/tars"))
    files = {k.replace("/0 ", "/9 "): v for k, v in PICTURES.items() if "red" in k}
    store.put("bucket", "data/tars/x-00001-of-00002.tar", archive_files.tar_bytes(files))
    assert names(opened("tar:gs://bucket/data/tars")) != before


def test_whole_files_are_held_in_windows(laid_out):
    here, there = (
        opened(f"tar:{root}/tars").split("train").table.files
        for root in (laid_out, "gs://bucket/data")
    )
    there.hold([0])
    assert [there.size(n) for n in (0, 1)] == [here.size(n) for n in (0, 1)]
    assert there.read(0, 600, 50) == here.read(0, 600, 50)


def test_object_that_is_gone_is_an_image_that_cannot_be_read(laid_out, store):
    split = opened("folder:gs://bucket/data/folders").split("train")
    del store.objects["bucket", "data/folders/train/blue sky/0 \u00fc [x].png"]
    with pytest.raises(tf.errors.OpError, match="is gone"):
        split.reader()(tf.constant(0, tf.int64))


@pytest.mark.parametrize(
    "spec, said",
    [
        ("folder:gs://bucket/data/none", "nothing below that name"),
        ("folder:gs://bukket/data", "no bucket bukket"),
        ("folder:gs://bucket", "gs://BUCKET/NAME"),
        ("folder:s3://bucket/data", "s3:// is not read"),
        ("csv:gs://bucket/data/none.csv", "no file"),
        ("tar:gs://bucket/data/none-*.tar", "found in gs://bucket/data: folders, records, tars"),
        ("tar:gs://bukket/data/none-*.tar", "no bucket bukket"),
        ("objectnet:gs://bucket/data", "only folder, csv, records, tar are read from gs://"),
    ],
)
def test_source_that_cannot_be_read_is_told_why(laid_out, spec, said):
    assert said in message(spec)


def test_missing_shard_and_missing_image_are_named(laid_out, store):
    del store.objects["bucket", "data/tars/x-00001-of-00002.tar"]
    assert "x-00001-of-00002.tar" in message("tar:gs://bucket/data/tars")
    del store.objects["bucket", "data/folders/train/red/0 \u00fc [x].png"]
    assert "1 of 16 images are not there" in message("csv:gs://bucket/data/folders/list.csv")


def test_prepared_datasets_in_a_bucket_are_refused():
    assert "copy them to one" in message("tfds:mnist", data_dir="gs://bucket/data")


def test_names_of_records_in_a_bucket_are_refused():
    with pytest.raises(BadInput, match="copy the records to a disk"):
        record_source.ids(["gs://bucket/data/x.tfrecord"], "name")
