# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""config.json of timm and transformers: what is read of theirs, and what of it ours says."""

import json
import math

import foreign
import pytest

import vit_jax
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import convert
from vit_jax.weights.formats import json_config

NOTHING = {"timm": {"pool_include_prefix": False}, "hf": {}}

# --- reading ---


@pytest.mark.parametrize(
    "given, found",
    [
        ({}, {}),
        ({"architecture": "vit_base_patch16_224", "num_classes": 3}, {}),
        ({"model_args": {"num_heads": 6}}, {"heads": 6}),
        ({"model_args": {"act_layer": "gelu"}}, {"gelu": "erf"}),
        ({"model_args": {"act_layer": "gelu_tanh"}}, {"gelu": "tanh"}),
        ({"model_args": {"act_layer": None, "num_heads": None}}, {}),
        ({"model_args": {"embed_dim": 32, "depth": 2, "reg_tokens": 4}},
         {"width": 32, "depth": 2, "registers": 4}),
        ({"model_args": {"reg_tokens": 0}}, {}),
        ({"model_args": {"global_pool": "avg"}}, {"pool": "gap"}),
        ({"model_args": {"global_pool": "map"}, "global_pool": "avg"}, {"pool": "map"}),
        ({"global_pool": "token"}, {"pool": "token"}),
        ({"global_pool": "max"}, {"pool": "max"}),  # which weights never have
        ({"model_args": {"pool_include_prefix": True}}, {"pool_include_prefix": True}),
        ({"model_args": {"img_size": 96}}, {"image_size": (96, 96)}),
        ({"model_args": {"img_size": [96, 64]}}, {"image_size": (96, 64)}),
        ({"pretrained_cfg": {"input_size": [3, 96, 64]}}, {"image_size": (96, 64)}),
        ({"model_args": {"img_size": 8}, "pretrained_cfg": {"input_size": [3, 96, 64]}},
         {"image_size": (8, 8)}),
        ({"input_size": [3, 96, 64]}, {"image_size": (96, 64)}),  # timm's older files
        ({"architecture": "vit_base_patch16_gap_224"}, {"heads": 16}),
        ({"architecture": "vit_base_patch16_gap_224.in1k", "model_args": {"num_heads": 4}},
         {"heads": 4}),
        ({"model_args": {"rope_temperature": 50}}, {"rope_base": 50.0}),
        ({"model_args": {"rope_rotate_half": True, "rope_rescale_coords": 2.0}}, {}),
        ({"label_names": ["tench", "crane"]}, {"names": ("tench", "crane")}),
        ({"label_names": None}, {}),
        ({"architecture": "vit_so400m_patch16_siglip_gap_512.v2_webli"}, {"gelu": "tanh"}),
        ({"architecture": "vit_large_patch16_siglip_512"}, {"gelu": "tanh"}),
        ({"architecture": "vit_large_patch16_siglip_384"}, {}),
        ({"architecture": "vit_base_patch32_siglip_256", "model_args": {"act_layer": "gelu"}},
         {"gelu": "erf"}),
    ],
)  # fmt: skip
def test_what_timm_says(given, found):
    assert json_config.read("timm", given) == NOTHING["timm"] | found


@pytest.mark.parametrize(
    "architecture, args, by, square",
    [
        ("", {}, "bicubic", False), ("naflexvit_base_patch16_gap", {}, "bicubic", False),
        ("naflexvit_base_patch16_siglip.v2_webli", {}, "bilinear", False),
        ("naflexvit_base_patch16_par_gap.e300_s576_in1k", {}, "bicubic", True),
        ("naflexvit_base_patch16_parfac_gap", {}, "linear", True),
        ("naflexvit_base_patch16_parfac_gap", {"pos_embed_ar_preserving": False}, "linear", False),
        ("naflexvit_base_patch16_map", {"pos_embed_interp_mode": "bilinear"}, "bilinear", False),
        ("naflexvit_base_patch16_siglip", {"pos_embed_antialias": False}, "linear", False),
        ("vit_base_patch16_224", {"pos_embed": "factorized"}, "linear", False),
    ],
)  # fmt: skip
def test_how_naflexvit_resizes_positions(architecture, args, by, square):
    content = {"architecture": architecture, "model_args": args}
    facts = json_config.read("timm", content, naflex=True)
    assert (facts["naflex_filter"], facts["naflex_square"]) == (by, square)


