# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Collectives in HLO text: kinds, bytes, loops and groups, written by hand and by a compiler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from vit_jax import sharding
from vit_jax.preflight.plan import hlo

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
  %sent = (f32[16]{0}, u32[], token[]) send(%g, %token), channel_id=1, is_host_transfer=true, frontend_attributes={_xla_megascale_transfer_type="ALL_REDUCE"}
  %log = (f32[16]{0}, u32[], token[]) send(%g, %token), channel_id=2, is_host_transfer=true
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
