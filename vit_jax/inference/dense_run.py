# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Loads a run whose objective has a head on feature maps, to apply it to images.

Start from `open_run`; `segmenter` and `detector` apply it.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax import sharding, tree
from vit_jax.build import objectives, program
from vit_jax.checkpoints import step_folders
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.config import provenance, sections
from vit_jax.data.ops import chain, decode
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.runtime import coordination
from vit_jax.step.objective import Network
from vit_jax.weights import files, loading


@dataclasses.dataclass(frozen=True)
class DenseRun:
    """A run on all devices of this process.

    Attributes:
      names: the names of the classes.
      colours: the colour that its data give each class, uint8 [Y, 3]; None if they give none.
      size: rows and columns of the images that the network takes.
      decode: how the run decodes an image.
      objective: what it learned, for its model.
      variant: the name of its model.
      cfg: the configuration of its model.
      images: those that it takes.
      network: the model, which gives feature maps.
      params: parameters of the model and its head, on every device.
      rules: mesh and placement; batches are split over all devices.
      expected: the published result of the run's recipe, for images of this size.
      changed: the keys that the run gives other values than the recipe.
    """

    names: tuple[str, ...]
    colours: np.ndarray | None
    size: tuple[int, int]
    decode: decode.Decode
    objective: Any
    variant: str
    cfg: variants.Config
    images: images_lib.Images
    network: Network
    params: Any = dataclasses.field(repr=False)
    rules: sharding.Rules
    expected: sections.Expected
    changed: tuple[str, ...]


def learns(text: str, objective: str) -> bool:
    """Returns True if FILE_OR_RUN is a run with the objective of this name."""
    if not loading.may_be_run(text):
        return False
    return _config(text).objective.partition("(")[0] == objective


def _config(text: str) -> sections.Config:
    run = loading.find_run(text)
    assert run is not None, text
    return config_lib.read(str(run.workdir / step_folders.CONFIG_FILE))


def _colours(workdir: Path, classes: int) -> np.ndarray | None:
    """Returns the colour that the data of a run give each class, uint8 [Y, 3]; None if none.

    Raises:
      BadInput: the file of the names and colours is damaged.
    """
    path = workdir / step_folders.CLASSES_FILE
    colours = files.read_json(path).get("colours")
    if colours is None:
        return None
    try:
        found = np.array(colours)
        if found.shape != (classes, 3) or found.min() < 0 or found.max() > 255:
            raise ValueError
        return found.astype(np.uint8)
    except (ValueError, TypeError) as e:
        raise BadInput(
            f"{path}: its colours are not three numbers from 0 to 255 for each class; repair or "
            "remove them."
        ) from e


def open_run(text: str, image_size: tuple[int, int] | None) -> DenseRun:
    """Loads a run.

    Args:
      text: WORKDIR, WORKDIR@best or WORKDIR@STEP.
      image_size: rows and columns of the images; None: those of training.

    Raises:
      BadInput: the run cannot be read, or does not take images of this size.
    """
    if not coordination.present_accelerators():
        jax.config.update("jax_platforms", "cpu")  # or libtpu complains about a missing TPU
    run, config = loading.find_run(text), _config(text)
    assert run is not None, text
    names = loading.class_names(run.workdir)
    if not names:
        raise BadInput(f"{run.workdir / step_folders.CLASSES_FILE} names no classes; restore it.")
    cfg = variants.of(config.model, len(names))
    objective = objectives.make(config, cfg)
    cfg, images = objective.model(cfg), images_lib.of(config.data)
    objective = objective.in_run(cfg, lambda _: 0)  # no duration matters any more
    size = image_size or images.size
    ops = chain.parse("data.eval_ops", config.data.eval_ops, size, images.channels)
    decodes = (op for op in ops if isinstance(op, decode.Decode))
    variants.check_image_size(cfg, *size)
    weights = loading.read_weights(text)
    prefix = f"{program.PARAMETERS}/"
    head = {p.removeprefix(prefix): x for p, x in weights.flat.items() if p.startswith(prefix)}
    cfg, params = loading.ordinary(weights, size, cfg)
    params = {**params, program.PARAMETERS: tree.nested(head)}
    rules = sharding.Rules(
        sharding.make_mesh(replica=0, data=-1, fsdp=1, tensor=1),
        (("act_batch", ("replica", "data")),),
    )
    origin = provenance.read(run.workdir).recipe
    return DenseRun(
        names=names,
        colours=_colours(run.workdir, len(names)),
        size=size,
        decode=next(decodes, decode.Decode(channels=images.channels)),
        objective=objective,
        variant=config.model.variant,
        cfg=cfg,
        images=dataclasses.replace(images, size=size),
        network=program.network(variants.make(cfg, rules), images),
        params=jax.device_put(params, rules.replicated),
        rules=rules,
        expected=config.expected if size == images.size else sections.Expected(),
        changed=tuple(provenance.changed(origin, config) if origin else ()),
    )
