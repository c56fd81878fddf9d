# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs that fill tables: which run fills which cell, how it is judged, which are missing."""

import dataclasses
import math
import shlex

import foreign
import numpy as np
import paper_runs
import pytest

from vit_jax.build import defaults
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.tables import (
    claims,
    filling,
    lineage,
    missing_runs,
    recipe_diff,
    run_results,
)
from vit_jax.experiments.tables.cells import find
from vit_jax.experiments.tables.claims import Claim
from vit_jax.experiments.tables.lineage import Ancestry, Origin
from vit_jax.models import published
from vit_jax.paper import vtab


@pytest.fixture(autouse=True)
def quick():
    with paper_runs.quick_yaml():
        yield


# --- runs ---


def test_runs_are_found_at_any_depth_but_not_in_checkpoints(tmp_path):
    older = "b/000-dataset=digits,seed=0"  # names do not matter
    for place in ("a", "b/c/d", older, "a/checkpoints/1", ".hidden/e"):
        paper_runs.transfer(tmp_path / place, 90.0)
    runs, broken = run_results.read(tmp_path)
    assert [run.folder for run in runs] == [tmp_path / p for p in ("a", older, "b/c/d")]
    assert broken == []
    assert runs[0].metric("test/top1") == pytest.approx(90.0)
    assert runs[0].metric("val/top1") is None
    assert runs[0].fine_tunes


def test_broken_runs_are_named_with_the_reason(tmp_path):
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "config.yaml").write_text("a: [")
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "config.yaml").write_text("nonsense: 1")
    paper_runs.transfer(tmp_path / "json", 90.0)
    (tmp_path / "json" / "results.json").write_text("{")
    paper_runs.transfer(tmp_path / "list", 90.0)
    (tmp_path / "list" / "results.json").write_text("[]")
    runs, broken = run_results.read(tmp_path)
    assert runs == []
    assert [text.split(": ")[0].rpartition("/")[2] for text in broken] == [
        "json", "key", "list", "yaml",
    ]  # fmt: skip


def test_unfinished_run_has_no_results_and_torn_rows_are_left_out(tmp_path):
    folder = paper_runs.transfer(tmp_path / "a", None)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    run = run_results.read(tmp_path)[0][0]
    assert (run.results, run.metric("test/top1")) == (None, None)
    assert run.rows() == [{"step": 1}]


@pytest.mark.parametrize("value, said", [("NaN", "is nan"), ("93.2", "a share from 0 to 1"),
                                         ("Infinity", "is inf"), ("-0.1", "a share"),
                                         ("true", "is True")])  # fmt: skip
def test_results_that_are_not_shares_are_named_and_the_other_runs_are_read(tmp_path, value, said):
    folder = paper_runs.transfer(tmp_path / "a", 90.0)
    (folder / "results.json").write_text(f'{{"test": {{"top1": {value}, "loss": 3.2}}}}')
    paper_runs.transfer(tmp_path / "b", 90.0)
    runs, (broken,) = run_results.read(tmp_path)
    assert [run.folder.name for run in runs] == ["b"]
    assert broken.startswith(f"{folder}: test/top1 in results.json")
    assert said in broken


def test_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(BadInput, match="does not exist"):
        run_results.read(tmp_path / "no")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        run_results.read(tmp_path / "file")
    assert run_results.read(tmp_path) == ([], [])


# --- lineage ---


def origin(root):
    """Returns the lineage of the run named `last`, without what seeds must have in common."""
    runs, _ = run_results.read(root)
    found = Ancestry(root, runs).origin(next(run for run in runs if run.folder.name == "last"))
    return dataclasses.replace(found, choice=(), weights="")


@pytest.mark.parametrize(
    "init, expected",
    [
        ("imagenet21k/ViT-B_16.npz", Origin("imagenet21k", "paper", 90)),
        ("/data/imagenet21k/R50+ViT-B_16.npz", Origin("imagenet21k", "paper", 90)),
        ("imagenet21k+imagenet2012/ViT-B_16.npz", None),  # fine-tuned already
        ("/data/ViT-B_16.npz", None),
        ("imagenet21k/ViT-B_17.npz", None),
        ("imagenet21k/Mixer-B_16.npz", Origin("imagenet21k", "mixer")),
        ("imagenet1k/Mixer-L_16.npz", Origin("imagenet", "mixer")),
        ("BiT-M-R50x1.npz", Origin("imagenet21k", "bit", 90)),
        ("/x/BiT-S-R50x1.npz", Origin("imagenet", "bit", 90)),
        ("sam/ViT-B_16.npz", None),
        ("runs/mine", None),
    ],
)
def test_published_files_are_known_by_name(init, expected):
    assert lineage.published_origin(init) == expected


