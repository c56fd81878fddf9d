# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes an index as a prepared dataset: several files of records at once, each file once.

The hashes of the names determine the file and the place of each example. So the result does not
depend on the number of workers or on interruptions. Everything lies in a hidden folder until it is
complete; then that folder is renamed. Start from `write`.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.catalog import prepared
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.prepare.layouts import Example, Index
from vit_jax.data.prepare.packing import Packing
from vit_jax.data.tensorflow import keep_off_accelerators, tf
from vit_jax.errors import BadInput

SHARD_BYTES = 192 << 20  # approximate bytes of images in a file
MOST_SHARDS = 1024  # of a split, since readers keep every file open
_REPORT_EVERY = 200  # images between calls of progress

Progress = Callable[[int, int], None]  # (images done, total images)
Shards = list[tuple[Path, list[Example]]]  # the files of a split, each with its examples


@dataclasses.dataclass(frozen=True)
class Target:
    """The name and the place of a dataset to be prepared.

    Attributes:
      name: the name of the dataset.
      config: the configuration, for a dataset that has several; else "".
      version: e.g. "1.0.0".
      data_dir: DATA_DIR.
      shards: number of files of some splits; others get as many as their size needs.
      complete: True makes an unreadable image an error; otherwise it is left out and listed.
      packing: how images are made smaller; None: files are copied byte by byte.
    """

    name: str
    config: str
    version: str
    data_dir: Path
    shards: dict[str, int] = dataclasses.field(default_factory=dict)
    complete: bool = False
    packing: Packing | None = None

    @property
    def folder(self) -> Path:
        return self.data_dir / self.name / self.config / self.version

    @property
    def hidden(self) -> Path:
        """Returns the folder that holds the dataset until it is complete."""
        return self.folder.with_name(f".incomplete-{self.version}")

    def bytes_of(self, example: Example) -> int:
        """Returns the bytes that the image of an example takes, or an estimate with a packing."""
        stored = example.member.size
        return self.packing.bytes_of(stored) if self.packing else stored


