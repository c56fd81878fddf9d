# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Declares every configuration key: type, default, range or choices, unit, effect and meaning.

A section is a frozen dataclass and a key is a field of it; configs/base.py makes the ConfigDict
that recipes change from the defaults. `results`, `where` and `how_often` say what another value
changes: a run cannot continue with another value of a key that changes results.

A section with `name` has one sub-section for each choice. Only the chosen one counts and is saved.
A duration is text: a number and `steps`, `epochs`, `examples` or `percent` (of `length`). "0" means
never. The keys of a section are the keyword arguments of one function.

Imports only `schema`, and `model_section` and `optimizer_sections`, which declare sections too.
Start from `Config`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vit_jax.config import schema
from vit_jax.config.model_section import Model as Model
from vit_jax.config.optimizer_sections import Optimizer, Schedule
from vit_jax.config.schema import MOST, Range, how_often, inside, results, where

# Choices that other rooms name too.
BadImages = Literal["error", "skip"]
Cache = Literal["none", "raw", "decoded"]
ReaderName = Literal["tf", "python"]
Target = Literal["mean", "small", "l2"]
Platform = Literal["auto", "cpu", "gpu", "tpu"]

_COUNT, _POSITIVE = Range(0, MOST), Range(1, MOST)
_RATE = Range(0, 1, below=True)
_SHARE = Range(0, 1, above=True)
_EPS = Range(0, 10, above=True)
_AXIS = Range(1, MOST, also=(-1,))
_SECS = Range(1, 10**6)
_NOT_NEGATIVE = Range(0, 1e6)
_LARGEST = 1e30  # a float32 holds it

# fmt: off


@dataclass(frozen=True)
class Records:
    """For sources records:GLOB, tar:GLOB, masks:PATH and tfds:NAME; "": the usual name."""
    image_key: str = results("", "feature with the encoded image")
    label_key: str = results("", "feature with the label or labels; in tfds:NAME also the mask")
    name_key: str = results("", "feature with the name of the image")
    text_key: str = results(
        "", 'feature with the text, or in tars the suffix of its member, e.g. "txt"; "": no text')
    label_names: str = results("", 'file of class names, one per line; "": labels.txt beside them')
    max_labels: int = results(1, "largest number of labels of an image", Range(1, 10_000))


@dataclass(frozen=True)
class Data:
    """Images for training, and their preprocessing (docs/data.md, docs/preprocessing.md)."""
    source: str = results("digits", "source to train on, kind:rest; docs/data.md lists the kinds")
    data_dir: str = where("", 'folder of prepared TFDS datasets; "": the default of TFDS')
    split: str = results("train", 'training split: name, or slice such as "train[:98%]"')
    val_percent: int = results(
        10, "share of train held out as val if the source has no val", Range(0, 90), "percent")
    test_percent: int = results(
        10, "share of all images held out as test if the source has no test", Range(0, 90),
        "percent")
    examples: int = results(
        0, "training images to keep, chosen by hash (nested); 0: all", _COUNT, "images")
    fraction: float = results(1.0, "share of the training images to keep, chosen by hash", _SHARE)
    balanced: bool = results(False, "choose the images to keep evenly from all classes")
    exclude: str = results(
        "", 'file of image names to leave out of training, one per line; "": no file')
    bad_images: BadImages = results(
        "error", "what to do with training images that cannot be decoded")
    window_shards: int = results(
        0, "size of a shuffle window, read whole; 0: shuffle all examples", _COUNT, "files")
    cache: Cache = where("none", "form in which examples are kept in memory")
    image_size: int | str = results(
        224, "side of an image, or ROWSxCOLUMNS; {size} in chains; 0: init's, else 64", "size")
    channels: int = results(
        3, "channels of an image; 1: gray (docs/preprocessing.md)", Range(1, 1024), "channels")
    train_ops: str = results("decode|inception_crop({size})|flip_lr",
        "chain of ops for training; auto: a crop and a flip, resized as the weights of init expect")
    device_ops: str = results(
        "", "chain of ops in the step, after train_ops; \"\": none (docs/feeding.md)")
    eval_ops: str = results("decode|resize({size})",
        "chain of ops for evaluation; auto: as the weights of init expect")
    views: str = results(
        "", 'views of a training image in place of train_ops, "NAME*COUNT: CHAIN ; ..."; "": one')
    mean: tuple[float, ...] = results(
        (0.5, 0.5, 0.5), "mean of each channel, or one for all; pixels scaled to [0, 1]", "mean")
    std: tuple[float, ...] = results(
        (0.5, 0.5, 0.5), "standard deviation of each channel, or one for all", "std")
    reader: ReaderName = results(
        "tf", "who reads images: tf.data, or Python without TensorFlow (docs/data.md)")
    stage: str = where(
        "", 'folder on a disk of each host that images are copied to while training; "": none')
    stage_budget: str = where(
        "", 'bytes of that folder, such as "400GB"; "": 90 % of the free space')
    workers: int = where(8, "threads that read and decode, or processes", Range(1, 4096), "threads")
    prefetch: int = where(2, "batches kept ready", Range(0, 10_000), "batches")
    records: Records = inside(Records)


