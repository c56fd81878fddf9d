# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax predict` and `vit_jax evaluate` for runs that learned to find objects.

Start from `predict` and `evaluate`.
"""

import argparse
import functools
import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.cli import arguments, dense
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.formats.boxes import ImageId, Truth
    from vit_jax.data.ops.decode import Decode
    from vit_jax.data.splits.split import Split
    from vit_jax.inference.detector import Detector
    from vit_jax.reports.detection_page import Detected
    from vit_jax.step.detection import Detections

log = logging.getLogger("vit_jax")


def is_detection(args: argparse.Namespace) -> bool:
    """Returns True if `weights` is a run that learned detection."""
    return arguments.learned(args, "detection")


def _open(args: argparse.Namespace) -> "Detector":
    from vit_jax.inference import detector

    with arguments.own_words():
        return detector.open_run(args.weights, arguments.image_size(args))


# ---------------------------------------------------------------- predict


def predict(args: argparse.Namespace) -> int:
    """Writes COCO results into the file `--out`, and pictures beside it; returns the exit code."""
    from vit_jax.data.inspect import colours, show
    from vit_jax.reports import detection_page

    arguments.check_unused(args, "boxes", topk=5, names="", heads=0, patch=0, pack=0)
    if not args.out.endswith(".json"):
        raise BadInput(f"{args.weights} predicts boxes; give --out=FILE.json for them.")
    out = arguments.writable(args.out)
    pictures = out.with_name(f"{out.stem}_pictures")
    arguments.check_apart(args, Path(pictures).expanduser().resolve(), "pictures")
    arguments.writable(str(pictures / "x.png"))
    images = dense.Images(args.images)
    model = _open(args)
    categories, ids = _coco_ids(args.weights, model.run.names, images.paths)
    results: list[dict[str, Any]] = []
    for path, name, image, found in images.predicted(model):
        results += _results(ids[path], found, categories)
        shown = detection_page.drawn(show.visible(image), found, model.run.names)
        arguments.write(pictures / name, colours.png(shown))
    text = ",\n".join(json.dumps(one) for one in results)
    arguments.write(out, f"[{text}]\n".encode())
    images.finish(f"{args.out}, pictures in {pictures}")
    return 0


def _results(
    number: "ImageId", found: "Detections", categories: Sequence[int]
) -> list[dict[str, Any]]:
    """Returns the detections of an image as COCO's results."""
    from vit_jax.evaluators.detection import coco_boxes

    return [
        {
            "image_id": number,
            "category_id": categories[label],
            "bbox": [float(f"{x:.9g}") for x in box],
            "score": float(f"{score:.9g}"),
        }
        for box, score, label in zip(
            coco_boxes(found.boxes), found.scores.tolist(), found.classes.tolist(), strict=True
        )
    ]


def _coco_ids(
    weights: str, names: Sequence[str], paths: Sequence[str]
) -> tuple[list[int], dict[str, "ImageId"]]:
    """Returns the number of each class, and that of each image.

    The data of the run tell both if they are of the kind `coco:`. Otherwise classes count from 1. A
    file whose name is a number has that number, and any other its path.
    """
    spec = _source_of(weights)
    number_of, known = dict[str, int](), dict[str, Any]()
    if spec.startswith("coco:"):
        from vit_jax.data.sources import coco

        try:
            number_of, known = coco.coco_ids(spec)
        except BadInput as e:
            log.warning("the categories are numbered from 1, not as in the data: %s", e)
    lacking = [name for name in names if name not in number_of]
    if lacking and number_of:
        why = f"{spec} has no category {lacking[0]!r}"
        log.warning("the categories are numbered from 1, not as in the data: %s", why)
    counted = enumerate(names, 1)
    categories = [label if lacking else number_of[name] for label, name in counted]
    ids: list[Any] = [known.get(os.path.realpath(path)) for path in paths]
    if None in ids:
        stems = [Path(path).stem for path in paths]
        ids = [int(stem) if stem.isdecimal() else None for stem in stems]
    if None in ids or len({*ids}) < len(ids):
        parent = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
        ids = [os.path.relpath(os.path.abspath(path), parent) for path in paths]
    return categories, dict(zip(paths, ids, strict=True))


