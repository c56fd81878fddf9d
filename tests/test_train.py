# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The trainer, in this process: what a run writes, what it refuses, what it survives."""

import dataclasses
import errno
import json
import math
import re
import shlex
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pictures
import pytest
import yaml

import vit_jax
from vit_jax.build import defaults, program
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.hardware import device_memory
from vit_jax.models import published, variants
from vit_jax.step import objective
from vit_jax.storage import checksums
from vit_jax.storage import files as storage
from vit_jax.storage.jsonl import read_rows
from vit_jax.training import metric_writer, train

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.py")
# A run of seconds: small model, 12 steps, everything at a cadence.
TINY = (
    "--config.length=12 steps",
    "--config.model.depth=2",
    "--config.model.width=16",
    "--config.model.mlp=16",
    "--config.model.heads=2",
    "--config.schedule.warmup=2 steps",
    "--config.checkpoint.every=4 steps",
    "--config.evals.val.every=6 steps",
    "--config.report.every=1 steps",
    "--config.report.writers=()",
    "--config.report.page=false",
)


def run(workdir, *extra, config=QUICKSTART):
    return main.main(["train", f"--config={config}", f"--workdir={workdir}", *TINY, *extra])


def logged(workdir, prefixes=("train/", "norm/", "val", "test")):
    """(step, key) -> value of everything that is a function of the training."""
    rows = read_rows(storage.path(str(workdir)) / "metrics.jsonl")
    keys = [(row["step"], k) for row in rows for k in row if k.startswith(prefixes)]
    assert len(keys) == len(set(keys)), "a (step, key) appears twice"
    return {(r["step"], k): v for r in rows for k, v in r.items() if k.startswith(prefixes)}


def parameters(workdir, step=None):
    checkpoints = Checkpoints(storage.path(str(workdir)), read_only=True)
    weights = checkpoints.weights(step or checkpoints.latest)
    checkpoints.close()
    return jax.tree.leaves(weights)


def same_parameters(a, b):
    return all(np.array_equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))


@pytest.fixture
def finished(digits_run):
    """A run that was never interrupted."""
    return digits_run


def test_run_leaves_what_is_promised(finished):
    results = json.loads((finished / "results.json").read_text())
    assert results["step"] == 12
    assert (finished / results["checkpoint"]).is_dir()
    for split, examples in (("val", 152), ("test", 365)):
        for name in (split, f"{split}_raw"):
            assert results[name]["examples"] == examples
            assert 0 <= results[name]["top1"] <= results[name]["top5"] <= 1
            assert math.isfinite(results[name]["loss"])
    rows = read_rows(finished / "metrics.jsonl")
    assert [r["step"] for r in rows if "train/loss" in r] == list(range(1, 13))
    assert {r["step"] for r in rows if "val/top1" in r} == {6, 12}
    assert {r["step"] for r in rows if "test/top1" in r} == {12}
    assert rows[0]["train/loss"] == pytest.approx(math.log(10), abs=1e-5)  # zero head: uniform
    assert rows[0]["train/lr"] == 0.0
    assert logged(finished)[(12, "test/top1")] == results["test"]["top1"]
    turns = [(row["event"], row["step"]) for row in read_rows(finished / "goodput.jsonl")]
    saves = [("save", 4), ("save", 8), ("save", 12)]
    assert turns == [
        ("start", 0),
        ("initialised", 0),
        ("first_step", 1),
        ("new_step", 1),
        *saves,
        ("exit", 12),
    ]


@pytest.mark.slow
def test_loss_falls(tmp_path):
    longer = (
        "--config.length=200 steps",
        "--config.report.every=20 steps",
        "--config.schedule.lr=0.01",
    )
    assert run(tmp_path, *longer, "--config.evals.val.every=0", "--config.checkpoint.every=0") == 0
    losses = [v for (_, k), v in logged(tmp_path).items() if k == "train/loss"]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.integration
def test_from_scratch_without_being_asked_says_once_what_would_help_and_how_long_it_takes(
    tmp_path, capsys, caplog, monkeypatch
):
    """The time of the first step, which is compiled, and of evaluating is not in the estimate."""
    real = train.dispatched, train.evaluate

    def slow(step, *rest):
        real[0](step, *rest)
        if step == 1:
            time.sleep(6)

    def slow_evaluation(run, state, names, step, *rest):
        time.sleep(2 * (0 < step < 12))
        return real[1](run, state, names, step, *rest)

    monkeypatch.setattr(train, "dispatched", slow)
    monkeypatch.setattr(train, "evaluate", slow_evaluation)
    pictures.folder(tmp_path / "images", *(f"{c}/{i}.png" for c in "ab" for i in range(12)))
    data = f"--config.data.source=folder:{tmp_path / 'images'}", "--config.data.image_size=16"
    small = *data, "--config.batch_size=8", "--config.checkpoint.keep_best="
    finetune = QUICKSTART.replace("quickstart", "finetune")
    assert run(tmp_path / "run", *small, config=finetune) == 0
    said = capsys.readouterr().err.splitlines()
    (advice,) = [record.getMessage() for record in caplog.records if "init" in record.getMessage()]
    assert "Ti/8 at 16 px" in advice
    assert published.url(re.search(r"--config\.init=(\S+)", advice)[1])
    (estimate,) = [line for line in said if line.startswith("about ")]
    secs, steps = re.match(r"about (\d+) s for (\d+) steps at [\d,]+ img/s", estimate).groups()
    assert int(steps) == 12
    assert int(secs) <= 5  # less than the sleep of the first step
    place = said.index(estimate)
    assert not any(line.startswith("step 10/") for line in said[:place])
    assert any(line.startswith("step 8/") for line in said[:place])


