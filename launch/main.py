# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The command line: one engine, one verb, one job.

Start from `main`.

python -m launch ENGINE VERB --config=FILE[:ARGS] --workdir=DIR [--config.key=value ...]
python -m launch report WORKDIR...

In a wheel the package is `vit_jax.launch`: `python -m vit_jax.launch`.
"""

import argparse
import dataclasses
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_jax.cli import arguments
from vit_jax.errors import BadInput, PeerLost, RunFailed, unknown

from . import running
from .job import Command

ENGINES = {
    "local": "this machine, in the foreground",
    "slurm": "a Slurm cluster",
    "gke": "Kubernetes: JobSet, with or without Kueue",
    "tpu_vm": "TPU VMs by gcloud, without Kubernetes",
    "sky": "SkyPilot managed jobs",
}
VERBS = {
    "render": "show (or write into --out) the files and the engine's commands; run nothing",
    "submit": "check, write the files, show the commands and run them",
    "status": "show the state of the job",
    "logs": "show the output of the job",
    "cancel": "stop the job and release its machines",
}
_PROGRAM = f"python -m {__package__}"
_RENDER = "render --config=vit_jax:quickstart"
_SHARED, _BUCKET = "--workdir=/shared/runs/mine", "--workdir=gs://bucket/runs/mine"
EXAMPLES = {
    "local": f"{_PROGRAM} local {_RENDER} --workdir=runs/mine",
    "slurm": f"{_PROGRAM} slurm {_RENDER} {_SHARED} --accelerator=h100-16 --partition=gpu",
    "gke": f"{_PROGRAM} gke {_RENDER} {_BUCKET} --accelerator=v5e-32 "
    f"--image=registry.example/vit_jax@sha256:{'0' * 64}",
    "tpu_vm": f"{_PROGRAM} tpu_vm {_RENDER} {_BUCKET} --accelerator=v5e-32 --project=mine "
    "--zone=us-central1-a",
    "sky": f"{_PROGRAM} sky {_RENDER} {_BUCKET} --accelerator=h100-16",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 done, 2 bad input, else the engine's code.

    Args:
      argv: arguments without the program's name (default: those of the process).
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("vit_jax").setLevel(logging.INFO)
    try:
        if argv[:1] == ["report"]:
            from . import report  # imports jax

            return report.main(argv[1:])
        engine = _engine(argv)
        args, rest = parser(engine).parse_known_args(argv)
        return _run(engine, args, rest)
    except SystemExit as e:  # argparse has printed its message
        return int(e.code or 0)
    except (BadInput, RunFailed, PeerLost) as e:
        print(f"launch: {e}", file=sys.stderr)
        return e.exit_code


def _engine(argv: Sequence[str]) -> str:
    word = argv[0] if argv else ""
    if word not in ENGINES and not word.startswith("-"):
        raise unknown("engine", word, [*ENGINES, "report"])
    return word if word in ENGINES else ""


def parser(engine: str) -> argparse.ArgumentParser:
    """Returns the parser with the arguments of one engine; "" has only the common arguments."""
    commands = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Runs a configuration on this machine, a cluster or a cloud. `report "
        "WORKDIR...` shows how much of the time of runs was spent on training.",
        epilog=f"example: {EXAMPLES[engine or 'local']}",
        allow_abbrev=False,
    )
    add = commands.add_argument
    add("engine", choices=ENGINES, help="; ".join(map(": ".join, ENGINES.items())))
    add("verb", choices=VERBS, help="; ".join(map(": ".join, VERBS.items())))
    arguments.recipe(commands, required=False)
    add("--workdir", required=True, metavar="DIR", help="folder of the run or the sweep")
    add(
        "--accelerator",
        default="",
        metavar="NAME",
        help="accelerator and size as sold: v4-256, h100-16",
    )
    add("--slices", type=int, default=1, metavar="N", help="number of slices (default: 1)")
    add(
        "--procs_per_node", choices=["per_node", "per_gpu"], default="per_node",
        help="one process for each machine (default), or for each GPU",
    )  # fmt: skip
    add("--name", default="", help="name of the job (default: derived from the workdir)")
    add("--out", default="", metavar="DIR", help="folder for the files (default: "
                      "WORKDIR/launch for a local workdir, else runs/launch/NAME)")  # fmt: skip
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment variable of the trainer; can be repeated",
    )
    add("--sweep", action="store_true", help="launch all points of the recipe's sweep()")
    add("--stage", default="", metavar="NAME", help="stage of the sweep (default: first)")
    add(
        "--parallel",
        type=int,
        metavar="N",
        help="points of the sweep at the same time (default: local 1, slurm as many as fit)",
    )
    add("--no_plan", action="store_true", help="submit without `vit_jax plan`")
    if engine:
        own = commands.add_argument_group(engine)
        for field in dataclasses.fields(_module(engine).Options):
            _add(own, field)
    return commands


def _add(group: Any, field: dataclasses.Field[Any]) -> None:
    """Adds the flag of one option, with the type of its default."""
    more: dict[str, Any] = {"help": field.metadata["help"]}
    if isinstance(field.default, tuple):
        more |= {"action": "append"}
    elif isinstance(field.default, bool):
        more |= {"action": "store_true"}
    else:
        more |= {"type": type(field.default)}
    if "choices" in field.metadata:
        more |= {"choices": field.metadata["choices"]}
    default = [] if isinstance(field.default, tuple) else field.default
    group.add_argument(f"--{field.name}", default=default, **more)


def _module(engine: str) -> Any:
    return importlib.import_module(f"{__package__}.engines.{engine}")


def _run(engine: str, args: argparse.Namespace, rest: Sequence[str]) -> int:
    flags = [option for action in parser(engine)._actions for option in action.option_strings]
    for text in rest:
        if not text.startswith("--config."):
            raise unknown(f"argument of {engine}", text.partition("=")[0], flags)
    from . import assemble  # after errors of the flags, because it takes seconds

    if args.parallel is not None and args.parallel < 1:
        raise BadInput(f"--parallel={args.parallel}; give a number of runs from 1 on.")
    folder = assemble.place(args, engine)[2]
    if not args.config:
        if args.verb in ("render", "submit"):
            raise BadInput("--config is missing; give a recipe such as vit_jax:quickstart.")
        return _later(args.verb, running.recorded(engine, args.verb, folder), folder)
    module = _module(engine)
    options = module.Options(**{
        f.name: tuple(value) if isinstance(value := getattr(args, f.name), list) else value
        for f in dataclasses.fields(module.Options)
    })  # fmt: skip
    assembled = assemble.assemble(args, rest, engine, module.CODE)
    rendered = module.render(assembled.job, options)
    if args.verb in ("status", "logs", "cancel"):
        return _later(args.verb, getattr(rendered, args.verb), folder)
    from . import check

    runs = len(assembled.job.runs)
    machines = check.machines(assembled.job)
    print(f"# {assembled.job.name}: {runs} run{'s' * (runs > 1)}, each on {machines}")
    if args.verb == "render":
        if args.out:
            running.write(rendered, engine, folder)
        print(running.show(rendered, folder if args.out else None))
        return 0
    if not args.no_plan:
        print(f"# {check.plan(assembled.job, assembled.configs)}")
    commands = running.not_run_yet(rendered.submit)
    if not commands:
        return 0  # keeps the files of a running job
    if assembled.stage is not None:
        sweep, stage, points = assembled.stage
        assemble.begin(sweep, stage, points, assembled.job.workdir)
    running.write(rendered, engine, folder)
    print(running.show(rendered, folder))
    return running.run(commands, all_of_them=False)


def _later(verb: str, commands: Sequence[Command], folder: Path) -> int:
    """Runs status, logs or cancel of a submitted job."""
    code = running.run(commands, all_of_them=True)
    if verb == "cancel" and not code:
        running.cancelled(folder)
    return code
