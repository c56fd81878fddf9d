# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The op `naflex`: its grids, its canvas, and what chains, models and objectives it fits."""

import argparse
import dataclasses
import io
import re
import shlex

import numpy as np
import pytest
from PIL import Image

from vit_jax.build import defaults, objectives
from vit_jax.build import run as build
from vit_jax.cli import features
from vit_jax.config import load as config_lib
from vit_jax.data.numpy_ops import chain as numpy_chain
from vit_jax.data.numpy_ops import naflex
from vit_jax.data.ops import chain
from vit_jax.data.ops.naflex import NaFlex
from vit_jax.data.python_reader.rows import Recipe
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.inference import inputs
from vit_jax.models import variants
from vit_jax.models.naflex import Canvas
from vit_jax.weights import image_settings, loading, preprocessing
from vit_jax.weights.convert import Weights

# Rows and columns of pixels -> grids of get_image_size_for_max_num_patches (transformers 5.24) with
# patches of 16 pixels, for 16 and for 256 of them.
GRIDS = {
    (480, 640): ((3, 4), (14, 18)), (224, 224): ((4, 4), (16, 16)), (1, 3000): ((1, 16), (1, 256)),
    (37, 5): ((8, 2), (42, 6)), (1333, 200): ((8, 2), (40, 6)),
}  # fmt: skip


@pytest.mark.parametrize("sides", GRIDS)
def test_grids_are_those_of_transformers(sides):
    for size, want in zip((64, 256), GRIDS[sides], strict=True):
        op = NaFlex(size, 16)
        assert naflex.grid(op, sides) == want
        assert tuple(op.grid(tf.constant(sides)).numpy()) == want


@pytest.mark.parametrize(
    "sides, want", [((20, 50), (2, 4)), ((16, 16), (1, 1)), ((480, 640), (3, 4)), ((1, 1), (1, 1))]
)
def test_small_images_keep_their_size_without_enlarge(sides, want):
    op = NaFlex(64, 16, enlarge=False)
    assert naflex.grid(op, sides) == want
    assert tuple(op.grid(tf.constant(sides)).numpy()) == want


