# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From images on disk to global batches; the only room that uses TensorFlow.

TensorFlow is imported on first use (`lazy.tf`), so that everything that can be said without it
(unknown source, unknown op, empty folder) is said at once. Start from `pipeline`.
"""
