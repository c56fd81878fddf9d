# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One file for each engine, which turns a job into files and commands.

All are pure functions.

Each has `Options` (its own flags), `CODE` (the transport of the code, see `artefact`) and
`render(job, options)`. `render` writes nothing, runs nothing and always returns the same bytes.
"""
