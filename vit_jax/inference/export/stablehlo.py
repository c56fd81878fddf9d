# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""StableHLO as `jax.export` serialises it: one file with weights, read without this package.

Start from `write`.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from vit_jax.errors import BadInput
from vit_jax.inference.export import forward as forward_lib
from vit_jax.inference.export.forward import Call, Forward

CONSUMER = "jax.export"
_MOST_BYTES = (1 << 31) - (1 << 24)  # limit of a file with 31-bit offsets, minus room for the rest


def check(forward: Forward) -> None:
    """Raises BadInput if the weights are too large for a file."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(forward.params))
    if size > _MOST_BYTES:
        raise BadInput(
            f"the weights have {size / 1e9:.1f} GB, and a file of jax.export holds less than 2.1; "
            "write --format=savedmodel."
        )


def write(forward: Forward, path: Path) -> dict[str, Any]:
    """Writes the file; returns facts to add to `forward.facts`."""
    exported = forward_lib.exported(forward, weights_inside=True)
    path.write_bytes(exported.serialize())
    return {"calling_convention": exported.calling_convention_version}


def read(path: Path) -> Call:
    """Returns the function in a file, run by jax.export alone."""
    exported = export.deserialize(bytearray(path.read_bytes()))
    return lambda images: jax.tree.map(np.asarray, exported.call(images))
