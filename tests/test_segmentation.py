# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Segmentation: the objective on every mesh, its figures, joint ops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from PIL import Image
from test_train_step import HALF, KEY, rules_of

from vit_jax import sharding
from vit_jax.build import program
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.data.inspect import colours
from vit_jax.data.ops import chain
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.evaluators import segmentation as evaluator
from vit_jax.models import dense_heads, layers, variants
from vit_jax.step import segmentation, state, train_step
from vit_jax.step.detection import Detection
from vit_jax.step.objective import Network
from vit_jax.step.segmentation import Segmentation

CLASSES = 5  # the last never occurs


def batch(size=8, height=16, width=24, seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.integers(-1, CLASSES - 1, (size, height // 4, width // 4))
    mask = mask.repeat(4, axis=1).repeat(4, axis=2).astype(np.int32)
    mask[2] = -1  # no pixel counts
    noise = rng.integers(0, 50, (size, height, width, 3))
    return {
        "image": (noise + 40 * (mask[..., None] + 1)).clip(0, 255).astype(np.uint8),
        "mask": mask,
        "labels": np.full((size, 1), -1, np.int32),
        "_mask": np.arange(size) != size - 2,
    }


def built(objective, rules=None):
    """The network and the parameters of a small model with the objective's head."""
    cfg = objective.model(tiny.config(pool="gap", depth=2))
    params = tiny.params(cfg, 16, 24)
    model = variants.make(cfg, rules)
    network = Network(
        lambda p, x, **options: model.apply({"params": {k: p[k] for k in params}}, x, **options),
        HALF,
        HALF,
    )
    image = jnp.zeros((1, 16, 24, 3))
    shapes = jax.eval_shape(lambda p: variants.make(cfg).apply({"params": p}, image), params)
    own = tiny.randomised(jax.eval_shape(lambda: objective.parameters(KEY, shapes)), 3)
    return network, {**params, "objective": own}, cfg


@functools.lru_cache
def steps(head, shape, accumulation=1):
    """Losses and gradient norms of two steps, and the sums of an evaluation."""
    width = 0 if head == "linear" else 32
    objective = Segmentation(head=head, levels=2, width=width, classes=CLASSES)
    rules = rules_of(shape)
    network, params, cfg = built(objective, rules)
    tx = optax.sgd(0.01)
    step = train_step.make_train_step(objective, network, tx, accumulation=accumulation)
    axes = sharding.param_axes(params, objective.AXES | variants.axes(cfg))
    abstract = jax.eval_shape(lambda p: state.from_params(p, tx, ema=False), params)
    places = sharding.place(abstract, axes, rules)
    current = jax.jit(lambda p: state.from_params(p, tx, ema=False), out_shardings=places)(params)
    given = jax.device_put(batch(), rules.sharding(("act_batch",), (8,)))
    measured = []
    step = jax.jit(step, out_shardings=(places, rules.replicated))
    for _ in range(2):
        current, found = step(current, given, KEY)
        measured.append([float(found[k]) for k in ("loss", "pixel_accuracy", "grad_norm")])
    sums = jax.jit(functools.partial(objective.eval_sums, network))(current.params, None, given)
    split = any(
        not x.sharding.is_fully_replicated for x in jax.tree.leaves(current.params["objective"])
    )
    return np.array(measured), jax.device_get(sums), split


@pytest.mark.integration
@pytest.mark.parametrize(
    "head, shape, accumulation",
    [
        ("linear", (1, 8, 1, 1), 1),
        pytest.param("mask_transformer", (1, 2, 2, 2), 1, marks=pytest.mark.integration),
        pytest.param("linear", (1, 2, 2, 2), 1, marks=pytest.mark.slow),
        pytest.param("upsampling", (1, 2, 2, 2), 1, marks=pytest.mark.slow),
        pytest.param("mask_transformer", (1, 8, 1, 1), 1, marks=pytest.mark.slow),
        pytest.param("linear", (1, 1, 1, 1), 2, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_losses_and_counts_are_those_of_one_device(head, shape, accumulation):
    expected, sums, _ = steps(head, (1, 1, 1, 1))
    found, again, split = steps(head, shape, accumulation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(again["confusion"], sums["confusion"])
    assert expected[1, 0] < expected[0, 0]
    assert split == (shape[2] > 1)  # fsdp splits the head too


def test_loss_and_figures_are_those_of_numpy():
    objective = Segmentation(classes=CLASSES)
    rng, given = np.random.default_rng(1), batch()
    logits = rng.normal(size=(8, 16, 24, CLASSES)).astype(np.float32)
    loss, right = map(np.asarray, segmentation.loss_and_right(jnp.asarray(logits), given["mask"]))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counts = np.zeros((CLASSES, CLASSES), int)
    for i, mask in enumerate(given["mask"]):
        there = mask >= 0
        own = np.take_along_axis(log_p[i], np.maximum(mask, 0)[..., None], -1)[..., 0][there]
        guess = logits[i].argmax(-1)[there]
        np.testing.assert_allclose(loss[i], -own.mean() if there.any() else 0, rtol=1e-5)
        np.testing.assert_array_equal(right[i][there], guess == mask[there])
        assert not right[i][~there].any()
        if given["_mask"][i]:
            np.add.at(counts, (mask[there], guess), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Segmentation, "logits", lambda *_, **__: jnp.asarray(logits))
        sums = objective.eval_sums(None, None, None, given)
        trained = objective.measured(objective.sums(None, None, None, given, None, KEY), 7.0)
    # Of all pixels, as in an evaluation.
    assert trained["pixel_accuracy"] == pytest.approx(np.trace(counts) / counts.sum())
    assert trained["loss"] == pytest.approx(float(sums["loss"]) / 7)
    np.testing.assert_array_equal(sums["confusion"], counts)
    np.testing.assert_allclose(sums["loss"], np.asarray(loss)[given["_mask"]].sum(), rtol=1e-6)
    assert sums["examples"] == given["_mask"].sum() == 7
    other = rng.integers(0, 9, counts.shape)
    both = counts + other
    ious = [both[k, k] / (both[k].sum() + both[:, k].sum() - both[k, k]) for k in range(CLASSES)]
    total = objective.total(
        [
            {"loss": 2.0, "examples": 4, "confusion": counts},
            {"loss": 7.0, "examples": 5, "confusion": other},
        ]
    )
    assert total["miou"] == pytest.approx(np.mean(ious))
    assert (total["loss"], total["examples"]) == (1.0, 9)


def test_classes_that_never_occur_do_not_lower_the_mean():
    found = segmentation.figures(np.diag([5, 3, 0]))
    assert (found.miou, found.pixel_accuracy, found.mean_accuracy) == (1, 1, 1)
    assert np.isnan(found.iou[2])
    found = segmentation.figures(np.array([[4, 0, 1], [0, 3, 0], [0, 0, 0]]))
    np.testing.assert_allclose(found.iou, [0.8, 1, 0])  # predicted, though it never occurs
    assert segmentation.figures(np.zeros((2, 2), int)).miou == 0


def test_head_sees_maps_of_several_grids():
    """The stages of a BiT, as a run calls it; the coarse one is resized to the fine one."""
    objective = Segmentation(levels=2, classes=CLASSES)
    cfg = objective.model(tiny.bit())
    network = program.network(variants.make(cfg), images_lib.Images((33, 47), 3, HALF, HALF))
    params, image = tiny.shapes(cfg), jax.ShapeDtypeStruct((2, 33, 47, 3), jnp.float32)
    maps = jax.eval_shape(lambda p, x: network.apply(p, x, train=False), params, image)
    assert len({x.shape for x in maps}) == 2
    grid = jax.eval_shape(segmentation.joined, maps)
    assert grid.shape == (*maps[0].shape[:3], sum(x.shape[3] for x in maps))
    coarse = jnp.arange(2.0).reshape(1, 1, 2, 1)
    found = segmentation.joined((jnp.zeros((1, 2, 4, 1)), coarse))
    np.testing.assert_allclose(found[0, 0, :, 1], [0, 0.25, 0.75, 1])


@pytest.mark.parametrize("head", dense_heads.KINDS)
def test_flops_of_the_head_are_those_of_the_compiler(head):
    features, rows, columns = 256, 4, 6
    module = dense_heads.make(head, 50, width=0, layers=2, rate=0.0)
    x = jax.ShapeDtypeStruct((1, rows, columns, features), jnp.float32)
    params = jax.eval_shape(lambda x: module.init(KEY, x, None), x)
    lowered = jax.jit(lambda p, x: module.apply(p, x, None)).lower(params, x)
    counted = 2 * dense_heads.multiply_adds(
        head, 50, width=0, layers=2, positions=rows * columns, features=features
    )
    # The compiler counts norms and GELU too.
    assert 1 <= lowered.compile().cost_analysis()["flops"] / counted < 1.06


def test_flops_of_a_step_have_those_of_the_head():
    """Two stages of a BiT: the head works on the finer grid, with the channels of both."""
    objective = Segmentation(levels=2, classes=CLASSES)
    cfg = objective.model(tiny.bit())
    (h, w, d), (_, _, more) = variants.shapes_of_maps(cfg, 33, 47)
    head = objective.step_flops(cfg, 33, 47) - 3 * cfg.training_flops(33, 47)
    assert head == 6 * h * w * (d + more) * CLASSES


def test_dropout_of_the_mask_transformer_follows_the_key():
    head = dense_heads.make("mask_transformer", 3, width=0, layers=1, rate=0.5)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2, 3, 16)), jnp.float32)
    params, apply = jax.jit(lambda x: head.init(KEY, x, None))(x), jax.jit(head.apply)
    one, again, other = (apply(params, x, jax.random.key(n)) for n in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    assert one.shape == (2, 2, 3, 3)


def test_dropout_reaches_the_weights_of_attention(monkeypatch):
    for module in (dense_heads, layers):
        monkeypatch.setattr(module, "dropout", lambda x, *_: x)
    head = dense_heads.make("mask_transformer", 3, width=0, layers=1, rate=0.5)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 3, 8)), jnp.float32)
    params, apply = jax.jit(lambda x: head.init(KEY, x, None))(x), jax.jit(head.apply)
    one, other = (apply(params, x, jax.random.key(n)) for n in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    "given, part",
    [
        ("head='conv'", "linear"),
        ("levels=0", "levels"),
        ("dropout=1", "dropout"),
        ("scale=0.5", "scale"),
        ("levels=20", "levels=20.* has 12 levels"),
        ("levels=True", "levels=True; give"),
        ("dropout='a'", "dropout='a'; give"),
        ("head='mask_transformer', scale='a'", "scale='a'; give"),
        ("width=8", "width=8 has no use with head='linear'"),
        ("layers=1", "layers=1 has no use"),
        ("dropout=0.1", "dropout=0.1 has no use"),
        ("head='upsampling', layers=1", "layers=1 has no use"),
        ("head='upsampling', dropout=0.1", "dropout=0.1 has no use"),
    ],
)
def test_arguments_that_cannot_be_used(given, part):
    from vit_jax.build import run as build

    config = config_lib.load(
        "vit_jax:segment",
        [f"--config.objective=segmentation({given})", "--config.model.variant=Ti/16"],
    )
    with pytest.raises(BadInput, match=part):
        build.check(config)


@pytest.mark.parametrize("kind, name", [(Segmentation, "segmentation"), (Detection, "detection")])
def test_classes_are_those_of_the_data(kind, name):
    assert kind().for_classes(3).for_classes(3).classes == 3
    with pytest.raises(BadInput, match=rf"^{name}\(classes=3\): the data has 5 classes"):
        kind(classes=3).for_classes(5)


@pytest.mark.parametrize(
    "dataset, size, scale, largest",
    [("ade20k", 512, 1, 2.0), ("cityscapes", 768, 1024 / 768, 2048 / 768),
     ("voc", 480, 520 / 480, 1040 / 480)],
)  # fmt: skip
def test_recipe_trains_and_measures_as_segmenter(dataset, size, scale, largest):
    """The numbers are those of im_size and crop_size in the authors' segm/config.yml."""
    from vit_jax.build import objectives

    model = "L/16" if dataset == "cityscapes" else "B/16"
    spec = f"vit_jax:segment:dataset={dataset},model={model},head=mask_transformer"
    config = config_lib.load(spec, [])
    assert (config.data.image_size, config.data.val_percent) == (size, 0)
    assert [*config.evals] == [config.evals["test"].split] == ["test"]
    ops = chain.parse("ops", config.data.train_ops, size)
    assert (ops[1].smallest, ops[1].largest) == pytest.approx((largest / 4, largest), abs=1e-4)
    objective = objectives.make(config, variants.of(config.model, 150))
    assert objective.scale == pytest.approx(scale, abs=1e-4)
    published = {"ade20k": 0.485, "cityscapes": 0.791, "voc": 0.0}[dataset]
    wanted = ("test/windows_miou", published) if published else ("", 0)
    assert (config.expected.metric, config.expected.value) == wanted
    for other in (",size=224", ",levels=4", ",backbone=frozen"):
        assert config_lib.load(spec + other, []).expected.metric == ""


@pytest.mark.parametrize(
    "arguments, published",
    [("ade20k,model=Ti/16,head=mask_transformer", 0.381),
     ("ade20k,model=B/8", 0.495),
     ("ade20k,model=L/16,head=mask_transformer,size=640", 0.518),
     ("ade20k,model=L/16,head=mask_transformer", 0),  # published at 640 alone
     ("ade20k,model=B/16", 0),  # published with DeiT's weights alone
     ("cityscapes,model=B/16,head=mask_transformer", 0)],
)  # fmt: skip
def test_published_results_are_those_of_segmenter(arguments, published):
    """The table of the README of rstrudel/segmenter, one scale (SS)."""
    expected = config_lib.load(f"vit_jax:segment:dataset={arguments}", []).expected
    assert expected.value == published
    size = "640 x 640" if "640" in arguments else "512 x 512"
    assert (f"in sliding windows of {size} pixels" in expected.source) == bool(published)


# --- joint ops ---


CHAIN = "scale_jitter((12, 20), smallest=0.4, largest=1.6{})|flip_lr"


@pytest.mark.parametrize(
    "ops",
    [CHAIN.format(""), CHAIN.format(", covers=True"), "resize_inside((12, 20))|pad((12, 20))"],
)
@pytest.mark.parametrize("sides", [(30, 18), (24, 60)])
def test_masks_move_with_their_image(ops, sides):
    """The image shows its mask, as 60 times the class; filled-up pixels are of no class."""
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 3, (3, 2)).repeat(-(-sides[0] // 3), 0).repeat(-(-sides[1] // 2), 1)
    mask = np.ascontiguousarray(mask[: sides[0], : sides[1]], np.int32)
    image = np.repeat((60 * mask)[..., None], 3, -1).astype(np.uint8)
    parsed = chain.parse("ops", ops, (12, 20))
    process = tf.function(chain.apply_to_fields(parsed), autograph=False)
    seen, exact = set(), list[np.ndarray]()
    for number in range(6):
        seed = tf.constant([0, number], tf.int64)
        fields = process({"image": tf.constant(image), "mask": tf.constant(mask)}, seed)
        assert fields["image"].shape == (12, 20, 3)
        pixels, labels = fields["image"].numpy()[..., 0].astype(int), fields["mask"].numpy()
        void = labels < 0
        assert (pixels[void] == 128).mean() > 0.9 if void.any() else True
        near = evaluator.boundary(labels)  # of other classes, within a pixel
        exact.append(np.abs(pixels - 60 * labels)[~void & ~near] <= 6)
        seen.add(labels.tobytes())
    assert len(seen) > 1 or "jitter" not in ops
    assert np.concatenate(exact).mean() > 0.9


@pytest.mark.parametrize(
    "ops",
    ["scale_jitter((5, 8), smallest=1.8, largest=1.8)", "resize_inside((9, 13))|pad((9, 13))"],
)
def test_masks_take_the_pixel_at_the_centre(ops):
    """At a third of the size, that is the middle one of three."""
    mask = np.arange(27 * 36, dtype=np.int32).reshape(27, 36)
    parsed = chain.parse("ops", ops, (5, 8))
    process = tf.function(chain.apply_to_fields(parsed), autograph=False)
    image, begins = tf.zeros((27, 36, 3), tf.uint8), set()
    for number in range(6):
        seed = tf.constant([0, number], tf.int64)
        found = process({"image": image, "mask": tf.constant(mask)}, seed)["mask"].numpy()
        row, column = divmod(int(found[0, 0]), 36)
        wanted = mask[row::3, column::3][: found.shape[0], : (found[0] >= 0).sum()]
        assert (row % 3, column % 3) == (1, 1)
        np.testing.assert_array_equal(found[:, : wanted.shape[1]], wanted)
        begins.add((row, column))
    assert len(begins) > 2 or "jitter" not in ops


# --- figures of evaluations ---


def test_boundaries_are_those_of_erosion():
    from scipy import ndimage

    mask = np.random.default_rng(0).integers(-1, 3, (6, 8)).repeat(20, 0).repeat(20, 1)
    reach = round(0.02 * np.hypot(*mask.shape))
    found = evaluator.boundary(mask)
    for k in range(3):
        same = (mask == k) | (mask < 0)  # void is no boundary
        inner = ndimage.binary_erosion(same, np.ones((3, 3)), reach, border_value=0)
        np.testing.assert_array_equal(found & (mask == k), (mask == k) & ~inner)


def test_boundary_iou_is_one_for_the_same_mask_and_less_for_a_shifted_one():
    mask = np.random.default_rng(0).integers(0, 3, (6, 8)).repeat(20, 0).repeat(20, 1)
    pixels = evaluator.Pixels(4)
    assert pixels.add(mask, mask) == 1
    np.testing.assert_array_equal(pixels.boundary_iou, [1, 1, 1, np.nan])
    shifted = evaluator.Pixels(4)
    shifted.add(mask, np.roll(mask, 3, axis=1))
    assert (shifted.boundary_iou[:3] < shifted.figures.iou[:3]).all()


def test_void_counts_nowhere():
    mask = np.full((20, 20), -1)
    mask[:10] = 0
    pixels = evaluator.Pixels(2)
    pixels.add(mask, np.where(mask < 0, 1, 0))
    np.testing.assert_array_equal(pixels.counts_YY, [[200, 0], [0, 0]])
    assert pixels.boundary_iou[0] == 1
    assert pixels.either_Y[1] == 0


def test_index_png_has_classes_and_their_colours():
    import io

    mask = np.random.default_rng(0).integers(0, 40, (9, 7))
    palette = colours.palette(40)
    picture = Image.open(io.BytesIO(colours.index_png(mask, palette)))
    np.testing.assert_array_equal(np.asarray(picture), mask)
    np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), palette[mask])
    many = Image.open(io.BytesIO(colours.index_png(mask + 300, colours.palette(400))))
    np.testing.assert_array_equal(np.asarray(many), mask + 300)
    assert len({tuple(c) for c in colours.palette(150).tolist()}) == 150
