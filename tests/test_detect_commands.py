# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The commands of docs/detection.md, the numbers in COCO results, and what commands refuse."""

import argparse
import json
import math
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import boxed
import numpy as np
import pytest
from interrupted_runs import assert_equal, cut
from PIL import Image

from vit_jax.cli import arguments, detection
from vit_jax.cli.main import main
from vit_jax.config import sections
from vit_jax.data.inspect import colours
from vit_jax.data.ops.decode import Decode
from vit_jax.data.sources import registry
from vit_jax.data.sources.source import Options, Source
from vit_jax.errors import BadInput
from vit_jax.evaluators.detection import Objects
from vit_jax.inference import model as inference
from vit_jax.reports import detection_page

ROOT = Path(__file__).parent.parent
# The model of the digits has patches of two pixels.
SHORT = (
    "--config.data.image_size=32x48", "--config.length=6 steps", "--config.batch_size=8",
    "--config.report.page=false", "--config.report.writers=()", "--config.data.workers=2",
    "--config.data.train_ops=decode|scale_jitter({size}, 0.8, 1.2)|flip_lr",
    "--config.evals.val.every=3 steps",
    "--config.objective=detection(width=16, depth=1, strides=(4, 8))",
)  # fmt: skip
SMALL = [f"--config.model.{k}" for k in ("width=32", "depth=2", "mlp=32", "heads=2")]


def commands() -> list[list[str]]:
    text = (ROOT / "docs/detection.md").read_text()
    (block,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


def test_results_have_the_numbers_of_coco(tmp_path, monkeypatch, caplog):
    root = boxed.coco(tmp_path / "data")
    source = f"coco:{root}/annotations/instances_train.json"
    monkeypatch.setattr(detection, "_source_of", lambda run: source)
    paths = [f"{root}/val/0006.png", f"{root}/train/0000.png"]
    categories, ids = detection._coco_ids("run", boxed.NAMES, paths)
    assert categories == [3, 7, 11]
    assert ids == {paths[0]: 106, paths[1]: 100}
    (root / "other").mkdir()
    other = [paths[0], f"{root}/other/000123.png"]
    assert [*detection._coco_ids("run", boxed.NAMES, other)[1].values()] == [6, 123]
    assert [*detection._coco_ids("run", ["never", "new"], ["a/1.png", "b/1.png"])[1].values()] == [
        "a/1.png", "b/1.png",
    ]  # fmt: skip
    assert detection._coco_ids("run", ["never", "new"], ["a/x.png"]) == (
        [1, 2],  # 11 and 2 could be one number twice
        {"a/x.png": "x.png"},
    )
    assert "has no category 'new'" in caplog.text


def test_results_count_classes_from_1_without_the_data(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(detection, "_source_of", lambda run: f"coco:{tmp_path}/gone.json")
    assert detection._coco_ids("run", boxed.NAMES, ["7.png"]) == ([1, 2, 3], {"7.png": 7})
    assert "gone.json does not exist" in caplog.text
    found = boxed.detections([[1, 2, 4.5, 8]], [0.7], [1])
    assert detection._results(7, found, [3, 5]) == [
        {"image_id": 7, "category_id": 5, "bbox": [1.0, 2.0, 3.5, 6.0], "score": 0.699999988}
    ]


def test_evaluation_finds_the_classes_of_the_run_by_name():
    other = Source("coco:x", ("never", "moor", "disc"), {})
    own_classes = arguments.own_classes("run", boxed.NAMES, other, "advice")
    found = own_classes(np.array([[2, 0], [-1, 2]]))  # moor does not occur
    np.testing.assert_array_equal(found, [[0, 2], [-1, 0]])
    assert own_classes(np.zeros(0, np.int32)).shape == (0,)
    said = r"class 'moor', but run knows only disc, square, never; advice\."
    with pytest.raises(BadInput, match=said):
        own_classes(np.array([0, 1]))


@pytest.mark.parametrize("name", ["weights.npz", "ViT-B_16"])
def test_files_have_learned_neither(tmp_path, name):
    args = argparse.Namespace(weights=str(tmp_path / name))
    assert not any(arguments.learned(args, one) for one in ("segmentation", "detection"))


class Guesses:
    """A detector that finds the same box in every image."""

    run = SimpleNamespace(
        names=boxed.NAMES, size=(32, 48), decode=Decode(), expected=sections.Expected(), changed=()
    )

    def check(self, image):
        pass

    def of_images(self, images):
        for _ in images:
            yield boxed.detections([[0, 0, 20, 20]], [0.9], [0])


def test_an_evaluation_without_a_true_box_is_refused(tmp_path, monkeypatch):
    root = boxed.coco(tmp_path / "data")
    file = root / "annotations/instances_val.json"
    content = json.loads(file.read_text())

    def opened(*_):
        return registry.open_source(f"coco:{file}", Options(), val_percent=0, test_percent=0)

    monkeypatch.setattr(inference, "open_data", opened)
    monkeypatch.setattr(detection, "_open", lambda args: Guesses())
    args = argparse.Namespace(
        weights="run", data=f"coco:{file}", data_dir="", split="", labels="", classes="all",
        names="", heads=0, patch=0, pack=0, merge_tokens=None,
    )  # fmt: skip
    assert detection.evaluate(args).figures.counts_K.sum() == len(content["annotations"])
    for one in content["annotations"]:
        one["iscrowd"] = 1
    for left in (content["annotations"], []):
        file.write_text(json.dumps(content | {"annotations": left}))
        with pytest.raises(BadInput, match="has a box that counts; give another --split"):
            detection.evaluate(args)


def test_pictures_are_not_written_among_the_images(tmp_path, monkeypatch, capsys):
    of_run = (str(tmp_path), "detection")
    monkeypatch.setattr(arguments, "learned", lambda args, name: (args.weights, name) == of_run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    assert main(["predict", str(tmp_path), "photos", "--out=photos/preds.json"]) == 2
    assert "lies in photos" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), "photos", "--out=preds.csv"]) == 2
    assert "give --out=FILE.json" in capsys.readouterr().err


