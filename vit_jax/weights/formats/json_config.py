# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the config.json of timm and Hugging Face, for what weight files do not say.

Constants that neither format can express are stored under the key `vit_jax`. Start from `read`;
`beside` writes them.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, get_args

from vit_jax.config.model_section import NaFlexFilter
from vit_jax.errors import BadInput, unknown

NAME = "config.json"
PREPROCESSOR = "preprocessor_config.json"
OWN = "vit_jax"  # key of our constants
TIMM_GELU = {"gelu": "erf", "gelu_tanh": "tanh", "quick_gelu": "quick"}
HF_GELU = {"gelu": "erf", "gelu_pytorch_tanh": "tanh", "gelu_new": "tanh", "quick_gelu": "quick"}
# Settings of families, whatever the sizes.
SCALE = 1e-5  # start of LayerScale, which weights replace
DINOV3: dict[str, Any] = {
    "posemb": "none", "rope": "axial", "rope_base": 100.0, "rope_coordinates": "unit",
    "layer_scale": SCALE,
}  # fmt: skip
# Properties of timm's architectures that neither weights nor model_args tell.
_TIMM_TANH = re.compile(
    r"vit_(base_patch32_siglip(_gap)?_256|large_patch16_siglip(_gap)?_512"
    r"|(so400m|giantopt)_patch16_siglip(_gap)?_\d+)"
)
# Pattern of an architecture of timm -> settings that its tensors do not tell.
_TIMM_FACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"vit_.*_clip_.*", {"ln_epsilon": 1e-5}),
    (r"vit_.*_clip_quickgelu_.*", {"gelu": "quick"}),
    (r"naflexvit_.*_siglip", {"gelu": "tanh"}),
    (r"aimv2_.*", {"ln_epsilon": 1e-5, "norm": "rms"}),
    (r"vit_.*_(dinov3|eupe)(_.*)?", {"ln_epsilon": 1e-5}),
    (r"vit_pe_core_(tiny|small|large)_.*", {"rope_grid": 24}),
    (r"vit_pe_core_base_.*", {"rope_grid": 14}),
    (r"vit_pe_core_gigantic_.*", {"rope_grid": 32, "rope_coordinates": "index"}),
)
_TIMM_HEADS = {"vit_base_patch16_gap_224": 16, "vit_7b_patch16_dinov3": 32}
_TIMM_HEADS |= {"vit_pe_core_gigantic_patch14_448": 16}
_TIMM_HEADS |= {f"naflexvit_so150m2_patch16_reg1_{pool}": 13 for pool in ("gap", "map")}
_POOLS = {"token": "token", "avg": "gap", "map": "map"}
_LONGEST_SIDE = 65535  # pixels
# Arguments of timm's rotary positions that change outputs -> those of our models.
_TIMM_ROPE = {
    "rope_type": "dinov3", "rope_rotate_half": True, "rope_grid_indexing": "ij",
    "rope_grid_offset": 0.0, "rope_mrope_section": None,
}  # fmt: skip
_TIMM_ROPE_TRAINING = ("rope_shift_coords", "rope_jitter_coords", "rope_rescale_coords")
# Names of timm whose class NaFlexVit has rotary positions, which no tensor shows.
_TIMM_NAFLEX_ROTARY = re.compile(r"(eva|vit_pe_|beit).*|vit_.*_(dinov3|eupe|rope)(_.*)?")
# Arguments of timm's NaFlexVit that change outputs -> the values of our models.
_TIMM_NAFLEX: dict[str, tuple[Any, ...]] = {
    "pos_embed_align_corners": (None, False),
    "pos_embed_use_grid_sample": (None, False),
    "patchify_channels_last": (None, True),
    "rope_type": (None, "", "none"),
    "attn_pool_num_heads": (None,),
}
_OWN_WORDS = ("gelu", "ws_epsilon_in", "root_pool")
_OWN_NUMBERS = ("ln_epsilon", "gn_epsilon", "ws_epsilon")
OWN_CONSTANTS = (*_OWN_WORDS, *_OWN_NUMBERS)
SEVERAL = "multi_label_classification"  # transformers' problem_type for sigmoid
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's number


