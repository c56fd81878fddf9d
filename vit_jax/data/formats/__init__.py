# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random access into record, tar and zip files.

Imports `storage`, the root modules and `data/ops/decode`. Open `byte_ranges` first.
"""
