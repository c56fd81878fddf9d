# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Folders of images and masks: their layouts, which files are pairs, and what is wrong."""

import json

import numpy as np
import pytest
from PIL import Image

from vit_jax.cli.main import main
from vit_jax.data.sources import registry
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput


def folder_of(root, files, classes="a\nb\nc\n", sides=(4, 6)):
    """Writes gray images, and masks where the path says so."""
    for number, path in enumerate(files):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full(sides, number % 3, np.uint8)
        Image.fromarray(pixels).save(root / path)
    if classes:
        (root / "classes.txt").write_text(classes)
    return root


def opened(root, **options):
    return registry.open_source(f"masks:{root}", Options(**options), val_percent=0, test_percent=0)


def pairs(source, split):
    read = source.splits[split].numpy_reader()
    fields = [read(i) for i in range(len(source.splits[split]))]
    return [(str(f["image"].path), str(f["mask"].path)) for f in fields]


@pytest.mark.parametrize(
    "images, masks, splits",
    [
        (["train/images/a.jpg", "val/images/b.jpg"], ["train/masks/a.png", "val/masks/b.png"], 2),
        (["images/training/a.jpg", "images/validation/b.jpg"],
         ["annotations/training/a.png", "annotations/validation/b.png"], 2),
        (["train/a.png", "test/b.png"], ["trainannot/a.png", "testannot/b.png"], 2),
        (["leftImg8bit/train/x/x_01_leftImg8bit.png", "leftImg8bit/val/y/y_02_leftImg8bit.png"],
         ["gtFine/train/x/x_01_gtFine_labelTrainIds.png",
          "gtFine/val/y/y_02_gtFine_labelTrainIds.png"], 2),
        (["img/a.jpg", "img/b.jpg"], ["labels/a_L.png", "labels/b_L.png"], 1),
        (["images/img_1.jpg", "images/img_2.jpg"], ["masks/mask_1.png", "masks/mask_2.png"], 1),
        (["images/a.jpg", "images/b.jpg"], ["annotations/trimaps/a.png",
                                           "annotations/trimaps/b.png"], 1),
        (["a.jpg", "b.jpg"], ["a.png", "b.png"], 1),
        (["a.png", "b.png"], ["a_mask.png", "b_mask.png"], 1),
        (["x/Images/10.jpg", "x/Images/2.jpg"], ["x/Masks/m010.png", "x/Masks/m002.png"], 1),
    ],
)  # fmt: skip
def test_layouts_of_folders(tmp_path, images, masks, splits):
    root = folder_of(tmp_path, [*images, *masks])
    source = opened(root)
    found = {pair for split in source.splits for pair in pairs(source, split)}
    expected = {(f"{root}/{a}", f"{root}/{b}") for a, b in zip(images, masks, strict=True)}
    assert found == expected
    assert len({frozenset(pairs(source, split)) for split in source.splits} - {frozenset()}) == (
        splits
    )


def test_other_masks_of_cityscapes_are_not_read(tmp_path):
    names = [f"leftImg8bit/train/x/x_{n}_leftImg8bit.png" for n in "12"]
    names += [f"gtFine/train/x/x_{n}_gtFine_{kind}.png" for n in "12"
              for kind in ("color", "instanceIds", "labelIds")]  # fmt: skip
    source = opened(folder_of(tmp_path, names))
    assert pairs(source, "train")[0][1].endswith("labelIds.png")


@pytest.mark.parametrize("target", ["data", "data/train", "elsewhere"])
def test_links_to_folders_are_followed_and_none_counts_twice(tmp_path, target):
    root = folder_of(tmp_path / "data", ["train/images/a.jpg", "train/masks/a.png"])
    folder_of(tmp_path / "elsewhere", ["images/b.jpg", "masks/b.png"], "")
    (root / "test").symlink_to(tmp_path / target)
    if target == "elsewhere":
        assert len(opened(root).splits["test"]) == 1
        return
    with pytest.raises(BadInput, match=r"are one folder.*remove the link"):
        opened(root)


