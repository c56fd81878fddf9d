# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""safetensors of timm and transformers: their own models' files in, ours back into them."""

import functools
import json

import foreign
import numpy as np
import peer_libraries
import pytest

import vit_jax
from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import convert, files
from vit_jax.weights.formats import name_table, safetensors
from vit_jax.weights.formats.name_table import Context

CLOSE = 3e-5  # of logits whose standard deviation is about 1; the promise is 1e-4


# ---------------------------------------------------------------- peers


def timm():
    return peer_libraries.load("timm")


def transformers():
    return peer_libraries.load("transformers")


@functools.cache
def torch():
    found = peer_libraries.load("torch")
    found.set_num_threads(1)  # the models are small, and several tests run at a time
    return found


def randomised(model, seed=0):
    """Every parameter away from its initial value, in proportion to what it is."""
    generator = torch().Generator().manual_seed(seed)
    with torch().no_grad():
        for name, value in model.named_parameters():
            noise = torch().randn(value.shape, generator=generator)
            gain = 1.5 / np.sqrt(np.prod(value.shape[1:])) if value.ndim in (2, 4) else 0.3
            one = float("norm" in name and name.endswith("weight"))
            value.copy_(noise * gain + one)
    return model.eval()


def outputs(model, images: np.ndarray) -> np.ndarray:
    with torch().no_grad():
        found = model(torch().from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))))
    if hasattr(found, "logits"):
        return found.logits.numpy()
    if hasattr(found, "pooler_output"):
        pooled = found.pooler_output
        return (found.last_hidden_state[:, 0] if pooled is None else pooled).numpy()
    return found.numpy()


def shapes(model) -> dict:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def timm_model(name, **settings):
    return timm().create_model(name, **settings)


def timm_saved(folder, model):
    """By timm's own writer, with its config.json."""
    from timm.models._hub import save_for_hf

    save_for_hf(model, folder, safe_serialization=True)
    return folder / "model.safetensors"


def timm_loaded(path):
    return timm().create_model(f"local-dir:{path.parent}", pretrained=True).eval()


def hf_loaded(path):
    config = json.loads((path.parent / "config.json").read_text())
    kind = getattr(transformers(), config["architectures"][0])
    model, report = kind.from_pretrained(path.parent, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return model.eval()


def agree(found: np.ndarray, expected: np.ndarray) -> None:
    assert expected.std() > 0.05
    scale = max(1.0, float(expected.std()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * scale)


# ---------------------------------------------------------------- timm's models

ENCODER = {"embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 1.5, "num_classes": 7}
PLAIN = ENCODER | {"patch_size": 4, "img_size": 12}
GAP = {"class_token": False, "global_pool": "avg", "fc_norm": False}
MAP = {"class_token": False, "global_pool": "map"}
OF_TIMM = {
    "token": ("vit_base_patch16_224", PLAIN, foreign.vit(gelu="erf")),
    "tanh": ("vit_base_patch16_224", PLAIN | {"act_layer": "gelu_tanh"}, foreign.vit()),
    "gap": ("vit_base_patch16_224", PLAIN | GAP, foreign.vit(gelu="erf", pool="gap")),
    "map": ("vit_base_patch16_224", PLAIN | MAP, foreign.vit(gelu="erf", pool="map")),
    "no head": (
        "vit_base_patch16_224", PLAIN | {"num_classes": 0}, foreign.vit(gelu="erf", classes=0)
    ),
    "registers": (
        "vit_base_patch16_224",
        PLAIN | {"reg_tokens": 3, "no_embed_class": True},
        foreign.vit(gelu="erf", registers=3),
    ),
    "registers, gap": (
        "vit_base_patch16_224",
        PLAIN | GAP | {"reg_tokens": 3, "no_embed_class": True},
        foreign.vit(gelu="erf", registers=3, pool="gap"),
    ),
    "registers, map": (
        "vit_base_patch16_224",
        PLAIN | MAP | {"reg_tokens": 3, "no_embed_class": True},
        foreign.vit(gelu="erf", registers=3, pool="map"),
    ),
    "DeiT": ("deit_tiny_patch16_224", PLAIN, foreign.vit(gelu="erf")),
    "class token without a position": ("flexivit_small", PLAIN, foreign.vit(gelu="erf")),
    "hybrid of four stages": ("vit_small_r26_s32_224", ENCODER | {"img_size": 64}, "R26+custom/32"),
    "hybrid of three stages": ("vit_base_r50_s16_224", ENCODER | {"img_size": 32}, "R50+custom/16"),
    "hybrid of a root": ("vit_tiny_r_s16_p8_224", ENCODER | {"img_size": 96}, "R+custom/16"),
    "BiT": ("resnetv2_50x1_bit", {"num_classes": 7}, "BiT-R50x1"),
    "Mixer": ("mixer_s16_224", {"img_size": 48, "num_classes": 7}, "Mixer-S/16"),
}  # fmt: skip
RESNET_OF_TIMM = {"gn_epsilon": 1e-5, "ws_epsilon": 1e-8, "ws_epsilon_in": "variance"}


def expected_config(kind):
    cfg = OF_TIMM[kind][2]
    if not isinstance(cfg, str):
        return cfg
    if cfg.startswith("BiT"):
        return variants.config(variant=cfg, classes=7, **RESNET_OF_TIMM)
    if cfg.startswith("Mixer"):
        return variants.config(variant=cfg, classes=7, gelu="erf")
    settings = foreign.ENCODER | {"gelu": "erf", "root_width": 64} | RESNET_OF_TIMM
    return variants.config(variant=cfg, **settings)


LONG = ("hybrid of three stages", "BiT")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in LONG)) for k in OF_TIMM]
)
def test_model_of_timm_and_back(tmp_path, kind):
    """Their file in: their logits. Our export of it: the same file, in their loader."""
    name, settings, _ = OF_TIMM[kind]
    theirs = randomised(timm_model(name, **settings))
    path = timm_saved(tmp_path / "theirs", theirs)
    model, params, _ = vit_jax.load(path)
    assert model.cfg == expected_config(kind)
    side = settings.get("img_size", 64)
    x = foreign.images(side, 80 if kind == "BiT" else side)
    expected = outputs(theirs, x)
    agree(foreign.logits(model.cfg, params, x), expected)

    ours = tmp_path / "ours" / "model.safetensors"
    vit_jax.save(ours, model, params, "timm")
    again = timm_loaded(ours)
    agree(outputs(again, x), expected)
    if kind != "class token without a position":
        one, two = files.read(path), files.read(ours)
        foreign.assert_same(two, one)
    back, same, _ = vit_jax.load(ours)
    assert back.cfg == model.cfg
    foreign.assert_same(same, params)


