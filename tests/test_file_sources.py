# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Class folders and CSV files: what is read from them, and what a wrong one is told."""

import contextlib
import csv
import itertools
import os
import socket
import tarfile

import numpy as np
import pictures
import pytest
from opened_sources import labels, message, names, opened

from vit_jax.cli.main import main
from vit_jax.data.inspect import check
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.splits import subset
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

# ---------------------------------------------------------------- folders


def test_one_level_of_class_folders(tmp_path):
    root = pictures.folder(tmp_path, "dog/2.png", "dog/1.png", "cat/1.png", "bee/x.png")
    source = opened(f"folder:{root}")
    assert source.classes == ("bee", "cat", "dog")
    assert names(source) == {"train": ["bee/x.png", "cat/1.png", "dog/1.png", "dog/2.png"]}
    assert labels(source.splits["train"]) == [[0], [1], [2], [2]]
    assert source.notes == ()


def test_image_and_label_belong_together(tmp_path):
    root = pictures.folder(tmp_path, "b/1.png", "a/1.png", "b/0.png")
    split = opened(f"folder:{root}").splits["train"]
    read = split.reader()
    for i, label in enumerate([0, 1, 1]):
        image, got = read(tf.constant(i, tf.int64))
        assert image.numpy() == (root / split.name(i)).read_bytes()
        assert got.numpy().tolist() == [label]
        assert got.dtype == tf.int32


def test_every_extension_in_either_case(tmp_path):
    images = ["a/1.jpg", "a/2.JPG", "a/3.jpeg", "a/4.PNG", "b/5.bmp", "b/6.gif", "b/7.Gif"]
    pictures.folder(tmp_path, *images)
    source = opened(f"folder:{tmp_path}")
    assert names(source) == {"train": images}


def test_class_may_be_called_train(tmp_path):
    """Or test, where there is no folder of classes in it."""
    pictures.folder(tmp_path, "car/1.png", "train/1.png", "bus/1.png")
    assert opened(f"folder:{tmp_path}").classes == ("bus", "car", "train")


def test_train_and_test_folders(tmp_path):
    held = [f"train/{c}/{i}.png" for c in "ab" for i in range(100)]
    pictures.folder(tmp_path, *held, "test/b/1.png", "test/a/7.png")
    source = opened(f"folder:{tmp_path}", val=20, test=20)
    found = names(source)
    assert found["test"] == ["test/a/7.png", "test/b/1.png"]
    assert sorted(found["train"] + found["val"]) == sorted(held)
    assert 20 < len(found["val"]) < 60
    assert source.notes == ("val: 20 % held out of train",)
    assert labels(source.splits["test"]) == [[0], [1]]


@pytest.mark.parametrize("name", ["val", "validation", "valid"])
def test_validation_folder_is_test_where_there_is_none(tmp_path, name):
    held = [f"train/{c}/{i}.png" for c in "ab" for i in range(50)]
    pictures.folder(tmp_path, *held, f"{name}/a/1.png", f"{name}/b/1.png")
    source = opened(f"folder:{tmp_path}", val=10, test=20)
    found = names(source)
    assert found["test"] == [f"{name}/a/1.png", f"{name}/b/1.png"]
    assert sorted(found["train"] + found["val"]) == sorted(held)
    assert found["val"]
    assert source.notes[0].startswith("test: the validation split")


def test_train_val_and_test_folders_stay(tmp_path):
    paths = ["train/a/1.png", "train/b/1.png", "val/a/2.png", "test/b/3.png"]
    pictures.folder(tmp_path, *paths)
    source = opened(f"folder:{tmp_path}", val=10, test=20)
    assert names(source) == {"train": paths[:2], "val": paths[2:3], "test": paths[3:]}
    assert source.notes == ()


