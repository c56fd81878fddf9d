# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Loads FILE_OR_RUN: a weights file, a workdir (last step), `WORKDIR@best` or `WORKDIR@1000`.

A file may also be given by URL or by its published name; it is then downloaded once. The weights of
a run are the moving average of its parameters, if it kept one. Start from `load`, which is
`vit_jax.load`; `save` is `vit_jax.save`.
"""

import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.checkpoints import step_folders
from vit_jax.checkpoints.retention import Damaged
from vit_jax.checkpoints.step_folders import FOLDER
from vit_jax.config import frozen, plugins
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.data import readers
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops.naflex import NaFlex
from vit_jax.errors import BadInput, PeerLost
from vit_jax.models import partial, published, variants
from vit_jax.storage import files as storage
from vit_jax.weights import convert, download, files, fitting, preprocessing
from vit_jax.weights.convert import Weights
from vit_jax.weights.formats import json_config

if TYPE_CHECKING:
    from vit_jax.checkpoints.checkpoints import Checkpoints
RETRIES, PAUSE_SECS = 20, 0.1  # for reading a run whose checkpoints are being replaced
Preprocess = Callable[[preprocessing.Images], Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """A workdir and one of its steps."""

    workdir: Path
    step: int

    @property
    def spelled(self) -> str:
        """A text that names the run and its step, from any folder."""
        folder = str(self.workdir.absolute())
        name = f"{folder}@{self.step}"
        return name if not storage.is_dir(storage.path(name)) else f"{folder}/@{self.step}"


def find_run(text: str) -> Run | None:
    """Returns the run that FILE_OR_RUN names; None if it names a file.

    Raises:
      BadInput: the path does not exist, or the run lacks checkpoints or that step (the message
        lists its steps).
    """
    if _is_file(text):
        return None
    name, which = split_run(text)
    workdir = storage.workdir(name)
    if not storage.is_dir(workdir / FOLDER):  # never raises, however long the name
        there = storage.is_dir(workdir)
        problem = "holds no checkpoints" if there else "does not exist"
        if storage.is_odd(workdir):
            problem = f"is a {storage.kind(workdir)}, no file and no folder"
        inside = [p for p in storage.listed(workdir) if p.suffix in files.SUFFIXES] if there else ()
        if inside:
            problem += f" but {inside[0].name}"
        near = published.weights(text)
        raise BadInput(
            f"{text!r}: {workdir} {problem}; give a weights file (.npz, .safetensors), its URL or "
            "published name (see `vit_jax models`), the workdir of a run, WORKDIR@best or "
            f"WORKDIR@STEP.{f' Published weights of that model: {near}.' if near else ''}"
        )
    checkpoints = _checkpoints(workdir)
    try:
        steps = checkpoints.steps
        if not steps:
            raise BadInput(f"{text!r}: {workdir} has no checkpoint yet; wait for its first.")
        if which == "best":
            metric = config_lib.read(str(workdir / step_folders.CONFIG_FILE)).checkpoint.keep_best
            try:
                step = checkpoints.best(metric)
            except Damaged as e:
                raise BadInput(f"{text!r}: {e}; its steps are {steps}, give one of them.") from e
            if step is None:
                raise BadInput(
                    f"{text!r}: the run keeps no best step (checkpoint.keep_best={metric!r}); its "
                    f"steps are {steps}."
                )
        else:
            number = which.isdecimal() and len(which) < 20
            step = int(which) if number else (checkpoints.latest if not which else None)
    finally:
        checkpoints.close()
    if step is None or step not in steps:
        raise BadInput(f"{text!r}: no such checkpoint in {workdir}; its steps are {steps}.")
    return Run(workdir, step)


def split_run(text: str) -> tuple[str, str]:
    """Returns (WORKDIR, `best`, the step or "") of a run; an existing folder has any name."""
    plain = "@" not in text or storage.is_dir(storage.path(text))
    return (text, "") if plain else tuple(text.rsplit("@", 1))  # type: ignore[return-value]


def _is_file(text: str) -> bool:
    """Returns True if FILE_OR_RUN is a file; in a bucket, the suffix decides."""
    if storage.is_remote(text):
        return Path(text).suffix in files.SUFFIXES
    return os.path.isfile(os.path.expanduser(text))


def may_be_run(text: str) -> bool:
    """Returns True if FILE_OR_RUN must be a run: a folder, or in a bucket no weights file."""
    if storage.is_remote(text):
        return not _is_file(text)
    return os.path.isdir(text) or os.path.isdir(text.rpartition("@")[0])


def read_weights(
    text: str,
    *,
    heads: int = 0,
    patch: int = 0,
    merge: int | None = None,
    shapes_only: bool = False,
    own: variants.Config | None = None,
) -> Weights:
    """Reads the weights of FILE_OR_RUN as numpy arrays, and their description of the model.

    Args:
      text: FILE_OR_RUN.
      heads: number of attention heads, for a file that does not tell it.
      patch: patch side to use the model with; 0: that of the weights.
      merge: pairs of tokens that each layer merges, see `models.merging`; None: as in the run.
      shapes_only: whether to read no values.
      own: a user's own model, whose tables of names are tried too.

    Raises:
      BadInput: the path cannot be read, or has another number of heads or another fixed patch.
    """
    if patch < 0:
        raise BadInput(f"patch={patch}; give the pixels a side, or leave it out.")
    weights = _read(text, heads, shapes_only, own)
    if patch:
        weights.config.at_patch(patch)  # raises if it is fixed
        own_patch = variants.stride(weights.config) if getattr(weights.config, "naflex", 0) else 0
        if weights.format == "run" and own_patch not in (0, patch):
            cut = f"the chains of this run cut patches of {own_patch} pixels (naflex)"
            raise BadInput(f"{text}: patch={patch} (--patch), and {cut}; leave it out.")
        weights = dataclasses.replace(weights, patch=patch)
    if merge is not None:
        if weights.own is not None:
            raise BadInput(f"merge={merge} (--merge_tokens): {text} is a model of your own.")
        weights = dataclasses.replace(weights, settings={**weights.settings, "merge": merge})
    if heads and heads != (own_heads := getattr(weights.config, "heads", 0)):
        statement = f"have {own_heads} heads" if own_heads else "have no attention"
        raise BadInput(
            f"{text}: heads={heads} (--heads), but these weights {statement}; leave it out."
        )
    return weights


def _read(text: str, heads: int, shapes_only: bool, own: variants.Config | None) -> Weights:
    path = None if may_be_run(text) else download.local(text)
    if path is not None and os.path.isfile(path):
        if path.suffix == ".safetensors":
            download.beside(text, (json_config.NAME, json_config.PREPROCESSOR))
        return convert.read(path, heads=heads, shapes_only=shapes_only, own=own)
    failed, error = None, None
    for _ in range(RETRIES):  # a run in progress replaces its checkpoints
        run = None
        try:
            run = find_run(text)
            assert run is not None, text
            return _read_run(run, shapes_only=shapes_only)
        except (BadInput, PeerLost, ImportError):
            raise
        except Exception as e:  # whatever orbax raises for a missing or damaged step
            if run is not None and run == failed:
                raise BadInput(
                    f"{run.workdir / FOLDER / str(run.step)} cannot be read: "
                    f"{type(e).__name__}: {str(e)[:200]}; it is damaged, give another step."
                ) from e
            failed, error = run, e
            time.sleep(PAUSE_SECS)
    raise BadInput(f"{text!r}: checkpoints are replaced faster than they can be read: {error}")


def class_names(workdir: Path) -> tuple[str, ...]:
    """Returns the names of the classes of a run, by label; () if unknown.

    Raises:
      BadInput: the file of the names is damaged.
    """
    path = workdir / step_folders.CLASSES_FILE
    names = files.read_json(path).get("classes", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadInput(f'{path} is not {{"classes": [names]}}; repair it, or remove it.')
    return tuple(names)


def _checkpoints(workdir: Path) -> "Checkpoints":
    """Opens a run read-only; imports orbax only here, because weights files do not need it."""
    from vit_jax.checkpoints.checkpoints import Checkpoints

    return Checkpoints(workdir, read_only=True)


def _read_run(run: Run, *, shapes_only: bool) -> Weights:
    saved = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE))
    checkpoints = _checkpoints(run.workdir)
    try:
        read = checkpoints.weight_shapes if shapes_only else checkpoints.weights
        params = read(run.step)
    finally:
        checkpoints.close()
    if shapes_only:
        params = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), params)
    from vit_jax.weights import base

    params, trained = base.completed(run, saved, params, shapes_only=shapes_only)
    flat = convert.flatten(params)
    shown = images_lib.of(saved.data)
    return Weights(
        flat=flat,
        format="run",
        settings=frozen.arguments(saved.model),
        classes=convert.head_classes(flat),
        image_size=shown.size,
        tensors={p: (tuple(x.shape), str(x.dtype)) for p, x in tree.leaves_with_paths(params)},
        images={"mean": list(shown.mean), "std": list(shown.std), "ops": saved.data.eval_ops,
                "fewshot_ops": saved.fewshot.ops, "reader": saved.data.reader},
        branch=saved.branch,
        channels=shown.channels,
        trained=trained,
    )  # fmt: skip


def fit(
    weights: Weights,
    cfg: variants.Config,
    size: tuple[int, int],
    *,
    fresh_head: bool,
    channels: int = 0,
) -> fitting.Fitted:
    """Fits weights into a model with `fitting.fit`, for an image size; empties `weights.flat`.

    `channels` are those of the images; 0 means those that the weights were made for.
    """
    _check_none_added(weights)
    target, grids = _target(weights, cfg, size, channels)
    return fitting.fit(weights.flat, target, **grids, fresh_head=fresh_head)


def ordinary(
    weights: Weights, size: tuple[int, int], cfg: variants.Config | None = None
) -> tuple[variants.Config, dict[str, Any]]:
    """Returns the model of weights and its parameters, for use outside training on one image size.

    Empties `weights.flat`. `cfg` is another form of the model, such as one for feature maps.
    """
    cfg = weights.config if cfg is None else cfg
    target, grids = _target(weights, cfg, size, 0)
    leaves = dict(tree.leaves_with_paths(target))
    for name, array in weights.flat.items():
        if partial.is_added(name):  # an adapter of a run belongs to a layer, but not to the model
            path, shape = name, array.shape
            if tree.STACKED in target:
                path = re.sub(r"block_\d+", tree.STACKED, name)
                shape = (tree.depth(target), *shape)
            leaves[path] = jax.ShapeDtypeStruct(shape, array.dtype)
    params = fitting.fit(weights.flat, tree.nested(leaves), **grids, fresh_head=False).params
    return cfg.ordinary(params, *size)


def check_fit(
    weights: Weights, cfg: variants.Config, size: tuple[int, int], channels: int, fresh_head: bool
) -> None:
    """Raises BadInput where `fit` would; `weights` may be shapes only."""
    _check_none_added(weights)
    target, grids = _target(weights, cfg, size, channels)
    fitting.plan_fit(weights.flat, target, **grids, fresh_head=fresh_head)


def _check_none_added(weights: Weights) -> None:
    if any(map(partial.is_added, weights.flat)):
        base = f"give the weights that they were trained beside, {weights.trained['base']}"
        raise BadInput(f"these weights have adapters, which no other run can begin with; {base}.")


def _target(
    weights: Weights, cfg: variants.Config, size: tuple[int, int], channels: int
) -> tuple[Any, dict[str, Any]]:
    """Returns the parameters of a model as shapes, and how `fitting` resizes weights for it."""
    return variants.shapes(cfg, *size, channels or weights.channels), {
        "old": weights.stored.parameter_grid(*weights.image_size) if weights.image_size else None,
        "new": cfg.parameter_grid(*size),
        "how": weights.resize,
        "resizes_kernel": cfg.RESIZES_KERNEL or weights.patch > 0,
        "stride": variants.stride(cfg),
    }


def load(
    file_or_run: str | Path,
    *,
    heads: int = 0,
    image_size: int | tuple[int, int] = 0,
    patch: int = 0,
    merge: int | None = None,
    own: variants.Config | None = None,
    trust_code: bool = False,
) -> tuple[variants.Model, dict[str, Any], Preprocess]:
    """Loads a model, its parameters and its preprocessing from the weights alone.

        model, params, preprocess = vit_jax.load("ViT-B_16.npz")
        logits = model.apply({"params": params}, preprocess("cat.jpg"), train=False)

    Args:
      file_or_run: a weights file (.npz, .safetensors; also a URL or a published name), a workdir,
        `WORKDIR@best` or `WORKDIR@STEP`.
      heads: number of attention heads, only for a file that does not tell it and has sizes of no
        variant.
      image_size: pixels, a side or (rows, columns); 0 means the size that the weights were made
        for. Position embeddings are resized. A file that does not tell it is for square images.
      patch: patch side in pixels, to use a FlexiViT or a ViT with another one; 0: that of the
        weights. The kernel on pixels is resized (`flexi.resize_kernel`).
      merge: pairs of similar tokens that each layer merges, which saves time and costs accuracy
        (ToMe, arXiv:2210.09461); None: as the run was trained, 0 for a file.
      own: configuration of a user's own model, for a file under its own table of names.
      trust_code: whether to import the code that the config.yaml of a run names as MODULE:NAME. It
        runs with your rights, so trust whoever made the run.

    Returns:
      The model; its parameters, a nested dict of float32 `jax.Array`; and the preprocessing. The
      preprocessing accepts encoded bytes, a path, a uint8 array or a list of those. It returns
      float32 [B, rows, columns, C], the normalised input of the model, or a `naflex.Canvas`. For a
      run it is the run's evaluation chain, for npz files that of the original code. For timm and
      Hugging Face the configuration beside the file defines it.

    Raises:
      BadInput: the path does not exist or cannot be read, the user must give a value that the file
        lacks, or the run names code that is not trusted.
    """
    with plugins.trusting(trust_code):
        text = str(file_or_run)
        weights = read_weights(text, heads=heads, patch=patch, merge=merge, own=own)
        sides = np.broadcast_to(np.asarray(image_size, int), 2).tolist()
        if min(sides) < 0 or (min(sides) == 0) != (max(sides) == 0):
            raise BadInput(f"image_size={image_size}; give pixels, a side or (rows, columns).")
        size = (sides[0], sides[1]) if sides[0] else weights.image_size
        if size is None:
            raise BadInput(f"{text} does not give its image size; give image_size=.")
        variants.check_image_size(weights.config, *size)
        preprocess_images = reader(weights, size)
        cfg, params = ordinary(weights, size)
        _to_device(params)
        return variants.make(cfg), params, preprocess_images


def _to_device(params: dict[str, Any]) -> None:
    """Moves each array in place, so that at most one array exists twice at a time."""
    for name, value in params.items():
        if isinstance(value, dict):
            _to_device(value)
        else:
            params[name] = jax.block_until_ready(jax.device_put(np.ascontiguousarray(value)))


def reader(weights: Weights, size: tuple[int, int]) -> Preprocess:
    """Makes the function from images to the input of a model with these weights."""
    read_one = _reader(weights, size)

    def read(images: preprocessing.Images) -> Any:
        prepared = read_one(images)
        shape = getattr(prepared, "images_BHWC", prepared).shape[1:3]
        if shape != size:  # happens if the chain does not resize
            raise BadInput(
                f"the preprocessing of these weights gives {shape[0]} x {shape[1]} pixels, the "
                f"model takes {size[0]} x {size[1]}; give images of that size."
            )
        return prepared

    return read


def _reader(weights: Weights, size: tuple[int, int]) -> Preprocess:
    images = weights.images
    if "ops" in images:
        ops = preprocess.parse("data.eval_ops", images["ops"], size, weights.channels)
        return preprocessing.chain_reader(
            ops, images["mean"], images["std"], readers.usable(images.get("reader", "tf"))
        )
    if weights.format in ("npz", "big_vision"):
        return preprocessing.original_reader(*size, weights.channels)
    if not images:
        return preprocessing.unknown_reader(
            "no configuration beside the weights says how to prepare images; put timm's "
            "config.json or Hugging Face's preprocessor_config.json there"
        )
    if weights.channels != 3:
        raise BadInput(
            f"these weights take images of {weights.channels} channels, and the preprocessing of "
            f"{weights.format} makes RGB; keep such models as runs, or as npz."
        )
    if getattr(weights.config, "naflex", 0):
        budget = NaFlex(size, weights.config.stride)
        return preprocessing.naflex_reader(weights.format, images, budget)
    if weights.format == "timm":
        return preprocessing.timm_reader(images | {"input_size": [3, *size]})
    sides = {"height": size[0], "width": size[1]}
    if images.get("do_center_crop") and images.get("crop_size") not in (sides, size[0]):
        images = images | {"do_center_crop": False, "size": sides}
    elif not images.get("do_center_crop") and images.get("do_resize", True):
        images = images | {"size": sides}
    return preprocessing.hf_reader(images)


def save(
    file: str | Path, model: variants.Model, params: dict[str, Any], format: str = "npz"
) -> None:
    """Writes weights in a published format: the inverse of `load`.

    Args:
      file: .npz for `npz` (the names of the original code) and `big_vision`. For `timm` and `hf` it
        is .safetensors; config.json (and preprocessor_config.json) beside it are replaced. Readers
        of the latter expect the name model.safetensors. The JSON files describe the original
        preprocessing: square, resized straight, from -1 to 1. Use `vit_jax export` to describe the
        run's own, and for weights of images that are not square, whose size only it knows.
      model: a model from `load`, or one built otherwise.
      params: its parameters, in either layout.
      format: npz, big_vision, timm or hf.

    Raises:
      BadInput: the format cannot express the model, or the file cannot be written.
    """
    convert.write(Path(os.path.expanduser(file)), format, model.cfg, params)
