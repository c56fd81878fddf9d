# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Steps by the TPU compiler's clock; writes golden/tpu_steps.json and a table of performance.md.

    python tests/tpu_steps.py [v5e ...]     makes the missing steps, or those of these TPUs

A step takes 1 to 40 minutes to compile; needs the extra `plan`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from vit_jax.hardware import topology

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "tpu_steps.json"
PAGE = ROOT / "docs" / "performance.md"
TPUS = ("v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
# Model -> images a device.
IMAGES = {
    "S/16": 128, "B/16": 64, "L/16": 32, "H/14": 32, "So400m/14": 64, "g/14": 16, "R50+B/16": 64,
    "BiT-R101x1": 32,
}  # fmt: skip
# The same on devices with 16 GiB; 0: state, gradients and kernels do not fit.
IMAGES_OF_SMALL = IMAGES | {"H/14": 8, "So400m/14": 32, "g/14": 0}
# big_vision's own step, milliseconds: its default, which is unrolled, by the same clock.
BIG_VISION = {
    ("S/16", "v3"): 181.5, ("L/16", "v3"): 330.6, ("B/16", "v5e"): 79.1, ("B/16", "v6e"): 31.5,
}  # fmt: skip
HEAD = (
    "| model, images, TPU | ours, ms | images/s | MFU | GiB | plain step, ms | GiB "
    "| its time to ours | big_vision's step, ms |\n|---|---|---|---|---|---|---|---|---|\n"
)


def cells() -> list[tuple[str, str, int]]:
    """(model, TPU, images) of every row."""
    small = [tpu for tpu in TPUS if topology.GENERATIONS[tpu].memory_bytes <= 16 * 2**30]
    return [
        (model, tpu, images)
        for model in IMAGES
        for tpu in TPUS
        if (images := (IMAGES_OF_SMALL if tpu in small else IMAGES)[model])
    ]


def load() -> dict[tuple[str, str], dict[str, Any]]:
    """(model, TPU) -> a row of `vit_jax bench tpu --json`."""
    rows = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else []
    return {(row["model"], row["tpu"]): row for row in rows}


def known() -> dict[tuple[str, str], dict[str, Any]]:
    """The rows in which our step has figures."""
    return {key: row for key, row in load().items() if "secs" in row["ours"]}


def make(model: str, tpu: str, images: int, *, alone: bool = False) -> dict[str, Any]:
    """The row, made in minutes, without the plain step if ours is `alone`."""
    from vit_jax.preflight.bench import tpu_clock
    from vit_jax.preflight.bench.interleaved import Asked

    asked = [Asked(model, images, 224, "bfloat16")]
    (row,) = tpu_clock.table(asked, [tpu], alone=alone)
    return row


def save(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Writes the rows, and the page with them."""
    kept = [rows[model, tpu] for model, tpu, _ in cells() if (model, tpu) in rows]
    GOLDEN.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(load()))


def page(rows: dict[tuple[str, str], dict[str, Any]]) -> str:
    """docs/performance.md with the table of these rows."""
    table = HEAD + "".join(map(_line, rows.values()))
    text, found = re.subn(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, PAGE.read_text())
    assert found == 1, f"{PAGE} has {found} such tables"
    return text


def _line(row: dict[str, Any]) -> str:
    model, tpu, ours, plain = row["model"], row["tpu"], row["ours"], row.get("baseline")
    half = topology.GENERATIONS[tpu].devices_per_chip == 2
    columns = [f"{model}, {row['batch']}, {tpu}{' core' if half else ''}", *[""] * 7]
    if "error" in ours:
        columns[1] = ours["error"]
    else:
        columns[1:5] = [
            f"{1000 * ours['secs']:.1f}",
            f"{ours['img_per_sec']:,.0f}",
            f"{100 * ours['mfu']:.0f} %",
            f"{ours['peak_bytes'] / 2**30:.2f}",
        ]
    if plain and "secs" in plain:
        columns[5:7] = [f"{1000 * plain['secs']:.1f}", f"{plain['peak_bytes'] / 2**30:.2f}"]
        if "secs" in ours:
            columns[7] = f"{plain['secs'] / ours['secs']:.2f}"
    columns.append(f"{BIG_VISION[model, tpu]}" if (model, tpu) in BIG_VISION else "")
    return f"| {' | '.join(columns)} |\n"


def main(tpus: list[str]) -> None:
    """Makes the rows that are missing (of these TPUs, if any are given), one after another."""
    if unknown := set(tpus) - set(TPUS):
        sys.exit(f"{', '.join(unknown)}: choose from {', '.join(TPUS)}.")
    for model, tpu, images in cells():
        if (tpu in tpus) if tpus else (model, tpu) not in known():
            row = make(model, tpu, images)  # meanwhile, others may save theirs
            save(load() | {(model, tpu): row})
    PAGE.write_text(page(load()))


if __name__ == "__main__":
    main(sys.argv[1:])
