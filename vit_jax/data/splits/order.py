# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which example a position holds. Row r of step n is position n * B + r of an endless order.

A function of (seed, position) by arithmetic: it knows no process, mesh or restart, so resuming is
starting to count elsewhere. Start from `example_at`; `hashed` is for what must be chosen or
shuffled alike on every host, in numpy.
"""

import hashlib

import numpy as np

from vit_jax.data.tensorflow import Tensor, tf

_ROUNDS = 16


def stream_seed(seed: int, purpose: str) -> int:
    """A 31-bit seed for one purpose (`order`, `augment`), independent of every other."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def example_at(position: Tensor, *, examples: int, seed: int | Tensor) -> Tensor:
    """The example at a position of the training order: each epoch is a permutation of its own.

    Args:
      position: int64 [].
      examples: number of examples, the length of an epoch.
      seed: of the order, from `stream_seed`.

    Returns:
      int64 [], in [0, examples).
    """
    epoch, offset = position // examples, position % examples
    # Of each word the cipher takes as few as 8 bits, and tf.random.experimental.index_shuffle fills
    # two of three with what it is given: seeds that end in the same 8 bits would be one order. So
    # all three are hashes. Its 4 rounds leave neighbours related (chi-squared 104 over 19 bins, at
    # 60,000 examples); from 8 on there is nothing to see.
    words = tf.random.stateless_uniform(
        [3], tf.stack([tf.cast(seed, tf.int64), epoch]), None, None, tf.uint32, alg="philox"
    )
    return tf.raw_ops.RandomIndexShuffle(
        index=offset, seed=words, max_index=tf.constant(examples - 1, tf.int64), rounds=_ROUNDS
    )


def example_seed(position: Tensor, *, seed: int) -> Tensor:
    """int64 [2]: the seed of the randomness of the example at a position."""
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(position, tf.int64)])


_MASK = 2**64 - 1
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # of splitmix64, and a last shift
_GOLDEN, _LAST = 0x9E3779B97F4A7C15, 31


def hashed(numbers: range | np.ndarray, *keys: int) -> np.ndarray:
    """uint64 [n]: a hash of each number, another one for other keys; the same on every machine.

    splitmix64 (Steele, Lea, Flood 2014): the number-th output from a start that the keys give. It
    is one to one, so different numbers never have the same hash.

    Args:
      numbers: at least 0, [n].
      keys: what the hash is for.
    """
    start = 0
    for key in keys:
        start = (start + _GOLDEN + key) & _MASK
        for shift, factor in _STEPS:
            start = (start ^ (start >> shift)) * factor & _MASK
        start ^= start >> _LAST
    if isinstance(numbers, range):
        values = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.uint64)
    else:
        values = numbers.astype(np.uint64)
    values += np.uint64(1)
    values *= np.uint64(_GOLDEN)
    values += np.uint64(start)
    for shift, factor in _STEPS:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(_LAST)
    return values
