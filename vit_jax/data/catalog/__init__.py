# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Named TFDS datasets: finds them, checks that they are complete, says how to get them.

Imports `paper`, `storage` and, from `data`, `formats` and `splits`. Open `prepared` first.
"""
