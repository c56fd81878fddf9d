# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax predict FILE_OR_RUN IMAGE... [--topk=5] [--out=preds.csv]`."""

import argparse
import contextlib
import csv
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from vit_jax.errors import BadInput

SUMMARY = "the likeliest classes of images"
OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax predict runs/mine photos/ --topk=5 --out=preds.csv"
COLUMNS = ("image", "rank", "class", "name", "probability")
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("weights", metavar="FILE_OR_RUN", help="file, URL, name, WORKDIR[@STEP]")
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE",
        help="file, or folder of them; - reads a list from standard input, one a line",
    )  # fmt: skip
    parser.add_argument("--topk", type=int, default=5, metavar="K", help="classes an image")
    parser.add_argument("--out", default="", metavar="FILE", help="CSV (default: standard output)")
    parser.add_argument(
        "--classes", default="", metavar="FILE", help="names, one a line, where the run has none"
    )
    parser.add_argument(
        "--image_size", type=int, default=0, metavar="N", help="pixels; default: the weights'"
    )
    parser.add_argument(
        "--heads", type=int, default=0, metavar="N", help="attention heads, if the file is silent"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if args.topk < 1:
        raise BadInput(f"--topk={args.topk}; give a number of classes from 1 on.")
    if args.image_size < 0:
        raise BadInput(f"--image_size={args.image_size}; give pixels, or leave it out.")
    from vit_jax import inference, reporting

    paths = inference.image_files(listed(args.images))
    names = class_names(args.classes)
    model = inference.open_model(args.weights, heads=args.heads, image_size=args.image_size)
    if names and len(names) != model.weights.classes:
        raise BadInput(
            f"--classes={args.classes} has {len(names)} names, the model {model.weights.classes} "
            "classes; give the list that it was trained with."
        )
    bad = dict[str, str]()
    with opened(args.out) as file, reporting.bar("images") as progress:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        done = 0
        for read, logits, unreadable in model.of_files(model.step(head=True), paths):
            table.writerows(_rows(model, names or model.names, read, logits, args.topk))
            bad |= unreadable
            done += len(read) + len(unreadable)
            progress(done, len(paths))
    if bad:
        first = next(iter(bad.values()))
        raise BadInput(
            f"{len(bad)} of {len(paths)} images cannot be read and are left out, first: {first}"
        )
    if args.out:
        log.info("%d images: %s", len(paths), args.out)
    return 0


def listed(given: list[str]) -> list[str]:
    """The arguments, `-` replaced by the lines of standard input."""
    found = list[str]()
    for text in given:
        found += [line for line in sys.stdin.read().splitlines() if line] if text == "-" else [text]
    return found


def class_names(path: str) -> tuple[str, ...]:
    """The lines of a file; () where none is named."""
    if not path:
        return ()
    try:
        lines = Path(os.path.expanduser(path)).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(f"--classes={path} cannot be read: {e}; give names, one a line.") from e
    return tuple(line.strip() for line in lines if line.strip())


@contextlib.contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """A new text file, or standard output."""
    if not path:
        yield sys.stdout
        return
    try:
        file = open(os.path.expanduser(path), "w", newline="")
    except OSError as e:
        raise BadInput(f"--out={path} cannot be written: {e.strerror}; give another file.") from e
    with file:
        yield file


def _rows(
    model: Any, names: tuple[str, ...], read: list[str], logits: Any, topk: int
) -> Iterator[tuple[str, int, int, str, str]]:
    """The best classes of each image, the likeliest first."""
    import numpy as np

    if not read:
        return
    probabilities = model.probabilities(logits)
    for path, row in zip(read, probabilities, strict=True):
        best = np.argsort(-row, kind="stable")[:topk]
        for rank, label in enumerate(best, 1):
            name = names[label] if names else ""
            yield path, rank, int(label), name, f"{row[label]:.6f}"
