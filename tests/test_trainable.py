# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Training of a part of a model: what it is, what it computes, and what a run of it keeps."""

import functools
import hashlib
import re
import shlex
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from interrupted_runs import arguments, assert_equal, cut
from test_train import QUICKSTART, run

import vit_jax
from vit_jax import tree
from vit_jax.build import program
from vit_jax.build import run as build
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import trainable
from vit_jax.errors import BadInput
from vit_jax.models import added, layers, partial, variants
from vit_jax.preflight.plan import estimate
from vit_jax.weights import base as base_lib

LORA = "lora(rank=4, alpha=8, on=qkv+out+mlp)"
KEY = jax.random.key(0)


def with_matrices(cfg, text, params=None):
    """(what, every parameter with matrices that are not zero)."""
    what, rng = trainable.parse(text), np.random.default_rng(0)
    add = jax.jit(functools.partial(partial.extended, what, variant="this"))
    every = add(tiny.params(cfg) if params is None else params, KEY)

    def one(path, leaf):
        if not path.endswith("/lora_b"):
            return np.asarray(leaf)
        return rng.normal(0, 0.1, leaf.shape).astype(np.float32)

    return what, tree.map_with_path(one, every)


# ---------------------------------------------------------------- what is trained


@pytest.mark.parametrize(
    "text, what",
    [
        ("all", None),
        ("head", trainable.Trainable("head")),
        ("last(2)", trainable.Trainable("last", blocks=2)),
        ("last(blocks=2)", trainable.Trainable("last", blocks=2)),
        ("lora", trainable.Trainable("lora", rank=8, alpha=8.0, on=("qkv", "mlp"))),
        ("lora(4, on='qkv')", trainable.Trainable("lora", rank=4, alpha=4.0, on=("qkv",))),
    ],
)
def test_the_notation(text, what):
    assert trainable.parse(text) == what


@pytest.mark.parametrize(
    "text, message",
    [
        ("lora(", "cannot be read; give all, head"),
        ("lora(rank=2+2)", "cannot be read"),
        ("lorra", "unknown trainable 'lorra'"),
        ("lora(rank=0)", "rank=0; give a whole number from 1 to 4096"),
        ("lora(on=qvk)", "on=qvk; give qkv, out, mlp, or several joined by +"),
        ("lora(on=qkv+qkv)", r"on=qkv\+qkv; give"),
        ("lora(alpha=-1)", "alpha=-1; give a number from 0"),
        ("lora(r=8)", r"it is lora\(rank=8, alpha=0, on=qkv\+mlp\)"),
        ("last", r"it is last\(blocks\)"),
        ("last(0)", "blocks=0; give a whole number from 1"),
    ],
)
def test_what_cannot_be_read_is_one_message(text, message):
    with pytest.raises(BadInput, match=message):
        trainable.parse(text)


def trained_paths(cfg, text):
    what = trainable.parse(text)
    add = functools.partial(partial.extended, what, variant="this")
    every = jax.eval_shape(add, tiny.shapes(cfg), KEY)
    chosen = partial.select(what, every, "this")
    canonical = set()
    for path, leaf in tree.leaves_with_paths(every):
        names = tree.layer_paths(path, leaf.shape)
        canonical |= set(names[chosen.frozen[path] :])
    return canonical


@pytest.mark.parametrize("text", ["head", "bitfit", "last(2)", "adapters", LORA])
def test_the_same_is_trained_with_scan_and_without(text):
    paths = trained_paths(tiny.config(), text)
    assert paths == trained_paths(tiny.config(scan=False), text)
    assert {"head/kernel", "head/bias"} <= paths
    rest = paths - {"head/kernel", "head/bias"}
    if text == "head":
        assert not rest
    if text == "bitfit":
        assert {p.rpartition("/")[2] for p in rest} == {"bias"}
        assert {"blocks/0/attn/query/bias", "norm/bias", "embedding/bias"} <= rest
    if text == "last(2)":
        assert {tree.layer_index(p) for p in rest} == {1, 2, None}
        assert {p for p in rest if tree.layer_index(p) is None} == {"norm/scale", "norm/bias"}
    if text == "adapters":
        modules = {p.partition("/adapter/")[0] for p in rest}
        assert modules == {f"blocks/{i}/{name}" for i in range(3) for name in ("attn", "mlp")}
        assert len(rest) == 6 * 4
    if text == LORA:
        assert len(rest) == 3 * 6 * 2
        assert all(p.rpartition("/")[2] in ("lora_a", "lora_b") for p in rest)


