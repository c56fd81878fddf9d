# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax evaluate` for weights that compare images with texts.

Start from `zero_shot` and `retrieval`.
"""

import argparse
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.sources.source import Source
    from vit_jax.data.splits.split import Split
    from vit_jax.inference.towers import Towers

log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares --templates, --tokenizer and --retrieval."""
    parser.add_argument(
        "--templates",
        default="",
        metavar="TEXT",
        help="image-text weights: text with {} for the name of a class, or a file of such lines "
        "(default: that of the run, else 'a photo of a {}.')",
    )
    parser.add_argument(
        "--tokenizer",
        default="",
        metavar="FILE",
        help="image-text weights: SentencePiece model, vocabulary of WordPieces (.txt), or bytes "
        "(default: that of the run)",
    )
    parser.add_argument(
        "--retrieval",
        action="store_true",
        help="image-text weights: find texts of images and images of texts (default: classify)",
    )


def is_two_towers(args: argparse.Namespace) -> bool:
    """Returns True if `weights` compare images with texts: such a run, or a file with a tokenizer.

    Raises:
      BadInput: they do not, and an argument needs it.
    """
    from vit_jax.weights import loading

    if not loading.may_be_run(args.weights):
        learned = bool(args.tokenizer)
    else:
        from vit_jax.inference import dense_run, towers

        learned = dense_run.learns(args.weights, towers.OBJECTIVE)
    given = [name for name in ("templates", "retrieval", "tokenizer") if getattr(args, name)]
    if given and not learned:
        raise BadInput(
            f"--{given[0]} has no use with {args.weights}, which is not a run that learned from "
            "texts; leave it out, or for a file of image-text weights give --tokenizer=FILE."
        )
    return learned


def _open(args: argparse.Namespace) -> tuple["Towers", "Source", str, "Split"]:
    from vit_jax.inference import model as inference
    from vit_jax.inference import towers

    for name, default in {"labels": "", "classes": "all", "names": "", "whole": False}.items():
        if getattr(args, name) != default:
            raise BadInput(
                f"--{name} has no use with {args.weights}, which learned from texts; leave it out."
            )
    with arguments.own_words():
        opened = inference.open_data(args.weights, args.data or "", args.data_dir)
        name, split = inference.choose_split(opened, args.split)
    for note in opened.notes:
        log.info("data: %s", note)
    both = towers.open_towers(args.weights, arguments.open_model(args), args.tokenizer)
    return both, opened, name, split


def zero_shot(args: argparse.Namespace) -> Any:
    """Classifies the images of a split by names of classes; returns an `Evaluated`."""
    from scipy import special

    from vit_jax import console
    from vit_jax.analysis import confusion
    from vit_jax.data import texts
    from vit_jax.data.splits import subset
    from vit_jax.evaluators.zero_shot import TEMPLATE
    from vit_jax.reports import evaluation_page

    with arguments.own_words():
        templates = texts.templates(args.templates)
    both, opened, name, split = _open(args)
    if len(opened.classes) < 2:
        raise BadInput(
            f"{opened.spec} has {len(opened.classes)} classes to choose among; give --data with "
            "classes, or --retrieval."
        )
    labels_NK = subset.labels(split, "zero-shot accuracy")
    with console.bar("images") as progress:
        logits_NY = both.logits(
            split, opened.classes, templates, lambda done: progress(done, len(split))
        )
    best_NT = np.argsort(-logits_NY, axis=1, kind="stable")[:, :5]
    sigmoid = both.objective.loss == "sigmoid"
    made_NY = special.expit(logits_NY) if sigmoid else special.softmax(logits_NY, axis=1)
    likely_N = np.take_along_axis(made_NY, best_NT[:, :1], axis=1)[:, 0]
    return evaluation_page.Evaluated(
        weights=args.weights,
        data=args.data or opened.spec,
        split=name,
        classes=opened.classes,
        measured=confusion.measure(best_NT, labels_NK, len(opened.classes)),
        mistakes=evaluation_page.mistakes(split, labels_NK, best_NT[:, 0], likely_N),
        model=_identity(args, both)
        | {"zero_shot": list(templates or both.objective.texts.templates or (TEMPLATE,))},
    )


def _identity(args: argparse.Namespace, both: "Towers") -> dict[str, Any]:
    """Returns what tells the weights, and how texts became tokens."""
    how = both.objective
    known = {"tokenizer": how.tokenizer, "clean": how.clean, "pad": how.pad}
    return arguments.identity(args.weights, both.model) | known


def retrieval(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the recalls of a split with texts, and what was compared."""
    from vit_jax import console
    from vit_jax.data import texts
    from vit_jax.evaluators import retrieval as retrieval_lib

    if args.templates:
        raise BadInput("--templates has no use with --retrieval; leave one of them out.")
    both, opened, name, split = _open(args)
    lines, pairs_P2 = retrieval_lib.together(texts.of_split(split))
    with console.bar("images") as progress:
        images_NE = both.images(split, lambda done: progress(done, len(split)))
    found = retrieval_lib.recalls(images_NE, both.texts(lines), pairs_P2)
    return {
        "weights": args.weights, "data": args.data or opened.spec, "split": name,
        "model": _identity(args, both), "images": len(split), "texts": len(lines), **found,
    }  # fmt: skip


def as_text(found: dict[str, Any]) -> str:
    """Returns the recalls as a table."""
    from vit_jax import console
    from vit_jax.evaluators.retrieval import AT

    rows = [
        [what, *(f"{found[f'{key}_at_{k}']:.2%}" for k in AT)]
        for what, key in (("text of an image", "text"), ("image of a text", "image"))
    ]
    table = console.table(["recall at", *map(str, AT)], rows)
    return f"{table}\n\n{found['images']:,} images, {found['texts']:,} different texts"
