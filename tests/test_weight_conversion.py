# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which format a file has, what is refused and how that is said."""

import io
import json
import re

import foreign
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import convert, fitting

VIT = foreign.random(foreign.vit(), 12, 12)
GAP = foreign.random(foreign.vit(pool="gap", representation=9), 12, 12)
MAP = foreign.random(foreign.vit(pool="map"), 12, 12)
POOLER = foreign.random(foreign.vit(classes=0, representation=32), 12, 12)
REGISTERS = foreign.random(foreign.vit(registers=2), 12, 12)
HYBRID = foreign.random(foreign.hybrid(), 24, 24)
ROOT = foreign.random(foreign.hybrid(stages=()), 64, 64)
BIT = foreign.random(foreign.bit(), 32, 32)
MIXER = foreign.random(foreign.mixer(), 12, 12)

# kind -> (format, names and arrays)
NPZ = {
    "vit": ("npz", foreign.original_vit(VIT)),
    "pre-logits": ("npz", foreign.original_vit(GAP)),
    "hybrid": ("npz", foreign.original_vit(HYBRID)),
    "root": ("npz", foreign.original_vit(ROOT)),
    "big_vision": ("big_vision", foreign.big_vision_vit(GAP)),
    "class token": ("big_vision", foreign.big_vision_vit(VIT)),
    "scanned": ("big_vision", foreign.scanned(foreign.big_vision_vit(MAP))),
    "bit": ("npz", foreign.bit_of_tensorflow(BIT)),
    "bit of big_vision": ("big_vision", foreign.bit_of_big_vision(BIT)),
    "mixer": ("npz", foreign.original_mixer(MIXER)),
    "older mixer": ("npz", foreign.older_mixer(MIXER)),
}
SAFETENSORS = {
    "timm": ("timm", foreign.timm_vit(VIT)),
    "timm map": ("timm", foreign.timm_vit(MAP)),
    "timm registers": ("timm", foreign.timm_vit(REGISTERS)),
    "timm hybrid": ("timm", foreign.timm_vit(HYBRID)),
    "timm root": ("timm", foreign.timm_vit(ROOT)),
    "timm bit": ("timm", foreign.timm_bit(BIT)),
    "timm mixer": ("timm", foreign.timm_mixer(MIXER)),
    "hf": ("hf", foreign.hf_vit(VIT)),
    "hf pooler": ("hf", foreign.hf_vit(POOLER)),
}
FILES = NPZ | SAFETENSORS
SOME = ("vit", "hybrid", "scanned", "bit", "older mixer", "timm", "timm hybrid", "hf")


def stored(folder, kind, file):
    """A file, with what says how many heads it has where it does not."""
    folder.mkdir(exist_ok=True)
    if kind in NPZ:
        return foreign.npz(folder / "x.npz", file)
    said = {"num_attention_heads": 4} if "hf" in kind else {"model_args": {"num_heads": 4}}
    (folder / "config.json").write_text(json.dumps(said))
    return foreign.safetensors(folder / "x.safetensors", file)


def message(path, **kwargs) -> str:
    with pytest.raises(BadInput) as caught:
        convert.read(path, **kwargs)
    return str(caught.value)


# --- which format ---


@pytest.mark.parametrize("kind", FILES)
def test_format_is_found_from_the_names(tmp_path, kind):
    name, file = FILES[kind]
    found = convert.read(stored(tmp_path, kind, file))
    assert found.format == name
    assert found.tensors == {n: (a.shape, "float32") for n, a in file.items()}
    assert all(a.dtype == np.float32 for a in found.flat.values())


@pytest.mark.parametrize("kind", FILES)
def test_shapes_alone_say_the_same(tmp_path, kind):
    path = stored(tmp_path, kind, FILES[kind][1])
    whole, found = convert.read(path), convert.read(path, shapes_only=True)
    assert found.config == whole.config
    assert (found.format, found.settings, found.classes, found.image_size, found.tensors) == (
        whole.format, whole.settings, whole.classes, whole.image_size, whole.tensors,
    )  # fmt: skip
    assert {n: a.shape for n, a in found.flat.items()} == {
        n: a.shape for n, a in whole.flat.items()
    }
    assert not any(a.any() for a in found.flat.values())


