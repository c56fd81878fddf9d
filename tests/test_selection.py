# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs of the stage `select` beside final ones: who chose, and on how many data sets."""

import shutil

import paper_runs
import pytest

from vit_jax.errors import BadInput
from vit_jax.experiments.tables import filling
from vit_jax.experiments.tables.cells import find
from vit_jax.paper import vtab

CIFAR = "model=B/16,dataset=cifar10"
L_16 = "imagenet21k/ViT-L_16.npz"


@pytest.fixture(autouse=True)
def quick():
    with paper_runs.quick_yaml():
        yield


def fill(root, name="5"):
    return filling.fill(find(name), root)


def cell(report, *labels):
    return next(f for f in report.cells if f.cell.labels == labels)


def select(folder, args, percent, *, init=paper_runs.I21K, **keys):
    """A finished run of the stage that holds images out."""
    keys = {"init": init} | {key.replace("__", "."): value for key, value in keys.items()}
    results = {"step": 1, "val": paper_runs.top1(percent)}
    return paper_runs.write(folder, f"configs/transfer.py:{args},stage=select", results, keys)


@pytest.mark.parametrize("rate, counted", [("0.003", True), ("0.01", False), ("0.03", False)])
def test_final_runs_have_the_rate_that_val_chose(tmp_path, rate, counted):
    """The last rate was not compared at all."""
    for value, percent in (("0.001", 97.0), ("0.003", 98.9), ("0.01", 98.0)):
        select(tmp_path / "select" / value, CIFAR, percent, schedule__lr=value)
    paper_runs.seeds(tmp_path / "final", [98.9, 98.95, 99.0], schedule__lr=rate)
    found = cell(fill(tmp_path), "ImageNet-21k", "CIFAR-10", "ViT-B/16")
    assert (found.status == "within tolerance") == counted
    best = "10000 steps, preprocess=released: on val rate 0.003, 10000 steps, preprocess=released"
    said = [] if counted else [f"rate {rate}, {best} is best: 98.95 ± 0.05 (3 runs)"]
    assert [text for text in found.stand_ins if text.startswith("rate")] == said


def test_equal_rates_and_those_of_other_weights_are_no_objection(tmp_path):
    select(tmp_path / "a", CIFAR, 98.9, schedule__lr="0.003")
    select(tmp_path / "b", CIFAR, 98.9, schedule__lr="0.01")
    select(tmp_path / "c", CIFAR, 99.9, schedule__lr="0.03", init="elsewhere/ViT-B_16.npz")
    select(tmp_path / "d", CIFAR, 99.9, schedule__lr="0.03", batch_size="8")
    paper_runs.seeds(tmp_path / "final", [98.9, 98.95, 99.0], schedule__lr="0.01")
    report = fill(tmp_path)
    assert report.summary == "1 of 54 public cells reproduced"
    assert not any("tried another" in text for text in report.remarks)


def test_final_runs_without_a_selection_are_named(tmp_path):
    paper_runs.seeds(tmp_path, [98.9, 98.95, 99.0])
    (said,) = [text for text in fill(tmp_path).remarks if "tried another" in text]
    assert said.endswith(
        f"tried another rate: {'; '.join(str(tmp_path / f'seed{i}') for i in range(3))}"
    )


def test_a_sole_rate_is_not_a_comparison(tmp_path):
    select(tmp_path / "select", CIFAR, 98.9, schedule__lr="0.003")
    paper_runs.seeds(tmp_path / "final", [98.9, 98.95, 99.0], schedule__lr="0.003")
    assert any("no run in this folder tried another" in text for text in fill(tmp_path).remarks)


