# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Evaluations of other sources: what they read, among which classes, and what a run writes of them.

The figures are compared with numpy, from the logits of the same weights.
"""

import dataclasses
import functools
import json

import jax
import numpy as np
import pictures
import pytest
import small_imagenets
import test_train

from vit_jax import paper
from vit_jax.build import defaults, objectives
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.data.catalog import imagenet_labels
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.splits import split as splits
from vit_jax.data.tasks import test_sets
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.evaluators import classification
from vit_jax.models import variants
from vit_jax.step import metrics
from vit_jax.step.classification import Classification
from vit_jax.step.mae import MAE

NAMES = ["cat", "dog", "owl", "pig"]


def opened(spec):
    return sources.open_source(spec, Options(), val_percent=0, test_percent=0)


def own(root, *paths):
    return opened(f"folder:{pictures.folder(root, *paths)}")


@pytest.fixture
def model(tmp_path):
    return own(tmp_path / "model", *(f"train/{n}/{k}.png" for n in NAMES for k in range(2)))


def find(model, source, **changes):
    settings = {"split": "all", "labels": "", "classes": "all", "data_dir": ""} | changes
    return test_sets.open_test_set(model, opened, "evals.x", source=source, **settings)


def read(split):
    """The labels of each example."""
    reader = tf.function(split.reader())
    return [reader(tf.constant(i, tf.int64))[1].numpy().tolist() for i in range(len(split))]


# ---------------------------------------------------------------- what is read


def test_the_training_source_is_read_as_before(model):
    found = find(model, "", split="train[:5]")
    assert found.columns is None
    assert found.parts[""].table is model.splits["train"].table
    assert len(found) == 5


def test_classes_are_matched_by_name_and_not_by_number(model, tmp_path):
    own(tmp_path / "x", "pig/0.png", "dog/0.png", "dog/1.png")
    found = find(model, f"folder:{tmp_path / 'x'}")
    assert found.columns is None
    names = [found.parts[""].name(i) for i in range(3)]
    assert names == ["dog/0.png", "dog/1.png", "pig/0.png"]
    assert read(found.parts[""]) == [[1], [1], [3]]


def test_classes_in_another_order_are_matched(model, tmp_path):
    pictures.folder(tmp_path, *(f"{k}.png" for k in range(4)))
    rows = zip(range(4), ("owl", "cat", "owl", "dog"), strict=True)
    (tmp_path / "x.csv").write_text("".join(f"{k}.png,{n}\n" for k, n in rows))
    turned = dataclasses.replace(model, classes=tuple(reversed(NAMES)))
    assert read(find(turned, f"csv:{tmp_path / 'x.csv'}").parts[""]) == [[1], [3], [1], [2]]


def test_predictions_among_the_classes_that_are_present(model, tmp_path):
    own(tmp_path / "x", "pig/0.png", "dog/0.png", "dog/1.png")
    found = find(model, f"folder:{tmp_path / 'x'}", classes="present")
    assert found.columns.tolist() == [[1], [3]]
    assert read(found.parts[""]) == [[0], [0], [1]]
    owls = dataclasses.replace(model, splits={"train": model.splits["train"].take_indices([4, 5])})
    part = find(owls, "", split="train", classes="present")
    assert (part.columns.tolist(), read(part.parts[""])) == ([[2]], [[0], [0]])


def test_unlabelled_images_stay_so(model):
    table = dataclasses.replace(
        model.splits["train"].table,
        reader=lambda: lambda row: (tf.constant(b""), tf.constant([[2, -1], [0, 2]])[row]),
        labels=lambda: np.array([[2, -1], [0, 2]]),
    )
    split = splits.Split(table, range(2))
    found = find(dataclasses.replace(model, splits={"train": split}), "", split="train",
                 classes="present")  # fmt: skip
    assert read(found.parts[""]) == [[1, -1], [0, 1]]
    assert found.columns.tolist() == [[0], [2]]


def test_a_class_that_the_model_has_not_is_refused_with_names(model, tmp_path):
    own(tmp_path / "x", "pig/0.png", "dingo/0.png", "cow/0.png")
    with pytest.raises(BadInput) as caught:
        find(model, f"folder:{tmp_path / 'x'}")
    said = str(caught.value)
    assert said.startswith("evals.x: 2 classes of folder:")
    assert "are not classes of the training data folder:" in said
    assert "'cow', 'dingo'; its classes are 'cat', 'dog', 'owl', 'pig'" in said


def test_images_without_labels_are_for_objectives_that_learn_none(model, tmp_path):
    own(tmp_path / "x", "0.png", "1.png")
    found = find(model, f"folder:{tmp_path / 'x'}")
    assert read(found.parts[""]) == [[-1], [-1]]
    objectives.check_evaluations(MAE(), {"x": found})
    with pytest.raises(BadInput, match=r"evals\.x: its images have no labels; give others"):
        objectives.check_evaluations(Classification(4), {"x": found})
    with pytest.raises(BadInput, match=r"evals\.x: classes=present needs labels"):
        find(model, f"folder:{tmp_path / 'x'}", classes="present")


def test_data_without_classes_may_be_measured_on_images_with_some(model, tmp_path):
    bare = dataclasses.replace(model, classes=())
    own(tmp_path / "x", "pig/0.png", "dingo/0.png")
    found = find(bare, f"folder:{tmp_path / 'x'}")
    assert (found.columns, found.labelled, len(found)) == (None, True, 2)


def test_all_is_the_only_split_of_another_source(model, tmp_path):
    paths = [f"{part}/{n}/0.png" for part in ("train", "test") for n in NAMES]
    own(tmp_path / "x", *paths)
    assert len(find(model, f"folder:{tmp_path / 'x'}", split="test")) == 4
    with pytest.raises(BadInput, match=r"evals\.x\.split=all: folder:.* has several, train, test"):
        find(model, f"folder:{tmp_path / 'x'}")
    with pytest.raises(BadInput, match="unknown split"):
        find(model, f"folder:{tmp_path / 'x'}", split="all_of_it")


def use_small_table(patch):
    """Two corruptions at two severities."""
    table = paper.table("robustness")
    part = {"alexnet_error": {"fog": 0.5, "snow": 0.8}, "severities": [1, 2]}
    patch.setattr(paper, "table", lambda name: table | {"imagenet_c": part})


@pytest.fixture
def small_table(monkeypatch):
    use_small_table(monkeypatch)


def test_parts_that_are_missing_are_said_at_once(model, tmp_path, small_table):
    for part in ("fog/1", "snow/1"):
        own(tmp_path / "x" / part, *(f"{n}/0.png" for n in NAMES))
    spec = f"folder:{tmp_path / 'x'}/{{corruption}}/{{severity}}"
    with pytest.raises(BadInput, match=r"fog/2 does not exist.*\nlikewise snow_2$"):
        find(model, spec)
    for part in ("fog/2", "snow/2"):
        own(tmp_path / "x" / part, *(f"{n}/0.png" for n in NAMES))
    assert list(find(model, spec).parts) == ["fog_1", "fog_2", "snow_1", "snow_2"]
    own(tmp_path / "x" / "snow" / "2", "wolf/0.png")
    with pytest.raises(BadInput, match="its parts do not have the same classes"):
        find(model, spec)


def test_an_unknown_kind_of_source_is_refused_before_anything_is_read():
    overrides = ["--config.evals.val.source=floder:x"]
    with pytest.raises(BadInput, match=r"unknown evals\.val\.source 'floder:x'"):
        build.check(config_lib.load(test_train.QUICKSTART, overrides))


# ---------------------------------------------------------------- what is predicted

COLUMNS = np.array([[4, -1, -1], [0, 2, 5], [1, 4, -1]], np.int32)


def test_a_column_has_the_highest_logit_of_its_classes():
    logits = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    wanted = [[row[4], max(row[0], row[2], row[5]), max(row[1], row[4])] for row in logits]
    np.testing.assert_array_equal(metrics.of_columns(logits, COLUMNS), wanted)


def test_columns_move_no_logits_between_devices():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    logits = jax.ShapeDtypeStruct((64, 6), np.float32, sharding=over)
    compiled = jax.jit(metrics.of_columns).lower(logits, COLUMNS).compile()
    assert "all-gather" not in compiled.as_text()
    assert compiled.output_shardings.is_equivalent_to(over, 2)


# ---------------------------------------------------------------- a run

MOST = 16  # images that `predict` takes at once
CLASSES = ["n01440764", "n02708093", "n02791124", "n03792782", "n15075141"]
VALIDATION = [  # TFDS's builder shuffles them; number, class, ReaL's labels
    (3, "n02708093", ["n02708093", "n03196217"]),
    (1, "n01440764", []),
    (5, "n15075141", ["n02791124"]),
    (2, "n01440764", ["n01440764"]),
    (4, "n03792782", ["n03792782", "n15075141", "n01440764"]),
]  # fmt: skip


def corrupted(severity):
    """Two images of a class at severity 2."""
    return [f"{w}/{severity}_{k}.png" for w in CLASSES for k in range(severity)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """DATA_DIR with five classes of ImageNet's thousand."""
    data = tmp_path_factory.mktemp("data")
    train = [(f"{w}_{k}.JPEG", w) for w in CLASSES for k in range(6)]
    val = [(f"ILSVRC2012_val_{n:08d}.JPEG", w) for n, w, _ in VALIDATION]
    small_imagenets.prepare(data, "imagenet2012", {"train": train, "validation": val})
    some = [(f"{k}.jpg", w) for k, w in enumerate(CLASSES[1:4] * 2)]
    small_imagenets.prepare(data, "imagenet_a", {"test": some})
    manual = data / "downloads" / "manual"
    small_imagenets.objectnet(manual / "objectnet-1.0")
    sets = {n: list(map(wnid, labels)) for n, _, labels in VALIDATION}
    (manual / "real.json").write_text(json.dumps([sets[n] for n in range(1, 6)]))
    for c in ("fog", "snow"):
        for s in (1, 2):  # images of another size are others
            pictures.folder(data / "c" / c / str(s), *corrupted(s), size=len(c) + s)
    return data


