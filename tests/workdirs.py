# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Workdirs of runs that never were, with whatever a report is made of. Start from `written`."""

import json
from pathlib import Path

from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.runtime import goodput
from vit_jax.storage.jsonl import METRICS_FILE

QUICKSTART = str(Path(__file__).resolve().parent.parent / "configs" / "quickstart.py")
SECS = 4.0  # of 100 steps of 32 images


def rows(steps=1000, every=100, loss=2.0, top1=0.9):
    """Rows of a run that gets better: 800 images a second, 1 % waiting, val twice, then test."""
    found = []
    for step in (1, *range(every, steps + 1, every)):
        found.append({
            "step": step, "train/loss": loss * (1 - 0.5 * step / steps), "train/top1": 0.5,
            "train/lr": 1e-3 * (1 - step / steps), "perf/img_per_sec": 800.0,
            "perf/input_wait": 0.01,
        })  # fmt: skip
    for step in (steps // 2, steps):
        measured = {"val/loss": loss / 3, "val/top1": top1 * step / steps, "val/top5": 0.95}
        found.append({"step": step, **measured, "val/examples": 152, "perf/eval_secs": 1.5})
    last = {"test/loss": loss / 2, "test/top1": top1, "test/top5": 0.97, "test/examples": 365}
    found.append({"step": steps, **last, "fewshot_pets/5shot": 0.4, "fewshot_pets/examples": 30})
    return found


def turns(steps=1000, begin=1.8e9):
    """Turns of a life of 60 s: 10 until the first step, 48 productive ones until the last save."""
    events = [
        ("start", 0, 0.0), ("initialised", 0, 6.0), ("first_step", 1, 10.0), ("save", steps, 58.0),
        ("exit", steps, 60.0),
    ]  # fmt: skip
    more = {"start": {"restarts": 0}, "exit": {"code": 0}}
    return [
        {"step": step, "event": event, "time": begin + at, **more.get(event, {})}
        for event, step, at in events
    ]


def written(folder, *overrides, metrics=None, life=None, done=True, recipe=True):
    """A workdir of the quickstart with overrides, by default of a run that is done."""
    folder.mkdir(parents=True)
    config = config_lib.load(QUICKSTART, overrides)
    (folder / "config.yaml").write_text(config_lib.to_yaml(config))
    lines(folder / METRICS_FILE, rows() if metrics is None else metrics)
    lines(folder / goodput.FILE, turns() if life is None else life)
    if recipe:
        provenance.write(
            folder, provenance.recipe(QUICKSTART, overrides), "1 x toy (toy), 1 process"
        )
    if done:
        (folder / "results.json").write_text("{}")
    return folder


def lines(path, found):
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
