# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixup (arXiv:1710.09412): each image of a batch is averaged with another one, targets alike.

Who is mixed with whom, and how much, is decided on the global batch, before it is split into
micro-batches; so results depend on neither the mesh nor accumulation. Until they are mixed, images
stay uint8. Axes: B batch. Start from `with_partners`.
"""

import jax
import jax.numpy as jnp

PARTNER = "partner_"  # before the name of what belongs to the partner of each row


def with_partners(batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The global batch [B, ...] with `partner_image` and `partner_labels` beside it.

    The partner of row i is row i - 1, of row 0 the last: examples come in random order, so it is as
    random as any, and only one image of each device crosses to another. Batches of training have
    no padding rows; a padding row would be mixed in like any other.
    """
    partners = {PARTNER + name: jnp.roll(batch[name], 1, axis=0) for name in ("image", "labels")}
    return batch | partners


def share(key: jax.Array, alpha: float) -> jax.Array:
    """How much of a mixed image is the row itself: float32 [] in [1/2, 1], one for a whole batch.

    It is the larger of lambda and 1 - lambda, lambda ~ Beta(alpha, alpha). The mixed images are the
    paper's (with 1 - lambda the two of a pair swap roles), and the row itself is what most of the
    image shows, so accuracy against its own labels means something.

    Args:
      key: typed key, of the step.
      alpha: above 0; the paper has 0.2 to 0.4 on ImageNet.
    """
    ratio = jax.random.beta(key, alpha, alpha)
    return jnp.maximum(ratio, 1.0 - ratio)


def mixup(own: jax.Array, partner: jax.Array, ratio: jax.Array | float) -> jax.Array:
    """The mean of two arrays in float32, `ratio` and 1 - `ratio`: normalised images, or targets."""
    return ratio * own + (1.0 - ratio) * partner
