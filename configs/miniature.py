# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Repeats the paper's experiments in miniature, on real images and a CPU, with claims fixed before.

    vit_jax sweep --config=configs/miniature.py:tier=hour --workdir=runs/miniature --parallel=2
    vit_jax table miniature --runs=runs/miniature

    tier      hour | night
    dataset   cifar100 (pre-training) | cifar10, flowers, fashion (transfer) | digits
    model     vit | hybrid | bit; vit_long: as vit, with the FLOPs of hybrid; night: also vit_large,
              bit_large
    method    scratch | finetune, which needs --config.init=RUN
    size      pixels per side: 32, for flowers also 64
    posemb    for digits: learned1d | learned2d | none
    examples  for the night: images of CIFAR-100, 2500 | 10000 | 50000
    cifar100, cifar10, flowers, fashion    their sources; default: TFDS. Others, such as folder:PATH
              or csv:FILE, need the splits train (flowers also val) and test; no comma in a path

Time of the hour on 2 cores, in seconds. Training rates were measured over a few dozen steps each,
in images per second of CPU time of one core (other work ran on the machine), and then doubled: vit
680, hybrid 595, bit 309, vit at 64 pixels 171, digits 3,850. An image therefore costs 1.5 + 1.7 +
3.2 = 6.4 ms in the three models, and 8.0 ms with vit_long. Evaluating it costs a third of this.

    606    78 processes of 14 s to start, 12 of them 10 s more for few-shot data, two at a time
    359    digits: 9 runs x 120 epochs x 1,280 images
    960    pre-training: 3 seeds x 40,000 images x 8.0 ms
    230    its few-shot evaluation: 3 seeds x 29,000 images x 8.0 / 3 ms
    461    scratch and fine-tuning: 18 x 4,000 images x 6.4 ms
    334    their tests: 6 x 26,149 images x 6.4 / 3 ms
    106    flowers at 64 pixels: 3 x (4,000 + 6,149 / 3) images / 171
    3056   51 minutes; measured on a later machine without other work: 45

