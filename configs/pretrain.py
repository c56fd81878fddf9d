# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-training as in the paper (arXiv:2010.11929, section 4.1, appendix B.1 and Table 3).

    vit_jax train --config=configs/pretrain.py:model=L/16,dataset=imagenet21k,epochs=90
        --workdir=/shared/l16 --config.data.source=folder:/path/to/images
    vit_jax plan --config=configs/pretrain.py:model=L/16,dataset=imagenet21k,epochs=90
        --accelerator=v3-512

    model    a name of `vit_jax models`: B/16, B/32, L/16, L/32, H/14, R50+B/16, R50+B/32, R50+L/16,
             R50+L/32, BiT-R50x1 to BiT-R200x3
    dataset  jft300m | imagenet21k | imagenet
    epochs   only where Table 3 lists two (L/16 on JFT-300M: 7 or 14; L on ImageNet-21k: 30 or 90)

JFT-300M and ImageNet-21k are stand-ins of the right size until data.source names your own images.
Adam at batch 4096 and 224 pixels with 10,000 steps of warm-up; the loss is the sigmoid
cross-entropy summed over classes with a head bias of -10, and a tanh layer of the model's width
stands before the head of a ViT (published code; the paper says neither). Compute in bfloat16 with
the weight products kept for the backward pass: what fits where, and how long it takes, is in
docs/plans.md. Rows that Table 3 does not have take those of the nearest model, as said below.
"""

import dataclasses

from configs import base
from vit_jax.config import parse_args
from vit_jax.errors import BadInput, unknown

SOURCES = {
    "jft300m": "synthetic:jft300m",
    "imagenet21k": "synthetic:imagenet21k",
    "imagenet": "tfds:imagenet2012",
}
WIDTHS = {"B": 768, "L": 1024, "H": 1280}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of Table 3."""

    epochs: tuple[int, ...]
    lr: float


JFT = {
    "B/16": Row((7,), 8e-4),
    "B/32": Row((7,), 8e-4),
    "L/32": Row((7,), 6e-4),
    "L/16": Row((7, 14), 4e-4),
    "H/14": Row((14,), 3e-4),
    "BiT-R50x1": Row((7,), 1e-3),
    "BiT-R50x2": Row((7,), 1e-3),
    "BiT-R101x1": Row((7,), 8e-4),
    "BiT-R152x1": Row((7,), 6e-4),
    "BiT-R152x2": Row((7, 14), 6e-4),  # 14 epochs: not in Table 3, in Table 6
    "BiT-R200x3": Row((14,), 6e-4),  # not in Table 3: as R152x2
    "R50+B/16": Row((7,), 8e-4),
    "R50+B/32": Row((7,), 8e-4),
    "R50+L/32": Row((7,), 2e-4),
    "R50+L/16": Row((7, 14), 4e-4),
}
IMAGENET21K = {
    "B/16": Row((90,), 1e-3),
    "B/32": Row((90,), 1e-3),
    "L/16": Row((30, 90), 1e-3),
    "L/32": Row((30, 90), 1e-3),
    "H/14": Row((90,), 1e-3),  # not in Table 3, in Table 5: as L
}
IMAGENET = {name: Row((300,), 3e-3) for name in ("B/16", "B/32", "L/16", "L/32")}
TABLE_3 = {"jft300m": JFT, "imagenet21k": IMAGENET21K, "imagenet": IMAGENET}


def get_config(arg=None):
    """See the module."""
    args = parse_args(arg, model="B/16", dataset="imagenet21k", epochs=0)
    if args.dataset not in TABLE_3:
        raise unknown("dataset", args.dataset, TABLE_3)
    rows = TABLE_3[args.dataset]
    if args.model not in rows:
        raise unknown(f"model pre-trained on {args.dataset}", args.model, rows)
    row = rows[args.model]
    if not args.epochs and len(row.epochs) > 1:
        choices = " or ".join(f"epochs={n}" for n in row.epochs)
        raise BadInput(f"{args.model} on {args.dataset}: give {choices}.")

    config = base.get_config()
    config.length = f"{args.epochs or row.epochs[0]} epochs"
    config.batch_size = 4096
    config.model.variant = args.model
    size = args.model.split("+")[-1].split("/")[0]
    config.model.representation = WIDTHS.get(size, 0)
    config.model.head_bias = -10.0
    config.model.dtype = "bfloat16"
    config.model.remat = "dots"

    config.data.source = SOURCES[args.dataset]
    config.data.val_percent = 1
    config.loss.name = "sigmoid"
    config.schedule.lr = row.lr
    config.schedule.warmup = "10000 steps"
    config.schedule.name = "linear"
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = 0.1
    config.checkpoint.every = "5000 steps"
    config.evals.val.every = "10000 steps"
    config.report.every = "100 steps"
    if args.dataset != "jft300m":
        config.model.dropout = 0.1
        config.optimizer.weight_decay = 0.03
    if args.dataset == "imagenet":
        config.schedule.name = "cosine"
        config.optimizer.clip = 1.0
        config.optimizer.weight_decay = 0.3
        config.loss.label_smoothing = 1e-4  # an answer of the authors, one source
    return config
