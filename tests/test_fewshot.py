# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ridge regression against numpy and scikit-learn, and what `evaluate` makes of a task."""

import dataclasses
import json
import re
import shlex
import shutil

import numpy as np
import pictures
import pytest
from sklearn.linear_model import Ridge
from test_train import ROOT, TINY, logged, run, stop_at

import vit_jax
from vit_jax.build import defaults, splits
from vit_jax.build import run as build
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.data.tasks.shots import ALL, Task
from vit_jax.evaluators import fewshot, probe
from vit_jax.inference import model as inference
from vit_jax.reports import summary

SHAPES = [(10, 4), (10, 64), (64, 64), (65, 64), (64, 65), (63, 64), (997, 31), (2, 101)]


def drawn(count, width, classes=5, seed=0, scored=53):
    """Features of overlapping classes, far from white; labels; features to be scored."""
    rng = np.random.default_rng(seed)
    means, scale = rng.normal(size=(classes, width)), np.exp(rng.normal(size=(1, width)))
    labels = rng.permutation(np.arange(count) % classes).astype(np.int32)
    x = (rng.normal(size=(count, width)) + means[labels]) * scale + 3
    test = rng.normal(size=(scored, width)) * scale + 3
    return x.astype(np.float32), labels, test.astype(np.float32)


def plain_ridge(x, labels, test, classes, l2=2.0**10):
    """Ten lines of float64: normal equations of whitened features and a column of 100."""
    x, test = np.float64(x), np.float64(test)
    mean, std = np.mean(x, 0), np.std(x, 0) + 1e-5
    a = np.hstack([(x - mean) / std, 100 * np.ones((len(x), 1))])
    b = np.hstack([(test - mean) / std, 100 * np.ones((len(test), 1))])
    y = 2 * np.eye(classes)[labels] - 1
    return b @ np.linalg.inv(a.T @ a + l2 * np.eye(a.shape[1])) @ a.T @ y


@pytest.mark.parametrize("count, width", SHAPES)
@pytest.mark.parametrize("l2", [2.0**10, 1.0])
def test_ridge_is_that_of_numpy(count, width, l2):
    x, labels, test = drawn(count, width)
    found = fewshot.ridge_scores(x, labels, test, 5, l2=l2)
    expected = plain_ridge(x, labels, test, 5, l2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (fewshot.ridge(x, labels, test, 5, l2=l2) == expected.argmax(1)).all()
    assert found.shape == (53, 5)


@pytest.mark.parametrize("count, width", [(40, 16), (16, 40)])
def test_ridge_is_that_of_scikit_learn(count, width):
    x, labels, test = drawn(count, width)
    mean, std = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64) + 1e-5
    a, b = (np.pad((v - mean) / std, ((0, 0), (0, 1)), constant_values=100.0) for v in (x, test))
    targets = np.where(np.arange(5) == labels[:, None], 1.0, -1.0)
    theirs = Ridge(alpha=1024.0, fit_intercept=False, solver="svd").fit(a, targets).predict(b)
    np.testing.assert_allclose(fewshot.ridge_scores(x, labels, test, 5), theirs, atol=1e-5)


def test_the_default_strength_is_two_to_the_ten():
    x, labels, test = drawn(30, 8)
    default = fewshot.ridge_scores(x, labels, test, 5)
    assert (default == fewshot.ridge_scores(x, labels, test, 5, l2=1024.0)).all()
    assert not np.allclose(default, fewshot.ridge_scores(x, labels, test, 5, l2=512.0))


@pytest.mark.parametrize("count, width", [(30, 8), (8, 30)])
def test_order_of_images_does_not_matter(count, width):
    x, labels, test = drawn(count, width)
    other = np.random.default_rng(1).permutation(count)
    np.testing.assert_allclose(
        fewshot.ridge_scores(x[other], labels[other], test, 5),
        fewshot.ridge_scores(x, labels, test, 5),
        rtol=1e-9, atol=1e-9,
    )  # fmt: skip


