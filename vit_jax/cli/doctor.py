# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax doctor [--workdir=DIR] [--config=FILE[:ARGS] ...]`."""

import argparse
import json

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax doctor --workdir=runs/quickstart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        default=".",
        help="folder that the run would write to (default: here)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE[:ARGS]",
        help="recipe of the run, which names its platform and the folder of its data",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Prints a line for each check; returns 1 if something is wrong, else 0."""
    from vit_jax.preflight import doctor

    config = None
    if args.config:
        from vit_jax.config import load as config_lib

        config = config_lib.load(args.config, rest)
    elif rest:
        raise BadInput(f"{rest[0]} was given without --config; give both.")
    findings = []
    for finding in doctor.examine(storage.path(args.workdir), config):
        findings.append(finding)
        if not args.json:
            print(finding.line(), flush=True)
    well = all(finding.ok for finding in findings)
    if args.json:
        checks = [{"check": f.check, "said": f.text, "fix": f.fix, "ok": f.ok} for f in findings]
        print(json.dumps({"ok": well, "checks": checks}, indent=2))
    return 0 if well else 1
