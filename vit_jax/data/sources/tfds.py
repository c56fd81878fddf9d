# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens TensorFlow Datasets and reads them by example with `tfrecord`. Start from `open_tfds`."""

import dataclasses
import functools
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vit_jax.data.catalog import downloads
from vit_jax.data.catalog.prepared import data_folder
from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.sources import record_index, tfds_boxes, tfds_masks
from vit_jax.data.sources import records as record_source
from vit_jax.data.sources.record_index import Layout
from vit_jax.data.sources.source import Opened, Options
from vit_jax.data.splits.split import NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, one_line, tf
from vit_jax.data.tensorflow import tfds as _tfds
from vit_jax.errors import BadInput
from vit_jax.storage import cache

_CONNECT_SECS = 20  # longest wait for the first server that TFDS would download from


@dataclasses.dataclass(frozen=True)
class Reading:
    """The way to read the image and the label of an example.

    Attributes:
      image_key: the feature with the image.
      features: the other features to decode, as in TFDS's partial decoding: `{"label": True}`.
      label: a function: features -> integer [].
      image: a function: encoded image (bytes []) -> bytes [], or uint8 [H, W, 3].
      stored: the feature with the label if image and label are used as they are stored, else "".
    """

    image_key: str
    features: dict[str, Any]
    label: Callable[[dict[str, Any]], Tensor]
    image: Callable[[Tensor], Tensor] = lambda encoded: encoded
    stored: str = ""


def open_tfds(name: str, options: Options) -> Opened:
    """Returns class names, the dataset's own splits, and notes.

    It downloads and prepares a dataset that is not there yet.

    Raises:
      BadInput: the name is unknown, the dataset is neither prepared nor downloadable, or it has no
        single image with a class label, a mask or boxes.
    """
    setting = f"data.source=tfds:{name}"
    tfds_masks.refuse(name, setting)
    builder = open_builder(name, options.data_dir, setting)
    features = builder.info.features
    key, notes = options.label_key, list[str]()
    if key and key not in features:  # it may be that of another source of a mixture
        notes.append(f"data.records.label_key={key}: {setting} has no such feature")
        key = ""
    if masks := tfds_masks.find(features, key):
        classes, splits, more = _open_masks(builder, masks, options.label_names, setting)
    elif not _of_type(features, "ClassLabel") and (boxes := tfds_boxes.find(features)):
        classes, splits, more = _open_boxes(builder, boxes, setting)
    else:
        classes, splits, more = _open_labels(builder, setting, key)
    return classes, splits, notes + more


def _open_labels(builder: Any, setting: str, label_key: str) -> Opened:
    image, label = _keys(builder, setting, label_key)
    reading = Reading(image, {label: True}, lambda example: example[label], stored=label)
    splits = {}
    for split, info in builder.info.splits.items():
        if info.num_examples:
            table = _table(builder, [info], reading, setting)
            splits[split] = Split(table, range(table.rows))
    return list(builder.info.features[label].names), splits, []


def _open_boxes(builder: Any, keys: tfds_boxes.Keys, setting: str) -> Opened:
    splits = {}
    for split, info in builder.info.splits.items():
        if info.num_examples:
            records = _records(builder, [info], setting)
            table = tfds_boxes.table(builder, records, _namer(builder, [info]), keys)
            splits[split] = Split(table, range(table.rows))
    return tfds_boxes.names(builder.info.features, keys, setting), splits, []


def _open_masks(builder: Any, keys: tfds_masks.Keys, label_names: str, setting: str) -> Opened:
    classes = tfds_masks.classes(builder, keys, label_names, setting)
    splits, notes = dict[str, Split](), classes.notes()
    for name, info in builder.info.splits.items():
        if not info.num_examples:
            continue
        records = _records(builder, [info], setting)
        table = tfds_masks.table(records, _namer(builder, [info]), keys, classes)
        split = Split(table, range(table.rows))
        if name == "test" and tfds_masks.withheld(split):
            notes.append(f"test: {len(split)} images left out, whose masks hold no class")
        else:
            splits[name] = split
    return classes.names, splits, notes


def _of_type(features: Any, kind: str) -> list[str]:
    return [k for k, f in features.items() if isinstance(f, getattr(_tfds().features, kind))]


