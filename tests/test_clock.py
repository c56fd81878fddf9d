# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The TPU compiler's clock: cycles, loops, hidden collectives and the parts that they belong to."""

import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest

from vit_jax.hardware import topology
from vit_jax.preflight.plan import attribution, clock, compile_for
from vit_jax.runtime.worker_process import Child
from vit_jax.step import mixing

# A loop of 3 with 100 cycles a run; 50 cycles that hide a part of an all-reduce; an exposed one.
PROGRAM = """\
HloModule step, is_scheduled=true, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%inner (in: f32[64,8]) -> f32[64,8] {
  %in = f32[64,8]{1,0} parameter(0)
  ROOT %double = f32[64,8]{1,0} add(%in, %in)
}

%body (state: (s32[], f32[64,8])) -> (s32[], f32[64,8]) {
  %state = (s32[], f32[64,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[64,8]{1,0} get-tuple-element(%state), index=1
  %up = f32[64,8]{1,0} fusion(%x), kind=kLoop, calls=%inner, metadata={op_name="jit(step)/jvp(ViT)/while/body/closed_call/blocks/mlp/up/dot_general"}, backend_config={"estimated_cycles":"70"}
  %kept = f32[64,8]{1,0} fusion(%up), kind=kLoop, calls=%inner, metadata={op_name="jit(step)/jvp(ViT)/while/body/dynamic_update_slice"}, backend_config={"estimated_cycles":"30"}
  ROOT %out = (s32[], f32[64,8]{1,0}) tuple(%i, %kept)
}

%condition (state: (s32[], f32[64,8])) -> pred[] {
  %limit = s32[] constant(3)
  %state = (s32[], f32[64,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  ROOT %lt = pred[] compare(%i, %limit), direction=LT
}

ENTRY %main (g: f32[64,8]) -> f32[64,8] {
  %state_params__blocks____mlp____up____kernel__.1 = f32[64,8]{1,0} parameter(0)
  %converted = f32[64,8]{1,0} convert(%state_params__blocks____mlp____up____kernel__.1), backend_config={"estimated_cycles":"5"}
  %zero = s32[] constant(0)
  %first = (s32[], f32[64,8]{1,0}) tuple(%zero, %converted)
  %loop = (s32[], f32[64,8]{1,0}) while(%first), condition=%condition, body=%body
  %after = f32[64,8]{1,0} get-tuple-element(%loop), index=1
  %sum-start = f32[64,8]{1,0} all-reduce-start(%after), replica_groups={{0,1}}, to_apply=%add
  %adam = f32[64,8]{1,0} fusion(%after), kind=kLoop, calls=%inner, metadata={op_name="jit(step)/optimizer/mul"}, backend_config={"estimated_cycles":"50"}
  %sum-done = f32[64,8]{1,0} all-reduce-done(%sum-start)
  %alone = f32[64,8]{1,0} all-reduce(%sum-done), replica_groups={{0,1}}, to_apply=%add, metadata={op_name="jit(step)/metrics/add"}
  ROOT %moved = f32[64,8]{0,1} copy(%alone), metadata={op_name="jit(step)/transpose(jvp(ViT))/ViT._embed/reshape"}, backend_config={"estimated_cycles":"7"}
}
"""  # noqa: E501


def of_80(computation, each):
    assert each.opcode in ("all-reduce", "all-reduce-start")
    return 80.0


def test_every_part_of_a_program_has_its_cycles():
    found = clock.read(PROGRAM, 1.0, 1.0, of_80)
    assert found is not None
    assert found.parts == {
        "MLP": {"forward": 5 + 3 * 70},  # the conversion belongs to what it feeds
        attribution.COLLECTIVES: {"update": (80 - 50) + 80},
        "storing and fetching of what layers keep": {"forward": 3 * 30},
        "optimizer": {"update": 50},
        attribution.COPIES: {"backward": 7},
    }
    assert list(found.parts) == sorted(
        found.parts, key=lambda part: -sum(found.parts[part].values())
    )
    assert found.secs == sum(secs for part in found.parts.values() for secs in part.values())
    faster = clock.read(PROGRAM, 2.0, 1.0, of_80)
    assert faster is not None
    assert faster.parts["MLP"] == {"forward": 107.5}


