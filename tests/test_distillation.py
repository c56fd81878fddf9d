# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Learning from a teacher: the losses, what the teacher sees, its place on a mesh, and runs."""

import dataclasses
import functools
import json
import os
import re
import shlex
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train import QUICKSTART, ROOT, logged
from test_train_step import CLASSES, HALF, batch, rules_of, small, small_params

import vit_jax
from vit_jax.build import defaults, program, read_models
from vit_jax.build import run as build_run
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli.main import main
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.preflight.plan import estimate
from vit_jax.step import state, train_step
from vit_jax.step.distillation import Distillation
from vit_jax.step.objective import Network, ReadModel
from vit_jax.weights import loading

KEY = jax.random.key(0)
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)  # of the teacher
SHAPES = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), small_params())


def teach(params, images, *, train, key=None):
    assert not train
    return 3 * jnp.sin(images.reshape(images.shape[0], -1) @ params["hidden"]) @ params["head"]


NETWORK = Network(small, HALF, HALF, {"teacher": Network(teach, MEAN, STD)})


def objective(**settings):
    cfg = variants.config(variant="Ti/16", classes=CLASSES)
    return Distillation(CLASSES, teacher=ReadModel("t", cfg, MEAN, STD, SHAPES, dict), **settings)


def taught(given, mix):
    """The teacher's logits for the mixed pixels, in numpy."""
    params, pixels = small_params(1), given["image"] / 255.0
    pixels = mix * pixels + (1 - mix) * np.roll(pixels, 1, axis=0)
    x = ((pixels - MEAN) / STD).reshape(len(pixels), -1)
    return 3 * np.sin(x @ params["hidden"]) @ params["head"]


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("kind, temperature, share, mixup", [
    ("soft", 1.0, 1.0, 1.0), ("soft", 3.0, 0.1, 0.0), ("hard", 1.0, 0.5, 0.4),
])  # fmt: skip
def test_losses_are_those_of_the_papers_on_the_same_mixed_images(kind, temperature, share, mixup):
    """arXiv:2106.05237, section 3; equations 2 and 3 of arXiv:2012.12877."""
    made = objective(
        kind=kind, temperature=temperature, share=share, mixup=mixup,
        label_smoothing=0.1 * (share < 1),
    )  # fmt: skip
    given = batch(mask=np.arange(16) % 5 != 0)
    drawn_batch, drawn = made.draw(given, KEY)
    mix = 1.0 if drawn is None else float(drawn.share)
    sums = jax.jit(functools.partial(made.sums, NETWORK, key=KEY))
    found = sums(small_params(), {"teacher": small_params(1)}, drawn_batch, drawn)

    pixels = given["image"] / 127.5 - 1
    pixels = mix * pixels + (1 - mix) * np.roll(pixels, 1, axis=0)
    logits = np.asarray(small(small_params(), pixels, train=False, key=None), np.float64)
    teacher = taught(given, mix)
    if kind == "hard":
        loss = -log_softmax(logits)[np.arange(16), teacher.argmax(1)]
    else:
        p, q = log_softmax(teacher / temperature), log_softmax(logits / temperature)
        loss = temperature**2 * np.sum(np.exp(p) * (p - q), axis=1)
    targets = np.eye(CLASSES)[given["labels"][:, 0]] * 0.9 + 0.1 / CLASSES
    targets = mix * targets + (1 - mix) * np.roll(targets, 1, axis=0)
    loss = share * loss - (1 - share) * np.sum(targets * log_softmax(logits), axis=1)
    mask, first = given["_mask"], teacher.argmax(1)
    assert float(found["loss"]) == pytest.approx(loss[mask].sum(), rel=1e-4)
    assert float(found["agreement"]) == (logits.argmax(1) == first)[mask].sum()
    assert float(found["teacher_top1"]) == (first == given["labels"][:, 0])[mask].sum()


def test_the_teacher_sees_the_view_that_is_named_and_the_model_the_image():
    """The fixed teacher of arXiv:2106.05237, section 3.1, sees an image without augmentation."""
    given = batch()
    plain = np.random.default_rng(5).integers(0, 256, given["image"].shape, np.uint8)
    made = objective(view="plain")
    assert made.batch(4, 6, 3)["plain"] == made.batch(4, 6, 3)["image"]
    sums = jax.jit(functools.partial(made.sums, NETWORK, key=KEY, drawn=None))
    found = sums(small_params(), {"teacher": small_params(1)}, {**given, "plain": plain})
    teacher = taught({"image": plain}, 1.0)
    logits = small(small_params(), given["image"] / 127.5 - 1, train=False, key=None)
    p, q = log_softmax(teacher), log_softmax(np.asarray(logits, np.float64))
    assert float(found["loss"]) == pytest.approx(np.sum(np.exp(p) * (p - q)), rel=1e-4)
    with pytest.raises(BadInput, match=r"not mixed.*mixup.alpha=0"):
        objective(view="plain", cutmix=1.0)


