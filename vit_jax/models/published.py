# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published checkpoints by name, as data: the files of each variant, and their URLs.

A name is the path inside its bucket, e.g. `imagenet21k/ViT-B_16.npz`. Sources: the README and
notebooks of google-research/vision_transformer (also for Mixer and AugReg, arXiv:2106.10270) and
the README of google-research/big_transfer. The module reads and downloads nothing. Start from
`url`.
"""

import collections
import re
import urllib.parse
from pathlib import Path

from vit_jax.config import synonyms
from vit_jax.paper import augreg

HOST = "https://storage.googleapis.com"

# Folder -> files without .npz, in the buckets vit_models and mixer_models. Heads in imagenet21k
# have 21,843 classes, the others 1,000.
_FOLDERS = {
    "imagenet21k": (
        "ViT-B_8 ViT-B_16 ViT-B_32 ViT-L_16 ViT-L_32 ViT-H_14 R26+ViT-B_32 R50+ViT-B_16 "
        "R50+ViT-L_32 Mixer-B_16 Mixer-L_16"
    ),
    "imagenet21k+imagenet2012": (
        "ViT-B_8 ViT-B_16 ViT-B_16-224 ViT-B_32 ViT-L_16 ViT-L_16-224 ViT-L_32 R50+ViT-B_16"
    ),
    "imagenet1k": "Mixer-B_16 Mixer-L_16",
    "sam": "ViT-S_16 ViT-B_16 ViT-B_32 ViT-L_16 ViT-L_32 Mixer-B_16 Mixer-B_32",
    "gsam": "Mixer-S_8 Mixer-S_16 Mixer-S_32 Mixer-B_16 Mixer-B_32",
}

# BiT-S is pre-trained on ImageNet, BiT-M on ImageNet-21k; -ILSVRC2012 is BiT-M fine-tuned there.
_BIT = ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4")
_DISTILLED = {
    "R50x1": ("distill/R50x1_160.npz", "distill/R50x1_224.npz"),
    "R152x2": ("distill/R152x2_T_224.npz", "distill/R152x2_T_384.npz"),
}


def _by_variant() -> dict[str, tuple[str, ...]]:
    files: dict[str, list[str]] = collections.defaultdict(list)
    for folder, stems in _FOLDERS.items():
        for stem in stems.split():
            variant = stem.removesuffix("-224").replace("ViT-", "").replace("_", "/")
            files[variant].append(f"{folder}/{stem}.npz")
    for variant, (pretraining, transfer) in augreg.RECOMMENDED.items():
        stem = f"augreg/{augreg.stem(variant, pretraining)}"
        files[variant] += f"{stem}.npz", f"{stem}--imagenet2012-steps_20k-{transfer}.npz"
    for size in _BIT:
        small = () if size == "R152x2" else (f"BiT-S-{size}.npz",)
        medium = f"BiT-M-{size}.npz", f"BiT-M-{size}-ILSVRC2012.npz"
        files[f"BiT-{size}"] += (*small, *medium, *_DISTILLED.get(size, ()))
    return {variant: tuple(names) for variant, names in files.items()}


# Variant -> names of its published files.
CHECKPOINTS: dict[str, tuple[str, ...]] = _by_variant()

# 52,268 files: 9 models x 3 data sets x 28 pre-trainings (7 augmentations, 2 weight decays; dropout
# and stochastic depth both or neither), 3 of B_8, and the transfers of each.
_AUGREG_SCHEME = re.compile(
    r"augreg/(Ti_16|S_32|S_16|B_32|B_16|B_8|L_16|R_Ti_16|R26_S_32|R50_L_32)"
    r"-(i1k-300|i21k-300|i21k-30)ep-lr_0\.001"
    r"-aug_(none|light[01]|medium[12]|strong[12])-wd_(0\.03|0\.1)-do_(?P<rate>0\.[01])-sd_(?P=rate)"
    r"(--(imagenet2012-steps_20k-lr_0\.0[13]"
    r"|((cifar100|resisc45)-steps_(2|10)k|(oxford_iiit_pet|kitti)-steps_[02]k)-lr_0\.0(01|03|1|3))"
    r"-res_(224|384))?\.npz"
)
_VTAB = (
    "caltech101|cifar100|dtd|oxford_flowers102|oxford_iiit_pet|sun397|svhn|diabetic_retinopathy"
    "|eurosat|patch_camelyon|resisc45|clevr-count|clevr-distance|dmlab|dsprites-orientation"
    "|dsprites-xpos|kitti-distance|smallnorb-azimuth|smallnorb-elevation"
)
_BIT_SCHEME = re.compile(
    r"(BiT-S-R(50x[13]|101x[13]|152x[24])|BiT-M-R(50x[13]|101x[13]|152x[24])(-ILSVRC2012)?"
    r"|distill/(R50x1_(160|224)|R152x2_T_(224|384))"
    rf"|vtab/BiT-M-R(50x[13]|101x[13]|152x4)-run[012]-({_VTAB}))\.npz"
)


def weights(name: str) -> str:
    """Returns the published weights of a timm or Hugging Face name; "" if unknown."""
    variant = synonyms.meant("model.variant", name)
    files = CHECKPOINTS.get(variant[0].partition(" ")[0], ()) if variant else ()
    return min(files, key=lambda file: file.startswith(("sam/", "gsam/", "BiT-S")), default="")


def hint(name: str) -> str:
    """Returns advice on the variant and weights of a timm or Hugging Face name; "" if unknown."""
    file = weights(name)
    more = f" For published weights, add --config.init={file}." if file else ""
    return synonyms.hint("model.variant", name) + more


def tuned_side(file: str) -> int:
    """Returns the pixels a side that AugReg fine-tuned a file for; 0 for any other file name."""
    name = Path(file).name
    found = re.search(r"--.*-res_(\d+)\.npz$", name)
    return int(found[1]) if found and _AUGREG_SCHEME.fullmatch(f"augreg/{name}") else 0


def url(name: str) -> str | None:
    """Returns the https URL of a published name; None if the name is unknown.

    Known names are those in `CHECKPOINTS`, every file that AugReg's naming scheme allows, and every
    file of BiT. The latter include transfers to VTAB's tasks (`vtab/BiT-M-R50x1-run0-dtd.npz`).
    """
    if _BIT_SCHEME.fullmatch(name):
        bucket = "bit_models"
    elif _AUGREG_SCHEME.fullmatch(name):
        bucket = "vit_models"
    elif any(name in names for names in CHECKPOINTS.values()):
        bucket = "mixer_models" if "/Mixer-" in name else "vit_models"
    else:
        return None
    return f"{HOST}/{bucket}/{urllib.parse.quote(name)}"