def test_augreg_is_known_by_its_long_names():
    stem = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
    assert lineage.published_origin(f"{stem}.npz") == Origin("imagenet21k", "augreg", 300)
    tuned = lineage.published_origin(f"{stem}--imagenet2012-steps_20k-lr_0.03-res_384.npz")
    assert tuned is not None
    assert "itself fine-tuned" in tuned.dataset


@pytest.mark.parametrize(
    "name, expected",
    [
        ("hf:google/vit-base-patch16-224-in21k", Origin("imagenet21k", "paper", 90)),
        ("hf:timm/vit_large_patch16_224.orig_in21k", Origin("imagenet21k", "paper", 90)),
        (
            "hf:timm/vit_base_patch16_224.augreg_in21k",
            Origin("imagenet21k", "augreg", 300, ("settings that its name does not tell",)),
        ),
        (
            "augreg/B_32-i21k-300ep-lr_0.001-aug_strong2-wd_0.03-do_0.1-sd_0.1.npz",
            Origin("imagenet21k", "augreg", 300, ("other settings than the best",)),
        ),
        (
            "augreg/B_32-i1k-300ep-lr_0.001-aug_medium2-wd_0.03-do_0.1-sd_0.1.npz",
            Origin("imagenet", "augreg", 300),
        ),
        (
            "augreg/B_32-i1k-300ep-lr_0.001-aug_none-wd_0.03-do_0.1-sd_0.1.npz",
            Origin("imagenet", "augreg", 300, ("other settings than the best",)),
        ),
        (  # light2 of the paper: as good as none
            "augreg/B_32-i21k-30ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz",
            Origin("imagenet21k", "augreg", 30),
        ),
        (
            "augreg/B_8-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0.npz",
            Origin("imagenet", "augreg", 300),
        ),  # not in Figure 4
        ("hf:google/vit-base-patch16-224", None),  # fine-tuned
        ("hf:timm/vit_base_patch16_224.augreg_in21k_ft_in1k", None),
    ],
)
def test_weights_of_the_hub_are_known_by_their_names(name, expected):
    assert lineage.published_origin(name) == expected


@pytest.mark.parametrize("said, dataset", [("ImageNet-21k", "imagenet21k"), ("i1k", "imagenet"),
                                           ("JFT-300M", "jft"), ("places", "places")])  # fmt: skip
def test_other_files_are_what_the_recipe_says(tmp_path, said, dataset):
    paper_runs.transfer(tmp_path / "last", 90.0, init="w.npz", recipe__upstream=said)
    unlike = () if dataset == "jft" else ("an unknown recipe",)  # no name of JFT's weights is known
    assert origin(tmp_path) == Origin(dataset, unlike=unlike)


def test_file_that_nobody_explains_is_said_to_be_so(tmp_path):
    paper_runs.transfer(tmp_path / "last", 90.0, init="w.npz")
    assert origin(tmp_path).dataset == "w.npz (recipe.upstream does not say)"


@pytest.mark.parametrize(
    "args, expected",
    [
        ("model=B/16,dataset=imagenet", Origin("imagenet", "paper", 300)),
        ("model=L/16,dataset=imagenet21k,epochs=30,release=fall11",
         Origin("imagenet21k", "paper", 30)),
        ("recipe=bit,dataset=imagenet", Origin("imagenet", "bit", 90)),
        ("recipe=augreg,dataset=imagenet,model=S/16,aug=strong2,reg=0.1,wd=0.03",
         Origin("imagenet", "augreg", 300, (lineage.NOT_BEST,))),
        ("recipe=augreg,dataset=imagenet,model=S/16,aug=medium2,reg=0.0,wd=0.1",
         Origin("imagenet", "augreg", 300)),
        ("recipe=augreg,dataset=imagenet21k,model=B/32,epochs=300,release=fall11",
         Origin("imagenet21k", "augreg", 300)),
        ("recipe=augreg,dataset=imagenet21k,model=B/32,epochs=300,release=fall11,wd=0.03",
         Origin("imagenet21k", "augreg", 300, (lineage.NOT_BEST,))),
        ("model=B/16,dataset=jft", Origin("synthetic:jft300m")),
    ],
)  # fmt: skip
def test_runs_are_known_by_their_configuration(tmp_path, args, expected):
    parent = paper_runs.pretrain(tmp_path / "pre", args)
    paper_runs.transfer(tmp_path / "last", 90.0, init=str(parent))
    assert origin(tmp_path) == expected


