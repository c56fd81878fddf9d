# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the architecture of a model from its weights alone.

The names are this package's, in the loop layout. Start from `settings_of`.
"""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models.settings import FREE
from vit_jax.weights.formats.json_config import SCALE

if TYPE_CHECKING:
    from vit_jax.models import variants


def settings_of(
    family: str,
    flat: Mapping[str, np.ndarray],
    image_size: tuple[int, int] | None,
    *,
    naflex: bool = False,
) -> tuple[dict[str, Any], tuple[int, int] | None]:
    """Returns the settings that weights imply for their model.

    Args:
      family: vit, bit or mixer.
      flat: name -> array (only shapes are read).
      image_size: rows and columns, if known from elsewhere.
      naflex: whether the position embedding is a square table for images of any size.

    Returns:
      Fields of `variants.Settings` and `classes`; and the image size, None if unknown.

    Raises:
      BadInput: weights that give the sizes are missing or have another shape.
    """
    reader = {"vit": _vit, "bit": _bit, "mixer": _mixer}[family]
    try:
        settings, size = reader(flat, None if naflex else image_size)
        if naflex and size is not None:
            settings["naflex"] = size[0] // flat["embedding/kernel"].shape[0]
            size = image_size or size
        classes = flat["head/kernel"].shape[1] if "head/kernel" in flat else 0
    except BadInput:
        raise
    except KeyError as e:
        raise BadInput(f"the weights are not those of a {family} model: {e} is missing.") from e
    except (ValueError, IndexError) as e:
        raise BadInput(f"the weights have shapes of no {family} model: {e}.") from e
    return settings | {"classes": classes}, size


# The kernels on pixels [h, w, C, D]; a hybrid has both, and the first is the one on pixels.
PIXEL_KERNELS = ("backbone/conv_root/kernel", "embedding/kernel")


def channels(flat: Mapping[str, np.ndarray]) -> int:
    """Returns the channels of the images that weights were made for; 3 if they do not tell."""
    kernels = (flat[name] for name in PIXEL_KERNELS if name in flat and flat[name].ndim == 4)
    return next((kernel.shape[2] for kernel in kernels), 3)


def _named(table: dict[str, tuple[int, ...]], sizes: tuple[int, ...]) -> str:
    return next((name for name, named in table.items() if named == sizes), FREE)


def _count(flat: Mapping[str, np.ndarray], pattern: str) -> int:
    return len({m[0] for m in (re.match(pattern, name) for name in flat) if m})


def _vit(
    flat: Mapping[str, np.ndarray], image_size: tuple[int, int] | None
) -> tuple[dict[str, Any], tuple[int, int] | None]:
    from vit_jax.models import vit

    patch, _, _, width = flat["embedding/kernel"].shape
    _, heads, _ = flat["block_0/attn/query/kernel"].shape
    sizes = (width, _count(flat, r"block_\d+/"), flat["block_0/mlp/up/kernel"].shape[1], heads)
    settings: dict[str, Any] = dict(zip(("width", "depth", "mlp", "heads"), sizes, strict=True))
    prefix, stride, pixels = "", patch, patch
    if "backbone/conv_root/kernel" in flat:
        backbone = _backbone(flat)
        stages = backbone["stages"]
        pixels = patch * (4 * 2 ** (len(stages) - 1) if stages else 2)
        stride = patch * 4 * 2 ** max(0, len(stages) - 1)
        prefix = f"R{_resnet_name(stages)}+"
        settings |= backbone
    settings["variant"] = f"{prefix}{_named(vit.SIZES, sizes)}/{pixels}"
    settings["pool"] = "map" if "map_head/probe" in flat else ("token" if "cls" in flat else "gap")
    if "head/kernel" in flat and flat["head/kernel"].shape[0] == 2 * width:
        settings["pool"] = "token+gap"
    settings["posemb"] = "learned1d" if "posemb" in flat else "none"
    settings |= _options(flat)
    if settings["pool"] == "map":
        own = flat["map_head/attn/query/kernel"].shape[1], flat["map_head/mlp/up/kernel"].shape[1]
        settings |= {"pool_heads": own[0]} if own[0] != heads else {}
        settings |= {"pool_mlp": own[1]} if own[1] != settings["mlp"] else {}
    settings["registers"] = flat["registers"].shape[1] if "registers" in flat else 0
    settings["representation"] = (
        flat["pre_logits/kernel"].shape[1] if "pre_logits/kernel" in flat else 0
    )
    if "posemb" in flat:
        patches = flat["posemb"].shape[1] - ("cls" in flat) - ("dist" in flat)
        image_size = _size(patches, stride, image_size)
    if "block_0/attn/relative_bias" in flat:
        offsets = flat["block_0/attn/relative_bias"].shape[0] - 3 * ("cls" in flat)
        image_size = _size(offsets, stride, image_size, offsets=True)
    return settings, image_size


def _options(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the options of a ViT that its tensors show and that are not the default."""
    shown: dict[str, tuple[str, Any]] = {
        "distillation": ("dist", True),
        "stem_norm": ("stem_norm/scale", "tokens"),
        "layer_scale": ("block_0/attn_scale", SCALE),
        "qk_norm": ("block_0/attn/query_norm/scale", True),
        "gate": ("block_0/mlp/gate/kernel", "silu"),
        "mlp_norm": ("block_0/mlp/norm/scale", True),
        "posemb": ("block_0/attn/relative_bias", "relative2d"),
    }
    options = {key: value for key, (name, value) in shown.items() if name in flat}
    if "stem_norm" in options and "embedding/bias" not in flat:
        options["stem_bias"] = False
    bias = {name: f"block_0/attn/{name}/bias" in flat for name in ("query", "key", "out")}
    if not bias["out"]:
        options["biases"] = "none"
    elif not bias["query"]:
        options["biases"] = "no_qkv"
    elif not bias["key"]:
        options["biases"] = "no_key"
    return options


