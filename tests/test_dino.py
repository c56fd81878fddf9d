# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""DINO and iBOT: the losses of the papers, the teacher, what spans the batch, and collapse."""

import dataclasses
import functools
import json
import re
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_masked import EIGHT
from test_train_step import HALF, rules_of

from vit_jax import sharding, tree
from vit_jax.build import run as build_run
from vit_jax.build import splits
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli.main import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import posemb, variants
from vit_jax.reports import summary
from vit_jax.step import block_masks, gram, prototype_head, spread, state, train_step
from vit_jax.step.dino import Dino, InRun
from vit_jax.step.objective import Network
from vit_jax.weights import loading

ROOT = Path(__file__).parent.parent
RECIPE = str(ROOT / "configs" / "dino.py")
KEY = jax.random.key(0)
SMALL = {"local": 3, "local_size": 4, "prototypes": 6, "hidden": 8, "bottleneck": 4}
BOTH = SMALL | {"ibot": 0.7, "koleo": 0.3, "gram": 0.4, "masked": (0.25, 0.75)}


def apply(params, images, *, train, key, source_BL=None, size=None):
    """Tokens of 2 x 2 patches, after a look at their mean: [B, 1 + L, 4]."""
    count, side = len(images), images.shape[1] // 2
    x = images.reshape(count, side, 2, side, 2, 3).swapaxes(2, 3).reshape(count, -1, 12)
    x = x @ params["weights"]
    if source_BL is not None:
        x = jnp.where(source_BL[..., None] < 0, params["mask_token"], x)
    x = jnp.concatenate([jnp.mean(x, axis=1, keepdims=True), x], axis=1)
    return jnp.tanh(x + jnp.mean(x, axis=1, keepdims=True))


NETWORK = Network(apply, HALF, HALF)


def made(**more):
    return dataclasses.replace(Dino(**(BOTH | more)), run=InRun(2, 4, 1, gram_from=2, gram_every=2))


def parameters(objective, seed=0):
    rng = np.random.default_rng(seed)
    own = objective.parameters(jax.random.key(seed), jax.ShapeDtypeStruct((1, 5, 4), jnp.float32))
    own = jax.tree.map(lambda x: 20.0 * x, own)
    return {
        "weights": jnp.asarray(rng.normal(size=(12, 4)), jnp.float32),
        "mask_token": jnp.full((4,), 0.3),
        "objective": own,
    }


