# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""LiT with BERT: files of vision_transformer, with the names of flaxformer's BERT."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import numpy_vit
import peer_libraries
import pytest
import tiny
from test_tokenizers import PIECES, vocabulary

import vit_jax
from vit_jax import tree
from vit_jax.cli.main import main
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput
from vit_jax.inference import model as inference
from vit_jax.inference import towers
from vit_jax.models import variants
from vit_jax.step.siglip import Siglip
from vit_jax.weights import text_towers

pieces = vocabulary  # the fixture, under a name that no argument hides
WIDTH, MLP, DEPTH, HEADS, OUTPUTS = 128, 40, 2, 2, 12
TOKENS = np.array([[2, 5, 7, 9, *[0] * 12], [2, *range(4, 19)], [2, *[0] * 15]])  # 0 fills up


def bert(seed=0, positions=20):
    """The arrays of flaxformer's BertEncoder and of the head, whose kernels are matrices."""
    rng = np.random.default_rng(seed)
    shapes = {
        "embedder/embedders_token_ids/embedding": (len(PIECES), WIDTH),
        "embedder/embedders_position_ids/embedding": (positions, WIDTH),
        "embedder/embedders_segment_ids/embedding": (2, WIDTH),
        "layer_norm/scale": (WIDTH,), "layer_norm/bias": (WIDTH,),
    }  # fmt: skip
    for i in range(DEPTH):
        layer = f"encoder_block/layer_sequence/layers_{i}"
        dense = {f"attention_block/attention_layer/{n}": (WIDTH, WIDTH)
                 for n in ("query", "key", "value")}  # fmt: skip
        dense |= {
            "attention_block/dense_layer": (WIDTH, WIDTH),
            "mlp_block/dense_layer": (MLP, WIDTH),
        }
        dense |= {"mlp_block/mlp/dense_layer": (WIDTH, MLP)}
        for name, shape in dense.items():
            shapes |= {f"{layer}/{name}/kernel": shape, f"{layer}/{name}/bias": shape[1:]}
        for name in ("attention_block", "mlp_block"):
            shapes |= {f"{layer}/{name}/layer_norm/{n}": (WIDTH,) for n in ("scale", "bias")}
    shapes = {f"txt/BertEncoder_0/{name}": shape for name, shape in shapes.items()}
    shapes |= {"txt/head/kernel": (WIDTH, OUTPUTS), "txt/head/bias": (OUTPUTS,), "t": (1,)}
    return {n: rng.normal(0, 0.2, shape).astype(np.float32) for n, shape in shapes.items()}


def written(tmp_path, arrays):
    np.savez(tmp_path / "LiT.npz", **arrays)
    return str(tmp_path / "LiT.npz")


def by_hand(arrays, tokens):
    """BERT's vector of one text without what fills it up, and its projection, in float64."""
    weights = tree.nested(numpy_vit.as_float64(arrays))["txt"]
    encoder = weights["BertEncoder_0"]
    words, places, segments = (
        encoder["embedder"][f"embedders_{n}_ids"]["embedding"]
        for n in ("token", "position", "segment")
    )

    def norm(x, w):
        return numpy_vit.layer_norm(x, w["layer_norm"], 1e-12)

    z = norm((words[tokens] + places[: len(tokens)] + segments[0])[None], encoder)
    for i in range(DEPTH):
        layer = encoder["encoder_block"]["layer_sequence"][f"layers_{i}"]
        block, mlp = layer["attention_block"], layer["mlp_block"]
        attention = {
            name: {"kernel": w["kernel"].reshape(WIDTH, HEADS, -1),
                   "bias": w["bias"].reshape(HEADS, -1)}
            for name, w in block["attention_layer"].items()
        }  # fmt: skip
        out = block["dense_layer"]
        attention["out"] = out | {"kernel": out["kernel"].reshape(HEADS, -1, WIDTH)}
        z = norm(z + numpy_vit._attention(z, z, attention, []), block)
        both = {"up": mlp["mlp"]["dense_layer"], "down": mlp["dense_layer"]}
        z = norm(z + numpy_vit.mlp(z, both, "tanh"), mlp)
    return numpy_vit.linear(z[0, 0], weights["head"])


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.integration
def test_bert_of_a_file_by_hand(tmp_path):
    """The first token stands for the text, and nothing reads what fills a text up."""
    arrays = bert()
    given, own = text_towers.of_file(written(tmp_path, arrays))
    assert (given.blocks, given.pool, given.pad, given.clean) == ("bert", "first", 0, "none")
    assert (given.text_heads, given.length, given.loss) == (HEADS, 16, "softmax")
    params = {"objective": tree.nested(own)}
    found = np.asarray(given.text_vectors(params, TOKENS))
    real = [row[row > 0] for row in TOKENS]
    wanted = unit(np.stack([by_hand(arrays, row) for row in real]))
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    np.testing.assert_allclose(given.scale_and_bias(params)[0], np.exp(arrays["t"][0]), rtol=1e-6)


