# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FlexiViT: resizing by pseudo-inverse, patch sizes drawn in training, weights in and out."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from test_meshes import SIDE, step_on
from test_train_step import KEY, batch

from vit_jax.cli import main
from vit_jax.errors import BadInput
from vit_jax.models import flexi, variants
from vit_jax.weights import fitting

SIZES = {"width": 16, "depth": 2, "mlp": 24, "heads": 2, "classes": 7}


def config(patch=8, patches=(4, 8, 16), **changes):
    settings = {"variant": f"Flexi-custom/{patch}", "patches": patches} | SIZES | changes
    return variants.config(**settings)


def bilinear(old, new):
    """The matrix [new pixels, old pixels] that resizes an image, pixel by pixel."""
    rows, columns = old
    resized = np.zeros((*new, rows, columns))
    for y in range(new[0]):
        for x in range(new[1]):
            top = min(max((y + 0.5) * rows / new[0] - 0.5, 0), rows - 1)
            left = min(max((x + 0.5) * columns / new[1] - 0.5, 0), columns - 1)
            for i in {int(top), min(int(top) + 1, rows - 1)}:
                for j in {int(left), min(int(left) + 1, columns - 1)}:
                    resized[y, x, i, j] = (1 - abs(top - i)) * (1 - abs(left - j))
    return resized.reshape(new[0] * new[1], rows * columns)


@pytest.mark.parametrize("old, new", [((8, 6), (5, 12)), ((12, 12), (4, 4)), ((5, 8), (8, 16))])
def test_kernel_is_that_of_the_pseudo_inverse_of_bilinear_resizing(old, new):
    kernel = np.random.default_rng(0).normal(size=(*old, 2, 3))
    inverse = np.linalg.pinv(bilinear(old, new).T)
    expected = (inverse @ kernel.reshape(old[0] * old[1], -1)).reshape(*new, 2, 3)
    np.testing.assert_allclose(flexi.resize_kernel(kernel, new), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.integration
def test_patches_enlarged_alike_give_the_same_logits():
    cfg, patch = config(32, (32,), depth=1), 40
    params, images_BHWC = tiny.params(cfg, 224, 224), tiny.images(2, 224, 224)
    larger = bilinear((32, 1), (patch, 1))
    enlarged = np.einsum(
        "yh,xw,bihjwc->biyjxc", larger, larger, images_BHWC.reshape(2, 7, 32, 7, 32, 3)
    ).reshape(2, 7 * patch, 7 * patch, 3)
    plain = tiny.logits(cfg.at(32), params, images_BHWC)
    assert plain.std() > 0.1
    resized = tiny.logits(cfg.at_patch(patch), params, enlarged.astype(np.float32))
    np.testing.assert_allclose(resized, plain, rtol=1e-5, atol=1e-5)


def test_positions_are_resized_bilinearly_to_any_grid_and_the_class_row_stays():
    table = np.random.default_rng(0).normal(size=(1, 50, 4)).astype(np.float32)
    embedding = {"kernel": np.zeros((32, 32, 3, 4), np.float32)}
    resized = flexi.resize({"posemb": table, "embedding": embedding}, 4, (36, 56))["posemb"]
    expected = bilinear((7, 7), (9, 14)) @ table[0, 1:]
    np.testing.assert_allclose(resized[0, 1:], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(resized[0, :1], table[0, :1])


@pytest.mark.integration
def test_each_key_draws_one_size_and_all_are_drawn_equally_often():
    cfg = config(posemb="none", depth=1)
    params, images = tiny.params(cfg), jnp.asarray(tiny.images(1, 32, 32))
    model = variants.make(cfg)
    keys = jax.random.split(jax.random.key(0), 600)
    drawn = jax.jit(jax.vmap(lambda key: model.apply({"params": params}, images, train=True,
                                                     key=key)))(keys)  # fmt: skip
    alone = np.stack([tiny.logits(cfg.at_patch(patch), params, images) for patch in cfg.patches])
    distance = np.abs(np.asarray(drawn)[:, None] - alone[None]).max(axis=(2, 3))
    assert distance.min(axis=1).max() < 1e-4 < 0.1 < np.sort(distance, axis=1)[:, 1].min()
    np.testing.assert_allclose(np.bincount(distance.argmin(axis=1)) / 600, 1 / 3, atol=0.06)


@pytest.mark.integration
def test_gradients_are_those_of_the_vit_that_was_drawn():
    """With dropout, and through the resizing; the backward pass is written by hand."""
    cfg = config(8, (8, 16), dropout=0.3, drop_path=0.2, pool="gap")
    params, images = tiny.params(cfg), jnp.asarray(tiny.images(3, 32, 32))
    model, seen = variants.make(cfg), set()

    def loss(params, images, key):
        return jnp.sum(model.apply({"params": params}, images, train=True, key=key) ** 2)

    def expected_loss(params, images, key, patch):
        plain = variants.make(cfg.at(patch))
        resized = {"params": flexi.resize(params, patch, (32, 32))}
        return jnp.sum(plain.apply(resized, images, train=True, key=key) ** 2)

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))
    expected = jax.jit(jax.grad(expected_loss, argnums=(0, 1)), static_argnums=3)
    for seed in range(5):
        size_key, key = jax.random.split(jax.random.key(seed))
        patch = cfg.patches[jax.random.randint(size_key, (), 0, 2)]
        seen.add(patch)
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(
                got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max()
            ),
            gradients(params, images, jax.random.key(seed)),
            expected(params, images, key, patch),
        )
    assert seen == {8, 16}


