# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the log lines before the first step of a run. Start from `describe`."""

import logging
from typing import Any

from vit_jax.build import defaults
from vit_jax.build import run as build
from vit_jax.config.load import ConfigDict
from vit_jax.config.provenance import Recipe
from vit_jax.models import flops
from vit_jax.reports import summary
from vit_jax.training import metric_writer

log = logging.getLogger("vit_jax")


def describe(run: build.Run, devices: list[Any]) -> None:
    """Logs the facts that usually explain a wrong result: devices, data, batch, model and cost."""
    config, source, cfg = run.config, run.source, run.model.cfg
    counts = ", ".join(f"{name} {len(split):,}" for name, split in source.splits.items())
    log.info("devices: %s", summary.device_summary(devices))
    log.info("mesh: %s", ", ".join(f"{axis}={n}" for axis, n in run.rules.mesh.shape.items()))
    log.info("data: %s, %d classes; %s", source.spec, len(source.classes), counts)
    for note in source.notes:
        log.info("data: %s", note)
    for name, task in run.tasks.items():
        log.info("%s: %s; %d images scored", name, task.source, len(task.test))
        for note in task.notes:
            log.info("%s: %s", name, note)
    side, each = config.data.image_size, config.batch_size // run.rules.batch_parts
    log.info("images: %d x %d, mean %s, std %s", side, side, config.data.mean, config.data.std)
    log.info("train: %s on %s", config.data.train_ops, config.data.split)
    log.info("evaluation: %s", config.data.eval_ops)
    log.info("batch: %d = %d devices x %d images, in %d micro-batches", config.batch_size,
             run.rules.batch_parts, each, config.accumulation)  # fmt: skip
    log.info("length: %d steps, %.1f epochs", run.steps.total, run.steps.total / run.steps.epoch)
    log.info("model: %s\n%s", cfg, summary.parameter_table(run.abstract.params))
    log.info("cost: %.4g GFLOPs an image forward", flops.forward_flops(cfg, side, side) / 1e9)


def advise(config: ConfigDict, recipe: Recipe | None, steps: int) -> None:
    """Logs that published weights would help, if the recipe leaves the model to an empty `init`.

    Args:
      config: the resolved configuration.
      recipe: the recipe of the run, if it has one.
      steps: the number of steps of the whole run.
    """
    said = metric_writer.ESTIMATE_STEPS
    estimate = f"; an estimate of the time follows after {said} steps" if steps > said else ""
    if recipe and recipe.values["model.variant"] == "auto" and defaults.is_scratch(config):
        log.info(
            "no --config.init: %s at %d px is trained from scratch; published weights usually "
            "reach more with few images, e.g. --config.init=imagenet21k/ViT-B_16.npz (see "
            "`vit_jax models`)%s",
            config.model.variant, config.data.image_size, estimate,
        )  # fmt: skip
