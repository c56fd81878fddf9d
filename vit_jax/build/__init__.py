# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Everything that a configuration stands for: model, optimizer, mesh, steps and data.

Imports the rooms below it; train, plan, evaluate and bench share it. Open `program` first, then
`run`, which adds the data.
"""
