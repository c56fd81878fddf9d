# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The base of a run that trains a part of a model: the weights that its other parameters are in.

Each checkpoint of such a run names its base and the SHA-256 of that, in `base.json`. A base that
has changed is not used. Start from `reference` and `completed`.
"""

import dataclasses
import functools
import json
import os
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_jax import tree
from vit_jax.checkpoints import step_folders
from vit_jax.config import images as images_lib
from vit_jax.config import sections, trainable
from vit_jax.errors import BadInput
from vit_jax.models import partial, variants
from vit_jax.storage import checksums
from vit_jax.storage import files as storage
from vit_jax.weights import download, hub

if TYPE_CHECKING:
    from vit_jax.weights.loading import Run


@dataclasses.dataclass(frozen=True)
class Base:
    """The weights that a run began with.

    Attributes:
      weights: FILE_OR_RUN; a path is whole, and a run has its step.
      sha256: of the file; for a run, of the file with the checksums of that step.
    """

    weights: str
    sha256: str

    def as_json(self) -> str:
        """Returns the content of `base.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def reference(text: str) -> Base:
    """Returns the base that FILE_OR_RUN names.

    Raises:
      BadInput: it does not exist, or is a step of an earlier version, without checksums.
    """
    place = whole(text)
    return Base(place, _digest(place))


def whole(text: str) -> str:
    """Returns FILE_OR_RUN with its whole path, the step of a run, and the commit of the hub.

    Raises:
      BadInput: the run has no such step, or the hub no such name.
    """
    from vit_jax.weights import loading

    if not loading.may_be_run(text):
        path = Path(os.path.expanduser(text))
        if path.exists():
            return str(path.absolute())
        commit = download.revision(text)
        return f"{text.partition('@')[0]}@{commit}" if commit else text
    run = loading.find_run(text)
    assert run is not None, text
    return run.spelled


def _digest(text: str) -> str:
    """Returns the SHA-256 of a file, or of the checksums of a step; raises BadInput without it."""
    from vit_jax.weights import loading

    path = None
    if loading.may_be_run(text):
        run = loading.find_run(text)
        assert run is not None, text
        path = run.workdir / step_folders.FOLDER / str(run.step) / checksums.FILE
    else:
        path = download.local(text)
    try:
        status = path.stat()
        return _digest_of(path, status.st_mtime_ns, status.st_size)
    except OSError as e:
        raise BadInput(f"{text}: {path} cannot be read: {e.strerror}.") from e


@functools.cache  # a start asks for it more than once, and weights may have gigabytes
def _digest_of(path: Path, changed: int, size: int) -> str:
    del changed, size
    return checksums.digest(path)


def read(step_folder: Path) -> Base | None:
    """Returns the base that a checkpoint names; None if it holds every parameter itself.

    Raises:
      BadInput: the file is damaged.
    """
    path = step_folder / step_folders.BASE_FILE
    if not path.exists():
        return None
    try:
        return Base(**json.loads(storage.read_all([path])[0]))
    except (OSError, ValueError, TypeError) as e:
        raise BadInput(f"{path} is damaged ({e}); give another step of the run.") from e


def of_run(workdir: Path) -> Base | None:
    """Returns the base of the newest checkpoint of a run that names one; None without any."""
    steps = reversed(step_folders.saved(workdir))
    bases = (read(workdir / step_folders.FOLDER / str(step)) for step in steps)
    return next((base for base in bases if base is not None), None)


def found(base: Base, workdir: Path) -> Base:
    """Returns the weights that a run began with, with the SHA-256 that they had, where they are.

    They are looked for where they were, and then under their name in the folder of the run.

    Raises:
      BadInput: neither place has them.
    """
    name, problems = _name(base.weights), []
    for place in (base.weights, str(workdir.absolute() / name)):
        try:
            if _digest(place) == base.sha256:
                return dataclasses.replace(base, weights=place)
            problems.append(f"{place} has changed")
        except BadInput as e:
            problems.append(str(e) if place == base.weights else f"{place} does not exist")
    beside = " with its config.json" if base.weights.startswith(hub.SCHEME) else ""
    raise BadInput(
        f"{workdir} trained a part of a model and needs the weights that it began with, with "
        f"SHA-256 {base.sha256}: {'; '.join(problems)} Put them back, or into {workdir} under the "
        f"name {name}{beside}."
    )


def _name(weights: str) -> str:
    """Returns the name of the file or run in FILE_OR_RUN."""
    if weights.startswith(hub.SCHEME):
        return hub.FILE
    return Path(urllib.parse.urlsplit(weights).path if "://" in weights else weights).name


def completed(
    run: "Run", saved: sections.Config, params: dict[str, Any], *, shapes_only: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns every parameter of a run, and `Weights.trained`.

    A run that trained a part of the model saved that part alone. Low-rank matrices are merged.
    """
    from vit_jax.weights import loading

    what = trainable.parse(saved.trainable)
    if what is None:
        return params, {}
    origin = read(run.workdir / step_folders.FOLDER / str(run.step))
    if origin is None:
        raise BadInput(
            f"{run.workdir} lacks {step_folders.BASE_FILE} in step {run.step}; give another step."
        )
    place = found(origin, run.workdir).weights
    cfg = variants.of(saved.model, params["head"]["kernel"].shape[-1] if "head" in params else 0)
    below = loading.read_weights(place, heads=saved.model.heads, shapes_only=shapes_only, own=cfg)
    shown = images_lib.of(saved.data)
    fitted = loading.fit(below, cfg, shown.size, fresh_head=True, channels=shown.channels)
    facts = {
        "trainable": saved.trainable,
        "trained": tree.size(params),
        "base": place,
        "base_sha256": origin.sha256,
    }
    whole = partial.restored(fitted.params, params)
    return (partial.merged(whole, what.scale) if what.rank else whole), facts
