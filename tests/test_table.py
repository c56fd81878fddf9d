# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables of names: templates, operations with their inverses, no rule in another's way."""

import foreign
import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.weights import convert
from vit_jax.weights.formats import name_table
from vit_jax.weights.formats.name_table import Context, Format, rule

# --- templates ---


@pytest.mark.parametrize(
    "template, name, values",
    [
        ("head", "head", {}),
        ("head/{kb}", "head/bias", {"kb": "bias"}),
        ("a.b/{sb}", "a.b/scale", {"sb": "scale"}),
        ("block_{i}/{qkvo}/{kb}", "block_17/out/kernel", {"i": 17, "qkvo": "out", "kb": "kernel"}),
        ("unit{u:02}/gn{n}", "unit03/gn1", {"u": 3, "n": 1}),
        ("unit{u:02}", "unit36", {"u": 36}),
        ("blocks.{u:-1}.conv", "blocks.0.conv", {"u": 1}),
        ("blocks.{u:-1}.conv", "blocks.35.conv", {"u": 36}),
    ],
)
def test_template_and_name(template, name, values):
    assert name_table.match(template, name) == values
    assert name_table.render(template, values) == name


@pytest.mark.parametrize(
    "template, name",
    [
        ("head", "head/kernel"),
        ("head", "Head"),
        ("head/{kb}", "head/scale"),
        ("head/{kb}", "x/head/bias"),
        ("a.b", "axb"),
        ("block_{i}", "block_"),
        ("block_{i}", "block_x"),
        ("block_{i}", "block_01"),
        ("block_{i}", "block_1\n"),
        ("block_{i}", "block_-1"),
        ("block_{i}", "block_\u0661"),  # a digit, though not one of ours
        ("unit{u:02}", "unit3"),
        ("unit{u:02}", "unit003"),
        ("blocks.{u:-1}", "blocks.00"),
    ],
)
def test_name_that_the_template_would_not_write(template, name):
    assert name_table.match(template, name) is None


# --- operations, each written out with loops ---


