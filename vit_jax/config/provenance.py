# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Records the provenance of a run for its report: origin.json in its workdir.

The resolved config.yaml beside it names neither the recipe nor the recipe's own value of each key.
Start from `write`.
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
from vit_jax.config import recipes, sections
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

FILE = "origin.json"
OTHER = "other"  # see `Origin`
_PLACES = ("seed", "init", "data.source", "data.reader")  # keys that a user must often set
# Packages that can affect a run's numbers; the versions of the installed ones are recorded.
_PACKAGES = (
    "vit_jax", "jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "optax",
    "orbax-checkpoint", "numpy", "tensorflow", "tensorflow-cpu", "tensorflow-datasets", "pillow",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The configuration that was asked for.

    Attributes:
      config: `--config` of the command line, `FILE.py[:ARGS]`.
      overrides: `--config.key=value`, in order.
      values: dotted key -> value of the recipe without overrides.
    """

    config: str
    overrides: tuple[str, ...]
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Origin:
    """The content of origin.json; a field is empty where the file lacks it.

    Attributes:
      recipe: the recipe; None if the run was made from a config.yaml.
      devices: the hardware, in one line.
      examples: number of training examples and a digest of their names, of the last start.
      versions: package, or `python` -> version, of the last start.
      branch: WORKDIR@STEP of the run whose state the run began with.
      init_sha256: SHA-256 of the weights file that the run began with.
      init_published: name of the published checkpoint with this SHA-256; `OTHER` if `init` has such
        a name, but other content; "" if the published file was never downloaded here.
      init_revision: commit of the Hugging Face hub that `init` stood for, if it is such a name.
    """

    recipe: Recipe | None = None
    devices: str = ""
    examples: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    branch: str = ""
    init_sha256: str = ""
    init_published: str = ""
    init_revision: str = ""


def recipe(spec: str, overrides: Sequence[str]) -> Recipe | None:
    """Returns the recipe that a command line asks for; None for a config.yaml.

    Args:
      spec: `--config`.
      overrides: as for `config.load`.
    """
    if recipes.split(spec)[0].suffix in (".yaml", ".yml"):
        return None
    try:
        alone = config_lib.read(spec)
    except BadInput:  # the recipe is not valid without its overrides
        return None
    return Recipe(spec, tuple(overrides), dict(config_lib.flatten(alone)))


def changed(recipe: Recipe, config: sections.Config) -> list[str]:
    """Returns the keys whose override gives a run other results than the recipe describes.

    Seeds, and where data and weights are and who reads them, do not count.
    """
    given = {key: _as_json(x) for key, x in config_lib.flatten(config)}
    keys = (one.removeprefix("--config.").partition("=")[0] for one in recipe.overrides)
    return [
        key
        for key in dict.fromkeys(keys)
        if key in given and key not in _PLACES
        and (declared := sections.find(key)) and declared.key.effect == "results"
        and given[key] != _as_json(recipe.values.get(key))
    ]  # fmt: skip


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples, also inside tuples, are lists there


def write(
    workdir: Path,
    recipe: Recipe | None,
    devices: str,
    examples: str = "",
    branch: str = "",
    init: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Writes the provenance of a start.

    Args:
      workdir: the folder of the run.
      recipe: None for a config.yaml, such as that of the run itself: the recorded recipe stays.
      devices: the hardware, in one line.
      examples: see `Origin`.
      branch: see `Origin`.
      init: `init_sha256`, `init_published` and `init_revision`, see `Origin`.
    """
    recipe = recipe or read(workdir).recipe
    origin = Origin(recipe, devices, examples, versions(), branch, *init)
    text = json.dumps(dataclasses.asdict(origin), indent=1)
    storage.write(workdir / FILE, text + "\n")


def read(workdir: Path) -> Origin:
    """Returns the provenance of a run; empty if the file is missing, damaged or of another kind."""
    try:
        content = json.loads(storage.read_all([workdir / FILE])[0])
    except (OSError, ValueError, RecursionError):
        return Origin()
    if not isinstance(content, dict):
        return Origin()
    recipe, versions = content.get("recipe"), content.get("versions")
    keys = ("devices", "examples", "branch", "init_sha256", "init_published", "init_revision")
    texts = dict(_texts({key: content.get(key) for key in keys}))
    known = dict(_texts(versions)) if isinstance(versions, dict) else {}
    return Origin(recipe=_recipe(recipe), versions=known, **texts)


def _recipe(content: Any) -> Recipe | None:
    if not isinstance(content, dict):
        return None
    config, overrides, values = (content.get(key) for key in ("config", "overrides", "values"))
    fits = isinstance(config, str) and isinstance(overrides, list) and isinstance(values, dict)
    return Recipe(config, tuple(map(str, overrides)), values) if fits else None  # type: ignore


def _texts(pairs: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [(name, text) for name, text in pairs.items() if isinstance(text, str)]


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that are installed."""
    installed = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed
