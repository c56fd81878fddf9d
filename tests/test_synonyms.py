# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Words of other libraries: each leads to a flag that exists and works, and none is accepted."""

import re
import shlex
from pathlib import Path

import pytest

from vit_jax import errors
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import readers, recipes, sections, synonyms
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.errors import BadInput
from vit_jax.models import published, variants
from vit_jax.optim import optimizers
from vit_jax.runtime import coordination
from vit_jax.step import losses

ROOT = Path(__file__).resolve().parent.parent
BASE, FINETUNE = ROOT / "configs" / "base.py", ROOT / "configs" / "finetune.py"
KEYS = [key for key, _ in config_lib.flatten(config_lib.defaults())]
WORDS = [
    (kind, word)
    for kind, rows in synonyms.TABLE.items()
    for words in rows
    for word in words.split()
]


def load(flags):
    """The configuration with flags, whose values are checked as before a run."""
    config = config_lib.load(str(BASE), [f for f in flags if not f.startswith("--workdir=")])
    build.check(config)
    return config


def train(tmp_path, capsys, *argv, config=FINETUNE):
    """Returns what `vit_jax train` says when it refuses arguments, before it writes anything."""
    workdir = tmp_path / "run"
    spec = () if any(a.startswith("--config=") for a in argv) else (f"--config={config}",)
    assert main.main(["train", *spec, f"--workdir={workdir}", *argv]) == 2
    assert not workdir.exists()
    said = capsys.readouterr().err
    assert said.count("vit_jax: ") == 1
    assert "Traceback" not in said
    return said


def flags_in(said):
    """The flags of "Did you mean ...?"."""
    return shlex.split(re.search(r"Did you mean (--.*?)\?( |$)", said.strip())[1])


# ---------------------------------------------------------------- the table


@pytest.mark.integration
def test_each_word_leads_to_what_there_is():
    for kind, word in WORDS:
        text, remark = synonyms.meant(kind, word)
        assert text or remark, word
        assert not remark or re.fullmatch(r"(\S+ )+\S+\.", remark), word
        if kind == "op" and text:
            assert preprocess.parse("data.train_ops", text, 224), word
        elif kind == "data.source" and text:
            assert text.partition(":")[0] in sources.KINDS, word
        elif text:
            flags = text if kind == "config key" else f"--config.{kind}={text}"
            assert load(shlex.split(flags)), word


def test_no_word_has_two_meanings_or_hides_one_of_ours():
    plain = [(kind, synonyms._plain(word)) for kind, word in WORDS]
    assert len(set(plain)) == len(plain)
    ours = {"config key": KEYS, "op": preprocess.OPS, "data.source": sources.KINDS}
    ours["platform"] = ("auto", "cpu", "gpu", "tpu")  # which a run looks at last
    for kind, word in WORDS:
        assert word not in ours.get(kind, ())
        if kind not in ours:
            with pytest.raises(BadInput):
                load([f"--config.{kind}={word}"])


OWN = ("my.losses:focal",)
UNNUMBERED = ("name", "side", "variant", "path", "writers")  # types whose values are no numbers
TYPED = [
    *("0", "1", "2", "16", "224", "1e3", "0.1", "0.25", "0.9", "1e-3", "-1", "nan", "", " "),
    *("true", "False", "none", "off", "on", "AdamW", "torch.optim.SGD", "Cosine", "cuda:0", "cpu"),
    *("(0.9,0.95)", "[0.485, 0.456, 0.406]", "3,224,224", "B/16", "vit_tiny_patch16_224", "Foo"),
    *("CrossEntropyLoss", *OWN, "GAP", "accuracy", "bf16-mixed", "32", "cifar10"),
    *("/data/mine", "hf:org/cifar10", "a b", "it's", "runs/mine", "/x/a.npz", "gs://bucket/x"),
]


def loads(flags):
    """Says whether each flag has a value that its key accepts, whatever the other keys have."""
    try:
        return bool(load(flags))
    except BadInput as e:
        return bool(re.search("not divide|gives a grid|not divisible", str(e)))


@pytest.mark.parametrize("words, row", synonyms.TABLE["config key"].items())
def test_whatever_flag_is_suggested_loads_and_has_the_value(words, row):
    word, switch, free = words.split()[0], len(row) > 2, re.findall(r"<(\w+)", row[0])
    for value in TYPED:
        said = synonyms.hint("config key", word, value)
        assert said, value
        if "Did you mean" not in said:
            assert value.strip() or not row[0]
            continue
        flags = flags_in(said)
        if not any(own in said for own in OWN):  # it would be imported
            assert loads(flags)
        assert not switch or value.lower() not in ("false", "none", "off", "0"), value
        numbers = readers._numbers(value) if value not in ("nan", "", " ") else []
        scale = 100 if free[0].startswith("percent") else 1
        given = [float(n) for n in re.findall(r"\d[\d.]*(?:e-?\d+)?", " ".join(flags))]
        if numbers and value != "1" and free[0] not in UNNUMBERED:
            assert all(any(abs(n * scale - g) < 1e-9 for g in given) for n in numbers), value


