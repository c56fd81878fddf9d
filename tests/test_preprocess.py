# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Chains: what is understood, what every mistake says, and what each fixed op does to pixels."""

import io

import numpy as np
import pictures
import pytest
from PIL import Image

from vit_jax.data.ops import augment, randaugment, resize
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

# --- chains ---


KEY = "data.train_ops"


def run(chain, image, size=8, seed=0):
    """The result of a chain on uint8 [H, W, C] or bytes, in a graph that does not know the size."""
    known = [] if isinstance(image, bytes) else [None, None, image.shape[-1]]
    kind = tf.string if isinstance(image, bytes) else tf.uint8
    process = preprocess.apply(preprocess.parse(KEY, chain, size))
    specs = [tf.TensorSpec(known, kind), tf.TensorSpec([2], tf.int64)]
    graph = tf.function(process, input_signature=specs)
    out = graph(tf.constant(image), tf.constant([seed, 0], tf.int64))
    assert out.dtype == tf.uint8
    return out.numpy()


# ---------------------------------------------------------------- reading a chain


@pytest.mark.parametrize(
    "chain, ops",
    [
        ("decode", (preprocess.Decode(),)),
        ("decode()", (preprocess.Decode(),)),
        (" decode | flip_lr() ", (preprocess.Decode(), augment.FlipLr())),
        ("resize(224)", (resize.Resize(224),)),
        ("resize(size=224)", (resize.Resize(224),)),
        ("resize({size})", (resize.Resize(32),)),
        ("resize({size*8//7})", (resize.Resize(36),)),
        ("resize({size*7//6}, True)", (resize.Resize(37, True),)),
        ("randaug(2, 15)", (randaugment.RandAugment(2, 15.0),)),
        ("resize(size={size}, antialias=True)", (resize.Resize(32, True),)),
        ("resize( 7 , True )", (resize.Resize(7, True),)),
        ("inception_crop({size}, area_min=0.1)", (augment.InceptionCrop(32, 0.1),)),
        ("affine(10)", (augment.Affine(10.0),)),
        ("affine(shift=1.5, degrees=3)", (augment.Affine(3.0, 0.0, 1.5),)),
        ("shift(0)", (augment.Shift(0),)),
        (
            "resize_small(256)|central_crop({size})|random_crop(8)",
            (resize.ResizeSmall(256), resize.CentralCrop(32), augment.RandomCrop(8)),
        ),
    ],
)
def test_chain_is_read(chain, ops):
    assert preprocess.parse(KEY, chain, 32) == ops


ALL_OPS = (
    "decode, resize, resize_small, central_crop, resize_inside, pad, naflex, scale_jitter, "
    "random_crop, inception_crop, "
    "fast_inception_crop, flip_lr, shift, affine, bv_resize, bv_resize_small, randaug, "
    "color_jitter, three_augment, random_erasing, grayscale, gaussian_blur, solarize"
)


@pytest.mark.parametrize(
    "chain",
    [
        "", "|", "decode|", "|decode", "decode||flip_lr", " ", "1+1", "224", "'decode'", "None",
        "resize(", "resize(size=)", "resize(8", "resize 8", "resize[8]", "resize(8).x",
        "resize(8)(8)", "os.system('x')", "decode;decode", "decode, flip_lr", "decode and flip_lr",
        "not decode", "lambda: decode", "(lambda: 0)()", "[decode for decode in (1,)]",
        "x := decode", "resize({size}", "{size}", "{sise}", "resize({size*2})", "resize({size//2})",
        "resize({size*2//0})", "resize({size * 8 // 7})", "resize(resize(8))", "resize(8*8)",
        "resize(x)", "resize(*[8])", "resize(f'8')", "resize(__import__('os').getpid())", "\0",
        "(" * 5000, "-" * 5000 + "1", "resize(8)\nimport os",
    ],
)  # fmt: skip
def test_what_is_no_chain_says_how_to_write_one(chain):
    with pytest.raises(BadInput) as caught:
        preprocess.parse(KEY, chain, 32)
    parts = (KEY, "decode|resize(224)|flip_lr", ALL_OPS)
    assert [p for p in parts if p not in str(caught.value)] == []


