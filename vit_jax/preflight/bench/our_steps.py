# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The steps of this package, and matrix products on the same device, for comparison.

Start from `train`. Images and labels are random, and on the device already.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from vit_jax.build import program
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.config import recipes, sections
from vit_jax.data.example import GRID
from vit_jax.errors import BadInput
from vit_jax.evaluators import features
from vit_jax.hardware import detect, device_memory
from vit_jax.models import variants
from vit_jax.preflight.bench.interleaved import Asked, Timed
from vit_jax.runtime import coordination

CLASSES = 1000
_FLAGS = {
    "model.variant": "--models",
    "model.dtype": "--dtype",
    "data.image_size": "--resolution",
    "batch_size": "--batch",
}
_PEAK_SIDES = {"cpu": 2048, "gpu": 8192, "tpu": 8192}  # of matrices, large enough for the peak


def config(asked: Asked) -> sections.Config:
    """Returns the configuration of a step: `configs/base.py` with AdamW and clipping.

    Pre-training has the same optimizer. Models pool as published, see `variants.published`.

    Raises:
      BadInput: the model is unknown, cannot have these sizes, or an override is wrong.
    """
    own = {
        "model.variant": asked.model,
        "model.dtype": asked.dtype,
        "data.image_size": asked.resolution,
        "batch_size": asked.batch,
        "optimizer.weight_decay": 0.1,
    }
    own |= {f"model.{key}": value for key, value in variants.published(asked.model).items()}
    given = [f"--config.{key}={value}" for key, value in own.items()]
    for text in asked.overrides:
        key = text.removeprefix("--config.").partition("=")[0]
        if key in _FLAGS:
            raise BadInput(f"{text}: give {_FLAGS[key]} instead, which all candidates follow.")
    made = config_lib.load(f"{recipes.OWN}base", [*given, *asked.overrides])
    build.check(made)
    return made


def make(asked: Asked) -> program.Program:
    """Makes the program of that configuration, on one device like the other candidates."""
    made = config(asked)
    begin(made)
    return for_device(made, jax.devices()[0])


def for_device(made: sections.Config, device: Any) -> program.Program:
    """Makes the program of a configuration from `config` on one device, or a description of one."""
    examples = 1000 * made.batch_size
    return program.make(made, classes=CLASSES, examples=examples, devices=[device])


def begin(made: sections.Config) -> None:
    """Chooses the platform.

    Raises:
      BadInput: an accelerator is present that jax cannot use.
    """
    if not detect.present_accelerators():
        jax.config.update("jax_platforms", "cpu")  # otherwise libtpu complains about a missing TPU
    coordination.start(made.platform, deterministic=made.deterministic)


def train(asked: Asked) -> Timed:
    """Prepares the step that `vit_jax train` runs."""
    made = make(asked)
    began = time.perf_counter()
    state, batch = made.init(), random_batch(made)
    compiled = made.lower_step().compile()
    state, metrics = compiled(state, batch, made.step_key)
    jax.block_until_ready(metrics)
    first_secs = time.perf_counter() - began

    def step() -> Any:
        nonlocal state
        state, found = compiled(state, batch, made.step_key)
        return found

    peak = device_memory.most(made.rules.mesh.local_devices, "peak_bytes_in_use")
    figures = {
        "first_step_secs": first_secs,
        "peak_bytes": device_memory.peak_bytes(compiled) if peak is None else peak,
        "step_flops": made.config.batch_size * made.step_flops,
        "device": device(),
    }
    return Timed(step, jax.block_until_ready, figures)


def evaluate(asked: Asked) -> Timed:
    """Prepares the step of an evaluation: logits, loss and hits of uint8 images."""
    made = make(asked)
    params, batch = _params(made), random_batch(made)
    return _forward(made, made.model.cfg, lambda: made.eval_step(params, batch))


def predict(asked: Asked) -> Timed:
    """Prepares a batch of `vit_jax predict`: the 5 likeliest classes of each image."""
    made = make(asked)
    params, batch, images = _params(made), random_batch(made), made.images

    def best(logits_BY: jax.Array) -> jax.Array:
        return jax.lax.top_k(jax.nn.softmax(logits_BY), 5)[0]

    cfg = program.model_config(made.config, CLASSES)  # independent of the length of a run
    step = features.make_step(cfg, made.rules, mean=images.mean, std=images.std, of_logits=best)
    return _forward(made, cfg, lambda: step(params, batch))


def _params(made: program.Program) -> Any:
    """Makes the parameters that the model is applied with."""
    state = made.init()
    return made.whole(state.params, state.base)


def _forward(made: program.Program, cfg: variants.Config, step: Callable[[], Any]) -> Timed:
    jax.block_until_ready(step())
    figures = {"step_flops": _forward_flops(made, cfg), "device": device()}
    return Timed(step, jax.block_until_ready, figures)


def products(asked: Asked) -> Timed:
    """Prepares products of large square matrices in the dtype of the computation.

    They give the peak of one device.
    """
    begin(config(asked))
    side = _PEAK_SIDES[jax.devices()[0].platform]
    a = jax.random.normal(jax.random.key(0), (side, side), asked.dtype)  # zeros draw less power
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    return Timed(lambda: product(a), jax.block_until_ready, {"step_flops": 2 * side**3})


def random_batch(made: program.Program) -> dict[str, jax.Array]:
    """Makes a batch of random pixels and labels, placed as in training.

    Images of any aspect ratio are as large as their rows have room for: one pass has all.
    """
    random, most = np.random.default_rng(0), {"uint8": 256, "int32": CLASSES, "bool": 2}
    arrays = {
        name: random.integers(0, most[field.dtype.name], field.shape).astype(field.dtype)
        for name, field in made.batch().items()
    }
    arrays["_mask"] = np.ones(made.config.batch_size, bool)
    if GRID in arrays:
        patches = math.prod(variants.grid(made.model.cfg, *made.images.size))
        arrays[GRID][:] = 1, patches // math.ceil(made.config.pack)
    return jax.device_put(arrays, made.batch_sharding)


def device() -> str:
    """Returns the name of the device: `NVIDIA H200`, `2 x AMD EPYC` (processor cores)."""
    found = jax.devices()[0]
    return detect.processor() if found.platform == "cpu" else found.device_kind


def _forward_flops(made: program.Program, cfg: variants.Config) -> int:
    """Returns the FLOPs of a batch."""
    return made.config.batch_size * variants.forward_flops(cfg, *made.images.shape)
