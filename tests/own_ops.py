# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops as a user's package has them, in a module that worker processes can import."""

import dataclasses
import time

from vit_jax.data.ops.decode import BadImage
from vit_jax.data.ops.geometry import Geometric


@dataclasses.dataclass(frozen=True)
class Own:
    """Leaves the image as it is, after some seconds."""

    secs: float = 0.0

    def in_numpy(self, image, seed):
        time.sleep(self.secs)
        return image


@dataclasses.dataclass(frozen=True)
class Wordy:
    """Refuses every image, in many words."""

    def in_numpy(self, image, seed):
        raise BadImage("x" * 10_000)


@dataclasses.dataclass(frozen=True)
class Broken:
    """Has a bug."""

    def in_numpy(self, image, seed):
        return 1 // 0


@dataclasses.dataclass(frozen=True)
class Turned(Geometric):
    """Moves masks and boxes with TensorFlow alone."""

    def in_numpy(self, image, seed):
        return image[::-1]