@pytest.mark.parametrize(
    "spec, overrides, advised",
    [
        ("finetune.py", (), True),
        ("finetune.py", ("data.image_size=32",), True),
        ("finetune.py", ("model.variant=B/16",), False),
        ("finetune.py:model=Ti/8", (), False),
        ("quickstart.py", (), False),
    ],
)
def test_weights_are_advised_where_the_model_was_left_to_them(spec, overrides, advised, caplog):
    spec = QUICKSTART.replace("quickstart.py", spec)
    given = [f"--config.{override}" for override in overrides]
    config = defaults.settle(config_lib.load(spec, given))
    caplog.set_level("INFO")
    metric_writer.advise(config, provenance.recipe(spec, given), 11)
    assert ("--config.init=" in caplog.text) == advised
    assert len(caplog.records) == advised
    config = dataclasses.replace(config, init="weights.npz")
    metric_writer.advise(config, provenance.recipe(spec, given), 11)
    assert len(caplog.records) == advised


@pytest.mark.parametrize("steps", [10, 11])
def test_an_estimate_is_promised_only_where_one_follows(steps, caplog):
    spec = QUICKSTART.replace("quickstart", "finetune")
    caplog.set_level("INFO")
    config = defaults.settle(config_lib.load(spec))
    metric_writer.advise(config, provenance.recipe(spec, []), steps)
    (said,) = caplog.messages
    assert ("; an estimate of the time follows after 10 steps" in said) == (steps > 10)
    assert said.endswith(("`vit_jax models`)", "steps"))


def test_finished_run_is_not_touched_and_prints_its_results(finished, capsys):
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file()}
    assert run(finished) == 0
    assert "top-1" in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "text", ["{}", '{"checkpoint": 3}', '{"checkpoint": "c", "test": {"top1": "x"}}']
)
def test_results_that_are_damaged_are_bad_input(finished, tmp_path, capsys, text):
    shutil.copy(finished / "config.yaml", tmp_path)
    (tmp_path / "results.json").write_text(text)
    assert run(tmp_path) == 2
    message = capsys.readouterr().err
    assert f"{tmp_path / 'results.json'} is damaged" in message
    assert "Remove it and run the same command again" in message


@pytest.mark.integration
def test_run_in_a_bucket_that_is_stopped_and_continued_equals_one_on_a_disk(
    finished, store, monkeypatch, capsys
):
    workdir = "gs://bucket/runs/a ü run"
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            run(workdir)
    folder = storage.path(workdir)
    assert max(row["step"] for row in read_rows(folder / "metrics.jsonl")) > 4
    store.asked.clear()
    assert run(workdir) == 0
    puts = [name for what, name in store.asked if what == "write" and "/metrics/" in name]
    assert len(puts) == sum(row["step"] > 4 for row in read_rows(folder / "metrics.jsonl"))
    of_steps = ("/checkpoints", "/metrics", "/goodput", "/lock.json", "/STOP")  # two by the clock
    assert len([name for _, name in store.asked if not any(n in name for n in of_steps)]) < 30
    assert logged(workdir) == logged(finished)
    assert same_parameters(workdir, finished)
    results = json.loads((folder / "results.json").read_text())
    assert results == json.loads((finished / "results.json").read_text())
    turns = sorted(read_rows(folder / "goodput.jsonl"), key=lambda row: row["time"])
    assert [row["code"] for row in turns if row["event"] == "exit"] == [1, 0]
    assert [row["step"] for row in turns if row["event"] == "initialised"] == [0, 4]
    assert "runs/a ü run/metrics\n" in capsys.readouterr().out  # no curves of TensorBoard

    (_, params, _), (_, same, _) = vit_jax.load(workdir), vit_jax.load(finished)
    jax.tree.map(np.testing.assert_array_equal, params, same)
    assert main.main(["inspect", workdir]) == 0
    assert main.main(["table", "5", "--runs=gs://bucket/runs"]) == 0
    assert "not readable" not in capsys.readouterr().out


