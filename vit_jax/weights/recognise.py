# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Recognises the format of a weights file by the names of its tensors.

Start from `format_of`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_jax.config.plugins import Registry
from vit_jax.errors import BadInput
from vit_jax.weights.formats import json_config, name_table
from vit_jax.weights.formats.name_table import Context, Flat, Format

# Suffix of a file -> the formats that such a file may have.
FORMATS = Registry(
    {
        ".npz": "vit_jax.weights.formats.npz:FORMATS",
        ".safetensors": "vit_jax.weights.formats.safetensors:FORMATS",
    }
)
SUFFIX = {"npz": ".npz", "big_vision": ".npz", "timm": ".safetensors", "hf": ".safetensors"}
NAMES = tuple(SUFFIX)

# Tensors that only say where things are, in any format.
IGNORED = re.compile(r".*\.position_ids|.*relative_position_index")

# Pattern of a tensor -> words for a part that our models lack.
_PARTS: tuple[tuple[str, str], ...] = (
    (r".*/ls[12]/.*", "LayerScale in npz"),
    (r".*/(query|key)_(ln|norm)/.*", "qk-norm in npz"),
    (r".*rel_pos.*|.*relative_position.*", "this kind of relative position"),
    (r".*\.attn\.norm\..*|.*inner_attn_ln.*", "a norm inside attention"),
    (r"rope\..*|.*rope_embed.*|.*\.freqs", "this kind of rotary positions"),
    (r"norm\.(weight|bias)", "a norm before the pool (global_pool=token) in this family"),
    (r"head\.(cls_token|k_proj|v_proj|output_proj).*", "the pooling head of AIMv2"),
)
_NO_LAST_NORM = "no norm after the blocks"
# Pattern of an architecture of timm -> what it has that ours do not and that no tensor shows.
_REFUSED: tuple[tuple[str, str], ...] = (
    (r"eva02_enormous_.*|vit_.*_rpn_.*", "a norm after each branch"),
    (r"vit_.*_rope_.*", "other rotary positions"),
    (r"eva02_.*_clip_.*", "a norm inside attention"),
    (r"vit_pe_(lang|spatial)_.*", _NO_LAST_NORM),
    (r"eva_giant_.*", "learned positions with separate biases of queries and values"),
    (r"vit_.*_lingbot.*|.*sapiens2.*", "an attention of another kind"),
    (r"test_vit3", "a pool that reads registers"),
    (r"(naflex)?vit_.*_radio_.*|vit_intern300m_.*", _NO_LAST_NORM),
)


def format_of(
    path: Path, arrays: Flat, content: Mapping[str, Any], own: tuple[Format, ...] = ()
) -> Format:
    """Returns the format that knows all names, with the fewest in an older spelling.

    Args:
      path: for its suffix, and for messages.
      arrays: the tensors of the file.
      content: the config.json beside it; {} without one.
      own: formats of a user's own model for files of any suffix.

    Raises:
      BadInput: no format knows them; the message names those unknown to the nearest format.
    """
    if not arrays:
        raise BadInput(f"{path} is not a known model; unknown names: no arrays.")

    told = content.get("model_type", "")
    architecture = str(content.get("architecture", "")).partition(".")[0]

    def cost(form: Format) -> tuple[int, bool, bool, int]:
        lost = len(_unknown(form, arrays))
        spelled = sum(form.canonical(name) != name for name in arrays)
        other = bool(told and form.kinds and told not in form.kinds)
        other |= re.fullmatch(form.architectures or ".*", architecture) is None
        return lost, not form.fits(arrays), other, spelled

    best: Format = min((*own, *FORMATS[path.suffix]), key=cost)
    if path.suffix == ".safetensors":
        _check_architecture(path, content)
    if missed := _unknown(best, arrays):
        raise BadInput(_not_known(path, best, arrays, missed, content))
    return best


def _check_architecture(path: Path, content: Mapping[str, Any]) -> None:
    """Raises BadInput for an architecture of timm whose tensors do not show what it has."""
    name = str(content.get("architecture", "")).partition(".")[0]
    refused = next((words for p, words in _REFUSED if re.fullmatch(p, name)), "")
    args = content.get("model_args")
    if isinstance(args, Mapping) and args.get("final_norm") is False:
        refused = _NO_LAST_NORM
    if refused:
        raise BadInput(f"{path}: architecture {name} is not read: it has {refused}.")


def check_kind(path: Path, form: Format, kind: str, content: Mapping[str, Any]) -> None:
    """Raises BadInput if a config.json says that the tensors of a format are of another model."""
    _check_library(path, form, content)
    if not kind or not form.kinds or kind in form.kinds:
        return
    nearest = " or ".join(form.kinds)
    if any(kind in other.kinds for other in FORMATS[path.suffix]):
        raise BadInput(
            f"{path}: its tensors are those of {nearest}, its {json_config.NAME} says "
            f"model_type={kind}; put the right one beside it, or none."
        )
    raise BadInput(
        f"{path}: its {json_config.NAME} says model_type={kind}, which is not a family that is "
        f"read; the nearest by its tensors is {nearest}. docs/models.md lists the families."
    )


