# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps quiet what orbax prints beside the error that it raises.

Where one of many arrays cannot be written, orbax raises the first error and closes its event loop:
asyncio then tells of the others, and tensorstore of each answer that nobody waits for any more.
Start from `hush`.
"""

import functools
import logging
import sys
import traceback
from typing import Any


@functools.cache
def hush() -> None:
    """From now on in this process; everything else is told as before."""
    logging.getLogger("asyncio").addFilter(_is_news)
    sys.unraisablehook = functools.partial(_tell, sys.unraisablehook)


def _is_news(record: logging.LogRecord) -> bool:
    """Not so are errors that orbax's code has passed on, or compiled code alone has met."""
    if not record.exc_info:
        return True
    passed = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(record.exc_info[2])]
    return bool(passed) and not any("orbax" in name for name in passed)


def _tell(before: Any, found: Any) -> None:
    """As the hook before, but for an answer to a loop that is closed: it comes from no object."""
    if found.object is not None or str(found.exc_value) != "Event loop is closed":
        before(found)