@dataclass(frozen=True)
class Loss:
    """The loss of an image (docs/extending.md has your own)."""
    name: Literal["softmax", "sigmoid"] | str = results(
        "softmax", "sigmoid: summed over classes", "plug-in")
    label_smoothing: float = results(0.0, "share of the target spread over all classes", _RATE)


@dataclass(frozen=True)
class Masked:
    """Prediction of patches instead of classes (docs/masked.md)."""
    target: Literal["none", Target] = results(
        "none", "mean: the colour; small: 4 x 4 colours; l2: all pixels; none: classes")
    rate: float = results(0.5, "share of the patches to corrupt", _SHARE)


@dataclass(frozen=True)
class Distillation:
    """What a teacher predicts, beside labels or in their place (docs/distillation.md)."""
    teacher: str = results("", 'run or weights file of the teacher; "": learn from labels alone')
    teacher_settings: str = where("", "the teacher's model and images; the run fills it in")
    kind: Literal["soft", "hard"] = results(
        "soft", "soft: the teacher's probabilities; hard: its first class")
    temperature: float = results(
        1.0, "soft: divides the logits of teacher and model", Range(0.01, 100))
    share: float = results(1.0, "share of the teacher in the loss; the rest is of labels", _SHARE)
    view: str = results("", 'view of data.views that the teacher sees; "": what the model sees')


@dataclass(frozen=True)
class Mixup:
    """Mixing of the images of a batch; if both are set, they take turns."""
    alpha: float = results(0.0, "mix pairs of images by Beta(alpha, alpha); 0: off", _NOT_NEGATIVE)
    cutmix: float = results(0.0, "alpha of CutMix; 0: off", _NOT_NEGATIVE)


@dataclass(frozen=True)
class Ema:
    """Averaged parameters."""
    decay: float = results(
        0.0, "decay per step of averaged parameters (paper: 0.9999); 0: off", _RATE)
    final: float = results(
        0.0, "decay at the end, reached on half a cosine (DINO: 1); 0: that of all steps",
        Range(0, 1))
    warmup: bool = results(False, "use at most (1 + t) / (10 + t) as decay after t steps")


@dataclass(frozen=True)
class Mesh:
    """How devices share the work (docs/scale.md); at most one size is -1."""
    replica: int = where(
        0, "slices joined by the data-centre network; 0: all slices", _COUNT, "slices")
    data: int = where(
        -1, "devices that split the batch; -1: all remaining devices", _AXIS, "devices")
    fsdp: int = where(1, "devices that split the batch and the parameters", _AXIS, "devices")
    tensor: int = where(1, "devices that split attention heads and MLP", _AXIS, "devices")
    rules: tuple[tuple[str, tuple[str, ...]], ...] = where((
        ("act_batch", ("replica", "data", "fsdp")),
        ("act_heads", ("tensor",)), ("act_mlp", ("tensor",)), ("embed", ("fsdp",)),
        ("heads", ("tensor",)), ("mlp", ("tensor",)),
    ), "logical axis -> mesh axes; axes not listed are not split", "rules")


