# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax figures FILE_OR_RUN... [--images=IMAGE...] --out=DIR`."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax figures runs/mine --images=photos/ --out=figures"
PAGE = "index.html"
log = logging.getLogger("vit_jax")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    arguments.weights(parser, nargs="+")
    parser.add_argument(
        "--images", nargs="+", action="extend", metavar="IMAGE",
        help="file, folder, or - (list on standard input); uses at most 128 images, evenly spaced; "
        "several FILE_OR_RUN need none, since only their position embeddings are compared",
    )  # fmt: skip
    parser.add_argument(
        "--out", required=True, metavar="DIR", help=f"folder for PNG files and {PAGE}"
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    arguments.check_image_size(args)
    several = len(args.weights) > 1
    if several == bool(args.images):
        raise BadInput(
            "--images is for one model, and of several the position embeddings are compared: leave "
            "--images out."
            if several
            else "the figures of a model need images: give --images=IMAGE..."
        )
    out = arguments.writable(os.path.join(args.out, PAGE)).parent
    from vit_jax import console
    from vit_jax.inference import inputs
    from vit_jax.reports import figures

    if several:
        return _compare(args, out)
    [args.weights] = args.weights
    paths = inputs.image_files(args.images, sys.stdin)
    model = arguments.open_model(args)
    drawn, count, bad = figures.draw_weights(model.cfg, model.params, model.size), 0, {}
    if figures.attends(model.cfg):
        paths = [paths[i] for i in figures.chosen(len(paths), figures.IMAGES)]
        images, pictures, bad = read(model, paths)
        count = len(images)
        with console.bar("images") as progress:
            drawn += figures.draw_attention(
                model.cfg, model.params, images, pictures, model.rules,
                lambda done: progress(done, count),
            )  # fmt: skip
    text = page(args.weights, model, drawn, count)
    for one in drawn:
        arguments.write(out / f"{one.name}.png", one.png)
    arguments.write(out / PAGE, text.encode())
    for sentence in model.cfg.lacking_figures():
        log.info("%s", sentence)
    log.info("%s: %s", out / PAGE, ", ".join(one.name for one in drawn))
    arguments.check_all_read(bad, len(paths))
    return 0


def _compare(args: argparse.Namespace, out: Path) -> int:
    """Draws the position embeddings of several models into one picture."""
    from vit_jax.analysis import similarity
    from vit_jax.reports import figures, pages, positions

    tables = {}
    for text in args.weights:
        model = arguments.open_model(argparse.Namespace(**vars(args) | {"weights": text}))
        if not (figures.attends(model.cfg) and similarity.has_embeddings(model.cfg)):
            raise BadInput(f"{text}: {' '.join(model.cfg.lacking_figures())} Leave it out.")
        tables[text] = similarity.of_model(model.cfg, model.params, model.size)
    if len(tables) < len(args.weights):
        raise BadInput(f"{' '.join(args.weights)}: name each run once.")
    drawn, sentences = positions.draw(tables, positions.differing(args.weights))
    page = pages.render(
        "figures.html", "Position embeddings of several models", notes=sentences, figures=[drawn]
    )
    arguments.write(out / f"{drawn.name}.png", drawn.png)
    arguments.write(out / PAGE, page.encode())
    log.info("%s: %s", out / PAGE, drawn.name)
    return 0


def read(model: Any, paths: list[str]) -> tuple[Any, Any, dict[str, str]]:
    """Reads images as an `inference.Model` takes them, float32, and as pictures to look at.

    The pictures are uint8 [N, H, W, 3].

    Returns:
      The two arrays, and path -> reason of the unreadable images.

    Raises:
      BadInput: no image can be read.
    """
    import numpy as np

    from vit_jax import console
    from vit_jax.data.inspect import show
    from vit_jax.weights import loading

    arrays, bad = [], dict[str, str]()
    with console.bar("images read") as progress:
        for path, image in model.read_files(paths):
            if isinstance(image, BadInput):
                bad[path] = str(image)
            else:
                arrays.append(image)
            progress(len(arrays) + len(bad), len(paths))
    images = np.concatenate(arrays)
    shades = [np.full((*model.size, model.channels), shade, np.uint8) for shade in (0, 255)]
    black, white = loading.reader(model.weights, model.size)(
        shades
    )  # any normalisation maps a picture between these two
    pictures = 255 * (images - black) / (white - black)
    return images, show.visible(pictures.round().clip(0, 255).astype(np.uint8)), bad


def page(name: str, model: Any, drawn: list[Any], images: int) -> str:
    """Returns the page with the figures and their captions, in one file.

    Args:
      name: FILE_OR_RUN.
      model: an `inference.Model`.
      drawn: the figures.
      images: number of images used.
    """
    from vit_jax.reports import figures, pages

    rows, columns = model.size
    caption = f"{name}: {model.cfg.in_words()}, at {rows} x {columns} pixels"
    if images:
        caption += f"; {figures.counted(images)}"
        caption += f" (the paper takes {figures.IMAGES})" if images < figures.IMAGES else ""
    notes = [f"{caption}.", *model.cfg.lacking_figures()]
    return pages.render("figures.html", f"Inside {name}", notes=notes, figures=drawn)
