# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The data benchmark measures what it says, on the same pixels; no test depends on the time."""

import json

import pictures
import pytest

from vit_jax.data.inspect import bench
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def split(root, kind, count=24):
    for i in range(count):
        path = root / "ab"[i % 2] / f"{i}.{'jpg' if kind == 'JPEG' else 'png'}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pictures.encode(pictures.noise(40, 30, seed=i), kind))
    source = sources.open_source(f"folder:{root}", Options(), val_percent=0, test_percent=0)
    return source.splits["train"]


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 2])
def test_every_stage_and_pipeline_has_its_figures(tmp_path, workers):
    found = bench.bench(split(tmp_path, "JPEG"), workers, images=22, rounds=2, size=16)
    json.dumps(found)
    assert (found["images"], found["cores"]) == (22, workers)
    assert list(found["images_per_sec_per_core"]) == ["read", "decode", "augment", "transfer"]
    others = {"fast", "python", "bare", "full", "pil"} | ({"one_core"} if workers > 1 else set())
    assert found["pipelines"].keys() == others | {"ours"}
    assert found["ratios"].keys() == found["ratios_per_core"].keys() == others
    assert all(rate > 0 for rate in found["images_per_sec_per_core"].values())
    for rate in found["pipelines"].values():
        assert 0 < rate["lowest"] <= rate["images_per_sec"] <= rate["highest"]
    assert len(found["rss_mib_by_epoch"]) == 3
    assert all(50 < mib < 1e5 for mib in found["rss_mib_by_epoch"])
    assert found["notes"] == []
    text = bench.as_text(found)
    assert all(name in text for name in [*others, "read", "transfer", "memory"])


def test_other_files_are_measured_without_comparisons_and_it_says_so(tmp_path):
    found = bench.bench(split(tmp_path, "PNG"), 1, rounds=1, size=16)
    assert found["pipelines"].keys() == {"ours", "fast", "python"}
    assert "not all files are JPEGs" in found["notes"][0]
    assert found["notes"][0] in bench.as_text(found)


def test_another_chain_is_measured_without_comparisons_and_it_says_so(tmp_path):
    images = split(tmp_path, "JPEG")
    found = bench.bench(images, 1, chain="decode|resize({size})|randaug(1, 9)", rounds=1, size=16)
    assert found["pipelines"].keys() == {"ours", "python"}
    assert found["ops"] == "decode|resize({size})|randaug(1, 9)"
    assert bench.CHAIN in found["notes"][0]


@pytest.mark.parametrize("chain, part", [
    ("decode", "not make images of one size"),
    ("decode|central_crop(900)", "480 x 640 pixels"),
    ("decode|turn", "unknown op in --ops 'turn'"),
    ("flip_lr|resize({size})", r"write decode\|flip_lr\|resize"),
])  # fmt: skip
def test_a_chain_that_makes_no_batches_is_refused(tmp_path, chain, part):
    with pytest.raises(BadInput, match=part):
        bench.bench(split(tmp_path, "PNG", 2), 1, chain=chain)


def test_one_image_can_be_measured(tmp_path):
    found = bench.bench(split(tmp_path, "JPEG", 2).take_indices(range(1)), 1, rounds=1, size=16)
    assert found["images"] == 1
    assert all(rate > 0 for rate in found["images_per_sec_per_core"].values())
    assert "1 images" in bench.as_text(found)


def test_the_other_ways_make_nearly_the_same_images(tmp_path):
    """The same boxes and mirrors, or their times would say nothing."""
    one = split(tmp_path, "JPEG", 4).reader()
    chain = preprocess.apply(preprocess.parse("", bench.CHAIN, 16))
    for i in range(4):
        content, seed = one(tf.constant(i, tf.int64))[0], tf.constant([0, i], tf.int64)
        ours = chain(content, seed).numpy()
        full = bench._full(16, content, seed).numpy()
        assert (ours == full).all()
        bare = bench._bare(16, content, seed).numpy()
        assert bare.dtype == "float32"
        assert min(abs(bare - ours).mean(), abs(bare[:, ::-1] - ours).mean()) < 1


def test_a_grid_of_patches_is_made_in_both_readers(monkeypatch):
    """Or one of them would do less than the other."""
    made = []

    def one(files, step, *_):
        made.append(step(tf.constant(files[0]), tf.zeros(2, tf.int64)))

    monkeypatch.setattr(bench, "_of_files", one)
    monkeypatch.setattr(bench, "_python", lambda *_: None)
    files = [pictures.encode(pictures.noise(40, 30, seed=0), "JPEG")]
    bench._pipelines(files, 2, 16, "decode|naflex({size}, 4)", (16, 16, 3))
    assert [{*fields} for fields in made] == [{"image", "grid"}] * 2  # with two threads, with one


def test_what_cannot_be_measured_is_named(tmp_path):
    images = split(tmp_path, "PNG")
    (tmp_path / "a" / "0.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"a/0\.png .*empty.*data check"):
        bench.bench(images, 1)
    with pytest.raises(BadInput, match="pixels, not image files"):
        bench.bench(pictures.split(3), 1)