@pytest.mark.parametrize(
    "chain, parts",
    [
        ("flip", ["'flip'", "Did you mean 'flip_lr'"]),
        ("decode|resise(8)", ["'resise'", "Did you mean 'resize'"]),
        ("Decode", ["'Decode'", "'decode'"]),
        ("__import__('os')", ["'__import__'", ALL_OPS]),
        ("exec('x')", ["'exec'", ALL_OPS]),
        ("parse('a', 'b', 3)", ["'parse'", "Did you mean"]),
        ("resize", ["'resize'", "size", "resize(size: int"]),
        ("resize()", ["'resize()'", "size"]),
        (
            "resize(8, True, True, 9)",
            ["too many", "resize(size: int | tuple[int, int], antialias: bool"],
        ),
        ("resize(width=8)", ["width", "resize(size: int"]),
        ("resize(8, size=9)", ["size"]),
        ("decode(3)", ["'decode(3)'", "exif=3", "bool"]),
        ("decode(True, 3)", ["'decode(True, 3)'", "too many"]),
        ("fast_inception_crop(8)", ["decode|fast_inception_crop(8)"]),
        ("decode|flip_lr|fast_inception_crop(8)", ["decode|fast_inception_crop(8)"]),
        ("flip_lr(p=0.5)", ["'p'", "flip_lr()"]),
        ("resize('8')", ["size='8'", "int"]),
        ("resize(8.0)", ["size=8.0", "int"]),
        ("resize(None)", ["size=None", "int"]),
        ("resize(True)", ["size=True", "int"]),
        ("resize(8, antialias=1)", ["antialias=1", "bool"]),
        ("resize((8, 8, 8))", ["size=(8, 8, 8)", "int"]),
        ("resize((8, True))", ["size=(8, True)", "int"]),
        ("resize((8, 0))", ["size=(8, 0)", "1 to 65535"]),
        ("affine((8, 8))", ["degrees=(8, 8)", "float"]),
        ("affine('10')", ["degrees='10'", "float"]),
        ("affine(False)", ["degrees=False", "float"]),
        ("resize(-8)", ["size=-8"]),
        ("shift(-1)", ["pixels=-1"]),
        ("random_crop(-1)", ["size=-1"]),
        ("affine(-10)", ["degrees=-10"]),
        ("affine(scale=-0.1)", ["scale=-0.1"]),
        ("resize(0)", ["size=0"]),
        ("resize_small(0)", ["size=0"]),
        ("inception_crop(8, area_min=2.0)", ["area_min=2.0"]),
        ("inception_crop(8, area_min=0.0)", ["area_min=0.0"]),
        ("resize(99999999999999999999)", ["size=99999999999999999999"]),
        ("affine(1e999)", ["degrees"]),
        ("resize(size=8, size=9)", ["size"]),
        ("resize(**{'size': 8})", ["resize(**{'size': 8})"]),
    ],
)
def test_wrong_op_names_what_it_takes(chain, parts):
    with pytest.raises(BadInput) as caught:
        preprocess.parse(KEY, chain, 32)
    assert [p for p in (KEY, *parts) if p not in str(caught.value)] == []


@pytest.mark.integration
@pytest.mark.parametrize("exact", [True, False])
def test_rows_and_columns_may_differ(exact):
    chain = "resize({size})|central_crop({size})" if exact else "resize_small({size*8//7})"
    ops = preprocess.parse(KEY, chain, (8, 14))
    assert ops == preprocess.parse(KEY, chain.replace("{size}", "(8, 14)").replace(
        "{size*8//7}", "(9, 16)"), 1)  # fmt: skip
    assert preprocess.parse(KEY, chain, (8, 8)) == preprocess.parse(KEY, chain, 8)
    image = pictures.smooth(20, 30)
    got = run(chain, image, (8, 14))
    assert got.shape == ((8, 14, 3) if exact else (11, 16, 3))
    wanted = Image.fromarray(image).resize(got.shape[1::-1], Image.Resampling.BILINEAR)
    assert abs(got.astype(int) - np.asarray(wanted)).max() <= 4
    for crop in ("inception_crop", "fast_inception_crop", "random_crop", "bv_resize"):
        box = run(f"decode|{crop}({{size}})", pictures.encode(image, "JPEG"), (8, 14))
        assert box.shape == (8, 14, 3)


