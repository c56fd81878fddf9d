# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The test sets around ImageNet in one table: a row for each evaluated file or run.

The files come from `vit_jax evaluate`, the runs from configs/transfer.py with `also`. The rows of
the ViT paper stand beside them (Table 5, section D.9). Start from `read`, then `render`.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_jax.config import provenance
from vit_jax.experiments.tables import rendering, run_matching, run_results
from vit_jax.paper import results, robustness
from vit_jax.reports import pages
from vit_jax.storage import files as storage
from vit_jax.weights import image_chains

NAME = "robustness"
EVALUATION = "evaluation.json"  # of `vit_jax evaluate`
_TITLE = "Test sets of ImageNet (top-1 in %; ImageNet-C: mCE in %)"
_COLUMNS = {
    "imagenet": "ImageNet", "real": "ReaL", "v2": "V2", "v2_threshold": "V2 threshold",
    "v2_topimages": "V2 top", "a": "A", "r": "R", "sketch": "Sketch", "c": "C (mCE)",
    "objectnet": "ObjectNet",
}  # fmt: skip
# What `vit_jax evaluate` may change about weights -> its name in a row.
_CHANGED = {"merge": "{} tokens merged", "patch": "patches of {} pixels", "pack": "packed to {}"}
_Key = tuple[str, str, str]  # name, pixels, SHA-256 of a file


@dataclasses.dataclass(frozen=True)
class Row:
    """The measured values of one file or run.

    Attributes:
      name: the published name, the file or the workdir.
      pixels: side of the images, or rows x columns.
      values: test set, a key of `_COLUMNS` -> percent.
    """

    name: str
    pixels: str
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Report:
    """Holds the rows, and sentences on what does not count."""

    rows: tuple[Row, ...]
    remarks: tuple[str, ...]


def read(root: Path) -> Report:
    """Returns the evaluations and runs below a folder, and the paper's rows.

    Raises:
      BadInput: the folder does not exist, or a result is not a share.
    """
    runs, broken = run_results.read(root)
    rows: dict[_Key, dict[str, float]] = {}
    remarks = [f"not readable: {text}" for text in broken]
    for folder, _, files in sorted(storage.walk(root)):
        if EVALUATION in files:
            remarks += _add_evaluation(rows, Path(folder) / EVALUATION)
    for run in runs:
        if run.results is not None and run.config["recipe.stage"] != "select":
            remarks += _add_run(rows, run)
    for key in [key for key in rows if not key[2]]:  # written before files were told apart
        known = [other for other in rows if other[:2] == key[:2] and other[2]]
        if len(known) == 1 and all(
            abs(rows[key][test] - value) < 1e-9
            for test, value in rows[known[0]].items()
            if test in rows[key]
        ):
            rows[known[0]] |= rows.pop(key)
    same = Counter(key[:2] for key, values in rows.items() if values)
    ours = [
        Row(name + f", SHA-256 {sha256[:8]}" * (same[name, pixels] > 1), pixels, values)
        for (name, pixels, sha256), values in sorted(rows.items())
        if values
    ]
    return Report((*_of_paper(), *ours), tuple(remarks))


