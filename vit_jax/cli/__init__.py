# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The `vit_jax` command: one small file for each sub-command.

Imports every room, most of them only when needed. A file has `add_arguments(parser)` and `run(args,
rest) -> exit code`. Open `main` first, which lists the commands.
"""
