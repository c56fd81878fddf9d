# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax inspect`: what a file or a run holds, without a device or TensorFlow."""

import json
import subprocess
import sys

import numpy as np
import pytest

import vit_jax
from vit_jax import tree
from vit_jax.cli import main
from vit_jax.models import variants

SIZES = {"width": 24, "depth": 2, "mlp": 40, "heads": 3}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """format -> file of a small ViT of sizes that no variant has."""
    cfg = variants.config(variant="custom/8", classes=5, **SIZES)
    rng = np.random.default_rng(0)
    shapes = variants.shapes(cfg, 24, 24)
    params = tree.map_with_path(lambda _, x: rng.normal(size=x.shape).astype(np.float32), shapes)
    root = tmp_path_factory.mktemp("files")
    paths = {
        "npz": "a.npz",
        "big_vision": "b.npz",
        "timm": "t/m.safetensors",
        "hf": "h/m.safetensors",
    }
    for name, path in paths.items():
        vit_jax.save(root / path, variants.make(cfg), params, format=name)
    return {name: root / path for name, path in paths.items()}


def found(capsys, *arguments):
    assert main.main(["inspect", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["npz", "big_vision", "timm", "hf"])
def test_json_of_a_file(files, capsys, name):
    said = found(capsys, files[name])
    assert set(said) == {"format", "family", "architecture", "parameters", "tensors"}
    assert (said["format"], said["family"]) == (name, "vit")
    assert {key: said["architecture"][key] for key in SIZES} == SIZES
    assert said["architecture"]["patch"] == 8
    assert said["architecture"]["classes"] == 5
    assert said["architecture"]["image_size"] == 24
    assert said["parameters"] == sum(np.prod(t["shape"]) for t in said["tensors"].values())
    cfg = variants.config(variant="custom/8", classes=5, **SIZES)
    without_row = 24 if name == "big_vision" else 0  # position embedding of the class token
    assert said["parameters"] == tree.size(variants.shapes(cfg, 24, 24)) - without_row


def test_tensors_have_the_names_shapes_and_dtypes_of_the_file(files, capsys):
    tensors = found(capsys, files["npz"])["tensors"]
    with np.load(files["npz"]) as file:
        assert tensors == {
            n: {"shape": list(file[n].shape), "dtype": str(file[n].dtype)} for n in file.files
        }


def test_heads_are_asked_for_where_nothing_says_them(files, capsys):
    files["hf"].with_name("config.json").rename(files["hf"].with_name("away"))
    try:
        assert main.main(["inspect", str(files["hf"])]) == 2
        assert "heads=" in capsys.readouterr().err
        assert found(capsys, files["hf"], "--heads=3")["architecture"]["heads"] == 3
    finally:
        files["hf"].with_name("away").rename(files["hf"].with_name("config.json"))


def test_run_and_its_steps(digits_run, capsys):
    said = found(capsys, digits_run)
    assert (said["format"], said["family"]) == ("run", "vit")
    assert said["architecture"]["classes"] == 10
    assert said["tensors"]["head/kernel"]["shape"][1] == 10
    assert found(capsys, f"{digits_run}@12") == said
    assert main.main(["inspect", f"{digits_run}@5"]) == 2
    assert "12]" in capsys.readouterr().err


def test_text_names_every_tensor_and_field(files, capsys):
    assert main.main(["inspect", str(files["npz"])]) == 0
    shown = capsys.readouterr().out
    for part in ("Transformer/encoder_norm/scale", "float32", "custom/8", "gelu", "parameters"):
        assert part in shown


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["nothing.npz"], "does not exist"),
        (["nothing.npz", "--config.seed=1"], "'--config.seed=1'; an example: vit_jax inspect"),
        ([], "FILE_OR_RUN"),
    ],
)
def test_wrong_usage_is_exit_code_2(capsys, arguments, said):
    assert main.main(["inspect", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_file_that_cannot_be_loaded(files, tmp_path, capsys):
    arrays = dict(np.load(files["npz"]))
    name = next(name for name in arrays if "LayerNorm_0/scale" in name)
    arrays[name] = arrays[name][:-1]
    np.savez(tmp_path / "x.npz", **arrays)
    assert main.main(["inspect", str(tmp_path / "x.npz")]) == 2
    assert "wrong shape  block_0/attn_norm/scale: (23,)" in capsys.readouterr().err


@pytest.mark.integration
def test_neither_tensorflow_nor_a_backend_is_started(files, without_devices):
    command = [sys.executable, "-c", without_devices, "inspect", str(files["timm"])]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
