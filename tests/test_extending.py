# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Plugins: runs the examples of the pages on extending, and refuses wrong names."""

import dataclasses
import functools
import json
import math
import re
import shlex
import sys

import jax
import jax.numpy as jnp
import model_commands
import numpy as np
import opened_sources
import pictures
import pytest
from test_train import QUICKSTART, ROOT, TINY, logged, stop_at

import vit_jax
from vit_jax.build import defaults, less_memory, program
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import plugins
from vit_jax.errors import BadInput
from vit_jax.evaluators import custom
from vit_jax.models import variants
from vit_jax.reports import figures, summary
from vit_jax.step import losses
from vit_jax.weights import convert, loading

PAGE = "\n".join(  # test_objective has the page on objectives
    (ROOT / "docs" / f"extending{page}.md").read_text() for page in ("_model", "_data", "")
)
OTHERS = """
import os
import numpy as np
not_a_function = 3

def seen(logits_NY, labels_NK):
    right = logits_NY.argmax(axis=1) == labels_NK[:, 0]
    return {"images": len(logits_NY), "right": right.mean()}

def mean(logits_BY, targets_BY):
    return (logits_BY * targets_BY).mean()

def returns(logits_NY, labels_NK, value):
    return value

def of_all_images(logits_NY, labels_NK):
    if logits_NY.shape[0] > 100:
        raise KeyError("too many")
    return {"fine": 1.0}

def opens(options):
    return ["a", "b"]

class Plain:
    def __init__(self, **keys):
        pass
"""
SHORT = (
    "--config.length=40 steps",
    "--config.schedule.warmup=0",
    "--config.report.every=1 steps",
    "--config.checkpoint.every=20 steps",
    "--config.report.writers=()",
    "--config.report.page=false",
)


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A folder with the files of the page, which is on Python's path."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in re.findall(r"```python\n# (my_\w+\.py)\n(.*?)```", PAGE, re.DOTALL):
        (folder / name).write_text(text)
    (folder / "others.py").write_text(OTHERS)
    (folder / "imports_more.py").write_text("import no_such_library\n")
    (folder / "raises.py").write_text("raise RuntimeError('no luck')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    for name in [n for n in sys.modules if n.startswith("my_") or n == "others"]:
        del sys.modules[name]


def command(word):
    """The one `vit_jax train` command of the page with a word in it, without `vit_jax`."""
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    (line,) = [s for s in blocks.splitlines() if word in s]
    words = shlex.split(line)
    assert words[0] == "vit_jax"
    return [w.replace("configs/quickstart.py", QUICKSTART) for w in words[1:]]


def trained(mine, word, *extra, patch):
    """The run of a command of the page, shortened."""
    words = command(word)
    (workdir,) = [w.partition("=")[2] for w in words if w.startswith("--workdir=")]
    patch.chdir(mine)
    patch.syspath_prepend(mine)
    assert main.main([*words, *SHORT, *extra]) == 0
    return mine / workdir


def assert_learns(rows):
    """By more than batches differ: of three seeds the least was 0.1, for either run."""
    losses = [rows[(step, "train/loss")] for step in range(1, 41)]
    assert np.mean(losses[-5:]) < losses[0] - 0.05


# ---------------------------------------------------------------- the page


def test_the_page_has_an_example_of_each(mine):
    names = {path.stem for path in mine.glob("my_*.py")}
    assert names == {
        "my_model", "my_recipe", "my_source", "my_fields", "my_loss", "my_evaluator"
    }  # fmt: skip
    sections = re.split(r"^##? (?=[A-Z])", PAGE, flags=re.MULTILINE)[1:]
    sections = [section for section in sections if "```python" in section]
    assert [s.split("\n")[0] for s in sections] == [
        "A model of your own", "Examples of your own", "A source with more fields", "A loss",
        "An evaluator",
    ]  # fmt: skip
    for section in sections[1:]:
        assert section.count("\n") < 60, "a page has 60 lines"
    for section in sections:
        assert "**Works at once**" in section
        assert "**Does not**" in section


@pytest.fixture(scope="module")
def model_run(mine):
    """The run of the page's model, stopped after step 25 and continued from step 20."""
    with pytest.MonkeyPatch.context() as patch:
        with pytest.MonkeyPatch.context() as stopping:
            stop_at(stopping, 25)
            with pytest.raises(KeyboardInterrupt):
                trained(mine, "my_recipe.py", patch=patch)
        return trained(mine, "my_recipe.py", patch=patch)


@pytest.fixture(scope="module")
def run_of_three(mine, tmp_path_factory):
    """A run with source, loss and evaluator of the page, as its commands set them."""
    given = [w for word in ("my_loss", "my_evaluator") for w in command(word)[1:]]
    given = [w for w in given if w.startswith("--config.")]
    given += ["--config.evals.test.evaluator=others:seen", "--config.evals.val.every=20 steps"]
    given += ["--config.ema.decay=0", "--config.model.depth=1"]
    with pytest.MonkeyPatch.context() as patch:
        return trained(mine, "my_source:stripes(count", *given, patch=patch)


@pytest.mark.integration
def test_model_of_the_page_is_the_one_that_is_trained(model_run):
    config = config_lib.load(str(model_run / "config.yaml"))
    assert config.model.variant == "my_model:ConvMixer(patch=2)"
    model, params, preprocess = vit_jax.load(model_run, trust_code=True)
    assert type(model).__module__ == "my_model"
    assert params["embedding"]["kernel"].shape == (2, 2, 3, 32)  # of the call, and of the section
    assert {f"channels_{i}" for i in range(2)} < set(params)
    assert "channels_2" not in params
    rows = logged(model_run)
    assert rows[(1, "train/loss")] == pytest.approx(math.log(10), abs=1e-5)
    assert_learns(rows)
    assert model.apply({"params": params}, preprocess(np.zeros((8, 8, 3), np.uint8))).shape == (
        1, 10
    )  # fmt: skip


@pytest.mark.integration
def test_run_of_the_model_was_continued(model_run):
    turns = [json.loads(line) for line in (model_run / "goodput.jsonl").read_text().splitlines()]
    starts = [(turn["event"], turn["step"]) for turn in turns if turn["event"] == "initialised"]
    assert starts == [("initialised", 0), ("initialised", 20)]
    assert [step for step, key in logged(model_run) if key == "train/loss"] == list(range(1, 41))


@pytest.mark.slow
def test_model_of_the_page_on_another_mesh(model_run, mine, tmp_path):
    cube = "--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"
    words = ["train", f"--config={mine / 'my_recipe.py'}", f"--workdir={tmp_path}", *SHORT, *cube]
    words.append("--config.optimizer.name=sgd")
    one = tmp_path / "one"
    assert main.main(words) == 0
    words = [w for w in words if w not in cube and not w.startswith("--workdir")]
    assert main.main([*words, f"--workdir={one}"]) == 0
    found, expected = logged(tmp_path), logged(one)
    assert found.keys() == expected.keys()
    for key in [k for k in found if k[1] == "train/loss"]:
        assert found[key] == pytest.approx(expected[key], rel=1e-4), key


def test_axes_of_the_model_split_its_parameters(mine):
    from vit_jax.build import run as build

    spec = str(mine / "my_recipe.py")
    cube = ["--config.mesh.fsdp=2", "--config.mesh.tensor=2", "--config.mesh.data=2"]
    config = config_lib.load(spec, cube)
    build.check(config)
    made = program.make(config, classes=10, examples=100)
    place = made.abstract.params["channels_0"]["kernel"].sharding.spec
    assert tuple(place) == ("fsdp", "tensor")


@pytest.fixture
def new_process(model_run, monkeypatch):
    """Forgets that the run was trained in this process, whose names are trusted."""
    monkeypatch.setenv("VIT_JAX_TRUST_CODE", "")


@pytest.mark.integration
def test_model_of_the_page_in_other_commands(model_run, new_process, mine, capsys, tmp_path):
    model_commands.digit_files(tmp_path / "digits", 3)
    predict = "predict", model_run, tmp_path / "digits", "--topk=1"
    code, shown, said = model_commands.command(capsys, *predict)
    assert (code, shown) == (2, "")
    assert "names my_model:ConvMixer" in said
    assert "add --trust-code" in said
    code, shown, _ = model_commands.command(capsys, *predict, "--trust-code")
    assert code == 0
    assert shown.count("png") == 3
    code, shown, _ = model_commands.command(capsys, "inspect", model_run, "--trust-code")
    assert code == 0
    assert "own" in shown
    assert "patch" in shown
    evaluate = "evaluate", model_run, f"--out={tmp_path}", "--trust-code"
    code, shown, _ = model_commands.command(capsys, *evaluate)
    assert code == 0
    top1 = json.loads((model_run / "results.json").read_text())["test"]["top1"]
    assert json.loads((tmp_path / "evaluation.json").read_text())["top1"] == pytest.approx(top1)
    plan = "plan", f"--config={mine / 'my_recipe.py'}", "--accelerator=h100-8"
    code, shown, _ = model_commands.command(capsys, *plan)
    assert code == 0
    assert "h100-8: fits" in shown
    exported = "export", model_run, "--format=npz", f"--out={tmp_path / 'x.npz'}", "--trust-code"
    code, _, said = model_commands.command(capsys, *exported)
    assert code == 2
    assert "keep it as a run" in said


MEMBER = re.findall(r"```python\n(    @property\n    def weight_formats.*?)```", PAGE, re.DOTALL)[0]


def test_table_of_names_of_the_page_writes_and_reads_weights(mine, tmp_path, monkeypatch):
    text = (mine / "my_model.py").read_text()
    text = text.replace("    def make(self", f"{MEMBER}\n    def make(self")
    (tmp_path / "my_named.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    cfg = variants.config(variant="my_named:ConvMixer(patch=2)", width=8, depth=2, classes=3)
    params = cfg.make(None).init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))["params"]
    path = tmp_path / "x.npz"
    convert.write(path, "npz", cfg, params)
    with np.load(path) as file:
        assert "pointwise1/kernel" in file
        np.testing.assert_array_equal(file["stem/kernel"], params["embedding"]["kernel"])
    read = loading.load(path, image_size=8, own=cfg)
    assert read[0].cfg == cfg
    jax.tree.map(np.testing.assert_array_equal, read[1], dict(params))
    with pytest.raises(BadInput, match="unknown names"):
        loading.load(path, image_size=8)
    given = ["--config.data.source=digits", f"--config.init={path}"]
    given += [
        "--config.data.image_size=8",
        f"--config.model.variant={'my_named:ConvMixer(patch=2)'}",
    ]
    given += ["--config.model.width=8", "--config.model.depth=2"]
    recipe = str(ROOT / "configs" / "finetune.py")
    config = defaults.settle(config_lib.load(recipe, given))
    defaults.check_weights(config)
    config = config_lib.changed(config, {"model.depth": 1})
    with pytest.raises(BadInput, match="channels_1"):
        defaults.check_weights(config)


