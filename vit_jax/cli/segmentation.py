# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax predict` and `vit_jax evaluate` for runs that learned the class of each pixel.

Start from `predict` and `evaluate`.
"""

import argparse
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vit_jax.cli import arguments, dense
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.ops.decode import Decode
    from vit_jax.data.splits.split import Split
    from vit_jax.inference.segmenter import Segmenter
    from vit_jax.reports.segmentation_page import Segmented


def whole(parser: argparse.ArgumentParser) -> None:
    """Declares --whole."""
    parser.add_argument(
        "--whole",
        action="store_true",
        help="segmentation: resize each image as a whole (default: sliding windows)",
    )


def is_segmentation(args: argparse.Namespace) -> bool:
    """Returns True if `weights` is a run that learned segmentation.

    Raises:
      BadInput: it is not one, and `--whole` is given.
    """
    if arguments.learned(args, "segmentation"):
        return True
    if args.whole:
        raise BadInput(f"--whole has no use with {args.weights}, which has no masks; leave it out.")
    return False


def _open(args: argparse.Namespace) -> "Segmenter":
    from vit_jax.inference import segmenter

    with arguments.own_words():
        return segmenter.open_run(args.weights, arguments.image_size(args), args.whole)


def _palette(model: "Segmenter") -> np.ndarray:
    """Returns the colours of the classes, uint8 [Y, 3]: those of the data, if they have some."""
    from vit_jax.data.inspect import colours

    own = model.run.colours
    return colours.palette(len(model.run.names)) if own is None else own


# ---------------------------------------------------------------- predict


def predict(args: argparse.Namespace) -> int:
    """Writes masks, overlays and a legend into the folder `--out`; returns the exit code."""
    from vit_jax.data.inspect import colours, show

    arguments.check_unused(args, "masks", topk=5, names="", heads=0, patch=0, pack=0)
    if not args.out:
        raise BadInput(f"{args.weights} predicts masks; give --out=FOLDER for them.")
    out = Path(args.out).expanduser().resolve()
    arguments.check_apart(args, out, "masks")
    folder = arguments.writable(os.path.join(args.out, "classes.txt")).parent
    images = dense.Images(args.images)
    model = _open(args)
    palette = _palette(model)
    for _, name, image, mask in images.predicted(model):
        shown = colours.overlay(show.visible(image), mask, palette)
        arguments.write(folder / "masks" / name, colours.index_png(mask, palette))
        arguments.write(folder / "overlays" / name, colours.png(shown))
    lines = [
        f"{label} {name} {' '.join(map(str, palette[label]))}\n"
        for label, name in enumerate(model.run.names)
    ]
    arguments.write(folder / "classes.txt", "".join(lines).encode(errors="surrogateescape"))
    arguments.write(
        folder / "legend.png", colours.png(colours.legend(model.run.names, own=palette))
    )
    images.finish(args.out)
    return 0


# ---------------------------------------------------------------- evaluate


def evaluate(args: argparse.Namespace) -> "Segmented":
    """Measures a run on a split, at the size that each mask has."""
    from vit_jax import console
    from vit_jax.data.inspect import show
    from vit_jax.data.numpy_ops.resize import Unsuitable
    from vit_jax.evaluators.segmentation import Pixels
    from vit_jax.inference import model as inference
    from vit_jax.reports import dense_page, segmentation_page, summary

    unused = {"labels": "", "classes": "all", "names": "", "heads": 0, "patch": 0, "pack": 0}
    arguments.check_unused(args, "masks", **unused, merge_tokens=None)
    with arguments.own_words():
        opened = inference.open_data(args.weights, args.data or "", args.data_dir)
        name, split = inference.choose_split(opened, args.split)
    model = _open(args)
    advice = "name such pixels void in the file of classes"
    own_classes = arguments.own_classes(args.weights, model.run.names, opened, advice)
    palette, pixels = _palette(model), Pixels(len(model.run.names))

    def images() -> Iterator[tuple[np.ndarray, tuple[str, np.ndarray]]]:
        for example, image, mask in _examples(split, model.run.decode, len(opened.classes)):
            try:
                model.check(image)
            except Unsuitable as e:
                raise BadInput(f"{example}: {e}, or leave it out.") from e
            yield image, (example, own_classes(mask))

    worst = dense_page.Worst()
    with console.bar("images") as progress:
        for done, (image, known, predicted) in enumerate(dense.applied(model, images()), 1):
            example, mask = known
            miou = pixels.add(mask, predicted)
            if (mask >= 0).any():
                shown = show.visible(image)
                drawing = (example, miou, shown, mask, predicted, palette)
                worst.add(miou, functools.partial(segmentation_page.case, *drawing))
            progress(done, len(split))
    if not pixels.counts_YY.any():
        raise BadInput(f"no pixel of {opened.spec}, split {name}, has a class.")
    measured = {name: {"windows_miou": pixels.figures.miou}} if not args.data else {}
    return segmentation_page.Segmented(
        args.weights, args.data or opened.spec, name, model.run.size, model.run.names,
        worst.cases(), summary.verdict(measured, model.run.expected, model.run.changed),
        "whole" if args.whole else "windows", pixels, palette,
    )  # fmt: skip


def _examples(
    split: "Split", op: "Decode", classes: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields name, image and mask of each example as stored."""
    from vit_jax.data.formats.mask_file import fault
    from vit_jax.data.formats.stored import read_image
    from vit_jax.data.ops.decode import BadImage

    read = split.numpy_reader()
    for index in range(len(split)):
        fields = read(index)
        if "mask" not in fields:
            raise BadInput(f"{split.name(index)} has no mask; give --data=masks:PATH.")
        try:
            stored = read_image(fields["image"])
            image = op.in_python(stored) if isinstance(stored, bytes) else stored
            mask = np.asarray(read_image(fields["mask"]))
            if problem := fault(mask, image.shape[:2], classes):
                raise BadImage(problem)
        except (BadImage, OSError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            place = getattr(fields["mask"], "path", "its mask")
            raise BadInput(
                f"{split.name(index)} with {place}: {reason}; correct one of them."
            ) from e
        yield split.name(index), image, mask
