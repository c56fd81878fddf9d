# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lets TFDS's own code prepare a dataset from files in a folder, without a network.

Start from `build`.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.catalog.sizes import SIZES
from vit_jax.data.tensorflow import one_line
from vit_jax.data.tensorflow import tfds as _tfds
from vit_jax.errors import BadInput


def knows(name: str) -> bool:
    """Returns True if TFDS has code for NAME. Imports TFDS; asks no server."""
    tfds = _tfds()
    return name in tfds.list_builders(with_community_datasets=False)


def build(need: downloads.Need, origin: Path, data_dir: Path) -> Path:
    """Prepares a dataset from the files that TFDS would download, put into `origin` by hand.

    EuroSAT is also taken as class folders, if they hold all of its images.

    Sizes are compared first; TFDS compares checksums while it reads. Archives with the right
    checksum are the published ones, so TFDS may unpack them (into DATA_DIR/downloads).

    Args:
      need: the need of the dataset, from `downloads.needs`.
      origin: the folder of the files.
      data_dir: DATA_DIR.

    Returns:
      The folder of the prepared dataset.

    Raises:
      BadInput: a file is missing or has another size or checksum, or TFDS cannot prepare the
        dataset.
    """
    name, lacking = need.dataset.partition(":")[0], downloads.missing_files(need, origin)
    classes = _CLASS_FOLDERS.get(name, ())
    images = _images(origin, classes, name) if lacking and classes else {}
    if lacking and not images:
        listed = "\n".join(f"  {download.text()}: {problem}" for download, problem in lacking)
        more = [f"or class folders {', '.join(classes)}"] if classes else []
        notes = "".join(f"\n  note: {note}" for note in (*need.notes, *more))
        raise BadInput(
            f"{need.dataset} needs {len(need.downloads)} files in {origin}, {len(lacking)} of them "
            f"are not there. Put them there and run the command again:\n{listed}{notes}"
        )
    tfds = _tfds()
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    from tensorflow_datasets.core.download import download_manager, downloader

    settings = tfds.download.DownloadConfig(manual_dir=str(origin), try_download_gcs=False)
    try:
        with (
            _no_downloads(downloader._Downloader, origin),
            _unpacked(download_manager.DownloadManager, images),
        ):
            builder = tfds.builder(need.dataset, data_dir=str(data_dir))
            builder.download_and_prepare(
                download_dir=str(data_dir / "downloads"), download_config=settings
            )
    except BadInput:
        raise
    except download_manager.NonMatchingChecksumError as e:
        raise BadInput(f"{need.dataset}: {one_line(e)} Fetch that file again.") from e
    except Exception as e:  # the code of a dataset may raise anything
        raise BadInput(
            f"{need.dataset} cannot be prepared from {origin}: {type(e).__name__}: {one_line(e)} "
            f"{'; '.join(need.notes)}"
        ) from e
    folder = Path(str(builder.data_dir))
    prepared.write_notes(folder)
    return folder


# Datasets whose archive a user may have unpacked -> the names of its class folders.
_CLASS_FOLDERS = {
    "eurosat/rgb": (
        "AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial", "Pasture",
        "PermanentCrop", "Residential", "River", "SeaLake",
    ),
}  # fmt: skip


def _images(origin: Path, classes: Sequence[str], name: str) -> dict[str, Path]:
    """Returns the files of class folders by the names that TFDS expects, CLASS/CLASS_N.jpg.

    TFDS takes the class and the order of the examples from these names. The result is empty unless
    `origin`, or a folder at most two levels below, holds all class folders.

    Raises:
      BadInput: the folders do not hold all images of the dataset.
    """
    images: dict[str, Path] = {}
    for first in sorted(
        p for way in ("", "*/", "*/*/") for p in origin.glob(f"{way}{classes[0]}/")
    ):
        if images or not all((first.parent / label).is_dir() for label in classes):
            continue
        for label in classes:
            for file in (first.parent / label).glob("*.jpg"):
                named = file.name.startswith(f"{label}_")
                images[f"{label}/{'' if named else f'{label}_'}{file.name}"] = file.resolve()
        expected = sum(SIZES[name].values())
        if len(images) != expected:
            raise BadInput(
                f"the class folders in {first.parent} hold {len(images):,} JPEG files, {name} has "
                f"{expected:,}, of which the splits are counted off. Add those that are missing, "
                f"or train on the folder as it is: --config.data.source=folder:{first.parent}."
            )
    return images


@contextlib.contextmanager
def _unpacked(manager: Any, images: Mapping[str, Path]) -> Iterator[None]:
    """Makes TFDS read links to images in place of an archive; does nothing without images."""
    if not images:
        yield
        return
    original = manager.download_and_extract
    with tempfile.TemporaryDirectory() as scratch:
        for name, file in images.items():
            link = Path(scratch) / "2750" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
        manager.download_and_extract = lambda *_: scratch
        try:
            yield
        finally:
            manager.download_and_extract = original


@contextlib.contextmanager
def _no_downloads(downloader: Any, origin: Path) -> Iterator[None]:
    """Makes every download by TFDS an error, since all files must lie in its manual folder."""
    original = downloader.download

    def refuse(_: Any, url: str, *__: Any, **___: Any) -> None:
        raise BadInput(f"TFDS needs {url}; put that file into {origin} and run the command again.")

    downloader.download = refuse
    try:
        yield
    finally:
        downloader.download = original
