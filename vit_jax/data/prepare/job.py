# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs `vit_jax data prepare NAME --from=PATH`, in a way that NAME decides.

Start from `prepare`.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.formats.archives import no_progress
from vit_jax.data.prepare import imagenet, layouts, upstream, writer
from vit_jax.data.prepare.layouts import Index
from vit_jax.data.prepare.packing import Packing
from vit_jax.data.prepare.writer import Progress, Target
from vit_jax.errors import BadInput

_SHARDS_2012 = {"train": 1024, "validation": 64}  # as in TFDS's releases


@dataclasses.dataclass(frozen=True)
class Report:
    """A dataset that was prepared, or that was found prepared.

    Attributes:
      source: its name in a config, `tfds:NAME`.
      data_dir: the value that `data.data_dir` needs.
      state: from `prepared.check`, without problems.
      notes: sentences on assumptions, on files left out, and on a dataset prepared before.
    """

    source: str
    data_dir: str
    state: prepared.Prepared
    notes: tuple[str, ...]

    def text(self) -> str:
        """Formats the report as lines for people."""
        use = f"  read it as {self.source} with data_dir={self.data_dir}"
        return "\n".join([self.state.text(), *(f"  {note}" for note in self.notes), use])


def prepare(
    name: str,
    origin: Path,
    data_dir: str,
    workers: int,
    release: str = "",
    progress: Progress = no_progress,
    unpacked: Progress = no_progress,
    packing: Packing | None = None,
) -> list[Report]:
    """Prepares a dataset from `origin`; only checks a dataset that is prepared already.

    Args:
      name: imagenet2012; imagenet21k[/RELEASE]; vtab/TASK or vtab/all; a dataset of TFDS; or, for
        your own images (see `layouts.index_images`), any new name of small letters, digits and _.
      origin: archives, folders or lists of images; or a prepared dataset, which is not copied.
      data_dir: DATA_DIR; "": TFDS's default.
      workers: threads that copy images.
      release: the release of imagenet21k.
      progress: called with images done and total images.
      unpacked: called with bytes done and total bytes of a compressed tar.
      packing: makes images smaller; the dataset then is `Packing.name` of it.

    Returns:
      A report of each dataset; several for `vtab/all`.

    Raises:
      BadInput: `origin` is missing, incomplete, or something else; the message says what to do.
    """
    origin = Path(os.path.expanduser(origin))
    if not origin.exists():
        raise BadInput(f"--from={origin}: there is no such file or folder.")
    name, release = _with_release(name, release)
    root = prepared.data_folder(data_dir)
    target = Target(packing.name(name) if packing else name, "", "1.0.0", root, packing=packing)
    if name == "imagenet21k":
        imagenet.check_release(release)
        index = functools.partial(imagenet.imagenet21k, release=release, unpacked=unpacked)
        target = dataclasses.replace(target, config=release)
        return [_own(target, index, origin, workers, progress)]
    if name == "imagenet2012":
        whole: dict[str, Any] = {"shards": _SHARDS_2012, "complete": True}
        target = dataclasses.replace(target, version=downloads.version(name), **whole)
        index = functools.partial(imagenet.imagenet2012, unpacked=unpacked)
        return [_own(target, index, origin, workers, progress)]
    datasets = downloads.resolve_names(name)
    [(one, dataset), *others] = datasets.items()
    if packing and (others or upstream.knows(dataset.partition("/")[0])):
        raise BadInput(
            f"--size={packing.size} is for images of your own, imagenet2012 and imagenet21k; "
            f"{name} is built by TensorFlow Datasets as it is: leave it out."
        )
    if others:
        return _each(name, origin, root)
    if upstream.knows(dataset.partition("/")[0]):
        return [_upstream(one, dataset, origin, root)]
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise BadInput(f"{name!r} cannot name a dataset; use small letters, digits and _.")
    index = functools.partial(layouts.index_images, unpacked=unpacked)
    return [_own(target, index, origin, workers, progress)]


def _with_release(name: str, release: str) -> tuple[str, str]:
    """Returns name and release, which may be a part of the name, apart."""
    if name.startswith("imagenet21k/") and release in ("", name.partition("/")[2]):
        name, _, release = name.partition("/")
    if release and name != "imagenet21k":
        raise BadInput(f"--release={release} is for imagenet21k; leave it out for {name}.")
    return name, release


def _there(name: str, dataset: str, origin: Path, root: Path) -> Report | None:
    """Reports a dataset prepared in DATA_DIR, or else at `origin`; returns None without either."""
    folder = downloads.find_usable(name, dataset, lambda wanted: prepared.find(wanted, str(root)))
    note = "it was prepared already"
    if folder is None and origin.is_dir():
        folder = downloads.find_usable(
            name, dataset, lambda wanted: prepared.find_at(wanted, origin)
        )
        note = "it is prepared where it lies; nothing was copied"
    return None if folder is None else _report(dataset, folder, (note,))


def _report(dataset: str, folder: Path, notes: tuple[str, ...]) -> Report:
    state = prepared.check(folder)
    if state.name.partition(":")[0].partition("/")[0] != dataset.partition("/")[0]:
        raise BadInput(f"{folder} is {state.name}; expected {dataset}. Give that name, or folder.")
    if state.problems:
        raise BadInput(
            f"{state.name} in {folder} is not whole: {'; '.join(state.problems)}. Remove that "
            "folder and prepare it again."
        )
    depth = len(state.name.partition(":")[0].split("/"))
    return Report(f"tfds:{state.name}", str(folder.parents[depth]), state, notes)


def _own(
    target: Target,
    index: Callable[[Path, Path], Index],
    origin: Path,
    workers: int,
    progress: Progress,
) -> Report:
    dataset = "/".join(filter(None, (target.name, target.config)))
    there = _there(dataset, dataset, origin, target.data_dir)
    if there:
        writer.tidy_finished(target)
        return there
    with writer.held(target) as hidden:
        contents = index(origin, hidden / "scratch")
        layouts.check_unique(contents, origin)
        writer.write(contents, target, max(1, workers), progress)
    return _report(dataset, target.folder, contents.notes)


def _upstream(name: str, dataset: str, origin: Path, root: Path) -> Report:
    there = _there(name, dataset, origin, root)
    if there:
        return there
    [need] = downloads.needs(name, str(root))
    return _report(dataset, upstream.build(need, origin, root), ())


def _each(name: str, origin: Path, root: Path) -> list[Report]:
    """Prepares the datasets of a group whose files exist; then raises one BadInput on the rest."""
    reports, lacking = [], []
    for one, dataset in downloads.resolve_names(name).items():
        try:
            reports.append(_upstream(one, dataset, origin, root))
        except BadInput as e:
            lacking.append(str(e))
    if lacking:
        ready = ", ".join(r.source for r in reports) or "none"
        raise BadInput(
            f"{len(lacking)} of {len(lacking) + len(reports)} datasets of {name} are not prepared "
            f"(prepared: {ready}):\n" + "\n".join(lacking)
        )
    return reports
