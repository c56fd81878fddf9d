# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""VTAB's tasks: the paper's data, split arithmetic, labels by hand, and all 19 read from files.

The files are made here from TFDS's mock examples by TFDS's own builders, so features, encodings and
folders are the real ones; the images are noise.
"""

import dataclasses
import functools
import logging
import math
import re

import numpy as np
import pictures
import pytest

from vit_jax import errors
from vit_jax.config import load as config_lib
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources import vtab
from vit_jax.data.sources.source import Options
from vit_jax.data.splits import split as splits
from vit_jax.data.tensorflow import tf
from vit_jax.paper import vtab as paper

TASKS = {task.slug: task for task in paper.tasks()}
EVERY_TASK = pytest.mark.parametrize("slug", TASKS)

# The sizes of the splits of TFDS that the tasks use.
TFDS_SIZES = {
    "caltech101": {"train": 3060, "test": 6084},
    "cifar100": {"train": 50000, "test": 10000},
    "dtd": {"train": 1880, "validation": 1880, "test": 1880},
    "oxford_flowers102": {"train": 1020, "validation": 1020, "test": 6149},
    "oxford_iiit_pet": {"train": 3680, "test": 3669},
    "sun397/tfds": {"train": 76128, "validation": 10875, "test": 21750},
    "svhn_cropped": {"train": 73257, "test": 26032},
    "patch_camelyon": {"train": 262144, "validation": 32768, "test": 32768},
    "eurosat/rgb": {"train": 27000},
    "resisc45": {"train": 31500},
    "diabetic_retinopathy_detection/btgraham-300": {
        "train": 35126, "validation": 10906, "test": 42670, "sample": 10,
    },
    "clevr": {"train": 70000, "validation": 15000, "test": 15000},
    "dmlab": {"train": 65550, "validation": 22628, "test": 22735},
    "dsprites": {"train": 737280},
    "kitti": {"train": 6347, "validation": 423, "test": 711},
    "smallnorb": {"train": 24300, "test": 24300},
}  # fmt: skip


# ---------------------------------------------------------------- the paper's data


def test_there_are_7_natural_4_specialized_and_8_structured_tasks():
    groups = [task.group for task in TASKS.values()]
    assert groups == ["natural"] * 7 + ["specialized"] * 4 + ["structured"] * 8
    assert len(TASKS) == 19


@pytest.mark.parametrize(
    "name, slug",
    [
        ("eurosat", "eurosat"), ("EuroSAT", "eurosat"), ("CIFAR-100", "cifar100"),
        ("dSpr-Ori", "dspr_ori"), ("dspr-ori", "dspr_ori"), ("dsprori", "dspr_ori"),
        ("Clevr-Count", "clevr_count"), ("sNORB-Elev", "snorb_elev"), ("pets", "pets"),
    ],
)  # fmt: skip
def test_task_is_found_by_slug_and_by_the_name_of_the_paper(name, slug):
    assert paper.find(name).slug == slug


def test_unknown_task_lists_those_there_are():
    with pytest.raises(errors.BadInput, match=r"'eurosats'.* 'eurosat'.*snorb_elev"):
        paper.find("eurosats")


def test_crops_and_mirrors_are_those_of_bit_appendix_f():
    assert {s for s, t in TASKS.items() if not t.random_crop} == {
        "clevr_count", "clevr_dist", "dmlab", "kitti_dist", "dspr_loc",
    }  # fmt: skip
    assert {s for s, t in TASKS.items() if not t.horizontal_flip} == {
        "dspr_ori", "dspr_loc", "snorb_azim",
    }  # fmt: skip


def test_classes_are_as_published():
    assert [t.classes for t in TASKS.values()] == [
        102, 100, 47, 102, 37, 397, 10, 2, 10, 45, 5, 8, 6, 6, 16, 16, 4, 18, 9,
    ]  # fmt: skip


def test_download_facts_and_notes_are_there():
    manual = [t.slug for t in TASKS.values() if t.download["manual_step"]]
    assert manual == ["resisc45", "retinopathy"]
    assert "4.0.0" in TASKS["pets"].notes[0]


# ---------------------------------------------------------------- splits


def own_splits(sizes):
    """Splits of the sizes of TFDS, one after another in a table that nothing can read."""
    table = splits.Table(sum(sizes.values()), str, lambda: None)
    made, start = {}, 0
    for name, size in sizes.items():
        made[name] = splits.Split(table, range(start, start + size))
        start += size
    return made


@functools.cache
def rows(slug):
    """Split -> set of rows."""
    task = TASKS[slug]
    made = vtab.named_splits(task, own_splits(TFDS_SIZES[task.tfds_name]), "here")
    found = {name: split.rows for name, split in made.items()}
    found = {k: np.r_[r.start : r.stop] if isinstance(r, range) else r for k, r in found.items()}
    assert all(len(np.unique(r)) == len(r) for r in found.values())
    return found


@EVERY_TASK
def test_splits_of_both_protocols_have_the_sizes_of_the_protocol(slug):
    sizes = {name: len(found) for name, found in rows(slug).items()}
    assert sizes == dict(TASKS[slug].num_examples)
    assert (sizes["train800"], sizes["val200"], sizes["train800val200"]) == (800, 200, 1000)


@EVERY_TASK
def test_nothing_is_in_two_splits_that_must_not_share(slug):
    found = rows(slug)
    for a, b in [
        ("train800", "val200"), ("train800val200", "test"), ("train", "val"), ("trainval", "test"),
    ]:  # fmt: skip
        assert not np.isin(found[a], found[b]).any()
    np.testing.assert_array_equal(
        np.concatenate([found["train800"], found["val200"]]), found["train800val200"]
    )
    np.testing.assert_array_equal(np.concatenate([found["train"], found["val"]]), found["trainval"])
    assert np.isin(found["train800"], found["train"]).all()
    assert np.isin(found["val200"], found["val"]).all()


@pytest.mark.parametrize(
    "slug, first",
    [
        # smallNORB takes its validation set from the official test set, EuroSAT all from train.
        ("snorb_azim", {"train800": 0, "val200": 24300, "test": 24300 + 12150, "trainval": 0}),
        ("eurosat", {"train800": 0, "val200": 16200, "test": 21600, "val": 16200}),
        ("clevr_count", {"val200": 63000, "test": 70000}),
        ("dspr_loc", {"val200": 589824, "test": 663552}),
        ("dtd", {"val200": 1880, "test": 3760}),
    ],
)
def test_splits_begin_where_the_protocol_says(slug, first):
    assert {name: int(rows(slug)[name][0]) for name in first} == first


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"train": 3000, "test": 6084}, r"trainval \(train\) 3000/3060"),
        ({"train": 100, "test": 6084}, r"val200 \(train\[2754:2954\]\) 0/200"),
        ({"train": 3060}, r"test \(test\) 0/6084"),
    ],
)
def test_another_size_is_bad_input_that_says_which_and_what_to_do(sizes, said):
    with pytest.raises(errors.BadInput, match=said + ".*Prepare caltech101:3.*data_dir"):
        vtab.named_splits(TASKS["caltech101"], own_splits(sizes), "data.source=vtab:caltech101")


# ---------------------------------------------------------------- labels by hand


def inside(slug, text):
    """Says if the definition in words has it: the constants are those of the paper's data."""
    return text in TASKS[slug].label_definition


