# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Small images: as arrays, as encoded bytes, as folders of files, as a table of a source."""

import functools
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import resize
from vit_jax.data.pipeline import pipeline
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import tf


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """uint8 [H, W, C]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def smooth(height: int, width: int) -> np.ndarray:
    """uint8 [H, W, 3] that every JPEG decoder shows alike, and that no mirror leaves as it is."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [255 * x / width, 255 * y / height, 128 + 0 * x]
    return np.stack(planes, axis=-1).astype(np.uint8)


def encode(image: np.ndarray, kind: str = "PNG", **options) -> bytes:
    """The file that Pillow makes of uint8 [H, W, C]."""
    out = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[-1] == 1 else image).save(out, kind, **options)
    return out.getvalue()


def folder(root: Path, *paths: str, size: int = 6) -> Path:
    """PNG files of noise under `root`, each different."""
    for i, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(encode(noise(size, size, seed=i)))
    return root


def split(examples: int, size: int = 4) -> Split:
    """Image i is noise of seed i, its label is i; nothing is decoded."""
    images = np.stack([noise(size, size, seed=i) for i in range(examples)])

    def reader():
        every = tf.constant(images)
        return lambda row: (tf.gather(every, row), tf.cast(row, tf.int32)[None])

    return Split(Table(examples, lambda row: f"noise/{row}", reader), range(examples))


def batches(examples: Split, chain: str = "decode", **changes) -> pipeline.Pipeline:
    """A pipeline over `examples` with small defaults."""
    settings = {"batch_size": 4, "seed": 0, "image_size": 4, "workers": 2, "prefetch": 1} | changes
    ops = preprocess.parse("data.train_ops", chain, settings["image_size"])
    settings["image_size"] = resize.rows_columns(settings["image_size"])
    return pipeline.Pipeline(split=examples, ops=ops, **settings)


def with_many_seeds(chain: str, image: np.ndarray, seeds: int = 400) -> np.ndarray:
    """Returns uint8 [seeds, h, w, 3]: one chain on one image as example 0, 1, 2, ... of a run."""
    process = preprocess.apply(preprocess.parse("data.train_ops", chain, 8))

    @tf.function
    def each(positions):
        one = functools.partial(process, tf.constant(image))
        pairs = tf.stack([tf.fill([seeds], np.int64(5)), positions], axis=1)
        return tf.map_fn(one, pairs, fn_output_signature=tf.uint8)

    return each(tf.range(seeds, dtype=tf.int64)).numpy()


def same(a, b) -> bool:
    """Says if two sequences of batches are bit for bit the same."""
    a, b = list(a), list(b)
    return len(a) == len(b) and all(
        x.keys() == y.keys() and all(np.array_equal(x[k], y[k]) for k in x)
        for x, y in zip(a, b, strict=True)
    )


def record(**features) -> bytes:
    """A tf.train.Example: bytes, text, numbers, or lists of those; `image__encoded` has a slash."""
    made = {}
    for key, values in features.items():
        values = values if isinstance(values, list) else [values]
        values = [v.encode() if isinstance(v, str) else v for v in values]
        if values and isinstance(values[0], bytes):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif values and isinstance(values[0], float):
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        made[key.replace("__", "/")] = feature
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def records(path: Path, contents) -> Path:
    """A TFRecord file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    return path


def tar(path: Path, members: dict[str, bytes] | list[tuple[str, bytes]], **options) -> Path:
    """A tar file; options of `tarfile.open`, such as its format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, **{"mode": "w"} | options) as out:
        for name, content in members.items() if isinstance(members, dict) else members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return path
