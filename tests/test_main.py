# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exit codes and messages of the command line, and that bad input leaves nothing behind."""

import json
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, RunFailed

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "configs" / "base.py"
# base.py, so small that nothing but the mistake under test is wrong.
TINY = (
    "--config.platform=cpu",
    "--config.model.variant=Ti/2",
    "--config.model.width=8",
    "--config.model.depth=1",
    "--config.model.mlp=8",
    "--config.model.heads=2",
    "--config.data.image_size=8",
    "--config.data.train_ops=flip_lr",
    "--config.data.eval_ops=decode",
    "--config.batch_size=64",
    "--config.length=1 steps",
    "--config.report.page=false",
)


def train(workdir, *overrides, config=BASE, tiny=TINY):
    return main.main(
        ["train", f"--config={config}", f"--workdir={workdir}", *tiny, *overrides],
    )


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "argv, shown",
    [
        (["--help"], "train a model"),
        (["-h"], "COMMAND"),
        (["train", "--help"], "--workdir"),
        (["--version"], "0."),
    ],
)
def test_help_is_not_an_error(capsys, argv, shown):
    assert main.main(argv) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv, shown",
    [
        ([], "COMMAND"),
        (["trian"], "'trian'"),
        (["train"], "--config"),
        (["train", "--config=a.py"], "--workdir"),
        (["train", "--conf=a.py", "--workdir=w"], "--config"),
        (["--config=a.py"], "COMMAND"),
    ],
)
def test_wrong_usage_is_exit_code_2(capsys, argv, shown):
    assert main.main(argv) == 2
    shown_err = capsys.readouterr().err
    assert shown in shown_err
    assert "usage: vit_jax" in shown_err


def test_help_says_what_exit_codes_mean(capsys):
    assert main.main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    codes = ("0 done", "1 failed", "2 bad input", "42 stopped", "43 hung")
    for code in (*codes, "130 interrupted", "130 or 143"):
        assert code in shown


@pytest.mark.parametrize("name", main.COMMANDS)
def test_help_of_every_command_has_an_example_that_it_takes(capsys, name):
    assert main.main([name, "--help"]) == 0
    example = main.COMMANDS[name].EXAMPLE
    assert f"example:\n  {example}\n" in capsys.readouterr().out
    words = shlex.split(example.partition(" > ")[0])
    assert words[:2] == ["vit_jax", name]
    _, rest = main._parser(words[1:]).parse_known_args(words[1:])  # which exits where it does not
    assert not rest or main.COMMANDS[name].OVERRIDES


def _command(outcome):
    def run(args, rest):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return types.SimpleNamespace(
        EXAMPLE="vit_jax stub",
        OVERRIDES=True,
        add_arguments=lambda parser: None,
        run=run,
    )


@pytest.mark.parametrize(
    "outcome, code, shown",
    [
        (0, 0, ""),
        (42, 42, ""),
        (BadInput("no such thing"), 2, "vit_jax: no such thing\n"),
        (RunFailed("loss is nan"), 1, "vit_jax: loss is nan\n"),
    ],
)
def test_outcome_of_a_command_is_the_exit_code(monkeypatch, capsys, outcome, code, shown):
    monkeypatch.setitem(main.COMMANDS, "stub", _command(outcome))
    assert main.main(["stub"]) == code
    assert capsys.readouterr().err == shown


