# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fields of an example: masks and boxes follow the image, batches hold what is asked for."""

import io
import re
import tarfile

import numpy as np
import opened_sources
import pictures
import pytest
from PIL import Image

from vit_jax.data import splits
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import geometry
from vit_jax.data.pipeline import pipeline
from vit_jax.data.sources import mixture
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tasks import test_sets
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

# Values of the image, a hundred apart: nothing (uncovered), ground, and two objects.
GROUND, OBJECTS = 55, (155, 255)
BOXES = np.array([[10, 6, 30, 22], [44, 20, 60, 44], [0, 0, 0, 0]], np.float32)
CLASSES = np.array([0, 1, -1], np.int32)


def scene():
    """An image of 48 x 64 with two objects, and its mask, boxes and classes."""
    image = np.full((48, 64, 3), GROUND, np.uint8)
    for (left, top, right, bottom), value in zip(BOXES[:2].astype(int), OBJECTS, strict=True):
        image[top:bottom, left:right] = value
    mask = (image[..., 0].astype(np.int32) - GROUND) // 100
    return {"image": image, "mask": mask, "boxes": BOXES, "box_classes": CLASSES}


def moved(chain, seeds=12, **changes):
    """The fields of the scene after a chain, for each of some seeds."""
    process = preprocess.apply_to_fields(preprocess.parse("k", chain, 24))
    fields = {key: tf.constant(x) for key, x in (scene() | changes).items()}
    graph = tf.function(lambda seed: process(fields, seed), autograph=False)
    for seed in range(seeds):
        result = graph(tf.constant([7, seed], tf.int64))
        yield {key: x.numpy() for key, x in result.items()}


def seen_box(values, value):
    """The box about the pixels of a value, or None."""
    rows, columns = np.nonzero(values == value)
    if not len(rows):
        return None
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def assert_boxes(fields, tolerance):
    """Each box is about the pixels of its class in the mask; without such pixels it is dropped."""
    assert (fields["box_classes"][2], *fields["boxes"][2]) == (-1, 0, 0, 0, 0)
    for number in (0, 1):
        kept = fields["box_classes"][number] >= 0
        assert kept == bool(fields["boxes"][number].any())
        about = seen_box(fields["mask"], number + 1)
        if about is None or not kept:  # a sliver of less than a pixel may have no pixel
            left, top, right, bottom = fields["boxes"][number] if kept else (0, 0, 0, 0)
            assert min(right - left, bottom - top) <= tolerance
            assert about is None
        else:
            assert abs(fields["boxes"][number] - about).max() <= tolerance


EXACT = [
    "flip_lr", "random_crop(20)", "central_crop((20, 30))", "shift(21)",
    "random_crop((30, 40))|flip_lr|shift(5)",
]  # fmt: skip


