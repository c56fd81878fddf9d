# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains a small ViT on the handwritten digits in scikit-learn, to test an installation.

    vit_jax train --config=configs/quickstart.py --workdir=runs/quickstart

The dataset has 1,797 real images of 8 x 8 pixels. A fifth of them is test, chosen by hash. The
model has 0.1 M parameters and 16 patches of 2 x 2. The recipe was chosen by cross-validation on
train and val, not on test.
"""

from configs import base


def get_config():
    """Takes no argument."""
    config = base.get_config()
    config.length = "120 epochs"
    config.batch_size = 32

    config.model.variant = "Ti/2"
    config.model.width = 64
    config.model.depth = 3
    config.model.mlp = 128
    config.model.heads = 4
    config.model.pool = "gap"

    config.data.source = "digits"
    config.data.test_percent = 20
    config.data.image_size = 8
    config.data.train_ops = "affine(degrees=10, scale=0.1, shift=0.7)"
    config.data.eval_ops = "decode|resize({size})"  # the digits have this size, your images may not

    config.optimizer.weight_decay = 0.3
    config.optimizer.adamw.b2 = 0.95
    config.schedule.lr = 4e-3
    config.schedule.warmup = "5 epochs"
    config.ema.decay = 0.99

    config.checkpoint.every = "20 epochs"
    config.evals.val.every = "20 epochs"
    config.report.every = "200 steps"

    config.expected.metric = "test/top1"
    config.expected.value = 0.989
    config.expected.tolerance = 0.012
    config.expected.source = "own measurement, mean of 5 seeds"
    config.expected.hardware = "2 CPU cores"
    config.expected.hours = 0.02
    return config
