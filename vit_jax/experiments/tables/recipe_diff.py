# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares the configuration of a run with its recipe, key by key.

Recipes are loaded as commands load them. Start from `fine_tuning` or `pre_training`.
"""

import fnmatch
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.config import load as config_lib
from vit_jax.config import recipes
from vit_jax.errors import BadInput

Flat = Mapping[str, Any]  # dotted key -> value
Difference = tuple[str, Any, Any]  # key, the run's value, the recipe's

# Keys that a run may set in its own way: arithmetic and layout, and aspects judged elsewhere (the
# data, further measurements). Both readers give the same examples and draws, and pixels within one
# grey level.
FREE = (
    "seed", "evals.*", "fewshot.*", "data.source", "data.reader", "data.records.*",
    "data.window_shards", "model.scan", "model.dtype",
)  # fmt: skip
# Constants of weights: a run has the recipe's, or those of the authors' files, which a run that
# starts from one writes into its configuration. Weights of other libraries bring their own.
CONSTANTS = (
    "data.mean", "data.std", "model.gelu", "model.ln_epsilon", "model.gn_epsilon",
    "model.ws_epsilon", "model.ws_epsilon_in", "model.root_pool",
)  # fmt: skip


def differences(run: Flat, recipe: Flat, **own: Any) -> tuple[Difference, ...]:
    """Returns the keys that change results and whose values differ from the recipe's.

    Args:
      run: the configuration of the run.
      recipe: the configuration of the recipe.
      **own: keys (with __ for a dot) for which the cell replaces the recipe's value.
    """
    wanted = dict(recipe) | {key.replace("__", "."): value for key, value in own.items()}
    init = str(run.get("init", ""))
    other = init.startswith("hf:") or init.endswith(".safetensors")
    known = _of_files(str(run.get("model.variant", "")))
    free = [key for key in CONSTANTS if other or run.get(key, "") == known.get(key)]
    keys = [k for k in (*wanted, *(k for k in run if k not in wanted)) if not is_free(k, free)]
    keys.append("branch")  # its first steps may have had other settings
    return unlike(run, {key: wanted.get(key, "(none)") for key in keys})


@functools.cache
def _of_files(variant: str) -> Flat:
    """Returns the constants of the authors' files of a model's family."""
    from vit_jax.weights.formats import npz  # imports jax

    family = next((f for f in ("bit", "mixer") if variant.lower().startswith(f"{f}-")), "vit")
    return {
        f"model.{name}": value
        for one in npz.FORMATS
        if one.family == family
        for name, value in one.constants.items()
    }


def unlike(run: Flat, wanted: Flat) -> tuple[Difference, ...]:
    """Returns the keys of `wanted` that have another value in a run, or none."""
    own = {key: run.get(key, "(none)") for key in wanted}
    return tuple((key, own[key], value) for key, value in wanted.items() if own[key] != value)


def scored(recipe: Flat, name: str) -> Flat:
    """Returns the keys of an evaluation of a recipe that change its result."""
    keys = [key for key in recipe if key.startswith(f"evals.{name}.")]
    return {key: recipe[key] for key in keys if config_lib.changes_results(key)}


def is_free(key: str, also: Sequence[str] = ()) -> bool:
    """Returns True if a run may have its own value of a key, or of those in `also`."""
    free = any(fnmatch.fnmatchcase(key, pattern) for pattern in (*FREE, *also))
    return free or not config_lib.changes_results(key)


@functools.cache
def recipe(name: str, args: str) -> Flat:
    """Returns a shipped recipe as commands resolve it, flat.

    Raises:
      BadInput: the recipe does not take these arguments.
    """
    return dict(config_lib.flatten(config_lib.load(f"{recipes.OWN}{name}:{args}")))


@functools.cache
def fine_tuning(variant: str, dataset: str, *, whole: bool = True, **arguments: Any) -> Flat:
    """Returns configs/transfer.py as it trains once everything is chosen.

    Args:
      variant: the model.
      dataset: dataset of the recipe.
      whole: True for all of train, False for the part that is not held out.
      **arguments: further arguments of the recipe.
    """
    args = {"model": variant, "dataset": dataset, **arguments}
    values = recipe("transfer", ",".join(f"{key}={value}" for key, value in args.items()))
    return {**values, "data.split": "train"} if whole and "/" not in dataset else values


def pre_training(variant: str, dataset: str, name: str, epochs: int) -> Flat | None:
    """Returns configs/pretrain.py (AugReg: level none); None if it lacks this model or length.

    The name `masked` is configs/masked.py, whose length is fixed.
    """
    if name == "masked":
        return recipe("masked", f"model={variant},dataset={dataset}")
    level = ",aug=none" if name == "augreg" else ""
    args = f"recipe={name},model={variant},dataset={dataset},epochs={epochs}{level}"
    try:
        return recipe("pretrain", args)
    except BadInput:
        return None
