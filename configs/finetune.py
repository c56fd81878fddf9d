# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Your own images: fine-tune a run or published weights, or train from scratch without `init`.

    vit_jax train --config=configs/finetune.py --workdir=runs/mine
        --config.data.source=folder:/path/to/images [--config.init=FILE_OR_RUN]

The folder holds class folders, or train/ and test/ with class folders inside; csv: and tfds: work
alike. With `init` the architecture, image size and normalisation are those of the weights; without,
a Ti/8 at 64 pixels, small enough for a CPU. Set `--config.data.image_size=224` and
`--config.model.variant=B/16` on an accelerator.
"""

from configs import base


def get_config():
    """Takes no argument."""
    config = base.get_config()
    config.length = "20 epochs"
    config.batch_size = 64

    config.model.variant = "auto"

    config.data.image_size = 0
    config.data.train_ops = "decode|inception_crop({size}, area_min=0.3)|flip_lr"
    config.data.eval_ops = "decode|resize({size})"

    config.loss.label_smoothing = 0.1
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 3e-4
    config.schedule.warmup = "5 percent"

    config.checkpoint.keep_best = "val/top1"
    config.report.every = "10 steps"
    return config
