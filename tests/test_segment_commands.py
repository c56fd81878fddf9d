# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The commands of docs/segmentation.md, a run that is resumed, and what commands refuse."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from interrupted_runs import assert_equal, cut
from PIL import Image

from vit_jax.cli import arguments
from vit_jax.cli.main import main

ROOT = Path(__file__).parent.parent
NAMES = ("field", "house", "sea", "never")
# The model of the digits has patches of two pixels.
SHORT = (
    "--config.data.image_size=16x24", "--config.length=6 steps", "--config.batch_size=8",
    "--config.report.page=false", "--config.report.writers=()", "--config.data.workers=2",
    "--config.data.train_ops=decode|resize({size})|flip_lr", "--config.evals.val.every=3 steps",
)  # fmt: skip

SMALL = [f"--config.model.{k}" for k in ("width=32", "depth=2", "mlp=32", "heads=2")]


OWN = np.array([[0, 0, 0], [9, 99, 199], [250, 250, 0], [70, 0, 70]], np.uint8)  # the palette


def masks_folder(root: Path, count: int = 10) -> Path:
    """Coloured rectangles of any size, one colour for each class, and void at the edges."""
    rng = np.random.default_rng(0)
    colours = np.array([[40, 160, 40], [200, 60, 60], [40, 60, 200], [0, 0, 0]])
    for number in range(count):
        split = ("train", "train", "train", "val", "test")[number % 5]
        rows, columns = rng.integers(20, 40, 2)
        mask = rng.integers(0, 3, (2, 3)).repeat(-(-rows // 2), 0).repeat(-(-columns // 3), 1)
        mask = mask[:rows, :columns]
        image = colours[mask] + rng.integers(0, 40, (rows, columns, 3))
        mask[:2] = 255
        for kind, array in (("images", image), ("masks", mask)):
            folder = root / kind / split
            folder.mkdir(parents=True, exist_ok=True)
            ending = "jpg" if kind == "images" else "png"
            picture = Image.fromarray(array.astype(np.uint8))
            if kind == "masks":
                picture.putpalette(OWN.tobytes())
            picture.save(folder / f"{number}.{ending}")
    (root / "classes.txt").write_text("\n".join(NAMES))
    return root


def read(path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def commands() -> list[list[str]]:
    text = (ROOT / "docs/segmentation.md").read_text()
    (block,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


def test_masks_have_names_of_their_own():
    names = arguments.picture_names
    assert names(["p/a.jpg", "p/q/b.png"]) == ["a.png", "q/b.png"]
    clash = ["p/a.jpg", "p/a.png", "p/a.jpg.jpg"]
    assert names(clash) == ["a.jpg.png", "a.png.png", "a.jpg.jpg.png"]


def test_masks_are_not_written_among_the_images(tmp_path, monkeypatch, capsys):
    of_run = (str(tmp_path), "segmentation")
    monkeypatch.setattr(arguments, "learned", lambda args, name: (args.weights, name) == of_run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for out in ("photos", "photos/masks/new"):
        assert main(["predict", str(tmp_path), "photos", f"--out={out}"]) == 2
        assert f"--out={out} lies in photos" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), "photos", "--out=photos2"]) == 2
    assert "photos has no images in it" in capsys.readouterr().err


@pytest.mark.integration
def test_commands_of_the_page(tmp_path, monkeypatch, capsys, digits_run):
    data = masks_folder(tmp_path / "data")
    monkeypatch.chdir(tmp_path)

    def placed(words):
        text = "\n".join(words).replace("/path/to/masks", str(data))
        text = text.replace("/path/to/photos", f"{data}/images/test")
        text = text.replace("FILE_OR_RUN", str(digits_run))
        return text.replace("=configs/", f"={ROOT}/configs/").split("\n")

    check, train, predict, evaluate = map(placed, commands())
    assert main(check) == 0
    assert "house" in capsys.readouterr().out
    assert main([*train, *SHORT]) == 0
    assert "predict runs/seg /path/to/images --out=" in capsys.readouterr().out
    results = json.loads(Path("runs/seg/results.json").read_text())
    assert 0 <= results["val"]["miou"] <= 1
    assert results["test"]["examples"] == 2

    assert json.loads(Path("runs/seg/classes.json").read_text())["colours"] == OWN.tolist()
    (data / "masks").rename(data / "away")  # the run has the palette
    assert main(predict) == 0
    (data / "away").rename(data / "masks")
    for path in (data / "images/test").iterdir():
        with Image.open(f"runs/predicted/masks/{path.stem}.png") as picture:
            assert picture.mode == "P"
            assert picture.getpalette()[:12] == OWN.ravel().tolist()
            assert np.asarray(picture).max() < len(NAMES)
            assert np.asarray(picture).shape == read(path).shape[:2]
        assert read(f"runs/predicted/overlays/{path.stem}.png").shape == read(path).shape
    assert "1 house " in Path("runs/predicted/classes.txt").read_text()
    legend = read("runs/predicted/legend.png")
    rows = np.split(legend, len(NAMES))
    for row, colour in zip(rows, OWN, strict=True):
        assert (row == colour).all(axis=-1).mean() > 0.5
        assert (row != colour).any()

    assert main(evaluate) == 0
    measured = json.loads(Path("runs/seg_evaluation/evaluation.json").read_text())
    counts = np.array(measured["confusion"])
    true = [read(path) for path in sorted((data / "masks/test").iterdir())]
    assert counts.sum() == sum((mask < 255).sum() for mask in true)
    files = [f"runs/predicted/masks/{p.name}" for p in sorted((data / "masks/test").iterdir())]
    guesses = [read(path) for path in files]
    right = sum((a == b).sum() for a, b in zip(true, guesses, strict=True))
    assert np.diag(counts).sum() == right  # predict and evaluate see the same
    assert measured["classes"][3]["iou"] in (None, 0.0)
    assert "data:image/png" in Path("runs/seg_evaluation/evaluation.html").read_text()
    assert main([*evaluate, "--whole"]) == 0
    refused(tmp_path, data, train, capsys, str(digits_run))


def refused(tmp_path, data, train, capsys, digits_run):
    """What is refused, each with its file."""
    run = "runs/seg"
    fresh = [word for word in train if "workdir" not in word and "source" not in word]
    assert main([*fresh, *SHORT, "--workdir=runs/other", "--config.data.source=digits"]) == 2
    assert "no mask" in capsys.readouterr().err
    assert main(["predict", run, f"{data}/images/test"]) == 2
    assert "--out=FOLDER" in capsys.readouterr().err
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    assert main(["predict", run, str(broken), f"{data}/images/test/4.jpg", "--out=runs/out"]) == 2
    assert "broken.png" in capsys.readouterr().err
    others = [f"{data}/images/test/4.jpg", "--out=runs/out"]
    for unused in ("--topk=3", "--names=x", "--heads=2", "--patch=8"):
        assert main(["predict", run, *others, unused]) == 2
        assert f"{unused.partition('=')[0]} has no use" in capsys.readouterr().err
    assert main(["evaluate", run, "--classes=present"]) == 2
    assert "--classes has no use" in capsys.readouterr().err
    assert main(["evaluate", digits_run, "--whole"]) == 2
    assert "--whole has no use" in capsys.readouterr().err
    line = tmp_path / "line.png"
    Image.fromarray(np.zeros((1, 600_000, 3), np.uint8)).save(line)
    assert main(["predict", run, str(line), "--out=runs/out"]) == 2
    assert "become 9600000 x 16 to cover a window" in capsys.readouterr().err
    assert Path("runs/out/masks").exists()
    Image.fromarray(np.zeros((3, 3), np.uint8)).save(data / "masks/test/4.png")
    assert main(["evaluate", run, "--out=runs/e"]) == 2
    assert "masks/test/4.png" in capsys.readouterr().err
    for path in (data / "masks/train").iterdir():
        Image.fromarray(np.full(read(path).shape, 77, np.uint8)).save(path)
    source = f"--config.data.source=masks:{data}"
    assert main([*fresh, *SHORT, "--workdir=runs/other", source]) == 2
    error = capsys.readouterr().err
    assert "masks/train" in error
    assert "77" in error
    assert "Traceback" not in error


def dark_and_light(root: Path, count: int = 40) -> Path:
    """PNG files of 16 bits with two classes, whose values are below 900, in blocks of a patch."""
    rng = np.random.default_rng(1)
    for number in range(count):
        split = ("train", "train", "train", "val", "test")[number % 5]
        mask = rng.integers(0, 2, (8, 12)).repeat(2, 0).repeat(2, 1)
        image = 150 + 600 * mask + rng.integers(-100, 100, mask.shape)
        for kind, array in (("images", image.astype(np.uint16)), ("masks", mask.astype(np.uint8))):
            folder = root / kind / split
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(folder / f"{number}.png")
    (root / "classes.txt").write_text("dark\nlight")
    return root


@pytest.mark.integration
@pytest.mark.parametrize("trainable", ["adapters", "lora(rank=4)", "head"])
def test_two_classes_are_learned_and_evaluate_sees_what_the_run_saw(
    tmp_path, capsys, digits_run, trainable
):
    """The images have the size of a window, so that evaluate and the run measure the same."""
    data, run = dark_and_light(tmp_path / "data"), str(tmp_path / "run")
    chain = "decode(high=900)|resize({size})"
    words = [f"--config.data.train_ops={chain}|flip_lr", f"--config.data.eval_ops={chain}"]
    words += ["--config.length=150 steps", "--config.schedule.lr=0.01"]
    words += ["--config.expected.metric=test/windows_miou", "--config.expected.value=0.9"]
    words += [f"--config.trainable={trainable}", f"--config.init={digits_run}"]
    words += [f"--workdir={run}", f"--config.data.source=masks:{data}"]
    recipe = f"--config={ROOT}/configs/segment.py"
    assert main(["train", recipe, *SHORT, "--config.evals.val.every=0", *words]) == 0
    assert "expected" not in capsys.readouterr().out  # the run itself has no windows
    measured = json.loads(Path(run, "results.json").read_text())["test"]
    assert measured["miou"] > 0.85  # of chance: 0.33

    assert main(["evaluate", run, f"--out={tmp_path}/e"]) == 0
    shown = capsys.readouterr().out
    assert f"windows_miou: measured {measured['miou']:.4f}, expected 0.9000" in shown
    again = json.loads((tmp_path / "e/evaluation.json").read_text())
    assert again["miou"] == pytest.approx(measured["miou"], abs=1e-4)
    assert again["pixel_accuracy"] == pytest.approx(measured["pixel_accuracy"], abs=1e-4)
    assert main(["evaluate", run, f"--out={tmp_path}/e", "--whole"]) == 0
    assert "expected" not in capsys.readouterr().out


@pytest.mark.integration
def test_crashed_run_continues_bit_for_bit(tmp_path):
    data, whole = masks_folder(tmp_path / "data"), tmp_path / "whole"
    recipe = f"--config={ROOT}/configs/segment.py:head=mask_transformer,backbone=full,model=Ti/8"
    command = ["train", recipe, f"--config.data.source=masks:{data}", *SHORT]
    command += ["--config.checkpoint.every=2 steps", *SMALL]
    command += ["--config.checkpoint.keep_last=3", "--config.model.drop_path=0.1"]
    assert main([*command, f"--workdir={whole}"]) == 0
    cut(whole, tmp_path / "cut")
    assert main([*command, f"--workdir={tmp_path}/cut"]) == 0
    assert_equal(whole, tmp_path / "cut")
