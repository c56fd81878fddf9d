# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Gets large memory pages, which glibc requests only if its environment says so from the start.

Each step on a CPU allocates gigabytes, which are freed at its end, and the kernel fills them in
page by page. With pages of 2 MiB instead of 4 KiB, a step of S/16 processes 1.2 to 1.35 times as
many images per second (docs/experiments.md). Start from `start_with`.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
_TRIED = "VIT_JAX_STARTED_ANEW"  # process number: an interpreter with special rights (setuid,
# capabilities) does not see the other variable, and would restart for ever
_POLICY = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SINCE = (2, 35)  # version of glibc


def start_with() -> None:
    """Restarts this program as the same process, if that gets it large pages.

    It does nothing where the kernel always or never gives large pages, where glibc cannot request
    them, and where the environment already sets this option of glibc.
    """
    asked = os.environ.get(_VARIABLE, "")
    tried = os.environ.pop(_TRIED, "") == str(os.getpid())
    if _TUNABLE in asked or tried or not _can_ask():
        return
    own = {_VARIABLE: f"{asked}:{_TUNABLE}=1".lstrip(":"), _TRIED: str(os.getpid())}
    with contextlib.suppress(OSError):  # the interpreter is gone, or the arguments are too long
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | own)


def _can_ask() -> bool:
    """Returns True if glibc is new enough, and the kernel gives large pages on request."""
    try:
        policy = _POLICY.read_text(encoding="utf-8")
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # another operating system
        return False
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", libc)
    new = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    return new and "[madvise]" in policy and bool(sys.executable)
