# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The measurements of `vit_jax bench`, each against code written or made by others.

Rates are ratios within one run. Every candidate has its own process, and candidates take turns, so
that a busy machine slows all of them equally. Nothing here imports TensorFlow at module level. Open
`suite` first. A candidate is a function of `Asked` that returns `Timed` (`interleaved`).
"""
