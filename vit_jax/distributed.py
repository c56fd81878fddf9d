# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How a process starts: which platform it uses.

Must be asked before jax touches a device. Start from `start`.
"""

import glob
import os
from pathlib import Path
from typing import Any, Literal

import jax

from vit_jax.errors import BadInput, unknown

Platform = Literal["auto", "cpu", "gpu", "tpu"]
_JAX_NAMES = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
_GOOGLE_PCI_VENDOR = "0x1ae0"  # also of network cards
_TPU_PCI_DEVICES = ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")


def present_accelerators(root: str = "/") -> list[str]:
    """`gpu` and `tpu`, where this machine has one, whether or not jax can use it.

    Args:
      root: of the file system, for tests.
    """
    found = []
    if any(glob.glob(os.path.join(root, "dev", name)) for name in ("nvidia[0-9]*", "dxg")):
        found.append("gpu")
    for vendor in glob.glob(os.path.join(root, "sys/bus/pci/devices/*/vendor")):
        files = (Path(vendor), Path(vendor).with_name("device"))
        maker, device = (p.read_text().strip() if p.exists() else "" for p in files)
        if maker == _GOOGLE_PCI_VENDOR and device in _TPU_PCI_DEVICES:
            return [*found, "tpu"]
    return found


def _extra(platform: str) -> str:
    extras = {"gpu": "'.[cuda13]' (or '.[cuda12]')", "tpu": "'.[tpu]'"}
    return f"pip install -e {extras[platform]}"


def start(platform: Platform, *, deterministic: bool, root: str = "/") -> list[Any]:
    """Chooses the platform and returns its devices. Never trains on a CPU in silence.

    Args:
      platform: what the user asked for; `auto` is what the machine has.
      deterministic: GPU kernels that give the same bits each time.
      root: see `present_accelerators`.

    Raises:
      BadInput: an accelerator that was asked for, or is present, but that jax does not see; names
        the extra that is missing.
    """
    if platform not in ("auto", *_JAX_NAMES):
        raise unknown("platform", platform, ["auto", *_JAX_NAMES])
    if deterministic and "xla_gpu_deterministic_ops" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
        )
    if platform != "auto":
        jax.config.update("jax_platforms", _JAX_NAMES[platform])
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as e:  # an absent plugin trips an assertion inside jax
        have = ", ".join(present_accelerators(root)) or "no accelerator"
        raise BadInput(
            f"platform={platform} was asked for, but jax cannot use one"
            f"{': ' + str(e).splitlines()[0] if str(e) else ''}. This machine shows {have}. "
            + (f"Install jax for it: {_extra(platform)}." if platform in ("gpu", "tpu") else "")
        ) from e
    seen = devices[0].platform
    if platform != "auto" and seen != platform:
        raise BadInput(
            f"platform={platform} was asked for, but jax runs on {seen} in this process already."
        )
    missing = [p for p in present_accelerators(root) if p != seen]
    if platform == "auto" and seen == "cpu" and missing:
        raise BadInput(
            f"this machine has a {missing[0].upper()}, but jax sees only the CPU; "
            f"{_extra(missing[0])}, or ask for the CPU with --config.platform=cpu."
        )
    return devices
