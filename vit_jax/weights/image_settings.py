# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads how other libraries prepare images, from their JSON files. Start from `timm` and `hf`."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.weights.formats.json_config import FILTERS


@dataclasses.dataclass(frozen=True)
class _Key:
    """A key of a foreign configuration file."""

    default: Any
    fits: Callable[[Any], bool]
    expected: str


def _settings(file: str, content: Mapping[str, Any], keys: Mapping[str, _Key]) -> dict[str, Any]:
    """Returns the values of `keys`: as given, or the default if absent or null."""
    values = {name: content.get(name) for name in keys}
    values = {name: keys[name].default if v is None else v for name, v in values.items()}
    for name, value in values.items():
        if not keys[name].fits(value):
            raise BadInput(
                f"{file}: {name}={value!r}; expected {keys[name].expected}. Correct the file, or "
                "preprocess the images yourself."
            )
    return values


_LARGEST = 1e6  # limit of a mean, a deviation or a factor
_LONGEST = 8192  # limit in pixels of a side of a model's input


def _numbers(value: Any, count: int) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == count
        and all(isinstance(v, int | float) and not isinstance(v, bool) for v in value)
        and all(abs(v) <= _LARGEST for v in value)
    )


def _pixels(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LONGEST


_MEAN = _Key((0.5, 0.5, 0.5), lambda v: _numbers(v, 3), "three numbers")
_STD = _Key((0.5, 0.5, 0.5), lambda v: _numbers(v, 3) and 0 not in v, "three numbers, none 0")

_TIMM_KEYS = {
    "input_size": _Key(
        (3, 224, 224),
        lambda v: _numbers(v, 3) and all(map(_pixels, v)) and v[0] == 3,
        "[3, height, width]",
    ),
    "interpolation": _Key("bicubic", lambda v: v in FILTERS, f"one of {', '.join(FILTERS)}"),
    "crop_pct": _Key(0.875, lambda v: _numbers([v], 1) and v >= 0.01, "a number from 0.01 on"),
    "crop_mode": _Key(
        "center", lambda v: v in ("center", "squash", "border"), "center, squash or border"
    ),
    "mean": dataclasses.replace(_MEAN, default=(0.485, 0.456, 0.406)),
    "std": dataclasses.replace(_STD, default=(0.229, 0.224, 0.225)),
}


def timm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a pretrained_cfg of timm says about images, with timm's defaults.

    Raises:
      BadInput: a value that timm does not know, or an input that is not RGB.
    """
    return _settings("pretrained_cfg", config, _TIMM_KEYS)


def _size(value: Any) -> dict[str, int] | None:
    """Parses Hugging Face's sizes; returns None for an invalid size.

    A size is old (n or [height, width]) or new (a dictionary).
    """
    if _pixels(value):
        value = [value, value]
    if _numbers(value, 2):
        value = dict(zip(("height", "width"), value, strict=True))
    known = isinstance(value, dict) and set(value) in ({"height", "width"}, {"shortest_edge"})
    return value if known and all(map(_pixels, value.values())) else None


_FLAG = _Key(True, lambda v: isinstance(v, bool), "true or false")
_HF_KEYS = {
    "do_resize": _FLAG,
    "size": _Key(
        224, lambda v: _size(v) is not None, '{"height": n, "width": n} or {"shortest_edge": n}'
    ),
    "resample": _Key(2, lambda v: type(v) is int and v in range(6), "a number from 0 to 5"),
    "do_center_crop": dataclasses.replace(_FLAG, default=False),
    "crop_size": _Key(224, lambda v: "height" in (_size(v) or ()), '{"height": n, "width": n}'),
    "do_rescale": _FLAG,
    "rescale_factor": _Key(1 / 255, lambda v: _numbers([v], 1), "a number"),
    "do_normalize": _FLAG,
    "image_mean": _MEAN,
    "image_std": _STD,
}
_IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}
_OPENAI = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
# model_type -> the normalisation of its published weights, where it is not 0.5.
_USUAL = {
    **dict.fromkeys(("clip", "clip_vision_model", "aimv2_vision_model"), _OPENAI),
    **dict.fromkeys(("deit", "vit_mae", "dinov2", "dinov2_with_registers"), _IMAGENET),
    "dinov3_vit": _IMAGENET,
}
_CROPPED: dict[str, Any] = {"resample": 3, "do_center_crop": True}
# Name of a processor -> its own defaults. For the last two, one number is the shorter side.
_PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": {},
    "DeiT": _CROPPED | {"size": 256},
    "Beit": {"resample": 3, "size": 256},
    "Siglip": {"resample": 3},
    "Siglip2": {},
    "DINOv3ViT": _IMAGENET,
    "Bit": _CROPPED | _OPENAI | {"size": {"shortest_edge": 224}},
    "CLIP": _CROPPED | _OPENAI | {"size": {"shortest_edge": 224}},
}
_HF_TYPES = ("image_processor_type", "feature_extractor_type")
_HF_UNREAD = (*_HF_TYPES, "processor_class", "do_convert_rgb", "data_format", "default_to_square")
_SIGLIP2_KEYS = {
    key: _Key(0, lambda v: type(v) is int and 0 < v <= _LONGEST**2, "a whole number from 1 on")
    for key in ("patch_size", "max_num_patches")
}


def usual(kind: str) -> str:
    """Returns words for the usual normalisation of a family of transformers; "" if unknown."""
    if kind not in _USUAL:
        return ""
    mean, std = _USUAL[kind]["image_mean"], _USUAL[kind]["image_std"]
    return f"published weights of {kind} have mean {mean} and std {std}"


def hf(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a preprocessor_config.json of transformers says about images.

    A missing key has the default of the processor, and a flag that is null is off. The sizes are
    dictionaries. `in_floats` is True for a processor that scales pixels before it resizes.

    Raises:
      BadInput: another processor, a value that it does not know, or a key that asks for more.
    """
    off = {key: False for key in config if key.startswith("do_")}
    values = off | {key: value for key, value in config.items() if value is not None}
    name = "ViT"
    for key in _HF_TYPES:
        kind = str(values.get(key, "ViTImageProcessor"))
        pattern = rf"({'|'.join(_PROCESSORS)})(ImageProcessor(Fast|Pil)?|FeatureExtractor)"
        if (match := re.fullmatch(pattern, kind)) is None:
            raise BadInput(
                f"preprocessor_config: {key}={kind!r}; expected that of "
                f"{', '.join(_PROCESSORS)}. Preprocess the images yourself."
            )
        if key in values:
            name = match[1]
    if name in ("Bit", "CLIP") and isinstance(values.get("size"), int):
        values["size"] = {"shortest_edge": values["size"]}
    values = _PROCESSORS[name] | values
    for key, value in values.items():
        if name == "Siglip2" and key in _SIGLIP2_KEYS:
            _settings("preprocessor_config", {key: value}, {key: _SIGLIP2_KEYS[key]})
        elif key not in _HF_KEYS and key not in _HF_UNREAD and value is not False:
            raise BadInput(
                f"preprocessor_config: {key}={value!r} is not known here; expected "
                f"{', '.join(_HF_KEYS)}. Remove the key if the images do not need it."
            )
    wanted = _settings("preprocessor_config", values, _HF_KEYS)
    sizes = {key: _size(wanted[key]) or {} for key in ("size", "crop_size")}
    squares = "height" in sizes["size"] and not wanted["do_center_crop"]
    return wanted | sizes | {"in_floats": name == "DINOv3ViT" and squares}


def canvas_size(content: Mapping[str, Any], patch: int) -> tuple[int, int] | None:
    """Returns rows and columns of pixels with as many patches as a processor of SigLIP 2 allows.

    None: `max_num_patches` is missing.

    Raises:
      BadInput: see `hf`, or the processor has another `patch_size`.
    """
    hf(content)
    if content.get("patch_size") not in (None, patch):
        raise BadInput(
            f"preprocessor_config: patch_size={content['patch_size']}, the model has patches of "
            f"{patch} pixels; correct the file."
        )
    budget = content.get("max_num_patches")
    return None if budget is None else canvas_of(budget, patch)


def canvas_of(budget: int, patch: int) -> tuple[int, int]:
    """Returns rows and columns of pixels with this number of patches, as equal as they can be."""
    rows = next(n for n in range(math.isqrt(budget), 0, -1) if budget % n == 0)
    return rows * patch, budget // rows * patch
