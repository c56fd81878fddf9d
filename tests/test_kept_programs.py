# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Programs of processes for which jax keeps none. The process here is said to be the second."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.runtime import kept_programs
from vit_jax.storage import cache
from vit_jax.storage import files as storage


@pytest.fixture
def second(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(cache, "LEAST_SECS", 0.0)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def lowered(power=2):
    """Lowers a program over 8 devices whose first argument is given away."""
    mesh = jax.make_mesh((8,), ("x",))
    over = jax.sharding.NamedSharding(mesh, jax.P("x"))
    shape = jax.ShapeDtypeStruct((8, 3), jnp.float32, sharding=over)

    def program(a, b):
        return {"sum": (a + b["b"] ** power).sum(), "a": a - 1}

    return jax.jit(program, donate_argnums=0).lower(shape, {"b": shape}), over


def no_compiler(monkeypatch):
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self: pytest.fail("it compiles"))


def test_second_start_reads_the_program_of_the_first(second, monkeypatch):
    wanted, over = lowered()
    kept_programs.compiled(wanted)
    no_compiler(monkeypatch)
    program = kept_programs.compiled(lowered()[0])
    a, b = np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32)
    given = jax.device_put(a, over)
    found = program(given, {"b": jax.device_put(b, over)})
    np.testing.assert_allclose(found["sum"], (a + b**2).sum(), rtol=1e-5)
    np.testing.assert_array_equal(found["a"], a - 1)
    assert given.is_deleted()


@pytest.mark.parametrize("keep", [0, 100])
def test_damaged_programs_are_compiled_again(second, keep):
    kept_programs.compiled(lowered()[0])
    (file,) = second.glob("*.program")
    whole = file.read_bytes()
    file.write_bytes(whole[:keep])
    kept_programs.compiled(lowered()[0])
    assert len(file.read_bytes()) == len(whole)


def test_programs_that_cannot_be_loaded_or_kept_are_compiled(second, monkeypatch, caplog):
    kept_programs.compiled(lowered()[0])
    (file,) = second.glob("*.program")
    file.write_bytes(hashlib.sha256(b"x").digest() + b"x")
    monkeypatch.setattr(storage, "write", lambda *_: full())
    program = kept_programs.compiled(lowered()[0])
    assert program.as_text()
    assert "cannot be used, and is compiled again" in caplog.text
    assert "a compiled program is not kept: the disk is full" in caplog.text


def full():
    raise OSError("the disk is full")


def test_other_programs_flags_and_processes_are_kept_apart(second, monkeypatch):
    kept_programs.compiled(lowered()[0])
    kept_programs.compiled(lowered(power=3)[0])
    assert len([*second.glob("*.program")]) == 2
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    kept_programs.compiled(lowered()[0])
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    kept_programs.compiled(lowered()[0])
    assert len([*second.glob("*.program")]) == 4
