# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes tables of what the authors published beside theirs: replications, results in the text.

A replication states its rate and selects nothing: a run without a stage, which trains on all but
the held-out part of train. Start from the function of the wanted table.
"""

from vit_jax.experiments.tables.cells import Cell, Table, Want
from vit_jax.paper import replications, results
from vit_jax.paper.replications import Replication


def _cell(row: Replication, labels: tuple[str, ...], **more: object) -> Cell:
    want = Want(row.model, row.dataset, row.upstream, dropout=row.dropout, rates=(row.rate,),
                fixed=True, **more)  # type: ignore[arg-type]  # fmt: skip
    return Cell(labels, "public", row.top1, row.std, row.runs, (want,))


def readme() -> Table:
    """Returns the fine-tunings in the README of vision_transformer, by dropout."""
    cells = [
        _cell(row, (row.dataset, str(row.dropout), row.model), epochs=(90,), preprocess="released")
        for row in replications.readme()
    ]
    return Table(
        "replication", "README of vision_transformer: weights from ImageNet-21k (top-1 in %)",
        ("tested on", "dropout", "model"), tuple(cells), models=(2,),
        notes=("The authors' loop drops the last incomplete batch: 9,728 of CIFAR's 10,000 images "
               "count.",),
    )  # fmt: skip


def big_vision() -> Table:
    """Returns big_vision's results of transfer.py: AugReg's B/32, means of five runs."""
    cells = [
        _cell(row, (row.dataset, row.model), recipe="augreg", epochs=(300,),
              preprocess="big_vision")
        for row in replications.big_vision()
    ]  # fmt: skip
    return Table(
        "big_vision", "big_vision, transfer.py: AugReg's weights from ImageNet-21k (top-1 in %)",
        ("tested on", "model"), tuple(cells),
        notes=("The deviation of the five runs is their range / 2.326.",),
    )  # fmt: skip


def mixer() -> Table:
    """Returns the fine-tunings of Mixer in the README of vision_transformer."""
    cells = [
        _cell(row, (row.upstream, row.dataset, row.model), recipe="mixer", size=224,
              preprocess="released")
        for row in replications.mixer()
    ]  # fmt: skip
    return Table(
        "mixer", "README of vision_transformer: Mixer at 224 pixels (top-1 in %)",
        ("pre-trained on", "tested on", "model"), tuple(cells), models=(2,),
    )  # fmt: skip


def masked() -> Table:
    """Returns the result of section 4.6: masked patch prediction, then ImageNet."""
    want = Want("B/16", "imagenet", "jft", "masked")
    labels = ("ViT-B/16", "JFT-300M", "ImageNet")
    cells = (Cell(labels, "private", results.masked_percent(), wants=(want,), rounding=0.05),)
    return Table(
        "masked", "Section 4.6: masked patch prediction (top-1 in %)",
        ("model", "pre-trained on", "tested on"), cells, digits=1,
        notes=("The recipe of the pre-training is configs/masked.py. The paper says 2 % above "
               "training from scratch; Table 5 has 77.91 for it.",),
    )  # fmt: skip


def objectnet() -> Table:
    """Returns the results of appendix D.9: ObjectNet."""
    cells = tuple(
        Cell(
            ("ViT-H/14", metric), "private", percent, rounding=0.05,
            wants=(Want("H/14", "imagenet", "jft", epochs=(14,), metric=f"objectnet/{metric}"),),
        )
        for metric, percent in results.objectnet().items()
    )  # fmt: skip
    return Table(
        "objectnet", "Appendix D.9: ObjectNet (in %)", ("model", "metric"), cells, digits=1,
        notes=("Read from the evaluation `objectnet` of an ImageNet run (also=objectnet). The "
               "paper evaluates as BiT does, which takes larger images.",),
    )  # fmt: skip
