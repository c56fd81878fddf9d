# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of predicting the class of each pixel: a head on the feature maps of a backbone.

Axes: B batch, H W image and mask, h w grid of a feature map, D features, Y classes. Start from
`Segmentation`; `figures` turns a confusion matrix into metrics.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.errors import BadInput
from vit_jax.models import dense_heads, variants
from vit_jax.sharding import Axes
from vit_jax.step import metrics
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, PyTree, Sums

_HEAD = 2**31 + 3  # stands for a micro-batch's number in the key of the head's dropout


_WITHOUT_USE = {"linear": ("width", "layers", "dropout"), "upsampling": ("layers", "dropout")}


@dataclasses.dataclass(frozen=True)
class Segmentation(Objective):
    """The objective for images with masks; pixels of -1 do not count.

    Attributes:
      head: kind of head, see `dense_heads.make`.
      levels: number of feature maps for the head, from the last blocks or stages. Maps of other
        grids are resized to the finest one.
      width: width of the head; 0: its own.
      layers: blocks of a mask transformer (2 in Segmenter).
      dropout: rate of dropout in a mask transformer.
      scale: size of an image that windows cover, from 1 on; 1 is the smallest that covers a window.
        It does not affect training; see `inference/segmenter.py`.
      classes: Y; the classes of the data.
    """

    head: dense_heads.Kind = "linear"
    levels: int = 1
    width: int = 0
    layers: int = 2
    dropout: float = 0.0
    scale: float = 1.0
    classes: int = 0

    METRICS = ("loss", "pixel_accuracy")
    EVALUATED = ("miou", "pixel_accuracy", "loss")
    AXES: ClassVar[Axes] = dense_heads.AXES

    def __post_init__(self) -> None:
        self.check_choices({"head": dense_heads.KINDS})
        self.check_numbers({"levels": (1, 64), "width": (0, 2**16), "layers": (1, 64)})
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout!r}; give a rate from 0 up to below 1.")
        if type(self.scale) not in (int, float) or not 1 <= self.scale <= 16:
            raise ValueError(f"scale={self.scale!r}; give a factor from 1 to 16.")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _WITHOUT_USE.get(self.head, ()) and value != field.default:
                raise ValueError(
                    f"{field.name}={value} has no use with head={self.head!r}; leave it out."
                )

    def model(self, cfg: Any) -> Any:
        last = cfg.levels
        if last and self.levels > last:
            raise BadInput(
                f"segmentation(levels={self.levels}): {cfg.in_words()} has {last} levels; give a "
                "number up to that."
            )
        return cfg.for_maps(tuple(range(last - self.levels + 1, last + 1)))

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        mask = jax.ShapeDtypeStruct((height, width), jnp.int32)
        return super().batch(height, width, channels) | {"mask": mask}

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        """Returns the FLOPs of an example, without the resize of logits; see `Objective`."""
        sides = variants.shapes_of_maps(cfg, height, width)
        head = dense_heads.multiply_adds(
            self.head, self.classes, width=self.width, layers=self.layers,
            positions=max(h * w for h, w, _ in sides), features=sum(d for *_, d in sides),
        )  # fmt: skip
        return super().step_flops(cfg, height, width) + 3 * 2 * head

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        maps = tuple(jnp.zeros(x.shape, x.dtype) for x in output)
        return self._head.init(key, joined(maps), None)["params"]

    @property
    def _head(self) -> Any:
        return dense_heads.make(
            self.head, self.classes, width=self.width, layers=self.layers, rate=self.dropout
        )

    def logits(
        self, network: Network, params: PyTree, images: jax.Array, **options: Any
    ) -> jax.Array:
        """Returns float32 [B, H, W, Y] of uint8 images [B, H, W, C], at every pixel.

        The logits of `grid` are resized bilinearly, as in Segmenter and DINOv2.
        """
        grid_BhwY = self.grid(network, params, images, **options)
        return jax.image.resize(grid_BhwY, (*images.shape[:3], self.classes), "linear")

    def grid(
        self, network: Network, params: PyTree, images: jax.Array, **options: Any
    ) -> jax.Array:
        """Returns the head's logits of uint8 images [B, H, W, C], float32 [B, h, w, Y]."""
        maps = network.apply(params, network.normalise(images), **options)
        key = options.get("key") if self.dropout else None
        key = None if key is None else jax.random.fold_in(key, _HEAD)
        grid_BhwY = self._head.apply({"params": params[PARAMETERS]}, joined(maps), key)
        return grid_BhwY.astype(jnp.float32)

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: PyTree,
        key: jax.Array,
    ) -> Sums:
        logits = self.logits(network, params, batch["image"], train=True, key=key)
        mask = jnp.where(batch["_mask"][:, None, None], batch["mask"], -1)
        loss_B, right = loss_and_right(logits, mask)
        return {
            "loss": jnp.sum(loss_B),
            "right": jnp.sum(right, dtype=jnp.float32),
            "counted": jnp.sum(mask >= 0, dtype=jnp.float32),
        }

    def measured(self, sums: Sums, count: jax.Array) -> Sums:
        accuracy = sums["right"] / jnp.maximum(sums["counted"], 1.0)
        return {"loss": sums["loss"] / count, "pixel_accuracy": accuracy}

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns the sum of losses, `confusion` int32 [Y, Y], and `examples`."""
        logits = self.logits(network, params, batch["image"], train=False, key=None)
        mask = jnp.where(batch["_mask"][:, None, None], batch["mask"], -1)
        loss_B, _ = loss_and_right(logits, mask)
        return {
            "loss": jnp.sum(loss_B),
            "confusion": confusion(mask, jnp.argmax(logits, axis=-1), self.classes),
            "examples": jnp.sum(batch["_mask"], dtype=jnp.int32),
        }

    def exported(self, network: Network, params: PyTree, images: jax.Array) -> dict[str, jax.Array]:
        """Returns `classes`, int32 [B, H, W], and `logits`, float32 [B, g, k, Y].

        The classes are the highest of the logits after a bilinear resize to the image. g and k are
        the sides of the head's grid, which shrinks to the image where it is finer.
        """
        sides = images.shape[1:3]
        grid_BhwY = self.grid(network, params, images, train=False, key=None)
        shape = (*map(min, grid_BhwY.shape[1:3], sides), self.classes)
        logits_BgkY = jax.image.resize(grid_BhwY, (grid_BhwY.shape[0], *shape), "linear")
        shape = (grid_BhwY.shape[0], *sides, self.classes)
        pixels_BHWY = jax.image.resize(logits_BgkY, shape, "linear")
        classes_BHW = jnp.argmax(pixels_BHWY, axis=-1).astype(jnp.int32)
        return {"classes": classes_BHW, "logits": logits_BgkY}

    def total(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, float | int]:
        """Returns the mean loss, and metrics of the pixels of all examples together."""
        batches = list(batches)
        counts = sum(np.asarray(batch["confusion"], np.int64) for batch in batches)
        losses = metrics.total({k: batch[k] for k in ("loss", "examples")} for batch in batches)
        found = figures(np.asarray(counts))
        return {"miou": found.miou, "pixel_accuracy": found.pixel_accuracy, **losses}


def joined(maps: tuple[jax.Array, ...]) -> jax.Array:
    """Returns feature maps as one, [B, h, w, sum of D], on the grid of the finest."""
    finest = max((x.shape[1:3] for x in maps), key=lambda grid: grid[0] * grid[1])
    resized = [
        x
        if x.shape[1:3] == finest
        else jax.image.resize(x, (x.shape[0], *finest, x.shape[3]), "linear")
        for x in maps
    ]
    return resized[0] if len(resized) == 1 else jnp.concatenate(resized, axis=-1)


def loss_and_right(logits_BHWY: jax.Array, mask_BHW: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the mean cross-entropy of each image, float32 [B], and its right pixels.

    The mean is over the pixels that count, and 0 where none does. So an image counts as much as
    another, however large its void. Right pixels are bool [B, H, W].
    """
    counted = mask_BHW >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_BHWY, jnp.maximum(mask_BHW, 0))
    right = (jnp.argmax(logits_BHWY, axis=-1) == mask_BHW) & counted
    number_B = jnp.maximum(jnp.sum(counted, axis=(1, 2)), 1)
    loss_B = jnp.sum(jnp.where(counted, losses, 0.0), axis=(1, 2)) / number_B
    return loss_B, right


