# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables 3 and 4 of the paper, typed a second time: recipes and file against it.

The recipes state their values in vit_jax/paper/*.py, the file is vit_paper_tables.json, and this is
neither of them.
"""

import subprocess
import sys

import pytest

from vit_jax.experiments.tables.cells import find

# Models; data; epochs; base LR; LR decay; weight decay; dropout.
TABLE_3 = """
ViT-B/16 ViT-B/32             ; JFT-300M     ; 7     ; 0.0008 ; linear ; 0.1  ; 0.0
ViT-L/32                      ; JFT-300M     ; 7     ; 0.0006 ; linear ; 0.1  ; 0.0
ViT-L/16                      ; JFT-300M     ; 7 14  ; 0.0004 ; linear ; 0.1  ; 0.0
ViT-H/14                      ; JFT-300M     ; 14    ; 0.0003 ; linear ; 0.1  ; 0.0
R50x1 R50x2                   ; JFT-300M     ; 7     ; 0.001  ; linear ; 0.1  ; 0.0
R101x1                        ; JFT-300M     ; 7     ; 0.0008 ; linear ; 0.1  ; 0.0
R152x1 R152x2                 ; JFT-300M     ; 7     ; 0.0006 ; linear ; 0.1  ; 0.0
R50+ViT-B/16 R50+ViT-B/32     ; JFT-300M     ; 7     ; 0.0008 ; linear ; 0.1  ; 0.0
R50+ViT-L/32                  ; JFT-300M     ; 7     ; 0.0002 ; linear ; 0.1  ; 0.0
R50+ViT-L/16                  ; JFT-300M     ; 7 14  ; 0.0004 ; linear ; 0.1  ; 0.0
ViT-B/16 ViT-B/32             ; ImageNet-21k ; 90    ; 0.001  ; linear ; 0.03 ; 0.1
ViT-L/16 ViT-L/32             ; ImageNet-21k ; 30 90 ; 0.001  ; linear ; 0.03 ; 0.1
ViT-B/16 ViT-B/32 ViT-L/16 ViT-L/32 ; ImageNet ; 300 ; 0.003  ; cosine ; 0.3  ; 0.1
"""
# The caption: batch 4096, 10k steps of warm-up, 224 pixels; clipping at 1 for ImageNet. Section
# 4.1: Adam with 0.9 and 0.999.
SAME_3 = {
    "batch_size": "4096", "schedule.warmup": "10000 steps", "data.image_size": "224",
    "optimizer.name": "adamw", "optimizer.adamw.b1": "0.9", "optimizer.adamw.b2": "0.999",
}  # fmt: skip

# Data; steps; base LR.
TABLE_4 = """
ImageNet           ; 20000 ; 0.003, 0.01, 0.03, 0.06
CIFAR100           ; 10000 ; 0.001, 0.003, 0.01, 0.03
CIFAR10            ; 10000 ; 0.001, 0.003, 0.01, 0.03
Oxford-IIIT Pets   ; 500   ; 0.001, 0.003, 0.01, 0.03
Oxford Flowers-102 ; 500   ; 0.001, 0.003, 0.01, 0.03
VTAB (19 tasks)    ; 2500  ; 0.01
"""
# The caption and B.1.1.
SAME_4 = {
    "optimizer.name": "sgd", "optimizer.sgd.momentum": "0.9", "batch_size": "512",
    "schedule.name": "cosine", "optimizer.weight_decay": "0.0", "optimizer.clip": "1.0",
    "data.image_size": "384",
}  # fmt: skip


def rows(text):
    return [[part.strip() for part in line.split(";")] for line in text.strip().splitlines()]


def typed(name):
    """Labels of a cell -> the value typed above."""
    cells = {}
    if name == "4":
        for dataset, steps, rates in rows(TABLE_4):
            values = SAME_4 | {"length": f"{steps} steps", "schedule.lr": rates}
            cells |= {(dataset, key): value for key, value in values.items()}
        return cells
    for models, dataset, epochs, rate, decay, weight_decay, dropout in rows(TABLE_3):
        for model in models.split():
            for count in epochs.split():
                values = SAME_3 | {
                    "length": f"{count} epochs", "schedule.lr": rate, "schedule.name": decay,
                    "optimizer.weight_decay": weight_decay, "model.dropout": dropout,
                    "optimizer.clip": "1.0" if dataset == "ImageNet" else "0.0",
                }  # fmt: skip
                cells |= {(dataset, model, count, key): value for key, value in values.items()}
    return cells


@pytest.mark.parametrize("name, count", [("3", 312), ("4", 54)])
def test_recipes_and_file_are_what_the_paper_prints(name, count):
    table = find(name)
    assert len(typed(name)) == count
    assert {cell.labels: cell.ours for cell in table.cells} == typed(name)
    assert {cell.labels: cell.paper for cell in table.cells} == typed(name)


CHANGED = """
from vit_jax import paper

changed = paper.table("vit_paper_tables")["tables"]  # of this process, before anything reads it
changed["table_3"]["rows"][0]["base_lr"] = 0.08  # two models
changed["table_3"]["common"]["batch_size"] = 4000  # all 26 rows
changed["table_4"]["rows"][2]["steps"] = 77

from vit_jax.cli import main

main.main(["table", "3", "--format=csv"])
main.main(["table", "4", "--format=csv"])
"""


def test_file_that_differs_from_the_recipes_is_off():
    """A table that compares the file with itself would not notice."""
    done = subprocess.run([sys.executable, "-c", CHANGED], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if "reproduced" in line] == [
        f"{312 - 28} of 312 public cells reproduced", "53 of 54 public cells reproduced",
    ]  # fmt: skip
    assert "JFT-300M,ViT-B/16,7,schedule.lr,0.08,0.0008,,,,off,," in lines
    assert "CIFAR10,length,77 steps,10000 steps,,,,off,," in lines
