# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Text towers of published files: transformers and big_vision."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import peer_libraries
import pytest
import tiny
from safetensors.numpy import save_file
from test_texts import WORDS, model

import vit_jax
from vit_jax import tree
from vit_jax.cli.main import main
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput
from vit_jax.inference import model as inference
from vit_jax.inference import towers
from vit_jax.models import variants
from vit_jax.models.naflex import Canvas
from vit_jax.step.siglip import Siglip
from vit_jax.weights import text_towers

spiece = model  # the fixture, under a name that no argument hides
SIZES = {"text_width": 16, "text_depth": 2, "text_mlp": 24, "text_heads": 2}
HF = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def objective(**more):
    return Siglip(text="custom", **SIZES, **{"length": 12} | more)


def own_parameters(given, features=16):
    shape = jax.ShapeDtypeStruct((1, features), jnp.float32)
    abstract = jax.eval_shape(lambda key: given.parameters(key, shape), jax.random.key(0))
    return {"objective": tiny.randomised(abstract)}


def randomised(peer):
    """Returns a SigLIP of transformers, ready to be used, with values that no start has."""
    torch = peer_libraries.load("torch")
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
        peer.logit_scale.fill_(1.5)
        peer.logit_bias.fill_(-2.0)
    return peer.eval()


def of_transformers(tmp_path, spiece, **text):
    transformers = peer_libraries.load("transformers")
    torch = peer_libraries.load("torch")
    config = transformers.SiglipConfig(
        text_config={**HF, "vocab_size": 70, "max_position_embeddings": 12,
                     "projection_size": 16, **text},
        vision_config={**HF, "image_size": 16, "patch_size": 4},
    )  # fmt: skip
    torch.manual_seed(0)
    peer = randomised(transformers.SiglipModel(config))
    peer.save_pretrained(tmp_path)
    return peer, tmp_path / "model.safetensors"


@pytest.mark.integration
def test_both_towers_of_transformers(tmp_path, spiece):
    """Embeddings, temperature and bias are those of SiglipModel, to 1e-4."""
    peer, path = of_transformers(tmp_path, spiece)
    torch = peer_libraries.load("torch")
    rng = np.random.default_rng(0)
    images = rng.normal(size=(3, 16, 16, 3)).astype(np.float32)
    tokens = rng.integers(0, 70, (3, 12))
    with torch.no_grad():
        wanted = peer(
            pixel_values=torch.tensor(images.transpose(0, 3, 1, 2)), input_ids=torch.tensor(tokens)
        )
    image_tower, params, _ = vit_jax.load(str(path))
    given, own = text_towers.of_file(str(path))
    assert (given.text_heads, given.length, given.loss) == (2, 12, "sigmoid")
    own = {"objective": tree.nested(own)}
    features = image_tower.apply({"params": params}, images)
    found = np.asarray(given.image_vectors(own, features))
    np.testing.assert_allclose(found, wanted.image_embeds.numpy(), atol=1e-4)
    texts = np.asarray(given.text_vectors(own, tokens))
    np.testing.assert_allclose(texts, wanted.text_embeds.numpy(), atol=1e-4)
    scale, bias = given.scale_and_bias(own)
    scores = found @ texts.T * np.asarray(scale) + np.asarray(bias)
    np.testing.assert_allclose(scores, wanted.logits_per_image.numpy(), atol=1e-3)