def test_members_that_a_model_overrides_are_used(mine, monkeypatch):
    cfg = variants.config(variant="my_model:ConvMixer(patch=2)", width=8, depth=2, classes=3)
    params = {"embedding": {"kernel": np.random.default_rng(0).normal(size=(2, 2, 3, 8))}}
    assert figures.draw_weights(cfg, params, (8, 8)) == []
    assert cfg.lacking_figures() == ["No figure shows the inside of a user's own model."]
    kernel = lambda self, params: (params["embedding"]["kernel"], "the stem")  # noqa: E731
    monkeypatch.setattr(type(cfg), "pixel_filters", kernel)
    (drawn,) = figures.draw_weights(cfg, params, (8, 8))
    assert "filters of the stem (2 x 2 pixels, RGB)" in drawn.caption
    assert "in a ConvMixer" in drawn.caption
    assert cfg.lacking_figures() == ["Only the filters of a user's own model are shown."]
    model = config_lib.load(str(mine / "my_recipe.py"), []).model
    assert less_memory.stronger_remat(model) == []
    monkeypatch.setattr(type(cfg), "FORMS", ("remat",))
    assert less_memory.stronger_remat(model) == ["dots", "full"]


@pytest.mark.slow
def test_model_of_the_page_is_exported_and_reported(model_run, capsys, tmp_path):
    page, program = tmp_path / "report.html", tmp_path / "x.stablehlo"
    for words in (
        ("report", model_run, f"--out={page}"),
        ("export", model_run, "--format=stablehlo", f"--out={program}"),
    ):
        code, *_ = model_commands.command(capsys, *words, "--trust-code")
        assert code == 0
    assert "No figure shows the inside of a user" in page.read_text()
    assert program.exists()


