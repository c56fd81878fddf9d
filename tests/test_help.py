# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every --help: an example that the command takes, a description of each argument, defaults, units.

The examples that are quick are run, by `main` of this process.
"""

import argparse
import re
import shlex

import model_commands
import pytest

import launch.main
from vit_jax.cli import main

NO_DEFAULT = (None, False, "", [], 0, argparse.SUPPRESS)
UNITS = re.compile(
    "number|pixels|images|processes|nodes|classes|channels|threads|points|seed|slices|labels"
)


def inside(path, parser):
    """Yields the path and the parser of a command and of all commands inside it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from inside((*path, name), sub)


def every_parser():
    yield from inside(("vit_jax",), main.parser_of(main.COMMANDS))
    for engine in ("", *launch.main.ENGINES):
        yield from inside(("python", "-m", "launch", engine), launch.main.parser(engine))


PARSERS = {" ".join(path).strip(): parser for path, parser in every_parser()}


def example(parser):
    """The words of the example in a help text."""
    text = parser.epilog or ""
    (line,) = re.findall(r"example:\s+(.*)", text) or [""]
    return shlex.split(line.partition(" > ")[0])


COMMANDS = [name for name in PARSERS if name != "vit_jax"]


def test_all_commands_and_engines_are_walked():
    assert len(COMMANDS) == len(main.COMMANDS) + 5 + 9 + 1 + len(launch.main.ENGINES)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_the_command_takes(name):
    words, path = example(PARSERS[name]), name.split()
    assert words[: len(path)] == path
    if path[0] == "vit_jax":
        args, rest = main.parser_of(main.COMMANDS).parse_known_args(words[1:])
        assert not rest or main.COMMANDS[args.command].OVERRIDES
        assert getattr(args, "part", getattr(args, "action", path[-1])) in words
    else:
        _, rest = launch.main.parser(words[3]).parse_known_args(words[3:])
        assert not rest


@pytest.mark.parametrize("name", PARSERS)
def test_every_argument_is_described_with_its_default_and_its_unit(name):
    for action in PARSERS[name]._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        flag = action.option_strings or action.dest
        assert action.help, flag
        if action.option_strings and not action.required and action.default not in NO_DEFAULT:
            assert "default" in action.help, flag
        if action.type in (int, float):
            assert UNITS.search(action.help), flag


RUNS = {  # that need minutes, other files or other machines; other tests run their commands
    "bench", "evaluate", "features", "figures", "predict", "plan", "report", "sweep", "table",
    "train",
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("name", COMMANDS)
def test_quick_examples_run(name, digits_run, image_folder, tmp_path, monkeypatch, root, capsys):
    words = example(PARSERS[name])
    if words[1] in RUNS or words[:3] == ["vit_jax", "data", "prepare"]:
        pytest.skip("not quick: the tests of the pages run such a command")
    places = {
        "runs/quickstart": str(digits_run),
        "/path/to/images": str(image_folder),
        "configs/": f"{root}/configs/",
        "runs/": f"{tmp_path}/runs/",
    }
    for written, place in places.items():
        words = [
            word.replace(written, place, 1) if place not in word and str(digits_run) not in word
            else word
            for word in words
        ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if words[0] == "vit_jax":
        code, _, said = model_commands.command(capsys, *words[1:])
    else:
        code = launch.main.main(words[3:])
        said = capsys.readouterr().err
    assert code == 0, said
