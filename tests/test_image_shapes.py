# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images that are not square, and images of other channels than three, from config to export."""

import json
import re
import shlex
import shutil

import numpy as np
import numpy_resnet
import numpy_vit
import pictures
import pytest
import test_mixer
import test_vit
import tifffile
import tiny
import yaml
from test_train import ROOT, logged, run, same_parameters

import vit_jax
from vit_jax import tree
from vit_jax.build import defaults
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import images, load
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import fitting

QUICKSTART = str(ROOT / "configs" / "quickstart.py")


def config(*values):
    return load.load(QUICKSTART, [f"--config.{value}" for value in values])


# --- the configuration ---


@pytest.mark.parametrize(
    "text, value, size",
    [
        ("224", 224, (224, 224)),
        ("224x112", "224x112", (224, 112)),
        ("0224x112", "224x112", (224, 112)),
        ("96x96", 96, (96, 96)),
        ("0", 0, (0, 0)),
    ],
)
def test_a_size_is_a_side_or_rows_and_columns_and_is_saved_as_such(tmp_path, text, value, size):
    found = config(f"data.image_size={text}")
    assert found.data.image_size == value
    assert images.of(found.data).size == size
    path = tmp_path / "config.yaml"
    path.write_text(load.to_yaml(found))
    assert load.load(str(path)) == found
    again = load.load(str(path), ["--config.data.image_size=5x6"])
    assert load.changed(again, {"data.image_size": 7}).data.image_size == 7
    assert load.changed(found, {"data.image_size": "7x8"}).data.image_size == "7x8"


@pytest.mark.parametrize(
    "text",
    ["0x5", "224x", "axb", "-3x4", "224x224x3", "224X112", "1 x 2", "-1", "65537", "1x65537", "",
     "nan", "2.5", "9" * 5000],
)  # fmt: skip
def test_another_size_is_one_message(tmp_path, capsys, text):
    assert run(tmp_path / "run", f"--config.data.image_size={text}") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "data.image_size=" in said
    assert "give a side in [0, 65536] pixels, or ROWSxCOLUMNS: 224x112" in said
    assert not (tmp_path / "run").exists()


def test_a_recipe_and_yaml_may_give_rows_and_columns(tmp_path):
    recipe = tmp_path / "own.py"
    text = "from configs import base\n\n\ndef get_config():\n    config = base.get_config()\n"
    recipe.write_text(f"{text}    config.data.image_size = '64x48'\n    return config\n")
    assert load.load(str(recipe)).data.image_size == "64x48"
    recipe.write_text(f"{text}    config.data.image_size = (64, 48)\n    return config\n")
    with pytest.raises(BadInput, match=r"image_size=\(64, 48\) is of type tuple"):
        load.load(str(recipe))
    path = tmp_path / "own.yaml"
    path.write_text("data: {image_size: 64x48, mean: [0.25]}")
    assert images.of(load.load(str(path)).data) == images.Images(
        (64, 48), 3, (0.25,) * 3, (0.5,) * 3
    )


def test_a_size_that_somebody_wrote_into_a_runs_configuration_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("data: {image_size: 64 by 48}")
    with pytest.raises(BadInput, match=r"data\.image_size='64 by 48' is not a size; give a side"):
        images.of(load.read(str(path)).data)


def test_one_number_or_equal_numbers_stand_for_all_channels():
    many = config("data.channels=13", "data.std=(0.2,)")
    assert images.of(many.data) == images.Images((8, 8), 13, (0.5,) * 13, (0.2,) * 13)
    with pytest.raises(BadInput, match=r"data.mean=.* has 3 numbers, and data.channels=13; give"):
        build.check(config("data.channels=13", "data.mean=(0.4, 0.5, 0.6)"))


