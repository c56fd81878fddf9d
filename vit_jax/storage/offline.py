# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Forbids downloads in every room, by one switch. Start from `forbid`."""

import os

_VARIABLE = "VIT_JAX_OFFLINE"


def forbid() -> None:
    """Forbids downloads from now on, also in processes started later and in libraries."""
    os.environ |= {
        _VARIABLE: "1",
        "NO_GCE_CHECK": "true",  # TensorFlow then requests no token of a Google Cloud machine
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }


def allowed() -> bool:
    """Returns True if a download may be tried: not after `forbid`, nor if VIT_JAX_OFFLINE=1."""
    return os.environ.get(_VARIABLE, "") in ("", "0")
