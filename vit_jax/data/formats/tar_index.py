# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Indexes the images of a tar file: position, name and label of each. Extracts nothing.

A WebDataset sample is the set of members that share their name up to the first dot: x.jpg with
x.cls, with x.json that has a label, or with x.txt. In a tar without such labels the images lie in
folders of their classes, or the tar is named by its class. Start from `members`.
"""

import functools
import json
import logging
import os
import re
import tarfile
from typing import Any

import numpy as np

from vit_jax.data.formats import byte_ranges
from vit_jax.data.formats.shards import SPLITS, split_of
from vit_jax.data.formats.tar_headers import Tar
from vit_jax.data.ops.decode import EXTENSIONS

log = logging.getLogger("vit_jax")

_LABELS = ("cls", "json", "txt")  # by priority: the first that a sample has is used
_JSON_KEYS = ("label", "cls", "class")
_MOST_BYTES = 2**20  # the largest label member; larger ones are something else
_LONGEST_LABEL = 1000  # characters; every row of an index is as wide as its longest label
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}


def members(path: str, text: str = "") -> np.ndarray:
    """Returns the images of a tar file in its order; built once, see `byte_ranges.indexed`.

    Args:
      path: the tar file.
      text: suffix of the members with the text of each image, such as `txt`; "": there are none.
        They are not labels then, and images need no label.

    Returns:
      Structured [images]: start and size (int64, of the bytes), name (bytes, of the member), label
      (bytes, as written there), numeric (bool: True if the label is a number, False if it is the
      name of a class), split (bytes, of a folder; empty without one). With texts, also text_start
      and text_size, where each lies.

    Raises:
      ValueError: the file is compressed, truncated or damaged, or an image is there twice or has no
        label; the message names file and member, and what to do.
    """
    if text:
        return byte_ranges.indexed(path, f"tar text {text}", functools.partial(_members, text=text))
    return byte_ranges.indexed(path, "tar", _members)


def _members(path: str, text: str = "") -> np.ndarray:
    images: list[tuple[str, int, int]] = []
    texts: dict[str, tuple[int, int]] = {}  # name up to the first dot -> start, size
    samples: dict[str, dict[str, bytes]] = {}  # name up to the first dot -> suffix -> content
    for name, start, size, content in _scan(path, text):
        key, suffix = _key(name)
        if content is None:
            images.append((name, start, size))
        elif text and suffix == text:
            texts[key] = start, size
        else:
            samples.setdefault(key, {})[suffix] = content
    labels = {key: _label(path, key, sample) for key, sample in samples.items()}
    labelled = any(labels.get(_key(name)[0]) for name, _, _ in images)
    _refuse_twice(path, [_key(n)[0] if labelled or text else n for n, _, _ in images])
    rows = []
    for name, start, size in images:
        if labelled or text:
            label = labels.get(_key(name)[0], "")
        else:
            label = _class(path, name)
        if text and texts.get(_key(name)[0], (0, 0))[1] == 0:
            raise ValueError(
                f"{path}: {name} has no text; expected it in a member {_key(name)[0]}.{text} "
                "(data.records.text_key)."
            )
        if not label and (labelled or not text):
            raise ValueError(
                f"{path}: {name} has no label; expected it in a member such as "
                f"{_key(name)[0]}.cls, or the image in a folder of its class."
            )
        numeric = labelled and label.isdecimal()
        shown = str(int(label)) if numeric else label
        part = _split(name, labelled or bool(text)).encode()
        row = [os.fsencode(name), os.fsencode(shown), numeric, part]
        rows.append((start, size, *row, *(texts[_key(name)[0]] if text else ())))
    widths = [max([len(row[column]) for row in rows], default=1) for column in (2, 3)]
    fields = [("start", "<i8"), ("size", "<i8"), ("name", f"S{widths[0]}")]
    fields += [("label", f"S{max(widths[1], 1)}"), ("numeric", "?"), ("split", "S10")]
    fields += [("text_start", "<i8"), ("text_size", "<i8")] if text else []
    return np.array(rows, fields)


def _scan(path: str, text: str) -> Any:
    """Yields (name, start, size, None) for each image.

    The member of a label or of a text, which has the suffix `text`, has its content instead.
    """
    read = {*_LABELS, *([text] if text else [])}
    file, others = byte_ranges.open_file(path, in_sequence=True), 0
    try:
        kind = next((k for m, k in _COMPRESSED.items() if file.read(2, 0) == m), None)
        if kind:
            raise ValueError(
                f"{path} is compressed ({kind}), so single images cannot be read; "
                "decompress it, e.g. gunzip."
            )
        with file.stream() as stream:
            tar = Tar(stream, 0, file.size)
            for member in tar:
                name = member.name.removeprefix("./")
                base = os.path.basename(name)
                image = base.lower().endswith(EXTENSIONS)
                if member.isdir() or base.startswith(".") or name.startswith("__MACOSX/"):
                    continue
                if image and (not member.isreg() or member.issparse()):
                    raise ValueError(
                        f"{path}: {name} is a link or stored sparse; pack it as it is "
                        "(--dereference --hard-dereference, no --sparse)."
                    )
                suffix = _key(name)[1]
                if image:
                    yield name, member.offset_data, member.size, None
                elif suffix in read and member.isreg() and member.size <= _MOST_BYTES:
                    content = file.read(member.size, member.offset_data)
                    yield name, member.offset_data, member.size, content
                else:
                    others += 1
            _check_end(path, tar.rest(_MOST_BYTES), tar.end, file.size)
        if others:
            log.info("data: %s: %d members are left out, neither images nor labels", path, others)
    except tarfile.TarError as e:
        raise ValueError(
            f"{path} is truncated or not a tar file: {e}; copy or pack it again."
        ) from e
    finally:
        file.close()


def _check_end(path: str, rest: bytes, offset: int, size: int) -> None:
    """Raises ValueError unless the tar has an end mark and only zeros after it.

    `tarfile` also takes an unreadable header or the end of the file for the end of the tar.
    """
    if rest[: tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
        damage = "truncated: it has no end mark" if offset >= size else f"damaged at byte {offset}"
    elif rest.strip(b"\0"):
        damage = "several tars in one file, of which only the first would be read"
    else:
        return
    raise ValueError(f"{path} is {damage}; copy or pack it again.")


def _key(name: str) -> tuple[str, str]:
    """Returns the name up to the first dot of its last part, and the rest in lower case."""
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    return folder + slash + stem, suffix.lower()


def _label(path: str, key: str, sample: dict[str, bytes]) -> str:
    """Returns the label that a sample's members give, or ""."""
    for suffix in _LABELS:
        if suffix not in sample:
            continue
        try:
            text = sample[suffix].decode().strip()
            if suffix == "json":
                fields = json.loads(text)
                fields = fields if isinstance(fields, dict) else {}
                values = [fields[k] for k in _JSON_KEYS if k in fields]
                if values and (isinstance(values[0], bool) or not isinstance(values[0], int | str)):
                    raise ValueError(f"{values[0]!r} is neither a number nor a name")
                text = str(values[0]).strip() if values else ""
            text.encode()  # JSON can hold lone surrogates
        except (ValueError, RecursionError) as e:
            raise ValueError(f"{path}: {key}.{suffix} cannot be read: {e}; correct it.") from e
        if re.fullmatch(r"-\d+", text) or "\n" in text or len(text) > _LONGEST_LABEL:
            raise ValueError(
                f"{path}: {key}.{suffix} is {text[:40]!r}; expected one label, a number from 0 on "
                "or the name of a class."
            )
        if text:
            return text
    return ""


def _class(path: str, name: str) -> str:
    """Returns the folder of an image, else the stem of its tar, "" if that is a shard's name."""
    folder = name.split("/")[-2] if "/" in name else ""
    if folder and folder not in SPLITS:
        return folder
    stem = os.path.basename(path).removesuffix(".tar")
    numbered = any(part.isdecimal() for part in re.split(r"[-._]", stem)[1:])
    return "" if folder or numbered or split_of(stem) else stem


def _split(name: str, labelled: bool) -> str:
    """Returns the folder named train, val or test above an image's class folder, or ""."""
    folders = name.split("/")[: -1 if labelled else -2]
    return next((folder for folder in folders if folder in SPLITS), "")


def _refuse_twice(path: str, keys: list[str]) -> None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise ValueError(f"{path}: there are two images called {key}; rename or remove one.")
        seen.add(key)
