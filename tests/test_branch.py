# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Branches: runs that begin with the whole state of a step of another run."""

import functools
import json
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

import jax
import pytest
from interrupted_runs import assert_equal
from test_damaged_checkpoints import flip, put
from test_e2e import ROOT, readme_commands
from test_processes import back_to, close, launch, outcome
from test_train import QUICKSTART, TINY, logged, run

from vit_jax.build import program
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.step_folders import committed
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.errors import BadInput
from vit_jax.reports.run import history, make, single
from vit_jax.reports.run.pictures import Pictures
from vit_jax.storage import files as storage
from vit_jax.storage.jsonl import read_rows
from vit_jax.training import branch, train

CONSTANT = (
    "--config.schedule.name=step",
    "--config.schedule.step.drops=()",
    "--config.model.dropout=0.1",
    "--config.skip_non_finite=2",
    "--config.checkpoint.keep_last=9",
    "--config.checkpoint.keep_best=val/top1",
)
COOLED = ("--config.length=24 steps", "--config.schedule.cooldown=4 steps")


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A run of 12 steps with a constant rate; its name is a pattern and looks like a step."""
    workdir = tmp_path_factory.mktemp("branches") / "my [run]* a@8"
    assert run(workdir, *CONSTANT) == 0
    return workdir


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A run of 24 steps that planned its cool-down from the start."""
    workdir = tmp_path_factory.mktemp("planned") / "run"
    assert run(workdir, *CONSTANT, *COOLED) == 0
    return workdir


@pytest.fixture(scope="module")
def cooled(parent, tmp_path_factory):
    """A branch that begins at step 8 of the parent; a path relative to a folder names that."""
    workdir = tmp_path_factory.mktemp("cooled") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(parent.parent)
        patch.setattr(make.pictures, "draw", lambda *_: Pictures(None, (), ()))  # no figures
        assert begin(parent.name, 8, workdir, *COOLED, "--config.report.page=true") == 0
    return workdir


def begin(parent, step, workdir, *extra):
    """Branches as a user does; returns the exit code."""
    words = [f"--config={parent}/config.yaml", f"--branch={parent}@{step}"]
    return main.main(["train", *words, f"--workdir={workdir}", *extra])


def rows_to(workdir, step):
    return read_rows(storage.path(str(workdir)) / "metrics.jsonl", step)


@pytest.mark.integration
def test_branch_that_is_longer_and_cools_down_equals_a_run_that_planned_it(parent, planned, cooled):
    assert_equal(cooled, planned)
    assert rows_to(cooled, 8) == rows_to(parent, 8)
    assert committed(cooled)[0] == 8
    assert committed(parent) == [4, 6, 8, 12]
    results = [json.loads((w / "results.json").read_text()) for w in (cooled, planned)]
    assert results[0] == results[1]
    ours, theirs = (logged(w)[24, "train/lr"] for w in (cooled, planned))
    assert ours == theirs == pytest.approx(0.004 / 4)


