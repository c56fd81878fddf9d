# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines tables of names, and applies them in both directions.

A rule pairs a template of foreign names with templates of our names (loop layout: `block_{i}/...`)
and an invertible operation on the arrays. Start from `Format`, `read` and `write`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models import posemb

Flat = dict[str, np.ndarray]  # name -> array
Arrays = tuple[np.ndarray, ...]

# Placeholders of templates. All others are numbers: `{i}`; `{u:02}` has leading zeros, and `{s:-1}`
# counts from 0 where our names count from 1.
_WORDS = {"kb": "kernel|bias", "sb": "scale|bias", "qkvo": "query|key|value|out", "xy": "x|y"}


@dataclasses.dataclass(frozen=True)
class Context:
    """Facts about a file that operations need besides the array itself.

    Attributes:
      heads: N; 0 if no operation needs it.
      class_rows: number of class tokens.
      patches: number of patches; 0 if only the file can tell.
      registers: number of register tokens.
    """

    heads: int = 0
    class_rows: int = 0
    patches: int = 0
    registers: int = 0


@dataclasses.dataclass(frozen=True)
class Op:
    """An invertible operation between one foreign array and the arrays of a rule's names."""

    read: Callable[[np.ndarray, Context], Arrays]
    write: Callable[[Arrays, Context], np.ndarray]


SAME = Op(lambda a, _: (a,), lambda a, _: a[0])
LINEAR = Op(lambda a, _: (a.T,), lambda a, _: a[0].T)  # [out, in]
CONV = Op(lambda a, _: (a.transpose(2, 3, 1, 0),), lambda a, _: a[0].transpose(3, 2, 0, 1))  # OIHW


def _patches(a: np.ndarray, _: Context) -> Arrays:
    side = round((a.shape[1] / 3) ** 0.5)
    return (a.T.reshape(side, side, 3, -1),)


# A linear layer on the pixels of RGB patches, [D, rows * columns * 3]
PATCHES = Op(_patches, lambda a, _: a[0].reshape(-1, a[0].shape[-1]).T)
CHANNELS_4D = Op(lambda a, _: (a.reshape(a.shape[-1]),), lambda a, _: a[0].reshape(1, 1, 1, -1))
CHANNELS = Op(lambda a, _: (a.reshape(a.shape[-1]),), lambda a, _: a[0])
SQUEEZED = Op(lambda a, _: (a.squeeze(),), lambda a, _: a[0])
# 1 x 1 convolutions.
HEAD_HWIO = Op(lambda a, _: (a.reshape(a.shape[2:]),), lambda a, _: a[0][None, None])
HEAD_OIHW = Op(lambda a, _: (a.reshape(a.shape[:2]).T,), lambda a, _: a[0].T[:, :, None, None])


def heads_kernel(parts: int) -> Op:
    """Makes the operation from [parts * N * K, D] to `parts` kernels [D, N, K]."""

    def read(a: np.ndarray, context: Context) -> Arrays:
        split = a.reshape(parts, context.heads, -1, a.shape[-1])
        return tuple(split.transpose(0, 3, 1, 2))

    def write(arrays: Arrays, _: Context) -> np.ndarray:
        return np.stack(arrays).transpose(0, 2, 3, 1).reshape(-1, arrays[0].shape[0])

    return Op(read, write)


def heads_bias(parts: int) -> Op:
    """Makes the operation from [parts * N * K] to `parts` biases [N, K]."""
    return Op(
        lambda a, context: tuple(a.reshape(parts, context.heads, -1)),
        lambda arrays, _: np.stack(arrays).reshape(-1),
    )


HEAD_BIAS = heads_bias(1)


def with_heads(op: Op, heads: int) -> Op:
    """Makes the operation of an attention with its own number of heads."""
    return Op(
        lambda a, context: op.read(a, dataclasses.replace(context, heads=heads)),
        lambda arrays, context: op.write(arrays, dataclasses.replace(context, heads=heads)),
    )


# [D, N * K] to [N, K, D]
HEADS_OUT = Op(
    lambda a, context: (a.T.reshape(context.heads, -1, a.shape[0]),),
    lambda a, _: a[0].reshape(-1, a[0].shape[-1]).T,
)


def _with_class_row(a: np.ndarray, context: Context) -> Arrays:
    """Adds rows of zeros for class tokens if the embeddings cover only the patches."""
    square = round(a.shape[1] ** 0.5) ** 2
    if not context.class_rows or a.shape[1] != (context.patches or square):
        return (a,)
    none = np.zeros_like(a[:, :1]).repeat(context.class_rows, axis=1)
    return (np.concatenate([none, a], axis=1),)


