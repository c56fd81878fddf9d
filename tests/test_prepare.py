# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Preparing datasets: jobs and what upstream publishes."""

import hashlib
import logging
import os
import shutil
import socket

import archive_files
import pictures
import pytest
import test_imagenet
import test_prepared

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.catalog.sizes import SIZES
from vit_jax.data.prepare import imagenet, job, upstream, writer
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput

# --- jobs ---


FILES = {f"{c}/{i}.jpg": archive_files.picture(i + 10 * (c == "b")) for c in "ab" for i in range(4)}


@pytest.fixture(autouse=True, scope="module")
def _tf():
    tfds_source._tfds()


@pytest.fixture
def images(tmp_path):
    return archive_files.unpacked(tmp_path / "images", FILES)


def prepare(name, origin, tmp_path, **options):
    return job.prepare(name, origin, str(tmp_path / "data"), 2, **options)


def message(name, origin, tmp_path, **options):
    with pytest.raises(BadInput) as caught:
        prepare(name, origin, tmp_path, **options)
    return str(caught.value)


def test_own_images_are_prepared_and_read(images, tmp_path):
    seen = []
    [report] = prepare("mine", images, tmp_path, progress=lambda *p: seen.append(p))
    assert seen[-1] == (8, 8)
    assert (report.source, report.data_dir) == ("tfds:mine:1.0.0", str(tmp_path / "data"))
    options = Options(report.data_dir)
    for name in (report.source, "tfds:mine"):
        source = sources.open_source(name, options, val_percent=0, test_percent=0)
        assert len(source.splits["train"]) == 8
    assert "train: 8 examples" in report.text()
    assert "tfds:mine:1.0.0 with data_dir=" in report.text()


def test_the_second_time_nothing_is_written(images, tmp_path, monkeypatch):
    [first] = prepare("mine", images, tmp_path)
    monkeypatch.setattr(writer, "write", None)
    [again] = prepare("mine", images, tmp_path)
    assert again.state == first.state
    assert again.notes == ("it was prepared already",)


def test_what_a_kill_left_after_the_last_rename_is_removed(images, tmp_path):
    prepare("mine", images, tmp_path)
    folder = tmp_path / "data" / "mine" / "1.0.0"
    whole = {path.name for path in folder.iterdir()}
    archive_files.unpacked(folder, {"done/x.json": b"{}", "plan": b"x", "lock": b""})
    prepare("mine", images, tmp_path)
    assert {path.name for path in folder.iterdir()} == whole


def test_a_compressed_tar_shows_its_progress(images, tmp_path):
    seen = []
    path = archive_files.tar(tmp_path / "x.tar.gz", FILES, "w:gz")
    prepare("mine", path, tmp_path, unpacked=lambda *p: seen.append(p))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_what_is_prepared_but_damaged_is_not_taken(images, tmp_path):
    prepare("mine", images, tmp_path)
    [path] = (tmp_path / "data").rglob("*train*")
    path.write_bytes(path.read_bytes()[:-5])
    assert "is not whole: train: a file is missing or damaged" in message("mine", images, tmp_path)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_prepared_dataset_is_used_where_it_lies(images, tmp_path, level):
    job.prepare("mine", images, str(tmp_path / "far"), 1)
    place = [tmp_path / "far", tmp_path / "far/mine", tmp_path / "far/mine/1.0.0"][level - 1]
    [report] = prepare("mine", place, tmp_path)
    assert report.data_dir == str(tmp_path / "far")
    assert "nothing was copied" in report.notes[0]
    assert not (tmp_path / "data").exists()
    if level > 1:
        assert "is mine:1.0.0; expected yours" in message("yours", place, tmp_path)


