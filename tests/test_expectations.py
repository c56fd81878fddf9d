# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every recipe with a published result states it, and no other recipe does."""

import itertools
import re

import paper_runs
import pytest

from configs import pretrain, transfer
from vit_jax import paper
from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.paper import augreg, pretraining, results, vtab
from vit_jax.reports import summary

MODELS = ("B/16", "B/32", "L/16", "L/32", "H/14")
UPSTREAM = ("imagenet", "imagenet21k", "jft")


def fine_tuning(args):
    return transfer.get_config(args).expected


def told(expected):
    """The numbers of percents in a source."""
    return {float(n) for n in re.findall(r"(\d+\.\d+|\d+)(?= \+- | %)", expected.source)}


@pytest.fixture(scope="module")
def expected_of_all():
    """(model, upstream, dataset, further arguments) -> what the recipe expects."""
    datasets = [*transfer.SOURCES, *(f"vtab/{task.slug}" for task in vtab.tasks())]
    found = {}
    for model, upstream, dataset in itertools.product(MODELS, UPSTREAM, datasets):
        args = f"model={model},upstream={upstream},dataset={dataset}"
        found[model, upstream, dataset, ""] = fine_tuning(args)
    for (model, size), upstream in itertools.product((("L/16", 512), ("H/14", 518)), UPSTREAM):
        for dataset in transfer.SOURCES:
            more = f",size={size},polyak=true"
            args = f"model={model},upstream={upstream},dataset={dataset}{more}"
            found[model, upstream, dataset, more] = fine_tuning(args)
    return found


def test_every_cell_of_tables_2_and_5_is_told_by_one_configuration(expected_of_all):
    cells = 0
    for value in results.table_5():
        trained, tested, model = value.labels
        upstream = pretraining.DATASETS[trained]
        key = results.variant(model), upstream, results.TESTS[tested], ""
        if value.value is None:
            assert expected_of_all[key].metric == ""
            continue
        cells += 1
        assert value.value in told(expected_of_all[key])
        if "ReaL" not in tested:
            assert expected_of_all[key].value == pytest.approx(value.value / 100)
            assert expected_of_all[key].metric == "test/top1"
    assert cells == 84
    columns = {"Ours-JFT (ViT-H/14)": ("H/14", "jft"), "Ours-JFT (ViT-L/16)": ("L/16", "jft"),
               "Ours-I21k (ViT-L/16)": ("L/16", "imagenet21k")}  # fmt: skip
    for value in results.table_2():
        tested, column = value.labels
        if column not in columns:
            continue
        dataset = results.TESTS[tested]
        (model, upstream), size = columns[column], 518 if "H" in column else 512
        more = f",size={size},polyak=true" if dataset == "imagenet" else ""
        names = [f"vtab/{t.slug}" for t in vtab.tasks()] if dataset == "vtab" else [dataset]
        for name in names:
            assert value.value in told(expected_of_all[model, upstream, name, more])


def test_nothing_else_of_fine_tuning_is_expected(expected_of_all):
    stated = {key for key, expected in expected_of_all.items() if expected.metric}
    plain = [key for key in stated if not key[3]]
    tasks = [key for key in plain if key[2].startswith("vtab/")]
    assert len(tasks) == 3 * 19  # Table 9
    assert len(plain) - len(tasks) == 84 - 14  # Table 5 without its ReaL
    assert {key[:3] for key in stated if key[3]} == {
        ("L/16", "imagenet21k", "imagenet"), ("L/16", "jft", "imagenet"),
        ("H/14", "jft", "imagenet"),
    }  # fmt: skip
    for expected in expected_of_all.values():
        assert bool(expected.metric) == bool(expected.source) == (expected.tolerance > 0)


@pytest.mark.parametrize(
    "args, percent",
    [  # typed from the papers
        ("model=B/32,dataset=cifar10,upstream=imagenet21k", 98.79),
        ("model=B/16,dataset=pets,init=imagenet21k/ViT-B_16.npz", 94.43),
        ("model=auto,dataset=imagenet,init=/weights/imagenet21k/ViT-L_16.npz", 85.15),
        ("model=L/16,dataset=imagenet,upstream=imagenet21k,size=512,polyak=true", 85.30),
        ("model=H/14,dataset=flowers,upstream=jft,stage=final", 99.68),
        ("model=L/16,dataset=vtab/svhn,upstream=imagenet21k", 80.9),
        ("model=L/32,dataset=imagenet,upstream=imagenet21k,dropout=0.0", 81.89),
        ("model=R50+B/16,dataset=imagenet,init=imagenet21k/R50+ViT-B_16.npz", 85.08),
        ("model=Mixer-B/16,dataset=cifar10,size=224,init=imagenet21k/Mixer-B_16.npz", 96.82),
        ("model=Mixer-B/16,dataset=cifar10,size=224,init=imagenet1k/Mixer-B_16.npz", 96.72),
        ("dataset=cifar10,model=auto,init=augreg/B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-"
         "do_0.0-sd_0.0.npz", 98.55),
        ("dataset=imagenet,model=auto,init=augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-"
         "do_0.0-sd_0.0.npz", 85.49),
        ("dataset=imagenet,model=auto,size=224,init=augreg/B_16-i1k-300ep-lr_0.001-aug_medium2-"
         "wd_0.1-do_0.1-sd_0.1.npz", 78.73),
        ("dataset=imagenet,model=auto,init=augreg/B_16-i21k-30ep-lr_0.001-aug_light1-wd_0.1-"
         "do_0.0-sd_0.0.npz", 83.46),
        ("model=L/16,dataset=imagenet,init=hf:google/vit-large-patch16-224-in21k", 85.15),
    ],
)  # fmt: skip
def test_typed_values(args, percent):
    assert fine_tuning(args).value == pytest.approx(percent / 100)