def confusion(mask_BHW: jax.Array, predicted_BHW: jax.Array, classes: int) -> jax.Array:
    """Returns int32 [Y, Y]: pixels of each class (rows) that are taken for each (columns)."""
    counted = mask_BHW >= 0
    at = jnp.where(counted, mask_BHW * classes + predicted_BHW, classes**2)
    counts = jnp.zeros(classes**2 + 1, jnp.int32).at[at.reshape(-1)].add(1)
    return counts[:-1].reshape(classes, classes)


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a confusion matrix says.

    Attributes:
      iou: float64 [Y], intersection over union of each class; nan for a class that neither occurs
        nor is predicted.
      accuracy: float64 [Y], share of the pixels of each class that are right; nan without pixels.
      pixel_accuracy: share of all pixels that are right.
    """

    iou: np.ndarray
    accuracy: np.ndarray
    pixel_accuracy: float

    @property
    def miou(self) -> float:
        """The mean over the classes that occur or are predicted; 0 if no pixel counts."""
        return mean_of_known(self.iou)

    @property
    def mean_accuracy(self) -> float:
        """The mean accuracy over the classes that occur."""
        return mean_of_known(self.accuracy)


def mean_of_known(values: np.ndarray) -> float:
    """Returns the mean of the values that are numbers; 0 without any."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else 0.0


def figures(counts_YY: np.ndarray) -> Figures:
    """Returns the metrics of int64 counts of pixels, see `confusion`."""
    right_Y, rows_Y = np.diag(counts_YY), counts_YY.sum(axis=1)
    union_Y = rows_Y + counts_YY.sum(axis=0) - right_Y
    accuracy = float(right_Y.sum() / max(rows_Y.sum(), 1))
    return Figures(ratio(right_Y, union_Y), ratio(right_Y, rows_Y), accuracy)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Returns part / whole in float64, nan where the whole is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
