# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lengths of training in the paper's units, and their conversion to steps. Start from `parse`."""

import dataclasses
import re

from vit_jax.errors import BadInput


@dataclasses.dataclass(frozen=True)
class Duration:
    """A length of training in the unit of the paper: `steps`, `epochs`, `examples` or `percent`."""

    amount: float
    unit: str

    def steps(self, *, batch_size: int, examples: int, total_steps: int = 0) -> int:
        """Returns the duration in optimizer steps, to the nearest; at least 1 unless it is 0.

        Args:
          batch_size: global batch size.
          examples: number of training examples, the length of an epoch.
          total_steps: length of the run, to which `percent` refers.
        """
        if self.amount == 0:
            return 0
        exact = {
            "steps": self.amount,
            "epochs": self.amount * examples / batch_size,
            "examples": self.amount / batch_size,
            "percent": self.amount / 100 * total_steps,
        }[self.unit]
        return max(1, round(exact))


def parse(key: str, text: str) -> Duration:
    """Parses `"90 epochs"`, `"10000 steps"`, `"303e6 examples"`, `"5 percent"`, or `"0"` (never).

    Raises:
      BadInput: the text has another form; the message names `key`.
    """
    match = re.fullmatch(r"\s*([0-9][0-9_.]*(?:e[0-9]+)?)\s*([a-z%]*)\s*", text)
    units = {"%": "percent"} | {u: u for u in ("steps", "epochs", "examples", "percent")}
    units |= {"step": "steps", "epoch": "epochs", "example": "examples"}
    try:
        amount = float(match[1]) if match else -1.0
    except ValueError:
        amount = -1.0
    unit_known = match is not None and (match[2] in units or (match[2] == "" and amount == 0))
    if match is None or not 0 <= amount < 1e15 or not unit_known:
        raise BadInput(
            f"{key}={text!r} is not a duration; write a number and a unit: "
            "'90 epochs', '10000 steps', '303e6 examples' or '5 percent'."
        )
    return Duration(amount, units.get(match[2], "steps"))
