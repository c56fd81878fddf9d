# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-trains on JFT-300M, ImageNet-21k or ImageNet, as in four papers.

    vit_jax train --config=configs/pretrain.py:model=B/16,dataset=imagenet21k,release=winter21
        --workdir=/shared/b16 --config.data.data_dir=/shared/tfds
    vit_jax plan --config=configs/pretrain.py:model=L/16,dataset=imagenet21k,epochs=90
        --accelerator=v3-512

    model    a name of `vit_jax models`, e.g. B/16, H/14, R50+L/32, BiT-R152x2
    dataset  imagenet21k | jft | imagenet
    recipe   paper | bit | augreg | modern
    epochs   for recipes with several (L/16 on JFT-300M: 7 or 14; L on ImageNet-21k: 30 or 90)
    release  of ImageNet-21k: winter21 (19,167 classes) or fall11 (21,841), as prepared by
             `vit_jax data prepare imagenet21k/RELEASE`
    standin  true: noise of the dataset's size, for plans and a first step on any machine
    stage    select: test is not read, for runs that something is selected from
    fewshot  true: also few-shot on ImageNet, 5 and 10 images per class (Figure 4; needs
             tfds:imagenet2012); for other sources, add pairs to --config.fewshot.sources. The
             paper stopped early, which this run does not (docs/fewshot.md)
    aug, reg, wd   only for recipe=augreg, see below

Images. dataset=imagenet is TFDS's imagenet2012: train[:99%], val is train[99%:], and test is its
validation split. dataset=imagenet21k is a stand-in until `release` is given; its splits are the
prepared train, val and test. dataset=jft is a stand-in until you name your own records with
--config.data.source=records:GLOB and --config.data.records.max_labels=K; their first 51,200 images
are val, and the next 51,200 are test, so store them shuffled (big_vision holds out as many of
ImageNet-21k; the paper does not say how many of JFT-300M). To use other images, give
--config.data.source=folder:PATH. For dataset=imagenet also give --config.evals.test.split=test if
the folder has a split of this name.

recipe=paper (arXiv:2010.11929, section 4.1, appendix B.1 and Table 3; default B/16 on ImageNet-21k)
    Adam at batch 4096 and 224 pixels, 10,000 steps of warm-up, dropout, weight decay and rate of
    Table 3, clipping on ImageNet only.
    From the published code, not the paper: sigmoid cross-entropy summed over classes, a head bias
    of -10, a tanh layer of the model's width before the head of a ViT, and decay of kernels only.
    From an answer of the authors: label smoothing 1e-4 on ImageNet.
    Inferred: weight decay multiplies the rate.
    Not in Table 3, so our choice: BiT-R152x2 on JFT for 14 epochs uses the row for 7, BiT-R200x3
    uses R152x2, and H/14 on ImageNet-21k uses L/16. On ImageNet-21k and ImageNet, hybrids use the
    row of their ViT, and BiT uses B/16 without dropout. Any other `epochs` is our choice too. Such
    a configuration says so in `expected.source`.
    Reaches, before fine-tuning, at 224 pixels: ImageNet top-1 69.2 % (B/32), 74.8 % (B/16), 66.9 %
    (L/32), 72.6 % (L/16); ImageNet-21k precision at 1 47.9 % (B/16), 49.9 % (L/16)
    (google-research/vision_transformer issue 62). `config.expected` has these values on ImageNet,
    and for release=fall11; winter21 has other classes. L/16 on ImageNet-21k takes about 30 days on
    a TPUv3 with 8 cores (section 4.2); docs/plans.md lists the other models.
