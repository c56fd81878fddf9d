# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Examples in memory: the same batches bit for bit, read once, never more than there is room."""

import tarfile

import numpy as np
import pictures
import pytest
from opened_sources import examples, opened

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.pipeline import memory_cache
from vit_jax.data.splits import order, windows
from vit_jax.errors import BadInput
from vit_jax.hardware import host_memory

RANDOM = "|random_crop({size})|flip_lr"
CHAINS = {
    "decode": "decode" + RANDOM,
    "one size": "decode|resize(9)|central_crop(7)" + RANDOM,
    "several sizes": "decode|resize_small(6)" + RANDOM,
    "random first": "decode|flip_lr|resize({size})",
    "nothing random": "decode|resize_small(6)|central_crop(4)",
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """19 images of several sizes."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(19):
        (root / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = pictures.noise(6 + i, 8 + i % 3, seed=i)
        (root / "ab"[i % 2] / f"{i}.png").write_bytes(pictures.encode(pixels))
    return opened(f"folder:{root}").splits["train"]


def cached(pipe, kind):
    return pipe.cached(kind)


def cache_split(split, kind, ops, workers):
    """`memory_cache.cache_split` for one chain."""
    held, (left,), note = memory_cache.cache_split(split, kind, (ops,), workers)
    return held, left, note


def names(split):
    return [split.name(i) for i in range(len(split))]


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind, chain", [("raw", "decode"), *(("decoded", chain) for chain in CHAINS)]
)
def test_batches_are_those_without(photos, kind, chain):
    pipe = pictures.batches(photos, CHAINS[chain])
    held, _ = cached(pipe, kind)
    assert pictures.same(held.train(3, 12), pipe.train(3, 12))
    assert pictures.same(held.evaluation(), pipe.evaluation())
    assert names(held.split) == names(photos)


def test_boxes_of_jpegs_are_those_of_the_decoded_images(tmp_path):
    """Without a cache only the box is decoded."""
    for i in range(12):
        pixels = pictures.noise(50 + i, 60, seed=i) // 4 + pictures.smooth(50 + i, 60) // 2
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        data = pictures.encode(pixels, "JPEG", quality=80)
        (tmp_path / "ab"[i % 2] / f"{i}.jpg").write_bytes(data)
    split = opened(f"folder:{tmp_path}").splits["train"]
    pipe = pictures.batches(split, "decode|inception_crop({size})|flip_lr", image_size=16)
    held, _ = cached(pipe, "decoded")
    assert pictures.same(held.train(0, 9), pipe.train(0, 9))


@pytest.mark.parametrize("kind", ["raw", "decoded"])
def test_images_that_are_no_files(kind):
    pipe = pictures.batches(
        opened("digits").splits["train"].take_indices(range(40)), "decode|resize(4)"
    )
    held, _ = cached(pipe, kind)
    assert pictures.same(held.train(0, 12), pipe.train(0, 12))


@pytest.mark.parametrize("kind", ["raw", "decoded"])
def test_files_are_read_once(tmp_path, kind):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "ab" for i in range(5)))
    split = opened(f"folder:{tmp_path}").splits["train"]
    pipe = pictures.batches(split, "decode|flip_lr|resize(4)")
    wanted = list(pipe.train(0, 9))
    held, _ = cached(pipe, kind)
    for path in tmp_path.rglob("*.png"):
        path.unlink()
    assert pictures.same(held.train(0, 9), wanted)


@pytest.mark.parametrize(
    "kind, chain, done",
    [
        ("raw", "decode|resize(4)", 0),
        ("decoded", "decode|resize(4)|flip_lr|resize(5)", 2),
        ("decoded", "flip_lr|resize(5)", 0),
        ("decoded", "decode|resize_small(4)|central_crop(4)", 3),
    ],
)
def test_ops_before_the_first_random_one_are_done(photos, kind, chain, done):
    ops = preprocess.parse("x", chain, 4)
    photos = photos if chain.startswith("decode") else opened("digits").splits["train"]
    _, left, _ = cache_split(photos.take_indices(range(3)), kind, ops, 1)
    assert left == (memory_cache.CachedOp(),) * done + ops[done:]


def test_ops_that_draw_nothing_are_all_that_are_done():
    """An op that is not listed here is looked at before it is held; `naflex` also adds a field."""
    random = {name for name, op in preprocess.OPS.items() if op not in preprocess.FIXED}
    assert random == {
        "random_crop", "inception_crop", "fast_inception_crop", "flip_lr", "shift", "affine",
        "randaug", "color_jitter", "three_augment", "random_erasing", "grayscale",
        "gaussian_blur", "solarize", "scale_jitter", "naflex",
    }  # fmt: skip


@pytest.mark.integration
def test_orders_stay_those_of_windows_and_mixtures(tmp_path):
    for shard in range(4):
        members = {}
        for i in range(shard * 5, shard * 5 + 5):
            image = pictures.encode(pictures.noise(4, 4, seed=i))
            members |= {f"{i}.png": image, f"{i}.cls": str(i).encode()}
        pictures.tar(tmp_path / f"x-{shard}.tar", members)
    tar = opened(f"tar:{tmp_path}").splits["train"].take_indices(np.arange(0, 20, 2))
    mix = opened(f"mix:3*tar:{tmp_path},1*digits").splits["train"]
    mix = mix.take_indices(np.array([*range(20), 30, 40]))
    for split in (windows.shuffle_in_windows(tar, 2), mix):
        pipe = pictures.batches(split, "decode|resize(4)")
        for kind in ("raw", "decoded"):
            held, _ = cached(pipe, kind)
            assert pictures.same(held.train(0, 20), pipe.train(0, 20))
            assert held.split.table.files is None


def test_labels_are_there_without_reading(photos):
    held, _, _ = cache_split(photos, "raw", (), 2)
    assert held.table.labels().tolist() == [[i % 2] for i in sorted(range(19), key=lambda i: i % 2)]


def test_note_says_what_is_held(photos):
    ops = preprocess.parse("x", CHAINS["one size"], 4)
    note = cache_split(photos, "decoded", ops, 1)[2]
    assert note == "19 images are held in memory, Decode|Resize|CentralCrop: about 0 MiB"
    assert "as they are stored" in cache_split(photos, "raw", ops, 1)[2]


# ---------------------------------------------------------------- room, and what is wrong


@pytest.mark.parametrize(
    "kind, chain, each", [("decoded", "decode|resize(100)", 30_000), ("raw", "decode", None)]
)
def test_more_than_half_of_the_memory_is_refused(photos, monkeypatch, kind, chain, each):
    ops = preprocess.parse("x", chain, 100)
    sizes = [len(image) for image, _ in examples(photos)]
    need = sum(each or size for size in sizes) + 19 * 64
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 2 * need)
    cache_split(photos, kind, ops, 1)
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 2 * need - 2)
    with pytest.raises(BadInput, match=f"data.cache={kind} of 19 images would take") as caught:
        cache_split(photos, kind, ops, 1)
    assert "data.cache=none" in str(caught.value)


def test_many_images_are_predicted_from_some_with_headroom(monkeypatch):
    split = opened("digits").splits["train"]
    asked = []
    monkeypatch.setattr(host_memory, "check", lambda need, *_: asked.append(need))
    cache_split(split, "decoded", preprocess.parse("x", "decode|resize(10)", 4), 1)
    assert asked == [1797 * (300 * 1.25 + 64)]


def test_unknown_kind(photos):
    with pytest.raises(BadInput, match=r"unknown data.cache 'ram'"):
        cache_split(photos, "ram", (), 1)


@pytest.mark.parametrize("bad", [0, 70, 99])
def test_image_that_cannot_be_decoded_is_named(tmp_path, bad):
    pictures.folder(tmp_path, *(f"{c}/{i:02d}.png" for c in "ab" for i in range(50)))
    path = tmp_path / "ab"[bad // 50] / f"{bad % 50:02d}.png"
    path.write_bytes(b"no image")
    split = opened(f"folder:{tmp_path}").splits["train"]
    ops = preprocess.parse("x", "decode|resize(4)", 4)
    with pytest.raises(BadInput) as caught:
        cache_split(split, "decoded", ops, 2)
    assert str(caught.value) == (
        f"{path.relative_to(tmp_path).as_posix()} cannot be decoded: no image that Pillow knows; "
        "it starts with b'no image'. Remove or replace the file; data.bad_images=skip needs "
        "data.cache=raw or none."
    )
    assert len(cache_split(split, "raw", ops, 2)[0]) == 100


@pytest.mark.parametrize("kind", ["raw", "decoded"])
def test_a_file_that_is_gone_is_named(tmp_path, kind):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "ab" for i in range(5)))
    split = opened(f"folder:{tmp_path}").splits["train"]
    (tmp_path / "b" / "3.png").unlink()
    with pytest.raises(BadInput, match=r"^b/3.png cannot be read: /\S+; No such file") as caught:
        cache_split(split, kind, preprocess.parse("x", "decode|resize(4)", 4), 2)
    assert "{{" not in str(caught.value)


def test_an_image_that_is_too_small_for_the_ops_that_are_done_is_named(tmp_path):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "ab" for i in range(5)))
    (tmp_path / "b" / "3.png").write_bytes(pictures.encode(pictures.noise(3, 9)))
    split = opened(f"folder:{tmp_path}").splits["train"]
    with pytest.raises(BadInput, match=r"^b/3.png does not go through Decode\|CentralCrop: off"):
        cache_split(split, "decoded", preprocess.parse("x", "decode|central_crop(5)", 5), 2)


@pytest.mark.parametrize("chain", ["decode|random_crop({size})", "decode|resize(9)|flip_lr"])
def test_images_that_only_pillow_decodes_are_held_as_they_are_shown(tmp_path, data_dir, chain):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "ab" for i in range(5)))
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        name = "odd_images/jpeg_lossless_or_12bit__testimg_rgb.jpg"
        odd = tar.extractfile(name).read()
    for path in ("a/0.png", "b/3.png"):
        (tmp_path / path).write_bytes(odd)
    split = opened(f"folder:{tmp_path}").splits["train"]
    pipe = pictures.batches(split, chain, image_size=4 if "crop" in chain else 9)
    held, _ = cached(pipe, "decoded")
    assert pictures.same(held.train(0, 9), pipe.train(0, 9))
    assert pictures.same(held.evaluation(), pipe.evaluation())


def test_a_crop_that_decodes_parts_of_images_has_no_decoded_images(photos):
    ops = preprocess.parse("x", "decode|fast_inception_crop({size})", 4)
    with pytest.raises(BadInput, match=r"fast_inception_crop decodes parts; use data.cache=raw"):
        cache_split(photos, "decoded", ops, 1)
    assert cache_split(photos, "raw", ops, 1)[1] == ops


def test_held_seeds_are_those_of_the_places_of_the_ops():
    """`Done` stands where the op stood."""
    ops = preprocess.parse("x", "decode|resize(9)|flip_lr", 4)
    image = pictures.noise(9, 9)
    for at in range(20):
        seed = order.example_seed(at, seed=1)
        done = preprocess.apply((memory_cache.CachedOp(), memory_cache.CachedOp(), ops[2]))(
            image, seed
        )
        assert (done.numpy() == preprocess.apply(ops)(image, seed).numpy()).all()
