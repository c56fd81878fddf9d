# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Verdicts, what is tried where a step does not fit, and the command; most with made-up figures."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import pytest
import test_pages

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, RunFailed
from vit_jax.hardware import topology
from vit_jax.preflight.plan import attribution, compile_for, plan, summary
from vit_jax.preflight.plan.compile_for import Measured

GIB = 2**30
V4 = topology.find("v4-32")  # 30.75 GiB a device
SMALL = (
    "--config.model.variant=Ti/16",
    "--config.model.depth=2",
    "--config.data.image_size=32",
    "--config.data.source=digits",
    "--config.batch_size=64",
    "--config.length=100 steps",
)


def base(*overrides):
    return config_lib.load("configs/base.py", [*SMALL, *overrides])


def figures(gib: float, **changes) -> Measured:
    given = {
        "how": "compiled", "peak_bytes": int(gib * GIB), "args_bytes": GIB, "temp_bytes": 2 * GIB,
        "collective_bytes": {"data": {"all-reduce": 10**9}}, "flops": 1e12, "step_secs": 0.36,
        "least_collective_bytes": {"data": {"all-reduce": 8 * 10**8}}, "beyond_least": 1.25,
        "limited_by": "compute", "steps": 1000, "batch_size": 64, "compile_secs": 1.0,
        "estimated_secs": 0.9, "parts": {"MLP": {"forward": 0.5, "backward": 0.4}},
        "no_estimate": "",
    }  # fmt: skip
    return Measured(**given | changes)


@pytest.fixture
def compiler(monkeypatch):
    """Stands in for the compiler: settings -> GiB, as a test says; remembers what it was asked."""
    asked = []

    class Stub:
        gib = staticmethod(lambda settings: 1.0)

        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, question):
            asked.append(question[1])
            return figures(Stub.gib(question[1]))

    Stub.asked = asked
    monkeypatch.setattr(plan, "Child", Stub)
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name == "libtpu" else real(name)
    )
    return Stub


