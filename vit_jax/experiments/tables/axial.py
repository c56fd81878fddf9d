# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The cells of Figure 13: axial attention. Start from `figure_13`."""

from vit_jax.experiments.tables import compute
from vit_jax.experiments.tables.ablations import SHOTS
from vit_jax.experiments.tables.cells import Cell, Table, Want
from vit_jax.paper import results

EPOCHS = 7
_DRAWN = 0.005  # allowance for numbers that are read off a logarithmic axis
_WHY = {
    "AxialResNet50": "ours are the products alone; XLA's count, with norms, softmax and ReLU, is "
    "54.5",
}
_NOTES = (
    "Pre-trained on JFT-300M for 7 epochs at 224 pixels (inference: these exaFLOPs are those of 7 "
    "epochs in Table 6). The paper does not state the recipe of the axial models, so no run fills "
    "their accuracy.",
    "exaFLOPs of ours: 3 x 2 x multiply-adds of a forward pass (head of 1,000 classes) x 303 "
    "million images x 7. Within tolerance: 0.5 %, an allowance for reading the figure; for "
    "ResNet50 also without the multiplications by zeros of padding.",
    "The speeds are of a TPUv3 core; no run of ours measures them.",
)


def figure_13() -> Table:
    """Returns Figure 13: few-shot accuracy, compute and speed of axial models."""
    cells = []
    for value in results.figure(13):
        quantity, model = value.labels
        variant = model if model.startswith("Axial") else results.variant(model)
        if quantity == "exaFLOPs":
            ours = compute.exaflops(variant, EPOCHS)
            padding = compute.padding_exaflops(variant, EPOCHS) if variant.startswith("BiT") else 0
            accepts = (1 - _DRAWN) * (ours - padding), (1 + _DRAWN) * ours
            cells.append(
                Cell(value.labels, "public", value.value, ours=ours, accepts=accepts,
                     why=_WHY.get(model, ""))
            )  # fmt: skip
        elif quantity == "ImageNet 5-shot":
            known = not model.startswith("Axial")
            want = Want(variant, upstream="jft", epochs=(EPOCHS,), metric=SHOTS, known=known)
            std = results.spread("ImageNet")[1]
            cells.append(Cell(value.labels, "private", value.value, std, 1, (want,)))
        else:
            cells.append(Cell(value.labels, "unfillable", value.value))
    return Table(
        "figure13", f"Figure 13: {results.caption(13, figure=True)} (5-shot in %)",
        ("quantity", "model"), tuple(cells), models=(1,), notes=_NOTES,
    )  # fmt: skip
