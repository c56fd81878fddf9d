# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Self-distillation: a student predicts what its own moving average, the teacher, sees elsewhere.

DINO (arXiv:2104.14294) compares the representations of several crops, iBOT (arXiv:2111.07832) also
those of masked patches; with KoLeo and Sinkhorn-Knopp they are DINOv2 (arXiv:2304.07193), with Gram
anchoring DINOv3 (arXiv:2508.10104). The teacher is the state's average of the parameters. All that
compares images sees the global batch, on any mesh, with any accumulation. Axes: B batch, T = 2
global views, N local views, V views, L patches, M masked patches, D width, K prototypes, A
micro-batches. Start from `Dino.sums`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config import schema
from vit_jax.errors import BadInput
from vit_jax.sharding import Axes
from vit_jax.step import block_masks, gram, metrics, multicrop, prototype_head, spread
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, PyTree, Sums

_MASKING = 2**31 + 2  # stands for a micro-batch's number in the key of masking


class InRun(NamedTuple):
    """Pixels of a patch, and durations in steps."""

    stride: int = 1
    warmup: int = 0
    frozen: int = 0
    gram_from: int = 0
    gram_every: int = 0


_WIDTH, _HEAT, _WEIGHT = (1, 2**20), (1e-3, 10), (0, 1e6)
_LIMITS: dict[str, tuple[float, float]] = {
    "local": (0, 64), "local_size": (1, 2**16), "prototypes": (2, 2**24), "hidden": _WIDTH,
    "bottleneck": _WIDTH, "temperature": _HEAT, "teacher_temperature": _HEAT,
    "first_temperature": _HEAT, "centre_momentum": (0, 1), "ibot": _WEIGHT, "koleo": _WEIGHT,
    "gram": _WEIGHT,
}  # fmt: skip
_Seen = tuple[list[jax.Array], jax.Array]  # [B, T, K] (and iBOT's [B, M, K]), and [B, T, D]


