# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Small models as `inference.open_model` gives them, a run with class names, and a clean process.

Start from `model` or `run`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny

from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.config import load as config_lib
from vit_jax.inference import model as inference
from vit_jax.step import state
from vit_jax.weights import convert

ENCODER = tiny.ENCODER | {"depth": 2}
RESNET = {"stages": (1,), "root_width": 32}
KINDS = {
    "token": {"variant": "Ti/4"} | ENCODER,
    "gap": {"variant": "Ti/4", "pool": "gap", "posemb": "learned2d"} | ENCODER,
    "map": {"variant": "Ti/4", "pool": "map", "registers": 2} | ENCODER,
    "hybrid": {"variant": "R+Ti/8"} | ENCODER | RESNET,
    "bit": {"variant": "BiT-custom", "classes": 7} | RESNET,
    "mixer": {"variant": "Mixer-custom/4", "width": 32, "depth": 2, "mlp": 48, "token_mlp": 20,
              "classes": 7},
}  # fmt: skip
BASE = str(Path(__file__).resolve().parents[1] / "configs" / "base.py")
OWN = {"ops": "decode|resize({size})", "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
NAMES = tuple("abcdefg")
SETTINGS = (
    "--config.model.variant=Ti/4",
    *(f"--config.model.{k}={v}" for k, v in ENCODER.items() if k != "classes"),
    "--config.data.image_size=8",
    "--config.data.mean=(0.1,0.2,0.3)",
    "--config.data.std=(0.4,0.5,0.6)",
    "--config.data.eval_ops=decode|resize_small({size*2//1})|central_crop({size})",
)


def weights(kind="token", form="run", images=OWN, **changes):
    settings = KINDS[kind] | changes
    classes = settings.pop("classes")
    return convert.Weights({}, form, settings, classes, None, {}, images)


def model(kind="token", form="run", images=OWN, names=(), size=None, **changes):
    """An `inference.Model` of random parameters on one device."""
    given = weights(kind, form, images, **changes)
    size = size or tiny.size(given.config)
    params = jax.tree.map(jnp.asarray, tiny.params(given.config, *size))
    return inference.Model(given, size, tuple(names), False, given.config, params, None)


def run(folder, names=NAMES, pool="token"):
    """A workdir of one step: a ViT for images of 8 pixels, its parameters those of `tiny`."""
    text = config_lib.to_yaml(config_lib.load(BASE, [*SETTINGS, f"--config.model.pool={pool}"]))
    (folder / "config.yaml").write_text(text)
    if names:
        (folder / "classes.json").write_text(json.dumps({"classes": list(names)}))
    params = jax.tree.map(jnp.asarray, tiny.params(tiny.config(depth=2, pool=pool), 8, 8))
    checkpoints = Checkpoints(folder)
    checkpoints.save(3, state.from_params(params, optax.identity(), ema=False), text, {})
    checkpoints.close()
    return folder


def clean(program, folder, *, without):
    """Runs a program in a process where some modules cannot be imported."""
    hidden = "import sys; " + "".join(f"sys.modules[{name!r}] = None; " for name in without)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{hidden}\n{program}"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def artefacts(folder, write, kinds=tuple(KINDS)):
    """Kinds of models, written by `write`, with inputs and the outputs of `tiny.forward`."""
    from vit_jax.inference.export import forward as forward_lib

    for kind in kinds:
        made = model(kind)
        write(forward_lib.make(made, None), folder / kind)
        images = tiny.images_of(made.cfg, 3)
        expected = tiny.logits(made.cfg, made.params, images)
        np.savez(folder / f"{kind}.npz", images=images, expected=expected)
    return folder


COMPARE = """
import sys, numpy as np
def compare(kind, call):
    with np.load(kind + ".npz") as file:
        for count in (1, 3):
            found, expected = call(file["images"][:count]), file["expected"][:count]
            assert found.shape == (count, 7) and found.dtype == np.float32, found
            assert np.abs(expected).max() > 0.5
            difference = np.abs(found - expected).max() / np.abs(expected).max()
            assert difference < 1e-5, (kind, count, difference)
            print(kind, count, difference)
"""
