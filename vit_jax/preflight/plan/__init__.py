# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compile a step ahead of time for an accelerator; count its memory, hours and network traffic.

Imports `build` and the rooms below it. Open `plan` first.
"""
