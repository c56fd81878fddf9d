# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Builds the chain from gradients to updates.

    freeze -> clip by global norm -> direction of the optimizer -> * factor of muP
    -> + weight decay * parameter -> * factor of the parameter -> * -learning rate -> freeze

A rule that uses a whole tensor (Adafactor's factors, LAMB's trust ratio) sees one layer at a time,
stacked or not. Patterns of parameters are regular expressions for the whole canonical path of one
layer, such as `blocks/3/attn/query/kernel`. They mean the same with and without scan. Start from
`make_optimizer`.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.optim.schedules import Schedule
from vit_jax.sharding import Rules

PyTree = Any
Transform = optax.GradientTransformation
_STEM = re.compile(
    r"(backbone|embedding|mask_token|cls|dist|registers|stem_norm|posemb(_\w+)?)(/.*)?"
)


class Part(Protocol):
    """A part of the parameters that is trained, see `models.partial.Selection`."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def trained(self, params: PyTree) -> PyTree: ...


def make_optimizer(
    params: PyTree,
    schedule: Schedule,
    *,
    name: str,
    clip: float = 0.0,
    weight_decay: float = 0.0,
    decay_mask: str = "kernels",
    decay_multipliers: Sequence[tuple[str, float]] = (),
    lr_mults: Sequence[tuple[str, float]] = (),
    layer_decay: float = 1.0,
    freeze: Sequence[str] = (),
    widening: float = 0.0,
    rules: Rules | None = None,
    part: Part | None = None,
    **options: Any,
) -> Transform:
    """Returns the optimizer for a tree of parameters.

    AdamW: update = -rate * (adam + weight_decay * parameter), arXiv:1711.05101 with the decay
    multiplied by the rate, so Table 3's 0.1 at 8e-4 is given here as it stands. Adafactor decays
    the same way, and so do Lion and Muon. SGD adds weight_decay * parameter to the gradient before
    the momentum. LAMB adds it before the trust ratio.

    Args:
      params: tree of arrays or shapes.
      schedule: updates done -> rate.
      name: a key of `DIRECTIONS`.
      clip: largest global norm of the gradients that are not frozen; 0 turns clipping off.
      weight_decay: see above.
      decay_mask: `kernels` or `all`.
      decay_multipliers: see `decay_factors`.
      lr_mults: see `rate_factors`.
      layer_decay: see `rate_factors`.
      freeze: see `trainable`.
      widening: width of the model over that of the base model of muP, see `mup.factors`; 0 without
        muP.
      rules: placement of the parameters, which Muon uses.
      part: the part of `params` that is trained; None: all of them.
      **options: arguments of the function in `DIRECTIONS`.

    Raises:
      BadInput: a pattern matches nothing, everything is frozen, or muP has no rule for the
        optimizer.
    """
    decay = _decay(weight_decay, decay_factors(params, decay_mask, decay_multipliers, part))
    if widening:
        decay = optax.chain(_widened(params, widening, name, options), decay)
    if name == "muon":
        options["rules"] = rules
    factors = rate_factors(params, lr_mults, layer_decay, part)
    frozen = _multiply(trainable(params, freeze)) if freeze else optax.identity()
    return optax.chain(
        frozen,
        clipped(clip) if clip else optax.identity(),
        DIRECTIONS[name](decay, **options),
        _multiply(factors) if lr_mults or layer_decay != 1.0 else optax.identity(),
        _by_rate(schedule),
        frozen,
    )


def _widened(params: PyTree, widening: float, name: str, options: dict[str, Any]) -> Transform:
    """Multiplies directions by the factors of muP, which needs all parameters to be trained."""
    from vit_jax.optim import mup

    return _multiply(mup.factors(params, widening, name, options))


def _decay(rate: float, factors: PyTree) -> Transform:
    """Adds rate * factor * parameter to the update of each parameter."""
    if not rate:
        return optax.identity()

    def add(update: jax.Array, param: jax.Array, factor: np.ndarray) -> jax.Array:
        if not np.any(factor):
            return update
        return update + jnp.asarray(rate * factor, param.dtype) * param

    adding = optax.stateless(lambda updates, params: jax.tree.map(add, updates, params, factors))
    return optax.masked(adding, True)  # its state is that of `add_decayed_weights`


def adamw(decay: Transform, *, b1: float, b2: float, eps: float, mu_dtype: str) -> Transform:
    """Applies Adam (arXiv:1412.6980), then decay."""
    return optax.chain(optax.scale_by_adam(b1, b2, eps, mu_dtype=jnp.dtype(mu_dtype)), decay)


def sgd(decay: Transform, *, momentum: float, nesterov: bool, accumulator_dtype: str) -> Transform:
    """Applies decay, then momentum m = momentum * m + gradient, kept in `accumulator_dtype`."""
    trace = optax.trace(momentum, nesterov, accumulator_dtype=jnp.dtype(accumulator_dtype))
    return optax.chain(decay, trace)


def adafactor(
    decay: Transform,
    *,
    momentum: float,
    beta2_cap: float,
    min_factored: int,
    accumulator_dtype: str,
) -> Transform:
    """Applies Adafactor, then momentum, then decay, as for ViT-G (arXiv:2106.04560, section 3.4).

    The decay of second moments is min(beta2_cap, 1 - t^-0.8). They are factored over the two
    largest dimensions where both reach `min_factored`. The update is neither clipped nor scaled by
    the parameter. The momentum is an average without bias correction.
    """

    def decay_rate(step: Any, exponent: Any) -> jax.Array:
        t = jnp.asarray(step, jnp.float32) + 1.0
        return jnp.minimum(beta2_cap, 1.0 - t ** (-exponent))

    moments = optax.scale_by_factored_rms(
        min_dim_size_to_factor=min_factored, decay_rate=0.8, decay_rate_fn=decay_rate
    )
    average = optax.ema(momentum, debias=False, accumulator_dtype=jnp.dtype(accumulator_dtype))
    return optax.chain(per_layer(moments), average, decay)


def lamb(decay: Transform, *, b1: float, b2: float, eps: float) -> Transform:
    """Applies LAMB (arXiv:1904.00962), algorithm 2: Adam, decay, each tensor's trust ratio."""
    return optax.chain(
        optax.scale_by_adam(b1, b2, eps), decay, per_layer(optax.scale_by_trust_ratio())
    )