@pytest.mark.parametrize("text", ["last(2)", "adapters", LORA])
def test_both_parts_together_are_the_whole(text):
    what, every = with_matrices(tiny.config(), text)
    chosen = partial.select(what, every, "this")
    trained, base = chosen.trained(every), chosen.base(every)
    assert tree.size(trained) + tree.size(base) == tree.size(every)
    for put in (partial.joined(base, trained), partial.restored(every, trained)):
        assert tree.difference(put, every) == ""
        assert jax.tree.all(jax.tree.map(np.array_equal, put, every))


@pytest.mark.parametrize(
    "family, text, message",
    [
        ("vit", "last(4)", r"this has 3 blocks; give 1 to 3"),
        ("bit", "last(1)", r"this has no blocks of tokens; give head, bitfit or all"),
        (
            "bit",
            "lora",
            r"only models with blocks .* do. Give trainable=head, bitfit or all",
        ),
        ("mixer", "lora", r"no dense layers qkv to put .*; it has mlp. Give on=mlp"),
    ],
)
def test_a_model_without_that_part_is_refused(family, text, message):
    cfg = tiny.FAMILIES[family]()
    what = trainable.parse(text)

    def select(params):
        return partial.select(what, partial.extended(what, params, KEY, "this"), "this").what

    with pytest.raises(BadInput, match=message):
        select(tiny.params(cfg))


# ---------------------------------------------------------------- what it computes


@pytest.mark.integration
@pytest.mark.parametrize(
    "cfg, text",
    [
        (tiny.config(), LORA),
        (tiny.config(scan=False), LORA),
        (tiny.config().in_form(unrolled=True, attention="packed", remat="dots"), LORA),
        (tiny.mixer(), "lora(rank=2, on=mlp)"),
    ],
    ids=["scan", "loop", "unrolled", "mixer"],
)
def test_merged_weights_give_the_same_logits(cfg, text):
    what, every = with_matrices(cfg, text)
    chosen = partial.select(what, every, "this")
    whole, images = chosen.whole(chosen.trained(every), chosen.base(every)), tiny.images_of(cfg)
    beside = tiny.logits(cfg, whole, images)
    merged = partial.merged(every, what.scale)
    assert tree.difference(merged, tiny.params(cfg)) == ""
    np.testing.assert_allclose(tiny.logits(cfg, merged, images), beside, rtol=0, atol=1e-5)
    assert np.abs(beside - tiny.logits(cfg, tiny.params(cfg), images)).max() > 0.1


@pytest.mark.integration
@pytest.mark.parametrize(
    "form", [{}, {"unrolled": True, "remat": "full"}], ids=["scan", "unrolled"]
)
def test_gradients_are_those_of_the_sum_of_kernel_and_product(form):
    cfg = tiny.config(depth=2).in_form(**form)
    what, every = with_matrices(cfg, LORA)
    chosen = partial.select(what, every, "this")
    trained, base = chosen.trained(every), chosen.base(every)
    model, images = variants.make(cfg), tiny.images_of(cfg)

    def loss(params):
        return jnp.sum(jnp.sin(model.apply({"params": params}, images)))

    def summed(trained):
        leaves = dict(tree.leaves_with_paths(partial.joined(base, trained)))
        for path in [p for p in leaves if p.endswith("/lora_a")]:
            a, b = leaves.pop(path), leaves.pop(path[:-1] + "b")
            kernel = path.replace("lora_a", "kernel")
            rows = a.reshape(len(a), -1, a.shape[-1])
            product = jnp.einsum("sir,sro->sio", rows, b.reshape(*b.shape[:2], -1))
            leaves[kernel] = leaves[kernel] + 2.0 * product.reshape(leaves[kernel].shape)
        return tree.nested(leaves)

    with jax.default_matmul_precision("highest"):
        expected = jax.jit(jax.grad(lambda t: loss(summed(t))))(trained)
        actual = jax.jit(jax.grad(lambda t: loss(chosen.whole(t, base))))(trained)
    for path, value in tree.leaves_with_paths(expected):
        found = dict(tree.leaves_with_paths(actual))[path]
        assert np.abs(value).max() > 1e-3, path
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-4, err_msg=path)