recipe=bit (arXiv:1912.11370, section 3.3; default BiT-R50x1; Table 7 of the ViT paper)
    SGD with momentum 0.9, rate 0.03 * 4096 / 256, 5,000 steps of warm-up. The rate falls to a tenth
    after 10, 23, 30 and 37 of 40 epochs (JFT), or after 30, 60 and 80 of 90. For other `epochs` the
    drops are in proportion (for Table 7's epochs=7 this is inferred). Weight decay 1e-4 is L2: it
    is added to the gradient before the momentum, so it is multiplied by the rate. It applies to
    kernels only (inferred). Sigmoid cross-entropy with a head bias of -10 (the bias is inferred) on
    ImageNet-21k (an answer of the authors) and JFT (inferred); softmax on ImageNet (inferred). No
    clipping. Trained on a TPUv3-512.
    Reaches, after fine-tuning on ImageNet, from JFT at 7 epochs: 78.24 % (R50x1), 84.37 % (R152x2)
    (Table 7).
recipe=augreg (arXiv:2106.10270, sections 3.1 to 3.4; default B/16 on ImageNet-21k)
    aug   none | light1 | light2 | medium1 | medium2 | strong1 | strong2: RandAugment and mixup
    reg   0.0 or 0.1: dropout and stochastic depth
    wd    0.1 or 0.03: weight decay, multiplied by the rate
          `config.expected` is AugReg's accuracy on held-out images for aug and reg (Figure 4)
    Defaults: on ImageNet-21k the settings of the model's recommended checkpoint; on ImageNet the
    level of big_vision's configuration (hybrids: give aug=), 0.0 and 0.1.
    Adam, batch 4096, rate 1e-3, 10,000 steps of warm-up, cosine, clipping at 1; 300 epochs, on
    ImageNet-21k also 30.
    From the published checkpoints: a class token, without a tanh layer on ImageNet-21k. (The
    cleaned-up configuration of big_vision, vit_i21k.py, takes the mean of tokens.)
    From big_vision, not the paper: head bias -10 (ImageNet-21k) or -6.9, the tanh layer on
    ImageNet, first moment in bfloat16, initial position embeddings of deviation 1 / sqrt(D),
    evaluation on the central 224 of 256 pixels.
    The defaults reach on ImageNet, from ImageNet-21k, fine-tuned at 384 pixels with
    configs/transfer.py: 85.49 % (B/16), 85.59 % (L/16), 83.73 % (S/16), 83.59 % (B/32), 78.22 %
    (Ti/16), 85.99 % (R50+L/32) (README of google-research/vision_transformer).
recipe=modern (arXiv:2205.01580 as in big_vision's vit_s16_i1k.py; S/16 on ImageNet only)
    Mean of tokens, fixed sine-cosine positions, tanh layer, softmax, batch 1024, Adam at 1e-3 with
    weight decay 0.1 (big_vision's 1e-4, which it does not multiply by the rate), 10,000 steps of
    warm-up, cosine, clipping at 1, randaug(2, 10), mixup 0.2. 90 epochs reach 76.5 % in 6 to 7
    hours on a TPU v3-8; the tolerance is ours.

A sweep of recipe=paper on imagenet or imagenet21k repeats section 4.3, which tunes weight decay,
dropout and label smoothing on val for the smaller datasets. The paper does not say which values it
tried. We chose the weight decays and dropout rates of Table 3 (0.03, 0.1, 0.3; 0 and 0.1), and
label smoothing 0, 1e-4 as above, and 0.1, the usual value: 18 runs.

    vit_jax sweep --config=configs/pretrain.py:model=B/32,dataset=imagenet --workdir=/shared/reg

Compute is in bfloat16. On a TPU the layers are unrolled and the compiler decides what the backward
pass recomputes; elsewhere the weight products are kept (`model.remat`).
docs/plans.md says what fits where, and how long it takes.
"""

import dataclasses
from typing import Any

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown
from vit_jax.paper import augreg, expectations, pretraining

STAND_INS = {
    "jft": "synthetic:jft300m",
    "imagenet21k": "synthetic:imagenet21k",
    "imagenet": "synthetic:imagenet",
}
HELD_OUT = 51_200  # images of JFT-300M in val, and in test
RELEASES = ("winter21", "fall11")
STAGES = ("", "select")
WEIGHT_DECAYS, DROPOUTS, SMOOTHINGS = (0.03, 0.1, 0.3), (0.0, 0.1), (0.0, 1e-4, 0.1)
WIDTHS = {"Ti": 192, "S": 384, "B": 768, "L": 1024, "H": 1280}

# Table 3, and at the end what Tables 5 and 6 have results of, but Table 3 no row.
TABLE_3 = {dataset: dict(rows) for dataset, rows in pretraining.table_3().items()}
_r152x2 = TABLE_3["jft"]["BiT-R152x2"]
TABLE_3["jft"] |= {
    "BiT-R152x2": dataclasses.replace(_r152x2, epochs=(7, 14)),  # 14: as 7
    "BiT-R200x3": dataclasses.replace(_r152x2, epochs=(14,)),  # as R152x2
}
TABLE_3["imagenet21k"] |= {
    "H/14": dataclasses.replace(TABLE_3["imagenet21k"]["L/16"], epochs=(90,)),  # as L
}
# Not in any table: hybrids as their ViT (appendix B.1), BiT as B/16 but without dropout.
OTHERS = {
    dataset: {f"R50+{name}": rows[name] for name in ("B/16", "B/32", "L/16", "L/32")}
    | {
        name: dataclasses.replace(rows["B/16"], dropout=0.0)
        for name in TABLE_3["jft"]
        if name.startswith("BiT-")
    }
    for dataset, rows in TABLE_3.items()
    if dataset != "jft"
}


def _arguments(arg: str | None) -> Any:
    args = parse_args(
        arg, model="", dataset="", recipe="paper", epochs=0, release="", standin=False,
        aug="", reg=-1.0, wd=-1.0, stage="", fewshot=False,
    )  # fmt: skip
    if args.recipe not in RECIPES:
        raise unknown("recipe", args.recipe, RECIPES)
    _, model, dataset = RECIPES[args.recipe]
    args.model, args.dataset = args.model or model, args.dataset or dataset
    if args.dataset not in STAND_INS:
        raise unknown("dataset", args.dataset, STAND_INS)
    if args.stage not in STAGES:
        raise unknown("stage", args.stage, STAGES[1:])
    if args.epochs < 0:
        raise BadInput(f"epochs={args.epochs}; give 1 or more, or leave it out.")
    if args.recipe != "augreg" and (args.aug or args.reg >= 0 or args.wd >= 0):
        raise BadInput(f"aug, reg and wd belong to recipe=augreg; leave them out of {arg!r}.")
    return args


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = _arguments(arg)
    config = base.get_config()
    config.model.variant = args.model
    config.model.dtype = "bfloat16"
    config.model.remat = "auto"
    config.checkpoint.every = "5000 steps"
    config.report.every = "100 steps"
    config.recipe.name = "pretrain"
    config.recipe.protocol = args.recipe
    config.recipe.stage = args.stage
    set_images(config, args)
    if args.fewshot:
        imagenet = STAND_INS["imagenet"] if args.standin else "tfds:imagenet2012"
        config.fewshot.sources = (("imagenet", imagenet),)
        config.fewshot.shots = (5, 10)
        config.fewshot.every = "10000 steps"
    if args.stage == "select":
        with config.evals.unlocked():
            del config.evals.test
    RECIPES[args.recipe][0](config, args)
    return config


def sweep(arg=None):
    """Returns the regularisation settings of section 4.3, which are compared on val."""
    args = _arguments(arg)
    if args.recipe != "paper" or args.dataset == "jft":
        raise BadInput(
            "the sweep is that of recipe=paper on dataset=imagenet or imagenet21k (section 4.3)."
        )
    return {
        "select": [
            {
                ":stage": "select",
                "optimizer.weight_decay": decay,
                "model.dropout": dropout,
                "loss.label_smoothing": smoothing,
            }
            for decay in WEIGHT_DECAYS
            for dropout in DROPOUTS
            for smoothing in SMOOTHINGS
        ]
    }


def set_images(config: Any, args: Any) -> None:
    """Sets the images and their splits for `dataset`, `release` and `standin`.

    The source is a stand-in if the arguments do not determine the images. dataset=own
    leaves it to --config.data.source, and the splits as they are.
    """
    if args.release and args.dataset != "imagenet21k":
        raise BadInput(f"release={args.release} belongs to dataset=imagenet21k; leave it out.")
    if args.release and args.release not in RELEASES:
        raise unknown("release of imagenet21k", args.release, RELEASES)
    if args.dataset == "own" and args.standin:
        raise BadInput("standin=true is noise in place of a known dataset; leave dataset=own out.")
    if args.dataset == "own":
        config.data.source = ""
        return
    if args.dataset not in STAND_INS:
        raise unknown("dataset", args.dataset, [*STAND_INS, "own"])
    config.data.source = STAND_INS[args.dataset]
    config.data.val_percent = 1
    config.data.test_percent = 1
    config.evals.val.every = "10000 steps"
    if args.dataset == "jft":
        config.data.val_percent = config.data.test_percent = 0
        config.data.split = f"train[{2 * HELD_OUT}:]"
        config.evals.val.split = f"train[:{HELD_OUT}]"
        config.evals.test.split = f"train[{HELD_OUT}:{2 * HELD_OUT}]"
    if args.dataset == "imagenet":
        config.data.split = "train[:99%]"
        config.data.val_percent = 0
        config.evals.val.split = "train[99%:]"
    if args.standin:
        return
    if args.release:
        config.data.source = f"tfds:imagenet21k/{args.release}"
    if args.dataset == "imagenet":
        config.data.source = "tfds:imagenet2012"
        config.evals.test.split = "validation"  # a split called test would have no labels


def _width(model: str) -> int:
    """Returns the width of a ViT or hybrid, which is also that of its tanh layer; 0 for BiT."""
    return WIDTHS.get(model.split("+")[-1].split("/")[0], 0)


def _paper(config: Any, args: Any) -> None:
    rows = TABLE_3[args.dataset] | OTHERS.get(args.dataset, {})
    if args.model not in rows:
        raise unknown(f"model pre-trained on {args.dataset}", args.model, rows)
    row, common = rows[args.model], pretraining.common()
    if not args.epochs and len(row.epochs) > 1:
        choices = " or ".join(f"epochs={n}" for n in row.epochs)
        raise BadInput(f"{args.model} on {args.dataset}: give {choices}.")
    epochs = args.epochs or row.epochs[0]
    printed = pretraining.table_3()[args.dataset].get(args.model)
    if printed is None or epochs not in printed.epochs:
        config.expected.source = "not in Table 3; chosen as configs/pretrain.py says"
    if not args.standin and (args.dataset != "imagenet21k" or args.release == "fall11"):
        base.expect(config, expectations.pretrained(args.model, args.dataset, epochs))
    config.length = f"{epochs} epochs"
    config.batch_size = common.batch_size
    config.data.image_size = common.resolution
    config.model.representation = _width(args.model)
    config.model.head_bias = -10.0
    config.model.dropout = row.dropout
    config.loss.name = "sigmoid"
    config.schedule.name = row.decay
    config.schedule.lr = row.lr
    config.schedule.warmup = f"{common.warmup_steps} steps"
    config.optimizer.clip = common.clip[args.dataset]
    config.optimizer.weight_decay = row.weight_decay
    if args.dataset == "imagenet":
        config.loss.label_smoothing = 1e-4


def _bit(config: Any, args: Any) -> None:
    if not args.model.startswith("BiT-"):
        raise BadInput(f"model={args.model}: recipe=bit trains BiT, e.g. model=BiT-R50x1.")
    values = pretraining.bit(args.dataset)
    epochs = args.epochs or values.epochs
    config.length = f"{epochs} epochs"
    base.optimize_as_bit(config, values)
    config.schedule.step.drops = tuple(
        f"{n * epochs / values.epochs:g} epochs" for n in values.drops
    )
    if args.dataset != "imagenet":
        config.loss.name = "sigmoid"
        config.model.head_bias = -10.0


def _augreg(config: Any, args: Any) -> None:
    values, levels = augreg.pretraining(args.dataset), augreg.levels()
    aug = args.aug or values.default_level.get(args.model, "")
    epochs = args.epochs or values.epochs[-1]
    reg = args.reg if args.reg >= 0 else values.default_rate.get(args.model, 0.0)
    decay = args.wd if args.wd >= 0 else values.default_decay.get(args.model, 0.1)
    if not aug:
        raise BadInput(
            f"{args.model} has no usual augmentation; give aug=, of {', '.join(levels)}."
        )
    for name, value, options in (
        ("aug", aug, levels), ("epochs", epochs, values.epochs),
        ("reg", reg, values.rates), ("wd", decay, values.weight_decays),
    ):  # fmt: skip
        if value not in options:
            raise unknown(f"{name} of recipe=augreg", str(value), map(str, options))
    if not args.standin and (args.dataset != "imagenet21k" or args.release == "fall11"):
        published = args.model, args.dataset, epochs, aug, reg
        base.expect(config, expectations.augreg_pretrained(*published))
    config.length = f"{epochs} epochs"
    config.batch_size = values.batch_size
    config.data.train_ops = "decode|inception_crop({size})|flip_lr" + levels[aug].ops
    config.data.eval_ops = CENTRE
    config.mixup.alpha = levels[aug].mixup
    config.model.dropout = reg
    config.model.drop_path = reg
    config.model.head_bias = values.head_bias
    config.model.pool = "token"
    if width := _width(args.model):
        config.model.posemb_std = width**-0.5
    if args.dataset == "imagenet":
        config.model.representation = _width(args.model)
    config.loss.name = "sigmoid"
    config.schedule.lr = values.lr
    config.schedule.warmup = f"{values.warmup_steps} steps"
    config.optimizer.adamw.mu_dtype = "bfloat16"
    config.optimizer.clip = values.clip
    config.optimizer.weight_decay = decay


# 256, then 224 pixels: as big_vision rounds, and as torchvision resizes for DeiT and MAE.
CENTRE = "decode|bv_resize_small({size*8//7})|central_crop({size})"
CUBIC_CENTRE = "decode|resize_small({size*8//7}, cubic=True)|central_crop({size})"
# DeiT augments so, and MAE's fine-tuning.
DEIT_OPS = (
    "decode|inception_crop({size}, area_min=0.08, cubic=True)|flip_lr|randaug(2, 9)"
    "|random_erasing(0.25, area_max=0.3333)"
)


def _modern(config: Any, args: Any) -> None:
    if (args.model, args.dataset) != ("S/16", "imagenet"):
        raise BadInput("recipe=modern is S/16 on imagenet; leave out model and dataset.")
    epochs = args.epochs or 90
    config.length = f"{epochs} epochs"
    config.batch_size = 1024
    config.data.train_ops = "decode|inception_crop({size})|flip_lr|randaug(2, 10)"
    config.data.eval_ops = CENTRE
    config.mixup.alpha = 0.2
    config.model.pool = "gap"
    config.model.posemb = "sincos2d"
    config.model.representation = _width(args.model)
    config.schedule.lr = 1e-3
    config.schedule.warmup = "10000 steps"
    config.optimizer.adamw.mu_dtype = "bfloat16"
    config.optimizer.weight_decay = 0.1
    if epochs == 90:
        source = "google-research/big_vision, big_vision/configs/vit_s16_i1k.py"
        base.expect(config, expectations.Expected("test/top1", 0.765, 0.003, source))
        config.expected.hardware = "TPU v3-8"
        config.expected.hours = 6.5


# Name -> what fills a configuration, default model, default dataset.
RECIPES = {
    "paper": (_paper, "B/16", "imagenet21k"),
    "bit": (_bit, "BiT-R50x1", "imagenet21k"),
    "augreg": (_augreg, "B/16", "imagenet21k"),
    "modern": (_modern, "S/16", "imagenet"),
}
