# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""ResNets of hybrids and of BiT in plain numpy at float64; shares no code with ours.

A convolution is a sum over the positions of its kernel. `x` is [batch, height, width, channels].
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy_vit import Weights, as_float64, linear

Padding = int | str  # pixels on each side, or SAME


class Constants(NamedTuple):
    """Constants that weights do not tell."""

    gn_epsilon: float
    ws_epsilon: float
    ws_epsilon_in: str
    stem: str = "standard"
    stem_stride: int = 1
    root_pool: str = "zero"


def hybrid(weights: Weights, images: np.ndarray, c: Constants) -> np.ndarray:
    """Feature map of a hybrid's backbone: post-activation units, SAME padding."""
    w = as_float64(weights)
    side, stride = (7, 2) if c.stem == "standard" else (3, c.stem_stride)
    x = std_conv(images.astype(np.float64), w["conv_root"], stride, "SAME", c)
    x = relu(group_norm(x, w["norm_root"], c.gn_epsilon))
    if c.stem == "standard":
        x = max_pool(x, "SAME", -np.inf)
    assert w["conv_root"]["kernel"].shape[0] == side
    for stride, unit in _units(w):
        y = std_conv(x, unit["conv1"], 1, "SAME", c)
        y = relu(group_norm(y, unit["norm1"], c.gn_epsilon))
        y = std_conv(y, unit["conv2"], stride, "SAME", c)
        y = relu(group_norm(y, unit["norm2"], c.gn_epsilon))
        y = std_conv(y, unit["conv3"], 1, "SAME", c)
        y = group_norm(y, unit["norm3"], c.gn_epsilon)
        if "conv_proj" in unit:
            x = std_conv(x, unit["conv_proj"], stride, "SAME", c)
            x = group_norm(x, unit["norm_proj"], c.gn_epsilon)
        x = relu(x + y)
    return x


def bit(weights: Weights, images: np.ndarray, c: Constants) -> np.ndarray:
    """Logits of BiT."""
    w = as_float64(weights)
    x = relu(group_norm(bit_backbone(w["backbone"], images, c), w["norm"], c.gn_epsilon))
    pooled = x.mean(axis=(1, 2))
    return linear(pooled, w["head"]) if "head" in w else pooled


def bit_backbone(weights: Weights, images: np.ndarray, c: Constants) -> np.ndarray:
    """Feature map of BiT: pre-activation units, as many pixels of padding on every side."""
    w = as_float64(weights)
    side, stride = (7, 2) if c.stem == "standard" else (3, c.stem_stride)
    x = std_conv(images.astype(np.float64), w["conv_root"], stride, side // 2, c)
    if c.stem == "standard":
        x = max_pool(x, 1, {"zero": 0.0, "-inf": -np.inf}[c.root_pool])
    for stride, unit in _units(w):
        active = relu(group_norm(x, unit["norm1"], c.gn_epsilon))
        y = std_conv(active, unit["conv1"], 1, 0, c)
        y = relu(group_norm(y, unit["norm2"], c.gn_epsilon))
        y = std_conv(y, unit["conv2"], stride, 1, c)
        y = relu(group_norm(y, unit["norm3"], c.gn_epsilon))
        y = std_conv(y, unit["conv3"], 1, 0, c)
        x = y + (std_conv(active, unit["conv_proj"], stride, 0, c) if "conv_proj" in unit else x)
    return x


def _units(w: Weights) -> Iterator[tuple[int, Weights]]:
    """Stride and weights of each unit; the first of every stage but the first halves the map."""
    stage = 1
    while f"stage{stage}_unit1" in w:
        unit = 1
        while f"stage{stage}_unit{unit}" in w:
            yield (2 if unit == 1 and stage > 1 else 1), w[f"stage{stage}_unit{unit}"]
            unit += 1
        stage += 1


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.0)


def group_norm(x: np.ndarray, w: Weights, epsilon: float) -> np.ndarray:
    """32 groups of neighbouring channels, each with one mean and variance in an example."""
    result, width = np.empty_like(x), x.shape[-1] // 32
    for example in range(len(x)):
        for group in range(32):
            part = x[example, :, :, group * width : (group + 1) * width]
            variance = ((part - part.mean()) ** 2).mean()
            normed = (part - part.mean()) / np.sqrt(variance + epsilon)
            result[example, :, :, group * width : (group + 1) * width] = normed
    return result * w["scale"] + w["bias"]


def std_conv(x: np.ndarray, w: Weights, stride: int, padding: Padding, c: Any) -> np.ndarray:
    """Convolution whose kernel has mean 0 and variance 1 for each output channel."""
    kernel = w["kernel"].copy()
    for channel in range(kernel.shape[-1]):
        one = kernel[..., channel] - kernel[..., channel].mean()
        variance = (one**2).mean()
        if c.ws_epsilon_in == "std":
            kernel[..., channel] = one / (variance**0.5 + c.ws_epsilon)
        else:
            kernel[..., channel] = one / (variance + c.ws_epsilon) ** 0.5
    side = len(kernel)
    seen = _windows(_padded(x, side, stride, padding, 0.0), side, stride)
    return sum(part @ kernel[dy, dx] for dy, dx, part in seen)


def max_pool(x: np.ndarray, padding: Padding, value: float) -> np.ndarray:
    """The largest of 3 x 3, stride 2."""
    parts = [part for _, _, part in _windows(_padded(x, 3, 2, padding, value), 3, 2)]
    return np.max(parts, axis=0)


def _padded(x: np.ndarray, side: int, stride: int, padding: Padding, value: float) -> np.ndarray:
    """SAME gives ceil(size / stride) positions; an odd pixel goes below or to the right."""
    around = []
    for pixels in x.shape[1:3]:
        if padding == "SAME":
            total = max((-(-pixels // stride) - 1) * stride + side - pixels, 0)
            around.append((total // 2, total - total // 2))
        else:
            around.append((padding, padding))
    return np.pad(x, ((0, 0), *around, (0, 0)), constant_values=value)


def _windows(x: np.ndarray, side: int, stride: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """For each position in a kernel, what it sees at every output position."""
    rows, columns = ((pixels - side) // stride + 1 for pixels in x.shape[1:3])
    for dy in range(side):
        for dx in range(side):
            down, right = stride * (rows - 1) + 1, stride * (columns - 1) + 1
            yield dy, dx, x[:, dy : dy + down : stride, dx : dx + right : stride]
