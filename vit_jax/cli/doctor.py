# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax doctor [--workdir=DIR] [--coordinator=HOST:PORT] [--config=FILE[:ARGS] ...]`."""

import argparse
import dataclasses
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
        "--coordinator",
        metavar="HOST:PORT",
        default="",
        help="address on which process 0 listens, or will listen",
    )
    parser.add_argument(
        "--config",
        metavar="FILE[:ARGS]",
        help="recipe of the run; also checks its platform, data and checkpoints",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Prints a line for each check; returns 1 if something is wrong, else 0."""
    from vit_jax.preflight.doctor import examination

    config = None
    if args.config:
        from vit_jax.config import load as config_lib

        config = config_lib.load(args.config, rest)
    elif rest:
        raise BadInput(f"{rest[0]} was given without --config; give both.")
    found = []
    for finding in examination.examine(storage.path(args.workdir), args.coordinator, config):
        found.append(finding)
        if not args.json:
            print(finding.line(), flush=True)
    if args.json:
        checks = [dataclasses.asdict(f) | {"ok": f.ok} for f in found]
        print(json.dumps({"ok": all(f.ok for f in found), "checks": checks}, indent=2))
    return 0 if all(f.ok for f in found) else 1
