# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch`."""

import sys

from vit_jax import console

from .main import main

if __name__ == "__main__":
    console.in_utf8()
    console.begin()
    sys.exit(main())
