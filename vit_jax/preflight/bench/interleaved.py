# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Candidates that take turns, each in a process of its own, and what is said of their rates.

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
TURN_SECS = 1.0  # a turn takes about so long, and one step at least


@dataclasses.dataclass(frozen=True)
class Asked:
    """What every candidate is asked to do.

    Attributes:
      model: a variant.
      batch: images of a step.
      resolution: pixels of a side.
      dtype: of computation.
      overrides: `--config.key=value` arguments, for our own steps alone.
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
      step: starts one more; returns what tells when it is done.
      wait: until that is done.
      figures: what else was found out, for JSON.
    """

    step: Callable[[], Any]
    wait: Callable[[Any], Any]
    figures: dict[str, Any]


Maker = Callable[[Asked], Timed]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a candidate did: seconds of a step in each round, and its figures."""

    secs: tuple[float, ...]
    figures: dict[str, Any]

    def rate(self, amount: float) -> dict[str, float]:
        """Amounts a second: the median of the rounds, and their interquartile range."""
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
    """Measures candidates in turns: every round each of them once.

    Args:
      makers: by name; functions of a module that can be imported.
      asked: of all of them.
      rounds: of which there are samples; one more comes before them and is forgotten.
      turn_secs: how long a turn is about, but for a first step that is not timed.
      optional: those that are left out if they cannot do it.
      progress: called with (turns done, of how many).

    Raises:
      BadInput, RunFailed: a candidate cannot do it, or its process ended.
    """
    died = "the process of {} ended; its last words are above. Often there is too little memory."
    with contextlib.ExitStack() as stack:
        children, figures = dict[str, Child](), dict[str, dict[str, Any]]()
        secs: dict[str, list[float]] = {name: [] for name in makers}
        total = len(makers) * (rounds + 2)

        def ask(name: str, count: int, done: int) -> Any:
            """An answer; None from one that is left out, now or before."""
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
    """In a fresh process: 0 is answered with figures, n with the seconds of one of n steps.

    One more comes before them, without which S/16 on a CPU seemed a quarter slower.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others share the GPU
    timed = make(asked)

    def answer(count: int) -> Any:
        if not count:
            return timed.figures
        timed.wait(timed.step())  # memory of a process that waits may be taken from it
        began = time.perf_counter()
        last = None
        for _ in range(count):  # no result is kept but the last
            last = timed.step()
        timed.wait(last)
        return (time.perf_counter() - began) / count

    return answer


def spread(samples: Sequence[float]) -> dict[str, float]:
    """`median`, and `spread`: the distance of the quartiles, 0 of a single sample."""
    quartiles = statistics.quantiles(samples, method="inclusive") if len(samples) > 1 else [0, 0]
    return {"median": statistics.median(samples), "spread": quartiles[-1] - quartiles[0]}


def ratio(ours: Measured, other: Measured) -> dict[str, float]:
    """How much faster ours is: the median of the ratios of each round, and their spread."""
    return spread([b / a for a, b in zip(ours.secs, other.secs, strict=True)])
