# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From EuroSAT's class folders to a row of Table 9, by the commands of docs/data.md."""

import csv
import re
import shlex
import statistics
from pathlib import Path

import numpy as np
import pictures
import pytest

from vit_jax.cli import main
from vit_jax.data.prepare import upstream
from vit_jax.experiments.tables import cells, run_matching, run_results
from vit_jax.experiments.tables.lineage import Ancestry
from vit_jax.paper import transfer

COUNTS = dict.fromkeys(upstream._CLASS_FOLDERS["eurosat/rgb"], 3000) | {
    "Highway": 2500, "Industrial": 2500, "PermanentCrop": 2500, "River": 2500, "Pasture": 2000,
}  # fmt: skip
SMALL = {
    "model.depth": 1, "model.width": 16, "model.mlp": 16, "model.heads": 2,
    "data.image_size": 32, "batch_size": 8, "schedule.warmup": "1 steps",
}  # fmt: skip
CHOSEN = "schedule.lr", "length"
QUIET = ("--config.report.page=false", "--config.report.writers=()", "--config.checkpoint.every=0")


@pytest.fixture
def satellite(tmp_path):
    """27,000 images in EuroSAT's folders; those of a class have one colour and some noise."""
    draw = np.random.default_rng(0)
    for label, count in COUNTS.items():
        folder, colour = tmp_path / "satellite" / label, draw.integers(40, 216, 3)
        folder.mkdir(parents=True)
        kinds = [
            pictures.encode((colour + pictures.noise(64, 64, seed=i) // 8).astype(np.uint8), "JPEG")
            for i in range(20)
        ]
        for i in range(count):
            (folder / f"{label}_{i + 1}.jpg").write_bytes(kinds[i % 20])
    return tmp_path / "satellite"


def weights(file):
    """A published file's name with a small model in it."""
    small = [f"--config.{key}={value}" for key, value in SMALL.items()]
    recipe = "vit_jax:pretrain:model=L/16,dataset=imagenet21k,epochs=90,standin=true"
    short = ["--data=digits", "--config.length=1 steps"]
    given = [f"--config={recipe}", *small, *short, *QUIET, "--workdir=pre"]
    assert main.main(["train", *given]) == 0
    assert main.main(["export", "pre", "--format=npz", f"--out={file}"]) == 0


def commands(root):
    """The words of the three commands."""
    page = (root / "docs" / "data.md").read_text()
    (block,) = re.findall(r"```sh\n(vit_jax data prepare vtab/eurosat.*?)```", page, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.slow
def test_class_folders_become_a_row_of_table_9(root, satellite, tmp_path, capsys, monkeypatch):
    """Rates and lengths compete on val200; but for its size, the final run fills the cell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transfer, "VTAB_STEPS", (2, 3))
    prepare, sweep, table = commands(root)
    (name,) = re.findall(r"init=([^,]*)", sweep[1])
    weights(tmp_path / name)
    prepare = [word.replace("/path/to/class_folders", str(satellite)) for word in prepare]
    assert main.main(prepare) == 0
    sweep[1] = sweep[1].replace("configs/transfer.py", str(root / "configs" / "transfer.py"))
    small = [f"--config.{key}={value}" for key, value in SMALL.items()]
    assert main.main([*sweep, *small, *QUIET, "--parallel=2"]) == 0

    with open("runs/eurosat/sweep.csv") as file:
        rows = list(csv.DictReader(file))
    selected = [row for row in rows if row["run"].startswith("select/")]
    final = [row for row in rows if row["run"].startswith("final/")]
    assert (len(selected), len(final)) == (4, 3)
    best = max(selected, key=lambda row: float(row["val/top1"]))
    for row in final:
        assert [row[key] for key in CHOSEN] == [best[key] for key in CHOSEN]
    assert [row["val/examples"] for row in selected] == ["200"] * 4
    assert [row["test/examples"] for row in final] == ["5400"] * 3

    capsys.readouterr()
    assert main.main(table) == 0
    (shown,) = [line for line in capsys.readouterr().out.splitlines()
                if "ViT-L/16 (I21k)" in line and "EuroSAT" in line]  # fmt: skip
    top1 = statistics.fmean(100 * float(row["test/top1"]) for row in final)
    assert f": {top1:.2f} ± " in shown
    assert "(3 runs)" in shown
    runs, broken = run_results.read(Path("runs/eurosat"))
    assert not broken
    wants = list({want for cell in cells.find("9").cells for want in cell.wants})
    placer = run_matching.Placer(wants, Ancestry(Path("runs/eurosat"), runs))
    for run in runs:
        ((want, place),) = placer.place(run).items()
        wanted = want.variant, want.upstream, want.dataset
        assert wanted == ("L/16", "imagenet21k", "vtab/eurosat")
        if run.config["recipe.stage"] == "final":
            assert {text.partition(":")[0] for text in place.why_not} == set(SMALL)
