# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Plans of every pre-training recipe of the paper: golden/plans.json, and docs/plans.md from it.

    python tests/plans.py [v3-512 ...]     makes what is missing, or what is on these accelerators

Takes an hour or two on one core, needs the extra `plan` and 16 GiB (BiT is not scanned).
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "plans.json"
PAGE = ROOT / "docs" / "plans.md"
TODAY = "v6e-256"


def recipes() -> list[dict[str, Any]]:
    """Every row: the argument of configs/pretrain.py, an accelerator, and settings beside it."""
    sys.path.insert(0, str(ROOT))
    from configs import pretrain

    rows = []
    for dataset, models in pretrain.TABLE_3.items():
        for model, row in models.items():
            for epochs in row.epochs:
                recipe = f"model={model},dataset={dataset},epochs={epochs}"
                big = dataset == "imagenet21k" and model == "L/16"
                then = ("v3-8", ["accumulation=32"]) if big else ("v3-512", [])
                for accelerator, settings in (then, (TODAY, [])):
                    rows.append(
                        {"recipe": recipe, "accelerator": accelerator, "settings": settings}
                    )
    return rows


def make(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its figures."""
    from vit_jax import config as config_lib
    from vit_jax import plan, topology

    overrides = [f"--config.{setting}" for setting in row["settings"]]
    config = config_lib.load(f"{ROOT}/configs/pretrain.py:{row['recipe']}", overrides)
    began = time.monotonic()
    made = plan.plan(config, topology.find(row["accelerator"]))
    print(row, f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    figures = made.to_json() | {"compile_secs": round(made.measured.compile_secs)}
    return row | figures


def key(row: dict[str, Any]) -> tuple[str, str]:
    return row["recipe"], row["accelerator"]


def load() -> list[dict[str, Any]]:
    return json.loads(GOLDEN.read_text()) if GOLDEN.exists() else []


def main(accelerators: list[str]) -> None:
    have = {key(row): row for row in load() if row["accelerator"] not in accelerators}
    wanted = sorted(recipes(), key=lambda row: ("BiT" in row["recipe"], "R" in row["recipe"]))
    for row in wanted:
        if key(row) in have and have[key(row)]["settings"] == row["settings"]:
            continue
        have[key(row)] = make(row)
        rows = [have[key(r)] for r in recipes() if key(r) in have]
        GOLDEN.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
