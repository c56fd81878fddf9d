# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The forward pass of a model as a function of images, the same for every format.

It computes in float32 with plain attention, however the model was trained, because every device and
every consumer supports that. Axes: B batch, H W C image, D outputs. Start from `make`, or from
`of_objective` for a run whose objective predicts more than classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from vit_jax.inference.model import Model
from vit_jax.models import variants
from vit_jax.step.objective import Network, Objective
from vit_jax.step.state import normalise
from vit_jax.weights.formats.json_config import Images

PLATFORMS = ("cpu", "cuda", "tpu")  # one artefact serves all of these
Outputs = Any  # an array, or several by name
Call = Callable[[np.ndarray], Outputs]  # images to numpy outputs, by a consumer


@dataclasses.dataclass(frozen=True)
class Forward:
    """A function of images, and its parameters.

    Attributes:
      apply: (params, images [B, H, W, C]) -> float32 [B, D], or a dict of arrays [B, ...]; B is
        free.
      params: tree of numpy float32 arrays.
      size: H and W of the images.
      dtype: dtype of the images: float32 (normalised) or uint8.
      output: the name of an array: "logits", or "representation" for a model without a head; ""
        for a dict, whose keys are the names.
      channels: C of the images.
    """

    apply: Callable[[Any, jax.Array], Outputs]
    params: Any = dataclasses.field(repr=False)
    size: tuple[int, int]
    dtype: str
    output: str
    channels: int = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return (*self.size, self.channels)

    def reference(self, images: np.ndarray) -> Outputs:
        """Computes the outputs to compare artefacts with, by jax with full float32 products."""
        with jax.default_matmul_precision("highest"):
            return jax.tree.map(np.asarray, jax.jit(self.apply)(self.params, images))

    def named(self, outputs: Outputs) -> Mapping[str, Any]:
        """Returns outputs by name, also where there is only one."""
        return {self.output: outputs} if self.output else outputs


def config(cfg: variants.Config) -> variants.Config:
    """Returns the configuration to export: the same function without training-only features."""
    return plain(cfg.for_images(cfg.classes))


def plain(cfg: variants.Config) -> variants.Config:
    """Returns a configuration that computes in float32 with plain attention."""
    return dataclasses.replace(cfg.in_form(attention="plain", remat="none"), dtype="float32")


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


def of_objective(
    objective: Objective, network: Network, params: Any, shape: tuple[int, int, int]
) -> Forward:
    """Makes the function of a run whose objective has outputs of its own.

    Args:
      objective: the objective, with `Objective.exported`.
      network: its model, made of `plain`.
      params: parameters of both.
      shape: rows, columns and channels of the images, which are uint8.
    """

    def apply(params: Any, images_BHWC: jax.Array) -> dict[str, jax.Array]:
        return objective.exported(network, params, images_BHWC)

    *size, channels = shape
    return Forward(apply, jax.device_get(params), (size[0], size[1]), "uint8", "", channels)


def exported(forward: Forward, *, weights_inside: bool) -> export.Exported:
    """Returns a function as `jax.export` has it, for every platform and any batch.

    Args:
      forward: the function.
      weights_inside: whether parameters are constants; otherwise they are its first argument.
    """
    (batch,) = export.symbolic_shape("B")
    images = jax.ShapeDtypeStruct((batch, *forward.shape), np.dtype(forward.dtype))
    if weights_inside:
        function = jax.jit(lambda images: forward.apply(forward.params, images))
        return export.export(function, platforms=PLATFORMS)(images)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), forward.params)
    return export.export(jax.jit(forward.apply), platforms=PLATFORMS)(shapes, images)


def facts(forward: Forward, images: Images | None, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts that a consumer needs, for the JSON beside an artefact.

    Args:
      forward: the function from `make` or `of_objective`.
      images: their normalisation; None if unknown.
      about: facts about the model, from `about_model` or the like.
    """
    outputs = jax.eval_shape(
        forward.apply, forward.params, jax.ShapeDtypeStruct((1, *forward.shape), forward.dtype)
    )
    described = [
        {"name": name, "shape": ["B", *x.shape[1:]], "dtype": str(x.dtype)}
        for name, x in forward.named(outputs).items()
    ]
    normalisation = {"mean": images.mean, "std": images.std} if images else None
    return {
        "input": {"name": "images", "shape": ["B", *forward.shape], "dtype": forward.dtype},
        **({"output": described[0]} if forward.output else {"outputs": described}),
        "normalisation": normalisation,
        "normalised_inside": forward.dtype == "uint8",
        **about,
        "platforms": list(PLATFORMS),
        "jax": jax.__version__,
    }


def about_model(model: Model) -> dict[str, Any]:
    """Returns facts about a model of classes, for `facts`."""
    return {
        "chain": model.weights.images.get("ops"),
        "classes": list(model.names),
        "probabilities": "sigmoid" if model.sigmoid else "softmax",
        "model": variants.describe(model.weights.settings["variant"], config(model.cfg)),
    }
