# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lets TFDS's own code prepare a dataset from files in a folder, without a network.

Start from `build`.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.tensorflow import one_line
from vit_jax.data.tensorflow import tfds as _tfds
from vit_jax.errors import BadInput


def knows(name: str) -> bool:
    """Returns True if TFDS has code for NAME. Imports TFDS; asks no server."""
    tfds = _tfds()
    return name in tfds.list_builders(with_community_datasets=False)


def build(need: downloads.Need, origin: Path, data_dir: Path) -> Path:
    """Prepares a dataset from the files that TFDS would download, put into `origin` by hand.

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
    lacking = downloads.missing_files(need, origin)
    if lacking:
        listed = "\n".join(f"  {download.text()}: {problem}" for download, problem in lacking)
        notes = "".join(f"\n  note: {note}" for note in need.notes)
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
        with _no_downloads(downloader._Downloader, origin):
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
