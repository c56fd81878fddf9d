# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies the files that a host reads to a disk of its own: `vit_jax data stage` and `data.stage`.

Imports `data/formats`, `data/splits` and `data/pipeline`. Open `background` first; `copies` owns
the folder of copies.
"""
