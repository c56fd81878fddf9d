# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How a configuration reaches machines: a job, and one pure renderer for each engine.

`python -m launch ENGINE VERB ...` is in `main`; the shape of a job in `job`; what becomes of it in
`engines`. No scheduler and no daemon of our own: engines run what they are given.
"""