def test_bit_of_timm_of_free_sizes(tmp_path):
    """Beside R50x1, which has 16 units."""
    conv = functools.partial(peer_libraries.load("timm.layers").StdConv2d, eps=1e-8)
    theirs = randomised(
        peer_libraries.load("timm.models.resnetv2").ResNetV2(
            [2, 1], (128, 256), 7, stem_chs=32, stem_type="fixed", conv_layer=conv
        )
    )
    arrays = {name: value.numpy() for name, value in theirs.state_dict().items()}
    model, params, _ = vit_jax.load(foreign.safetensors(tmp_path / "x.safetensors", arrays))
    assert model.cfg == foreign.bit(**RESNET_OF_TIMM)
    x = foreign.images(33, 47)
    agree(foreign.logits(model.cfg, params, x), outputs(theirs, x))
    with pytest.raises(BadInput, match="timm has no such BiT"):
        vit_jax.save(tmp_path / "y.safetensors", model, params, "timm")


def test_rectangular_model_of_timm(tmp_path):
    """The file does not say that 6 patches are 2 x 3 and have no row for the class token."""
    settings = PLAIN | {"img_size": (8, 12)}
    x = foreign.images(8, 12)
    for kind in ("vit_base_patch16_224", "flexivit_small"):
        theirs = randomised(timm_model(kind, **settings))
        path = timm_saved(tmp_path / kind, theirs)
        assert convert.read(path).image_size == (8, 12)
        model, params, _ = vit_jax.load(path)
        agree(foreign.logits(model.cfg, params, x), outputs(theirs, x))
    with pytest.raises(BadInput, match="not a square"):
        vit_jax.save(tmp_path / "x.safetensors", model, params, "timm")