def test_records_are_jft_only_if_somebody_says_so_and_noise_never(tmp_path):
    for name, source in (("real", "records:/jft/*"), ("noise", "synthetic:jft300m")):
        parent = paper_runs.pretrain(tmp_path / name / "pre", "model=B/16,dataset=jft",
                                     data__source=source)  # fmt: skip
        paper_runs.transfer(
            tmp_path / name / "last", 90.0, init=str(parent), recipe__upstream="jft"
        )
        paper_runs.transfer(tmp_path / name / "silent" / "last", 90.0, init=str(parent))
    assert origin(tmp_path / "real") == Origin("jft", "paper", 7)
    assert origin(tmp_path / "real" / "silent").dataset == "records:/jft/*"
    assert origin(tmp_path / "noise").dataset == "synthetic:jft300m"


def test_run_that_is_not_finished_or_differs_says_how(tmp_path):
    parent = paper_runs.pretrain(tmp_path / "pre", "model=B/16,dataset=imagenet",
                                 schedule__lr="0.5", data__split="train[:10%]")  # fmt: skip
    (parent / "results.json").unlink()
    paper_runs.transfer(tmp_path / "last", 90.0, init=str(parent))
    assert origin(tmp_path).unlike == (
        "it is not finished", "data.split: train[:10%], not train[:99%]",
        "schedule.lr: 0.5, not 0.003",
    )  # fmt: skip


def test_run_from_a_fine_tuned_run_is_of_no_pretraining(tmp_path):
    parent = paper_runs.transfer(tmp_path / "first", 90.0)
    paper_runs.transfer(tmp_path / "last", 90.0, init=str(parent))
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


def test_a_run_of_augreg_that_augreg_does_not_have_breaks_no_table(tmp_path):
    for number, more in enumerate(("model=B/16", "model=L/32,aug=none")):
        paper_runs.pretrain(tmp_path / str(number), f"recipe=augreg,dataset=imagenet,{more}",
                            length="100 steps")  # fmt: skip
    paper_runs.seeds(tmp_path / "c", [98.9, 98.95, 99.0])
    report = filling.fill(find("5"), tmp_path)
    assert report.summary == "1 of 54 public cells reproduced"


@pytest.mark.parametrize(
    "variant, weights",
    [
        ("B/16", lambda: foreign.original_vit(foreign.random(foreign.vit(), 12, 12))),
        ("BiT-R50x1", lambda: foreign.bit_of_tensorflow(foreign.random(foreign.bit(), 224, 224))),
    ],
)
def test_constants_that_a_run_takes_from_the_authors_file_are_no_difference(
    tmp_path, variant, weights
):
    """A configuration as a run writes it, once everything is settled."""
    folder = tmp_path / "imagenet21k"
    folder.mkdir()
    file = foreign.npz(folder / "ViT-B_16.npz", weights())
    spec = f"configs/transfer.py:model={variant},dataset=cifar10,init={file},stage=final"
    run = dict(config_lib.flatten(defaults.settle(config_lib.load(spec))))
    recipe = recipe_diff.fine_tuning(variant, "cifar10")
    assert any(run[key] != recipe[key] for key in recipe_diff.CONSTANTS)
    assert recipe_diff.differences(run, recipe) == ()
    other = {**run, "model.gn_epsilon": 1e-5 if variant == "B/16" else 1e-6}
    assert [key for key, *_ in recipe_diff.differences(other, recipe)] == ["model.gn_epsilon"]


def test_differences_leave_out_what_a_run_may_choose():
    recipe = recipe_diff.fine_tuning("B/16", "cifar10")
    run = {**recipe, "seed": 7, "model.dtype": "bfloat16", "mesh.fsdp": 8, "batch_size": 64}
    run["data.reader"] = "python"  # it gives the same examples and draws
    assert recipe_diff.differences(run, recipe) == (("batch_size", 64, 512),)
    assert recipe_diff.differences(run, recipe, batch_size=64) == ()
    assert recipe["data.split"] == "train"
    assert recipe_diff.fine_tuning("L/16", "vtab/dtd")["data.split"] == "train800val200"
    assert recipe_diff.pre_training("So400m/14", "imagenet", "paper", 300) is None


