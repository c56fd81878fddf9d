# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the key `trainable`: the part of the parameters that a run trains.

`models.partial` applies it to a tree of parameters. Start from `parse`.
"""

import dataclasses
import inspect
import re

from vit_jax.config import calls
from vit_jax.errors import BadInput, unknown

ALL = "all"
GROUPS = ("qkv", "out", "mlp")  # dense layers of a block that `lora` can act on
EXAMPLES = ("all", "head", "bitfit", "last(2)", "adapters(width=64)", "lora(rank=8, on=qkv+mlp)")


@dataclasses.dataclass(frozen=True)
class Trainable:
    """The part of the parameters that is trained; the head, and what starts anew, always is.

    Attributes:
      name: `head`: nothing else. `bitfit`: also every bias (BitFit, arXiv:2106.10199). `last`: also
        the last blocks and what follows them. `adapters`: also a narrow MLP after the attention and
        the MLP of each block (arXiv:1902.00751). `lora`: also products of two narrow matrices
        beside kernels (LoRA, arXiv:2106.09685).
      blocks: `last`: the number of blocks.
      width: `adapters`: the width between the two layers.
      rank: `lora`: the columns r of the first matrix.
      alpha: `lora`: the product of the matrices is multiplied by alpha / rank.
      on: `lora`: which dense layers of every block, some of `GROUPS`.
    """

    name: str
    blocks: int = 0
    width: int = 0
    rank: int = 0
    alpha: float = 0.0
    on: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        """The factor of the product of the two matrices, equation 3 of arXiv:2106.09685."""
        return self.alpha / self.rank


def parse(text: str) -> Trainable | None:
    """Parses the value of `trainable`; None if every parameter is trained.

    Raises:
      BadInput: the text has another form, names something unknown, or has a number out of range.
    """
    if text == ALL:
        return None
    key = f"trainable={text!r}"
    try:
        name, args, named = calls.parse(text, words=True)
    except ValueError:
        raise BadInput(f"{key} cannot be read; give {_or(EXAMPLES)}.") from None
    if name not in _MAKERS:
        raise unknown("trainable", text, EXAMPLES)
    maker = _MAKERS[name]
    signature = inspect.signature(maker)
    try:
        signature.bind(*args, **named)
    except TypeError as e:
        raise BadInput(f"{key}: {e}; it is {name}{_shown(signature)}.") from None
    try:
        return maker(*args, **named)
    except ValueError as e:
        raise BadInput(f"{key}: {e}.") from None


def _shown(signature: inspect.Signature) -> str:
    """Returns the parameters as a user writes them: `(rank=8, alpha=0, on=qkv+mlp)`."""
    arguments = re.sub(r": \w+ ?| ?-> .*|'", "", str(signature)).replace("= ", "=")
    return "" if arguments == "()" else arguments


def _or(options: tuple[str, ...]) -> str:
    return f"{', '.join(options[:-1])} or {options[-1]}"


def _lora(rank: int = 8, alpha: float = 0, on: str = "qkv+mlp") -> Trainable:
    """Makes `lora`; alpha=0 stands for the rank, so that the scale is 1."""
    _check_whole("rank", rank, 4096)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1e6:
        raise ValueError(f"alpha={alpha!r}; give a number from 0 to 1e6 (0: the rank)")
    groups = tuple(on.split("+")) if isinstance(on, str) else ()
    if not groups or not set(groups) <= set(GROUPS) or len(set(groups)) < len(groups):
        raise ValueError(f"on={on}; give {', '.join(GROUPS)}, or several joined by +")
    return Trainable("lora", rank=rank, alpha=float(alpha or rank), on=groups)


def _last(blocks: int) -> Trainable:
    _check_whole("blocks", blocks, 10_000)
    return Trainable("last", blocks=blocks)


def _adapters(width: int = 64) -> Trainable:
    _check_whole("width", width, 2**16)
    return Trainable("adapters", width=width)


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name}={value!r}; give a whole number from 1 to {most}")


_MAKERS = {
    "head": lambda: Trainable("head"),
    "bitfit": lambda: Trainable("bitfit"),
    "adapters": _adapters,
    "last": _last,
    "lora": _lora,
}