def test_bug_is_not_reported_as_bad_input(monkeypatch):
    monkeypatch.setitem(main.COMMANDS, "stub", _command(ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        main.main(["stub"])


def _interrupted(args, rest):
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", main.COMMANDS)
def test_interrupt_is_one_line_but_training_and_sweeps_have_their_own_ways(
    monkeypatch, capsys, name
):
    monkeypatch.setattr(main.COMMANDS[name], "run", _interrupted)
    words = shlex.split(main.COMMANDS[name].EXAMPLE.partition(" > ")[0])[1:]
    if name in ("train", "sweep"):
        with pytest.raises(KeyboardInterrupt):
            main.main(words)
    else:
        assert main.main(words) == 130
        said = capsys.readouterr().err
        assert said == "vit_jax: interrupted; run the same command again.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
@pytest.mark.parametrize("outcome, code", [(BadInput("no"), 2), (RunFailed("nan"), 1)])
def test_error_that_cannot_be_printed_has_its_exit_code(monkeypatch, outcome, code):
    monkeypatch.setitem(main.COMMANDS, "stub", _command(outcome))
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert main.main(["stub"]) == code


def test_reader_that_has_seen_enough_ends_a_command_well_but_never_training(monkeypatch):
    monkeypatch.setitem(main.COMMANDS, "stub", _command(BrokenPipeError()))
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        assert main.main(["stub"]) == 0
    monkeypatch.setitem(main.COMMANDS, "train", _command(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        main.main(["train"])


# ---------------------------------------------------------------- bad input

BAD = {
    "unknown key": (["--config.modle.width=8"], ["modle.width", "'model.width'"]),
    "wrong type": (["--config.model.width=wide"], ["model.width", "'wide'", "int"]),
    "not an override": (["extra"], ["'extra'", "--config.key=value"]),
    "key and value apart": (["--config.seed", "3"], ["--config.seed", "--config.seed=3"]),
    "unchosen optimizer": (["--config.optimizer.sgd.momentum=0.5"], ["optimizer.name", "adamw"]),
    "unknown optimizer": (["--config.optimizer.name=adam"], ["'adam'", "lamb", "adafactor"]),
    "unknown schedule": (["--config.schedule.name=poly"], ["'poly'", "cosine", "step"]),
    "unknown loss": (["--config.loss.name=hinge"], ["'hinge'", "softmax", "sigmoid"]),
    "unknown variant": (["--config.model.variant=XL/16"], ["'XL/16'", "'L/16'"]),
    "unknown pool": (["--config.model.pool=max"], ["'max'", "token", "gap", "map"]),
    "unknown dtype": (["--config.model.dtype=float16"], ["'float16'", "bfloat16"]),
    "unknown remat": (["--config.model.remat=mlp_up,keys"], ["'keys'", "dots", "attention_out"]),
    "unknown attention": (["--config.model.attention=flash"], ["'flash'", "plain", "fused"]),
    "fused with dropout": (
        ["--config.model.attention=fused", "--config.model.attention_dropout=0.1"],
        ["model.attention=fused", "model.attention_dropout=0.1", "leave"],
    ),
    "mixup": (["--config.mixup.alpha=-1.0"], ["mixup.alpha=-1.0", "[0, 1e6]"]),
    "skips": (["--config.skip_non_finite=-1"], ["skip_non_finite=-1", "[0, 2^31)"]),
    "bad images": (["--config.data.bad_images=drop"], ["data.bad_images", "error, skip"]),
    "cache": (["--config.data.cache=disk"], ["data.cache", "none, raw, decoded"]),
    "fraction": (["--config.data.fraction=0.0"], ["data.fraction=0.0", "(0, 1]"]),
    "fraction and examples": (
        ["--config.data.fraction=0.1", "--config.data.examples=90"],
        ["data.fraction=0.1", "data.examples=90", "one of them"],
    ),
    "warm-up of nothing": (["--config.ema.warmup=True"], ["ema.warmup", "ema.decay"]),
    "balanced all": (["--config.data.balanced=True"], ["data.balanced", "data.fraction"]),
    "windows": (["--config.data.window_shards=-1"], ["data.window_shards=-1"]),
    "labels": (["--config.data.records.max_labels=0"], ["max_labels=0", "[1, 10000]"]),
    "cutmix": (["--config.mixup.cutmix=-1.0"], ["mixup.cutmix=-1.0", "[0, 1e6]"]),
    "unknown source": (["--config.data.source=cifar10"], ["'cifar10'", "folder:PATH", "tfds:NAME"]),
    "unknown platform": (["--config.platform=cuda"], ["'cuda'", "gpu", "tpu"]),
    "unknown op": (["--config.data.train_ops=flip"], ["data.train_ops", "'flip'", "flip_lr"]),
    "chain": (["--config.data.eval_ops=decode|"], ["data.eval_ops", "decode|resize(224)"]),
    "op argument": (["--config.data.eval_ops=resize(8, side=9)"], ["data.eval_ops", "size: int"]),
    "heads": (["--config.model.heads=3"], ["3 heads", "width 8"]),
    "rate": (["--config.model.dropout=1.0"], ["model.dropout", "[0, 1)"]),
    "smoothing": (["--config.loss.label_smoothing=1.0"], ["label_smoothing", "[0, 1)"]),
    "ema": (["--config.ema.decay=1.5"], ["ema.decay=1.5"]),
    "std": (["--config.data.std=(0,1,1)"], ["data.std", "[1e-6, 1000]"]),
    "text in std": (["--config.data.std=('a','b','c')"], ["data.std"]),
    "text in mean": (["--config.data.mean=('a','b','c')"], ["data.mean"]),
    "image size": (["--config.data.image_size=9"], ["9", "8 or 10"]),
    "batch size": (["--config.batch_size=63"], ["63", "56 or 64"]),
    "small batch": (["--config.batch_size=4"], ["4", "8"]),
    "no batch": (["--config.batch_size=0"], ["batch_size=0"]),
    "accumulation": (["--config.accumulation=3"], ["accumulation=3", "batch_size=64", "2 or 4"]),
    "micro-batch": (["--config.accumulation=16"], ["batch_size=64", "128"]),
    "evaluation batch": (["--config.evals.val.batch_size=9"], ["evals.val.batch_size=9", "8 or"]),
    "mesh": (["--config.mesh.data=3"], ["'data': 3", "data=8"]),
    "mesh rules": (["--config.mesh.rules=(('embed',('x',)),)"], ["mesh.rules", "fsdp"]),
    "mesh rule form": (["--config.mesh.rules=(1,2)"], ["mesh.rules"]),
    "multiplier form": (["--config.optimizer.lr_mults=(1,)"], ["optimizer.lr_mults"]),
    "decay form": (
        ["--config.optimizer.decay.multipliers=(('head/.*',),)"],
        ["optimizer.decay.multipliers", "pairs of a path pattern and a factor"],
    ),
    "freeze form": (["--config.optimizer.freeze=(1,)"], ["optimizer.freeze"]),
    "duration": (["--config.length=10"], ["length='10'", "'90 epochs'"]),
    "cadence": (["--config.evals.val.every=often"], ["evals.val.every", "'often'", "'90 epochs'"]),
    "length in percent": (["--config.length=50 percent"], ["length", "percent"]),
    "no length": (["--config.length=0"], ["length='0'"]),
    "endless length": (["--config.length=1e999 steps"], ["length"]),
    "profile": (["--config.profile=5"], ["profile='5'", "100:105"]),
    "late profile": (["--config.profile=5:9"], ["profile='5:9'", "1 steps"]),
    "seed": (["--config.seed=99999999999999999999999"], ["seed"]),
    "no workers": (["--config.data.workers=0"], ["data.workers"]),
    "negative prefetch": (["--config.data.prefetch=-2"], ["data.prefetch"]),
    "unknown split": (["--config.data.split=trian"], ["'trian'", "train", "test"]),
    "slice": (["--config.evals.val.split=val[:x]"], ["'val[:x]'"]),
    "empty slice": (["--config.data.split=train[5:5]"], ["empty"]),
    "dtype of moments": (["--config.optimizer.adamw.mu_dtype=float61"], ["mu_dtype", "float32"]),
    "dtype of momentum": (
        ["--config.optimizer.name=sgd", "--config.optimizer.sgd.accumulator_dtype=int8"],
        ["optimizer.sgd.accumulator_dtype 'int8'", "float32, bfloat16"],
    ),
    "moment": (["--config.optimizer.adamw.b1=7"], ["optimizer.adamw.b1=7.0", "[0, 1)"]),
    "epsilon": (["--config.optimizer.adamw.eps=-1"], ["optimizer.adamw.eps=-1.0", "(0, 10]"]),
    "held out": (["--config.data.val_percent=-1"], ["data.val_percent=-1"]),
    "folder": (["--config.data.source=folder:/no/such"], ["/no/such", "does not exist", "CLASS"]),
    "csv": (["--config.data.source=csv:/no/such.csv"], ["/no/such.csv", "path,label"]),
    "source without a path": (["--config.data.source=folder:"], ["folder:PATH"]),
    "init": (["--config.init=/no/such"], ["/no/such", ".npz"]),
    "init for auto": (["--config.init=/no/such", "--config.model.variant=auto"], ["/no/such"]),
}  # fmt: skip


@pytest.mark.parametrize("overrides, parts", BAD.values(), ids=BAD)
def test_bad_input_is_one_message_and_nothing_written(tmp_path, capsys, overrides, parts):
    assert train(tmp_path / "run", *overrides) == 2
    said = capsys.readouterr().err
    assert said.startswith("vit_jax: ")
    assert said.count("vit_jax: ") == 1
    assert "Traceback" not in said
    assert [p for p in parts if p not in said] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing.py", "missing.yaml", "empty.py", "wrong.yaml"])
def test_bad_config_file_is_one_message(tmp_path, capsys, name):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "wrong.yaml").write_text("- 1")
    assert train(tmp_path / "run", config=tmp_path / name) == 2
    said = capsys.readouterr().err
    assert said.startswith("vit_jax: ")
    assert name in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_workdir_of_another_configuration_lists_the_differences(tmp_path, capsys):
    saved = config_lib.to_yaml(config_lib.load(str(BASE), [*TINY, "--config.data.workers=3"]))
    (tmp_path / "config.yaml").write_text(saved)
    assert train(tmp_path, "--config.seed=5", "--config.optimizer.name=sgd") == 2
    said = capsys.readouterr().err
    assert [p for p in ("seed: 0", "now 5", "'adamw'", "'sgd'", "--workdir") if p not in said] == []
    assert "workers" not in said  # may differ
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]
    assert (tmp_path / "config.yaml").read_text() == saved


def test_workdir_with_an_unreadable_configuration_is_left_alone(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("seed: [")
    assert train(tmp_path) == 2
    assert str(tmp_path / "config.yaml") in capsys.readouterr().err
    assert (tmp_path / "config.yaml").read_text() == "seed: ["


def test_workdir_that_cannot_be_made_is_bad_input(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert train(tmp_path / "file" / "run") == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "file" / "run") in said
    assert "--workdir" in said
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


QUICK = [
    ["--config.sead=3"],
    ["--config.model.width=wide"],
    ["--config.length=1"],
    ["--config.data.train_ops=x"],
    ["--config.data.source=x:y"],
    ["--config.batch_size=3"],
    ["--config.model.remat=query,x"],
    ["--config.model.attention=x"],
    ["--config.mixup.alpha=-1.0"],
    ["--config.data.source=folder:/no/such"],
    ["--config.data.source=csv:/no/such"],
    ["--config.data.split=x"],
]


@pytest.fixture(scope="module")
def quick():
    """In one fresh process: the exit code of each of QUICK, and what was imported until then."""
    script = f"""
import json, sys
import vit_jax.models.vit, vit_jax.build.run, vit_jax.cli.main
arguments = ["train", "--config={BASE}", "--workdir=/no/such/run"] + {list(TINY)!r}
heavy = ("tensorflow", "tensorflow_datasets", "tensorboard", "clu.metric_writers")
seen = [["import", 2, [m for m in heavy if m in sys.modules]]]
for overrides in {QUICK!r}:
    code = vit_jax.cli.main.main(arguments + overrides)
    seen.append([overrides[0], code, [m for m in heavy if m in sys.modules]])
print(json.dumps(seen))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("vit_jax: ") == len(QUICK)
    return {name: (code, heavy) for name, code, heavy in json.loads(done.stdout)}


@pytest.mark.parametrize("name", ["import", *(overrides[0] for overrides in QUICK)])
def test_mistake_is_reported_without_tensorflow(quick, name):
    """It takes eight seconds to import, and a machine that only has models may not have it."""
    assert quick[name] == (2, [])


@pytest.mark.parametrize(
    "arguments, part",
    [
        (["--coordinator=a:1"], "--num_processes (or VIT_JAX_NUM_PROCESSES)"),
        (["--coordinator=a", "--num_processes=2", "--process_id=0"], "HOST:PORT"),
        (["--coordinator=a:1", "--num_processes=2", "--process_id=2"], "0 to 1"),
        (["--coordinator=no.invalid:1", "--num_processes=2", "--process_id=1"], "not resolve"),
    ],
)
def test_wrong_processes_are_bad_input(tmp_path, capsys, arguments, part):
    assert train(tmp_path / "run", *arguments) == 2
    assert part in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
