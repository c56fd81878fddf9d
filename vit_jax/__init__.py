# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Vision Transformers with JAX: pre-train, transfer, inspect and reproduce, on a CPU or a TPU pod.

Importing this package starts no backend and imports neither jax nor TensorFlow.
"""

__version__ = "0.1.0"
