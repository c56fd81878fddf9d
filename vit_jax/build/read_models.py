# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models that an objective only reads, such as a teacher: from FILE_OR_RUN to arrays on the mesh.

The state keeps their parameters under `kept`, so they are saved with the run. Start from
`settle_teacher`, then `describe`.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from vit_jax import sharding
from vit_jax.build import execution, placement
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.config import sections, timeline
from vit_jax.errors import BadInput
from vit_jax.models import partial, variants
from vit_jax.step.objective import Network, Objective, ReadModel
from vit_jax.step.state import TrainState
from vit_jax.storage import files as storage

Reads = Mapping[str, ReadModel]
_TEACHER = "distillation.teacher"
_USUAL = sections.KEYS["data.mean"].default, sections.KEYS["data.std"].default


def settle_teacher(
    config: sections.Config, saved: sections.Config | None = None
) -> sections.Config:
    """Names the teacher and its settings, so that a later start needs neither its file nor its run.

    Args:
      config: a configuration with a teacher.
      saved: that of the run that goes on. Its teacher stays if `config` names the same one, even if
        that has trained on, or is gone.

    Raises:
      BadInput: as in `describe`.
    """
    given = config.distillation
    same = saved is not None and _is_same(given.teacher, saved.distillation.teacher)
    if saved is not None and same:
        given = saved.distillation
    if not _settings(given.teacher, given.teacher_settings):
        from vit_jax.weights import base

        with _explained(_TEACHER):
            name = given.teacher if same else base.whole(given.teacher)
        settings = given.teacher_settings
        if not _settings(name, settings):
            settings = json.dumps(_read_settings(_TEACHER, name) | {"of": name})
        given = dataclasses.replace(given, teacher=name, teacher_settings=settings)
    return config_lib.changed(
        config, {_TEACHER: given.teacher, f"{_TEACHER}_settings": given.teacher_settings}
    )


def _is_same(text: str, saved: str) -> bool:
    """Returns True if a text names the teacher of a run, which has a whole path and its step."""
    from vit_jax.weights import hub

    if text.startswith(hub.SCHEME):  # a branch may have moved on; a commit is another one
        commit = re.fullmatch(r".*@[0-9a-f]{40}", text)
        return text == saved or (not commit and text.partition("@")[0] == saved.partition("@")[0])
    path = os.path.abspath(os.path.expanduser(text.removesuffix("@best")))
    return saved in (text, path) or re.fullmatch(re.escape(path) + r"@\d+", saved) is not None


def _settings(name: str, text: str) -> dict[str, Any]:
    """Returns the settings in the text of `settle_teacher`; {} if they are another model's."""
    try:
        settings = json.loads(text or "{}")
        whole = {"of", "model", "classes", "channels", "mean", "std"} <= set(settings)
        return settings if whole and settings["of"] == name else {}
    except (ValueError, TypeError) as e:
        raise BadInput(f"{_TEACHER}_settings={text!r} is not a JSON object; leave it out.") from e


@contextlib.contextmanager
def _explained(key: str) -> Iterator[None]:
    try:
        yield
    except BadInput as e:
        raise BadInput(f"{key}: {e}") from e


def _read_settings(key: str, text: str) -> dict[str, Any]:
    """Returns model, classes, channels, mean and std of weights, as JSON can hold them."""
    from vit_jax.weights import loading

    with _explained(key):
        weights = loading.read_weights(text, shapes_only=True)
    if any(map(partial.is_added, weights.flat)):
        raise BadInput(f"{key}={text} has adapters, which a teacher may not have; give another.")
    found, (mean, std) = weights.images, _USUAL
    return {
        "model": dict(weights.settings),
        "classes": weights.classes,
        "channels": weights.channels,
        "mean": list(found.get("mean", found.get("image_mean", mean))),
        "std": list(found.get("std", found.get("image_std", std))),
    }


@functools.lru_cache
def describe(key: str, text: str, images: images_lib.Images, settings: str = "") -> ReadModel:
    """Describes a classifier to be used on a run's images.

    Position embeddings are resized for these images. It computes in the dtype of its run; weights
    of a file compute in float32.

    Args:
      key: the key that names it, for messages.
      text: FILE_OR_RUN.
      images: the images of the run.
      settings: its settings from `settle_teacher`; those of another, or "": they are read.

    Raises:
      BadInput: the weights cannot be read, have no head, or do not take such images.
    """
    from vit_jax.weights import loading

    known = _settings(text, settings) or _read_settings(key, text)
    if not known["classes"]:
        raise BadInput(f"{key}={text} has no head on classes; give a fine-tuned model.")
    if known["channels"] != images.channels:
        raise BadInput(
            f"{key}={text} takes images of {known['channels']} channels, and the data has "
            f"{images.channels}; give another model."
        )
    model = {name: tuple(x) if isinstance(x, list) else x for name, x in known["model"].items()}
    stored = variants.config(classes=known["classes"], **model)
    try:
        variants.check_image_size(stored, *images.size)
    except BadInput as e:
        raise BadInput(f"{key}={text}: {e}") from e

    def load() -> Any:
        with _explained(key):
            return loading.ordinary(loading.read_weights(text), images.size)[1]

    zeros = jax.tree.map(
        lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape),
        variants.shapes(stored, *images.shape),
    )
    cfg, _ = stored.ordinary(zeros, *images.size)
    shapes = variants.shapes(cfg, *images.shape)
    folder = loading.split_run(text)[0] if loading.may_be_run(text) else ""
    names = loading.class_names(storage.workdir(folder)) if folder else ()  # a file has none
    mean, std = tuple(known["mean"]), tuple(known["std"])
    return ReadModel(text, cfg, mean, std, shapes, load, names)


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
    return dataclasses.replace(objective, **models)  # type: ignore[type-var]


def networks(reads: Reads, rules: sharding.Rules | None) -> dict[str, Network]:
    """Returns the models as objectives call them; `rules` place activations."""
    from vit_jax.build import program

    return {
        name: program.network(variants.make(model.cfg, rules), model)
        for name, model in reads.items()
    }


def placed(abstract: TrainState, reads: Reads, rules: sharding.Rules) -> TrainState:
    """Returns the abstract state with these models placed as a model of theirs in training."""

    def shapes(model: ReadModel) -> Any:
        axes = sharding.param_axes(model.shapes, variants.axes(model.cfg))
        return placement.params_of(model.shapes, axes, rules)

    kept = {name: shapes(model) for name, model in reads.items()}
    return dataclasses.replace(abstract, kept={**abstract.kept, **kept})


def filled(state: TrainState, reads: Reads) -> TrainState:
    """Returns a new state with the parameters of these models in place of zeros."""
    kept = dict(state.kept)
    for name, model in reads.items():
        kept[name] = jax.tree.map(
            lambda x, old: jax.device_put(x, old.sharding), model.load(), kept[name]
        )
    return dataclasses.replace(state, kept=kept)