def test_a_draw_that_is_repeated_until_it_is_accepted_counts_once():
    where = 'metadata={op_name="jit(step)/jit(_beta)/jit(_gamma)/vmap()/while"}'
    program = PROGRAM.replace("body=%body", f"body=%body, {where}")
    program = program.replace("direction=LT", "direction=NE")
    found = clock.read(program, 1.0, 1.0, of_80)
    assert found is not None
    assert found.parts["MLP"] == {"forward": 5 + 70}
    with pytest.raises(ValueError, match="no counter that can be read"):
        clock.read(program.replace("_gamma", "other"), 1.0, 1.0, of_80)


def test_an_instruction_whose_cost_the_compiler_cannot_say_leaves_no_estimate():
    program = PROGRAM.replace('"estimated_cycles":"7"', f'"estimated_cycles":"{2**63 - 1}"')
    with pytest.raises(ValueError, match="no estimate of moved"):
        clock.read(program, 1.0, 1.0, of_80)


def of_slices(at, after):
    """PROGRAM with a sum between slices that is sent at one line, and waited for after another."""
    named = ('frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.1_0",'
             '_xla_megascale_transfer_type="ALL_REDUCE"}')  # fmt: skip
    shape = "(f32[64,8]{1,0}, u32[], token[])"
    sent = f"  %s = {shape} send(%x, %token), {named}\n"
    received = (
        "  %s-done = token[] send-done(%s), channel_id=3\n"
        f"  %r = {shape} recv(%token), channel_id=2, {named}\n"
        "  %r-done = (f32[64,8]{1,0}, token[]) recv-done(%r), channel_id=2\n"
    )
    found = PROGRAM.replace(f"  {at} = ", f"{sent}  {at} = ")
    line = next(line for line in found.splitlines(True) if line.startswith(f"  {after} = "))
    return found.replace(line, line + received)


@pytest.mark.parametrize(
    "at, after, waited",
    [
        # Sent before 50 cycles and waited for after them, which hides the last 30 of a sum.
        ("%adam", "%adam", 100 - 50 - 30),
        ("%adam", "%alone", 0),  # the waits for sums take 30 and 80 meanwhile
        ("%alone", "%alone", 100 - 80),
        ("%sum-done", "%sum-done", 100 - 30),
    ],
)
def test_slices_wait_for_what_they_send_to_each_other_unless_it_is_hidden(at, after, waited):
    def secs(computation, each):
        return 100.0 if each.opcode == "send" else of_80(computation, each)

    found = clock.read(of_slices(at, after), 1.0, 1.0, secs)
    before = clock.read(PROGRAM, 1.0, 1.0, of_80)
    assert found is not None
    assert before is not None
    assert found.secs == pytest.approx(before.secs + waited)


def test_what_is_sent_to_the_host_alone_is_no_collective():
    program = of_slices("%adam", "%adam").replace(',_xla_megascale_transfer_type="ALL_REDUCE"', "")
    assert clock.read(program, 1.0, 1.0, of_80) == clock.read(PROGRAM, 1.0, 1.0, of_80)


def test_a_collective_between_slices_without_an_end_leaves_no_estimate():
    program = of_slices("%adam", "%adam").replace("recv-done(%r)", "recv-done(%other)")
    with pytest.raises(ValueError, match=r"no end of all-reduce\.1_0"):
        clock.read(program, 1.0, 1.0, lambda *_: 1.0)


