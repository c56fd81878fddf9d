# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The paths of attention agree, and the right one is chosen for a device."""

import dataclasses
import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from test_train_step import rules_of

from vit_jax.build import execution
from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.models import attention, attention_math, products, variants

SHAPES = {"vit": {}, "map, no scan": {"pool": "map", "scan": False}}


def weighted(cfg, rules=None):
    """(params, images) -> a weighted sum of the squares of logits."""
    model = variants.make(cfg, rules)

    def value(params, images):
        out = model.apply({"params": params}, images, train=True, key=jax.random.key(1))
        return jnp.sum(jnp.square(out) * jnp.linspace(0.5, 1.5, cfg.classes)[None])

    return jax.jit(jax.value_and_grad(value))


@functools.lru_cache
def both(kind, dtype, remat="none"):
    """(value, gradients) of the plain path and of jax.nn.dot_product_attention."""
    plain = tiny.config(**SHAPES[kind], dtype=dtype, remat=remat, depth=2)
    fused = tiny.config(**SHAPES[kind], dtype=dtype, remat=remat, depth=2, attention="fused")
    assert (plain.attention, fused.attention) == ("plain", "xla")
    found = []
    with jax.default_matmul_precision("highest"):
        for cfg in (plain, fused):
            found.append(weighted(cfg)(tiny.params(cfg), tiny.images()))
    return jax.tree.map(np.asarray, found)


def assert_agree(one, other, tolerance):
    (value, grads), (expected, expected_grads) = one, other
    np.testing.assert_allclose(value, expected, rtol=tolerance)
    largest = max(np.abs(y).max() for y in jax.tree.leaves(expected_grads))
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(grads), jax.tree.leaves(expected_grads), strict=True
    ):
        # Scores of a query move together with a bias of keys, so its gradient is exactly 0: what is
        # found is rounding, of sums as large as those of the other gradients.
        nothing = "['key']['bias']" in jax.tree_util.keystr(path)
        bound = tolerance * (largest / 10 if nothing else np.abs(y).max() + 1)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=bound, err_msg=str(path))


def differentiated(query, key, value, bias, keep, rate):
    """`attention_math.memory_efficient` as one would write it, for jax to differentiate."""
    scores = jnp.einsum("blnk,bmnk->bnlm", query, key)
    weights = jax.nn.softmax(scores if bias is None else scores + bias)
    weights = weights if keep is None else weights * keep / (1 - rate)
    return jnp.einsum("bnlm,bmnk->blnk", weights, value)


def given(*, bias, keep, tokens=5, memory=7):
    """Arguments of `attention_math.memory_efficient` for two images and three heads of four."""
    keys = iter(jax.random.split(jax.random.key(0), 5))
    query = jax.random.normal(next(keys), (2, tokens, 3, 4))
    key, value = (jax.random.normal(next(keys), (2, memory, 3, 4)) for _ in range(2))
    square = (2, 3, tokens, memory)
    bias = jax.random.normal(next(keys), square) if bias else None
    return query, key, value, bias, jax.random.bernoulli(next(keys), 0.7, square) if keep else None


def assert_same_derivatives(function, expected, arrays):
    found = []
    with jax.default_matmul_precision("highest"):
        for one in (function, expected):
            out, back = jax.vjp(one, *arrays)
            found.append((out, back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-6), *found)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_the_backward_pass_of_attention_is_what_differentiation_finds(bias, keep):
    *arrays, kept = given(bias=bias, keep=keep)
    assert_same_derivatives(
        lambda *a: attention_math.memory_efficient(*a, kept, 0.3),
        lambda *a: differentiated(*a, kept, 0.3),
        arrays,
    )


