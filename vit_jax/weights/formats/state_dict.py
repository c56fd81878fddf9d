# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables for safetensors files of timm and of Hugging Face transformers.

They state the names in their state dicts. Start from `FORMATS`.
"""

from vit_jax.weights.formats import json_config
from vit_jax.weights.formats.name_table import (
    CONV,
    HEAD_OIHW,
    HEADS_OUT,
    LINEAR,
    POSEMB,
    Flat,
    Format,
    Op,
    Rule,
    fuse_class_row,
    heads_bias,
    heads_kernel,
    rule,
)


def _dense(foreign: str, ours: str, op: Op = LINEAR) -> tuple[Rule, ...]:
    return rule(f"{foreign}.weight", f"{ours}/kernel", op), rule(f"{foreign}.bias", f"{ours}/bias")


def _norm(foreign: str, ours: str) -> tuple[Rule, ...]:
    return rule(f"{foreign}.weight", f"{ours}/scale"), rule(f"{foreign}.bias", f"{ours}/bias")


def _heads(foreign: str, ours: str, names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Returns the rules of a linear layer that makes queries, keys or values, or several fused."""
    paths = [f"{ours}/{name}" for name in names]
    return (
        rule(f"{foreign}.weight", [f"{p}/kernel" for p in paths], heads_kernel(len(names))),
        rule(f"{foreign}.bias", [f"{p}/bias" for p in paths], heads_bias(len(names))),
    )


def _out(foreign: str, ours: str) -> tuple[Rule, ...]:
    return _dense(foreign, f"{ours}/out", HEADS_OUT)


def _timm_units(prefix: str, projection_norm: bool) -> tuple[Rule, ...]:
    unit, ours = prefix + "stages.{s:-1}.blocks.{u:-1}", "backbone/stage{s}_unit{u}"
    rules = (
        rule(f"{unit}.conv{{n}}.weight", f"{ours}/conv{{n}}/kernel", CONV),
        *_norm(f"{unit}.norm{{n}}", f"{ours}/norm{{n}}"),
        rule(f"{unit}.downsample.conv.weight", f"{ours}/conv_proj/kernel", CONV),
    )
    if not projection_norm:
        return rules
    return (*rules, *_norm(f"{unit}.downsample.norm", f"{ours}/norm_proj"))


_ERF = {"gelu": "erf", "ln_epsilon": 1e-6}
_RESNET = {"gn_epsilon": 1e-5, "ws_epsilon": 1e-8, "ws_epsilon_in": "variance"}
_HYBRID = "patch_embed.backbone."


def _timm_vit(root: str) -> tuple[Rule, ...]:
    """Returns the names of ViT and hybrids; `root` is the path of a backbone's first layers."""
    return (
        rule("cls_token", "cls"),
        rule("reg_token", "registers"),
        rule("pos_embed", "posemb", POSEMB),
        *_dense("patch_embed.proj", "embedding", CONV),
        rule(f"{root}conv.weight", "backbone/conv_root/kernel", CONV),
        *_norm(f"{root}norm", "backbone/norm_root"),
        *_timm_units(_HYBRID, projection_norm=True),
        *_norm("blocks.{i}.norm1", "block_{i}/attn_norm"),
        *_heads("blocks.{i}.attn.qkv", "block_{i}/attn", ("query", "key", "value")),
        *_out("blocks.{i}.attn.proj", "block_{i}/attn"),
        *_norm("blocks.{i}.norm2", "block_{i}/mlp_norm"),
        *_dense("blocks.{i}.mlp.fc1", "block_{i}/mlp/up"),
        *_dense("blocks.{i}.mlp.fc2", "block_{i}/mlp/down"),
        *_norm("norm", "norm"),
        rule("attn_pool.latent", "map_head/probe"),
        *_heads("attn_pool.q", "map_head/attn", ("query",)),
        *_heads("attn_pool.kv", "map_head/attn", ("key", "value")),
        *_out("attn_pool.proj", "map_head/attn"),
        *_norm("attn_pool.norm", "map_head/norm"),
        *_dense("attn_pool.mlp.fc1", "map_head/mlp/up"),
        *_dense("attn_pool.mlp.fc2", "map_head/mlp/down"),
        *_dense("head", "head"),
    )


