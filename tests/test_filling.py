# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs into cells: each status, what counts and what does not, and what is refused."""

import json
import shutil

import paper_runs
import pytest

from vit_jax.errors import BadInput
from vit_jax.experiments.tables import filling
from vit_jax.experiments.tables.cells import find
from vit_jax.paper import vtab

CELL = ("ImageNet-21k", "CIFAR-10", "ViT-B/16")  # 98.95
JFT = ("JFT-300M", "CIFAR-10", "ViT-B/16")


@pytest.fixture(autouse=True)
def quick():
    with paper_runs.quick_yaml():
        yield


def fill(root, name="5", protocol=""):
    return filling.fill(find(name), root, protocol)


def cell(report, *labels):
    return next(f for f in report.cells if f.cell.labels == labels)


# ---------------------------------------------------------------- status


def test_no_runs_is_missing_and_private_and_empty(tmp_path):
    report = fill(tmp_path)
    assert cell(report, *CELL).status == "missing"
    assert cell(report, *JFT).status == "needs private data"
    assert cell(report, "ImageNet", "CIFAR-10", "ViT-H/14").status == "not in the paper"
    assert report.summary == "0 of 54 public cells reproduced"


def test_three_seeds_near_the_paper_are_within_tolerance(tmp_path):
    paper_runs.seeds(tmp_path, [98.9, 98.95, 99.0])
    found = cell(fill(tmp_path), *CELL)
    assert (found.status, found.seeds) == ("within tolerance", 3)
    assert found.ours == pytest.approx(98.95)
    assert found.std == pytest.approx(0.05)
    assert found.difference == pytest.approx(0.0, abs=1e-9)
    assert fill(tmp_path).summary == "1 of 54 public cells reproduced"


@pytest.mark.parametrize(
    "gap, status",
    [(0.25, "within tolerance"), (-0.25, "within tolerance"), (0.27, "off"), (-0.27, "off")],
)
def test_spread_of_published_repetitions_is_the_least_limit(tmp_path, gap, status):
    # 2 sqrt(0.1123^2 + 0.1123^2 / 3) = 0.2594 points; the spread of these seeds asks for less
    paper_runs.seeds(tmp_path, [98.95 + gap + d for d in (-0.01, 0.0, 0.01)])
    assert cell(fill(tmp_path), *CELL).status == status


def test_spread_between_seeds_widens_the_limit(tmp_path):
    # 2 sqrt(0.1123^2 + 0.2^2 / 3) = 0.32 > 0.3
    paper_runs.seeds(tmp_path, [98.65 + d for d in (-0.2, 0.0, 0.2)])
    assert cell(fill(tmp_path), *CELL).status == "within tolerance"


@pytest.mark.parametrize("percents", [[98.25, 98.65, 99.05], [60, 80, 99], [98.9, 98.95, 97.0]])
def test_seeds_that_diverge_reproduce_nothing(tmp_path, percents):
    # At most 2 sqrt(0.1123^2 + (2 x 0.1123)^2 / 3) = 0.34
    paper_runs.seeds(tmp_path, percents)
    found = cell(fill(tmp_path), *CELL)
    assert found.status == ("off" if percents[0] != 98.25 else "within tolerance")
    assert found.allowed == pytest.approx(0.3431, abs=1e-4)


def test_run_on_some_of_the_test_images_does_not_count(tmp_path):
    paper_runs.seeds(tmp_path, [98.94, 98.95, 98.96])
    for file in tmp_path.glob("*/results.json"):
        file.write_text(json.dumps({"test": paper_runs.top1(98.95, examples=12)}))
    filled = cell(fill(tmp_path), *CELL)
    assert filled.status == "missing"
    assert "12 of 10,000 test images" in filled.stand_ins[0]
    for file in tmp_path.glob("*/results.json"):
        file.write_text(json.dumps({"test": paper_runs.top1(98.95, examples=10_000)}))
    assert cell(fill(tmp_path), *CELL).status == "within tolerance"


def test_cell_names_the_other_models_that_its_value_fits(tmp_path):
    # CIFAR-10: B/16 98.95, B/32 98.79, L/16 99.16, L/32 99.13, H/14 99.27; tolerance 0.2594
    paper_runs.seeds(tmp_path, [98.89, 98.9, 98.91])
    report = fill(tmp_path)
    assert cell(report, *CELL).also == ("ViT-B/32", "ViT-L/32")
    assert cell(report, *CELL).allowed == pytest.approx(0.2594, abs=1e-4)
    assert cell(report, *JFT).also == ()


