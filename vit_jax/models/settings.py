# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The settings of a model: the keys of the config section `model`, and who accepts which.

Each model family turns settings into its own configuration. Start from `check`.
"""

import dataclasses
from typing import Any

from vit_jax.config import plugins, schema
from vit_jax.config.sections import Model as Settings
from vit_jax.errors import BadInput, unknown

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


# Settings that several families accept; those of `_ALL` fit every model.
BACKBONE = {"stages", "root_width", "stem", "stem_stride", "gn_epsilon", "ws_epsilon"}
BACKBONE |= {"ws_epsilon_in"}
TOKENS = {"width", "depth", "mlp", "drop_path", "gelu", "ln_epsilon", "scan"}
_ALL = {"variant", "head_bias", "dtype", "remat"}


def check(wanted: Settings) -> None:
    """Raises BadInput for settings that their declarations do not allow."""
    schema.check((f"model.{f}", d, getattr(wanted, f)) for f, d in schema.keys(Settings).items())


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