OURS = {
    "token": foreign.vit(),
    "erf": foreign.vit(gelu="erf"),
    "gap": foreign.vit(pool="gap"),
    "map": foreign.vit(pool="map"),
    "no head": foreign.vit(pool="map", classes=0),
    "odd MLP": foreign.vit(mlp=49),
    "registers": foreign.vit(registers=2),
    "registers, gap": foreign.vit(registers=2, pool="gap"),
    "registers, map": foreign.vit(registers=2, pool="map"),
    "small epsilon": foreign.vit(ln_epsilon=1e-12),
    "hybrid": foreign.hybrid(variant="R+custom/16", stages=(), root_width=64),
    "BiT": foreign.bit(variant="BiT-R50x1", stages=(), root_width=0),
}


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k == "BiT")) for k in OURS]
)
def test_model_of_ours_in_timm(tmp_path, kind):
    """With the constants of the original code, which timm does not have all."""
    cfg, side = OURS[kind], 64 if kind in ("hybrid", "BiT") else 12
    weights = foreign.random(cfg, side, side)
    path = tmp_path / "model.safetensors"
    vit_jax.save(path, variants.make(cfg), weights, "timm")
    x, model, params = foreign.images(side, side), *vit_jax.load(path)[:2]
    assert model.cfg == cfg
    if not cfg.__dict__.get("registers"):
        foreign.assert_same(tree.unstack_blocks(params), weights)
    expected = foreign.logits(cfg, stacked(cfg, weights), x)
    np.testing.assert_allclose(foreign.logits(cfg, params, x), expected, atol=1e-5)
    np.testing.assert_allclose(outputs(timm_loaded(path), x), expected, atol=1e-4)


def stacked(cfg, weights):
    return tree.stack_blocks(weights) if getattr(cfg, "scan", False) else weights


# ---------------------------------------------------------------- transformers' models

