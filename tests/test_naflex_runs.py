# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Training images of any aspect ratio: commands, meshes and accumulation."""

import csv
import functools
import json

import jax
import numpy as np
import optax
import pytest
import tiny
from PIL import Image
from test_train_step import KEY, batch, make_step, rules_of

from vit_jax import sharding
from vit_jax.cli import main
from vit_jax.models import variants
from vit_jax.step import state

pytestmark = pytest.mark.integration
MODEL = {"variant": "custom/4", "width": 16, "depth": 1, "mlp": 16, "heads": 2, "naflex": 3}


def test_a_run_is_trained_evaluated_and_asked_about_files(tmp_path, root):
    """Two steps on wide and tall images; the evaluation of the run is that of the command."""
    rng = np.random.default_rng(0)
    for name, sides in (("wide", (12, 40, 3)), ("tall", (40, 12, 3))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(12):
            image = Image.fromarray(rng.integers(0, 256, sides, np.uint8))
            image.save(tmp_path / "images" / name / f"{number}.png")
    out, workdir = str(tmp_path / "out"), str(tmp_path / "run")
    words = [f"--config.model.{key}={value}" for key, value in MODEL.items()]
    words += [
        f"--config.data.{split}_ops=decode|naflex({{size}}, 4)" for split in ("train", "eval")
    ]
    words += [f"--config.data.source=folder:{tmp_path / 'images'}", "--config.data.image_size=16"]
    words += ["--config.length=2 steps", "--config.batch_size=8", "--config.schedule.warmup=0"]
    words += ["--config.data.workers=1", "--config.report.page=false"]
    recipe = f"--config={root / 'configs' / 'quickstart.py'}"
    assert main.main(["train", recipe, f"--workdir={workdir}", *words]) == 0
    trained = json.loads((tmp_path / "run" / "results.json").read_text())["test"]
    assert main.main(["evaluate", workdir, f"--out={out}"]) == 0
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert found["top1"] == trained["top1"]
    packed_answers_are_the_same(tmp_path, workdir, found)
    files = [str(tmp_path / "images" / name / "0.png") for name in ("wide", "tall")]
    assert main.main(["predict", workdir, *files, f"--out={tmp_path / 'p.csv'}"]) == 0
    with open(tmp_path / "p.csv", newline="") as lines:
        assert {row["image"] for row in csv.DictReader(lines)} == {*files}


def packed_answers_are_the_same(tmp_path, workdir, found):
    """Of `evaluate`, of `features` of a split, and of files of which one is damaged."""
    out, pack = tmp_path / "packed", "--pack=1024"  # fewer sequences than images
    assert main.main(["evaluate", workdir, pack, f"--out={out}"]) == 0
    again = json.loads((out / "evaluation.json").read_text())
    assert (again["top1"], again["confusion"]) == (found["top1"], found["confusion"])
    (tmp_path / "0.png").write_bytes(b"no image")
    files = [str(tmp_path / "0.png"), *(str(tmp_path / "images" / n) for n in ("wide", "tall"))]
    for given, code in ((["--data=", "--split=train"], 0), (files, 2)):
        found = []
        for more in ([], [pack]):
            saved = tmp_path / f"features{len(found)}.npz"
            assert main.main(["features", workdir, *given, *more, f"--out={saved}"]) == code
            found.append(np.load(saved))
        one, packed = found
        assert one["names"].tolist() == packed["names"].tolist()
        assert np.std(one["features"]) > 0.1
        np.testing.assert_allclose(packed["features"], one["features"], atol=1e-5)
    assert main.main(["features", workdir, *files, "--pack=15", f"--out={saved}"]) == 2


def stepped(shape=(1, 1, 1, 1), **options):
    """Loss and gradient norm of the second of two steps on images of several grids."""
    cfg, rules = tiny.config(depth=1, naflex=3), rules_of(shape)
    model, tx = variants.make(cfg, rules), optax.sgd(0.3)

    def apply(params, images, *, train, key):
        return model.apply({"params": params}, images, train=train, key=key)

    step = make_step(tx, apply, classes=cfg.classes, **options)
    begin = state.from_params(tiny.params(cfg, 16, 16), tx, ema=False)
    axes = sharding.param_axes(jax.eval_shape(lambda: begin.params), variants.axes(cfg))
    places = sharding.place(jax.eval_shape(lambda: begin), axes, rules)
    grids = np.tile(np.int32([[4, 4], [2, 5], [1, 16], [7, 2]]), (2, 1))
    given = batch(8, 0, 16, 16, cfg.classes) | {"grid": grids}
    given = jax.device_put(given, rules.sharding(("act_batch",), (8,)))
    jitted = jax.jit(step, out_shardings=(places, rules.replicated))
    current, _ = jitted(jax.device_put(begin, places), given, KEY)
    measured = jitted(current, given, KEY)[1]
    return float(measured["loss"]), float(measured["grad_norm"])


@functools.cache
def expected():
    return stepped()


@pytest.mark.parametrize("options", [{"shape": (1, 2, 2, 2)}, {"accumulation": 2}])
def test_grids_go_with_their_images(options):
    """Onto the devices of a mesh, and into micro-batches."""
    np.testing.assert_allclose(stepped(**options), expected(), rtol=1e-5)
