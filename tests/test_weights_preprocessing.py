# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

import json
import sys

import hostile
import numpy as np
import peer_libraries
import pictures
import pytest
from PIL import Image

from vit_jax.data.numpy_ops import decode as numpy_decode
from vit_jax.data.ops import chain as preprocess
from vit_jax.errors import BadInput
from vit_jax.step.state import normalise
from vit_jax.weights import preprocessing

HALF = (0.5, 0.5, 0.5)
COLOURS = (0.48, 0.45, 0.4), (0.22, 0.23, 0.24)  # mean, std
# Wide, tall, square, tiny, one side as wanted, a line.
SIZES = [(61, 97), (97, 40), (48, 48), (5, 7), (50, 32), (1, 90)]


def chain(text: str, mean=HALF, std=HALF):
    return preprocessing.chain_reader(preprocess.parse("data.eval_ops", text, 0), mean, std)


READERS = {
    "chain": lambda: chain("decode|resize(8)"),
    "chain without decode": lambda: chain("resize(8)"),
    "original": lambda: preprocessing.original_reader(8, 8),
    "timm": lambda: preprocessing.timm_reader({"input_size": [3, 8, 8]}),
    "hf": lambda: preprocessing.hf_reader({"size": 8}),
}


@pytest.fixture(params=READERS)
def reader(request):
    return READERS[request.param]()


# Every reader does this.


def test_a_single_image_is_a_batch_of_one(reader, tmp_path):
    image = pictures.noise(11, 9)
    (tmp_path / "a.png").write_bytes(pictures.encode(image))
    found = reader(image)
    assert found.dtype == np.float32
    assert found.shape == (1, 8, 8, 3)
    others = pictures.encode(image), tmp_path / "a.png", str(tmp_path / "a.png"), image[None]
    for other in others:
        np.testing.assert_array_equal(reader(other), found)


def test_every_image_has_a_row(reader, tmp_path):
    images = [pictures.noise(11, 9, seed=1), pictures.noise(6, 14, seed=2)]
    (tmp_path / "b.png").write_bytes(pictures.encode(images[1]))
    rows = [reader(image)[0] for image in images]
    assert not np.array_equal(*rows)
    np.testing.assert_array_equal(reader(images), np.stack(rows))
    np.testing.assert_array_equal(
        reader((pictures.encode(images[0]), tmp_path / "b.png")), np.stack(rows)
    )


def test_an_array_is_a_batch(reader):
    images = np.stack([pictures.noise(11, 9, seed=i) for i in range(3)])
    np.testing.assert_array_equal(reader(images), reader(list(images)))


def test_grey_and_transparent_files_become_rgb(reader):
    for channels in (1, 4):
        image = pictures.noise(11, 9, channels)
        rgb = np.repeat(image, 3, axis=-1) if channels == 1 else image[..., :3]
        np.testing.assert_array_equal(reader(pictures.encode(image)), reader(rgb))


@pytest.mark.parametrize(
    "images, said",
    [
        ([], "no images"),
        (np.zeros([0, 4, 4, 3], np.uint8), "no images"),
        (np.zeros([4, 4], np.uint8), r"image 0 is uint8 \[4, 4\]"),
        (np.zeros([4, 4, 1], np.uint8), r"image 0 is uint8 \[4, 4, 1\]"),
        (np.zeros([0, 4, 3], np.uint8), r"image 0 is uint8 \[0, 4, 3\]"),
        (np.zeros([2, 4, 4, 3], np.float32), r"image 0 is float32 \[4, 4, 3\]"),
        ([np.zeros([4, 4, 3], np.uint8), np.zeros([1, 4, 4, 3], np.uint8)], "image 1 is uint8"),
        ([np.zeros([4, 4, 3], np.uint8), None], "image 1 is NoneType"),
        (None, "images are NoneType"),
        ("no/such.png", r"'no/such\.png' cannot be read: .*No such file"),
        (["\0.png"], "cannot be read"),
    ],
)
def test_what_is_no_image_is_refused(reader, images, said):
    with pytest.raises(BadInput, match=f"{said}.*expected the path or the bytes"):
        reader(images)


@pytest.mark.parametrize("damage", [b"", b"no image", pictures.encode(pictures.noise(9, 9))[:150]])
def test_a_damaged_image_is_named(reader, tmp_path, damage):
    whole = pictures.encode(pictures.noise(9, 9))
    (tmp_path / "bad.png").write_bytes(damage)
    with pytest.raises(BadInput, match=r"image .*bad\.png .*(decode|go through)"):
        reader([whole, tmp_path / "bad.png"])
    with pytest.raises(BadInput, match=r"image 1 (?!.*(\{\{|\[Op:|<)).*(decode|go through)"):
        reader([whole, damage])