@dataclasses.dataclass(frozen=True)
class Images:
    """Description of images and classes in an export; the defaults are the original preprocessing.

    Attributes:
      mean: mean per channel, of values in [0, 1].
      std: standard deviation, likewise.
      interpolation: one of `FILTERS`.
      shorter_side: pixels to resize the shorter side to before the central crop; 0 resizes straight
        to the model's size.
      names: names of the classes, by label; () if unknown.
      antialias: whether shrinking averages over pixels; None if nothing is resized.
      patches: patches of an image of any aspect ratio, at most; 0: as many as the model has
        positions.
      sigmoid: whether each class has an independent probability; otherwise classes are exclusive.
    """

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    interpolation: str = "bilinear"
    shorter_side: int = 0
    names: tuple[str, ...] = ()
    antialias: bool | None = False
    patches: int = 0
    sigmoid: bool = False


def read(name: str, content: Mapping[str, Any], *, naflex: bool = False) -> dict[str, Any]:
    """Reads `heads`, `image_size` (rows, columns), constants and sizes from a config.json.

    `silu` is True if the activation is SiLU; `gelu` is its form of GELU otherwise.

    It also reads the class `names` by label, if present, and `sigmoid` if each class has an
    independent probability.

    Args:
      name: timm or hf.
      content: the JSON object; {} if the file is absent.
      naflex: whether the model is timm's NaFlexVit, or SigLIP 2 NaFlex.

    Raises:
      BadInput: an activation or an option of rotary positions is one that our models do not have,
        or a value has a wrong type.
    """
    try:
        facts = _read_timm(content, naflex) if name == "timm" else _read_hf(content)
        own = dict(content.get(OWN, {}))
        for key, value in own.items():
            if not (key in _OWN_WORDS and isinstance(value, str)) and key not in _OWN_NUMBERS:
                raise ValueError(f"{OWN}.{key}={value!r}")
        own |= {key: _number(own, key, float) for key in _OWN_NUMBERS if key in own}
    except BadInput:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as e:
        raise BadInput(f"{NAME} of the weights is not understood: {e}; repair or remove it.") from e
    return facts | own


def _read_timm(content: Mapping[str, Any], naflex: bool) -> dict[str, Any]:
    args = content.get("model_args", {})
    name = str(content.get("architecture", "")).partition(".")[0]
    keys = {"num_heads": "heads", "embed_dim": "width", "depth": "depth", "reg_tokens": "registers"}
    keys |= {"num_reg_tokens": "registers"}
    facts: dict[str, Any] = {ours: _number(args, k, int) for k, ours in keys.items() if args.get(k)}
    if name in _TIMM_HEADS:
        facts.setdefault("heads", _TIMM_HEADS[name])
    if reference := args.get("ref_feat_shape"):
        sides = {reference} if isinstance(reference, int) else set(reference)
        if len(sides) != 1:
            raise ValueError(f"ref_feat_shape={reference!r}")
        facts["rope_grid"] = sides.pop()
    if "rope_temperature" in args:
        facts["rope_base"] = float(_number(args, "rope_temperature", float, int))
    rotary = [] if naflex else [k for k in args if k.startswith("rope_")]
    for key in [k for k in rotary if k not in _TIMM_ROPE_TRAINING]:
        if key != "rope_temperature" and args[key] != _TIMM_ROPE.get(key):
            raise BadInput(
                f"{NAME}: {key}={args[key]!r} of model_args; our models have "
                f"{_TIMM_ROPE.get(key)!r}, so this one is not read."
            )
    if args.get("act_layer"):
        facts["gelu"] = _gelu("act_layer", args["act_layer"], TIMM_GELU)
    elif _TIMM_TANH.fullmatch(name):
        facts["gelu"] = "tanh"
    pool = args.get("global_pool") or content.get("global_pool")
    if pool:
        facts["pool"] = _POOLS.get(pool, pool)
    for pattern, settings in _TIMM_FACTS:
        if re.fullmatch(pattern, name):
            facts = settings | facts
    facts |= _read_naflex(name, args) if naflex else {}
    facts["pool_include_prefix"] = bool(args.get("pool_include_prefix"))
    if content.get("label_names"):
        facts["names"] = _names(content["label_names"])
    size = content.get("pretrained_cfg", content).get("input_size", ())[1:]
    return facts | _size(args.get("img_size") or size)