@pytest.mark.parametrize("keys_first", [False, True])
@pytest.mark.parametrize("beside, head_dim", [(1, 4), (3, 4), (1, 80)])
def test_the_backward_pass_of_packed_heads_is_what_differentiation_finds(
    beside, head_dim, keys_first
):
    keys = jax.random.split(jax.random.key(0), 3)
    arrays = [jax.random.normal(key, (2, 5, 3, head_dim)) / head_dim**0.25 for key in keys]

    def packed(*arrays):
        grouped = (x.reshape(*x.shape[:2], 3 // beside, beside * head_dim) for x in arrays)
        return attention_math.packed(*grouped, head_dim, keys_first).reshape(arrays[0].shape)

    assert_same_derivatives(packed, lambda *a: differentiated(*a, None, None, 0.0), arrays)


@pytest.mark.parametrize("keys_first", [False, True])
@pytest.mark.parametrize("beside, head_dim", [(1, 64), (2, 64), (1, 80)])
def test_gradients_of_packed_heads_in_bfloat16_are_near_those_of_float32(
    beside, head_dim, keys_first
):
    """0.37 % of queries and keys; more if the sum or the mean of weights is rounded to bfloat16."""
    keys = jax.random.split(jax.random.key(0), 4)
    shape = 2, 65, 4 // beside, head_dim * beside
    rounded = [jax.random.normal(key, shape).astype(jnp.bfloat16) for key in keys]
    rounded[0] /= 8
    *arrays, grad = (x.astype(jnp.float32).reshape(2, 65, 4, head_dim) for x in rounded)
    with jax.default_matmul_precision("highest"):
        exact = jax.vjp(lambda *a: differentiated(*a, None, None, 0.0), *arrays)[1](grad)
        of_packed = functools.partial(attention_math.packed, head_dim=head_dim)
        _, back = jax.vjp(functools.partial(of_packed, keys_first=keys_first), *rounded[:3])
        packed = back(rounded[3])
    for found, expected in zip(packed, exact, strict=True):
        error = jnp.linalg.norm(found.astype(jnp.float32).reshape(expected.shape) - expected)
        assert error < 0.0038 * jnp.linalg.norm(expected)


@pytest.mark.parametrize("bias", [False, True])
def test_plain_attention_has_derivatives_forward(bias):
    *arrays, kept = given(bias=bias, keep=True)
    some = [a for a in arrays if a is not None]

    def of(function):
        return lambda *a: function(*a, *[None] * (4 - len(a)), kept, 0.3)

    moved = [jnp.cos(a) for a in some]
    found, expected = (
        jax.jvp(of(f), some, moved)[1] for f in (attention_math.plain, differentiated)
    )
    np.testing.assert_allclose(found, expected, atol=2e-6)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(of(attention_math.memory_efficient), some, moved)


PATHS = {
    "plain": attention_math.plain,
    "memory_efficient": attention_math.memory_efficient,
    "packed": lambda *arrays: attention_math.packed(*arrays[:3], 8, False),
    "packed, keys first": lambda *arrays: attention_math.packed(*arrays[:3], 8, True),
    "packed, two beside each other": lambda *arrays: two_beside(*arrays[:3])[..., :8],
}


def two_beside(*arrays):
    """Packed attention of two equal heads of 8."""
    return attention_math.packed(*(jnp.tile(x, (1, 1, 1, 2)) for x in arrays), 8, False)


@pytest.mark.parametrize("path", PATHS)
def test_large_scores_in_bfloat16_give_the_weights_of_float64(path):
    query, key = (jax.random.normal(jax.random.key(i), (2, 8, 1, 8)) for i in (0, 1))
    query, key = (2.4 + x / 20 for x in (query, key))  # all scores are close to 45
    query, key = query.astype(jnp.bfloat16), key.astype(jnp.bfloat16)
    value = jnp.tile(jnp.eye(8, dtype=jnp.bfloat16)[None, :, None], (2, 1, 1, 1))  # shows weights
    weights = np.asarray(PATHS[path](query, key, value, None, None, 0.0), np.float64)
    scores = np.einsum("blnk,bmnk->blnm", *(np.asarray(x, np.float64) for x in (query, key)))
    assert scores.min() > 43
    exact = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exact /= exact.sum(axis=-1, keepdims=True)
    # bfloat16 rounds a weight by up to 0.4 % of it, and its sum again.
    assert (np.abs(weights - exact) / exact.max(axis=-1, keepdims=True)).max() < 0.008


def test_derivatives_of_scores_in_bfloat16_multiply_in_bfloat16():
    def of(*arrays):
        return attention_math.plain(*arrays, None, None, 0.0).astype(jnp.float32).sum()

    arrays = [x.astype(jnp.bfloat16) for x in given(bias=False, keep=False)[:3]]
    traced = str(jax.make_jaxpr(jax.grad(of, argnums=(0, 1, 2)))(*arrays))
    products = re.findall(r"(\w+)\[[\d,]+\] = dot_general", traced)
    assert products.count("f32") == 1  # the scores
    assert products.count("bf16") == 5


@pytest.mark.integration
def test_a_model_that_is_not_trained_has_derivatives_forward():
    model = variants.make(tiny.config(depth=2))
    params, images = tiny.params(model.cfg), tiny.images()
    f = functools.partial(model.apply, {"params": params}, train=False)
    _, slope = jax.jvp(f, (images,), (jnp.ones_like(images),))
    up, down = f(images + 1e-2), f(images - 1e-2)
    np.testing.assert_allclose(slope, (up - down) / 2e-2, atol=1e-3 + 0.02 * abs(slope).max())


def test_weights_are_kept_once_for_the_backward_pass():
    _, back = jax.vjp(
        lambda *a: attention_math.memory_efficient(*a, None, None, 0.0), *given(bias=0, keep=0)[:3]
    )
    shapes = [x.shape for x in jax.tree.leaves(back)]
    assert shapes.count((2, 3, 5, 7)) == 1
    assert sorted(shapes) == sorted([(2, 3, 5, 7), (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)])


def test_on_a_cpu_tokens_are_rows_of_one_product():
    x, kernel = jnp.ones((2, 5, 3, 4)), jnp.ones((3, 4, 6))
    axes = (((2, 3), (0, 1)), ((), ()))
    rules = rules_of((1, 2, 1, 1))
    traced = str(jax.make_jaxpr(lambda *a: products.product(rules)(*a, axes))(x, kernel))
    assert re.search(r"f32\[10,6\] = dot_general", traced)
    assert products.product(None) is jax.lax.dot_general
    found = products.product(rules)(x, kernel, axes)
    assert (found.shape, float(found.min()), float(found.max())) == ((2, 5, 6), 12.0, 12.0)
    of_tokens = dataclasses.replace(rules, table=(("act_tokens", ("data",)),))
    assert products.product(of_tokens) is jax.lax.dot_general


@pytest.mark.integration
@pytest.mark.parametrize("kind", SHAPES)
def test_both_paths_agree_in_value_and_gradients(kind):
    assert_agree(*both(kind, "float32"), 2e-5)


@pytest.mark.integration
def test_both_paths_agree_in_bfloat16():
    plain, fused = both("vit", "bfloat16")
    assert_agree(fused, plain, 0.1)  # bfloat16 has 8 bits
    exact = both("vit", "float32")[0]
    assert_agree(fused, exact, 0.2)  # as near to the truth


@pytest.mark.integration
@pytest.mark.parametrize("remat", ["dots", "query,key,value,attention"])
def test_the_fused_path_may_be_recomputed(remat):
    assert_agree(both("vit", "float32", remat)[1], both("vit", "float32")[0], 2e-5)


@pytest.mark.integration
def test_both_paths_agree_where_heads_and_batch_are_split():
    rules = rules_of((1, 2, 2, 2))
    cfg = tiny.config(depth=2, attention="fused")
    params, images = tiny.params(cfg), tiny.images(8)
    with jax.default_matmul_precision("highest"):
        expected = weighted(tiny.config(depth=2))(params, images)
        over = jax.device_put(images, rules.sharding(("act_batch",), (8,)))
        program = weighted(cfg, rules).lower(jax.device_put(params, rules.replicated), over)
        found = program.compile()(jax.device_put(params, rules.replicated), over)
    assert_agree(jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, expected), 2e-5)
    text = program.compile().as_text()
    # Scores of a device are those of a quarter of the images and half of the heads.
    scores = set(re.findall(r"f32\[([\d,]+),8,8\]", text))  # 7 tokens and one that none sees
    sizes = {int(np.prod([int(n) for n in shape.split(",")])) for shape in scores}
    assert 2 * 2 in sizes
    assert max(sizes) <= 2 * 2 * 2  # of both layers


@pytest.mark.integration
def test_even_and_odd_lengths_agree_and_tokens_may_be_split():
    table = (("act_batch", ("data", "fsdp")), ("act_tokens", ("tensor",)))
    rules = dataclasses.replace(rules_of((1, 2, 2, 2)), table=table)
    cfg = tiny.config(depth=2, pool="gap", attention="fused")  # 6 tokens
    params, images = tiny.params(cfg), tiny.images(8)
    with jax.default_matmul_precision("highest"):
        expected = weighted(tiny.config(depth=2, pool="gap"))(params, images)
        one = weighted(cfg)(params, images)
        given = jax.device_put(images, rules.sharding(("act_batch",), (8,)))
        split = weighted(cfg, rules)(jax.device_put(params, rules.replicated), given)
    for found in (one, split):
        assert_agree(*(jax.tree.map(np.asarray, x) for x in (found, expected)), 2e-5)


@jax.custom_vjp
def spoilt(x):
    """Returns x; the gradient of its last token is wrong, as cuDNN's may be."""
    return x


spoilt.defvjp(lambda x: (x, None), lambda _, grad: (grad.at[:, -1].set(jnp.nan),))


@pytest.mark.parametrize("queries, memory", [(5, 5), (6, 6), (1, 5), (2, 5), (3, 4)])
@pytest.mark.parametrize("rope", ["none", "axial"])
def test_padding_to_even_lengths_changes_no_value_or_gradient(queries, memory, rope, monkeypatch):
    def dot_product_attention(query, *arrays, key_value_seq_lengths, **options):
        if key_value_seq_lengths is not None:
            arrays = tuple(map(spoilt, arrays))
        return real(query, *arrays, key_value_seq_lengths=key_value_seq_lengths, **options)

    real = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", dot_product_attention)
    tokens = jax.random.normal(jax.random.key(0), (2, memory, 16))
    extras = attention.Extras(norm="layer", rope=rope, biases="no_key")
    places = jax.random.normal(jax.random.key(1), (memory, 2))

    def made(path):
        return attention.Attention(2, 0.0, "float32", None, path=path, extras=extras)

    def loss(params, tokens, path):
        out = made(path).apply(params, tokens[:, :queries], tokens, None, places)
        assert out.shape == (2, queries, 16)
        return jnp.sum(out * jnp.cos(jnp.arange(out.size).reshape(out.shape)))

    init = jax.jit(made("plain").init)
    params = init(jax.random.key(2), tokens[:, :queries], tokens, None, places)
    params = jax.tree.map(lambda x: x + 0.1, params)  # biases that are not 0
    differentiated = jax.jit(jax.value_and_grad(loss, (0, 1)), static_argnums=2)
    found, expected = (differentiated(params, tokens, path) for path in ("xla", "plain"))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)


