# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the arrays that one process holds to one file, and makes the state of such a file.

`N.arrays` has the bytes of every part of every array on the devices of process N, one after
another, in the order of the tree and of the places in the array. The tree, the dtypes and the parts
follow from the configuration and the mesh, so the file needs no description. `N.json` has the
checksum, is written last, and makes the file count. This module knows no network and no step.
Start from `Layout`, `store` and `read`.
"""

import collections
import contextlib
import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax import tree as tree_lib
from vit_jax.errors import BadInput
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

_Part = tuple[tuple[int, int], ...]  # (start, stop) of each dimension
CHUNK_BYTES = 1 << 20  # read and sent at once


class Layout:
    """The parts of a tree of arrays that each process holds.

    Args:
      abstract: a tree of shapes, dtypes and shardings.
    """

    def __init__(self, abstract: Any):
        self._leaves, self._structure = jax.tree.flatten(abstract)
        self._paths = [path for path, _ in tree_lib.leaves_with_paths(abstract)]

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of what files depend on: names, dtypes, the parts of all processes."""
        digest = hashlib.sha256()
        for path, leaf in zip(self._paths, self._leaves, strict=True):
            parts = sorted(_parts(leaf.sharding, leaf.shape).items())
            digest.update(repr((path, leaf.shape, str(leaf.dtype), parts)).encode())
        return digest.hexdigest()

    @functools.cache  # noqa: B019 - a layout lives as long as its run
    def held(self, process: int) -> tuple[tuple[_Part, ...], ...]:
        """Returns the parts of each leaf that a process holds; two may hold the same."""
        return tuple(_parts(leaf.sharding, leaf.shape)[process] for leaf in self._leaves)

    def size(self, process: int) -> int:
        """Returns the bytes in the file of a process."""
        return sum(
            math.prod(stop - start for start, stop in part) * leaf.dtype.itemsize
            for leaf, parts in zip(self._leaves, self.held(process), strict=True)
            for part in parts
        )

    def copied(self, tree: Any) -> list[np.ndarray]:
        """Returns copies of the parts that this process holds, on the host, in the file's order."""
        leaves, arrays = jax.tree.leaves(tree), list[jax.Array]()
        for leaf, parts in zip(leaves, self.held(jax.process_index()), strict=True):
            shards = {_part(s.index, leaf.shape): s.data for s in leaf.addressable_shards}
            arrays += [shards[part] for part in parts]
        # Of arrays on several devices, jax would fetch others than these, and these again.
        for array in arrays:
            array.copy_to_host_async()
        return [np.array(array) for array in arrays]

    def rebuilt(self, content: np.ndarray) -> Any:
        """Returns the tree on the devices of this process, from the content of its file (uint8)."""
        leaves, at = [], 0
        for leaf, parts in zip(self._leaves, self.held(jax.process_index()), strict=True):
            arrays = {}
            for part in parts:
                shape = tuple(stop - start for start, stop in part)
                end = at + math.prod(shape) * leaf.dtype.itemsize
                arrays[part] = content[at:end].view(leaf.dtype).reshape(shape)
                at = end
            places = leaf.sharding.addressable_devices_indices_map(leaf.shape).items()
            shards = [
                # A step may overwrite its input: it must not share memory with the file's content.
                jax.device_put(arrays[_part(index, leaf.shape)], device, may_alias=False)
                for device, index in places
            ]
            leaves.append(
                jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, shards)
            )
        return jax.tree.unflatten(self._structure, leaves)


@functools.lru_cache(4096)
def _parts(sharding: jax.sharding.Sharding, shape: tuple[int, ...]) -> dict[int, tuple[_Part, ...]]:
    parts = collections.defaultdict[int, set[_Part]](set)
    for device, index in sharding.devices_indices_map(shape).items():
        parts[device.process_index].add(_part(index, shape))
    return {process: tuple(sorted(those)) for process, those in parts.items()}


def _part(index: Any, shape: tuple[int, ...]) -> _Part:
    return tuple(one.indices(size)[:2] for one, size in zip(index, shape, strict=True))


# ---------------------------------------------------------------- files


def buffers(arrays: Iterable[np.ndarray]) -> Iterable[bytes | memoryview]:
    """Yields the bytes of arrays."""
    for array in arrays:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def store(
    folder: Path,
    process: int,
    chunks: Iterable[bytes | memoryview],
    identity: str,
    sha256: str = "",
) -> None:
    """Writes the file of a process; it counts once this returns.

    Args:
      folder: the folder of a step; made if needed.
      process: the number of the process whose arrays these are.
      chunks: the content.
      identity: what the reader must expect, from the configuration and the layout.
      sha256: the expected checksum; "": not known before.

    Raises:
      OSError: the disk is full or fails, or the content is not as expected.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary, digest = folder / f"{process}.{os.getpid()}.tmp", hashlib.sha256()
    try:
        with open(temporary, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
        if sha256 not in ("", digest.hexdigest()):
            raise OSError("the content has changed on its way")
        temporary.replace(folder / f"{process}.arrays")
    finally:
        with contextlib.suppress(OSError):  # usually it has been renamed
            temporary.unlink()
    about = {"sha256": digest.hexdigest(), "identity": identity}
    storage.write(folder / f"{process}.json", checksums.seal(json.dumps(about) + "\n"))


def described(folder: Path, process: int) -> dict[str, str]:
    """Returns `sha256` and `identity` of the file of a process; {} if it does not count."""
    try:
        return json.loads(checksums.unseal(storage.read_all([folder / f"{process}.json"])[0]))
    except (OSError, ValueError, BadInput):
        return {}


def read(folder: Path, process: int) -> np.ndarray | None:
    """Returns the content of a file as uint8; None if it is damaged, gone or unreadable."""
    try:
        content = np.fromfile(folder / f"{process}.arrays", np.uint8)
    except OSError:
        return None
    whole = hashlib.sha256(content.data).hexdigest() == described(folder, process).get("sha256")
    return content if whole else None
