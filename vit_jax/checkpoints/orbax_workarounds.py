# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Works around two faults of orbax: names of folders that it misreads, and messages it causes.

orbax finds the files of a save with a pattern that begins with their folder, so `runs [old]`
matches nothing and `run*` also matches its neighbours. tensorstore accepts neither a backslash nor
a name that is not UTF-8. Both follow links, so a link with a plain name helps: see `plain_path`.

When one of many arrays cannot be written, orbax raises the first error and closes its event loop.
asyncio then reports the other errors, and tensorstore reports each answer that arrives too late:
see `silence`.
"""

import contextlib
import functools
import logging
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


def _is_plain(place: Path) -> bool:
    """Returns True if every library takes a path literally."""
    return storage.is_remote(place) or re.fullmatch(r"[\w/.,:;=@+~ -]*", str(place)) is not None


@contextlib.contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """Yields a path to a folder: its own, or a temporary link if its name is not plain.

    Args:
      folder: an absolute path; the folder need not exist yet.

    Raises:
      BadInput: the link cannot be made, or the path of the temporary folder is not plain either.
    """
    if _is_plain(folder):
        yield folder
        return
    advice = "set TMPDIR to another folder, or give a --workdir of letters, digits, . _ and -"
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="vit_jax-"))
            link = Path(place, "checkpoints")
            link.symlink_to(folder)
        except OSError as e:
            raise BadInput(f"{folder} needs a temporary link: {e.strerror}; {advice}.") from e
        if not _is_plain(link):
            raise BadInput(f"{folder} needs a link with a plain name, not {link}; {advice}.")
        yield link


@functools.cache
def silence() -> None:
    """Silences these messages in this process from now on; others are unaffected."""
    logging.getLogger("asyncio").addFilter(_is_from_elsewhere)
    sys.unraisablehook = functools.partial(_report_unraisable, sys.unraisablehook)


def _is_from_elsewhere(record: logging.LogRecord) -> bool:
    """Returns False for errors that passed through orbax's code, or only through compiled code."""
    if not record.exc_info:
        return True
    passed = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(record.exc_info[2])]
    return bool(passed) and not any("orbax" in name for name in passed)


def _report_unraisable(previous_hook: Any, unraisable: Any) -> None:
    """Calls the previous hook, except for an answer to a closed loop, which has no object."""
    if unraisable.object is not None or str(unraisable.exc_value) != "Event loop is closed":
        previous_hook(unraisable)
