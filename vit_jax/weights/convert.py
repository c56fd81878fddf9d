# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Conversion of published weight files to this package's weights and back.

The names in a file tell its format. Values that a file lacks come from the config.json beside it or
from the user; they are never guessed. Start from `read` and `write`.
"""

import dataclasses
import functools
import logging
import re
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput, unknown
from vit_jax.models import posemb, variants
from vit_jax.weights import architecture, files, image_chains, image_settings, recognise
from vit_jax.weights.formats import json_config, name_table
from vit_jax.weights.formats.name_table import Context, Flat, Format
from vit_jax.weights.recognise import FORMATS, NAMES, SUFFIX

log = logging.getLogger("vit_jax")
ORIGINAL = json_config.Images()
_INSTEAD = "keep it as a run, or write another format."


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of a model, from any source.

    Attributes:
      flat: loop-layout names -> float32 arrays.
      format: npz, big_vision, timm, hf, or run.
      settings: fields of `variants.Settings` that the weights imply.
      classes: Y of their head; 0 without a head.
      image_size: rows and columns of pixels that the weights were made for; None if unknown.
      tensors: names in the file, without a common prefix -> (shape, dtype).
      images: description of the preprocessing: timm's pretrained_cfg, Hugging Face's
        preprocessor_config.json, or {}.
      names: names of the classes by label, if the config.json has them; those of a run are not
        read.
      sigmoid: whether the config.json says that each class has an independent probability.
      branch: for a run that began with the state of another run: WORKDIR@STEP of that run.
      own: the user's own model whose table of names the file has; `settings` are then empty.
      patch: the patch side to use the model with; 0: that of the weights.
      channels: channels of the images that the weights were made for.
      resize: how readers of the format resize position embeddings; see `posemb.resize`.
      kind: `model_type` of transformers; "" for other formats.
      trained: for a run that trained a part of the model: what, how much, and its base.
    """

    flat: Flat
    format: str
    settings: dict[str, Any]
    classes: int
    image_size: tuple[int, int] | None
    tensors: dict[str, tuple[tuple[int, ...], str]]
    images: dict[str, Any]
    names: tuple[str, ...] = ()
    sigmoid: bool = False
    branch: str = ""
    own: variants.Config | None = None
    patch: int = 0
    channels: int = 3
    resize: posemb.Resize = "aligned"
    kind: str = ""
    trained: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def config(self) -> variants.Config:
        """The configuration of the model that is used with these weights."""
        return self.stored.at_patch(self.patch) if self.patch else self.stored

    @property
    def stored(self) -> variants.Config:
        """The configuration of the model that has these weights."""
        if self.own is not None:
            return self.own.for_images(self.classes)
        return variants.config(classes=self.classes, **self.settings)


# ---------------------------------------------------------------- reading


def read(
    path: Path, *, heads: int = 0, shapes_only: bool = False, own: variants.Config | None = None
) -> Weights:
    """Reads the weights in a file.

    Args:
      path: .npz or .safetensors file; for the latter, the config.json beside it is read too.
      heads: number of attention heads, used only if neither the file nor its config.json tells it.
      shapes_only: whether to read no values (the arrays are then zeros).
      own: a user's own model, whose tables of names are tried too.

    Raises:
      BadInput: the file is damaged, has an unknown format or unknown parts (the message names
        them), or lacks a value that the user must give.
    """
    arrays = files.read(path, shapes_only=shapes_only)
    if path.suffix == ".npz":
        arrays = _prefixed(arrays)
    tensors = {name: (tuple(a.shape), str(a.dtype)) for name, a in arrays.items()}
    arrays = {n: array for n, array in arrays.items() if not recognise.IGNORED.fullmatch(n)}
    if path.suffix == ".npz":
        _check_floats(path, arrays)  # before they are split under other names
        arrays = layers(arrays)
    own_formats = own.weight_formats if own is not None else ()
    content = files.read_json(path.with_name(json_config.NAME)) if _has_json(path) else {}
    form = recognise.format_of(path, arrays, content, own_formats)
    arrays = {name: array for name, array in arrays.items() if not form.drops(name)}
    _check_floats(path, arrays)
    if form in own_formats:
        flat = _float32(name_table.read(form, arrays, Context(heads)), shapes_only)
        return Weights(flat, form.name, {}, head_classes(flat), None, tensors, {}, own=own)
    described, images = _beside(path, form, content)
    size, described_heads = described.pop("image_size", None), described.pop("heads", 0)
    names, sigmoid = described.pop("names", ()), described.pop("sigmoid", False)
    pool = described.pop("pool", "")
    kind = str(content.get("model_type", "") or "".join(form.kinds[:1]))
    recognise.check_kind(path, form, kind, content)
    naflex = "naflex" in form.constants
    context = recognise.context(form, arrays, described_heads or heads, None if naflex else size)
    flat = _float32(name_table.read(form, arrays, context), shapes_only)
    flat = form.after_read(flat, context.patches)
    settings, size = architecture.settings_of(form.family, flat, size, naflex=naflex)
    constants = {key: described.get(key, value) for key, value in form.constants.items()}
    if "stages" not in settings:
        constants = {k: v for k, v in constants.items() if k[:3] not in ("gn_", "ws_")}
    silu = described.pop("silu", False)
    if form.family == "vit":
        settings |= _gelu_gate(path, form, settings, silu, described.get("gelu", ""))
        settings = _settled_vit(path, form, settings, constants, pool, "cls" in flat)
    else:
        settings = constants | settings
    recognise.check_described(path, form, settings, described)
    if form.name == "timm" and not content:
        _warn_of_assumptions(path, settings)
    if naflex and images and form.name == "hf":
        size = image_settings.canvas_size(images, flat["embedding/kernel"].shape[0]) or size
    return Weights(
        flat, form.name, settings, settings.pop("classes"), size, tensors, images, names, sigmoid,
        channels=architecture.channels(flat), resize=form.resize, kind=kind,
    )  # fmt: skip


