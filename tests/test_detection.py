# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Detection: targets, losses and boxes by hand, and the objective on every mesh."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from test_train_step import HALF, KEY, rules_of

from vit_jax import sharding
from vit_jax.build import program
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import fcos, pyramid, variants
from vit_jax.step import average_precision, boxes, dense_boxes, state, train_step
from vit_jax.step.detection import Detection

CLASSES = 3  # the last never occurs
SIZE = (64, 96)
STRIDES = (8, 16, 32)
PLACES = fcos.places((4, 6), STRIDES, 16)


def random_boxes(rng, count, size=SIZE, missing=0):
    """Boxes of every size, from a pixel on; the last rows are missing."""
    corners = rng.uniform(0, size[::-1], (count, 2))
    ends = np.minimum(corners + np.exp(rng.uniform(0, math.log(80), (count, 2))), size[::-1])
    found = np.concatenate([corners, ends], axis=1).astype(np.float32)
    classes = rng.integers(0, CLASSES - 1, count).astype(np.int32)
    if missing:
        found[-missing:], classes[-missing:] = 0, -1
    return found, classes


def batch(size=8, most=6, seed=0):
    """Images with up to six boxes; one without any, one padding row."""
    rng = np.random.default_rng(seed)
    rows = [random_boxes(rng, most, missing=most if i == 2 else i % 3) for i in range(size)]
    image = rng.integers(0, 255, (size, *SIZE, 3)).astype(np.uint8)
    return {
        "image": image,
        "boxes": np.stack([row[0] for row in rows]),
        "box_classes": np.stack([row[1] for row in rows]),
        "labels": np.full((size, 1), -1, np.int32),
        "_mask": np.arange(size) != size - 2,
    }


