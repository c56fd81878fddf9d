# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A linear probe: multinomial logistic regression on frozen features. Start from `probe`.

Axes: N images to learn from, M images to score, D width, Y classes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import optimize

from vit_jax.evaluators.fewshot import whitening

MOST_STEPS = 1000  # steps of L-BFGS (arXiv:2103.00020, appendix A.3)
TOLERANCE = 1e-6  # largest derivative of the mean loss at which the fit ends
STRENGTHS = (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6)  # tried first (same source)
DEFAULT = 1.0  # used if nothing can be held out
_HELD = 5  # one of this many images of a class is held out
_MEMORY = 10  # number of steps that L-BFGS remembers


def probe(x_ND: np.ndarray, labels_N: np.ndarray, x_MD: np.ndarray, classes: int) -> np.ndarray:
    """Returns the class with the highest logit; int64 [M].

    Follows CLIP (arXiv:2103.00020, appendix A.3): L-BFGS with at most 1,000 steps. The strength of
    L2 is the best of 10^-6, 10^-4, ..., 10^6 on held-out images, then the best of it and its
    neighbours a factor of 10 away. The weights are then fitted on all images.

    Differences from CLIP: features are whitened as for `fewshot.ridge`. A fifth of the images of
    each class that has two or more is held out (CLIP has validation sets). If no class has two, the
    strength is 1.

    Args:
      x_ND: float32, features of the images to learn from.
      labels_N: their classes.
      x_MD: float32, features of the images to score.
      classes: Y.
    """
    mean, std = whitening(x_ND)
    x_ND, x_MD = (((x - mean) / std).astype(np.float32) for x in (x_ND, x_MD))
    strength = choose_strength(x_ND, labels_N, classes)
    kernel, bias = fit(x_ND, labels_N, classes, strength)
    return (x_MD @ kernel + bias[None, :]).argmax(axis=1)


def held_out(labels_N: np.ndarray) -> np.ndarray:
    """Marks a fifth of each class's images, rounded up; takes none of a class with one image."""
    order = np.argsort(labels_N, kind="stable")
    sizes = np.bincount(labels_N)
    starts = np.cumsum(sizes) - sizes
    held = np.zeros(len(labels_N), bool)
    for start, size in zip(starts, sizes, strict=True):
        if size > 1:
            held[order[start : start + size : _HELD]] = True
    return held


def choose_strength(x_ND: np.ndarray, labels_N: np.ndarray, classes: int) -> float:
    """Returns the strength of L2 that is best on held-out images; of equals, the strongest."""
    held = held_out(labels_N)
    if not held.any():
        return DEFAULT
    scores: dict[float, float] = {}

    def score(strength: float) -> None:
        kernel, bias = fit(x_ND[~held], labels_N[~held], classes, strength)
        predicted = (x_ND[held] @ kernel + bias[None, :]).argmax(axis=1)
        scores[strength] = float(np.mean(predicted == labels_N[held]))

    for strength in STRENGTHS:
        score(strength)
    best = max(scores, key=lambda s: (scores[s], s))
    for strength in (best / 10, best * 10):
        score(strength)
    return max(scores, key=lambda s: (scores[s], s))


def fit(
    x_ND: np.ndarray, labels_N: np.ndarray, classes: int, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel float32 [D, Y] and bias float32 [Y] that minimise the regularised loss.

    The loss is the sum of cross-entropies + strength / 2 * the sum of squares of the kernel, as in
    scikit-learn with C = 1 / strength.
    """
    width = x_ND.shape[1]
    data = jnp.asarray(x_ND), jnp.asarray(labels_N), jnp.float32(strength / len(x_ND))

    def mean_loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, slopes = _loss(jnp.asarray(weights.reshape(width + 1, classes), jnp.float32), *data)
        return float(value), np.asarray(slopes, np.float64).ravel()

    limits = {"maxiter": MOST_STEPS, "maxcor": _MEMORY, "gtol": TOLERANCE, "ftol": 0}
    start = np.zeros((width + 1) * classes)
    # On the host: an optimizer that is compiled takes longer to compile than to run.
    solution = optimize.minimize(mean_loss, start, method="L-BFGS-B", jac=True, options=limits)
    weights = np.float32(solution.x).reshape(width + 1, classes)
    return weights[:-1], weights[-1]


@jax.jit
@jax.value_and_grad
def _loss(
    weights: jax.Array, x_ND: jax.Array, labels_N: jax.Array, strength: jax.Array
) -> jax.Array:
    """Returns mean cross-entropy plus penalty; the last row of the weights is the bias."""
    logits_NY = jnp.matmul(x_ND, weights[:-1], precision="highest") + weights[-1:]
    losses_N = optax.softmax_cross_entropy_with_integer_labels(logits_NY, labels_N)
    return losses_N.mean() + strength / 2 * jnp.sum(weights[:-1] ** 2)