def batch(size=16, mask=None):
    rng = np.random.default_rng(1)
    shapes = {"global_1": (8, 8, 3), "global_2": (8, 8, 3), "local": (3, 4, 4, 3)}
    views = {n: rng.integers(0, 256, (size, *s)).astype(np.uint8) for n, s in shapes.items()}
    mask = np.ones(size, bool) if mask is None else np.asarray(mask, bool)
    return views | {"labels": np.zeros((size, 1), np.int32), "_mask": mask}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def in_numpy(objective, params, teacher, kept, given, masks):
    """Sums of the losses by the papers' formulas, pair by pair and patch by patch, in float64."""
    params, teacher, kept, masks = jax.tree.map(
        lambda x: np.asarray(x, np.float64), (params, teacher, kept, tuple(masks))
    )
    view_B, source_BTL, patch_BM, weight_BM = masks
    heat = 0.04 + min(kept["step"] / 4, 1) * 0.03

    def tokens(p, image, source=None):
        x = image / 127.5 - 1
        side = len(x) // 2
        rows = [x[2 * r : 2 * r + 2, 2 * c : 2 * c + 2] for r in range(side) for c in range(side)]
        x = np.stack([row.reshape(12) for row in rows]) @ p["weights"]
        if source is not None:
            x[source < 0] = p["mask_token"]
        x = np.concatenate([x.mean(axis=0, keepdims=True), x])
        return np.tanh(x + x.mean(axis=0))

    def cosines(p, name, x):
        head = p["objective"].get(name, p["objective"]["dino"])
        for layer in ("first", "second", "bottleneck"):
            x = x @ head[layer]["kernel"] + head[layer]["bias"]
            if layer != "bottleneck":
                x = np.asarray(jax.nn.gelu(x, approximate=False), np.float64)
        w = head["prototypes"]["kernel"]
        return x / np.linalg.norm(x, axis=-1, keepdims=True) @ (w / np.linalg.norm(w, axis=0))

    def similar(x):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return x @ x.T

    losses = {"dino": 0.0, "ibot": 0.0, "koleo": 0.0, "gram": 0.0}
    seen = [[], []]
    for b, real in enumerate(given["_mask"]):
        views = [given["global_1"][b], given["global_2"][b]]
        taught = [tokens(teacher, view) for view in views]
        target = [softmax((cosines(teacher, "dino", t[0]) - kept["centre"]) / heat) for t in taught]
        studied = [tokens(params, view, source_BTL[b, v]) for v, view in enumerate(views)]
        small = [tokens(params, view)[0] for view in given["local"][b]]
        log_p = [
            np.log(softmax(cosines(params, "dino", x) / 0.1))
            for x in [studied[0][0], studied[1][0], *small]
        ]
        pairs = [-(target[t] * log_p[v]).sum() for t in (0, 1) for v in range(5) if v != t]
        v = int(view_B[b])
        patches = []
        for p, w in zip(patch_BM[b].astype(int) + 1, weight_BM[b], strict=True):
            hot = softmax((cosines(teacher, "ibot", taught[v][p]) - kept["patch_centre"]) / heat)
            log_q = np.log(softmax(cosines(params, "ibot", studied[v][p]) / 0.1))
            patches += [-(hot * log_q).sum()] if w > 0 else []
        if real:
            losses["dino"] += np.mean(pairs)
            losses["ibot"] += np.mean(patches) / 2
            for view, student in zip(views, studied, strict=True):
                apart = similar(student[1:]) - similar(tokens(kept["gram"], view)[1:])
                losses["gram"] += np.square(apart).mean() / 2
            for own, x in zip(seen, studied, strict=True):
                own.append(x[0] / np.linalg.norm(x[0]))
    for own in map(np.stack, seen):
        distances = np.linalg.norm(own[:, None] - own[None], axis=-1)
        losses["koleo"] -= np.log((distances + 1e9 * np.eye(len(own))).min(axis=1)).sum()
    return losses


@pytest.mark.integration
@pytest.mark.parametrize("separate", [False, True])
def test_losses_are_those_of_the_papers_formulas(separate):
    objective = made(separate=separate)
    params, teacher = parameters(objective), parameters(objective, seed=5)
    kept = {"step": jnp.int32(3), "centre": 0.1 * jnp.arange(6.0), "patch_centre": jnp.ones(6) / 5}
    kept["gram"] = gram.backbone(parameters(objective, seed=7))
    given, _ = objective.draw(batch(mask=np.arange(16) % 5 != 2), KEY)
    compute = jax.jit(functools.partial(objective.sums, NETWORK))
    sums = compute(params, kept | {"average": teacher}, given, None, KEY)
    expected = in_numpy(objective, params, teacher, kept, given, given["masks"])
    for name, value in expected.items():
        assert float(sums[name]) == pytest.approx(value, rel=2e-5), name
    total = expected["dino"] + 0.7 * expected["ibot"] + 0.3 * expected["koleo"]
    total += 0.4 * expected["gram"]
    assert float(sums["loss"]) == pytest.approx(total, rel=2e-5)
    # The centres move by what the teacher saw.
    moved = objective.after_update(kept | {"average": teacher}, params, sums, jnp.int32(3))
    np.testing.assert_array_equal(moved["gram"]["weights"], teacher["weights"])
    unbegun = compute(params, kept | {"average": teacher, "step": jnp.int32(1)}, given, None, KEY)
    assert float(unbegun["gram"]) == 0.0
    logits = objective._seen(NETWORK, kept | {"average": teacher}, given)[0]
    real = given["_mask"]
    mean = np.asarray(logits[0])[real].mean(axis=(0, 1))
    np.testing.assert_allclose(moved["centre"], 0.9 * kept["centre"] + 0.1 * mean, rtol=1e-5)
    weight = np.asarray(given["masks"].weight > 0) & real[:, None]
    mean = np.asarray(logits[1])[weight].mean(axis=0)
    np.testing.assert_allclose(moved["patch_centre"], 0.18 + 0.1 * mean, rtol=1e-5)
    assert int(moved["step"]) == 4


