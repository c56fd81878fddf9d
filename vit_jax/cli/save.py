# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax save FILE_OR_RUN FILE [--format=NAME] [--merge]`."""

import argparse

from vit_jax.cli import arguments, export
from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax save runs/quickstart runs/digits.npz"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    parser.add_argument("out", metavar="FILE", help="file to write: .npz, or .safetensors")
    parser.add_argument(
        "--format", default="npz", metavar="NAME",
        help="npz, big_vision, timm or hf (default: npz)",
    )  # fmt: skip
    parser.add_argument(
        "--merge", action="store_true",
        help="add the low-rank matrices of a LoRA run to its kernels; others stay as they are",
    )  # fmt: skip


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax.inference.export import formats

    if args.format in formats.GRAPHS:
        raise BadInput(f"--format={args.format} is not only weights; use `vit_jax export`.")
    if export.has_head(args.weights):
        raise BadInput(
            f"{args.weights} has the head of its objective, for which files of weights have no "
            f"place; write `vit_jax export {args.weights} --format=stablehlo --out=FILE`, which "
            "holds weights and computation, with low-rank matrices added to the kernels."
        )
    if not args.merge:
        _check_ordinary(args.weights)
    args.with_preprocess = False
    return export.run(args, rest)


def _check_ordinary(text: str) -> None:
    """Raises BadInput for a run whose low-rank matrices no file of weights has a place for."""
    from vit_jax.checkpoints import step_folders
    from vit_jax.config import load as config_lib
    from vit_jax.config import trainable
    from vit_jax.weights import loading

    run = loading.find_run(text) if loading.may_be_run(text) else None
    if run is None:
        return
    text = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE)).trainable
    what = trainable.parse(text)
    if what is not None and what.rank:
        raise BadInput(
            f"{run.workdir} has matrices beside its kernels (trainable={text!r}), for which files "
            "of weights have no place; give --merge, which adds them to the kernels."
        )