def test_evaluation_takes_the_same_path():
    plain, fused = tiny.config(), tiny.config(attention="fused")
    params, images = tiny.params(plain), tiny.images()
    found, expected = tiny.logits(fused, params, images), tiny.logits(plain, params, images)
    assert np.any(found != expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_cudnn_is_given_whole_sequences_of_even_length_by_each_device(monkeypatch):
    """At 197 tokens; cuDNN itself runs on a GPU alone, so jax's other path stands in for it."""
    calls = []

    def dot_product_attention(*arrays, key_value_seq_lengths, implementation):
        assert implementation == "cudnn"
        calls.append(
            (*(x.shape for x in arrays), key_value_seq_lengths.shape, str(arrays[0].dtype))
        )
        return real(*arrays, key_value_seq_lengths=key_value_seq_lengths, implementation="xla")

    real = jax.nn.dot_product_attention
    rules = rules_of((1, 2, 2, 2))
    cfg = variants.config(variant="S/16", dtype="bfloat16", depth=2, remat="dots", classes=3)
    images = jax.ShapeDtypeStruct(
        (8, 224, 224, 3), jnp.float32, sharding=rules.sharding(("act_batch",), (8,))
    )
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rules.replicated),
        variants.shapes(cfg, 224, 224),
    )
    monkeypatch.setattr(jax.nn, "dot_product_attention", dot_product_attention)
    cfg = dataclasses.replace(cfg, attention="cudnn")
    weighted(cfg, rules).trace(params, images)
    each = (2, 198, 3, 64)  # 2 of 8 images, 3 of 6 heads, and as many lengths
    assert set(calls) == {(each, each, each, (2,), "bfloat16")}


