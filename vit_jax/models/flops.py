# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Multiply-adds of a forward pass, counted from a formula. Start from `forward_flops`."""

from vit_jax.models import variants
from vit_jax.models.bit import BiTConfig
from vit_jax.models.custom import OwnConfig
from vit_jax.models.mixer import MixerConfig
from vit_jax.models.resnet import ResNetConfig
from vit_jax.models.vit import ViTConfig


def forward_flops(cfg: variants.Config, height: int, width: int) -> int:
    """Returns the FLOPs (2 per multiply-add) of one image through the model.

    Counts convolutions, projections, attention products, MLPs, attention pooling, pre-logits and
    heads. Leaves out norms, softmax, GELU, biases and weight standardisation. A training step costs
    3 times as much.

    Args:
      cfg: the architecture.
      height: height of the image in pixels, which must fit the model.
      width: width of the image, likewise.
    """
    if isinstance(cfg, OwnConfig):
        return cfg.forward_flops(height, width)
    if isinstance(cfg, BiTConfig):
        backbone = _backbone(cfg.resnet, height, width)
        return 2 * (backbone + cfg.resnet.features * cfg.classes)
    rows, columns = variants.grid(cfg, height, width)
    if isinstance(cfg, MixerConfig):
        return 2 * _mixer(cfg, rows * columns)
    macs = _vit(cfg, rows * columns)
    if cfg.backbone is not None:
        macs += _backbone(cfg.backbone, height, width)
    return 2 * macs


def _vit(cfg: ViTConfig, patches: int) -> int:
    tokens = patches + (cfg.pool == "token") + cfg.registers
    d, f = cfg.width, cfg.mlp

    def block(queries: int) -> int:
        macs = 2 * tokens * d * d + queries * (2 * d * d + 2 * d * f + 2 * tokens * d)
        return macs + (queries * (2 * tokens - 1) * d if cfg.posemb == "relative" else 0)

    features = cfg.backbone.features if cfg.backbone else 3
    last = block(1 if cfg.last_is_short else tokens)
    macs = patches * cfg.patch**2 * features * d + (cfg.depth - 1) * block(tokens) + last
    if cfg.patch_outputs:
        return macs + patches * d * cfg.patch_outputs
    macs += d * cfg.representation + (cfg.representation or d) * cfg.classes
    if cfg.pool == "map":
        macs += 2 * patches * d * d + 2 * patches * d + 2 * d * d + 2 * d * f
    return macs


def _mixer(cfg: MixerConfig, tokens: int) -> int:
    d = cfg.width
    block = 2 * d * tokens * cfg.token_mlp + 2 * tokens * d * cfg.mlp
    return tokens * cfg.patch**2 * 3 * d + cfg.depth * block + d * cfg.classes


def _backbone(cfg: ResNetConfig, height: int, width: int) -> int:
    """Counts the multiply-adds of root and stages.

    Convolutions of stride 2 round up with either padding.
    """
    side, stride = (7, 2) if cfg.stem == "standard" else (3, cfg.stem_stride)
    h, w = -(-height // stride), -(-width // stride)
    macs = h * w * side**2 * 3 * cfg.width
    if cfg.stem == "standard":
        h, w = -(-h // 2), -(-w // 2)
    channels = cfg.width
    for s, count in enumerate(cfg.stages):
        inside, out = cfg.width * 2**s, 4 * cfg.width * 2**s
        for u in range(count):
            macs += h * w * channels * inside
            if s > 0 and u == 0:
                h, w = -(-h // 2), -(-w // 2)
            if u == 0:
                macs += h * w * channels * out  # projection
            macs += h * w * (9 * inside * inside + inside * out)
            channels = out
    return macs
