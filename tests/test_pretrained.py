# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published weights: names, architecture from a file, and fitting into another model."""

import io
import zipfile

import numpy as np
import pytest
import scipy.ndimage
import tiny

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import pretrained, vit

# Parts of a block in the files, written down from reference/compatibility.md, section 2.4.
LINEN = ("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
PRE_LINEN = ("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")


def original_names(params: dict, numbering: tuple[str, str, str, str]) -> dict:
    """Our loop-layout parameters under the names of an original file."""
    norm_0, attention, norm_1, mlp = numbering
    names = {}
    for ours, value in tree.leaves_with_paths(params):
        parts = ours.split("/")
        if ours == "posemb":
            name = "Transformer/posembed_input/pos_embedding"
        elif parts[0] == "norm":
            name = f"Transformer/encoder_norm/{parts[1]}"
        elif not parts[0].startswith("block_"):
            name = ours
        else:
            inside = {
                "attn_norm": [norm_0],
                "mlp_norm": [norm_1],
                "attn": [attention, parts[2]],
                "mlp": [mlp, "Dense_0" if parts[2] == "up" else "Dense_1"],
            }[parts[1]]
            layer = parts[0].removeprefix("block_")
            name = "/".join(["Transformer", f"encoderblock_{layer}", *inside, parts[-1]])
        names[name] = np.asarray(value)
    return names


def weights(seed=0, height=8, width=8, **changes) -> dict:
    """Random loop-layout parameters."""
    return tiny.params(tiny.config(scan=False, **changes), height, width, seed)


def flat(**changes) -> dict:
    return pretrained.flatten(weights(**changes))


# --- reading ---


@pytest.mark.parametrize("numbering", [LINEN, PRE_LINEN])
@pytest.mark.parametrize(
    "changes",
    [{"depth": 12}, {"pool": "gap"}, {"representation": 9}],
    ids=["token", "gap", "pre_logits"],
)
def test_original_file_reads_back_bit_for_bit(tmp_path, numbering, changes):
    params = weights(**changes)
    path = tmp_path / "weights.npz"
    np.savez(path, **original_names(params, numbering))
    found = pretrained.read_npz(path)
    expected = dict(tree.leaves_with_paths(params))
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_file_of_the_published_names_is_complete():
    names = original_names(weights(depth=1, representation=9), PRE_LINEN)
    assert sorted(names) == sorted(
        [f"Transformer/encoderblock_0/LayerNorm_{n}/{p}" for n in (0, 2) for p in ("scale", "bias")]
        + [
            f"Transformer/encoderblock_0/MultiHeadDotProductAttention_1/{n}/{p}"
            for n in ("query", "key", "value", "out")
            for p in ("kernel", "bias")
        ]
        + [
            f"Transformer/encoderblock_0/MlpBlock_3/Dense_{n}/{p}"
            for n in (0, 1)
            for p in ("kernel", "bias")
        ]
        + ["Transformer/encoder_norm/scale", "Transformer/encoder_norm/bias"]
        + ["Transformer/posembed_input/pos_embedding", "cls"]
        + [f"{n}/{p}" for n in ("embedding", "head", "pre_logits") for p in ("kernel", "bias")]
    )


def test_flatten_gives_loop_names_for_both_layouts():
    looped = flat()
    stacked = pretrained.flatten(tiny.params(tiny.config(), 8, 8))
    assert set(looped) == set(stacked)
    for name in looped:
        assert isinstance(stacked[name], np.ndarray)
        np.testing.assert_array_equal(looped[name], stacked[name])


def test_unknown_tensors_are_named(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **original_names(weights(), LINEN), **{"conv_root/kernel": np.zeros(1)})
    with pytest.raises(BadInput, match=r"weights\.npz.*conv_root/kernel"):
        pretrained.read_npz(path)


def test_npz_of_something_else_is_bad_input(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, cls=np.zeros(1))
    with pytest.raises(BadInput, match="no embedding/kernel"):
        pretrained.read_npz(path)


def npz_bytes(compressed: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **original_names(weights(), LINEN))
    return file.getvalue()


def npy_bytes() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def pickled_bytes() -> bytes:
    file = io.BytesIO()
    np.savez(file, **{"cls": np.array([{"a": 1}], dtype=object)})
    return file.getvalue()


def overwritten(data: bytes, start: int) -> bytes:
    return data[:start] + b"\xff" * 500 + data[start + 500 :]


def not_arrays() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("embedding/kernel", b"no array")
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"just some text\n",
        b"",
        npz_bytes()[:-3000],
        npz_bytes()[:200],
        pickled_bytes(),
        npy_bytes(),
        overwritten(npz_bytes(), 2000),
        overwritten(npz_bytes(compressed=True), 5000),
        not_arrays(),
    ],
    ids=[
        "text", "empty", "truncated", "nearly nothing", "pickle", "npy", "damaged",
        "damaged compressed", "no arrays",
    ],
)  # fmt: skip
def test_unreadable_file_is_bad_input(tmp_path, content):
    path = tmp_path / "weights.npz"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"weights\.npz"):
        pretrained.read_npz(path)


