# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What `vit_jax bench` measures, each against something written or made by others, in turns.

Rates are ratios within one run. Every candidate has a process of its own and they take turns,
so that a busy machine slows all of them alike. Nothing here imports TensorFlow.
Open `suite` first; a candidate is a function of `Asked` that returns `Timed`
(`interleaved`).
"""
