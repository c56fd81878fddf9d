# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax bench`: its tables, its candidates, and that they compute the same thing."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import tree
from vit_jax.build import execution
from vit_jax.cli import bench, main
from vit_jax.config import recipes
from vit_jax.data.inspect import bench as data_bench
from vit_jax.errors import BadInput, RunFailed
from vit_jax.models import variants
from vit_jax.preflight.bench import (
    baseline,
    checkpoint_speed,
    inputs,
    interleaved,
    our_steps,
    startup,
    suite,
)
from vit_jax.preflight.bench.interleaved import Asked, Timed

pytestmark = pytest.mark.integration

NARROW = ("width=16", "depth=2", "mlp=24", "heads=2")
OVERRIDES = ("--config.platform=cpu", *(f"--config.model.{text}" for text in NARROW))
ASKED = Asked("Ti/8", 8, 16, "float32", OVERRIDES)
SMALL = ["--models=Ti/8", "--batch=8", "--resolution=16", "--dtype=float32", *OVERRIDES]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setitem(suite.table.__kwdefaults__, "rounds", 2)
    monkeypatch.setitem(suite.table.__kwdefaults__, "turn_secs", 0.0)


def without_tensorflow(asked):
    """Our training step, where TensorFlow cannot be imported."""
    sys.modules["tensorflow"] = None
    return our_steps.train(asked)


def sleeping(asked):
    """A candidate whose step takes so many milliseconds as a batch has images."""
    return Timed(lambda: time.sleep(asked.batch / 1000), lambda last: None, {"number": 7})


def dying(asked):
    """A candidate that cannot even begin."""
    os._exit(3)


def refusing(asked):
    """A candidate that finds the input bad."""
    raise BadInput("not like this.")


def test_train_prints_what_the_interface_fixes(quick, capsys):
    page = (recipes.root() / "docs" / "performance.md").read_text()
    words = re.search(r"```bash\nvit_jax (bench train .*)\n```", page)[1].split()
    readme = (recipes.root() / "README.md").read_text()
    assert "vit_jax " + " ".join(words[:2]) in readme
    assert main.main([*words, *SMALL]) == 0  # of a flag that is given twice, the last counts
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"device", "versions", "rows"}
    assert found["versions"]["jax"] == jax.__version__
    (row,) = found["rows"]
    assert row["model"] == "Ti/8"
    names = {"ours", "baseline"} | ({"timm"} if importlib.util.find_spec("timm") else set())
    assert set(row["img_per_sec"]) == names
    for rate in row["img_per_sec"].values():
        assert rate["median"] > 0
        assert rate["spread"] >= 0
    assert row["first_step_secs"] > 0
    assert row["peak_bytes"] > 0
    assert 0 < row["of_peak"] < 1


