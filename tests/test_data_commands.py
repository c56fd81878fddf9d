# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""vit_jax data: check, show and the others."""

import dataclasses
import io
import json
import os
import re
import tarfile

import boxed
import numpy as np
import pictures
import pytest
from PIL import Image, ImageDraw
from test_segment_commands import masks_folder

from vit_jax.build import defaults
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.data import splits
from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.inspect import check, show
from vit_jax.data.inspect.colours import FIRST, font_of
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.storage import cache

# --- commands ---


@pytest.fixture
def images(tmp_path):
    return pictures.folder(tmp_path / "images", *[f"{c}/{i}.png" for c in "ab" for i in range(4)])


def run(capsys, *argv):
    code = main.main(["data", *map(str, argv)])
    said = capsys.readouterr()
    return code, said.out, said.err


# ---------------------------------------------------------------- check


def test_check_lists_every_bad_file_and_exits_with_2(images, capsys):
    (images / "a" / "text.jpg").write_text("not an image")
    (images / "b" / "empty.png").write_bytes(b"")
    whole = pictures.encode(pictures.smooth(40, 50), "JPEG")
    (images / "b" / "half.jpeg").write_bytes(whole[: len(whole) // 2])
    (images / "b" / "really_a.png").write_bytes(whole)
    code, out, _ = run(capsys, "check", f"folder:{images}", "--json")
    found = json.loads(out)
    assert code == 2
    assert set(found) == {"images", "classes", "bad"}
    assert (found["images"], found["classes"]) == (12, 2)
    assert {b["file"] for b in found["bad"]} == {"a/text.jpg", "b/empty.png", "b/half.jpeg"}
    assert all(b["reason"] for b in found["bad"])
    code, out, _ = run(capsys, "check", f"folder:{images}")
    assert code == 2
    assert "12 images in 2 classes, 3 bad" in out


def test_check_of_good_images_exits_with_0(images, capsys):
    code, out, _ = run(capsys, "check", f"folder:{images}", "--json", "--workers=2")
    assert code == 0
    assert json.loads(out) == {"images": 8, "classes": 2, "bad": []}


def test_check_of_a_name_says_what_is_missing(tmp_path, capsys):
    code, out, _ = run(capsys, "check", "vtab", f"--data_dir={tmp_path}", "--json")
    assert code == 2
    found = json.loads(out)["datasets"]
    assert len(found) == 16  # some of the 19 tasks share a dataset
    assert {need["state"] for need in found} == {"needs files"}
    for name in ("vtab:eurosat", "vtab:eurosat/full", "vtab/eurosat", "tfds:eurosat"):
        code, out, _ = run(capsys, "check", name, f"--data_dir={tmp_path}")
        assert code == 2
        assert "EuroSAT.zip  94280567 bytes  sha256 8ebea6" in out
        assert str(tmp_path) in out


def test_tasks_of_one_dataset_are_named_also_where_it_is_ready(tmp_path, capsys, monkeypatch):
    also = ("vtab/clevr_dist",)
    need = downloads.Need("vtab/clevr_count", "clevr:3.1.0", "ready", str(tmp_path), also=also)
    state = prepared.Prepared("clevr:3.1.0", str(tmp_path), "tfrecord", 8, {}, (), ())
    monkeypatch.setattr(downloads, "needs", lambda name, data_dir: [need])
    monkeypatch.setattr(prepared, "check", lambda folder: state)
    code, out, _ = run(capsys, "check", "vtab/clevr_count")
    assert code == 0
    assert "also vtab/clevr_dist" in out


def test_check_of_records_with_several_labels_takes_their_number(tmp_path, capsys):
    image = pictures.encode(pictures.noise(6, 6), "PNG")
    contents = [pictures.record(img=image, ks=[0, 1][:n]) for n in (1, 2, 2)]
    pictures.records(tmp_path / "x.tfrecord", contents)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    keys = ["--image_key=img", "--label_key=ks"]
    assert run(capsys, "check", f"records:{tmp_path}", *keys)[0] == 2
    code, out, _ = run(capsys, "check", f"records:{tmp_path}", *keys, "--max_labels=2", "--json")
    assert code == 0
    assert json.loads(out) == {"images": 3, "classes": 2, "bad": []}


def test_check_takes_every_kind_of_source(capsys):
    assert run(capsys, "check", "digits")[:2] == (0, "1797 images in 10 classes, 0 bad\n")


def test_name_of_a_bad_file_may_be_any_bytes(images, capsys):
    (images / "a" / os.fsdecode(b"\xff.png")).write_bytes(b"")
    code, out, _ = run(capsys, "check", f"folder:{images}")
    assert code == 2
    assert "a/\\udcff.png: " in out


# ---------------------------------------------------------------- show


def test_show_writes_a_picture(images, tmp_path, capsys):
    out = tmp_path / "sheet.png"
    args = ["show", f"folder:{images}", f"--out={out}", "--size=6", "--ops=decode|flip_lr"]
    assert run(capsys, *args) == (0, f"{out}\n", "")
    first = out.read_bytes()
    sheet = np.asarray(Image.open(io.BytesIO(first)))
    assert sheet.shape[1] > 600
    assert len(np.unique(sheet)) > 100
    run(capsys, *args)
    assert out.read_bytes() == first
    run(capsys, *args, "--seed=1")
    assert out.read_bytes() != first


@pytest.mark.integration
@pytest.mark.parametrize("recipe, field", [("segment", "mask"), ("detect", "boxes")])
def test_sheet_of_a_recipe_has_the_batch_of_its_run(tmp_path, monkeypatch, recipe, field):
    """The same crops, flips and colours of image, mask and boxes, in the order of training."""
    if recipe == "segment":
        source = f"masks:{masks_folder(tmp_path / 'data')}"
    else:
        source = f"coco:{boxed.coco(tmp_path / 'data')}"
    given = [f"--config.data.source={source}", "--config.seed=5", "--config.batch_size=24"]
    spec = f"vit_jax:{recipe}:size=32x48,{'backbone=full' if recipe == 'segment' else 'small=true'}"
    shown = []
    monkeypatch.setattr(show, "sheet", lambda pipe, *_, **told: shown.append((pipe, told)) or b"x")
    out = f"--out={tmp_path}/sheet.png"
    assert main.main(["data", "show", f"--config={spec}", *given, out]) == 0
    ((pipe, told),) = shown
    batch = next(dataclasses.replace(pipe, batch_size=told["rows"] * told["columns"]).train(0, 1))
    run_ = build.build(defaults.settle(config_lib.load(spec, given)))
    trained = next(run_.train_pipeline.train(0, 1))
    assert told["chain"] == run_.config.data.train_ops
    for key in ("image", field):
        np.testing.assert_array_equal(batch[key], trained[key][:, : batch[key].shape[1]])
    assert batch["image"].shape == (24, 32, 48, 3)


@pytest.mark.parametrize(
    "spec, more, side, chain",
    [
        ("quickstart", {"data.device_ops": "random_crop({size})"}, 12, "decode|resize(12)"),
        ("contrastive", {"data.image_size": "8"}, 8, "view*2: "),
    ],
    ids=["device_ops", "views"],
)
def test_sheet_of_a_recipe_has_what_the_host_makes(tmp_path, monkeypatch, spec, more, side, chain):
    """Images before the ops of the step, and the first of several views."""
    keys = {"data.source": "digits", "data.train_ops": "decode|resize(12)", **more}
    shown = []
    monkeypatch.setattr(show, "sheet", lambda pipe, *_, **told: shown.append((pipe, told)) or b"x")
    given = [f"--config.{key}={value}" for key, value in keys.items()]
    command = ["data", "show", f"--config=vit_jax:{spec}", *given, f"--out={tmp_path}/sheet.png"]
    assert main.main(command) == 0
    ((pipe, told),) = shown
    assert next(pipe.train(0, 1))["image"].shape == (1, side, side, 3)
    assert pipe.image_size == (side, side)
    assert told["chain"].startswith(chain)


@pytest.mark.parametrize(
    "more, parts",
    [
        (["--ops=decode"], ["--ops has no use with --config", "--config.data.train_ops"]),
        (["--config.data.sauce=x"], ["data.sauce"]),
        (["--config.data.source=masks:/nowhere"], ["/nowhere", "does not exist"]),
        (["digits", "--config.data.source=masks:/nowhere"], ["both SOURCE and --config.data.s"]),
    ],
)
def test_sheet_of_a_recipe_refuses(capsys, more, parts):
    code, _, said = run(capsys, "show", "--config=vit_jax:segment:backbone=full", *more)
    assert code == 2
    assert [part for part in parts if part not in said] == []


@pytest.mark.parametrize(
    "spec, lacks",
    [
        ("segment:size=32,backbone=full", "have no mask, which the recipe trains on"),
        ("detect:size=32,small=true", "have no boxes and no box_classes, which the recipe"),
        ("quickstart", ""),
    ],
)
def test_sheet_without_what_the_recipe_trains_on_says_so(images, tmp_path, capsys, spec, lacks):
    given = [
        "--config.data.train_ops=decode|resize({size})",
        f"--config.data.source=folder:{images}",
    ]
    out = f"--out={tmp_path}/sheet.png"
    code, _, said = run(capsys, "show", f"--config=vit_jax:{spec}", *given, out)
    assert code == 0
    assert (lacks in said) if lacks else (said == "")
    assert (tmp_path / "sheet.png").exists()


def test_other_actions_take_no_keys_of_a_recipe(capsys):
    for args in (["show", "digits", "--config.seed=1"], ["check", "digits", "--config.seed=1"]):
        code, _, said = run(capsys, *args)
        assert code == 2
        assert f"data {args[0]} takes no '--config.seed=1'" in said
        assert ("without --config=FILE" in said) == (args[0] == "show")
        assert f"an example: vit_jax data {args[0]} " in said
    assert "needs a SOURCE" in run(capsys, "show")[2]


# ---------------------------------------------------------------- prepare


def test_what_is_prepared_is_checked_and_trained_on(images, tmp_path, capsys):
    to = f"--data_dir={tmp_path / 'sets'}"
    code, out, _ = run(capsys, "prepare", "mine", f"--from={images}", to)
    assert code == 0
    assert "tfds:mine" in out
    code, out, _ = run(capsys, "check", "tfds:mine", to, "--json", "--offline")
    assert code == 0
    [found] = json.loads(out)["datasets"]
    assert found["splits"]["train"]["records"] == 8
    assert found["problems"] == []
    code, out, _ = run(capsys, "prepare", "mine", f"--from={images}", to)
    assert code == 0
    assert "already" in out


# ---------------------------------------------------------------- bad input


@pytest.fixture(autouse=True)
def _network_is_as_it_was(monkeypatch):
    for name in ("VIT_JAX_OFFLINE", "NO_GCE_CHECK", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("argv", [("--offline", "check"), ("check", "--offline")])
def test_offline_is_heard_before_and_after_the_action(images, capsys, argv):
    assert cache.may_download()
    assert run(capsys, *argv, f"folder:{images}")[0] == 0
    assert not cache.may_download()


@pytest.mark.parametrize(
    "argv, parts",
    [
        (["check", "floder:/x"], ["'floder:/x'", "folder"]),
        (["check", "folder:"], ["folder:PATH"]),
        (["check", "folder:/no/such"], ["/no/such", "does not exist"]),
        (["check", "imagenet2013"], ["imagenet2013", "imagenet2012"]),
        (["show", "digits", "--size=0"], ["--size=0", "1 to 4096"]),
        (["show", "digits", "--ops=decode|spin"], ["--ops", "'spin'", "flip_lr"]),
        (["show", "digits", "--ops=decode|resize(8)", "--size=9"], ["size"]),
        (
            ["show", "digits", "--size=8", "--ops=decode", "--out=/proc/none/x.png"],
            ["--out=/proc/none/x.png cannot be written"],
        ),
        (["show", "digits", "--out=-"], ["--out=- is not a path"]),
        (["bench", "digits"], ["pixels"]),
        (["check", "digits", "--workers=-1"], ["--workers=-1"]),
        (["prepare", "mine", "--from=/no/such"], ["/no/such"]),
        (["prepare", "imagenet21k", "--from=/"], ["--release", "winter21", "fall11"]),
    ],
)
def test_bad_input_is_one_message(tmp_path, monkeypatch, capsys, argv, parts):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("vit_jax:") == 1
    assert [p for p in parts if p not in err] == []
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- its pages


def test_chains_of_the_page_have_the_published_sizes(root):
    text = (root / "docs" / "preprocessing.md").read_text()
    rows = re.findall(r"^\| `(decode\\.*?)` \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for chain, of in rows:
        sizes = [int(n) for n in re.findall(r"\b(224|256|384|448)\b", of)]
        size = 224 if 224 in sizes else 384
        ops = preprocess.parse("k", chain.replace("\\|", "|"), size)
        made = [op.size for op in ops if hasattr(op, "size")]
        assert made[-1] == size
        assert set(sizes) <= set(made)


def test_the_pages_list_every_source_and_every_op(root):
    from vit_jax.data.sources import registry as sources

    text = (root / "docs" / "data.md").read_text()
    for usage, _ in sources.KINDS.values():
        assert f"`{usage.partition(':')[0]}" in text
    text = (root / "docs" / "preprocessing.md").read_text()
    for name in preprocess.OPS:
        assert re.search(rf"`{name}[(`|]", text), name


# --- check ---


def opened(spec, **percents):
    return sources.open_source(
        spec, Options(), **({"val_percent": 0, "test_percent": 0} | percents)
    )


BAD = {
    "a/empty.jpg": (b"", "empty"),
    "b/text.png": (b"words", "no image"),
    "b/half.jpg": (pictures.encode(pictures.noise(20, 20), "JPEG")[:400], "runcated"),
}


@pytest.fixture
def folder(tmp_path):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "abc" for i in range(4)))
    (tmp_path / "c" / "really.png").write_bytes(pictures.encode(pictures.smooth(9, 9), "WEBP"))
    for name, (content, _) in BAD.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("percent", [0, 30])
def test_every_bad_file_is_named_with_a_reason(folder, workers, percent):
    """However the images are divided into splits."""
    source = opened(f"folder:{folder}", val_percent=percent, test_percent=percent)
    report = check.check_images(source, workers)
    assert (report.images, report.classes) == (16, 3)  # 12, one with another name, and the bad
    assert [file for file, _ in report.bad] == sorted(BAD)
    assert all(BAD[file][1] in reason for file, reason in report.bad)


def test_splits_that_share_examples_are_counted_once(tmp_path):
    root = pictures.folder(tmp_path, *(f"{p}/{c}/1.png" for p in ("train", "val") for c in "ab"))
    (root / "val" / "a" / "1.png").write_bytes(b"")
    source = opened(f"folder:{root}")
    assert {"test", "validation", "val"} & source.splits.keys()
    report = check.check_images(source, 2)
    assert report.images == 4
    assert report.bad == (("val/a/1.png", "the file is empty"),)


def test_report_as_json_and_as_text(folder):
    report = check.check_images(opened(f"folder:{folder}"), 2)
    found = json.loads(json.dumps(report.as_json()))
    assert found["images"] == 16
    assert found["classes"] == 3
    assert found["bad"][0] == {"file": "a/empty.jpg", "reason": "the file is empty"}
    lines = report.as_text().splitlines()
    assert lines[0] == "16 images in 3 classes, 3 bad"
    assert lines[1] == "  a/empty.jpg: the file is empty"


def test_a_file_that_is_gone_is_bad(folder):
    source = opened(f"folder:{folder}")
    (folder / "a" / "0.png").unlink()
    report = check.check_images(source, 1)
    assert report.bad[0][0] == "a/0.png"
    reason = report.bad[0][1]
    assert reason.startswith("cannot be read: /")
    assert reason.endswith("a/0.png; No such file or directory"), "no names of nodes"


def test_an_error_that_quotes_bytes_is_a_reason():
    def read(index):
        raise UnicodeDecodeError("utf-8", b"record \xff is damaged", 7, 8, "invalid start byte")

    reasons, *_ = check._examined(decode.Decode(), read, None, None, ("a", "b"), 0)
    assert reasons == ["cannot be read: record \ufffd is damaged"]


def test_progress_counts_every_image(folder):
    seen = []
    check.check_images(opened(f"folder:{folder}"), 2, lambda *x: seen.append(x))
    assert seen == [(i, 16) for i in range(1, 17)]


def test_images_stored_as_pixels_are_good():
    report = check.check_images(opened("digits", val_percent=10, test_percent=10), 2)
    assert (report.images, report.classes, report.bad) == (1797, 10, ())


def test_many_images_do_not_wait_in_memory():
    running, most = set(), []

    class Threads:
        def submit(self, function, value):
            running.add(value)
            most.append(len(running))
            return type("Done", (), {"result": lambda self: running.remove(value) or value})()

    assert list(check._ordered(Threads(), str, range(100), ahead=5)) == list(range(100))
    assert max(most) == 6


def test_of_the_odd_real_files_those_that_pillow_refuses_are_bad(tmp_path, data_dir):
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        for member in tar:
            if member.isfile() and not member.name.endswith(".csv"):
                name = member.name.split("/")[-1]
                path = tmp_path / "ab"[len(name) % 2] / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
    report = check.check_images(opened(f"folder:{tmp_path}"), 2)
    assert report.images == 66
    assert len(report.bad) == 11
    assert any("bogus-empty-jfif" in file for file, _ in report.bad), "TensorFlow would take it"


# --- show ---


NAMES = [f"class {i}" for i in range(20)]


@pytest.fixture
def written(monkeypatch):
    """Every text that is drawn, with the box it fills."""
    texts, draw_text = [], ImageDraw.ImageDraw.text

    def text(self, xy, text, fill, font):
        texts.append((text, self.textbbox(xy, text, font=font)))
        draw_text(self, xy, text, fill, font)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    return texts


def sheet(size=4, names=NAMES, rows=2, columns=3, examples=20, source="folder:x", chain="decode"):
    pipe = pictures.batches(pictures.split(examples, size), chain, image_size=size)
    data = show.sheet(pipe, names, source=source, chain=chain, rows=rows, columns=columns)
    page = Image.open(io.BytesIO(data))
    assert (page.format, page.mode) == ("PNG", "RGB")
    return page, pipe


def tiles(page, rows, columns, side):
    """uint8 [rows * columns, side, side, 3], from the layout: margins of 12, lines of 21."""
    pixels = np.asarray(page)
    top = pixels.shape[0] - rows * (side + 21 + 12)
    return np.stack(
        [
            pixels[y : y + side, x : x + side]
            for y in (top + row * (side + 33) for row in range(rows))
            for x in (12 + column * (side + 12) for column in range(columns))
        ]
    )


@pytest.mark.parametrize(
    "size, factor, chain",
    [(4, 56, "flip_lr|color_jitter(0.5)"), (100, 2, "decode"), (224, 1, "decode")],
)
def test_images_are_the_first_of_training_enlarged_by_a_whole_number(size, factor, chain):
    page, pipe = sheet(size, rows=2, columns=2, chain=chain)
    first = next(dataclasses.replace(pipe, batch_size=4).train(0, 1))["image"]
    wanted = first.repeat(factor, axis=1).repeat(factor, axis=2)
    assert (tiles(page, 2, 2, size * factor) == wanted).all()


def test_large_images_are_shrunk():
    page, pipe = sheet(300, rows=1, columns=2, examples=3)
    assert page.width == 2 * (224 + 12) + 12
    image = next(dataclasses.replace(pipe, batch_size=1).train(0, 1))["image"][0]
    wanted = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.LANCZOS))
    assert (tiles(page, 1, 2, 224)[0] == wanted).all()


