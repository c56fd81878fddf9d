# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the JSON files beside safetensors, for what weight files do not say.

A `Format` names one of these functions. They take the model, the pixels per side of its images, its
constants as fields of `variants.Settings`, and the description of images.
"""

import math
from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput
from vit_jax.weights.formats import json_config
from vit_jax.weights.formats.json_config import (
    FILTERS,
    NAME,
    OWN,
    OWN_CONSTANTS,
    PREPROCESSOR,
    SEVERAL,
    Images,
)

if TYPE_CHECKING:
    from vit_jax.models.bit import BiTConfig
    from vit_jax.models.mixer import MixerConfig
    from vit_jax.models.vit import ViTConfig


def hf_vit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' ViT."""
    if cfg.backbone or cfg.pool != "token":
        raise BadInput("hf: transformers' ViT has a class token and no backbone; use timm or npz.")
    if cfg.classes and cfg.representation:
        raise BadInput(
            "hf: no transformers model has a head after pre-logits; write npz or big_vision."
        )
    if cfg.representation not in (0, cfg.width):
        raise BadInput(
            f"hf: pre-logits have the width of the tokens, {cfg.width}; write npz or big_vision."
        )
    pooler = {"pooler_output_size": cfg.width, "pooler_act": "tanh"}
    return _hf(cfg, image_size, constants, images, "vit", "ViT", pooler)


def hf_deit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' DeiT with distillation."""
    head = "ForImageClassificationWithTeacher"
    return _hf(cfg, image_size, constants, images, "deit", "DeiT", {}, head=head)