@pytest.mark.parametrize(
    "share, fits, words",
    [(0.5, True, "fits"), (0.851, True, "barely"), (0.919, True, "barely"), (0.921, False, "not")],
)
def test_verdict(compiler, share, fits, words, capsys):
    compiler.gib = staticmethod(lambda settings: share * 30.75)
    code = main.main(["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL])
    assert code == (0 if fits else 2)
    assert words in capsys.readouterr().out.splitlines()[0]


def test_json_has_the_promised_keys(compiler, capsys):
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--json", *SMALL]
    assert main.main(args) == 0
    found = json.loads(capsys.readouterr().out)
    promised = {
        "fits": True,
        "peak_bytes": GIB,
        "limit_bytes": int(30.75 * GIB),
        "args_bytes": GIB,
        "temp_bytes": 2 * GIB,
        "collective_bytes": {"data": {"all-reduce": 10**9}},
        "least_collective_bytes": {"data": {"all-reduce": 8 * 10**8}},
        "beyond_least": 1.25,
        "flops": 1e12,
        "step_secs": 0.36,
        "limited_by": "compute",
        "chip_hours": pytest.approx(1000 * 0.36 / 3600 * 16),
        "estimated_step_secs": 0.9,
        "estimated_mfu": pytest.approx(1e12 / 0.9 / 275e12),
        "estimated_hours": pytest.approx(0.25),
        "estimated_chip_hours": pytest.approx(4.0),
        "parts": {"MLP": {"forward": 0.5, "backward": 0.4}},
    }
    assert {key: found[key] for key in promised} == promised
    assert found["images_per_sec"] == pytest.approx(64 / 0.36)


def test_text_shows_what_the_json_has(compiler, capsys):
    assert main.main(["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]) == 0
    text = capsys.readouterr().out
    parts = (
        "16 on 4 hosts", "1 of 30.75 GiB", "1,000.0 MB all-reduce over data",
        "1.25 times the least", "900 ms estimated", "360 ms at best, limited by compute",
        "71 images/s estimated; 178 images/s at best", "1,000 steps",
        "4 chip-hours estimated; 0.1 hours, 1.6 chip-hours at best",
    )  # fmt: skip
    for part in parts:
        assert part in text


def test_parts_are_a_table(compiler, capsys):
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--parts", *SMALL]
    assert main.main(args) == 0
    header, row = capsys.readouterr().out.splitlines()[-2:]
    assert header.split() == ["estimated", "ms", "forward", "backward", "update", "share"]
    assert row.split() == ["MLP", "500.00", "400.00", "0.00", "100.0%"]


def test_parts_of_a_short_step_are_not_rounded_to_zero(monkeypatch, compiler, capsys):
    short = figures(1.0, estimated_secs=1e-5, parts={"MLP": {"forward": 1e-5}})
    monkeypatch.setattr(compiler, "ask", lambda self, question: short)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--parts", *SMALL]
    assert main.main(args) == 0
    assert capsys.readouterr().out.split()[-4:] == ["0.0100", "0.0000", "0.0000", "100.0%"]


def test_without_an_estimate_the_figures_are_those_at_best(monkeypatch, compiler, capsys):
    bare = figures(1.0, estimated_secs=None, parts=None, no_estimate="a loop has no end")
    monkeypatch.setattr(compiler, "ask", lambda self, question: bare)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]
    assert main.main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = ("step_secs", "mfu", "hours", "chip_hours")
    assert [found[f"estimated_{name}"] for name in names] == [None] * 4
    assert found["parts"] is None
    assert main.main(args) == 0
    text = capsys.readouterr().out
    assert "360 ms at best, limited by compute; no estimate: a loop has no end" in text
    assert "estimated" not in text
    assert main.main([*args, "--parts"]) == 2
    error = capsys.readouterr().err
    assert "on v4-32 is not known: a loop has no end; measure a run" in error
    assert "Give a TPU" not in error


def test_step_that_does_not_fit_has_neither_estimate_nor_parts(monkeypatch, compiler, capsys):
    large = figures(100.0, estimated_secs=None, parts=None)
    monkeypatch.setattr(compiler, "ask", lambda self, question: large)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--parts", *SMALL]
    assert main.main(args) == 2
    text = capsys.readouterr().out
    assert "does not fit" in text
    assert "too large to estimate" in text
    assert "estimated ms" not in text
    assert "this compiler" not in text


def test_a_page_has_both_times_and_every_part(compiler, tmp_path, capsys):
    out = tmp_path / "new" / "plan.html"
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]
    assert main.main([*args, f"--out={out}"]) == 0
    page = test_pages.check(out.read_text(encoding="utf-8"))
    text = " ".join(page.words)
    assert "900 ms as estimated by the TPU compiler's clock (MFU 0%)" in text
    assert "360 ms at best by the roofline" in text
    assert "Nothing here was measured" in text
    assert "1 of 30.75 GiB at the peak" in text
    assert page.table("Where the estimated time")[1] == [
        "MLP",
        "500.00",
        "400.00",
        "0.00",
        "100.0%",
    ]
    assert [tag for tag, _ in page.seen].count("svg") == 1
    assert "MLP" not in capsys.readouterr().out  # without --parts


def test_a_step_that_does_not_fit_writes_no_page(monkeypatch, compiler, tmp_path, capsys):
    large = figures(100.0, estimated_secs=None, parts=None)
    monkeypatch.setattr(compiler, "ask", lambda self, question: large)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]
    assert main.main([*args, f"--out={tmp_path}/plan.html"]) == 2
    assert not list(tmp_path.iterdir())
    captured = capsys.readouterr()
    assert "does not fit" in captured.out
    assert "is not written" in captured.err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--accelerator=v4-32", "--out=plan.txt"], ".html"),
        (["--accelerator=v4-32", "--out="], ".html"),
        (["--accelerator=v4-32", "--out=README.md/plan.html"], "cannot be written"),
        (["--accelerator=cpu-1", "--parts"], "Give a TPU"),
        (["--accelerator=h100-8", "--out=plan.html"], "Give a TPU"),
    ],
)
def test_pages_and_parts_that_cannot_be_are_refused_first(compiler, arguments, words, capsys):
    assert main.main(["plan", "--config=configs/base.py", *arguments, *SMALL]) == 2
    assert words in capsys.readouterr().err
    assert not compiler.asked


