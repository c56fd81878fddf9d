# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""npz and safetensors files as names and arrays: whole, or only shapes. Nothing is unpickled.

What the names mean is said in `formats`. Start from `read` and `write`.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import save_file

from vit_jax.errors import BadInput

Flat = dict[str, np.ndarray]
SUFFIXES = (".npz", ".safetensors")


def read(path: Path, *, shapes_only: bool = False) -> Flat:
    """All arrays of a file.

    Args:
      path: ends in .npz or .safetensors.
      shapes_only: arrays of zeros that take no memory; only headers are read.

    Raises:
      BadInput: no such file, another kind of file, or damaged.
    """
    if path.suffix not in SUFFIXES or not path.is_file():
        what = "is not a .npz or .safetensors file" if path.is_file() else "does not exist"
        raise BadInput(f"{path} {what}; give weights as .npz or .safetensors, or a run.")
    reader = _read_npz if path.suffix == ".npz" else _read_safetensors
    try:
        given = reader(path, shapes_only)
    except Exception as e:  # whatever the readers raise on a damaged file
        raise BadInput(
            f"{path} is not a readable {path.suffix} file: {type(e).__name__}: {e}; it is damaged "
            "or incomplete, fetch it again."
        ) from e
    return given


def _zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _typed(value: np.ndarray) -> np.ndarray:
    """Numpy writes bfloat16 as 2 bytes without a meaning."""
    return value.view(ml_dtypes.bfloat16) if value.dtype == np.dtype("V2") else value


def _read_npz(path: Path, shapes_only: bool) -> Flat:
    given = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as raw:
                if shapes_only:
                    value = _zeros(*_npy_header(raw))
                else:
                    value = np.lib.format.read_array(raw, allow_pickle=False)
            given[member.removesuffix(".npy")] = _typed(value)
    return given


def _npy_header(raw: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(raw)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, _, dtype = header[version](raw)
    return shape, np.dtype("V2") if dtype == np.dtype("V2") else dtype


_SAFETENSORS = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
}  # fmt: skip


def _read_safetensors(path: Path, shapes_only: bool) -> Flat:
    with safetensors.safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        if shapes_only:
            slices = {name: file.get_slice(name) for name in names}
            return {
                name: _zeros(tuple(part.get_shape()), _SAFETENSORS.get(part.get_dtype(), np.int64))
                for name, part in slices.items()
            }
    given = {}
    for name in names:  # opened anew for each: pages of the file that were read count as memory
        with safetensors.safe_open(path, framework="numpy") as file:
            given[name] = file.get_tensor(name)
    return given


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, {} if there is no such file.

    Raises:
      BadInput: it is not a JSON object.
    """
    if not path.exists():
        return {}
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path} is not readable JSON: {e}; repair or remove it.") from e
    if not isinstance(values, dict):
        raise BadInput(f"{path} holds a {type(values).__name__}, expected an object.")
    return values


def write(path: Path, arrays: Flat, beside: dict[str, dict[str, Any]]) -> None:
    """Writes arrays, and JSON files beside them; what was there under these names is replaced.

    The file appears under its name when it is complete.

    Raises:
      BadInput: the folder cannot be written to.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npz":
            with partial.open("wb") as raw:
                np.savez(raw, **arrays)  # type: ignore[arg-type]
        else:
            partial.touch()
            mode = partial.stat().st_mode  # that of any new file; save_file makes private ones
            save_file(arrays, partial, metadata={"format": "pt"})
            partial.chmod(mode)
        for name, values in beside.items():
            path.with_name(name).write_text(json.dumps(values, indent=2) + "\n")
        partial.replace(path)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise BadInput(f"cannot write {path}: {e.strerror or e}; give another file.") from e
