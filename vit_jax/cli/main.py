# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The command line: sub-commands, their dispatch, and the handling of errors.

Start from `main`.

`vit_jax @FILE` takes the arguments from a job file (`job_file`), and checks the expectations in it.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Container, Sequence

from vit_jax import __version__, console
from vit_jax.config import plugins
from vit_jax.errors import BadInput, PeerLost, RunFailed, Stopped

# Descriptions of the commands in `vit_jax --help`.
SUMMARIES = {
    "train": "train a model, or continue the run in a workdir",
    "sweep": "run all points of a recipe's sweep on this machine and collect the results",
    "plan": "plan a run for an accelerator that you need not have: memory, time, cost",
    "table": "show a table or figure of the papers beside the results of your runs",
    "report": "write a page about a run, or a page that compares several runs",
    "predict": "print the most likely classes of images",
    "evaluate": "measure accuracy by class and confusions on a dataset; write JSON and a page",
    "features": "write the representations of images, or of a dataset, as npz",
    "fewshot": "evaluate a representation with few images per class: ridge, k-NN or linear probe",
    "export": "export weights, or the whole computation, for other programs",
    "save": "write the weights of a run to a file, with low-rank matrices merged",
    "push": "upload the weights of a run to the Hugging Face hub, with a model card",
    "data": "prepare, check, show and time datasets",
    "models": "list the models: sizes, parameters, cost, published weights",
    "inspect": "show the format, architecture and tensors of a weights file or a run",
    "figures": "show the inside of a model: filters, position embeddings, attention",
    "completion": "print the completion script of a shell: bash, zsh or fish",
    "doctor": "check whether a run would work on this machine, and suggest fixes",
    "bench": "measure the speed on this machine, in comparison with plain jax and timm",
}
# Command -> its module, which is imported only for that command.
COMMANDS = plugins.Registry({name: f"vit_jax.cli.{name}" for name in SUMMARIES})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; see `EXIT_CODES`.

    Args:
      argv: arguments without the program's name (default: those of the process).
    """
    argv = sys.argv[1:] if argv is None else argv
    job = None
    console.begin()
    # About texts such as (1or 2) in arguments, which `BadInput` names.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
    try:
        if len(argv) == 1 and argv[0].startswith("@"):
            from vit_jax.runtime import job_file

            job = job_file.read(argv[0][1:])
            argv = job.arguments
    except BadInput as e:
        console.show(f"vit_jax: {e}")
        return e.exit_code
    parser = _parser(argv)
    try:
        args, rest = parser.parse_known_args(argv)
        if getattr(args, "images", None) == [] and all(w[:1] != "-" or w == "-" for w in rest):
            args.images, rest = rest, []  # argparse fills `*` only up to the first option
        if rest and not (command := COMMANDS[args.command]).OVERRIDES:
            parser.error(f"{args.command} takes no {rest[0]!r}; an example: {command.EXAMPLE}")
    except SystemExit as e:  # argparse has printed its message
        return int(e.code or 0)
    logging.basicConfig(
        format="%(asctime)s %(message)s", datefmt="%H:%M:%S", handlers=[console.Handler()]
    )
    logging.getLogger("vit_jax").setLevel(logging.INFO)
    logging.getLogger("absl").setLevel(logging.ERROR)  # orbax's and clu's running commentary
    if args.offline:
        from vit_jax.storage import cache

        cache.forbid_downloads()
    try:
        if job is not None:
            job.check(rest, getattr(args, "config", None))
        with plugins.trusting(args.trust_code):
            return COMMANDS[args.command].run(args, rest)
    except (BadInput, RunFailed, PeerLost, Stopped) as e:
        console.show(f"vit_jax: {e}")
        return e.exit_code
    except KeyboardInterrupt:
        if args.command in ("train", "sweep"):  # they catch it and save their state
            raise
        console.show("vit_jax: interrupted; run the same command again.")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output, such as `head`, has enough
        if args.command == "train":  # goes on in silence: another pipe broke
            raise
        console.silence(sys.stdout)
        return 0


INTERRUPTED = 130  # the convention of shells
EXIT_CODES = (
    "exit codes: 0 done; 1 failed and needs a person; 2 bad input, the message says what to do; 42 "
    "stopped and saved, run again; 43 hung or lost a process, run again; 130 interrupted (Ctrl-C); "
    "for train and sweep, 130 or 143: ended by a second signal without saving"
)


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser of all commands; it knows the arguments only of the command in `argv`."""
    return parser_of([word for word in argv if not word.startswith("-")][:1])


def parser_of(asked: Container[str]) -> argparse.ArgumentParser:
    """Returns the parser of all commands, with the arguments of those in `asked`."""
    parser = argparse.ArgumentParser(
        prog="vit_jax",
        description="Vision Transformers with JAX.",
        epilog=f"{EXIT_CODES}; `vit_jax COMMAND --help` shows an example",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        if name not in asked:
            commands.add_parser(name, help=SUMMARIES.get(name))
            continue
        module = COMMANDS[name]
        sub = commands.add_parser(
            name,
            help=SUMMARIES.get(name),
            description=SUMMARIES.get(name),
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,  # or it breaks the example
            allow_abbrev=False,
        )
        sub.add_argument("--offline", action="store_true", help="never use the network")
        sub.add_argument(
            "--trust-code",
            action="store_true",
            help="import the code that the config.yaml of a run names as MODULE:NAME",
        )
        module.add_arguments(sub)
    return parser
