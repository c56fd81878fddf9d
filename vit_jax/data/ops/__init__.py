# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Operations on one example: decode, resize, crop, augment.

Imports no other folder of `data`. Open `chain` first: it parses a chain of ops.
"""
