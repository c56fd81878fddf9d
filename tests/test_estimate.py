# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares what a step must compute, hold and send with counts by hand and by the compiler."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from vit_jax import sharding
from vit_jax.build import execution, program
from vit_jax.config import load as config_lib
from vit_jax.hardware import device_memory, topology
from vit_jax.preflight.plan import estimate, hlo

# --- the estimate ---


SMALL = {
    "model.variant": "S/16", "model.depth": 2, "data.image_size": 64, "batch_size": 64,
    "model.width": 128, "model.mlp": 512, "model.heads": 4, "mesh.replica": 1,
}  # fmt: skip


@functools.lru_cache
def small(**changes):
    """A program of 0.5 M parameters on the eight devices there are."""
    given = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
    overrides = [f"--config.{key}={value}" for key, value in given.items()]
    config = config_lib.load("configs/base.py", overrides)
    return program.make(config, classes=10, examples=1000)


def parameters(made) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(made.abstract.params))


def test_flops_of_a_device_are_three_forward_passes_of_its_images():
    made = small()
    # 16 patches and the class token, width 128: by hand, in multiply-adds.
    tokens, d = 17, 128
    block = tokens * 12 * d * d + 2 * tokens * tokens * d
    forward = 16 * 16 * 16 * 3 * d + 2 * block + d * 10
    assert estimate.step_flops(made) == 3 * 2 * forward * 64 / 8


def test_state_is_what_lies_on_one_device():
    whole = estimate.state_bytes(small())
    assert whole == 12 * parameters(small()) + 3 * 4  # adamw: three trees, three counters
    split = estimate.state_bytes(small(mesh__fsdp=8))
    # All but head and what has no embed axis is split in eight.
    assert whole / 8 < split < whole / 8 * 1.05


def test_state_and_products_of_other_optimizers_count():
    count = parameters(small())
    one_moment = 8 * count + 2 * 4  # parameters and momentum, two counters
    assert estimate.state_bytes(small(optimizer__name="lion")) == one_moment + 4
    made = small(optimizer__name="muon")
    kernels = 2 * 12 * 128**2  # of two blocks; the rest has a second moment
    counters = estimate.state_bytes(made) - (8 * count + 4 * (count - kernels))
    assert 0 < counters < 50
    # An iteration of four square kernels and two of 128 x 512; a layer for one of eight devices.
    products = 5 * (4 * 6 * 128**3 + 2 * 128**2 * (4 * 512 + 2 * 128))
    assert estimate.step_flops(made) - estimate.step_flops(small()) == products


@pytest.mark.integration
def test_sam_computes_moves_and_sends_twice():
    once, twice = small(mesh__tensor=2), small(mesh__tensor=2, optimizer__sam__rho=0.05)
    assert estimate.step_flops(twice) == 2 * estimate.step_flops(once)
    products = [made.lower_step().as_text().count("dot_general") for made in (once, twice)]
    assert products[1] == 2 * products[0]
    assert estimate.state_bytes(twice) == estimate.state_bytes(once)
    params = estimate._tree_bytes(once.abstract.params)
    assert estimate.peak_bytes(twice) - estimate.peak_bytes(once) == params
    moved = estimate.moved_bytes(once) - 2 * estimate.state_bytes(once)
    assert estimate.moved_bytes(twice) - estimate.moved_bytes(once) == moved + params
    for axes, kinds in estimate.collectives(once).items():
        for kind, size in kinds.items():
            assert estimate.collectives(twice)[axes][kind] == 2 * size


def test_parameters_are_no_activations_where_layers_are_apart(monkeypatch):
    kept = estimate.saved_bytes(small())
    monkeypatch.setitem(execution._UNROLLED_ABOVE, "cpu", 0)
    unrolled = small.__wrapped__()
    assert unrolled.model.cfg.unrolled
    assert estimate.saved_bytes(unrolled) == kept


