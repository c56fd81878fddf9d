# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models that are ready: of files, of splits, with names; and what of both is refused."""

import io
import os
import threading

import exports
import hostile
import jax
import jax.numpy as jnp
import model_commands
import numpy as np
import pictures
import pytest
import unprivileged
from opened_sources import opened

import vit_jax
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput
from vit_jax.inference import inputs
from vit_jax.inference import model as inference
from vit_jax.storage import files as storage
from vit_jax.weights import convert, preprocessing
from vit_jax.weights.formats.json_config import Images

# --- a model ---


@pytest.fixture(scope="module")
def model(digits_run):
    return inference.open_model(str(digits_run))


@pytest.mark.integration
def test_files_are_seen_as_load_sees_them(model, digits_run, tmp_path):
    paths = model_commands.digit_files(tmp_path, model.batch_size + 3)
    done = []
    read, found, bad = model.of_files(model.step(lambda logits: logits), paths, done.append)
    assert (read, bad) == (paths, {})
    assert done[-1] == len(paths)
    loaded, params, preprocess = vit_jax.load(digits_run)
    expected = model_commands.logits(loaded, params, preprocess(paths))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_cannot_be_read_is_left_out_and_named(model, tmp_path):
    paths = model_commands.digit_files(tmp_path, 3)
    broken, gone = str(tmp_path / "broken.png"), str(tmp_path / "gone.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    step, done = model.step(lambda logits: logits), []
    mixed = [paths[0], broken, paths[1], gone, paths[2]]
    read, found, bad = model.of_files(step, mixed, done.append)
    assert read == paths
    assert list(bad) == [broken, gone]
    assert done[-1] == 5
    np.testing.assert_array_equal(found, model.of_files(step, paths)[1])
    with pytest.raises(BadInput, match=r"none of 2 images can be read, first: .*broken.png"):
        model.of_files(step, [broken, gone])


def test_files_and_a_split_give_the_same(model, digits_run, tmp_path):
    step = model.step()
    source = inference.open_data(str(digits_run), "digits", "")
    of_split = model.of_split(step, source.splits["test"])
    assert of_split.shape == (365, 16)
    _, of_files, _ = model.of_files(step, model_commands.digit_files(tmp_path, 20))
    np.testing.assert_allclose(of_split[:20], of_files, atol=1e-5)


def test_best_are_the_likeliest_of_equals_the_lower(model):
    logits = np.array([[0, 2, 2, 1], [3, 0, 0, -1]], np.float32)
    found = np.asarray(model.best(3)(logits))
    assert found[:, :3].tolist() == [[1, 2, 3], [0, 1, 2]]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[0, 3:], expected[0, [1, 2, 3]], rtol=1e-6)
    assert np.asarray(model.best(9)(logits)).shape == (2, 8)
    columns = np.array([[3, -1], [0, 1]], np.int32)  # of two classes the better one counts
    assert np.asarray(model.best(1, columns)(logits))[:, 0].tolist() == [1, 1]


def test_classes_by_themselves_have_probabilities_of_their_own(model):
    likely = inference.dataclasses.replace(model, sigmoid=True).best(2)(jnp.array([[0.0, 2.0]]))
    np.testing.assert_allclose(likely, [[1, 0, jax.nn.sigmoid(2.0), 0.5]], rtol=1e-6)


def test_names_are_those_of_the_run_unless_others_are_given(model, digits_run, tmp_path):
    assert model.names == tuple("0123456789")
    (tmp_path / "names.txt").write_text("\n".join("abcdefghij"))
    named = inference.open_model(str(digits_run), names=str(tmp_path / "names.txt"))
    assert named.names == tuple("abcdefghij")
    bare = model_commands.with_classes(digits_run, tmp_path / "bare", None)
    assert inference.open_model(str(bare)).names == ()


@pytest.mark.parametrize("name", ["timm", "hf"])
@pytest.mark.parametrize("sigmoid", [False, True])
def test_export_has_the_classes_of_its_run(tmp_path, name, sigmoid):
    one, path = exports.model(size=(8, 8)), tmp_path / "m.safetensors"
    said = Images(names=exports.NAMES, sigmoid=sigmoid)
    convert.write(path, name, one.cfg, one.params, said)
    found = inference.open_model(str(path))
    assert (found.names, found.sigmoid) == (exports.NAMES, sigmoid and name == "hf")
    convert.write(path, name, one.cfg, one.params)
    assert inference.open_model(str(path)).names == ()
    convert.write(path, name, one.cfg, one.params, Images(names=exports.NAMES[:5]))
    assert vit_jax.load(path)[0].cfg.classes == 7
    with pytest.raises(BadInput, match=r"config.json beside it names 5 classes, the model has 7"):
        inference.open_model(str(path))