def test_every_image_twice_is_half_the_strength():
    x, labels, test = drawn(30, 8)
    np.testing.assert_allclose(
        fewshot.ridge_scores(np.tile(x, (2, 1)), np.tile(labels, 2), test, 5),
        fewshot.ridge_scores(x, labels, test, 5, l2=512.0),
        rtol=1e-9, atol=1e-9,
    )  # fmt: skip


def test_scale_and_shift_of_features_do_not_matter():
    x, labels, test = drawn(40, 8)
    found = fewshot.ridge_scores(1000 * x - 7, labels, 1000 * test - 7, 5)
    np.testing.assert_allclose(found, fewshot.ridge_scores(x, labels, test, 5), atol=1e-3)


def test_a_class_without_images_never_wins_and_constant_features_do_no_harm():
    x, labels, test = drawn(40, 8)
    x[:, 3] = test[:, 3] = 2.5
    scores = fewshot.ridge_scores(x, labels, test, 7)
    assert np.isfinite(scores).all()
    assert set(scores.argmax(1)) <= set(range(5))


def task_of(labels, test_labels, picks):
    return Task("x", 3, "train", np.array(labels), picks, "test", np.array(test_labels), ())


def test_evaluate_learns_from_the_picked_images_alone():
    features = {"train": np.arange(6.0)[:, None], "test": np.arange(4.0)[:, None]}
    seen = []

    def first(x, labels, test, classes):
        seen.append((x[:, 0].tolist(), labels.tolist(), test[:, 0].tolist(), classes))
        return np.full(len(test), labels[0])

    picks = {(1, 0): [0, 2], (1, 1): [3, 5], (ALL, 0): np.arange(6)}
    picks = {key: np.array(value) for key, value in picks.items()}
    task = task_of([0, 0, 1, 1, 2, 2], [0, 1, 1, 1], picks)
    found = fewshot.evaluate(features["train"], features["test"], task, first)
    assert seen[0] == ([0, 2], [0, 1], [0, 1, 2, 3], 3)
    assert seen[1] == ([3, 5], [1, 2], [0, 1, 2, 3], 3)
    assert found == {
        "1": {"top1": 0.5, "seeds": [0.25, 0.75], "examples": 4},
        "all": {"top1": 0.25, "seeds": [0.25], "examples": 4},
    }


# ---------------------------------------------------------------- in training, and as a command