@pytest.mark.parametrize("kind", SOME)
def test_order_of_the_names_does_not_matter(tmp_path, kind):
    file = FILES[kind][1]
    shuffled = {n: file[n] for n in np.random.default_rng(0).permutation(sorted(file))}
    one = convert.read(stored(tmp_path / "a", kind, file))
    two = convert.read(stored(tmp_path / "b", kind, shuffled))
    assert one.config == two.config
    foreign.assert_same(two.flat, one.flat)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "file",
    [
        {"weight": np.zeros(3, np.float32), "bias": np.zeros(3, np.float32)},
        {"conv1.weight": np.zeros((2, 3, 7, 7), np.float32), "fc.bias": np.zeros(3, np.float32)},
        {"Dense_0/kernel": np.zeros((3, 2), np.float32)},
        {},
    ],
    ids=["names", "resnet", "linen", "nothing"],
)  # fmt: skip
def test_names_of_no_format(tmp_path, suffix, file):
    write = foreign.npz if suffix == ".npz" else foreign.safetensors
    path = write(tmp_path / f"x{suffix}", file)
    said = message(path)
    assert "is not a known model" in said
    assert all(name in said for name in file) or not file
    assert file or "no arrays" in said


def test_names_of_the_other_container(tmp_path):
    message(foreign.npz(tmp_path / "x.npz", foreign.timm_vit(VIT)))
    message(foreign.safetensors(tmp_path / "x.safetensors", foreign.original_vit(VIT)))


MIXTURES = [
    (foreign.original_vit(VIT), foreign.bit_of_tensorflow(BIT)),
    (foreign.original_vit(VIT), foreign.original_mixer(MIXER)),
    (foreign.big_vision_vit(MAP), foreign.bit_of_big_vision(BIT)),
    (foreign.original_vit(HYBRID), foreign.big_vision_vit(MAP)),
    (foreign.bit_of_tensorflow(BIT), foreign.bit_of_big_vision(BIT)),
    (foreign.timm_vit(VIT), foreign.hf_vit(VIT)),
    (foreign.timm_vit(VIT), foreign.timm_bit(BIT)),
    (foreign.timm_vit(VIT), foreign.timm_mixer(MIXER)),
    (foreign.timm_vit(HYBRID), foreign.timm_vit(ROOT)),
]


@pytest.mark.parametrize("one, two", MIXTURES)
def test_mixture_of_two_formats(tmp_path, one, two):
    write = foreign.npz if any("/" in name for name in one) else foreign.safetensors
    suffix = ".npz" if write is foreign.npz else ".safetensors"
    for file in (one | two, two | one):
        said = message(write(tmp_path / f"x{suffix}", file), heads=4)
        assert "unknown names: " in said
        assert any(name in said for name in [*one, *two])


# --- one tensor ---


def fit(path, **kwargs):
    """As loading does: every tensor has to find its place."""
    weights = convert.read(path, **kwargs)
    cfg, size = weights.config, weights.image_size
    if size is None:
        raise BadInput("no image size")
    grid = variants.grid(cfg, *size)
    target = foreign.zeros(cfg, *size)
    return cfg, fitting.fit(weights.flat, target, old=grid, new=grid, fresh_head=False).params


def refused(path) -> str:
    with pytest.raises(BadInput) as caught:
        fit(path)
    return str(caught.value)


@pytest.mark.parametrize("kind", SOME)
def test_extra_tensor_is_named(tmp_path, kind):
    file = FILES[kind][1]
    extra = {"extra/kernel": np.zeros((3, 2), np.float32)}
    said = refused(stored(tmp_path, kind, file | extra))
    assert "extra/kernel" in said
    assert FILES[kind][0] in said


@pytest.mark.parametrize("kind", SOME)
def test_missing_tensor_is_named(tmp_path, kind):
    """In our names, with its shape."""
    file = dict(FILES[kind][1])
    inside = [
        n
        for n in file
        if re.search(r"(encoderblock(_1)?|Block_1|blocks\.1|layer\.1|unit01)[/.]", n)
    ]
    del file[sorted(inside)[-1]]
    said = refused(stored(tmp_path, kind, file))
    assert re.search(r"missing +(block_1|backbone/stage\d_unit\d)/\S+ \(", said), said


