# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fine-tunes a run or published weights on your own images. Without `init` it trains from scratch.

    vit_jax train --config=configs/finetune.py --workdir=runs/mine
        --config.data.source=folder:/path/to/images [--config.init=FILE_OR_RUN]

The folder contains class folders, or train/ and test/ with class folders inside. csv: and tfds:
sources work too. With `init`, the architecture, image size, normalisation and resizing are those
of the weights. Without it, the model is a Ti/8 at 64 pixels, which is small enough for a CPU. On an
accelerator, use `finetune.py:model=B/16,size=224`. The accuracy depends on your images.
"""

from configs import base
from vit_jax.config.load import parse_args


def get_config(arg=None):
    """Takes `model` (a variant, or auto) and `size` (pixels per side; 0: as the weights)."""
    args = parse_args(arg, model="auto", size=0)
    config = base.get_config()
    config.length = "20 epochs"
    config.batch_size = 64

    config.model.variant = args.model
    config.data.image_size = args.size
    config.data.train_ops = config.data.eval_ops = "auto"
    config.fewshot.ops = config.fewshot.ops.replace("decode", "decode(exif=True)")

    config.loss.label_smoothing = 0.1
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 3e-4
    config.schedule.warmup = "5 percent"

    config.checkpoint.keep_best = "val/top1"
    config.report.every = "10 steps"
    return config