def stepped(centring, accumulation=1, shape=(1, 1, 1, 1)):
    """Metrics of three steps, and the state after them, with all on a mesh."""
    objective, tx, rules = made(centring=centring), optax.sgd(0.3), rules_of(shape)
    params = parameters(objective)
    meaning = {r"weights": (None, "embed"), r"mask_token": ("embed",), **objective.AXES}
    begin = functools.partial(state.from_params, tx=tx, ema=True, keep=objective.kept)
    places = sharding.place(
        jax.eval_shape(begin, params), sharding.param_axes(params, meaning), rules
    )
    step = jax.jit(
        train_step.make_train_step(
            objective, NETWORK, tx, accumulation=accumulation,
            ema_decay=train_step.decays(0.5, 1.0, 4),
        ),
        out_shardings=(places, rules.replicated),
    )  # fmt: skip
    given = jax.device_put(batch(), rules.sharding(("act_batch",), (16,)))
    current, rows = jax.jit(begin, out_shardings=places)(params), []
    for _ in range(3):
        current, measured = step(current, given, KEY)
        rows.append({name: float(x) for name, x in measured.items()})
    return rows, current


@functools.cache
def expected_steps(centring):
    return stepped(centring)


@pytest.mark.parametrize(
    "centring, accumulation, shape",
    [
        pytest.param("mean", 2, (1, 8, 1, 1), marks=pytest.mark.integration),
        pytest.param("sinkhorn", 1, (1, 2, 2, 2), marks=pytest.mark.integration),
        pytest.param("sinkhorn", 4, (1, 1, 1, 1), marks=pytest.mark.integration),
        pytest.param("sinkhorn", 2, (1, 4, 2, 1), marks=pytest.mark.integration),
    ],
)
def test_the_global_batch_counts_on_any_mesh_and_by_micro_batches(centring, accumulation, shape):
    (expected, before), (rows, after) = (
        expected_steps(centring), stepped(centring, accumulation, shape)
    )  # fmt: skip
    for a, b in zip(rows, expected, strict=True):
        assert a == {name: pytest.approx(x, rel=1e-5, abs=2e-6) for name, x in b.items()}
    assert rows[2]["loss"] != rows[0]["loss"]
    for a, b in ((after.ema, before.ema), (after.kept, before.kept)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b)
    if shape[2] > 1:
        kernel = after.ema["objective"]["dino"]["first"]["kernel"]
        assert not kernel.sharding.is_fully_replicated  # the teacher is placed like the student


@pytest.mark.integration
def test_koleo_of_micro_batches_is_that_of_the_students_own_dropped_paths():
    """A network whose training depends on its key, as with stochastic depth."""

    def noisy(params, images, *, train, key, **options):
        tokens = apply(params, images, train=train, key=key, **options)
        return tokens + jax.random.normal(key, tokens.shape) * 0.3 if train else tokens

    objective, network = made(), Network(noisy, HALF, HALF)
    params, keys = parameters(objective), jax.random.split(KEY, 2)
    kept = objective.kept(params) | {"average": params}
    given, _ = objective.draw(batch(), KEY)
    micro = train_step.micro_batches(given, 2)

    @jax.jit
    def both(params):
        related = objective.relate(network, params, kept, micro, keys)
        parts, seen = [], []
        for i in range(2):
            one = jax.tree.map(lambda x, i=i: x[i], related)
            parts.append(objective.sums(network, params, kept, one, None, keys[i])["koleo"])
            seen.append(objective._studied(network, params, one, keys[i])[:, :, 0])
        x = jnp.concatenate(seen)
        return parts[0] + parts[1], jnp.sum(spread.koleo(x, jnp.ones(16, bool)))

    found, expected = both(params)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    of_found, of_expected = jax.jacrev(both)(params)
    np.testing.assert_allclose(
        of_found["weights"], of_expected["weights"], rtol=1e-4, atol=1e-4
    )  # fmt: skip


