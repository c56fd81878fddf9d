# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Detects the accelerators of this machine, whether or not jax can use them.

It reads only files of the kernel and imports no library. Start from `present_accelerators`.
"""

import glob
import importlib.util
import os
import platform
import re
from pathlib import Path

_GOOGLE_PCI_VENDOR = "0x1ae0"  # network cards have it too
_TPU_PCI_DEVICES = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")


def present_accelerators(root: str = "/") -> list[str]:
    """Returns `gpu` and `tpu`, where this machine has one, whether or not jax can use it.

    Args:
      root: root of the file system, for tests.
    """
    kinds = []
    if any(glob.glob(os.path.join(root, "dev", name)) for name in ("nvidia[0-9]*", "dxg")):
        kinds.append("gpu")
    for vendor in glob.glob(os.path.join(root, "sys/bus/pci/devices/*/vendor")):
        files = (Path(vendor), Path(vendor).with_name("device"))
        maker, device = (p.read_text(encoding="utf-8").strip() if p.exists() else "" for p in files)
        if maker == _GOOGLE_PCI_VENDOR and device in _TPU_PCI_DEVICES:
            return [*kinds, "tpu"]
    return kinds


def has_tpu_compiler() -> bool:
    """Returns True if libtpu is installed, whose compiler needs no TPU."""
    return importlib.util.find_spec("libtpu") is not None


def extra(platform: str) -> str:
    """Returns the command that installs jax for an accelerator."""
    extras = {"gpu": "'vit_jax[cuda13]' (or 'vit_jax[cuda12]')", "tpu": "'vit_jax[tpu]'"}
    return f"pip install {extras[platform]}"


def instructions() -> str:
    """Returns the names of the instruction sets of the processor, or what else tells it apart."""
    return _told("flags|Features") or processor()


def processor() -> str:
    """Returns the number of cores and their model, e.g. `2 x AMD EPYC`."""
    return f"{os.cpu_count()} x {_told('model name') or platform.machine()}"


def _told(names: str) -> str:
    """Returns what Linux tells about the first core under one of these names, else ""."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.search(rf"^(?:{names})\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else ""
