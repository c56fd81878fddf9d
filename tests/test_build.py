# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a run is made of: when it is compiled, and from what."""

import dataclasses

import jax
import numpy as np
import pytest

from vit_jax import tree
from vit_jax.build import defaults, program
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.sources import registry as sources
from vit_jax.errors import BadInput
from vit_jax.step import state
from vit_jax.weights.fitting import Fitted

TINY = [
    f"--config.model.{key}={value}"
    for key, value in {"depth": 1, "width": 16, "mlp": 16, "heads": 2}.items()
]


@pytest.fixture
def config():
    return defaults.settle(config_lib.load("configs/quickstart.py", TINY))


@pytest.fixture
def seen(monkeypatch):
    """What is begun to be compiled, and that an image is asked for, in their order."""
    order = []

    def noted(owner, name, what):
        real = getattr(owner, name)

        def call(self, *args):
            order.append(what or args[0])
            return real(self, *args)

        monkeypatch.setattr(owner, name, call)

    noted(program.Program, "begin", "")
    noted(Pipeline, "probe", "image")
    return order


def with_tables(monkeypatch, **changes):
    """Has the splits of every source opened from here on tell something else."""
    real = sources.open_source

    def opened(*args, **kwargs):
        source = real(*args, **kwargs)
        splits = {
            name: dataclasses.replace(split, table=dataclasses.replace(split.table, **changes))
            for name, split in source.splits.items()
        }
        return dataclasses.replace(source, splits=splits)

    monkeypatch.setattr(sources, "open_source", opened)


def test_a_run_is_compiled_while_its_images_are_opened(config, seen):
    run = build.build(config, compile_first=["create", "step"])
    assert seen[:3] == ["create", "step", "image"]
    assert run.compiled("step") is run.compiled("step")  # of that thread, not compiled again
    assert jax.tree.all(
        jax.tree.map(
            lambda x, y: x.shape == y.shape and x.sharding == y.sharding, run.init(), run.abstract
        )
    )


def test_nothing_is_compiled_that_was_not_asked_for(config, seen):
    assert build.build(config).begun == {}
    assert set(seen) == {"image"}


def test_where_an_image_says_how_many_labels_there_are_it_is_read_first(config, seen, monkeypatch):
    with_tables(monkeypatch, most_labels=0)
    run = build.build(config, compile_first=["step"])
    assert (seen[0], seen[-1]) == ("image", "step")
    assert isinstance(run.compiled("step"), jax.stages.Compiled)


def test_a_table_that_is_wrong_about_its_labels_is_refused(config, monkeypatch):
    with_tables(monkeypatch, most_labels=3)
    with pytest.raises(BadInput, match=r"has K=1 labels, but .* says most_labels=3"):
        build.build(config)


def test_a_step_is_traced_with_the_settings_of_the_caller(config, monkeypatch):
    real, seen = program.Program.lower_step, []

    def lowered(self):
        seen.append(jax.config.jax_default_matmul_precision)
        return real(self)

    monkeypatch.setattr(program.Program, "lower_step", lowered)
    with jax.default_matmul_precision("highest"):
        build.build(config, compile_first=["step"])
    assert seen == ["highest"]


def test_a_state_is_the_same_whoever_compiles_it(config):
    here = build.build(config).init()
    there = build.build(config, compile_first=["create"]).init()
    assert isinstance(there, state.TrainState)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), here, there))


def test_parameters_that_weights_lack_start_as_those_of_a_run_without_weights(config):
    run = build.build(config)
    fresh, completed = run.init(), run.init_from(Fitted({}, []))
    for (path, expected), (_, value) in zip(
        tree.leaves_with_paths(fresh.params), tree.leaves_with_paths(completed.params), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=path)