def test_ops_are_all_listed_and_described():
    assert ", ".join(preprocess.OPS) == ALL_OPS
    assert all(op.__doc__ and len(op.__doc__) > 20 for op in preprocess.OPS.values())


# ---------------------------------------------------------------- decode


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "JPEG"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_decode_agrees_with_pillow(kind, mode):
    picture = Image.fromarray(pictures.smooth(21, 34)).convert(mode)
    out = io.BytesIO()
    picture.save(out, kind, **({"quality": 95} if kind == "JPEG" else {}))
    wanted = np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB")).astype(int)
    got = run("decode", out.getvalue()).astype(int)
    assert got.shape == (21, 34, 3)
    assert abs(got - wanted).max() <= (6 if kind == "JPEG" else 0)
    assert abs(got - np.asarray(picture.convert("RGB"), int)).max() <= 16  # pillow read them itself


@pytest.mark.parametrize("quality, subsampling", [(75, 2), (95, 0)])
def test_decode_agrees_with_pillow_on_photographs(quality, subsampling):
    """TensorFlow transforms faster and less exactly, and interpolates halved chroma otherwise."""
    image = np.asarray(Image.fromarray(pictures.noise(12, 9)).resize((90, 120), 2))
    data = pictures.encode(image, "JPEG", quality=quality, subsampling=subsampling)
    wanted = np.asarray(Image.open(io.BytesIO(data))).astype(int)
    difference = abs(run("decode", data) - wanted)
    assert difference.mean() < 2.5
    assert difference.max() <= (40 if subsampling else 12)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1"])
def test_decode_makes_three_channels_of_any_png(mode):
    picture = Image.fromarray(pictures.noise(9, 7)).convert(mode)
    out = io.BytesIO()
    picture.save(out, "PNG")
    wanted = picture.convert("RGBA" if mode in ("RGBA", "LA") else "RGB")
    assert (run("decode", out.getvalue()) == np.asarray(wanted)[..., :3]).all()


def test_decode_takes_the_first_frame():
    frames = [Image.fromarray(pictures.smooth(6, 8) // d).quantize(64) for d in (1, 2, 3)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=10)
    wanted = np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB"))
    assert (run("decode", out.getvalue()) == wanted).all()


def test_decode_does_not_touch_pixels():
    image = pictures.noise(5, 6)
    assert (run("decode", image) == image).all()
    assert (run("decode|decode", pictures.encode(image)) == image).all()


def test_decode_repeats_gray_pixels():
    image = pictures.noise(5, 6, channels=1)
    assert (run("decode", image) == np.repeat(image, 3, axis=-1)).all()


# ---------------------------------------------------------------- resize


def bilinear(image, height, width):
    """Half-pixel centres, edges repeated, no averaging when shrinking."""
    for axis, size in ((0, height), (1, width)):
        at = (np.arange(size) + 0.5) * image.shape[axis] / size - 0.5
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(3)])
        ends = [np.clip(low + i, 0, image.shape[axis] - 1) for i in (0, 1)]
        a, b = (np.take(image, end, axis).astype(float) for end in ends)
        image = a * (1 - share) + b * share
    return image


