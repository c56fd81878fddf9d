# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Learns to find objects on the features of a run or of published weights.

    vit_jax train --config=configs/detect.py --workdir=runs/det
        --config.data.source=coco:/path/to/instances_train.json --config.init=FILE_OR_RUN
    vit_jax predict runs/det IMAGES --out=FILE.json
    vit_jax evaluate runs/det

    backbone  full: the whole backbone learns; frozen: only pyramid and head; lora: low-rank
              matrices too
    small     true: a backbone of 0.5 M parameters that begins at random, for any machine; most of
              its blocks attend within windows of 8 patches
    model     a variant, or auto: that of init
    size      side of a training image, or ROWSxCOLUMNS (256; with dataset, the paper's)
    dataset   coco | voc: settings of ViTDet (arXiv:2203.16527); the source is still yours to give
    standin   true: noise of the size of COCO, for plans and a first step on any machine

Without dataset, inferred, not from a paper: AdamW at 5e-4, batch 8, 60 epochs, and a small head
(96 channels, two convolutions) on strides of 8, 16 and 32. Without init the model is a Ti/8. With
small, the rate is 1e-3 and there are 40 epochs.

ViTDet's settings are those of section 4 and appendix A.2, and of projects/ViTDet in detectron2: the
simple feature pyramid, windows of 14 patches with four global blocks, images of 1024 pixels with
large-scale jitter from 0.1 to 2, AdamW at 1e-4 with batch 64, weight decay 0.1, 250 steps of
warm-up, a rate that falls tenfold after 88.9 % and 96.3 %, and layer decay, stochastic depth and
epochs that depend on the model. VOC is not in the paper, and takes the settings of COCO.

Deviations: the head is FCOS, with one stage, on strides from 8 to 128; there it is Mask R-CNN or
Cascade Mask R-CNN, on strides from 4 to 64. Blocks have no relative positions, windows at the edge
mask what lies outside the grid, and gradients are not clipped. The paper reports no AP of this
head, so nothing is expected.
"""

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown

_BACKBONES = {"full": "all", "frozen": "head", "lora": "lora(rank=8)"}  # -> `trainable`
_DATASETS = ("coco", "voc")
# Size of the model -> layer decay, stochastic depth, epochs; appendix A.2.
_VITDET = {"B": (0.7, 0.1, 100), "L": (0.8, 0.4, 100), "H": (0.9, 0.5, 75)}


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, backbone="full", small=False, model="auto", size="", dataset="", standin=False
    )
    if args.small and (args.backbone, args.model, args.dataset) != ("full", "auto", ""):
        raise BadInput("small=true has a model of its own, all of it learns; leave the others out.")
    if args.standin and args.dataset != "coco":
        raise BadInput("standin=true is noise in place of COCO; give dataset=coco.")
    if args.dataset and args.dataset not in _DATASETS:
        raise unknown("dataset of detect.py", args.dataset, _DATASETS)
    if args.backbone not in _BACKBONES:
        raise unknown("backbone of detect.py", args.backbone, _BACKBONES)
    config = base.get_config()
    config.data.eval_ops = "decode|resize_inside({size})|pad({size})"
    config.model.variant = args.model
    config.trainable = _BACKBONES[args.backbone]
    config.evals.val.every = "10 percent"
    config.checkpoint.every = "10 percent"
    config.report.every = "10 steps"
    config.recipe.name = "detect"
    if args.dataset:
        _as_vitdet(config, args)
    else:
        _as_inferred(config, args)
    if args.small:
        _make_small(config)
    return config


def _as_inferred(config, args):
    config.objective = "detection(width=96, depth=2, strides=(8, 16, 32))"
    config.data.image_size = args.size or "256"
    config.data.train_ops = (
        "decode|scale_jitter({size}, smallest=0.5, largest=1.5)|flip_lr"
        "|color_jitter(0.3, 0.3, 0.3, 0.0, probability=0.5)"
    )
    config.length = "60 epochs"
    config.batch_size = 8
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 5e-4
    config.schedule.warmup = "5 percent"


def _make_small(config):
    config.model.variant = "Ti/8"
    config.model.width = 96
    config.model.depth = 4
    config.model.mlp = 384
    config.model.heads = 3
    config.model.posemb = "sincos2d"
    config.model.pool = "gap"
    config.model.window = 8
    config.model.global_blocks = 1
    config.length = "40 epochs"
    config.schedule.lr = 1e-3
    config.recipe.protocol = "small"


def _as_vitdet(config, args):
    known = args.model.rpartition("/")[0] or args.model
    if known not in _VITDET:
        raise BadInput(
            f"detect.py:dataset={args.dataset}: model={args.model}; give one of ViTDet, "
            "model=B/16, L/16 or H/16."
        )
    decay, depth, epochs = _VITDET[known]
    config.objective = "detection"
    config.data.image_size = args.size or "1024"
    config.data.train_ops = "decode|scale_jitter({size}, smallest=0.1, largest=2.0)|flip_lr"
    if args.standin:
        config.data.source = "synthetic:coco"
    config.data.val_percent = 0  # ViTDet trains on all of train
    config.evals.test.every = "10 percent"
    with config.evals.unlocked():
        del config.evals["val"]
    config.model.pool = "gap"
    config.model.window = 14
    config.model.drop_path = depth
    config.model.remat = "auto"
    config.length = f"{epochs} epochs"
    config.batch_size = 64
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = 0.1
    config.optimizer.layer_decay = decay
    config.schedule.name = "step"
    config.schedule.step.drops = ("88.89 percent", "96.30 percent")
    config.schedule.step.factor = 0.1
    config.schedule.lr = 1e-4
    config.schedule.warmup = "250 steps"
    config.recipe.protocol = "vitdet"
