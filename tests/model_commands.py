# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Inputs for commands that use a model: digits as files, and the words of a command."""

import functools
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pictures

from vit_jax.cli import main
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf


def digits(count: int) -> list[tuple[np.ndarray, int]]:
    """Digits of the test split of the quickstart, in turn: uint8 [8, 8, 3] and label."""
    source = sources.open_source("digits", Options(), val_percent=10, test_percent=20)
    split = source.splits["test"]
    read = split.reader()
    found = (read(tf.constant(i % len(split), tf.int64)) for i in range(count))
    return [(image.numpy(), int(labels[0])) for image, labels in found]


def digit_files(folder: Path, count: int) -> list[str]:
    """Writes digits as PNG files and returns their paths, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04d}.png" for number in range(count)]
    for path, (image, _) in zip(paths, digits(count), strict=True):
        path.write_bytes(pictures.encode(image))
    return [str(path) for path in paths]


def with_classes(run: Path, place: Path, content: object) -> Path:
    """A copy of a run with another classes.json; None: without one."""
    shutil.copytree(run, place)
    if content is None:
        (place / "classes.json").unlink()
    else:
        (place / "classes.json").write_text(
            content if isinstance(content, str) else json.dumps(content)
        )
    return place


def command(capsys, *words: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `vit_jax WORDS`."""
    capsys.readouterr()
    code = main.main([str(word) for word in words])
    return code, *capsys.readouterr()


@functools.lru_cache
def _forward(model):
    return jax.jit(functools.partial(model.apply, train=False))


def logits(model, params, images) -> np.ndarray:
    """Logits of a loaded model, as one program: operation by operation they take seconds."""
    return np.asarray(_forward(model)({"params": params}, images))
