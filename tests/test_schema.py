# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The declarations of the configuration keys: complete, checked, and printed as they are."""

import pytest

from configs import base
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import schema, sections
from vit_jax.errors import BadInput

DEFAULTS = dict(config_lib.flatten(config_lib.defaults()))
NUMBERS = {  # a size is a number or a text
    k: d
    for k, d in sections.KEYS.items()
    if type(d.default) in (int, float) and d.key.allowed != "size"
}


def test_base_has_the_declared_keys_and_defaults():
    assert base.get_config().to_dict() == config_lib.defaults().to_dict()
    assert {sections.find(key) is None for key in DEFAULTS} == {False}
    assert (
        base.evaluation("val", every="1 epochs").to_dict() == base.get_config().evals.val.to_dict()
    )


def test_base_has_no_none_and_no_list():
    """None cannot be overridden from the command line; a list would not be hashable."""

    def kinds(value):
        if isinstance(value, dict | tuple):
            inside = value.values() if isinstance(value, dict) else value
            return {type(value)}.union(*map(kinds, inside))
        return {type(value)}

    assert kinds(config_lib.defaults().to_dict()) == {bool, int, float, str, tuple, dict}


def test_every_default_is_allowed_and_every_number_has_a_range():
    config_lib.check(config_lib.defaults())
    assert {type(d.key.allowed) for d in NUMBERS.values()} == {schema.Range}
    for key, declared in sections.KEYS.items():
        assert declared.key.meaning, key
        assert isinstance(declared.key.allowed, schema.Range) or not declared.key.unit, key
        if isinstance(declared.default, tuple):
            assert declared.key.allowed in schema.FORMS, key


def test_sections_with_a_name_have_one_sub_section_for_each_choice():
    for section, inside in config_lib.CHOICES.items():
        assert sorted(sections.KEYS[f"{section}.name"].choices) == sorted(inside)


def test_effects_are_those_of_the_declaration_for_any_evaluation():
    assert config_lib.changes_results("evals.imagenet_v2.split")
    assert not config_lib.changes_results("evals.imagenet_v2.every")
    assert not config_lib.changes_results("mesh.fsdp")
    assert config_lib.changes_results("seed.mesh.fsdp")  # an unknown key


@pytest.mark.parametrize(
    "low, high, options, inside, outside, text",
    [
        (0, 1, {"below": True}, (0, 0.5), (-1e-9, 1, float("nan")), "[0, 1)"),
        (0, 1, {"above": True}, (1e-9, 1), (0, 1.1, float("inf")), "(0, 1]"),
        (1, schema.MOST, {"also": (-1,)}, (1, -1, 2**31 - 1), (0, -2, 2**31), "[1, 2^31) or -1"),
        (-1e3, 1e-6, {}, (-1000, 0), (1e-5, -1001), "[-1000, 1e-6]"),
        (0, 1e30, {}, (1e30,), (1e31,), "[0, 1e30]"),
    ],
)
def test_ranges(low, high, options, inside, outside, text):
    allowed = schema.Range(low, high, **options)
    assert [n in allowed for n in (*inside, *outside)] == [True] * len(inside) + [False] * len(
        outside
    )
    assert str(allowed) == text


TEXTS = ("", "nan", "-inf", "1e400", "9" * 400, "x", "(1,)", "None")
BAD_FORMS = {
    "counts": ("(0,)", "(1.5,)", "('3',)", "(True,)", "(10001,)", "3"),
    "duration": ("", "90", "-1 steps", "nan steps", "90 epoks", "1e99 steps"),
    "durations": ("('30',)", "(30,)", "('x epochs',)", "30"),
    "length": ("0", "0 steps", "5 percent", "10", "inf epochs"),
    "mean": ("0.5", "(0.5, 0.5, 1e9)", "('a', 0.5, 0.5)", "(True, 0.5, 0.5)", "()"),
    "multipliers": ("(('head/.*',),)", "(('(', 1.0),)", "(('.*', -1.0),)", "(('.*', 1e400),)"),
    "patterns": ("(1,)", "('(',)", "('*',)", "'x'"),
    "rules": ("(('embed', 'fsdp'),)", "('embed',)", "(1,)"),
    "shots": ("()", "(-1,)", "(5, 5)", "(1.5,)", "('1',)"),
    "size": (*TEXTS, "-1", "65537", "2.5", "0x5", "224x", "axb", "-3x4", "4x3x3", "4X3"),
    "sources": (
        "(('a b', 'digits'),)",
        "('a',)",
        "(('a', 'digits'), ('a', 'digits'))",
        "(('a', 3),)",
    ),
    "std": ("(0.5, 0.5, 0.0)", "(0.5, 0.5, -1.0)", "(1e-300, 1.0, 1.0)"),
    "steps": ("5", "5:5", "0:3", "7:3", "a:b", "1:2:3"),
    "word": ("",),
}