def _has_json(path: Path) -> bool:
    return path.suffix == ".safetensors"


def _gelu_gate(
    path: Path, form: Format, settings: dict[str, Any], silu: bool, gelu: str
) -> dict[str, Any]:
    """Returns the settings of a gate with GELU; {} for other gates and without one.

    Args:
      path: for messages.
      form: the format.
      settings: what the tensors tell.
      silu: whether config.json says that the activation is SiLU.
      gelu: the form of GELU that config.json names, if any.

    Raises:
      BadInput: the activation is SiLU, and there is no gate.
    """
    gated = settings.get("gate", "none") != "none"
    if silu and not gated:
        raise BadInput(
            f"{path}: its {json_config.NAME} says hidden_act=silu, and its MLPs have no gate; our "
            "MLPs without a gate have GELU, so this model is not read."
        )
    return {"gate": "gelu", "gelu": gelu} if gated and form.tells_gate and gelu and not silu else {}


def _settled_vit(
    path: Path,
    form: Format,
    settings: dict[str, Any],
    constants: dict[str, Any],
    pool: str,
    has_class: bool,
) -> dict[str, Any]:
    """Returns what the weights of a ViT, their format and their config.json tell together.

    Args:
      path: for messages.
      form: the format.
      settings: what the tensors tell.
      constants: what the format means, and what config.json says about it.
      pool: the pool that config.json names; "" if it names none.
      has_class: whether there is a class token.

    Raises:
      BadInput: the position embedding is missing, or config.json names a pool that the tensors do
        not allow.
    """
    told = bool(pool)
    pool = pool or constants.get("pool", settings["pool"])
    possible = ("token", "gap", "token+gap") if has_class else ("gap",)
    shown = settings["pool"]
    if constants.get("final_norm") == "pooled" and "pool" in constants:
        shown = constants["pool"]  # the name of its norm tells it
        possible = (shown,)
    if pool != shown and not (shown != "map" and pool in possible):
        have = f"{path}: its weights have pool={shown}"
        if not told:
            raise BadInput(
                f"{have}; {' or '.join(form.kinds) or form.name} models are read with pool={pool}."
            )
        raise BadInput(
            f"{have}, its {json_config.NAME} says {pool}; put the right one beside it, or none."
        )
    if settings["posemb"] == "none" and constants.get("rope", "none") == "none":
        if form.name != "big_vision":
            raise BadInput(f"{path}: the position embedding is missing.")
        settings["posemb"] = "sincos2d"  # the only alternative to learned embeddings
    if "stem_norm" in settings and constants.get("stem_norm", "none") != "none":
        settings["stem_norm"] = constants["stem_norm"]
    for key in ("pool", "stem_norm", "gate", "layer_scale", "biases", "stem_bias", "distillation"):
        constants.pop(key, None)  # tensors show these
    if settings.get("gate") == "silu" and pool != "map":
        constants.pop("gelu", None)  # the gate takes its place
    class_token = has_class and pool in ("gap", "map")
    return constants | settings | {"pool": pool} | ({"class_token": True} if class_token else {})