@pytest.mark.parametrize("kind", ["vit", "class token", "mixer", "timm", "timm mixer", "hf"])
def test_missing_block_in_the_middle(tmp_path, kind):
    cfg = foreign.mixer(depth=4) if "mixer" in kind else foreign.vit(depth=4)
    write = {
        "vit": foreign.original_vit, "class token": foreign.big_vision_vit,
        "mixer": foreign.original_mixer, "timm": foreign.timm_vit,
        "timm mixer": foreign.timm_mixer, "hf": foreign.hf_vit,
    }[kind]  # fmt: skip
    file = write(foreign.random(cfg, 12, 12))
    left = {n: a for n, a in file.items() if not re.search(r"([bB]lock_|blocks\.|layer\.)1[/.]", n)}
    assert len(file) - len(left) in (12, 16)
    said = refused(stored(tmp_path, kind, left))
    assert len(re.findall(r"missing +block_1/", said)) == 12
    assert f"and {2 * (12 if 'mixer' in kind else 16) - 12} more" in said  # those of block_3
    assert "image size" not in said


@pytest.mark.parametrize("kind", SOME)
def test_tensor_of_a_wrong_shape_is_named(tmp_path, kind):
    """Whichever it is; by its own name or ours."""
    file, rng = FILES[kind][1], np.random.default_rng(0)
    expected = fit(stored(tmp_path / "whole", kind, file))
    for name in rng.choice(sorted(file), 3, replace=False):
        array, part = file[name], re.split("[/.]", name)[-1].rstrip("12")
        part = {"weight": "", "gamma": "scale", "beta": "bias"}.get(part, part)
        twice = np.concatenate([array, array], axis=rng.integers(array.ndim))
        path = stored(tmp_path / "twice", kind, file | {name: twice})
        said = refused(path)
        assert name in said or part in said or "image size" in said, (name, said)
        for same_numbers in (array[..., None], array[None], array.reshape(-1, 1)):
            path = stored(tmp_path / "reshaped", kind, file | {name: same_numbers})
            try:
                found = fit(path)
            except BadInput:
                continue
            assert found[0] == expected[0]
            foreign.assert_same(found[1], expected[1])


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("wrong", [np.zeros((), np.float32), np.zeros((0, 3), np.float32)])
def test_tensor_without_values_is_named(tmp_path, kind, wrong):
    file, rng = FILES[kind][1], np.random.default_rng(0)
    for name in rng.choice(sorted(file), 4, replace=False):
        assert name in message(stored(tmp_path, kind, file | {name: wrong}))