@pytest.mark.parametrize(
    "height, width, size", [(5, 7, 1), (13, 4, 8), (8, 8, 8), (64, 41, 20), (1, 1, 3)]
)
def test_resize_is_bilinear_with_half_pixel_centres(height, width, size):
    image = pictures.noise(height, width)
    got = run("resize({size})", image, size)
    assert got.shape == (size, size, 3)
    assert abs(got - bilinear(image, size, size)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("height, width, size", [(41, 30, 7), (6, 6, 13)])
def test_resize_with_antialias_is_that_of_pillow(height, width, size):
    image = pictures.noise(height, width)
    got = run("resize({size}, antialias=True)", image, size).astype(int)
    wanted = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    assert abs(got - np.asarray(wanted)).max() <= 1


@pytest.mark.parametrize("height, width, size", [(41, 30, 7), (6, 6, 13), (64, 9, 9), (8, 8, 8)])
def test_cubic_resize_is_that_of_pillow(height, width, size):
    # Pillow cuts values beyond black and white between rows and columns; here there are none.
    image = pictures.noise(height, width) // 2 + 64
    got = run("resize({size}, cubic=True)", image, size).astype(int)
    wanted = Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC)
    assert abs(got - np.asarray(wanted)).max() <= 1
    small = run("resize_small({size}, cubic=True)", image, size).astype(int)
    wanted = Image.fromarray(image).resize(small.shape[1::-1], Image.Resampling.BICUBIC)
    assert abs(small - np.asarray(wanted)).max() <= 1


def test_resize_rounds_and_does_not_truncate():
    image = np.array([[[0] * 3, [255] * 3]], np.uint8)
    assert run("resize(4)", image)[0, :, 0].tolist() == [0, 64, 191, 255]  # 63.75, 191.25


@pytest.mark.parametrize(
    "height, width, size, shape",
    [(20, 10, 5, (10, 5)), (30, 41, 16, (16, 22)), (7, 7, 21, (21, 21)), (8, 9, 8, (8, 9))],
)
def test_resize_small_keeps_the_aspect_ratio(height, width, size, shape):
    image = pictures.smooth(height, width)
    got = run("resize_small({size})", image, size).astype(int)
    assert got.shape == (*shape, 3)
    wanted = Image.fromarray(image).resize(shape[::-1], Image.Resampling.BILINEAR)
    assert abs(got - np.asarray(wanted)).max() <= 2


def test_resize_small_may_leave_antialias_out():
    image = pictures.noise(16, 32)
    got = run("resize_small(8, antialias=False)", image)
    assert abs(got - bilinear(image, 8, 16)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("height, width", [(8, 8), (9, 11), (30, 21)])
def test_central_crop_is_the_middle(height, width):
    image = pictures.noise(height, width)
    top, left = (height - 8) // 2, (width - 8) // 2
    assert (run("central_crop({size})", image) == image[top : top + 8, left : left + 8]).all()


# ---------------------------------------------------------------- chains


@pytest.mark.parametrize(
    "chain, shape",
    [
        ("decode", (20, 30)),
        ("decode|resize({size})", (8, 8)),
        ("decode|resize_small({size})", (8, 12)),
        ("decode|central_crop({size})", (8, 8)),
        ("decode|random_crop({size})", (8, 8)),
        ("decode|inception_crop({size})", (8, 8)),
        ("decode|flip_lr", (20, 30)),
        ("decode|shift(3)", (20, 30)),
        ("decode|affine(10, 0.1, 1)", (20, 30)),
        ("decode|resize_small(12)|random_crop({size})|flip_lr|shift(1)|affine(5)", (8, 8)),
    ],
)
def test_shape_and_dtype_after_each_op(chain, shape):
    assert run(chain, pictures.encode(pictures.noise(20, 30))).shape == (*shape, 3)


@pytest.mark.parametrize("crop", ["central_crop((8, 9))", "random_crop((8, 9))"])
def test_the_sides_of_a_crop_of_files_are_known_before_any_is_read(crop):
    process = preprocess.apply(preprocess.parse(KEY, f"decode|{crop}", 8))
    specs = [tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int64)]
    graph = tf.function(process, input_signature=specs, autograph=False).get_concrete_function()
    assert graph.output_shapes == [8, 9, 3]


def test_ops_apply_from_left_to_right():
    image = pictures.noise(20, 30)
    wanted = bilinear(image[6:14, 11:19], 4, 4)
    assert abs(run("central_crop(8)|resize(4)", image) - wanted).max() <= 0.5 + 1e-3


