# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The cells that fine-tuning fills: Tables 2, 5, 6, 7, 9 and Figures 2, 3, 5.

Each value of Tables 5, 6, 7 and of the figures counts as one run (inference: where Table 2 has the
mean of three, they differ from it). Start from the function of the wanted table.
"""

import math
import re

from vit_jax.experiments.tables import compute
from vit_jax.experiments.tables.cells import UPSTREAM, Cell, Kind, Table, Want
from vit_jax.paper import pretraining, results, vtab
from vit_jax.paper.results import Value

FIVE = ("ImageNet", "CIFAR-10", "CIFAR-100", "Oxford-IIIT Pets", "Oxford Flowers-102")
VTAB = "VTAB (19 tasks)"
_L16 = Want("L/16", upstream="imagenet21k", epochs=(30, 90))  # the public model of Tables 2 and 9


def _want(test: str, variant: str, upstream: str, **more: object) -> Want:
    """Returns the want for fine-tuning on `test`, a table's name, after the paper's pretraining."""
    more.setdefault("epochs", _epochs(variant, upstream))
    metric = "real/top1" if "ReaL" in test else "test/top1"
    return Want(variant, results.TESTS[test], upstream, metric=metric, **more)  # type: ignore[arg-type]


def _epochs(variant: str, upstream: str) -> tuple[int, ...]:
    """Returns the epochs of Table 3; H/14 on ImageNet-21k has no row but is published with 90."""
    row = pretraining.table_3()[upstream].get(variant)
    return row.epochs if row else {"imagenet21k": (90,), "imagenet": (300,)}.get(upstream, ())


def _tasks(variant: str, upstream: str, group: str = "") -> tuple[Want, ...]:
    return tuple(
        Want(variant, f"vtab/{task.slug}", upstream, epochs=_epochs(variant, upstream))
        for task in vtab.tasks()
        if group in ("", task.group)
    )


def _kind(value: float | None, upstream: str) -> Kind:
    if value is None:
        return "absent"
    return "private" if upstream == "jft" else "public"


def _std(test: str, variant: str, upstream: str) -> float:
    """Returns Table 2's deviation for that model if it has one, else for its row."""
    own, row = results.spread(test)
    return own if (variant, upstream) == (_L16.variant, _L16.upstream) else row


# ---------------------------------------------------------------- tables


def table_2() -> Table:
    """Returns Table 2: comparison with the state of the art."""
    cells = []
    for value in results.table_2():
        test, column = value.labels
        if not column.startswith("Ours"):
            kind: Kind = "external" if value.value is not None else "absent"
            cells.append(Cell(value.labels, kind, value.value))
            continue
        upstream = "jft" if "JFT" in column else "imagenet21k"
        variant = results.variant(re.findall(r"\((.*)\)", column)[0])
        if test == VTAB:
            wants = _tasks(variant, upstream)
        else:
            large = {"size": 518 if variant == "H/14" else 512, "ema": 0.9999}
            wants = (_want(test, variant, upstream, **(large if "ImageNet" in test else {})),)
        cells.append(
            Cell(
                value.labels, _kind(value.value, upstream), value.value, value.std or 0.0, 3, wants
            )
        )
    return Table(
        "2", f"Table 2: {results.caption(2)} (top-1 in %)", ("tested on", "column"), tuple(cells),
        models=(1,), notes=(
            "ImageNet and ReaL: 512 pixels (L/16) or 518 (H/14) and Polyak averaging, 0.9999.",
            *compute.core_days_notes(),
        ),
    )  # fmt: skip


def table_5() -> Table:
    """Returns Table 5: pre-training data size."""
    cells = [
        _plain(value, value.labels[1], results.variant(value.labels[2]), UPSTREAM[value.labels[0]])
        for value in results.table_5()
    ]
    columns = ("pre-trained on", "tested on", "model")
    title = f"Table 5: {results.caption(5)} (top-1 in %)"
    return Table("5", title, columns, tuple(cells), models=(2,))


def _plain(value: Value, test: str, variant: str, upstream: str, **more: object) -> Cell:
    """Returns a cell for one kind of fine-tuning, even if the paper has no value for it."""
    return Cell(
        value.labels,
        _kind(value.value, upstream),
        value.value,
        _std(test, variant, upstream),
        1,
        (_want(test, variant, upstream, **more),),
        x=value.x,
    )


def table_6() -> Table:
    """Returns Table 6: the scaling study; exaFLOPs are computed from our models."""
    cells = []
    for value in results.table_6():
        name, epochs, test = value.labels
        variant = results.variant(name)
        if test == "exaFLOPs":
            ours, accepts, why = compute.of_table_6(variant, int(epochs))
            cells.append(
                Cell(value.labels, "public", value.value, ours=ours, accepts=accepts, why=why)
            )
        else:
            cells.append(_plain(value, test, variant, "jft", epochs=(int(epochs),)))
    return Table(
        "6", f"Table 6: {results.caption(6)} (top-1 in %, exaFLOPs)",
        ("model", "epochs", "tested on"), tuple(cells), models=(0, 1),
        notes=compute.EXAFLOPS_NOTES,
    )  # fmt: skip