def test_edges_are_those_of_the_definitions():
    assert inside("clevr_dist", str(list(vtab.OBJECT_EDGES)))
    assert inside("kitti_dist", str([int(edge) for edge in vtab.VEHICLE_EDGES]))
    assert inside("kitti_dist", f"type < {vtab.VEHICLES}")
    assert inside("kitti_dist", f"{vtab.NO_VEHICLE:.0f} if there is none")
    assert inside("clevr_count", f"minus {vtab.FEWEST_OBJECTS}")


ABOVE = float(np.nextafter(np.float32(8), np.float32(9)))


@pytest.mark.parametrize(
    "depth, label",
    [
        (0.1, 0), (8.0, 0), (ABOVE, 1), (8.5, 1), (8.51, 2), (9.0, 2), (9.01, 3), (9.5, 3),
        (9.51, 4), (10.0, 4), (10.01, 5), (99.0, 5), (100.0, 5),
    ],
)  # fmt: skip
def test_distance_of_clevr_is_that_of_the_closest_object(depth, label):
    coordinates = np.array([[1, 2, depth + 3], [0, 0, depth], [7, 7, depth + 1]], np.float32)
    assert int(vtab.object_distance({"pixel_coords": tf.constant(coordinates)})) == label


@pytest.mark.parametrize("count, label", [(3, 0), (4, 1), (10, 7)])
def test_count_of_clevr_starts_at_three(count, label):
    assert int(vtab.object_count({"size": tf.zeros([count], tf.int64)})) == label