def test_one_seed_is_no_reproduction(tmp_path):
    paper_runs.seeds(tmp_path, [98.95])
    found = cell(fill(tmp_path), *CELL)
    assert (found.status, found.std) == ("1 seed", None)
    assert fill(tmp_path).summary.startswith("0 of")


def test_two_seeds_are_no_reproduction(tmp_path):
    paper_runs.seeds(tmp_path, [98.9, 99.0])
    found = cell(fill(tmp_path), *CELL)
    assert (found.status, found.seeds, found.ours) == ("2 seeds", 2, pytest.approx(98.95))
    assert fill(tmp_path).summary.startswith("0 of")


def test_run_without_results_is_running(tmp_path):
    folder = paper_runs.transfer(tmp_path / "a", None)
    report = fill(tmp_path)
    assert cell(report, *CELL).status == "running"
    assert any("running" in text and str(folder) in text for text in report.remarks)


def test_run_that_a_sweep_gave_up_is_not_running(tmp_path):
    folder = paper_runs.transfer(tmp_path / "a", None)
    (folder / "failed.json").write_text("{}")
    report = fill(tmp_path)
    assert cell(report, *CELL).status == "missing"
    assert f"failed: {folder}" in report.remarks


def test_selection_that_goes_on_is_running_and_one_that_is_done_is_missing(tmp_path):
    paper_runs.transfer(tmp_path / "a", None, recipe__stage="select", data__split="train[:98%]")
    assert cell(fill(tmp_path), *CELL).status == "running"
    (tmp_path / "a" / "results.json").write_text(json.dumps({"val": paper_runs.top1(98.0)}))
    assert cell(fill(tmp_path), *CELL).status == "missing"


def test_numbers_of_others_are_external():
    report = fill(None, "2")
    assert cell(report, "ImageNet", "Noisy Student (EfficientNet-L2)").status == "external"
    assert cell(report, "CIFAR-10", "Noisy Student (EfficientNet-L2)").status == "not in the paper"
    assert cell(report, "ImageNet", "Ours-JFT (ViT-H/14)").status == "needs private data"
    assert report.summary == "0 of 7 public cells reproduced"


def test_run_on_jft_fills_a_private_cell_but_is_not_counted(tmp_path):
    paper_runs.seeds(
        tmp_path, [99.0, 99.01, 99.02], init="weights.npz", recipe__upstream="JFT-300M"
    )
    report = fill(tmp_path)
    assert cell(report, *JFT).status == "within tolerance"
    assert report.summary == "0 of 54 public cells reproduced"


# ---------------------------------------------------------------- what never counts


@pytest.mark.parametrize(
    "said, keys",
    [
        ("on synthetic:cifar10", {"data__source": "synthetic:cifar10"}),
        ("on folder:/my/cifar-10", {"data__source": "folder:/my/cifar-10"}),
        ("length: 100 steps, not 10000 steps", {"length": "100 steps"}),
        ("schedule.lr: 0.5, not of", {"schedule__lr": "0.5"}),
        ("batch_size: 256, not 512", {"batch_size": "256"}),
        ("evals.test.split: test[:10%], not test", {"evals__test__split": "test[:10%]"}),
        ("data.split: train[:98%], not train", {"data__split": "train[:98%]"}),
        ("data.image_size: 224, not 384", {"data__image_size": "224"}),
        ("ema.decay: 0.9999, not 0.0", {"ema__decay": "0.9999"}),
        ("model.dropout: 0.0, not 0.1", {"model__dropout": "0.0"}),
        ("no stage, not final", {"recipe__stage": ""}),
        ("looked at test", {"checkpoint__keep_best": "test/top1"}),
        ("looked at test", {"recipe__stage": "select"}),
        ("pre-trained on places", {"init": "w.npz", "recipe__upstream": "places"}),
        ("pre-trained on nothing (from scratch)", {"init": ""}),
    ],
)
def test_run_that_is_not_the_papers_is_shown_without_a_verdict(tmp_path, said, keys):
    paper_runs.seeds(tmp_path, [98.95], **keys)
    report = fill(tmp_path)
    found = cell(report, *CELL)
    assert (found.status, found.ours) == ("missing", None)
    assert said in found.stand_ins[0]
    assert "98.95 (1 run)" in found.stand_ins[0]
    assert report.summary == "0 of 54 public cells reproduced"


