# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-trains by masked patch prediction, as in the paper (arXiv:2010.11929, 4.6 and B.1.2).

    vit_jax train --config=configs/masked.py --workdir=/shared/masked
        --config.data.source=records:GLOB
    vit_jax train --config=configs/transfer.py:dataset=imagenet,init=/shared/masked
        --workdir=/shared/masked-imagenet
    vit_jax plan --config=configs/masked.py --accelerator=v3-512

    model    a ViT or hybrid of `vit_jax models`; the paper uses B/16
    dataset  jft (the paper's) | imagenet21k | imagenet, and `release`, as in configs/pretrain.py;
             own: any images in a folder, see --config.data.source; labels are ignored
    target   mean (the paper's: the mean 3-bit colour of a patch) | small (a patch averaged to
             4 x 4, 3-bit colours) | l2 (all pixels of a patch)
    rate     share of the patch embeddings to corrupt: 0.5 (the paper's) or 0.15 (also tried)
    standin  true: noise of the dataset's size, for plans and a first step on any machine

The recipe uses Adam at batch 4096, rate 2e-4, 10,000 steps of warm-up, cosine, and 1,000,000 steps
(about 14 epochs of JFT-300M). Inferred, not stated by the paper: 224 pixels, no dropout, clipping
on ImageNet only (caption of Table 3), and weight decay 0.1 (section 4.1; JFT's in Table 3), which
is multiplied by the rate and applies to kernels only.

B/16 reaches 79.9 % after fine-tuning on ImageNet. This is 2 points above training from scratch, and
4 points below supervised pre-training (section 4.6). The paper saw little gain after 100,000 steps
(--config.length="100000 steps"), and similar gains from pre-training on ImageNet. `small` worked
about as well as `mean`; `l2` and rate=0.15 were slightly worse (few-shot). docs/masked.md has the
details.
"""

from configs import base, pretrain
from vit_jax.config.load import parse_args
from vit_jax.paper import pretraining


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    paper, common = pretraining.masked(), pretraining.common()
    args = parse_args(
        arg, model=paper.model, dataset=paper.dataset, release="", target="mean", rate=paper.rate,
        standin=False,
    )  # fmt: skip
    config = base.get_config()
    pretrain.set_images(config, args)
    config.length = f"{paper.steps} steps"
    config.batch_size = paper.batch_size
    config.model.variant = args.model
    config.model.dtype = "bfloat16"
    config.model.remat = "auto"
    config.data.image_size = common.resolution
    config.masked.target = args.target
    config.masked.rate = args.rate
    config.optimizer.clip = common.clip.get(args.dataset, 0.0)
    config.optimizer.weight_decay = pretraining.table_3()["jft"]["B/16"].weight_decay
    config.schedule.name = paper.decay
    config.schedule.lr = paper.lr
    config.schedule.warmup = f"{paper.warmup_steps} steps"
    config.checkpoint.every = "5000 steps"
    config.report.every = "100 steps"
    config.recipe.name = "masked"
    config.recipe.protocol = "paper"
    return config