@pytest.mark.parametrize(
    "architecture, args, said",
    [
        ("naflexvit_base_patch16_gap", {"pos_embed_align_corners": True}, "align_corners=True"),
        ("naflexvit_base_patch16_gap", {"pos_embed_use_grid_sample": True}, "grid_sample=True"),
        ("naflexvit_base_patch16_gap", {"patchify_channels_last": False}, "channels_last=False"),
        ("naflexvit_base_patch16_gap", {"pos_embed_antialias": False}, "bilinear alone"),
        ("naflexvit_base_patch16_gap", {"pos_embed_interp_mode": "area"}, "bicubic"),
        ("naflexvit_base_patch16_map", {"attn_pool_num_heads": 4}, "attn_pool_num_heads=4"),
        ("naflexvit_base_patch16_gap", {"rope_type": "mixed"}, "rope_type='mixed'"),
        ("vit_pe_core_base_patch16_224", {}, "has rotary positions"),
    ],
)  # fmt: skip
def test_what_naflexvit_says_and_ours_have_not(architecture, args, said):
    with pytest.raises(BadInput, match=said):
        json_config.read("timm", {"architecture": architecture, "model_args": args}, naflex=True)


@pytest.mark.parametrize(
    "given, found",
    [
        ({}, {}),
        ({"model_type": "vit", "pooler_act": "tanh", "qkv_bias": True, "id2label": {}}, {}),
        ({"id2label": {"1": "crane", "0": "tench"}}, {"names": ("tench", "crane")}),
        ({"id2label": {"0": 7, "1": 9}}, {"names": ("7", "9")}),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, {}),
        ({"id2label": None}, {}),
        ({"problem_type": "multi_label_classification"}, {"sigmoid": True}),
        ({"problem_type": "single_label_classification"}, {}),
        ({"num_attention_heads": 6}, {"heads": 6}),
        ({"hidden_act": "gelu"}, {"gelu": "erf"}),
        ({"hidden_act": "silu"}, {"silu": True}),
        ({"hidden_act": "gelu_new"}, {"gelu": "tanh"}),
        ({"hidden_act": "gelu_pytorch_tanh"}, {"gelu": "tanh"}),
        ({"layer_norm_eps": 1e-5}, {"ln_epsilon": 1e-5}),
        ({"image_size": 96}, {"image_size": (96, 96)}),
        ({"image_size": [96, 64]}, {"image_size": (96, 64)}),
        ({"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48},
         {"width": 32, "depth": 2, "mlp": 48}),
    ],
)  # fmt: skip
def test_what_transformers_say(given, found):
    assert json_config.read("hf", given) == found


OWN = {
    "gelu": "tanh", "ln_epsilon": 1e-3, "gn_epsilon": 1e-4, "ws_epsilon": 1e-10,
    "ws_epsilon_in": "variance", "root_pool": "-inf",
}  # fmt: skip


@pytest.mark.parametrize("name", ["timm", "hf"])
def test_our_constants_count_more_than_theirs(name):
    theirs = {"model_args": {"act_layer": "gelu"}, "hidden_act": "gelu", "layer_norm_eps": 1e-5}
    assert json_config.read(name, {**theirs, "vit_jax": OWN}) == NOTHING[name] | OWN


def message(name, given):
    with pytest.raises(BadInput) as caught:
        json_config.read(name, given)
    return str(caught.value)


@pytest.mark.parametrize(
    "name, key, given",
    [
        ("timm", "act_layer", {"model_args": {"act_layer": "relu"}}),
        ("timm", "act_layer", {"model_args": {"act_layer": "silu"}}),
        ("hf", "hidden_act", {"hidden_act": "tanh"}),
        ("hf", "hidden_act", {"hidden_act": None}),
        ("hf", "hidden_act", {"hidden_act": 3}),
    ],
)
def test_other_activation_names_the_ones_there_are(name, key, given):
    said = message(name, given)
    assert f"activation in {key} of config.json" in said
    assert "gelu" in said.partition("Known:")[2] + said.partition("Did you mean")[2]


@pytest.mark.parametrize("key, value", [("rope_type", "cat"), ("rope_grid_offset", 0.5),
                                        ("rope_new", 1)])  # fmt: skip
def test_other_rotary_positions_of_timm(key, value):
    said = message("timm", {"model_args": {"rope_temperature": 100, key: value}})
    assert f"{key}={value!r} of model_args" in said


def test_other_pooler_of_transformers():
    with pytest.raises(BadInput, match=r"pooler_act.*'relu'"):
        json_config.read("hf", {"pooler_act": "relu"})


