# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures commits of checkpoints in a store whose every answer waits; the page is docs/scale.md.

    python tests/commit_times.py

It takes ten minutes, and writes golden/commits.json and two tables of the page. The store is
`fake_gcs` in this process; the package's code runs in others, each of which is this module as a
program: `checksums`, what process 0 does before a commit, and `saves`, whole saves.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fake_gcs
import stored_runs
from ports import free_port

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "commits.json"
HOSTS = (10, 100, 1000)
PROCESSES = (1, 2, 4)
DELAYS_MS = (0, 10, 50, 200)
STEPS = 4  # saves of a run, of which the first makes connections and folders


def checksums_of(hosts: int, delay_ms: int) -> float:
    """Returns the seconds that process 0 takes for the checksums of so many hosts' files."""
    with fake_gcs.serve("bucket") as (store, environment):
        stored_runs.lay_uncommitted(store, hosts)
        store.delay_secs = delay_ms / 1000
        return _run(environment, ["checksums"])[0]


def saves_of(processes: int, delay_ms: int) -> dict[str, float]:
    """Lets processes save together.

    Returns:
      Medians of a save, from its beginning on: `waits_secs`, until training goes on, and
      `committed_secs`; `seal_secs`, the part for small files and checksums; `files` of one, and
      `requests` of all processes for it.
    """
    with fake_gcs.serve("bucket") as (store, environment):
        store.delay_secs = delay_ms / 1000
        rows = _run(environment, *(["saves", str(n), str(processes)] for n in range(processes)))
        name = f"checkpoints/{STEPS}"
        return {
            **{key: statistics.median(row[key] for row in rows) for key in rows[0]},
            "files": len(store.names(f"bucket/run/{name}/")),
            "requests": sum(f"{name}/" in place or f"{name}." in place for _, place in store.asked),
        }


def _run(environment: dict[str, str], *words: list[str]) -> Any:
    """Runs this module as programs at once; returns what the first one prints, from JSON."""
    path = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        address = f"127.0.0.1:{free_port()}"
        children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, *more, address, folder],
                    env=os.environ | environment | path, stdout=subprocess.PIPE, text=True,
                )
            )
            for more in words
        ]  # fmt: skip
        said = [child.communicate(timeout=900)[0] for child in children]
        assert not any(child.returncode for child in children), said
    return json.loads(said[0].splitlines()[-1])


def _checksums() -> list[float]:
    from vit_jax.storage import checksums
    from vit_jax.storage import files as storage

    folder = stored_runs.uncommitted()
    storage.write(folder.parent / "first", "")  # connects, and imports what writes
    began = time.monotonic()
    checksums.write(folder)
    return [time.monotonic() - began]


def _saves() -> list[dict[str, float]]:
    import jax
    import numpy as np
    import tier_pair

    from vit_jax.checkpoints.checkpoints import Checkpoints
    from vit_jax.step.state import TrainState
    from vit_jax.storage import files as storage

    at: dict[str, float] = {}

    def noting(name: str) -> Any:
        """Returns a method that notes when it begins and ends, and that of the class inside."""
        own = getattr(Checkpoints, name)

        def noted(*args: Any) -> None:
            at[f"{name} begins"] = time.monotonic()
            own(*args)
            at[f"{name} ends"] = time.monotonic()

        return noted

    for name in ("save", "_seal", "_prune"):
        setattr(Checkpoints, name, noting(name))
    place, whole = tier_pair.placed(1)

    def put(x: np.ndarray, where: Any) -> Any:
        return jax.make_array_from_callback(x.shape, where, lambda index: x[index])

    params = {f"{n:02}": put(np.full([64, 64], n, np.float32), place) for n in range(40)}
    rows = []
    with Checkpoints(storage.workdir(stored_runs.WORKDIR)) as checkpoints:
        for step in range(1, STEPS + 1):
            state = TrainState(put(np.asarray(np.int32(step)), whole), params, {}, None)
            checkpoints.save(step, state, "a: 1\n", {})
            checkpoints.wait()
            if jax.process_index() == 0:  # it alone seals and prunes
                rows.append({
                    "waits_secs": at["save ends"] - at["save begins"],
                    "committed_secs": at["_prune begins"] - at["save begins"],
                    "seal_secs": at["_seal ends"] - at["_seal begins"],
                })  # fmt: skip
    return rows[1:]


def child(what: str, *more: str) -> None:
    """Runs one process of a measurement, and prints what it measured."""
    if what == "checksums":
        print(json.dumps(_checksums()))
        return
    from vit_jax.config import frozen
    from vit_jax.config import load as config_lib
    from vit_jax.runtime import coordination
    from vit_jax.runtime.process_identity import ProcessIdentity

    index, count, address, folder = more
    who = ProcessIdentity(address, int(count), int(index), "the measurement")
    waiting = frozen.arguments(config_lib.load("configs/quickstart.py").processes)
    with coordination.session(who if int(count) > 1 else None, Path(folder), **waiting):
        print(json.dumps(_saves()))


def main() -> None:
    """Measures, one after the other: a run that is cut keeps what it has."""
    found = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for what, counts in ((saves_of, PROCESSES), (checksums_of, HOSTS)):
        for count, delay in itertools.product(counts, DELAYS_MS):
            part = found.setdefault(what.__name__.removesuffix("_of"), {})
            part.setdefault(str(count), {})[str(delay)] = what(count, delay)
            GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    child(*sys.argv[1:]) if sys.argv[1:] else main()
