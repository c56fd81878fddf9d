# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines which examples exist, which of them are used, and in which order.

Imports `data/formats` and the root modules. Open `split` first. Sources that users write need
`Split`, `Table` and `of_arrays`; this package also offers those three under its own name.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_jax.data.splits.split import Split, Table, of_arrays

__all__ = ["Split", "Table", "of_arrays"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vit_jax.data.splits' has no attribute {name!r}")
    from vit_jax.data.splits import split

    return getattr(split, name)
