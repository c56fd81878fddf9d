# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Maps positions to examples. Row r of step n is position n * B + r of an endless order.

The order is pure arithmetic on (seed, position). It knows no process, mesh or restart, so resuming
means counting from another position. Start from `example_at`; `examples_at` computes the same
without TensorFlow. `hash_numbers` serves choices and shuffles in numpy that must be the same on
every host.
"""

import hashlib

import numpy as np

from vit_jax.data.tensorflow import Tensor, tf

_ROUNDS = 16


def stream_seed(seed: int, purpose: str) -> int:
    """Returns a 31-bit seed for one purpose (`order`, `augment`), independent of all others."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1


def example_at(position: Tensor, *, examples: int, seed: int | Tensor) -> Tensor:
    """Returns the example at a position of the training order; each epoch is its own permutation.

    Args:
      position: int64 [].
      examples: the number of examples, which is the length of an epoch.
      seed: the seed of the order, from `stream_seed`.

    Returns:
      int64 [], in [0, examples).
    """
    epoch, offset = position // examples, position % examples
    # The cipher uses as few as 8 bits of each seed word, and tf.random.experimental.index_shuffle
    # fills two of its three words with the seed as given: seeds with the same last 8 bits would
    # share an order. So all three words are hashes here. The 4 rounds of `index_shuffle` leave
    # neighbours related (chi-squared 104 over 19 bins, at 60,000 examples); from 8 rounds on no
    # relation is visible.
    words = tf.random.stateless_uniform(
        [3], tf.stack([tf.cast(seed, tf.int64), epoch]), None, None, tf.uint32, alg="philox"
    )
    return tf.raw_ops.RandomIndexShuffle(
        index=offset, seed=words, max_index=tf.constant(examples - 1, tf.int64), rounds=_ROUNDS
    )


def examples_at(positions: np.ndarray, *, examples: int, seed: int) -> np.ndarray:
    """Returns what `example_at` returns for each position, int64 [n], without TensorFlow."""
    from vit_jax.data.numpy_ops import draws

    indices = np.empty(len(positions), np.int64)
    epochs, offsets = np.divmod(positions, examples)
    for epoch in np.unique(epochs):
        own = epochs == epoch
        key = draws.words((seed, int(epoch)), 3)
        indices[own] = draws.shuffled(offsets[own], key, examples - 1, _ROUNDS)
    return indices


def example_seed(position: Tensor, *, seed: int) -> Tensor:
    """Returns int64 [2], the seed of the randomness of the example at a position."""
    return tf.stack([tf.constant(seed, tf.int64), tf.cast(position, tf.int64)])


def stream_of(seed: Tensor, purpose: str, number: int) -> Tensor:
    """Returns int64 [2], a seed of an example for one purpose and number; see `stream_seed`."""
    return tf.random.experimental.stateless_fold_in(seed, stream_seed(number, purpose))


def numpy_stream_of(seed: tuple[int, int], purpose: str, number: int) -> tuple[int, int]:
    """Returns the same seed as `stream_of`, without TensorFlow."""
    from vit_jax.data.numpy_ops import draws

    return draws.fold_in(seed, stream_seed(number, purpose))


_MASK = 2**64 - 1
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # splitmix64; `_LAST`: final shift
_GOLDEN, _LAST = 0x9E3779B97F4A7C15, 31


def hash_numbers(numbers: range | np.ndarray, *keys: int) -> np.ndarray:
    """Hashes each number, uint64 [n]; depends on the keys and is the same on every machine.

    Uses splitmix64 (Steele, Lea, Flood 2014): returns the number-th output from a start that the
    keys determine. The hash is one to one, so different numbers never collide.

    Args:
      numbers: at least 0, [n].
      keys: identify the use of the hash.
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