def test_flops_of_the_page_are_those_of_its_model(mine):
    cfg = variants.config(variant="my_model:ConvMixer(patch=4)", width=8, depth=1, classes=3)
    by_hand = 4 * (3 * 16 * 8 + 9 * 8 + 8 * 8) + 8 * 3
    assert cfg.forward_flops(8, 8) == 2 * by_hand
    assert variants.describe("v", cfg)["family"] == "own"


@pytest.mark.integration
def test_source_of_the_page(run_of_three, capsys):
    names = json.loads((run_of_three / "classes.json").read_text())["classes"]
    assert names == ["vertical", "horizontal", "falling", "rising"]
    code, shown, _ = model_commands.command(capsys, *command("data check"))
    assert code == 0
    assert "400 images in 4 classes, 0 bad" in shown
    mixed = opened_sources.opened("mix:1*python:my_source:stripes(count=40, side=8),1*digits")
    assert mixed.classes == (*names, *"0123456789")


def test_source_with_fields_of_the_page(mine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert model_commands.command(capsys, *command("my_fields"))[0] == 0
    assert (tmp_path / "runs" / "discs.png").exists()
    split = opened_sources.opened("python:my_fields:discs").splits["train"]
    chain = "inception_crop({size}, 0.3)|flip_lr|shift(4)"
    pipe = pictures.batches(split, chain, image_size=24, batch_size=16, fields=None)
    batch = next(pipe.train(0, 1))
    for image, mask, boxes, classes, text in zip(
        *(batch[key] for key in ("image", "mask", "boxes", "box_classes", "text")), strict=True
    ):
        assert (mask[image.max(axis=-1) > 200] > 0).all()  # a disc in the image is one in the mask
        rows, columns = np.nonzero(mask > 0)
        if len(rows) and classes[0] >= 0:
            ends = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert (boxes[0, :2] <= np.array(ends[:2]) + 1).all()
            assert (boxes[0, 2:] >= np.array(ends[2:]) - 1).all()
            assert text.decode() == f"a {('', 'red', 'blue')[classes[0]]} disc"
            assert mask.max() == classes[0]


@pytest.mark.integration
def test_loss_of_the_page(run_of_three):
    rows = logged(run_of_three)
    # Logits are all zero, so gamma = 1 leaves 3 quarters of the cross-entropy of 4 classes.
    assert rows[(1, "train/loss")] == pytest.approx(0.75 * math.log(4), abs=1e-5)
    assert_learns(rows)
    logits = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    targets = np.eye(5, dtype=np.float32)[:4]
    found = losses.find("my_loss:focal(gamma=0.0)")(logits, targets)
    np.testing.assert_allclose(found, losses.softmax_xent(logits, targets), rtol=1e-6)
    assert losses.find("my_loss:focal")(jnp.asarray(logits, jnp.bfloat16), targets).dtype == "f4"


@pytest.mark.integration
def test_evaluator_of_the_page(run_of_three):
    results = json.loads((run_of_three / "results.json").read_text())
    test = results["test"]
    assert test["images"] == test["examples"]  # every image once, and no row that fills a batch
    assert test["examples"] % 32
    assert test["right"] == pytest.approx(test["top1"], abs=1e-7)
    assert 0 < results["val"]["calibration_loss"] < 1
    assert 0 < results["val"]["class_top1"] < 1
    assert (20, "val/calibration_loss") in logged(run_of_three)
    assert vit_jax.load(f"{run_of_three}@best")[1]
    shown = summary.results_table(results)
    assert [line.split()[-4:] for line in shown.splitlines()[:1]] == [
        ["images", "right", "calibration_loss", "class_top1"]
    ]  # fmt: skip
    row = {f"val/{key}": value for key, value in results["val"].items()}
    line = summary.evaluation_line(["val"], row)
    assert re.fullmatch(r"val top-1 .*% loss \S+ calibration_loss 0\.\d{4} class_top1 \S+", line)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["my_source:stripes(count", "my_loss", "my_evaluator"])
