# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The settings of a model: the keys of the config section `model`, their options and ranges.

Each model family turns settings into its own configuration. Start from `Settings`.
"""

import dataclasses
from typing import Any, Literal, get_args

from vit_jax.config import plugins
from vit_jax.errors import BadInput, unknown
from vit_jax.models import attention
from vit_jax.models.layers import Dtype, Gelu
from vit_jax.models.posemb import Posemb, PosembAt

Pool = Literal["token", "gap", "map"]
Stem = Literal["standard", "small"]
EpsilonIn = Literal["std", "variance"]
RootPool = Literal["zero", "-inf"]
FREE = "custom"  # the size of a variant whose numbers the user gives

# The models of the papers, which `vit_jax models` lists.
NAMED: tuple[str, ...] = (
    *("Ti/16", "S/16", "S/32", "b/32", "B/8", "B/16", "B/32", "L/16", "L/32", "H/14"),
    *("So400m/14", "g/14", "g-opt/16", "G/14", "G-opt/16", "e/14"),
    *("R+Ti/16", "R26+S/32", "R26+B/32", "R50+B/16", "R50+B/32", "R50+L/16", "R50+L/32"),
    *("BiT-R50x1", "BiT-R50x2", "BiT-R50x3", "BiT-R101x1", "BiT-R101x3"),
    *("BiT-R152x1", "BiT-R152x2", "BiT-R152x4", "BiT-R200x3"),
    *("Mixer-S/8", "Mixer-S/16", "Mixer-S/32", "Mixer-B/16", "Mixer-B/32"),
    *("Mixer-L/16", "Mixer-L/32"),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The keys of the section `model`; 0, () and "auto" leave a value to the variant."""

    variant: str
    width: int = 0
    depth: int = 0
    mlp: int = 0
    heads: int = 0
    token_mlp: int = 0
    stages: tuple[int, ...] = ()
    root_width: int = 0
    stem: str = "standard"
    stem_stride: int = 0
    root_pool: str = "auto"
    pool: str = "token"
    posemb: str = "learned1d"
    posemb_at: str = "stem"
    registers: int = 0
    representation: int = 0
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    gelu: str = "auto"
    ln_epsilon: float = 0.0
    gn_epsilon: float = 0.0
    ws_epsilon: float = 0.0
    ws_epsilon_in: str = "auto"
    dtype: str = "float32"
    scan: bool = True
    remat: str = "none"
    attention: str = "auto"


_OPTIONS: dict[str, tuple[str, ...]] = {
    "pool": get_args(Pool),
    "posemb": get_args(Posemb),
    "posemb_at": get_args(PosembAt),
    "stem": get_args(Stem),
    "root_pool": ("auto", *get_args(RootPool)),
    "gelu": ("auto", *get_args(Gelu)),
    "ws_epsilon_in": ("auto", *get_args(EpsilonIn)),
    "dtype": get_args(Dtype),
    "attention": get_args(attention.Wanted),
}
# Settings that several families accept; those of `_ALL` fit every model.
BACKBONE = {"stages", "root_width", "stem", "stem_stride", "gn_epsilon", "ws_epsilon"}
BACKBONE |= {"ws_epsilon_in"}
TOKENS = {"width", "depth", "mlp", "drop_path", "gelu", "ln_epsilon", "scan"}
_ALL = {"variant", "head_bias", "dtype", "remat"}


def check(wanted: Settings) -> None:
    """Raises BadInput for an unknown option or a number out of range."""
    for field, options in _OPTIONS.items():
        if (value := getattr(wanted, field)) not in options:
            from vit_jax.config import synonyms

            raise unknown(f"model.{field}", value, options, synonyms.hint(f"model.{field}", value))
    for field in ("dropout", "attention_dropout", "drop_path"):
        if not 0.0 <= getattr(wanted, field) < 1.0:
            raise BadInput(f"model.{field}={getattr(wanted, field)} is a rate; give one in [0, 1).")
    for field in dataclasses.fields(Settings):
        value = getattr(wanted, field.name)
        if field.type in (int, float) and field.name != "head_bias" and value < 0:
            raise BadInput(f"model.{field.name}={value} is negative; give 0 or more.")
    if any(not isinstance(n, int) or n < 1 for n in wanted.stages):
        raise BadInput(f"model.stages={wanted.stages}: units of each stage, e.g. (3, 4, 9).")


def refuse_others(wanted: Settings, takes: set[str]) -> None:
    """Raises BadInput for a setting that this variant does not have."""
    for name, value in changed(wanted).items():
        if name not in takes | _ALL:
            raise BadInput(f"model.{name}={value!r}: {wanted.variant} has no {name}; leave it out.")


def changed(wanted: Settings) -> dict[str, Any]:
    """Returns the settings that the user has set."""
    fields = dataclasses.fields(Settings)[1:]
    return {f.name: v for f in fields if (v := getattr(wanted, f.name)) != f.default}


def sizes(
    wanted: Settings, size: str, table: dict[str, tuple[int, ...]], fields: tuple[str, ...]
) -> dict[str, int]:
    """Returns the numbers of a named size, with the given ones replaced."""
    if size != FREE and size not in table:
        raise unknown_variant(wanted.variant)
    named = table.get(size, (0,) * len(fields))
    numbers = {f: getattr(wanted, f) or n for f, n in zip(fields, named, strict=True)}
    lacking = [f"model.{f}" for f, n in numbers.items() if n < 1]
    if lacking:
        raise BadInput(f"model {wanted.variant}: give {', '.join(lacking)} (1 or more).")
    return numbers


def shared_fields(wanted: Settings, *fields: str) -> dict[str, Any]:
    """Returns the fields that are used as given; "auto" and 0 become the published values."""
    values = {f: getattr(wanted, f) for f in ("head_bias", "dtype", "remat", *fields)}
    values["remat"] = "none" if wanted.remat == "auto" else wanted.remat
    if "gelu" in values:
        values["gelu"] = "tanh" if wanted.gelu == "auto" else wanted.gelu
        values["ln_epsilon"] = wanted.ln_epsilon or 1e-6
    return values


def unknown_variant(variant: str) -> BadInput:
    """Returns the error for an unknown variant, with the most similar names."""
    from vit_jax.models.published import hint

    options = [*NAMED, "or any patch side", plugins.USAGE]
    return unknown("model variant", variant, options, hint(variant))