def test_run_that_says_it_looked_at_test_never_counts(tmp_path):
    paper_runs.seeds(tmp_path, [98.95, 98.96, 98.94])
    for file in tmp_path.rglob("results.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"looked_at_test": True}))
    found = cell(fill(tmp_path), *CELL)
    assert found.status == "missing"
    assert found.stand_ins[0].startswith("looked at test")


def test_another_upstream_stands_in_for_jft_without_a_verdict(tmp_path):
    paper_runs.seeds(tmp_path, [99.0, 99.0, 99.0])
    found = cell(fill(tmp_path, "6"), "ViT-B/16", "7", "CIFAR-10")
    assert (found.status, found.ours) == ("needs private data", None)
    assert found.stand_ins == ("pre-trained on imagenet21k: 99.00 ± 0.00 (3 runs)",)


def test_run_with_a_row_of_its_own_is_no_stand_in_elsewhere(tmp_path):
    paper_runs.seeds(tmp_path, [99.0, 99.0, 99.0])
    assert cell(fill(tmp_path), *JFT).stand_ins == ()


def test_seed_rate_of_the_grid_and_arithmetic_are_free(tmp_path):
    keys = {"model__dtype": "bfloat16", "schedule__lr": "0.03", "mesh__fsdp": "2"}
    paper_runs.seeds(tmp_path, [98.95, 98.96, 98.94], **keys)
    assert cell(fill(tmp_path), *CELL).status == "within tolerance"


@pytest.mark.parametrize(
    "key, value", [("data.std", "(3,3,3)"), ("model.gelu", "erf"), ("model.ln_epsilon", "0.1")]
)
@pytest.mark.parametrize(
    "init, free", [(paper_runs.I21K, False), ("hf:google/vit-base-patch16-224-in21k", True)]
)
def test_constants_are_those_of_the_authors_but_for_other_libraries(
    tmp_path, key, value, init, free
):
    paper_runs.seeds(tmp_path, [98.95, 98.96, 98.94], init=init, **{key.replace(".", "__"): value})
    found = cell(fill(tmp_path), *CELL)
    assert (found.status == "within tolerance") == free
    assert any(text.startswith(f"{key}: ") for text in found.stand_ins) != free


def test_the_dtypes_of_the_runs_that_count_are_told(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.95, 98.96], model__dtype="bfloat16")
    paper_runs.transfer(tmp_path / "b", 98.94, seed="2", model__dtype="float32")
    paper_runs.transfer(tmp_path / "c", 98.94, seed="3", init="", model__dtype="float32")  # no cell
    said = [text for text in fill(tmp_path).remarks if text.startswith("model.dtype")]
    a, b = tmp_path / "a", tmp_path / "b"
    listed = f"bfloat16 (2: {a / 'seed0'}; {a / 'seed1'}), float32 (1: {b})"
    assert said == [f"model.dtype of the runs that count: {listed}"]


# ---------------------------------------------------------------- where weights come from


def test_pretraining_here_is_known_by_its_configuration(tmp_path):
    for name, args in (("good", ""), ("short", ",epochs=100")):
        root = tmp_path / name
        parent = paper_runs.pretrain(root / "pre", f"model=B/16,dataset=imagenet{args}")
        paper_runs.seeds(root / "cifar", [98.1, 98.13, 98.16], init=f"{parent}@1")  # its last
    labels = ("ImageNet", "CIFAR-10", "ViT-B/16")
    assert cell(fill(tmp_path / "good"), *labels).status == "within tolerance"
    found = cell(fill(tmp_path / "short"), *labels)
    assert found.status == "missing"
    assert "100 epochs" in found.stand_ins[0]


@pytest.mark.parametrize("step", ["@best", "@100"])
def test_another_step_than_the_last_is_another_pretraining(tmp_path, step):
    parent = paper_runs.pretrain(tmp_path / "pre", "model=B/16,dataset=imagenet")
    paper_runs.seeds(tmp_path / "cifar", [98.1, 98.13, 98.16], init=f"{parent}{step}")
    found = cell(fill(tmp_path), "ImageNet", "CIFAR-10", "ViT-B/16")
    assert found.status == "missing"
    assert f"init at {step}, not at its end" in found.stand_ins[0]


@pytest.mark.parametrize(
    "source", ["folder:/my/cats", "tfds:imagenet21k/winter21", "records:/i21k/*"]
)
def test_a_pretraining_on_other_images_than_the_papers_is_said(tmp_path, source):
    parent = paper_runs.pretrain(
        tmp_path / "pre", "model=B/16,dataset=imagenet21k,release=fall11,epochs=90",
        data__source=source, recipe__upstream="imagenet21k",
    )  # fmt: skip
    paper_runs.seeds(tmp_path / "cifar", [98.9, 98.95, 99.0], init=str(parent))
    found = cell(fill(tmp_path), *CELL)
    assert found.status == "missing"
    assert f"data.source: {source}, not tfds:imagenet21k/fall11" in found.stand_ins[0]


