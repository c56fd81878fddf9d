# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Everything that does not read images with tf.data works where TensorFlow is not installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from vit_jax.data import tensorflow
from vit_jax.data.catalog import prepared
from vit_jax.errors import BadInput
from vit_jax.preflight import doctor
from vit_jax.training import metric_writer

# None is what the import system takes for a module that cannot be found.
ABSENT = ("tensorflow", "tensorboard", "clu.metric_writers")


@pytest.fixture
def without(monkeypatch):
    for name in ABSENT:
        monkeypatch.setitem(sys.modules, name, None)
    tensorflow._tensorflow.cache_clear()
    yield
    tensorflow._tensorflow.cache_clear()


@pytest.mark.parametrize("use", [lambda: tensorflow.tf.constant(1), tensorflow.tfds])
def test_first_use_of_tensorflow_names_what_to_install(without, use):
    with pytest.raises(BadInput, match=r"TensorFlow is not installed.*pip install 'vit_jax\[tf\]'"):
        use()


def test_tensorflow_datasets_is_named_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(BadInput, match="TensorFlow Datasets is not installed"):
        tensorflow.tfds()


def test_doctor_finds_nothing_wrong(without):
    [finding] = doctor.tensorflow()
    assert finding.ok
    assert "not installed" in finding.text


def test_doctor_does_not_miss_the_package_either(tmp_path):
    mine = tmp_path / "vit_jax-1.dist-info"
    mine.mkdir()
    needs = "Requires-Dist: tensorflow-cpu >=2.21\nRequires-Dist: etils >=1"
    (mine / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vit-jax\nVersion: 1\n{needs}\n")
    [_, *packages] = doctor.packages([str(tmp_path)])
    assert ["etils" in finding.text for finding in packages] == [True]


def test_a_listing_without_tensorflow_datasets_is_one_message(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="TensorFlow Datasets is not installed"):
        prepared.is_listed("cifar10")


def test_metrics_are_written_and_tensorboard_is_missed_once(without, tmp_path, caplog):
    report = metric_writer.Report(tmp_path, step=0, writers=["tensorboard"])
    for step in range(3):
        report.row(step, {"train/loss": 1.0})
    report.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    [warning] = [r.message for r in caplog.records if "TensorFlow" in r.message]
    assert "pip install 'vit_jax[tf]'" in warning


COMMANDS = f"""
import sys
for name in {ABSENT}:
    sys.modules[name] = None
from pathlib import Path
import jax, numpy as np, vit_jax
from vit_jax.cli.main import main
from vit_jax.models import variants
from vit_jax.weights import loading
folder = Path(sys.argv[1])
cfg = variants.config(variant="Ti/16", classes=10, depth=2)
shapes = variants.shapes(cfg, 224, 224)
params = jax.tree.map(lambda x: np.full(x.shape, 0.01, x.dtype), shapes)
for name, kind in (("npz", "npz"), ("safetensors", "timm")):
    loading.save(folder / f"weights.{{name}}", variants.make(cfg), params, format=kind)
files = ("weights.npz", "weights.safetensors", "i.png", "out")
npz, timm, image, out = (str(folder / name) for name in files)
for code, *command in (
    (0, "models"), (0, "inspect", npz), (0, "predict", timm, image), (0, "predict", npz, image),
    (0, "export", npz, "--format=stablehlo", f"--out={{out}}"),
    (0, "figures", timm, f"--out={{out}}-figures", "--images", image),
    (2, "export", npz, "--format=savedmodel", f"--out={{out}}-tf"),
    (2, "train", "--config=vit_jax:quickstart", "--config.data.source=tfds:mnist",
     f"--workdir={{out}}-run"),
    (0, "train", "--config=vit_jax:quickstart", "--config.data.reader=python",
     "--config.length=1 steps", "--config.schedule.warmup=0 steps", f"--workdir={{out}}-run"),
    (0, "predict", sys.argv[2], image), (0, "evaluate", sys.argv[2], f"--out={{out}}-evaluation"),
    (0, "report", sys.argv[2], f"--out={{out}}-report.html"),
):
    print("command:", *command, file=sys.stderr)
    assert main(command) == code, command
assert not any(name.startswith("tensorflow.") for name in sys.modules)
"""


@pytest.mark.integration
def test_commands_that_need_no_tensorflow_work_and_others_name_it(digits_run, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "i.png")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(tmp_path), str(digits_run)], capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("TensorFlow is not installed") == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "WARNING" not in done.stderr  # a report that lacks pictures says so
