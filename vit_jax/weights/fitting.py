# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fits weights into a model: new heads, another grid or channels, and a table of tensors' fates.

Nothing else is adapted: a tensor that is missing, left over or of another shape is an error. Start
from `fit`.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import partial, posemb
from vit_jax.weights.architecture import PIXEL_KERNELS
from vit_jax.weights.formats.name_table import Flat

Grid = tuple[int, int]  # rows and columns of patches


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Weights for a model, and the fate of each tensor.

    Attributes:
      params: nested dict in the model's layout, with only the tensors that were taken.
      fate: (loop-layout name, `loaded` | `resized` | `adapted` | `re-initialised` | `unused`,
        detail).
    """

    params: dict[str, Any]
    fate: list[tuple[str, str, str]]


def fit(
    flat: Flat,
    target: Any,
    *,
    old: Grid | None,
    new: Grid,
    how: posemb.Resize = "aligned",
    resizes_kernel: bool = False,
    stride: int = 0,
    fresh_head: bool = True,
) -> Fitted:
    """Fits weights into a model; empties `flat` on the way to keep memory low.

    Args:
      flat: weights under loop-layout names.
      target: parameter tree (arrays or shapes) of the model, in either layout.
      old: grid of patches that the weights were made for; None if unknown.
      new: grid of the model.
      how: how position embeddings are resized; see `posemb.resize`.
      resizes_kernel: whether a kernel on pixels of another size is resized.
      stride: pixels per patch of the model, for messages; 0 if unknown.
      fresh_head: whether heads start anew, with the model's own initial values (zeros). What only
        an objective such as masked patch prediction uses then starts anew too; a model without it
        drops it.

    Raises:
      BadInput: any tensor is missing, left over or of another shape; the message lists up to 12.
    """
    shapes = _shapes(target)
    resizing: dict[str, Any] = {"old": old, "new": new, "resizes_kernel": resizes_kernel}
    fate = plan_fit(flat, target, **resizing, stride=stride, fresh_head=fresh_head)
    for name in [n for n, action, _ in fate if action == "re-initialised"]:
        flat.pop(name, None)
    for name, action, _ in fate:
        if action == "unused":
            del flat[name]
        elif action == "resized":
            flat[name] = _resized(name, flat[name], shapes, old, new, how)
        elif action == "adapted":
            flat[name] = other_channels(flat[name], shapes[name][2])
    return Fitted(_nest(flat, target), fate)


def plan_fit(
    flat: Flat,
    target: Any,
    *,
    old: Grid | None,
    new: Grid,
    how: posemb.Resize = "aligned",
    resizes_kernel: bool = False,
    stride: int = 0,
    fresh_head: bool = True,
) -> list[tuple[str, str, str]]:
    """Returns what `fit` would do with each tensor, by shapes alone: `Fitted.fate`.

    Arguments and errors are those of `fit`; nothing is changed.
    """
    fate, wrong = _fates(flat, _shapes(target), old, new, resizes_kernel, fresh_head)
    if wrong:
        more = f"\n  ... and {len(wrong) - 12} more" if len(wrong) > 12 else ""
        size = f", {old[0] * stride} x {old[1] * stride} pixels" if old and stride else ""
        hint = "" if old == new else _hint(wrong, size)
        raise BadInput("the weights do not fit the model:\n" + "\n".join(wrong[:12]) + more + hint)
    return fate


def with_inherited(fitted: Fitted, own: Flat, shapes: Mapping[str, tuple[int, ...]]) -> Fitted:
    """Returns fitted weights with what pre-training goes on with: heads and the like.

    Args:
      fitted: from `fit`; changed.
      own: name -> array, of the weights.
      shapes: name -> shape, of what the run needs; {} returns `fitted`.

    Raises:
      BadInput: the weights lack one of them, or it has another shape.
    """
    wrong = [
        f"  {name} {shape}: the weights have {own[name].shape if name in own else 'none'}"
        for name, shape in shapes.items()
        if name not in own or own[name].shape != shape
    ]
    if wrong:
        raise BadInput(
            "the weights lack heads of this objective:\n" + "\n".join(wrong[:12]) + "\nGive the "
            "sizes of the run that made them, or let the heads start anew (keep_heads=False)."
        )
    for name in shapes:
        *parents, last = name.split("/")
        node = fitted.params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = own[name]
    fate = [row for row in fitted.fate if row[0] not in shapes]
    return Fitted(fitted.params, fate + [(n, "loaded", f"{s}") for n, s in shapes.items()])


def _shapes(target: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a parameter tree under loop-layout names."""
    return {
        name.replace(f"{tree.STACKED}/", "block_", 1): leaf.shape[tree.is_stacked(path) :]
        for path, leaf in tree.leaves_with_paths(target)
        for name in tree.layer_paths(path, leaf.shape)
    }


