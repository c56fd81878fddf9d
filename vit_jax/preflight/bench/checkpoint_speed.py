# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how long a checkpoint blocks the train loop, and how fast it reaches the disk.

Start from `save`.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.preflight.bench import our_steps
from vit_jax.preflight.bench.interleaved import Asked, spread

ROUNDS = 5
SHARE = 0.01  # largest share of the time that saving may block the loop


def answering(asked: Asked) -> Any:
    """Returns, in a fresh process, a function from the number of saves to the result of `save`."""
    return lambda rounds: save(asked, rounds)


def save(asked: Asked, rounds: int = ROUNDS) -> dict[str, Any]:
    """Repeatedly trains a step and saves into a temporary folder.

    Returns:
      `model`; `bytes` of a state; `step_secs`; `blocking_secs`, how long the loop waits, and
      `commit_secs`, until the checkpoint is committed, both as `median` and `spread`;
      `bytes_per_sec` of the commit; `restore_secs`; `least_secs_between`, the shortest interval
      between saves for which the loop waits at most `SHARE` of the time.
    """
    made = our_steps.make(asked)
    batch, compiled = our_steps.random_batch(made), made.lower_step().compile()
    state, _ = compiled(made.init(), batch, made.step_key)
    blocking, commit, steps = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        with Checkpoints(Path(folder), keep_last=1, keep_every=0, keep_best="") as checkpoints:
            for number in range(1, rounds + 2):
                began = time.perf_counter()
                state, metrics = compiled(state, batch, made.step_key)
                jax.block_until_ready((state, metrics))
                ready = time.perf_counter()
                checkpoints.save(number, state, "", {})
                blocked = time.perf_counter()
                checkpoints.wait()
                steps.append(ready - began)
                blocking.append(blocked - ready)
                commit.append(time.perf_counter() - ready)
            began = time.perf_counter()
            jax.block_until_ready(checkpoints.restore(rounds + 1, made.abstract))
            restore = time.perf_counter() - began
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    return {
        "model": asked.model,
        "bytes": size,
        "step_secs": spread(steps[1:]),
        "blocking_secs": spread(blocking[1:]),
        "commit_secs": spread(commit[1:]),
        "bytes_per_sec": spread([size / secs for secs in commit[1:]]),
        "restore_secs": restore,
        "least_secs_between": spread(blocking[1:])["median"] / SHARE,
        "device": our_steps.device(),
    }


def text(rows: list[dict[str, Any]]) -> str:
    """Returns a table for people."""
    lines = []
    for row in rows:
        secs = {key: row[key]["median"] for key in ("blocking_secs", "commit_secs", "step_secs")}
        lines.append(
            f"{row['model']}: {row['bytes'] / 2**20:,.0f} MiB; the loop waits "
            f"{1000 * secs['blocking_secs']:.0f} ms ({1000 * secs['step_secs']:.0f} ms a step), "
            f"written after {secs['commit_secs']:.2f} s "
            f"({row['bytes_per_sec']['median'] / 2**20:,.0f} MiB/s), read back in "
            f"{row['restore_secs']:.2f} s; below {SHARE:.0%} of the time with a save every "
            f"{row['least_secs_between']:.0f} s or less often"
        )
    return "\n".join(lines)
