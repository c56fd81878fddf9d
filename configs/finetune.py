# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Your own images: fine-tune a run or published weights, or train from scratch without `init`.

    vit_jax train --config=configs/finetune.py --workdir=runs/mine
        --config.data.source=folder:/path/to/images [--config.init=FILE_OR_RUN]

The folder holds class folders, or train/ and test/ with class folders inside; csv: and tfds: work
alike. With `init` the architecture, image size and normalisation are those of the weights; without,
a Ti/8 at 64 pixels, small enough for a CPU. On an accelerator: `finetune.py:model=B/16,size=224`.
What it reaches depends on the images.
"""

from configs import base
from vit_jax.config import parse_args


def get_config(arg=None):
    """Takes `model` (a variant, or auto) and `size` (pixels a side, 0: that of the weights)."""
    args = parse_args(arg, model="auto", size=0)
    config = base.get_config()
    config.length = "20 epochs"
    config.batch_size = 64

    config.model.variant = args.model
    config.data.image_size = args.size
    config.data.train_ops = "decode(exif=True)|inception_crop({size}, area_min=0.3)|flip_lr"
    config.data.eval_ops = "decode(exif=True)|resize({size})"

    config.loss.label_smoothing = 0.1
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 3e-4
    config.schedule.warmup = "5 percent"

    config.checkpoint.keep_best = "val/top1"
    config.report.every = "10 steps"
    return config
