# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What ends a run early, as exceptions with exit codes. Every room may raise them.

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
    """The user's input cannot be used. Exit code 2, never restarted.

    The message says what was given, what was expected and what to do next.
    """

    exit_code = 2
    parts: tuple[str, ...] = ()  # of one that says several things


class RunFailed(RuntimeError):
    """The run went wrong and needs a person (a loss that is not finite). Exit code 1."""

    exit_code = 1


class NotStarted(RunFailed):
    """The run cannot start and needs a person; nothing was changed. Exit code 1."""


class PeerLost(RuntimeError):
    """Another process of the run is gone or does not answer. Exit code 43: run again."""

    exit_code = 43


class Stopped(RuntimeError):
    """The run was asked to stop, and has saved what it has. Exit code 42: run again.

    Attributes:
      save: whether there may be something to save: all processes are at the same point.
    """

    exit_code = 42

    def __init__(self, text: str, *, save: bool = False):
        super().__init__(text)
        self.save = save


SAVED, LOST, SIGNALS = 42, 43, 128  # exit codes that ask for another start; a shell adds 128


def runs_again(code: int) -> bool:
    """Whether an exit code (negative: a signal) asks for another start, as docs/runs.md has it."""
    return code in (SAVED, LOST) or code < 0 or code > SIGNALS


def together(problems: Sequence[BadInput]) -> BadInput:
    """One error for all that was found, so that nobody mends one thing only to meet the next."""
    said = list(dict.fromkeys(text for p in problems for text in p.parts or (str(p),)))
    error = BadInput("\n- ".join([f"{len(said)} problems:", *said]) if said[1:] else said[0])
    error.parts = tuple(said)
    return error


@contextlib.contextmanager
def writing(workdir: Path) -> Iterator[None]:
    """Turns an OSError inside the block into BadInput: the workdir cannot be written to.

    Where its disk is full, that is RunFailed, as in the midst of a run.
    """
    try:
        with stopping_when_full(workdir):
            yield
    except OSError as e:
        inside = f" ({e.filename})" if str(e.filename or workdir) != str(workdir) else ""
        raise BadInput(
            f"cannot write to {workdir}: {e.strerror}{inside}; give a --workdir that is writable."
        ) from e


@contextlib.contextmanager
def permitted(what: str) -> Iterator[None]:
    """Turns an error about rights inside the block into BadInput, which names the file.

    Args:
      what: is done with it, as in "cannot be read".
    """
    try:
        yield
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise BadInput(
            f"{e.filename} cannot be {what}: {e.strerror}; give the account of this process the "
            "right to, then run the same command again."
        ) from e


def no_space(error: Exception, folder: Path) -> str:
    """What to say where a write failed because a disk is full; "" if it failed for another reason.

    Args:
      error: an OSError, or what a library has made of one.
      folder: on that disk.
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
    """Turns an OSError inside the block into RunFailed where the disk of the workdir is full."""
    try:
        yield
    except OSError as e:
        full = no_space(e, workdir)
        if not full:
            raise
        raise RunFailed(f"{full}. Make room, then run the same command again to continue.") from e


def unknown(what: str, given: str, options: Iterable[str], hint: str = "") -> BadInput:
    """An error for a name that is not one of `options`: near ones, and all where they are few.

    Args:
      what: of this kind is the name.
      given: the name.
      options: what is known.
      hint: what to say instead of near options, from `synonyms.hint`; "": nothing.
    """
    options = list(options)
    near = [] if hint else _near(given, options)
    if near:
        hint = f" Did you mean {' or '.join(repr(n) for n in near)}?"
    known = "" if hint and len(options) > 20 else f" Known: {', '.join(options) or 'none'}."
    return BadInput(f"unknown {what} {given!r}.{hint}{known}")


def _near(given: str, options: Sequence[str]) -> list[str]:
    """The options that are the same but for case and separators, or end so; else by spelling.

    `lr` is the end of `schedule.lr`. A dotted name has the right end in a wrong section, if only
    one option ends so.
    """

    def plain(text: str) -> str:
        return re.sub(r"[\W_]", "", text.lower())

    section, _, word = given.rpartition(".")
    same = [o for o in options if plain(given) and plain(o) == plain(given)]
    ends = [o for o in options if plain(word) and plain(o.rpartition(".")[2]) == plain(word)]
    if section and len(ends) > 1:
        ends = []
    return same or ends or difflib.get_close_matches(given, options, n=3, cutoff=0.5)
