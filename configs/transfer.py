# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fine-tunes as in the paper (arXiv:2010.11929, appendix B.1.1 and Table 4).

    vit_jax train --config=configs/transfer.py:model=B/16,dataset=cifar10,init=FILE_OR_RUN
        --workdir=runs/cifar10
    vit_jax sweep --config=configs/transfer.py:model=B/16,dataset=cifar10,init=FILE_OR_RUN
        --workdir=runs/cifar10

    model       a name of `vit_jax models`; auto takes it from `init`, if that is a run or a
                published name (else give size= too)
    dataset     cifar10 | cifar100 | pets | flowers | imagenet | vtab/TASK, e.g. vtab/eurosat;
                a sweep also takes several, joined by +, and vtab for all 19 tasks
    init        weights to start from: a run, a file, or a published name. Without it, training
                starts from scratch, which no table of the paper contains
    upstream    dataset of the weights (imagenet21k, imagenet, jft, ...), for tables
    lr          a rate of Table 4: 0.003, 0.01, 0.03, 0.06 for imagenet; 0.001, 0.003, 0.01, 0.03
                for cifar10, cifar100, pets and flowers; 0.01 for VTAB
    rates       for a sweep: the rates of Table 4 to try, joined by +, e.g. 0.01+0.03
    halving     true, for a sweep: stop the weaker half of the rates after 20 % of the steps, and
                again after 50 % (docs/sweeps.md). The paper trains all of them to the end
    stage       select: test is not read; final: trained on all of train, test read at the end
    recipe      paper | hyperrule (BiT-HyperRule, below)
    preprocess  released | paper | big_vision; default: big_vision for weights of AugReg, paper for
                VTAB, else released
    dropout     default: 0.1 for ViT and hybrids, 0.0 for BiT, Mixer and weights of AugReg
    size        pixels per side; 0: 384, or 378 for patches of 14 x 14
    polyak      true: average of parameters at 0.9999, starting from the weights of `init`
    select      true, for a sweep of VTAB tasks: first choose rate and length (leave out lr, recipe)
    standin     true: noise of the dataset's size, for plans and a first step on any machine
    also        for imagenet: other test sets, joined by +, measured at the end; any of real, v2,
                v2_threshold, v2_topimages, a, r, sketch, c, objectnet (docs/evaluation.md); in a
                sweep of several datasets it applies to imagenet only

The recipe is SGD with momentum 0.9, batch 512, cosine, clipping at 1, no weight decay, and a new
head of zeros, at 384 pixels. It runs 20,000 steps on ImageNet, 10,000 on CIFAR, 500 on Pets and
Flowers, and 2,500 on VTAB.

Compute is model.dtype=bfloat16_products: float32 activations, products of bfloat16, which is how a
TPU multiplies the float32 of the published code (inferred to be how the paper ran), and lets a GPU
use fused attention.

Not in the paper: the warm-up. It is that of the released code (500 steps) and of big_vision (100
for Pets and Flowers); VTAB's 200 steps are scenic's. 378 pixels are inferred: they give the 27 x 27
patches that a 14 x 14 convolution makes of 384. Without `lr`, the rate is the one that big_vision
chose for B/32 (0.03 for ImageNet, 0.01 for CIFAR-100, else 0.003). Only the ImageNet rows of Table
2 use polyak=true, with size=512 (L/16) or 518 (H/14). The average is not corrected for its starting
point, which is our choice.

Dropout is an inference, since the paper does not mention it. Every configuration of the authors'
first release has 0.1, and those of L/16, H/14 and R50+B/16 have it to this day. On ImageNet, their
replications with 0.1 agree with Table 5, and those without do not (B/16: 84.12 and 84.53, paper
83.97). AugReg was fine-tuned without. Weights of AugReg are known by their published file name, or
as a run of recipe=augreg; model=auto without a model's name counts as 0.0.

preprocess=released is an Inception crop and mirroring; evaluation resizes to 384. The authors say
twice that they always ran with Inception crops (google-research/vision_transformer issues 46 and
53), and it is the published code. preprocess=paper follows BiT, as the paper says: training images
are resized to 448, randomly cropped to 384 and mirrored. For other sizes the ratio 448/384 is kept
(inferred). It is the default for VTAB, as in scenic's configuration of the follow-up work; tasks
leave out the crop or the mirroring if it changes the label (BiT, appendix F).
preprocess=big_vision is what AugReg's authors fine-tuned with (google-research/big_vision issue
60): an Inception crop, for CIFAR resize_small(448) and a random crop; evaluation takes the central
384 of resize_small(448), at 224 pixels of 256 (inferred, from its pre-training).
`vit_jax table 5 --protocol` lists these choices with their evidence.

