# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The papers' statements as JSON with sources, and small typed readers.

The room needs only the standard library.

    vit_paper_tables.json  arXiv:2010.11929: tables, figures, statements, inconsistencies
    vtab_tasks.json        the 19 tasks of VTAB: splits, labels, sizes, downloads
    augreg.json            arXiv:2106.10270, "How to train your ViT?"
    bit_hyperrule.json     arXiv:1912.11370, BiT: pre-training and HyperRule
    replications.json      fine-tunings that the authors published beside the papers; evidence
    robustness.json        ReaL, ImageNet-V2, -A, -R, -Sketch, -C, ObjectNet; AlexNet's errors on -C

Start from `vtab`, `pretraining`, `transfer`, `hyperrule`, `augreg`, `replications`, `robustness`
or `expectations`; `table` returns a whole file.
"""

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def table(name: str) -> dict[str, Any]:
    """Returns the content of `name`.json, shared by all callers, who must not change it."""
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
