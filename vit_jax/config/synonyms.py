# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Translates words of Hugging Face, timm, torchvision and Keras into the words used here.

The translations serve messages only: no such word is accepted. Start from `hint`.
"""

import re
from collections.abc import Sequence

from vit_jax.config import readers, sections

# Kind -> words of the same meaning -> (the text to write here, a remark). The kind is "config key",
# "op", or the key that takes the word as its value. The first part is empty if there is nothing to
# write here. In a key, <TYPE EXAMPLE> stands for a value (`readers.TYPES`), and <name EXAMPLE ...>
# for a choice of the key; a key without choices has more examples, which are all that is read. A
# third part is the setting that turns a switch off.
TABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "config key": {
        "epochs num_epochs num_train_epochs max_epochs train_epochs total_epochs":
            ("length='<amount 10> epochs'",
             "The length of training has a unit: epochs, steps or examples."),
        "steps max_steps num_steps train_steps num_train_steps total_steps iterations max_iters":
            ("length='<int 10000> steps'",
             "The length of training has a unit: epochs, steps or examples."),
        "learning_rate base_learning_rate initial_lr base_lr peak_lr":
            ("schedule.lr=<float 1e-3>", "It is the highest rate; nothing scales it with the "
             "batch."),
        "min_lr end_learning_rate":
            ("schedule.name=linear --config.schedule.linear.end=<float 1e-5>", "Cosine ends at 0."),
        "opt optim optimizer optimizer_name": ("optimizer.name=<name adamw>",
                                               ""),
        "schedule scheduler sched lr_scheduler lr_scheduler_type lr_schedule":
            ("schedule.name=<name cosine>", ""),
        "warmup_steps num_warmup_steps warmup_iters": ("schedule.warmup='<count 500> steps'", ""),
        "warmup_epochs num_warmup_epochs": ("schedule.warmup='<amount 5> epochs'", ""),
        "warmup_ratio warmup_fraction warmup_proportion":
            ("schedule.warmup='<percent 5> percent'", "A ratio of 0.05 is 5 percent of the "
             "length."),
        "train_batch_size global_batch_size total_batch_size batch bs bsz":
            ("batch_size=<int 512>", "It counts the images of a step, of all devices together."),
        "per_device_train_batch_size per_gpu_train_batch_size":
            ("", "The key --config.batch_size counts the images of a step: multiply by the numbers "
             "of devices and of micro-batches."),
        "eval_batch_size val_batch_size validation_batch_size":
            ("evals.val.batch_size=<int 256>", "It counts the images of all devices together."),
        "per_device_eval_batch_size":
            ("", "The key --config.evals.val.batch_size counts the images of all devices: multiply "
             "by their number."),
        "gradient_accumulation_steps grad_accum_steps accumulate_grad_batches grad_accum":
            ("accumulation=<int 4>", "The batch_size counts all micro-batches together."),
        "wd": ("optimizer.weight_decay=<float 0.05>", "The learning rate multiplies it, as in "
               "PyTorch."),
        "llrd layer_wise_lr_decay layerwise_decay": ("optimizer.layer_decay=<factor 0.75>", ""),
        "grad_clip max_grad_norm clip_grad clip_grad_norm gradient_clip_val clipnorm":
            ("optimizer.clip=<float 1.0>", "It is the largest global norm of the gradients; 0 "
             "turns it off."),
        "beta1 adam_beta1": ("optimizer.adamw.b1=<share 0.9>", ""),
        "beta2 adam_beta2": ("optimizer.adamw.b2=<share 0.999>", ""),
        "betas opt_betas adam_betas":
            ("optimizer.adamw.b1=<first 0.9> --config.optimizer.adamw.b2=<second 0.999>", ""),
        "epsilon adam_epsilon opt_eps": ("optimizer.adamw.eps=<factor 1e-8>", ""),
        "loss criterion loss_fn": ("loss.name=<name softmax>", ""),
        "label_smoothing_factor smoothing label_smooth":
            ("loss.label_smoothing=<share 0.1>", ""),
        "mixup mixup_alpha use_mixup": ("mixup.alpha=<float 0.2>", "", "mixup.alpha=0"),
        "cutmix cutmix_alpha use_cutmix": ("mixup.cutmix=<float 1.0>", "", "mixup.cutmix=0"),
        "ema model_ema polyak use_ema":
            ("ema.decay=<share 0.9999>", "The parameters are averaged after every step.",
             "ema.decay=0"),
        "model_ema_decay ema_decay":
            ("ema.decay=<share 0.9999>", "The parameters are averaged after every step."),
        "model arch architecture model_name model_type backbone":
            ("model.variant=<variant B/16>", "It is a size and the pixels of a patch; `vit_jax "
             "models` lists them."),
        "patch_size":
            ("", "The patch stands behind the slash of --config.model.variant, as 16 does in "
             "B/16."),
        "pretrained model_name_or_path pretrained_model pretrained_weights weights finetune "
        "initial_checkpoint checkpoint_path":
            ("init=<file imagenet21k/ViT-B_16.npz>", "Give a published name (`vit_jax models` "
             "lists them), a file, a URL or the workdir of a run.", "init="),
        "hidden_size embed_dim hidden_dim d_model": ("model.width=<int 768>", ""),
        "num_hidden_layers num_layers n_layers layers": ("model.depth=<int 12>", ""),
        "num_attention_heads num_heads n_heads": ("model.heads=<int 12>", ""),
        "mlp_dim intermediate_size": ("model.mlp=<int 3072>", "It is the width of the MLP."),
        "mlp_ratio": ("", "The key --config.model.mlp is the width of the MLP: multiply the width "
                      "of the tokens by the ratio."),
        "global_pool pooling": ("model.pool=<name gap>", "", "model.pool=token"),
        "num_register_tokens reg_tokens": ("model.registers=<count 4>", ""),
        "dropout_rate drop_rate drop hidden_dropout_prob": ("model.dropout=<share 0.1>", ""),
        "attn_drop attn_drop_rate attention_probs_dropout_prob":
            ("model.attention_dropout=<share 0.1>", ""),
        "drop_path_rate stochastic_depth stochastic_depth_rate":
            ("model.drop_path=<share 0.1>", "It is the rate of the last block."),
        "patch_drop_rate patch_drop": ("model.patch_dropout=<share 0.5>", ""),
        "tome token_merging merge_tokens": ("model.merge=<count 4>", ""),
        "fp16 bf16 float16 bfloat16 mixed_precision amp half_precision precision":
            ("model.dtype=<name bfloat16>", "Parameters stay in float32.",
             "model.dtype=float32"),
        "gradient_checkpointing grad_checkpointing":
            ("model.remat=<name full dots>", "", "model.remat=none"),
        "img_size input_size resolution crop_size imgsz size":
            ("data.image_size=<side 224>", "It counts pixels a side."),
        "data dataset dataset_name":
            ("data.source=<source folder:/path/to/images>", "docs/data.md lists the kinds of "
             "sources."),
        "data_dir image_dir dataset_dir data_path train_dir":
            ("data.source=<folder folder:/path/to/images>", "The key data.data_dir is another: "
             "where TFDS keeps its datasets."),
        "val_split validation_split":
            ("data.val_percent=<percents 10>", "A share of 0.1 is 10 percent of the training "
             "images."),
        "num_workers dataloader_num_workers": ("data.workers=<int 8>", "It counts threads."),
        "image_mean":
            ("data.mean='<mean (0.5, 0.5, 0.5)>'", "Pixels are scaled to [0, 1] before it."),
        "image_std":
            ("data.std='<std (0.5, 0.5, 0.5)>'", "Pixels are scaled to [0, 1] before it."),
        "transforms augmentation auto_augment aa color_jitter reprob random_erasing hflip":
            ("", "The ops in --config.data.train_ops transform images; docs/preprocessing.md lists "
             "them."),
        "logging_steps log_interval log_every log_every_n_steps print_freq":
            ("report.every='<count 50> steps'", ""),
        "eval_steps eval_interval eval_freq eval_every":
            ("evals.val.every='<count 1000> steps'", ""),
        "save_steps save_interval save_freq save_every checkpoint_interval":
            ("checkpoint.every='<count 1000> steps'", ""),
        "save_total_limit checkpoint_hist": ("checkpoint.keep_last=<int 2>", ""),
        "load_best_model_at_end metric_for_best_model save_best":
            ("checkpoint.keep_best=<name val/top1 val/top5 val/loss>", "The best step is kept; "
             "training goes on to its end.", "checkpoint.keep_best="),
        "early_stopping patience":
            ("", "Training goes on to its end; the key --config.checkpoint.keep_best keeps the "
             "best step."),
        "device accelerator": ("platform=<name auto>", ""),
        "cuda gpu use_gpu use_cuda": ("platform=<name gpu>", ""),
        "num_gpus gpus devices n_gpu":
            ("", "All devices that the process sees share the batch; leave it out."),
        "random_seed": ("seed=<count 0>", ""),
        "report_to":
            ("report.writers=\"<writers ('wandb',)>\"", "docs/writers.md has the writers."),
        "tensorboard use_tensorboard":
            ("report.writers=\"<writers ('tensorboard',)>\"", "docs/writers.md has the writers."),
        "wandb use_wandb":
            ("report.writers=\"<writers ('wandb',)>\"", "docs/writers.md has the writers.",
             "report.writers=\"('tensorboard',)\""),
        "mlflow use_mlflow":
            ("report.writers=\"<writers ('mlflow',)>\"", "docs/writers.md has the writers.",
             "report.writers=\"('tensorboard',)\""),
        "output_dir out_dir log_dir logging_dir save_dir checkpoint_dir":
            ("--workdir=<path runs/mine>", "It is the folder of the run."),
        "resume resume_from_checkpoint":
            ("", "The same command with the same --workdir continues a run; leave it out."),
        "num_classes num_labels n_classes nb_classes":
            ("", "The data say how many classes there are; leave it out."),
        "compile torch_compile": ("", "Every step is compiled; leave it out."),
        "shuffle": ("", "Training images are always shuffled; leave it out."),
    },
    "optimizer.name": {
        "adam": ("adamw", "It is Adam while --config.optimizer.weight_decay is 0."),
        "adamw_torch adamw_torch_fused adamw_hf fused_adamw": ("adamw", ""),
        "momentum nesterov": ("sgd", "It has the keys optimizer.sgd.momentum and nesterov."),
        "lars": ("", "There is no LARS; lamb is LARS with the moments of Adam."),
        "muon_adamw": ("muon", ""),
        "sam": ("adamw --config.optimizer.sam.rho=0.05", "SAM goes with any optimizer."),
        "radam nadam rmsprop adagrad soap shampoo distributed_shampoo":
            ("", "That optimizer is not here; most ViTs are trained with adamw."),
    },
    "schedule.name": {
        "constant constant_with_warmup none":
            ("step --config.schedule.step.drops='()'", "Without drops the rate is constant."),
        "cosine_decay cosine_with_warmup warmup_cosine warmup_cosine_decay cosine_annealing "
        "cosine_with_restarts cosine_annealing_lr":
            ("cosine", "Its warm-up is --config.schedule.warmup; it has no restarts."),
        "linear_with_warmup linear_decay polynomial poly":
            ("linear", "Its warm-up is --config.schedule.warmup."),
        "inverse_sqrt inverse_square_root": ("rsqrt", ""),
        "step_lr multistep piecewise": ("step", ""),
    },
    "loss.name": {
        "cross_entropy cross_entropy_loss ce categorical_crossentropy "
        "sparse_categorical_crossentropy soft_target_cross_entropy":
            ("softmax", "It is the cross entropy of a softmax."),
        "bce binary_cross_entropy bce_with_logits bce_with_logits_loss bce_loss":
            ("sigmoid", "It is the binary cross entropy, summed over classes."),
    },
    "model.pool": {
        "cls cls_token class_token": ("token", ""),
        "avg mean average global_average": ("gap", ""),
        "attention attn": ("map", ""),
    },
    "platform": {"cuda nvidia true yes on": ("gpu", ""), "false no off": ("cpu", "")},
    "model.dtype": {
        "fp16 float16 half 16 16_mixed bf16 bf16_mixed 16_true bf16_true":
            ("bfloat16", "Parameters stay in float32; there is no float16."),
        "fp32 32 32_true": ("", "The default is float32; leave it out."),
    },
    "optimizer.clip": {"none false no off": ("0", "No gradient is clipped then.")},
    "checkpoint.keep_best": {
        "accuracy eval_accuracy val_accuracy val_acc acc top1 eval_top1 acc1":
            ("val/top1", "The best step is kept; training goes on to its end."),
        "loss eval_loss val_loss": ("val/loss", "The best step is kept; training goes on to its "
                                    "end."),
    },
    "data.source": {
        "hf hfds huggingface torch torchvision keras tensorflow_datasets":
            ("tfds:<cifar10>", "TensorFlow Datasets has many of the same datasets."),
        "cifar10": ("tfds:cifar10", ""),
        "cifar100": ("tfds:cifar100", ""),
        "mnist": ("tfds:mnist", ""),
        "fashion_mnist": ("tfds:fashion_mnist", ""),
        "food101": ("tfds:food101", ""),
        "flowers oxford_flowers102": ("tfds:oxford_flowers102", ""),
        "pets oxford_pets oxford_iiit_pet": ("tfds:oxford_iiit_pet", ""),
        "imagenet imagenet1k imagenet2012 ilsvrc2012":
            ("tfds:imagenet2012", "Class folders of your own are folder:PATH."),
        "imagefolder dir directory": ("folder:<PATH>", "It holds class folders."),
        "webdataset wds": ("tar:<GLOB>", ""),
        "tfrecord tfrecords": ("records:<GLOB>", ""),
    },
    "op": {
        "auto": ("", "auto stands alone, as data.train_ops or data.eval_ops."),
        "random_resized_crop random_sized_crop random_resized_crop_and_interpolation":
            ("inception_crop({size})", "It crops a random box and resizes it."),
        "horizontal_flip random_horizontal_flip hflip random_flip fliplr": ("flip_lr", ""),
        "center_crop": ("central_crop({size})", ""),
        "resizing": ("resize({size})", ""),
        "resize_smallest shortest_edge": ("resize_small({size})", ""),
        "random_rotation rotate random_affine": ("affine(degrees=10)", ""),
        "random_translation translate": ("affine(shift=4)", "It moves by up to so many pixels."),
        "rand_augment trivial_augment trivial_augment_wide auto_augment aug_mix":
            ("randaug(2, 10)", "Those are the ops in a row, and their strength up to 10."),
        "cutout random_erase": ("random_erasing", ""),
        "random_grayscale grey gray greyscale to_grayscale": ("grayscale(0.2)", ""),
        "blur random_gaussian_blur": ("gaussian_blur(0.5)", ""),
        "random_solarize": ("solarize(0.2)", ""),
        "decode_image decode_jpeg pil_to_tensor to_tensor to_image":
            ("decode", "A chain begins with it; batches are made later."),
        "normalize normalization rescale rescaling value_range":
            ("", "The keys --config.data.mean and --config.data.std normalise; leave it out."),
        "mixup cutmix":
            ("", "The keys --config.mixup.alpha=0.2 and --config.mixup.cutmix=1.0 mix batches."),
    },
}  # fmt: skip


def hint(kind: str, word: str, value: str = "") -> str:
    """Returns a sentence with the text to write here instead of a word; "" for an unknown word.

    Args:
      kind: a kind of `TABLE`, or "model.variant".
      word: the word as given.
      value: the value that was given with the word, if it is a key.
    """
    meaning = meant(kind, word, value)
    if meaning is None:
        return ""
    text, remark = meaning
    keyed = kind not in ("op", "data.source", "config key")
    flag = f"--config.{kind}={text}" if keyed else text
    return f"{f' Did you mean {flag}?' if text else ''}{f' {remark}' if remark else ''}"


def meant(kind: str, word: str, value: str = "") -> tuple[str, str] | None:
    """Returns the text for a word, with the value filled in, and a remark; None if unknown."""
    if kind == "model.variant":
        return _variant(word)
    if kind == "data.source":
        return _source(word)
    if kind == "platform":
        word = word.partition(":")[0]  # drops the number of cuda:0
    row = _row(kind, word) or _row(kind, word.rpartition(".")[2])
    if row is None:
        return None
    if kind != "config key":
        return row[0], row[1]
    text, remark = _with_value(row, value.strip())
    return f"--config.{text}" if text and not text.startswith("--") else text, remark


def _plain(word: str) -> str:
    return re.sub(r"[\W_]", "", word.lower())


def _row(kind: str, word: str) -> tuple[str, ...] | None:
    rows = TABLE.get(kind, {}).items()
    return next((row for words, row in rows if _plain(word) in map(_plain, words.split())), None)


# ---------------------------------------------------------------- values that are carried over

_PLACE = re.compile(r"""([\w.]+)=(['"]?)<(\w+) (.*?)>""")


def _with_value(row: tuple[str, ...], value: str) -> tuple[str, str]:
    """Fills the row of a key with a value; returns the text and a remark.

    If the value does not fit, the text is "" and the remark says how to write the flag.
    """
    text, remark, *off = row
    if off and value.lower() in ("false", "no", "none", "off", "0"):
        return "", (
            f"The default is --config.{off[0]}; leave it out, or write that where the recipe has "
            "another value."
        )
    on = bool(off) and value.lower() in ("true", "yes", "on")
    filled, more = text, ""
    for place in _PLACE.finditer(text):
        key, quote, kind, example = place.groups()
        reading = _value(key, kind, example, "" if on else value)
        if reading is None and off and value == "1":
            reading = _value(key, kind, example, "")
        if reading is None:
            return "", f"{_in_words(text)}{f' {remark}' if remark else ''}"
        if not reading[0]:
            return reading
        filled = filled.replace(place[0], f"{key}={quote}{reading[0]}", 1)
        more = reading[1]
    return filled, more or remark


def _value(key: str, kind: str, example: str, value: str) -> tuple[str, str] | None:
    """Returns a value in the form that the key accepts, and a remark; None if it does not fit."""
    if not value:
        return (example.split()[0] if kind == "name" else example), ""
    if readers.is_plain(value) and (meaning := meant(key, value)):
        return meaning
    read = (
        readers.option(value, _options(key, example))
        if kind == "name"
        else readers.read(kind, value)
    )
    return (read, "") if read else None


def _options(key: str, example: str) -> Sequence[str]:
    """Returns the choices of a key, or the examples in the table if it has none."""
    declared = sections.find(key)
    return declared.options if declared and declared.choices else example.split()


def _in_words(text: str) -> str:
    """Returns a sentence that shows how to write a flag, with placeholders in capitals."""
    places = [match.group(1, 3, 4) for match in _PLACE.finditer(text)]
    notations = {}
    for key, kind, example in places:
        options = ("NAME", f"is one of {', '.join(_options(key, example))}")
        notations[kind] = options if kind == "name" else readers.TYPES[kind][:2]
        text = text.replace(f"<{kind} {example}>", notations[kind][0])
    capitals, meaning = notations[places[0][1]]
    flag = text if text.startswith("--") else f"--config.{text}"
    return f"Write {flag}, where {capitals} {meaning}."


# ---------------------------------------------------------------- names with a structure

_SIZES = {
    "tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H", "giant": "g",
    "gigantic": "G", "so400m": "So400m", "ti": "Ti", "t": "Ti", "s": "S", "b": "B", "l": "L",
    "h": "H", "g": "g",
}  # fmt: skip
_LARGEST = ("So400m", "H", "g", "G")  # usually with patches of 14
_NAME = re.compile(
    rf"""(?:[\w.-]+/)?(?P<kind>vit|deit3?|mixer)[-_]?(?P<size>{"|".join(_SIZES)})
    (?:[-_]distilled)?
    (?:[-_]r(?P<layers>26|50|)[-_]s(?P<stride>\d+)(?:[-_]p\d+)?
      |[-_/]?(?:patch|p)?(?P<patch>[1-9]\d?))?
    (?![a-z0-9/])(?:.*?[-_@](?P<pixels>\d{{3}})(?!\d))?.*""",
    re.IGNORECASE | re.VERBOSE,
)
_RESNET = re.compile(
    r"(?:[\w.-]+/)?(?:resnet|resnetv2|bit)[-_]?(50|101|152|200)(?:x(\d))?(?![\dx]).*",
    re.IGNORECASE,
)


def _variant(name: str) -> tuple[str, str] | None:
    """Reads the variant and image size from a name such as `google/vit-base-patch16-224`."""
    if match := _RESNET.fullmatch(name):
        remark = "It is a ResNet with group norm and weight standardisation."
        return f"BiT-R{match[1]}x{match[2] or 1}", remark
    if not (match := _NAME.fullmatch(name)):
        return None
    size = "G" if match["size"] == "G" else _SIZES[match["size"].lower()]
    patch = match["patch"] or match["stride"] or ("14" if size in _LARGEST else "16")
    before = "Mixer-" if match["kind"].lower() == "mixer" else ""
    if before and size not in ("S", "B", "L"):
        return None
    if match["layers"] is not None:
        before = f"R{match['layers']}+"
    pixels = f" --config.data.image_size={match['pixels']}" if match["pixels"] else ""
    return f"{before}{size}/{patch}{pixels}", ""


def _source(spec: str) -> tuple[str, str] | None:
    """Returns the source for a text such as `hf:cifar10`, `imagefolder:/path` or `cifar10`."""
    kind, _, rest = re.sub(r"^(\w+)/", r"\1:", spec).partition(":")
    row = _row("data.source", kind)
    if row is None:
        return None
    text, remark = row[0], row[1]
    if text.startswith("tfds:") and rest:
        if rest.startswith(("/", "~", ".")):
            return f"folder:{rest}", "It holds class folders."
        name = rest.rpartition("/")[2]
        text = (_row("data.source", name) or (f"tfds:{name}",))[0]
        return text, remark
    return re.sub(r"<(.*?)>", lambda match: rest or match[1], text), remark
