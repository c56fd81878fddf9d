# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of recognising the other view of the same image among all views of a batch.

SimCLR (arXiv:2002.05709), or SupCon (arXiv:2004.11362), whose positives are all views of images
with a label in common. Negatives come from the global batch, on any mesh, with any accumulation.
Axes: B batch, V = 2 views, N = 2 B views, E embedding, K labels of an example.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.sharding import Axes
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, PyTree, Sums

VIEWS, _LEFT_OUT = 2, -1e9  # the latter: score of a view that does not count


@dataclasses.dataclass(frozen=True)
class Contrastive(Objective):
    """The objective for two views of each image, which the field `view` holds.

    Attributes:
      temperature: divides the cosine similarities (0.1 to 0.5 in SimCLR).
      hidden: width of the hidden layer of the projection head.
      embedding: E, the width of its output (128 in the papers).
      supervised: whether views of other images of the same class are positives too.
    """

    temperature: float = 0.1
    hidden: int = 512
    embedding: int = 128
    supervised: bool = False

    METRICS = ("loss", "top1")
    EVALUATED = ("top1", "loss")
    AXES: ClassVar[Axes] = {
        r"objective/hidden/kernel": ("embed", "mlp"),
        r"objective/hidden/bias": ("mlp",),
        r"objective/projection/kernel": ("mlp", None),
    }

    def __post_init__(self) -> None:
        if not 0 < self.temperature <= 10:
            raise ValueError(f"temperature={self.temperature}; give a number above 0, up to 10.")
        if not all(isinstance(n, int) and 0 < n < 2**20 for n in (self.hidden, self.embedding)):
            raise ValueError("hidden and embedding are whole numbers of 1 or more.")

    def for_classes(self, classes: int) -> Self:
        if self.supervised and not classes:
            raise BadInput(
                "contrastive(supervised=True) compares images of one class, and the data has no "
                "labels; leave the argument out."
            )
        return self

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        return {"view": jax.ShapeDtypeStruct((VIEWS, height, width, channels), jnp.uint8)}

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        return VIEWS * super().step_flops(cfg, height, width)

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        first, second = jax.random.split(key)
        initial, width = jax.nn.initializers.lecun_normal(), output.shape[-1]
        hidden = {"kernel": initial(first, (width, self.hidden)), "bias": jnp.zeros(self.hidden)}
        projection = {"kernel": initial(second, (self.hidden, self.embedding))}
        return {"hidden": hidden, "projection": projection}

    def relate(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, keys: jax.Array
    ) -> Batch:
        """Adds the gradient of the whole batch's loss by all embeddings (arXiv:2101.06983)."""

        def embed(micro: tuple[Batch, jax.Array]) -> jax.Array:
            return self._embed(network, params, micro[0]["view"], train=True, key=micro[1])

        every_ABVE = jax.lax.map(embed, (batch, keys))

        def loss(every_ABVE: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            every = every_ABVE, batch["labels"], batch["_mask"]
            embedded, labels, mask = (x.reshape(-1, *x.shape[2:]) for x in every)
            loss_B, right_B = self._compared(embedded, labels, mask)
            return jnp.sum(loss_B), (loss_B, right_B)

        gradient_ABVE, measured = jax.grad(loss, has_aux=True)(every_ABVE)
        loss_AB, right_AB = (x.reshape(every_ABVE.shape[:2]) for x in measured)
        return batch | {"gradient": gradient_ABVE, "loss": loss_AB, "right": right_AB}

    def sums(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, drawn: None, key: Any
    ) -> Sums:
        embedded_BVE = self._embed(network, params, batch["view"], train=True, key=key)
        if "gradient" not in batch:
            loss_B, right_B = self._compared(embedded_BVE, batch["labels"], batch["_mask"])
            return {"loss": jnp.sum(loss_B), "top1": jnp.sum(right_B)}
        share = jnp.sum(embedded_BVE * batch["gradient"])  # has the gradient, but not the value
        loss = jnp.sum(batch["loss"]) + share - jax.lax.stop_gradient(share)
        return {"loss": loss, "top1": jnp.sum(batch["right"])}

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        embedded_BVE = self._embed(network, params, batch["view"], train=False, key=None)
        loss_B, right_B = self._compared(embedded_BVE, batch["labels"], batch["_mask"])
        examples = jnp.sum(batch["_mask"], dtype=jnp.int32)
        return {"top1": jnp.sum(right_B), "loss": jnp.sum(loss_B), "examples": examples}

    def _embed(
        self, network: Network, params: PyTree, views: jax.Array, *, train: bool, key: Any
    ) -> jax.Array:
        """Maps uint8 [B, V, H, W, C] to unit vectors, float32 [B, V, E]."""
        images = network.normalise(views.reshape(-1, *views.shape[2:]))
        x = network.apply(params, images, train=train, key=key)
        head = params[PARAMETERS]
        x = jax.nn.relu(x @ head["hidden"]["kernel"] + head["hidden"]["bias"][None])
        x = x @ head["projection"]["kernel"]
        x = x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)
        return x.reshape(*views.shape[:2], -1)

    def _compared(
        self, embedded_BVE: jax.Array, labels_BK: jax.Array, mask_B: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the loss of each image and the share of its views that find a positive first.

        Both are float32 [B], 0 for padding rows. Softmax leaves out padding and the view itself.
        """
        count = embedded_BVE.shape[0] * VIEWS
        x_NE = embedded_BVE.reshape(count, -1)
        real_N = jnp.repeat(mask_B, VIEWS)
        image_N = jnp.repeat(jnp.arange(count // VIEWS), VIEWS)
        positive_NN = image_N[:, None] == image_N[None]
        if self.supervised:
            positive_NN |= jnp.repeat(jnp.repeat(_alike(labels_BK), VIEWS, 0), VIEWS, 1)
        itself_NN = jnp.eye(count, dtype=bool)
        positive_NN &= ~itself_NN & real_N[None]
        scores_NN = jnp.where(
            itself_NN | ~real_N[None], _LEFT_OUT, x_NE @ x_NE.T / self.temperature
        )
        log_p_NN = jax.nn.log_softmax(scores_NN, axis=-1)
        number_N = jnp.maximum(jnp.sum(positive_NN, axis=-1), 1)
        loss_N = -jnp.sum(jnp.where(positive_NN, log_p_NN, 0.0), axis=-1) / number_N
        right_N = jnp.take_along_axis(positive_NN, jnp.argmax(scores_NN, -1)[:, None], 1)[:, 0]

        loss_B, right_B = (
            jnp.mean(jnp.where(real_N, x_N, 0.0).reshape(-1, VIEWS), axis=1)
            for x_N in (loss_N, right_N)
        )
        return loss_B, right_B


def _alike(labels_BK: jax.Array) -> jax.Array:
    """Returns True for pairs of images that share a label; bool [B, B]."""
    same_BBKK = labels_BK[:, None, :, None] == labels_BK[None, :, None, :]
    return jnp.any(same_BBKK & (labels_BK >= 0)[:, None, :, None], axis=(2, 3))