def _check_library(path: Path, form: Format, content: Mapping[str, Any]) -> None:
    """Raises BadInput if the config.json beside a file is that of the other library."""
    key, other = {"timm": ("architecture", "model_type"), "hf": ("model_type", "architecture")}.get(
        form.name, ("", "")
    )
    if other in content and key not in content:
        raise BadInput(
            f"{path}: its tensors have the names of {form.name}, its {json_config.NAME} is of "
            f"another library: it has {other}={content[other]} and no {key}; put the right one "
            "beside it, or none."
        )


def check_described(
    path: Path, form: Format, settings: dict[str, Any], described: dict[str, Any]
) -> None:
    """Raises BadInput if a file and the configuration beside it belong to two different models."""
    for key in described.keys() & settings.keys():
        if described[key] != settings[key]:
            raise BadInput(
                f"{path}: its weights have {key}={settings[key]}, its {json_config.NAME} says "
                f"{described[key]}; put the right one beside it, or none."
            )
    if form.name == "hf" and settings["classes"] and settings["representation"]:
        raise BadInput(f"{path}: no transformers model has a head after its pooler; drop one.")
    with_class = settings.get("class_token") and settings["pool"] == "map"
    if with_class and form.name == "timm" and not form.architectures:
        raise BadInput(
            f"{path}: its attention pool leaves the class token out, and ours reads it; keep a "
            "model without a class token."
        )
    if described.get("pool_include_prefix"):
        raise BadInput(f"{path}: pool_include_prefix; our models leave registers out of the pool.")


def _unknown(form: Format, arrays: Flat) -> list[str]:
    return [n for n in arrays if form.rule_for(n) is None and not form.drops(n)]


def _not_known(
    path: Path, best: Format, arrays: Flat, missed: list[str], content: Mapping[str, Any]
) -> str:
    """Returns what was recognised, which tensors stand in the way, and the nearest family."""
    told = content.get("architecture") or content.get("model_type")
    known = len(arrays) - len(missed)
    family = " or ".join(best.kinds) or best.family
    nearest = f"{best.name} file of {'an' if family[0] in 'aeiou' else 'a'} {family} model"
    kind = nearest if known else "model"
    parts = dict.fromkeys(
        words for pattern, words in _PARTS for name in missed if re.fullmatch(pattern, name)
    )
    says = f" Its {json_config.NAME} says {told}." if told else ""
    lacks = f" Our models do not have {', '.join(parts)}." if parts else ""
    shown = f"{', '.join(missed[:6])}{' ...' if len(missed) > 6 else ''}"
    return (
        f"{path} is not a known {kind}; unknown names: {shown} ({known} of {len(arrays)} tensors "
        f"are known).{lacks}{says} docs/models.md lists the families that are read."
    )


def context(form: Format, arrays: Flat, heads: int, image_size: tuple[int, int] | None) -> Context:
    """Returns what the table's operations need.

    Heads come from the argument or a variant's sizes.
    """
    ours = {
        name_table.render(template, values): a
        for name, a in arrays.items()
        for rule, values in [form.rule_for(name) or (None, {})]
        if rule is not None
        for template in rule.ours[:1]
    }
    patches = 0
    if image_size and form.family == "vit" and "embedding/kernel" in ours:
        side = ours["embedding/kernel"].shape[-1]  # as stored: [out, in, side, side]
        stages = {m[0] for m in (re.match(r"backbone/stage\d+", n) for n in ours) if m}
        root = 4 if "backbone/conv_root/kernel" in ours else 1
        stride = side * root * 2 ** max(0, len(stages) - 1)
        patches = (image_size[0] // stride) * (image_size[1] // stride)
    if form.family == "vit" and SUFFIX[form.name] == ".safetensors":
        width = _width(ours)
        by_family = width // form.head_dim if form.head_dim else 0
        heads = heads or by_family or _heads_of_variant(ours)
        if not 0 < heads <= width or width % heads:
            raise BadInput(f"heads={heads} do not divide the width {width} of the weights.")
    return Context(heads, ("cls" in ours) + ("dist" in ours), patches)


def _width(ours: Flat) -> int:
    return ours["embedding/kernel"].shape[0] if "embedding/kernel" in ours else 0


def _heads_of_variant(ours: Flat) -> int:
    depth = len({m[0] for m in (re.match(r"block_\d+/", name) for name in ours) if m})
    mlp = ours["block_0/mlp/up/kernel"].shape[0] if "block_0/mlp/up/kernel" in ours else 0
    width = _width(ours)
    from vit_jax.models import vit

    for name, (*sizes, heads) in vit.SIZES.items():
        if sizes == [width, depth, mlp] and name != "b":  # has S's sizes; no weights were published
            return heads
    raise BadInput(
        f"the file does not say how many attention heads there are, and no variant has width "
        f"{width}, depth {depth} and MLP {mlp}; put its config.json beside it, or give heads= "
        "(--heads, --config.model.heads)."
    )