@pytest.mark.parametrize("sides", [(9, 23)])
def test_patches_lie_row_by_row_in_the_cells(sides):
    """TensorFlow and numpy give the same canvas; its cells are Pillow's image in patches."""
    image = np.random.default_rng(0).integers(0, 256, (*sides, 3), np.uint8)
    ops = chain.parse("x", "naflex(16, 4)", 16)
    fields = chain.apply_to_fields(ops)({"image": tf.constant(image)}, tf.zeros([2], tf.int64))
    ours = numpy_chain.apply_to_fields(ops, {"image": image}, (0, 0))
    np.testing.assert_array_equal(fields["grid"], ours["grid"])
    assert np.abs(fields["image"].numpy().astype(int) - ours["image"]).max() <= 1
    rows, columns = ours["grid"]
    picture = Image.fromarray(image).resize((columns * 4, rows * 4), Image.Resampling.BILINEAR)
    cells = [ours["image"][y : y + 4, x : x + 4] for y in range(0, 16, 4) for x in range(0, 16, 4)]
    for number in range(rows * columns):
        top, left = 4 * (number // columns), 4 * (number % columns)
        want = np.asarray(picture, int)[top : top + 4, left : left + 4]
        assert np.abs(cells[number] - want).max() <= 1
    assert all((cell == 128).all() for cell in cells[rows * columns :])


def test_an_image_is_drawn_from_its_cells():
    image = np.random.default_rng(0).integers(0, 256, (8, 20, 3), np.uint8)
    canvas = naflex.in_cells(NaFlex(16, 4), image, 128)
    assert not np.array_equal(canvas[:8, :16], image[:, :16])
    np.testing.assert_array_equal(naflex.from_cells(canvas, 4, np.int32([2, 5])), image)


def test_rows_of_the_python_reader_have_the_grid():
    view = chain.View("image", 0, chain.parse("x", "naflex(16, 4)", 16))
    recipe = Recipe((view,), ((16, 16),), 3)
    arrays = recipe.arrays(bytearray(2 * recipe.row_bytes()), 0, 2)
    image = np.random.default_rng(0).integers(0, 256, (9, 23, 3), np.uint8)
    recipe.write({"image": image}, (0, 0), arrays, 1)
    assert arrays["grid"].tolist() == [[0, 0], [2, 6]]
    picture = Image.fromarray(image).resize((24, 8), Image.Resampling.BILINEAR)
    want = np.asarray(picture, int)[4:, 4:8]  # row 1 and column 1 of 2 x 6 patches: cell 7 of 16
    assert np.abs(arrays["image"][1][4:8, 12:] - want).max() <= 1
    assert (arrays["image"][1][12:] == 128).all()


@pytest.mark.integration
@pytest.mark.parametrize("reader", ["tf", "python"])
def test_images_of_several_shapes_are_one_canvas(reader):
    ops = chain.parse("x", "decode|naflex(16, 4)", 16)
    read = preprocessing.chain_reader(ops, (0.5,) * 3, (0.5,) * 3, reader)
    ramp = np.broadcast_to(np.arange(24, dtype=np.uint8) * 10, (3, 8, 24))  # by columns
    images = [ramp.transpose(1, 2, 0), ramp.transpose(2, 1, 0)]
    files = []
    for image in images:
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "png")
        files.append(stream.getvalue())
    canvas = read(files)
    assert isinstance(canvas, Canvas)
    assert canvas.grids.tolist() == [[2, 6], [6, 2]]
    assert canvas.images_BHWC.shape == (2, 16, 16, 3)
    wide, tall = (np.round((image[..., 0] + 1) * 127.5) for image in canvas.images_BHWC)
    np.testing.assert_array_equal(wide[4:8, 8:12], [[0, 10, 20, 30]] * 4)  # cell 6: row 1, column 0
    np.testing.assert_array_equal(wide[4:8, 4:8], [[200, 210, 220, 230]] * 4)  # cell 5: the last
    np.testing.assert_array_equal(tall[:4, 8:12].T, [[40, 50, 60, 70]] * 4)  # cell 2: row 1
    np.testing.assert_array_equal(wide[12:], 128)  # padding
    batch = inputs.as_batch([read(file) for file in files], 3)
    assert batch["grid"].tolist() == [[2, 6], [6, 2], [0, 0]]
    assert batch["_mask"].tolist() == [True, True, False]


def test_preprocessing_of_siglip2_is_that_of_transformers():
    """The patches, their number and their values, of a wide image."""
    read = preprocessing.naflex_reader("hf", {"image_processor_type": "Siglip2ImageProcessor"},
                                        NaFlex(64, 16))  # fmt: skip
    image = np.random.default_rng(0).integers(0, 256, (48, 120, 3), np.uint8)
    canvas = read(image)
    assert canvas.grids.tolist() == [[2, 5]]
    picture = Image.fromarray(image).resize((80, 32), Image.Resampling.BILINEAR)
    want = np.asarray(picture, np.float32)[:16, 16:32] / 127.5 - 1  # the second patch
    np.testing.assert_allclose(canvas.images_BHWC[0, :16, 16:32], want, atol=1e-6)
    assert (canvas.images_BHWC[0, 48:] == 0).all()


@pytest.mark.parametrize(
    "said, want",
    [({}, None), ({"max_num_patches": 1024}, (512, 512)), ({"max_num_patches": 128}, (128, 256))],
)
def test_the_budget_of_a_processor_is_the_size_of_the_canvas(said, want):
    config = {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 16} | said
    assert image_settings.canvas_size(config, 16) == want


@pytest.mark.parametrize(
    "given, said",
    [
        ({"image_processor_type": "ViTImageProcessor", "max_num_patches": 64}, "is not known here"),
        ({"max_num_patches": 0}, "max_num_patches=0; expected a whole number"),
        ({"patch_size": 14}, "patch_size=14, the model has patches of 16"),
    ],
)
def test_budgets_that_are_refused(given, said):
    with pytest.raises(BadInput, match=said):
        image_settings.canvas_size({"image_processor_type": "Siglip2ImageProcessor"} | given, 16)


