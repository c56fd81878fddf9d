# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes the page of one run.

Start from `page`.
"""

import shlex
import time
from collections.abc import Mapping
from typing import Any

from vit_jax import console
from vit_jax.config import validation
from vit_jax.config.load import ConfigDict
from vit_jax.data.pipeline import skipped_images
from vit_jax.reports import pages, summary
from vit_jax.reports.run import curves
from vit_jax.reports.run.history import DONE, History
from vit_jax.reports.run.pictures import Pictures

WAITING = 0.02  # share of waiting for images above which the page gives advice
_NO_TURNS = "Not known: the workdir has no whole goodput.jsonl."
_SHOWN = 20  # skipped images that are listed by name
STYLES = {DONE: "good", "running": "some", "stopped": "some", "not done": "some"}


def page(run: History, drawn: Pictures) -> str:
    """Returns the document, in one file.

    Args:
      run: history from `history.read`.
      drawn: pictures from `pictures.of_run`.
    """
    return pages.page(
        f"Run {run.name}",
        [
            pages.paragraph(state(run), STYLES.get(run.state, "bad")),
            pages.facts(_facts(run)),
            *_results(run),
            pages.heading("Curves"),
            pages.row(curves.of_one(run)),
            *_waiting(run),
            *_time(run),
            *_differences(run),
            *_images(run, drawn),
            *_model(drawn),
            *_versions(run),
        ],
    )


def state(run: History) -> str:
    """Returns the state of the run, in a sentence."""
    said = {
        DONE: "This run is done.",
        "running": f"This run goes on; its last row is of step {run.step:,}.",
        "stopped": f"This run was stopped and saved at step {_saved(run):,}; the same command "
        "continues it.",
        "dead": f"This run has ended without a word; its last row is of step {run.step:,}. The "
        "same command continues it from its last checkpoint.",
        "not done": f"This run has no results yet; its last row is of step {run.step:,}.",
    }
    failed = f"This run failed ({run.state}); its last row is of step {run.step:,}."
    return said.get(run.state, failed)


def _saved(run: History) -> int:
    """Returns the step of the last save, which rarely has a row."""
    return next((turn["step"] for turn in reversed(run.turns) if turn["event"] == "save"), run.step)


def verdict(run: History) -> str:
    """Compares measured with expected results, in a line; "" if either is missing."""
    return summary.verdict(run.evaluations, run.config.expected.to_dict())


def _facts(run: History) -> dict[str, str]:
    config, recipe = run.config, run.origin.recipe
    made_from = ""
    if recipe is not None:
        made_from = " ".join([recipe.config, *map(shlex.quote, recipe.overrides)])
    return {
        "recipe": made_from or config.recipe.name or "not known: it was made from a config.yaml",
        "model": _model_line(config),
        "data": f"{config.data.source}, {config.data.split}; {config.data.image_size} pixels; "
        f"{config.data.train_ops}",
        "length": f"{config.length} in batches of {config.batch_size:,}; seed {config.seed}",
        "optimizer": f"{config.optimizer.name}, {config.schedule.name} from "
        f"{config.schedule.lr:g}, weight decay {config.optimizer.weight_decay:g}",
        "hardware": run.origin.devices or "not recorded",
        "started": _clock(run, first=True),
        "ended": _clock(run, first=False) if run.state != "running" else "",
        "duration": _duration(run),
        "throughput": _throughput(run),
        "workdir": str(run.workdir),
    }


def _model_line(config: ConfigDict) -> str:
    sizes = ("width", "depth", "mlp", "heads")
    own = [f"{key} {config.model[key]}" for key in sizes if config.model[key]]
    said = ", ".join([config.model.variant, *own, f"pool {config.model.pool}"])
    return f"{said}; from {config.init}" if config.init else said


def _clock(run: History, *, first: bool) -> str:
    if not run.turns:
        return ""
    at = time.localtime(run.turns[0 if first else -1]["time"])
    return time.strftime("%Y-%m-%d %H:%M:%S", at)


def _duration(run: History) -> str:
    if run.spent is None:
        return ""
    again = f", with {run.spent.restarts} restarts" if run.spent.restarts else ""
    return console.duration(run.spent.elapsed) + again


def _throughput(run: History) -> str:
    if run.img_per_sec is None:
        return ""
    mfu = run.series("perf/mfu")
    used = f", MFU {mfu[-1][1]:.1%}" if mfu else ""
    return f"{run.img_per_sec:,.0f} images a second{used}, waiting for images {run.input_wait:.1%}"


# ---------------------------------------------------------------- results


def _results(run: History) -> list[str]:
    """Returns tables of the last evaluations: splits, then few-shot tasks."""
    found = run.evaluations
    splits = {name: m for name, m in found.items() if "loss" in m}
    few = {name: m for name, m in found.items() if name not in splits}
    body = [pages.heading("Results")]
    expected = verdict(run)
    if expected:
        within = "within the tolerance" in expected
        body.append(pages.paragraph(expected + ".", "good" if within else "bad"))
    body += [_measured("split", splits), _measured("few-shot", few)]
    if not found:
        body.append(pages.paragraph("Nothing has been evaluated yet."))
    if validation.uses_test_data(run.config):
        said = "Something was selected by what this run has measured on test."
        body.append(pages.paragraph(said, "some"))
    return body


_ORDER = ("top1", "top5", "loss", "mce", "examples", "step")
_TITLES = {"top1": "top-1", "top5": "top-5", "mce": "mCE"}
_COUNTS = ("examples", "step")


def _measured(title: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a table of evaluations, with a column per metric."""
    keys = list(dict.fromkeys(key for m in found.values() for key in m))
    keys.sort(key=lambda key: _ORDER.index(key) if key in _ORDER else -1)
    rows = [(name, *(written(key, m.get(key)) for key in keys)) for name, m in found.items()]
    header = (title, *(_TITLES.get(key, key) for key in keys))
    return pages.table(header, rows, numbers=range(1, len(header))) if rows else ""


