# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A few images of each class to learn from, and all of another split to be scored on.

Which images is a function of seed, names and labels: the same on every host, with any number of
processes and any batch size. Start from `make`.
"""

import dataclasses

import numpy as np

from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits import order, subset
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput

ALL = 0  # in the place of a number of shots: the whole training split
POOL = 65_000  # images that shots are picked from, at most (big_vision, of ImageNet: the first)
PERCENT = 10  # held out where a source has no val or test split of its own


@dataclasses.dataclass(frozen=True)
class Task:
    """What is learned from, and what is scored.

    Attributes:
      source: its spec.
      classes: how many.
      train: every image of some pick.
      train_labels: int32 [n].
      picks: (shots, seed) -> the images of `train` that are learned from, int64, ascending.
      test: the images that are scored.
      test_labels: int32 [m].
      notes: what a user should know, a sentence each.
    """

    source: str
    classes: int
    train: Split
    train_labels: np.ndarray
    picks: dict[tuple[int, int], np.ndarray]
    test: Split
    test_labels: np.ndarray
    notes: tuple[str, ...]

    def digest(self) -> str:
        """Equal where the same images are learned from and scored."""
        parts = (self.train, self.test)
        return ", ".join(f"{len(part)} examples ({part.digest()})" for part in parts)


def open_source(spec: str, options: Options) -> Source:
    """A source of few-shot evaluation: its own test split, else `PERCENT` % of it."""
    return sources.open_source(spec, options, val_percent=PERCENT, test_percent=PERCENT)


def check(source: Source) -> None:
    """Raises BadInput for a source that nothing can be learned from; reads no image."""
    if len(source.classes) < 2:
        raise BadInput(
            f"few-shot evaluation of {source.spec}: it has {len(source.classes)} class; "
            "give a source with 2 or more."
        )
    for name in (("train",), ("test", "val")):
        if not any(n in source.splits for n in name):
            raise BadInput(
                f"few-shot evaluation of {source.spec}: it has no {' or '.join(name)} split, only "
                f"{', '.join(source.splits) or 'none'}; images are learned from train and scored "
                "on test, else val. Give a source with both."
            )


def make(source: Source, shots: tuple[int, ...], seeds: int) -> Task:
    """Picks the images; reads labels, but decodes no image.

    Args:
      source: from `open_source`.
      shots: images a class, from 1 on, or `ALL`.
      seeds: how many picks there are of each number of shots; `ALL` has one.

    Returns:
      The task. Picks of one seed are nested: the image of 1 shot is among those of 5.

    Raises:
      BadInput: see `check`; or an image that does not have exactly one label.
    """
    check(source)
    split, notes = source.split("train"), list[str]()
    if len(split) > POOL and ALL not in shots:
        split = _pool(source, split)
        notes.append(f"shots are picked from {POOL:,} images of train")
    labels = _one_each(source, "train", split, subset.labels(split, _WHY))
    wanted = [(k, seed) for k in shots for seed in range(seeds if k != ALL else 1)]
    chosen = {key: pick(split, labels, *key) for key in wanted}
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
        train=split.take(used),
        train_labels=labels[used],
        picks={key: np.searchsorted(used, indices) for key, indices in chosen.items()},
        test=test,
        test_labels=test_labels,
        notes=(*notes, *note),
    )


def pick(split: Split, labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """int64, ascending: of each class the images with the smallest hashes, as many as there are.

    Args:
      split: what is picked from.
      labels: int32 [n], of its images.
      shots: images a class, or `ALL`.
      seed: another one picks others.
    """
    if shots == ALL:
        return np.arange(len(split))
    purpose = order.stream_seed(seed, "shots")
    hashes = order.hashed(subset.hashes(split)(0, len(split)), purpose)
    by_class, rank = subset.ranked(labels, hashes)
    return np.sort(by_class[rank < shots])


def _pool(source: Source, split: Split) -> Split:
    """`POOL` images: the first of what is stored shuffled, as TFDS's is, else chosen by hash."""
    if source.spec.partition(":")[0] in ("tfds", "vtab"):
        return split.part(0, POOL)
    return subset.choose(split, examples=POOL, classes=len(source.classes))[0]


def _scored(source: Source) -> tuple[Split, np.ndarray, list[str]]:
    """Test, or val where there is no test with labels; its labels; and a note of the latter."""
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
    """int32 [n] of labels [n, K]; refuses an image with no label, or with several."""
    counts = (labels >= 0).sum(axis=1)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        raise BadInput(
            f"few-shot evaluation of {source.spec}: {len(wrong):,} of {len(split):,} images of "
            f"{name} have no label or several, first {split.name(int(wrong[0]))} with "
            f"{counts[wrong[0]]}; give a source with one label an image."
        )
    return labels.max(axis=1)
