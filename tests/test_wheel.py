# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A release: the sdist builds the wheel, and the wheel trains from an empty folder."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from vit_jax import __version__

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys\nfrom setuptools import build_meta\nprint(build_meta.build_{}(sys.argv[1]))"
SHORT = (
    "--config.length=4 steps",
    "--config.schedule.warmup=1 steps",
    "--config.report.page=false",
)


def run(argv, cwd, code=0):
    """Runs a program that finds nothing of this checkout; returns its output."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(argv, cwd=cwd, env=env, text=True, capture_output=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def left_out(folder, names):
    """Names in a folder of the checkout that git ignores too."""
    here = {"runs", "build", "dist"} if Path(folder) == ROOT else set()
    return {n for n in names if n in here or n.startswith((".", "__pycache__"))}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the sdist of the checkout, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, folder / "tree", ignore=left_out)
    run([sys.executable, "-c", BUILD.format("sdist"), str(folder)], folder / "tree")
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    run([sys.executable, "-c", BUILD.format("wheel"), str(folder)], unpacked)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory):
    """Programs of an environment with the wheel; its other packages are those of this one."""
    home = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", str(home)], home)
    python = str(home / "bin/python")
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "--python", python, *install, str(wheel)], home)
    [packages] = home.glob("lib/python*/site-packages")
    # A .pth file inside a folder that a .pth file names is not read: the checkout stays out.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


def files(folder, inside=""):
    """Files below a folder of the checkout, as a wheel names them."""
    paths = (p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {inside + p.relative_to(ROOT).as_posix() for p in paths}


def test_the_wheel_has_every_file_and_no_other_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
        [top] = (archive.read(n) for n in archive.namelist() if n.endswith("/top_level.txt"))
    inside = files("configs", "vit_jax/") | files("launch", "vit_jax/")
    assert names == files("vit_jax") | inside
    assert {"vit_jax/py.typed", "vit_jax/configs/base.py", "vit_jax/launch/__main__.py"} <= names
    assert top.split() == [b"vit_jax"]
    [found] = importlib.metadata.distributions(name="vit_jax", path=[str(wheel)])
    assert found.version == __version__
    assert {"cuda13", "dev", "docs", "tpu"} <= set(found.metadata.get_all("Provides-Extra"))


def test_the_sdist_has_what_the_tests_need(dist):
    [tree] = (p for p in dist.iterdir() if p.is_dir() and p.name.startswith("vit_jax-"))
    wanted = ("tests/fixtures/version-0.1.tar.gz", "docs/index.md", "requirements.lock", "LICENSE")
    assert [name for name in wanted if not (tree / name).is_file()] == []


def test_the_wheel_trains_from_an_empty_folder(bin_folder, tmp_path):
    (tmp_path / "configs").mkdir()  # as other projects have it
    (tmp_path / "configs/__init__.py").write_text("raise RuntimeError('not the recipes')")
    program = str(bin_folder / "vit_jax")
    said = run([program, "train", "--config=vit_jax:quikstart", "--workdir=run"], tmp_path, 2)
    assert "Did you mean --config=vit_jax:quickstart?" in said
    run([program, "train", "--config=vit_jax:quickstart", "--workdir=run", *SHORT], tmp_path)
    origin = json.loads((tmp_path / "run/origin.json").read_text())
    assert origin["recipe"]["config"] == "vit_jax:quickstart"
    assert origin["versions"]["vit_jax"] == __version__
    assert (tmp_path / "run/results.json").is_file()


def test_the_wheel_launches_a_recipe_of_the_user(bin_folder, tmp_path):
    (tmp_path / "mine.py").write_text("from configs.quickstart import get_config\n")
    words = [str(bin_folder / "python"), "-m", "vit_jax.launch", "local"]
    arguments = ["--config=mine.py", "--workdir=run", "--processes=2"]
    said = run([*words, "render", *arguments], tmp_path)
    assert "-m vit_jax.launch.node --count=2" in said
    words[-1] = "gke"
    remote = ["--config=vit_jax:quickstart", "--workdir=gs://bucket/run", "--accelerator=v4-8"]
    said = run([*words, "render", *remote, f"--image=r/i@sha256:{'0' * 64}"], tmp_path, 2)
    assert "launch from a checkout of the project" in said
