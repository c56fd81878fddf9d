# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes and reads the arrays of a step: the only module that imports orbax.

The arrays are a tree in the folder `state` of a step. Both interfaces of orbax read this format, so
a change to `orbax.checkpoint.v1`, whose names its authors still change, touches this file alone.
Start from `Writer`, `restore` and `shapes`.
"""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

_TREE = "state"
# orbax logs normal events, and errors that it raises anyway.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)


def _step(folder: Path) -> Any:
    return epath.Path(str(folder))  # orbax needs all methods of epath


class Writer:
    """Writes one step after another, in the background.

    Args:
      seal: is called on process 0 when all processes have written a step, before it is committed.
    """

    def __init__(self, seal: Callable[[], None]):
        # Folders are created before `save` returns: if that fails, no thread waits for them.
        at_once = ocp.options.AsyncOptions(create_directories_asynchronously=False)
        self._checkpointer = ocp.AsyncCheckpointer(
            ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(async_options=at_once)
            ),
            async_options=dataclasses.replace(at_once, post_finalization_callback=seal),
            # The file of this store would change after the checksums are written.
            checkpoint_metadata_store=ocp.metadata.metadata_store(enable_write=False),
        )

    def temporary_name(self, folder: Path) -> str:
        """Returns the name that the folder of a step has until it is committed."""
        return self._checkpointer.get_temporary_path(_step(folder)).get().name

    def save(self, folder: Path, state: Any) -> None:
        """Starts to write a tree of arrays; returns once the arrays may be overwritten."""
        args = ocp.args.Composite(**{_TREE: ocp.args.StandardSave(state)})  # type: ignore[call-arg]
        self._checkpointer.save(_step(folder), args=args)

    def wait(self) -> None:
        """Waits until the step is committed; raises the error of a write that failed."""
        self._checkpointer.wait_until_finished()

    def close(self) -> None:
        """Releases threads; a write under way is finished first."""
        self._checkpointer.close()


def restore(folder: Path, abstract: Any) -> Any:
    """Returns the tree of a step, placed according to a tree of shapes, dtypes and shardings.

    All processes of a run call it together.
    """
    wanted = ocp.args.Composite(**{_TREE: ocp.args.StandardRestore(abstract)})  # type: ignore[call-arg]
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
        return reader.restore(_step(folder), args=wanted)[_TREE]


def shapes(folder: Path) -> Any:
    """Returns the tree of a step as nested dicts of shapes; None if it holds no arrays."""
    with ocp.PyTreeCheckpointer() as reader:
        metadata = reader.metadata(_step(folder) / _TREE).item_metadata
    return None if metadata is None else metadata.tree


def read(folder: Path, name: str, shapes_below: Any) -> Any:
    """Returns the part `name` of the tree as numpy arrays; reads nothing else.

    Args:
      folder: the folder of a step.
      name: a key of the tree.
      shapes_below: the subtree of `shapes` at that key.
    """
    wanted = {name: jax.tree.map(lambda _: 0, shapes_below)}
    how = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
    asked: Any = {"item": wanted, "restore_args": how, "partial_restore": True}
    own = jax.process_index()  # it reads alone and waits for no other process
    alone = ocp.options.MultiprocessingOptions(
        primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process {own}"
    )
    handler = ocp.PyTreeCheckpointHandler()
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as reader:
        return reader.restore(_step(folder) / _TREE, args=ocp.args.PyTreeRestore(**asked))[name]
