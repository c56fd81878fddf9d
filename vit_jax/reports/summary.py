# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Text summaries of a run: results, verdict, parameters, devices.

Start from `results_table`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax

from vit_jax import console, tree
from vit_jax.config import validation

RESULTS_FILE = "results.json"
PAGE_FILE = "report.html"


def parameter_table(params: Any) -> str:
    """Returns path, shape and size of every parameter, and the total."""
    rows = [
        [path, "x".join(map(str, leaf.shape)), f"{math.prod(leaf.shape):,}"]
        for path, leaf in tree.leaves_with_paths(params)
    ]
    return console.table(
        ["parameter", "shape", "size"], [*rows, ["total", "", f"{tree.size(params):,}"]]
    )


def evaluation_line(names: Iterable[str], measured: Mapping[str, float | int]) -> str:
    """Returns a line such as `val top-1 93.10% loss 0.2110  fewshot_pets 1shot 40.00%`."""
    parts = []
    for name in names:
        if f"{name}/top1" in measured:
            top1, loss = measured[f"{name}/top1"], measured[f"{name}/loss"]
            inside = {k: v for k, v in measured.items() if k.startswith(f"{name}/")}
            inside = {k.removeprefix(f"{name}/"): v for k, v in inside.items()}
            more = "".join(f" {k} {v:.4f}" for k, v in _own(inside).items())
            parts.append(f"{name} top-1 {top1:.2%} loss {loss:.4f}{more}")
        else:
            own = {k.removeprefix(f"{name}/"): v for k, v in measured.items()}
            shots = [f" {k} {v:.2%}" for k, v in own.items() if k.endswith("shot")]
            parts.append(name + "".join(shots))
    return "  ".join(parts)


def _own(measured: Mapping[str, float | int]) -> dict[str, float | int]:
    """Returns the metrics of an evaluation that come from a user's own evaluator."""
    return {k: v for k, v in measured.items() if not validation.MEASURED.fullmatch(k)}


def results_table(results: Mapping[str, Any]) -> str:
    """Returns a line per split, with ImageNet-C's mCE if measured; then few-shot tasks."""
    found = {name: m for name, m in results.items() if isinstance(m, dict)}
    splits = {name: m for name, m in found.items() if "top1" in m}
    rows = [
        [split, f"{m['top1']:.2%}", f"{m['top5']:.2%}", f"{m['loss']:.4f}", f"{m['examples']:,}"]
        for split, m in splits.items()
    ]
    header = ["split", "top-1", "top-5", "loss", "examples"]
    if any("mce" in m for m in splits.values()):
        header.append("mCE")
        for row, m in zip(rows, splits.values(), strict=True):
            row.append(f"{m['mce']:.2%}" if "mce" in m else "")
    for key in dict.fromkeys(key for m in splits.values() for key in _own(m)):
        header.append(key)
        for row, m in zip(rows, splits.values(), strict=True):
            row.append(f"{m[key]:.4f}" if key in m else "")
    tables = [console.table(header, rows)]
    few = {name: m for name, m in found.items() if "top1" not in m}
    if few:
        rows = [
            [name, *(f"{v:.2%}" if k.endswith("shot") else f"{v:,}" for k, v in m.items())]
            for name, m in few.items()
        ]
        tables.append(console.table(["few-shot", *next(iter(few.values()))], rows))
    return "\n\n".join(tables)


def verdict(results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Compares results with the recipe's expectation, in one line; "" if it expects nothing."""
    split, _, name = str(expected["metric"]).partition("/")
    measured = results.get(split, {}).get(name) if expected["metric"] else None
    if measured is None:
        return ""
    gap = measured - expected["value"]
    place = "within" if abs(gap) <= expected["tolerance"] else ("ABOVE" if gap > 0 else "BELOW")
    return (
        f"{expected['metric']}: measured {measured:.4f}, expected {expected['value']:.4f} +- "
        f"{expected['tolerance']:.4f} ({expected['source']}; {expected['hardware']}): "
        f"{gap:+.4f}, {place} the tolerance"
    )


def device_summary(devices: list[Any]) -> str:
    """Describes the devices, e.g. `8 x TPU v4 (tpu), 2 processes, jax 0.10.0`."""
    kinds = {d.device_kind for d in devices}
    processes = jax.process_count()
    return (
        f"{len(devices)} x {', '.join(sorted(kinds))} ({devices[0].platform}), "
        f"{processes} process{'es' if processes > 1 else ''}, jax {jax.__version__}"
    )