@pytest.mark.parametrize("chain", EXACT)
def test_mask_and_boxes_are_cut_as_the_image(chain):
    results = list(moved(chain))
    for fields in results:
        known = np.where(fields["image"][..., 0] == 0, -1, (fields["image"][..., 0] - 55.0) // 100)
        assert fields["mask"].dtype == np.int32
        assert (fields["mask"] == known).all()
        assert_boxes(fields, 1e-3)
    assert len({fields["mask"].tobytes() for fields in results}) > 1 or chain[:2] == "ce"


@pytest.mark.parametrize(
    "chain",
    [
        "resize((30, 17))", "resize_small(20)", "bv_resize(67)", "bv_resize_small((25, 90))",
        "inception_crop((24, 40), 0.2)", "affine(25, 0.2, 9)",
        "flip_lr|inception_crop(40)|shift(3)|affine(10)",
    ],
)  # fmt: skip
def test_mask_and_boxes_are_resized_and_turned_as_the_image(chain):
    agree = []
    for fields in moved(chain):
        image = fields["image"][..., 0].astype(int)
        assert fields["mask"].shape == image.shape
        same = np.ones_like(image, bool)  # pixels in the middle of nine of one value
        for rows in (-1, 0, 1):
            for columns in (-1, 0, 1):
                same &= abs(image - np.roll(image, (rows, columns), (0, 1))) < 2
        same[[0, -1]] = same[:, [0, -1]] = False
        known = np.where(image < 2, -1, np.round((image - GROUND) / 100))  # bv_resize truncates
        agree.append(same.mean())
        assert (fields["mask"] == known)[same].all()
        if "affine" not in chain:
            assert_boxes(fields, 1.01)
        elif (fields["box_classes"] >= 0).any():  # boxes are about the turned boxes
            for number in np.flatnonzero(fields["box_classes"] >= 0):
                about = seen_box(fields["mask"], number + 1)
                if about is not None:
                    left_top, right_bottom = fields["boxes"][number].reshape(2, 2)
                    assert (left_top <= about[:2] + 1).all()
                    assert (right_bottom >= about[2:] - 1).all()
    assert np.mean(agree) > 0.4


@pytest.mark.parametrize("rows, columns", [(96, 128), (24, 32), (16, 21), (61, 90)])
def test_resized_masks_are_of_the_nearest_pixel_and_boxes_are_scaled(rows, columns):
    mask = np.random.default_rng(0).integers(0, 99, (48, 64)).astype(np.int32)
    (fields,) = moved(f"resize(({rows}, {columns}))", 1, mask=mask)
    at = [((np.arange(n) + 0.5) * side / n).astype(int) for n, side in ((rows, 48), (columns, 64))]
    assert (fields["mask"] == mask[at[0]][:, at[1]]).all()
    scale = np.tile([columns / 64, rows / 48], 2)
    assert abs(fields["boxes"] - BOXES * scale).max() < 1e-3


@pytest.mark.parametrize(
    "crop", ["inception_crop", "fast_inception_crop", "central_crop", "random_crop"]
)
def test_decoding_a_part_moves_mask_and_boxes_as_decoding_all(crop):
    image = scene()["image"].repeat(4, axis=0).repeat(4, axis=1)  # fast: decoded at half its size
    mask = scene()["mask"].repeat(4, axis=0).repeat(4, axis=1)
    parts = moved(
        f"decode|{crop}(24)", image=pictures.encode(image, "JPEG"), mask=mask, boxes=4 * BOXES
    )
    exact = crop.removeprefix("fast_")
    whole = moved(f"decode|{exact}(24)", image=image, mask=mask, boxes=4 * BOXES)
    for one, other in zip(parts, whole, strict=True):
        assert abs(one["image"].astype(int) - other["image"]).mean() < 12
        assert all(np.array_equal(one[k], other[k]) for k in ("mask", "boxes", "box_classes"))


def test_an_erased_area_has_no_class_and_a_box_inside_it_is_dropped():
    dropped = 0
    for fields in moved("random_erasing(1.0, 0.3, 0.9, fill=0)", 60):
        assert ((fields["mask"] == -1) == (fields["image"][..., 0] == 0)).all()
        for number in (0, 1):
            gone = not (fields["mask"] == number + 1).any()
            assert (fields["box_classes"][number] < 0) == gone
            assert gone or (fields["boxes"][number] == BOXES[number]).all()
            dropped += gone
    assert dropped > 3


def test_colours_leave_mask_and_boxes_alone_and_other_ops_are_refused():
    same = "color_jitter(0.4)|grayscale(1.0)|gaussian_blur(1.0)|solarize(1.0)|three_augment"
    for fields in moved(same, 2):
        assert all((fields[key] == scene()[key]).all() for key in ("mask", "boxes", "box_classes"))

    class OfAUser:
        def __call__(self, image, seed):
            return 255 - image

    process = preprocess.apply_to_fields((OfAUser(),))
    alone = {"image": tf.zeros([2, 2, 3], tf.uint8), "labels": tf.constant([3])}
    assert process(alone, (0, 0))["image"].numpy().min() == 255
    for text in ("", "randaug(2, 9)", "decode(exif=True)"):
        ops = preprocess.parse("k", text, 8) if text else (OfAUser(),)
        with pytest.raises(BadInput, match="may move pixels, but not mask with them; leave it out"):
            preprocess.apply_to_fields(ops)(alone | {"mask": tf.zeros([2, 2], tf.int32)}, (0, 0))


def test_every_op_that_moves_pixels_says_where_from():
    for name, op in preprocess.OPS.items():
        changes = getattr(op, "changes", ())
        if name not in ("decode", "randaug", "naflex"):
            assert changes[0] == "image"
            assert issubclass(op, geometry.Geometric) or hasattr(op, "follow") or len(changes) == 1


def test_street_scenes_and_their_masks_move_together(data_dir):
    """Where the mask has two classes, so has the image an edge: their shifts agree after a crop."""
    path = data_dir / "camvid.tar"
    if not path.exists():
        pytest.skip("no camvid.tar among the real images")
    with tarfile.open(path) as tar:
        names = [n for n in tar.getnames() if "/test/images/" in n][:2]
        for name in names:
            image = tar.extractfile(name).read()
            found = name.replace("/images/", "/masks/").replace(".jpg", ".png")
            mask = np.asarray(Image.open(io.BytesIO(tar.extractfile(found).read()))).astype("int32")
            ops = "decode|inception_crop((180, 240), 0.3)|flip_lr"
            for fields in moved(ops, 3, image=image, mask=mask):
                sky = fields["image"][fields["mask"] == 0]
                road = fields["image"][fields["mask"] == 3]
                if min(len(sky), len(road)) > 500:
                    assert sky.mean() > road.mean() + 40


# ---------------------------------------------------------------- fields in batches


def arrays(count=11, boxes=3):
    """Images of 4 x 4 with a mask, boxes, a text and the number as label."""
    rng = np.random.default_rng(0)
    fields = {
        "mask": rng.integers(0, 5, (count, 4, 4)).astype(np.int32),
        "boxes": np.tile(np.array([0, 1, 3, 4], np.float32), (count, boxes, 1)),
        "box_classes": np.tile(np.arange(boxes, dtype=np.int32), (count, 1)),
        "text": np.array([f"image {i}" for i in range(count)], object),
    }
    images = np.stack([pictures.noise(4, 4, seed=i) for i in range(count)])
    labels = np.arange(count, dtype=np.int32)[:, None]
    return splits.of_arrays("a", images, labels, **fields), images, fields


KINDS = {
    "image": ((4, 4, 3), "uint8"), "labels": ((1,), "int32"), "mask": ((4, 4), "int32"),
    "boxes": ((3, 4), "float32"), "box_classes": ((3,), "int32"), "text": ((), "object"),
    "id": ((), "object"), "_mask": ((), "bool"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["none", "raw", "decoded"])
def test_batches_hold_every_field_once_and_in_order(kind):
    split, images, fields = arrays()
    pipe, _ = pictures.batches(split, fields=None, batch_size=4).cached(kind)
    batches = list(pipe.evaluation())
    real = np.concatenate([b["_mask"] for b in batches])
    joined = {key: np.concatenate([b[key] for b in batches])[real] for key in batches[0]}
    assert joined["id"].tolist() == [b"a/%04d" % i for i in range(11)]
    assert joined["text"].tolist() == [b"image %d" % i for i in range(11)]
    assert all((joined[k] == fields[k]).all() for k in ("mask", "boxes", "box_classes"))
    assert (joined["image"] == images).all()
    assert batches[-1]["_mask"].tolist() == [True] * 3 + [False]
    assert (batches[-1]["mask"][3] == fields["mask"][0]).all()  # padding repeats the first
    assert batches[-1]["text"][3] == b"image 0"
    shapes = pipe.shapes()
    assert {key: (shape, dtype.name) for key, (shape, dtype) in shapes.items()} == KINDS
    assert {key: (x.shape[1:], x.dtype.name) for key, x in batches[0].items()} == KINDS


def test_a_batch_holds_what_is_asked_for_and_texts_stay_on_the_host():
    split, _, _ = arrays()
    assert pictures.batches(split).probe().keys() == {"image", "labels", "_mask"}
    assert pictures.batches(split, fields=("box_classes",)).probe().keys() == {
        "image", "boxes", "box_classes", "_mask",
    }  # fmt: skip
    pipe = pictures.batches(split, fields=None)
    placed = pipeline.to_devices(pipe.train(0, 1), one_device(), 4, 0)
    assert next(placed).keys() == KINDS.keys() - {"text", "id"}
    plain = splits.of_arrays("a", np.zeros((2, 4, 4, 3), np.uint8), np.zeros((2, 1), np.int32))
    pipe = pictures.batches(plain, fields=("mask",))
    with pytest.raises(
        BadInput, match=r"the examples have no mask, only image, labels, id; take a"
    ):
        pipe.probe()


def test_boxes_are_filled_up_to_the_number_that_is_asked_for():
    split, _, fields = arrays()
    wanted = ("boxes", "box_classes")
    batch = pictures.batches(split, fields=wanted, most_boxes=5).probe()
    assert batch["boxes"].shape == (1, 5, 4)
    assert (batch["boxes"][0, 3:] == 0).all()
    assert batch["box_classes"][0].tolist() == [*fields["box_classes"][0], -1, -1]
    with pytest.raises(BadInput, match="have up to 3 boxes, and the objective takes 2; let its"):
        pictures.batches(split, fields=wanted, most_boxes=2).probe()


def one_device():
    import jax

    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def with_fields(reader_fields, name="wrong/0"):
    """A split of one example with these fields."""
    return Split(Table(1, lambda _: name, lambda: lambda _: reader_fields), range(1))


@pytest.mark.parametrize(
    "change, part",
    [
        ({"depth": np.zeros((4, 4), np.float32)}, "field of wrong/0.*'depth'.*box_classes"),
        ({"mask": np.zeros((4, 4), np.uint8)}, r"field mask is uint8 \[4, 4\], expected int32 \[H"),
        ({"boxes": np.zeros((3, 5), np.float32)}, r"boxes is float32 \[3, 5\].*float32 \[M, 4\]"),
        ({"box_classes": np.zeros(3, np.int32)}, "has box_classes, but no boxes"),
        ({"labels": None}, "wrong/0 has no labels; give labels of -1"),
        ({"mask": np.zeros((3, 4), np.int32)}, "size of the mask, which is not that of the image"),
    ],
)
def test_wrong_fields_are_named(change, part):
    fields = {"image": np.zeros((4, 4, 3), np.uint8), "labels": np.zeros(1, np.int32)} | change
    fields = {key: x for key, x in fields.items() if x is not None}
    with pytest.raises(BadInput, match=part) as caught:
        pictures.batches(with_fields(fields), fields=None).probe()
    assert "\n" not in str(caught.value)


def test_a_mask_of_another_size_is_no_bad_image():
    fields = {"image": np.zeros((6, 6, 3), np.uint8), "labels": np.zeros(1, np.int32)}
    split = with_fields(fields | {"mask": np.zeros((5, 6), np.int32)})
    pipe = pictures.batches(split, "random_crop(4)", fields=None, bad_images="skip")
    with pytest.raises(BadInput, match=r"wrong/0 does not go through RandomCrop: the mask has an"):
        list(pipe.train(0, 2))


def numbered_masks(options, worst):
    """A source of three classes; its fourth mask has a pixel of the number `worst`."""
    mask = np.random.default_rng(0).integers(-1, 3, (5, 4, 4)).astype(np.int32)
    mask[3, 2, 1] = worst
    images = np.zeros((5, 4, 4, 3), np.uint8)
    split = splits.of_arrays("squares", images, np.full((5, 1), -1, np.int32), mask=mask)
    return ["a", "b", "c"], {"train": split}, []


def of_numbered_masks(worst, **changes):
    source = opened_sources.opened(f"python:{__name__}:numbered_masks(worst={worst})")
    return pictures.batches(
        source.splits["train"], "resize({size})", fields=None, batch_size=5, **changes
    )


def test_a_mask_of_a_class_that_the_source_lacks_is_named():
    """A run would take it for a class without a logit, and its loss would not be finite."""
    with pytest.raises(BadInput) as caught:
        list(of_numbered_masks(7).train(0, 1))
    assert str(caught.value).startswith(
        "squares/0003 cannot be decoded: its mask: pixels of 7 (1, first at row 2, column 1) are "
        "of no class, of which there are 3."
    )


def test_a_mask_of_an_unknown_class_may_be_skipped():
    pipe = of_numbered_masks(3, bad_images="skip")
    (batch,) = pipe.train(0, 1)
    assert batch["mask"].max() == 2
    assert [name for name, _ in pipe.skipped] == ["squares/0003"]


def test_masks_of_the_classes_of_the_source_are_kept_as_they_are():
    (batch,) = of_numbered_masks(2).train(0, 1)
    _, own, _ = numbered_masks(None, 2)
    read = own["train"].fields_reader()
    order = [int(name[-1:]) for name in batch["id"]]
    assert sorted(order) == list(range(5))
    expected = [read(tf.constant(row, tf.int64))["mask"] for row in order]
    np.testing.assert_array_equal(batch["mask"], expected)


def test_wrong_numbers_of_examples_are_refused():
    with pytest.raises(BadInput, match="a: mask has 1 examples, image has 2"):
        splits.of_arrays(
            "a", np.zeros((2, 4, 4, 3)), np.zeros((2, 1)), mask=np.zeros((1, 4, 4), np.int32)
        )


def test_mixtures_and_other_labels_keep_the_fields():
    (one, _, fields), (two, _, _) = arrays(), arrays(5, boxes=1)
    classes = tuple("abcdefghijk")
    parts = [Source(name, classes, {"train": s}) for name, s in (("a", one), ("b", two))]
    _, mixed, _ = mixture.mix([1, 1], parts)
    read = mixed["train"].fields_reader()
    assert (read(tf.constant(3, tf.int64))["mask"].numpy() == fields["mask"][3]).all()
    last = {key: x.numpy() for key, x in read(tf.constant(15, tf.int64)).items()}
    assert last["box_classes"].tolist() == [0, -1, -1]
    assert last["boxes"].tolist() == [[0, 1, 3, 4], [0] * 4, [0] * 4]
    relabelled = test_sets.relabel_split(one, np.arange(11, dtype=np.int32)[::-1].copy())
    example = relabelled.fields_reader()(tf.constant(2, tf.int64))
    assert example["labels"].numpy().tolist() == [8]
    assert example["id"].numpy() == b"a/0002"


def test_mixture_of_arrays_has_their_channels():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 13), np.uint8)
    part = splits.of_arrays("a", images, np.zeros((3, 1), np.int32))
    parts = [Source(name, ("x",), {"train": part}) for name in "ab"]
    read = mixture.mix([1, 1], parts)[1]["train"].fields_reader()
    np.testing.assert_array_equal(read(tf.constant(4, tf.int64))["image"].numpy(), images[1])


