# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Chooses who reads images: tf.data, or Python without TensorFlow. Start from `pipeline_of`."""

import importlib.util
from typing import TYPE_CHECKING

from vit_jax.config import plugins
from vit_jax.config.sections import ReaderName
from vit_jax.data.tensorflow import NotInstalled

if TYPE_CHECKING:
    from vit_jax.data.pipeline.pipeline import Pipeline

# data.reader -> the pipeline.
READERS = {
    "tf": "vit_jax.data.pipeline.pipeline:Pipeline",
    "python": "vit_jax.data.python_reader.pipeline:PythonPipeline",
}


def pipeline_of(reader: ReaderName) -> "type[Pipeline]":
    """Returns the class of pipelines for a value of `data.reader`.

    Raises:
      NotInstalled: it is `tf`, and TensorFlow is not installed.
    """
    if usable(reader) != reader:
        raise NotInstalled("TensorFlow")
    return plugins.resolve(READERS[reader])


def usable(reader: ReaderName = "tf") -> ReaderName:
    """Returns the reader to apply a model with: `python` for a `tf` that is not installed."""
    missing = reader == "tf" and importlib.util.find_spec("tensorflow") is None
    return "python" if missing else reader