@pytest.mark.parametrize(
    "key, value, flags",
    [
        ("epochs", "3", {"length": "3 epochs"}),
        ("warmup_epochs", "2.5", {"schedule.warmup": "2.5 epochs"}),
        ("warmup_ratio", "0.1", {"schedule.warmup": "10 percent"}),
        ("val_split", "0.2", {"data.val_percent": 20}),
        ("img_size", "3,224,224", {"data.image_size": 224}),
        ("batch", "1e3", {"batch_size": 1000}),
        ("learning_rate", "3e-4", {"schedule.lr": 3e-4}),
        ("betas", "(0.9,0.95)", {"optimizer.adamw.b1": 0.9, "optimizer.adamw.b2": 0.95}),
        ("image_mean", "[0.485, 0.456, 0.406]", {"data.mean": (0.485, 0.456, 0.406)}),
        ("image_std", "0.229,0.224,0.225", {"data.std": (0.229, 0.224, 0.225)}),
        ("clip_grad", "none", {"optimizer.clip": 0.0}),
        ("opt", "AdamW", {"optimizer.name": "adamw"}),
        ("optimizer", "SGD", {"optimizer.name": "sgd"}),
        ("optimizer", "torch.optim.AdamW", {"optimizer.name": "adamw"}),
        ("optim", "Adam", {"optimizer.name": "adamw"}),
        ("loss", "nn.CrossEntropyLoss", {"loss.name": "softmax"}),
        ("lr_scheduler", "CosineAnnealingLR", {"schedule.name": "cosine"}),
        ("arch", "vit_tiny_patch16_384", {"model.variant": "Ti/16", "data.image_size": 384}),
        ("device", "cpu", {"platform": "cpu"}),
        ("device", "cuda:1", {"platform": "gpu"}),
        ("use_gpu", "false", {"platform": "cpu"}),
        ("precision", "bf16-mixed", {"model.dtype": "bfloat16"}),
        ("train.epochs", "7", {"length": "7 epochs"}),
        ("pretrained", "/x/a.npz", {"init": "/x/a.npz"}),
        ("data_dir", "/data/mine", {"data.source": "folder:/data/mine"}),
        ("mixup", "0.8", {"mixup.alpha": 0.8}),
        ("ema", "true", {"ema.decay": 0.9999}),
        ("gradient_checkpointing", "True", {"model.remat": "full"}),
        ("metric_for_best_model", "eval_loss", {"checkpoint.keep_best": "val/loss"}),
        ("report.tensorboard", "false", {"report.writers": ()}),
        ("report.tensorboard", "true", {"report.writers": ("tensorboard",)}),
        ("report_to", "tensorboard,wandb", {"report.writers": ("tensorboard", "wandb")}),
        ("mlflow", "true", {"report.writers": ("mlflow",)}),
    ],
)
def test_a_value_that_was_given_is_carried_over(key, value, flags):
    config = dict(config_lib.flatten(load(flags_in(synonyms.hint("config key", key, value)))))
    assert {name: config[name] for name in flags} == flags


@pytest.mark.parametrize(
    "key, value, words",
    [
        *((k, "false", "dtype=float32; leave it out") for k in ("fp16", "amp", "mixed_precision")),
        ("precision", "32", "The default is float32; leave it out"),
        ("gradient_checkpointing", "false", "remat=none; leave it out"),
        ("pretrained", "no", "leave it out"),
        ("mixup", "false", "mixup.alpha=0; leave it out"),
        ("ema", "0", "ema.decay=0; leave it out"),
        ("mlp_ratio", "4", "multiply the width of the tokens by the ratio"),
        ("per_device_train_batch_size", "32", "multiply by the numbers of devices"),
        ("save_steps", "0.1", "checkpoint.every='N steps', where N is a whole number"),
        ("max_steps", "-1", "--config.length='N steps', where N is a whole number"),
        ("optimizer", "Shampoo", "most ViTs are trained with adamw"),
        ("loss", "KLDivLoss", "NAME is one of softmax, sigmoid"),
        ("device", "mps", "NAME is one of auto, cpu, gpu, tpu"),
        ("betas", "0.9", "where B1 and B2 are at least 0 and below 1"),
        ("weights", "google/vit-base-patch16-224", "--config.init=WEIGHTS"),
    ],
)
def test_what_cannot_be_carried_over_is_said_in_words(key, value, words):
    said = synonyms.hint("config key", key, value)
    assert words in said
    assert "Did you mean" not in said