DIGITS = (
    "--config.fewshot.sources=(('digits', 'digits'),)",
    "--config.fewshot.shots=(1, 5)",
    "--config.fewshot.every=10 steps",
    "--config.length=20 steps",
    "--config.report.page=false",
    "--config.evals.val.every=0",
    "--config.checkpoint.every=8 steps",
    "--config.checkpoint.keep_best=fewshot_digits/5shot",
    "--config.ema.decay=0",
)
FEW = ("train/", "fewshot")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that is evaluated with few shots on the way."""
    workdir = tmp_path_factory.mktemp("fewshot") / "run"
    assert run(workdir, *DIGITS) == 0
    return workdir


def command(capsys, *args):
    """(exit code, standard output, standard error) of `vit_jax fewshot`."""
    capsys.readouterr()
    code = main.main(["fewshot", *map(str, args)])
    return code, *capsys.readouterr()


@pytest.mark.integration
def test_metrics_are_logged_and_are_those_of_the_command(trained, capsys):
    rows = logged(trained, FEW)
    steps = sorted(step for step, key in rows if key == "fewshot_digits/5shot")
    assert steps == [10, 20]
    results = json.loads((trained / "results.json").read_text())
    assert results["fewshot_digits"] == {
        name: rows[20, f"fewshot_digits/{name}"] for name in ("1shot", "5shot", "examples")
    }
    assert results["fewshot_digits"]["examples"] == 365
    assert results["fewshot_digits"]["5shot"] > 0.15  # chance is 0.1
    code, out, _ = command(capsys, trained, "--data=digits", "--shots=1,5", "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == ["1", "5"]
    for shots, result in found.items():
        assert result.keys() == {"top1", "seeds", "examples"}
        assert result["examples"] == 365
        assert len(result["seeds"]) == 3
        assert result["top1"] == pytest.approx(np.mean(result["seeds"]))
        assert result["top1"] == pytest.approx(results["fewshot_digits"][f"{shots}shot"], abs=0.01)
    assert "few-shot" in summary.results_table(results)


@pytest.mark.slow
def test_interrupted_and_continued_equals_uninterrupted(trained, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 9)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", *DIGITS)
    assert run(tmp_path / "cut", *DIGITS) == 0
    assert logged(tmp_path / "cut", FEW) == logged(trained, FEW)
    a, b = (json.loads((w / "results.json").read_text()) for w in (tmp_path / "cut", trained))
    assert a == b


@pytest.mark.integration
def test_best_step_of_a_few_shot_metric_is_kept(trained):
    rows = {s: v for (s, k), v in logged(trained, FEW).items() if k == "fewshot_digits/5shot"}
    checkpoints = Checkpoints(trained, read_only=True)
    best = checkpoints.best("fewshot_digits/5shot")
    checkpoints.close()
    assert rows[best] == max(rows.values())


def test_several_sources_are_keyed_by_source(digits_run, image_folder, capsys):
    sources = [f"folder:{image_folder}", "digits"]
    args = [f"--data={source}" for source in sources]
    code, out, _ = command(capsys, digits_run, *args, "--shots=3,all", "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == sources
    for results in found.values():
        assert {shots: len(r["seeds"]) for shots, r in results.items()} == {"3": 3, "all": 1}
    assert found[sources[0]]["all"]["top1"] > 0.8  # red or blue
    assert found["digits"]["all"]["top1"] > 0.3


@pytest.mark.integration
@pytest.mark.parametrize("method", ["knn", "probe"])
def test_other_methods_tell_red_from_blue(digits_run, image_folder, capsys, method, monkeypatch):
    monkeypatch.setattr(probe, "MOST_STEPS", 30)
    args = [f"--data=folder:{image_folder}", "--shots=3,all", f"--method={method}", "--json"]
    code, out, _ = command(capsys, digits_run, *args)
    assert code == 0
    found = json.loads(out)
    assert {shots: len(r["seeds"]) for shots, r in found.items()} == {"3": 3, "all": 1}
    assert found["all"]["top1"] > 0.8


def test_table_for_people_and_notes(digits_run, image_folder, capsys, caplog):
    code, out, _ = command(capsys, digits_run, f"--data=folder:{image_folder}", "--shots=1,25")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["source", "shots", "top-1", "seeds"]
    assert [line.split()[1] for line in lines[2:]] == ["1", "25"]
    assert "25 shots: 2 of 2 classes have fewer images" in caplog.text


@pytest.mark.integration
def test_a_file_is_evaluated_as_its_format_says(digits_run, image_folder, tmp_path, capsys):
    """big_vision's names hold what the run holds: the chains differ in rounding alone."""
    model, params, _ = vit_jax.load(digits_run)
    vit_jax.save(tmp_path / "run.npz", model, params, format="big_vision")
    args = (f"--data=folder:{image_folder}", "--shots=5", "--json")
    found = [
        json.loads(command(capsys, weights, *args, *more)[1])["5"]["top1"]
        for weights, more in ((digits_run, ()), (tmp_path / "run.npz", ("--heads=2",)))
    ]
    assert found[1] == pytest.approx(found[0], abs=0.21)
    assert found[1] > 0.6


