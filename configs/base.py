# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Holds the configuration that every recipe starts from: all keys with their defaults.

docs/config.md lists the keys: range or choices, unit, effect and meaning. So does
`vit_jax train --help-config=KEY`. `vit_jax/config/sections.py` declares them.
"""

from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from vit_jax.config import frozen, load, sections

if TYPE_CHECKING:
    from vit_jax.paper import expectations


def evaluation(split: str, every: str = "0") -> ConfigDict:
    """Returns the section of one evaluation. Its name is the prefix of its metrics."""
    return ConfigDict(frozen.defaults(sections.Evaluation(split=split, every=every)))


def optimize_as_bit(config: ConfigDict, bit: Any) -> None:
    """Sets SGD as in BiT (arXiv:1912.11370).

    The caller sets the length, and the steps after which the rate falls.

    Args:
      config: changed in place.
      bit: an object with batch size, rate, momentum, weight decay and warm-up steps.
    """
    config.batch_size = bit.batch_size
    config.optimizer.name = "sgd"
    config.optimizer.sgd.momentum = bit.momentum
    config.optimizer.sgd.accumulator_dtype = "float32"
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = bit.weight_decay
    config.schedule.name = "step"
    config.schedule.lr = bit.lr
    config.schedule.warmup = f"{bit.warmup_steps} steps"


def expect(config: ConfigDict, published: "expectations.Expected | None") -> None:
    """Sets `config.expected` to a published result, if the run measures it; keeps its source."""
    measured = {*config.evals, *(f"fewshot_{name}" for name, _ in config.fewshot.sources)}
    if published is None or published.metric.partition("/")[0] not in measured:
        return
    config.expected.metric = published.metric
    config.expected.value = published.value
    config.expected.tolerance = published.tolerance
    config.expected.source = "; ".join(filter(None, (published.source, config.expected.source)))


def get_config() -> ConfigDict:
    """Returns all keys with their defaults, locked, so that a recipe cannot add a key."""
    return load.defaults()
