# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens the 19 tasks of VTAB: `vtab:TASK` (1,000 training examples) and `vtab:TASK/full`.

    vtab:TASK        train800, val200, train800val200 and test; train is train800, val is val200
    vtab:TASK/full   train, val, trainval and test

Labels and images are the same as in google-research/task_adaptation and google-research/scenic,
which agree. Slices such as train[:800] follow the order of the prepared files, so the version of
the dataset is part of the task. Start from `open_vtab`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vit_jax.data.catalog import downloads
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.tfds import Reading
from vit_jax.data.splits import split as splits_lib
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.paper import vtab
from vit_jax.paper.vtab import Task

FEWEST_OBJECTS = 3  # in a scene of CLEVR
OBJECT_EDGES = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)  # for CLEVR, in its units of depth
VEHICLE_EDGES = (-100.0, 8.0, 20.0, 999.0)  # for KITTI, in metres
NO_VEHICLE = 1000.0
VEHICLES = 3  # the first three types of KITTI: car, van, truck


def open_vtab(rest: str, data_dir: str) -> tuple[Sequence[str], dict[str, Split], list[str]]:
    """Returns class names, splits and notes of `TASK` or `TASK/full`.

    Raises:
      BadInput: the task or protocol is unknown, the dataset has another version or other sizes, or
        `tfds_source.open_builder` refuses it.
    """
    name, slash, protocol = rest.partition("/")
    task = vtab.find(name)
    if slash and protocol != "full":
        raise BadInput(f"data.source=vtab:{rest}: write vtab:{task.slug} or vtab:{task.slug}/full.")
    return open_task(task, full=bool(slash), data_dir=data_dir)


def open_task(
    task: Task, *, full: bool, data_dir: str
) -> tuple[Sequence[str], dict[str, Split], list[str]]:
    """Opens a task that was found already; see `open_vtab`."""
    setting = f"data.source=vtab:{task.slug}"
    builder = _builder(task, data_dir, setting)
    notes = []
    if task.substitute and str(builder.version) == task.substitute:
        notes.append(f"{task.name} is read from version {task.substitute}: {task.notes[0]}")
    splits = named_splits(
        task, tfds_source.join_splits(builder, _reading(task, builder), setting), setting
    )
    if full:
        chosen = {name: splits[name] for name in task.splits_full}
    else:
        chosen = {name: splits[name] for name in task.splits_1k}
        chosen |= {"train": splits["train800"], "val": splits["val200"]}
    notes += filter(None, map(task.coverage, chosen))
    return _class_names(task, builder, setting), chosen, notes


def named_splits(task: Task, own: Mapping[str, Split], setting: str) -> dict[str, Split]:
    """Makes the splits of both protocols from the dataset's own splits, which share one table.

    Raises:
      BadInput: a split does not have the size of the protocol.
    """
    splits, wrong = {}, []
    for name, expression in task.splits.items():
        splits[name] = _union(own, expression)
        if len(splits[name]) != task.num_examples[name]:
            wrong.append(f"{name} ({expression}) {len(splits[name])}/{task.num_examples[name]}")
    if wrong:
        raise BadInput(
            f"{setting}: the prepared {task.tfds_name} is not the dataset of the task: "
            f"examples found/expected: {', '.join(wrong)}. Prepare {task.tfds_name}:{task.version} "
            "again from the complete original files, or give the folder of another copy: "
            "--config.data.data_dir=DIR."
        )
    return splits


def _union(own: Mapping[str, Split], expression: str) -> Split:
    """Joins slices of splits that share a table, as in `train[:800]+validation[:200]`.

    A term without examples adds nothing.
    """
    parts = []
    for term in expression.split("+"):
        try:
            parts.append(splits_lib.select(dict(own), term, ""))
        except BadInput:  # no such split, or the slice begins after its end
            continue
    table = next(iter(own.values())).table
    if len(parts) == 1:
        return parts[0]
    rows = [np.arange(part.rows[0], part.rows[-1] + 1) for part in parts]  # one after another
    return Split(table, np.concatenate(rows) if rows else range(0))