@pytest.mark.parametrize("text", ["lora(rank=3)", "adapters(width=5)"])
def test_a_new_run_begins_with_the_outputs_of_its_weights(text):
    cfg = tiny.config()
    params, images = tiny.params(cfg), tiny.images_of(cfg)
    every = partial.extended(trainable.parse(text), params, KEY, "this")
    np.testing.assert_array_equal(tiny.logits(cfg, every, images), tiny.logits(cfg, params, images))
    if text.startswith("lora"):
        a = every["blocks"]["attn"]["query"]["lora_a"]
        assert 0.9 / np.sqrt(32) < np.abs(a).max() <= 1 / np.sqrt(32)


def test_an_adapter_is_a_narrow_mlp_after_its_module():
    cfg = tiny.config(depth=1)
    params, rng = tiny.params(cfg), np.random.default_rng(0)
    every = partial.extended(trainable.parse("adapters(width=5)"), params, KEY, "this")
    shapes = leaves(every["blocks"]["mlp"]["adapter"])
    assert {name: x.shape for name, x in shapes.items()} == {
        "down/kernel": (1, 32, 5), "down/bias": (1, 5), "up/kernel": (1, 5, 32), "up/bias": (1, 32)
    }  # fmt: skip
    values = {name: rng.normal(0, 0.3, x.shape).astype(np.float32) for name, x in shapes.items()}
    every["blocks"]["mlp"]["adapter"] = tree.nested(values)
    x = rng.normal(size=(2, 3, 32)).astype(np.float32)
    mlp = {k: jax.tree.map(lambda x: x[0], v) for k, v in every["blocks"]["mlp"].items()}
    module = layers.Mlp(48, "tanh", 0.0, "float32", None)
    plain = module.apply({"params": {k: v for k, v in mlp.items() if k != "adapter"}}, x, None)
    with added.to_layers(factors="float32", rows=False):
        found = module.apply({"params": mlp}, x, None)
    v = {name: array[0] for name, array in values.items()}
    narrow = np.asarray(jax.nn.gelu(np.asarray(plain) @ v["down/kernel"] + v["down/bias"]))
    expected = np.asarray(plain) + narrow @ v["up/kernel"] + v["up/bias"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


# ---------------------------------------------------------------- a program of it

SIZES = [
    f"--config.model.{key}={value}"
    for key, value in {"depth": 3, "width": 32, "mlp": 32, "heads": 4}.items()
]


def made(*overrides, devices=1):
    config = config_lib.load(
        QUICKSTART, [*SIZES, "--config.batch_size=16", "--config.schedule.warmup=0", *overrides]
    )
    build.check(config)
    return program.make(config, classes=10, examples=64, devices=jax.devices()[:devices])


def batch_of(one):
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, one.batch()["image"].shape).astype(np.uint8),
        "labels": rng.integers(0, 10, (16, 1)).astype(np.int32),
        "_mask": np.arange(16) != 5,
    }
    return jax.device_put(batch, one.batch_sharding)


def leaves(x):
    return dict(tree.leaves_with_paths(x))


@pytest.mark.parametrize("text", ["head", "last(2)", "adapters(width=4)", "lora(rank=4)"])
def test_only_what_is_trained_has_a_state_and_is_saved(text):
    one = made(f"--config.trainable={text}")
    trained, base = one.abstract.params, one.abstract.base
    assert tree.size(trained) + tree.size(base) == tree.size(one.whole_params)
    moments = one.abstract.opt_state
    assert 2 * tree.size(trained) <= tree.size(moments) <= 2 * tree.size(trained) + 10
    assert tree.size(one.abstract.ema) == tree.size(trained)
    assert "base" not in one.abstract.saved()
    assert one.step_flops < made().step_flops


