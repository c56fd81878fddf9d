# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fills in the settings that a recipe leaves open, from weights or defaults.

Examples are `model.variant=auto` and `data.image_size=0`.

Start from `settle`. `check_weights` checks before a run starts that `init` fits.
"""

import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vit_jax.config import images, plugins, schema, sections
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants

if TYPE_CHECKING:
    from vit_jax.weights.convert import Weights

log = logging.getLogger("vit_jax")
SCRATCH_VARIANT, SCRATCH_IMAGE_SIZE = "Ti/8", 64  # the meaning of "auto" without `init`

# Settings that "auto" does not take from `init`: how to train, and the layer that transfer drops.
_OWN = ("variant", "representation", "head_bias", "dropout", "attention_dropout", "drop_path")
_OWN += ("patch_dropout", "merge", "window", "global_blocks", "dtype", "scan", "remat")
_OWN += ("attention", "posemb_std")
_UNSET: dict[str, Any] = {
    f"model.{name}": declared.default
    for name, declared in schema.keys(sections.Model).items()
    if name not in _OWN
} | {key: sections.KEYS[key].default for key in ("data.mean", "data.std")}

# Settings that come with the weights for every variant: constants of the arithmetic, and
# normalisation.
_CONSTANTS = ("gelu", "ln_epsilon", "gn_epsilon", "ws_epsilon", "ws_epsilon_in", "root_pool")
_BROUGHT = {
    key: unset
    for key, unset in _UNSET.items()
    if key.removeprefix("model.") in _CONSTANTS or key.startswith("data.")
}

_FEWSHOT = sections.KEYS["fewshot.ops"].default
_CHANNELS = sections.KEYS["data.channels"].default


def settle(config: sections.Config) -> sections.Config:
    """Replaces open settings by those of `init`, or by the defaults if there is no `init`.

    Raises:
      BadInput: `init` cannot be read, or contradicts a value that was given.
    """
    auto = config.model.variant == "auto"
    brought: dict[str, Any] = {
        "model.variant": SCRATCH_VARIANT,
        "data.image_size": SCRATCH_IMAGE_SIZE,
        **_chains(config, "", {}),
    }
    if config.init:
        brought = _read_settings(config)
        config = _with_channels(config, brought)
    config, clashes = _filled(config, brought, _UNSET if auto else _BROUGHT)
    if auto and clashes:
        key, value, have = clashes[0]
        raise BadInput(
            f"{key}={value!r} was given, but {config.init} has {have!r}; leave it out, or give "
            "--config.model.variant to choose an architecture of your own."
        )
    if not config.data.image_size and "data.image_size" not in brought:
        raise BadInput(
            f"{config.init} does not give its image size; give --config.data.image_size."
        )
    config = _with_open_ones(config, brought)
    return _with_teacher(config)


def _with_teacher(config: sections.Config, saved: sections.Config | None = None) -> sections.Config:
    if not config.distillation.teacher:
        return config
    from vit_jax.build import read_models

    return read_models.settle_teacher(config, saved)


def _with_open_ones(config: sections.Config, brought: Mapping[str, Any]) -> sections.Config:
    """Returns the configuration with the brought variant, image size and chains that it lacks."""
    return config_lib.changed(config, {key: brought[key] for key in open_keys(config)})


def open_keys(config: sections.Config) -> list[str]:
    """Returns the keys whose values `settle` takes from `init` or from the defaults."""
    is_open = {
        "model.variant": config.model.variant == "auto",
        "data.image_size": not config.data.image_size,
        "data.train_ops": config.data.train_ops == "auto",
        "data.eval_ops": config.data.eval_ops == "auto",
    }
    return [key for key in is_open if is_open[key]]


def is_scratch(config: sections.Config) -> bool:
    """Returns True if a settled configuration has the default model of a run without `init`."""
    return not config.init and config.model.variant == SCRATCH_VARIANT


def _with_channels(config: sections.Config, brought: dict[str, Any]) -> sections.Config:
    """Takes the channels of the weights unless the recipe sets others; `fitting` then adapts RGB.

    Other channels have no use for the mean and the deviation of those of the weights, so these
    leave `brought`.
    """
    channels = brought.pop("data.channels")
    if config.data.channels == _CHANNELS:
        config = config_lib.changed(config, {"data.channels": channels})
    for key in {"data.mean", "data.std"} & brought.keys():
        numbers = brought[key]
        if len(numbers) != config.data.channels and len(set(numbers)) > 1:
            del brought[key]
    return config


def _read_settings(config: sections.Config) -> dict[str, Any]:
    """Reads the settings of `init`: dotted key -> value."""
    weights = _weight_shapes(config)
    settings = {f"model.{name}": value for name, value in weights.settings.items()}
    if weights.image_size:
        settings["data.image_size"] = images.text(weights.image_size)
    for key in ("mean", "std"):
        for name in (key, f"image_{key}"):
            if name in weights.images:
                settings[f"data.{key}"] = tuple(weights.images[name])
    if weights.format in ("timm", "hf") and "data.mean" not in settings:
        _warn_of_normalisation(config, weights.kind)
    told = {} if settings.get("model.naflex") else weights.images
    settings |= _chains(config, weights.format, told)
    return settings | {"data.channels": weights.channels}


def _chains(config: sections.Config, form: str, told: Mapping[str, Any]) -> dict[str, str]:
    """Returns the chains that are `auto`, for what weights of a format tell about images."""
    if "auto" not in (config.data.train_ops, config.data.eval_ops):
        return {}
    from vit_jax.weights import image_chains

    train, evaluation = image_chains.of(form, told)
    return {"data.train_ops": train, "data.eval_ops": evaluation}


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)


def _warn_of_normalisation(config: sections.Config, kind: str) -> None:
    """Logs that weights do not tell their normalisation, unless the user gives another."""
    if (config.data.mean, config.data.std) != (_UNSET["data.mean"], _UNSET["data.std"]):
        return
    from vit_jax.weights import image_settings

    known = image_settings.usual(kind)
    _warn_once(
        f"no file beside {config.init} says how its images are normalised: data.mean="
        f"{config.data.mean} and data.std={config.data.std} are used"
        f"{'; ' + known if known else ''}. Give --config.data.mean and --config.data.std."
    )


def _weight_shapes(config: sections.Config) -> "Weights":
    from vit_jax.weights import loading

    own = None
    if plugins.is_own(config.model.variant):
        own = variants.of(config.model, 2)
    heads = config.model.heads
    return loading.read_weights(config.init, heads=heads, shapes_only=True, own=own)


def check_weights(config: sections.Config) -> None:
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
    cfg = variants.of(config.model, weights.classes or 2)
    shown = images.of(config.data)
    from vit_jax.weights import loading

    try:
        loading.check_fit(weights, cfg, shown.size, shown.channels, fresh_head=True)
    except BadInput as e:
        raise BadInput(
            f"{config.init} and {config.model.variant}: {e}\nGive the model of these weights, or "
            "weights of this model."
        ) from e


def take_from_run(config: sections.Config, saved: sections.Config) -> sections.Config:
    """Fills the open settings with the values that a run has already settled."""
    keys = _UNSET if config.model.variant == "auto" else _BROUGHT
    settled = dict(config_lib.flatten(saved))
    keys = keys | {"data.channels": _CHANNELS}
    of_recipe = config.fewshot.ops.endswith(_FEWSHOT.removeprefix("decode"))
    if saved.fewshot.ops == saved.data.eval_ops and of_recipe:
        keys |= {"fewshot.ops": config.fewshot.ops}  # earlier runs had no other chain
    config, _ = _filled(config, settled, keys)
    config = _with_open_ones(config, settled)
    return _with_teacher(config, saved)


def _filled(
    config: sections.Config, values: Mapping[str, Any], keys: Mapping[str, Any]
) -> tuple[sections.Config, list[tuple[str, Any, Any]]]:
    """Fills the open settings: those of `keys` (dotted key -> value of an open one).

    Returns:
      The configuration, and (key, given, found) for given values that differ.
    """
    current = dict(config_lib.flatten(config))
    differ = {key: values[key] for key in keys if key in values and current[key] != values[key]}
    filled = {key: value for key, value in differ.items() if current[key] == keys[key]}
    clashes = [(key, current[key], differ[key]) for key in differ if key not in filled]
    return config_lib.changed(config, filled), clashes
