# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Schedules at the steps where a closed form is known."""

import math

import jax
import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.optim import schedules

LR, WARMUP, COOLDOWN, TOTAL = 0.3, 10, 20, 110
SHAPE = {
    "cosine": lambda t: LR * 0.5 * (1 + math.cos(math.pi * min(max((t - 10) / 100, 0), 1))),
    "linear": lambda t: 0.01 + (LR - 0.01) * (1 - min(max((t - 10) / 100, 0), 1)),
    "rsqrt": lambda t: LR / math.sqrt(1 + (max(t - 10, 0) + 5) / 40),
    "step": lambda t: LR * (1 if t < 60 else 0.5 if t < 91 else 0.25),
}


def make(name, **changes):
    given = {"lr": LR, "warmup": WARMUP, "cooldown": COOLDOWN, "total_steps": TOTAL}
    own = {"linear": {"end": 0.01}, "rsqrt": {"timescale": 40, "shift": 5}}
    own["step"] = {"drops": (60, 91), "factor": 0.5}
    own = own.get(name, {})
    return schedules.make_schedule(name=name, **given | own | changes)


CORNERS = [0, 1, WARMUP // 2, WARMUP, WARMUP + 1, 59, 60, 90, 91, 100, TOTAL - 1, TOTAL, TOTAL + 1]


@pytest.mark.parametrize("name", SHAPE)
def test_rate_at_every_corner_follows_the_closed_form(name):
    schedule = make(name)
    on_device = jax.jit(schedule)(np.array(CORNERS, np.int32))
    assert on_device.dtype == np.float32
    for t, traced in zip(CORNERS, on_device, strict=True):
        ramp = min(1, t / WARMUP) * max(0, min(1, (TOTAL - t) / COOLDOWN))
        expected = pytest.approx(SHAPE[name](t) * ramp, rel=1e-5, abs=1e-8)
        assert float(schedule(t)) == expected, t
        assert float(traced) == expected, t


@pytest.mark.parametrize("name", SHAPE)
def test_rate_is_zero_at_the_start_of_a_warmup_and_after_a_cooldown(name):
    schedule = make(name)
    assert float(schedule(0)) == 0.0
    assert float(schedule(TOTAL)) == 0.0
    assert float(schedule(TOTAL + 1)) == 0.0


@pytest.mark.parametrize(
    "name, end", [("cosine", 0.0), ("linear", 0.01), ("rsqrt", SHAPE["rsqrt"](TOTAL))]
)
def test_rate_without_cooldown_ends_at_its_end_and_never_beyond(name, end):
    schedule = make(name, cooldown=0)
    assert float(schedule(TOTAL)) == pytest.approx(end, abs=1e-8)
    after = SHAPE["rsqrt"](TOTAL + 1) if name == "rsqrt" else end
    assert float(schedule(TOTAL + 1)) == pytest.approx(after, abs=1e-8)


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_rate_without_warmup_starts_at_the_peak(name):
    assert float(make(name, warmup=0)(0)) == pytest.approx(LR)


def test_halfway_and_peak_values():
    assert float(make("cosine", cooldown=0)(60)) == pytest.approx(LR / 2)
    assert float(make("linear", cooldown=0)(60)) == pytest.approx((LR + 0.01) / 2)
    assert float(make("rsqrt", cooldown=0, shift=0)(10 + 3 * 40)) == pytest.approx(LR / 2)
    assert float(make("cosine")(WARMUP)) == pytest.approx(LR)


def test_linear_ends_at_the_rate_of_the_paper_by_default():
    schedule = schedules.make_schedule(name="linear", lr=1.0, warmup=0, cooldown=0, total_steps=10)
    assert float(schedule(10)) == pytest.approx(1e-5)


def test_warmup_and_cooldown_that_fill_the_run_meet():
    schedule = make("linear", warmup=10, cooldown=10, total_steps=20, end=LR)
    found = [float(schedule(t)) for t in (0, 5, 10, 15, 20)]
    np.testing.assert_allclose(found, [0, LR / 2, LR, LR / 2, 0], rtol=1e-6, atol=1e-9)


def test_warmup_of_the_whole_run_is_finite():
    schedule = make("cosine", warmup=10, cooldown=0, total_steps=10)
    assert float(schedule(9)) == pytest.approx(0.9 * LR)
    assert math.isfinite(float(schedule(10)))


@pytest.mark.parametrize("warmup, cooldown", [(91, 20), (111, 0), (0, 111)])
def test_warmup_and_cooldown_longer_than_the_run_raise(warmup, cooldown):
    with pytest.raises(BadInput, match=rf"{warmup} .* {cooldown} .* {TOTAL} steps"):
        make("cosine", warmup=warmup, cooldown=cooldown)


def test_schedule_traces_with_an_integer_count():
    schedule = make("cosine")
    rate = jax.jit(schedule)(np.int32(60))
    assert rate.dtype == np.float32
    assert float(rate) == pytest.approx(LR / 2)


def test_step_without_drops_stays_and_falls_to_a_tenth_by_default():
    assert float(make("step", drops=(), cooldown=0)(TOTAL)) == pytest.approx(LR)
    last = schedules.make_schedule(
        name="step", lr=1.0, warmup=0, cooldown=0, total_steps=40, drops=(10, 23, 30, 37)
    )
    found = [float(last(t)) for t in (9, 10, 22, 23, 30, 37, 40)]
    assert found == pytest.approx([1, 0.1, 0.1, 0.01, 0.001, 0.0001, 0.0001])
