# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The life of a process in a run: its identity, its peers, when it stops and how it ends.

Imports `config`, `hardware`, `storage` and the root modules. Open `process_identity` first,
then `coordination`.
"""