@pytest.mark.integration
def test_branch_says_where_it_comes_from(parent, cooled, capsys):
    name = f"{parent}@8"
    assert config_lib.load(str(cooled / "config.yaml")).branch == name
    origin = provenance.read(cooled)
    assert origin.branch == name
    assert origin.recipe == provenance.read(parent).recipe is not None
    page = (cooled / "report.html").read_text()
    assert f"of {name}: the curves up to step 8 are those of that run" in page
    assert re.search(r"schedule\.cooldown</code>.*?4 steps", page, re.DOTALL)
    assert main.main(["inspect", str(cooled), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["branch"] == name
    assert main.main(["inspect", str(cooled)]) == 0
    assert f"branch of    {name}\n" in capsys.readouterr().out
    assert main.main(["inspect", str(parent)]) == 0
    assert "branch" not in capsys.readouterr().out


@pytest.mark.integration
def test_page_counts_the_time_of_its_own_steps_alone(parent, tmp_path):
    copy = shutil.copytree(parent, tmp_path / "copy")
    whole = history.read(copy)
    config = config_lib.changed(whole.config, {"branch": f"{parent}@10"})
    (copy / "config.yaml").write_text(config_lib.to_yaml(config))
    of_branch = history.read(copy)
    assert 0 < of_branch.step_secs < whole.step_secs
    assert of_branch.series("train/loss") == whole.series("train/loss")
    assert "up to step 10 are" in single._facts(of_branch)["branch"]


@pytest.mark.integration
def test_branch_that_ended_before_its_first_save_branches_from_the_same_step(
    parent, planned, tmp_path, monkeypatch
):
    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    new = tmp_path / "new"
    early = back_to(parent, tmp_path / "parent", 8)
    words = [f"--workdir={new}", f"--branch={early}", *COOLED]  # its newest step
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        with pytest.raises(Killed):
            main.main(["train", f"--config={early}/config.yaml", *words])
    assert committed(new) == []
    shutil.copytree(parent / "checkpoints" / "12", early / "checkpoints" / "12")
    assert main.main(["train", f"--config={new}/config.yaml", *words]) == 0
    assert_equal(new, planned)


@pytest.mark.integration
def test_branch_with_a_checkpoint_goes_on_without_its_parent(cooled, planned, tmp_path):
    short, gone = back_to(cooled, tmp_path / "short", 8), tmp_path / "gone"
    config = config_lib.changed(
        config_lib.load(str(short / "config.yaml")), {"branch": f"{gone}@8"}
    )
    (short / "config.yaml").write_text(config_lib.to_yaml(config))
    words = [f"--config={cooled}/config.yaml", f"--workdir={short}", f"--branch={gone}"]
    assert main.main(["train", *words]) == 0
    assert_equal(short, planned)


def test_only_the_same_step_of_the_same_run_is_the_same_branch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"{tmp_path}/a@b@8"
    for text in (name, "a@b@8", "./a@b/@8", "a@b@best", f"{tmp_path}/x/../a@b@8"):
        assert branch._is_same(text, name), text
    for text in ("a@b@9", "a@8", "b@8", f"{tmp_path}/a@c@8"):
        assert not branch._is_same(text, name), text
    assert not branch._is_same("a@8", "")


@pytest.mark.integration
def test_branch_in_a_bucket_of_a_run_in_a_bucket(parent, planned, store):
    for path in filter(Path.is_file, parent.rglob("*")):
        if path.name != "metrics.jsonl":
            name = f"runs/a ü run/{path.relative_to(parent)}"
            storage.write(storage.path(f"gs://bucket/{name}"), path.read_bytes())
    for number, row in enumerate(read_rows(parent / "metrics.jsonl")):
        place = f"gs://bucket/runs/a ü run/metrics/{row['step']:09d}-{number:06d}.jsonl"
        storage.write(storage.path(place), json.dumps(row) + "\n")
    assert begin("gs://bucket/runs/a ü run", 8, "gs://bucket/new", *COOLED) == 0
    assert logged("gs://bucket/new") == logged(planned)
    assert rows_to("gs://bucket/new", 8) == rows_to(parent, 8)
    saved = Checkpoints(storage.path("gs://bucket/new"), read_only=True).weights(24)
    expected = Checkpoints(planned, read_only=True).weights(24)
    assert all(
        a.tobytes() == b.tobytes()
        for a, b in zip(*map(jax.tree.leaves, (saved, expected)), strict=True)
    )
    config = config_lib.load("gs://bucket/new/config.yaml")
    assert config.branch == "gs://bucket/runs/a ü run@8"
    again = f"--branch={config.branch}"
    words = ["--config=gs://bucket/new/config.yaml", "--workdir=gs://bucket/new", again]
    assert main.main(["train", *words]) == 0


@pytest.mark.integration
def test_branch_on_another_mesh_is_the_same_up_to_rounding(parent, planned, tmp_path):
    mesh = ("--config.mesh.fsdp=2", "--config.mesh.tensor=2")
    assert begin(parent, 8, tmp_path / "new", *COOLED, *mesh) == 0
    assert close(tmp_path / "new", planned) > 40


@pytest.mark.integration
def test_jump_of_the_rate_is_allowed_and_logged(parent, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(train, "run_in", lambda *_: {})
    for number, (rate, jumps) in enumerate(((1e-4, True), (4e-3, False))):
        words = [f"--config.schedule.lr={rate}", f"--config.branch={parent}@8"]
        config = config_lib.load(f"{parent}/config.yaml", words)
        assert train.train(config, tmp_path / str(number)) == {}
        assert ("the learning rate jumps: after step 8" in caplog.text) == jumps
        assert ("on with 0.004, this run goes on with 0.0001" in caplog.text) == jumps
        caplog.clear()


# ---------------------------------------------------------------- what may change


@functools.lru_cache
def state_form(words):
    """Returns the configuration of the quickstart with changes, and the form of its state."""
    config = config_lib.load(QUICKSTART, list(words))
    state = program.make(config, classes=10, examples=1280).abstract
    return config, jax.tree.map(lambda x: (x.shape, x.dtype), state)


@pytest.mark.parametrize(
    "changes",
    [
        (
            "--config.schedule.name=cosine", "--config.length=30 epochs", "--config.ema.decay=0.5",
            "--config.optimizer.clip=0", "--config.optimizer.layer_decay=0.9",
        ),
        (
            "--config.optimizer.freeze=('embedding/.*',)", "--config.optimizer.weight_decay=0.1",
            "--config.optimizer.decay_mask=all", "--config.loss.name=sigmoid",
        ),
        (
            "--config.optimizer.decay.multipliers=(('head/.*', 100.0),)",
            "--config.optimizer.lr_mults=(('head/.*', 9.0),)", "--config.skip_non_finite=7",
            "--config.model.dropout=0.2", "--config.model.drop_path=0.2",
            "--config.model.patch_dropout=0.2",
            "--config.mixup.alpha=0.2",
        ),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor", "lamb"])
def test_settings_that_may_change_leave_the_form_of_the_state(name, changes):
    """Its empty parts too: orbax refuses a tree with others."""
    common = (*TINY, f"--config.optimizer.name={name}", "--config.skip_non_finite=2")
    (old, form), (new, other) = state_form(common), state_form((*common, *changes))
    differences = config_lib.differences(old, new)
    keys = {key for key, *_ in differences} - {"schedule.step.drops"}
    assert len(keys) >= len(changes) - 1  # the schedule is cosine before, too
    assert all(branch.may_change(*row) for row in differences), differences
    assert jax.tree.structure(form) == jax.tree.structure(other)
    assert form == other


@pytest.mark.parametrize(
    "change",
    [
        "seed=1", "batch_size=64", "model.width=32", "model.scan=False", "model.dtype=bfloat16",
        "data.image_size=16", "data.val_percent=20", "data.source=synthetic:",
        "data.mean=(0, 0, 1)",
        "data.examples=90", "data.window_shards=2", "masked.target=mean", "ema.decay=0",
        "skip_non_finite=1", "optimizer.name=sgd", "optimizer.adamw.mu_dtype=bfloat16",
        "optimizer.weight_decay=0", "init=other",
    ],
)  # fmt: skip
def test_settings_that_the_state_or_the_order_depends_on_stay(change):
    old = config_lib.load(QUICKSTART)
    new = config_lib.load(QUICKSTART, [f"--config.{change}"])
    refused = {
        key for key, *row in config_lib.differences(old, new) if not branch.may_change(key, *row)
    }
    assert refused == {change.partition("=")[0]}


def test_settings_that_change_no_results_may_all_change():
    for key, value in config_lib.flatten(config_lib.defaults()):
        if not config_lib.changes_results(key):
            assert branch.may_change(key, value, "other") == (key != "init"), key


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("no run", ["--branch=nothing@3"], ["nothing is not a folder", "give RUN@STEP"]),
        ("a folder", ["--branch=."], ["--branch=.: . has no checkpoints"]),
        ("a file", ["--branch=empty.npz"], ["empty.npz is not a folder"]),
        ("empty", ["--branch="], ["--branch is empty"]),
        ("no step", ["--branch=parent@7"], ["no such checkpoint", "its steps are [4, 6, 8, 12]"]),
        ("scheme", ["--branch=s3://a/b"], ["s3:// is not read"]),
        ("init", ["--branch=parent@8", "--config.init=parent"], ["--config.init cannot be given"]),
        (
            "settings",
            ["--branch=parent@8", "--config.batch_size=64", "--config.schedule.lr=1"],
            ["batch_size: 32 in the parent, now 64", "--config.init=parent@8"],
        ),
        ("itself", ["--branch=parent@8", "--workdir=parent"], ["is that run itself"]),
        ("other", ["--branch=parent@8", "--workdir=other"], ["holds a run that is not a branch"]),
        ("left", ["--branch=parent@8", "--workdir=left"], ["left has the metrics.jsonl of a run"]),
        (
            "other step",
            ["--branch=parent@8", "--workdir=branched"],
            ["branched holds a branch of", "parent@4", "leave --branch out"],
        ),
    ],
)
def test_bad_input_is_one_message_and_changes_nothing(
    parent, tmp_path, monkeypatch, capsys, name, arguments, words
):
    monkeypatch.chdir(tmp_path)
    Path("parent").symlink_to(parent)
    Path("empty.npz").write_bytes(b"")
    Path("other").mkdir()
    shutil.copy(parent / "config.yaml", "other")
    Path("left").mkdir()
    Path("left", "metrics.jsonl").write_text("")
    Path("branched").mkdir()
    config = config_lib.load(str(parent / "config.yaml"))
    config = config_lib.changed(config, {"branch": f"{tmp_path}/parent@4"})
    Path("branched", "config.yaml").write_text(config_lib.to_yaml(config))
    before = sorted(tmp_path.rglob("*"))
    assert main.main(["train", "--config=parent/config.yaml", "--workdir=new", *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert all(word in said for word in words), said
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.integration
def test_step_beyond_the_new_length_is_bad_input(parent, tmp_path, capsys):
    for length in (4, 8):
        assert begin(parent, 8, tmp_path / "new", f"--config.length={length} steps") == 2
        said = capsys.readouterr().err
        assert "step 8 is not before the end of the new run" in said
        assert f"is {length} steps; give a longer --config.length" in said
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["config.yaml", "state/manifest.ocdbt"])
def test_damaged_step_is_bad_input(parent, tmp_path, capsys, name):
    copy = shutil.copytree(parent, tmp_path / "parent")
    file = copy / "checkpoints" / "8" / name
    put(file, flip(file.read_bytes(), 13))
    assert begin(copy, 8, tmp_path / "new", *COOLED) == 2
    said = capsys.readouterr().err
    assert f"step 8 is damaged ({name} has changed)" in said
    assert "give another step of that run: [4, 6, 12]" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.integration
def test_data_with_other_classes_are_refused(parent, tmp_path, capsys):
    copy = shutil.copytree(parent, tmp_path / "parent")
    (copy / "classes.json").write_text(json.dumps({"classes": list("abcdefghij")}))
    assert begin(copy, 8, tmp_path / "new", *COOLED) == 2
    assert "other classes than the run was trained with" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_resolved_name_of_a_step_is_read_back_whatever_else_exists(tmp_path):
    from vit_jax.weights import loading

    for name in ("a", "a@8"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        text = loading.Run(tmp_path / name, 8).spelled
        folder, which = loading.split_run(text)
        assert (Path(folder), which) == (tmp_path / name, "8")
        assert branch._is_same(f"{tmp_path / name}", text)
    with pytest.raises(BadInput, match="no checkpoint yet"):
        branch._parent(str(tmp_path / "a"))


def test_best_step_of_a_run_is_one_that_it_kept(parent):
    best = branch._parent(f"{parent}@best")
    scores = {step: logged(parent)[step, "val/top1"] for step in (6, 12)}
    assert scores[best.step] == max(scores.values())
    assert best.spelled == f"{parent}@{best.step}"


# ---------------------------------------------------------------- processes


@pytest.mark.integration
def test_two_processes_branch_off_a_run_of_one(parent, planned, tmp_path):
    given = [w for w in TINY if "evals.val.every" not in w]
    own = (
        *given,
        *CONSTANT,
        *COOLED,
        "--config.evals.val.every=6 steps",
        "--config.ema.decay=0.99",
    )
    words = (*own, "--config.checkpoint.every=4 steps", f"--branch={parent}@8")
    codes, texts = outcome(launch(2, tmp_path / "new", *words))
    assert codes == [0, 0], texts
    assert texts[0].count(f"start: branching from {parent} at step 8") == 1
    assert close(tmp_path / "new", planned) > 40
    codes, texts = outcome(launch(2, tmp_path / "bad", *words, "--config.seed=2"))
    assert codes == [2, 2], texts
    assert "seed: 0 in the parent, now 2" in texts[0]
    assert not (tmp_path / "bad").exists()


@pytest.mark.integration
@pytest.mark.parametrize("file", ["config.yaml", "metrics.jsonl", "checkpoints", "checkpoints/8"])
def test_branch_that_is_killed_goes_on(parent, planned, tmp_path, file):
    """Killed as soon as it has written a file."""
    new, words = tmp_path / "new", (*CONSTANT, *COOLED, f"--branch={parent}@8")
    words = (*TINY, *words, "--config.ema.decay=0.99")
    [child] = launch(1, new, *words)
    end = time.monotonic() + 120
    while not (new / file).exists() and time.monotonic() < end and child.poll() is None:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert outcome([child])[0] == [-signal.SIGKILL]
    codes, texts = outcome(launch(1, new, *words))
    assert codes == [0], texts
    assert_equal(new, planned)


@pytest.mark.integration
def test_commands_of_the_page_are_run(tmp_path, monkeypatch):
    """Shortened: an epoch of 40 steps is one step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    commands = [c for c in readme_commands("train", ("docs/runs.md",)) if "runs/constant" in c]
    assert len(commands) == 4
    assert sum("--branch=" in c for c in commands) == 3
    small = [w for w in TINY if not re.search("length|warmup|checkpoint|evals", w)]
    small += ["--config.schedule.warmup=5 steps", "--config.checkpoint.every=20 steps"]
    for command in commands:
        short = re.sub(r"@(\d+)", lambda step: f"@{int(step[1]) // 40}", command)
        words = shlex.split(short.replace("epochs", "steps"))
        length = [] if "--config.length" in command else ["--config.length=120 steps"]
        assert main.main([*words[1:], *small, *length]) == 0, command
    assert [committed(tmp_path / "runs" / name)[0] for name in ("cooled60", "longer")] == [40, 120]
