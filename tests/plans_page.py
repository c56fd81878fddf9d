# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Plans recipes; writes golden/plans.json, golden/plans_others.json and docs/plans.md.

    python tests/plans_page.py [v3-512 ...]     makes the missing plans, or those of these accelerators

Makes those without an estimate again. All take four hours on two cores; needs the extra `plan`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "plans.json"
OTHERS_GOLDEN = ROOT / "tests" / "golden" / "plans_others.json"
PAGE = ROOT / "docs" / "plans.md"
TODAY = "v5e-256"
INTRODUCTION = """\
# Plans of the paper's pre-training recipes

These tables show the output of `vit_jax plan` for every recipe of `configs/pretrain.py`. Use them to see whether a recipe
fits a TPU and what it costs. To make such a plan yourself (`pip install 'vit_jax[plan]'`; no TPU needed):

```console
vit_jax plan --config=configs/pretrain.py:model=L/16,dataset=jft,epochs=7 --accelerator=v3-512
```

Each recipe has a plan for the TPUv3 of the paper and one for a current TPU (v5e-256). The TPUv3 is v3-512, except for L/16
on ImageNet-21k. Section 4.2 of the paper says that v3-8 is enough for that model.

| columns | source |
|---|---|
| peak GiB, of limit | the memory that the TPU compiler reserves on one device for the compiled step (libtpu 0.0.42, jax 0.10.2) |
| sends MB | collectives of the compiled program, per device and step; n/a if the compiler hides them |
| step ms at best, limited by, chip-hours at best | the roofline: a bound that no step reaches, see [planning.md](planning.md) |
| step ms estimated, MFU, images/s, hours, chip-hours | the TPU compiler's clock, an estimate ([planning.md](planning.md)) |
| not hidden | the share of the estimated step in which it only waits for collectives |
| compiled in s | wall time on two cores shared with other work; shows which models compile slowly, not how slowly |

None of these recipes was run on a TPU. The roofline assumes that the slowest of computing, memory traffic and sending runs at
its full rate and hides the other two. Rows without an estimate are of steps in an earlier form (a scan over layers), and were
not compiled again; their memory and what they send are of that form, too. Of H/14 only the row of v5e-256 with `mesh.fsdp=8`
is of today's attention, which takes 2 to 6 % off its steps.

H/14 shows what full memory costs. In an earlier form of the step, with its whole state on each device of v5e-256, it took
93 % of the memory, 1 % too much, and 279 ms, because the compiler computes much of it twice. With `accumulation=2` it took
214 ms, with `model.remat=dots` in a scan 236 ms, with `mesh.fsdp=2` 178 ms, and with `mesh.fsdp=8` 170 ms and half of the
memory.

| model | memory that the compiler itself needs |
|---|---|
| ViT, scanned | 1 to 2 GiB |
| ViT, unrolled | up to 21 GiB (g/14) |
| ViT with dropout, hybrid | up to 4 GiB |
| BiT, whose units cannot be scanned | 2 to 14 GiB |

`python tests/plans_page.py` writes this page; tests/test_plans.py checks it.
"""