Splits. CIFAR trains on 98 % of train, ImageNet on 99 %, Pets and Flowers on 90 %. The rest is val,
and test is only read at the end (for ImageNet, test is its validation split). Flowers is TFDS's
train split of 1,020 images, as in BiT and big_vision (inferred). VTAB tasks train on
train800val200, or with stage=select on train800 with val200 as val. To use other images of the same
classes, give --config.data.source=folder:PATH.

A sweep (docs/sweeps.md) has two stages. `select` measures each rate of Table 4 on val. `final`
trains with the best rate (the smaller one if equal) on all of train with seeds 0, 1 and 2, and
reads test once. `lr` leaves only `final`; `rates` tries fewer rates (AugReg: 0.01+0.03 on
ImageNet). BiT also tries the HyperRule, as in the paper. VTAB has a fixed rate: 19 tasks, three
seeds. With select=true, two rates (0.01, 0.03) and two lengths (500, 2,500 steps) are tried on
val200, and the best mean over the tasks of the sweep is used for all. The paper chooses once for
all 19, and also has two of each, but their values are our choice.

recipe=hyperrule (arXiv:1912.11370, section 3.3) fine-tunes as BiT does: SGD with rate 0.003, which
falls to a tenth after 30, 60 and 90 %, no warm-up, no weight decay, no clipping. It runs 500 steps
below 20,000 examples, 10,000 below 500,000, else 20,000; the last two use mixup 0.1. Images with
fewer than 96 x 96 pixels are resized to 160 and cropped to 128, others to 448 and 384 (BiT-R152x4:
512, 480).
    hyperrule       paper, or code for the differences of the published code: warm-up of 100 or 500
                    steps, drops after 200, 300, 400 of 500 steps, 512 and 480 pixels. The published
                    code also mirrors every image, which we leave out.
    examples, side  for your own images (--config.data.source): their number, and the square root of
                    their area in pixels

