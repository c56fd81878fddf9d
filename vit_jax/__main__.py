# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the `vit_jax` command, also as `python -m vit_jax`."""

import sys
import traceback

from vit_jax import console
from vit_jax.hardware import host_memory
from vit_jax.runtime import recovery


def program() -> int:
    """Runs the command line of this process in UTF-8, with large pages where available."""
    console.in_utf8()
    host_memory.start_with_large_pages()
    recovery.begin()
    from vit_jax.cli import main  # after a possible restart, so that its imports run only once
    from vit_jax.runtime import process_exit

    process_exit.is_command = True
    try:
        code = main.main()
    except KeyboardInterrupt:
        process_exit.say("interrupted; run the same command again.")
        code = main.INTERRUPTED
    except Exception:
        traceback.print_exc()
        code = 1
    return process_exit.finish(code)


if __name__ == "__main__":
    sys.exit(program())
