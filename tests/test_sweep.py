# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The expansion of a sweep: what points become, how they are called, what is refused. No runs."""

import re

import numpy as np
import pytest

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points as sweep

RECIPE = """
from configs import quickstart
from vit_jax.config.load import parse_args

def get_config(arg=None):
    args = parse_args(arg, dataset="digits", width=64)
    config = quickstart.get_config()
    config.data.source = args.dataset
    config.model.width = args.width
    return config

{body}
"""
FINAL = """
def final(rows):
    best = max(rows, key=lambda row: row["val/top1"])
    return [{"schedule.lr": best["schedule.lr"], "seed": seed} for seed in (0, 1, 2)]
"""
STAGED = (
    FINAL
    + 'def sweep(): return {"select": [{"schedule.lr": r} for r in (0.1, 0.2)], "final": final}'
)


@pytest.fixture
def recipe(tmp_path):
    """A function from the body of a recipe to its file."""

    def write(body):
        path = tmp_path / "recipe.py"
        path.write_text(RECIPE.replace("{body}", body))
        return str(path)

    return write


@pytest.fixture
def points(recipe):
    """A function from a list of points, as text, to what they become."""

    def expand(text, *overrides, args=""):
        spec = recipe(f"def sweep(arg=None): return {text}") + args
        return sweep.read(spec, overrides).points("")

    return expand


def test_point_sets_a_key_an_argument_and_a_key_with_its_prefix(points):
    found = points('[{"schedule.lr": 0.5, ":width": 32, "config.seed": 7}]')[0]
    assert (found.config.schedule.lr, found.config.model.width, found.config.seed) == (0.5, 32, 7)
    assert found.keys == {"schedule.lr": 0.5, ":width": 32, "seed": 7}
    assert found.run == "000-lr=0.5_width=32_seed=7"


def test_arguments_and_overrides_of_the_command_hold_for_all_points(points):
    found = points(
        '[{":dataset": "synthetic:pets"}, {"seed": 1}]', "--config.batch_size=8",
        args=":dataset=synthetic:flowers,width=16",
    )  # fmt: skip
    assert [p.config.data.source for p in found] == ["synthetic:pets", "synthetic:flowers"]
    assert {(p.config.model.width, p.config.batch_size) for p in found} == {(16, 8)}


def test_sweep_is_given_the_arguments(recipe):
    spec = recipe('def sweep(arg=None): return [{"seed": len(arg)}]') + ":width=16"
    assert sweep.read(spec).points("")[0].config.seed == len("width=16")


@pytest.mark.parametrize(
    "key, value, meant",
    [
        ("seed", 3, 3), ("seed", np.int64(3), 3), ("schedule.lr", np.float32(0.5), 0.5),
        ("schedule.lr", 1, 1.0), ("length", "90 epochs", "90 epochs"),
        ("data.mean", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3)),
        ("data.mean", [0.1, 0.2, 0.3], (0.1, 0.2, 0.3)),
        ("mesh.rules", (("embed", ("fsdp",)),), (("embed", ("fsdp",)),)),
        ("model.scan", False, False), ("optimizer.name", "sgd", "sgd"),
    ],
)  # fmt: skip
def test_value_of_every_kind_arrives(recipe, key, value, meant):
    made = sweep.Sweep(recipe(""), (), {"": [{key: value}]}).points("")[0]
    assert dict(config_lib.flatten(made.config))[key] == meant
    assert type(dict(config_lib.flatten(made.config))[key]) is type(meant)


def test_a_choice_and_its_own_keys_go_together(points):
    found = points('[{"optimizer.name": "sgd", "optimizer.sgd.momentum": 0.5}]')[0]
    assert found.config.optimizer.sgd.momentum == 0.5
    assert found.run == "000-name=sgd_momentum=0.5"


# ---------------------------------------------------------------- names


def test_names_are_numbered_short_where_clear_and_safe(points):
    found = points(
        '[{"optimizer.name": "sgd", "schedule.name": "linear", "length": "3 epochs"},'
        ' {":dataset": "folder:/a b/ü", "data.mean": (0.5, 0.5, 0.4), "schedule.lr": 1e-05}]'
    )
    assert [p.run for p in found] == [
        "000-optimizer.name=sgd_schedule.name=linear_length=3-epochs",
        "001-dataset=folder-a-b-_mean=0.5+0.5+0.4_lr=1e-05",
    ]


def test_names_leave_out_where_a_run_starts_from(points):
    found = points('[{"seed": 1, "init": "/a/b"}, {"init": "/a/b"}]')
    assert [p.run for p in found] == ["000-seed=1", "001-init=-a-b"]
    assert {p.config.init for p in found} == {"/a/b"}