def test_file_without_a_head_has_no_classes(tmp_path):
    """Although files of Hugging Face name some."""
    one = exports.model(size=(8, 8), classes=0)
    said = Images(names=("a", "b"), sigmoid=True)
    convert.write(tmp_path / "m.safetensors", "hf", one.cfg, one.params, said)
    assert inference.open_model(str(tmp_path / "m.safetensors")).names == ()


@pytest.mark.parametrize(
    "content, message",
    [
        ({"classes": ["a", "b"]}, r"classes.json names 2 classes, the model has 10"),
        ({"classes": [1, 2]}, r"classes.json is not \{\"classes\": \[names\]\}"),
        ({"classes": "ab"}, r"classes.json is not"),
        ("{", r"classes.json is not readable JSON"),
    ],
)
def test_damaged_names_of_a_run_are_told(digits_run, tmp_path, content, message):
    with pytest.raises(BadInput, match=message):
        inference.open_model(
            str(model_commands.with_classes(digits_run, tmp_path / "run", content))
        )


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "names.txt cannot be read.*one a line"),
        ("a\n\nb\n", "names.txt has an empty line"),
        ("a\nb\n", "names.txt has 2 names, the model 10 classes"),
    ],
)
def test_names_that_do_not_fit_are_refused(digits_run, tmp_path, content, message):
    path = tmp_path / "names.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=message):
        inference.open_model(str(digits_run), names=str(path))


def test_images_are_files_folders_and_lists(tmp_path):
    pictures.folder(tmp_path, "b/2.png", "b/c/1.PNG", "a.png")
    (tmp_path / "b" / "notes.txt").write_text("")
    listed = io.StringIO(f"{tmp_path}/a.png\n\n{tmp_path}/b/2.png\n")
    found = inputs.image_files([str(tmp_path / "b"), "-"], listed)
    assert found == [f"{tmp_path}/{name}" for name in ("b/2.png", "b/c/1.PNG", "a.png", "b/2.png")]


def test_all_that_is_wrong_with_images_is_said_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput) as caught:
        inputs.image_files([str(tmp_path / "empty"), str(tmp_path / "gone")], io.StringIO())
    assert "empty has no images in it" in str(caught.value)
    assert "gone does not exist" in str(caught.value)
    with pytest.raises(BadInput, match="no images; give files, folders"):
        inputs.image_files(["-"], io.StringIO("\n"))


@pytest.mark.parametrize("through", ["pipe", "file"])
def test_a_list_on_standard_input_has_an_end(tmp_path, monkeypatch, through):
    monkeypatch.setattr(storage, "_MOST_BYTES", 10)
    pictures.folder(tmp_path, "a.png")
    listed = f"{tmp_path}/a.png\n"
    (tmp_path / "list").write_text(listed)
    reading, writing = os.pipe()
    os.write(writing, listed.encode())
    os.close(writing)
    with open(reading) as pipe, open(tmp_path / "list") as file:
        if through == "file":  # which has an end
            assert inputs.image_files(["-"], file) == [f"{tmp_path}/a.png"]
            return
        said = "standard input cannot be read: it is a named pipe that gives more than 0 MiB; give"
        with pytest.raises(BadInput, match=said):
            inputs.image_files(["-"], pipe)


@pytest.mark.timeout(120)
def test_what_is_no_file_is_left_out_of_a_folder_and_told(tmp_path, caplog):
    pictures.folder(tmp_path, "a.png", "b.jpg/1.png")  # a folder may be called as an image is
    odd = hostile.no_files(tmp_path / "b.jpg")
    (tmp_path / "gone.png").symlink_to("nowhere")  # who reads it is told that it is gone
    (tmp_path / "loop.png").symlink_to("loop.png")
    found = inputs.image_files([str(tmp_path)], io.StringIO())
    names = ("a.png", "b.jpg/1.png", "gone.png", "loop.png")
    assert found == [f"{tmp_path}/{name}" for name in names]
    assert caplog.messages == [f"left out, as pipes, sockets or devices: {', '.join(odd)}"]


