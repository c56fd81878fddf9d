# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compiles a step ahead of time for an accelerator; counts its memory, hours and traffic.

Imports `reports` and the rooms below it. Open `plan` first.
"""
