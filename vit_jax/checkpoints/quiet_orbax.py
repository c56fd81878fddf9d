# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Silences the messages that orbax causes beside the error that it raises.

When one of many arrays cannot be written, orbax raises the first error and closes its event loop.
asyncio then reports the other errors, and tensorstore reports each answer that arrives too late.
Start from `install`.
"""

import functools
import logging
import sys
import traceback
from typing import Any


@functools.cache
def install() -> None:
    """Silences these messages in this process from now on; others are unaffected."""
    logging.getLogger("asyncio").addFilter(_is_news)
    sys.unraisablehook = functools.partial(_tell, sys.unraisablehook)


def _is_news(record: logging.LogRecord) -> bool:
    """Returns False for errors that passed through orbax's code, or only through compiled code."""
    if not record.exc_info:
        return True
    passed = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(record.exc_info[2])]
    return bool(passed) and not any("orbax" in name for name in passed)


def _tell(before: Any, found: Any) -> None:
    """Calls the previous hook, except for an answer to a closed loop, which has no object."""
    if found.object is not None or str(found.exc_value) != "Event loop is closed":
        before(found)
