# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Imports TensorFlow on first use (it takes seconds) and keeps it off the accelerators.

Every module of this room takes `tf` from here, so no TensorFlow code runs before the devices are
hidden.
"""

import functools
import os
import types
from typing import Any


@functools.cache
def _tensorflow() -> types.ModuleType:
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":  # the value that jax sets
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # otherwise each bad image prints a traceback
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # otherwise each import prints a notice
    import tensorflow

    for kind in ("GPU", "TPU"):  # jax owns their memory
        tensorflow.config.set_visible_devices([], kind)
    return tensorflow


class _Lazy:
    def __getattr__(self, name: str) -> Any:
        return getattr(_tensorflow(), name)


def keep_off_accelerators() -> None:
    """Imports TensorFlow with the accelerators hidden, before any other library imports it."""
    _tensorflow()


def accelerators() -> tuple[str, list[str], list[str]]:
    """Returns TensorFlow's version, the accelerators its build can see, and those it may use."""
    module = _tensorflow()
    seen = [d.name for kind in ("GPU", "TPU") for d in module.config.list_physical_devices(kind)]
    usable = [d.name for kind in ("GPU", "TPU") for d in module.config.get_visible_devices(kind)]
    return module.__version__, seen, usable


def tfds() -> Any:
    """Returns the module TensorFlow Datasets, with TensorFlow kept off the accelerators."""
    keep_off_accelerators()
    import tensorflow_datasets

    return tensorflow_datasets


tf: Any = _Lazy()
Tensor = Any  # a tf.Tensor; TensorFlow ships no usable types
