# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Normalises images on the device, from uint8 to float32. Start from `normalise`."""

import jax
import jax.numpy as jnp


def normalise(image_BHWC: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """Maps uint8 [0, 255] to float32: (image / 255 - mean) / std, per channel.

    It takes one multiplication and one addition: (0.5, 0.5) gives image / 127.5 - 1.
    """
    scale = jnp.asarray([[[[1.0 / (255.0 * s) for s in std]]]], jnp.float32)
    shift = jnp.asarray([[[[-m / s for m, s in zip(mean, std, strict=True)]]]], jnp.float32)
    return image_BHWC.astype(jnp.float32) * scale + shift