def test_imagenet_becomes_the_dataset_that_tfds_knows(tmp_path, monkeypatch):
    """Read by TFDS's own code for imagenet2012, with its 1,000 names of classes."""
    wnids = imagenet._lines("labels.txt")
    labels = imagenet._lines("validation_labels.txt")
    train = {
        f"{w}_{i}.JPEG": archive_files.picture(i) for w in (wnids[0], wnids[999]) for i in range(3)
    }
    val = {f"ILSVRC2012_val_0000000{i}.JPEG": archive_files.picture(50 + i) for i in (1, 2)}
    (tmp_path / "tars").mkdir()
    archive_files.tar(
        tmp_path / "tars" / "ILSVRC2012_img_train.tar", test_imagenet.class_tars(train)
    )
    archive_files.tar(tmp_path / "tars" / "ILSVRC2012_img_val.tar", val)
    assert "train: 6 of 1281167 images, none of " in message(
        "imagenet2012", tmp_path / "tars", tmp_path
    )
    monkeypatch.setattr(imagenet, "SIZES_2012", {"train": 6, "validation": 2})
    monkeypatch.setitem(prepared.SIZES, "imagenet2012", {"train": 6, "validation": 2})
    [report] = prepare("imagenet2012", tmp_path / "tars", tmp_path)
    assert report.source == "tfds:imagenet2012:5.1.0"
    tfds = tfds_source._tfds()
    builder = tfds.builder("imagenet2012", data_dir=report.data_dir)
    assert builder.info.features["label"].names == wnids
    decoders = {"image": tfds.decode.SkipDecoding()}
    found = builder.as_dataset(split="all", decoders=decoders).as_numpy_iterator()
    seen = {e["file_name"].decode(): (e["image"], int(e["label"])) for e in found}
    expected = {n: (c, wnids.index(n[:9])) for n, c in train.items()}
    expected |= {n: (c, wnids.index(labels[int(n[-6]) - 1])) for n, c in val.items()}
    assert seen == expected
    source = sources.open_source(
        "tfds:imagenet2012", Options(report.data_dir), val_percent=0, test_percent=0
    )
    assert set(archive_files.pairs(source.splits["train"])) == set(expected[n] for n in train)


def test_imagenet_has_as_many_files_as_that_of_tfds(tmp_path):
    assert job._SHARDS_2012 == {"train": 1024, "validation": 64}


def test_imagenet21k_is_prepared_under_its_release(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "RELEASES_21K", {"fall11": (3, 600), "winter21": (2, 400)})
    monkeypatch.setitem(prepared.CLASSES, "imagenet21k/fall11", {"label": 3})
    jpeg = archive_files.picture(1)
    files = {n: jpeg + c for n, c in test_imagenet.FALL.items()}
    root = archive_files.unpacked(tmp_path / "x", test_imagenet.class_tars(files))
    assert "--release=winter21 (2 classes)" in message("imagenet21k", root, tmp_path)
    assert "--release=winter21 is for imagenet21k" in message(
        "imagenet21k/fall11", root, tmp_path, release="winter21"
    )
    assert "fall11" in message("imagenet21k/fall12", root, tmp_path)
    [report] = prepare("imagenet21k/fall11", root, tmp_path)
    assert report.source == "tfds:imagenet21k/fall11:1.0.0"
    options = Options(report.data_dir)
    source = sources.open_source(
        "tfds:imagenet21k/fall11", options, val_percent=10, test_percent=10
    )
    assert {s: len(x) for s, x in source.splits.items()} == {
        "train": 588, "validation": 6, "val": 6, "test": 6,
    }  # fmt: skip
    assert list(source.classes) == test_imagenet.WNIDS


def test_the_release_may_be_said_apart_from_the_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(job, "_own", lambda target, *_: seen.append((target.name, target.config)))
    for name, release in (("imagenet21k", "fall11"), ("imagenet21k/fall11", "fall11")):
        prepare(name, tmp_path, tmp_path, release=release)
    assert seen == [("imagenet21k", "fall11")] * 2


@pytest.mark.parametrize("there, taken", [("3.0.1", True), ("2.0.0", False), ("4.0.0", False)])
@pytest.mark.parametrize("place", ["data", "from"])
def test_a_task_of_vtab_takes_only_its_version(tmp_path, monkeypatch, there, taken, place):
    monkeypatch.setitem(prepared.SIZES, "dtd", {})
    monkeypatch.setitem(prepared.CLASSES, "dtd", {})
    (tmp_path / "from").mkdir()
    test_prepared.dataset(tmp_path / place, name="dtd", version=there)
    build = lambda need, _, root: test_prepared.dataset(root, name="dtd", version="3.0.3")  # noqa: E731
    monkeypatch.setattr(upstream, "build", build)
    [report] = prepare("vtab/dtd", tmp_path / "from", tmp_path)
    assert report.source == f"tfds:dtd:{there if taken else '3.0.3'}"
    if not taken and place == "data":  # a plain name is any version
        assert prepare("dtd", tmp_path / "from", tmp_path)[0].notes == ("it was prepared already",)


