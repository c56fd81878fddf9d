# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a recipe file and overrides into one frozen configuration, and writes it as YAML.

Recipes, YAML files and overrides change a ConfigDict. `load` and `read` return `sections.Config`,
so no other room sees a ConfigDict.

Owns: argument strings, overrides, the comparison of two configurations (`recipes` runs the files).
Must not: know models, data or optimizers (`build` binds sections to functions).
Start from `load`.
"""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from ml_collections import ConfigDict, FieldReference

from vit_jax.config import frozen, images, plugins, recipes, schema, sections
from vit_jax.errors import BadInput, unknown
from vit_jax.storage import files as storage

_T = TypeVar("_T")
# Section -> its sub-sections of which its `name` chooses one.
CHOICES = {
    name: options
    for name, kind in schema.sections(sections.Config)
    if (options := schema.options(kind))
}

# ---------------------------------------------------------------- argument strings


def parse_args(text: str | None, **defaults: Any) -> Any:
    """Parses the part after the colon of `file.py:key=value,flag` against typed defaults.

    Args:
      text: e.g. `"epochs=300,quick"`; None or empty means all defaults. A bare name means `True`.
      **defaults: the known keys with their default values. A value is read as the type of its
        default.

    Returns:
      An object with one attribute for each key.

    Raises:
      BadInput: a key is unknown or given twice, or a value has another type.
    """
    values = dict(defaults)
    seen = set()
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        key, _, value = part.partition("=")
        if key not in defaults:
            raise unknown("recipe argument", key, defaults)
        if key in seen:
            raise BadInput(f"recipe argument {key!r} is given twice in {text!r}; give it once.")
        seen.add(key)
        values[key] = _read(f"argument {key}", value if "=" in part else "true", defaults[key])
    return ConfigDict(values)


def _read(key: str, text: str, like: Any, expected: str = "") -> Any:
    """Reads `text` from the command line as a value of the type of `like`; `expected` says more."""
    kind = type(like).__name__
    if _is_size(key.removeprefix("config.")):
        return images.plain(text)
    if isinstance(like, str):
        return text
    try:
        if isinstance(like, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if isinstance(like, int):
            return int(text)
        if isinstance(like, float):
            return float(text)
        value = ast.literal_eval(text)
        if isinstance(like, tuple) and isinstance(value, list | tuple) and _is_plain(value):
            return frozen.tuples(value)
    except (KeyError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    shown = text if len(text) < 100 else f"{text[:100]}..."
    raise BadInput(
        f"{key}={shown!r} is not of type {kind}; give {expected or f'a value of type {kind}'}."
    )


def _is_plain(value: Any) -> bool:
    """Returns True if YAML can write a value and read it back; False for dates and the like."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


# ---------------------------------------------------------------- recipes


def defaults() -> ConfigDict:
    """Returns all keys with their defaults for a recipe to change, locked."""
    config = ConfigDict(frozen.defaults(sections.Config()))
    sizes = filter(_is_size, sections.KEYS)  # a recipe may set a number or a text
    _set(config, {key: FieldReference(sections.KEYS[key].default, object) for key in sizes})
    return config.lock()


def _is_size(key: str) -> bool:
    declared = sections.find(key)
    return declared is not None and declared.key.allowed == "size"