def test_slices_send_one_thing_after_another():
    """Two sums of 100 that are sent together: the second one waits for the first."""
    program = of_slices("%adam", "%adam")
    sent, received = (
        [line for line in program.splitlines(True) if line.startswith(names)]
        for names in (("  %s = ",), ("  %s-done", "  %r = ", "  %r-done"))
    )

    def renamed(lines):
        return "".join(re.sub(r"%(s|r)\b", r"%\1.2", x).replace(".1_0", ".2_0") for x in lines)

    program = program.replace(sent[0], sent[0] + renamed(sent))
    program = program.replace(received[0], renamed(received) + received[0])  # in the other order
    found = clock.read(program, 1.0, 1.0, lambda _, each: 100.0 * (each.opcode == "send"))
    before = clock.read(PROGRAM, 1.0, 1.0, lambda *_: 0.0)
    assert found is not None
    assert before is not None
    assert found.secs == pytest.approx(before.secs + 2 * 100 - 50)


def test_hidden_collectives_cost_nothing():
    hidden = clock.read(PROGRAM, 1.0, 1.0, lambda *_: 20.0)
    assert hidden is not None
    assert hidden.parts[attribution.COLLECTIVES] == {
        "update": 20
    }  # only the one that nothing follows


def test_a_copy_that_ends_meanwhile_does_not_end_the_collectives_before_it():
    copied = PROGRAM.replace(
        "  %adam = ",
        "  %ahead = (f32[64,8]{1,0}, f32[64,8]{1,0}, u32[]) copy-start(%after)\n"
        "  %there = f32[64,8]{1,0} copy-done(%ahead)\n  %adam = ",
    )
    assert clock.read(copied, 1.0, 1.0, of_80) == clock.read(PROGRAM, 1.0, 1.0, of_80)


def test_a_collective_inside_a_fusion_counts_as_far_as_it_is_longer():
    text = PROGRAM.replace(
        "%double = f32[64,8]{1,0} add(%in, %in)",
        "%double = f32[64,8]{1,0} all-reduce(%in), replica_groups={{0,1}}, to_apply=%add",
    )
    found = clock.read(text, 1.0, 1.0, of_80)
    assert found is not None
    longer = 3 * ((80 - 70) + (80 - 30)) + (80 - 50)
    started = max(0, 80 - 50 - 30)  # the fusion of 50 cycles now lasts 80
    assert found.parts[attribution.COLLECTIVES] == {"update": longer + started + 80}


@pytest.mark.parametrize("rows", ["2,4", "8"])  # one image a device has no axis of its own
def test_a_kernel_without_cycles_counts_with_its_flops_in_a_part_of_its_own(rows):
    kernel = (
        f"  %splash_mha_dkv_no_residuals.1 = bf16[{rows},256,80]{{3,2,1,0}} custom-call(%after), "
        'custom_call_target="tpu_custom_call", operand_layout_constraints={s8[1,3,3]{2,1,0}, '
        f"bf16[{rows},256,80]{{3,2,1,0}}, bf16[{rows},256,80]{{3,2,1,0}}}}\n  %sum-start = "
    )
    found = clock.read(PROGRAM.replace("  %sum-start = ", kernel), 1.0, 1e6, of_80)
    assert found is not None
    flops = 4 * 2 * (2 * 4 * 256 * 256 * 80)  # four products of the scores' size
    assert found.parts[clock.KERNELS] == {"backward": flops / 1e6}


def test_a_kernel_whose_queries_cannot_be_read_is_an_error_of_the_text():
    """The plan then says that there is no estimate; see `compile_for`."""
    kernel = "  %splash_mha_fwd_residuals.1 = s32[] custom-call(%after)\n  %sum-start = "
    with pytest.raises(ValueError, match=r"splash_mha_fwd_residuals\.1 has no queries"):
        clock.read(PROGRAM.replace("  %sum-start = ", kernel), 1.0, 1e6, of_80)


