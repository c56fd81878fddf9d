# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds the cells that a run belongs to, and the reasons why it does not fill them.

Start from `Placer.place`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.experiments.tables import lineage, recipe_diff
from vit_jax.experiments.tables.cells import Want
from vit_jax.experiments.tables.lineage import Ancestry, Origin
from vit_jax.experiments.tables.recipe_diff import Difference
from vit_jax.experiments.tables.run_results import Run
from vit_jax.paper import robustness, transfer

SELECT = "stage select, not final"
CHAINS = ("released", "paper", "big_vision")  # values of preprocess of configs/transfer.py
HYPERRULE = "hyperrule"  # a recipe of configs/transfer.py: with Table 4's grid, BiT's other way
_OF_SET = ("source", "split", "labels", "classes")  # keys of another test set
# The protocol of big_vision.
_FEWSHOT = ("fewshot.method", "fewshot.ops", "fewshot.l2", "fewshot.seeds")


@dataclasses.dataclass(frozen=True)
class Placed:
    """A run beside a cell.

    Attributes:
      run: the run.
      protocol: a name shared by the fine-tuning runs of one table, e.g. `released` or `paper`;
        empty for a pre-training and for BiT's HyperRule, which go with any.
      selected: what held-out images choose for a fine-tuning, a phrase each.
      origin: the pre-training.
      why_not: reasons why the run does not fill the cell, a phrase each; (): it fills the cell in
        a table of its protocol.
    """

    run: Run
    protocol: str
    selected: tuple[str, ...]
    origin: Origin
    why_not: tuple[str, ...]

    @property
    def choice(self) -> tuple[str, ...]:
        """What all seeds of a cell share, and for VTAB all tasks of a model, a phrase each."""
        return (*self.selected, f"on {self.run.config['data.split']}", *self.origin.choice)


class Placer:
    """Places runs beside the wants of one table."""

    def __init__(self, wants: Sequence[Want], origins: Ancestry):
        self._wants, self._origins = wants, origins

    def place(self, run: Run) -> dict[Want, Placed]:
        """Returns the wants that match a run by model and test set, or only the best matches.

        The best matches are, for each metric, those that the run fills; else those that agree in
        pre-training and image size, or else in pre-training.
        """
        near = [want for want in self._wants if want.known and self._near(run, want)]
        origin = self._origins.origin(run)
        own = [want for want in near if origin.is_of(want)]
        size = run.config["data.image_size"]
        same = [want for want in own if image_size(want) == size]
        make = _transfer if run.fine_tunes else _pretraining
        places = {want: make(run, want, origin) for want in same or own or near}
        filled = {want.metric for want, place in places.items() if not place.why_not}
        return {
            want: place
            for want, place in places.items()
            if not place.why_not or want.metric not in filled
        }

    @staticmethod
    def _near(run: Run, want: Want) -> bool:
        """Returns True if the model, the test set and the varied settings agree."""
        config = run.config
        if config["model.variant"] != want.variant or run.fine_tunes != bool(want.dataset):
            return False
        if want.dataset:
            return lineage.tested_on(config["data.source"])[0] == want.dataset
        return all(config[key] == value for key, value in want.settings)


def image_size(want: Want) -> int:
    """Returns the pixels a side of a run's images."""
    if want.size or not want.dataset:
        return want.size or 224
    return recipe_diff.fine_tuning(want.variant, want.dataset)["data.image_size"]


def _transfer(run: Run, want: Want, origin: Origin) -> Placed:
    config = run.config
    recipes = _recipes(want, whole=not want.fixed and not _of_the_rest(run, want))
    chain = _chain(config, want, recipes)
    recipe = recipes[want.preprocess or chain]
    options = _options(run, want, recipe, by_rule=chain == HYPERRULE)
    own = {key: config[key] for key in ("data.split", *options)} | {"ema.decay": want.ema}
    differences = [
        *recipe_diff.differences(config, recipe, **own),
        *((k, config[k], f"of {', '.join(map(str, v))}")
          for k, v in options.items() if config[k] not in v),
        *_read(run, want, recipe),
    ]  # fmt: skip
    why_not = [*_foreign(run, want, origin), *_stage(run, want)]
    protocol = "" if chain == HYPERRULE else chain  # the paper tries both for BiT
    selected = _selected(config["schedule.lr"], config["length"])
    if not is_vtab(want):
        selected += (f"{'recipe' if chain == HYPERRULE else 'preprocess'}={chain}",)
    why_not += lineage.phrases(tuple(differences))
    return Placed(run, protocol, selected, origin, tuple(why_not))


