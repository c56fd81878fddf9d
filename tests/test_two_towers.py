# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Zero-shot classification, retrieval, and commands for image-text weights."""

import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import numpy_vit
import pictures
import pytest
from test_text_towers import SIZES, in_big_vision, objective, own_parameters
from test_texts import table
from test_train_step import rules_of

from vit_jax import tree
from vit_jax.build import objectives
from vit_jax.build import run as build_run
from vit_jax.cli.main import main
from vit_jax.config import load as config_lib
from vit_jax.data.tasks.test_sets import Evaluation
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput
from vit_jax.evaluators import retrieval, zero_shot
from vit_jax.models import text as text_lib
from vit_jax.step.siglip import Siglip

ROOT = Path(__file__).parent.parent


# ---------------------------------------------------------------- retrieval


def test_recalls_by_hand():
    """Four images at angles; the texts of two images are swapped."""
    angles = np.array([0.0, 0.5, 1.1, 1.5])
    images = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts, pairs = retrieval.together([["a"], ["b", "c"], ["d"], ["e"]])
    assert texts == ["a", "b", "c", "d", "e"]
    assert pairs.tolist() == [[0, 0], [1, 1], [1, 2], [2, 3], [3, 4]]
    vectors = images[[0, 1, 3, 3, 2]]
    found = retrieval.recalls(images, vectors, pairs, at=(1, 2, 3))
    # Images 0 and 1 find theirs first; before that of image 2 come e and c, before e c and d.
    assert [found[f"text_at_{k}"] for k in (1, 2, 3)] == [2 / 4, 2 / 4, 1.0]
    # Before image 1 of c come two others, before that of d and of e one.
    assert [found[f"image_at_{k}"] for k in (1, 2, 3)] == [2 / 5, 4 / 5, 1.0]


def test_equal_texts_are_one_and_equal_vectors_are_no_success():
    texts, pairs = retrieval.together([["a"], ["a"], ["b"]])
    assert (texts, pairs.tolist()) == (["a", "b"], [[0, 0], [1, 0], [2, 1]])
    same = np.ones((3, 2), np.float32) / np.sqrt(np.float32(2))
    found = retrieval.recalls(same, same[:2], pairs, at=(1,))
    assert found == {"text_at_1": 0.0, "image_at_1": 0.0}
    rng = np.random.default_rng(0)
    many = rng.normal(size=(2500, 8)).astype(np.float32)
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    own = np.stack([np.arange(2500)] * 2, axis=1)
    assert set(retrieval.recalls(many, many, own).values()) == {1.0}  # in several chunks


def test_vectors_that_are_not_finite_are_refused():
    good, pairs = np.eye(3, dtype=np.float32), np.stack([np.arange(3)] * 2, axis=1)
    bad = np.where(good[:, :1] > 0, np.nan, good)
    with pytest.raises(BadInput, match="vectors of 1 of 3 texts are not finite"):
        retrieval.recalls(good, bad, pairs)
    with pytest.raises(BadInput, match="vectors of 1 of 3 images are not finite"):
        retrieval.recalls(bad, good, pairs)