@pytest.mark.parametrize(
    "keys", [{"evals__val__split": "test"}, {"data__split": "train"}, {"stopped": True}]
)
def test_a_selection_is_by_images_held_out_and_of_whole_runs(tmp_path, keys):
    """Such a run chooses nothing: val would be test, or was trained on, or it was stopped."""
    keys = dict(keys)
    stopped = keys.pop("stopped", False)
    select(tmp_path / "a", CIFAR, 98.0, schedule__lr="0.003")
    other = select(tmp_path / "b", CIFAR, 99.9, schedule__lr="0.01", **keys)
    if stopped:
        (other / "stopped.json").write_text("{}")
    paper_runs.seeds(tmp_path / "final", [98.9, 98.95, 99.0], schedule__lr="0.003")
    report = fill(tmp_path)
    assert report.summary == "1 of 54 public cells reproduced"
    assert any("tried another" in text for text in report.remarks) != stopped


def test_a_protocol_without_runs_that_count_can_be_chosen(tmp_path):
    """To see why they do not."""
    for chain, rate in (("released", "0.003"), ("paper", "0.01")):
        args = f"{CIFAR},preprocess={chain}"
        for value, percent in (("0.003", 98.9), ("0.01", 98.0)):
            select(tmp_path / chain / value, args, percent, schedule__lr=value)
        paper_runs.seeds(tmp_path / chain / "final", [98.9, 98.95, 99.0], args, schedule__lr=rate)
    found = cell(filling.fill(find("5"), tmp_path, "paper"), "ImageNet-21k", "CIFAR-10", "ViT-B/16")
    assert found.status == "missing"
    assert any("on val rate 0.003" in text for text in found.stand_ins)


def test_the_hyperrule_of_bit_competes_within_the_protocol_of_the_table(tmp_path):
    bit = "model=BiT-R50x1,dataset=cifar10"
    keys = {"init": "weights.npz", "recipe__upstream": "jft"}
    select(tmp_path / "a", bit, 98.0, **keys)
    select(tmp_path / "b", f"{bit},recipe=hyperrule", 98.2, **keys)
    select(tmp_path / "c", f"{bit},preprocess=paper", 98.5, **keys)
    paper_runs.transfer(tmp_path / "d", 97.7, f"{bit},preprocess=paper", **keys)
    paper_runs.transfer(tmp_path / "e", 97.7, bit, **keys)
    paper_runs.transfer(tmp_path / "f", 97.7, f"{bit},recipe=hyperrule", **keys)
    report = filling.fill(find("6"), tmp_path, "released")
    (found,) = [f for f in report.cells if f.seeds]
    (why,) = [text for text in found.stand_ins if text.startswith("rate")]
    assert why.startswith("rate 0.003, 10000 steps, preprocess=released: on val rate 0.003, ")
    assert "recipe=hyperrule is best" in why


def test_each_protocol_has_its_own_selection(tmp_path):
    for chain, best in (("released", "0.003"), ("paper", "0.01")):
        args = f"{CIFAR},preprocess={chain}"
        for rate in ("0.003", "0.01"):
            percent = 98.0 + (rate == best) + 0.5 * (chain == "paper")
            select(tmp_path / chain / rate, args, percent, schedule__lr=rate)
        paper_runs.seeds(tmp_path / chain / "final", [98.9, 98.95, 99.0], args, schedule__lr=best)
    for chain in ("released", "paper"):
        report = filling.fill(find("5"), tmp_path, chain)
        assert report.summary == "1 of 54 public cells reproduced"


def test_pre_trainings_of_ones_own_are_selected_together(tmp_path):
    """Two of three prefer the first rate, which all have."""
    for seed in range(3):
        spec = "model=B/16,dataset=imagenet21k,release=fall11,epochs=90"
        parent = str(paper_runs.pretrain(tmp_path / f"pre{seed}", spec, seed=seed))
        for rate in ("0.003", "0.01"):
            percent = 98.0 + ((rate == "0.003") == (seed < 2))
            select(tmp_path / f"{seed}-{rate}", CIFAR, percent, init=parent, schedule__lr=rate)
        paper_runs.transfer(tmp_path / f"final{seed}", 98.95, init=parent, seed=seed,
                            schedule__lr="0.003")  # fmt: skip
    assert fill(tmp_path).summary == "1 of 54 public cells reproduced"