def test_command_of_the_page(mine, tmp_path, monkeypatch, word):
    words = [w for w in command(word) if not w.startswith("--workdir=")]
    page = f"--workdir={tmp_path}", "--config.report.page=true"
    assert main.main([*words, *SHORT, *page]) == 0
    loss = {"my_source:stripes(count": math.log(4), "my_loss": 0.9 * math.log(10)}
    expected = loss.get(word, math.log(10))
    assert logged(tmp_path)[(1, "train/loss")] == pytest.approx(expected, abs=1e-5)
    measured = "calibration_loss" in (tmp_path / "report.html").read_text()
    assert measured == (word == "my_evaluator")
    if measured:
        results = json.loads((tmp_path / "results.json").read_text())
        assert 0 < results["val_raw"]["calibration_loss"] < 1


def test_calibration_of_the_page_by_hand(mine):
    find = custom.find("val", "my_evaluator:calibration(bins=2)", "")
    sure = np.log(np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]], np.float32))
    found = find(sure, np.array([[0], [1], [1]], np.int32))
    # One bin has all: 2 of 3 are right, and it was sure of (0.9 + 0.7 + 0.8) / 3 of them.
    assert found["calibration_loss"] == pytest.approx(abs(2 - 2.4) / 3, abs=1e-6)
    assert found["class_top1"] == pytest.approx((1 + 0.5) / 2)