@pytest.mark.parametrize("kind, share, expected", [
    ("hard", 0.25, 0.75 * np.log(3) + 0.25 * np.log(1.5)),
    ("soft", 0.25, 0.75 * np.log(3) + 0.25 * (0.75 * np.log(1.125) + 0.25 * np.log(0.75))),
])  # fmt: skip
def test_the_distillation_token_learns_from_the_teacher_and_the_class_token_labels(
    kind, share, expected
):
    """By hand: heads of (1/3, 2/3) and (2/3, 1/3), the teacher's (3/4, 1/4), the label 0."""
    heads = np.log(np.array([[[1, 2], [2, 1]]], np.float32))

    def model(params, images, *, train, key, apart):
        return heads + 0 * images[:, :1, 0, :1]

    def teacher(params, images, *, train):
        return jnp.log(jnp.array([[3.0, 1.0]]))

    both = Network(model, HALF, HALF, {"teacher": Network(teacher, HALF, HALF)})
    made = dataclasses.replace(objective(kind=kind, share=share), classes=2, token=True)
    given = {"image": np.zeros((1, 2, 2, 3), np.uint8), "labels": np.zeros((1, 1), np.int32),
             "_mask": np.ones(1, bool)}  # fmt: skip
    found = made.sums(both, {}, {"teacher": {}}, given, None, KEY)
    assert float(found["loss"]) == pytest.approx(expected, rel=1e-5)


def test_the_heads_of_both_tokens_come_apart_and_their_mean_is_evaluated():
    cfg = variants.config(variant="Ti/4", width=16, depth=1, mlp=16, heads=2, distillation=True,
                          classes=5)  # fmt: skip
    model, images = variants.make(cfg), jax.random.normal(KEY, (2, 8, 8, 3))
    params = jax.jit(model.init)(KEY, images)["params"]
    for seed, name in enumerate(("head", "dist_head")):
        params[name]["kernel"] = jax.random.normal(jax.random.key(seed), (16, 5))
    apply = jax.jit(model.apply, static_argnames="apart")
    apart = apply({"params": params}, images, apart=True)
    whole = apply({"params": params}, images)
    assert cfg.two_heads
    assert apart.shape == (2, 2, 5)
    assert np.abs(apart[:, 0] - apart[:, 1]).max() > 0.1
    np.testing.assert_allclose(apart.mean(axis=1), whole, rtol=1e-5, atol=1e-6)
    params["dist_head"] = jax.tree.map(jnp.zeros_like, params["dist_head"])
    assert not apply({"params": params}, images, apart=True)[:, 1].any()


def test_a_model_that_is_its_teacher_has_no_loss_and_agrees():
    made = objective(temperature=2.0)
    same = Network(
        small,
        HALF,
        HALF,
        {
            "teacher": Network(
                lambda params, images, train: small(params, images, train=train, key=None),
                HALF,
                HALF,
            )
        },
    )
    params = small_params()
    found = made.sums(same, params, {"teacher": params}, batch(), None, KEY)
    assert float(found["loss"]) == pytest.approx(0, abs=1e-5)
    assert float(found["agreement"]) == 16


def steps(accumulation=1, shape=(1, 1, 1, 1)):
    made, tx, rules = objective(mixup=0.3, share=0.7), optax.sgd(0.1), rules_of(shape)
    params = jax.device_put(small_params(), rules.replicated)
    current = state.from_params(params, tx, ema=True, keep=made.kept)
    assert all(not x.any() for x in jax.tree.leaves(current.kept))  # a run puts them in place
    current.kept = {"teacher": jax.device_put(small_params(1), rules.replicated)}
    given = jax.device_put(batch(), rules.sharding(("act_batch",), (16,)))
    step, found = train_step.make_train_step(made, NETWORK, tx, accumulation=accumulation), []
    step = jax.jit(step)
    for _ in range(3):
        current, measured = step(current, given, KEY)
        found.append([float(measured[name]) for name in (*made.METRICS, "grad_norm")])
    return np.array(found), jax.device_get(current)