def test_every_parameter_is_a_run_as_before():
    one = made()
    assert one.selection is None
    assert one.abstract.base is None
    assert set(one.abstract.saved()) == {"step", "params", "opt_state", "ema"}


@pytest.mark.integration
@pytest.mark.parametrize("text", [pytest.param("last(2)", marks=pytest.mark.slow), LORA])
def test_a_step_on_meshes_and_with_micro_batches_is_the_same(text):
    found = {}
    for name, more, devices in (
        ("one", [], 1),
        ("data", ["--config.mesh.data=8"], 8),
        ("all", ["--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"], 8),
        ("parts", ["--config.accumulation=4"], 1),
    ):
        sgd = ["--config.optimizer.name=sgd", "--config.optimizer.sgd.accumulator_dtype=float32"]
        rate = ["--config.schedule.lr=0.1", "--config.model.dropout=0"]
        one = made(f"--config.trainable={text}", *sgd, *rate, *more, devices=devices)
        state, batch = one.init(), batch_of(one)
        before = jax.tree.map(np.asarray, state.base)
        for _ in range(2):
            state, metrics = one.step(state, batch, one.step_key)
        assert jax.tree.all(jax.tree.map(np.array_equal, before, state.base))
        found[name] = float(metrics["loss"]), jax.tree.map(np.asarray, state.params)
        if name == "all" and text == LORA:
            placed = leaves(state.params)
            assert not placed["blocks/attn/query/lora_a"].sharding.is_fully_replicated  # fsdp
            assert not placed["blocks/attn/query/lora_b"].sharding.is_fully_replicated  # tensor
    for name, (loss, params) in found.items():
        assert abs(loss - found["one"][0]) < 1e-5, name
        for path, value in leaves(params).items():
            expected = leaves(found["one"][1])[path]
            np.testing.assert_allclose(value, expected, rtol=0, atol=2e-6, err_msg=(name, path))


@pytest.mark.integration
def test_no_gradient_of_a_kernel_is_computed():
    def of(text, scan):
        more = [f"--config.model.scan={scan}", "--config.model.width=64", "--config.model.mlp=256"]
        one = made(f"--config.trainable={text}", *more, "--config.model.depth=6")
        assert one.model.cfg.unrolled == scan  # a loop's operations would count once
        step = one.lower_step().compile()
        return step.cost_analysis()["flops"], estimate.saved_bytes(one)

    every, kept = of("all", False)
    assert of("lora(rank=1)", False)[0] < 0.78 * every  # 2/3, and the attention without kernels
    for scan in (False, True):
        flops, kept_of_last = of("last(1)", scan)
        assert flops < 0.5 * every  # 1/3 + 2/3 * 1/6
        assert kept_of_last < 0.25 * kept


def test_both_heads_of_a_distilled_model_are_trained():
    distilled = "--config.model.distillation=true", "--config.model.pool=token"
    one = made("--config.trainable=bitfit", *distilled)
    heads = {path for path in leaves(one.abstract.params) if "head/" in path}
    assert heads == {"head/kernel", "head/bias", "dist_head/kernel", "dist_head/bias"}


@pytest.mark.parametrize("key", ["lr_mults", "decay.multipliers"])
def test_patterns_of_what_is_not_trained_are_refused(key):
    pairs = "(('blocks/.*/mlp/up/kernel',10.0),)"
    with pytest.raises(BadInput, match=rf"{key}: 'blocks/.* that is trained; near .*lora"):
        made("--config.trainable=lora", f"--config.optimizer.{key}={pairs}")
    made("--config.trainable=lora", f"--config.optimizer.{key}=(('head/kernel',10.0),)")


