# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines the exceptions that end a run early, with their exit codes. Every room may raise them.

Start from `BadInput`: `main` prints its message without a traceback and exits with code 2.
"""

import contextlib
import difflib
import errno
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


class BadInput(ValueError):
    """An error in the user's input. The exit code is 2; the run is never restarted.

    The message says what was given, what was expected and what to do next.
    """

    exit_code = 2
    parts: tuple[str, ...] = ()  # the single messages, if this error joins several


class RunFailed(RuntimeError):
    """A failure that needs a person, such as a loss that is not finite. The exit code is 1."""

    exit_code = 1


class NotStarted(RunFailed):
    """A failed start that needs a person and has changed nothing. The exit code is 1."""


class PeerLost(RuntimeError):
    """The loss of another process, which is gone or silent. The exit code is 43: run again."""

    exit_code = 43


class StoreLost(PeerLost):
    """The object store does not answer. The exit code is 43: run again."""


class Stopped(RuntimeError):
    """A stop on request, after the run has saved its state. The exit code is 42: run again.

    Attributes:
      save: True if all processes are at the same point, so that there may be something to save.
    """

    exit_code = 42

    def __init__(self, text: str, *, save: bool = False):
        super().__init__(text)
        self.save = save


SAVED, LOST, SIGNALS = 42, 43, 128  # exit codes that ask for another start; a shell adds 128


def runs_again(code: int) -> bool:
    """Returns True if an exit code asks for another start; docs/runs.md lists the codes.

    A negative code stands for a signal.
    """
    return code in (SAVED, LOST) or code < 0 or code > SIGNALS


def together(problems: Sequence[BadInput]) -> BadInput:
    """Returns one error that lists all problems, so that the user can fix them in one go."""
    texts = list(dict.fromkeys(text for p in problems for text in p.parts or (str(p),)))
    error = BadInput("\n- ".join([f"{len(texts)} problems:", *texts]) if texts[1:] else texts[0])
    error.parts = tuple(texts)
    return error


@contextlib.contextmanager
def writing(workdir: Path) -> Iterator[None]:
    """Turns an OSError inside the block into BadInput: the workdir cannot be written to.

    If the disk is full, it raises RunFailed instead, as during training.
    """
    try:
        with stopping_when_full(workdir):
            yield
    except OSError as e:
        inside = f" ({e.filename})" if str(e.filename or workdir) != str(workdir) else ""
        reason = "it is a file" if isinstance(e, FileExistsError) and not inside else e.strerror
        raise BadInput(
            f"cannot write to {workdir}: {reason}{inside}; give a --workdir that is writable."
        ) from e


@contextlib.contextmanager
def permitted(action: str) -> Iterator[None]:
    """Turns a permission error inside the block into BadInput, which names the file.

    Args:
      action: the participle that the message needs, such as "read" for "cannot be read".
    """
    try:
        yield
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise BadInput(
            f"{e.filename} cannot be {action}: {e.strerror}; give the account of this process the "
            "right to, then run the same command again."
        ) from e


def no_space(error: Exception, folder: Path) -> str:
    """Returns a message if a write failed because a disk is full; "" for any other reason.

    Args:
      error: an OSError, or the exception that a library raised in its place.
      folder: a folder on that disk.
    """
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    texts = ("No space left on device", "Disk quota exceeded")
    if not full and not any(text in str(error) for text in texts):
        return ""
    there = next((p for p in (folder, *folder.parents) if p.exists()), folder)
    free = 0 if "://" in str(folder) else shutil.disk_usage(there).free
    return f"no space left on the disk of {folder} ({free / 2**20:,.1f} MiB are free)"


@contextlib.contextmanager
def stopping_when_full(workdir: Path) -> Iterator[None]:
    """Turns an OSError inside the block into RunFailed if the disk of the workdir is full."""
    try:
        yield
    except OSError as e:
        full = no_space(e, workdir)
        if not full:
            raise
        raise RunFailed(f"{full}. Make room, then run the same command again to continue.") from e


def unknown(kind: str, name: str, options: Iterable[str], hint: str = "") -> BadInput:
    """Returns the error for a name that is not one of `options`.

    The message suggests similar options. It lists all options if they are few, or if it has
    nothing to suggest.

    Args:
      kind: the kind of name, such as "config key".
      name: the name.
      options: the known names.
      hint: a text from `synonyms.hint` that replaces the suggestions; "" keeps them.
    """
    options = list(options)
    near = [] if hint else _near(name, options)
    if near:
        hint = f" Did you mean {' or '.join(repr(n) for n in near)}?"
    known = "" if hint and len(options) > 20 else f" Known: {', '.join(options) or 'none'}."
    return BadInput(f"unknown {kind} {name!r}.{hint}{known}")


def _near(name: str, options: Sequence[str]) -> list[str]:
    """Returns the options that are most similar to a name.

    If options differ only in case and separators, it returns those. Else it returns options with
    the same last part, as `schedule.lr` for `lr`; for a dotted name, whose section is then wrong,
    only if a single option ends so. Else it returns similar spellings.
    """

    def plain(text: str) -> str:
        return re.sub(r"[\W_]", "", text.lower())

    section, _, word = name.rpartition(".")
    same = [o for o in options if plain(name) and plain(o) == plain(name)]
    ends = [o for o in options if plain(word) and plain(o.rpartition(".")[2]) == plain(word)]
    if section and len(ends) > 1:
        ends = []
    return same or ends or difflib.get_close_matches(name, options, n=3, cutoff=0.5)
