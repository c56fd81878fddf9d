# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax models [--image-size=224]`."""

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_jax.models import variants

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax models --image-size=384"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--image-size",
        type=int,
        default=224,
        metavar="PIXELS",
        help="side of the images in pixels (default: 224)",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax.errors import BadInput
    from vit_jax.models import published, variants
    from vit_jax.storage import cache

    side = args.image_size
    if not 1 <= side <= 65535:
        raise BadInput(f"--image-size={side}; give pixels per side, from 1 to 65535.")
    row = "{:<13} {:>6} {:>6} {:>5} {:>15} {:>10}  {}".format
    print(f"parameters with 1000 classes; GFLOPs (2 per multiply-add) of one {side} px image\n")
    print(row("variant", "layers", "width", "heads", "parameters", "GFLOPs", "published weights"))
    counted = cache.root() / "parameters.json"
    counts = _read_counts(counted)
    for name in variants.NAMED:
        files = published.CHECKPOINTS.get(name, ())
        print(row(name, *_numbers(name, side, counts), files[0] if files else ""), flush=True)
        for file in files[1:]:
            print(" " * 63 + file)
    _write_counts(counted, counts)
    print("\nA published name starts training, e.g. --config.init=imagenet21k/ViT-B_16.npz")
    return 0


def _numbers(name: str, side: int, counts: dict[str, int]) -> tuple[str, ...]:
    """Returns layers, width, heads, parameters and GFLOPs as text; "-" if the size does not fit."""
    from vit_jax.errors import BadInput
    from vit_jax.models import variants

    cfg = variants.config(variant=name, classes=1000, **variants.published(name))
    facts = variants.describe(name, cfg)
    units = 3 * sum(facts.get("stages", ())) + 2  # convolutions of BiT, its root and its head
    sizes = (facts.get("depth", units), facts.get("width", facts.get("root_width")))
    try:
        variants.check_image_size(cfg, side, side)
    except BadInput:
        return (*map(str, sizes), str(facts.get("heads", "-")), "-", "-")
    size = _parameters(cfg, side, counts)
    cost = variants.forward_flops(cfg, side, side) / 1e9
    return (*map(str, sizes), str(facts.get("heads", "-")), f"{size:,}", f"{cost:,.1f}")


def _parameters(cfg: "variants.Config", side: int, counts: dict[str, int]) -> int:
    """Returns the number of parameters; adds it to `counts`, since tracing takes up to a second."""
    from vit_jax import __version__, tree
    from vit_jax.models import variants

    key = f"{__version__} {side} {cfg}"
    if key not in counts:
        counts[key] = tree.size(variants.shapes(cfg, side, side))
    return counts[key]


def _read_counts(file: Path) -> dict[str, int]:
    """Returns the parameter counts of earlier calls; {} if there are none or they are damaged."""
    with contextlib.suppress(OSError, ValueError):
        counts = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(counts, dict) and all(type(count) is int for count in counts.values()):
            return counts
    return {}


def _write_counts(file: Path, counts: dict[str, int]) -> None:
    from vit_jax.storage import files

    with contextlib.suppress(OSError):  # the next call then counts anew
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write(file, json.dumps(counts, indent=1) + "\n")
