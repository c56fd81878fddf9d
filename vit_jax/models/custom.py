# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models from a user's own package: `model.variant=MODULE:CLASS(key=value)`.

Start from `OwnConfig`, the base class of such a CLASS; docs/extending_model.md has an example.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax.config import plugins
from vit_jax.config.optimizer_sections import Dtype
from vit_jax.errors import BadInput
from vit_jax.models.settings import ModelConfig


@dataclasses.dataclass(frozen=True)
class OwnConfig(ModelConfig):
    """Base class of a user's model configuration: a frozen dataclass whose fields are its keys.

    `ModelConfig` says which members a CLASS needs, and which others it may have.

    Attributes:
      classes: Y; with 0 the model has no head and returns the representation.
      dtype: dtype of the computation.
    """

    classes: int
    dtype: Dtype = "float32"


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
    if options.get("dtype") == "bfloat16_products":
        raise BadInput(
            f"model.dtype=bfloat16_products: {variant} is a model of your own, which computes in "
            "float32 or bfloat16; give --config.model.dtype=float32."
        )
    plugin = plugins.find(f"model.variant={variant!r}", variant, classes=classes, **options)
    kind = plugin.func
    if not (isinstance(kind, type) and issubclass(kind, OwnConfig)):
        raise BadInput(
            f"model.variant={variant!r} is not a subclass of vit_jax.models.custom.OwnConfig; see "
            "docs/extending_model.md."
        )
    try:
        return plugin(classes=classes, **options)
    except (TypeError, ValueError) as e:
        raise BadInput(f"model.variant={variant!r}: {e}") from e
