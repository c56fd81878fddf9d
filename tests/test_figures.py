# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Figures with their captions, and the command that makes files and a page of them."""

import dataclasses
import io
import re
import shutil

import boxed
import numpy as np
import pytest
import test_pages
import tiny
from PIL import Image

import vit_jax
from vit_jax.analysis import maps
from vit_jax.cli import figures as command
from vit_jax.cli import main
from vit_jax.inference import model as inference
from vit_jax.models import variants
from vit_jax.reports import figures

NAMES = ["filters", "posemb", "attention_distance", "rollout"]
SIDE = 16


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Nine pictures, no two alike, in two folders."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(9):
        folder = root / f"{i % 2}"
        folder.mkdir(exist_ok=True)
        shades = np.random.default_rng(i).integers(0, 256, (4, 5, 3), np.uint8)
        Image.fromarray(shades).resize((50, 40)).save(folder / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of weights for each kind of model: kind -> path."""
    root, made = tmp_path_factory.mktemp("weights"), {}
    for kind, cfg, format in (
        ("vit", tiny.config(), "npz"),
        ("map", tiny.config(pool="map"), "big_vision"),
        ("hybrid", tiny.hybrid(), "npz"),
        ("bit", tiny.bit(), "npz"),
        ("mixer", tiny.mixer(), "npz"),
        ("timm", tiny.config(), "timm"),
        ("hf", tiny.config(gelu="erf"), "hf"),
    ):
        name = "model.safetensors" if format in ("timm", "hf") else "weights.npz"
        made[kind] = root / kind / name
        params = tiny.params(cfg, SIDE, SIDE)
        vit_jax.save(made[kind], variants.make(cfg), params, format)
    return made


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures that take no time."""
    out = io.BytesIO()
    Image.new("RGB", (700, 9)).save(out, "PNG")
    for name in ("filters", "similarity", "distance", "rollout"):
        monkeypatch.setattr(figures.drawing, name, lambda *_: out.getvalue())


def all_of(cfg, count=3):
    images = tiny.images_of(cfg, count)
    pictures = np.random.default_rng(0).integers(0, 256, images.shape, np.uint8)
    params = tiny.params(cfg, *images.shape[1:3])
    weights = figures.draw_weights(cfg, params, images.shape[1:3])
    return weights, figures.draw_attention(cfg, params, images, pictures)


# --- figures and captions ---


@pytest.mark.parametrize("family, names", [
    ("vit", NAMES), ("hybrid", NAMES), ("bit", NAMES[:1]), ("mixer", NAMES[:1]),
])  # fmt: skip
def test_every_model_has_the_figures_of_what_it_has(undrawn, family, names):
    cfg = tiny.FAMILIES[family]()
    of_weights, of_images = all_of(cfg)
    assert [one.name for one in of_weights + of_images] == names
    assert bool(cfg.lacking_figures()) == (len(names) < 4) == (not of_images)
    for one in of_weights + of_images:
        assert cfg.in_words() in one.caption
        assert one.png.startswith(b"\x89PNG")
    convolution = family in ("hybrid", "bit")
    assert ("first convolution" in of_weights[0].caption) == convolution


@pytest.mark.parametrize("kind, says", [("none", "no position"), ("relative", "offsets")])
def test_positions_that_are_not_embeddings_are_said(kind, says, undrawn):
    cfg = tiny.config(posemb=kind)
    given = tiny.params(cfg), (tiny.HEIGHT, tiny.WIDTH)
    assert [one.name for one in figures.draw_weights(cfg, *given)] == ["filters"]
    assert says in cfg.lacking_figures()[0]
    assert tiny.config().lacking_figures() == []


def test_captions_say_of_how_many_images_and_pixels(undrawn):
    distance, rollout = all_of(tiny.config(), 8)[1]
    assert "8 images" in distance.caption
    assert "12 pixels wide" in distance.caption
    assert "6 of 8 images" in rollout.caption
    assert "class token reads" in rollout.caption
    distance, rollout = all_of(tiny.config(pool="map"), 1)[1]
    assert "1 image," in distance.caption
    assert "images are shown" not in rollout.caption
    assert "pooling head reads" in rollout.caption


def test_captions_say_what_is_not_shown(undrawn):
    plain, every, large = (
        figures._similarity(cfg, np.ones(shape)).caption
        for cfg, shape in [
            (tiny.config(), (1, 2, 3, 2, 3)),
            (tiny.config(posemb_at="every", depth=5), (5, 2, 3, 2, 3)),
            (tiny.config(), (1, 14, 25, 14, 25)),
        ]
    )
    assert "legible" not in plain + every
    assert "Each of the 5 layers has its own embeddings; 3 are shown." in every
    assert "every 2 rows and 4 columns" in large


@pytest.mark.parametrize("variant, first, mean", [("L/16", 8.0, 51.7), ("R50+L/16", 36.5, 69.4)])
def test_the_papers_distances_stand_beside_those_of_the_same_model(
    monkeypatch, variant, first, mean
):
    drawn = []
    monkeypatch.setattr(figures.drawing, "distance", lambda *given: drawn.append(given) or b"")
    cfg, ours = variants.config(variant=variant, classes=5), np.full((24, 16), 50.0)
    same = figures._distance(cfg, ours, (224, 224), 9)
    larger = figures._distance(cfg, ours, (384, 384), 9)
    fewer = figures._distance(dataclasses.replace(cfg, heads=8), ours[:, :8], (224, 224), 9)
    short = variants.config(variant="R26+L/16", classes=5)
    shorter = figures._distance(short, ours, (224, 224), 9)
    printed = drawn[0][2]
    assert printed.shape == (24, 16)
    assert (printed[0, 0], printed[0].mean()) == (first, pytest.approx(mean, abs=0.1))
    assert (np.diff(printed, axis=1) >= 0).all()
    assert drawn[1][2] is drawn[2][2] is drawn[3][2] is None
    assert f"the paper's values for {variant}" in same.caption
    for other in (larger, fewer, shorter):
        assert "are not drawn: they are of L/16 and R50+L/16 at 224 x 224" in other.caption


@pytest.mark.parametrize("count, most, expected", [
    (1, 6, [0]), (6, 6, [0, 1, 2, 3, 4, 5]), (9, 3, [0, 4, 8]), (1000, 2, [0, 999]), (5, 1, [0]),
])  # fmt: skip
def test_images_are_chosen_evenly(count, most, expected):
    assert figures.chosen(count, most).tolist() == expected


# --- the command ---


def run(weights, images, out, *more):
    return main.main(["figures", str(weights), f"--images={images}", f"--out={out}", *more])


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["vit", "map", "hybrid", "timm", "hf"])
def test_command_writes_pictures_and_a_page(weights, photos, tmp_path, kind, request):
    if kind != "vit":
        request.getfixturevalue("undrawn")
    out = tmp_path / "new" / "figures"
    assert run(weights[kind], photos, out) == 0
    assert {p.name for p in out.iterdir()} == {"index.html", *(f"{n}.png" for n in NAMES)}
    page = test_pages.check((out / "index.html").read_text())
    words = " ".join(page.words)
    assert "9 images (the paper takes 128)" in words
    assert f"{SIDE} x {SIDE} pixels;" in words
    captions = [attributes["alt"] for tag, attributes in page.seen if tag == "img"]
    assert len(captions) == 4
    assert "of 9 images" in captions[3]
    for name in NAMES:
        Image.open(io.BytesIO((out / f"{name}.png").read_bytes())).verify()


