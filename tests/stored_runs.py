# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lays checkpoints of many hosts into the stand-in for a bucket, without training them.

`requests_of_a_restart` counts what one of many processes asks for when a run starts again, and
`requests_of_a_commit` what process 0 asks for at the end of a save. Both run the package's code.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import fake_gcs

from vit_jax.checkpoints import step_folders
from vit_jax.storage import checksums, jsonl
from vit_jax.storage import files as storage

WORKDIR = "gs://bucket/run"
FILES = 4  # of each process in a step: with two processes, orbax writes 3 to 9 for each


def lay(store: fake_gcs.Store, steps: range, hosts: int, rows: int = 0) -> None:
    """Lays steps, each with the files of so many hosts, and rows of metrics into the store."""
    for step in steps:
        folder, content = f"run/{step_folders.FOLDER}/{step}", b"a" * 1000
        names = [f"state/ocdbt.process_{h}/{n}" for h in range(hosts) for n in range(FILES)]
        for name in names:
            store.put("bucket", f"{folder}/{name}", content)
        digest = hashlib.sha256(content).hexdigest()
        text = "".join(f"{digest}  {name}\n" for name in names)
        store.put("bucket", f"{folder}/{checksums.FILE}", checksums.seal(text))
        store.put("bucket", f"{folder}/commit_success.txt", b"committed")
    rows_folder = jsonl.rows_path(storage.path(f"{WORKDIR}/{jsonl.METRICS_FILE}"))
    for n in range(rows):
        name = str(rows_folder / f"{n + 1:09d}-{n:06d}.jsonl").removeprefix("gs://bucket/")
        store.put("bucket", name, b'{"step": %d, "train/loss": 1.0}\n' % (n + 1))


class _Replayed:
    """The peer links of one process: the answers of process 0 are those that it gave before."""

    def __init__(self, index: int, count: int, answers: dict[str, str]):
        self.index, self.count, self.answers = index, count, answers

    def gather(self, name: str, value: str, _: float) -> list[str]:
        first = self.answers.setdefault(name, value)
        return [first] + [value] * (self.count - 1)


@contextlib.contextmanager
def process(index: int, count: int, answers: dict[str, str]) -> Iterator[None]:
    """Lets this process be one of many; process 0 must come first, to fill `answers`.

    Nothing can be saved: orbax's writer would ask jax's service, which is not there.
    """
    import jax

    from vit_jax.checkpoints import array_files
    from vit_jax.runtime import coordination

    who: Any = mock.Mock(index=index, count=count)
    line: Any = _Replayed(index, count, answers)
    with (
        mock.patch.object(coordination, "_now", coordination._Session(who, line, 60.0)),
        mock.patch.object(array_files, "Writer"),
        mock.patch.object(jax, "process_index", return_value=index),
        mock.patch.object(jax, "process_count", return_value=count),
    ):
        yield


def requests_of_a_restart(
    store: fake_gcs.Store, count: int, steps: int, rows: int
) -> list[dict[str, int]]:
    """Returns kind of request -> number, for process 0 and for process 1 of `count`.

    From the first look into the workdir until the newest checkpoint is verified; neither the
    configuration nor the restoring of arrays, which orbax does.

    Args:
      store: the stand-in, which is emptied.
      count: number of processes, and of those that wrote the checkpoints.
      steps: number of checkpoints.
      rows: number of rows of metrics.jsonl.
    """
    from vit_jax.checkpoints.checkpoints import Checkpoints
    from vit_jax.training import metric_writer
    from vit_jax.training import workdir as workdir_lib

    store.reset()
    lay(store, range(1, steps + 1), count, rows)
    answers: dict[str, str] = {}
    found = []
    for index in (0, 1):
        store.asked.clear()
        with process(index, count, answers):
            workdir = storage.workdir(WORKDIR)
            assert workdir_lib.has_checkpoint_for_all(workdir)
            with Checkpoints(workdir) as checkpoints:
                step = checkpoints.newest_good()
            assert step
            metric_writer.Report(workdir, step=rows, write=index == 0).close()
        found.append(store.counted())
    return found


def requests_of_a_commit(store: fake_gcs.Store, hosts: int) -> dict[str, int]:
    """Returns kind of request -> number, of the checksums that process 0 writes before a commit.

    The arrays are tiny: a large one costs more requests.
    """
    lay_uncommitted(store, hosts)
    checksums.write(uncommitted())
    return store.counted()


def uncommitted() -> Path:
    """Returns the folder of the step that `lay_uncommitted` lays."""
    return storage.path(WORKDIR) / step_folders.FOLDER / "1"


def lay_uncommitted(store: fake_gcs.Store, hosts: int) -> None:
    """Empties the stand-in and lays one step of so many hosts, without checksums."""
    store.reset()
    lay(store, range(1, 2), hosts)
    del store.objects["bucket", str(uncommitted() / checksums.FILE).removeprefix("gs://bucket/")]
    store.asked.clear()
