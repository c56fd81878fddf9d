# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""data.reader=python makes the batches of tf.data, in processes that end when they should."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import boxed
import numpy as np
import own_ops
import pictures
import pytest
from opened_sources import opened
from PIL import Image
from test_segment_commands import masks_folder

from vit_jax.data import readers
from vit_jax.data.example import BOXES
from vit_jax.data.numpy_ops import chain as numpy_chain
from vit_jax.data.numpy_ops import decode as numpy_decode
from vit_jax.data.ops import chain
from vit_jax.data.python_reader import pool
from vit_jax.data.splits import split as splits_lib
from vit_jax.data.splits import windows
from vit_jax.errors import BadInput


def pipes(split, ops="decode|resize({size})", size=(8, 8), channels=3, views="", **changes):
    """The pipelines of both readers, tf first."""
    settings = {"batch_size": 6, "seed": 3, "workers": 2, "prefetch": 1} | changes
    return [
        readers.pipeline_of(reader)(
            split, chain.parse("ops", ops, size, channels), image_size=size, channels=channels,
            views=chain.parse_views("data.views", views, size, channels), **settings,
        )
        for reader in ("tf", "python")
    ]  # fmt: skip


def same(expected, made):
    """Compares two batches: images within one grey level, all else exactly."""
    assert expected.keys() == made.keys()
    for key, x in expected.items():
        assert (x.dtype, x.shape) == (made[key].dtype, made[key].shape), key
        if x.dtype == np.uint8:
            assert abs(x.astype(int) - made[key]).max() <= 1, key
        else:
            assert (x == made[key]).all(), key


def folder(root, *bad):
    """Two classes of nine JPEG files; files in `bad` are not images."""
    root.mkdir(exist_ok=True)
    for number in range(18):
        path = root / "ab"[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        image = pictures.noise(20 + number, 30, seed=number)
        path.write_bytes(b"no image" if number in bad else pictures.encode(image, "JPEG"))
    return root


def records(root):
    """The images of `folder` in two TFRecord files."""
    paths = sorted(root.glob("?/*.jpg"))
    contents = [
        pictures.record(image=p.read_bytes(), label=p.parent.name, text=["t", p.name])
        for p in paths
    ]
    pictures.records(root / "a.tfrecord", contents[:7])
    pictures.records(root / "b.tfrecord", contents[7:])
    (root / "labels.txt").write_text("a\nb\n")
    return root


AUGMENTED = "decode|inception_crop({size})|flip_lr|shift(2)"


@pytest.mark.integration
@pytest.mark.parametrize(
    "spec, ops",
    [
        ("digits", "affine(10, 0.1, 0.7)"),
        ("folder", AUGMENTED),
        ("mix", AUGMENTED),
        ("synthetic:pets", "random_crop({size})"),
        ("records", AUGMENTED),
    ],
)
def test_batches_are_those_of_tensorflow(tmp_path, spec, ops):
    files = f"folder:{folder(tmp_path)}"
    specs = {
        "folder": files,
        "mix": f"mix:3*{files},1*digits",
        "records": f"records:{records(tmp_path)}/*.tfrecord",
    }
    source = opened(specs.get(spec, spec), val=10)
    tf, python = pipes(source.split("train"), ops)
    assert tf.shapes() == python.shapes()
    for expected, made in zip(tf.train(5, 12), python.train(5, 12), strict=True):  # two epochs
        same(expected, made)
    some = pipes(splits_lib.Split(tf.split.table, np.arange(8, 16)), ops)
    for expected, made in zip(*(pipe.evaluation() for pipe in some), strict=True):
        same(expected, made)  # the last batch has padding


def test_texts_of_records_and_a_continued_run_are_those_of_tensorflow(tmp_path):
    root = records(folder(tmp_path))
    split = opened(f"records:{root}/*.tfrecord", text_key="text").split("train")
    tf, python = pipes(split, fields=None)
    whole = list(python.train(0, 6))
    for expected, made in zip(tf.train(0, 6), whole, strict=True):
        same(expected, made)
    assert whole[0]["text"][0].startswith(b"t\n")
    for a, b in zip(whole[4:], python.train(4, 6), strict=True):
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_views_texts_and_rows_of_a_process_are_those_of_tensorflow():
    images = np.stack([pictures.noise(12, 12, seed=i) for i in range(5)])
    texts = np.array([f"text {i}" for i in range(5)], object)
    split = splits_lib.of_arrays("a", images, np.arange(5, dtype=np.int32)[:, None], text=texts)
    views = (
        "image: decode|random_crop({size}) ; small*3: decode|inception_crop(4)|color_jitter(0.4)"
    )
    tf, python = pipes(split, views=views, fields=None)
    assert sorted(tf.field_names) == sorted(python.field_names)
    rows = range(2, 5)
    for expected, made in zip(tf.train(1, 4, rows), python.train(1, 4, rows), strict=True):
        same(expected, made)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["coco", "yolo", "masks", "mix", "synthetic:voc"])