@pytest.mark.integration
def test_a_detection_run_with_windows_has_all_figures(root, tmp_path):
    """A grid of 8 x 12 with windows of 5 x 5; the last of four blocks attends to all patches."""
    data, workdir, out = boxed.coco(tmp_path / "data"), tmp_path / "run", tmp_path / "out"
    settings = [
        "data.image_size=64x96", "data.reader=python", "batch_size=8", "length=2 steps",
        "report.page=False", "report.writers=()", "evals.val.every=0", f"data.source=coco:{data}",
        "objective=detection(width=16, depth=1, strides=(8, 16))", "model.window=5",
        "model.width=32", "model.mlp=32", "model.heads=2",
    ]  # fmt: skip
    recipe = f"--config={root}/configs/detect.py:small=true"
    words = [f"--config.{setting}" for setting in settings]
    assert main.main(["train", recipe, f"--workdir={workdir}", *words]) == 0
    assert run(workdir, data / "val", out) == 0
    assert {p.name for p in out.iterdir()} == {"index.html", *(f"{n}.png" for n in NAMES)}
    model = inference.open_model(str(workdir))
    images, _, _ = command.read(model, sorted(map(str, (data / "val").iterdir())))
    seen_SBNLL, _ = maps.attention(model.cfg, model.params, images)
    y, x = np.indices((8, 12)).reshape(2, -1) // 5
    apart = (y[:, None] != y) | (x[:, None] != x)
    assert [layer[..., apart].max() == 0 for layer in seen_SBNLL] == [True] * 3 + [False]
    np.testing.assert_allclose(
        maps.look(model.cfg, model.params, images).rollout_Bhw.sum((1, 2)), 1, rtol=1e-5
    )


