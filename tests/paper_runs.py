# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Folders of runs that nobody ran: configurations of the real recipes, with results beside them."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vit_jax.config import load as config_lib

I21K = "imagenet21k/ViT-B_16.npz"
FINAL = {"data.split": "train", "recipe.name": "transfer", "recipe.stage": "final"}


@contextlib.contextmanager
def quick_yaml() -> Iterator[None]:
    """The same loader in C, which the program cannot use: it crashes on hostile files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "safe_load", lambda text: yaml.load(text, Loader=loader))
        yield


def write(folder: Path, spec: str, results: Any, keys: dict[str, Any]) -> Path:
    """A workdir; `results` None is a run that is not finished."""
    config = config_lib.load(spec, [f"--config.{key}={value}" for key, value in keys.items()])
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config_lib.to_yaml(config))
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results))
    return folder


def top1(percent: float, **more: int) -> dict[str, Any]:
    """The metrics of a split."""
    return {"top1": percent / 100, "top5": 1.0, "loss": 0.1, **more}


def transfer(
    folder: Path, percent: float | None, args: str = "model=B/16,dataset=cifar10", *,
    init: str = I21K, seed: int = 0, split: str = "test", **keys: Any,
) -> Path:  # fmt: skip
    """A final run of configs/transfer.py that reached a percentage; None: it has not finished."""
    results = None if percent is None else {"step": 1, split: top1(percent)}
    vtab = "dataset=vtab/" in args
    settled = {**FINAL, "init": init, "seed": seed}
    if vtab:
        del settled["data.split"]
    settled |= {key.replace("__", "."): value for key, value in keys.items()}
    return write(folder, f"configs/transfer.py:{args}", results, settled)


def seeds(folder: Path, percents: list[float], *args: Any, **keys: Any) -> None:
    """One final run a seed; they differ in nothing else."""
    first = transfer(folder / "seed0", percents[0], *args, **keys)
    config = (first / "config.yaml").read_text()
    assert "\nseed: 0\n" in config
    for seed, percent in enumerate(percents[1:], 1):
        other = folder / f"seed{seed}"
        other.mkdir()
        (other / "config.yaml").write_text(config.replace("\nseed: 0\n", f"\nseed: {seed}\n"))
        (other / "results.json").write_text(json.dumps({"step": 1, "test": top1(percent)}))


def pretrain(folder: Path, args: str, results: Any = None, **keys: Any) -> Path:
    """A run of configs/pretrain.py; by default finished."""
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    results = {"step": 1, "test": top1(74.0)} if results is None else results
    return write(folder, f"configs/pretrain.py:{args}", results, keys)
