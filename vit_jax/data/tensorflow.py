# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow, imported on first use (it takes seconds) and kept off the accelerators.

Every module of this room takes `tf` from here, so nothing can run before the devices are hidden.
"""

import functools
import os
import types
from typing import Any


@functools.cache
def _tensorflow() -> types.ModuleType:
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":  # which jax sets
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # or each bad image prints a traceback
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # or each import prints about it
    import tensorflow

    for kind in ("GPU", "TPU"):  # their memory belongs to jax
        tensorflow.config.set_visible_devices([], kind)
    return tensorflow


class _Lazy:
    def __getattr__(self, name: str) -> Any:
        return getattr(_tensorflow(), name)


def keep_off_accelerators() -> None:
    """Imports TensorFlow with the accelerators hidden, before any other library imports it."""
    _tensorflow()


def accelerators() -> tuple[str, list[str], list[str]]:
    """TensorFlow's version, the accelerators that its build can see, and those that it may use."""
    module = _tensorflow()
    seen = [d.name for kind in ("GPU", "TPU") for d in module.config.list_physical_devices(kind)]
    usable = [d.name for kind in ("GPU", "TPU") for d in module.config.get_visible_devices(kind)]
    return module.__version__, seen, usable


def tfds() -> Any:
    """TensorFlow Datasets, with TensorFlow kept off the accelerators."""
    keep_off_accelerators()
    import tensorflow_datasets

    return tensorflow_datasets


tf: Any = _Lazy()
Tensor = Any  # a tf.Tensor; TensorFlow ships no usable types