@pytest.mark.integration
def test_run_in_a_folder_of_any_name_is_continued_and_used(finished, tmp_path, monkeypatch, capsys):
    """A pattern, an escape, a URL's signs, a home and a step, all of which are only a name here."""
    monkeypatch.chdir(tmp_path)
    name = "./~/my [runs] back\\a%20b#c?@best"
    shutil.copytree(finished, name)
    Path(name, "results.json").unlink()
    shutil.rmtree(Path(name, "checkpoints", "12"))
    assert run(name) == 0
    assert same_parameters(Path(name).absolute(), finished)
    image = tmp_path / "image.png"
    image.write_bytes(pictures.encode(pictures.noise(8, 8)))
    for words in (["inspect"], ["predict", image], ["report"], ["evaluate", "--out=evaluation"]):
        assert main.main([words[0], name, *map(str, words[1:])]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_commands_of_the_page_run_in_a_bucket(store, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "remote.md").read_text()
    commands = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).strip().splitlines()
    assert len(commands) == 4
    for command in commands:
        words = shlex.split(command.replace("my-bucket", "bucket"))[1:]
        assert main.main([*words, *(TINY if words[0] == "train" else ())]) == 0, command
    assert "fits" in capsys.readouterr().out


@pytest.mark.slow
def test_sweep_in_a_bucket_is_collected_and_run_again_does_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = tmp_path / "two.py"
    recipe.write_text(
        "from configs import quickstart\n"
        "def get_config(arg=None):\n    return quickstart.get_config()\n"
        "def sweep(arg=None):\n    return [{'seed': 0}, {'seed': 1}]\n"
    )
    words = ["sweep", f"--config={recipe}", "--workdir=gs://bucket/two"]
    assert main.main([*words, *TINY]) == 0
    assert {n.rpartition("/")[2] for n in store.names("bucket/two/")} >= {"log.txt", "sweep.csv"}
    assert main.main(["sweep", "--workdir=gs://bucket/two", "--collect"]) == 0
    store.asked.clear()
    assert main.main([*words, *TINY]) == 0
    assert not any("checkpoints" in name and what == "write" for what, name in store.asked)


@pytest.mark.slow
def test_run_in_a_bucket_that_fails_now_and_then_is_the_same(finished, store):
    store.fail_every = 40
    assert run("gs://bucket/run") == 0
    assert logged("gs://bucket/run") == logged(finished)
    assert same_parameters("gs://bucket/run", finished)


@pytest.mark.slow
def test_saved_yaml_starts_an_identical_run(finished, tmp_path):
    code = main.main(
        ["train", f"--config={finished / 'config.yaml'}", f"--workdir={tmp_path / 'again'}"]
    )
    assert code == 0
    assert (tmp_path / "again" / "config.yaml").read_text() == (
        finished / "config.yaml"
    ).read_text()
    assert logged(tmp_path / "again") == logged(finished)
    assert same_parameters(tmp_path / "again", finished)


def stop_at(monkeypatch, step):
    """Raises in the place of the evaluation or save that follows a step."""
    real = train.Window.add

    def add(self, at, metrics):
        real(self, at, metrics)
        if at == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(train.Window, "add", add)


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 5, 11])
def test_interrupted_and_continued_equals_uninterrupted(finished, tmp_path, monkeypatch, step):
    with monkeypatch.context() as patch:
        stop_at(patch, step)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert not (tmp_path / "results.json").exists()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 7, "train/lo')  # torn by the crash
    assert run(tmp_path) == 0
    assert logged(tmp_path) == logged(finished)
    assert same_parameters(tmp_path, finished)


@pytest.mark.integration
def test_damaged_checkpoint_is_left_out_and_the_run_ends_as_if_nothing_had_been(
    finished, tmp_path, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        stop_at(patch, 10)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "--config.checkpoint.keep_last=2")
    assert (tmp_path / "restarts.json").exists()
    (tmp_path / "checkpoints" / "8" / "state" / "_METADATA").write_text("")
    assert run(tmp_path, "--config.checkpoint.keep_last=2") == 0
    assert "step 8 is damaged (state/_METADATA has changed)" in caplog.text
    assert "continuing from step 4: 4 steps are done again" in caplog.text
    assert logged(tmp_path) == logged(finished)
    assert same_parameters(tmp_path, finished)
    names = {p.name for p in (tmp_path / "checkpoints").iterdir()}
    assert names == {"8", "8.damaged", "12"}
    assert not (tmp_path / "restarts.json").exists()


@pytest.mark.integration
def test_save_that_fails_ends_the_run_at_the_next_step(tmp_path, monkeypatch, capsys):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checksums, "write", full)
    assert run(tmp_path, "--config.checkpoint.every=1 steps") == 1
    message = capsys.readouterr().err
    assert "step 1 could not be saved" in message
    assert "Traceback" not in message
    assert max(step for step, _ in logged(tmp_path)) < 4