@dataclass(frozen=True)
class Local:
    """Checkpoints on the disk or in the memory of each host (docs/checkpoints.md)."""
    path: str = where(
        "", "folder on the disk of each host, or in its memory (/dev/shm/...); \"\": off", "folder")
    every: str = how_often("0", 'duration between saves there; "0": by the clock alone', "duration")
    every_minutes: float = how_often(
        2.0, "also save there when the newest is this old; 0: never", Range(0, 1e7), "minutes")


@dataclass(frozen=True)
class Checkpoint:
    """What is saved and kept (docs/checkpoints.md)."""
    every: str = how_often(
        "1 epochs", "duration between saves; the last step is always saved", "duration")
    every_minutes: float = how_often(
        30.0, "also save when the newest is this old; 0: never", Range(0, 1e7), "minutes")
    keep_last: int = where(
        2, "newest to keep; if the only one is damaged, none is left", _POSITIVE, "checkpoints")
    keep_every: str = where(
        "0", 'keep saves at multiples of this duration for good; "0": off', "duration")
    local: Local = inside(Local)
    keep_best: str = where("", 'metric whose best step is kept, e.g. "val/top1"; "": off')


@dataclass(frozen=True)
class Evaluation:
    """An evaluation; its name is the prefix of its metrics (docs/evaluation.md)."""
    source: str = results("", 'source to evaluate, kind:rest; "": data.source')
    split: str = results("val", 'split of the source: name, or slice such as "train[:10%]"', "word")
    labels: str = results(
        "", "file of other labels, such as ReaL's real.json; \"\": labels of the source")
    classes: Literal["all", "present"] = results(
        "all", "predict among all model classes, or among those of the images")
    evaluator: str = results(
        "", 'MODULE:FUNCTION, your own metrics (docs/extending.md); "": no function')
    every: str = how_often("0", 'duration between evaluations; "0": only at the end', "duration")
    batch_size: int = where(
        0, "images per batch over all devices; 0: as in training", _COUNT, "images")


@dataclass(frozen=True)
class Fewshot:
    """Few-shot evaluation of frozen features (docs/fewshot.md)."""
    sources: tuple[tuple[str, str], ...] = results(
        (), "((name of the metrics, source), ...); (): no evaluation", "sources")
    ops: str = results("decode|bv_resize({size*8//7})|central_crop({size})",
                       "chain of ops for all images; as big_vision: 256 and 224 at 224 pixels")
    shots: tuple[int, ...] = results(
        (1, 5, 10, 25), "images per class, chosen by seed and hash; 0: all", "shots")
    seeds: int = results(3, "number of choices of images", Range(1, 1000))
    method: Literal["ridge", "knn", "probe", "knn+probe", "zero_shot"] = results(
        "ridge", "classifier on the features: ridge regression, the vote of 20 neighbours, a "
        "linear probe, or the last two, whose metrics then have their names before them; or the "
        "names of the classes (siglip)")
    l2: float = results(1024.0, "strength of the ridge regression", Range(0, _LARGEST, above=True))
    every: str = how_often("0", 'duration between evaluations; "0": only at the end', "duration")
    batch_size: int = where(
        0, "images per batch over all devices; 0: as in training", _COUNT, "images")


@dataclass(frozen=True)
class Report:
    """What is written about a run (docs/runs.md)."""
    every: str = how_often("50 steps", "duration between rows of metrics.jsonl", "duration")
    writers: tuple[str, ...] = where(
        ("tensorboard",), "programs that get the metrics too (docs/writers.md)", "writers")
    page: bool = where(True, "also write report.html at the end of the run")


@dataclass(frozen=True)
class Processes:
    """Several processes of one run (docs/processes.md)."""
    connect_secs: int = where(600, "longest wait for all processes to start", _SECS, "seconds")
    heartbeat_secs: int = where(
        100, "longest silence before a process is given up", _SECS, "seconds")
    barrier_secs: int = where(600, "longest wait of processes for each other", _SECS, "seconds")
    hang_secs: int = where(
        0, "longest time without a step, then the run ends with 43; start-up, evaluation and "
        "saving have 6 times as long; 0: the longer of 600 s and 40 steps", Range(0, 10**6),
        "seconds")


