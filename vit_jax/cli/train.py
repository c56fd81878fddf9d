# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax train --config=FILE[:ARGS] --workdir=DIR [--config.key=value ...]`."""

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from vit_jax import console
from vit_jax.cli import arguments
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.config import sections
    from vit_jax.runtime.elastic import Group

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax train --config=vit_jax:quickstart --workdir=runs/quickstart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    arguments.recipe(parser)
    parser.add_argument(
        "--help-config",
        action=_HelpConfig,
        nargs="?",
        const="",
        metavar="KEY",
        help="print the reference of a section or a key of the configuration, and exit",
    )
    several = parser.add_argument_group(
        "several processes",
        "detected under Slurm, MPI, Kubernetes, SkyPilot and on TPUs; see docs/processes.md",
    )
    several.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address on which process 0 listens"
    )
    several.add_argument("--num_processes", metavar="N", help="number of processes of the run")
    several.add_argument("--process_id", metavar="I", help="number of this process, from 0")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument(
        "--branch",
        metavar="RUN@STEP",
        help="begin with the whole state of a step of another run (or RUN, RUN@best), to give it "
        "another length or schedule; short for --config.branch=RUN@STEP, see docs/runs.md",
    )


class _HelpConfig(argparse.Action):
    """Prints a part of the reference and exits, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *arguments: Any) -> None:
        from vit_jax.config import reference

        try:
            console.show(reference.text(arguments[1]), file=sys.stdout)
        except BadInput as e:
            parser.exit(e.exit_code, f"vit_jax: {e}\n")
        parser.exit()


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax.runtime import coordinated_stop

    with coordinated_stop.listening(args.workdir):
        return _run(args, rest)


def _run(args: argparse.Namespace, rest: list[str]) -> int:
    from vit_jax.config import load as config_lib

    overrides = arguments.overrides(args, rest)
    if args.branch is not None:
        if not args.branch:
            raise BadInput("--branch is empty; give RUN@STEP, or leave it out.")
        if any(override.startswith("--config.init=") for override in overrides):
            raise BadInput(
                "--branch and --config.init cannot be given together: a branch begins with the "
                "whole state of a run, --config.init with weights alone. Leave one of them out."
            )
        overrides.append(f"--config.branch={args.branch}")
    config = config_lib.load(args.config, overrides)
    from vit_jax.config import provenance  # after the config, because this takes seconds
    from vit_jax.runtime import coordination, process_identity, recovery
    from vit_jax.runtime.process_identity import ProcessIdentity
    from vit_jax.training import train

    if not args.workdir:
        raise BadInput("--workdir is empty; give the folder of the run.")
    tpu = config.platform in ("auto", "tpu") and "tpu" in coordination.present_accelerators()
    who = process_identity.resolve(vars(args), os.environ, tpu=tpu)
    recipe = provenance.recipe(args.config, overrides)
    recovery.passed("imports")
    workdir = storage.workdir(args.workdir)
    meeting: contextlib.AbstractContextManager[Group | None] = contextlib.nullcontext()
    if config.elastic.secs and who is not None:
        from vit_jax.config import validation
        from vit_jax.reports import summary
        from vit_jax.runtime import elastic

        validation.check_elastic(config)  # before it waits for others
        meeting = elastic.joined(workdir, who, config.elastic, workdir / summary.RESULTS_FILE)
    with meeting as group:
        who = group.who if group else who
        results = train.train(config, workdir, who, recipe, group)
    if not isinstance(who, ProcessIdentity) or who.index == 0:
        changed = provenance.changed(recipe, config) if recipe else []
        _show(results, config.expected, changed, args)
    return 0


def _show(
    results: dict[str, Any],
    expected: "sections.Expected",
    changed: list[str],
    args: argparse.Namespace,
) -> None:
    """Prints the summary; the results may come from a file of an earlier start.

    Raises:
      BadInput: the file is damaged.
    """
    from vit_jax.reports import summary as summary_lib

    try:
        text = summary(results, expected, changed, args)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise BadInput(
            f"{storage.path(args.workdir) / summary_lib.RESULTS_FILE} is damaged: it does not hold "
            f"the results of a run ({type(e).__name__}: {e}). Remove it and run the same command "
            "again: it is written anew from the last checkpoint."
        ) from e
    console.show(text, file=sys.stdout)


def summary(
    results: dict[str, Any],
    expected: "sections.Expected",
    changed: list[str],
    args: argparse.Namespace,
) -> str:
    """Returns the summary for people: results, where files are, and the next command."""
    from vit_jax.config import recipes
    from vit_jax.reports import summary as summary_lib
    from vit_jax.reports.run import make
    from vit_jax.storage import jsonl
    from vit_jax.training import metric_writer

    workdir = storage.path(args.workdir)
    drawn = not storage.is_remote(workdir) and any(workdir.glob(metric_writer.EVENT_FILES))
    curves = f" (curves: tensorboard --logdir={workdir})" if drawn else ""
    given = {"finetune": "", "segment": " --out=predicted", "detect": " --out=preds.json"}
    more = given.get(recipes.split(args.config)[0].stem)
    following = (
        f"vit_jax predict {workdir} /path/to/images{more}"
        if more is not None
        else "vit_jax train --config=vit_jax:finetune --workdir=runs/mine "
        "--config.data.source=folder:/path/to/images"
    )
    lines = [
        "",
        summary_lib.results_table(results),
        "",
        summary_lib.verdict(results, expected, changed),
        f"checkpoint  {workdir / results['checkpoint']}",
        f"metrics     {jsonl.rows_path(workdir / jsonl.METRICS_FILE)}{curves}",
        f"results     {workdir / summary_lib.RESULTS_FILE}",
        f"report      {workdir / make.FILE}" if (workdir / make.FILE).exists() else "",
        f"next        {following}",
    ]
    return "\n".join(line for i, line in enumerate(lines) if line or i < 3)
