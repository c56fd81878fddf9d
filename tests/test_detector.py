# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images of any size through a detector: their boxes come back in their own pixels."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train_step import rules_of

from vit_jax.data.numpy_ops.resize import Unsuitable
from vit_jax.inference import detector

SIZE = (48, 64)


def of_red(_, images):
    """The box around what is red, one more in the filled-up part, and one of score 0."""
    red = (images[..., 0] > 190) & (images[..., 1] < 65)

    def ends(along):
        some = jnp.any(red, axis=along)
        last = some.shape[1] - jnp.argmax(some[:, ::-1], axis=1)
        return jnp.argmax(some, axis=1), last

    (top, bottom), (left, right) = ends(2), ends(1)
    box = jnp.stack([left, top, right, bottom], axis=1).astype(jnp.float32)
    corner = jnp.broadcast_to(jnp.array([[60.0, 44, 64, 48]]), box.shape)
    scores = jnp.broadcast_to(jnp.array([[0.9, 0.5, 0.0]]), (len(box), 3))
    classes = jnp.broadcast_to(jnp.array([[1, 0, 0]]), (len(box), 3))
    return jnp.stack([box, corner, box], axis=1), scores, classes


def of_colour(shape=(1, 1, 1, 1)):
    run = SimpleNamespace(size=SIZE, params={}, rules=rules_of(shape))
    return detector.Detector(run, jax.jit(of_red))


def picture(sides, box):
    image = np.full((*sides, 3), 40, np.uint8)
    left, top, right, bottom = box
    image[top:bottom, left:right] = [255, 0, 0]
    return image


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 2, 1, 1)])
def test_boxes_are_in_pixels_of_each_image(shape):
    """Wide and tall images, larger and smaller than the network's, in several batches."""
    rng, cases = np.random.default_rng(0), []
    for number in range(2 * detector.EACH * shape[1] + 1):
        rows, columns = [(480, 640), (30, 200), (200, 30), (24, 20)][number % 4]
        left, top = (int(rng.integers(0, side // 2)) for side in (columns, rows))
        cases.append(((rows, columns), (left, top, left + columns // 2, top + rows // 2)))
    found = list(of_colour(shape).of_images(picture(*case) for case in cases))
    assert len(found) == len(cases)
    for (sides, box), one in zip(cases, found, strict=True):
        scale = max(sides[0] / SIZE[0], sides[1] / SIZE[1])
        np.testing.assert_allclose(one.boxes[0], box, atol=1.01 * max(scale, 1))
        assert (one.scores[0], one.classes[0]) == (np.float32(0.9), 1)
        assert (one.boxes >= 0).all()
        assert (one.boxes[:, 2:] <= sides[::-1]).all()
        # The one in the corner is outside an image of another shape.
        assert len(one.scores) == (2 if sides == (480, 640) else 1)


def test_image_without_objects_has_none():
    blind = of_colour()
    (found,) = blind.of_images([picture((20, 90), (0, 0, 0, 0))])
    assert found.boxes.shape[1:] == (4,)
    assert len(found.scores) == len(found.classes)
    assert not list(blind.of_images([]))


def test_image_of_which_nothing_would_be_left_is_refused():
    of_colour().check(picture((20, 900), (0, 0, 1, 1)))
    with pytest.raises(Unsuitable, match="900 x 1 pixels, resized to fit 64 x 48, are less than"):
        of_colour().check(picture((1, 900), (0, 0, 1, 1)))
