# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The interface of objectives: runs the examples of docs/extending_objective.md."""

import re
import shlex
import sys

import jax
import numpy as np
import optax
import pytest
from test_contrastive import NETWORK, parameters
from test_contrastive import batch as views
from test_train import ROOT, logged, stop_at
from test_train_step import rules_of

from vit_jax import sharding
from vit_jax.build import objectives
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.retention import lower_is_better
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.step import state, train_step
from vit_jax.step.objective import Objective

PAGE = (ROOT / "docs" / "extending_objective.md").read_text()
DATA_PAGE = (ROOT / "docs" / "extending_data.md").read_text()
SHORT = (
    "--config.length=6 steps", "--config.checkpoint.every=3 steps", "--config.batch_size=16",
    "--config.model.width=32", "--config.model.depth=1", "--config.model.mlp=32",
    "--config.model.heads=2", "--config.data.examples=64", "--config.report.every=1 steps",
    "--config.report.writers=()", "--config.report.page=False",
)  # fmt: skip


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A folder with the files of the pages, which is on Python's path."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in re.findall(
        r"```python\n# (my_\w+\.py)\n(.*?)```", PAGE + DATA_PAGE, re.DOTALL
    ):
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def run(workdir, *args, number=0):
    """A command of the page, shortened."""
    block = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[number]
    words = shlex.split(block.replace("\\\n", " "))[1:]
    words = [w.replace("configs/", f"{ROOT}/configs/") for w in words if "--workdir" not in w]
    return main.main([*words, f"--workdir={workdir}", *SHORT, *args])


def saved(workdir, step):
    return Checkpoints(workdir, read_only=True)._saved(step)


@pytest.fixture(scope="module")
def whole(mine, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    assert run(workdir) == 0
    return workdir


@pytest.mark.integration
def test_what_it_keeps_is_saved_and_a_run_goes_on_bit_for_bit(whole, tmp_path, monkeypatch):
    assert set(saved(whole, 6)["kept"]["teacher"]) >= {"embedding", "objective"}
    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            run(cut)
    assert run(cut) == 0
    rows = logged(whole)
    assert {key: v for key, v in logged(cut).items() if not key[1].startswith(("perf", "mem"))} == {
        key: v for key, v in rows.items() if not key[1].startswith(("perf", "mem"))
    }
    assert {name for _, name in rows if name.startswith(("train", "val"))} == {
        "train/loss", "train/lr", "val/loss", "val/examples"
    }  # fmt: skip
    assert rows[6, "train/loss"] != rows[1, "train/loss"]


def stepped(accumulation=1, shape=(1, 1, 1, 1), count=3):
    """State and losses after some steps of a function, with the batch and all else on a mesh."""
    from my_objective import Byol  # type: ignore[import-not-found]

    objective, tx, rules = Byol(momentum=0.5), optax.sgd(0.1), rules_of(shape)
    params = parameters(objective)
    meaning = {r"weights": (None, "embed"), **objective.AXES}
    shapes = jax.eval_shape(
        lambda p: state.from_params(p, tx, ema=True, keep=objective.kept), params
    )
    places = sharding.place(shapes, sharding.param_axes(params, meaning), rules)
    begin = jax.jit(
        lambda p: state.from_params(p, tx, ema=True, keep=objective.kept), out_shardings=places
    )
    step = jax.jit(
        train_step.make_train_step(objective, NETWORK, tx, accumulation=accumulation),
        out_shardings=(places, rules.replicated),
    )
    given = jax.device_put(views(), rules.sharding(("act_batch",), (16,)))
    current, losses = begin(params), []
    for _ in range(count):
        current, measured = step(current, given, jax.random.key(0))
        losses.append(float(measured["loss"]))
    return current, losses


def test_what_it_keeps_follows_the_updates_on_any_mesh_and_by_micro_batches(mine):
    (before, _), (expected, losses) = stepped(count=2), stepped()
    jax.tree.map(
        lambda t, old, new: np.testing.assert_allclose(t, (old + new) / 2, rtol=1e-5, atol=1e-6),
        expected.kept["teacher"], before.kept["teacher"], expected.params,
    )  # fmt: skip
    assert not np.allclose(before.kept["teacher"]["weights"], expected.params["weights"], atol=1e-5)
    for accumulation, shape in ((4, (1, 1, 1, 1)), (2, (1, 2, 4, 1))):
        found, again = stepped(accumulation, shape)
        assert again == pytest.approx(losses, rel=1e-5)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            jax.device_get(found), jax.device_get(expected),
        )  # fmt: skip
        split = shape[2] > 1
        for tree in (found.params, found.kept["teacher"]):
            assert (not tree["weights"].sharding.is_fully_replicated) == split


