# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which parameters a run trains, and where each array of its state and batches lies on the mesh.

Start from `make_rules`, `selection` and `abstract_state`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from vit_jax import sharding
from vit_jax.config import frozen, sections, trainable
from vit_jax.config import images as images_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.optim import optimizers
from vit_jax.step import state
from vit_jax.step.objective import Objective

if TYPE_CHECKING:
    from vit_jax.build.read_models import Reads
    from vit_jax.models import partial


def make_rules(config: sections.Config, devices: Sequence[Any] | None = None) -> sharding.Rules:
    """Makes the mesh and the placement.

    Checks that the batch and its micro-batches divide over devices, and that `pack` suits them.

    Raises:
      BadInput: the devices do not fill the mesh, the mesh does not divide a batch, or the images of
        a device cannot be packed.
    """
    shape = frozen.arguments(config.mesh)
    places = shape.pop("rules")
    rules = sharding.Rules(sharding.make_mesh(**shape, devices=devices), places)
    check_batches(config, rules)
    if config.pack > 1:
        from vit_jax.build import naflex

        naflex.check_rows(config, rules)
    return rules


def check_batches(config: sections.Config, rules: sharding.Rules) -> None:
    """Raises BadInput if the mesh does not divide a batch; the message names sizes that fit."""
    unit = rules.batch_parts * config.accumulation
    batches = {"batch_size": (config.batch_size, unit)}
    for name, section in config.evals.items():
        size = section.batch_size or config.batch_size
        batches[f"evals.{name}.batch_size"] = (size, rules.batch_parts)
    batches["fewshot.batch_size"] = (few_shot_batch(config), rules.batch_parts)
    for key, (size, ways) in batches.items():
        if size % ways or size < ways:
            low = size // ways * ways
            fits = f"{low} or {low + ways}" if low else str(ways)
            raise BadInput(
                f"{key}={size} is not divisible by {ways} (devices that share the batch: "
                f"{rules.batch_parts}, accumulation: {ways // rules.batch_parts}); use {fits}."
            )


def few_shot_batch(config: sections.Config) -> int:
    """Returns the batch size of few-shot evaluation."""
    return config.fewshot.batch_size or config.batch_size


def check(config: sections.Config, objective: Objective, cfg: variants.Config) -> None:
    """Raises BadInput unless the model has the parts that `trainable` names."""
    what, variant = trainable.parse(config.trainable), config.model.variant
    if what is not None:
        images = images_lib.of(config.data)
        key = jax.eval_shape(lambda: jax.random.key(0))
        from vit_jax.models import partial

        params = variants.shapes(objective.model(cfg), *images.shape)
        add = functools.partial(partial.extended, what, variant=variant)
        partial.select(what, jax.eval_shape(add, params, key), variant)


def selection(
    config: sections.Config, objective: Objective, params: Any
) -> "partial.Selection | None":
    """Returns the split of the parameters by `trainable`; None if every parameter is trained."""
    what = trainable.parse(config.trainable)
    if what is None:
        return None
    kept = jax.eval_shape(objective.kept, params)
    if kept is not None and kept.keys() != objective.reads.keys():
        raise BadInput(
            f"trainable={config.trainable!r}: objective={config.objective!r} keeps a copy of the "
            "model beside the trained one, which needs every parameter; give trainable=all."
        )
    from vit_jax.models import partial

    return partial.select(what, params, config.model.variant)


def _split(chosen: "partial.Selection | None") -> state.Split:
    """Returns the function that splits parameters into what is trained and the base."""
    if chosen is None:
        return lambda params: (params, None)
    return lambda params: (chosen.trained(params), chosen.base(params))


def beginning(
    config: sections.Config,
    objective: Objective,
    tx: optimizers.Transform,
    chosen: "partial.Selection | None",
) -> Callable[[Any], state.TrainState]:
    """Returns every parameter -> the state before the first step."""
    ema, keep = config.ema.decay > 0, objective.kept
    return functools.partial(state.from_params, tx=tx, ema=ema, keep=keep, split=_split(chosen))


def axes(params: Any, meaning: sharding.Axes, chosen: "partial.Selection | None") -> sharding.Axes:
    """Returns the logical axes of every parameter: path -> axes."""
    if chosen is None:
        return sharding.param_axes(params, meaning)
    from vit_jax.models import partial

    of_model = sharding.param_axes(partial.without_added(params), meaning)
    return of_model | partial.axes(params, of_model)


def abstract_state(
    begin: Callable[[Any], state.TrainState],
    params: Any,
    axes: sharding.Axes,
    rules: sharding.Rules,
    reads: "Reads",
) -> state.TrainState:
    """Returns the state that `begin` makes from parameters, as shapes with shardings."""
    shapes = jax.eval_shape(begin, params)
    base = shapes.base and params_of(shapes.base, axes, rules)
    shapes = dataclasses.replace(shapes, base=None)
    placed = _with_places(shapes, sharding.place(shapes, axes, rules))
    placed = dataclasses.replace(placed, base=base)
    if not reads:
        return placed
    from vit_jax.build import read_models

    return read_models.placed(placed, reads, rules)


def params_of(params: Any, axes: sharding.Axes, rules: sharding.Rules) -> Any:
    """Returns parameters, or a part of them, as shapes with shardings."""
    tree_of = {"params": params}
    return _with_places(tree_of, sharding.place(tree_of, axes, rules))["params"]


def _with_places(shapes: Any, places: Any) -> Any:
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, places
    )