@pytest.mark.integration
def test_bert_of_a_file_is_that_of_transformers(tmp_path):
    """The text tower gives the vectors of torch's BertModel with the same random weights."""
    transformers, torch = peer_libraries.load("transformers"), peer_libraries.load("torch")
    arrays = bert(seed=1)
    config = transformers.BertConfig(
        vocab_size=len(PIECES), hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=DEPTH,
        num_attention_heads=HEADS, max_position_embeddings=20, hidden_act="gelu_new",
    )  # fmt: skip
    peer = transformers.BertModel(config, add_pooling_layer=False).eval()
    parts = {
        "embeddings.word_embeddings": "embedder/embedders_token_ids",
        "embeddings.position_embeddings": "embedder/embedders_position_ids",
        "embeddings.token_type_embeddings": "embedder/embedders_segment_ids",
        "embeddings.LayerNorm": "layer_norm",
    }
    inside = {
        **{f"attention.self.{n}": f"attention_block/attention_layer/{n}"
           for n in ("query", "key", "value")},
        "attention.output.dense": "attention_block/dense_layer",
        "attention.output.LayerNorm": "attention_block/layer_norm",
        "intermediate.dense": "mlp_block/mlp/dense_layer",
        "output.dense": "mlp_block/dense_layer", "output.LayerNorm": "mlp_block/layer_norm",
    }  # fmt: skip
    for i in range(DEPTH):
        layer = f"encoder_block/layer_sequence/layers_{i}"
        parts |= {f"encoder.layer.{i}.{n}": f"{layer}/{ours}" for n, ours in inside.items()}
    state = {}
    for theirs, ours in parts.items():
        for name, array in arrays.items():
            if name.startswith(f"txt/BertEncoder_0/{ours}/"):
                kind = name.rsplit("/", 1)[1]
                array = array.T if kind == "kernel" else array
                state[f"{theirs}.{'bias' if kind == 'bias' else 'weight'}"] = torch.tensor(array)
    assert len(state) == len([name for name in arrays if "Bert" in name])
    peer.load_state_dict(state)
    ids = torch.tensor(TOKENS)
    with torch.no_grad():
        first = peer(input_ids=ids, attention_mask=(ids > 0).long()).last_hidden_state[:, 0].numpy()
    wanted = unit(first @ arrays["txt/head/kernel"] + arrays["txt/head/bias"])
    given, own = text_towers.of_file(written(tmp_path, arrays))
    found = np.asarray(given.text_vectors({"objective": tree.nested(own)}, TOKENS))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def image_tower(projected):
    """A ViT with a class token under vision_transformer's names, and with or without a head."""
    classes = OUTPUTS if projected else 0
    cfg = variants.config(
        variant="S/4", classes=classes, pool="token", width=OUTPUTS, depth=1, mlp=24, heads=2
    )
    return cfg, tiny.randomised(variants.shapes(cfg, 16, 16), seed=2)


