# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pre-trains without labels by self-distillation: DINO, iBOT and DINOv2.

    vit_jax train --config=configs/dino.py --workdir=runs/dino
        --config.data.source=folder:/path/to/images
    vit_jax fewshot runs/dino --data=folder:/path/to/images --method=knn
    vit_jax plan --config=configs/dino.py:paper=dinov2,standin=true --accelerator=v5e-64

    paper     small: a model of 0.3 M parameters for 32 pixels | dino (arXiv:2104.14294): S/16, 100
              epochs of ImageNet, 69.3 % with k-NN | ibot (arXiv:2111.07832): S/16, 800 epochs |
              dinov2 (arXiv:2304.07193): L/16, 125,000 steps on ImageNet, 81.6 % with k-NN
    model     a ViT or hybrid of `vit_jax models`, in place of the paper's
    size      side of a global view in pixels: 224, small 32; from 64 on, views are blurred too
    local     side of a local view: 96, small 16
    crops     local views of each image: 8, ibot 10
    centring  mean | sinkhorn | none
    ibot      weight of the loss of masked patches: 1 in ibot and dinov2, else 0
    koleo     weight of KoLeo: 0.1 in dinov2, else 0
    gram      weight of Gram anchoring in the last fifth of the run (2 in DINOv3): 0
    dataset   of a paper: imagenet | imagenet21k | jft, and `release`, as in configs/pretrain.py;
              own: any images in one folder or more, see --config.data.source;
              with imagenet the published accuracy of k-NN is `expected` and measured
    standin   true: noise of the dataset's size, for plans and a first step on any machine

