# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which platform is used, and that an accelerator is never replaced by the CPU in silence."""

import os
import subprocess
import sys

import jax
import pytest

from vit_jax import distributed
from vit_jax.errors import BadInput

GOOGLE, INTEL = "0x1ae0", "0x8086"
TPU_V4, TPU_V5E, ETHERNET = "0x005e", "0x0063", "0x0042"


@pytest.fixture(autouse=True)
def _same_platform_afterwards(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])
    before = jax.config.jax_platforms
    jax.devices()
    yield
    jax.config.update("jax_platforms", before)


def machine(root, *, dev=(), pci=()):
    """A file system that shows these device files and PCI devices (vendor, device)."""
    for name in ("null", *dev):
        (root / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "dev" / name).touch()
    for i, (vendor, device) in enumerate(pci):
        folder = root / "sys/bus/pci/devices" / f"0000:00:{i:02x}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    return str(root)


@pytest.mark.parametrize(
    "dev, pci, found",
    [
        ([], [], []),
        ([], [(INTEL, "0x1237")], []),
        (["nvidia0"], [], ["gpu"]),
        (["nvidia11", "nvidiactl"], [], ["gpu"]),
        (["accel0"], [(INTEL, "0x1237"), (GOOGLE, TPU_V4)], ["tpu"]),
        (["vfio/0", "vfio/vfio"], [(GOOGLE, TPU_V5E)], ["tpu"]),  # v5e and later
        (["nvidia0", "accel0"], [(GOOGLE, TPU_V4)], ["gpu", "tpu"]),
        ([], [(GOOGLE, ETHERNET)], []),  # any virtual machine at Google
        (["accel0"], [(INTEL, "0x7d1d")], []),  # a laptop's NPU
    ],
)
def test_accelerators_of_a_machine(tmp_path, dev, pci, found):
    assert distributed.present_accelerators(machine(tmp_path, dev=dev, pci=pci)) == found


@pytest.mark.parametrize(
    "dev, pci, parts",
    [
        (["nvidia0"], [], ["GPU", "cuda13", "cuda12"]),
        (["accel0"], [(GOOGLE, TPU_V4)], ["TPU", ".[tpu]"]),
    ],
)
def test_auto_refuses_the_cpu_of_a_machine_with_an_accelerator(tmp_path, dev, pci, parts):
    with pytest.raises(BadInput) as caught:
        distributed.start("auto", deterministic=False, root=machine(tmp_path, dev=dev, pci=pci))
    missing = [p for p in (*parts, "--config.platform=cpu") if p not in str(caught.value)]
    assert missing == []


def test_auto_is_the_cpu_where_there_is_nothing_else(tmp_path):
    devices = distributed.start("auto", deterministic=False, root=machine(tmp_path))
    assert devices == jax.devices()
    assert {d.platform for d in devices} == {"cpu"}


def test_cpu_may_be_asked_for_beside_an_accelerator(tmp_path):
    root = machine(tmp_path, dev=["nvidia0"])
    devices = distributed.start("cpu", deterministic=False, root=root)
    assert {d.platform for d in devices} == {"cpu"}


@pytest.mark.parametrize("platform", ["cuda", "CPU", "", "rocm"])
def test_unknown_platform_lists_all(tmp_path, platform):
    with pytest.raises(BadInput, match="auto, cpu, gpu, tpu"):
        distributed.start(platform, deterministic=False, root=machine(tmp_path))


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_accelerator_is_refused_where_jax_runs_on_the_cpu_already(tmp_path, platform):
    with pytest.raises(BadInput, match=f"platform={platform} was asked for"):
        distributed.start(platform, deterministic=False, root=machine(tmp_path))


def test_accelerator_that_jax_cannot_use_is_bad_input_with_the_extra(tmp_path):
    """In a fresh process, for `jax_platforms` counts until jax first looks for devices."""
    root = machine(tmp_path, dev=["nvidia0"])
    script = f"""
from vit_jax import distributed
from vit_jax.errors import BadInput
for platform, extra in (("tpu", ".[tpu]"), ("gpu", ".[cuda13]"), ("gpu", ".[cuda13]")):
    try:
        print("started on", distributed.start(platform, deterministic=True, root={root!r}))
    except BadInput as e:
        missing = [p for p in (f"platform={{platform}}", extra, "gpu") if p not in str(e)]
        print("missing:", missing, "in", e) if missing else print("refused", platform)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["refused tpu", "refused gpu", "refused gpu", ""], done.stderr


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_kernels_are_asked_of_xla_once(tmp_path, monkeypatch, deterministic):
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    for _ in range(2):
        distributed.start("cpu", deterministic=deterministic, root="/")
    flags = os.environ["XLA_FLAGS"].split()
    assert flags == ["--xla_other=1"] + ["--xla_gpu_deterministic_ops=true"] * deterministic
