# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Declares the section `model`; see `sections` for the others. Imports only `schema`."""

from dataclasses import dataclass
from typing import Literal

from vit_jax.config.schema import Range, results, where

Attention = Literal["auto", "plain", "fused"]
Biases = Literal["all", "no_key", "no_qkv", "none"]
Compute = Literal["float32", "bfloat16_products", "bfloat16"]
EpsilonIn = Literal["std", "variance"]
FinalNorm = Literal["tokens", "pooled"]
Gate = Literal["none", "silu", "gelu"]
Gelu = Literal["tanh", "erf", "quick"]
NaFlexFilter = Literal["bilinear", "bicubic", "linear"]
Norm = Literal["layer", "rms"]
NormAt = Literal["pre", "post", "sandwich"]
Pool = Literal["token", "gap", "map", "token+gap"]
Posemb = Literal["none", "learned1d", "learned2d", "relative", "relative2d", "sincos2d"]
PosembAt = Literal["stem", "every", "shared"]
RootPool = Literal["zero", "-inf"]
Rope = Literal["none", "axial", "mixed"]
RopeCoordinates = Literal["unit", "index", "from1"]
Stem = Literal["standard", "small"]
StemNorm = Literal["none", "tokens", "patches"]

_RATE = Range(0, 1, below=True)
_EPSILON = Range(0, 1)
_WIDTH = Range(0, 2**20)

# fmt: off


