# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Evaluators of a user's own package: `evals.NAME.evaluator=MODULE:FUNCTION(key=value)`.

An evaluator is a function on the host. It maps the logits of a whole split, float32 [N, Y], and the
labels, int32 [N, K] padded with -1, to metrics by name; see docs/extending.md. Start from `find`,
then `measure`.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vit_jax.config import plugins, validation
from vit_jax.errors import BadInput, RunFailed, unknown

Evaluator = Callable[[np.ndarray, np.ndarray], Any]


def find(name: str, text: str, keep_best: str) -> Evaluator:
    """Returns the evaluator of the evaluation `name`; its result is checked on each call.

    Args:
      name: the name of the evaluation.
      text: `MODULE:FUNCTION(key=value)`.
      keep_best: the metric that chooses the run's best step; it may come from this evaluator.

    Raises:
      BadInput: see `plugins.find`.
    """
    where, _, best = keep_best.rpartition("/")
    wanted = best if where.removesuffix("_raw") == name else ""
    key = f"evals.{name}.evaluator={text!r}"
    return functools.partial(_checked, key, wanted, plugins.find(key, text, None, None))


def _checked(key: str, wanted: str, evaluator: Evaluator, *arrays: np.ndarray) -> dict[str, float]:
    try:
        results = evaluator(*arrays)
    except Exception as e:  # the user's code may raise anything
        reason = " ".join(str(e).split())[:300]
        raise RunFailed(
            f"{key} failed: {type(e).__name__}: {reason}; correct it and run again."
        ) from e
    if not isinstance(results, dict) or not results:
        raise BadInput(f"{key} returned {type(results).__name__}; expected {{name: number}}.")
    for name, value in results.items():
        plain = isinstance(name, str) and re.fullmatch(r"\w+", name)
        if not plain or validation.MEASURED.fullmatch(name):
            raise BadInput(
                f"{key} returned the metric {name!r}; names have letters, digits and _ "
                "only, and must not be those of other metrics."
            )
        if np.shape(value) != () or np.asarray(value).dtype.kind not in "biuf":
            raise BadInput(f"{key} returned {name}={value!r}; expected a number.")
        if not np.isfinite(value):
            raise RunFailed(f"{key} returned {name}={value}; expected a finite number.")
    if wanted and wanted not in results and not validation.MEASURED.fullmatch(wanted):
        raise unknown(f"metric in checkpoint.keep_best, of {key},", wanted, results)
    return {name: float(value) for name, value in results.items()}


def try_on_random_logits(evaluator: Evaluator, classes: int, labels: int) -> None:
    """Calls the evaluator on random logits before any training, which shows most of its errors.

    Args:
      evaluator: from `find`.
      classes: Y.
      labels: K.

    Raises:
      BadInput: the evaluator fails, or returns anything but numbers by name.
    """
    random = np.random.default_rng(0)
    logits_NY = random.normal(size=(2 * classes, classes)).astype(np.float32)
    labels_NK = np.full((2 * classes, labels), -1, np.int32)
    labels_NK[:, 0] = np.arange(2 * classes) % classes
    try:
        evaluator(logits_NY, labels_NK)
    except RunFailed as e:
        raise BadInput(f"tried on random logits, {e}") from e


def measure(evaluator: Evaluator, batches: Sequence[dict[str, np.ndarray]]) -> dict[str, float]:
    """Returns the evaluator's metrics of the `scores` of all batches; see `make_eval_step`.

    Raises:
      RunFailed: the evaluator fails, or returns anything but finite numbers by name.
    """
    logits_NY, labels_NK = (
        np.concatenate([batch[key][batch["_mask"]] for batch in batches])
        for key in ("logits", "labels")
    )
    try:
        return evaluator(logits_NY, labels_NK)
    except BadInput as e:  # BadInput would remove a new workdir
        raise RunFailed(str(e)) from e
