# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Computes the cost of pre-training and fine-tuning from our models. Start from `exaflops`.

The only file of this room that needs models, and with them jax; it imports them when called.
"""

import functools
import statistics
from collections.abc import Iterable

from vit_jax.config import images as images_lib
from vit_jax.experiments.tables.run_results import Run
from vit_jax.hardware import topology
from vit_jax.paper import pretraining, results

IMAGES = {"jft": 303e6, "imagenet21k": 14_197_122, "imagenet": 1_281_167}
CORE = topology.GENERATIONS["v3"].flops  # peak FLOP/s; a chip has two cores
DAY = 86_400.0
EXAFLOPS_NOTES = (
    "exaFLOPs of ours: 3 x 2 x multiply-adds of a forward pass at 224 pixels (head of 1,000 "
    "classes) x 303 million images x epochs. The paper does not state its convention. Ours counts "
    "multiplications by the zeros of padding; XLA's cost analysis does not. Within tolerance: the "
    "printed integer, give or take half, lies between the two counts. They differ in ResNets and "
    "hybrids only.",
)
_ROUNDING = 0.5  # Table 6 prints whole exaFLOPs
# Rows of Table 6 that neither convention gives -> the reason, as far as known.
_UNEXPLAINED = {
    ("B/32", 7): "Figure 5 has 56 for the same model: Table 6 seems to cut off decimals",
    ("H/14", 14): "not explained",
    ("R50+L/16", 7): "the paper contradicts itself: half of its 1668 for 14 epochs is 834",
}


@functools.cache
def forward_flops(variant: str, pixels: int) -> int:
    """Returns the FLOPs (2 per multiply-add) of one image, with a head of 1,000 classes.

    The 18,291 classes of JFT-300M would add up to 0.9 %, which would leave Table 6's bounds.
    """
    from vit_jax.models import variants

    cfg = variants.config(variant=variant, classes=1000, **variants.published(variant))
    return variants.forward_flops(cfg, pixels, pixels)


def training_flops(run: Run) -> float:
    """Returns the FLOPs of a finished run: 3 forward passes for each image that it saw."""
    from vit_jax.models import variants

    size, assigned = images_lib.parse(run.config["data.image_size"]), "model."
    settings = {
        k.removeprefix(assigned): v for k, v in run.config.items() if k.startswith(assigned)
    }
    cfg = variants.config(**settings, classes=100)
    assert run.results is not None, run.folder
    assert size is not None, run.folder
    images = run.results["step"] * run.config["batch_size"]
    return 3 * images * variants.forward_flops(cfg, *size, run.config["data.channels"])


def exaflops(variant: str, epochs: float, dataset: str = "jft") -> float:
    """Returns the compute of pre-training at 224 pixels, in exaFLOPs."""
    forward = forward_flops(variant, pretraining.common().resolution)
    return 3 * forward * IMAGES[dataset] * epochs / 1e18


def of_table_6(variant: str, epochs: int) -> tuple[float, tuple[float, float], str]:
    """Returns our exaFLOPs, the printed values that agree with them, and why one may not."""
    ours = exaflops(variant, epochs)
    accepts = ours - padding_exaflops(variant, epochs) - _ROUNDING, ours + _ROUNDING
    return ours, accepts, _UNEXPLAINED.get((variant, epochs), "")


def padding_exaflops(variant: str, epochs: float) -> float:
    """Returns the part of `exaflops` on JFT-300M that multiplies by zeros of padding."""
    return 3 * 2 * padding_multiply_adds(variant) * IMAGES["jft"] * epochs / 1e18


@functools.cache
def padding_multiply_adds(variant: str, side: int = 224) -> int:
    """Returns the multiplications by zeros of padding in the convolutions of a model's ResNet.

    Counts a 7 x 7 root of stride 2 and units with a 3 x 3 convolution, all of which pad so that
    sizes only change by the stride.
    """
    from vit_jax.models import variants

    resnet = variants.config(variant=variant, classes=1, **variants.published(variant)).inner_resnet
    if resnet is None:
        return 0
    root = _padded(side, 7, 2) * 3 * resnet.width
    side, total = side // 4, root
    for stage, units in enumerate(resnet.stages):
        inside = (resnet.width * 2**stage) ** 2
        first = 2 if stage else 1
        total += inside * _padded(side, 3, first)
        side //= first
        total += inside * _padded(side, 3, 1) * (units - 1)
    return total


def _padded(side: int, kernel: int, stride: int) -> int:
    """Returns the positions of a padded square map, summed over outputs, that lie outside it."""
    before = (kernel - 1) // 2
    inside = sum(
        0 <= out * stride + tap - before < side
        for out in range(side // stride)
        for tap in range(kernel)
    )
    return (side // stride * kernel) ** 2 - inside**2


def chip_hours(total_flops: float) -> float:
    """Returns the hours of one TPUv3 chip at `utilisation`."""
    return total_flops / (2 * CORE * utilisation()) / 3600


@functools.cache
def utilisation() -> float:
    """Returns the share of a core's peak that Table 2 implies for H/14.

    Table 2 gives 2,500 core-days, which imply 19.7 TFLOP/s.
    """
    flops = exaflops("H/14", 14) * 1e18
    return flops / (results.core_days()["Ours-JFT (ViT-H/14)"] * DAY) / CORE


def core_days(variant: str, epochs: int, dataset: str, share: float) -> float:
    """Returns the TPUv3 core-days of pre-training at a share of the peak."""
    return exaflops(variant, epochs, dataset) * 1e18 / (share * CORE) / DAY


# Column of Table 2 -> model, epochs and data of its pre-training. 90 epochs are those of the
# published weights.
_COLUMNS = {
    "Ours-JFT (ViT-H/14)": ("H/14", 14, "jft"),
    "Ours-JFT (ViT-L/16)": ("L/16", 14, "jft"),
    "Ours-I21k (ViT-L/16)": ("L/16", 90, "imagenet21k"),
}


def core_days_notes() -> tuple[str, ...]:
    """Returns notes on core-days: Table 2's, the implied throughput, ours at H/14's throughput."""
    notes = []
    for column, (variant, epochs, dataset) in _COLUMNS.items():
        theirs, total = results.core_days()[column], exaflops(variant, epochs, dataset)
        rate = total * 1e18 / (theirs * DAY) / 1e12
        ours = core_days(variant, epochs, dataset, utilisation())
        notes.append(
            f"TPUv3 core-days, {column}: paper {theirs:,}, which for our {total:,.0f} exaFLOPs of "
            f"{epochs} epochs implies {rate:.1f} TFLOP/s a core; planned at {utilisation():.0%} of "
            f"the peak, {ours:,.0f}."
        )
    return tuple(notes)


def measured_core_days(runs: Iterable[Run]) -> list[str]:
    """Returns notes on Table 2's core-days at the share of the peak that its models' runs reach."""
    notes = []
    models = {variant for variant, *_ in _COLUMNS.values()}
    for run in runs:
        if run.fine_tunes or run.config["model.variant"] not in models:
            continue
        shares = [row["perf/mfu"] for row in run.rows() if "perf/mfu" in row]
        for column, (variant, epochs, dataset) in _COLUMNS.items():
            if shares and run.config["model.variant"] == variant:
                share = statistics.median(shares)
                notes.append(
                    f"TPUv3 core-days, {column}: {core_days(variant, epochs, dataset, share):,.0f} "
                    f"at the {share:.0%} of the peak that {run.folder} reaches on its devices."
                )
    return notes
