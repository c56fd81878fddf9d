# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns preprocessing chains such as `"decode|resize(224)|flip_lr"` into functions on one example.

An op is a frozen dataclass. Its fields are its arguments, and its call maps (image, seed) to an
image; `OPS` lists all ops. This module parses chains itself because clu's preprocess_spec imports
TensorFlow, and an error in a chain should be reported at once. Start from `parse`.
"""

import ast
import dataclasses
import inspect
import itertools
import math
import re
from collections.abc import Callable
from typing import Any, Protocol

from vit_jax.config.plugins import Registry
from vit_jax.data.ops import augment
from vit_jax.data.ops.decode import Decode
from vit_jax.data.ops.resize import Size, sides
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput, unknown


class Op(Protocol):
    """Maps an image (encoded bytes before `Decode`, then uint8 [H, W, C]) and a seed to an image.

    The seed is int64 [2].
    """

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor: ...


OPS = Registry(
    {
        "decode": "vit_jax.data.ops.decode:Decode",
        "resize": "vit_jax.data.ops.resize:Resize",
        "resize_small": "vit_jax.data.ops.resize:ResizeSmall",
        "central_crop": "vit_jax.data.ops.resize:CentralCrop",
        "random_crop": "vit_jax.data.ops.augment:RandomCrop",
        "inception_crop": "vit_jax.data.ops.augment:InceptionCrop",
        "fast_inception_crop": "vit_jax.data.ops.crops:FastInceptionCrop",
        "flip_lr": "vit_jax.data.ops.augment:FlipLr",
        "shift": "vit_jax.data.ops.augment:Shift",
        "affine": "vit_jax.data.ops.augment:Affine",
        "bv_resize": "vit_jax.data.ops.resize:BvResize",
        "bv_resize_small": "vit_jax.data.ops.resize:BvResizeSmall",
        "randaug": "vit_jax.data.ops.randaugment:RandAugment",
        "color_jitter": "vit_jax.data.ops.color:ColorJitter",
        "three_augment": "vit_jax.data.ops.color:ThreeAugment",
        "random_erasing": "vit_jax.data.ops.erasing:RandomErasing",
    }
)


# The allowed range of each op argument, by the argument's name.
RANGES: dict[str, tuple[float, float]] = {
    "size": (1, 65535),
    "pixels": (0, 65535),
    "area_min": (1e-6, 1),
    "degrees": (0, 180),
    "scale": (0, 0.99),
    "shift": (0, 65535),
    "layers": (1, 16),
    "magnitude": (0, 30),
    "brightness": (0, 10),
    "contrast": (0, 10),
    "saturation": (0, 10),
    "hue": (0, 0.5),
    "probability": (0, 1),
    "area_max": (1e-6, 1),
    "fill": (-1, 255),
    "low": (0, 65534),
    "high": (0, 65535),
}


def parse(key: str, chain: str, size: Size, channels: int = 3) -> tuple[Op, ...]:
    """Parses a chain; `{size}` means the image size, `{size*8//7}` its multiple, rounded down.

    The size is a side, or `(rows, columns)` where they differ. `channels` are those of the images.

    Raises:
      BadInput: the text is not of the form `op|op(1, name=2)`, an op is unknown (the message lists
        the options), an op does not take an argument, or an op stands in the wrong place; the
        message names `key`.
    """
    parts = chain.split("|")
    ops = tuple(_in_channels(key, _op(key, part.strip(), size), channels) for part in parts)
    for part, (before, op) in zip(parts, itertools.pairwise((None, *ops)), strict=True):
        if "fast_inception_crop" not in part:
            continue
        from vit_jax.data.ops import crops

        if isinstance(op, crops.FastInceptionCrop) and not isinstance(before, Decode):
            raise BadInput(
                f"{key}: fast_inception_crop decodes only the pixels that it needs, so it "
                f"stands right after decode; write decode|fast_inception_crop({op.size})."
            )
    return ops


def _in_channels(key: str, op: Any, channels: int) -> Op:
    """Returns an op for images of these channels; raises BadInput for ops on colours."""
    if channels != 3 and getattr(op, "ONLY_RGB", False):
        raise BadInput(
            f"{key}: {names((op,))} changes colours of RGB images, and data.channels={channels}; "
            "leave it out."
        )
    return dataclasses.replace(op, channels=channels) if isinstance(op, Decode) else op


def _op(key: str, text: str, size: Size) -> Op:
    try:
        call = ast.parse(_SIZE.sub(lambda m: _multiple(size, m), text), mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(func=call, args=[], keywords=[])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("not a call")
        args = [ast.literal_eval(a) for a in call.args]
        kwargs = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
        if len(kwargs) < len(call.keywords):
            raise ValueError("an argument twice")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadInput(
            f"{key}: {text!r} is not an op; write ops such as decode|resize(224)|flip_lr, "
            f"of {', '.join(OPS)}."
        ) from None
    name = call.func.id
    if name not in OPS:
        raise unknown(f"op in {key}", name, OPS, _op_hint(name, args))
    fields = inspect.signature(OPS[name])
    try:
        bound = fields.bind(*args, **kwargs)
    except TypeError as e:
        raise BadInput(f"{key}: {text!r}: {e}; it is {name}{fields}.") from None
    if "channels" in bound.arguments:
        raise BadInput(f"{key}: {text!r}: set data.channels instead (--config.data.channels).")
    for field, value in bound.arguments.items():
        kind = fields.parameters[field].annotation
        if not _is_a(kind, value):
            wanted = inspect.formatannotation(kind)
            raise BadInput(f"{key}: {text!r}: {field}={value!r} is not of type {wanted}.")
        low, high = RANGES.get(field, (0, math.inf))
        numbers = value if isinstance(value, tuple) else (value,)
        if not isinstance(value, bool) and not all(low <= n <= high for n in numbers):
            raise BadInput(f"{key}: {text!r}: {field}={value}; give a value from {low} to {high}.")
    return OPS[name](*args, **kwargs)


def _op_hint(name: str, args: list[Any]) -> str:
    """Returns the hint for an op of another library; a rotation keeps its angle."""
    from vit_jax.config import synonyms

    hint = synonyms.hint("op", name)
    if "degrees=" in hint and args and isinstance(args[0], int | float) and 1 <= args[0] <= 180:
        return re.sub(r"degrees=\d+", f"degrees={args[0]:g}", hint)
    return hint


_SIZE = re.compile(r"\{size(?:\*(\d{1,4})//([1-9]\d{0,3}))?\}")


def _multiple(size: Size, match: re.Match[str]) -> str:
    """Returns the number, or the rows and columns, that `{size}` or `{size*8//7}` stands for."""
    rows, columns = (side * int(match[1] or 1) // int(match[2] or 1) for side in sides(size))
    return str(rows) if rows == columns else f"({rows}, {columns})"


_ACCEPTED: dict[Any, Any] = {int: int, bool: bool, float: (int, float), str: str, Size: int}


def _is_a(kind: Any, value: Any) -> bool:
    """Returns True if an op's argument of this type takes the value."""
    if kind == Size and isinstance(value, tuple):
        return len(value) == 2 and all(_is_a(int, side) for side in value)
    return isinstance(value, bool) == (kind is bool) and isinstance(value, _ACCEPTED[kind])


def names(ops: tuple[Op, ...]) -> str:
    """Returns the classes of the ops as a text for messages, such as `Decode|Resize`."""
    return "|".join(type(op).__name__ for op in ops)


def apply(ops: tuple[Op, ...]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the composition of the ops; each op draws from its own stream of the example's seed.

    A random crop right after decoding is done in the same pass as the decoding.
    """

    def chained(image: Tensor, seed: Tensor) -> Tensor:
        seeds = [tf.random.experimental.stateless_fold_in(seed, n) for n in range(len(ops))]
        left = list(zip(ops, seeds, strict=True))
        while left:
            op, own = left.pop(0)
            if isinstance(op, Decode) and image.dtype == tf.string and left:
                crop, drawn = left[0]
                if isinstance(crop, augment.InceptionCrop):
                    from vit_jax.data.ops import crops

                    image = crop.resize(crops.decode_box(op, crop, image, drawn))
                    del left[0]
                    continue
            image = op(image, own)
        return image

    return chained
