# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The authors' published replications, given as runs: what the tables say of them.

The tolerance comes from how far apart published repetitions are.
"""

import math
from pathlib import Path

import paper_runs
import pytest

from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.tables import augreg, filling, run_results
from vit_jax.experiments.tables.cells import find
from vit_jax.experiments.tables.run_results import Run
from vit_jax.paper import replications, results

DATASETS = ("cifar10", "cifar100", "imagenet")
TESTS = ("CIFAR-10", "CIFAR-100", "ImageNet")

# README of vision_transformer, weights from ImageNet-21k: CIFAR-10, CIFAR-100 and ImageNet with
# dropout 0.0, then with 0.1. Typed from the README, so that the file is compared with something.
README = {
    "R50+B/16": ((98.72, 90.88, 83.72), (98.94, 92.30, 85.08)),
    "B/16": ((99.02, 92.06, 84.53), (98.76, 91.92, 84.12)),
    "B/32": ((98.88, 92.31, 81.66), (98.75, 92.05, 81.31)),
    "L/16": ((99.13, 92.91, 84.47), (99.14, 93.22, 85.05)),
    "L/32": ((99.06, 93.29, 81.89), (99.09, 93.34, 81.13)),
}
# The paper's Table 5 from ImageNet-21k, likewise.
PRINTED = {
    "B/16": (98.95, 91.67, 83.97), "B/32": (98.79, 91.97, 81.28), "L/16": (99.16, 93.44, 85.15),
    "L/32": (99.13, 93.04, 80.99), "H/14": (99.27, 93.82, 85.13),
}  # fmt: skip
FILES = {model: f"imagenet21k/ViT-{model.replace('/', '_')}.npz" for model in README}
FILES["R50+B/16"] = "imagenet21k/R50+ViT-B_16.npz"
B_32 = "augreg/B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz"


def runs(percent, args, *, split="test", **keys):
    """Three runs of configs/transfer.py, 0.03 points apart, in memory."""
    overrides = [f"--config.{key.replace('__', '.')}={value}" for key, value in keys.items()]
    config = dict(config_lib.flatten(config_lib.load(f"configs/transfer.py:{args}", overrides)))
    return [
        Run(Path(f"{args} {keys} {seed}"), {**config, "seed": seed},
            {split: paper_runs.top1(percent + 0.03 * (seed - 1))})
        for seed in range(3)
    ]  # fmt: skip


def finals(percent, args, **keys):
    """The same after selection, trained on all of train."""
    return runs(percent, args + ",stage=final", **keys)


def readme(dropout, models):
    return {
        (model, dataset): percent
        for model in models
        for dataset, percent in zip(DATASETS, README[model][dropout > 0], strict=True)
    }


@pytest.fixture
def fill(monkeypatch):
    def filled(given, name="5", protocol=""):
        monkeypatch.setattr(run_results, "read", lambda _: (list(given), []))
        return filling.fill(find(name), Path("runs"), protocol)

    return filled


def as_final(dropout, models=("B/16", "B/32", "L/16", "L/32")):
    return [
        run
        for (model, dataset), percent in readme(dropout, models).items()
        for run in finals(
            percent, f"model={model},dataset={dataset},init={FILES[model]},dropout={dropout}"
        )
    ]


def repeated(report):
    """The 12 cells of Table 5 that the README repeats: (tested on, model) -> cell."""
    return {
        f.cell.labels[1:]: f
        for f in report.cells
        if f.cell.labels[0] == "ImageNet-21k" and f.cell.labels[1] in TESTS
        and f.cell.labels[2] != "ViT-H/14"
    }  # fmt: skip


# ---------------------------------------------------------------- dropout


def test_file_has_the_readme_as_typed():
    rows = {(row.model, row.dataset, row.dropout): row.top1 for row in replications.readme()}
    typed = {
        (*pair, dropout): percent
        for dropout in (0.0, 0.1)
        for pair, percent in readme(dropout, README).items()
    }
    assert rows == typed
    rates = {(row.model, row.dataset): row.rate for row in replications.readme()}
    assert {pair for pair, rate in rates.items() if rate != 0.03} == {("B/16", "cifar10")}


def test_authors_with_dropout_are_12_of_12_and_name_what_they_cannot_tell_apart(fill):
    report = fill(as_final(0.1))
    cells = repeated(report)
    assert [f.status for f in cells.values()] == ["within tolerance"] * 12
    assert report.summary == "12 of 54 public cells reproduced"
    assert (report.protocol, report.dropouts) == ("released", (0.1,))
    pairs = {(test, model, other) for (test, model), f in cells.items() for other in f.also}
    close = {
        (test, f"ViT-{model}", f"ViT-{other}")
        for (model, dataset), value in readme(0.1, ("B/16", "B/32", "L/16", "L/32")).items()
        for test, limit in [(TESTS[DATASETS.index(dataset)], LIMITS[dataset])]
        for other, printed in PRINTED.items()
        if other != model and abs(value - printed[DATASETS.index(dataset)]) <= limit
    }
    assert pairs == close
    assert {pair[1:] for pair in pairs if pair[0] == "ImageNet"} == {
        ("ViT-L/16", "ViT-H/14"), ("ViT-L/32", "ViT-B/32"),
    }  # fmt: skip


# 2 sqrt(4/3) times the pooled deviation, see test_spread_is_pooled_from_published_repetitions
LIMITS = {"cifar10": 0.2594, "cifar100": 0.4142, "imagenet": 0.2594}


def test_authors_without_dropout_are_shown_without_a_verdict_and_with_the_reason(fill):
    report = fill(as_final(0.0))
    cells = repeated(report)
    assert {f.status for f in cells.values()} == {"missing"}
    assert cells["ImageNet", "ViT-B/16"].stand_ins == (
        "model.dropout: 0.0, not 0.1: 84.53 ± 0.03 (3 runs)",
    )
    assert report.summary == "0 of 54 public cells reproduced"


@pytest.mark.integration
def test_both_columns_of_the_readme_are_counted_in_its_own_table(fill):
    rate = {("B/16", "cifar10"): 0.01}
    given = [
        run
        for dropout in (0.0, 0.1)
        for (model, dataset), percent in readme(dropout, README).items()
        for run in runs(
            percent,
            f"model={model},dataset={dataset},init={FILES[model]},dropout={dropout},"
            f"lr={rate.get((model, dataset), 0.03)}",
        )
    ]
    report = fill(given, "replication")
    assert report.summary == "30 of 30 public cells reproduced"
    assert report.dropouts == (0.0, 0.1)
    assert {stand_in for f in report.cells for stand_in in f.stand_ins} == set()
    cell = next(f for f in report.cells if f.cell.labels == ("imagenet", "0.1", "L/16"))
    assert cell.also == ("R50+B/16",)  # 85.05 and 85.08


@pytest.mark.parametrize(
    "args, said",
    [
        ("lr=0.01", "schedule.lr: 0.01, not of 0.03"),
        ("lr=0.03,stage=final", "data.split: train, not train[:98%]"),
        ("lr=0.03,preprocess=paper", "data.train_ops: "),
    ],
)
def test_replication_of_another_protocol_is_none(fill, args, said):
    given = runs(92.05, f"model=B/32,dataset=cifar100,init={FILES['B/32']},{args}")
    report = fill(given, "replication")
    cell = next(f for f in report.cells if f.cell.labels == ("cifar100", "0.1", "B/32"))
    assert cell.status == "missing"
    assert said in cell.stand_ins[0]


# ---------------------------------------------------------------- AugReg, big_vision, Mixer


def test_augreg_fine_tuned_as_its_authors_did_is_counted(fill):
    given = finals(83.59, f"model=auto,dataset=imagenet,init={B_32},lr=0.01", model__variant="B/32")
    assert given[0].config["data.eval_ops"] == (
        "decode|bv_resize_small({size*7//6})|central_crop({size})"
    )
    report = fill(given, "augreg3")
    assert report.summary == "1 of 63 public cells reproduced"
    assert (report.protocol, report.dropouts) == ("big_vision", (0.0,))
    cell = next(f for f in report.cells if f.cell.labels == ("384", "i21k_300", "B/32"))
    assert cell.also == ("S/16",)  # 83.73


def test_augreg_without_the_held_out_part_counts_too_but_not_beside_all_of_train(fill):
    args = f"model=B/32,dataset=imagenet,init={B_32},lr=0.01"
    part = runs(83.59, args)
    assert part[0].config["data.split"] == "train[:99%]"
    assert fill(part, "augreg3").summary == "1 of 63 public cells reproduced"
    whole = finals(83.59, args)
    with pytest.raises(BadInput, match=r"mixed protocols.*on train\[:99%\]"):
        fill([*whole[:2], *part[2:]], "augreg3")
    other = runs(83.59, args, data__split="train[:90%]")
    report = fill(other, "augreg3")
    cell = next(f for f in report.cells if f.cell.labels == ("384", "i21k_300", "B/32"))
    assert "data.split: train[:90%], not train[:99%]" in cell.stand_ins[0]


def test_augreg_with_the_plain_resize_is_none(fill):
    args = f"model=B/32,dataset=imagenet,init={B_32},lr=0.01,preprocess=released"
    report = fill(finals(83.59, args), "augreg3")
    cell = next(f for f in report.cells if f.cell.labels == ("384", "i21k_300", "B/32"))
    assert cell.status == "missing"
    assert "data.eval_ops: decode|resize({size}), not decode|bv_resize_small" in cell.stand_ins[0]


def test_big_vision_has_five_means_of_five_runs(fill):
    expected = {"imagenet": (83.27, 0.03), "cifar10": (98.55, 0.003), "cifar100": (91.35, 0.01),
                "pets": (93.78, 0.003), "flowers": (99.43, 0.003)}  # fmt: skip
    given = [
        run
        for dataset, (percent, rate) in expected.items()
        for run in runs(percent, f"model=B/32,dataset={dataset},init={B_32},lr={rate}")
    ]
    report = fill(given, "big_vision")
    assert report.summary == "5 of 5 public cells reproduced"
    assert {f.cell.paper_runs for f in report.cells} == {5}
    pets = next(f for f in report.cells if f.cell.labels[0] == "pets")
    assert pets.cell.paper_std == pytest.approx(0.38 / 2.326)


def test_mixer_is_known_by_its_published_file(fill):
    args = "dataset=cifar10,size=224,lr=0.03,model=Mixer-B/16"
    given = runs(96.72, f"{args},init=imagenet1k/Mixer-B_16.npz")
    given += runs(96.82, f"{args},init=imagenet21k/Mixer-B_16.npz")
    report = fill(given, "mixer")
    assert [f.status for f in report.cells if f.cell.labels[2] == "Mixer-B/16"] == (
        ["within tolerance"] * 2
    )
    assert report.summary == "2 of 4 public cells reproduced"


def test_masked_pretraining_stands_in_for_that_on_jft(fill):
    pre = dict(config_lib.flatten(config_lib.load("configs/masked.py:dataset=imagenet")))
    parent = Run(Path("pre"), pre, {"step": 1})
    given = [parent, *finals(79.0, "model=B/16,dataset=imagenet,init=pre")]
    [cell] = fill(given, "masked").cells
    assert cell.status == "needs private data"
    assert cell.stand_ins == ("pre-trained on imagenet: 79.00 ± 0.03 (3 runs)",)
    of_jft = ["--config.data.source=records:/jft/*", "--config.recipe.upstream=jft"]
    pre = dict(config_lib.flatten(config_lib.load("configs/masked.py", of_jft)))
    [cell] = fill([Run(Path("pre"), pre, {"step": 1}), *given[1:]], "masked").cells
    assert (cell.status, cell.ours) == ("off", pytest.approx(79.0))


def test_objectnet_is_read_from_runs_of_imagenet(fill):
    spec = "model=H/14,dataset=imagenet,init=w.npz,upstream=jft,also=objectnet"
    given = finals(61.7, spec, split="objectnet", evals__objectnet__source="objectnet:/data/o")
    top1, top5 = fill(given, "objectnet").cells
    assert (top1.status, top5.status) == ("within tolerance", "off")  # top5 of these runs is 1
    others = finals(61.7, spec, split="objectnet", evals__objectnet__source="folder:/data/o")
    for found in fill(others, "objectnet").cells:
        assert found.status == "needs private data"
        assert "evals.objectnet.source: folder:/data/o, not objectnet:" in found.stand_ins[0]


def test_settings_of_figure_4_are_those_of_the_recipe():
    for level, rate in (("none", 0.0), ("strong2", 0.1)):
        spec = f"configs/pretrain.py:recipe=augreg,aug={level},reg={rate}"
        config = dict(config_lib.flatten(config_lib.load(spec)))
        assert {key: config[key] for key, _ in augreg.settings(level, rate)} == dict(
            augreg.settings(level, rate)
        )


def test_figure_4_is_filled_by_pretraining_of_its_level(fill):
    spec = "configs/pretrain.py:recipe=augreg,dataset=imagenet,model=B/32,aug=medium2,reg=0.1"
    config = dict(config_lib.flatten(config_lib.load(spec)))
    given = [
        Run(Path(f"p{seed}"), {**config, "seed": seed}, {"val": paper_runs.top1(77.4)})
        for seed in range(3)
    ]
    report = fill(given, "augreg_figure4")
    assert [f.cell.labels for f in report.cells if f.status != "missing"] == [
        ("i1k_300ep", "B/32", "0.1", "medium2")
    ]
    assert report.summary == "1 of 378 public cells reproduced"  # 78, in whole percent


def test_seeds_of_several_settings_of_augreg_are_refused(fill):
    spec = "configs/pretrain.py:recipe=augreg,dataset=imagenet,model=B/32,aug=medium2,reg=0.1"
    config = dict(config_lib.flatten(config_lib.load(spec)))
    given = [
        Run(Path(f"p{seed}"), {**config, "seed": seed, "optimizer.weight_decay": decay},
            {"val": paper_runs.top1(77.4)})
        for seed, decay in enumerate((0.1, 0.03))
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r"weight_decay=0\.1; .*weight_decay=0\.03"):
        fill(given, "augreg_figure4")


@pytest.mark.parametrize(
    "spec, changes, said",
    [
        ("imagenet,aug=medium2,reg=0.1", {"optimizer.weight_decay": 0.03}, ""),
        ("imagenet,aug=medium2,reg=0.1", {"optimizer.weight_decay": 0.3},
         "optimizer.weight_decay: 0.3, not"),
        ("imagenet,aug=medium2,reg=0.1", {"evals.val.split": "train[98%:]"},
         "evals.val.split: train[98%:], not train[99%:]"),
        ("imagenet,aug=medium2,reg=0.1",
         {"data.source": "folder:/i", "recipe.upstream": "imagenet"}, "on folder:/i"),
        ("imagenet21k,release=fall11,epochs=300,aug=light2,reg=0.0", {}, ""),
        ("imagenet21k,release=winter21,epochs=300,aug=light2,reg=0.0", {},
         "on tfds:imagenet21k/winter21"),
    ],
)  # fmt: skip
def test_validation_accuracy_of_other_images_or_settings_does_not_count(fill, spec, changes, said):
    config = config_lib.load(f"configs/pretrain.py:recipe=augreg,model=B/32,dataset={spec}")
    given = [Run(Path("p"), {**dict(config_lib.flatten(config)), **changes},
                 {"val": paper_runs.top1(42.9)})]  # fmt: skip
    found = [f for f in fill(given, "augreg_figure4").cells if f.seeds or f.stand_ins]
    assert len(found) == 1
    assert found[0].status == ("missing" if said else "1 seed")
    assert "".join(found[0].stand_ins).startswith(said)


def test_recommended_checkpoints_are_the_defaults_of_the_recipe():
    """Typed from the file names of the README: the paper's light2 is light1 in a file name."""
    for model, level, decay, rate in (
        ("L/16", "strong1", 0.1, 0.0), ("B/16", "medium1", 0.1, 0.0), ("S/16", "light2", 0.03, 0.0),
        ("Ti/16", "none", 0.03, 0.0), ("R50+L/32", "medium1", 0.1, 0.1),
    ):  # fmt: skip
        config = config_lib.load(f"configs/pretrain.py:recipe=augreg,model={model}")
        chosen = dict(augreg.settings(level, rate))
        assert config.data.train_ops == chosen["data.train_ops"]
        assert config.mixup.alpha == chosen["mixup.alpha"]
        assert (config.model.dropout, config.model.drop_path) == (rate, rate)
        assert config.optimizer.weight_decay == decay
        assert (config.model.pool, config.model.representation) == ("token", 0)


