# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Optimizers, schedules and parameter masks on top of optax.

Imports `tree` and `errors`. Open `optimizers` first and start from `make_optimizer`.
"""
