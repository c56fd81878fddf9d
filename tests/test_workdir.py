# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: what is found in it, what may change, what is cleaned up."""

import errno
import json
import os

import pytest
import unprivileged
import yaml
from test_step_folders import WHOLE, make
from test_train import QUICKSTART, run

from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, RunFailed, stopping_when_full, writing
from vit_jax.runtime import coordination
from vit_jax.storage import checksums
from vit_jax.storage import files as storage
from vit_jax.training import refused_start, workdir


def quickstart(*overrides):
    return config_lib.load(QUICKSTART, overrides)


def begun(folder, *overrides):
    """A folder as it is after `prepare`."""
    config = quickstart(*overrides)
    assert workdir.continue_or_check(config, folder)[1] is None
    workdir.prepare(folder, config, ["cat", "dog"])
    return config


def test_names_of_the_classes_lie_beside_the_configuration(tmp_path):
    begun(tmp_path)
    assert json.loads((tmp_path / "classes.json").read_text()) == {"classes": ["cat", "dog"]}


def test_unwritable_workdir(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file" / "run") == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_workdir(tmp_path):
    tmp_path.chmod(0o500)
    assert run(tmp_path / "run") == 2


def test_what_was_begun_is_continued_and_what_is_finished_is_returned(tmp_path):
    begun(tmp_path)
    assert workdir.continue_or_check(quickstart(), tmp_path)[1] is None
    (tmp_path / "results.json").write_text(json.dumps({"step": 3}))
    assert workdir.continue_or_check(quickstart(), tmp_path)[1] == {"step": 3}
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["model"]["depth"] == 3


def test_results_may_not_change_but_places_may(tmp_path, caplog):
    begun(tmp_path)
    caplog.set_level("INFO", "vit_jax")
    with pytest.raises(BadInput) as caught:
        workdir.continue_or_check(quickstart("--config.seed=3", "--config.mesh.data=4"), tmp_path)
    assert "seed: 0 in" in str(caught.value)
    assert "mesh.data" not in str(caught.value)
    assert workdir.continue_or_check(quickstart("--config.mesh.data=4"), tmp_path)[1] is None
    assert "mesh.data" in caplog.text


def test_few_shot_tasks_change_results_and_their_cadence_does_not(tmp_path):
    digits = "--config.fewshot.sources=(('digits', 'digits'),)"
    begun(tmp_path, digits)
    again = (digits, "--config.fewshot.every=3 steps", "--config.fewshot.batch_size=64")
    assert workdir.continue_or_check(quickstart(*again), tmp_path)[1] is None
    for other in ([], [digits, "--config.fewshot.shots=(1,)"], [digits, "--config.fewshot.l2=1"]):
        with pytest.raises(BadInput, match=r"fewshot\."):
            workdir.continue_or_check(quickstart(*other), tmp_path)


@pytest.mark.parametrize("there", [[], ["mine.txt"], ["mine.txt", "config.yaml"]])
def test_what_a_refused_start_wrote_is_removed_and_nothing_else(tmp_path, there):
    for name in there:
        (tmp_path / name).write_text("old")
    with pytest.raises(BadInput), refused_start.unchanged_if_refused(tmp_path):  # noqa: PT012
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "config.yaml").write_text("new")
        (tmp_path / "other.txt").write_text("of a person, meanwhile")
        raise BadInput("")
    assert {p.name for p in tmp_path.iterdir()} == {*there, "other.txt"}
    assert all((tmp_path / name).read_text() == "old" for name in there)


def test_a_lost_process_is_told_where_the_run_continues(tmp_path):
    for name in ("4", "12", "13.orbax-checkpoint-tmp"):
        make(tmp_path, name, WHOLE)
    assert workdir.has_checkpoint(tmp_path)
    assert workdir.resumption(tmp_path) == "Run again to continue from step 12."
    assert workdir.resumption(tmp_path / "none") == "Run again to start from the beginning."


# ---------------------------------------------------------------- a configuration that is damaged


def saved_step(folder, step, content):
    """A step with a configuration, whole."""
    place = folder / "checkpoints" / str(step)
    storage.make_folder(place)
    storage.write(place / "config.yaml", content)
    storage.write(place / "state", "arrays")
    checksums.write(place)
    storage.write(place / "commit_success.txt", "")
    return place / "config.yaml"


@pytest.fixture(params=["disk", "bucket"])
def trained(request, tmp_path, store):
    """The folder of a run that has saved steps 4 and 8."""
    place = tmp_path / "run" if request.param == "disk" else storage.path("gs://bucket/run")
    text = config_lib.to_yaml(begun(place, "--config.mesh.data=1"))
    for step in (4, 8):
        saved_step(place, step, text)
    return place


