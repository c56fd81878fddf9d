# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes report.html, at the end of training and for `vit_jax report`.

Start from `at_end`, or `read` and `page`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from vit_jax.build import run as build
from vit_jax.errors import BadInput, together
from vit_jax.reports import summary
from vit_jax.reports.run import comparison, history, pictures, single
from vit_jax.reports.run.history import History
from vit_jax.runtime import watchdog
from vit_jax.storage import files as storage

FILE = summary.PAGE_FILE
log = logging.getLogger("vit_jax")


def at_end(run: build.Run, sync: Callable[[], None], workdir: Path) -> None:
    """Writes the page of a run after its last save and evaluation, in process 0.

    The page leaves out missing parts, such as lost data. A full disk only logs a warning, because
    the run itself is done. `sync` writes the rows of metrics to disk, from which the page is made.
    """
    with watchdog.longer():
        sync()
        began = time.monotonic()
        try:
            recorded = history.read(workdir, ends=True)
            drawn = pictures.draw(workdir, recorded.config, run.source)
            storage.write(workdir / FILE, single.page(recorded, drawn))
        except (OSError, BadInput) as e:
            log.warning("report: %s is not written: %s", workdir / FILE, e)
            return
        log.info("report: %s, in %.0f s", workdir / FILE, time.monotonic() - began)


def read(names: Sequence[str]) -> list[History]:
    """Reads the runs in workdirs.

    Raises:
      BadInput: a workdir cannot be used; one error lists all such workdirs.
    """
    workdirs = [storage.workdir(name) for name in names]
    labels = history.short_names(workdirs)
    runs, problems = list[History](), list[BadInput]()
    for workdir, label in zip(workdirs, labels, strict=True):
        try:
            runs.append(history.read(workdir, label))
        except BadInput as e:
            problems.append(e)
    if problems:
        raise together(problems)
    return runs


def place(runs: Sequence[History]) -> Path:
    """Returns the default path of the page: in the workdir of a single run, else here."""
    return (Path() if runs[1:] else runs[0].workdir) / FILE


def page(runs: Sequence[History]) -> str:
    """Returns the page of a run, or the page that compares several."""
    if runs[1:]:
        return comparison.page(runs)
    jax.config.update("jax_platforms", "cpu")  # a device may be in use by this very run
    return single.page(runs[0], pictures.draw(runs[0].workdir, runs[0].config))