def test_a_branch_is_not_the_recipe(tmp_path):
    paper_runs.seeds(tmp_path, [98.9, 98.95, 99.0], branch="runs/elsewhere@9000")
    found = cell(fill(tmp_path), *CELL)
    assert found.status == "missing"
    assert "branch: runs/elsewhere@9000, not " in found.stand_ins[0]


def test_seeds_from_unlike_weights_are_refused(tmp_path):
    parent = paper_runs.pretrain(
        tmp_path / "pre", "model=B/16,dataset=imagenet21k,release=fall11,epochs=90"
    )
    paper_runs.transfer(tmp_path / "a", 98.95, init=str(parent))
    paper_runs.transfer(tmp_path / "b", 98.95, seed=1)
    with pytest.raises(BadInput, match=r"weights of a run.*weights ViT-B_16\.npz"):
        fill(tmp_path)


def test_seeds_from_unlike_settings_of_augreg_are_refused(tmp_path):
    for seed, level in enumerate(("none", "light2")):  # Figure 4 has equal percents of these
        spec = "recipe=augreg,model=B/32,dataset=imagenet21k,epochs=30,release=fall11,reg=0.0"
        parent = paper_runs.pretrain(tmp_path / level, f"{spec},aug={level}", {"step": 1})
        args = "model=B/32,dataset=imagenet,size=384,preprocess=big_vision,dropout=0.0,lr=0.01"
        paper_runs.transfer(tmp_path / f"{level}-tuned", 75.0, args, seed=seed, init=str(parent))
    with pytest.raises(BadInput, match=r"-tuned has rate .*randaug\(2, 10\).*-tuned has rate "):
        fill(tmp_path, "augreg3")


@pytest.mark.parametrize("level, counts", [("light2", True), ("none", False)])
def test_a_pretraining_of_augreg_has_the_settings_of_the_file(tmp_path, level, counts):
    spec = f"recipe=augreg,model=B/32,dataset=imagenet21k,epochs=300,release=fall11,aug={level}"
    parent = paper_runs.pretrain(tmp_path / "pre", spec, {"step": 1})
    args = "model=B/32,dataset=imagenet,size=384,preprocess=big_vision,dropout=0.0,lr=0.01"
    paper_runs.seeds(tmp_path / "tuned", [83.5, 83.59, 83.6], args, init=str(parent))
    found = cell(fill(tmp_path, "augreg3"), "384", "i21k_300", "B/32")
    assert (found.status == "within tolerance") == counts
    if not counts:
        assert "pre-training with other settings than the best" in found.stand_ins[0]


def test_the_accuracy_of_the_best_pretraining_is_not_that_of_any(tmp_path):
    spec = "recipe=augreg,model=B/32,dataset=imagenet,epochs=300,aug="
    for level, reg in (("none", 0.0), ("medium2", 0.1)):
        paper_runs.pretrain(tmp_path / level, f"{spec}{level},reg={reg}",
                            {"step": 1, "test": paper_runs.top1(74.0)})  # fmt: skip
    found = cell(fill(tmp_path, "augreg3"), "224", "i1k_up", "B/32")
    assert found.status == "1 seed"
    assert "other settings than the best" in found.stand_ins[0]


def test_a_metric_that_was_not_measured_is_named(tmp_path):
    folder = paper_runs.transfer(tmp_path / "a", 83.97, "model=B/16,dataset=imagenet")
    few = paper_runs.pretrain(tmp_path / "p", "model=B/16,dataset=jft,epochs=7", {"step": 1},
                              data__source="records:/jft/*", recipe__upstream="jft")  # fmt: skip
    assert f"without real/top1 in results.json: {folder}" in fill(tmp_path).remarks
    assert f"without fewshot_imagenet/5shot in results.json: {few}" in fill(tmp_path, "8").remarks


def test_run_is_found_where_its_init_is_relative_to_the_folder(tmp_path):
    paper_runs.pretrain(tmp_path / "pre", "model=B/16,dataset=imagenet")
    paper_runs.seeds(tmp_path / "cifar", [98.1, 98.13, 98.16], init="pre")
    assert cell(fill(tmp_path), "ImageNet", "CIFAR-10", "ViT-B/16").seeds == 3


def test_pretraining_with_other_settings_is_said(tmp_path):
    parent = paper_runs.pretrain(tmp_path / "p", "model=B/16,dataset=imagenet", schedule__lr="0.1",
                                 optimizer__clip="5.0")  # fmt: skip
    paper_runs.seeds(tmp_path / "cifar", [98.1, 98.13, 98.16], init=str(parent))
    found = cell(fill(tmp_path), "ImageNet", "CIFAR-10", "ViT-B/16")
    assert found.status == "missing"
    assert "pre-training with optimizer.clip: 5.0, not 1.0" in found.stand_ins[0]


