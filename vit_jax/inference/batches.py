# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs a split through a model's own preprocessing, which may be Pillow's.

This is slower than a pipeline. It is for weights from elsewhere; runs have chains and use
`pipeline`. Start from `batches`.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vit_jax.data.pipeline.pipeline import NumpyBatch
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import plain, tf
from vit_jax.errors import BadInput
from vit_jax.weights.preprocessing import Reader


def batches(split: Split, reader: Reader, batch_size: int, workers: int) -> Iterator[NumpyBatch]:
    """Yields every example once, in order; fills the last batch with rows whose mask is False.

    Args:
      split: the examples.
      reader: function from image to float32 [1, H, W, 3].
      batch_size: number of rows, B.
      workers: number of threads.

    Yields:
      `image` float32 [B, H, W, 3], normalised, and `mask` bool [B].

    Raises:
      BadInput: an image cannot be read; the message names it.
    """
    read = split.reader()

    def image(index: int) -> np.ndarray:
        try:
            return reader(read(tf.constant(index, tf.int64))[0].numpy())[0]
        except BadInput as e:
            raise BadInput(f"{split.name(index)}: {e}") from e
        except tf.errors.OpError as e:
            raise BadInput(f"{split.name(index)} cannot be read: {plain(e)}.") from e

    with ThreadPoolExecutor(workers) as threads:
        for start in range(0, len(split), batch_size):
            rows = list(threads.map(image, range(start, min(start + batch_size, len(split)))))
            padding = [np.zeros_like(rows[0])] * (batch_size - len(rows))
            mask = np.arange(batch_size) < len(rows)
            yield {"image": np.stack(rows + padding), "mask": mask}
