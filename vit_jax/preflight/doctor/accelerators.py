# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks that jax uses this machine's accelerators, and that TensorFlow does not.

Both checks run in their own processes, because jax blocks on a TPU that another process holds.
Start from `devices` and `tensorflow`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.hardware import detect
from vit_jax.preflight.doctor import limits
from vit_jax.preflight.doctor.finding import Finding

_KINDS = {"cuda": "gpu", "rocm": "gpu"}  # names in JAX_PLATFORMS -> kinds of accelerator
SECS = 120.0  # importing TensorFlow on a busy machine, or starting a TPU, takes long


def devices(platform: str, present: Sequence[str], env: Mapping[str, str]) -> list[Finding]:
    """Compares the devices of jax with those that are requested or present.

    Args:
      platform: platform of the configuration: auto, cpu, gpu or tpu.
      present: result of `detect.present_accelerators`.
      env: environment variables.
    """
    wanted = platform if platform != "auto" else (present[0] if present else "cpu")
    choice = {"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}
    here = " and ".join(map(str.upper, present)) or "no accelerator"
    try:
        found = limits.call("vit_jax.preflight.doctor.accelerators:listed", [], SECS, choice)
    except limits.Failed as e:
        said = f"jax gave no devices, {e}"
        fix = _variable(str(e), present, {**env, **choice}) or _unstuck(present)
        return [Finding("devices", said.rstrip(": "), fix)]
    said = (
        f"{found['count']} x {found['kind']}, platform {found['platform']}; this machine has {here}"
    )
    if found["platform"] == wanted or (platform == "auto" and found["platform"] != "cpu"):
        return [Finding("devices", said)]
    reason = next((f" ({text})" for text in found["reasons"]), "")
    said = f"jax uses {said}, {wanted.upper()} is expected{reason}"
    return [Finding("devices", said, _cause(wanted, present, env))]


def _variable(said: str, present: Sequence[str], env: Mapping[str, str]) -> str:
    """Returns a fix if an environment variable keeps jax from starting; "" otherwise."""
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        asked = [_KINDS.get(word, word) for word in env.get(name, "").split(",") if word]
        if set(asked) - {"cpu", *present}:
            have = " or ".join(f"{name}={kind}" for kind in ("cpu", *present))
            return f"unset {name}, which is {env[name]!r}, or give what is here: {have}"
    named = [n for n in env if re.match("JAX_|XLA_", n) and re.search(rf"\b{n}\b", said, re.I)]
    for name in named:
        if name not in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):  # jax names these in its advice, too
            return f"unset {name}, which is {env[name]!r}, or give it a value that jax takes"
    return ""


def _unstuck(present: Sequence[str]) -> str:
    if "tpu" in present:
        return (
            "end who holds the TPU (see holders); of a pod, all hosts must be asked at once "
            "(gcloud ... --worker=all)"
        )
    if "gpu" in present:
        return f"see whether nvidia-smi answers; if so, {detect.extra('gpu')}"
    return "pip install -e ."


def _cause(wanted: str, present: Sequence[str], env: Mapping[str, str]) -> str:
    """Returns a fix if jax does not use the expected accelerator."""
    if wanted not in present:
        return "give --config.platform=auto, or go to a machine that has one"
    chosen = env.get("JAX_PLATFORMS", "")
    if chosen and not {"cuda", "gpu", "tpu"} & set(chosen.split(",")):
        return f"unset JAX_PLATFORMS, which is {chosen!r}"
    hidden = env.get("CUDA_VISIBLE_DEVICES", "all")
    if wanted == "gpu" and hidden.strip() in ("", "-1", "none", "NoDevFiles"):
        return f"unset CUDA_VISIBLE_DEVICES, which is {hidden!r}"
    return f"{detect.extra(wanted)}, or ask for the CPU with --config.platform=cpu"


def listed() -> dict[str, Any]:
    """Returns the devices of jax after a first computation, and why other backends failed.

    Runs in a child process.
    """
    import jax
    import jax.numpy as jnp
    from jax._src import xla_bridge

    found = jax.devices()
    assert float(jnp.arange(8.0).sum()) == 28.0
    errors = getattr(xla_bridge, "_backend_errors", {})
    reasons = [f"{name}: {' '.join(str(text).split())[:200]}" for name, text in errors.items()]
    kind, platform = found[0].device_kind, found[0].platform
    return {"count": len(found), "kind": kind, "platform": platform, "reasons": reasons}


def tensorflow() -> list[Finding]:
    """Checks that TensorFlow can be imported and sees no accelerator."""
    own = {name: None for name in os.environ if name.startswith("JAX_")}  # not TensorFlow's fault
    try:
        version, seen, usable = limits.call("vit_jax.data.tensorflow:accelerators", [], SECS, own)
    except limits.Failed as e:
        return [Finding("tensorflow", f"cannot be imported, {e}", "pip install -e .")]
    if not seen and not usable:
        return [Finding("tensorflow", f"{version}, sees no accelerator")]
    said = f"{version} sees {', '.join(seen or usable)}, whose memory and libraries are jax's"
    build = "tensorflow-cpu" if os.uname().machine == "x86_64" else "a build for CPUs"
    return [Finding("tensorflow", said, f"pip uninstall -y tensorflow; pip install {build}")]
