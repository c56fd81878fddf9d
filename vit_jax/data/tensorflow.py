# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Imports TensorFlow on first use, keeps it off the accelerators, and shortens its errors.

The import takes seconds, and TensorFlow may not be installed: it has no wheels for some versions of
Python. Every module of this room takes `tf` from here, so no TensorFlow code runs before the
devices are hidden. `plain` makes a sentence of a TensorFlow error.
"""

import functools
import os
import re
import sys
import types
from typing import Any

from vit_jax.errors import BadInput


class NotInstalled(BadInput):
    """TensorFlow, or TensorFlow Datasets, is needed and not installed."""

    def __init__(self, name: str):
        super().__init__(
            f"{name} is not installed, which this needs. Install it with pip install "
            "'vit_jax[tf]'; see docs/versions.md for the versions of Python that it supports. "
            "Training needs none with --config.data.reader=python and digits, or a folder, a list, "
            "tar files or TFRecord files of images, or files of masks or boxes."
        )


@functools.cache
def _tensorflow() -> types.ModuleType:
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":  # the value that jax sets
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # otherwise each bad image prints a traceback
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # otherwise each import prints a notice
    try:
        import tensorflow
    except ModuleNotFoundError as e:
        if e.name != "tensorflow":
            raise
        raise NotInstalled("TensorFlow") from e
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
    try:
        import tensorflow_datasets
    except ModuleNotFoundError as e:
        if e.name != "tensorflow_datasets":
            raise
        raise NotInstalled("TensorFlow Datasets") from e
    return tensorflow_datasets


def xla() -> Any:
    """Returns the module with TensorFlow's ops for XLA, such as `call_module`."""
    keep_off_accelerators()
    from tensorflow.compiler.tf2xla.python import xla

    return xla


def untuned(dataset: Any, threads: int | None = None) -> Any:
    """Returns a dataset of tf.data as it is stated, in order, without TensorFlow's tuning.

    Numbers of calls and of prefetched batches are fixed in this project, so there is nothing to
    tune. The thread that tunes can miss the end of an iterator. Whoever drops the iterator then
    waits until that thread wakes up, which is after up to 60 s in a long run.

    Args:
      dataset: a tf.data.Dataset.
      threads: number of threads of its own; None: it shares those of the process.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.deterministic = True
    if threads is not None:
        options.threading.private_threadpool_size = threads
    return dataset.with_options(options)


def op_errors() -> tuple[type[Exception], ...]:
    """Returns the class of TensorFlow's errors, for `except`; none while it is not imported."""
    return (_tensorflow().errors.OpError,) if "tensorflow" in sys.modules else ()


tf: Any = _Lazy()
Tensor = Any  # a tf.Tensor; TensorFlow ships no usable types

# ---------------------------------------------------------------- errors

_LONGEST = 200  # characters of a message

_TRACE = r"(?:\s*\n(?:  +File .*|    .*|<stack traces unavailable>))*"  # lines of a traceback
_INNARDS = re.compile(
    r"Graph execution error:"
    r"|Detected at node .* defined at \(most recent call last\):" + _TRACE + r"|"
    r"\d+ root error\(s\) found\.\s*\(0\) *[A-Z_]+: *"
    r"|Error in user-defined function passed to \S+ transformation with iterator: \S+: "
    r"|\[\[[^\]\n]*\]\]"
    r"|\{\{[^}]*\}\}"
    r"|\[Op:[^\]]*\]( name: *\S*)?"
    r"|<(?:tf\.|dtype:|function |bound method )[^>]*>"
    r"|^(?:[\w.]+\.)?(?:BadImage|BadInput): ",
    re.MULTILINE,
)
_AFTER = re.compile(r"\s*(?:Traceback \(most recent call last\):|\n *\(1\) [A-Z_]+:)")
_EAGER = re.compile(r"Expected '.*' to be true\. Summarized data: (.*)", re.DOTALL)
_GRAPH = re.compile(r"assertion failed: \[([^\]]*)\]")
_ASSERTED = re.compile(r"\n(?:Condition |Indices |x \(|\[?\[?-?\d)")


def plain(error: Exception) -> str:
    """Returns the message of an error in one line, without node names and without source text.

    For an assertion it returns the assertion's own text, without the compared values.

    Args:
      error: a TensorFlow error, an error of a file, or the `UnicodeDecodeError` that replaces a
        TensorFlow error whose text quotes a damaged record.

    Returns:
      At most 200 characters, without a full stop at the end.
    """
    if isinstance(error, UnicodeDecodeError):
        text = error.object.decode("utf-8", "replace")
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}; {error.strerror}"
    else:
        text = str(getattr(error, "message", error))
    text = _INNARDS.sub(" ", text).strip()
    text = _INNARDS.sub(" ", text)  # the class of a Python error comes after the node
    text = _AFTER.split(text, maxsplit=1)[0]
    if match := _EAGER.search(text):
        text = match[1].split("\n")[0].removeprefix("b").strip("'\"")
    if match := _GRAPH.search(text):
        text = match[1]
    text = _ASSERTED.split(text, maxsplit=1)[0]
    return " ".join(text.split()).removesuffix(", got").strip(" .")[:_LONGEST]


def one_line(error: BaseException) -> str:
    """Returns the message of any other error in one line of at most 300 characters plus "..."."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + "..."
