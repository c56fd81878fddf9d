# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which folders of a workdir are steps, and what becomes of the others."""

import shutil

import pytest

from vit_jax.checkpoints import step_folders
from vit_jax.errors import PeerLost
from vit_jax.storage import bucket, checksums
from vit_jax.storage import files as storage

WHOLE = ("commit_success.txt", "state/x", checksums.FILE)
OLDER = ("commit_success.txt", "state/x", "_CHECKPOINT_METADATA")


def make(workdir, name, files):
    folder = workdir / "checkpoints" / str(name)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def names(workdir):
    return sorted(p.name for p in (workdir / "checkpoints").iterdir())


def test_steps_with_both_marks_count(tmp_path):
    assert step_folders.committed(tmp_path) == []
    make(tmp_path, 100, WHOLE)
    make(tmp_path, 20, WHOLE)
    make(tmp_path, 3, OLDER)
    for name in ("7.damaged", "007", "8.orbax-checkpoint-tmp", "x"):
        make(tmp_path, name, WHOLE)
    make(tmp_path, 40, ["state/x"])
    make(tmp_path, 41, [])
    (tmp_path / "checkpoints" / "50").write_text("a file")
    assert step_folders.committed(tmp_path) == [3, 20, 100]
    assert step_folders.saved(tmp_path) == [3, 20, 40, 41, 100]


def test_step_without_marks_is_damaged_on_a_disk_and_unfinished_in_a_bucket(tmp_path, store):
    run = storage.path("gs://bucket/run")
    storage.write(run / "checkpoints" / "7" / "my_notes.txt", "")
    folder = make(tmp_path, 7, ["my_notes.txt"])
    for place in (tmp_path, run):
        step_folders.remove_leftovers(place)
    assert step_folders.saved(run) == []
    assert store.names() == []
    assert step_folders.saved(tmp_path) == [7]
    assert step_folders.damage(folder) == "commit_success.txt is missing"
    assert (folder / "my_notes.txt").exists()


@pytest.mark.parametrize("mark", [checksums.FILE, "commit_success.txt"])
def test_step_that_has_lost_a_mark_was_saved_but_does_not_count(tmp_path, mark):
    folder = make(tmp_path, 4, set(WHOLE) - {mark})
    assert step_folders.committed(tmp_path) == []
    assert step_folders.saved(tmp_path) == [4]
    assert mark in step_folders.damage(folder)


def test_only_what_a_save_has_left_is_tidied_away(tmp_path):
    for name in (4, "9.damaged", "notes"):
        make(tmp_path, name, WHOLE)
    make(tmp_path, 5, OLDER)
    make(tmp_path, 6, [checksums.FILE])
    make(tmp_path, 7, ["state/x"])
    make(tmp_path, "8.orbax-checkpoint-tmp", ["state.orbax-checkpoint-tmp/x"])
    make(tmp_path, "10.orbax-checkpoint-tmp-removed", WHOLE)
    (tmp_path / "checkpoints" / "mine.txt").write_text("")
    step_folders.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["4", "5", "6", "7", "9.damaged", "mine.txt", "notes"]


@pytest.mark.parametrize("files", [WHOLE, OLDER])
def test_step_that_is_removed_by_half_does_not_count(tmp_path, monkeypatch, files):
    folder = make(tmp_path, 4, files)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            step_folders.remove(folder)
    assert not folder.exists()
    assert len(list(tmp_path.rglob("state/x"))) == 1
    assert step_folders.saved(tmp_path) == []
    step_folders.remove(make(tmp_path, 4, files))  # whatever is left of that
    assert names(tmp_path) == []
    step_folders.remove(folder)  # nothing there is fine


def test_removal_that_was_cut_short_is_finished_by_the_next_start(tmp_path, monkeypatch):
    folder = make(tmp_path, 4, WHOLE)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_: None)
        step_folders.remove(folder)
    assert names(tmp_path) != []
    step_folders.remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_half_removed_step_in_a_bucket_does_not_count(store, monkeypatch):
    run = storage.path("gs://bucket/run")
    for name in WHOLE:
        storage.write(run / "checkpoints" / "4" / name, "")
    removed = []
    monkeypatch.setattr(storage, "remove", removed.append)
    step_folders.remove(run / "checkpoints" / "4")
    assert removed[0] == run / "checkpoints" / "4" / "commit_success.txt"
    assert removed[-1] == run / "checkpoints" / "4"


def test_of_a_link_to_the_step_of_another_run_only_the_link_is_removed(tmp_path):
    there = make(tmp_path / "other", 4, WHOLE)
    link = tmp_path / "checkpoints" / "4"
    link.parent.mkdir()
    link.symlink_to(there)
    step_folders.remove(link)
    assert names(tmp_path) == []
    assert step_folders.committed(tmp_path / "other") == [4]
    assert (there / "state" / "x").exists()


def test_steps_set_aside_do_not_replace_one_another(tmp_path):
    for expected in ("4.damaged", "4.damaged-2", "4.damaged-3"):
        assert step_folders.set_aside(make(tmp_path, 4, WHOLE)).name == expected
    assert step_folders.saved(tmp_path) == []
    assert step_folders.aside(tmp_path) == ["4.damaged", "4.damaged-2", "4.damaged-3"]
    assert step_folders.aside(tmp_path / "none") == []


def test_steps_are_there_also_where_a_store_fails_after_the_list(store, monkeypatch):
    run = storage.path("gs://bucket/run")
    for name in WHOLE:
        storage.write(run / "checkpoints" / "4" / name, "")

    def lost(*_, **__):
        raise OSError("gone")

    monkeypatch.setattr(bucket.store(), "info", lost)
    with pytest.raises(PeerLost, match="does not answer"):
        step_folders.committed(run)