# ---------------------------------------------------------------- zero-shot


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 8, 1, 1)])
def test_zero_shot_by_hand(shape):
    given, rules = objective(embedding=5), rules_of(shape)
    params = own_parameters(given)
    features = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    names, templates = ("red_car", "sea"), ("a {}", "the {}.")
    found = zero_shot.logits(given, params, rules, features, names, templates)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    tower = text_lib.TextTower(given._tower(vocabulary=258, outputs=5))
    means = []
    for name in ("red car", "sea"):
        tokens = np.stack([Texts(length=12).tokens(t.replace("{}", name)) for t in templates])
        vectors = tower.apply({"params": params["objective"]["text"]}, tokens)
        means.append(unit(unit(np.asarray(vectors)).mean(axis=0)))
    own = numpy_vit.as_float64(params["objective"])
    images = unit(features @ own["projection"]["kernel"] + own["projection"]["bias"])
    expected = np.exp(own["temperature"]) * images @ np.stack(means).T + own["bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_scores_of_tokens_without_a_vector_are_refused():
    given = objective(vocabulary=90, embedding=5)
    params, features = own_parameters(given), np.ones((3, 16), np.float32)
    with pytest.raises(BadInput, match="vectors of 2 of 2 texts are not finite"):
        zero_shot.logits(given, params, rules_of((1, 1, 1, 1)), features, ("zoo", "sea"), ("{}",))


# ---------------------------------------------------------------- commands


SHORT = ["--config.length=2 steps", "--config.batch_size=8", "--config.schedule.warmup=0",
         "--config.report.writers=()", "--config.report.page=false"]  # fmt: skip


def run(workdir, *more, text="length=12, vocabulary=258"):
    sizes = ", ".join(f"{name}={value}" for name, value in SIZES.items())
    words = ["train", "--config=configs/contrastive.py", f"--workdir={workdir}", *SHORT,
             "--config.data.views=", "--config.data.image_size=16", "--config.model.width=16",
             "--config.data.train_ops=decode|resize({size})", "--config.model.depth=2",
             "--config.model.mlp=24", "--config.model.heads=2", "--config.model.pool=map",
             f"--config.objective=siglip(text='custom', {sizes}, {text})"]  # fmt: skip
    return main([*words, *more])


@pytest.mark.integration
def test_init_from_a_file_keeps_both_towers_and_the_locked_one_stays(tmp_path, capsys):
    arrays, _, own, image = in_big_vision("last", True, False)
    np.savez(tmp_path / "both.npz", **arrays)
    rows = [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(20))]
    spec, rng = table(tmp_path, rows), np.random.default_rng(0)
    for k in range(20):
        pixels = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        (tmp_path / f"{k}.png").write_bytes(pictures.encode(pixels))
    text = "length=12, embedding=16, vocabulary=258, keep_text=True"
    init = [f"--config.data.source={spec}", f"--config.init={tmp_path / 'both.npz'}"]
    init += ["--config.schedule.lr=1e-9"]
    assert run(tmp_path / "run", *init, "--config.trainable=head", text=text) == 0
    capsys.readouterr()
    from vit_jax.weights import loading

    flat = loading.read_weights(str(tmp_path / "run")).flat
    for path, x in tree.leaves_with_paths(own):
        np.testing.assert_allclose(flat[f"objective/{path}"], x, atol=1e-6, err_msg=path)
    for path, x in tree.leaves_with_paths(tree.unstack_blocks(image)):
        np.testing.assert_array_equal(flat[path], x, err_msg=path)

    out, found = f"--out={tmp_path / 'out'}", {}
    other = shutil.copy(tmp_path / "x.csv", tmp_path / "y.csv")  # of which the run holds none out
    for weights in ([str(tmp_path / "run")], [str(tmp_path / "both.npz"), "--tokenizer=bytes"]):
        words = ["evaluate", *weights, f"--data=csv:{other}", "--retrieval", out]
        assert main([*words, "--heads=2"] if "both" in weights[0] else words) == 0
        found[weights[0]] = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    one, two = ({k: v for k, v in f.items() if "_at_" in k} for f in found.values())
    assert len(one) == 6
    assert one == pytest.approx(two)
    assert 0 < one["text_at_5"] < 1
    assert 0 < one["image_at_5"] < 1
    run_model, file_model = (f["model"] for f in found.values())
    assert run_model == {"image_size": 16, "tokenizer": "bytes", "clean": "none", "pad": -1}
    content = (tmp_path / "both.npz").read_bytes()
    assert file_model["sha256"] == hashlib.sha256(content).hexdigest()
    assert file_model["clean"] == "canonical"
    assert "recall at" in capsys.readouterr().out


@pytest.mark.integration
def test_zero_shot_of_a_run_and_what_is_refused(tmp_path, capsys, image_folder):
    text = "length=12, template='a {}'"
    ops, source = "decode|resize({size})", f"folder:{image_folder}"
    while_training = [f"--config.data.eval_ops={ops}", f"--config.fewshot.ops={ops}"]
    while_training += [f"--config.fewshot.sources=(('own', '{source}'),)"]
    while_training += ["--config.fewshot.method=zero_shot", "--config.fewshot.batch_size=8"]
    while_training += ["--config.length=30 steps", "--config.schedule.lr=3e-3"]
    more = [f"--config.data.source={source}", *while_training]
    assert run(tmp_path / "run", *more, text=text) == 0
    out = f"--out={tmp_path / 'out'}"
    assert main(["evaluate", str(tmp_path / "run"), out]) == 0
    evaluated = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    trained = json.loads((tmp_path / "run" / "results.json").read_text())["fewshot_own"]
    assert trained == {"zero_shot": evaluated["top1"], "examples": evaluated["examples"]}
    assert trained["zero_shot"] > 0
    assert main(["evaluate", str(tmp_path / "run"), "--templates=the {}", out]) == 0
    assert "top-1" in capsys.readouterr().out
    assert (tmp_path / "out" / "evaluation.html").exists()
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())["model"]
    assert (found["tokenizer"], found["zero_shot"]) == ("bytes", ["the {}"])
    for more, said in {
        "--retrieval": "have no texts; give a source with texts",
        "--templates=no name": "has no {} for the name of a class",
        "--labels=x.json": "--labels has no use with",
        "--tokenizer=absent.model": "absent.model' cannot be read",
    }.items():
        assert main(["evaluate", str(tmp_path / "run"), more, out]) == 2
        assert re.search(re.escape(said), capsys.readouterr().err)


