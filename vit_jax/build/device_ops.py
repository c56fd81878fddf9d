# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Divides preprocessing: what the host makes of an image, and what the step does with it.

The host applies `data.train_ops`, the step `data.device_ops` (`step/device_ops.py`). Every function
is for a configuration that sets `data.device_ops`. Start from `check`, or from `host_shape`.
"""

from collections.abc import Callable

import jax

from vit_jax.build import objectives
from vit_jax.config import images as images_lib
from vit_jax.config import sections
from vit_jax.data.ops import chain
from vit_jax.errors import BadInput
from vit_jax.step import device_ops
from vit_jax.step.objective import Batch, Objective


def host_shape(data: sections.Data) -> tuple[int, int, int]:
    """Returns rows, columns and channels of a training image that the host makes.

    Raises:
      BadInput: its images differ in size.
    """
    images = images_lib.of(data)
    ops = chain.parse("data.train_ops", data.train_ops, images.size, images.channels)
    sized = [op for op in ops if getattr(op, "size", None)]
    if sized and isinstance(sized[-1], chain.SIZELESS):
        raise BadInput(
            f"data.train_ops={data.train_ops} makes images of several sizes, and data.device_ops "
            "takes them as one array; end train_ops with an op that makes one, such as resize(256)."
        )
    return (*chain.View("image", 0, ops).size(images.size), images.channels)


def check(config: sections.Config, objective: Objective) -> None:
    """Raises BadInput if `data.device_ops` cannot be applied."""
    data = config.data
    in_step(data)
    moving = sorted(objectives.spatial_fields(objective, images_lib.of(data)))
    if data.views or moving:
        why = "data.views makes several images of one" if data.views else f"{moving[0]} would stay"
        raise BadInput(f"data.device_ops changes the image alone, and {why}; leave it out.")


def in_step(data: sections.Data) -> Callable[[Batch, jax.Array], Batch]:
    """Returns the function (global batch, key of the step) -> batch that a step begins with.

    Raises:
      BadInput: the chain is wrong.
    """
    rows, columns, channels = host_shape(data)
    ops = device_ops.parse(data.device_ops, (rows, columns), images_lib.of(data).size, channels)
    return lambda batch, key: {**batch, "image": device_ops.apply(ops, batch["image"], key)}
