# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""ImageNet-C's figures by hand, and the recipe that names the other test sets."""

import re

import numpy as np
import pytest

from vit_jax import paper
from vit_jax.config import load as config_lib
from vit_jax.config import validation
from vit_jax.errors import BadInput
from vit_jax.paper import robustness
from vit_jax.step.classification import Classification

TRANSFER = "configs/transfer.py:dataset=imagenet"


@pytest.fixture
def small_table(monkeypatch):
    """Two corruptions at two severities."""
    table = paper.table("robustness")
    part = {"alexnet_error": {"fog": 0.5, "snow": 0.8}, "severities": [1, 2]}
    monkeypatch.setattr(paper, "table", lambda name: table | {"imagenet_c": part})


def test_mce_by_hand(small_table):
    top1 = {"fog_1": 0.9, "fog_2": 0.7, "snow_1": 0.8, "snow_2": 0.4}
    found = robustness.corruption_errors(top1)
    # fog: mean error 0.2 / 0.5 = 0.4; snow: mean error 0.4 / 0.8 = 0.5
    assert found == pytest.approx(
        {"mce": 0.45, "mean_error": 0.3, "error_fog": 0.2, "error_snow": 0.4}
    )


def test_a_missing_part_is_no_mean(small_table):
    with pytest.raises(KeyError, match="snow_2"):
        robustness.corruption_errors({"fog_1": 0.9, "fog_2": 0.7, "snow_1": 0.8})


def test_alexnet_has_an_mce_of_1():
    top1 = {
        f"{c}_{s}": 1 - error for c, error in robustness.alexnet_errors().items() for s in range(6)
    }
    found = robustness.corruption_errors(top1)
    assert found["mce"] == pytest.approx(1)
    assert found["mean_error"] == pytest.approx(11.834896 / 15)
    # The five severities of one of them, as another listing has them.
    listed = np.mean([0.69528, 0.82542, 0.93554, 0.98138, 0.99452])
    assert robustness.alexnet_errors()["gaussian_noise"] == pytest.approx(listed)


@pytest.mark.parametrize(
    "corruption, top1, ce",  # of ResNet-50, in percent, as published beside one another
    [
        ("brightness", 68.02, 56.64), ("contrast", 39.06, 71.43), ("defocus_blur", 38.75, 74.71),
        ("elastic_transform", 45.25, 84.75), ("fog", 45.83, 66.11), ("frost", 38.14, 74.84),
        ("gaussian_noise", 29.29, 79.77), ("glass_blur", 26.79, 88.61),
        ("impulse_noise", 23.81, 82.58),
    ],
)  # fmt: skip
def test_alexnets_errors_are_those_behind_published_figures(corruption, top1, ce):
    assert (100 - top1) / robustness.alexnet_errors()[corruption] == pytest.approx(ce, abs=0.011)


def test_parts_are_75_datasets_of_tfds():
    found = robustness.parts("tfds:imagenet2012_corrupted/{corruption}_{severity}")
    assert len(found) == 75
    assert found["jpeg_compression_5"] == "tfds:imagenet2012_corrupted/jpeg_compression_5"
    assert robustness.parts("tfds:mnist") == {"": "tfds:mnist"}


def test_recipe_adds_what_is_named_and_nothing_else():
    plain, more = config_lib.load(TRANSFER), config_lib.load(f"{TRANSFER},also=real+a+v2")
    assert set(plain.evals) == {"val", "test"}
    assert set(more.evals) == {"val", "test", "real", "a", "v2"}
    assert (more.evals["a"].source, more.evals["a"].classes) == ("tfds:imagenet_a", "present")
    assert (more.evals["real"].labels, more.evals["real"].split) == ("real.json", "validation")
    assert {more.evals[n].every for n in ("real", "a", "v2")} == {"0"}  # only at the end
    for name in ("val", "test"):
        assert more.evals[name] == plain.evals[name]


def test_all_of_them_are_valid():
    config = config_lib.load(f"{TRANSFER},also={'+'.join(robustness.sets())}")
    validation.check_together(config, Classification.EVALUATED)
    assert len(config.evals) == 2 + 9


@pytest.mark.parametrize(
    "args, said",
    [
        ("imagenet,also=real+vv", "unknown test set in also 'vv'.*objectnet"),
        ("cifar10,also=a", "also=a: these are test sets of the real ImageNet"),
        ("imagenet,standin,also=a", "give dataset=imagenet without standin"),
    ],
)
def test_recipe_refuses_what_it_cannot_measure(args, said):
    with pytest.raises(BadInput, match=said):
        config_lib.load(f"configs/transfer.py:dataset={args}")


@pytest.mark.parametrize(
    "change, found",
    [
        ([], ["test"]),
        (["test.split=val"], []),
        (["test.split=test[:10%]"], ["test"]),
        (["test.split=testing"], ["test"]),  # neither train nor val
        (["test.split=val", "val.source=folder:x"], ["val"]),
        (["test.split=train[90%:]", "val.labels=real.json"], ["val"]),
    ],
)
def test_what_reads_a_test_set_is_known(change, found):
    overrides = [f"--config.evals.{text}" for text in change]
    config = config_lib.load("configs/quickstart.py", overrides)
    assert validation.evaluations_of_test(config) == found


def test_validation_is_a_test_set_of_imagenet_alone():
    config = config_lib.load(f"{TRANSFER},also=real+c")
    assert validation.evaluations_of_test(config) == ["c", "real", "test"]
    other = ["--config.data.source=tfds:dtd", "--config.evals.test.split=validation"]
    assert validation.evaluations_of_test(config_lib.load("configs/quickstart.py", other)) == []


@pytest.mark.parametrize(
    "override, said",
    [
        ("classes=some", "unknown evals.val.classes 'some'. Known: all, present"),
        ("source=folder:x/{corruption}", "write both {corruption} and {severity}"),
    ],
)
def test_values_that_no_evaluation_has_are_refused(override, said):
    with pytest.raises(BadInput) as caught:
        validation.check_together(
            config_lib.load("configs/quickstart.py", [f"--config.evals.val.{override}"]),
            Classification.EVALUATED,
        )
    assert said in str(caught.value)


def test_the_page_has_every_test_set_and_its_commands_are_valid(root):
    text = (root / "docs" / "evaluation.md").read_text()
    for name in robustness.sets():
        assert f"`{name}`" in text
    own, imagenet = re.findall(r"```text\nvit_jax train (.*?)\n```", text, re.DOTALL)
    spec, _, _, *overrides = own.replace("\\\n", "").split()
    config = config_lib.load(spec.removeprefix("--config="), overrides)
    assert config.evals["test"].source == "folder:/path/to/images/test"
    spec = imagenet.split()[0].removeprefix("--config=").replace("FILE_OR_RUN", "x.npz")
    assert len(config_lib.load(spec).evals) == 2 + 7
