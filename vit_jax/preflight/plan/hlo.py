# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads from optimised HLO text what a compiled program sends between devices.

Every collective counts as often as the loops around it run. It belongs to the mesh axes along which
the members of its groups differ. Start from `collective_bytes`.
"""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.step.packing import Packing

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "token": 0}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of HLO: `name = shape opcode(operands), attributes`."""

    name: str
    shape: str
    opcode: str
    operands: str
    attributes: str

    @property
    def operand_names(self) -> list[str]:
        """The instructions that it reads."""
        return re.findall(r"%([\w.-]+)", self.operands)

    @property
    def fused(self) -> str:
        """The computation that it fuses; "" if it is not a fusion."""
        called = re.search(r"\bcalls=%([\w.-]+)", self.attributes)
        return called[1] if called else ""


Computations = dict[str, list[Instruction]]


def parse(text: str) -> tuple[str, Computations]:
    """Returns (name of the entry computation, computation -> its instructions)."""
    entry, found = "", {}
    inside: list[Instruction] = []
    for line in text.splitlines():
        opened = re.match(r"(ENTRY )?%([\w.-]+) \(.*\{$", line)
        if opened:
            inside = found.setdefault(opened[2], [])
            entry = opened[2] if opened[1] else entry
            continue
        at = re.match(r"\s+(?:ROOT )?%([\w.-]+) = ", line)
        if at:
            inside.append(_instruction(at[1], line[at.end() :]))
    if entry not in found:
        raise ValueError("no ENTRY computation in the HLO text")
    return entry, found


def _instruction(name: str, text: str) -> Instruction:
    end = _closing(text) if text.startswith("(") else text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    opcode = rest[: rest.index("(")]
    rest = rest[len(opcode) :]
    end = _closing(rest)
    return Instruction(name, shape, opcode, rest[1 : end - 1], rest[end:])


def _closing(text: str) -> int:
    """Returns the position after the bracket that closes the first one."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at + 1
    raise ValueError(f"unbalanced: {text[:80]}")


def shape_bytes(shape: str) -> int:
    """Returns the bytes of an array shape such as `bf16[8,128]{1,0}`, or of all in a tuple."""
    total = 0
    for dtype, dims in re.findall(r"([a-z]\w*)\[([\d,]*)\]", shape):
        bits = re.search(r"\d+", dtype)
        size = _BYTES.get(dtype, int(bits[0]) / 8 if bits else 0)
        total += size * int(np.prod([int(d) for d in dims.split(",") if d], dtype=np.int64))
    return int(total)


# ---------------------------------------------------------------- number of executions


def _executed(
    entry: str, computations: Computations, times: int = 1
) -> Iterator[tuple[str, Instruction, int]]:
    """Yields (computation, instruction, number of executions) of everything reachable."""
    for each in computations[entry]:
        yield entry, each, times
        called = dict(re.findall(r"\b(body|condition|calls)=%([\w.-]+)", each.attributes))
        if each.opcode == "while":
            trips = trip_count(each, entry, computations)
            yield from _executed(called["body"], computations, times * trips)
        elif each.opcode == "conditional":
            for branch in branches(each):
                yield from _executed(branch, computations, times)
        elif each.opcode == "call":
            inner = re.search(r"to_apply=%([\w.-]+)", each.attributes)
            yield from _executed(inner[1], computations, times) if inner else ()
        elif "calls" in called:
            yield from _executed(called["calls"], computations, times)


def branches(each: Instruction) -> list[str]:
    """Returns the computations of which a `conditional` runs one."""
    listed = re.search(r"branch_computations=\{([^}]*)\}", each.attributes)
    names = listed[1] if listed else each.attributes
    pattern = r"%([\w.-]+)" if listed else r"(?:true|false)_computation=%([\w.-]+)"
    return re.findall(pattern, names)


def trip_count(loop: Instruction, around: str, computations: Computations) -> int:
    """Returns how often a loop runs, as the compiler noted it or from its counter.

    The loop over further passes of packed images depends on the images: 0, as if all had room.
    Loops that draw a number of mixup until it is accepted end at once nearly always: 1.

    Raises:
      ValueError: the counter is not compared with a constant.
    """
    known = re.search(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)', loop.attributes)
    if known:
        return int(known[1])
    if f"{Packing.FURTHER}/while" in loop.attributes:
        return 0
    if "jit(_gamma)/" in loop.attributes:  # Marsaglia and Tsang's method rejects at most one in 20
        return 1
    parts = dict(re.findall(r"\b(body|condition)=%([\w.-]+)", loop.attributes))
    condition = {i.name: i for i in computations[parts["condition"]]}
    compare = next((i for i in condition.values() if i.opcode == "compare"), None)
    if compare is None or "direction=LT" not in compare.attributes:
        raise ValueError(f"the loop {loop.name} has no counter that can be read")
    counter, limit = (condition[name] for name in compare.operand_names)
    index = re.search(r"index=(\d+)", counter.attributes)
    if limit.opcode != "constant" or index is None:
        raise ValueError(f"the loop {loop.name} is not bounded by a constant")
    start = _element(int(index[1]), loop.operands, computations[around])
    return int(limit.operands) - start


def _element(index: int, operand: str, around: list[Instruction]) -> int:
    """Returns the constant that a loop's counter starts from; 0 if it is not written as one."""
    by_name = {i.name: i for i in around}
    given = by_name.get(operand.strip().removeprefix("%"))
    if given is None or given.opcode != "tuple":
        return 0
    first = by_name.get(given.operand_names[index])
    while first is not None and first.opcode in ("copy", "bitcast"):
        first = by_name.get(first.operands.strip().removeprefix("%"))
    return int(first.operands) if first is not None and first.opcode == "constant" else 0