@pytest.mark.integration
def test_sam_climbs_with_what_is_trained():
    found = {}
    for rho in (0.0, 1.0):
        one = made(f"--config.trainable={LORA}", f"--config.optimizer.sam.rho={rho}")
        state, batch = one.init(), batch_of(one)
        before = jax.tree.map(np.asarray, state.base)
        for _ in range(2):  # B begins at zero, so A has no gradient in the first step
            state, _ = one.step(state, batch, one.step_key)
        assert jax.tree.all(jax.tree.map(np.array_equal, before, state.base))
        found[rho] = leaves(jax.tree.map(np.asarray, state.params))
    assert set(found[0.0]) == set(found[1.0])
    for path, value in found[0.0].items():
        assert not np.array_equal(value, found[1.0][path]), path


@pytest.mark.parametrize(
    "other, said",
    [("optimizer.freeze=('cls',)", "give one of them"), ("model.mup_base_width=8", "leave one of")],
)
def test_two_ways_to_say_what_is_trained_are_refused(other, said):
    with pytest.raises(BadInput, match=said):
        made("--config.trainable=head", f"--config.{other}")


# ---------------------------------------------------------------- runs of it


def test_a_run_needs_weights_to_begin_with(tmp_path, capsys):
    assert run(tmp_path / "run", "--config.trainable=head") == 2
    assert "give --config.init=FILE_OR_RUN" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def commands_of_page(root):
    """The commands of docs/finetuning.md, as words."""
    page = (root / "docs" / "finetuning.md").read_text()
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line) for line in blocks.splitlines()]


@pytest.fixture(scope="module")
def tuned(digits_run, tmp_path_factory):
    """A LoRA run from a copy of the shared one; both folders may not be changed."""
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copytree(digits_run, folder / "base")
    assert run(folder / "lora", *given(folder)) == 0
    return folder


def given(folder, text="lora(rank=2, on=qkv+mlp)"):
    more = "--config.ema.decay=0.9", "--config.accumulation=2"
    init = f"--config.init={folder / 'base'}", "--config.model.variant=auto"
    return (
        *arguments("plain"),
        *more,
        *init,
        f"--config.trainable={text}",
        "--config.schedule.lr=0.1",
    )


@pytest.mark.integration
def test_a_run_continues_bit_for_bit(tuned, tmp_path):
    cut(tuned / "lora", tmp_path / "cut")
    assert run(tmp_path / "cut", *given(tuned)) == 0
    assert_equal(tuned / "lora", tmp_path / "cut")


@pytest.mark.integration
def test_a_run_is_used_like_any_other_and_saved_merged(tuned, tmp_path, capsys, root):
    lora, file = str(tuned / "lora"), str(tmp_path / "merged.npz")
    with Checkpoints(tuned / "lora", read_only=True) as checkpoints:
        saved = leaves(checkpoints.weight_shapes(checkpoints.latest))
    assert {p.rpartition("/")[2] for p in saved} == {"lora_a", "lora_b", "kernel", "bias"}
    assert [p for p in saved if not p.endswith(("lora_a", "lora_b"))] == [
        "head/bias",
        "head/kernel",
    ]
    assert main.main(["save", lora, file]) == 2
    assert "give --merge" in capsys.readouterr().err
    train, inspect, save = commands_of_page(root)
    overrides = [word for word in train if word.startswith("--config.")]
    page = config_lib.load(str(root / "configs" / "finetune.py"), overrides)
    assert trainable.parse(page.trainable).on == ("qkv", "mlp")
    for words in (inspect, save):
        places = {"runs/lora": lora, "runs/lora.npz": file}
        assert main.main([places.get(word, word) for word in words[1:]]) == 0
    shown = capsys.readouterr().out
    assert "trainable    lora(rank=2, on=qkv+mlp)" in shown
    assert f"base         {tuned / 'base'}@12" in shown
    model, params, _ = vit_jax.load(lora)
    other, merged, _ = vit_jax.load(file, heads=2)
    _, base, _ = vit_jax.load(tuned / "base")
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    logits, again = (
        np.asarray(m.apply({"params": p}, images)) for m, p in ((model, params), (other, merged))
    )
    np.testing.assert_allclose(again, logits, rtol=0, atol=1e-5)
    kernel = lambda tree: np.asarray(tree["blocks"]["attn"]["query"]["kernel"])  # noqa: E731
    assert np.abs(kernel(params) - kernel(base)).max() > 1e-4
    out = str(tmp_path / "preds")
    assert main.main(["evaluate", lora, f"--out={out}"]) == 0


