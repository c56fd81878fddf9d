# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Starts a process, alone or as one of several: its platform, its peers, and their agreements.

It must run before jax touches a device. Agreements travel over `peer_links`, which name missing
processes. `coordinated_stop` handles requests to stop. Start from `session` (several processes),
then `start` (platform).
"""

import contextlib
import functools
import hashlib
import itertools
import json
import logging
import os
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from vit_jax.config.sections import Platform
from vit_jax.errors import BadInput, PeerLost, RunFailed, Stopped
from vit_jax.hardware.detect import extra, present_accelerators
from vit_jax.runtime import coordinated_stop, process_exit, process_identity, watchdog
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.runtime.peer_links import PeerLinks

_JAX_NAMES = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}


def start(platform: Platform, *, deterministic: bool, root: str = "/") -> list[Any]:
    """Chooses the platform and returns its devices. Never falls back to a CPU silently.

    Args:
      platform: the platform that the user asked for; `auto` takes what the machine has.
      deterministic: uses GPU kernels that give the same bits each time.
      root: see `present_accelerators`.

    Raises:
      BadInput: jax does not see an accelerator that was asked for or is present; the message names
        the missing extra.
    """
    if deterministic and "xla_gpu_deterministic_ops" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
        )
    if platform != "auto":
        jax.config.update("jax_platforms", _JAX_NAMES[platform])
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as e:  # an absent plugin trips an assertion inside jax
        have = ", ".join(present_accelerators(root)) or "no accelerator"
        raise BadInput(
            f"platform={platform} was asked for, but jax cannot use one"
            f"{': ' + str(e).splitlines()[0] if str(e) else ''}. This machine shows {have}. "
            + (f"Install jax for it: {extra(platform)}." if platform in ("gpu", "tpu") else "")
        ) from e
    seen = devices[0].platform
    if platform != "auto" and seen != platform:
        raise BadInput(
            f"platform={platform} was asked for, but jax runs on {seen} in this process already."
        )
    missing = [p for p in present_accelerators(root) if p != seen]
    if platform == "auto" and seen == "cpu" and missing:
        raise BadInput(
            f"this machine has a {missing[0].upper()}, but jax sees only the CPU; "
            f"{extra(missing[0])}, or ask for the CPU with --config.platform=cpu."
        )
    return devices


# ---------------------------------------------------------------- several processes

_LOST = ("gloo", "nccl", "connection", "socket", "unavailable", "deadline", "heartbeat", "aborted")
_LATER_SECS = (
    30  # for the peer links to name a silent process, before jax ends all without a message
)
_ADDRESS_BYTES = 256  # of process 0 on a TPU
_TOKEN_SECS = 5  # longest wait for a file of another host to appear on shared storage
log = logging.getLogger("vit_jax")


class _Session:
    """The state of this module while several processes train together."""

    def __init__(self, who: ProcessIdentity, line: "PeerLinks", barrier_secs: float):
        self.who, self.line, self.barrier_secs = who, line, barrier_secs
        self.numbers = itertools.count()


_now: _Session | None = None


def is_first() -> bool:
    """Returns True for process 0, which writes files and prints, and for a process alone."""
    return _now is None or _now.who.index == 0


def alone() -> bool:
    """Returns True if no other process trains with this one."""
    return _now is None


@contextlib.contextmanager
def session(
    who: ProcessIdentity | Literal["tpu"] | None,
    workdir: Path,
    *,
    connect_secs: int,
    heartbeat_secs: int,
    barrier_secs: int,
    hang_secs: int,
) -> Iterator[None]:
    """Connects several processes to one run, and ends all of them when one of them fails.

    A failure inside the block ends the process here, with its exit code: jax's exit hook would wait
    for processes that are gone. A process alone is watched too, and ends if it hangs.

    Args:
      who: from `process_identity.resolve`; None for a process alone.
      workdir: the folder into which processes that hang write their stacks.
      connect_secs: the longest wait for all processes to start.
      heartbeat_secs: the silence after which a process is given up.
      barrier_secs: the longest wait for the others at every agreement.
      hang_secs: the longest time without progress, see `watchdog.Watchdog`.

    Raises:
      BadInput: the processes cannot find each other, or do not fit together.
      PeerLost: some processes did not start in time.
      Stopped: the run was asked to stop.
    """
    coordinated_stop.check()
    if isinstance(who, ProcessIdentity):
        from vit_jax.runtime import rendezvous

        process_identity.check(who)
        line = rendezvous.meet(who, who.address, rendezvous.facts(), connect_secs)
    elif who == "tpu" and _initialize(None, connect_secs, heartbeat_secs):
        who, line = _meet_on_tpu(connect_secs)
    else:
        with watchdog.watching(hang_secs, functools.partial(_hung, workdir, None)):
            yield
        return
    line.silent_secs = heartbeat_secs
    line.stacks = functools.partial(watchdog.write_stacks, workdir, who.index)
    with (
        _among(_Session(who, line, barrier_secs)),
        coordinated_stop.including(line),
        watchdog.watching(hang_secs, functools.partial(_hung, workdir, line)),
    ):
        if not jax.distributed.is_initialized():
            _initialize(who, connect_secs, heartbeat_secs)
        if who.index:
            log.setLevel(logging.WARNING)
        log.info("processes: %d (%s), process 0 on %s", who.count, who.origin, line.hosts[0])
        yield


@contextlib.contextmanager
def _among(session: _Session) -> Iterator[None]:
    """Runs the block as one of several: all part at its end, or end with the error of one."""
    global _now
    _now, stopped = session, None
    try:
        try:
            yield
        except Stopped as e:
            if not e.save:  # the other processes may be at any point
                raise
            stopped = e
        barrier("the end of the run")
        session.line.close()
        jax.distributed.shutdown()
    except BaseException as e:
        _leave(session.line, e)
    finally:
        _now = None
    if stopped:
        raise stopped


def _hung(workdir: Path, line: "PeerLinks | None", secs: float) -> None:
    """Ends this process, and with it the others, because it makes no progress any more."""
    who = line.name(line.index) if line else "the run"
    text = (
        f"{who} has done nothing for {secs:.0f} s (see processes.hang_secs); where every thread "
        f"was is written to {workdir / watchdog.FOLDER}."
    )
    if line:
        line.end_all_hung(text)
        return
    from vit_jax.runtime import peer_links

    if not process_exit.ends_in_time(
        lambda: watchdog.write_stacks(workdir, 0, text), peer_links.STACKS_SECS
    ):
        process_exit.say(f"the stacks cannot be written:\n{watchdog.stacks()}")
    process_exit.say(f"{text} Run again to continue.")
    process_exit.end(PeerLost.exit_code)


def _initialize(who: ProcessIdentity | None, connect_secs: int, heartbeat_secs: int) -> bool:
    """Starts jax's coordination; returns False if jax itself finds no other process."""
    jax.config.update("jax_check_proxy_envs", False)  # proxies are bypassed below
    # `signals` handles SIGTERM. jax's service would take it, and sees no other request to stop.
    jax.config.update("jax_enable_preemption_service", False)
    times: dict[str, Any] = {
        "initialization_timeout": connect_secs,
        "heartbeat_timeout_seconds": heartbeat_secs + _LATER_SECS,
        "shutdown_timeout_seconds": 30,
    }
    if who is None:
        with contextlib.suppress(ValueError):  # a TPU of one host has no coordinator
            jax.distributed.initialize(**times)
        return jax.distributed.is_initialized() and jax.process_count() > 1
    known = [os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy", ""), who.address[0]]
    os.environ["no_grpc_proxy"] = ",".join(filter(None, known))
    ids = who.local_device_ids
    jax.distributed.initialize(
        who.coordinator,
        who.count,
        who.index,
        local_device_ids=None if ids is None else list(ids),
        cluster_detection_method="deactivate",
        coordinator_bind_address=who.coordinator if who.loopback else None,
        **times,
    )
    return True


def _meet_on_tpu(connect_secs: int) -> "tuple[ProcessIdentity, PeerLinks]":
    """Connects processes that jax found by itself, at an address that process 0 announces."""
    from jax.experimental import multihost_utils

    from vit_jax.runtime import rendezvous

    own = rendezvous.free_address() if jax.process_index() == 0 else ""
    text = np.frombuffer(own.encode().ljust(_ADDRESS_BYTES), np.uint8)
    address = np.asarray(multihost_utils.broadcast_one_to_all(text)).tobytes().decode().strip()
    who = ProcessIdentity(address, jax.process_count(), jax.process_index(), "TPU")
    return who, rendezvous.meet(who, who.address, rendezvous.facts(), connect_secs)


def _leave(line: "PeerLinks", error: BaseException) -> None:
    """Ends this process, and with it the others; does not return."""
    from vit_jax.runtime import peer_links

    if isinstance(error, BadInput | RunFailed | PeerLost | Stopped):
        process_exit.say(str(error))
        line.end_all(error.exit_code, str(error))
    time.sleep(
        peer_links.GRACE_SECS + 1
    )  # usually another process is gone: the peer links know which
    with contextlib.suppress(OSError):  # stderr has no reader
        traceback.print_exception(error)
    text = f"{type(error).__name__}: {error}"
    runtime = isinstance(error, jax.errors.JaxRuntimeError | ValueError)
    lost = runtime and any(word in text.lower() for word in _LOST)
    line.end_all(PeerLost.exit_code if lost else RunFailed.exit_code, text.splitlines()[0][:500])


def end_all(code: int, text: str) -> None:
    """Ends this process, and with it the others, from any thread; does not return."""
    process_exit.say(text)
    if _now:
        _now.line.end_all(code, text)
    process_exit.end(code)


def on_loss(hint: Callable[[], str]) -> None:
    """Sets the end of the message about a lost process: where the run would continue."""
    if _now:
        _now.line.hint = hint


# ---------------------------------------------------------------- agreeing


def gather(name: str, value: str, timeout_secs: float | None = None) -> list[str]:
    """Returns the values of all processes, ordered by number; waits for all of them.

    Args:
      name: the name of the exchange, for messages.
      value: the value of this process.
      timeout_secs: the longest wait (default: `processes.barrier_secs` of the configuration).

    Raises:
      PeerLost: some processes did not arrive; the message names them.
    """
    coordinated_stop.check()
    if _now is None:
        return [value]
    timeout = timeout_secs or _now.barrier_secs
    values = _now.line.gather(f"{next(_now.numbers)} {name}", value, timeout)
    missing = [_now.line.name(i) for i, value in enumerate(values) if value is None]
    if missing:
        raise PeerLost(f"{name}: {', '.join(missing)} did not come within {timeout:g} s.")
    return [value for value in values if value is not None]


def address() -> str:
    """Returns the address at which other processes reach this host; "" for a process alone."""
    return _now.line.address() if _now else ""


def barrier(name: str, timeout_secs: float | None = None) -> None:
    """Waits until all processes are here; see `gather`."""
    gather(name, "", timeout_secs)


def share(name: str, value: Any) -> Any:
    """Returns the value of process 0 on all processes; the value must be JSON."""
    return json.loads(gather(name, json.dumps(value) if is_first() else "")[0])


def agree(name: str, facts: Mapping[str, str]) -> None:
    """Checks that facts are equal on all processes.

    Raises:
      BadInput: on all processes alike; the message names the first process that differs, and how.
    """
    if _now is None:
        return
    text = json.dumps(dict(facts), sort_keys=True)
    if len(set(gather(name, hashlib.sha256(text.encode()).hexdigest()))) == 1:
        return  # a text of each process, sent to each, would be large for many processes
    everyone = [json.loads(one) for one in gather(name, text)]
    from vit_jax.runtime import rendezvous

    wrong = rendezvous.mismatch(_now.who, everyone, _now.line.hosts)
    if wrong:
        raise BadInput(f"{name} is not the same on all processes: {wrong} Start all alike.")


def check_shared(folder: Path) -> None:
    """Checks that a folder, which need not exist, is the same folder for all processes.

    Process 0 writes a file into it, or into the nearest existing folder above it. All others must
    find the file there. The file is removed afterwards.

    Raises:
      BadInput: on all processes alike; the message names those that do not see the file.
    """
    if _now is None:
        return
    whole = folder.absolute()
    token = f".vit_jax-{uuid.uuid4().hex}"
    levels, error = 0, ""
    if is_first():
        try:
            levels = len(whole.parts) - len(storage.existing(whole).parts)
            storage.write((whole, *whole.parents)[levels] / token, "")
        except OSError as e:
            error = f"cannot write to {folder}: {e.strerror}; give a --workdir that is writable."
    levels, token, tail, error = share(
        "token of the workdir",
        [levels, token, list(whole.parts[len(whole.parts) - levels :]), error],
    )
    try:
        if error:
            raise BadInput(error)
        base = (whole, *whole.parents)[min(levels, len(whole.parents))]
        seen = list(whole.parts[len(whole.parts) - levels :]) == tail
        end = time.monotonic() + _TOKEN_SECS
        while seen and not (base / token).exists():
            seen = time.monotonic() < end
            time.sleep(0.05)
        blind = [i for i, s in enumerate(gather("workdir", str(int(seen)))) if s == "0"]
    finally:
        if is_first():
            storage.remove((whole, *whole.parents)[levels] / token)
    if blind:
        raise BadInput(
            f"{whole} is not the same folder on all processes: {_now.line.name(blind[0])}"
            f"{f' and {len(blind) - 1} more do' if blind[1:] else ' does'} not see what process 0 "
            f"({_now.line.hosts[0]}) writes there. "
            "The workdir must be on storage that all hosts share; give such a --workdir."
        )
