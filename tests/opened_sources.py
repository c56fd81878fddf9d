# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sources as tests open them: what they hold, and what a wrong one is told."""

import pytest

from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def opened(spec, val=0, test=0, **options):
    options = Options(**options)
    return sources.open_source(str(spec), options, val_percent=val, test_percent=test)


def names(source):
    """Split -> names of its examples, in order."""
    return {k: [s.name(i) for i in range(len(s))] for k, s in source.splits.items()}


def examples(split):
    """(image, labels) of each example; encoded images as bytes."""
    read = tf.function(split.reader())
    found = [read(tf.constant(i, tf.int64)) for i in range(len(split))]
    return [(image.numpy(), label.numpy().tolist()) for image, label in found]


def labels(split):
    return [label for _, label in examples(split)]


def message(spec, val=0, test=0, **options):
    with pytest.raises(BadInput) as caught:
        opened(spec, val, test, **options)
    said = str(caught.value)
    assert "\n" not in said
    return said
