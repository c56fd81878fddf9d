# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lists what a named dataset lacks and how to get it: file names, sizes, checksums, the command.

Names, sizes and checksums (SHA-256) come from the lists inside TFDS. This module downloads nothing
and does not import TensorFlow. Start from `needs`.
"""

import dataclasses
import functools
import importlib.util
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from vit_jax.data.catalog import prepared
from vit_jax.errors import unknown
from vit_jax.paper import robustness, vtab


@dataclasses.dataclass(frozen=True)
class Download:
    """A file to fetch: name, size (None: unknown), checksum and address ("": unknown)."""

    name: str
    bytes: int | None = None
    checksum: str = ""
    url: str = ""

    def text(self) -> str:
        """Formats the download as one line."""
        size = "size not known" if self.bytes is None else f"{self.bytes} bytes"
        return "  ".join(filter(None, (self.name, size, self.checksum, self.url)))


@dataclasses.dataclass(frozen=True)
class Need:
    """The state of a dataset and, unless it is ready, what to do.

    Attributes:
      name: NAME of `vit_jax data prepare`.
      dataset: TFDS's name, NAME[/CONFIG]:VERSION.
      state: says whether the dataset can be read.
      folder: where the dataset is or will be.
      downloads: files to put into `place`; empty if the dataset is ready.
      place: the folder for these files.
      notes: page, licence, further requirements.
      command: the command to run afterwards.
      also: names of VTAB's other tasks on the same dataset.
    """

    name: str
    dataset: str
    state: Literal["ready", "needs files", "broken"]
    folder: str
    downloads: tuple[Download, ...] = ()
    place: str = ""
    notes: tuple[str, ...] = ()
    command: str = ""
    also: tuple[str, ...] = ()

    def text(self) -> str:
        """Formats the state as lines for people."""
        also = f"; also {', '.join(self.also)}" if self.also else ""
        lines = [f"{self.name} ({self.dataset}): {self.state}, {self.folder}{also}"]
        if self.state != "ready":
            lines += [f"  {download.text()}" for download in self.downloads]
            lines += [f"  note: {note}" for note in self.notes]
            lines += [f"  put into {self.place}, then run: {self.command}"]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class _Known:
    """A way to get a dataset.

    `files` selects from TFDS's list; () takes all of it. `other` lists files that are not in that
    list; a name with / is a folder.
    """

    version: str
    page: str
    files: tuple[str, ...] = ()
    other: tuple[Download, ...] = ()
    notes: tuple[str, ...] = ()
    module: str = ""


_REGISTER = "register and accept the terms there (research and education only); then download"
_ILSVRC = (
    Download("ILSVRC2012_img_train.tar", 147_897_477_120, "md5 1d675b47d978889d74fa0da5fadfb00e"),
    Download("ILSVRC2012_img_val.tar", 6_744_924_160, "md5 29b22e2961454d5413ddabcf34fc5622"),
)
_IMAGENET = "https://image-net.org/download-images"
_V2 = "https://github.com/modestyachts/ImageNetV2"
_ROBOTS = "https://www.robots.ox.ac.uk/~vgg/data"
_CV2 = "cv2"  # TFDS decodes these images with OpenCV

# NAME[/CONFIG] -> how to get it; the versions are those that TFDS 4.9.10 prepares.
_KNOWN: dict[str, _Known] = {
    "imagenet2012": _Known("5.1.0", _IMAGENET, (), _ILSVRC, (_REGISTER,)),
    "imagenet21k/winter21": _Known(
        "1.0.0",
        _IMAGENET,
        other=(Download("winter21_whole.tar.gz"),),
        notes=(_REGISTER, "a compressed tar needs as much space again while it is prepared"),
    ),
    "imagenet21k/fall11": _Known(
        "1.0.0",
        _IMAGENET,
        other=(Download("fall11_whole.tar"),),
        notes=("image-net.org no longer offers this release: only for those who have it",),
    ),
    "imagenet2012_real": _Known(
        "1.0.0", _IMAGENET, ("real.json",), _ILSVRC[1:], (_REGISTER + " the validation images",)
    ),
    "imagenet_v2/matched-frequency": _Known("3.0.0", _V2, ("imagenetv2-matched-frequency.tar.gz",)),
    "imagenet_v2/threshold-0.7": _Known("3.0.0", _V2, ("imagenetv2-threshold0.7.tar.gz",)),
    "imagenet_v2/topimages": _Known("3.0.0", _V2, ("imagenetv2-top-images.tar.gz",)),
    "imagenet_a": _Known("0.1.0", "https://github.com/hendrycks/natural-adv-examples"),
    "imagenet_r": _Known("0.2.0", "https://github.com/hendrycks/imagenet-r"),
    "imagenet_sketch": _Known("1.0.0", "https://github.com/HaohanWang/ImageNet-Sketch"),
    "cifar10": _Known("3.0.2", "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "cifar100": _Known("3.0.2", "https://www.cs.toronto.edu/~kriz/cifar.html"),
    "caltech101": _Known(
        "3.0.2", "https://data.caltech.edu/records/mzrjq-6wc02", ("caltech-101.zip",)
    ),
    "dtd": _Known("3.0.1", f"{_ROBOTS}/dtd"),
    "oxford_flowers102": _Known("2.1.1", f"{_ROBOTS}/flowers/102"),
    "oxford_iiit_pet": _Known(
        "4.0.0",
        f"{_ROBOTS}/pets",
        notes=("VTAB names 3.*.*, which TFDS 4.9.10 no longer has; the order may differ",),
    ),
    "sun397/tfds": _Known("4.0.0", "https://vision.princeton.edu/projects/2010/SUN", module=_CV2),
    "svhn_cropped": _Known("3.1.0", "http://ufldl.stanford.edu/housenumbers"),
    "patch_camelyon": _Known("2.0.0", "https://github.com/basveeling/pcam"),
    "eurosat/rgb": _Known("2.0.0", "https://github.com/phelber/eurosat", ("EuroSAT.zip",)),
    "resisc45": _Known(
        "3.0.0",
        "https://1drv.ms/u/s!AmgKYzARBl5ca3HNaHIlzp_IXjs",
        other=(Download("NWPU-RESISC45/"),),
        notes=("unpack NWPU-RESISC45.rar (unrar x): 45 folders of 700 .jpg each",),
    ),
    "diabetic_retinopathy_detection/btgraham-300": _Known(
        "3.0.0",
        "https://www.kaggle.com/c/diabetic-retinopathy-detection/data",
        other=tuple(map(Download, ("train/", "test/", "sample/", "trainLabels.csv"))),
        notes=(
            "needs an account and the competition's rules accepted; join and unpack train.zip.*, "
            "test.zip.*, sample.zip and trainLabels.csv.zip into folders of these names",
        ),
        module=_CV2,
    ),
    "clevr": _Known("3.1.0", "https://cs.stanford.edu/people/jcjohns/clevr"),
    "dmlab": _Known("2.0.1", "https://github.com/google-research/task_adaptation"),
    "dsprites": _Known("2.0.0", "https://github.com/deepmind/dsprites-dataset"),
    "kitti": _Known(
        "3.3.0",
        "https://www.cvlibs.net/datasets/kitti",
        notes=(
            "VTAB names 3.1.0, which TFDS 4.9.10 reads but no longer prepares; 3.2.0 has another "
            "devkit and 3.3.0 names for a label that VTAB does not use",
        ),
        module=_CV2,
    ),
    "smallnorb": _Known("2.0.0", "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"),
}
for _part in robustness.parts("imagenet2012_corrupted/{corruption}_{severity}").values():
    _KNOWN[_part] = _Known(
        "3.1.0",
        "https://github.com/hendrycks/robustness",
        other=_ILSVRC[1:],
        notes=(
            _REGISTER + " the validation images, which TFDS corrupts (it needs scikit-image and "
            "scipy, for motion_blur and snow ImageMagick); or read the published JPEGs, "
            "https://zenodo.org/record/2235448: "
            "evals.NAME.source=folder:PATH/{corruption}/{severity}, evals.NAME.split=all",
        ),
        module=_CV2,
    )
_MODULES = {_CV2: "opencv-python-headless"}


def resolve_names(name: str) -> dict[str, str]:
    """Resolves a NAME of `vit_jax data prepare`: returns NAME -> NAME[/CONFIG] of TFDS.

    `vtab` and `vtab/all` mean all tasks, `imagenet21k` means its releases, and
    `imagenet2012_corrupted` means all 75 parts of ImageNet-C.

    Raises:
      BadInput: VTAB has no such task; the message lists the tasks.
    """
    group, _, task = name.partition("/")
    if group == "vtab":
        if task in ("", "all"):  # several tasks may share a dataset
            first = {t.tfds_name: t.slug for t in reversed(vtab.tasks())}
            return {f"vtab/{slug}": dataset for dataset, slug in reversed(first.items())}
        vtab_task = vtab.find(task)
        return {f"vtab/{vtab_task.slug}": vtab_task.tfds_name}
    if name in ("imagenet21k", "imagenet2012_corrupted"):
        return {known: known for known in _KNOWN if known.startswith(f"{name}/")}
    default = next((k for k in _KNOWN if k.startswith(f"{name}/")), name)  # eurosat: eurosat/rgb
    return {name: default}


def needs(name: str, data_dir: str) -> list[Need]:
    """Returns the state of a named dataset, or of each dataset of a group.

    Args:
      name: see `resolve_names`; or any name that TFDS has downloads for, or that is prepared.
      data_dir: DATA_DIR; "": TFDS's default.

    Raises:
      BadInput: the name is unknown.
    """
    states = [_need(one, dataset, data_dir) for one, dataset in resolve_names(name).items()]
    if name == "imagenet21k":  # one release is enough
        return [need for need in states if need.state == "ready"] or states
    return states


def find_usable(name: str, dataset: str, find: Callable[[str], Path | None]) -> Path | None:
    """Returns a prepared dataset that a NAME can be read from, or None.

    `find` looks up NAME[/CONFIG][:VERSION]. VTAB tasks accept only their version or its substitute;
    other names take the newest version.
    """
    tasks = _tasks(name, dataset)
    versions = [v for t in tasks[:1] for v in (t.version, t.substitute) if v] or [""]
    return next(filter(None, (find(f"{dataset}:{v}") for v in versions)), None)


def _tasks(name: str, dataset: str) -> list[vtab.Task]:
    """Returns the VTAB tasks on a dataset, which share one version; empty for other NAMEs."""
    return [t for t in vtab.tasks() if name.startswith("vtab/") and t.tfds_name == dataset]


def version(dataset: str) -> str:
    """Returns the version of a NAME[/CONFIG] that is prepared here; "": whatever TFDS has."""
    return _KNOWN[dataset].version if dataset in _KNOWN else ""


def missing_files(need: Need, folder: Path) -> list[tuple[Download, str]]:
    """Returns the downloads that a folder lacks, each with what is there instead."""
    lacking = []
    for download in need.downloads:
        path = folder / download.name
        if not path.exists() or path.is_dir() != download.name.endswith("/"):
            lacking.append((download, "missing"))
        elif download.bytes is not None and path.stat().st_size != download.bytes:
            page = " (a web page instead of the file?)" if path.stat().st_size < 100_000 else ""
            lacking.append((download, f"has {path.stat().st_size} bytes{page}"))
    return lacking


def _need(name: str, dataset: str, data_dir: str) -> Need:
    known = _KNOWN.get(dataset)
    downloads = tfds_downloads(dataset.partition("/")[0])
    folder = find_usable(name, dataset, lambda wanted: prepared.find(wanted, data_dir))
    tasks = _tasks(name, dataset)
    also = tuple(f"vtab/{t.slug}" for t in tasks if f"vtab/{t.slug}" != name)
    if known is None and not downloads and folder is None:
        raise unknown("dataset", name, [*_KNOWN, "vtab", *(f"vtab/{t.slug}" for t in vtab.tasks())])
    if folder is not None:
        title = f"{dataset}:{folder.name}"
        broken = _broken(folder)
        if not broken:
            return Need(name, title, "ready", str(folder), also=also)
        notes: tuple[str, ...] = (broken, f"remove {folder} first")
    else:
        other = prepared.find(dataset, data_dir)
        notes = ()
        if other is not None:
            notes = (f"{other} is another version; VTAB asks for {tasks[0].version}",)
        folder = prepared.data_folder(data_dir) / dataset / version(dataset)
        title = f"{dataset}:{version(dataset)}" if version(dataset) else dataset
    downloads = tuple(
        d for d in downloads if known is None or not known.files or d.name in known.files
    )
    if known is not None:
        downloads += known.other
        notes += (f"source: {known.page}", *known.notes)
        if known.module and importlib.util.find_spec(known.module) is None:
            notes += (
                f"TFDS prepares it with {known.module}: pip install {_MODULES[known.module]}",
            )
    place = prepared.data_folder(data_dir) / "downloads" / "manual"
    command = f"vit_jax data prepare {shlex.quote(name)} --from={shlex.quote(str(place))}"
    state = "broken" if notes and notes[0].startswith("damaged") else "needs files"
    if data_dir:
        command += f" --data_dir={shlex.quote(data_dir)}"
    return Need(name, title, state, str(folder), downloads, str(place), notes, command, also)


def _broken(folder: Path) -> str:
    """Returns a problem that file sizes show, or ""; `prepared.check` reads the files too."""
    for paths, lengths in prepared.files(folder).values():
        for path, length in zip(paths, lengths, strict=True):
            if length and not (path.is_file() and path.stat().st_size):
                return f"damaged: {path.name} is missing or empty"
    return ""


@functools.cache
def tfds_downloads(dataset: str) -> tuple[Download, ...]:
    """Parses TFDS's list of a dataset's downloads: url, size, SHA-256, file name, with tabs."""
    package = prepared.tfds_package()
    paths = (
        package / "datasets" / dataset / "checksums.tsv",
        package / "url_checksums" / f"{dataset}.txt",
    )
    entries = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            url, size, checksum, *name = line.split("\t") if "\t" in line else line.rsplit(" ", 2)
            if name and name[0]:
                entries.append(Download(name[0], int(size), f"sha256 {checksum}", url))
    return tuple(entries)