def test_masks_and_boxes_in_batches_are_those_of_tensorflow(tmp_path, kind):
    """Masks are exactly those, boxes up to rounding."""
    if kind == "masks":
        spec = f"masks:{masks_folder(tmp_path)}"
    elif kind == "mix":
        parts = (boxed.coco(tmp_path / "a"), boxed.coco(tmp_path / "b", first=40))
        spec = "mix:" + ",".join(f"1*coco:{part}" for part in parts)
    else:
        spec = kind if ":" in kind else f"{kind}:{getattr(boxed, kind)(tmp_path)}"
    moving = ("mask",) if kind in ("masks", "synthetic:voc") else ("boxes", "box_classes")
    ops = "decode|scale_jitter({size}, 0.5, 1.5)|flip_lr|color_jitter(0.2)"
    split = opened(spec).split("train")
    most = {} if "mask" in moving else {"most_boxes": 9}
    tf, python = pipes(split, ops, (16, 24), fields=("image", "labels", *moving), **most)
    assert tf.shapes() == python.shapes()
    for expected, made in zip(tf.train(0, 3), python.train(0, 3), strict=True):
        if most:
            np.testing.assert_allclose(made["boxes"], expected.pop("boxes"), atol=1e-4)
            del made["boxes"]
        same(expected, made)


@pytest.mark.parametrize("kind", ["boxes", "mask"])
def test_an_image_with_a_mask_or_boxes_of_another_size_is_bad(tmp_path, kind):
    """Both readers replace the same image for the same reason."""
    if kind == "mask":
        root = masks_folder(tmp_path)
        Image.new("L", (5, 4)).save(root / "masks/train/0.png")
        spec, fields, said = f"masks:{root}", ("image", "mask"), "the mask has 5 x 4 pixels"
    else:
        file = boxed.coco(tmp_path) / "annotations/instances_train.json"
        file.write_text(re.sub(r'"width": \d+', '"width": 7', file.read_text(), count=1))
        spec, fields, said = f"coco:{file}", ("image", *BOXES), "its boxes are for 7 x"
    split = opened(spec).split("train")
    with pytest.raises(BadInput, match=f"cannot be decoded: .*{said}"):
        list(pipes(split, fields=fields)[1].train(0, 2))
    tf, python = pipes(split, fields=fields, bad_images="skip")
    same(next(tf.train(0, 1)), next(python.train(0, 1)))
    assert python.skipped == tf.skipped
    assert said in python.skipped[0][1]


def test_a_continued_run_reads_the_same_batches(tmp_path):
    _, pipe = pipes(opened(f"folder:{folder(tmp_path)}").split("train"), AUGMENTED)
    whole, end = list(pipe.train(0, 7)), list(pipe.train(4, 7))
    for a, b in zip(whole[4:], end, strict=True):
        assert all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.integration
def test_bad_images_end_the_run_or_are_replaced_by_the_next(tmp_path):
    split = opened(f"folder:{folder(tmp_path, 0, 2, 3, 17)}").split("train")
    for pipe in pipes(split, AUGMENTED):
        with pytest.raises(
            BadInput, match=r"[ab]/\d\d.jpg cannot be decoded: no image .*skip leaves"
        ):
            list(pipe.train(0, 3))
        with pytest.raises(BadInput, match=r"a/00.jpg cannot be decoded: no image .* the file\.$"):
            list(pipe.evaluation())
    tf, python = pipes(split, AUGMENTED, bad_images="skip")
    for expected, made in zip(tf.train(0, 7), python.train(0, 7), strict=True):
        same(expected, made)
    assert sorted(python.skipped) == sorted(tf.skipped)
    assert len(python.skipped) == 4
    same(tf.probe(), python.probe())