@pytest.mark.parametrize("kind", SOME)
@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
def test_tensor_that_is_not_of_floats_is_named(tmp_path, kind, dtype):
    file = FILES[kind][1]
    name = sorted(file)[len(file) // 2]
    path = stored(tmp_path, kind, file | {name: file[name].astype(dtype)})
    for shapes_only in (False, True):
        said = message(path, shapes_only=shapes_only)
        assert name in said
        assert "not arrays of floats" in said


def test_complex_numbers_and_text_are_no_floats(tmp_path):
    file = foreign.original_vit(VIT)
    for dtype in (np.complex64, np.str_, "M8[s]"):
        path = foreign.npz(tmp_path / "x.npz", file | {"cls": np.zeros((1, 1, 32), dtype)})
        assert "cls: not arrays of floats" in message(path)


@pytest.mark.parametrize(
    "kind, one, other",
    [
        ("vit", "encoderblock_1/LayerNorm_2/", "encoderblock_1/LayerNorm_1/"),
        ("vit", "encoderblock_0/MlpBlock_3/", "encoderblock_0/MlpBlock_0/"),
        ("class token", "pos_embedding", "Transformer/posembed_input/pos_embedding"),
        ("class token", "encoderblock_0/LayerNorm_1/", "encoderblock_0/LayerNorm_2/"),
        ("bit", "unit01/a/standardized_conv2d/", "unit01/a/standardized_conv2d_3/"),
        ("mixer", "stem/", "embedding/"),
        ("older mixer", "encoderblock_1/LayerNorm_2/", "encoderblock_1/LayerNorm_1/"),
        ("hf", "vit.layernorm.", "layernorm."),
        ("hf", ".intermediate.dense.", ".mlp.fc1."),
    ],
)
def test_both_spellings_of_one_tensor(tmp_path, kind, one, other):
    file = FILES[kind][1]
    twice = {n.replace(one, other): a for n, a in file.items() if one in n}
    assert twice
    assert "second tensor for" in message(stored(tmp_path, kind, file | twice))


@pytest.mark.parametrize("first", ["scanned", "looped"])
def test_blocks_scanned_and_looped(tmp_path, first):
    looped = foreign.big_vision_vit(MAP)
    scanned = foreign.scanned(looped)
    name = "Transformer/encoderblock_1/LayerNorm_0/scale"
    file = scanned | {name: looped[name]} if first == "scanned" else {name: looped[name]} | scanned
    said = message(foreign.npz(tmp_path / "x.npz", file))
    assert name in said
    assert "also among the scanned blocks" in said


def test_scanned_blocks_of_different_depths(tmp_path):
    file = foreign.scanned(foreign.big_vision_vit(MAP))
    name = "Transformer/encoderblock/LayerNorm_0/scale"
    said = refused(foreign.npz(tmp_path / "x.npz", file | {name: file[name][:1]}))
    assert re.search(r"missing +block_1/attn_norm/scale", said)
    more = np.concatenate([file[name], file[name]])
    said = refused(foreign.npz(tmp_path / "x.npz", file | {name: more}))
    assert re.search(r"missing +block_[23]/", said)


@pytest.mark.integration
def test_every_change_of_a_file_is_an_error_or_changes_nothing(tmp_path):
    """Random damage; another exception than BadInput, or another model, would fail."""
    rng, outcomes = np.random.default_rng(0), {"refused": 0, "same": 0}
    expected = {}
    for n in range(150):
        kind = str(rng.choice(sorted(FILES)))
        file = dict(FILES[kind][1])
        if kind not in expected:
            expected[kind] = fit(stored(tmp_path / "whole", kind, file))
        damage(file, rng)
        try:
            cfg, params = fit(stored(tmp_path / "damaged", kind, file))
        except BadInput:
            outcomes["refused"] += 1
            continue
        outcomes["same"] += 1
        assert cfg == expected[kind][0], (n, kind)
        foreign.assert_same(params, expected[kind][1])
    assert outcomes["refused"] > 80
    assert outcomes["same"] > 5


def damage(file, rng):
    """One or two changes in place."""
    for _ in range(rng.integers(1, 3)):
        name = str(rng.choice(sorted(file)))
        array = file[name]
        separator = "/" if "/" in name else "."
        parts = name.split(separator)
        parts[rng.integers(len(parts))] = str(rng.choice(["kernel", "bias", "0", "weight", "x"]))
        number = re.sub(r"\d+", lambda _: str(rng.integers(12)), name, count=1)
        change = rng.integers(12)
        if change in (0, 1, 2):
            del file[name]
            if change > 0:
                file[separator.join(parts) if change == 1 else number] = array
        elif change == 3:
            file[f"{name}_1"] = array
        elif change == 4:
            file[str(rng.choice(["cls", "cls_token", "reg_token", "probe", "x", "params/x"]))] = (
                array
            )
        else:
            changed = [
                array.squeeze(), array[None], array[..., None], array.reshape(-1),
                array[..., : array.shape[-1] // 2] if array.ndim else array,
                np.pad(array, [(0, 1)] * array.ndim), array.astype(np.int32),
            ]  # fmt: skip
            file[name] = changed[change - 5]


# --- what stands beside a file ---


def with_config(folder, kind, said):
    path = stored(folder, kind, FILES[kind][1])
    text = said if isinstance(said, str) else json.dumps(said)
    (folder / "config.json").write_text(text)
    return path


@pytest.mark.parametrize("kind", ["timm", "hf", "timm bit"])
@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "\x00"])
def test_broken_configuration(tmp_path, kind, text):
    assert "config.json" in message(with_config(tmp_path, kind, text))


def test_broken_configuration_of_images(tmp_path):
    path = stored(tmp_path, "hf", FILES["hf"][1])
    (tmp_path / "preprocessor_config.json").write_text("{")
    assert "preprocessor_config.json" in message(path)


