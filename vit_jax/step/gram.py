# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Gram anchoring: similarities of patches stay those of an earlier teacher (arXiv:2508.10104).

In long runs the representations of patches lose what tells them apart, while those of images still
improve. Axes: B images, T views, L M patches, D width. Start from `anchored`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from vit_jax.models.layers import unit
from vit_jax.step.objective import PARAMETERS, PyTree


def anchored(
    student_BTLD: jax.Array, teacher: Callable[[], jax.Array], begun: jax.Array
) -> jax.Array:
    """Returns the loss of each image, [B]; 0, without a look at the teacher, before it has begun.

    Args:
      student_BTLD: the student's patches.
      teacher: returns those of the earlier teacher, of the same shape.
      begun: bool [].
    """
    return jax.lax.cond(
        begun,
        lambda: difference(student_BTLD, teacher()),
        lambda: jnp.zeros(len(student_BTLD)),
    )


def difference(student_BTLD: jax.Array, teacher_BTLD: jax.Array) -> jax.Array:
    """Returns the mean squared difference of the cosines of all pairs of patches of a view; [B].

    This is section 4.2 of the paper with a mean in place of the sum, as in the authors' code.
    """

    def cosines(x_BTLD: jax.Array) -> jax.Array:
        x_BTLD = unit(x_BTLD, -1)
        return jnp.einsum("btld,btmd->btlm", x_BTLD, x_BTLD)

    apart_BTLM = cosines(student_BTLD) - jax.lax.stop_gradient(cosines(teacher_BTLD))
    return jnp.mean(apart_BTLM**2, axis=(1, 2, 3))


def backbone(params: PyTree) -> PyTree:
    """Returns the parameters that patches need: all but those of the objective."""
    return {name: x for name, x in params.items() if name != PARAMETERS}


def refreshed(anchor: PyTree, average: PyTree, step: jax.Array, first: int, every: int) -> PyTree:
    """Returns the parameters of the earlier teacher after an update.

    Args:
      anchor: these before it.
      average: the average of all parameters after it.
      step: int32 [], updates done after it.
      first: the number of updates after which the earlier teacher first becomes the average.
      every: the number of updates between later such moments; 0: there are none.
    """
    anew = step == first if not every else (step >= first) & ((step - first) % every == 0)
    return jax.lax.cond(anew, lambda: backbone(average), lambda: anchor)


def multiply_adds(patches: int, width: int) -> int:
    """Returns the multiply-adds of a view's loss: 3 times the student's cosines, the teacher's."""
    return 4 * patches**2 * width
