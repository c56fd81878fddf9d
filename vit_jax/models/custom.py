# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models of a user's own package: `model.variant=MODULE:CLASS(key=value)`, see docs/extending.md.

Start from `OwnConfig`, of which such a class is a subclass.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from vit_jax.config import plugins
from vit_jax.errors import BadInput
from vit_jax.models.layers import Dtype
from vit_jax.sharding import Axes, Rules


@dataclasses.dataclass(frozen=True)
class OwnConfig:
    """What a model is: a frozen dataclass whose fields are its keys.

    Attributes:
      classes: Y; 0 is a model without a head, whose result is the representation.
      dtype: of the computation.
      AXES: parameter path pattern -> logical axes, see `sharding.param_axes`.
    """

    classes: int
    dtype: Dtype = "float32"
    AXES: ClassVar[Axes] = {}

    @property
    def stride(self) -> int:
        """Pixels per position of the last grid; sides of images are multiples of it."""
        raise self._missing("stride")

    def make(self, rules: Rules | None) -> Any:
        """The Linen module, with fields `cfg` (this) and `rules`, for `sharding.constrain`.

        Its call is (images_BHWC, *, train=False, key=None) -> float32 [B, Y]. Its parameters have a
        head `head`, which starts anew in transfer.
        """
        raise self._missing("make")

    def forward_flops(self, height: int, width: int) -> int:
        """FLOPs (2 per multiply-add) of one image; utilisation and plans are computed from it."""
        raise self._missing("forward_flops")

    def _missing(self, name: str) -> BadInput:
        return BadInput(f"{type(self).__name__} has no {name}; see docs/extending.md.")


def config(variant: str, classes: int, given: Mapping[str, Any]) -> OwnConfig:
    """The configuration of a named model.

    Args:
      variant: `MODULE:CLASS` or `MODULE:CLASS(key=value)`.
      classes: Y.
      given: the other keys of the section `model` that are not left to the variant.

    Raises:
      BadInput: see `plugins.find`; not a subclass of OwnConfig, or whatever making one raises.
    """
    found = plugins.find(f"model.variant={variant!r}", variant, classes=classes, **given)
    kind = found.func
    if not (isinstance(kind, type) and issubclass(kind, OwnConfig)):
        raise BadInput(
            f"model.variant={variant!r} is no subclass of vit_jax.models.custom.OwnConfig; see "
            "docs/extending.md."
        )
    try:
        return found(classes=classes, **given)
    except (TypeError, ValueError) as e:
        raise BadInput(f"model.variant={variant!r}: {e}") from e
