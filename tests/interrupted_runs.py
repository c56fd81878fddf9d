# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs that are cut and continued, beside one that is not; as a program, one of two processes.

    python interrupted_runs.py INDEX HOST:PORT FOLDER COMBINATION ...

Start from `whole_and_cut`.
"""

import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from test_processes import back_to
from test_train import QUICKSTART, logged, run

from vit_jax.checkpoints.step_folders import committed
from vit_jax.config import frozen
from vit_jax.config import load as config_lib
from vit_jax.runtime import coordination
from vit_jax.runtime.process_identity import ProcessIdentity

OPTIONS = {
    "accumulation": ("--config.accumulation=2",),
    "ema": ("--config.ema.decay=0.9",),
    "mixup": ("--config.mixup.alpha=0.2",),
    "randaug": ("--config.data.train_ops=randaug(1, 10)",),
    "bf16": ("--config.model.dtype=bfloat16", "--config.optimizer.adamw.mu_dtype=bfloat16"),
}
OPTIMIZERS = {
    "muon": ("--config.optimizer.name=muon", "--config.optimizer.weight_decay=0.1"),
    "lion": ("--config.optimizer.name=lion", "--config.schedule.lr=1e-4"),
    "sam": ("--config.optimizer.sam.rho=0.05",),
    "mup": ("--config.model.mup_base_width=64",),
    "mesh": ("--config.mesh.fsdp=2", "--config.mesh.tensor=2", "--config.model.heads=2"),
    "packed": (
        "--config.pack=4",
        "--config.model.naflex=4",
        "--config.data.image_size=16",
        "--config.data.train_ops=naflex({size}, 2, enlarge=False)",
        "--config.data.eval_ops=decode|naflex({size}, 2)",
    ),
    "device": (
        "--config.data.train_ops=resize(12)",
        "--config.data.device_ops=inception_crop({size})|flip_lr|randaug(1, 10, colors=True)"
        "|random_erasing(0.5)",
    ),
}
# A combination is the names of its options; none is "plain".
MATRIX = [
    "+".join(names) or "plain"
    for count in range(len(OPTIONS) + 1)
    for names in itertools.combinations(OPTIONS, count)
]
PLAIN, ALL = MATRIX[0], MATRIX[-1]
STEPS = (
    "--config.length=6 steps",
    "--config.report.page=false",
    "--config.checkpoint.every=2 steps",
    "--config.checkpoint.keep_last=3",
    "--config.evals.val.every=3 steps",
    "--config.evals.val.batch_size=384",
    "--config.evals.test.batch_size=384",
    "--config.schedule.warmup=1 steps",
    "--config.model.dropout=0.1",
    "--config.ema.decay=0",
)
CUT = 2  # what is left of a run after a crash: a checkpoint, rows of later steps, a torn row


def arguments(combination: str) -> list[str]:
    """Returns the arguments of a run of six steps."""
    names = [] if combination == PLAIN else combination.split("+")
    options = OPTIONS | OPTIMIZERS
    return [*STEPS, *(argument for name in names for argument in options[name])]


def cut(whole: Path, copy: Path) -> None:
    """A copy of a run as a crash would have left it."""
    back_to(whole, copy, CUT)
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "train/lo')


def whole_and_cut(folder: Path, combination: str) -> None:
    """Trains into FOLDER/whole, and continues what a crash left of it in FOLDER/cut."""
    given = arguments(combination)
    assert run(folder / "whole", *given) == 0
    if coordination.is_first():
        cut(folder / "whole", folder / "cut")
    coordination.barrier("cut")
    assert run(folder / "cut", *given) == 0


def state(workdir: Path) -> list[np.ndarray]:
    """Every array of the newest checkpoint: parameters, optimizer, average."""
    folder = workdir / "checkpoints" / str(committed(workdir)[-1]) / "state"
    as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
    with ocp.PyTreeCheckpointer() as reader:
        shapes = reader.metadata(folder).item_metadata.tree
        wanted = jax.tree.map(lambda _: as_numpy, shapes)
        return jax.tree.leaves(reader.restore(folder, ocp.args.PyTreeRestore(restore_args=wanted)))


def assert_equal(a: Path, b: Path) -> None:
    """Two runs have logged the same numbers and ended in the same state, bit for bit."""
    ours, theirs = logged(a), logged(b)
    assert ours == theirs, sorted(ours.items() ^ theirs.items())[:4]
    arrays = list(zip(state(a), state(b), strict=True))
    assert len(arrays) > 20
    for x, y in arrays:
        assert x.dtype == y.dtype
        assert x.tobytes() == y.tobytes(), f"an array of shape {x.shape} differs"


if __name__ == "__main__":
    index, address, folder, *combinations = sys.argv[1:]
    who = ProcessIdentity(address, 2, int(index), "the test")
    waiting = frozen.arguments(config_lib.load(QUICKSTART).processes)
    with coordination.session(who, Path(folder), **waiting):
        for name in combinations:
            whole_and_cut(Path(folder) / name, name)
