# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Prepared TFDS datasets, read by number: the same images and labels as TFDS itself gives."""

import importlib.util
import io
import logging
import time
import urllib.error
from pathlib import Path

import numpy as np
import pictures
import pytest

from vit_jax import errors
from vit_jax.config import load as config_lib
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.source import Options
from vit_jax.data.splits import order, windows
from vit_jax.data.tensorflow import tf

FORMATS = ["tfrecord", "array_record"]
TRAIN, TEST, SHARDS = 40, 7, 3


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    """TFDS reports its progress on stderr and through absl."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    tfds_source._tfds().disable_progress_bar()


def image(i, kind):
    """Returns an image of its own size that differs from every other."""
    pixels = pictures.noise(4 + i % 3, 5, seed=i)
    return pictures.encode(pixels, kind)


def prepare(
    folder,
    *,
    file_format="tfrecord",
    splits=None,
    features=None,
    supervised=None,
    fillers=None,
    **kind,
):
    """Writes a dataset `tiny_pics` that is known only by its files, and returns its folder."""
    tfds = tfds_source._tfds()
    kind = kind.get("kind", "PNG")
    splits = splits or {"train": range(TRAIN), "test": range(TRAIN, TRAIN + TEST)}
    features = features or {
        "id": tfds.features.Scalar(np.int64),
        "image": tfds.features.Image(shape=(None, None, 3), encoding_format=kind.lower()),
        "label": tfds.features.ClassLabel(names=["cat", "dog", "owl"]),
    }
    fillers = {
        "id": lambda i: i,
        "image": lambda i: _file(folder, i, kind),
        "label": lambda i: i % 3,
        "text": lambda i: f"text {i}",
        "mask": lambda i: _file(folder, i + 1, kind),
        "coarse": lambda i: i % 2,
    } | (fillers or {})

    def info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=supervised,
        )

    def generate(self, numbers):
        for i in numbers:
            yield i, {key: fillers[key](i) for key in features}

    with tfds.core.registered.skip_registration():
        builder = type(
            "TinyPics",
            (tfds.core.GeneratorBasedBuilder,),
            {
                "VERSION": tfds.core.Version("1.0.0"),
                "_info": info,
                "_split_generators": lambda self, _: {
                    name: generate(self, numbers) for name, numbers in splits.items()
                },
                "_generate_examples": generate,
            },
        )
    settings = tfds.download.DownloadConfig(num_shards=SHARDS)
    made = builder(data_dir=str(folder), file_format=file_format)
    made.download_and_prepare(download_config=settings)
    return folder


def as_builder(monkeypatch, name):
    """Lets a dataset have the name of a known one."""
    open_builder = tfds_source.open_builder

    def named(*args):
        builder = open_builder(*args)
        builder.name = name
        return builder

    monkeypatch.setattr(tfds_source, "open_builder", named)


def _file(folder, i, kind):
    path = folder / f"{i}.{kind.lower()}"
    path.write_bytes(image(i, kind))
    return str(path)


@pytest.fixture(scope="module", params=FORMATS)
def prepared(request, tmp_path_factory):
    return prepare(tmp_path_factory.mktemp(request.param), file_format=request.param)


def opened(folder, val=0, test=0, name="tiny_pics"):
    return sources.open_source(
        f"tfds:{name}", Options(str(folder)), val_percent=val, test_percent=test
    )


def read(split):
    """(bytes, label) of each example."""
    one = tf.function(split.reader())
    pairs = [one(tf.constant(i, tf.int64)) for i in range(len(split))]
    assert all(label.dtype == tf.int32 for _, label in pairs)
    assert all(label.shape == (1,) for _, label in pairs)
    return [(data.numpy(), int(label[0])) for data, label in pairs]


def message(*args, **kwargs):
    with pytest.raises(errors.BadInput) as caught:
        opened(*args, **kwargs)
    return str(caught.value)


# ---------------------------------------------------------------- boxes


def objects(i):
    """Some objects of image i, as TFDS's coco and voc have them."""
    bbox = _tfds_bbox()
    return [
        {"bbox": bbox(ymin=0.25, xmin=0.0, ymax=1.0, xmax=0.5), "label": (i + n) % 2, "area": 7,
         "is_crowd": n == 1}
        for n in range(i % 4)
    ]  # fmt: skip


