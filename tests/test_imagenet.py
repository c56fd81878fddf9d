# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""ImageNet in the forms that people have it in; incomplete copies are refused with numbers."""

import collections

import archive_files
import pytest

from vit_jax.data.catalog import prepared
from vit_jax.data.prepare import imagenet
from vit_jax.errors import BadInput

WNIDS = ["n01440764", "n02105855", "n15075141"]
TRAIN = {f"{w}_{i}.JPEG": f"{w}{i}".encode() for w in WNIDS for i in (3, 17)}
VAL = {f"ILSVRC2012_val_0000000{i}.JPEG": f"val{i}".encode() for i in (1, 2, 3, 4)}
VAL_LABELS = [2, 0, 0, 1]


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """Three classes; the lists of TFDS as it has them, but short."""
    lists = tmp_path / "tfds" / "datasets" / "imagenet2012"
    lists.mkdir(parents=True)
    (lists / "labels.txt").write_text("\n".join(WNIDS) + "\n")
    (lists / "validation_labels.txt").write_text("".join(f"{WNIDS[k]}\n" for k in VAL_LABELS))
    monkeypatch.setattr(prepared, "tfds_package", lambda: tmp_path / "tfds")
    monkeypatch.setattr(imagenet, "SIZES_2012", {"train": 6, "validation": 4})
    monkeypatch.setattr(imagenet, "RELEASES_21K", {"fall11": (3, 600), "winter21": (2, 400)})


def class_tars(files):
    grouped = collections.defaultdict(dict)
    for name, content in files.items():
        grouped[name[:9]][name] = content
    return {f"{wnid}.tar": archive_files.tar_bytes(inside) for wnid, inside in grouped.items()}


def tars(root):
    root.mkdir()
    archive_files.tar(root / "ILSVRC2012_img_train.tar", class_tars(TRAIN))
    archive_files.tar(root / "ILSVRC2012_img_val.tar", VAL)
    return root


def class_folders(root):
    labelled = zip(VAL.items(), VAL_LABELS, strict=True)
    val = {f"val/{WNIDS[k]}/{name}": content for (name, content), k in labelled}
    return archive_files.unpacked(root, {f"train/{n[:9]}/{n}": c for n, c in TRAIN.items()} | val)


def flat_validation(root):
    archive_files.unpacked(
        root, {f"ILSVRC/Data/CLS-LOC/train/{n[:9]}/{n}": c for n, c in TRAIN.items()}
    )
    return archive_files.unpacked(root, {f"ILSVRC/Data/CLS-LOC/val/{n}": c for n, c in VAL.items()})


def class_tars_unpacked(root):
    archive_files.unpacked(root, {f"train/{n}": c for n, c in class_tars(TRAIN).items()})
    return archive_files.unpacked(root, {f"val/{n}": c for n, c in VAL.items()})


def one_zip(root):
    files = {f"train/{n[:9]}/{n}": c for n, c in TRAIN.items()}
    return archive_files.zipped(
        root.with_suffix(".zip"), files | {f"val/{n}": c for n, c in VAL.items()}
    )


@pytest.mark.parametrize(
    "form", [tars, class_folders, flat_validation, class_tars_unpacked, one_zip]
)
def test_every_form_gives_the_same_images_and_labels(tmp_path, form):
    index = imagenet.imagenet2012(form(tmp_path / "x"), tmp_path / "scratch")
    assert list(index.classes) == WNIDS
    train = {(e.name, WNIDS[e.label], e.member.read()) for e in index.splits["train"]}
    assert train == {(n, n[:9], c) for n, c in TRAIN.items()}
    val = {(e.name, e.label, e.member.read()) for e in index.splits["validation"]}
    assert val == {(n, k, c) for (n, c), k in zip(VAL.items(), VAL_LABELS, strict=True)}
    assert index.notes == ()


def test_other_files_of_the_challenge_are_left_out(tmp_path):
    root = tars(tmp_path / "x")
    archive_files.tar(root / "ILSVRC2012_img_train_t3.tar", {"n01440764.tar": b""})
    archive_files.unpacked(root, {"ILSVRC2012_test_00000001.JPEG": b"", "n99999999_1.JPEG": b""})
    index = imagenet.imagenet2012(root, tmp_path / "scratch")
    assert index.notes[0].startswith("3 files left out")


def message(root):
    with pytest.raises(BadInput) as caught:
        imagenet.imagenet2012(root, root / "scratch")
    return str(caught.value)


def test_what_is_missing_is_said_in_numbers_and_names(tmp_path):
    root = tars(tmp_path / "x")
    archive_files.tar(
        root / "ILSVRC2012_img_train.tar",
        class_tars({n: TRAIN[n] for n in TRAIN if "n021" not in n}),
    )
    said = message(root)
    assert "train: 4 of 6 images, none of n02105855" in said
    assert "validation" not in said.split(". Expected")[0]
    (root / "ILSVRC2012_img_val.tar").unlink()
    assert "validation: 0 of 4 images" in message(root)
    assert "ILSVRC2012_img_val.tar" in message(root)


def test_an_image_in_the_folder_of_another_class_is_refused(tmp_path):
    root = class_folders(tmp_path / "x")
    name = "ILSVRC2012_val_00000001.JPEG"
    (root / "val" / WNIDS[1]).mkdir(exist_ok=True)
    (root / "val" / WNIDS[2] / name).rename(root / "val" / WNIDS[1] / name)
    said = message(root)
    assert name in said
    assert f"is of class {WNIDS[2]}, but in the folder {WNIDS[1]}" in said