@pytest.mark.timeout(120)
def test_what_is_named_must_be_a_file(tmp_path):
    (tmp_path / "odd").mkdir()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    odd = hostile.no_files(tmp_path / "odd")
    listed = io.StringIO("\n".join([*odd, f"{tmp_path}/loop.jpg", "x" * 300, "a\0b"]))
    with pytest.raises(BadInput) as caught:
        inputs.image_files([str(tmp_path / "odd"), "-"], listed)
    said = caught.value.parts
    assert said[0].startswith(f"{tmp_path}/odd has no images in it, only pipes")
    for part, path, kind in zip(said[1:4], odd, ("device", "named pipe", "socket"), strict=True):
        assert part.startswith(f"{path} is a {kind}, not a file; give images")
    for part, reason in zip(said[4:], ("symbolic links", "too long", "not exist"), strict=True):
        assert reason in part


def test_a_folder_that_cannot_be_listed_is_told(tmp_path):
    pictures.folder(tmp_path, "a.png", "secret/b.png")
    (tmp_path / "secret").chmod(0)
    said = rf"{tmp_path} cannot be read: Permission denied \({tmp_path}/secret\)"
    with unprivileged.plain(), pytest.raises(BadInput, match=said):
        inputs.image_files([str(tmp_path)], io.StringIO())


@pytest.mark.timeout(120)
def test_weights_and_their_names_are_regular_files(digits_run, tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(BadInput, match=r"pipe\.npz is a named pipe, no file and no folder"):
        inference.open_model(str(tmp_path / "pipe.npz"))
    run = model_commands.with_classes(digits_run, tmp_path / "run", None)
    os.mkfifo(run / "classes.json")
    with pytest.raises(BadInput, match=r"classes\.json is not readable JSON.* a named pipe"):
        inference.open_model(str(run))


@pytest.mark.timeout(120)
def test_names_of_classes_may_come_through_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=["Käfer\n猫\n".encode()])
    writer.start()
    assert inference.read_names(str(tmp_path / "pipe")) == ("Käfer", "猫")
    writer.join()


def test_own_data_has_the_splits_of_the_run_and_other_data_none_held_out(digits_run, image_folder):
    own = inference.open_data(str(digits_run), "", "")
    assert {name: len(split) for name, split in own.splits.items()} == {
        "train": 1280, "val": 152, "test": 365,
    }  # fmt: skip
    other = inference.open_data(str(digits_run), f"folder:{image_folder}", "")
    assert {name: len(split) for name, split in other.splits.items()} == {"train": 40, "test": 10}
    with pytest.raises(BadInput, match=r"digits.npz is no folder of a run.* give --data=SOURCE"):
        inference.open_data("digits.npz", "", "")


def test_split_is_test_or_the_only_one_or_asked_for(image_folder):
    def opened(spec, **percents):
        percents = {"val_percent": 0, "test_percent": 0} | percents
        return sources.open_source(spec, Options(), **percents)

    both, single = opened(f"folder:{image_folder}"), opened(f"folder:{image_folder}/train")
    assert inference.choose_split(both, "")[0] == "test"
    assert inference.choose_split(single, "")[0] == "train"
    name, split = inference.choose_split(both, "train[:10]")
    assert (name, len(split)) == ("train[:10]", 10)
    with pytest.raises(BadInput, match=r"no split test but train, val; give --split=NAME"):
        inference.choose_split(opened("digits", val_percent=10), "")


# --- batches ---


@pytest.fixture
def split(tmp_path):
    pictures.folder(tmp_path, *(f"train/{c}/{i}.png" for c in "ab" for i in range(5)), size=8)
    return opened(f"folder:{tmp_path}").splits["train"]


@pytest.mark.parametrize("batch_size", [3, 5, 16])
def test_every_image_once_in_order_as_the_reader_makes_it(split, tmp_path, batch_size):
    reader = preprocessing.original_reader(6, 6)
    found = list(inputs.batches(split, reader, batch_size, workers=3))
    assert {len(b["image"]) for b in found} == {batch_size}
    mask = np.concatenate([b["_mask"] for b in found])
    assert mask.tolist() == [True] * 10 + [False] * (len(mask) - 10)
    images = np.concatenate([b["image"] for b in found])[mask]
    expected = reader([tmp_path / split.name(i) for i in range(10)])
    np.testing.assert_array_equal(images, expected)
    assert images.dtype == np.float32


def test_pixels_that_are_no_files_are_read():
    digits = opened("digits", test=20).splits["test"]
    first = next(inputs.batches(digits, preprocessing.original_reader(8, 8), 4, workers=1))
    assert first["image"].shape == (4, 8, 8, 3)
    assert np.abs(first["image"]).max() <= 1


def test_a_bad_image_is_named(split, tmp_path):
    (tmp_path / split.name(7)).write_bytes(b"no image")
    with pytest.raises(BadInput) as caught:
        list(inputs.batches(split, preprocessing.original_reader(6, 6), 4, workers=2))
    assert split.name(7) in str(caught.value)