def lion(decay: Transform, *, b1: float, b2: float, mu_dtype: str) -> Transform:
    """Applies Lion (arXiv:2302.06675), program 1: the sign of a momentum, then decay."""
    return optax.chain(optax.scale_by_lion(b1, b2, mu_dtype=jnp.dtype(mu_dtype)), decay)


def _muon(decay: Transform, **options: Any) -> Transform:
    """Applies `muon.muon`, which is imported on use."""
    from vit_jax.optim.muon import muon

    return muon(decay, **options)


DIRECTIONS: dict[str, Callable[..., Transform]] = {
    "adamw": adamw,
    "sgd": sgd,
    "adafactor": adafactor,
    "lamb": lamb,
    "lion": lion,
    "muon": _muon,
}


def clipped(most: float) -> Transform:
    """Multiplies gradients by min(1, `most` / their global norm).

    It uses one factor for all, where optax divides each gradient: XLA fuses a product with its
    uses.
    """

    def update(updates: PyTree, _: PyTree) -> PyTree:
        factor = jnp.minimum(1.0, most / optax.tree.norm(updates))
        return jax.tree.map(lambda u: u * factor.astype(u.dtype), updates)

    return optax.stateless(update)


def _by_rate(schedule: Schedule) -> Transform:
    """Multiplies updates by -rate, as a division, which XLA does not repeat on a CPU.

    XLA would compute a product again for each use of the updates: their norm and the new
    parameters. It would keep the direction for both, and move 1.3 times as many bytes.
    """

    def init(params: PyTree) -> optax.ScaleByScheduleState:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(
        updates: PyTree, state: optax.ScaleByScheduleState, params: PyTree = None
    ) -> tuple[PyTree, optax.ScaleByScheduleState]:
        divisor = -1.0 / jnp.asarray(schedule(state.count), jnp.float32)
        count = optax.safe_increment(state.count)
        new = jax.tree.map(lambda u: u / divisor.astype(u.dtype), updates)
        return new, optax.ScaleByScheduleState(count)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _multiply(factors: PyTree) -> Transform:
    """Multiplies each update by a constant, or by one constant per layer."""
    return optax.stateless(
        lambda updates, _: jax.tree.map(lambda u, f: u * jnp.asarray(f, u.dtype), updates, factors)
    )


class PerLayerState(NamedTuple):
    """State of a transformation for the stacked blocks (leading layer axis) and for the rest."""

    blocks: Any
    rest: Any


