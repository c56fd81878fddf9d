# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Workdirs in a bucket, against an object store on loopback."""

import pytest
from test_train import logged, parameters, run, stop_at

from vit_jax import rows, storage

RUN = "gs://bucket/runs/a run"


def test_run_in_a_bucket_is_stopped_and_continued_and_equals_one_on_a_disk(
    store, tmp_path, monkeypatch, capsys
):
    assert run(tmp_path / "quiet") == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            run(RUN)
    assert max(row["step"] for row in rows.read_rows(storage.path(RUN) / "metrics.jsonl")) > 4
    assert run(RUN) == 0
    assert logged(storage.path(RUN)) == logged(tmp_path / "quiet")
    assert [x.tolist() for x in parameters(storage.path(RUN))] == [
        x.tolist() for x in parameters(tmp_path / "quiet")
    ]