# ---------------------------------------------------------------- mesh axes


def first_group(attributes: str, devices: int) -> list[int]:
    """Returns the members of a collective's first group, by their place on the mesh.

    The function reads `{{0,1},{2,3}}`, `[4,2]<=[2,4]T(1,0)`, and a mesh with its own names.

    Raises:
      ValueError: the groups are written in another way.
    """
    pairs = re.search(r"source_target_pairs=\{\{(.*?)\}\}", attributes)
    if pairs:
        ends = (p.split(",") for p in pairs[1].split("},{"))
        return next(([int(a), int(b)] for a, b in ends if a != b), [0])
    text = attributes.partition("replica_groups=")[2]
    if text.startswith("{}"):
        return list(range(devices))
    listed = re.match(r"\{\{([\d,]*)\}", text)
    if listed:
        return [int(n) for n in listed[1].split(",")]
    iota = re.match(r"\[(\d+),(\d+)\](<=\[[\d,]+\](?:T\([\d,]+\))?)", text)
    if iota:
        return list(_ordered(iota[3].removeprefix("<="), devices)[: int(iota[2])])
    named = re.match(r"mesh\[(.*?)\](?:, device_ids=\((.*?\])(T\([\d,]+\))?\))? \{(.*?)\}", text)
    if named is None:
        raise ValueError(f"groups that cannot be read: {text[:120]}")
    sizes = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", named[1])}
    ids = _ordered((named[2] or "") + (named[3] or ""), devices)
    return _along(ids, sizes, named[4])


def _ordered(text: str, devices: int) -> np.ndarray:
    """Returns devices in the order of `[2,4]T(1,0)`: 0 to n - 1, reshaped and transposed."""
    ids = np.arange(devices)
    dims = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if dims:
        ids = ids.reshape([int(d) for d in dims[1].split(",")])
        if dims[2]:
            ids = ids.transpose([int(d) for d in dims[2].split(",")])
    return ids.reshape(-1)


def _along(ids: np.ndarray, sizes: dict[str, int], axes: str) -> list[int]:
    """Returns the first group of a mesh along axes such as `'a','b':(2)4`.

    An axis is whole, or split into (a part before) a part.
    """
    grid = ids.reshape(list(sizes.values()))
    chosen: list[slice | int] = [0] * len(sizes)
    parts: dict[str, tuple[int, int]] = {}
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", axes):
        chosen[list(sizes).index(name)] = slice(None)
        if size:
            parts[name] = (int(before), int(size))
    group = grid[tuple(chosen)]
    kept = [n for n, c in zip(sizes, chosen, strict=True) if isinstance(c, slice)]
    for dim, name in enumerate(kept):
        if name in parts:
            before, size = parts[name]
            split = np.moveaxis(group, dim, 0).reshape(
                before, size, -1, *np.delete(group.shape, dim)
            )
            group = np.moveaxis(split[0, :, 0], 0, dim)
    return [int(i) for i in group.reshape(-1)]


