# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a run was made from survives being continued, and being damaged."""

import json
import platform

import pytest
from workdirs import QUICKSTART

from vit_jax.config import provenance

GIVEN = ("--config.seed=3", "--config.optimizer.name=sgd")


def test_recipe_has_its_own_values_and_the_overrides_beside_them(tmp_path):
    recipe = provenance.recipe(QUICKSTART, GIVEN)
    provenance.write(tmp_path, recipe, "2 x toy")
    found = provenance.read(tmp_path)
    assert (found.recipe.config, found.recipe.overrides) == (QUICKSTART, GIVEN)
    assert found.recipe.values["seed"] == 0
    assert found.recipe.values["optimizer.name"] == "adamw"
    assert found.recipe.values["data.mean"] == [0.5, 0.5, 0.5]
    assert found.devices == "2 x toy"
    assert found.versions["python"] == platform.python_version()
    assert {"jax", "flax", "numpy"} <= found.versions.keys()


def test_run_that_its_own_config_continues_keeps_its_recipe(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    assert provenance.recipe(str(tmp_path / "config.yaml"), ()) is None
    provenance.write(tmp_path, provenance.recipe(QUICKSTART, GIVEN), "2 x toy")
    provenance.write(tmp_path, None, "8 x toy")
    found = provenance.read(tmp_path)
    assert found.recipe.overrides == GIVEN
    assert found.devices == "8 x toy"
    provenance.write(tmp_path, provenance.recipe(QUICKSTART, ()), "8 x toy")
    assert provenance.read(tmp_path).recipe.overrides == ()


def test_recipe_that_needs_its_overrides_is_not_recorded(tmp_path):
    text = "from configs import base\ndef get_config():\n  c = base.get_config()\n"
    text += "  c.optimizer.name = '?'\n  return c\n"
    (tmp_path / "odd.py").write_text(text)
    assert provenance.recipe(str(tmp_path / "odd.py"), ["--config.optimizer.name=sgd"]) is None


@pytest.mark.parametrize(
    "text", [None, "", "[]", "3", '{"recipe": {"config": 3}, "versions": [], "devices": {}}']
)
def test_what_is_damaged_says_nothing(tmp_path, text):
    if text is not None:
        (tmp_path / provenance.FILE).write_text(text)
    assert provenance.read(tmp_path) == provenance.Origin()


def test_versions_that_are_no_text_are_left_out(tmp_path):
    (tmp_path / provenance.FILE).write_text(json.dumps({"versions": {"jax": "1", "flax": 2}}))
    assert provenance.read(tmp_path).versions == {"jax": "1"}