@pytest.mark.parametrize(
    "args",
    [
        "model=B/32,dataset=cifar10",  # from nothing
        "model=B/32,dataset=cifar10,upstream=imagenet21k,standin=true",
        "model=B/32,dataset=cifar10,upstream=imagenet21k,stage=select",
        "model=B/32,dataset=cifar10,upstream=imagenet21k,size=224",
        "model=L/16,dataset=imagenet,upstream=imagenet21k,size=512",  # Table 2 averages
        "model=B/16,dataset=cifar10,upstream=openimages",
        "model=BiT-R50x1,dataset=cifar10,recipe=hyperrule,upstream=jft",
        "dataset=imagenet,model=auto,init=augreg/B_16-i21k-300ep-lr_0.001-aug_none-wd_0.1-"
        "do_0.0-sd_0.0.npz",  # not the recommended file
        "dataset=imagenet,model=B/16,init=augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-"
        "sd_0.0--imagenet2012-steps_20k-lr_0.03-res_384.npz",  # fine-tuned already
        "dataset=imagenet,model=B/16,init=mine/B_16-i21k-90ep-lr_0.001-aug_none-wd_0.1-do_0.0-"
        "sd_0.0.npz",
        "dataset=imagenet,model=L/32,init=mine/L_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-"
        "sd_0.0.npz",
    ],
)
def test_what_no_paper_has_measured_is_not_expected(args):
    expected = fine_tuning(args)
    assert (expected.metric, expected.source) == ("", "")


@pytest.mark.parametrize(
    "recipe, args, percent",
    [("pretrain:model=B/16,dataset=jft", "upstream=jft", 84.15), ("masked", "upstream=jft", 79.9),
     ("mae:model=B/16", "upstream=imagenet", None)],
)  # fmt: skip
def test_what_is_expected_depends_on_the_recipe_of_the_pretraining(tmp_path, recipe, args, percent):
    parent = paper_runs.write(tmp_path / "pre", f"vit_jax:{recipe}", {"step": 1}, {})
    found = fine_tuning(f"model=B/16,dataset=imagenet,init={parent},{args}")
    assert (found.value if found.metric else None) == (percent and pytest.approx(percent / 100))


def test_upstream_accuracies_are_expected_of_the_published_lengths():
    def of(args):
        expected = pretrain.get_config(args).expected
        return expected.metric, expected.value

    for model, percent in {"B/32": 69.19, "B/16": 74.79, "L/32": 66.90, "L/16": 72.59}.items():
        assert of(f"dataset=imagenet,model={model}") == ("test/top1", pytest.approx(percent / 100))
    upstream = {"B/16": 47.88, "B/32": 44.04, "L/16": 49.90, "L/32": 45.42, "H/14": 49.06}
    for model, percent in upstream.items():
        args = f"release=fall11,model={model},epochs=90"
        assert of(args) == ("val/top1", pytest.approx(percent / 100))
        assert of(args.replace("fall11", "winter21")) == ("", 0.0)  # other classes
        assert of(f"model={model},epochs=90") == ("", 0.0)  # a stand-in
    assert of("release=fall11,model=L/16,epochs=30") == ("", 0.0)
    assert of("dataset=imagenet,stage=select") == ("", 0.0)  # no test
    assert of("dataset=jft,model=B/16") == ("", 0.0)
    assert of("recipe=bit,dataset=imagenet") == ("", 0.0)
    assert of("recipe=modern") == ("test/top1", 0.765)


def test_augreg_expects_its_figure_4():
    figure = paper.table("augreg")["figure_4"]["values"]
    assert len(figure) == 3
    for dataset, epochs in (("imagenet", 300), ("imagenet21k", 30), ("imagenet21k", 300)):
        values = figure[f"{'i1k' if dataset == 'imagenet' else 'i21k'}_{epochs}ep"]
        for model, level, rate in itertools.product(values, augreg.levels(), (0.0, 0.1)):
            args = f"recipe=augreg,dataset={dataset},epochs={epochs},model={model},aug={level}"
            release = ",release=fall11" if dataset == "imagenet21k" else ""
            expected = pretrain.get_config(f"{args},reg={rate}{release}").expected
            percent = values[model]["regularization_0.1" if rate else "no_regularization"][level]
            assert (expected.metric, expected.value) == ("val/top1", pytest.approx(percent / 100))


def test_a_verdict_names_the_source_without_an_empty_place():
    expected = config_lib.load("configs/transfer.py:model=B/32,upstream=imagenet21k").expected
    text = summary.verdict({"test": {"top1": 0.986}}, expected)
    assert text == (
        "test/top1: measured 0.9860, expected 0.9879 +- 0.0050 (arXiv:2010.11929, Table 5: "
        "98.79 %): -0.0019, within the tolerance"
    )


def test_a_verdict_names_what_was_changed_in_the_recipe():
    spec, keys = (
        "configs/quickstart.py",
        ("length=9 steps", "seed=3", "model.depth=3", "mesh.data=1"),
    )
    recipe = provenance.recipe(spec, [f"--config.{key}" for key in keys])
    changed = provenance.changed(recipe, config_lib.load(spec, recipe.overrides))
    assert changed == ["length"]  # three layers are the recipe's own
    expected = config_lib.load(spec).expected
    text = summary.verdict({"test": {"top1": 0.5}}, expected, changed)
    assert text.endswith("BELOW the tolerance; the expectation is for other values of length")
