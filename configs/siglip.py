# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains two towers on images and texts: SigLIP (arXiv:2303.15343), LiT (arXiv:2111.07991).

    vit_jax train --config=configs/siglip.py --workdir=runs/siglip
        --config.data.source=folder:/path/to/images
    vit_jax evaluate runs/siglip
    vit_jax plan --config=configs/siglip.py:paper=siglip,standin=true --accelerator=v5litepod-256

    paper      small: two towers of 0.6 M parameters for 32 pixels, whose texts are names of classes
               | siglip: B/16 of the paper, for images with texts of your own
    texts      true: texts come from the source, not from names of classes (siglip: always)
    tokenizer  bytes, or the file of a SentencePiece model (siglip: with 32,000 tokens)
    lit        true: only the text tower learns; give --config.init=FILE_OR_RUN
    loss       sigmoid | softmax, as in LiT
    model      image tower, a name of `vit_jax models` (lit: that of init)
    size       side of an image in pixels: 224, small 32
    standin    true: noise and names of classes, for plans and a first step on any machine

paper=siglip. From the paper: batch 32,768, 9 billion images (section 4.2), AdamW with b2 = 0.95
(section 4.6), a temperature of log 10 and a bias of -10 at the start. From the published models:
attention pooling of the image, 64 tokens, the last of which stands for the text. From big_vision's
configurations: rate 1e-3, weight decay 1e-4, which is not multiplied by the rate (ours is, so it is
0.1), clipping at 1, resized and flipped images, lower-case texts. Inferred: 10,000 steps of
warm-up. The paper reaches 73.4 % zero-shot on ImageNet with this model (Table 1), on images that
are not published, so there is no `expected`.
lit=true takes `trainable=head`: the image tower has neither gradients nor a state of the optimizer,
and is not saved. docs/siglip.md has more.
"""

from configs import base
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown

_TEMPLATE = "a photo of a {}."
_SMALL_TEXT = "text='custom', text_width=96, text_depth=2, text_mlp=192, text_heads=4, length=48"
_TEXT = "text='B', length=64, vocabulary=32000, clean='lower'"


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, paper="small", texts=False, tokenizer="bytes", lit=False, loss="sigmoid", model="",
        size=0, standin=False,
    )  # fmt: skip
    if args.paper not in ("small", "siglip"):
        raise unknown("paper", args.paper, ["small", "siglip"])
    small = args.paper == "small"
    if args.texts and args.standin:
        raise BadInput("standin=true is noise without texts; leave texts=true out.")
    made = args.standin or (small and not args.texts)
    config = base.get_config()
    config.objective = (
        f"siglip({_SMALL_TEXT if small else _TEXT}, tokenizer={args.tokenizer!r}, "
        f"loss={args.loss!r}{f', template={_TEMPLATE!r}' if made else ''})"
    )
    config.data.image_size = args.size or (32 if small else 224)
    config.data.train_ops = "decode|resize({size})|flip_lr"
    config.optimizer.adamw.b2 = 0.95
    config.optimizer.clip = 1.0
    config.optimizer.weight_decay = 0.1
    config.schedule.lr = 1e-3
    config.recipe.name = "siglip"
    config.recipe.protocol = args.paper
    config.fewshot.method = "zero_shot"
    if args.standin:
        config.data.source = "synthetic:jft300m"
        config.data.val_percent = 1
        config.data.test_percent = 1
    if small:
        _make_small(config, args)
    else:
        config.length = f"{9 * 10**9} examples"
        config.batch_size = 32_768
        config.schedule.warmup = "10000 steps"
        config.model.dtype = "bfloat16"
        config.model.remat = "full"
        config.checkpoint.every = "5000 steps"
        config.evals.val.every = "10000 steps"
        config.report.every = "100 steps"
        config.data.records.text_key = "" if args.standin else "txt"
    config.model.variant = args.model or ("Ti/4" if small else "B/16")
    if args.lit:
        config.trainable = "head"
        config.model.variant = args.model or "auto"
        config.data.image_size = args.size or 0
    elif not config.model.variant.startswith(("BiT", "Mixer", "AxialResNet")):
        config.model.pool = "map"
    return config


def _make_small(config, args):
    """Sets model, size and length of a first run on a few thousand images."""
    config.length = "20 epochs"
    config.batch_size = 256
    config.data.train_ops = "decode|inception_crop({size}, area_min=0.5)|flip_lr"
    config.schedule.warmup = "5 percent"
    config.evals.val.every = "5 epochs"
    config.fewshot.every = "5 epochs"
    config.report.every = "20 steps"
    if not args.model and not args.lit:
        config.model.width = 96
        config.model.depth = 4
        config.model.mlp = 192
        config.model.heads = 4