OTHERS_INTRODUCTION = """\
## Other recipes

`estimated` is the TPU compiler's clock, `at best` the roofline; [planning.md](planning.md) says what they mean. Hours and
chip-hours are of the estimate. These steps were compiled before gradients were summed while other layers are computed, which
takes up to 6 % off a step on many chips. The command is `vit_jax plan --config=configs/RECIPE --accelerator=NAME`.

| recipe | accelerator | peak GiB | of limit | step ms estimated | MFU | step ms at best | images/s | hours | chip-hours |
|---|---|---|---|---|---|---|---|---|---|
"""
# Recipe -> accelerator.
OTHERS = {
    "mae.py:model=B/16,standin=true": "v5litepod-64",
    "mae.py:model=L/16,standin=true": "v5litepod-128",
    "mae.py:model=H/14,standin=true": "v5litepod-256",
    "mae_finetune.py:standin=true": "v5litepod-64",
    "masked.py:standin=true": "v5litepod-64",
    "dino.py:paper=dino,standin=true": "v5litepod-32",
    "dino.py:paper=ibot,standin=true": "v5litepod-64",
    "dino.py:paper=dinov2,standin=true": "v5litepod-128",
    "distill.py:standin=true": "v5litepod-32",
    "distill.py:paper=deit,standin=true": "v5litepod-32",
    "siglip.py:paper=siglip,standin=true": "v5litepod-256",
    "siglip.py:paper=siglip,lit=true,model=B/16,size=224,standin=true": "v5litepod-128",
    "segment.py:dataset=ade20k,model=B/16,head=mask_transformer,standin=true": "v5litepod-8",
    "segment.py:dataset=voc,model=B/16,standin=true": "v5litepod-8",
    "segment.py:dataset=cityscapes,model=B/16,head=mask_transformer,standin=true": "v5litepod-8",
    "detect.py:dataset=coco,model=B/16,standin=true": "v5litepod-64",
}


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
                large = dataset == "jft" and model == "H/14"  # whole, it takes 93 % of the memory
                today = TODAY, ["mesh.fsdp=8"] if large else []
                for accelerator, settings in (then, today):
                    rows.append(
                        {"recipe": recipe, "accelerator": accelerator, "settings": settings}
                    )
    return rows


