# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Plans: every command is one that can run, in an order that works, once."""

import shlex

import papers
import pytest

from vit_jax.config import load as config_lib
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.tables import filling, missing_runs
from vit_jax.experiments.tables.cells import find
from vit_jax.paper import vtab


def plan(name, root=None):
    return missing_runs.jobs(filling.fill(find(name), root), root)


def parts(job):
    """(verb, FILE:ARGS, workdir, overrides) of a command."""
    _, verb, config, workdir, *more = shlex.split(job.command)
    return verb, config.removeprefix("--config="), workdir.removeprefix("--workdir="), more


@pytest.mark.parametrize("name", ["2", "5", "9", "figure3", "augreg3"])
def test_every_command_loads_and_starts_from_what_is_there_by_then(name):
    made = set()
    jobs = plan(name).jobs
    assert len({job.command for job in jobs}) == len(jobs)
    for job in jobs:
        verb, spec, workdir, overrides = parts(job)
        stage = ",stage=final" * (verb == "sweep")
        config = config_lib.load(spec + stage, overrides)
        assert verb == ("train" if spec.startswith("configs/pretrain.py") else "sweep")
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
    start = (
        "configs/transfer.py:model=H/14,dataset=imagenet,init=imagenet21k/ViT-H_14.npz,also=real"
    )
    assert cells[start] == 2  # ReaL's labels too
    assert cells["configs/pretrain.py:model=B/16,dataset=imagenet,epochs=300"] == 6


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
    papers.seeds(tmp_path / "a", [98.9, 98.95, 99.0])
    parent = papers.pretrain(tmp_path / "pre", "model=B/32,dataset=imagenet")
    jobs = [job.command for job in plan("5", tmp_path).jobs]
    assert not any("B/16,dataset=cifar10,init=imagenet21k" in command for command in jobs)
    assert not any("pretrain.py:model=B/32" in command for command in jobs)
    assert any(f"dataset=pets,init={parent}" in command for command in jobs)
    assert all(f"--workdir={tmp_path}/" in command for command in jobs)


TASK = {"init": "imagenet21k/ViT-L_16.npz"}


@pytest.mark.parametrize("name", ["9", "2"])
def test_a_mean_lists_only_the_tasks_that_it_lacks(tmp_path, name):
    papers.seeds(tmp_path / "a", [77.0, 77.1, 77.2], "model=L/16,dataset=vtab/dtd", **TASK)
    commands = [job.command for job in plan(name, tmp_path).jobs]
    sweeps = [command for command in commands if "dataset=vtab/" in command]
    assert len(sweeps) == 18
    assert not any("dataset=vtab/dtd" in command for command in sweeps)
    papers.transfer(tmp_path / "b", None, "model=L/16,dataset=vtab/eurosat", **TASK)  # it runs
    assert {job.command for job in plan(name, tmp_path).jobs} == {
        command for command in commands if "dataset=vtab/eurosat" not in command
    }


def test_a_mean_of_runs_that_share_no_seed_lacks_those_of_the_fewest(tmp_path):
    for task in vtab.tasks():
        args, folder = f"model=L/16,dataset=vtab/{task.slug}", tmp_path / task.slug
        if task.slug == "dtd":
            papers.transfer(folder, 77.0, args, seed=7, **TASK)
        else:
            papers.seeds(folder, [70.0, 70.1], args, **TASK)
    [job] = plan("9", tmp_path).jobs
    assert "dataset=vtab/dtd" in job.command


def test_a_mean_whose_runs_share_no_seed_in_pairs_lacks_something(tmp_path):
    seeds = {"dtd": [1], "eurosat": [0]}  # all others: 0, 1
    for task in vtab.tasks():
        for seed in seeds.get(task.slug, [0, 1]):
            args = f"model=L/16,dataset=vtab/{task.slug}"
            papers.transfer(tmp_path / f"{task.slug}-{seed}", 70.0, args, seed=seed, **TASK)
    assert len(plan("9", tmp_path).jobs) == 1


def test_cells_without_a_run_are_counted():
    assert plan("figure12").jobs == ()
    assert plan("figure12").without == 80
    assert "80 missing cells" in plan("figure12").notes[-1]
    assert plan("7").jobs == ()


def test_a_pretraining_of_any_folder_is_what_commands_start_from(tmp_path):
    root = tmp_path / "a,b"
    parent = papers.pretrain(root / "000-x=1,seed=0", "model=B/32,dataset=imagenet")
    jobs = [job for job in plan("5", root).jobs if str(parent) in job.command]
    assert jobs
    for job in jobs:
        _, spec, _, overrides = parts(job)
        assert config_lib.load(spec, overrides).init == str(parent)
