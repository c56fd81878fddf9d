# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which example a position holds. Row r of step n is position n * B + r of an endless order.

A function of (seed, position) by arithmetic: it knows no process, mesh or restart, so resuming is
starting to count elsewhere. Start from `example_at`.
"""

import hashlib

from vit_jax.data.lazy import Tensor, tf


def stream_seed(seed: int, purpose: str) -> int:
    """A 31-bit seed for one purpose (`order`, `augment`), independent of every other."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def example_at(position: Tensor, *, examples: int, seed: int) -> Tensor:
    """The example at a position of the training order: each epoch is a permutation of its own.

    Args:
      position: int64 [].
      examples: number of examples, the length of an epoch.
      seed: of the order, from `stream_seed`.

    Returns:
      int64 [], in [0, examples).
    """
    epoch, offset = position // examples, position % examples
    key = tf.stack([tf.constant(seed, tf.int64), epoch])
    return tf.random.experimental.index_shuffle(offset, key, tf.constant(examples - 1, tf.int64))


def example_seed(position: Tensor, *, seed: int) -> Tensor:
    """int64 [2]: the seed of the randomness of the example at a position."""
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(position, tf.int64)])
