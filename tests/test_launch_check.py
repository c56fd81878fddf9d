# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is found before anything is submitted."""

import dataclasses

import launching
import pytest

from launch import check
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.preflight.plan import plan

RECIPE = "configs/quickstart.py"


def checked(accelerator, *overrides, slices=1, processes="per_node", root):
    found = topology.find(accelerator) if accelerator else None
    loaded = config_lib.load(str(root / RECIPE), [f"--config.{o}" for o in overrides])
    check.check(loaded, found, slices, processes)


@pytest.mark.parametrize(
    "accelerator, overrides, slices",
    [
        ("", [], 1),
        ("h100-8", [], 1),
        ("v4-32", ["mesh.fsdp=4"], 1),
        ("v5e-4", ["batch_size=64", "mesh.replica=2"], 2),
        ("cpu-4", ["mesh.replica=2"], 1),
    ],
)
def test_what_fits_passes(accelerator, overrides, slices, root):
    checked(accelerator, *overrides, slices=slices, root=root)


@pytest.mark.parametrize(
    "accelerator, overrides, more, message",
    [
        ("h100-8", ["mesh.fsdp=3"], {}, "mesh .*needs a multiple of 3 devices, there are 8; fsdp="),
        ("v4-64", ["batch_size=48"], {}, "batch_size=48 is not divisible by 32.*use 32 or 64"),
        ("v4-8", ["mesh.data=8"], {}, "there are 4; data=4 fits"),
        ("v4-8", [], {"slices": 0}, "--slices=0"),
        ("h100-8", [], {"slices": 2}, "h100 has no slices; give a larger size"),
        ("", [], {"slices": 2}, "needs --accelerator=NAME"),
        ("v4-8", ["mesh.replica=1", "batch_size=64"], {"slices": 2}, "come in 2 slices"),
        ("v4-8", [], {"processes": "per_gpu"}, "v4-8 has no GPUs"),
        ("v4-8", ["platform=gpu"], {}, "platform=gpu, but v4-8 is a tpu"),
        ("", ["model.variant=B/17x"], {}, "B/17x"),
    ],
)
def test_what_does_not_is_refused(accelerator, overrides, more, message, root):
    with pytest.raises(BadInput, match=message):
        checked(accelerator, *overrides, **more, root=root)


def test_the_mesh_is_judged_as_the_trainer_judges_it(root):
    """The launcher must not refuse what the trainer would run, nor the other way round."""
    from vit_jax.build import program

    for n in range(1, 9):
        loaded = config_lib.load(str(root / RECIPE), [f"--config.mesh.fsdp={n}"])
        verdicts = []
        for judge in (
            lambda loaded: check.check(loaded, topology.find("cpu-8"), 1, "per_node"),
            program.make_rules,
        ):
            try:
                judge(loaded)
                verdicts.append("")
            except BadInput as e:
                verdicts.append(str(e))
        assert verdicts[0] == verdicts[1]


def test_machines_are_said(tmp_path):
    assert check.machines(launching.job(tmp_path)) == "this machine, as it is"
    assert check.machines(launching.job(tmp_path, "v4-256", slices=2)) == (
        "2 x v4-256: 256 chips on 64 machines; 256 chip-hours for each hour"
    )


def test_a_plan_is_made_where_one_can_be(tmp_path, monkeypatch):
    assert not check.can_plan(launching.job(tmp_path, "cpu-8"))
    assert check.can_plan(launching.job(tmp_path, "h100-8"))
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None)
    assert not check.can_plan(launching.job(tmp_path, "v4-8"))


@pytest.fixture
def planned(tmp_path, monkeypatch, root):
    """The verdict for a job whose step takes so many bytes."""

    def judged(peak, each=None, **more):
        names = {f.name: 1.0 for f in dataclasses.fields(plan.Measured)}
        measured = plan.Measured(**names | {"peak_bytes": peak, "steps": 3600, "how": "counted"})
        job = launching.job(tmp_path, "h100-8", **more)
        found = plan.Plan(job.accelerator, 1, 100, measured, (({"accumulation": 2}, 50),))
        asked = []
        monkeypatch.setattr(plan, "plan", lambda config, *_: asked.append(config) or found)
        configs = [
            config_lib.load(str(root / RECIPE), given) for given in each or [()] * len(job.runs)
        ]
        said = check.plan(job, configs)
        judged.asked = len(asked)
        return said

    return judged


def test_the_cost_is_that_of_all_runs(planned):
    assert "50% of the memory" in planned(50)
    assert "8 chip-hours at best" in planned(50)
    assert "24 chip-hours for 3 runs at best" in planned(50, points=3)
    assert planned.asked == 1


def test_points_that_cost_something_else_are_planned_apart(planned):
    each = [("--config.seed=1",), ("--config.model.depth=2",), ("--config.schedule.lr=0.1",)]
    assert "24 chip-hours for 3 runs at best" in planned(50, each, points=3)
    assert planned.asked == 2


def test_what_is_not_planned_says_why(tmp_path, monkeypatch):
    assert "those of TPUs and GPUs" in check.plan(launching.job(tmp_path, "cpu-8"), [])
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda name: None)
    assert "pip install -e '.[plan]'" in check.plan(launching.job(tmp_path, "v4-8"), [])


def test_what_does_not_fit_is_not_submitted(planned):
    with pytest.raises(BadInput, match=r"would fit with --config\.accumulation=2\. Nothing"):
        planned(100)
