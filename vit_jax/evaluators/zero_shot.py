# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Zero-shot classification: the class whose name, in some templates, is nearest to an image.

Axes: N images, M texts, D features, E embedding, Y classes. Start from `logits`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from vit_jax.data.tasks.shots import Task
from vit_jax.evaluators import retrieval
from vit_jax.sharding import Rules
from vit_jax.step.siglip import Siglip

TEMPLATE = "a photo of a {}."  # where a run has none
_AT_ONCE = 64  # texts in a batch of a device


def text_vectors(objective: Siglip, params: Any, rules: Rules, lines: Sequence[str]) -> np.ndarray:
    """Returns the unit vectors of texts, float32 [M, E], the same in every process."""
    step = jax.jit(
        lambda params, tokens: objective.text_vectors(params, tokens, rules),
        out_shardings=rules.replicated,
    )
    size, found = _AT_ONCE * rules.batch_parts, list[np.ndarray]()
    for start in range(0, len(lines), size):
        tokens_ML = np.stack([objective.texts.tokens(one) for one in lines[start : start + size]])
        padded = np.pad(tokens_ML, ((0, size - len(tokens_ML)), (0, 0)))
        found.append(np.asarray(step(params, padded))[: len(tokens_ML)])
    return np.concatenate(found)


def image_vectors(objective: Siglip, params: Any, rules: Rules, x_ND: np.ndarray) -> np.ndarray:
    """Returns the unit vectors of what the image tower gave, float32 [N, E]."""
    step = jax.jit(objective.image_vectors, out_shardings=rules.replicated)
    return np.asarray(step(params, x_ND))


def class_vectors(
    objective: Siglip, params: Any, rules: Rules, names: Sequence[str], templates: Sequence[str]
) -> np.ndarray:
    """Returns a unit vector for each class, float32 [Y, E]: the mean over its templates."""
    texts = dataclasses.replace(objective.texts, templates=tuple(templates))
    lines = [line for name in names for line in texts.of_class(name)]
    vectors = text_vectors(objective, params, rules, lines)
    means_YE = vectors.reshape(len(names), len(templates), -1).mean(axis=1)
    return means_YE / np.linalg.norm(means_YE, axis=1, keepdims=True)


def logits(
    objective: Any,
    params: Any,
    rules: Rules,
    x_ND: np.ndarray,
    names: Sequence[str],
    templates: Sequence[str] = (),
) -> np.ndarray:
    """Returns the scores of classes as the loss sees them, float32 [N, Y].

    Args:
      objective: the objective of the run, a `Siglip`.
      params: its parameters, and those of the objective.
      rules: mesh and placement.
      x_ND: what the image tower gave.
      names: names of the classes.
      templates: texts with {}; (): those of the run, else `TEMPLATE`.

    Raises:
      BadInput: vectors are not finite.
    """
    templates = templates or objective.texts.templates or (TEMPLATE,)
    images_NE = image_vectors(objective, params, rules, x_ND)
    classes_YE = class_vectors(objective, params, rules, names, templates)
    retrieval.check(images_NE, classes_YE)
    scale, bias = jax.jit(objective.scale_and_bias, out_shardings=rules.replicated)(params)
    return images_NE @ classes_YE.T * np.float32(scale) + np.float32(bias)


def evaluate(
    objective: Any, params: Any, rules: Rules, x_MD: np.ndarray, task: Task
) -> dict[str, float | int]:
    """Returns the accuracy on the test images of a task, and their number; see `logits`."""
    right_M = logits(objective, params, rules, x_MD, task.names).argmax(axis=1) == task.test_labels
    return {"zero_shot": float(right_M.mean()), "examples": len(right_M)}
