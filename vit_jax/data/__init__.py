# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From examples on disk to global batches: the only room that imports TensorFlow.

Imports `config` for the schema, plugins and registries, `hardware`, `paper`, `storage` and the root
modules. TensorFlow is imported on first use (`tensorflow.tf`), so every error that needs no
TensorFlow is reported at once. Open `pipeline/pipeline.py` first, then `sources/registry.py`.
"""
