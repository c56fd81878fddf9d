# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sizes of named datasets: examples of each split, classes of each label. `prepared` uses them."""

from vit_jax.paper import robustness, vtab

# Examples of each split as TFDS prepares it. Sources: TFDS's documentation, VTAB's task tests.
SIZES: dict[str, dict[str, int]] = {
    "imagenet2012": {"train": 1_281_167, "validation": 50_000},
    "imagenet2012_real": {"validation": 50_000},
    "imagenet_v2/matched-frequency": {"test": 10_000},
    "imagenet_v2/threshold-0.7": {"test": 10_000},
    "imagenet_v2/topimages": {"test": 10_000},
    "imagenet_a": {"test": 7_500},
    "imagenet_r": {"test": 30_000},
    "imagenet_sketch": {"test": 50_889},
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "mnist": {"train": 60_000, "test": 10_000},
    "caltech101": {"train": 3_060, "test": 6_084},
    "dtd": {"train": 1_880, "validation": 1_880, "test": 1_880},
    "oxford_flowers102": {"train": 1_020, "validation": 1_020, "test": 6_149},
    "oxford_iiit_pet": {"train": 3_680, "test": 3_669},
    "sun397/tfds": {"train": 76_128, "validation": 10_875, "test": 21_750},
    "svhn_cropped": {"train": 73_257, "test": 26_032},
    "patch_camelyon": {"train": 262_144, "validation": 32_768, "test": 32_768},
    "eurosat/rgb": {"train": 27_000},
    "resisc45": {"train": 31_500},
    "diabetic_retinopathy_detection/btgraham-300": {
        "train": 35_126,
        "validation": 10_906,
        "test": 42_670,
    },
    "clevr": {"train": 70_000, "validation": 15_000},
    "dmlab": {"train": 65_550, "validation": 22_628, "test": 22_735},
    "dsprites": {"train": 737_280},
    "kitti": {"train": 6_347, "validation": 423, "test": 711},
    "smallnorb": {"train": 24_300, "test": 24_300},
}

# Number of classes of each label that TFDS prepares, and of ImageNet-21k: NAME[/CONFIG] -> feature
# -> number.
CLASSES: dict[str, dict[str, int]] = {
    "imagenet2012": {"label": 1_000},
    "imagenet2012_real": {"original_label": 1_000},
    "imagenet_v2/matched-frequency": {"label": 1_000},
    "imagenet_v2/threshold-0.7": {"label": 1_000},
    "imagenet_v2/topimages": {"label": 1_000},
    "imagenet_a": {"label": 1_000},  # 200 of them have images; likewise for imagenet_r
    "imagenet_r": {"label": 1_000},
    "imagenet_sketch": {"label": 1_000},
    "imagenet21k/fall11": {"label": 21_841},
    "imagenet21k/winter21": {"label": 19_167},
    "cifar10": {"label": 10},
    "mnist": {"label": 10},
}
# Datasets above whose classes TFDS only counts; the others have a file of names.
WITHOUT_NAMES = ("mnist", "svhn_cropped", "patch_camelyon", "dmlab", "smallnorb")
WITHOUT_NAMES += ("diabetic_retinopathy_detection",)
for _part in robustness.parts("imagenet2012_corrupted/{corruption}_{severity}").values():
    SIZES[_part] = {"validation": 50_000}
    CLASSES[_part] = {"label": 1_000}
for _task in vtab.tasks():
    if _task.label_kind == "given":
        CLASSES.setdefault(_task.tfds_name, {})[_task.label_feature] = _task.classes
