# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax evaluate FILE_OR_RUN [--data=SOURCE] [--split=test] [--labels=FILE] [--out=DIR]`."""

import argparse
import json
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vit_jax.cli import arguments, detection, segmentation, two_towers
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.sources.source import Source
    from vit_jax.data.splits.split import Split
    from vit_jax.data.tasks.test_sets import Evaluation
    from vit_jax.inference.model import Model

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax evaluate runs/mine --data=folder:/path/to/images --out=evaluation"
JSON_FILE, PAGE_FILE = "evaluation.json", "evaluation.html"
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    arguments.pack(parser)
    arguments.data(parser)
    parser.add_argument(
        "--labels",
        default="",
        metavar="FILE",
        help="ReaL's real.json, for ImageNet's validation images (default: the source's labels)",
    )
    parser.add_argument(
        "--classes",
        choices=("all", "present"),
        default="all",
        help="choose among all classes of the model, or those of the images (default: all)",
    )
    parser.add_argument(
        "--merge_tokens",
        type=int,
        metavar="N",
        help="number of pairs of similar tokens that each layer merges (default: as in the run)",
    )
    parser.add_argument(
        "--out",
        default="evaluation",
        metavar="DIR",
        help=f"folder for {JSON_FILE} and {PAGE_FILE} (default: evaluation)",
    )
    arguments.names(parser)
    segmentation.whole(parser)
    two_towers.add_arguments(parser)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    page, data = (arguments.writable(os.path.join(args.out, f)) for f in (PAGE_FILE, JSON_FILE))
    from vit_jax.reports import detection_page, evaluation_page, segmentation_page

    report: Any = evaluation_page
    if two_towers.is_two_towers(args):
        if args.retrieval:
            found = two_towers.retrieval(args)
            arguments.write(data, (json.dumps(found, indent=1) + "\n").encode())
            print(two_towers.as_text(found))
            log.info("written: %s", data)
            return 0
        evaluated = two_towers.zero_shot(args)
    elif segmentation.is_segmentation(args):
        report, evaluated = segmentation_page, segmentation.evaluate(args)
    elif detection.is_detection(args):
        report, evaluated = detection_page, detection.evaluate(args)
    else:
        with arguments.own_words():
            evaluated = evaluate(args)
    arguments.write(data, (json.dumps(report.as_json(evaluated), indent=1) + "\n").encode())
    arguments.write(page, report.page(evaluated).encode())
    print(report.as_text(evaluated))
    log.info("written: %s, %s", data, page)
    return 0


def evaluate(args: argparse.Namespace) -> Any:
    """Evaluates the weights; returns an `evaluation_page.Evaluated`."""
    from vit_jax.analysis import confusion
    from vit_jax.inference import model as inference
    from vit_jax.paper import robustness
    from vit_jax.reports import evaluation_page

    specs = list(robustness.parts(args.data or "").values())  # 75 for ImageNet-C
    opened = inference.open_data(args.weights, specs[0], args.data_dir)
    split, _ = inference.choose_split(opened, args.split)
    for note in opened.notes:
        log.info("data: %s", note)
    model = arguments.open_model(args)
    test_set, classes = _test_set(args, model, opened, split)
    parts = {
        name: _Predicted(part, *_predictions(model, test_set, name))
        for name, part in test_set.parts.items()
    }
    most = max(part.labels_NK.shape[1] for part in parts.values())
    labels_NK = np.concatenate([_widened(part.labels_NK, most) for part in parts.values()])
    best_NT = np.concatenate([part.best_NT for part in parts.values()])
    mistakes = [
        mistake
        for part in parts.values()
        for mistake in evaluation_page.mistakes(
            part.split, part.labels_NK, part.best_NT[:, 0], part.likely_NT[:, 0]
        )
    ]
    top1 = {name: part.top1 for name, part in parts.items()}
    more = {key: value for key in ("patch", "pack") if (value := vars(args).get(key))}
    more |= {"ops": model.chain, "dtype": str(model.cfg.dtype)}
    return evaluation_page.Evaluated(
        weights=args.weights,
        data=args.data or opened.spec,
        split=split,
        classes=classes,
        measured=confusion.measure(best_NT, labels_NK, len(classes)),
        mistakes=sorted(mistakes, key=lambda m: -m.probability)[: evaluation_page.LISTED],
        errors={} if "" in top1 else robustness.corruption_errors(top1),
        labels=args.labels,
        among=args.classes,
        model=arguments.identity(args.weights, model) | more,
    )