@pytest.mark.parametrize(
    "kind, said, words",
    [
        ("timm", {"model_args": {"num_heads": 5}}, "heads=5 do not divide"),
        ("timm", {"model_args": {"num_heads": 4, "depth": 3}}, "depth=2.*says 3"),
        ("timm", {"model_args": {"num_heads": 4, "embed_dim": 64}}, "width=32.*says 64"),
        ("timm", {"model_args": {"num_heads": 4, "reg_tokens": 1}}, "registers=0.*says 1"),
        ("timm", {"model_args": {"num_heads": 4, "img_size": 16}}, "9 patches.*16 x 16"),
        ("timm", {"model_args": {"num_heads": 4, "global_pool": "map"}}, "pool=token.*says map"),
        ("timm", {"model_args": {"num_heads": 4, "global_pool": "avgmax"}}, "says avgmax"),
        ("timm map", {"model_args": {"num_heads": 4}, "global_pool": "token"}, "pool=map.*token"),
        ("timm mixer", {"pretrained_cfg": {"input_size": [3, 8, 8]}}, "9 patches.*8 x 8"),
        ("timm hybrid", {"model_args": {"num_heads": 4, "img_size": 32}}, "9 patches.*32 x 32"),
        ("hf", {"num_attention_heads": 4, "num_hidden_layers": 12}, "depth=2.*says 12"),
        ("hf", {"num_attention_heads": 4, "hidden_size": 768}, "width=32.*says 768"),
        ("hf", {"num_attention_heads": 4, "intermediate_size": 64}, "mlp=48.*says 64"),
        ("hf", {"num_attention_heads": 4, "image_size": 224}, "9 patches.*224 x 224"),
        ("hf", {"num_attention_heads": 4, "hidden_act": "relu"}, "activation"),
        ("hf", {"num_attention_heads": 4, "model_type": "swin"}, "model_type=swin.*nearest.*vit"),
        ("hf", {"num_attention_heads": 4, "model_type": "clip"}, "those of vit.*model_type=clip"),
        ("timm", {"model_args": {"num_heads": 4, "act_layer": "silu"}}, "activation"),
    ],
)
def test_configuration_that_contradicts_the_weights(tmp_path, kind, said, words):
    with pytest.raises(BadInput, match=words):
        convert.read(with_config(tmp_path, kind, said))


@pytest.mark.parametrize("kind", ["timm bit", "timm mixer", "timm hybrid"])
def test_configuration_may_say_what_a_family_has_not(tmp_path, kind):
    said = {"model_args": {"num_heads": 4}, "global_pool": "token" if "hyb" in kind else "avg"}
    with_it = convert.read(with_config(tmp_path, kind, said))
    (tmp_path / "config.json").unlink()
    assert with_it.config == convert.read(tmp_path / "x.safetensors", heads=4).config


def test_configuration_beside_an_npz_file_is_not_its_own(tmp_path):
    path = stored(tmp_path, "vit", FILES["vit"][1])
    (tmp_path / "config.json").write_text("{")
    assert convert.read(path).config == foreign.vit()


def test_constants_beside_a_file_are_fields_of_its_model(tmp_path):
    own = {"gelu": "tanh", "ln_epsilon": 1e-3, "gn_epsilon": 1e-4, "ws_epsilon": 1e-2}
    own |= {"ws_epsilon_in": "std"}
    said = {"model_args": {"num_heads": 4}, "vit_jax": own}
    cfg = convert.read(with_config(tmp_path, "timm hybrid", said)).config
    assert (cfg.gelu, cfg.ln_epsilon) == ("tanh", 1e-3)
    backbone = cfg.backbone
    assert (backbone.gn_epsilon, backbone.ws_epsilon, backbone.ws_epsilon_in) == (1e-4, 1e-2, "std")


