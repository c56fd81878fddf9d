# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The printed numbers of arXiv:2010.11929 and of AugReg's tables, one `Value` per cell.

Accuracies are in percent, even if the paper prints shares. Start from `table` or `figure`.
"""

import dataclasses
import functools
import math
import re
from typing import Any

from vit_jax import paper
from vit_jax.paper import pretraining, transfer, vtab

# Names of test sets in the tables -> datasets of recipes.
TESTS = transfer.DATASETS | {
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "ImageNet ReaL": "imagenet",
}


_TEST_IMAGES = {
    "imagenet": 50_000, "cifar10": 10_000, "cifar100": 10_000, "pets": 3_669, "flowers": 6_149,
}  # fmt: skip


def test_images(dataset: str) -> int:
    """Returns the number of test images of a dataset of configs/transfer.py; 0 for any other."""
    kind, _, task = dataset.partition("/")
    return vtab.find(task).num_examples["test"] if kind == "vtab" else _TEST_IMAGES.get(kind, 0)


@dataclasses.dataclass(frozen=True)
class Value:
    """A cell, or a point of a figure.

    Attributes:
      labels: names of the row, then of the column.
      value: the printed value; None for an empty cell.
      std: standard deviation over three runs, if printed.
      x: position on the horizontal axis of a figure.
    """

    labels: tuple[str, ...]
    value: float | None
    std: float | None = None
    x: float | None = None


def _table(number: int) -> dict[str, Any]:
    return paper.table("vit_paper_tables")["tables"][f"table_{number}"]


def caption(number: int, *, figure: bool = False) -> str:
    """Returns the title of a table or a figure."""
    whole = paper.table("vit_paper_tables")
    titles = whole["figures" if figure else "tables"]
    return titles[f"{'figure' if figure else 'table'}_{number}"]["title"]


def variant(name: str) -> str:
    """Returns the variant for a model's name in any table or figure.

    Examples are `R50x1+ViT-B/16` and `ResNet50 Adam`.
    """
    plain = re.sub(r" .*", "", name).replace("ResNet", "R").replace("R50x1+", "R50+")
    return pretraining.variant(
        plain if "+" in plain or "x" in plain or "/" in plain else plain + "x1"
    )


def table_2() -> list[Value]:
    """Returns Table 2; labels: tested on, column."""
    return [
        Value((row["dataset"], column), *((v["mean"], v["std"]) if v else (None, None)))
        for row in _table(2)["rows"]
        for column, v in row["values"].items()
    ]


def core_days() -> dict[str, int]:
    """Returns column of Table 2 -> measured TPUv3 core-days of pre-training."""
    return dict(_table(2)["tpuv3_core_days"])


@functools.cache
def spread(test: str) -> tuple[float, float]:
    """Returns two standard deviations from Table 2.

    The first is that of ViT-L/16 from ImageNet-21k. The second is the root mean square of the
    paper's own three columns, for models that Table 2 lacks.
    """
    row = next(row for row in _table(2)["rows"] if TESTS[row["dataset"]] == TESTS[test]
               and ("ReaL" in row["dataset"]) == ("ReaL" in test))  # fmt: skip
    stds = [v["std"] for name, v in row["values"].items() if name.startswith("Ours")]
    own = row["values"]["Ours-I21k (ViT-L/16)"]["std"]
    return own, math.sqrt(sum(s * s for s in stds) / len(stds))


def table_5() -> list[Value]:
    """Returns Table 5; labels: pre-trained on, tested on, model."""
    return [
        Value((row["pretrain_dataset"], row["dataset"], model), value)
        for row in _table(5)["rows"]
        for model, value in row["values"].items()
    ]


def table_6() -> list[Value]:
    """Returns Table 6; labels: model, epochs, tested on. `exaFLOPs` is the last of each model."""
    return [
        Value((row["name"], str(row["epochs"]), test), value)
        for row in _table(6)["rows"]
        for test, value in (*row["values"].items(), ("exaFLOPs", row["exaflops"]))
    ]


def table_7() -> list[Value]:
    """Returns Table 7; labels: tested on, model and optimizer.

    `Average` is the mean of the five.
    """
    return [
        Value((row["dataset"], column), value)
        for row in _table(7)["rows"]
        for column, value in row["values"].items()
    ]


def table_8() -> list[Value]:
    """Returns Table 8, 5-shot accuracy; labels: position embedding, where it is added."""
    return [
        Value((row["pos_emb"], where), None if value is None else 100 * value)
        for row in _table(8)["rows"]
        for where, value in row["values"].items()
    ]


def table_9() -> list[Value]:
    """Returns Table 9; labels: model, task of VTAB. `Mean` is the last of each model."""
    return [
        Value((row["model"], task), value)
        for row in _table(9)["rows"]
        for task, value in row["values"].items()
    ]


def augreg_3() -> list[Value]:
    """Returns AugReg's Table 3; labels: image size, column, model."""
    return [
        Value((size, column, row["model"]), value)
        for size in ("224", "384")
        for row in paper.table("augreg")["table_3"]["rows"]
        for column, value in row[size].items()
    ]


def augreg_5() -> list[Value]:
    """Returns AugReg's Table 5, VTAB; labels: pre-training, model, group, task. `Mean` is last."""
    return [
        Value((row["pretraining"], row["model"], group, task), value)
        for row in paper.table("augreg")["table_5_vtab"]["rows"]
        for group in ("natural", "specialized", "structured")
        for task, value in row[group].items()
    ]


