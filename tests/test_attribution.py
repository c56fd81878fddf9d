# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""To which part of a step an instruction belongs: by its name, its contents, or its neighbours."""

import pytest

from vit_jax.preflight.plan import attribution, hlo
from vit_jax.preflight.plan.attribution import Attribution

# A scan that stores what a layer keeps in zeroed memory, between instructions of every kind.
PROGRAM = """\
HloModule step, is_scheduled=true

%product_and_update (a: f32[8,8], b: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8] parameter(0)
  %b = f32[8,8] parameter(1)
  %dw = f32[8,8] convolution(%a, %b), dim_labels=bf_io->bf, metadata={op_name="jit(step)/transpose(jvp(ViT))/EncoderBlock/mlp/up/dot_general"}
  ROOT %scaled = f32[8,8] multiply(%dw, %dw), metadata={op_name="jit(step)/optimizer/mul"}
}

%moments (a: f32[8,8], b: f32[8,8]) -> f32[] {
  %a = f32[8,8] parameter(0)
  %b = f32[8,8] parameter(1)
  %stepped = f32[8,8] add(%a, %b), metadata={op_name="jit(step)/optimizer/add"}
  ROOT %total = f32[] reduce(%stepped, %stepped), metadata={op_name="jit(step)/metrics/reduce_sum"}
}

%sums (a: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8] parameter(0)
  %twice = f32[8,8] add(%a, %a), metadata={op_name="jit(step)/jvp(ViT)/EncoderBlock/attn/out/add"}
  ROOT %moved = f32[8,8] bitcast(%twice)
}

%body (state: (s32[], f32[8,8], f32[8,8])) -> (s32[], f32[8,8], f32[8,8]) {
  %state = (s32[], f32[8,8], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[8,8] get-tuple-element(%state), index=1
  %kept = f32[8,8] get-tuple-element(%state), index=2
  %added = f32[8,8] add(%x, %x), metadata={op_name="jit(step)/jvp(ViT)/while/body/closed_call/blocks/add"}
  %normed = f32[8,8] multiply(%added, %x), metadata={op_name="jit(step)/jvp(ViT)/while/body/closed_call/blocks/mlp_norm/mul"}
  %stored = f32[8,8] fusion(%kept, %normed), kind=kLoop, calls=%bare, metadata={op_name="jit(step)/jvp(ViT)/while/body/dynamic_update_slice"}
  ROOT %out = (s32[], f32[8,8], f32[8,8]) tuple(%i, %normed, %stored)
}

%bare (a: f32[8,8], b: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8] parameter(0)
  %b = f32[8,8] parameter(1)
  ROOT %sum = f32[8,8] add(%a, %b)
}

%condition (state: (s32[], f32[8,8], f32[8,8])) -> pred[] {
  %limit = s32[] constant(3)
  %state = (s32[], f32[8,8], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  ROOT %lt = pred[] compare(%i, %limit), direction=LT
}

ENTRY %main (p: f32[8,8], q: f32[8,8]) -> f32[8,8] {
  %state_params__blocks____mlp____up____kernel__.1 = f32[8,8] parameter(0)
  %other = f32[8,8] parameter(1)
  %ahead = (f32[8,8], f32[8,8], u32[]) copy-start(%state_params__blocks____mlp____up____kernel__.1)
  %there = f32[8,8] copy-done(%ahead)
  %converted = bf16[8,8] convert(%there)
  %unknown = f32[8,8] add(%other, %other)
  %zero = s32[] constant(0)
  %nothing = f32[] constant(0)
  %zeros = f32[8,8] broadcast(%nothing), dimensions={}
  %first = (s32[], f32[8,8], f32[8,8]) tuple(%zero, %other, %zeros)
  %loop = (s32[], f32[8,8], f32[8,8]) while(%first), condition=%condition, body=%body
  %fetched = f32[8,8] get-tuple-element(%loop), index=2
  %after = f32[8,8] fusion(%fetched), kind=kLoop, calls=%sums
  %own = f32[8,8] add(%after, %after), metadata={op_name="jit(step)/jvp(Net)/wavelets/far/add"}
  %between = f32[8,8] add(%own, %own), metadata={op_name="jit(step)/jvp(Net)/wavelets/close/add"}
  %still = f32[8,8] add(%between, %between), metadata={op_name="jit(step)/jvp(Net)/wavelets/here/add"}
  %updated = f32[8,8] fusion(%still, %fetched), kind=kOutput, calls=%product_and_update, metadata={op_name="jit(step)/optimizer/mul"}
  %normed_too = f32[] fusion(%still, %fetched), kind=kLoop, calls=%moments, metadata={op_name="jit(step)/metrics/reduce_sum"}
  ROOT %moved = f32[8,8]{0,1} copy(%updated), metadata={op_name="jit(step)/transpose(jvp(ViT))/ViT._embed/reshape"}
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def find():
    """Name of an instruction -> (part, direction)."""
    _, computations = hlo.parse(PROGRAM)
    parts = Attribution(computations)
    places = {i.name: (around, i) for around, inside in computations.items() for i in inside}
    return lambda name: parts.find(*places[name])


@pytest.mark.parametrize(
    "name, part, direction",
    [
        ("updated", "MLP", "backward"),  # the product takes the time
        ("normed_too", "optimizer", "update"),  # a norm of what is updated comes with it
        ("after", "attention: output", "forward"),  # without a name, by its contents
        ("converted", "MLP", "update"),  # by what it reads, across a copy
        ("zeros", "storing and fetching of what layers keep", "forward"),  # by what the loop does
        ("added", "norms", "forward"),  # a residual sum, by what reads it
        ("stored", "storing and fetching of what layers keep", "forward"),
        ("moved", attribution.COPIES, "backward"),
        ("own", "attention: output", "forward"),  # beside a layer that is known
        ("unknown", attribution.OTHER, "update"),  # nothing near has a name
    ],
)
def test_an_instruction_belongs_to_what_it_contains_reads_or_feeds(find, name, part, direction):
    assert find(name) == (part, direction)


def alone(name):
    line = f'%x = f32[8] add(%x, %x), metadata={{op_name="jit(step)/{name}"}}'
    entry, computations = hlo.parse(f"ENTRY %main (x: f32[8]) -> f32[8] {{\n  {line}\n}}")
    return Attribution(computations).find(entry, computations[entry][0])


@pytest.mark.parametrize(
    "name, part",
    [
        ("jvp(ViT)/EncoderBlock/attn/query/dot_general", "attention: projections"),
        ("jvp(ViT)/EncoderBlock/attn/attn._plain/dot_general", "attention: scores and softmax"),
        ("jvp(ViT)/EncoderBlock/attn/out/dot_general", "attention: output"),
        ("jvp(ViT)/while/body/closed_call/blocks/attn_norm/reduce_sum", "norms"),
        ("jvp(ViT)/ViT._embed/embedding/conv_general_dilated", "patch embedding"),
        ("jvp(ViT)/ViT._embed/concatenate", "patch embedding"),
        ("jvp(ViT)/add", "patch embedding"),
        ("transpose(jvp(ViT))/reduce_sum", "patch embedding"),
        ("jvp(ViT)/concatenate", "storing and fetching of what layers keep"),
        ("jvp(ViT)/squeeze", "head and loss"),
        ("jvp(Mixer)/while/body/closed_call/blocks/tokens_mlp/up/dot_general", "MLP"),
        ("jvp(jit(log_softmax))/reduce_sum", "head and loss"),
        ("jvp(ViT)/ViT._embed/backbone/stage1_unit1/conv1/conv_general_dilated", "convolutions"),
        ("jvp(ViT)/ViT._embed/backbone/stage1_unit1/norm1/reduce_sum", "norms"),
        ("jvp(BiT)/backbone/stage1_unit1/convert_element_type", "convolutions"),
        ("metrics/reduce_sum", "norms for metrics"),
        ("optimizer/mul", "optimizer"),
        ("while/body/closed_call/add", "sums over micro-batches"),
        ("vmap(jit(_shuffle))/sort", "random draws"),
        ("jvp(Net)/wavelets/convert_element_type", attribution.OTHER),
        ("fancy", attribution.OTHER),
    ],
)
def test_parts_follow_the_names_of_modules(name, part):
    assert alone(name)[0] == part


def test_a_layer_that_is_not_known_is_not_taken_for_its_distant_neighbours(find):
    assert find("between") == (attribution.OTHER, "forward")