def axes_of(group: Sequence[int], mesh: dict[str, int]) -> str:
    """Returns the mesh axes along which members differ, joined by `+`; "" for one member."""
    places = np.array(np.unravel_index(np.asarray(group), tuple(mesh.values())))
    return "+".join(a for a, row in zip(mesh, places, strict=True) if len(set(row.tolist())) > 1)


# ---------------------------------------------------------------- bytes


def collective_bytes(text: str, mesh: dict[str, int]) -> dict[str, dict[str, int]]:
    """Returns the bytes that one device puts into collectives: axes -> kind -> bytes.

    They are those of one run of the program.

    An array counts once, with its whole size: the array of an all-reduce, the result of an
    all-gather, the input of a reduce-scatter. The share that crosses a link depends on the
    algorithm; a ring sends (n - 1) / n of it, twice for an all-reduce.

    Args:
      text: optimised HLO.
      mesh: axis -> size, in the order of the device assignment; `replica` crosses the network, and
        the program is that of one slice.

    Raises:
      ValueError: a loop or a group cannot be read.
    """
    inside = program_mesh(text, mesh)
    entry, computations = parse(text)
    total: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for computation, each, times in _executed(entry, computations):
        if each.opcode.removesuffix("-start") in KINDS or sends_to_slices(each):
            axes, kind, size = sent(computation, each, inside)
            if axes:
                total[axes][kind] += times * size
    return {axes: dict(kinds) for axes, kinds in sorted(total.items())}


def program_mesh(text: str, mesh: dict[str, int]) -> dict[str, int]:
    """Returns the mesh that a program sees; `replica` is 1 if each slice has its own program."""
    partitions = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
    own = bool(partitions) and int(partitions[1]) < math.prod(mesh.values())
    return mesh | {"replica": 1} if own else dict(mesh)


def sent(computation: str, each: Instruction, mesh: dict[str, int]) -> tuple[str, str, int]:
    """Returns (axes, kind, bytes) of a collective; axes are "" if it has one member.

    Args:
      computation: the name of the computation around it.
      each: an instruction of one of `KINDS`, the start of one, or one that `sends_to_slices`.
      mesh: see `program_mesh`.

    Raises:
      ValueError: its groups cannot be read, or slices send for something else than a sum.
    """
    if sends_to_slices(each):
        if '_xla_megascale_transfer_type="ALL_REDUCE"' not in each.attributes:
            raise ValueError(f"{each.name} sends to slices, but not for a sum")
        return "replica", "all-reduce", shape_bytes(_elements(each.shape)[0])
    kind = each.opcode.removesuffix("-start")
    group = first_group(each.attributes, math.prod(mesh.values()))
    size = _payload(each, kind, len(group))
    if computation.startswith("all-reduce-scatter"):  # an all-reduce that keeps a part
        kind = "reduce-scatter"
    return axes_of(group, mesh), kind, size


def _elements(shape: str) -> list[str]:
    """Returns the outermost elements of a tuple's shape; any other shape is its only element."""
    if not shape.startswith("("):
        return [shape]
    depth, parts = 0, [""]
    for char in shape[1:-1]:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [p.strip() for p in parts]


def sends_to_slices(each: Instruction) -> bool:
    """Returns whether an instruction sends what a collective between slices needs."""
    return each.opcode == "send" and bool(transfer(each))


def transfer(each: Instruction) -> str:
    """Returns the name of a collective between slices, which its `send` and `recv` share, or ""."""
    found = re.search(r'_xla_host_transfer_rendezvous="([^"]+)"', each.attributes)
    return found[1] if found and "_xla_megascale_transfer_type" in each.attributes else ""


def _payload(each: Instruction, kind: str, members: int) -> int:
    if each.opcode.endswith("-start") and kind != "all-reduce":
        given, result = _elements(each.shape)[:2]  # (operands, results, context)
        return max(shape_bytes(given), shape_bytes(result))
    size = shape_bytes(each.shape)
    return size * members if kind == "reduce-scatter" else size
