# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Recipes, overrides and YAML: what is understood, what mistakes say, where values come from."""

import dataclasses
import importlib
import json
import os
import platform
import sys
from pathlib import Path

import pytest
from workdirs import QUICKSTART

from vit_jax.config import frozen, provenance, sections, validation
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.step.classification import Classification

# --- recipes, overrides and YAML ---


ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "configs" / "base.py"
EMPTY = "from configs import base\n\n\ndef get_config():\n    config = base.get_config()\n"
ARGUMENTS = """
from configs import base
from vit_jax.config.load import parse_args


def get_config(arg=None):
    arg = parse_args(arg, epochs=90, lr=0.5, quick=False, source="digits")
    config = base.get_config()
    config.length = f"{arg.epochs} epochs"
    config.schedule.lr = arg.lr
    config.deterministic = arg.quick
    config.data.source = arg.source
    return config
"""


@pytest.fixture(autouse=True)
def _forget_recipes(tmp_path, monkeypatch):
    """Modules that recipes of this test import are not found by the next test."""
    before = {n: sys.modules[n] for n in list(sys.modules) if n.split(".")[0] == "configs"}
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.modules.update(before)


def base(*overrides):
    return config_lib.load(str(BASE), overrides)


def write(folder, text, name="recipe.py"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def recipe(folder, *lines, name="recipe.py"):
    """A recipe of base.py and these lines, which see `config`."""
    body = "".join(f"    {line}\n" for line in (*lines, "return config"))
    return str(write(folder, EMPTY + body, name))


def message(function, *args, **kwargs):
    with pytest.raises(BadInput) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# ---------------------------------------------------------------- argument strings


@pytest.mark.parametrize(
    "text, changed",
    [
        (None, {}),
        ("", {}),
        ("n=3", {"n": 3}),
        ("quick", {"quick": True}),
        ("quick=false", {"quick": False}),
        (" n=4 , quick ", {"n": 4, "quick": True}),
        ("lr=1e-3", {"lr": 1e-3}),
        ("lr=2", {"lr": 2.0}),
        ("name=folder:/a=b", {"name": "folder:/a=b"}),
        ("name=", {"name": ""}),
        ("name=7", {"name": "7"}),
        ("n=-1,name=x,lr=0.5,quick=1", {"n": -1, "name": "x", "lr": 0.5, "quick": True}),
    ],
)
def test_arguments_have_the_type_of_their_default(text, changed):
    defaults = {"n": 1, "quick": False, "lr": 0.1, "name": "a"}
    got = config_lib.parse_args(text, **defaults)
    assert got.to_dict() == defaults | changed
    assert {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in defaults.items()}


@pytest.mark.parametrize(
    "text, parts",
    [
        ("epoch=3", ["'epoch'", "Did you mean 'epochs'", "quick"]),
        ("n", ["'n'", "epochs, quick"]),
        ("epochs=3,quick,epochs=4", ["'epochs'", "twice"]),
        ("quick,quick", ["'quick'", "twice"]),
        ("epochs=three", ["epochs='three'", "int"]),
        ("epochs=1.5", ["epochs='1.5'", "int"]),
        ("epochs", ["epochs='true'", "int"]),
        ("quick=maybe", ["quick='maybe'", "bool"]),
    ],
)
def test_wrong_argument_says_what_is_known_or_expected(text, parts):
    said = message(config_lib.parse_args, text, epochs=90, quick=False)
    assert [p for p in parts if p not in said] == []


def test_arguments_reach_the_recipe(tmp_path):
    path = write(tmp_path, ARGUMENTS)
    config = config_lib.load(f"{path}:epochs=3,lr=1,quick,source=folder:/a/b")
    got = (config.length, config.schedule.lr, config.deterministic, config.data.source)
    assert got == ("3 epochs", 1.0, True, "folder:/a/b")
    assert config_lib.load(str(path)).length == "90 epochs"
    assert config_lib.load(f"{path}:").length == "90 epochs"
    assert "'epochs'" in message(config_lib.load, f"{path}:epoch=3")


def test_long_arguments_reach_the_recipe(tmp_path):
    """A file system refuses to look at a name of more than 255 bytes."""
    path = write(tmp_path, ARGUMENTS)
    assert config_lib.load(f"{path}:source={'a' * 300}").data.source == "a" * 300


# ---------------------------------------------------------------- overrides


@pytest.mark.parametrize(
    "key, text, value",
    [
        ("seed", "7", 7),
        ("mesh.data", "-1", -1),
        ("deterministic", "true", True),
        ("deterministic", "True", True),
        ("deterministic", "1", True),
        ("model.scan", "false", False),
        ("model.scan", "0", False),
        ("schedule.lr", "3e-4", 3e-4),
        ("schedule.lr", "1", 1.0),
        ("data.source", "csv:/a b/c=d.csv", "csv:/a b/c=d.csv"),
        ("data.source", "", ""),
        ("schedule.warmup", "0", "0"),
        ("data.train_ops", "decode|resize(size=8)", "decode|resize(size=8)"),
        ("data.mean", "(0.1, 0.2, 0.3)", (0.1, 0.2, 0.3)),
        ("data.mean", "[0.1,0.2,0.3]", (0.1, 0.2, 0.3)),
        ("optimizer.freeze", "('embedding/.*',)", ("embedding/.*",)),
        ("optimizer.lr_mults", "[['head/.*', 10.0]]", (("head/.*", 10.0),)),
        ("optimizer.freeze", "()", ()),
        ("evals.val.every", "2 epochs", "2 epochs"),
    ],
)
def test_override_has_the_type_of_its_default(key, text, value):
    got = dict(config_lib.flatten(base(f"--config.{key}={text}")))[key]
    assert got == value
    assert type(got) is type(value)


def test_overrides_apply_in_order_and_touch_nothing_else():
    config = base("--config.seed=1", "--config.batch_size=8", "--config.seed=2")
    found = sorted(config_lib.differences(base(), config))
    assert found == [("batch_size", 512, 8), ("seed", 0, 2)]


@pytest.mark.parametrize(
    "override, parts",
    [
        ("--config.modle.width=3", ["'modle.width'", "Did you mean 'model.width'"]),
        ("--config.sead=3", ["'sead'", "Did you mean 'seed'"]),
        ("--config.optimizer.lr=1", ["'optimizer.lr'", "Did you mean 'schedule.lr'"]),
        ("--config.model=ViT", ["model is a section", "model.width", "model.variant"]),
        ("--config.optimizer.sgd=1", ["optimizer.sgd is a section", "optimizer.sgd.momentum"]),
        ("--config.model.width=wide", ["model.width", "'wide'", "int"]),
        ("--config.model.width=1.5", ["model.width", "'1.5'", "int"]),
        ("--config.seed=", ["seed", "''", "int"]),
        ("--config.model.dropout=some", ["model.dropout", "'some'", "float"]),
        ("--config.deterministic=yes", ["deterministic", "'yes'", "bool"]),
        ("--config.data.mean=0.5", ["data.mean", "'0.5'", "tuple"]),
        ("--config.data.mean='abc'", ["data.mean", "tuple"]),
        ("--config.data.mean=(1,", ["data.mean", "tuple"]),
        ("--config.seed", ["'--config.seed'", "--config.seed=VALUE", "no space"]),
        ("--confg.seed=1", ["'--confg.seed=1'", "--config.key=value"]),
        ("seed=1", ["'seed=1'", "--config.key=value"]),
        ("--config.optimizer.name=adam", ["'adam'", "=adamw", "sgd", "lamb", "adafactor"]),
        ("--config.schedule.name=steps", ["'steps'", "cosine", "linear", "rsqrt", "step"]),
    ],
)
def test_wrong_override_names_key_given_and_expected(override, parts):
    said = message(base, override)
    assert [p for p in parts if p not in said] == []


@pytest.mark.parametrize(
    "override",
    [
        "--config.data.std=('a','b','c')",
        "--config.data.mean=('a','b','c')",
        "--config.mesh.rules=(1,2)",
        "--config.optimizer.lr_mults=(1,)",
        "--config.optimizer.freeze=(1,)",
    ],
)
def test_tuple_of_wrong_elements_is_bad_input(override):
    assert override.split("=")[0].removeprefix("--config.") in message(base, override)


def test_key_of_an_optimizer_that_is_not_chosen_is_an_error():
    said = message(base, "--config.optimizer.sgd.momentum=0.5")
    assert "optimizer.sgd.momentum" in said
    assert "'adamw'" in said
    assert "--config.optimizer.name=sgd" in said
    config = base("--config.optimizer.sgd.momentum=0.5", "--config.optimizer.name=sgd")
    assert config.optimizer.sgd.momentum == 0.5


@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "lamb"])
def test_only_the_chosen_sub_section_is_saved(name):
    text = config_lib.to_yaml(base(f"--config.optimizer.name={name}"))
    sections = {n for n in ("adamw", "sgd", "adafactor", "lamb") if f"\n  {n}:" in text}
    assert sections == {name}