def test_real_labels_come_from_the_runs_of_imagenet(tmp_path):
    for seed in range(3):
        spec = "model=B/16,dataset=imagenet,also=real"
        folder = paper_runs.transfer(tmp_path / str(seed), 83.97, spec, seed=seed,
                                     evals__real__labels="/data/real.json")  # fmt: skip
        results = {"test": paper_runs.top1(83.97, examples=50_000),
                   "real": paper_runs.top1(88.35, examples=46_837)}  # fmt: skip
        (folder / "results.json").write_text(json.dumps(results))
    report = fill(tmp_path)
    for test in ("ImageNet", "ImageNet ReaL"):
        assert cell(report, "ImageNet-21k", test, "ViT-B/16").status == "within tolerance"


def test_real_may_spell_its_source_out(tmp_path):
    folder = paper_runs.transfer(tmp_path / "a", 83.97, "model=B/16,dataset=imagenet,also=real",
                                 evals__real__source="tfds:imagenet2012")  # fmt: skip
    results = {"real": paper_runs.top1(88.35, examples=46_837)}
    (folder / "results.json").write_text(json.dumps(results))
    assert cell(fill(tmp_path), "ImageNet-21k", "ImageNet ReaL", "ViT-B/16").status == "1 seed"


@pytest.mark.parametrize(
    "key, value", [("split", "train[99%:]"), ("labels", ""), ("source", "tfds:imagenet_v2")]
)
def test_real_of_other_images_or_labels_does_not_count(tmp_path, key, value):
    folder = paper_runs.transfer(tmp_path / "a", 83.97, "model=B/16,dataset=imagenet,also=real",
                                 **{f"evals__real__{key}": value})  # fmt: skip
    results = {"test": paper_runs.top1(83.97, examples=50_000),
               "real": paper_runs.top1(88.35, examples=46_837)}  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    report = fill(tmp_path)
    assert cell(report, "ImageNet-21k", "ImageNet", "ViT-B/16").status == "1 seed"
    real = cell(report, "ImageNet-21k", "ImageNet ReaL", "ViT-B/16")
    assert real.status == "missing"
    assert f"evals.real.{key}: {value}, not " in real.stand_ins[0]


def test_table_2_takes_512_pixels_and_the_average_and_table_5_does_not(tmp_path):
    paper_runs.seeds(tmp_path, [85.28, 85.3, 85.32], "model=L/16,dataset=imagenet,size=512",
                     init="imagenet21k/ViT-L_16.npz", ema__decay="0.9999",
                     recipe__protocol="released-512-polyak")  # fmt: skip
    paper_runs.seeds(tmp_path / "c", [99.1, 99.15, 99.2], "model=L/16,dataset=cifar10",
                     init="imagenet21k/ViT-L_16.npz", recipe__protocol="released")  # fmt: skip
    assert fill(tmp_path, "2").protocol == "released"
    assert cell(fill(tmp_path, "2"), "ImageNet", "Ours-I21k (ViT-L/16)").status == (
        "within tolerance"
    )
    found = cell(fill(tmp_path), "ImageNet-21k", "ImageNet", "ViT-L/16")
    assert found.status == "missing"
    assert "data.image_size: 512, not 384" in found.stand_ins[0]


# ---------------------------------------------------------------- means


def tasks(root, skip=(), **keys):
    printed = {f.cell.labels: f.cell.paper for f in fill(None, "9").cells}
    for task in vtab.tasks():
        if task.slug not in skip:
            percent = printed["ViT-L/16 (I21k)", task.name]
            paper_runs.seeds(root / task.slug, [percent - 0.1, percent, percent + 0.1],
                             f"model=L/16,dataset=vtab/{task.slug}", **keys.get(task.slug, {}),
                             init="imagenet21k/ViT-L_16.npz")  # fmt: skip


@pytest.mark.integration
def test_means_are_na_while_a_task_is_missing(tmp_path):
    tasks(tmp_path)
    whole = fill(tmp_path, "9")
    shutil.rmtree(tmp_path / "eurosat")
    part = fill(tmp_path, "9")
    model = "ViT-L/16 (I21k)"
    assert whole.summary == "20 of 20 public cells reproduced"
    assert cell(whole, model, "Mean").ours == pytest.approx(72.71, abs=0.01)
    assert cell(whole, model, "Mean").std == pytest.approx(0.1, abs=1e-6)
    assert cell(whole, model, "Mean of specialized").ours == pytest.approx(84.65)
    for name in ("Mean", "Mean of specialized"):
        found = cell(part, model, name)
        assert (found.ours, found.partial) == (None, True)
    assert cell(part, model, "Mean").status == "missing"
    assert cell(part, model, "Mean of natural").ours == pytest.approx(83.27, abs=0.01)
    assert part.summary == "18 of 20 public cells reproduced"


