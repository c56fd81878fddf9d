# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Token merging (ToMe, arXiv:2210.09461): each layer averages pairs of tokens with similar keys.

Tokens at even places each choose the most similar token at an odd place, and the `merge` most
similar pairs become one token each (section 3.1, bipartite soft matching). A token's size is the
number of patches that it stands for: attention adds its log to the scores (equation 1, proportional
attention), and averages weight by it. Axes: B batch, L tokens, D width, K head dim. Start from
`merged`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Merged(NamedTuple):
    """Tokens, some of which stand for several patches.

    Attributes:
      tokens_BLD: the tokens; those without a patch come first and are never merged.
      sizes_BL: float32, how many patches each stands for.
    """

    tokens_BLD: jax.Array
    sizes_BL: jax.Array


def pairs(tokens: int, prefix: int, merge: int) -> int:
    """Returns how many pairs a layer merges: at most half of the tokens that have a patch.

    Args:
      tokens: tokens that enter the layer.
      prefix: tokens without a patch among them.
      merge: the setting `model.merge`.
    """
    return min(merge, (tokens - prefix) // 2)


def merged(x: Merged, keys_BLK: jax.Array, prefix: int, merge: int) -> Merged:
    """Merges pairs of tokens, see the module.

    The tokens that stay keep their order, even places before odd ones, behind those without a
    patch. The authors' code sorts them only if there is a class token.

    Args:
      x: the tokens.
      keys_BLK: their keys, mean over the heads.
      prefix: tokens without a patch.
      merge: the setting `model.merge`.
    """
    length = x.tokens_BLD.shape[1]
    count = pairs(length, prefix, merge)
    if not count:
        return x
    sizes_BL1 = x.sizes_BL[..., None]
    sums_BLE = jnp.concatenate([x.tokens_BLD.astype(jnp.float32) * sizes_BL1, sizes_BL1], axis=-1)
    into, order = _matched(jax.lax.stop_gradient(keys_BLK), prefix)
    kept = jnp.sort(order[:, count:], axis=1)

    def of_image(sums_LE: jax.Array, into: jax.Array, gone: jax.Array, kept: jax.Array):
        even, odd = sums_LE[::2], sums_LE[1::2]
        return jnp.concatenate([even[kept], odd.at[into[gone]].add(even[gone])])

    sums_BLE = jax.vmap(of_image)(sums_BLE, into, order[:, :count], kept)
    sums_BLE = sums_BLE[:, _in_order(length - count, kept.shape[1], prefix)]
    sizes_BL1 = sums_BLE[..., -1:]
    return Merged((sums_BLE[..., :-1] / sizes_BL1).astype(x.tokens_BLD.dtype), sizes_BL1[..., 0])


def _matched(keys_BLK: jax.Array, prefix: int) -> tuple[jax.Array, jax.Array]:
    """Returns the odd token that each even one chooses, and even ones, the most similar first."""
    keys_BLK = keys_BLK.astype(jnp.float32)
    keys_BLK /= jnp.maximum(jnp.linalg.norm(keys_BLK, axis=-1, keepdims=True), 1e-12)
    similar_Bij = jnp.einsum("bik,bjk->bij", keys_BLK[:, ::2], keys_BLK[:, 1::2])
    bare = np.arange(keys_BLK.shape[1]) < prefix
    never_ij = bare[::2, None] | bare[None, 1::2]
    similar_Bij = jnp.where(never_ij, -jnp.inf, similar_Bij)
    return jnp.argmax(similar_Bij, axis=2), jnp.argsort(-jnp.max(similar_Bij, axis=2), axis=1)


def _in_order(length: int, even: int, prefix: int) -> np.ndarray:
    """Returns which of [even tokens, odd tokens] comes where: those without a patch come first."""
    first = [even * (i % 2) + i // 2 for i in range(prefix)]
    return np.array(first + [i for i in range(length) if i not in first])
