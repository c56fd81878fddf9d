# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models from a user's own package: `model.variant=MODULE:CLASS(key=value)`, see docs/extending.md.

Start from `OwnConfig`, the base class of such a CLASS.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from vit_jax.config import plugins
from vit_jax.config.sections import Dtype
from vit_jax.errors import BadInput
from vit_jax.sharding import Axes, Rules


@dataclasses.dataclass(frozen=True)
class OwnConfig:
    """Base class of a user's model configuration: a frozen dataclass whose fields are its keys.

    Attributes:
      classes: Y; with 0 the model has no head and returns the representation.
      dtype: dtype of the computation.
      AXES: parameter path pattern -> logical axes, see `sharding.param_axes`.
    """

    classes: int
    dtype: Dtype = "float32"
    AXES: ClassVar[Axes] = {}
    FAMILY: ClassVar[Literal["own"]] = "own"

    @property
    def stride(self) -> int:
        """Returns the pixels per position of the last grid; image sides are multiples of it."""
        raise self._missing("stride")

    def make(self, rules: Rules | None) -> Any:
        """Returns the Linen module, with the fields `cfg` (this object) and `rules`.

        The module uses `rules` for `sharding.constrain`.

        Its call maps (images_BHWC, *, train=False, key=None) to float32 [B, Y]. Its parameters
        include a head named `head`, which transfer initialises afresh.
        """
        raise self._missing("make")

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs (2 per multiply-add) of one image, for utilisation and plans."""
        raise self._missing("forward_flops")

    def _missing(self, name: str) -> BadInput:
        return BadInput(f"{type(self).__name__} has no {name}; see docs/extending.md.")


def config(variant: str, classes: int, options: Mapping[str, Any]) -> OwnConfig:
    """Returns the configuration of a model that `variant` names.

    Args:
      variant: `MODULE:CLASS` or `MODULE:CLASS(key=value)`.
      classes: Y.
      options: the other keys of the section `model` that the user has set.

    Raises:
      BadInput: CLASS cannot be found (see `plugins.find`), is not a subclass of OwnConfig, or
        raises TypeError or ValueError.
    """
    plugin = plugins.find(f"model.variant={variant!r}", variant, classes=classes, **options)
    kind = plugin.func
    if not (isinstance(kind, type) and issubclass(kind, OwnConfig)):
        raise BadInput(
            f"model.variant={variant!r} is not a subclass of vit_jax.models.custom.OwnConfig; see "
            "docs/extending.md."
        )
    try:
        return plugin(classes=classes, **options)
    except (TypeError, ValueError) as e:
        raise BadInput(f"model.variant={variant!r}: {e}") from e