def _source_of(weights: str) -> str:
    """Returns the source of the data of a run, `kind:rest`."""
    from vit_jax.checkpoints import step_folders
    from vit_jax.config import load as config_lib
    from vit_jax.weights import loading

    run = loading.find_run(weights)
    assert run is not None, weights
    return config_lib.read(str(run.workdir / step_folders.CONFIG_FILE)).data.source


# ---------------------------------------------------------------- evaluate


def evaluate(args: argparse.Namespace) -> "Detected":
    """Measures a run on a split, in pixels of the images as stored."""
    from vit_jax import console
    from vit_jax.data.inspect import show
    from vit_jax.data.numpy_ops.resize import Unsuitable
    from vit_jax.evaluators import detection
    from vit_jax.inference import model as inference
    from vit_jax.reports import dense_page, detection_page, summary

    unused = {"labels": "", "classes": "all", "names": "", "heads": 0, "patch": 0, "pack": 0}
    arguments.check_unused(args, "boxes", **unused, merge_tokens=None)
    detection.check_installed()
    with arguments.own_words():
        opened = inference.open_data(args.weights, args.data or "", args.data_dir)
        name, split = inference.choose_split(opened, args.split)
    for note in opened.notes:
        log.info("data: %s", note)
    model = _open(args)
    advice = "evaluate on data whose classes have these names"
    own_classes = arguments.own_classes(args.weights, model.run.names, opened, advice)
    objects = detection.Objects(len(model.run.names))

    def images() -> "Iterator[tuple[np.ndarray, tuple[str, Truth]]]":
        for example, image, truth in _examples(split, model.run.decode, opened.classes):
            try:
                model.check(image)
            except Unsuitable as e:
                raise BadInput(f"{example}: {e}, or leave it out.") from e
            yield image, (example, truth._replace(classes=own_classes(truth.classes)))

    worst = dense_page.Worst()
    with console.bar("images") as progress:
        for done, (image, known, found) in enumerate(dense.applied(model, images()), 1):
            example, truth = known
            ap50 = objects.add(truth, found)
            if not math.isnan(ap50):
                drawing = (example, ap50, show.visible(image), truth, found, model.run.names)
                worst.add(ap50, functools.partial(detection_page.case, *drawing))
            progress(done, len(split))
    figures = objects.figures()
    if not figures.counts_K.any():
        raise BadInput(
            f"no image of {opened.spec}, split {name}, has a box that counts; give another --split "
            "or --data."
        )
    measured = {name: {**figures.coco, detection.VOC: figures.voc}} if not args.data else {}
    return detection_page.Detected(
        args.weights, args.data or opened.spec, name, model.run.size, model.run.names,
        worst.cases(), summary.verdict(measured, model.run.expected, model.run.changed),
        len(objects), figures,
    )  # fmt: skip


def _examples(
    split: "Split", op: "Decode", names: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, "Truth"]]:
    """Yields name, image and true boxes of each example as stored."""
    from vit_jax.data.ops.decode import BadImage

    read, truth_of = split.image_reader(), split.truth_reader()
    for index in range(len(split)):
        try:
            stored = read(index)
            image = op.in_python(stored) if isinstance(stored, bytes) else stored
            truth = truth_of(index)
        except (BadImage, OSError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            raise BadInput(f"{split.name(index)}: {reason}; correct it or leave it out.") from e
        if truth.classes.max(initial=-1) >= len(names):
            raise BadInput(
                f"{split.name(index)} has a box of class {truth.classes.max()}, of which there are "
                f"{len(names)}; correct the source."
            )
        if truth.sides not in (None, image.shape[:2]):
            raise BadInput(
                f"{split.name(index)} has {image.shape[1]} x {image.shape[0]} pixels, its boxes "
                f"are for {truth.sides[1]} x {truth.sides[0]}; correct one of them."
            )
        yield split.name(index), image, truth