def hf_dinov2(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' DINOv2, with or without registers.

    Its classifier reads the class token and the mean over patches; without a classifier it gives
    the class token.
    """
    if cfg.pool != ("token+gap" if cfg.classes else "token"):
        raise BadInput(
            f"hf: transformers' DINOv2 has a head on the class token and the mean over patches "
            f"(pool=token+gap), or none on the class token, not pool={cfg.pool}; write timm."
        )
    widths = (4 * cfg.width, (4 * cfg.width * 2 // 3 + 7) // 8 * 8)
    if cfg.mlp != widths[cfg.gate != "none"]:
        raise BadInput(f"hf: transformers' DINOv2 has an MLP of {widths}, not {cfg.mlp}.")
    more: dict[str, Any] = {
        "mlp_ratio": 4,
        "use_mask_token": False,
        "use_swiglu_ffn": cfg.gate != "none",
        "layerscale_value": cfg.layer_scale,
    }
    kind, name = "dinov2", "Dinov2"
    if cfg.registers:
        kind, name = "dinov2_with_registers", "Dinov2WithRegisters"
        more["num_register_tokens"] = cfg.registers
    return _hf(cfg, image_size, constants, images, kind, name, more)


def hf_dinov3(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' DINOv3, which has no head."""
    if cfg.classes or cfg.pool != "token":
        raise BadInput("hf: transformers' DINOv3 gives the class token, without a head; use timm.")
    more = {
        "num_register_tokens": cfg.registers,
        "rope_theta": cfg.rope_base,
        "use_gated_mlp": cfg.gate != "none",
        "mlp_bias": cfg.biases != "none",
        "proj_bias": cfg.biases != "none",
        "key_bias": cfg.biases == "all",
        "query_bias": cfg.biases in ("all", "no_key"),
        "value_bias": cfg.biases in ("all", "no_key"),
        "layerscale_value": cfg.layer_scale,
        "pos_embed_rescale": cfg.rope_rescale if cfg.rope_rescale > 1 else None,
        "pos_embed_jitter": cfg.rope_jitter if cfg.rope_jitter > 1 else None,
    }
    if cfg.gate == "silu":
        more["hidden_act"] = "silu"
    return _hf(cfg, image_size, constants, images, "dinov3_vit", "DINOv3ViT", more)


def hf_clip(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' image tower of CLIP.

    Its projection is a head without bias.
    """
    more = {"projection_dim": cfg.classes} if cfg.classes else {}
    name, head = "CLIPVision", "ModelWithProjection"
    return _hf(cfg, image_size, constants, images, "clip_vision_model", name, more, head=head)


def hf_siglip(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' image tower of SigLIP."""
    if cfg.classes:
        raise BadInput("hf: transformers' SigLIP has a head on the mean of tokens; write timm.")
    name, more = "siglip_vision_model", {"vision_use_head": True}
    return _hf(cfg, image_size, constants, images, name, "SiglipVision", more)


def hf_siglip2(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' image tower of SigLIP 2 NaFlex."""
    if cfg.classes:
        raise BadInput("hf: transformers' SigLIP 2 has a head on the mean of tokens; keep a run.")
    more = {"vision_use_head": True, "num_patches": cfg.naflex**2}
    files = _hf(cfg, image_size, constants, images, "siglip2_vision_model", "Siglip2Vision", more)
    config = {key: value for key, value in files[NAME].items() if key != "image_size"}
    prepared = {
        key: value
        for key, value in files[PREPROCESSOR].items()
        if key not in ("size", "do_center_crop", "crop_size")
    }
    prepared |= {"image_processor_type": "Siglip2ImageProcessor", "patch_size": cfg.patch}
    prepared |= {"max_num_patches": images.patches or cfg.naflex**2}
    return {NAME: config, PREPROCESSOR: prepared}


def hf_aimv2(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' AIMv2, which pools nothing."""
    if cfg.classes:
        raise BadInput("hf: transformers' AIMv2 has no head; write timm.")
    more = {
        "use_head": False, "is_native": False, "mlp_bias": False, "qkv_bias": False,
        "rms_norm_eps": cfg.ln_epsilon, "hidden_act": "silu",
    }  # fmt: skip
    return _hf(cfg, image_size, constants, images, "aimv2_vision_model", "Aimv2Vision", more)


def _hf(
    cfg: "ViTConfig",
    image_size: int,
    constants: dict[str, Any],
    images: Images,
    kind: str,
    name: str,
    more: dict[str, Any],
    head: str = "ForImageClassification",
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files of a model of transformers.

    Args:
      cfg: the model.
      image_size: pixels per side of its images.
      constants: its constants, which transformers does not read.
      images: description of images and classes.
      kind: `model_type`.
      name: name of the class without its end.
      more: settings that only this kind of model has.
      head: end of the name of the class with a head.
    """
    names = images.names or tuple(f"LABEL_{i}" for i in range(cfg.classes))
    several = cfg.classes and images.sigmoid
    content = {
        "architectures": [f"{name}{head if cfg.classes else 'Model'}"],
        "model_type": kind,
        "hidden_size": cfg.width,
        "num_hidden_layers": cfg.depth,
        "num_attention_heads": cfg.heads,
        "intermediate_size": cfg.mlp,
        "hidden_act": _name_of(cfg.gelu, json_config.HF_GELU),
        "layer_norm_eps": cfg.ln_epsilon,
        "image_size": image_size,
        "patch_size": cfg.patch,
        "num_channels": 3,
        "qkv_bias": True,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "id2label": {str(i): label for i, label in enumerate(names)},
        "label2id": {label: i for i, label in enumerate(names)},
        **({"problem_type": SEVERAL} if several else {}),
        **more,
    }
    written = {key: value for key, value in constants.items() if key in OWN_CONSTANTS}
    return {NAME: content | {OWN: written}, PREPROCESSOR: _hf_images(image_size, images)}


def _name_of(gelu: str, table: dict[str, str]) -> str:
    return next(name for name, ours in table.items() if ours == gelu)


def _hf_images(image_size: int, images: Images) -> dict[str, Any]:
    sides: dict[str, Any] = {"height": image_size, "width": image_size}
    resized: dict[str, Any] = {"size": sides}
    if images.shorter_side:
        resized = {"size": {"shortest_edge": images.shorter_side}}
        resized |= {"do_center_crop": True, "crop_size": sides}
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        **resized,
        "resample": FILTERS.index(images.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(images.mean),
        "image_std": list(images.std),
    }


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
_CLIP_EPSILON = 1e-5  # of LayerNorm in CLIP and AIMv2
_TIMM_BIT = ((50, 1), (50, 3), (101, 1), (101, 3), (152, 2), (152, 4))


def timm_mixer(
    cfg: "MixerConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's Mixer."""
    from vit_jax.models import mixer

    check_timm_epsilons(constants)
    sizes = (cfg.width, cfg.depth, cfg.mlp, cfg.token_mlp)
    name = next((n.lower() for n, named in mixer.SIZES.items() if named == sizes), None)
    if name is None or cfg.gelu != "erf" or cfg.patch not in (16, 32):
        raise BadInput("timm's Mixers are S, B and L /16 and /32 with erf GELU; write npz.")
    architecture, args = f"mixer_{name}{cfg.patch}_224", {"img_size": image_size}
    return timm_json(architecture, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_bit(
    cfg: "BiTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's BiT."""
    from vit_jax.models import resnet

    check_timm_epsilons(constants)
    named = {(resnet.STAGES[n], 64 * w): f"resnetv2_{n}x{w}_bit" for n, w in _TIMM_BIT}
    key = (cfg.resnet.stages, cfg.resnet.width)
    if key not in named or cfg.resnet.root_pool != "zero":
        raise BadInput(f"timm has no such BiT; it has {', '.join(named.values())}; write npz.")
    features = cfg.resnet.features
    return timm_json(named[key], {}, features, cfg.classes, image_size, constants, images)


def timm_json(
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


def check_timm_epsilons(constants: dict[str, Any]) -> None:
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
    architecture = "vit_base_patch16_224"
    if cfg.ln_epsilon == _CLIP_EPSILON:
        architecture = "vit_base_patch16_clip_224"
        check_timm_epsilons({key: v for key, v in constants.items() if key != "ln_epsilon"})
    else:
        check_timm_epsilons(constants)
    if cfg.backbone is not None:
        if cfg.backbone.stages not in _TIMM_HYBRIDS or cfg.backbone.width != 64:
            raise BadInput(
                f"timm has no hybrid with stages {cfg.backbone.stages} and a root of "
                f"{cfg.backbone.width} channels; it has {list(_TIMM_HYBRIDS)} with 64; write npz."
            )
        architecture = _TIMM_HYBRIDS[cfg.backbone.stages]
    args = {
        "img_size": image_size,
        "patch_size": cfg.patch,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "mlp_ratio": (cfg.mlp * (2 if _packed(cfg) else 1) + 0.5) / cfg.width,  # rounded down
        "class_token": cfg.class_rows > 0,
        "global_pool": timm_pool(cfg),
        "fc_norm": cfg.final_norm == "pooled",
        "reg_tokens": cfg.registers,
        "no_embed_class": bool(cfg.registers),
        "pos_embed": "learn",
        "act_layer": _name_of(cfg.gelu, json_config.TIMM_GELU),
    }
    if cfg.distillation:
        architecture = "deit_base_distilled_patch16_224"
    if cfg.layer_scale:
        args["init_values"] = cfg.layer_scale
    if cfg.qk_norm:
        args["qk_norm"] = True
    if cfg.biases in ("no_qkv", "none"):
        args |= {"qkv_bias": False, "proj_bias": cfg.biases == "no_qkv"}
    if cfg.stem_norm == "tokens" or cfg.ln_epsilon == _CLIP_EPSILON:
        args["pre_norm"] = cfg.stem_norm == "tokens"
    if _packed(cfg):
        architecture = "vit_giant_patch14_dinov2"
        del args["act_layer"]  # its own is that of the gate
    if cfg.norm == "rms":
        architecture = "aimv2_large_patch14_224"
        del args["act_layer"]
    return timm_json(architecture, args, cfg.width, cfg.classes, image_size, constants, images)


def _packed(cfg: "ViTConfig") -> bool:
    """Returns True if timm keeps the gate and the other half of the MLP in one layer."""
    return cfg.gate != "none" and cfg.norm == "layer"


def timm_pool(cfg: "ViTConfig") -> str:
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
    args: dict[str, Any] = {
        "img_size": image_size,
        "patch_size": cfg.patch,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "mlp_ratio": (cfg.mlp + 0.5) / cfg.width,
        "global_pool": timm_pool(cfg),
        "num_reg_tokens": cfg.registers,
        "qkv_bias": cfg.biases == "no_key",
        "rope_temperature": cfg.rope_base,
        "init_values": cfg.layer_scale,
    }
    if cfg.gate != "none":
        args |= {"swiglu_mlp": True, "swiglu_align_to": 1}
    name = "vit_small_patch16_dinov3"
    return timm_json(name, args, cfg.width, cfg.classes, image_size, constants, images)
