# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published encoders give the outputs of timm and transformers, which need not be installed.

`make_encoder_goldens.py` wrote their outputs, with the versions of both libraries.
"""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import safetensors.numpy
from make_encoder_goldens import FILE, TIMM, TRANSFORMERS, values

import vit_jax
from vit_jax import tree
from vit_jax.build import defaults
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import convert, files

GOLDEN = json.loads(FILE.read_text())["models"]
SIDE = 16


def written(folder, name):
    """Writes the file that the library wrote, from its formula."""
    row = GOLDEN[name]
    arrays = {}
    for tensor, (origins, shape) in row["tensors"].items():
        names = origins.split("+")
        part = (shape[0] // len(names), *shape[1:])
        arrays[tensor] = np.concatenate([values(origin, part) for origin in names])
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(row["config"]))
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(arrays, path)
    return path


def output(path, side=SIDE, **changes):
    model, params, _ = vit_jax.load(path, image_size=side)
    model = variants.make(dataclasses.replace(model.cfg, **changes))
    images = np.moveaxis(values("image", (2, 3, side, side)), 1, -1)
    return np.asarray(jax.jit(model.apply)({"params": params}, images))


def assert_equal(have, want):
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.std(want))


def test_every_model_of_the_script_has_its_output():
    assert GOLDEN.keys() == TIMM.keys() | TRANSFORMERS.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_outputs_are_those_of_the_library(tmp_path, name):
    assert_equal(output(written(tmp_path, name)), np.float32(GOLDEN[name]["output"]))


@pytest.mark.parametrize("name", [n for n in GOLDEN if n not in ("beit", "timm deit3")])
def test_what_is_written_has_the_same_tensors(tmp_path, name):
    """Masks of pre-training are left out; DeiT III gets a row for its class token."""
    path = written(tmp_path / "theirs", name)
    model, params, _ = vit_jax.load(path, image_size=SIDE)
    form = "timm" if name.startswith("timm") else "hf"
    arrays, beside = convert.expressed(form, model.cfg, params)
    theirs = dict(safetensors.numpy.load_file(path))
    root = r"^(dinov2(_with_registers)?|vision_model)\."  # a bare encoder may lack it
    theirs = {re.sub(root, "", n): a for n, a in theirs.items() if not n.endswith("mask_token")}
    ours = {re.sub(root, "", n): a for n, a in arrays.items()}
    assert ours.keys() == theirs.keys()
    for tensor, array in ours.items():
        np.testing.assert_array_equal(array, theirs[tensor], err_msg=tensor)
    config = GOLDEN[name]["config"]
    assert beside["config.json"].get("model_type") == config.get("model_type")


@pytest.mark.parametrize(
    "name, changes",
    [
        *((name, {}) for name in GOLDEN if name not in ("beit", "timm deit3")),
        *((name, {"rope_base": 50.0}) for name in GOLDEN if "dinov3" in name),
        ("dinov3 plus", {"gate": "gelu", "gelu": "tanh"}),
    ],
)
def test_what_is_written_is_read_as_the_same_configuration(tmp_path, name, changes):
    found = convert.read(written(tmp_path / "theirs", name))
    cfg = dataclasses.replace(found.config, **changes)
    params = tree.nested(dict(found.flat))
    path = tmp_path / "ours" / "model.safetensors"
    form = "timm" if name.startswith("timm") else "hf"
    files.write(path, *convert.expressed(form, cfg, params))
    assert convert.read(path, shapes_only=True).config == cfg


@pytest.mark.parametrize(
    "name, acts, gate",
    [
        ("dinov3 plus", "gelu", ("gelu", "erf")),
        ("dinov3 plus", "gelu_new", ("gelu", "tanh")),
        ("dinov3 plus", "silu", ("silu", "tanh")),
        ("dinov2 giant", "gelu", ("silu", "tanh")),  # has SwiGLU whatever it says
        ("dinov3", "gelu_new", ("none", "tanh")),
    ],
)
def test_activation_of_a_gate(tmp_path, name, acts, gate):
    found = read(tmp_path, name, {"hidden_act": acts}).config
    assert (found.gate, found.gelu) == gate


@pytest.mark.parametrize("name", ["deit", "dinov3", "clip"])
def test_silu_without_a_gate(tmp_path, name):
    assert "hidden_act=silu" in refusal(tmp_path, name, {"hidden_act": "silu"})


def test_other_activation_of_a_gate(tmp_path):
    assert "hidden_act" in refusal(tmp_path, "dinov3 plus", {"hidden_act": "relu"})


def test_siglip_without_its_head(tmp_path):
    without = {name: None for name in GOLDEN["siglip"]["tensors"] if ".head." in name or
               name.startswith("head.")}  # fmt: skip
    said = refusal(tmp_path, "siglip", tensors=without)
    assert "siglip or siglip_vision_model models are read with pool=map" in said
    assert "config.json" not in said


def test_assumptions_about_a_timm_file_alone_are_said_once(tmp_path, caplog):
    path = changed(tmp_path, "timm siglip")
    (tmp_path / "config.json").unlink()
    for _ in range(2):
        convert.read(path, heads=2, shapes_only=True)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "pool=map, gelu=erf, ln_epsilon=1e-06" in record.message


@pytest.mark.parametrize(
    "mean, words", [("", ["data.mean=(0.5, 0.5, 0.5)", "mean (0.48145466"]), ("0.4,0.4,0.4", [])]
)
def test_weights_that_do_not_say_their_normalisation(tmp_path, caplog, root, mean, words):
    path = written(tmp_path, "clip")
    given = [f"--config.init={path}", "--config.data.source=digits"]
    given += [f"--config.data.mean={mean}"] if mean else []
    defaults.settle(config_lib.load(str(root / "configs" / "finetune.py"), given))
    said = [record.message for record in caplog.records if "normalised" in record.message]
    assert len(said) == bool(words)
    assert all(word in said[0] for word in words)


def test_bias_of_offsets_stays_a_run(tmp_path):
    model, params, _ = vit_jax.load(written(tmp_path, "beit"), image_size=SIDE)
    with pytest.raises(BadInput, match="hf format has no posemb=relative2d"):
        convert.expressed("hf", model.cfg, params)


def test_bias_of_offsets_from_transformers_to_timm(tmp_path):
    path = written(tmp_path / "theirs", "beit")
    model, params, _ = vit_jax.load(path)
    cfg = dataclasses.replace(model.cfg, ln_epsilon=1e-6)  # that of timm
    files.write(tmp_path / "ours.safetensors", *convert.expressed("timm", cfg, params))
    np.testing.assert_array_equal(
        output(tmp_path / "ours.safetensors"), output(path, ln_epsilon=1e-6)
    )


@pytest.mark.parametrize(
    "change, words",
    [
        ({"pool": "token"}, "BEiT has gelu=erf and pool=gap"),
        ({"final_norm": "tokens"}, "timm format has no final_norm=tokens"),
    ],
)
def test_bias_of_offsets_of_another_model_stays_a_run(tmp_path, change, words):
    found = convert.read(written(tmp_path, "timm beit"))
    cfg, params = dataclasses.replace(found.config, **change), tree.nested(dict(found.flat))
    with pytest.raises(BadInput, match=words):
        convert.expressed("timm", cfg, params)


def of_grid(folder, name, rows, columns):
    """Writes a BEiT whose tables are for a grid of patches of 4 x 4 pixels."""
    table = values("table", ((2 * rows - 1) * (2 * columns - 1) + 3, 2))
    tables = {n: table for n in GOLDEN[name]["tensors"] if n.endswith("bias_table")}
    size = [4 * rows, 4 * columns]
    args = GOLDEN[name]["config"].get("model_args", {}) | {"img_size": size}
    return changed(folder, name, {"model_args": args, "image_size": size}, tables)


@pytest.mark.parametrize("name", ["beit", "timm beit"])
@pytest.mark.parametrize("grid, other", [((6, 2), (2, 6)), ((5, 5), (2, 14))])
def test_bias_of_offsets_of_another_grid_with_as_many(tmp_path, name, grid, other):
    path = of_grid(tmp_path, name, *grid)
    rows, columns = (4 * side for side in grid)
    vit_jax.load(path, image_size=(rows, columns))
    with pytest.raises(BadInput) as caught:
        vit_jax.load(path, image_size=tuple(4 * side for side in other))
    assert f"keep the image size of the weights, {rows} x {columns} pixels" in str(caught.value)
    assert f"for {other[0]} x {other[1]} patches, not {grid[0]} x {grid[1]}" in str(caught.value)


def test_bias_of_offsets_tells_the_image_size(tmp_path):
    path = changed(tmp_path, "timm beit")
    (tmp_path / "config.json").unlink()
    assert convert.read(path, heads=2).image_size == (SIDE, SIDE)
    vit_jax.load(path, heads=2)


@pytest.mark.parametrize("name", ["beit", "timm beit"])
def test_bias_of_offsets_for_another_image_size_than_the_configuration_says(tmp_path, name):
    args = GOLDEN[name]["config"].get("model_args", {}) | {"img_size": 32}
    said = refusal(tmp_path, name, {"model_args": args, "image_size": 32})
    assert "49 offsets between two patches in 16 x 16 pixels" in said
    assert "says that images are 32 x 32; put the right one beside them" in said


def test_offsets_of_no_square_do_not_tell_the_image_size(tmp_path):
    for count, folder in ((11 * 3, "oblong"), (16, "even")):
        tables = {n: values("table", (count + 3, 2))
                  for n in GOLDEN["timm beit"]["tensors"] if n.endswith("bias_table")}  # fmt: skip
        path = changed(tmp_path / folder, "timm beit", tensors=tables)
        (tmp_path / folder / "config.json").unlink()
        assert convert.read(path, heads=2).image_size is None
        with pytest.raises(BadInput, match="does not give its image size"):
            vit_jax.load(path, heads=2)


def test_bias_of_offsets_without_biases_of_queries_and_values_stays_a_run(tmp_path):
    found = convert.read(written(tmp_path, "timm beit"))
    cfg = dataclasses.replace(found.config, biases="no_qkv")
    biases = ("query/bias", "value/bias")
    params = tree.nested({n: a for n, a in found.flat.items() if not n.endswith(biases)})
    with pytest.raises(BadInput, match="timm format has no biases=no_qkv"):
        convert.expressed("timm", cfg, params)


@pytest.mark.parametrize("name", ["timm beit", "timm eva02"])
def test_another_norm_at_the_end_is_the_cause(tmp_path, name):
    of_tokens = {f"norm.{n}": values(n, (16,)) for n in ("weight", "bias")}
    of_pooled: dict = {f"fc_norm.{n}": None for n in ("weight", "bias")}
    said = refusal(tmp_path, name, tensors=of_tokens | of_pooled)
    assert "unknown names: norm.bias, norm.weight (" in said
    assert "do not have a norm before the pool (global_pool=token) in this family." in said


def test_pool_of_another_norm_at_the_end(tmp_path):
    said = refusal(tmp_path, "timm beit", {"global_pool": "token"})
    assert "its weights have pool=gap, its config.json says token; put the right one" in said


def test_bias_of_offsets_in_an_oblong_stays_a_run(tmp_path):
    found = convert.read(written(tmp_path, "timm beit"))
    cut = {n: a[: 7 * 5 + 3] if n.endswith("relative_bias") else a for n, a in found.flat.items()}
    with pytest.raises(BadInput, match="35 offsets are not those of a square"):
        convert.expressed("timm", found.config, tree.nested(cut))


@pytest.mark.parametrize("grid", [(2, 14), (5, 13), (13, 25)])
def test_bias_of_offsets_in_an_oblong_with_as_many_as_a_square_stays_a_run(tmp_path, grid):
    path = of_grid(tmp_path, "timm beit", *grid)
    model, params, _ = vit_jax.load(path)
    with pytest.raises(BadInput, match=f"of {grid[0]} x {grid[1]} patches would be taken for a"):
        convert.expressed("timm", model.cfg, params, size=convert.read(path).image_size)


def test_tensors_of_one_family_with_the_name_of_another(tmp_path):
    path = written(tmp_path, "dinov3")
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "dinov2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"those of dinov3_vit.*model_type=dinov2"):
        convert.read(path)


@pytest.mark.parametrize("name, other", [("timm dinov3", "dinov3"), ("dinov3", "timm dinov3")])
def test_configuration_of_the_other_library(tmp_path, name, other):
    path = written(tmp_path, name)
    (tmp_path / "config.json").write_text(json.dumps(GOLDEN[other]["config"]))
    with pytest.raises(BadInput, match=r"is of another library.*put the right one"):
        vit_jax.load(path, heads=2, image_size=SIDE)


def test_unknown_tensors_are_named_with_the_nearest_family(tmp_path):
    path = written(tmp_path, "dinov2")
    arrays = dict(safetensors.numpy.load_file(path))
    arrays["encoder.adapter.weight"] = np.zeros((2, 2), np.float32)
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(BadInput) as caught:
        convert.read(path)
    said = str(caught.value)
    assert "hf file of a dinov2 model; unknown names: encoder.adapter.weight (" in said
    assert "config.json says dinov2" in said


def changed(folder, name, config=None, tensors=None):
    """Writes a file of the library with another config.json, or with more tensors."""
    path = written(folder, name)
    content = json.loads((folder / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps(content))
    arrays = dict(safetensors.numpy.load_file(path)) | (tensors or {})
    safetensors.numpy.save_file({n: a for n, a in arrays.items() if a is not None}, path)
    return path


def read(*args, **kwargs):
    return convert.read(changed(*args, **kwargs), shapes_only=True)


def refusal(*args, **kwargs):
    with pytest.raises(BadInput) as caught:
        read(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_numbers_of_both_towers_are_left_out(tmp_path, name):
    more = {"logit_scale": np.float32(2.6), "text_model.embeddings.position_ids": np.arange(3)}
    more = {tensor: np.asarray(array) for tensor, array in more.items()}
    found = read(tmp_path / "both", name, tensors=more)
    assert found.config == read(tmp_path / "one", name).config


@pytest.mark.parametrize(
    "architecture, reason",
    [
        ("vit_base_patch16_rpn_224.sw_in1k", "a norm after each branch"),
        ("vit_base_patch16_rope_224", "other rotary positions"),
        ("eva02_base_patch16_clip_224", "a norm inside attention"),
        ("vit_pe_lang_large_patch14_448", "no norm after the blocks"),
        ("eva_giant_patch14_224", "separate biases of queries and values"),
        ("vit_base_patch16_radio_v3", "no norm after the blocks"),
        ("vit_intern300m_patch14_448", "no norm after the blocks"),
    ],
)
def test_architectures_whose_tensors_do_not_show_what_they_have(tmp_path, architecture, reason):
    said = refusal(tmp_path, "timm dinov2", {"architecture": architecture})
    assert f"{architecture.partition('.')[0]} is not read" in said
    assert reason in said


def test_option_that_takes_the_last_norm_away(tmp_path):
    args = GOLDEN["timm dinov2"]["config"]["model_args"] | {"final_norm": False}
    said = refusal(tmp_path, "timm dinov2", {"model_args": args})
    assert "no norm after the blocks" in said


@pytest.mark.parametrize("says_size", [True, False])
def test_position_embeddings_of_registers_are_added_to_these(tmp_path, says_size):
    plain = convert.read(written(tmp_path / "plain", "timm dinov2"))
    args = GOLDEN["timm dinov2"]["config"]["model_args"]
    args = args if says_size else {k: v for k, v in args.items() if k != "img_size"}
    name = "pos_embed"
    patches = plain.flat["posemb"][:, 1:]
    rows = values("rows", (1, 1 + plain.config.registers, patches.shape[-1]))
    embedding = np.concatenate([rows, patches], axis=1)
    path = changed(tmp_path / "rows", "timm dinov2", {"model_args": args}, {name: embedding})
    found = convert.read(path)
    assert found.config == plain.config
    np.testing.assert_array_equal(found.flat["posemb"], embedding[:, [0, *range(5, 21)]])
    want = plain.flat["registers"] + rows[:, 1:]
    np.testing.assert_array_equal(found.flat["registers"], want)


def test_image_size_of_another_model_is_said_once(tmp_path):
    args = GOLDEN["timm clip"]["config"]["model_args"] | {"img_size": 32}
    said = refusal(tmp_path, "timm clip", {"model_args": args})
    assert said.startswith("the weights are for 16 patches")
    assert not said.endswith("..")


def test_model_types_that_are_not_read(tmp_path):
    said = refusal(tmp_path / "a", "siglip", {"model_type": "siglip2_vision_model"})
    assert "its tensors are those of siglip or siglip_vision_model" in said
    said = refusal(tmp_path / "b", "clip", {"model_type": "metaclip_2"})
    assert "not a family that is read; the nearest" in said


def test_pooler_of_deit_is_left_out(tmp_path):
    more = {f"deit.pooler.dense.{name}": values(name, (16, 16)) for name in ("weight", "bias")}
    heads = {name: None for name in GOLDEN["deit"]["tensors"] if "classifier" in name}
    found = read(tmp_path, "deit", tensors=more | heads)
    assert (found.config.representation, found.classes) == (0, 0)
