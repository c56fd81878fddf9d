# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Memory of devices and of the host, and its huge pages."""

import os
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import __main__
from vit_jax.errors import BadInput
from vit_jax.hardware import device_memory, host_memory

# --- memory of devices ---


GIB = 2**30


def compiled(gib: float):
    """A stand-in of a compiled step: arguments 1 GiB, all results donated but 0.25 GiB."""
    analysis = types.SimpleNamespace(
        argument_size_in_bytes=GIB,
        output_size_in_bytes=int(1.25 * GIB),
        alias_size_in_bytes=GIB,
        temp_size_in_bytes=int((gib - 1.25) * GIB),
    )
    return types.SimpleNamespace(memory_analysis=lambda: analysis)


def compile_step(settings):
    accumulation, remat = settings.get("accumulation", 1), settings.get("model.remat", "none")
    if remat == "dots":
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: does not fit")
    return compiled(16.0 / accumulation - (1.0 if remat == "full" else 0.0))


SETTINGS = [
    {"accumulation": 2},
    {"accumulation": 4, "model.remat": "full"},
    {"model.remat": "dots"},
]


def test_peak_counts_donated_results_once():
    assert device_memory.peak_bytes(compiled(16.0)) == 16 * GIB


def test_peak_of_a_real_step_is_at_least_its_arguments_and_falls_with_donation():
    x = jax.ShapeDtypeStruct((1024, 256), np.float32)
    step = lambda x: jnp.sin(x) * 2  # noqa: E731
    plain = device_memory.peak_bytes(jax.jit(step).lower(x).compile())
    donated = device_memory.peak_bytes(jax.jit(step, donate_argnums=0).lower(x).compile())
    assert plain >= 2 * 2**20
    assert donated == plain - 2**20


def test_advice_tells_peak_limit_and_what_fits():
    error = device_memory.advice(compile_step, SETTINGS, 8 * GIB)
    assert isinstance(error, BadInput)
    assert str(error).splitlines()[:4] == [
        "out of memory: a step needs 16.00 GiB on each device, which has 8.00 GiB. "
        "The same step would need, with",
        "  --config.accumulation=2: 8.00 GiB, does not fit",  # nothing left for anything else
        "  --config.accumulation=4 --config.model.remat=full: 3.00 GiB, fits",
        "  --config.model.remat=dots: more than the compiler can place, does not fit",
    ]


def test_advice_without_a_limit_claims_nothing_about_fitting():
    text = str(device_memory.advice(compile_step, SETTINGS, None))
    assert "fit" not in text
    assert "an amount it does not tell" in text
    assert "  --config.accumulation=2: 8.00 GiB\n" in text


def test_advice_when_the_step_itself_does_not_compile():
    def never(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: does not fit")

    text = str(device_memory.advice(never, [{"batch_size": 8}], 8 * GIB))
    assert "needs more than the compiler can place" in text
    assert "--config.batch_size=8: more than the compiler can place, does not fit" in text


def test_advice_does_not_hide_other_errors():
    def broken(_):
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        device_memory.advice(broken, [], None)


@pytest.mark.parametrize(
    "error, expected",
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: something else"), False),
        (RuntimeError("RESOURCE_EXHAUSTED: not from jax"), False),
        (MemoryError(), False),
    ],
)
def test_out_of_memory_is_recognised(error, expected):
    assert device_memory.is_out_of_memory(error) is expected


def test_out_of_memory_of_a_real_device_is_recognised():
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jnp.zeros((2**46,), jnp.float32).block_until_ready()
    assert device_memory.is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "stats, most",
    [([{"a": 5}, {"a": 7}], 7), ([{"a": 0}], 0), ([{"b": 1}, None], None), ([None, {"a": 2}], 2)],
)
def test_fullest_device_counts(stats, most):
    devices = [types.SimpleNamespace(memory_stats=lambda s=s: s) for s in stats]
    assert device_memory.most(devices, "a") == most


@pytest.mark.parametrize(
    "stats, limit", [({"bytes_limit": 5}, 5), ({"bytes_in_use": 1}, None), (None, None)]
)
def test_limit_is_what_the_device_says(stats, limit):
    device = types.SimpleNamespace(memory_stats=lambda: stats)
    assert device_memory.limit_bytes(device) == limit


def test_limit_of_the_cpu_is_not_known():
    assert device_memory.limit_bytes(jax.devices()[0]) is None


# --- memory of the host ---


MEMINFO = "MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\n"  # 32 GiB


def machine(root, cgroup="", **files):
    files = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup} | files
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(str(text))
    return host_memory.available_bytes(root)


