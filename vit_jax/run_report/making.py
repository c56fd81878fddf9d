# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes report.html: at the end of training, and for `vit_jax report`.

Start from `at_end` or `of`.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from vit_jax import build, reporting, storage, watchdog
from vit_jax.errors import BadInput, together
from vit_jax.run_report import history, one, pictures, several
from vit_jax.run_report.history import History

FILE = "report.html"
log = logging.getLogger("vit_jax")


def at_end(run: build.Run, report: reporting.Report, workdir: Path) -> None:
    """Writes the page of a run whose last step is saved and evaluated, in process 0.

    What is not there (the disk is full, the data are gone) is said and left out: the run is done.
    """
    with watchdog.longer():
        report.sync()
        began = time.monotonic()
        try:
            found = history.read(workdir, ends=True)
            drawn = pictures.of_run(workdir, found.config, run.source)
            storage.write(workdir / FILE, one.page(found, drawn))
        except (OSError, BadInput) as e:
            log.warning("report: %s is not written: %s", workdir / FILE, e)
            return
        log.info("report: %s, in %.0f s", workdir / FILE, time.monotonic() - began)


def of(names: Sequence[str], out: str) -> Path:
    """Writes the page of a run, or of several, and returns where it is.

    Args:
      names: of workdirs.
      out: a file; "": report.html in the workdir or, of several runs, in the current folder.

    Raises:
      BadInput: something of the input cannot be used (all of it is said), or `out` not be written.
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
    path = storage.path(out) if out else (Path() if runs[1:] else workdirs[0]) / FILE
    if not storage.is_remote(path) and (path.is_dir() or not path.parent.is_dir()):  # soon said
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise BadInput(f"cannot write to {path}: {what}; give another --out.")
    if runs[1:]:
        page = several.page(runs)
    else:
        jax.config.update("jax_platforms", "cpu")  # a device may be in use, by this very run
        page = one.page(runs[0], pictures.of_run(workdirs[0], runs[0].config))
    try:
        if not storage.is_remote(path) and path.exists() and not path.is_file():
            path.write_text(page)  # a pipe or device is not replaced
        else:
            storage.write(path, page)
    except OSError as e:
        raise BadInput(f"cannot write to {path}: {e.strerror or e}; give another --out.") from e
    return path