def test_kept_activations_grow_with_images_and_shrink_with_remat_and_accumulation():
    kept = {r: estimate.saved_bytes(small(model__remat=r)) for r in ("none", "dots", "full")}
    assert kept["none"] > kept["dots"] > kept["full"] > 0
    # Under full remat a block keeps its input alone: [S, B, L, D]; then images, and the head's.
    stream, images = 2 * 8 * 17 * 128 * 4, 8 * 64 * 64 * 3 * 4
    assert stream + images <= kept["full"] <= 3 * stream + images
    assert estimate.saved_bytes(small(batch_size=128)) == pytest.approx(2 * kept["none"], rel=0.02)
    assert estimate.saved_bytes(small(accumulation=2)) == pytest.approx(kept["none"] / 2, rel=0.02)


PACKED = {"model__naflex": 4, "data__train_ops": "decode|naflex({size}, 16)", "pack": 4}


def test_rows_of_several_images_keep_the_tokens_of_each():
    """16 patches and 2 * 4 class tokens for 4 images, which have 17 tokens each on their own."""
    alone = estimate.saved_bytes(small(**PACKED | {"pack": 1}))
    assert 4 * estimate.saved_bytes(small(**PACKED)) == pytest.approx(24 / 17 * alone, rel=0.05)
    rows = {**PACKED, "mesh__tensor": 2}
    sent = estimate.collectives(small(**rows))["tensor"]["all-reduce"]
    assert estimate.collectives(small(**rows | {"pack": 1}))["tensor"]["all-reduce"] == 4 * sent


@pytest.mark.integration
def test_packing_takes_and_sends_what_one_pass_does():
    made = small(batch_size=256, **PACKED)
    compiled = made.lower_step().compile()
    peak = device_memory.peak_bytes(compiled)
    assert 0.6 * peak < estimate.peak_bytes(made) < 1.2 * peak
    found = hlo.collective_bytes(compiled.as_text(), dict(made.rules.mesh.shape))
    least = estimate.collectives(made)["data"]["all-reduce"]
    assert least <= found["data"]["all-reduce"] <= 1.01 * least


@pytest.mark.integration
def test_estimated_peak_is_near_that_of_a_compiler():
    made = small(batch_size=256)
    compiled = device_memory.peak_bytes(made.lower_step().compile())
    assert 0.5 * compiled < estimate.peak_bytes(made) < 1.2 * compiled


def test_data_parallelism_reduces_every_gradient_once():
    made = small()
    assert estimate.collectives(made) == {"data": {"all-reduce": 4 * parameters(made)}}
    assert estimate.collectives(small(accumulation=4)) == {
        "data": {"all-reduce": 4 * 4 * parameters(made)}
    }


def test_slices_reduce_over_the_network_too():
    found = estimate.collectives(small(mesh__replica=2))
    assert list(found) == ["replica+data"]


def test_fsdp_gathers_weights_twice_and_scatters_their_gradients():
    made = small(mesh__fsdp=4)
    found = estimate.collectives(made)
    split = found["fsdp"]["reduce-scatter"]
    first = 4 * (16 * 16 * 3 * 128 + 128)  # of the embedding: images need no gradient
    assert found["fsdp"]["all-gather"] == 2 * split - first
    assert 0.99 * 4 * parameters(made) < split < 4 * parameters(made)
    assert found["data"]["all-reduce"] == split / 4  # what is left of it after the scatter
    assert found["data+fsdp"]["all-reduce"] == 4 * parameters(made) - split