HF = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 12}
HF |= {"intermediate_size": 48, "patch_size": 4, "num_labels": 7}
OF_HF = {
    "classifier": ("ViTForImageClassification", {}, foreign.vit(gelu="erf", ln_epsilon=1e-12)),
    "epsilon": (
        "ViTForImageClassification",
        {"layer_norm_eps": 1e-3},
        foreign.vit(gelu="erf", ln_epsilon=1e-3),
    ),
    "tanh": (
        "ViTForImageClassification",
        {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
        foreign.vit(),
    ),
    "new": (
        "ViTForImageClassification", {"hidden_act": "gelu_new"}, foreign.vit(ln_epsilon=1e-12)
    ),
    "pooler": (
        "ViTModel", {}, foreign.vit(gelu="erf", ln_epsilon=1e-12, classes=0, representation=32)
    ),
    "no pooler": ("ViTModel", None, foreign.vit(gelu="erf", ln_epsilon=1e-12, classes=0)),
}  # fmt: skip


@pytest.mark.parametrize("kind", OF_HF)
def test_model_of_transformers_and_back(tmp_path, kind):
    name, settings, cfg = OF_HF[kind]
    config = transformers().ViTConfig(**HF | (settings or {}))
    kwargs = {"add_pooling_layer": False} if settings is None else {}
    theirs = randomised(getattr(transformers(), name)(config, **kwargs))
    theirs.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    model, params, _ = vit_jax.load(path)
    assert model.cfg == cfg
    x = foreign.images(12, 12)
    expected = outputs(theirs, x)
    agree(foreign.logits(cfg, params, x), expected)

    ours = tmp_path / "ours" / "model.safetensors"
    vit_jax.save(ours, model, params, "hf")
    if kind != "no pooler":  # its absence is an argument of the class, not of the configuration
        agree(outputs(hf_loaded(ours), x), expected)
        written = {n.removeprefix("vit."): a for n, a in files.read(ours).items()}
        foreign.assert_same(written, {n.removeprefix("vit."): a for n, a in in_old_names(theirs)})
    back, same, _ = vit_jax.load(ours)
    assert back.cfg == cfg
    foreign.assert_same(same, params)


def in_old_names(model):
    """The names of published files; transformers 5 has others in memory and writes these."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return [
            (name, array) for name, array in files.read(Path(folder) / "model.safetensors").items()
        ]


@pytest.mark.parametrize("name", ["ViTForImageClassification", "ViTModel"])
def test_names_that_transformers_has_in_memory(tmp_path, name):
    theirs = randomised(getattr(transformers(), name)(transformers().ViTConfig(**HF)))
    memory = {n: v.numpy() for n, v in theirs.state_dict().items()}
    path = foreign.safetensors(tmp_path / "x.safetensors", memory)
    theirs.config.save_pretrained(tmp_path)
    model, params, _ = vit_jax.load(path)
    x = foreign.images(12, 12)
    agree(foreign.logits(model.cfg, params, x), outputs(theirs, x))


# ---------------------------------------------------------------- what their files hold


@pytest.mark.parametrize("kind", [k for k in OF_TIMM if k != "class token without a position"])
def test_file_written_by_hand_has_the_names_of_timm(kind):
    """So that tests without timm use files as timm writes them."""
    name, settings, _ = OF_TIMM[kind]
    cfg, side = expected_config(kind), settings.get("img_size", 64)
    write = {"BiT": foreign.timm_bit, "Mixer": foreign.timm_mixer}.get(kind, foreign.timm_vit)
    with torch().device("meta"):
        theirs = shapes(timm_model(name, **settings))
    file = write(foreign.zeros(cfg, side, side))
    if "registers" in kind and "cls_token" in file:
        file["pos_embed"] = file["pos_embed"][:, 1:]
    assert {n: a.shape for n, a in file.items()} == theirs


def test_file_written_by_hand_has_the_names_of_transformers(tmp_path):
    for kind in ("classifier", "pooler"):
        name, settings, cfg = OF_HF[kind]
        model = getattr(transformers(), name)(transformers().ViTConfig(**HF | settings))
        file = foreign.hf_vit(foreign.random(cfg, 12, 12))
        prefix = "" if "head" in foreign.random(cfg, 12, 12) else "vit."
        assert {n.removeprefix(prefix): a.shape for n, a in file.items()} == {
            n: a.shape for n, a in in_old_names(model)
        }


# ---------------------------------------------------------------- every published variant

HYBRIDS = {
    "R+Ti/16": "vit_tiny_r_s16_p8_224",
    "R26+S/32": "vit_small_r26_s32_224",
    "R26+B/32": "vit_base_r26_s32_224",
    "R50+B/16": "vit_base_r50_s16_224",
    "R50+L/32": "vit_large_r50_s32_224",
}
BITS = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")


def on_meta(variant):
    """timm's own model of a variant: names and shapes without memory."""
    with torch().device("meta"):
        if variant in HYBRIDS:
            return timm_model(HYBRIDS[variant], num_classes=1000)
        if variant.startswith("BiT-"):
            name = f"resnetv2_{variant[5:].lower()}_bit"
            return timm_model(name, num_classes=1000)
        if variant.startswith("Mixer-"):
            return timm_model(f"mixer_{variant[6:].lower().replace('/', '')}_224")
        cfg = variants.config(variant=variant, classes=1000)
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(
            img_size=cfg.patch * 14, patch_size=cfg.patch, embed_dim=cfg.width, depth=cfg.depth,
            num_heads=cfg.heads, mlp_ratio=(cfg.mlp + 0.5) / cfg.width, num_classes=1000,
            **(MAP if variants.published(variant) else {}),
        )  # fmt: skip


TIMM_VARIANTS = [
    *[n for n in variants.NAMED if "+" not in n and not n.startswith(("Axial", "BiT", "Mixer"))],
    *HYBRIDS,
    *[f"BiT-{name}" for name in BITS],
    *[n for n in variants.NAMED if n.startswith("Mixer") and n != "Mixer-S/8"],  # timm has none
]


@pytest.mark.parametrize("variant", TIMM_VARIANTS)
def test_every_name_of_a_published_variant_maps_both_ways(tmp_path, monkeypatch, variant):
    theirs = shapes(on_meta(variant))
    given = {name: np.broadcast_to(np.float32(0), shape) for name, shape in theirs.items()}
    maps_both_ways(tmp_path, monkeypatch, "timm", variant, given)


@pytest.mark.parametrize("variant", ["Ti/16", "S/16", "B/16", "B/32", "L/16", "L/32", "H/14"])
def test_every_name_of_a_published_variant_maps_both_ways_hf(tmp_path, monkeypatch, variant):
    cfg = variants.config(variant=variant, classes=1000)
    file = foreign.hf_vit(foreign.zeros(cfg, cfg.patch * 14, cfg.patch * 14))
    maps_both_ways(tmp_path, monkeypatch, "hf", variant, file)


def maps_both_ways(tmp_path, monkeypatch, name, variant, given):
    monkeypatch.setattr(files, "read", lambda path, shapes_only: dict(given))
    heads = 12 if variant == "b/32" else 0  # S/32 has the same sizes
    found = convert.read(tmp_path / "x.safetensors", heads=heads, shapes_only=True)
    assert found.settings["variant"] == variant
    assert found.format == name
    side = found.image_size[0]
    settings = variants.published(variant) | {"gelu": "erf"} | RESNET_OF_TIMM
    settings |= {"ln_epsilon": 1e-12} if name == "hf" else {}
    plain = "+" not in variant and not variant.startswith("BiT")
    lacking = set(RESNET_OF_TIMM) if plain else {"gelu"} if variant.startswith("BiT") else set()
    settings = {k: v for k, v in settings.items() if k not in lacking}
    cfg = variants.config(variant=variant, classes=1000, **settings)
    assert found.config == cfg
    ours = foreign.flat(foreign.zeros(cfg, side, side))
    assert {n: a.shape for n, a in found.flat.items()} == {n: a.shape for n, a in ours.items()}

    forms = [f for f in safetensors.FORMATS if (f.name, f.family) == (name, variants.family(cfg))]
    forms = [f for f in forms if f.writes(found.flat)]
    form = min(forms, key=lambda f: len(cfg.unheld(f.constants, f.takes, everything=bool(f.kinds))))
    small = {n: np.broadcast_to(np.int8(0), a.shape) for n, a in found.flat.items()}
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: array)
    back = name_table.write(form, small, Context(class_rows=int("cls" in ours)))
    assert {n: a.shape for n, a in back.items()} == {n: a.shape for n, a in given.items()}


