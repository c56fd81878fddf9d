# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns preprocessing chains such as `"decode|resize(224)|flip_lr"` into functions on one example.

An op is a frozen dataclass. Its fields are its arguments, and its call maps (image, seed) to an
image; `OPS` lists all ops. `changes` names the fields of an example that an op changes; `follow`
makes those other than the image (`geometry`). This module parses chains itself because clu's
preprocess_spec imports TensorFlow, and an error in a chain should be reported at once. Start from
`parse`, or from `parse_views` for several views of an image.
"""

import dataclasses
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from vit_jax.config import calls
from vit_jax.config.plugins import Registry
from vit_jax.data.example import FIELDS, GRID, SPATIAL
from vit_jax.data.ops import resize, scale
from vit_jax.data.ops.decode import Decode
from vit_jax.data.ops.resize import Size, rows_columns
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput, unknown

if TYPE_CHECKING:
    from vit_jax.data.ops.naflex import NaFlex


class Op(Protocol):
    """Maps an image (encoded bytes before `Decode`, then uint8 [H, W, C]) and a seed to an image.

    The seed is int64 [2]. An op without `changes` cannot be applied to examples with fields that
    move with the pixels. One whose `changes` names such fields has `follow`, as `Geometric` does.
    """

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor: ...


OPS = Registry(
    {
        "decode": "vit_jax.data.ops.decode:Decode",
        "resize": "vit_jax.data.ops.resize:Resize",
        "resize_small": "vit_jax.data.ops.resize:ResizeSmall",
        "central_crop": "vit_jax.data.ops.resize:CentralCrop",
        "resize_inside": "vit_jax.data.ops.scale:ResizeInside",
        "pad": "vit_jax.data.ops.scale:Pad",
        "naflex": "vit_jax.data.ops.naflex:NaFlex",
        "scale_jitter": "vit_jax.data.ops.scale:ScaleJitter",
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
        "grayscale": "vit_jax.data.ops.color:Grayscale",
        "gaussian_blur": "vit_jax.data.ops.color:GaussianBlur",
        "solarize": "vit_jax.data.ops.color:Solarize",
    }
)

# Ops that draw no random numbers, so they give the same image each time.
FIXED = (
    Decode, resize.Resize, resize.ResizeSmall, resize.CentralCrop,
    resize.BvResize, resize.BvResizeSmall, scale.ResizeInside, scale.Pad,
)  # fmt: skip

# Ops whose `size` is not the size of their result, which depends on the image.
SIZELESS = (resize.ResizeSmall, resize.BvResizeSmall, scale.ResizeInside)

# The allowed range of each op argument, by the argument's name.
RANGES: dict[str, tuple[float, float]] = {
    "size": (1, 65535),
    "pixels": (0, 65535),
    "patch": (1, 65535),
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
    "sigma_min": (0.01, 100),
    "sigma_max": (0.01, 100),
    "smallest": (0.01, 100),
    "largest": (0.01, 100),
}


@functools.cache
def parse(key: str, chain: str, size: Size, channels: int = 3) -> tuple[Op, ...]:
    """Parses a chain; `{size}` means the image size, `{size*8//7}` its multiple, rounded down.

    The size is a side, or `(rows, columns)` where they differ. `channels` are those of the images.
    The same chain is parsed once.

    Raises:
      BadInput: the text is not of the form `op|op(1, name=2)`, an op is unknown (the message lists
        the options), an op does not take an argument, or an op stands in the wrong place; the
        message names `key`.
    """
    parts = chain.split("|")
    ops = tuple(_in_channels(key, _op(key, part.strip(), size), channels) for part in parts)
    if any(map(adds_grid, ops[:-1])):
        raise BadInput(f"{key}: naflex puts patches in another order; let it be the last op.")
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


def adds_grid(op: Any) -> TypeGuard["NaFlex"]:
    """Returns True for an op that adds the field `grid` to an example: `naflex`."""
    return getattr(op, "ADDS_GRID", False)


def _in_channels(key: str, op: Any, channels: int) -> Op:
    """Returns an op for images of these channels; raises BadInput for ops on colours."""
    if channels != 3 and getattr(op, "ONLY_RGB", False):
        raise BadInput(
            f"{key}: {names((op,))} changes colours of RGB images, and data.channels={channels}; "
            "leave it out."
        )
    return dataclasses.replace(op, channels=channels) if isinstance(op, Decode) else op


@dataclasses.dataclass(frozen=True)
class View:
    """One output of preprocessing.

    Attributes:
      name: the field of a batch that holds it.
      count: how many are drawn of each example, along an axis of their own; 0: one, without it.
      ops: the chain that makes it.
      stated: rows and columns of a chain that is cached in part.
    """

    name: str
    count: int
    ops: tuple[Op, ...]
    stated: tuple[int, int] | None = None

    def size(self, otherwise: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns that the chain states, or else `otherwise`."""
        if self.stated:
            return self.stated
        for op in reversed(self.ops):
            if isinstance(op, SIZELESS):
                break
            if size := getattr(op, "size", None):
                return rows_columns(size)
        return otherwise


_VIEW = re.compile(
    r"\s*(?P<name>[A-Za-z]\w*)\s*(\*\s*(?P<count>\d{1,9})\s*)?:(?P<chain>.*)", re.DOTALL
)
_MOST_VIEWS = 64  # of one chain; each is a part of the graph


