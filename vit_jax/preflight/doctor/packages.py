# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares Python and packages with the requirements of setup.py and jax, by their metadata.

Start from `check`.
"""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vit_jax.preflight.doctor.finding import Finding

# Packages that are named if all is well.
_SHOWN = (
    "jax", "jaxlib", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "optax",
    "orbax-checkpoint", "tensorflow-cpu", "tensorflow", "tensorflow-datasets", "clu", "tensorboard",
    "numpy",
)  # fmt: skip
_PLUGIN = re.compile(r"jax-(cuda|rocm)\d+-plugin")
_BACKEND = re.compile(r"jax-|libtpu|nvidia-")  # from jax's extras, of one version


class Wanted(NamedTuple):
    """A requirement of another package."""

    name: str
    bounds: str  # ">=0.12,<0.13"; "" allows any version
    surely: bool  # False: only if it is installed


def check(path: Sequence[str] | None = None) -> list[Finding]:
    """Checks Python, then every package.

    Args:
      path: folders of installed packages (default: those of this process).
    """
    own = _find("vit_jax", path)
    if own is None:
        said = "vit_jax is not installed, so which versions it needs is not known"
        return [Finding("packages", said, "pip install -e . in its folder")]
    version = platform.python_version()
    bounds = own.metadata["Requires-Python"] or ""
    fix = "" if fits(version, bounds) else f"install a Python {bounds} and vit_jax into it"
    found = [Finding("python", f"{version} at {sys.executable}", fix)]
    asking = {"vit_jax": own}
    for dist in importlib.metadata.distributions(**_where(path)):
        name = (dist.metadata["Name"] or "").lower().replace("_", "-")
        if name == "jax" or _PLUGIN.fullmatch(name):
            asking[name] = dist
    bad = []
    for asks, dist in asking.items():
        for wanted in requirements(dist.requires or []):
            have = _find(wanted.name, path)
            asked = f"'{wanted.name}{wanted.bounds}'"
            if have is None and wanted.surely:
                bad.append((f"{wanted.name} is not installed", f"pip install {asked}"))
            elif have is not None and not fits(have.version or "", wanted.bounds):
                said = f"{wanted.name} {have.version} is not what {asks} needs ({wanted.bounds})"
                bad.append((said, f"pip install {asked}"))
    if bad:
        return found + [Finding("packages", *pair) for pair in dict.fromkeys(bad)]
    shown = [f"{n} {d.version}" for n in _SHOWN if (d := _find(n, path)) is not None]
    return [*found, Finding("packages", ", ".join(shown))]


def _where(path: Sequence[str] | None) -> dict[str, Any]:
    return {} if path is None else {"path": list(path)}


def _find(name: str, path: Sequence[str] | None) -> importlib.metadata.Distribution | None:
    return next(iter(importlib.metadata.distributions(name=name, **_where(path))), None)


def requirements(lines: Sequence[str]) -> Iterator[Wanted]:
    """Yields the packages that lines of metadata require on this machine.

    Packages under an extra count only if they serve jax's accelerators and are installed. A package
    under an unknown condition counts if it is installed.
    """
    for line in lines:
        need, _, marker = (part.strip() for part in line.partition(";"))
        match = re.match(r"([\w.-]+)\s*(?:\[[^\]]*\])?\s*\(?([^()]*)", need)
        if match is None:
            continue
        name, bounds = match[1], match[2].replace(" ", "")
        on = re.fullmatch(r"platform_machine (==|!=) [\"'](\w+)[\"']", marker)
        if on and (platform.machine() == on[2]) != (on[1] == "=="):
            continue
        if "extra" in marker and not _BACKEND.match(name):
            continue
        yield Wanted(name, bounds, surely=not marker or on is not None)


def fits(version: str, bounds: str) -> bool:
    """Returns whether a version is within bounds such as `>=0.12,<0.13` or `==0.0.42.*`.

    Only the release numbers count: a development version counts as the version that it becomes.
    """
    have = _release(version)
    for operator, text in re.findall(r"(<=|>=|==|!=|~=|<|>)\s*([\w.*+!-]+)", bounds):
        want = _release(text)
        size = len(want) if text.endswith(".*") else max(len(have), len(want))
        a, b = (tuple([*numbers, *[0] * size][:size]) for numbers in (have, want))
        good = {
            "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b,
            "~=": a >= b and have[: len(want) - 1] == want[:-1],
        }  # fmt: skip
        if not good[operator]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
