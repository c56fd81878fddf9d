# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs checks that never hang: each has a time limit, and blocking calls run in a child process.

A backend stuck in a driver cannot be interrupted; it can only be left behind. Start from `run`.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vit_jax.preflight.doctor.finding import Finding

_CHILD = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
try:
    found = getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))
except Exception as e:
    sys.exit(f"{type(e).__name__}: {' '.join(str(e).split())}")
print("\\n" + json.dumps(found))
"""


@dataclasses.dataclass(frozen=True)
class Check:
    """A check with its time limit.

    Attributes:
      name: first word of its lines.
      find: function that does the check.
      secs: time limit in seconds.
      late: what to do if the check takes longer.
    """

    name: str
    find: Callable[[], Sequence[Finding]]
    secs: float
    late: str


class Failed(Exception):
    """Raised if a child process ended without an answer; the message says why."""


def run(checks: Sequence[Check]) -> Iterator[Finding]:
    """Yields the findings of all checks in order; the checks run at the same time."""
    began, threads = time.monotonic(), []
    for check in checks:
        found: list[Finding] = []
        thread = threading.Thread(target=_find, args=(check, found), daemon=True)
        thread.start()
        threads.append((check, found, thread))
    for check, found, thread in threads:
        thread.join(max(0.0, began + check.secs - time.monotonic()))
        if thread.is_alive():
            found = [Finding(check.name, f"no answer within {check.secs:g} s", check.late)]
        yield from found


def _find(check: Check, found: list[Finding]) -> None:
    try:
        found += check.find()
    except Exception as e:  # one broken check must not hide the others
        said = f"could not be looked at ({type(e).__name__}: {e})"
        fix = "pip install -e ." if isinstance(e, ImportError) else "mend what it names"
        found.append(Finding(check.name, said, fix))


def call(
    function: str, args: Sequence[Any], secs: float, env: Mapping[str, str | None] = {}
) -> Any:
    """Calls `module:function` in a fresh process and returns its result, by way of JSON.

    Args:
      function: name of the function.
      args: its arguments.
      secs: longest wait in seconds.
      env: changes of the environment; None removes a variable.

    Raises:
      Failed: the process did not answer in time, or ended with an error, whose last line is the
        message.
    """
    whole = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, function, json.dumps(list(args))],
            env=whole, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
        )  # fmt: skip
        try:
            code = child.wait(secs)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver: left behind
                child.wait(2)
            raise Failed(f"no answer within {secs:g} s") from None
        for file in (out, errors):
            file.seek(0)
        answer, said = (file.read().decode(errors="replace") for file in (out, errors))
    if code:
        said = [line for line in said.splitlines() if line.strip()]
        last = said[-1].strip()[:500] if said else "it said nothing"
        raise Failed(f"{f'killed by signal {-code}' if code < 0 else 'failed'}: {last}")
    return json.loads(answer.splitlines()[-1])
