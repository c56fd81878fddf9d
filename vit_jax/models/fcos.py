# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FCOS (arXiv:1904.01355, 2006.09214) on a feature pyramid: a box and classes at each position.

It has neither anchors nor proposals. It was chosen over a set prediction such as DETR because it
learns in short schedules from little data, and assigns boxes without Hungarian matching. Both
branches are shared by all levels, with GroupNorm, and the centre-ness is on the branch of boxes
(2006.09214, section 3.4). It computes in float32. Axes: B batch, h w grid of a level, L positions
of all levels, E width, Y classes. Start from `Fcos`.
"""

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models import pyramid
from vit_jax.sharding import Axes

GROUP = 8  # channels of a group of GroupNorm: 32 groups of the usual 256
_RARE = 0.01  # probability of every class at the start (arXiv:1708.02002, section 3.3)
_MOST = 8.0  # of the logarithm of a side in strides: e^8 are 2981
_SMALL = nn.initializers.normal(0.01)

AXES: Axes = {
    **pyramid.AXES,
    r"objective/((class|box)_\d+|classify|sides|centre)/kernel": (None, None, "embed", None),
    r"objective/((class|box)_\d+|classify|sides|centre)/bias": (None,),
    r"objective/(class|box)_norm_\d+/(scale|bias)": (None,),
    r"objective/scales": (None,),
}


class Found(NamedTuple):
    """What the network says at each position, finest level first, row by row.

    Attributes:
      logits_BLY: of the classes.
      sides_BL4: distances from the position to left, top, right and bottom, in pixels, above 0.
      centre_BL: logit of the centre-ness.
    """

    logits_BLY: jax.Array
    sides_BL4: jax.Array
    centre_BL: jax.Array


class Places(NamedTuple):
    """The positions of all levels.

    Attributes:
      xy_L2: float32, x and y in pixels: the centres of squares of `stride` pixels.
      stride_L: float32, pixels.
      counts: how many positions each level has.
    """

    xy_L2: np.ndarray
    stride_L: np.ndarray
    counts: tuple[int, ...]


def places(sides: tuple[int, int], strides: tuple[int, ...], pixels: int) -> Places:
    """Returns the positions for a map of these rows and columns; see `pyramid.Pyramid`."""
    points, steps = list[np.ndarray](), list[np.ndarray]()
    for stride in strides:
        y, x = np.indices(pyramid.grid(sides, stride, pixels), np.float32)
        points.append((np.stack([x, y], axis=-1).reshape(-1, 2) + 0.5) * stride)
        steps.append(np.full(len(points[-1]), stride, np.float32))
    return Places(np.concatenate(points), np.concatenate(steps), tuple(map(len, points)))


class Fcos(nn.Module):
    """The pyramid and both branches.

    Attributes:
      classes: Y.
      width: E, a multiple of 8.
      depth: convolutions in each branch before its last one.
      strides: pixels per position of each level.
      pixels: pixels per position of the backbone's map.
    """

    classes: int
    width: int
    depth: int
    strides: tuple[int, ...]
    pixels: int

    @nn.compact
    def __call__(self, x_BhwD: jax.Array) -> Found:
        """Maps the map of a backbone to `Found`."""
        scales = self.param("scales", nn.initializers.ones, (len(self.strides),))
        rare = nn.initializers.constant(-math.log((1 - _RARE) / _RARE))
        branches = {kind: self._branch(kind) for kind in ("class", "box")}
        last = {
            "classify": self._conv("classify", self.classes, rare),
            "sides": self._conv("sides", 4),
            "centre": self._conv("centre", 1),
        }
        levels = pyramid.Pyramid(self.width, self.strides, self.pixels, name="pyramid")(x_BhwD)
        found = []
        for number, level in enumerate(levels):
            of_class, of_box = (_applied(branches[kind], level) for kind in ("class", "box"))
            logs = jnp.minimum(scales[number] * last["sides"](of_box), _MOST)
            sides = self.strides[number] * jnp.exp(logs)
            parts = last["classify"](of_class), sides, last["centre"](of_box)
            found.append([x.reshape(x.shape[0], -1, x.shape[-1]) for x in parts])
        logits, sides, centre = (jnp.concatenate(x, axis=1) for x in zip(*found, strict=True))
        return Found(logits, sides, centre[..., 0])

    def _conv(self, name: str, features: int, bias: Any = nn.initializers.zeros) -> nn.Conv:
        return nn.Conv(features, (3, 3), kernel_init=_SMALL, bias_init=bias, name=name)

    def _branch(self, kind: str) -> list[tuple[nn.Conv, nn.GroupNorm]]:
        def norm(number: int) -> nn.GroupNorm:
            return nn.GroupNorm(
                num_groups=None, group_size=GROUP, epsilon=1e-5, name=f"{kind}_norm_{number}"
            )

        return [(self._conv(f"{kind}_{n}", self.width), norm(n)) for n in range(self.depth)]


def _applied(branch: list[tuple[nn.Conv, nn.GroupNorm]], x: jax.Array) -> jax.Array:
    for conv, norm in branch:
        x = nn.relu(norm(conv(x)))
    return x


def multiply_adds(module: Fcos, sides: tuple[int, int], features: int) -> int:
    """Returns the multiply-adds for an image whose map has these rows, columns and features."""
    width, shape = module.width, (module.strides, module.pixels)
    positions = sum(places(sides, *shape).counts)
    branches = 2 * module.depth * width + module.classes + 4 + 1
    own = pyramid.multiply_adds(sides, features, width, *shape)
    return own + positions * 9 * width * branches
