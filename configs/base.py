# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines every configuration key, with its meaning, unit, allowed values, and one of two marks.

[results] The key changes what is learned or measured. A run cannot continue with another value.
[where]   The key only changes where and how often. It may change when a run continues.

A duration is text: a number and `steps`, `epochs`, `examples` or `percent` (of `length`). "0" means
never.
A section with `name` has one sub-section for each choice. Only the chosen one counts and is saved.
`optimizer.decay` is not a choice: every optimizer has it.
The keys of a section are the keyword arguments of one function, whose docstring explains them too.
"""

from typing import Any

from ml_collections import ConfigDict


def evaluation(split: str, every: str = "0") -> ConfigDict:
    """Returns the section of one evaluation. Its name is the prefix of its metrics."""
    config = ConfigDict()
    config.source = (
        ""  # [results] source to evaluate, kind:rest (docs/evaluation.md); "": data.source
    )
    config.split = split  # [results] split of the source: name, or slice such as "train[:10%]"
    config.labels = (
        ""  # [results] file of other labels, such as ReaL's real.json; "": labels of the source
    )
    config.classes = (
        "all"  # [results] all | present: predict among all model classes, or those of the images
    )
    config.evaluator = (
        ""  # [results] MODULE:FUNCTION, your own metrics (docs/extending.md); "": no function
    )
    config.every = every  # [where] duration between evaluations; "0": only at the end
    config.batch_size = 0  # [where] images per batch over all devices; 0: as in training
    return config


def optimize_as_bit(config: ConfigDict, bit: Any) -> None:
    """Sets SGD as in BiT (arXiv:1912.11370).

    The caller sets the length, and the steps after which the rate falls.

    Args:
      config: changed in place.
      bit: an object with batch size, rate, momentum, weight decay and warm-up steps.
    """
    config.batch_size = bit.batch_size
    config.optimizer.name = "sgd"
    config.optimizer.sgd.momentum = bit.momentum
    config.optimizer.sgd.accumulator_dtype = "float32"
    config.optimizer.clip = 0.0
    config.optimizer.weight_decay = bit.weight_decay
    config.schedule.name = "step"
    config.schedule.lr = bit.lr
    config.schedule.warmup = f"{bit.warmup_steps} steps"


def get_config() -> ConfigDict:
    """Returns all keys with their defaults, locked, so that a recipe cannot add a key."""
    config = ConfigDict()
    config.seed = 0  # [results] seed >= 0 of initialisation, data order, augmentation and dropout
    config.platform = "auto"  # [where] auto | cpu | gpu | tpu; auto: what the machine has
    config.deterministic = (
        False  # [where] GPU: use only kernels that return the same bits each time (slower)
    )
    config.compile_cache = (
        "auto"  # [where] folder for compiled programs; auto: ~/.cache/vit_jax; "": no cache
    )
    config.init = (
        ""  # [where] run or weights file to start from, while the workdir has no checkpoint
    )
    config.branch = (
        ""  # [where] WORKDIR@STEP: run and step whose whole state the run begins with (--branch)
    )
    config.length = "10 epochs"  # [results] duration of the training
    config.batch_size = 512  # [results] images per optimizer step over all devices, >= 1
    config.accumulation = (
        1  # [where] micro-batches per step, run one after another; divides batch_size
    )
    config.skip_non_finite = (
        0  # [results] non-finite updates (loss, gradients) to skip in total; the next ends the run
    )
    config.profile = (
        ""  # [where] steps to trace into WORKDIR/profile, such as "100:105"; "": no trace
    )

    config.model = ConfigDict()
    config.model.variant = (
        "B/16"  # [results] name of `vit_jax models`, any patch | MODULE:NAME | auto: init's or Ti/8
    )
    config.model.width = (
        0  # [results] token width D; 0, here and in the next four keys: the variant's value
    )
    config.model.depth = 0  # [results] number of encoder or Mixer blocks
    config.model.mlp = 0  # [results] width of the MLP (Mixer: of the MLP over channels)
    config.model.heads = 0  # [results] number of attention heads; divides width
    config.model.token_mlp = 0  # [results] Mixer: width of the MLP over tokens
    config.model.stages = ()  # [results] hybrid, BiT: units per ResNet stage; (): the variant's
    config.model.root_width = (
        0  # [results] hybrid, BiT: channels of the root, multiple of 32; 0: the variant's
    )
    config.model.stem = (
        "standard"  # [results] hybrid, BiT: standard | small (3 x 3, no pool, for small images)
    )
    config.model.stem_stride = 0  # [results] stride of the small stem: 1 | 2; 0: 1
    config.model.root_pool = (
        "auto"  # [results] BiT: padding value of the root's pooling: auto | zero | -inf; auto: zero
    )
    config.model.pool = (
        "token"  # [results] token | gap | map: class token, global average, attention pooling
    )
    config.model.posemb = (
        "learned1d"  # [results] none | learned1d | learned2d | relative | sincos2d (Table 8)
    )
    config.model.posemb_at = (
        "stem"  # [results] stem | every (a table per layer) | shared (one table in all layers)
    )
    config.model.registers = 0  # [results] number of extra tokens that belong to no patch
    config.model.representation = (
        0  # [results] width of the tanh layer before the head; 0: no layer
    )
    config.model.head_bias = (
        0.0  # [results] initial bias of the head; -10 suits sigmoid on 21k classes
    )
    config.model.dropout = (
        0.0  # [results] rate after position embedding, attention and MLP layers, [0, 1)
    )
    config.model.attention_dropout = 0.0  # [results] rate on attention weights, [0, 1)
    config.model.drop_path = (
        0.0  # [results] stochastic depth: rate of the last block, linear from 0, [0, 1)
    )
    config.model.gelu = (
        "auto"  # [results] tanh | erf | auto; auto, here and below: init's, else the published
    )
    config.model.ln_epsilon = (
        0.0  # [results] epsilon of LayerNorm; 0, here and below: init's, else published
    )
    config.model.gn_epsilon = 0.0  # [results] hybrid, BiT: epsilon of GroupNorm
    config.model.ws_epsilon = 0.0  # [results] hybrid, BiT: epsilon of weight standardisation
    config.model.ws_epsilon_in = (
        "auto"  # [results] hybrid, BiT: auto | std | variance: where ws_epsilon is added
    )
    config.model.dtype = (
        "float32"  # [results] float32 | bfloat16: dtype of compute; parameters are float32
    )
    config.model.scan = (
        True  # [results] stack the layers' parameters, so that a block can be compiled once
    )
    config.model.remat = (  # [where] none | dots | full | auto: what the backward pass recomputes;
        "none"  # or the names of activations that it keeps, e.g. "query,key" (docs/memory.md)
    )
    config.model.attention = (
        "auto"  # [where] auto (cuDNN where a GPU supports it) | plain | fused (docs/memory.md)
    )

    config.data = ConfigDict()
    config.data.source = (
        "digits"  # [results] source to train on, kind:rest; docs/data.md lists the kinds
    )
    config.data.data_dir = ""  # [where] folder of prepared TFDS datasets; "": the default of TFDS
    config.data.split = "train"  # [results] training split: name, or slice such as "train[:98%]"
    config.data.val_percent = (
        10  # [results] % of train held out as val if the source has no val, 0 to 90
    )
    config.data.test_percent = (
        10  # [results] % of all images held out as test if the source has no test, 0 to 90
    )
    config.data.examples = (
        0  # [results] number of training images to keep, chosen by hash (nested); 0: all
    )
    config.data.fraction = (
        1.0  # [results] share of the training images to keep, chosen by hash, (0, 1]
    )
    config.data.balanced = False  # [results] choose the images to keep evenly from all classes
    config.data.exclude = (
        ""  # [results] file of image names to leave out of training, one per line; "": no file
    )
    config.data.bad_images = (
        "error"  # [results] error | skip: what to do with training images that cannot be decoded
    )
    config.data.window_shards = (
        0  # [results] files per shuffle window, read whole; 0: shuffle all examples
    )
    config.data.cache = (
        "none"  # [where] none | raw | decoded: form in which examples are kept in memory
    )
    config.data.image_size = (
        224  # [results] pixels per side, {size} in the chains; 0: init's, else 64
    )
    config.data.train_ops = (
        "decode|inception_crop({size})|flip_lr"  # [results] chain of ops for training
    )
    config.data.eval_ops = "decode|resize({size})"  # [results] chain of ops for evaluation
    config.data.mean = (0.5, 0.5, 0.5)  # [results] mean of each channel, pixels scaled to [0, 1]
    config.data.std = (0.5, 0.5, 0.5)  # [results] standard deviation of each channel, > 0
    config.data.workers = 8  # [where] threads that read and decode, >= 1
    config.data.prefetch = 2  # [where] number of batches kept ready, >= 0
    config.data.records = ConfigDict()  # for records:GLOB; "": the first usual name that is there
    config.data.records.image_key = ""  # [results] feature with the encoded image
    config.data.records.label_key = ""  # [results] feature with the label or labels
    config.data.records.name_key = ""  # [results] feature with the name of the image
    config.data.records.label_names = (
        ""  # [results] file of class names, one per line; "": labels.txt beside them
    )
    config.data.records.max_labels = 1  # [results] largest number of labels of an image, >= 1

    config.loss = ConfigDict()
    config.loss.name = "softmax"  # [results] softmax | sigmoid (summed over classes) | MODULE:NAME
    config.loss.label_smoothing = (
        0.0  # [results] share of the target spread over all classes, [0, 1)
    )

    config.masked = ConfigDict()  # predict patches instead of classes (docs/masked.md)
    config.masked.target = (
        "none"  # [results] none | mean (colour) | small (4 x 4 colours) | l2 (all pixels)
    )
    config.masked.rate = 0.5  # [results] share of the patches to corrupt, (0, 1]

    config.mixup = ConfigDict()
    config.mixup.alpha = 0.0  # [results] mix pairs of images by Beta(alpha, alpha); 0: off
    config.mixup.cutmix = 0.0  # [results] alpha of CutMix; 0: off; if both are set, they take turns

    config.optimizer = ConfigDict()
    config.optimizer.name = "adamw"  # [results] adamw | sgd | adafactor | lamb
    config.optimizer.clip = 1.0  # [results] largest global norm of the gradients; 0: no clipping
    config.optimizer.weight_decay = (
        0.0  # [results] decay, multiplied by the learning rate (0.1 in Table 3)
    )
    config.optimizer.decay_mask = "kernels"  # [results] kernels | all: parameters that decay
    config.optimizer.decay = ConfigDict()
    config.optimizer.decay.multipliers = ()  # [results] ((pattern, factor), ...): first match wins
    config.optimizer.lr_mults = ()  # [results] ((path pattern, factor), ...): the first match wins
    config.optimizer.layer_decay = (
        1.0  # [results] factor on the rate for each layer below the head; 1: off
    )
    config.optimizer.freeze = ()  # [results] path patterns, e.g. ("embedding/.*", "blocks/[01]/.*")
    config.optimizer.adamw = ConfigDict()
    config.optimizer.adamw.b1 = 0.9  # [results] decay of the first moment
    config.optimizer.adamw.b2 = 0.999  # [results] decay of the second moment
    config.optimizer.adamw.eps = 1e-8  # [results] added to the root of the second moment
    config.optimizer.adamw.mu_dtype = (
        "float32"  # [results] float32 | bfloat16: dtype of the first moment
    )
    config.optimizer.sgd = ConfigDict()
    config.optimizer.sgd.momentum = 0.9  # [results] factor on the previous momentum
    config.optimizer.sgd.nesterov = False  # [results] use Nesterov momentum
    config.optimizer.sgd.accumulator_dtype = (
        "bfloat16"  # [results] float32 | bfloat16: dtype of the momentum
    )
    config.optimizer.adafactor = ConfigDict()
    config.optimizer.adafactor.momentum = (
        0.9  # [results] momentum of the update, without bias correction
    )
    config.optimizer.adafactor.beta2_cap = 0.999  # [results] upper bound of the decay 1 - t^-0.8
    config.optimizer.adafactor.min_factored = 32  # [results] smallest dimension that is factored
    config.optimizer.adafactor.accumulator_dtype = (
        "bfloat16"  # [results] float32 | bfloat16: of the momentum
    )
    config.optimizer.lamb = ConfigDict()
    config.optimizer.lamb.b1 = 0.9  # [results] decay of the first moment
    config.optimizer.lamb.b2 = 0.999  # [results] decay of the second moment
    config.optimizer.lamb.eps = 1e-6  # [results] added to the root of the second moment

    config.schedule = ConfigDict()
    config.schedule.name = "cosine"  # [results] cosine | linear | rsqrt | step
    config.schedule.lr = 1e-3  # [results] peak learning rate, >= 0
    config.schedule.warmup = "0"  # [results] duration of the linear warm-up from 0
    config.schedule.cooldown = "0"  # [results] duration of the linear descent to 0 at the end
    config.schedule.cosine = ConfigDict()
    config.schedule.linear = ConfigDict()
    config.schedule.linear.end = 1e-5  # [results] learning rate at the end
    config.schedule.rsqrt = ConfigDict()
    config.schedule.rsqrt.timescale = (
        10000  # [results] steps until the rate has fallen by a factor of sqrt(2)
    )
    config.schedule.rsqrt.shift = 0  # [results] steps that already count when the warm-up ends
    config.schedule.step = ConfigDict()
    config.schedule.step.drops = (  # [results] durations after which the rate falls
        "30 percent", "60 percent", "90 percent",  # as in BiT's HyperRule
    )  # fmt: skip
    config.schedule.step.factor = 0.1  # [results] factor on the rate at each drop

    config.ema = ConfigDict()
    config.ema.decay = (
        0.0  # [results] decay per step of averaged parameters, [0, 1); 0: off (paper: 0.9999)
    )

    config.mesh = ConfigDict()
    config.mesh.replica = 0  # [where] slices joined by the data-centre network; 0: all slices
    config.mesh.data = -1  # [where] devices that split the batch; -1: all remaining devices
    config.mesh.fsdp = 1  # [where] devices that split the batch and the parameters
    config.mesh.tensor = 1  # [where] devices that split attention heads and MLP
    config.mesh.rules = (  # [where] logical axis -> mesh axes; axes not listed are not split
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
        30.0  # [where] also save when the newest is this many minutes old; 0: never
    )
    config.checkpoint.keep_last = (
        2  # [where] newest checkpoints to keep, >= 1; if the only one is damaged, none is left
    )
    config.checkpoint.keep_every = (
        "0"  # [where] keep saves at multiples of this duration for good; "0": off
    )
    config.checkpoint.keep_best = (
        ""  # [where] metric whose best step is kept, e.g. "val/top1"; "": off
    )

    config.evals = ConfigDict()
    config.evals.val = evaluation("val", every="1 epochs")
    config.evals.test = evaluation("test")

    config.fewshot = ConfigDict()  # few-shot evaluation of frozen features (docs/fewshot.md)
    config.fewshot.sources = ()  # [results] ((name of the metrics, source), ...); (): no evaluation
    config.fewshot.shots = (1, 5, 10, 25)  # [results] images per class, chosen by seed and hash
    config.fewshot.seeds = 3  # [results] number of choices of images, 1 to 1000
    config.fewshot.l2 = 1024.0  # [results] strength of the ridge regression, > 0
    config.fewshot.every = "0"  # [where] duration between evaluations; "0": only at the end
    config.fewshot.batch_size = 0  # [where] images per batch over all devices; 0: as in training

    config.report = ConfigDict()
    config.report.every = "50 steps"  # [where] duration between rows of metrics.jsonl
    config.report.tensorboard = True  # [where] also write TensorBoard event files
    config.report.page = True  # [where] also write report.html at the end of the run

    config.processes = ConfigDict()
    config.processes.connect_secs = 600  # [where] seconds to wait for all processes to start
    config.processes.heartbeat_secs = 100  # [where] seconds of silence before a process is given up
    config.processes.barrier_secs = 600  # [where] seconds that processes wait for each other
    config.processes.hang_secs = (  # [where] seconds without a step, then the run ends with 43; 0:
        0  # the longer of 600 s and 40 steps. Start-up, evaluation and saving have 6 times as long
    )

    config.recipe = ConfigDict()  # what tables and sweeps need to know about the run
    config.recipe.name = ""  # [where] name of the recipe, e.g. "transfer"
    config.recipe.protocol = ""  # [where] protocol, the same for all runs of a table, e.g. "paper"
    config.recipe.stage = ""  # [where] select | final: purpose of the run; "": neither
    config.recipe.upstream = ""  # [where] dataset that the weights of init were trained on

    config.expected = ConfigDict()  # what the recipe reaches, if that is known
    config.expected.metric = (
        ""  # [where] metric with an expected value, e.g. "test/top1"; "": unknown
    )
    config.expected.value = 0.0  # [where] expected value of the metric
    config.expected.tolerance = 0.0  # [where] largest difference from value, plus or minus
    config.expected.source = ""  # [where] where the value comes from
    config.expected.hardware = ""  # [where] hardware of the measurement
    config.expected.hours = 0.0  # [where] hours the run takes on this hardware
    return config.lock()