def _fates(
    flat: Flat,
    shapes: Mapping[str, tuple[int, ...]],
    old: Grid | None,
    new: Grid,
    resizes_kernel: bool,
    fresh_head: bool,
) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Returns the fate of each tensor, and the list of misfits."""
    fate, wrong = [], []
    on_pixels = next((name for name in PIXEL_KERNELS if name in shapes), "")

    def fresh(name: str) -> bool:
        return fresh_head and partial.starts_anew(name)

    for name, shape in shapes.items():
        have = flat[name].shape if name in flat else None
        if fresh(name):
            classes = f": {have[-1] if have else 'no'} -> {shape[-1]} classes"
            detail = f"{shape}{classes if 'head/' in name else ''}"
            fate.append((name, "re-initialised", detail))
        elif have is None:
            wrong.append(f"  missing      {name} {shape}")
        elif have == shape and (not name.endswith(_OF_ONE_GRID) or old in (None, new)):
            fate.append((name, "loaded", f"{shape}"))
        elif _on_grid(name) and _resizable(name, have, shape, old, shapes):
            assert old is not None
            grids = f"grid {old[0]} x {old[1]} -> {new[0]} x {new[1]}"
            fate.append((name, "resized", f"{have} -> {shape}: {grids}"))
        elif name == _KERNEL and resizes_kernel and have[2:] == shape[2:]:
            fate.append((name, "resized", f"{have} -> {shape}: patches"))
        elif name == on_pixels and _is_rgb(have, shape):
            fate.append((name, "adapted", f"{have} -> {shape}: RGB -> {shape[2]} channels"))
        else:
            wrong.append(f"  wrong shape  {name}: {have}, the model has {shape}")
            if have == shape and old is not None:
                wrong[-1] += f" for {new[0]} x {new[1]} patches, not {old[0]} x {old[1]}"
            if name == on_pixels and len(have) == 4 and have[2] not in (3, shape[2]):
                wrong[-1] += (
                    f"; only weights for RGB fit other channels, these are for {have[2]} "
                    "(--config.data.channels)"
                )
    for name in sorted(set(flat) - set(shapes)):
        if name.startswith("pre_logits/") or partial.OF_OBJECTIVE.fullmatch(name) or fresh(name):
            fate.append((name, "unused", f"{flat[name].shape}"))
        else:
            wrong.append(f"  unexpected   {name} {flat[name].shape}")
    return fate, wrong


_KERNEL = "embedding/kernel"  # on pixels
_OF_ONE_GRID = ("posemb", "relative_bias")  # the same shape may be for another grid
_ON_GRID = re.compile(r"(block_\d+/)?posemb(_[xy])?")


def _on_grid(name: str) -> bool:
    """Returns True if a tensor has a row for each patch, or for each row or column of patches."""
    return _ON_GRID.fullmatch(name) is not None


def _resizable(
    name: str,
    have: tuple[int, ...],
    want: tuple[int, ...],
    old: Grid | None,
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    if old is None or len(have) != len(want) or have[::2] != want[::2]:
        return False
    if name.endswith(("_x", "_y")):
        return True
    return have[1] - _class_rows(shapes) == old[0] * old[1]


def _is_rgb(have: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Returns True if kernels on pixels differ only in the channels, and the first is for RGB."""
    return len(want) == 4 and have == (*want[:2], 3, want[3])


def other_channels(kernel_hwID: np.ndarray, channels: int) -> np.ndarray:
    """Returns the kernel on RGB pixels for other channels, [h, w, C, D], as timm does it.

    One channel takes the sum over RGB, so a gray image gives what it gave as RGB. More channels
    take the filters of red, green and blue in turn, times 3 / C, so equal channels give that too
    if C is a multiple of 3.
    """
    if channels == 1:
        return kernel_hwID.sum(axis=2, keepdims=True)
    return kernel_hwID[:, :, np.arange(channels) % 3] * np.float32(3 / channels)


def _resized(
    name: str,
    array: np.ndarray,
    shapes: Mapping[str, tuple[int, ...]],
    old: Grid | None,
    new: Grid,
    how: posemb.Resize,
) -> np.ndarray:
    if name == _KERNEL:
        from vit_jax.models import flexi

        return np.array(flexi.resize_kernel(array, shapes[name][:2]))
    if name.endswith(("_x", "_y")):
        return posemb.resize_axis(array, shapes[name][1])
    assert old is not None
    return posemb.resize(array, new, old, class_rows=_class_rows(shapes), how=how)


def _class_rows(shapes: Mapping[str, Any]) -> int:
    return ("cls" in shapes) + ("dist" in shapes)


def _hint(wrong: list[str], size: str) -> str:
    """Returns what to do about misfits; `size` is ", ROWS x COLUMNS pixels" of the weights."""
    shapes = [row for row in wrong if row.startswith("  wrong shape")]
    if any("/token_mlp/" in row for row in shapes):
        return (
            f"\nA Mixer fits one image size: keep that of the weights{size} "
            "(--config.data.image_size)."
        )
    if any("/relative" in row for row in shapes):
        return (
            "\nRelative position embeddings are not resized: keep the image size of the "
            f"weights{size} (--config.data.image_size)."
        )
    if wrong and all(row.startswith("  wrong shape  posemb:") for row in wrong):
        return (
            "\nNo file says for which image size these position embeddings are: in Python, "
            "vit_jax.load takes image_size=(rows, columns); a config.json beside safetensors says "
            "it."
        )
    return ""


def _nest(flat: Flat, target: Any) -> dict[str, Any]:
    """Builds the nested tree in the layout of `target`, moving leaf by leaf out of `flat`."""
    leaves: dict[str, Any] = {}
    for path, leaf in tree.leaves_with_paths(target):
        names = [
            name.replace(f"{tree.STACKED}/", "block_", 1)
            for name in tree.layer_paths(path, leaf.shape)
        ]
        if names[0] not in flat:
            continue
        arrays = [flat.pop(name) for name in names]
        leaves[path] = np.stack(arrays) if tree.is_stacked(path) else arrays[0]
    return tree.nested(leaves)