# [1, rows * columns, D]; `fuse_class_row` has already moved the class token's row.
POSEMB_GRID = Op(_with_class_row, lambda a, context: a[0][:, context.class_rows :])
# The same with register tokens; otherwise keeps the row of the class token.
POSEMB = Op(_with_class_row, lambda a, c: a[0][:, c.class_rows :] if c.registers else a[0])


# [out of the gate and of the other half, D]
GATED = Op(
    lambda a, _: tuple(half.T for half in np.split(a, 2)),
    lambda arrays, _: np.concatenate([a.T for a in arrays]),
)
GATED_BIAS = Op(
    lambda a, _: tuple(np.split(a, 2)),
    lambda arrays, _: np.concatenate(arrays),
)
TOKEN = Op(lambda a, _: (a[None, None],), lambda a, _: a[0][0, 0])  # [D]
ROWS = Op(lambda a, _: (a[None],), lambda a, _: a[0][0])  # [L, D]


def _projection(arrays: Arrays, _: Context) -> np.ndarray:
    kernel, bias = arrays
    if bias.any():
        raise BadInput("the projection of a CLIP has no bias, and this head has one; keep a run.")
    return kernel.T


# A head without a bias, [Y, D]
PROJECTION = Op(lambda a, _: (a.T, np.zeros_like(a[:, 0])), _projection)


def fuse_class_row(flat: Flat) -> Flat:
    """Adds the class token's position embedding to the token and zeroes that row.

    The model stays the same. Only formats without such a row need this, and reading them cannot
    separate the two values again.
    """
    if "cls" not in flat or "posemb" not in flat:
        return flat
    posemb = flat["posemb"].copy()
    posemb[:, 0] = 0
    return flat | {"cls": flat["cls"] + flat["posemb"][:, :1], "posemb": posemb}


