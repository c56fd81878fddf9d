# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Says to which part of a training step an instruction of its optimised HLO belongs.

jax names operations after the modules that they come from. XLA fuses operations, and adds some of
its own without a name: those belong to what they contain, else to what they read or what reads
them. Start from `Attribution`.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator

from vit_jax.preflight.plan import hlo
from vit_jax.preflight.plan.hlo import Computations, Instruction

OTHER = "not attributed"
COLLECTIVES = "collectives that nothing hides"
COPIES = "copies and transposes"
_STORING = "storing and fetching of what layers keep"
_HEAD = "head and loss"
_EMBEDDING = "patch embedding"
_METRICS, _OPTIMIZER = "norms for metrics", "optimizer"

# The first pattern that occurs in a name decides. A name is a path of functions, modules and
# operations: jit(train_step)/transpose(jvp(ViT))/while/body/.../blocks/attn/query/dot_general.
_PARTS: tuple[tuple[str, str], ...] = (
    (r"/metrics/", _METRICS),
    (r"/optimizer/|opt_state", _OPTIMIZER),
    (r"^jit\(\w+\)/while/body/closed_call/add$", "sums over micro-batches"),
    (r"_embed\b(?!.*backbone)|batch/image", _EMBEDDING),
    (r"dynamic_(update_)?(index_in_dim|slice)|jvp\(\w+\)+/concatenate$", _STORING),
    (r"map_head|attn/+(query|key|value)\b", "attention: projections"),
    (r"attn/+out\b", "attention: output"),
    (r"attn/", "attention: scores and softmax"),
    (r"mlp\b|mixer|tokens_mlp|channels_mlp", "MLP"),
    (r"embedding|posemb|\b(cls|dist)\b|registers|mask_token|stem_norm", _EMBEDDING),
    (r"norm", "norms"),
    (r"backbone|root|stage\d|unit\d|\bconv(?!ert)", "convolutions"),
    (r"head|softmax|sigmoid|loss|take_along_axis|one_hot|pre_logits|jvp\(\)", _HEAD),
    (r"threefry|Masked\._draw|_(uniform|randint|shuffle|bernoulli)\b", "random draws"),
    # Operations of the model itself: it adds the position embedding, and pools after the layers.
    (r"jvp\(\w+\)/add$|transpose\(jvp\(\w+\)\)/reduce_sum$", _EMBEDDING),
    (r"jvp\(\w+\)+/\w+$", _HEAD),
)  # fmt: skip
_PASSING = ("tuple", "while", "conditional", "call", "constant", "iota")  # tell nothing by name
_MOST_SEEN = 100  # instructions to look at around one without a name
_NEAR = 1  # the same around one of the model: it may be of a layer that is not known here

Place = tuple[str, str]  # computation, instruction