@pytest.mark.parametrize("kind, says", [("bit", "BiT has neither"), ("mixer", "MLP-Mixer has nei")])
def test_models_without_attention_have_filters_and_the_page_says_so(
    weights, photos, tmp_path, kind, says, undrawn
):
    assert run(weights[kind], photos, tmp_path / "out") == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"index.html", "filters.png"}
    words = " ".join(test_pages.check((tmp_path / "out" / "index.html").read_text()).words)
    assert says in words
    assert "images" not in words


def test_another_resolution_has_another_grid(weights, photos, tmp_path, undrawn):
    (tmp_path / "index.html").write_text("of another time")
    assert run(weights["vit"], photos / "0", tmp_path, "--image_size=24") == 0
    page = (tmp_path / "index.html").read_text()
    assert "a grid of 6 x 6" in page
    assert "Images are 24 pixels wide" in page
    assert "5 images" in page


def test_at_most_128_images_are_looked_at(weights, photos, tmp_path, undrawn):
    for i in range(130):
        shutil.copy(photos / "0" / "0.png", tmp_path / f"{i:03d}.png")
    assert run(weights["vit"], tmp_path, tmp_path / "out") == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "; 128 images.<" in page
    assert "6 of 128 images are shown" in page


def test_pictures_are_the_images_that_the_model_gets(weights, photos):
    """Whatever the normalisation: of timm and of the original code."""
    for kind in ("vit", "timm"):
        model = inference.open_model(str(weights[kind]))
        images, pictures, bad = command.read(model, [str(photos / "0" / "0.png")])
        assert (images.shape, pictures.shape, bad) == ((1, 16, 16, 3), (1, 16, 16, 3), {})
        expected = np.asarray(Image.open(photos / "0" / "0.png").resize((16, 16), Image.BILINEAR))
        assert np.abs(pictures[0].astype(int) - expected).mean() < 12
        assert np.ptp(pictures) > 100


def test_images_that_cannot_be_read_are_counted_and_the_first_is_named(
    weights, photos, tmp_path, capsys, undrawn
):
    folder = tmp_path / "some"
    shutil.copytree(photos, folder)
    for name in ("a.png", "z.jpg"):
        (folder / name).write_bytes(b"no image")
    assert run(weights["vit"], folder, tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert re.search(r"2 of 11 images cannot be read and are left out, first: .*a\.png", said)
    assert "9 images" in (tmp_path / "out" / "index.html").read_text()


def test_nothing_is_written_where_no_image_can_be_read(weights, tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(b"no image")
    assert run(weights["vit"], tmp_path, tmp_path / "out") == 2
    assert "none of 1 images can be read, first: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("given, says", [
    (["--out={root}/file", "--images={photos}"], "is not a folder"),
    (["--out=-", "--images={photos}"], "--out=- is not a path; give one"),
    (["--out={root}/out", "--images={root}/none"], "none does not exist"),
    (["--out={root}/out", "--images={root}"], "has no images in it"),
    (["--out={root}/file/out", "--images={photos}"], "cannot be written"),
    (["--out={root}/out", "--images={photos}", "--image_size=-1"], "--image_size=-1"),
    (["--out={root}/out", "--images={photos}", "--image_size=15"], "(--image_size)"),
    (["--out={root}/out"], "--images"),
    (["--images={photos}"], "--out"),
])  # fmt: skip
def test_what_cannot_be_used_is_one_message(
    weights, photos, tmp_path, capsys, given, says, undrawn
):
    (tmp_path / "file").write_text("")
    given = [text.format(root=tmp_path, photos=photos) for text in given]
    assert main.main(["figures", str(weights["vit"]), *given]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_python_of_the_page(root, weights, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(photos / "0" / "0.png", "cat.jpg")
    (text,) = re.findall(r"```py\n(.*?)```", (root / "docs/inside.md").read_text(), re.DOTALL)
    names = {}
    exec(text.replace("runs/quickstart", str(weights["vit"])), names)
    assert names["seen"].distance_SN.shape == (3, 4)
    assert names["seen"].rollout_Bhw.shape == (1, 4, 4)
    assert names["weights"].shape == (3, 1, 4, 17, 17)
    assert names["tiles"].shape == (1, 4, 4, 4, 4)
    assert names["components"].shares_C.sum() > 0.5
