# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which platform is used, never the CPU in silence; what several processes agree on."""

import os
import socket
import subprocess
import sys

import jax
import pytest
from ports import free_port

from vit_jax.errors import BadInput, PeerLost, RunFailed, Stopped
from vit_jax.runtime import coordination, peer_links

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
    assert coordination.present_accelerators(machine(tmp_path, dev=dev, pci=pci)) == found


@pytest.mark.parametrize(
    "dev, pci, parts",
    [
        (["nvidia0"], [], ["GPU", "cuda13", "cuda12"]),
        (["accel0"], [(GOOGLE, TPU_V4)], ["TPU", "[tpu]"]),
    ],
)
def test_auto_refuses_the_cpu_of_a_machine_with_an_accelerator(tmp_path, dev, pci, parts):
    with pytest.raises(BadInput) as caught:
        coordination.start("auto", deterministic=False, root=machine(tmp_path, dev=dev, pci=pci))
    missing = [p for p in (*parts, "--config.platform=cpu") if p not in str(caught.value)]
    assert missing == []


def test_auto_is_the_cpu_where_there_is_nothing_else(tmp_path):
    devices = coordination.start("auto", deterministic=False, root=machine(tmp_path))
    assert devices == jax.devices()
    assert {d.platform for d in devices} == {"cpu"}


def test_cpu_may_be_asked_for_beside_an_accelerator(tmp_path):
    root = machine(tmp_path, dev=["nvidia0"])
    devices = coordination.start("cpu", deterministic=False, root=root)
    assert {d.platform for d in devices} == {"cpu"}


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_accelerator_is_refused_where_jax_runs_on_the_cpu_already(tmp_path, platform):
    with pytest.raises(BadInput, match=f"platform={platform} was asked for"):
        coordination.start(platform, deterministic=False, root=machine(tmp_path))


@pytest.mark.integration
def test_accelerator_that_jax_cannot_use_is_bad_input_with_the_extra(tmp_path):
    """In a fresh process, for `jax_platforms` counts until jax first looks for devices."""
    root = machine(tmp_path, dev=["nvidia0"])
    script = f"""
from vit_jax.runtime import coordination as distributed, peer_links as lifeline
from vit_jax.errors import BadInput, PeerLost, RunFailed
for platform, extra in (("tpu", "[tpu]"), ("gpu", "[cuda13]"), ("gpu", "[cuda13]")):
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
        coordination.start("cpu", deterministic=deterministic, root="/")
    flags = os.environ["XLA_FLAGS"].split()
    assert flags == ["--xla_other=1"] + ["--xla_gpu_deterministic_ops=true"] * deterministic


# ---------------------------------------------------------------- several processes


TIMES = {"connect_secs": 1, "heartbeat_secs": 1, "barrier_secs": 1, "hang_secs": 0}


def test_a_process_alone_waits_for_nobody(tmp_path):
    with coordination.session(None, tmp_path, **TIMES):
        assert coordination.is_first()
        assert coordination.gather("x", "a") == ["a"]
        assert coordination.share("x", [1, "a"]) == [1, "a"]
        coordination.barrier("x")
        coordination.agree("x", {"a": "1"})
        coordination.check_shared(tmp_path / "none")
        coordination.on_loss(lambda: "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error, code",
    [
        (BadInput("a"), 2),
        (RunFailed("a"), 1),
        (PeerLost("a"), 43),
        (Stopped("a"), 42),
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer"), 43),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: The following tasks are unhealthy"), 43),
        (jax.errors.JaxRuntimeError("INTERNAL: something"), 1),
        (KeyError("connection"), 1),
        (KeyboardInterrupt(), 1),
    ],
    ids=repr,
)
def test_exit_code_of_an_error(monkeypatch, capsys, error, code):
    class Line:
        def end_all(self, *given):
            raise SystemExit(given)

    monkeypatch.setattr(peer_links, "GRACE_SECS", -1)
    with pytest.raises(SystemExit) as left:
        coordination._leave(Line(), error)
    assert left.value.args[0][0] == code
    assert str(error) in capsys.readouterr().err


CHILD = """
import os, sys, time
from pathlib import Path
import jax
from vit_jax.runtime import coordination as distributed, peer_links as lifeline
index, address, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed._TOKEN_SECS = 0.5
def found_by_jax(who, *_):
    assert who is None
    jax.distributed.initialize(address, 3, index, coordinator_bind_address=address,
                               cluster_detection_method="deactivate")
    return True
distributed._initialize = found_by_jax
times = {"connect_secs": 60, "heartbeat_secs": 100, "barrier_secs": 60, "hang_secs": 0}
with distributed.session("tpu", Path(folder), **times):
    assert distributed.is_first() == (index == 0)
    assert distributed.gather("numbers", str(index)) == ["0", "1", "2"]
    assert distributed.gather("numbers", str(-index)) == ["0", "-1", "-2"]
    assert distributed.share("x", {"a": [index]}) == {"a": [0]}
    distributed.agree("facts", {"a": "1"})
    distributed.check_shared(Path(folder) / "not" / "yet" / "there")
    for folders in (["a", "a", "b"], ["a", "b/a", "a"], ["", "a/a", ""]):
        try:
            distributed.check_shared(Path(folder) / folders[index])
            assert False
        except distributed.BadInput as e:
            assert f"process {2 if folders[2] == 'b' else 1} of 3" in str(e), e
    try:
        distributed.agree("facts", {"a": str(index // 2), "b": "0"})
        assert False
    except distributed.BadInput as e:
        assert "facts is not the same on all processes: process 2 of 3" in str(e)
        assert "has a=1; process 0" in str(e)
    print("so far", flush=True)
    if index == 1:
        time.sleep(60)
    start = time.monotonic()
    try:
        distributed.barrier("the meal", 1.0)
    finally:
        assert 0.9 < time.monotonic() - start < 8
"""


@pytest.mark.integration
def test_agreeing_and_barriers_that_name_who_is_missing(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "a").mkdir()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(i), address, str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(3)
    ]  # fmt: skip
    said = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [43, 43, 43], said
    assert [out.splitlines()[-1] for out, _ in said] == ["so far"] * 3, said  # Gloo prints too
    name = f"the meal: process 1 of 3 ({socket.gethostname()}) did not come within 1 s"
    assert all(name in err for _, err in said), said
    assert [p.name for p in tmp_path.rglob("*")] == ["a"]