@pytest.mark.parametrize(
    "name, given",
    [
        ("timm", {"model_args": []}),
        ("timm", {"model_args": None}),
        ("timm", {"model_args": {"num_heads": "four"}}),
        ("timm", {"model_args": {"num_heads": -4}}),
        ("timm", {"model_args": {"num_heads": True}}),
        ("timm", {"model_args": {"num_heads": 4.5}}),
        ("timm", {"model_args": {"num_heads": math.inf}}),
        ("timm", {"model_args": {"act_layer": ["gelu"]}}),
        ("timm", {"model_args": {"global_pool": []}, "global_pool": [1]}),
        ("timm", {"model_args": {"img_size": "large"}}),
        ("timm", {"model_args": {"img_size": [1, 2, 3]}}),
        ("timm", {"model_args": {"img_size": 22.4}}),
        ("timm", {"model_args": {"img_size": 8}, "pretrained_cfg": []}),
        ("timm", {"pretrained_cfg": None}),
        ("timm", {"pretrained_cfg": {"input_size": 224}}),
        ("timm", {"pretrained_cfg": {"input_size": [3, "a", "b"]}}),
        ("timm", {"label_names": "abc"}),
        ("timm", {"label_names": {"a": 1}}),
        ("timm", {"label_names": [["a"]]}),
        ("hf", {"id2label": ["a"]}),
        ("hf", {"id2label": {"zero": "a"}}),
        ("hf", {"id2label": {"1": "a"}}),
        ("hf", {"id2label": {"0": None}}),
        ("hf", {"num_attention_heads": None}),
        ("hf", {"num_attention_heads": 0}),
        ("hf", {"layer_norm_eps": "small"}),
        ("hf", {"layer_norm_eps": 0}),
        ("hf", {"layer_norm_eps": -1e-6}),
        ("hf", {"layer_norm_eps": math.nan}),
        ("hf", {"layer_norm_eps": True}),
        ("hf", {"hidden_size": [32]}),
        ("hf", {"image_size": {"height": 8}}),
        ("hf", {"image_size": [8]}),
        *[(n, {"vit_jax": own}) for n in ("timm", "hf") for own in (
            3, [1], "x", None, {"gelu": 5}, {"ln_epsilon": "x"}, {"ln_epsilon": 0.0},
            {"ws_epsilon": math.inf}, {"width": 8}, {"image_size": "x"}, {"heads": 4},
        )],
    ],
)  # fmt: skip
def test_values_of_a_wrong_kind(name, given):
    assert "config.json of the weights is not understood" in message(name, given)


# --- writing ---

EXPORTS = {
    "timm": ("timm", foreign.vit(ln_epsilon=1e-9), 12),
    "timm, erf": ("timm", foreign.vit(gelu="erf", heads=2), 12),
    "timm, gap": ("timm", foreign.vit(pool="gap"), 12),
    "timm, map": ("timm", foreign.vit(pool="map", registers=2), 12),
    "timm, hybrid": (
        "timm",
        foreign.hybrid(
            variant="R+custom/16", stages=(), root_width=64, gn_epsilon=2e-6, ws_epsilon=1e-7
        ),
        64,
    ),
    "timm, Mixer": ("timm", variants.config(variant="Mixer-S/16", classes=7, gelu="erf"), 32),
    "hf": ("hf", foreign.vit(ln_epsilon=1e-3, heads=8), 12),
    "hf, pooler": ("hf", foreign.vit(classes=0, representation=32, gelu="erf"), 12),
    "hf, neither": ("hf", foreign.vit(classes=0), 12),
}


@pytest.mark.parametrize("export", EXPORTS)
def test_export_says_everything_that_its_tensors_do_not(tmp_path, export):
    name, cfg, side = EXPORTS[export]
    path = tmp_path / "model.safetensors"
    vit_jax.save(path, variants.make(cfg), foreign.random(cfg, side, side), name)
    found = convert.read(path)
    assert found.format == name
    assert found.config == cfg
    assert found.image_size == (side, side)
    beside = {"config.json"} | ({"preprocessor_config.json"} if name == "hf" else set())
    assert {p.name for p in tmp_path.iterdir()} == beside | {path.name}
    for file in beside:  # other programs must be able to read it
        text = (tmp_path / file).read_text()
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_timm_is_told_everything_its_model_is_made_from(tmp_path):
    cfg = foreign.vit(registers=2, pool="gap", mlp=49)
    path = tmp_path / "model.safetensors"
    vit_jax.save(path, variants.make(cfg), foreign.random(cfg, 12, 12), "timm")
    written = json.loads((tmp_path / "config.json").read_text())
    args = written.pop("model_args")
    assert int(args.pop("mlp_ratio") * 32) == 49
    assert args == {
        "img_size": 12, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4,
        "class_token": False, "global_pool": "avg", "fc_norm": False, "reg_tokens": 2,
        "no_embed_class": True, "pos_embed": "learn",
        "act_layer": "gelu_tanh",
    }  # fmt: skip
    assert written["architecture"] == "vit_base_patch16_224"
    assert (written["num_classes"], written["num_features"]) == (7, 32)
    assert written["pretrained_cfg"]["input_size"] == [3, 12, 12]
    assert written["pretrained_cfg"]["num_classes"] == 7
    assert written["vit_jax"] == {"gelu": "tanh", "ln_epsilon": 1e-6}