# --- missing runs ---


def plan(name, root=None):
    return missing_runs.jobs(filling.fill(find(name), root), root)


def parts(job):
    """(verb, FILE:ARGS, workdir, overrides) of a command."""
    _, verb, config, workdir, *more = shlex.split(job.command)
    return verb, config.removeprefix("--config="), workdir.removeprefix("--workdir="), more


@pytest.mark.integration
@pytest.mark.parametrize(
    "name", ["2", "5", "9", "figure3", "augreg3", "augreg6", "replication", "big_vision", "mixer"]
)
def test_every_command_loads_and_starts_from_what_is_there_by_then(name):
    made = set()
    jobs = plan(name).jobs
    assert len({job.command for job in jobs}) == len(jobs)
    for job in jobs:
        verb, spec, workdir, overrides = parts(job)
        stage = ",stage=final" * (verb == "sweep")
        config = config_lib.load(spec + stage, overrides)
        selects = spec.startswith("vit_jax:transfer:") and ",lr=" not in spec
        assert verb == ("sweep" if selects else "train")
        assert not config.init or config.init.endswith(".npz") or config.init in made
        assert workdir not in made
        made.add(workdir)
        assert job.chip_hours > 0
        assert job.cells > 0


def test_table_5_needs_four_pretrainings_and_45_sweeps():
    jobs = plan("5").jobs
    verbs = [parts(job)[0] for job in jobs]
    assert (verbs.count("train"), verbs.count("sweep")) == (4, 45)
    cells = {parts(job)[1]: job.cells for job in jobs}
    start = "vit_jax:transfer:model=H/14,dataset=imagenet,init=imagenet21k/ViT-H_14.npz,also=real"
    assert cells[start] == 2  # ReaL's labels too
    assert cells["vit_jax:pretrain:model=B/16,dataset=imagenet,epochs=300"] == 6


def test_table_2_has_the_sizes_and_the_average_of_its_imagenet_rows():
    spec, more = next(parts(job)[1::2] for job in plan("2").jobs if "imagenet," in job.command)
    config = config_lib.load(spec, more)
    assert (config.data.image_size, config.ema.decay) == (512, 0.9999)


def test_augreg_is_selected_among_its_two_rates():
    from vit_jax.experiments.tables import compute

    job = next(j for j in plan("augreg3").jobs if "B/16,dataset=imagenet,init=augreg" in j.command)
    _, spec, _, overrides = parts(job)
    whole = sweep.read(spec, overrides)
    assert [p.config.schedule.lr for p in whole.points("select")] == [0.01, 0.03]
    side = whole.points("select")[0].config.data.image_size
    images = 20_000 * 512 * (2 + 3)
    expected = compute.chip_hours(3 * compute.forward_flops("B/16", side) * images)
    assert job.chip_hours == pytest.approx(expected)


def test_what_augreg_has_published_is_not_trained_again():
    starts = {parts(job)[1].partition("init=")[2].partition(",")[0] for job in plan("augreg3").jobs}
    expected = {
        f"augreg/B_32-{of}.npz"
        for of in (
            "i1k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.1-sd_0.1",
            "i21k-30ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0",
            "i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        )
    }
    assert {start for start in starts if "B_32" in start} == expected
    assert all(published.url(start) for start in starts - {""})


def test_hours_are_of_every_rate_once_and_three_final_runs():
    from vit_jax.experiments.tables import compute

    job = next(job for job in plan("5").jobs if "B/16,dataset=pets,init=imagenet21k" in job.command)
    images = 500 * 512 * (4 + 3)
    expected = 3 * compute.forward_flops("B/16", 384) * images
    assert job.chip_hours == pytest.approx(compute.chip_hours(expected))
    job = next(job for job in plan("9").jobs if "dtd" in job.command)
    expected = 3 * compute.forward_flops("L/16", 384) * 2500 * 512 * 3  # nothing is selected
    assert job.chip_hours == pytest.approx(compute.chip_hours(expected))


def test_what_is_there_is_not_planned_again(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9, 98.95, 99.0])
    parent = paper_runs.pretrain(tmp_path / "pre", "model=B/32,dataset=imagenet")
    jobs = [job.command for job in plan("5", tmp_path).jobs]
    assert not any("B/16,dataset=cifar10,init=imagenet21k" in command for command in jobs)
    assert not any("pretrain.py:model=B/32" in command for command in jobs)
    assert any(f"dataset=pets,init={parent}" in command for command in jobs)
    assert all(f"--workdir={tmp_path}/" in command for command in jobs)


