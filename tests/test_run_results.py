# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Folders of runs: what is found, what is listed as broken, what is refused."""

import papers
import pytest

from vit_jax.errors import BadInput
from vit_jax.experiments.tables import run_results


def test_runs_are_found_at_any_depth_but_not_in_checkpoints(tmp_path):
    older = "b/000-dataset=digits,seed=0"  # names do not matter
    for place in ("a", "b/c/d", older, "a/checkpoints/1", ".hidden/e"):
        papers.transfer(tmp_path / place, 90.0)
    runs, broken = run_results.read(tmp_path)
    assert [run.folder for run in runs] == [tmp_path / p for p in ("a", older, "b/c/d")]
    assert broken == []
    assert runs[0].metric("test/top1") == pytest.approx(90.0)
    assert runs[0].examples("test/top1") == 10_000
    assert runs[0].metric("val/top1") is None
    assert runs[0].fine_tunes


def test_broken_runs_are_named_with_the_reason(tmp_path):
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "config.yaml").write_text("a: [")
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "config.yaml").write_text("nonsense: 1")
    papers.transfer(tmp_path / "json", 90.0)
    (tmp_path / "json" / "results.json").write_text("{")
    papers.transfer(tmp_path / "list", 90.0)
    (tmp_path / "list" / "results.json").write_text("[]")
    runs, broken = run_results.read(tmp_path)
    assert runs == []
    assert [text.split(": ")[0].rpartition("/")[2] for text in broken] == [
        "json", "key", "list", "yaml",
    ]  # fmt: skip


def test_unfinished_run_has_no_results_and_torn_rows_are_left_out(tmp_path):
    folder = papers.transfer(tmp_path / "a", None)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    run = run_results.read(tmp_path)[0][0]
    assert (run.results, run.metric("test/top1")) == (None, None)
    assert run.rows() == [{"step": 1}]


@pytest.mark.parametrize("value, said", [("NaN", "is nan"), ("93.2", "a share from 0 to 1"),
                                         ("Infinity", "is inf"), ("-0.1", "a share")])  # fmt: skip
def test_results_that_are_none_are_refused(tmp_path, value, said):
    folder = papers.transfer(tmp_path / "a", 90.0)
    (folder / "results.json").write_text(f'{{"test": {{"top1": {value}, "loss": 3.2}}}}')
    with pytest.raises(BadInput, match=said) as caught:
        run_results.read(tmp_path)
    assert f"{folder / 'results.json'}: test/top1" in str(caught.value)


def test_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        run_results.read(tmp_path / "no")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        run_results.read(tmp_path / "file")
    assert run_results.read(tmp_path) == ([], [])
