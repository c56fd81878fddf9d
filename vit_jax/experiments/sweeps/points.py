# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a recipe with `sweep()` into named runs, each with its whole configuration. Pure.

A recipe's `sweep(arg=None)` returns a list of points, or stages: a dict from name to list. A stage
may also be a function of the finished runs of the stage before, and have a rule that stops its
weaker runs early (`halving`). A point maps keys (`schedule.lr`) or arguments of the recipe
(`:dataset`) to values. The runner here and launchers elsewhere share this expansion. Start from
`read`.
"""

import dataclasses
import functools
import itertools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vit_jax.config import load as config_lib
from vit_jax.config import recipes, sections
from vit_jax.errors import BadInput, together, unknown
from vit_jax.experiments.sweeps import halving
from vit_jax.experiments.sweeps.halving import Halving

MOST_CHARACTERS = 120  # the longest name
Row = Mapping[str, Any]  # a finished run: "run", "workdir", its keys, "<split>/<metric>"
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
      run: its folder below the sweep's folder, e.g. `select/003-lr=0.01_seed=1`.
      keys: the keys of the sweep, without a leading "config.".
      config: loaded, with the overrides of the command line; open values are not yet settled.
    """

    run: str
    keys: dict[str, Any]
    config: sections.Config


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The stages of a recipe.

    Attributes:
      spec: `FILE.py:ARGS`.
      overrides: `--config.key=value` for all points; an override of an evaluation applies only to
        points that have that evaluation.
      stages: name -> points, or a function of the rows of the stage before. A stage without a name
        is called "".
      rules: name -> the rule by which a stage stops weaker runs early; other stages have none.
    """

    spec: str
    overrides: tuple[str, ...]
    stages: Mapping[str, Any]
    rules: Mapping[str, Halving] = dataclasses.field(default_factory=dict)

    def before(self, stage: str) -> str | None:
        """Returns the stage whose finished runs determine this one; None if it has fixed points."""
        names = list(self.stages)
        return names[names.index(stage) - 1] if callable(self.stages[stage]) else None

    def points(self, stage: str, rows: Sequence[Row] = ()) -> list[Point]:
        """Returns the runs of a stage, each loaded and named.

        Args:
          stage: a key of `stages`.
          rows: all runs of the stage before, if this stage is a function of them.

        Raises:
          BadInput: points cannot be used; the message names all of them.
        """
        points = self.stages[stage]
        if callable(points):
            try:
                points = points([dict(row) for row in rows])
            except BadInput:
                raise
            except Exception as e:  # the user's code may raise anything
                reason = f"{type(e).__name__}: {e}"[:300]
                raise BadInput(f"stage {stage!r} cannot be made of finished runs: {reason}") from e
        return self._points(stage, points)

    @functools.cached_property
    def expected(self) -> dict[str, list[Point]]:
        """Returns the points of all stages, before anything has run.

        A stage that is a function of finished runs is called with imagined runs, whose metrics are
        0 and whose `workdir` is `Point.run`. Its list is empty if that call fails.

        Raises:
          BadInput: points cannot be used; the message names all of them.
        """
        points, problems, rows = dict[str, list[Point]](), list[BadInput](), list[Row]()
        for name, stage in self.stages.items():
            try:
                points[name] = self._imagined(name, rows) if callable(stage) else self.points(name)
            except BadInput as e:
                points[name] = []
                problems.append(e)
            rows = [{"run": p.run, "workdir": p.run, **p.keys} for p in points[name]]
        if problems:
            raise together(problems)
        return points

    def _imagined(self, stage: str, rows: Sequence[Row]) -> list[Point]:
        try:
            points = list(self.stages[stage]([_Imagined(row) for row in rows]))
        except Exception:  # the metrics mean nothing here; the stage is checked later
            return []
        return self._points(stage, points) if points else []

    def _points(self, stage: str, points: Any) -> list[Point]:
        listed = _listed(points, f"stage {stage!r}" if stage else "sweep()")
        folder = f"{stage}/" if len(self.stages) > 1 else ""
        names = [folder + name for name in _names([_named(keys, stage) for keys in listed])]
        selects = any(self.before(later) == stage for later in self.stages)
        loaded, problems = list[Point](), Problems()
        for name, keys in zip(names, listed, strict=True):
            try:
                loaded.append(Point(name, keys, self._config(keys, selects)))
            except BadInput as e:
                problems.add(name, e)
        problems.check()
        _check_different(loaded)
        return loaded

    def _config(self, keys: Mapping[str, Any], selects: bool) -> sections.Config:
        for key in keys:
            if any(o.startswith(f"--config.{key}=") for o in self.overrides):
                raise BadInput(f"{key} is swept over; leave out --config.{key}.")
        own = [f"--config.{k}={_text(v)}" for k, v in keys.items() if not k.startswith(":")]
        spec = with_arguments(self.spec, keys)
        have = config_lib.read(spec).evals if any(map(_evaluation, self.overrides)) else ()
        overrides = [o for o in self.overrides if not _evaluation(o) or _evaluation(o) in have]
        config = config_lib.load(spec, [*overrides, *own])
        if selects and not config.recipe.stage:
            config = config_lib.changed(config, {"recipe.stage": "select"})
        return config


def read(spec: str, overrides: Iterable[str] = ()) -> Sweep:
    """Reads the sweep of a recipe and loads every point once.

    Args:
      spec: `FILE.py`, `vit_jax:NAME`, or either with `:ARGS`.
      overrides: `--config.key=value`, for all points.

    Raises:
      BadInput: there is no sweep, it is empty, or points cannot be used (the message names all).
    """
    path, args = recipes.split(spec)
    if path.suffix != ".py":
        raise BadInput(f"--config={spec}: only a recipe (.py) has a sweep; {path.name} is a run's.")
    result = recipes.call(path, "sweep", args)
    stages = dict(result) if isinstance(result, Mapping) else {"": result}
    if not stages or not all(isinstance(name, str) for name in stages):
        raise BadInput(f"{path}: sweep() has the stages {list(stages)}; expected names of stages.")
    for name in stages:
        if not re.fullmatch(r"[A-Za-z][\w-]*" if len(stages) > 1 else r"[\w-]*", name):
            raise BadInput(f"{path}: a stage is called {name!r}; expected a word.")
    rules = dict[str, Halving]()
    for name, stage in stages.items():
        stages[name], rule = halving.read(f"{path}: stage {name!r}", stage)
        rules |= {name: rule} if rule else {}
    if callable(next(iter(stages.values()))):
        raise BadInput(f"{path}: the first stage is a function, but no stage is before it.")
    sweep = Sweep(spec, tuple(overrides), stages, rules)
    _check_evaluations(sweep)
    return sweep


def _evaluation(override: str) -> str:
    """Returns the evaluation that an override belongs to, or ""."""
    match = re.match(r"--config\.evals\.(\w+)\.", override)
    return match[1] if match else ""


def _check_evaluations(sweep: Sweep) -> None:
    """Raises BadInput if no point has an override's evaluation; logs the points without it."""
    points = [point for points in sweep.expected.values() for point in points]
    for override in filter(_evaluation, sweep.overrides):
        name, key = _evaluation(override), override.removeprefix("--config.").partition("=")[0]
        without = [p.run for p in points if name not in p.config.evals]
        if len(without) == len(points):
            known = {k: None for p in points for k, _ in config_lib.flatten(p.config)}
            raise unknown("config key", key, known)
        if without:
            log.info("%s is left out of runs without that evaluation: %s", override, _few(without))