def test_an_asynchronous_collective_in_several_fusions_counts_once_and_is_hidden_by_them():
    gather = "all-gather(%in), channel_id=7, dimensions={0}"
    text = PROGRAM.replace(
        "%inner (", f"%gathering (in: f32[64,8]) -> f32[64,8] {{\n"
        "  %in = f32[64,8]{1,0} parameter(0)\n"
        f"  ROOT %gathered = f32[64,8]{{1,0}} {gather}\n}}\n\n%inner (", 1
    ).replace("  %sum-start = ", "".join(
        f"  %{name} = f32[64,8]{{1,0}} fusion(%after), kind=kCustom, calls=%gathering{cycles}\n"
        for name, cycles in (
            ("async-collective-start", ""),
            ("carries-on", ', metadata={op_name="jvp(ViT)/mlp/up/dot_general"}, '
                           'backend_config={"estimated_cycles":"30"}'),
            ("async-collective-done", ""),
        )
    ) + "  %sum-start = ")  # fmt: skip

    def secs(computation, each):
        return 100.0 if each.opcode == "all-gather" else 80.0

    found, before = clock.read(text, 1.0, 1.0, secs), clock.read(PROGRAM, 1.0, 1.0, of_80)
    assert found is not None
    assert before is not None
    assert found.secs == before.secs + 30 + (100 - 30)
    more = found.parts[attribution.COLLECTIVES]["update"]
    assert more == before.parts[attribution.COLLECTIVES]["update"] + 70


def test_a_program_without_cycles_has_no_estimate():
    bare = re.sub(r', backend_config=\{"estimated_cycles":"\d+"\}', "", PROGRAM)
    assert clock.read(bare, 1.0, 1.0, of_80) is None


def clock_of_a_v5e():
    """In a process of its own: (function, shapes) -> seconds by its clock."""
    accelerator = topology.find("v5e-1")
    compile_for.start(accelerator, 1)
    device = compile_for.devices(accelerator, 1)[0][0]

    def secs(function, *shapes):
        placed = compile_for.on_device(shapes, device)
        text = jax.jit(function).lower(*placed).compile().as_text()
        found = clock.read(text, accelerator.generation.hertz, accelerator.generation.flops, of_80)
        assert found is not None
        assert found.secs == pytest.approx(
            sum(secs for part in found.parts.values() for secs in part.values())
        )
        return found.secs

    return secs


def estimating():
    """In a process of its own: (layers, whether in a scan) -> seconds by the clock of a v5e."""
    secs = clock_of_a_v5e()

    def estimated(asked):
        layers, in_a_scan = asked

        def layer(x, kernels):  # large products: a scan also copies what it carries
            up, down = kernels
            return jax.nn.gelu(x @ up) @ down, None

        def whole(x, up, down):
            if in_a_scan:
                return jax.lax.scan(layer, x, (up, down))[0]
            for i in range(layers):
                x, _ = layer(x, (up[i], down[i]))
            return x

        shapes = (4096, 2048), (layers, 2048, 4096), (layers, 4096, 2048)
        return secs(whole, *(jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in shapes))

    return estimated


def drawing():
    """In a process of its own: (mixup, cutmix) -> seconds of a draw by the clock of a v5e."""
    secs, key = clock_of_a_v5e(), jax.ShapeDtypeStruct((2,), jnp.uint32)

    def estimated(alphas):
        return secs(lambda key: mixing.draw(key, (224, 224), *alphas), key)

    return estimated


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
def test_loops_that_draw_a_mix_are_named_by_jax_as_the_clock_expects():
    with Child(drawing) as child:
        draws = [child.ask(alphas) for alphas in ((0.8, 0.0), (0.0, 1.0), (0.8, 1.0))]
    assert all(0 < secs < 1e-3 for secs in draws)


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
def test_the_compiler_counts_a_scan_like_its_layers_one_by_one():
    with Child(estimating) as child:
        once, scanned, unrolled = (child.ask(a) for a in ((1, False), (8, True), (8, False)))
    assert scanned == pytest.approx(unrolled, rel=0.25)
    assert unrolled == pytest.approx(8 * once, rel=0.25)
    flops = 8 * 2 * 2 * 4096 * 2048 * 4096
    assert 0.4 < flops / unrolled / topology.find("v5e-1").generation.flops <= 1
