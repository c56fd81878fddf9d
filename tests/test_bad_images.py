# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Files that are no image in training: named or replaced; nothing else of any batch changes."""

import dataclasses
import io
import os
import subprocess
import sys
import tarfile

import numpy as np
import pictures
import pytest
from PIL import Image

from vit_jax.data.ops import decode
from vit_jax.data.ops.augment import FlipLr
from vit_jax.data.pipeline import bad_images as bad_images_lib
from vit_jax.data.pipeline import pipeline
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput, PeerLost
from vit_jax.storage import files as storage

CHAIN = "decode|resize({size})|flip_lr"
COUNT = 14


def files(root, bad=(), content=b"no image"):
    """PNG files a/00.png to b/13.png, in the split's order; those of `bad` hold `content`."""
    paths = [f"{'ab'[2 * i // COUNT]}/{i:02d}.png" for i in range(COUNT)]
    pictures.folder(root, *paths)
    for i in bad:
        (root / paths[i]).write_bytes(content)
    return opened(root)


def opened(root):
    source = sources.open_source(f"folder:{root}", Options(), val_percent=0, test_percent=0)
    return source.splits["train"]


def lossless_jpeg(data_dir):
    """A file that Pillow decodes and TensorFlow does not."""
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        name = "odd_images/jpeg_lossless_or_12bit__testimg_rgb.jpg"
        return tar.extractfile(name).read()


def skipping(split, chain=CHAIN, **changes):
    return pictures.batches(split, chain, bad_images="skip", **changes)


def with_replacements(root, split, pairs):
    """The same folder, with the files of `pairs` (by index) replaced by copies of others."""
    for index, other in pairs.items():
        (root / split.name(index)).write_bytes((root / split.name(other)).read_bytes())


@pytest.mark.integration
def test_a_bad_image_is_replaced_by_the_next_good_one_and_nothing_else_changes(tmp_path):
    split, chain = files(tmp_path), "decode|inception_crop({size})|flip_lr"
    names = [split.name(i) for i in range(COUNT)]
    good = list(pictures.batches(split, chain).train(0, 8))
    for i in (3, 4, COUNT - 1):
        (tmp_path / names[i]).write_bytes(b"no image")
    pipe = skipping(split, chain)
    found = list(pipe.train(0, 8))
    assert sorted(name for name, _ in pipe.skipped) == sorted([names[i] for i in (3, 4, 13)])
    assert all("no image" in reason for _, reason in pipe.skipped)
    # Index 3 and 4 become 5, and the last becomes the first: labels too.
    with_replacements(tmp_path, split, {3: 5, 4: 5, 13: 0})
    images = list(pictures.batches(split, chain).train(0, 8))
    assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(found, images, strict=True))
    same = [np.array_equal(a["image"], b["image"]) for a, b in zip(found, good, strict=True)]
    assert not all(same)


def test_labels_are_those_of_the_replacement(tmp_path):
    split = files(tmp_path)
    first = split.reader()
    labels = [int(first(i)[1][0]) for i in range(COUNT)]
    bad = next(i for i in range(COUNT) if labels[i] != labels[(i + 1) % COUNT])
    (tmp_path / split.name(bad)).write_bytes(b"")
    batch = next(skipping(split, batch_size=COUNT).train(0, 1))
    expected = [*labels[:bad], labels[(bad + 1) % COUNT], *labels[bad + 1 :]]
    assert sorted(batch["labels"][:, 0].tolist()) == sorted(expected)


@pytest.mark.integration
def test_replacement_is_the_same_after_a_resume_and_in_any_number_of_processes(tmp_path):
    split = files(tmp_path, bad=(1, 2))
    whole = list(skipping(split).train(0, 10))
    assert pictures.same(whole[7:], skipping(split).train(7, 10))
    halves = [list(skipping(split).train(0, 10, rows)) for rows in (range(2), range(2, 4))]
    joined = [
        {key: np.concatenate([a[key], b[key]]) for key in a} for a, b in zip(*halves, strict=True)
    ]
    assert pictures.same(joined, whole)
    again = skipping(split)
    assert pictures.same(again.train(0, 10), whole)
    assert next(again.train(0, 1)).keys() == whole[0].keys()
    assert len(again.skipped) == len(set(again.skipped)) == 2


def test_bad_images_are_named_unless_they_are_to_be_skipped(tmp_path):
    split = files(tmp_path, bad=(6,), content=b"")
    name = split.name(6)
    with pytest.raises(BadInput, match=rf"{name} cannot be decoded: the file is empty.*skip"):
        list(pictures.batches(split, CHAIN).train(0, 8))


def test_evaluation_never_skips(tmp_path):
    split = files(tmp_path, bad=(6,))
    with pytest.raises(BadInput, match=rf"{split.name(6)} cannot.*the file\.$") as caught:
        list(skipping(split).evaluation())
    assert "skip" not in str(caught.value)