@pytest.mark.parametrize(
    "objects, label",
    [
        ([], 3), ([(3, 1.0)], 3), ([(7, 1.0), (4, 2.0)], 3),  # nothing, a pedestrian, others
        ([(0, 8.0)], 0), ([(1, ABOVE)], 1), ([(2, 20.0)], 1), ([(0, 20.1)], 2), ([(0, 90.0)], 2),
        ([(0, 30.0), (1, 5.0), (3, 1.0)], 0), ([(3, 1.0), (2, 15.0)], 1), ([(0, -3.0)], 0),
    ],
)  # fmt: skip
def test_distance_of_kitti_is_that_of_the_closest_car_van_or_truck(objects, label):
    kinds = tf.constant([kind for kind, _ in objects], tf.int64)
    places = np.array([[9, 9, z] for _, z in objects], np.float32).reshape(-1, 3)
    found = vtab.vehicle_distance({"type": kinds, "location": tf.constant(places)})
    assert int(found) == label


def test_orientation_of_dsprites_has_bins_of_three_and_two():
    bins = [int(vtab.coarsen(tf.constant(k, tf.int64), 16, 40)) for k in range(40)]
    assert bins == [math.floor(k / 2.5) for k in range(40)]
    assert [bins.count(k) for k in range(16)] == [3, 2] * 8