# ---------------------------------------------------------------- views


def views(text, size=4):
    return preprocess.parse_views("data.views", text, size)


CROPS = "decode|inception_crop({size})|flip_lr"
TWO = f"image: {CROPS} ; local*3: decode|inception_crop((6, 5))|flip_lr"


def files(root):
    pictures.folder(root, *(f"{'ab'[i % 2]}/{i:02d}.png" for i in range(12)), size=9)
    from vit_jax.data.sources import registry
    from vit_jax.data.sources.source import Options

    opened = registry.open_source(f"folder:{root}", Options(), val_percent=0, test_percent=0)
    return opened.splits["train"]


@pytest.mark.integration
def test_views_have_their_own_size_count_and_draws(tmp_path):
    split = files(tmp_path)
    plain = list(pictures.batches(split, CROPS).train(0, 4))
    pipe = pictures.batches(split, CROPS, views=views(TWO))
    batches = list(pipe.train(0, 4))
    kinds = {key: (x.shape, x.dtype.name) for key, x in batches[0].items()}
    assert kinds == {
        "image": ((4, 4, 4, 3), "uint8"), "local": ((4, 3, 6, 5, 3), "uint8"),
        "labels": ((4, 1), "int32"), "_mask": ((4,), "bool"),
    }  # fmt: skip
    assert {k: (s, d.name) for k, (s, d) in pipe.shapes().items()} == {
        key: (shape[1:], dtype) for key, (shape, dtype) in kinds.items()
    }
    rest = [{key: x for key, x in batch.items() if key != "local"} for batch in batches]
    assert pictures.same(rest, plain)
    every = np.concatenate([batch["local"] for batch in batches]).reshape(-1, 6 * 5 * 3)
    assert len(np.unique(every, axis=0)) == len(every) == 48
    assert pictures.same(pipe.train(2, 4), batches[2:])
    for kind in ("raw", "decoded"):
        held, note = pipe.cached(kind)
        assert pictures.same(held.train(0, 4), batches)
        assert (", Decode: " in note) == (kind == "decoded")