@pytest.mark.integration
def test_commands_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, image_folder):
    monkeypatch.chdir(tmp_path)
    rows = [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(30))]
    captions = table(tmp_path, rows).removeprefix("csv:")
    text = (ROOT / "docs" / "siglip.md").read_text()
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"^vit_jax (.*)$", blocks, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "evaluate", "evaluate", "train",
                                                "evaluate", "train"]  # fmt: skip
    short = [*SHORT, "--config.evals.val.batch_size=8", "--config.evals.test.batch_size=8"]
    for command in commands:
        command = command.replace("/path/to/images", str(image_folder))
        command = command.replace("/path/to/captions.csv", captions)
        words = shlex.split(command.replace("configs/", f"{ROOT}/configs/"))
        assert main([*words, *(short if words[0] == "train" else [])]) == 0, command
    assert json.loads(Path("runs/retrieval/evaluation.json").read_text())["images"] > 0
    from vit_jax.weights import loading

    locked, before = (loading.read_weights(f"runs/{name}").flat for name in ("lit", "siglip"))
    for name, x in before.items():
        if not name.startswith("objective/"):
            np.testing.assert_array_equal(locked[name], x, err_msg=name)
    saved = Path("runs/lit/checkpoints")
    assert not [p for p in saved.rglob("*") if "embedding" in p.name]


@pytest.mark.integration
@pytest.mark.parametrize(
    "args, parts",
    [
        (["objective=siglip(text='Q')"], ["size of a text tower", "custom"]),
        (["objective=siglip(tokenizer='absent.model')"], ["absent.model' cannot be read"]),
        (["objective=siglip(template='none', text='Ti')"], ["template='none' has no {}"]),
        (["objective=siglip(text='Ti')"], ["have no text, only image, labels"]),
        (["fewshot.method=zero_shot", "objective=auto", "model.pool=gap"], ["needs a text tower"]),
        (
            ["objective=siglip(text='Ti', template='{}', vocabulary=100)"],
            ["makes 258 different tokens", "a vocabulary of 100", "vocabulary=258"],
        ),
        (["evals.test.classes=present"], ["evals.test.classes='present'", "learns none"]),
        (["data.views=view*2: decode"], ["siglip(", "takes image"]),
        (["loss.name=sigmoid"], ["loss.name='sigmoid'", "no use"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path, capsys, image_folder, args, parts
):
    workdir = tmp_path / "run"
    more = [f"--config.{arg}" for arg in args]
    assert run(workdir, f"--config.data.source=folder:{image_folder}", *more) == 2
    said = capsys.readouterr().err
    assert [part for part in parts if part not in said] == []
    assert "Traceback" not in said
    assert not workdir.exists()


def test_evaluation_whose_classes_are_others_has_no_texts():
    columns = {"own": Evaluation({}), "few": Evaluation({}, np.array([[0, 1], [2, -1]]))}
    objectives.check_evaluations(Siglip(), columns)
    with pytest.raises(BadInput, match=r"evals\.few: each class of its images stands for several"):
        objectives.check_evaluations(Siglip(template="a {}"), columns)


def test_labels_are_needed_to_learn_classes(tmp_path, capsys):
    spec = table(tmp_path, [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(30))])
    words = ["train", "--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}", *SHORT]
    assert main([*words, f"--config.data.source={spec}"]) == 2
    assert "has no labels, and objective=auto learns classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "recipe", ["", ":texts=true", ":paper=siglip", ":paper=siglip,standin=true", ":loss=softmax"]
)
def test_recipe_is_a_valid_configuration(recipe):
    build_run.check(config_lib.load(f"configs/siglip.py{recipe}"))


@pytest.mark.integration
def test_branch_goes_on_bit_for_bit_with_the_same_texts(tmp_path):
    rows = [["path", "text"], *([f"{k}.png", f"a {k}\nb {k}\nc {k}"] for k in range(30))]
    data = [f"--config.data.source={table(tmp_path, rows)}", "--config.length=4 steps"]
    data += ["--config.checkpoint.every=2 steps", "--config.checkpoint.keep_every=2 steps"]
    assert run(tmp_path / "whole", *data) == 0
    assert run(tmp_path / "cut", *data, f"--branch={tmp_path / 'whole'}@2") == 0
    from vit_jax.weights import loading

    one, two = (loading.read_weights(f"{tmp_path / name}@4").flat for name in ("whole", "cut"))
    assert one.keys() == two.keys()
    for name, x in one.items():
        np.testing.assert_array_equal(x, two[name], err_msg=name)