def test_a_release_is_only_for_imagenet21k(images, tmp_path):
    assert "leave it out" in message("mine", images, tmp_path, release="fall11")


def test_a_name_of_tfds_needs_its_archives(images, tmp_path):
    said = message("cifar10", images, tmp_path)
    assert "cifar-10-binary.tar.gz  170052171 bytes" in said
    assert "food-101.tar.gz" in message("food101", images, tmp_path)


@pytest.mark.parametrize("name", ["My-Cats", "1cat", "a b", "../x", "mine/one"])
def test_a_name_must_be_one_that_tfds_reads(images, tmp_path, name):
    assert "use small letters" in message(name, images, tmp_path)


def test_nothing_at_the_origin_is_bad_input(tmp_path):
    assert "no such file or folder" in message("mine", tmp_path / "none", tmp_path)


def test_all_of_vtab_prepares_what_is_there_and_lists_the_rest(tmp_path, monkeypatch):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "EuroSAT.zip").write_bytes(bytes(94280567 % 1000))

    def build(need, origin, data_dir):
        if need.name != "vtab/dtd":
            raise BadInput(f"{need.dataset} is not there")
        return test_prepared.dataset(data_dir, name="dtd", version="3.0.1")

    monkeypatch.setattr(upstream, "build", build)
    monkeypatch.setitem(prepared.SIZES, "dtd", {})
    monkeypatch.setitem(prepared.CLASSES, "dtd", {})
    said = message("vtab/all", tmp_path / "from", tmp_path)
    assert said.startswith(
        "15 of 16 datasets of vtab/all are not prepared (prepared: tfds:dtd:3.0.1)"
    )
    assert "eurosat/rgb:2.0.0 is not there" in said
    monkeypatch.setattr(
        downloads, "resolve_names", lambda _: {"vtab/dtd": "dtd", "vtab/dtd2": "dtd"}
    )
    assert [r.source for r in prepare("vtab", tmp_path / "from", tmp_path)] == [
        "tfds:dtd:3.0.1"
    ] * 2


# --- upstream ---


URL = "http://madm.dfki.de/files/sentinel/EuroSAT.zip"
CLASSES = ["AnnualCrop", "Forest"]
IMAGES = {
    f"2750/{c}/{c}_{i}.jpg": pictures.encode(pictures.noise(64, 64, seed=i + 9 * (c > "B")), "JPEG")
    for c in CLASSES
    for i in range(3)
}


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.getLogger("absl").setLevel(logging.ERROR)
    tfds_source._tfds().disable_progress_bar()