@pytest.mark.integration
def test_results_lost_after_the_last_save_are_made_again(finished, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(train, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert run(tmp_path) == 0
    assert json.loads((tmp_path / "results.json").read_text()) == json.loads(
        (finished / "results.json").read_text()
    )
    assert logged(tmp_path) == logged(finished)


def test_other_results_refused_other_places_accepted(finished, tmp_path, capsys):
    workdir = shutil.copytree(finished, tmp_path / "run")
    before = (workdir / "config.yaml").read_text()
    assert run(workdir, "--config.schedule.lr=0.1", "--config.seed=3", "--config.mesh.data=4") == 2
    message = capsys.readouterr().err
    assert "schedule.lr" in message
    assert "seed" in message
    assert "mesh.data" not in message
    assert (workdir / "config.yaml").read_text() == before
    assert run(workdir, "--config.data.workers=2", "--config.accumulation=2") == 0


@pytest.mark.slow
def test_seed_changes_the_run(finished, tmp_path):
    assert run(tmp_path, "--config.seed=1") == 0
    assert not same_parameters(tmp_path, finished)


@pytest.mark.slow
def test_accumulation_and_mesh_leave_losses(finished, tmp_path):
    devices = "--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"
    assert run(tmp_path, "--config.accumulation=2", *devices) == 0
    mine, quiet = logged(tmp_path, ("train/loss",)), logged(finished, ("train/loss",))
    assert mine.keys() == quiet.keys()
    assert [mine[k] for k in quiet] == pytest.approx(list(quiet.values()), rel=1e-3)


@pytest.mark.slow
def test_a_run_goes_on_with_another_mesh_memory_and_attention(tmp_path, monkeypatch):
    """From eight devices in three directions to FSDP alone, by way of a checkpoint."""
    cube = "--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"
    flat = "--config.mesh.data=1", "--config.mesh.fsdp=8", "--config.mesh.tensor=1"
    other = "--config.model.remat=query,mlp_up", "--config.model.attention=fused"
    results = "--config.optimizer.name=sgd", "--config.mixup.alpha=0.2", "--config.schedule.lr=0.5"
    assert run(tmp_path / "whole", *results, *cube) == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 9)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "changed", *results, *cube)
    assert run(tmp_path / "changed", *results, *flat, *other, "--config.accumulation=2") == 0
    expected = logged(tmp_path / "whole", ("train/", "test/loss", "val/loss"))
    found = logged(tmp_path / "changed", ("train/", "test/loss", "val/loss"))
    assert found == {key: pytest.approx(value, rel=1e-5) for key, value in expected.items()}
    assert len({v for (_, k), v in expected.items() if k == "train/loss"}) > 9  # it learns
    for a, b in zip(parameters(tmp_path / "whole"), parameters(tmp_path / "changed"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    _, params, _ = vit_jax.load(tmp_path / "changed")  # on one device
    for a, b in zip(jax.tree.leaves(params), parameters(tmp_path / "changed"), strict=True):
        assert isinstance(b, np.ndarray)
        np.testing.assert_array_equal(a, b)


@pytest.mark.integration
def test_what_is_not_finite_stops_at_that_step_and_keeps_the_last_good(
    tmp_path, capsys, monkeypatch
):
    real = program.train_step.make_train_step

    def poisoned(*args, **kwargs):
        step = real(*args, **kwargs)

        def with_nan(state, batch, key):
            after, metrics = step(state, batch, key)
            bad = jax.numpy.where(state.step == 6, jax.numpy.nan, 0.0)
            return after, metrics | {"grad_norm": metrics["grad_norm"] + bad}

        return with_nan

    monkeypatch.setattr(program.train_step, "make_train_step", poisoned)
    assert run(tmp_path, "--config.report.every=5 steps") == 1
    message = capsys.readouterr().err
    assert "norm/grads is nan at step 7; stopped. Last" in message
    assert "step 4" in message
    assert "Traceback" not in message
    checkpoints = Checkpoints(tmp_path, read_only=True)
    assert checkpoints.latest == 4
    checkpoints.close()
    assert not (tmp_path / "results.json").exists()
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.integration
def test_of_what_is_not_finite_the_first_that_a_step_computes_is_named(tmp_path, capsys):
    """Adam's first update is as large as the rate, and so are the parameters after it."""
    assert run(tmp_path, "--config.schedule.lr=1e30", "--config.schedule.warmup=0") == 1
    message = capsys.readouterr().err
    assert re.search(r"norm/updates is (inf|nan) at step 1; stopped\. Last", message), message


def poison(monkeypatch, *steps):
    """Makes the loss, and so the gradients, of these steps not a number."""
    real = Pipeline.train, objective.normalise

    def train(self, first, *rest):
        for step, batch in enumerate(real[0](self, first, *rest), first + 1):
            white = {"image": np.full_like(batch["image"], 255)}
            yield batch | (white if step in steps else {})

    def normalise(image, *rest):
        white = jax.numpy.all(image == 255)
        return jax.numpy.where(white, jax.numpy.nan, real[1](image, *rest))

    monkeypatch.setattr(Pipeline, "train", train)
    monkeypatch.setattr(objective, "normalise", normalise)


@pytest.mark.slow
def test_updates_are_skipped_as_often_as_asked_and_counted_over_a_restart(
    finished, tmp_path, caplog, monkeypatch
):
    poison(monkeypatch, 3, 7)
    skips = ("--config.skip_non_finite=2", "--config.accumulation=2")
    assert run(tmp_path / "quiet", *skips) == 0
    assert "step 7: train/loss is nan; update skipped, 2 of at most 2" in caplog.text
    rows = logged(tmp_path / "quiet")
    counts = [rows[step, "train/skipped_updates"] for step in range(1, 13)]
    assert counts == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert (7, "train/loss") not in rows
    assert (7, "norm/grads") not in rows
    assert rows[7, "norm/params"] == rows[6, "norm/params"]  # which step 7 left as they were
    plain = logged(finished)
    assert rows[8, "train/lr"] == plain[6, "train/lr"]  # the schedule goes by updates done
    assert all(math.isfinite(value) for value in rows.values())
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", *skips)
    assert run(tmp_path / "cut", *skips) == 0
    assert logged(tmp_path / "cut") == rows
    assert same_parameters(tmp_path / "cut", tmp_path / "quiet")


@pytest.mark.integration
def test_one_update_more_than_may_be_skipped_stops_the_run(tmp_path, capsys, monkeypatch):
    poison(monkeypatch, 3, 7)
    assert run(tmp_path, "--config.skip_non_finite=1", "--config.report.every=5 steps") == 1
    message = capsys.readouterr().err
    assert "train/loss is nan at step 7; stopped, as many updates as" in message
    assert "Last good checkpoint: step 4." in message
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


def test_rows_tell_of_memory_and_waiting(finished):
    """Rows also hold the memory of devices that report it; the CPU does not."""
    for row in read_rows(finished / "metrics.jsonl"):
        if "train/loss" in row:
            assert 2**20 < row["memory/host_bytes"] < 2**40
            assert 2**20 < row["memory/host_free_bytes"] < 2**50
            assert 0 <= row["perf/input_wait"] <= 1
            assert not {"memory/device_bytes", "data/bad_images"} & row.keys()


@pytest.mark.integration
def test_metrics_are_fetched_once_a_window(tmp_path, monkeypatch):
    fetches = []
    real = jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda tree: fetches.append(len(tree)) or real(tree))
    never = ("--config.checkpoint.every=0", "--config.evals.val.every=0")
    assert run(tmp_path, "--config.report.every=4 steps", *never) == 0
    # Windows end at 1, 4, 8 and 12: each is fetched when the next has ended, the last before the
    # final evaluation of two splits, on averaged and raw parameters.
    assert [n for n in fetches if n][:4] == [1, 3, 4, 4]
    assert len(fetches) <= 4 + 1 + 4


@pytest.mark.integration
def test_best_and_newest_are_kept_and_curves_of_tensorboard_are_written(tmp_path):
    keep = ("--config.checkpoint.keep_best=val/loss", "--config.checkpoint.every=5 steps")
    more = ("--config.evals.val.every=3 steps", "--config.report.writers=('tensorboard',)")
    assert run(tmp_path, *keep, *more) == 0
    assert list(tmp_path.glob("events.out.tfevents.*"))
    rows = {s: v for (s, k), v in logged(tmp_path).items() if k == "val/loss"}
    checkpoints = Checkpoints(tmp_path, read_only=True)
    assert checkpoints.best("val/loss") == min(rows, key=rows.get)
    assert checkpoints.latest == 12
    checkpoints.close()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adafactor", "lamb"])
def test_every_optimizer_trains_and_resumes(tmp_path, optimizer, monkeypatch):
    args = (f"--config.optimizer.name={optimizer}", "--config.length=6 steps")
    recipe = tmp_path / "recipe.py"  # quickstart sets a key of adamw, which is then not chosen
    recipe.write_text(Path(QUICKSTART).read_text())
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", *args, config=recipe)
    assert run(tmp_path / "cut", *args, config=recipe) == 0
    assert run(tmp_path / "whole", *args, config=recipe) == 0
    assert same_parameters(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
def test_profile_writes_a_trace(tmp_path):
    assert run(tmp_path, "--config.profile=3:5") == 0
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


@pytest.mark.slow
def test_out_of_memory_says_what_would_fit(tmp_path, capsys, monkeypatch):
    def explode(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")

    monkeypatch.setattr(train, "loop", explode)
    monkeypatch.setattr(device_memory, "limit_bytes", lambda _: 2**30)
    assert run(tmp_path, "--config.mesh.fsdp=2") == 2
    message = capsys.readouterr().err
    assert "out of memory" in message
    assert "--config.mesh.fsdp=8 --config.mesh.data=-1: " in message
    assert "--config.accumulation=2" in message
    assert "--config.model.remat=dots" in message
    assert "--config.model.remat=full" in message
    assert "--config.batch_size=16" in message
    assert "fits" in message
    assert list(tmp_path.iterdir()) == []  # so that the advice can be taken in this workdir


@pytest.mark.slow
def test_records_with_several_labels_an_image_are_trained_on(tmp_path):
    """The shape of JFT: K labels, -1 where an image has fewer; no split of its own."""
    root = tmp_path / "records"
    images = [pictures.encode(pictures.noise(8, 8, seed=i), "JPEG") for i in range(64)]
    contents = [
        pictures.record(image=image, label=[i % 3, 2][: 1 + i % 2])
        for i, image in enumerate(images)
    ]
    pictures.records(root / "x-00000-of-00001.tfrecord", contents)
    (root / "labels.txt").write_text("a\nb\nc\n")
    args = [
        f"--config.data.source=records:{root}", "--config.data.records.max_labels=2",
        "--config.loss.name=sigmoid", "--config.batch_size=16", "--config.mixup.alpha=0.2",
        "--config.data.train_ops=decode|resize({size})", "--config.evals.val.every=0",
    ]  # fmt: skip
    assert run(tmp_path / "run", *args) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert 0 < results["test"]["loss"] < 5


BAD = {
    "batch": (["--config.batch_size=30"], ["24 or 32"]),
    "accumulation": (["--config.accumulation=3"], ["does not divide"]),
    "patch": (["--config.data.image_size=9"], ["8 or 10"]),
    "mesh": (["--config.mesh.tensor=3"], ["devices"]),
    "split": (["--config.data.split=training"], ["train"]),
    "warmup": (["--config.schedule.warmup=90 steps"], ["warm-up"]),
    "freeze": (["--config.optimizer.freeze=('nothing/.*',)"], ["matches no parameter"]),
    "profile": (["--config.profile=5:100"], ["beyond"]),
    "init": (["--config.init=/no/such/run"], ["does not exist"]),
    "source": (["--config.data.source=folder:/no/such"], ["does not exist", "PATH/CLASS"]),
    "data": (["--data=folder:/no/such"], ["folder:/no/such", "does not exist"]),
    "two splits": (
        ["--config.data.split=training", "--config.evals.val.split=vall"],
        ["2 problems", "'training'", "'vall'"],
    ),
    "source and init": (
        ["--config.data.source=folder:/no/such", "--config.init=/no/run"],
        ["2 problems", "folder:/no/such", "/no/run"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_and_writes_nothing(tmp_path, capsys, case):
    args, expected = BAD[case]
    assert run(tmp_path / "run", *args) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    for text in expected:
        assert text in message
    assert not (tmp_path / "run").exists()


QUICK = ("transfer",)  # of the others, synthetic images take a step by default


def recipe_names():
    """Lists the recipes of single runs: the miniature is a sweep, with tests of its own."""
    others = ("__init__", "base", "miniature")
    return sorted(p.stem for p in (ROOT / "configs").glob("*.py") if p.stem not in others)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.integration if n in QUICK else pytest.mark.slow)
        for n in recipe_names()
    ],
)
def test_every_recipe_takes_a_step_on_small_data(name, tmp_path, image_folder):
    data = [f"--config.data.source=folder:{image_folder}", "--config.data.image_size=32"]
    small = [
        *([] if name == "quickstart" else data),
        "--config.length=2 steps", "--config.batch_size=8",
        "--config.model.depth=1", "--config.model.width=8", "--config.model.heads=1",
        "--config.model.mlp=8", "--config.schedule.warmup=1 steps", "--config.checkpoint.every=0",
        "--config.report.writers=()", "--config.report.page=false",
    ]  # fmt: skip
    config = ROOT / "configs" / f"{name}.py"
    assert main.main(["train", f"--config={config}", f"--workdir={tmp_path}", *small]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["step"] == 2


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in recipe_names()],
)
def test_every_recipe_says_what_it_is(name):
    config = config_lib.load(str(ROOT / "configs" / f"{name}.py"))
    text = (ROOT / "configs" / f"{name}.py").read_text()
    assert f"vit_jax train --config=configs/{name}.py" in text
    if config.expected.metric:
        assert config.expected.source
        assert config.expected.hardware
        assert config.expected.hours > 0
        assert config.expected.tolerance > 0


@pytest.mark.integration
def test_start_from_a_run_with_other_classes_and_resolution(
    finished, tmp_path, image_folder, caplog, capsys
):
    args = [
        f"--config={ROOT / 'configs' / 'finetune.py'}", f"--workdir={tmp_path / 'tuned'}",
        f"--config.data.source=folder:{image_folder}", f"--config.init={finished}",
        "--config.data.image_size=12", "--config.length=2 steps", "--config.batch_size=8",
        "--config.report.writers=()", "--config.report.page=false",
    ]  # fmt: skip
    assert main.main(["train", *args, "--config.model.pool=map"]) == 2  # given, so not dropped
    assert "model.pool='map'" in capsys.readouterr().err
    assert not (tmp_path / "tuned").exists()
    assert main.main(["train", *args]) == 0
    saved = yaml.safe_load((tmp_path / "tuned" / "config.yaml").read_text())
    assert [saved["model"][key] for key in ("width", "depth", "pool")] == [16, 2, "gap"]
    assert "re-initialised" in caplog.text
    assert re.search(r"posemb +resized", caplog.text)
    assert main.main(["train", *args, "--config.model.width=96"]) == 2
    assert "model.width" in capsys.readouterr().err
    # A workdir with a checkpoint resumes, whatever init says now.
    (tmp_path / "tuned" / "results.json").unlink()
    assert main.main(["train", *[a for a in args if "init" not in a]]) == 0


@pytest.mark.integration
def test_start_from_an_original_npz_file(tmp_path, image_folder, caplog):
    draw = np.random.default_rng(0).normal
    block = "Transformer/encoderblock_0"
    shapes = {
        "cls": (1, 1, 12), "embedding/kernel": (4, 4, 3, 12), "embedding/bias": (12,),
        "Transformer/posembed_input/pos_embedding": (1, 10, 12),
        "Transformer/encoder_norm/scale": (12,), "Transformer/encoder_norm/bias": (12,),
        f"{block}/LayerNorm_0/scale": (12,), f"{block}/LayerNorm_0/bias": (12,),
        f"{block}/LayerNorm_2/scale": (12,), f"{block}/LayerNorm_2/bias": (12,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (12, 20), f"{block}/MlpBlock_3/Dense_0/bias": (20,),
        f"{block}/MlpBlock_3/Dense_1/kernel": (20, 12), f"{block}/MlpBlock_3/Dense_1/bias": (12,),
        "pre_logits/kernel": (12, 12), "pre_logits/bias": (12,),
        "head/kernel": (12, 7), "head/bias": (7,),
    }  # fmt: skip
    attention = f"{block}/MultiHeadDotProductAttention_1"
    for name in ("query", "key", "value"):
        shapes |= {f"{attention}/{name}/kernel": (12, 2, 6), f"{attention}/{name}/bias": (2, 6)}
    shapes |= {f"{attention}/out/kernel": (2, 6, 12), f"{attention}/out/bias": (12,)}
    weights = {name: draw(size=shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "original.npz", **weights)
    code = main.main([
        "train", f"--config={ROOT / 'configs' / 'finetune.py'}", f"--workdir={tmp_path / 'run'}",
        f"--config.data.source=folder:{image_folder}", "--config.length=1 steps",
        f"--config.init={tmp_path / 'original.npz'}", "--config.batch_size=8",
        "--config.schedule.warmup=1 steps", "--config.report.writers=()",
        "--config.report.page=false",
    ])  # fmt: skip
    assert code == 0  # the only update has rate 0, so the weights are still those of the file
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["model"]["heads"] == 2
    assert saved["data"]["image_size"] == 12
    checkpoints = Checkpoints(tmp_path / "run", read_only=True)
    kept = checkpoints.weights(1)
    checkpoints.close()
    np.testing.assert_array_equal(
        kept["blocks"]["attn"]["query"]["kernel"][0], weights[f"{attention}/query/kernel"]
    )
    np.testing.assert_array_equal(kept["embedding"]["kernel"], weights["embedding/kernel"])
    assert not np.any(kept["head"]["kernel"])
    assert kept["head"]["kernel"].shape == (12, 2)
    assert "pre_logits/kernel" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["auto", "custom/4"])
def test_constants_and_normalisation_follow_weights_of_timm(
    tmp_path, image_folder, variant, caplog
):
    sizes = {"width": 16, "depth": 1, "mlp": 24, "heads": 2}
    cfg = variants.config(variant="custom/4", classes=5, gelu="erf", **sizes)
    shapes = variants.shapes(cfg, 12, 12)
    params = jax.tree.map(lambda x: np.full(x.shape, 0.1, np.float32), shapes)
    file = tmp_path / "weights" / "model.safetensors"
    vit_jax.save(file, variants.make(cfg), params, format="timm")
    beside = json.loads(file.with_name("config.json").read_text())
    beside["pretrained_cfg"] |= {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}
    file.with_name("config.json").write_text(json.dumps(beside))
    args = [
        f"--config={ROOT / 'configs' / 'finetune.py'}", f"--config.init={file}",
        f"--config.data.source=folder:{image_folder}", "--config.length=1 steps",
        "--config.batch_size=8", "--config.schedule.warmup=0", "--config.report.writers=()",
        "--config.report.page=false",
        f"--workdir={tmp_path / 'run'}", f"--config.model.variant={variant}",
    ]  # fmt: skip
    if variant != "auto":
        args += [f"--config.model.{key}={value}" for key, value in sizes.items()]
    assert main.main(["train", *args]) == 0
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["model"]["gelu"] == "erf"
    assert saved["data"]["mean"] == [0.4, 0.5, 0.6]
    assert saved["data"]["std"] == [0.2, 0.3, 0.4]
    assert saved["data"]["image_size"] == 12
    assert "5 -> 2 classes" in caplog.text
    shutil.rmtree(file.parent)  # the run goes on without the weights that it started from
    (tmp_path / "run" / "results.json").unlink()
    assert main.main(["train", *args]) == 0


@pytest.mark.slow
def test_profile_goes_on_in_a_run_that_is_continued(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "--config.profile=3:9")
    assert run(tmp_path, "--config.profile=3:9") == 0


@pytest.mark.slow
def test_what_is_kept_may_change_when_a_run_is_continued(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "--config.checkpoint.keep_best=val/top1")
    assert run(tmp_path, "--config.checkpoint.keep_best=val/loss") == 0
    losses = {s: v for (s, k), v in logged(tmp_path).items() if k == "val/loss"}
    checkpoints = Checkpoints(tmp_path, read_only=True)
    assert checkpoints.best("val/loss") == min(losses, key=losses.get)
    checkpoints.close()


@pytest.mark.parametrize("name", ["train", "step", "val_raw"])
def test_names_of_evaluations_that_would_collide_are_refused(tmp_path, capsys, name):
    recipe = tmp_path / "recipe.py"
    text = Path(QUICKSTART).read_text()
    extra = f"    with config.unlocked():\n        config.evals.{name} = base.evaluation('val')\n"
    recipe.write_text(text.replace("    return config\n", extra + "    return config\n"))
    assert run(tmp_path / "run", config=recipe) == 2
    assert f"evals.{name}" in capsys.readouterr().err


@pytest.mark.integration
def test_bad_image_is_named_and_what_was_written_is_removed(tmp_path, image_folder, capsys):
    folder = tmp_path / "images"
    shutil.copytree(image_folder, folder)
    (folder / "train" / "red" / "3.jpg").write_bytes(b"not an image")
    args = [
        f"--config={ROOT / 'configs' / 'finetune.py'}", f"--workdir={tmp_path / 'run'}",
        f"--config.data.source=folder:{folder}", "--config.batch_size=8",
        "--config.model.depth=1", "--config.length=2 epochs", "--config.report.writers=()",
        "--config.report.page=false",
    ]  # fmt: skip
    assert main.main(["train", *args]) == 2
    message = capsys.readouterr().err
    assert "train/red/3.jpg" in message
    assert "Traceback" not in message
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_images_skipped_before_a_restart_are_in_the_results(tmp_path, image_folder, monkeypatch):
    """Also those that a process of another number skipped."""
    images = tmp_path / "images"
    shutil.copytree(image_folder, images)
    shutil.copytree(images / "test", images / "val")
    for path in sorted(images.glob("train/*/*.jpg"))[::2]:
        path.write_bytes(b"no image")
    changes = (
        f"--config={ROOT / 'configs' / 'finetune.py'}", f"--config.data.source=folder:{images}",
        "--config.data.bad_images=skip", "--config.batch_size=8", "--config.model.depth=1",
        "--config.length=6 steps", "--config.checkpoint.every=2 steps",
        "--config.report.writers=()", "--config.report.page=false",
    )  # fmt: skip
    args = [["train", *changes, f"--workdir={tmp_path / name}"] for name in ("quiet", "stopped")]
    assert main.main(args[0]) == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            main.main(args[1])
    stopped = tmp_path / "stopped"
    (stopped / "skipped-0.json").rename(stopped / "skipped-7.json")
    assert main.main(args[1]) == 0
    found = [json.loads((w / "results.json").read_text()) for w in (tmp_path / "quiet", stopped)]
    assert found[0]["skipped"] == found[1]["skipped"]
    last = read_rows(stopped / "metrics.jsonl")[-2]  # before the row of the evaluations
    assert last["data/bad_images"] == len(found[0]["skipped"])
    assert len(found[0]["skipped"]) > 12
    assert json.loads((stopped / "skipped-0.json").read_text())  # of the second start
