# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the JSON file beside weights for timm. See `beside` for the arguments of a function."""

import math
from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput
from vit_jax.weights import image_settings
from vit_jax.weights.formats import json_config
from vit_jax.weights.formats.json_config import NAME, OWN, OWN_CONSTANTS, Images

if TYPE_CHECKING:
    from vit_jax.models.bit import BiTConfig
    from vit_jax.models.mixer import MixerConfig
    from vit_jax.models.vit import ViTConfig

# Stages -> the timm model that has them; its widths and depths are arguments.
_TIMM_HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
_TIMM_EPSILONS = {
    "ln_epsilon": (1e-12, 1e-6),
    "gn_epsilon": (1e-6, 1e-5),
    "ws_epsilon": (1e-10, 1e-5),
}
_CLIP = "vit_base_patch16_clip_224"
_CLIP_EPSILON = 1e-5  # of LayerNorm in CLIP and AIMv2
_TIMM_BIT = ((50, 1), (50, 3), (101, 1), (101, 3), (152, 2), (152, 4))


def timm_mixer(
    cfg: "MixerConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's Mixer."""
    from vit_jax.models import mixer

    _check_epsilons(constants)
    sizes = (cfg.width, cfg.depth, cfg.mlp, cfg.token_mlp)
    name = next((n.lower() for n, named in mixer.SIZES.items() if named == sizes), None)
    if name is None or cfg.gelu != "erf" or cfg.patch not in (16, 32):
        raise BadInput("timm's Mixers are S, B and L /16 and /32 with erf GELU; write npz.")
    architecture, args = f"mixer_{name}{cfg.patch}_224", {"img_size": image_size}
    return _json(architecture, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_bit(
    cfg: "BiTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's BiT."""
    from vit_jax.models import resnet

    _check_epsilons(constants)
    named = {(resnet.STAGES[n], 64 * w): f"resnetv2_{n}x{w}_bit" for n, w in _TIMM_BIT}
    key = (cfg.resnet.stages, cfg.resnet.width)
    if key not in named or cfg.resnet.root_pool != "zero":
        raise BadInput(f"timm has no such BiT; it has {', '.join(named.values())}; write npz.")
    features = cfg.resnet.features
    return _json(named[key], {}, features, cfg.classes, image_size, constants, images)


def _json(
    architecture: str,
    args: dict[str, Any],
    features: int,
    classes: int,
    image_size: int,
    constants: dict[str, Any],
    images: Images,
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for a model of timm with these `model_args`."""
    content = {
        "architecture": architecture,
        "num_classes": classes,
        "num_features": features,
        **({"global_pool": args["global_pool"]} if "global_pool" in args else {}),
        "model_args": args,
        **({"label_names": list(images.names)} if images.names else {}),
        "pretrained_cfg": {
            "input_size": [3, image_size, image_size],
            "interpolation": images.interpolation,
            **_timm_crop(image_size, images.shorter_side),
            "mean": list(images.mean),
            "std": list(images.std),
            "num_classes": classes,
        },
    }
    written = {key: value for key, value in constants.items() if key in OWN_CONSTANTS}
    return {NAME: content | {OWN: written}}


def _timm_crop(image_size: int, shorter_side: int) -> dict[str, Any]:
    if not shorter_side:
        return {"crop_pct": 1.0, "crop_mode": "squash"}
    share = image_size / shorter_side
    if math.floor(image_size / share) < shorter_side:  # timm recomputes it like this
        share = math.nextafter(share, 0)
    return {"crop_pct": share, "crop_mode": "center"}


def _check_epsilons(constants: dict[str, Any]) -> None:
    """Raises BadInput for epsilons that are not near timm's own; those of published weights are."""
    for key, (low, high) in _TIMM_EPSILONS.items():
        if key in constants and not low <= constants[key] <= high:
            raise BadInput(
                f"timm: {key}={constants[key]} is not what its models compute with, nor near to "
                "it; keep the model as a run."
            )


def timm_vit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's ViT or hybrid."""
    if cfg.representation:
        raise BadInput("timm's ViT has no pre-logits layer; export it as npz or big_vision.")
    clip = _is_clip(cfg, constants)
    architecture = _CLIP if clip else "vit_base_patch16_224"
    if cfg.backbone is not None:
        if cfg.backbone.stages not in _TIMM_HYBRIDS or cfg.backbone.width != 64:
            raise BadInput(
                f"timm has no hybrid with stages {cfg.backbone.stages} and a root of "
                f"{cfg.backbone.width} channels; it has {list(_TIMM_HYBRIDS)} with 64; write npz."
            )
        architecture = _TIMM_HYBRIDS[cfg.backbone.stages]
    args = _sizes(cfg, image_size, cfg.mlp * (2 if _packed(cfg) else 1)) | {
        "class_token": cfg.class_rows > 0,
        "global_pool": _plain_pool(cfg),
        "fc_norm": cfg.final_norm == "pooled",
        "reg_tokens": cfg.registers,
        "no_embed_class": bool(cfg.registers),
        "pos_embed": "learn",
        "act_layer": json_config.name_of(cfg.gelu, json_config.TIMM_GELU),
    }
    if cfg.distillation:
        architecture = "deit_base_distilled_patch16_224"
    if cfg.layer_scale:
        args["init_values"] = cfg.layer_scale
    if cfg.qk_norm:
        args["qk_norm"] = True
    args |= _biases(cfg)
    if cfg.stem_norm == "tokens" or clip:
        args["pre_norm"] = cfg.stem_norm == "tokens"
    if _packed(cfg):
        architecture = "vit_giant_patch14_dinov2"
        del args["act_layer"]  # its own is that of the gate
    if cfg.norm == "rms":
        architecture = "aimv2_large_patch14_224"
        del args["act_layer"]
    return _json(architecture, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_naflex(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's NaFlexVit; its budget is the input's."""
    clip = _is_clip(cfg, constants)
    if cfg.stem_bias == (cfg.stem_norm == "tokens"):
        raise BadInput("timm: its NaFlexVit has stem_norm=tokens or stem_bias; keep a run.")
    sides = image_settings.canvas_of(images.patches or cfg.naflex**2, cfg.patch)
    args = _sizes(cfg, sides) | {
        **_biases(cfg),
        "qk_norm": cfg.qk_norm,
        "class_token": cfg.class_rows > 0,
        "reg_tokens": cfg.registers,
        "global_pool": _plain_pool(cfg),
        "fc_norm": cfg.final_norm == "pooled",
        "pre_norm": cfg.stem_norm == "tokens",
        "pos_embed_grid_size": [cfg.naflex, cfg.naflex],
        "pos_embed_interp_mode": "bicubic" if cfg.naflex_filter == "bicubic" else "bilinear",
        "pos_embed_antialias": cfg.naflex_filter != "linear",
        "pos_embed_ar_preserving": cfg.naflex_square,
        "act_layer": json_config.name_of(cfg.gelu, json_config.TIMM_GELU),
    }
    if cfg.layer_scale:
        args["init_values"] = cfg.layer_scale
    name = "naflexvit_base_patch16_siglip"  # without LayerScale, unless init_values has it
    if clip:
        name, args["use_naflex"] = _CLIP, True
    files = _json(name, args, cfg.width, cfg.classes, image_size, constants, images)
    files[NAME]["pretrained_cfg"]["input_size"] = [3, *sides]
    return files


def _sizes(cfg: "ViTConfig", image_size: int | tuple[int, int], mlp: int = 0) -> dict[str, Any]:
    """Returns the arguments that all ViTs of timm share; `mlp` is the width of its MLP if not F."""
    return {
        "img_size": image_size,
        "patch_size": cfg.patch,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "mlp_ratio": ((mlp or cfg.mlp) + 0.5) / cfg.width,  # rounded down
    }


def _is_clip(cfg: "ViTConfig", constants: dict[str, Any]) -> bool:
    """Returns True for the epsilon of CLIP; raises BadInput for others that timm does not have."""
    clip = cfg.ln_epsilon == _CLIP_EPSILON
    own = {"ln_epsilon"} if clip else set()
    _check_epsilons({key: value for key, value in constants.items() if key not in own})
    return clip


def _biases(cfg: "ViTConfig") -> dict[str, Any]:
    """Returns the arguments of a block about biases; raises BadInput for keys alone without one."""
    if cfg.biases == "no_key":
        raise BadInput("timm: its ViT has biases of queries, keys and values, or none; keep a run.")
    if cfg.biases == "all":
        return {}
    return {"qkv_bias": False, "proj_bias": cfg.biases == "no_qkv"}


def _packed(cfg: "ViTConfig") -> bool:
    """Returns True if timm keeps the gate and the other half of the MLP in one layer."""
    return cfg.gate != "none" and cfg.norm == "layer"


def _plain_pool(cfg: "ViTConfig") -> str:
    """Returns timm's name of a pool of its ViT, which reads no class token beside the patches."""
    if cfg.pool == "map" and cfg.class_token:
        raise BadInput(
            "timm: the attention pool of its ViT leaves the class token out; keep a run."
        )
    return _pool(cfg)


def _pool(cfg: "ViTConfig") -> str:
    """Returns timm's name of a pool; raises BadInput if it has none."""
    if cfg.pool == "token+gap":
        raise BadInput("timm has no head on the class token and the mean over patches; write hf.")
    return {"token": "token", "gap": "avg", "map": "map"}[cfg.pool]


def timm_dinov3(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's DINOv3."""
    if cfg.ln_epsilon != 1e-5 or (cfg.gate == "none" and cfg.gelu != "erf"):
        raise BadInput(
            "timm: its DINOv3 has ln_epsilon=1e-5 and gelu=erf; keep the model as a run, or write "
            "hf."
        )
    args = _sizes(cfg, image_size) | {
        "global_pool": _pool(cfg),
        "num_reg_tokens": cfg.registers,
        "qkv_bias": cfg.biases == "no_key",
        "rope_temperature": cfg.rope_base,
        "init_values": cfg.layer_scale,
    }
    if cfg.gate != "none":
        args |= {"swiglu_mlp": True, "swiglu_align_to": 1}
    name = "vit_small_patch16_dinov3"
    return _json(name, args, cfg.width, cfg.classes, image_size, constants, images)


def _timm_eva(cfg: "ViTConfig", image_size: int) -> dict[str, Any]:
    """Returns the arguments of timm's class Eva that EVA-02 and the Perception Encoder share."""
    if not cfg.rope_grid or cfg.registers:
        raise BadInput(
            "timm: its EVA models scale rotary positions to a grid (model.rope_grid) and have no "
            "registers; keep the model as a run."
        )
    return _sizes(cfg, image_size) | {
        "class_token": cfg.class_rows > 0,
        "global_pool": _pool(cfg),
        "rope_temperature": cfg.rope_base,
        "ref_feat_shape": [cfg.rope_grid, cfg.rope_grid],
    }


def timm_beit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's BEiT."""
    _check_epsilons(constants)
    if (cfg.gelu, cfg.pool) != ("erf", "gap"):
        raise BadInput("timm: its BEiT has gelu=erf and pool=gap; keep the model as a run.")
    args = _sizes(cfg, image_size) | {"init_values": cfg.layer_scale or None}
    name = "beit_base_patch16_224"
    return _json(name, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_eva02(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's EVA-02."""
    _check_epsilons(constants)
    if cfg.pool != "gap":
        raise BadInput("timm: its EVA-02 has pool=gap; keep the model as a run.")
    name = "eva02_base_patch14_224" if cfg.mlp_norm else "eva02_small_patch14_224"
    args = _timm_eva(cfg, image_size)
    return _json(name, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_pe(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's Perception Encoder."""
    heads = cfg.pool_heads or cfg.heads
    if cfg.ln_epsilon != 1e-5 or cfg.gelu != "erf" or cfg.pool != "map" or heads != 8:
        raise BadInput(
            "timm: its Perception Encoder has ln_epsilon=1e-5, gelu=erf, pool=map and pool_heads=8;"
            " keep the model as a run."
        )
    args = _timm_eva(cfg, image_size)
    args["attn_pool_mlp_ratio"] = ((cfg.pool_mlp or cfg.mlp) + 0.5) / cfg.width
    size = "gigantic_patch14_448" if cfg.rope_coordinates == "index" else "base_patch16_224"
    name = f"vit_pe_core_{size}"
    return _json(name, args, cfg.width, cfg.classes, image_size, constants, images)
