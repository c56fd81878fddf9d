# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables for npz files of google-research/vision_transformer, big_vision and big_transfer.

They state the names and shapes of the published files. Start from `FORMATS`.
"""

from vit_jax.weights.formats.name_table import (
    CHANNELS,
    CHANNELS_4D,
    HEAD_HWIO,
    POSEMB_GRID,
    SAME,
    SQUEEZED,
    Format,
    Op,
    Rule,
    fuse_class_row,
    rule,
)

_VIT_CONSTANTS = {
    "gelu": "tanh", "ln_epsilon": 1e-6, "gn_epsilon": 1e-6, "ws_epsilon": 1e-5,
    "ws_epsilon_in": "std",
}  # fmt: skip
_BIT_CONSTANTS = {
    "gn_epsilon": 1e-5, "ws_epsilon": 1e-10, "ws_epsilon_in": "variance", "root_pool": "zero",
}  # fmt: skip
_BLOCK = "Transformer/encoderblock_{i}"


def _encoder(attention: int, second_norm: int, mlp: int) -> tuple[Rule, ...]:
    """Returns the names of an encoder block; the numbers of its parts differ between formats."""
    heads = f"{_BLOCK}/MultiHeadDotProductAttention_{attention}"
    return (
        rule(f"{_BLOCK}/LayerNorm_0/{{sb}}", "block_{i}/attn_norm/{sb}"),
        rule(f"{heads}/{{qkvo}}/{{kb}}", "block_{i}/attn/{qkvo}/{kb}"),
        rule(f"{_BLOCK}/LayerNorm_{second_norm}/{{sb}}", "block_{i}/mlp_norm/{sb}"),
        rule(f"{_BLOCK}/MlpBlock_{mlp}/Dense_0/{{kb}}", "block_{i}/mlp/up/{kb}"),
        rule(f"{_BLOCK}/MlpBlock_{mlp}/Dense_1/{{kb}}", "block_{i}/mlp/down/{kb}"),
    )


def _units(unit: str, projection_norm: Op | None, norm: Op) -> tuple[Rule, ...]:
    """Returns the names of a ResNet's stages; `unit` is the template of a unit's path."""
    ours = "backbone/stage{s}_unit{u}"
    rules = (
        rule(f"{unit}/conv{{n}}/kernel", f"{ours}/conv{{n}}/kernel"),
        rule(f"{unit}/gn{{n}}/{{sb}}", f"{ours}/norm{{n}}/{{sb}}", norm),
        rule(f"{unit}/conv_proj/kernel", f"{ours}/conv_proj/kernel"),
    )
    if projection_norm is None:
        return rules
    return (*rules, rule(f"{unit}/gn_proj/{{sb}}", f"{ours}/norm_proj/{{sb}}", projection_norm))


_STEM = (rule("cls", "cls"), rule("embedding/{kb}", "embedding/{kb}"))
_HEAD = (
    rule("Transformer/encoder_norm/{sb}", "norm/{sb}"),
    rule("pre_logits/{kb}", "pre_logits/{kb}"),
    rule("head/{kb}", "head/{kb}"),
)

ORIGINAL_VIT = Format(
    "npz",
    "vit",
    (
        *_STEM,
        rule("Transformer/posembed_input/pos_embedding", "posemb"),
        *_encoder(attention=1, second_norm=2, mlp=3),
        *_HEAD,
        rule("conv_root/kernel", "backbone/conv_root/kernel"),
        rule("gn_root/{sb}", "backbone/norm_root/{sb}", CHANNELS_4D),
        *_units("block{s}/unit{u}", CHANNELS_4D, CHANNELS_4D),
    ),
    _VIT_CONSTANTS,
    aliases=(  # Linen numbers each class separately; its predecessor numbered all parts in a row
        (r"/MultiHeadDotProductAttention_0/", "/MultiHeadDotProductAttention_1/"),
        (r"(encoderblock_\d+)/LayerNorm_1/", r"\1/LayerNorm_2/"),
        (r"/MlpBlock_0/", "/MlpBlock_3/"),
    ),
)

_MAP = "MAPHead_0"
BIG_VISION_VIT = Format(
    "big_vision",
    "vit",
    (
        *_STEM,
        rule("pos_embedding", "posemb", POSEMB_GRID),
        *_encoder(attention=0, second_norm=1, mlp=0),
        *_HEAD,
        rule(f"{_MAP}/probe", "map_head/probe"),
        rule(f"{_MAP}/MultiHeadDotProductAttention_0/{{qkvo}}/{{kb}}", "map_head/attn/{qkvo}/{kb}"),
        rule(f"{_MAP}/LayerNorm_0/{{sb}}", "map_head/norm/{sb}"),
        rule(f"{_MAP}/MlpBlock_0/Dense_0/{{kb}}", "map_head/mlp/up/{kb}"),
        rule(f"{_MAP}/MlpBlock_0/Dense_1/{{kb}}", "map_head/mlp/down/{kb}"),
    ),
    _VIT_CONSTANTS,
    aliases=(
        (r"^Transformer/(posembed_input/)?pos_embedding$", "pos_embedding"),
        (r"/MultiHeadDotProductAttention_1/", "/MultiHeadDotProductAttention_0/"),
        (r"/LayerNorm_2/", "/LayerNorm_1/"),
        (r"/MlpBlock_3/", "/MlpBlock_0/"),
        (r"^(probe$|MultiHeadDotProductAttention_0/|LayerNorm_0/|MlpBlock_0/)", rf"{_MAP}/\1"),
    ),
    before_write=fuse_class_row,
)  # fmt: skip

_MIXER_RULES = (
    rule("stem/{kb}", "embedding/{kb}"),
    rule("MixerBlock_{i}/LayerNorm_0/{sb}", "block_{i}/token_norm/{sb}"),
    rule("MixerBlock_{i}/token_mixing/Dense_0/{kb}", "block_{i}/token_mlp/up/{kb}", SQUEEZED),
    rule("MixerBlock_{i}/token_mixing/Dense_1/{kb}", "block_{i}/token_mlp/down/{kb}", SQUEEZED),
    rule("MixerBlock_{i}/LayerNorm_1/{sb}", "block_{i}/channel_norm/{sb}"),
    rule("MixerBlock_{i}/channel_mixing/Dense_0/{kb}", "block_{i}/channel_mlp/up/{kb}", SQUEEZED),
    rule("MixerBlock_{i}/channel_mixing/Dense_1/{kb}", "block_{i}/channel_mlp/down/{kb}", SQUEEZED),
    rule("pre_head_layer_norm/{sb}", "norm/{sb}"),
    rule("head/{kb}", "head/{kb}"),
)
ORIGINAL_MIXER = Format(
    "npz",
    "mixer",
    _MIXER_RULES,
    {"gelu": "tanh", "ln_epsilon": 1e-6},
    aliases=(  # names from before the code was published
        (r"^Mixer/encoder_norm/", "pre_head_layer_norm/"),
        (r"^Mixer/encoderblock_(\d+)/LayerNorm_[1-9]\d*/", r"MixerBlock_\1/LayerNorm_1/"),
        (r"^Mixer/encoderblock_(\d+)/", r"MixerBlock_\1/"),
        (r"/(token|channel)_mixing_phase_0/(kernel|bias)1$", r"/\1_mixing/Dense_0/\2"),
        (r"/(token|channel)_mixing_phase_0/(kernel|bias)2$", r"/\1_mixing/Dense_1/\2"),
        (r"^embedding/", "stem/"),
    ),
)

_BIT_UNIT = "resnet/block{s}/unit{u:02}"
_OURS = "backbone/stage{s}_unit{u}"
ORIGINAL_BIT = Format(  # variables of TensorFlow
    "npz",
    "bit",
    (
        rule("resnet/root_block/standardized_conv2d/kernel", "backbone/conv_root/kernel"),
        *(
            rule(f"{_BIT_UNIT}/{letter}/standardized_conv2d/kernel", f"{_OURS}/conv{n}/kernel")
            for n, letter in enumerate("abc", 1)
        ),
        *(
            rule(f"{_BIT_UNIT}/{letter}/group_norm/{theirs}", f"{_OURS}/norm{n}/{ours}", CHANNELS)
            for n, letter in enumerate("abc", 1)
            for theirs, ours in (("gamma", "scale"), ("beta", "bias"))
        ),
        rule(f"{_BIT_UNIT}/a/proj/standardized_conv2d/kernel", f"{_OURS}/conv_proj/kernel"),
        rule("resnet/group_norm/gamma", "norm/scale", CHANNELS),
        rule("resnet/group_norm/beta", "norm/bias", CHANNELS),
        rule("resnet/head/conv2d/kernel", "head/kernel", HEAD_HWIO),
        rule("resnet/head/conv2d/bias", "head/bias"),
    ),
    _BIT_CONSTANTS,
    aliases=((r"/standardized_conv2d_\d+/", "/standardized_conv2d/"),),
)
BIG_VISION_BIT = Format(
    "big_vision",
    "bit",
    (
        rule("root_block/conv_root/kernel", "backbone/conv_root/kernel"),
        *_units("block{s}/unit{u:02}", None, CHANNELS_4D),
        rule("norm-pre-head/{sb}", "norm/{sb}", CHANNELS_4D),
        rule("head/{kb}", "head/{kb}", SAME),
    ),
    _BIT_CONSTANTS,
)
# big_vision's Mixer uses the original names, so files of both are read as npz.
BIG_VISION_MIXER = Format("big_vision", "mixer", _MIXER_RULES, ORIGINAL_MIXER.constants)

FORMATS = (
    ORIGINAL_VIT, BIG_VISION_VIT, ORIGINAL_MIXER, BIG_VISION_MIXER, ORIGINAL_BIT, BIG_VISION_BIT,
)  # fmt: skip
