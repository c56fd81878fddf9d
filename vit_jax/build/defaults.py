# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fills in the settings that a recipe leaves open, from weights or defaults.

Examples are `model.variant=auto` and `data.image_size=0`.

Start from `settle`. `check_weights` checks before a run starts that `init` fits.
"""

from typing import TYPE_CHECKING, Any

from vit_jax.config import images, plugins, schema, sections
from vit_jax.config.load import ConfigDict
from vit_jax.errors import BadInput
from vit_jax.models import variants

if TYPE_CHECKING:
    from vit_jax.weights.convert import Weights

SCRATCH_VARIANT, SCRATCH_IMAGE_SIZE = "Ti/8", 64  # the meaning of "auto" without `init`

# Settings that "auto" does not take from `init`: how to train, and the layer that transfer drops.
_OWN = ("variant", "representation", "head_bias", "dropout", "attention_dropout", "drop_path")
_OWN += ("dtype", "scan", "remat", "attention", "posemb_std")
_UNSET: dict[tuple[str, str], Any] = {
    ("model", name): declared.default
    for name, declared in schema.keys(sections.Model).items()
    if name not in _OWN
} | {("data", name): sections.KEYS[f"data.{name}"].default for name in ("mean", "std")}

# Settings that come with the weights for every variant: constants of the arithmetic, and
# normalisation.
_CONSTANTS = ("gelu", "ln_epsilon", "gn_epsilon", "ws_epsilon", "ws_epsilon_in", "root_pool")
_BROUGHT = {key: unset for key, unset in _UNSET.items() if key[0] == "data" or key[1] in _CONSTANTS}


_FEWSHOT = sections.KEYS["fewshot.ops"].default
_CHANNELS = sections.KEYS["data.channels"].default


def settle(config: ConfigDict) -> ConfigDict:
    """Replaces open settings by those of `init`, or by the defaults if there is no `init`.

    Raises:
      BadInput: `init` cannot be read, or contradicts a value that was given.
    """
    auto = config.model.variant == "auto"
    weight_settings: dict[str, Any] = {"variant": SCRATCH_VARIANT, "image_size": SCRATCH_IMAGE_SIZE}
    if config.init:
        weight_settings = _read_settings(config)
        _settle_channels(config, weight_settings)
    keys = _UNSET if auto else _BROUGHT
    clashes = _fill(config, weight_settings, keys)
    if auto and clashes:
        key, value, have = clashes[0]
        raise BadInput(
            f"{key}={value!r} was given, but {config.init} has {have!r}; leave it out, or give "
            "--config.model.variant to choose an architecture of your own."
        )
    with config.unlocked():
        if auto:
            config.model.variant = weight_settings["variant"]
        if not config.data.image_size:
            if "image_size" not in weight_settings:
                raise BadInput(
                    f"{config.init} does not give its image size; give --config.data.image_size."
                )
            with config.ignore_type():  # a number or a text
                config.data.image_size = weight_settings["image_size"]
    return config


def is_scratch(config: ConfigDict) -> bool:
    """Returns True if a settled configuration has the default model of a run without `init`."""
    return not config.init and config.model.variant == SCRATCH_VARIANT


def _settle_channels(config: ConfigDict, weight_settings: dict[str, Any]) -> None:
    """Takes the channels of the weights unless the recipe sets others; `fitting` then adapts RGB.

    Other channels have no use for the mean and the deviation of those of the weights.
    """
    channels = weight_settings.pop("channels")
    if config.data.channels == _CHANNELS:
        with config.unlocked():
            config.data.channels = channels
    for key in {"mean", "std"} & weight_settings.keys():
        numbers = weight_settings[key]
        if len(numbers) != config.data.channels and len(set(numbers)) > 1:
            del weight_settings[key]


def _read_settings(config: ConfigDict) -> dict[str, Any]:
    """Reads the settings of `init`, under the keys of the sections `model` and `data`."""
    weights = _weight_shapes(config)
    settings = dict(weights.settings)
    if weights.image_size:
        settings["image_size"] = images.text(weights.image_size)
    for key, name in (
        ("mean", "mean"),
        ("std", "std"),
        ("mean", "image_mean"),
        ("std", "image_std"),
    ):
        if name in weights.images:
            settings[key] = tuple(weights.images[name])
    return settings | {"channels": weights.channels}


def _weight_shapes(config: ConfigDict) -> "Weights":
    from vit_jax.weights import loading

    own = None
    if plugins.is_own(config.model.variant):
        own = variants.config(**config.model, classes=2)
    heads = config.model.heads
    return loading.read_weights(config.init, heads=heads, shapes_only=True, own=own)


def check_weights(config: ConfigDict) -> None:
    """Checks by shapes that the weights of `init` fit the model of a settled configuration.

    The data is not open yet, so the check assumes the number of classes of the weights. Heads start
    anew, but other shapes of a user's own model may depend on that number. The check is skipped for
    a user's own model if the weights do not tell the number of classes.

    Raises:
      BadInput: the weights cannot be read, or do not fit.
    """
    weights = _weight_shapes(config)
    if plugins.is_own(config.model.variant) and not weights.classes:
        return
    cfg = variants.config(**config.model, classes=weights.classes or 2)
    shown = images.of(config.data)
    from vit_jax.weights import loading

    try:
        loading.check_fit(weights, cfg, shown.size, shown.channels)
    except BadInput as e:
        raise BadInput(
            f"{config.init} and {config.model.variant}: {e}\nGive the model of these weights, or "
            "weights of this model."
        ) from e


def take_from_run(config: ConfigDict, saved: ConfigDict) -> None:
    """Copies the values that a run has already settled into the open settings."""
    auto = config.model.variant == "auto"
    keys = _UNSET if auto else _BROUGHT
    keys = keys | {("data", "channels"): _CHANNELS}
    _fill(config, {**saved.model.to_dict(), **saved.data.to_dict()}, keys)
    with config.unlocked():
        if config.fewshot.ops == _FEWSHOT and saved.fewshot.ops == saved.data.eval_ops:
            config.fewshot.ops = saved.fewshot.ops  # earlier runs had no other chain
        if auto:
            config.model.variant = saved.model.variant
        with config.ignore_type():
            config.data.image_size = config.data.image_size or saved.data.image_size


def _fill(
    config: ConfigDict, values: dict[str, Any], keys: dict[tuple[str, str], Any]
) -> list[tuple[str, Any, Any]]:
    """Sets the open settings; returns (key, given, found) for given values that differ."""
    clashes = []
    with config.unlocked():
        for (section, key), unset in keys.items():
            current = config[section][key]
            if key not in values or current == values[key]:
                continue
            if current == unset:
                config[section][key] = values[key]
            else:
                clashes.append((f"{section}.{key}", current, values[key]))
    return clashes
