# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Determines the training data of a run and of the weights that it started from.

Start from `Ancestry.origin`; `tested_on` gives the dataset of a fine-tuning run.
"""

import dataclasses
import functools
import os
import re
from pathlib import Path

from vit_jax.config import provenance, schema
from vit_jax.experiments.tables import augreg as augreg_tables
from vit_jax.experiments.tables import recipe_diff, run_results
from vit_jax.experiments.tables.cells import Want
from vit_jax.experiments.tables.run_results import Run
from vit_jax.models import published
from vit_jax.paper import augreg, transfer, vtab

# Every spelling, without "-" and "_" and in lower case -> dataset.
_NAMES = {
    "jft": "jft", "jft300m": "jft", "imagenet21k": "imagenet21k", "i21k": "imagenet21k",
    "imagenet": "imagenet", "imagenet2012": "imagenet", "imagenet1k": "imagenet",
    "i1k": "imagenet", "ilsvrc2012": "imagenet",
}  # fmt: skip
_SOURCES = {"tfds:imagenet2012": "imagenet", "tfds:imagenet21k": "imagenet21k"}
# Keys in which AugReg's 28 settings differ.
OF_GRID = (
    "data.train_ops", "mixup.alpha", "model.dropout", "model.drop_path", "optimizer.weight_decay",
)  # fmt: skip
NOT_BEST = "other settings than the best"  # of AugReg's
# dataset -> the images that the papers train on; other releases of ImageNet-21k have other classes.
PAPERS = {"imagenet": "tfds:imagenet2012", "imagenet21k": "tfds:imagenet21k/fall11"}
_SMALL = tuple(name for name in transfer.DATASETS.values() if name != "vtab")


@dataclasses.dataclass(frozen=True)
class Origin:
    """A description of a pre-training.

    Attributes:
      dataset: jft, imagenet21k, imagenet; otherwise a name for the training data.
      recipe: paper, bit, augreg, masked or mixer; empty: unknown, so the paper's is assumed.
      epochs: number of epochs; 0: unknown.
      unlike: differences from the recipe's settings, a phrase each.
      choice: what all seeds of a cell have in common: the name of published weights, the settings
        of AugReg, or that they are of other weights; a phrase each.
      weights: the name of published weights, the folder of a run, or the file; empty for a
        pre-training itself.
    """

    dataset: str
    recipe: str = ""
    epochs: int = 0
    unlike: tuple[str, ...] = ()
    choice: tuple[str, ...] = ()
    weights: str = ""

    def is_of(self, want: Want) -> bool:
        """Returns True if a cell wants this pre-training, apart from its settings."""
        return (
            self.dataset == want.upstream
            and (self.recipe or "paper") == want.recipe
            and (not want.epochs or not self.epochs or self.epochs in want.epochs)
        )


class Ancestry:
    """Finds the origin of runs; `runs` are the runs in the folder `root`."""

    def __init__(self, root: Path | None, runs: list[Run]):
        self._root = root
        self._known = {_key(run.folder): run for run in runs}
        self._origins: dict[tuple[Path, str], Origin] = {}

    def origin(self, run: Run) -> Origin:
        """Returns the training data of a run, or of the weights that it started from."""
        if not run.fine_tunes:
            return self._pretraining(run)
        init = run.config["init"]
        if not init:
            return Origin("nothing (from scratch)")
        upstream: str = run.config["recipe.upstream"]
        upstream = _NAMES.get(_plain(upstream), upstream)
        parent = self._run(init)
        if parent is not None:
            if parent.fine_tunes:
                return Origin(f"{parent.config['data.source']} (itself fine-tuned)")
            made = _at_step(self._pretraining(parent, upstream), parent, init)
            return dataclasses.replace(made, weights=_key(parent.folder))
        recorded = provenance.read(run.folder).init_published
        if recorded == provenance.OTHER:
            return Origin(f"{init} (has the name of a published file, but another SHA-256)")
        if known := published_origin(recorded or init):
            name = Path(recorded or init).name
            return dataclasses.replace(known, choice=(f"weights {name}",), weights=name)
        if not upstream:
            return Origin(f"{init} (recipe.upstream does not say)")
        # No file of JFT is published, so that its name could tell nothing.
        unlike = () if upstream == "jft" else ("an unknown recipe",)
        return Origin(upstream, unlike=unlike, choice=(f"weights {init}",), weights=init)

    def _pretraining(self, run: Run, upstream: str = "") -> Origin:
        key = run.folder, upstream
        if key not in self._origins:
            self._origins[key] = pretraining_origin(run, upstream)
        return self._origins[key]

    def _run(self, init: str) -> Run | None:
        """Returns the run that `init` names; None if it names a file or nothing that exists."""
        name = re.sub(r"@(best|\d+)$", "", init).rstrip("/")
        if name in self._known:
            return self._known[name]
        for base in (Path(), self._root or Path()):
            folder = base / os.path.expanduser(name)
            if _key(folder) in self._known:
                return self._known[_key(folder)]
            if (folder / run_results.CONFIG).is_file():
                try:
                    return run_results.open_run(folder)
                except run_results.Unreadable:
                    return None
        return None


def _key(folder: Path) -> str:
    return str(folder.resolve())


def _at_step(origin: Origin, run: Run, init: str) -> Origin:
    """Returns the origin of the step of a run that `init` names; the papers take the last one."""
    step = re.search(r"@(best|\d+)$", init)
    if step is None or step[1] == str((run.results or {}).get("step")):
        return origin
    return dataclasses.replace(
        origin, unlike=(*origin.unlike, f"init at {step[0]}, not at its end")
    )


def pretraining_origin(run: Run, upstream: str = "") -> Origin:
    """Returns the origin that a pre-training run itself represents.

    Args:
      run: the run.
      upstream: dataset named by `recipe.upstream`, used if the source does not tell.
    """
    source = run.config["data.source"]
    upstream = upstream or _NAMES.get(_plain(run.config["recipe.upstream"]), "")
    dataset = next((name for known, name in _SOURCES.items() if is_of_source(source, known)), "")
    if not dataset:
        dataset = source if source.startswith("synthetic:") else upstream or source
    if dataset not in _NAMES.values():
        return Origin(dataset)
    epochs = _epochs(run.config["length"])
    name, differences = judged(run.config, dataset, epochs)
    unlike = [] if run.results is not None else ["it is not finished"]
    if dataset in PAPERS and not is_of_source(source, PAPERS[dataset]):
        differences += (("data.source", source, PAPERS[dataset]),)
    if name == "augreg" and not _is_best(run.config, dataset, epochs):
        unlike.append(NOT_BEST)
    settings = [f"{key}={run.config[key]}" for key in OF_GRID if name == "augreg"]
    choice = tuple(settings) or ("weights of a run",)
    return Origin(dataset, name, epochs, (*unlike, *phrases(differences)), choice)


def judged(
    config: recipe_diff.Flat, dataset: str, epochs: int, **own: object
) -> tuple[str, tuple[recipe_diff.Difference, ...]]:
    """Returns (the pre-training recipe closest to a run, the differences from it).

    Args:
      config: the configuration of the run.
      dataset: jft, imagenet21k or imagenet.
      epochs: number of epochs; 0: the length has another unit.
      **own: see `recipe_diff.differences`.
    """
    by_recipe = {}
    masked = config["recipe.name"] == "masked"
    for name in ("masked",) if masked else ("paper", "bit", "augreg"):
        for length in (epochs, 90, 300) if not epochs else (epochs,):
            recipe = recipe_diff.pre_training(config["model.variant"], dataset, name, length)
            if recipe is not None:
                unlike = recipe_diff.differences(config, recipe, **own)
                free = _of_grid(config, dataset) if name == "augreg" else ()
                by_recipe.setdefault(name, tuple(d for d in unlike if d[0] not in free))
    if not by_recipe:
        return "", (("model.variant", config["model.variant"], "one that a recipe has"),)
    best = min(by_recipe, key=lambda name: len(by_recipe[name]))
    return best, by_recipe[best]


def _of_grid(config: recipe_diff.Flat, dataset: str) -> set[str]:
    """Returns the keys that have values of AugReg's 28 settings; a checkpoint is the best of these.

    The chain and mixup are those of one level, and dropout and stochastic depth have one rate.
    """
    grid, decay = augreg.pretraining(dataset), OF_GRID[-1]
    free = {decay} if config[decay] in grid.weight_decays else set[str]()
    for level in augreg.levels():
        for rate in grid.rates:
            keys = augreg_tables.settings(level, rate)
            for pair in (keys[:2], keys[2:]):
                if all(config[key] == value for key, value in pair):
                    free |= {key for key, _ in pair}
    return free


def _is_best(config: recipe_diff.Flat, dataset: str, epochs: int) -> bool:
    """Returns True for a pre-training of AugReg with settings that may be the best."""
    return any(
        all(config[key] == value for key, value in augreg_tables.settings(level, rate))
        and config[OF_GRID[-1]] == decay
        for level, rate, decay in augreg.best(config["model.variant"], dataset, epochs)
    )


def phrases(differences: tuple[recipe_diff.Difference, ...]) -> tuple[str, ...]:
    """Formats each difference as `length: 100 steps, not 10000 steps`."""
    return tuple(f"{key}: {own}, not {wanted}" for key, own, wanted in differences)


def _epochs(length: str) -> int:
    duration = schema.parse_duration("length", length)
    return int(duration.amount) if duration.unit == "epochs" else 0


def published_origin(init: str) -> Origin | None:
    """Returns the origin of a published file, by its name or its place; None for other files."""
    if init.startswith("hf:"):
        return _of_hub(init)
    if not init.endswith(".npz"):
        return None
    short = "/".join(Path(init).parts[-2:])
    if re.fullmatch(r"imagenet21k/(ViT|R26\+ViT|R50\+ViT)-\w+\.npz", short):
        return Origin("imagenet21k", "paper", 90) if published.url(short) else None
    match = re.fullmatch(r"(imagenet1k|imagenet21k)/Mixer-\w+\.npz", short)
    if match:
        return Origin(_NAMES[match[1]], "mixer") if published.url(short) else None
    stem = Path(init).name
    match = re.fullmatch(r"\w+-(i1k|i21k)-(\d+)ep-[^/]+\.npz", stem)
    if match and published.url(f"augreg/{stem}"):
        if "--" in stem:
            return Origin(f"{stem} (itself fine-tuned)")
        other = () if augreg.best_column(stem) else (NOT_BEST,)
        return Origin(_NAMES[match[1]], "augreg", int(match[2]), other)
    match = re.fullmatch(r"BiT-([SM])-R\d+x\d+\.npz", stem)
    if match and published.url(stem):
        return Origin({"S": "imagenet", "M": "imagenet21k"}[match[1]], "bit", 90)
    return None


def _of_hub(init: str) -> Origin | None:
    """Returns the origin of weights that Google and timm converted from the published files."""
    if re.fullmatch(r"hf:google/vit-\w+-patch\d+-\d+-in21k|hf:timm/vit_\w+\.orig_in21k", init):
        return Origin("imagenet21k", "paper", 90)
    if re.fullmatch(r"hf:timm/vit_\w+\.augreg_in21k", init):
        return Origin("imagenet21k", "augreg", 300, ("settings that its name does not tell",))
    return None


@functools.cache
def tested_on(source: str) -> tuple[str, bool]:
    """Returns (dataset of configs/transfer.py, False for a stand-in) for a source.

    The dataset is empty if no table has such a column. Stand-ins are recognised by name.
    """
    for name in _SMALL:
        if is_of_source(source, recipe_diff.fine_tuning("B/16", name)["data.source"]):
            return name, True
    slugs = [task.slug for task in vtab.tasks()]
    kind, _, rest = source.partition(":")
    if kind == "vtab" and rest in slugs:
        return f"vtab/{rest}", True
    if kind == "synthetic" and rest.removeprefix("vtab/") in slugs and rest.startswith("vtab/"):
        return rest, False
    plain = _plain(rest)
    if "21k" in plain:
        return "", False
    return max((name for name in _SMALL if name in plain), key=len, default=""), False


def _plain(text: str) -> str:
    return re.sub(r"[-_ ]", "", text).lower()


def is_of_source(source: str, known: str) -> bool:
    """Returns True if a source is a known one, with or without a version or a configuration."""
    return source == known or source.startswith((f"{known}:", f"{known}/"))
