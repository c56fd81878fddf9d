# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Archives as people have them, and as they should not be."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pictures

from vit_jax.data.tensorflow import tf


def picture(seed: int, kind: str = "JPEG") -> bytes:
    """A file of 5 x 4 pixels, different for each seed."""
    return pictures.encode(pictures.noise(5, 4, seed=seed), kind)


def tar_bytes(files: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar of files by name; `mode` "w:gz" and so on compresses it, quickly."""
    out = io.BytesIO()
    level = {"xz": {"preset": 0}, "gz": {"compresslevel": 1}, "bz2": {"compresslevel": 1}}
    with tarfile.open(fileobj=out, mode=mode, **level.get(mode[2:], {})) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    path.write_bytes(tar_bytes(files, mode))
    return path


def tar_of(path: Path, **fields) -> Path:
    """A tar of one entry that no image has: a link, a device, a name that leads elsewhere."""
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo()
        for key, value in fields.items():
            setattr(entry, key, value)
        archive.addfile(entry)
    return path


def zipped(path: Path, files: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def unpacked(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def pairs(split) -> list[tuple[bytes, int]]:
    """(bytes, label) of each example of a `splits.Split`."""
    read = tf.function(split.reader())
    found = [read(tf.constant(i, tf.int64)) for i in range(len(split))]
    return [(image.numpy(), int(np.asarray(labels)[0])) for image, labels in found]
