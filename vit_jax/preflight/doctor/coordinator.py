# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks that the processes of a run would find each other at the coordinator's address.

Start from `check`.
"""

import socket
from collections.abc import Mapping
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.preflight.doctor.finding import Finding
from vit_jax.runtime import process_identity
from vit_jax.runtime.process_identity import ProcessIdentity

SECS = 5.0
_ELSE = "give --coordinator=HOST:PORT with a host and port that all processes reach"


def check(address: str, env: Mapping[str, str]) -> list[Finding]:
    """Checks the given address, or the one that the engine around this process names.

    Args:
      address: HOST:PORT; "" takes the address from the environment.
      env: environment variables.
    """
    # The number is arbitrary: every process but the first checks the most.
    given = {"coordinator": address, "num_processes": "2", "process_id": "1"} if address else {}
    try:
        who = process_identity.resolve(given, {} if address else env)
        if who is None:
            return [Finding("coordinator", "none is needed: a process alone")]
        if not isinstance(who, ProcessIdentity):
            return [Finding("coordinator", "none is needed: hosts of a TPU find each other")]
        process_identity.check(who)
    except BadInput as e:
        said, _, fix = str(e).rstrip(".").rpartition("; ")
        return [Finding("coordinator", said, fix)]
    host, port = who.address
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    where = f"{who.coordinator} ({found[4][0]})" if host != found[4][0] else who.coordinator
    error = _connect(found[:3], found[4])
    if error is None:
        said = f"{where} answers: process 0 of a run, or another program"
        taken = not address and who.index == 0
        return [Finding("coordinator", said, f"end that, or {_ELSE}" if taken else "")]
    if not isinstance(error, ConnectionRefusedError):
        said = f"{where} cannot be reached ({error.strerror or error})"
        return [Finding("coordinator", said, f"open the port in the firewall between, or {_ELSE}")]
    return [_free(found[:3], found[4], where)]


def _connect(kind: tuple[Any, ...], place: tuple[Any, ...]) -> OSError | None:
    """Returns why nothing answers at an address; None if something does."""
    with socket.socket(*kind) as probe:
        probe.settimeout(SECS)
        try:
            probe.connect(place)
        except OSError as e:
            return e
    return None


def _free(kind: tuple[Any, ...], place: tuple[Any, ...], where: str) -> Finding:
    """Describes a reachable host on which nothing listens: this one, or another."""
    with socket.socket(*kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except PermissionError:
            return Finding("coordinator", f"{where} has a port that only root may open", _ELSE)
        except OSError:  # not an address of this host
            said = f"{where}: nothing listens there yet, process 0 has not started (or a firewall"
            said += " between refuses)"
            return Finding("coordinator", said)
    return Finding("coordinator", f"{where} is this host, and the port is free")