@pytest.mark.integration
def test_teacher_follows_by_the_schedule_and_prototypes_wait():
    objective, tx = made(), optax.sgd(0.3)
    decay = train_step.decays(0.9, 1.0, 4)
    assert [float(decay(jnp.int32(t))) for t in (0, 2, 4)] == pytest.approx([0.9, 0.95, 1.0])
    assert train_step.decays(0.9, 0.0, 4) == 0.9
    step = jax.jit(train_step.make_train_step(objective, NETWORK, tx, ema_decay=decay))
    begin = state.from_params(parameters(objective), tx, ema=True, keep=objective.kept)
    first, _ = step(begin, batch(), KEY)
    second, _ = step(first, batch(), KEY)
    kernels = [
        s.params["objective"]["dino"]["prototypes"]["kernel"] for s in (begin, first, second)
    ]
    np.testing.assert_array_equal(kernels[0], kernels[1])  # frozen for one step
    assert float(jnp.abs(kernels[2] - kernels[1]).max()) > 1e-4
    third, _ = step(second, batch(), KEY)
    anchors = [s.kept["gram"]["weights"] for s in (begin, first, second, third)]
    np.testing.assert_array_equal(anchors[1], begin.params["weights"])
    np.testing.assert_array_equal(anchors[2], second.ema["weights"])  # from step 2 on,
    np.testing.assert_array_equal(anchors[3], second.ema["weights"])  # every second step
    assert float(jnp.abs(second.ema["weights"] - begin.params["weights"]).max()) > 1e-6
    assert third.kept.keys() == begin.kept.keys()
    share = float(decay(jnp.int32(1)))
    mean = share * first.ema["weights"] + (1 - share) * second.params["weights"]
    np.testing.assert_allclose(second.ema["weights"], mean, rtol=1e-6)
    heats = [float(objective._heat({"step": t})) for t in (0, 2, 4, 9)]
    assert heats == pytest.approx([0.04, 0.055, 0.07, 0.07])


def test_sinkhorn_uses_all_prototypes_and_real_rows_alone():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 2, 4)) + np.array([9.0, 0, 0, 0])
    real = np.arange(20)[:, None] < np.array([[16, 16]])
    found = np.asarray(prototype_head.sinkhorn(jnp.asarray(logits, jnp.float32), jnp.asarray(real)))
    q = np.exp(logits[:16].reshape(32, 4))  # the iteration of arXiv:2006.09882, in probabilities
    for _ in range(3):
        q /= q.sum(axis=0, keepdims=True)
        q /= q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[:16].reshape(32, 4), q, rtol=1e-5)
    np.testing.assert_allclose(q.sum(axis=0), 8, rtol=0.1)


@pytest.mark.integration
def test_masks_are_blocks_of_one_view_with_the_stated_share():
    masks = jax.vmap(lambda key: block_masks.draw(key, 8, 10, (0.1, 0.5)))(
        jax.random.split(KEY, 200)
    )
    masked = np.asarray(masks.source) < 0
    counts = masked.sum(axis=2)
    view = np.asarray(masks.view)
    assert counts[np.arange(200), 1 - view].max() == 0
    counts = counts[np.arange(200), view]
    assert 8 <= counts.min() <= counts.max() <= 40
    assert abs(counts.mean() - 23.5) < 2.5
    assert 70 < view.sum() < 130
    for b in range(200):
        chosen = np.asarray(masks.patch[b])[np.asarray(masks.weight[b]) > 0]
        assert sorted(chosen) == np.flatnonzero(masked[b, view[b]]).tolist()
        assert float(masks.weight[b].sum()) == pytest.approx(1)
    grid = masked[np.arange(200), view].reshape(200, 8, 10)
    alike = (grid[:, :, 1:] & grid[:, :, :-1]).sum() / grid[:, :, 1:].sum()
    assert alike > 0.55  # 0.3 for single patches


def test_masked_tokens_stay_on_the_device_of_their_image():
    masks = jax.vmap(lambda key: block_masks.draw(key, 4, 4, (0.1, 0.5)))(jax.random.split(KEY, 16))
    tokens = jax.random.normal(KEY, (16, 2, 17, 8))
    over = rules_of(EIGHT).sharding(("act_batch",), (16,))
    value = jax.jit(
        jax.value_and_grad(lambda x, masks: jnp.sum(block_masks.taken(x, masks) ** 2)),
        in_shardings=over,
    )
    compiled = value.lower(tokens, masks).compile()
    assert not re.search(r"all-gather|all-to-all|collective-permute", compiled.as_text())
    rows = [np.asarray(tokens)[b, int(masks.view[b])][masks.patch[b] + 1] for b in range(16)]
    np.testing.assert_array_equal(block_masks.taken(tokens, masks), np.stack(rows))


