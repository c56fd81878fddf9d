# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Stand-ins: sizes as published, images by row, and the recipes that use them."""

import itertools

import numpy as np
import pytest

from configs import pretrain
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.sources import builtin
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def source(name):
    return sources.open_source(f"synthetic:{name}", Options(), val_percent=1, test_percent=1)


@pytest.mark.parametrize("name, size", builtin.SIZES.items())
def test_sizes_are_those_of_the_dataset(name, size):
    made = source(name)
    assert (len(made.classes), len(made.split("train"))) == size
    rows = [made.split(s).rows for s in ("train", "val", "test")]
    assert [r.start for r in rows[1:]] == [r.stop for r in rows[:-1]]  # nothing in two splits
    assert "noise" in made.notes[0]


@pytest.mark.parametrize("name", builtin.DENSE)
def test_stand_ins_with_masks_or_boxes(name):
    made = source(name)
    classes, train, val, field = builtin.DENSE[name]
    assert (len(made.classes), len(made.split("test"))) == (classes, val)  # its val, as ImageNet's
    held_out = len(made.split("val"))
    assert len(made.split("train")) + held_out == train
    read = made.split("train").fields_reader()
    one, again, other = read(tf.constant(5)), read(tf.constant(5)), read(tf.constant(6))
    beside = {"mask": {"mask"}, "boxes": {"boxes", "box_classes"}}
    assert one.keys() == {"image", "labels"} | beside[field]
    for key, value in one.items():
        np.testing.assert_array_equal(value, again[key])
    assert (one["image"].numpy() != other["image"].numpy()).any()
    assert one["labels"].numpy().tolist() == [-1]
    if field == "mask":
        assert one["mask"].shape == one["image"].shape[:2]
        assert 0 <= one["mask"].numpy().min() <= one["mask"].numpy().max() < classes
        return
    boxes, of = one["boxes"].numpy(), one["box_classes"].numpy()
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert boxes.max() <= 256
    assert len(boxes) == len(of)
    assert set(of.tolist()) <= set(range(classes))


def batches(first):
    ops = preprocess.parse("data.train_ops", "decode|inception_crop({size})|flip_lr", 24)
    pipe = Pipeline(source("jft300m").split("train"), ops, 4, 0, (24, 24), 2, 1)
    return list(itertools.islice(pipe.train(first, first + 2), 2))


def test_images_are_noise_that_depends_on_the_row_alone():
    first, again, later = batches(70_000), batches(70_000), batches(70_001)
    np.testing.assert_array_equal(first[0]["image"], again[0]["image"])
    np.testing.assert_array_equal(first[1]["image"], later[0]["image"])
    assert first[0]["image"].std() > 20
    assert (first[0]["image"][0] != first[0]["image"][1]).any()
    labels = first[0]["labels"]
    assert labels.shape == (4, 1)
    assert ((labels >= 0) & (labels < 18_291)).all()


def test_unknown_stand_in_lists_those_there_are():
    with pytest.raises(BadInput, match="jft300m"):
        source("jft")


@pytest.mark.parametrize("slug, classes", [("eurosat", 10), ("sun397", 397)])
def test_stand_in_of_a_task_of_vtab_has_its_splits(slug, classes):
    made = source(f"vtab/{slug}")
    assert len(made.classes) == classes
    sizes = {name: len(made.split(name)) for name in ("train800", "val200", "train800val200")}
    assert sizes == {"train800": 800, "val200": 200, "train800val200": 1000}
    assert made.split("test").rows.start == 1000


ROWS = {d: rows | pretrain.OTHERS.get(d, {}) for d, rows in pretrain.TABLE_3.items()}


def recipe(text, *overrides):
    return config_lib.load(f"configs/pretrain.py:{text}", overrides)


def test_every_recipe_of_table_3_is_a_valid_configuration():
    for dataset, rows in ROWS.items():
        for model, row in rows.items():
            for epochs in row.epochs:
                config = recipe(f"model={model},dataset={dataset},epochs={epochs}")
                build.check(config)
                assert config.length == f"{epochs} epochs"
                assert (config.schedule.lr, config.batch_size) == (row.lr, 4096)


def test_what_datasets_differ_in():
    jft = recipe("model=B/16,dataset=jft")
    i21k = recipe("model=B/16,dataset=imagenet21k")
    imagenet = recipe("model=B/16,dataset=imagenet")
    decay = [c.optimizer.weight_decay for c in (jft, i21k, imagenet)]
    assert decay == [0.1, 0.03, 0.3]
    assert [c.model.dropout for c in (jft, i21k, imagenet)] == [0.0, 0.1, 0.1]
    assert [c.optimizer.clip for c in (jft, i21k, imagenet)] == [0.0, 0.0, 1.0]
    assert [c.schedule.name for c in (jft, i21k, imagenet)] == ["linear", "linear", "cosine"]
    assert [c.model.representation for c in (jft, i21k, imagenet)] == [768] * 3


@pytest.mark.parametrize(
    "text, parts",
    [
        ("model=L/16", ("epochs=30", "epochs=90")),
        ("model=X/16", ("X/16", "B/16")),
        ("dataset=jft300m", ("jft300m", "jft")),
        ("model=H/14,dataset=imagenet", ("H/14", "L/16")),
    ],
)
def test_what_the_paper_does_not_have_is_refused(text, parts):
    with pytest.raises(BadInput) as caught:
        recipe(text)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("B/16", marks=pytest.mark.integration),
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("R50+B/16", "BiT-R50x1")),
    ],
)
def test_a_recipe_takes_a_step_anywhere(model, tmp_path):
    narrow = {"B/16": ["width=16", "depth=1", "mlp=16", "heads=2"], "BiT-R50x1": []}
    small = narrow.get(model, narrow["B/16"]) + ["stages=(1,1)"] * ("R50" in model)
    given = {
        "length": "1 steps", "schedule.warmup": "0", "batch_size": 8, "data.image_size": 32,
        "evals.val.split": "val[:8]", "evals.test.split": "test[:8]", "model.representation": 0,
        "report.writers": (),
        "report.page": False,
    }  # fmt: skip
    overrides = [f"--config.{k}={v}" for k, v in given.items()]
    overrides += [f"--config.model.{s}" for s in small]
    recipe = f"--config=configs/pretrain.py:model={model},dataset=jft"
    args = ["train", recipe, f"--workdir={tmp_path}", *overrides]
    assert main.main(args) == 0
