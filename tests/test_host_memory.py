# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The memory that is left: of the machine, and within the limits of cgroups."""

import os

import pytest

from vit_jax.errors import BadInput
from vit_jax.hardware import host_memory

GIB = 2**30
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