def test_a_bad_image_in_several_batches_that_are_read_at_once_has_one_replacement(tmp_path):
    split = opened(f"folder:{folder(tmp_path, 2)}").split("train")
    tf, python = pipes(split, bad_images="skip", prefetch=6)  # 42 images, more than two epochs
    whole = list(python.train(0, 10))
    for expected, made in zip(tf.train(0, 10), whole, strict=True):
        same(expected, made)
    assert python.skipped == tf.skipped
    for a, b in zip(whole[5:], python.train(5, 10), strict=True):
        assert np.array_equal(a["image"], b["image"])


def test_a_dead_worker_would_be_at_the_replacement(tmp_path, monkeypatch):
    split = opened(f"folder:{folder(tmp_path, 2)}").split("train")
    names, begin = [], pool.Job.__init__

    def begun(job, *args):
        names.append(args[-1])
        begin(job, *args)

    monkeypatch.setattr(pool.Job, "__init__", begun)
    _, pipe = pipes(split, batch_size=18, workers=1, bad_images="skip")
    batches = pipe.train(0, 9)
    for _ in range(3):
        next(batches)
    read = [names[0](3 * 4, row) for row in range(18)]  # each batch has four messages
    expected = [split.name(index) for index in range(18) if split.name(index) != "a/02.jpg"]
    assert sorted(read) == sorted([*expected, "a/04.jpg"])


def test_each_of_many_bad_images_is_decoded_a_few_times(tmp_path, monkeypatch):
    split = opened(f"folder:{folder(tmp_path, *range(0, 18, 2))}").split("train")
    decoded, pixels = [], numpy_decode.pixels
    monkeypatch.setattr(numpy_decode, "pixels", lambda *args: decoded.append(args) or pixels(*args))
    _, pipe = pipes(split, bad_images="skip")
    list(pipe.train(0, 6))
    assert len(pipe.skipped) == 9
    assert len(decoded) <= 3 * 9  # replaced and, for each row of a batch that fails, decoded


def test_a_file_that_is_gone_or_too_small_is_named(tmp_path):
    split = opened(f"folder:{folder(tmp_path)}").split("train")
    with pytest.raises(BadInput, match=r"a/00.jpg does not go through Decode.CentralCrop: 30 x 20"):
        list(pipes(split, "decode|central_crop(24)", size=(24, 24))[1].evaluation())
    (tmp_path / "b" / "07.jpg").unlink()
    with pytest.raises(BadInput, match=r"b/07.jpg cannot be read: No such file or directory"):
        list(pipes(split)[1].evaluation())


def test_a_blur_of_files_stands_after_an_op_that_sets_the_size(tmp_path):
    split = opened(f"folder:{folder(tmp_path)}").split("train")
    for pipe in pipes(split, "decode|gaussian_blur|resize({size})"):
        with pytest.raises(BadInput, match=r"put it after an op that sets the size, e\.g\."):
            pipe.probe()


def test_what_only_tensorflow_does_is_one_message():
    digits = opened("digits").split("train")
    alone = splits_lib.Split(splits_lib.Table(4, lambda row: f"x/{row}", lambda: None), range(4))
    with pytest.raises(BadInput, match=r"such as x/0; set --config.data.reader=tf"):
        pipes(alone)[1].probe()
    with pytest.raises(BadInput, match=r"data.cache=raw needs data.reader=tf"):
        pipes(digits)[1].cached("raw")
    fields = {"image": np.zeros([8, 8, 3], np.uint8), "mask": np.zeros([8, 8], np.int32)}
    with pytest.raises(BadInput, match=r"op Turned moves masks and boxes with .*reader=tf"):
        numpy_chain.apply_to_fields((own_ops.Turned(),), fields, (0, 0))
    windowed = windows.Windowed(digits.table, digits.rows, np.array([0, 5]), 2)
    with pytest.raises(BadInput, match=r"window_shards=2 .*reader=tf"):
        next(pipes(windowed)[1].train(0, 1))
    with pytest.raises(BadInput, match=r"gives uint8 \[8, 8, 3\], expected uint8 \[9, 9, 3\]"):
        pipes(digits, "decode", size=(9, 9))[1].probe()
    with pytest.raises(BadInput, match="begins with Resize, and images are files"):
        numpy_chain.apply(chain.parse("ops", "resize(4)", 4), b"a file", (0, 0))


# ---------------------------------------------------------------- processes