def test_file_that_is_not_there_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match=r"absent\.npz"):
        pretrained.read_npz(tmp_path / "absent.npz")


# --- architecture ---


def abstract_flat(cfg: vit.ViTConfig, side: int) -> dict:
    """Tensors of the right shape that take no memory."""
    looped = tree.unstack_blocks(
        tree.map_with_path(
            lambda _, x: np.broadcast_to(np.float32(0), x.shape), tiny.shapes(cfg, side, side)
        )
    )
    return dict(tree.leaves_with_paths(looped))


@pytest.mark.parametrize("pool", ["token", "gap"])
@pytest.mark.parametrize(
    "variant, side",
    [("Ti/16", 224), ("S/32", 384), ("B/16", 224), ("B/8", 64), ("L/16", 384), ("So400m/14", 224)],
)
def test_architecture_of_a_named_size_builds_the_same_model(variant, side, pool):
    cfg = vit.config(variant=variant, pool=pool, classes=10)
    found = pretrained.architecture(abstract_flat(cfg, side))
    assert found.pop("image_size") == side
    assert found["variant"] == variant
    assert vit.config(**found, classes=10) == cfg


def test_architecture_of_free_sizes_from_a_file(tmp_path):
    cfg = tiny.config(classes=10)
    path = tmp_path / "weights.npz"
    np.savez(path, **original_names(weights(height=20, width=20), PRE_LINEN))
    found = pretrained.architecture(pretrained.read_npz(path))
    assert found.pop("image_size") == 20
    assert vit.config(**found, classes=10) == cfg


@pytest.mark.parametrize("absent", ["Transformer/posembed_input", "Transformer/encoderblock_0"])
def test_architecture_of_an_incomplete_file_is_bad_input(tmp_path, absent):
    names = original_names(weights(), LINEN)
    path = tmp_path / "weights.npz"
    np.savez(path, **{name: x for name, x in names.items() if not name.startswith(absent)})
    with pytest.raises(BadInput):
        pretrained.architecture(pretrained.read_npz(path))


def test_architecture_with_pre_logits_ignores_them():
    found = pretrained.architecture(flat(representation=9))
    found.pop("image_size")
    assert vit.config(**found, classes=7) == tiny.config()


# --- fitting ---


@pytest.mark.parametrize("scan", [True, False])
def test_fit_takes_everything_but_the_head(scan):
    given = flat()
    target = tiny.shapes(tiny.config(scan=scan, classes=3), 8, 8)
    fitted = pretrained.fit(given, target)
    assert "head" not in fitted.params
    without_head = {k: v for k, v in target.items() if k != "head"}
    assert tree.difference(fitted.params, without_head) == ""
    for name, value in pretrained.flatten(fitted.params).items():
        np.testing.assert_array_equal(value, given[name], err_msg=name)
    fates = {name: fate for name, fate, _ in fitted.fate}
    assert set(fates) == set(given)
    assert {name for name, fate in fates.items() if fate != "loaded"} == {
        "head/kernel",
        "head/bias",
    }
    assert fates["head/bias"] == "re-initialised"


def test_fit_resizes_position_embeddings():
    given = flat(height=8, width=8)  # a grid of 2 x 2
    fitted = pretrained.fit(given, tiny.shapes(tiny.config(), 12, 12))
    expected = pretrained.resize_posemb(given["posemb"], 10, class_rows=1)
    np.testing.assert_array_equal(fitted.params["posemb"], expected)
    np.testing.assert_array_equal(fitted.params["posemb"][:, 0], given["posemb"][:, 0])
    assert [row for row in fitted.fate if row[1] == "resized"] == [
        ("posemb", "resized", "(1, 5, 32) -> (1, 10, 32)")
    ]


def test_fit_resizes_position_embeddings_without_class_token():
    given = flat(height=8, width=8, pool="gap")
    fitted = pretrained.fit(given, tiny.shapes(tiny.config(pool="gap"), 12, 12))
    corners = fitted.params["posemb"].reshape(3, 3, 32)[::2, ::2]
    np.testing.assert_allclose(corners, given["posemb"].reshape(2, 2, 32), rtol=1e-6)


def test_fit_drops_pre_logits_that_the_model_has_not():
    fitted = pretrained.fit(flat(representation=9), tiny.shapes(tiny.config(), 8, 8))
    assert "pre_logits" not in fitted.params
    assert {name for name, fate, _ in fitted.fate if fate == "unused"} == {
        "pre_logits/kernel",
        "pre_logits/bias",
    }


def test_fit_keeps_pre_logits_that_the_model_has():
    given = flat(representation=9)
    fitted = pretrained.fit(given, tiny.shapes(tiny.config(representation=9), 8, 8))
    np.testing.assert_array_equal(fitted.params["pre_logits"]["kernel"], given["pre_logits/kernel"])


