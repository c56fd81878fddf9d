# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masked autoencoders: what the encoder sees, the decoder, the loss, one step, and whole runs."""

import dataclasses
import functools
import re
import shlex
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from test_flops import compiled_flops
from test_masked import CUBE, EIGHT, SLOW, images, patch
from test_self_supervision import fates
from test_train import ROOT, logged
from test_train_step import HALF, rules_of

from vit_jax import sharding, tree
from vit_jax.build import program
from vit_jax.build import run as build_run
from vit_jax.cli.main import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import mae, variants, vit
from vit_jax.preflight.plan import estimate
from vit_jax.step import state, train_step
from vit_jax.step.mae import MAE, normalised
from vit_jax.step.objective import Network
from vit_jax.weights import loading

SMALL = MAE(masked=0.6, depth=2, width=16, heads=2)  # 6 patches, of which 2 are visible
KEYS = jax.random.split(jax.random.key(7), 4)
RECIPE = str(ROOT / "configs" / "mae.py")


def small(**changes):
    cfg = SMALL.model(tiny.config(**{"depth": 2} | changes))
    return cfg, variants.make(cfg), tiny.params(cfg)


def given(batch=4):
    return images(batch, tiny.PATCH, rows=2, columns=3)


@functools.lru_cache
def predict():
    """Jitted (parameters, images, keys) -> predictions of `small`."""
    model = small()[1]
    return jax.jit(lambda params, x, keys: model.apply({"params": params}, x, keys_B=keys))


def network(model):
    return Network(lambda p, x, **options: model.apply({"params": p}, x, **options), HALF, HALF)


# --- the model ---


@pytest.mark.parametrize("masked, patches, count", [
    (0.75, 196, 49), (0.75, 256, 64), (0.6, 6, 2), (0.9, 196, 19), (0.99, 16, 1), (0.01, 16, 15),
])  # fmt: skip
def test_the_paper_sees_a_quarter_and_at_least_one_patch_is_on_either_side(masked, patches, count):
    assert mae.visible(masked, patches) == count


def test_every_patch_is_seen_as_often():
    ranks = np.asarray(mae.ranks(jax.random.split(jax.random.key(0), 4000), 16))
    np.testing.assert_array_equal(np.sort(ranks[:50], axis=1), np.tile(np.arange(16), (50, 1)))
    assert np.ptp((ranks < 4).mean(0)) < 0.06  # 0.25 each, standard error 0.007


@pytest.mark.parametrize("changes", [{}, {"pool": "gap", "registers": 2}])
def test_the_encoder_is_a_vit_on_an_image_of_only_the_visible_patches(changes):
    """With the rows of the position embeddings that belong to these patches."""
    cfg = tiny.config(depth=2, **changes)
    params, shown = tiny.params(cfg.for_images(0)), given()[:1]
    encode = jax.jit(functools.partial(vit.ViT(cfg.for_images(0)).apply, {"params": params}))
    found = encode(shown / 255.0, visible_BK=jnp.array([[4, 1]]))
    row = np.concatenate([patch(shown[0], place, tiny.PATCH, 3) for place in (4, 1)], axis=1)
    before = params["posemb"].shape[1] - 6
    rows = np.concatenate([np.arange(before), before + np.array([4, 1])])
    params = params | {"posemb": params["posemb"][:, rows]}
    expected = jax.jit(vit.ViT(cfg.for_maps((2,))).apply)({"params": params}, row[None] / 255.0)
    assert found.shape == (1, cfg.prefix + 2, 32)
    np.testing.assert_allclose(found[:, cfg.prefix :], expected[0][:, 0], rtol=1e-4, atol=1e-5)


