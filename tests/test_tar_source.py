# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sources of tar files: splits, classes and images of several of them."""

import tarfile

import pictures
import pytest
from opening import examples, labels, message, names, opened


def image(i):
    return pictures.encode(pictures.noise(4, 5, seed=i))


def shard(path, numbers, label=str):
    """A WebDataset of images, with the label that `label` gives."""
    members = {}
    for i in numbers:
        members |= {f"{i:04d}.png": image(i), f"{i:04d}.cls": label(i % 3).encode()}
    return pictures.tar(path, members)


def test_webdataset_shards_of_two_splits(tmp_path):
    shard(tmp_path / "x-train-0.tar", range(3))
    shard(tmp_path / "x-train-1.tar", range(3, 7))
    shard(tmp_path / "x-val-0.tar", range(7, 9))
    source = opened(f"tar:{tmp_path}/x-*.tar")
    assert source.classes == ("0", "1", "2")
    assert examples(source.splits["train"]) == [(image(i), [i % 3]) for i in range(7)]
    assert examples(source.splits["test"]) == [(image(i), [i % 3]) for i in (7, 8)]
    assert names(source)["train"][2:4] == ["x-train-0.tar/0002.png", "x-train-1.tar/0003.png"]
    table = source.splits["train"].table
    assert table.shards.tolist() == [0, 3, 7, 9]
    assert table.labels()[:, 0].tolist() == [i % 3 for i in range(9)]
    assert source.splits["train"].rows == range(7)


def test_plain_tar_of_class_folders(tmp_path):
    members = {f"train/{c}/{i}.png": image(i) for i in range(3) for c in ("dog", "cat")}
    members |= {"val/cat/9.png": image(9), "val/dog/8.png": image(8)}
    pictures.tar(tmp_path / "pets.tar", members)
    source = opened(f"tar:{tmp_path}")
    assert source.classes == ("cat", "dog")
    assert examples(source.splits["train"]) == [(image(i), [c]) for i in range(3) for c in (1, 0)]
    assert examples(source.splits["test"]) == [(image(9), [0]), (image(8), [1])]
    (tmp_path / "\udcff").mkdir()  # a path may be any bytes
    (tmp_path / "pets.tar").rename(tmp_path / "\udcff" / "pets.tar")
    assert opened(f"tar:{tmp_path}/\udcff").fingerprint() == source.fingerprint()


def test_tars_named_by_class(tmp_path):
    """As the tars inside ILSVRC2012_img_train.tar."""
    for wnid in ("n02", "n01", "n10"):
        pictures.tar(tmp_path / f"{wnid}.tar", {f"{wnid}_{i}.JPEG": image(i) for i in range(4)})
    source = opened(f"tar:{tmp_path}", test=30)
    assert source.classes == ("n01", "n02", "n10")
    every = [name for part in names(source).values() for name in part]
    wnids = ("01", "02", "10")
    assert sorted(every) == [f"n{n}.tar/n{n}_{i}.JPEG" for n in wnids for i in range(4)]
    assert len(source.splits["test"]) > 0


def test_classes_of_a_list(tmp_path):
    """They may be more than there are images of, and in another order."""
    shard(tmp_path / "a" / "0.tar", range(3))
    (tmp_path / "a" / "labels.txt").write_text("zero\none\ntwo\nthree\n")
    assert opened(f"tar:{tmp_path}/a").classes == ("zero", "one", "two", "three")
    shard(tmp_path / "b" / "0.tar", range(3), "zyx".__getitem__)
    (tmp_path / "list").write_text("y\nx\nz\nw\n")
    source = opened(f"tar:{tmp_path}/b", label_names=str(tmp_path / "list"))
    assert source.classes == ("y", "x", "z", "w")
    assert labels(source.splits["train"]) == [[2], [0], [1]]