def _set(config: ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets dotted keys. The type of a value stays, but a size may be a number or a text."""
    sizes = {k: v for k, v in values.items() if _is_size(k)}
    config.update_from_flattened_dict({k: v for k, v in values.items() if k not in sizes})
    for key, value in sizes.items():
        *parents, name = key.split(".")
        section: Any = config
        for one in parents:
            section = section[one]
        with section.ignore_type():  # of this section alone, because it visits every key
            section[name] = value


def _recipe(path: Path, args: str) -> ConfigDict:
    config = recipes.call(path, "get_config", args)
    _check_keys(path, config)
    _set(config, {key: images.plain(v) for key, v in flatten(config) if _is_size(key)})
    return config


def _check_keys(path: Path, config: ConfigDict) -> None:
    """Raises BadInput unless the result of a recipe has the keys and types of base.py."""
    if not isinstance(config, ConfigDict):
        raise BadInput(f"{path}: get_config returned {type(config).__name__}, not a ConfigDict.")
    names = config.to_dict()["evals"] if "evals" in config else ()
    base = frozen.defaults(sections.Config()) | {"evals": _evals(names)}
    want, have = dict(flatten(base)), dict(flatten(config))
    for key in have:
        if key not in want:
            raise unknown(f"config key in {path}", key, want)
    for key, like in want.items():
        if key not in have:
            raise BadInput(f"{path}: {key} is missing; start from base.get_config().")
        _check_type(path, key, have[key], like)


def _check_type(path: Path, key: str, value: Any, like: Any) -> None:
    same = type(value) is type(like) and _is_plain(value)
    if not same and not (_is_size(key) and type(value) in (int, str)):
        actual, expected = type(value).__name__, type(like).__name__
        raise BadInput(
            f"{path}: {key}={value!r} is of type {actual}, expected {expected}: {_expected(key)}."
        )


def _expected(key: str) -> str:
    declared = sections.find(key)
    return schema.expected(declared) if declared else ""


def _evals(names: Iterable[str]) -> dict[str, Any]:
    """Returns the named evaluations with their defaults; a new one uses the split of its name."""
    own = frozen.defaults(sections.Config())["evals"]
    blank = next(iter(own.values())) | {"every": "0"}
    return {name: own.get(name, blank | {"split": name}) for name in names}


def load(spec: str, overrides: Sequence[str] = ()) -> sections.Config:
    """Reads the configuration that a user gives, and checks each value against its declaration.

    The names MODULE:NAME in a recipe and in overrides are trusted, see `plugins`; those in a YAML
    file are not. The arguments are those of `read`.

    Raises:
      BadInput: the file or an override cannot be used, or values are not allowed.
    """
    config = read(spec, overrides)
    check(config)
    plugins.give(overrides)
    return config


def check(config: sections.Config) -> None:
    """Checks the values one by one.

    Raises:
      BadInput: some values are not allowed; the message lists them all.
    """
    schema.check((key, sections.find(key), value) for key, value in flatten(config))


def read(spec: str, overrides: Sequence[str] = ()) -> sections.Config:
    """Reads a recipe or saved YAML file and applies overrides.

    A finished run may have values that are not allowed any more, so only `load` checks values. Nor
    are the names MODULE:NAME of a YAML file trusted: the run may be a stranger's, see `plugins`.

    Args:
      spec: `FILE.py` or `vit_jax:NAME`, either with `:ARGS`; or `FILE.yaml` (the `config.yaml` of a
        run).
      overrides: `--config.a.b=value` arguments, in order.

    Returns:
      The configuration; sub-sections that are not chosen have their defaults.

    Raises:
      BadInput: the file or an override cannot be used.
    """
    path, args = recipes.split(spec)
    set_keys: set[str] = set()
    if path.suffix in (".yaml", ".yml"):
        if args:
            raise BadInput(f"--config={spec}: a YAML file takes no argument; leave out {args!r}.")
        config, set_keys = _from_yaml(path)
        named = [o[len("--config.") :].partition(".name=")[0] for o in overrides if ".name=" in o]
        set_keys = {k for k in set_keys if k.partition(".")[0] not in named}
    else:
        config = _recipe(path, args)
    set_keys |= _override(config, overrides)
    read = frozen.filled(sections.Config, _chosen(config.to_dict(), set_keys))
    plugins.read_from(spec, (value for _, value in flatten(read)))
    return read


def of_run(text: str) -> sections.Config | None:
    """Returns the configuration of the run that a text names; None if it names no run.

    Args:
      text: WORKDIR, `WORKDIR@best` or `WORKDIR@STEP`, on the disk or in a bucket.

    Raises:
      BadInput: the bucket is missing or closed to this account, or the file is not readable.
      StoreLost: the store does not answer.
    """
    if "://" in text and not storage.is_remote(text):
        return None
    is_folder = os.path.isdir(os.path.expanduser(text))
    name = text if is_folder else re.sub(r"@(best|\d+)$", "", text)
    file = storage.workdir(name) / "config.yaml"
    return read(str(file)) if file.exists() else None


def _override(config: ConfigDict, overrides: Sequence[str]) -> set[str]:
    known = dict(flatten(config))
    for number, text in enumerate(overrides):
        match = re.fullmatch(r"--config\.([\w.]+)=(.*)", text, re.DOTALL)
        if not match:
            raise _not_understood(text, overrides[number + 1 :], known)
        key, value = match.groups()
        if key not in known:
            raise _unknown_key(key, value, known)
        value = _read(f"config.{key}", value, known[key], _expected(key))
        _set(config, {key: value})
    return {o[len("--config.") :].partition("=")[0] for o in overrides}


def _not_understood(text: str, rest: Sequence[str], known: Mapping[str, Any]) -> BadInput:
    """Returns the error for a wrongly written argument: `--lr=1e-3` or `--config.lr 1e-3`."""
    match = re.fullmatch(r"--(?:config\.)?([A-Za-z][\w.-]*)(?:=(.*))?", text, re.DOTALL)
    key, value = (match[1].replace("-", "_"), match[2]) if match else ("", "")
    spaced = ", with = and no space" if value is None else ""
    if value is None and rest and not rest[0].startswith("--"):
        value = rest[0]
    if key in known:
        return BadInput(
            f"{text!r} is not understood; write --config.{key}={value or 'VALUE'}{spaced}."
        )
    explanation = f": {_unknown_key(key, value or '', known)} Write" if key else "; write"
    return BadInput(f"{text!r} is not understood{explanation} --config.key=value{spaced}.")


def _unknown_key(key: str, value: str, known: Mapping[str, Any]) -> BadInput:
    """Returns the error for an unknown key, or for a section given as a key."""
    from vit_jax.config import synonyms

    hint = synonyms.hint("config key", key, value)
    inside = [k for k in known if k.startswith(key + ".")]
    if inside:
        return BadInput(f"{key} is a section, not a key.{hint} Its keys: {', '.join(inside)}.")
    return unknown("config key", key, known, hint)


def _chosen(config: dict[str, Any], set_keys: set[str]) -> dict[str, Any]:
    """Leaves out the sub-sections that `name` does not choose; raises BadInput if one was set."""
    for section, options in CHOICES.items():
        chosen = config[section]["name"]
        if chosen not in options:
            from vit_jax.config import synonyms

            name = f"{section}.name"
            raise unknown(name, chosen, options, synonyms.hint(name, chosen))
        for other in options:
            prefix = f"{section}.{other}."
            clash = sorted(k for k in set_keys if k.startswith(prefix))
            if other != chosen and clash:
                raise BadInput(
                    f"{clash[0]} was set, but {section}.name is {chosen!r}; "
                    f"add --config.{section}.name={other} or leave it out."
                )
        others = set(options) - {chosen}
        config[section] = {k: v for k, v in config[section].items() if k not in others}
    return config


def flatten(
    config: sections.Config | ConfigDict | Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields all leaves as (dotted key, value); lists become tuples.

    A frozen configuration yields the values that count, see `frozen.saved`.
    """
    nested = frozen.saved(config) if isinstance(config, sections.Config) else config
    for key, value in nested.items():
        if isinstance(value, ConfigDict | dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, frozen.tuples(value)


# ---------------------------------------------------------------- YAML


def changed(section: _T, new: Mapping[str, Any]) -> _T:
    """Returns a copy of a configuration or section with new values: dotted key -> value."""
    for key, value in new.items():
        section = frozen.replaced(section, key, value)
    return section


def to_yaml(config: sections.Config) -> str:
    """Returns the configuration as YAML; every sequence stands for a tuple, as in base.py."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, tuple) else value

    nested = plain(frozen.saved(config))
    return yaml.safe_dump(nested, sort_keys=False, default_flow_style=None, width=100)


class _PlainYaml(yaml.SafeLoader):
    """A YAML loader for plain values. It refuses aliases: a few can expand to a billion values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"it has an alias, *{self.peek_event().anchor}; write it out")
        return super().compose_node(parent, index)


def _from_yaml(path: Path) -> tuple[ConfigDict, set[str]]:
    """Reads a YAML file; returns its configuration and the keys that it sets."""
    try:
        content = storage.read_all([path])[0]
    except OSError as e:
        raise BadInput(f"{path} cannot be read: {e.strerror}; correct --config.") from e
    try:
        values = yaml.load(content.decode(), _PlainYaml)
    except Exception as e:  # the reader of a tag such as !!bool may raise anything
        reason = " ".join(str(e).split())[:300]
        raise BadInput(f"{path} is not readable YAML: {reason}; correct the file.") from e
    if not isinstance(values, dict):
        raise BadInput(f"{path} holds {type(values).__name__}, expected the keys of a config.")
    from vit_jax.config import earlier

    _check_names(path, values)
    earlier.rename(values)
    evals = values.get("evals")
    config = defaults()
    if isinstance(evals, dict):  # the file names its own evaluations
        with config.unlocked():
            config.evals = ConfigDict(_evals(evals))
    known, file_values = dict(flatten(config)), dict(flatten(values))
    sections = dict(_sections(config))
    wrong = {key: value for key, value in _sections(values) if key not in sections}
    for key, value in (wrong | file_values).items():
        if key not in known:
            from vit_jax.config import synonyms

            hint = synonyms.hint("config key", key, str(value)).replace("--config.", "")
            raise unknown(f"config key in {path}", key, known, hint)
        like = known[key]
        if isinstance(like, float) and isinstance(value, int | str) and not isinstance(value, bool):
            value = _read(key, str(value), like, _expected(key))
        _check_type(path, key, value, like)
        _set(config, {key: images.plain(value) if _is_size(key) else value})
    _set(config, earlier.missing(config, set(file_values)))
    return config, set(file_values)


def _check_names(path: Path, values: dict[Any, Any]) -> None:
    for key, value in values.items():
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z]\w*", key):
            raise BadInput(f"{path}: {key!r} is not a key; keys are words, sections are nested.")
        if isinstance(value, dict):
            _check_names(path, value)