TASK = {"init": "imagenet21k/ViT-L_16.npz"}


@pytest.mark.parametrize("name", ["9", "2"])
def test_a_mean_lists_only_the_tasks_that_it_lacks(tmp_path, name):
    paper_runs.seeds(tmp_path / "a", [77.0, 77.1, 77.2], "model=L/16,dataset=vtab/dtd", **TASK)
    commands = [job.command for job in plan(name, tmp_path).jobs]
    sweeps = [command for command in commands if "dataset=vtab/" in command]
    assert len(sweeps) == 18
    assert not any("dataset=vtab/dtd" in command for command in sweeps)
    paper_runs.transfer(tmp_path / "b", None, "model=L/16,dataset=vtab/eurosat", **TASK)  # it runs
    assert {job.command for job in plan(name, tmp_path).jobs} == {
        command for command in commands if "dataset=vtab/eurosat" not in command
    }


def test_a_mean_of_runs_that_share_no_seed_lacks_those_of_the_fewest(tmp_path):
    for task in vtab.tasks():
        args, folder = f"model=L/16,dataset=vtab/{task.slug}", tmp_path / task.slug
        if task.slug == "dtd":
            paper_runs.transfer(folder, 77.0, args, seed=7, **TASK)
        else:
            paper_runs.seeds(folder, [70.0, 70.1], args, **TASK)
    [job] = plan("9", tmp_path).jobs
    assert "dataset=vtab/dtd" in job.command


def test_a_mean_whose_runs_share_no_seed_in_pairs_lacks_something(tmp_path):
    seeds = {"dtd": 1, "eurosat": 0}  # all others: 0, 1
    for task in vtab.tasks():
        args, folder = f"model=L/16,dataset=vtab/{task.slug}", tmp_path / task.slug
        if task.slug in seeds:
            paper_runs.transfer(folder, 70.0, args, seed=seeds[task.slug], **TASK)
        else:
            paper_runs.seeds(folder, [70.0, 70.0], args, **TASK)
    assert len(plan("9", tmp_path).jobs) == 1


@pytest.mark.parametrize("name", ["figure12", "7", "augreg5", "masked", "objectnet"])
def test_cells_that_no_run_can_fill_have_no_plan(name):
    assert plan(name).jobs == ()


def test_replications_are_trained_with_the_rate_of_the_authors_and_not_selected():
    jobs = plan("replication").jobs
    assert len(jobs) == 30 * 3
    verb, spec, _, overrides = parts(jobs[0])
    config = config_lib.load(spec, overrides)
    assert (verb, config.seed, config.schedule.lr, config.data.split) == (
        "train", 0, 0.03, "train[:98%]"
    )  # fmt: skip
    assert len({parts(job)[2] for job in jobs}) == 90


def test_a_pretraining_of_any_folder_is_what_commands_start_from(tmp_path):
    root = tmp_path / "a,b"
    parent = paper_runs.pretrain(root / "000-x=1,seed=0", "model=B/32,dataset=imagenet")
    jobs = [job for job in plan("5", root).jobs if str(parent) in job.command]
    assert jobs
    for job in jobs:
        _, spec, _, overrides = parts(job)
        assert config_lib.load(spec, overrides).init == str(parent)


# --- claims ---


def claim(test="above", margin=0.0, terms=((1.0, "a", "m"), (-1.0, "b", "m")), seeds=3):
    return Claim("hour", "a beats b", terms, test, margin, "points", seeds)


@pytest.mark.parametrize("field", [{"margin": -1.0}, {"seeds": 1}, {"test": "over"}])
def test_a_claim_that_no_run_could_settle_is_refused(field):
    with pytest.raises(BadInput, match="claim"):
        claim(**field)


def rows(a, b=None):
    return {("a", "m"): dict(enumerate(a)), ("b", "m"): dict(enumerate(b or [0.0] * len(a)))}


def judged(measured, **given):
    """The only execution of a claim."""
    (execution,) = claims.judge([claim(**given)], measured)[0].executions
    return execution


