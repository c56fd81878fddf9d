# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Words of other libraries: each leads to a flag that exists and works, and none is accepted."""

import os
import re
import shlex
from pathlib import Path

import pytest

from vit_jax import errors
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import synonyms
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.errors import BadInput
from vit_jax.models import published, variants

ROOT = Path(__file__).resolve().parent.parent
BASE, FINETUNE = ROOT / "configs" / "base.py", ROOT / "configs" / "finetune.py"
KEYS = [key for key, _ in config_lib.flatten(config_lib._base())]
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
    """What `vit_jax train` says of arguments that it refuses, before it writes anything."""
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


@pytest.mark.parametrize("kind, word", WORDS)
def test_each_word_leads_to_what_there_is(kind, word):
    text, remark = synonyms.meant(kind, word)
    assert text or remark
    assert not remark or re.fullmatch(r"(\S+ )+\S+\.", remark)
    if not text:
        return
    if kind == "op":
        assert preprocess.parse("data.train_ops", text, 224)
    elif kind == "data.source":
        assert text.partition(":")[0] in sources.KINDS
    elif kind == "config key":
        assert load(shlex.split(text))
    else:
        assert load(shlex.split(f"--config.{kind}={text}"))


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


def test_a_value_that_was_given_is_kept_where_it_can_stand():
    def flags(key, value):
        return shlex.split(synonyms.meant("config key", key, value)[0])

    assert load(flags("epochs", "3")).length == "3 epochs"
    assert load(flags("max-steps", "-1")).length.endswith(" steps")
    assert load(flags("warmup_epochs", "2.5")).schedule.warmup == "2.5 epochs"
    assert load(flags("img_size", "3,224,224")).data.image_size == 224
    assert load(flags("optim", "Adam")).optimizer.name == "adamw"
    assert load(flags("arch", "vit_tiny_patch16_384")).data.image_size == 384
    assert load(flags("train.epochs", "7")).length == "7 epochs"


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
        ("--config.per_device_train_batch_size=32", "--config.batch_size=512"),
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


@pytest.mark.parametrize("end", sorted({key.rpartition(".")[2] for key in KEYS}))
def test_the_end_of_keys_leads_to_all_of_them(end):
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
def test_name_of_a_recipe_leads_to_a_path_that_works(tmp_path, capsys, monkeypatch, typed, inside):
    monkeypatch.chdir(ROOT if inside else tmp_path)
    shipped = {p.stem for p in (ROOT / "configs").glob("*.py")} - {"__init__", "base"}
    for name in shipped:
        said = train(tmp_path, capsys, f"--config={typed.format(name)}")
        (flag,) = flags_in(said)
        path = flag.removeprefix("--config=")
        assert os.path.samefile(path, ROOT / "configs" / f"{name}.py")
        assert os.path.isabs(path) != inside
        assert all(other in said for other in shipped)


def test_arguments_of_a_recipe_stay_in_the_suggestion(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (flag,) = flags_in(train(tmp_path, capsys, "--config=finetune:model=Ti/16,size=32"))
    config = config_lib.load(flag.removeprefix("--config="))
    assert (config.model.variant, config.data.image_size) == ("Ti/16", 32)