@pytest.mark.skipif(
    jax.devices()[0].platform != "gpu",
    reason="cuDNN needs a GPU; VIT_JAX_TEST_PLATFORM=cuda runs on one",
)
@pytest.mark.parametrize("patch", [4, 1])  # 7 tokens, 97 tokens: odd
def test_cudnn_agrees_with_the_plain_path(patch):
    given = {"variant": f"Ti/{patch}", "dtype": "bfloat16", "depth": 2}
    plain = tiny.config(**given)
    rules = rules_of((1, 1, 1, 1))
    fused = formed(plain, "fused", rules).cfg
    assert fused.attention == "cudnn"
    given = tiny.params(plain, tiny.HEIGHT, tiny.WIDTH), tiny.images()
    found = weighted(fused, rules)(*given), weighted(plain)(*given)
    assert_agree(*jax.tree.map(np.asarray, found), 0.1)


# --- which path ---


def devices(platform, capability="9.0", kind=""):
    """Returns the facts that `execution.choose` reads of a mesh, without its devices."""
    device = types.SimpleNamespace(
        platform=platform, compute_capability=capability, device_kind=kind
    )
    mesh = types.SimpleNamespace(devices=np.array([device]))
    return types.SimpleNamespace(mesh=mesh, parts=lambda axis: 1)


