# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-trains a masked autoencoder (arXiv:2111.06377): a quarter of the patches is encoded.

    vit_jax train --config=configs/mae.py:small=true --workdir=runs/mae
        --config.data.source=folder:/path/to/images
    vit_jax train --config=configs/mae.py --workdir=/shared/mae
    vit_jax plan --config=configs/mae.py:model=L/16 --accelerator=v3-128

    small    true: a model of 0.6 M parameters for 32 pixels and images of your own, for any machine
    model    B/16, L/16 or H/14 (the paper's), or another ViT of `vit_jax models`
    dataset  imagenet (the paper's) | imagenet21k | jft, and `release`, as in configs/pretrain.py;
             own: any images in a folder, see --config.data.source; labels are ignored
    epochs   800 (the paper's studies); 1600 gives its best results; small: 20
    masked   share of the patches that are masked (0.75)
    decoder  its layers (8, small: 2); its width is 512
    standin  true: noise of the dataset's size, for plans and a first step on any machine

The recipe is that of Table 8: AdamW with b2 = 0.95, batch 4096, rate 1.5e-4 * 4096 / 256, weight
decay 0.05, 40 epochs of warm-up, cosine, and random crops of 20 to 100 % of the area, with flips.
From the published code, not the paper: that range of areas, fixed sine-cosine positions, class and
mask token from a normal of 0.02, Xavier in the decoder.

Deviations: pixels are normalised to [-1, 1] (there by ImageNet's mean and deviation), and 1 % of
the training images are held out. Kernels alone decay (there also class and mask token). The lowest
frequency of the positions is 1e-4, as in big_vision (there 4 to 5 % higher). Queries, keys and
values start with Xavier each (there as one layer, 0.71 times as wide), and patch embeddings with a
normal in place of a uniform draw.

After 1600 epochs and fine-tuning on ImageNet the paper has 83.6 % (B/16), 85.9 % (L/16) and 86.9 %
(H/14, 224 pixels) (Table 3). 800 epochs of L/16 give 84.9 %, and a linear probe 73.5 % (Table 1).
configs/mae_finetune.py fine-tunes; docs/mae.md has the details.
"""

from configs import base, pretrain
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, small=False, model="B/16", dataset="imagenet", release="", epochs=0, masked=0.75,
        decoder=0, standin=False,
    )  # fmt: skip
    if args.small and (args.model, args.dataset, args.standin) != ("B/16", "imagenet", False):
        raise BadInput("small=true has a model and images of its own; leave the others out.")
    config = base.get_config()
    if not args.small:
        pretrain.set_images(config, args)
    config.length = f"{args.epochs or 800} epochs"
    config.batch_size = 4096
    config.objective = f"mae(masked={args.masked}, depth={args.decoder or 8})"
    config.model.variant = args.model
    config.model.posemb = "sincos2d"
    config.model.gelu = "erf"
    config.model.dtype = "bfloat16"
    config.model.remat = "auto"
    config.data.image_size = 224
    config.data.train_ops = "decode|inception_crop({size}, area_min=0.2, cubic=True)|flip_lr"
    config.optimizer.adamw.b2 = 0.95
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 1.5e-4 * 4096 / 256
    config.schedule.warmup = "40 epochs"
    config.checkpoint.every = "5000 steps"
    config.report.every = "100 steps"
    config.fewshot.method = "knn+probe"
    config.fewshot.shots = (0,)
    config.recipe.name = "mae"
    config.recipe.protocol = "mae"
    if args.small:
        _make_small(config, args)
    return config


def _make_small(config, args):
    """Sets model, size and length of a first run on a few thousand images."""
    config.length = f"{args.epochs or 20} epochs"
    config.batch_size = 128
    config.objective = f"mae(masked={args.masked}, depth={args.decoder or 2}, width=64, heads=4)"
    config.model.variant = "Ti/4"
    config.model.width = 96
    config.model.depth = 4
    config.model.mlp = 384
    config.model.heads = 4
    config.model.dtype = "float32"
    config.model.remat = "none"
    config.data.image_size = 32
    config.data.train_ops = "decode|inception_crop({size}, area_min=0.2)|flip_lr"
    config.schedule.lr = 1e-3
    config.schedule.warmup = "10 percent"
    config.evals.val.every = "5 epochs"
    config.checkpoint.every = "5 epochs"
    config.report.every = "10 steps"
    config.recipe.protocol = "small"
