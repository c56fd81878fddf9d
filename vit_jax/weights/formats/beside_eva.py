# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the JSON file beside weights for timm's class Eva: EVA-02 and the Perception Encoder.

See `beside` for the arguments. Start from `timm_eva02` and `timm_pe`.
"""

from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput
from vit_jax.weights.formats import beside
from vit_jax.weights.formats.json_config import Images

if TYPE_CHECKING:
    from vit_jax.models.vit import ViTConfig


def _timm_eva(cfg: "ViTConfig", image_size: int) -> dict[str, Any]:
    """Returns the arguments of timm's class Eva that EVA-02 and the Perception Encoder share."""
    if not cfg.rope_grid or cfg.registers:
        raise BadInput(
            "timm: its EVA models scale rotary positions to a grid (model.rope_grid) and have no "
            "registers; keep the model as a run."
        )
    return {
        "img_size": image_size,
        "patch_size": cfg.patch,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "mlp_ratio": (cfg.mlp + 0.5) / cfg.width,
        "class_token": cfg.class_rows > 0,
        "global_pool": beside.timm_pool(cfg),
        "rope_temperature": cfg.rope_base,
        "ref_feat_shape": [cfg.rope_grid, cfg.rope_grid],
    }


def timm_eva02(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's EVA-02."""
    beside.check_timm_epsilons(constants)
    if cfg.pool != "gap":
        raise BadInput("timm: its EVA-02 has pool=gap; keep the model as a run.")
    name = "eva02_base_patch14_224" if cfg.mlp_norm else "eva02_small_patch14_224"
    args = _timm_eva(cfg, image_size)
    return beside.timm_json(name, args, cfg.width, cfg.classes, image_size, constants, images)


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
    return beside.timm_json(name, args, cfg.width, cfg.classes, image_size, constants, images)