@pytest.mark.parametrize("names_of", [str.capitalize, str.upper])
@pytest.mark.parametrize("given", [["train", "test"], ["train", "val", "test"], ["train", "valid"]])
def test_folders_of_splits_may_have_capitals(tmp_path, names_of, given):
    files = [f"{part}/{c}/{part}.png" for part in given for c in "ab"]
    pictures.folder(tmp_path / "small", *files)
    large = [f"{names_of(part)}/{name}" for part, _, name in (f.partition("/") for f in files)]
    pictures.folder(tmp_path / "large", *large)
    small, found = (
        names(opened(f"folder:{tmp_path}/small")),
        names(opened(f"folder:{tmp_path}/large")),
    )
    assert {k: [n.lower() for n in v] for k, v in found.items()} == small
    assert set(itertools.chain(*found.values())) == set(large)


def test_classes_may_differ_in_capitals_alone(tmp_path):
    pictures.folder(tmp_path, "Train/1.png", "train/1.png", "bus/1.png")
    assert opened(f"folder:{tmp_path}").classes == ("Train", "bus", "train")


def test_held_out_images_stay_when_others_are_added(tmp_path):
    first = [f"{c}/{i}.png" for c in "ab" for i in range(0, 200, 2)]
    pictures.folder(tmp_path / "one", *first)
    pictures.folder(tmp_path / "two", *first, *[f"{c}/{i}.png" for c in "ac" for i in range(200)])
    one = names(opened(f"folder:{tmp_path / 'one'}", val=10, test=20))
    two = names(opened(f"folder:{tmp_path / 'two'}", val=10, test=20))
    assert sorted(itertools.chain(*one.values())) == sorted(first)
    for name, held in one.items():
        assert set(held) == set(two[name]) & set(first)
        assert len(held) > 5


def test_hidden_folders_and_other_files_are_left_out_and_told(tmp_path):
    pictures.folder(tmp_path, "a/1.png", "b/1.png", ".cache/1.png")
    (tmp_path / "b/._1.png").write_text("what macOS leaves")
    for name in ("a/notes.txt", "a/.DS_Store", "b/1.png.bak", "readme.md"):
        (tmp_path / name).write_text("x")
    source = opened(f"folder:{tmp_path}")
    assert source.classes == ("a", "b")
    assert source.notes == (
        "5 files left out: beside class folders, or no image extension; "
        "first readme.md, a/.DS_Store, a/notes.txt",
    )


def test_what_is_no_file_is_left_out_and_told(tmp_path):
    """Reading a pipe would never end."""
    pictures.folder(tmp_path, "a/1.png", "b/1.png")
    os.mkfifo(tmp_path / "a" / "2.png")
    (tmp_path / "a" / "3.png").symlink_to(tmp_path / "a" / "2.png")
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(tmp_path / "b"):
        made.bind("2.png")
    source = opened(f"folder:{tmp_path}")
    assert len(source.splits["train"]) == 2
    assert source.notes == (
        "3 pipes, sockets or devices left out; first a/2.png, a/3.png, b/2.png",
    )


def test_a_link_to_an_image_that_is_gone_is_found_bad(tmp_path):
    pictures.folder(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a" / "2.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "a" / "notes.txt").symlink_to(tmp_path / "gone.txt")
    source = opened(f"folder:{tmp_path}")
    assert names(source)["train"] == ["a/1.png", "a/2.png", "b/1.png"]
    ((file, reason),) = check.check_images(source, 1).bad
    assert file == "a/2.png"
    assert "cannot be read" in reason
    assert "first a/notes.txt" in source.notes[0]


@pytest.mark.parametrize("extra", ["a/more/2.png", "2.png"])
def test_images_elsewhere_are_not_left_out_in_silence(tmp_path, extra):
    """In a folder inside a class folder, or beside the class folders."""
    pictures.folder(tmp_path, "a/1.png", "b/1.png", extra)
    try:
        source = opened(f"folder:{tmp_path}")
    except BadInput:
        return
    assert extra in itertools.chain(*names(source).values()) or source.notes


