# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""k-NN: classifies by a vote of the nearest features. Start from `knn`.

Axes: N images to learn from, M images to score, D width, Y classes, K neighbours.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

NEIGHBOURS, TEMPERATURE = 20, 0.07
_AT_ONCE, _MOST_COSINES = 1024, 2**27  # images scored at a time; cosines held at a time


def knn(
    x_ND: np.ndarray,
    labels_N: np.ndarray,
    x_MD: np.ndarray,
    classes: int,
    *,
    neighbours: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
) -> np.ndarray:
    """Returns the class with the most votes of the nearest neighbours by cosine; int64 [M].

    A neighbour with cosine s votes with weight exp(s / temperature), as in arXiv:1805.01978,
    section 3.4. The defaults, 20 neighbours and 0.07, are those of DINO (arXiv:2104.14294, section
    4.1 and its code). Ties go to the lower class.

    Args:
      x_ND: float32, features of the images to learn from.
      labels_N: their classes.
      x_MD: float32, features of the images to score.
      classes: Y.
      neighbours: K; if N is smaller, all N vote.
      temperature: above 0.
    """
    keys_ND, queries_MD = (x / np.maximum(_norm(x), 1e-12) for x in (x_ND, x_MD))
    vote = functools.partial(_vote, classes=classes, neighbours=min(neighbours, len(x_ND)))
    classes_of_parts, keys, labels = [], jnp.asarray(keys_ND), jnp.asarray(labels_N)
    at_once = max(1, min(_AT_ONCE, _MOST_COSINES // len(keys_ND)))
    for start in range(0, len(queries_MD), at_once):
        part_BD = queries_MD[start : start + at_once]
        padded_BD = np.pad(part_BD, ((0, at_once - len(part_BD)), (0, 0)))  # compiles only once
        classes_of_parts.append(
            np.asarray(vote(keys, labels, padded_BD, temperature))[: len(part_BD)]
        )
    return np.concatenate(classes_of_parts)


def _norm(x: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x, axis=1, keepdims=True)


@functools.partial(jax.jit, static_argnames=("classes", "neighbours"))
def _vote(
    keys_ND: jax.Array,
    labels_N: jax.Array,
    queries_BD: jax.Array,
    temperature: float,
    *,
    classes: int,
    neighbours: int,
) -> jax.Array:
    cosines_BN = jnp.matmul(queries_BD, keys_ND.T, precision="highest")
    cosines_BK, nearest_BK = jax.lax.top_k(cosines_BN, neighbours)
    votes_BK = jnp.exp((cosines_BK - 1.0) / temperature)  # the highest cosine is 1, so no overflow
    of_class_BKY = jax.nn.one_hot(labels_N[nearest_BK], classes)
    return jnp.einsum("BK,BKY->BY", votes_BK, of_class_BKY, precision="highest").argmax(axis=1)