@dataclasses.dataclass(frozen=True)
class Dino(Objective):
    """The objective; the defaults are DINO. DINOv2 has ibot=1, koleo=0.1 and sinkhorn.

    Attributes:
      local: N, local views of each image.
      local_size: their side in pixels.
      prototypes: K, outputs of a head.
      hidden: width of the two hidden layers of a head.
      bottleneck: width of its unit vectors.
      separate: whether patches have a head of their own.
      temperature: divides the student's logits.
      teacher_temperature: divides the teacher's, at the end of the warm-up.
      first_temperature: at its beginning.
      warmup: duration of this linear warm-up.
      frozen: duration at the start in which the prototypes get no gradient.
      centring: what keeps the teacher's targets from becoming all alike: `mean` takes the moving
        mean off its logits, `sinkhorn` spreads the targets of a batch evenly over the prototypes.
      centre_momentum: decay per step of the moving mean.
      ibot: weight of the loss of masked patches; 0: none is masked.
      masked: lowest and highest share of the patches that are masked in a view.
      koleo: weight of the entropy estimate that keeps representations apart.
      gram: weight of Gram anchoring; 0: there is none.
      gram_from: duration at the start without it. At its end, the earlier teacher becomes the
        teacher; with 0 it is the model at the start, such as that of `init`.
      gram_every: duration after which it becomes the teacher again; 0: never.
      keep_heads: whether heads and mask token come from the run that `init` names. Its centres do
        not: they begin at 0, and hold the means of some 1 / (1 - centre_momentum) steps soon.
      run: left out; the run sets it.
    """

    local: int = 8
    local_size: int = 96
    prototypes: int = 65536
    hidden: int = 2048
    bottleneck: int = 256
    separate: bool = False
    temperature: float = 0.1
    teacher_temperature: float = 0.07
    first_temperature: float = 0.04
    warmup: str = "10 percent"
    frozen: str = "1 epochs"
    centring: Literal["mean", "sinkhorn", "none"] = "mean"
    centre_momentum: float = 0.9
    ibot: float = 0.0
    masked: tuple[float, float] = (0.1, 0.5)
    koleo: float = 0.0
    gram: float = 0.0
    gram_from: str = "0"
    gram_every: str = "10000 steps"
    keep_heads: bool = False
    run: InRun = InRun()  # noqa: RUF009 - it is immutable

    METRICS = ("loss", "dino", "ibot", "koleo", "gram", "entropy", "information", "std")
    METRICS += ("collapsed",)
    EVALUATED = ("loss", "entropy", "information", "std", "rankme")
    SHOWN = ("entropy", "std")
    AVERAGE = True
    AXES: ClassVar[Axes] = prototype_head.AXES

    def __post_init__(self) -> None:
        self.check_numbers(_LIMITS)
        self.check_choices({"centring": ("mean", "sinkhorn", "none")})
        block_masks.check("masked", self.masked)
        for text in (self.warmup, self.frozen, self.gram_from, self.gram_every):
            schema.parse_duration("objective", text)

    def model(self, cfg: Any) -> Any:
        if self.local_size % cfg.stride or self.local_size < 2 * cfg.stride:
            raise BadInput(
                f"objective: local_size={self.local_size} is not a multiple of the {cfg.stride} "
                f"pixels of a patch from {2 * cfg.stride} on; give local_size={4 * cfg.stride}."
            )
        return cfg.for_tokens()

    def in_run(self, cfg: Any, in_steps: Callable[[str], int]) -> "Dino":
        durations = (self.warmup, self.frozen, self.gram_from, self.gram_every)
        run = InRun(cfg.stride, *map(in_steps, durations))
        return dataclasses.replace(self, run=run)

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        return multicrop.fields((height, width), self.local, self.local_size, channels)

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        whole, small = (cfg.forward_flops(*s) for s in [(height, width), (self.local_size,) * 2])
        head = 2 * prototype_head.multiply_adds(self._sizes(cfg.width))
        length = math.prod(cfg.patch_grid(height, width))
        patches = block_masks.most(self.masked, length) if self.ibot else 0
        student = 2 * whole + self.local * small + (2 + self.local + patches) * head
        anchoring = 2 * (whole + 2 * gram.multiply_adds(length, cfg.width)) if self.gram else 0
        return 3 * student + 2 * whole + (2 + patches) * head + anchoring

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        sizes = self._sizes(output.shape[-1])
        names = ("dino", "ibot") if self.separate and self.ibot else ("dino",)
        keys = (jax.random.fold_in(key, n) for n in range(len(names)))
        return {n: prototype_head.head(k, sizes) for n, k in zip(names, keys, strict=True)}

    def _sizes(self, width: int) -> list[int]:
        return [width, self.hidden, self.hidden, self.bottleneck, self.prototypes]

    def inherits(self, path: str) -> bool:
        return self.keep_heads and path.startswith(("mask_token", f"{PARAMETERS}/"))

    def kept(self, params: PyTree) -> PyTree:
        centres = ["centre"] + ["patch_centre"] * bool(self.ibot)
        zeros = {name: jnp.zeros(self.prototypes) for name in centres if self.centring == "mean"}
        anchor = {"gram": gram.backbone(params)} if self.gram else {}
        return {"step": jnp.zeros((), jnp.int32), **zeros, **anchor}

    # ------------------------------------------------------------ a training step

    def draw(self, batch: Batch, key: jax.Array) -> tuple[Batch, None]:
        if not self.ibot:
            return batch, None
        rows, columns = (side // self.run.stride for side in multicrop.size(batch))
        keys_B = jax.random.split(jax.random.fold_in(key, _MASKING), len(batch["_mask"]))
        masks = jax.vmap(lambda one: block_masks.draw(one, rows, columns, self.masked))(keys_B)
        return batch | {"masks": masks}, None

    def relate(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, keys: jax.Array
    ) -> Batch:
        """Adds the teacher's targets for Sinkhorn, and KoLeo's gradient by all representations."""
        if self.centring == "sinkhorn":
            seen = jax.lax.map(lambda micro: self._seen(network, kept, micro), batch)
            targets = self._targets(kept, multicrop.joined(seen), multicrop.joined(batch))
            targets = [multicrop.parted(one, len(keys)) for one in targets]
            batch = batch | {"taught": (seen, targets)}
        if self.koleo:
            every_ABTD = jax.lax.map(
                lambda micro: self._studied(network, params, *micro)[:, :, 0], (batch, keys)
            )
            batch = batch | {"koleo": spread.koleo_of_all(every_ABTD, batch["_mask"])}
        return batch

    def sums(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, drawn: None, key: Any
    ) -> Sums:
        """Returns sums of the loss and its parts, and of what `measured` and the centres need."""
        mask_B = batch["_mask"]
        seen, targets = batch.get("taught") or (self._seen(network, kept, batch), None)
        (logits, features_BTD), targets = seen, targets or self._targets(kept, seen, batch)
        tokens_BTLD = self._studied(network, params, batch, key)
        x_BVD, frozen = tokens_BTLD[:, :, 0], kept["step"] < self.run.frozen
        if self.local:
            size, own = multicrop.size(batch), jax.random.fold_in(key, 1)
            options = {"train": True, "key": own, "size": size}
            small = multicrop.tokens(network, params, batch["local"], **options)
            x_BVD = jnp.concatenate([x_BVD, small[:, :, 0]], axis=1)
        log_p_BVK = self._log_p(prototype_head.cosines(params, "dino", x_BVD, frozen))
        parts = {"dino": multicrop.cross_entropy(targets[0], log_p_BVK)}
        if self.ibot:
            x_BMD = block_masks.taken(tokens_BTLD, batch["masks"])
            log_p_BMK = self._log_p(prototype_head.cosines(params, "ibot", x_BMD, frozen))
            parts["ibot"] = block_masks.cross_entropy(targets[1], log_p_BMK, batch["masks"])
        if self.koleo:
            parts["koleo"] = spread.koleo(tokens_BTLD[:, :, 0], mask_B, batch.get("koleo"))
        if self.gram:
            seen = functools.partial(multicrop.patches, network, kept["gram"], batch)
            begun = kept["step"] >= self.run.gram_from
            parts["gram"] = gram.anchored(tokens_BTLD[:, :, 1:], seen, begun)
        weights = {"dino": 1.0, "ibot": self.ibot, "koleo": self.koleo, "gram": self.gram}
        each = parts | {"loss": jnp.asarray(sum(weights[n] * part for n, part in parts.items()))}
        each |= spread.watched(targets[0], features_BTD)
        if self.centring == "mean":
            each |= prototype_head.centres(logits, batch.get("masks"))
        each["examples"] = jnp.ones(len(mask_B))
        return {name: multicrop.total(x, mask_B) for name, x in each.items()}

    def after_update(self, kept: PyTree, params: PyTree, sums: Sums, step: jax.Array) -> PyTree:
        after = {"step": kept["step"] + 1}
        after |= prototype_head.moved_centres(kept, sums, self.centre_momentum)
        if self.gram:
            times = self.run.gram_from, self.run.gram_every
            after["gram"] = gram.refreshed(kept["gram"], kept["average"], after["step"], *times)
        return after

    def measured(self, sums: Sums, count: jax.Array) -> Sums:
        means = {name: x / count for name, x in sums.items()}
        means |= spread.spread(means, jnp)
        means["collapsed"] = spread.collapsed(means)
        return {name: means[name] for name in self.METRICS if name in means}

    # ------------------------------------------------------------ evaluation

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns sums over the global views, whose targets come from `params` too."""
        views = multicrop.pair(batch)
        x_BTD = multicrop.tokens(network, params, views, train=False, key=None)[:, :, 0]
        logits_BTK = prototype_head.cosines(params, "dino", x_BTD)
        target_BTK = self._sharp(logits_BTK, kept, "centre")
        each = {"loss": multicrop.cross_entropy(target_BTK, self._log_p(logits_BTK))}
        each |= spread.watched(target_BTK, x_BTD)
        sums = {name: multicrop.total(x, batch["_mask"]) for name, x in each.items()}
        sums["moments"] = spread.moments(x_BTD, batch["_mask"])
        return sums | {"examples": jnp.sum(batch["_mask"], dtype=jnp.int32)}

    def total(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        means = metrics.total(batches)
        apart = spread.spread(means, np) | {"rankme": spread.rankme(means["moments"])}
        plain = {name: means[name] for name in ("loss", "entropy", "examples")}
        return plain | {name: float(x) for name, x in apart.items()}

    # ------------------------------------------------------------ teacher and student

    def _seen(self, network: Network, kept: PyTree, batch: Batch) -> _Seen:
        teacher, views = kept["average"], multicrop.pair(batch)
        tokens_BTLD = multicrop.tokens(network, teacher, views, train=False, key=None)
        logits = [prototype_head.cosines(teacher, "dino", tokens_BTLD[:, :, 0])]
        if self.ibot:
            x_BMD = block_masks.taken(tokens_BTLD, batch["masks"])
            logits.append(prototype_head.cosines(teacher, "ibot", x_BMD))
        return logits, tokens_BTLD[:, :, 0]

    def _studied(self, network: Network, params: PyTree, batch: Batch, key: Any) -> jax.Array:
        """Returns the student's tokens of the global views, float32 [B, T, 1 + L, D]."""
        more = {}
        if self.ibot:
            source_BTL = batch["masks"].source
            more = {"source_BL": source_BTL.reshape(-1, source_BTL.shape[-1])}
        return multicrop.tokens(network, params, multicrop.pair(batch), train=True, key=key, **more)

    def _targets(self, kept: PyTree, seen: _Seen, batch: Batch) -> list[jax.Array]:
        """Returns the teacher's targets of views and of masked patches; each row sums to 1."""
        mask_B1, targets = batch["_mask"][:, None], []
        for logits_BRK, name in zip(seen[0], ("centre", "patch_centre"), strict=False):
            if self.centring == "sinkhorn":
                real_BR = mask_B1 & jnp.ones(logits_BRK.shape[:2], bool)
                if name == "patch_centre":
                    real_BR &= batch["masks"].weight > 0
                targets.append(prototype_head.sinkhorn(logits_BRK / self._heat(kept), real_BR))
            else:
                targets.append(self._sharp(logits_BRK, kept, name))
        return targets

    def _sharp(self, logits_BRK: jax.Array, kept: PyTree, name: str) -> jax.Array:
        centre_K = kept.get(name, jnp.zeros(self.prototypes))
        log_p_BRK = jax.nn.log_softmax((logits_BRK - centre_K[None, None]) / self._heat(kept))
        return jnp.exp(log_p_BRK)  # of `softmax`, XLA may make a window that is twice as wide as K

    def _heat(self, kept: PyTree) -> jax.Array:
        done = jnp.minimum(kept["step"] / max(self.run.warmup, 1), 1.0)
        return self.first_temperature + done * (self.teacher_temperature - self.first_temperature)

    def _log_p(self, logits: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(logits / self.temperature)
