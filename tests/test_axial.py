# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Axial ViT and AxialResNet: against plain numpy, in every form, trained, saved and loaded."""

import dataclasses
import json
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import numpy_resnet
import numpy_vit
import pytest
import tiny
from test_e2e import readme_commands
from test_flops import compiled_flops
from test_meshes import step_on
from test_train_step import KEY, batch
from test_variants import TABLE, kept_bytes

import vit_jax
from vit_jax import sharding, tree
from vit_jax.cli import main
from vit_jax.errors import BadInput
from vit_jax.experiments.tables import cells, filling
from vit_jax.models import variants

SIZES = {"width": 32, "depth": 2, "mlp": 48, "heads": 4, "classes": 7}


def vit(**changes):
    return variants.config(**{"variant": "AxialViT-custom/4"} | SIZES | changes)


def resnet(**changes):
    return variants.config(**{"variant": "AxialResNet-S", "stages": (2, 1), "classes": 7} | changes)


FAMILIES = {"vit": (vit, 8, 12), "resnet": (resnet, 20, 24)}  # rows and columns of pixels
EVERY = pytest.mark.parametrize("family", FAMILIES)


def params_and_images(family, count=3, **changes):
    make, *size = FAMILIES[family]
    cfg = make(**changes)
    return cfg, tiny.params(cfg, *size), tiny.images(count, *size)


# --- against numpy ---


def rows_then_columns(weights, images, cfg):
    """The axial ViT, one line of patches after the other."""
    w = numpy_vit.as_float64(weights)
    x = numpy_vit.linear(
        numpy_vit.patches(images.astype(np.float64), cfg.patch), numpy_vit.flat(w["embedding"])
    )
    rows, columns = images.shape[1] // cfg.patch, images.shape[2] // cfg.patch
    if cfg.posemb != "none":
        x = x + numpy_vit._positions(w, cfg.posemb, (rows, columns), cfg.width)[1]
    places = np.arange(rows * columns).reshape(rows, columns)
    for i in range(cfg.depth):
        for name, lines in (("rows", places), ("columns", places.T)):
            one = w[f"block_{i}"][name]
            normed = numpy_vit.layer_norm(x, one["attn_norm"], cfg.ln_epsilon)
            attended = np.empty_like(x)
            for line in lines:
                attended[:, line] = numpy_vit._attention(
                    normed[:, line], normed[:, line], one["attn"], []
                )
            x = x + attended
            normed = numpy_vit.layer_norm(x, one["mlp_norm"], cfg.ln_epsilon)
            x = x + numpy_vit.mlp(normed, one["mlp"], cfg.gelu)
    y = numpy_vit.layer_norm(x, w["norm"], cfg.ln_epsilon).mean(axis=1)
    if "pre_logits" in w:
        y = np.tanh(numpy_vit.linear(y, w["pre_logits"]))
    return numpy_vit.linear(y, w["head"])


@pytest.mark.parametrize(
    "changes",
    [
        {"representation": 9},
        {"posemb": "learned2d", "scan": False, "gelu": "erf"},
        {"posemb": "sincos2d"},
        {"posemb": "none"},
    ],
)
def test_axial_vit_equals_numpy(changes):
    cfg, params, images = params_and_images("vit", **changes)
    expected = rows_then_columns(tree.unstack_blocks(params), images, cfg)
    assert expected.std() > 0.1
    np.testing.assert_allclose(tiny.logits(cfg, params, images), expected, rtol=1e-4, atol=1e-4)


def norm_of_line(x, w, epsilon):
    return numpy_resnet.group_norm(x[None, :, None], w, epsilon)[0, :, 0]