def open_builder(name: str, data_dir: str, setting: str) -> Any:
    """Returns the builder of a dataset, after downloading and preparing it if necessary.

    Args:
      name: the TFDS name, with a config and a version if necessary.
      data_dir: the data folder of TFDS; empty: its default.
      setting: the source as the user wrote it, for messages.

    Raises:
      BadInput: the name is unknown, or the dataset is neither prepared nor downloadable.
    """
    data_folder(data_dir)  # refuses folders that are not on a disk
    tfds = _tfds()

    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
        if not builder.info.splits:
            _may_download(name, data_dir, setting)
            builder.download_and_prepare()
    except BadInput:
        raise
    except tfds.core.registered.DatasetNotFoundError as e:
        where = data_dir or "TFDS's default folder"
        raise BadInput(
            f"{setting}: no dataset of that name is prepared in {where} or known to TFDS; "
            "check the name, or give the folder where it is prepared: --config.data.data_dir=DIR."
            + "".join(f"\n{need.text()}" for need in _needs(name, data_dir))
        ) from e
    except Exception as e:  # requests, urllib, zipfile and TFDS raise many types
        raise BadInput(
            f"{setting} is not prepared and could not be: {type(e).__name__}: {one_line(e)} "
            "Prepare it where there is a network (tfds build) and give its folder: "
            "--config.data.data_dir=DIR."
        ) from e
    return builder


def join_splits(builder: Any, reading: Reading, setting: str) -> dict[str, Split]:
    """Returns the dataset's own splits in one table, so that a new split can combine several."""
    infos = [info for info in builder.info.splits.values() if info.num_examples]
    table = _table(builder, infos, reading, setting)
    ends = np.cumsum([info.num_examples for info in infos]).tolist()
    return {
        info.name: Split(table, range(end - info.num_examples, end))
        for info, end in zip(infos, ends, strict=True)
    }


def _needs(name: str, data_dir: str) -> list[downloads.Need]:
    """Returns the missing parts of a dataset, as far as `downloads` knows them."""
    try:
        needs = downloads.needs(name.partition(":")[0], data_dir)
    except BadInput:
        return []
    return [need for need in needs if need.state != "ready"]


def _may_download(name: str, data_dir: str, setting: str) -> None:
    """Raises BadInput at once if downloads are forbidden or the network does not answer.

    TFDS itself would try for minutes.
    """
    needs = _needs(name, data_dir)
    urls = [d.url for need in needs for d in need.downloads if d.url]
    try:
        if not cache.may_download():
            raise OSError("downloads are forbidden (--offline)")
        for url in urls[:1]:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=_CONNECT_SECS).close()
    except urllib.error.HTTPError as e:
        e.close()  # the server answers, so the network works
    except OSError as e:
        reason = f"{urls[0]}: {e.reason}" if isinstance(e, urllib.error.URLError) else e
        how = "".join(f"\n{need.text()}" for need in needs)
        raise BadInput(
            f"{setting} is not prepared and cannot be downloaded: {reason}. Prepare it, or give "
            f"the folder where it is prepared: --config.data.data_dir=DIR.{how}"
        ) from e


def is_prepared(name: str, data_dir: str) -> bool:
    """Returns True if the dataset is prepared on this machine; False also for an unknown name."""
    try:
        return bool(_tfds().builder(name, data_dir=data_dir or None).info.splits)
    except Exception:  # as in `open_tfds`
        return False


def _keys(builder: Any, setting: str, label_key: str) -> tuple[str, str]:
    """Returns the features for image and label: the supervised keys, or the only ones of a type.

    A feature `label_key` comes first.

    Raises:
      BadInput: the dataset has no such features.
    """
    features = builder.info.features
    images, labels = _of_type(features, "Image"), _of_type(features, "ClassLabel")
    image, label = (builder.info.supervised_keys or (None, None))[:2]
    label = label_key or label
    image = image if image in images else (images[0] if len(images) == 1 else None)
    label = (
        label if label in labels else (labels[0] if len(labels) == 1 and not label_key else None)
    )
    if image is None or label is None:
        masks = [key for key in images if features[key].shape[-1] == 1]
        hint = f"; for masks, set --config.data.records.label_key to one of: {', '.join(masks)}"
        hint = hint if len(images) - len(masks) == 1 else ""
        named = f" {label_key}" if label_key else ""
        raise BadInput(
            f"{setting} has no single image with a class label{named}; its features: "
            f"{sorted(features)}{hint}."
        )
    return image, label


