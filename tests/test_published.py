# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

import json
import re
import urllib.parse

import pytest

from vit_jax.models import published
from vit_jax.models.published import CHECKPOINTS, url

NAMES = [name for names in CHECKPOINTS.values() for name in names]
PRETRAINED = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"


@pytest.fixture(scope="module")
def tables(data_dir) -> dict:
    path = data_dir.parent / "paper" / "upstream_checkpoint_tables.json"
    if not path.is_file():
        pytest.skip(f"no tables of published checkpoints: {path}")
    return json.loads(path.read_text())


def path_in_bucket(address: str) -> tuple[str, str]:
    host, bucket, path = re.fullmatch(r"(https://[^/]+)/(\w+)/(.+)", address).groups()
    assert host == published.HOST
    return bucket, urllib.parse.unquote(path)


def test_every_listed_name_has_a_url_that_ends_in_it():
    assert len(NAMES) == len(set(NAMES)) > 70
    assert {path_in_bucket(url(name))[1] for name in NAMES} == set(NAMES)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("imagenet21k/ViT-B_16.npz", "vit_models/imagenet21k/ViT-B_16.npz"),
        ("imagenet21k/Mixer-B_16.npz", "mixer_models/imagenet21k/Mixer-B_16.npz"),
        ("sam/ViT-B_32.npz", "vit_models/sam/ViT-B_32.npz"),
        ("sam/Mixer-B_32.npz", "mixer_models/sam/Mixer-B_32.npz"),
        (
            "imagenet21k+imagenet2012/R50+ViT-B_16.npz",
            "vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
        ),
        (f"{PRETRAINED}.npz", f"vit_models/{PRETRAINED}.npz"),
        ("BiT-M-R50x1.npz", "bit_models/BiT-M-R50x1.npz"),
        ("distill/R152x2_T_384.npz", "bit_models/distill/R152x2_T_384.npz"),
    ],
)
def test_the_file_name_decides_the_bucket(name, expected):
    assert url(name) == f"{published.HOST}/{expected}"


def test_a_variant_and_its_files_name_the_same_model():
    for variant, names in CHECKPOINTS.items():
        assert re.fullmatch(r"((R(26|50)?\+)?(Ti|S|B|L|H)|Mixer-[SBL])/\d+|BiT-R\d+x\d", variant)
        letters = set(re.findall(r"\w+", variant.removeprefix("BiT-")))
        for name in names:
            assert letters <= set(re.split(r"[-_+/.]", name)), (variant, name)


@pytest.mark.parametrize(
    "variant, name",
    [
        ("B/16", "imagenet21k+imagenet2012/ViT-B_16-224.npz"),
        ("R50+B/16", "imagenet21k/R50+ViT-B_16.npz"),
        (
            "R26+S/32",
            "augreg/R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        ("R+Ti/16", "augreg/R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0.npz"),
        ("Mixer-B/16", "imagenet1k/Mixer-B_16.npz"),
        ("BiT-R50x1", "BiT-M-R50x1-ILSVRC2012.npz"),
        ("BiT-R50x1", "distill/R50x1_224.npz"),
    ],
)
def test_files_stand_under_their_variant(variant, name):
    assert name in CHECKPOINTS[variant]


def test_the_listed_folders_are_those_of_the_tables(tables):
    expected = {
        f"{folder.removeprefix('gs://')}{stem}.npz"
        for folder, stems in tables["checkpoint_files"]["buckets"].items()
        for stem in stems
    }
    listed = {"/".join(path_in_bucket(url(name))) for name in NAMES}
    others = [x for x in listed if not re.match("bit_models|vit_models/augreg", x)]
    assert set(others) == expected


def test_the_listed_augreg_files_are_the_recommended_ones(tables):
    found = tables["augreg_recommended"]
    rows = [*found["rows"], *found["extra"]]
    assert len(rows) == 10
    for row in rows:
        if "pretrained" in row:
            names = [f"augreg/{row[key]}.npz" for key in ("pretrained", "finetuned")]
        else:
            keys = ("pretrained_checkpoint", "finetuned_checkpoint")
            names = [row[key].removeprefix("gs://vit_models/") for key in keys]
        listed = [name for name in CHECKPOINTS[row["model"]] if name.startswith("augreg/")]
        assert listed == names


def test_every_adaptation_of_the_tables_is_in_the_scheme(tables):
    steps = {500: "0k", 2500: "2k", 10000: "10k", 20000: "20k"}
    names = [
        f"{PRETRAINED}--{data}-steps_{steps[n]}-lr_{lr}-res_{side}.npz"
        for data, grid in tables["naming_scheme"]["augreg_adapt_grid"].items()
        for n in grid["steps"]
        for lr in grid["lr"]
        for side in (224, 384)
    ]
    assert len(names) == tables["naming_scheme"]["augreg_adaptations_per_pretrained_checkpoint"]
    assert all(url(name) for name in names)


def test_the_scheme_has_as_many_pretrainings_as_were_published(tables):
    values = tables["naming_scheme"]["augreg_values"]
    names = [
        f"augreg/{model}-{data}ep-lr_0.001-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}.npz"
        for model in values["MODEL"]
        for data in ("i1k-300", "i21k-300", "i21k-30")
        for aug in values["AUG"]
        for wd in values["WD"]
        for do in values["DO"]
        for sd in values["SD"]
    ]
    known = [name for name in names if url(name) and "/B_8-" not in name]
    assert len(known) + 3 == tables["naming_scheme"]["index"]["pretrained_checkpoints"]


@pytest.mark.parametrize(
    "name",
    [
        "BiT-S-R50x1.npz",
        "BiT-M-R101x3-ILSVRC2012.npz",
        "vtab/BiT-M-R152x4-run2-smallnorb-azimuth.npz",
        "vtab/BiT-M-R50x1-run0-caltech101.npz",
    ],
)
def test_files_of_the_bit_scheme(name):
    assert path_in_bucket(url(name)) == ("bit_models", name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "imagenet21k/ViT-B_16",
        "imagenet21k/ViT-B_17.npz",
        "imagenet1k/ViT-B_16.npz",
        "vit_models/imagenet21k/ViT-B_16.npz",
        "./imagenet21k/ViT-B_16.npz",
        PRETRAINED,
        f"{PRETRAINED}.npz.npz",
        f"x{PRETRAINED}.npz",
        PRETRAINED.replace("medium1", "medium3") + ".npz",
        PRETRAINED.replace("i21k-300", "i1k-30") + ".npz",
        PRETRAINED.replace("sd_0.0", "sd_0.1") + ".npz",
        PRETRAINED.replace("0.001", "0x001") + ".npz",
        f"{PRETRAINED}--imagenet2012-steps_10k-lr_0.03-res_384.npz",
        f"{PRETRAINED}--imagenet2012-steps_20k-lr_0.001-res_384.npz",
        f"{PRETRAINED}--cifar10-steps_10k-lr_0.03-res_384.npz",
        f"{PRETRAINED}--cifar100-steps_10k-lr_0.03-res_512.npz",
        "BiT-L-R50x1.npz",
        "BiT-M-R50x2.npz",
        "BiT-S-R50x1-ILSVRC2012.npz",
        "vtab/BiT-S-R50x1-run0-dtd.npz",
        "vtab/BiT-M-R50x1-run3-dtd.npz",
    ],
)
def test_near_misses_are_not_names(name):
    assert url(name) is None
