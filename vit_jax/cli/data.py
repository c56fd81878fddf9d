# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax data check|show|bench|stage SOURCE` and `vit_jax data prepare NAME --from=PATH`."""

import argparse
import dataclasses
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.pipeline.pipeline import Pipeline
    from vit_jax.data.prepare.packing import Packing
    from vit_jax.data.sources.source import Options, Source

OVERRIDES = True  # whether --config.key=value may follow; only after `show --config`
EXAMPLE = "vit_jax data check folder:/path/to/images"

# The default of `data show`: after the op that decodes. Masks and boxes are of images as stored.
_SHOWN = "inception_crop({size})|flip_lr"
_ACTIONS = {
    "check": "check that all images decode, or that a prepared dataset is complete",
    "show": "write a sheet of training examples as a PNG file",
    "bench": "measure the images/s of reading, decoding, augmenting and transfer",
    "stage": "copy the files of training images to a disk of this host",
    "prepare": "prepare a dataset from files that you have",
}
_EXAMPLES = {
    "check": "vit_jax data check folder:/path/to/images --json",
    "show": "vit_jax data show folder:/path/to/images --out=sheet.png",
    "bench": "vit_jax data bench folder:/path/to/images",
    "stage": "vit_jax data stage folder:/path/to/images --to=/local/nvme --budget=400GB",
    "prepare": "vit_jax data prepare imagenet2012 --from=/path/to/archives",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of the five actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check, show, bench, stage, prepare = (_action(actions, name) for name in _ACTIONS)
    check.add_argument(
        "source",
        metavar="SOURCE",
        help="data source as kind:rest, or the NAME of a prepared dataset, such as vtab",
    )
    for sub in (show, bench, stage):
        nargs, more = ("?", "; with --config, that of the recipe") if sub is show else (None, "")
        text = f"data source as kind:rest, see docs/data.md{more}"
        sub.add_argument("source", metavar="SOURCE", nargs=nargs, help=text)
    for sub in (check, show, bench, stage):
        keys = sub.add_argument_group(
            "options of records and tar sources", "same meaning as data.records in docs/config.md"
        )
        for key in ("image_key", "label_key", "name_key", "text_key"):
            what = key.removesuffix("_key")
            otherwise = "none" if key == "text_key" else "the first usual name that is there"
            text = f"field that holds the {what} (default: {otherwise})"
            keys.add_argument(f"--{key}", default="", metavar="TEXT", help=text)
        text = (
            "file of class names, one per line, also for masks and voc sources (default: "
            "labels.txt beside the data, for masks the file of classes in their folder)"
        )
        sub.add_argument("--label_names", default="", metavar="FILE", help=text)
        text = "largest number of labels of an image (default: 1)"
        keys.add_argument("--max_labels", type=int, default=1, metavar="K", help=text)
    for sub in (check, show):
        text = "channels of an image, as data.channels in docs/config.md (default: 3)"
        sub.add_argument("--channels", type=int, default=3, metavar="C", help=text)
    for sub in (check, bench):
        sub.add_argument("--json", action="store_true", help="print one JSON object")
    _add_show(show)
    _add_stage(stage)
    text = "training chain to measure (default: decode|inception_crop({size})|flip_lr, at size 224)"
    bench.add_argument("--ops", default="", metavar="CHAIN", help=text)
    prepare.add_argument(
        "name", metavar="NAME", help="dataset, such as imagenet2012, vtab/eurosat or my_images"
    )
    origin = "file or folder with the original data"
    prepare.add_argument("--from", dest="origin", required=True, metavar="PATH", help=origin)
    prepare.add_argument("--release", default="", help="imagenet21k only: fall11 or winter21")
    text = "make images smaller: their shorter side in pixels (default: 0, copy the files)"
    prepare.add_argument("--size", type=int, default=0, metavar="N", help=text)
    text = (
        "with --size: quality of the JPEG files, a number from 1 to 100, or lossless: uint8 pixels "
        "without compression, which training need not decode (default: 90)"
    )
    prepare.add_argument("--quality", default="", metavar="Q", help=text)


def _add_show(show: argparse.ArgumentParser) -> None:
    add = show.add_argument
    add("--out", default="sheet.png", metavar="FILE", help="file to write (default: sheet.png)")
    text = (
        "recipe whose first training examples are drawn, with its preprocessing, size and seed; "
        "--config.key=value may follow, as in vit_jax train"
    )
    add("--config", default="", metavar="FILE[:ARGS]", help=text)
    text = (
        f"preprocessing (default: decode(exif=True)|{_SHOWN}, with masks or boxes decode|{_SHOWN})"
    )
    add("--ops", default="", metavar="CHAIN", help=text)
    sides = "side of the images, or ROWSxCOLUMNS (default: 224)"
    add("--size", default="224", metavar="N", help=sides)
    text = "seed of order and augmentation (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=text)


def _add_stage(stage: argparse.ArgumentParser) -> None:
    text = "folder on a disk of this host; give the same as data.stage of the run"
    stage.add_argument("--to", required=True, metavar="FOLDER", help=text)
    text = (
        "bytes that the folder may hold, such as 400GB or 2GiB (default: 90 %% of the free space)"
    )
    stage.add_argument("--budget", default="", metavar="SIZE", help=text)


def _action(actions: Any, name: str) -> argparse.ArgumentParser:
    """Returns the parser of one action, with the arguments that all actions share."""
    text = _ACTIONS[name]
    sub = actions.add_parser(
        name, help=text, description=text, epilog=f"example: {_EXAMPLES[name]}"
    )
    sub.add_argument("--data_dir", default="", metavar="DIR", help="folder of prepared datasets")
    threads = "number of threads (default: 0, one per core)"
    sub.add_argument("--workers", type=int, default=0, metavar="N", help=threads)
    sub.add_argument(
        "--offline",
        action="store_true",
        default=argparse.SUPPRESS,  # keeps the value given before ACTION
        help="never use the network",
    )
    return sub


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if rest and not getattr(args, "config", ""):
        without = " without --config=FILE" if args.action == "show" else ""
        example = _EXAMPLES[args.action]
        raise BadInput(f"data {args.action} takes no {rest[0]!r}{without}; an example: {example}.")
    if args.workers < 0:
        raise BadInput(
            f"--workers={args.workers}; give a number of threads, or 0 for one per core."
        )
    workers = args.workers or os.cpu_count() or 1
    actions = {
        "check": _check, "show": _show, "bench": _bench, "stage": _stage, "prepare": _prepare
    }  # fmt: skip
    if getattr(args, "config", ""):
        return _show_recipe(args, rest)
    with arguments.own_words(flags_of_records=True):
        return actions[args.action](args, workers)


def _open(args: argparse.Namespace) -> Any:
    from vit_jax.data.sources import registry as sources

    return sources.open_source(args.source, _options(args), val_percent=0, test_percent=0)


def _options(args: argparse.Namespace) -> "Options":
    from vit_jax.data.sources.source import Options

    if args.max_labels < 1:
        raise BadInput(f"--max_labels={args.max_labels}; give a number from 1 on.")
    names = [field.name for field in dataclasses.fields(Options)]
    return Options(**{name: getattr(args, name) for name in names})


def _check(args: argparse.Namespace, workers: int) -> int:
    from vit_jax.data.sources import registry as sources

    kind, _, name = args.source.partition(":")
    if kind not in sources.KINDS:
        if not name:
            try:
                return _say(args, *_prepared(kind, args))
            except BadInput:
                if not sources.may_be_path(args.source):
                    raise
        raise sources.unknown_kind("source", args.source)
    facts: dict[str, Any] = {}
    lines: list[str] = []
    if kind in ("tfds", "vtab"):
        named = f"vtab/{name.removesuffix('/full')}" if kind == "vtab" else name
        facts, lines, code = _prepared(named, args)
        if code:
            return _say(args, facts, lines, code)
    more, images, code = _images(args, workers)
    return _say(args, facts | more, [*lines, *images], code)


def _images(args: argparse.Namespace, workers: int) -> tuple[dict[str, Any], list[str], int]:
    """Decodes every image; returns the findings for JSON, the lines, and the exit code."""
    from vit_jax import console
    from vit_jax.data.formats.boxes import NOT_CHECKED
    from vit_jax.data.inspect import check
    from vit_jax.data.sources import boxes

    channels = _channels(args)
    wrong, source = boxes.examined(args.source, _options(args))
    source = source or _open(args)
    with console.bar("images") as progress:
        report = check.check_images(source, workers, progress, channels)
    notes = [f"  {note}" for note in source.notes]
    stated = [(one.where, one.reason) for one in wrong if one.left_out != NOT_CHECKED]
    unknown = tuple((one.where, one.reason) for one in wrong if one.left_out == NOT_CHECKED)
    report = dataclasses.replace(report, bad=(*stated, *report.bad), notes=unknown)
    shown = check.MOST_OF_KIND if wrong or report.boxes else None
    return report.as_json(), [report.as_text(shown), *notes], 2 if report.bad else 0


def _prepared(name: str, args: argparse.Namespace) -> tuple[dict[str, Any], list[str], int]:
    """Checks that a named dataset or group is prepared and complete.

    Returns the same as `_images`.
    """
    from vit_jax.data.catalog import downloads, prepared

    datasets: list[dict[str, Any]] = []
    lines, code = [], 0
    for need in downloads.needs(name, args.data_dir):
        entry = dataclasses.asdict(need)
        if need.state == "ready":
            state = prepared.check(Path(need.folder))
            entry |= dataclasses.asdict(state) | {"name": need.name}
            lines.append(state.text())
            if need.also:
                lines.append(f"  also {', '.join(need.also)}")
            code = 2 if state.problems else code
        else:
            lines.append(need.text())
            code = 2
        datasets.append(entry)
    return {"datasets": datasets}, lines, code


def _channels(args: argparse.Namespace) -> int:
    if not 1 <= args.channels <= 1024:
        raise BadInput(f"--channels={args.channels}; give a number from 1 to 1024.")
    return args.channels


def _show(args: argparse.Namespace, workers: int) -> int:
    from vit_jax.config import images
    from vit_jax.data import readers
    from vit_jax.data.example import SPATIAL
    from vit_jax.data.ops import chain as preprocess

    if args.source is None:
        raise BadInput("data show needs a SOURCE, such as folder:/path/to/images, or --config.")
    size, channels = images.parse(images.plain(args.size)), _channels(args)
    if size is None or not all(1 <= side <= 4096 for side in size):
        raise BadInput(
            f"--size={args.size}; give a number of pixels from 1 to 4096, or ROWSxCOLUMNS."
        )
    preprocess.parse("--ops", args.ops or "decode", size, channels)
    out = arguments.writable(args.out)
    source = _open(args)
    split = source.split("train" if "train" in source.splits else next(iter(source.splits)))
    pipe = readers.pipeline_of(readers.usable())(
        split, (), 1, args.seed, size, workers, prefetch=1, channels=channels, fields=None
    )
    spatial = set(SPATIAL) & set(pipe.field_names)
    chain = args.ops or f"{'decode' if spatial else 'decode(exif=True)'}|{_SHOWN}"
    pipe = dataclasses.replace(pipe, ops=preprocess.parse("--ops", chain, size, channels))
    return _draw(out, pipe, source, chain)


def _show_recipe(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """Draws the first training examples of a recipe as its runs see them."""
    flags = {"ops": "", "size": "224", "seed": 0, "channels": 3, "data_dir": "", "workers": 0}
    flags |= {f"{key}_key": "" for key in ("image", "label", "name", "text")}
    flags |= {"label_names": "", "max_labels": 1}
    for flag, unset in flags.items():
        if getattr(args, flag) != unset:
            raise BadInput(
                f"--{flag} has no use with --config, whose recipe says it; set its key, such as "
                "--config.data.train_ops=CHAIN or --config.data.image_size=N."
            )
    from vit_jax.config import load as config_lib

    given = [f"--config.data.source={args.source}"] if args.source is not None else []
    if given and any(word.split("=")[0] == "--config.data.source" for word in rest):
        raise BadInput("data show has both SOURCE and --config.data.source; leave one out.")
    config = config_lib.load(args.config, [*rest, *given])
    from vit_jax import console
    from vit_jax.build import defaults, objectives, splits
    from vit_jax.build import run as build

    out = arguments.writable(args.out)
    config = defaults.settle(config)
    source = splits.open_source(config.data)
    pipe, chain = build.drawn_pipeline(config, source, fields=None)
    has = pipe.field_names
    if lacking := [name for name in objectives.spatial_names(config) if name not in has]:
        console.show(
            f"vit_jax: the examples of {source.spec} have no {' and no '.join(lacking)}, which "
            "the recipe trains on: the sheet shows none, and a run would be refused. Give data "
            "that have them, see docs/data.md."
        )
    return _draw(out, pipe, source, chain)


def _draw(out: Path, pipe: "Pipeline", source: "Source", chain: str) -> int:
    from vit_jax.data.inspect import show

    pipe.probe()
    picture = show.sheet(pipe, source.classes, source=source.spec, chain=chain, rows=4, columns=6)
    arguments.write(out, picture)
    print(out)
    return 0


def _bench(args: argparse.Namespace, workers: int) -> int:
    import jax

    from vit_jax.data.inspect import bench
    from vit_jax.runtime import coordination

    if not coordination.present_accelerators():
        jax.config.update("jax_platforms", "cpu")  # otherwise libtpu complains about a missing TPU
    source = _open(args)
    split = source.split("train" if "train" in source.splits else next(iter(source.splits)))
    timings = bench.bench(split, workers, chain=args.ops or bench.CHAIN)
    return _say(args, timings, [bench.as_text(timings)])


def _stage(args: argparse.Namespace, workers: int) -> int:
    from vit_jax import console
    from vit_jax.data.staging import background, command, copies

    most = copies.budget("--budget", args.budget)
    source = _open(args)
    split = source.split("train" if "train" in source.splits else next(iter(source.splits)))
    background.check("data stage", split)  # before the folder is made
    folder = copies.Copies("--to", args.to, most)
    with console.bar("files") as progress:
        print(command.stage(split, folder, workers, progress))
    budget = f" --config.data.stage_budget={shlex.quote(args.budget)}" if args.budget else ""
    print(f"train with --config.data.stage={shlex.quote(str(folder.folder))}{budget}")
    return 0


def _prepare(args: argparse.Namespace, workers: int) -> int:
    packing = _packing(args)
    from vit_jax import console
    from vit_jax.data.prepare import job

    with console.bar("images") as progress, console.bar("bytes unpacked") as unpacked:
        reports = job.prepare(
            args.name, Path(args.origin), args.data_dir, workers, args.release, progress, unpacked,
            packing,
        )  # fmt: skip
    print("\n".join(report.text() for report in reports))
    return 0


def _packing(args: argparse.Namespace) -> "Packing | None":
    """Returns how `data prepare` makes images smaller; None if it copies them."""
    if not 0 <= args.size <= 4096:
        raise BadInput(f"--size={args.size}; give a side from 1 to 4096 pixels.")
    if not args.size and args.quality:
        raise BadInput(f"--quality={args.quality} has no use without --size; give both.")
    number = re.fullmatch("[1-9][0-9]?|100", args.quality or "90")
    if not number and args.quality != "lossless":
        raise BadInput(f"--quality={args.quality}; give a number from 1 to 100, or lossless.")
    if not args.size:
        return None
    from vit_jax.data.prepare.packing import Packing

    return Packing(args.size, int(number[0]) if number else None)


def _say(
    args: argparse.Namespace, facts: dict[str, Any], lines: Sequence[str], code: int = 0
) -> int:
    text = json.dumps(facts, indent=2) if args.json else "\n".join(lines)
    print(text.encode(errors="backslashreplace").decode())  # file names may be any bytes
    return code
