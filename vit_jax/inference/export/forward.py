# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The forward pass of a model as a function of images, the same for every format.

It computes in float32 with plain attention, however the model was trained, because every device and
every consumer supports that. Axes: B batch, H W C image, D outputs. Start from `make`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.inference.model import Model
from vit_jax.models import variants
from vit_jax.step.state import normalise
from vit_jax.weights.formats.json_config import Images

PLATFORMS = ("cpu", "cuda", "tpu")  # one artefact serves all of these
Call = Callable[[np.ndarray], np.ndarray]  # images to outputs, by a consumer


@dataclasses.dataclass(frozen=True)
class Forward:
    """A function of images, and its parameters.

    Attributes:
      apply: (params, images [B, H, W, C]) -> float32 [B, D]; B is free.
      params: tree of numpy float32 arrays.
      size: H and W of the images.
      dtype: dtype of the images: float32 (normalised) or uint8.
      output: "logits", or "representation" for a model without a head.
      channels: C of the images.
    """

    apply: Callable[[Any, jax.Array], jax.Array]
    params: Any = dataclasses.field(repr=False)
    size: tuple[int, int]
    dtype: str
    output: str
    channels: int = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return (*self.size, self.channels)

    def reference(self, images: np.ndarray) -> np.ndarray:
        """Computes the outputs to compare artefacts with, by jax with full float32 products."""
        with jax.default_matmul_precision("highest"):
            return np.asarray(jax.jit(self.apply)(self.params, images))


def config(cfg: variants.Config) -> variants.Config:
    """Returns the configuration to export: the same function without training-only features."""
    plain = cfg.for_images(cfg.classes).in_form(attention="plain", remat="none")
    return dataclasses.replace(plain, dtype="float32")


def make(model: Model, normalised: Images | None) -> Forward:
    """Makes the function of a model.

    Args:
      model: model from `inference.open_model`.
      normalised: how the function normalises uint8 images; None if the images come normalised.
    """
    cfg = config(model.cfg)
    module = variants.make(cfg)

    def apply(params: Any, images_BHWC: jax.Array) -> jax.Array:
        if normalised is not None:
            images_BHWC = normalise(images_BHWC, normalised.mean, normalised.std)
        outputs_BD = jnp.asarray(module.apply({"params": params}, images_BHWC, train=False))
        return outputs_BD.astype(jnp.float32)

    output = "logits" if cfg.classes else "representation"
    dtype = "float32" if normalised is None else "uint8"
    return Forward(apply, jax.device_get(model.params), model.size, dtype, output, model.channels)


def facts(forward: Forward, model: Model, images: Images | None) -> dict[str, Any]:
    """Returns the facts that a consumer needs, for the JSON beside an artefact.

    Args:
      forward: the function from `make`.
      model: the model from `inference.open_model`.
      images: their normalisation; None if unknown.
    """
    width = jax.eval_shape(
        forward.apply, forward.params, jax.ShapeDtypeStruct((1, *forward.shape), forward.dtype)
    ).shape[1]
    normalisation = {"mean": images.mean, "std": images.std} if images else None
    return {
        "input": {"name": "images", "shape": ["B", *forward.shape], "dtype": forward.dtype},
        "output": {"name": forward.output, "shape": ["B", width], "dtype": "float32"},
        "normalisation": normalisation,
        "normalised_inside": forward.dtype == "uint8",
        "chain": model.weights.images.get("ops"),
        "classes": list(model.names),
        "probabilities": "sigmoid" if model.sigmoid else "softmax",
        "model": variants.describe(model.weights.settings["variant"], config(model.cfg)),
        "platforms": list(PLATFORMS),
        "jax": jax.__version__,
    }
