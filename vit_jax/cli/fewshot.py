# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax fewshot FILE_OR_RUN --data=SOURCE [--shots=1,5,10,25] [--method=ridge] [--json]`."""

import argparse
import dataclasses
import json
import logging
from typing import TYPE_CHECKING, Any

from vit_jax.cli import arguments
from vit_jax.errors import BadInput, together, unknown

if TYPE_CHECKING:
    from vit_jax.data.sources import registry as sources
    from vit_jax.data.splits.split import Split

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax fewshot runs/quickstart --data=digits --shots=1,5,10"

METHODS = ("ridge", "knn", "probe")
SEEDS = 3
_SHOTS = {"ridge": "1,5,10,25", "knn": "all", "probe": "all"}  # defaults
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    parser.add_argument(
        "--data", action="append", required=True, metavar="SOURCE",
        help="data source as kind:rest, see docs/data.md; can be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--shots", metavar="LIST",
        help="images per class, or all (default: 1,5,10,25 for ridge, all for knn and probe)",
    )  # fmt: skip
    parser.add_argument(
        "--method",
        default="ridge",
        metavar="NAME",
        help=f"one of {', '.join(METHODS)} (default: ridge)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--data_dir", default="", metavar="DIR", help="folder of prepared datasets")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if args.method not in METHODS:
        raise unknown("--method", args.method, METHODS)
    shots = parse_shots(_SHOTS[args.method] if args.shots is None else args.shots)
    if len(set(args.data)) < len(args.data):
        raise BadInput(f"--data is given twice with the same source: {', '.join(args.data)}.")
    arguments.check_image_size(args)
    with arguments.own_words():
        results = evaluate(args, shots)
    if args.json:
        print(json.dumps(results if len(results) > 1 else next(iter(results.values())), indent=2))
    else:
        print(as_text(results))
    return 0


def parse_shots(text: str) -> tuple[int, ...]:
    """Parses `1,5,all` as (1, 5, `shots.ALL`).

    Raises:
      BadInput: the text has anything but `all` and numbers from 1 on, each once.
    """
    from vit_jax.data.tasks.shots import ALL

    parts = [part.strip() for part in text.split(",")]
    good = all(p == "all" or (p.isascii() and p.isdecimal() and 0 < int(p) < 10**6) for p in parts)
    numbers = tuple(ALL if p == "all" else int(p) for p in parts) if good else ()
    if not good or len(set(numbers)) < len(numbers):
        raise BadInput(
            f"--shots={text!r}; give numbers of images per class from 1 on, each once, such as "
            "--shots=1,5,10, or all."
        )
    return numbers


def evaluate(args: argparse.Namespace, shots: tuple[int, ...]) -> dict[str, Any]:
    """Returns the results of `fewshot.evaluate` by source."""
    import jax

    from vit_jax import console
    from vit_jax.data.tasks import shots as shots_lib
    from vit_jax.evaluators import fewshot
    from vit_jax.reports import summary

    opened = _open_all(args)  # errors of the data come before weights are read
    model = arguments.open_model(args)
    log.info("devices: %s", summary.device_summary(jax.devices()))
    step = model.step()
    tasks = [shots_lib.make_task(source, shots, SEEDS) for source in opened]
    results = {}
    for task in tasks:
        for note in task.notes:
            log.info("data: %s: %s", task.source, note)

        def of(split: "Split", source: str = task.source) -> Any:
            with console.bar(source) as progress:
                return model.of_split(
                    step, split, lambda done: progress(done, len(split)), few_shot=True
                )

        features, classify = (of(task.train), of(task.test)), fewshot.classifier(args.method)
        results[task.source] = fewshot.evaluate(*features, task, classify)
    return results


def _open_all(args: argparse.Namespace) -> list["sources.Source"]:
    """Opens all sources; a run's own data keep the splits of the run."""
    from vit_jax.build import splits
    from vit_jax.checkpoints import step_folders
    from vit_jax.config import load as config_lib
    from vit_jax.data.sources import registry as sources
    from vit_jax.data.sources.source import Options, Source
    from vit_jax.data.tasks import shots
    from vit_jax.weights import loading

    own: Any = None
    if loading.may_be_run(args.weights):
        own = loading.find_run(args.weights)
    data = config_lib.read(str(own.workdir / step_folders.CONFIG_FILE)).data if own else None
    if data is not None and args.data_dir:
        data = dataclasses.replace(data, data_dir=args.data_dir)
    opened, wrong = list[Source](), list[BadInput]()
    for spec in args.data:
        try:
            if spec.partition(":")[0] not in sources.KINDS:
                raise sources.unknown_kind("--data", spec)
            if data is not None:
                opened.append(splits.few_shot_source(data, spec))
            else:
                opened.append(shots.open_source(spec, Options(data_dir=args.data_dir)))
            shots.check(opened[-1])
        except BadInput as e:
            wrong.append(e)
    if wrong:
        raise together(wrong)
    return opened


def as_text(results: dict[str, Any]) -> str:
    """Returns a line for each source and number of shots: the mean over seeds, and each seed."""
    from vit_jax import console

    rows = [
        [source, shots, f"{r['top1']:.2%}", " ".join(f"{v:.2%}" for v in r["seeds"])]
        for source, by_shots in results.items()
        for shots, r in by_shots.items()
    ]
    return console.table(["source", "shots", "top-1", "seeds"], rows)
