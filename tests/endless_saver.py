# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Saves as fast as it can until it is killed: `python endless_saver.py WORKDIR`.

It has a life for each line read. A life is a fork from a process that has imported everything and
started nothing, so that it costs no imports; its process id is printed. Start from `live`.
"""

import os
import sys
from pathlib import Path

import numpy as np

from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.step.state import TrainState


def state(step: int) -> TrainState:
    """Returns the state of a step: about 4 MB that follow from its number."""
    import jax.numpy as jnp

    values = np.random.default_rng(step).normal(size=(1000, 1000)).astype(np.float32)
    params = {"big": jnp.asarray(values), "small": jnp.full((7,), step, jnp.float32)}
    return TrainState(step=jnp.asarray(step), params=params, opt_state=(), ema=None)


def live(workdir: Path) -> None:
    """Goes on from where the run is."""
    with Checkpoints(workdir, keep_last=1, keep_every=50) as checkpoints:
        step = checkpoints.newest_good() or 0
        while True:
            step += 1
            checkpoints.save(step, state(step), "seed: 0\n", {"val/top1": 0.5})
            checkpoints.check()


if __name__ == "__main__":
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            live(Path(sys.argv[1]))
        print(child, flush=True)
        os.waitpid(child, 0)