@pytest.mark.integration
def test_adapters_belong_to_a_run_and_to_no_format(tuned, tmp_path, capsys):
    folder, short = tmp_path / "adapters", "--config.length=4 steps"
    assert run(folder, *given(tuned, "adapters(width=4)"), short) == 0
    model, params, _ = vit_jax.load(folder)
    assert params["blocks"]["mlp"]["adapter"]["down"]["kernel"].shape == (2, 16, 4)
    images = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype(np.float32)
    logits = np.asarray(model.apply({"params": params}, images))
    bare = np.asarray(model.apply({"params": partial.without_added(params)}, images))
    assert np.abs(logits - bare).max() > 1e-4
    assert main.main(["save", str(folder), str(tmp_path / "x.npz")]) == 2
    assert "adapter" in capsys.readouterr().err
    words = "--format=stablehlo", f"--out={tmp_path / 'x.stablehlo'}"
    assert main.main(["export", str(folder), *words]) == 0


@pytest.mark.integration
def test_no_run_begins_with_adapters(tuned, tmp_path, capsys):
    folder, short = tmp_path / "adapters", "--config.length=2 steps"
    assert run(folder, *given(tuned, "adapters(width=4)"), short) == 0
    words = [*given(tuned, "head"), f"--config.init={folder}", short]
    assert run(tmp_path / "other", *words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "adapters, which no other run can begin with; give the weights" in said
    assert f"{tuned / 'base'}@12" in said


@pytest.mark.integration
def test_a_branch_names_the_place_where_its_base_is(tuned, tmp_path):
    """The base was moved into the folder of the parent, which is not the branch's."""
    shutil.copytree(tuned / "base", tmp_path / "base")
    short = "--config.length=2 steps", f"--config.init={tmp_path / 'base'}"
    assert run(tmp_path / "parent", *given(tuned), *short) == 0
    shutil.move(tmp_path / "base", tmp_path / "parent" / "base")
    words = [word for word in given(tuned) if not word.startswith("--config.init=")]
    branch = f"--branch={tmp_path / 'parent'}", "--config.length=4 steps"
    assert run(tmp_path / "branch", *words, *branch) == 0
    assert main.main(["inspect", str(tmp_path / "branch")]) == 0


@pytest.mark.integration
def test_the_name_of_a_run_is_good_in_any_folder(digits_run, monkeypatch):
    monkeypatch.chdir(digits_run.parent)
    origin = base_lib.reference(digits_run.name)
    monkeypatch.chdir("/")
    assert base_lib.found(origin, digits_run) == origin


def test_a_base_that_moved_or_changed_is_one_message(tmp_path):
    file, workdir = tmp_path / "weights.npz", tmp_path / "run"
    file.write_bytes(b"weights")
    workdir.mkdir()
    origin = base_lib.reference(str(file))
    assert origin.sha256 == hashlib.sha256(b"weights").hexdigest()
    assert base_lib.found(origin, workdir) == origin
    file.rename(tmp_path / "moved.npz")
    with pytest.raises(BadInput, match=f"with SHA-256 {origin.sha256}.*Put them back, or into"):
        base_lib.found(origin, workdir)
    shutil.copy(tmp_path / "moved.npz", workdir / "weights.npz")
    assert base_lib.found(origin, workdir).weights == str(workdir / "weights.npz")
    file.write_bytes(b"other weights")
    assert base_lib.found(origin, workdir).weights == str(workdir / "weights.npz")
    (workdir / "weights.npz").unlink()
    with pytest.raises(BadInput, match=r"weights.npz has changed"):
        base_lib.found(origin, workdir)
