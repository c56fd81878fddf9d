# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what earlier versions saved: keys of another name, and keys that did not exist yet.

Only the YAML files of runs are read so; a recipe or an override with an old name gets a hint from
`synonyms`. Start from `rename`.
"""

from typing import Any


def rename(values: dict[Any, Any]) -> None:
    """Gives the keys of a saved file the names that they have now, in place.

    `report.tensorboard` was True or False before there were `report.writers`.
    """
    report = values.get("report")
    if isinstance(report, dict) and isinstance(report.get("tensorboard"), bool):
        writes = report.pop("tensorboard")
        report.setdefault("writers", ["tensorboard"] if writes else [])


def missing(config: Any, set_keys: set[str]) -> dict[str, Any]:
    """Returns dotted key -> value for keys that a run had not, as the run behaved without them.

    Few-shot tasks had the chain of the evaluation before `fewshot.ops` was a key; the runs that had
    such tasks set all others of its section.
    """
    others = {f"fewshot.{key}" for key in config.fewshot if key not in ("ops", "method")}
    behaved = "fewshot.ops" not in set_keys and others <= set_keys
    return {"fewshot.ops": config.data.eval_ops} if behaved else {}
