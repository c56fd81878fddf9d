# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax data prepare NAME --from=PATH`, `data check|show|bench SOURCE`."""

import argparse
import json
from typing import Any

SUMMARY = "prepare, check, show and time datasets"
OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax data check folder:/path/to/images"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of the four."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    source = {"metavar": "SOURCE", "help": "kind:rest, e.g. folder:PATH; see docs/data.md"}
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--data_dir", default="", metavar="DIR", help="of prepared datasets")
    shared.add_argument("--workers", type=int, default=0, metavar="N", help="0: one a core")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="one JSON object")

    check = actions.add_parser("check", help="is it whole?", parents=[shared, as_json])
    check.add_argument("source", **source)
    show = actions.add_parser("show", help="a sheet of training examples", parents=[shared])
    show.add_argument("source", **source)
    bench = actions.add_parser("bench", help="images/s of each stage", parents=[shared, as_json])
    bench.add_argument("source", **source)
    prepare = actions.add_parser("prepare", help="from what you have", parents=[shared])
    prepare.add_argument("name", metavar="NAME", help="e.g. imagenet2012, vtab/eurosat")
    prepare.add_argument("--from", dest="origin", required=True, metavar="PATH")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    return {}[args.action](args)


def _print(found: dict[str, Any], as_json: bool, text: str) -> None:
    print(json.dumps(found, indent=2) if as_json else text)
