# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One optimizer step and one evaluation step, as pure functions of arrays.

This module sees no config, file or clock, so a test needs only three numpy arrays. Axes: B batch,
H W C image, K labels of an example, Y classes, A micro-batches. Start from `make_train_step`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vit_jax.step.objective import Batch, Network, Objective, Sums
from vit_jax.step.state import TrainState

if TYPE_CHECKING:
    from vit_jax.step.packing import Packing

PyTree = Any
_Stepped = tuple[TrainState, dict[str, jax.Array]]  # the state after a step, metrics


def micro_batches(batch: Batch, count: int) -> Batch:
    """Reshapes every array [B, ...] to [A, B/A, ...]; micro-batch a holds rows a, a + A, a + 2A.

    The stride keeps each row on its device. Splitting the sharded axis itself into [A, B/A] would
    gather the images on all devices.
    """
    return jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 0, 1), batch
    )


def micro_keys(key: jax.Array, count: int) -> jax.Array:
    """Returns the key of each micro-batch, [A]."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(count))


def mean_gradients(
    sums: Callable[[PyTree, Batch, jax.Array], Sums],
    params: PyTree,
    batch: Batch,
    keys: jax.Array,
    count: jax.Array,
    packing: "Packing | None" = None,
) -> tuple[PyTree, Sums]:
    """Returns gradients of the mean loss of a batch, and sums over it, by gradient accumulation.

    Args:
      sums: (params, micro-batch, key) -> sums over examples, of which `loss` is differentiated.
      params: the parameters of the state.
      batch: the micro-batches, [A, B/A, ...]; with one key, the whole batch [B, ...].
      keys: typed keys: [A], or [] for the whole batch. The result is the same, up to the draws of
        dropout.
      count: float32 [], examples of the whole batch. The loss is divided by it, so that the
        gradients need no division. The sums are not, so that a compiler may add them up over
        devices once.
      packing: how each micro-batch is packed; None: every image has its row.
    """

    def share(*args: Any) -> tuple[jax.Array, Sums]:
        added = sums(*args)
        return added["loss"] / count, added

    grad_fn = jax.grad(share, has_aux=True)
    grad_fn = packing.in_passes(grad_fn) if packing else grad_fn
    if not keys.ndim:
        return grad_fn(params, batch, keys)

    def one(carry: PyTree, micro: tuple[Batch, jax.Array]) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, carry, grad_fn(params, *micro)), None

    first = jax.tree.map(lambda x: x[0], (batch, keys))
    start = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(grad_fn, params, *first)
    )
    return jax.lax.scan(one, start, (batch, keys))[0]


def _grads(
    objective: Objective,
    network: Network,
    whole: Callable[[PyTree, PyTree], PyTree],
    state: TrainState,
    batch: Batch,
    drawn: PyTree,
    keys: jax.Array,
    count: jax.Array,
    params: PyTree,
) -> tuple[PyTree, Sums]:
    """Returns `mean_gradients` of an objective at some parameters; several keys: micro-batches.

    `whole` maps the trained parameters and the base of the state to what the objective sees.
    """
    kept = objective.seen(state.kept, lambda: whole(state.ema, state.base))
    if keys.ndim:
        every = whole(params, state.base)
        batch = objective.relate(network, every, kept, batch, keys)

    def sums_of(params: PyTree, micro: Batch, micro_key: jax.Array) -> Sums:
        every = whole(params, state.base)
        return objective.sums(network, every, kept, micro, drawn, micro_key)

    return mean_gradients(sums_of, params, batch, keys, count, network.packing)


@jax.named_scope("optimizer")
def _updated(
    state: TrainState,
    grads: PyTree,
    tx: optax.GradientTransformation,
    ema_decay: float | jax.Array,
) -> tuple[PyTree, TrainState]:
    """Returns the updates, and the state after them."""
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = _averaged(state.ema, params, ema_decay)
    after = TrainState(state.step + 1, params, opt_state, average, state.kept, state.base)
    return updates, after


def _measurable(
    platform: str, before: PyTree, updates: PyTree, after: TrainState
) -> tuple[PyTree, TrainState]:
    """Returns the updates whose norm is a metric, and the state after them.

    A pass over the updates costs a TPU more than one over the change of the parameters, for which a
    CPU would copy them. A GPU computes sums beside an update only into another array, and then
    copies the whole state back: there, sums come after it.
    """
    if platform == "tpu":
        return jax.tree.map(jnp.subtract, after.params, before), after
    if platform == "gpu":
        return jax.lax.optimization_barrier((updates, after))
    return updates, after


@jax.named_scope("metrics")
def _norms(**trees: PyTree) -> dict[str, jax.Array]:
    return {name: optax.tree.norm(leaves) for name, leaves in trees.items()}


def warmed_up(decay: float | jax.Array, step: jax.Array) -> jax.Array:
    """Returns the decay of the average after `step` updates: at most (1 + step) / (10 + step).

    So the initial parameters are soon forgotten, as in TensorFlow's ExponentialMovingAverage.
    """
    return jnp.minimum(decay, (1.0 + step) / (10.0 + step))


def decays(decay: float, final: float, total: int) -> float | Callable[[jax.Array], jax.Array]:
    """Returns the decay of the average, as `make_train_step` takes it.

    With a `final` above 0 it goes from `decay` to `final` on half a cosine, in `total` updates.
    """
    if not final:
        return decay
    return lambda step: final + (decay - final) * (1.0 + jnp.cos(jnp.pi * step / total)) / 2.0


def _averaged(average: PyTree, params: PyTree, decay: float | jax.Array) -> PyTree:
    if average is None:
        return None
    return jax.tree.map(lambda a, p: decay * a + (1.0 - decay) * p, average, params)


class Skipping(NamedTuple):
    """The state of an optimizer that skips updates which are not finite."""

    skipped: jax.Array  # int32 [], updates skipped so far
    inner: PyTree


def skipping(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns the same optimizer; its state makes the train step skip and count updates."""

    def init(params: PyTree) -> Skipping:
        return Skipping(jnp.zeros((), jnp.int32), tx.init(params))

    def update(updates: PyTree, state: Any, params: PyTree = None) -> tuple[PyTree, Any]:
        updates, inner = tx.update(updates, state.inner, params)
        return updates, Skipping(state.skipped, inner)

    return optax.GradientTransformation(init, update)