# ---------------------------------------------------------------- heads


def hand_written(tmp_path, cfg, write, side=12):
    return foreign.safetensors(tmp_path / "x.safetensors", write(foreign.random(cfg, side, side)))


@pytest.mark.parametrize("write", [foreign.timm_vit, foreign.hf_vit])
def test_heads_are_said_by_the_configuration_else_by_a_variant_else_asked_for(tmp_path, write):
    path = hand_written(tmp_path, foreign.vit(), write)
    with pytest.raises(BadInput, match=r"heads= \(--heads, --config.model.heads\)"):
        convert.read(path)
    assert convert.read(path, heads=8).settings["heads"] == 8
    key = "num_attention_heads" if write is foreign.hf_vit else "num_heads"
    said = {key: 2} if write is foreign.hf_vit else {"model_args": {key: 2}}
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert convert.read(path).settings["heads"] == 2
    with pytest.raises(
        BadInput, match=r"heads=8 \(--heads\), but these weights have 2 heads; leave"
    ):
        vit_jax.load(path, heads=8)
    (tmp_path / "config.json").unlink()

    named = variants.config(variant="Ti/4", classes=3)
    path = hand_written(tmp_path, named, write, 8)
    assert convert.read(path).settings["heads"] == 3
    assert convert.read(path).settings["variant"] == "Ti/4"
    (tmp_path / "config.json").write_text(json.dumps({key: 6, "model_args": {key: 6}}))
    assert convert.read(path).settings["heads"] == 6


def test_heads_of_the_file_are_those_of_the_model(tmp_path):
    """The same numbers under another number of heads are another model."""
    path = hand_written(tmp_path, foreign.vit(), foreign.timm_vit)
    for heads in (2, 8):
        theirs = timm_model("vit_base_patch16_224", **PLAIN | {"num_heads": heads})
        theirs.load_state_dict({n: torch().from_numpy(a) for n, a in files.read(path).items()})
        model, params, _ = vit_jax.load(path, heads=heads)
        x = foreign.images(12, 12)
        agree(foreign.logits(model.cfg, params, x), outputs(theirs.eval(), x))


@pytest.mark.parametrize("heads", [3, 5, 33, 64, -4])
@pytest.mark.parametrize("write", [foreign.timm_vit, foreign.hf_vit])
def test_heads_that_do_not_divide(tmp_path, write, heads):
    path = hand_written(tmp_path, foreign.vit(), write)
    with pytest.raises(BadInput, match=f"heads={heads} do not divide the width 32"):
        convert.read(path, heads=heads)


def test_mixers_and_bits_have_no_heads_to_ask_for(tmp_path):
    for cfg, write, side in (
        (foreign.mixer(), foreign.timm_mixer, 12),
        (foreign.bit(), foreign.timm_bit, 32),
        (foreign.bit(classes=0), foreign.timm_bit, 32),
    ):
        weights = foreign.random(cfg, side, side)
        path = foreign.safetensors(tmp_path / "x.safetensors", write(weights))
        foreign.assert_same(convert.read(path).flat, foreign.flat(weights))


