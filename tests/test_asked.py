# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What may be asked of an export."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vit_jax.errors import BadInput
from vit_jax.inference.export import formats
from vit_jax.weights import convert


def test_formats_are_those_that_exist():
    assert formats.SUFFIX == convert.SUFFIX
    assert formats.FORMATS == (*convert.NAMES, "stablehlo", "savedmodel")


@pytest.mark.parametrize(
    "name, out, with_preprocess, words",
    [
        ("onnx", "m.onnx", False, "unknown --format 'onnx'.*npz, big_vision, timm, hf, stablehlo"),
        ("savedmodle", "m", False, "Did you mean 'savedmodel'"),
        ("npz", "m.safetensors", False, "npz format is written to a .npz file"),
        ("hf", "m.npz", False, "hf format is written to a .safetensors file"),
        ("npz", "m.npz", True, "--with-preprocess: npz.*--format=stablehlo or savedmodel"),
        ("timm", "m.safetensors", True, "--with-preprocess: timm"),
        ("stablehlo", "folder", False, "folder is a folder, and stablehlo is a file"),
        ("npz", "folder.npz", False, "is a folder, and npz is a file"),
        ("stablehlo", "pipe", False, "pipe is a device or a pipe"),
        ("savedmodel", "pipe", False, "exists and is not a SavedModel"),
        ("savedmodel", "\udcff", False, "is not UTF-8, as the path of a SavedModel must be"),
        ("savedmodel", "folder", False, "exists and is not a SavedModel"),
        ("savedmodel", "file", False, "exists and is not a SavedModel"),
    ],
)
def test_what_cannot_be_right(tmp_path, name, out, with_preprocess, words):
    for folder in ("folder", "folder.npz"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thesis.tex").touch()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=words):
        formats.check(name, tmp_path / out, with_preprocess=with_preprocess)


@pytest.mark.parametrize(
    "name, out",
    [("npz", "new/m.npz"), ("npz", "old.npz"), ("savedmodel", "new/m"), ("savedmodel", "empty"),
     ("savedmodel", "model"), ("stablehlo", "m"), ("timm", "model.safetensors")],
)  # fmt: skip
def test_what_is_new_or_replaced(tmp_path, name, out):
    (tmp_path / "old.npz").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    formats.check(name, tmp_path / out, with_preprocess=False)


def test_answer_needs_neither_jax_nor_tensorflow():
    program = (
        "import sys; from vit_jax.cli import main; "
        "assert main.main(['export', 'x', '--format=onnx', '--out=x']) == 2; "
        "assert not {'jax', 'tensorflow'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=root)
