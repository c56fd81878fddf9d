# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads and writes npz and safetensors files as names and arrays, or reads only their shapes.

Nothing is unpickled.

`formats` defines the meaning of the names. Start from `read` and `write`.
"""

import contextlib
import json
import math
import zipfile
from collections.abc import Sized
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import save_file

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

Flat = dict[str, np.ndarray]
SUFFIXES = (".npz", ".safetensors")
MOST_ARRAYS = 10_000  # per file; the largest published file has a tenth of them
_REOPEN_BYTES = 1 << 26


def read(path: Path, *, shapes_only: bool = False) -> Flat:
    """Reads all arrays of a file.

    Args:
      path: file that ends in .npz or .safetensors.
      shapes_only: whether to return zeros that take no memory; only headers are then read.

    Raises:
      BadInput: the file does not exist, is of another kind, or is damaged.
    """
    if path.suffix not in SUFFIXES or not path.is_file():
        problem = "is not a .npz or .safetensors file" if path.exists() else "does not exist"
        raise BadInput(f"{path} {problem}; give weights as .npz or .safetensors, or a run.")
    reader = _read_npz if path.suffix == ".npz" else _read_safetensors
    try:
        arrays = reader(path, shapes_only)
    except Exception as e:  # whatever the readers raise on a damaged file
        if "allow_pickle" in str(e):
            raise BadInput(f"{path} holds pickled objects, which are never loaded.") from e
        raise BadInput(
            f"{path} is not a readable {path.suffix} file: {type(e).__name__}: {e}; it is damaged "
            "or incomplete, fetch it again."
        ) from e
    return arrays


def _zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _typed(value: np.ndarray) -> np.ndarray:
    """Restores bfloat16, which numpy writes as 2 bytes without a type."""
    return value.view(ml_dtypes.bfloat16) if value.dtype == np.dtype("V2") else value


def _read_npz(path: Path, shapes_only: bool) -> Flat:
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        _check_number(archive.infolist())
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"{name} occurs twice")
            _check_claims(archive, member, path.stat().st_size)
            with archive.open(member) as raw:
                if shapes_only:
                    value = _zeros(*_npy_header(raw))
                else:
                    value = np.lib.format.read_array(raw, allow_pickle=False)
                    if raw.read(1):
                        raise ValueError(f"{name} has more data than its header says")
            arrays[name] = _typed(value)
    return arrays


def _check_number(arrays: Sized) -> None:
    if len(arrays) > MOST_ARRAYS:
        raise ValueError(f"{len(arrays)} arrays; at most {MOST_ARRAYS} are read")


def _check_claims(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> None:
    """Raises ValueError if an array cannot have the size that it claims; allocates nothing.

    Args:
      archive: the archive of the member.
      member: the array.
      most: size of the archive in bytes.
    """
    if not 0 <= member.compress_size <= most or member.file_size > _DEFLATE * (
        member.compress_size + 1
    ):
        raise ValueError(f"{member.filename} claims {member.file_size} bytes")
    with archive.open(member) as raw:
        shape, dtype = _npy_header(raw)
        needed, there = math.prod(shape) * dtype.itemsize, member.file_size - raw.tell()
    if not dtype.hasobject and needed > there:
        raise ValueError(f"{member.filename} claims {list(shape)} {dtype}, and has {there} bytes")


_DEFLATE = 1032  # the largest expansion of deflate, bytes per byte


def _npy_header(raw: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(raw)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in header:
        raise ValueError(f"version {version} of .npy; only 1.0 and 2.0 hold weights")
    shape, _, dtype = header[version](raw)
    return shape, np.dtype("V2") if dtype == np.dtype("V2") else dtype


_SAFETENSORS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
}  # fmt: skip


def _read_safetensors(path: Path, shapes_only: bool) -> Flat:
    def opened() -> Any:
        return safetensors.safe_open(path, framework="numpy")

    arrays = {}
    with opened() as file:
        names = list(file.keys())
        _check_number(names)
        if shapes_only:
            for name in names:
                part = file.get_slice(name)
                dtype = _SAFETENSORS.get(part.get_dtype(), np.int64)
                arrays[name] = _zeros(tuple(part.get_shape()), dtype)
            return arrays
    while names:  # reopened, since read tensors count as memory until closed
        with opened() as file:
            size = 0
            while names and size < _REOPEN_BYTES:
                name = names.pop(0)
                arrays[name] = file.get_tensor(name)
                size += arrays[name].nbytes
    return arrays


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; returns {} if the file does not exist.

    Raises:
      BadInput: the file is not a JSON object.
    """
    try:
        values = json.loads(storage.read_all([path])[0])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path} is not readable JSON: {e}; repair or remove it.") from e
    if not isinstance(values, dict):
        raise BadInput(f"{path} holds a {type(values).__name__}, expected an object.")
    return values


def write(path: Path, arrays: Flat, beside: dict[str, dict[str, Any]]) -> None:
    """Writes arrays, and JSON files beside them; replaces files of the same names.

    Files appear under their names only when all are complete.

    Raises:
      BadInput: the folder is not writable.
    """
    partial = {name: path.with_name(f".{name}.partial") for name in (path.name, *beside)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, values in beside.items():
            partial[name].write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        if path.suffix == ".npz":
            with partial[path.name].open("wb") as raw:
                np.savez(raw, **arrays)  # type: ignore[arg-type]
        else:
            partial[path.name].touch()
            mode = partial[path.name].stat().st_mode  # mode of new files; save_file's is private
            save_file(arrays, partial[path.name], metadata={"format": "pt"})
            partial[path.name].chmod(mode)
        for name, complete in partial.items():
            complete.replace(path.with_name(name))
    except (OSError, safetensors.SafetensorError) as e:
        reason = e.strerror if isinstance(e, OSError) else None
        raise BadInput(f"cannot write {path}: {reason or e}; give another file.") from e
    finally:
        for left in partial.values():
            with contextlib.suppress(OSError):
                left.unlink()
