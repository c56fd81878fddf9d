# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the JSON files beside safetensors, for what weight files do not say.

A `Format` names one of these functions. They take the model, the pixels per side of its images, its
constants as fields of `variants.Settings`, and the description of images.
"""

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
        "hidden_act": json_config.name_of(cfg.gelu, json_config.HF_GELU),
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
