# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax export FILE_OR_RUN --format=NAME --out=PATH [--with-preprocess]`."""

import argparse
import os
from pathlib import Path

from vit_jax.cli import arguments
from vit_jax.errors import BadInput
from vit_jax.inference.export import formats
from vit_jax.storage import files as storage

OVERRIDES = False  # whether --config.key=value may follow
_WITH_HEADS = ("segmentation", "detection")  # objectives with heads on feature maps
EXAMPLE = "vit_jax export runs/quickstart --format=stablehlo --out=runs/digits.stablehlo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    parser.add_argument(
        "--format", required=True, metavar="NAME",
        help="weights: npz, big_vision, timm, hf; weights and computation: stablehlo, savedmodel",
    )  # fmt: skip
    parser.add_argument(
        "--out", required=True, metavar="PATH", help="file to write (savedmodel: a folder)"
    )
    parser.add_argument(
        "--with-preprocess", action="store_true",
        help="stablehlo and savedmodel: take uint8 images and normalise them inside",
    )  # fmt: skip


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    if storage.is_remote(args.out):
        raise BadInput(f"--out={args.out} is in a bucket; write to a disk, then copy it there.")
    out = Path(os.path.abspath(arguments.place(args.out)))
    formats.check(args.format, out, with_preprocess=args.with_preprocess)
    from vit_jax.inference import dense_run

    head = has_head(args.weights)
    if head:
        _check_head(args)
    import jax

    jax.config.update("jax_platforms", "cpu")  # no device is needed, and it may be in use
    from vit_jax import console
    from vit_jax.inference.export import writer

    if head:
        with arguments.own_words():
            learned = dense_run.open_run(args.weights, arguments.image_size(args))
        with console.bar("export") as progress:
            exported = writer.write_run(learned, args.format, out, progress=progress)
    else:
        model = arguments.open_model(args)
        with console.bar("export") as progress:
            exported = writer.write(
                model, args.format, out, with_preprocess=args.with_preprocess, progress=progress
            )
    print(f"{args.out}: {args.format}, {exported.size_bytes / 1e6:,.1f} MB")
    print(
        f"read back by {exported.consumer}: largest difference of {exported.output} "
        f"{exported.difference:.1e}, of values up to {exported.scale:.3g}"
    )
    for note in exported.notes:
        print(f"note: {note}")
    return 0


def has_head(text: str) -> bool:
    """Returns True if FILE_OR_RUN is a run whose objective has a head on feature maps."""
    from vit_jax.inference import dense_run

    return any(dense_run.learns(text, name) for name in _WITH_HEADS)


def _check_head(args: argparse.Namespace) -> None:
    """Raises BadInput for arguments that have no use with a run that has a head of its own."""
    if args.format not in formats.GRAPHS:
        raise BadInput(
            f"--format={args.format} holds the weights of a model of classes, and {args.weights} "
            f"has the head of its objective; write --format={' or '.join(formats.GRAPHS)}."
        )
    for name in ("heads", "patch"):
        if getattr(args, name):
            raise BadInput(
                f"--{name} has no use with {args.weights}, which has the head of its objective; "
                "leave it out."
            )