def table_7() -> Table:
    """Returns Table 7: Adam against SGD, all on JFT-300M for 7 epochs."""
    cells = []
    for value in results.table_7():
        test, column = value.labels
        variant, recipe = results.variant(column), "bit" if "SGD" in column else "paper"
        tests = FIVE if test == "Average" else (test,)
        wants = tuple(_want(t, variant, "jft", epochs=(7,), recipe=recipe) for t in tests)
        std = 0.0 if test == "Average" else _std(test, variant, "jft")
        cells.append(Cell(value.labels, "private", value.value, std, 1, wants))
    title = f"Table 7: {results.caption(7)} (top-1 in %)"
    return Table("7", title, ("tested on", "model"), tuple(cells), models=(1,))


def table_9() -> Table:
    """Returns Table 9: VTAB task by task; no paper prints the means of its groups.

    Table 2 prints the deviation of the mean only. That of a task is inferred to be sqrt(19) times
    as large, as if the tasks' deviations were equal and independent.
    """
    cells = []
    for value in results.table_9():
        model, task = value.labels
        variant, upstream = results.variant(model), "jft" if "JFT" in model else "imagenet21k"
        std = _std(VTAB, variant, upstream)
        kind, half = _kind(value.value, upstream), 0.05
        if task != "Mean":
            slug = vtab.find(task).slug
            want = Want(variant, f"vtab/{slug}", upstream, epochs=_epochs(variant, upstream))
            std *= math.sqrt(len(vtab.tasks()))
            cells.append(Cell(value.labels, kind, value.value, std, 3, (want,), rounding=half))
            continue
        wants = _tasks(variant, upstream)
        cells.append(Cell(value.labels, kind, value.value, std, 3, wants, rounding=half))
        for group in ("natural", "specialized", "structured"):
            wants = _tasks(variant, upstream, group)
            labels = (model, f"Mean of {group}")
            cells.append(Cell(labels, "absent", None, wants=wants, counts=False))
    title = f"Table 9: {results.caption(9)} (top-1 in %)"
    return Table("9", title, ("model", "task"), tuple(cells), digits=1, models=(0,))


# ---------------------------------------------------------------- figures


def figure_2() -> Table:
    """Returns Figure 2: the groups of VTAB, for one model of JFT-300M and for others' numbers."""
    groups = {"VTAB": "", "Natural": "natural", "Specialized": "specialized",
              "Structured": "structured"}  # fmt: skip
    cells = []
    for value in results.figure(2):
        group, model = value.labels
        if model != "ViT-H/14":
            cells.append(Cell(value.labels, "external", value.value))
            continue
        wants = _tasks("H/14", "jft", groups[group.split(" ")[0]])
        std = results.spread(VTAB)[1] * math.sqrt(len(vtab.tasks()) / len(wants))
        cells.append(Cell(value.labels, "private", value.value, std, 3, wants))
    title = f"Figure 2: {results.caption(2, figure=True)} (top-1 in %)"
    return Table("figure2", title, ("group", "model"), tuple(cells), models=(1,))


def figure_3() -> Table:
    """Returns Figure 3: ImageNet accuracy by pre-training data."""
    places = {"ImageNet": 1, "ImageNet-21k": 2, "JFT-300M": 3}
    drawn = {value.labels: value.value for value in results.figure(3)}
    cells = []
    for model in dict.fromkeys(labels[0] for labels in drawn):
        for data, place in places.items():
            value = Value((model, data), drawn.get((model, data)), x=place)
            if model.startswith("BiT"):
                cells.append(Cell(value.labels, "external", value.value, x=place))
            else:
                cells.append(_plain(value, "ImageNet", results.variant(model), UPSTREAM[data]))
    return Table(
        "figure3", f"Figure 3: {results.caption(3, figure=True)} (ImageNet top-1 in %)",
        ("model", "pre-trained on"), tuple(cells), models=(0,), series=1,
        axes=("pre-trained on", "ImageNet top-1 in %"),
        x_names=tuple((x, name) for name, x in places.items()),
        notes=("BiT bounds the shaded area, of BiT's own paper.",),
    )  # fmt: skip


def figure_5() -> Table:
    """Returns Figure 5: mean of five data sets by compute; all models pre-trained on JFT-300M."""
    lengths = {
        results.variant(value.labels[0]): int(value.labels[1]) for value in results.table_6()
    }
    cells = []
    for value in results.figure(5):
        variant = results.variant(value.labels[0])
        match = re.search(r"\((\d+) ep\)", value.labels[0])
        epochs = int(match[1]) if match else lengths[variant]
        wants = tuple(_want(test, variant, "jft", epochs=(epochs,)) for test in FIVE)
        cells.append(Cell(value.labels, "private", value.value, 0.0, 1, wants, x=value.x))
    return Table(
        "figure5", f"Figure 5: {results.caption(5, figure=True)} (mean top-1 of five, in %)",
        ("model",), tuple(cells), axes=("exaFLOPs", "mean top-1 in %"), log="x",
        notes=("Table 6 has the exaFLOPs of our models.",),
    )  # fmt: skip