@pytest.mark.integration
@pytest.mark.parametrize("accumulation, shape", [
    pytest.param(4, (1, 1, 1, 1), marks=pytest.mark.integration), (2, (1, 2, 2, 2)),
])  # fmt: skip
def test_micro_batches_and_meshes_leave_the_step_and_no_step_moves_the_teacher(accumulation, shape):
    expected, current = steps()
    found, again = steps(accumulation, shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, current.kept["teacher"], small_params(1))
    jax.tree.map(np.testing.assert_array_equal, again.kept["teacher"], small_params(1))
    assert expected[2, 0] < expected[0, 0] - 0.01


# --- a teacher from a file ---

STUDENT = (
    "--config.model.width=16", "--config.model.depth=1", "--config.model.mlp=16",
    "--config.model.heads=2", "--config.batch_size=16",
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Weights of a teacher of ten classes, wider than the student, for images of 12 pixels."""
    path = tmp_path_factory.mktemp("weights") / "teacher.npz"
    cfg = variants.config(variant="custom/4", width=32, depth=1, mlp=64, heads=1, classes=10)
    rng = np.random.default_rng(0)
    shapes = variants.shapes(cfg, 12, 12)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / 4, shapes)
    vit_jax.save(path, variants.make(cfg), params)
    return path


def made(file, *args, classes=10):
    words = [*STUDENT, f"--config.distillation.teacher={file}", *args]
    config = config_lib.load(str(QUICKSTART), words)
    build_run.check(config)
    return program.make(config, classes=classes, examples=100)


def test_a_teacher_is_placed_as_in_its_own_training_and_counted(file):
    with_teacher = made(file, "--config.mesh.data=1", "--config.mesh.fsdp=8")
    alone = made("", "--config.mesh.data=1", "--config.mesh.fsdp=8")
    kept = with_teacher.abstract.kept["teacher"]
    assert not kept["embedding"]["kernel"].sharding.is_fully_replicated
    assert kept["posemb"].shape == (1, 5, 32)  # 8 pixels, not 12
    cfg = with_teacher.objective.reads["teacher"].cfg
    assert with_teacher.step_flops - alone.step_flops == cfg.forward_flops(8, 8)
    size = sum(np.prod(x.sharding.shard_shape(x.shape)) for x in jax.tree.leaves(kept))
    assert estimate.state_bytes(with_teacher) - estimate.state_bytes(alone) == 4 * size
    assert estimate.saved_bytes(with_teacher) < 1.2 * estimate.saved_bytes(alone)  # no gradient
    gathered = [estimate.collectives(x)["fsdp"]["all-gather"] for x in (with_teacher, alone)]
    assert gathered[0] - gathered[1] == sum(
        x.size * 4 for x in jax.tree.leaves(kept) if not x.sharding.is_fully_replicated
    )


def test_a_run_starts_with_the_teacher_in_place(file):
    started = made(file).init()
    _, expected, _ = vit_jax.load(file, image_size=8)
    jax.tree.map(np.testing.assert_array_equal, started.kept["teacher"], dict(expected))


@pytest.mark.parametrize("args, words", [
    (["--config.distillation.kind=hard", "--config.distillation.temperature=2.0"],
     r"distillation\.temperature=2\.0 has no use with kind=hard"),
    (["--config.distillation.teacher=nowhere"], r"distillation\.teacher: 'nowhere'"),
    (["--config.data.channels=1"], r"takes images of 3 channels, and the data has 1"),
    (["--config.loss.label_smoothing=0.1"], r"loss\.label_smoothing has no use with .*share=1"),
    (["--config.model.distillation=True", "--config.model.pool=token",
      "--config.model.posemb=learned1d"], r"share=1 leaves nothing .* give .*share=0\.5"),
    (["--config.masked.target=mean"], r"distillation\.teacher=.* has no use with masked"),
    (["--config.distillation.teacher=", "--config.distillation.share=0.5"],
     r"have no use without a teacher; give --config\.distillation\.teacher"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(file, args, words):
    with pytest.raises(BadInput, match=words):
        made(file, *args)


def test_a_teacher_of_other_classes_or_none_is_refused(file, tmp_path):
    with pytest.raises(BadInput, match="has 10 classes, and the data 7; give a teacher"):
        made(file, classes=7)
    model, params, _ = vit_jax.load(file)
    params.pop("head")
    headless = variants.make(model.cfg.for_images(0))
    vit_jax.save(tmp_path / "encoder.npz", headless, params)
    with pytest.raises(BadInput, match="has no head on classes"):
        made(tmp_path / "encoder.npz")


def settled(teacher, saved=None, **changes):
    config = config_lib.load(
        str(QUICKSTART), [*STUDENT, f"--config.distillation.teacher={teacher}"]
    )
    return read_models.settle_teacher(config_lib.changed(config, changes), saved)


def test_a_later_start_needs_no_file_of_the_teacher(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(file, "teacher.npz")
    first = settled("teacher.npz")
    assert first.distillation.teacher == str(tmp_path / "teacher.npz")
    expected = program.make(first, classes=10, examples=100)
    os.remove("teacher.npz")
    read_models.describe.cache_clear()
    again = settled("teacher.npz", first)
    assert again == first
    found = program.make(again, classes=10, examples=100)
    assert found.abstract.kept == expected.abstract.kept
    with pytest.raises(BadInput, match=r"distillation\.teacher: .*teacher\.npz"):
        found.init()  # a first start does need it
    with pytest.raises(BadInput, match=r"distillation\.teacher: .*other\.npz"):
        settled("other.npz", first)


def test_a_run_that_has_only_the_name_of_its_teacher_keeps_it(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(file, "teacher.npz")
    saved = config_lib.changed(settled(file), {
        "distillation.teacher": "teacher.npz", "distillation.teacher_settings": "",
    })  # fmt: skip
    again = settled("teacher.npz", saved)
    changed = [key for key, *_ in config_lib.differences(saved, again)]
    assert changed == ["distillation.teacher_settings"]
    assert not config_lib.changes_results(changed[0])


@pytest.mark.parametrize("text, same", [
    ("runs/t", True), ("runs/t/", True), ("runs/t@best", True), ("runs/t@4", True),
    ("runs/t@8", False), ("runs/u", False),
])  # fmt: skip
def test_a_run_goes_on_with_the_step_of_its_teacher_that_it_began_with(
    tmp_path, monkeypatch, text, same
):
    monkeypatch.chdir(tmp_path)
    name = str(tmp_path / "runs" / "t@4")
    settings = {"of": name, "model": {}, "classes": 2, "channels": 3, "mean": [0], "std": [1]}
    taught = {"teacher": name, "teacher_settings": json.dumps(settings)}
    saved = config_lib.changed(
        config_lib.load(str(QUICKSTART)), {f"distillation.{k}": v for k, v in taught.items()}
    )
    if same:
        assert settled(text, saved).distillation == saved.distillation
    else:
        with pytest.raises(BadInput, match=r"distillation\.teacher: "):
            settled(text, saved)  # read anew, and it is not there


@pytest.mark.parametrize("text, saved, same", [
    ("hf:o/n@main", "hf:o/n@" + "a" * 40, True), ("hf:o/n", "hf:o/n@" + "a" * 40, True),
    ("hf:o/n@" + "b" * 40, "hf:o/n@" + "a" * 40, False), ("hf:o/m", "hf:o/n@" + "a" * 40, False),
    ("weights", "/weights@v2.npz", False),
])  # fmt: skip
def test_a_branch_of_the_hub_names_the_commit_that_a_run_began_with(text, saved, same, monkeypatch):
    monkeypatch.chdir("/")
    assert read_models._is_same(text, saved) is same


def test_settings_of_another_teacher_or_damaged_ones_are_not_used(file):
    of_other = json.dumps({"of": "/other", "classes": 3})
    changes = {"distillation.teacher_settings": of_other}
    assert json.loads(settled(file, **changes).distillation.teacher_settings)["classes"] == 10
    with pytest.raises(BadInput, match="is not a JSON object; leave it out"):
        settled(file, **{"distillation.teacher_settings": "{"})
    incomplete = {"distillation.teacher_settings": json.dumps({"of": str(file)})}
    assert json.loads(settled(file, **incomplete).distillation.teacher_settings)["classes"] == 10


# --- runs ---


@pytest.mark.integration
def test_commands_of_the_page_and_a_branch_that_is_the_run_bit_for_bit(
    tmp_path, monkeypatch, image_folder
):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "distillation.md").read_text()
    commands = re.findall(r"^vit_jax (.*)$", text, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "train"]
    short = ["--config.length=4 steps", "--config.batch_size=8", "--config.schedule.warmup=0",
             "--config.checkpoint.every=2 steps", "--config.report.every=1 steps",
             "--config.report.writers=()", "--config.data.image_size=16", *STUDENT[:4],
             "--config.model.variant=Ti/8"]  # fmt: skip

    def words_of(number):
        command = commands[number].replace("/path/to/images", str(image_folder))
        return [w.replace("configs/", f"{ROOT}/configs/") for w in shlex.split(command)]

    quiet = "--config.report.page=false"
    assert main([*words_of(0), *short, quiet, "--config.model.dtype=bfloat16"]) == 0
    assert main([*words_of(1), *short]) == 0
    model = read_models.describe(
        "distillation.teacher", "runs/teacher", images_lib.Images((16, 16), 3, HALF, HALF)
    )
    assert model.cfg.dtype == "bfloat16"
    shutil.move("runs/teacher", "elsewhere")  # the checkpoints of the student have the teacher
    assert main([*words_of(1), *short, quiet, "--workdir=branch", "--branch=runs/student@2"]) == 0
    flat, other = (loading.read_weights(f"{name}@4").flat for name in ("runs/student", "branch"))
    for name, value in flat.items():
        np.testing.assert_array_equal(value, other[name])
    kept = [
        Checkpoints(tmp_path / name, read_only=True)._saved(4)["kept"]
        for name in ("branch", "runs/student")
    ]
    assert "embedding" in kept[0]["teacher"]
    jax.tree.map(np.testing.assert_array_equal, *kept)
    rows, again = logged(tmp_path / "runs" / "student"), logged(tmp_path / "branch")
    names = ("loss", "top1", "agreement", "teacher_top1")
    for name in names:
        assert rows[4, f"train/{name}"] == again[4, f"train/{name}"]
    assert 0 <= rows[4, "train/agreement"] <= 1
    assert "agreement" in (tmp_path / "runs" / "student" / "report.html").read_text()


def test_the_recipe_is_that_of_the_papers_code():
    recipe = str(ROOT / "configs" / "distill.py")
    config = config_lib.load(f"{recipe}:standin=true")
    assert (config.mixup.alpha, config.distillation.share, config.distillation.temperature) == (
        1.0, 1.0, 1.0,
    )  # fmt: skip
    assert config.distillation.teacher == "distill/R152x2_T_224.npz"
    assert (config.batch_size, config.length, config.schedule.lr) == (4096, "1200 epochs", 0.03)
    assert config.optimizer.weight_decay * config.schedule.lr == pytest.approx(3e-4)
    assert config.model.variant == "BiT-R50x1"
    assert config.data.eval_ops.startswith("decode|bv_resize_small(")
    assert config.expected.metric == ""  # noise
    assert config_lib.load(recipe).expected.value == 0.8154
    assert config_lib.load(f"{recipe}:epochs=300").expected.metric == ""
    assert config_lib.load(f"{recipe}:paper=deit").expected.metric == ""


@pytest.mark.parametrize("kind, share, temperature", [("hard", 0.5, 1.0), ("soft", 0.1, 3.0)])
def test_deits_recipe_has_its_numbers(kind, share, temperature):
    config = config_lib.load(f"{ROOT}/configs/distill.py:paper=deit,kind={kind},standin=true")
    taught = config.distillation
    assert (taught.kind, taught.share, taught.temperature) == (kind, share, temperature)
    assert config.model.distillation
    assert (config.batch_size, config.schedule.lr, config.length) == (1024, 1e-3, "300 epochs")
    assert (config.optimizer.weight_decay, config.schedule.warmup) == (0.05, "5 epochs")
    assert (config.mixup.alpha, config.mixup.cutmix, config.loss.label_smoothing) == (0.8, 1.0, 0.1)


@pytest.mark.integration
@pytest.mark.parametrize("paper", ["patient", "deit"])
def test_a_plan_of_the_recipe_needs_no_file_of_the_teacher(paper, monkeypatch):
    monkeypatch.setattr(loading, "read_weights", None)
    config = config_lib.load(f"{ROOT}/configs/distill.py:paper={paper},standin=true")
    config = defaults.settle(config)
    build_run.check(config)
    made = program.make(config, classes=1000, examples=100_000)
    assert sum(made.objective.reads["teacher"].cfg.resnet.stages) == 50
