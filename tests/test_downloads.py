# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Messages about missing downloads name what TFDS asks for, to the byte."""

import json
import shlex
import sys

import pytest
import test_prepared

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.errors import BadInput

NAMES = sorted(downloads._KNOWN)
TASKS = json.loads(
    (prepared.Path(downloads.__file__).parents[2] / "paper" / "vtab_tasks.json").read_text()
)["tasks"]


def needs(name, folder):
    return downloads.needs(name, str(folder))


def test_all_nineteen_tasks_of_vtab_have_a_name():
    assert len(downloads.vtab.tasks()) == 19
    assert len(downloads.resolve_names("vtab/all")) == 16  # some tasks share a dataset
    assert downloads.resolve_names("vtab") == downloads.resolve_names("vtab/all")
    assert downloads.resolve_names("vtab/eurosat") == {"vtab/eurosat": "eurosat/rgb"}
    for spelling in ("Clevr-Count", "clevr_count", "clevrcount"):
        assert downloads.resolve_names(f"vtab/{spelling}") == {"vtab/clevr_count": "clevr"}
    with pytest.raises(BadInput, match="eurosat"):
        downloads.resolve_names("vtab/eurosta")


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t["name"])
def test_downloads_of_vtab_have_the_stated_size(task, tmp_path):
    [need] = needs(f"vtab/{task['name']}", tmp_path)
    assert need.state == "needs files"
    total, listed = task["download"]["download_bytes"], need.downloads
    if total is not None:
        assert sum(d.bytes for d in listed) == total
        assert all(d.checksum.startswith("sha256 ") and d.url for d in listed)
    assert listed
    assert need.place in need.command
    assert f"prepare vtab/{downloads.vtab.find(task['name']).slug} " in need.command
    assert f"--data_dir={tmp_path}" in need.command
    for download in listed:
        assert download.name in need.text()


@pytest.mark.parametrize("name", [n for n in NAMES if "imagenet21k" not in n])
def test_versions_are_those_that_tfds_prepares(name):
    tfds = tfds_source._tfds()
    cls = tfds.builder_cls(name.partition("/")[0])
    config = cls.builder_configs.get(name.partition("/")[2])
    versions = [str(v) for v in (cls.VERSION, getattr(config, "version", None)) if v]
    assert downloads.version(name) in versions
    if "/" in name:
        assert config is not None


def test_imagenet_is_named_to_the_byte(tmp_path):
    [need] = needs("imagenet2012", tmp_path)
    found = {d.name: (d.bytes, d.checksum) for d in need.downloads}
    assert found == {
        "ILSVRC2012_img_train.tar": (147897477120, "md5 1d675b47d978889d74fa0da5fadfb00e"),
        "ILSVRC2012_img_val.tar": (6744924160, "md5 29b22e2961454d5413ddabcf34fc5622"),
    }
    assert "https://image-net.org" in need.text()
    assert need.folder == str(tmp_path / "imagenet2012" / "5.1.0")


def test_imagenet21k_names_its_releases(tmp_path):
    found = {need.dataset: need.command for need in needs("imagenet21k", tmp_path)}
    assert set(found) == {"imagenet21k/fall11:1.0.0", "imagenet21k/winter21:1.0.0"}
    assert "prepare imagenet21k/fall11 --from=" in found["imagenet21k/fall11:1.0.0"]


def test_other_sets_of_tfds_are_known_by_their_lists(tmp_path):
    [need] = needs("mnist", tmp_path)
    assert {d.name for d in need.downloads} == {
        f"{a}-{b}-ubyte.gz" for a in ("train", "t10k") for b in ("images-idx3", "labels-idx1")
    }
    with pytest.raises(BadInput, match="imagenet2012"):
        needs("imagenet2021", tmp_path)


def test_a_default_config_need_not_be_said(tmp_path):
    assert needs("eurosat", tmp_path)[0].dataset == "eurosat/rgb:2.0.0"


def test_what_is_prepared_is_ready(tmp_path):
    folder = test_prepared.dataset(tmp_path, name="own")
    [need] = needs("own", tmp_path)
    assert (need.state, need.folder, need.downloads) == ("ready", str(folder), ())
    assert need.text() == f"own (own:1.0.0): ready, {folder}"


def test_a_missing_or_empty_file_of_records_is_broken(tmp_path):
    folder = test_prepared.dataset(tmp_path, name="cifar10", version="3.0.2")
    assert needs("cifar10", tmp_path)[0].state == "ready"
    (folder / "cifar10-test.tfrecord-00000-of-00001").write_bytes(b"")
    [need] = needs("cifar10", tmp_path)
    assert need.state == "broken"
    assert "cifar10-test.tfrecord-00000-of-00001 is missing or empty" in need.text()
    assert f"remove {folder} first" in need.text()
    assert "cifar-10-binary.tar.gz" in need.text()