def test_transformers_are_told_everything_their_model_is_made_from(tmp_path):
    cfg = foreign.vit(ln_epsilon=1e-3, gelu="erf")
    path = tmp_path / "model.safetensors"
    vit_jax.save(path, variants.make(cfg), foreign.random(cfg, 12, 12), "hf")
    written = json.loads((tmp_path / "config.json").read_text())
    expected = {
        "architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "hidden_act": "gelu", "layer_norm_eps": 1e-3, "image_size": 12, "patch_size": 4,
        "num_channels": 3, "qkv_bias": True,
    }  # fmt: skip
    assert written == written | expected
    assert written["id2label"] == {str(i): f"LABEL_{i}" for i in range(7)}
    images = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert images["size"] == {"height": 12, "width": 12}
    assert (images["image_mean"], images["image_std"]) == ([0.5] * 3, [0.5] * 3)
    assert math.isclose(images["rescale_factor"], 1 / 255)


UNKNOWN_TO_THEM = [
    ("timm", foreign.vit(representation=9), 12, "no pre-logits"),
    ("timm", foreign.vit(ln_epsilon=1e-4), 12, "ln_epsilon"),
    ("timm", foreign.hybrid(), 24, "no hybrid with stages"),
    ("timm", foreign.hybrid(stages=()), 48, "root of 32 channels"),
    ("timm", foreign.bit(), 32, "no such BiT"),
    ("timm", variants.config(variant="BiT-R50x2", classes=7), 64, "no such BiT"),
    ("timm", variants.config(variant="BiT-R50x1", classes=7, root_pool="-inf"), 64, "no such BiT"),
    ("timm", foreign.mixer(gelu="erf"), 12, "timm's Mixers"),
    ("timm", variants.config(variant="Mixer-S/16", classes=7), 32, "timm's Mixers"),
    ("timm", variants.config(variant="Mixer-S/8", classes=7, gelu="erf"), 16, "timm's Mixers"),
    ("hf", foreign.vit(pool="gap"), 12, "no pool=gap"),
    ("hf", foreign.vit(pool="map"), 12, "SigLIP has a head"),
    ("hf", foreign.hybrid(), 24, "no backbone"),
    ("hf", foreign.vit(representation=32), 12, "after pre-logits"),
    ("hf", foreign.vit(representation=9, classes=0), 12, "width of the tokens"),
    ("hf", foreign.vit(registers=2), 12, "no registers=2"),
    ("hf", foreign.bit(), 32, "no bit models"),
    ("hf", foreign.mixer(), 12, "no mixer models"),
    ("timm", foreign.vit(posemb="sincos2d"), 12, "no posemb=sincos2d"),
    ("timm", foreign.vit(posemb="none"), 12, "no posemb=none"),
    ("hf", foreign.vit(posemb_at="shared"), 12, "at shared"),
]


@pytest.mark.parametrize("name, cfg, side, words", UNKNOWN_TO_THEM)
def test_model_that_they_do_not_have(tmp_path, name, cfg, side, words):
    model, weights = variants.make(cfg), foreign.zeros(cfg, side, side)
    with pytest.raises(BadInput, match=words):
        vit_jax.save(tmp_path / "model.safetensors", model, weights, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("height, width", [(8, 12), (12, 16)])
@pytest.mark.parametrize("name", ["timm", "hf"])
def test_image_that_is_not_square(tmp_path, name, height, width):
    cfg = foreign.vit(gelu="erf")
    with pytest.raises(BadInput, match="not a square image; write npz"):
        vit_jax.save(
            tmp_path / "x.safetensors", variants.make(cfg), foreign.zeros(cfg, height, width), name
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "cfg, words",
    [
        (foreign.vit(ln_epsilon=1e-3), "ln_epsilon=0.001"),
        (foreign.hybrid(gn_epsilon=1e-2), "gn_epsilon=0.01"),
        (variants.config(variant="BiT-R50x1", classes=7, ws_epsilon=1e-2), "ws_epsilon=0.01"),
    ],
)
def test_epsilons_that_timm_is_not_near_to_are_refused(tmp_path, cfg, words):
    params = foreign.random(cfg, 64, 64)
    with pytest.raises(BadInput, match=words):
        vit_jax.save(tmp_path / "model.safetensors", variants.make(cfg), params, "timm")
    assert not list(tmp_path.iterdir())
