# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Chooses how a platform computes a model: layers, attention, and what the backward pass keeps.

Parameters, checkpoints and results are those of any other choice, up to rounding. The figures
behind the choices are in docs/performance.md and docs/experiments.md. Start from `of_run`.
"""

import dataclasses
import math
from typing import Any

from vit_jax.config import images as images_lib
from vit_jax.config import sections, timeline, trainable
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.models import attention, products, variants
from vit_jax.sharding import Rules
from vit_jax.step.objective import Objective

# platform -> FLOPs of a run on one device above which the layers are unrolled. Each layer is then
# compiled: on a CPU a third of a second for a tenth of each step (1e13 is a minute on two cores),
# on a TPU some seconds for two fifths of each step (1e16 is two minutes on a v5e), on a GPU two
# thirds of a second for a third of each step (1e16 is a minute on an H100).
_UNROLLED_ABOVE = {"cpu": 1e13, "tpu": 1e16, "gpu": 1e16}

# TPUs on which scores of packed heads are faster with keys before queries. On others only those of
# a head alone in its group are.
_KEYS_FIRST = ("v6e", "tpu7x")
# Width from which, on these, unrolled layers with several heads in a group are faster with tokens
# in one memory order: B/16 is, S/16 is not.
_IN_ORDER_FROM = 768
# TPU -> numbers of a head above which heads are faster apart, up to 80 numbers. Such a head is
# alone in its group, and newer compilers copy packed ones.
_APART_ABOVE = {"v6e": 64, "tpu7x": 72}
# Tokens below which heads apart and tokens in order are faster: with 257, not with 730.
_IN_ORDER_BELOW = 512

# Tokens from which scores take more memory than all else that a layer keeps.
_SPLASH_FROM = 1024


@dataclasses.dataclass(frozen=True)
class Execution:
    """A model in the form that a platform computes, and the reason in one line."""

    cfg: variants.Config
    reason: str


def of_run(
    config: sections.Config,
    objective: Objective,
    cfg: variants.Config,
    rules: Rules,
    steps: timeline.Steps,
    platform: str,
) -> tuple[Execution, Objective]:
    """Returns the objective's model in the form that these devices compute in a run of this length.

    Also returns the objective for it.
    """
    cfg = objective.model(cfg)
    images, examples = images_lib.of(config.data), config.batch_size * steps.total
    # A user's own model with one form may not know its FLOPs.
    flops = examples * step_flops(objective, cfg, images, config.pack) if cfg.FORMS else 0
    share = flops / rules.mesh.size
    what = trainable.parse(config.trainable)
    chosen = choose(
        cfg, config.model, rules, platform, share, images.size,
        frozen_below=what is not None and what.name == "last",
    )  # fmt: skip
    return chosen, objective.computed(chosen.cfg)


def step_flops(objective: Objective, cfg: Any, images: images_lib.Images, pack: float = 1) -> int:
    """Returns the FLOPs of an example in a training step; objectives count RGB images.

    With `pack` it is the share of an example in a row, in one pass over the batch.
    """
    flops = objective.step_flops(cfg, *images.size)
    if pack > 1:
        flops = round(3 * cfg.packed_flops(*images.size, pack) / pack)
    if images.channels == 3:
        return flops
    forward = variants.forward_flops(cfg, *images.size)
    return flops * variants.forward_flops(cfg, *images.shape) // forward


def choose(
    cfg: variants.Config,
    wanted: sections.Model,
    rules: Rules,
    platform: str,
    flops: float,
    size: tuple[int, int],
    *,
    frozen_below: bool = False,
) -> Execution:
    """Chooses the fastest form that is known for a platform.

    Args:
      cfg: the model in the form that every platform computes.
      wanted: the section `model`.
      rules: the mesh.
      platform: cpu, gpu or tpu.
      flops: FLOPs of the whole run on one device.
      size: rows and columns of the images in pixels.
      frozen_below: whether only the last layers are trained. A scan would compute the backward pass
        of all layers.

    Raises:
      BadInput: `model.attention=fused`, and the platform has no such attention for this model.
    """
    reasons = []
    if "unrolled" in cfg.FORMS:
        cfg, reason = _layers(cfg, wanted.remat, rules, platform, flops, frozen_below)
        reasons.append(reason)
    if "attention" in cfg.FORMS:
        tokens = math.prod(variants.grid(cfg, *size))
        cfg, reason = _attention(cfg, wanted.attention, rules, platform, tokens)
        reasons.append(reason)
    if wanted.remat == "auto":
        layered: Any = cfg
        alone = "unrolled" in cfg.FORMS and (layered.unrolled or not layered.scan)
        # A CPU that stands in for GPUs would keep scores, which cuDNN does not.
        stands_in = platform == "gpu" and rules.mesh.devices.flat[0].platform == "cpu"
        remat = "none" if alone and not stands_in else "dots"
        cfg = dataclasses.replace(cfg, remat=remat)  # a user's own model may have it as a field
        reasons.append(f"remat {remat}")
    return Execution(cfg, "; ".join(reasons) or "the model has one form")


def _layers(
    cfg: Any, remat: str, rules: Rules, platform: str, flops: float, frozen_below: bool
) -> tuple[Any, str]:
    """Chooses between a scan over layers and unrolled layers."""
    if not cfg.scan:
        return cfg, "layers unrolled (model.scan=false)"
    if frozen_below:
        return dataclasses.replace(cfg, unrolled=True), "layers unrolled (only the last learn)"
    why = ""
    if rules.parts("act_tokens") > 1:
        why = "tokens are split over devices"
    elif remat not in ("none", "auto"):  # unrolled, a compiler computes too little again
        why = f"model.remat={remat}"
    elif flops <= _UNROLLED_ABOVE.get(platform, math.inf):
        why = f"{flops:.0e} FLOPs a device do not pay for compiling each layer"
    if why:
        return cfg, f"layers scanned ({why})"
    return dataclasses.replace(cfg, unrolled=True), "layers unrolled"


def _attention(cfg: Any, wanted: str, rules: Rules, platform: str, tokens: int) -> tuple[Any, str]:
    """Chooses the path of attention.

    `model.attention=plain` leaves out attention that never holds all scores, `fused` insists on it.
    """
    device = rules.mesh.devices.flat[0]  # of a CPU, if it stands in for a GPU
    if cfg.attention == "xla" and device.platform == "cpu":
        return cfg, "attention xla (model.attention=fused)"
    why = cfg.fused_refusal()
    if device.platform == "gpu" and wanted != "plain":
        why = why or attention.not_cudnn(
            dtype=products.factors(cfg.dtype).name,
            head_dim=cfg.width // cfg.heads,
            capability=str(device.compute_capability),
        )
        if why and wanted == "fused":
            raise BadInput(f"model.attention=fused: {why}; leave model.attention out.")
        if not why:
            return dataclasses.replace(cfg, attention="cudnn"), "attention cudnn"
    if platform == "tpu" and not why:
        if wanted == "fused" or (wanted == "auto" and tokens >= _SPLASH_FROM):
            reason = f"attention splash ({tokens} tokens)"
            return dataclasses.replace(cfg, attention="splash"), reason
        return _on_tpu(cfg, rules, tokens)
    reason = f"attention memory-efficient{f' ({why})' if why else ''}"
    return dataclasses.replace(cfg, attention="memory_efficient"), reason


def _on_tpu(cfg: Any, rules: Rules, tokens: int) -> tuple[Any, str]:
    """Chooses packed heads or heads apart, and whether tokens are in order."""
    generation = topology.generation_of(rules.mesh.devices.flat[0].device_kind)
    name, head_dim = generation.name if generation else "", cfg.width // cfg.heads
    newer = name in _KEYS_FIRST
    possible = newer and "in_order" in cfg.FORMS and (cfg.unrolled or not cfg.scan)
    possible = possible and tokens < _IN_ORDER_BELOW
    if possible and _APART_ABOVE[name] < head_dim <= 80:
        cfg = dataclasses.replace(cfg, attention="memory_efficient", in_order=True)
        return cfg, f"attention memory-efficient (heads of {head_dim}, tokens in order)"
    beside = attention.heads_in_group(cfg.heads, head_dim, rules)
    how = [f"groups of {beside}"]
    cfg = dataclasses.replace(cfg, attention="packed")
    if newer or beside == 1:
        cfg = dataclasses.replace(cfg, attention="packed_keys_first")
        how.append("keys first")
    if possible and beside > 1 and cfg.width >= _IN_ORDER_FROM:
        cfg = dataclasses.replace(cfg, in_order=True)
        how.append("tokens in order")
    return cfg, f"attention packed ({', '.join(how)})"
