# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables for safetensors files of Hugging Face transformers, a row of `FORMATS` for each family.

They state the names in its files; in memory, transformers 5 has others. Start from `FORMATS`.
"""

import dataclasses

from vit_jax.weights.formats import beside, json_config
from vit_jax.weights.formats.name_table import (
    CONV,
    PATCHES,
    PROJECTION,
    ROWS,
    TOKEN,
    Flat,
    Format,
    Rule,
    rule,
)
from vit_jax.weights.formats.timm import dense, gated, heads, norm, out

_SCALES = ("layer_scale1.lambda1", "layer_scale2.lambda1")
_LAYERNORMS = ("layernorm_before", "layernorm_after")
_GATED = ("mlp.weights_in", "mlp.weights_out")
_DENSE = ("intermediate.dense", "output.dense")
_VIT_SPELLINGS = ((r"\.mlp\.fc1\.", ".intermediate.dense."), (r"\.mlp\.fc2\.", ".output.dense."))
_PRETRAINING = (r"(.*\.)?mask_token", r"decoder\..*")


def _bert(
    root: str,
    scales: tuple[str, str],
    norms: tuple[str, str],
    mlp: tuple[str, str],
    last: str = "layernorm",
) -> tuple[Rule, ...]:
    """Returns the names of encoders in the manner of BERT: ViT, DeiT, BEiT and DINOv2.

    Args:
      root: first part of all names.
      scales: the two LayerScales of a layer.
      norms: its two norms.
      mlp: the two layers of its MLP.
      last: the last norm.
    """
    layer, attention = f"{root}.encoder.layer.{{i}}", f"{root}.encoder.layer.{{i}}.attention"
    return (
        rule(f"{root}.embeddings.cls_token", "cls"),
        rule(f"{root}.embeddings.position_embeddings", "posemb"),
        *dense(f"{root}.embeddings.patch_embeddings.projection", "embedding", CONV),
        *norm(f"{layer}.{norms[0]}", "block_{i}/attn_norm"),
        *heads(f"{attention}.attention.query", "block_{i}/attn", ("query",)),
        *heads(f"{attention}.attention.key", "block_{i}/attn", ("key",)),
        *heads(f"{attention}.attention.value", "block_{i}/attn", ("value",)),
        *out(f"{attention}.output.dense", "block_{i}/attn"),
        rule(f"{layer}.{scales[0]}", "block_{i}/attn_scale"),
        *norm(f"{layer}.{norms[1]}", "block_{i}/mlp_norm"),
        *(
            gated(f"{layer}.{mlp[0]}", "block_{i}/mlp")
            if mlp == _GATED
            else dense(f"{layer}.{mlp[0]}", "block_{i}/mlp/up")
        ),
        *dense(f"{layer}.{mlp[1]}", "block_{i}/mlp/down"),
        rule(f"{layer}.{scales[1]}", "block_{i}/mlp_scale"),
        *norm(f"{root}.{last}", "norm"),
    )


def _in_memory(root: str) -> tuple[tuple[str, str], ...]:
    """Returns spellings of a bare encoder, and the in-memory names of transformers 5."""
    return (
        (r"^(embeddings|encoder|layers|layernorm|pooler)\.", rf"{root}.\1."),
        (rf"^{root}\.layers\.", f"{root}.encoder.layer."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
    )


VIT = Format(
    "hf",
    "vit",
    (
        *_bert("vit", _SCALES, _LAYERNORMS, _DENSE),
        *dense("vit.pooler.dense", "pre_logits"),
        *dense("classifier", "head"),
    ),
    {"gelu": "erf", "ln_epsilon": 1e-12},
    aliases=(*_in_memory("vit"), *_VIT_SPELLINGS),
    kinds=("vit", "vit_mae"),
    unused=_PRETRAINING,
    resize="bicubic",
    beside=beside.hf_vit,
)
DEIT = Format(
    "hf",
    "vit",
    (
        *_bert("deit", _SCALES, _LAYERNORMS, _DENSE),
        rule("deit.embeddings.distillation_token", "dist"),
        *dense("cls_classifier", "head"),
        *dense("distillation_classifier", "dist_head"),
    ),
    {"gelu": "erf", "ln_epsilon": 1e-12, "distillation": True},
    aliases=(*_in_memory("deit"), *_VIT_SPELLINGS),
    kinds=("deit",),
    unused=(*_PRETRAINING, r"deit\.pooler\..*"),
    resize="bicubic",
    beside=beside.hf_deit,
)
DINOV2 = tuple(
    Format(
        "hf",
        "vit",
        (
            *_bert(root, _SCALES, ("norm1", "norm2"), mlp),
            *(rule(f"{root}.embeddings.register_tokens", name) for name in more),
            *dense("classifier", "head"),
        ),
        {"gelu": "erf", "ln_epsilon": 1e-6, "layer_scale": json_config.SCALE, "gate": gate},
        aliases=_in_memory(root),
        kinds=(root,),
        takes=frozenset({"pool", *more}),
        unused=_PRETRAINING,
        resize="smooth" if more else "bicubic",
        beside=beside.hf_dinov2,
    )
    for root, more in (("dinov2", ()), ("dinov2_with_registers", ("registers",)))
    for gate, mlp in (("none", ("mlp.fc1", "mlp.fc2")), ("silu", _GATED))
)
BEIT = Format(
    "hf",
    "vit",
    (
        *_bert("beit", ("lambda_1", "lambda_2"), _LAYERNORMS, _DENSE, "pooler.layernorm"),
        rule(
            "beit.encoder.layer.{i}.attention.attention.relative_position_bias"
            ".relative_position_bias_table",
            "block_{i}/attn/relative_bias",
        ),
        *dense("classifier", "head"),
    ),
    {"gelu": "erf", "ln_epsilon": 1e-12, "pool": "gap", "final_norm": "pooled"},
    aliases=(*_in_memory("beit"), *_VIT_SPELLINGS),
    kinds=("beit",),
    unused=(*_PRETRAINING, r".*relative_position_index", r"lm_head\..*"),
    resize="bicubic",
)

_LAYER = "layer.{i}"
DINOV3 = Format(
    "hf",
    "vit",
    (
        rule("embeddings.cls_token", "cls"),
        rule("embeddings.register_tokens", "registers"),
        *dense("embeddings.patch_embeddings", "embedding", CONV),
        *norm(f"{_LAYER}.norm1", "block_{i}/attn_norm"),
        *heads(f"{_LAYER}.attention.q_proj", "block_{i}/attn", ("query",)),
        *heads(f"{_LAYER}.attention.k_proj", "block_{i}/attn", ("key",)),
        *heads(f"{_LAYER}.attention.v_proj", "block_{i}/attn", ("value",)),
        *out(f"{_LAYER}.attention.o_proj", "block_{i}/attn"),
        rule(f"{_LAYER}.layer_scale1.lambda1", "block_{i}/attn_scale"),
        *norm(f"{_LAYER}.norm2", "block_{i}/mlp_norm"),
        *dense(f"{_LAYER}.mlp.up_proj", "block_{i}/mlp/up"),
        *dense(f"{_LAYER}.mlp.gate_proj", "block_{i}/mlp/gate"),
        *dense(f"{_LAYER}.mlp.down_proj", "block_{i}/mlp/down"),
        rule(f"{_LAYER}.layer_scale2.lambda1", "block_{i}/mlp_scale"),
        *norm("norm", "norm"),
    ),
    json_config.DINOV3 | {"gelu": "erf", "ln_epsilon": 1e-5},
    aliases=((r"^model\.(layer\.)", r"\1"),),
    kinds=("dinov3_vit",),
    takes=frozenset({"gate", "registers", "biases", "rope_base"}),
    tells_gate=True,
    unused=_PRETRAINING,
    resize="bicubic",
    beside=beside.hf_dinov3,
)

_TOWER = "vision_model"
_TOWER_LAYER = f"{_TOWER}.encoder.layers.{{i}}"
_TWO_TOWERS = (r"text_model\..*", r"text_projection\..*", "logit_scale", "logit_bias")
_TOWERS: tuple[Rule, ...] = (
    *dense(f"{_TOWER}.embeddings.patch_embedding", "embedding", CONV),
    rule(f"{_TOWER}.embeddings.position_embedding.weight", "posemb", ROWS),
    *norm(f"{_TOWER_LAYER}.layer_norm1", "block_{i}/attn_norm"),
    *heads(f"{_TOWER_LAYER}.self_attn.q_proj", "block_{i}/attn", ("query",)),
    *heads(f"{_TOWER_LAYER}.self_attn.k_proj", "block_{i}/attn", ("key",)),
    *heads(f"{_TOWER_LAYER}.self_attn.v_proj", "block_{i}/attn", ("value",)),
    *out(f"{_TOWER_LAYER}.self_attn.out_proj", "block_{i}/attn"),
    *norm(f"{_TOWER_LAYER}.layer_norm2", "block_{i}/mlp_norm"),
    *dense(f"{_TOWER_LAYER}.mlp.fc1", "block_{i}/mlp/up"),
    *dense(f"{_TOWER_LAYER}.mlp.fc2", "block_{i}/mlp/down"),
    *norm(f"{_TOWER}.post_layernorm", "norm"),
)
CLIP = Format(
    "hf",
    "vit",
    (
        *_TOWERS,
        rule(f"{_TOWER}.embeddings.class_embedding", "cls", TOKEN),
        *norm(f"{_TOWER}.pre_layrnorm", "stem_norm"),  # spelled so in the files
        rule("visual_projection.weight", ("head/kernel", "head/bias"), PROJECTION),
    ),
    {"gelu": "quick", "ln_epsilon": 1e-5, "stem_bias": False, "stem_norm": "tokens"},
    aliases=((r"^(embeddings|encoder|pre_layrnorm|post_layernorm)\.", r"vision_model.\1."),),
    kinds=("clip", "clip_vision_model"),
    unused=_TWO_TOWERS,
    resize="bicubic",
    beside=beside.hf_clip,
)


def _embedding_axes(foreign: Flat) -> int:
    """Returns the axes of the embedding of patches: 4 for a convolution, 2 for a linear layer."""
    return next((a.ndim for n, a in foreign.items() if n.endswith("patch_embedding.weight")), 0)


_HEAD = f"{_TOWER}.head"
_IN_PROJ = heads("in_proj", "map_head/attn", ("query", "key", "value"))
SIGLIP = Format(
    "hf",
    "vit",
    (
        *_TOWERS,
        rule(f"{_HEAD}.probe", "map_head/probe"),
        rule(f"{_HEAD}.attention.in_proj_weight", _IN_PROJ[0].ours, _IN_PROJ[0].op),
        rule(f"{_HEAD}.attention.in_proj_bias", _IN_PROJ[1].ours, _IN_PROJ[1].op),
        *out(f"{_HEAD}.attention.out_proj", "map_head/attn"),
        *norm(f"{_HEAD}.layernorm", "map_head/norm"),
        *dense(f"{_HEAD}.mlp.fc1", "map_head/mlp/up"),
        *dense(f"{_HEAD}.mlp.fc2", "map_head/mlp/down"),
    ),
    {"gelu": "tanh", "ln_epsilon": 1e-6, "pool": "map"},
    aliases=((r"^(embeddings|encoder|post_layernorm|head)\.", r"vision_model.\1."),),
    kinds=("siglip", "siglip_vision_model"),
    fits=lambda foreign: _embedding_axes(foreign) != 2,
    unused=_TWO_TOWERS,
    resize="bicubic",
    beside=beside.hf_siglip,
)
SIGLIP2 = dataclasses.replace(
    SIGLIP,
    rules=(*dense(f"{_TOWER}.embeddings.patch_embedding", "embedding", PATCHES), *SIGLIP.rules[2:]),
    constants={**SIGLIP.constants, "naflex": 16},
    takes=frozenset({"naflex"}),
    kinds=("siglip2", "siglip2_vision_model"),
    fits=lambda foreign: _embedding_axes(foreign) == 2,
    beside=beside.hf_siglip2,
)
_AIM_LAYER = "encoder.layers.{i}"
AIMV2 = Format(
    "hf",
    "vit",
    (
        *dense("embeddings.patch_embed", "embedding", CONV),
        *norm("embeddings.rms_norm", "stem_norm"),
        rule("embeddings.position_embedding.weight", "posemb", ROWS),
        *norm(f"{_AIM_LAYER}.rms_norm1", "block_{i}/attn_norm"),
        *heads(f"{_AIM_LAYER}.attention.q_proj", "block_{i}/attn", ("query",)),
        *heads(f"{_AIM_LAYER}.attention.k_proj", "block_{i}/attn", ("key",)),
        *heads(f"{_AIM_LAYER}.attention.v_proj", "block_{i}/attn", ("value",)),
        *out(f"{_AIM_LAYER}.attention.out_proj", "block_{i}/attn"),
        *norm(f"{_AIM_LAYER}.rms_norm2", "block_{i}/mlp_norm"),
        *dense(f"{_AIM_LAYER}.ffn.gate_proj", "block_{i}/mlp/gate"),
        *dense(f"{_AIM_LAYER}.ffn.up_proj", "block_{i}/mlp/up"),
        *dense(f"{_AIM_LAYER}.ffn.down_proj", "block_{i}/mlp/down"),
        *norm("rms_norm", "norm"),
    ),
    {"ln_epsilon": 1e-5, "norm": "rms", "stem_norm": "patches", "gate": "silu",
     "biases": "none", "pool": "gap"},
    aliases=((r"^vision_model\.", ""),),
    kinds=("aimv2_vision_model",),
    tells_gate=True,
    beside=beside.hf_aimv2,
)  # fmt: skip

FORMATS = (VIT, DEIT, *DINOV2, DINOV3, CLIP, SIGLIP, SIGLIP2, AIMV2, BEIT)