# ---------------------------------------------------------------- VTAB

OTHER = {"schedule__lr": "0.03", "length": "500 steps"}


def vtab_finals(root, task, init=L_16, **keys):
    args = f"model=L/16,dataset=vtab/{task}"
    paper_runs.seeds(root / "final" / task, [80.0, 80.1, 80.2], args, init=init, **keys)


def vtab_selects(root, slugs, best=0.03):
    for slug in slugs:
        for rate in (0.01, 0.03):
            for steps in (500, 2500):
                percent = 80.0 + (rate == best and steps == 500)
                select(root / "select" / f"{slug}-{rate}-{steps}",
                       f"model=L/16,dataset=vtab/{slug}", percent, init=L_16,
                       schedule__lr=rate, length=f"{steps} steps")  # fmt: skip


def eurosat(root):
    return cell(fill(root, "9"), "ViT-L/16 (I21k)", "EuroSAT")


def test_a_choice_of_vtab_is_that_of_all_19_tasks(tmp_path):
    vtab_finals(tmp_path, "eurosat", recipe__stage="final", **OTHER)
    slugs = [task.slug for task in vtab.tasks()]
    said = "rate 0.03, 500 steps: 0 of 4 settings were tried on all 19 tasks"
    assert said in eurosat(tmp_path).stand_ins[0]
    vtab_selects(tmp_path, slugs[:1])
    assert said in eurosat(tmp_path).stand_ins[0]
    vtab_selects(tmp_path, slugs[1:])
    assert eurosat(tmp_path).seeds == 3


def test_all_tasks_of_vtab_can_refuse_a_choice(tmp_path):
    vtab_selects(tmp_path, [task.slug for task in vtab.tasks()], best=0.01)
    vtab_finals(tmp_path, "eurosat", recipe__stage="final", **OTHER)
    said = "rate 0.03, 500 steps: on val rate 0.01, 500 steps is best"
    assert said in eurosat(tmp_path).stand_ins[0]


def test_a_choice_of_vtab_is_among_all_settings_of_the_sweep(tmp_path):
    """A better setting lacks one task; so nobody can say which is best."""
    slugs = [task.slug for task in vtab.tasks()]
    vtab_selects(tmp_path, slugs)
    shutil.rmtree(tmp_path / "select" / f"{slugs[0]}-0.01-2500")
    vtab_finals(tmp_path, "eurosat", recipe__stage="final", **OTHER)
    assert "3 of 4 settings were tried on all 19 tasks" in eurosat(tmp_path).stand_ins[0]


def test_tasks_of_vtab_that_start_from_other_files_are_refused(tmp_path):
    vtab_finals(tmp_path, "eurosat")
    vtab_finals(tmp_path, "dtd", init="hf:google/vit-large-patch16-224-in21k")
    with pytest.raises(BadInput, match=r"mixed protocols: .*weights .*VTAB chooses once"):
        fill(tmp_path, "9")


def test_the_choice_of_the_recipe_needs_no_selection(tmp_path):
    vtab_selects(tmp_path, ["eurosat"])
    vtab_finals(tmp_path, "eurosat", recipe__stage="final")
    assert eurosat(tmp_path).seeds == 3


def test_a_mean_is_of_one_pre_training(tmp_path):
    """Each cell alone may start from its own; a mean that pairs seeds may not."""
    spec = "model=L/16,dataset=imagenet21k,release=fall11,epochs=90"
    first, second = (str(paper_runs.pretrain(tmp_path / name, spec)) for name in "ab")
    vtab_finals(tmp_path, "eurosat", init=first)
    vtab_finals(tmp_path, "dtd", init=first)
    assert eurosat(tmp_path).seeds == 3
    vtab_finals(tmp_path, "svhn", init=second)
    with pytest.raises(BadInput, match=r"mixed weights in one mean: .* from .*/a, .* from .*/b\."):
        fill(tmp_path, "9")
