# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Recipes by name: `vit_jax:NAME` is the file, and `configs` belongs to recipes only."""

import os
import sys
import types
from pathlib import Path

import pytest

from vit_jax.cli import main
from vit_jax.config import load, recipes
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points

ROOT = Path(__file__).resolve().parent.parent
LINE = "from configs import base\n\n\ndef get_config(arg=None):\n    config = base.get_config()\n"


def test_a_name_is_the_file_with_its_arguments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "pretrain:model=B/32,dataset=imagenet"
    assert recipes.split(f"vit_jax:{text}") == (
        ROOT / "configs/pretrain.py", "model=B/32,dataset=imagenet",
    )  # fmt: skip
    assert load.load(f"vit_jax:{text}") == load.load(f"{ROOT}/configs/{text}".replace(":", ".py:"))
    assert load.load("vit_jax:base") == load.load(str(ROOT / "configs/base.py"))
    assert "quickstart" in recipes.names()
    assert not {"base", "__init__"} & set(recipes.names())


def test_a_sweep_keeps_the_name(tmp_path):
    sweep = points.read("vit_jax:flexi")
    assert points.with_arguments("vit_jax:transfer:seed=1", {":dataset": "pets"}) == (
        "vit_jax:transfer:seed=1,dataset=pets"
    )
    assert points.with_arguments("vit_jax:flexi", {}) == "vit_jax:flexi"
    assert sweep.spec == "vit_jax:flexi"


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("vit_jax:quikstart", "vit_jax:quickstart?"),
        ("vit_jax:pretrian:model=B/16", "vit_jax:pretrain:model=B/16?"),
        ("quickstart", "vit_jax:quickstart?"),
        ("quickstart.py", "vit_jax:quickstart?"),
        ("configs/quickstart.py", "vit_jax:quickstart?"),  # an empty folder has no configs/
        ("vit_jax:../setup", ""),
        ("vit_jax:", ""),
        ("vit_jax:nothing_like_it", ""),
    ],
)
def test_a_wrong_name_is_one_message_with_the_near_one(tmp_path, monkeypatch, capsys, spec, meant):
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", f"--config={spec}", "--workdir=run"]) == 2
    said = capsys.readouterr().err
    assert ("Did you mean --config=" + meant in said) == bool(meant)
    assert "Did you mean" in said or not meant
    assert "vit_jax:cifar10, " in said
    assert os.listdir() == []


def test_a_wrong_file_beside_a_recipe_is_answered_by_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(BadInput, match=r"Did you mean --config=configs/quickstart\.py\?"):
        recipes.split("configs/quikstart.py")


def test_another_package_called_configs_is_left_to_its_owner(tmp_path, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == "configs"]:
        monkeypatch.delitem(sys.modules, name)
    theirs = types.ModuleType("configs")
    theirs.__path__ = [str(tmp_path)]
    inner = types.ModuleType("configs.mine")
    for module in (theirs, inner):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    path = tmp_path / "recipe.py"
    path.write_text(LINE + "    from configs import quickstart\n    return quickstart.get_config()")
    assert load.load(str(path)).model.width == 64
    path.write_text("raise RuntimeError('no')")
    with pytest.raises(BadInput, match="RuntimeError: no"):
        load.load(str(path))
    assert sys.modules["configs"] is theirs
    assert sys.modules["configs.mine"] is inner
    assert "configs.base" not in sys.modules


def test_the_folder_of_a_wheel_is_inside_the_package(tmp_path, monkeypatch):
    inside = tmp_path / "vit_jax/configs"
    inside.mkdir(parents=True)
    monkeypatch.setattr(recipes, "root", lambda: tmp_path)
    assert recipes.file("one") == inside / "one.py"
    inside.rmdir()
    assert recipes.file("one") == tmp_path / "configs/one.py"