def v2(folder, limit, used, inactive=0):
    folder = f"sys/fs/cgroup{folder}"
    return {
        f"{folder}/memory.max": limit,
        f"{folder}/memory.current": used,
        f"{folder}/memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


def test_machine_without_limits(tmp_path):
    assert machine(tmp_path) == 32 * GIB


@pytest.mark.parametrize(
    "limit, used, inactive, wanted",
    [
        ("max", GIB, 0, 32 * GIB),
        (8 * GIB, 3 * GIB, 0, 5 * GIB),
        (8 * GIB, 3 * GIB, GIB, 6 * GIB),
        (64 * GIB, GIB, 0, 32 * GIB),
        (GIB, 2 * GIB, 0, 0),
    ],
)
@pytest.mark.parametrize("folder", ["", "/job/step", "/job"])
def test_limit_of_a_cgroup_or_of_one_above(tmp_path, folder, limit, used, inactive, wanted):
    files = v2(folder, limit, used, inactive)
    assert machine(tmp_path, "0::/job/step\n", **files) == wanted


def test_limit_of_version_1(tmp_path):
    folder = "sys/fs/cgroup/memory/docker/x"
    files = {
        f"{folder}/memory.limit_in_bytes": 4 * GIB,
        f"{folder}/memory.usage_in_bytes": GIB,
        f"{folder}/memory.stat": "inactive_file 0\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 0,
    }
    cgroup = "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n1:name=systemd:/x\n"
    assert machine(tmp_path, cgroup, **files) == 3 * GIB


def test_machine_that_is_not_linux(tmp_path):
    assert host_memory.available_bytes(tmp_path) > GIB // 4


def test_this_machine_has_memory():
    assert host_memory.available_bytes() > 0


def test_half_may_be_taken(monkeypatch):
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 10 * GIB)
    host_memory.check(5 * GIB, "x", "y")
    with pytest.raises(BadInput, match=r"x would take 5.5 GiB of memory, and 10.0 GiB .* half. y"):
        host_memory.check(5 * GIB + GIB // 2, "x", "y")


def test_memory_of_this_process(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/statm").write_text("900 25 7 1 0 50 0\n")
    assert host_memory.used_bytes(tmp_path) == 25 * os.sysconf("SC_PAGE_SIZE")
    assert host_memory.used_bytes(tmp_path / "none") is None


# --- large pages ---


PROGRAM = """
import os, pathlib, sys
from vit_jax.hardware import host_memory
host_memory._POLICY = pathlib.Path(sys.argv[1])
if "GLIBC_TUNABLES" not in os.environ: print("first", os.getpid(), flush=True)
host_memory.start_with_large_pages()
print("then", os.getpid(), os.environ.get("GLIBC_TUNABLES"), *sys.argv[2:], sys.flags.optimize)
"""


@pytest.fixture
def started(monkeypatch, tmp_path):
    """(policy, glibc) -> what the program was started anew with: arguments and the tunables."""
    seen = []

    def execve(program, words, environ):
        seen.append((program, words, environ["GLIBC_TUNABLES"]))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(host_memory, "_POLICY", tmp_path / "enabled")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)

    def start(policy="always [madvise] never", libc="glibc 2.36", tunables=None):
        (tmp_path / "enabled").write_text(f"{policy}\n")
        monkeypatch.setattr(os, "confstr", lambda name: libc)
        if tunables is not None:
            monkeypatch.setenv("GLIBC_TUNABLES", tunables)
        host_memory.start_with_large_pages()
        return seen

    return start


def test_a_program_starts_anew_with_what_it_was_given(tmp_path):
    if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        pytest.skip("this is not glibc")
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    environ = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    said = subprocess.run(
        [sys.executable, "-O", "-c", PROGRAM, tmp_path / "enabled", "a b", "--c=*"],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    ).stdout.splitlines()
    (first, process), then = said[0].split(), said[1:]
    assert first == "first"
    assert then == [f"then {process} glibc.malloc.hugetlb=1 a b --c=* 1"]


def test_other_tunables_stay(started):
    tunables = "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    assert started(tunables="glibc.malloc.check=1") == [
        (sys.executable, [sys.executable, *sys.orig_argv[1:]], tunables)
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"policy": "[always] madvise never"},
        {"policy": "always madvise [never]"},
        {"libc": "glibc 2.34"},
        {"libc": "musl 1.2"},
        {"libc": None},
        {"tunables": "glibc.malloc.hugetlb=0"},
    ],
)
def test_where_there_is_nothing_to_gain_it_goes_on(started, given):
    assert started(**given) == []


def test_a_system_without_that_file_goes_on(started, monkeypatch, tmp_path):
    assert len(started()) == 1
    monkeypatch.setattr(host_memory, "_POLICY", tmp_path / "none")
    host_memory.start_with_large_pages()
    assert len(started()) == 1


def test_a_program_that_is_not_shown_the_variable_starts_anew_once(tmp_path):
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    blind = 'import os, sys; print("started"); os.environ.pop("GLIBC_TUNABLES", 0)\n' + PROGRAM
    words = [sys.executable, "-uc", blind, tmp_path / "enabled"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert 1 <= said.count("started") <= 2  # 1 where there is nothing to gain
    assert said.splitlines()[-1].startswith("then")


def test_where_no_program_can_be_started_it_goes_on(started, monkeypatch):
    def gone(*given):
        raise FileNotFoundError(2, "No such file or directory")

    assert len(started()) == 1
    monkeypatch.setattr(os, "execve", gone)
    assert len(started()) == 1
    assert not {"GLIBC_TUNABLES", "VIT_JAX_STARTED_ANEW"} & os.environ.keys()


def test_the_command_asks_first(started, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vit_jax", "--version"])
    asked = []
    monkeypatch.setattr(host_memory, "start_with_large_pages", lambda: asked.append(1))
    assert (__main__.program(), asked) == (0, [1])
