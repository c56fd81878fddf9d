# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens the handwritten digits of scikit-learn as a source. Start from `open_digits`."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from vit_jax.data.sources.source import Opened, Options
from vit_jax.data.splits import split as splits_lib
from vit_jax.errors import BadInput


def open_digits(_: str, __: Options) -> Opened:
    """Reads scikit-learn's data file, without the import of scikit-learn (1 s) or scipy.

    Raises:
      BadInput: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise BadInput("data.source=digits reads a file of scikit-learn; pip install scikit-learn.")
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        values = np.array([line.split(",") for line in file], np.float32)
    grey = np.round(values[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    images, labels = np.repeat(grey, 3, axis=-1), values[:, -1:].astype(np.int32)

    split = splits_lib.of_arrays("digits", images, labels)
    return [str(d) for d in range(10)], {"all": split}, []