def numbered(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def inverted(op: name_table.Op, foreign_array: np.ndarray, context: Context) -> tuple:
    """Returns what an op reads of an array; writing it gives the array again."""
    parts = op.read(foreign_array, context)
    np.testing.assert_array_equal(op.write(parts, context), foreign_array)
    return parts


def test_convolution_and_linear_layer():
    given = numbered(5, 4, 3, 2)  # out, in, rows, columns
    (found,) = inverted(name_table.CONV, given, Context())
    assert found.shape == (3, 2, 4, 5)
    for out, within, row, column in np.ndindex(given.shape):
        assert found[row, column, within, out] == given[out, within, row, column]
    (found,) = inverted(name_table.LINEAR, numbered(3, 2), Context())
    np.testing.assert_array_equal(found, [[0, 2, 4], [1, 3, 5]])
    (found,) = inverted(name_table.HEAD_OIHW, numbered(3, 2, 1, 1), Context())
    np.testing.assert_array_equal(found, [[0, 2, 4], [1, 3, 5]])
    (found,) = inverted(name_table.HEAD_HWIO, numbered(1, 1, 2, 3), Context())
    np.testing.assert_array_equal(found, [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_fused_queries_keys_and_values(parts):
    heads, head_dim, width = 3, 2, 4
    weight, bias = numbered(parts * heads * head_dim, width), numbered(parts * heads * head_dim)
    context = Context(heads=heads)
    kernels = inverted(name_table.heads_kernel(parts), weight, context)
    biases = inverted(name_table.heads_bias(parts), bias, context)
    assert [k.shape for k in kernels] == [(width, heads, head_dim)] * parts
    assert [b.shape for b in biases] == [(heads, head_dim)] * parts
    for part, d, head, k in np.ndindex(parts, width, heads, head_dim):
        row = part * heads * head_dim + head * head_dim + k
        assert kernels[part][d, head, k] == weight[row, d]
        assert biases[part][head, k] == bias[row]


def test_projection_of_the_heads():
    (found,) = inverted(name_table.HEADS_OUT, numbered(5, 6), Context(heads=3))
    assert found.shape == (3, 2, 5)
    for head, k, d in np.ndindex(found.shape):
        assert found[head, k, d] == numbered(5, 6)[d, head * 2 + k]


def test_channels():
    (found,) = inverted(name_table.CHANNELS_4D, numbered(1, 1, 1, 4), Context())
    np.testing.assert_array_equal(found, [0, 1, 2, 3])
    for given in (numbered(4), numbered(1, 1, 1, 4)):  # files have either
        for op in (name_table.CHANNELS_4D, name_table.CHANNELS):
            np.testing.assert_array_equal(op.read(given, Context())[0], [0, 1, 2, 3])
    inverted(name_table.CHANNELS, numbered(4), Context())


@pytest.mark.parametrize(
    "op, shape",
    [
        (name_table.CHANNELS_4D, (2, 2)),
        (name_table.CHANNELS, (4, 1)),
        (name_table.HEAD_HWIO, (2, 1, 3, 4)),
        (name_table.HEAD_HWIO, (3, 4)),
        (name_table.HEAD_OIHW, (4, 3, 1, 2)),
        (name_table.CONV, (3, 4)),
        (name_table.heads_kernel(3), (10, 4)),
        (name_table.heads_bias(3), (10,)),
        (name_table.HEADS_OUT, (4, 7)),
        (name_table.POSEMB_GRID, (4,)),
    ],
)
def test_shape_that_an_operation_cannot_take(op, shape):
    one = Format("x", "vit", (rule("a", "ours", op),), {})
    with pytest.raises(BadInput, match=r"^a has shape \("):
        name_table.read(one, {"a": numbered(*shape)}, Context(heads=2, class_rows=1))


@pytest.mark.parametrize(
    "op, class_rows, patches, rows, added",
    [
        (name_table.POSEMB_GRID, 0, 0, 4, False),
        (name_table.POSEMB_GRID, 1, 0, 4, True),
        (name_table.POSEMB_GRID, 1, 0, 5, False),  # the class token's row is there
        (name_table.POSEMB, 1, 0, 4, True),
        (name_table.POSEMB, 1, 0, 5, False),
        (name_table.POSEMB, 1, 6, 6, True),  # 2 x 3: only who knows the image can tell
        (name_table.POSEMB, 1, 3, 4, False),
    ],
)
def test_row_of_the_class_token(op, class_rows, patches, rows, added):
    given = 1 + numbered(1, rows, 2)
    (found,) = op.read(given, Context(class_rows=class_rows, patches=patches))
    np.testing.assert_array_equal(found[:, added:], given)
    assert found.shape[1] == rows + added
    assert not added or not found[:, 0].any()


def test_position_embeddings_are_written_without_the_row_where_the_format_has_none():
    given = numbered(1, 5, 2)
    grid = name_table.POSEMB_GRID.write((given,), Context(class_rows=1))
    np.testing.assert_array_equal(grid, given[:, 1:])
    np.testing.assert_array_equal(name_table.POSEMB_GRID.write((given,), Context()), given)
    np.testing.assert_array_equal(name_table.POSEMB.write((given,), Context(class_rows=1)), given)
    registers = name_table.POSEMB.write((given,), Context(class_rows=1, registers=2))
    np.testing.assert_array_equal(registers, given[:, 1:])


def test_class_token_takes_its_position_embedding_along():
    flat = {"cls": numbered(1, 1, 2), "posemb": 1 + numbered(1, 3, 2), "x": numbered(1)}
    found = name_table.fuse_class_row(flat)
    np.testing.assert_array_equal(found["cls"], [[[1, 3]]])
    np.testing.assert_array_equal(found["posemb"], [[[0, 0], [3, 4], [5, 6]]])
    np.testing.assert_array_equal(flat["posemb"], 1 + numbered(1, 3, 2))  # as it was
    without = {"posemb": numbered(1, 3, 2)}
    assert name_table.fuse_class_row(without) is without


# --- reading and writing with a table ---

EXAMPLE = Format(
    "example",
    "vit",
    (
        rule("fused.{i}", ("block_{i}/a", "block_{i}/b"), name_table.heads_bias(2)),
        rule("norm", "norm"),
    ),
    {},
    aliases=((r"^old\.", "fused."),),
)


def test_one_foreign_tensor_may_be_several_of_ours():
    given = {"fused.0": numbered(4), "norm": numbered(2), "old.1": 4 + numbered(4)}
    found = name_table.read(EXAMPLE, given, Context(heads=1))
    assert not given  # emptied on the way
    assert {name: a.tolist() for name, a in found.items()} == {
        "block_0/a": [[0, 1]],
        "block_0/b": [[2, 3]],
        "norm": [0, 1],
        "block_1/a": [[4, 5]],
        "block_1/b": [[6, 7]],
    }
    back = name_table.write(EXAMPLE, found, Context())
    assert {name: a.tolist() for name, a in back.items()} == {
        "fused.0": [0, 1, 2, 3],
        "norm": [0, 1],
        "fused.1": [4, 5, 6, 7],
    }


def test_written_arrays_are_in_row_order():
    one = Format("x", "vit", (rule("a", "a", name_table.LINEAR),), {})
    assert name_table.write(one, {"a": numbered(2, 3)}, Context())["a"].flags["C_CONTIGUOUS"]


def test_both_spellings_of_a_tensor():
    given = {"fused.1": numbered(4), "old.1": numbered(4)}
    with pytest.raises(BadInput, match=r"old\.1 is a second tensor for block_1/a"):
        name_table.read(EXAMPLE, given, Context(heads=1))


def test_tensor_without_a_name_in_the_format():
    flat = {"norm": numbered(1), **{f"x{i}": numbered(1) for i in range(8)}}
    with pytest.raises(BadInput, match=r"example .*no name for x0, .*, x5 \.\.\.; ") as caught:
        name_table.write(EXAMPLE, flat, Context())
    assert "x6" not in str(caught.value)


# --- the tables that there are ---

MODELS = {
    "vit": (foreign.vit(), 8, 8),
    "pre-logits": (foreign.vit(representation=9), 8, 8),
    "map": (foreign.vit(pool="map"), 12, 12),
    "registers": (foreign.vit(registers=2), 8, 8),
    "hybrid": (foreign.hybrid(), 16, 16),
    "root": (foreign.hybrid(stages=()), 32, 32),
    "bit": (foreign.bit(), 32, 32),
    "mixer": (foreign.mixer(), 8, 8),
}


def tables(model: str) -> list[Format]:
    family = {"bit": "bit", "mixer": "mixer"}.get(model, "vit")
    known = [f for forms in convert.FORMATS.values() for f in forms if f.family == family]
    return [
        f for f in known if not f.architectures
    ]  # those of named models have heads of their own


def has_all_of(form: Format, name: str, names: list[str]) -> bool:
    """Whether a table has a name, and `names` include those that share a tensor with it."""
    found = form.rule_of_ours(name)
    return found is not None and all(name_table.render(o, found[1]) in names for o in found[0].ours)


def whole(form: Format, names: list[str]) -> bool:
    return all(has_all_of(form, name, names) for name in names)


@pytest.mark.parametrize("model", MODELS)
def test_weights_come_back_bit_for_bit_from_every_table_that_has_them(model):
    weights, having = foreign.flat(foreign.random(*MODELS[model])), 0
    for form in tables(model):
        if whole(form, list(weights)):
            having += 1
            if "clip" in form.kinds:  # a projection without bias
                weights = weights | {"head/bias": np.zeros_like(weights["head/bias"])}
            registers = 2 if model == "registers" else 0
            context = Context(4, int("cls" in weights), registers=registers)
            expected = form.before_write(weights)  # big_vision's class row
            back = name_table.read(form, name_table.write(form, weights, context), context)
            foreign.assert_same(back, expected)
    assert having >= 2 - (model == "registers")


@pytest.mark.parametrize("model", MODELS)
def test_no_two_rules_of_a_table_know_one_name(model):
    weights = foreign.flat(foreign.zeros(*MODELS[model]))
    for form in tables(model):
        names = [name for name in weights if form.rule_of_ours(name)]
        for name in names:
            knowing = [
                r for r in form.rules for t in r.ours if name_table.match(t, name) is not None
            ]
            assert len(knowing) == 1, (form.name, name)
        names = [name for name in names if has_all_of(form, name, list(weights))]
        if "clip" in form.kinds:
            weights = weights | {"head/bias": np.zeros(1)}
        written = {n for n in name_table.write(form, {n: weights[n] for n in names}, Context(4))}
        for name in written:
            knowing = [r for r in form.rules if name_table.match(r.foreign, name) is not None]
            assert len(knowing) == 1, (form.name, name)
            assert form.canonical(name) == name  # an alias never changes what is written