@pytest.mark.integration
@pytest.mark.parametrize("projected", [True, False], ids=["LiT-B16B", "LiT-L16L"])
def test_both_towers_of_lit(tmp_path, pieces, projected):
    """The image tower has a class token; that of LiT-B16B also has a head."""
    cfg, params = image_tower(projected)
    vit_jax.save(str(tmp_path / "image.npz"), variants.make(cfg), params)
    with np.load(tmp_path / "image.npz") as file:
        image = {f"img/{name}": file[name] for name in file.files}
    assert "img/Transformer/posembed_input/pos_embedding" in image
    assert ("img/head/kernel" in image) == projected
    path = written(tmp_path, bert() | image)
    model = inference.open_model(path, heads=2)
    both = towers.open_towers(path, model, pieces)
    assert both.objective.embedding == (OUTPUTS if projected else 0)
    lines = ["A photo, a Cats!", "Naïve CAFÉ"]
    tokens = [Texts(pieces, length=16).tokens(line) for line in lines]
    wanted = unit(np.stack([by_hand(bert(), row[row > 0]) for row in tokens]))
    np.testing.assert_allclose(both.texts(lines), wanted, atol=2e-5)
    pixels = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype(np.float32)
    without = {name: x for name, x in params.items() if name != "head"}
    hand = numpy_vit.forward(tree.unstack_blocks(without), pixels, patch=4, pool="token")
    if projected:
        hand = numpy_vit.linear(hand, numpy_vit.as_float64(params["head"]))
    _, theirs, _ = vit_jax.load(path, heads=2)
    theirs = {name: x for name, x in theirs.items() if name != "head"}
    features = variants.make(dataclasses.replace(cfg, classes=0)).apply({"params": theirs}, pixels)
    vectors = np.asarray(both.objective.image_vectors(both.own, features))
    np.testing.assert_allclose(vectors, unit(hand), atol=2e-5)


@pytest.mark.integration
def test_command_of_the_page(tmp_path, pieces, image_folder):
    """The command for LiT in docs/siglip.md, with other files, classifies images."""
    page = (Path(__file__).parent.parent / "docs" / "siglip.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"`vit_jax (evaluate LiT.*?)`", page)
    cfg, params = image_tower(projected=True)
    vit_jax.save(str(tmp_path / "image.npz"), variants.make(cfg), params)
    with np.load(tmp_path / "image.npz") as file:
        image = {f"img/{name}": file[name] for name in file.files}
    command = command.replace("LiT-B16B.npz", written(tmp_path, bert() | image))
    command = command.replace("LiT-B16B.txt", pieces)
    command = command.replace("tfds:imagenet_v2", f"folder:{image_folder}")
    command = command.replace("--out=zero_shot", f"--out={tmp_path / 'out'}")
    assert main([*command.split(), "--image_size=16"]) == 0
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert 0 <= found["top1"] <= 1
    assert (found["model"]["clean"], found["model"]["pad"]) == ("none", 0)


@pytest.mark.parametrize(
    "name, said",
    [
        ("BertEncoder_0/layer_norm/bias", "missing"),
        ("BertEncoder_0/embedder/embedders_position_ids/embedding", "not whole"),
        (
            "BertEncoder_0/encoder_block/layer_sequence/layers_1/mlp_block/layer_norm/scale",
            "missing",
        ),
        ("head/kernel", "not whole"),
    ],
)
def test_damaged_bert_is_named(tmp_path, name, said):
    arrays = bert()
    del arrays[f"txt/{name}"]
    with pytest.raises(BadInput, match=said):
        text_towers.of_file(written(tmp_path, arrays))


def test_blocks_that_do_not_exist():
    with pytest.raises(ValueError, match="blocks='gpt'; give vit or bert"):
        Siglip(blocks="gpt")
