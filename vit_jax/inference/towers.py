# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens image-text weights: the image tower as any model, and beside it what reads texts.

Start from `open_towers`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.build import objectives, program
from vit_jax.checkpoints import step_folders
from vit_jax.config import load as config_lib
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput
from vit_jax.evaluators import zero_shot
from vit_jax.inference import dense_run
from vit_jax.inference.model import Model, Progress
from vit_jax.models import variants
from vit_jax.step.siglip import Siglip
from vit_jax.weights import loading, text_towers

OBJECTIVE = "siglip"


@dataclasses.dataclass(frozen=True)
class Towers:
    """Two towers that are ready to be applied.

    Attributes:
      model: the image tower.
      objective: what the texts become, and how they are compared with images.
      own: its parameters, on every device.
    """

    model: Model
    objective: Siglip
    own: Any = dataclasses.field(repr=False)

    def images(self, split: Split, progress: Progress = lambda _: None) -> np.ndarray:
        """Returns the unit vectors of the images of a split, float32 [N, E]."""
        found = self.model.of_split(self.model.step(), split, progress)
        return zero_shot.image_vectors(self.objective, self.own, self.model.rules, found)

    def texts(self, lines: Sequence[str]) -> np.ndarray:
        """Returns the unit vectors of texts, float32 [M, E]."""
        return zero_shot.text_vectors(self.objective, self.own, self.model.rules, lines)

    def logits(
        self,
        split: Split,
        names: Sequence[str],
        templates: Sequence[str],
        progress: Progress = lambda _: None,
    ) -> np.ndarray:
        """Returns the scores of classes for the images of a split, float32 [N, Y]."""
        found = self.model.of_split(self.model.step(), split, progress)
        rules = self.model.rules
        return zero_shot.logits(self.objective, self.own, rules, found, names, templates)


def open_towers(text: str, model: Model, tokenizer: str) -> Towers:
    """Returns the towers of FILE_OR_RUN.

    Args:
      text: a run with this objective, or a file of SigLIP or LiT.
      model: its image tower.
      tokenizer: `bytes`, or the file of a SentencePiece model or of a vocabulary of WordPieces;
        "": that of the run.

    Raises:
      BadInput: the weights have no text tower, nothing says which tokenizer they take, or it has
        more tokens than they know.
    """
    if dense_run.learns(text, OBJECTIVE):
        run = loading.find_run(text)
        assert run is not None, text
        config = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE))
        cfg = variants.of(config.model, 0)
        objective = objectives.make(config, cfg)
        assert isinstance(objective, Siglip)
        objective = objective.in_run(objective.model(cfg), lambda _: 0)
        prefix = f"{program.PARAMETERS}/"
        flat = loading.read_weights(text).flat
        own = {p.removeprefix(prefix): x for p, x in flat.items() if p.startswith(prefix)}
    else:
        objective, own = text_towers.of_file(text)
        if not tokenizer:
            raise BadInput(
                f"{text} does not say how its texts become tokens; give --tokenizer=FILE, the "
                "SentencePiece model or the vocabulary that was published with it."
            )
    rows = len(own["text/tokens"])
    tokenizer = tokenizer or objective.tokenizer
    objective = dataclasses.replace(objective, tokenizer=tokenizer, vocabulary=rows)
    objective.texts.check()
    params = jax.device_put({program.PARAMETERS: tree.nested(own)}, model.rules.replicated)
    return Towers(model, objective, params)