def test_measures_of_spread():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 1, 8)).astype(np.float32)
    alike = np.broadcast_to(x[:1], x.shape)
    sharp = np.eye(8, dtype=np.float32)[np.arange(64) % 8][:, None]
    for features, target, std, information in (
        (x, sharp, 1.0, np.log(8)), (alike, alike * 0 + 1 / 8, 0.0, 0.0),
    ):  # fmt: skip
        means = {k: np.mean(v, axis=0) for k, v in spread.watched(target, features).items()}
        found = spread.spread(means, np)
        assert found["std"] == pytest.approx(std, abs=0.1)
        assert found["information"] == pytest.approx(information, abs=1e-5)
    ones = np.ones(64, bool)
    values = np.linalg.svd(x[:, 0], compute_uv=False)
    p = values / values.sum()
    expected = np.exp(-(p * np.log(p)).sum())
    assert spread.rankme(spread.moments(x, ones)) == pytest.approx(expected, rel=1e-4)
    assert spread.rankme(spread.moments(alike, ones)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.integration
def test_collapse_is_measured_and_said():
    objective = made(ibot=0.0, koleo=0.0, centring="none")
    params = parameters(objective)
    kept = objective.kept(params)
    for given, collapsed in (
        (batch(), 0),
        (jax.tree.map(lambda x: x * 0 + (x.ndim == 1), batch()), 1),
    ):
        sums = objective.sums(NETWORK, params, kept | {"average": params}, given, None, KEY)
        assert float(objective.measured(sums, jnp.float32(16))["collapsed"]) == collapsed

    def rows(*flags):
        found = {"train/information": 0.01, "train/std": 0.5}
        return [(10 * n, found | {"train/collapsed": float(f)}) for n, f in enumerate(flags, 1)]

    assert summary.collapse(rows(1, 0, 0, 1, 1), 50).startswith(
        "The model has collapsed: at least since step 40"
    )
    assert "information 0.0100" in summary.collapse(rows(1, 1), 50)
    assert summary.collapse(rows(1), 500) == ""  # the first tenth
    assert summary.collapse(rows(1, 1, 0), 50) == ""
    assert summary.collapse([(50, {"train/loss": 1.0})], 50) == ""


def vit(**more):
    sizes = {"width": 16, "depth": 2, "mlp": 16, "heads": 2, "variant": "Ti/4"}
    return variants.config(**(sizes | more), classes=0)


@pytest.mark.integration
@pytest.mark.parametrize("pool, registers", [("token", 2), ("gap", 0)])
def test_tokens_of_a_vit_are_its_representation_and_its_map(pool, registers):
    cfg = vit(pool=pool, registers=registers)
    images = jax.random.normal(KEY, (2, 16, 8, 3))
    model = variants.make(cfg.for_tokens())
    params = jax.jit(model.init)(KEY, images)["params"]

    @functools.partial(jax.jit, static_argnums=(0, 3))
    def apply(cfg, params, images, size=None, **more):
        model = variants.make(cfg)
        more |= {"size": size} if size else {}
        return model.apply({"params": params}, images, **more)

    tokens = apply(cfg.for_tokens(), params, images)
    whole = apply(cfg, params, images)
    (patches,) = apply(cfg.for_maps((2,)), params, images)
    np.testing.assert_allclose(tokens[:, 0], whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tokens[:, 1:], patches.reshape(2, 8, 16), rtol=1e-5, atol=1e-6)
    source = jnp.where(jnp.arange(8) < 3, -1, jnp.arange(8))[None].repeat(2, axis=0)
    masked = apply(cfg.for_tokens(), params, images, source_BL=source)
    black = images.at[:, :4].set(9.0).at[:, 4:8, :4].set(-9.0)  # what is masked does not count
    np.testing.assert_allclose(
        masked, apply(cfg.for_tokens(), params, black, source_BL=source), rtol=1e-5, atol=1e-6
    )
    # A smaller image sees the embeddings of its size, resized as weights are for fine-tuning.
    small, own = images[:, :8], np.asarray(params["posemb"])
    table = posemb.resize(own, (2, 2), (4, 2), class_rows=cfg.class_rows)
    expected = apply(cfg.for_tokens(), params | {"posemb": table}, small)
    found = apply(cfg.for_tokens(), params, small, (16, 8))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_flops_of_a_step_by_hand():
    """B/16 at 224 with 8 views of 96, without a class token: 196 and 36 tokens."""

    def encoder(tokens):
        block = 4 * tokens * 768**2 + 2 * tokens * 768 * 3072 + 2 * tokens**2 * 768
        return 2 * (12 * block + tokens * 16 * 16 * 3 * 768)

    head = 2 * (768 * 2048 + 2048**2 + 2048 * 256 + 256 * 65536)
    plain = 3 * (2 * encoder(196) + 8 * encoder(36) + 10 * head) + 2 * encoder(196) + 2 * head
    cfg = variants.config(variant="B/16", pool="gap", classes=0)
    assert Dino().step_flops(cfg, 224, 224) == plain
    assert Dino(ibot=1.0).step_flops(cfg, 224, 224) == plain + 4 * 98 * head
    anchored = 2 * encoder(196) + 2 * 2 * 4 * 196**2 * 768  # two views, cosines of all pairs
    assert Dino(gram=2.0).step_flops(cfg, 224, 224) == plain + anchored
    assert Dino(local=0).step_flops(cfg, 224, 224) == 8 * (encoder(196) + head)


# --- runs ---

TINY = (
    "--config.data.source=digits", "--config.batch_size=16", "--config.length=6 steps",
    "--config.model.width=32", "--config.model.depth=1", "--config.model.mlp=32",
    "--config.model.heads=2", "--config.checkpoint.every=3 steps", "--config.data.examples=64",
    "--config.report.writers=()", "--config.report.every=1 steps",
    "--config.optimizer.weight_decay=0.0", "--config.evals.val.batch_size=32",
)  # fmt: skip
HEAD = "dino(local=2, local_size=8, prototypes=16, hidden=16, bottleneck=8, frozen='1 steps'"


def run(workdir, *args, recipe=":size=16,local=8,crops=2", more=", ibot=1.0, koleo=0.1)"):
    words = ["train", f"--config={RECIPE}{recipe}", f"--workdir={workdir}", *TINY]
    return main([*words, f"--config.objective={HEAD}{more}", *args])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    task = ("--config.fewshot.sources=(('digits','digits'),)", "--config.fewshot.every=0")
    assert run(workdir, *task) == 0
    return workdir


@pytest.mark.integration
def test_run_is_measured_and_branched_bit_for_bit(finished, tmp_path):
    results = json.loads((finished / "results.json").read_text())
    assert set(results["val"]) == {
        "loss", "entropy", "information", "std", "rankme", "examples"
    }  # fmt: skip
    assert results["val"]["rankme"] > 1
    assert results["val_raw"] != results["val"]  # the student beside the teacher
    digits = results["fewshot_digits"]
    assert min(digits["probe_allshot"], digits["knn_allshot"]) > 0.1
    assert digits.keys() == {"knn_allshot", "probe_allshot", "examples"}
    assert results["fewshot_digits_raw"].keys() == digits.keys()
    assert results["fewshot_digits_raw"] != digits  # of the student
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert {"train/entropy", "train/std", "train/ibot", "train/koleo", "train/collapsed"} <= set(
        rows[0]
    )
    cut = tmp_path / "cut"
    assert run(cut, f"--branch={finished}@3") == 0
    states = []
    for workdir in (finished, cut):  # the student, the teacher, and what the objective keeps
        with Checkpoints(workdir, read_only=True) as checkpoints:
            states.append(checkpoints._saved(6))
    names = [path for path, _ in tree.leaves_with_paths(states[0])]
    assert {"kept/centre", "kept/patch_centre", "kept/step"} <= set(names)
    assert {name.partition("/")[0] for name in names} >= {"params", "ema", "kept"}
    jax.tree.map(np.testing.assert_array_equal, *states)


@pytest.mark.integration
def test_heads_are_kept_or_anew_and_others_are_refused(finished, tmp_path, capsys, caplog):
    one = ("--config.length=1 steps", "--config.report.page=false", f"--config.init={finished}")
    one += ("--config.seed=7",)  # for other new heads
    one += (
        "--config.schedule.warmup=1 steps",
        "--config.evals.val.every=0",
        "--config.schedule.lr=0",
    )
    kept, anew = ", ibot=1.0, keep_heads=True)", ", ibot=1.0)"
    name, heads = "objective/dino/first/kernel", {}
    before = loading.read_weights(str(finished)).flat
    for more in (kept, anew):
        workdir = tmp_path / str(len(more))
        assert run(workdir, *one, more=more) == 0
        heads[more] = loading.read_weights(str(workdir)).flat
        np.testing.assert_allclose(
            heads[more]["embedding/kernel"], before["embedding/kernel"], rtol=1e-5
        )
    np.testing.assert_allclose(heads[kept][name], before[name], rtol=1e-5)
    assert np.abs(heads[anew][name] - before[name]).max() > 1e-3
    assert re.search(rf"{name} +loaded", caplog.text)
    capsys.readouterr()
    other = kept.replace("keep", "separate=True, keep")
    assert run(tmp_path / "other", *one, more=other) == 2
    said = capsys.readouterr().err
    assert "objective/ibot/first/kernel" in said
    assert "keep_heads=False" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.integration
def test_commands_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, image_folder):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "dino.md").read_text()
    commands = re.findall(r"^vit_jax (.*)$", text, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "fewshot", "train", "train"]
    short = ["--config.length=1 steps", "--config.batch_size=8", "--config.schedule.warmup=0"]
    short += ["--config.report.writers=()", "--config.report.page=false"]
    for command in commands:
        command = command.replace("/path/to/images", str(image_folder))
        words = shlex.split(command.replace("configs/", f"{ROOT}/configs/"))
        assert main([*words, *(short if words[0] == "train" else [])]) == 0, command