@pytest.mark.parametrize(
    "peak, lines",
    [
        (3, ["3 of 30.75 GiB at the peak (10%): arguments 1, temporaries 2"]),
        (2.5, ["2.5 of 30.75 GiB at the peak (8%): arguments 1, temporaries 1.5",
               "2 GiB are laid out for temporaries, never all in use at once"]),
        (4, ["4 of 30.75 GiB at the peak (13%): arguments 1, temporaries 3",
             "2 GiB are laid out for temporaries, the peak also counts fast memory on the chip"]),
    ],
)  # fmt: skip
def test_memory_adds_up_to_the_peak(peak, lines):
    planned = plan.Plan(V4, 1, V4.generation.memory_bytes, figures(peak))
    assert summary.facts(planned)["memory"] == lines


def test_slices_multiply_cost_and_devices(compiler, capsys):
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--slices=2", *SMALL]
    assert main.main([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chip_hours"] == pytest.approx(3.2)
    assert main.main(args) == 0
    assert "32 on 8 hosts" in capsys.readouterr().out


def test_where_it_does_not_fit_the_mildest_of_each_kind_that_does_is_named(compiler, capsys):
    need = {"full": 40.0, "dots": 60.0}

    def gib(settings):
        if "model.remat" in settings:
            return need[settings["model.remat"]]
        return 100 / settings.get("accumulation", settings.get("mesh.fsdp", 1))

    compiler.gib = staticmethod(gib)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]
    assert main.main([*args, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert not found["fits"]
    peak = 25 * GIB
    assert found["fitting"] == [
        {"accumulation": 4, "peak_bytes": peak},
        {"mesh.fsdp": 4, "mesh.data": -1, "peak_bytes": peak},
    ]
    assert compiler.asked[0] == {}
    assert {"accumulation": 8} not in compiler.asked  # 4 fits
    assert main.main(args) == 2
    text = capsys.readouterr().out
    assert "--config.accumulation=4: 25 GiB" in text
    assert "--config.mesh.fsdp=4 --config.mesh.data=-1: 25 GiB" in text


def test_where_nothing_fits_alone_everything_is_tried_together(compiler, capsys):
    compiler.gib = staticmethod(lambda settings: 20.0 if len(settings) > 2 else 50.0)
    args = ["plan", "--config=configs/base.py", "--accelerator=v4-32", "--json", *SMALL]
    assert main.main(args) == 2
    found = json.loads(capsys.readouterr().out)["fitting"]
    together = {"model.remat": "full", "accumulation": 32, "mesh.fsdp": 16, "mesh.data": -1}
    assert found == [together | {"peak_bytes": 20 * GIB}]


def test_where_nothing_fits_at_all_it_is_said(compiler, capsys):
    compiler.gib = staticmethod(lambda settings: 50.0)
    assert main.main(["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]) == 2
    assert "larger devices" in capsys.readouterr().out


def test_settings_that_do_not_suit_the_devices_are_passed_over(compiler, capsys):
    def gib(settings):
        if "accumulation" in settings or "mesh.fsdp" in settings:
            raise BadInput("indivisible")
        return 10.0 if settings else 50.0

    compiler.gib = staticmethod(gib)
    assert main.main(["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]) == 2
    assert "--config.model.remat=dots: 10 GiB" in capsys.readouterr().out


def test_alternatives_leave_out_what_is_set_already():
    config = base("--config.model.remat=full", "--config.accumulation=4", "--config.mesh.fsdp=8")
    remat, accumulation, shared = plan.alternatives(config, V4)
    assert remat == []
    assert [s["accumulation"] for s in accumulation] == [8, 16, 32, 64]
    assert [s["mesh.fsdp"] for s in shared] == [16]


@pytest.mark.integration
@pytest.mark.parametrize(
    "args, parts",
    [
        (["--accelerator=v4-100"], ("v4-100", "v4-128")),
        (["--accelerator=v9-8"], ("v9-8", "v4-8 to v4-4096")),
        (["--accelerator=v3-8", "--slices=2"], ("v3", "larger size")),
        (["--accelerator=h100-8", "--slices=2"], ("h100", "larger size")),
        (["--accelerator=v4-8", "--slices=0"], ("--slices=0", "1 to 8192")),
        (["--accelerator=v4-8", "--slices=1000000"], ("--slices=1000000", "1 to 8192")),
        (["--accelerator=cpu-0"], ("cpu-0",)),
        (["--accelerator=cpu-9999"], ("cpu-9999", "cpu-512")),
        (["--accelerator=v4-0"], ("v4-0",)),
        (
            ["--accelerator=h100-4", "--config.data.source=tfds:no_such_set"],
            ("no_such_set", "synthetic"),
        ),
        (["--accelerator=v4-8", "--config.batch_size=63"], ("63", "64")),
        (["--accelerator=v4-8", "--config.mesh.fsdp=16"], ("16", "are 4", "fsdp=4 fits")),
        (["--accelerator=v4-8", "--config.nonsense=1"], ("nonsense",)),
    ],
)
def test_bad_input_is_one_message(args, parts, capsys):
    needs_compiler = any(part in "".join(args) for part in ("batch_size", "mesh"))
    if needs_compiler and importlib.util.find_spec("libtpu") is None:
        args = [a.replace("v4-8", "h100-4") for a in args]
    assert main.main(["plan", "--config=configs/base.py", *SMALL, *args]) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in parts), error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "message, size",
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
         "temporaries (21.10G) exceeds available HBM (15.48G).", 21.1 * GIB),
        ("RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Used 15.49G of 15.48G hbm. Exceeded hbm "
         "capacity by 3.49M.", 15.49 * GIB),
    ],
)  # fmt: skip
def test_need_of_a_program_that_is_too_large_is_read(message, size):
    assert compile_for._wanted_bytes(message) == pytest.approx(size)


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.51M of 16.00M vmem.",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 85899345920 bytes.",
    ],
)
def test_need_that_cannot_be_read_is_no_verdict(message):
    with pytest.raises(BadInput, match="gave up: RESOURCE_EXHAUSTED"):
        compile_for._wanted_bytes(message)


def test_share_of_a_gpu_that_jax_takes(monkeypatch):
    h100 = topology.find("h100-8").generation
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert plan.limit_bytes(h100) == 60 * 10**9
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    assert plan.limit_bytes(h100) == 76 * 10**9
    assert plan.limit_bytes(V4.generation) == V4.generation.memory_bytes


def test_compiler_that_dies_on_an_alternative_is_not_a_verdict(compiler, capsys):
    def gib(settings):
        if settings:
            raise RunFailed("the compiler's process ended")
        return 50.0

    compiler.gib = staticmethod(gib)
    assert main.main(["plan", "--config=configs/base.py", "--accelerator=v4-32", *SMALL]) == 1
    assert "ended" in capsys.readouterr().err


def test_config_of_the_caller_stays_as_it_was(compiler):
    config = base("--config.model.variant=auto", "--config.data.image_size=0")
    plan.plan(config, V4)
    assert config.model.variant == "auto"


def test_missing_compiler_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main.main(["plan", "--config=configs/base.py", "--accelerator=v4-8", *SMALL]) == 2
    assert "vit_jax[plan]" in capsys.readouterr().err


def dies(*_):
    """In place of a compiler."""
    os._exit(134)


@pytest.mark.integration
def test_a_compiler_that_dies_is_reported(monkeypatch):
    monkeypatch.setattr(plan.compile_for, "measuring", dies)
    with (
        plan._process(topology.find("cpu-1"), 1) as process,
        pytest.raises(RunFailed, match="machine's memory"),
    ):
        process.ask(("x", {}))


@pytest.mark.integration
def test_this_machine_is_planned_by_its_own_compiler():
    made = plan.plan(base("--config.mesh.fsdp=2"), topology.find("cpu-4"))
    found = made.measured
    assert found.how == "compiled"
    assert made.fits
    assert 0 < found.args_bytes < found.peak_bytes < made.limit_bytes
    assert found.collective_bytes["fsdp"]["all-gather"] > 0
    assert found.least_collective_bytes["fsdp"]["all-gather"] > 0
    assert found.steps == 100
    assert found.limited_by == "compute"


@pytest.mark.integration
def test_gpus_are_counted_where_none_is():
    if jax.default_backend() == "gpu":
        pytest.skip("this machine has a GPU, which compiles")
    made = plan.plan(base(), topology.find("h100-8"))
    assert made.measured.how == "counted"
    assert made.measured.peak_bytes > made.measured.args_bytes > 0
    assert made.measured.collective_bytes["data"]["all-reduce"] > 0


@pytest.mark.integration
def test_plans_of_gpus_are_of_the_model_that_gpus_run():
    """Not of that which a CPU, which stands in for them, runs in longer runs."""
    short, longer, long = (
        plan.plan(base(f"--config.length={steps} steps"), topology.find("h100-8")).measured
        for steps in (1, 10**6, 10**9)
    )
    assert longer.flops == short.flops  # a CPU would unroll the layers
    assert long.flops < short.flops  # unrolled: the last one is for the class token alone
    assert long.peak_bytes == longer.peak_bytes == short.peak_bytes


needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan` (libtpu)"
)


@needs_libtpu
@pytest.mark.integration
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["--config.accumulation=2", "--config.model.remat=full"],
        ["--config.model.remat=dots", "--config.mesh.fsdp=8", "--config.model.width=256",
         "--config.model.mlp=1024", "--config.model.heads=4"],
        ["--config.model.variant=Mixer-S/16"],
    ],
    ids=["plain", "accumulation", "sharded", "mixer"],
)  # fmt: skip
def test_parts_of_real_steps_are_attributed_and_add_up(overrides, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    overrides = ["--config.model.dtype=bfloat16", *overrides]
    accelerator = topology.find("v3-8")
    measured = plan.plan(base(*overrides), accelerator).measured
    parts = {part: sum(directions.values()) for part, directions in measured.parts.items()}
    assert sum(parts.values()) == pytest.approx(measured.estimated_secs)
    assert parts.get(attribution.OTHER, 0) < 0.05 * measured.estimated_secs
    assert {"MLP", "optimizer", "patch embedding", "norms"} <= parts.keys()
    directions = measured.parts["MLP"]
    assert 0.2 < directions["forward"] / directions["backward"] < 1.5
    # It reads and writes weights and two moments, reads gradients, and sums up for the norms.
    read_once = measured.args_bytes / accelerator.generation.memory_rate
    assert 7 / 3 < parts["optimizer"] / read_once < 6


@needs_libtpu
@pytest.mark.integration
def test_a_signal_to_the_whole_group_ends_a_plan_silently(tmp_path):
    """As timeout and schedulers send it: libtpu would print a stack."""
    command = [sys.executable, "-m", "vit_jax", "plan", "--config=configs/base.py",
               "--accelerator=v3-8", *SMALL, "--config.model.scan=false"]  # fmt: skip
    planning = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (compiling := _with_libtpu(planning.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(planning.pid, signal.SIGTERM)
    _, shown = planning.communicate()
    assert planning.returncode == -signal.SIGTERM
    assert "SIGTERM" not in shown
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in compiling):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _with_libtpu(session):
    """Returns the processes of a session that have loaded the TPU compiler."""
    found = []
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if os.getsid(int(maps.parent.name)) == session and "libtpu" in maps.read_text():
                found.append(int(maps.parent.name))
    return found


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, slices, overrides, beyond",
    [
        ("v3-8", 1, ["--config.mesh.fsdp=8"], 1.35),  # all of the gradients are reduced whole
        ("v4-8", 2, ["--config.mesh.fsdp=4"], 1.11),  # the embedding's
    ],
)
def test_real_tpus_send_little_more_than_the_least(
    name, slices, overrides, beyond, monkeypatch, tmp_path
):
    """The step of a small model, for chips that are not there, against sizes by hand."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    overrides = ["--config.model.width=256", "--config.model.mlp=1024", "--config.model.heads=4",
                 "--config.model.dtype=bfloat16", *overrides]  # fmt: skip
    accelerator = topology.find(name)
    made = plan.plan(base(*overrides), accelerator, slices)
    blocks, first = 2 * (4 * 256 * 256 + 2 * 256 * 1024), 16 * 16 * 3 * 256
    kernels, gathered = blocks + first, 2 * blocks + first  # images need no gradient
    sent = made.measured.collective_bytes
    scattered = sum(sent["fsdp"].get(k, 0) for k in ("reduce-scatter", "all-reduce"))
    assert 2 * kernels <= scattered <= 1.1 * 2 * kernels
    assert 2 * gathered <= sent["fsdp"]["all-gather"] <= 1.1 * 2 * gathered
    assert beyond - 0.05 < made.measured.beyond_least < beyond
    if slices > 1:  # each of four devices sends a quarter, but the embedding's gradient whole
        parts = 2 * (blocks / 4 + first)
        assert parts <= sent["replica"]["all-reduce"] <= 1.1 * parts
        on_network = sent["replica"]["all-reduce"] / accelerator.generation.network_rate
        waits = made.measured.parts[attribution.COLLECTIVES]["update"]
        assert 0.5 * on_network < waits < 2 * on_network  # it computes little meanwhile
    assert made.measured.peak_bytes < GIB
    assert made.fits
    again = plan.plan(base(*overrides), accelerator, slices)
    assert again.measured == dataclasses.replace(made.measured)  # from the cache, the time too


@needs_libtpu
@pytest.mark.slow
def test_a_step_whose_state_is_too_big_is_refused_with_what_fits():
    """Two layers as wide as this: the compiler computes much again where only layers are many."""
    config = config_lib.load("configs/pretrain.py:model=L/16,epochs=30", [
        "--config.model.depth=2", "--config.model.width=4096", "--config.model.mlp=65536",
        "--config.model.heads=64", "--config.model.dropout=0.0",
        "--config.batch_size=64"])  # fmt: skip
    made = plan.plan(config, topology.find("v3-8"))
    assert not made.fits
    assert made.measured.peak_bytes > 15.48 * GIB
    ((settings, peak),) = made.fitting
    assert settings == {"mesh.fsdp": 2, "mesh.data": -1}
    assert peak < 0.92 * 15.48 * GIB


@needs_libtpu
@pytest.mark.slow
def test_l16_on_128_chips_needs_little_more_than_a_plain_step():
    """8.0 GiB is what a plain step of that size needs with Adam's first moment in bfloat16.

    Unrolled layers may take 5 % more for their speed.
    """
    config = config_lib.load("configs/pretrain.py:model=L/16,epochs=30", [
        "--config.model.representation=0", "--config.model.dropout=0.0",
        "--config.optimizer.adamw.mu_dtype=bfloat16", "--config.optimizer.clip=1.0"])  # fmt: skip
    made = plan.plan(config, topology.find("v4-256"))
    assert made.measured.peak_bytes <= 1.05 * 8.0 * GIB
