# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax predict FILE_OR_RUN IMAGE... [--topk=5] [--out=preds.csv | --out=FOLDER]`."""

import argparse
import csv
import io
import logging
import sys
from typing import Any

from vit_jax.cli import arguments, detection, segmentation
from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax predict runs/mine photos/ --topk=5 --out=preds.csv"
COLUMNS = ("image", "rank", "class", "name", "probability")
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    arguments.pack(parser)
    arguments.images(parser, "+")
    parser.add_argument(
        "--topk", type=int, default=5, metavar="K", help="classes per image (default: 5)"
    )
    parser.add_argument(
        "--out", default="", metavar="FILE",
        help="CSV file to write (default: standard output); segmentation: folder for masks; "
        "detection: JSON file for boxes",
    )  # fmt: skip
    segmentation.whole(parser)
    arguments.names(parser)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    if args.topk < 1:
        raise BadInput(f"--topk={args.topk}; give a number of classes from 1 on.")
    if segmentation.is_segmentation(args):
        return segmentation.predict(args)
    if detection.is_detection(args):
        return detection.predict(args)
    out = arguments.writable(args.out) if args.out else None
    from vit_jax import console
    from vit_jax.inference import inputs

    paths = inputs.image_files(args.images, sys.stdin)
    model = arguments.open_model(args)
    step = model.step(model.best(args.topk))
    with console.bar("images") as progress:
        read, best_NT, bad = model.of_files(step, paths, lambda done: progress(done, len(paths)))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_rows(model.names, read, best_NT))
    if out is None:
        print(text.getvalue(), end="")
    else:
        arguments.write(out, text.getvalue().encode(errors="surrogateescape"))
        log.info("%d images: %s", len(read), args.out)
    arguments.check_all_read(bad, len(paths))
    return 0


def _rows(names: tuple[str, ...], read: list[str], best_NT: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of each image's likeliest classes, from the result of `Model.best`."""
    most = best_NT.shape[1] // 2
    return [
        (path, rank + 1, label, names[label] if names else "", f"{row[most + rank]:.6f}")
        for path, row in zip(read, best_NT, strict=True)
        for rank, label in enumerate(row[:most].astype(int).tolist())
    ]