`config.expected` is the published result, from Table 5, 2 or 9, for a model, `upstream`, dataset
and size that the paper has, and AugReg's Table 3 for its best files. The tolerance is ours.
B/16 from ImageNet-21k reaches (Table 5): CIFAR-10 98.95 %, CIFAR-100 91.67 %, Pets 94.43 %, Flowers
99.38 %, ImageNet 83.97 %. L/16 from ImageNet-21k on VTAB reaches 72.72 % (Table 2, mean of 19
tasks). CIFAR-10 took 7.2 hours on 8 V100 (google-research/vision_transformer issue 84).
"""

import re
import statistics
from typing import Any

from configs import base
from vit_jax.config import plugins
from vit_jax.config.load import of_run, parse_args
from vit_jax.errors import BadInput, unknown
from vit_jax.paper import expectations, hyperrule, robustness, transfer, vtab

# Recipe's name -> TFDS's. ImageNet's test split would have no labels.
SOURCES = {
    "cifar10": "tfds:cifar10",
    "cifar100": "tfds:cifar100",
    "pets": "tfds:oxford_iiit_pet",
    "flowers": "tfds:oxford_flowers102",
    "imagenet": "tfds:imagenet2012",
}
WARMUP_STEPS = {"cifar10": 500, "cifar100": 500, "imagenet": 500, "pets": 100, "flowers": 100}
USUAL_RATES = {
    "imagenet": 0.03,
    "cifar100": 0.01,
    "cifar10": 0.003,
    "pets": 0.003,
    "flowers": 0.003,
}
DROPOUT = 0.1
STAGES = ("", "select", "final")
FILES = (".npz", ".safetensors")  # `init` that is no run; nobody asks a store about it
HALVING = {"metric": "val/top1", "eta": 2, "rungs": (20, 50), "within": (":dataset",)}
SEEDS = (0, 1, 2)
VTAB_CHOICES = [
    {"schedule.lr": lr, "length": f"{steps} steps"}
    for lr in transfer.VTAB_RATES
    for steps in transfer.VTAB_STEPS
]


def _arguments(arg: str | None) -> Any:
    args = parse_args(
        arg, model="B/16", dataset="cifar10", init="", upstream="", lr=0.0, stage="",
        recipe="paper", preprocess="", dropout=-1.0, size=0, polyak=False, select=False,
        standin=False, rates="", halving=False, also="", hyperrule="paper", examples=0, side=0,
    )  # fmt: skip
    args.variant = _variant(args) if args.model == "auto" else args.model
    return args


def _of_augreg(init: str) -> bool:
    """Returns True if weights are AugReg's, by their published name, timm's, or as a run."""
    if init.startswith("hf:") or init.endswith(FILES):
        return bool(re.search(r"(-(i1k|i21k)-\d+ep-|\.augreg)[^/]*$", init))
    saved = of_run(init)
    return saved is not None and saved.recipe.protocol == "augreg"


def _usual_dropout(args: Any) -> float:
    vit = re.fullmatch(r"(R\d*\+|Flexi-|Axial)?(?!Mixer-)[\w-]+/\d+", args.variant)
    return DROPOUT if vit and not _of_augreg(args.init) else 0.0


def _variant(args: Any) -> str:
    """Returns the model of the weights, from the run or the published name in `init`.

    The configuration itself keeps `auto`, which also takes over what a run set by hand.
    """
    saved = None if args.init.endswith(FILES) else of_run(args.init)
    if saved is not None:
        return saved.model.variant
    name = args.init.rpartition("/")[2].removesuffix(".npz")
    vit = re.match(r"(?:(R\d*)[+_])?(?:ViT-|Mixer-)?([A-Z][a-z]?)_(\d+)(?=-|$)", name)
    bit = re.match(r"(?:BiT-[A-Z]-)?(R\d+x\d+)(?=[-_]|$)", name)
    if vit:
        return "+".join(filter(None, vit.group(1, 2))) + f"/{vit[3]}"
    if bit:
        return f"BiT-{bit[1]}"
    if args.size and args.recipe == "paper":
        return "auto"  # nothing here depends on it
    raise BadInput(
        f"model=auto: init={args.init} does not say what model it is, on which pixels and recipe "
        "depend; give model=, a name of `vit_jax models`."
    )


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = _arguments(arg)
    name, task = _dataset(args.dataset)
    if args.stage not in STAGES:
        raise unknown("stage", args.stage, STAGES[1:])
    if args.recipe not in RECIPES:
        raise unknown("recipe", args.recipe, RECIPES)
    if args.select and not args.stage:
        raise BadInput("select=true works only in `vit_jax sweep` of VTAB tasks; leave it out.")
    if args.rates and not args.stage:
        raise BadInput(f"rates={args.rates} works only in `vit_jax sweep`; for one run give lr=.")
    if args.halving and not args.stage:
        raise BadInput("halving=true works only in `vit_jax sweep`, where rates are compared.")

    config = base.get_config()
    config.init = args.init
    config.model.variant = args.model
    if not plugins.is_own(args.variant):
        config.model.dtype = "bfloat16_products"
    config.data.val_percent = 0
    config.data.test_percent = 0
    config.optimizer.name = "sgd"
    config.checkpoint.every = "10 percent"
    config.recipe.name = "transfer"
    config.recipe.stage = args.stage
    config.recipe.upstream = args.upstream
    config.model.dropout = _usual_dropout(args) if args.dropout == -1 else args.dropout
    if args.polyak:
        config.ema.decay = transfer.polyak()

    _splits(config, args, name, task)
    _add(config, args)
    RECIPES[args.recipe](config, args, name, task)
    if args.standin:
        config.data.source = f"synthetic:{args.dataset}"
        if "test" in config.evals:
            config.evals.test.split = "test"
    return config


def _dataset(text: str) -> tuple[str, vtab.Task | None]:
    """Splits `vtab/eurosat` into ("vtab", its task)."""
    name, _, task = text.partition("/")
    if name not in (*SOURCES, "vtab") or bool(task) != (name == "vtab"):
        raise unknown("dataset", text, [*SOURCES, "vtab/TASK"])
    return name, vtab.find(task) if task else None


def _splits(config: Any, args: Any, name: str, task: vtab.Task | None) -> None:
    """Sets the splits for training and evaluation: never test during selection."""
    if task:
        config.data.source = f"vtab:{task.slug}"
        config.data.split = "train800" if args.stage == "select" else "train800val200"
        config.evals.val.split = "val200"
        config.evals.val.every = "0"
    else:
        held = transfer.table_4()[name].held_out_percent
        config.data.source = SOURCES[name]
        config.data.split = "train" if args.stage == "final" else f"train[:{100 - held}%]"
        config.evals.val.split = f"train[{100 - held}%:]"
        config.evals.val.every = "10 percent"
        config.evals.test.split = "validation" if name == "imagenet" else "test"
    with config.evals.unlocked():
        if args.stage == "select":
            del config.evals.test
        elif args.stage == "final" or task:
            del config.evals.val


def _add(config: Any, args: Any) -> None:
    """Adds the evaluations in `also` at the end of the run, except during selection."""
    known = robustness.sets()
    for name in filter(None, args.also.split("+")):
        if name not in known:
            raise unknown("test set in also", name, known)
        if args.dataset != "imagenet" or args.standin:
            raise BadInput(
                f"also={args.also}: these are test sets of the real ImageNet; leave also out, or "
                "give dataset=imagenet without standin."
            )
        if args.stage == "select":
            continue
        with config.evals.unlocked():
            config.evals[name] = base.evaluation(known[name].split)
        for key in ("source", "labels", "classes"):
            config.evals[name][key] = getattr(known[name], key)


def _paper(config: Any, args: Any, name: str, task: vtab.Task | None) -> None:
    row = transfer.table_4()[name]
    rate = args.lr or USUAL_RATES.get(name, row.rates[0])
    if rate not in row.rates:
        grid = map(str, row.rates)
        raise unknown("lr of Table 4 (others: --config.schedule.lr)", str(rate), grid)
    if args.hyperrule != "paper" or args.examples or args.side:
        raise BadInput("hyperrule, examples and side belong to recipe=hyperrule; leave them out.")
    usual = 378 if args.variant.endswith("/14") else row.resolution
    config.length = f"{row.steps} steps"
    config.batch_size = row.batch_size
    config.data.image_size = args.size or usual
    config.optimizer.sgd.momentum = row.momentum
    config.optimizer.clip = row.clip
    config.optimizer.weight_decay = row.weight_decay
    config.schedule.lr = rate
    config.schedule.warmup = f"{WARMUP_STEPS.get(name, 200)} steps"
    preprocess = args.preprocess or _usual_preprocess(args, task)
    if preprocess not in PREPROCESS:
        raise unknown("preprocess", preprocess, PREPROCESS)
    crop = PREPROCESS[preprocess]
    if preprocess == "big_vision":
        resize = BV_RESIZE.get(config.data.image_size, "bv_resize_small({size*7//6})")
        config.data.eval_ops = f"decode|{resize}|central_crop({{size}})"
        if name.startswith("cifar"):
            crop = f"{resize}|random_crop({{size}})"
    config.data.train_ops = _chain(crop, task)
    of_size = f"-{args.size}" if args.size not in (0, usual) else ""
    config.recipe.protocol = preprocess + of_size + "-polyak" * args.polyak
    if not args.standin:
        base.expect(config, _published(args, config.data.image_size, config.model.dropout))


def _published(args: Any, size: int, dropout: float) -> expectations.Expected | None:
    """Returns the published result of a fine-tuning; None if the weights are not of a paper."""
    saved = None if args.init.endswith(FILES) else of_run(args.init)
    if saved and saved.recipe.name not in ("", "pretrain"):
        of_masked = saved.recipe.name == "masked" and not args.polyak
        return expectations.masked(args.variant, args.dataset, size) if of_masked else None
    if _of_augreg(args.init):
        of = args.init.rpartition("/")[2], args.variant, args.dataset, size
        return None if args.polyak else expectations.of_augreg(*of)
    of = args.variant, args.upstream or expectations.upstream(args.init), args.dataset
    found = expectations.fine_tuned(*of, size=size, polyak=args.polyak)
    if found and dropout == _usual_dropout(args):
        return found
    return expectations.of_readme(*of, size=size, polyak=args.polyak, dropout=dropout)


PREPROCESS = {
    "released": "inception_crop({size})",
    "paper": "resize({size*7//6})|random_crop({size})",  # 448, 384
    "big_vision": "inception_crop({size})",
}
BV_RESIZE = {224: "bv_resize_small({size*8//7})"}  # 256; other sizes: 448 for 384


def _usual_preprocess(args: Any, task: vtab.Task | None) -> str:
    if task:
        return "paper"
    return "big_vision" if _of_augreg(args.init) else "released"


def _hyperrule(config: Any, args: Any, name: str, task: vtab.Task | None) -> None:
    if args.lr or args.size or args.preprocess:
        raise BadInput("recipe=hyperrule chooses lr, size and preprocess; leave them out.")
    if args.hyperrule not in ("paper", "code"):
        raise unknown("hyperrule", args.hyperrule, ("paper", "code"))
    if min(args.examples, args.side) < 0:
        raise BadInput(f"examples={args.examples}, side={args.side}: give 1 or more.")
    examples, side = hyperrule.size(args.dataset)
    rule = hyperrule.rule(
        examples=args.examples or examples,
        side=args.side or side,
        model=args.variant,
        code=args.hyperrule == "code",
    )
    config.length = f"{rule.steps} steps"
    base.optimize_as_bit(config, rule)
    config.data.image_size = rule.crop
    config.data.train_ops = _chain(f"resize({rule.resize})|random_crop({{size}})", task)
    config.mixup.alpha = rule.mixup
    config.schedule.step.drops = rule.drops
    coded = "-code" if args.hyperrule == "code" else ""
    config.recipe.protocol = f"hyperrule{coded}" + "-polyak" * args.polyak


RECIPES = {"paper": _paper, "hyperrule": _hyperrule}


def _chain(crop: str, task: vtab.Task | None) -> str:
    """Returns the training chain, with a resize for tasks without a random crop."""
    crop = crop if task is None or task.random_crop else "resize({size})"
    return f"decode|{crop}" + "|flip_lr" * (task is None or task.horizontal_flip)


# ---------------------------------------------------------------- sweep


def sweep(arg=None):
    """Returns the rates of Table 4 on val, then each dataset's best on test with three seeds."""
    args = _arguments(arg)
    names = args.dataset.split("+")
    names = [n for name in names for n in (_all_of_vtab() if name == "vtab" else [name])]
    named = {name: {":dataset": name} if len(names) > 1 else {} for name in names}
    if args.also and "imagenet" in names:  # whose test sets those are
        for name in names:
            named[name] |= {":also": ""} if name != "imagenet" else {}
    choices = {name: _choices(name, args) for name in names}

    def final(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**named[name], **_best(name, choices[name], rows), ":stage": "final", "seed": seed}
            for name in names
            for seed in SEEDS
        ]

    select = [
        {**named[name], **choice, ":stage": "select"} for name in names for choice in choices[name]
    ]
    if args.halving and (not select or args.select):
        raise BadInput(
            "halving=true stops rates of Table 4 early; leave it out where none are compared (lr, "
            "recipe=hyperrule), and where the tasks of VTAB choose together."
        )
    rule = HALVING if args.halving else None
    stage: Any = {"points": select, "halving": rule} if rule else select
    return {"select": stage, "final": final} if select else {"final": final([])}


