# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps compiled programs that jax does not keep: on CPUs, those of all processes but the first.

jax 0.10 writes the programs of process 0 only. On GPUs and TPUs the others find them, because
their keys are equal. On CPUs the key depends on the process, so each other process would compile
again at every start. Start from `compiled`.
"""

import hashlib
import importlib.metadata
import logging
import os
import time
from pathlib import Path

import jax
from jax.experimental import serialize_executable

from vit_jax.hardware import detect
from vit_jax.runtime import compile_ahead
from vit_jax.storage import cache
from vit_jax.storage import files as storage

log = logging.getLogger("vit_jax")


def compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compiles a program, or reads it if an earlier start of this process has compiled it.

    It is for other processes than the first, whose programs jax keeps.

    The folder is that of `cache.keep_compiled`. A program that cannot be read is compiled again,
    and one that cannot be kept costs only that: the log says so.
    """
    folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if not folder or jax.default_backend() != "cpu":
        return compile_ahead.compiled(lowered)
    path = None
    try:
        path = storage.path(folder) / f"{_key(lowered)}.program"
        if (kept := _read(path)) is not None:
            return serialize_executable.deserialize_and_load(
                kept, lowered.in_tree, lowered.out_tree
            )
    except Exception as e:  # of the storage, or of the compiler that loads it
        log.warning("a kept program cannot be used, and is compiled again: %s", e)
    begin = time.monotonic()
    program = lowered.compile()
    if path is not None and time.monotonic() - begin > cache.LEAST_SECS:
        try:
            content = serialize_executable.serialize(program)[0]
            storage.write(path, hashlib.sha256(content).digest() + content)
        except Exception as e:
            log.warning("a compiled program is not kept: %s", e)
    return program


def _key(lowered: jax.stages.Lowered) -> str:
    """Returns a name that differs where the compiled program may differ."""
    versions = [importlib.metadata.version(package) for package in ("jax", "jaxlib")]
    flags = os.environ.get("XLA_FLAGS", ""), compile_ahead.options("cpu")
    place = jax.process_index(), str(jax.devices())
    parts = (lowered.as_text(), versions, flags, place, detect.instructions())
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    """Returns the program in a file; None if there is none or it is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    digest, program = content[:32], content[32:]
    return program if hashlib.sha256(program).digest() == digest else None
