# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Counts the parameters of a model by formula, since tracing all models takes ten seconds.

Start from `count`.

Biases and norms are counted too.
"""

from vit_jax.models import variants
from vit_jax.models.bit import BiTConfig
from vit_jax.models.mixer import MixerConfig
from vit_jax.models.resnet import ResNetConfig
from vit_jax.models.vit import ViTConfig


def count(cfg: variants.Config, height: int, width: int) -> int:
    """Returns the number of parameters in `variants.shapes`, without tracing the model.

    Args:
      cfg: the architecture, except a user's own.
      height: height of the image in pixels, which must fit the model.
      width: width of the image, likewise.
    """
    if isinstance(cfg, BiTConfig):
        features = cfg.resnet.features
        return _backbone(cfg.resnet, bit=True) + _dense(features, cfg.classes)
    rows, columns = variants.grid(cfg, height, width)
    if isinstance(cfg, MixerConfig):
        block = 2 * _norm(cfg.width) + _mlp(rows * columns, cfg.token_mlp)
        block += _mlp(cfg.width, cfg.mlp)
        stem = _dense(cfg.patch**2 * 3, cfg.width)
        return stem + cfg.depth * block + _norm(cfg.width) + _dense(cfg.width, cfg.classes)
    assert isinstance(cfg, ViTConfig), cfg
    return _vit(cfg, rows, columns)


def _vit(cfg: ViTConfig, rows: int, columns: int) -> int:
    d, token = cfg.width, int(cfg.pool == "token")
    table = {
        "learned1d": (rows * columns + token) * d,
        "learned2d": (rows + columns) * (d // 2) + token * d,
    }.get(cfg.posemb, 0)
    block = 2 * _norm(d) + _attention(d) + _mlp(d, cfg.mlp)
    if cfg.posemb == "relative":
        block += (2 * (rows * columns + token + cfg.registers) - 1) * d
    every = cfg.posemb_at == "every"
    features, backbone = 3, 0
    if cfg.backbone is not None:
        features, backbone = cfg.backbone.features, _backbone(cfg.backbone, bit=False)
    found = backbone + _dense(cfg.patch**2 * features, d) + (token + cfg.registers) * d
    found += cfg.depth * (block + table * every) + table * (not every) + _norm(d)
    if cfg.patch_outputs:
        return found + d + _dense(d, cfg.patch_outputs)  # the mask token
    if cfg.pool == "map":
        found += d + _attention(d) + _norm(d) + _mlp(d, cfg.mlp)
    if cfg.representation:
        found += _dense(d, cfg.representation)
    return found + _dense(cfg.representation or d, cfg.classes)


def _backbone(cfg: ResNetConfig, *, bit: bool) -> int:
    """Counts convolutions, which have no bias, and their norms."""
    found = (7 if cfg.stem == "standard" else 3) ** 2 * 3 * cfg.width
    channels = cfg.width
    found += 0 if bit else _norm(channels)
    for s, units in enumerate(cfg.stages):
        inside, out = cfg.width * 2**s, 4 * cfg.width * 2**s
        for u in range(units):
            found += channels * inside + 9 * inside * inside + inside * out
            found += 2 * _norm(inside) + _norm(channels if bit else out)
            if channels != out or (s > 0 and u == 0):  # projected
                found += channels * out + (0 if bit else _norm(out))
            channels = out
    return found + (_norm(channels) if bit else 0)


def _dense(rows: int, columns: int) -> int:
    return (rows + 1) * columns if columns else 0  # a model may have no head


def _norm(width: int) -> int:
    return 2 * width


def _mlp(width: int, hidden: int) -> int:
    return _dense(width, hidden) + _dense(hidden, width)


def _attention(width: int) -> int:
    return 4 * _dense(width, width)
