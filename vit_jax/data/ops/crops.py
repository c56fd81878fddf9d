# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes and crops in one pass: it decodes only the pixels of a crop's box of a JPEG.

`decode_box` gives bit for bit the result of decoding and then cropping; but damage inside a file,
beyond the box, may stay unseen. `FastInceptionCrop` gives less exact pixels of large photographs,
sooner. `chain.apply` puts both into a chain.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from vit_jax.data.ops import decode
from vit_jax.data.ops.augment import InceptionCrop
from vit_jax.data.ops.resize import Crop, rows_columns
from vit_jax.data.tensorflow import Tensor, tf


@dataclasses.dataclass(frozen=True)
class FastInceptionCrop(InceptionCrop):
    """Crops the same boxes as `inception_crop`, but decodes large JPEGs at 1/2, 1/4 or 1/8 size.

    Allowed only right after `decode`. The box keeps at least `size` pixels a side; its edges are
    rounded to pixels of the reduced image. Mean difference to an area resize of the same box, in
    gray levels: 1.3 for a photograph of 4000 x 3000 at 224 (`inception_crop`: 0.6); for ImageNet
    images of 320 pixels, 4.7 at 112 (3.8) and 4.5 at 64 (5.7). Not for published numbers.
    """

    IN_PARTS: ClassVar[bool] = True

    REDUCTIONS = (1, 2, 4, 8)  # the reductions that a JPEG's inverse transform can do itself


def decode_box(
    op: decode.Decode, crop: Crop, content: Tensor, seed: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the pixels of `crop`'s box for `crop.resize`; edges of wide boxes may be inexact.

    Args:
      op: the decode before the crop.
      crop: the crop after it.
      content: string [], the bytes of a file.
      seed: int64 [2], the seed of the crop.

    Returns:
      uint8 [h, w, C], and the shape of the whole image, int32 [3].
    """
    shape = decode.jpeg_shape(content)

    def in_two_passes() -> tuple[Tensor, Tensor]:
        image = op.pixels(content)
        return crop.cut(image, seed), tf.shape(image)

    if not op.in_colour:
        return in_two_passes()
    return tf.cond(
        decode.is_jpeg(content, shape, op.exif) & decode.is_whole(content) & crop.fits(shape),
        lambda: (op.of_rgb(_jpeg_box(crop, content, shape, seed)), shape),
        in_two_passes,
    )


def _jpeg_box(crop: Crop, content: Tensor, shape: Tensor, seed: Tensor) -> Tensor:
    begin, extent = crop.box(shape, seed)
    exact: list[Callable[[], Tensor]] = [lambda: _exact(crop, content, shape, begin, extent)]
    if not isinstance(crop, FastInceptionCrop):
        return exact[0]()
    most = extent[:2] // [*rows_columns(crop.size)]  # by which each side may shrink
    fits = tf.reduce_min(most)
    number = tf.reduce_sum(tf.cast(fits >= list(crop.REDUCTIONS[1:]), tf.int32))
    reduced = [
        lambda ratio=ratio: _reduced(content, begin, extent, ratio) for ratio in crop.REDUCTIONS[1:]
    ]
    return tf.switch_case(number, exact + reduced)


def _exact(crop: Crop, content: Tensor, shape: Tensor, begin: Tensor, extent: Tensor) -> Tensor:
    """Decodes the box with two more columns on either side, then cuts these columns off.

    Halved chroma is interpolated from neighbouring columns, and not at all where a window has only
    one column of it. If a box is at least four times as wide as its result, no bilinear resize
    looks at the edge columns. So they need not be exact, and cutting nothing off saves a copy.
    """
    (top, x, _), (height, width, _) = tf.unstack(begin), tf.unstack(extent)
    more = 2 * tf.cast(crop.reads_edges(width), tf.int32)
    left, right = tf.maximum(x - more, 0), tf.minimum(x + width + more, shape[1])
    window = tf.stack([top, left, height, right - left])
    box = tf.io.decode_and_crop_jpeg(content, window, channels=3)
    return tf.slice(box, tf.stack([0, x - left, 0]), tf.stack([height, width, 3]))


def _reduced(content: Tensor, begin: Tensor, extent: Tensor, ratio: int) -> Tensor:
    """Decodes the box from an image of 1/ratio of the size."""
    half = ratio // 2
    first, last = (begin[:2] + half) // ratio, (begin[:2] + extent[:2] + half) // ratio
    window = tf.concat([first, last - first], axis=0)
    return tf.io.decode_and_crop_jpeg(content, window, channels=3, ratio=ratio)