SEVEN = ("--config.seed=7", "--config.mesh.data=1")
FLAWS = {
    "missing": ("is missing", lambda b: None),
    "empty": ("is damaged", lambda b: b""),
    "zeros": ("is damaged", lambda b: bytes(len(b))),
    "no text": ("is damaged", lambda b: b"\xff" + b[1:]),
    "cut": ("is ", lambda b: b[:300]),
    "cut between lines": ("is cut short", lambda b: b"".join(b.splitlines(True)[:3])),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_configuration_that_is_damaged_is_restored_and_still_compared(trained, caplog, flaw):
    file = trained / "config.yaml"
    whole = storage.read_all([file])[0]
    said, change = FLAWS[flaw]
    for given, fits in ((SEVEN, False), (("--config.mesh.data=4",), True)):
        content = change(whole)
        storage.remove(file) if content is None else storage.write(file, content)
        caplog.clear()
        if fits:
            assert workdir.continue_or_check(quickstart(*given), trained)[1] is None
        else:
            with pytest.raises(BadInput) as caught:
                workdir.continue_or_check(quickstart(*given), trained)
            assert f"seed: 0 in {trained}, now 7" in str(caught.value)
            assert str(caught.value).count(", now ") == 1
        assert f"{file} {said}" in caplog.text
        assert f"its copy {trained / 'checkpoints' / '8'}" in caplog.text
        assert file.exists() == (content is not None)  # a start may still be refused
        if content is not None:
            assert storage.read_all([file])[0] == content
        workdir.prepare(trained, quickstart("--config.mesh.data=1"), ["cat", "dog"])
        assert storage.read_all([file])[0] == whole


def test_results_of_a_run_without_its_configuration_are_found(trained):
    storage.write(trained / "results.json", '{"step": 8}')
    storage.remove(trained / "config.yaml")
    assert workdir.continue_or_check(quickstart(), trained)[1] == {"step": 8}
    copy = trained / "checkpoints" / "8" / "config.yaml"
    assert storage.read_all([trained / "config.yaml"]) == storage.read_all([copy])


def test_what_counts_is_what_the_newest_step_was_trained_with(trained, caplog):
    begun(trained.parent / "other", *SEVEN)
    edited = storage.read_all([trained.parent / "other" / "config.yaml"])[0]
    storage.write(trained / "config.yaml", edited)
    with pytest.raises(BadInput, match="seed: 0 in"):
        workdir.continue_or_check(quickstart(*SEVEN), trained)
    assert (
        f"the run was trained with {trained / 'checkpoints' / '8' / 'config.yaml'}" in caplog.text
    )
    assert workdir.continue_or_check(quickstart(), trained)[1] is None
    assert storage.read_all([trained / "config.yaml"])[0] == edited  # of whoever changed it


def test_configuration_with_other_places_is_as_it_should_be(trained, caplog):
    other = trained.parent / "other"
    begun(other, "--config.mesh.data=4")
    storage.write(trained / "config.yaml", storage.read_all([other / "config.yaml"])[0])
    assert workdir.continue_or_check(quickstart(), trained)[1] is None
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_copy_that_is_damaged_does_not_count(trained, caplog):
    text = storage.read_all([trained / "config.yaml"])[0]
    storage.write(trained / "checkpoints" / "8" / "config.yaml", text.replace(b"0", b"1"))
    storage.remove(trained / "config.yaml")
    with pytest.raises(BadInput, match="seed: 0 in"):
        workdir.continue_or_check(quickstart(*SEVEN), trained)
    assert f"its copy {trained / 'checkpoints' / '4'}" in caplog.text


def test_steps_of_which_nothing_tells_how_they_were_made_are_not_continued(trained):
    for step in ("4", "8"):
        storage.write(trained / "checkpoints" / step / "config.yaml", "")
    assert workdir.continue_or_check(quickstart(), trained)[1] is None
    storage.remove(trained / "config.yaml")
    with pytest.raises(BadInput, match=r"config\.yaml is missing, and no checkpoint has an un"):
        workdir.continue_or_check(quickstart(), trained)


def test_copy_of_another_version_does_not_count(trained):
    for step in (4, 8):
        saved_step(trained, step, "key_of_old: 1\n")
    assert workdir.continue_or_check(quickstart(), trained)[1] is None


def test_one_process_restores_the_configuration_for_all(trained, monkeypatch):
    copy = trained / "checkpoints" / "8" / "config.yaml"
    storage.remove(trained / "config.yaml")
    monkeypatch.setattr(coordination, "is_first", lambda: False)
    monkeypatch.setattr(coordination, "share", lambda name, value: str(copy))
    with pytest.raises(BadInput, match="seed: 0 in"):
        workdir.continue_or_check(quickstart(*SEVEN), trained)
    assert not (trained / "config.yaml").exists()


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/8/config.yaml", "checkpoints/8"])
def test_configuration_that_may_not_be_read_is_not_damaged(tmp_path, name):
    saved_step(tmp_path, 8, config_lib.to_yaml(begun(tmp_path)))
    (tmp_path / name).chmod(0)
    with (
        unprivileged.plain(),
        pytest.raises(BadInput, match="cannot be read: Permission denied") as e,
    ):
        workdir.continue_or_check(quickstart(), tmp_path)
    assert str(tmp_path / name) in str(e.value)
    (tmp_path / name).chmod(0o700)
    assert workdir.continue_or_check(quickstart(), tmp_path)[1] is None


def test_full_disk_at_the_start_is_said_as_in_the_midst_of_a_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    said = []
    for folder in (tmp_path, tmp_path / "new" / "run"):
        for name in ("write", "make_folder"):
            with monkeypatch.context() as patch:
                patch.setattr(storage, name, full)
                with pytest.raises(RunFailed, match=r"MiB are free\)\. Make room") as caught:
                    workdir.prepare(folder, quickstart(), ["0"])
            said.append(str(caught.value))
        with pytest.raises(RunFailed) as caught, stopping_when_full(folder):
            full()
        said.append(str(caught.value))
    assert len({text.partition(" (")[2].partition(")")[2] for text in said}) == 1


def test_a_file_as_workdir_is_called_a_file(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(BadInput, match=r"file: it is a file; give a --workdir"):
        with writing(path):
            path.mkdir()
