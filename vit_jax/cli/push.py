# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax push RUN OWNER/NAME [--out=FOLDER]`."""

import argparse
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vit_jax.cli import arguments
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.weights.loading import Run

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax push runs/quickstart someone/digits --out=runs/digits_repository"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("weights", metavar="RUN", help="WORKDIR, WORKDIR@best or WORKDIR@STEP")
    parser.add_argument("name", metavar="OWNER/NAME", help="repository of the hub; made if missing")
    parser.add_argument("--out", metavar="FOLDER", help="write the files there and upload nothing")
    parser.add_argument(
        "--license", default="", metavar="ID", help="licence of the weights, e.g. apache-2.0"
    )
    parser.add_argument(
        "--private", action="store_true", help="make a missing repository for its owner alone"
    )
    parser.set_defaults(image_size="0", patch=0, heads=0)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", args.name):
        raise BadInput(f"{args.name!r} is not the name of a repository; expected OWNER/NAME.")
    from vit_jax.weights import hub

    _run_of(args.weights)  # before a token is asked for
    if args.out is None:
        hub.check_upload(args.name)
        with tempfile.TemporaryDirectory() as folder:
            step = write(args, Path(folder))
            message = f"Weights of step {step}"
            address = hub.upload(Path(folder), args.name, message, private=args.private)
            print(f"uploaded: {address}")
        return 0
    if storage.is_remote(args.out):
        raise BadInput(f"--out={args.out} is in a bucket; write to a disk.")
    out = arguments.place(args.out)
    if out.exists() and not (out.is_dir() and {p.name for p in out.iterdir()} <= _files()):
        raise BadInput(f"--out={out} exists and is not such a folder; give another.")
    step = write(args, out)
    print(f"{args.out}: step {step}; upload it with `hf upload {args.name} {args.out}`")
    return 0


def write(args: argparse.Namespace, folder: Path) -> int:
    """Writes weights, config.json and model card of a run into a folder; returns the step."""
    import jax

    jax.config.update("jax_platforms", "cpu")  # no device is needed, and it may be in use
    from vit_jax import console
    from vit_jax.inference.export import writer
    from vit_jax.reports import model_card
    from vit_jax.storage import checksums
    from vit_jax.weights import hub

    run = _run_of(args.weights)
    args.weights = f"{run.workdir}@{run.step}"  # a run in progress may save another step meanwhile
    model = arguments.open_model(args)
    file = folder / hub.FILE
    with console.bar("export") as progress:
        exported = writer.write(model, "timm", file, progress=progress)
    text = model_card.card(
        run, model, args.name,
        license_id=args.license, sha256=checksums.digest(file), notes=exported.notes,
    )  # fmt: skip
    arguments.write(folder / model_card.FILE, text.encode())
    print(
        f"read back by {exported.consumer}: largest difference of {exported.output} "
        f"{exported.difference:.1e}, of values up to {exported.scale:.3g}"
    )
    return run.step


def _run_of(text: str) -> "Run":
    """Returns the run of that name; raises BadInput if it is none."""
    from vit_jax.weights import loading

    if not loading.may_be_run(text):
        raise BadInput(f"{text} is not a run; give WORKDIR, WORKDIR@best or WORKDIR@STEP.")
    run = loading.find_run(text)
    assert run is not None, text
    return run


def _files() -> set[str]:
    from vit_jax.reports import model_card
    from vit_jax.weights import hub
    from vit_jax.weights.formats import json_config

    return {hub.FILE, json_config.NAME, model_card.FILE}
