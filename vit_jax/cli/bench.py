# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax bench PART [--models=NAMES] [--json]`.

The parts are train, eval, predict, checkpoint, startup, restart, input, tpu and all.
"""

import argparse
import importlib.util
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vit_jax.errors import BadInput, RunFailed
from vit_jax.hardware.detect import present_accelerators

if TYPE_CHECKING:
    from vit_jax.preflight.bench.interleaved import Asked

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax bench train --models=S/16 --batch=16 --resolution=224 --dtype=float32 --json"
_OF_MODELS = {
    "train": "measure training steps",
    "eval": "measure evaluation steps",
    "predict": "measure predictions",
    "checkpoint": "measure saving: how long it takes, and how long the training loop waits for it",
}
_OTHERS = {
    "startup": "measure imports, commands, and the quickstart until its first step",
    "restart": "kill a process of a run, and measure the seconds to the first new step",
    "input": "measure decoding, cropping and transfer of generated photos",
}

_TPU = "compare training steps by the TPU compiler's clock; needs no TPU"
_TPU_EXAMPLE = "vit_jax bench tpu --models=B/16,L/16 --batch=64 --tpu=v5e,v4 --json"

Part = tuple[dict[str, Any], str]  # for programs, for people


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    big = bool(present_accelerators())
    every = {**_OF_MODELS, **_OTHERS, "all": "measure all of these", "tpu": _TPU}
    for name, text in every.items():
        example = _TPU_EXAMPLE if name == "tpu" else f"vit_jax bench {name} --json"
        sub = parts.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,  # or it breaks the example
            allow_abbrev=False,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        if name in _OTHERS:
            continue
        models, batch = ("B/16,L/16", 128) if big else ("Ti/16,S/16", 16)
        dtype = "bfloat16" if big or name == "tpu" else "float32"
        add = sub.add_argument
        if name == "tpu":
            models, batch = "B/16", 64
            add(
                "--tpu",
                default="v5e",
                metavar="NAMES",
                help="generations, separated by commas: v2 to tpu7x (default: v5e)",
            )
        add(
            "--models",
            default=models,
            metavar="NAMES",
            help=f"variants, separated by commas (default: {models})",
        )
        add(
            "--batch",
            type=int,
            default=batch,
            metavar="N",
            help=f"images per step (default: {batch})",
        )
        add(
            "--resolution",
            type=int,
            default=224,
            metavar="PIXELS",
            help="side of the images in pixels (default: 224)",
        )
        add(
            "--dtype",
            choices=("float32", "bfloat16"),
            default=dtype,
            help=f"precision of the computation (default: {dtype})",
        )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    asked, failed = [], False
    if args.part in _OTHERS:
        if rest:
            raise BadInput(f"bench {args.part} takes no {rest[0]!r}.")
    else:
        asked = _asked(args, tuple(rest))
    if args.part == "tpu":
        results, text = _of_tpus(asked, args.tpu.split(","))
        failed = all("error" in row["ours"] for row in results["rows"])
    elif args.part != "all":
        results, text = _measured(args.part, asked)
        failed = any("error" in row for row in results.get("rows", ()))
    else:
        parts = dict[str, Part]()
        for name in (*_OF_MODELS, *_OTHERS):
            try:
                parts[name] = _measured(name, asked)
            except (BadInput, RunFailed) as e:  # the other parts still count
                parts[name], failed = ({"error": str(e)}, f"not measured: {e}"), True
        results = {name: figures for name, (figures, _) in parts.items()}
        text = "\n\n".join(f"{name}\n{shown}" for name, (_, shown) in parts.items())
    print(json.dumps(results, indent=2) if args.json else text)
    if failed and args.part == "tpu":
        raise BadInput(
            "bench tpu: no step of ours has an estimate; the reason is above. Where one does not "
            "fit, give a smaller --batch."
        )
    return int(failed)


def _asked(args: argparse.Namespace, overrides: tuple[str, ...]) -> list["Asked"]:
    """Returns the task of every candidate; reports errors before the first measurement."""
    from vit_jax.preflight.bench import our_steps
    from vit_jax.preflight.bench.interleaved import Asked

    asked = [
        Asked(name, args.batch, args.resolution, args.dtype, overrides)
        for name in re.split(r",(?![^(]*\))", args.models)  # my:Net(a=1,b=2) is one name
    ]
    for one in asked:
        our_steps.config(one)
    return asked


def _measured(part: str, asked: list["Asked"]) -> Part:
    from vit_jax import console

    with console.bar(f"bench {part}") as progress:
        if part == "checkpoint":
            return _checkpoint(asked, progress)
        if part == "startup":
            from vit_jax.preflight.bench import startup

            results = startup.measure(progress=progress)
            return results, startup.text(results)
        if part == "restart":
            from vit_jax.preflight.bench import restart

            results = restart.measure(progress=progress)
            return results, restart.text(results)
        if part == "input":
            return _input()
        from vit_jax.preflight.bench import suite

        results = suite.table(part, asked, progress=progress)
        return results, suite.text(results)


def _of_tpus(asked: list["Asked"], names: list[str]) -> Part:
    from vit_jax import console
    from vit_jax.preflight.bench import suite, tpu_clock

    tpu_clock.check(names)
    with console.bar("bench tpu") as progress:
        rows = tpu_clock.table(asked, names, progress=progress)
    return {"versions": suite.versions(), "rows": rows}, tpu_clock.text(rows)


def _checkpoint(asked: list["Asked"], progress: Callable[[int, int], None]) -> Part:
    from vit_jax.preflight.bench import checkpoint_speed, suite
    from vit_jax.runtime.worker_process import Child

    rows = []
    for done, one in enumerate(asked):
        progress(done, len(asked))
        with Child(checkpoint_speed.answering, one) as child:
            rows.append(child.ask(checkpoint_speed.ROUNDS))
    results = {"device": rows[0].pop("device"), "versions": suite.versions(), "rows": rows}
    return results, checkpoint_speed.text(rows)


def _input() -> Part:
    if importlib.util.find_spec("tensorflow") is None:
        return {"rows": []}, "not measured: TensorFlow is not installed"
    from vit_jax.data.inspect import bench
    from vit_jax.preflight.bench import inputs
    from vit_jax.runtime.worker_process import Child

    with Child(inputs.answering) as child:
        results = child.ask(3)
    return results, bench.as_text(results)