@pytest.mark.integration
def test_weights_of_the_model_are_checked_before_a_sweep(model_run, new_process, monkeypatch):
    given = [f"--config.init={model_run}", "--config.data.source=digits"]
    recipe = str(ROOT / "configs" / "finetune.py")
    with pytest.raises(BadInput, match=r"config\.yaml names my_model:ConvMixer.*--trust-code"):
        defaults.check_weights(defaults.settle(config_lib.load(recipe, given)))
    plugins.give(["my_model:ConvMixer"])
    config = defaults.settle(config_lib.load(recipe, given))
    defaults.check_weights(config)
    read = loading.read_weights(str(model_run))
    name = next(name for name in read.flat if not name.startswith("head/"))
    other = dataclasses.replace(read, flat=read.flat | {name: np.zeros(3)})
    monkeypatch.setattr(loading, "read_weights", lambda *_, **__: other)
    with pytest.raises(BadInput, match=name):
        defaults.check_weights(config)
    # How many classes it had is not known, so neither is what the shape should be.
    other = dataclasses.replace(other, classes=0)
    defaults.check_weights(config)


def test_names_are_carried_by_a_sweep_and_a_saved_configuration(mine, tmp_path):
    name = "my_loss:focal(gamma=0.5)"
    config = config_lib.load(QUICKSTART, [f"--config.loss.name={name}"])
    saved = tmp_path / "config.yaml"
    saved.write_text(config_lib.to_yaml(config))
    again = config_lib.load(str(saved))
    assert again.loss.name == name
    assert config_lib.fingerprint(again) == config_lib.fingerprint(config)
    assert config_lib.changes_results("loss.name")
    assert config_lib.changes_results("evals.val.evaluator")


# ---------------------------------------------------------------- what is refused

WRONG = {
    "no_such_module:f": ["there is no module no_such_module", "PYTHONPATH"],
    "no.such:f": ["there is no module no;"],
    "imports_more:f": ["imports_more imports no_such_library"],
    "raises:f": ["raises cannot be imported: RuntimeError: no luck"],
    "others:sen": ["'sen'", "'seen'"],
    "others:not_a_function": ["'not_a_function'", "Known:", "seen"],
    "others:os.system": ["is not a name", "MODULE:NAME(key=value)"],
    "others:seen(3)": ["is not a name"],
    "others:seen(a=open)": ["is not a name"],
    "others:seen(**{})": ["is not a name"],
    "others:seen(bins=3)": ["seen(", "bins"],
}


@pytest.mark.parametrize(
    "key, kind, text",
    [
        *(("loss.name", "", text) for text in WRONG),
        *(("model.variant", "", text) for text in ("no_such_module:f", "others:seen(3)")),
        ("data.source", "python:", "others:sen"),
        ("evals.val.evaluator", "", "raises:f"),
    ],
)
def test_wrong_names_are_refused(mine, tmp_path, capsys, key, kind, text):
    workdir = tmp_path / "run"
    given = f"--config.{key}={kind}{text}"
    code, _, said = model_commands.command(
        capsys, "train", f"--config={QUICKSTART}", f"--workdir={workdir}", given
    )
    assert code == 2
    assert f"{key}=" in said
    assert [part for part in WRONG[text] if part not in said] == []
    assert "Traceback" not in said
    assert not workdir.exists()