@pytest.mark.parametrize("part", [pytest.param("eval", marks=pytest.mark.slow), "predict"])
def test_forward_passes_have_a_table_for_people(quick, capsys, part):
    assert main.main(["bench", part, *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "Ti/8 (8 x 16 px, float32)" in shown
    assert "baseline" in shown


def test_models_that_others_do_not_have_are_measured_alone(quick, capsys):
    narrow = [text for text in OVERRIDES if "heads" not in text and "mlp" not in text]
    narrow = [*narrow, "--config.model.token_mlp=8", "--config.model.mlp=24"]
    arguments = ["--models=Mixer-S/8", "--batch=8", "--resolution=16", "--dtype=float32", *narrow]
    assert main.main(["bench", "predict", *arguments, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["rows"][0]["img_per_sec"]) == {"ours"}


def test_our_step_needs_no_tensorflow():
    found = interleaved.take({"ours": without_tensorflow}, ASKED, rounds=1, turn_secs=0.0)
    assert found["ours"].secs[0] > 0


@pytest.mark.parametrize(
    "candidate, unrolled, passes",
    [(our_steps.train, True, 3), (our_steps.evaluate, True, 1), (our_steps.predict, False, 1)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_flops_are_those_of_the_model_that_runs(candidate, unrolled, passes, monkeypatch):
    ran = []

    def make(cfg, rules=None):
        ran.append(cfg)
        return made(cfg, rules)

    made = variants.make
    monkeypatch.setattr(variants, "make", make)
    monkeypatch.setitem(execution._UNROLLED_ABOVE, "cpu", 0)
    found = candidate(ASKED).figures["step_flops"]
    assert ran[-1].unrolled == unrolled
    assert found == passes * 8 * variants.forward_flops(ran[-1], 16, 16)


def test_figures_of_turns_are_those_of_the_clock():
    seen = []
    makers = {"a": sleeping, "b": sleeping}
    given = {"rounds": 3, "turn_secs": 0.1, "progress": lambda *now: seen.append(now)}
    found = interleaved.take(makers, Asked("", 20, 0, ""), **given)
    assert found["a"].figures == {"number": 7}
    assert len(found["b"].secs) == 3
    rate = found["a"].rate(20)  # 20 images in 20 ms and whatever the machine adds
    assert rate["median"] == pytest.approx(20 / np.median(found["a"].secs))
    assert rate["median"] <= 1000
    assert seen[-1] == (10, 10)
    assert sorted(seen) == seen


def test_ratio_is_that_of_each_round():
    measured = interleaved.Measured((1.0, 2.0, 4.0), {}), interleaved.Measured((2.0, 2.0, 2.0), {})
    assert interleaved.ratio(*measured) == {"median": 1.0, "spread": 0.75}  # of 2, 1 and 0.5


def test_a_candidate_that_dies_is_named_or_left_out(caplog):
    with pytest.raises(RunFailed, match="process of b ended"):
        interleaved.take({"a": sleeping, "b": dying}, Asked("", 1, 0, ""), rounds=1)
    makers = {"a": sleeping, "b": dying}
    found = interleaved.take(makers, Asked("", 1, 0, ""), rounds=1, turn_secs=0.0, optional=("b",))
    assert list(found) == ["a"]
    assert "b is left out" in caplog.text


def dying_later(asked):
    """A candidate whose third step is its last."""
    left = iter([1, 1])
    return Timed(lambda: next(left, 0) or os._exit(3), lambda last: None, {})


def test_an_optional_candidate_may_die_at_any_time(caplog):
    given = {"rounds": 3, "turn_secs": 0.0, "optional": ("b",)}
    found = interleaved.take({"a": sleeping, "b": dying_later}, Asked("", 1, 0, ""), **given)
    assert list(found) == ["a"]
    assert len(found["a"].secs) == 3


def test_rows_that_fail_leave_the_others(monkeypatch, caplog):
    real = interleaved.take

    def take(makers, asked, **given):
        if asked.model == "S/8":
            raise RunFailed("too little memory")
        return real({"ours": sleeping_ours, suite._PEAK: sleeping_ours}, asked, **given)

    monkeypatch.setattr(interleaved, "take", take)
    rows = [Asked("S/8", 8, 16, "float32", OVERRIDES), ASKED]
    found = suite.table("predict", rows, rounds=1, turn_secs=0.0)
    assert [row["model"] for row in found["rows"]] == ["Ti/8"]
    assert "S/8 is left out: too little memory" in caplog.text
    with pytest.raises(RunFailed, match="memory"):
        suite.table("predict", rows[:1])


def sleeping_ours(asked):
    """As `sleeping`, with the figures of ours."""
    return Timed(lambda: time.sleep(0.01), lambda last: None, {"step_flops": 1, "device": "x"})


def test_parts_that_fail_leave_the_others(monkeypatch, capsys):
    def measured(part, asked):
        if part in ("startup", "checkpoint"):
            raise {"startup": RunFailed, "checkpoint": BadInput}[part]("no digits")
        return {"part": part}, f"all of {part}"

    monkeypatch.setattr(bench, "_measured", measured)
    assert main.main(["bench", "all", *SMALL, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["train"] == {"part": "train"}
    assert found["startup"] == found["checkpoint"] == {"error": "no digits"}
    assert found["input"] == {"part": "input"}


def test_peak_is_of_finite_numbers():
    timed = our_steps.products(ASKED)
    for _ in range(30):
        last = timed.step()
    assert bool(jnp.isfinite(last).all())


def test_bad_input_of_a_candidate_is_that_of_the_command():
    with pytest.raises(BadInput, match="not like this"):
        interleaved.take({"a": refusing}, Asked("", 1, 0, ""), rounds=1)


@pytest.mark.parametrize(
    "argv, shown",
    [
        (["train", "--models=Q/16"], "Q/16"),
        (["train", "--models=S/16", "--resolution=100"], "100"),
        (["train", "--models=S/16", "--batch=0"], "batch_size"),
        (["train", "--models=S/16", "--config.lenght=1"], "lenght"),
        (["train", "--models=S/16", "--config.batch_size=8"], "--batch instead"),
        (["startup", "--config.seed=1"], "takes no"),
        (["frobnicate"], "invalid choice"),
    ],
)
def test_bad_input_is_said_before_anything_is_measured(argv, shown, capsys):
    assert main.main(["bench", *argv]) == 2
    assert shown in capsys.readouterr().err


# ---------------------------------------------------------------- candidates


def test_baseline_computes_what_the_model_computes():
    cfg = baseline.config_of(ASKED)
    params = baseline.init(jax.random.key(0), cfg, 16)
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.1 * random.standard_normal(x.shape, np.float32), params)
    images = random.integers(0, 256, (3, 16, 16, 3), np.uint8)
    logits = variants.make(cfg).apply({"params": as_ours(params, cfg)}, images / 127.5 - 1.0)
    with jax.numpy_rank_promotion("allow"):  # as one would write it
        expected = baseline.logits(params, jnp.asarray(images), cfg)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5 * float(jnp.abs(expected).max()))


def as_ours(params, cfg):
    """The parameters of the baseline in the layout of `ViT`."""
    shape = (cfg.width, 3, cfg.heads, cfg.width // cfg.heads)

    def block(p):
        qkv_w, qkv_b = p["qkv"]["w"].reshape(shape), p["qkv"]["b"].reshape(shape[1:])
        attn = {
            name: {"kernel": qkv_w[:, i], "bias": qkv_b[i]}
            for i, name in enumerate(("query", "key", "value"))
        }
        out = p["out"]["w"].reshape(*shape[2:], cfg.width)
        attn["out"] = {"kernel": out, "bias": p["out"]["b"]}
        mlp = {n: {"kernel": p[n]["w"], "bias": p[n]["b"]} for n in ("up", "down")}
        return {"attn_norm": p["norm1"], "attn": attn, "mlp_norm": p["norm2"], "mlp": mlp}

    kernel = params["embed"]["w"].reshape(cfg.patch, cfg.patch, 3, cfg.width)
    return {
        "embedding": {"kernel": kernel, "bias": params["embed"]["b"]},
        "cls": params["cls"],
        "posemb": params["posemb"],
        "blocks": jax.tree.map(lambda *x: jnp.stack(x), *map(block, params["blocks"])),
        "norm": params["norm"],
        "head": {"kernel": params["head"]["w"], "bias": params["head"]["b"]},
    }


def test_baseline_learns():
    with jax.numpy_rank_promotion("allow"):
        timed = baseline.train(ASKED)
        first = timed.step()
        for _ in range(20):
            last = timed.step()
    assert float(last) < float(first) - 0.5


def test_flops_of_a_step_are_three_forward_passes_of_a_batch():
    cfg = our_steps.make(ASKED).model.cfg
    assert our_steps.train(ASKED).figures["step_flops"] == 24 * variants.forward_flops(cfg, 16, 16)


@pytest.mark.parametrize(
    "model, overrides, pool, tokens",
    [
        ("B/16", (), "cls", 197),
        ("So400m/14", (), "map_head", 256),
        ("g/14", ("--config.model.pool=token",), "cls", 257),
    ],
)
def test_models_pool_as_published(model, overrides, pool, tokens):
    made = our_steps.config(Asked(model, 2, 224, "bfloat16", overrides))
    params = variants.shapes(variants.of(made.model, our_steps.CLASSES), 224, 224)
    assert {"cls", "map_head"} & params.keys() == {pool}
    assert params["posemb"].shape[1] == tokens


def test_timm_takes_the_sizes_of_the_model():
    for name in ("timm", "torch"):
        pytest.importorskip(name)
    from vit_jax.preflight.bench import timm_model

    timed = timm_model.train(ASKED)
    assert timed.figures["how"].partition(" ")[0] in ("torch.compile", "eager")
    first = timed.step()
    for _ in range(20):
        last = timed.step()
    assert float(last) < float(first) - 0.5
    model, _, _ = timm_model._begin(ASKED)
    cfg = our_steps.make(ASKED).model.cfg
    assert sum(p.numel() for p in model.parameters()) == tree.size(variants.shapes(cfg, 16, 16))


# ---------------------------------------------------------------- the other parts


def test_saving_is_measured_on_real_checkpoints():
    found = checkpoint_speed.save(ASKED, rounds=2)
    state = jax.tree.leaves(our_steps.make(ASKED).abstract)
    assert found["bytes"] == sum(x.size * x.dtype.itemsize for x in state)
    assert 0 < found["blocking_secs"]["median"] < found["commit_secs"]["median"]
    assert found["least_secs_between"] == pytest.approx(100 * found["blocking_secs"]["median"])
    assert "Ti/8" in checkpoint_speed.text([found])


def test_startup_is_that_of_whole_processes(monkeypatch):
    monkeypatch.setattr(startup, "_COMMANDS", {"vit_jax --help": ["--help"]})
    only = startup._candidates

    def light(folder):
        return {k: v for k, v in only(folder).items() if "tensorflow" not in k and "first" not in k}

    monkeypatch.setattr(startup, "_candidates", light)
    found = startup.measure(rounds=1)
    assert set(found["ratio"]) == {"import vit_jax.models", "vit_jax --help"}
    assert found["secs"]["import jax"]["median"] > 0.05
    assert "x import jax, flax.linen" in startup.text(found)


def test_quickstart_that_fails_before_its_first_step_is_no_figure(monkeypatch):
    monkeypatch.setattr(startup, "_TRAIN", ["train", "--config=configs/nowhere.py"])
    with pytest.raises(RunFailed, match="nowhere"):
        startup._until_first_step("")


@pytest.mark.slow
def test_startup_of_the_quickstart():
    found = startup.measure(rounds=1)
    assert set(found["beyond_imports_secs"]) == set(startup._FIRST_STEPS)
    for name in startup._FIRST_STEPS:
        assert found["secs"][name]["median"] > found["secs"]["import jax"]["median"]


def test_photos_are_as_large_as_photos(tmp_path):
    inputs.write_photos(tmp_path, 2)
    sizes = [path.stat().st_size for path in tmp_path.glob("*/*.jpg")]
    assert len(sizes) == 2
    assert all(30_000 < size < 250_000 for size in sizes)


def test_input_is_measured_on_the_photos_that_are_made(monkeypatch):
    def count(split, workers, *, rounds):
        return {"images": len(split), "workers": workers, "rounds": rounds}

    monkeypatch.setattr(data_bench, "bench", count)
    found = inputs.answering()(3)
    assert found == {"images": inputs.IMAGES, "workers": os.cpu_count(), "rounds": 3}


@pytest.mark.slow
def test_input_is_measured_in_a_process_of_its_own(capsys):
    assert main.main(["bench", "input", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == inputs.IMAGES


def test_importing_the_suite_brings_no_tensorflow():
    code = "import sys; from vit_jax.preflight.bench import suite; "
    code += "sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
