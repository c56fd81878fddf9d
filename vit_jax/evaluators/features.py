# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Computes features, or a function of the logits, of every image of a split once, on the mesh.

Features are the input of the model's head; if a model has a pre-logits layer, they come after it.
Axes: B batch, H W C image, D width. Start from `make_step`, then `compute`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.pipeline import pipeline
from vit_jax.errors import RunFailed
from vit_jax.models import variants
from vit_jax.runtime import compile_ahead
from vit_jax.sharding import Rules
from vit_jax.step.state import normalise, with_grids

Step = Callable[[Any, dict[str, jax.Array]], tuple[jax.Array, jax.Array]]
Rows = Callable[[range], Iterator[pipeline.NumpyBatch]]  # this process's rows of a batch -> batches


def make_step(
    cfg: variants.Config,
    rules: Rules,
    *,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    of_logits: Callable[[jax.Array], jax.Array] | None = None,
) -> Step:
    """Returns the jitted function (params, batch) -> float32 [B, D] and the mask, replicated.

    A batch of sequences with several images, see `naflex.Canvas`, has a mask [B, S], and gives
    [B * S, D].

    Args:
      cfg: the model.
      rules: mesh and placement.
      mean: mean for normalisation, see `normalise.normalise`; used only for uint8 images, since
        others are already normalised.
      std: standard deviation for normalisation; likewise.
      of_logits: maps logits [B, Y] to the result [B, D]; the logits are not finite if the weights
        are not. None gives features; the parameters may then have a head or not.
    """
    model = variants.make(cfg.for_images(0 if of_logits is None else cfg.classes), rules)

    def step(params: Any, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        image_BHWC = batch["image"]
        if image_BHWC.dtype == jnp.uint8:
            image_BHWC = normalise(image_BHWC, mean, std)
        shown = with_grids(image_BHWC, batch)
        features_BD = jnp.asarray(model.apply({"params": params}, shown, train=False))
        features_BD = features_BD.reshape(-1, features_BD.shape[-1])  # of images in a sequence
        if of_logits is not None:
            features_BD = of_logits(features_BD)
        return features_BD.astype(jnp.float32), batch["_mask"].reshape(-1)

    options = compile_ahead.options(rules.mesh.devices.flat[0].platform)
    return jax.jit(step, out_shardings=rules.replicated, compiler_options=options)


def compute(
    step: Step,
    params: Any,
    rows: Rows,
    rules: Rules,
    batch_size: int,
    progress: Callable[[int], None] = lambda _: None,
    order: Sequence[int] = (),
) -> np.ndarray:
    """Returns float32 [n, D]: every image once, in split order, the same in every process.

    Args:
      step: from `make_step`.
      params: parameters on the mesh.
      rows: such as `Pipeline.evaluation`, which fills the last batch with rows whose mask is False.
      rules: the rules of the step.
      batch_size: images at a time, all devices together; a multiple of the number of devices that
        share a batch.
      progress: called with the number of images done.
      order: the number of each image in the order of `rows`, known when these are read; (): they
        come in order.

    Raises:
      RunFailed: a feature is not finite.
    """
    over = rules.sharding(("act_batch",), (batch_size,), "batch")
    batches = pipeline.to_devices(
        rows(pipeline.local_rows(over, batch_size)), over, batch_size, ahead=1
    )
    parts: list[np.ndarray] = []

    def fetch(features_BD: jax.Array, mask_B: jax.Array) -> None:
        features, mask = jax.device_get((features_BD, mask_B))
        parts.append(features[mask])
        progress(sum(map(len, parts)))

    waiting = None  # one batch late, so that the devices never wait for the host
    for batch in batches:
        done, waiting = waiting, step(params, batch)
        if done is not None:
            fetch(*done)
    if waiting is not None:
        fetch(*waiting)
    features = np.concatenate(parts)
    features = features[np.argsort(order)] if len(order) else features
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise RunFailed(
            f"the output for {len(bad)} of {len(features)} images is not finite, first for image "
            f"number {bad[0]}: the weights are damaged or have diverged."
        )
    return features