def test_default_members_are_those_of_images_without_labels():
    fields = Objective().batch(4, 6, 5)
    assert {name: (x.shape, x.dtype.name) for name, x in fields.items()} == {
        "image": ((4, 6, 5), "uint8")
    }
    assert Objective().kept({}) is None


@pytest.mark.parametrize(
    "metric, lower",
    [("val/loss", True), ("val/calibration_loss", True), ("val/mean_error", True),
     ("val/top1", False), ("a/5shot", False)],
)  # fmt: skip
def test_the_name_of_a_metric_says_when_it_is_best(metric, lower):
    assert lower_is_better(metric) == lower


def segment(workdir, *args):
    return run(workdir, "--config.data.image_size=8", *args, number=1)


@pytest.mark.integration
def test_mask_and_feature_map_of_the_page(mine, tmp_path):
    workdir = tmp_path / "discs"
    assert segment(workdir, "--config.length=30 steps", "--config.schedule.lr=0.01") == 0
    rows = logged(workdir)
    assert rows[1, "train/loss"] == pytest.approx(np.log(3), abs=0.1)
    assert rows[30, "train/loss"] < 0.8 * rows[1, "train/loss"]
    assert 0.5 < rows[30, "val/accuracy"] <= 1


BATCHES = {
    "view": ({"view": ((8, 8, 3), "uint8"), "mask": ((8, 8), "int32")}, "expected an image beside"),
    "side": ({"image": ((8, 8, 3), "uint8"), "mask": ((4, 8), "int32")}, "int32 [8, 8]"),
    "dtype": ({"image": ((8, 8, 3), "uint8"), "mask": ((8, 8), "uint8")}, "int32 [8, 8]"),
    "boxes": ({"image": ((8, 8, 3), "uint8"), "boxes": ((4,), "float32")}, "float32 [M, 4]"),
    "none": ({"image": ((8, 8, 3), "uint8"), "boxes": ((0, 4), "float32")}, "M from 1 on"),
    "unequal": ({"image": ((8, 8, 3), "uint8"), "boxes": ((4, 4), "float32"),
                 "box_classes": ((3,), "int32")}, "[M], as many as its boxes"),
    "alone": ({"image": ((8, 8, 3), "uint8"), "box_classes": ((3,), "int32")}, "[M], as many as"),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_batch_that_no_source_can_fill_is_refused(name):
    batch, part = BATCHES[name]

    class Wrong(Objective):
        def batch(self, height, width, channels):
            return {k: jax.ShapeDtypeStruct(shape, dtype) for k, (shape, dtype) in batch.items()}

    config = config_lib.load(f"{ROOT}/configs/contrastive.py", ["--config.data.image_size=8"])
    with pytest.raises(BadInput, match=re.escape(part)) as error:
        objectives.check_views(config, Wrong())
    assert "correct its method batch" in str(error.value)


@pytest.mark.integration
def test_source_without_the_mask_is_refused(mine, tmp_path, capsys):
    assert segment(tmp_path / "run", "--config.data.source=digits") == 2
    assert "have no mask, only image, labels" in capsys.readouterr().err