def _tfds_bbox():
    return tfds_source._tfds().features.BBox


@pytest.mark.parametrize(
    "file_format, name, first",
    [*((file_format, "tiny_pics", 0) for file_format in FORMATS), (FORMATS[0], "voc", 1)],
)
def test_objects_are_boxes_in_pixels(tmp_path, monkeypatch, file_format, name, first):
    """TFDS's voc counts left and top from 1, like the files of Pascal VOC."""
    kinds = tfds_source._tfds().features
    features = {
        "image": kinds.Image(shape=(None, None, 3), encoding_format="png"),
        "image/id": np.int64,
        "objects": kinds.Sequence(
            {"bbox": kinds.BBoxFeature(), "label": kinds.ClassLabel(names=["cat", "dog"]),
             "area": np.int64, "is_crowd": np.bool_}
        ),
    }  # fmt: skip
    fillers = {"image/id": lambda i: 1000 + i, "objects": objects}
    folder = prepare(tmp_path, file_format=file_format, features=features, fillers=fillers)
    as_builder(monkeypatch, name)
    source = opened(folder)
    assert source.classes == ("cat", "dog")
    assert {name: len(split) for name, split in source.splits.items()} == {
        "train": TRAIN, "test": TEST,
    }  # fmt: skip
    split = source.splits["train"]
    truth, fields = split.truth_reader(), tf.function(split.fields_reader())
    for row in range(TRAIN):
        true, own = truth(row), fields(tf.constant(row, tf.int64))
        i = true.id - 1000
        rows, columns = image(i, "PNG")[16:24][7], image(i, "PNG")[16:24][3]
        assert own["image"].numpy() == image(i, "PNG")
        assert true.sides == (rows, columns)
        expected = np.array([-first, rows / 4 - first, columns / 2, rows])
        np.testing.assert_allclose(true.boxes, np.tile(expected, (i % 4, 1)))
        expected = np.maximum(expected, 0)  # clipped to the image
        assert true.classes.tolist() == [(i + n) % 2 for n in range(i % 4)]
        assert true.ignored.tolist() == [n == 1 for n in range(i % 4)]
        assert true.areas.tolist() == [7.0] * (i % 4)
        kept = [(i + n) % 2 for n in range(i % 4) if n != 1]
        assert own["box_classes"].numpy().tolist() == (kept + [-1] * 3)[:3]
        found = own["boxes"][: len(kept)].numpy()
        np.testing.assert_allclose(found, np.tile(expected, (len(kept), 1)), rtol=1e-6)
        assert not own["boxes"][len(kept) :].numpy().any()
    counts = [len(truth(row).boxes) for row in range(TRAIN)]
    assert split.table.most_boxes == (split.name(int(np.argmax(counts))), 3)


# ---------------------------------------------------------------- reading


def test_examples_are_those_of_tfds_in_its_order(prepared):
    tfds = tfds_source._tfds()
    source = opened(prepared)
    assert source.classes == ("cat", "dog", "owl")
    assert {name: len(split) for name, split in source.splits.items()} == {
        "train": TRAIN,
        "test": TEST,
    }
    for name in ("train", "test"):
        decoders = {"image": tfds.decode.SkipDecoding()}
        builder = tfds.builder("tiny_pics", data_dir=str(prepared))
        if builder.info.file_format.value == "array_record":
            wanted = builder.as_data_source(split=name, decoders=decoders)
        else:
            one_by_one = tfds.ReadConfig(interleave_cycle_length=1)
            wanted = builder.as_dataset(split=name, decoders=decoders, read_config=one_by_one)
            wanted = wanted.as_numpy_iterator()
        assert read(source.splits[name]) == [(e["image"], int(e["label"])) for e in wanted]