@pytest.mark.timeout(120)
def test_what_is_no_file_is_not_read(tmp_path):
    """A pipe would wait for ever, and some devices never end."""
    for path in hostile.no_files(tmp_path):
        with pytest.raises(BadInput, match=rf"image '{path}' cannot be read: .* not a file"):
            preprocessing.original_reader(8, 8)(path)


@pytest.mark.parametrize(
    "made",
    [
        lambda: chain("decode"),
        lambda: preprocessing.hf_reader({"do_resize": False}),
        lambda: preprocessing.hf_reader({"size": {"shortest_edge": 8}}),
    ],
)
def test_images_that_keep_their_sizes_need_one_size(made):
    reader = made()
    assert reader(pictures.noise(8, 10)).shape == (1, 8, 10, 3)
    with pytest.raises(BadInput, match=r"\(8, 10, 3\) and \(8, 12, 3\)"):
        reader([pictures.noise(8, 10), pictures.noise(8, 12)])


# A run's own chain.


@pytest.mark.parametrize(
    "text",
    [
        "decode|resize(4)",
        "decode|resize_small(8)|central_crop(4)",
        "decode|shift(1)|resize(4)",
        "shift(3)|resize(4)",
    ],
)
def test_a_chain_gives_what_a_run_evaluates(text):
    batch = next(pictures.batches(pictures.split(1, size=13), text, batch_size=1).evaluation())
    expected = np.asarray(normalise(batch["image"], *COLOURS))
    found = chain(text, *COLOURS)(pictures.noise(13, 13, seed=0))
    np.testing.assert_array_equal(found, expected)


