# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads and preprocesses examples without TensorFlow, in worker processes: `data.reader=python`.

Imports `numpy_ops`, `formats`, `splits` and `pipeline` of `data`. Open `pipeline` first. Worker
processes run `worker`, which imports neither jax nor TensorFlow.
"""