def check_stage(sweep: Sweep, stage: str) -> None:
    """Raises BadInput unless the sweep has this stage; the message lists the stages."""
    if stage not in sweep.stages:
        raise unknown(f"stage of {sweep.spec}", stage, filter(None, sweep.stages))


class _Imagined(dict[str, Any]):
    """A stand-in for a run that has not finished: every metric is 0."""

    def __missing__(self, key: str) -> Any:
        if "/" not in key:
            raise KeyError(key)
        return 0.0


def _named(keys: Mapping[str, Any], stage: str) -> Mapping[str, Any]:
    """Returns the keys that enter the name of a point: without the stage's own key and `init`.

    `init` is a path. It would change the name of a run with the spelling of the sweep's folder, and
    leave no room for the other keys.
    """
    named = {k: v for k, v in keys.items() if k != "init" and not (k == ":stage" and v == stage)}
    return named or keys


class Problems(dict[str, list[str]]):
    """The problems with points -> the runs that have each problem."""

    def add(self, run: str, problem: BadInput) -> None:
        self.setdefault(str(problem), []).append(run)

    def check(self) -> None:
        """Raises one BadInput with all problems, if there are any."""
        if self:
            raise together([BadInput(f"{_few(runs)}: {why}") for why, runs in self.items()])


def _few(runs: Sequence[str]) -> str:
    return ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if runs[3:] else "")


