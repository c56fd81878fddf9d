# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes an export beside its place, reads it back, compares the outputs and moves it there.

Nothing appears under the requested name unless its consumer computes the same outputs. Start from
`write`, or from `write_run` for a run whose objective has a head of its own.
"""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vit_jax.build import program
from vit_jax.config.plugins import Registry
from vit_jax.errors import BadInput, RunFailed, no_space
from vit_jax.inference.dense_run import DenseRun
from vit_jax.inference.export import forward as forward_lib
from vit_jax.inference.export import (
    preprocessing_facts,
    weights_file,
)
from vit_jax.inference.export.forward import Call, Forward
from vit_jax.inference.model import Model
from vit_jax.models import variants
from vit_jax.step.state import normalise
from vit_jax.weights import convert, files
from vit_jax.weights.formats.json_config import Images

_GRAPHS = Registry(
    {
        "stablehlo": "vit_jax.inference.export.stablehlo",
        "savedmodel": "vit_jax.inference.export.saved_model",
    }
)
FACTS = "vit_jax.json"  # name inside a folder; beside a file, its name plus .json
BATCHES = (2, 3)  # images to compare: two sizes, as the batch is free
BOUND = 1e-4  # relative to the largest output
OTHERS = 1e-3  # share of whole numbers that may differ
TIMM_BOUND = 1e-3  # for a model with a ResNet, whose epsilons timm cannot express
_SIGMOID = "the loss, sigmoid: each class is likely by itself (sigmoid of its logit, no softmax)"
Progress = Callable[[int, int], None]
# A function that writes a format, and one that lets its consumer read it back.
_Ways = tuple[Callable[[Path], None], Callable[[Path], tuple[str, Call]]]


@dataclasses.dataclass(frozen=True)
class Written:
    """The files of an export, and the result of the comparison.

    Attributes:
      size_bytes: size of all files.
      consumer: program that has read the export back.
      difference: largest absolute difference between the outputs of the artefact and the model.
      scale: the largest absolute output.
      output: logits or representation, or the names of several outputs.
      notes: facts that the artefact cannot express, one line each.
    """

    size_bytes: int
    consumer: str
    difference: float
    scale: float
    output: str
    notes: tuple[str, ...]


def write(
    model: Model,
    name: str,
    out: Path,
    *,
    with_preprocess: bool = False,
    progress: Progress = lambda *_: None,
) -> Written:
    """Writes an export and replaces an existing one; `formats.check` must accept the arguments.

    Args:
      model: model from `inference.open_model`.
      name: one of `formats.FORMATS`.
      out: file, or folder of a SavedModel; missing parent folders are created.
      with_preprocess: whether images are uint8 and normalised inside; only for `formats.GRAPHS`.
      progress: called with the number of finished parts, and of all parts.

    Raises:
      BadInput: the format cannot hold the model, or the place is not writable.
      RunFailed: the artefact computes other outputs than the model; nothing is then written.
    """
    images, words = preprocessing_facts.describe(model.weights, model.size)
    if with_preprocess and images is None:
        raise BadInput(f"--with-preprocess: {words}; leave it out, or put the configuration there.")
    forward = forward_lib.make(model, images if with_preprocess else None)
    description = dataclasses.replace(
        images or convert.ORIGINAL, names=model.names, sigmoid=model.sigmoid
    )
    if getattr(model.cfg, "naflex", 0):
        patches = math.prod(variants.grid(model.cfg, *model.size))
        description = dataclasses.replace(description, patches=patches)
    ways = _format(name, model, forward, description, images)
    notes, bound = _notes(name, model, description, words), _bound(name, model)
    return _written(name, forward, ways, out, description, bound, notes, progress)


def write_run(
    run: DenseRun, name: str, out: Path, *, progress: Progress = lambda *_: None
) -> Written:
    """Writes a run with the head of its objective, see `Objective.exported` and `write`.

    Args:
      run: a run from `dense_run.open_run`.
      name: one of `formats.GRAPHS`.
      out: see `write`.
      progress: see `write`.
    """
    cfg, images = forward_lib.plain(run.cfg), run.images
    network = program.network(variants.make(cfg), images)
    forward = forward_lib.of_objective(run.objective, network, run.params, images.shape)
    description = Images(images.mean, images.std, names=run.names)
    about = {"classes": list(run.names), "model": variants.describe(run.variant, cfg)}
    ways = _graph(name, forward, description, about)
    notes = _of_dtype(run.cfg)
    return _written(name, forward, ways, out, description, BOUND, notes, progress)


def _written(
    name: str,
    forward: Forward,
    ways: _Ways,
    out: Path,
    description: Images,
    bound: float,
    notes: tuple[str, ...],
    progress: Progress,
) -> Written:
    """Writes in one of the ways, reads back in the other, compares and moves into place."""
    put, take = ways
    with _placed(out) as folder:
        progress(0, 3)
        put(folder / out.name)
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        progress(1, 3)
        consumer, call = take(folder / out.name)
        progress(2, 3)
        difference, scale, output = _compared(forward, call, description)
        if not difference <= bound * scale:  # also catches NaN
            raise RunFailed(
                f"{consumer} computes other {output} from the {name} export than the model: they "
                f"differ by up to {difference:.3g}, where {bound * scale:.3g} is the bound. "
                "Nothing was written; export another format, and see `vit_jax doctor` for versions."
            )
    return Written(size, consumer, difference, scale, output, notes)


def _format(
    name: str, model: Model, forward: Forward, description: Images, images: Images | None
) -> _Ways:
    """Returns the ways of a format."""
    if name not in _GRAPHS:
        cfg = forward_lib.config(model.cfg)
        content = weights_file.expressed(name, cfg, forward, description)
        return (
            lambda path: files.write(path, *content),
            lambda path: weights_file.read(name, cfg, forward, path),
        )
    return _graph(name, forward, images, forward_lib.about_model(model))


def _graph(name: str, forward: Forward, images: Images | None, about: Mapping[str, Any]) -> _Ways:
    """Returns the ways of a format that holds the computation."""
    graph = _GRAPHS[name]
    graph.check(forward)

    def put(path: Path) -> None:
        facts = {"format": name} | forward_lib.facts(forward, images, about)
        facts |= graph.write(forward, path)
        beside = path / FACTS if path.is_dir() else path.with_name(f"{path.name}.json")
        beside.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    return put, lambda path: (graph.CONSUMER, graph.read(path))


@contextlib.contextmanager
def _placed(out: Path) -> Iterator[Path]:
    """Yields a folder beside `out`; moves its files and folders into place if all goes well."""
    folder = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # left by an export that was killed
        folder.mkdir()
        yield folder
        for written in list(folder.iterdir()):
            place = out.with_name(written.name)
            if place.is_dir():
                place.rename(folder / "replaced")
            written.replace(place)
    except OSError as e:
        full = no_space(e, out.parent)
        if full:
            raise RunFailed(f"{full}. Make room, then run the same command again.") from e
        raise BadInput(
            f"--out={out} cannot be written: {e.strerror or e}; give another place."
        ) from e
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compared(forward: Forward, call: Call, description: Images) -> tuple[float, float, str]:
    """Compares two functions on random pixels.

    Whole numbers, such as the classes of pixels, follow from other outputs. So few of them may
    differ, where two of those are as good as equal.

    Returns:
      The largest difference and the largest value of float outputs, and the names of all outputs.
    """
    shape = (max(BATCHES), *forward.shape)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if forward.dtype == "float32":
        images = np.asarray(normalise(jnp.asarray(images), description.mean, description.std))
    expected, difference = forward.named(forward.reference(images)), 0.0
    for count in BATCHES:
        outputs = forward.named(call(images[:count]))
        for name, wanted in expected.items():
            part = _difference(outputs[name], wanted[:count])
            difference = float(np.maximum(difference, part))  # NaN if any part is NaN
    floats = [x for x in expected.values() if x.dtype.kind == "f"]
    return difference, max(float(np.abs(x).max()) for x in floats), " and ".join(expected)


def _difference(output: np.ndarray, wanted: np.ndarray) -> float:
    if output.shape != wanted.shape or output.dtype != wanted.dtype:
        return np.inf
    if wanted.dtype.kind == "f":
        return np.abs(output - wanted).max()
    return 0.0 if (output != wanted).mean() <= OTHERS else np.inf


def _bound(name: str, model: Model) -> float:
    resnet = variants.backbone(model.cfg) is not None
    return TIMM_BOUND if name == "timm" and resnet else BOUND


def _notes(name: str, model: Model, description: Images, words: str) -> tuple[str, ...]:
    """Returns the facts that a user of the artefact alone would not know."""
    notes = []
    if name in ("npz", "big_vision"):
        parts = [words] if words else []
        if model.size[0] != model.size[1]:
            parts.append(f"images of {model.size[0]} x {model.size[1]} (give --image_size)")
        if description.shorter_side:
            parts.append(f"the shorter side resized to {description.shorter_side}, then the centre")
        if description.interpolation != convert.ORIGINAL.interpolation:
            parts.append(f"{description.interpolation} resizing")
        if description.antialias:
            parts.append("averaging over pixels when shrinking")
        if {*description.mean, *description.std} != {0.5}:
            parts.append(f"mean {_numbers(description.mean)} and std {_numbers(description.std)}")
        if model.names:
            parts.append(f"the names of {len(model.names)} classes")
        if model.sigmoid:
            parts.append(_SIGMOID)
        if parts:
            notes.append(f"{name} cannot store {'; '.join(parts)}")
    elif name not in _GRAPHS:
        notes += _not_described(name, model, description, words)
    if getattr(model.cfg, "naflex", 0) and name in _GRAPHS:
        sides = " x ".join(map(str, model.size))
        notes.append(f"the export takes images of {sides} pixels, not of any aspect ratio (naflex)")
    return (*notes, *_of_dtype(model.cfg))


def _of_dtype(cfg: variants.Config) -> tuple[str, ...]:
    if cfg.dtype == "float32":
        return ()
    return (f"the model was trained in {cfg.dtype}, the export computes in float32",)


def _not_described(name: str, model: Model, description: Images, words: str) -> list[str]:
    """Returns the facts that the JSON beside timm's or Hugging Face's weights cannot express."""
    peer, notes = weights_file.PEER[name], list[str]()
    if words:
        said = "to the largest grid of patches" if description.patches else "to the model's size"
        notes.append(f"{name} cannot say: {words}; it says: resized straight {said}")
    elif description.antialias is False:
        notes.append(
            f"{peer} averages over pixels when shrinking, the preprocessing of these weights does "
            "not (antialias=False): of images larger than the model's, outputs differ"
        )
    if name == "timm" and model.sigmoid:
        notes.append(f"timm cannot store {_SIGMOID}")
    if name == "hf" and model.weights.classes and not model.names:
        last = model.weights.classes - 1
        notes.append(f"nothing names the classes, config.json calls them LABEL_0 to LABEL_{last}")
    return notes


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)
