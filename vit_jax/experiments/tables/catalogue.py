# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lists every table and figure by name. Start from `find`."""

from collections.abc import Callable

from vit_jax.errors import unknown
from vit_jax.experiments.tables import ablations, settings, transfers
from vit_jax.experiments.tables.cells import Table

TABLES: dict[str, Callable[[], Table]] = {
    "1": settings.table_1,
    "2": transfers.table_2,
    "3": settings.table_3,
    "4": settings.table_4,
    "5": transfers.table_5,
    "6": transfers.table_6,
    "7": transfers.table_7,
    "8": ablations.table_8,
    "9": transfers.table_9,
    "figure2": transfers.figure_2,
    "figure3": transfers.figure_3,
    "figure4": ablations.figure_4,
    "figure5": transfers.figure_5,
    "figure8": ablations.figure_8,
    "figure9": ablations.figure_9,
    "figure12": ablations.figure_12,
    "augreg3": transfers.augreg_3,
}


def find(name: str) -> Table:
    """Returns the table of a name such as `5` or `figure4`, without runs.

    Raises:
      BadInput: no table has this name; the message lists all names.
    """
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, "miniature"])
    return TABLES[name]()
