# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads and writes the config.json of timm and Hugging Face, for what weight files do not say.

Constants that neither format can express are stored under the key `vit_jax`. Start from `read`;
a `Format` names the function that writes.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput, unknown

if TYPE_CHECKING:
    from vit_jax.models.bit import BiTConfig
    from vit_jax.models.mixer import MixerConfig
    from vit_jax.models.vit import ViTConfig

NAME = "config.json"
PREPROCESSOR = "preprocessor_config.json"
OWN = "vit_jax"  # key of our constants
_TIMM_GELU = {"gelu": "erf", "gelu_tanh": "tanh"}
_HF_GELU = {"gelu": "erf", "gelu_pytorch_tanh": "tanh", "gelu_new": "tanh"}
# Properties of timm's architectures that neither weights nor model_args tell.
_TIMM_TANH = re.compile(
    r"vit_(base_patch32_siglip(_gap)?_256|large_patch16_siglip(_gap)?_512"
    r"|(so400m|giantopt)_patch16_siglip(_gap)?_\d+)"
)
_TIMM_HEADS = {"vit_base_patch16_gap_224": 16}
_POOLS = {"token": "token", "avg": "gap", "map": "map"}
_LONGEST_SIDE = 65535  # pixels
_OWN_WORDS = ("gelu", "ws_epsilon_in", "root_pool")
_OWN_NUMBERS = ("ln_epsilon", "gn_epsilon", "ws_epsilon")
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
      sigmoid: whether each class has an independent probability; otherwise classes are exclusive.
    """

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    interpolation: str = "bilinear"
    shorter_side: int = 0
    names: tuple[str, ...] = ()
    antialias: bool | None = False
    sigmoid: bool = False


def read(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Reads `heads`, `image_size` (rows, columns), constants and sizes from a config.json.

    It also reads the class `names` by label, if present, and `sigmoid` if each class has an
    independent probability.

    Args:
      name: timm or hf.
      content: the JSON object; {} if the file is absent.

    Raises:
      BadInput: an activation is one that our models do not have, or a value has a wrong type.
    """
    try:
        facts = _read_timm(content) if name == "timm" else _read_hf(content)
        own = dict(content.get(OWN, {}))
        for key, value in own.items():
            if not (key in _OWN_WORDS and isinstance(value, str)) and key not in _OWN_NUMBERS:
                raise ValueError(f"{OWN}.{key}={value!r}")
        own |= {key: _number(own, key, float) for key in _OWN_NUMBERS if key in own}
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as e:
        raise BadInput(f"{NAME} of the weights is not understood: {e}; repair or remove it.") from e
    return facts | own


def _read_timm(content: Mapping[str, Any]) -> dict[str, Any]:
    args = content.get("model_args", {})
    name = str(content.get("architecture", "")).partition(".")[0]
    keys = {"num_heads": "heads", "embed_dim": "width", "depth": "depth", "reg_tokens": "registers"}
    facts: dict[str, Any] = {ours: _number(args, k, int) for k, ours in keys.items() if args.get(k)}
    if name in _TIMM_HEADS:
        facts.setdefault("heads", _TIMM_HEADS[name])
    if args.get("act_layer"):
        facts["gelu"] = _gelu("act_layer", args["act_layer"], _TIMM_GELU)
    elif _TIMM_TANH.fullmatch(name):
        facts["gelu"] = "tanh"
    pool = args.get("global_pool") or content.get("global_pool")
    if pool:
        facts["pool"] = _POOLS.get(pool, pool)
    facts["pool_include_prefix"] = bool(args.get("pool_include_prefix"))
    if content.get("label_names"):
        facts["names"] = _names(content["label_names"])
    size = content.get("pretrained_cfg", content).get("input_size", ())[1:]
    return facts | _size(args.get("img_size") or size)