def test_a_run_can_be_the_init_of_a_recipe(points):
    """Whatever its name: no recipe's argument may hold a comma."""
    (found,) = points('[{":dataset": "a/b", "data.mean": (0.5, 0.5, 0.4), "schedule.lr": 0.5}]')
    assert sweep.with_arguments("configs/transfer.py", {":init": f"runs/{found.run}"}).endswith(
        f"transfer.py:init=runs/{found.run}"
    )
    spec = f"configs/transfer.py:dataset=pets,model=B/16,init=runs/{found.run}"
    assert config_lib.load(spec).init == f"runs/{found.run}"


def test_names_are_unique_and_not_long():
    names = sweep._names([{":dataset": "x" * 300, "seed": i} for i in range(1001)])
    assert len(set(names)) == 1001
    assert {len(name) for name in names} == {sweep.MOST_CHARACTERS}
    assert names[7].startswith("0007-dataset=xxx")
    assert sorted(names) == names


def test_a_name_stays_when_points_are_added(points):
    few = points('[{"seed": 1}, {"seed": 2}]')
    more = points('[{"seed": 1}, {"seed": 2}, {"seed": 2, "schedule.lr": 0.5}]')
    assert [p.run for p in few] == [p.run for p in more][:2]


@pytest.mark.parametrize(
    "keys, name",
    [
        ({":stage": "final", "seed": 1}, "000-seed=1"),
        ({":stage": "final"}, "000-stage=final"),
        ({":stage": "other", "seed": 1}, "000-stage=other_seed=1"),
    ],
)
def test_a_name_does_not_repeat_the_stage(keys, name):
    assert sweep._names([sweep._named(keys, "final")]) == [name]


# ---------------------------------------------------------------- stages


def test_a_stage_may_be_a_function_of_finished_runs(recipe):
    made = sweep.read(recipe(STAGED))
    assert [p.run for p in made.points("select")] == ["select/000-lr=0.1", "select/001-lr=0.2"]
    rows = [{"schedule.lr": r, "val/top1": v} for r, v in ((0.1, 0.4), (0.2, 0.6))]
    final = made.points("final", rows)
    assert [p.run for p in final] == [f"final/00{s}-lr=0.2_seed={s}" for s in (0, 1, 2)]
    assert [p.config.recipe.stage for p in made.points("select") + final] == ["select"] * 2 + [
        ""
    ] * 3
    assert (made.before("select"), made.before("final")) == (None, "select")


def test_a_single_stage_has_no_folder(recipe):
    made = sweep.read(recipe('def sweep(): return {"final": [{"seed": 1}]}'))
    assert made.points("final")[0].run == "000-seed=1"


def test_a_stage_that_cannot_be_imagined_is_left_for_later(recipe):
    body = """
def later(rows): return [{"seed": 1 // int(rows[0]["val/top1"])}]
def sweep(): return {"a": [{"seed": 1}], "b": later}
"""
    made = sweep.read(recipe(body))
    assert made.points("b", [{"val/top1": 1}])[0].config.seed == 1
    with pytest.raises(BadInput, match="stage 'b' cannot be made of finished runs: ZeroDivision"):
        made.points("b", [{"val/top1": 0}])


EVALS = """
def get_config(arg=None):
    config = quickstart.get_config()
    if arg == "stage=final":
        with config.evals.unlocked():
            del config.evals.val
    return config

def sweep(): return {"select": [{"seed": 1}], "final": lambda rows: [{":stage": "final"}]}
"""


def test_an_override_of_an_evaluation_is_for_the_points_that_have_it(recipe, caplog):
    caplog.set_level("INFO")
    override = "--config.evals.val.batch_size=5"
    made = sweep.read(recipe(EVALS), [override, "--config.evals.test.split=val"]).expected
    (select,), (final,) = made["select"], made["final"]
    assert (select.config.evals["val"].batch_size, select.config.evals["test"].split) == (5, "val")
    assert set(final.config.evals) == {"test"}
    assert final.config.evals["test"].split == "val"
    assert caplog.messages == [
        f"{override} is left out of runs without that evaluation: final/000-stage=final"
    ]


def test_an_override_of_an_evaluation_that_no_point_has_is_refused(recipe):
    with pytest.raises(BadInput, match=r"'evals\.vall\.split'.*'evals\.val\.split'"):
        sweep.read(recipe(EVALS), ["--config.evals.vall.split=val"])


# ---------------------------------------------------------------- what is refused

