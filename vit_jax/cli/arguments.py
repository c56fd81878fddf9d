# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Declares and handles the arguments that several commands share.

Start from `recipe` (commands that take a configuration) and `weights` (those that take a model).
"""

import argparse
import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    import numpy as np

    from vit_jax.data.sources.source import Source
    from vit_jax.inference.model import Model

# Help of FILE_OR_RUN.
WEIGHTS = (
    "weights file, URL, published name or hf:OWNER/NAME; or a run: WORKDIR, WORKDIR@best, "
    "WORKDIR@STEP"
)


def recipe(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    description: str = "a recipe (its file, or vit_jax:NAME), or the config.yaml of a run",
) -> None:
    """Declares --config and --data; `overrides` returns what they and the command line change."""
    parser.add_argument("--config", required=required, metavar="FILE[:ARGS]", help=description)
    parser.add_argument(
        "--data", metavar="SOURCE", help="data source; short for --config.data.source=SOURCE"
    )


def overrides(args: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Returns the `--config.key=value` of a command line, with the one that --data stands for."""
    return list(rest) if args.data is None else [*rest, f"--config.data.source={args.data}"]


def weights(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Declares FILE_OR_RUN, and the settings that a weights file may lack."""
    parser.add_argument(
        "weights",
        nargs=nargs,
        metavar="FILE_OR_RUN",
        help=WEIGHTS,
    )
    parser.add_argument(
        "--image_size",
        default="0",
        metavar="N",
        help="side of the images in pixels, or ROWSxCOLUMNS (default: size of the weights)",
    )
    parser.add_argument(
        "--patch",
        type=int,
        default=0,
        metavar="N",
        help="side of a patch in pixels, for FlexiViT and ViT (default: that of the weights)",
    )
    parser.add_argument(
        "--heads",
        type=int,
        default=0,
        metavar="N",
        help="number of attention heads, if the file does not contain it",
    )


def names(parser: argparse.ArgumentParser) -> None:
    """Declares --names, the class names for weights without any."""
    parser.add_argument(
        "--names",
        default="",
        metavar="FILE",
        help="text file with one class name per line (default: the names in the weights)",
    )


def pack(parser: argparse.ArgumentParser) -> None:
    """Declares --pack, the budget of a sequence of several images."""
    parser.add_argument(
        "--pack",
        type=int,
        default=0,
        metavar="N",
        help="number of patches of a sequence into which several images are packed, for images of "
        "any aspect ratio (default: one image in a sequence)",
    )


def images(parser: argparse.ArgumentParser, nargs: str) -> None:
    """Declares the image files."""
    parser.add_argument(
        "images", nargs=nargs, metavar="IMAGE",
        help="image file, or folder of images; - reads names from standard input, one per line",
    )  # fmt: skip


def data(parser: argparse.ArgumentParser) -> None:
    """Declares the data source and its split."""
    parser.add_argument(
        "--data", metavar="SOURCE", help="data source as kind:rest, see docs/data.md"
    )
    parser.add_argument(
        "--split",
        default="",
        metavar="NAME",
        help="split or slice of the source (default: test, or the only split)",
    )
    parser.add_argument("--data_dir", default="", metavar="DIR", help="folder of prepared datasets")


def check_image_size(args: argparse.Namespace) -> None:
    """Raises BadInput for an `--image_size` that is not a size."""
    image_size(args)


def image_size(args: argparse.Namespace) -> tuple[int, int] | None:
    """Returns the rows and columns that `--image_size` gives; None without it."""
    from vit_jax.config import images

    size = images.parse(images.plain(args.image_size))
    if size is None:
        raise BadInput(
            f"--image_size={args.image_size}; give pixels, as in 224 or 224x112, or leave it out."
        )
    return size if any(size) else None


def open_model(args: argparse.Namespace) -> "Model":
    """Opens the model of `weights`, with the class names of `names` if the command has them."""
    from vit_jax.inference import model as inference

    with own_words():
        return inference.open_model(
            args.weights,
            heads=args.heads,
            image_size=image_size(args),
            patch=args.patch,
            merge=getattr(args, "merge_tokens", None),
            names=getattr(args, "names", ""),
            pack=getattr(args, "pack", 0),
        )


def learned(args: argparse.Namespace, objective: str) -> bool:
    """Returns True if `weights` is a run with the objective of this name."""
    from vit_jax.weights import loading

    if not loading.may_be_run(args.weights):
        return False  # without the imports of a run
    from vit_jax.inference import dense_run

    return dense_run.learns(args.weights, objective)


def identity(weights: str, model: "Model") -> dict[str, Any]:
    """Returns the image size, merged tokens, and for a file its SHA-256 and its published name."""
    from vit_jax.config import images
    from vit_jax.weights import download, loading

    known: dict[str, Any] = {"image_size": images.text(model.size)}
    if merge := getattr(model.cfg, "merge", 0):
        known["merge"] = merge
    if not loading.may_be_run(weights):
        known["sha256"], known["published"] = download.identity(weights)
    return known


@contextlib.contextmanager
def own_words(*, flags_of_records: bool = False) -> Iterator[None]:
    """Changes messages about a configuration to name the arguments of the command instead.

    Args:
      flags_of_records: the command has a flag for each key of data.records, and its source has no
        flag but is an argument.
    """
    try:
        yield
    except BadInput as e:
        text = str(e)
        for key in ("data_dir", "image_size"):
            text = text.replace(f"--config.data.{key}", f"--{key}")
        text = re.sub(r"--data\.(labels|split)\b", r"--\1", text)
        if flags_of_records:
            text = re.sub(r"(--config\.)?\bdata\.records\.(?=\w)", "--", text)
            raise BadInput(text) from e
        raise BadInput(re.sub(r"(--|\b)data\.source\b", "--data", text)) from e


def place(out: str) -> Path:
    """Returns the path of `--out`.

    Raises:
      BadInput: the path is `-`, which elsewhere means standard output.
    """
    if out == "-" or out.startswith("-/"):
        raise BadInput(
            "--out=- is not a path; give one. Only `vit_jax predict`, without --out, writes to "
            "standard output."
        )
    return storage.path(out)


def writable(out: str) -> Path:
    """Returns the path of `--out=FILE`, whose folder need not exist; called before any work begins.

    Raises:
      BadInput: the path is a folder, or cannot be written.
    """
    path = place(out)
    if storage.is_remote(path):
        return path
    if path.is_dir():
        raise BadInput(f"--out={out} is a folder; give a file.")
    with _writing(out):
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        if there != path and not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is not a folder")
        if not os.access(there, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


def write(path: Path, content: bytes) -> None:
    """Writes a file atomically, replacing an existing one; makes its folder.

    Raises:
      BadInput: the file cannot be written.
    """
    with _writing(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        if storage.is_odd(path):  # a pipe or device is not replaced
            path.write_bytes(content)
        else:
            storage.write(path, content)


@contextlib.contextmanager
def _writing(out: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BadInput(f"--out={out} cannot be written: {e.strerror}; give another.") from e


def check_unused(args: argparse.Namespace, learned: str, **defaults: object) -> None:
    """Raises BadInput for an argument without use, unless at its default; `learned`: e.g. masks."""
    for name, default in defaults.items():
        if getattr(args, name) != default:
            raise BadInput(
                f"--{name} has no use with {args.weights}, which learned {learned}; leave it out."
            )


def check_apart(args: argparse.Namespace, out: Path, what: str) -> None:
    """Raises BadInput if `out`, for pictures, lies in a folder of images that is given."""
    for given in args.images:
        place = Path(given).expanduser()
        if place.is_dir() and out.is_relative_to(place.resolve()):
            raise BadInput(
                f"--out={args.out} lies in {given}, so that the next run would take its {what} for "
                "images; give a folder elsewhere."
            )


def picture_names(paths: Sequence[str]) -> list[str]:
    """Returns a name for the picture made of each image: its path below what all share, as PNG.

    Where two images, such as a.jpg and a.png, would have one name, all keep their endings.
    """
    parent = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    relative = [os.path.relpath(os.path.abspath(path), parent) for path in paths]
    plain = [f"{os.path.splitext(path)[0]}.png" for path in relative]
    if len({*plain}) == len({*relative}):
        return plain
    return [f"{path}.png" for path in relative]


def own_classes(
    weights: str, names: Sequence[str], data: "Source", advice: str
) -> "Callable[[np.ndarray], np.ndarray]":
    """Returns the function from classes of the data, int [...], to those of a run, by name, int32.

    A class below 0 is none, and becomes -1. The function raises BadInput for a class of the data
    that the run does not know.

    Args:
      weights: the run.
      names: the names of its classes.
      data: the data.
      advice: what to do about a class that the run does not know.
    """
    import numpy as np

    unknown = -2
    number = {name: n for n, name in enumerate(names)}
    own = np.array([*(number.get(name, unknown) for name in data.classes), -1], np.int32)

    def mapped(given: np.ndarray) -> np.ndarray:
        found = own[np.maximum(given, -1)]
        if (at := found == unknown).any():
            raise BadInput(
                f"{data.spec} has the class {data.classes[given[at][0]]!r}, but {weights} knows "
                f"only {', '.join(names[:20])}; {advice}."
            )
        return found

    return mapped


def check_all_read(bad: dict[str, str], images: int) -> None:
    """Raises BadInput if images could not be read, after the results of the others are written.

    Args:
      bad: path -> reason.
      images: number of images given.
    """
    if bad:
        raise BadInput(
            f"{len(bad)} of {images} images cannot be read and are left out, first: "
            f"{next(iter(bad.values()))}"
        )