_READ = """
import itertools, os, sys, time
from vit_jax.data import readers
from vit_jax.data.numpy_ops import chain as numpy_chain
from vit_jax.data.ops import chain
from vit_jax.data.python_reader import pool
from vit_jax.data.sources import registry
from vit_jax.data.sources.source import Options
if __name__ == "__main__":
    split = registry.open_source("digits", Options(), val_percent=0, test_percent=0).split("train")
    pipe = readers.pipeline_of("python")(
        split, chain.parse("ops", "resize(500)|resize(8)", 8), 64, 0, (8, 8), 2, 1
    )
    batches = pipe.train(0, 1000)
    next(batches)
    print(*(one.process.pid for one in pool.shared()._workers), flush=True)
    time.sleep(60)
"""


def gone(pid):
    """True if no process has this number, or only its remains are left."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(root, sent):
    """Signals to the group of processes, as of a terminal or Slurm, are left to that process."""
    with subprocess.Popen(
        [sys.executable, "-c", _READ], cwd=root, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as started:  # fmt: skip
        try:
            workers = [int(pid) for pid in started.stdout.readline().split()]  # type: ignore[union-attr]
            assert len(workers) == min(2, len(os.sched_getaffinity(0)))
            for pid in workers:
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGINT)
            time.sleep(0.3)
            assert not any(map(gone, workers))
            started.send_signal(sent)
            started.wait(30)
        finally:
            started.kill()
    end = time.monotonic() + 10
    while not all(map(gone, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert all(map(gone, workers))


_WITHOUT = """
import json, sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_datasets"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuses())
from vit_jax.cli import main
for arguments in json.loads(sys.argv[1]):
    code = main.main(arguments)
    assert code == 0, (code, arguments)
assert not [n for n in sys.modules if n.partition(".")[0].startswith("tensorflow")]
"""


@pytest.fixture
def commands(root):
    """Runs commands, all in one process without TensorFlow, and returns what they print."""

    def run(*several):
        texts = json.dumps([list(map(str, arguments)) for arguments in several])
        done = subprocess.run(
            [sys.executable, "-c", _WITHOUT, texts], cwd=root, capture_output=True, text=True,
            timeout=550,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.integration
@pytest.mark.parametrize("recipe", ["detect", "segment"])
def test_low_rank_matrices_learn_masks_and_boxes_without_tensorflow(
    tmp_path, commands, digits_run, recipe
):
    """Images are read, moved and predicted without it."""
    if recipe == "detect":
        source, out = f"coco:{boxed.coco(tmp_path / 'data')}", tmp_path / "found.json"
        more = ["--config.objective=detection(width=16, depth=1, strides=(4, 8))"]
    else:
        source, out = f"masks:{masks_folder(tmp_path / 'data')}", tmp_path / "found"
        more = []
    train = (
        "train", f"--config=configs/{recipe}.py:size=16x24,backbone=lora",
        f"--workdir={tmp_path / 'run'}", f"--data={source}", f"--config.init={digits_run}", *more,
        "--config.data.reader=python", "--config.length=2 steps", "--config.batch_size=8",
        "--config.report.writers=()", "--config.report.page=false",
    )  # fmt: skip
    image = next((tmp_path / "data").rglob("*g"))
    commands(train, ("predict", tmp_path / "run", image, f"--out={out}"))
    assert out.exists()


@pytest.mark.integration
def test_runs_on_digits_and_folders_import_no_tensorflow(tmp_path, commands, image_folder):
    short = ["--config=configs/quickstart.py", "--config.data.reader=python",
             "--config.report.writers=()", "--config.length=3 steps",
             "--config.schedule.warmup=1 steps"]  # fmt: skip
    files = ["--config.data.image_size=16", f"--config.data.train_ops={AUGMENTED}"]
    packed, data = f"records:{records(folder(tmp_path / 'files'))}/*.tfrecord", tmp_path / "folder"
    shown = commands(
        ("train", f"--workdir={tmp_path / 'digits'}", *short),
        ("train", f"--workdir={data}", *short, *files, f"--data=folder:{image_folder}",
         f"--config.fewshot.sources=(('own', 'folder:{image_folder}'),)",
         "--config.fewshot.shots=(1,)", "--config.fewshot.every=3 steps"),
        ("predict", data, image_folder / "test" / "red"),
        ("evaluate", data, f"--out={tmp_path / 'out'}"),
        ("data", "check", f"folder:{image_folder}"),
        ("train", f"--workdir={tmp_path / 'records'}", *short, *files, f"--data={packed}",
         "--config.batch_size=8", "--config.fewshot.sources=()"),
        ("data", "check", packed),
    )  # fmt: skip
    assert f"{image_folder}/test/red/0.jpg" in shown
