# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The cells that few-shot evaluation of pre-training runs fills, and those of measured speed.

Table 8 and Figures 8 and 9 do not state the pre-training data. JFT-300M is an inference: Figure 13
has the model of Table 8 and names JFT-300M. Start from the function of the wanted table.
"""

from typing import Any

from vit_jax.experiments.tables.cells import Cell, Table, Want
from vit_jax.paper import results

SHOTS = "fewshot_imagenet/5shot"
_JFT = "Pre-trained on JFT-300M (inference: the paper does not say)."
_POSEMB = {"No": "none", "1-D": "learned1d", "2-D": "learned2d", "Rel.": "relative"}
_AT = {"Default/Stem": "stem", "Every Layer": "every", "Every Layer-Shared": "shared"}


def table_8() -> Table:
    """Returns Table 8: position embeddings of B/16."""
    cells = []
    for value in results.table_8():
        kind, at = _POSEMB[value.labels[0].split(" ")[0]], _AT[value.labels[1]]
        settings = (("model.posemb", kind), ("model.posemb_at", at))
        cells.append(_shots(value, "B/16", settings))
    return Table(
        "8", f"Table 8: {results.caption(8)} (ImageNet 5-shot in %)", ("embedding", "where"),
        tuple(cells), digits=3, models=(0, 1), notes=(_JFT,),
    )  # fmt: skip


def _shots(
    value: results.Value, variant: str, settings: tuple[tuple[str, Any], ...] = (), **more: Any
) -> Cell:
    """Returns a cell that the 5-shot ImageNet accuracy of a JFT-300M pre-training run fills."""
    want = Want(variant, upstream="jft", metric=SHOTS, settings=settings, **more)
    kind = "absent" if value.value is None else "private"
    std = results.spread("ImageNet")[1]
    return Cell(value.labels, kind, value.value, std, 1, (want,), x=value.x)


def figure_4() -> Table:
    """Returns Figure 4: 5-shot accuracy by the size of a subset of JFT-300M."""
    cells = []
    for value in results.figure(4):
        variant = results.variant(value.labels[0])
        assert value.x is not None
        subset = round(1e6 * value.x)
        settings = () if subset > 300e6 else (("data.examples", subset),)
        cells.append(_shots(value, variant, settings))
    return Table(
        "figure4", f"Figure 4: {results.caption(4, figure=True)} (ImageNet 5-shot in %)",
        ("model", "million images"), tuple(cells), models=(0,), series=1, log="x",
        axes=("million images of JFT-300M", "ImageNet 5-shot in %"),
        notes=("The paper stopped the runs on subsets early (section 4.3); ours take the last "
               "step.",),
    )  # fmt: skip


def figure_8() -> Table:
    """Returns Figure 8: depth, width, patch.

    The paper defines the model only at the point where all lines meet.
    """
    sizes = (("model.width", 1024), ("model.depth", 8), ("model.mlp", 2048))
    cells = [
        _shots(value, "custom/32", sizes, known=value.x == 1.0 and "ImageNet" in value.labels[0])
        for value in results.figure(8)
    ]
    return Table(
        "figure8", f"Figure 8: {results.caption(8, figure=True)} (5-shot in %)",
        ("metric", "what is scaled", "relative compute"), tuple(cells), series=2, log="x",
        axes=("relative compute", "5-shot in %"),
        notes=(_JFT, "Settings are known at relative compute 1 only: 8 layers, 1024, 2048, /32."),
    )  # fmt: skip


def figure_9() -> Table:
    """Returns Figure 9: class token against pooling, during training.

    Only the last point is the result of a run.
    """
    cells = []
    for value in results.figure(9):
        pool = "gap" if value.labels[0].startswith("GAP") else "token"
        rate = float(value.labels[0].rpartition("=")[2])
        settings = (("model.pool", pool), ("schedule.lr", rate))
        cells.append(_shots(value, "B/32", settings, known=value.x == 7.0))
    return Table(
        "figure9", f"Figure 9: {results.caption(9, figure=True)} (ImageNet 5-shot in %)",
        ("series", "epoch"), tuple(cells), series=1, axes=("epoch", "ImageNet 5-shot in %"),
        notes=(_JFT, "The model is B/32 (inference: rate and accuracy). Runs fill epoch 7."),
    )  # fmt: skip


def figure_12() -> Table:
    """Returns Figure 12: speed and memory of one core of a TPUv3; no run measures them."""
    cells = [Cell(v.labels, "unfillable", v.value, x=v.x) for v in results.figure(12)]
    return Table(
        "figure12", f"Figure 12: {results.caption(12, figure=True)}",
        ("quantity", "model", "pixels"), tuple(cells), digits=0, series=2, log="xy",
        axes=("pixels a side", "images/s a core, or images"),
        notes=("Measured on a TPUv3; training runs do not measure it.",),
    )  # fmt: skip