def fuse_register_rows(flat: Flat, patches: int) -> Flat:
    """Adds the registers' position embeddings to the registers, if there are such rows.

    The model stays the same. `patches` is their number; 0 if unknown, then they form a square.
    """
    posemb, registers = flat.get("posemb"), flat.get("registers")
    if posemb is None or registers is None or registers.ndim != 3 or posemb.ndim != 3:
        return flat
    first = ("cls" in flat) + ("dist" in flat)
    last = first + registers.shape[1]
    have, square = posemb.shape[1] - last, lambda n: n > 0 and round(n**0.5) ** 2 == n
    fits = have == patches if patches else square(have) and not square(posemb.shape[1] - first)
    if not fits or posemb.shape[-1] != registers.shape[-1]:
        return flat
    kept = np.concatenate([posemb[:, :first], posemb[:, last:]], axis=1)
    return flat | {"registers": registers + posemb[:, first:last], "posemb": kept}


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a table: `foreign` <-> `ours`, by `op`."""

    foreign: str
    ours: tuple[str, ...]
    op: Op


def rule(foreign: str, ours: str | Iterable[str], op: Op = SAME) -> Rule:
    """Makes a rule with one or several of our names."""
    return Rule(foreign, (ours,) if isinstance(ours, str) else tuple(ours), op)


@dataclasses.dataclass(frozen=True)
class Format:
    """A layout of weight files for one kind of model.

    Attributes:
      name: the name that users write: npz, big_vision, timm, hf.
      family: vit, bit or mixer.
      rules: the table of names.
      constants: constants of the models in this format, as fields of `variants.Settings`.
      aliases: (pattern, replacement) of spellings that are read but never written.
      before_write: change to our weights that the format needs.
      tells_gate: whether hidden_act of a config.json is that of the gate, where there is one.
      after_read: change that weights under our names need: (weights, patches or 0) -> weights.
      writes: predicate of the weights whose kind of model this table can write.
      architectures: pattern of the models of timm in this format that no tensor tells from others;
        "": any.
      kinds: values of `model_type` in a config.json that go with these names.
      takes: options of a ViT that a model in this format may have or lack; any other has the value
        in `constants`, or else its default.
      unused: patterns of tensors that only pre-training or another modality needs; not read.
      fits: predicate of the shapes of a file, for tables that share their names.
      head_dim: K in all models of the family, for a file that does not tell the heads; 0: unknown.
      resize: how the readers of this format resize position embeddings.
      beside: (cfg, image size, constants, `json_config.Images`) -> the JSON files to write beside
        the weights: file name -> object. It raises BadInput for a model that their readers cannot
        have.
    """

    name: str
    family: str
    rules: tuple[Rule, ...]
    constants: Mapping[str, Any]
    aliases: tuple[tuple[str, str], ...] = ()
    before_write: Callable[[Flat], Flat] = lambda flat: flat
    tells_gate: bool = False
    after_read: Callable[[Flat, int], Flat] = lambda flat, patches: flat
    writes: Callable[[Flat], bool] = lambda flat: True
    architectures: str = ""
    kinds: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    unused: tuple[str, ...] = ()
    fits: Callable[[Flat], bool] = lambda foreign: True
    head_dim: int = 0
    resize: posemb.Resize = "aligned"
    beside: Callable[..., dict[str, dict[str, Any]]] | None = None

    def drops(self, name: str) -> bool:
        """Returns True if a foreign tensor is not read."""
        return any(re.fullmatch(pattern, self.canonical(name)) for pattern in self.unused)

    def canonical(self, name: str) -> str:
        """Returns a foreign name in the spelling of the table."""
        for pattern, replacement in self.aliases:
            name = re.sub(pattern, replacement, name)
        return name

    def rule_for(self, name: str) -> tuple[Rule, dict[str, Any]] | None:
        """Returns the rule for a foreign name, and the values of its placeholders."""
        return _find(self.rules, lambda r: (r.foreign,), self.canonical(name))

    def rule_of_ours(self, name: str) -> tuple[Rule, dict[str, Any]] | None:
        """Returns the rule for one of our names, and the values of its placeholders."""
        return _find(self.rules, lambda r: r.ours, name)


def _find(
    rules: tuple[Rule, ...], side: Callable[[Rule], tuple[str, ...]], name: str
) -> tuple[Rule, dict[str, Any]] | None:
    for candidate in rules:
        for template in side(candidate):
            values = match(template, name)
            if values is not None:
                return candidate, values
    return None


@functools.cache
def _compiled(template: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """Returns the pattern of a template, and the number format of each placeholder."""
    formats: dict[str, str] = {}

    def group(placeholder: re.Match[str]) -> str:
        name, form = placeholder[1], placeholder[2] or ""
        formats[name] = form
        return f"(?P<{name}>{_WORDS.get(name, r'[0-9]{1,9}')})"

    parts = re.split(r"(\{\w+(?::[^}]*)?\})", template)
    pattern = "".join(
        re.sub(r"\{(\w+)(?::([^}]*))?\}", group, part) if part.startswith("{") else re.escape(part)
        for part in parts
    )
    return re.compile(pattern), formats


def match(template: str, name: str) -> dict[str, Any] | None:
    """Returns the values of the placeholders if the template renders to exactly this name."""
    pattern, formats = _compiled(template)
    matched = pattern.fullmatch(name)
    if matched is None:
        return None
    values: dict[str, Any] = dict(matched.groupdict())
    for key, form in formats.items():
        if key not in _WORDS:
            values[key] = int(values[key]) + (1 if form == "-1" else 0)
    return values if render(template, values) == name else None


def render(template: str, values: Mapping[str, Any]) -> str:
    """Returns a template with its placeholders filled in."""

    def fill(placeholder: re.Match[str]) -> str:
        value, form = values[placeholder[1]], placeholder[2] or ""
        if form == "-1":
            return str(value - 1)
        return f"{value:{form}}"

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", fill, template)


def read(form: Format, foreign: Flat, context: Context) -> Flat:
    """Returns foreign weights under our names; empties `foreign` on the way to keep memory low.

    Raises:
      BadInput: an operation cannot take the shape of its array, or a name occurs twice.
    """
    flat: Flat = {}
    for name in list(foreign):
        rule_and_values = form.rule_for(name)
        assert rule_and_values is not None, name  # the caller has checked the names
        rule, values = rule_and_values
        array = foreign.pop(name)
        try:
            arrays = rule.op.read(array, context)
        except (ValueError, IndexError) as e:
            raise BadInput(f"{name} has shape {array.shape}, which does not fit: {e}.") from e
        for template, part in zip(rule.ours, arrays, strict=True):
            ours = render(template, values)
            if ours in flat:
                raise BadInput(f"{name} is a second tensor for {ours}; a file has one of each.")
            flat[ours] = part
    return flat


def write(form: Format, flat: Flat, context: Context) -> Flat:
    """Returns our weights under the names of a format.

    Raises:
      BadInput: the format has no name for a tensor.
    """
    flat, foreign, done = form.before_write(flat), {}, set()
    lacking = [name for name in flat if form.rule_of_ours(name) is None]
    if lacking:
        raise BadInput(
            f"the {form.name} format has no name for {', '.join(lacking[:6])}"
            f"{' ...' if len(lacking) > 6 else ''}; a model that has it stays a run."
        )
    for name in flat:
        rule_and_values = form.rule_of_ours(name)
        assert rule_and_values is not None, name
        rule, values = rule_and_values
        group = [render(template, values) for template in rule.ours]
        if group[0] in done:
            continue
        done.update(group)
        arrays = tuple(flat[n] for n in group)
        foreign[render(rule.foreign, values)] = np.ascontiguousarray(rule.op.write(arrays, context))
    return foreign
