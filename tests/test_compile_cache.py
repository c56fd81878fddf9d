# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where compiled programs are kept, that they are found again, and that nothing depends on it."""

import logging
import uuid
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.storage import cache


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    folder = jax.config.jax_compilation_cache_dir or ""  # of all tests, which go on with it
    yield
    cache.keep_compiled(folder, "cpu")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


@pytest.fixture
def hits():
    """Events of programs that were found in the folder."""
    seen = []

    def listener(event, **_):
        if event.endswith("/cache_hits"):
            seen.append(event)

    jax.monitoring.register_event_listener(listener)
    yield seen
    jax.monitoring.unregister_event_listener(listener)


@pytest.mark.parametrize(
    "given, platform, expected",
    [
        ("auto", "tpu", "{xdg}/vit_jax/compiled"),
        ("auto", "gpu", "{xdg}/vit_jax/compiled"),
        ("auto", "cpu", ""),  # not sound between machines
        ("", "tpu", ""),
        ("{xdg}/mine", "cpu", "{xdg}/mine"),
        ("gs://bucket/compiled", "tpu", "gs://bucket/compiled"),
    ],
)
def test_which_folder(given, platform, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = expected.format(xdg=tmp_path)
    assert cache.keep_compiled(given.format(xdg=tmp_path), platform) == expected
    assert (jax.config.jax_compilation_cache_dir or "") == expected
    assert ":" in expected or not expected or Path(expected).is_dir()


def test_what_jax_was_told_is_auto_and_off_is_off(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    assert cache.keep_compiled("auto", "cpu") == str(tmp_path)
    assert cache.keep_compiled("", "tpu") == ""
    assert jax.config.jax_compilation_cache_dir is None


def test_home_is_the_default_root(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.root() == Path("~/.cache/vit_jax").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # as unset, says the standard
    assert cache.root() == Path("~/.cache/vit_jax").expanduser()


@pytest.mark.integration
def test_a_compiled_program_is_found_again_and_gives_the_same_bits(tmp_path, hits, monkeypatch):
    monkeypatch.setattr(cache, "LEAST_SECS", 0.0)
    number = uuid.uuid4().int % 10**6  # a program that was never compiled before

    def program(state, x):
        return jnp.tanh(state @ x) * number + state, jnp.sum(x)

    def run():
        jax.clear_caches()  # as in another process
        given = (jnp.arange(16.0).reshape(4, 4), jnp.eye(4) / 3)
        compiled = jax.jit(program, donate_argnums=0).lower(*given).compile()
        return jax.tree.map(np.asarray, compiled(*given))

    expected = run()
    assert cache.keep_compiled(str(tmp_path / "new" / "folder"), "cpu")
    first = run()
    kept = sorted(p.name for p in (tmp_path / "new" / "folder").iterdir())
    assert any(name.startswith("jit_program") for name in kept)
    before = len(hits)
    second = run()
    assert len(hits) > before
    for one in (first, second):
        for x, y in zip(one, expected, strict=True):
            np.testing.assert_array_equal(x, y)
    cache.keep_compiled(str(tmp_path / "other"), "cpu")  # a folder may change within a process
    run()
    assert any(p.name.startswith("jit_program") for p in (tmp_path / "other").iterdir())


@pytest.mark.parametrize("kind", ["under a file", "is a file"])
def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing(tmp_path, caplog, kind):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "folder" if kind == "under a file" else tmp_path / "file"
    with caplog.at_level(logging.WARNING, "vit_jax"):
        assert cache.keep_compiled(str(folder), "tpu") == ""
    assert [str(folder) in r.getMessage() for r in caplog.records] == [True]
    assert jax.config.jax_compilation_cache_dir is None
    np.testing.assert_array_equal(jax.jit(lambda x: x + 41.5)(np.float32(1)), 42.5)
