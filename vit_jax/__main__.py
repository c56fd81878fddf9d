# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m vit_jax` is the `vit_jax` command."""

import sys

from vit_jax.main import main

if __name__ == "__main__":
    sys.exit(main())