def test_the_decoder_puts_tokens_at_their_places_and_the_mask_token_elsewhere():
    """Its blocks do nothing here, so each place shows its own token."""
    cfg, _, params = small()
    own = params["objective"]
    for i in range(2):
        for name in ("attn/out", "mlp/down"):
            part, layer = name.split("/")
            own[f"block_{i}"][part][layer] = jax.tree.map(
                np.zeros_like, own[f"block_{i}"][part][layer]
            )
    shown = given() / 255.0
    found = predict()(params, shown, KEYS)
    ranks = np.asarray(mae.ranks(KEYS, 6))
    encoder = {name: x for name, x in params.items() if name != "objective"}
    encode = jax.jit(functools.partial(vit.ViT(cfg.for_images(0)).apply, {"params": encoder}))
    tokens = np.asarray(encode(shown, visible_BK=np.argsort(ranks, axis=1)[:, :2]))
    positions = np.asarray(mae.position_table(cfg.decoder(), None, (2, 3)))[0, 1:]
    kernel, bias = own["projection"]["kernel"], own["projection"]["bias"]
    expected = np.tile(own["mask_token"][0], (4, 6, 1))
    for b, rank in np.argwhere(np.ones((4, 2))):
        expected[b, ranks[b] == rank] = tokens[b, 1 + rank] @ kernel + bias
    x = expected + positions
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    x = x * own["norm"]["scale"] + own["norm"]["bias"]
    expected = x @ own["patch_head"]["kernel"] + own["patch_head"]["bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_masked_pixels_have_no_influence_and_visible_ones_on_every_patch():
    params, shown, ranks = small()[2], given(), np.asarray(mae.ranks(KEYS, 6))
    before = np.asarray(predict()(params, shown / 255.0, KEYS))
    for rank, same in ((2, True), (0, False)):
        other = shown.copy()
        for image, place in zip(other, np.argwhere(ranks == rank)[:, 1], strict=True):
            patch(image, place, tiny.PATCH, 3)[...] ^= 255
        after = np.asarray(predict()(params, other / 255.0, KEYS))
        assert np.array_equal(after, before) == same
    assert np.all(np.abs(after - before).max(axis=-1) > 1e-5)


@pytest.mark.integration
def test_tokens_and_the_decoders_ends_start_as_published():
    """Normal of 0.02 for both tokens; Xavier, as in every linear layer, at the decoder's ends."""
    model = variants.make(MAE(depth=1, width=128, heads=4).model(tiny.config(depth=1, width=512)))
    started = jax.jit(model.init)(jax.random.key(0), given() / 255.0)["params"]
    own = started["objective"]
    assert np.std(started["cls"]) == pytest.approx(0.02, rel=0.15)
    assert np.std(own["mask_token"]) == pytest.approx(0.02, rel=0.3)
    for name, rows, columns in (("projection", 512, 128), ("patch_head", 128, 3 * tiny.PATCH**2)):
        bound = (6 / (rows + columns)) ** 0.5
        assert own[name]["kernel"].shape == (rows, columns)
        assert np.abs(own[name]["kernel"]).max() == pytest.approx(bound, rel=0.02)
        assert not own[name]["bias"].any()


def test_blocks_one_by_one_predict_the_same():
    cfg = small()[0]
    stacked = variants.make(dataclasses.replace(cfg, scan=True))
    shapes = jax.eval_shape(stacked.init, jax.random.key(0), given())["params"]
    assert "blocks" in shapes
    one_by_one = variants.make(dataclasses.replace(cfg, scan=True, unrolled=True))
    rng = np.random.default_rng(3)
    own = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / 4, shapes)
    found, expected = (
        jax.jit(model.apply)({"params": own}, given() / 255.0, keys_B=KEYS)
        for model in (one_by_one, stacked)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_flops_by_hand():
    """L/16: 196 patches, of which 50 tokens are encoded; 197 tokens are decoded."""
    cfg = MAE().model(variants.config(variant="L/16", classes=1000))
    encoded = 24 * (50 * (4 * 1024**2 + 2 * 1024 * 4096) + 2 * 50**2 * 1024)
    decoded = 8 * (197 * (4 * 512**2 + 2 * 512 * 2048) + 2 * 197**2 * 512)
    linear = 196 * 768 * 1024 + 50 * 1024 * 512 + 196 * 512 * 768
    assert cfg.forward_flops(224, 224) == 2 * (encoded + decoded + linear)
    assert MAE().step_flops(cfg, 224, 224) == 6 * (encoded + decoded + linear)
    grey = -2 * 2 * 196 * 256 * (1024 + 512)  # two channels fewer, read and predicted
    assert variants.forward_flops(cfg, 224, 224, 1) - cfg.forward_flops(224, 224) == grey


def test_the_page_has_the_shares_of_a_step_of_masked_patch_prediction():
    text = (ROOT / "docs" / "mae.md").read_text()
    rows = re.findall(
        r"^\| (\d) layers? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE
    )
    assert [int(depth) for depth, *_ in rows] == [8, 4, 1]
    for depth, *shares in rows:
        for variant, share in zip(("B/16", "L/16", "H/14"), shares, strict=True):
            cfg = variants.config(variant=variant, classes=0)
            whole = variants.forward_flops(cfg.for_patches(512), 224, 224)
            light = variants.forward_flops(MAE(depth=int(depth)).model(cfg), 224, 224)
            assert light / whole == pytest.approx(float(share), abs=0.005)


def test_flops_equal_those_of_the_compiler():
    base = variants.config(variant="Ti/8", width=256, depth=2, mlp=768, heads=4, classes=5)
    cfg = MAE(depth=1, width=128, heads=2).model(base)
    assert 1.0 <= compiled_flops(cfg, 64) / cfg.forward_flops(64, 64) < 1.04


@pytest.mark.parametrize("changes, words", [
    ({"pool": "map"}, "model.pool=map"), ({"posemb": "relative"}, "model.posemb=relative"),
    ({"posemb_at": "every"}, "model.posemb_at=every"), ({"rope": "axial"}, "model.rope=axial"),
])  # fmt: skip
def test_encoders_that_cannot_take_some_patches_are_refused(changes, words):
    with pytest.raises(BadInput, match=f"{words}: .*leave it out"):
        SMALL.model(tiny.config(**changes))


def test_other_families_and_impossible_numbers_are_refused():
    for cfg in (tiny.bit(), tiny.hybrid(), tiny.mixer()):
        with pytest.raises(BadInput, match=r"takes a ViT .* use B/16, L/16 or H/14"):
            SMALL.model(cfg)
    wrong: list[dict[str, Any]] = [{"masked": 1.0}, {"masked": 0.0}, {"depth": 0}]
    for changes in [*wrong, {"width": 500}, {"heads": 1.5}]:
        with pytest.raises(ValueError, match=r"give|are whole"):
            MAE(**changes)


# --- the loss ---


def test_the_loss_is_the_mean_over_masked_patches_of_images_that_count():
    _, model, params = small()
    shown, mask = given(), np.array([True, False, True, True])
    batch = {"image": jnp.asarray(shown), "_mask": jnp.asarray(mask), "key": KEYS}
    sums = jax.jit(functools.partial(SMALL.sums, network(model), drawn=None, key=None))
    found = sums(params, None, batch)
    pixels = (shown / 127.5 - 1).astype(np.float32)
    predicted = np.asarray(predict()(params, pixels, KEYS), np.float64)
    ranks, total = np.asarray(mae.ranks(KEYS, 6)), 0.0
    for b in np.flatnonzero(mask):
        for place in np.flatnonzero(ranks[b] >= 2):
            target = patch(pixels[b].astype(np.float64), place, tiny.PATCH, 3).reshape(-1)
            target = (target - target.mean()) / np.sqrt(target.var(ddof=1) + 1e-6)
            total += np.mean((predicted[b, place] - target) ** 2) / 4
    assert float(found["loss"]) == pytest.approx(total, rel=1e-5)


def test_a_flat_patch_has_a_finite_target():
    found = jax.jit(normalised)(np.full((1, 2, 12), 0.3, np.float32))
    np.testing.assert_allclose(found, 0, atol=1e-3)


# --- a step ---


@functools.lru_cache
def steps(shape=(1, 1, 1, 1), accumulation=1, remat="none"):
    """Loss and gradient norm of three steps, and the parameters after them."""
    rules, tx = rules_of(shape), optax.sgd(0.1)
    objective = dataclasses.replace(SMALL, depth=1)
    cfg = objective.model(tiny.config(depth=1, remat=remat))
    params, model = tiny.params(cfg), variants.make(cfg, rules)
    create = functools.partial(state.from_params, tx=tx, ema=False)
    abstract = jax.eval_shape(create, params)
    places = sharding.place(abstract, sharding.param_axes(params, variants.axes(cfg)), rules)
    current = jax.jit(create, out_shardings=places)(params)
    step = jax.jit(
        train_step.make_train_step(objective, network(model), tx, accumulation=accumulation),
        out_shardings=(places, rules.replicated),
    )
    batch = {"image": given(16), "_mask": np.arange(16) % 5 != 1}
    batch, found = jax.device_put(batch, rules.sharding(("act_batch",), (16,))), []
    for _ in range(3):
        current, measured = step(current, batch, jax.random.key(0))
        found.append([float(measured[name]) for name in ("loss", "grad_norm")])
    return np.array(found), jax.device_get(current.params)


@pytest.mark.integration
@pytest.mark.parametrize("shape, accumulation, remat", [
    (CUBE, 2, "full"), pytest.param(EIGHT, 1, "dots", marks=SLOW),
])  # fmt: skip
def test_mesh_micro_batches_and_remat_leave_the_step(shape, accumulation, remat):
    expected, _ = steps()
    found, _ = steps(shape, accumulation, remat)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.ptp(expected[:, 0]) > 1e-3


def test_gradients_reach_encoder_and_decoder_and_every_step_draws_anew():
    cfg = dataclasses.replace(SMALL, depth=1).model(tiny.config(depth=1))
    before, after = tiny.params(cfg), steps()[1]
    for path, leaf in tree.leaves_with_paths(before):
        if not path.endswith("key/bias"):  # softmax does not see it
            assert not np.array_equal(leaf, functools.reduce(dict.get, path.split("/"), after)), (
                path
            )
    drawn = [SMALL.draw({"_mask": np.ones(2)}, jax.random.key(i))[0]["key"] for i in range(2)]
    assert len({tuple(r) for keys in drawn for r in np.asarray(mae.ranks(keys, 64))}) == 4


@pytest.mark.integration
def test_an_image_is_evaluated_the_same_way_in_any_batch():
    _, model, params = small()
    evaluate = jax.jit(functools.partial(SMALL.eval_sums, network(model)))
    shown, totals = given(8), []
    for size in (8, 4):
        parts = [shown[i : i + size] for i in range(0, 8, size)]
        sums = [evaluate(params, None, {"image": x, "_mask": np.ones(size, bool)}) for x in parts]
        totals.append([sum(float(s[name]) for s in sums) for name in ("loss", "examples")])
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
    assert totals[0][1] == 8


# --- recipe, plan and runs ---

TINY = (
    "--config.batch_size=8", "--config.model.variant=Ti/4", "--config.model.width=32",
    "--config.model.depth=1", "--config.model.mlp=32", "--config.model.heads=2",
    "--config.model.dtype=float32", "--config.data.image_size=16", "--config.accumulation=1",
)  # fmt: skip


def made(objective):
    config = config_lib.load(f"{RECIPE}:standin=true", [*TINY, f"--config.objective={objective}"])
    build_run.check(config)
    return program.make(config, classes=10, examples=100)


def test_a_plan_counts_the_decoder_and_what_it_keeps():
    light, heavy = made("mae(depth=1,width=16,heads=2)"), made("mae(depth=3,width=16,heads=2)")
    block = 4 * 16 * 16 + 8 * 16 * 16 + (4 + 4 + 1 + 4) * 16  # kernels; biases and norms
    more = estimate.state_bytes(heavy) - estimate.state_bytes(light)
    assert more == 2 * block * 4 * 3  # parameters and two moments, float32
    assert estimate.saved_bytes(heavy) > 1.5 * estimate.saved_bytes(light)
    assert estimate.step_flops(heavy) > 1.5 * estimate.step_flops(light)


@pytest.mark.parametrize("model, epochs", [("B/16", 800), ("L/16", 1600), ("H/14", 800)])
def test_recipe_has_the_numbers_of_the_papers_table_8(model, epochs):
    config = config_lib.load(f"{RECIPE}:model={model},epochs={epochs}")
    assert (config.batch_size, config.schedule.lr, config.length) == (
        4096,
        2.4e-3,
        f"{epochs} epochs",
    )
    assert (config.optimizer.adamw.b1, config.optimizer.adamw.b2) == (0.9, 0.95)
    assert (config.optimizer.weight_decay, config.schedule.warmup) == (0.05, "40 epochs")
    build_run.check(config)


def test_the_small_recipe_is_for_any_images_and_any_machine():
    config = config_lib.load(f"{RECIPE}:small=true", ["--config.data.source=folder:images"])
    build_run.check(config)
    assert config.data.image_size == 32
    made = program.make(config, classes=2, examples=1000)
    assert sum(x.size for x in jax.tree.leaves(made.abstract.params)) < 1e6
    assert (config.recipe.protocol, made.steps.total) == ("small", 20 * 1000 // 128)


@pytest.mark.parametrize("model, epochs, lr, layer_decay, drop_path", [
    ("B/16", 100, 2e-3, 0.65, 0.1), ("L/16", 50, 4e-3, 0.75, 0.2), ("H/14", 50, 4e-3, 0.75, 0.3),
])  # fmt: skip
def test_fine_tuning_has_the_numbers_of_the_published_commands(
    model, epochs, lr, layer_decay, drop_path
):
    recipe = str(ROOT / "configs" / "mae_finetune.py")
    config = config_lib.load(f"{recipe}:model={model},init=runs/mae")
    build_run.check(config)
    assert (config.init, config.length, config.batch_size) == (
        "runs/mae", f"{epochs} epochs", 1024,
    )  # fmt: skip
    assert config.schedule.lr == pytest.approx(lr)
    assert (config.optimizer.layer_decay, config.model.drop_path) == (layer_decay, drop_path)
    assert (config.optimizer.weight_decay, config.schedule.warmup) == (0.05, "5 epochs")
    assert (config.mixup.alpha, config.mixup.cutmix, config.loss.label_smoothing) == (0.8, 1.0, 0.1)
    published = {"B/16": 0.836, "L/16": 0.859, "H/14": 0.869}  # Table 3
    assert (config.expected.metric, config.expected.value) == ("test/top1", published[model])
    # Every parameter but those of the head and of nothing else comes from the encoder.
    cfg = variants.of(config.model, 10)
    encoder = variants.config(variant=model, posemb="sincos2d", classes=0)
    ends = [
        {path for path, _ in tree.leaves_with_paths(variants.shapes(one, 224, 224))}
        for one in (cfg, MAE().model(encoder))
    ]
    assert ends[0] - ends[1] == {"head/kernel", "head/bias"}
    with pytest.raises(BadInput, match="model of the paper"):
        config_lib.load(f"{recipe}:model=S/16")


@pytest.mark.parametrize("key, value", [
    ("loss.label_smoothing", "0.1"), ("mixup.alpha", "0.2"), ("masked.target", "mean"),
    ("model.representation", "8"),
])  # fmt: skip
def test_options_of_classes_are_refused(key, value):
    with pytest.raises(BadInput, match=f"{key}.*has no use with mae"):
        build_run.check(config_lib.load(RECIPE, [f"--config.{key}={value}"]))


@pytest.mark.integration
def test_commands_of_the_page_and_a_branch_that_is_the_run_bit_for_bit(
    tmp_path, monkeypatch, image_folder, caplog
):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^vit_jax (.*)$", (ROOT / "docs" / "mae.md").read_text(), re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "fewshot", "train"]
    short = ["--config.length=6 steps", "--config.batch_size=8", "--config.schedule.warmup=0",
             "--config.report.writers=()", "--config.report.every=1 steps"]  # fmt: skip
    own = [*TINY, "--config.objective=mae(depth=2,width=16,heads=2)", "--config.evals.val.every=0",
           "--config.checkpoint.every=3 steps"]  # fmt: skip
    for number, command in enumerate(commands):
        words = shlex.split(command.replace("/path/to/images", str(image_folder)))
        words = [w.replace("configs/", f"{ROOT}/configs/") for w in words]
        options = [*short, f"--config.report.page={number == 0}"] if words[0] == "train" else ()
        assert main([*words, *options, *(own if number == 0 else ())]) == 0, command
    page = (tmp_path / "runs" / "mae" / "report.html").read_text()
    assert "mae(depth=2,width=16,heads=2)" in page
    assert "top-1" not in page
    fate = fates(caplog.text)
    assert {n.partition("/")[0] for n, f in fate.items() if f == "unused"} == {"objective"}
    assert {n for n, f in fate.items() if f == "re-initialised"} == {"head/kernel", "head/bias"}
    assert fate["embedding/kernel"] == fate["block_0/mlp/up/kernel"] == "loaded"
    words = shlex.split(commands[0].replace("/path/to/images", str(image_folder)))
    words = [
        w.replace("configs/", f"{ROOT}/configs/").replace("runs/mae", "runs/branch") for w in words
    ]
    short.append("--config.report.page=false")
    assert main([*words, *short, *own, "--branch=runs/mae@3"]) == 0
    a, b = (loading.read_weights(f"runs/{name}@6").flat for name in ("mae", "branch"))
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name])
    rows = logged(tmp_path / "runs" / "mae")
    assert rows[6, "train/loss"] != rows[1, "train/loss"]
