# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads from optimised HLO text how long the TPU compiler expects a program to take.

The compiler writes `"estimated_cycles":"N"` behind the instructions of a program for a TPU. Their
sum, divided by the clock rate, is an estimate, not a measurement: docs/planning.md compares it with
what others have measured. Other compilers write no cycles. Start from `read`.

For the kernels of splash attention the compiler writes no cycles. They count with the FLOPs of
their products at the peak rate, in a part of their own; a real kernel is slower.
"""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from vit_jax.preflight.plan import hlo
from vit_jax.preflight.plan.attribution import COLLECTIVES, Attribution
from vit_jax.preflight.plan.hlo import Computations, Instruction

# The compiler splits an asynchronous collective into fusions: one starts it, those that compute
# meanwhile carry it on, one ends it. All contain the same channel.
_ASYNC_START, _ASYNC_DONE = "async-collective-start", "async-collective-done"
KERNELS = "attention: splash kernels, at best"
_UNKNOWN = 2**63 - 1  # cycles of an instruction whose cost the compiler cannot say
# Kernel -> its products of tokens x tokens x head dim.
_PRODUCTS = {"fwd": 2, "dq": 3, "dkv": 4}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The compiler's estimate of one run of a program on one device.

    Attributes:
      secs: seconds of the whole program.
      parts: part -> direction (`forward`, `backward` or `update`) -> seconds; they add up to
        `secs`.
    """

    secs: float
    parts: dict[str, dict[str, float]]


def read(
    text: str,
    hertz: float,
    peak: float,
    collective_secs: Callable[[str, Instruction], float],
) -> Estimate | None:
    """Returns the estimate of a scheduled program; None if its compiler wrote no cycles.

    A collective counts as far as the instructions between its start and its end do not hide it.
    Those under way on the links go one after another, in the order in which they start; those
    between slices, on the network, too.

    Args:
      text: optimised HLO.
      hertz: clock rate of the device.
      peak: FLOP/s of the device, for kernels without cycles.
      collective_secs: (computation, collective) -> its seconds on the links; on the network for
        an instruction that `sends_to_slices`.

    Raises:
      ValueError: a loop or a kernel cannot be read, or the compiler gives no cycles for an
        instruction.
    """
    if '"estimated_cycles"' not in text:
        return None
    entry, computations = hlo.parse(text)
    reader = _Reader(computations, hertz, peak, collective_secs, Attribution(computations))
    parts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for part, direction, secs in reader.costs(entry):
        parts[part][direction] += secs
    total = sum(secs for directions in parts.values() for secs in directions.values())
    ordered = sorted(parts.items(), key=lambda item: -sum(item[1].values()))
    return Estimate(total, {part: dict(directions) for part, directions in ordered})


