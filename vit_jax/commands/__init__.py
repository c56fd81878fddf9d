# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One small file per command: `add_arguments(parser)` and `run(args, rest) -> exit code`."""
