# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch`."""

import sys

from launch.main import main

if __name__ == "__main__":
    sys.exit(main())
