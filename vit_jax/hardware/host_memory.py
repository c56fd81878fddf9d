# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how much host memory is left for data, so that a run is refused rather than killed.

It also measures the memory of this process, and gets large memory pages. Start from `check` and
`start_with_large_pages`.
"""

import contextlib
import os
import re
import sys
from pathlib import Path

from vit_jax.errors import BadInput

_NO_LIMIT = 2**60  # cgroup v1 writes a number near 2^63 for no limit


def available_bytes(root: Path = Path("/")) -> int:
    """Returns the bytes that this process may still use, within machine and cgroup limits.

    Args:
      root: the folder of proc and sys, for tests.
    """
    limits = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    for folder, limit, used in _cgroups(root):
        with contextlib.suppress(OSError, ValueError):  # a missing file, or "max"
            most = int((folder / limit).read_text(encoding="utf-8"))
            if most < _NO_LIMIT:
                limits.append(
                    most - int((folder / used).read_text(encoding="utf-8")) + _reclaimable(folder)
                )
    if not limits:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(min(limits), 0)


def used_bytes(root: Path = Path("/")) -> int | None:
    """Returns the resident set of this process in bytes; None where the system does not tell.

    Args:
      root: the folder of proc, for tests.
    """
    try:
        pages = (root / "proc/self/statm").read_text(encoding="utf-8").split()[1]
    except OSError:  # not Linux
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _cgroups(root: Path) -> list[tuple[Path, str, str]]:
    """Returns folders of this process's cgroups and their parents, with limit and use files."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders += [(base.joinpath(*parts[:n]), *names) for n in range(len(parts) + 1)]
    return folders


def _reclaimable(folder: Path) -> int:
    """Returns the bytes of cached files that the kernel would drop first from a cgroup."""
    fields = dict(
        line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
    )
    return int(fields.get("inactive_file", 0))


def check(need_bytes: int, subject: str, advice: str) -> None:
    """Refuses a need of more than half of the available memory.

    Raises:
      BadInput: the message has both figures, and `advice`.
    """
    available = available_bytes()
    if need_bytes > available // 2:
        raise BadInput(
            f"{subject} would take {_size(need_bytes)} of memory, and {_size(available)} are "
            f"available here, of which data may take half. {advice}"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


# ---------------------------------------------------------------- large pages

_VARIABLE, _TUNABLE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
_TRIED = "VIT_JAX_STARTED_ANEW"  # process number: an interpreter with special rights (setuid,
# capabilities) does not see the other variable, and would restart for ever
_POLICY = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SINCE = (2, 35)  # version of glibc


def start_with_large_pages() -> None:
    """Restarts this program as the same process, if that gets it large pages.

    glibc requests them only if its environment says so from the start. Each step on a CPU allocates
    gigabytes, which are freed at its end, and the kernel fills them in page by page. With pages of
    2 MiB instead of 4 KiB, a step of S/16 processes 1.2 to 1.35 times as many images per second
    (docs/experiments.md).

    It does nothing where the kernel always or never gives large pages, where glibc cannot request
    them, and where the environment already sets this option of glibc.
    """
    tunables = os.environ.get(_VARIABLE, "")
    tried = os.environ.pop(_TRIED, "") == str(os.getpid())
    if _TUNABLE in tunables or tried or not _can_get_large_pages():
        return
    own = {_VARIABLE: f"{tunables}:{_TUNABLE}=1".lstrip(":"), _TRIED: str(os.getpid())}
    with contextlib.suppress(OSError):  # the interpreter is gone, or the arguments are too long
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | own)


def _can_get_large_pages() -> bool:
    """Returns True if glibc is new enough, and the kernel gives large pages on request."""
    try:
        policy = _POLICY.read_text(encoding="utf-8")
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # another operating system
        return False
    version = re.fullmatch(r"glibc (\d+)\.(\d+).*", libc)
    new = version is not None and (int(version[1]), int(version[2])) >= _SINCE
    return new and "[madvise]" in policy and bool(sys.executable)
