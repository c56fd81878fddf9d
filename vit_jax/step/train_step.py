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

from vit_jax.step import losses, metrics
from vit_jax.step.state import TrainState, normalise

if TYPE_CHECKING:
    from vit_jax.step import mixing
    from vit_jax.step.masked_patches import Masked

PyTree = Any
Batch = dict[str, Any]  # image uint8 [B, H, W, C], labels int32 [B, K], _mask bool [B]
_Stepped = tuple[TrainState, dict[str, jax.Array]]  # the state after a step, metrics
_MIXING = 2**31  # stands for a micro-batch's number in the key of mixing
_CORRUPTION = 2**31 + 1  # the same for the key of corruption
# (params, images, train=, key=) -> float32 logits [B, Y]; with source_BL= [B, L, O], see `Masked`
Apply = Callable[..., jax.Array]


def micro_batches(batch: Batch, count: int) -> Batch:
    """Reshapes every array [B, ...] to [A, B/A, ...]; micro-batch a holds rows a, a + A, a + 2A.

    The stride keeps each row on its device. Splitting the sharded axis itself into [A, B/A] would
    gather the images on all devices.
    """
    return jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(x.shape[0] // count, count, *x.shape[1:]), 0, 1), batch
    )


def _summed_loss(
    apply: Apply,
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    loss: str,
    label_smoothing: float,
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Returns (params, batch, key, mix) -> (sum of losses, of hits), float32 [], of real examples.

    With `mix` the batch has partners; hits are counted against its own labels.
    """

    def inputs(batch: Batch, prefix: str = "") -> tuple[jax.Array, jax.Array]:
        labels_BK = batch[prefix + "labels"]
        targets_BY = losses.multi_hot(labels_BK, classes, smoothing=label_smoothing)
        return normalise(batch[prefix + "image"], mean, std), targets_BY

    loss_fn = losses.find(loss)

    def summed_loss(
        params: PyTree, batch: Batch, key: jax.Array, mix: "mixing.Mix | None" = None
    ) -> tuple[jax.Array, jax.Array]:
        images_BHWC, targets_BY = inputs(batch)
        if mix is not None:
            from vit_jax.step import mixing

            images, targets = inputs(batch, mixing.PARTNER)
            images_BHWC = mixing.mixed(images_BHWC, images, mix.pixels)
            targets_BY = mixing.mixed(targets_BY, targets, mix.share)
        logits_BY = apply(params, images_BHWC, train=True, key=key)
        loss_B = loss_fn(logits_BY, targets_BY)
        sums = metrics.sums(logits_BY, batch["labels"], batch["_mask"], loss_B)
        return sums["loss"], sums["top1"].astype(jnp.float32)

    return summed_loss


def _masked_sums(
    apply: Apply, masked: "Masked", mean: tuple[float, ...], std: tuple[float, ...], *, train: bool
) -> Callable[..., dict[str, jax.Array]]:
    """Returns (params, batch with its corruption, key) -> `Masked.sums`; ignores labels."""

    def sums(params: PyTree, batch: Batch, key: jax.Array | None) -> dict[str, jax.Array]:
        source_BL, corrupted_BL = batch["corruption"]
        images_BHWC = normalise(batch["image"], mean, std)
        predicted_BLO = apply(params, images_BHWC, train=train, key=key, source_BL=source_BL)
        return masked.sums(predicted_BLO, batch["image"], corrupted_BL, batch["_mask"])

    return sums


def _summed_masked_loss(
    apply: Apply, masked: "Masked", mean: tuple[float, ...], std: tuple[float, ...]
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Returns the counterpart of `_summed_loss` for masked patch prediction."""
    sums = _masked_sums(apply, masked, mean, std, train=True)

    def summed_loss(params: PyTree, batch: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        totals = sums(params, batch, key)
        return totals["loss"], totals["top1"]

    return summed_loss


def mean_gradients(
    summed_loss: Callable[[PyTree, Batch, jax.Array], tuple[jax.Array, jax.Array]],
    params: PyTree,
    batch: Batch,
    key: jax.Array,
    accumulation: int,
    count: jax.Array,
) -> tuple[PyTree, tuple[jax.Array, jax.Array]]:
    """Returns gradients of the mean loss of a batch, and sums over it, by gradient accumulation.

    Args:
      summed_loss: (params, batch, key) -> (sum of losses, another sum), over examples.
      params: the parameters of the state.
      batch: the whole batch.
      key: typed key; each micro-batch draws from its own key.
      accumulation: A; the result equals that of the whole batch, up to the draws of dropout.
      count: float32 [], examples of the whole batch. The loss is divided by it, so that the
        gradients need no division. The sums are not, so that a compiler may add them up over
        devices once.
    """

    def share(*args: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        sums = summed_loss(*args)
        return sums[0] / count, sums

    grad_fn = jax.grad(share, has_aux=True)
    if accumulation == 1:
        return grad_fn(params, batch, key)

    def one(carry: PyTree, micro: tuple[jax.Array, Batch]) -> tuple[PyTree, None]:
        added = grad_fn(params, micro[1], jax.random.fold_in(key, micro[0]))
        return jax.tree.map(jnp.add, carry, added), None

    start = (jax.tree.map(jnp.zeros_like, params), (jnp.float32(0), jnp.float32(0)))
    steps = (jnp.arange(accumulation), micro_batches(batch, accumulation))
    return jax.lax.scan(one, start, steps)[0]


@jax.named_scope("optimizer")
def _updated(
    state: TrainState, grads: PyTree, tx: optax.GradientTransformation, ema_decay: float
) -> tuple[PyTree, TrainState]:
    """Returns the updates, and the state after them."""
    updates, opt_state = tx.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    average = _averaged(state.ema, params, ema_decay)
    return updates, TrainState(state.step + 1, params, opt_state, average)


@jax.named_scope("metrics")
def _norms(**trees: PyTree) -> dict[str, jax.Array]:
    return {name: optax.tree.norm(leaves) for name, leaves in trees.items()}


def _averaged(average: PyTree, params: PyTree, decay: float) -> PyTree:
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


def _drawn(
    batch: Batch, key: jax.Array, mixup_alpha: float, cutmix_alpha: float, masked: "Masked | None"
) -> "tuple[Batch, dict[str, mixing.Mix]]":
    """Returns the global batch with the partners or corruption of its images, and their mix.

    The draws depend on neither the mesh nor the accumulation.
    """
    if masked is not None:
        keys_B = jax.random.split(jax.random.fold_in(key, _CORRUPTION), len(batch["_mask"]))
        return batch | {"corruption": masked.draw(keys_B)}, {}
    if not mixup_alpha and not cutmix_alpha:
        return batch, {}
    sides, mixing_key = batch["image"].shape[1:3], jax.random.fold_in(key, _MIXING)
    from vit_jax.step import mixing

    mix = mixing.draw(mixing_key, sides, mixup_alpha, cutmix_alpha)
    return mixing.with_partners(batch), {"mix": mix}


def make_train_step(
    apply: Apply,
    tx: optax.GradientTransformation,
    *,
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    loss: str = "softmax",
    label_smoothing: float = 0.0,
    accumulation: int = 1,
    ema_decay: float = 0.0,
    mixup_alpha: float = 0.0,
    cutmix_alpha: float = 0.0,
    masked: "Masked | None" = None,
    norm_of_change: bool = False,
) -> Callable[[TrainState, Batch, jax.Array], _Stepped]:
    """Returns the function (state, batch, key) -> (state after one update, its metrics).

    Args:
      apply: the model; `key` drives dropout.
      tx: the optimizer; its updates are added to the parameters.
      classes: Y.
      mean: see `normalise`.
      std: see `normalise`.
      loss: see `losses.find`.
      label_smoothing: see `losses.multi_hot`.
      accumulation: A, see `mean_gradients`.
      ema_decay: d in average = d * average + (1 - d) * parameters; used when the state has one.
      mixup_alpha: see `mixing.draw`. `top1` counts the labels of the larger part of an image.
      cutmix_alpha: see `mixing.draw`.
      masked: an objective that replaces the classes; `apply` then takes `source_BL`, see `ViT`.
      norm_of_change: whether `update_norm` is that of the parameters after the step minus those
        before. The norm of updates costs a TPU another pass, that of the change a CPU a copy.

    Returns:
      A function for `jax.jit`. Its metrics are float32 []: `loss` and `top1` of the batch before
      the update, and the global norms `grad_norm` (before clipping), `update_norm`, `param_norm`.
      With `skipping(tx)`, a loss or gradients that are not finite change only `step` and the metric
      `skipped`, int32 [], of skipped updates. All randomness is a function of (key, state.step).
    """
    summed_loss = _summed_loss(apply, classes, mean, std, loss, label_smoothing)
    if masked is not None:
        summed_loss = _summed_masked_loss(apply, masked, mean, std)

    def train_step(state: TrainState, batch: Batch, key: jax.Array) -> _Stepped:
        step_key = jax.random.fold_in(key, state.step)
        batch, mix = _drawn(batch, step_key, mixup_alpha, cutmix_alpha, masked)
        count = jnp.maximum(jnp.sum(batch["_mask"], dtype=jnp.float32), 1.0)
        loss_fn = functools.partial(summed_loss, **mix)
        grads, sums = mean_gradients(loss_fn, state.params, batch, step_key, accumulation, count)
        updates, after = _updated(state, grads, tx, ema_decay)
        if norm_of_change:
            updates = jax.tree.map(jnp.subtract, after.params, state.params)
        measured = {"loss": sums[0] / count, "top1": sums[1] / count}
        measured |= _norms(grad_norm=grads, update_norm=updates)
        kept, measured = _unless_finite(state, after, measured)
        # The old parameters are overwritten: their norm would cost a copy of them.
        return kept, measured | _norms(param_norm=kept.params)

    return train_step


def make_eval_step(
    apply: Apply,
    *,
    classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    loss: str,
    scores: bool = False,
) -> Callable[[PyTree, Batch], dict[str, Any]]:
    """Returns the function (params, batch) -> `metrics.sums` of it, without label smoothing.

    A batch with `columns` (see `metrics.of_columns`) belongs to a data set of other classes: its
    labels and the predictions are numbers of columns. With `scores`, the result also has `scores`:
    `logits` float32 [B, Y], and `labels` and `mask` of the batch.
    """
    loss_fn = losses.find(loss)

    def eval_step(params: PyTree, batch: Batch) -> dict[str, Any]:
        logits_BY = apply(params, normalise(batch["image"], mean, std), train=False, key=None)
        known = classes
        if "columns" in batch:
            logits_BY = metrics.of_columns(logits_BY, batch["columns"])
            known = logits_BY.shape[1]
        loss_B = loss_fn(logits_BY, losses.multi_hot(batch["labels"], known))
        sums = metrics.sums(logits_BY, batch["labels"], batch["_mask"], loss_B)
        seen = {"logits": logits_BY, "labels": batch["labels"], "_mask": batch["_mask"]}
        return sums | ({"scores": seen} if scores else {})

    return eval_step


def make_masked_eval_step(
    apply: Apply, masked: "Masked", *, mean: tuple[float, ...], std: tuple[float, ...]
) -> Callable[[PyTree, Batch], dict[str, jax.Array]]:
    """Returns (params, batch) -> `Masked.sums`; an image is corrupted the same way every time."""
    sums = _masked_sums(apply, masked, mean, std, train=False)

    def eval_step(params: PyTree, batch: Batch) -> dict[str, jax.Array]:
        from vit_jax.step.masked_patches import image_keys

        corruption = masked.draw(image_keys(batch["image"]))
        return sums(params, batch | {"corruption": corruption}, None)

    return eval_step


def non_finite(rows: dict[str, float]) -> str | None:
    """Returns the name of the first metric that is not finite, or None."""
    return next((name for name, value in rows.items() if not math.isfinite(value)), None)
