# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published weights: their names in ours, and fitting weights of one model into another.

A format is one table of renames. Names on our side are those of the loop layout
(`block_3/attn/query/kernel`). Start from `read_npz` and `fit`.
"""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models.vit import SIZES

Flat = dict[str, np.ndarray]

# The original npz files (google-research/vision_transformer). Pre-Linen files number the parts of
# a block through (LayerNorm_2, MlpBlock_3), Linen trees number each class by itself.
ORIGINAL_NPZ: tuple[tuple[str, str], ...] = (
    (r"cls", r"cls"),
    (r"embedding/(kernel|bias)", r"embedding/\1"),
    (r"Transformer/posembed_input/pos_embedding", r"posemb"),
    (r"Transformer/encoder_norm/(scale|bias)", r"norm/\1"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_0/(scale|bias)", r"block_\1/attn_norm/\2"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_[12]/(scale|bias)", r"block_\1/mlp_norm/\2"),
    (
        r"Transformer/encoderblock_(\d+)/MultiHeadDotProductAttention_[01]/"
        r"(query|key|value|out)/(kernel|bias)",
        r"block_\1/attn/\2/\3",
    ),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_[03]/Dense_0/(kernel|bias)", r"block_\1/mlp/up/\2"),
    (
        r"Transformer/encoderblock_(\d+)/MlpBlock_[03]/Dense_1/(kernel|bias)",
        r"block_\1/mlp/down/\2",
    ),
    (r"pre_logits/(kernel|bias)", r"pre_logits/\1"),
    (r"head/(kernel|bias)", r"head/\1"),
)


def read_npz(path: Path) -> Flat:
    """The weights of an original npz file, under our names.

    Raises:
      BadInput: not an npz file, or a tensor that the table does not know (named).
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            given = {name: np.asarray(file[name]) for name in file.files}
    except Exception as e:  # whatever zipfile, zlib and numpy raise on a damaged file
        raise BadInput(f"{path} is not a readable npz file: {type(e).__name__}: {e}") from e
    strange = [name for name, value in given.items() if value.dtype.kind not in "fV"]
    if strange:
        raise BadInput(f"{path}: {', '.join(strange[:6])} are not arrays of floats.")
    flat, unread = {}, []
    for name, value in given.items():
        ours = next((re.sub(p, r, name) for p, r in ORIGINAL_NPZ if re.fullmatch(p, name)), None)
        if ours is None:
            unread.append(name)
        else:
            flat[ours] = value
    if unread or "embedding/kernel" not in flat:
        raise BadInput(
            f"{path} does not have the names of an original ViT file; not understood: "
            f"{', '.join(unread[:6]) or 'no embedding/kernel'}{' ...' if len(unread) > 6 else ''}."
        )
    return flat


def architecture(flat: Flat) -> dict[str, Any]:
    """The sizes of a ViT from its weights: arguments of `vit.config`, and `image_size`.

    Raises:
      BadInput: weights that the sizes are read from are missing.
    """
    needed = ("embedding/kernel", "posemb", "block_0/attn/query/kernel", "block_0/mlp/up/kernel")
    missing = [name for name in needed if name not in flat]
    if missing:
        raise BadInput(f"the weights are not those of a ViT: {', '.join(missing)} missing.")
    patch, _, _, width = flat["embedding/kernel"].shape
    _, heads, _ = flat["block_0/attn/query/kernel"].shape
    mlp = flat["block_0/mlp/up/kernel"].shape[1]
    depth = sum(re.fullmatch(r"block_\d+/attn_norm/scale", name) is not None for name in flat)
    pool = "token" if "cls" in flat else "gap"
    grid = round((flat["posemb"].shape[1] - (pool == "token")) ** 0.5)
    sizes = (width, depth, mlp, heads)
    named = next((name for name, size in SIZES.items() if size == sizes), None)
    free = {} if named else dict(zip(("width", "depth", "mlp", "heads"), sizes, strict=True))
    return {
        "variant": f"{named or 'Ti'}/{patch}", "width": 0, "depth": 0, "mlp": 0, "heads": 0, **free,
        "pool": pool, "image_size": grid * patch,
    }  # fmt: skip


def flatten(params: dict[str, Any]) -> Flat:
    """A parameter tree of either layout as loop-layout names."""
    looped = tree.unstack_blocks(params)
    return {path: np.asarray(leaf) for path, leaf in tree.leaves_with_paths(looped)}


