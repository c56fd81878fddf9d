# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lists the runs that a table's missing public cells need, as commands. Start from `jobs`.

Hours are computed from FLOPs, without compiling anything; `vit_jax plan` compiles.
"""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from vit_jax.config import recipes
from vit_jax.experiments.tables import augreg as tables_of_augreg
from vit_jax.experiments.tables import compute
from vit_jax.experiments.tables.cells import Want
from vit_jax.experiments.tables.filling import Report
from vit_jax.experiments.tables.lineage import Ancestry, published_origin
from vit_jax.experiments.tables.run_matching import image_size
from vit_jax.experiments.tables.run_results import Run
from vit_jax.models import published
from vit_jax.paper import augreg, transfer

SEEDS = 3  # number of seeds in the final stage
RELEASE = "fall11"  # the papers' release of ImageNet-21k


@dataclasses.dataclass
class Job:
    """A command.

    Attributes:
      command: in the syntax of a shell; commands that it depends on come before it.
      cells: number of missing cells that need it.
      chip_hours: hours of TPUv3 chips, at `compute.utilisation`.
    """

    command: str
    cells: int
    chip_hours: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The commands to run.

    Attributes:
      jobs: in an order that respects dependencies.
    """

    jobs: tuple[Job, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns the sum, and the meaning of the hours."""
        hours = sum(job.chip_hours for job in self.jobs)
        return (
            f"{len(self.jobs)} commands, {hours:,.0f} chip-hours of TPUv3.",
            f"Hours are FLOPs at {compute.utilisation():.0%} of a chip's peak, the share that "
            "Table 2 implies for H/14. They exclude evaluation, and nothing was compiled (`vit_jax "
            f"plan` compiles). A sweep counts as every rate once and {SEEDS} final runs.",
        )


def jobs(report: Report, root: Path | None) -> Plan:
    """Returns the commands that fill the missing cells.

    Args:
      report: from `filling.fill`.
      root: folder of the existing runs, and of new ones; None: `runs`.
    """
    maker = _Maker(root or Path("runs"), report.runs)
    for filled in report.cells:
        for want in filled.lacking if filled.cell.kind == "public" else ():
            maker.add(want)
    return Plan(tuple(maker.jobs.values()))


class _Maker:
    def __init__(self, root: Path, runs: Sequence[Run]):
        self.jobs: dict[str, Job] = {}
        self._root, self._runs = root, runs
        self._origins = Ancestry(root, list(runs))

    def add(self, want: Want) -> None:
        """Adds the commands of a want, each once, after the commands that they depend on."""
        if not want.dataset:
            self._pretrain(want)
            return
        args = {"model": want.variant, "dataset": want.dataset, "init": self._init(want)}
        if want.size:
            args["size"] = str(want.size)
        if want.preprocess:
            args["preprocess"] = want.preprocess
        if want.dropout is not None:
            args["dropout"] = str(want.dropout)
        if want.ema:
            args["polyak"] = "true"
        if want.dataset == "imagenet":
            args["also"] = "real"  # ImageNet ReaL needs no run of its own
        row = transfer.table_4()[want.dataset.partition("/")[0]]
        forward = compute.forward_flops(want.variant, image_size(want))
        once = 3.0 * forward * row.steps * row.batch_size
        name = f"transfer-{_upstream(want)}-{want.variant}-{want.dataset}"
        name += f"-{want.size}" * bool(want.size)
        if want.fixed:
            args["lr"] = str(want.rates[0])
            for seed in range(SEEDS):
                each = f"{name}-{want.dropout}-seed{seed}"
                self._job("train", "transfer", args, each, once, f"--config.seed={seed}")
            return
        if want.rates:
            args["rates"] = "+".join(map(str, want.rates))
        rates = want.rates or row.rates
        select = len(rates) if row.held_out_percent and len(rates) > 1 else 0
        self._job("sweep", "transfer", args, name, once * (select + SEEDS))

    def _init(self, want: Want) -> str:
        """Returns weights to start from: published, of an existing run, or of an added run."""
        files = published.CHECKPOINTS.get(want.variant, ())
        if want.recipe == "augreg":  # also those that are not recommended to everybody
            best = augreg.best_file(want.variant, want.upstream, want.epochs[-1])
            files += (f"augreg/{best}.npz",)
        for file in files:
            origin = published_origin(file)
            if origin is not None and origin.is_of(want):
                return file
        for run in self._runs:
            if not run.fine_tunes and run.config["model.variant"] == want.variant:
                origin = self._origins.origin(run)
                if origin.is_of(want) and not origin.unlike:
                    return str(run.folder)
        return self._pretrain(want)

    def _pretrain(self, want: Want) -> str:
        """Adds a pre-training; returns its workdir."""
        args = {"model": want.variant, "dataset": want.upstream, "epochs": str(want.epochs[-1])}
        if want.recipe != "paper":
            args["recipe"] = want.recipe
        if want.recipe == "augreg":
            best = augreg.best(want.variant, want.upstream, want.epochs[-1])[0]
            level, rate, *decay = _level(want) or best
            args |= {"aug": level, "reg": str(rate)}
            if decay:
                args["wd"] = str(decay[0])
        if want.upstream == "imagenet21k":
            args["release"] = RELEASE
        flops = compute.exaflops(want.variant, want.epochs[-1], want.upstream) * 1e18
        name = f"pretrain-{_upstream(want)}-{want.variant}"
        name += "".join(f"-{part}" for part in _level(want))
        return self._job("train", "pretrain", args, name, flops)

    def _job(
        self, verb: str, recipe: str, args: dict[str, str], name: str, flops: float, *overrides: str
    ) -> str:
        workdir = str(self._root / re.sub(r"[^\w.+-]", "-", name))
        told = [key for key, value in args.items() if "," in value]  # `init` may have any name
        spec = ",".join(f"{key}={value}" for key, value in args.items() if key not in told)
        more = [f"--config.{key}={args[key]}" for key in told]
        command = [
            "vit_jax",
            verb,
            f"--config={recipes.OWN}{recipe}:{spec}",
            f"--workdir={workdir}",
        ]
        text = shlex.join([*command, *more, *overrides])
        job = self.jobs.setdefault(text, Job(text, 0, compute.chip_hours(flops)))
        job.cells += 1
        return workdir


def _level(want: Want) -> tuple[str, float] | tuple[()]:
    """Returns the level and the rate of AugReg that a pre-training wants; () for the best."""
    for level in augreg.levels():
        for rate in augreg.pretraining(want.upstream).rates if want.recipe == "augreg" else ():
            if tables_of_augreg.settings(level, rate) == want.settings:
                return level, rate
    return ()


def _upstream(want: Want) -> str:
    recipe = "" if want.recipe == "paper" else "-".join([want.recipe, *map(str, want.epochs), ""])
    return f"{recipe}{want.upstream}"