@pytest.mark.integration
def test_losses_of_three_steps_on_a_mesh_are_those_of_one_device():
    """Each of the two micro-batches draws a size of its own."""
    cfg = config(8, (8, 12), width=32, depth=1, heads=4, drop_path=0.1)
    losses = {}
    for shape in ((1, 1, 1, 1), (1, 2, 2, 2)):
        _, step, current, over = step_on(cfg, shape, accumulation=2)
        for seed in range(3):
            images = jax.device_put(batch(16, seed, SIDE, SIDE, cfg.classes), over)
            current, measured = step(current, images, KEY)
            losses.setdefault(shape, []).append(float(measured["loss"]))
    one, many = losses.values()
    np.testing.assert_allclose(many, one, rtol=1e-5)


def test_flops_are_the_mean_over_the_sizes_of_training():
    cfg = config()
    each = [cfg.at_patch(patch).forward_flops(48, 32) for patch in cfg.patches]
    assert each[1] == variants.config(**{"variant": "custom/8"} | SIZES).forward_flops(48, 32)
    assert cfg.forward_flops(48, 32) == pytest.approx(np.mean(each))


def test_weights_of_a_vit_fit_a_flexivit():
    plain = variants.config(**{"variant": "custom/8"} | SIZES)
    flat = {n: np.asarray(x) for n, x in _flat(tiny.params(plain, 32, 32)).items()}
    kernel = flat["embedding/kernel"]
    target = variants.shapes(config(), 32, 32)
    fitted = fitting.fit(flat, target, old=(4, 4), new=(7, 7), resizes_kernel=True)
    resized = {name for name, fate, _ in fitted.fate if fate == "resized"}
    assert resized == {"embedding/kernel", "posemb"}
    patch = np.random.default_rng(0).normal(size=(8, 8))
    larger = bilinear((8, 8), (32, 32)) @ patch.ravel()
    tokens = np.tensordot(patch, kernel, ((0, 1), (0, 1)))
    taken = fitted.params["embedding"]["kernel"].reshape(1024, 3, -1)
    np.testing.assert_allclose(np.tensordot(larger, taken, (0, 0)), tokens, rtol=1e-4, atol=1e-5)


def _flat(params):
    from vit_jax.weights import convert

    return convert.flatten(params)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"patches": (8, 8)}, r"patches=\(8, 8\): name each size once"),
        ({"posemb": "relative"}, "posemb=learned1d or none"),
        ({"posemb_at": "every"}, "not learned1d at every"),
        ({"variant": "B/16"}, "B/16 has no patches; leave it out"),
        ({"variant": "Flexi-X/16"}, "Flexi-X/16"),
        ({"variant": "Flexi-custom/0"}, "Flexi-custom/0"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_message(settings, message):
    with pytest.raises(BadInput, match=message):
        config(**settings)


def test_every_patch_size_must_tile_the_image():
    config(8, (4, 6)).check_image_size(24, 48)
    with pytest.raises(BadInput, match=r"side of 16 do not tile .* 48 x 72 .* multiple of 32 "):
        config(8, (4, 16)).check_image_size(48, 72)
    with pytest.raises(BadInput, match=r"side of 8 do not tile .* at least 2 x 2; .* of 16 "):
        config(8, (4, 8)).check_image_size(8, 8)


@pytest.mark.parametrize("variant", ["Mixer-B/16", "BiT-R50x1", "R50+B/16"])
def test_other_models_have_one_patch_size(variant):
    with pytest.raises(BadInput, match=r"patch=8: .* fixed patch size"):
        variants.config(variant=variant, classes=2).at_patch(8)


@pytest.mark.integration
def test_a_run_is_continued_evaluated_exported_and_fine_tuned(tmp_path, capsys):
    run, whole, tuned = (str(tmp_path / name) for name in ("run", "whole", "tuned"))
    settings = ["--config.model.variant=Flexi-Ti/2", "--config.model.patches=(1,2,4)"]
    settings += ["--config.batch_size=32", "--config.schedule.warmup=0", "--config.length=12 steps"]
    settings += ["--config.checkpoint.every=6 steps", "--config.checkpoint.keep_last=3"]
    train = ["train", "--config=configs/quickstart.py", *settings]
    assert main.main([*train, f"--workdir={whole}"]) == 0
    assert (tmp_path / "whole" / "report.html").exists()
    branch = f"--branch={whole}@6"
    assert main.main(["train", f"--config={whole}/config.yaml", branch, f"--workdir={run}"]) == 0
    results = [json.loads((tmp_path / n / "results.json").read_text()) for n in ("run", "whole")]
    assert results[0]["test"] == results[1]["test"]
    for patch in (1, 4):
        out = tmp_path / f"patch{patch}"
        assert main.main(["evaluate", whole, f"--patch={patch}", f"--out={out}"]) == 0
        assert (out / "evaluation.json").exists()
    assert main.main(["export", whole, "--format=npz", "--patch=4", f"--out={tmp_path}/a.npz"]) == 0
    of_plain = ["--data=digits", "--split=train", "--patch=2", f"--out={tmp_path / 'plain'}"]
    assert main.main(["evaluate", f"{tmp_path}/a.npz", *of_plain]) == 0
    assert main.main(["inspect", whole]) == 0
    assert "patches" in capsys.readouterr().out
    assert main.main(["evaluate", whole, "--patch=3", f"--out={out}"]) == 2
    assert main.main(["evaluate", whole, "--patch=-1", f"--out={out}"]) == 2
    assert main.main([*train[:2], "--config.model.variant=auto", f"--config.init={whole}",
                      "--config.length=2 steps", "--config.schedule.warmup=0",
                      f"--workdir={tuned}"]) == 0  # fmt: skip
