# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax evaluate FILE_OR_RUN [--data=SOURCE] [--split=test] [--out=DIR]`."""

import argparse
import json
import logging
import os
from typing import Any

from vit_jax.cli import arguments

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax evaluate runs/mine --data=folder:/path/to/images --out=evaluation"
JSON_FILE, PAGE_FILE = "evaluation.json", "evaluation.html"
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    arguments.data(parser)
    parser.add_argument(
        "--out",
        default="evaluation",
        metavar="DIR",
        help=f"folder for {JSON_FILE} and {PAGE_FILE} (default: evaluation)",
    )
    arguments.names(parser)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    page, data = (arguments.writable(os.path.join(args.out, f)) for f in (PAGE_FILE, JSON_FILE))
    from vit_jax.reports import evaluation_page

    with arguments.own_words():
        evaluated = evaluate(args)
    arguments.write(
        data, (json.dumps(evaluation_page.as_json(evaluated), indent=1) + "\n").encode()
    )
    arguments.write(page, evaluation_page.page(evaluated).encode())
    print(evaluation_page.as_text(evaluated))
    log.info("written: %s, %s", data, page)
    return 0


def evaluate(args: argparse.Namespace) -> Any:
    """Evaluates the weights; returns an `evaluation_page.Evaluated`."""
    from vit_jax import console
    from vit_jax.analysis import confusion
    from vit_jax.data.sources.source import Source
    from vit_jax.data.splits import subset
    from vit_jax.data.tasks import test_sets
    from vit_jax.errors import BadInput
    from vit_jax.inference import model as inference
    from vit_jax.reports import evaluation_page

    opened = inference.open_data(args.weights, args.data or "", args.data_dir)
    name, split = inference.choose_split(opened, args.split)
    for note in opened.notes:
        log.info("data: %s", note)
    model = arguments.open_model(args)
    names = model.names
    if not names and len(opened.classes) != model.weights.classes > 0:
        raise BadInput(
            f"{args.weights} has {model.weights.classes} classes without names, {opened.spec} has "
            f"{len(opened.classes)}; give the names with --names=FILE, one per line."
        )
    known = Source(args.weights, names or opened.classes, {})
    test_set = test_sets.open_test_set(
        known, lambda _: opened, "--data",
        source=opened.spec, split=name, labels="", classes="all", data_dir=args.data_dir,
    )  # fmt: skip
    split = test_set.parts[""]
    labels_NK = subset.labels(split, "accuracy by class")
    step = model.step(model.best(5, test_set.columns))
    with console.bar(f"{opened.spec} {name}") as progress:
        best_NT = model.of_split(step, split, lambda done: progress(done, len(split)))
    tops = best_NT.shape[1] // 2
    likely = best_NT[:, :tops].astype(int)
    classes = known.classes if test_set.columns is None else opened.classes
    return evaluation_page.Evaluated(
        weights=args.weights,
        data=opened.spec,
        split=name,
        classes=classes,
        measured=confusion.measure(likely, labels_NK, len(classes)),
        mistakes=evaluation_page.mistakes(split, labels_NK, likely[:, 0], best_NT[:, tops]),
    )