def test_every_example_is_there_once_with_its_label(prepared):
    assert len(list(Path(prepared).rglob("*train*-of-00003"))) == SHARDS
    split = opened(prepared).splits["train"]
    assert set(read(split)) == {(image(i, "PNG"), i % 3) for i in range(TRAIN)}
    assert split.name(3) == "tfds:tiny_pics/1.0.0/train/3"


def test_pixels_are_those_that_tfds_decodes(tmp_path):
    tfds = tfds_source._tfds()
    prepare(tmp_path, kind="JPEG")
    split = opened(tmp_path).splits["test"]
    wanted = tfds.load("tiny_pics", split="test", data_dir=str(tmp_path), shuffle_files=False)
    wanted = {e["image"].numpy().tobytes(): int(e["label"]) for e in wanted}
    decode = preprocess.Decode()
    got = {decode(tf.constant(data), None).numpy().tobytes(): k for data, k in read(split)}
    assert got == wanted
    assert len(got) == TEST


def test_batches_follow_the_order(prepared):
    split = opened(prepared).splits["train"]
    labels = [label for _, label in read(split)]
    pipe = pictures.batches(split, "decode|resize({size})", seed=3)
    seed = order.stream_seed(3, "order")
    for step, batch in enumerate(pipe.train(0, 12)):
        at = [tf.constant(4 * step + row, tf.int64) for row in range(4)]
        rows = [int(order.example_at(p, examples=TRAIN, seed=seed)) for p in at]
        assert batch["labels"][:, 0].tolist() == [labels[row] for row in rows]


def test_the_reader_without_tensorflow_gives_the_same_examples(tmp_path):
    split = opened(prepare(tmp_path, kind="JPEG")).splits["train"]
    fields = map(split.numpy_reader(), range(TRAIN))
    assert [(one["image"].read(), int(one["labels"][0])) for one in fields] == read(split)


def test_windows_of_files_hold_what_lies_in_them(prepared):
    """array_record files are read by their own reader, which holds nothing."""
    split = opened(prepared).splits["train"]
    shards = split.table.shards
    assert len(shards) == SHARDS + 1
    assert (shards[0], shards[-1]) == (0, TRAIN)
    assert (split.table.files is None) == bool(list(Path(prepared).rglob("*array_record*")))
    windowed = windows.shuffle_in_windows(split, 1)
    pipe = pictures.batches(windowed, "decode|resize({size})", batch_size=TRAIN)
    (batch,) = pipe.train(0, 1)
    at = windowed.order(order.stream_seed(0, "order"))
    rows = [int(at(tf.constant(p, tf.int64))) for p in range(TRAIN)]
    labels = [label for _, label in read(split)]
    assert batch["labels"][:, 0].tolist() == [labels[row] for row in rows]
    files = [int(np.searchsorted(shards, row, side="right")) for row in rows]
    assert len(list(dict.fromkeys(files))) == 1 + sum(np.diff(files) != 0) == SHARDS


# ---------------------------------------------------------------- splits


def test_val_is_the_end_of_train_where_there_is_none(prepared):
    """TFDS stores its examples shuffled."""
    source = opened(prepared, val=10, test=20)
    whole = read(opened(prepared).splits["train"])
    assert read(source.splits["train"]) == whole[:36]
    assert read(source.splits["val"]) == whole[36:]
    assert len(source.splits["test"]) == TEST
    assert source.notes == ("val: 10 % held out of train",)


def test_validation_is_test_where_there_is_none(tmp_path):
    """As ImageNet is used."""
    splits = {"train": range(30), "validation": range(30, 36)}
    source = opened(prepare(tmp_path, splits=splits), val=10, test=20)
    assert {name: len(split) for name, split in source.splits.items()} == {
        "train": 27,
        "validation": 6,
        "test": 6,
        "val": 3,
    }
    assert set(read(source.splits["test"])) == {(image(i, "PNG"), i % 3) for i in range(30, 36)}


