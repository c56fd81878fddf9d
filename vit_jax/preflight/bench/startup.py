# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures the time to the first output of commands, in comparison with bare imports.

No command can be quicker than its imports. Each sample has its own process, and the candidates take
turns. Start from `measure`.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax.config import recipes
from vit_jax.errors import RunFailed
from vit_jax.hardware import detect
from vit_jax.models import variants
from vit_jax.preflight.bench.interleaved import spread
from vit_jax.runtime import goodput
from vit_jax.storage import jsonl
from vit_jax.weights import loading

ROUNDS = 5
_BARE = "import jax"
_FLAX = "import jax, flax.linen"
_TENSORFLOW = "import jax, flax.linen, tensorflow"
_MODELS = "import vit_jax.models"
# Commands that must answer before any heavy import; their output is not checked.
_ERROR = "--config.lenght=1"  # exit code 2
_TRAIN = ["train", "--config=vit_jax:quickstart"]
_COMMANDS = {
    "vit_jax --help": ["--help"],
    "vit_jax models": ["models"],
    "vit_jax inspect": ["inspect", "{weights}"],
    "a config error": [
        "train",
        "--config=vit_jax:quickstart",
        _ERROR,
        "--workdir=x",
    ],
}
_FIRST_STEPS = ("first step, nothing compiled", "first step, compile cache")
_MOST_SECS = 300


def measure(
    *, rounds: int = ROUNDS, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Times imports, commands, and the quickstart until the end of its first step.

    Args:
      rounds: samples of each candidate.
      progress: called with (processes ended, processes in total).

    Returns:
      `device`; `secs`: name -> `median` and `spread` (interquartile range) of a whole process;
      `ratio`: of `import vit_jax.models` to `import jax, flax.linen`, and of each command to
      `import jax`, in the same round; `beyond_imports_secs`: how much longer the quickstart's first
      step takes than importing jax, flax and TensorFlow. Without TensorFlow the quickstart is left
      out.

    Raises:
      RunFailed: the quickstart ended before its first step.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        candidates = _candidates(folder)
        secs: dict[str, list[float]] = {name: [] for name in candidates}
        for turn in range(rounds + 1):  # the first round fills the file system's caches
            for place, (name, run) in enumerate(candidates.items(), 1):
                secs[name].append(run())
                progress(turn * len(candidates) + place, (rounds + 1) * len(candidates))
    kept = {name: found[1:] for name, found in secs.items()}
    against = {_MODELS: _FLAX} | dict.fromkeys(_COMMANDS, _BARE)
    quotient, difference = (lambda a, b: a / b), (lambda a, b: a - b)
    return {
        "device": detect.processor(),
        "secs": {name: spread(found) for name, found in kept.items()},
        "ratio": {name: _of(kept, name, bare, quotient) for name, bare in against.items()},
        "beyond_imports_secs": {
            name: _of(kept, name, _TENSORFLOW, difference) for name in _FIRST_STEPS if name in kept
        },
    }


def _of(
    secs: dict[str, list[float]], name: str, bare: str, how: Callable[[float, float], float]
) -> dict[str, float]:
    return spread([how(a, b) for a, b in zip(secs[name], secs[bare], strict=True)])


def _candidates(folder: Path) -> dict[str, Callable[[], float]]:
    """Returns the candidates: name -> a function that runs one and returns its seconds."""
    candidates: dict[str, Callable[[], float]] = {}
    for statement in (_BARE, _FLAX, _MODELS):
        candidates[statement] = lambda s=statement: _secs(["-c", s])
    weights = _weights(folder)
    for name, arguments in _COMMANDS.items():
        own = [text.format(weights=weights) for text in arguments]
        candidates[name] = lambda a=own: _secs(["-m", "vit_jax", *a])
    if importlib.util.find_spec("tensorflow") is None:
        return candidates
    candidates[_TENSORFLOW] = lambda: _secs(["-c", _TENSORFLOW])
    for name, cache in zip(_FIRST_STEPS, ("", str(folder / "compiled")), strict=True):
        candidates[name] = lambda c=cache: _until_first_step(c)
    return candidates


def _weights(folder: Path) -> Path:
    """Writes the weights of a small model, for `vit_jax inspect`."""
    cfg = variants.config(variant="Ti/16", classes=10)
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), variants.shapes(cfg, 224, 224))
    loading.save(folder / "weights.npz", variants.make(cfg), params)
    return folder / "weights.npz"


def _secs(arguments: list[str]) -> float:
    """Returns the seconds of a Python process, from its start to its end."""
    began = time.perf_counter()
    with _started(arguments, subprocess.DEVNULL) as process:
        code = process.wait()
    expected = 2 if _ERROR in arguments else 0
    if code != expected:
        raise RunFailed(f"python {' '.join(arguments)} ended with {code}, not {expected}.")
    return time.perf_counter() - began


def _until_first_step(cache: str) -> float:
    """Returns the seconds from the start of the quickstart to the end of its first step.

    The quickstart has a new workdir.
    """
    with (
        tempfile.TemporaryDirectory() as workdir,
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
    ):
        own = [f"--workdir={workdir}/run", f"--config.compile_cache={cache}"]
        began = time.time()
        with _started(["-m", "vit_jax", *_TRAIN, *own], said) as process:
            while process.poll() is None and time.time() - began < _MOST_SECS:
                for row in jsonl.read_rows(Path(workdir) / "run" / goodput.FILE):
                    if row["event"] == "first_step":
                        return row["time"] - began
                time.sleep(0.05)
        said.seek(0)
        raise RunFailed(f"the quickstart ended before its first step:\n{said.read()[-2000:]}")


@contextlib.contextmanager
def _started(arguments: list[str], said: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a Python process in the folder of the shipped recipes; kills it at the end."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=recipes.root(),
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def text(found: dict[str, Any]) -> str:
    """Returns a table for people."""
    lines = [found["device"], ""]
    for name, secs in found["secs"].items():
        more = ""
        if name in found["ratio"]:
            bare = _FLAX if name == _MODELS else _BARE
            more = f"   {found['ratio'][name]['median']:.2f}x {bare}"
        elif name in found["beyond_imports_secs"]:
            more = f"   {found['beyond_imports_secs'][name]['median']:.2f} s more than the imports"
        lines.append(f"{name:>34} {secs['median']:7.2f} s (+-{secs['spread'] / 2:.2f}){more}")
    return "\n".join(lines)
