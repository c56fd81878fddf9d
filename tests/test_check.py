# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every bad file of a source is found and named once, with a reason; every image is counted."""

import json
import tarfile

import pictures
import pytest

from vit_jax.data.inspect import check
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options


def opened(spec, **percents):
    return sources.open_source(
        spec, Options(), **({"val_percent": 0, "test_percent": 0} | percents)
    )


BAD = {
    "a/empty.jpg": (b"", "empty"),
    "b/text.png": (b"words", "no image"),
    "b/half.jpg": (pictures.encode(pictures.noise(20, 20), "JPEG")[:400], "runcated"),
}


@pytest.fixture
def folder(tmp_path):
    pictures.folder(tmp_path, *(f"{c}/{i}.png" for c in "abc" for i in range(4)))
    (tmp_path / "c" / "really.png").write_bytes(pictures.encode(pictures.smooth(9, 9), "WEBP"))
    for name, (content, _) in BAD.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("percent", [0, 30])
def test_every_bad_file_is_named_with_a_reason(folder, workers, percent):
    """However the images are divided into splits."""
    source = opened(f"folder:{folder}", val_percent=percent, test_percent=percent)
    report = check.check_images(source, workers)
    assert (report.images, report.classes) == (16, 3)  # 12, one with another name, and the bad
    assert [file for file, _ in report.bad] == sorted(BAD)
    assert all(BAD[file][1] in reason for file, reason in report.bad)


def test_splits_that_share_examples_are_counted_once(tmp_path):
    root = pictures.folder(tmp_path, *(f"{p}/{c}/1.png" for p in ("train", "val") for c in "ab"))
    (root / "val" / "a" / "1.png").write_bytes(b"")
    source = opened(f"folder:{root}")
    assert {"test", "validation", "val"} & source.splits.keys()
    report = check.check_images(source, 2)
    assert report.images == 4
    assert report.bad == (("val/a/1.png", "the file is empty"),)


def test_report_as_json_and_as_text(folder):
    report = check.check_images(opened(f"folder:{folder}"), 2)
    found = json.loads(json.dumps(report.as_json()))
    assert found["images"] == 16
    assert found["classes"] == 3
    assert found["bad"][0] == {"file": "a/empty.jpg", "reason": "the file is empty"}
    lines = report.as_text().splitlines()
    assert lines[0] == "16 images in 3 classes, 3 bad"
    assert lines[1] == "  a/empty.jpg: the file is empty"


def test_a_file_that_is_gone_is_bad(folder):
    source = opened(f"folder:{folder}")
    (folder / "a" / "0.png").unlink()
    report = check.check_images(source, 1)
    assert report.bad[0][0] == "a/0.png"
    reason = report.bad[0][1]
    assert reason.startswith("cannot be read: /")
    assert reason.endswith("a/0.png; No such file or directory"), "no names of nodes"


def test_an_error_that_quotes_bytes_is_a_reason():
    def read(index):
        raise UnicodeDecodeError("utf-8", b"record \xff is damaged", 7, 8, "invalid start byte")

    assert check._reason(read, 0) == "cannot be read: record \ufffd is damaged"


def test_progress_counts_every_image(folder):
    seen = []
    check.check_images(opened(f"folder:{folder}"), 2, lambda *x: seen.append(x))
    assert seen == [(i, 16) for i in range(1, 17)]


def test_images_stored_as_pixels_are_good():
    report = check.check_images(opened("digits", val_percent=10, test_percent=10), 2)
    assert (report.images, report.classes, report.bad) == (1797, 10, ())


def test_many_images_do_not_wait_in_memory():
    running, most = set(), []

    class Threads:
        def submit(self, function, value):
            running.add(value)
            most.append(len(running))
            return type("Done", (), {"result": lambda self: running.remove(value) or value})()

    assert list(check._ordered(Threads(), str, range(100), ahead=5)) == list(range(100))
    assert max(most) == 6


def test_of_the_odd_real_files_those_that_pillow_refuses_are_bad(tmp_path, data_dir):
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        for member in tar:
            if member.isfile() and not member.name.endswith(".csv"):
                name = member.name.split("/")[-1]
                path = tmp_path / "ab"[len(name) % 2] / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
    report = check.check_images(opened(f"folder:{tmp_path}"), 2)
    assert report.images == 66
    assert len(report.bad) == 11
    assert any("bogus-empty-jfif" in file for file, _ in report.bad), "TensorFlow would take it"
