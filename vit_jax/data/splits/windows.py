# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""An order for stores that are fast only for sequential reads: it reads whole files.

Each epoch shuffles the files, then the examples within windows of `window_shards` files. Like every
order, it is a function of (seed, position); resuming costs reading one window. Each process holds
the files of the current and the next window in memory. It reads all of them, so its reads do not
depend on the number of processes. Start from `shuffle_in_windows`.
"""

import dataclasses
import functools
import threading

import numpy as np

from vit_jax.data.splits import order
from vit_jax.data.splits.split import NumpyOrder, Order, Rows, Split, first_at_least
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.hardware import host_memory


def shuffle_in_windows(split: Split, window_shards: int) -> Split:
    """Returns the same examples in an order of windows of `window_shards` files.

    Raises:
      BadInput: the examples do not lie in large files, or two windows need more than half of the
        available memory.
    """
    table = split.table
    if table.shards is None:
        raise BadInput(
            f"data.window_shards={window_shards}: the examples of this source do not lie in files "
            "one after another; expected tfds, records or tar. Set data.window_shards=0."
        )
    firsts = first_at_least(split.rows, table.shards)
    windowed = Windowed(table, split.rows, firsts, window_shards)
    if table.files is not None:
        sizes = sorted(table.files.size(n) for n in windowed.shards())
        need = sum(sizes[-2 * window_shards :])
        advice = f"two windows of data.window_shards={window_shards} files"
        host_memory.check(need, advice, "Take fewer files in a window, or smaller files.")
    return windowed


@dataclasses.dataclass(frozen=True)
class Windowed(Split):
    """A split whose order shuffles within windows of files.

    Attributes:
      firsts: int64 [S + 1], the first index in the split of each file's examples.
      window_shards: number of files in a window.
    """

    firsts: np.ndarray
    window_shards: int

    def shards(self) -> np.ndarray:
        """Returns the files that hold examples of the split."""
        return np.flatnonzero(np.diff(self.firsts))

    def take_indices(self, indices: Rows) -> Split:
        """Returns some examples; see `Split.take_indices`."""
        firsts = first_at_least(indices, self.firsts)
        return dataclasses.replace(super().take_indices(indices), firsts=firsts)

    def order(self, seed: int) -> Order:
        """Returns the order; see `Split.order`.

        The order also holds the files of a position's window, and of the next window, in memory.
        """
        windows = _Windows(self, seed)

        def at(position: Tensor) -> Tensor:
            index = tf.numpy_function(windows.at, [position], tf.int64, stateful=False)
            return tf.ensure_shape(index, [])

        return at

    def numpy_order(self, seed: int) -> NumpyOrder:
        """Raises BadInput: worker processes do not share the files that a process holds."""
        raise BadInput(
            f"data.window_shards={self.window_shards} holds files in memory, which "
            "data.reader=python does not; set --config.data.window_shards=0, or "
            "--config.data.reader=tf."
        )


class _Windows:
    """Maps positions to indices and keeps the matching files in memory."""

    def __init__(self, split: Windowed, seed: int):
        self._split, self._seed = split, seed
        # Threads may be in one window and in the one before it; each also looks up the next.
        self._layout = functools.lru_cache(3)(self._windows)
        self._indices = functools.lru_cache(3)(self._shuffled)
        self._recent: tuple[tuple[int, int], ...] = ()
        self._lock = threading.Lock()

    def at(self, position: np.ndarray) -> np.ndarray:
        with self._lock:
            return self._at(position)

    def _at(self, position: np.ndarray) -> np.ndarray:
        epoch, offset = divmod(int(position), len(self._split))
        _, ends = self._layout(epoch)
        window = int(np.searchsorted(ends, offset, side="right"))
        if (epoch, window) not in self._recent:
            self._enter(epoch, window)
        before = int(ends[window - 1]) if window else 0
        return self._indices(epoch, window)[offset - before]

    def _windows(self, epoch: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns the files of each window of an epoch, and where each window ends, [windows]."""
        shards, k = self._split.shards(), self._split.window_shards
        shuffled = shards[np.argsort(order.hash_numbers(shards, self._seed, epoch))]
        windows = [shuffled[i : i + k] for i in range(0, len(shuffled), k)]
        sizes = np.diff(self._split.firsts)
        return windows, np.cumsum([sizes[w].sum() for w in windows])

    def _shuffled(self, epoch: int, window: int) -> np.ndarray:
        """Returns the indices of a window in shuffled order."""
        firsts = self._split.firsts.tolist()
        files = self._layout(epoch)[0][window]
        indices = np.concatenate([np.arange(firsts[f], firsts[f + 1]) for f in files])
        return indices[np.argsort(order.hash_numbers(indices, self._seed, epoch, window))]

    def _enter(self, epoch: int, window: int) -> None:
        """Holds the files of this window and of the next in memory.

        A thread that is still in the previous window falls back to range reads for a dropped file.
        """
        self._recent = (*self._recent[-1:], (epoch, window))
        if self._split.table.files is None:
            return
        windows = self._layout(epoch)[0]
        after = windows[window + 1] if window + 1 < len(windows) else self._layout(epoch + 1)[0][0]
        wanted = [int(n) for n in (*windows[window], *after)]
        self._split.table.files.hold(list(dict.fromkeys(wanted)))