def test_images_of_any_aspect_ratio_are_drawn_whole():
    ramp = np.zeros((1, 8, 32, 3), np.uint8) + np.arange(32, dtype=np.uint8)[None, None, :, None]
    split = splits.of_arrays("a", ramp, np.zeros((1, 1), np.int32))
    pipe = pictures.batches(split, "naflex(16, 4)", image_size=16)
    data = show.sheet(pipe, ["a"], source="a", chain="", rows=1, columns=1)
    tile = tiles(Image.open(io.BytesIO(data)), 1, 1, 224)[0]
    assert (tile[56:] == 255).all()  # 4 patches for each row of them
    assert (np.diff(tile[:56, :, 0].astype(int), axis=1) >= 0).all()
    assert tile[0, 223, 0] > 28


def test_sheet_shows_masks_and_boxes():
    grey = np.full((2, 8, 8, 3), 100, np.uint8)
    mask = np.full((2, 8, 8), -1, np.int32)
    mask[0, 2:, :] = 1
    boxes = np.array([[[0, 0, 0, 0]], [[2, 0, 8, 4]]], np.float32)
    kinds = np.array([[-1], [0]], np.int32)
    labels = np.zeros((2, 1), np.int32)
    split = splits.of_arrays("a", grey, labels, mask=mask, boxes=boxes, box_classes=kinds)
    pipe = pictures.batches(split, image_size=8, fields=None)
    page = Image.open(io.BytesIO(show.sheet(pipe, ["a"], source="a", chain="", rows=1, columns=2)))
    drawn = tiles(page, 1, 2, 224).reshape(-1, 3)
    values, counts = np.unique(drawn, axis=0, return_counts=True)
    colours = dict(zip(map(tuple, values.tolist()), counts.tolist(), strict=True))
    blue, orange = FIRST[1].astype(int), FIRST[0].astype(int)
    tile = 224 * 224
    assert colours[tuple((100 + blue) // 2)] == tile * 6 // 8
    assert colours[tuple(orange)] == 2 * 2 * (168 + 112) - 4 * 4  # a frame, two pixels wide
    assert colours[(100, 100, 100)] == tile * 2 // 8 + tile - colours[tuple(orange)]


def test_sheet_has_a_legend_of_the_classes_that_are_drawn(written):
    grey = np.full((1, 8, 8, 3), 100, np.uint8)
    mask = np.zeros((1, 8, 8), np.int32)
    mask[0, 4:] = 2
    labels = np.full((1, 1), -1, np.int32)
    pipe = pictures.batches(
        splits.of_arrays("a", grey, labels, mask=mask), image_size=8, fields=None
    )
    for names, shown in ((["background", "b", "Straße"], [2]), (["Himmel", "b", "c"], [0, 2])):
        written.clear()
        data = show.sheet(pipe, names, source="a", chain="", rows=1, columns=1)
        pixels = np.asarray(Image.open(io.BytesIO(data)))
        assert [text for text, _ in written if text in names] == [names[k] for k in shown]
        for label in shown:
            left = next(box[0] for text, box in written[::-1] if text == names[label])
            assert (pixels[-12 - 22, 12 + int(left) - 8] == FIRST[label]).all()


def test_sheet_has_the_colours_of_the_data():
    own = np.array([[1, 2, 3], [250, 100, 50]], np.uint8)
    mask = np.ones((1, 8, 8), np.int32)
    grey, labels = np.full((1, 8, 8, 3), 100, np.uint8), np.full((1, 1), -1, np.int32)
    split = splits.of_arrays("a", grey, labels, mask=mask)
    table = dataclasses.replace(split.table, colours=lambda: own)
    pipe = pictures.batches(dataclasses.replace(split, table=table), image_size=8, fields=None)
    data = show.sheet(pipe, ["sky", "sea"], source="a", chain="", rows=1, columns=1)
    drawn = {tuple(pixel) for pixel in np.asarray(Image.open(io.BytesIO(data))).reshape(-1, 3)}
    assert {(175, 100, 75), (250, 100, 50)} <= drawn  # over the image, and in the legend


@pytest.mark.parametrize("letters", ["éßäñ", "ЖΩšł"])
def test_letters_outside_of_ascii_are_drawn(letters):
    font = font_of(14)
    drawn = {font.getmask(letter).getbbox() and bytes(font.getmask(letter)) for letter in letters}
    assert len(drawn) == len(letters)
    assert bytes(font.getmask("\uffff")) not in drawn  # the sign of a letter that is lacking


def test_sheet_is_the_same_each_time_and_another_with_another_seed():
    pages = [np.asarray(sheet()[0]) for _ in range(2)]
    assert (pages[0] == pages[1]).all()
    pipe = pictures.batches(pictures.split(20), seed=2)
    other = show.sheet(pipe, NAMES, source="folder:x", chain="decode", rows=2, columns=3)
    assert (np.asarray(Image.open(io.BytesIO(other))) != pages[0]).any()


def test_heading_and_a_name_for_each_image(written):
    _, pipe = sheet(source="folder:/data/birds", chain="decode|flip_lr", rows=2, columns=3)
    labels = next(dataclasses.replace(pipe, batch_size=6).train(0, 1))["labels"][:, 0]
    assert [text for text, _ in written] == [
        "folder:/data/birds: 20 training examples, 20 classes",
        "decode|flip_lr",
        *(f"class {k}" for k in labels),
    ]


@pytest.mark.parametrize("columns", [1, 3])
def test_no_text_is_cut_off_or_lies_on_another(written, columns):
    names = ["n" * 500, "W" * 40, "two words " * 9, "short"] * 5
    source = "csv:/a/folder/" + "x" * 300 + "/with spaces in it/table.csv"
    chain = "|".join(["decode", *["affine(10, 0.1, 2)"] * 9])
    page, _ = sheet(names=names, columns=columns, source=source, chain=chain)
    heading = len(written) - 2 * columns
    assert "".join(text for text, _ in written[:heading]) == (
        source + ": 20 training examples, 20 classes" + chain
    )
    for number, (_, (left, top, right, bottom)) in enumerate(written):
        assert left >= 12 - 1
        assert right <= page.width - 12 + 1
        assert top >= 12
        assert bottom <= page.height
        if number >= heading:
            column = (number - heading) % columns
            assert right <= 12 + column * 236 + 224 + 1
        elif number:
            assert top >= written[number - 1][1][3] - 1
    for text, _ in written[heading:]:
        assert any(text == n or (text[-1] == "…" and n.startswith(text[:-1])) for n in names)
        assert len(text) > 4


def test_several_labels_or_none_and_names_of_odd_characters(written):
    split = pictures.split(8)
    labels = np.int32([[0, 1], [2, -1], [-1, -1], [3, -1]] * 2)

    def reader():
        read = split.table.reader()
        return lambda row: (read(row)[0], tf.gather(tf.constant(labels), row))

    table = dataclasses.replace(split.table, reader=reader)
    pipe = pictures.batches(dataclasses.replace(split, table=table))
    names = ["cat", "dog", "a\nb\tc", "x\x00\udcff"]
    show.sheet(pipe, names, source="s", chain="decode", rows=2, columns=4)
    assert {text for text, _ in written[2:]} == {"cat, dog", "a b c", "(no label)", "x??"}


def test_more_images_than_examples_begin_again():
    page, _ = sheet(examples=3, rows=2, columns=3)
    shown = {tile.tobytes() for tile in tiles(page, 2, 3, 224)}
    assert len(shown) == 3


def test_heading_is_broken_between_ops(written):
    chain = "|".join(["decode", *["affine(10, 0.1)"] * 9])
    sheet(chain=chain, source="s", columns=1)
    lines = [text for text, _ in written[:-2]]
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith("decode")) :]
    assert "".join(lines) == chain
    assert len(lines) > 3
    assert {line[-1] for line in lines[:-1]} == {"|"}