def test_largest_number_says_how_many_classes(tmp_path):
    shard(tmp_path / "0.tar", range(3), lambda k: str(10 * k))
    assert len(opened(f"tar:{tmp_path}").classes) == 21


def test_numbers_as_folders_are_in_their_order(tmp_path):
    pictures.tar(tmp_path / "x.tar", {f"{k}/1.png": image(k) for k in (10, 9, 100)})
    source = opened(f"tar:{tmp_path}")
    assert source.classes == ("9", "10", "100")
    assert labels(source.splits["train"]) == [[1], [0], [2]]


def test_real_photographs_are_the_members(data_dir, tmp_path):
    with tarfile.open(data_dir / "imagenet_sample200.tar") as tar:
        found = [m for m in tar if "/train_sample/n" in m.name and m.isfile()]
        photos = {"/".join(m.name.split("/")[-2:]): tar.extractfile(m).read() for m in found}
    source = opened(f"tar:{pictures.tar(tmp_path / 'some.tar', photos)}")
    split = source.splits["train"]
    assert len(split) == 150
    for (name, data), (image, (label,)) in zip(photos.items(), examples(split), strict=True):
        assert image == data
        assert source.classes[label] == name.split("/")[0]
    pipe = pictures.batches(split, "decode|resize(4)", batch_size=50)
    assert sum(batch["mask"].sum() for batch in pipe.evaluation()) == 150


def test_only_some_images_with_a_class_are_refused(data_dir):
    """Its validation images lie in no folder of a class."""
    assert "val/ILSVRC2012_val" in message(f"tar:{data_dir / 'imagenet_sample200.tar'}")


def test_damaged_photograph_is_named(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"a/1.png": image(1), "b/2.png": b"no image"})
    pipe = pictures.batches(opened(f"tar:{tmp_path}").splits["train"], "decode|resize(4)")
    with pytest.raises(ValueError, match=r"x.tar/b/2.png cannot be decoded"):
        list(pipe.evaluation())


# ---------------------------------------------------------------- what is wrong


def test_labels_of_two_kinds(tmp_path):
    shard(tmp_path / "0.tar", range(3))
    shard(tmp_path / "1.tar", range(3), "abc".__getitem__)
    said = message(f"tar:{tmp_path}")
    assert "numbers in 0.tar and names in 1.tar" in said


@pytest.mark.parametrize("label, shown", [(str, "'2'"), ("abc".__getitem__, "'a'")])
def test_label_that_is_not_in_the_list(tmp_path, label, shown):
    shard(tmp_path / "0.tar", range(3), label)
    (tmp_path / "labels.txt").write_text("b\nc\n")
    assert f"label {shown} is not one of 2 classes" in message(f"tar:{tmp_path}")


def test_a_number_is_not_taken_for_billions_of_classes(tmp_path):
    shard(tmp_path / "0.tar", range(3), lambda k: str(10**k * 99999))
    assert "label 9999900 makes more than 1,000,000 classes" in message(f"tar:{tmp_path}")


def test_one_class_is_none(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"a/1.png": image(1)})
    assert "found only 1 classes" in message(f"tar:{tmp_path}")


def test_some_images_in_folders_of_splits(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"train/a/1.png": image(1), "b/2.png": image(2)})
    said = message(f"tar:{tmp_path}")
    assert "x.tar/b/2.png is not in a folder of a split" in said


def test_tar_without_images(tmp_path):
    """Such as a tar of tars."""
    pictures.tar(tmp_path / "x.tar", {"n01.tar": b"x"})
    assert "vit_jax data prepare" in message(f"tar:{tmp_path}")


@pytest.mark.parametrize("name, mode", [("x.tar.gz", "w:gz"), ("x.tgz", "w:gz")])
def test_compressed_tar(tmp_path, name, mode):
    pictures.tar(tmp_path / name, {"a/1.png": b"1"}, mode=mode)
    assert f"{name} is compressed" in message(f"tar:{tmp_path}")