@pytest.mark.parametrize(
    "name, labels, model",
    [
        ("figure5", ("ViT-L/16 (7 ep)",), "L/16"),
        ("7", ("Average", "ResNet50 Adam"), "BiT-R50x1"),
    ],
)
def test_a_mean_names_the_stand_ins_of_its_parts(tmp_path, name, labels, model):
    said = {"init": "weights.npz", "recipe__upstream": "imagenet21k"}
    paper_runs.seeds(tmp_path / "a", [99.1, 99.1, 99.1], f"model={model},dataset=cifar10", **said)
    paper_runs.seeds(tmp_path / "b", [94.0], f"model={model},dataset=pets", **said)
    found = cell(fill(tmp_path, name), *labels)
    foreign = "pre-trained on imagenet21k; pre-training with an unknown recipe"
    assert (found.status, found.ours, found.partial) == ("needs private data", None, True)
    assert found.stand_ins == (
        f"cifar10: {foreign}: 99.10 ± 0.00 (3 runs)",
        f"pets: {foreign}: 94.00 (1 run)",
    )


def test_vtab_and_the_other_data_sets_have_a_protocol_each(tmp_path):
    vtab_run(tmp_path / "vtab", "dtd")
    paper_runs.seeds(tmp_path / "c", [99.1, 99.15, 99.2], "model=L/16,dataset=cifar10",
                     init="imagenet21k/ViT-L_16.npz")  # fmt: skip
    report = fill(tmp_path, "2")
    assert report.protocol == "released (VTAB: paper)"
    assert fill(tmp_path, "2", protocol="paper").protocol == "released (VTAB: paper)"
    assert cell(report, "CIFAR-10", "Ours-I21k (ViT-L/16)").seeds == 3
    vtab_run(tmp_path / "other", "eurosat", ",preprocess=released")
    with pytest.raises(BadInput, match=r"mixed protocols.*choose one of released, paper"):
        fill(tmp_path, "9")
    assert cell(fill(tmp_path, "9", "released"), "ViT-L/16 (I21k)", "EuroSAT").seeds == 3


CHOSEN = {"recipe__stage": "final", "schedule__lr": "0.03", "length": "500 steps"}


def vtab_run(root, task, args="", **keys):
    args = f"model=L/16,dataset=vtab/{task}{args}"
    paper_runs.seeds(root / task, [80.0, 80.1, 80.2], args, init="imagenet21k/ViT-L_16.npz", **keys)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"recipe__stage": ""}, "schedule.lr: 0.03, not of 0.01"),
        ({"schedule__lr": "0.02"}, "schedule.lr: 0.02, not of 0.01, 0.03"),
        ({"length": "700 steps"}, "length: 700 steps, not of 500 steps, 2500 steps"),
    ],
)
def test_vtab_with_what_its_sweep_does_not_try_fills_none(tmp_path, changed, said):
    vtab_run(tmp_path, "eurosat", **CHOSEN | changed)
    found = cell(fill(tmp_path, "9"), "ViT-L/16 (I21k)", "EuroSAT")
    assert found.status == "missing"
    assert said in found.stand_ins[0]


# ---------------------------------------------------------------- BiT

BIT = "model=BiT-R50x1,dataset=cifar10"
OF_JFT = {"init": "weights.npz", "recipe__upstream": "JFT-300M"}


@pytest.mark.parametrize("args", ["", ",recipe=hyperrule"])
def test_bit_is_fine_tuned_by_the_grid_or_by_the_hyperrule(tmp_path, args):
    paper_runs.seeds(tmp_path / "bit", [97.7, 97.72, 97.74], BIT + args, **OF_JFT)
    paper_runs.seeds(tmp_path / "vit", [99.0, 99.01, 99.02], **OF_JFT)
    report = fill(tmp_path, "6")
    assert report.protocol == "released"
    assert cell(report, "ResNet50x1", "7", "CIFAR-10").status == "within tolerance"
    assert cell(report, "ViT-B/16", "7", "CIFAR-10").seeds == 3