def _unless_finite(
    before: TrainState, after: TrainState, measured: dict[str, jax.Array]
) -> _Stepped:
    """Returns the next state, or the state before if values are not finite, and the metrics.

    The state is kept only with `skipping`, if the loss or the gradients are not finite. The norm of
    the updates does not decide: all updates would have to be kept until it is known.
    """
    if not isinstance(after.opt_state, Skipping):
        return after, measured
    finite = jnp.isfinite(measured["loss"]) & jnp.isfinite(measured["grad_norm"])
    chosen = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
    skipped = before.opt_state.skipped + jnp.where(finite, 0, 1)
    counted = chosen.opt_state._replace(skipped=skipped)
    kept = dataclasses.replace(chosen, step=after.step, opt_state=counted)
    return kept, measured | {"skipped": skipped}


def make_train_step(
    objective: Objective,
    network: Network,
    tx: optax.GradientTransformation,
    *,
    accumulation: int = 1,
    ema_decay: float | Callable[[jax.Array], jax.Array] = 0.0,
    ema_warmup: bool = False,
    platform: str = "cpu",
    climb: Callable[[PyTree, PyTree], PyTree] | None = None,
    whole: Callable[[PyTree, PyTree], PyTree] = lambda params, base: params,
    prepare: Callable[[Batch, jax.Array], Batch] = lambda batch, key: batch,
) -> Callable[[TrainState, Batch, jax.Array], _Stepped]:
    """Returns the function (state, batch, key) -> (state after one update, its metrics).

    Args:
      objective: what to learn.
      network: the model.
      tx: the optimizer; its updates are added to the parameters.
      accumulation: A, the number of micro-batches, see `mean_gradients`.
      ema_decay: d in average = d * average + (1 - d) * parameters, see `decays`.
      ema_warmup: whether d is `warmed_up`.
      platform: of the devices, see `_measurable`.
      climb: (parameters, gradients) -> the parameters for a second pass over the same batch with
        the same draws, see `optim.sam`. Its gradients make the update and `grad_norm`.
      whole: (trained parameters, base of the state) -> what the objective sees.
      prepare: (global batch, key) -> batch, before the objective draws, see `device_ops.apply`.

    Returns:
      A function for `jax.jit`. Its metrics are float32 []: `METRICS` of the objective, as means
      over the batch before the update, and the global norms `grad_norm` (before clipping),
      `update_norm`, `param_norm`. With `skipping(tx)`, a loss or gradients that are not finite
      change only `step` and `skipped`, int32 [], their count. Draws come from (key, state.step).
    """

    def train_step(state: TrainState, batch: Batch, key: jax.Array) -> _Stepped:
        keys = jax.random.fold_in(key, state.step)
        batch, drawn = objective.draw(prepare(batch, keys), keys)
        count = jnp.maximum(jnp.sum(batch["_mask"], dtype=jnp.float32), 1.0)
        if accumulation > 1:
            batch, keys = micro_batches(batch, accumulation), micro_keys(keys, accumulation)
        at = functools.partial(_grads, objective, network, whole, state, batch, drawn, keys, count)
        grads, sums = at(state.params)
        if climb is not None:
            grads, _ = at(climb(state.params, grads))
        decay = ema_decay(state.step) if callable(ema_decay) else ema_decay
        decay = warmed_up(decay, state.step) if ema_warmup else decay
        updates, after = _updated(state, grads, tx, decay)
        if after.kept is not None:
            after.kept = _kept(objective, whole, state, after, sums)
        updates, after = _measurable(platform, state.params, updates, after)
        measured = objective.measured(sums, count) | _norms(grad_norm=grads, update_norm=updates)
        measured |= network.packing.measured(sums, accumulation) if network.packing else {}
        chosen, measured = _unless_finite(state, after, measured)
        # The old parameters are overwritten: their norm would cost a copy of them.
        return chosen, measured | _norms(param_norm=chosen.params)

    return train_step


def _kept(
    objective: Objective,
    whole: Callable[[PyTree, PyTree], PyTree],
    state: TrainState,
    after: TrainState,
    sums: Sums,
) -> PyTree:
    """Returns what the objective keeps after an update; the average stays where it is."""
    seen = objective.seen(state.kept, lambda: whole(after.ema, state.base))
    kept = objective.after_update(seen, after.params, sums, state.step)
    return {name: kept[name] for name in state.kept} if objective.AVERAGE else kept


def non_finite(rows: dict[str, float]) -> str | None:
    """Returns the name of the first metric that is not finite, or None."""
    return next((name for name, value in rows.items() if not math.isfinite(value)), None)