# ---------------------------------------------------------------- choices, spread


def test_every_choice_has_evidence_and_is_one_of_the_recipe():
    names = [choice.name for choice in replications.choices()]
    assert names == [
        "preprocess=released", "preprocess=paper", "preprocess=big_vision", "dropout=0.1",
        "dropout=0.0",
    ]  # fmt: skip
    for choice in replications.choices():
        config_lib.load(f"configs/transfer.py:{choice.name}")
        assert choice.status in ("verified", "single-source", "inference")
        assert len(choice.evidence) > 80
    assert {c.name for c in replications.choices() if c.status == "inference"} == {"dropout=0.1"}


def test_spread_is_pooled_from_published_repetitions():
    """Pairs of the README of April 2021, and big_vision's ranges of five, both typed."""
    pairs = {
        "cifar10": (0.08, 0.11, 0.04, 0.03, 0.06), "cifar100": (0.04, 0.38, 0.12, 0.04, 0.04),
        "imagenet": (0.13, 0.01, 0.00, 0.02, 0.02),
    }  # fmt: skip
    ranges = {"imagenet": 0.11, "cifar10": 0.14, "cifar100": 0.53, "pets": 0.38, "flowers": 0.03}
    squares = {name: [(gap**2 / 2, 1) for gap in gaps] for name, gaps in pairs.items()}
    for name, width in ranges.items():
        squares.setdefault(name, []).append(((width / 2.326) ** 2, 4))

    def pooled(values):
        return math.sqrt(sum(v * f for v, f in values) / sum(f for _, f in values))

    total = pooled([pair for values in squares.values() for pair in values])
    assert total == pytest.approx(0.112, abs=5e-4)
    for name, values in squares.items():
        assert replications.spread(name) == pytest.approx(max(total, pooled(values)), abs=1e-6)
    assert replications.spread("vtab/dtd") == replications.spread() == pytest.approx(total)
    assert replications.spread("cifar100") == pytest.approx(0.179, abs=5e-4)
    limit = {name: 2 * math.sqrt(4 / 3) * replications.spread(name) for name in LIMITS}
    assert limit == pytest.approx(LIMITS, abs=1e-4)


def test_pairs_of_table_5_within_tolerance_are_as_many_as_the_page_says(root):
    rows: dict[tuple[str, ...], list[float]] = {}
    for value in results.table_5():
        if value.value is not None and value.labels[0] != "JFT-300M":
            rows.setdefault(value.labels[:2], []).append(value.value)
    close = total = 0
    for (_, test), values in rows.items():
        limit = filling.tolerance(0.0, 1, 0.0, 3, filling.floor([results.TESTS[test]]))
        for i, a in enumerate(values):
            for j, b in enumerate(values):
                total += i != j
                close += i != j and abs(a - b) <= limit
    assert f"{close} of {total} ordered pairs" in (root / "docs/tables.md").read_text()
