# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lets candidates take turns, each in its own process, and computes statistics of their rates.

Start from `take`.
"""

import contextlib
import dataclasses
import logging
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from vit_jax.errors import RunFailed
from vit_jax.runtime.worker_process import Child

log = logging.getLogger("vit_jax")

ROUNDS = 5
TURN_SECS = 1.0  # approximate length of a turn, which has at least one step


@dataclasses.dataclass(frozen=True)
class Asked:
    """The task of every candidate.

    Attributes:
      model: a variant.
      batch: images per step.
      resolution: image side in pixels.
      dtype: dtype of the computation.
      overrides: `--config.key=value` arguments, only for our own steps.
    """

    model: str
    batch: int
    resolution: int
    dtype: str
    overrides: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Timed:
    """A candidate that has done its first step.

    Attributes:
      step: starts one more step; returns a value to wait for.
      wait: waits for that value.
      figures: other findings, for JSON.
    """

    step: Callable[[], Any]
    wait: Callable[[Any], Any]
    figures: dict[str, Any]


Maker = Callable[[Asked], Timed]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The result of a candidate: seconds per step in each round, and its figures."""

    secs: tuple[float, ...]
    figures: dict[str, Any]

    def rate(self, amount: float) -> dict[str, float]:
        """Returns amounts per second: the median of the rounds, and their interquartile range."""
        return spread([amount / secs for secs in self.secs])


def take(
    makers: dict[str, Maker],
    asked: Asked,
    *,
    rounds: int = ROUNDS,
    turn_secs: float = TURN_SECS,
    optional: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Measured]:
    """Measures candidates in turns: in every round, each of them once.

    Args:
      makers: name -> function of an importable module.
      asked: the task of all candidates.
      rounds: number of sampled rounds; one more comes first and is discarded.
      turn_secs: approximate length of a turn, without its untimed first step.
      optional: names of candidates to leave out if they fail.
      progress: called with (turns done, turns in total).

    Raises:
      BadInput, RunFailed: a candidate cannot do the task, or its process ended.
    """
    died = "the process of {} ended; its last words are above. Often there is too little memory."
    with contextlib.ExitStack() as stack:
        children, figures = dict[str, Child](), dict[str, dict[str, Any]]()
        secs: dict[str, list[float]] = {name: [] for name in makers}
        total = len(makers) * (rounds + 2)

        def ask(name: str, count: int, done: int) -> Any:
            """Returns an answer; None for a candidate that is left out, now or before."""
            try:
                return children[name].ask(count) if name in children else None
            except RunFailed as e:
                if name not in optional:
                    raise
                log.warning("%s is left out: %s", name, e)
                del children[name]
                return None
            finally:
                progress(done, total)

        for done, (name, make) in enumerate(makers.items(), 1):  # the others do not run yet
            child = Child(_answering, make, asked, died=died.format(name))
            children[name] = stack.enter_context(child)
            figures[name] = ask(name, 0, done)
        counts = dict.fromkeys(makers, 1)
        for turn in range(1, rounds + 2):
            for place, name in enumerate(makers, 1):
                each = ask(name, counts[name], turn * len(makers) + place)
                if each is not None:
                    secs[name].append(each)
                    counts[name] = max(1, round(turn_secs / each))
    return {name: Measured(tuple(secs[name][1:]), figures[name]) for name in children}


def _answering(make: Maker, asked: Asked) -> Callable[[int], Any]:
    """Returns, in a fresh process, a function: 0 -> figures, n -> seconds per step of n steps.

    One more step comes before the n steps; without it, S/16 on a CPU seemed a quarter slower.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others share the GPU
    timed = make(asked)

    def answer(count: int) -> Any:
        if not count:
            return timed.figures
        timed.wait(timed.step())  # an idle process may have lost its memory pages
        began = time.perf_counter()
        last = None
        for _ in range(count):  # keeps no result but the last
            last = timed.step()
        timed.wait(last)
        return (time.perf_counter() - began) / count

    return answer


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Returns `median` and `spread`, the interquartile range; it is 0 for a single sample."""
    quartiles = statistics.quantiles(samples, method="inclusive") if len(samples) > 1 else [0, 0]
    return {"median": statistics.median(samples), "spread": quartiles[-1] - quartiles[0]}


def ratio(ours: Measured, other: Measured) -> dict[str, float]:
    """Returns how much faster ours is: the median ratio of the rounds, and their spread."""
    return spread([b / a for a, b in zip(ours.secs, other.secs, strict=True)])