def test_folder_in_home_and_relative_folder(tmp_path, monkeypatch):
    pictures.folder(tmp_path / "pics", "a/1.png", "b/1.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert opened("folder:~/pics").classes == ("a", "b")
    monkeypatch.chdir(tmp_path)
    assert opened("folder:pics").classes == ("a", "b")


def test_folder_names_may_be_any_text(tmp_path):
    paths = ["Käse: weiß/1 1.png", "日本/1.png"]
    pictures.folder(tmp_path, *paths)
    source = opened(f"folder:{tmp_path}", val=10, test=10)
    assert set(source.classes) == {"Käse: weiß", "日本"}
    read = opened(f"folder:{tmp_path}").splits["train"].reader()
    assert read(tf.constant(0, tf.int64))[0].numpy() == (tmp_path / paths[0]).read_bytes()


WRONG_FOLDERS = {
    "nothing there": ([], "does not exist"),
    "empty": (["/"], "found in"),
    "images beside one class": (
        ["1.png", "2.png", "cat/1.png"],
        "2 images are not in a class folder, first 1.png, 2.png; move them",
    ),
    "images of test beside one class": (
        ["train/cat/1.png", "test/1.png"],
        "1 images are not in a class folder, first test/1.png; move them",
    ),
    "one class with folders in it": (
        ["cat/1.png", "cat/deep/1.png"],
        "one class folder, cat, with folders in it",
    ),
    "no images": (["cat/1.txt", "dog/1.pdf"], "0 class folders with images"),
    "no image at all": (["1.txt"], "0 class folders with images"),
    "images of test alone": (["train/1.txt", "test/1.png"], "not in a class folder, first test/1"),
    "labels in test alone": (
        ["train/1.png", "test/a/1.png", "test/b/1.png"],
        "classes ['a', 'b'] are not in train/",
    ),
    "two of a split": (
        ["Train/a/1.png", "train/b/1.png", "test/a/1.png"],
        "Train and train in",
    ),
    "only test": (["test/cat/1.png", "test/dog/1.png"], "train/ is missing; rename"),
    "class only in test": (
        ["train/a/1.png", "train/b/1.png", "test/c/1.png", "test/a/1.png"],
        "classes ['c'] are not in train/",
    ),
    "class only in val": (
        ["train/a/1.png", "train/b/1.png", "val/z/1.png"],
        "classes ['z'] are not in train/",
    ),
}


UNLABELLED = {
    "at the top": (["1.png", "2.JPG", ".3.png"], {"train": ["1.png", "2.JPG"]}),
    "beside folders without images": (["1.png", "x/1.txt"], {"train": ["1.png"]}),
    "in folders of splits": (
        ["Train/1.png", "Test/1.png"],
        {"train": ["Train/1.png"], "test": ["Test/1.png"]},
    ),
}


@pytest.mark.parametrize("paths, parts", UNLABELLED.values(), ids=UNLABELLED)
def test_images_in_no_class_folders_have_no_labels(tmp_path, paths, parts):
    pictures.folder(tmp_path / "pics", *paths)
    source = opened(f"folder:{tmp_path / 'pics'}")
    assert source.classes == ()
    assert names(source) == parts
    assert [labels(split) for split in source.splits.values()] == [
        [[-1]] * len(rows) for rows in parts.values()
    ]
    assert source.notes[0].startswith("images without labels: ")
    read = source.splits["train"].reader()
    first = (tmp_path / "pics" / parts["train"][0]).read_bytes()
    assert read(tf.constant(0, tf.int64))[0].numpy() == first


@pytest.mark.parametrize("place", ["cat", "train", "train/cat"])
def test_one_class_folder_is_one_class(tmp_path, place):
    pictures.folder(tmp_path / "pics", f"{place}/1.png", f"{place}/2.png", "dog/1.txt")
    source = opened(f"folder:{tmp_path / 'pics'}")
    assert source.classes == (place.rpartition("/")[2],)
    assert labels(source.splits["train"]) == [[0], [0]]


@pytest.mark.parametrize(
    "folder, said",
    [
        ("", "has no labels, and objective=auto learns classes; add labels, e.g."),
        ("a/", "has one class, and objective=auto learns classes"),
    ],
)
@pytest.mark.parametrize("command", ["train", "plan"])
def test_classes_are_not_learned_from_fewer_than_two(tmp_path, capsys, command, folder, said):
    images = pictures.folder(tmp_path / "images", *(f"{folder}{k}.png" for k in range(40)))
    words = [command, "--config=configs/quickstart.py", f"--config.data.source=folder:{images}"]
    words += ["--config.batch_size=8", "--config.length=2 steps", "--config.schedule.warmup=0"]
    where = {"train": f"--workdir={tmp_path / 'run'}", "plan": "--accelerator=cpu-1"}
    assert main([*words, where[command]]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_balanced_part_needs_labels(tmp_path):
    pictures.folder(tmp_path, *(f"{k}.png" for k in range(9)))
    split = opened(f"folder:{tmp_path}").splits["train"]
    with pytest.raises(BadInput, match=r"data\.balanced=True: the data has no labels"):
        subset.choose(split, examples=3, fraction=1, balanced=True, exclude=(), classes=0)


@pytest.mark.integration
@pytest.mark.parametrize("recipe", ["mae.py:small=true", "dino.py", "contrastive.py"])
def test_images_in_one_folder_are_learned_without_labels(tmp_path, recipe, capsys):
    images, run = pictures.folder(tmp_path / "images", *(f"{k}.png" for k in range(30))), tmp_path
    data = [f"--config.data.source=folder:{images}", "--config.batch_size=8"]
    words = ["train", f"--config=configs/{recipe}", f"--workdir={run / 'run'}", *data]
    short = ["--config.length=1 steps", "--config.schedule.warmup=0", "--config.fewshot.sources=()"]
    assert main([*words, *short]) == 0
    given = [str(run / "run"), f"--data=folder:{images}"]
    assert main(["features", *given, "--split=train", f"--out={run / 'f.npz'}"]) == 0
    with np.load(run / "f.npz") as found:
        assert set(found["labels"].ravel()) == {-1}
        assert len(found["features"]) > 20
    capsys.readouterr()
    for command, said in (("fewshot", "it has no labels"), ("evaluate", "no head")):
        assert main([command, *given]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("paths, shown", WRONG_FOLDERS.values(), ids=WRONG_FOLDERS)
def test_wrong_folder_says_what_was_found_and_expected(tmp_path, paths, shown):
    root = tmp_path / "pics"
    for path in paths:
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_bytes(b"x") if path != "/" else root.mkdir(exist_ok=True)
    said = message(f"folder:{root}")
    parts = [f"data.source=folder:{root}", shown]
    if "differ only in capitals" not in said:
        parts += ["PATH/CLASS/*.jpg", "PATH/train/CLASS"]
    assert [p for p in parts if p not in said] == []


def test_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"x")
    assert "is a file" in message(f"folder:{tmp_path / 'x.zip'}")
    assert "/dev/null is a device;" in message("folder:/dev/null")


@pytest.mark.parametrize("names", [["training", "validation"], ["Test"], ["Test", "train_images"]])
def test_a_folder_without_train_is_told_what_is_missing(tmp_path, names):
    pictures.folder(tmp_path, *(f"{name}/{c}/1.png" for name in names for c in "ab"))
    said = message(f"folder:{tmp_path}")
    assert "train/ is missing; rename the folder of" in said
    assert said.count("found ") == 1
    assert said.endswith(f"found in {tmp_path}: {', '.join(names)}.")


@pytest.mark.parametrize("inside", ["a/b", "sp ace", "flowers/train", "x/testing"])
def test_classes_deeper_down_are_found(tmp_path, inside):
    pictures.folder(tmp_path, f"{inside}/cat/1.png", f"{inside}/dog/1.png")
    is_split = inside.endswith(("train", "testing"))
    meant = tmp_path / inside.partition("/")[0] if is_split else tmp_path / inside
    quoted = f"'folder:{meant}'" if " " in inside else f"folder:{meant}"
    assert message(f"folder:{tmp_path}").endswith(f"did you mean {quoted}?")
    pictures.folder(tmp_path, "other/deep/cat/1.png")
    assert "0 class folders with images" in message(f"folder:{tmp_path}")


# ---------------------------------------------------------------- CSV files


def table(folder, *lines, files=("a.png", "b.png", "c.png", "sub/d.png"), name="x.csv"):
    pictures.folder(folder, *files)
    (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder / name


@pytest.mark.parametrize("header", [(), ("path,label",), ("Path, Label",)])
def test_csv_with_and_without_a_header(tmp_path, header):
    path = table(tmp_path, *header, "c.png,dog", "a.png,cat", "sub/d.png,dog")
    source = opened(f"csv:{path}")
    assert source.classes == ("cat", "dog")
    assert names(source) == {"train": ["c.png", "a.png", "sub/d.png"]}
    assert labels(source.splits["train"]) == [[1], [0], [1]]
    image, _ = source.splits["train"].reader()(tf.constant(2, tf.int64))
    assert image.numpy() == (tmp_path / "sub/d.png").read_bytes()


def test_paths_in_csv_are_relative_to_the_file_or_absolute(tmp_path, monkeypatch):
    path = table(tmp_path / "in", f"{tmp_path}/in/a.png,0", " b.png , 1 ", "", "")
    monkeypatch.chdir(tmp_path)
    for spec in (f"csv:{path}", "csv:in/x.csv"):
        split = opened(spec).splits["train"]
        got = [split.reader()(tf.constant(i, tf.int64))[0].numpy() for i in range(2)]
        assert got == [(tmp_path / "in" / n).read_bytes() for n in ("a.png", "b.png")]


def test_csv_with_a_split_column(tmp_path):
    lines = ["path,label,split", "a.png,x,train", "b.png,y,test", "c.png,y,train"]
    source = opened(f"csv:{table(tmp_path, *lines)}", test=20)
    assert names(source) == {"train": ["a.png", "c.png"], "test": ["b.png"]}
    assert labels(source.splits["test"]) == [[1]]
    assert source.notes == ()


def test_splits_of_a_csv_may_have_capitals(tmp_path):
    lines = ["path,label,split", "a.png,x,Train", "b.png,y,TEST", "c.png,y,train"]
    source = opened(f"csv:{table(tmp_path, *lines)}")
    assert names(source) == {"train": ["a.png", "c.png"], "test": ["b.png"]}


def test_a_row_that_names_a_pipe_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    said = message(f"csv:{table(tmp_path, 'pipe.png,x', 'b.png,y')}")
    assert f"1 of 2 images are not there, first {tmp_path}/pipe.png (a named pipe)" in said


@pytest.mark.parametrize("kind", ["csv", "tar", "records"])
def test_a_pipe_or_device_is_not_said_to_be_missing(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert f"{tmp_path}/pipe is a named pipe, not a file" in message(f"{kind}:{tmp_path}/pipe")
    assert f"{tmp_path}/zero is a device, not a file" in message(f"{kind}:{tmp_path}/zero")


def test_columns_of_a_header_are_taken_by_name(tmp_path):
    lines = ["file,label,wnid,split", "a.png,x,n1,train", "b.png,y,n2,test"]
    assert names(opened(f"csv:{table(tmp_path, *lines)}")) == {
        "train": ["a.png"],
        "test": ["b.png"],
    }
    lines = ["file,label,wnid", "a.png,x,n1", "b.png,y,n2"]
    assert names(opened(f"csv:{table(tmp_path, *lines)}")) == {"train": ["a.png", "b.png"]}


def test_labels_that_are_numbers_are_in_their_order(tmp_path):
    path = table(tmp_path, "a.png,10", "b.png,9", "c.png,100", "sub/d.png,2")
    source = opened(f"csv:{path}")
    assert source.classes == ("2", "9", "10", "100")
    assert labels(source.splits["train"]) == [[2], [1], [3], [0]]


@pytest.mark.parametrize("odd", ["²", "-1", "1.5", "x y", "Käse"])
def test_label_may_be_any_text(tmp_path, odd):
    source = opened(f"csv:{table(tmp_path, f'a.png,{odd}', 'b.png,7')}")
    assert set(source.classes) == {odd, "7"}


def test_csv_of_a_spreadsheet_with_a_byte_order_mark(tmp_path):
    path = table(tmp_path, "\ufeffpath,label", "a.png,x", "b.png,y")
    assert names(opened(f"csv:{path}")) == {"train": ["a.png", "b.png"]}


def test_csv_is_held_out_by_name(tmp_path):
    """In whatever order the rows are."""
    files = [f"{i}.png" for i in range(60)]
    lines = [f"{name},{i % 2}" for i, name in enumerate(files)]
    one = names(opened(f"csv:{table(tmp_path / 'a', *lines, files=files)}", test=30))
    two = names(opened(f"csv:{table(tmp_path / 'b', *lines[::-1], files=files)}", test=30))
    assert {k: set(v) for k, v in one.items()} == {k: set(v) for k, v in two.items()}
    assert 8 < len(one["test"]) < 30


@pytest.mark.parametrize(
    "lines, shown",
    [
        ([], "two labels or more, found none"),
        (["path,label"], "two labels or more, found none"),
        (["a.png,x", "b.png,x"], "two labels or more, found one: x;"),
        (["a.png,x", "b.png"], "row 2 is ['b.png']"),
        (["a.png,x", "b.png, "], "row 2 is ['b.png', ' ']"),
        (["a.png", "b.png"], "row 1"),
        (["a.png,x", "no.png,y", "c.png,y", "none.png,x"], "2 of 4 images are not there"),
        (["a.png,x", "sub,y"], "1 of 2 images are not there"),
        (["a.png;x", "b.png;y"], "row 1"),
        (["a.png,x,train", "b.png,y,"], "some rows name a split and some do not"),
        (["a.png,x,train", "b.png,y"], "some rows name a split and some do not"),
    ],
)
def test_wrong_csv_says_what_was_found(tmp_path, lines, shown):
    path = table(tmp_path, *lines)
    said = message(f"csv:{path}")
    assert f"data.source=csv:{path}" in said
    assert shown in said


@pytest.mark.parametrize("header", ["image,class", "path,label_name,split", "File Name,Target"])
def test_another_header_than_expected_is_told_so(tmp_path, header):
    said = message(f"csv:{table(tmp_path, header, 'a.png,x', 'b.png,y')}")
    assert f"if that row is a header, {header}, name its second column label" in said


def test_missing_images_name_the_first_and_where_it_was_looked_for(tmp_path):
    path = table(tmp_path, "a.png,x", "no.png,y")
    said = message(f"csv:{path}")
    assert str(tmp_path / "no.png") in said
    assert f"relative to {tmp_path}" in said


@pytest.mark.parametrize(
    "data", [pictures.encode(pictures.noise(9, 9)), b"\xff\xfe\x00a", b"\0" * 9]
)
def test_file_that_is_no_csv(tmp_path, data):
    (tmp_path / "x.csv").write_bytes(data)
    assert "data.source=csv:" in message(f"csv:{tmp_path / 'x.csv'}")


def test_folder_in_place_of_a_csv_file(tmp_path):
    assert "is a folder, not a file" in message(f"csv:{tmp_path}")


# ---------------------------------------------------------------- real images


def test_real_photographs_are_read_through_a_csv_file(data_dir, tmp_path):
    """150 + 50 pictures of ImageNet, of many sizes."""
    with tarfile.open(data_dir / "imagenet_sample200.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    root = tmp_path / "imagenet_sample200"
    rows = list(csv.DictReader((root / "labels.csv").read_text().splitlines()))
    few = rows[:6] + rows[-6:]
    text = "".join(f"{r['file']},{r['label']}\n" for r in few)
    (root / "few.csv").write_text(text)
    source = opened(f"csv:{root / 'few.csv'}")
    read = source.splits["train"].reader()
    for i, row in enumerate(few):
        image, label = read(tf.constant(i, tf.int64))
        height, width, channels = preprocess.Decode()(image, None).shape
        assert (height, width, channels) == (int(row["height"]), int(row["width"]), 3)
        assert source.classes[int(label[0])] == row["label"]