def test_the_first_image_may_be_bad_where_such_are_skipped(tmp_path):
    split = files(tmp_path, bad=(0,))
    skipping(split).probe()
    with pytest.raises(BadInput, match=r"cannot be decoded.*replace the file\.$"):
        pictures.batches(split, CHAIN).probe()


def test_a_file_that_is_gone_is_never_skipped(tmp_path):
    split = files(tmp_path)
    name = split.name(5)
    (tmp_path / name).unlink()
    with pytest.raises(BadInput, match=name):
        list(skipping(split).train(0, 8))


def test_a_file_that_is_gone_replaces_none(tmp_path):
    split = files(tmp_path, bad=(5,))
    (tmp_path / split.name(6)).unlink()
    one = split.take_indices([5, 6])
    pipe = skipping(one, batch_size=1)
    with pytest.raises(BadInput, match=rf"{split.name(6)} cannot be read: .*No such file"):
        pipe.probe()


def test_an_image_that_does_not_fit_the_chain_is_never_skipped(tmp_path):
    split = files(tmp_path)
    (tmp_path / split.name(5)).write_bytes(pictures.encode(pictures.noise(2, 9)))
    with pytest.raises(BadInput, match=rf"{split.name(5)} does not go through"):
        list(skipping(split, "decode|random_crop(4)").train(0, 8))


def test_nothing_but_bad_images_is_bad_input(tmp_path):
    split = files(tmp_path, bad=range(COUNT))
    with pytest.raises(BadInput, match="none of the 14 images"):
        list(skipping(split).train(0, 8))


def test_a_batch_may_hold_a_bad_image_several_times(tmp_path):
    """A batch larger than the split: epochs meet in it."""
    split = files(tmp_path, bad=(6,))
    few = split.take_indices(np.arange(2, 12))
    pipe = skipping(few, batch_size=32)
    found = list(pipe.train(0, 2))
    assert [name for name, _ in pipe.skipped] == [split.name(6)]
    with_replacements(tmp_path, split, {6: 7})
    images = list(pictures.batches(few, CHAIN, batch_size=32).train(0, 2))
    assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(found, images, strict=True))


@pytest.mark.parametrize("method", ["train", "evaluation"])
def test_a_batch_may_hold_several_times_what_only_pillow_decodes(tmp_path, data_dir, method):
    """Rows that fill up a batch of evaluation repeat the first example."""
    few = files(tmp_path).take_indices(range(6))
    odd = lossless_jpeg(data_dir)

    def batches():
        pipe = pictures.batches(few, CHAIN, batch_size=8)
        return list(pipe.train(0, 3) if method == "train" else pipe.evaluation())

    (tmp_path / few.name(0)).write_bytes(odd)
    found = batches()
    out = io.BytesIO()
    Image.open(io.BytesIO(odd)).save(out, "PNG")
    (tmp_path / few.name(0)).write_bytes(out.getvalue())
    assert pictures.same(found, batches())


def test_two_bad_images_may_share_a_replacement_that_needs_pillow(tmp_path, data_dir):
    split = files(tmp_path, bad=(2, 3))
    (tmp_path / split.name(4)).write_bytes(lossless_jpeg(data_dir))
    pipe = skipping(split.take_indices([2, 3, 4]), batch_size=9)
    (batch,) = pipe.train(0, 1)
    assert (batch["labels"] == 0).all()
    assert len(pipe.skipped) == 2


@pytest.mark.parametrize("method", ["train", "evaluation"])
def test_what_only_pillow_decodes_is_as_if_it_were_a_png(tmp_path, data_dir, method):
    split, chain = files(tmp_path), "decode|inception_crop({size})|flip_lr"
    odd = lossless_jpeg(data_dir)
    (tmp_path / split.name(4)).write_bytes(odd)
    (tmp_path / split.name(5)).write_bytes(b"no image" if method == "train" else odd)

    def batches():
        pipe = pictures.batches(split, chain, bad_images="skip" if method == "train" else "error")
        return list(pipe.train(0, 8) if method == "train" else pipe.evaluation())

    found = batches()
    out = io.BytesIO()
    Image.open(io.BytesIO(odd)).save(out, "PNG")
    for i in (4, 5) if method == "evaluation" else (4,):
        (tmp_path / split.name(i)).write_bytes(out.getvalue())
    assert pictures.same(found, batches())


def test_a_replacement_may_itself_need_pillow(tmp_path, data_dir):
    split = files(tmp_path, bad=(3,))
    (tmp_path / split.name(4)).write_bytes(lossless_jpeg(data_dir))
    pipe = skipping(split)
    found = list(pipe.train(0, 8))
    assert [name for name, _ in pipe.skipped] == [split.name(3)]
    with_replacements(tmp_path, split, {3: 4})
    images = list(pictures.batches(split, CHAIN).train(0, 8))
    assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(found, images, strict=True))