def _float32(flat: Flat, shapes_only: bool) -> Flat:
    """Returns arrays as float32; zeros that take no memory if only the shapes are wanted."""
    if shapes_only:
        return {name: np.broadcast_to(np.float32(0), a.shape) for name, a in flat.items()}
    return {name: a.astype(np.float32, copy=False) for name, a in flat.items()}


def head_classes(flat: Flat) -> int:
    """Returns the classes of the head in weights under our names; 0 without a head."""
    return flat["head/kernel"].shape[1] if "head/kernel" in flat else 0


def _beside(
    path: Path, form: Format, model: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads what names and JSON files tell beside the weights: settings of model and images."""
    if not _has_json(path):
        return {}, image_chains.of_augreg(path.name)
    if form.name == "timm":
        images = model.get("pretrained_cfg", model)
    else:
        images = files.read_json(path.with_name(json_config.PREPROCESSOR))
    return json_config.read(form.name, model, naflex="naflex" in form.constants), images


@functools.cache
def _warn_once(message: str) -> None:
    log.warning(message)


def _warn_of_assumptions(path: Path, settings: dict[str, Any]) -> None:
    """Logs what is assumed about a file of timm that no config.json describes."""
    keys = ("pool", "gelu", "ln_epsilon", "gn_epsilon", "rope", "naflex_filter", "naflex_square")
    keys = [key for key in keys if key in settings]
    assumed = ", ".join(f"{key}={settings[key]}" for key in keys)
    _warn_once(
        f"{path} has no {json_config.NAME} beside it: {assumed} are assumed; results are wrong "
        "where the model has others."
    )


def _check_floats(path: Path, arrays: Flat) -> None:
    """Raises BadInput for tensors that are not floats, or have no values."""
    strange = [n for n, a in arrays.items() if a.dtype not in _FLOATS or not a.ndim or not a.size]
    if strange:
        raise BadInput(f"{path}: {', '.join(strange[:6])}: not arrays of floats.")


_FLOATS = [np.dtype(t) for t in ("float32", "float16", "float64", ml_dtypes.bfloat16)]


def _prefixed(arrays: Flat) -> Flat:
    """Returns the parameters in a file that holds more, such as those under `params/`.

    Of two towers, these are those of the image tower, `img`.
    """
    for prefix in ("params/img/", "img/", "params/", "opt/target/"):
        inside = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        if inside:
            return inside
    return arrays


_MOST_LAYERS = 1000


def layers(arrays: Flat) -> Flat:
    """Splits big_vision's scanned blocks, one array for all layers, into one array per layer."""
    block, scanned, flat = "Transformer/encoderblock", {}, {}
    for name, array in arrays.items():
        if name.startswith(f"{block}/"):
            part = name.removeprefix(block)
            if len(array) > _MOST_LAYERS:
                raise BadInput(f"{name} has {len(array)} layers; at most {_MOST_LAYERS} are read.")
            scanned |= {f"{block}_{i}{part}": layer for i, layer in enumerate(array)}
        else:
            flat[name] = array
    twice = sorted(scanned.keys() & flat.keys())
    if twice:
        raise BadInput(f"{twice[0]} is also among the scanned blocks; a file has one of each.")
    return flat | scanned


# ---------------------------------------------------------------- writing


def write(
    path: Path,
    name: str,
    cfg: variants.Config,
    params: dict[str, Any],
    images: json_config.Images = ORIGINAL,
) -> None:
    """Writes weights in a published format; safetensors files get JSON files beside them.

    Args:
      path: .npz for npz and big_vision, .safetensors for timm and hf (whose readers expect
        `model.safetensors`).
      name: npz, big_vision, timm or hf.
      cfg: the model.
      params: its parameters, in either layout.
      images: description of images to write beside safetensors; npz cannot store it.

    Raises:
      BadInput: the format or suffix does not exist, or the format cannot express the model.
    """
    if name not in SUFFIX:
        raise unknown("format", name, NAMES)
    if path.suffix != SUFFIX[name]:
        raise BadInput(f"{path}: the {name} format is written to a {SUFFIX[name]} file.")
    files.write(path, *expressed(name, cfg, params, images))


def expressed(
    name: str,
    cfg: variants.Config,
    params: dict[str, Any],
    images: json_config.Images = ORIGINAL,
    size: tuple[int, int] | None = None,
) -> tuple[Flat, dict[str, dict[str, Any]]]:
    """Converts a model to a published format: names and arrays, and the JSON files beside them.

    Raises:
      BadInput: the format cannot express the model, or an image size that is not square. The
        arguments are those of `write`, and the rows and columns of pixels of images, if known.
    """
    architecture.check_square(name, cfg, size)
    family, flat = cfg.FAMILY, flatten(params)
    having = [f for forms in FORMATS.values() for f in forms if f.family == family]
    having += cfg.weight_formats
    if not having:
        raise BadInput(f"the {name} format is only for published models; keep it as a run.")
    _check_params(cfg, flat)
    named = [f for f in having if f.name == name and f.writes(flat) and _has_writer(f)]
    if not named:
        names = dict.fromkeys(f.name for f in having)
        raise BadInput(f"{name} has no {family} models; formats that have: {', '.join(names)}.")
    lacking = [cfg.unheld(f.constants, f.takes, everything=bool(f.kinds)) for f in named]
    form, unheld = min(zip(named, lacking, strict=True), key=lambda both: _misfit(both[1]))
    if unheld:
        raise BadInput(f"the {name} format has no {unheld[0]}; {_INSTEAD}")
    constants = _constants(form, cfg)
    _check_expressible(form, cfg, constants)
    beside: dict[str, dict[str, Any]] = {}
    if form.beside is not None:
        if (channels := architecture.channels(flat)) != 3:
            raise BadInput(
                f"{name} describes RGB images, these have {channels} channels; write npz."
            )
        beside = form.beside(cfg, cfg.weights_side(flat), constants, images)
    elif name == "big_vision" and {"cls", "posemb"} <= flat.keys():
        cfg.weights_side(flat)  # its readers infer the class token's row from squares
    registers = flat["registers"].shape[1] if "registers" in flat else 0
    context = Context(class_rows=int("cls" in flat), registers=registers)
    return name_table.write(form, flat, context), beside


def _misfit(unheld: list[str]) -> tuple[bool, int]:
    """Returns how far a format is from a model: other positions make it that of another family."""
    return any(one.startswith("posemb=") for one in unheld), len(unheld)


def _has_writer(form: Format) -> bool:
    return form.beside is not None or SUFFIX.get(form.name) != ".safetensors"


def _check_params(cfg: variants.Config, flat: Flat) -> None:
    """Raises BadInput unless the parameters are those of the model, for any image size."""
    small = 2 * variants.stride(cfg)
    wanted = variants.shapes(cfg, small, small, architecture.channels(flat))
    want = {p: x.shape for p, x in tree.leaves_with_paths(tree.unstack_blocks(_indexable(wanted)))}
    of_grid = re.compile(r"(block_\d+/)?(posemb(_[xy])?|attn/relative(_bias)?|token_mlp/.*)")
    wrong = [f"  unexpected   {name}" for name in flat if name not in want][:6]
    wrong += [f"  missing      {name}" for name in want if name not in flat]
    wrong += [
        f"  wrong shape  {name}: {flat[name].shape}, the model has {shape}"
        for name, shape in want.items()
        if name in flat and flat[name].shape != shape and not of_grid.fullmatch(name)
    ]
    if wrong:
        raise BadInput("the parameters are not those of the model:\n" + "\n".join(wrong[:12]))


def _indexable(abstract: Any) -> Any:
    return jax.tree.map(lambda x: np.broadcast_to(np.float32(0), x.shape), abstract)


def flatten(params: dict[str, Any]) -> Flat:
    """Flattens a parameter tree of either layout to loop-layout names."""
    looped = tree.unstack_blocks(params)
    return {path: np.asarray(leaf) for path, leaf in tree.leaves_with_paths(looped)}


def _constants(form: Format, cfg: variants.Config) -> dict[str, Any]:
    """Returns the values of a model for the constants that a format defines."""
    backbone = variants.backbone(cfg)
    parts = [part for part in (cfg, backbone) if part is not None]
    return {
        key: next(getattr(part, key) for part in parts if hasattr(part, key))
        for key in form.constants
        if any(hasattr(part, key) for part in parts)
    }


def _check_expressible(form: Format, cfg: variants.Config, constants: dict[str, Any]) -> None:
    """Raises BadInput for features without a tensor, whose absence would not show."""
    if setting := cfg.unwritten(form.name):
        raise BadInput(f"the {form.name} format has no {setting}; {_INSTEAD}")
    if form.name in ("timm", "hf"):
        return  # json_config writes them down
    for key, value in constants.items():
        if value != form.constants[key]:
            raise BadInput(
                f"the {form.name} format means {key}={form.constants[key]}, the model has {value}; "
                "write another format (timm and hf say their GELU, hf its epsilon too), or keep "
                "the model as a run."
            )
