# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The notebook runs from the first cell to the last, in a kernel of its own."""

import json
import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def tour():
    return nbformat.read(TOUR, as_version=4)


def test_notebook_is_kept_without_outputs(tour):
    nbformat.validate(tour)
    for cell in tour.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def run(tour, folder, monkeypatch, **shorter):
    """Executes the notebook in a folder; a cell that fails raises.

    Args:
      tour: read.
      folder: empty.
      monkeypatch: for the environment.
      shorter: text in cells, with _ for blanks -> what stands there instead.
    """
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    made = nbformat.from_dict(json.loads(json.dumps(tour)))
    for cell in made.cells:
        for given, instead in shorter.items():
            cell.source = cell.source.replace(given.replace("_", " "), instead)
    client = nbclient.NotebookClient(
        made, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return made


def output(notebook, begin):
    """Returns what the cell that begins so has printed and shown."""
    [cell] = [c for c in notebook.cells if c.source.startswith(begin)]
    return "".join(str(o.get("text", o.get("data", ""))) for o in cell.outputs)


def check(made, folder):
    assert "(12, 10)" in output(made, "import vit_jax")
    assert "image,rank,class,name,probability" in output(made, "%%bash\nvit_jax predict")
    assert "image/png" in output(made, "import matplotlib")
    assert output(made, "from IPython").count("image/png") == 3
    for name in ("evaluation/evaluation.html", "inside/index.html", "shapes.npz"):
        assert (folder / name).stat().st_size > 1000, name
    assert len((folder / "predictions.csv").read_text().splitlines()) == 13


def test_notebook_runs(tour, tmp_path, monkeypatch):
    made = run(tour, tmp_path, monkeypatch, **{"40_epochs": "9 epochs", "60_epochs": "5 epochs"})
    check(made, tmp_path)


@pytest.mark.slow
def test_notebook_as_it_is_learns_digits_and_shapes(tour, tmp_path, monkeypatch):
    made = run(tour, tmp_path, monkeypatch)
    check(made, tmp_path)
    results = [
        json.loads((tmp_path / f"runs/{n}/results.json").read_text()) for n in ("digits", "shapes")
    ]
    assert results[0]["test"]["top1"] > 0.9
    assert results[1]["test"]["top1"] > 0.8
