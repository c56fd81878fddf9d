# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks chains that keep the aspect ratio of images (`naflex`) against model and objective.

Start from `check`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.config import images as images_lib
from vit_jax.config import sections
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops.naflex import FIELD, NaFlex
from vit_jax.errors import BadInput
from vit_jax.step.objective import Objective


def grids(config: sections.Config) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the field of a training example that says its grid of patches, if it has one."""
    images = images_lib.of(config.data)
    ops = preprocess.parse("data.train_ops", config.data.train_ops, images.size, images.channels)
    if config.data.views or not isinstance(ops[-1], NaFlex):
        return {}
    return {FIELD: jax.ShapeDtypeStruct((2,), jnp.int32)}


def check(config: sections.Config, cfg: Any, objective: Objective) -> None:
    """Raises BadInput for a chain with `naflex` that model, objective or mixing cannot take."""
    images = images_lib.of(config.data)
    chains = {"data.train_ops": config.data.train_ops, "data.eval_ops": config.data.eval_ops}
    for key, chain in (chains | {"fewshot.ops": config.fewshot.ops}).items():
        trains = key == "data.train_ops"
        op = preprocess.parse(key, chain, images.size, images.channels)[-1]
        if not isinstance(op, NaFlex) or (trains and config.data.views):
            continue
        side = getattr(cfg, "naflex", 0)
        if not side:
            raise BadInput(
                f"{key}={chain!r} gives images of any aspect ratio, and the model has positions "
                "for one grid; give --config.model.naflex=16 (a ViT), or resize({size})."
            )
        if op.patch != cfg.patch:
            raise BadInput(
                f"{key}={chain!r} has patches of {op.patch} pixels, and the model of {cfg.patch}; "
                f"write naflex({{size}}, {cfg.patch})."
            )
        if key in chains and not objective.ANY_SHAPE:
            raise BadInput(
                f"{key}={chain!r}: objective={config.objective} takes images of one size; write "
                "resize({size}), or learn classes or texts."
            )
        if trains and config.data.device_ops:
            raise BadInput(
                f"{key}={chain!r} makes rows of patches, and data.device_ops changes images; put "
                "these ops before naflex, and leave data.device_ops out."
            )
        if trains and (config.mixup.alpha or config.mixup.cutmix):
            raise BadInput(
                f"{key}={chain!r}: mixup and CutMix mix images of one size; set "
                "--config.mixup.alpha=0 --config.mixup.cutmix=0."
            )
