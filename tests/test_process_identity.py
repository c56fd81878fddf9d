# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Who a process is: every engine's variables, what is refused, and what is checked beforehand."""

import socket

import pytest

from vit_jax.errors import BadInput
from vit_jax.runtime import process_identity
from vit_jax.runtime.process_identity import ProcessIdentity, check, expand_hosts, resolve

SLURM = {
    "SLURM_JOB_ID": "8193", "SLURM_STEP_NODELIST": "gpu-a[09-10]", "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
}  # fmt: skip
MPI4 = {
    "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}  # fmt: skip
MPI5 = {k: v for k, v in MPI4.items() if "hnp" not in k} | {"PMIX_NAMESPACE": "prterun-a-7@1"}
JOBSET = {
    "JOBSET_NAME": "vit", "REPLICATED_JOB_NAME": "worker", "JOB_INDEX": "1", "JOB_REPLICAS": "2",
    "JOB_COMPLETION_INDEX": "3", "JOB_PARALLELISM": "4",
}  # fmt: skip
SKY = {
    "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5",
    "SKYPILOT_TASK_ID": "sky-1",
}  # fmt: skip
XPK = {"JAX_COORDINATOR_ADDRESS": "vit-slice-job-0-0.vit", "NNODES": "2", "NODE_RANK": "1"}
OURS = {
    "VIT_JAX_COORDINATOR": "10.0.0.1:7000", "VIT_JAX_NUM_PROCESSES": "8", "VIT_JAX_PROCESS_ID": "7",
}  # fmt: skip
FLAGS = {"coordinator": "10.0.0.9:7001", "num_processes": "3", "process_id": "0"}


def brief(who):
    return (who.coordinator, who.count, who.index, who.local_device_ids)


@pytest.mark.parametrize(
    "env, expected",
    [
        (SLURM, ("gpu-a09:61441", 2, 1, None)),
        (SLURM | {"SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}, ("gpu-a09:61441", 4, 1, (1,))),
        (
            SLURM | {"SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "1"},
            ("gpu-a09:61441", 4, 1, None),  # --gpus-per-task: its GPU has number 0
        ),
        (
            SLURM | {"SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "0,1"},
            ("gpu-a09:61441", 4, 1, (1,)),
        ),
        (SLURM | {"SLURM_NTASKS": "9", "SLURM_STEP_NUM_TASKS": "2"}, ("gpu-a09:61441", 2, 1, None)),
        (MPI4, (f"10.96.0.1:{61440 + 1531576320 % 4096}", 4, 2, (0,))),
        (
            MPI4 | {"OMPI_MCA_orte_hnp_uri": "5.0;tcp6://[fe80::1,fe80::2]:34911"},
            ("[fe80::1]:61445", 4, 2, (0,)),
        ),
        (
            MPI4 | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            (f"10.96.0.1:{61440 + 1531576320 % 4096}", 4, 2, None),
        ),
        (JOBSET, ("vit-worker-0-0.vit:61440", 8, 7, None)),
        (XPK, ("vit-slice-job-0-0.vit:61440", 2, 1, None)),
        (XPK | {"JAX_COORDINATOR_PORT": "1234"}, ("vit-slice-job-0-0.vit:1234", 2, 1, None)),
        (XPK | {"JAX_COORDINATOR_ADDRESS": "a.b:5"}, ("a.b:5", 2, 1, None)),
        (OURS, ("10.0.0.1:7000", 8, 7, None)),
    ],
)
def test_engines(env, expected):
    assert brief(resolve({}, env)) == expected


def test_slurm_and_skypilot_tell_the_hosts():
    assert resolve({}, SLURM).hosts == ("gpu-a09", "gpu-a10")
    sky = resolve({}, SKY)
    assert (sky.hosts, sky.count, sky.index) == (("10.0.0.4", "10.0.0.5"), 2, 1)
    host, port = sky.address
    assert host == "10.0.0.4"
    assert 61440 <= port < 65536
    assert resolve({}, SKY | {"SKYPILOT_NODE_RANK": "0"}).coordinator == sky.coordinator
    assert resolve({}, SKY | {"SKYPILOT_TASK_ID": "sky-2"}).coordinator != sky.coordinator
    assert resolve({}, SKY, tpu=True) == "tpu"  # whose own order of machines is another


def test_open_mpi_5_needs_the_coordinator_unless_on_one_host():
    with pytest.raises(BadInput, match="VIT_JAX_COORDINATOR=HOST:PORT"):
        resolve({}, MPI5)
    given = resolve({}, MPI5 | {"VIT_JAX_COORDINATOR": "10.0.0.1:7000"})
    assert brief(given) == ("10.0.0.1:7000", 4, 2, (0,))
    here = resolve({}, MPI5 | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"})
    assert here.loopback
    assert here.count == 4


@pytest.mark.parametrize("engine", [SLURM, MPI4, JOBSET, SKY, XPK])
def test_arguments_come_before_variables_and_those_before_engines(engine):
    assert brief(resolve(FLAGS, engine | OURS)) == ("10.0.0.9:7001", 3, 0, None)
    assert brief(resolve({}, engine | OURS)) == ("10.0.0.1:7000", 8, 7, None)
    mixed = resolve({"process_id": "2"}, engine | OURS)
    assert (mixed.coordinator, mixed.index) == ("10.0.0.1:7000", 2)
    moved = resolve({"coordinator": "h:1"}, engine)
    assert (moved.coordinator, moved.count) == ("h:1", resolve({}, engine).count)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"},  # batch script, salloc
        SLURM | {"SLURM_NTASKS": "1"},
        SLURM | {"SLURM_STEP_NUM_TASKS": "1"},  # an interactive step
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        SKY | {"SKYPILOT_NUM_NODES": "1"},
        {"JOB_COMPLETION_INDEX": "3"},  # one of many runs
        OURS | {"VIT_JAX_NUM_PROCESSES": "1", "VIT_JAX_PROCESS_ID": "0"},
        XPK | {"NNODES": "1", "NODE_RANK": "0"},
    ],
)
def test_one_process_alone(env):
    assert resolve({}, env) is None
    assert resolve({}, env, tpu=True) in (None, "tpu")


def test_tpu_is_left_to_jax_unless_something_else_is_said():
    assert resolve({}, {}, tpu=True) == "tpu"
    assert resolve({}, {"TPU_WORKER_HOSTNAMES": "a,b"}) == "tpu"
    assert resolve({}, JOBSET | {"TPU_WORKER_HOSTNAMES": "a,b"}) == "tpu"
    assert isinstance(resolve(FLAGS, {}, tpu=True), ProcessIdentity)


@pytest.mark.parametrize(
    "flags, env, parts",
    [
        ({"coordinator": "h:1"}, {}, ["--coordinator without", "--num_processes", "--process_id"]),
        ({"process_id": "0"}, {}, ["--process_id without", "VIT_JAX_COORDINATOR"]),
        ({}, {"VIT_JAX_NUM_PROCESSES": "2"}, ["VIT_JAX_NUM_PROCESSES without", "--coordinator"]),
        ({"num_processes": "2"}, SLURM, ["--num_processes without"]),
        (FLAGS | {"process_id": "3"}, {}, ["process 3 of 3", "0 to 2"]),
        (FLAGS | {"process_id": "-1"}, {}, ["--process_id='-1'", "whole number from 0"]),
        (FLAGS | {"num_processes": "two"}, {}, ["--num_processes='two'", "whole number"]),
        ({}, OURS | {"VIT_JAX_NUM_PROCESSES": "0"}, ["VIT_JAX_NUM_PROCESSES='0'", "at least 1"]),
        ({}, OURS | {"VIT_JAX_PROCESS_ID": "9" * 5000}, ["VIT_JAX_PROCESS_ID='9", "whole"]),
        (FLAGS | {"num_processes": "0"}, {}, ["--num_processes='0'", "is at least 1"]),
        (FLAGS | {"coordinator": "host"}, {}, ["'host'", "HOST:PORT"]),
        (FLAGS | {"coordinator": "host:"}, {}, ["HOST:PORT"]),
        (FLAGS | {"coordinator": "http://host:80"}, {}, ["HOST:PORT"]),
        (FLAGS | {"coordinator": "fe80::1:80"}, {}, ["HOST:PORT"]),
        (FLAGS | {"coordinator": "host:0"}, {}, ["1 to 65535"]),
        (FLAGS | {"coordinator": "host:65536"}, {}, ["1 to 65535"]),
        ({}, {k: v for k, v in SLURM.items() if "PROCID" not in k}, ["SLURM_PROCID is not set"]),
        ({}, {k: v for k, v in SKY.items() if "IPS" not in k}, ["SKYPILOT_NODE_IPS is not set"]),
        ({}, {k: v for k, v in JOBSET.items() if "INDEX" not in k}, ["JOB_INDEX", "JOB_COMPL"]),
        ({}, {"JAX_COORDINATOR_ADDRESS": "a:1"}, ["NNODES, NODE_RANK"]),
        ({"coordinator": "host"}, SLURM, ["'host' (--coordinator)", "HOST:PORT"]),
        ({}, SLURM | {"VIT_JAX_COORDINATOR": "h:99999999"}, ["(VIT_JAX_COORDINATOR)", "65535"]),
        ({}, XPK | {"JAX_COORDINATOR_ADDRESS": "a b"}, ["'a b:61440' (JAX_COORDINATOR_ADDRESS"]),
        ({}, SKY | {"SKYPILOT_NODE_IPS": "\n"}, ["SKYPILOT_NODE_IPS='\\n'", "one on each line"]),
    ],
)  # fmt: skip
def test_what_is_refused(flags, env, parts):
    with pytest.raises(BadInput) as caught:
        resolve(flags, env)
    assert [p for p in parts if p not in str(caught.value)] == []


@pytest.mark.parametrize(
    "engine, names",
    [
        (SLURM, "SLURM_JOB_ID SLURM_PROCID SLURM_LOCALID"),
        (MPI4, "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK"),
        (JOBSET, "JOB_INDEX JOB_COMPLETION_INDEX"),
        (SKY, "SKYPILOT_NODE_RANK"),
        (XPK, "NODE_RANK JAX_COORDINATOR_PORT"),
    ],
)
@pytest.mark.parametrize("text", ["x", "5x", "-1", "1.5", "\u0663", "9" * 5000])
def test_variable_that_is_no_number_is_named(engine, names, text):
    for name in names.split():
        with pytest.raises(BadInput) as caught:
            resolve({}, engine | {name: text})
        assert str(caught.value) == f"{name}={text!r}; give a whole number from 0 on."


@pytest.mark.parametrize(
    "engine, names",
    [
        (SLURM, "SLURM_NTASKS SLURM_STEP_NUM_TASKS"),
        (MPI4, "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE"),
        (JOBSET, "JOB_PARALLELISM JOB_REPLICAS"),
        (SKY, "SKYPILOT_NUM_NODES"),
        (XPK, "NNODES"),
    ],
)
def test_variable_that_counts_from_1_is_named(engine, names):
    for name in names.split():
        with pytest.raises(BadInput, match=f"^{name}='x'; give a whole number from 0 on"):
            resolve({}, engine | {name: "x"})
        with pytest.raises(BadInput, match=f"^{name}='0'; the number of processes is at least 1"):
            resolve({}, engine | {name: "0"})


@pytest.mark.parametrize(
    "text",
    ["n[a-b]", "n[1-", "n[1-]", "n[]", "n]", "n[[1]]", "n[2-1]", "a,,b", ",", "a b", "n[-1]",
     "n[1-2]]", "n[0-999999999]"],
)  # fmt: skip
def test_node_list_that_cannot_be_read_is_named(text):
    with pytest.raises(BadInput) as caught:
        resolve({}, SLURM | {"SLURM_STEP_NODELIST": text})
    assert str(caught.value).startswith(
        f"SLURM_STEP_NODELIST={text!r} is not a list of hosts; give"
    )


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("vm", "vm"),
        ("a,b", "a b"),
        ("gpu-a[1-2]-b3", "gpu-a1-b3 gpu-a2-b3"),
        ("n[008-011,20],login", "n008 n009 n010 n011 n20 login"),
        ("r[1-2]n[1,3]", "r1n1 r1n3 r2n1 r2n3"),
        ("n[9-10]", "n9 n10"),
    ],
)
def test_node_lists_of_slurm(text, hosts):
    assert expand_hosts(text) == tuple(hosts.split())


# ---------------------------------------------------------------- before connecting


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "[::1]"])
def test_loopback_is_refused_where_several_hosts_take_part(host):
    env = SLURM | {"VIT_JAX_COORDINATOR": f"{host}:7000"}
    with pytest.raises(BadInput, match="loopback") as caught:
        check(resolve({}, env))
    assert "gpu-a09, gpu-a10" in str(caught.value)
    check(resolve({}, env | {"SLURM_STEP_NODELIST": "vm"}))