def resize_posemb(posemb_1LD: np.ndarray, tokens: int, *, class_rows: int) -> np.ndarray:
    """Position embeddings for another grid: align-corners bilinear in two dimensions.

    Args:
      posemb_1LD: float [1, L, D], class rows first, then a square grid row by row.
      tokens: L of the result; its grid is square too.
      class_rows: 1 with a class token, else 0; kept as they are.

    Returns:
      float32 [1, tokens, D].

    Raises:
      BadInput: a grid that is not square.
    """
    kept, grid = posemb_1LD[0, :class_rows], posemb_1LD[0, class_rows:]
    old, new = round(len(grid) ** 0.5), round((tokens - class_rows) ** 0.5)
    if old * old != len(grid) or new * new != tokens - class_rows:
        raise BadInput(
            f"position embeddings of {len(grid)} to {tokens - class_rows} patches: not square."
        )
    where = np.linspace(0.0, old - 1.0, new) if new > 1 else np.array([(old - 1) / 2])
    low = np.clip(np.floor(where).astype(int), 0, max(old - 2, 0))
    weights_no = np.zeros((new, old))
    weights_no[np.arange(new), low] += 1.0 - (where - low)
    weights_no[np.arange(new), np.minimum(low + 1, old - 1)] += where - low
    grid = grid.reshape(old, old, -1)
    grid = np.einsum("xo,yp,opd->xyd", weights_no, weights_no, grid, optimize=True)
    return np.concatenate([kept, grid.reshape(new * new, -1)])[None].astype(np.float32)


def _resizable(flat: Flat, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether the position embeddings differ in the grid only."""
    given, wanted = flat["posemb"].shape, shapes["posemb"]
    rows = int("cls" in shapes)
    square = all(math.isqrt(n - rows) ** 2 == n - rows for n in (given[1], wanted[1]))
    return ("cls" in flat) == ("cls" in shapes) and given[2:] == wanted[2:] and square


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Weights for a model, and what happened to each tensor.

    Attributes:
      params: nested dict in the model's layout; only the tensors that were taken.
      fate: (our name, `loaded` | `resized` | `re-initialised` | `unused`, detail).
    """

    params: dict[str, Any]
    fate: list[tuple[str, str, str]]


def fit(flat: Flat, target: dict[str, Any]) -> Fitted:
    """Fits weights into a model: the head starts anew, position embeddings follow the grid.

    Args:
      flat: weights under loop-layout names.
      target: parameter tree (arrays or shapes) of the model, either layout.

    Raises:
      BadInput: any other tensor that is missing, left over or of another shape; all are listed.
    """
    shapes = {
        name.replace(f"{tree.STACKED}/", "block_", 1): leaf.shape[tree.is_stacked(path) :]
        for path, leaf in tree.leaves_with_paths(target)
        for name in tree.layer_paths(path, leaf.shape)
    }
    taken, fate, wrong = {}, [], []
    for name, shape in shapes.items():
        if name.startswith("head/"):
            fate.append((name, "re-initialised", f"{shape}"))
        elif name not in flat:
            wrong.append(f"  missing      {name} {shape}")
        elif name == "posemb" and flat[name].shape != shape and _resizable(flat, shapes):
            taken[name] = resize_posemb(flat[name], shape[1], class_rows=int("cls" in shapes))
            fate.append((name, "resized", f"{flat[name].shape} -> {shape}"))
        elif flat[name].shape != shape:
            wrong.append(f"  wrong shape  {name}: {flat[name].shape}, the model has {shape}")
        else:
            taken[name] = flat[name]
            fate.append((name, "loaded", f"{shape}"))
    for name in sorted(set(flat) - set(shapes)):
        if name.startswith(("head/", "pre_logits/")):
            fate.append((name, "unused", f"{flat[name].shape}"))
        else:
            wrong.append(f"  unexpected   {name} {flat[name].shape}")
    if wrong:
        more = f"\n  ... and {len(wrong) - 12} more" if len(wrong) > 12 else ""
        raise BadInput("the weights do not fit the model:\n" + "\n".join(wrong[:12]) + more)
    nested: dict[str, Any] = {}
    for name, value in taken.items():
        *parents, last = name.split("/")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return Fitted(tree.stack_blocks(nested) if tree.STACKED in target else nested, fate)
