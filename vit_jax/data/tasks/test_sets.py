# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens the images of an evaluation and maps their labels to the model's classes.

A source other than the training data is matched to the model by the names of its classes. Start
from `open_test_set`.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Fields, NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

_Parts = dict[str, tuple[Split, np.ndarray | None]]  # int32 [n, K]: labels that replace its own


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The images and classes of one evaluation.

    Attributes:
      parts: splits that are measured separately and together: one for each corruption and severity
        of ImageNet-C, otherwise one named "". Their labels are column numbers.
      columns: int32 [C, G], padded with -1: the model's classes that each column stands for, whose
        highest logit counts; None if the columns are the model's classes.
      labelled: whether the images have labels.
    """

    parts: dict[str, Split]
    columns: np.ndarray | None = None
    labelled: bool = True

    def __len__(self) -> int:
        """Returns the number of examples of all parts."""
        return sum(map(len, self.parts.values()))


def open_test_set(
    model: Source,
    open_other: Callable[[str], Source],
    key: str,
    *,
    source: str,
    split: str,
    labels: str,
    classes: str,
    data_dir: str,
) -> Evaluation:
    """Opens the images of an evaluation.

    Args:
      model: the training data, whose classes are the model's.
      open_other: `kind:rest` -> source, with nothing held out.
      key: `evals.NAME`, for messages.
      source: "": the training data; `{corruption}` and `{severity}` stand for ImageNet-C's.
      split: name or slice; `all` is the only split of another source.
      labels: a file of other labels, see `imagenet_labels`; "": uses the source's own.
      classes: `all`: predictions are among all of the model's classes (or all of the source's, if
        each of them stands for several); `present`: only among classes that some image has.
      data_dir: see `imagenet_labels.read_label_sets`.

    Raises:
      BadInput: something is missing, or classes are not the model's.
    """
    if not source:
        opened, splits = [model], {"": model.split(split)}
    else:
        from vit_jax.paper import robustness

        named = _opened(robustness.parts(source), open_other, key)
        opened = list(named.values())
        splits = {part: _split(one, split, key) for part, one in named.items()}
    if any(one.classes != opened[0].classes for one in opened):
        raise BadInput(f"{key}.source={source}: its parts do not have the same classes.")
    meant, where, own = opened[0].stands_for, source or model.spec, opened[0].classes
    parts: _Parts = {part: (one, None) for part, one in splits.items()}
    if labels:
        from vit_jax.data.catalog import imagenet_labels

        sets = imagenet_labels.read_label_sets(labels, data_dir)
        meant, where, own = (), labels, tuple(imagenet_labels.wnids())
        for part, one in splits.items():
            parts[part] = imagenet_labels.match_labels(one, sets, f"{key}.labels={labels}")
    if not own or not model.classes:
        return _without_classes(splits, key, classes, labelled=bool(own))
    numbers = _numbers(meant or [(name,) for name in own], model, where, key)
    if classes == "all" and not meant:
        firsts = np.array([row[0] for row in numbers], np.int32)
        return _evaluation(parts, firsts, None, len(model.classes))
    used = _used(parts) if classes == "present" else range(len(numbers))
    column_of = np.full(len(numbers), -1, np.int32)
    column_of[list(used)] = np.arange(len(used))
    columns = np.full((len(used), max(map(len, numbers))), -1, np.int32)
    for column, label in enumerate(used):
        columns[column, : len(numbers[label])] = numbers[label]
    return _evaluation(parts, column_of, columns, len(model.classes))


def problems(
    open_other: Callable[[str], Source], key: str, *, source: str, labels: str, data_dir: str
) -> list[BadInput]:
    """Returns a BadInput for each thing that an evaluation lacks beside the training data."""
    errors = []
    try:
        if source:
            from vit_jax.paper import robustness

            _opened(robustness.parts(source), open_other, key)
    except BadInput as e:
        errors.append(e)
    try:
        if labels:
            from vit_jax.data.catalog import imagenet_labels

            imagenet_labels.read_label_sets(labels, data_dir)
    except BadInput as e:
        errors.append(e)
    return errors


def _opened(
    specs: dict[str, str], open_other: Callable[[str], Source], key: str
) -> dict[str, Source]:
    """Opens all parts; raises one BadInput about those that cannot be opened."""
    sources, failed = {}, {}
    for part, spec in specs.items():
        try:
            sources[part] = open_other(spec)
        except BadInput as e:
            failed[part] = e
            if spec.startswith("tfds:"):  # each tfds part asks a server
                break
    if failed:
        others = list(failed)[1:]
        more = f"\nlikewise {', '.join(others)}" if others else ""
        if unseen := len(specs) - len(sources) - len(failed):
            more += f"\nperhaps likewise the other {unseen} parts"
        raise BadInput(f"{key}: {next(iter(failed.values()))}{more}")
    return sources


def _split(source: Source, split: str, key: str) -> Split:
    if split != "all":
        return source.split(split)
    if len(source.splits) > 1:
        raise BadInput(
            f"{key}.split=all: {source.spec} has several, {', '.join(source.splits)}; name one."
        )
    return next(iter(source.splits.values()))


def _numbers(
    meant: Sequence[tuple[str, ...]], model: Source, where: str, key: str
) -> list[list[int]]:
    """Returns the numbers of the model's classes that each class stands for.

    Raises BadInput if the model lacks a name.
    """
    number = {name: k for k, name in enumerate(model.classes)}
    strange = [name for names in meant for name in names if name not in number]
    if strange:
        shown = ", ".join(map(repr, strange[:5])) + (", ..." if strange[5:] else "")
        have = ", ".join(map(repr, model.classes[:5])) + (", ..." if model.classes[5:] else "")
        raise BadInput(
            f"{key}: {len(strange)} classes of {where} are not classes of the training data "
            f"{model.spec}: {shown}; its classes are {have}. Rename the class folders or labels, "
            "or leave the evaluation out."
        )
    return [[number[name] for name in names] for names in meant]


def _evaluation(
    parts: _Parts, column_of: np.ndarray, columns: np.ndarray | None, model_classes: int
) -> Evaluation:
    """Returns the evaluation of some parts; label k becomes column column_of[k]."""
    same = columns is None and np.array_equal(column_of, np.arange(model_classes))
    mapped = {
        part: split if same and other is None else relabel_split(split, column_of, other)
        for part, (split, other) in parts.items()
    }
    return Evaluation(mapped, columns)


def _without_classes(
    splits: dict[str, Split], key: str, classes: str, *, labelled: bool
) -> Evaluation:
    """Returns the evaluation where the images, or the training data, have no classes."""
    if classes != "all":
        raise BadInput(f"{key}: classes={classes} needs labels; leave it out.")
    return Evaluation(splits, labelled=labelled)


def _used(parts: _Parts) -> list[int]:
    """Returns the labels that examples have, ascending."""
    from vit_jax.data.splits import subset

    every = [
        subset.labels(split, "the classes that are present") if other is None else other
        for split, other in parts.values()
    ]
    return np.unique(np.concatenate([labels[labels >= 0] for labels in every])).tolist()


def relabel_split(split: Split, column_of: np.ndarray, other: np.ndarray | None = None) -> Split:
    """Returns the same images with each label mapped through a table; -1 stays -1.

    Args:
      split: n images.
      column_of: int32 [labels].
      other: int32 [n, K], labels that replace the split's own.
    """

    def mapped(labels: np.ndarray) -> np.ndarray:
        return np.where(labels < 0, np.int32(-1), column_of[labels])

    def reader() -> Callable[[Tensor], Fields]:
        read = split.fields_reader()
        table = tf.constant(column_of if other is None else mapped(other))

        def relabel(row: Tensor) -> Fields:
            fields = read(row)
            if other is not None:
                return fields | {"labels": tf.gather(table, row)}
            labels = fields["labels"]
            own = tf.where(labels < 0, -1, tf.gather(table, tf.maximum(labels, 0)))
            return fields | {"labels": own}

        return relabel

    def numpy_reader() -> Callable[[int], NumpyFields]:
        read = split.numpy_reader()

        def relabel(row: int) -> NumpyFields:
            fields = read(row)
            return fields | {"labels": mapped(fields["labels"] if other is None else other[row])}

        return relabel

    table = Table(
        len(split), split.name, reader, numbered=True,
        numpy_reader=numpy_reader if split.table.numpy_reader else None,
    )  # fmt: skip
    return Split(table, range(len(split)))
