# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Few-shot tasks: a few images of each class to learn from, and another split to score on.

The choice of images is a function of seed, names and labels. It is the same on every host, for any
number of processes and any batch size. Start from `make_task`.
"""

import dataclasses

import numpy as np

from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits import order, subset
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput

ALL = 0  # as a number of shots: the whole training split
POOL = 65_000  # shots are picked from at most so many images (big_vision: ImageNet's first)
PERCENT = 10  # held out where a source has no val or no test split


@dataclasses.dataclass(frozen=True)
class Task:
    """The images to learn from and the images to score.

    Attributes:
      source: the spec of the source.
      classes: number of classes.
      train: every image that at least one pick uses.
      train_labels: int32 [n].
      picks: (shots, seed) -> indices in `train` of the images to learn from, int64, ascending.
      test: the images to score.
      test_labels: int32 [m].
      notes: sentences for the user.
      names: the names of the classes, by label.
    """

    source: str
    classes: int
    train: Split
    train_labels: np.ndarray
    picks: dict[tuple[int, int], np.ndarray]
    test: Split
    test_labels: np.ndarray
    notes: tuple[str, ...]
    names: tuple[str, ...] = ()

    def digest(self) -> str:
        """Returns a text that is equal for tasks that learn from and score the same images."""
        parts = (self.train, self.test)
        return ", ".join(f"{len(part)} examples ({part.digest()})" for part in parts)


def open_source(spec: str, options: Options) -> Source:
    """Opens a source for few-shot evaluation; holds out `PERCENT` % for a missing val or test."""
    return sources.open_source(spec, options, val_percent=PERCENT, test_percent=PERCENT)


def check(source: Source) -> None:
    """Raises BadInput for a source that nothing can be learned from; reads no image."""
    if len(source.classes) < 2:
        has = "one class" if source.classes else "no labels"
        raise BadInput(
            f"few-shot evaluation of {source.spec}: it has {has}; "
            "give a source with two classes or more, such as a folder for each class."
        )
    for name in (("train",), ("test", "val")):
        if not any(n in source.splits for n in name):
            raise BadInput(
                f"few-shot evaluation of {source.spec}: it has no {' or '.join(name)} split, only "
                f"{', '.join(source.splits) or 'none'}; images are learned from train and scored "
                "on test, else val. Give a source with both."
            )


def make_task(source: Source, shots: tuple[int, ...], seeds: int) -> Task:
    """Picks the images; reads labels, but decodes no image.

    Args:
      source: from `open_source`.
      shots: numbers of images a class, from 1 on, or `ALL`.
      seeds: number of picks for each number of shots; `ALL` has one.

    Returns:
      The task. Picks of one seed are nested: the image of 1 shot is among those of 5.

    Raises:
      BadInput: see `check`; or an image does not have exactly one label.
    """
    check(source)
    split, notes = source.split("train"), list[str]()
    if len(split) > POOL and ALL not in shots:
        split = _pool(source, split)
        notes.append(f"shots are picked from {POOL:,} images of train")
    labels = _one_each(source, "train", split, subset.labels(split, _WHY))
    wanted = [(k, seed) for k in shots for seed in range(seeds if k != ALL else 1)]
    chosen = {key: pick_shots(split, labels, *key) for key in wanted}
    used = np.unique(np.concatenate(list(chosen.values())))
    sizes = np.bincount(labels, minlength=len(source.classes))
    for k in shots:
        if few := int((sizes < k).sum()):
            none = int((sizes == 0).sum())
            notes.append(
                f"{k} shots: {few} of {len(sizes)} classes have fewer images"
                + (f", {none} of them none" if none else "")
            )
    test, test_labels, note = _scored(source)
    return Task(
        source=source.spec,
        classes=len(source.classes),
        train=split.take_indices(used),
        train_labels=labels[used],
        picks={key: np.searchsorted(used, indices) for key, indices in chosen.items()},
        test=test,
        test_labels=test_labels,
        notes=(*notes, *note),
        names=source.classes,
    )


def pick_shots(split: Split, labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Picks the images of each class with the smallest hashes; returns int64 indices, ascending.

    A class with fewer images than `shots` gives all it has.

    Args:
      split: the images to pick from.
      labels: int32 [n], the label of each image.
      shots: number of images a class, or `ALL`.
      seed: different seeds pick different images.
    """
    if shots == ALL:
        return np.arange(len(split))
    purpose = order.stream_seed(seed, "shots")
    hashes = order.hash_numbers(subset.hashes(split)(0, len(split)), purpose)
    by_class, rank = subset.ranked(labels, hashes)
    return np.sort(by_class[rank < shots])


def _pool(source: Source, split: Split) -> Split:
    """Returns `POOL` images: the first of a split stored shuffled (TFDS's), else chosen by hash."""
    if source.spec.partition(":")[0] in ("tfds", "vtab"):
        return split.take_range(0, POOL)
    return subset.choose(split, examples=POOL, classes=len(source.classes))[0]


def _scored(source: Source) -> tuple[Split, np.ndarray, list[str]]:
    """Returns test (or val, if test has no labels), its labels, and a note if it is val."""
    names = [name for name in ("test", "val") if name in source.splits]
    for name in names:
        split = source.split(name)
        labels = subset.labels(split, _WHY)
        if name == names[-1] or (labels >= 0).any():
            break
    note = [] if name == "test" else ["scored on val: there is no test split with labels"]
    return split, _one_each(source, name, split, labels), note


_WHY = "few-shot evaluation"


def _one_each(source: Source, name: str, split: Split, labels: np.ndarray) -> np.ndarray:
    """Returns int32 [n] from labels [n, K]; raises BadInput unless each image has exactly one."""
    counts = (labels >= 0).sum(axis=1)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        raise BadInput(
            f"few-shot evaluation of {source.spec}: {len(wrong):,} of {len(split):,} images of "
            f"{name} have no label or several, first {split.name(int(wrong[0]))} with "
            f"{counts[wrong[0]]}; give a source with one label an image."
        )
    return labels.max(axis=1)
