# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains a small ViT from scratch on CIFAR-10, read as class folders of images, on a CPU.

    vit_jax train --config=configs/cifar10.py --workdir=runs/cifar10
        --config.data.source=folder:/path/to/cifar10

The folder contains train/CLASS and test/CLASS. The model has 0.3 M parameters and 64 patches of
4 x 4. In 10 epochs the loss falls from 2.30 to 0.9, and test top-1 reaches 65.3 % (one seed, images
stored as JPEG of quality 75). This took 47 minutes on two CPU cores that were shared with other
work, at 130 to 540 images/s.
"""

from configs import base


def get_config():
    """Takes no argument."""
    config = base.get_config()
    config.length = "10 epochs"
    config.batch_size = 128

    config.model.variant = "Ti/4"
    config.model.width = 96
    config.model.depth = 4
    config.model.mlp = 192
    config.model.heads = 4
    config.model.pool = "gap"

    config.data.source = "folder:cifar10"
    config.data.image_size = 32
    config.data.train_ops = "decode|shift(2)|flip_lr"
    config.data.eval_ops = "decode"

    config.optimizer.weight_decay = 0.3
    config.optimizer.adamw.b2 = 0.99
    config.schedule.lr = 2e-3
    config.schedule.warmup = "1 epochs"
    config.ema.decay = 0.99

    config.evals.val.every = "2 epochs"

    config.expected.metric = "test/top1"
    config.expected.value = 0.653
    config.expected.tolerance = 0.015
    config.expected.source = "own measurement, one seed"
    config.expected.hardware = "2 CPU cores, shared"
    config.expected.hours = 0.8
    return config