@pytest.mark.parametrize(
    "given, parts",
    [
        (["model.variant=others:Plain"], ["is not a subclass of vit_jax.models.custom.OwnConfig"]),
        (["model.variant=my_model:ConvMixer(widht=3)"], ["'widht'", "ConvMixer(classes"]),
        (["model.variant=my_model:ConvMixer", "model.heads=3"], ["'heads'", "ConvMixer(classes"]),
        (["data.source=python:others:opens"], ["gave list", "{name: Split}"]),
        (["data.source=python:"], ["write it as python:MODULE:FUNCTION"]),
        (["data.source=python:os:system(command='echo owned')"], ["a part of Python"]),
        (["data.source=python:yaml:safe_load(stream='owned')"], ["no parameter called options"]),
        (["loss.name=focal"], ["'focal'", "softmax", "MODULE:NAME"]),
        (["checkpoint.keep_best=val/ece"], ["keep_best", "val/top1"]),
        (
            ["masked.target=mean", "evals.val.evaluator=others:seen"],
            ["evals.val.evaluator", "masked.target=mean learns none"],
        ),
    ],
)  # fmt: skip
def test_what_a_name_stands_for_is_checked(mine, tmp_path, capsys, given, parts):
    workdir = tmp_path / "run"
    words = [f"--config.{one}" for one in given]
    recipe = mine / "my_recipe.py" if "classes" in parts[-1] else QUICKSTART
    code, _, said = model_commands.command(
        capsys, "train", f"--config={recipe}", f"--workdir={workdir}", *words
    )
    assert code == 2
    assert [part for part in parts if part not in said] == []
    assert "Traceback" not in said
    assert not workdir.exists()


@pytest.mark.parametrize(
    "value, part",
    [
        (3, "returned int"),
        ({}, "returned dict"),
        ({"top1": 0.5}, "'top1'"),
        ({"a/b": 0.5}, "'a/b'"),
        ({"a": [1, 2]}, "a=[1, 2]"),
        ({"a": "high"}, "a='high'"),
        ({"a": 0.5}, "'best'"),
    ],
)
def test_result_of_an_evaluator_is_checked(mine, value, part):
    evaluator = custom.find("val", f"others:returns(value={value!r})", "val/best")
    with pytest.raises(BadInput, match=re.escape(part)):
        evaluator(np.zeros((1, 2), np.float32), np.zeros((1, 1), np.int32))


def test_loss_that_is_a_mean_over_the_batch_is_refused(mine):
    values = np.ones((4, 3), np.float32)
    with pytest.raises(BadInput, match=r"gives float32 \[\] for .*float32 \[4\], a value an"):
        losses.find("others:mean")(values, values)


def test_parameter_without_axes_is_refused(mine, monkeypatch):
    import my_model

    monkeypatch.setattr(my_model.ConvMixer, "AXES", {})
    config = config_lib.load(str(mine / "my_recipe.py"))
    with pytest.raises(BadInput, match=r"channels_0/bias .* has no logical axes; add a rule"):
        program.make(config, classes=10, examples=100)


def test_module_inside_a_package(tmp_path, monkeypatch):
    (tmp_path / "of_tests").mkdir()
    (tmp_path / "of_tests" / "__init__.py").touch()
    (tmp_path / "of_tests" / "part.py").write_text("def add(a, b, c=0):\n    return a + b + c\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = plugins.find("x", "of_tests.part:add(c=3)", None, None)
    assert found(1, 2) == 6
    with pytest.raises(BadInput, match=r"x: there is no module of_tests\.other"):
        plugins.find("x", "of_tests.other:add")


@pytest.mark.parametrize(
    "value", [[1], {"loss": 1.0}, {1: 0.5}, {"own": math.nan}, {"own": "x"}], ids=str
)
def test_an_evaluator_is_tried_before_anything_is_trained(value):
    evaluator = functools.partial(custom._checked, "it", "", lambda *_: value)
    with pytest.raises(BadInput, match="it returned"):
        custom.try_on_random_logits(evaluator, 3, 1)


@pytest.mark.integration
def test_an_evaluator_that_fails_later_ends_the_run_and_keeps_it(mine, tmp_path, capsys):
    workdir = tmp_path / "run"
    words = [*TINY, "--config.evals.val.evaluator=others:of_all_images"]  # of step 6
    code, _, said = model_commands.command(
        capsys, "train", f"--config={QUICKSTART}", f"--workdir={workdir}", *words
    )
    assert code == 1
    assert "KeyError: 'too many'; correct it and run again" in said
    assert (workdir / "checkpoints" / "4").is_dir()
