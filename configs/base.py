# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every key there is, with its meaning, unit, allowed values, and one of two marks.

[results] changes what is learned or measured: a run cannot be continued with another value.
[where]   only says where and how often: it may change when a run is continued.

Durations are text: a number and `steps`, `epochs`, `examples` or `percent` (of `length`); "0" is
never.
A section with `name` has one sub-section for each choice; only the chosen one counts and is saved.
Each section is the keyword arguments of one function, which documents them once more.
"""

from typing import Any

from ml_collections import ConfigDict


def evaluation(split: str, every: str = "0") -> ConfigDict:
    """One named evaluation; its name is the prefix of its metrics."""
    config = ConfigDict()
    config.source = ""  # [results] kind:rest of another source, see docs/evaluation.md; "": data's
    config.split = split  # [results] a split of it: name, or slice such as "train[:10%]"
    config.labels = ""  # [results] file of other labels (ReaL's real.json); "": the source's own
    config.classes = (
        "all"  # [results] all | present: predicted are the model's classes, or those of the images
    )
    config.evaluator = (
        ""  # [results] MODULE:FUNCTION, a function of your own (docs/extending.md); "": none
    )
    config.every = every  # [where] duration between evaluations; "0": only at the end
    config.batch_size = 0  # [where] images at a time, all devices together; 0: as in training
    return config


def optimize_as_bit(config: ConfigDict, found: Any) -> None:
    """SGD as BiT has it (arXiv:1912.11370): `found` has its batch size, rate, momentum and so on.

    Its caller sets the length, and the steps after which the rate falls.
    """
    config.batch_size = found.batch_size
    config.optimizer.name = "sgd"
    config.optimizer.sgd.momentum = found.momentum
    config.optimizer.sgd.accumulator_dtype = "float32"
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = found.weight_decay
    config.schedule.name = "step"
    config.schedule.lr = found.lr
    config.schedule.warmup = f"{found.warmup_steps} steps"


def get_config() -> ConfigDict:
    """All keys with their defaults, locked: a recipe cannot invent one."""
    config = ConfigDict()
    config.seed = 0  # [results] initialisation, order, augmentation and dropout
    config.platform = "auto"  # [where] auto | cpu | gpu | tpu; auto uses what is present
    config.deterministic = (
        False  # [where] GPU: only kernels that give the same bits each time (slower)
    )
    config.compile_cache = (
        "auto"  # [where] folder that keeps compiled programs; auto: ~/.cache/vit_jax; "": none
    )
    config.init = ""  # [where] run or file to start from, until the workdir has a checkpoint
    config.length = "10 epochs"  # [results] duration of training
    config.batch_size = 512  # [results] images in one optimizer step, all devices together
    config.accumulation = (
        1  # [where] micro-batches one after another in each step; divides batch_size
    )
    config.skip_non_finite = (
        0  # [results] updates skipped, in all, for loss or gradients not finite; the next stops
    )
    config.profile = ""  # [where] "100:105" traces steps 100 to 105 into WORKDIR/profile

    config.model = ConfigDict()
    config.model.variant = (
        "B/16"  # [results] of `vit_jax models`, any patch | MODULE:NAME; "auto": init's, else Ti/8
    )
    config.model.width = 0  # [results] token width D; 0: the variant's, here and in the next four
    config.model.depth = 0  # [results] number of encoder (or Mixer) blocks
    config.model.mlp = 0  # [results] width of the MLP (Mixer: over channels)
    config.model.heads = 0  # [results] attention heads; divides width
    config.model.token_mlp = 0  # [results] Mixer: width of the MLP over tokens
    config.model.stages = ()  # [results] hybrid, BiT: units of each ResNet stage; (): the variant's
    config.model.root_width = 0  # [results] hybrid, BiT: channels of the root, a multiple of 32
    config.model.stem = (
        "standard"  # [results] standard | small (hybrid, BiT on small images: 3 x 3, no pool)
    )
    config.model.stem_stride = 0  # [results] of a small stem: 1 | 2; 0: 1
    config.model.root_pool = "auto"  # [results] BiT: zero | -inf, what pads its pool; auto: zero
    config.model.pool = "token"  # [results] token | gap | map
    config.model.posemb = (
        "learned1d"  # [results] none | learned1d | learned2d | relative | sincos2d (Table 8)
    )
    config.model.posemb_at = (
        "stem"  # [results] stem | every (its own table in each layer) | shared (one for all)
    )
    config.model.registers = 0  # [results] tokens that belong to no patch
    config.model.representation = 0  # [results] width of the tanh layer before the head; 0: none
    config.model.head_bias = (
        0.0  # [results] initial bias of the head (-10 for sigmoid on 21k classes)
    )
    config.model.dropout = 0.0  # [results] after position embedding, attention and MLP layers
    config.model.attention_dropout = 0.0  # [results] on attention weights
    config.model.drop_path = (
        0.0  # [results] stochastic depth: rate of the last block, linear from 0
    )
    config.model.gelu = "auto"  # [results] tanh | erf; auto, here and below: init's, else published
    config.model.ln_epsilon = (
        0.0  # [results] of LayerNorm; 0, here and below: init's, else published
    )
    config.model.gn_epsilon = 0.0  # [results] hybrid, BiT: of group norm
    config.model.ws_epsilon = 0.0  # [results] hybrid, BiT: of weight standardisation
    config.model.ws_epsilon_in = "auto"  # [results] hybrid, BiT: std | variance: where it is added
    config.model.dtype = "float32"  # [results] float32 | bfloat16: compute; parameters are float32
    config.model.scan = (
        True  # [results] layers stacked, compiled as one block (but see docs/memory.md on CPUs)
    )
    config.model.remat = (  # [where] none | dots | full: what the backward pass computes again; or
        "none"  # what it does not: names of activations, "query,key,value" (docs/memory.md)
    )
    config.model.attention = (
        "auto"  # [where] auto (cuDNN's where a GPU can) | plain | fused; see docs/memory.md
    )

    config.data = ConfigDict()
    config.data.source = "digits"  # [results] kind:rest; the kinds are listed in docs/data.md
    config.data.data_dir = ""  # [where] where TFDS datasets are prepared; "": its default
    config.data.split = "train"  # [results] training split: name, or slice such as "train[:98%]"
    config.data.val_percent = 10  # [results] of train held out as "val" where a source has none
    config.data.test_percent = 10  # [results] of all held out as "test" where a source has none
    config.data.examples = 0  # [results] training images kept, chosen by hash (nested); 0: all
    config.data.fraction = 1.0  # [results] share of the training images kept, chosen alike
    config.data.balanced = False  # [results] they are chosen evenly from all classes
    config.data.exclude = ""  # [results] file of names, one a line, of images not trained on
    config.data.bad_images = (
        "error"  # [results] error | skip: training images that cannot be decoded
    )
    config.data.window_shards = (
        0  # [results] shuffle in windows of so many files, read whole; 0: everything at once
    )
    config.data.cache = "none"  # [where] none | raw | decoded: what is kept in memory
    config.data.image_size = (
        224  # [results] pixels a side, {size} in the chains; 0: init's, else 64
    )
    config.data.train_ops = "decode|inception_crop({size})|flip_lr"  # [results] training chain
    config.data.eval_ops = "decode|resize({size})"  # [results] evaluation chain
    config.data.mean = (0.5, 0.5, 0.5)  # [results] per channel, pixels scaled to [0, 1]
    config.data.std = (0.5, 0.5, 0.5)  # [results] as mean
    config.data.workers = 8  # [where] threads that read and decode
    config.data.prefetch = 2  # [where] batches kept ready
    config.data.records = ConfigDict()  # of records:GLOB; "" is the first usual name that is there
    config.data.records.image_key = ""  # [results] of the encoded image
    config.data.records.label_key = ""  # [results] of the label or labels
    config.data.records.name_key = ""  # [results] of what names the image
    config.data.records.label_names = ""  # [results] file of class names, one a line
    config.data.records.max_labels = 1  # [results] the most labels that an image has

    config.loss = ConfigDict()
    config.loss.name = "softmax"  # [results] softmax | sigmoid (summed over classes) | MODULE:NAME
    config.loss.label_smoothing = (
        0.0  # [results] share of the target spread over all classes, [0, 1)
    )

    config.masked = ConfigDict()  # patches are predicted instead of classes (docs/masked.md)
    config.masked.target = (
        "none"  # [results] none | mean (colour) | small (4 x 4 colours) | l2 (all pixels)
    )
    config.masked.rate = 0.5  # [results] share of the patches that are corrupted, (0, 1]

    config.mixup = ConfigDict()
    config.mixup.alpha = 0.0  # [results] images mixed in pairs by Beta(alpha, alpha); 0: off
    config.mixup.cutmix = 0.0  # [results] as alpha, a box of the other image; with both, by turns

    config.optimizer = ConfigDict()
    config.optimizer.name = "adamw"  # [results] adamw | sgd | adafactor | lamb
    config.optimizer.clip = 1.0  # [results] global norm of the gradients; 0: no clipping
    config.optimizer.weight_decay = 0.0  # [results] multiplied by the learning rate (Table 3's 0.1)
    config.optimizer.decay_mask = "kernels"  # [results] kernels | all: which parameters decay
    config.optimizer.lr_mults = ()  # [results] ((path pattern, factor), ...): the first match wins
    config.optimizer.layer_decay = 1.0  # [results] factor on the rate for each layer below the head
    config.optimizer.freeze = ()  # [results] path patterns, e.g. ("embedding/.*", "blocks/[01]/.*")
    config.optimizer.adamw = ConfigDict()
    config.optimizer.adamw.b1 = 0.9  # [results]
    config.optimizer.adamw.b2 = 0.999  # [results]
    config.optimizer.adamw.eps = 1e-8  # [results]
    config.optimizer.adamw.mu_dtype = "float32"  # [results] float32 | bfloat16: first moment
    config.optimizer.sgd = ConfigDict()
    config.optimizer.sgd.momentum = 0.9  # [results]
    config.optimizer.sgd.nesterov = False  # [results]
    config.optimizer.sgd.accumulator_dtype = "bfloat16"  # [results] float32 | bfloat16
    config.optimizer.adafactor = ConfigDict()
    config.optimizer.adafactor.momentum = 0.9  # [results] of the update, not bias-corrected
    config.optimizer.adafactor.beta2_cap = 0.999  # [results] upper bound of 1 - t^-0.8
    config.optimizer.adafactor.min_factored = 32  # [results] smallest dimension that is factored
    config.optimizer.adafactor.accumulator_dtype = "bfloat16"  # [results] float32 | bfloat16
    config.optimizer.lamb = ConfigDict()
    config.optimizer.lamb.b1 = 0.9  # [results]
    config.optimizer.lamb.b2 = 0.999  # [results]
    config.optimizer.lamb.eps = 1e-6  # [results]

    config.schedule = ConfigDict()
    config.schedule.name = "cosine"  # [results] cosine | linear | rsqrt | step
    config.schedule.lr = 1e-3  # [results] peak learning rate
    config.schedule.warmup = "0"  # [results] duration of the linear warm-up from 0
    config.schedule.cooldown = "0"  # [results] duration of the linear descent to 0 at the end
    config.schedule.cosine = ConfigDict()
    config.schedule.linear = ConfigDict()
    config.schedule.linear.end = 1e-5  # [results] rate at the end
    config.schedule.rsqrt = ConfigDict()
    config.schedule.rsqrt.timescale = 10000  # [results] steps until the rate fell by sqrt(2)
    config.schedule.rsqrt.shift = 0  # [results] steps that count as done when the warm-up ends
    config.schedule.step = ConfigDict()
    config.schedule.step.drops = (  # [results] durations after which the rate falls (BiT's
        "30 percent", "60 percent", "90 percent",  # HyperRule)
    )  # fmt: skip
    config.schedule.step.factor = 0.1  # [results] what is left of the rate at each

    config.ema = ConfigDict()
    config.ema.decay = (
        0.0  # [results] average of parameters, of each step; 0: off (paper's Polyak: 0.9999)
    )

    config.mesh = ConfigDict()
    config.mesh.replica = 0  # [where] slices joined by the data-centre network; 0: all there are
    config.mesh.data = -1  # [where] devices that share the batch; -1: all that remain
    config.mesh.fsdp = 1  # [where] devices that share batch and parameters
    config.mesh.tensor = 1  # [where] devices that share heads and MLP
    config.mesh.rules = (  # [where] logical axis -> mesh axes; what is not listed stays whole
        ("act_batch", ("replica", "data", "fsdp")),
        ("act_heads", ("tensor",)),
        ("act_mlp", ("tensor",)),
        ("embed", ("fsdp",)),
        ("heads", ("tensor",)),
        ("mlp", ("tensor",)),
    )

    config.checkpoint = ConfigDict()
    config.checkpoint.every = (
        "1 epochs"  # [where] duration between saves; the last step is always saved
    )
    config.checkpoint.every_minutes = (
        30.0  # [where] also once the newest is so many minutes old; 0: never
    )
    config.checkpoint.keep_last = 2  # [where] newest kept; with 1, a damaged one leaves none
    config.checkpoint.keep_every = (
        "0"  # [where] saves at multiples of this duration are kept for good
    )
    config.checkpoint.keep_best = ""  # [where] metric whose best step is kept, e.g. "val/top1"

    config.evals = ConfigDict()
    config.evals.val = evaluation("val", every="1 epochs")
    config.evals.test = evaluation("test")

    config.fewshot = ConfigDict()  # learning from a few images a class on the representation
    config.fewshot.sources = ()  # [results] ((name of the metrics, source), ...); (): no evaluation
    config.fewshot.shots = (1, 5, 10, 25)  # [results] images a class, chosen by seed and hash
    config.fewshot.seeds = 3  # [results] how many choices of images
    config.fewshot.l2 = 1024.0  # [results] of the ridge regression; above 0
    config.fewshot.every = "0"  # [where] duration between evaluations; "0": only at the end
    config.fewshot.batch_size = 0  # [where] images at a time, all devices; 0: as in training

    config.report = ConfigDict()
    config.report.every = "50 steps"  # [where] duration between rows of metrics.jsonl
    config.report.tensorboard = True  # [where] also write TensorBoard event files
    config.report.page = True  # [where] also write report.html when the run is done

    config.processes = ConfigDict()
    config.processes.connect_secs = 600  # [where] the longest wait for all processes to start
    config.processes.heartbeat_secs = 100  # [where] silence after which a process is given up
    config.processes.barrier_secs = 600  # [where] the longest wait for one another
    config.processes.hang_secs = (  # [where] without a step, after which the run ends: 43; 0: the
        0  # longer of 600 and 40 steps. Start-up, evaluating, saving: 6 times that without progress
    )

    config.recipe = ConfigDict()  # what tables and sweeps must know of where a run comes from
    config.recipe.name = ""  # [where] of the recipe, e.g. "transfer"
    config.recipe.protocol = ""  # [where] runs of one table have one, e.g. "paper"
    config.recipe.stage = ""  # [where] select | final: what a run is for; "": neither
    config.recipe.upstream = ""  # [where] dataset that the weights of init were trained on

    config.expected = ConfigDict()  # what the recipe reaches; metric "" means nothing is known
    config.expected.metric = ""  # [where] e.g. "test/top1"
    config.expected.value = 0.0  # [where]
    config.expected.tolerance = 0.0  # [where] plus or minus
    config.expected.source = ""  # [where] where the value comes from
    config.expected.hardware = ""  # [where]
    config.expected.hours = 0.0  # [where]
    return config.lock()
