# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The mesh, and the mesh axes over which each dimension of an array is split.

The meaning of a parameter (path -> logical axes) lives beside each model. The placement (logical
axis -> mesh axes) lives in the config. This module joins the two, and must not know any model.
Start from `Rules`.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from vit_jax import tree
from vit_jax.errors import BadInput

MESH_AXES = ("replica", "data", "fsdp", "tensor")
LOGICAL_AXES = (
    "embed", "heads", "head_dim", "mlp", "classes", "layers", "patch",
    "act_batch", "act_tokens", "act_embed", "act_heads", "act_mlp",
)  # fmt: skip
PyTree = Any
Axes = dict[str, tuple[str | None, ...]]  # parameter path pattern -> logical axes, see `param_axes`


def mesh_shape(*, replica: int, data: int, fsdp: int, tensor: int, devices: int) -> tuple[int, ...]:
    """Returns the sizes of `MESH_AXES` for a number of devices; one size may be -1 (the rest).

    Raises:
      BadInput: the product is not the number of devices; the message names the nearest data size
        that fits.
    """
    sizes: dict[str, int] = dict(zip(MESH_AXES, (replica, data, fsdp, tensor), strict=True))
    free = [a for a, n in sizes.items() if n == -1]
    fixed = math.prod(n for n in sizes.values() if n != -1)
    if len(free) > 1:
        raise BadInput(f"mesh {sizes}: at most one size is -1 (the rest).")
    if devices % fixed or (not free and fixed != devices):
        raise BadInput(
            f"mesh {sizes} needs {'a multiple of ' if free else ''}{fixed} devices, "
            f"there are {devices}; {_nearest(sizes, devices)} fits."
        )
    return tuple(devices // fixed if n == -1 else n for n in sizes.values())


def _nearest(sizes: Mapping[str, int], devices: int) -> str:
    """Returns the change of one axis (data if possible) that makes a mesh fit, or a plain mesh."""
    fixed = [a for a, n in sizes.items() if n != -1]
    free = len(fixed) < len(sizes)
    choices = []
    for axis in fixed:
        most, rest = divmod(devices, math.prod(sizes[a] for a in fixed if a != axis))
        for n in range(1, most + 1):
            if not rest and (most % n == 0 if free else most == n):
                far, other = abs(math.log(n / sizes[axis])), axis != "data"
                choices.append(((far, other) if free else (other, far), f"{axis}={n}"))
    return min(choices)[1] if choices else "replica=1, data=-1, fsdp=1, tensor=1"


def check_slices(shape: Sequence[int], slices: int) -> None:
    """Raises BadInput unless the first axis of a mesh equals the number of slices."""
    if shape[0] != slices:
        raise BadInput(
            f"mesh.replica={shape[0]}, but the devices come in {slices} slice"
            f"{'s' if slices > 1 else ''}; leave it 0, or use "
            f"--config.mesh.replica={slices}."
        )


def make_mesh(
    *, replica: int, data: int, fsdp: int, tensor: int, devices: Sequence[Any] | None = None
) -> Mesh:
    """Returns the named mesh over `devices` (default: all).

    If a data-centre network joins slices of devices, `replica` is the number of slices (0: all
    slices), and the other axes stay inside a slice.

    Raises:
      BadInput: the devices do not fill the mesh, or the number of slices differs.
    """
    devices = jax.devices() if devices is None else devices
    hosts = devices[0].platform == "gpu"  # on GPUs, slice_index counts hosts
    slices = 1 if hosts else len({getattr(d, "slice_index", 0) for d in devices})
    sizes = {"replica": replica or slices, "data": data, "fsdp": fsdp, "tensor": tensor}
    shape = mesh_shape(**sizes, devices=len(devices))
    auto = (AxisType.Auto,) * len(shape)  # a scanned Linen block fails under the default, Explicit
    if devices[0].platform != "cpu":  # CPU devices may stand in for several slices
        check_slices(shape, slices)
    split = {"allow_split_physical_axes": True}  # 2 x 64 on a torus of 4 x 4 x 8
    if slices == 1:
        grid = mesh_utils.create_device_mesh(shape, devices, **split)
    else:
        inside, between = (1, *shape[1:]), (slices, 1, 1, 1)
        grid = mesh_utils.create_hybrid_device_mesh(inside, between, devices, **split)
    return Mesh(grid, MESH_AXES, axis_types=auto)


@dataclasses.dataclass(frozen=True)
class Rules:
    """Placement on one mesh: logical axis -> mesh axes. Hashable, so that modules can hold it."""

    mesh: Mesh
    table: tuple[tuple[str, tuple[str, ...]], ...]

    def __post_init__(self) -> None:
        for logical, axes in self.table:
            unknown = [a for a in axes if a not in MESH_AXES]
            if logical not in LOGICAL_AXES or unknown:
                raise BadInput(
                    f"mesh.rules: {logical!r} -> {axes}; logical axes: {', '.join(LOGICAL_AXES)}; "
                    f"mesh axes: {', '.join(MESH_AXES)}."
                )

    def spec(
        self, axes: Sequence[str | None], shape: Sequence[int], path: str = "array"
    ) -> PartitionSpec:
        """Returns the partition of one array whose dimensions have these logical axes.

        Raises:
          BadInput: the mesh axes do not divide a dimension, or a mesh axis is used twice; the
            message names path, dimension, size and the nearest sizes that fit.
        """
        if len(axes) != len(shape):
            raise ValueError(
                f"{path}: {len(axes)} logical axes {tuple(axes)} for shape {tuple(shape)}"
            )
        table = dict(self.table)
        used: set[str] = set()
        entries: list[tuple[str, ...] | None] = []
        strange = [a for a in axes if a is not None and a not in LOGICAL_AXES]
        if strange:
            raise ValueError(f"{path}: unknown logical axes {strange} in {tuple(axes)}")
        for dim, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            mesh_axes = tuple(a for a in table.get(axis or "", ()) if self.mesh.shape[a] > 1)
            twice = [a for a in mesh_axes if a in used or mesh_axes.count(a) > 1]
            if twice:
                raise BadInput(f"{path}: mesh axis {twice[0]!r} is used twice in {tuple(axes)}.")
            used.update(mesh_axes)
            ways = math.prod(self.mesh.shape[a] for a in mesh_axes)
            if size % ways:
                low = size // ways * ways
                fits = f"{low} or {low + ways}" if low else str(ways)
                split = next(n for n in range(ways, 0, -1) if size % n == 0)
                raise BadInput(
                    f"{path}: dimension {dim} ({axis}) of size {size} is not divisible by "
                    f"{'*'.join(mesh_axes)}={ways}; {'*'.join(mesh_axes)}={split} would fit, or "
                    f"sizes of {fits}."
                )
            entries.append(mesh_axes or None)
        return PartitionSpec(*entries)

    def sharding(
        self, axes: Sequence[str | None], shape: Sequence[int], path: str = "array"
    ) -> NamedSharding:
        """Returns `spec` on this mesh."""
        return NamedSharding(self.mesh, self.spec(axes, shape, path))

    def parts(self, logical: str) -> int:
        """Returns the number of parts into which a logical axis is split."""
        return math.prod(self.mesh.shape[a] for a in dict(self.table).get(logical, ()))

    @property
    def batch_parts(self) -> int:
        """The number of parts into which the batch is split."""
        return self.parts("act_batch")

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that is whole on every device."""
        return NamedSharding(self.mesh, PartitionSpec())


def constrain(x: jax.Array, axes: Sequence[str | None], rules: Rules | None) -> jax.Array:
    """Returns `x` placed by its logical axes, or `x` itself without rules."""
    if rules is None:
        return x
    return jax.lax.with_sharding_constraint(x, rules.sharding(axes, x.shape, "activation"))


def param_axes(
    params: PyTree, meaning: Mapping[str, tuple[str | None, ...]]
) -> dict[str, tuple[str | None, ...]]:
    """Returns the logical axes of every parameter: path -> axes, `layers` first if stacked.

    Args:
      params: tree of arrays or shapes.
      meaning: path pattern (of one layer, matched at the end of the path) -> logical axes.

    Raises:
      BadInput: no pattern covers a parameter, or its number of dimensions differs.
    """
    axes_of_path = {}
    for path, leaf in tree.leaves_with_paths(params):
        axes = next((a for p, a in meaning.items() if re.fullmatch(f"(.*/)?{p}", path)), None)
        if axes is None:
            raise BadInput(
                f"parameter {path} {tuple(leaf.shape)} has no logical axes; add a rule to the "
                f"AXES of the {'objective' if path.startswith('objective/') else 'model'}."
            )
        axes = ("layers", *axes) if tree.is_stacked(path) else axes
        if len(axes) != len(leaf.shape):
            raise BadInput(f"parameter {path} has shape {tuple(leaf.shape)} but axes {axes}.")
        axes_of_path[path] = axes
    return axes_of_path


def place(state: PyTree, axes: Mapping[str, tuple[str | None, ...]], rules: Rules) -> PyTree:
    """Returns shardings for a whole abstract state: parameters, moments and averages alike.

    A leaf belongs to a parameter if its path ends in the parameter's path. If it has the
    parameter's shape, it is placed like the parameter. If it lacks one of the dimensions (factored
    statistics), it is placed by the remaining ones. Every other leaf (counts) is whole on every
    device.

    Args:
      state: tree of shapes, with the parameters under `params`.
      axes: parameter path -> logical axes, from `param_axes`.
      rules: the placement.
    """
    shapes = {
        path.removeprefix("params/"): leaf.shape
        for path, leaf in tree.leaves_with_paths(state)
        if path.startswith("params/")
    }

    def one(path: str, leaf: Any) -> NamedSharding:
        parts = path.split("/")
        for start in range(len(parts)):
            name = "/".join(parts[start:])
            kept = _kept(shapes[name], leaf.shape) if name in axes else None
            if kept is not None:
                return rules.sharding([axes[name][k] for k in kept], leaf.shape, path)
        return rules.replicated

    return tree.map_with_path(one, state)


def _kept(shape: tuple[int, ...], part: tuple[int, ...]) -> list[int] | None:
    """Returns the dimensions of `shape` that make up `part`: all, or all but one; else None."""
    every = list(range(len(shape)))
    for kept in (every, *(every[:k] + every[k + 1 :] for k in reversed(every))):
        if kept and tuple(shape[k] for k in kept) == part:
            return kept
    return None