@pytest.mark.integration
@pytest.mark.parametrize("length", [5, 64])
def test_both_towers_of_naflex_of_transformers(tmp_path, length):
    """Similarities are those of Siglip2Model to 1e-4, for texts that 0 fills up to any length."""
    transformers, torch = peer_libraries.load("transformers"), peer_libraries.load("torch")
    config = transformers.Siglip2Config(
        text_config={**HF, "vocab_size": 70, "max_position_embeddings": length,
                     "projection_size": 16},
        vision_config={**HF, "num_patches": 16, "patch_size": 4},
    )  # fmt: skip
    torch.manual_seed(1)
    peer = randomised(transformers.Siglip2Model(config))
    peer.save_pretrained(tmp_path)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, 16, 16, 3)).astype(np.float32)
    tokens = rng.integers(2, 70, (4, length))
    for row, end in enumerate((0, 2, length - 1)):  # the last row is cut, and has no end
        tokens[row, end:] = 0
        tokens[row, end] = 1
    patches = images.reshape(2, 4, 4, 4, 4, 3).swapaxes(2, 3).reshape(2, 16, 48)
    with torch.no_grad():
        wanted = peer(
            input_ids=torch.tensor(tokens), pixel_values=torch.tensor(patches),
            pixel_attention_mask=torch.ones(2, 16, dtype=torch.int32),
            spatial_shapes=torch.tensor([[4, 4]] * 2),
        )  # fmt: skip
    path = str(tmp_path / "model.safetensors")
    tower, params, _ = vit_jax.load(path, image_size=16)
    canvas = Canvas(jnp.asarray(images), jnp.asarray([[4, 4]] * 2, jnp.int32))
    given, own = text_towers.of_file(path)
    assert given.length == length
    own = {"objective": tree.nested(own)}
    found = np.asarray(given.image_vectors(own, tower.apply({"params": params}, canvas)))
    texts = np.asarray(given.text_vectors(own, tokens))
    scale, bias = given.scale_and_bias(own)
    scores = found @ texts.T * np.asarray(scale) + np.asarray(bias)
    np.testing.assert_allclose(scores, wanted.logits_per_image.numpy(), atol=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("text", [*WORDS, "", "x" * 100, "  two   spaces ", "Naïve café?!"])
def test_tokens_are_those_of_transformers(spiece, text):
    """The tokens of SiglipTokenizer, which lower-cases and takes out punctuation."""
    transformers = peer_libraries.load("transformers")
    tokenizer = transformers.SiglipTokenizer(spiece, model_max_length=12)
    wanted = tokenizer(text, padding="max_length", max_length=12, truncation=True)["input_ids"]
    assert Texts(spiece, length=12, clean="canonical").tokens(text).tolist() == wanted


def in_big_vision(pool, bias, scanned):
    """An npz of two towers, our parameters of the text tower, and those of the image tower."""
    given = objective(pool=pool, loss="sigmoid" if bias else "softmax", embedding=16)
    own = own_parameters(given)["objective"]
    cfg = variants.config(variant="S/4", classes=0, pool="map", width=16, depth=2, mlp=24, heads=2)
    image = tiny.randomised(variants.shapes(cfg, 16, 16), seed=1)
    names = {"attn_norm": "LayerNorm_0", "mlp_norm": "LayerNorm_1", "norm": "encoder_norm"}
    names |= {"attn": "MultiHeadDotProductAttention_0", "up": "Dense_0", "down": "Dense_1"}

    def tower(params, prefix, encoder):
        found, layers = {}, {}
        for path, x in tree.leaves_with_paths(tree.unstack_blocks(params)):
            parts = path.split("/")
            if parts[0].startswith("block_"):
                rest = "/".join(names.get(p, "MlpBlock_0" if p == "mlp" else p) for p in parts[1:])
                layers.setdefault(rest, []).append(np.asarray(x))
            elif parts[0] == "map_head":
                inner = {"norm": "LayerNorm_0", "mlp": "MlpBlock_0"}
                rest = "/".join(inner.get(p, names.get(p, p)) for p in parts[1:])
                found[f"{prefix}/MAPHead_0/{rest}"] = np.asarray(x)
            elif parts[0] == "norm":
                found[f"{prefix}/{encoder}/encoder_norm/{parts[1]}"] = np.asarray(x)
            else:
                plain = {"posemb": "pos_embedding", "tokens": "Embed_0/embedding"}
                plain |= {"projection": "head"}
                first = plain.get(parts[0], parts[0])
                found[f"{prefix}/{'/'.join([first, *parts[1:]])}"] = np.asarray(x)
        for rest, each in layers.items():
            if scanned:
                found[f"{prefix}/{encoder}/encoderblock/{rest}"] = np.stack(each)
            else:
                found |= {
                    f"{prefix}/{encoder}/encoderblock_{i}/{rest}": x for i, x in enumerate(each)
                }
        return found

    arrays = tower(image, "params/img", "Transformer")
    arrays |= tower(own["text"], "params/txt", "Encoder_0")
    arrays |= {f"params/img/head/{k}": np.asarray(x) for k, x in own["projection"].items()}
    arrays["params/t"] = np.asarray(own["temperature"]).reshape(1)
    if bias:
        arrays["params/b"] = np.asarray(own["bias"]).reshape(1)
    return arrays, given, own, image


@pytest.mark.parametrize(
    "pool, bias, scanned", [("last", True, False), ("last", True, True), ("map", False, False)]
)
def test_both_towers_of_big_vision(tmp_path, pool, bias, scanned):
    arrays, given, own, image = in_big_vision(pool, bias, scanned)
    path = tmp_path / "both.npz"
    np.savez(path, **arrays)
    found, flat = text_towers.of_file(str(path))
    jax.tree.map(np.testing.assert_array_equal, tree.nested(flat), own)
    assert (found.pool, found.loss, found.text_heads) == (pool, given.loss, 2)
    assert (found.clean, found.pad) == ("canonical" if bias else "none", -1)  # as SigLIP, or LiT
    _, params, _ = vit_jax.load(str(path))
    params = {name: x for name, x in params.items() if name != "head"}
    jax.tree.map(np.testing.assert_array_equal, params, image)


def test_tokenizer_without_a_use_is_named(tmp_path, capsys):
    path = str(tmp_path / "plain.npz")
    cfg = variants.config(variant="S/4", classes=3, width=16, depth=1, mlp=24, heads=2)
    vit_jax.save(path, variants.make(cfg), tiny.randomised(variants.shapes(cfg, 16, 16)))
    words = ["evaluate", path, "--heads=2", "--image_size=16", "--tokenizer=bytes"]
    assert main([*words, "--data=digits", f"--out={tmp_path / 'out'}"]) == 2
    assert "it has none, so a tokenizer or keep_text has no use" in capsys.readouterr().err


def test_file_without_a_text_tower(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"vision_model.x": np.zeros(2, np.float32)}, path)
    with pytest.raises(BadInput, match="no text tower can be read: it has none"):
        text_towers.of_file(str(path))
    clip = {f"text_model.{n}": np.zeros(2, np.float32) for n in ("embeddings.x", "y", "z")}
    save_file(clip | {"text_projection.weight": np.zeros(2, np.float32)}, path)
    with pytest.raises(BadInput, match="are not known"):
        text_towers.of_file(str(path))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda a: a.pop("params/txt/pos_embedding"), "KeyError: 'posemb'"),
        (lambda a: a.pop("params/txt/head/bias"), "not whole"),
        (lambda a: a.pop("params/txt/Encoder_0/encoderblock_1/LayerNorm_0/bias"), "missing"),
        (lambda a: a.update({"params/t": np.zeros(2, np.float32)}), "t has shape"),
        (lambda a: a.update({"params/txt/Embed_0/embedding": np.zeros(3, np.float32)}), "whole"),
    ],
)
def test_damaged_text_tower_is_named(tmp_path, change, said):
    arrays = in_big_vision("last", True, False)[0]
    change(arrays)
    np.savez(tmp_path / "both.npz", **arrays)
    with pytest.raises(BadInput, match=said):
        text_towers.of_file(str(tmp_path / "both.npz"))


