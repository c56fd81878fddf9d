# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the compiler is told, and that a compiler that knows nothing of it still works."""

import jax
import pytest

from vit_jax import compiling
from vit_jax.bench import ours
from vit_jax.bench.turns import Asked

ASKED = Asked("Ti/8", 8, 16, "float32", ("--config.platform=cpu", "--config.model.depth=1"))


@pytest.fixture(autouse=True)
def fresh():
    compiling.options.cache_clear()
    yield
    compiling.options.cache_clear()


def test_products_of_a_step_are_not_given_to_ynnpack():
    lowered = ours.make(ASKED).lower_step()
    text = lowered.compile().as_text()
    plain = lowered.compile(compiler_options=dict.fromkeys(compiling.options("cpu"), "")).as_text()
    products = [line for line in text.splitlines() if " dot(" in line and "ynn" in line]
    assert not products
    assert "__ynn_fusion" in text  # sums still are
    assert "__ynn_fusion" not in plain


def test_other_devices_have_the_defaults_of_their_compiler():
    assert compiling.options("tpu") == {}
    assert compiling.options("gpu") == {}


def test_options_that_a_compiler_does_not_know_are_left_out(monkeypatch, caplog):
    monkeypatch.setitem(compiling._OPTIONS, "cpu", {"xla_cpu_make_it_fast": "true"})
    caplog.set_level("INFO", "vit_jax")
    assert compiling.options("cpu") == {}
    assert "xla_cpu_make_it_fast" in caplog.text


def test_a_value_that_a_compiler_does_not_know_is_left_out(monkeypatch):
    (option,) = compiling._OPTIONS["cpu"]
    monkeypatch.setitem(compiling._OPTIONS, "cpu", {option: "LIBRARY_FUSION_TYPE_MAGIC"})
    assert compiling.options("cpu") == {}
    assert jax.jit(lambda x: x + 1, compiler_options=compiling.options("cpu"))(1) == 2
