# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Token merging: equal to numpy's, FLOPs by hand, and what it is refused with."""

import dataclasses
import json

import exports
import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
import tiny

import vit_jax
from vit_jax import tree
from vit_jax.cli.main import main
from vit_jax.errors import BadInput
from vit_jax.models import merging, variants
from vit_jax.models.merging import Merged

SIDES = (16, 24)  # 4 x 6 patches


# ---------------------------------------------------------------- the algorithm in numpy


def numpy_merge(z, sizes, keys, prefix, merge):
    """Section 3.1 and appendix D of arXiv:2210.09461 for one image, token by token."""
    even, odd = list(range(0, len(z), 2)), list(range(1, len(z), 2))
    unit = keys / np.sqrt((keys**2).sum(axis=1, keepdims=True))
    edges = []
    for a in even:
        for_a = [(unit[a] @ unit[b], -b) for b in odd if b >= prefix]
        if a >= prefix:
            best, b = max(for_a)
            edges.append((best, a, -b))
    edges.sort(key=lambda edge: -edge[0])
    total, weight = z * sizes[:, None], sizes.copy()
    gone = set()
    for _, a, b in edges[: min(merge, (len(z) - prefix) // 2)]:
        total[b] += total[a]
        weight[b] += weight[a]
        gone.add(a)
    order = [*range(prefix)]
    order += [a for a in even if a >= prefix and a not in gone] + [b for b in odd if b >= prefix]
    return total[order] / weight[order, None], weight[order]


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def attend(queries, memory, w, sizes):
    """Attention of one image with the log of the sizes added, and the keys of each head."""
    q, k, v = (
        np.einsum("ld,dnk->nlk", x, w[name]["kernel"]) + w[name]["bias"][:, None]
        for name, x in (("query", queries), ("key", memory), ("value", memory))
    )
    scores = np.einsum("nlk,nmk->nlm", q, k) / np.sqrt(q.shape[-1]) + np.log(sizes)
    mixed = np.einsum("nlm,nmk->lnk", softmax(scores), v)
    return np.einsum("lnk,nkd->ld", mixed, w["out"]["kernel"]) + w["out"]["bias"], k


def numpy_logits(cfg, params, images):
    weights = numpy_vit.as_float64(tree.unstack_blocks(params))
    x = numpy_vit.patches(images.astype(np.float64), cfg.patch)
    x = numpy_vit.linear(x, numpy_vit.flat(weights["embedding"]))
    rows = []
    for z in x:
        extra = [weights[name][0] for name in ("cls", "registers") if name in weights]
        z = np.concatenate([*extra, z])
        positions = weights["posemb"][0]
        z[: cfg.class_rows] += positions[: cfg.class_rows]
        z[cfg.prefix :] += positions[cfg.class_rows :]
        sizes = np.ones(len(z))
        for i in range(cfg.depth):
            w = weights[f"block_{i}"]
            normed = numpy_vit.layer_norm(z, w["attn_norm"], 1e-6)
            attended, keys = attend(normed, normed, w["attn"], sizes)
            z, sizes = numpy_merge(z + attended, sizes, keys.mean(axis=0), cfg.prefix, cfg.merge)
            z = z + numpy_vit.mlp(numpy_vit.layer_norm(z, w["mlp_norm"], 1e-6), w["mlp"], "tanh")
        z = numpy_vit.layer_norm(z, weights["norm"], 1e-6)
        if cfg.pool == "token":
            rows.append(z[0])
        elif cfg.pool == "gap":
            rows.append(np.average(z[cfg.prefix :], axis=0, weights=sizes[cfg.prefix :]))
        else:
            w = weights["map_head"]
            read = slice(cfg.registers, None)
            pooled, _ = attend(w["probe"][0], z[read], w["attn"], sizes[read])
            normed = numpy_vit.layer_norm(pooled, w["norm"], 1e-6)
            rows.append((pooled + numpy_vit.mlp(normed, w["mlp"], "tanh"))[0])
    return numpy_vit.linear(np.stack(rows), weights["head"])


@pytest.mark.integration
@pytest.mark.parametrize(
    "changes",
    [
        {"merge": 1},
        {"merge": 4, "scan": False},
        {"merge": 4, "unrolled": True},  # the last layer for the class token only
        {"merge": 5, "pool": "gap"},
        {"merge": 3, "pool": "gap", "registers": 2, "attention": "memory_efficient"},
        {"merge": 3, "registers": 3, "attention": "packed"},
        {"merge": 4, "pool": "map", "registers": 2},
        {"merge": 100},  # half of all tokens in each layer
    ],
    ids=str,
)
def test_logits_are_those_of_numpy(changes):
    fields = {key: changes.pop(key) for key in ("unrolled", "attention") if key in changes}
    cfg = dataclasses.replace(tiny.config(**changes), **fields)
    params, images = tiny.params(cfg, *SIDES), tiny.images(3, *SIDES)
    expected = numpy_logits(cfg, params, images)
    np.testing.assert_allclose(tiny.logits(cfg, params, images), expected, atol=1e-4)
    without = tiny.logits(dataclasses.replace(cfg, merge=0), params, images)
    assert np.abs(without - expected).max() > 0.01


@pytest.mark.parametrize("prefix", [0, 1, 2, 3])
@pytest.mark.parametrize("length, merge", [(9, 1), (10, 3), (11, 40)])
def test_sizes_and_sums_are_kept_and_tokens_without_a_patch_stay(prefix, length, merge):
    rng = np.random.default_rng(prefix)
    tokens, keys = rng.normal(size=(2, 4, length, 5)).astype(np.float32)
    keys[0, length // 2] = 0.0  # a key without a direction
    keys[1] = 0.0
    sizes = np.ones((4, length), np.float32)
    found = merging.merged(Merged(jnp.asarray(tokens), jnp.asarray(sizes)), keys, prefix, merge)
    left = length - min(merge, (length - prefix) // 2)
    assert found.tokens_BLD.shape == (4, left, 5)
    np.testing.assert_array_equal(found.sizes_BL.sum(axis=1), length)
    np.testing.assert_array_equal(found.sizes_BL[:, :prefix], 1)
    np.testing.assert_array_equal(found.tokens_BLD[:, :prefix], tokens[:, :prefix])
    total = (found.tokens_BLD * found.sizes_BL[..., None]).sum(axis=1)
    np.testing.assert_allclose(total, tokens.sum(axis=1), atol=1e-5)


def test_equal_tokens_merge_first():
    tokens = np.random.default_rng(0).normal(size=(1, 8, 6)).astype(np.float32)
    tokens[0, 4] = tokens[0, 1]
    x = Merged(jnp.asarray(tokens), jnp.ones((1, 8)))
    found = merging.merged(x, jnp.asarray(tokens), 1, 1)
    assert found.sizes_BL[0].tolist() == [1, 1, 1, 2, 1, 1, 1]  # 0 2 6, then 1 3 5 7
    np.testing.assert_allclose(found.tokens_BLD[0, 3], tokens[0, 1], rtol=1e-6)


def test_flops_are_by_hand():
    """B/16 at 224 pixels, 8 pairs a layer: 197 tokens enter, 189 leave the first layer."""
    cfg = variants.config(variant="B/16", classes=1000, merge=8)
    d, f, macs, tokens = 768, 3072, 196 * 16 * 16 * 3 * 768 + 768 * 1000, 197
    for _ in range(12):
        macs += 4 * tokens * d * d + 2 * tokens**2 * d  # attention sees every token
        macs += -(-tokens // 2) * (tokens // 2) * 64  # similarity of keys, 64 numbers each
        tokens -= 8
        macs += 2 * tokens * d * f
    assert tokens == 101
    assert cfg.forward_flops(224, 224) == 2 * macs
    whole = dataclasses.replace(cfg, merge=0)
    assert 0.7 < cfg.forward_flops(224, 224) / whole.forward_flops(224, 224) < 0.8


@pytest.mark.integration
@pytest.mark.parametrize("changes", [{"patch_dropout": 0.5}, {"drop_path": 0.5}, {"dropout": 0.3}])
def test_a_training_step_has_gradients_for_every_parameter(changes):
    cfg = tiny.config(merge=2, pool="gap", **changes)
    params, images = tiny.params(cfg, *SIDES), tiny.images(4, *SIDES)
    model = variants.make(cfg)

    @jax.jit
    def gradients(params):
        def loss(params):
            out = model.apply({"params": params}, images, train=True, key=jax.random.key(0))
            return jnp.sum(out**2)

        return jax.grad(loss)(params)

    for path, leaf in tree.leaves_with_paths(gradients(params)):
        assert np.isfinite(leaf).all(), path
        assert "key/bias" in path or np.abs(leaf).max() > 0, path


def test_parameters_are_those_without_merging():
    cfg = tiny.config(merge=4)
    merged, whole = (variants.shapes(c, *SIDES) for c in (cfg, tiny.config()))
    assert jax.tree.all(jax.tree.map(lambda a, b: a.shape == b.shape, merged, whole))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "changes, part",
    [
        ({"rope": "axial"}, "merge needs positions that the stem adds"),
        ({"posemb": "relative2d"}, "merge needs positions that the stem adds"),
        ({"posemb_at": "every"}, "merge needs positions that the stem adds"),
        ({"window": 2}, "window needs every patch: patch_dropout=0 and merge=0"),
        ({"parallel": True}, "merge comes between attention and MLP"),
        ({"merge": -1}, "model.merge=-1"),
    ],
)
def test_options_that_do_not_go_with_it(changes, part):
    with pytest.raises(BadInput, match=part):
        tiny.config(**{"merge": 2, **changes})


def test_models_without_attention_do_not_take_it():
    with pytest.raises(BadInput, match=r"model\.merge=2: Mixer.* has no merge"):
        tiny.mixer(merge=2)


@pytest.mark.parametrize(
    "call, needed",
    [
        (lambda cfg: cfg.for_maps((1,)), "feature maps"),
        (lambda cfg: cfg.for_patches(3), "predictions of patches"),
        (lambda cfg: cfg.for_tokens(), "tokens of views"),
    ],
)
def test_outputs_with_a_place_are_refused(call, needed):
    with pytest.raises(BadInput, match=f"model.merge=2: .* and {needed} need one; leave"):
        call(tiny.config(merge=2, pool="gap"))


@pytest.mark.parametrize(
    "options, name",
    [
        ({"real_BL": np.ones((2, 24), bool)}, "padding"),
        ({"visible_BK": np.zeros((2, 3), np.int32)}, "patches that are left out"),
        ({"mutable": ["intermediates"]}, "the attention of each layer"),
    ],
)
def test_calls_that_name_tokens_are_refused(options, name):
    cfg = tiny.config(merge=2)
    images = tiny.images(2, *SIDES)
    with pytest.raises(BadInput, match=f"model.merge=2: .* no place for {name}"):
        variants.make(cfg).apply({"params": tiny.params(cfg, *SIDES)}, images, **options)


# ---------------------------------------------------------------- weights that are used with it


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of a ViT for images of 8 pixels, 2 x 2 patches and a class token."""
    return exports.run(tmp_path_factory.mktemp("run"))


@pytest.mark.integration
def test_loaded_weights_merge_as_they_are_told(workdir):
    whole, params, preprocess = vit_jax.load(workdir)
    model, same, _ = vit_jax.load(workdir, merge=1)
    assert (whole.cfg.merge, model.cfg.merge) == (0, 1)
    images = preprocess(np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8))
    found = model.apply({"params": same}, images, train=False)
    expected = numpy_logits(model.cfg, jax.device_get(params), images)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    with pytest.raises(BadInput, match=r"model\.merge=-1"):
        vit_jax.load(workdir, merge=-1)


def test_weights_of_another_family_do_not_merge(tmp_path):
    cfg = tiny.mixer()
    vit_jax.save(tmp_path / "mixer.npz", variants.make(cfg), tiny.params(cfg))
    with pytest.raises(BadInput, match=r"model\.merge=2: Mixer.* has no merge"):
        vit_jax.load(tmp_path / "mixer.npz", merge=2, image_size=tiny.size(cfg))


@pytest.mark.integration
def test_evaluation_says_how_many_pairs_were_merged(digits_run, tmp_path):
    found = {}
    for merge in (0, 3):
        out = tmp_path / str(merge)
        words = ["evaluate", str(digits_run), f"--merge_tokens={merge}", f"--out={out}"]
        assert main(words) == 0
        found[merge] = json.loads((out / "evaluation.json").read_text())
    assert "merge" not in found[0]["model"]
    assert found[3]["model"]["merge"] == 3
    assert found[3]["confusion"] != found[0]["confusion"]
    assert main(["evaluate", str(digits_run), "--merge_tokens=-2", f"--out={out}"]) == 2
