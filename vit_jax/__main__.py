# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The `vit_jax` command, also as `python -m vit_jax`."""

import sys

from vit_jax import huge_pages


def program() -> int:
    """The command line of this process, with large pages where they are to be had."""
    huge_pages.start_with()
    from vit_jax import main  # what it imports is not imported twice

    return main.main()


if __name__ == "__main__":
    sys.exit(program())
