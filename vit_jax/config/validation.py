# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks single values of a configuration, beyond the types that base.py fixes.

Values that depend on a model, a mesh or data are checked at their use. Start from `check_numbers`.
"""

import math
import re
from collections.abc import Callable
from typing import Any

from vit_jax.config.load import ConfigDict, flatten
from vit_jax.errors import BadInput, unknown

_TAKEN = (
    "train",
    "norm",
    "perf",
    "memory",
    "data",
    "step",
    "checkpoint",
    "skipped",
    "looked_at_test",
)  # names of other metrics and keys of results
METRICS = ("top1", "top5", "loss")  # of an evaluation
# All metrics of the built-in evaluations; other metrics come from a user's own evaluator.
MEASURED = re.compile(r"top1|top5|loss|examples|mce|mean_error|error_\w+|\d+shot")
CLASSES = ("all", "present")  # choices of `evals.NAME.classes`


def check_numbers(config: ConfigDict) -> None:
    """Raises BadInput for a number out of its range, or a metric that no evaluation measures."""
    lowest = {"batch_size": 1, "accumulation": 1, "data.workers": 1, "data.image_size": 1}
    lowest |= {f"evals.{name}.batch_size": 0 for name in config.evals}
    lowest |= {"seed": 0, "skip_non_finite": 0, "data.prefetch": 0, "checkpoint.keep_last": 1}
    lowest |= {"data.examples": 0, "data.window_shards": 0, "data.records.max_labels": 1}
    values = dict(flatten(config))
    for key, low in lowest.items():
        if not low <= values[key] < 2**31:
            raise BadInput(f"{key}={values[key]}; give a whole number, {low} or more, below 2**31.")
    for key in ("loss.label_smoothing", "ema.decay"):
        if not 0 <= values[key] < 1:
            raise BadInput(f"{key}={values[key]}; give a value in [0, 1).")
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{key}={value} is not a finite number.")
    if config.checkpoint.every_minutes < 0:
        minutes = config.checkpoint.every_minutes
        raise BadInput(f"checkpoint.every_minutes={minutes} is negative; give minutes, 0: never.")
    if config.schedule.lr < 0:
        raise BadInput(f"schedule.lr={config.schedule.lr} is negative; give 0 or more.")
    for key, usual in (("mixup.alpha", 0.2), ("mixup.cutmix", 1.0)):
        if not 0 <= values[key] < 1e6:
            raise BadInput(f"{key}={values[key]}; give 0 or more, e.g. {usual}.")
    for name, section in config.evals.items():
        if name in _TAKEN or name.endswith("_raw"):
            raise BadInput(f"evals.{name}: the name is taken; choose another, e.g. {name}_subset.")
        if not section.split:
            raise BadInput(f"evals.{name}.split is empty; name a split, e.g. 'val'.")
        if section.classes not in CLASSES:
            raise unknown(f"evals.{name}.classes", section.classes, CLASSES)
        if ("{corruption}" in section.source) != ("{severity}" in section.source):
            raise BadInput(
                f"evals.{name}.source={section.source!r}: write both {{corruption}} and "
                "{severity}, as in folder:PATH/{corruption}/{severity}, or neither."
            )
    metrics = [f"{n}{raw}/{m}" for n in config.evals for raw in ("", "_raw") for m in METRICS]
    best = config.checkpoint.keep_best
    where = best.rpartition("/")[0].removesuffix("_raw")
    if where in config.evals and config.evals[where].evaluator:
        metrics.append(best)  # the metrics of this evaluator are not known yet
    metrics += [f"{task}/{k}shot" for task in few_shot_tasks(config) for k in config.fewshot.shots]
    if best and best not in metrics:
        raise unknown("metric in checkpoint.keep_best", best, metrics)


def few_shot_tasks(config: ConfigDict) -> dict[str, str]:
    """Returns the name of each few-shot evaluation, the prefix of its metrics -> its source."""
    return {f"fewshot_{name}": source for name, source in config.fewshot.sources}


def check_few_shot(config: ConfigDict) -> None:
    """Raises BadInput for an invalid value in the section `fewshot`."""
    section = config.fewshot
    sources, shots = section.sources, section.shots
    if not _pairs(sources, lambda v: isinstance(v, str)):
        raise BadInput(
            f"fewshot.sources={sources!r}; expected pairs of a name and a source, "
            "(('pets', 'tfds:oxford_iiit_pet'),)."
        )
    names = [name for name, _ in sources]
    for name in names:
        if not re.fullmatch(r"\w+", name) or names.count(name) > 1:
            raise BadInput(
                f"fewshot.sources: {name!r} names metrics: letters, digits and _, each name once."
            )
        if f"fewshot_{name}" in config.evals:
            raise BadInput(f"evals.fewshot_{name}: fewshot.sources has that name; choose another.")
    whole = all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in shots)
    if not shots or not whole or len(set(shots)) < len(shots):
        raise BadInput(f"fewshot.shots={shots}; give numbers above 0, each once: (1, 5, 10, 25).")
    if not 1 <= section.seeds <= 1000:
        raise BadInput(f"fewshot.seeds={section.seeds}; give a number from 1 to 1000.")
    if not section.l2 > 0:
        raise BadInput(f"fewshot.l2={section.l2}; give a number above 0.")
    if not 0 <= section.batch_size < 2**31:
        raise BadInput(f"fewshot.batch_size={section.batch_size}; give 0 or more.")


def check_data(data: ConfigDict) -> None:
    """Raises BadInput for an invalid value in the section `data`."""
    for key, options in {
        "bad_images": ("error", "skip"),
        "cache": ("none", "raw", "decoded"),
    }.items():
        if data[key] not in options:
            raise unknown(f"data.{key}", data[key], options)
    if not 0 < data.fraction <= 1:
        raise BadInput(f"data.fraction={data.fraction}; give a share above 0, up to 1.")
    if data.examples and data.fraction < 1:
        raise BadInput(
            f"data.examples={data.examples} and data.fraction={data.fraction} both choose how many "
            "images are kept; give one of them."
        )
    if data.balanced and not data.examples and data.fraction == 1:
        raise BadInput("data.balanced=True chooses nothing without data.examples or data.fraction.")


def check_masked(config: ConfigDict) -> None:
    """Raises BadInput for a value that only classes use, in masked patch prediction."""
    unset = {"loss.name": "softmax", "loss.label_smoothing": 0.0, "mixup.alpha": 0.0}
    unset |= {"mixup.cutmix": 0.0, "model.representation": 0, "model.head_bias": 0.0}
    values = dict(flatten(config))
    for key, value in unset.items():
        if values[key] != value:
            raise BadInput(
                f"{key}={values[key]!r} has no use with masked.target={config.masked.target}, "
                "which has its own loss and head; leave it out."
            )
    for name, section in config.evals.items():
        if section.evaluator:
            raise BadInput(
                f"evals.{name}.evaluator={section.evaluator!r} measures classes, but masked.target="
                f"{config.masked.target} predicts patches; leave it out."
            )


def _numbers(value: Any) -> bool:
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in value
    )


def _strings(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, str) for v in value)


def _pairs(value: Any, second: Callable[[Any], bool]) -> bool:
    return all(
        isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and second(v[1])
        for v in value
    )


def check_tuples(config: ConfigDict) -> None:
    """Raises BadInput for a tuple whose elements do not fit its key."""
    mean, std, optimizer = config.data.mean, config.data.std, config.optimizer
    checks = {
        "data.mean": (_numbers(mean) and len(mean) == 3, "three numbers"),
        "data.std": (_numbers(std) and len(std) == 3 and min(std) > 0, "three numbers above 0"),
        "optimizer.freeze": (_strings(optimizer.freeze), "path patterns, ('embedding/.*',)"),
        **{
            f"optimizer.{key}": (
                _pairs(pairs, lambda v: _numbers((v,))),
                "pairs of a path pattern and a factor, (('head/.*', 10.0),)",
            )
            for key, pairs in (
                ("lr_mults", optimizer.lr_mults),
                ("decay.multipliers", optimizer.decay.multipliers),
            )
        },
        "mesh.rules": (
            _pairs(config.mesh.rules, _strings),
            "pairs of a logical axis and mesh axes, (('embed', ('fsdp',)),)",
        ),
    }
    if config.schedule.name == "step":
        drops = _strings(config.schedule.step.drops)
        checks["schedule.step.drops"] = (drops, "durations, ('30 epochs', '60 epochs')")
    values = dict(flatten(config))
    for key, (good, expected) in checks.items():
        if not good:
            raise BadInput(f"{key}={values[key]!r}; expected {expected}.")


def evaluations_of_test(config: ConfigDict) -> list[str]:
    """Returns the names of the evaluations that read data on which results are reported.

    These evaluations read another split than train or val of the training source, another source,
    or other labels. The validation split of ImageNet counts too, because its test labels are not
    public. Few-shot tasks score test splits.
    """

    def selects(section: ConfigDict) -> bool:
        name = section.split.partition("[")[0].strip()
        imagenet = config.data.source.startswith("tfds:imagenet2012") and name.startswith("val")
        own = section.source or section.labels
        return name.startswith(("train", "val")) and not imagenet and not own

    read = {name for name, section in config.evals.items() if not selects(section)}
    return sorted(read | few_shot_tasks(config).keys())


def uses_test_data(config: ConfigDict) -> bool:
    """Returns True if test data choose the best step, or a run of stage `select` reads any."""
    read = evaluations_of_test(config)
    best = config.checkpoint.keep_best.partition("/")[0].removesuffix("_raw")
    return best in read or (config.recipe.stage == "select" and bool(read))