def test_a_bad_image_costs_no_tracing(tmp_path, monkeypatch):
    """However many there are: what is bad is asked for, not written into the graph."""
    traced = []
    monkeypatch.setattr(FlipLr, "__call__", lambda self, image, seed: traced.append(1) or image)
    counts = []
    for number, bad in enumerate([(3,), range(1, COUNT, 2)]):
        split = files(tmp_path / str(number), bad=bad)
        traced.clear()
        pipe = skipping(split)
        list(pipe.train(0, 8))
        assert len(pipe.skipped) == len(bad)
        counts.append(len(traced))
    assert counts[0] == counts[1]


def test_each_bad_image_is_decoded_a_few_times_also_in_a_long_row_of_them(tmp_path, monkeypatch):
    split = files(tmp_path, bad=range(1, COUNT))
    decoded, image = [], bad_images_lib.FallbackReader.image
    monkeypatch.setattr(
        bad_images_lib.FallbackReader,
        "image",
        lambda self, index: decoded.append(index) or image(self, index),
    )
    pipe = skipping(split)
    list(pipe.train(0, 8))
    assert len(pipe.skipped) == COUNT - 1
    assert len(decoded) < 3 * COUNT


@pytest.mark.slow
def test_bad_images_print_no_tracebacks(tmp_path, root):
    """TensorFlow would print them, if jax did not set its level of logging before."""
    split = files(tmp_path, bad=(3, 4))
    program = (
        "import jax, sys; sys.path[:0] = ['tests']; import pictures, test_bad_images as t;"
        f"pipe = t.skipping(t.opened({str(tmp_path)!r})); list(pipe.train(0, 8));"
        "print(len(pipe.skipped))"
    )
    env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=env, capture_output=True, text=True
    )
    assert done.stdout == "2\n"
    assert "Traceback" not in done.stderr
    assert split.name(3) in done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("size", [2, 5])
def test_gaps_are_filled_wherever_they_are(tmp_path, monkeypatch, size):
    """At the ends of batches, over whole batches, and at the ends of what is read at a time."""
    split = files(tmp_path, bad=(0, 1, 4, 7, 8, 9, COUNT - 1))
    pipe = skipping(split, batch_size=size)
    found = list(pipe.train(0, 3 * COUNT // size))
    monkeypatch.setattr(pipeline, "_LENIENT_BATCHES", 2)
    assert pictures.same(found, pipe.train(0, 3 * COUNT // size))
    with_replacements(tmp_path, split, {0: 2, 1: 2, 4: 5, 7: 10, 8: 10, 9: 10, COUNT - 1: 2})
    good = pictures.batches(split, CHAIN, batch_size=size).train(0, 3 * COUNT // size)
    assert all(np.array_equal(a["image"], b["image"]) for a, b in zip(found, good, strict=True))


def test_reading_is_left_alone_where_nothing_is_doubtful(tmp_path):
    split = files(tmp_path)
    known = bad_images_lib.FallbackReader(split, decode.Decode())
    assert known.reader() is known.reader()
    assert not known.needs_fallback(3)
    known.use_pillow_for(3)
    assert known.needs_fallback(3)
    assert known.at(3) == 3
    image = known.reader()(3)["image"]
    assert (decode.with_pillow(image.numpy()) == known.image(3)).all()


@pytest.mark.parametrize("bad_images", ["error", "skip"])
def test_a_store_that_is_gone_is_no_bad_image(tmp_path, monkeypatch, bad_images):
    split = files(tmp_path)

    def lost(_):
        raise storage.StoreLost("gs://bucket/x: the store does not answer: gone. Run again.")

    @tf.function  # whose error is one of TensorFlow
    def read(index):
        return tf.ensure_shape(tf.numpy_function(lost, [index], tf.string), []), tf.constant([0])

    gone = dataclasses.replace(split, table=dataclasses.replace(split.table, reader=lambda: read))
    with pytest.raises(PeerLost, match=r"^gs://bucket/x: .* gone\. Run again\.$"):
        bad_images_lib.FallbackReader(gone, decode.Decode()).image(0)
    with pytest.raises(PeerLost, match=r"gone\. Run again\.$"):
        next(pictures.batches(gone, CHAIN, bad_images=bad_images).train(0, 1))


def test_an_image_that_a_store_did_not_give_is_not_doubtful(tmp_path):
    found = bad_images_lib.FallbackReader(files(tmp_path), decode.Decode())
    error = tf.errors.UnknownError(None, None, "StoreLost: gone. Run again.\nTraceback")
    with pytest.raises(PeerLost, match=r"^gone\. Run again\.$"):
        found.examine(0, lambda image: image, "", error)
    assert not found.needs_fallback(0)