def _open_files(file_format: str, paths: list[str]) -> Any:
    """Opens files for access by record number; returns None for an unsupported format."""
    if file_format == "tfrecord":
        return RecordFiles(paths)
    if file_format == "array_record":
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        return ArrayRecordDataSource(paths)
    return None


def _records(builder: Any, infos: Sequence[Any], setting: str) -> Any:
    """Opens the records of some splits, one after another, for access by number.

    Raises:
      BadInput: the files are damaged, incomplete, or of an unsupported format.
    """
    file_format = builder.info.file_format.value
    names = " and ".join(info.name for info in infos)
    try:
        records = _open_files(file_format, [str(p) for info in infos for p in info.filepaths])
    except (ValueError, RuntimeError, OSError) as e:
        raise BadInput(
            f"{setting}: split {names} is damaged: {one_line(e)} Prepare it again."
        ) from e
    if records is None:
        raise BadInput(f"{setting} is stored as {file_format}; expected tfrecord or array_record.")
    expected = sum(info.num_examples for info in infos)
    if len(records) != expected:
        raise BadInput(
            f"{setting}: split {names} should have {expected} examples, its files hold "
            f"{len(records)}; prepare it again."
        )
    return records


def _table(builder: Any, infos: Sequence[Any], reading: Reading, setting: str) -> Table:
    """Returns a table of the examples of some of the dataset's own splits, one after another."""
    tfds = _tfds()
    records = _records(builder, infos, setting)

    def reader() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        decoders = {reading.image_key: tfds.decode.SkipDecoding()}
        wanted = reading.features | {reading.image_key: True}

        def read(row: Tensor) -> tuple[Tensor, Tensor]:
            data = tf.numpy_function(lambda i: records[int(i)], [row], tf.string, stateful=False)
            data.set_shape([])
            partial = tfds.decode.PartialDecoding(wanted, decoders=decoders)
            specs = partial.extract_features(builder.info.features)
            example = specs.deserialize_example(data, decoders=decoders)
            label = tf.cast(reading.label(example), tf.int32)
            return reading.image(example[reading.image_key]), label[None]

        return read

    return Table(
        len(records),
        _namer(builder, infos),
        reader,
        shards=np.cumsum([0, *(n for info in infos for n in info.shard_lengths)]),
        files=records.files if isinstance(records, RecordFiles) else None,
        numbered=True,
        most_labels=1,
        ids=_ids(builder, records),
        numpy_reader=_numpy_reader(reading, records),
    )


def _numpy_reader(
    reading: Reading, records: Any
) -> Callable[[], Callable[[int], NumpyFields]] | None:
    if not reading.stored or not isinstance(records, RecordFiles):
        return None
    layout = Layout(reading.image_key, reading.stored, "", named=False, names=(), max_labels=1)
    return functools.cache(lambda: record_index.reader(records, layout))


def _namer(builder: Any, infos: Sequence[Any]) -> Callable[[int], str]:
    """Returns a function, row -> name, for some of the dataset's splits, one after another."""
    firsts = np.cumsum([0, *(info.num_examples for info in infos)])

    def name(row: int) -> str:
        part = int(np.searchsorted(firsts, row, side="right")) - 1
        return f"tfds:{builder.info.full_name}/{infos[part].name}/{row - int(firsts[part])}"

    return name


def _ids(builder: Any, records: Any) -> Callable[[], np.ndarray] | None:
    """Returns a function that reads the original file names of the images.

    Returns None if the dataset does not store them, or not in TFRecord files.
    """
    text = _tfds().features.Text
    names = [k for k, f in builder.info.features.items() if isinstance(f, text)]
    key = next((k for k in record_source.NAME_KEYS if k in names), None)
    if key is None or not isinstance(records, RecordFiles):
        return None
    return lambda: record_source.ids(records.files.paths, key)