@dataclass(frozen=True)
class Model:
    """The architecture (docs/models.md); 0, () and "auto" leave a value to the variant."""
    variant: str = results(
        "B/16", "name of `vit_jax models`, any patch; auto: init's or Ti/8", "model")
    width: int = results(
        0, "token width D; 0, here and in the next four keys: the variant's value", _WIDTH)
    depth: int = results(0, "number of encoder or Mixer blocks", Range(0, 10_000))
    mlp: int = results(0, "width of the MLP (Mixer: of the MLP over channels)", _WIDTH)
    heads: int = results(0, "number of attention heads; divides width", _WIDTH)
    token_mlp: int = results(0, "Mixer: width of the MLP over tokens", _WIDTH)
    patches: tuple[int, ...] = results(
        (), "FlexiViT: patch sides to draw from in training; (): the paper's", "counts")
    stages: tuple[int, ...] = results(
        (), "hybrid, BiT: units per ResNet stage; (): the variant's", "counts")
    root_width: int = results(
        0, "hybrid, BiT: channels of the root, a multiple of 32; 0: the variant's", _WIDTH)
    stem: Stem = results("standard", "hybrid, BiT: small is 3 x 3 without a pool, for small images")
    stem_stride: int = results(0, "stride of the small stem; 0: 1", Range(0, 2))
    root_pool: Literal["auto", RootPool] = results(
        "auto", "BiT: padding value of the root's pooling; auto: zero")
    pool: Pool = results(
        "token", "class token, global average or attention pooling; token+gap: the first two "
        "beside each other")
    pool_heads: int = results(
        0, "pool=map: its attention heads; 0: those of the blocks (Perception Encoder: 8)", _WIDTH)
    pool_mlp: int = results(
        0, "pool=map: width of its MLP; 0: that of the blocks", _WIDTH)
    class_token: bool = results(False, "keep a class token although the pool is gap or map")
    distillation: bool = results(
        False, "a second class token with its own head; the logits are the mean of both (DeiT)")
    posemb: Posemb = results("learned1d", "position embedding (Table 8)")
    rope: Rope = results(
        "none", "rotary positions beside posemb: axial, or mixed: learned directions per head")
    rope_base: float = results(
        100.0, "ratio of the largest to the smallest wavelength of rope", Range(1, 1e9))
    rope_coordinates: RopeCoordinates = results(
        "unit", "places of patches for rope; unit: from -1 to 1 (DINOv3), index: 0, 1, ... (EVA), "
        "from1: 1, 2, ... (Perception Encoder)")
    rope_grid: int = results(
        0, "patches a side to which numbered coordinates are scaled; 0: as they are",
        Range(0, 2**16))
    rope_jitter: float = results(
        1.0, "training: factor on each axis of rope, log-uniform in [1/x, x]; 1: off",
        Range(1, 100))
    rope_rescale: float = results(
        1.0, "training: factor on both axes of rope, log-uniform in [1/x, x]; 1: off",
        Range(1, 100))
    posemb_at: PosembAt = results(
        "stem", "every: a table per layer; shared: one table in all layers")
    posemb_std: float = results(
        0.02, "deviation of learned1d and learned2d at the start; big_vision: 1/sqrt(D)", _EPSILON)
    mup_base_width: int = results(
        0, "ViT: width at which the learning rate was found, for muP (docs/optimizers.md); 0: off",
        _WIDTH)
    registers: int = results(0, "number of extra tokens that belong to no patch", Range(0, 2**16))
    stem_bias: bool = results(True, "bias of the embedding of patches")
    stem_norm: StemNorm = results(
        "none", "tokens: a norm before the blocks (CLIP); patches: of patches, before positions")
    norm: Norm = results("layer", "layer: LayerNorm, rms: RMSNorm without bias")
    norm_at: NormAt = results(
        "pre", "norm before each branch; post: after adding it; sandwich: before and after it")
    final_norm: FinalNorm = results(
        "tokens", "last norm; pooled: after pooling instead of before")
    parallel: bool = results(
        False, "attention and MLP read the same norm and are added at once (ViT-22B)")
    layer_scale: float = results(
        0.0, "initial factor on each branch, learned per channel (LayerScale); 0: no factor",
        Range(0, 100))
    qk_norm: bool = results(False, "a norm of queries and keys in each head")
    gate: Gate = results(
        "none", "MLP with a gate: silu (SwiGLU) or gelu (GEGLU) of one layer times another")
    mlp_norm: bool = results(False, "a norm of the hidden layer of the MLP (EVA-02)")
    biases: Biases = results(
        "all", "biases of attention and MLP; no_key: not of keys, no_qkv: not of queries, keys and "
        "values")
    representation: int = results(0, "width of the tanh layer before the head; 0: no layer", _WIDTH)
    head_bias: float = results(
        0.0, "initial bias of the head; -10 suits sigmoid on 21k classes", Range(-1000, 1000))
    dropout: float = results(0.0, "rate after position embedding, attention and MLP layers", _RATE)
    attention_dropout: float = results(0.0, "rate on attention weights", _RATE)
    drop_path: float = results(
        0.0, "stochastic depth: rate of the last block, linear from 0", _RATE)
    patch_dropout: float = results(
        0.0, "training: share of the patches that the blocks do not see", _RATE)
    merge: int = results(
        0, "pairs of tokens that each layer merges (ToMe), in training and evaluation",
        Range(0, 2**16))
    naflex: int = results(
        0, "ViT: positions a side of a table that is resized to the grid of each image, of any "
        "aspect ratio (SigLIP 2 NaFlex: 16; docs/naflex.md); 0: images of one size",
        Range(0, 256))
    naflex_filter: NaFlexFilter = results(
        "bilinear", "how that table is resized: bilinear (SigLIP 2) or bicubic, both with means "
        "where it shrinks, or linear: bilinear without means")
    naflex_square: bool = results(
        False, "resize that table to a square of the longer side of the grid, and take its first "
        "rows and columns, so that positions keep the aspect ratio")
    window: int = results(
        0, "ViT: side in patches of the windows within which most blocks attend (ViTDet); 0: none",
        Range(0, 2**16))
    global_blocks: int = results(
        4, "blocks without windows, evenly spaced; the last is one", Range(1, 10_000))
    gelu: Literal["auto", Gelu] = results(
        "auto", "form of GELU; quick: x sigmoid(1.702 x); auto, here and below: init's, else the "
        "published")
    ln_epsilon: float = results(
        0.0, "epsilon of LayerNorm; 0, here and below: init's, else the published", _EPSILON)
    gn_epsilon: float = results(0.0, "hybrid, BiT: epsilon of GroupNorm", _EPSILON)
    ws_epsilon: float = results(0.0, "hybrid, BiT: epsilon of weight standardisation", _EPSILON)
    ws_epsilon_in: Literal["auto", EpsilonIn] = results(
        "auto", "hybrid, BiT: where ws_epsilon is added")
    dtype: Compute = results(
        "float32", "dtype of compute; parameters are float32; bfloat16_products: only factors of "
        "products are bfloat16, as a TPU multiplies float32 (docs/models.md)")
    scan: bool = results(True, "stack the layers' parameters, so that a block can be compiled once")
    remat: str = where(
        "none", "what the backward pass recomputes: none | dots | full | auto; or the names of "
        'activations that it keeps, e.g. "query,key" (docs/memory.md)')
    attention: Attention = where("auto", "auto: the fastest path of a platform (docs/memory.md)")
