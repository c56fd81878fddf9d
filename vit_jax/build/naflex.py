# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks a chain that keeps the aspect ratio of images (`naflex`) against model and objective.

Start from `check` and `packing`.
"""

import math
from typing import Any

from vit_jax.config import images as images_lib
from vit_jax.config import sections
from vit_jax.data.ops import chain as preprocess
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.sharding import Rules
from vit_jax.step.objective import Objective
from vit_jax.step.packing import Packing


def check(
    config: sections.Config, cfg: Any, objective: Objective, key: str, chain: str, op: Any
) -> None:
    """Raises BadInput for a chain with `naflex` that model, objective or mixing cannot take.

    Args:
      config: the configuration.
      cfg: the model.
      objective: the objective.
      key: the key of the chain.
      chain: the text of the chain.
      op: its last op, a `NaFlex`.
    """
    trains = key == "data.train_ops"
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
    if key != "fewshot.ops" and not objective.ANY_SHAPE:
        learned, teacher = f"objective={config.objective}", config.distillation.teacher
        if config.masked.target != "none":
            learned = f"masked.target={config.masked.target}"
        learned = f"distillation.teacher={teacher}" if teacher else learned
        raise BadInput(
            f"{key}={chain!r}: {learned} takes images of one size; write resize({{size}}), or "
            f"learn classes or texts{' without a teacher' if teacher else ''}."
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


def packing(config: sections.Config, cfg: Any, rules: Rules | None) -> Packing:
    """Returns how training packs images into rows, for `pack` above 1."""
    length = math.prod(variants.grid(cfg, *images_lib.of(config.data).size))
    return Packing(config.pack, length, rules.batch_parts if rules else 1)


def check_rows(config: sections.Config, rules: Rules) -> None:
    """Raises BadInput unless the images of each device share rows, and fill one on average."""
    count = config.batch_size // config.accumulation // rules.batch_parts
    if config.pack <= count and math.ceil(count / config.pack) < count:
        return
    least = math.ceil(100 * count / (count - 1)) / 100 if count > 1 else 0
    choice = f"pack from {least:g} to {count}, " if least else ""
    raise BadInput(
        f"pack={config.pack}: a device has {count} of the images of a micro-batch, which "
        f"{'fill no row' if config.pack > count else 'make as many rows'} (batch_size="
        f"{config.batch_size}, accumulation={config.accumulation}, devices that share the batch: "
        f"{rules.batch_parts}); give {choice}a larger batch_size, or leave pack out."
    )


def check_packing(config: sections.Config, cfg: Any, objective: Objective) -> None:
    """Raises BadInput for `pack` with images, an objective or a model that cannot be packed."""
    data, images = config.data, images_lib.of(config.data)
    last = preprocess.parse("data.train_ops", data.train_ops, images.size, images.channels)[-1]
    given = f"pack={config.pack} packs images of any aspect ratio"
    if data.views or not preprocess.adds_grid(last):
        raise BadInput(
            f"{given}, and data.train_ops={data.train_ops!r} makes images of one size; end it with "
            "naflex({size}, PATCH) and leave data.views out, or leave pack out."
        )
    patches = packing(config, cfg, rules=None).length
    if config.pack > patches:
        raise BadInput(
            f"pack={config.pack}: a row has {patches} patches, and each image at least one; give "
            f"at most {patches}."
        )
    if not objective.PACKS:
        raise BadInput(
            f"{given} in turns, and objective={config.objective} compares the images of a batch; "
            "learn classes, or leave pack out."
        )
    if config.model.drop_path:
        raise BadInput(
            f"{given}, and model.drop_path={config.model.drop_path} would drop a layer for all of "
            "a row; set --config.model.drop_path=0, or leave pack out."
        )