@pytest.mark.parametrize(
    "args, changed, said",
    [
        (",recipe=hyperrule", {"schedule__lr": "0.01"}, "schedule.lr: 0.01, not of 0.003"),
        (",recipe=hyperrule", {"mixup__alpha": "0.5"}, "mixup.alpha: 0.5, not 0.1"),
        (",recipe=hyperrule,hyperrule=code", {}, "schedule.warmup: 500 steps, not 0 steps"),
    ],
)
def test_bit_by_another_rule_fills_no_cell(tmp_path, args, changed, said):
    paper_runs.seeds(tmp_path, [97.7], BIT + args, **OF_JFT, **changed)
    found = cell(fill(tmp_path, "6"), "ResNet50x1", "7", "CIFAR-10")
    assert found.status == "needs private data"
    assert said in found.stand_ins[0]


def test_hyperrule_is_not_for_vit(tmp_path):
    paper_runs.seeds(tmp_path, [98.9, 98.95, 99.0], "model=B/16,dataset=cifar10,recipe=hyperrule")
    assert cell(fill(tmp_path), *CELL).status == "missing"


# ---------------------------------------------------------------- refused


def test_mixed_preprocessing_names_two_runs_and_how_to_choose(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9, 98.95, 99.0])
    args = "model=B/16,dataset=cifar100,preprocess=paper"
    paper_runs.seeds(tmp_path / "b", [91.6, 91.67, 91.7], args)
    with pytest.raises(BadInput, match="mixed protocols") as caught:
        fill(tmp_path)
    said = str(caught.value)
    assert str(tmp_path / "a" / "seed0") in said
    assert str(tmp_path / "b" / "seed0") in said
    assert "--protocol=NAME" in said
    report = fill(tmp_path, protocol="paper")
    assert report.protocol == "paper"
    assert cell(report, *CELL).stand_ins[0].startswith("protocol released: 98.95")
    assert cell(report, "ImageNet-21k", "CIFAR-100", "ViT-B/16").seeds == 3
    with pytest.raises(BadInput, match=r"unknown protocol 'other'.*released, paper"):
        fill(tmp_path, protocol="other")


def test_another_size_does_not_count(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9, 98.95, 99.0])
    paper_runs.seeds(tmp_path / "b", [98.0, 98.0, 98.0], "model=B/16,dataset=cifar10,size=224")
    found = cell(fill(tmp_path), *CELL)
    assert found.ours == pytest.approx(98.95)
    assert found.stand_ins[0].startswith("data.image_size: 224, not 384: 98.00")


def test_name_of_the_protocol_is_that_of_the_chain(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9, 98.95, 99.0], recipe__protocol="mine")
    assert fill(tmp_path).protocol == "released"
    args = "model=B/16,dataset=cifar100,preprocess=paper"
    paper_runs.seeds(tmp_path / "b", [91.6, 91.67, 91.7], args, recipe__protocol="released")
    with pytest.raises(BadInput, match=r"is 'released'.* is 'paper'"):
        fill(tmp_path)


def test_the_chain_of_big_vision_is_none_of_the_paper(tmp_path):
    paper_runs.seeds(
        tmp_path, [98.9, 98.95, 99.0], "model=B/16,dataset=cifar10,preprocess=big_vision"
    )
    found = cell(fill(tmp_path), *CELL)
    assert found.status == "missing"
    assert "data.eval_ops: " in found.stand_ins[0]


def test_two_runs_of_one_seed_are_refused(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9])
    paper_runs.seeds(tmp_path / "b", [98.9])
    with pytest.raises(BadInput, match="both have seed 0"):
        fill(tmp_path)


def test_seeds_of_unlike_pretraining_are_refused(tmp_path):
    args = "model=L/16,dataset=cifar10"
    parent = paper_runs.pretrain(
        tmp_path / "p", "model=L/16,dataset=imagenet21k,epochs=30,release=fall11"
    )
    paper_runs.transfer(tmp_path / "a", 99.1, args, init=str(parent))
    paper_runs.transfer(tmp_path / "b", 99.1, args, init="imagenet21k/ViT-L_16.npz", seed=1)
    with pytest.raises(BadInput, match="30 and 90 epochs"):
        fill(tmp_path)


def test_seeds_that_chose_their_own_rates_are_refused(tmp_path):
    for seed, rate in enumerate(("0.003", "0.01", "0.03")):
        paper_runs.transfer(tmp_path / str(seed), 98.95, seed=seed, schedule__lr=rate)
    with pytest.raises(BadInput, match="mixed protocols") as caught:
        fill(tmp_path)
    said = str(caught.value)
    rest = "10000 steps, preprocess=released, on train, weights ViT-B_16.npz"
    assert f"{tmp_path / '0'} has rate 0.003, {rest}; " in said
    assert f"{tmp_path / '1'} has rate 0.01, {rest}. " in said
    assert "out of --runs" in said


