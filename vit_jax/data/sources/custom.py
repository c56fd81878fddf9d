# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens sources from the user's own package, `python:M:F(k=v)`. Start from `open_custom`."""

from vit_jax.config import plugins
from vit_jax.data.sources.source import Opened, Options
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput


def open_custom(rest: str, options: Options) -> Opened:
    """Calls a function of the user's package with `options=`; returns the opened source.

    Raises:
      BadInput: the function returned anything but (class names, {name: Split}, notes).
    """
    opened = plugins.find(f"data.source='python:{rest}'", rest, options=options)(options=options)
    empty: Opened = ((), {}, [])
    classes, splits, notes = opened if isinstance(opened, tuple) and len(opened) == 3 else empty
    good = isinstance(splits, dict) and all(isinstance(s, Split) for s in splits.values())
    if not good or not splits or not len(classes):
        raise BadInput(
            f"data.source='python:{rest}' gave {type(opened).__name__}; expected (names of "
            "classes, {name: Split}, notes), see docs/extending.md."
        )
    return classes, splits, notes