def _add_evaluation(rows: dict[_Key, dict[str, float]], file: Path) -> list[str]:
    try:
        one = json.loads(storage.read_all([file])[0])
        model = one["model"]
        published = model.get("published") or provenance.OTHER
        name = str(one["weights"] if published == provenance.OTHER else published)
        name += "".join(f", {text.format(model[k])}" for k, text in _CHANGED.items() if k in model)
        measured = {key: one.get(key) for key in ("top1", "mce", "examples")}
        data, labels = str(one["data"]), str(one["labels"])
        pixels, among, split = str(model["image_size"]), one["among"], str(one["split"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        return [f"not readable: {file} ({type(e).__name__}: {e}); run vit_jax evaluate again"]
    if split.startswith("train"):
        return [f"{file}: split {split} is not a test split"]
    tuned = image_chains.of_augreg(name.partition(",")[0])
    if tuned and model.get("ops") != tuned["ops"]:
        return [f"{file}: not with the crop that AugReg evaluates with; run vit_jax evaluate again"]
    key = name, pixels, str(model.get("sha256", ""))
    return _add(rows, key, data, labels, among, measured, str(file))


def _add_run(rows: dict[_Key, dict[str, float]], run: run_results.Run) -> list[str]:
    key = str(run.folder), str(run.config["data.image_size"]), ""
    if why := [*run_matching.looked(run), *_trained_on_test(run)]:
        return [f"{run.folder}: {why[0]}"]
    names = {k.split(".")[1] for k in run.config if k.startswith("evals.")}
    remarks = []
    for name in sorted(names):
        settings = {k: run.config[f"evals.{name}.{k}"] for k in ("source", "labels", "classes")}
        measured = (run.results or {}).get(name)
        source = settings["source"] or run.config["data.source"]
        held_out = run.config[f"evals.{name}.split"].startswith("train")
        if isinstance(measured, dict) and not held_out:
            asked = source, settings["labels"], settings["classes"]
            remarks += _add(rows, key, *asked, measured, f"{key[0]}: {name}")
    return remarks


def _trained_on_test(run: run_results.Run) -> list[str]:
    split = run.config["data.split"]
    named = re.split(r"\[.*?\]|\+", split)
    return [] if {*named} <= {"", "train"} else [f"trained on {split}, which may hold test images"]


def _add(
    rows: dict[_Key, dict[str, float]],
    key: _Key,
    source: str,
    labels: str,
    among: Any,
    measured: Mapping[str, Any],
    where: str,
) -> list[str]:
    """Adds a value to the row `key`; returns why it does not count, or what is odd about it."""
    test = robustness.name_of(source, labels)
    if not test:
        return [f"{where}: not a test set of ImageNet"]
    wanted = robustness.sets()[test].classes if test in robustness.sets() else "all"
    if among != wanted:
        return [f"{where}: classes={among}, and {_COLUMNS[test]} needs classes={wanted}"]
    value = measured.get("mce" if test == "c" else "top1")
    if not isinstance(value, float | int):
        return [f"{where}: no {'mce' if test == 'c' else 'top1'}"]
    if not 0 <= value <= (math.inf if test == "c" else 1):  # an mCE is relative to AlexNet
        return [f"{where}: {value} is no share from 0 to 1"]
    whole = robustness.IMAGES[test]
    if measured.get("examples") != whole:
        return [f"{where}: {_COLUMNS[test]} has {measured.get('examples')} of {whole:,} images"]
    row = rows.setdefault(key, {})
    if test in row and abs(row[test] - 100 * value) > 1e-9:
        return [f"{where}: {_COLUMNS[test]} of {key[0]} was measured twice, {row[test]:.2f} counts"]
    row[test] = 100 * value
    if test == "c" and source.startswith("tfds:"):
        return [f"{where}: ImageNet-C as TFDS encodes it again; published values use its own JPEGs"]
    return []


def _of_paper() -> list[Row]:
    rows: dict[str, dict[str, float]] = {}
    for value in results.table_5():
        trained, tested, model = value.labels
        test = {"ImageNet": "imagenet", "ImageNet ReaL": "real"}.get(tested)
        if test and value.value is not None:
            rows.setdefault(f"paper: {model}, {trained}", {})[test] = value.value
    objectnet = {"objectnet": results.objectnet()["top1"]}
    return [
        *(Row(name, "384", values) for name, values in rows.items()),
        Row("paper: ViT-H/14, JFT-300M, evaluated as BiT", "", objectnet),
    ]


def render(report: Report, form: str) -> str:
    """Renders the table as md, csv or html."""
    columns = [c for c in _COLUMNS if any(c in row.values for row in report.rows)]
    header = ("weights", "pixels", *(_COLUMNS[c] for c in columns))
    rows = [
        (
            row.name,
            row.pixels,
            *(f"{row.values[c]:.2f}" if c in row.values else "" for c in columns),
        )
        for row in report.rows
    ]
    if form == "csv":
        return rendering.csv_text([header, *rows])
    if form == "html":
        content = {"header": header, "rows": rows, "numbers": range(2, len(header)), "codes": (0,)}
        return pages.render(
            "table.html", _TITLE, charts=[], content=content, notes=list(report.remarks)
        )
    return rendering.markdown(_TITLE, header, rows, report.remarks)
