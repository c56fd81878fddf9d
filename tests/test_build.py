# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The parts of a run: when its step is compiled, and from what."""

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
    """Notes each compilation that begins and each image that is asked for, in their order."""
    order = []

    def noted(owner, name, what):
        real = getattr(owner, name)

        def call(self, *args):
            order.append(what or args[0])
            return real(self, *args)

        monkeypatch.setattr(owner, name, call)

    noted(program.Program, "start_compiling", "")
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


@pytest.mark.integration
def test_a_run_is_compiled_while_its_images_are_opened(config, seen, monkeypatch):
    """With the settings of the caller, and its state is the one that is compiled later."""
    real, precisions = program.Program.lower_step, []

    def lowered(self):
        precisions.append(jax.config.jax_default_matmul_precision)
        return real(self)

    monkeypatch.setattr(program.Program, "lower_step", lowered)
    with jax.default_matmul_precision("highest"):
        computation = build.build(config, compile_first=["create", "step"]).program
    assert precisions == ["highest"]
    assert seen[:3] == ["create", "step", "image"]
    assert computation.compiled("step") is computation.compiled("step")  # not twice
    assert jax.tree.all(
        jax.tree.map(
            lambda x, y: x.shape == y.shape and x.sharding == y.sharding,
            computation.init(),
            computation.abstract,
        )
    )
    later = build.build(config).program.init()
    assert isinstance(later, state.TrainState)
    assert jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), computation.init(), later))


def test_nothing_is_compiled_that_was_not_asked_for(config, seen):
    assert build.build(config).program.compiling == {}
    assert set(seen) == {"image"}


@pytest.mark.integration
def test_where_an_image_says_how_many_labels_there_are_it_is_read_first(config, seen, monkeypatch):
    with_tables(monkeypatch, most_labels=0)
    run = build.build(config, compile_first=["step"])
    assert (seen[0], seen[-1]) == ("image", "step")
    assert isinstance(run.program.compiled("step"), jax.stages.Compiled)


def test_a_table_that_is_wrong_about_its_labels_is_refused(config, monkeypatch):
    with_tables(monkeypatch, most_labels=3)
    with pytest.raises(BadInput, match=r"has K=1 labels, but .* says most_labels=3"):
        build.build(config)


@pytest.mark.integration
def test_parameters_that_weights_lack_start_as_those_of_a_run_without_weights(config):
    run = build.build(config)
    fresh, completed = run.program.init(), run.program.init_from(Fitted({}, []))
    for (path, expected), (_, value) in zip(
        tree.leaves_with_paths(fresh.params), tree.leaves_with_paths(completed.params), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=path)
