# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Distils a classifier on ImageNet: a patient and consistent teacher (arXiv:2106.05237).

    vit_jax train --config=configs/distill.py --workdir=/shared/distilled
    vit_jax plan --config=configs/distill.py:standin=true --accelerator=v3-32

    model    the student; the paper's is BiT-R50x1
    teacher  FILE_OR_RUN with the classes of the data; the paper's is distill/R152x2_T_224.npz
    epochs   1200; the paper goes from 30 to 9600
    size     side of the images in pixels (224)
    standin  true: noise of the dataset's size, for plans and a first step on any machine

Student and teacher see the same crop and the same mix of two images, and the student learns the
teacher's probabilities and no label. From the published code: KL at temperature 1, mixup with
lambda uniform in [0, 1], Adam at batch 4096 and 0.03 with its first moment in bfloat16, 5,000 steps
of warm-up, cosine, clipping at 1, decay 3e-4 (which this optimizer multiplies by the rate, so
0.01), evaluation on the central 224 of 256 pixels. There the last 2 % of the training images are
held out; here the last 1 %. The published BiT-R50x1 at 224 pixels has 82.8 %, its teacher 83.0 %
(README of big_vision). docs/distillation.md has the details.
"""

from configs import base, pretrain
from vit_jax.config.load import parse_args


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, model="BiT-R50x1", teacher="distill/R152x2_T_224.npz", epochs=1200, size=224,
        dataset="imagenet", release="", standin=False,
    )  # fmt: skip
    config = base.get_config()
    pretrain.set_images(config, args)
    config.length = f"{args.epochs} epochs"
    config.batch_size = 4096
    config.model.variant = args.model
    config.model.dtype = "bfloat16"
    config.model.remat = "auto"
    config.data.image_size = args.size
    config.data.train_ops = "decode|inception_crop({size})|flip_lr"
    config.data.eval_ops = f"decode|resize_small({args.size * 8 // 7})|central_crop({{size}})"
    config.distillation.teacher = args.teacher
    config.mixup.alpha = 1.0
    config.optimizer.adamw.mu_dtype = "bfloat16"
    config.optimizer.clip = 1.0
    config.optimizer.weight_decay = 3e-4 / 0.03
    config.schedule.lr = 0.03
    config.schedule.warmup = "5000 steps"
    config.checkpoint.every = "5000 steps"
    config.report.every = "50 steps"
    config.recipe.name = "distill"
    config.recipe.protocol = "paper"
    return config
