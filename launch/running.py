# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes and shows the rendered files, and runs the engine's commands.

Start from `show`.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput, writing

from .job import Command, Rendered

VERBS = ("submit", "status", "logs", "cancel")
RECORD_FILE = "launch.json"  # commands of status, logs and cancel, for later
CANCELLED = "cancelled"


def write(rendered: Rendered, engine: str, folder: Path) -> None:
    """Writes the files and records the commands, in addition to those of uncancelled jobs.

    Raises:
      BadInput: the folder is not writable.
    """
    with writing(folder):
        for file in rendered.files:
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = file.content.encode() if isinstance(file.content, str) else file.content
            path.write_bytes(content)
            path.chmod(file.mode)
        try:
            before = _read(folder)
        except (OSError, ValueError):
            before = {}
        record: dict[str, Any] = {"engine": engine}
        for verb in VERBS[1:]:
            argvs = [list(command.argv) for command in getattr(rendered, verb)]
            known = before.get(verb, []) if before.get("engine") == engine else []
            record[verb] = known + [argv for argv in argvs if argv not in known]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _read(folder: Path) -> dict[str, Any]:
    """Reads the uncancelled record; raises OSError or ValueError if there is no record."""
    record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    if not isinstance(record, dict):
        raise ValueError("no record")
    return {} if record.get(CANCELLED) else record


def cancelled(folder: Path) -> None:
    """Records that all submitted jobs are cancelled; the next submission begins anew."""
    try:
        record = _read(folder)
    except (OSError, ValueError):
        return
    with writing(folder):
        (folder / RECORD_FILE).write_text(
            json.dumps({**record, CANCELLED: True}, indent=1) + "\n", encoding="utf-8"
        )


def recorded(engine: str, verb: str, folder: Path) -> list[Command]:
    """Returns the recorded commands of a verb.

    Raises:
      BadInput: the folder has no record, or one of another engine.
    """
    try:
        record = _read(folder)
        commands = [Command(tuple(map(str, argv))) for argv in record[verb]]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise BadInput(
            f"{folder / RECORD_FILE} is not there: nothing was submitted with this --workdir (and "
            "--name, --out). Give those of `submit`, or its --config and other arguments as well."
        ) from e
    if record["engine"] != engine:
        raise BadInput(f"{folder} was submitted by {record['engine']}; use that engine.")
    return commands


def show(rendered: Rendered, folder: Path | None) -> str:
    """Returns the commands of all verbs as shell lines, after the files if these are not written.

    Args:
      rendered: what to show.
      folder: folder that holds the files; None shows their content.
    """
    lines = []
    for file in rendered.files:
        if folder is not None:
            lines.append(f"wrote {folder / file.name}")
        elif isinstance(file.content, str):
            lines += [f"# ---------------- {file.name}", file.content.rstrip("\n"), ""]
        else:
            lines += [f"# ---------------- {file.name}: {len(file.content):,} bytes", ""]
    for verb in VERBS:
        lines += [f"# {verb}", *map(str, getattr(rendered, verb))]
    return "\n".join(lines)


def not_run_yet(commands: Sequence[Command]) -> list[Command]:
    """Returns the commands that were not run yet, according to their `unless`; changes nothing.

    Raises:
      BadInput: a failed earlier job is in the way, or a program is not installed.
    """
    asked = dict[tuple[str, ...], subprocess.CompletedProcess[str]]()
    commands_left = list[Command]()
    for command in commands:
        if shutil.which(command.argv[0]) is None:
            raise _missing(command.argv[0])
        if command.unless and command.unless not in asked:
            asked[command.unless] = subprocess.run(
                command.unless, capture_output=True, text=True, errors="replace"
            )
        there = asked.get(command.unless)
        if there is None or there.returncode:
            commands_left.append(command)
            continue
        if (state := there.stdout.strip()) in command.dead:
            raise BadInput(f"the earlier submission is {state}: `cancel` it, then submit again.")
        print(f"$ {command}\n# is there already", flush=True)
    return commands_left


def run(commands: Sequence[Command], *, all_of_them: bool) -> int:
    """Prints and runs commands one after another; returns the first code that is not 0, or 0.

    Args:
      commands: the commands to run.
      all_of_them: whether to go on after a failed command, unless a person interrupted it.

    Raises:
      BadInput: a program is not installed.
    """
    first = 0
    for command in commands:
        print(f"$ {command}", flush=True)
        code, interrupted = _code(command.argv)
        if code:
            print(f"launch: {command.argv[0]} ended with code {code}", file=sys.stderr)
            first = first or code
        if interrupted or (code and not all_of_them):
            break
    return first


def _code(argv: Sequence[str]) -> tuple[int, bool]:
    """Runs a command; returns its code, and whether Ctrl-C came.

    The command receives Ctrl-C as well, and may save.
    """
    if shutil.which(argv[0]) is None:
        raise _missing(argv[0])
    child = subprocess.Popen(argv)
    interrupted = False
    while True:
        try:
            code = child.wait()
        except KeyboardInterrupt:
            interrupted = True
            continue
        return code if code >= 0 else 128 - code, interrupted


def _missing(program: str) -> BadInput:
    return BadInput(
        f"{program} is not installed here; install it, or run the commands above where it is."
    )
