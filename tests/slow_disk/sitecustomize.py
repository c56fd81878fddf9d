# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A disk that takes its time: with this folder on PYTHONPATH, every change of a file waits."""

import builtins
import functools
import io
import os
import random
import time

MOST_SECS = 0.2


def _slow(function):
    @functools.wraps(function)
    def slowed(*args, **kwargs):
        time.sleep(random.uniform(0, MOST_SECS))
        return function(*args, **kwargs)

    return slowed


for _name in ("fsync", "replace", "rename", "unlink", "rmdir"):
    setattr(os, _name, _slow(getattr(os, _name)))
_open, _open_slowly = builtins.open, _slow(builtins.open)


@functools.wraps(_open)
def _slow_to_write(file, mode="r", *args, **kwargs):
    """Reading is as quick as ever, or the imports alone would take minutes."""
    given = _open_slowly if set(mode) & set("wax+") else _open
    return given(file, mode, *args, **kwargs)


builtins.open = io.open = _slow_to_write