def test_a_chain_divides_by_255_then_normalises():
    image = pictures.noise(4, 4)
    mean, std = COLOURS
    expected = (image / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(chain("decode", mean, std)(image)[0], expected, atol=2e-6)


def test_an_image_too_small_for_the_chain_is_named():
    with pytest.raises(BadInput, match=r"image 1 does not go through Decode\|CentralCrop: "):
        chain("decode|central_crop(6)")([pictures.noise(6, 6), pictures.noise(5, 6)])


# The published .npz files.


def test_a_library_that_is_not_installed_is_no_fault_of_the_image(monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    monkeypatch.setattr(numpy_decode, "_simplejpeg", numpy_decode._simplejpeg.__wrapped__)
    ops = preprocess.parse("data.eval_ops", "decode|resize(8)", 0)
    read = preprocessing.chain_reader(ops, HALF, HALF, "python")
    with pytest.raises(BadInput, match=r"^data.reader=python .*; pip install simplejpeg\.$"):
        read(pictures.encode(pictures.noise(9, 9, seed=1), "JPEG"))


def test_the_original_resize_is_bilinear_without_antialias_or_rounding():
    image = pictures.noise(31, 22)
    rows, columns = ((np.arange(n) + 0.5) * side / n - 0.5 for n, side in ((8, 31), (6, 22)))
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    down, right = (rows - top)[:, None, None], (columns - left)[None, :, None]
    at = image.astype(np.float64)
    above = at[top][:, left] * (1 - right) + at[top][:, left + 1] * right
    below = at[top + 1][:, left] * (1 - right) + at[top + 1][:, left + 1] * right
    expected = (above * (1 - down) + below * down - 127.5) / 127.5
    found = preprocessing.original_reader(8, 6)(image)
    assert found.shape == (1, 8, 6, 3)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_the_original_keeps_an_image_of_its_size():
    image = np.zeros([8, 8, 3], np.uint8)
    image[..., 1], image[..., 2] = 255, 51
    found = preprocessing.original_reader(8, 8)(image)
    np.testing.assert_array_equal(found, np.broadcast_to(np.float32([-1, 1, -0.6]), found.shape))


# timm.


def timm_transform(**cfg):
    data = peer_libraries.load("timm.data")
    return data.create_transform(**data.resolve_data_config({}, pretrained_cfg=cfg))


@pytest.mark.parametrize(
    "cfg",
    [
        {"num_classes": 10},
        {"input_size": [3, 32, 32], "crop_pct": 0.9, "mean": HALF, "std": HALF},
        {"input_size": [3, 32, 32], "crop_pct": 1.0, "interpolation": "bilinear"},
        {"input_size": [3, 33, 33], "crop_pct": 0.95, "interpolation": "nearest"},
        {"input_size": [3, 32, 32], "crop_pct": 1.1, "interpolation": "lanczos"},
        {"input_size": [3, 32, 32], "crop_pct": 1.35, "interpolation": "hamming"},
        {"input_size": [3, 32, 45], "crop_pct": 0.875, "interpolation": "box"},
        {"input_size": [3, 32, 32], "crop_pct": 1.0, "crop_mode": "squash"},
        {"input_size": [3, 32, 45], "crop_pct": 0.9, "crop_mode": "squash"},
        {"input_size": [3, 32, 45], "crop_pct": 0.9, "crop_mode": "border"},
        {
            "input_size": [3, 33, 32],
            "crop_pct": 1.1,
            "crop_mode": "border",
            "mean": (0.3, 0.5, 0.7),
        },
    ],
    ids=str,
)
def test_timm_sees_the_same(cfg):
    transform, reader = timm_transform(**cfg), preprocessing.timm_reader(cfg)
    for height, width in SIZES:
        if 1 in (height, width) and cfg.get("crop_mode") == "border":
            continue  # timm fails
        image = pictures.noise(height, width)
        expected = transform(Image.fromarray(image)).numpy().transpose(1, 2, 0)
        np.testing.assert_array_equal(reader(image)[0], expected, str((height, width)))


def test_timm_sees_the_same_in_a_file(tmp_path):
    (tmp_path / "a.jpg").write_bytes(pictures.encode(pictures.noise(40, 61), "JPEG"))
    cfg = {"crop_pct": 0.9}
    expected = timm_transform(**cfg)(Image.open(tmp_path / "a.jpg").convert("RGB"))
    found = preprocessing.timm_reader(cfg)(tmp_path / "a.jpg")
    np.testing.assert_array_equal(found[0], expected.numpy().transpose(1, 2, 0))


def test_a_line_of_pixels_gets_borders():
    found = preprocessing.timm_reader(
        {"input_size": (3, 8, 8), "crop_mode": "border", "crop_pct": 1.0}
    )(np.full([1, 90, 3], 255, np.uint8))
    assert (found[0, :, 0, 0] > 1).sum() == 1  # one white row, seven in the mean colour
    assert (np.abs(found) < 0.01).mean() == 7 / 8


@pytest.mark.parametrize(
    "cfg, said",
    [
        ({"input_size": [1, 28, 28]}, r"input_size=\[1, 28, 28\]; expected \[3, height, width\]"),
        ({"input_size": [3, 224]}, "input_size"),
        ({"input_size": 224}, "input_size"),
        ({"input_size": [3, 0, 224]}, "input_size"),
        ({"input_size": [3, 224.0, 224]}, "input_size"),
        ({"interpolation": "random"}, "interpolation='random'; expected one of nearest"),
        ({"crop_pct": 0}, "crop_pct"),
        ({"crop_pct": "0.9"}, "crop_pct"),
        ({"crop_mode": "middle"}, "crop_mode='middle'; expected center"),
        ({"mean": [0.5]}, "mean"),
        ({"mean": 0.5}, "mean"),
        ({"std": [0.5, 0, 0.5]}, "std"),
        ({"std": [0.5, True, 0.5]}, "std"),
    ],
)
def test_a_timm_configuration_that_cannot_be_followed(cfg, said):
    with pytest.raises(BadInput, match=f"pretrained_cfg: {said}"):
        preprocessing.timm_reader(cfg)


def test_null_and_other_keys_of_timm_do_not_matter():
    cfg = {"crop_mode": None, "mean": None, "num_classes": 5, "test_input_size": [3, 9, 9]}
    image = pictures.noise(30, 40)
    np.testing.assert_array_equal(
        preprocessing.timm_reader(cfg)(image), preprocessing.timm_reader({})(image)
    )


# Hugging Face.


def hf_sees(config: dict, image: np.ndarray) -> np.ndarray:
    deit = "DeiT" in str(config)
    name = "deit" if deit else "vit"
    module = peer_libraries.load(f"transformers.models.{name}.image_processing_pil_{name}")
    processor = (module.DeiTImageProcessorPil if deit else module.ViTImageProcessorPil)(**config)
    return processor(Image.fromarray(image))["pixel_values"][0].transpose(1, 2, 0)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"size": {"height": 32, "width": 40}, "resample": 3, "image_mean": [0.4, 0.5, 0.6]},
        {"size": 32, "resample": 0, "do_normalize": False},
        {"size": [32, 40], "resample": 1, "image_std": [0.2, 0.3, 0.4], "do_center_crop": None},
        {"size": {"shortest_edge": 37}, "do_center_crop": True, "crop_size": 32, "resample": 4},
        {"do_center_crop": True, "crop_size": {"height": 32, "width": 230}, "resample": 5},
        {"size": 32, "do_rescale": False},
        {"size": 32, "do_rescale": False, "do_normalize": False},
        {"size": 32, "rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
        {"do_resize": False, "do_center_crop": True, "crop_size": 31},
        {"do_resize": None, "do_normalize": None},
        {"size": 32, "do_rescale": None, "do_pad": False, "pad_size": None},
        {"size": 32, "image_processor_type": "ViTImageProcessor", "processor_class": "Any"},
        {"size": 32, "do_convert_rgb": True, "data_format": "channels_first", "device": None},
        {"image_processor_type": "DeiTImageProcessor"},
        {"feature_extractor_type": "DeiTFeatureExtractor", "size": 37, "crop_size": 32},
        {"feature_extractor_type": "DeiTFeatureExtractor", "do_center_crop": None, "size": 32},
    ],
    ids=str,
)
def test_hugging_face_sees_the_same(config):
    reader = preprocessing.hf_reader(config)
    for height, width in SIZES:
        image = pictures.noise(height, width)
        expected = hf_sees(config, image)
        np.testing.assert_array_equal(reader(image)[0], expected, str((height, width)))