Time of the night: vit_large trains 291 images per second and bit_large 147. 3 sizes x 3 seeds x
200,000 images x 16.6 ms are 8.3 hours; starts and tests take another 0.5.
"""

import math
from typing import Any

from configs import base, quickstart
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown

SOURCES = {
    "cifar100": "tfds:cifar100",
    "cifar10": "tfds:cifar10",
    "flowers": "tfds:oxford_flowers102",
    "fashion": "tfds:fashion_mnist",
}
TASKS = ("cifar10", "flowers", "fashion")  # transfer
TRAINED_ON = {"cifar10": 1000, "fashion": 1000, "flowers": 0}  # images; 0: all 1,020
SEEDS = (0, 1, 2)
POSEMBS = ("learned1d", "learned2d", "none")
DATA_SIZES = (2_500, 10_000, 50_000)

# Images that a run sees, all its epochs together; the module has the arithmetic.
PRETRAIN_IMAGES = 40_000
TRANSFER_IMAGES = 4_000
NIGHT_IMAGES = 200_000

_ENCODER = {"width": 128, "depth": 4, "mlp": 256, "heads": 4}
_SMALL = {"stem": "small", "stem_stride": 2, "root_width": 32}
# At 32 pixels all have a grid of 4 x 4.
MODELS: dict[str, dict[str, Any]] = {
    "vit": {"variant": "custom/8", **_ENCODER},
    "hybrid": {"variant": "R+custom/8", **_SMALL, **_ENCODER},  # the root alone
    "bit": {"variant": "BiT-custom", "stages": (1, 1, 1), **_SMALL},
    "vit_long": {"variant": "custom/8", **_ENCODER},
    "vit_large": {"variant": "custom/8", "width": 192, "depth": 6, "mlp": 384, "heads": 6},
    "bit_large": {"variant": "BiT-custom", "stages": (2, 2, 2), **_SMALL},
}
HOUR, NIGHT = ("vit", "hybrid", "bit"), ("vit", "vit_large", "hybrid", "bit", "bit_large")
LONGER = 1.0912  # images of vit_long, whose FLOPs are then those of hybrid

_OWN = {"tier": "hour", "dataset": "cifar100", "model": "vit", "method": "scratch", "size": 32,
        "posemb": "learned1d", "examples": 0}  # fmt: skip


def cell(**changes: Any) -> str:
    """Returns the arguments of this recipe that describe a run: its `recipe.protocol`."""
    kept = {key: changes.get(key, usual) for key, usual in _OWN.items()}
    return ",".join(f"{k}={v}" for k, v in kept.items() if k == "tier" or v != _OWN[k])


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(arg, **_OWN, **SOURCES)
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
    config.recipe.stage = "final"  # nothing is selected
    if args.method == "finetune":
        config.recipe.upstream = "cifar100"
    return config


def _check(args: Any) -> None:
    options = {
        "tier": ("hour", "night"),
        "dataset": ("digits", *SOURCES) if args.tier == "hour" else ("cifar100",),
        "model": ("vit_long", *HOUR) if args.tier == "hour" else NIGHT,
        "method": ("scratch", "finetune") if args.dataset in TASKS else ("scratch",),
        "size": ("32", "64") if args.dataset == "flowers" else ("32",),
        "posemb": POSEMBS if args.dataset == "digits" else ("learned1d",),
        "examples": map(str, DATA_SIZES) if args.tier == "night" else ("0",),
    }
    for key, known in options.items():
        known = tuple(known)
        if str(args[key]) not in known:
            raise unknown(
                f"{key} of tier={args.tier}, dataset={args.dataset}", str(args[key]), known
            )
    if args.model == "vit_long" and args.dataset != "cifar100":
        raise BadInput("model=vit_long belongs to dataset=cifar100; give model=vit.")
    if args.model != "vit" and args.dataset == "digits":
        raise BadInput("dataset=digits has the quickstart's model; leave model out.")


def _images(args: Any) -> Any:
    """Returns the configuration of every dataset but digits."""
    config = base.get_config()
    config.batch_size = 32
    config.model.update(MODELS[args.model])
    config.data.source = args[args.dataset]
    config.data.val_percent = 0
    config.data.test_percent = 0
    config.data.image_size = args.size
    config.data.train_ops = f"decode|resize({{size}})|shift({args.size // 16})|flip_lr"
    config.optimizer.weight_decay = 0.1
    config.schedule.lr = 1e-3
    config.schedule.warmup = "10 percent"
    if args.dataset in TASKS:
        _transfer(config, args)
    else:
        _pretraining(config, args)
    return config


def _pretraining(config: Any, args: Any) -> None:
    sources = tuple((name, args[name]) for name in TASKS)
    images = PRETRAIN_IMAGES
    if args.tier == "night":
        images, sources = NIGHT_IMAGES, sources[:1]
        config.data.examples = 0 if args.examples == DATA_SIZES[-1] else args.examples
        config.data.balanced = bool(config.data.examples)
        config.data.cache = "decoded"  # 4 to 80 epochs; the hour has too few to gain by it
        _only_test(config)
    else:
        config.data.val_percent = 2
        config.evals.val.every = "0"
        with config.evals.unlocked():
            del config.evals.test  # no claim is about it
    if args.model == "vit_long":
        images = round(LONGER * images)
    config.length = f"{images} examples"
    config.fewshot.sources = sources
    config.fewshot.shots = (5, 25)


def _transfer(config: Any, args: Any) -> None:
    config.length = f"{TRANSFER_IMAGES} examples"
    config.data.examples = TRAINED_ON[args.dataset]
    config.data.balanced = bool(config.data.examples)
    if args.method == "finetune":
        config.schedule.lr = 5e-4
    _only_test(config)


def _only_test(config: Any) -> None:
    """Keeps only the evaluation of test, because nothing is selected."""
    with config.evals.unlocked():
        del config.evals.val


# ---------------------------------------------------------------- sweep


def sweep(arg=None):
    """Returns the stages posemb, scratch, pretrain, transfer of the hour, or the night's points."""
    args = parse_args(arg, **_OWN, **SOURCES)
    if args.tier == "night":
        return [
            {":model": model, ":examples": examples, "seed": seed}
            for seed in SEEDS
            for examples in DATA_SIZES
            for model in NIGHT
        ]
    return {
        "posemb": [
            {":dataset": "digits", ":posemb": kind, "seed": seed}
            for seed in SEEDS
            for kind in POSEMBS
        ],
        "scratch": [
            {":dataset": task, ":model": model, "seed": seed}
            for seed in SEEDS
            for model in HOUR
            for task in TASKS
        ],
        "pretrain": [
            {":model": model, "seed": seed} for seed in SEEDS for model in (*HOUR, "vit_long")
        ],
        "transfer": _fine_tuning,
    }


