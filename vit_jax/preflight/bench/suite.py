# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The tables of `vit_jax bench`: our steps beside those of others.

Start from `table`.
"""

import contextlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Any

from vit_jax.errors import RunFailed
from vit_jax.preflight.bench import baseline, interleaved, our_steps
from vit_jax.preflight.bench.interleaved import Asked, Maker, Measured, Timed

log = logging.getLogger("vit_jax")

_OURS: dict[str, Maker] = {
    "train": our_steps.train,
    "eval": our_steps.evaluate,
    "predict": our_steps.predict,
}
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "timm", "torch")
_PEAK = "matrix products"


def table(
    what: str,
    asked: Sequence[Asked],
    *,
    rounds: int = interleaved.ROUNDS,
    turn_secs: float = interleaved.TURN_SECS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measures the steps of several models.

    Args:
      what: `train` for a training step; `eval` or `predict` for a forward pass with its metrics or
        the likeliest classes.
      asked: the tasks, one row each.
      rounds: see `interleaved.take`.
      turn_secs: see `interleaved.take`.
      progress: called with (turns done, turns in total).

    Returns:
      `device`, `versions` and `rows`. A row has `model`, `batch`, `resolution`, `dtype`;
      `img_per_sec`: of `ours`, `baseline` (a plain ViT in jax) and `timm` (if installed), as
      `median` and `spread` (interquartile range) of the rounds; `ratio`: of ours to each of the
      others in the same round; `of_peak`: the share of the FLOP/s that large matrix products reach
      there; `peak_tflops`; `timm_how`: whether compiled. Rows of training also have
      `first_step_secs` (from nothing compiled to the end of the first step) and `peak_bytes` of
      ours (on a CPU, according to the compiler). Models other than ViTs with a class token have
      only `ours`; so has a row whose timm cannot be imported or run.

    Raises:
      BadInput: see `interleaved.take`.
      RunFailed: no row could be measured. A row that fails is left out, and the log says so.
    """
    rows, failed, device = [], list[RunFailed](), ""
    for place, one in enumerate(asked):
        try:
            found = interleaved.take(
                _makers(what, one),
                one,
                rounds=rounds,
                turn_secs=turn_secs,
                optional=("timm",),
                progress=lambda done, of, place=place: progress(place * of + done, len(asked) * of),
            )
        except RunFailed as e:  # often too little memory; the other rows still count
            log.error("%s is left out: %s", one.model, e)
            failed.append(e)
            continue
        device = found["ours"].figures["device"]
        rows.append(_row(one, found))
    if not rows:
        raise failed[0]
    return {"device": device, "versions": versions(), "rows": rows}


def _makers(what: str, asked: Asked) -> dict[str, Maker]:
    makers: dict[str, Maker] = {"ours": _OURS[what], _PEAK: our_steps.products}
    if baseline.config_of(asked) is None:
        return makers
    makers["baseline"] = baseline.train if what == "train" else baseline.predict
    if importlib.util.find_spec("timm") and importlib.util.find_spec("torch"):
        makers["timm"] = _timm_train if what == "train" else _timm_predict
    return makers


def _timm_train(asked: Asked) -> Timed:
    from vit_jax.preflight.bench import timm_model  # imports torch, in its own process

    return timm_model.train(asked)


def _timm_predict(asked: Asked) -> Timed:
    from vit_jax.preflight.bench import timm_model

    return timm_model.predict(asked)


def _row(asked: Asked, found: dict[str, Measured]) -> dict[str, Any]:
    mine, peak = found["ours"], found.pop(_PEAK)
    peak_flops = peak.rate(peak.figures["step_flops"])["median"]
    row = {
        "model": asked.model,
        "batch": asked.batch,
        "resolution": asked.resolution,
        "dtype": asked.dtype,
        "img_per_sec": {name: one.rate(asked.batch) for name, one in found.items()},
        "ratio": {n: interleaved.ratio(mine, one) for n, one in found.items() if n != "ours"},
        "of_peak": mine.rate(mine.figures["step_flops"])["median"] / peak_flops,
        "peak_tflops": peak_flops / 1e12,
    }
    own = ("first_step_secs", "peak_bytes")
    row |= {key: mine.figures[key] for key in own if key in mine.figures}
    return row | ({"timm_how": found["timm"].figures["how"]} if "timm" in found else {})


def versions() -> dict[str, str]:
    """Returns the versions of the measured packages that are installed."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def text(found: dict[str, Any]) -> str:
    """Returns a table for people."""
    listed = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [f"{found['device']}; {listed}", ""]
    for row in found["rows"]:
        size = f"{row['batch']} x {row['resolution']} px, {row['dtype']}"
        lines.append(
            f"{row['model']} ({size}): {row['of_peak']:.0%} of the "
            f"{row['peak_tflops']:.3g} TFLOP/s of matrix products"
        )
        for name, rate in row["img_per_sec"].items():
            ratio = row["ratio"].get(name)
            than = (
                f"   ours is {ratio['median']:.2f}x (+-{ratio['spread'] / 2:.2f})" if ratio else ""
            )
            how = f", {row['timm_how']}" if name == "timm" else ""
            half = rate["spread"] / 2
            lines.append(f"{name:>10} {rate['median']:10.2f} (+-{half:.2f}) images/s{than}{how}")
        if "first_step_secs" in row:
            gib = row["peak_bytes"] / 2**30
            lines.append(f"{'':10} first step {row['first_step_secs']:.1f} s, peak {gib:.2f} GiB")
    return "\n".join(lines)