def _builder(task: Task, data_dir: str, setting: str) -> Any:
    versions = [v for v in (task.version, task.substitute) if v]
    for version in versions:
        if tfds_source.is_prepared(f"{task.tfds_name}:{version}", data_dir):
            return tfds_source.open_builder(f"{task.tfds_name}:{version}", data_dir, setting)
    if tfds_source.is_prepared(f"{task.tfds_name}:*.*.*", data_dir):
        other = tfds_source.open_builder(f"{task.tfds_name}:*.*.*", data_dir, setting)
        raise BadInput(
            f"{setting} is made of {task.tfds_name}:{task.version}, prepared is {other.version}: "
            "the examples of a task are counted off in the order of the prepared files, which "
            "another version may change. Prepare "
            f"{task.tfds_name}:{downloads.version(task.tfds_name)} beside it: "
            f"vit_jax data prepare vtab/{task.slug} --from=DIR."
        )
    return tfds_source.open_builder(f"{task.tfds_name}:{versions[-1]}", data_dir, setting)


# ---------------------------------------------------------------- labels


def bin_of(value: Tensor, edges: Sequence[float]) -> Tensor:
    """Returns the largest i with edges[i] < value, int32 []; -1 at or below the first edge."""
    return tf.reduce_sum(tf.cast(tf.constant(edges, tf.float32) < value, tf.int32)) - 1


def coarsen(label: Tensor, classes: int, fine: int) -> Tensor:
    """Maps a label of `fine` bins to `classes` bins: floor(label / (fine / classes))."""
    return label * classes // fine


def object_count(objects: Mapping[str, Tensor]) -> Tensor:
    """Returns the label of a CLEVR scene by its number of objects: 3 to 10 become 0 to 7."""
    return tf.size(objects["size"]) - FEWEST_OBJECTS


def object_distance(objects: Mapping[str, Tensor]) -> Tensor:
    """Returns the depth bin of the closest object in CLEVR; pixel_coords is float32 [N, 3]."""
    return bin_of(tf.reduce_min(objects["pixel_coords"][:, 2]), OBJECT_EDGES)


def vehicle_distance(objects: Mapping[str, Tensor]) -> Tensor:
    """Returns the bin of z of the closest car, van or truck in KITTI; the last bin without one."""
    depth = tf.where(objects["type"] < VEHICLES, objects["location"][:, 2], NO_VEHICLE)
    return bin_of(tf.reduce_min(tf.concat([depth, [NO_VEHICLE]], axis=0)), VEHICLE_EDGES)


_OF_OBJECTS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Tensor]], Tensor]]] = {
    "count": (("size",), object_count),
    "object_distance": (("pixel_coords",), object_distance),
    "vehicle_distance": (("type", "location"), vehicle_distance),
}


def _reading(task: Task, builder: Any) -> Reading:
    """Returns the way to read image and label for a task."""
    key = task.label_feature
    image = dsprites_image if task.tfds_name == "dsprites" else _as_stored
    if task.label_kind in _OF_OBJECTS:
        names, function = _OF_OBJECTS[task.label_kind]
        wanted: dict[str, Any] = {key: {name: True for name in names}}
        return Reading("image", wanted, lambda e: _checked(function(e[key]), task.classes), image)
    if task.label_kind == "bins":
        fine = builder.info.features[key].num_classes
        return Reading("image", {key: True}, lambda e: coarsen(e[key], task.classes, fine), image)
    stored = key if image is _as_stored else ""
    return Reading("image", {key: True}, lambda e: e[key], image, stored)


def _checked(label: Tensor, classes: int) -> Tensor:
    """Returns a computed label after asserting that it is at least 0 and below `classes`."""
    with tf.control_dependencies(
        [
            tf.debugging.assert_non_negative(label, "the computed label"),
            tf.debugging.assert_less(label, classes, "the computed label"),
        ]
    ):
        return tf.identity(label)


def _as_stored(encoded: Tensor) -> Tensor:
    return encoded


def dsprites_image(encoded: Tensor) -> Tensor:
    """Decodes a PNG of zeros and ones, [64, 64, 1], to uint8 [64, 64, 3] of 0 and 255."""
    return tf.io.decode_png(encoded, channels=3) * 255


def _class_names(task: Task, builder: Any, setting: str) -> list[str]:
    if task.label_kind == "given":
        names = list(builder.info.features[task.label_feature].names)
        if len(names) != task.classes:
            raise BadInput(
                f"{setting} has {task.classes} classes, the prepared {task.tfds_name} "
                f"{len(names)}; prepare {task.tfds_name}:{task.version} again."
            )
        return names
    if task.label_kind == "count":
        return [f"{k + FEWEST_OBJECTS} objects" for k in range(task.classes)]
    if task.label_kind == "bins":
        return [f"{task.label_feature.removeprefix('label_')} {k}" for k in range(task.classes)]
    edges = OBJECT_EDGES if task.label_kind == "object_distance" else VEHICLE_EDGES
    between = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return between if task.label_kind == "object_distance" else [*between, "no vehicle"]
