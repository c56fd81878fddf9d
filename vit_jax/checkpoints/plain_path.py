# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Provides a plain path to a folder whose name orbax or tensorstore would misread.

orbax finds the files of a save with a pattern that begins with their folder, so `runs [old]`
matches nothing and `run*` also matches its neighbours. tensorstore accepts neither a backslash nor
a name that is not UTF-8. Both follow links, so a link with a plain name helps. Start from `to`.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


def is_plain(place: Path) -> bool:
    """Returns True if every library takes a path literally."""
    return storage.is_remote(place) or re.fullmatch(r"[\w/.,:;=@+~ -]*", str(place)) is not None


@contextlib.contextmanager
def to(folder: Path) -> Iterator[Path]:
    """Yields a path to a folder: its own, or a temporary link if its name is not plain.

    Args:
      folder: an absolute path; the folder need not exist yet.

    Raises:
      BadInput: the link cannot be made, or the path of the temporary folder is not plain either.
    """
    if is_plain(folder):
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
        if not is_plain(link):
            raise BadInput(f"{folder} needs a link with a plain name, not {link}; {advice}.")
        yield link
