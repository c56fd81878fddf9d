# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""An account without root's right to pass over the modes of files. Start from `plain`."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

_VERSION, _OVERRIDE, _READ_SEARCH = 0x20080522, 1 << 1, 1 << 2  # linux/capability.h


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """This thread, and those that it starts, obey the modes of files; root does not otherwise."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, before = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    fewer = (ctypes.c_uint32 * 6)(*before)
    fewer[0] &= ~(_OVERRIDE | _READ_SEARCH)  # of those in effect: they may be taken back
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
