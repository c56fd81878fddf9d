# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fine-tuning as in the paper (arXiv:2010.11929, appendix B.1.1 and Table 4).

    vit_jax train --config=configs/transfer.py:model=B/16,dataset=cifar10,init=FILE_OR_RUN
        --workdir=runs/cifar10

    model       a name of `vit_jax models`; auto is that of the weights
    dataset     cifar10 | cifar100 | pets | flowers | imagenet | vtab/TASK, e.g. vtab/eurosat
    init        weights to start from: a run, a file, or a published name; without, it is training
                from scratch, which no table of the paper has
    lr          of Table 4's grid: 0.003, 0.01, 0.03, 0.06 for imagenet; 0.001, 0.003, 0.01, 0.03
                for cifar10, cifar100, pets and flowers; 0.01 for VTAB
    preprocess  paper | released
    size        pixels a side; 0: 384, for a patch side of 14 378
    standin     true: noise of the dataset's size, for plans and a first step on any machine
    also        of imagenet: other test sets, separated by +, measured at the end; any of real, v2,
                v2_threshold, v2_topimages, a, r, sketch, c, objectnet (docs/evaluation.md)

SGD with momentum 0.9, batch 512, cosine, clipping at 1, no weight decay, a new head of zeros, at
384 pixels: 20,000 steps for ImageNet, 10,000 for CIFAR, 500 for Pets and Flowers, 2,500 for VTAB.
Not in the paper: the warm-up, which is that of the released code (500 steps) and of big_vision (100
for Pets and Flowers); VTAB's 200 steps are scenic's. 378 is inference: it has the 27 x 27 patches
that a 14 x 14 convolution makes of 384. A rate that is not given is the one that big_vision chose
for B/32 (0.03 ImageNet, 0.01 CIFAR-100, else 0.003). ImageNet rows of Table 2 have
size=512 (L/16) or 518 (H/14) and --config.ema.decay=0.9999.

preprocess=paper follows BiT, as the paper says it does: train resized to 448 and a random crop of
384, mirrored; evaluation resized to 384. For other sizes the ratio 448/384 is kept (inference).
VTAB's tasks leave out crop or mirroring where they change the label (BiT, appendix F).
preprocess=released is the published code: Inception crop and mirroring.

CIFAR trains on 98 % of train, ImageNet on 99 %, Pets and Flowers on 90 %; val is the rest, and test
is only read at the end (ImageNet's is its validation split). Flowers is TFDS's train split of 1,020
images, as in BiT and big_vision (inference). A task of VTAB trains on train800val200; to choose
something: --config.data.split=train800 --config.evals.test.split=val200. Other images of the same
classes: --config.data.source=folder:PATH.

B/16 from ImageNet-21k reaches (Table 5): CIFAR-10 98.95 %, CIFAR-100 91.67 %, Pets 94.43 %, Flowers
99.38 %, ImageNet 83.97 %. L/16 from ImageNet-21k on VTAB: 72.72 % (Table 2, mean of 19 tasks).
CIFAR-10 took 7.2 hours on 8 V100 (google-research/vision_transformer issue 84).
"""

from typing import Any

from configs import base
from vit_jax.config import parse_args
from vit_jax.errors import BadInput, unknown
from vit_jax.paper import robustness, transfer, vtab

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


def get_config(arg=None):
    """See the module."""
    args = parse_args(
        arg, model="B/16", dataset="cifar10", init="", lr=0.0, preprocess="paper", size=0,
        standin=False, also="",
    )  # fmt: skip
    name, _, task_name = args.dataset.partition("/")
    if name not in (*SOURCES, "vtab") or bool(task_name) != (name == "vtab"):
        raise unknown("dataset", args.dataset, [*SOURCES, "vtab/TASK"])
    row = transfer.table_4()[name]
    rate = args.lr or USUAL_RATES.get(name, row.rates[0])
    if rate not in row.rates:
        grid = map(str, row.rates)
        raise unknown("lr of Table 4 (others: --config.schedule.lr)", str(rate), grid)

    config = base.get_config()
    config.init = args.init
    config.length = f"{row.steps} steps"
    config.batch_size = row.batch_size
    config.model.variant = args.model
    config.data.image_size = args.size or (378 if args.model.endswith("/14") else row.resolution)
    config.data.val_percent = 0
    config.data.test_percent = 0
    config.optimizer.name = "sgd"
    config.optimizer.sgd.momentum = row.momentum
    config.optimizer.clip = row.clip
    config.optimizer.weight_decay = row.weight_decay
    config.schedule.lr = rate
    config.schedule.warmup = f"{WARMUP_STEPS.get(name, 200)} steps"
    config.checkpoint.every = "10 percent"

    task = vtab.find(task_name) if task_name else None
    if task:
        config.data.source = f"vtab:{task.slug}"
        config.data.split = "train800val200"
        with config.evals.unlocked():
            del config.evals.val
        crop, flip = task.random_crop, task.horizontal_flip
    else:
        config.data.source = SOURCES[name]
        config.data.split = f"train[:{100 - row.held_out_percent}%]"
        config.evals.val.split = f"train[{100 - row.held_out_percent}%:]"
        config.evals.val.every = "10 percent"
        config.evals.test.split = "validation" if name == "imagenet" else "test"
        crop = flip = True
    _add(config, args)
    config.data.train_ops = _chain(args.preprocess, config.data.image_size, crop, flip)
    if args.standin:
        config.data.source = f"synthetic:{name}/{task.slug}" if task else f"synthetic:{name}"
        config.evals.test.split = "test"
    return config


def _add(config: Any, args: Any) -> None:
    """The evaluations that `also` names, at the end of the run."""
    known = robustness.sets()
    for name in filter(None, args.also.split("+")):
        if name not in known:
            raise unknown("test set in also", name, known)
        if args.dataset != "imagenet" or args.standin:
            raise BadInput(
                f"also={args.also}: these test sets are of ImageNet's classes and real; leave also "
                "out, or give dataset=imagenet without standin."
            )
        with config.evals.unlocked():
            config.evals[name] = base.evaluation(known[name].split)
        for key in ("source", "labels", "classes"):
            config.evals[name][key] = getattr(known[name], key)


def _chain(preprocess: Any, size: int, crop: bool, flip: bool) -> str:
    """The training chain; where a crop is left out, the image is resized."""
    crops = {
        "paper": "resize({size*7//6})|random_crop({size})",  # 448, 384
        "released": "inception_crop({size})",
    }
    if preprocess not in crops:
        raise unknown("preprocess", preprocess, crops)
    return "decode|" + (crops[preprocess] if crop else "resize({size})") + "|flip_lr" * flip