def _listed(points: Any, where: str) -> list[dict[str, Any]]:
    """Returns the points of a stage with plain keys and values."""
    if isinstance(points, str | Mapping) or not isinstance(points, Iterable):
        raise BadInput(f"{where} is {type(points).__name__}; expected a list of points.")
    listed = []
    for number, point in enumerate(points):
        if not isinstance(point, Mapping) or not all(isinstance(k, str) for k in point):
            raise BadInput(f"{where}: point {number} is {point!r}; expected {{key: value}}.")
        keys = {k.removeprefix("config."): _plain(k, v) for k, v in point.items()}
        if len(keys) < len(point):
            raise BadInput(f"{where}: point {number} names a key twice: {', '.join(point)}.")
        listed.append(keys)
    if not listed:
        raise BadInput(f"{where} is empty: there is nothing to run; return at least one point.")
    return listed


def _plain(key: str, value: Any) -> Any:
    """Returns a value that a configuration may hold; turns numpy's numbers into Python's."""
    if type(value).__module__ == "numpy":
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_plain(key, v) for v in value)
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise BadInput(f"{key}={value!r} is of type {kind}; a point holds numbers, text or tuples.")
    return value


def _text(value: Any) -> str:
    """Returns a value as written on a command line."""
    return value if isinstance(value, str) else repr(value)


def with_arguments(spec: str, keys: Mapping[str, Any]) -> str:
    """Returns `RECIPE:ARGS` with the arguments of a point (`:dataset`) replacing its own.

    Raises:
      BadInput: a value has a comma, which would begin another argument.
    """
    path, args = recipes.split(spec)
    parts = {part.partition("=")[0].strip(): part for part in args.split(",") if part.strip()}
    for key, value in keys.items():
        if key.startswith(":"):
            text = _text(value)
            if "," in text:
                raise BadInput(f"{key}={text!r}: the argument of a recipe cannot hold a comma.")
            parts[key[1:]] = f"{key[1:]}={text}"
    recipe = f"{recipes.OWN}{path.stem}" if spec.startswith(recipes.OWN) else str(path)
    return f"{recipe}:{','.join(parts.values())}" if parts else recipe


def _check_different(points: Sequence[Point]) -> None:
    """Raises BadInput if two points would train the same."""
    seen: dict[str, Point] = {}
    for point in points:
        first = seen.setdefault(config_lib.fingerprint(point.config), point)
        if first is not point:
            raise BadInput(
                f"{first.run} and {point.run} are the same run: {described(point.keys)} changes "
                "nothing; leave one out."
            )


def described(keys: Mapping[str, Any]) -> str:
    """Formats keys as `schedule.lr=0.01, seed=1`."""
    return ", ".join(f"{key}={_text(value)}" for key, value in keys.items())


# ---------------------------------------------------------------- names


def _names(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns names such as `003-lr=0.01_seed=1`: a number, then keys and values.

    They hold only characters that file systems, shells and arguments of recipes accept.
    """
    short = _short(list(dict.fromkeys(itertools.chain.from_iterable(points))))
    digits = max(3, len(str(len(points) - 1)))
    names = []
    for number, keys in enumerate(points):
        name = "_".join(f"{short[k]}={_safe(v)}" for k, v in keys.items())
        names.append(f"{number:0{digits}}-{name}"[:MOST_CHARACTERS].rstrip("-_. "))
    return names


def _short(keys: Sequence[str]) -> dict[str, str]:
    """Returns the shortest unambiguous end of each key: `lr`, or `optimizer.name`."""
    short = {}
    for key in keys:
        words = key.removeprefix(":").split(".")
        ends = [".".join(words[-n:]) for n in range(1, len(words) + 1)]
        others = [k.removeprefix(":") for k in keys if k != key]
        clear = [e for e in ends if not any(o == e or o.endswith(f".{e}") for o in others)]
        short[key] = clear[0] if clear else ends[-1]
    return short


def _safe(value: Any) -> str:
    text = "+".join(map(_safe, value)) if isinstance(value, tuple) else _text(value)
    return re.sub(r"[^A-Za-z0-9._+%-]+", "-", text)
