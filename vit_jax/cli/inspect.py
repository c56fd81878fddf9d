# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax inspect FILE_OR_RUN [--json] [--heads=N]`."""

import argparse
import json
import math
from typing import Any

from vit_jax.cli import arguments

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax inspect runs/quickstart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "weights",
        metavar="FILE_OR_RUN",
        help=arguments.WEIGHTS,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--heads",
        type=int,
        default=0,
        metavar="N",
        help="number of attention heads, if the file does not contain it",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    import jax

    jax.config.update("jax_platforms", "cpu")  # no device is needed, and it may be in use
    from vit_jax.weights import loading

    weights = loading.read_weights(args.weights, heads=args.heads, shapes_only=True)
    _check_whole(weights)
    description = describe(weights)
    print(json.dumps(description, indent=2) if args.json else as_text(description))
    return 0


def _check_whole(weights: Any) -> None:
    """Raises BadInput if a file lacks a part of the model that it shows, by shapes alone."""
    from vit_jax.models import variants
    from vit_jax.weights import loading

    cfg, size = weights.config, weights.image_size
    if weights.format != "run" and (size or "posemb" not in weights.flat):
        side = 2 * variants.stride(cfg)  # any: nothing in the file is for one size
        loading.check_fit(weights, cfg, size or (side, side), 0, fresh_head=False)


def describe(weights: Any) -> dict[str, Any]:
    """Returns format, family, architecture, number of parameters, and every tensor of `Weights`."""
    from vit_jax.models import variants

    architecture = variants.describe(weights.settings["variant"], weights.config)
    family = architecture.pop("family")
    size = weights.image_size
    square = size is not None and size[0] == size[1]
    architecture["image_size"] = size[0] if size and square else (list(size) if size else None)
    if weights.channels != 3:
        architecture["channels"] = weights.channels
    tensors = {
        name: {"shape": list(shape), "dtype": dtype}
        for name, (shape, dtype) in weights.tensors.items()
    }
    return {
        "format": weights.format,
        **({"branch": weights.branch} if weights.branch else {}),
        **weights.trained,
        "family": family,
        "architecture": architecture,
        "parameters": sum(math.prod(t["shape"]) for t in tensors.values()),
        "tensors": tensors,
    }


def as_text(description: dict[str, Any]) -> str:
    """Returns the description as text for people."""
    from vit_jax import console

    rows = [
        [name, str(tuple(t["shape"])), t["dtype"]] for name, t in description["tensors"].items()
    ]
    facts = "\n".join(f"  {key:<18} {value}" for key, value in description["architecture"].items())
    origin = f"branch of    {description['branch']}\n" if "branch" in description else ""
    if "trainable" in description:
        origin += (
            f"trainable    {description['trainable']}\n"
            f"trained      {description['trained']:,} parameters\n"
            f"base         {description['base']}\nSHA-256      {description['base_sha256']}\n"
        )
    return (
        f"{console.table(['tensor', 'shape', 'dtype'], rows)}\n\n"
        f"{origin}format       {description['format']}\nfamily       {description['family']}\n"
        f"parameters   {description['parameters']:,}\narchitecture\n{facts}"
    )