def written(metric: str, value: float | None) -> str:
    """Formats a value of a metric: a share in percent, a count or a loss."""
    if value is None:
        return ""
    if metric in _COUNTS:
        return f"{value:,.0f}"
    return f"{value:.4f}" if metric.endswith("loss") else f"{value:.2%}"


# ---------------------------------------------------------------- time


def _waiting(run: History) -> list[str]:
    if run.input_wait is None or run.input_wait <= WAITING:
        return []
    return [
        pages.paragraph(
            f"The devices waited for images {run.input_wait:.1%} of the time, which is more than "
            f"{WAITING:.0%}. What helps, in this order: data.workers, one for each core (now "
            f"{run.config.data.workers}); data.cache=raw or decoded (now "
            f"{run.config.data.cache}), where the images fit into memory; images that are prepared "
            "in their size and sharded (`vit_jax data prepare`); a cheaper data.train_ops. "
            "`vit_jax data bench` tells which part is slow; see docs/data.md.",
            "some",
        )
    ]


def _time(run: History) -> list[str]:
    heading = pages.heading("Where the time went")
    if run.spent is None:
        return [heading, pages.paragraph(_NO_TURNS, "quiet")]
    evaluating = sum(secs for _, secs in run.series("perf/eval_secs"))
    steps = min(run.step_secs, run.spent.productive)
    evaluating = min(evaluating, run.spent.productive - steps)
    parts = {
        "steps": (steps, "training, with waiting for images"),
        "evaluation": (evaluating, "with compiling it"),
        "saving and the rest": (
            run.spent.productive - steps - evaluating, "what steps and evaluation leave over"
        ),
        "start-up": (run.spent.startup, "until the first step is done: reading, compiling"),
        "lost": (run.spent.lost, "after the last checkpoint that was gone on from"),
        "down": (run.spent.down, "between an end and the next start"),
    }  # fmt: skip
    whole = run.spent.elapsed or 1.0
    rows = [
        (name, console.duration(secs), f"{secs / whole:.1%}", said)
        for name, (secs, said) in parts.items()
    ]
    rows.append(("all", console.duration(run.spent.elapsed), "100.0%", ""))
    return [heading, pages.table(("", "time", "share", ""), rows, numbers=(1, 2))]


# ---------------------------------------------------------------- the run itself


def _differences(run: History) -> list[str]:
    what, found = run.compared
    rows = [(key, text(old), text(new)) for key, old, new in found]
    body = [pages.heading(f"Differences from {what}")]
    if run.origin.recipe is None:
        said = "Which recipe this run comes from is not recorded; these are all keys that were set."
        body.append(pages.paragraph(said, "quiet"))
    if not rows:
        return [*body, pages.paragraph("None.")]
    return [*body, pages.table(("key", what, "this run"), rows, codes=(0, 1, 2))]


def text(value: Any) -> str:
    """Formats a value of the configuration; None is a missing key."""
    if value is None:
        return "–"
    return value if isinstance(value, str) and value else repr(value)


def _images(run: History, drawn: Pictures) -> list[str]:
    body = [pages.heading("Training images")]
    if drawn.sheet is not None:
        said = "The first examples of training as the model gets them, with their classes."
        body.append(pages.image(drawn.sheet, said, wide=True))
    body += [pages.paragraph(t, "quiet") for t in drawn.missing if "training images" in t]
    skipped = sorted(skipped_images.read_skipped(run.workdir))
    if skipped:
        body.append(pages.paragraph(f"{len(skipped):,} images were skipped.", "some"))
        more = [("…", f"{len(skipped) - _SHOWN:,} more")] if len(skipped) > _SHOWN else []
        body.append(pages.table(("file", "reason"), [*skipped[:_SHOWN], *more], codes=(0,)))
    return body


def _model(drawn: Pictures) -> list[str]:
    body = [pages.heading("Inside the model")]
    body += [pages.image(figure.png, figure.caption) for figure in drawn.figures]
    said = [t for t in drawn.missing if "training images" not in t]
    return [*body, *(pages.paragraph(text, "quiet") for text in said)]


def _versions(run: History) -> list[str]:
    body = [pages.heading("Versions")]
    if not run.origin.versions:
        return [*body, pages.paragraph("Not recorded by this run.", "quiet")]
    return [*body, pages.facts(run.origin.versions)]