def settings(data):
    """A tiny model with the recipe's evaluations."""
    recipe = data / "recipe.py"
    recipe.write_text(
        "from configs import quickstart, base\nfrom vit_jax.paper import robustness\n\n\n"
        "def get_config():\n    config = quickstart.get_config()\n"
        "    for name in ('real', 'a', 'objectnet', 'c'):\n"
        "        with config.evals.unlocked():\n"
        "            config.evals[name] = base.evaluation(robustness.sets()[name].split)\n"
        "        for key in ('source', 'labels', 'classes'):\n"
        "            config.evals[name][key] = getattr(robustness.sets()[name], key)\n"
        "    return config\n"
    )
    return str(recipe), [
        *test_train.TINY, "--config.data.source=tfds:imagenet2012", "--config.ema.decay=0",
        f"--config.evals.c.source=folder:{data}/c/{{corruption}}/{{severity}}",
        "--config.evals.c.split=all", "--config.evals.test.split=validation",
        "--config.data.train_ops=decode|resize(8)", "--config.batch_size=8",
        "--config.evals.val.split=train", f"--config.data.data_dir={data}",
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Model:
    """A model with weights of noise, and what was measured of it."""

    run: build.Run
    params: dict
    found: dict

    def logits(self, images):
        """Float64 [n, 1000] of uint8 [8, 8, 3] or encoded images."""
        ops = preprocess.apply(preprocess.parse("", "decode|resize(8)", 8))
        pixels = [ops(tf.constant(i), tf.zeros(2, tf.int64)).numpy() for i in images]
        pixels = np.stack(pixels + pixels[:1] * (MOST - len(images)))  # one program for all
        scaled = (pixels / 127.5 - 1).astype(np.float32)
        return np.asarray(self.apply(scaled), np.float64)[: len(images)]

    @functools.cached_property
    def apply(self):
        params, bare = jax.device_get(self.params), variants.make(self.run.program.model.cfg)
        return jax.jit(lambda x: bare.apply({"params": params}, x, train=False))


@pytest.fixture(scope="module")
def noise(data):
    with pytest.MonkeyPatch.context() as patch:
        use_small_table(patch)
        run = build.build(defaults.settle(config_lib.load(*settings(data))))
        params = run.program.init().params
        kernel = np.random.default_rng(0).normal(size=(16, 1000)).astype(np.float32)
        params["head"]["kernel"] = jax.device_put(kernel, params["head"]["kernel"].sharding)
        found = {
            name: classification.evaluate(run.program.eval_step, params, run.eval_batches(name))
            for name in ("test", "real", "a", "objectnet", "c")
        }
    return Model(run, params, found)


def measured(logits, targets):
    """top1, top5, loss and examples; `targets` is a list of columns for each example."""
    order = np.argsort(-logits, axis=1, kind="stable")
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = list(zip(order, log_p, targets, strict=True))
    return {
        "top1": np.mean([o[0] in t for o, _, t in rows]),
        "top5": np.mean([bool(set(o[:5]) & set(t)) for o, _, t in rows]),
        "loss": np.mean([-sum(p[t]) for _, p, t in rows]),
        "examples": len(rows),
    }


def close(wanted):
    return pytest.approx(wanted, rel=1e-4, abs=1e-6)


def wnid(name):
    return imagenet_labels.wnids().index(name)


@pytest.mark.integration
def test_real_counts_a_prediction_in_the_set_whatever_the_order(noise):
    counted = [(30 + i, labels) for i, (_, _, labels) in enumerate(VALIDATION) if labels]
    logits = noise.logits([small_imagenets.jpeg(k) for k, _ in counted])
    found = noise.found
    assert found["real"] == close(measured(logits, [list(map(wnid, t)) for _, t in counted]))
    assert found["real"]["examples"] == 4
    every = noise.logits([small_imagenets.jpeg(30 + i) for i in range(5)])
    assert found["test"] == close(measured(every, [[wnid(w)] for _, w, _ in VALIDATION]))


def test_imagenet_a_is_predicted_among_its_own_classes(noise):
    logits = noise.logits([small_imagenets.jpeg(k) for k in range(6)])
    columns = sorted(map(wnid, CLASSES[1:4]))
    targets = [[columns.index(wnid(CLASSES[1 + k % 3]))] for k in range(6)]
    assert noise.found["a"] == close(measured(logits[:, columns], targets))


def test_a_class_of_objectnet_is_the_best_of_its_classes(noise):
    inner = [pictures.noise(12, 12, seed=100 * i + k)[2:10, 2:10] for i in range(3) for k in (0, 1)]
    logits = noise.logits(inner)
    groups = [
        [small_imagenets.WNIDS[n] for n in own] for _, own in small_imagenets.OBJECTS.values()
    ]
    columns = [np.max([logits[:, wnid(w)] for w in group], axis=0) for group in groups]
    wanted = measured(np.stack(columns, axis=1), [[i] for i in range(3) for _ in (0, 1)])
    assert noise.found["objectnet"] == close(wanted)


def test_imagenet_c_has_parts_that_are_also_measured_together(noise, data):
    top1, logits, targets = {}, [], []
    for c in ("fog", "snow"):
        for s in (1, 2):
            files = [data / "c" / c / str(s) / path for path in corrupted(s)]
            logits.append(noise.logits([f.read_bytes() for f in files]))
            targets.append([[wnid(f.parent.name)] for f in files])
            top1[c, s] = measured(logits[-1], targets[-1])["top1"]
    wanted = measured(np.concatenate(logits), [t for part in targets for t in part])
    errors = {c: 1 - (top1[c, 1] + top1[c, 2]) / 2 for c in ("fog", "snow")}
    wanted |= {f"error_{c}": error for c, error in errors.items()}
    wanted["mean_error"] = (errors["fog"] + errors["snow"]) / 2
    wanted["mce"] = (errors["fog"] / 0.5 + errors["snow"] / 0.8) / 2
    assert noise.found["c"] == close(wanted)
    assert wanted["examples"] == 30


def test_predictions_are_neither_all_right_nor_all_wrong(noise):
    """Or the comparisons above would show little."""
    assert sum(0 < noise.found[n]["top1"] < 1 for n in ("real", "a", "objectnet", "c")) >= 2
    assert 0 < noise.found["objectnet"]["top1"] < 1


@pytest.mark.slow
def test_a_run_writes_them_at_its_end(data, tmp_path, small_table, capsys):
    recipe, overrides = settings(data)
    assert test_train.run(tmp_path, *overrides, "--config.ema.decay=0.5", config=recipe) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    for name, examples in (("real", 4), ("a", 6), ("objectnet", 6), ("c", 30)):
        assert found[name]["examples"] == found[f"{name}_raw"]["examples"] == examples
    assert {"mce", "mean_error", "error_fog", "error_snow"} < set(found["c"])
    rows = test_train.read_rows(tmp_path / "metrics.jsonl")
    assert {row["step"] for row in rows if "c/mce" in row} == {12}
    assert f"{found['c']['mce']:.2%}" in capsys.readouterr().out


def test_what_is_missing_of_data_and_of_evaluations_is_said_at_once(data, tmp_path):
    recipe, overrides = settings(data)
    elsewhere = ["--config.data.source=folder:nowhere", f"--config.data.data_dir={tmp_path}"]
    elsewhere.append("--config.evals.a.source=csv:nothing")  # TFDS would ask the network
    with pytest.raises(BadInput) as caught:
        build.build(defaults.settle(config_lib.load(recipe, [*overrides, *elsewhere])))
    said = str(caught.value)
    assert said.startswith("5 problems:\n- data.source=folder:nowhere")
    for problem in ("labels=real.json", "evals.a: ", "evals.objectnet: ", "shot_noise_1"):
        assert problem in said


def test_a_missing_part_of_tfds_is_said_without_asking_for_the_others(model):
    asked = []

    def nothing(spec):
        asked.append(spec)
        raise BadInput(f"{spec} is not prepared.")

    spec = "tfds:imagenet2012_corrupted/{corruption}_{severity}"
    with pytest.raises(
        BadInput, match=r"_1 is not prepared\.\nperhaps likewise the other 74 parts$"
    ):
        test_sets.open_test_set(model, nothing, "evals.c", source=spec, split="validation",
                                labels="", classes="all", data_dir="")  # fmt: skip
    assert asked == ["tfds:imagenet2012_corrupted/gaussian_noise_1"]
