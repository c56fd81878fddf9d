# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Prints text for people on standard error and output; a run never depends on a reader.

The terminal may be closed, the reader of a log may die, its disk may be full. The run then goes on
silently, because its results are in its workdir. Start from `show`.
"""

import codecs
import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

_UTF8 = "PYTHONUTF8"  # the variable that makes Python read all names as UTF-8


def in_utf8() -> None:
    """Restarts this program, as the same process, if Python uses another encoding for names.

    Lists and labels are UTF-8 in any locale. A path in them names the same file only if Python
    reads all names as UTF-8. The restart is done once: an interpreter may ignore the variable.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get(_UTF8) == "1":
        return
    with contextlib.suppress(OSError):  # the interpreter is gone, or the arguments are too long
        words = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, words, os.environ | {_UTF8: "1"})


def begin() -> None:
    """Makes the standard streams UTF-8 in any locale; names may contain any bytes.

    Streams that were closed at the start (`2>&-`) are discarded and do not end up in a file.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            errors = "backslashreplace" if stream is sys.stderr else "surrogateescape"
            stream.reconfigure(errors=errors)
            if codecs.lookup(stream.encoding).name != "utf-8":
                stream.reconfigure(encoding="utf-8", errors=errors)


def show(text: str = "", *, file: TextIO | None = None, end: str = "\n") -> None:
    """Prints a line at once, to standard error by default; ignores a stream without a reader."""
    stream = sys.stderr if file is None else file
    try:
        print(f"{text}{end}", end="", file=stream, flush=True)  # threads print too: in one piece
    except OSError:
        silence(stream)


def silence(file: TextIO) -> None:
    """Discards everything that is written to a stream from now on, by any code.

    The stream's buffer is discarded too: Python would fail to flush it at exit, and change the exit
    code.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)


class Handler(logging.StreamHandler):
    """A log handler that prints lines like `show`."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Handles a line that could not be written."""
        if isinstance(sys.exc_info()[1], OSError):
            silence(self.stream)
        else:
            super().handleError(record)


@contextlib.contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function (done, total) that shows progress on a terminal, and elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # starts no thread
    columns, rows = _assumed_size()
    with tqdm(
        desc=label,
        mininterval=0.5,
        miniters=1,  # otherwise a fast start makes later updates rare
        leave=False,
        ncols=columns,
        nrows=rows,
    ) as shown:

        def progress(done: int, total: int) -> None:
            shown.total = total
            shown.update(done - shown.n)

        yield progress
    show(end="")  # silences the stream if the terminal was closed meanwhile


def _assumed_size() -> tuple[int, int] | tuple[None, None]:
    """Returns a usual size for a terminal that gives none, as in some containers; else Nones."""
    with contextlib.suppress(OSError, ValueError):
        if os.get_terminal_size(sys.stderr.fileno()).columns:
            return None, None
    return 80, 24


def duration(secs: float) -> str:
    """Formats seconds as `1:02:03` or `4:05`."""
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Returns columns of text, the first aligned left, the others right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    align = [str.ljust] + [str.rjust] * (len(header) - 1)
    lines = [
        "  ".join(a(c, w) for a, c, w in zip(align, line, widths, strict=True)).rstrip()
        for line in [header, ["-" * w for w in widths], *rows]
    ]
    return "\n".join(lines)