def test_views_without_image_replace_the_chain_and_leave_evaluation_alone(tmp_path):
    pipe = pictures.batches(
        files(tmp_path),
        "resize({size})",
        views=views("a: decode|resize(8) ; b*1: decode|resize({size})"),
    )
    batch = next(pipe.train(0, 1))
    assert {key: x.shape for key, x in batch.items() if key in "ab"} == {
        "a": (4, 8, 8, 3), "b": (4, 1, 4, 4, 3),
    }  # fmt: skip
    assert "image" not in batch
    held, _ = pipe.cached("decoded")  # up to the first op that differs
    assert pictures.same(held.train(0, 1), [batch])


def test_a_bad_image_is_replaced_in_all_views(tmp_path):
    split = files(tmp_path)
    name, after = split.name(3), split.name(4)
    (tmp_path / name).write_bytes(b"no image")
    pipe = pictures.batches(split, views=views(TWO), bad_images="skip")
    batches = list(pipe.train(0, 6))
    assert [file for file, _ in pipe.skipped] == [name]
    (tmp_path / name).write_bytes((tmp_path / after).read_bytes())
    good = pictures.batches(split, views=views(TWO)).train(0, 6)
    for a, b in zip(batches, good, strict=True):
        assert all((a[key] == b[key]).all() for key in ("image", "local"))


