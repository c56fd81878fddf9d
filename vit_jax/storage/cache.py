# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds the user's cache folder, keeps compiled programs in it, and may forbid downloads.

Everything in it can be made again, so it may be deleted at any time. Start from `keep_compiled`.
"""

import logging
import os
import tempfile
from pathlib import Path

log = logging.getLogger("vit_jax")

# Smaller programs are compiled again: reading them is not faster, and there are hundreds.
LEAST_SECS = 0.1
_OFFLINE = "VIT_JAX_OFFLINE"


def root() -> Path:
    """Returns `$XDG_CACHE_HOME/vit_jax`, by default `~/.cache/vit_jax`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vit_jax"


def keep_compiled(folder: str, platform: str) -> str:
    """Makes jax keep compiled programs in a folder for the next start; returns it, or "".

    A program is found again if it, its devices, jax and the compiler are the same. A folder that
    is not writable costs only the time to compile: the log says so. Anyone who can write to the
    folder can make the run execute any code.

    Args:
      folder: a path, or an address such as gs://...; "" keeps nothing; "auto" uses
        `JAX_COMPILATION_CACHE_DIR` if set, else `compiled` in `root`, or nothing on the CPU.
        Programs of the CPU contain instructions of the machine that compiled them. Another machine
        that shares the folder may crash on them (jax issue 38445).
      platform: of the devices: cpu, gpu or tpu.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if folder == "auto":
        own = "" if platform == "cpu" else str(root() / "compiled")
        folder = os.environ.get("JAX_COMPILATION_CACHE_DIR") or own
    if folder and "://" not in folder:
        path = Path(os.path.expanduser(folder)).absolute()
        folder = str(path) if _writable(path) else ""
    if folder != (jax.config.jax_compilation_cache_dir or ""):  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", folder or None)
        compilation_cache.reset_cache()  # otherwise jax keeps the folder of its first compilation
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECS)
    return folder


def _writable(path: Path) -> bool:
    """Returns True if a folder can be made and written to; the log says why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError as e:
        log.warning("compiled programs are not kept: cannot write to %s: %s", path, e.strerror)
        return False


def forbid_downloads() -> None:
    """Forbids downloads from now on, also in processes started later and in libraries."""
    os.environ |= {
        _OFFLINE: "1",
        "NO_GCE_CHECK": "true",  # TensorFlow then requests no token of a Google Cloud machine
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }


def may_download() -> bool:
    """Returns True if a download may be tried: not if `forbid_downloads` or VIT_JAX_OFFLINE=1."""
    return os.environ.get(_OFFLINE, "") in ("", "0")