def test_parts_that_a_user_names_are_those_that_there_are():
    """What rooms above config hold under the names of choices."""
    chosen = {key: set(sections.KEYS[f"{key}.name"].choices) for key in ("optimizer", "loss")}
    assert chosen == {"optimizer": {*optimizers.DIRECTIONS}, "loss": {*losses.LOSSES}}
    assert {"auto", *coordination._JAX_NAMES} == set(sections.KEYS["platform"].choices)
    assert set(readers.SOURCES) == set(sources.KINDS)
    for name in variants.NAMED:
        assert readers.read("variant", name) == name


# ---------------------------------------------------------------- what people type first


@pytest.mark.parametrize(
    "typed, flag",
    [
        ("--config.learning_rate=3e-4", "--config.schedule.lr=3e-4"),
        ("--config.epochs=3", "--config.length=3 epochs"),
        ("--config.model=B/16", "--config.model.variant=B/16"),
        ("--config.model=ViT-B/16", "--config.model.variant=B/16"),
        ("--config.model=vit_base_patch16_224", "--config.model.variant=B/16"),
        ("--config.model.variant=vit_base_patch16_224", "--config.data.image_size=224"),
        ("--config.model.variant=google/vit-base-patch16-224", "--config.model.variant=B/16"),
        ("--config.optimizer.name=adam", "--config.optimizer.name=adamw"),
        ("--config.optimizer=adam", "--config.optimizer.name=adamw"),
        ("--config.schedule.name=constant", "--config.schedule.name=step"),
        ("--config.data=hf:cifar10", "--config.data.source=tfds:cifar10"),
        ("--config.pretrained=true", "--config.init=imagenet21k/ViT-B_16.npz"),
        ("--config.output_dir=out", "--workdir=out"),
        ("--learning-rate=3e-4", "--config.schedule.lr=3e-4"),
        ("--epochs", "--config.length=10 epochs"),
        ("--epochs 3", "--config.length=3 epochs"),
        ("--learning_rate 3e-4", "--config.schedule.lr=3e-4"),
    ],
)
def test_first_words_are_refused_with_the_flag_that_works(tmp_path, capsys, typed, flag):
    flags = flags_in(train(tmp_path, capsys, *typed.split()))
    assert flag in flags
    assert load(flags)


@pytest.mark.parametrize(
    "typed, words",
    [
        ("--config.lr=1e-3", ["'schedule.lr'"]),
        ("--lr=1e-3", ["'schedule.lr'", "--config.key=value."]),
        ("--batch-size=64", ["--config.batch_size=64."]),
        ("--config.batch-size=64", ["--config.batch_size=64."]),
        ("--config.seed", ["--config.seed=VALUE, with = and no space"]),
        ("--config.seed 3", ["--config.seed=3, with = and no space"]),
        ("--config.num_classes=10", ["data", "leave it out"]),
        ("--config.data.train_ops=random_resized_crop(224)", ["inception_crop({size})"]),
        ("--config.data.train_ops=decode|RandomHorizontalFlip", ["flip_lr?"]),
        ("--config.data.train_ops=Normalize()", ["--config.data.mean", "leave it out"]),
        ("--config.data.source=hf:cifar10", ["tfds:cifar10?"]),
        ("--config.data.source=hf:org/imagenet-1k", ["tfds:imagenet2012?"]),
        ("--config.data.source=hf:org/my_pets", ["If TensorFlow Datasets has it", "folder:PATH"]),
        ("--config.data.train_ops=random_rotation(15)", ["affine(degrees=15)?"]),
        ("--config.data.source=imagefolder:/data/mine", ["folder:/data/mine?"]),
        ("--config.data.source=/data/mine", ["folder:/data/mine?"]),
        ("--config.optimizer.name=SGD", ["'sgd'"]),
        ("--config.init=google/vit-base-patch16-224", ["ViT-B_16.npz", "does not exist"]),
    ],
)
def test_first_words_are_refused_with_what_is_meant(tmp_path, capsys, typed, words):
    said = train(tmp_path, capsys, *typed.split())
    assert [word for word in words if word not in said] == []