NAFLEX = ["--config.data.train_ops=decode|naflex({size}, 8)", "--config.model.naflex=4"]


@pytest.mark.parametrize(
    "given, said",
    [
        ([*NAFLEX, "--config.model.naflex=0"], r"give --config\.model\.naflex=16"),
        (["--config.data.train_ops=decode|naflex({size}, 16)", NAFLEX[1]],
         "patches of 16 pixels, and the model of 8"),
        ([*NAFLEX, "--config.mixup.alpha=0.2"], "mixup and CutMix"),
        ([*NAFLEX, "--config.objective=mae", "--config.loss.label_smoothing=0",
          "--config.checkpoint.keep_best="],
         "objective=mae takes images of one size"),
        (["--config.data.train_ops=decode|naflex({size}, 7)"], "do not tile 32"),
        ([*NAFLEX, "--config.model.attention=fused"], r"no mask for padding \(model.naflex=4\)"),
        ([*NAFLEX, "--config.data.device_ops=flip_lr"], r"put these ops before naflex"),
        (["--config.data.train_ops=decode|naflex({size}, 8)|flip_lr"], "let it be the last op"),
    ],
)  # fmt: skip
def test_refused_configurations(root, given, said):
    words = ["--config.data.image_size=32", "--config.model.variant=Ti/8", *given]
    config = config_lib.load(str(root / "configs" / "finetune.py"), words)
    with pytest.raises(BadInput, match=said):
        build.check(config)


def test_square_images_are_mixed_beside_an_evaluation_with_naflex(root):
    words = ["--config.data.image_size=32", "--config.model.variant=Ti/8", NAFLEX[1]]
    words += ["--config.mixup.alpha=0.2", "--config.data.eval_ops=decode|naflex({size}, 8)"]
    config = defaults.settle(config_lib.load(str(root / "configs" / "finetune.py"), words))
    build.check(config)
    objective = objectives.make(config, variants.of(config.model, 2))
    assert objectives.host_fields(objective, config.data).keys() == {"image"}


def test_another_patch_on_a_run_is_refused(monkeypatch):
    settings = {"variant": "Ti/8", "naflex": 4}
    run = Weights({}, "run", settings, 0, (32, 32), {}, {"ops": "naflex(32, 8)"})
    monkeypatch.setattr(loading, "_read", lambda *_: run)
    assert loading.read_weights("run", patch=8).config.patch == 8
    with pytest.raises(BadInput, match=r"cut patches of 8 pixels \(naflex\)"):
        loading.read_weights("run", patch=4)


def test_a_field_that_moves_with_pixels_is_refused():
    ops = chain.parse("x", "naflex(16, 4)", 16)
    fields = {"image": tf.zeros([9, 23, 3], tf.uint8), "mask": tf.zeros([9, 23], tf.int32)}
    with pytest.raises(BadInput, match="NaFlex may move pixels"):
        chain.apply_to_fields(ops)(fields, tf.zeros([2], tf.int64))


def test_channels_other_than_rgb():
    op = NaFlex(16, 4)
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 1), np.uint8)
    np.testing.assert_array_equal(naflex.naflex(op, image, (0, 0)), image)
    assert dataclasses.replace(op, enlarge=False).cells == (4, 4)


def test_the_commands_of_the_page_are_valid(root):
    text = (root / "docs" / "naflex.md").read_text()
    block, packed, in_training = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    parser = argparse.ArgumentParser()
    features.add_arguments(parser)
    assert parser.parse_args(shlex.split(packed)[2:]).pack == 1024
    for each, images in ((block, 1), (in_training, 1.5)):
        command = shlex.split(each.replace("\\\n", " "))
        recipe = str(root / command[2].removeprefix("--config="))
        config = config_lib.load(recipe, [word for word in command if word.startswith("--config.")])
        build.check(config)
        assert (config.model.naflex, config.pack) == (16, images)
        objective = objectives.make(config, variants.of(config.model, 2))
        assert objectives.host_fields(objective, config.data)["grid"].shape == (2,)
