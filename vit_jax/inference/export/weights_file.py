# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights under the names of other packages, read back by those packages if installed.

Start from `expressed`, then `read`.
"""

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.inference.export.forward import Call, Forward
from vit_jax.models import partial, variants
from vit_jax.weights import convert, files, loading
from vit_jax.weights.formats import json_config
from vit_jax.weights.formats.json_config import Images

PEER = {"timm": "timm", "hf": "transformers"}
PEER_FILE = "model.safetensors"  # the only name that they read


def expressed(name: str, cfg: variants.Config, forward: Forward, images: Images) -> Any:
    """Returns the content of the file and of those beside it, see `convert.expressed`.

    Raises:
      BadInput: the format cannot hold the model; the message names formats that can.
    """
    if any(partial.is_added(path) for path, _ in tree.leaves_with_paths(forward.params)):
        raise BadInput(
            f"{name}: adapters have no place in a file of weights; `vit_jax export` with "
            "--format=stablehlo or savedmodel holds them."
        )
    try:
        return convert.expressed(name, cfg, forward.params, images, forward.size)
    except BadInput as e:
        raise BadInput(f"{e} {_instead(cfg, forward, images)}") from e


def _instead(cfg: variants.Config, forward: Forward, images: Images) -> str:
    """Returns a sentence about the formats that can hold a model which another cannot."""
    holders = []
    for other in convert.NAMES:
        try:
            convert.expressed(other, cfg, forward.params, images, forward.size)
        except BadInput:
            continue
        holders.append(other)
    of_weights = f"--format={' or '.join(holders)} holds it; " if holders else ""
    return f"{of_weights}`vit_jax export` to stablehlo or savedmodel holds every model."


def read(name: str, cfg: variants.Config, forward: Forward, path: Path) -> tuple[str, Call]:
    """Reads a file back; returns the name of the reader and the function that it makes.

    Args:
      name: npz, big_vision, timm or hf.
      cfg: the model configuration.
      forward: the function that was written.
      path: the file.
    """
    beside = files.read_json(path.with_name(json_config.NAME)) if name == "hf" else {}
    known = name == "timm" or beside.get("model_type") == "vit"  # others have other outputs
    if known and path.name == PEER_FILE:
        try:
            module = importlib.import_module(PEER[name])
        except (ImportError, RuntimeError):  # e.g. a torchvision built for another torch
            module = None
        if module is not None:
            call = _of_timm(module, path) if name == "timm" else _of_transformers(module, cfg, path)
            return f"{PEER[name]} {module.__version__}", call
    return "vit_jax.load", _of_ours(cfg, forward, path)


def _of_ours(cfg: variants.Config, forward: Forward, path: Path) -> Call:
    size, heads = forward.size, cfg.published_heads
    model, params, _ = loading.load(path, heads=heads, image_size=size, own=cfg)
    apply = jax.jit(lambda params, images: model.apply({"params": params}, images, train=False))
    return lambda images: np.asarray(apply(params, images))


def _of_timm(timm: Any, path: Path) -> Call:
    model = timm.create_model(f"local-dir:{path.parent}", pretrained=True).eval()
    return lambda images: _channels_first(model, images).numpy()


def _of_transformers(transformers: Any, cfg: Any, path: Path) -> Call:
    if cfg.classes:
        model = transformers.ViTForImageClassification.from_pretrained(path.parent).eval()
        return lambda images: _channels_first(model, images).logits.numpy()
    pooled = bool(cfg.representation)
    model = transformers.ViTModel.from_pretrained(path.parent, add_pooling_layer=pooled).eval()

    def call(images: np.ndarray) -> np.ndarray:
        outputs = _channels_first(model, images)
        return (outputs.pooler_output if pooled else outputs.last_hidden_state[:, 0]).numpy()

    return call


def _channels_first(model: Any, images: np.ndarray) -> Any:
    torch = importlib.import_module("torch")
    with torch.no_grad():
        return model(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))))