def _read_hf(content: Mapping[str, Any]) -> dict[str, Any]:
    keys = {"num_attention_heads": "heads", "hidden_size": "width", "num_hidden_layers": "depth"}
    keys |= {"intermediate_size": "mlp"}
    facts: dict[str, Any] = {
        ours: _number(content, k, int) for k, ours in keys.items() if k in content
    }
    for key, value in (("model_type", "vit"), ("pooler_act", "tanh")):
        if content.get(key, value) != value:
            raise unknown(f"{key} in {NAME}", str(content[key]), [value])
    if "hidden_act" in content:
        facts["gelu"] = _gelu("hidden_act", content["hidden_act"], _HF_GELU)
    if "layer_norm_eps" in content:
        facts["ln_epsilon"] = float(_number(content, "layer_norm_eps", float, int))
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


# The functions below are for `name_table.Format.beside`. They take the model, the pixels per side
# of its images, its constants as fields of `variants.Settings`, and the description of images.


def hf_vit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON files beside weights for transformers' ViT."""
    if cfg.backbone or cfg.pool != "token":
        raise BadInput("hf: transformers' ViT has a class token and no backbone; use timm or npz.")
    if cfg.classes and cfg.representation:
        raise BadInput(
            "hf: no transformers model has a head after pre-logits; write npz or big_vision."
        )
    if cfg.representation not in (0, cfg.width):
        raise BadInput(
            f"hf: pre-logits have the width of the tokens, {cfg.width}; write npz or big_vision."
        )
    return {
        NAME: _write_hf(cfg, image_size, images) | {OWN: constants},
        PREPROCESSOR: _hf_images(image_size, images),
    }


def _write_hf(cfg: "ViTConfig", image_size: int, images: Images) -> dict[str, Any]:
    names = images.names or tuple(f"LABEL_{i}" for i in range(cfg.classes))
    several = cfg.classes and images.sigmoid
    return {
        "architectures": ["ViTForImageClassification" if cfg.classes else "ViTModel"],
        "model_type": "vit",
        "hidden_size": cfg.width,
        "num_hidden_layers": cfg.depth,
        "num_attention_heads": cfg.heads,
        "intermediate_size": cfg.mlp,
        "hidden_act": {"erf": "gelu", "tanh": "gelu_pytorch_tanh"}[cfg.gelu],
        "layer_norm_eps": cfg.ln_epsilon,
        "image_size": image_size,
        "patch_size": cfg.patch,
        "num_channels": 3,
        "qkv_bias": True,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pooler_output_size": cfg.width,
        "pooler_act": "tanh",
        "id2label": {str(i): label for i, label in enumerate(names)},
        "label2id": {label: i for i, label in enumerate(names)},
        **({"problem_type": SEVERAL} if several else {}),
    }


def _hf_images(image_size: int, images: Images) -> dict[str, Any]:
    sides: dict[str, Any] = {"height": image_size, "width": image_size}
    resized: dict[str, Any] = {"size": sides}
    if images.shorter_side:
        resized = {"size": {"shortest_edge": images.shorter_side}}
        resized |= {"do_center_crop": True, "crop_size": sides}
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        **resized,
        "resample": FILTERS.index(images.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(images.mean),
        "image_std": list(images.std),
    }


# Stages -> the timm model that has them; its widths and depths are arguments.
_TIMM_HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
_TIMM_EPSILONS = {
    "ln_epsilon": (1e-12, 1e-6),
    "gn_epsilon": (1e-6, 1e-5),
    "ws_epsilon": (1e-10, 1e-5),
}
_TIMM_BIT = ((50, 1), (50, 3), (101, 1), (101, 3), (152, 2), (152, 4))