The numbers are those of the papers' code. Deviations: weight decay is constant (there it grows from
0.04 to 0.4) and acts on kernels alone (there also on the class and mask tokens and the positions);
the rate ends at 0 (there 1e-6); clipping is by the norm of all gradients (there by that of each
tensor, in DINOv2 of each module); kernels start with Xavier and the class token with zeros (there
all with a normal of 0.02), prototypes with a normal of 0.02 (there uniform); AdamW counts the steps
in which the prototypes have no gradient, so that their first steps are larger; dinov2 has no
smaller rate for the patch embedding, its stochastic depth grows from 0 with the layer (there it is
the same in all), its KoLeo is over the whole batch (there over that of a device), and masks are in
one of the two global views of each image (in the papers in any half of all views). The gain of the
last layer is fixed (in iBOT's S/16 it is learned) and the centre of patches is that of the masked
ones (in iBOT of all). The positions of local views are resized linearly (there by cubic
interpolation), and so are the crops of the small recipe; pixels are normalised to [-1, 1] (there by
ImageNet's mean and deviation). docs/dino.md has more.
"""

from configs import base, pretrain
from vit_jax.config.load import parse_args
from vit_jax.errors import BadInput, unknown
from vit_jax.paper.expectations import Expected

# Per paper: settings of the recipe; `head` are further arguments of the objective.
_PAPERS = {
    "small": {
        "model": "Ti/4", "size": 32, "local": 16, "crops": 6, "scale": 0.4,
        "length": "20 epochs", "batch_size": 256, "lr": 1e-3, "warmup": "10 percent",
        "momentum": 0.99, "drop_path": 0.0, "centring": "mean", "ibot": 0.0, "koleo": 0.0,
        "head": "prototypes=1024, hidden=256, bottleneck=64",
    },
    "dino": {
        "model": "S/16", "size": 224, "local": 96, "crops": 8, "scale": 0.4,
        "length": "100 epochs", "batch_size": 512, "lr": 1e-3, "warmup": "10 epochs",
        "momentum": 0.996, "drop_path": 0.1, "centring": "mean", "ibot": 0.0, "koleo": 0.0,
        "head": "teacher_temperature=0.04, warmup='0'",
    },
    "ibot": {
        "model": "S/16", "size": 224, "local": 96, "crops": 10, "scale": 0.25,
        "length": "800 epochs", "batch_size": 1024, "lr": 2e-3, "warmup": "10 epochs",
        "momentum": 0.996, "drop_path": 0.1, "centring": "mean", "ibot": 1.0, "koleo": 0.0,
        "head": "prototypes=8192, warmup='30 epochs'",
    },
    "dinov2": {
        "model": "L/16", "size": 224, "local": 96, "crops": 8, "scale": 0.32,
        "length": "125000 steps", "batch_size": 2048, "lr": 4e-3 * 2**0.5, "warmup": "10 percent",
        "momentum": 0.992, "drop_path": 0.3, "centring": "mean", "ibot": 1.0, "koleo": 0.1,
        "head": "warmup='30 percent', frozen='1250 steps'",
    },
}  # fmt: skip


# Accuracy of k-NN on ImageNet in percent, and where it is published.
_KNN = {
    "dino": (69.3, "README of facebookresearch/dino, vanilla training"),
    "ibot": (75.2, "README of bytedance/ibot"),
    "dinov2": (81.6, "README of facebookresearch/dinov2, fast setup"),
}
_KNN_TOLERANCE = 0.01  # ours: no seeds are published


def get_config(arg=None):
    """Returns the configuration; the module describes the arguments."""
    args = parse_args(
        arg, paper="small", model="", size=0, local=0, crops=-1, centring="", ibot=-1.0, koleo=-1.0,
        gram=0.0, dataset="imagenet", release="", standin=False,
    )  # fmt: skip
    paper = _settings(args)
    config = base.get_config()
    config.length = paper["length"]
    config.batch_size = paper["batch_size"]
    late = f", gram={args.gram}, gram_from='80 percent'" if args.gram else ""
    config.objective = (
        f"dino(local={paper['crops']}, local_size={paper['local']}, ibot={paper['ibot']}, "
        f"koleo={paper['koleo']}, centring={paper['centring']!r}, {paper['head']}{late})"
    )
    config.model.variant = paper["model"]
    config.model.drop_path = paper["drop_path"]
    if paper["model"] == "Ti/4":
        config.model.width = 96
        config.model.depth = 4
        config.model.mlp = 192
        config.model.heads = 4
    config.data.image_size = paper["size"]
    config.data.views = _views(paper)
    if args.paper != "small":
        pretrain.set_images(config, args)
        config.model.gelu = "erf"
        config.model.dtype = "bfloat16"
        config.model.remat = "auto"
        config.recipe.protocol = args.paper
    if args.paper == "dinov2":
        config.optimizer.layer_decay = 0.9
        config.model.layer_scale = 1e-5
    config.optimizer.clip = 3.0
    config.optimizer.weight_decay = 0.04
    config.schedule.lr = paper["lr"]
    config.schedule.warmup = paper["warmup"]
    config.ema.decay = paper["momentum"]
    config.ema.final = 1.0
    config.fewshot.method = "knn+probe"
    config.fewshot.shots = (0,)
    config.fewshot.every = "5 epochs"
    config.evals.val.every = "5 epochs"
    if args.paper != "small" and args.dataset == "imagenet" and not args.standin:
        config.fewshot.method = "knn"
        config.fewshot.every = "10 percent"
        config.fewshot.sources = (("imagenet", "tfds:imagenet2012"),)
        if paper == _PAPERS[args.paper] and not args.gram:
            _expect(config, args.paper)
    config.recipe.name = "dino"
    return config


def _settings(args):
    """Returns the settings of a paper, with those that the arguments change."""
    if args.paper not in _PAPERS:
        raise unknown("paper", args.paper, _PAPERS)
    if args.paper == "small" and (args.dataset, args.standin) != ("imagenet", False):
        raise BadInput("dataset and standin are of a paper; give paper=dino, ibot or dinov2.")
    own = {"model": args.model, "size": args.size, "local": args.local, "centring": args.centring}
    given = {name: value for name, value in own.items() if value}
    own = {"crops": args.crops, "ibot": args.ibot, "koleo": args.koleo}
    given |= {name: value for name, value in own.items() if value >= 0}
    return _PAPERS[args.paper] | given


def _expect(config, paper):
    """Sets the accuracy that the authors publish for a recipe of theirs."""
    percent, place = _KNN[paper]
    accuracy, source = round(percent / 100, 4), f"{place}: {percent} %"
    base.expect(config, Expected("fewshot_imagenet/allshot", accuracy, _KNN_TOLERANCE, source))


def _views(paper):
    """Returns `data.views`: two global views, unlike in blur and solarising, and local ones."""
    small = paper["size"] < 64

    def chain(size, low, high, blur, more=""):
        cubic = "" if small else ", cubic=True"
        crop = f"decode|inception_crop({size}, area_min={low}, area_max={high}{cubic})|flip_lr"
        colour = "|color_jitter(0.4, 0.4, 0.2, 0.1, probability=0.8)|grayscale(0.2)"
        return f"{crop}{colour}{'' if small else f'|gaussian_blur({blur})'}{more}"

    views = [
        f"global_1: {chain('{size}', paper['scale'], 1.0, 1.0)}",
        f"global_2: {chain('{size}', paper['scale'], 1.0, 0.1, '|solarize(0.2)')}",
    ]
    if paper["crops"]:
        local = chain(paper["local"], 0.05, paper["scale"], 0.5)
        views.append(f"local*{paper['crops']}: {local}")
    return " ; ".join(views)
