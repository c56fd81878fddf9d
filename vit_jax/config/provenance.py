# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a run was made from and with: origin.json in its workdir, for its report.

The resolved config.yaml beside it does not say which recipe it comes from, nor what that recipe
says of each key. Start from `write`.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.config import load as config_lib
from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

FILE = "origin.json"
# What a run's numbers can depend on; those that are installed are written down.
_PACKAGES = (
    "vit_jax", "jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "optax",
    "orbax-checkpoint", "numpy", "tensorflow", "tensorflow-cpu", "tensorflow-datasets", "pillow",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What was asked for.

    Attributes:
      config: of the command line, `FILE.py[:ARGS]`.
      overrides: `--config.key=value`, in order.
      values: dotted key -> what the recipe says without overrides.
    """

    config: str
    overrides: tuple[str, ...]
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Origin:
    """What origin.json says; empty where it does not.

    Attributes:
      recipe: None where the run was made from a config.yaml.
      devices: a line.
      versions: package, or `python` -> version, of the last start.
      examples: how many are trained on, and a digest of their names, of the last start.
    """

    recipe: Recipe | None = None
    devices: str = ""
    examples: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


def recipe(spec: str, overrides: Sequence[str]) -> Recipe | None:
    """What a command line asks for; None for a config.yaml.

    Args:
      spec: `--config`.
      overrides: as for `config.load`.
    """
    if recipes.split(spec)[0].suffix in (".yaml", ".yml"):
        return None
    try:
        alone = config_lib.load(spec)
    except BadInput:  # it needs its overrides
        return None
    return Recipe(spec, tuple(overrides), dict(config_lib.flatten(alone)))


def write(workdir: Path, recipe: Recipe | None, devices: str, examples: str = "") -> None:
    """Writes what a start is made from and with.

    Args:
      workdir: of the run.
      recipe: None for a config.yaml, such as that of the run itself: what was written stays.
      devices: the hardware, a line.
      examples: see `Origin`.
    """
    recipe = recipe or read(workdir).recipe
    origin = Origin(recipe, devices, examples, versions())
    text = json.dumps(dataclasses.asdict(origin), indent=1)
    storage.write(workdir / FILE, text + "\n")


def read(workdir: Path) -> Origin:
    """What is known of a run; empty where the file is missing, damaged or of another kind."""
    try:
        found = json.loads(storage.read_all([workdir / FILE])[0])
    except (OSError, ValueError, RecursionError):
        return Origin()
    if not isinstance(found, dict):
        return Origin()
    recipe, versions = found.get("recipe"), found.get("versions")
    devices, examples = (found.get(key, "") for key in ("devices", "examples"))
    return Origin(
        recipe=_recipe(recipe),
        devices=devices if isinstance(devices, str) else "",
        examples=examples if isinstance(examples, str) else "",
        versions=dict(_texts(versions)) if isinstance(versions, dict) else {},
    )


def _recipe(found: Any) -> Recipe | None:
    if not isinstance(found, dict):
        return None
    config, overrides, values = (found.get(key) for key in ("config", "overrides", "values"))
    fits = isinstance(config, str) and isinstance(overrides, list) and isinstance(values, dict)
    return Recipe(config, tuple(map(str, overrides)), values) if fits else None  # type: ignore


def _texts(pairs: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [(name, text) for name, text in pairs.items() if isinstance(text, str)]


def versions() -> dict[str, str]:
    """Of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