@pytest.mark.parametrize(
    "files",
    [
        ["images/cam1_10.jpg", "images/cam2_11.jpg", "masks/cam2_10.png", "masks/cam1_11.png"],
        ["images/a_10.jpg", "images/b_11.jpg", "masks/b_10.png", "masks/a_11.png"],
        ["images/foo_bar.jpg", "masks/baz_qux.png"],
        ["train/images/a.jpg", "train/images/b.jpg", "train/masks/a.png", "train/masks/b.png",
         "val/images/x_1_a.jpg", "val/masks/x_2_b.png"],
        ["images/12_5.jpg", "images/12_6.jpg", "masks/5.png", "masks/6_1.png"],
    ],
)  # fmt: skip
def test_names_that_only_resemble_each_other_make_no_pairs(tmp_path, files):
    with pytest.raises(BadInput, match="images have no mask"):
        opened(folder_of(tmp_path, files))


@pytest.mark.parametrize("of_test", ["", "labelIds", "labelTrainIds"])
def test_validation_split_of_cityscapes_is_test(tmp_path, of_test):
    """Whether test images have no masks, masks of another kind, or masks without a class."""
    kinds = {"train": "labelTrainIds", "val": "labelTrainIds", "test": of_test}
    names = [f"leftImg8bit/{split}/x/x_{n}_leftImg8bit.png" for split in kinds for n in "12"]
    masks = [f"gtFine/{s}/x/x_{n}_gtFine_{kind}.png" for s, kind in kinds.items() if kind
             for n in "12"]  # fmt: skip
    root = folder_of(tmp_path, [*names, *masks])
    for name in masks[4:]:
        Image.fromarray(np.full((4, 6), 255, np.uint8)).save(root / name)
    source = opened(root)
    assert {name: len(split) for name, split in source.splits.items()} == {"train": 2, "test": 2}
    assert all("/val/" in path for pair in pairs(source, "test") for path in pair)
    if of_test == "labelTrainIds":
        assert "test: 2 images left out, whose masks hold no class" in source.notes
        Image.fromarray(np.zeros((4, 6), np.uint8)).save(root / masks[-1])
        assert {*opened(root).splits} == {"train", "val", "test"}


@pytest.mark.parametrize(
    "files, classes, parts",
    [
        (
            ["images/a.jpg", "images/b.jpg", "masks/a.png"],
            "a\nb",
            ["1 of 2 images", "images/b.jpg"],
        ),
        (["images/a.jpg"], "a\nb", ["no masks", "expected PATH/images"]),
        (["masks/a.png"], "a\nb", ["no images"]),
        (["images/a.jpg", "masks/a.png"], "", ["classes.txt", "label_names"]),
        (["images/a.jpg", "masks/a.png"], "a", ["two classes or more"]),
    ],
)
def test_folders_that_lack_something(tmp_path, files, classes, parts):
    with pytest.raises(BadInput) as caught:
        opened(folder_of(tmp_path, files, classes))
    assert [part for part in [str(tmp_path), *parts] if part not in str(caught.value)] == []


@pytest.mark.parametrize("name", ["objectInfo150.txt", "sceneCategories.txt", "readme.txt"])
def test_message_names_the_files_that_are_not_read(tmp_path, name):
    root = folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], "")
    (root / name).write_text("1\tsky, heaven")
    with pytest.raises(BadInput, match=rf"no file of classes, such as classes\.txt, but {name}"):
        opened(root)


@pytest.mark.parametrize(
    "classes, said",
    [("0 a\n1 b\n2 c", []), ("0 a\n1 b\n2 a", ["'a'"]), ("0 a\n1 void\n2 b\n3 void", [])],
)
def test_classes_of_one_name_are_noted(tmp_path, classes, said):
    source = opened(folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], classes))
    assert len(source.classes) == 3 - len(said) - ("void" in classes)
    expected = [f"several lines of classes have the name {n}; they are one class" for n in said]
    assert [note for note in source.notes if "lines" in note] == expected


def test_scenes_of_ade20k_are_no_classes(tmp_path):
    root = folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], "")
    (root / "sceneCategories.txt").write_text("a airport\nb bakery")
    with pytest.raises(BadInput, match="no file of classes"):
        opened(root)


def test_file_of_classes_may_have_any_name(tmp_path):
    root = folder_of(tmp_path, ["images/a.jpg", "masks/a.png"], "")
    (root / "my labels.txt").write_text("a\nb")
    (root / "my colours.txt").write_text("a\nb\nc")
    with pytest.raises(BadInput, match=r"my colours\.txt, my labels\.txt"):
        opened(root)
    assert opened(root, label_names=f"{root}/my colours.txt").classes == ("a", "b", "c")