@dataclass(frozen=True)
class Elastic:
    """Training on while slices are missing (docs/processes.md)."""
    secs: int = where(
        0, "wait for missing processes, then train with the slices that are there, with more "
        "accumulation; 0: wait for all processes, as long as connect_secs", _COUNT, "seconds")
    slices: int = where(
        0, "equal groups of processes that hold a copy of the state; 0: each process is one",
        _COUNT, "slices")


@dataclass(frozen=True)
class Recipe:
    """What tables and sweeps need to know about the run."""
    name: str = where("", 'name of the recipe, e.g. "transfer"')
    protocol: str = where("", 'protocol, the same for all runs of a table, e.g. "paper"')
    stage: Literal["", "select", "final"] = where("", 'purpose of the run; "": neither')
    upstream: str = where("", "dataset that the weights of init were trained on")


@dataclass(frozen=True)
class Expected:
    """What the recipe reaches, if that is known."""
    metric: str = where("", 'metric with an expected value, e.g. "test/top1"; "": unknown')
    value: float = where(0.0, "expected value of the metric", Range(-_LARGEST, _LARGEST))
    tolerance: float = where(
        0.0, "largest difference from value, plus or minus", Range(0, _LARGEST))
    source: str = where("", "where the value comes from")
    hardware: str = where("", "hardware of the measurement")
    hours: float = where(0.0, "time the run takes on this hardware", Range(0, 1e6), "hours")


@dataclass(frozen=True)
class Config:
    """The run as a whole."""
    seed: int = results(0, "seed of initialisation, data order, augmentation and dropout", _COUNT)
    platform: Platform = where("auto", "auto: what the machine has")
    deterministic: bool = where(
        False, "GPU: use only kernels that return the same bits each time (slower)")
    compile_cache: str = where(
        "auto", 'folder for compiled programs; auto: ~/.cache/vit_jax; "": no cache')
    init: str = where("", "run or weights file to start from, while the workdir has no checkpoint")
    branch: str = where(
        "", "WORKDIR@STEP: run and step whose whole state the run begins with (--branch)")
    length: str = results("10 epochs", "duration of the training", "length")
    batch_size: int = results(512, "images per optimizer step, in all", _POSITIVE, "images")
    accumulation: int = where(
        1, "micro-batches per step, run one after another; divides batch_size", _POSITIVE)
    pack: float = where(
        1.0, "mean number of images in a row of patches in training (docs/naflex.md); 1: one",
        Range(1, 1e4), "images")
    objective: str = results(
        "auto", "what to learn; auto: classes, or patches if masked.target is set", "objective")
    trainable: str = results(
        "all", "what to train, with the rest as in init (docs/finetuning.md)", "trainable")
    skip_non_finite: int = results(
        0, "non-finite updates (loss, gradients) to skip in total; the next ends the run", _COUNT,
        "updates")
    profile: str = where(
        "", 'steps to trace into WORKDIR/profile, such as "100:105"; "": no trace', "steps")

    model: Model = inside(Model)
    data: Data = inside(Data)
    loss: Loss = inside(Loss)
    masked: Masked = inside(Masked)
    distillation: Distillation = inside(Distillation)
    mixup: Mixup = inside(Mixup)
    optimizer: Optimizer = inside(Optimizer)
    schedule: Schedule = inside(Schedule)
    ema: Ema = inside(Ema)
    mesh: Mesh = inside(Mesh)
    checkpoint: Checkpoint = inside(Checkpoint)
    evals: Mapping[str, Evaluation] = field(default_factory=lambda: {
        "val": Evaluation(every="1 epochs"), "test": Evaluation(split="test")})
    fewshot: Fewshot = inside(Fewshot)
    report: Report = inside(Report)
    processes: Processes = inside(Processes)
    elastic: Elastic = inside(Elastic)
    recipe: Recipe = inside(Recipe)
    expected: Expected = inside(Expected)


# fmt: on

KEYS = schema.by_key(Config)  # an evaluation is called `*`


def find(key: str) -> schema.Declared | None:
    """Returns the declaration of a dotted key; None for an unknown key."""
    return KEYS.get(re.sub(r"^evals\.\w+\.", "evals.*.", key))
