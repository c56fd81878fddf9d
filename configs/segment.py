# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Learns the class of each pixel on the features of a run or of published weights.

    vit_jax train --config=configs/segment.py --workdir=runs/seg
        --config.data.source=masks:/path --config.init=FILE_OR_RUN
    vit_jax predict runs/seg IMAGES --out=FOLDER
    vit_jax evaluate runs/seg

    head      linear: a linear layer on each patch, as DINOv2 evaluates; mask_transformer:
              Segmenter's; upsampling: two transposed convolutions
    backbone  frozen: only the head learns; lora: low-rank matrices too; full: the whole backbone,
              which training without init needs. With dataset, full is the default
    levels    feature maps for the head, from the last blocks (1; DINOv2's +ms has 4, and larger
              images and several scales too)
    model     a variant, or auto: that of init
    size      side of a training image, or ROWSxCOLUMNS (224; with dataset, the paper's)
    dataset   ade20k | cityscapes | voc: settings of Segmenter (arXiv:2105.05633) for this dataset;
              the source is still yours to give, as masks:PATH or voc:PATH
    standin   true: noise of the dataset's size, for plans and a first step on any machine

Without dataset, inferred, not from a paper: AdamW at 1e-3 for heads and 1e-4 for the backbone,
batch 16, 40 epochs. Without init the model is a Ti/8.

Segmenter's settings are those of section 4.1 and of segm/config.yml and segm/train.py in the
authors' repository (rstrudel/segmenter): SGD with Nesterov momentum 0.9, no weight decay,
stochastic depth 0.1, dropout 0.1 in the mask transformer. It trains on all of train, and the run
measures the official validation split, which is `test`, as no masks of another are published. VOC
is not in the paper, and takes the settings of Pascal Context.
docs/segmentation.md lists the differences.

The published mIoU, `expected`, is that of sliding windows. `vit_jax evaluate RUN` measures it and
compares the two. The mIoU that a run itself measures is that of whole images, and not compared.
"""

from typing import NamedTuple

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown

_OF_BACKBONE = "(?!objective/).*"  # every parameter but those of the head
_BACKBONES = {"frozen": "head", "lora": "lora(rank=8)", "full": "all"}  # -> `trainable`


class _Settings(NamedTuple):
    """The settings of Segmenter for a dataset, from section 4.1 and the authors' config.yml.

    Attributes:
      size: side of a crop in training and of a window, `crop_size` and `window_size`.
      image: shorter side of an image before it is cut, `im_size`.
      epochs: length.
      batch_size: images per step.
      lr: the first learning rate.
    """

    size: int
    image: int
    epochs: int
    batch_size: int
    lr: float


_SEGMENTER = {
    "ade20k": _Settings(512, 512, 64, 8, 1e-3),
    "cityscapes": _Settings(768, 1024, 216, 8, 1e-2),
    "voc": _Settings(480, 520, 256, 16, 1e-3),
}
# (dataset, model, head, side of a crop) -> mIoU in %, one scale; table of the authors' repository.
_PUBLISHED = {
    ("ade20k", "Ti/16", "mask_transformer", "512"): 38.1,
    ("ade20k", "S/16", "mask_transformer", "512"): 45.3,
    ("ade20k", "B/16", "mask_transformer", "512"): 48.5,
    ("ade20k", "B/8", "linear", "512"): 49.5,
    ("ade20k", "L/16", "mask_transformer", "640"): 51.8,
    ("cityscapes", "L/16", "mask_transformer", "768"): 79.1,
}
_TOLERANCE = 0.015  # ours: the paper reports no deviations


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, head="linear", backbone="", levels=1, model="auto", size="", dataset="", standin=False
    )
    if args.standin and not args.dataset:
        raise BadInput("standin=true is noise in place of a known dataset; give dataset=.")
    if args.dataset and args.dataset not in _SEGMENTER:
        raise unknown("dataset of segment.py", args.dataset, _SEGMENTER)
    backbone = args.backbone or ("full" if args.dataset else "frozen")
    if backbone not in _BACKBONES:
        raise unknown("backbone of segment.py", backbone, _BACKBONES)
    config = base.get_config()
    config.data.image_size = args.size or "224"
    config.model.variant = args.model
    config.data.eval_ops = "decode|resize_inside({size})|pad({size})"
    config.schedule.warmup = "5 percent"
    config.evals.val.every = "10 percent"
    config.checkpoint.every = "10 percent"
    config.report.every = "10 steps"
    config.recipe.name = "segment"
    rate, more = 0.0, ""
    if args.dataset:
        rate = 0.1 if args.head == "mask_transformer" else 0.0
        more = _as_segmenter(config, args, backbone)
    else:
        _as_inferred(config, backbone)
    config.objective = (
        f"segmentation(head='{args.head}', levels={args.levels}, dropout={rate}{more})"
    )
    config.trainable = _BACKBONES[backbone]
    return config


def _as_inferred(config, backbone):
    config.length = "40 epochs"
    config.batch_size = 16
    config.data.train_ops = (
        "decode|scale_jitter({size}, smallest=0.5, largest=2.0, covers=True)|flip_lr"
        "|color_jitter(0.3, 0.3, 0.3, 0.0, probability=0.5)"
    )
    config.optimizer.weight_decay = 0.01
    config.schedule.lr = 1e-3
    if backbone == "full":
        config.optimizer.lr_mults = ((_OF_BACKBONE, 0.1),)


def _as_segmenter(config, args, backbone):
    """Sets what Segmenter does; returns further arguments of the objective."""
    settings = _SEGMENTER[args.dataset]
    if args.model == "auto" and backbone == "full":
        raise BadInput(
            f"segment.py:dataset={args.dataset}: give model=, such as model=B/16, which then has "
            "the paper's stochastic depth."
        )
    size = args.size or str(settings.size)
    config.data.image_size = size
    config.length = f"{settings.epochs} epochs"
    config.batch_size = settings.batch_size
    scale = settings.image / settings.size
    config.data.train_ops = (
        f"decode|scale_jitter({{size}}, smallest={round(0.5 * scale, 4)}, "
        f"largest={round(2 * scale, 4)}, covers=True)|flip_lr"
    )
    if args.standin:
        config.data.source = f"synthetic:{args.dataset}"
    config.data.val_percent = 0  # the authors train on all of train
    config.evals.test.every = "10 percent"
    with config.evals.unlocked():
        del config.evals["val"]
    if backbone == "full":
        config.model.drop_path = 0.1
    config.optimizer.name = "sgd"
    config.optimizer.sgd.momentum = 0.9
    config.optimizer.sgd.nesterov = True
    config.optimizer.sgd.accumulator_dtype = "float32"
    config.optimizer.clip = 0.0
    config.schedule.name = "linear"
    config.schedule.linear.end = 1e-5
    config.schedule.lr = settings.lr
    config.schedule.warmup = "0"
    config.recipe.protocol = "segmenter"
    published = _PUBLISHED.get((args.dataset, args.model, args.head, size))
    if published and backbone == "full" and not args.standin and args.levels == 1:
        config.expected.metric = "test/windows_miou"
        config.expected.value = round(published / 100, 4)
        config.expected.tolerance = _TOLERANCE
        config.expected.source = (
            f"Segmenter, table of the authors' repository (rstrudel/segmenter): {published} %, "
            f"ImageNet-21k weights, one scale, in sliding windows of {size} x {size} pixels"
        )
    return f", scale={round(scale, 4)}" if scale != 1 else ""