def iou(a, b):
    """Of two boxes, in plain Python."""
    wide, tall = (max(0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    return wide * tall / max(sum(areas) - wide * tall, 1e-12)


# --- geometry ---


def test_overlaps_of_boxes_are_by_hand():
    a, b = np.array([0.0, 0, 4, 2]), np.array([2.0, 1, 6, 5])
    assert boxes.iou(a, b) == pytest.approx(2 / 22)
    assert boxes.giou(a, b) == pytest.approx(2 / 22 - (30 - 22) / 30)
    assert boxes.iou(a, np.zeros(4)) == boxes.iou(np.zeros(4), np.zeros(4)) == 0
    far = np.array([10.0, 0, 14, 2])
    assert boxes.giou(a, far) == pytest.approx(-12 / 28)
    rng = np.random.default_rng(0)
    many, _ = random_boxes(rng, 20)
    found = boxes.iou(many[:, None], many[None])
    np.testing.assert_allclose(found, [[iou(x, y) for y in many] for x in many], atol=1e-5)


def test_suppression_is_greedy():
    rng = np.random.default_rng(1)
    many, classes = random_boxes(rng, 60, size=(40, 40))
    many[:, 2:] = many[:, :2] + rng.uniform(15, 25, (60, 2))
    scores = rng.uniform(0.1, 1, 60).astype(np.float32)
    scores[::7] = 0  # no candidates
    left, wanted = [i for i in np.argsort(-scores) if scores[i] > 0], []
    while left:
        best = left.pop(0)
        wanted.append(best)
        left = [i for i in left if classes[i] != classes[best] or iou(many[i], many[best]) <= 0.4]
    arrays = tuple(map(jnp.asarray, (many, scores, classes)))
    kept, remaining = boxes.suppressed(*arrays, most=50, overlap=0.4)
    assert 10 < len(wanted) < 45
    np.testing.assert_array_equal(kept[: len(wanted)], wanted)
    np.testing.assert_array_equal(remaining[: len(wanted)], scores[wanted])
    assert (np.asarray(remaining[len(wanted) :]) == 0).all()
    few, _ = boxes.suppressed(*arrays, most=5, overlap=0.4)
    np.testing.assert_array_equal(few, wanted[:5])


def test_ap50_is_that_of_pycocotools(capsys):
    coco = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    rng = np.random.default_rng(2)
    images, annotations, results = [], [], []
    for number in range(30):
        true, classes = random_boxes(rng, 8, missing=number % 4)
        kept = rng.permutation(8)[:6]
        sides = np.tile(true[kept, 2:] - true[kept, :2], 2)
        guesses = true[kept] + sides * rng.normal(0, 0.12, (6, 4)).astype(np.float32)
        guesses[:, 2:] = np.maximum(guesses[:, 2:], guesses[:, :2] + 1)
        of_guess = np.where(rng.random(6) < 0.2, rng.integers(0, CLASSES, 6), classes[kept])
        scores = np.sort(rng.choice(np.linspace(0.1, 1, 12), 6))[::-1]
        of_guess = np.maximum(of_guess, 0)
        images.append(average_precision.Image(guesses, scores, of_guess, true, classes))
        for box, k in zip(true[classes >= 0], classes[classes >= 0], strict=True):
            sides = box[2:] - box[:2]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": number, "category_id": int(k),
                 "bbox": [*map(float, [*box[:2], *sides])], "area": float(sides.prod()),
                 "iscrowd": 0}
            )  # fmt: skip
        results += [
            {"image_id": number, "category_id": int(k), "score": float(score),
             "bbox": [*map(float, [*box[:2], *(box[2:] - box[:2])])]}
            for box, score, k in zip(guesses, scores, of_guess, strict=True)
        ]  # fmt: skip
    truth = coco.COCO()
    truth.dataset = {
        "images": [{"id": n} for n in range(30)],
        "annotations": annotations,
        "categories": [{"id": k} for k in range(CLASSES)],
    }
    truth.createIndex()
    judge = COCOeval(truth, truth.loadRes(results), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    assert average_precision.ap50(images, CLASSES) == pytest.approx(judge.stats[1], abs=1e-6)
    assert 0.1 < judge.stats[1] < 0.9


# --- targets and losses ---


def learned_by(box, k, x, y, stride):
    """Whether a position learns a box, in plain Python."""
    sides = x - box[0], y - box[1], box[2] - x, box[3] - y
    lowest, highest = (0 if stride == 8 else 4 * stride), (1e9 if stride == 32 else 8 * stride)
    centre = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    near = max(abs(x - centre[0]), abs(y - centre[1])) < 1.5 * stride
    return k >= 0 and min(sides) > 0 and lowest < max(sides) <= highest and near


@pytest.mark.parametrize("count", [6, 300])
def test_each_position_learns_the_smallest_box_that_suits_it(count):
    many, classes = random_boxes(np.random.default_rng(3), count, missing=2)
    found = np.asarray(dense_boxes.assigned(many, classes, PLACES))
    areas = (many[:, 2] - many[:, 0]) * (many[:, 3] - many[:, 1])
    for (x, y), stride, number in zip(PLACES.xy_L2, PLACES.stride_L, found, strict=True):
        fits = [i for i in range(count) if learned_by(many[i], classes[i], x, y, stride)]
        assert number == (min(fits, key=lambda i: areas[i]) if fits else -1)
    assert (found >= 0).any()
    assert PLACES.counts == (8 * 12, 4 * 6, 2 * 3)


def test_an_object_of_a_pixel_is_learned_where_a_position_is():
    at = np.array([[3.6, 3.6, 4.6, 4.6], [7.5, 7.5, 8.5, 8.5]], np.float32)  # a position at 4, 4
    found = np.asarray(dense_boxes.assigned(at, np.zeros(2, np.int32), PLACES))
    np.testing.assert_array_equal(np.flatnonzero(found >= 0), [0])


def random_found(rng, size=8):
    count = len(PLACES.xy_L2)
    return fcos.Found(
        rng.normal(-1, 2, (size, count, CLASSES)).astype(np.float32),
        np.exp(rng.normal(2, 1, (size, count, 4))).astype(np.float32),
        rng.normal(size=(size, count)).astype(np.float32),
    )


def test_losses_are_by_hand():
    """Focal loss, GIoU and cross-entropy in float64, from their formulas."""
    given, found = batch(), random_found(np.random.default_rng(4))
    targets = dense_boxes.targets(given, PLACES)
    sums = dense_boxes.losses(found, PLACES, targets)
    totals = dense_boxes.totals(targets)
    focal = apart = centred = total = positions = 0.0
    for i in np.flatnonzero(given["_mask"]):
        own = np.asarray(dense_boxes.assigned(given["boxes"][i], given["box_classes"][i], PLACES))
        for place, number in enumerate(own):
            k = given["box_classes"][i, number] if number >= 0 else -1
            for c, logit in enumerate(found.logits_BLY[i, place].astype(float)):
                p = 1 / (1 + math.exp(-logit))
                p_t, alpha = (p, 0.25) if c == k else (1 - p, 0.75)
                focal -= alpha * (1 - p_t) ** 2 * math.log(p_t)
            if number < 0:
                continue
            positions += 1
            (x, y), box = PLACES.xy_L2[place], given["boxes"][i, number]
            pairs = [(x - box[0], box[2] - x), (y - box[1], box[3] - y)]
            centre = math.sqrt(math.prod(min(pair) / max(pair) for pair in pairs))
            s = found.sides_BL4[i, place].astype(float)
            guess = [x - s[0], y - s[1], x + s[2], y + s[3]]
            hull = np.prod([max(guess[n + 2], box[n + 2]) - min(guess[n], box[n]) for n in (0, 1)])
            areas = [(z[2] - z[0]) * (z[3] - z[1]) for z in (guess, box)]
            ratio = iou(guess, box)
            union = sum(areas) / (1 + ratio)
            apart += centre * (1 - ratio + (hull - union) / hull)
            p = 1 / (1 + math.exp(-found.centre_BL[i, place]))
            centred -= centre * math.log(p) + (1 - centre) * math.log(1 - p)
            total += centre
    wanted = {"class_loss": focal, "box_loss": apart, "centre_loss": centred}
    for name, value in wanted.items():
        assert sums[name] == pytest.approx(value, rel=1e-4)
    assert totals["positions"] == positions
    assert totals["centred"] == pytest.approx(total, rel=1e-5)


@pytest.mark.integration
def test_boxes_come_back_from_what_positions_should_say():
    """A network that says just what it should learn finds every box, once."""
    true = np.array([[4, 6, 30, 28], [50, 10, 90, 60], [8, 40, 20, 52]], np.float32)
    given = {
        "boxes": np.pad(true, ((0, 3), (0, 0)))[None],
        "box_classes": np.array([[0, 1, 0, -1, -1, -1]], np.int32),
        "_mask": np.array([True]),
    }
    targets = dense_boxes.targets(given, PLACES)
    known = np.asarray(targets.classes_BL)[..., None] == np.arange(CLASSES)
    xy = PLACES.xy_L2[None]
    begin = xy - targets.boxes_BL4[..., :2]
    sides = jnp.concatenate([begin, targets.boxes_BL4[..., 2:] - xy], axis=-1)
    logit = jax.scipy.special.logit(jnp.clip(targets.centre_BL, 1e-3, 1 - 1e-3))
    found = fcos.Found(jnp.where(known, 5.0, -9.0), sides, logit)
    places, scores, classes = dense_boxes.detections(found, PLACES, SIZE)
    there = np.asarray(scores[0]) > 0
    assert there.sum() == 3
    order = np.argsort(np.asarray(places[0, :3, 0]))
    np.testing.assert_allclose(np.asarray(places[0, :3])[order], true[[0, 2, 1]], atol=1e-4)
    np.testing.assert_array_equal(np.asarray(classes[0, :3])[order], [0, 0, 1])
    image = average_precision.Image(
        *(np.asarray(x[0]) for x in (places, scores, classes)), given["boxes"][0],
        given["box_classes"][0],
    )  # fmt: skip
    assert average_precision.ap50([image], CLASSES) == 1
    moved = image._replace(true_boxes=image.true_boxes + 20)
    assert average_precision.ap50([moved], CLASSES) == 0


@pytest.mark.integration
def test_the_best_pairs_of_position_and_class_are_candidates_in_each_level(monkeypatch):
    """Boxes that do not overlap, so that all candidates remain; four for each level."""
    monkeypatch.setattr(dense_boxes, "_CANDIDATES", 4)
    count = len(PLACES.xy_L2)
    logits = np.random.default_rng(3).normal(0, 2, (1, count, CLASSES)).astype(np.float32)
    found = fcos.Found(logits, np.full((1, count, 4), 0.5, np.float32), np.zeros((1, count)))
    _, scores, classes = (np.asarray(x[0]) for x in dense_boxes.detections(found, PLACES, SIZE))
    expected, start = [], 0
    for many in PLACES.counts:
        level = logits[0, start : start + many]
        best = np.argsort(-level, axis=None)[:4]
        expected += [(level.flat[at], at % CLASSES) for at in best.tolist()]
        start += many
    expected.sort(reverse=True)
    probabilities = 1 / (1 + np.exp(-np.array([logit for logit, _ in expected])))
    np.testing.assert_allclose(scores[: len(expected)], np.sqrt(probabilities / 2), rtol=1e-5)
    np.testing.assert_array_equal(classes[: len(expected)], [label for _, label in expected])
    assert not scores[len(expected) :].any()


# --- the network ---


@pytest.mark.parametrize("pixels", [4, 8, 14, 16, 32])
def test_levels_have_their_strides(pixels):
    strides = pyramid.strides(pixels)
    assert len(strides) == 5
    assert 6 <= strides[0] <= 8
    assert all(pyramid.fits(stride, pixels) for stride in strides)
    module = pyramid.Pyramid(8, strides, pixels)
    x = jax.ShapeDtypeStruct((2, 3, 5, 16), jnp.float32)
    levels = jax.eval_shape(lambda x: module.init_with_output(KEY, x)[0], x)
    for stride, level in zip(strides, levels, strict=True):
        rows, columns = (math.ceil(side * pixels / stride) for side in (3, 5))
        assert level.shape == (2, rows, columns, 8)
    assert pyramid.strides(16) == (8, 16, 32, 64, 128)  # FCOS


def test_every_side_of_a_patch_has_levels():
    for pixels in range(1, 65):
        assert all(pyramid.fits(stride, pixels) for stride in pyramid.strides(pixels)), pixels
    assert pyramid.strides(13) == (13, 26, 52, 104, 208)
    assert pyramid.strides(30)[:2] == (15, 30)


@pytest.mark.integration
@pytest.mark.parametrize("rows", [14, 18, 20, 50])
def test_a_row_of_the_map_is_seen_where_the_head_places_it(rows):
    """At every level, in the positions whose squares hold its pixels."""
    strides, columns = (4, 8, 16, 32, 64, 128), 2
    module = pyramid.Pyramid(8, strides, 16)
    x = np.random.default_rng(0).normal(size=(1, rows, columns, 16)).astype(np.float32)
    params = jax.jit(module.init)(KEY, x)

    @jax.jit
    def seen(x):
        _, state = module.apply(
            params, x, capture_intermediates=lambda m, _: str(m.name).endswith("_narrow")
        )
        return [state["intermediates"][f"level_{n}_narrow"]["__call__"][0] for n in range(6)]

    places, before = fcos.places((rows, columns), strides, 16), seen(x)
    ends = np.cumsum(places.counts)[:-1]
    y_of_level = [np.unique(xy[:, 1]) for xy in np.split(places.xy_L2, ends)]
    for row in range(rows):
        moved = x.copy()
        moved[:, row] += 100
        levels = zip(strides, y_of_level, before, seen(moved), strict=True)
        for stride, y, old, new in levels:
            changed = np.abs(np.asarray(new - old)).max(axis=(0, 2, 3)) > 1e-3
            inside = (y + stride / 2 > row * 16) & (y - stride / 2 < row * 16 + 16)
            np.testing.assert_array_equal(changed, inside)


def test_flops_of_the_head_are_those_of_the_compiler():
    module = fcos.Fcos(20, 128, 2, (4, 8, 16, 32), 16)
    x = jax.ShapeDtypeStruct((1, 8, 12, 256), jnp.float32)
    params = jax.eval_shape(lambda x: module.init(KEY, x), x)
    compiled = jax.jit(module.apply).lower(params, x).compile()
    counted = 2 * fcos.multiply_adds(module, (8, 12), 256)
    # The compiler counts norms too, and leaves out what is multiplied with zero padding.
    assert 0.9 < compiled.cost_analysis()["flops"] / counted < 1.05


def test_flops_of_a_step_have_those_of_the_head():
    objective = Detection(classes=CLASSES, width=16)
    for cfg, size in ((tiny.config(), (16, 24)), (tiny.bit(), (33, 47))):
        cfg = objective.model(cfg)
        head = objective.step_flops(cfg, *size) - 3 * cfg.training_flops(*size)
        known = objective.of_model(cfg)
        ((rows, columns, features),) = variants.shapes_of_maps(cfg, *size)
        assert head == 6 * fcos.multiply_adds(known._head, (rows, columns), features)
        assert sum(known.places(*size).counts) == sum(
            math.prod(pyramid.grid((rows, columns), s, known.pixels)) for s in known.strides
        )


# --- the objective ---


def built(rules=None):
    objective = Detection(width=8, depth=1, strides=STRIDES[1:], most=6, classes=CLASSES)
    small = {"variant": "Ti/16", "width": 16, "depth": 2, "heads": 2, "mlp": 32, "pool": "gap"}
    cfg = objective.model(variants.config(**small, classes=CLASSES, window=2, global_blocks=1))
    objective = objective.in_run(cfg, lambda _: 0)
    params = tiny.params(cfg, *SIZE)
    network = program.network(variants.make(cfg, rules), images_lib.Images(SIZE, 3, HALF, HALF))
    image = jnp.zeros((1, *SIZE, 3))
    output = jax.eval_shape(lambda p: variants.make(cfg).apply({"params": p}, image), params)
    own = jax.jit(lambda: objective.parameters(KEY, output))()
    own = jax.tree.map(lambda x: np.asarray(x), own)
    return objective, network, {**params, "objective": own}, cfg


NAMES = (*Detection.METRICS, "grad_norm")


@functools.lru_cache
def steps(shape, accumulation=1, change=""):
    """Metrics of two steps, and the sums and the metrics of an evaluation."""
    rules = rules_of(shape)
    objective, network, params, cfg = built(rules)
    tx = optax.sgd(0.01)
    axes = sharding.param_axes(params, objective.AXES | variants.axes(cfg))
    abstract = jax.eval_shape(lambda p: state.from_params(p, tx, ema=False), params)
    places = sharding.place(abstract, axes, rules)
    current = jax.jit(lambda p: state.from_params(p, tx, ema=False), out_shardings=places)(params)
    given = batch()
    if change == "no boxes":
        given["boxes"], given["box_classes"] = given["boxes"] * 0, given["box_classes"] * 0 - 1
    given = jax.device_put(given, rules.sharding(("act_batch",), (8,)))
    step = train_step.make_train_step(objective, network, tx, accumulation=accumulation)
    step, measured = jax.jit(step, out_shardings=(places, rules.replicated)), []
    for _ in range(2):
        current, found = step(current, given, KEY)
        measured.append([float(found[name]) for name in NAMES])
    sums = jax.jit(functools.partial(objective.eval_sums, network))(current.params, None, given)
    split = any(
        not x.sharding.is_fully_replicated for x in jax.tree.leaves(current.params["objective"])
    )
    return np.array(measured), jax.device_get(sums), split, objective


@pytest.mark.integration
@pytest.mark.parametrize(
    "shape, accumulation",
    [
        ((1, 8, 1, 1), 1),
        ((1, 2, 2, 2), 1),
        ((1, 1, 1, 1), 2),
    ],
)
def test_loss_and_gradients_are_those_of_one_device_and_of_the_whole_batch(shape, accumulation):
    expected, sums, _, objective = steps((1, 1, 1, 1))
    found, again, split, _ = steps(shape, accumulation)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert expected[1, 0] < expected[0, 0]
    np.testing.assert_allclose(again["box_loss"], sums["box_loss"], rtol=1e-4)
    assert split == (shape[2] > 1)
    total = objective.total([again])
    assert (total["examples"], set(total)) == (7, {*Detection.EVALUATED, "examples"})


@pytest.mark.integration
def test_loss_is_divided_by_the_positions_of_the_whole_batch():
    """Of the two halves together, it is that of an evaluation, and not a mean of two ratios."""
    measured, _, _, objective = steps((1, 1, 1, 1))
    _, network, params, _ = built()
    run = jax.jit(functools.partial(objective.eval_sums, network))
    given = batch()
    halves = [run(params, None, {k: x[i::2] for k, x in given.items()}) for i in (0, 1)]
    whole = run(params, None, given)
    total, both = objective.total([whole]), objective.total(halves)
    assert both["loss"] == pytest.approx(total["loss"], rel=1e-5)
    alone = [objective.total([half])["loss"] for half in halves]
    assert abs(np.mean(alone) - total["loss"]) > 1e-4
    assert measured[0, 0] == pytest.approx(total["loss"], rel=1e-5)


@pytest.mark.integration
def test_a_batch_without_boxes_is_finite_and_learned():
    found, sums, _, objective = steps((1, 1, 1, 1), change="no boxes")
    assert np.isfinite(found).all()
    assert (found[:, 2:4] == 0).all()
    assert 0 < found[1, 0] < found[0, 0]
    assert {*objective.total([sums])} == {"loss", "examples"}  # no figure that ranks a step


@pytest.mark.parametrize(
    "given, part",
    [
        ("width=12", "width=12; give a multiple of 8"),
        ("width=True", "width=True; give a whole number"),
        ("depth=-1", "depth=-1"),
        ("most=0", "most=0"),
        ("strides=8", "strides=8; give pixels"),
        ("strides=(16, 8)", "smallest first"),
        ("strides=(8, 12)", "map of 16 pixels a position, which makes no level of 12"),
        ("strides=(2, 4)", "makes no level of 2; give 16 times powers of two, from 4 on"),
        ("pixels=4", "pixels=4.: .* has 16; leave"),
        ("classes=2", "classes=2.: the data has"),
    ],
)
def test_arguments_that_cannot_be_used(given, part):
    from vit_jax.build import objectives

    config = config_lib.load(
        "vit_jax:segment",
        [f"--config.objective=detection({given})", "--config.model.variant=Ti/16"],
    )
    cfg = variants.of(config.model, 7)
    with pytest.raises(BadInput, match=part):
        objectives.make(config, cfg).model(cfg)


def test_positions_of_300_boxes_take_little_memory():
    """At 1024 pixels, a table of 21824 positions and 300 boxes is 26 MB; none is kept."""
    places = fcos.places((64, 64), (8, 16, 32, 64, 128), 16)
    assert len(places.xy_L2) == 21824
    of_batch = jax.jit(jax.vmap(lambda b, c: dense_boxes.assigned(b, c, places)))
    given = jnp.zeros((4, 300, 4)), jnp.zeros((4, 300), jnp.int32)
    memory = of_batch.lower(*given).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 21824 * 300 * 4


# --- the recipe ---


@pytest.mark.parametrize(
    "model, decay, depth, epochs",
    [("B/16", 0.7, 0.1, 100), ("L/16", 0.8, 0.4, 100), ("H/16", 0.9, 0.5, 75)],
)
def test_recipe_trains_as_vitdet(model, decay, depth, epochs):
    """The numbers are those of appendix A.2 and of projects/ViTDet/configs in detectron2."""
    from vit_jax.build import objectives

    config = config_lib.load(f"vit_jax:detect:dataset=coco,model={model}", [])
    assert (config.data.image_size, config.batch_size, config.length) == (
        1024, 64, f"{epochs} epochs",
    )  # fmt: skip
    cfg = variants.of(config.model, 80)
    assert (cfg.window, len(cfg.windowed), cfg.drop_path) == (14, cfg.depth - 4, depth)
    chosen = config.optimizer
    assert (chosen.layer_decay, chosen.weight_decay, config.schedule.lr) == (decay, 0.1, 1e-4)
    falls = [float(drop.split()[0]) * 184375 / 100 for drop in config.schedule.step.drops]
    np.testing.assert_allclose(falls, [163889, 177546], atol=25)
    assert config.expected.metric == ""
    assert (config.data.val_percent, {*config.evals}) == (0, {"test"})
    assert config.evals["test"].every == "10 percent"
    standin = config_lib.load(f"vit_jax:detect:dataset=coco,model={model},standin=true", [])
    assert standin.data.source == "synthetic:coco"
    objective = objectives.make(config, cfg).of_model(cfg)
    assert (objective.width, objective.depth, objective.classes) == (256, 4, 80)
    assert sum(objective.places(1024, 1024).counts) == 21824


def test_small_recipe_has_half_a_million_parameters():
    config = config_lib.load("vit_jax:detect:small=true,size=96x128", [])
    assert (config.length, config.schedule.lr) == ("40 epochs", 1e-3)
    assert (config.model.window, config.model.global_blocks) == (8, 1)
    backbone = variants.shapes(variants.of(config.model, 3), 96, 128)
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(backbone)) == pytest.approx(5e5, rel=0.1)


@pytest.mark.parametrize(
    "given, part",
    [
        ("dataset=lvis", "lvis.*coco"),
        ("backbone=half", "half.*frozen"),
        ("standin=true", "give dataset=coco"),
        ("dataset=voc,model=B/16,standin=true", "give dataset=coco"),
        ("dataset=coco", "model=auto; give one of ViTDet"),
        ("dataset=voc,model=S/16", "model=S/16; give one of ViTDet"),
        ("small=true,model=B/16", "leave the others out"),
        ("small=true,backbone=frozen", "leave the others out"),
    ],
)
def test_recipe_refuses_what_it_does_not_know(given, part):
    with pytest.raises(BadInput, match=part):
        config_lib.load(f"vit_jax:detect:{given}", [])