def test_constants_of_formats_without_a_configuration(tmp_path):
    found = {kind: convert.read(stored(tmp_path, kind, FILES[kind][1])).config for kind in FILES}
    resnet = {
        kind: getattr(c, "backbone", None) or getattr(c, "resnet", None)
        for kind, c in found.items()
    }
    for kind, cfg in found.items():
        if kind not in ("bit", "bit of big_vision", "timm bit"):
            expected = (
                ("erf", 1e-12) if "hf" in kind else ("erf" if "timm" in kind else "tanh", 1e-6)
            )
            assert (cfg.gelu, cfg.ln_epsilon) == expected, kind
    constants = {
        "hybrid": (1e-6, 1e-5, "std"), "root": (1e-6, 1e-5, "std"),
        "bit": (1e-5, 1e-10, "variance"), "bit of big_vision": (1e-5, 1e-10, "variance"),
        "timm hybrid": (1e-5, 1e-8, "variance"), "timm root": (1e-5, 1e-8, "variance"),
        "timm bit": (1e-5, 1e-8, "variance"),
    }  # fmt: skip
    assert {k for k, r in resnet.items() if r} == set(constants)
    for kind, values in constants.items():
        r = resnet[kind]
        assert (r.gn_epsilon, r.ws_epsilon, r.ws_epsilon_in) == values, kind
        assert r.root_pool == "zero"


def test_head_after_a_pooler_is_no_model_of_transformers(tmp_path):
    both = foreign.hf_vit(POOLER) | foreign.hf_vit(VIT)
    assert "after its pooler" in message(stored(tmp_path, "hf", both))


# --- writing ---


def write(path, name, cfg, side=12):
    convert.write(path, name, cfg, foreign.zeros(cfg, side, side))


def test_unknown_format_lists_the_ones_there_are(tmp_path):
    for name in ("numpy", "", "NPZ", "pytorch"):
        with pytest.raises(BadInput, match="npz, big_vision, timm, hf"):
            write(tmp_path / "x.npz", name, foreign.vit())


@pytest.mark.parametrize(
    "name, file, wanted",
    [
        ("npz", "x.safetensors", ".npz"),
        ("big_vision", "x.safetensors", ".npz"),
        ("timm", "x.npz", ".safetensors"),
        ("hf", "x.npz", ".safetensors"),
        ("npz", "x", ".npz"),
        ("npz", "x.NPZ", ".npz"),
        ("hf", "x.bin", ".safetensors"),
    ],
)
def test_suffix_of_another_format(tmp_path, name, file, wanted):
    with pytest.raises(BadInput, match=f"the {name} format is written to a {wanted} file"):
        write(tmp_path / file, name, foreign.vit(gelu="erf" if name in ("hf", "timm") else "tanh"))
    assert not list(tmp_path.iterdir())


NOT_NPZ = [
    ("npz", foreign.vit(registers=2), "no name for registers"),
    ("npz", foreign.vit(pool="map"), "no name for map_head"),
    ("npz", foreign.vit(posemb="relative"), "no posemb=relative at stem"),
    ("npz", foreign.vit(posemb="learned2d"), "no posemb=learned2d at stem"),
    ("npz", foreign.vit(posemb="sincos2d"), "no posemb=sincos2d at stem"),
    ("npz", foreign.vit(posemb_at="every"), "no posemb=learned1d at every"),
    ("npz", foreign.vit(posemb_at="shared"), "no posemb=learned1d at shared"),
    ("npz", foreign.vit(gelu="erf"), "means gelu=tanh, the model has erf"),
    ("npz", foreign.vit(ln_epsilon=1e-12), "means ln_epsilon=1e-06, the model has 1e-12"),
    ("npz", foreign.hybrid(gn_epsilon=1e-5), "means gn_epsilon=1e-06"),
    ("npz", foreign.hybrid(ws_epsilon=1e-8), "means ws_epsilon=1e-05"),
    ("npz", foreign.hybrid(ws_epsilon_in="variance"), "means ws_epsilon_in=std"),
    ("npz", foreign.bit(root_pool="-inf"), "means root_pool=zero"),
    ("npz", foreign.bit(ws_epsilon=1e-8), "means ws_epsilon=1e-10"),
    ("npz", foreign.mixer(gelu="erf"), "means gelu=tanh"),
    ("npz", foreign.hybrid(stem="small", variant="R+custom/8"), "no stem=small"),
    ("npz", foreign.bit(stem="small"), "no stem=small"),
    ("big_vision", foreign.bit(stem="small"), "no stem=small"),
    ("big_vision", foreign.hybrid(), "no name for backbone"),
    ("big_vision", foreign.vit(registers=2, pool="gap"), "no name for registers"),
    ("big_vision", foreign.vit(posemb="none", pool="gap"), "no posemb=none"),
    ("big_vision", foreign.vit(posemb="relative", pool="gap"), "no posemb=relative"),
    ("big_vision", foreign.vit(gelu="erf", pool="gap"), "means gelu=tanh"),
]


