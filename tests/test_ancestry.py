# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What weights were trained on, and which data set a source is."""

import papers
import pytest

from vit_jax.experiments.tables import evidence, lineage, recipe_diff
from vit_jax.experiments.tables.lineage import Ancestry, Origin


def origin(root):
    """Of the run named `last`."""
    runs, _ = evidence.read(root)
    return Ancestry(root, runs).origin_of(next(run for run in runs if run.folder.name == "last"))


@pytest.mark.parametrize(
    "init, expected",
    [
        ("imagenet21k/ViT-B_16.npz", Origin("imagenet21k", "paper", 90)),
        ("/data/imagenet21k/R50+ViT-B_16.npz", Origin("imagenet21k", "paper", 90)),
        ("imagenet21k+imagenet2012/ViT-B_16.npz", None),  # fine-tuned already
        ("/data/ViT-B_16.npz", None),
        ("imagenet21k/ViT-B_17.npz", None),
        ("imagenet21k/Mixer-B_16.npz", None),
        ("BiT-M-R50x1.npz", Origin("imagenet21k", "bit", 90)),
        ("/x/BiT-S-R50x1.npz", Origin("imagenet", "bit", 90)),
        ("sam/ViT-B_16.npz", None),
        ("runs/mine", None),
    ],
)
def test_published_files_are_known_by_name(init, expected):
    assert lineage.of_published(init) == expected


def test_augreg_is_known_by_its_long_names():
    stem = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
    assert lineage.of_published(f"{stem}.npz") == Origin("imagenet21k", "augreg", 300)
    tuned = lineage.of_published(f"{stem}--imagenet2012-steps_20k-lr_0.03-res_384.npz")
    assert tuned is not None
    assert "itself fine-tuned" in tuned.dataset


@pytest.mark.parametrize("said, dataset", [("ImageNet-21k", "imagenet21k"), ("i1k", "imagenet"),
                                           ("JFT-300M", "jft"), ("places", "places")])  # fmt: skip
def test_other_files_are_what_the_recipe_says(tmp_path, said, dataset):
    papers.transfer(tmp_path / "last", 90.0, init="w.npz", recipe__upstream=said)
    assert origin(tmp_path) == Origin(dataset)


def test_file_that_nobody_explains_is_said_to_be_so(tmp_path):
    papers.transfer(tmp_path / "last", 90.0, init="w.npz")
    assert origin(tmp_path).dataset == "w.npz (recipe.upstream does not say)"


@pytest.mark.parametrize(
    "args, expected",
    [
        ("model=B/16,dataset=imagenet", Origin("imagenet", "paper", 300)),
        ("model=L/16,dataset=imagenet21k,epochs=30,release=fall11",
         Origin("imagenet21k", "paper", 30)),
        ("recipe=bit,dataset=imagenet", Origin("imagenet", "bit", 90)),
        ("recipe=augreg,dataset=imagenet,model=S/16,aug=strong2,reg=0.1,wd=0.03",
         Origin("imagenet", "augreg", 300)),
        ("model=B/16,dataset=jft", Origin("synthetic:jft300m")),
    ],
)  # fmt: skip
def test_runs_are_known_by_their_configuration(tmp_path, args, expected):
    parent = papers.pretrain(tmp_path / "pre", args)
    papers.transfer(tmp_path / "last", 90.0, init=str(parent))
    assert origin(tmp_path) == expected


def test_records_are_jft_only_if_somebody_says_so_and_noise_never(tmp_path):
    for name, source in (("real", "records:/jft/*"), ("noise", "synthetic:jft300m")):
        parent = papers.pretrain(tmp_path / name / "pre", "model=B/16,dataset=jft",
                                 data__source=source)  # fmt: skip
        papers.transfer(tmp_path / name / "last", 90.0, init=str(parent), recipe__upstream="jft")
        papers.transfer(tmp_path / name / "silent" / "last", 90.0, init=str(parent))
    assert origin(tmp_path / "real") == Origin("jft", "paper", 7)
    assert origin(tmp_path / "real" / "silent").dataset == "records:/jft/*"
    assert origin(tmp_path / "noise").dataset == "synthetic:jft300m"


def test_run_that_is_not_finished_or_differs_says_how(tmp_path):
    parent = papers.pretrain(tmp_path / "pre", "model=B/16,dataset=imagenet",
                             schedule__lr="0.5", data__split="train[:10%]")  # fmt: skip
    (parent / "results.json").unlink()
    papers.transfer(tmp_path / "last", 90.0, init=str(parent))
    assert origin(tmp_path).unlike == (
        "it is not finished", "data.split: train[:10%], not train[:99%]",
        "schedule.lr: 0.5, not 0.003",
    )  # fmt: skip


def test_run_from_a_fine_tuned_run_is_of_no_pretraining(tmp_path):
    parent = papers.transfer(tmp_path / "first", 90.0)
    papers.transfer(tmp_path / "last", 90.0, init=str(parent))
    assert origin(tmp_path).dataset == "tfds:cifar10 (itself fine-tuned)"


@pytest.mark.parametrize(
    "source, expected",
    [
        ("tfds:cifar10", ("cifar10", True)),
        ("tfds:cifar100:3.0.2", ("cifar100", True)),
        ("tfds:imagenet2012", ("imagenet", True)),
        ("tfds:imagenet2012_real", ("imagenet", False)),
        ("vtab:dspr_loc", ("vtab/dspr_loc", True)),
        ("vtab:dspr_loc/full", ("", False)),
        ("synthetic:cifar100", ("cifar100", False)),
        ("synthetic:vtab/eurosat", ("vtab/eurosat", False)),
        ("folder:/my/CIFAR-10", ("cifar10", False)),
        ("synthetic:imagenet21k", ("", False)),
        ("digits", ("", False)),
    ],
)
def test_source_is_a_data_set_or_a_stand_in_for_one(source, expected):
    assert lineage.tested_on(source) == expected


def test_differences_leave_out_what_a_run_may_choose():
    recipe = recipe_diff.fine_tuning("B/16", "cifar10")
    run = {**recipe, "seed": 7, "model.dtype": "bfloat16", "mesh.fsdp": 8, "batch_size": 64}
    assert recipe_diff.differences(run, recipe) == (("batch_size", 64, 512),)
    assert recipe_diff.differences(run, recipe, batch_size=64) == ()
    assert recipe["data.split"] == "train"
    assert recipe_diff.fine_tuning("L/16", "vtab/dtd")["data.split"] == "train800val200"
    assert recipe_diff.pre_training("So400m/14", "imagenet", "paper", 300) is None
