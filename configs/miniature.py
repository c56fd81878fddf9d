# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Repeats the paper's experiments in miniature, on real images and a CPU, with claims fixed before.

    D=runs/miniature
    vit_jax sweep --config=configs/miniature.py:tier=hour --workdir=$D/hour --parallel=2
    vit_jax sweep --config=configs/miniature.py:tier=evening --workdir=$D/evening --parallel=2
    vit_jax table miniature --runs=$D

    tier       hour | evening | night; a sweep also takes rates-hour | rates-evening
    execution  1 | 2: the seeds of a sweep, 0 to 7 or 8 to 15 (night: 0 to 2 or 3 to 5)
    dataset    cifar100 (pre-training) | cifar10 (transfer) | digits; evening, night: only cifar100
    model      hour: vit | hybrid; evening: vit | bit; night: also hybrid, vit_large, bit_large
    method     scratch | finetune, which needs --config.init=RUN
    posemb     for digits: learned1d | learned2d | none
    examples   training images, evening: 2000 | 10000 | 48000 (all that are not held out);
               night: 2500 | 10000 | 50000
    lr         a rate to try; the run then measures only the held-out images. 0: the chosen rate
    cifar100, cifar10    their sources; default: TFDS. Others, such as folder:PATH, need the splits
               train and test; no comma in a path

The claims, their criteria, models and lengths were fixed before the first result. The rates were
then chosen on held-out images with seed 100, which no claim uses: for each arm the one of three
with the best top-1. docs/miniature.md lists what each rate reached.

Time in seconds of one core. Training speed in images per second of CPU time, measured over 51,200
images: vit 2,330, hybrid about 1,900, bit 1,170; start, compilation and reading 20 for each run.

    hour, 8 seeds     960    digits: 24 runs x 120 epochs x 1,280 images
                    2,760    pre-training of vit and hybrid, 300,000 images
                      700    fine-tuning of both, 40,000 images
                    1,000    vit from scratch, 200,000 images
                    5,400    45 minutes of two cores
    evening, 8 seeds 2,740   vit: 100,000 + 300,000 + 600,000 images, and tests
                    8,500    bit: the same
                   11,240    94 minutes of two cores
    night, 3 seeds  36,000   10 hours of two cores have been estimated; it has not been run