def parse_views(key: str, text: str, size: Size, channels: int = 3) -> tuple[View, ...]:
    """Parses views such as `"global*2: decode|inception_crop({size}) ; local*6: ..."`.

    Returns:
      The views in the order of the text; () for an empty text.

    Raises:
      BadInput: the text has another form, a chain is wrong (see `parse`), or a name is used twice
        or is that of another field; the message names `key`.
    """
    views: dict[str, View] = {}
    for part in text.split(";") if text.strip() else ():
        match = _VIEW.fullmatch(part)
        if match is None:
            raise BadInput(
                f"{key}: {part.strip()!r} is not a view; write NAME: CHAIN, or NAME*COUNT: CHAIN, "
                "separated by semicolons, e.g. global*2: decode|inception_crop({size}) ; "
                "local*6: decode|inception_crop(96)."
            )
        name, count = match["name"], match["count"]
        if name in views or (name in FIELDS and name != "image"):
            why = "is named twice" if name in views else "has the name of another field"
            raise BadInput(f"{key}: the view {name} {why}; give it a name of its own.")
        if count is not None and not 1 <= int(count) <= _MOST_VIEWS:
            raise BadInput(f"{key}: {name}*{count}; give a count from 1 to {_MOST_VIEWS}.")
        ops = parse(f"{key}, view {name}", match["chain"], size, channels)
        if adds_grid(ops[-1]):
            raise BadInput(f"{key}: naflex stands in data.train_ops, and not in the view {name}.")
        views[name] = View(name, int(count or 0), ops)
    if len({op for view in views.values() for op in view.ops if isinstance(op, Decode)}) > 1:
        raise BadInput(f"{key}: the views decode differently; write the same decode in each chain.")
    return tuple(views.values())


def check_image_view(views: tuple[View, ...], moving: Collection[str]) -> None:
    """Raises BadInput if fields move with the view `image`, and there is no such view."""
    if moving and all(view.name != "image" for view in views):
        raise BadInput(
            f"{' and '.join(moving)} of an example belong to the view image, and data.views "
            "has no view of that name; name one image."
        )


def _op(key: str, text: str, size: Size) -> Op:
    try:
        name, args, kwargs = calls.parse(_SIZE.sub(lambda m: _multiple(size, m), text))
    except ValueError:
        raise BadInput(
            f"{key}: {text!r} is not an op; write ops such as decode|resize(224)|flip_lr, "
            f"of {', '.join(OPS)}."
        ) from None
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
    rows, columns = (side * int(match[1] or 1) // int(match[2] or 1) for side in rows_columns(size))
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
    """Returns the composition of the ops on an image; see `apply_to_fields`."""
    chained = apply_to_fields(ops)
    return lambda image, seed: chained({"image": image}, seed)["image"]


_Fields = dict[str, Tensor]


def apply_to_fields(ops: tuple[Op, ...]) -> Callable[[_Fields, Tensor], _Fields]:
    """Returns the composition of the ops; each op draws from its own stream of the example's seed.

    A crop right after decoding is done in the same pass as the decoding.
    """

    def chained(fields: _Fields, seed: Tensor) -> _Fields:
        seeds = [tf.random.experimental.stateless_fold_in(seed, n) for n in range(len(ops))]
        left = list(zip(ops, seeds, strict=True))
        while left:
            op, own = left.pop(0)
            image = fields["image"]
            if isinstance(op, Decode) and image.dtype == tf.string and left:
                crop, drawn = left[0]
                if isinstance(crop, resize.Crop) and type(crop).__call__ is resize.Crop.__call__:
                    from vit_jax.data.ops import crops

                    moves(op, fields)
                    box, shape = crops.decode_box(op, crop, image, drawn)
                    box.set_shape([None, None, op.channels])
                    image = crop.resize(box)
                    fields = _follow(crop, fields, lambda s=shape: s[:2], drawn) | {"image": image}
                    del left[0]
                    continue
            fields = _follow(op, fields, lambda i=image: tf.shape(i)[:2], own) | {
                "image": op(image, own)
            }
            if adds_grid(op):
                fields[GRID] = op.grid(tf.shape(image)[:2])
        return fields

    return chained


def moves(op: Op, fields: Mapping[str, Any]) -> bool:
    """Returns True if an op moves mask or boxes of an example with its image.

    Raises:
      BadInput: the op moves the image alone, and the example has such fields.
    """
    spatial = [key for key in SPATIAL if key in fields]
    if not spatial:
        return False
    changes = ("image",) if isinstance(op, Decode) and not op.exif else getattr(op, "changes", ())
    if not changes:
        raise BadInput(
            f"{type(op).__name__} may move pixels, but not {' and '.join(spatial)} with them; "
            "leave it out of the chain (decode without exif=True), or do without these fields."
        )
    return changes != ("image",)


def _follow(op: Op, fields: _Fields, sides: Callable[[], Tensor], seed: Tensor) -> _Fields:
    """Returns the fields with those that move with the image as they are after the op.

    Args:
      op: an op of a chain.
      fields: the fields of an example.
      sides: () -> int32 [2], rows and columns of the image before the op.
      seed: the seed of the op.

    Raises:
      BadInput: the op moves the image alone, and the example has such fields.
    """
    if not moves(op, fields):
        return fields
    spatial = {key: fields[key] for key in SPATIAL if key in fields}
    own_sides = sides()
    if "mask" in spatial:
        tf.debugging.assert_equal(
            tf.shape(spatial["mask"]), own_sides, "the mask has another size than the image"
        )
    return fields | op.follow(spatial, own_sides, seed)  # type: ignore[attr-defined]
