# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables for safetensors files of timm.

They state the names in their state dicts. Start from `FORMATS`.
"""

import dataclasses
import math
import re
from collections.abc import Callable

import numpy as np

from vit_jax.errors import BadInput
from vit_jax.weights.formats import beside_timm, json_config
from vit_jax.weights.formats.name_table import (
    CONV,
    GATED,
    GATED_BIAS,
    HEAD_BIAS,
    HEAD_OIHW,
    HEADS_OUT,
    LINEAR,
    PATCHES,
    POSEMB,
    POSEMB_GRID,
    Context,
    Flat,
    Format,
    Op,
    Rule,
    fuse_class_row,
    fuse_register_rows,
    heads_bias,
    heads_kernel,
    rule,
    with_heads,
)


def dense(foreign: str, ours: str, op: Op = LINEAR) -> tuple[Rule, ...]:
    """Returns the rules of a linear layer or a convolution."""
    return rule(f"{foreign}.weight", f"{ours}/kernel", op), rule(f"{foreign}.bias", f"{ours}/bias")


def norm(foreign: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of a norm."""
    return rule(f"{foreign}.weight", f"{ours}/scale"), rule(f"{foreign}.bias", f"{ours}/bias")


def heads(foreign: str, ours: str, names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Returns the rules of a linear layer that makes queries, keys or values, or several fused."""
    paths = [f"{ours}/{name}" for name in names]
    return (
        rule(f"{foreign}.weight", [f"{p}/kernel" for p in paths], heads_kernel(len(names))),
        rule(f"{foreign}.bias", [f"{p}/bias" for p in paths], heads_bias(len(names))),
    )


def out(foreign: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of the last linear layer of an attention."""
    return dense(foreign, f"{ours}/out", HEADS_OUT)


def gated(foreign: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of a linear layer whose first half of outputs is a gate."""
    return (
        rule(f"{foreign}.weight", [f"{ours}/gate/kernel", f"{ours}/up/kernel"], GATED),
        rule(f"{foreign}.bias", [f"{ours}/gate/bias", f"{ours}/up/bias"], GATED_BIAS),
    )


def packed(foreign: Flat) -> bool:
    """Returns True if the first layer of a timm MLP has twice the outputs that the second reads."""
    first, second = (foreign.get(f"blocks.0.mlp.fc{i}.weight") for i in (1, 2))
    shapes = [a.shape for a in (first, second) if a is not None and a.ndim == 2]
    return len(shapes) == 2 and shapes[0][0] == 2 * shapes[1][1]


def _timm_units(prefix: str, projection_norm: bool) -> tuple[Rule, ...]:
    unit, ours = prefix + "stages.{s:-1}.blocks.{u:-1}", "backbone/stage{s}_unit{u}"
    rules = (
        rule(f"{unit}.conv{{n}}.weight", f"{ours}/conv{{n}}/kernel", CONV),
        *norm(f"{unit}.norm{{n}}", f"{ours}/norm{{n}}"),
        rule(f"{unit}.downsample.conv.weight", f"{ours}/conv_proj/kernel", CONV),
    )
    if not projection_norm:
        return rules
    return (*rules, *norm(f"{unit}.downsample.norm", f"{ours}/norm_proj"))


_ERF = {"gelu": "erf", "ln_epsilon": 1e-6}
_TIMM = _ERF | {"norm": "layer"}
_TIMM_TAKES = frozenset(
    {"class_token", "distillation", "registers", "stem_bias", "stem_norm", "layer_scale"}
    | {"qk_norm", "biases", "pool"}
)
_AIMV2 = {"gate": "silu", "norm": "rms", "stem_norm": "patches"}
_RESNET = {"gn_epsilon": 1e-5, "ws_epsilon": 1e-8, "ws_epsilon_in": "variance"}
_HYBRID = "patch_embed.backbone."


_TIMM_UP = dense("blocks.{i}.mlp.fc1", "block_{i}/mlp/up")
_TIMM_GATED = (
    *dense("blocks.{i}.mlp.fc1_g", "block_{i}/mlp/gate"),
    *dense("blocks.{i}.mlp.fc1_x", "block_{i}/mlp/up"),
)
_TIMM_PACKED = gated("blocks.{i}.mlp.fc1", "block_{i}/mlp")


def _timm_vit(
    root: str = f"{_HYBRID}stem.",
    last: str = "norm",
    mlp: tuple[Rule, ...] = _TIMM_UP,
    stem_norm: str = "norm_pre",
) -> tuple[Rule, ...]:
    """Returns the names of ViT and hybrids.

    Args:
      root: path of a backbone's first layers.
      last: path of the last norm.
      mlp: rules of the first layer of an MLP.
      stem_norm: path of the norm of the stem.
    """
    return (
        rule("cls_token", "cls"),
        rule("dist_token", "dist"),
        rule("reg_token", "registers"),
        rule("pos_embed", "posemb", POSEMB),
        *dense("patch_embed.proj", "embedding", CONV),
        *norm(stem_norm, "stem_norm"),
        rule(f"{root}conv.weight", "backbone/conv_root/kernel", CONV),
        *norm(f"{root}norm", "backbone/norm_root"),
        *_timm_units(_HYBRID, projection_norm=True),
        *norm("blocks.{i}.norm1", "block_{i}/attn_norm"),
        *heads("blocks.{i}.attn.qkv", "block_{i}/attn", ("query", "key", "value")),
        *out("blocks.{i}.attn.proj", "block_{i}/attn"),
        *norm("blocks.{i}.attn.q_norm", "block_{i}/attn/query_norm"),
        *norm("blocks.{i}.attn.k_norm", "block_{i}/attn/key_norm"),
        rule("blocks.{i}.ls1.gamma", "block_{i}/attn_scale"),
        *norm("blocks.{i}.norm2", "block_{i}/mlp_norm"),
        *mlp,
        *dense("blocks.{i}.mlp.fc2", "block_{i}/mlp/down"),
        rule("blocks.{i}.ls2.gamma", "block_{i}/mlp_scale"),
        *norm(last, "norm"),
        rule("attn_pool.latent", "map_head/probe"),
        *heads("attn_pool.q", "map_head/attn", ("query",)),
        *heads("attn_pool.kv", "map_head/attn", ("key", "value")),
        *out("attn_pool.proj", "map_head/attn"),
        *norm("attn_pool.norm", "map_head/norm"),
        *dense("attn_pool.mlp.fc1", "map_head/mlp/up"),
        *dense("attn_pool.mlp.fc2", "map_head/mlp/down"),
        *dense("head", "head"),
        *dense("head_dist", "dist_head"),
    )


def _fuse_for_registers(flat: Flat) -> Flat:
    """Fuses the class row for registers: timm's models with registers have no such embedding."""
    return fuse_class_row(flat) if "registers" in flat else flat


TIMM_VIT = Format(
    "timm",
    "vit",
    _timm_vit(),
    _TIMM | _RESNET,
    before_write=_fuse_for_registers,
    after_read=fuse_register_rows,
    takes=_TIMM_TAKES,
    fits=lambda foreign: not packed(foreign),
    resize="smooth",
    beside=beside_timm.timm_vit,
)
TIMM_POOLED, TIMM_PACKED, TIMM_GATED = (
    dataclasses.replace(
        TIMM_VIT,
        rules=rules,
        constants=_TIMM | constants,
        head_dim=head_dim,
        fits=fits or TIMM_VIT.fits,
    )
    for rules, constants, fits, head_dim in (
        (_timm_vit(last="fc_norm"), {"final_norm": "pooled"}, None, 0),
        (_timm_vit(mlp=_TIMM_PACKED), {"gate": "silu"}, packed, 64),
        (_timm_vit(mlp=_TIMM_GATED, stem_norm="patch_embed.norm"), _AIMV2, None, 128),
    )
)
TIMM_ROOT_VIT = Format(  # for a backbone that is only a root, without stages
    "timm",
    "vit",
    _timm_vit(_HYBRID),
    _TIMM | _RESNET,
    before_write=_fuse_for_registers,
    after_read=fuse_register_rows,
    fits=lambda foreign: "patch_embed.backbone.conv.weight" in foreign,
    resize="smooth",
    writes=lambda flat: (
        "backbone/conv_root/kernel" in flat and "backbone/stage1_unit1/conv1/kernel" not in flat
    ),
    beside=beside_timm.timm_vit,
)
_QV_BIASES = (
    heads("blocks.{i}.attn.qkv", "block_{i}/attn", ("query", "key", "value"))[0],
    rule("blocks.{i}.attn.q_bias", "block_{i}/attn/query/bias", HEAD_BIAS),
    rule("blocks.{i}.attn.v_bias", "block_{i}/attn/value/bias", HEAD_BIAS),
)


def _timm_scaled(last: str, mlp: tuple[Rule, ...], more: Rule) -> tuple[Rule, ...]:
    """Returns the names that BEiT and DINOv3 share, and one more rule; see `_timm_vit`."""
    return (
        rule("cls_token", "cls"),
        *dense("patch_embed.proj", "embedding", CONV),
        *norm("blocks.{i}.norm1", "block_{i}/attn_norm"),
        *_QV_BIASES,
        *out("blocks.{i}.attn.proj", "block_{i}/attn"),
        rule("blocks.{i}.gamma_1", "block_{i}/attn_scale"),
        *norm("blocks.{i}.norm2", "block_{i}/mlp_norm"),
        *mlp,
        *dense("blocks.{i}.mlp.fc2", "block_{i}/mlp/down"),
        rule("blocks.{i}.gamma_2", "block_{i}/mlp_scale"),
        *norm(last, "norm"),
        *dense("head", "head"),
        more,
    )


TIMM_DINOV3 = tuple(
    Format(
        "timm",
        "vit",
        _timm_scaled("norm", mlp, rule("reg_token", "registers")),
        _ERF | json_config.DINOV3 | {"ln_epsilon": 1e-5, "gate": gate},
        takes=frozenset({"registers", "biases", "class_token", "pool", "rope_base"}),
        head_dim=64,
        beside=beside_timm.timm_dinov3,
    )
    for gate, mlp in (("none", _TIMM_UP), ("silu", _TIMM_GATED))
)
TIMM_BEIT = Format(  # only fine-tuned ones: timm has no others
    "timm",
    "vit",
    _timm_scaled(
        "fc_norm",
        _TIMM_UP,
        rule("blocks.{i}.attn.relative_position_bias_table", "block_{i}/attn/relative_bias"),
    ),
    _ERF
    | {"posemb": "relative2d", "biases": "no_key"}
    | {"class_token": True, "pool": "gap", "final_norm": "pooled"},
    takes=frozenset({"layer_scale"}),
    head_dim=64,
    beside=beside_timm.timm_beit,
)


def _half_apart(columns_first: bool) -> tuple[Callable[[Flat], Flat], Callable[[Flat, int], Flat]]:
    """Returns how queries and keys are written and read where rotated pairs lie beside each other.

    Ours have the pairs that turn with the row first, and half of a head between the two of a pair.

    Args:
      columns_first: whether the foreign pairs that turn with the column come first.
    """

    def order(head_dim: int) -> np.ndarray:
        pairs = np.roll(np.arange(head_dim // 2), -(head_dim // 4) if columns_first else 0)
        return np.concatenate([2 * pairs, 2 * pairs + 1])

    def moved(flat: Flat, back: bool) -> Flat:
        def one(array: np.ndarray) -> np.ndarray:
            places = order(array.shape[-1])
            return array[..., np.argsort(places) if back else places]

        rotated = re.compile(r"block_\d+/attn/(query|key)/(kernel|bias)")
        return {n: one(a) if rotated.fullmatch(n) else a for n, a in flat.items()}

    return lambda flat: moved(flat, True), lambda flat, _: moved(flat, False)


_EVA = {"rope": "axial", "rope_base": 1e4, "rope_coordinates": "index"}
_EVA02 = {"rope_grid": 16, "final_norm": "pooled", "gate": "silu", "biases": "no_key"}
_PE = {"ln_epsilon": 1e-5, "rope_coordinates": "from1", "rope_grid": 0, "pool": "map"}
_PE |= {"stem_norm": "tokens", "stem_bias": False}
TIMM_EVA02 = tuple(
    Format(
        "timm",
        "vit",
        (
            rule("cls_token", "cls"),
            rule("pos_embed", "posemb", POSEMB),
            *dense("patch_embed.proj", "embedding", CONV),
            *norm("blocks.{i}.norm1", "block_{i}/attn_norm"),
            *attention,
            *out("blocks.{i}.attn.proj", "block_{i}/attn"),
            *norm("blocks.{i}.norm2", "block_{i}/mlp_norm"),
            *mlp,
            *dense("blocks.{i}.mlp.fc2", "block_{i}/mlp/down"),
            *norm("fc_norm", "norm"),
            *dense("head", "head"),
        ),
        _TIMM | _EVA | _EVA02 | {"mlp_norm": normed},
        before_write=_half_apart(columns_first=False)[0],
        after_read=_half_apart(columns_first=False)[1],
        takes=frozenset({"class_token", "pool", "rope_grid", "rope_base"}),
        head_dim=64,
        resize="smooth",
        beside=beside_timm.timm_eva02,
    )
    for normed, attention, mlp in (
        (False, _QV_BIASES, _TIMM_PACKED),
        (
            True,
            (
                *heads("blocks.{i}.attn.q_proj", "block_{i}/attn", ("query",)),
                heads("blocks.{i}.attn.k_proj", "block_{i}/attn", ("key",))[0],
                *heads("blocks.{i}.attn.v_proj", "block_{i}/attn", ("value",)),
            ),
            (*_TIMM_GATED, *norm("blocks.{i}.mlp.norm", "block_{i}/mlp/norm")),
        ),
    )
)
_POOL_HEADS = 8  # of every Perception Encoder
TIMM_PE = dataclasses.replace(
    TIMM_VIT,
    rules=tuple(
        dataclasses.replace(r, op=with_heads(r.op, _POOL_HEADS))
        if r.ours[0].startswith("map_head/attn")
        else r
        for r in _timm_vit()
    ),
    constants=_TIMM | _EVA | _PE,
    before_write=_half_apart(columns_first=True)[0],
    after_read=_half_apart(columns_first=True)[1],
    takes=frozenset(
        {"class_token", "rope_grid", "rope_base", "rope_coordinates", "pool_heads", "pool_mlp"}
    ),
    architectures="vit_pe_core_.*",
    beside=beside_timm.timm_pe,
)


def _square(table: np.ndarray, context: Context) -> tuple[np.ndarray, ...]:
    """Returns a table [1, G, G, D] as rows of our position embedding."""
    _, rows, columns, width = table.shape
    if rows != columns:
        raise ValueError(f"a table of {rows} x {columns} positions is not square")
    return POSEMB_GRID.read(table.reshape(1, rows * columns, width), context)


def _tabled(arrays: tuple[np.ndarray, ...], context: Context) -> np.ndarray:
    rows = POSEMB_GRID.write(arrays, context)
    side = math.isqrt(rows.shape[1])
    return rows.reshape(1, side, side, -1)


def _summed(flat: Flat, _: int) -> Flat:
    """Adds the embeddings of rows and columns: their table gives the same by naflex_filter=linear.

    Interpolation is linear, so that of a sum is the sum of those of its parts.
    """
    if not {"posemb_y", "posemb_x"} <= flat.keys():
        return flat
    rows_1GD, columns_1GD = flat.pop("posemb_y"), flat.pop("posemb_x")
    table_1GGD = rows_1GD[:, :, None] + columns_1GD[:, None]
    try:
        (posemb,) = _square(table_1GGD, Context(class_rows=int("cls" in flat)))
    except ValueError as e:
        raise BadInput(f"embeds.pos_embed_y, embeds.pos_embed_x: {e}.") from e
    return flat | {"posemb": posemb}


_PIXELS = Op(lambda a, c: (CONV if a.ndim == 4 else PATCHES).read(a, c), PATCHES.write)
_NAFLEX = {"naflex": 16, "naflex_filter": "bicubic", "naflex_square": False}
_AFTER_STEM = re.compile(r"norm|fc_norm|blocks|attn_pool|head\.")
_TABLES = (
    (rule("embeds.pos_embed", "posemb", Op(_square, _tabled)),),
    (rule("embeds.pos_embed_y", "posemb_y"), rule("embeds.pos_embed_x", "posemb_x")),
)
TIMM_NAFLEX = tuple(
    Format(
        "timm",
        "vit",
        (
            rule("embeds.cls_token", "cls"),
            rule("embeds.reg_token", "registers"),
            *dense("embeds.proj", "embedding", _PIXELS),
            *tables,
            *(r for r in _timm_vit(last=last) if _AFTER_STEM.match(r.foreign)),
        ),
        _TIMM | _NAFLEX | more | ({"final_norm": "pooled"} if last == "fc_norm" else {}),
        before_write=fuse_class_row,
        after_read=_summed,
        writes=lambda flat, factored=bool(more): not factored,
        takes=_TIMM_TAKES - {"distillation"} | _NAFLEX.keys(),
        beside=beside_timm.timm_naflex,
    )
    for tables, more in zip(_TABLES, ({}, {"naflex_filter": "linear"}), strict=True)
    for last in ("norm", "fc_norm")
)
TIMM_BIT = Format(
    "timm",
    "bit",
    (
        rule("stem.conv.weight", "backbone/conv_root/kernel", CONV),
        *_timm_units("", projection_norm=False),
        *norm("norm", "norm"),
        *dense("head.fc", "head", HEAD_OIHW),
    ),
    _RESNET | {"root_pool": "zero"},
    beside=beside_timm.timm_bit,
)
TIMM_MIXER = Format(
    "timm",
    "mixer",
    (
        *dense("stem.proj", "embedding", CONV),
        *norm("blocks.{i}.norm1", "block_{i}/token_norm"),
        *dense("blocks.{i}.mlp_tokens.fc1", "block_{i}/token_mlp/up"),
        *dense("blocks.{i}.mlp_tokens.fc2", "block_{i}/token_mlp/down"),
        *norm("blocks.{i}.norm2", "block_{i}/channel_norm"),
        *dense("blocks.{i}.mlp_channels.fc1", "block_{i}/channel_mlp/up"),
        *dense("blocks.{i}.mlp_channels.fc2", "block_{i}/channel_mlp/down"),
        *norm("norm", "norm"),
        *dense("head", "head"),
    ),
    _ERF,
    beside=beside_timm.timm_mixer,
)

FORMATS = (
    *(TIMM_PE, TIMM_ROOT_VIT, TIMM_VIT, TIMM_POOLED, TIMM_PACKED, TIMM_GATED, TIMM_BEIT),
    *(*TIMM_DINOV3, *TIMM_EVA02, *TIMM_NAFLEX, TIMM_BIT, TIMM_MIXER),
)