@pytest.mark.parametrize(
    "kind, config, gap",
    [
        ("Bit", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}, 0.02),
        ("CLIP", {"size": 32, "crop_size": 32}, 0.02),
        ("Siglip", {"size": {"height": 32, "width": 32}}, 0.01),
        ("DINOv3ViT", {"size": {"height": 32, "width": 32}}, 2e-6),
    ],
)
def test_processors_of_other_families_see_the_same(kind, config, gap):
    """They resize tensors of uint8, which rounds some pixels to the next level; DINOv3's floats."""
    transformers = peer_libraries.load("transformers")
    processor = getattr(transformers, f"{kind}ImageProcessor")(**config)
    image = pictures.noise(60, 47)
    expected = processor(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
    have = preprocessing.hf_reader(json.loads(processor.to_json_string()))(image)[0]
    np.testing.assert_allclose(have, expected.transpose(1, 2, 0), atol=gap)


def test_a_number_is_the_shorter_side_for_clip():
    config = {"size": 20, "do_center_crop": False, "image_processor_type": "CLIPImageProcessor"}
    assert preprocessing.hf_reader(config)(pictures.noise(40, 60)).shape == (1, 20, 30, 3)


def test_dinov3_resizes_without_rounding():
    image = np.zeros((1, 2, 3), np.uint8)
    image[0, 1] = 1
    config = {
        "image_processor_type": "DINOv3ViTImageProcessorFast", "do_normalize": False,
        "size": {"height": 1, "width": 4},
    }  # fmt: skip
    row = preprocessing.hf_reader(config)(image)[0, 0, :, 0] * 255
    np.testing.assert_allclose(row, [0, 0.25, 0.75, 1], atol=1e-6)


@pytest.mark.parametrize(
    "config, said",
    [
        (
            {"image_processor_type": "LevitImageProcessor"},
            "image_processor_type='LevitImageProcessor'",
        ),
        ({"feature_extractor_type": "LevitFeatureExtractor"}, "feature_extractor_type="),
        ({"do_pad": True}, "do_pad=True is not known"),
        ({"do_reduce_labels": True}, "do_reduce_labels"),
        ({"size_divisor": 32}, "size_divisor"),
        ({"size": {"shortest_edge": 8, "longest_edge": 9}}, "size="),
        ({"size": {"longest_edge": 9}}, "size="),
        ({"size": {"height": 8}}, "size="),
        ({"size": {"height": 8, "width": -8}}, "size="),
        ({"size": "224"}, "size='224'"),
        ({"crop_size": {"shortest_edge": 8}}, "crop_size="),
        ({"resample": 6}, "resample=6; expected a number from 0 to 5"),
        ({"resample": "bilinear"}, "resample="),
        ({"do_resize": "false"}, "do_resize='false'; expected true or false"),
        ({"do_center_crop": 1}, "do_center_crop"),
        ({"do_rescale": 0}, "do_rescale"),
        ({"rescale_factor": "1/255"}, "rescale_factor"),
        ({"do_normalize": []}, "do_normalize"),
        ({"image_mean": [0.5]}, "image_mean"),
        ({"image_std": [0, 1, 1]}, "image_std"),
    ],
)
def test_a_hugging_face_configuration_that_cannot_be_followed(config, said):
    with pytest.raises(BadInput, match=f"preprocessor_config: {said}"):
        preprocessing.hf_reader(config)


def test_readers_of_other_libraries_need_no_tensorflow(monkeypatch):
    monkeypatch.setattr(preprocessing, "tf", None)
    for made in (preprocessing.timm_reader({}), preprocessing.hf_reader({})):
        assert made(pictures.encode(pictures.noise(9, 9))).shape == (1, 224, 224, 3)
