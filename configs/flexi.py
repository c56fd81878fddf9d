# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains a small FlexiViT, or a ViT with one patch size, on CIFAR-10 at 48 pixels.

    vit_jax train --config=configs/flexi.py --workdir=runs/flexi
        --config.data.source=folder:/path/to/cifar10
    vit_jax sweep --config=configs/flexi.py --workdir=runs/flexi --parallel=2
        --config.data.source=folder:/path/to/cifar10

    patch     flexi: 6, 8, 12, 16 or 24 pixels, drawn for each step | any one size, such as 8

The folder contains train/CLASS and test/CLASS. The sweep repeats Figure 3 of arXiv:2212.08013 in
miniature: flexi, 8 and 16, with three seeds each. docs/flexi.md has the figures. A run reads each
image of train three times, which is far from convergence.
"""

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput

PATCHES = (6, 8, 12, 16, 24)
FIXED, SEEDS = ("8", "16"), (0, 1, 2)


def get_config(arg=None):
    """Returns the configuration; the module describes the argument."""
    patch = str(parse_args(arg, patch="flexi").patch)
    if patch != "flexi" and not patch.isdecimal():
        raise BadInput(f"patch={patch} is neither flexi nor a number of pixels.")
    config = base.get_config()
    config.length = "3 epochs"
    config.batch_size = 64

    config.model.variant = "Flexi-custom/8" if patch == "flexi" else f"custom/{patch}"
    if patch == "flexi":
        config.model.patches = PATCHES
    config.model.width = 96
    config.model.depth = 4
    config.model.mlp = 192
    config.model.heads = 4
    config.model.pool = "gap"

    config.data.source = "folder:cifar10"
    config.data.val_percent = 0
    config.data.image_size = 48
    config.data.train_ops = "decode|resize({size})|shift(3)|flip_lr"
    config.data.eval_ops = "decode|resize({size})"

    config.optimizer.weight_decay = 0.1
    config.schedule.lr = 1e-3
    config.schedule.warmup = "10 percent"

    with config.evals.unlocked():
        del config.evals.val  # nothing is selected
    config.checkpoint.every = "0"
    config.report.writers = ()
    config.report.page = False
    return config


def sweep(arg=None):
    """Returns the points of the figure."""
    return [{":patch": patch, "seed": seed} for seed in SEEDS for patch in ("flexi", *FIXED)]