def test_validation_is_val_where_there_is_a_test_split(tmp_path):
    splits = {"train": range(20), "validation": range(20, 24), "test": range(24, 27)}
    source = opened(prepare(tmp_path, splits=splits), val=10, test=20)
    assert [len(source.splits[name]) for name in ("train", "val", "test")] == [20, 4, 3]
    assert source.notes == ()
    assert len(source.split("train[:25%]")) == 5


# ---------------------------------------------------------------- features


def test_supervised_keys_choose_among_several(tmp_path):
    tfds = tfds_source._tfds()
    features = {
        "mask": tfds.features.Image(shape=(None, None, 3)),
        "image": tfds.features.Image(shape=(None, None, 3)),
        "coarse": tfds.features.ClassLabel(names=["tame", "wild"]),
        "label": tfds.features.ClassLabel(names=["cat", "dog", "owl"]),
    }
    prepare(tmp_path, features=features, supervised=("image", "label"))
    source = opened(tmp_path)
    assert source.classes == ("cat", "dog", "owl")
    assert set(read(source.splits["test"])) == {
        (image(i, "PNG"), i % 3) for i in range(TRAIN, TRAIN + TEST)
    }


@pytest.mark.parametrize(
    "keys", [["id", "image"], ["label", "text"], ["id", "image", "mask", "label"]]
)
def test_dataset_without_one_image_and_one_label_is_bad_input(tmp_path, keys):
    tfds = tfds_source._tfds()
    features = {
        "id": tfds.features.Scalar(np.int64),
        "image": tfds.features.Image(shape=(None, None, 3)),
        "mask": tfds.features.Image(shape=(None, None, 3)),
        "label": tfds.features.ClassLabel(names=["cat", "dog", "owl"]),
        "text": tfds.features.Text(),
    }
    prepare(tmp_path, features={key: features[key] for key in keys})
    said = message(tmp_path)
    assert "data.source=tfds:tiny_pics" in said
    assert [key for key in keys if key not in said] == []


# ---------------------------------------------------------------- what is not there


@pytest.mark.parametrize("name", ["tiny_pix", "tiny_pics:9.9.9", "tiny_pics/other", "Tiny Pics!"])
def test_unknown_dataset_is_bad_input_at_once(prepared, name):
    start = time.monotonic()
    said = message(prepared, name=name)
    assert time.monotonic() - start < 5
    assert f"data.source=tfds:{name}" in said
    assert "--config.data.data_dir" in said
    assert "\n" not in said


def answer(request, timeout):
    """A server that is there, but does not like to be asked."""
    assert request.get_method() == "HEAD"
    raise urllib.error.HTTPError(request.full_url, 403, "Forbidden", {}, io.BytesIO())


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no route to host"),
        OSError(101, "Network is unreachable"),
        AssertionError("Manual directory /x does not exist: download it yourself"),
        ModuleNotFoundError("No module named 'what_this_dataset_needs'"),
    ],
)
def test_dataset_that_cannot_be_downloaded_is_bad_input(tmp_path, monkeypatch, error):
    """Known to TFDS by its code, but not prepared. What is raised is shown."""
    tfds = tfds_source._tfds()

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    monkeypatch.setattr(tfds_source.urllib.request, "urlopen", answer)
    start = time.monotonic()
    said = message(tmp_path, name="mnist")
    assert time.monotonic() - start < 5
    shown = ("data.source=tfds:mnist is not prepared", str(error)[:20], "--config.data.data_dir")
    assert [s for s in shown if s not in said] == []
    assert "no such dataset" not in said


def test_what_tfds_imports_to_download_is_installed():
    """It leaves importlib_resources out of its requirements."""
    assert importlib.util.find_spec("importlib_resources")


@pytest.mark.parametrize("damage", ["truncated", "missing", "empty"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_damaged_shard_is_bad_input(tmp_path, damage, file_format):
    prepare(tmp_path, file_format=file_format)
    shard = next(iter(tmp_path.rglob("*train*-00001-of-00003")))
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-7] if damage == "truncated" else b"")
    said = message(tmp_path)
    assert "tiny_pics" in said


def test_data_dir_is_a_key_that_says_only_where():
    assert not config_lib.changes_results("data.data_dir")