class Attribution:
    """Finds the parts of the instructions of one program."""

    def __init__(self, computations: Computations):
        self._computations = computations
        self._instructions = {
            (around, each.name): each for around, inside in computations.items() for each in inside
        }

    def find(self, around: str, each: Instruction) -> tuple[str, str]:
        """Returns (part, direction) of an instruction.

        Args:
          around: the name of its computation.
          each: the instruction.

        Returns:
          The part, and `forward`, `backward` or `update`.
        """
        part, direction = self._by_names(each)
        if part is None or direction is None:
            farthest = _NEAR if "jvp(" in _name(each) else _MOST_SEEN
            for name_part, name_direction in self._around((around, each.name), farthest):
                part, direction = part or name_part, direction or name_direction
                if part and direction:
                    break
        return part or OTHER, direction or "update"

    def _by_names(self, each: Instruction) -> tuple[str | None, str | None]:
        """Returns (part, direction) as far as the names in an instruction tell."""
        if each.opcode in _PASSING:
            return None, None
        contained = self._contained(each)
        products = [i for i in contained if i.opcode in ("convolution", "dot")]
        for one in (*products, each):  # a product takes longer than what is fused with it
            if part := _part(one):
                if part == _METRICS and any(_part(i) == _OPTIMIZER for i in contained):
                    part = _OPTIMIZER  # it sums up for a norm what it updates
                return part, _direction(_name(one)) or _direction(_name(each))
        counted: dict[tuple[str, str | None], int] = defaultdict(int)
        for one in contained:
            if (part := _part(one)) and part != COPIES:
                counted[part, _direction(_name(one))] += 1
        own = None, _direction(_name(each))
        return max(counted, key=lambda told: counted[told]) if counted else own

    def _contained(self, each: Instruction) -> list[Instruction]:
        """Returns the instructions that are fused into one."""
        inside = self._computations.get(each.fused, [])
        return [one for i in inside for one in (i, *self._contained(i))]

    def _around(self, place: Place, farthest: int) -> Iterator[tuple[str | None, str | None]]:
        """Yields (part, direction) of what an instruction reads, then of what reads it.

        Both searches go `farthest` instructions far, the nearest first.
        """
        for links in self._links:
            seen, nearest = {place}, [place]
            for _ in range(farthest):
                if len(seen) > _MOST_SEEN:
                    break
                following = [p for near in nearest for p in links[near] if p not in seen]
                nearest = list(dict.fromkeys(following))
                seen.update(nearest)
                for near in nearest:
                    part, direction = self._by_names(self._instructions[near])
                    yield None if part == COPIES else part, direction

    @functools.cached_property
    def _links(self) -> tuple[dict[Place, list[Place]], dict[Place, list[Place]]]:
        """Returns what each instruction reads, and what reads it, also into and out of loops."""
        reads: dict[Place, list[Place]] = defaultdict(list)
        for place, each in self._instructions.items():
            if each.opcode not in ("parameter", "while", "tuple"):
                reads[place] += [(place[0], name) for name in each.operand_names]
        for (around, _), each in self._instructions.items():
            if each.opcode == "while":
                self._link_loop(around, each, reads)
        read_by: dict[Place, list[Place]] = defaultdict(list)
        for place, sources in reads.items():
            reads[place] = [source for source in sources if source in self._instructions]
            for source in reads[place]:
                read_by[source].append(place)
        return reads, read_by

    def _link_loop(self, around: str, loop: Instruction, reads: dict[Place, list[Place]]) -> None:
        """Links what enters a loop with its uses inside, and results with their uses outside."""
        body = re.search(r"\bbody=%([\w.-]+)", loop.attributes)
        if body is None:
            return
        inside = self._computations[body[1]]
        entering = self._instructions.get((around, (loop.operand_names or [""])[0]))
        parameter = next((i.name for i in inside if i.opcode == "parameter"), "")
        ends = (
            (entering, around, inside, body[1], parameter),
            (inside[-1], body[1], self._computations[around], around, loop.name),
        )
        for packed, here, users, there, unpacked in ends:
            if packed is None or packed.opcode != "tuple":
                continue
            elements = packed.operand_names
            for user in users:
                index = re.search(r"\bindex=(\d+)", user.attributes)
                if index and user.operand_names == [unpacked]:
                    reads[there, user.name].append((here, elements[int(index[1])]))


def _name(each: Instruction) -> str:
    """Returns the name that jax gave an operation or a parameter; "" if it has none."""
    if each.opcode == "parameter":
        return each.name.replace("__", "/")
    named = re.search(r'op_name="([^"]*)"', each.attributes)
    return named[1] if named and each.opcode not in _PASSING else ""


def _direction(name: str) -> str | None:
    if "jvp(" in name:
        return "backward" if "transpose(jvp" in name else "forward"
    return "update" if re.search(r"/(optimizer|metrics)/", name) else None


def _part(each: Instruction) -> str | None:
    """Returns the part that an operation and its name tell, or None."""
    name = _name(each)
    if each.opcode in ("copy", "transpose") or name.endswith("/transpose"):
        return COPIES
    if each.opcode in hlo.KINDS:
        return COLLECTIVES
    return next((part for pattern, part in _PARTS if re.search(pattern, name)), None)
