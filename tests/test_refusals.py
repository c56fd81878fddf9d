# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A start that is refused, for whatever reason, leaves the folder of the run as it was."""

import contextlib
import shlex
import shutil
import threading

import jax
import pictures
import pytest
from test_train import run

from vit_jax.build import less_memory
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.errors import BadInput
from vit_jax.runtime import coordination, process_exit, workdir_lock
from vit_jax.storage import checksums
from vit_jax.storage import files as storage
from vit_jax.training import refused_start, workdir
from vit_jax.training import train as training
from vit_jax.training.metric_writer import Report

CLASSES = ("bee", "cat", "dog")
KEEP = ("--config.checkpoint.keep_last=3",)


def content(folder):
    """Every file below a folder, and every folder, by name."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def write_class(folder, name, images=12):
    (folder / name).mkdir(parents=True)
    for number in range(images):
        image = pictures.noise(8, 8, seed=number + 100 * len(name))
        (folder / name / f"{number}.png").write_bytes(pictures.encode(image))


@pytest.fixture(scope="module")
def _stopped(tmp_path_factory):
    """Images, and a run on them that has saved steps 4 and 8 of 12 and written rows after those."""
    root = tmp_path_factory.mktemp("refused")
    for name in CLASSES:
        write_class(root / "images", name)
    assert train(root) == 0
    (root / "run" / "results.json").unlink()
    shutil.rmtree(root / "run" / "checkpoints" / "12")
    (root / "run" / "checkpoints" / "12.orbax-checkpoint-tmp").mkdir()  # a save that was cut short
    return root


@pytest.fixture
def stopped(_stopped, tmp_path, monkeypatch):
    """A copy of those, in the current folder."""
    shutil.copytree(_stopped, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(root, *overrides):
    """Trains on the images in a folder, named as seen from there, so that a copy is the same."""
    more = ("--config.data.source=folder:images", "--config.data.train_ops=decode|flip_lr")
    with contextlib.chdir(root):
        return run("run", *more, "--config.batch_size=8", *KEEP, *overrides)


def add_class(root):
    write_class(root / "images", "ant")


def damage_config_and_stop(root):
    """The request to stop is one of before the start."""
    (root / "run" / "config.yaml").write_text("model: {")
    (root / "run" / "STOP").touch()
    add_class(root)


def no_images(root):
    shutil.rmtree(root / "images")


def metrics_folder(root):
    (root / "run" / "metrics.jsonl").unlink()
    (root / "run" / "metrics.jsonl").mkdir()


def bad_image(root):
    for path in (root / "images").rglob("*.png"):
        if path.stem != "0":  # the first is read before training
            path.write_bytes(path.read_bytes()[:40])


CHANGES = {
    add_class: "the data has 4 classes, the run was trained with 3: new are ant. Nothing in run",
    damage_config_and_stop: "the data has 4 classes",
    no_images: "does not exist",
    metrics_folder: "cannot read run/metrics.jsonl",
    bad_image: "cannot be decoded",
}


@pytest.mark.integration
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_a_refused_start_finds_it_leaves(stopped, capsys, change):
    change(stopped)
    before = content(stopped / "run")
    assert train(stopped) == 2
    said = capsys.readouterr().err
    assert CHANGES[change] in said
    assert "Traceback" not in said
    assert content(stopped / "run") == before


@pytest.mark.parametrize("override", ["seed=3", "mesh.data=3", "batch_size=7", "data.workers=0"])
def test_settings_that_are_refused_leave_everything(stopped, override):
    before = content(stopped / "run")
    assert train(stopped, f"--config.{override}") == 2
    assert content(stopped / "run") == before


def test_another_live_run_is_not_touched(stopped, capsys):
    (stopped / "run" / "STOP").touch()  # a person asks that run to stop
    with workdir_lock.held(stopped / "run"):
        before = content(stopped / "run")
        assert train(stopped) == 2
        assert content(stopped / "run") == before
    assert "another run is at work" in capsys.readouterr().err


def test_a_state_that_does_not_fit_is_said_by_its_weights_alone(stopped, monkeypatch, capsys):
    """Whatever it is that differs, unforeseen; the newest step is damaged, too."""
    add_class(stopped)
    monkeypatch.setattr(training, "check_classes", lambda *_: None)
    (stopped / "run" / "checkpoints" / "8" / "metrics.json").write_text("")
    before = content(stopped / "run")
    assert train(stopped) == 2
    said = capsys.readouterr().err
    assert "head/kernel: (16, 3), expected (16, 4)" in said
    assert "opt_state" not in said
    assert content(stopped / "run") == before


@pytest.mark.parametrize("left, what", [(None, "missing"), ("{", "damaged"), ("{}", "damaged")])
def test_classes_are_counted_where_nobody_knows_their_names(stopped, left, what):
    """By the head of the newest step that is whole."""
    (stopped / "run" / "classes.json").unlink()
    if left is not None:
        (stopped / "run" / "classes.json").write_text(left)
    (stopped / "run" / "checkpoints" / "8" / "metrics.json").write_text("")
    before = content(stopped / "run")
    for classes, which in ((("ant", *CLASSES), "new"), (CLASSES[:2], "missing")):
        with pytest.raises(BadInput) as caught:
            workdir.check_classes(stopped / "run", classes)
        assert (
            f"has {len(classes)} classes, the run was trained with 3; its classes.json is {what}, "
            f"so it is unknown which are {which}. Nothing"
        ) in str(caught.value)
    assert content(stopped / "run") == before


@pytest.mark.parametrize(
    "classes, shown",
    [
        (("bee", "cow", "dog"), "has other classes than the run was trained with: new are cow; "
                                "missing are cat. Nothing"),
        (("bee", "cat"), "has 2 classes, the run was trained with 3: missing are dog. Nothing"),
    ],
)  # fmt: skip
def test_classes_that_are_new_or_missing_are_named(stopped, classes, shown):
    with pytest.raises(BadInput) as caught:
        workdir.check_classes(stopped / "run", classes)
    assert f"the data {shown}" in str(caught.value)


def test_the_workdir_in_a_command_is_quoted(stopped):
    folder = (stopped / "run").rename(stopped / "my [runs]")
    with pytest.raises(BadInput) as caught:
        workdir.check_classes(folder, ("other", *CLASSES))
    flag = next(w for w in shlex.split(str(caught.value)) if w.startswith("--config.init="))
    assert flag == f"--config.init={folder}"


@pytest.mark.integration
@pytest.mark.parametrize("begun", [False, True])
def test_no_memory_in_the_first_step_leaves_what_was_there(stopped, monkeypatch, capsys, begun):
    """Everything is written by then: the newest step, which is damaged, is set aside."""
    if begun:
        (stopped / "run" / "checkpoints" / "8" / "metrics.json").write_text("")
    else:
        shutil.rmtree(stopped / "run")
        (stopped / "run").mkdir()
        (stopped / "run" / "notes.txt").write_text("mine")
    before = content(stopped / "run")
    seen = []

    def full(self, *_):
        seen.append(content(stopped / "run"))
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")

    monkeypatch.setattr(Report, "row", full)
    monkeypatch.setattr(less_memory, "out_of_memory", lambda _: BadInput("does not fit"))
    assert train(stopped) == 2
    assert "does not fit" in capsys.readouterr().err
    assert seen[0] != before
    assert content(stopped / "run") == before


@pytest.mark.integration
@pytest.mark.parametrize("damaged", [False, True])
def test_a_start_that_saved_a_step_keeps_it(stopped, monkeypatch, damaged):
    def full(self, step, *_):
        if step == 9:
            raise BadInput("an image is gone")

    monkeypatch.setattr(Report, "row", full)
    if damaged:
        (stopped / "run" / "checkpoints" / "8" / "metrics.json").write_text("")
    else:
        shutil.rmtree(stopped / "run")
    assert train(stopped) == 2
    kept = ["4", "8", *(["8.damaged"] if damaged else [])]
    assert sorted(p.name for p in (stopped / "run" / "checkpoints").iterdir()) == kept
    assert (stopped / "run" / "config.yaml").exists()


@pytest.mark.parametrize("why", ["all steps are damaged", "it died five times"])
def test_a_start_that_a_person_must_look_at_leaves_everything(stopped, capsys, why):
    for step in (4, 8):
        if why == "all steps are damaged":
            (stopped / "run" / "checkpoints" / str(step) / "metrics.json").write_text("")
    if why == "it died five times":
        (stopped / "run" / "restarts.json").write_text('{"newest": 8, "restarts": 5}')
    before = content(stopped / "run")
    assert train(stopped) == 1
    assert ("holds no checkpoint" in capsys.readouterr().err) == ("damaged" in why)
    assert content(stopped / "run") == before


def test_an_end_by_another_thread_counts_as_the_refusal_that_it_is(tmp_path, monkeypatch):
    """So another process of the run, whose input is bad, ends this one."""
    ends = []
    monkeypatch.setattr(process_exit, "_code", None)
    monkeypatch.setattr(process_exit.os, "_exit", ends.append)
    for code, left in ((2, {"config.yaml"}), (43, {"config.yaml", "goodput.jsonl"})):
        (tmp_path / "config.yaml").write_text("old")
        with refused_start.unchanged_if_refused(tmp_path):
            (tmp_path / "config.yaml").write_text("new")
            (tmp_path / "goodput.jsonl").write_text("row")
            thread = threading.Thread(target=process_exit.end, args=(code,))
            thread.start()
            thread.join()
        assert {path.name for path in tmp_path.iterdir()} == left
        assert (tmp_path / "config.yaml").read_text() == ("old" if code == 2 else "new")
    assert ends == [2, 43]


def test_rows_and_files_of_a_bucket_come_back(store):
    place = storage.path("gs://bucket/run")
    for name in ("config.yaml", "metrics/000000004-000000.jsonl", "metrics/000000009-000001.jsonl"):
        storage.write(place / name, name)
    step = place / "checkpoints" / "4"
    storage.write(step / "state", "arrays")
    checksums.write(step)
    storage.write(step / "commit_success.txt", "")
    before = {name: storage.as_path(f"gs://{name}").read_bytes() for name in store.names()}
    with pytest.raises(BadInput), refused_start.unchanged_if_refused(place):  # noqa: PT012
        storage.write(place / "config.yaml", "new")
        storage.write(place / "goodput" / "000000000-000000.jsonl", "row")
        storage.write(place / "metrics" / "000000005-000001.jsonl", "row")
        storage.remove(place / "metrics" / "000000009-000001.jsonl")
        raise BadInput("")
    assert {name: storage.as_path(f"gs://{name}").read_bytes() for name in store.names()} == before


def test_classes_are_compared_by_process_0_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr(coordination, "is_first", lambda: False)
    monkeypatch.setattr(coordination, "share", lambda name, value: "the data has 9 classes")
    with pytest.raises(BadInput, match="9 classes"):
        workdir.check_classes(tmp_path, CLASSES)


def test_order_of_classes_counts_and_a_damaged_file_does_not(stopped, caplog):
    folder = stopped / "run"
    with pytest.raises(BadInput, match="the classes of the run in another order"):
        workdir.check_classes(folder, CLASSES[::-1])
    workdir.check_classes(folder, CLASSES)
    (folder / "classes.json").write_text('{"classes": 3}')
    assert not caplog.messages
    workdir.check_classes(folder, ("other", "names", "three"))
    assert caplog.messages == [
        "the names of the classes were not compared with those of the run: its classes.json is "
        "damaged"
    ]
    shutil.rmtree(folder / "checkpoints")  # nothing was trained yet
    workdir.check_classes(folder, ("other", "names"))


def test_newest_good_moves_nothing_before_it_is_restored(stopped):
    (stopped / "run" / "checkpoints" / "8" / "metrics.json").write_text("")
    before = content(stopped / "run")
    with Checkpoints(stopped / "run") as checkpoints:
        assert checkpoints.newest_good() == 4
    assert content(stopped / "run") == before


@pytest.mark.integration
def test_images_that_came_since_the_last_start_are_told_of(stopped, caplog):
    """No class is new, so the run goes on; but its epochs have other images."""
    assert train(stopped) == 0
    assert "training examples have changed" not in caplog.text
    (stopped / "run" / "results.json").unlink()
    image = stopped / "images" / "bee" / "new.png"
    image.write_bytes((stopped / "images" / "bee" / "0.png").read_bytes())
    (stopped / "images" / "bee" / "1.png").unlink()
    shutil.rmtree(stopped / "run" / "checkpoints" / "12")
    assert train(stopped) == 0
    assert "the training examples have changed since the run was last started" in caplog.text