@pytest.fixture
def origin(tmp_path, monkeypatch):
    """A folder with EuroSAT.zip; TFDS and we expect its size and checksum; no network."""
    tfds = tfds_source._tfds()
    (tmp_path / "from").mkdir()
    path = archive_files.zipped(tmp_path / "from" / "EuroSAT.zip", IMAGES)
    data = path.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    info = tfds.core.download.checksums.UrlInfo(len(data), checksum, path.name)
    monkeypatch.setitem(tfds.builder_cls("eurosat").url_infos, URL, info)
    listed = (downloads.Download(path.name, len(data), f"sha256 {checksum}", URL),)
    monkeypatch.setattr(downloads, "tfds_downloads", lambda _: listed)

    def refuse(*args, **_):
        raise AssertionError(f"network: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return path.parent


def need(tmp_path):
    [found] = downloads.needs("vtab/eurosat", str(tmp_path / "data"))
    return found


def build(origin, tmp_path):
    return upstream.build(need(tmp_path), origin, tmp_path / "data")


def refused(origin, tmp_path):
    with pytest.raises(BadInput) as caught:
        build(origin, tmp_path)
    assert prepared.find("eurosat", str(tmp_path / "data")) is None
    return str(caught.value)


@pytest.fixture
def satellite(tmp_path):
    """Class folders of EuroSAT with two images each, one of a name that TFDS does not expect."""
    root = tmp_path / "unpacked" / "EuroSAT" / "2750"
    for number, label in enumerate(upstream._CLASS_FOLDERS["eurosat/rgb"]):
        for i, name in enumerate((f"{label}_1.jpg", "other.jpg")):
            (root / label).mkdir(parents=True, exist_ok=True)
            content = pictures.encode(pictures.noise(64, 64, seed=2 * number + i), "JPEG")
            (root / label / name).write_bytes(content)
    (root / "Forest" / "notes.txt").write_text("not an image")
    (root / "Unlabelled").mkdir()
    return root.parents[1]


def test_class_folders_become_the_dataset_too(origin, satellite, tmp_path, monkeypatch):
    monkeypatch.setitem(SIZES, "eurosat/rgb", {"train": 20})
    data = tmp_path / "data"
    (report,) = job.prepare("vtab/eurosat", satellite, str(data), 1)
    assert report.source == "tfds:eurosat/rgb:2.0.0"
    source = sources.open_source(
        "tfds:eurosat/rgb", Options(str(data)), val_percent=0, test_percent=0
    )
    files = {
        (path.read_bytes(), source.classes.index(path.parent.name))
        for path in satellite.glob("*/*/*/*.jpg")
    }
    assert len(files) == 20
    assert set(archive_files.pairs(source.splits["train"])) == files
    assert list((satellite / "EuroSAT").iterdir()) == [satellite / "EuroSAT" / "2750"]


@pytest.mark.parametrize(
    "lost, part",
    [("River", r"EuroSAT.zip(.*\n)*.*or class folders AnnualCrop, .*River"),
     ("River/other.jpg", r"hold 19 JPEG files, eurosat/rgb has 27,000.*source=folder:.*2750")],
)  # fmt: skip
def test_class_folders_that_are_not_whole_are_refused(origin, satellite, tmp_path, lost, part):
    path = satellite / "EuroSAT" / "2750" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(BadInput, match=part):
        job.prepare("vtab/eurosat", satellite, str(tmp_path / "data"), 1)
    assert prepared.find("eurosat", str(tmp_path / "data")) is None


def test_an_archive_becomes_the_dataset_of_tfds(origin, tmp_path):
    folder = build(origin, tmp_path)
    assert folder == tmp_path / "data" / "eurosat" / "rgb" / "2.0.0"
    assert os.listdir(origin) == ["EuroSAT.zip"]
    options = Options(str(tmp_path / "data"))
    source = sources.open_source("tfds:eurosat/rgb", options, val_percent=0, test_percent=0)
    expected = {(c, source.classes.index(n.split("/")[1])) for n, c in IMAGES.items()}
    assert set(archive_files.pairs(source.splits["train"])) == expected
    assert prepared.check(folder).splits["train"].recorded
    assert need(tmp_path).state == "ready"


def test_missing_archives_are_listed_with_size_checksum_and_folder(origin, tmp_path):
    (origin / "EuroSAT.zip").unlink()
    said = refused(origin, tmp_path)
    [download] = need(tmp_path).downloads
    for part in (str(origin), "EuroSAT.zip", f"{download.bytes} bytes", download.checksum, URL):
        assert part in said
    assert not (tmp_path / "data").exists()


def test_an_archive_of_another_size_is_said_with_both_sizes(origin, tmp_path):
    (origin / "EuroSAT.zip").write_bytes(b"<html>404</html>")
    said = refused(origin, tmp_path)
    assert "has 16 bytes (a web page" in said
    assert f"{need(tmp_path).downloads[0].bytes} bytes" in said


def test_an_archive_with_another_checksum_is_refused(origin, tmp_path):
    path = origin / "EuroSAT.zip"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    assert "wrong checksum" in refused(origin, tmp_path)


def test_an_archive_with_other_content_says_why(origin, tmp_path, monkeypatch):
    cls = tfds_source._tfds().builder_cls("eurosat")

    def fail(*_, **__):
        raise KeyError("what the code of a dataset raises")

    monkeypatch.setattr(cls, "_generate_examples", fail)
    assert "KeyError: 'what the code" in refused(origin, tmp_path)


def test_nothing_else_is_downloaded(origin, tmp_path, monkeypatch):
    """A file that our list lacks."""
    cls = tfds_source._tfds().builder_cls("eurosat")
    other = "https://host.invalid/labels.csv"
    monkeypatch.setattr(cls, "_split_generators", lambda self, manager: manager.download(other))
    assert f"TFDS needs {other}" in refused(origin, tmp_path)


def test_names_of_tfds_are_known_without_a_network(origin):
    assert upstream.knows("cifar10")
    assert upstream.knows("food101")
    assert not upstream.knows("my_cats")
