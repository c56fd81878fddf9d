# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of finding objects: FCOS on a pyramid made from the last feature map of a backbone.

Which positions learn which box follows from the boxes alone, so it is settled for the global batch
before any gradient: the loss is exact on every mesh and with accumulation. Axes: B batch, H W
image, M boxes, L positions of all levels, K candidates, N detections, Y classes. Start from
`Detection`.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models import fcos, pyramid, variants
from vit_jax.sharding import Axes
from vit_jax.step import average_precision, dense_boxes
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, PyTree, Sums


class Detections(NamedTuple):
    """The objects that a model finds in an image, the surest first.

    Attributes:
      boxes: float32 [N, 4]: left, top, right, bottom, in pixels of the image as stored.
      scores: float32 [N], from 0 to 1, descending.
      classes: int32 [N].
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


@dataclasses.dataclass(frozen=True)
class Detection(Objective):
    """The objective for images with boxes.

    Attributes:
      width: channels of the pyramid and the head, a multiple of 8 (256 in ViTDet and FCOS).
      depth: convolutions in each branch of the head before its last one (4 in FCOS).
      strides: pixels per position of each level, the patch times a power of two; (): five from
        about 8 on, as FCOS.
      most: M, the largest number of boxes of an image.
      classes: Y; the classes of the data.
      pixels: pixels per position of the feature map; those of the model.
    """

    width: int = 256
    depth: int = 4
    strides: tuple[int, ...] = ()
    most: int = 100
    classes: int = 0
    pixels: int = 0

    METRICS = ("loss", "class_loss", "box_loss", "centre_loss")
    EVALUATED = ("ap50", "loss")
    AXES: ClassVar[Axes] = fcos.AXES

    def __post_init__(self) -> None:
        self.check_numbers({"width": (8, 2**16), "depth": (0, 64), "most": (1, 10_000)})
        if self.width % fcos.GROUP:
            raise ValueError(f"width={self.width}; give a multiple of {fcos.GROUP}.")
        sides = self.strides
        if type(sides) is not tuple or not all(type(s) is int and s > 0 for s in sides):
            raise ValueError(f"strides={sides!r}; give pixels, such as (8, 16, 32).")
        if list(sides) != sorted(set(sides)):
            raise ValueError(f"strides={sides!r}; give each once, the smallest first.")

    def model(self, cfg: Any) -> Any:
        self.of_model(cfg)
        return cfg.for_maps((cfg.levels,))

    def of_model(self, cfg: Any) -> "Detection":
        """Returns the objective for maps of a model.

        Raises:
          BadInput: no map of this model makes the levels.
        """
        pixels = cfg.stride
        if self.pixels not in (0, pixels):
            raise BadInput(
                f"detection(pixels={self.pixels}): {cfg.in_words()} has {pixels}; leave the "
                "argument out."
            )
        strides = self.strides or pyramid.strides(pixels)
        if wrong := [stride for stride in strides if not pyramid.fits(stride, pixels)]:
            finest = max(1, pixels // pyramid.FINEST)
            raise BadInput(
                f"detection(strides={self.strides}): {cfg.in_words()} has a map of {pixels} pixels "
                f"a position, which makes no level of {wrong[0]}; give {pixels} times powers of "
                f"two, from {finest} on, or leave strides out."
            )
        return dataclasses.replace(self, strides=strides, pixels=pixels)

    def in_run(self, cfg: Any, in_steps: Any) -> "Detection":
        return self.of_model(cfg)

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        return super().batch(height, width, channels) | {
            "boxes": jax.ShapeDtypeStruct((self.most, 4), jnp.float32),
            "box_classes": jax.ShapeDtypeStruct((self.most,), jnp.int32),
        }

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        """Returns the FLOPs of an example, without the assignment of boxes; see `Objective`."""
        known = self.of_model(cfg)
        ((*sides, features),) = variants.shapes_of_maps(cfg, height, width)
        head = fcos.multiply_adds(known._head, (sides[0], sides[1]), features)
        return super().step_flops(cfg, height, width) + 3 * 2 * head

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        return self._head.init(key, jnp.zeros(output[0].shape, output[0].dtype))["params"]

    @property
    def _head(self) -> fcos.Fcos:
        return fcos.Fcos(self.classes, self.width, self.depth, self.strides, self.pixels)

    def _sides(self, height: int, width: int) -> tuple[int, int]:
        """Returns rows and columns of the feature map; that of a ResNet may hang over."""
        return -(-height // self.pixels), -(-width // self.pixels)

    def places(self, height: int, width: int) -> fcos.Places:
        """Returns the positions of all levels for images of a size."""
        return fcos.places(self._sides(height, width), self.strides, self.pixels)

    def found(
        self, network: Network, params: PyTree, images: jax.Array, **options: Any
    ) -> fcos.Found:
        """Returns what the head says of uint8 images [B, H, W, C]."""
        (features,) = network.apply(params, network.normalise(images), **options)
        return self._head.apply({"params": params[PARAMETERS]}, features)  # type: ignore[return-value]

    def detect(
        self, network: Network, params: PyTree, images: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns boxes, scores and classes in uint8 images; see `dense_boxes.detections`."""
        found = self.found(network, params, images, train=False, key=None)
        _, height, width, _ = images.shape
        return dense_boxes.detections(found, self.places(height, width), (height, width))

    def exported(self, network: Network, params: PyTree, images: jax.Array) -> dict[str, jax.Array]:
        """Returns `boxes`, `scores` and `classes`, see `detect`."""
        boxes, scores, classes = self.detect(network, params, images)
        return {"boxes": boxes, "scores": scores, "classes": classes}

    # ------------------------------------------------------------ a training step

    def draw(self, batch: Batch, key: jax.Array) -> tuple[Batch, PyTree]:
        """Adds the targets, and returns what sums are divided by, over the examples of a mean."""
        places = self.places(*batch["image"].shape[1:3])
        targets = dense_boxes.targets(batch, places)
        count = jnp.maximum(jnp.sum(batch["_mask"], dtype=jnp.float32), 1.0)
        totals = dense_boxes.totals(targets)
        drawn = {name: count / jnp.maximum(total, 1.0) for name, total in totals.items()}
        return batch | {"targets": targets}, drawn

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: PyTree,
        key: jax.Array,
    ) -> Sums:
        """Returns sums of losses, scaled so that a division by all examples gives the loss.

        As in the authors' code, those of classes and centre-ness are divided by the positions that
        learn a box, in the whole batch, and that of boxes by the sum of their centre-ness. Neither
        divisor is below 1.
        """
        found = self.found(network, params, batch["image"], train=True, key=key)
        places = self.places(*batch["image"].shape[1:3])
        sums = dense_boxes.losses(found, places, batch["targets"])
        weighed = {name: sums[name] * drawn[by] for name, by in _DIVIDED_BY.items()}
        return {"loss": sum(weighed.values(), jnp.zeros(())), **weighed}

    # ------------------------------------------------------------ evaluation

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns sums of losses and their divisors, the detections, and the boxes of the batch."""
        size = batch["image"].shape[1:3]
        found = self.found(network, params, batch["image"], train=False, key=None)
        places = self.places(*size)
        targets = dense_boxes.targets(batch, places)
        detected = dense_boxes.detections(found, places, size)
        real_B = batch["_mask"][:, None]
        return {
            **dense_boxes.losses(found, places, targets),
            **dense_boxes.totals(targets),
            "examples": jnp.sum(batch["_mask"], dtype=jnp.int32),
            "boxes": detected[0],
            "scores": jnp.where(real_B, detected[1], 0.0),
            "classes": detected[2],
            "true_boxes": batch["boxes"],
            "true_classes": jnp.where(real_B, batch["box_classes"], -1),
        }

    def total(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, float | int]:
        """Returns AP50 at the size of training, and the loss of all batches as if they were one.

        Without a true box there is no AP50, so that no step can be the best for one.
        """
        batches = list(batches)
        names = {*_DIVIDED_BY, *_DIVIDED_BY.values(), "examples"}
        sums = {n: sum(np.asarray(b[n], np.float64) for b in batches) for n in names}
        loss = sum(sums[name] / max(sums[by], 1.0) for name, by in _DIVIDED_BY.items())
        images = (
            average_precision.Image(*rows)
            for batch in batches
            for rows in zip(*(batch[n] for n in _OF_AN_IMAGE), strict=True)
        )
        ap50 = average_precision.ap50(images, self.classes)
        return {
            **({} if math.isnan(ap50) else {"ap50": ap50}),
            "loss": float(loss),
            "examples": int(sums["examples"]),
        }


# Loss -> the sum that its sum is divided by.
_DIVIDED_BY = {"class_loss": "positions", "box_loss": "centred", "centre_loss": "positions"}
_OF_AN_IMAGE = ("boxes", "scores", "classes", "true_boxes", "true_classes")