@pytest.mark.parametrize(
    "values, said",
    [
        (("model.variant=Ti/8", "data.image_size=32x20"), "size 20 is not divisible by the 8"),
        (("data.channels=4", "data.train_ops=decode|randaug(2, 5)"), "RandAugment changes colours"),
        (("data.channels=4", "masked.target=mean"), "predicts colours of RGB images"),
        (("data.train_ops=decode(channels=4)",), "set data.channels instead"),
        (("data.train_ops=decode(low=9, high=9)",), "give a high above low"),
        (("data.channels=0",), r"channels=0 cannot be used; give a whole number in \[1, 1024\]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_before_data_is_opened(values, said):
    with pytest.raises(BadInput, match=said):
        build.check(config(*values))


# --- models ---


@pytest.mark.parametrize("family, channels", [("vit", 1), ("hybrid", 5), ("bit", 1), ("mixer", 5)])
def test_models_of_other_channels_equal_numpy_and_count_their_flops(family, channels):
    cfg = tiny.FAMILIES[family]()
    size = tiny.size(cfg)
    shapes = variants.shapes(cfg, *size, channels)
    params = tiny.randomised(shapes)
    pixels = np.random.default_rng(0).normal(size=(2, *size, channels)).astype(np.float32)
    if family == "bit":
        constants = (getattr(cfg.resnet, f) for f in numpy_resnet.Constants._fields)
        expected = numpy_resnet.bit(params, pixels, numpy_resnet.Constants(*constants))
    else:
        compared = test_mixer if family == "mixer" else test_vit
        expected = compared.reference(cfg, params, pixels)
    np.testing.assert_allclose(tiny.logits(cfg, params, pixels), expected, rtol=1e-4, atol=1e-4)

    kernels = [
        (params["backbone"]["conv_root"] if "backbone" in params else params["embedding"])["kernel"]
        for params in (shapes, variants.shapes(cfg, *size, 3))
    ]
    places = np.prod([-(-s // 2) for s in size]) if "backbone" in params else 6
    more = 2 * places * (kernels[0].size - kernels[1].size)
    flops = variants.forward_flops(cfg, *size, channels) - variants.forward_flops(cfg, *size)
    assert flops == more


def test_weights_for_rgb_are_adapted_as_a_table_says():
    flat = {k: np.asarray(v) for k, v in tree.leaves_with_paths(tree.unstack_blocks(
        tiny.params(tiny.config())))}  # fmt: skip
    grids = {"old": (2, 3), "new": (2, 3)}
    rgb = flat["embedding/kernel"].copy()
    for channels in (1, 6, 13):
        target = variants.shapes(tiny.config(), 8, 12, channels)
        fitted = fitting.fit(dict(flat), target, **grids)
        detail = f"(4, 4, 3, 32) -> (4, 4, {channels}, 32): RGB -> {channels} channels"
        assert ("embedding/kernel", "adapted", detail) in fitted.fate
        kernel = fitted.params["embedding"]["kernel"]
        assert kernel.dtype == np.float32
        if channels != 13:  # an image whose channels are equal gives what it gave as RGB
            np.testing.assert_allclose(kernel.sum(axis=2), rgb.sum(axis=2), atol=1e-5)
    other = dict(flat) | {"embedding/kernel": np.zeros((4, 4, 13, 32), np.float32)}
    with pytest.raises(BadInput, match=r"these are for 13 \(--config.data.channels\)"):
        fitting.fit(other, variants.shapes(tiny.config(), 8, 12, 4), **grids)


# --- whole runs ---

ROWS, COLUMNS, BANDS = 48, 64, 13
DECODE = "decode(high=10000)|resize({size})"


@pytest.fixture(scope="module")
def bands(tmp_path_factory):
    """A folder like EuroSAT's: GeoTIFF-shaped files of 13 bands, 16 bits, 64 x 64."""
    root, random = tmp_path_factory.mktemp("bands"), np.random.default_rng(0)
    for number in range(36):
        kind = ("Forest", "River", "Sea")[number % 3]
        (root / kind).mkdir(exist_ok=True)
        values = random.integers(0, 3000, (64, 64, BANDS)).astype(np.uint16)
        values[..., number % 3] += 6000
        tifffile.imwrite(
            root / kind / f"{kind}_{number}.tif", values, photometric="minisblack",
            planarconfig="contig", compression=("none", "zlib", "lzma")[number // 3 % 3],
        )  # fmt: skip
    return root


def tiny_run(workdir, *extra):
    small = ("length=10 steps", "batch_size=8", "checkpoint.every=5 steps", "schedule.lr=1e-3")
    small += ("evals.val.every=0", "schedule.warmup=0", "model.variant=custom/16")
    return run(workdir, *(f"--config.{text}" for text in (*small, *extra)))


@pytest.mark.integration
def test_thirteen_bands_are_trained_resumed_and_used(tmp_path, bands, capsys):
    data = (f"data.source=folder:{bands}", "data.image_size=48x64", f"data.channels={BANDS}",
            f"data.train_ops={DECODE}|flip_lr", f"data.eval_ops={DECODE}")  # fmt: skip
    assert tiny_run(tmp_path / "run", *data) == 0
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"]
    assert (saved["image_size"], saved["channels"]) == ("48x64", BANDS)

    shutil.copytree(tmp_path / "run", tmp_path / "half")
    shutil.rmtree(tmp_path / "half" / "checkpoints" / "10")
    (tmp_path / "half" / "results.json").unlink()
    assert tiny_run(tmp_path / "half", *data) == 0
    assert same_parameters(tmp_path / "run", tmp_path / "half")
    assert logged(tmp_path / "run")[10, "train/loss"] == logged(tmp_path / "half")[10, "train/loss"]

    name = str(tmp_path / "run")
    model, params, prepare = vit_jax.load(name)
    file = next((bands / "Sea").iterdir())
    assert prepare(file).shape == (1, ROWS, COLUMNS, BANDS)
    logits = np.asarray(model.apply({"params": params}, prepare(file), train=False))
    own = {f: getattr(model.cfg, f) for f in ("patch", "pool", "posemb", "gelu", "ln_epsilon")}
    expected = numpy_vit.forward(tree.unstack_blocks(params), prepare(file), **own)
    np.testing.assert_allclose(logits, expected, atol=1e-4)

    capsys.readouterr()
    assert main.main(["predict", name, str(file)]) == 0
    assert capsys.readouterr().out.count("\n") == 4  # a heading and three classes
    assert main.main(["evaluate", name, f"--out={tmp_path / 'out'}"]) == 0
    capsys.readouterr()
    assert main.main(["inspect", name, "--json"]) == 0
    architecture = json.loads(capsys.readouterr().out)["architecture"]
    assert (architecture["image_size"], architecture["channels"]) == ([ROWS, COLUMNS], BANDS)
    images_arguments = [f"--images={bands / 'Sea'}", f"--out={tmp_path / 'figures'}"]
    assert main.main(["figures", name, *images_arguments]) == 0
    assert "13 channels, drawn as their mean" in (tmp_path / "figures" / "index.html").read_text()
    npz = tmp_path / "out" / "bands.npz"
    assert main.main(["export", name, "--format=npz", f"--out={npz}"]) == 0
    assert "images of 48 x 64 (give --image_size)" in capsys.readouterr().out
    peer = npz.parent / "model.safetensors"
    assert main.main(["export", name, "--format=timm", f"--out={peer}"]) == 2
    assert "3 x 4 patches would be taken for a square" in capsys.readouterr().err
    given = vit_jax.load(npz, image_size=(ROWS, COLUMNS))
    again = np.asarray(given[0].apply({"params": given[1]}, prepare(file), train=False))
    np.testing.assert_allclose(again, logits, atol=1e-6)

    settled = defaults.settle(
        load.load(str(ROOT / "configs/finetune.py"), [f"--config.init={name}"])
    )
    assert (settled.data.image_size, settled.data.channels) == ("48x64", BANDS)


@pytest.mark.integration
def test_the_command_of_the_page_trains_from_weights_for_rgb(tmp_path, bands, digits_run, caplog):
    page = (ROOT / "docs" / "preprocessing.md").read_text()
    (command,) = re.findall(r"```bash\n(vit_jax train.*?data\.channels=13.*?)```", page, re.DOTALL)
    command = command.replace("/path/to/EuroSAT_MS", str(bands))
    command = command.replace("runs/bands", str(tmp_path / "run"))
    short = ("length=2 steps", "batch_size=8", "schedule.warmup=0", "report.page=false")
    short += (f"init={digits_run}", "checkpoint.keep_best=")
    given = [*shlex.split(command.replace("\\\n", " "))[1:], *(f"--config.{s}" for s in short)]
    assert (
        main.main([f"--config={ROOT / a[9:]}" if a[:9] == "--config=" else a for a in given]) == 0
    )
    assert any("RGB -> 13 channels" in record.getMessage() for record in caplog.records)


@pytest.mark.integration
@pytest.mark.parametrize(
    "channels, settings",
    [
        (1, ("model.variant=R+custom/16", "model.stages=(1,)", "model.root_width=32",
             "mixup.alpha=0.2", "mixup.cutmix=1.0")),
        (3, ("model.variant=BiT-custom", "model.stages=(1, 1)", "model.root_width=32",
             "model.pool=token", *(f"model.{n}=0" for n in ("depth", "width", "mlp", "heads")))),
        (4, ("model.variant=Mixer-custom/16", "model.token_mlp=8", "model.pool=token",
             "model.heads=0")),
        (3, ("masked.target=small", "checkpoint.keep_best=")),
    ],
    ids=["hybrid", "bit", "mixer", "masked"],
)  # fmt: skip
def test_every_family_trains_on_images_that_are_not_square(tmp_path, channels, settings):
    for number in range(24):
        pixels = pictures.noise(20, 30, max(channels, 3), seed=number)
        path = tmp_path / "images" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pictures.encode(pixels))
    data = (f"data.source=folder:{tmp_path / 'images'}", "data.image_size=32x48")
    data += (f"data.channels={channels}", "data.train_ops=decode|inception_crop({size})|flip_lr")
    assert tiny_run(tmp_path / "run", *data, "length=2 steps", *settings) == 0
    found = logged(tmp_path / "run")
    assert np.isfinite([value for (_, key), value in found.items() if "loss" in key]).all()


@pytest.mark.integration
def test_a_run_of_before_is_read_and_continued(tmp_path, digits_run):
    """Its configuration has neither channels nor text for a size."""
    old = tmp_path / "old"
    shutil.copytree(digits_run, old)
    saved = yaml.safe_load((old / "config.yaml").read_text())
    assert saved["data"].pop("channels") == 3
    assert saved["data"]["image_size"] == 8
    (old / "config.yaml").write_text(yaml.safe_dump(saved))
    assert images.of(load.of_run(str(old)).data).shape == (8, 8, 3)
    shutil.rmtree(old / "checkpoints" / "12")
    (old / "results.json").unlink()
    assert run(old) == 0
    assert same_parameters(old, digits_run)