def verdict(values, **given):
    return claims.judge([claim(**given)], rows(values))[0].verdict


def test_mean_and_standard_error_are_of_pairs_of_a_seed():
    found = judged(rows([51.0, 62.0, 73.0], [50.0, 60.0, 70.0]))
    assert found.values == (1.0, 2.0, 3.0)
    assert found.mean == 2.0
    assert found.error == pytest.approx(1.0 / math.sqrt(3))  # deviation of a sample: 1
    # With two degrees of freedom P(t > x) is 1/2 - x / (2 sqrt(2 + x^2)); x is 2 sqrt(3).
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert found.verdict == "not shown"  # p is 0.074


@pytest.mark.parametrize(
    "test, margin, values, expected",
    [
        ("above", 0.0, (2.0, 3.0, 2.5), "shown"),
        ("above", 0.0, (-2.0, -3.0, -2.5), "opposite"),
        ("above", 0.0, (-1.0, 2.0, 3.0), "not shown"),
        ("above", 1.3, (2.0, 3.0, 2.5), "not shown"),  # the interval of 95 % begins at 1.26
        ("above", 1.2, (2.0, 3.0, 2.5), "shown"),
        ("above", 1.3, (-2.0, -3.0, -2.5), "not shown"),
        ("above", 1.2, (-2.0, -3.0, -2.5), "opposite"),
        ("below", 0.0, (-2.0, -3.0, -2.5), "shown"),
        ("below", 0.0, (2.0, 3.0, 2.5), "opposite"),
        ("below", 0.0, (-1.0, 0.5, 0.1), "not shown"),
        ("below", 1.3, (-2.0, -3.0, -2.5), "not shown"),
        ("equal", 1.0, (0.1, 0.0, -0.1), "shown"),
        ("equal", 1.0, (2.0, 2.1, 2.2), "opposite"),
        ("equal", 1.0, (-2.0, -2.1, -2.2), "opposite"),
        ("equal", 1.0, (2.0, 0.0, -2.0), "not shown"),  # no difference found shows nothing
        ("equal", 1.0, (0.9, 1.0, 1.1), "not shown"),
        ("equal", 1.0, (0.5, 0.5, 0.5), "shown"),
        ("above", 1.0, (1.0, 1.0, 1.0), "not shown"),
    ],
)
def test_every_verdict_is_reached(test, margin, values, expected):
    assert verdict(values, test=test, margin=margin) == expected


def test_too_few_seeds_or_no_runs_are_missing_and_keep_what_there_is():
    one = judged(rows([1.0]))
    assert (one.verdict, one.mean, one.error) == ("missing", 1.0, None)
    two = judged(rows([1.0, 2.0]))
    assert (two.verdict, two.mean, two.error) == ("missing", 1.5, 0.5)
    (none,) = claims.judge([claim()], {("a", "m"): {0: 1.0, 1: 2.0, 2: 3.0}})
    assert (none.verdict, none.executions) == ("missing", ())


def test_seed_that_lacks_a_term_does_not_count():
    measured = {("a", "m"): {0: 2.0, 1: 3.0, 2: 4.0, 9: 1.0}, ("b", "m"): {0: 1, 1: 1, 2: 1, 7: 5}}
    assert judged(measured).values == (1.0, 2.0, 3.0)
    del measured["b", "m"][1]
    assert (judged(measured).values, judged(measured).verdict) == ((1.0, 3.0), "missing")


def test_weights_are_those_of_the_terms():
    terms = ((0.5, "a", "m"), (0.25, "a", "m"), (-2.0, "b", "m"))
    assert judged(rows([4.0, 4.0, 8.0], [1.0, 2.0, 1.0]), terms=terms).values == (1.0, -1.0, 4.0)


@pytest.mark.parametrize(
    "count, t975", [(2, 12.706), (3, 4.303), (5, 2.776), (8, 2.365), (10, 2.262), (30, 2.045)]
)
def test_a_claim_alone_is_judged_by_students_interval_of_95_percent(count, t975):
    """Quantiles as printed in tables of the t distribution."""
    values = [1.0 + (-1) ** n for n in range(count)]
    error = np.std(values, ddof=1) / count**0.5
    bound = np.mean(values) - t975 * error
    for margin, expected in ((bound - 0.01, "shown"), (bound + 0.01, "not shown")):
        moved = [value - margin + 1.0 for value in values]  # the margin is 1
        assert verdict(moved, test="above", margin=1.0, seeds=count) == expected


