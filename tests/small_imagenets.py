# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Small copies of ImageNet's test sets: prepared by TFDS's own builders, and as folders."""

import json
import logging
from pathlib import Path
from unittest import mock

import pictures

from vit_jax.data.catalog import imagenet_labels
from vit_jax.data.sources import tfds as tfds_source


def prepare(data_dir: Path, name: str, splits: dict[str, list[tuple[str, str | int]]]) -> None:
    """A dataset of TFDS with other examples: split -> (file name, class), images of noise.

    Image k of all is noise of seed k.
    """
    tfds = tfds_source._tfds()
    tfds.disable_progress_bar()
    logging.getLogger("absl").setLevel(logging.ERROR)
    cls = type(tfds.builder(name, data_dir=str(data_dir)))
    rows = [(split, *row) for split, examples in splits.items() for row in examples]

    def generate(split):
        for k, (own, file, label) in enumerate(rows):
            if own == split:
                path = data_dir / f"{name.replace('/', '_')}_{k}.jpg"
                path.write_bytes(jpeg(k))
                yield f"{k}", {"image": str(path), "label": label, "file_name": file}

    made = mock.patch.multiple(
        cls,
        _split_generators=lambda self, _: {split: generate(split) for split in splits},
        _generate_examples=generate,
    )
    with made:
        tfds.builder(name, data_dir=str(data_dir)).download_and_prepare()


def jpeg(seed: int) -> bytes:
    """Noise of 8 x 8 pixels."""
    return pictures.encode(pictures.noise(8, 8, seed=seed), "JPEG", quality=95)


# Folder of ObjectNet, its name there, ImageNet's names, lines and wnids.
OBJECTS = {
    "alarm_clock": ("Alarm clock", ("analog clock", "digital clock")),
    "bike": ("Bicycle", ("mountain bike, all-terrain bike, off-roader",)),
    "chair": ("Chair", ("barber chair", "folding chair", "rocking chair, rocker")),
}
WNIDS = {
    "analog clock": "n02708093", "digital clock": "n03196217",
    "mountain bike, all-terrain bike, off-roader": "n03792782", "barber chair": "n02791124",
    "folding chair": "n03376595", "rocking chair, rocker": "n04099969",
}  # fmt: skip


def objectnet(root: Path, each: int = 2) -> Path:
    """Two classes more than those of `OBJECTS`; PNG files of 12 x 12 pixels with a red border."""
    mappings, classes = root / "mappings", imagenet_labels.wnids()
    mappings.mkdir(parents=True)
    folders = {folder: name for folder, (name, _) in OBJECTS.items()} | {"air": "Air", "zip": "Zip"}
    for i, folder in enumerate(folders):
        (root / "images" / folder).mkdir(parents=True)
        for k in range(each):
            image = pictures.noise(12, 12, seed=100 * i + k)
            image[:2] = image[-2:] = image[:, :2] = image[:, -2:] = (255, 0, 0)
            (root / "images" / folder / f"{k}.png").write_bytes(pictures.encode(image))
    (mappings / "folder_to_objectnet_label.json").write_text(json.dumps(folders))
    meant = {name: "; ".join(of) for name, of in OBJECTS.values()}
    (mappings / "objectnet_to_imagenet_1k.json").write_text(json.dumps(meant))
    # Lines in an order of their own: class k is on line 7 k + 3, modulo 1000.
    lines = {str(k): (7 * k + 3) % 1000 for k in range(1000)}
    (mappings / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps(lines))
    said = [f"another {n}" for n in range(1000)]
    for name, wnid in WNIDS.items():
        said[lines[str(classes.index(wnid))]] = name
    (mappings / "imagenet_to_label_2012_v2").write_text("\n".join(said) + "\n")
    return root
