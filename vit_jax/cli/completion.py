# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax completion SHELL`: a script that completes commands, flags, keys and files.

The script holds all words, so that the Tab key starts no program.
"""

import argparse
from typing import Any

from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax completion bash > vit_jax.bash"
SHELLS = ("bash", "zsh", "fish")
# Placeholders of arguments that are files or folders.
_FILES = ("FILE", "FILE[:ARGS]", "FILE_OR_RUN", "IMAGE", "PATH", "RUN", "WORKDIR")
_FOLDERS = ("DIR", "FOLDER")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    try:
        import shtab
    except ImportError as e:
        raise BadInput("shtab is not installed; install it with `pip install shtab`.") from e
    from vit_jax.cli import main
    from vit_jax.config import sections

    parser = main.parser_of(main.COMMANDS)
    keys = [name for name in sections.KEYS if "*" not in name]
    keys += [name.replace("*", split) for name in sections.KEYS for split in ("val", "test")
             if "*" in name]  # fmt: skip
    for command, sub in _subparsers(parser).items():
        if main.COMMANDS[command].OVERRIDES:
            for key in keys:
                sub.add_argument(f"--config.{key}", metavar="VALUE")
    _name_places(parser, shtab)
    print(shtab.complete(parser, args.shell))
    return 0


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return {name: sub for group in groups for name, sub in group.choices.items()}


def _name_places(parser: argparse.ArgumentParser, shtab: Any) -> None:
    """Marks the arguments of a parser, and of those inside it, that are files or folders."""
    for action in parser._actions:
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    for sub in _subparsers(parser).values():
        _name_places(sub, shtab)