def test_frames_have_the_pixels_of_their_boxes():
    image = np.full((20, 30, 3), 128, np.uint8)
    box, colour = np.array([[3.0, 4, 12, 15]]), np.array([[255, 0, 0]], np.uint8)
    shown = colours.framed(image, box, colour)
    red = (shown == [255, 0, 0]).all(axis=-1)
    rows, columns = np.nonzero(red)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (3, 4, 11, 14)
    assert red.sum() == 2 * 9 + 2 * 9
    outside = np.array([[-5.0, -5, 99, 99], [4, 4, 4, 4]])
    assert colours.framed(image, outside, np.repeat(colour, 2, 0), ["a", "b"]).shape == image.shape
    assert (image == 128).all()


def detected(objects, names, worst=()) -> detection_page.Detected:
    figures = objects.figures()
    return detection_page.Detected(
        "run", "coco:x", "val", (32, 48), names, [*worst], "", len(objects), figures
    )


@pytest.mark.parametrize("classes", [1, 3, 20])
def test_page_and_json_of_an_evaluation(classes):
    names = tuple(f"<class {k}>" for k in range(classes))
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    objects, worst = Objects(classes), []
    for number in range(3):
        labels = rng.integers(0, max(1, classes - 1), 30)
        corners = rng.uniform(0, 30, (30, 2))
        true = boxed.truth(number, np.concatenate([corners, corners + 9], axis=1), labels,
                           ignored=labels == 1)  # fmt: skip
        found = boxed.perturbed(rng, true, classes)
        ap50 = objects.add(true, found)
        worst.append(detection_page.case(f"x{number}", ap50, image, true, found, names))
    one = detected(objects, names, worst)
    page, found = detection_page.page(one), detection_page.as_json(one)
    assert page.count("data:image/png") == 3
    assert "<svg" in page
    assert "<class 0>" not in page  # escaped
    assert ("7 classes of" in page) == (classes == 20)
    json.loads(json.dumps(found, allow_nan=False))
    assert found["AP50"] == objects.figures().coco["AP50"]
    if classes > 1:
        assert found["classes"][-1]["AP"] is None  # it never occurs
        assert found["classes"][1]["boxes"] == 0  # crowds
    assert "VOC_AP50" in detection_page.as_text(one)


def test_page_without_any_object():
    objects = Objects(2)
    objects.add(boxed.truth(1, [], []), boxed.detections([], [], []))
    one = detected(objects, ("a", "b"))
    assert detection_page.as_json(one)["AP"] is None
    assert "<svg" not in detection_page.page(one)
    assert "nan" not in detection_page.page(one)


@pytest.mark.integration
def test_commands_of_the_page(tmp_path, monkeypatch, capsys, digits_run):
    data = boxed.coco(tmp_path / "data")
    monkeypatch.chdir(tmp_path)

    def placed(words):
        text = "\n".join(words).replace("/path/to/instances", f"{data}/annotations/instances")
        text = text.replace("/path/to/photos", f"{data}/test")
        text = text.replace("FILE_OR_RUN", str(digits_run))
        return text.replace("=configs/", f"={ROOT}/configs/").split("\n")

    check, train, predict, evaluate = map(placed, commands())
    assert main(check) == 0
    assert "square" in capsys.readouterr().out
    longer = ["--config.length=60 steps", "--config.schedule.lr=0.01", "--config.trainable=all"]
    assert main([*train, *SHORT, *longer]) == 0
    assert "predict runs/det /path/to/images --out=" in capsys.readouterr().out
    results = json.loads(Path("runs/det/results.json").read_text())
    assert 0 <= results["val"]["ap50"] <= 1
    assert results["test"]["examples"] == 3

    assert main(predict) == 0
    found = json.loads(Path("runs/preds.json").read_text())
    assert found
    assert {one["image_id"] for one in found} <= {109, 110, 111}
    assert {one["category_id"] for one in found} <= {3, 7, 11}
    for path in (data / "test").iterdir():
        with Image.open(path) as image, Image.open(f"runs/preds_pictures/{path.name}") as picture:
            assert image.size == picture.size

    assert main(evaluate) == 0
    measured = json.loads(Path("runs/det_evaluation/evaluation.json").read_text())
    expected = by_pycocotools(data / "annotations/instances_test.json", "runs/preds.json", capsys)
    for name, value in zip(list(measured)[5:17], expected, strict=True):  # the same predictions
        assert measured[name] == pytest.approx(value, abs=1e-6) or value == -1, name
    assert "data:image/png" in Path("runs/det_evaluation/evaluation.html").read_text()
    more = ["--data", f"coco:{data}/annotations/instances_val.json", "--split=val"]
    assert main(["evaluate", "runs/det", *more]) == 0
    assert "AP_small" in capsys.readouterr().out
    refused(tmp_path, data, train, capsys, str(digits_run))