def safetensors(tmp_path, vocabulary, **described):
    """Writes a text tower of transformers, in zeros, and its config.json."""
    of = {"token_embedding": (vocabulary, 4), "position_embedding": (6, 4)}
    arrays = {f"embeddings.{name}.weight": shape for name, shape in of.items()}
    layer = "encoder.layers.0"
    dense = {f"{layer}.self_attn.{name}": (4, 4) for name in ("q_proj", "k_proj", "v_proj")}
    dense |= {f"{layer}.self_attn.out_proj": (4, 4), f"{layer}.mlp.fc1": (8, 4)}
    dense |= {f"{layer}.mlp.fc2": (4, 8), "head": (4, 4)}
    norms = {f"{layer}.layer_norm1": (4,), f"{layer}.layer_norm2": (4,), "final_layer_norm": (4,)}
    for name, shape in (dense | norms).items():
        arrays |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    arrays = {f"text_model.{name}": np.zeros(shape, np.float32) for name, shape in arrays.items()}
    arrays |= {"logit_scale": np.zeros(1, np.float32), "logit_bias": np.zeros(1, np.float32)}
    save_file(arrays, tmp_path / "model.safetensors")
    text = {"text_config": {"num_attention_heads": 2, **described}}
    (tmp_path / "config.json").write_text(json.dumps(text))
    return str(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "vocabulary, clean, pad",
    [(32_000, "canonical", -1), (250_000, "canonical", -1), (256_000, "lower", 0)],
)
def test_text_of_siglip_of_the_multilingual_one_and_of_siglip_2(tmp_path, vocabulary, clean, pad):
    found, _ = text_towers.of_file(safetensors(tmp_path, vocabulary))
    assert (found.clean, found.pad) == (clean, pad)


def test_another_arithmetic_is_named(tmp_path):
    path = safetensors(tmp_path, 9, layer_norm_eps=1e-5)
    with pytest.raises(BadInput, match=r"layer_norm_eps=1e-05 in config.json, expected") as e:
        text_towers.of_file(path)
    assert "again" not in str(e.value)


def test_tokenizer_with_more_tokens_than_the_file_is_refused(tmp_path):
    arrays = in_big_vision("last", True, False)[0]
    embedding = "params/txt/Embed_0/embedding"
    arrays[embedding] = arrays[embedding][:90]
    np.savez(tmp_path / "both.npz", **arrays)
    model = inference.open_model(str(tmp_path / "both.npz"), heads=2)
    with pytest.raises(BadInput, match="makes 258 different tokens, but the text tower has a voca"):
        towers.open_towers(str(tmp_path / "both.npz"), model, "bytes")
