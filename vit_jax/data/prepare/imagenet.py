# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Indexes ImageNet-1k (ILSVRC2012) and ImageNet-21k by the names of their files.

Both must be complete, since their sizes are known; otherwise they are refused. Start from
`imagenet2012` or `imagenet21k`.
"""

import collections
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from vit_jax.data.catalog import prepared
from vit_jax.data.formats.archives import Member, Progress, members, no_progress
from vit_jax.data.ops.decode import EXTENSIONS
from vit_jax.data.prepare.layouts import Example, Index, check_unique
from vit_jax.errors import BadInput, unknown

# Images of each split: Russakovsky et al., arXiv:1409.0575, table 2.
SIZES_2012 = {"train": 1_281_167, "validation": 50_000}
# Images of each release, as image-net.org states them.
_IMAGES_21K = {"fall11": 14_197_122, "winter21": 13_153_500}
RELEASES_21K = {
    release: (prepared.CLASSES[f"imagenet21k/{release}"]["label"], images)
    for release, images in _IMAGES_21K.items()
}
HELD_OUT = 25_600  # size of val and of test of ImageNet-21k, or 1 % if that is less
_MISSING_21K = 0.001  # share of the images that a copy of ImageNet-21k may lack

_TRAIN = re.compile(r"(?i)(n\d{8})_\d+\.jpe?g")
_VALIDATION = re.compile(r"(?i)ILSVRC2012_val_(\d{8})\.jpe?g")
_WNID = re.compile(r"n\d{8}")
_TARS_2012 = re.compile(r"ILSVRC2012_img_(train|val)\.tar|n\d{8}\.tar")


def imagenet2012(origin: Path, scratch: Path, unpacked: Progress = no_progress) -> Index:
    """Indexes ILSVRC2012 from its two tars, or from images in any folders, by the file names.

    Labels follow the order of the WordNet ids. The label of a validation image comes from the list
    in TFDS. A folder named by a WordNet id must agree with it.

    Args:
      origin: a folder that holds everything, or one archive that does.
      scratch: see `archives.members`.
      unpacked: see `archives.members`.

    Raises:
      BadInput: images are missing (the message says which), or an image lies in a folder of another
        class.
    """
    wnids = _lines("labels.txt")
    assert wnids == sorted(set(wnids))
    validation = _lines("validation_labels.txt")
    label = {wnid: number for number, wnid in enumerate(wnids)}
    splits: dict[str, list[Example]] = {"train": [], "validation": []}
    left_out = 0
    for member in members(origin, scratch, _is_tar_2012, unpacked):
        folder, _, name = member.name.rpartition("/")
        if match := _TRAIN.fullmatch(name):
            split, wnid = "train", match[1]
        elif (match := _VALIDATION.fullmatch(name)) and 0 < int(match[1]) <= len(validation):
            split, wnid = "validation", validation[int(match[1]) - 1]
        else:
            left_out += 1
            continue
        parent = folder.rpartition("/")[2]
        if _WNID.fullmatch(parent) and parent != wnid:
            raise BadInput(
                f"--from={origin}: {member.name} is of class {wnid}, but in the folder {parent}. "
                "Sort the images again, or give the original tars."
            )
        if wnid in label:
            splits[split].append(Example(name, label[wnid], member))
        else:
            left_out += 1
    if any(len(splits[split]) > size for split, size in SIZES_2012.items()):
        check_unique(Index((), splits), origin)
    _complete_2012(splits, wnids, origin)
    note = f"{left_out} files left out: not named as images of ILSVRC2012's train or validation"
    return Index(tuple(wnids), splits, (note,) if left_out else ())


def _is_tar_2012(name: str) -> bool:
    return bool(_TARS_2012.fullmatch(name))


def _complete_2012(splits: dict[str, list[Example]], wnids: list[str], origin: Path) -> None:
    problems = []
    for split, expected in SIZES_2012.items():
        counts = collections.Counter(e.label for e in splits[split])
        empty = [w for number, w in enumerate(wnids) if not counts[number]]
        if len(splits[split]) != expected:
            without = f", none of {_some(empty)}" if 0 < len(empty) < len(wnids) else ""
            problems.append(f"{split}: {len(splits[split])} of {expected} images{without}")
    if problems:
        raise BadInput(
            f"--from={origin} is not ILSVRC2012: {'; '.join(problems)}. Expected "
            "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, or the images that they hold; "
            "prepare a part of it under another name."
        )


def _lines(name: str) -> list[str]:
    path = prepared.tfds_package() / "datasets" / "imagenet2012" / name
    return path.read_text(encoding="utf-8").split()


def check_release(release: str) -> None:
    """Raises BadInput unless `release` is a key of RELEASES_21K; the user must choose one."""
    if not release:
        raise BadInput(
            "imagenet21k has two releases with different classes; say which one you have: "
            + " or ".join(f"--release={r} ({c} classes)" for r, (c, _) in RELEASES_21K.items())
            + "."
        )
    if release not in RELEASES_21K:
        raise unknown("--release", release, RELEASES_21K)


def imagenet21k(
    origin: Path, scratch: Path, release: str, unpacked: Progress = no_progress
) -> Index:
    """Indexes one release of ImageNet-21k: a tar of class tars, or folders of class tars or images.

    Classes are the WordNet ids found, sorted. `validation` and `test` get the images whose names
    have the smallest hashes: HELD_OUT each.

    Args:
      origin: the tar (compressed or not) or a folder.
      scratch: see `archives.members`.
      release: a key of RELEASES_21K.
      unpacked: see `archives.members`.

    Raises:
      BadInput: the number of classes or images is not that of the release.
    """
    tars = re.compile(rf"{release}_whole\.(tar|tar\.gz|tgz)|n\d{{8}}\.tar")
    entries: list[tuple[str, Member]] = []
    left_out = 0
    for member in members(origin, scratch, lambda name: bool(tars.fullmatch(name)), unpacked):
        *_, wnid, name = ("", *member.name.split("/"))
        if _WNID.fullmatch(wnid) and name.lower().endswith(EXTENSIONS):
            entries.append((f"{wnid}/{name}", member))
        else:
            left_out += 1
    wnids = sorted({name[:9] for name, _ in entries})
    label = {wnid: number for number, wnid in enumerate(wnids)}
    examples = [Example(name, label[name[:9]], member) for name, member in entries]
    classes, images = RELEASES_21K[release]
    if len(entries) > images:
        check_unique(Index((), {release: examples}), origin)
    if len(wnids) != classes or len(entries) < images * (1 - _MISSING_21K) or len(entries) > images:
        raise BadInput(
            f"--from={origin}: {len(wnids)} classes and {len(entries)} images; {release} has "
            f"{classes} and {images}. Complete it, or prepare it under another name."
        )
    notes = [f"{len(entries)} of {release}'s {images} images"] if len(entries) < images else []
    if left_out:
        notes.append(f"{left_out} files left out: not an image in a folder of a WordNet id")
    splits = _held_out(examples)

    def accepts(kept: dict[str, list[Example]]) -> None:
        lost = {e.label for e in splits["train"]} - {e.label for e in kept["train"]}
        count = sum(map(len, kept.values()))
        if lost or count < images * (1 - _MISSING_21K):
            without = f", none of {_some(wnids[k] for k in sorted(lost))} in train" if lost else ""
            raise BadInput(
                f"--from={origin}: {count} images of {release}'s {images} can be read{without}. "
                "Complete it, or prepare it under another name."
            )

    return Index(tuple(wnids), splits, tuple(notes), accepts)


def _held_out(examples: list[Example]) -> dict[str, list[Example]]:
    count = min(HELD_OUT, len(examples) // 100)
    by_hash = sorted(
        examples, key=lambda e: hashlib.blake2b(f"held out/{e.name}".encode()).digest()
    )
    return {
        "train": by_hash[2 * count :],
        "validation": by_hash[:count],
        "test": by_hash[count : 2 * count],
    }


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 5} more classes" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