@pytest.mark.parametrize("paper", ["small", "dino", "ibot", "dinov2", "dinov2,gram=2.0"])
def test_recipe_of_every_paper_is_valid(paper):
    config = config_lib.load(f"{RECIPE}:paper={paper}")
    build_run.check(config)
    assert config.ema.final == 1.0
    known = {"dino": 0.693, "ibot": 0.752, "dinov2": 0.816}  # the authors' READMEs
    assert config.expected.value == known.get(paper, 0.0)  # other settings have no published result
    if paper in known:
        assert config.expected.metric == "fewshot_imagenet/allshot"
        assert config.fewshot.sources == (("imagenet", "tfds:imagenet2012"),)


@pytest.mark.integration
@pytest.mark.parametrize("reader", ["tf", "python"])
def test_views_of_the_recipe_come_from_both_readers(reader):
    from vit_jax.config import images as images_lib
    from vit_jax.data import readers
    from vit_jax.data.ops import chain

    config = config_lib.load(RECIPE)
    size = images_lib.of(config.data).size
    views = chain.parse_views("data.views", config.data.views, size, 3)
    split = splits.open_source(config.data).split("train")
    pipe = readers.pipeline_of(reader)(
        split, (), 4, 0, size, 1, 1, "error", views=views, channels=3, fields=("image", "labels")
    )
    given = next(pipe.train(0, 1))
    assert given["local"].shape == (4, 6, 16, 16, 3)
    assert given["global_1"].shape == given["global_2"].shape == (4, 32, 32, 3)
    assert (given["global_1"] != given["global_2"]).any()


