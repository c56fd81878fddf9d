# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Brings a configuration to machines: a job, and one pure renderer for each engine.

`main` defines `python -m launch ENGINE VERB ...`, `job` the shape of a job, and `engines` render
it. The package has no scheduler and no daemon: engines run the rendered files and commands.

A wheel has it as `vit_jax.launch`, so its modules import each other relatively.
"""
