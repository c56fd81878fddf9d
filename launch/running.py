# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes what was rendered, shows it, and runs the engine's commands. Start from `show`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from launch.job import Command, Rendered
from vit_jax.errors import BadInput, writing

VERBS = ("submit", "status", "logs", "cancel")
RECORD_FILE = "launch.json"  # what status, logs and cancel are, for later


def write(rendered: Rendered, engine: str, folder: Path) -> None:
    """Writes the files, and notes the commands.

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
        commands = {verb: [list(c.argv) for c in getattr(rendered, verb)] for verb in VERBS[1:]}
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"engine": engine, **commands}, indent=1) + "\n"
        (folder / RECORD_FILE).write_text(text)


def recorded(engine: str, verb: str, folder: Path) -> list[Command]:
    """The commands of a verb, of what was written into a folder.

    Raises:
      BadInput: nothing was, or by another engine.
    """
    try:
        found = json.loads((folder / RECORD_FILE).read_text())
        commands = [Command(tuple(map(str, argv))) for argv in found[verb]]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise BadInput(
            f"{folder / RECORD_FILE} is not there: nothing was submitted with this --workdir (and "
            "--name, --out). Give those of `submit`, or its --config and other arguments as well."
        ) from e
    if found["engine"] != engine:
        raise BadInput(f"{folder} was submitted by {found['engine']}; give that in place.")
    return commands


def show(rendered: Rendered, folder: Path | None) -> str:
    """The commands of all verbs as a shell takes them, after the files unless they lie somewhere.

    Args:
      rendered: to be shown.
      folder: that holds the files; None: they are shown.
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


def run(commands: Sequence[Command]) -> int:
    """Runs commands one after another, each printed first; the code of the first that fails, or 0.

    Raises:
      BadInput: a program is not installed.
    """
    for command in commands:
        print(f"$ {command}", flush=True)
        try:
            if (
                command.unless
                and subprocess.run(command.unless, capture_output=True).returncode == 0
            ):
                print("# is there already", flush=True)
                continue
            code = subprocess.run(command.argv).returncode
        except FileNotFoundError as e:
            raise BadInput(
                f"{command.argv[0]} is not installed here; install it, or run the commands above "
                "where it is."
            ) from e
        except KeyboardInterrupt:
            return 130
        if code:
            print(f"launch: {command.argv[0]} ended with code {code}", file=sys.stderr)
            return code if code > 0 else 128 - code
    return 0
