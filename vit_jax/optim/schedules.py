# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The learning rate as a function of the updates already done. Start from `make_schedule`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.errors import BadInput

Schedule = Callable[[jax.typing.ArrayLike], Any]


def make_schedule(
    *,
    name: str,
    lr: float,
    warmup: int,
    cooldown: int,
    total_steps: int,
    end: float = 1e-5,
    timescale: int = 10000,
    shift: int = 0,
    drops: Sequence[int] = (),
    factor: float = 0.1,
) -> Schedule:
    """Returns a schedule t -> rate; the update that makes step t + 1 uses the rate at t.

    With p = clip((t - warmup) / (total_steps - warmup), 0, 1):
      cosine: lr (1 + cos(pi p)) / 2.
      linear: end + (lr - end) (1 - p); the paper pre-trains with end = 1e-5.
      rsqrt: lr / sqrt(1 + (max(t - warmup, 0) + shift) / timescale), arXiv:2106.04560.
      step: lr * factor^(number of `drops` that are at most t); BiT, arXiv:1912.11370, section 3.3.
    Each is multiplied by min(1, t / warmup) and min(1, (total_steps - t) / cooldown). With a
    warm-up the first update therefore has rate 0, as in the published code.

    Args:
      name: cosine, linear, rsqrt or step.
      lr: peak rate.
      warmup: steps of the warm-up.
      cooldown: steps of the cool-down.
      total_steps: steps of the run.
      end: final rate of linear.
      timescale: timescale of rsqrt, in steps.
      shift: shift of rsqrt, in steps.
      drops: for step: the steps at which the rate falls.
      factor: for step: the factor on the rate at each drop.

    Raises:
      BadInput: warm-up and cool-down are longer than the run.
    """
    if warmup + cooldown > total_steps:
        raise BadInput(
            f"schedule: warm-up {warmup} and cool-down {cooldown} steps are longer than the run of "
            f"{total_steps} steps; shorten them (e.g. --config.schedule.warmup='10 percent') or "
            "lengthen the run (--config.length)."
        )

    def schedule(count: jax.typing.ArrayLike) -> Any:
        # A rate computed on the host must not wait for the device.
        xp: Any = jnp if isinstance(count, jax.Array) else np
        t = xp.asarray(count, xp.float32)
        p = xp.clip((t - warmup) / max(total_steps - warmup, 1), 0.0, 1.0)
        rates = {
            "cosine": lambda: lr * 0.5 * (1.0 + xp.cos(xp.pi * p)),
            "linear": lambda: end + (lr - end) * (1.0 - p),
            "rsqrt": lambda: lr / xp.sqrt(1.0 + (xp.maximum(t - warmup, 0.0) + shift) / timescale),
            "step": lambda: lr * factor ** sum((t >= drop for drop in drops), xp.zeros_like(t)),
        }
        return rates[name]() * _ends(xp, t, warmup, cooldown, total_steps)

    return schedule


def _ends(xp: Any, t: Any, warmup: int, cooldown: int, total_steps: int) -> Any:
    """Returns the factor of warm-up and cool-down."""
    up = xp.minimum(1.0, t / warmup) if warmup else 1.0
    return up * (xp.clip((total_steps - t) / cooldown, 0.0, 1.0) if cooldown else 1.0)