def test_absent_says_what_is_there_instead(tmp_path):
    [need] = needs("oxford_flowers102", tmp_path)
    assert {d.name: w for d, w in downloads.missing_files(need, tmp_path)} == {
        n: "missing" for n in ("102flowers.tgz", "imagelabels.mat", "setid.mat")
    }
    (tmp_path / "imagelabels.mat").write_bytes(bytes(502))
    (tmp_path / "setid.mat").write_bytes(b"<html>")
    (tmp_path / "102flowers.tgz").mkdir()
    found = {d.name: w for d, w in downloads.missing_files(need, tmp_path)}
    assert set(found) == {"102flowers.tgz", "setid.mat"}
    assert "has 6 bytes (a web page" in found["setid.mat"]


def test_folders_are_asked_for_where_tfds_wants_folders(tmp_path):
    [need] = needs("vtab/retinopathy", tmp_path)
    for name in ("train", "test", "sample"):
        (tmp_path / name).mkdir()
    found = {d.name for d, _ in downloads.missing_files(need, tmp_path)}
    assert found == {"trainLabels.csv", "retinopathy_solution.csv"}


def test_a_module_that_tfds_needs_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(downloads.prepared, "tfds_package", lambda: tmp_path)
    assert "pip install opencv-python-headless" in needs("vtab/sun397", tmp_path)[0].text()


def test_tensorflow_is_not_imported():
    import subprocess

    code = (
        "import sys; from vit_jax.data.catalog import downloads as missing, prepared\n"
        "missing.needs('vtab', '/nowhere'); prepared.find('mnist', '/nowhere')\n"
        "assert not {'tensorflow', 'tensorflow_datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_one_prepared_release_of_imagenet21k_is_enough(tmp_path):
    test_prepared.dataset(tmp_path, name="imagenet21k", config="winter21")
    [need] = needs("imagenet21k", tmp_path)
    assert (need.name, need.state) == ("imagenet21k/winter21", "ready")
    assert needs("imagenet21k/fall11", tmp_path)[0].state == "needs files"


@pytest.mark.parametrize("task, dataset, version, state", [
    ("dtd", "dtd", "3.0.1", "ready"), ("dtd", "dtd", "3.12.0", "ready"),
    ("dtd", "dtd", "4.0.0", "needs files"), ("dtd", "dtd", "30.0.1", "needs files"),
    ("pets", "oxford_iiit_pet", "3.2.0", "ready"), ("pets", "oxford_iiit_pet", "4.0.0", "ready"),
    ("pets", "oxford_iiit_pet", "4.0.1", "needs files"),
    ("kitti_dist", "kitti", "3.1.0", "ready"), ("kitti_dist", "kitti", "3.2.0", "needs files"),
])  # fmt: skip
def test_a_task_of_vtab_is_ready_in_its_version_only(tmp_path, task, dataset, version, state):
    folder = test_prepared.dataset(tmp_path, name=dataset, version=version)
    [need] = needs(f"vtab/{task}", tmp_path)
    assert need.state == state
    assert needs(dataset, tmp_path)[0].state == "ready"
    if state == "ready":
        assert need.folder == str(folder)
    else:
        wanted = downloads.vtab.find(task).version
        assert f"note: {folder} is another version; VTAB asks for {wanted}" in need.text()
        assert need.dataset == f"{dataset}:{downloads.version(dataset)}"
        assert need.folder == str(folder.parent / downloads.version(dataset))


def test_the_version_of_the_task_goes_before_a_newer_one(tmp_path):
    folder = test_prepared.dataset(tmp_path, name="dtd", version="3.0.1")
    test_prepared.dataset(tmp_path, name="dtd", version="4.0.0")
    assert needs("vtab/dtd", tmp_path)[0].folder == str(folder)


def test_paths_in_commands_are_quoted(tmp_path):
    place = tmp_path / "my data; rm"
    [need] = needs("cifar10", place)
    words = shlex.split(need.command)
    assert f"--data_dir={place}" in words
    assert f"--from={place}/downloads/manual" in words


def test_tasks_of_one_dataset_are_named_together(tmp_path):
    texts = {need.name: need.text().splitlines()[0] for need in needs("vtab", tmp_path)}
    assert texts["vtab/clevr_count"].endswith("; also vtab/clevr_dist")
    assert "also" not in texts["vtab/dtd"]
    test_prepared.dataset(tmp_path, name="clevr", version="3.1.0")
    assert needs("vtab/clevr_dist", tmp_path)[0].text().endswith("; also vtab/clevr_count")
