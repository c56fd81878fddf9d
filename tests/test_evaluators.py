# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Frozen features: k-NN, the linear probe, and features written to a file."""

import dataclasses
import functools

import model_commands
import numpy as np
import pytest
import tiny
from sklearn.linear_model import LogisticRegression
from test_fewshot import drawn
from test_train_step import rules_of

import vit_jax
from vit_jax.errors import RunFailed
from vit_jax.evaluators import features, probe
from vit_jax.evaluators.fewshot import whitening
from vit_jax.evaluators.knn import knn
from vit_jax.models import variants
from vit_jax.step.state import normalise

# --- k nearest neighbours, against votes counted one by one ---


def counted(x, labels, test, classes, neighbours=20, temperature=0.07):
    """Loops over images and neighbours, float64."""
    found = []
    for query in np.float64(test):
        cosines = [query @ k / np.linalg.norm(query) / np.linalg.norm(k) for k in np.float64(x)]
        votes = np.zeros(classes)
        for i in sorted(range(len(x)), key=lambda i: -cosines[i])[:neighbours]:
            votes[labels[i]] += np.exp(cosines[i] / temperature)
        found.append(votes.argmax())
    return np.array(found)


@pytest.mark.parametrize("count, width", [(101, 7), (19, 7), (20, 7), (21, 33), (3, 2)])
def test_classes_are_those_of_counted_votes(count, width):
    x, labels, test = drawn(count, width)
    found = knn(x, labels, test, 5)
    assert (found == counted(x, labels, test, 5)).all()
    assert len(set(found)) > 1


@pytest.mark.parametrize("options", [{"neighbours": 1}, {"neighbours": 7}, {"temperature": 10.0}])
def test_neighbours_and_temperature_count(options):
    x, labels, test = drawn(101, 7)
    found = knn(x, labels, test, 5, **options)
    assert (found == counted(x, labels, test, 5, **options)).all()
    assert (found != knn(x, labels, test, 5)).any()


def test_length_of_a_representation_does_not_matter():
    x, labels, test = drawn(60, 7)
    longer = x * np.linspace(0.5, 100, 60, dtype=np.float32)[:, None]
    assert (knn(longer, labels, 40 * test, 5) == knn(x, labels, test, 5)).all()


def test_more_images_than_are_scored_at_once():
    x, labels, test = drawn(60, 7, scored=2053)
    found = knn(x, labels, test, 5)
    assert found.shape == (2053,)
    assert (found[-60:] == knn(x, labels, test[-60:], 5)).all()


def test_a_representation_of_zeros_is_no_error():
    x, labels, test = drawn(60, 7)
    x[3], test[4] = 0, 0
    assert set(knn(x, labels, test, 5)) <= set(range(5))


# --- the linear probe, against scikit-learn's logistic regression ---


@pytest.mark.parametrize("count, width", [(60, 7), (20, 33)])
@pytest.mark.parametrize("strength", [0.1, 1.0, 100.0])
def test_fit_is_that_of_scikit_learn(count, width, strength):
    x, labels, test = drawn(count, width)
    mean, std = whitening(x)
    x, test = (((v - mean) / std).astype(np.float32) for v in (x, test))
    kernel, bias = probe.fit(x, labels, 5, strength)
    theirs = LogisticRegression(C=1 / strength, tol=1e-8, max_iter=10_000).fit(x, labels)
    logits = test @ kernel + bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(
        odds / odds.sum(1, keepdims=True), theirs.predict_proba(test), rtol=0, atol=4e-3
    )


def test_a_fifth_of_each_class_is_held_out_unless_it_is_alone():
    labels = np.array([0] * 11 + [1] * 2 + [2] + [4] * 5)
    held = probe.held_out(labels)
    assert [int(held[labels == c].sum()) for c in range(5)] == [3, 1, 0, 0, 1]


def test_strength_is_the_best_on_held_out_images(monkeypatch):
    tried = []

    def fit(x, labels, classes, strength):
        tried.append((strength, len(x)))
        right = strength in (10.0, 100.0, 1000.0)
        return np.eye(2, dtype=np.float32), np.float32([0, 0] if right else [9, 0])

    monkeypatch.setattr(probe, "fit", fit)
    labels = np.array([0, 1] * 10)
    assert probe.choose_strength(np.eye(2, dtype=np.float32)[labels], labels, 2) == 1000.0
    assert [s for s, _ in tried] == [*probe.STRENGTHS, 10.0, 1000.0]
    assert {n for _, n in tried} == {16}


def test_without_two_images_of_a_class_the_strength_is_one():
    assert probe.choose_strength(np.eye(3, dtype=np.float32), np.arange(3), 3) == 1.0


@pytest.mark.integration
def test_probe_learns_and_scale_and_shift_of_features_do_not_matter(monkeypatch):
    monkeypatch.setattr(probe, "MOST_STEPS", 50)
    x, labels, _ = drawn(200, 8)
    test, truth = x[150:], labels[150:]
    found = probe.probe(x[:150], labels[:150], test, 5)
    assert np.mean(found == truth) > 0.55  # chance is 0.2
    moved = probe.probe(50 * x[:150] + 7, labels[:150], 50 * test + 7, 5)
    assert np.mean(found == moved) > 0.95


# --- features: what the head sees, of every image once, on any mesh, at any batch size ---


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
            yield {
                "image": image[local.start : local.stop],
                "_mask": mask[local.start : local.stop],
            }

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


@pytest.mark.integration
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
    with pytest.raises(RunFailed, match=r"1 of 5 images is not finite, first for image number 3"):
        computed(cfg, images)


def test_padding_that_is_not_finite_does_not_matter():
    images = np.ones((5, SIDE, SIDE, 3), np.float32)
    cfg, rows = tiny.config(), reader(images, 8, garbage=np.nan)
    found = features.compute(step_of(cfg, ONE), params_of(cfg), rows, rules_of(ONE), 8)
    assert found.shape == (5, 32)


# --- as a command ---


def test_representations_of_a_split_are_written_with_labels(digits_run, tmp_path, capsys):
    out = tmp_path / "made" / "features.npz"
    words = ("features", digits_run, "--data=digits", f"--out={out}")
    assert model_commands.command(capsys, *words)[0] == 0
    found = np.load(out)
    assert found["features"].shape == (365, 16)
    assert found["features"].dtype == np.float32
    assert found["classes"].tolist() == [str(k) for k in range(10)]
    digits = model_commands.digits(20)
    assert found["labels"][:20].tolist() == [[label] for _, label in digits]
    assert found["names"][0].startswith("digits/")
    model, params, preprocess = vit_jax.load(digits_run)
    headless = variants.make(dataclasses.replace(model.cfg, classes=0))
    images = preprocess([image for image, _ in digits])
    expected = model_commands.logits(headless, params, images)
    np.testing.assert_allclose(found["features"][:20], expected, atol=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_representations_of_files_are_written_with_their_names(digits_run, tmp_path, capsys, last):
    paths, out = model_commands.digit_files(tmp_path / "images", 3), tmp_path / "features.npz"
    (tmp_path / "images" / "9.png").write_bytes(b"broken")
    words = (tmp_path / "images", f"--out={out}")
    words = ("features", digits_run, *(words[::-1] if last else words))
    code, _, said = model_commands.command(capsys, *words)
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
        (["gone.png"], "gone.png does not exist"),
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
    code, _, said = model_commands.command(
        capsys, "features", digits_run, "--out=features.npz", *words
    )
    assert code == 2
    assert message in said
    assert not list(tmp_path.iterdir())
