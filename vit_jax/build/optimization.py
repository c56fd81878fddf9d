# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The learning rate and the optimizer of a configuration. Start from `make`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vit_jax import sharding
from vit_jax.config import frozen, sections, timeline
from vit_jax.models import variants
from vit_jax.optim import optimizers, schedules
from vit_jax.step import train_step

if TYPE_CHECKING:
    from vit_jax.models import partial


def schedule(section: sections.Schedule, steps: timeline.Steps) -> schedules.Schedule:
    """Returns the learning rate of a run of this length as a function of the updates done."""
    in_steps = {"warmup": steps.warmup, "cooldown": steps.cooldown, "drops": steps.drops}
    arguments = frozen.arguments(section) | in_steps
    return schedules.make_schedule(total_steps=steps.total, **arguments)


def make(
    config: sections.Config,
    cfg: variants.Config,
    params: Any,
    steps: timeline.Steps,
    rules: sharding.Rules,
    selection: "partial.Selection | None",
) -> tuple[schedules.Schedule, optimizers.Transform]:
    """Returns the learning rate and the optimizer.

    Args:
      config: the configuration.
      cfg: the model.
      params: every parameter, as shapes.
      steps: the length of the run.
      rules: placement of the parameters.
      selection: of what is trained; None: every parameter.

    Raises:
      BadInput: see `optimizers.make_optimizer`.
    """
    rates, base = schedule(config.schedule, steps), config.model.mup_base_width
    tx = optimizers.make_optimizer(
        params,
        rates,
        decay_multipliers=config.optimizer.decay.multipliers,
        widening=cfg.width / base if base else 0.0,  # type: ignore[attr-defined]  # only for ViTs
        rules=rules,
        part=selection,
        **frozen.arguments(config.optimizer),
    )
    return rates, train_step.skipping(tx) if config.skip_non_finite else tx


def climb(config: sections.Config, params: Any) -> Callable[[Any, Any], Any] | None:
    """Returns `sam.climbing`; None without SAM."""
    rho = config.optimizer.sam.rho
    if not rho:
        return None
    from vit_jax.optim import sam

    return sam.climbing(params, rho, config.optimizer.freeze)
