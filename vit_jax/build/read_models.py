# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models that an objective only reads, such as a teacher: from FILE_OR_RUN to arrays on the mesh.

The state keeps their parameters under `kept`, so they are saved with the run. Start from
`describe`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax import sharding
from vit_jax.build import execution
from vit_jax.config import images as images_lib
from vit_jax.config import sections, timeline
from vit_jax.errors import BadInput
from vit_jax.models import partial, variants
from vit_jax.step.objective import Network, Objective, ReadModel
from vit_jax.step.state import TrainState

Reads = Mapping[str, ReadModel]
_USUAL = sections.KEYS["data.mean"].default, sections.KEYS["data.std"].default


@functools.lru_cache
def describe(key: str, text: str, images: images_lib.Images) -> ReadModel:
    """Reads shapes and settings of a classifier, to be used on a run's images.

    Position embeddings are resized for these images. It computes in the dtype of its run; weights
    of a file compute in float32.

    Args:
      key: the key that names it, for messages.
      text: FILE_OR_RUN.
      images: the images of the run.

    Raises:
      BadInput: the weights cannot be read, have no head, or do not take such images.
    """
    from vit_jax.weights import loading

    try:
        weights = loading.read_weights(text, shapes_only=True)
    except BadInput as e:
        raise BadInput(f"{key}: {e}") from e
    if not weights.classes:
        raise BadInput(f"{key}={text} has no head on classes; give a fine-tuned model.")
    if any(map(partial.is_added, weights.flat)):
        raise BadInput(f"{key}={text} has adapters, which a teacher may not have; give another.")
    if weights.channels != images.channels:
        raise BadInput(
            f"{key}={text} takes images of {weights.channels} channels, and the data has "
            f"{images.channels}; give another model."
        )
    try:
        variants.check_image_size(weights.config, *images.size)
    except BadInput as e:
        raise BadInput(f"{key}={text}: {e}") from e
    found, (mean, std) = weights.images, _USUAL
    mean = found.get("mean", found.get("image_mean", mean))
    std = found.get("std", found.get("image_std", std))

    def load() -> tuple[Any, Any]:
        return loading.ordinary(loading.read_weights(text), images.size)

    cfg, _ = loading.ordinary(weights, images.size)
    shapes = variants.shapes(cfg, *images.shape)
    run = loading.find_run(text) if loading.may_be_run(text) else None
    names = loading.class_names(run.workdir) if run else ()  # files have names of another kind
    return ReadModel(text, cfg, tuple(mean), tuple(std), shapes, lambda: load()[1], names)


def in_form(
    objective: Objective,
    config: sections.Config,
    rules: sharding.Rules,
    steps: timeline.Steps,
    platform: str,
) -> Objective:
    """Returns the objective with its models in the form that the devices compute."""
    size, images = images_lib.of(config.data).size, config.batch_size * steps.total

    def chosen(model: ReadModel) -> ReadModel:
        flops = images * model.cfg.forward_flops(*size) / rules.mesh.size if model.cfg.FORMS else 0
        made = execution.choose(model.cfg, sections.Model(), rules, platform, flops, size)
        return dataclasses.replace(model, cfg=made.cfg)

    models: dict[str, Any] = {name: chosen(model) for name, model in objective.reads.items()}
    return dataclasses.replace(objective, **models) if models else objective  # type: ignore[type-var]


def networks(reads: Reads, rules: sharding.Rules | None) -> dict[str, Network]:
    """Returns the models as objectives call them; `rules` place activations."""

    def network(model: ReadModel) -> Network:
        made = variants.make(model.cfg, rules)

        def apply(params: Any, images: jax.Array, **options: Any) -> jax.Array:
            return jnp.asarray(made.apply({"params": params}, images, **options))

        return Network(apply, model.mean, model.std)

    return {name: network(model) for name, model in reads.items()}


def placed(abstract: TrainState, reads: Reads, rules: sharding.Rules) -> TrainState:
    """Returns the abstract state with these models placed as a model of theirs in training."""

    def shapes(model: ReadModel) -> Any:
        axes = sharding.param_axes(model.shapes, variants.axes(model.cfg))
        places = sharding.place({"params": model.shapes}, axes, rules)["params"]
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), model.shapes, places
        )

    kept = {name: shapes(model) for name, model in reads.items()}
    return dataclasses.replace(abstract, kept={**abstract.kept, **kept}) if kept else abstract


def filled(state: TrainState, reads: Reads) -> TrainState:
    """Returns a new state with the parameters of these models in place of zeros."""
    if not reads:
        return state
    kept = dict(state.kept)
    for name, model in reads.items():
        kept[name] = jax.tree.map(
            lambda x, old: jax.device_put(x, old.sharding), model.load(), kept[name]
        )
    return dataclasses.replace(state, kept=kept)
