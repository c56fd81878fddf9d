# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a recipe leaves open (`model.variant=auto`, `data.image_size=0`), from weights or defaults.

Start from `settle`.
"""

from typing import Any

from vit_jax import load
from vit_jax.config import ConfigDict
from vit_jax.errors import BadInput

SCRATCH_VARIANT, SCRATCH_IMAGE_SIZE = "Ti/8", 64  # what "auto" means without `init`


# What "auto" leaves to `init`, by section, with the value that means "not set".
_LEFT_OPEN: dict[tuple[str, str], Any] = {
    ("model", "width"): 0,
    ("model", "depth"): 0,
    ("model", "mlp"): 0,
    ("model", "heads"): 0,
    ("model", "pool"): "token",
    ("data", "mean"): (0.5, 0.5, 0.5),
    ("data", "std"): (0.5, 0.5, 0.5),
}


def settle(config: ConfigDict) -> ConfigDict:
    """Replaces `model.variant=auto` and `data.image_size=0` by those of `init`, or the defaults.

    Raises:
      BadInput: `init` names nothing that can be read, or a value was given that contradicts it.
    """
    if config.model.variant != "auto" and config.data.image_size:
        return config
    found: dict[str, Any] = {"variant": SCRATCH_VARIANT, "image_size": SCRATCH_IMAGE_SIZE}
    if config.init:
        found = load.architecture(config.init)
    clashes = _fill(config, found) if config.model.variant == "auto" else []
    if clashes:
        key, given, have = clashes[0]
        raise BadInput(
            f"{key}={given!r} was given, but {config.init} has {have!r}; leave it out, or give "
            "--config.model.variant to choose an architecture of your own."
        )
    with config.unlocked():
        config.data.image_size = config.data.image_size or found["image_size"]
    return config


def adopt(config: ConfigDict, saved: ConfigDict) -> None:
    """Gives what `settle` would choose the values that a run has already chosen."""
    if config.model.variant == "auto":
        _fill(config, {**saved.model.to_dict(), **saved.data.to_dict()})
    with config.unlocked():
        config.data.image_size = config.data.image_size or saved.data.image_size


def _fill(config: ConfigDict, found: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Sets what was left open; returns (key, given, found) for what was given and differs."""
    clashes = []
    with config.unlocked():
        config.model.variant = found["variant"]
        for (section, key), unset in _LEFT_OPEN.items():
            given = config[section][key]
            if key not in found or given == found[key]:
                continue
            if given == unset:
                config[section][key] = found[key]
            else:
                clashes.append((f"{section}.{key}", given, found[key]))
    return clashes