def test_the_lists_of_tfds_are_those_of_the_challenge(monkeypatch, data_dir, tmp_path):
    """Against an independent copy of the labels."""
    monkeypatch.undo()
    import tarfile

    with tarfile.open(data_dir / "imagenet_labels.tar.gz") as archive:
        read = lambda n: archive.extractfile(f"imagenet_labels/{n}").read().decode()  # noqa: E731
        synsets = [line.split(",")[1] for line in read("synsets.csv").splitlines()[1:]]
        labels = [int(line) for line in read("val_labels.txt").split()]
    wnids = imagenet._lines("labels.txt")
    assert wnids == synsets
    assert [wnids.index(w) for w in imagenet._lines("validation_labels.txt")] == labels


# ---------------------------------------------------------------- ImageNet-21k

FALL = {f"{w}_{i}.JPEG": f"{w}{i}".encode() for w in WNIDS for i in range(200)}


def tar_of_tars(root, release="fall11"):
    root.mkdir()
    return archive_files.tar(root / f"{release}_whole.tar", class_tars(FALL))


def tar_gz(root):
    root.mkdir()
    tars = {f"winter21_whole/{n}": c for n, c in class_tars(FALL).items()}
    return archive_files.tar(root / "x.tar.gz", tars, "w:gz")


def folder_with_the_tar(root):
    return tar_of_tars(root).parent


def folder_of_tars(root):
    return archive_files.unpacked(root, class_tars(FALL))


def folder_of_folders(root):
    return archive_files.unpacked(root, {f"{n[:9]}/{n}": c for n, c in FALL.items()})


@pytest.mark.parametrize(
    "form", [tar_of_tars, tar_gz, folder_with_the_tar, folder_of_tars, folder_of_folders]
)
def test_every_form_of_imagenet21k_is_divided_alike(tmp_path, form):
    index = imagenet.imagenet21k(form(tmp_path / "x"), tmp_path / "scratch", "fall11")
    assert list(index.classes) == WNIDS
    assert {s: len(e) for s, e in index.splits.items()} == {
        "train": 588,
        "validation": 6,
        "test": 6,
    }
    everything = [e for examples in index.splits.values() for e in examples]
    found = {(e.name, WNIDS[e.label], e.member.read()) for e in everything}
    assert found == {(f"{n[:9]}/{n}", n[:9], c) for n, c in FALL.items()}
    # Which images are held out is a promise: it follows from their names alone.
    assert sorted(e.name for e in index.splits["test"])[:2] == HELD_FOR_TEST


HELD_FOR_TEST = ["n01440764/n01440764_136.JPEG", "n01440764/n01440764_41.JPEG"]


@pytest.mark.parametrize("release", ["", "winter"])
def test_the_release_must_be_said(release):
    with pytest.raises(BadInput) as caught:
        imagenet.check_release(release)
    assert "fall11" in str(caught.value)
    assert "winter21" in str(caught.value)
    imagenet.check_release("fall11")


@pytest.mark.parametrize("expected", [(2, 600), (3, 400), (3, 700)])
def test_another_release_is_refused_with_numbers(tmp_path, monkeypatch, expected):
    monkeypatch.setitem(imagenet.RELEASES_21K, "winter21", expected)
    said = "3 classes and 600 images; winter21 has {} and {}".format(*expected)
    with pytest.raises(BadInput, match=said):
        imagenet.imagenet21k(folder_of_tars(tmp_path / "x"), tmp_path / "scratch", "winter21")


def test_a_few_missing_images_are_noted_and_many_refused(tmp_path, monkeypatch):
    root = folder_of_folders(tmp_path / "x")
    (root / WNIDS[0] / f"{WNIDS[0]}_5.JPEG").unlink()
    with pytest.raises(BadInput, match="599 images"):
        imagenet.imagenet21k(root, tmp_path / "scratch", "fall11")
    monkeypatch.setattr(imagenet, "_MISSING_21K", 0.01)
    index = imagenet.imagenet21k(root, tmp_path / "scratch", "fall11")
    assert index.notes == ("599 of fall11's 600 images",)


def test_unreadable_images_must_leave_every_class_and_nearly_all_images(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "_MISSING_21K", 0.01)
    index = imagenet.imagenet21k(folder_of_folders(tmp_path / "x"), tmp_path, "fall11")
    index.accepts(index.splits)
    index.accepts(index.splits | {"train": index.splits["train"][6:]})
    with pytest.raises(BadInput, match=r"593 images of fall11's 600 can be read\. "):
        index.accepts(index.splits | {"train": index.splits["train"][7:]})
    monkeypatch.setattr(imagenet, "_MISSING_21K", 1)
    some = [e for e in index.splits["train"] if WNIDS[e.label] != WNIDS[1]]
    with pytest.raises(BadInput, match=f"can be read, none of {WNIDS[1]} in train"):
        index.accepts(index.splits | {"train": some})


def test_tars_beside_what_was_unpacked_from_them_are_said_to_be_there_twice(tmp_path):
    root = tars(tmp_path / "x")
    archive_files.unpacked(root, {f"train/{n[:9]}/{n}": c for n, c in TRAIN.items()})
    said = message(root)
    assert "of train is there twice, in " in said
    assert "ILSVRC2012_img_train.tar" in said
    assert "an archive and what was unpacked from it" in said


def test_class_tars_beside_their_folders_are_said_to_be_there_twice(tmp_path):
    root = folder_of_folders(tmp_path / "x")
    folder_of_tars(root)
    with pytest.raises(BadInput, match=r"of fall11 is there twice, in .*\.tar") as caught:
        imagenet.imagenet21k(root, tmp_path / "scratch", "fall11")
    assert "give a folder with one" in str(caught.value)
