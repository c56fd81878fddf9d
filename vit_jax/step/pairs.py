# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares every image of a global batch with every text, in chunks around the mesh.

A device keeps its images, and the texts of all devices pass by (arXiv:2303.15343, section 3.3). So
it holds the scores of its images and one chunk of texts at a time, never those of all pairs. The
backward pass computes them again; it keeps the vectors of all texts. Axes: B batch, b the rows of a
device, E embedding. Start from `compared`.
"""

import functools
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from vit_jax.sharding import Rules

Kind = Literal["sigmoid", "softmax"]
KINDS = ("sigmoid", "softmax")
_LEFT_OUT = -1e9  # score of a pair that does not count


class Compared(NamedTuple):
    """What the pairs of a batch say, float32 [B] each; 0 for padding rows.

    Attributes:
      loss: the loss of each image; see `compared`.
      text_found: 1 where a text of the image is nearest to it.
      image_found: 1 where an image of the text is nearest to it.
    """

    loss: jax.Array
    text_found: jax.Array
    image_found: jax.Array


class _Side(NamedTuple):
    """What is known so far of images, or of texts; [b] each.

    Attributes:
      own: the highest score among pairs of the same text.
      other: the highest score among all other pairs.
      total: log of the sum of exponentials of scores, for the softmax loss.
    """

    own: jax.Array
    other: jax.Array
    total: jax.Array


def fingerprints(tokens_BL: jax.Array) -> jax.Array:
    """Returns a number for each text, uint32 [B]: equal for equal texts, else hardly ever."""
    factors = np.random.default_rng(0).integers(0, 2**32, tokens_BL.shape[1], np.uint32) | 1
    return jnp.sum(tokens_BL.astype(jnp.uint32) * factors[None], axis=1, dtype=jnp.uint32)


def compared(
    images_BE: jax.Array,
    texts_BE: jax.Array,
    prints_B: jax.Array,
    real_B: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    *,
    kind: Kind,
    rules: Rules | None,
) -> Compared:
    """Compares all pairs; image i and text i belong together.

    The sigmoid loss of an image is the sum over all texts of -log sigmoid(+-score), where + is for
    its own text alone (arXiv:2303.15343, equation in section 3.2). The softmax loss is the mean of
    the cross-entropies of an image among texts and of its text among images (arXiv:2103.00020). A
    text that is equal to that of the image counts as found.

    Args:
      images_BE: unit vectors, float32.
      texts_BE: unit vectors, float32.
      prints_B: from `fingerprints`.
      real_B: bool, False for padding rows.
      scale: factor of cosines, float32 [].
      bias: added to them, float32 [].
      kind: the loss.
      rules: mesh and placement; None without a mesh.
    """
    axes: tuple[str, ...] = ()
    if rules is not None:
        named = dict(rules.table).get("act_batch", ())
        axes = tuple(axis for axis in named if rules.mesh.shape[axis] > 1)
    ring = functools.partial(_ring, kind=kind, axes=axes)
    if rules is None or not axes:
        return ring(images_BE, texts_BE, prints_B, real_B, scale, bias, ways=1)
    split, whole = PartitionSpec(axes), PartitionSpec()
    around = jax.shard_map(
        functools.partial(ring, ways=math.prod(rules.mesh.shape[axis] for axis in axes)),
        mesh=rules.mesh,
        in_specs=(split, split, split, split, whole, whole),
        out_specs=Compared(split, split, split),  # type: ignore[arg-type]
    )
    return around(images_BE, texts_BE, prints_B, real_B, scale, bias)


def _ring(
    images_bE: jax.Array,
    texts_bE: jax.Array,
    prints_b: jax.Array,
    real_b: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    *,
    kind: Kind,
    axes: tuple[str, ...],
    ways: int,
) -> Compared:
    """Computes `compared` for the rows of one of `ways` devices along some axes of the mesh."""
    eye_bb = jnp.eye(len(real_b), dtype=bool)

    @jax.checkpoint
    def one(carry: Any, number: jax.Array) -> tuple[Any, None]:
        loss_b, own_b, images, passing = carry
        (others_bE, others_prints_b, others_real_b), texts = passing
        scores_bb = images_bE @ others_bE.T * scale + bias
        counted_bb = real_b[:, None] & others_real_b[None]
        pairs_bb = eye_bb & counted_bb & (number == 0)
        same_bb = counted_bb & (prints_b[:, None] == others_prints_b[None])
        if kind == "sigmoid":
            signed_bb = jnp.where(pairs_bb, scores_bb, -scores_bb)
            lost_bb = jnp.where(counted_bb, -jax.nn.log_sigmoid(signed_bb), 0.0)
            loss_b += jnp.sum(lost_bb, axis=1)
        own_b += jnp.sum(jnp.where(pairs_bb, scores_bb, 0.0), axis=1)
        images = _seen(images, scores_bb, counted_bb, same_bb, 1, kind)
        texts = _seen(texts, scores_bb, counted_bb, same_bb, 0, kind)
        passing = (passing[0], texts)
        if ways > 1:
            next_one = [(i, (i + 1) % ways) for i in range(ways)]
            passing = _passed_on(passing, lambda x: jax.lax.ppermute(x, axes, next_one))
        return (loss_b, own_b, images, passing), None

    zero_b = jnp.zeros(len(real_b))
    if axes:
        zero_b = jax.lax.pcast(zero_b, axes, to="varying")
    nothing = _Side(zero_b + _LEFT_OUT, zero_b + _LEFT_OUT, zero_b + _LEFT_OUT)
    passing = ((texts_bE, prints_b, real_b), nothing)
    carry, _ = jax.lax.scan(one, (zero_b, zero_b, nothing, passing), jnp.arange(ways))
    loss_b, own_b, images, (_, texts) = carry  # after all steps, texts are home again
    if kind == "softmax":
        loss_b = (images.total + texts.total) / 2 - own_b
    found = [(real_b & (side.own > side.other)).astype(jnp.float32) for side in (images, texts)]
    return Compared(jnp.where(real_b, loss_b, 0.0), found[0], found[1])


def _passed_on(passing: Any, send: Any) -> Any:
    """Returns what `send` makes of texts and of what is known of them, sent as one array.

    Several collectives at once would each hold a thread of a virtual device of a CPU.
    """
    (texts_bE, prints_b, real_b), side = passing
    halves = [(prints_b >> 16).astype(jnp.float32), (prints_b & 0xFFFF).astype(jnp.float32)]
    beside = jnp.stack([*halves, real_b.astype(jnp.float32), *side], axis=1)
    sent = send(jnp.concatenate([texts_bE, beside], axis=1))
    width = texts_bE.shape[1]
    high, low, real, *sides = jnp.moveaxis(sent[:, width:], 1, 0)
    prints = (high.astype(jnp.uint32) << 16) | low.astype(jnp.uint32)
    return (sent[:, :width], prints, real > 0), _Side(*sides)


def _seen(
    side: _Side,
    scores_bb: jax.Array,
    counted_bb: jax.Array,
    same_bb: jax.Array,
    axis: int,
    kind: Kind,
) -> _Side:
    """Returns what is known of one side with another chunk of scores."""
    fixed_bb = jax.lax.stop_gradient(scores_bb)
    own = jnp.max(jnp.where(same_bb, fixed_bb, _LEFT_OUT), axis=axis)
    other = jnp.max(jnp.where(counted_bb & ~same_bb, fixed_bb, _LEFT_OUT), axis=axis)
    total = side.total
    if kind == "softmax":
        here = jax.nn.logsumexp(jnp.where(counted_bb, scores_bb, _LEFT_OUT), axis=axis)
        total = jnp.logaddexp(total, here)
    return _Side(jnp.maximum(side.own, own), jnp.maximum(side.other, other), total)