def _selected(rate: float, length: str) -> tuple[str, ...]:
    return f"rate {rate}", length


@functools.cache
def usual_of_vtab() -> tuple[str, ...]:
    """Returns `Placed.selected` of VTAB's recipe, for which nothing needs to be selected."""
    recipe = recipe_diff.fine_tuning("B/16", "vtab/dtd")
    return _selected(recipe["schedule.lr"], recipe["length"])


def _chain(config: recipe_diff.Flat, want: Want, recipes: Mapping[str, recipe_diff.Flat]) -> str:
    """Returns the name of the recipe that a run makes its images with, else of the cell's."""
    usual = want.preprocess or ("paper" if is_vtab(want) else "released")
    for keys in (("data.train_ops", "data.eval_ops"), ("data.train_ops",)):
        for name in (usual, *recipes):
            if all(recipes[name][key] == config[key] for key in keys):
                return name
    return usual


def is_vtab(want: Want) -> bool:
    """Returns True if a want is for a VTAB task."""
    return want.dataset.startswith("vtab/")


def _of_the_rest(run: Run, want: Want) -> bool:
    """Returns True for AugReg without a stage: as in big_vision, train without what is held out."""
    return want.recipe == "augreg" and not run.config["recipe.stage"]


def _recipes(want: Want, *, whole: bool) -> Mapping[str, recipe_diff.Flat]:
    """Returns the fine-tuning recipes that a cell allows, by name; each has its own train chain."""
    more: dict[str, Any] = {"size": image_size(want)}
    if want.dropout is not None:
        more["dropout"] = want.dropout
    known = CHAINS if want.preprocess or want.recipe == "augreg" else CHAINS[:-1]
    recipes = {
        name: recipe_diff.fine_tuning(
            want.variant, want.dataset, preprocess=name, whole=whole, **more
        )
        for name in known
    }
    if want.variant.startswith("BiT-"):  # B.1.1: the better of both
        recipes[HYPERRULE] = recipe_diff.fine_tuning(want.variant, want.dataset, recipe=HYPERRULE)
    return recipes


def _options(
    run: Run, want: Want, recipe: recipe_diff.Flat, *, by_rule: bool
) -> dict[str, Sequence[Any]]:
    """Returns key -> the values that may have been chosen on held-out images."""
    if by_rule:
        return {"schedule.lr": [recipe["schedule.lr"]]}
    if is_vtab(want) and run.config["recipe.stage"]:
        lengths = [f"{steps} steps" for steps in transfer.VTAB_STEPS]
        return {"schedule.lr": transfer.VTAB_RATES, "length": lengths}
    return {"schedule.lr": want.rates or transfer.table_4()[want.dataset.partition("/")[0]].rates}


def _pretraining(run: Run, want: Want, origin: Origin) -> Placed:
    own = {key.replace(".", "__"): value for key, value in want.settings}
    why_not: list[str] = []
    if not origin.is_of(want):
        why_not = [f"trained on {origin.dataset}"] if origin.dataset != want.upstream else [
            f"{origin.epochs} epochs of recipe={origin.recipe}"
        ]  # fmt: skip
    elif run.results is not None:
        name, differences = lineage.judged(run.config, origin.dataset, origin.epochs, **own)
        recipe = recipe_diff.pre_training(
            want.variant, want.upstream, name, origin.epochs or want.epochs[-1]
        )
        scored = _scored(run, want, recipe) if recipe else []
        why_not = list(lineage.phrases((*differences, *scored)))
        source, known = run.config["data.source"], lineage.PAPERS.get(want.upstream)
        if known and not lineage.is_of_source(source, known):
            why_not.append(f"on {source}")
        if not want.settings and lineage.NOT_BEST in origin.unlike:
            why_not.append(lineage.NOT_BEST)
    why_not += looked(run)
    return Placed(run, "", (), origin, tuple(why_not))


