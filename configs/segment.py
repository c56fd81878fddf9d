# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Learns the class of each pixel on the features of a run or of published weights.

    vit_jax train --config=configs/segment.py --workdir=runs/seg
        --config.data.source=masks:/path --config.init=FILE_OR_RUN
    vit_jax predict runs/seg IMAGES --out=FOLDER
    vit_jax evaluate runs/seg

    head      linear: a linear layer on each patch, as DINOv2 evaluates; mask_transformer:
              Segmenter's; upsampling: two transposed convolutions
    backbone  frozen: only the head learns; full: the backbone too, which training without init
              needs
    levels    feature maps for the head, from the last blocks (1; DINOv2 also reports 4)
    model     a variant, or auto: that of init
    size      side of a training image, or ROWSxCOLUMNS in quotes (224)

Inferred, not from a paper: AdamW at 1e-3 for heads and 1e-4 for the backbone, batch 16, 40 epochs.
Without init the model is a Ti/8. docs/segmentation.md has figures.
"""

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import unknown

FREEZE = ("(?!objective/).*",)  # every parameter but those of the head
_BACKBONES = ("frozen", "full")


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(arg, head="linear", backbone="frozen", levels=1, model="auto", size="224")
    if args.backbone not in _BACKBONES:
        raise unknown("backbone of segment.py", args.backbone, _BACKBONES)
    config = base.get_config()
    config.length = "40 epochs"
    config.batch_size = 16
    config.objective = (
        f"segmentation(head='{args.head}', levels={args.levels}, "
        f"frozen={args.backbone == 'frozen'})"
    )
    config.model.variant = args.model
    config.data.image_size = args.size
    config.data.train_ops = (
        "decode|scale_jitter({size}, smallest=0.5, largest=2.0, covers=True)|flip_lr"
        "|color_jitter(0.3, 0.3, 0.3, 0.0, probability=0.5)"
    )
    config.data.eval_ops = "decode|resize_inside({size})|pad({size})"
    config.optimizer.weight_decay = 0.01
    config.schedule.lr = 1e-3
    config.schedule.warmup = "5 percent"
    if args.backbone == "frozen":
        config.optimizer.freeze = FREEZE
    else:
        config.optimizer.lr_mults = ((FREEZE[0], 0.1),)
    config.evals.val.every = "10 epochs"
    config.checkpoint.every = "10 epochs"
    config.report.every = "10 steps"
    config.recipe.name = "segment"
    return config