def test_mask_and_boxes_follow_the_view_image():
    split, _, fields = arrays()
    pipe = pictures.batches(split, fields=None, views=views("image*2: flip_lr ; other: flip_lr"))
    batch = next(pipe.train(0, 1))
    assert batch["mask"].shape == (4, 2, 4, 4)
    assert batch["boxes"].shape == (4, 2, 3, 4)
    for image, mask, label in zip(
        batch["image"], batch["mask"], batch["labels"][:, 0], strict=True
    ):
        before = pictures.noise(4, 4, seed=int(label))
        for one, own in zip(image, mask, strict=True):
            turn = 1 if (one == before).all() else -1
            assert (one == before[:, ::turn]).all()
            assert (own == fields["mask"][label][:, ::turn]).all()
    with pytest.raises(BadInput, match=r"belong to the view image, and data\.views has no"):
        pictures.batches(split, fields=None, views=views("other: flip_lr")).probe()


def test_an_unstated_size_is_that_of_the_configuration(tmp_path):
    split, _, _ = arrays()
    ok = pictures.batches(split, views=views("a: resize(9)|resize_small(4)"))
    assert ok.shapes()["a"][0] == (4, 4, 3)
    assert views("a: resize((9, 3))|flip_lr")[0].size((4, 4)) == (9, 3)
    static = pictures.batches(split, views=views("a: decode"), image_size=(5, 4))
    with pytest.raises(BadInput, match=r"chain of view a gives uint8 \(4, 4, 3\), expected uint8 "):
        static.probe()
    loose = pictures.batches(files(tmp_path), views=views("a: decode"))  # of 9 x 9
    with pytest.raises(BadInput, match=r"chain of view a gives uint8 \(9, 9, 3\), expected"):
        loose.probe()


