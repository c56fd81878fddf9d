# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Optimizers, schedules and masks on top of optax. Start from `optimizers.make_optimizer`."""