@pytest.mark.parametrize(
    "more, args, parts",
    [
        (")", ["ema.decay=0", "ema.final=0"], ["its teacher", "ema.decay=0.996"]),
        (", ibot=-1)", [], ["ibot=-1", "0 to"]),
        (", centring='max')", [], ["centring='max'", "sinkhorn"]),
        (", warmup='soon')", [], ["'soon' is not a duration"]),
        (", masked=(0.5, 0.1))", [], ["masked=(0.5, 0.1)"]),
        (")", ["model.pool=map"], ["pool=map", "pool=token or gap"]),
        (")", ["model.posemb=relative"], ["posemb=relative"]),
        (")", ["model.variant=Mixer-Ti/4"], ["Mixer"]),
        (")", ["model.variant=Ti/16", "data.image_size=32"], ["local_size=8", "local_size=64"]),
        (")", ["data.views=global_1: decode"], ["takes global_1 [16, 16, 3]", "global_2"]),
        (")", ["mixup.alpha=0.2"], ["mixup.alpha=0.2", "no use"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, capsys, more, args, parts):
    workdir = tmp_path / "run"
    assert run(workdir, *(f"--config.{arg}" for arg in args), more=more) == 2
    said = capsys.readouterr().err
    assert [part for part in parts if part not in said] == [], said
    assert "Traceback" not in said
    assert not workdir.exists()


def test_average_needs_a_decay():
    config = config_lib.load(f"{ROOT}/configs/quickstart.py")
    config = config_lib.changed(config, {"ema.final": 1.0, "ema.decay": 0.0})
    with pytest.raises(BadInput, match=r"ema\.final has no average"):
        build_run.check(config)