"""

import math
from typing import Any

from configs import base, quickstart
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown

SOURCES = {"cifar100": "tfds:cifar100", "cifar10": "tfds:cifar10"}
POSEMBS = ("learned1d", "learned2d", "none")
SEEDS = {"hour": 8, "evening": 8, "night": 3}  # of each execution
RATES_SEED = 100  # chooses rates, and is in no execution
EARLY = "test/top1 at best val/top1"  # of all evaluations of a run

_ENCODER = {"variant": "custom/4", "width": 96, "depth": 4, "mlp": 192, "heads": 3}
_WIDER = {"variant": "custom/8", "width": 128, "depth": 4, "mlp": 256, "heads": 4}
_SMALL = {"stem": "small", "stem_stride": 2, "root_width": 32}
# At 16 pixels; vit and hybrid have a grid of 4 x 4.
MODELS: dict[str, dict[str, Any]] = {
    "vit": _ENCODER,
    "hybrid": {**_ENCODER, "variant": "R+custom/4", **_SMALL},  # the root alone
    "bit": {"variant": "BiT-custom", "stages": (1, 1, 1), **_SMALL},
}
# At 32 pixels.
NIGHT_MODELS: dict[str, dict[str, Any]] = {
    "vit": _WIDER,
    "vit_large": {"variant": "custom/8", "width": 192, "depth": 6, "mlp": 384, "heads": 6},
    "hybrid": {**_WIDER, "variant": "R+custom/8", **_SMALL},
    "bit": MODELS["bit"],
    "bit_large": {**MODELS["bit"], "stages": (2, 2, 2)},
}
OF_TIER = {"hour": ("vit", "hybrid"), "evening": ("vit", "bit"), "night": tuple(NIGHT_MODELS)}
SIZES = {"evening": (2_000, 10_000, 48_000), "night": (2_500, 10_000, 50_000)}

# Images that a run sees, all its epochs together.
PRETRAIN = {"vit": 300_000, "hybrid": 290_276}  # of equal FLOPs
SCRATCH, FINETUNE = 200_000, 40_000
EVENING = {2_000: 100_000, 10_000: 300_000, 48_000: 600_000}
NIGHT = 200_000
LABELLED = 1_000  # images of CIFAR-10, 100 of each class

TRIED = (1e-3, 3e-3, 1e-2)
TRIED_FINETUNE = (3e-4, 1e-3, 3e-3)
# The peak rate of each arm: (model, stage of the hour), (model, examples of the evening).
RATES: dict[tuple[str, Any], float] = {
    ("vit", "pretrain"): 3e-3, ("hybrid", "pretrain"): 3e-3,
    ("vit", "scratch"): 3e-3, ("vit", "finetune"): 1e-3, ("hybrid", "finetune"): 3e-3,
    ("vit", 2_000): 3e-3, ("vit", 10_000): 1e-3, ("vit", 48_000): 3e-3,
    ("bit", 2_000): 1e-2, ("bit", 10_000): 1e-2, ("bit", 48_000): 1e-2,
}  # fmt: skip

_OWN = {"tier": "hour", "dataset": "cifar100", "model": "vit", "method": "scratch",
        "posemb": "learned1d", "examples": 0, "lr": 0.0}  # fmt: skip


def cell(**changes: Any) -> str:
    """Returns the arguments of this recipe that describe a run: its `recipe.protocol`."""
    kept = {key: changes.get(key, usual) for key, usual in _OWN.items()}
    return ",".join(f"{k}={v}" for k, v in kept.items() if k == "tier" or v != _OWN[k])


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(arg, **_OWN, **SOURCES, execution=1)
    _check(args)
    config = quickstart.get_config() if args.dataset == "digits" else _images(args)
    if args.dataset == "digits":
        config.model.posemb = args.posemb
        config.expected.metric = ""
        config.evals.val.every = "0"
    config.checkpoint.every = "0"
    config.report.writers = ()
    config.report.page = False  # `vit_jax report` makes it of those that one wants to look at
    config.recipe.name = "miniature"
    config.recipe.protocol = cell(**{key: args[key] for key in _OWN})
    config.recipe.stage = "select" if args.lr else "final"
    if args.method == "finetune":
        config.recipe.upstream = "cifar100"
    return config


def _check(args: Any) -> None:
    if args.tier not in SEEDS:
        raise unknown("tier", args.tier, SEEDS)
    hour = args.tier == "hour"
    options = {
        "dataset": ("digits", *SOURCES) if hour else ("cifar100",),
        "model": OF_TIER[args.tier],
        "method": ("scratch", "finetune") if args.dataset == "cifar10" else ("scratch",),
        "posemb": POSEMBS if args.dataset == "digits" else ("learned1d",),
        "examples": ("0",) if hour else tuple(map(str, SIZES[args.tier])),
        "execution": ("1", "2"),
    }
    for key, known in options.items():
        if str(args[key]) not in known:
            raise unknown(
                f"{key} of tier={args.tier}, dataset={args.dataset}", str(args[key]), known
            )
    if args.dataset == "digits" and (args.model != "vit" or args.lr):
        raise BadInput("dataset=digits has the quickstart's model and rate; leave out model, lr.")
    if args.tier == "night" and args.lr:
        raise BadInput("tier=night has one rate; leave out lr.")
    if args.dataset == "cifar10" and args.method == "scratch" and args.model != "vit":
        raise BadInput("only vit is trained from scratch on cifar10; give model=vit.")


def _images(args: Any) -> Any:
    """Returns the configuration of every dataset but digits."""
    config = base.get_config()
    night = args.tier == "night"
    config.model.update((NIGHT_MODELS if night else MODELS)[args.model])
    config.data.source = args[args.dataset]
    config.data.test_percent = 0
    config.data.cache = "decoded"
    config.optimizer.weight_decay = 0.1
    config.schedule.warmup = "10 percent"
    if night:
        _night(config, args)
        return config
    size = 16
    config.batch_size = 128
    config.data.image_size = size
    config.data.val_percent = 4
    config.data.train_ops = "decode|resize({size})|shift(1)|flip_lr"
    if args.tier == "evening":
        arm, images = args.examples, EVENING[args.examples]
        config.data.examples = 0 if args.examples == SIZES["evening"][-1] else args.examples
    elif args.dataset == "cifar100":
        arm, images = "pretrain", PRETRAIN[args.model]
    else:
        arm, images = args.method, FINETUNE if args.method == "finetune" else SCRATCH
        config.data.examples = LABELLED
    config.data.balanced = bool(config.data.examples)
    config.length = f"{images} examples"
    config.schedule.lr = args.lr or RATES[args.model, arm]
    _evaluations(config, early=arm != "pretrain", test=not args.lr)
    return config


def _evaluations(config: Any, *, early: bool, test: bool) -> None:
    """Measures val and test at the end, or `early` after each tenth of the run."""
    config.evals.val.every = "10 percent" if early else "0"
    config.evals.test.every = config.evals.val.every
    if not test or not early:
        with config.evals.unlocked():
            del config.evals.test


def _night(config: Any, args: Any) -> None:
    config.batch_size = 32
    config.data.image_size = 32
    config.data.val_percent = 0
    config.data.train_ops = "decode|resize({size})|shift(2)|flip_lr"
    config.data.examples = 0 if args.examples == SIZES["night"][-1] else args.examples
    config.data.balanced = bool(config.data.examples)
    config.length = f"{NIGHT} examples"
    config.schedule.lr = 1e-3
    config.fewshot.sources = (("cifar10", args["cifar10"]),)
    config.fewshot.shots = (5, 25)
    with config.evals.unlocked():
        del config.evals.val  # nothing is selected


# ---------------------------------------------------------------- sweep


def sweep(arg=None):
    """Returns the stages of a tier, or those that try rates."""
    sweeps = {
        "hour": _hour, "evening": _sizes, "night": _sizes,
        "rates-hour": _rates_hour, "rates-evening": _rates_evening,
    }  # fmt: skip
    args = parse_args(arg, **_OWN, **SOURCES, execution=1)
    if args.tier not in sweeps:
        raise unknown("tier", args.tier, sweeps)
    return sweeps[args.tier](args)


def _seeds(args: Any) -> range:
    count = SEEDS[args.tier]
    return range(count * (args.execution - 1), count * args.execution)


def _hour(args: Any) -> dict[str, Any]:
    seeds = _seeds(args)
    return {
        "posemb": [
            {":dataset": "digits", ":posemb": kind, "seed": seed}
            for seed in seeds
            for kind in POSEMBS
        ],
        "scratch": [{":dataset": "cifar10", "seed": seed} for seed in seeds],
        "pretrain": [
            {":model": model, "seed": seed} for seed in seeds for model in OF_TIER["hour"]
        ],
        "transfer": lambda rows: [
            {
                ":dataset": "cifar10", ":method": "finetune", ":model": row[":model"],
                "seed": row["seed"], "init": row["workdir"],
            }
            for row in rows
        ],
    }  # fmt: skip


def _sizes(args: Any) -> list[dict[str, Any]]:
    return [
        {":model": model, ":examples": examples, "seed": seed}
        for seed in _seeds(args)
        for examples in SIZES[args.tier]
        for model in OF_TIER[args.tier]
    ]


def _rates_hour(args: Any) -> dict[str, Any]:
    del args
    tried = {":tier": "hour", "seed": RATES_SEED}

    def transfer(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        best = [
            max((row for row in rows if row[":model"] == model), key=lambda row: row["val/top1"])
            for model in OF_TIER["hour"]
        ]
        return [
            {
                **tried, ":dataset": "cifar10", ":method": "finetune", ":model": row[":model"],
                ":lr": rate, "init": row["workdir"],
            }
            for row in best
            for rate in TRIED_FINETUNE
        ]  # fmt: skip

    return {
        "scratch": [{**tried, ":dataset": "cifar10", ":lr": rate} for rate in TRIED],
        "pretrain": [
            {**tried, ":model": model, ":lr": rate} for model in OF_TIER["hour"] for rate in TRIED
        ],
        "transfer": transfer,
    }


def _rates_evening(args: Any) -> list[dict[str, Any]]:
    del args
    return [
        {":tier": "evening", ":model": model, ":examples": examples, ":lr": rate,
         "seed": RATES_SEED}
        for examples in SIZES["evening"]
        for model in OF_TIER["evening"]
        for rate in TRIED
    ]  # fmt: skip


# ---------------------------------------------------------------- claims

TOP1 = "test/top1"


def claims() -> list[dict[str, Any]]:
    """Returns the claims and their criteria; vit_jax/experiments/tables/claims.py judges them.

    A claim is about the sum of weight x metric over `terms`, (weight, cell, metric), of each seed.
    """
    return [*_of_hour(), *_of_evening(), *_of_night()]


def _claim(
    tier: str, claim: str, terms: list[tuple[float, str, str]], **more: Any
) -> dict[str, Any]:
    usual = {"test": "above", "margin": 0.0, "unit": "points", "seeds": SEEDS[tier]}
    return {"tier": tier, "claim": claim, "terms": terms, **usual, **more}


def _less(first: str, second: str, metric: str) -> list[tuple[float, str, str]]:
    """Returns the terms of the first cell minus the second."""
    return [(1.0, first, metric), (-1.0, second, metric)]


def _of_hour() -> list[dict[str, Any]]:
    of = {kind: cell(dataset="digits", posemb=kind) for kind in POSEMBS}
    tuned = {
        model: cell(dataset="cifar10", method="finetune", model=model) for model in OF_TIER["hour"]
    }
    return [
        _claim("hour", "a position embedding helps: 1-D over none (digits)",
               _less(of["learned1d"], of["none"], TOP1)),
        _claim("hour", "1-D and 2-D position embeddings are equal (digits)",
               _less(of["learned1d"], of["learned2d"], TOP1), test="equal", margin=1.5),
        _claim("hour", "transfer from CIFAR-100 beats training from scratch (CIFAR-10, ViT)",
               _less(tuned["vit"], cell(dataset="cifar10"), EARLY)),
        _claim("hour", "hybrid beats ViT at small, equal compute (CIFAR-100 to CIFAR-10)",
               _less(tuned["hybrid"], tuned["vit"], EARLY)),
    ]  # fmt: skip


def _slope(tier: str, metric: str) -> list[tuple[float, str, str]]:
    """Returns the terms of the slope of top-1 by log10 of the training images, ViT minus ResNet."""
    x = [math.log10(n) for n in SIZES[tier]]
    middle = sum(x) / len(x)
    spread = sum((value - middle) ** 2 for value in x)
    return [
        (sign * (value - middle) / spread, cell(tier=tier, model=model, examples=n), metric)
        for value, n in zip(x, SIZES[tier], strict=True)
        for model, sign in (("vit", 1), ("bit", -1))
    ]


def _of_evening() -> list[dict[str, Any]]:
    return [
        _claim("evening", "ViT gains on ResNet with data: slope, 2,000 to 48,000 images",
               _slope("evening", EARLY), unit="points per tenfold data"),
    ]  # fmt: skip


def _of_night() -> list[dict[str, Any]]:
    def at(model: str, examples: int) -> str:
        return cell(tier="night", model=model, examples=examples)

    least = SIZES["night"][0]
    return [
        _claim("night", f"the smaller ViT beats the larger at {least} images",
               _less(at("vit", least), at("vit_large", least), TOP1)),
        _claim("night", f"the smaller ResNet beats the larger at {least} images",
               _less(at("bit", least), at("bit_large", least), TOP1)),
        _claim("night", "ViT gains on ResNet with data: slope; no crossover below 50,000 images",
               _slope("night", TOP1), unit="points per tenfold data"),
    ]  # fmt: skip