@pytest.mark.parametrize("scan", [True, False])
def test_fit_lists_missing_unexpected_and_wrong_shape_in_one_error(scan):
    given = flat()
    del given["block_1/attn/query/bias"]
    given["block_3/attn_norm/scale"] = np.zeros(32, np.float32)
    given["embedding/kernel"] = np.zeros((2, 2, 3, 32), np.float32)
    with pytest.raises(BadInput) as caught:
        pretrained.fit(given, tiny.shapes(tiny.config(scan=scan), 8, 8))
    lines = [" ".join(line.split()) for line in str(caught.value).splitlines()[1:]]
    assert sorted(lines) == [
        "missing block_1/attn/query/bias (4, 8)",
        "unexpected block_3/attn_norm/scale (32,)",
        "wrong shape embedding/kernel: (2, 2, 3, 32), the model has (4, 4, 3, 32)",
    ]


def test_fit_counts_what_it_does_not_list():
    with pytest.raises(BadInput, match=r"\.\.\. and 4 more"):
        pretrained.fit(flat(depth=2), tiny.shapes(tiny.config(), 8, 8))


def test_fit_of_pre_logits_that_the_file_has_not_is_an_error():
    with pytest.raises(BadInput, match=r"missing +pre_logits/kernel"):
        pretrained.fit(flat(), tiny.shapes(tiny.config(representation=9), 8, 8))


@pytest.mark.parametrize(
    "file_pool, model_pool, words",
    [("token", "gap", "unexpected +cls"), ("gap", "token", "missing +cls")],
)
def test_fit_between_poolings_says_that_the_class_token_is_the_trouble(
    file_pool, model_pool, words
):
    with pytest.raises(BadInput, match=words):
        pretrained.fit(
            flat(pool=file_pool, height=16, width=16),
            tiny.shapes(tiny.config(pool=model_pool), 16, 16),
        )


# --- position embeddings ---


def posemb(grid: int, class_rows: int = 1, width: int = 3) -> np.ndarray:
    rows = grid * grid + class_rows
    return np.random.default_rng(grid).normal(size=(1, rows, width)).astype(np.float32)


@pytest.mark.parametrize("class_rows", [0, 1])
@pytest.mark.parametrize("old, new", [(14, 24), (7, 14), (14, 7), (7, 12), (2, 3)])
def test_resize_equals_align_corners_zoom_of_scipy(old, new, class_rows):
    given = posemb(old, class_rows)
    found = pretrained.resize_posemb(given, new * new + class_rows, class_rows=class_rows)
    grid = given[0, class_rows:].reshape(old, old, -1)
    expected = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1, grid_mode=False)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[:, :class_rows], given[:, :class_rows])
    np.testing.assert_allclose(found[0, class_rows:].reshape(new, new, -1), expected, atol=1e-6)


@pytest.mark.parametrize("old, new", [(28, 48), (16, 30), (24, 22), (32, 16), (48, 24)])
def test_resize_is_right_where_scipy_returns_rows_of_zeros(old, new):
    found = pretrained.resize_posemb(posemb(old), new * new + 1, class_rows=1)
    grid = found[0, 1:].reshape(new, new, -1)
    assert np.all(np.any(grid != 0, axis=-1))
    source = posemb(old)[0, 1:].reshape(old, old, -1)
    corners = ([0, 0, -1, -1], [0, -1, 0, -1])
    np.testing.assert_allclose(grid[corners], source[corners], atol=1e-6)
    where = np.arange(new) * (old - 1) / (new - 1)
    expected = scipy.ndimage.map_coordinates(
        source[..., 0], np.meshgrid(where, where, indexing="ij"), order=1, mode="nearest"
    )
    np.testing.assert_allclose(grid[..., 0], expected, atol=1e-5)


@pytest.mark.parametrize("class_rows", [0, 1])
def test_resize_to_the_same_grid_is_identity(class_rows):
    given = posemb(14, class_rows)
    found = pretrained.resize_posemb(given, given.shape[1], class_rows=class_rows)
    np.testing.assert_array_equal(found, given)


def test_resize_keeps_rows_and_columns_apart():
    grid = np.zeros((3, 3, 2), np.float32)
    grid[..., 0] = np.arange(3)[:, None]
    grid[..., 1] = np.arange(3)[None, :]
    found = pretrained.resize_posemb(grid.reshape(1, 9, 2), 25, class_rows=0).reshape(5, 5, 2)
    np.testing.assert_allclose(found[..., 0], np.repeat(np.arange(5)[:, None] / 2, 5, axis=1))
    np.testing.assert_allclose(found[..., 1], np.repeat(np.arange(5)[None] / 2, 5, axis=0))


@pytest.mark.parametrize("old, new", [(1, 3), (3, 1)])
def test_resize_from_and_to_a_single_patch(old, new):
    found = pretrained.resize_posemb(posemb(old, 0), new * new, class_rows=0)
    middle = posemb(old, 0)[0, (old * old - 1) // 2]
    np.testing.assert_allclose(found[0], np.tile(middle, (new * new, 1)), rtol=1e-6)


@pytest.mark.parametrize("rows, tokens, class_rows", [(13, 17, 1), (17, 13, 1), (17, 16, 0)])
def test_grid_that_is_not_square_is_bad_input(rows, tokens, class_rows):
    with pytest.raises(BadInput, match="not square"):
        pretrained.resize_posemb(np.zeros((1, rows, 2)), tokens, class_rows=class_rows)
