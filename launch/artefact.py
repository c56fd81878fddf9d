# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The code of a job, its transport, and the hash that the processes compare.

| transport | how | hash |
|---|---|---|
| folder | a folder that all machines share | hash of the sources, computed by each process |
| rsync | the engine copies the checkout | the same |
| tarball | a file in the bucket, checked before it is unpacked | its sha256 |
| image | a container image, by digest | that digest |

Start from `pack`.
"""

import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path

from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.runtime import rendezvous

LOCK_FILE = "requirements.lock"
_FOLDERS = ("vit_jax", "configs", "launch")
_FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", LOCK_FILE)


def pack(root: Path) -> bytes:
    """Packs the code as .tar.gz: the same files always give the same bytes.

    Raises:
      BadInput: the folder is not a checkout.
    """
    paths = [p for f in _FOLDERS for p in sorted((root / f).rglob("*")) if _is_source(p)]
    missing = [name for name in _FILES if not (root / name).is_file()]
    if missing:
        raise BadInput(f"{root} has no {missing[0]}; launch from a checkout of the project.")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in [*(root / name for name in _FILES), *paths]:
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def _is_source(path: Path) -> bool:
    # Code, tables of the papers, templates of pages, the mark of typed packages.
    kinds = (".py", ".json", ".html", ".css", ".typed")
    return path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts


def digest(artefact: bytes) -> str:
    """Returns the sha256 in hexadecimal."""
    return hashlib.sha256(artefact).hexdigest()


def digest_of_image(image: str) -> str:
    """Returns the digest in an image's name.

    Raises:
      BadInput: the name has a tag or nothing instead; a tag may mean another image tomorrow.
    """
    match = re.fullmatch(r"[\w.:/-]+@(sha256:[0-9a-f]{64})", image)
    if match is None:
        raise BadInput(
            f"--image={image!r}: give it by digest, NAME@sha256:..., which `docker push` prints: "
            "a tag may be another image when a pod restarts."
        )
    return match[1]


def here() -> dict[str, str]:
    """Returns the versions in this environment of the packages that processes compare."""
    return {name: version for name, version in rendezvous.facts().items() if name != "code"}


def locked(root: Path | None = None) -> dict[str, str]:
    """Returns the versions in the lock file, from which images and TPU VMs are installed.

    Raises:
      BadInput: the file is missing, or lacks a package.
    """
    path = (root or recipes.root()) / LOCK_FILE
    if not path.is_file():
        raise BadInput(f"{path} is missing; launch from a checkout of the project.")
    rows = (
        line.split(" ")[0].partition("==") for line in path.read_text(encoding="utf-8").splitlines()
    )
    versions = {_canonical(name): version for name, equal, version in rows if equal}
    names = [name for name in rendezvous.facts() if name != "code"]
    missing = [name for name in names if name not in versions]
    if missing:
        raise BadInput(f"{path} has no version of {missing[0]}; regenerate it, see docs/launch.")
    return {name: versions[name] for name in names}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
