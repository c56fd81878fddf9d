# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-trains without labels, by recognising two views of one image (SimCLR, arXiv:2002.05709).

    vit_jax train --config=configs/contrastive.py --workdir=runs/contrastive
        --config.data.source=folder:/path/to/images
    vit_jax fewshot runs/contrastive --data=folder:/path/to/images --method=probe

    model        a model of `vit_jax models`; the default is a ViT of 0.3 M parameters for 32 pixels
    size         side of a view in pixels (32); from 64 on, views are blurred too
    temperature  divides the similarities (0.2)
    supervised   true: views of other images of the same class are positives too (SupCon)

Inferred, not from the paper: AdamW at 1e-3 for batches of 256, no batch norm in the projection
head. docs/contrastive.md has figures.
"""

from configs import base
from vit_jax.config.load import parse_args

_VIEW = (
    "decode|inception_crop({size}, area_min=0.2)|flip_lr"
    "|color_jitter(0.4, 0.4, 0.4, 0.1, probability=0.8)|grayscale(0.2)"
)


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(arg, model="", size=32, temperature=0.2, supervised=False)
    config = base.get_config()
    config.length = "20 epochs"
    config.batch_size = 256
    config.objective = f"contrastive(temperature={args.temperature}, supervised={args.supervised})"
    if not args.model.startswith(("BiT", "Mixer", "AxialResNet")):  # they have no other pool
        config.model.pool = "gap"
    config.model.variant = args.model or "Ti/4"
    if not args.model:
        config.model.width = 96
        config.model.depth = 4
        config.model.mlp = 192
        config.model.heads = 4

    config.data.image_size = args.size
    blur = "|gaussian_blur(0.5)" if args.size >= 64 else ""
    config.data.views = f"view*2: {_VIEW}{blur}"
    config.optimizer.weight_decay = 0.05
    config.schedule.lr = 1e-3
    config.schedule.warmup = "5 percent"
    config.evals.val.every = "5 epochs"
    config.recipe.name = "contrastive"
    return config