@contextlib.contextmanager
def held(target: Target) -> Iterator[Path]:
    """Yields the hidden folder, locked for this process; turns errors of the disk into BadInput."""
    try:
        target.hidden.mkdir(parents=True, exist_ok=True)
        with (target.hidden / "lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                yield target.hidden
            except BaseException:
                _tidy(target)
                raise
    except BlockingIOError as e:
        raise BadInput(
            f"{target.name} is being prepared in {target.hidden} by another process; wait for it."
        ) from e
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "make it readable, or writable"
        raise BadInput(
            f"{target.name} cannot be prepared: {e.strerror or e}: {e.filename or target.hidden}; "
            f"{advice} and run the same command: finished files are kept. To prepare it "
            "elsewhere, add --data_dir=DIR."
        ) from e


def _tidy(target: Target) -> None:
    """Removes the folders of a try that left nothing to continue from."""
    if target.hidden.is_dir() and os.listdir(target.hidden) == ["lock"]:
        (target.hidden / "lock").unlink()
        for folder in (target.hidden, *target.hidden.parents):
            if folder == target.data_dir or os.listdir(folder):
                break
            folder.rmdir()


def write(index: Index, target: Target, workers: int, progress: Progress) -> None:
    """Writes the dataset, or the missing part of it; the caller must hold the target, see `held`.

    Args:
      index: the examples.
      target: name and place of the dataset.
      workers: threads, 1 or more.
      progress: called from time to time, from several threads.

    Raises:
      BadInput: the disk is too small, the folder is taken, or too many images cannot be read.
      OSError: the disk fails.
    """
    plan = {split: _plan(examples, split, target) for split, examples in index.splits.items()}
    plan = {split: shards for split, shards in plan.items() if shards}
    if target.folder.is_dir() and os.listdir(target.folder):
        raise BadInput(
            f"{target.folder} is in the way: it is not empty and holds no prepared dataset. Remove "
            "it, or prepare elsewhere: --data_dir=DIR."
        )
    _room(target, plan)
    _resume(target, index, plan)
    keep_off_accelerators()
    results = _shards(plan, target.packing, workers, progress)
    try:
        _accept(index, target, plan, results)
    except BadInput:  # the next start retries files with unreadable images
        for path, result in results.items():
            if result["left_out"]:
                _note(path).unlink()
        raise
    _finish(index, target, plan, results)
    left_out = [(name, reason) for r in results.values() for name, reason in r["left_out"]]
    prepared.write_notes(target.hidden, left_out)
    shutil.rmtree(target.hidden / "scratch", ignore_errors=True)
    target.hidden.rename(target.folder)  # until here the folder keeps all that a new start needs
    tidy_finished(target)


def tidy_finished(target: Target) -> None:
    """Removes files that only an unfinished dataset needs, in case a kill came before."""
    if (target.folder / prepared.NOTES_FILE).is_file():
        shutil.rmtree(target.folder / "done", ignore_errors=True)
        for name in ("plan", "lock"):
            (target.folder / name).unlink(missing_ok=True)


def _shards(
    plan: dict[str, Shards], packing: Packing | None, workers: int, progress: Progress
) -> dict[Path, dict[str, Any]]:
    """Writes all files, several at once; returns the result of each, by path."""
    from PIL import Image

    jobs = [(path, rows) for shards in plan.values() for path, rows in shards]
    done, lock, total = 0, threading.Lock(), sum(len(rows) for _, rows in jobs)
    failed = threading.Event()

    def advance(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            progress(done, total)

    def unless_failed(path: Path, part: list[Example]) -> dict[str, Any]:
        try:
            return {} if failed.is_set() else _shard(path, part, packing, advance)
        except BaseException:
            failed.set()
            raise

    pool = concurrent.futures.ThreadPoolExecutor(workers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # only headers are read
        try:
            futures = {path: pool.submit(unless_failed, path, part) for path, part in jobs}
            return {path: future.result() for path, future in futures.items()}
        finally:
            pool.shutdown(cancel_futures=True)


def _accept(
    index: Index, target: Target, plan: dict[str, Shards], results: dict[Path, dict[str, Any]]
) -> None:
    """Raises BadInput if images were left out that the dataset needs."""
    kept, first = {}, ""
    for split, shards in plan.items():
        reasons = {name: why for path, _ in shards for name, why in results[path]["left_out"]}
        examples = [e for _, part in shards for e in part]
        kept[split] = [e for e in examples if e.name not in reasons]
        shown = "; ".join(f"{name}: {why}" for name, why in list(reasons.items())[:3])
        first = first or shown
        if reasons and target.complete:
            raise BadInput(
                f"{len(reasons)} images cannot be read, first {shown}. "
                f"{target.name} needs every image: replace them and run the command again."
            )
        if not kept[split]:
            raise BadInput(
                f"none of the {len(examples)} images of {split} can be read: {shown}. Give images "
                "(whole files of JPEG, PNG, ...) and run the command again."
            )
    try:
        index.accepts(kept)
    except BadInput as e:
        raise BadInput(f"{e} Images that cannot be read: {first}.") if first else e from e


def _plan(examples: Sequence[Example], split: str, target: Target) -> Shards:
    """Returns the files of a split with their examples, ordered by the hashes of the names."""
    if not examples:
        return []
    hashes = [hashlib.blake2b(_encoded(e.name), digest_size=8).digest() for e in examples]
    order = np.argsort(np.frombuffer(b"".join(hashes), ">u8"), kind="stable")
    size = sum(map(target.bytes_of, examples))
    count = target.shards.get(split) or min(MOST_SHARDS, -(-size // SHARD_BYTES))
    count = max(1, min(count, len(examples)))
    edges = [len(order) * shard // count for shard in range(count + 1)]
    parts = [[examples[row] for row in order[a:b]] for a, b in itertools.pairwise(edges)]
    stem = f"{target.name}-{split}.tfrecord"
    return [
        (target.hidden / f"{stem}-{shard:05d}-of-{count:05d}", part)
        for shard, part in enumerate(parts)
    ]


def _encoded(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


def _room(target: Target, plan: dict[str, Shards]) -> None:
    files = [shard for shards in plan.values() for shard in shards]
    needed = sum(target.bytes_of(e) for path, part in files if not path.exists() for e in part)
    free = shutil.disk_usage(target.hidden).free
    if needed > free:
        raise BadInput(
            f"{target.name} needs {needed} bytes more in {target.data_dir}, where {free} are free. "
            "Free some space, or prepare it elsewhere: --data_dir=DIR."
        )


def _resume(target: Target, index: Index, plan: dict[str, Shards]) -> None:
    """Keeps finished files if they follow this plan; otherwise removes them."""
    digest = hashlib.blake2b("\0".join(index.classes).encode(errors="surrogateescape"))
    for shards in plan.values():
        for path, part in shards:
            digest.update(path.name.encode())
            for e in part:
                digest.update(_encoded(f"{e.name}\0{e.label}\0{e.member.size}\0"))
    stored, done = target.hidden / "plan", target.hidden / "done"
    if not stored.exists() or stored.read_text(encoding="utf-8") != digest.hexdigest():
        shutil.rmtree(done, ignore_errors=True)
        for old in target.hidden.glob("*.tfrecord-*"):
            old.unlink()
        stored.write_text(digest.hexdigest(), encoding="utf-8")
    done.mkdir(exist_ok=True)


def _note(path: Path) -> Path:
    """Returns the path of the note that marks a file as finished and describes its content."""
    return path.parent / "done" / f"{path.name}.json"


def _shard(
    path: Path, part: list[Example], packing: Packing | None, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Writes a file; notes and renames it once it is safely on disk."""
    note = _note(path)
    if path.exists() and note.exists():
        advance(len(part))
        return json.loads(note.read_text(encoding="utf-8"))
    left_out, size, since = [], 0, 0
    partial = path.with_name(f"{path.name}.partial")
    try:
        with tf.io.TFRecordWriter(os.fsencode(partial)) as writer:
            for number, example in enumerate(part):
                content = example.member.read()
                reason = _unreadable(content)
                if packing and not reason:
                    try:
                        content = packing.packed(content)
                    except BadImage as e:
                        reason = str(e)
                if reason:
                    left_out.append((example.name, reason))
                else:
                    record = _record(example, content)
                    writer.write(record)
                    size += len(record)
                if number - since >= _REPORT_EVERY:
                    advance(number - since)
                    since = number
    except tf.errors.OpError as e:
        full = isinstance(e, tf.errors.ResourceExhaustedError)
        code = errno.ENOSPC if full else errno.EIO
        raise OSError(code, os.strerror(code) if full else e.message, str(partial)) from e
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    result = {"examples": len(part) - len(left_out), "bytes": size, "left_out": left_out}
    note.write_text(json.dumps(result), encoding="utf-8")
    partial.rename(path)
    advance(len(part) - since)
    return result


def _record(example: Example, content: bytes) -> bytes:
    train = tf.train
    features = {
        "file_name": train.Feature(bytes_list=train.BytesList(value=[_encoded(example.name)])),
        "image": train.Feature(bytes_list=train.BytesList(value=[content])),
        "label": train.Feature(int64_list=train.Int64List(value=[example.label])),
    }
    record = train.Example(features=train.Features(feature=features))
    return record.SerializeToString(deterministic=True)


def _unreadable(content: bytes) -> str:
    """Returns why a file does not start like an image, or ""; decodes no pixels."""
    from PIL import Image

    if not content:
        return "the file is empty"
    try:
        with Image.open(io.BytesIO(content)):
            return ""
    except Exception as e:  # each format raises its own errors
        return "not an image" if isinstance(e, Image.UnidentifiedImageError) else str(e)


def _finish(
    index: Index, target: Target, plan: dict[str, Shards], results: dict[Path, dict[str, Any]]
) -> None:
    """Writes dataset_info.json, features.json and the class names in the format of TFDS."""
    import tensorflow_datasets as tfds
    from etils import epath

    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "label": tfds.features.ClassLabel(names=list(index.classes)),
        "file_name": tfds.features.Text(),
    }
    template = tfds.core.ShardedFileTemplate(
        data_dir=epath.Path(target.hidden),
        dataset_name=target.name,
        filetype_suffix="tfrecord",
    )
    infos = []
    for split, shards in plan.items():
        written = [results[path] for path, _ in shards]
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[f["examples"] for f in written],
                num_bytes=sum(f["bytes"] for f in written),
                filename_template=template,
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=target.hidden,
        features=features,
        split_infos=infos,
        version=target.version,
        filename_template=template,
        check_data=False,
        supervised_keys=("image", "label"),
    )
    if target.config:
        path = target.hidden / "dataset_info.json"
        info = json.loads(path.read_text(encoding="utf-8")) | {"configName": target.config}
        path.write_text(json.dumps(info, indent=2, sort_keys=True), encoding="utf-8")
