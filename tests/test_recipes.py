# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The recipes of pre-training and transfer: each is valid, says what its paper says, takes a step.

Those of Table 3 are in test_synthetic.py.
"""

import itertools
import re

import jax
import numpy as np
import pytest

from configs import base
from configs import transfer as transfer_recipe
from vit_jax.build import defaults, program, splits
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import images, timeline, validation
from vit_jax.config import load as config_lib
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.paper import augreg, transfer, vtab
from vit_jax.preflight.plan import compile_for
from vit_jax.storage import files as storage
from vit_jax.weights import fitting

PRETRAIN, TRANSFER = "configs/pretrain.py:", "configs/transfer.py:"
LONG = {"imagenet21k": "epochs=30", "imagenet": "epochs=300"}
AUGREG = [
    f"{PRETRAIN}recipe=augreg,dataset={dataset},model={model}"
    for dataset in LONG
    for model in augreg.pretraining(dataset).default_level
]
BIT = [f"{PRETRAIN}recipe=bit,dataset={dataset}" for dataset in ("jft", "imagenet21k", "imagenet")]
OTHER = [
    *BIT,
    f"{PRETRAIN}recipe=bit,dataset=jft,model=BiT-R152x2,epochs=7",
    f"{PRETRAIN}recipe=modern",
    f"{PRETRAIN}dataset=imagenet21k,release=winter21",
    f"{PRETRAIN}recipe=augreg,model=R26+S/32,aug=strong2,reg=0.1,wd=0.03,epochs=30",
]
FINE_TUNING = [f"{TRANSFER}dataset={dataset}" for dataset in transfer_recipe.SOURCES]
FINE_TUNING += [f"{TRANSFER}dataset=vtab/{task.slug}" for task in vtab.tasks()]
FINE_TUNING += [f"{TRANSFER}model=H/14,dataset=imagenet,size=518,lr=0.06,preprocess=released"]
FINE_TUNING += [
    f"{TRANSFER}model=BiT-R50x1,recipe=hyperrule,dataset={dataset}"
    for dataset in (*transfer_recipe.SOURCES, "vtab/dtd", "vtab/svhn")
]
OWN = [
    "dino.py:paper=ibot", "distill.py:paper=patient", "distill.py:paper=deit",
    "mae_finetune.py:model=B/16", "mae.py:model=B/16", "masked.py:rate=0.5",
]  # fmt: skip
EVERY = [*AUGREG, *OTHER, *FINE_TUNING]


def load(spec, *overrides):
    return config_lib.load(spec, overrides)


@pytest.mark.parametrize("spec", EVERY)
def test_recipe_is_a_valid_configuration_with_and_without_its_data(spec):
    build.check(defaults.settle(load(spec)))
    if "release" not in spec:
        stand_in = load(f"{spec},standin=true")
        build.check(defaults.settle(stand_in))
        assert stand_in.data.source.startswith("synthetic:")


def test_chains_of_recipes_make_images_of_a_known_shape_from_files():
    chains = {}
    for config in map(load, [f"configs/{spec}" for spec in OWN] + [AUGREG[0], TRANSFER]):
        data = config.data
        sides = images.of(data).size
        views = preprocess.parse_views("data.views", data.views, sides, 3)
        chains |= {view.ops: view.size(sides) for view in views}
        texts = (data.eval_ops,) if views else (data.train_ops, data.eval_ops)
        chains |= {preprocess.parse("ops", text, sides, 3): sides for text in texts}
    assert len(chains) > 8
    for ops, size in chains.items():
        made = tf.function(preprocess.apply(ops), autograph=False)
        file, seed = tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int64)
        traced = made.get_concrete_function(file, seed).structured_outputs
        assert tuple(traced.shape) == (*size, 3), ops


@pytest.mark.parametrize("spec", OWN)
def test_images_of_ones_own_leave_source_and_splits_to_the_user(spec):
    own, plain = load(f"configs/{spec},dataset=own"), base.get_config()
    assert own.data.source == ""
    assert own.data.split == plain.data.split
    assert own.data.val_percent == plain.data.val_percent
    assert {name: one.split for name, one in own.evals.items()} == {"val": "val", "test": "test"}
    assert own.expected.metric == ""  # what is published is of other images
    with pytest.raises(BadInput, match="leave dataset=own out"):
        load(f"configs/{spec},dataset=own,standin=true")
    with pytest.raises(BadInput, match=r"data.source is not set; give one of: .*folder:PATH"):
        splits.open_source(own.data)


def test_recipes_of_data_sets_have_none_for_images_of_ones_own():
    with pytest.raises(BadInput, match=r"unknown dataset 'own'. Known: jft, imagenet21k, imagenet"):
        load(f"{PRETRAIN}dataset=own")


@pytest.mark.parametrize(
    "spec, size",
    [
        ("", (10, 49_000)), ("dataset=cifar100", (100, 49_000)), ("dataset=pets", (37, 3_312)),
        ("dataset=flowers", (102, 918)), ("dataset=imagenet", (1000, 1_268_355)),
        ("dataset=vtab/clevr_count", (8, 1000)), ("dataset=vtab/sun397", (397, 1000)),
    ],
)  # fmt: skip
def test_plan_knows_the_size_of_what_is_not_prepared(spec, size, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(config_lib.to_yaml(load(TRANSFER + spec)))
    assert compile_for.size(str(file)) == size


# ---------------------------------------------------------------- pre-training


def test_bit_falls_to_a_tenth_four_times_on_jft():
    config = load(BIT[0])
    assert config.length == "40 epochs"
    assert config.schedule.step.drops == ("10 epochs", "23 epochs", "30 epochs", "37 epochs")
    assert (config.schedule.lr, config.schedule.warmup) == (0.48, "5000 steps")
    assert (config.optimizer.name, config.optimizer.sgd.momentum) == ("sgd", 0.9)
    assert (config.optimizer.weight_decay, config.optimizer.clip) == (1e-4, 0.0)
    assert (config.batch_size, config.model.dropout) == (4096, 0.0)


def test_bit_of_another_length_falls_in_proportion():
    config = load(f"{PRETRAIN}recipe=bit,dataset=jft,epochs=20")
    assert config.schedule.step.drops == ("5 epochs", "11.5 epochs", "15 epochs", "18.5 epochs")


def test_drops_are_durations_of_which_0_is_never():
    given = "('0', '25 percent', '12 steps', '81920 examples')"
    config = load(BIT[0], "--config.length=40 steps", f"--config.schedule.step.drops={given}")
    assert timeline.steps_of(config, examples=4096).drops == (10, 12, 20)


@pytest.mark.parametrize("drops", ["('soon',)", "(3,)"])
def test_drops_that_are_no_durations_are_refused(drops):
    with pytest.raises(BadInput, match=r"schedule\.step\.drops"):
        load(BIT[0], f"--config.schedule.step.drops={drops}")


def test_bit_is_sigmoid_but_on_imagenet():
    assert [load(spec).loss.name for spec in BIT] == ["sigmoid", "sigmoid", "softmax"]
    assert [load(spec).model.head_bias for spec in BIT] == [-10, -10, 0]


def test_augreg_differs_between_its_datasets():
    i21k, i1k = (load(f"{PRETRAIN}recipe=augreg,dataset={d}") for d in LONG)
    assert [c.model.pool for c in (i21k, i1k)] == ["token", "token"]
    assert [c.model.representation for c in (i21k, i1k)] == [0, 768]
    assert [c.model.head_bias for c in (i21k, i1k)] == [-10.0, -6.9]
    assert [c.mixup.alpha for c in (i21k, i1k)] == [0.2, 0.5]
    assert [c.data.train_ops.split("|")[-1] for c in (i21k, i1k)] == [
        "randaug(2, 15)", "randaug(2, 15)",
    ]  # fmt: skip
    for config in (i21k, i1k):
        assert config.length == "300 epochs"
        assert (config.schedule.name, config.schedule.lr) == ("cosine", 1e-3)
        assert (config.optimizer.weight_decay, config.optimizer.clip) == (0.1, 1.0)
        assert (config.model.dropout, config.model.drop_path) == (0.0, 0.0)
        assert (config.batch_size, config.loss.name) == (4096, "sigmoid")


def test_augreg_takes_level_regularisation_and_decay():
    config = load(OTHER[-1])
    assert config.data.train_ops.endswith("flip_lr|randaug(2, 20)")
    assert (config.mixup.alpha, config.length) == (0.8, "30 epochs")
    assert (config.model.dropout, config.model.drop_path) == (0.1, 0.1)
    assert config.optimizer.weight_decay == 0.03
    plain = load(f"{PRETRAIN}recipe=augreg,aug=none")
    assert plain.data.train_ops == "decode|inception_crop({size})|flip_lr"
    assert plain.mixup.alpha == 0.0


def test_augreg_starts_its_position_embeddings_as_big_vision():
    stds = [load(f"{PRETRAIN}recipe={r}").model.posemb_std for r in ("augreg", "paper")]
    assert stds == [pytest.approx(768**-0.5), 0.02]


def test_modern_is_s16_with_gap_and_sincos2d():
    config = load(f"{PRETRAIN}recipe=modern")
    assert (config.model.variant, config.model.pool) == ("S/16", "gap")
    assert (config.model.posemb, config.model.representation) == ("sincos2d", 384)
    assert (config.batch_size, config.length, config.loss.name) == (1024, "90 epochs", "softmax")
    assert (config.expected.metric, config.expected.value) == ("test/top1", 0.765)
    assert config.data.source == "tfds:imagenet2012"
    assert load(f"{PRETRAIN}recipe=modern,epochs=300").expected.metric == ""


def test_images_and_splits_of_the_pretraining_datasets():
    imagenet, i21k, jft = (
        load(f"{PRETRAIN}dataset={d}") for d in ("imagenet", "imagenet21k", "jft")
    )
    splits = [imagenet.data.split, *(imagenet.evals[name].split for name in ("val", "test"))]
    assert splits == ["train[:99%]", "train[99%:]", "validation"]
    assert imagenet.data.val_percent == 0
    for config, source in ((i21k, "synthetic:imagenet21k"), (jft, "synthetic:jft300m")):
        assert config.data.source == source
    assert (i21k.data.split, i21k.evals["val"].split, i21k.data.val_percent) == ("train", "val", 1)
    splits = [jft.data.split, *(jft.evals[name].split for name in ("val", "test"))]
    assert splits == ["train[102400:]", "train[:51200]", "train[51200:102400]"]
    assert (jft.data.val_percent, jft.data.test_percent) == (0, 0)
    assert load(OTHER[-2]).data.source == "tfds:imagenet21k/winter21"


@pytest.mark.parametrize(
    "spec, parts",
    [
        (PRETRAIN + "recipe=bits", ("bits", "paper", "augreg")),
        (PRETRAIN + "dataset=jft,release=fall11", ("fall11", "dataset=imagenet21k")),
        (PRETRAIN + "release=fall12", ("fall12", "winter21")),
        (PRETRAIN + "recipe=bit,model=B/16", ("B/16", "BiT-R50x1")),
        (PRETRAIN + "recipe=modern,dataset=jft", ("S/16 on imagenet",)),
        (PRETRAIN + "recipe=augreg,dataset=jft", ("jft", "imagenet21k")),
        (
            PRETRAIN + "recipe=augreg,dataset=imagenet,model=R50+L/32",
            ("R50+L/32", "give aug=", "strong2"),
        ),
        (PRETRAIN + "recipe=augreg,aug=heavy", ("heavy", "strong1")),
        (PRETRAIN + "recipe=augreg,reg=0.2", ("0.2", "0.1")),
        (PRETRAIN + "recipe=augreg,wd=0.3", ("0.3", "0.03")),
        (PRETRAIN + "recipe=augreg,epochs=90", ("90", "300")),
        (PRETRAIN + "wd=0.1", ("wd", "recipe=augreg")),
        (TRANSFER + "dataset=cifar", ("cifar", "cifar10", "vtab/TASK")),
        (TRANSFER + "dataset=vtab", ("vtab/TASK",)),
        (TRANSFER + "dataset=pets/1", ("pets/1",)),
        (TRANSFER + "dataset=vtab/eurosats", ("eurosats", "eurosat")),
        (TRANSFER + "lr=0.06", ("0.06", "0.03", "--config.schedule.lr")),
        (TRANSFER + "dataset=vtab/dtd,lr=0.03", ("0.03", "0.01")),
        (TRANSFER + "preprocess=big", ("big", "big_vision")),
        (TRANSFER + "stage=test", ("test", "select, final")),
        (TRANSFER + "rates=0.01+0.03", ("vit_jax sweep", "lr=")),
        (TRANSFER + "recipe=bit", ("bit", "paper, hyperrule")),
        (TRANSFER + "recipe=hyperrule,lr=0.01", ("lr", "leave them out")),
        (TRANSFER + "recipe=hyperrule,size=512", ("size", "leave them out")),
        (TRANSFER + "recipe=hyperrule,hyperrule=big", ("big", "paper, code")),
        (TRANSFER + "recipe=hyperrule,examples=-1", ("examples=-1",)),
        (TRANSFER + "side=32", ("side", "recipe=hyperrule")),
        (PRETRAIN + "stage=final", ("final", "select")),
    ],
)
def test_what_no_recipe_has_is_refused(spec, parts):
    with pytest.raises(BadInput) as caught:
        load(spec)
    assert [part for part in parts if part not in str(caught.value)] == []


# ---------------------------------------------------------------- transfer


@pytest.mark.parametrize(
    "dataset, length, warmup, train, val, test",
    [
        ("cifar10", 10_000, 500, "train[:98%]", "train[98%:]", "test"),
        ("cifar100", 10_000, 500, "train[:98%]", "train[98%:]", "test"),
        ("imagenet", 20_000, 500, "train[:99%]", "train[99%:]", "validation"),
        ("pets", 500, 100, "train[:90%]", "train[90%:]", "test"),
        ("flowers", 500, 100, "train[:90%]", "train[90%:]", "test"),
    ],
)
def test_table_4_and_what_is_held_out(dataset, length, warmup, train, val, test):
    config = load(f"{TRANSFER}dataset={dataset}")
    assert (config.length, config.schedule.warmup) == (f"{length} steps", f"{warmup} steps")
    assert [config.data.split, config.evals["val"].split, config.evals["test"].split] == [
        train, val, test,
    ]  # fmt: skip
    assert config.evals["test"].every == "0"  # only at the end
    assert (config.data.val_percent, config.data.test_percent) == (0, 0)
    assert (config.optimizer.name, config.schedule.name) == ("sgd", "cosine")
    assert (config.optimizer.clip, config.optimizer.weight_decay) == (1.0, 0.0)
    assert (config.batch_size, config.data.image_size) == (512, 384)
    assert (config.model.representation, config.model.head_bias) == (0, 0.0)


@pytest.mark.parametrize(
    "slug, chain",
    [
        ("eurosat", "decode|resize({size*7//6})|random_crop({size})|flip_lr"),
        ("kitti_dist", "decode|resize({size})|flip_lr"),
        ("dspr_ori", "decode|resize({size*7//6})|random_crop({size})"),
        ("dspr_loc", "decode|resize({size})"),
    ],
)
def test_task_of_vtab_crops_and_mirrors_as_its_labels_allow(slug, chain):
    config = load(f"{TRANSFER}dataset=vtab/{slug}")
    assert config.data.train_ops == chain
    assert config.data.eval_ops == "decode|resize({size})"
    assert (config.data.source, config.data.split) == (f"vtab:{slug}", "train800val200")
    assert list(config.evals) == ["test"]
    assert (config.schedule.lr, config.length) == (0.01, "2500 steps")
    assert config.schedule.warmup == "200 steps"


@pytest.mark.parametrize(
    "args, size, resized", [("", 384, 448), ("model=H/14", 378, 441), ("size=512", 512, 597)]
)
def test_size_of_the_crop_keeps_its_ratio_to_the_resized_image(args, size, resized):
    config = load(f"{TRANSFER}preprocess=paper,{args}")
    assert config.data.image_size == size
    ops = preprocess.parse("k", config.data.train_ops, size)
    assert ops == preprocess.parse("k", f"decode|resize({resized})|random_crop({size})|flip_lr", 1)


def test_released_preprocessing_is_an_inception_crop():
    config = load(f"{TRANSFER}preprocess=released,lr=0.03,init=run")
    assert config.data.train_ops == "decode|inception_crop({size})|flip_lr"
    assert (config.schedule.lr, config.init) == (0.03, "run")


AUGREG_B_32 = "augreg/B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0.npz"


@pytest.mark.parametrize(
    "args, dropout, protocol",
    [
        ("", 0.1, "released"), ("model=H/14,init=imagenet21k/ViT-H_14.npz", 0.1, "released"),
        ("model=R50+B/16", 0.1, "released"), ("dataset=vtab/dtd", 0.1, "paper"),
        ("model=BiT-R50x1", 0.0, "released"),
        ("model=BiT-R50x1,recipe=hyperrule", 0.0, "hyperrule"),
        ("model=Mixer-B/16,size=224", 0.0, "released-224"),
        ("model=AxialResNet50", 0.0, "released"), ("model=AxialViT-B/16", 0.1, "released"),
        ("model=my_model:ConvMixer", 0.0, "released"),
        (f"model=B/32,init={AUGREG_B_32}", 0.0, "big_vision"),
        (f"model=auto,init={AUGREG_B_32},dataset=vtab/dtd", 0.0, "paper"),
        (f"model=B/32,init={AUGREG_B_32},dropout=0.1,preprocess=released", 0.1, "released"),
        ("dropout=0.0", 0.0, "released"), ("model=auto,init=my.npz,size=64", 0.0, "released-64"),
    ],
)  # fmt: skip
def test_dropout_and_preprocess_follow_the_weights(args, dropout, protocol):
    config = load(TRANSFER + args)
    assert (config.model.dropout, config.recipe.protocol) == (dropout, protocol)


def test_runs_of_augreg_are_known_as_such(tmp_path):
    for recipe, expected in (("augreg", 0.0), ("paper", 0.1)):
        folder = tmp_path / recipe
        folder.mkdir()
        config = load(f"{PRETRAIN}recipe={recipe},dataset=imagenet,model=B/32")
        (folder / "config.yaml").write_text(config_lib.to_yaml(config))
        assert load(f"{TRANSFER}model=B/32,init={folder}").model.dropout == expected


@pytest.mark.parametrize(
    "args, train, evaluated",
    [
        ("dataset=imagenet", "inception_crop({size})", "bv_resize_small({size*7//6})"),
        ("dataset=pets,size=224", "inception_crop({size})", "bv_resize_small({size*8//7})"),
        ("dataset=cifar100", "bv_resize_small({size*7//6})|random_crop({size})",
         "bv_resize_small({size*7//6})"),
    ],
)  # fmt: skip
def test_big_visions_chain(args, train, evaluated):
    config = load(f"{TRANSFER}preprocess=big_vision,{args}")
    assert config.data.train_ops == f"decode|{train}|flip_lr"
    assert config.data.eval_ops == f"decode|{evaluated}|central_crop({{size}})"


@pytest.mark.parametrize(
    "args, marked",
    [
        ("model=L/16,dataset=jft,epochs=14", False),
        ("model=L/16,dataset=jft,epochs=90", True),
        ("model=BiT-R152x2,dataset=jft,epochs=7", False),
        ("model=BiT-R152x2,dataset=jft,epochs=14", True),
        ("model=BiT-R200x3,dataset=jft", True),
        ("model=H/14,dataset=imagenet21k", True),
        ("model=R50+B/16,dataset=imagenet", True),
        ("model=B/32,dataset=imagenet", False),
    ],
)
def test_what_table_3_does_not_have_is_marked(args, marked):
    config = load(f"configs/pretrain.py:{args}")
    assert config.expected.source.startswith("not in Table 3") == marked


# ---------------------------------------------------------------- stages, protocols, sweeps


@pytest.mark.parametrize("dataset", [*transfer_recipe.SOURCES, "vtab/eurosat"])
def test_stages_of_transfer(dataset):
    select, final, neither = (
        load(f"{TRANSFER}dataset={dataset},stage={s}") for s in ("select", "final", "")
    )
    assert [list(c.evals) for c in (select, final)] == [["val"], ["test"]]
    assert validation.evaluations_of_test(select) == []
    assert validation.evaluations_of_test(final) == ["test"]
    whole, part = ("train800val200", "train800") if "/" in dataset else ("train", "train[:")
    assert final.data.split == whole
    assert select.data.split.startswith(part)
    assert select.data.split != "train"
    assert [c.recipe.stage for c in (select, final, neither)] == ["select", "final", ""]
    assert "test" in neither.evals


@pytest.mark.parametrize(
    "args, protocol",
    [
        ("", "released"), ("preprocess=paper", "paper"), ("model=H/14", "released"),
        ("preprocess=big_vision", "big_vision"), ("dataset=vtab/eurosat", "paper"),
        ("size=384", "released"), ("model=L/16,size=512,polyak=true", "released-512-polyak"),
        ("recipe=hyperrule", "hyperrule"), ("recipe=hyperrule,hyperrule=code", "hyperrule-code"),
    ],
)  # fmt: skip
def test_protocol_and_upstream_are_noted(args, protocol):
    config = load(f"{TRANSFER}{args},upstream=jft".replace(":,", ":"))
    assert (config.recipe.name, config.recipe.protocol) == ("transfer", protocol)
    assert config.recipe.upstream == "jft"


@pytest.mark.parametrize("recipe", ["paper", "bit", "augreg", "modern"])
def test_protocol_of_pretraining_is_its_recipe(recipe):
    found = load(f"{PRETRAIN}recipe={recipe}").recipe
    assert (found.name, found.protocol, found.stage, found.upstream) == ("pretrain", recipe, "", "")


def test_polyak_starts_at_the_weights_that_are_loaded():
    small = ("width=16", "depth=1", "mlp=16", "heads=2")
    given = [f"--config.model.{s}" for s in small] + ["--config.data.image_size=32"]
    config = defaults.settle(load(f"{TRANSFER}model=B/16,polyak=true", *given))
    assert config.ema.decay == 0.9999
    made = program.make(config, classes=10, examples=100, devices=jax.devices()[:1])
    weights = jax.tree.map(lambda x: np.full(x.shape, 0.25, x.dtype), made.abstract.params)
    del weights["head"]  # a new one
    state = made.init_from(fitting.Fitted(weights, []))
    for average, loaded in zip(*map(jax.tree.leaves, (state.ema, state.params)), strict=True):
        np.testing.assert_array_equal(average, loaded)
    assert (np.asarray(state.ema["embedding"]["kernel"]) == 0.25).all()
    assert not np.asarray(state.ema["head"]["kernel"]).any()


@pytest.mark.parametrize(
    "init, variant, size",
    [
        ("imagenet21k/ViT-H_14.npz", "H/14", 378),
        ("https://host/a/ViT-H_14.npz", "H/14", 378),
        ("imagenet21k/ViT-B_16.npz", "B/16", 384),
        ("imagenet21k+imagenet2012/ViT-L_16-224.npz", "L/16", 384),
        ("imagenet21k/R50+ViT-L_32.npz", "R50+L/32", 384),
        ("augreg/R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0.npz", "R+Ti/16", 384),
        ("copies/BiT-M-R152x4.npz", "BiT-R152x4", 384),
        ("gs://no-such-bucket/ViT-B_16.npz", "B/16", 384),  # a file: nobody is asked
        ("distill/R50x1_160.npz", "BiT-R50x1", 384),
    ],
)
def test_model_auto_is_that_of_a_published_name(init, variant, size):
    arg = f"model=auto,dataset=pets,init={init}"
    assert transfer_recipe._arguments(arg).variant == variant
    config = load(f"{TRANSFER}{arg}")
    assert (config.model.variant, config.data.image_size) == ("auto", size)


@pytest.mark.parametrize("at", ["", "@best", "@20"])
@pytest.mark.parametrize("variant, size", [("S/14", 378), ("BiT-R50x1", 384)])
def test_model_auto_is_that_of_a_run(tmp_path, variant, size, at):
    saved = load("configs/quickstart.py", f"--config.model.variant={variant}")
    (tmp_path / "config.yaml").write_text(config_lib.to_yaml(saved))
    arg = f"model=auto,dataset=pets,init={tmp_path}{at}"
    assert transfer_recipe._arguments(arg).variant == variant
    assert load(f"{TRANSFER}{arg}").data.image_size == size


@pytest.mark.parametrize("at", ["", "@best"])
def test_model_auto_is_that_of_a_run_in_a_bucket(store, at):
    saved = load("configs/quickstart.py", "--config.model.variant=S/14")
    file = storage.path("gs://bucket/run/config.yaml")
    storage.write(file, config_lib.to_yaml(saved))
    arg = f"model=auto,dataset=pets,init=gs://bucket/run{at}"
    assert transfer_recipe._arguments(arg).variant == "S/14"
    with pytest.raises(BadInput, match=r"gs://bucket/none does not say .*give model="):
        load(f"{TRANSFER}model=auto,dataset=pets,init=gs://bucket/none")
    with pytest.raises(BadInput, match="no bucket"):
        load(f"{TRANSFER}model=auto,dataset=pets,init=gs://other/run")


def test_hyperrule_knows_the_largest_bit_by_its_weights():
    config = load(f"{TRANSFER}model=auto,dataset=pets,recipe=hyperrule,init=BiT-M-R152x4.npz")
    assert config.data.image_size == 480


@pytest.mark.parametrize("args", ["", ",recipe=hyperrule"])
def test_model_auto_of_weights_that_do_not_say_is_refused(args):
    with pytest.raises(BadInput, match=r"init=my\.npz does not say .*give model="):
        load(f"{TRANSFER}model=auto,dataset=pets,init=my.npz{args}")


def test_model_auto_needs_no_name_where_the_size_is_given():
    config = load(f"{TRANSFER}model=auto,dataset=pets,init=my.npz,size=64")
    assert (config.model.variant, config.data.image_size) == ("auto", 64)


def test_hyperrule_on_small_and_large_images():
    config = load(f"{TRANSFER}recipe=hyperrule,dataset=cifar10,model=BiT-R50x1")
    assert config.data.train_ops == "decode|resize(160)|random_crop({size})|flip_lr"
    assert (config.data.image_size, config.length, config.mixup.alpha) == (128, "10000 steps", 0.1)
    assert (config.schedule.name, config.schedule.lr) == ("step", 0.003)
    assert (config.schedule.warmup, config.schedule.step.factor) == ("0 steps", 0.1)
    assert config.schedule.step.drops == ("30 percent", "60 percent", "90 percent")
    assert (config.optimizer.clip, config.optimizer.weight_decay) == (0.0, 0.0)
    pets = load(f"{TRANSFER}recipe=hyperrule,dataset=pets,model=BiT-R50x1")
    assert pets.data.train_ops == "decode|resize(448)|random_crop({size})|flip_lr"
    assert (pets.data.image_size, pets.length, pets.mixup.alpha) == (384, "500 steps", 0.0)
    dist = load(f"{TRANSFER}recipe=hyperrule,dataset=vtab/clevr_dist,hyperrule=code")
    assert dist.data.train_ops == "decode|resize({size})|flip_lr"
    assert (dist.schedule.warmup, dist.data.image_size) == ("100 steps", 480)
    own = load(f"{TRANSFER}recipe=hyperrule,dataset=pets,examples=600000,side=64")
    assert (own.length, own.data.image_size) == ("20000 steps", 128)


def stages(spec):
    """The points of both stages, the last rate being the best."""
    whole = sweep.read(spec)
    select = whole.points("select") if "select" in whole.stages else []
    rows = [{"run": p.run, **p.keys, "val/top1": 0.1 * i} for i, p in enumerate(select)]
    return select, whole.points("final", rows)


@pytest.mark.parametrize("dataset", transfer_recipe.SOURCES)
def test_sweep_of_transfer_is_table_4_then_three_seeds(dataset):
    select, final = stages(f"{TRANSFER}dataset={dataset},standin=true")
    rates = transfer.table_4()[dataset].rates
    assert [p.config.schedule.lr for p in select] == list(rates)
    assert [validation.uses_test_data(p.config) for p in select] == [False] * 4
    assert [(p.config.schedule.lr, p.config.seed) for p in final] == [
        (rates[-1], s) for s in range(3)
    ]
    assert {p.config.recipe.stage for p in final} == {"final"}
    assert {p.config.data.split for p in final} == {"train"}


def test_sweep_of_some_rates_chooses_among_these():
    select, final = stages(f"{TRANSFER}dataset=imagenet,preprocess=released,rates=0.03+0.01")
    assert [p.config.schedule.lr for p in select] == [0.01, 0.03]  # the smaller is the first
    assert [(p.config.schedule.lr, p.config.seed) for p in final] == [(0.03, s) for s in range(3)]


def test_halving_stops_rates_only_where_it_is_asked_for():
    plain, halved = (
        sweep.read(f"{TRANSFER}dataset=pets+flowers{h}") for h in ("", ",halving=true")
    )
    assert plain.rules == {}
    rule = halved.rules["select"]
    assert (rule.metric, rule.eta, rule.rungs) == ("val/top1", 2, (20, 50))
    before, after = (whole.points("select") for whole in (plain, halved))
    assert [p.config for p in before] == [p.config for p in after]
    verdicts = rule.best({p.run: p.keys for p in after}, {p.run: 0.5 for p in after})
    assert {kept for _, kept, _ in verdicts.values()} == {2}  # of four, for each dataset
    rows = [
        {"run": p.run, **p.keys, "val/top1": 0.5} for p in after if p.config.schedule.lr == 0.01
    ]
    assert {p.config.schedule.lr for p in halved.points("final", rows)} == {0.01}


@pytest.mark.parametrize(
    "args", ["dataset=pets,lr=0.01", "dataset=vtab", "dataset=vtab,select=true"]
)
def test_halving_needs_rates_to_compare(args):
    with pytest.raises(BadInput, match="halving=true stops rates"):
        transfer_recipe.sweep(f"{args},halving=true")


def test_halving_is_for_a_sweep():
    with pytest.raises(BadInput, match="halving=true works only in `vit_jax sweep`"):
        config_lib.load(f"{TRANSFER}dataset=pets,halving=true")


def test_equal_rates_give_the_smaller_one():
    whole = sweep.read(f"{TRANSFER}dataset=pets")
    rows = [{"run": p.run, **p.keys, "val/top1": 0.5} for p in whole.points("select")]
    assert {p.config.schedule.lr for p in whole.points("final", rows)} == {0.001}


def test_bit_also_tries_the_hyperrule():
    select, final = stages(f"{TRANSFER}model=BiT-R50x1,dataset=imagenet")
    assert [p.config.recipe.protocol for p in select] == ["released"] * 4 + ["hyperrule"]
    assert {(p.config.recipe.protocol, p.config.schedule.name) for p in final} == {
        ("hyperrule", "step")
    }


def test_bit_by_the_name_of_its_weights_tries_the_hyperrule_too():
    points = transfer_recipe.sweep("model=auto,dataset=pets,init=BiT-M-R101x1.npz")["select"]
    assert points[-1] == {":recipe": "hyperrule", ":stage": "select"}


def test_other_test_sets_go_with_all_stages_of_imagenet():
    whole = sweep.read(f"{TRANSFER}dataset=imagenet,also=real+v2+a")
    assert [set(p.config.evals) for p in whole.expected["select"]] == [{"val"}] * 4
    assert [set(p.config.evals) for p in whole.expected["final"]] == [
        {"test", "real", "v2", "a"}
    ] * 3


def test_other_test_sets_are_of_imagenet_among_several_datasets():
    whole = sweep.read(f"{TRANSFER}dataset=imagenet+pets+vtab/dtd,also=real+v2")
    found = {p.config.data.source: set(p.config.evals) for p in whole.expected["final"]}
    assert found == {
        "tfds:imagenet2012": {"test", "real", "v2"},
        "tfds:oxford_iiit_pet": {"test"},
        "vtab:dtd": {"test"},
    }
    assert {tuple(p.config.evals) for p in whole.expected["select"]} == {("val",)}


def test_override_of_val_is_for_the_stage_that_has_it():
    whole = sweep.read(f"{TRANSFER}dataset=pets", ["--config.evals.val.split=train[95%:]"])
    assert {p.config.evals["val"].split for p in whole.expected["select"]} == {"train[95%:]"}
    assert [set(p.config.evals) for p in whole.expected["final"]] == [{"test"}] * 3


def test_several_datasets_choose_by_themselves():
    whole = sweep.read(f"{TRANSFER}dataset=pets+flowers+vtab/dtd")
    best = {"pets": 0.003, "flowers": 0.03}
    rows = [
        {**p.keys, "val/top1": float(best[p.keys[":dataset"]] == p.keys[":lr"])}
        for p in whole.points("select")
    ]
    found = {(p.config.data.source, p.config.schedule.lr) for p in whole.points("final", rows)}
    assert found == {
        ("tfds:oxford_iiit_pet", 0.003),
        ("tfds:oxford_flowers102", 0.03),
        ("vtab:dtd", 0.01),
    }
    assert len(rows) == 8


def test_vtab_is_19_tasks_and_three_seeds_at_a_fixed_rate():
    final = transfer_recipe.sweep("dataset=vtab")["final"]
    slugs = {f"vtab/{task.slug}" for task in vtab.tasks()}
    found = [(p[":dataset"], p["seed"]) for p in final]
    assert sorted(found) == sorted(itertools.product(slugs, (0, 1, 2)))
    assert {tuple(p) for p in final} == {(":dataset", ":stage", "seed")}
    assert {p[":stage"] for p in final} == {"final"}


def test_vtab_chooses_once_by_the_mean_of_its_tasks():
    stages = transfer_recipe.sweep("dataset=vtab,select=true")
    points = stages["select"]
    assert len(points) == 19 * 4
    rows = [{**p, "val/top1": 0.5} for p in points]
    for row in rows:  # one task is best at another choice, but not the mean
        choice = (row["schedule.lr"], row["length"])
        row["val/top1"] += 0.1 * (choice == (0.03, "500 steps"))
        row["val/top1"] += 0.4 * (choice == (0.01, "500 steps") and row[":dataset"] == "vtab/dtd")
    final = stages["final"](rows)
    assert {(p["schedule.lr"], p["length"]) for p in final} == {(0.03, "500 steps")}
    assert len(final) == 57
    loaded = sweep.Sweep(f"{TRANSFER}dataset=vtab", (), {"a": points[:1], "b": final[:1]})
    of_select, of_final = (loaded.points(stage)[0].config for stage in ("a", "b"))
    assert (of_select.data.split, of_final.data.split) == ("train800", "train800val200")
    assert of_final.schedule.lr == 0.03


@pytest.mark.parametrize("names", [("eurosat",), ("eurosat", "dtd")])
def test_tasks_of_a_sweep_choose_together(names):
    spec = "dataset=" + "+".join(f"vtab/{name}" for name in names)
    stages = transfer_recipe.sweep(f"{spec},select=true")
    points = stages["select"]
    assert len(points) == 4 * len(names)
    rows = [{**p, "val/top1": p["schedule.lr"] + (p["length"] == "500 steps")} for p in points]
    final = stages["final"](rows)
    assert {(p["schedule.lr"], p["length"]) for p in final} == {(0.03, "500 steps")}
    assert len(final) == 3 * len(names)
    whole = sweep.read(f"{TRANSFER}{spec},select=true")
    assert {p.config.data.split for p in whole.points("select")} == {"train800"}


def test_sweep_of_pretraining_is_regularisation_on_val():
    points = sweep.read(f"{PRETRAIN}model=B/32,dataset=imagenet").points("select")
    found = {
        (p.config.optimizer.weight_decay, p.config.model.dropout, p.config.loss.label_smoothing)
        for p in points
    }
    assert found == set(itertools.product((0.03, 0.1, 0.3), (0.0, 0.1), (0.0, 1e-4, 0.1)))
    assert {tuple(p.config.evals) for p in points} == {("val",)}


@pytest.mark.parametrize(
    "spec, part",
    [
        (TRANSFER + "dataset=cifar+pets", "'cifar'"),
        (TRANSFER + "dataset=pets,select=true", "dataset=vtab"),
        (TRANSFER + "dataset=vtab,select=true,lr=0.01", "leave out lr"),
        (TRANSFER + "dataset=vtab,select=true,recipe=hyperrule", "leave out lr and recipe"),
        (TRANSFER + "dataset=flowers+pets,also=real", r"also=real: .*imagenet"),
        (TRANSFER + "dataset=imagenet+pets,also=real,standin", "without standin"),
        (TRANSFER + "dataset=pets,model=auto", "give model="),
        (TRANSFER + "dataset=pets,lr=0.5", "lr of Table 4"),
        (TRANSFER + "dataset=pets,rates=0.01+0.5", r"lr of Table 4 .*'0\.5'"),
        (TRANSFER + "dataset=pets,rates=0.01+high", "rates=0.01\\+high: give rates"),
        (TRANSFER + "dataset=pets,rates=+", r"rates=\+: give rates"),
        (TRANSFER + "dataset=pets,rates=0.01+0.03,lr=0.01", "leave out rates"),
        (TRANSFER + "dataset=vtab/dtd,rates=0.01", "leave out rates"),
        (TRANSFER + "dataset=vtab,select=true,rates=0.01", "leave out rates"),
        (TRANSFER + "dataset=pets,recipe=hyperrule,rates=0.003", "leave out rates"),
        (PRETRAIN + "recipe=augreg", "recipe=paper"),
        (PRETRAIN + "dataset=jft,model=B/16", "section 4.3"),
    ],
)
def test_sweep_that_no_recipe_has_is_refused(spec, part):
    with pytest.raises(BadInput, match=part):
        sweep.read(spec)


# ---------------------------------------------------------------- steps

SMALL = (
    "length=1 steps", "schedule.warmup=0", "batch_size=8", "data.image_size=32",
    "report.writers=()",
    "report.page=false", "model.width=16", "model.depth=1", "model.mlp=16",
    "model.heads=2", "model.representation=0",
)  # fmt: skip


@pytest.mark.slow  # the default run takes a step of the two default recipes, in test_train.py
@pytest.mark.parametrize("spec", [s for s in EVERY if not re.search("release|H/14|R26", s)])
def test_recipe_takes_a_step_on_its_stand_in(spec, tmp_path):
    given = [f"--config.{setting}" for setting in SMALL]
    if "/32" in spec or "R+Ti/16" in spec:
        given.append("--config.data.image_size=64")  # 2 x 2 patches
    if "BiT-" in spec or "recipe=bit" in spec:
        given = [g for g in given if "model." not in g] + ["--config.model.stages=(1,1)"]
    config = config_lib.load(f"{spec},standin=true")
    given.append("--config.evals.test.split=test[:8]")
    if "val" in config.evals:
        given.append("--config.evals.val.split=test[8:16]")
    spec = f"--config={spec},standin=true"
    assert main.main(["train", spec, f"--workdir={tmp_path}", *given]) == 0
