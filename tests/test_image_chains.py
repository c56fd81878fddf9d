# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Chains of ops that prepare images as weights expect, against the libraries' own preparation."""

import io
import json

import numpy as np
import pictures
import pytest
from PIL import Image
from test_encoder_goldens import written

from vit_jax.build import defaults
from vit_jax.config import load as config_lib
from vit_jax.data.numpy_ops import chain as numpy_chain
from vit_jax.data.ops import chain as preprocess
from vit_jax.weights import image_chains, preprocessing

# Sides and crops that are whole numbers: libraries round halves of pixels differently.
PHOTO = pictures.smooth(128, 256)
SIDE = {"height": 72, "width": 72}


def file():
    out = io.BytesIO()
    Image.fromarray(PHOTO).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    "given, evaluation",
    [
        ({"interpolation": "bicubic", "crop_pct": 0.9},
         "resize_small({size*10//9}, cubic=True)|central_crop({size})"),
        ({"interpolation": "bilinear"},
         "resize_small({size*8//7}, antialias=True)|central_crop({size})"),
        ({"crop_pct": 1.0}, "resize_small({size}, cubic=True)|central_crop({size})"),
        ({"crop_pct": 1.0, "crop_mode": "squash"}, "resize({size}, cubic=True)"),
        ({"crop_pct": 0.8, "crop_mode": "squash"},
         "resize({size*5//4}, cubic=True)|central_crop({size})"),
    ],
)  # fmt: skip
def test_chains_of_timm_prepare_images_as_it_does(given, evaluation):
    given = given | {"input_size": (3, 72, 72), "mean": (0.0,) * 3, "std": (1.0,) * 3}
    chains = image_chains.of("timm", given)
    assert chains.evaluation == f"decode(exif=True)|{evaluation}"
    wanted = preprocessing.timm_reader(given)(file())[0] * 255
    assert np.abs(prepared(chains) - wanted).max() <= 1.01


@pytest.mark.parametrize(
    "given, evaluation",
    [
        ({"resample": 3, "size": SIDE}, "resize({size}, cubic=True)"),
        ({"size": SIDE}, "resize({size}, antialias=True)"),
        ({"resample": 3, "size": {"shortest_edge": 90}, "do_center_crop": True, "crop_size": SIDE},
         "resize_small({size*5//4}, cubic=True)|central_crop({size})"),
        ({"resample": 3, "size": {"height": 90, "width": 90}, "do_center_crop": True,
          "crop_size": SIDE}, "resize({size*5//4}, cubic=True)|central_crop({size})"),
    ],
)  # fmt: skip
def test_chains_of_transformers_prepare_images_as_its_processors_do(given, evaluation):
    chains = image_chains.of("hf", given | {"image_mean": [0.0] * 3, "image_std": [1.0] * 3})
    assert chains.evaluation == f"decode(exif=True)|{evaluation}"
    told = given | {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    wanted = preprocessing.hf_reader(told)(file())[0] * 255
    assert np.abs(prepared(chains) - wanted).max() <= 1.01


def prepared(chains):
    ops = preprocess.parse("data.eval_ops", chains.evaluation, 72)
    return numpy_chain.apply_to_fields(ops, {"image": file()}, (0, 0))["image"].astype(float)


@pytest.mark.parametrize(
    "kind, part", [("bicubic", ", cubic=True)"), ("bilinear", "area_min=0.3)")]
)
def test_training_crops_have_the_filter_of_the_weights(kind, part):
    train = image_chains.of("timm", {"interpolation": kind}).train
    assert part in train
    preprocess.parse("data.train_ops", train, 32)


@pytest.mark.parametrize(
    "form, given, said",
    [
        ("npz", {}, ""),
        ("timm", {}, ""),
        ("run", {"ops": "decode|resize(9)"}, ""),
        ("run", {"ops": "decode(exif=True)|naflex({size}, 8)"}, ""),
        ("hf", {"image_processor_type": "OtherImageProcessor"}, "Preprocess the images yourself"),
    ],
)
def test_weights_without_a_chain_have_that_of_the_paper(form, given, said, caplog):
    with caplog.at_level("INFO", "vit_jax"):
        assert image_chains.of(form, given) == image_chains.PLAIN
    assert said in caplog.text


@pytest.mark.parametrize("side, before", [(384, 448), (224, 256)])
def test_augregs_fine_tuned_files_keep_the_centre(side, before):
    name = "augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
    assert image_chains.of_augreg(f"{name}.npz") == {}
    images = image_chains.of_augreg(f"{name}--imagenet2012-steps_20k-lr_0.03-res_{side}.npz")
    chains = image_chains.of("npz", images)
    resize, crop = preprocess.parse("data.eval_ops", chains.evaluation, (side, side))[1:]
    assert (resize.size, crop.size) == (before, side)
    assert chains.train == image_chains.PLAIN.train


def test_another_filter_keeps_the_crop_and_is_said(caplog):
    with caplog.at_level("INFO", "vit_jax"):
        chains = image_chains.of("timm", {"interpolation": "lanczos", "crop_pct": 0.9})
    assert "no op resizes by lanczos" in caplog.text
    assert chains.evaluation == (
        "decode(exif=True)|resize_small({size*10//9}, antialias=True)|central_crop({size})"
    )


def test_a_run_that_begins_with_a_tuned_one_has_its_chains_again():
    first = image_chains.of("timm", {"interpolation": "bicubic", "crop_pct": 0.9})
    assert image_chains.of("run", {"ops": first.evaluation}) == first
    assert image_chains.of("run", {"ops": image_chains.PLAIN.evaluation}) == image_chains.PLAIN


def settled(root, path, *more):
    """The chains of the fine-tuning recipe with a file as `init`, and the configuration."""
    given = [f"--config.init={path}", "--config.data.source=digits", *more]
    opened = config_lib.load(str(root / "configs" / "finetune.py"), given)
    config = defaults.settle(opened)
    return opened, config, image_chains.Chains(config.data.train_ops, config.data.eval_ops)


def test_fine_tuning_takes_the_chains_of_the_file_at_any_size(tmp_path, root):
    path = written(tmp_path, "dinov2")
    sizes = {"size": {"shortest_edge": 18}, "crop_size": {"height": 16, "width": 16}}
    told = {"resample": 3, "do_center_crop": True, **sizes}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    chains = settled(root, path, "--config.data.image_size=32")[2]
    assert chains.evaluation == (
        "decode(exif=True)|resize_small({size*9//8}, cubic=True)|central_crop({size})"
    )
    assert "cubic=True" in chains.train
    own = settled(root, path, "--config.data.train_ops=decode|resize({size})")[2]
    assert own == (image_chains.Chains("decode|resize({size})", chains.evaluation))


def test_a_run_of_before_keeps_its_chains(tmp_path, root):
    path = written(tmp_path, "timm dinov2")
    opened, config, _ = settled(root, path)
    assert "cubic" in config.data.eval_ops
    old = {"data.train_ops": "decode|flip_lr", "data.eval_ops": "decode|resize({size})"}
    again = defaults.take_from_run(opened, config_lib.changed(config, old))
    assert (again.data.train_ops, again.data.eval_ops) == tuple(old.values())
