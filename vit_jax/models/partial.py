# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The part of the parameters that is trained, apart from the rest.

A run with `trainable` has two trees: what it trains, and the base, which stays as it was. `lora`
adds two matrices beside a kernel [*in, *out], `lora_a` [*in, r] and `lora_b` [r, *out];
`adapters` adds four arrays to a module, under `adapter`. `added` has the layers that use them.
Start from `select`.
"""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import tree
from vit_jax.config.trainable import Trainable
from vit_jax.errors import BadInput
from vit_jax.sharding import Axes

PyTree = Any

OF_OBJECTIVE = re.compile(r"mask_token|patch_head/.*|objective/.*")  # only pre-training has these
_AFTER_BLOCKS = re.compile(r"(norm|map_head|pre_logits)/.*")
_ADAPTER = re.compile(r"(.*/)?adapter/.*")
_ADAPTED = r"(attn/out|mlp/down)"  # layers that give the output of a module
_MATRIX = re.compile(r"(.*)/lora_[ab]")
# Group of `lora(on=...)` -> kernels of a block, without `/kernel`.
_KERNELS = {"qkv": r"attn/(query|key|value)", "out": r"attn/out", "mlp": r"\w*mlp/\w+"}


@dataclasses.dataclass(frozen=True)
class Selection:
    """The split of a tree of parameters into the trained part and the base.

    Attributes:
      what: the part that is trained.
      frozen: path -> how many of the layers of a leaf are frozen, the first ones; a leaf that is
        not stacked has one.
      layers: path -> the layers of a leaf.
      names: the path of each trained parameter of each layer, as `tree.layer_paths` names them.
    """

    what: Trainable
    frozen: dict[str, int]
    layers: dict[str, int]
    names: tuple[str, ...]

    def trained(self, params: PyTree) -> PyTree:
        """Returns the trained part of a whole tree, or of one with a constant for each leaf."""
        return tree.nested(
            {
                path: leaf[self.frozen[path] :] if self.frozen[path] and np.ndim(leaf) else leaf
                for path, leaf in tree.leaves_with_paths(params)
                if self.frozen[path] < self.layers[path]
            }
        )

    def base(self, params: PyTree) -> PyTree:
        """Returns the frozen part of a whole tree, or of one that lacks trained leaves."""
        return tree.nested(
            {
                path: leaf if self.frozen[path] == self.layers[path] else leaf[: self.frozen[path]]
                for path, leaf in tree.leaves_with_paths(params)
                if self.frozen[path]
            }
        )

    def whole(self, trained: PyTree, base: PyTree) -> PyTree:
        """Returns the tree that the model is applied with; `lora_b` is scaled by alpha / rank."""
        scaled = tree.map_with_path(
            lambda path, x: x * self.what.scale if path.endswith("/lora_b") else x, trained
        )
        return joined(base, scaled)

    def gradient_share(self, depth: int) -> float:
        """Returns the FLOPs of a training step as a share of those with every parameter trained.

        A forward pass, the gradients of activations and those of weights cost a third each.
        Activations need gradients only above the first trained parameter.
        """
        if self.what.name == "head":
            return 1 / 3
        if self.what.name == "last":
            return 1 / 3 + 2 / 3 * min(1.0, self.what.blocks / depth)
        return 2 / 3


def select(what: Trainable, params: PyTree, variant: str) -> Selection:
    """Returns the split of a whole tree (arrays or shapes, from `extended`).

    Raises:
      BadInput: the model has no such part, or fewer blocks.
    """
    depth = tree.depth(params)
    if what.name == "last" and what.blocks > depth:
        has = f"{depth} blocks" if depth else "no blocks of tokens"
        raise BadInput(
            f"trainable=last({what.blocks}): {variant} has {has}; give "
            f"{f'1 to {depth}' if depth else 'head, bitfit or all'}."
        )
    frozen, layers, trained = {}, {}, []
    for path, leaf in tree.leaves_with_paths(params):
        names = tree.layer_paths(path, leaf.shape)
        layers[path] = len(names)
        own = [name for name in names if _is_trained(what, name, depth)]
        frozen[path] = len(names) - len(own)
        trained += own
    return Selection(what, frozen, layers, tuple(trained))


def starts_anew(path: str) -> bool:
    """Returns True if a parameter has its first values again when a model is fine-tuned."""
    return path.startswith(("head/", "dist_head/")) or OF_OBJECTIVE.fullmatch(path) is not None


def _is_trained(what: Trainable, path: str, depth: int) -> bool:
    """Returns True if the parameter of this canonical path is trained."""
    if starts_anew(path):
        return True
    if what.name == "bitfit":
        return path.endswith("/bias")
    if what.name == "adapters":
        return _ADAPTER.fullmatch(path) is not None
    if what.name == "lora":
        return _MATRIX.fullmatch(path) is not None
    if what.name == "last":
        layer = tree.layer_index(path)
        after = _AFTER_BLOCKS.fullmatch(path) is not None
        return after if layer is None else layer >= depth - what.blocks
    return False


def joined(base: PyTree, trained: PyTree) -> PyTree:
    """Returns both parts as one tree; stacked layers of the base come before the trained ones."""
    leaves, own = dict(tree.leaves_with_paths(base)), dict(tree.leaves_with_paths(trained))
    for path, leaf in own.items():
        if path in leaves and tree.is_stacked(path):
            leaf = _concatenated(leaves[path], leaf)
        leaves[path] = leaf
    return tree.nested(leaves)


def _concatenated(first: Any, last: Any) -> Any:
    if not isinstance(last, np.ndarray):
        return jnp.concatenate([first, last])
    if not any(last.strides):  # a shape without values
        return np.broadcast_to(last[:1], (len(first) + len(last), *last.shape[1:]))
    return np.concatenate([first, last])


def restored(original: PyTree, trained: PyTree) -> PyTree:
    """Returns both parts as one tree, of numpy arrays.

    Args:
      original: the weights that training began with, fitted to the model.
      trained: the trained part of the model, from `Selection.trained`.
    """
    own = dict(tree.leaves_with_paths(trained))
    base = {
        path: leaf[: len(leaf) - len(own[path])] if path in own and tree.is_stacked(path) else leaf
        for path, leaf in tree.leaves_with_paths(original)
    }
    return joined(tree.nested(base), trained)


# ---------------------------------------------------------------- low-rank matrices


def extended(what: Trainable, params: PyTree, key: jax.Array, variant: str) -> PyTree:
    """Returns the parameters with those of `lora` or `adapters`; for others, as they are.

    A is uniform in +-1 / sqrt(inputs) as in the authors' code, and B is zero, so the model computes
    what it did before. An adapter begins with deviations of 0.01 and 0 for the same reason.

    Raises:
      BadInput: the model has no such dense layers.
    """
    leaves = dict(tree.leaves_with_paths(params))
    if what.name == "adapters":
        return tree.nested(leaves | _adapters(what.width, leaves, key, variant))
    if what.name != "lora":
        return params
    groups = {group: _kernels(leaves, _KERNELS[group]) for group in what.on}
    lacking = [group for group, paths in groups.items() if not paths]
    if lacking:
        have = [group for group, pattern in _KERNELS.items() if _kernels(leaves, pattern)]
        has = f"; it has {' and '.join(have)}" if have else ": only models with blocks of tokens do"
        raise BadInput(
            f"trainable=lora(on={'+'.join(what.on)}): {variant} has no dense layers "
            f"{' and '.join(lacking)} to put low-rank matrices beside{has}. "
            f"Give {'on=' + '+'.join(have) if have else 'trainable=head, bitfit or all'}."
        )
    for number, path in enumerate(sorted(path for paths in groups.values() for path in paths)):
        kernel, place = leaves[path], path.removesuffix("/kernel")
        stack, inputs, outputs = _dimensions(path, kernel.shape)
        bound = 1 / math.sqrt(math.prod(inputs))
        own = jax.random.fold_in(key, number)
        shape = (*stack, *inputs, what.rank)
        leaves[f"{place}/lora_a"] = jax.random.uniform(own, shape, minval=-bound, maxval=bound)
        leaves[f"{place}/lora_b"] = jnp.zeros((*stack, what.rank, *outputs))
    return tree.nested(leaves)


def _adapters(
    width: int, leaves: dict[str, Any], key: jax.Array, variant: str
) -> dict[str, jax.Array]:
    """Returns the parameters of an adapter in every module with attention or an MLP, by path."""
    paths = _kernels(leaves, _ADAPTED)
    if not paths:
        raise BadInput(
            f"trainable=adapters: {variant} has no blocks with attention and an MLP; give "
            "trainable=head, bitfit or all."
        )
    new = {}
    for number, path in enumerate(sorted(paths)):
        shape, place = leaves[path].shape, f"{path.rsplit('/', 2)[0]}/adapter"
        stack, own = shape[: tree.is_stacked(path)], jax.random.fold_in(key, number)
        new[f"{place}/down/kernel"] = 0.01 * jax.random.normal(own, (*stack, shape[-1], width))
        new[f"{place}/down/bias"] = jnp.zeros((*stack, width))
        new[f"{place}/up/kernel"] = jnp.zeros((*stack, width, shape[-1]))
        new[f"{place}/up/bias"] = jnp.zeros((*stack, shape[-1]))
    return new


def _kernels(leaves: dict[str, Any], pattern: str) -> list[str]:
    block = rf"({tree.STACKED}|block_\d+)/((rows|columns)/)?{pattern}/kernel"
    return [path for path in leaves if re.fullmatch(block, path)]


_Shape = tuple[int, ...]


def _dimensions(path: str, shape: _Shape) -> tuple[_Shape, _Shape, _Shape]:
    """Returns the dimensions of a kernel: of layers, of what it maps, and of the result.

    Only the projection after attention maps two dimensions, heads and head_dim.
    """
    stack = int(tree.is_stacked(path))
    first = stack + (2 if path.endswith("attn/out/kernel") else 1)
    return shape[:stack], shape[stack:first], shape[first:]


_ADAPTER_AXES: Axes = {
    "down/kernel": ("embed", None),
    "down/bias": (None,),
    "up/kernel": (None, "embed"),
    "up/bias": ("embed",),
}


def axes(params: PyTree, of_kernels: Axes) -> Axes:
    """Returns the logical axes of what `extended` has added to a tree: path -> axes.

    Args:
      params: tree from `extended`.
      of_kernels: path -> axes of all other parameters, `layers` first if stacked.
    """
    found: Axes = {}
    for path, _ in tree.leaves_with_paths(params):
        if _ADAPTER.fullmatch(path):
            stack = ("layers",) if tree.is_stacked(path) else ()
            found[path] = stack + _ADAPTER_AXES["/".join(path.split("/")[-2:])]
        if match := _MATRIX.fullmatch(path):
            kernel = f"{match[1]}/kernel"
            stack, inputs, outputs = _dimensions(kernel, of_kernels[kernel])  # type: ignore[arg-type]
            both = (*inputs, None) if path.endswith("a") else (None, *outputs)
            found[path] = (*stack, *both)  # type: ignore[arg-type]
    return found


def without_added(params: PyTree) -> PyTree:
    """Returns the parameters of the model itself."""
    ours = {p: leaf for p, leaf in tree.leaves_with_paths(params) if not is_added(p)}
    return tree.nested(ours)


def is_added(path: str) -> bool:
    """Returns True if a parameter is not one of the model, but of `lora` or `adapters`."""
    return _MATRIX.fullmatch(path) is not None or _ADAPTER.fullmatch(path) is not None


def merged(params: PyTree, scale: float) -> PyTree:
    """Returns ordinary parameters: kernel + scale * A B, in float32 numpy; others as they are.

    Shapes without values, which numpy broadcasts from one zero, stay such.
    """
    leaves = dict(tree.leaves_with_paths(params))
    for path in [path for path in leaves if path.endswith("/lora_a")]:
        a, b = leaves.pop(path), leaves.pop(path[:-1] + "b")
        kernel = path.removesuffix("lora_a") + "kernel"
        stack, inputs, outputs = _dimensions(kernel, leaves[kernel].shape)
        if any(leaves[kernel].strides):
            product = np.asarray(a, np.float32).reshape(*stack, math.prod(inputs), -1) @ (
                np.asarray(b, np.float32).reshape(*stack, -1, math.prod(outputs))
            )
            leaves[kernel] = leaves[kernel] + scale * product.reshape(leaves[kernel].shape)
    return tree.nested(leaves)
