# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Retrieval: how often the text of an image is among the nearest ones, and the other way round.

Equal texts are one text, which belongs to all its images. Axes: N images, M different texts, P
pairs that belong together, E embedding. Start from `recalls`.
"""

from collections.abc import Sequence

import numpy as np

from vit_jax.errors import BadInput

AT = (1, 5, 10)
_AT_ONCE = 1024  # images compared at a time


def together(texts_of: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Returns the M different texts, and int64 [P, 2]: which image has which of them.

    Args:
      texts_of: the texts of each image.
    """
    number: dict[str, int] = {}
    pairs = [(i, number.setdefault(t, len(number))) for i, own in enumerate(texts_of) for t in own]
    return list(number), np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)


def check(images_NE: np.ndarray, texts_ME: np.ndarray) -> None:
    """Raises BadInput unless all vectors are finite."""
    for what, vectors in (("images", images_NE), ("texts", texts_ME)):
        if wrong := int((~np.isfinite(vectors).all(axis=1)).sum()):
            raise BadInput(
                f"the vectors of {wrong:,} of {len(vectors):,} {what} are not finite; give other "
                "weights, such as an earlier checkpoint."
            )


def recalls(
    images_NE: np.ndarray, texts_ME: np.ndarray, pairs_P2: np.ndarray, at: Sequence[int] = AT
) -> dict[str, float]:
    """Returns the recalls at each of `at`, in [0, 1]: `text_at_1` and so on, `image_at_1`.

    `text_at_K` is the share of images with one of their texts among the K nearest; `image_at_K` is
    that of texts. What is as near as the right one counts as nearer.

    Raises:
      BadInput: vectors are not finite.
    """
    check(images_NE, texts_ME)
    of_pairs_P = np.einsum("pe,pe->p", images_NE[pairs_P2[:, 0]], texts_ME[pairs_P2[:, 1]])
    best_N, best_M = (np.full(len(x), -np.inf, np.float32) for x in (images_NE, texts_ME))
    np.maximum.at(best_N, pairs_P2[:, 0], of_pairs_P)
    np.maximum.at(best_M, pairs_P2[:, 1], of_pairs_P)
    before_N, before_M = (np.zeros(len(x), np.int64) for x in (images_NE, texts_ME))
    for start in range(0, len(images_NE), _AT_ONCE):
        scores = images_NE[start : start + _AT_ONCE] @ texts_ME.T
        here = pairs_P2[(pairs_P2[:, 0] >= start) & (pairs_P2[:, 0] < start + len(scores))]
        scores[here[:, 0] - start, here[:, 1]] = -np.inf
        before_N[start : start + len(scores)] = (
            scores >= best_N[start : start + len(scores), None]
        ).sum(axis=1)
        before_M += (scores >= best_M[None]).sum(axis=0)
    return {
        f"{what}_at_{k}": float(np.mean(before < k))
        for what, before in (("text", before_N), ("image", before_M))
        for k in at
    }
