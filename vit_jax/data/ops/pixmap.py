# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads and writes images as plain pixels: PPM files with a head of a fixed length.

`vit_jax data prepare --quality=lossless` writes them. To decode one is to copy it, which takes a
quarter of the time of a JPEG. Every reader of PPM reads them (netpbm's ppm(5) lets numbers begin
with zeros), and a PPM file with another head is left to Pillow. Start from `encoded`.
"""

import re

import numpy as np

from vit_jax.data.tensorflow import Tensor, tf

_HEAD = "P6\n{width:05} {height:05}\n255\n"
_BYTES = len(_HEAD.format(width=0, height=0))
_PATTERN = r"P6\n(\d{5}) (\d{5})\n255\n"


def encoded(image: np.ndarray) -> bytes:
    """Returns the file of an image, uint8 [H, W, 3].

    With a side above 99,999 pixels the head is longer, and the file is left to Pillow.
    """
    height, width = image.shape[:2]
    return _HEAD.format(width=width, height=height).encode() + image.tobytes()


def array(content: bytes) -> np.ndarray | None:
    """Returns uint8 [H, W, 3], not writable, of a whole file of this form; None for another."""
    head = re.match(_PATTERN.encode(), content)
    if not head:
        return None
    width, height = int(head[1]), int(head[2])
    size = height * width * 3
    if not 0 < size <= len(content) - _BYTES:
        return None
    return np.frombuffer(content, np.uint8, size, _BYTES).reshape(height, width, 3)


def sides(content: Tensor) -> Tensor:
    """Returns int32 [2] (height, width) of a file (string []) of this form; zeros for another."""
    head = tf.strings.substr(content, 0, _BYTES)
    known = tf.strings.regex_full_match(head, _PATTERN)
    head = tf.where(known, head, _HEAD.format(width=0, height=0))
    numbers = [tf.strings.substr(head, at, 5) for at in (9, 3)]
    return tf.strings.to_number(tf.stack(numbers), tf.int32)


def pixels(content: Tensor, shape: Tensor) -> Tensor:
    """Returns uint8 [H, W, 3] of a file, whose `sides` are `shape`; fails if it is cut short."""
    bytes_ = tf.strings.substr(content, _BYTES, tf.reduce_prod(shape) * 3)
    image = tf.reshape(tf.io.decode_raw(bytes_, tf.uint8), tf.concat([shape, [3]], axis=0))
    return tf.ensure_shape(image, [None, None, 3])