BAD = {
    "no file": (["/no/such", "--data=digits"], ["/no/such", "does not exist"]),
    "not weights": ([__file__, "--data=digits"], ["not a .npz or .safetensors"]),
    "no such step": (["{run}@7", "--data=digits"], ["its steps are"]),
    "shots 0": (["{run}", "--data=digits", "--shots=0"], ["--shots='0'", "from 1 on"]),
    "shots text": (["{run}", "--data=digits", "--shots=abc"], ["--shots='abc'", "or all"]),
    "shots empty": (["{run}", "--data=digits", "--shots="], ["--shots=''"]),
    "shots twice": (["{run}", "--data=digits", "--shots=5,5"], ["each once"]),
    "shots below": (["{run}", "--data=digits", "--shots=5,-1"], ["--shots='5,-1'"]),
    "kind": (["{run}", "--data=images:/x"], ["unknown --data 'images:/x'", "folder:PATH"]),
    "twice": (["{run}", "--data=digits", "--data=digits"], ["given twice"]),
    "method": (["{run}", "--data=digits", "--method=svm"], ["'svm'", "ridge, knn, probe"]),
    "nothing": (
        ["{run}", "--data=folder:/no/a", "--data=folder:/no/b"],
        ["2 problems", "--data=folder:/no/a", "/no/b"],
    ),
    "one class": (["{run}", "--data=folder:{tmp}/one"], ["it has one class; give a source"]),
    "no train": (["{run}", "--data=csv:{tmp}/one/test.csv"], ["no train split"]),
    "several labels": (
        ["{run}", "--data=records:{tmp}/multi"],
        ["few-shot evaluation", "label of every image", "max_labels"],
    ),
    "size": (["{run}", "--data=digits", "--image_size=9"], ["8 or 10", "--image_size"]),
    "other architecture": (["{tmp}/other", "--data=digits"], ["do not fit the model"]),
}