WRONG = {
    "no sweep": ("", ["no sweep function"]),
    "empty": ("def sweep(): return []", ["sweep() is empty", "nothing to run"]),
    "no stages": ("def sweep(): return {}", ["stages []"]),
    "a number": ("def sweep(): return 3", ["sweep() is int", "list of points"]),
    "a point that is none": ("def sweep(): return [3]", ["point 0 is 3"]),
    "nothing": ("def sweep(): return [{'seed': None}]", ["seed=None", "NoneType"]),
    "unknown key": (
        "def sweep(): return [{'seed': 1}, {'schedule.rate': 1.0}, {'schedule.lrr': 2.0}]",
        ["001-rate=1.0: unknown config key 'schedule.rate'", "002-lrr=2.0", "'schedule.lr'"],
    ),
    "unknown argument": ("def sweep(): return [{':deep': 3}]", ["000-deep=3", "'deep'", "width"]),
    "wrong type": ("def sweep(): return [{'seed': 'x'}]", ["000-seed=x", "type int"]),
    "a comma": ("def sweep(): return [{':dataset': 'a,b'}]", ["cannot hold a comma"]),
    "twice": (
        "def sweep(): return [{'seed': 1}, {'seed': 2}, {'seed': 1}]",
        ["000-seed=1 and 002-seed=1 are the same run"],
    ),
    "twice by another name": (
        "def sweep(): return [{'seed': 0}, {':width': 64}]",
        ["000-seed=0 and 001-width=64 are the same run", ":width=64 changes nothing"],
    ),
    "key twice": ("def sweep(): return [{'seed': 1, 'config.seed': 2}]", ["names a key twice"]),
    "function first": ("def sweep(): return {'a': lambda rows: []}", ["first stage"]),
    "name of a stage": ("def sweep(): return {'a/b': [{}], 'c': [{}]}", ["'a/b'"]),
    "unknown key of a later stage": (
        FINAL.replace('"seed": seed', '"sed": seed') + STAGED.splitlines()[-1],
        ["final/000-lr=0.1_sed=0, final/001", "'sed'"],
    ),
    "a fault": ("def sweep(): return [1 / 0]", ["recipe.py cannot be read: ZeroDivisionError"]),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_sweep_that_cannot_be_is_refused(recipe, what):
    body, parts = WRONG[what]
    with pytest.raises(BadInput) as caught:
        sweep.read(recipe(body))
    assert [part for part in parts if part not in str(caught.value)] == []


def test_many_points_with_one_fault_are_said_at_once(points):
    with pytest.raises(BadInput, match=r"000-seed=0, 001-seed=1, 002-seed=2 and 2 more: unknown"):
        points("[{'seed': i} for i in range(5)]", "--config.sed=1")


def test_a_key_that_is_swept_cannot_be_set_too(points):
    with pytest.raises(BadInput, match=r"seed is swept over; leave out --config\.seed"):
        points("[{'seed': 1}]", "--config.seed=2")


def test_a_yaml_has_no_sweep(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(BadInput, match=r"only a recipe \(\.py\) has a sweep"):
        sweep.read(str(tmp_path / "config.yaml"))


def test_recipes_of_the_page_are_sweeps(recipe, root):
    blocks = re.findall(r"```py\n(.*?)```", (root / "docs" / "sweeps.md").read_text(), re.DOTALL)
    sizes = [[len(made.points(s, [{"schedule.lr": 1.0, "val/top1": 0}])) for s in made.stages]
             for made in map(sweep.read, map(recipe, blocks))]  # fmt: skip
    assert sizes == [[6], [3, 3], [9, 3]]


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "words, said",
    [
        (["--config={staged}", "--stage=finall"], "unknown stage .* 'finall'.*'final'"),
        (["--config={staged}", "--parallel=0"], "--parallel=0"),
        (["--config={staged}", "--parallel=many"], "--parallel=many; give .* or auto"),
        (["--config={staged}", "--config.sed=1"], "unknown config key 'sed'"),
        (["--config=none.py"], "no file none.py"),
        ([], "--config is missing"),
        (["--collect"], "is not the folder of a sweep"),
        (["--collect", "--config={staged}"], "leave out --config"),
        (["--collect", "--config.seed=1"], r"leave out --config\.seed=1"),
        (["--config={staged}", "--config.schedule.warmup=long"], r"schedule\.warmup='long'"),
        (["--config={staged}", "--config.data.source=folder:/no/such"], "/no/such"),
        (["--config={staged}", "--stage=final"], r"select/000-lr=0\.1 \(missing\), select/001"),
    ],
)  # fmt: skip
def test_bad_input_exits_with_2_and_writes_nothing(recipe, tmp_path, capsys, words, said):
    staged, workdir = recipe(STAGED), tmp_path / "sweep"
    words = [word.replace("{staged}", staged) for word in words]
    assert main.main(["sweep", f"--workdir={workdir}", *words]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error), error
    assert "Traceback" not in error
    assert not workdir.exists()