@pytest.mark.parametrize("name, cfg, words", NOT_NPZ)
def test_model_that_a_format_cannot_express(tmp_path, name, cfg, words):
    with pytest.raises(BadInput, match=re.escape(words)):
        write(tmp_path / "x.npz", name, cfg, 32)
    assert not list(tmp_path.iterdir())


def test_rates_and_computation_are_no_part_of_a_file(tmp_path):
    cfg = foreign.vit(dropout=0.5, drop_path=0.5, dtype="bfloat16", remat="full", head_bias=-10.0)
    write(tmp_path / "x.npz", "npz", cfg)
    assert convert.read(tmp_path / "x.npz").config == foreign.vit()


@pytest.mark.parametrize("name", ["npz", "timm"])
def test_parameters_of_jax_in_bfloat16(tmp_path, name):
    path = tmp_path / ("x.npz" if name == "npz" else "x.safetensors")
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), tree.stack_blocks(VIT))
    convert.write(path, name, foreign.vit(), params)
    found = convert.read(path)
    assert {dtype for _, dtype in found.tensors.values()} == {"bfloat16"}
    expected = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), VIT)
    foreign.assert_same(found.flat, foreign.flat(expected))


def test_flatten_gives_loop_names_for_both_layouts():
    looped = convert.flatten(VIT)
    foreign.assert_same(looped, foreign.flat(VIT))
    on_device = jax.tree.map(jnp.asarray, tree.stack_blocks(VIT))
    foreign.assert_same(convert.flatten(on_device), looped)
    assert all(isinstance(a, np.ndarray) for a in convert.flatten(on_device).values())


def test_pickled_weights(tmp_path):
    raw = io.BytesIO()
    np.savez(raw, **{n: a.astype(object) for n, a in foreign.original_vit(VIT).items()})
    (tmp_path / "x.npz").write_bytes(raw.getvalue())
    message(tmp_path / "x.npz")
    assert "not arrays of floats" in message(tmp_path / "x.npz", shapes_only=True)


@pytest.mark.parametrize("name", convert.NAMES)
def test_parameters_of_another_model_are_not_written(tmp_path, name):
    cfg = foreign.vit()
    params, path = foreign.random(cfg, 12, 12), tmp_path / "model"
    path = path.with_suffix(".npz" if name in ("npz", "big_vision") else ".safetensors")
    lacking = {k: v for k, v in params.items() if k != "norm"}
    other = foreign.random(foreign.vit(width=24, depth=3), 12, 12)
    cut = params | {"head": {"kernel": np.zeros((32, 3)), "bias": np.zeros(3)}}
    for given, words in (
        (lacking, "missing +norm/scale"),
        (cut, r"wrong shape +head/kernel: \(32, 3\), the model has \(32, 7\)"),
        (other, "unexpected +block_2/"),
        ({"params": params}, "unexpected +params/"),
    ):
        with pytest.raises(BadInput, match=words):
            convert.write(path, name, cfg, given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, words",
    [
        ("encoderblock_0/MultiHeadDotProductAttention_1/query_ln/scale", "qk-norm"),
        ("encoderblock_0/ls1/gamma", "LayerScale"),
    ],
)
def test_parts_that_our_models_lack_are_refused_by_name_in_npz(tmp_path, name, words):
    given = foreign.original_vit(foreign.random(foreign.vit(), 12, 12))
    given[f"Transformer/{name}"] = np.zeros(8, np.float32)
    with pytest.raises(BadInput, match=words):
        convert.read(foreign.npz(tmp_path / "x.npz", given))


def test_pickled_objects_are_called_by_their_name(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.array([{}], object))
    with pytest.raises(BadInput, match="pickled objects, which are never loaded"):
        convert.read(tmp_path / "x.npz")
