# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The 19 tasks of VTAB (arXiv:1910.04867) as google-research/task_adaptation defines them.

What vtab_tasks.json says, typed, and how many classes the small splits miss. What is done with
images and labels is in `data/sources/vtab.py`. Start from `find`.
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

# TFDS 4.9.10 can no longer prepare the versions that these two ask for; `notes` say what differs.
_SUBSTITUTES = {"pets": "4.0.0", "kitti_dist": "3.3.0"}

# (task, split) -> classes that it holds. Counts of users of the original code; ours are not
# compared, since they depend on the prepared copy.
COVERAGE: dict[tuple[str, str], tuple[int, str]] = {
    ("sun397", "train800"): (309, "google-research/task_adaptation issue 21"),
    ("sun397", "train800val200"): (325, "KMnP/vpt issue 1"),
    ("caltech101", "val200"): (86, "google-research/task_adaptation issue 21"),
    ("cifar100", "val200"): (90, "google-research/task_adaptation issue 21"),
    ("flowers102", "val200"): (90, "google-research/task_adaptation issue 21"),
}


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
      name: as the ViT paper writes it (Table 9), e.g. `dSpr-Ori`.
      slug: as `vtab:SLUG` has it, e.g. `dspr_ori`.
      group: natural, specialized or structured.
      tfds_name: of TensorFlow Datasets, with its config.
      version: of it that the protocol asks for; `*` is any number.
      substitute: version to take where TFDS can no longer make that one; empty: none.
      classes: how many.
      label_definition: in words.
      label_feature: what the label is computed from.
      label_kind: how.
      splits_1k: name -> expression such as `train[:800]+validation[:200]`, of TFDS's splits.
      splits_full: likewise.
      num_examples: split of either protocol -> size.
      random_crop: whether training crops at random, else it only resizes.
      horizontal_flip: whether training mirrors at random.
      download: where the data comes from: urls, download_bytes, manual_step, ...
      notes: what else there is to know.
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
        """The splits of both protocols; they share `test`."""
        return {**self.splits_1k, **self.splits_full}

    def coverage(self, split: str) -> str:
        """A sentence where a split is known not to hold every class, else empty."""
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
    """All tasks in the order of Table 9: natural, specialized, structured."""
    return tuple(_task(row) for row in paper.table("vtab_tasks")["tasks"])


def find(name: str) -> Task:
    """The task of a slug or of a name of the paper, however they are hyphenated or capitalised.

    Raises:
      BadInput: there is none; lists those there are.
    """

    def plain(text: str) -> str:
        return re.sub("[-_]", "", text).lower()

    for task in tasks():
        if plain(name) == plain(task.slug):
            return task
    raise unknown("task of VTAB", name, [task.slug for task in tasks()])