def _fine_tuning(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the points that fine-tune each pre-training with its seed."""
    points = []
    for row in rows:
        of_row = {":method": "finetune", ":model": row[":model"], "seed": row["seed"]}
        for task in TASKS if row[":model"] in HOUR else ():
            points.append({":dataset": task, **of_row, "init": row["workdir"]})
        if row[":model"] == "vit":
            points.append({":dataset": "flowers", ":size": 64, **of_row, "init": row["workdir"]})
    return points


# ---------------------------------------------------------------- claims

TOP1 = "test/top1"


def claims() -> list[dict[str, Any]]:
    """Returns the claims and their criteria; vit_jax/experiments/tables/claims.py judges them.

    A claim is about the sum of weight x metric over `terms`, (weight, cell, metric), of each seed.
    """
    return [*_of_transfer(), *_of_posemb(), *_of_hour(), *_of_night()]


def _claim(
    tier: str, claim: str, terms: list[tuple[float, str, str]], **more: Any
) -> dict[str, Any]:
    usual = {"test": "above", "margin": 0.0, "unit": "points", "seeds": len(SEEDS)}
    return {"tier": tier, "claim": claim, "terms": terms, **usual, **more}


def _less(
    first: list[str], second: list[str], metrics: tuple[str, ...] = (TOP1,)
) -> list[tuple[float, str, str]]:
    """Returns the terms of the mean over the first cells minus the mean over the second."""
    return [
        (sign / (len(cells) * len(metrics)), one, metric)
        for sign, cells in ((1, first), (-1, second))
        for one in cells
        for metric in metrics
    ]


def _of_transfer() -> list[dict[str, Any]]:
    def cells(task: str, method: str) -> list[str]:
        return [cell(dataset=task, model=model, method=method) for model in HOUR]

    return [
        _claim("hour", f"transfer beats scratch on {task}, mean of the three models",
               _less(cells(task, "finetune"), cells(task, "scratch")))
        for task in TASKS
    ]  # fmt: skip


def _of_posemb() -> list[dict[str, Any]]:
    of = {kind: [cell(dataset="digits", posemb=kind)] for kind in POSEMBS}
    return [
        _claim("hour", "no position embedding is worse than 1-D (digits)",
               _less(of["learned1d"], of["none"])),
        _claim("hour", "no position embedding is worse than 2-D (digits)",
               _less(of["learned2d"], of["none"])),
        _claim("hour", "1-D and 2-D position embeddings are equal (digits)",
               _less(of["learned1d"], of["learned2d"]), test="equal", margin=1.5),
        _claim("hour", "similarity of position embeddings falls with distance (CIFAR-100)",
               [(1.0, cell(model="vit"), "posemb/distance_correlation")], test="below",
               unit="rank correlation"),
    ]  # fmt: skip


def _of_hour() -> list[dict[str, Any]]:
    shots = tuple(f"fewshot_{task}/25shot" for task in TASKS)
    flowers = {"dataset": "flowers", "method": "finetune"}
    return [
        _claim("hour", "more pixels help: flowers at 64 over 32",
               _less([cell(**flowers, size=64)], [cell(**flowers)])),
        _claim("hour", "hybrid beats ViT at small, equal compute, 25-shot mean of three tasks",
               _less([cell(model="hybrid")], [cell(model="vit_long")], shots)),
    ]  # fmt: skip


def _of_night() -> list[dict[str, Any]]:
    def at(model: str, examples: int) -> str:
        return cell(tier="night", model=model, examples=examples)

    least = DATA_SIZES[0]
    x = [math.log10(n) for n in DATA_SIZES]
    middle = sum(x) / len(x)
    spread = sum((value - middle) ** 2 for value in x)
    slope = [
        (sign * (value - middle) / spread, at(model, n), TOP1)
        for value, n in zip(x, DATA_SIZES, strict=True)
        for model, sign in (("vit", 1), ("bit", -1))
    ]
    return [
        _claim("night", f"the smaller ViT beats the larger at {least} images",
               _less([at("vit", least)], [at("vit_large", least)])),
        _claim("night", f"the smaller ResNet beats the larger at {least} images",
               _less([at("bit", least)], [at("bit_large", least)])),
        _claim("night", "ViT gains on ResNet with data: slope; no crossover below 50,000 images",
               slope, unit="points per tenfold data"),
    ]  # fmt: skip
