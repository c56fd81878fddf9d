# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines how a configuration key is declared, and checks values against declarations.

Owns: ranges, forms of texts and tuples, and their descriptions for messages and docs/config.md.
Must not: know keys (`sections` declares them). Start from `check`.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from vit_jax.config import images, plugins
from vit_jax.errors import BadInput, together, unknown

Effect = Literal["results", "where", "how often"]
MOST = 2**31 - 1  # the largest whole number of a key
WRITERS = ("tensorboard", "wandb", "mlflow")  # see `training/metric_writer.py`


@dataclasses.dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`.

    Attributes:
      low: the smallest number.
      high: the largest number.
      above: True if `low` itself is not in the range.
      below: True if `high` itself is not in the range.
      also: numbers outside the range that have a meaning of their own.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False
    also: tuple[float, ...] = ()

    def __contains__(self, value: float) -> bool:
        low = self.low < value if self.above else self.low <= value
        high = value < self.high if self.below else value <= self.high
        return (low and high) or value in self.also

    def __str__(self) -> str:
        high = "2^31)" if self.high == MOST else f"{short(self.high)}{')' if self.below else ']'}"
        also = "".join(f" or {n}" for n in self.also)
        return f"{'(' if self.above else '['}{short(self.low)}, {high}{also}"


def short(number: float) -> str:
    """Returns the shortest text of a number: 1048576, 0.5, 1e6."""
    return str(number) if isinstance(number, int) else re.sub(r"e\+?(-?)0*", r"e\1", f"{number:g}")


@dataclasses.dataclass(frozen=True)
class Key:
    """The declaration of a key beside its type and its default.

    Attributes:
      meaning: one line.
      effect: what another value changes.
      allowed: the range of a number, or the form of a text or tuple, a key of `FORMS`; None allows
        every value of the type.
      unit: the unit of a number.
    """

    meaning: str
    effect: Effect
    allowed: Range | str | None
    unit: str


def _declare(effect: Effect, default: Any, meaning: str, allowed: Any, unit: str) -> Any:
    return dataclasses.field(default=default, metadata={"key": Key(meaning, effect, allowed, unit)})


def results(default: Any, meaning: str, allowed: Range | str | None = None, unit: str = "") -> Any:
    """Declares a key that changes what is learned or measured."""
    return _declare("results", default, meaning, allowed, unit)


def where(default: Any, meaning: str, allowed: Range | str | None = None, unit: str = "") -> Any:
    """Declares a key that changes only where and how a run works."""
    return _declare("where", default, meaning, allowed, unit)


def how_often(
    default: Any, meaning: str, allowed: Range | str | None = None, unit: str = ""
) -> Any:
    """Declares a key that changes only how often something happens."""
    return _declare("how often", default, meaning, allowed, unit)


def inside(section: type) -> Any:
    """Declares a section inside a section."""
    return dataclasses.field(default_factory=section)


@dataclasses.dataclass(frozen=True)
class Declared:
    """A key as it is declared: its `Key`, its default, and its choices, empty if it has none."""

    key: Key
    default: Any
    choices: tuple[str, ...]

    @property
    def plug_ins(self) -> bool:
        """True if a name of the user's own may stand in place of a choice."""
        return self.key.allowed == "plug-in"

    @property
    def options(self) -> tuple[str, ...]:
        """The choices as messages list them; empty if there are none."""
        return (*self.choices, *([plugins.USAGE] if self.plug_ins else []))


def sections(kind: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yields (dotted name, dataclass) of a section and of all inside it; a dict's name is `*`."""
    yield prefix, kind
    for name, hint in typing.get_type_hints(kind).items():
        dotted = f"{prefix}.{name}".lstrip(".")
        if dataclasses.is_dataclass(hint):
            yield from sections(hint, dotted)  # type: ignore[arg-type]
        elif typing.get_origin(hint) is Mapping:
            yield from sections(typing.get_args(hint)[1], f"{dotted}.*")


@functools.cache
def keys(kind: type) -> dict[str, Declared]:
    """Returns name -> declaration for the keys of a section itself, in order."""
    hints = typing.get_type_hints(kind)
    return {
        f.name: Declared(f.metadata["key"], f.default, _choices(hints[f.name]))
        for f in dataclasses.fields(kind)
        if "key" in f.metadata
    }


def by_key(kind: type) -> dict[str, Declared]:
    """Returns dotted key -> declaration for a section and all inside it."""
    return {
        f"{section}.{name}".lstrip("."): declared
        for section, inner in sections(kind)
        for name, declared in keys(inner).items()
    }


def _choices(hint: Any) -> tuple[str, ...]:
    """Returns the options of a Literal, or of a union that has one."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(option for part in typing.get_args(hint) for option in _choices(part))
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


@functools.cache
def options(kind: type) -> tuple[str, ...]:
    """Returns the sub-sections of which the key `name` of a section chooses one, sorted."""
    choices = keys(kind)["name"].choices if "name" in keys(kind) else ()
    return tuple(sorted({f.name for f in dataclasses.fields(kind)}.intersection(choices)))


# ---------------------------------------------------------------- durations


@dataclasses.dataclass(frozen=True)
class Duration:
    """A length of training in the unit of the paper: `steps`, `epochs`, `examples` or `percent`."""

    amount: float
    unit: str

    def steps(self, *, batch_size: int, examples: int, total_steps: int = 0) -> int:
        """Returns the duration in optimizer steps, to the nearest; at least 1 unless it is 0.

        Args:
          batch_size: global batch size.
          examples: number of training examples, the length of an epoch.
          total_steps: length of the run, to which `percent` refers.
        """
        if self.amount == 0:
            return 0
        exact = {
            "steps": self.amount,
            "epochs": self.amount * examples / batch_size,
            "examples": self.amount / batch_size,
            "percent": self.amount / 100 * total_steps,
        }[self.unit]
        return max(1, round(exact))


def parse_duration(key: str, text: str) -> Duration:
    """Parses `"90 epochs"`, `"10000 steps"`, `"303e6 examples"`, `"5 percent"`, or `"0"` (never).

    Raises:
      BadInput: the text has another form; the message names `key`.
    """
    match = re.fullmatch(r"\s*([0-9][0-9_.]*(?:e[0-9]+)?)\s*([a-z%]*)\s*", text)
    units = {"%": "percent"} | {u: u for u in ("steps", "epochs", "examples", "percent")}
    units |= {"step": "steps", "epoch": "epochs", "example": "examples"}
    try:
        amount = float(match[1]) if match else -1.0
    except ValueError:
        amount = -1.0
    unit_known = match is not None and (match[2] in units or (match[2] == "" and amount == 0))
    if match is None or not 0 <= amount < 1e15 or not unit_known:
        raise BadInput(
            f"{key}={text!r} is not a duration; write a number and a unit: "
            "'90 epochs', '10000 steps', '303e6 examples' or '5 percent'."
        )
    return Duration(amount, units.get(match[2], "steps"))


# ---------------------------------------------------------------- forms of texts and tuples


def _number(value: Any, allowed: Range) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value in allowed


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: all(map(fits, value))


def _pairs(second: Callable[[Any], bool], first: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def fit(value: Any) -> bool:
        twos = all(isinstance(v, tuple) and len(v) == 2 for v in value)
        return twos and all(first(v[0]) and second(v[1]) for v in value)

    return fit


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_text, value))


def _pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _duration(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse_duration("", value) is not None
    except BadInput:
        return False


def _length(value: str) -> bool:
    if not _duration(value):
        return False
    length = parse_duration("", value)
    return length.amount > 0 and length.unit != "percent"


def _steps(value: str) -> bool:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", value)
    return not value or (match is not None and 1 <= int(match[1]) < int(match[2]))


def _each(allowed: Range) -> Callable[[Any], bool]:
    return lambda value: len(value) > 0 and all(_number(v, allowed) for v in value)


def _whole(allowed: Range) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and _number(value, allowed)


def _sources(value: Any) -> bool:
    pairs = _pairs(_text, lambda v: _text(v) and re.fullmatch(r"\w+", v) is not None)(value)
    return pairs and len({name for name, _ in value}) == len(value)


def _folder(value: Any) -> bool:
    return value == "" or (_text(value) and value.startswith("/"))


def _writers(value: Any) -> bool:
    known = all(_text(name) and (name in WRITERS or plugins.is_own(name)) for name in value)
    return known and len(set(value)) == len(value)


def _shots(value: Any) -> bool:
    numbers = value and all(map(_whole(Range(0, MOST)), value))
    return bool(numbers) and len(set(value)) == len(value)


_UNITS = "'90 epochs', '10000 steps', '303e6 examples'"
_COUNTS, _FACTORS, _MEANS, _STDS = (
    Range(1, 10_000),
    Range(0, 1e6),
    Range(-1e3, 1e3),
    Range(1e-6, 1e3),
)
# Form -> its description in messages and docs/config.md, and a function that is True for a value of
# the form. The type of the value is right already.
FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "counts": (f"whole numbers in {_COUNTS}: (3, 4, 9)", _all(_whole(_COUNTS))),
    "duration": (f"a number and a unit: {_UNITS} or '5 percent'", _duration),
    "durations": ("durations: ('30 epochs', '60 epochs')", _all(_duration)),
    "folder": ("an absolute path on a disk, or nothing", _folder),
    "length": (f"a number above 0 and a unit other than percent: {_UNITS}", _length),
    "mean": (f"a number for each channel, or one for all, in {_MEANS}: (0.5,)", _each(_MEANS)),
    "model": ("a name of `vit_jax models`, SIZE/PATCH or MODULE:NAME", _text),
    "multipliers": (
        f"pairs of a path pattern and a factor in {_FACTORS}: (('head/.*', 10.0),)",
        _pairs(lambda v: _number(v, _FACTORS), _pattern),
    ),
    "objective": (
        "auto, contrastive(...), detection(...), dino(...), mae(...), segmentation(...) or "
        "MODULE:NAME(...)",
        _text,
    ),
    "patterns": ("path patterns, which are regular expressions: ('embedding/.*',)", _all(_pattern)),
    "rules": (
        "pairs of a logical axis and mesh axes: (('embed', ('fsdp',)),)",
        _pairs(_texts, _text),
    ),
    "shots": ("whole numbers from 0, each once: (1, 5, 10, 25)", _shots),
    "size": (
        f"a side in {Range(0, images.LARGEST)} pixels, or ROWSxCOLUMNS: 224x112",
        lambda value: images.parse(value) is not None,
    ),
    "sources": (
        "pairs of a name (letters, digits and _, each name once) and a source: "
        "(('pets', 'tfds:oxford_iiit_pet'),)",
        _sources,
    ),
    "std": (f"a number for each channel, or one for all, in {_STDS}: (0.5,)", _each(_STDS)),
    "steps": ("FIRST:LAST steps: 100:105", _steps),
    "trainable": (
        "all, head, bitfit, last(2), adapters(width=64) or lora(rank=8, on=qkv+mlp)",
        _text,
    ),
    "word": ("a name, not an empty text", bool),
    "writers": (
        f"{', '.join(WRITERS)} or MODULE:NAME(...), each once: ('tensorboard', 'wandb')",
        _writers,
    ),
}


# ---------------------------------------------------------------- values


def allowed(declared: Declared) -> str:
    """Returns the range, the choices or the form of a key; "" if it has none."""
    rule = declared.key.allowed
    if declared.choices:
        return " | ".join(option or '""' for option in declared.options)
    return "" if rule is None else str(rule) if isinstance(rule, Range) else FORMS[rule][0]


def expected(declared: Declared) -> str:
    """Returns a description of the values of a key, such as "a whole number in [1, 90]"."""
    kind, text = type(declared.default), allowed(declared)
    if kind in (int, float) and isinstance(declared.key.allowed, Range):
        return f"a {'whole ' if kind is int else ''}number in {text}"
    return text or {bool: "true or false", str: "a text"}[kind]


def check(values: Iterable[tuple[str, Declared | None, Any]]) -> None:
    """Checks values one by one, given as (dotted key, declaration, value).

    Raises:
      BadInput: some values are not allowed; the message lists them all.
    """
    problems = [_problem(key, declared, value) for key, declared, value in values if declared]
    if wrong := [problem for problem in problems if problem]:
        raise together(wrong)


def _problem(name: str, declared: Declared, value: Any) -> BadInput | None:
    """Returns the error for a value that its declaration does not allow; None if it allows it.

    Args:
      name: the dotted key.
      declared: its declaration.
      value: a value of the type of the default; a whole number may stand for any number.
    """
    allowed = declared.key.allowed
    if declared.choices:
        if value in declared.choices or (declared.plug_ins and plugins.is_own(value)):
            return None
        from vit_jax.config import synonyms

        options = filter(None, declared.options)
        return unknown(name, str(value), options, synonyms.hint(name, str(value)))
    fits = True
    if isinstance(allowed, Range):
        fits = _number(value, allowed)
    elif allowed is not None:
        fits = FORMS[allowed][1](value)
    if fits:
        return None
    shown = repr(value) if isinstance(value, str | tuple) else str(value)
    shown = shown if len(shown) < 300 else f"{shown[:300]}..."
    return BadInput(
        f"{name}={shown} cannot be used; give {expected(declared)} (default: {declared.default!r})."
    )
