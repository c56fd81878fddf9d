# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens the sources of a configuration and chooses its examples; reads no image.

Start from `open_all`, which opens all that a run reads, or from `open_source`.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vit_jax.config import frozen, sections, validation
from vit_jax.config import load as config_lib
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits.split import Split
from vit_jax.data.tasks import test_sets
from vit_jax.data.tasks.test_sets import Evaluation
from vit_jax.errors import BadInput, together


def problems(config: sections.Config) -> list[BadInput]:
    """Returns the errors of all data that a run reads; empty if there are none.

    It reads no image.
    """
    errors = []
    for opened in (few_shot_sources, open_all):
        try:
            opened(config)
        except BadInput as e:
            errors.append(e)
    return errors


def open_source(data: sections.Data, spec: str = "") -> Source:
    """Opens the source of a `data` section, or the source `spec` with its options."""
    return sources.open_source(
        spec or data.source,
        options(data),
        val_percent=data.val_percent,
        test_percent=data.test_percent,
    )


def options(data: sections.Data) -> Options:
    """Returns the options that sources need besides their names."""
    return Options(data_dir=data.data_dir, **frozen.arguments(data.records))


def few_shot_source(data: sections.Data, spec: str) -> Source:
    """Opens a source of few-shot examples; the run's own source keeps the run's splits."""
    from vit_jax.data.tasks import shots

    source = shots.open_source(spec, options(data)) if spec != data.source else open_source(data)
    shots.check(source)
    return source


def few_shot_sources(config: sections.Config) -> dict[str, Source]:
    """Opens the sources of few-shot tasks, by the name of their metrics."""
    return call_all(
        {
            name: functools.partial(few_shot_source, config.data, spec)
            for name, spec in validation.few_shot_tasks(config).items()
        }
    )


Evaluations = dict[str, Evaluation]  # by name


def open_all(config: sections.Config) -> tuple[Source, list[str], Split, Evaluations]:
    """Returns source, notes, training split and evaluations; reads no image."""
    data = config.data
    try:
        source = open_source(data)
    except BadInput as e:
        missing = (test_sets.problems(**_test_set_arguments(config, name)) for name in config.evals)
        raise together([e, *itertools.chain.from_iterable(missing)]) from e
    notes = list(source.notes)

    def training() -> Split:
        split, more_notes = training_examples(source, data)
        notes.extend(more_notes)
        split = in_windows(split, data)
        if data.stage:
            from vit_jax.build import staged

            staged.check(data, split)
        return split

    wanted: dict[str, Callable[[], Any]] = {"": training}  # the training split has the empty name
    for name in config.evals:
        wanted[name] = functools.partial(_evaluation, config, source, name)
    opened = call_all(wanted)
    return source, notes, opened.pop(""), opened


def _test_set_arguments(config: sections.Config, name: str) -> dict[str, Any]:
    """Returns the arguments of `test_sets.problems` for an evaluation.

    `test_sets.open_test_set` takes two more.
    """
    data, section = config.data, config.evals[name]
    whole = config_lib.changed(data, {"val_percent": 0, "test_percent": 0})
    return {
        "open_other": functools.partial(open_source, whole),
        "key": f"evals.{name}",
        "source": section.source,
        "labels": section.labels,
        "data_dir": data.data_dir,
    }


def _evaluation(config: sections.Config, source: Source, name: str) -> Evaluation:
    section, reading = config.evals[name], _test_set_arguments(config, name)
    return test_sets.open_test_set(source, split=section.split, classes=section.classes, **reading)


def training_examples(source: Source, data: sections.Data) -> tuple[Split, list[str]]:
    """Returns the training examples, and notes."""
    split = source.split(data.split)
    if len(split) and not data.examples and data.fraction == 1 and not data.exclude:
        return split, list(split.notes())
    from vit_jax.data.splits import subset

    return subset.choose(
        split,
        examples=data.examples,
        fraction=data.fraction,
        balanced=data.balanced,
        exclude=data.exclude,
        classes=len(source.classes),
    )


def in_windows(split: Split, data: sections.Data) -> Split:
    """Returns the training examples, in an order of windows of files if the run has one."""
    if not data.window_shards:
        return split
    from vit_jax.data.splits import windows

    return windows.shuffle_in_windows(split, data.window_shards)


_T = TypeVar("_T")


def call_all(makers: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
    """Calls every maker and returns the results; raises one BadInput with all their errors."""
    results, errors = {}, list[BadInput]()
    for name, maker in makers.items():
        try:
            results[name] = maker()
        except BadInput as e:
            errors.append(e)
    if errors:
        raise together(errors)
    return results
