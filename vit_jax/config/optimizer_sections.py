# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Declares the keys of the optimizer and of the learning rate; `sections` says what a section is.

Start from `Optimizer`.
"""

from dataclasses import dataclass
from typing import Literal

from vit_jax.config.schema import MOST, Range, inside, results

Dtype = Literal["float32", "bfloat16"]

_COUNT, _POSITIVE = Range(0, MOST), Range(1, MOST)
_RATE = Range(0, 1, below=True)
_EPS = Range(0, 10, above=True)
_NOT_NEGATIVE = Range(0, 1e6)
_LARGEST = 1e30  # a float32 holds it

# fmt: off


@dataclass(frozen=True)
class Adamw:
    """Adam (arXiv:1412.6980) with decay apart from the moments."""
    b1: float = results(0.9, "decay of the first moment", _RATE)
    b2: float = results(0.999, "decay of the second moment", _RATE)
    eps: float = results(1e-8, "added to the root of the second moment", _EPS)
    mu_dtype: Dtype = results("float32", "dtype of the first moment")


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum."""
    momentum: float = results(0.9, "factor on the previous momentum", _RATE)
    nesterov: bool = results(False, "use Nesterov momentum")
    accumulator_dtype: Dtype = results("bfloat16", "dtype of the momentum")


@dataclass(frozen=True)
class Adafactor:
    """Adafactor as for ViT-G (arXiv:2106.04560)."""
    momentum: float = results(0.9, "momentum of the update, without bias correction", _RATE)
    beta2_cap: float = results(0.999, "upper bound of the decay 1 - t^-0.8", Range(0, 1))
    min_factored: int = results(32, "smallest dimension that is factored", _POSITIVE)
    accumulator_dtype: Dtype = results("bfloat16", "dtype of the momentum")


@dataclass(frozen=True)
class Lamb:
    """LAMB (arXiv:1904.00962)."""
    b1: float = results(0.9, "decay of the first moment", _RATE)
    b2: float = results(0.999, "decay of the second moment", _RATE)
    eps: float = results(1e-6, "added to the root of the second moment", _EPS)


@dataclass(frozen=True)
class Lion:
    """Lion (arXiv:2302.06675); its rate is 3 to 10 times below that of adamw."""
    b1: float = results(0.9, "share of the momentum in the direction", _RATE)
    b2: float = results(0.99, "decay of the momentum", _RATE)
    mu_dtype: Dtype = results("float32", "dtype of the momentum")


@dataclass(frozen=True)
class Muon:
    """Muon for kernels between hidden layers, Adam for the rest (docs/optimizers.md)."""
    momentum: float = results(0.95, "decay of the momentum of kernels", _RATE)
    iterations: int = results(5, "Newton-Schulz iterations", Range(1, 100))
    rms: float = results(
        0.2, "root mean square of a kernel's update; 0: sqrt(max(1, columns / rows)) times one "
        "with singular values near 1", Range(0, 100))
    b1: float = results(0.9, "Adam: decay of the first moment", _RATE)
    b2: float = results(0.95, "Adam: decay of the second moment", _RATE)
    eps: float = results(1e-8, "Adam: added to the root of the second moment", _EPS)
    mu_dtype: Dtype = results("float32", "dtype of the momentum and of the first moment")


@dataclass(frozen=True)
class Sam:
    """Sharpness-aware minimisation (arXiv:2010.01412) with any optimizer."""
    rho: float = results(
        0.0, "gradients are taken this far uphill, in a second pass; 0: off", _NOT_NEGATIVE)


@dataclass(frozen=True)
class Decay:
    """Weight decay by parameter, for every optimizer."""
    multipliers: tuple[tuple[str, float], ...] = results(
        (), "((path pattern, factor), ...): the first match wins", "multipliers")


@dataclass(frozen=True)
class Optimizer:
    """The way from gradients to updates; patterns are regular expressions for whole paths."""
    name: Literal["adamw", "sgd", "adafactor", "lamb", "lion", "muon"] = results(
        "adamw", "which optimizer (docs/optimizers.md)")
    clip: float = results(
        1.0, "largest global norm of the gradients; 0: no clipping", Range(0, _LARGEST))
    weight_decay: float = results(
        0.0, "decay, multiplied by the learning rate (0.1 in Table 3)", _NOT_NEGATIVE)
    decay_mask: Literal["kernels", "all"] = results("kernels", "parameters that decay")
    decay: Decay = inside(Decay)
    lr_mults: tuple[tuple[str, float], ...] = results(
        (), "((path pattern, factor), ...): the first match wins", "multipliers")
    layer_decay: float = results(
        1.0, "factor on the rate for each layer below the head; 1: off", Range(0, 10))
    freeze: tuple[str, ...] = results(
        (), 'patterns of what keeps its first values, e.g. ("embedding/.*",)', "patterns")
    adamw: Adamw = inside(Adamw)
    sgd: Sgd = inside(Sgd)
    adafactor: Adafactor = inside(Adafactor)
    lamb: Lamb = inside(Lamb)
    lion: Lion = inside(Lion)
    muon: Muon = inside(Muon)
    sam: Sam = inside(Sam)


@dataclass(frozen=True)
class Cosine:
    """A cosine that ends at 0."""


@dataclass(frozen=True)
class Linear:
    """A line."""
    end: float = results(1e-5, "learning rate at the end", _NOT_NEGATIVE)


@dataclass(frozen=True)
class Rsqrt:
    """The inverse square root of the steps (arXiv:2106.04560)."""
    timescale: int = results(
        10000, "steps until the rate has fallen by a factor of sqrt(2)", _POSITIVE, "steps")
    shift: int = results(0, "steps that already count when the warm-up ends", _COUNT, "steps")


@dataclass(frozen=True)
class Step:
    """A constant rate that falls now and then."""
    drops: tuple[str, ...] = results(
        ("30 percent", "60 percent", "90 percent"), "durations until each fall (BiT)", "durations")
    factor: float = results(0.1, "factor on the rate at each drop", Range(0, 10))


@dataclass(frozen=True)
class Schedule:
    """The learning rate."""
    name: Literal["cosine", "linear", "rsqrt", "step"] = results(
        "cosine", "shape after the warm-up")
    lr: float = results(1e-3, "peak learning rate", Range(0, _LARGEST))
    warmup: str = results("0", "duration of the linear warm-up from 0", "duration")
    cooldown: str = results("0", "duration of the linear descent to 0 at the end", "duration")
    cosine: Cosine = inside(Cosine)
    linear: Linear = inside(Linear)
    rsqrt: Rsqrt = inside(Rsqrt)
    step: Step = inside(Step)


# fmt: on
