# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on the coordinator: a name, an address, a port, and who answers there."""

import socket

import pytest

from vit_jax.preflight.doctor import coordinator

SLURM = {
    "SLURM_JOB_ID": "5", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
}  # fmt: skip


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_free_port_of_this_host_is_well(listener):
    port = listener.getsockname()[1]
    listener.close()
    [found] = coordinator.check(f"127.0.0.1:{port}", {})
    assert found.line().endswith(f"127.0.0.1:{port} is this host, and the port is free")
    assert found.ok


def test_somebody_answers(listener):
    [found] = coordinator.check(f"localhost:{listener.getsockname()[1]}", {})
    assert found.ok
    assert "(127.0.0.1) answers" in found.said


def test_port_that_process_0_needs_is_taken(listener):
    taken = f"127.0.0.1:{listener.getsockname()[1]}"
    env = {"VIT_JAX_COORDINATOR": taken, "VIT_JAX_NUM_PROCESSES": "2"}
    [found] = coordinator.check("", env | {"VIT_JAX_PROCESS_ID": "0"})
    assert "end that" in found.fix
    [found] = coordinator.check("", env | {"VIT_JAX_PROCESS_ID": "1"})
    assert found.ok


@pytest.mark.parametrize(
    "error, ok, said",
    [
        (ConnectionRefusedError(111, "refused"), True, "nothing listens there yet"),
        (TimeoutError("timed out"), False, "cannot be reached (timed out)"),
        (OSError(113, "No route to host"), False, "cannot be reached (No route to host)"),
    ],
)
def test_host_that_is_another(monkeypatch, error, ok, said):
    monkeypatch.setattr(coordinator, "_connect", lambda *_: error)
    [found] = coordinator.check("192.0.2.1:61440", {})  # of no host: for documentation
    assert found.ok is ok
    assert said in found.said
    assert ok or "firewall" in found.fix


@pytest.mark.parametrize(
    "address, env, said, fix",
    [
        ("here", {}, "is not HOST:PORT", "a free port"),
        ("no-such-host.invalid:1234", {}, "does not resolve", "add the name to DNS"),
        ("", {"VIT_JAX_COORDINATOR": "a:1"}, "without --num_processes", "give all three"),
        ("", SLURM | {"SLURM_PROCID": ""}, "SLURM_PROCID is not set", "set it"),
    ],
)
def test_address_that_cannot_be_used(address, env, said, fix):
    [found] = coordinator.check(address, env)
    assert said in found.said
    assert fix in found.fix


@pytest.mark.parametrize("env", [{}, {"TPU_WORKER_HOSTNAMES": "a,b"}])
def test_none_is_needed(env):
    [found] = coordinator.check("", env)
    assert found.ok
    assert "none is needed" in found.said