class _Predicted(NamedTuple):
    """Holds a part of a test set: labels, -1 padded, likeliest classes and probabilities."""

    split: "Split"
    labels_NK: np.ndarray
    best_NT: np.ndarray
    likely_NT: np.ndarray

    @property
    def top1(self) -> float:
        return float((self.labels_NK == self.best_NT[:, :1]).any(axis=1).mean())


def _test_set(
    args: argparse.Namespace, model: "Model", opened: "Source", split: str
) -> tuple["Evaluation", tuple[str, ...]]:
    """Returns the images, and the names of the classes that the model chooses among."""
    from vit_jax.data.sources.source import Source
    from vit_jax.data.tasks import test_sets
    from vit_jax.inference import model as inference

    source = args.data or opened.spec

    def open_part(spec: str) -> Source:
        same = spec in (opened.spec, source)
        return opened if same else inference.open_data(args.weights, spec, args.data_dir)

    known = Source(args.weights, _class_names(args, model, opened), {})
    test_set = test_sets.open_test_set(
        known, open_part, "--data",
        source=source, split=split, labels=args.labels, classes=args.classes,
        data_dir=args.data_dir,
    )  # fmt: skip
    if not test_set.labelled and known.classes:
        raise BadInput(f"--data={source}: its images have no labels; give others, or --labels.")
    if test_set.columns is None:
        return test_set, known.classes
    if opened.stands_for and args.classes == "all":
        return test_set, opened.classes
    of_column = [[known.classes[k] for k in row if k >= 0] for row in test_set.columns.tolist()]
    return test_set, tuple(map(" or ".join, of_column))


def _class_names(args: argparse.Namespace, model: "Model", opened: "Source") -> tuple[str, ...]:
    """Returns the names of the model's classes, which weights without names take from the data.

    Raises:
      BadInput: the data do not tell them.
    """
    classes = model.weights.classes
    if model.names or (len(opened.classes) == classes and not args.labels):
        return model.names or opened.classes
    from vit_jax.data.catalog import imagenet_labels

    wnids = imagenet_labels.wnids()
    shown = {name for names in opened.stands_for for name in names} or {*opened.classes}
    if classes == len(wnids) and (args.labels or shown <= {*wnids}):
        log.info("classes: %s has 1,000 without names, taken as ImageNet's in order", args.weights)
        return tuple(wnids)
    if not classes:
        return opened.classes  # `best` says that there is no head
    raise BadInput(
        f"{args.weights} has {classes} classes without names, {opened.spec} has "
        f"{len(opened.classes)}; give the names with --names=FILE, one per line."
    )


def _predictions(
    model: "Model", test_set: "Evaluation", part: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns labels [N, K], the likeliest classes [N, T] and their probabilities [N, T]."""
    from vit_jax import console
    from vit_jax.data.splits import subset

    split = test_set.parts[part]
    labels_NK = subset.labels(split, "accuracy by class")
    step = model.step(model.best(5, test_set.columns))
    with console.bar(part or "images") as progress:
        both = model.of_split(step, split, lambda done: progress(done, len(split)))
    tops = both.shape[1] // 2
    return labels_NK, both[:, :tops].astype(int), both[:, tops:]


def _widened(labels_NK: np.ndarray, most: int) -> np.ndarray:
    return np.pad(labels_NK, ((0, 0), (0, most - labels_NK.shape[1])), constant_values=-1)