def voc_of(root, names, kind="jpg"):
    """Writes images and masks in the layout of VOC; returns the folder of their lists."""
    files = [f"JPEGImages/{n}.{kind}" for n in names] + [
        f"SegmentationClass/{n}.png" for n in names
    ]
    folder_of(root, [*files, f"SegmentationObject/{names[0]}.png"], "")
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    return lists


def opened_voc(root):
    return registry.open_source(f"voc:{root}", Options(), val_percent=0, test_percent=0)


def test_files_of_classes_of_roboflow_lie_in_its_splits(tmp_path):
    root = folder_of(tmp_path, [f"{split}/{name}" for split in ("train", "valid")
                                for name in ("a.jpg", "b.jpg", "a_mask.png", "b_mask.png")],
                     "")  # fmt: skip
    for split in ("train", "valid"):
        (root / split / "_classes.csv").write_text("Pixel Value, Class\n0, a\n1, b\n2, c\n")
    assert opened(root).classes == ("a", "b", "c")
    (root / "valid/_classes.csv").write_text("Pixel Value, Class\n0, b\n1, a\n2, c\n")
    with pytest.raises(BadInput, match=r"several files .* train/_classes\.csv, valid/_classes"):
        opened(root)


def test_pascal_voc(tmp_path):
    lists = voc_of(tmp_path, "ab")
    with pytest.raises(BadInput, match=r"there is no .*/train.txt or trainval.txt that lists"):
        opened_voc(tmp_path)
    (lists / "train.txt").write_text("a\n")
    (lists / "val.txt").write_text("b\n")
    source = opened_voc(tmp_path)
    assert len(source.classes) == 21
    assert source.classes[20] == "tvmonitor"
    assert pairs(source, "train") == [
        (f"{tmp_path}/JPEGImages/a.jpg", f"{tmp_path}/SegmentationClass/a.png")
    ]
    (lists / "val.txt").write_text("b\nc\n")
    with pytest.raises(BadInput, match=r"JPEGImages/c.jpg"):
        opened_voc(tmp_path)


