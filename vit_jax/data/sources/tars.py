# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens images in tar files by range reads: WebDataset shards, class folders, a tar a class.

`tar_index` owns the names and positions of members; this module turns labels into numbers.
Start from `open_tar`.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vit_jax.data.formats import byte_ranges, shards, tar_index
from vit_jax.data.formats.stored import FileRange
from vit_jax.data.ops.decode import EXTENSIONS
from vit_jax.data.sources.folders import as_number
from vit_jax.data.splits.split import Fields, NumpyFields, Rows, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.sources.source import Options

log = logging.getLogger("vit_jax")

_FILES = ("*.tar", "*.tar.gz", "*.tgz")  # in a folder; compressed files are refused
_INDEXERS, _MANY = 16, 16
_MOST_CLASSES = 1_000_000  # for numeric labels without a list of classes


def open_tar(rest: str, options: Options) -> tuple[list[str], dict[str, Split], list[str]]:
    """Returns class names, splits and notes of `tar:GLOB`.

    Raises:
      BadInput: files are missing, compressed or damaged, an image has no label, or labels of
        different files do not fit together. The message names the file or label.
    """
    spec = f"tar:{rest}"
    paths, notes = shards.find(spec, rest, _FILES)
    if len(paths) >= _MANY:
        log.info("data: indexing %d tar files, where that is not done yet", len(paths))
    try:
        with concurrent.futures.ThreadPoolExecutor(_INDEXERS) as pool:
            index = functools.partial(tar_index.members, text=options.text_key)
            members = list(pool.map(index, paths))
    except ValueError as e:
        raise BadInput(f"data.source={spec}: {e}") from e
    firsts = np.cumsum([0, *(len(m) for m in members)])
    if not firsts[-1]:
        raise BadInput(
            f"data.source={spec}: its {len(paths)} files hold no image "
            f"({', '.join(EXTENSIONS)}); tars inside tars: vit_jax data prepare."
        )
    manifest = shards.class_names(spec, options.label_names, os.path.dirname(paths[0]))
    names, labels = _labels(spec, paths, members, manifest)
    table = _table(paths, members, firsts, labels)
    return names, _splits(spec, table, paths, members), notes


def _labels(
    spec: str, paths: Sequence[str], members: Sequence[np.ndarray], manifest: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """Returns class names, and labels as int32 [rows, 1]; raises BadInput for unusable labels."""
    used = set().union(*(np.unique(m["label"]).tolist() for m in members))
    if used == {b""}:  # images with texts alone
        return [], np.full((sum(map(len, members)), 1), -1, np.int32)
    kinds = [set(m["numeric"].tolist()) for m in members]
    numeric = set().union(*kinds)
    if len(numeric) > 1:
        some = [next(p for p, k in zip(paths, kinds, strict=True) if n in k) for n in (True, False)]
        raise BadInput(
            f"data.source={spec}: labels are numbers in {os.path.basename(some[0])} and names in "
            f"{os.path.basename(some[1])}; expected one of them in all files."
        )
    texts = sorted(map(os.fsdecode, used), key=as_number)
    if numeric == {True}:
        if int(texts[-1]) >= _MOST_CLASSES and not manifest:
            raise BadInput(
                f"data.source={spec}: label {texts[-1]} makes more than {_MOST_CLASSES:,} "
                "classes; correct it, or list them, one a line: data.records.label_names=FILE."
            )
        names = list(manifest) or [str(k) for k in range(int(texts[-1]) + 1)]
        number = {text: int(text) for text in texts}
    else:
        names = list(manifest) or texts
        number = {name: k for k, name in enumerate(names)}
        if len(number) < len(names):
            raise BadInput(f"data.source={spec}: the list of classes has a name twice.")
    wrong = [text for text in texts if not 0 <= number.get(text, -1) < len(names)]
    if wrong or len(names) < 2:
        problem = f"label {wrong[0]!r} is not one of" if wrong else "found only"
        raise BadInput(
            f"data.source={spec}: {problem} {len(names)} classes ({', '.join(names[:4])}, ...); "
            "data.records.label_names=FILE lists the classes, one a line, else labels.txt beside "
            "the tars, else the labels themselves."
        )
    labels = []
    for one in members:
        values, inverse = np.unique(one["label"], return_inverse=True)
        numbers = np.array([number[os.fsdecode(v)] for v in values.tolist()], np.int32)
        labels.append(numbers[inverse] if len(one) else np.zeros(0, np.int32))
    return names, np.concatenate(labels)[:, None]


def _table(
    paths: Sequence[str], members: Sequence[np.ndarray], firsts: np.ndarray, labels: np.ndarray
) -> Table:
    files = byte_ranges.Files(paths)

    def locate(row: int) -> tuple[int, np.void]:
        number = int(np.searchsorted(firsts, row, side="right")) - 1
        return number, members[number][row - int(firsts[number])]

    def name(row: int) -> str:
        number, member = locate(row)
        return f"{os.path.basename(paths[number])}/{os.fsdecode(bytes(member['name']))}"

    has_text = "text_start" in members[0].dtype.names  # type: ignore[operator]

    def part(prefix: str, row: int | np.ndarray) -> bytes:
        number, member = locate(int(row))
        return files.read(number, int(member[f"{prefix}start"]), int(member[f"{prefix}size"]))

    def reader() -> Callable[[Tensor], Fields]:
        all_labels = tf.constant(labels)

        def content(prefix: str, row: Tensor) -> Tensor:
            data = functools.partial(part, prefix)
            content = tf.numpy_function(data, [row], tf.string, stateful=False)
            content.set_shape([])
            return content

        def read(row: Tensor) -> Fields:
            fields = {"image": content("", row), "labels": tf.gather(all_labels, row)}
            return fields | ({"text": content("text_", row)} if has_text else {})

        return read

    def numpy_reader() -> Callable[[int], NumpyFields]:
        def read(row: int) -> NumpyFields:
            number, member = locate(row)
            image = FileRange(paths[number], int(member["start"]), int(member["size"]))
            fields = {"image": image, "labels": labels[row]}
            return fields | ({"text": part("text_", row)} if has_text else {})

        return read

    return Table(
        len(labels),
        name,
        reader,
        labels=lambda: labels,
        shards=firsts,
        files=files,
        most_labels=1,
        numpy_reader=numpy_reader,
    )


def _splits(
    spec: str, table: Table, paths: Sequence[str], members: Sequence[np.ndarray]
) -> dict[str, Split]:
    """Makes splits by the names of the tar files, or else by the folders inside them."""
    named = shards.by_split(spec, paths)
    if set(named) == {"all"}:
        parts = np.concatenate([m["split"] for m in members])
    else:
        of = {path: part.encode() for part, files in named.items() for path in files}
        sizes = [len(m) for m in members]
        parts = np.repeat(np.array([of[path] for path in paths], "S10"), sizes)
    splits = {}
    for part in np.unique(parts):
        splits[part.decode() or "all"] = Split(table, _compact(np.flatnonzero(parts == part)))
    if "all" in splits and len(splits) > 1:
        odd = splits["all"].name(0)
        raise BadInput(
            f"data.source={spec}: {odd} is not in a folder of a split, but others are in "
            f"{' and '.join(sorted(set(splits) - {'all'}))}; expected all or none."
        )
    return splits


def _compact(rows: np.ndarray) -> Rows:
    """Returns consecutive rows as a range, and other rows unchanged."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows
