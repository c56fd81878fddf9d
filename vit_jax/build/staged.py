# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies the images of a run to a disk of its host while it trains. Start from `run`.

`data/staging` does the work. Every function is for a configuration that sets `data.stage`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vit_jax.config import sections
from vit_jax.data.pipeline import pipeline
from vit_jax.data.splits.split import Split
from vit_jax.data.staging import background, copies
from vit_jax.errors import BadInput
from vit_jax.runtime import goodput

if TYPE_CHECKING:
    from vit_jax.build.run import Run


def check(data: sections.Data, split: Split) -> None:
    """Raises BadInput if the images of a split cannot be copied; writes nothing."""
    background.check("data.stage", split)
    copies.budget("data.stage_budget", data.stage_budget)
    if data.cache != "none":
        raise BadInput(
            f"data.stage={data.stage} with data.cache={data.cache}: the images are read once and "
            "stay in memory; leave one of them out."
        )


@contextlib.contextmanager
def run(whole: "Run", first_step: int) -> Iterator["Run"]:
    """Yields a run that copies its images and reads the copies.

    Raises:
      BadInput: the folder cannot be written.
    """
    data = whole.config.data
    most = copies.budget("data.stage_budget", data.stage_budget)
    folder = copies.Copies("data.stage", data.stage, most)
    rows = pipeline.local_rows(whole.program.batch_sharding, whole.config.batch_size)
    pipe, staging = background.begin(folder, whole.train_pipeline, rows, first_step)
    try:
        yield dataclasses.replace(whole, train_pipeline=pipe)
    finally:
        staging.close()
        from_copies, from_origin = staging.served
        goodput.event("staged", bytes=staging.bytes, copies=from_copies, origin=from_origin)
