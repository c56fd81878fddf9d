# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a configuration to everything a run is made of: model, optimizer, mesh, steps, data.

Imports the rooms below; train, plan, evaluate and bench share it. Open `program` first, then
`run`, which adds the data.
"""