def _bit(
    flat: Mapping[str, np.ndarray], image_size: tuple[int, int] | None
) -> tuple[dict[str, Any], tuple[int, int] | None]:
    from vit_jax.models import bit

    backbone = _backbone(flat)
    number, factor = _resnet_name(backbone["stages"]), backbone["root_width"] / 64
    name = f"R{number}x{int(factor)}" if number and factor.is_integer() else FREE
    return {"variant": f"BiT-{name}", **backbone}, image_size or (bit.IMAGE_SIZE, bit.IMAGE_SIZE)


def _mixer(
    flat: Mapping[str, np.ndarray], image_size: tuple[int, int] | None
) -> tuple[dict[str, Any], tuple[int, int] | None]:
    from vit_jax.models import mixer

    patch, _, _, width = flat["embedding/kernel"].shape
    tokens, token_mlp = flat["block_0/token_mlp/up/kernel"].shape
    mlp = flat["block_0/channel_mlp/up/kernel"].shape[1]
    sizes = (width, _count(flat, r"block_\d+/"), mlp, token_mlp)
    settings: dict[str, Any] = dict(zip(("width", "depth", "mlp", "token_mlp"), sizes, strict=True))
    settings["variant"] = f"Mixer-{_named(mixer.SIZES, sizes)}/{patch}"
    return settings, _size(tokens, patch, image_size)


def _backbone(flat: Mapping[str, np.ndarray]) -> dict[str, Any]:
    side, _, _, width = flat["backbone/conv_root/kernel"].shape
    if side != 7:
        raise BadInput(
            f"the first convolution is {side} x {side}; a file does not say the stride of a small "
            "stem: keep such models as runs."
        )
    numbers = {int(m[1]) for m in (re.match(r"backbone/stage(\d+)_", name) for name in flat) if m}
    if numbers != set(range(1, len(numbers) + 1)):
        raise BadInput(f"the weights have stages {sorted(numbers)[:6]}; expected 1, 2 and so on.")
    stages = tuple(_count(flat, rf"backbone/stage{s}_unit\d+/") for s in range(1, len(numbers) + 1))
    return {"stages": stages, "root_width": width}


def _resnet_name(stages: tuple[int, ...]) -> str:
    """Returns the N of ResNet-N; also if the third of three stages holds the units of a fourth."""
    from vit_jax.models import resnet

    for number, units in resnet.STAGES.items():
        if stages in (units, (*units[:2], units[2] + units[3])):
            return str(number)
    return ""


def check_square(name: str, cfg: "variants.Config", size: tuple[int, int] | None) -> None:
    """Raises BadInput if readers of a file in a format would take oblong images for square ones."""
    if size is None:
        return
    rows, columns = cfg.patch_grid(*size)
    square = math.isqrt(rows * columns) ** 2 == rows * columns  # a number that files mean as such
    if rows != columns and cfg.TILED and (name in ("timm", "hf") or square):
        raise BadInput(
            f"{name}: a file of {rows} x {columns} patches would be taken for a square image; keep "
            "it as a run."
        )


def _size(
    count: int, stride: int, known: tuple[int, int] | None, *, offsets: bool = False
) -> tuple[int, int] | None:
    """Returns the image size for a number of patches: the known one if it fits, else a square.

    `offsets` is whether offsets between two patches were counted instead.
    """
    from vit_jax.models import attention

    side = attention.side_of(count) if offsets else math.isqrt(count)
    square = (side * stride, side * stride) if side and (offsets or side**2 == count) else None
    if known:
        rows, columns = known[0] // stride, known[1] // stride
        if count == ((2 * rows - 1) * (2 * columns - 1) if offsets else rows * columns):
            return known
        what = f"{count} offsets between two patches" if offsets else f"{count} patches"
        what += f" in {square[0]} x {square[1]} pixels" if offsets and square else ""
        raise BadInput(
            f"the weights are for {what}, and their configuration says that images are "
            f"{known[0]} x {known[1]}; put the right one beside them, or none."
        )
    return square