@pytest.mark.parametrize(
    "text, part",
    [
        ("decode|resize(8)", "is not a view; write NAME: CHAIN"),
        ("a: decode ;", "'' is not a view"),
        ("a: ", "data.views, view a: '' is not an op"),
        ("a: decode|resise(8)", "data.views, view a.*'resise'.*Did you mean 'resize'"),
        ("a: decode ; a*2: decode", "the view a is named twice"),
        ("labels: decode", "the view labels has the name of another field"),
        ("_mask: decode", "is not a view"),
        ("a*0: decode", r"a\*0; give a count from 1 to 64"),
        ("a*65: decode", r"a\*65; give a count from 1 to 64"),
        ("a*-1: decode", "is not a view"),
        ("a: decode(exif=True) ; b: decode", "the views decode differently"),
    ],
)
def test_wrong_views_are_named(text, part):
    with pytest.raises(BadInput, match=part):
        views(text)


def test_views_of_the_page(root):
    page = (root / "docs" / "preprocessing.md").read_text()
    (text,) = re.findall(r"```yaml\ndata:\n  views: >-\n(.*?)```", page, re.DOTALL)
    two = views(" ".join(text.split()), 224)
    assert [(v.name, v.count, v.size((9, 9))) for v in two] == [
        ("global", 2, (224, 224)), ("local", 6, (96, 96)),
    ]  # fmt: skip


def test_no_views_are_no_views():
    assert views(" ") == ()
    assert views("a*2:decode;b:decode") == (
        preprocess.View("a", 2, (preprocess.Decode(),)),
        preprocess.View("b", 0, (preprocess.Decode(),)),
    )


def test_a_view_that_states_its_size_keeps_it_in_memory():
    images = np.random.default_rng(0).integers(0, 256, (4, 12, 12, 3), np.uint8)
    split = splits.of_arrays("a", images, np.zeros((4, 1), np.int32))
    views = preprocess.parse_views("data.views", "view*2: decode|resize(6)|flip_lr", 12)
    pipe = pipeline.Pipeline(split, (), 2, 0, (12, 12), 1, 1, views=views)
    cached, _ = pipe.cached("decoded")
    expected, found = (next(p.train(0, 1)) for p in (pipe, cached))
    assert found["view"].shape == (2, 2, 6, 6, 3)
    np.testing.assert_array_equal(found["view"], expected["view"])
