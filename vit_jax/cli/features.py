# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax features FILE_OR_RUN [IMAGE...] [--data=SOURCE] --out=features.npz`."""

import argparse
import io
import logging
import sys
from typing import Any

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax features runs/mine --data=folder:/path/to/images --out=features.npz"
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser)
    arguments.pack(parser)
    arguments.images(parser, "*")
    arguments.data(parser)
    parser.add_argument(
        "--out", required=True, metavar="FILE",
        help="npz file with features float32 [N, D], names [N]; --data adds labels [N, K], classes",
    )  # fmt: skip


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    if bool(args.images) == (args.data is not None):
        raise BadInput("give either images or --data=SOURCE.")
    for name in ("split", "data_dir"):
        if args.images and getattr(args, name):
            raise BadInput(f"--{name} belongs to --data=SOURCE; leave it out when you give images.")
    out = arguments.writable(args.out)
    import numpy as np

    with arguments.own_words():
        arrays, bad = _of_data(args) if args.data is not None else _of_images(args)
    content = io.BytesIO()
    np.savez(content, **arrays)
    arguments.write(out, content.getvalue())
    log.info("%d representations of %d numbers: %s", *arrays["features"].shape, args.out)
    arguments.check_all_read(bad, len(arrays["names"]) + len(bad))
    return 0


def _of_images(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the arrays of the readable images, and path -> reason of the others."""
    import numpy as np

    from vit_jax import console
    from vit_jax.inference import inputs

    paths = inputs.image_files(args.images, sys.stdin)
    model = arguments.open_model(args)
    with console.bar("images") as progress:
        read, features, bad = model.of_files(
            model.step(), paths, lambda done: progress(done, len(paths))
        )
    return {"features": features, "names": np.array(read)}, bad


def _of_data(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the arrays of a split; leaves nothing out."""
    import numpy as np

    from vit_jax import console
    from vit_jax.data.splits import subset
    from vit_jax.inference import model as inference

    opened = inference.open_data(args.weights, args.data, args.data_dir)
    name, split = inference.choose_split(opened, args.split)
    model = arguments.open_model(args)
    with console.bar(f"{opened.spec} {name}") as progress:
        features = model.of_split(model.step(), split, lambda done: progress(done, len(split)))
    return {
        "features": features,
        "names": np.array([split.name(i) for i in range(len(split))]),
        "labels": subset.labels(split, "features"),
        "classes": np.array(opened.classes),
    }, {}