def augreg_6() -> list[Value]:
    """Returns AugReg's Table 6 of B/32; labels: setting, column."""
    return [
        Value((setting, column), value)
        for setting, columns in paper.table("augreg")["table_6"]["rows"].items()
        for column, value in columns.items()
    ]


def augreg_figure_4() -> list[Value]:
    """Returns AugReg's Figure 4, validation accuracy in whole percent.

    Labels: pre-training, model, rate of dropout and stochastic depth, level.
    """
    names = {"0.0": "no_regularization", "0.1": "regularization_0.1"}
    return [
        Value((column, model, rate, level), value)
        for column, models in paper.table("augreg")["figure_4"]["values"].items()
        for model, settings in models.items()
        for rate, name in names.items()
        for level, value in settings[name].items()
    ]


def masked_percent() -> float:
    """Returns the ImageNet accuracy of section 4.6, after masked patch prediction."""
    return pretraining.masked().imagenet_percent


def objectnet() -> dict[str, float]:
    """Returns `top1` and `top5` on ObjectNet, in percent (appendix D.9, ViT-H/14)."""
    value = paper.table("vit_paper_tables")["text_details"]["objectnet"]["value"]
    return {"top1": value["top1_percent"], "top5": value["top5_percent"]}


def augreg_best(model: str, column: str) -> list[tuple[str, float]]:
    """Returns the best (augmentation level, dropout and stochastic depth) of AugReg's Figure 4.

    The figure has whole percents, so there may be several, those without dropout first.

    Args:
      model: variant, e.g. `B/16`.
      column: `i1k_300ep`, `i21k_30ep` or `i21k_300ep`.
    """
    values = paper.table("augreg")["figure_4"]["values"][column][model]
    rates = {"no_regularization": 0.0, "regularization_0.1": 0.1}
    settings = [
        (accuracy, -rate, level)
        for name, rate in rates.items()
        for level, accuracy in values[name].items()
    ]
    most = max(settings)[0]
    return [(level, -rate) for accuracy, rate, level in sorted(settings)[::-1] if accuracy == most]


# ---------------------------------------------------------------- figures


def attention_distance() -> dict[str, list[list[float]]]:
    """Returns variant -> mean attention distance in pixels, [layer][head] (Figures 7 and 11).

    The heads of a layer are in ascending order. Images have 224 x 224 pixels.
    """
    data = paper.table("vit_paper_tables")["figures"]["figure_7_and_11"]["data"]
    return {
        variant(model.replace(" ", "")): [
            layers[str(layer)]["heads_sorted"] for layer in range(len(layers))
        ]
        for model, layers in data.items()
    }


def figure(number: int) -> list[Value]:
    """Returns the points of a figure; accuracies are percent.

    Labels by figure: 2: group, model; 3: model, pre-trained on; 4: model, millions of images (x as
    well); 5: model (x: exaFLOPs); 8: metric, what is scaled, relative compute (x as well); 9:
    series, epoch (x as well); 12: quantity, model, image size (x as well); 13: quantity, model.
    """
    data = paper.table("vit_paper_tables")["figures"][f"figure_{number}"]["data"]
    return _READERS[number](data)


def _figure_4(data: Any) -> list[Value]:
    return [
        Value((name, f"{p['jft_samples_millions']:g}"), p["imagenet_5shot_top1"],
              x=p["jft_samples_millions"])
        for name, points in data.items()
        for p in points
    ]  # fmt: skip


def _figure_5(data: Any) -> list[Value]:
    return [
        Value((p["model"],), p["average_5"], x=p["exaflops"])
        for points in data.values()
        for p in points
    ]


def _figure_8(data: Any) -> list[Value]:
    return [
        Value((metric, scaled, f"{p['relative_compute']:g}"), 100 * p["accuracy"],
              x=p["relative_compute"])
        for metric, series in data.items()
        for scaled, points in series.items()
        for p in points
    ]  # fmt: skip


def _figure_9(data: Any) -> list[Value]:
    return [
        Value((name, f"{p['epoch']:g}"), p["imagenet_linear_5shot_top1"], x=p["epoch"])
        for name, points in data.items()
        for p in points
    ]


def _figure_12(data: Any) -> list[Value]:
    kinds = {
        "images/s a core": ("peak_inference_speed_img_per_sec_per_core_TPUv3", "img_per_sec"),
        "largest batch": ("largest_per_core_batch_size", "batch_size"),
    }
    return [
        Value((quantity, model, str(p["input_size"])), p[key], x=p["input_size"])
        for quantity, (section, key) in kinds.items()
        for model, points in data[section].items()
        for p in points
    ]


def _figure_13(data: Any) -> list[Value]:
    kinds = {
        "ImageNet 5-shot": ("imagenet_5shot_top1", 100),
        "exaFLOPs": ("total_compute_exaflops", 1),
        "images/s a core": ("peak_inference_img_per_sec_per_core", 1),
    }
    return [
        Value((quantity, model), scale * point[key])
        for quantity, (key, scale) in kinds.items()
        for model, point in data.items()
    ]


def _pairs(data: Any) -> list[Value]:
    return [
        Value((row, column), value)
        for row, values in data.items()
        for column, value in values.items()
    ]


_READERS = {
    2: _pairs, 3: _pairs, 4: _figure_4, 5: _figure_5, 8: _figure_8, 9: _figure_9, 12: _figure_12,
    13: _figure_13,
}  # fmt: skip