Cost = tuple[str, str, float]  # part, direction, seconds


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Adds up the costs of a program; the first fields are those of `read`."""

    computations: Computations
    hertz: float
    peak: float
    collective_secs: Callable[[str, Instruction], float]
    attribution: Attribution

    def costs(self, name: str) -> Iterator[Cost]:
        """Yields the costs of one run of a computation, in the order of its schedule."""
        # Collective that has started -> its seconds still to come; `network`: between slices.
        links: dict[str, float] = {}
        network: dict[str, float] = {}
        received: dict[str, str] = {}  # a `recv` -> the collective
        for each in self.computations[name]:
            if each.opcode == "recv":
                received[each.name] = hlo.transfer(each)
            ends, others = (network, links) if each.opcode == "recv-done" else (links, network)
            if ended := self._ended(each, name, ends, received):
                waited = [ends.pop(one) for one in list(ends)[: list(ends).index(ended[-1]) + 1]]
                _pass(others, sum(waited))
                yield COLLECTIVES, "update", sum(waited)
                continue
            starts = each.name.startswith(_ASYNC_START)
            own = [] if starts else list(self._own_costs(each, name, links))
            yield from own
            for under_way in (links, network):
                _pass(under_way, sum(secs for *_, secs in own))
            if starts:
                links |= self._sending_secs(each, name)
            elif each.opcode.endswith("-start") and (sending := self._sending_secs(each, name)):
                # Copies start and end too, but send nothing.
                links[each.name] = sum(sending.values())
            elif hlo.sends_to_slices(each):
                network[hlo.transfer(each)] = self.collective_secs(name, each)
        if network:
            raise ValueError(f"it has no end of {next(iter(network))}, which slices send")

    def _ended(
        self,
        each: Instruction,
        around: str,
        under_way: dict[str, float],
        received: dict[str, str],
    ) -> list[str]:
        """Returns the collectives that end with an instruction."""
        if each.opcode == "recv-done":
            ended = [received.get(begun, "") for begun in each.operand_names[:1]]
        elif each.opcode.endswith("-done"):
            ended = each.operand_names[:1]
        elif each.name.startswith(_ASYNC_DONE):
            ended = list(self._sending_secs(each, around))
        else:
            return []
        return [one for one in under_way if one in ended]

    def _own_costs(
        self, each: Instruction, around: str, under_way: Collection[str]
    ) -> Iterator[Cost]:
        """Yields the costs of one instruction; a loop has those of all its runs."""
        called = dict(re.findall(r"\b(body|to_apply)=%([\w.-]+)", each.attributes))
        if each.opcode == "while":
            trips = hlo.trip_count(each, around, self.computations)
            for part, direction, secs in self.costs(called["body"]):
                yield part, direction, trips * secs
        elif each.opcode == "call":
            yield from self.costs(called["to_apply"])
        elif each.opcode == "conditional":
            branches = [list(self.costs(branch)) for branch in hlo.branches(each)]
            yield from max(branches, key=lambda costs: sum(secs for *_, secs in costs), default=[])
        elif kernel := re.match(r"splash_mha_(fwd|dq|dkv)_", each.name):
            direction = "forward" if kernel[1] == "fwd" else "backward"
            yield KERNELS, direction, _PRODUCTS[kernel[1]] * _product_flops(each) / self.peak
        elif not each.opcode.endswith(("-start", "-done")):
            cycles = re.search(r'"estimated_cycles":"(\d+)"', each.attributes)
            if cycles and int(cycles[1]) == _UNKNOWN:
                raise ValueError(f"it has no estimate of {each.name}")
            secs = int(cycles[1]) / self.hertz if cycles else 0.0
            if secs:
                yield *self.attribution.find(around, each), secs
            # A fusion may carry on a collective that started before it.
            collectives = self._sending_secs(each, around).items()
            sending = sum(own for channel, own in collectives if channel not in under_way)
            if sending > secs:
                yield COLLECTIVES, "update", sending - secs

    def _sending_secs(self, each: Instruction, around: str) -> dict[str, float]:
        """Returns channel -> the seconds on the links, for the collectives in an instruction."""
        if each.opcode.removesuffix("-start") in hlo.KINDS:
            channel = re.search(r"\bchannel_id=\d+", each.attributes)
            return {channel[0] if channel else each.name: self.collective_secs(around, each)}
        secs: dict[str, float] = {}
        for inner in self.computations[each.fused] if each.fused else ():
            secs |= self._sending_secs(inner, each.fused)
        return secs


def _pass(under_way: dict[str, float], secs: float) -> None:
    """Lets time pass for collectives under way, one after another."""
    for started in under_way:
        hidden = min(secs, under_way[started])
        under_way[started] -= hidden
        secs -= hidden


def _product_flops(kernel: Instruction) -> int:
    """Returns the FLOPs of the scores of a kernel, whose queries are [B, N, L, K].

    They are its first floating-point operand of so many axes, which lacks B if that is 1.

    Raises:
      ValueError: no operand has so many axes.
    """
    query = re.search(r"f\d+\[((?:\d+,)?\d+),(\d+),(\d+)\]", kernel.attributes)
    if query is None:
        raise ValueError(f"{kernel.name} has no queries: {kernel.attributes}")
    batch_and_heads, tokens, head_dim = query.groups()
    rows = math.prod(map(int, batch_and_heads.split(",")))
    return 2 * rows * int(tokens) ** 2 * int(head_dim)
