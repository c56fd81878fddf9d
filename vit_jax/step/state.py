# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The arrays that a step works on: the state of training and its images."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

PyTree = Any
Split = Callable[[PyTree], tuple[PyTree, PyTree]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """The state of training, saved as one tree.

    Attributes:
      step: int32 [], optimizer steps done.
      params: float32 leaves.
      opt_state: of the optimizer.
      ema: the average of parameters, or None.
      kept: what the objective keeps, such as a teacher, or None.
      base: the parameters that are not trained, if there are any, or None.
    """

    step: jax.Array
    params: PyTree
    opt_state: PyTree
    ema: PyTree
    kept: PyTree = None
    base: PyTree = None

    def saved(self) -> dict[str, PyTree]:
        """Returns the tree that checkpoints hold: all but the base and a `kept` that is None."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "base"]
        fields = {name: getattr(self, name) for name in names}
        return {name: x for name, x in fields.items() if name != "kept" or x is not None}


def from_params(
    params: PyTree,
    tx: optax.GradientTransformation,
    *,
    ema: bool,
    keep: Callable[[PyTree], PyTree] = lambda _: None,
    split: Split = lambda params: (params, None),
) -> TrainState:
    """Returns the state before the first step. Pure: meant for `jax.jit` with out-shardings.

    Args:
      params: every parameter.
      tx: the optimizer.
      ema: keeps an average of the parameters, which starts at the initial parameters.
      keep: parameters -> what the objective keeps, see `Objective.kept`.
      split: parameters -> (those to train, those that stay as they are or None).
    """
    kept = keep(params)
    params, base = split(params)
    average = jax.tree.map(jnp.copy, params) if ema else None
    return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params), average, kept, base)


def normalise(image_BHWC: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """Maps uint8 [0, 255] to float32: (image / 255 - mean) / std, per channel.

    It takes one multiplication and one addition: (0.5, 0.5) gives image / 127.5 - 1.
    """
    scale = jnp.asarray([[[[1.0 / (255.0 * s) for s in std]]]], jnp.float32)
    shift = jnp.asarray([[[[-m / s for m, s in zip(mean, std, strict=True)]]]], jnp.float32)
    return image_BHWC.astype(jnp.float32) * scale + shift


def with_grids(images_BHWC: jax.Array, batch: Mapping[str, Any]) -> Any:
    """Returns normalised images, with their grids if the batch has these, see `naflex`."""
    if "grid" not in batch:
        return images_BHWC
    from vit_jax.models import naflex

    canvas = naflex.Canvas(images_BHWC, batch["grid"])
    return naflex.Unpacked(canvas, batch["members"]) if "members" in batch else canvas