def make(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its figures."""
    from vit_jax.config import load as config_lib
    from vit_jax.hardware import topology
    from vit_jax.preflight.plan import attribution, plan

    overrides = [f"--config.{setting}" for setting in row["settings"]]
    config = config_lib.load(f"{ROOT}/configs/pretrain.py:{row['recipe']}", overrides)
    began = time.monotonic()
    made = plan.plan(config, topology.find(row["accelerator"]))
    print(row, f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    figures = made.to_json() | {"compile_secs": round(made.measured.compile_secs)}
    del figures["input"]
    waits = sum(figures.pop("parts").get(attribution.COLLECTIVES, {}).values())
    return row | figures | {"unhidden_secs": waits}


def make_other(recipe: str) -> dict[str, Any]:
    """The figures of a recipe of `OTHERS`."""
    from vit_jax.config import load as config_lib
    from vit_jax.hardware import topology
    from vit_jax.preflight.plan import plan

    config = config_lib.load(f"{ROOT}/configs/{recipe}")
    made = plan.plan(config, topology.find(OTHERS[recipe])).to_json()
    print(recipe, made["estimated_step_secs"], file=sys.stderr)
    del made["parts"]
    return {"recipe": recipe, "accelerator": OTHERS[recipe], **made}


def key(row: dict[str, Any]) -> tuple[str, str]:
    return row["recipe"], row["accelerator"]


def load(golden: Path = GOLDEN) -> list[dict[str, Any]]:
    return json.loads(golden.read_text()) if golden.exists() else []


def page(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """docs/plans.md."""
    head = [
        "| model | epochs | settings | peak GiB | of limit | sends MB | step ms at best | limited by "
        "| chip-hours at best | step ms estimated | MFU | not hidden | images/s | hours "
        "| chip-hours | compiled in s |",
        "|" + "---|" * 16,
    ]
    lines = [INTRODUCTION]
    for dataset in dict.fromkeys(_argument(row, "dataset") for row in rows):
        for accelerator in dict.fromkeys(row["accelerator"] for row in rows):
            wanted = (dataset, accelerator)
            mine = [r for r in rows if (_argument(r, "dataset"), r["accelerator"]) == wanted]
            if mine:
                lines += [f"## {dataset} on {accelerator}", "", *head, *map(_line, mine), ""]
    return "\n".join(lines) + "\n" + OTHERS_INTRODUCTION + "".join(map(_other_line, others))


def _other_line(row: dict[str, Any]) -> str:
    cells = [
        f"`{row['recipe'].removesuffix('standin=true').rstrip(':,')}`",
        row["accelerator"],
        f"{row['peak_bytes'] / 2**30:.2f}",
        f"{row['share']:.0%}",
        f"{1000 * row['estimated_step_secs']:.1f}",
        f"{row['estimated_mfu']:.0%}",
        f"{1000 * row['step_secs']:.1f}",
        f"{row['images_per_sec'] * row['step_secs'] / row['estimated_step_secs']:,.0f}",
        f"{row['estimated_hours']:.1f}",
        f"{row['estimated_chip_hours']:,.0f}",
    ]
    return "| " + " | ".join(cells) + " |\n"


def _argument(row: dict[str, Any], name: str) -> str:
    return dict(part.split("=") for part in row["recipe"].split(","))[name]


def _line(row: dict[str, Any]) -> str:
    sent = row["collective_bytes"]
    total = None if sent is None else sum(n for kinds in sent.values() for n in kinds.values())
    estimated = [""] * 6
    if secs := row.get("estimated_step_secs"):
        estimated = [
            f"{1000 * secs:.1f}",
            f"{row['estimated_mfu']:.0%}",
            f"{row['unhidden_secs'] / secs:.1%}",
            f"{row['images_per_sec'] * row['step_secs'] / secs:,.0f}",
            f"{row['estimated_hours']:.2f}",
            f"{row['estimated_chip_hours']:,.0f}",
        ]
    cells = [
        _argument(row, "model"),
        _argument(row, "epochs"),
        " ".join(row["settings"]),
        f"{row['peak_bytes'] / 2**30:.2f}",
        f"{row['peak_bytes'] / row['limit_bytes']:.0%}",
        "n/a" if total is None else f"{total / 1e6:,.0f}",
        f"{1000 * row['step_secs']:.1f}",
        row["limited_by"],
        f"{row['chip_hours']:,.0f}",
        *estimated,
        f"{row['compile_secs']}",
    ]
    return "| " + " | ".join(cells) + " |"


def main(accelerators: list[str]) -> None:
    """Makes the rows that are missing (of these accelerators, if any are given), then the page."""
    have = {key(row): row for row in load()}
    for row in sorted(recipes(), key=lambda row: ("BiT" in row["recipe"], "R" in row["recipe"])):
        known = have.get(key(row))
        if known and known["settings"] == row["settings"] and "estimated_hours" in known:
            continue
        if accelerators and row["accelerator"] not in accelerators:
            continue
        made = longer(row, [one for one in have.values() if "estimated_hours" in one]) or make(row)
        have[key(row)] = made
        rows = [have[key(r)] for r in recipes() if key(r) in have]
        GOLDEN.write_text(json.dumps(rows, indent=1) + "\n")
    others = {row["recipe"]: row for row in load(OTHERS_GOLDEN)}
    for recipe, accelerator in OTHERS.items():
        known = others.get(recipe, {}).get("accelerator") == accelerator
        if not known and (not accelerators or accelerator in accelerators):
            others[recipe] = make_other(recipe)
            made = [others[name] for name in OTHERS if name in others]
            OTHERS_GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
    PAGE.write_text(page(load(), load(OTHERS_GOLDEN)))


def longer(row: dict[str, Any], known: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The figures of the same step in a recipe of another length: only time and cost differ."""
    same = ("model", "dataset")
    for other in known:
        alike = all(_argument(row, name) == _argument(other, name) for name in same)
        if alike and all(row[name] == other[name] for name in ("accelerator", "settings")):
            factor = int(_argument(row, "epochs")) / int(_argument(other, "epochs"))
            names = ("hours", "chip_hours", "estimated_hours", "estimated_chip_hours", "steps")
            more = {name: other[name] * factor for name in names}
            return other | row | more | {"steps": int(more["steps"])}
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
