# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The 19 tasks of VTAB (arXiv:1910.04867) as google-research/task_adaptation defines them.

The module gives vtab_tasks.json a type, and knows which small splits lack classes.
`data/sources/vtab.py` processes the images and labels. Start from `find`.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from vit_jax import paper
from vit_jax.errors import unknown

LabelKind = Literal["given", "bins", "count", "object_distance", "vehicle_distance"]

_KINDS: dict[str, LabelKind] = {
    "clevr_count": "count",
    "clevr_dist": "object_distance",
    "dspr_loc": "bins",
    "dspr_ori": "bins",
    "kitti_dist": "vehicle_distance",
}

# TFDS 4.9.10 can no longer prepare the required versions of these two; `notes` describe the
# differences.
_SUBSTITUTES = {"pets": "4.0.0", "kitti_dist": "3.3.0"}

# (task, split) -> number of classes in it, and the source. Users of the original code have counted
# them. Our counts are not compared, because they depend on the prepared copy.
COVERAGE: dict[tuple[str, str], tuple[int, str]] = {
    ("sun397", "train800"): (309, "google-research/task_adaptation issue 21"),
    ("sun397", "train800val200"): (325, "KMnP/vpt issue 1"),
    ("caltech101", "val200"): (86, "google-research/task_adaptation issue 21"),
    ("cifar100", "val200"): (90, "google-research/task_adaptation issue 21"),
    ("flowers102", "val200"): (90, "google-research/task_adaptation issue 21"),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of VTAB.

    Attributes:
      name: name in the ViT paper (Table 9), e.g. `dSpr-Ori`.
      slug: name in `vtab:SLUG`, e.g. `dspr_ori`.
      group: natural, specialized or structured.
      tfds_name: name in TensorFlow Datasets, with its config.
      version: version that the protocol requires; `*` is any number.
      substitute: version to use if TFDS can no longer make that one; empty if not needed.
      classes: number of classes.
      label_definition: definition of the label in words.
      label_feature: feature that the label is computed from.
      label_kind: how the label is computed.
      splits_1k: name -> expression of TFDS's splits, such as `train[:800]+validation[:200]`.
      splits_full: likewise.
      num_examples: split of either protocol -> number of examples.
      random_crop: whether training crops at random; otherwise it only resizes.
      horizontal_flip: whether training mirrors at random.
      download: origin of the data: urls, download_bytes, manual_step, ...
      notes: other facts about the task.
    """

    name: str
    slug: str
    group: str
    tfds_name: str
    version: str
    substitute: str
    classes: int
    label_definition: str
    label_feature: str
    label_kind: LabelKind
    splits_1k: Mapping[str, str]
    splits_full: Mapping[str, str]
    num_examples: Mapping[str, int]
    random_crop: bool
    horizontal_flip: bool
    download: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def splits(self) -> dict[str, str]:
        """The splits of both protocols, which share `test`."""
        return {**self.splits_1k, **self.splits_full}

    def coverage(self, split: str) -> str:
        """Returns a sentence if a split is known to lack classes; "" otherwise."""
        if (self.slug, split) not in COVERAGE:
            return ""
        held, source = COVERAGE[self.slug, split]
        return f"{split} of {self.name} holds {held} of {self.classes} classes ({source})"


def _task(row: Mapping[str, Any]) -> Task:
    slug = re.sub("-(?=[A-Za-z])", "_", row["name"]).replace("-", "").lower()
    augmentation = row["transfer_augmentation"]
    return Task(
        name=row["name"],
        slug=slug,
        group=row["group"],
        tfds_name=row["tfds_name"],
        version=row["tfds_version_required"],
        substitute=_SUBSTITUTES.get(slug, ""),
        classes=row["num_classes"],
        label_definition=row["label_definition"],
        label_feature=row["label_feature"],
        label_kind=_KINDS.get(slug, "given"),
        splits_1k=row["splits_1k"],
        splits_full=row["splits_full"],
        num_examples=row["num_examples"],
        random_crop=augmentation["random_crop"],
        horizontal_flip=augmentation["horizontal_flip"],
        download=row["download"],
        notes=tuple(row.get("notes", ())),
    )


@functools.cache
def tasks() -> tuple[Task, ...]:
    """Returns all tasks in the order of Table 9: natural, specialized, structured."""
    return tuple(_task(row) for row in paper.table("vtab_tasks")["tasks"])


def find(name: str) -> Task:
    """Returns the task with a slug or a name of the paper, ignoring hyphens and case.

    Raises:
      BadInput: no task has this name; the message lists all slugs.
    """

    def plain(text: str) -> str:
        return re.sub("[-_]", "", text).lower()

    for task in tasks():
        if plain(name) == plain(task.slug):
            return task
    raise unknown("task of VTAB", name, [task.slug for task in tasks()])
