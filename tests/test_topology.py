# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Peaks of devices as `jax.Device.device_kind` names them."""

import pytest

from vit_jax.hardware import topology


@pytest.mark.parametrize(
    "kind, tflops",
    [
        ("TPU v2", 22.5),
        ("TPU v3", 61.5),
        ("TPU v4", 275),
        ("TPU v4 lite", 138),
        ("TPU v5", 459),
        ("TPU v5p", 459),
        ("TPU v5 lite", 197),
        ("TPU v5e", 197),
        ("TPU v6 lite", 918),
        ("TPU v6e", 918),
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla T4", 65),
    ],
)
def test_known_devices(kind, tflops):
    assert topology.peak_flops(kind) == tflops * 1e12


@pytest.mark.parametrize("kind", ["cpu", "", "NVIDIA GeForce RTX 4090", "TPU v9", "AMD MI300X"])
def test_unknown_devices_have_no_peak(kind):
    assert topology.peak_flops(kind) is None


@pytest.mark.parametrize("kind", ["NVIDIA L40", "NVIDIA T400 4GB", "NVIDIA RTX A1000"])
def test_devices_whose_name_begins_like_another_are_not_taken_for_it(kind):
    # An L40 has 181 TFLOP/s, an L4 121; a T400 is no T4.
    assert topology.peak_flops(kind) in (None, 181e12)


def test_lite_chips_are_not_confused_with_their_namesakes():
    for version in ("v4", "v5"):
        lite = topology.peak_flops(f"TPU {version} lite")
        assert lite is not None
        assert lite < topology.peak_flops(f"TPU {version}")


def test_devices_are_told_apart_by_whole_words():
    """A plan for an L4 must not take the compiler of the L40S that is there."""
    assert topology.is_named("NVIDIA L4", "l4")
    assert topology.is_named("NVIDIA GH200 480GB", "h200")
    assert not topology.is_named("NVIDIA L40S", "l4")


@pytest.mark.parametrize(
    "kind, name",
    [
        ("TPU v2", "v2"),
        ("TPU v3", "v3"),
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
    ],
)
def test_the_generation_of_a_device(kind, name):
    assert topology.generation_of(kind) is topology.GENERATIONS[name]


@pytest.mark.parametrize("kind", ["cpu", "", "TPU v9", "NVIDIA L40"])
def test_other_devices_have_no_generation(kind):
    assert topology.generation_of(kind) is None


@pytest.mark.parametrize(
    "name, products",
    [  # multiply-adds a device and cycle, see the sources in `topology`
        ("v2", 128**2),
        ("v3", 2 * 128**2),
        ("v4", 8 * 128**2),
        ("v5e", 4 * 128**2),
        ("v5p", 8 * 128**2),
        ("v6e", 4 * 256**2),
        ("tpu7x", 4 * 256**2),
    ],
)
def test_clock_rates_make_the_published_peaks(name, products):
    generation = topology.GENERATIONS[name]
    assert 2 * products * generation.hertz == pytest.approx(generation.flops, rel=0.02)