def _fuse_for_registers(flat: Flat) -> Flat:
    """Fuses the class row for registers: timm's models with registers have no such embedding."""
    return fuse_class_row(flat) if "registers" in flat else flat


TIMM_VIT = Format(
    "timm",
    "vit",
    _timm_vit(f"{_HYBRID}stem."),
    _ERF | _RESNET,
    before_write=_fuse_for_registers,
    beside=json_config.timm_vit,
)
TIMM_ROOT_VIT = Format(  # for a backbone that is only a root, without stages
    "timm",
    "vit",
    _timm_vit(_HYBRID),
    _ERF | _RESNET,
    before_write=_fuse_for_registers,
    writes=lambda flat: (
        "backbone/conv_root/kernel" in flat and "backbone/stage1_unit1/conv1/kernel" not in flat
    ),
    beside=json_config.timm_vit,
)
TIMM_BIT = Format(
    "timm",
    "bit",
    (
        rule("stem.conv.weight", "backbone/conv_root/kernel", CONV),
        *_timm_units("", projection_norm=False),
        *_norm("norm", "norm"),
        *_dense("head.fc", "head", HEAD_OIHW),
    ),
    _RESNET | {"root_pool": "zero"},
    beside=json_config.timm_bit,
)
TIMM_MIXER = Format(
    "timm",
    "mixer",
    (
        *_dense("stem.proj", "embedding", CONV),
        *_norm("blocks.{i}.norm1", "block_{i}/token_norm"),
        *_dense("blocks.{i}.mlp_tokens.fc1", "block_{i}/token_mlp/up"),
        *_dense("blocks.{i}.mlp_tokens.fc2", "block_{i}/token_mlp/down"),
        *_norm("blocks.{i}.norm2", "block_{i}/channel_norm"),
        *_dense("blocks.{i}.mlp_channels.fc1", "block_{i}/channel_mlp/up"),
        *_dense("blocks.{i}.mlp_channels.fc2", "block_{i}/channel_mlp/down"),
        *_norm("norm", "norm"),
        *_dense("head", "head"),
    ),
    _ERF,
    beside=json_config.timm_mixer,
)

_LAYER = "vit.encoder.layer.{i}"
HUGGING_FACE_VIT = Format(
    "hf",
    "vit",
    (
        rule("vit.embeddings.cls_token", "cls"),
        rule("vit.embeddings.position_embeddings", "posemb"),
        *_dense("vit.embeddings.patch_embeddings.projection", "embedding", CONV),
        *_norm(f"{_LAYER}.layernorm_before", "block_{i}/attn_norm"),
        *_heads(f"{_LAYER}.attention.attention.query", "block_{i}/attn", ("query",)),
        *_heads(f"{_LAYER}.attention.attention.key", "block_{i}/attn", ("key",)),
        *_heads(f"{_LAYER}.attention.attention.value", "block_{i}/attn", ("value",)),
        *_out(f"{_LAYER}.attention.output.dense", "block_{i}/attn"),
        *_norm(f"{_LAYER}.layernorm_after", "block_{i}/mlp_norm"),
        *_dense(f"{_LAYER}.intermediate.dense", "block_{i}/mlp/up"),
        *_dense(f"{_LAYER}.output.dense", "block_{i}/mlp/down"),
        *_norm("vit.layernorm", "norm"),
        *_dense("vit.pooler.dense", "pre_logits"),
        *_dense("classifier", "head"),
    ),
    {"gelu": "erf", "ln_epsilon": 1e-12},
    aliases=(  # a bare ViTModel, and the in-memory names of transformers 5
        (r"^(embeddings|encoder|layers|layernorm|pooler)\.", r"vit.\1."),
        (r"^vit\.layers\.", "vit.encoder.layer."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
    ),
    beside=json_config.hf_vit,
)

FORMATS = (TIMM_ROOT_VIT, TIMM_VIT, TIMM_BIT, TIMM_MIXER, HUGGING_FACE_VIT)