@pytest.mark.parametrize("name", ["train", "trainval"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("kind", ["jpg", "PNG"])
def test_lists_and_images_of_voc_masks(tmp_path, name, coding, kind):
    lists = voc_of(tmp_path, ("é 0", "é 1"), kind)
    (lists / f"{name}.txt").write_bytes("é 0\r\né 1\r\n".encode(coding))
    found = pairs(opened_voc(tmp_path), "train")
    assert found == [(f"{tmp_path}/JPEGImages/{n}.{kind}", f"{tmp_path}/SegmentationClass/{n}.png")
                     for n in ("é 0", "é 1")]  # fmt: skip


def test_data_of_which_nothing_is_left_are_told_to_evaluate(tmp_path):
    """Cityscapes publishes no classes of its test images; with these alone no split is left."""
    from vit_jax.inference.model import choose_split

    kinds = (("leftImg8bit", "leftImg8bit"), ("gtFine", "gtFine_labelIds"))
    files = [f"{kind}/test/x/x_{n}_{ending}.png" for n in "01" for kind, ending in kinds]
    root = folder_of(tmp_path, files)
    for n in "01":
        Image.new("L", (6, 4), 255).save(root / f"gtFine/test/x/x_{n}_gtFine_labelIds.png")
    with pytest.raises(BadInput, match="no image to evaluate on; test: 2 images left out, whose"):
        choose_split(opened(root), "")


# --- data check ---


def test_check_finds_masks_of_a_source_with_other_classes():
    """A source of one's own may give any number."""
    from vit_jax.data.inspect import check
    from vit_jax.data.sources.source import Source
    from vit_jax.data.splits.split import Split, Table

    def fields(row):
        mask = np.array([[0, 1], [-1, row]], np.int32)
        return {"image": np.zeros((2, 2, 3), np.uint8), "labels": np.array([-1]), "mask": mask}

    table = Table(4, str, None, numbered=True, numpy_reader=lambda: fields)
    report = check.check_images(Source("own", ("a", "b"), {"all": Split(table, range(4))}), 1)
    assert [name for name, _ in report.bad] == ["2", "3"]
    assert (
        "pixels of 3 (1, first at row 1, column 1) are of no class, of which there are 2"
        in (report.bad[1][1])
    )
    assert [pixels for _, _, pixels in report.masks] == [5, 5, 6]


def test_check_names_each_fault_of_a_mask(tmp_path, capsys):
    root = folder_of(tmp_path, [f"{kind}/{n}.png" for kind in ("images", "masks") for n in "abcde"])
    Image.fromarray(np.zeros((6, 4), np.uint8)).save(root / "masks/a.png")
    Image.fromarray(np.full((4, 6), 9, np.uint8)).save(root / "masks/b.png")
    Image.fromarray(np.full((4, 6), 255, np.uint8)).save(root / "masks/c.png")
    (root / "masks/d.png").write_bytes(b"")
    Image.fromarray(np.array([[0, 1, 1, 255]] * 4 + [[1] * 4] * 2, np.uint8).T).save(
        root / "masks/e.png"
    )
    assert main(["data", "check", f"masks:{root}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    bad = {entry["file"]: entry["reason"] for entry in report["bad"]}
    assert sorted(bad) == [f"images/{n}.png" for n in "abcd"]
    turned = "4 x 6 pixels, its image 6 x 4; if an EXIF tag turns the image, turn its pixels"
    for name, part in {"a": turned, "b": "of 9", "c": "no pixel has", "d": "empty"}.items():
        assert part in bad[f"images/{name}.png"]
        assert f"masks/{name}.png" in bad[f"images/{name}.png"]
    pixels = {entry["name"]: entry["pixels"] for entry in report["masks"]}
    assert pixels["b"] == 16
    assert pixels["c"] == 0


def test_check_goes_on_after_an_image_without_mask(tmp_path, capsys):
    """Training stops at once; the check lists it with the other faults, whatever they are."""
    root = folder_of(tmp_path, [f"{kind}/{n}.png" for kind in ("images", "masks") for n in "abcd"])
    (root / "masks/b.png").unlink()
    (root / "masks/c.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"1 of 4 images have no mask: images/b\.png; add a mask of"):
        opened(root)
    assert main(["data", "check", f"masks:{root}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    bad = {entry["file"]: entry["reason"] for entry in report["bad"]}
    assert bad.keys() == {"images/b.png", "images/c.png"}
    assert bad["images/b.png"].startswith("it has no mask; add a mask of the same name")
    assert report["images"] == 3
    assert sum(entry["pixels"] for entry in report["masks"]) == 2 * 4 * 6
    assert main(["data", "check", f"masks:{root}"]) == 2
    assert "images/b.png: it has no mask" in capsys.readouterr().out


def test_check_of_voc_goes_on_after_missing_files(tmp_path, capsys):
    (voc_of(tmp_path, "abc") / "train.txt").write_text("a\nb\nc\n")
    (tmp_path / "SegmentationClass/b.png").unlink()
    (tmp_path / "JPEGImages/c.jpg").unlink()
    with pytest.raises(BadInput, match=r"2 files are not in .*: SegmentationClass/b\.png, JPEG"):
        opened_voc(tmp_path)
    assert main(["data", "check", f"voc:{tmp_path}", "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert [(entry["file"], entry["reason"]) for entry in report["bad"][:2]] == [
        ("SegmentationClass/b.png", "there is no such file; add it"),
        ("JPEGImages/c.jpg", "there is no such file; add it"),
    ]


@pytest.mark.parametrize("turn, kind", [(3, "jpg"), (3, "png"), (1, "jpg"), (None, "jpg")])
def test_check_notes_images_that_exif_turns(tmp_path, capsys, turn, kind):
    root = folder_of(tmp_path, [f"{of}.{kind}" for of in ("images/a", "images/b")]
                     + ["masks/a.png", "masks/b.png"])  # fmt: skip
    tags = Image.Exif()
    if turn:
        tags[0x0112] = turn
    Image.new("RGB", (6, 4)).save(root / f"images/b.{kind}", exif=tags)
    assert main(["data", "check", f"masks:{root}", "--json"]) == 0
    expected = [f"images/b.{kind}"] if turn == 3 else []
    assert json.loads(capsys.readouterr().out).get("turned", []) == expected
    assert main(["data", "check", f"masks:{root}"]) == 0
    said = "1 images with masks that an EXIF tag turns, first: images/b"
    assert (said in capsys.readouterr().out) == bool(expected)


@pytest.mark.parametrize(
    "files",
    [["images/a.jpg", "images/a.png", "images/b.jpg", "masks/a.png", "masks/b.png"],
     ["images/a.jpg", "masks/a.png", "masks/a.tif"]],
)  # fmt: skip
def test_files_of_one_name_are_told(tmp_path, files):
    root = folder_of(tmp_path, files)
    with pytest.raises(BadInput, match=r"/a\.\w+ and \w+/a\.\w+ have one name; move one away"):
        opened(root)