def per_layer(inner: Transform) -> Transform:
    """Applies a transformation to each layer of stacked blocks separately, and to the rest."""

    def split(params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        blocks = {k: v for k, v in params.items() if tree.is_stacked(k + "/")}
        return blocks, {k: v for k, v in params.items() if k not in blocks}

    def init(params: PyTree) -> PerLayerState:
        blocks, rest = split(params)
        return PerLayerState(jax.vmap(inner.init)(blocks) if blocks else (), inner.init(rest))

    def update(
        updates: PyTree, state: PerLayerState, params: PyTree = None
    ) -> tuple[PyTree, PerLayerState]:
        blocks, rest = split(updates)
        block_params, rest_params = split(params)
        merged: Any
        merged, rest_state = inner.update(rest, state.rest, rest_params)
        block_state = state.blocks
        if blocks:
            new, block_state = jax.vmap(inner.update)(blocks, state.blocks, block_params)
            merged = merged | new
        return merged, PerLayerState(block_state, rest_state)

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


# ---------------------------------------------------------------- parameters by pattern


def _layer_factors(
    params: PyTree, value: Callable[[str], float], part: Part | None = None
) -> PyTree:
    """Returns a factor for each trained parameter; [S, 1, ...] where stacked layers differ."""

    def one(path: str, leaf: Any) -> np.ndarray:
        values = np.array([value(p) for p in tree.layer_paths(path, leaf.shape)], np.float32)
        if not tree.is_stacked(path):
            return values[0]
        if np.all(values == values[0]):
            return values[0]
        return values.reshape(-1, *[1] * (len(leaf.shape) - 1))

    factors = tree.map_with_path(one, params)
    return part.trained(factors) if part else factors


def _names(params: PyTree, part: Part | None) -> Sequence[str]:
    return part.names if part else canonical_paths(params)


def canonical_paths(params: PyTree) -> list[str]:
    """Returns the paths that patterns are matched against: one per parameter of each layer."""
    return [
        name
        for path, leaf in tree.leaves_with_paths(params)
        for name in tree.layer_paths(path, leaf.shape)
    ]


def _compile(key: str, pattern: str, paths: Sequence[str], trained: bool = True) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as e:
        raise BadInput(f"{key}: {pattern!r} is not a regular expression: {e}.") from e
    if not any(compiled.fullmatch(p) for p in paths):
        near = ", ".join(difflib.get_close_matches(pattern, paths, cutoff=0.4))
        shown = ", ".join(paths[:: max(1, len(paths) // 8)])
        raise BadInput(
            f"{key}: {pattern!r} matches no parameter{' that is trained' if trained else ''}; "
            f"{f'near are {near}; ' if near else ''}paths look like {shown}."
        )
    return compiled


def _first_match(patterns: Sequence[tuple[re.Pattern[str], float]], path: str) -> float:
    return next((factor for pattern, factor in patterns if pattern.fullmatch(path)), 1.0)


def _decays(path: str, which: str) -> bool:
    return which == "all" or path.endswith("/kernel")


def decay_factors(
    params: PyTree,
    which: str,
    multipliers: Sequence[tuple[str, float]],
    part: Part | None = None,
) -> PyTree:
    """Returns the factor on the weight decay of each parameter, or of each layer of it.

    ViT-G decays its head by 3.0 and its body by 0.03 (arXiv:2106.04560): weight_decay=0.03 with
    (("head/.*", 100.0),).

    Args:
      params: tree of arrays or shapes.
      which: `kernels` (big_vision, AugReg) or `all`; other parameters have the factor 0.
      multipliers: (pattern, factor) pairs; the first match wins; without a match the factor is 1.
      part: the part of `params` that is trained; None: all of them.

    Raises:
      BadInput: a pattern matches no name or only some that do not decay, or a factor is
        negative.
    """
    key, names = "optimizer.decay.multipliers", _names(params, part)
    decaying = [name for name in names if _decays(name, which)]
    patterns = []
    for pattern, factor in multipliers:
        compiled = _compile(key, pattern, names)
        if factor < 0:
            raise BadInput(f"{key}: {pattern!r} has {factor}; give 0 or more.")
        if not any(map(compiled.fullmatch, decaying)):
            raise BadInput(
                f"{key}: {pattern!r} matches only parameters that do not decay with "
                f"optimizer.decay_mask={which}; leave it out, or give "
                "--config.optimizer.decay_mask=all."
            )
        patterns.append((compiled, factor))

    def factor_of(path: str) -> float:
        if not _decays(path, which):
            return 0.0
        return _first_match(patterns, path)

    return _layer_factors(params, factor_of, part)


def trainable(params: PyTree, freeze: Sequence[str]) -> PyTree:
    """Returns a factor per parameter, or per layer of it: 0 where a pattern freezes it, else 1.

    Raises:
      BadInput: a pattern matches nothing, or everything is frozen.
    """
    paths = canonical_paths(params)
    patterns = [_compile("optimizer.freeze", p, paths, trained=False) for p in freeze]
    factors = _layer_factors(
        params, lambda path: float(not any(p.fullmatch(path) for p in patterns))
    )
    if not any(np.any(f) for f in jax.tree.leaves(factors)):
        raise BadInput(
            f"optimizer.freeze={tuple(freeze)} freezes every parameter; leave some to train."
        )
    return factors


def rate_factors(
    params: PyTree,
    lr_mults: Sequence[tuple[str, float]],
    layer_decay: float,
    part: Part | None = None,
) -> PyTree:
    """Returns the factor on the learning rate of each parameter.

    Args:
      params: tree of arrays or shapes.
      lr_mults: (pattern, factor) pairs; the first match wins; without a match the factor is 1.
      layer_decay: d; a parameter of layer l has a further factor d^(S + 1 - l): the stem is layer
        0, block i is layer i + 1, norm and head are layer S + 1 (arXiv:2003.10555, section A).
      part: the part of `params` that is trained; None: all of them.

    Raises:
      BadInput: a pattern matches no name.
    """
    names, depth = _names(params, part), tree.depth(params)
    patterns = [(_compile("optimizer.lr_mults", p, names), factor) for p, factor in lr_mults]

    def factor(path: str) -> float:
        index = tree.layer_index(path)
        layer = index + 1 if index is not None else (0 if _STEM.fullmatch(path) else depth + 1)
        return _first_match(patterns, path) * layer_decay ** (depth + 1 - layer)

    return _layer_factors(params, factor, part)
