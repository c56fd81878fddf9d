# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images of any size through windows: their places, their logits, and the memory they take."""

import functools
import json
import tracemalloc
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train_step import rules_of

from vit_jax.build import defaults
from vit_jax.config import load as config_lib
from vit_jax.data.inspect import colours
from vit_jax.data.numpy_ops import resize
from vit_jax.errors import BadInput
from vit_jax.inference import dense_run, segmenter
from vit_jax.reports import dense_page
from vit_jax.step.segmentation import Segmentation
from vit_jax.training import workdir as workdir_lib


@pytest.mark.parametrize("length, window", [(10, 10), (4, 10), (11, 10), (37, 10), (100, 7)])
def test_windows_cover_every_pixel(length, window):
    starts = segmenter._starts(length, window)
    covered = np.zeros(length)
    for start in starts:
        covered[start : start + window] += 1
    assert covered.min() >= 1
    assert starts[-1] == max(0, length - window)
    assert max(np.diff(starts), default=0) <= max(1, window * 2 // 3)


def by_colour(whole, size=(16, 24), scale=1.0):
    """A segmenter that reads classes from the images: red, green or blue."""
    run = SimpleNamespace(
        names=("r", "g", "b"), size=size, params={}, rules=rules_of((1, 1, 1, 1)),
        objective=Segmentation(scale=scale),
    )  # fmt: skip
    step = jax.jit(lambda _, windows: windows.astype(jnp.float32))
    return segmenter.Segmenter(run, step, whole)


def test_windows_cover_an_image_at_the_scale_of_the_run():
    """A street of Cityscapes, 1024 x 2048, keeps its size in windows of 768."""
    street = np.broadcast_to(np.uint8(0), (1024, 2048, 3))
    assert by_colour(False, (768, 768), 4 / 3)._sides(street) == (1024, 2048)
    assert by_colour(False, (768, 768))._sides(street) == (768, 1536)
    assert by_colour(True, (768, 768), 4 / 3)._sides(street) == (384, 768)


@pytest.mark.parametrize("sides", [(4, 6), (32, 24)])
def test_grids_of_logits_are_resized_as_on_the_device(sides, monkeypatch):
    """`Segmentation.logits` does it on the device, `Segmenter` on the host."""
    logits = np.random.default_rng(0).normal(size=(2, *sides, 3)).astype(np.float32)
    whole = jax.image.resize(jnp.asarray(logits), (2, 16, 24, 3), "linear")
    monkeypatch.setattr(Segmentation, "grid", lambda *_, **__: jnp.asarray(logits))
    step = segmenter.step_of(Segmentation(classes=3), None)
    grids = step({}, np.zeros((2, 16, 24, 3), np.uint8))
    assert grids.shape == (2, min(sides[0], 16), min(sides[1], 24), 3)
    found = [resize.bilinear(np.asarray(grid), 16, 24) for grid in grids]
    np.testing.assert_allclose(found, whole, atol=2e-6)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("sides", [(16, 24), (40, 33), (7, 50), (1, 1), (64, 16)])
def test_predictions_have_the_size_of_the_image(whole, sides):
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 3, [-(-side // 8) for side in sides])
    mask = blocks.repeat(8, 0).repeat(8, 1)[: sides[0], : sides[1]]
    image = (np.eye(3)[mask] * 255).astype(np.uint8)
    found = list(by_colour(whole).of_images([image, image[::-1], image]))
    assert [x.shape for x in found] == [sides] * 3
    np.testing.assert_array_equal(found[0], found[2])
    enough = 0.75 if whole else 0.9
    assert (found[0] == mask).mean() > enough
    assert (found[1] == mask[::-1]).mean() > enough


def test_logits_are_averaged_where_windows_overlap():
    """A pixel in more windows than its neighbour counts no more when both are resized."""
    canvas = segmenter._Canvas((1, 4), (1, 2), [(0, 0)] + [(0, 1)] * 5, 2)
    for place in canvas.places:
        canvas.add(place, np.array([[[0, 1] if place[1] else [1, 0]]], np.float32))
    assert canvas.left == 0
    np.testing.assert_array_equal(canvas.classes(), [[0, 0, 1, 1]])


def test_highest_logit_is_that_after_a_bilinear_resize(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(5, 7, 4)).astype(np.float32)
    whole = resize.bilinear(logits, 131, 90)
    found = segmenter.highest(logits, 131, 90)
    assert (found == whole.argmax(-1)).mean() > 0.999
    monkeypatch.setattr(segmenter, "_TILE_BYTES", 4 * 4 * 37)  # tiles of a part of a row
    np.testing.assert_array_equal(segmenter.highest(logits, 131, 90), found)


def test_wide_image_takes_no_more_memory_than_its_tiles():
    logits = np.zeros((1, 600, 150), np.float32)
    tracemalloc.start()
    segmenter.highest(logits, 4, 20_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * segmenter._TILE_BYTES  # all logits: 48 MB, and several temporary copies


def test_only_the_worst_images_are_drawn_and_kept():
    drawn, worst = [], dense_page.Worst()

    def draw(name):
        drawn.append(name)
        return dense_page.Case(name, 0.0, b"")

    mious = np.random.default_rng(0).permutation(200) // 2 / 100  # each twice
    names = [f"{miou:.2f} {number:03d}" for number, miou in enumerate(mious)]
    for name, miou in zip(names, mious, strict=True):
        worst.add(miou, functools.partial(draw, name))
    assert [case.example for case in worst.cases()] == sorted(names)[:12]
    assert len(drawn) < 100


@pytest.mark.parametrize("damaged", [[[1, 2, 3]], [[1, 2, 3], [4, 5, 256]], "red", [[1, 2], [3]]])
def test_a_run_keeps_the_colours_of_its_data(tmp_path, damaged):
    settled = defaults.settle(config_lib.load("vit_jax:segment:backbone=full", []))
    own = np.array([[1, 2, 3], [250, 0, 9]], np.uint8)
    workdir_lib.prepare(tmp_path, settled, ["a", "b"])
    assert dense_run._colours(tmp_path, 2) is None
    workdir_lib.prepare(tmp_path, settled, ["a", "b"], colours=own)
    np.testing.assert_array_equal(dense_run._colours(tmp_path, 2), own)
    legend = colours.legend(["a", "b"], own=own)
    assert (legend[0, 0] == own[0]).all()
    assert (legend[-1, 0] == own[1]).all()
    file = tmp_path / "classes.json"
    file.write_text(json.dumps({"classes": ["a", "b"], "colours": damaged}))
    with pytest.raises(BadInput, match=r"classes\.json: its colours are not three numbers"):
        dense_run._colours(tmp_path, 2)