@pytest.mark.parametrize("cfg", [foreign.hybrid(), foreign.hybrid(stages=())], ids=["s", "root"])
def test_hybrid_of_free_sizes(tmp_path, cfg):
    weights = foreign.random(cfg, 96, 96)
    path = foreign.safetensors(tmp_path / "x.safetensors", foreign.timm_vit(weights))
    found = convert.read(path, heads=4)
    foreign.assert_same(found.flat, foreign.flat(weights))
    assert found.image_size == (96, 96)


# ---------------------------------------------------------------- parts that our models lack


@pytest.mark.parametrize(
    "architecture, words",
    [
        ("cait_xxs24_224", "unknown names"),
        ("swin_tiny_patch4_window7_224", "relative position"),
        ("vit_base_patch16_rope_224", "unknown names"),
    ],
)
def test_architecture_of_timm_that_ours_is_not(tmp_path, monkeypatch, architecture, words):
    with torch().device("meta"):
        theirs = shapes(timm_model(architecture))
    given = {name: np.broadcast_to(np.float32(0), shape) for name, shape in theirs.items()}
    monkeypatch.setattr(files, "read", lambda path, shapes_only: dict(given))
    with pytest.raises(BadInput, match=words) as caught:
        convert.read(tmp_path / "x.safetensors", shapes_only=True)
    assert any(name in str(caught.value) for name in theirs)


def test_missing_biases_are_read(tmp_path):
    path = timm_saved(
        tmp_path / "t", timm_model("vit_base_patch16_224", **PLAIN | {"qkv_bias": False})
    )
    assert vit_jax.load(path)[0].cfg.biases == "no_qkv"
    config = transformers().ViTConfig(**HF, qkv_bias=False)
    transformers().ViTForImageClassification(config).save_pretrained(tmp_path / "h")
    assert vit_jax.load(tmp_path / "h" / "model.safetensors")[0].cfg.biases == "no_qkv"


def test_pooling_of_timm_that_ours_lacks(tmp_path):
    """Nothing but the configuration shows it: the tensors are those of another model of ours."""
    settings = {"reg_tokens": 3, "no_embed_class": True, "pool_include_prefix": True} | GAP
    path = timm_saved(tmp_path, timm_model("vit_base_patch16_224", **PLAIN | settings))
    with pytest.raises(BadInput, match="pool_include_prefix"):
        vit_jax.load(path)


@pytest.mark.slow
def test_every_architecture_of_timm_is_read_right_or_refused(tmp_path, monkeypatch):
    """Only the name of an architecture says its activation, epsilon, heads and pooling."""
    save_config_for_hf = peer_libraries.load("timm.models._hub").save_config_for_hf
    read, wanted = [], ("vit_", "deit", "flexivit", "eva", "beit", "samvit", "naflex", "test_vit")
    for name in [n for n in timm().list_models() if n.startswith(wanted)]:
        try:
            with torch().device("meta"):
                theirs = timm_model(name)
        except (NotImplementedError, RuntimeError):
            continue  # computes with values when it is built
        given = {n: np.broadcast_to(np.float32(0), shape) for n, shape in shapes(theirs).items()}
        monkeypatch.setattr(files, "read", lambda path, shapes_only, given=given: dict(given))
        save_config_for_hf(theirs, tmp_path / "config.json")
        try:
            weights = convert.read(tmp_path / "x.safetensors", shapes_only=True)
            cfg = weights.config
            names = foreign.flat(foreign.zeros(cfg, *weights.image_size))
        except BadInput:
            continue
        if {n: a.shape for n, a in names.items()} != {n: a.shape for n, a in weights.flat.items()}:
            continue  # fitting says so
        read.append(name)
        block = theirs.blocks[0]
        assert cfg.heads == block.attn.num_heads, name
        act = type(block.mlp.act).__name__
        tanh = act == "GELUTanh" or getattr(block.mlp.act, "approximate", "none") == "tanh"
        quick = act in ("QuickGELU", "QuickGELUTanh")
        if cfg.gate == "none":
            assert cfg.gelu == ("quick" if quick else "tanh" if tanh else "erf"), name
            assert "GELU" in act, name
        else:
            assert act == "SiLU", name
        assert block.norm1.eps == cfg.ln_epsilon, name
        assert {"token": "token", "avg": "gap", "map": "map"}[theirs.global_pool] == cfg.pool, name
        assert theirs.num_prefix_tokens == cfg.prefix, name
    assert len(read) > 60