def test_holm_rejects_from_the_smallest_p_on_until_one_is_too_large():
    """The example of four hypotheses has steps 0.0125, 0.0167, 0.025 and 0.05."""
    family = [0.04, 0.01, 0.02, 0.016]
    assert [claims.significant(p, family) for p in family] == [True] * 4
    family = [0.01, 0.02, 0.03, 0.0001]  # 0.01 < 0.0167, 0.02 < 0.025, 0.03 < 0.05
    assert all(claims.significant(p, family) for p in family)
    family = [0.04, 0.017, 0.0001, 0.02]  # 0.017 stops it, whatever comes after
    assert [claims.significant(p, family) for p in family] == [False, False, True, False]


def test_other_claims_of_the_tier_raise_the_bar_measured_or_not():
    values = [2.0, 3.0, 2.5]  # p is 0.013
    strong = claim(terms=((1.0, "a", "m"),))
    weak = [claim(terms=((1.0, f"w{i}", "m"),)) for i in range(3)]
    measured = {("a", "m"): dict(enumerate(values))}
    assert claims.judge([strong], measured)[0].verdict == "shown"
    assert claims.judge([strong, *weak], measured)[0].verdict == "not shown"
    others = [dataclasses.replace(one, tier="night") for one in weak]
    assert claims.judge([strong, *others], measured)[0].verdict == "shown"
    measured |= {(f"w{i}", "m"): {0: -9.0, 1: 1.0, 2: 8.0} for i in range(3)}
    assert claims.judge([strong, *weak], measured)[0].verdict == "not shown"  # 0.0125 is needed
    assert claims.judge([strong, *weak[:2]], measured)[0].verdict == "shown"  # 0.0167


def test_executions_that_disagree_settle_nothing():
    strong, opposite = [2.0, 3.0, 2.5], [-2.0, -3.0, -2.5]
    for second, expected in (
        (strong, "shown"), (opposite, "not settled"), ([-1.0, 2.0, 3.0], "not settled"),
        (strong[:2], "shown"),  # a repetition that has not ended
    ):  # fmt: skip
        (found,) = claims.judge([claim(terms=((1.0, "a", "m"),))], rows([*strong, *second]))
        assert [one.number for one in found.executions] == [1, 2]
        assert found.executions[1].values == tuple(second)
        assert found.verdict == expected


def test_criterion_says_test_margin_unit_and_seeds():
    assert claim("equal", 1.5).criterion == "within ± 1.5 points, 3 seeds"
    assert claim("above", 0.5).criterion == "> 0.5 points, 3 seeds"
    assert claim("below", 0.5).criterion == "< -0.5 points, 3 seeds"


def test_unknown_test_is_refused():
    with pytest.raises(BadInput, match=r"'beyond'.*above, below, equal"):
        claim("beyond")


# --- tolerance ---


@pytest.mark.parametrize(
    "given, expected",
    [
        ((0.0, 1, 0.0, 3, 0.1), 0.230940),  # 2 sqrt(0.01 + 0.01 / 3): never less
        ((0.03, 1, 0.05, 3, 0.1), 0.230940),
        ((0.3, 3, 0.5, 3, 0.1), 0.673300),  # 2 sqrt(0.09 / 3 + 0.25 / 3)
        ((0.3, 1, 0.5, 3, 0.1), 0.832666),  # 2 sqrt(0.09 + 0.25 / 3)
        ((0.3, 3, 0.5, 2, 0.1), 0.787401),  # 2 sqrt(0.09 / 3 + 0.25 / 2)
        ((0.3, 3, 0.05, 3, 0.2), 0.416333),  # 2 sqrt(0.09 / 3 + 0.04 / 3)
    ],
)
def test_tolerance_is_that_of_two_means_with_a_least_deviation(given, expected):
    assert filling.tolerance(*given) == pytest.approx(expected, abs=1e-6)


def test_floor_of_a_mean_is_that_of_independent_fine_tunings():
    one, all_of = filling.floor(["cifar100"]), filling.floor([""])
    assert filling.floor(["cifar100", ""]) == pytest.approx(math.hypot(one, all_of) / 2)
    assert filling.floor(["vtab/dtd"] * 19) == pytest.approx(all_of / math.sqrt(19))