@pytest.mark.integration
def test_each_op_of_a_chain_draws_for_itself():
    """Two flips with the same draw would always give the image itself."""
    image = pictures.noise(4, 4)
    results = {run("flip_lr|flip_lr", image, seed=s).tobytes() for s in range(16)}
    assert results == {image.tobytes(), image[:, ::-1].tobytes()}


# --- ops of big_vision ---


SEED = (0, 0)


def area(image, height, width):
    """The mean over what each pixel covers."""
    for axis, size in ((0, height), (1, width)):
        step = image.shape[axis] / size
        pixel, out = np.arange(image.shape[axis]), np.arange(size)[:, None]
        covered = np.minimum(pixel + 1, (out + 1) * step) - np.maximum(pixel, out * step)
        weights = np.maximum(covered, 0) / step
        image = np.moveaxis(np.tensordot(weights, image.astype(float), (1, axis)), 0, axis)
    return image


def bilinear_of_big_vision(image, height, width):
    """Half-pixel centres, edges repeated, no averaging when shrinking."""
    for axis, size in ((0, height), (1, width)):
        at = (np.arange(size) + 0.5) * image.shape[axis] / size - 0.5
        low, share = np.floor(at).astype(int), at - np.floor(at)
        weights = np.zeros((size, image.shape[axis]))
        for shift, weight in ((0, 1 - share), (1, share)):
            ends = np.clip(low + shift, 0, image.shape[axis] - 1)
            np.add.at(weights, (np.arange(size), ends), weight)
        image = np.moveaxis(np.tensordot(weights, image.astype(float), (1, axis)), 0, axis)
    return image


def assert_truncated(got, wanted):
    """Equal to the fraction dropped; either neighbour where float32 ends at a whole number."""
    assert got.dtype == np.uint8
    assert got.shape == wanted.shape
    low, high = np.floor(wanted - 0.01), np.floor(wanted + 0.01)
    assert ((got == low) | (got == high)).all()


@pytest.mark.parametrize("height, width", [(5, 7), (13, 4), (64, 40), (1, 1)])
@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_resize(height, width, size):
    image = pictures.noise(height, width)
    got = resize.BvResize(size)(tf.constant(image), SEED).numpy()
    assert_truncated(got, bilinear_of_big_vision(image, size, size))


@pytest.mark.parametrize(
    "height, width, size, shape",
    [
        (40, 60, 16, (16, 24)),
        (61, 47, 20, (26, 20)),
        (10, 7, 14, (20, 14)),
        (9, 9, 9, (9, 9)),
        (375, 500, 256, (256, 341)),
        (3, 300, 1, (1, 100)),
        (6, 15, 1, (1, 2)),  # 2.5 is rounded to even
    ],
)
def test_resize_small_averages_over_areas(height, width, size, shape):
    image = pictures.noise(height, width)
    got = resize.BvResizeSmall(size)(tf.constant(image), SEED).numpy()
    assert_truncated(got, area(image, *shape))


def test_the_fraction_is_dropped():
    image = np.array([[[0] * 3, [255] * 3]], np.uint8)
    got = resize.BvResize(4)(tf.constant(image), SEED).numpy()
    assert got[0, :, 0].tolist() == [0, 63, 191, 255]  # 63.75, 191.25
    assert resize.BvResizeSmall(1)(tf.constant(image), SEED).numpy()[0, :, 0].tolist() == [
        0,
        255,
    ]
    tall = np.array([[[1] * 3, [2] * 3]] * 4, np.uint8)
    assert (resize.BvResizeSmall(1)(tf.constant(tall), SEED).numpy() == 1).all()  # 1.5


def test_a_chain_in_a_graph_of_unknown_size():
    chain = "bv_resize_small({size*8//7})|central_crop({size})"
    specs = [tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int64)]
    process = preprocess.apply(preprocess.parse("k", chain, 14))
    image = pictures.noise(30, 41)
    got = tf.function(process, input_signature=specs)(image, tf.constant([0, 0], tf.int64))
    assert_truncated(got.numpy(), area(image, 16, 22)[1:15, 4:18])