def formed(cfg, wanted, rules):
    section = sections.Model(attention=wanted)
    platform = rules.mesh.devices.flat[0].platform
    return execution.choose(cfg, section, rules, platform, 0.0, (224, 224))


def chosen(wanted="auto", rules=None, **changes):
    """Returns the path, and the reason."""
    cfg = variants.config(**{"variant": "B/16", "classes": 9, "dtype": "bfloat16"} | changes)
    made = formed(cfg, wanted, rules or devices("gpu"))
    return made.cfg.attention, made.reason


@pytest.mark.parametrize("variant", ["B/16", "H/14", "g/14", "R50+L/32"])
def test_auto_is_cudnn_on_a_gpu(variant):
    assert chosen(variant=variant)[0] == "cudnn"
    assert chosen("fused", variant=variant)[0] == "cudnn"
    assert chosen("plain", variant=variant)[0] == "memory_efficient"


@pytest.mark.parametrize("platform, path", [("cpu", "memory_efficient"), ("tpu", "packed")])
def test_auto_is_another_path_elsewhere(platform, path):
    assert chosen(rules=devices(platform))[0] == path
    assert chosen("plain", rules=devices(platform))[0] == path


def test_fused_attention_is_that_of_the_platform():
    assert chosen("fused", devices("cpu"), attention="fused")[0] == "xla"
    assert chosen("fused", devices("tpu"), attention="fused")[0] == "splash"


@pytest.mark.parametrize(
    "changes, rules, word",
    [
        ({"attention_dropout": 0.1}, None, "model.attention_dropout=0.1"),
        ({"posemb": "relative"}, None, "model.posemb=relative"),
        ({"dtype": "float32"}, None, "model.dtype=float32"),
        ({"heads": 64}, None, "these have 12"),
        ({"heads": 2}, None, "these have 384"),
        ({"heads": 4}, devices("gpu", "8.0"), "128 numbers, these have 192"),
        ({}, devices("gpu", "7.5"), "'7.5'"),
        ({}, devices("gpu", "gfx942"), "'gfx942'"),
    ],
)
def test_what_cudnn_cannot_do_is_memory_efficient_and_the_reason_is_told(changes, rules, word):
    path, reason = chosen("auto", rules, **changes)
    assert path == "memory_efficient"
    assert reason.count(word) == 1
    with pytest.raises(BadInput, match=r"model\.attention=fused.*leave") as caught:
        chosen("fused", rules, **changes)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"attention_dropout": 0.1}, "model.attention_dropout=0.1"),
        ({"posemb": "relative"}, "model.posemb=relative"),
    ],
)
def test_what_cannot_be_packed_is_memory_efficient_and_the_reason_is_told(changes, word):
    path, reason = chosen(rules=devices("tpu"), **changes)
    assert path == "memory_efficient"
    assert reason.count(word) == 1


def test_wide_heads_are_fine_on_newer_gpus():
    assert chosen(heads=4)[0] == "cudnn"
    assert chosen(rules=devices("gpu", "8.6"))[0] == "cudnn"


@pytest.mark.parametrize(
    "heads, head_dim, devices, expected",
    [(12, 64, 1, 2), (16, 80, 1, 1), (3, 64, 1, 1), (12, 32, 1, 4), (6, 32, 1, 3), (12, 32, 2, 3),
     (12, 64, 4, 1), (4, 256, 1, 1)],
)  # fmt: skip
def test_heads_beside_each_other_fill_128_numbers_on_one_device(heads, head_dim, devices, expected):
    rules = types.SimpleNamespace(parts={"act_heads": devices}.__getitem__)
    assert attention.heads_in_group(heads, head_dim, rules) == expected


def test_a_path_that_cannot_is_never_taken_in_silence():
    cfg = tiny.config(attention="fused")
    module = attention.Attention(cfg.heads, 0.1, jnp.float32, None, path="xla")
    x = jnp.zeros((2, 3, 8))
    with pytest.raises(AssertionError):
        module.init(jax.random.key(0), x, x, jax.random.key(1))