def _read_naflex(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how timm's NaFlexVit resizes its table of positions.

    Raises:
      BadInput: an architecture or argument that our models do not have.
    """
    if _TIMM_NAFLEX_ROTARY.fullmatch(name):
        raise BadInput(
            f"{NAME}: {name} as NaFlexVit has rotary positions; our models with naflex have a "
            "table, so this one is not read."
        )
    for key, values in _TIMM_NAFLEX.items():
        if args.get(key) not in values:
            raise BadInput(
                f"{NAME}: {key}={args[key]!r} of model_args; our models with naflex have "
                f"{values[-1]!r}, so this one is not read."
            )
    usual = re.fullmatch(r"naflexvit_.*?_(siglip|(par)?(fac)?_?gap)", name)
    siglip, square, factored = (usual[1] == "siglip", usual[2], usual[3]) if usual else (False,) * 3
    by = args.get("pos_embed_interp_mode") or ("bilinear" if siglip else "bicubic")
    if args.get("pos_embed", "factorized" if factored else "learned") == "factorized":
        by = "linear"
    elif args.get("pos_embed_antialias") is False:
        if by != "bilinear":
            raise BadInput(
                f"{NAME}: pos_embed_interp_mode={by} with pos_embed_antialias=False; our models "
                "resize positions without means by bilinear alone, so this one is not read."
            )
        by = "linear"
    if by not in get_args(NaFlexFilter):
        raise unknown(f"pos_embed_interp_mode in {NAME}", str(by), ["bilinear", "bicubic"])
    square = args.get("pos_embed_ar_preserving", bool(square))
    return {"naflex_filter": by, "naflex_square": bool(square)}


def _read_hf(content: Mapping[str, Any]) -> dict[str, Any]:
    content = {**content, **content.get("vision_config", {})}
    keys = {"num_attention_heads": "heads", "hidden_size": "width", "num_hidden_layers": "depth"}
    keys |= {"intermediate_size": "mlp", "num_register_tokens": "registers"}
    facts: dict[str, Any] = {
        ours: _number(content, k, int) for k, ours in keys.items() if k in content
    }
    if content.get("pooler_act", "tanh") != "tanh":
        raise unknown(f"pooler_act in {NAME}", str(content["pooler_act"]), ["tanh"])
    if content.get("hidden_act") == "silu":
        facts["silu"] = True
    elif "hidden_act" in content:
        facts["gelu"] = _gelu("hidden_act", content["hidden_act"], HF_GELU)
    numbers = {"layer_norm_eps": "ln_epsilon", "rms_norm_eps": "ln_epsilon"}
    for key, ours in (numbers | {"rope_theta": "rope_base"}).items():
        if key in content:
            facts[ours] = float(_number(content, key, float, int))
    if "num_patches" in content:
        facts["naflex"] = math.isqrt(_number(content, "num_patches", int))
    labels = {int(number): name for number, name in (content.get("id2label") or {}).items()}
    if any(name != f"LABEL_{number}" for number, name in labels.items()):  # placeholder names
        facts["names"] = _names([labels[number] for number in range(len(labels))])
    if content.get("problem_type") == SEVERAL:
        facts["sigmoid"] = True
    return facts | _size(content.get("image_size", ()))


def _names(names: Any) -> tuple[str, ...]:
    """Checks and returns names of classes, which may be numbers."""
    if type(names) is not list or not all(type(name) in (str, int) for name in names):
        raise ValueError("class names that are not a list of text")
    return tuple(map(str, names))


def _number(content: Mapping[str, Any], key: str, *kinds: type) -> Any:
    if type(content[key]) not in kinds or not 0 < content[key] < math.inf:
        raise ValueError(f"{key}={content[key]!r}")
    return content[key]


def _size(size: Any) -> dict[str, tuple[int, int]]:
    if not size:
        return {}
    rows, columns = (size, size) if isinstance(size, int) else size
    if not (0 < rows <= _LONGEST_SIDE and 0 < columns <= _LONGEST_SIDE):
        raise ValueError(f"images of {rows} x {columns}")
    return {"image_size": (int(rows), int(columns))}


def _gelu(key: str, value: Any, table: dict[str, str]) -> str:
    if value not in table:
        raise unknown(f"activation in {key} of {NAME}", str(value), table)
    return table[value]


def name_of(gelu: str, table: Mapping[str, str]) -> str:
    """Returns the foreign name of a form of GELU."""
    return next(name for name, ours in table.items() if ours == gelu)