def _foreign(run: Run, want: Want, origin: Origin) -> list[str]:
    """Returns how the data differ from the paper's."""
    source = run.config["data.source"]
    reasons = [] if lineage.tested_on(source)[1] else [f"on {source}"]
    if not origin.is_of(want):
        other = origin.dataset != want.upstream
        reasons.append(
            f"pre-trained on {origin.dataset}" if other
            else f"pre-trained for {origin.epochs} epochs with recipe={origin.recipe}"
        )  # fmt: skip
    return reasons + [f"pre-training with {phrase}" for phrase in origin.unlike]


def _stage(run: Run, want: Want) -> list[str]:
    """Returns violations of the protocol: select on held-out images first, then read test once."""
    stage = run.config["recipe.stage"]
    complete = stage == "final" or (_needs_no_stage(run, want) and not stage)
    reasons = looked(run)
    if stage == "select" and run.metric(want.metric) is not None:
        reasons = reasons or ["looked at test"]
    return reasons + ([] if complete else [SELECT if stage == "select" else "no stage, not final"])


def _needs_no_stage(run: Run, want: Want) -> bool:
    """Returns True if the rate is given, or if what is held out can have chosen it."""
    return is_vtab(want) or want.fixed or _of_the_rest(run, want)


def looked(run: Run) -> list[str]:
    """Returns ["looked at test"] if test images had a part in the choice of a run, else []."""
    recorded = (run.results or {}).get("looked_at_test")
    kept = run.config["checkpoint.keep_best"].startswith("test/")
    return ["looked at test"] if recorded or kept else []


def _read(run: Run, want: Want, recipe: recipe_diff.Flat) -> list[Difference]:
    """Returns how the images trained on and scored differ from the recipe's."""
    stage = run.config["recipe.stage"]
    if stage == "select":  # it reads no test
        recipe = recipe_diff.fine_tuning(want.variant, want.dataset, whole=False, stage="select")
    known = ["data.split"] if stage or _needs_no_stage(run, want) else []
    trained = recipe_diff.unlike(run.config, {key: recipe[key] for key in known})
    if stage == "select" or _of_the_rest(run, want):
        trained += recipe_diff.unlike(run.config, recipe_diff.scored(recipe, "val"))
    return [*trained, *(_scored(run, want, recipe) if stage != "select" else ())]


def _scored(run: Run, want: Want, recipe: recipe_diff.Flat) -> list[Difference]:
    """Returns how the measurement of a cell's metric differs from the recipe's or the set's own.

    A finished run without the metric has no difference: the table says that it was not measured.
    """
    if run.results is not None and run.metric(want.metric) is None:
        return []
    section = want.metric.partition("/")[0]
    if section.startswith("fewshot_"):
        sources = dict(run.config["fewshot.sources"])
        source = sources.get(section.removeprefix("fewshot_"), "(none)")
        found = lineage.tested_on(source) == ("imagenet", True)
        more = [] if found else [("fewshot.sources", source, "tfds:imagenet2012")]
        return [*more, *recipe_diff.unlike(run.config, {key: recipe[key] for key in _FEWSHOT})]
    if one := robustness.sets().get(section):
        return _unlike_set(run, section, one)
    return list(recipe_diff.unlike(run.config, recipe_diff.scored(recipe, section)))


def _unlike_set(run: Run, name: str, wanted: robustness.EvaluationSet) -> list[Difference]:
    """Returns how an evaluation differs from a test set; its files may lie anywhere."""
    settings = run.config
    own = {key: settings.get(f"evals.{name}.{key}", "(none)") for key in _OF_SET}
    found = robustness.name_of(own["source"] or settings["data.source"], own["labels"])
    same = {"source": found == name, "labels": bool(own["labels"]) == bool(wanted.labels)}
    return [
        (f"evals.{name}.{key}", value, getattr(wanted, key) or "(none)")
        for key, value in own.items()
        if not same.get(key, value == getattr(wanted, key))
    ]