def test_words_in_a_saved_configuration_are_refused_with_the_key(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("learning_rate: 0.1\n")
    with pytest.raises(BadInput, match=r"'learning_rate'. Did you mean schedule\.lr=0\.1\?"):
        config_lib.load(str(file))


def test_the_end_of_keys_leads_to_all_of_them():
    for end in {key.rpartition(".")[2] for key in KEYS}:
        full = [key for key in KEYS if key.rpartition(".")[2] == end]
        if end not in full:
            said = str(errors.unknown("config key", end, KEYS))
            assert re.findall(r"'(\w[\w.]*)'", said) == [end, *full]
        if len(full) == 1:
            assert repr(full[0]) in str(errors.unknown("config key", f"wrong.{end}", KEYS))


# ---------------------------------------------------------------- names of models

NAMES = {
    "vit_base_patch16_224": ("B/16", 224),
    "vit_base_patch16_clip_224.openai_ft_in1k": ("B/16", 224),
    "vit_tiny_patch16_384.augreg_in21k": ("Ti/16", 384),
    "google/vit-large-patch32-384": ("L/32", 384),
    "google/vit-base-patch16-224-in21k": ("B/16", 224),
    "vit_huge_patch14_224_in21k": ("H/14", 224),
    "vit_so400m_patch14_siglip_224": ("So400m/14", 224),
    "ViT-B_16": ("B/16", 0),
    "vitb16": ("B/16", 0),
    "vit_l_32": ("L/32", 0),
    "ViT-g": ("g/14", 0),
    "ViT-G": ("G/14", 0),
    "ViT-L/14@336px": ("L/14", 336),
    "deit-small": ("S/16", 0),
    "facebook/deit-base-distilled-patch16-224": ("B/16", 224),
    "deit3_small_patch16_224": ("S/16", 224),
    "mixer_b16_224": ("Mixer-B/16", 224),
    "vit_base_r50_s16_384": ("R50+B/16", 384),
    "vit_tiny_r_s16_p8_224": ("R+Ti/16", 224),
    "resnet50": ("BiT-R50x1", 0),
    "microsoft/resnet-50": ("BiT-R50x1", 0),
    "resnetv2_101x3_bit": ("BiT-R101x3", 0),
}


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_model_is_read_as_a_variant_that_there_is(name):
    variant, side = NAMES[name]
    with pytest.raises(BadInput) as caught:
        variants.config(variant=name, classes=2)
    given = dict(flag.split("=") for flag in flags_in(str(caught.value)))
    assert given.pop("--config.model.variant") == variant
    assert given == ({"--config.data.image_size": str(side)} if side else {})
    cfg = variants.config(variant=variant, classes=2)
    if side:
        variants.check_image_size(cfg, side, side)
    file = published.weights(name)
    assert (f"--config.init={file}" in str(caught.value)) == bool(file)
    assert bool(file) == (variant in published.CHECKPOINTS)


@pytest.mark.parametrize("kind", ["vit", "deit", "mixer", "org/vit", "resnet"])
def test_whatever_variant_is_suggested_is_one(kind):
    sizes = ["tiny", "S", "base", "L", "huge", "giant", "G", "18", "50", "50x3", "152x4", "wide"]
    ends = ["", "16", "/0", "_patch32", "_patch14_224", "_r50_s32_384", "_r51_s16", "_d_x", "/16/2"]
    names = [f"{kind}{between}{size}{end}" for between in "-_" for size in sizes for end in ends]
    found = [synonyms.meant("model.variant", name) for name in names]
    for text, _ in filter(None, found):
        assert variants.config(variant=text.partition(" ")[0], classes=2)
    assert sum(map(bool, found)) > len(names) / 10


@pytest.mark.parametrize("name", ["swin_tiny", "vit_little", "vit_medium_d", "resnet18", "x"])
def test_a_model_that_is_not_here_is_not_guessed(name):
    assert not synonyms.hint("model.variant", name)
    assert not published.hint(name)


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize("typed", ["{}", "{}.py", "{}:", "config/{}.py"])
@pytest.mark.parametrize("inside", [True, False])
def test_name_of_a_recipe_leads_to_one_that_works(tmp_path, capsys, monkeypatch, typed, inside):
    monkeypatch.chdir(ROOT if inside else tmp_path)
    shipped = {p.stem for p in (ROOT / "configs").glob("*.py")} - {"__init__", "base"}
    for name in shipped:
        said = train(tmp_path, capsys, f"--config={typed.format(name)}")
        (flag,) = flags_in(said)
        assert flag == f"--config=vit_jax:{name}"
        assert recipes.file(name).samefile(ROOT / "configs" / f"{name}.py")
        assert all(f"vit_jax:{other}" in said for other in shipped)


def test_arguments_of_a_recipe_stay_in_the_suggestion(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (flag,) = flags_in(train(tmp_path, capsys, "--config=finetune:model=Ti/16,size=32"))
    config = config_lib.load(flag.removeprefix("--config="))
    assert (config.model.variant, config.data.image_size) == ("Ti/16", 32)