def near_misses(choice):
    """Texts that a hand or another library makes of a choice."""
    yield from (choice[:-1], choice + "s", choice[::-1], choice.upper(), f" {choice}")


def wrong_texts(declared):
    """Values for the command line that this declaration does not allow."""
    kind = type(declared.default)
    if kind is bool:
        return ["maybe", "2", "", "None"]
    if declared.choices:
        texts = {miss for choice in declared.choices for miss in near_misses(choice)}
        return sorted(texts - set(declared.choices))
    if kind in (int, float) and declared.key.allowed not in BAD_FORMS:
        allowed = declared.key.allowed
        edges = [allowed.low - 1, allowed.high + 1, allowed.low - 1e-9, allowed.high * 2]
        edges += [allowed.low] * allowed.above + [allowed.high] * allowed.below
        return [*TEXTS, *(f"{n!r}" for n in edges if n not in allowed)]
    return BAD_FORMS.get(declared.key.allowed, ())


@pytest.mark.parametrize("key", sections.KEYS)
def test_a_wrong_value_is_refused_by_key_and_range_or_nearest_choice(key):
    """The value is read and checked as `load` does it for each key."""
    declared = sections.KEYS[key]

    def read(text):
        value = config_lib._read(key, text, declared.default, schema.expected(declared))
        schema.check([(key, declared, value)])

    for text in wrong_texts(declared):
        with pytest.raises(BadInput) as caught:
            read(text)
        message = str(caught.value)
        assert key in message, text
        assert len(message) < 1200
        if isinstance(declared.key.allowed, schema.Range):
            assert str(declared.key.allowed) in message, text
        for choice in declared.choices:
            assert choice in message, text


def test_all_wrong_values_are_told_at_once():
    wrong = ["optimizer.adamw.b1=7", "optimizer.adamw.mu_dtype=float61", "data.workers=0"]
    with pytest.raises(BadInput) as caught:
        config_lib.load("configs/base.py", [f"--config.{text}" for text in wrong])
    assert str(caught.value) == (
        "3 problems:\n"
        "- data.workers=0 cannot be used; give a whole number in [1, 4096] (default: 8).\n"
        "- optimizer.adamw.b1=7.0 cannot be used; give a number in [0, 1) (default: 0.9).\n"
        "- unknown optimizer.adamw.mu_dtype 'float61'. Did you mean 'bfloat16' or 'float32'? "
        "Known: float32, bfloat16."
    )


@pytest.mark.parametrize(
    "name, code, parts",
    [
        ("optimizer", 0, ["optimizer.clip\n", "[0, 1e30]; default 1", "optimizer.lamb.eps\n"]),
        ("schedule.lr", 0, ["schedule.lr\n    peak learning rate\n", "changes results"]),
        ("config.evals.val.every", 0, ["evals.val.every\n", "changes how often"]),
        ("", 0, ["batch_size\n", "whole number of images", "evals.NAME", "optimizer.sgd"]),
        ("optimzer", 2, ["vit_jax: unknown config key or section 'optimzer'", "'optimizer'"]),
        ("schedule.rl", 2, ["'schedule.lr'"]),
    ],
)
def test_help_config_prints_a_section_or_a_key(capsys, name, code, parts):
    assert main.main(["train", f"--help-config={name}"]) == code
    printed = capsys.readouterr()
    assert [part for part in parts if part not in (printed.err if code else printed.out)] == []
    assert not (printed.out if code else printed.err)


def test_runs_of_earlier_versions_are_read_whatever_values_they_have(tmp_path):
    (tmp_path / "config.yaml").write_text("optimizer: {adamw: {eps: -1.0}}")
    assert config_lib.of_run(str(tmp_path)).optimizer.adamw.eps == -1
    with pytest.raises(BadInput, match=r"optimizer\.adamw\.eps=-1\.0 cannot be used"):
        config_lib.load(str(tmp_path / "config.yaml"))