def test_position_of_dsprites_has_bins_of_two():
    bins = [int(vtab.coarsen(tf.constant(k, tf.int64), 16, 32)) for k in range(32)]
    assert bins == [k // 2 for k in range(32)]


@pytest.mark.parametrize("count", [2, 11])
def test_computed_label_that_is_no_class_is_an_error(count):
    with pytest.raises(tf.errors.InvalidArgumentError, match="computed label"):
        vtab._checked(vtab.object_count({"size": tf.zeros([count], tf.int64)}), 8)


# ---------------------------------------------------------------- all tasks, from files

EXAMPLES, SEED = 6, 2  # of each of TFDS's splits here; labels differ with this seed


def shrunk(task):
    """The task with a few examples in each split, of the same splits of TFDS."""

    def own(split):
        return [re.match(r"\w+", term)[0] for term in task.splits[split].split("+")]

    held = own("val200")[0]
    small = {"train800": "train[:3]", "val200": f"{held}[3:5]"}
    small["train800val200"] = f"train[:3]+{held}[3:5]"
    small["test"] = f"{own('test')[0]}[5:]"
    full = {"train": "train[:3]", "val": f"{held}[3:5]", "test": small["test"]}
    full["trainval"] = small["train800val200"]
    sizes = {"train800": 3, "train": 3, "val200": 2, "val": 2, "test": 1}
    sizes |= {"train800val200": 5, "trainval": 5}
    return dataclasses.replace(task, splits_1k=small, splits_full=full, num_examples=sizes)


SCENES = [  # depths of objects of CLEVR
    (9.2, 12.0, 8.0), (10.5, 11.0, 12.0, 13.0), (8.7,) * 10, (9.6, 50.0, 8.51, 70.0, 8.9),
]  # fmt: skip
STREETS = [  # types and depths of objects of KITTI
    [(3, 2.0), (0, 19.0)], [(1, 7.5), (2, 30.0)], [(4, 5.0)], [(2, 25.0), (0, 60.0), (7, -1.0)],
]  # fmt: skip


def mock(features, number):
    """A mock example of TFDS, with objects that a scene can have and an image of zeros and ones."""
    tfds = tfds_source._tfds()
    from tensorflow_datasets.testing import mocking

    example = mocking.RandomFakeGenerator(features, 1, seed=SEED)[number]
    if "question_answer" in features:
        scene = SCENES[number % 4]
        size = len(scene)
        example["question_answer"] = {"question": [], "answer": []}
        example["objects"] = {
            "3d_coords": np.zeros((size, 3), np.float32), "color": [0] * size,
            "material": [0] * size, "rotation": [0.0] * size, "shape": [0] * size,
            "size": [0] * size,
            "pixel_coords": np.array([[50, 60, z] for z in scene], np.float32),
        }  # fmt: skip
    elif "objects" in features:
        street = STREETS[number % 4]
        box = tfds.features.BBox(0.1, 0.1, 0.5, 0.5)
        example["objects"] = {
            "alpha": [0.0] * len(street), "bbox": [box] * len(street),
            "dimensions": np.zeros((len(street), 3), np.float32), "occluded": [0] * len(street),
            "rotation_y": [0.0] * len(street), "truncated": [0.0] * len(street),
            "type": [kind for kind, _ in street],
            "location": np.array([[1, 2, z] for _, z in street], np.float32),
        }  # fmt: skip
    if "label_orientation" in features:
        example["image"] = example["image"] % 2
    if "head_bbox" in features:
        example["head_bbox"] = tfds.features.BBox(0.1, 0.1, 0.5, 0.5)
    return example


def prepare(name, folder, own):
    """A prepared copy of a dataset of TFDS, by its own builder, with mock examples."""
    tfds = tfds_source._tfds()
    logging.getLogger("absl").setLevel(logging.ERROR)
    tfds.disable_progress_bar()
    builder = tfds.builder(name, data_dir=str(folder))

    def generate(first):
        for i in range(EXAMPLES):
            yield first + i, mock(builder.info.features, i)

    patch = pytest.MonkeyPatch()
    kind = type(builder)
    patch.setattr(kind, "_split_generators", lambda *_: {n: generate(9 * k) for k, n in own})
    patch.setattr(kind, "MANUAL_DOWNLOAD_INSTRUCTIONS", None)
    with patch.context():
        builder.download_and_prepare()
    patch.undo()
    return folder


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Every dataset, prepared when it is asked for."""
    root = tmp_path_factory.mktemp("tfds")

    @functools.cache
    def prepared(name):
        return prepare(name, root, list(enumerate(TFDS_SIZES[name.partition(":")[0]])))

    def of(task):
        return prepared(f"{task.tfds_name}:{task.substitute or task.version}")

    return of


def opened(slug, data_folder, full=False):
    task = shrunk(TASKS[slug])
    return vtab.open_task(task, full=full, data_dir=str(data_folder(task)))


def wanted_label(task, example):
    """In numpy, as the definitions in words have it."""
    key = task.label_feature
    if task.slug == "clevr_count":
        return len(example["objects"]["size"]) - 3
    if task.slug == "clevr_dist":
        nearest = min(example["objects"]["pixel_coords"][:, 2])
        return int(np.digitize(nearest, [8.0, 8.5, 9.0, 9.5, 10.0], right=True))
    if task.slug == "kitti_dist":
        things = zip(example["objects"]["type"], example["objects"]["location"], strict=True)
        depths = [float(place[2]) for kind, place in things if kind in (0, 1, 2)]
        return int(np.digitize(min(depths), [8, 20], right=True)) if depths else 3
    if task.slug.startswith("dspr"):
        return math.floor(int(example[key]) / {"dspr_loc": 2, "dspr_ori": 2.5}[task.slug])
    return int(example[key])


@EVERY_TASK
def test_images_and_labels_of_a_task_are_those_of_tfds(slug, data_folder):
    tfds = tfds_source._tfds()
    task = shrunk(TASKS[slug])
    names, made, _ = opened(slug, data_folder)
    assert len(names) == len(set(names)) == task.classes
    version = task.substitute or task.version
    builder = tfds.builder(f"{task.tfds_name}:{version}", data_dir=str(data_folder(task)))
    decode, seen = preprocess.Decode(), set()
    expression = task.splits_1k["train800val200"]
    wanted = list(builder.as_dataset(split=expression).as_numpy_iterator())
    read = tf.function(made["train800val200"].reader(), autograph=False)
    assert len(wanted) == 5
    for i, example in enumerate(wanted):
        image, labels = read(tf.constant(i, tf.int64))
        assert labels.numpy().tolist() == [wanted_label(task, example)]
        seen.add(int(labels[0]))
        pixels = example["image"] * (255 if slug.startswith("dspr") else 1)
        whole = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
        np.testing.assert_array_equal(decode(image, None).numpy(), whole)
        assert image.dtype == (tf.uint8 if slug.startswith("dspr") else tf.string)
    assert len(seen) > 1
    for split in made.values():
        assert "/" in split.name(0)


@pytest.mark.integration
def test_a_batch_of_every_shape_of_image_goes_through_the_chain_of_its_task(data_folder):
    """Grey, zeros and ones, tall and wide: what the recipe does, at a twelfth of its size."""
    for slug in ("eurosat", "kitti_dist", "dspr_ori", "snorb_azim", "dmlab"):
        config = config_lib.load(f"configs/transfer.py:dataset=vtab/{slug}")
        chains = [config.data.train_ops, config.data.eval_ops]
        for chain in (c.replace("448", "37").replace("384", "32") for c in chains):
            _, made, _ = opened(slug, data_folder)
            pipe = pictures.batches(made["train800val200"], chain, image_size=32)
            (batch,) = pipe.train(0, 1)
            assert batch["image"].shape == (4, 32, 32, 3)
            assert batch["image"].std() > 10


def test_the_small_protocol_trains_on_800_and_selects_on_200(data_folder):
    _, made, _ = opened("snorb_elev", data_folder)
    assert sorted(made) == ["test", "train", "train800", "train800val200", "val", "val200"]
    assert made["train"] is made["train800"]
    assert made["val"] is made["val200"]
    assert made["train800val200"].name(0) == "tfds:smallnorb/2.0.0/train/0"
    assert made["train800val200"].name(3) == "tfds:smallnorb/2.0.0/test/3"


def test_the_full_protocol_has_all_examples(data_folder):
    _, made, _ = opened("dtd", data_folder, full=True)
    assert sorted(made) == ["test", "train", "trainval", "val"]
    assert made["trainval"].name(3) == "tfds:dtd/3.0.1/validation/3"


def test_class_names_say_what_is_counted_and_measured(data_folder):
    assert opened("clevr_count", data_folder)[0][::7] == ["3 objects", "10 objects"]
    assert opened("clevr_dist", data_folder)[0][1] == "8 to 8.5"
    assert opened("kitti_dist", data_folder)[0][2:] == ["20 to 999", "no vehicle"]
    assert opened("dspr_ori", data_folder)[0][15] == "orientation 15"
    assert opened("retinopathy", data_folder)[0] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "slug, full, notes",
    [
        ("eurosat", False, []),
        ("sun397", False, [
            "train800 of Sun397 holds 309 of 397 classes "
            "(google-research/task_adaptation issue 21)",
            "train800val200 of Sun397 holds 325 of 397 classes (KMnP/vpt issue 1)",
        ]),
        ("sun397", True, []),
        ("caltech101", False, [
            "val200 of Caltech101 holds 86 of 102 classes "
            "(google-research/task_adaptation issue 21)",
        ]),
    ],
)  # fmt: skip
def test_classes_that_a_split_misses_are_said(slug, full, notes, data_folder):
    assert opened(slug, data_folder, full)[2] == notes


def test_a_version_that_stands_in_for_one_that_cannot_be_made_is_said(data_folder):
    (note,) = opened("pets", data_folder)[2]
    assert "4.0.0" in note
    assert "train[:800] may differ" in note
    assert "3.3.0" in opened("kitti_dist", data_folder)[2][0]


def test_another_version_is_refused_with_the_reason(data_folder):
    task = shrunk(TASKS["eurosat"])
    folder = data_folder(task)
    newer = dataclasses.replace(task, version="9.*.*")
    with pytest.raises(errors.BadInput) as caught:
        vtab.open_task(newer, full=False, data_dir=str(folder))
    assert "eurosat/rgb:9.*.*, prepared is 2.0.0" in str(caught.value)
    assert "order of the prepared files" in str(caught.value)
    assert "Prepare eurosat/rgb:2.0.0 beside it: vit_jax data prepare vtab/eurosat" in str(
        caught.value
    )


def test_other_classes_than_the_tasks_are_refused(data_folder):
    task = dataclasses.replace(shrunk(TASKS["eurosat"]), classes=12)
    with pytest.raises(errors.BadInput, match="has 12 classes, the prepared eurosat/rgb 10"):
        vtab.open_task(task, full=False, data_dir=str(data_folder(task)))


def source(spec, folder=""):
    return sources.open_source(spec, Options(str(folder)), val_percent=1, test_percent=1)


def test_source_checks_sizes_of_what_is_prepared(data_folder):
    folder = data_folder(TASKS["eurosat"])
    with pytest.raises(errors.BadInput, match=r"vtab:eurosat.* train800 \(train\[:800\]\) 6/800"):
        source("vtab:eurosat", folder)


@pytest.mark.parametrize(
    "slug, name",
    [
        ("svhn", "svhn_cropped:3.*.*"), ("eurosat", "eurosat/rgb:2.*.*"),
        ("pets", "oxford_iiit_pet:4.0.0"), ("kitti_dist", "kitti:3.3.0"),
    ],
)  # fmt: skip
def test_what_is_not_prepared_is_asked_for_in_the_version_of_the_task(
    slug, name, tmp_path, monkeypatch
):
    asked = []

    def prepared(*args):
        asked.append(args)
        raise errors.BadInput("not prepared")

    monkeypatch.setattr(tfds_source, "open_builder", prepared)
    with pytest.raises(errors.BadInput, match="not prepared"):
        source(f"vtab:{slug}", tmp_path)
    assert asked == [(name, str(tmp_path), f"data.source=vtab:{slug}")]


@pytest.mark.parametrize(
    "spec, said",
    [
        ("vtab:", "vtab:TASK"), ("vtab:cifar10", "unknown task of VTAB 'cifar10'"),
        ("vtab:eurosat/1k", "vtab:eurosat or vtab:eurosat/full"), ("vtab:eurosat/", "/full"),
    ],
)  # fmt: skip
def test_spec_that_is_no_task_is_refused_without_tensorflow(spec, said, monkeypatch):
    monkeypatch.setattr(tfds_source, "_tfds", lambda: pytest.fail("TensorFlow is not needed"))
    with pytest.raises(errors.BadInput, match=said):
        source(spec)
