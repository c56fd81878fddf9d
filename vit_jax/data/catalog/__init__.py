# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Named TFDS datasets: where they are, whether they are whole, how to get them.

Imports `paper`, `storage` and, of `data`, `formats` and `splits`. Open `prepared` first.
"""