def test_what_is_no_regular_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "config.yaml")
    for place, said in (
        (tmp_path / "config.yaml", "config.yaml is a named pipe, not a file; give a file."),
        (tmp_path, "is a folder, not a file. The recipes of"),
        (tmp_path / "gone", "no file"),
    ):
        with pytest.raises(BadInput, match=said):
            config_lib.load(str(place))


def test_a_configuration_is_frozen_and_a_change_is_a_copy():
    config = base()
    for section, key in ((config, "seed"), (config.optimizer.adamw, "b1"), (config.data, "sead")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(section, key, 1)
    with pytest.raises(TypeError):
        config.evals["other"] = config.evals["val"]
    new = {"optimizer.adamw.b1": 0, "evals.val.split": "train", "model.stages": [3, 4]}
    changed = config_lib.changed(config, new)
    assert changed.optimizer.adamw == dataclasses.replace(config.optimizer.adamw, b1=0.0)
    assert type(changed.optimizer.adamw.b1) is float
    assert changed.evals["val"].split == "train"
    assert changed.model.stages == (3, 4)
    assert {key for key, *_ in config_lib.differences(config, changed)} == new.keys()
    assert config == base()


def test_a_configuration_has_a_value_of_the_declared_type_for_each_key(tmp_path):
    """Also if a recipe or an override writes 1 for 1.0, or a list for a tuple."""
    path = recipe(tmp_path, "config.optimizer.clip = 2", "config.mesh.rules = [['mlp', ['data']]]")
    config = config_lib.load(path, ["--config.schedule.lr=1", "--config.loss.name=m:f(g=1)"])
    assert (config.optimizer.clip, config.schedule.lr, config.loss.name) == (2.0, 1.0, "m:f(g=1)")
    assert config.mesh.rules == (("mlp", ("data",)),)
    for key, value in config_lib.flatten(config):
        assert type(value) is type(sections.find(key).default), key


def test_sections_that_are_not_chosen_have_their_defaults(tmp_path):
    path = recipe(tmp_path, "config.optimizer.sgd.momentum = 0.5", "config.optimizer.clip = 2.0")
    config = config_lib.load(path)
    assert config.optimizer == sections.Optimizer(clip=2.0)
    assert "optimizer.sgd.momentum" not in dict(config_lib.flatten(config))
    assert config_lib.load(path, ["--config.optimizer.name=sgd"]).optimizer.sgd.momentum == 0.5


def test_a_section_becomes_the_arguments_of_one_function():
    """Its own keys and those of its choice; sections of another kind are arguments elsewhere."""
    section = base("--config.optimizer.name=sgd", "--config.optimizer.sgd.momentum=0.5").optimizer
    arguments = frozen.arguments(section)
    own = ("name", "clip", "weight_decay", "decay_mask", "lr_mults", "layer_decay", "freeze")
    assert set(arguments) == {*own, "momentum", "nesterov", "accumulator_dtype"}
    assert (arguments["name"], arguments["momentum"]) == ("sgd", 0.5)


# ---------------------------------------------------------------- YAML

FULL = (
    "--config.seed=3",
    "--config.length=303e6 examples",
    "--config.optimizer.name=sgd",
    "--config.optimizer.sgd.nesterov=true",
    "--config.optimizer.freeze=('embedding/.*', 'blocks/[01]/.*')",
    "--config.optimizer.lr_mults=(('head/.*', 10.0), ('.*', 0.1))",
    "--config.schedule.name=rsqrt",
    "--config.schedule.lr=1e-8",
    "--config.data.source=folder:/über/weg: #x",
    "--config.data.mean=(0.1,0.2,0.3)",
    "--config.profile=100:105",
    "--config.init=yes",
    "--config.report.writers=()",
    "--config.report.page=false",
)


@pytest.mark.parametrize("overrides", [(), FULL])
def test_yaml_round_trip(tmp_path, overrides):
    config = base(*overrides)
    path = write(tmp_path, config_lib.to_yaml(config), "config.yaml")
    again = config_lib.load(str(path))
    assert dict(config_lib.flatten(again)) == dict(config_lib.flatten(config))
    assert config_lib.fingerprint(again) == config_lib.fingerprint(config)
    assert config_lib.to_yaml(again) == config_lib.to_yaml(config)
    types = {key: type(value) for key, value in config_lib.flatten(config)}
    assert {key: type(value) for key, value in config_lib.flatten(again)} == types


def test_tuples_stay_tuples_in_yaml(tmp_path):
    """Also nested ones: the mesh rules have to be hashable."""
    path = write(tmp_path, config_lib.to_yaml(base(*FULL)), "config.yaml")
    again = config_lib.load(str(path))
    assert hash(again.mesh.rules) == hash(base().mesh.rules)
    assert again.mesh.rules == base().mesh.rules
    assert again.optimizer.lr_mults == (("head/.*", 10.0), (".*", 0.1))


def test_recipe_with_lists_equals_one_with_tuples(tmp_path):
    lists = recipe(tmp_path, "config.data.mean = [0.1, 0.2, 0.3]", name="lists.py")
    tuples = recipe(tmp_path, "config.data.mean = (0.1, 0.2, 0.3)", name="tuples.py")
    lists, tuples = config_lib.load(lists), config_lib.load(tuples)
    assert config_lib.fingerprint(lists) == config_lib.fingerprint(tuples)
    assert config_lib.differences(lists, tuples) == []


def test_evaluations_with_other_names_survive_yaml(tmp_path):
    path = recipe(
        tmp_path,
        "with config.unlocked():",
        "    del config.evals.val",
        "    config.evals.minival = base.evaluation('train[95%:]', every='5 percent')",
    )
    config = config_lib.load(path)
    saved = write(tmp_path, config_lib.to_yaml(config), "config.yaml")
    again = config_lib.load(str(saved), ["--config.evals.minival.batch_size=8"])
    assert sorted(again.evals) == ["minival", "test"]
    own = {"split": "train[95%:]", "every": "5 percent", "batch_size": 8}
    assert again.evals["minival"] == sections.Evaluation(**own)


def test_yaml_by_hand_holds_only_differences(tmp_path):
    path = write(tmp_path, "seed: 4\nschedule:\n  lr: 1e-3\n  warmup: 5 epochs\n", "mine.yaml")
    config = config_lib.load(str(path))
    expected = base("--config.seed=4", "--config.schedule.warmup=5 epochs")
    assert config_lib.fingerprint(config) == config_lib.fingerprint(expected)


@pytest.mark.parametrize("number", ["1e-3", "0.001", "1.0e-3"])
def test_yaml_by_hand_may_write_numbers_as_people_do(tmp_path, number):
    """YAML 1.1 reads 1e-3 as text."""
    path = write(tmp_path, f"schedule: {{lr: {number}}}", "mine.yaml")
    assert config_lib.load(str(path)).schedule.lr == 1e-3
    path = write(tmp_path, "schedule: {lr: 1}", "mine.yaml")
    assert type(config_lib.load(str(path)).schedule.lr) is float


@pytest.mark.parametrize("name", ["val", "test", "other"])
def test_evaluation_by_hand_without_a_split_does_not_take_one_in_silence(tmp_path, name):
    """`val` must not be measured on the test split because that key was left out."""
    path = write(tmp_path, f"evals: {{{name}: {{batch_size: 8}}}}", "mine.yaml")
    try:
        config = config_lib.load(str(path))
    except BadInput as e:
        assert "split" in str(e)  # noqa: PT017
    else:
        assert config.evals[name].split == name


@pytest.mark.parametrize(
    "text, parts",
    [
        ("sead: 1", ["sead", "Did you mean 'seed'"]),
        ("model: {widht: 8}", ["model.widht", "Did you mean 'model.width'"]),
        ("seed: one", ["seed='one'", "str", "int"]),
        ("seed: 1.5", ["seed=1.5", "float", "int"]),
        ("seed: true", ["seed=True", "bool", "int"]),
        ("length: 90", ["length=90", "int", "str"]),
        ("deterministic: 1", ["deterministic=1", "int", "bool"]),
        ("schedule: {lr: fast}", ["schedule.lr", "'fast'", "float"]),
        ("data: {mean: 0.5}", ["data.mean=0.5", "float", "tuple"]),
        ("seed: {a: 1}", ["seed={'a': 1}", "dict", "int"]),
        ("seed: {}", ["seed={}", "dict", "int"]),
        ("modle: {}", ["modle"]),
        ("model: {width: {}}", ["model.width={}", "dict", "int"]),
        ("seed: null", ["seed=None", "int"]),
        ("model: 3", ["'model'"]),
        ("evals: 3", ["'evals'"]),
        ("evals: {val: 3}", ["'evals.val'"]),
        ("evals: {val: {spilt: test}}", ["evals.val.spilt", "evals.val.split"]),
        ("- seed\n- 1", ["list"]),
        ("seed", ["str"]),
        ("", ["NoneType"]),
        ("{", ["not readable YAML", "correct the file"]),
        ("seed: 1\n  batch_size: 2", ["not readable YAML"]),
        ("a: \x01", ["not readable YAML"]),
        ("1: 2", ["1"]),
        ("model: {2: 3}", ["2"]),
        ("evals: {1: {split: test}}", ["1"]),
        ("evals: {a.b: {split: test}}", ["a.b"]),
        ("optimizer: {name: adam}", ["'adam'", "=adamw"]),
    ],
)
def test_wrong_yaml_names_the_file_or_key(tmp_path, text, parts):
    path = write(tmp_path, text, "mine.yaml")
    said = message(config_lib.load, str(path))
    assert [p for p in parts if p not in said] == []


def test_a_file_without_a_suffix_is_not_a_recipe(tmp_path):
    path = write(tmp_path, "", "mine")
    assert f"{path} is not a recipe; recipes end in .py" in message(config_lib.load, str(path))


def test_bytes_that_are_no_text_are_not_yaml(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00\x01")
    assert "not readable YAML" in message(config_lib.load, str(tmp_path / "mine.yaml"))


def test_fingerprint_changes_with_every_key():
    config = base()
    whole = config_lib.fingerprint(config)
    for key, value in config_lib.flatten(config):
        other = {bool: lambda v: not v, str: lambda v: v + "x", tuple: lambda v: (*v, "x")}.get(
            type(value), lambda v: v + 1
        )(value)
        changed = config_lib.changed(config, {key: other})
        assert config_lib.fingerprint(changed) != whole, key


# ---------------------------------------------------------------- comparing


def test_differences_are_the_keys_that_differ():
    saved = base("--config.seed=1", "--config.data.workers=2")
    given = base("--config.data.mean=(0,0,0)", "--config.optimizer.name=sgd")
    found = {key: (old, new) for key, old, new in config_lib.differences(saved, given)}
    assert found.pop("seed") == (1, 0)
    assert found.pop("data.workers") == (2, 8)
    assert found.pop("data.mean") == ((0.5, 0.5, 0.5), (0, 0, 0))
    assert found.pop("optimizer.name") == ("adamw", "sgd")
    assert found.pop("optimizer.adamw.b1") == (0.9, "(none)")
    assert found.pop("optimizer.sgd.momentum") == ("(none)", 0.9)
    assert {k for k in found if not k.startswith(("optimizer.adamw.", "optimizer.sgd."))} == set()
    assert config_lib.differences(saved, base("--config.seed=1", "--config.data.workers=2")) == []


# ---------------------------------------------------------------- recipe files


@pytest.mark.parametrize("package", [None, "namespace", "regular"])
@pytest.mark.parametrize("loaded", [False, True])
def test_recipe_in_any_folder_run_from_any_folder(tmp_path, monkeypatch, package, loaded):
    """`from configs import base` is the shipped one, whatever lies in the working directory."""
    path = recipe(tmp_path / "recipes", "config.seed = 5", "config.init = base.__file__")
    here = tmp_path / "cwd"
    here.mkdir()
    if package:
        write(here / "configs", "raise RuntimeError('the wrong base.py')", "base.py")
    if package == "regular":
        write(here / "configs", "", "__init__.py")
    for name in [n for n in sys.modules if n.split(".")[0] == "configs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))  # as `python -m vit_jax` has it
    if package and loaded:
        assert str(here) in str(importlib.import_module("configs").__path__)
    before = list(sys.path)
    config = config_lib.load(path)
    assert (config.seed, config.init) == (5, str(BASE))
    assert sys.path == before
    assert config_lib.load("../recipes/recipe.py").seed == 5


def test_saved_yaml_is_read_from_any_folder(tmp_path, monkeypatch):
    write(tmp_path / "configs", "raise RuntimeError('the wrong base.py')", "base.py")
    write(tmp_path, "seed: 6", "config.yaml")
    monkeypatch.chdir(tmp_path)
    assert config_lib.load("config.yaml").seed == 6


def test_recipe_imports_a_neighbour(tmp_path, monkeypatch):
    write(tmp_path / "a", "SEED = 11\n", "recipe_neighbour.py")
    text = "from recipe_neighbour import SEED\n" + EMPTY + "    config.seed = SEED\n"
    path = write(tmp_path / "a", text + "    return config\n")
    monkeypatch.chdir(tmp_path)
    assert config_lib.load(str(path)).seed == 11
    assert config_lib.load("a/recipe.py").seed == 11


def test_recipe_in_home(tmp_path, monkeypatch):
    recipe(tmp_path, "config.seed = 5")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_lib.load("~/recipe.py").seed == 5


@pytest.mark.parametrize(
    "body",
    [
        "raise RuntimeError('boom')",
        "raise NotImplementedError('boom')",
        "{}['boom']",
        "import no_such_module",
        "open('/no/such/file')",
        "def f(: pass",
        "x = '\0'",
    ],
)
@pytest.mark.parametrize("where", ["module", "function"])
def test_recipe_that_raises_is_bad_input(tmp_path, body, where):
    text = body if where == "module" else f"def get_config():\n    {body}\n"
    path = write(tmp_path, text + "\n")
    assert str(path) in message(config_lib.load, str(path))


@pytest.mark.parametrize(
    "text, parts",
    [
        ("x = 1\n", ["get_config"]),
        ("def get_config():\n    return {'seed': 1}\n", ["returned dict", "ConfigDict"]),
        ("def get_config():\n    pass\n", ["returned NoneType", "ConfigDict"]),
        ("get_config = 3\n", []),
        ("def get_config(arg):\n    return arg\n", ["arg"]),
    ],
)
def test_recipe_without_a_config_is_bad_input(tmp_path, text, parts):
    path = write(tmp_path, text)
    said = message(config_lib.load, str(path))
    assert [p for p in (str(path), *parts) if p not in said] == []


def test_recipe_without_an_argument_says_so(tmp_path):
    said = message(config_lib.load, recipe(tmp_path) + ":b16,epochs=3")
    assert "takes no argument" in said
    assert "'b16,epochs=3'" in said


@pytest.mark.parametrize(
    "line, parts",
    [
        ("config.sead = 1", ["sead", "seed"]),
        ("config.model.widht = 8", ["widht", "width"]),
        ("config.seed = 'one'", ["seed"]),
    ],
)
def test_recipe_cannot_invent_a_key_or_a_type(tmp_path, line, parts):
    said = message(config_lib.load, recipe(tmp_path, line))
    assert [p for p in parts if p not in said] == []
    assert len(said) < 800, "one clear message, not the whole configuration"


def test_recipe_that_is_not_made_from_base_is_bad_input(tmp_path):
    """Otherwise the first key that is missing is an AttributeError somewhere later."""
    text = "from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict("
    said = message(config_lib.load, str(write(tmp_path, text + "{'seed': 3})\n")))
    assert "batch_size" in said or "base" in said


@pytest.mark.parametrize("spec", ["missing.py", "missing.py:b16", "missing.yaml", ".", ""])
def test_missing_file_says_so(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    said = message(config_lib.load, spec)
    assert f"--config={spec}" in said
    assert ("is a folder, not a file" if spec == "." else "no file") in said


def test_choices_are_the_sections_with_sub_sections():
    assert config_lib.CHOICES == {
        "optimizer": ("adafactor", "adamw", "lamb", "lion", "muon", "sgd"),
        "schedule": ("cosine", "linear", "rsqrt", "step"),
    }


def test_what_processes_must_have_alike_is_all_but_what_belongs_to_a_host():
    config = config_lib.load(str(BASE), ["--config.data.workers=3", "--config.seed=4"])
    common = config_lib.common(config)
    assert common["seed"] == "4"
    left_out = {k for k, _ in config_lib.flatten(config)} - set(common)
    of_input = {"data.workers", "data.data_dir", "data.prefetch", "data.cache"}
    assert left_out == of_input | {"data.stage", "data.stage_budget", "checkpoint.local.path"}


@pytest.mark.parametrize("choice", ["examples=90", "fraction=0.5"])
def test_images_are_chosen_by_number_or_by_share(choice):
    validation.check_together(base(f"--config.data.{choice}"), Classification.EVALUATED)


@pytest.mark.parametrize("keys, part", [
    (["data.stage_budget=5GB"], "data.stage_budget=5GB limits nothing without data.stage"),
    (["checkpoint.local.path=/x", "checkpoint.local.every_minutes=0"], "would never be written"),
])  # fmt: skip
def test_keys_that_would_do_nothing_are_refused(keys, part):
    config = base(*[f"--config.{key}" for key in keys])
    with pytest.raises(BadInput, match=part):
        validation.check_together(config, Classification.EVALUATED)
    more = {"data.stage": "/x", "checkpoint.local.every": "9 steps"}
    whole = base(
        *[f"--config.{key}" for key in keys], *[f"--config.{k}={v}" for k, v in more.items()]
    )
    validation.check_together(whole, Classification.EVALUATED)


def test_names_on_raw_are_taken():
    few = base("--config.fewshot.sources=(('pets', 'digits'), ('pets_raw', 'digits'))")
    with pytest.raises(BadInput, match=r"fewshot\.sources has a task pets_raw"):
        validation.check_together(few, Classification.EVALUATED)


def test_raw_few_shot_metrics_choose_the_best_step_where_they_are_measured():
    config = base(
        "--config.fewshot.sources=(('pets', 'digits'),)",
        "--config.checkpoint.keep_best=fewshot_pets_raw/5shot",
    )
    validation.check_together(config, Classification.EVALUATED, averages=True)
    with pytest.raises(BadInput, match="fewshot_pets_raw/5shot"):
        validation.check_together(config, Classification.EVALUATED)


# --- provenance ---


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