def test_tensor_parallelism_adds_activations_up():
    found = estimate.collectives(small(mesh__tensor=2, model__dtype="bfloat16"))
    assert found["tensor"]["all-reduce"] == 4 * 2 * (64 // 4) * 16 * 128 * 2
    assert "tensor" not in estimate.collectives(small())


@pytest.mark.integration
@pytest.mark.parametrize("changes", [{"accumulation": 2}, {"mesh__fsdp": 8}], ids=str)
def test_a_compiler_sends_little_more_than_the_least(changes):
    made = small(**changes)
    least = estimate.collectives(made)
    text = made.lower_step().compile().as_text()
    sent = hlo.collective_bytes(text, dict(made.rules.mesh.shape))

    def total(found):  # XLA may write a reduce-scatter as an all-reduce
        return sum(
            kinds.get(kind, 0)
            for kinds in found.values()
            for kind in ("all-reduce", "reduce-scatter")
        )

    assert total(least) <= total(sent) <= 1.1 * total(least)


V3 = topology.find("v3-8")


def chip(**rates):
    """A v3-8 with the rates of its devices replaced."""
    return dataclasses.replace(V3, generation=dataclasses.replace(V3.generation, **rates))


def test_roofline_names_what_is_slowest():
    made = small()
    sent = {"data": {"all-reduce": 8_000_000}}
    fast = {"flops": 1e18, "memory_rate": 1e18, "link_rate": 1e18, "network_rate": 1e18}
    slow_math = chip(**fast | {"flops": 1e9})
    assert estimate.step_secs(made, slow_math, sent) == (
        estimate.step_flops(made) / 1e9, "compute")  # fmt: skip
    full = small(model__remat="full")
    assert estimate.step_secs(full, slow_math, sent)[0] == pytest.approx(
        4 / 3 * estimate.step_flops(made) / 1e9
    )
    moved = estimate.moved_bytes(made)
    assert estimate.step_secs(made, chip(**fast | {"memory_rate": 1e6}), sent) == (
        moved / 1e6, "memory")  # fmt: skip
    # A ring of eight sends 7/8 of the array twice.
    assert estimate.step_secs(made, chip(**fast | {"link_rate": 1e6}), sent) == (
        pytest.approx(14.0), "links")  # fmt: skip


@pytest.mark.parametrize("name, links", [("v5e-256", 4), ("v4-256", 6), ("h100-8", 1)])
def test_what_goes_to_one_neighbour_takes_one_link_of_a_torus(name, links):
    accelerator = topology.find(name)
    moved = estimate.sending_secs(small(), accelerator, "data", "collective-permute", 1e9)
    secs = links * 1e9 / accelerator.generation.link_rate
    assert moved == {"links": pytest.approx(secs), "network": 0.0}


def test_over_the_network_each_device_sends_its_part():
    """Eight devices in two slices of four: whole over links, a quarter of it over the network."""
    made = small(mesh__replica=2)
    fast = {"flops": 1e18, "memory_rate": 1e18, "link_rate": 1e18, "network_rate": 1e18}
    half = dataclasses.replace(chip(**fast | {"network_rate": 1e6}), shape="1x2")
    secs = estimate.step_secs(made, half, {"replica+data": {"all-reduce": 8_000_000}})
    assert secs == (pytest.approx(2 * 8 / 4 / 2), "network")
    half = dataclasses.replace(chip(**fast | {"link_rate": 1e6}), shape="1x2")
    secs = estimate.step_secs(made, half, {"replica+data": {"all-reduce": 8_000_000}})
    assert secs == (pytest.approx(2 * 8 * 3 / 4), "links")


def test_gpus_of_one_machine_are_joined_by_links_and_machines_by_the_network():
    made, sent = small(), {"data": {"all-reduce": 10**12}}
    assert estimate.step_secs(made, topology.find("h100-8"), sent)[1] == "links"
    pair = dataclasses.replace(topology.find("h100-8").generation, chips_per_host=4)
    machines = topology.Accelerator(pair, "8")
    assert estimate.step_secs(made, machines, sent)[1] == "network"


@pytest.mark.integration
def test_every_family_can_be_estimated():
    sizes = {"model__width": 0, "model__mlp": 0, "model__heads": 0}
    for variant, depth in (("R+Ti/16", 1), ("BiT-custom", 0), ("Mixer-S/16", 1)):
        stages = "(1,1)" if variant[0] in "RB" else "()"
        made = small(
            model__variant=variant, model__depth=depth, model__stages=stages, **sizes,
            model__root_width=32 if variant == "BiT-custom" else 0,
        )  # fmt: skip
        assert estimate.peak_bytes(made) > estimate.state_bytes(made) > 0
        assert estimate.moved_bytes(made) > 0
        assert estimate.collectives(made)["data"]["all-reduce"] == 4 * parameters(made)
        assert estimate.step_flops(made) > 0


def test_bytes_on_the_wire_are_those_of_rings():
    mesh = {"replica": 2, "data": 4, "fsdp": 1, "tensor": 1}
    sent = {"data": {"all-gather": 100, "all-reduce": 40}, "replica+data": {"reduce-scatter": 80}}
    assert estimate.wire_bytes(sent, mesh) == 0.75 * 100 + 2 * 0.75 * 40 + 7 / 8 * 80
    assert estimate.wire_bytes({"data": {"collective-permute": 9}}, mesh) == pytest.approx(9)
    assert estimate.wire_bytes({}, mesh) == 0


# --- counts in compiled programs ---


MESH = {"replica": 1, "data": 2, "fsdp": 2, "tensor": 2}

# Two collectives in a loop of 5, a fused one, one over the network, one that moves nothing.
PROGRAM = """\
HloModule step, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%all-reduce-scatter.1 (in: f32[64,8]) -> f32[32,8] {
  %in = f32[64,8]{1,0:T(8,128)} parameter(0)
  %whole = f32[64,8]{1,0:T(8,128)S(3)} all-reduce(%in), replica_groups={{0,2},{1,3},{4,6},{5,7}}, to_apply=%add
  ROOT %part = f32[32,8]{1,0} slice(%whole), slice={[0:32], [0:8]}
}

%body (state: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %state = (s32[]{:T(128)}, bf16[4,8]{1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = bf16[4,8]{1,0:T(8,128)(2,1)} get-tuple-element(%state), index=1
  %gathered = bf16[8,8]{1,0} all-gather(%x), replica_groups=[4,2]<=[8], dimensions={0}
  %moved = (bf16[4,8]{1,0}, bf16[4,8]{1,0}, u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,0},{1,5},{5,1}}
  %done = bf16[4,8]{1,0} collective-permute-done(%moved)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %out = (s32[], bf16[4,8]{1,0}) tuple(%next, %done)
}

%condition (state: (s32[], bf16[4,8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(7)
  %state = (s32[], bf16[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  ROOT %lt = pred[] compare(%i, %limit), direction=LT
}

ENTRY %main (x: bf16[4,8], g: f32[64,8]) -> f32[32,8] {
  %x = bf16[4,8]{1,0} parameter(0)
  %g = f32[64,8]{1,0} parameter(1)
  %two = s32[] constant(2)
  %first = s32[] copy(%two)
  %start = (s32[], bf16[4,8]{1,0}) tuple(%first, %x)
  %loop = (s32[], bf16[4,8]{1,0}) while(%start), condition=%condition, body=%body
  %alone = f32[64,8]{1,0} all-reduce(%g), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=%add
  %token = token[] after-all()
  %sent = (f32[16]{0}, u32[], token[]) send(%g, %token), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="all-reduce_0",_xla_megascale_transfer_type="ALL_REDUCE"}
  %log = (f32[16]{0}, u32[], token[]) send(%g, %token), channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="log"}
  ROOT %scattered = f32[32,8]{1,0} fusion(%g), kind=kCustom, calls=%all-reduce-scatter.1
}
"""  # noqa: E501


def test_every_kind_is_counted_as_often_as_it_runs():
    assert hlo.collective_bytes(PROGRAM, MESH) == {
        "data": {"collective-permute": 5 * 4 * 8 * 2},
        "fsdp": {"reduce-scatter": 64 * 8 * 4},
        "replica": {"all-reduce": 16 * 4},
        "tensor": {"all-gather": 5 * 8 * 8 * 2},
    }


def test_scatter_that_starts_counts_what_goes_into_it():
    started = PROGRAM.replace(
        "%alone = f32[64,8]{1,0} all-reduce(%g), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}",
        "%alone = (f32[64,8]{1,0}, f32[32,8]{1,0}) reduce-scatter-start(%g), "
        "replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}",
    )
    assert hlo.collective_bytes(started, MESH)["tensor"]["reduce-scatter"] == 64 * 8 * 4


def test_trip_count_that_the_compiler_wrote_down_wins():
    known = PROGRAM.replace(
        "body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"3"}}'
    )
    assert hlo.collective_bytes(known, MESH)["tensor"] == {"all-gather": 3 * 8 * 8 * 2}


def test_loop_without_a_constant_bound_is_not_guessed():
    text = PROGRAM.replace("constant(7)", "parameter(1)")
    with pytest.raises(ValueError, match="loop"):
        hlo.collective_bytes(text, MESH)


@pytest.mark.parametrize(
    "groups, first",
    [
        ("{{0,4},{1,5},{2,6},{3,7}}", [0, 4]),
        ("{}", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("[2,4]<=[8]", [0, 1, 2, 3]),
        ("[4,2]<=[4,2]T(1,0)", [0, 2]),
        ("[4,2]<=[2,2,2]T(2,1,0)", [0, 4]),
        ("mesh['a'=8,'b'=1] {'a','b'}", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("mesh['a'=2,'b'=4] {'a'}", [0, 4]),
        ("mesh['a'=2,'b'=4] {'b'}", [0, 1, 2, 3]),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", [0, 2, 4, 6]),
        ("mesh['a'=8] {'a':(1)2}", [0, 4]),
        ("mesh['a'=8] {'a':(2)2}", [0, 2]),
        ("mesh['a'=8] {'a':(4)2}", [0, 1]),
    ],
)
def test_groups_in_every_notation(groups, first):
    assert hlo.first_group(f", channel_id=3, replica_groups={groups}, dimensions={{0}}", 8) == first


def test_groups_in_a_new_notation_are_not_guessed():
    with pytest.raises(ValueError, match="cannot be read"):
        hlo.first_group("replica_groups=<something else>", 8)


@pytest.mark.parametrize(
    "group, axes",
    [
        ([0, 1], "tensor"),
        ([0, 2], "fsdp"),
        ([0, 4], "data"),
        ([0, 1, 2, 3], "fsdp+tensor"),
        ([5], ""),
    ],
)
def test_axes_along_which_a_group_differs(group, axes):
    assert hlo.axes_of(group, MESH) == axes


@pytest.mark.parametrize(
    "shape, size",
    [
        ("f32[2,3]{1,0:T(8,128)S(3)}", 24),
        ("(bf16[10]{0}, /*index=5*/s32[], pred[8]{0})", 20 + 4 + 8),
        ("token[]", 0),
        ("f8e4m3fn[16]{0}", 16),
        ("s4[16]{0}", 8),
    ],
)
def test_bytes_of_shapes(shape, size):
    assert hlo.shape_bytes(shape) == size


def test_what_a_compiler_writes():
    """Weights gathered over fsdp and a gradient reduced over data, in a loop, by XLA itself."""
    rules = sharding.Rules(sharding.make_mesh(replica=1, data=2, fsdp=4, tensor=1), ())
    place = lambda *axes: NamedSharding(rules.mesh, PartitionSpec(*axes))  # noqa: E731
    layers, width, batch = 6, 64, 16

    def loss(w, x):
        def block(x, w):
            w = jax.lax.with_sharding_constraint(w, place(None, None))
            return jnp.sin(x @ w), None

        return jnp.sum(jax.lax.scan(block, x, w)[0])

    w = jax.ShapeDtypeStruct((layers, width, width), np.float32, sharding=place(None, "fsdp", None))
    x = jax.ShapeDtypeStruct((batch, width), np.float32, sharding=place(("data", "fsdp"), None))
    step = jax.jit(jax.grad(loss), out_shardings=place(None, "fsdp", None))
    text = step.lower(w, x).compile().as_text()
    found = hlo.collective_bytes(text, dict(rules.mesh.shape))
    weights = layers * width * width * 4
    gathered = sum(kinds.get("all-gather", 0) for kinds in found.values())
    reduced = sum(
        kinds.get("all-reduce", 0) + kinds.get("reduce-scatter", 0) for kinds in found.values()
    )
    assert weights <= gathered <= 2.1 * weights
    assert weights <= reduced <= 2.1 * weights