@pytest.mark.parametrize("engine", [MPI4, JOBSET, XPK, SKY])
def test_loopback_is_refused_where_the_engine_implies_several_hosts(engine):
    with pytest.raises(BadInput, match="is loopback") as caught:
        check(resolve({"coordinator": "127.0.0.1:7000"}, engine))
    assert "processes are on several" in str(caught.value)


def test_loopback_is_accepted_on_one_host_and_by_hand():
    check(resolve({"coordinator": "127.0.0.1:7000"}, MPI4 | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}))
    check(resolve(FLAGS | {"coordinator": "127.0.0.1:7000"}, {}))


def test_name_that_does_not_resolve_is_refused_on_this_host():
    with pytest.raises(BadInput, match=r"nowhere\.invalid") as caught:
        check(ProcessIdentity("nowhere.invalid:7000", 2, 1, "Slurm"))
    assert socket.gethostname() in str(caught.value)
    assert "Slurm" in str(caught.value)


def test_the_name_of_a_pod_is_waited_for(monkeypatch):
    """Kubernetes publishes it some time after the pods have begun; that is no bad input."""
    found = iter([OSError("not yet"), OSError("not yet"), [(2, 1, 6, "", ("10.0.0.1", 7000))]])

    def look(*_, **__):
        answer = next(found)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(socket, "getaddrinfo", look)
    monkeypatch.setattr(process_identity.time, "sleep", lambda _: None)
    check(resolve({}, JOBSET))
    assert next(found, None) is None


@pytest.mark.parametrize("index, refused", [(0, False), (1, True)])
def test_name_of_another_host_that_resolves_to_loopback_is_refused(monkeypatch, index, refused):
    found = [(2, 1, 6, "", ("127.0.1.1", 7000))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "gethostname", lambda: "b" if index else "a")
    who = ProcessIdentity("a:7000", 2, index, "Slurm", ("a", "b"), multi_host=True)
    if refused:
        with pytest.raises(BadInput, match="resolves to loopback"):
            check(who)
    else:
        check(who)


def test_loopback_as_written():
    for host in ("10.0.0.1", "example.org", "::2", "localhost.example.org"):
        assert not process_identity.is_loopback(host)
