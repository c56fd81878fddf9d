# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a recipe leaves open (`model.variant=auto`, `data.image_size=0`), from weights or defaults.

Start from `settle`; `check_weights` says before a run starts whether `init` fits.
"""

import dataclasses
from typing import Any

from vit_jax.config import plugins
from vit_jax.config.load import ConfigDict
from vit_jax.errors import BadInput
from vit_jax.models import variants

SCRATCH_VARIANT, SCRATCH_IMAGE_SIZE = "Ti/8", 64  # what "auto" means without `init`

# Not part of what "auto" takes from `init`: how to train, and the layer that transfer drops.
_OWN = ("variant", "representation", "head_bias", "dropout", "attention_dropout", "drop_path")
_OWN += ("dtype", "scan", "remat", "attention")
_UNSET: dict[tuple[str, str], Any] = {
    ("model", f.name): f.default
    for f in dataclasses.fields(variants.Settings)
    if f.name not in _OWN
} | {("data", "mean"): (0.5, 0.5, 0.5), ("data", "std"): (0.5, 0.5, 0.5)}

# What weights bring along whatever the variant: constants of the arithmetic, and normalisation.
_CONSTANTS = ("gelu", "ln_epsilon", "gn_epsilon", "ws_epsilon", "ws_epsilon_in", "root_pool")
_BROUGHT = {key: unset for key, unset in _UNSET.items() if key[0] == "data" or key[1] in _CONSTANTS}


def settle(config: ConfigDict) -> ConfigDict:
    """Replaces what is left open by what `init` has, or the defaults without it.

    Raises:
      BadInput: `init` names nothing that can be read, or a value was given that contradicts it.
    """
    auto = config.model.variant == "auto"
    found: dict[str, Any] = {"variant": SCRATCH_VARIANT, "image_size": SCRATCH_IMAGE_SIZE}
    if config.init:
        found = _found(config)
    keys = _UNSET if auto else _BROUGHT
    clashes = _fill(config, found, keys)
    if auto and clashes:
        key, given, have = clashes[0]
        raise BadInput(
            f"{key}={given!r} was given, but {config.init} has {have!r}; leave it out, or give "
            "--config.model.variant to choose an architecture of your own."
        )
    with config.unlocked():
        if auto:
            config.model.variant = found["variant"]
        if not config.data.image_size:
            if "image_size" not in found:
                raise BadInput(
                    f"{config.init} does not say for what square image size it was made; give "
                    "--config.data.image_size."
                )
            config.data.image_size = found["image_size"]
    return config


def is_scratch(config: ConfigDict) -> bool:
    """Whether a settled configuration has the model that "auto" is without `init`."""
    return not config.init and config.model.variant == SCRATCH_VARIANT


def _found(config: ConfigDict) -> dict[str, Any]:
    """What `init` says, under the keys of the sections `model` and `data`."""
    from vit_jax.weights import loading

    weights = loading.read_weights(config.init, heads=config.model.heads, shapes_only=True)
    found = dict(weights.settings)
    if weights.image_size and weights.image_size[0] == weights.image_size[1]:
        found["image_size"] = weights.image_size[0]
    for key, name in (
        ("mean", "mean"),
        ("std", "std"),
        ("mean", "image_mean"),
        ("std", "image_std"),
    ):
        if name in weights.images:
            found[key] = tuple(weights.images[name])
    return found


def check_weights(config: ConfigDict) -> None:
    """Looks whether the weights of `init` fit the model of a settled configuration, by shapes.

    The data is not open, so the model has as many classes as the weights: heads start anew, but
    other shapes of a user's own model may depend on them. It is not looked at where its weights
    do not say how many they are.

    Raises:
      BadInput: they cannot be read, or do not fit.
    """
    from vit_jax.weights import loading

    weights = loading.read_weights(config.init, heads=config.model.heads, shapes_only=True)
    if plugins.is_own(config.model.variant) and not weights.classes:
        return
    cfg = variants.config(**config.model, classes=weights.classes or 2)
    side = config.data.image_size
    try:
        loading.check_fit(weights, cfg, (side, side))
    except BadInput as e:
        raise BadInput(
            f"{config.init} and {config.model.variant}: {e}\nGive the model of these weights, or "
            "weights of this model."
        ) from e


def adopt(config: ConfigDict, saved: ConfigDict) -> None:
    """Gives what `settle` would choose the values that a run has already chosen."""
    auto = config.model.variant == "auto"
    keys = _UNSET if auto else _BROUGHT
    _fill(config, {**saved.model.to_dict(), **saved.data.to_dict()}, keys)
    with config.unlocked():
        if auto:
            config.model.variant = saved.model.variant
        config.data.image_size = config.data.image_size or saved.data.image_size


def _fill(
    config: ConfigDict, found: dict[str, Any], keys: dict[tuple[str, str], Any]
) -> list[tuple[str, Any, Any]]:
    """Sets what was left open; returns (key, given, found) for what was given and differs."""
    clashes = []
    with config.unlocked():
        for (section, key), unset in keys.items():
            given = config[section][key]
            if key not in found or given == found[key]:
                continue
            if given == unset:
                config[section][key] = found[key]
            else:
                clashes.append((f"{section}.{key}", given, found[key]))
    return clashes
