# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One file for each engine: what a job becomes there, as files and commands. Pure.

Each has `Options` (its own flags), `CODE` (how the code gets there, see `artefact`) and
`render(job, options)`, which writes nothing, runs nothing and gives the same bytes each time.
"""
