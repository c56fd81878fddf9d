# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks values of a configuration against each other; `load.check` checks single values.

Combinations that depend on a model, a mesh or data are checked at their use. Start from
`check_together`.
"""

import math
import re
from collections.abc import Sequence

from vit_jax.config import sections, trainable
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
LEAST_SECS = 30  # of elastic.secs: a process counts as gone after 20 s
# All metrics of the built-in evaluations; other metrics come from a user's own evaluator.
MEASURED = re.compile(
    r"top1|top5|miou|pixel_accuracy|ap50|loss|examples|mce|mean_error|error_\w+|zero_shot|"
    r"((knn|probe)_)?(\d+|all)shot"
)


def check_together(
    config: sections.Config, evaluated: Sequence[str], *, averages: bool = False
) -> None:
    """Raises BadInput for values that are allowed one by one, but not together.

    Args:
      config: a configuration whose single values are checked.
      evaluated: the metrics of an evaluation, which the objective names.
      averages: whether the objective learns from the average, so that few-shot tasks measure both.
    """
    _check_evaluations(config)
    _check_best_metric(config, evaluated, averages)
    data, parts, size = config.data, config.accumulation, config.batch_size
    if size % parts:
        low = [a for a in range(1, math.isqrt(size) + 1) if size % a == 0]
        fits = sorted({*low, *(size // a for a in low)})
        raise BadInput(
            f"accumulation={parts} does not divide batch_size={size}; {_nearest(parts, fits)} "
            "would."
        )
    if data.examples and data.fraction < 1:
        raise BadInput(
            f"data.examples={data.examples} and data.fraction={data.fraction} both choose how many "
            "images are kept; give one of them."
        )
    if config.trainable != trainable.ALL and config.optimizer.freeze:
        raise BadInput(
            f"trainable={config.trainable!r} says what is trained, and "
            f"optimizer.freeze={config.optimizer.freeze!r} what is not; give one of them."
        )
    if config.trainable != trainable.ALL and config.model.mup_base_width:
        base = config.model.mup_base_width
        raise BadInput(
            f"model.mup_base_width={base} scales the rates of all parameters, and "
            f"trainable={config.trainable!r} trains a part; leave one of them out."
        )
    if config.ema.final and not config.ema.decay:
        raise BadInput("ema.final has no average; give ema.decay, the decay at the start.")
    if config.ema.warmup and not config.ema.decay:
        raise BadInput("ema.warmup=True has no average to warm up; give ema.decay, e.g. 0.9999.")
    check_elastic(config)
    if data.balanced and not data.examples and data.fraction == 1:
        raise BadInput("data.balanced=True chooses nothing without data.examples or data.fraction.")
    if data.stage_budget and not data.stage:
        raise BadInput(
            f"data.stage_budget={data.stage_budget} limits nothing without data.stage; give both."
        )
    local = config.checkpoint.local
    if local.path and not local.every_minutes and local.every == "0":
        raise BadInput(
            f"checkpoint.local.path={local.path} would never be written: every and every_minutes "
            "of checkpoint.local are 0; give one of them, or leave the path out."
        )


def check_elastic(config: sections.Config) -> None:
    """Raises BadInput for a run that cannot go on while slices are missing, although it shall."""
    secs, slices, mesh = config.elastic.secs, config.elastic.slices, config.mesh
    if slices and not secs:
        raise BadInput(f"elastic.slices={slices} changes nothing without elastic.secs; give both.")
    if slices == 1:
        raise BadInput(
            "elastic.slices=1 leaves nothing to train on without a lost machine; give 2 or more, "
            "or 0: each process is a slice."
        )
    if 0 < secs < LEAST_SECS:
        raise BadInput(
            f"elastic.secs={secs} is less than a process needs to come back; give {LEAST_SECS} "
            "seconds or more, or 0."
        )
    if secs and mesh.data != -1 and mesh.replica < 2:
        raise BadInput(
            f"elastic.secs={secs} trains on fewer devices while some are missing, but "
            f"mesh.data={mesh.data} fixes their number; give mesh.data=-1."
        )


def _nearest(value: int, fits: list[int]) -> str:
    near = sorted(sorted(fits, key=lambda f: abs(f - value))[:3])
    return " or ".join(map(str, near))


def _check_evaluations(config: sections.Config) -> None:
    for name, section in config.evals.items():
        if name in _TAKEN or name.endswith("_raw"):
            raise BadInput(f"evals.{name}: the name is taken; choose another, e.g. {name}_subset.")
        if ("{corruption}" in section.source) != ("{severity}" in section.source):
            raise BadInput(
                f"evals.{name}.source={section.source!r}: write both {{corruption}} and "
                "{severity}, as in folder:PATH/{corruption}/{severity}, or neither."
            )
    for name in few_shot_tasks(config):
        if name.endswith("_raw"):
            raise BadInput(
                f"fewshot.sources has a task {name.removeprefix('fewshot_')}, and names on _raw "
                "are taken; choose another."
            )
        if name in config.evals:
            raise BadInput(f"evals.{name}: fewshot.sources has that name; choose another.")


def _check_best_metric(config: sections.Config, evaluated: Sequence[str], averages: bool) -> None:
    """Raises BadInput if no evaluation measures `checkpoint.keep_best`."""
    metrics = [f"{n}{raw}/{m}" for n in config.evals for raw in ("", "_raw") for m in evaluated]
    best = config.checkpoint.keep_best
    where = best.rpartition("/")[0].removesuffix("_raw")
    if where in config.evals and config.evals[where].evaluator:
        metrics.append(best)  # the metrics of this evaluator are not known yet
    shots = [f"{k or 'all'}shot" for k in config.fewshot.shots]
    shots = ["zero_shot"] if config.fewshot.method == "zero_shot" else shots
    metrics += [
        f"{task}{raw}/{prefix}{name}"
        for task in few_shot_tasks(config)
        for raw in (("", "_raw") if averages else ("",))
        for prefix in few_shot_classifiers(config).values()
        for name in shots
    ]
    if best and best not in metrics:
        raise unknown("metric in checkpoint.keep_best", best, metrics)


def few_shot_classifiers(config: sections.Config) -> dict[str, str]:
    """Returns the classifiers of few-shot evaluations -> what their metrics begin with."""
    methods = config.fewshot.method.split("+")
    return {name: f"{name}_" if len(methods) > 1 else "" for name in methods}


def few_shot_tasks(config: sections.Config) -> dict[str, str]:
    """Returns the name of each few-shot evaluation, the prefix of its metrics -> its source."""
    return {f"fewshot_{name}": source for name, source in config.fewshot.sources}


def evaluations_of_test(config: sections.Config) -> list[str]:
    """Returns the names of the evaluations that read data on which results are reported.

    These evaluations read another split than train or val of the training source, another source,
    or other labels. The validation split of ImageNet counts too, because its test labels are not
    public. Few-shot tasks score test splits.
    """

    def selects(section: sections.Evaluation) -> bool:
        name = section.split.partition("[")[0].strip()
        imagenet = config.data.source.startswith("tfds:imagenet2012") and name.startswith("val")
        own = section.source or section.labels
        return name.startswith(("train", "val")) and not imagenet and not own

    read = {name for name, section in config.evals.items() if not selects(section)}
    return sorted(read | few_shot_tasks(config).keys())


def uses_test_data(config: sections.Config) -> bool:
    """Returns True if test data choose the best step, or a run of stage `select` reads any."""
    read = evaluations_of_test(config)
    best = config.checkpoint.keep_best.partition("/")[0].removesuffix("_raw")
    return best in read or (config.recipe.stage == "select" and bool(read))
