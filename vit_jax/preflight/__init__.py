# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks before a run: does it fit (plan), is the machine fit (doctor), how fast is it (bench).

Imports `reports` and the rooms below it. Open `plan/plan.py` first.
"""