def by_pycocotools(true, found, capsys) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    own = COCO(str(true))
    evaluated = COCOeval(own, own.loadRes(str(found)), "bbox")
    evaluated.evaluate()
    evaluated.accumulate()
    evaluated.summarize()
    capsys.readouterr()
    return evaluated.stats.tolist()


def refused(tmp_path, data, train, capsys, digits_run):
    """What is refused, each with its reason."""
    run, image = "runs/det", f"{data}/test/0009.png"
    fresh = [word for word in train if "workdir" not in word and "source" not in word]
    assert main([*fresh, *SHORT, "--workdir=runs/other", "--config.data.source=digits"]) == 2
    assert "no boxes" in capsys.readouterr().err
    assert main(["predict", run, image]) == 2
    assert "--out=FILE.json" in capsys.readouterr().err
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    assert main(["predict", run, str(broken), image, "--out=runs/x.json"]) == 2
    assert "broken.png" in capsys.readouterr().err
    assert Path("runs/x.json").exists()
    for unused in ("--topk=3", "--names=x", "--heads=2", "--patch=8"):
        assert main(["predict", run, image, "--out=runs/x.json", unused]) == 2
        assert f"{unused.partition('=')[0]} has no use" in capsys.readouterr().err
    for unused in ("--classes=present", "--whole"):
        assert main(["evaluate", run, unused]) == 2
        assert f"{unused.partition('=')[0]} has no use" in capsys.readouterr().err
    file = data / "annotations/instances_test.json"
    content = json.loads(file.read_text())
    content["images"][0]["width"] += 1
    file.write_text(json.dumps(content))
    assert main(["evaluate", run]) == 2
    error = capsys.readouterr().err
    assert "0009.png has" in error
    assert "its boxes are for" in error
    (data / "train/0001.png").unlink()
    source = f"--config.data.source=coco:{data}/annotations/instances_train.json"
    assert main([*fresh, *SHORT, "--workdir=runs/other", source]) == 2
    error = capsys.readouterr().err
    assert "0001.png" in error
    assert "Traceback" not in error


@pytest.mark.integration
def test_discs_and_squares_are_found(tmp_path, capsys):
    """A small model from scratch; what predict writes of photographs is what evaluate measures."""
    data, run = (
        boxed.coco(tmp_path / "data", (("train", 60), ("val", 8), ("test", 12))),
        tmp_path / "run",
    )
    words = ["--config.length=250 steps", "--config.schedule.lr=3e-3", "--config.evals.val.every=0"]
    words += [f"--workdir={run}", f"--config.data.source=coco:{data}"]
    recipe = f"--config={ROOT}/configs/detect.py:model=Ti/4"
    assert main(["train", recipe, *SHORT, "--config.data.image_size=48x64", *SMALL, *words]) == 0
    assert main(["evaluate", str(run), f"--out={tmp_path}/e"]) == 0
    measured = json.loads((tmp_path / "e/evaluation.json").read_text())
    assert measured["AP50"] > 0.3
    assert not math.isnan(measured["VOC_AP50"])


@pytest.mark.integration
def test_crashed_run_continues_bit_for_bit(tmp_path):
    data, whole = boxed.yolo(tmp_path / "data"), tmp_path / "whole"
    recipe = f"--config={ROOT}/configs/detect.py:model=Ti/8"
    command = ["train", recipe, f"--config.data.source=yolo:{data}", *SHORT]
    command += ["--config.checkpoint.every=2 steps", *SMALL]
    command += ["--config.checkpoint.keep_last=3", "--config.model.drop_path=0.1"]
    assert main([*command, f"--workdir={whole}"]) == 0
    cut(whole, tmp_path / "cut")
    assert main([*command, f"--workdir={tmp_path}/cut"]) == 0
    assert_equal(whole, tmp_path / "cut")