def _sections(
    values: Mapping[str, Any] | ConfigDict, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields all nested mappings as (dotted key, mapping)."""
    for key, value in values.items():
        if isinstance(value, ConfigDict | dict):
            yield prefix + key, value
            yield from _sections(value, f"{prefix}{key}.")


def fingerprint(config: sections.Config) -> str:
    """Returns a hash of all keys and values; it does not depend on how they were written."""
    text = json.dumps(sorted(flatten(config)), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- comparing

_PLACES = ("data_dir", "workers", "prefetch", "cache", "stage", "stage_budget")
_OF_A_HOST = ("checkpoint.local.path", *(f"data.{key}" for key in _PLACES))


def common(config: sections.Config) -> dict[str, str]:
    """Returns the keys that must agree in all processes of a run, with their values as text."""
    return {k: repr(v) for k, v in flatten(config) if k not in _OF_A_HOST}


def changes_results(key: str) -> bool:
    """Returns True if a dotted key changes results; so does a key that is unknown here."""
    declared = sections.find(key)
    return declared is None or declared.key.effect == "results"


def differences(
    saved: sections.Config | Mapping[str, Any], new: sections.Config
) -> list[tuple[str, Any, Any]]:
    """Returns (key, saved value, given value) for each difference; `"(none)"` for a missing key."""
    a, b = dict(flatten(saved)), dict(flatten(new))
    keys = list(a) + [k for k in b if k not in a]
    return [
        (k, a.get(k, "(none)"), b.get(k, "(none)"))
        for k in keys
        if a.get(k, _NONE) != b.get(k, _NONE)
    ]


_NONE = object()