def _all_of_vtab() -> list[str]:
    return [f"vtab/{task.slug}" for task in vtab.tasks()]


def _choices(dataset: str, args: Any) -> list[dict[str, Any]]:
    """Returns the choices to select from, or an empty list if there is no selection."""
    name, task = _dataset(dataset)
    if args.select and not task:
        raise BadInput("select=true works only with dataset=vtab or vtab/TASK; leave it out.")
    if args.select and (args.lr or args.recipe != "paper"):
        raise BadInput("select=true chooses rate and length; leave out lr and recipe, or select.")
    if args.rates and (args.lr or args.recipe != "paper" or task):
        raise BadInput(
            f"rates={args.rates}: lr or recipe=hyperrule fixes the rate, and VTAB has rates of its "
            "own; leave out rates."
        )
    if args.lr or args.recipe != "paper":
        return []
    if task:
        return VTAB_CHOICES if args.select else []
    rates = _rates(args.rates) or transfer.table_4()[name].rates
    grid: list[dict[str, Any]] = [{":lr": rate} for rate in rates]
    of_bit = args.variant.startswith("BiT-") and not args.size and not args.preprocess
    return grid + [{":recipe": "hyperrule"}] * of_bit


def _rates(text: str) -> list[float]:
    """Parses `0.03+0.01` into [0.01, 0.03]."""
    try:
        return sorted(map(float, text.split("+"))) if text else []
    except ValueError as e:
        raise BadInput(f"rates={text}: give rates of Table 4 separated by +.") from e


def _best(
    dataset: str, choices: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the choice with the best top-1 on val (VTAB: with the best mean of all tasks)."""

    def reached(choice: dict[str, Any]) -> float:
        same = [row for row in rows if all(row.get(k) == v for k, v in choice.items())]
        of_vtab = dataset.startswith("vtab/")
        values = [
            row["val/top1"] for row in same if of_vtab or row.get(":dataset", dataset) == dataset
        ]
        return statistics.fmean(values) if values else -1.0  # stopped early

    return max(choices, key=reached) if choices else {}
