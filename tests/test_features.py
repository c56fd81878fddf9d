# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Representations: what the head sees, of every image once, on any mesh, at any batch size."""

import dataclasses
import functools

import numpy as np
import pytest
import tiny
import using
from test_train_step import rules_of

import vit_jax
from vit_jax.errors import RunFailed
from vit_jax.evaluators import features
from vit_jax.models import variants
from vit_jax.step.normalise import normalise

SIDE = 24
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
ONE = (1, 1, 1, 1)


def pictures_of(count):
    return np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)


def reader(images, batch_size, garbage=77):
    """As Pipeline.evaluation, with padding rows that would show."""

    def rows(local):
        for start in range(0, len(images), batch_size):
            part = images[start : start + batch_size]
            mask = np.arange(batch_size) < len(part)
            padding = np.full((batch_size - len(part), *images.shape[1:]), garbage, images.dtype)
            image = np.concatenate([part, padding])
            yield {"image": image[local.start : local.stop], "mask": mask[local.start : local.stop]}

    return rows


@functools.lru_cache
def step_of(cfg, shape):
    return features.make_step(cfg, rules_of(shape), mean=MEAN, std=STD)


@functools.lru_cache
def params_of(cfg):
    return tiny.params(cfg, SIDE, SIDE)


def computed(cfg, images, batch_size=8, shape=ONE, params=None, progress=lambda _: None):
    params = params_of(cfg) if params is None else params
    rows = reader(images, batch_size)
    return features.compute(
        step_of(cfg, shape), params, rows, rules_of(shape), batch_size, progress
    )


def model_of(family):
    return tiny.FAMILIES[family](**({"representation": 10} if family == "vit" else {}))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_head_makes_logits_of_representations(family):
    cfg, images = model_of(family), pictures_of(8)
    params = params_of(cfg)
    found = computed(cfg, images, params=params)
    head = params["head"]
    logits = tiny.logits(cfg, params, normalise(images, MEAN, STD))
    np.testing.assert_allclose(found @ head["kernel"] + head["bias"], logits, rtol=1e-3, atol=1e-3)
    assert found.dtype == np.float32
    assert np.ptp(logits) > 0.1


def test_the_pre_logits_layer_is_part_of_the_representation():
    cfg = model_of("vit")
    assert computed(cfg, pictures_of(4)).shape == (4, 10)
    assert computed(tiny.config(), pictures_of(4)).shape == (4, 32)


def test_weights_without_a_head_do():
    cfg = tiny.config()
    params = params_of(cfg)
    bare = {name: value for name, value in params.items() if name != "head"}
    found = computed(variants.config(**{"variant": "Ti/4"} | tiny.ENCODER | {"classes": 0}),
                     pictures_of(4), params=bare)  # fmt: skip
    np.testing.assert_array_equal(found, computed(cfg, pictures_of(4), params=params))


@pytest.mark.parametrize("count", [1, 8, 31])
@pytest.mark.parametrize("batch_size, shape", [(8, (1, 8, 1, 1)), (16, (1, 2, 2, 2))])
def test_eight_devices_are_one_device_and_every_image_is_there_once(count, batch_size, shape):
    cfg, images = tiny.config(), pictures_of(count)
    expected = computed(cfg, images)
    done = []
    found = computed(cfg, images, batch_size, shape, progress=done.append)
    assert found.shape == (count, 32)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert done[-1] == count
    assert len({row.tobytes() for row in found}) == count


def test_floats_are_taken_as_they_are():
    cfg, images = tiny.config(), pictures_of(5)
    ready = np.asarray(normalise(images, MEAN, STD))
    np.testing.assert_allclose(computed(cfg, ready), computed(cfg, images), rtol=1e-5, atol=1e-6)


def test_the_step_is_compiled_once_for_all_splits():
    cfg, rules = tiny.config(), rules_of(ONE)
    step = features.make_step(cfg, rules, mean=MEAN, std=STD)
    params = tiny.params(cfg, SIDE, SIDE)
    for count in (3, 8, 20):
        features.compute(step, params, reader(pictures_of(count), 8), rules, 8)
    assert step._cache_size() == 1


def test_a_representation_that_is_not_finite_is_said():
    cfg, images = tiny.config(), np.ones((5, SIDE, SIDE, 3), np.float32)
    images[3, 0, 0, 0] = np.nan
    with pytest.raises(RunFailed, match=r"1 of 5 images is not finite, first that of number 3"):
        computed(cfg, images)


def test_padding_that_is_not_finite_does_not_matter():
    images = np.ones((5, SIDE, SIDE, 3), np.float32)
    cfg, rows = tiny.config(), reader(images, 8, garbage=np.nan)
    found = features.compute(step_of(cfg, ONE), params_of(cfg), rows, rules_of(ONE), 8)
    assert found.shape == (5, 32)


# ---------------------------------------------------------------- as a command


def test_representations_of_a_split_are_written_with_labels(digits_run, tmp_path, capsys):
    out = tmp_path / "made" / "features.npz"
    words = ("features", digits_run, "--data=digits", f"--out={out}")
    assert using.command(capsys, *words)[0] == 0
    found = np.load(out)
    assert found["features"].shape == (365, 16)
    assert found["features"].dtype == np.float32
    assert found["classes"].tolist() == [str(k) for k in range(10)]
    digits = using.digits(20)
    assert found["labels"][:20].tolist() == [[label] for _, label in digits]
    assert found["names"][0].startswith("digits/")
    model, params, preprocess = vit_jax.load(digits_run)
    headless = variants.make(dataclasses.replace(model.cfg, classes=0))
    images = preprocess([image for image, _ in digits])
    expected = headless.apply({"params": params}, images, train=False)
    np.testing.assert_allclose(found["features"][:20], expected, atol=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_representations_of_files_are_written_with_their_names(digits_run, tmp_path, capsys, last):
    paths, out = using.digit_files(tmp_path / "images", 3), tmp_path / "features.npz"
    (tmp_path / "images" / "9.png").write_bytes(b"broken")
    words = (tmp_path / "images", f"--out={out}")
    words = ("features", digits_run, *(words[::-1] if last else words))
    code, _, said = using.command(capsys, *words)
    assert code == 2
    assert "1 of 4 images cannot be read" in said
    found = np.load(out)
    assert found["names"].tolist() == paths
    assert found["features"].shape == (3, 16)
    assert set(found) == {"features", "names"}


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "give either images or --data=SOURCE"),
        (["image.png", "--data=digits"], "give either images or --data=SOURCE"),
        (["gone.png"], "gone.png is not there"),
        (["--data=digits", "--split=none"], "'none'"),
        (["--data=none"], "unknown --data 'none'"),
        (["image.png", "--split=test"], "--split belongs to --data=SOURCE; leave it out"),
        (["image.png", "--data_dir=d"], "--data_dir belongs to --data=SOURCE; leave it out"),
        (["--data=digits", "--out=-"], "--out=- is not a path; give one"),
        (["--data=digits", "--image_size=9"], "use 8 or 10 (--image_size)"),
    ],
)
def test_bad_input_of_the_command(digits_run, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, said = using.command(capsys, "features", digits_run, "--out=features.npz", *words)
    assert code == 2
    assert message in said
    assert not list(tmp_path.iterdir())
