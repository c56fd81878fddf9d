# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax bench tpu`: steps compared by the TPU compiler's clock."""

import importlib.util
import json

import pytest

from vit_jax.cli import main
from vit_jax.errors import RunFailed
from vit_jax.preflight.bench import tpu_clock
from vit_jax.preflight.bench.interleaved import Asked

SMALL = ("--batch=8", "--resolution=32", "--config.model.depth=1")


def figures(secs):
    return {
        "secs": secs, "img_per_sec": 8 / secs, "mfu": 0.5, "peak_bytes": 2**30, "compile_secs": 3.0,
    }  # fmt: skip


@pytest.fixture
def compiler(monkeypatch):
    """Stands in for the compiler's process: candidate -> figures, or None if it dies."""
    answers = {"ours": figures(0.02), "baseline": figures(0.03)}

    class Stub:
        def __init__(self, *_, died):
            self.died = died

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, candidate):
            if answers[candidate] is None:
                raise RunFailed(self.died)
            return answers[candidate]

    monkeypatch.setattr(tpu_clock, "Child", Stub)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name == "libtpu" else real(name)
    )
    return answers


def test_every_model_and_tpu_has_a_row(compiler, capsys):
    args = ["bench", "tpu", "--models=Ti/16,S/16", "--tpu=v5e,v3", "--json", *SMALL]
    assert main.main(args) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["tpu"], row["model"]) for row in rows] == [
        ("v5e", "Ti/16"), ("v5e", "S/16"), ("v3", "Ti/16"), ("v3", "S/16"),
    ]  # fmt: skip
    assert rows[0]["ratio"] == pytest.approx(1.5)
    assert {key: rows[0][key] for key in ("batch", "resolution", "dtype")} == {
        "batch": 8, "resolution": 32, "dtype": "bfloat16",
    }  # fmt: skip


def test_ours_alone_has_no_ratio(compiler):
    del compiler["baseline"]
    (row,) = tpu_clock.table([Asked("Ti/16", 8, 32, "bfloat16")], ["v5e"], alone=True)
    assert (row["ours"]["secs"], row["baseline"], row["ratio"]) == (0.02, None, None)
    assert "baseline" not in tpu_clock.text([row])


def test_text_says_that_these_are_estimates(compiler, capsys):
    compiler["baseline"] = {"error": "does not fit in memory"}
    assert main.main(["bench", "tpu", "--models=Ti/16", *SMALL]) == 0
    header, row = capsys.readouterr().out.splitlines()[-2:]
    assert "estimated by the TPU compiler" in header
    assert "ours 20.0 ms, 400 images/s, MFU 50.0%, 1.00 GiB" in row
    assert row.endswith("baseline does not fit in memory")


def test_nothing_but_errors_is_an_error(compiler, capsys):
    compiler["ours"] = {"error": "does not fit in memory"}
    assert main.main(["bench", "tpu", "--models=Ti/16", *SMALL]) == 2
    shown = capsys.readouterr()
    assert "ours does not fit in memory" in shown.out
    assert "give a smaller --batch" in shown.err


def test_a_compiler_that_dies_leaves_the_other_figures(compiler, capsys):
    compiler["baseline"] = None
    assert main.main(["bench", "tpu", "--models=Ti/16", *SMALL]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    assert "ours 20.0 ms" in row
    assert "ran out of this machine's memory" in row
    compiler["ours"] = None
    assert main.main(["bench", "tpu", "--models=Ti/16", *SMALL]) == 2


@pytest.mark.parametrize("name", ["v9", "h100", ""])
def test_unknown_tpus_are_named_with_the_known_ones(compiler, name, capsys):
    assert main.main(["bench", "tpu", f"--tpu={name}", *SMALL]) == 2
    assert "choose from v2, v3, v4, v5e, v5p, v6e, tpu7x" in capsys.readouterr().err


def test_missing_compiler_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main.main(["bench", "tpu", *SMALL]) == 2
    assert "vit_jax[plan]" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
def test_a_small_step_by_the_real_clock(capsys):
    args = ["bench", "tpu", "--models=Ti/16,Mixer-S/16", "--tpu=v3", "--json", *SMALL]
    assert main.main(args) == 0
    plain, mixer = json.loads(capsys.readouterr().out)["rows"]
    for found in (plain["ours"], plain["baseline"], mixer["ours"]):
        assert 0 < found["secs"] < 0.1
        assert 0 < found["mfu"] < 1
        assert found["peak_bytes"] > 2**20
    assert plain["ratio"] == pytest.approx(plain["baseline"]["secs"] / plain["ours"]["secs"])
    assert mixer["baseline"] is None
    assert mixer["ratio"] is None


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
def test_the_newest_tpu_uses_its_peak_as_well_as_the_one_before(capsys):
    """Its clock is derived: a wrong number of multipliers would halve or double the share."""
    args = ["bench", "tpu", "--models=Ti/16", "--tpu=v6e,tpu7x", "--json", *SMALL]
    assert main.main(args) == 0
    before, newest = (row["ours"]["mfu"] for row in json.loads(capsys.readouterr().out)["rows"])
    assert newest == pytest.approx(before, rel=0.35)
