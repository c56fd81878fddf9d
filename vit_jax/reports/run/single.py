# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes the page of one run.

Start from `page`.
"""

import shlex
import time
from typing import Any

from vit_jax import console
from vit_jax.config import images, provenance, sections, validation
from vit_jax.data.pipeline import skipped_images
from vit_jax.reports import pages, summary
from vit_jax.reports.run import curves, time_accounting
from vit_jax.reports.run.history import DONE, History
from vit_jax.reports.run.pictures import Pictures
from vit_jax.runtime.recovery import PARTS

WAITING = 0.02  # share of waiting for images above which the page gives advice
_SHOWN = 20  # skipped images that are listed by name
STYLES = {DONE: "good", "running": "some", "stopped": "some", "not done": "some"}


def page(run: History, pictures: Pictures) -> str:
    """Returns the document, in one file.

    Args:
      run: history from `history.read`.
      pictures: pictures from `pictures.draw`.
    """
    reference, differences = run.compared
    skipped = sorted(skipped_images.read_skipped(run.workdir))
    more = [("…", f"{len(skipped) - _SHOWN:,} more")] if len(skipped) > _SHOWN else []
    waits = run.input_wait is not None and run.input_wait > WAITING
    return pages.render(
        "run.html",
        f"Run {run.name}",
        state=state(run),
        style=STYLES.get(run.state, "bad"),
        about=_facts(run),
        results=summary.tables(run.evaluations),
        verdict=verdict(run),
        collapse=summary.collapse([(row["step"], row) for row in run.rows], max(run.step, 1)),
        looked_at_test=validation.uses_test_data(run.config),
        curves=curves.run_charts(run),
        waiting=f"{run.input_wait:.1%}" if waits else "",
        tolerated=f"{WAITING:.0%}",
        data=run.config.data,
        time=_time(run),
        restarts=_restarts(run),
        restart=_last_restart(run),
        reference=reference,
        recorded=run.origin.recipe is not None,
        differences=[(key, text(old), text(new)) for key, old, new in differences],
        sheet=pictures.sheet,
        skipped=len(skipped),
        skipped_rows=[*skipped[:_SHOWN], *more],
        figures=pictures.figures,
        missing_images=[text for text in pictures.missing if "training images" in text],
        missing_figures=[text for text in pictures.missing if "training images" not in text],
        versions=run.origin.versions,
    )


def state(run: History) -> str:
    """Returns the state of the run, in a sentence."""
    last = f"its last row is of step {run.step:,}."
    sentences = {
        DONE: "This run is done.",
        "running": f"This run is in progress; {last}",
        "stopped": f"This run was stopped and saved at step {_saved(run):,}; the same command "
        "continues it.",
        "dead": f"This run ended without recording why; {last} The same command continues it from "
        "its last checkpoint.",
        "not done": f"This run has no results yet; {last}",
    }
    return sentences.get(run.state, f"This run failed ({run.state}); {last}")


def _saved(run: History) -> int:
    """Returns the step of the last save, which rarely has a row."""
    return next((turn["step"] for turn in reversed(run.turns) if turn["event"] == "save"), run.step)


def verdict(run: History) -> str:
    """Compares measured with expected results, in a line; "" if either is missing."""
    recipe = run.origin.recipe
    changed = provenance.changed(recipe, run.config) if recipe else []
    return summary.verdict(run.evaluations, run.config.expected, changed)


def _pixels(data: sections.Data) -> str:
    shown = images.of(data)
    more = f" x {shown.channels} channels" if shown.channels != 3 else ""
    return f"{images.text(shown.size)}{more}"


def _facts(run: History) -> dict[str, str]:
    config, recipe = run.config, run.origin.recipe
    made_from = ""
    if recipe is not None:
        made_from = " ".join([recipe.config, *map(shlex.quote, recipe.overrides)])
    return {
        "recipe": made_from or config.recipe.name or "not known: it was made from a config.yaml",
        "branch": f"of {config.branch}: the curves up to step {run.first:,} are those of that run"
        if config.branch
        else "",
        "model": _model_line(config),
        "data": f"{config.data.source}, {config.data.split}; {_pixels(config.data)} pixels; "
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


def _model_line(config: sections.Config) -> str:
    model = config.model
    sizes = {"width": model.width, "depth": model.depth, "mlp": model.mlp, "heads": model.heads}
    own = [f"{name} {size}" for name, size in sizes.items() if size]
    line = ", ".join([model.variant, *own, f"pool {model.pool}"])
    return f"{line}; from {config.init}" if config.init else line


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


def _time(run: History) -> list[tuple[str, str, str, str]]:
    """Returns the rows of the table of time; [] if the time is not known."""
    if run.spent is None:
        return []
    evaluating = sum(secs for step, secs in run.series("perf/eval_secs") if step > run.first)
    steps = min(run.step_secs, run.spent.productive)
    evaluating = min(evaluating, run.spent.productive - steps)
    rest = run.spent.productive - steps - evaluating
    parts = [
        ("steps", steps, "training, including waiting for images"),
        ("evaluation", evaluating, "including its compilation"),
        ("saving and the rest", rest, "time that neither steps nor evaluation took"),
        ("start-up", run.spent.startup, "until the end of the first step: reading, compiling"),
        ("lost", run.spent.lost, "work after the checkpoint that was resumed"),
        ("down", run.spent.down, "between an end and the next start"),
        ("all", run.spent.elapsed, ""),
    ]
    whole = run.spent.elapsed or 1.0
    return [
        (name, console.duration(secs), f"{secs / whole:.1%}", note) for name, secs, note in parts
    ]


def _restarts(run: History) -> list[str]:
    """Returns the seconds of each restart, from the end before it to its first new step."""
    return [f"{one.secs:.1f}" for one in time_accounting.restarts(run.turns) if one.again]


def _last_restart(run: History) -> list[tuple[str, str, str]]:
    """Returns (part, seconds, bucket) of the last restart."""
    again = [one for one in time_accounting.restarts(run.turns) if one.again]
    parts = again[-1].parts.items() if again else ()
    return [(part.replace("_", " "), f"{secs:.2f}", PARTS[part]) for part, secs in parts]


def text(value: Any) -> str:
    """Formats a value of the configuration; None is a missing key."""
    if value is None:
        return "–"
    return value if isinstance(value, str) and value else repr(value)
