# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Converts values of other libraries' options into values of the keys here, for messages only.

Owns: the types of values. Must not: know keys (`synonyms` has them). Start from `read`.
"""

import os
import re
from collections.abc import Callable, Sequence

from vit_jax.config import schema

SOURCES = (
    "tfds", "folder", "csv", "records", "tar", "masks", "voc", "coco", "yolo", "vtab", "mix",
    "synthetic", "objectnet", "python", "digits",
)  # fmt: skip
_OWN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
_VARIANT = (
    r"((R(26|50)?\+)?|AxialViT-)(Ti|S|b|B|L|H|So400m|g|g-opt|G|G-opt|e)/[1-9]\d?|Mixer-[SBL]/[1-9]\d?"
    rf"|BiT-R(50|101|152|200)x[1-9]|AxialResNet(50|-S)|{_OWN}"
)


def read(kind: str, text: str) -> str | None:
    """Returns `text` as a value of one of `TYPES`; None if it is not of that type."""
    return TYPES[kind][2](text)


def option(text: str, options: Sequence[str]) -> str | None:
    """Returns the option that a text names; ignores case and a module in front of the name."""
    if "MODULE:NAME" in options and re.fullmatch(_OWN, text):
        return text
    words = (text.lower(), text.lower().rpartition(".")[2])
    return next((o for word in words for o in options if o == word), None)


def is_plain(text: str) -> bool:
    """Returns True if a shell passes a text on unchanged."""
    return re.fullmatch(r"[\w./:@+~-]+", text) is not None


def _numbers(text: str) -> list[float]:
    """Reads the numbers in `0.1`, `(0.9, 0.95)` or `3,224,224`.

    Returns [] for other texts, and unless all numbers are at least 0 and below 2^31.
    """
    try:
        numbers = [float(part) for part in re.split(r"\s*,\s*|\s+", text.strip("()[] "))]
    except ValueError:
        return []
    return numbers if all(0 <= n < 2**31 for n in numbers) else []


def _one(fits: Callable[[float], bool], factor: int = 1) -> Callable[[str], str | None]:
    """Makes a reader that reads one number and multiplies it by `factor`."""

    def read_one(text: str) -> str | None:
        numbers = [round(n * factor, 9) for n in _numbers(text)]
        return f"{numbers[0]:.10g}" if len(numbers) == 1 and fits(numbers[0]) else None

    return read_one


def _kept(fits: Callable[[float], bool]) -> Callable[[str], str | None]:
    """Makes a reader that reads one number and keeps its spelling."""

    def read_one(text: str) -> str | None:
        numbers = _numbers(text)
        return text.strip("()[] ") if len(numbers) == 1 and fits(numbers[0]) else None

    return read_one


def _beta(index: int) -> Callable[[str], str | None]:
    """Makes a reader that reads two numbers below 1 and returns the one at `index`."""

    def read_one(text: str) -> str | None:
        numbers = _numbers(text)
        return f"{numbers[index]:.10g}" if len(numbers) == 2 and max(numbers) < 1 else None

    return read_one


def _channels(fits: Callable[[float], bool]) -> Callable[[str], str | None]:
    """Makes a reader of three numbers, one for each colour channel."""

    def read_three(text: str) -> str | None:
        numbers = _numbers(text)
        good = len(numbers) == 3 and all(map(fits, numbers))
        return f"({', '.join(f'{n:.10g}' for n in numbers)})" if good else None

    return read_three


def _side(text: str) -> str | None:
    """Reads the side of a square in `224`, `(224, 224)` or `3,224,224`."""
    sides = _numbers(text)[-2:]
    good = len(set(sides)) == 1 and sides[0] >= 1 and sides[0].is_integer()
    return f"{sides[0]:.0f}" if good else None


def _path(text: str) -> str | None:
    return text if is_plain(text) else None


def _file(text: str) -> str | None:
    """Reads a file, URL or folder; returns None for a Hugging Face name, which resembles a path."""
    there = re.match(r"[/~.]|\w+://|hf:", text) or re.search(r"\.(npz|safetensors)$", text)
    return _path(text) if there or os.path.exists(text) else None


def _writers(text: str) -> str | None:
    """Reads names of writers in `wandb` or `tensorboard,wandb`; true and false are TensorBoard."""
    switch = {"true": "('tensorboard',)", "1": "('tensorboard',)"} | dict.fromkeys(
        ("false", "0", "none", "no", "off"), "()"
    )
    names = tuple(re.split(r"\s*,\s*", text.lower().strip("()[] ")))
    known = set(names) <= set(schema.WRITERS) and len(set(names)) == len(names)
    return switch.get(text.lower()) or (str(names) if known else None)


def _source(text: str) -> str | None:
    """Reads a source, or a path if the text is certainly a path."""
    certain = text == "digits" or ":" in text or re.match(r"[/~.]", text) or os.path.isdir(text)
    return _folder(text) if certain else None


def _folder(text: str) -> str | None:
    """Reads a source, or a path, which it turns into `folder:PATH`."""
    kind, colon, _ = text.partition(":")
    if not is_plain(text):
        return None
    if text == "digits" or (colon and kind in SOURCES):
        return text
    return None if colon or re.search(r"\.\w+$", text) else f"folder:{text}"


# Type -> placeholder in capitals, its description, and the reader of a value. The reader returns
# None if the value is not of the type.
TYPES: dict[str, tuple[str, str, Callable[[str], str | None]]] = {
    "int": ("N", "is a whole number, 1 or more", _one(lambda n: n >= 1 and n.is_integer())),
    "count": ("N", "is a whole number, 0 or more", _one(float.is_integer)),
    "amount": ("N", "is a number above 0", _one(lambda n: n >= 1e-4)),
    "float": ("X", "is a number, 0 or more", _kept(lambda n: True)),
    "share": ("X", "is at least 0 and below 1", _kept(lambda n: n < 1)),
    "factor": ("X", "is above 0 and at most 1", _kept(lambda n: 0 < n <= 1)),
    "percent": ("N", "is the share times 100", _one(lambda n: n <= 100, 100)),
    "percents": ("N", "is the share times 100, a whole number up to 90",
                 _one(lambda n: n <= 90 and n.is_integer(), 100)),
    "first": ("B1", "and B2 are at least 0 and below 1", _beta(0)),
    "second": ("B2", "is at least 0 and below 1", _beta(1)),
    "mean": ("(R, G, B)", "has a number from 0 to 1 per channel", _channels(lambda n: n <= 1)),
    "std": ("(R, G, B)", "has a number above 0, up to 1, per channel",
            _channels(lambda n: 0 < n <= 1)),
    "side": ("N", "is the number of pixels a side", _side),
    "variant": ("SIZE/PATCH", "is as in B/16",
                lambda text: text if re.fullmatch(_VARIANT, text) else None),
    "source": ("KIND:PATH", "is as in folder:/path/to/images", _source),
    "folder": ("folder:PATH", "has class folders", _folder),
    "file": ("WEIGHTS", "is what training starts from", _file),
    "path": ("PATH", "is a folder", _path),
    "writers": ("('NAME',)", f"has {', '.join(schema.WRITERS)} or MODULE:NAME", _writers),
}  # fmt: skip
