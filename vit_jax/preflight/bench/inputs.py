# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures the input pipeline on generated photos as large as ImageNet's.

This is the only part of bench that needs TensorFlow; it runs in its own process. The timing is that
of `data.bench`, which `vit_jax data bench SOURCE` runs on your own images. Start from `answering`.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

IMAGES = 60
_SIZE = (500, 375)  # width and height of most ImageNet images


def answering() -> Callable[[int], dict[str, Any]]:
    """Returns, in a fresh process, a function from rounds to the result of `data.bench.bench`."""
    jax.config.update("jax_platforms", "cpu")
    return _measure


def _measure(rounds: int) -> dict[str, Any]:
    from vit_jax.data.inspect import bench
    from vit_jax.data.sources import registry as sources
    from vit_jax.data.sources.source import Options

    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), IMAGES)
        options = Options()
        opened = sources.open_source(f"folder:{folder}", options, val_percent=0, test_percent=0)
        return bench.bench(opened.split("train"), os.cpu_count() or 1, rounds=rounds)


def write_photos(folder: Path, count: int) -> None:
    """Writes JPEGs of smooth colours with some grain, about the size of photos, in two classes."""
    random = np.random.default_rng(0)
    for name in "01":
        (folder / name).mkdir()
    width, height = _SIZE
    for number in range(count):
        coarse = random.integers(0, 256, (12, 16, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize(_SIZE, Image.Resampling.BICUBIC))
        grain = random.normal(0, 8, (height, width, 1))
        image = np.clip(smooth + grain, 0, 255).astype(np.uint8)
        Image.fromarray(image).save(folder / str(number % 2) / f"{number}.jpg", quality=90)