@pytest.fixture(scope="module")
def bad_places(digits_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("bad")
    pictures.folder(root / "one", *(f"cats/{i}.png" for i in range(9)))
    (root / "one" / "test.csv").write_text("cats/0.png,a,test\ncats/1.png,b,test\n")
    image = pictures.encode(pictures.noise(8, 8))
    many = [pictures.record(image=image, label=[i % 3, 2][: 1 + i % 2]) for i in range(40)]
    pictures.records(root / "multi" / "x-train-00000-of-00001.tfrecord", many)
    (root / "multi" / "labels.txt").write_text("a\nb\nc\n")
    shutil.copytree(digits_run, root / "other")
    text = (root / "other" / "config.yaml").read_text()
    (root / "other" / "config.yaml").write_text(text.replace("mlp: 16", "mlp: 24"))
    return root


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message(case, digits_run, bad_places, capsys):
    args, expected = BAD[case]
    code, out, said = command(
        capsys, *(a.format(run=digits_run, tmp=bad_places) for a in args), "--json"
    )
    assert code == 2
    assert out == ""
    assert "Traceback" not in said
    for text in expected:
        assert text in said


CONFIG = {
    "pairs": ("sources=('digits',)", "give pairs of a name"),
    "name": ("sources=(('my digits', 'digits'),)", "letters, digits and _"),
    "twice": ("sources=(('a', 'digits'), ('a', 'digits'))", "each name once"),
    "kind": ("sources=(('a', 'digit'),)", "unknown source in fewshot.sources 'digit'"),
    "shots": ("shots=(-1,)", "whole numbers from 0"),
    "no shots": ("shots=()", "whole numbers from 0"),
    "same shots": ("shots=(5, 5)", "each once"),
    "seeds": ("seeds=0", "[1, 1000]"),
    "l2": ("l2=0", "(0, 1e30]"),
    "every": ("every=often", "fewshot.every"),
    "batch": ("batch_size=-1", "[0, 2^31)"),
}


@pytest.mark.parametrize("case", CONFIG)
def test_bad_configuration_is_said_and_writes_nothing(case, tmp_path, capsys):
    setting, expected = CONFIG[case]
    assert run(tmp_path / "run", f"--config.fewshot.{setting}") == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


MORE = {
    "keep_best": (["--config.checkpoint.keep_best=fewshot_digits/7shot"], "fewshot_digits/5shot"),
    "batch": (["--config.fewshot.batch_size=12"], "fewshot.batch_size=12 is not divisible by 8"),
    "missing": (
        ["--config.fewshot.sources=(('a', 'folder:/no/a'), ('b', 'folder:/no/b'))",
         "--config.checkpoint.keep_best="], "2 problems",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MORE)
def test_what_cannot_be_evaluated_is_said_before_training(case, tmp_path, capsys):
    args, expected = MORE[case]
    assert run(tmp_path / "run", *DIGITS, *args) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_an_image_that_the_chain_cannot_prepare_is_said_before_training(
    tmp_path, image_folder, capsys
):
    sources = f"--config.fewshot.sources=(('folder', 'folder:{image_folder}'),)"
    assert run(tmp_path / "run", sources, "--config.fewshot.ops=decode") == 2
    assert "fewshot_folder: the chain gives uint8 (32, 32, 3)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_images_go_through_the_chain_of_big_vision(digits_run):
    config = config_lib.load(str(digits_run / "config.yaml"))
    assert config.fewshot.ops == "decode|bv_resize({size*8//7})|central_crop({size})"
    split = splits.few_shot_source(config.data, "digits").split("test").take_range(0, 8)
    same = config_lib.changed(config, {"data.eval_ops": "bv_resize(9)|central_crop(8)"})
    found, expected, other = (
        next(iter(pipe.evaluation(range(8))))["image"]
        for pipe in (
            build.few_shot_pipeline(config, split, 8),
            build.plain_pipeline(same.data, split, 8),
            build.plain_pipeline(config.data, split, 8),
        )
    )
    np.testing.assert_array_equal(found, expected)
    assert (found != other).any()


def test_the_command_prepares_images_as_the_run_did(digits_run):
    model = inference.open_model(str(digits_run))
    data = config_lib.load(str(digits_run / "config.yaml")).data
    split = splits.few_shot_source(data, "digits").split("test").take_range(0, 8)
    step = model.step()
    images = model.weights.images | {"ops": model.weights.images["fewshot_ops"]}
    of_chain = dataclasses.replace(model, weights=dataclasses.replace(model.weights, images=images))
    few_shot = model.of_split(step, split, few_shot=True)
    np.testing.assert_array_equal(few_shot, of_chain.of_split(step, split))
    assert (few_shot != model.of_split(step, split)).any()


def test_a_run_saved_before_the_chain_had_a_key_goes_on_as_it_was(digits_run, tmp_path):
    text = (digits_run / "config.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("  ops:")]
    assert len(lines) == len(text.splitlines()) - 1
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    saved = config_lib.read(str(tmp_path / "config.yaml"))
    assert saved.fewshot.ops == saved.data.eval_ops == "decode|resize({size})"
    new = config_lib.load(str(digits_run / "config.yaml"))
    new = defaults.take_from_run(new, saved)
    assert config_lib.differences(saved, new) == []
    mine = config_lib.load(f"{ROOT}/configs/finetune.py")  # whose chain turns images upright
    ops = {"fewshot.ops": "decode(exif=True)|resize({size})"}
    earlier = config_lib.changed(mine, ops | {"data.eval_ops": ops["fewshot.ops"]})
    assert defaults.take_from_run(mine, earlier).fewshot.ops == ops["fewshot.ops"]
    (tmp_path / "mine.yaml").write_text("fewshot:\n  seeds: 5\n")  # a recipe that sets a few keys
    assert config_lib.read(str(tmp_path / "mine.yaml")).fewshot.ops.startswith("decode|bv_resize")


def test_pretraining_evaluates_imagenet_only_when_asked():
    recipe = str(ROOT / "configs" / "pretrain.py")
    assert config_lib.load(recipe).fewshot.sources == ()
    for extra, source in (("", "tfds:imagenet2012"), (",standin=true", "synthetic:imagenet")):
        config = defaults.settle(config_lib.load(f"{recipe}:fewshot=true{extra}"))
        assert config.fewshot.sources == (("imagenet", source),)
        assert config.fewshot.shots == (5, 10)
        build.check(config)


@pytest.mark.slow
def test_commands_of_the_page_run(trained, image_folder, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "fewshot.md").read_text()
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    assert lines
    for line in filter(str.strip, lines.splitlines()):
        line = line.replace("/path/to/images", str(image_folder))
        words = shlex.split(line.replace("runs/quickstart", str(trained)))[1:]
        if words[0] == "train":
            words = [w for w in words if not w.startswith("--workdir")]
            words += [f"--workdir={tmp_path / 'run'}", *TINY, "--config.length=1 steps"]
            words += ["--config.schedule.warmup=0"]
        assert main.main(words) == 0, line
    assert "top-1" in capsys.readouterr().out
