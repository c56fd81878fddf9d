# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Vision Transformers with JAX: pre-train, transfer, inspect and reproduce, on a CPU or a TPU pod.

    model, params, preprocess = vit_jax.load(FILE_OR_RUN)
    vit_jax.save(FILE, model, params, format="npz")

Importing this package starts no backend and imports neither jax nor TensorFlow. It sets defaults of
two environment variables, so that buckets are read through gcsfs.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vit_jax.weights.loading import load, save

# Set before jax's compile cache asks etils for a path: else TensorFlow reads gs:// from then on.
os.environ.setdefault("EPATH_USE_TF", "false")
# Set before gcsfs is imported: else it asks by gRPC for the kind of each bucket.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

__all__ = ["load", "save"]
__version__ = "0.2.0.dev0"


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'vit_jax' has no attribute {name!r}")
    from vit_jax.weights import loading

    return getattr(loading, name)
