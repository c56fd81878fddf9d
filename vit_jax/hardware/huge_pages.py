# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Large pages of memory, which glibc asks for only where its environment says so from the start.

Each step of a CPU has memory of its own, gigabytes that are given back at its end, and the kernel
fills them in page by page; with pages of 2 MiB instead of 4 KiB a step of S/16 takes 1.2 to 1.35
times as many images (docs/experiments.md). Start from `start_with`.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
_TRIED = "VIT_JAX_STARTED_ANEW"  # number of the process: an interpreter with rights of its own
# (setuid, capabilities) is not shown the other variable, and would start anew for ever
_POLICY = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SINCE = (2, 35)  # of glibc


def start_with() -> None:
    """Starts this program anew, as the same process, where that gets it large pages.

    It does not where the kernel gives them anyway or never, where glibc cannot ask for them, and
    where the environment says what glibc shall do.
    """
    asked = os.environ.get(_VARIABLE, "")
    tried = os.environ.pop(_TRIED, "") == str(os.getpid())
    if _TUNABLE in asked or tried or not _can_ask():
        return
    own = {_VARIABLE: f"{asked}:{_TUNABLE}=1".lstrip(":"), _TRIED: str(os.getpid())}
    with contextlib.suppress(OSError):  # it is gone, or the arguments are too long
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | own)


def _can_ask() -> bool:
    """Whether glibc is new enough, and pages are large for those who ask."""
    try:
        policy = _POLICY.read_text(encoding="utf-8")
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # of another system
        return False
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", libc)
    new = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    return new and "[madvise]" in policy and bool(sys.executable)
