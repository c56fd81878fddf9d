# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Whether this process may use the network: one switch, for every room. Start from `forbid`."""

import os

_VARIABLE = "VIT_JAX_OFFLINE"


def forbid() -> None:
    """Forbids downloads from now on, also to processes started later and to libraries."""
    os.environ |= {
        _VARIABLE: "1",
        "NO_GCE_CHECK": "true",  # TensorFlow: no question for a Google Cloud machine's token
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }


def allowed() -> bool:
    """Whether a download may be tried: not after `forbid`, nor with VIT_JAX_OFFLINE=1 set."""
    return os.environ.get(_VARIABLE, "") in ("", "0")
