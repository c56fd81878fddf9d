# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lets the processes of a run find each other, before jax starts.

Process 0 listens at the coordinator's address. A process that is missing or does not fit is named;
jax's client would only abort. The connections stay open as `PeerLinks`. This module must not
import jax. Start from `meet`.
"""

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput, PeerLost
from vit_jax.runtime.peer_links import Channel, PeerLinks, encoded
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.storage import files as storage

HELLO_SECS = 5  # for a connection to introduce itself: a port scanner sends nothing
WAITING_SECS = 30.0  # interval at which process 0 logs the processes it waits for
LATE_SECS = 30  # for the remaining processes to come and be told, when one does not fit
_OTHER_FILES = 100  # of process 0, that are open at once
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
log = logging.getLogger("vit_jax")
_Facts = Mapping[str, str]
_HELLO = {"vit_jax", "count", "host", "facts"}  # first message; "vit_jax": sender's number


def facts() -> dict[str, str]:
    """Returns the facts that must be equal before processes connect: code and packages."""
    return {"code": code_version()} | {p: importlib.metadata.version(p) for p in _PACKAGES}


def code_version(root: Path = Path(__file__).parent.parent) -> str:
    """Returns `VIT_JAX_CODE` if set (a tag or commit), else a hash of the package's sources.

    Recipes and launchers are left out: a wheel has them inside the package, a checkout beside it.
    """
    if os.environ.get("VIT_JAX_CODE"):
        return os.environ["VIT_JAX_CODE"]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in ("configs", "launch"):
            continue
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def mismatch(who: ProcessIdentity, facts: list[_Facts], hosts: list[str]) -> str:
    """Describes how the first process that differs differs from process 0; "" if none differs."""
    for index, mine in enumerate(facts):
        keys = [k for k in {**facts[0], **mine} if facts[0].get(k) != mine.get(k)]
        if keys:
            have, expected = (
                ", ".join(f"{k}={f.get(k, '(none)')}" for k in keys[:5]) for f in (mine, facts[0])
            )
            return (
                f"process {index} of {who.count} ({hosts[index]}) has {have}; "
                f"process 0 ({hosts[0]}) has {expected}."
            )
    return ""


def meet(
    who: ProcessIdentity, address: tuple[str, int], facts: _Facts, timeout_secs: float
) -> PeerLinks:
    """Waits until all processes are here and checks that they fit together.

    Args:
      who: this process.
      address: the address of process 0.
      facts: facts that must be equal on all processes.
      timeout_secs: the longest wait.

    Raises:
      BadInput: the port is taken, or a process does not fit: another count, number or fact.
      PeerLost: not all came in time; the message names the missing processes.
    """
    meeting = _receive_all if who.index == 0 else _call
    channels, hosts = meeting(who, address, facts, timeout_secs)
    return PeerLinks(who, channels, hosts)


def _allow_connections(who: ProcessIdentity) -> None:
    """Raises BadInput if process 0 may not open a connection for each process."""
    needed = 2 * who.count + _OTHER_FILES  # each process connects here, and to jax's coordination
    if (most := storage.allow_open(needed)) < needed:
        raise BadInput(
            f"process 0 of {who.count} needs up to {needed} open connections and files, and "
            f"{socket.gethostname()} allows it {most}; raise that limit (ulimit -Hn, LimitNOFILE "
            "of systemd, --ulimit nofile of a container), then run again."
        )


def _receive_all(
    who: ProcessIdentity, address: tuple[str, int], facts: _Facts, timeout_secs: float
) -> tuple[dict[int, Channel], list[str]]:
    """Runs the rendezvous as process 0."""
    _allow_connections(who)
    end, told = time.monotonic() + timeout_secs, time.monotonic()
    channels: dict[int, Channel] = {}
    hellos: dict[int, dict[str, Any]] = {0: {"host": socket.gethostname(), "facts": dict(facts)}}
    wrong = ""
    with listen(who, address) as listener:
        while len(channels) < who.count - 1 and (left := end - time.monotonic()) > 0:
            if time.monotonic() - told >= WAITING_SECS:
                told = time.monotonic()
                gone = [i for i, channel in channels.items() if channel.ended()]
                missing = [i for i in range(who.count) if i not in hellos or i in gone]
                log.info("waiting for %s of %d at %s", _listed(missing), who.count, who.coordinator)
            listener.settimeout(min(left, WAITING_SECS))
            try:
                channel = Channel(listener.accept()[0])
            except TimeoutError:
                continue
            hello = channel.first(HELLO_SECS)
            if not isinstance(hello, dict) or not hello.keys() >= _HELLO:
                channel.socket.close()
                continue
            earlier = channels.get(hello["vit_jax"])
            if earlier and earlier.ended():  # it died during the rendezvous and came again
                earlier.socket.close()
                del channels[hello["vit_jax"]], hellos[hello["vit_jax"]]
            misfit = _misfit(who, hello, hellos)
            if misfit:  # processes that come soon are told too
                wrong = wrong or misfit
                end = min(end, time.monotonic() + LATE_SECS)
                channels[-1 - len(channels)] = channel
            else:
                channels[hello["vit_jax"]], hellos[hello["vit_jax"]] = channel, hello
    missing = [i for i in range(who.count) if i not in hellos]
    if not wrong and not missing:
        everyone = [hellos[i] for i in range(who.count)]
        hosts = [s["host"] for s in everyone]
        wrong = mismatch(who, [s["facts"] for s in everyone], hosts)
        if not wrong:
            line = encoded({"hosts": hosts})
            for channel in channels.values():
                channel.send_line(line)
            return channels, hosts
        wrong += " All processes must run the same code with the same packages."
    error = (
        BadInput(wrong)
        if wrong
        else PeerLost(
            f"{_listed(missing)} of {who.count} did not connect to process 0 ({who.coordinator}) "
            f"within {timeout_secs:g} s; see their logs, and whether their hosts reach that "
            "address. Then run again."
        )
    )
    for channel in channels.values():
        channel.send({"error": str(error), "code": error.exit_code})
        channel.socket.close()
    raise error


def _misfit(who: ProcessIdentity, hello: dict[str, Any], hellos: dict[int, dict[str, Any]]) -> str:
    """Describes why a process that introduces itself does not fit; "" if it fits."""
    index, count, host = hello["vit_jax"], hello["count"], hello["host"]
    if count != who.count:
        return (
            f"process {index} ({host}) was told that there are {count} processes, process 0 that "
            f"there are {who.count}; start all with the same number."
        )
    if index in hellos:
        return (
            f"two processes ({hellos[index]['host']} and {host}) have number {index} of {count}; "
            "give each its own."
        )
    return ""


def _call(
    who: ProcessIdentity, address: tuple[str, int], facts: _Facts, timeout_secs: float
) -> tuple[dict[int, Channel], list[str]]:
    """Runs the rendezvous as one of the other processes."""
    start = time.monotonic()
    hello = {"vit_jax": who.index, "count": who.count, "host": socket.gethostname()}
    why, told = "", False
    while (left := start + timeout_secs - time.monotonic()) > 0:
        try:
            channel = Channel(socket.create_connection(address, timeout=min(left, 10)))
        except OSError as e:
            why = e.strerror or str(e)
        else:
            channel.send({**hello, "facts": dict(facts)})
            answer = channel.first(left + HELLO_SECS)
            if isinstance(answer, dict) and "hosts" in answer:
                return {0: channel}, answer["hosts"]
            channel.socket.close()
            if isinstance(answer, dict) and "error" in answer:
                raise (BadInput if answer["code"] == BadInput.exit_code else PeerLost)(
                    answer["error"]
                )
            why = "something answers there, but it is not process 0 of a run"
        if not told and time.monotonic() - start > HELLO_SECS:
            told = True
            log.info("waiting for process 0 at %s: %s", who.coordinator, why)
        time.sleep(min(0.3, left))
    advice = (
        "That address is loopback, which reaches this host alone: most likely process 0 is on "
        "another; give the address of its host. If it is on this one, check that it runs"
        if who.loopback
        else "Check that process 0 runs, that the address is that of its host, and that no "
        "firewall is between"
    )
    raise PeerLost(
        f"process {who.index} of {who.count} cannot reach process 0 at {who.coordinator} "
        f"({who.origin}) within {timeout_secs:g} s: {why}. {advice}; then run again."
    )


def listen(who: ProcessIdentity, address: tuple[str, int]) -> socket.socket:
    """Returns a listening socket of process 0: on loopback if that is its address, else on all.

    Raises:
      BadInput: the port is taken.
    """
    try:
        if who.loopback:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            return socket.create_server(address, family=family, backlog=who.count)
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", address[1]), family=socket.AF_INET6, dualstack_ipv6=True, backlog=who.count
            )
        return socket.create_server(("", address[1]), backlog=who.count)
    except OSError as e:
        raise BadInput(
            f"process 0 cannot listen on port {address[1]} of {socket.gethostname()} "
            f"(coordinator {who.coordinator}, {who.origin}): {e.strerror}; another program, or an "
            "earlier run that has not ended, uses it. End that, or give another port."
        ) from e


def free_address() -> str:
    """Returns HOST:PORT, by which other hosts reach a port of this one that nothing uses."""
    host = socket.gethostname()
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only looks up the way there
        host = probe.getsockname()[0]
    with socket.create_server(("", 0)) as probe:
        return f"{host}:{probe.getsockname()[1]}"


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:10])) + (" ..." if len(indices) > 10 else "")
    return f"process{'es' if len(indices) > 1 else ''} {shown}"