def timm_mixer(
    cfg: "MixerConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's Mixer."""
    from vit_jax.models import mixer

    _check_timm_epsilons(constants)
    sizes = (cfg.width, cfg.depth, cfg.mlp, cfg.token_mlp)
    name = next((n.lower() for n, named in mixer.SIZES.items() if named == sizes), None)
    if name is None or cfg.gelu != "erf" or cfg.patch not in (16, 32):
        raise BadInput("timm's Mixers are S, B and L /16 and /32 with erf GELU; write npz.")
    architecture, args = f"mixer_{name}{cfg.patch}_224", {"img_size": image_size}
    return _timm(architecture, args, cfg.width, cfg.classes, image_size, constants, images)


def timm_bit(
    cfg: "BiTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's BiT."""
    from vit_jax.models import resnet

    _check_timm_epsilons(constants)
    named = {(resnet.STAGES[n], 64 * w): f"resnetv2_{n}x{w}_bit" for n, w in _TIMM_BIT}
    key = (cfg.resnet.stages, cfg.resnet.width)
    if key not in named or cfg.resnet.root_pool != "zero":
        raise BadInput(f"timm has no such BiT; it has {', '.join(named.values())}; write npz.")
    features = cfg.resnet.features
    return _timm(named[key], {}, features, cfg.classes, image_size, constants, images)


def _timm(
    architecture: str,
    args: dict[str, Any],
    features: int,
    classes: int,
    image_size: int,
    constants: dict[str, Any],
    images: Images,
) -> dict[str, dict[str, Any]]:
    content = {
        "architecture": architecture,
        "num_classes": classes,
        "num_features": features,
        "model_args": args,
        **({"label_names": list(images.names)} if images.names else {}),
        "pretrained_cfg": {
            "input_size": [3, image_size, image_size],
            "interpolation": images.interpolation,
            **_timm_crop(image_size, images.shorter_side),
            "mean": list(images.mean),
            "std": list(images.std),
            "num_classes": classes,
        },
    }
    return {NAME: content | {OWN: constants}}


def _timm_crop(image_size: int, shorter_side: int) -> dict[str, Any]:
    if not shorter_side:
        return {"crop_pct": 1.0, "crop_mode": "squash"}
    share = image_size / shorter_side
    if math.floor(image_size / share) < shorter_side:  # timm recomputes it like this
        share = math.nextafter(share, 0)
    return {"crop_pct": share, "crop_mode": "center"}


def _check_timm_epsilons(constants: dict[str, Any]) -> None:
    """Raises BadInput for epsilons that are not near timm's own; those of published weights are."""
    for key, (low, high) in _TIMM_EPSILONS.items():
        if key in constants and not low <= constants[key] <= high:
            raise BadInput(
                f"timm: {key}={constants[key]} is not what its models compute with, nor near to "
                "it; keep the model as a run."
            )


def timm_vit(
    cfg: "ViTConfig", image_size: int, constants: dict[str, Any], images: Images
) -> dict[str, dict[str, Any]]:
    """Returns the JSON file beside weights for timm's ViT or hybrid."""
    _check_timm_epsilons(constants)
    if cfg.representation:
        raise BadInput("timm's ViT has no pre-logits layer; export it as npz or big_vision.")
    architecture = "vit_base_patch16_224"
    if cfg.backbone is not None:
        if cfg.backbone.stages not in _TIMM_HYBRIDS or cfg.backbone.width != 64:
            raise BadInput(
                f"timm has no hybrid with stages {cfg.backbone.stages} and a root of "
                f"{cfg.backbone.width} channels; it has {list(_TIMM_HYBRIDS)} with 64; write npz."
            )
        architecture = _TIMM_HYBRIDS[cfg.backbone.stages]
    args = {
        "img_size": image_size,
        "patch_size": cfg.patch,
        "embed_dim": cfg.width,
        "depth": cfg.depth,
        "num_heads": cfg.heads,
        "mlp_ratio": (cfg.mlp + 0.5) / cfg.width,  # timm rounds the product down
        "class_token": cfg.pool == "token",
        "global_pool": {"token": "token", "gap": "avg", "map": "map"}[cfg.pool],
        "fc_norm": False,
        "reg_tokens": cfg.registers,
        "no_embed_class": bool(cfg.registers),
        "pos_embed": "learn",
        "act_layer": {"erf": "gelu", "tanh": "gelu_tanh"}[cfg.gelu],
    }
    return _timm(architecture, args, cfg.width, cfg.classes, image_size, constants, images)
