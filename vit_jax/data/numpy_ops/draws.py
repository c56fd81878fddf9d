# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws the random numbers that TensorFlow's stateless functions draw, bit for bit, without it.

The generator is Philox 4x32-10 (Salmon et al. 2011), keyed by a hash of a seed of two integers.
Each function here names the function of TensorFlow that it repeats. Start from `uniform`.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np

Seed = tuple[int, int]

_WORD = 0xFFFFFFFF
_FACTORS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85  # added to the key after each round
_ROUNDS = 10
_SCRAMBLE = 0x3EC8F720, 0x02461E29  # the key that hashes a seed


def _philox(a: int, b: int, c: int, d: int, key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Returns the four words at a counter (a, b, c, d; a counts first)."""
    k0, k1 = key
    for _ in range(_ROUNDS):
        low, high = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (
            (high >> 32) ^ b ^ k0, high & _WORD, (low >> 32) ^ d ^ k1, low & _WORD,
        )  # fmt: skip
        k0, k1 = (k0 + _STEPS[0]) & _WORD, (k1 + _STEPS[1]) & _WORD
    return a, b, c, d


def _start(seed: Seed) -> tuple[tuple[int, int], int, int]:
    """Returns the key of a seed, and the last two words of its counter."""
    first, second = (part & (2**64 - 1) for part in seed)
    words = first & _WORD, first >> 32, second & _WORD, second >> 32
    k0, k1, c, d = _philox(*words, _SCRAMBLE)
    return (k0, k1), c, d


def words(seed: Seed, count: int) -> list[int]:
    """Returns the first 32-bit words of a seed; for more than a few, see `many_words`."""
    key, c, d = _start(seed)
    values: list[int] = []
    for block in range(-(-count // 4)):
        values += _philox(block, 0, c, d, key)
    return values[:count]


def many_words(seed: Seed, count: int) -> np.ndarray:
    """Returns the first words of a seed like `words`, uint64 [count]; at most 2^34 of them."""
    (k0, k1), third, fourth = _start(seed)
    a = np.arange(-(-count // 4), dtype=np.uint64)
    b = np.zeros_like(a)
    c, d = np.full_like(a, third), np.full_like(a, fourth)
    mask, half = np.uint64(_WORD), np.uint64(32)
    for _ in range(_ROUNDS):
        low, high = a * np.uint64(_FACTORS[0]), c * np.uint64(_FACTORS[1])
        a, b = (high >> half) ^ b ^ np.uint64(k0), high & mask
        c, d = (low >> half) ^ d ^ np.uint64(k1), low & mask
        k0, k1 = (k0 + _STEPS[0]) & _WORD, (k1 + _STEPS[1]) & _WORD
    return np.stack([a, b, c, d], axis=1).reshape(-1)[:count]


def _floats(values: np.ndarray) -> np.ndarray:
    """Returns float32 in [0, 1) from the last 23 bits of each word."""
    bits = (values & np.uint64(0x7FFFFF)).astype(np.uint32) | np.uint32(127 << 23)
    return bits.view(np.float32) - np.float32(1)


def uniform(seed: Seed, count: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """Returns float32 [count] in [low, high); `tf.random.stateless_uniform`."""
    draws = _floats(np.array(words(seed, count), np.uint64))
    return draws * (np.float32(high) - np.float32(low)) + np.float32(low)


def integers(seed: Seed, count: int, limit: int) -> list[int]:
    """Returns integers in [0, limit); `tf.random.stateless_uniform` of int32 from 0 on."""
    return [word % limit for word in words(seed, count)]


def noise(seed: Seed, shape: tuple[int, ...]) -> np.ndarray:
    """Returns uint8 of a shape, each value from 0 to 255; like `integers` with a limit of 256."""
    return (many_words(seed, math.prod(shape)) & np.uint64(255)).astype(np.uint8).reshape(shape)


def fold_in(seed: Seed, number: int) -> Seed:
    """Returns a seed for a number; `tf.random.experimental.stateless_fold_in` of an int32."""
    return _first(seed), number


@functools.lru_cache(1)  # the ops of a chain fold their numbers into one seed
def _first(seed: Seed) -> int:
    """Returns the first word of a seed as an int32."""
    word = words(seed, 1)[0]
    return word - 2**32 if word >> 31 else word


# ---------------------------------------------------------------- permutations

_CONSTANT, _SEQUENCE = 0xFFFFFFFC, 0x7369F885192C0EF5  # of Simon's key schedule


def shuffled(indices: np.ndarray, key: list[int], last: int, rounds: int) -> np.ndarray:
    """Returns the places of indices in a permutation; `tf.raw_ops.RandomIndexShuffle`.

    It encrypts with the block cipher Simon (Beaulieu et al. 2013) until the result is not above
    `last`.

    Args:
      indices: integers [n] from 0 to `last`.
      key: three words.
      last: the largest index.
      rounds: an even number of rounds, at least 4.

    Returns:
      int64 [n].
    """
    if last == 0:
        return np.zeros(len(indices), np.int64)
    bits = math.ceil(math.log2(last))
    half = max(bits + bits % 2, 16) // 2
    keys = _schedule(key, half, rounds)
    if half == 8:
        return _small_permutation(tuple(keys), last)[indices]
    places = indices.astype(np.uint64)
    todo = np.arange(len(places))
    while len(todo):
        places[todo] = _encrypted(places[todo], keys, half)
        todo = todo[places[todo] > np.uint64(last)]
    return places.astype(np.int64)


@functools.lru_cache(16)
def _small_permutation(keys: tuple[int, ...], last: int) -> np.ndarray:
    """Returns the places of all indices to `last`, below 2^16, int64 [last + 1].

    A few indices of 16 bits take up to 2^16 encryptions until they are small enough, so all are
    encrypted once, and each then leaps to where its successors stop.
    """
    places = _encrypted(np.arange(2**16, dtype=np.uint16), keys, 8)
    while (places[: last + 1] > last).any():
        places = np.where(places > last, places[places], places)
    return places[: last + 1].astype(np.int64)


def _schedule(key: list[int], half: int, rounds: int) -> list[int]:
    """Returns a key of `half` bits for each round."""
    mask = (1 << half) - 1

    def right(x: int, by: int) -> int:
        return (x >> by | x << (half - by)) & mask

    keys, sequence = [word & mask for word in key], _SEQUENCE & mask
    for i in range(3, rounds):
        newest = right(keys[-1], 3) ^ right(keys[-1], 4)
        keys.append(_CONSTANT & mask ^ sequence & 1 ^ keys[i - 3] ^ newest)
        sequence >>= 1
    return keys


def _encrypted(values: np.ndarray, keys: Sequence[int], half: int) -> np.ndarray:
    """Returns values, unsigned [n], encrypted in blocks of twice `half` bits."""
    number = values.dtype.type
    width, mask = number(half), number((1 << half) - 1)

    def left(x: np.ndarray, by: int) -> np.ndarray:
        return (x << number(by) | x >> number(half - by)) & mask

    def mixed(x: np.ndarray) -> np.ndarray:
        return (left(x, 1) & left(x, 8)) ^ left(x, 2)

    y, x = values >> width & mask, values & mask
    for i in range(0, len(keys), 2):
        y = y ^ mixed(x) ^ number(keys[i])
        x = x ^ mixed(y) ^ number(keys[i + 1])
    return y << width | x


# ---------------------------------------------------------------- boxes

_TRIES = 100
_EPS = 1e-7
_float = np.float32


class _Stream:
    """The words of a seed one after another."""

    def __init__(self, seed: Seed):
        self._words = self._endless(seed)

    @staticmethod
    def _endless(seed: Seed) -> Iterator[int]:
        key, c, d = _start(seed)
        block = 0
        while True:
            yield from _philox(block, 0, c, d, key)
            block += 1

    def share(self) -> np.float32:
        """Returns float32 in [0, 1)."""
        return _floats(np.array([next(self._words)], np.uint64))[0]

    def below(self, limit: int) -> int:
        """Returns an integer in [0, limit), each equally often."""
        if limit & (limit - 1) == 0:
            return next(self._words) & (limit - 1)
        rest = _WORD % limit + 1
        while (word := next(self._words)) >= _WORD - rest:
            pass
        return word % limit


def box(
    seed: Seed, height: int, width: int, areas: tuple[float, float], aspects: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Returns top, left, height, width; `tf.image.stateless_sample_distorted_bounding_box`.

    Args:
      seed: the seed of the box.
      height: rows of the image.
      width: columns of the image.
      areas: the least and largest share of the area.
      aspects: the least and largest ratio of width to height.
    """
    draws = _Stream(seed)
    low, high = map(_float, aspects)
    least, most = (_float(_float(_float(area) * width) * height) for area in areas)
    for _ in range(_TRIES):
        aspect = draws.share() * (high - low) + low
        rows = round(np.sqrt(least / aspect))
        most_rows = round(np.sqrt(most / aspect))
        if round(_float(most_rows) * aspect) > width:
            most_rows = int((width + 0.5 - float(_float(_EPS))) / float(aspect))
            most_rows -= round(_float(most_rows) * aspect) > width
        most_rows = min(most_rows, height)
        rows = min(rows, most_rows)
        if rows < most_rows:
            rows += draws.below(most_rows - rows + 1)
        if round(_float(rows) * aspect) * rows < least:
            rows += 1
        if round(_float(rows) * aspect) * rows > most:
            rows -= 1
        columns = round(_float(rows) * aspect)
        fits = 0 < columns <= width and rows <= height
        if fits and least <= rows * columns <= most:
            top = draws.below(height - rows) if rows < height else 0
            left = draws.below(width - columns) if columns < width else 0
            return top, left, rows, columns
    return 0, 0, height, width