def test_cells_choose_rates_of_their_own(tmp_path):
    paper_runs.seeds(tmp_path / "a", [98.9, 98.95, 99.0], schedule__lr="0.003")
    args = "model=B/16,dataset=cifar100"
    paper_runs.seeds(tmp_path / "b", [91.6, 91.67, 91.7], args, schedule__lr="0.01")
    assert fill(tmp_path).summary == "2 of 54 public cells reproduced"


def test_seeds_by_the_grid_and_by_the_hyperrule_are_refused(tmp_path):
    paper_runs.transfer(tmp_path / "a", 97.7, BIT, **OF_JFT)
    paper_runs.transfer(tmp_path / "b", 97.7, BIT + ",recipe=hyperrule", seed=1, **OF_JFT)
    same = "rate 0.003, 10000 steps, "
    with pytest.raises(BadInput, match=f"{same}preprocess=released, .*{same}recipe=hyperrule"):
        fill(tmp_path, "6")


# ---------------------------------------------------------------- what is left over


def test_results_without_the_metric_and_runs_of_no_cell_are_listed(tmp_path):
    odd = paper_runs.transfer(tmp_path / "odd", 98.9, split="other")
    tiny = paper_runs.transfer(tmp_path / "tiny", 50.0, "model=Ti/16,dataset=cifar10")
    said = "\n".join(fill(tmp_path).remarks)
    assert f"without test/top1 in results.json: {odd}" in said
    assert f"{tiny} (Ti/16 on tfds:cifar10, test top-1 50.00 %)" in said


def test_few_shot_accuracy_of_a_stand_in_is_shown_beside_figure_4(tmp_path):
    results = {"fewshot_imagenet": {"5shot": 0.41}}
    paper_runs.pretrain(tmp_path / "a", "model=B/32,dataset=jft", results)
    found = cell(fill(tmp_path, "figure4"), "ViT-B/32", "301.99")
    assert found.status == "needs private data"
    assert found.stand_ins == ("trained on synthetic:jft300m: 41.00 (1 run)",)


def test_few_shot_accuracy_on_jft_fills_table_8(tmp_path):
    for seed in range(3):
        few_shot_of_jft(tmp_path / str(seed), seed=seed, model__posemb="learned2d")
    report = fill(tmp_path, "8")
    assert cell(report, "2-D Pos. Emb.", "Default/Stem").status == "within tolerance"
    assert cell(report, "1-D Pos. Emb.", "Default/Stem").status == "needs private data"


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("fewshot.l2", "1", "fewshot.l2: 1.0, not 1024.0"),
        ("fewshot.ops", "decode|resize({size})", "fewshot.ops: decode|resize({size}), not decode"),
        (
            "fewshot.sources",
            "(('imagenet', 'folder:/i'),)",
            "fewshot.sources: folder:/i, not tfds:imagenet",
        ),
    ],
)
def test_few_shot_accuracy_by_another_protocol_does_not_count(tmp_path, key, value, said):
    keys = {key.replace(".", "__"): value}
    few_shot_of_jft(tmp_path / "a", **keys)
    few_shot_of_jft(tmp_path / "b", "model=L/16,dataset=jft,epochs=14", **keys)
    position = cell(fill(tmp_path, "8"), "1-D Pos. Emb.", "Default/Stem")
    whole = cell(fill(tmp_path, "figure4"), "ViT-L/16", "301.99")  # a recipe of several lengths
    for found in (position, whole):
        assert found.status == "needs private data"
        assert found.stand_ins[0].startswith(said)


def few_shot_of_jft(folder, args="model=B/16,dataset=jft,epochs=7", **keys):
    """A pre-training on JFT-300M that measured 5-shot accuracy on ImageNet."""
    paper_runs.pretrain(folder, f"{args},fewshot=true",
                        {"fewshot_imagenet": {"5shot": 0.64, "examples": 50_000}},
                        data__source="records:/jft/*", recipe__upstream="jft", **keys)  # fmt: skip


def test_core_days_of_a_run_are_at_the_share_of_the_peak_that_it_reaches(tmp_path):
    folder = paper_runs.pretrain(tmp_path / "a", "model=L/16,dataset=imagenet21k,epochs=90")
    (folder / "metrics.jsonl").write_text('{"step": 1, "perf/mfu": 0.4}\n{"step": 2, "perf')
    # 6 x 61.6e9 multiply-adds x 14.2e6 x 90 / (0.4 x 61.5e12) / 86400
    said = [text for text in fill(tmp_path, "2").remarks if "core-days, Ours-I21k" in text]
    assert "222 at the 40% of the peak" in said[0]
