# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a step needs, and the advice when that is too much."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.hardware import device_memory

GIB = 2**30


def compiled(gib: float):
    """A stand-in of a compiled step: arguments 1 GiB, all results donated but 0.25 GiB."""
    analysis = types.SimpleNamespace(
        argument_size_in_bytes=GIB,
        output_size_in_bytes=int(1.25 * GIB),
        alias_size_in_bytes=GIB,
        temp_size_in_bytes=int((gib - 1.25) * GIB),
    )
    return types.SimpleNamespace(memory_analysis=lambda: analysis)


def compile_step(settings):
    accumulation, remat = settings.get("accumulation", 1), settings.get("model.remat", "none")
    if remat == "dots":
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: does not fit")
    return compiled(16.0 / accumulation - (1.0 if remat == "full" else 0.0))


SETTINGS = [
    {"accumulation": 2},
    {"accumulation": 4, "model.remat": "full"},
    {"model.remat": "dots"},
]


def test_peak_counts_donated_results_once():
    assert device_memory.peak_bytes(compiled(16.0)) == 16 * GIB


def test_peak_of_a_real_step_is_at_least_its_arguments_and_falls_with_donation():
    x = jax.ShapeDtypeStruct((1024, 256), np.float32)
    step = lambda x: jnp.sin(x) * 2  # noqa: E731
    plain = device_memory.peak_bytes(jax.jit(step).lower(x).compile())
    donated = device_memory.peak_bytes(jax.jit(step, donate_argnums=0).lower(x).compile())
    assert plain >= 2 * 2**20
    assert donated == plain - 2**20


def test_advice_tells_peak_limit_and_what_fits():
    error = device_memory.advice(compile_step, SETTINGS, 8 * GIB)
    assert isinstance(error, BadInput)
    assert str(error).splitlines()[:4] == [
        "out of memory: a step needs 16.00 GiB on each device, which has 8.00 GiB. "
        "The same step would need, with",
        "  --config.accumulation=2: 8.00 GiB, does not fit",  # nothing left for anything else
        "  --config.accumulation=4 --config.model.remat=full: 3.00 GiB, fits",
        "  --config.model.remat=dots: more than the compiler can place, does not fit",
    ]


def test_advice_without_a_limit_claims_nothing_about_fitting():
    text = str(device_memory.advice(compile_step, SETTINGS, None))
    assert "fit" not in text
    assert "an amount it does not tell" in text
    assert "  --config.accumulation=2: 8.00 GiB\n" in text


def test_advice_when_the_step_itself_does_not_compile():
    def never(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: does not fit")

    text = str(device_memory.advice(never, [{"batch_size": 8}], 8 * GIB))
    assert "needs more than the compiler can place" in text
    assert "--config.batch_size=8: more than the compiler can place, does not fit" in text


def test_advice_does_not_hide_other_errors():
    def broken(_):
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        device_memory.advice(broken, [], None)


@pytest.mark.parametrize(
    "error, expected",
    [
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: something else"), False),
        (RuntimeError("RESOURCE_EXHAUSTED: not from jax"), False),
        (MemoryError(), False),
    ],
)
def test_out_of_memory_is_recognised(error, expected):
    assert device_memory.is_out_of_memory(error) is expected


def test_out_of_memory_of_a_real_device_is_recognised():
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jnp.zeros((2**46,), jnp.float32).block_until_ready()
    assert device_memory.is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "stats, most",
    [([{"a": 5}, {"a": 7}], 7), ([{"a": 0}], 0), ([{"b": 1}, None], None), ([None, {"a": 2}], 2)],
)
def test_fullest_device_counts(stats, most):
    devices = [types.SimpleNamespace(memory_stats=lambda s=s: s) for s in stats]
    assert device_memory.most(devices, "a") == most


@pytest.mark.parametrize(
    "stats, limit", [({"bytes_limit": 5}, 5), ({"bytes_in_use": 1}, None), (None, None)]
)
def test_limit_is_what_the_device_says(stats, limit):
    device = types.SimpleNamespace(memory_stats=lambda: stats)
    assert device_memory.limit_bytes(device) == limit


def test_limit_of_the_cpu_is_not_known():
    assert device_memory.limit_bytes(jax.devices()[0]) is None
