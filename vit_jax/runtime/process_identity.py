# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Identifies this process in a run of several: its number, the count and the coordinator.

Everything is read from arguments and environment variables. Each engine is one function here, and
its variable names appear nowhere else. This module must not import jax, because it runs before jax
detects processes by itself. Start from `resolve`.
"""

import dataclasses
import ipaddress
import re
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Literal

from vit_jax.errors import BadInput

NAME_SECS = 300  # longest time that Kubernetes takes to publish the name of a pod
FIRST_PORT, PORTS = 61440, 4096  # jax's own choice: ports that few other programs use
VARIABLES = {
    "coordinator": "VIT_JAX_COORDINATOR",
    "num_processes": "VIT_JAX_NUM_PROCESSES",
    "process_id": "VIT_JAX_PROCESS_ID",
}
Env = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ProcessIdentity:
    """One of several processes that train together.

    Attributes:
      coordinator: HOST:PORT of process 0.
      count: number of processes.
      index: number of this process.
      origin: the source of these values, for messages.
      hosts: hosts of the run, if known before the processes connect.
      multi_host: True if the engine says that there are several hosts, named or not.
      name_secs: longest wait for the coordinator's name, where names appear with the machines.
      local_device_ids: the GPUs of this process; None: all that it sees.
    """

    coordinator: str
    count: int
    index: int
    origin: str
    hosts: tuple[str, ...] = ()
    local_device_ids: tuple[int, ...] | None = None
    multi_host: bool = False
    name_secs: float = 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the coordinator; the host without the brackets of IPv6."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def loopback(self) -> bool:
        """True if the coordinator can be reached only from its own machine."""
        return is_loopback(self.address[0])


def resolve(
    flags: Mapping[str, str | None], env: Env, *, tpu: bool = False
) -> ProcessIdentity | Literal["tpu"] | None:
    """Returns the identity of this process; None if it trains alone, `"tpu"` if jax detects it.

    Arguments come first, then `VIT_JAX_*`, then the engine that started the process: Open MPI,
    Slurm, JobSet, SkyPilot, xpk on GPUs. A coordinator alone may be given beside an engine.

    Args:
      flags: `coordinator`, `num_processes`, `process_id`; None or "" where not given.
      env: environment variables.
      tpu: True if this machine has a TPU that is to be used.

    Raises:
      BadInput: only a part is given, or values make no sense; the message says what is missing.
    """
    values = {key: flags.get(key) or env.get(name, "") for key, name in VARIABLES.items()}
    names = {key: f"--{key}" if flags.get(key) else name for key, name in VARIABLES.items()}
    if values["coordinator"]:
        _checked(values["coordinator"], names["coordinator"])
    if all(values.values()):
        count = _count(names["num_processes"], values["num_processes"])
        index = _number(names["process_id"], values["process_id"])
        whole = _who(values["coordinator"], count, index, ", ".join(names.values()))
        return whole if whole.count > 1 else None
    engines = [e for e in _ENGINES if not (tpu and e is _skypilot)]  # its order is not the TPU's
    identity = next((w for engine in engines if (w := engine(env, values["coordinator"]))), None)
    only_coordinator = values["coordinator"] and not (
        values["num_processes"] or values["process_id"]
    )
    if any(values.values()) and not (identity and only_coordinator):
        have = ", ".join(names[key] for key, value in values.items() if value)
        missing = " and ".join(
            f"--{key} (or {VARIABLES[key]})" for key, value in values.items() if not value
        )
        raise BadInput(f"{have} without {missing}; give all three, or none for one process.")
    if identity is not None:
        return identity if identity.count > 1 else None
    on_tpu = tpu or "TPU_WORKER_HOSTNAMES" in env or "MEGASCALE_COORDINATOR_ADDRESS" in env
    return "tpu" if on_tpu else None


# ---------------------------------------------------------------- engines
# Each function takes the environment and the coordinator that was given by hand ("" if not given).
# It returns the identity, or None if the engine did not start several processes. Open MPI precedes
# Slurm: mpirun in a batch job starts its daemons with srun, whose variables its processes inherit.


def _slurm(env: Env, coordinator: str) -> ProcessIdentity | None:
    """Identifies a task of `srun`; a batch script or an interactive shell is not a task."""
    job, nodes = env.get("SLURM_JOB_ID"), env.get("SLURM_STEP_NODELIST")
    total = next((n for n in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") if env.get(n)), "")
    if not job or not nodes or not total or env[total] == "1":
        return None
    count, hosts = _count(total, env[total]), expand_hosts(nodes)
    rank, local = _numbers(env, "Slurm (srun)", "SLURM_PROCID", "SLURM_LOCALID")
    return _who(
        coordinator or f"{hosts[0]}:{_port(_number('SLURM_JOB_ID', job))}", count, rank, "Slurm",
        hosts=hosts, local=local if count > len(hosts) else None, env=env,
    )  # fmt: skip


def _open_mpi(env: Env, coordinator: str) -> ProcessIdentity | None:
    """Identifies a process of Open MPI's `mpirun`; version 4 tells where it started, 5 does not."""
    if "OMPI_COMM_WORLD_RANK" not in env or env.get("OMPI_COMM_WORLD_SIZE") == "1":
        return None
    names = [f"OMPI_COMM_WORLD_{n}" for n in ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")]
    rank, local, *_ = _numbers(env, "Open MPI", *names)
    count, here = (_count(name, env[name]) for name in names[2:])
    uri = env.get("OMPI_MCA_orte_hnp_uri", "")
    at = re.match(r"([0-9]{1,18})[^;]*;tcp6?://\[?([0-9a-fA-F.:]+?)(?:\]|,|:\d+(?:;|$))", uri)
    if not coordinator and at:
        coordinator = f"{_bracketed(at[2])}:{_port(int(at[1]))}"
    if not coordinator and here == count:
        coordinator = f"127.0.0.1:{_port(env.get('PMIX_NAMESPACE', ''))}"
    if not coordinator:
        raise BadInput(
            f"Open MPI runs {count} processes on several hosts but does not say where process 0 "
            f"is; give {VARIABLES['coordinator']}=HOST:PORT, with HOST that of process 0, e.g. "
            f"mpirun -x {VARIABLES['coordinator']}=$(hostname):61440."
        )
    return _who(
        coordinator, count, rank, "Open MPI",
        multi_host=here < count, local=local if here > 1 else None, env=env,
    )  # fmt: skip


def _jobset(env: Env, coordinator: str) -> ProcessIdentity | None:
    """Identifies a pod of a Kubernetes JobSet: child Jobs times pods of each."""
    if not env.get("JOBSET_NAME") or "NNODES" in env or "TPU_WORKER_HOSTNAMES" in env:
        return None
    name, job, *_ = _need(
        env, "JobSet", "JOBSET_NAME", "REPLICATED_JOB_NAME", "JOB_INDEX", "JOB_COMPLETION_INDEX",
        "JOB_PARALLELISM", "JOB_REPLICAS",
    )  # fmt: skip
    index, completion = _numbers(env, "JobSet", "JOB_INDEX", "JOB_COMPLETION_INDEX")
    pods, jobs = (_count(n, env[n]) for n in ("JOB_PARALLELISM", "JOB_REPLICAS"))
    address = coordinator or f"{name}-{job}-0-0.{name}:{FIRST_PORT}"
    who = _who(address, pods * jobs, index * pods + completion, "JobSet", multi_host=True)
    return dataclasses.replace(who, name_secs=NAME_SECS)


def _skypilot(env: Env, coordinator: str) -> ProcessIdentity | None:
    """Identifies a node of a SkyPilot task."""
    if "SKYPILOT_NODE_RANK" not in env or env.get("SKYPILOT_NUM_NODES") == "1":
        return None
    names = [f"SKYPILOT_{n}" for n in ("NODE_RANK", "NUM_NODES", "NODE_IPS")]
    *_, ips = _need(env, "SkyPilot", *names)
    rank, count = _number(names[0], env[names[0]]), _count(names[1], env[names[1]])
    hosts = tuple(ips.split())
    if not hosts:
        raise BadInput(f"{names[2]}={ips!r}; give the addresses of the nodes, one on each line.")
    port = _port(env.get("SKYPILOT_TASK_ID", ""))
    return _who(
        coordinator or f"{_bracketed(hosts[0])}:{port}", count, rank, "SkyPilot", hosts=hosts
    )


def _xpk_gpu(env: Env, coordinator: str) -> ProcessIdentity | None:
    """Identifies a GPU pod of xpk, whose coordinator has no port."""
    if not env.get("JAX_COORDINATOR_ADDRESS"):
        return None
    address, nodes, node = _need(env, "xpk", "JAX_COORDINATOR_ADDRESS", "NNODES", "NODE_RANK")
    count, rank = _count("NNODES", nodes), _number("NODE_RANK", node)
    if not coordinator:
        port = env.get("JAX_COORDINATOR_PORT")
        if not re.search(r":[0-9]+$", address):
            address += f":{_number('JAX_COORDINATOR_PORT', port) if port else FIRST_PORT}"
        coordinator = _checked(address, "JAX_COORDINATOR_ADDRESS, xpk")
    return _who(coordinator, count, rank, "xpk", multi_host=count > 1)


_ENGINES: tuple[Callable[[Env, str], ProcessIdentity | None], ...] = (
    _open_mpi, _slurm, _jobset, _skypilot, _xpk_gpu,
)  # fmt: skip


def expand_hosts(text: str) -> tuple[str, ...]:
    """Expands Slurm's `gpu-a[1-2,07-09]-b3,login`; keeps zeros, and text after a bracket.

    Raises:
      BadInput: the text is not a list of that form.
    """
    hosts: list[str] = []
    if not re.fullmatch(rf"{_HOST}(,{_HOST})*", text):
        raise _no_hosts(text)
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names = [""]
        for plain, inside in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            pieces = [plain] if plain else [n for r in inside.split(",") for n in _span(r, text)]
            names = [name + piece for name in names for piece in pieces]
        hosts += names
    return tuple(hosts)


_RANGE = r"[0-9]{1,9}(-[0-9]{1,9})?"
_HOST = rf"([^,\[\]\s]|\[{_RANGE}(,{_RANGE})*\])+"


def _span(text: str, whole: str) -> list[str]:
    first, _, last = text.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    if not 1 <= len(numbers) <= 1 << 20:
        raise _no_hosts(whole)
    return [f"{n:0{len(first)}}" for n in numbers]


def _no_hosts(text: str) -> BadInput:
    return BadInput(
        f"SLURM_STEP_NODELIST={text!r} is not a list of hosts; give names with commas between, and "
        "numbers in brackets with the lower one first, e.g. gpu-a[1-2,07-09],login."
    )


def _port(seed: int | str) -> int:
    """Returns a port that all processes of a job compute alike, and other jobs rarely share."""
    number = seed if isinstance(seed, int) else zlib.crc32(seed.encode())
    return FIRST_PORT + number % PORTS


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _need(env: Env, engine: str, *names: str) -> list[str]:
    missing = [name for name in names if not env.get(name)]
    if missing:
        raise BadInput(
            f"{engine} started this process but {', '.join(missing)} is not set; set it, or give "
            "--coordinator, --num_processes and --process_id."
        )
    return [env[name] for name in names]


def _number(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise BadInput(f"{name}={text!r}; give a whole number from 0 on.")
    return int(text)


def _count(name: str, text: str) -> int:
    number = _number(name, text)
    if number < 1:
        raise BadInput(f"{name}={text!r}; the number of processes is at least 1.")
    return number


def _numbers(env: Env, engine: str, *names: str) -> list[int]:
    return [_number(*pair) for pair in zip(names, _need(env, engine, *names), strict=True)]


def _who(
    coordinator: str,
    count: int,
    index: int,
    origin: str,
    *,
    hosts: tuple[str, ...] = (),
    multi_host: bool = False,
    local: int | None = None,
    env: Env | None = None,
) -> ProcessIdentity:
    """Checks everything that can be checked without a network.

    Args:
      coordinator: HOST:PORT.
      count: number of processes, at least 1.
      index: number of this process.
      origin: for messages.
      hosts: see `ProcessIdentity`.
      multi_host: see `ProcessIdentity`; also True where `hosts` has several.
      local: number of this process on its machine, if the machine has several.
      env: shows whether the engine has already given each process its own GPU.
    """
    if index >= count:
        raise BadInput(
            f"process {index} of {count} ({origin}): processes are numbered from 0 to {count - 1}."
        )
    visible = [d for d in (env or {}).get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    ids = (local,) if local is not None and len(visible) != 1 else None
    multi_host = multi_host or len(set(hosts)) > 1
    return ProcessIdentity(
        _checked(coordinator, origin), count, index, origin, hosts, ids, multi_host
    )


def _checked(coordinator: str, origin: str) -> str:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})", coordinator)
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise BadInput(
            f"coordinator {coordinator!r} ({origin}) is not HOST:PORT with a port from 1 to 65535; "
            "give the host of process 0 and a free port, e.g. 10.0.0.1:61440."
        )
    return coordinator


# ---------------------------------------------------------------- before connecting


def is_loopback(host: str) -> bool:
    """Returns True if a name or address, as written, means this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") in ("localhost", "localhost.localdomain", "ip6-localhost")


def check(who: ProcessIdentity) -> None:
    """Checks, before any process waits, that the processes can find each other.

    Raises:
      BadInput: a name does not resolve, or is loopback while other hosts take part.
    """
    host, port = who.address
    if who.loopback and who.multi_host:
        named = f" ({', '.join(who.hosts[:4])})" if who.hosts else ""
        raise BadInput(
            f"coordinator {who.coordinator} ({who.origin}) is loopback, which other hosts cannot "
            f"reach, but the {who.count} processes are on several{named}; give an address of "
            "process 0's host that the others can reach."
        )
    try:
        addresses = _addresses(host, port, who.name_secs)
    except OSError as e:
        raise BadInput(
            f"coordinator {who.coordinator} ({who.origin}): the name {host!r} does not resolve on "
            f"{socket.gethostname()} ({e}); give the IP address of process 0's host, or add the "
            "name to DNS or /etc/hosts."
        ) from e
    if who.index and who.multi_host and all(map(is_loopback, addresses)):
        if socket.gethostname().split(".")[0] != host.split(".")[0]:
            raise BadInput(
                f"coordinator {who.coordinator} ({who.origin}) resolves to loopback "
                f"({', '.join(sorted(addresses))}) on {socket.gethostname()}; give the IP address "
                "of process 0's host."
            )


def _addresses(host: str, port: int, secs: float) -> set[str]:
    """Returns the addresses of a name; retries for `secs` seconds while there are none."""
    end = time.monotonic() + secs
    while True:
        try:
            return {str(a[4][0]) for a in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except OSError:
            if time.monotonic() >= end:
                raise
        time.sleep(1)