def attention_of_line(x, w, heads, epsilon):
    """Equation 4 of arXiv:2003.07853 for one line [positions, channels], term by term."""
    length, channels = x.shape
    size = channels // heads
    qkv = norm_of_line(x @ w["qkv"]["kernel"], w["qkv_norm"], epsilon)
    result = np.zeros((length, channels))
    for head in range(heads):
        of_head = qkv[:, head * 2 * size : (head + 1) * 2 * size]
        q, k, v = of_head[:, : size // 2], of_head[:, size // 2 : size], of_head[:, size:]
        for o in range(length):
            offsets = w["relative"][[p - o + length - 1 for p in range(length)]]
            rq, rk, rv = offsets[:, : size // 2], offsets[:, size // 2 : size], offsets[:, size:]
            scores = np.array([q[o] @ k[p] + q[o] @ rq[p] + k[p] @ rk[p] for p in range(length)])
            share = np.exp(scores - scores.max())
            share /= share.sum()
            result[o, head * size : (head + 1) * size] = share @ (v + rv)
    return norm_of_line(result, w["out_norm"], epsilon)


def mean_of_four(x):
    """The mean of what there is of 2 x 2 positions."""
    rows, columns = (-(-side // 2) for side in x.shape[1:3])
    parts = [
        x[:, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].mean(axis=(1, 2))
        for r in range(rows)
        for c in range(columns)
    ]
    return np.stack(parts, axis=1).reshape(len(x), rows, columns, -1)


def axial_resnet(weights, images, cfg):
    w, c = numpy_vit.as_float64(weights), cfg.resnet
    net, epsilon = w["backbone"], c.gn_epsilon
    x = numpy_resnet.std_conv(images.astype(np.float64), net["conv_root"], 2, "SAME", c)
    x = numpy_resnet.relu(numpy_resnet.group_norm(x, net["norm_root"], epsilon))
    x = numpy_resnet.max_pool(x, "SAME", -np.inf)
    for stride, unit in numpy_resnet._units(net):
        y = numpy_resnet.std_conv(x, unit["conv1"], 1, "SAME", c)
        y = numpy_resnet.relu(numpy_resnet.group_norm(y, unit["norm1"], epsilon))
        for axis, name in ((1, "height"), (2, "width")):
            y = np.moveaxis(y, axis, -2)  # each [positions, channels] at the end is a line
            lines = [
                attention_of_line(line, unit[name], c.heads, epsilon)
                for line in y.reshape(-1, *y.shape[-2:])
            ]
            y = np.moveaxis(np.reshape(lines, y.shape), -2, axis)
        y = numpy_resnet.relu(mean_of_four(y) if stride == 2 else y)
        y = numpy_resnet.std_conv(y, unit["conv3"], 1, "SAME", c)
        y = numpy_resnet.group_norm(y, unit["norm3"], epsilon)
        if "conv_proj" in unit:
            x = numpy_resnet.std_conv(x, unit["conv_proj"], stride, "SAME", c)
            x = numpy_resnet.group_norm(x, unit["norm_proj"], epsilon)
        x = numpy_resnet.relu(x + y)
    return numpy_vit.linear(x.mean(axis=(1, 2)), w["head"])


@pytest.mark.integration
@pytest.mark.parametrize("variant", ["AxialResNet-S", "AxialResNet50"])
def test_axial_resnet_equals_numpy(variant):
    cfg, params, images = params_and_images("resnet", variant=variant, root_width=32)
    expected = axial_resnet(params, images, cfg)
    assert expected.std() > 0.1
    # Rounding through 50 layers: 0.5e-4 with jax 0.10, and 1.04e-4 with jax 0.12, whose products
    # and convolutions have the same bits. It is 4: means over positions hide larger numbers.
    error = 2e-4 * expected.std()
    np.testing.assert_allclose(tiny.logits(cfg, params, images), expected, rtol=0, atol=error)


# --- sizes ---


@pytest.mark.parametrize("variant, exaflops, rel", [
    ("AxialViT-B/16", 426.8, 2e-3), ("AxialViT-B/32", 107.6, 2e-3),
    ("AxialResNet50", 51.57, 2e-3),  # products alone; the figure has 55.6
])  # fmt: skip
def test_pre_training_costs_what_figure_13_says(variant, exaflops, rel):
    cfg = variants.config(variant=variant, classes=1000)
    cost = 3 * variants.forward_flops(cfg, 224, 224) * 303e6 * 7
    assert cost == pytest.approx(exaflops * 1e18, rel=rel)


@pytest.mark.slow
def test_xla_counts_for_axial_resnet50_what_the_table_says():
    """With norms, softmax and ReLU; 2 % below the figure."""
    cfg = variants.config(variant="AxialResNet50", classes=1000)
    cost = 3 * compiled_flops(cfg, 224) * 303e6 * 7 / 1e18
    assert cost == pytest.approx(54.5, abs=0.2)


@pytest.mark.parametrize("variant, patches", [("B/16", 196), ("B/32", 49)])
def test_a_class_token_would_cost_more_than_figure_13_says(variant, patches):
    """The evidence for its absence: one more token in the pairs is further off."""
    printed = {"B/16": 426.8, "B/32": 107.6}[variant]
    cfg = variants.config(variant=f"AxialViT-{variant}", classes=1000)
    ours = 3 * variants.forward_flops(cfg, 224, 224) * 303e6 * 7 / 1e18
    with_token = ours * (patches + 1) / patches
    assert abs(ours / printed - 1) < 1e-3 < 4e-3 < with_token / printed - 1


def test_parameters_are_those_of_two_vits_and_of_the_public_code_of_axial_resnets():
    """The public code is axial50s of csrhddlam/axial-deeplab, counted by hand: 11,586,216."""
    axial = tree.size(tiny.shapes(variants.config(variant="AxialViT-B/16", classes=1000), 224, 224))
    plain = tiny.shapes(variants.config(variant="B/16", classes=1000, pool="gap"), 224, 224)
    assert axial - tree.size(plain) == tree.size(plain["blocks"])
    cfg = variants.config(variant="AxialResNet-S", classes=1000)
    ours = tiny.shapes(cfg, 224, 224)
    inside = 2 * sum(n * 64 * 2**s for s, n in enumerate((3, 4, 6, 3)))  # of all attention
    more = 2 * inside + 32 * 2 * 24  # its norms of values and offsets apart, and of scores
    assert tree.size(ours) + more == 11_586_216
    assert variants.forward_flops(cfg, 224, 224) == pytest.approx(2 * 2.8e9, rel=0.02)


def test_figure_13_says_which_exaflops_ours_are():
    filled = filling.fill(cells.find("figure13"), None)
    found = {one.cell.labels: one for one in filled.cells}
    assert len(found) == 18
    verdicts = {model: one.status for (what, model), one in found.items() if what == "exaFLOPs"}
    assert verdicts.pop("AxialResNet50") == filling.OFF
    assert len(verdicts) == 5
    assert {*verdicts.values()} == {filling.WITHIN}
    shots = {model: one for (what, model), one in found.items() if what == "ImageNet 5-shot"}
    assert {one.status for one in shots.values()} == {filling.PRIVATE}
    assert shots["AxialViT-B/16"].cell.paper == pytest.approx(65.79)
    known = {model for model, one in shots.items() if one.cell.wants[0].known}
    assert known == {"ViT-B/16", "ViT-B/32", "ResNet50"}
    assert not found["images/s a core", "AxialResNet50"].cell.wants


@EVERY
def test_flops_equal_those_of_the_compiler(family):
    wide = {"vit": {"width": 256, "mlp": 512}, "resnet": {"root_width": 128}}[family]
    cfg = FAMILIES[family][0](**wide)
    ratio = compiled_flops(cfg, 64) / variants.forward_flops(cfg, 64, 64)
    assert 1.0 <= ratio < 1.12  # norms, ReLU and softmax are not counted


@pytest.mark.parametrize(
    "family, size, grid", [("vit", (8, 12), (2, 3)), ("resnet", (20, 26), (3, 4))]
)
def test_the_model_says_what_it_is(family, size, grid):
    cfg = FAMILIES[family][0]()
    assert variants.grid(cfg, *size) == grid
    cfg.check_image_size(*size)
    described = json.loads(json.dumps(variants.describe("x", cfg)))
    assert described["family"] == f"axial_{family}"
    assert described["heads"] == {"vit": 4, "resnet": 8}[family]
    assert "filters" in " ".join(cfg.lacking_figures())
    assert not cfg.attends
    assert cfg.pixel_filters(jax.tree.map(jnp.asarray, tiny.params(cfg, *size)))[0].ndim == 4


# --- forms ---


@pytest.mark.integration
def test_scan_loop_and_unrolled_layers_are_the_same_also_with_dropout():
    cfg, params, images = params_and_images(
        "vit", dropout=0.2, drop_path=0.5, attention_dropout=0.1
    )
    key = jax.random.key(3)
    expected = tiny.logits(cfg, params, images, train=True, key=key)
    assert np.abs(expected - tiny.logits(cfg, params, images)).max() > 0.01
    unrolled = dataclasses.replace(cfg, unrolled=True)
    found = tiny.logits(unrolled, params, images, train=True, key=key)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    looped = tiny.logits(
        dataclasses.replace(cfg, scan=False), tree.unstack_blocks(params), images, True, key
    )
    np.testing.assert_allclose(looped, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.integration
def test_stochastic_depth_drops_the_layers_of_whole_images():
    """An image without its layers has the same logits whatever the others draw."""
    cfg, params, images = params_and_images("vit", 1, drop_path=0.9, depth=1)
    images = np.repeat(images, 64, axis=0)
    found = tiny.logits(dataclasses.replace(cfg, depth=1), params, images, True, jax.random.key(0))
    assert len(np.unique(found.round(3), axis=0)) == 1  # the first block drops nothing
    cfg, params, _ = params_and_images("vit", 1, drop_path=0.5)
    found = tiny.logits(cfg, params, images, True, jax.random.key(0))
    assert 8 <= len(np.unique(found.round(3), axis=0)) <= 16  # four branches kept or dropped


@pytest.mark.integration
@EVERY
def test_remat_keeps_what_it_says_and_changes_nothing(family):
    named = {"vit": "query,mlp_up", "resnet": "conv,qkv"}[family]
    few = {"depth": 1} if family == "vit" else {"stages": (1,)}
    every = [FAMILIES[family][0](remat=r, **few) for r in ("none", "dots", named, "full")]
    size = FAMILIES[family][1:]

    def gradients(cfg):
        model, images = variants.make(cfg), tiny.images(2, *size)

        def loss(params):
            return jnp.sum(model.apply({"params": params}, images, train=True) ** 2)

        return jax.jit(jax.grad(loss))(tiny.params(cfg, *size))

    with jax.default_matmul_precision("highest"):
        plain, full = gradients(every[0]), gradients(every[2])
    for expected, found in zip(jax.tree.leaves(plain), jax.tree.leaves(full), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())

    none, dots, some, least = (kept_bytes(cfg, size) for cfg in every)
    assert least < some <= dots < 0.7 * none
    with pytest.raises(BadInput, match=r"model\.remat"):
        FAMILIES[family][0](remat="token")


@pytest.mark.integration
@EVERY
def test_feature_maps_are_those_of_the_levels(family):
    cfg, params, images = params_and_images(family)
    model = variants.make(cfg.for_maps((1, 2)))
    with jax.default_matmul_precision("highest"):
        first, last = jax.jit(model.apply)({"params": params}, images)
    headless = dataclasses.replace(cfg, classes=0)
    np.testing.assert_allclose(
        last.mean(axis=(1, 2)), tiny.logits(headless, params, images), rtol=1e-4, atol=1e-4
    )
    if family == "vit":
        looped = tree.unstack_blocks(params)
        less = dataclasses.replace(headless, depth=1, scan=False)
    else:
        looped = params
        stages = cfg.resnet.stages[:1]
        less = dataclasses.replace(headless, resnet=dataclasses.replace(cfg.resnet, stages=stages))
    np.testing.assert_allclose(
        first.mean(axis=(1, 2)), tiny.logits(less, looped, images), rtol=1e-4, atol=1e-4
    )
    assert first.shape[1:] == {"vit": (2, 3, 32), "resnet": (5, 6, 128)}[family]


@pytest.mark.integration
@EVERY
def test_bfloat16_stays_near_float32(family):
    cfg, params, images = params_and_images(family, 8)
    rough = dataclasses.replace(cfg, dtype="bfloat16")
    expected, found = tiny.logits(cfg, params, images), tiny.logits(rough, params, images)
    assert found.dtype == np.float32
    assert 1e-4 < np.abs(found - expected).max() / expected.std() < 0.2


@EVERY
def test_logits_on_a_mesh_equal_those_of_one_device(family):
    cfg, params, images = params_and_images(family, 8)
    mesh = sharding.make_mesh(replica=1, data=2, fsdp=2, tensor=2)
    rules = sharding.Rules(mesh, TABLE)
    axes = sharding.param_axes(params, variants.axes(cfg))
    placed = tree.map_with_path(
        lambda path, x: jax.device_put(x, rules.sharding(axes[path], x.shape, path)), params
    )
    given = jax.device_put(images, rules.sharding(("act_batch", None, None, None), images.shape))
    with jax.default_matmul_precision("highest"):
        found = tiny.forward(cfg, rules=rules)(placed, given, None)
    split = sum(not x.sharding.is_fully_replicated for x in jax.tree.leaves(placed))
    assert split > 0.7 * len(jax.tree.leaves(placed))
    expected = tiny.logits(cfg, params, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.integration
@EVERY
def test_steps_of_training_lower_the_loss(family):
    cfg = FAMILIES[family][0](**({"stages": (1,)} if family == "resnet" else {"depth": 1}))
    _, step, current, over = step_on(cfg, (1, 1, 1, 1))
    given = jax.device_put(batch(16, 0, 24, 24, cfg.classes), over)
    losses = []
    for _ in range(4):
        current, measured = step(current, given, KEY)
        losses.append(float(measured["loss"]))
    assert losses[-1] < 0.8 * losses[0]


# --- settings ---


@pytest.mark.parametrize(
    "make, settings, message",
    [
        (vit, {"posemb": "relative"}, "not relative"),
        (vit, {"pool": "map"}, "AxialViT-custom/4 takes the mean over patches"),
        (vit, {"posemb_at": "every"}, "has no posemb_at"),
        (vit, {"heads": 5}, "5 heads do not divide the width 32"),
        (vit, {"variant": "AxialViT-X/16"}, "AxialViT-X/16"),
        (vit, {"variant": "AxialViT-B/0"}, "AxialViT-B/0"),
        (resnet, {"width": 64}, "AxialResNet-S has no width; leave it out"),
        (resnet, {"root_width": 40}, "40 is not a multiple of the 32 groups"),
        (resnet, {"variant": "AxialResNet-X"}, "AxialResNet-X"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_message(make, settings, message):
    with pytest.raises(BadInput, match=message):
        make(**settings)


def test_names_are_registered_before_those_of_a_vit():
    for variant in ("AxialViT-B/16", "AxialViT-B/32", "AxialResNet50", "AxialResNet-S"):
        assert variant in variants.NAMED
        family = variants.family(variants.config(variant=variant, classes=3))
        assert family == ("axial_vit" if "/" in variant else "axial_resnet")


# --- commands ---


RESNET_ALONE = " --config.model.width=0 --config.model.depth=0 --config.model.mlp=0"
RESNET_ALONE += " --config.model.heads=0 --config.model.pool=token"


@pytest.mark.integration
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_is_saved_loaded_evaluated_and_refused_as_npz(tmp_path, capsys, family):
    (command,) = (c for c in readme_commands(pages=("docs/models.md",)) if "Axial" in c)
    if family == "resnet":
        variant = "AxialResNet-S --config.model.stages=(1,) --config.model.stem=small"
        command = command.replace("AxialViT-Ti/1", variant) + RESNET_ALONE
    run = str(tmp_path / "run")
    short = ["--config.length=3 steps", "--config.schedule.warmup=0", f"--workdir={run}"]
    assert main.main([*shlex.split(command)[1:], *short]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    model, params, _ = vit_jax.load(run)
    assert tree.size(params) == tree.size(variants.shapes(model.cfg, 8, 8))
    assert main.main(["evaluate", run, f"--out={tmp_path}/evaluation"]) == 0
    found = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert found["top1"] == pytest.approx(results["test"]["top1"])
    assert main.main(["inspect", run]) == 0
    assert "axial_" in capsys.readouterr().out
    assert main.main(["export", run, "--format=npz", f"--out={tmp_path}/a.npz"]) == 2
    assert "npz" in capsys.readouterr().err
