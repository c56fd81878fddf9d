# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights of two towers, zero-shot classification and retrieval."""

import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import peer_libraries
import pictures
import pytest
import tiny
from safetensors.numpy import save_file
from test_texts import WORDS, model, table
from test_train_step import rules_of

import vit_jax
from vit_jax import tree
from vit_jax.build import objectives
from vit_jax.build import run as build_run
from vit_jax.cli.main import main
from vit_jax.config import load as config_lib
from vit_jax.data.tasks.test_sets import Evaluation
from vit_jax.data.texts import Texts
from vit_jax.errors import BadInput
from vit_jax.evaluators import retrieval, zero_shot
from vit_jax.inference import model as inference
from vit_jax.inference import towers
from vit_jax.models import text as text_lib
from vit_jax.models import variants
from vit_jax.step.siglip import Siglip
from vit_jax.weights import text_towers

ROOT = Path(__file__).parent.parent
spiece = model  # the fixture, under a name that no argument hides
SIZES = {"text_width": 16, "text_depth": 2, "text_mlp": 24, "text_heads": 2}
HF = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


# ---------------------------------------------------------------- retrieval


def test_recalls_by_hand():
    """Four images at angles; the texts of two images are swapped."""
    angles = np.array([0.0, 0.5, 1.1, 1.5])
    images = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    texts, pairs = retrieval.together([["a"], ["b", "c"], ["d"], ["e"]])
    assert texts == ["a", "b", "c", "d", "e"]
    assert pairs.tolist() == [[0, 0], [1, 1], [1, 2], [2, 3], [3, 4]]
    vectors = images[[0, 1, 3, 3, 2]]
    found = retrieval.recalls(images, vectors, pairs, at=(1, 2, 3))
    # Images 0 and 1 find theirs first; before that of image 2 come e and c, before e c and d.
    assert [found[f"text_at_{k}"] for k in (1, 2, 3)] == [2 / 4, 2 / 4, 1.0]
    # Before image 1 of c come two others, before that of d and of e one.
    assert [found[f"image_at_{k}"] for k in (1, 2, 3)] == [2 / 5, 4 / 5, 1.0]


def test_equal_texts_are_one_and_equal_vectors_are_no_success():
    texts, pairs = retrieval.together([["a"], ["a"], ["b"]])
    assert (texts, pairs.tolist()) == (["a", "b"], [[0, 0], [1, 0], [2, 1]])
    same = np.ones((3, 2), np.float32) / np.sqrt(np.float32(2))
    found = retrieval.recalls(same, same[:2], pairs, at=(1,))
    assert found == {"text_at_1": 0.0, "image_at_1": 0.0}
    rng = np.random.default_rng(0)
    many = rng.normal(size=(2500, 8)).astype(np.float32)
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    own = np.stack([np.arange(2500)] * 2, axis=1)
    assert set(retrieval.recalls(many, many, own).values()) == {1.0}  # in several chunks


def test_vectors_that_are_not_finite_are_refused():
    good, pairs = np.eye(3, dtype=np.float32), np.stack([np.arange(3)] * 2, axis=1)
    bad = np.where(good[:, :1] > 0, np.nan, good)
    with pytest.raises(BadInput, match="vectors of 1 of 3 texts are not finite"):
        retrieval.recalls(good, bad, pairs)
    with pytest.raises(BadInput, match="vectors of 1 of 3 images are not finite"):
        retrieval.recalls(bad, good, pairs)


# ---------------------------------------------------------------- zero-shot


def objective(**more):
    return Siglip(text="custom", **SIZES, **{"length": 12} | more)


def own_parameters(given, features=16):
    shape = jax.ShapeDtypeStruct((1, features), jnp.float32)
    abstract = jax.eval_shape(lambda key: given.parameters(key, shape), jax.random.key(0))
    return {"objective": tiny.randomised(abstract)}


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 8, 1, 1)])
def test_zero_shot_by_hand(shape):
    given, rules = objective(embedding=5), rules_of(shape)
    params = own_parameters(given)
    features = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    names, templates = ("red_car", "sea"), ("a {}", "the {}.")
    found = zero_shot.logits(given, params, rules, features, names, templates)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    tower = text_lib.TextTower(given._tower(vocabulary=258, outputs=5))
    means = []
    for name in ("red car", "sea"):
        tokens = np.stack([Texts(length=12).tokens(t.replace("{}", name)) for t in templates])
        vectors = tower.apply({"params": params["objective"]["text"]}, tokens)
        means.append(unit(unit(np.asarray(vectors)).mean(axis=0)))
    own = numpy_vit.as_float64(params["objective"])
    images = unit(features @ own["projection"]["kernel"] + own["projection"]["bias"])
    expected = np.exp(own["temperature"]) * images @ np.stack(means).T + own["bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_scores_of_tokens_without_a_vector_are_refused():
    given = objective(vocabulary=90, embedding=5)
    params, features = own_parameters(given), np.ones((3, 16), np.float32)
    with pytest.raises(BadInput, match="vectors of 2 of 2 texts are not finite"):
        zero_shot.logits(given, params, rules_of((1, 1, 1, 1)), features, ("zoo", "sea"), ("{}",))


# ---------------------------------------------------------------- weights


def of_transformers(tmp_path, spiece, **text):
    transformers = peer_libraries.load("transformers")
    torch = peer_libraries.load("torch")
    config = transformers.SiglipConfig(
        text_config={**HF, "vocab_size": 70, "max_position_embeddings": 12,
                     "projection_size": 16, **text},
        vision_config={**HF, "image_size": 16, "patch_size": 4},
    )  # fmt: skip
    torch.manual_seed(0)
    peer = transformers.SiglipModel(config).eval()
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
        peer.logit_scale.fill_(1.5)
        peer.logit_bias.fill_(-2.0)
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


# ---------------------------------------------------------------- commands


SHORT = ["--config.length=2 steps", "--config.batch_size=8", "--config.schedule.warmup=0",
         "--config.report.writers=()", "--config.report.page=false"]  # fmt: skip


def run(workdir, *more, text="length=12, vocabulary=258"):
    sizes = ", ".join(f"{name}={value}" for name, value in SIZES.items())
    words = ["train", "--config=configs/contrastive.py", f"--workdir={workdir}", *SHORT,
             "--config.data.views=", "--config.data.image_size=16", "--config.model.width=16",
             "--config.data.train_ops=decode|resize({size})", "--config.model.depth=2",
             "--config.model.mlp=24", "--config.model.heads=2", "--config.model.pool=map",
             f"--config.objective=siglip(text='custom', {sizes}, {text})"]  # fmt: skip
    return main([*words, *more])


@pytest.mark.integration
def test_init_from_a_file_keeps_both_towers_and_the_locked_one_stays(tmp_path, capsys):
    arrays, _, own, image = in_big_vision("last", True, False)
    np.savez(tmp_path / "both.npz", **arrays)
    rows = [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(20))]
    spec, rng = table(tmp_path, rows), np.random.default_rng(0)
    for k in range(20):
        pixels = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        (tmp_path / f"{k}.png").write_bytes(pictures.encode(pixels))
    text = "length=12, embedding=16, vocabulary=258, keep_text=True"
    init = [f"--config.data.source={spec}", f"--config.init={tmp_path / 'both.npz'}"]
    init += ["--config.schedule.lr=1e-9"]
    assert run(tmp_path / "run", *init, "--config.trainable=head", text=text) == 0
    capsys.readouterr()
    from vit_jax.weights import loading

    flat = loading.read_weights(str(tmp_path / "run")).flat
    for path, x in tree.leaves_with_paths(own):
        np.testing.assert_allclose(flat[f"objective/{path}"], x, atol=1e-6, err_msg=path)
    for path, x in tree.leaves_with_paths(tree.unstack_blocks(image)):
        np.testing.assert_array_equal(flat[path], x, err_msg=path)

    out, found = f"--out={tmp_path / 'out'}", {}
    other = shutil.copy(tmp_path / "x.csv", tmp_path / "y.csv")  # of which the run holds none out
    for weights in ([str(tmp_path / "run")], [str(tmp_path / "both.npz"), "--tokenizer=bytes"]):
        words = ["evaluate", *weights, f"--data=csv:{other}", "--retrieval", out]
        assert main([*words, "--heads=2"] if "both" in weights[0] else words) == 0
        found[weights[0]] = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    one, two = ({k: v for k, v in f.items() if "_at_" in k} for f in found.values())
    assert len(one) == 6
    assert one == pytest.approx(two)
    assert 0 < one["text_at_5"] < 1
    assert 0 < one["image_at_5"] < 1
    run_model, file_model = (f["model"] for f in found.values())
    assert run_model == {"image_size": 16, "tokenizer": "bytes", "clean": "none", "pad": -1}
    content = (tmp_path / "both.npz").read_bytes()
    assert file_model["sha256"] == hashlib.sha256(content).hexdigest()
    assert file_model["clean"] == "canonical"
    assert "recall at" in capsys.readouterr().out


@pytest.mark.integration
def test_zero_shot_of_a_run_and_what_is_refused(tmp_path, capsys, image_folder):
    text = "length=12, template='a {}'"
    ops, source = "decode|resize({size})", f"folder:{image_folder}"
    while_training = [f"--config.data.eval_ops={ops}", f"--config.fewshot.ops={ops}"]
    while_training += [f"--config.fewshot.sources=(('own', '{source}'),)"]
    while_training += ["--config.fewshot.method=zero_shot", "--config.fewshot.batch_size=8"]
    while_training += ["--config.length=30 steps", "--config.schedule.lr=3e-3"]
    more = [f"--config.data.source={source}", *while_training]
    assert run(tmp_path / "run", *more, text=text) == 0
    out = f"--out={tmp_path / 'out'}"
    assert main(["evaluate", str(tmp_path / "run"), out]) == 0
    evaluated = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    trained = json.loads((tmp_path / "run" / "results.json").read_text())["fewshot_own"]
    assert trained == {"zero_shot": evaluated["top1"], "examples": evaluated["examples"]}
    assert trained["zero_shot"] > 0
    assert main(["evaluate", str(tmp_path / "run"), "--templates=the {}", out]) == 0
    assert "top-1" in capsys.readouterr().out
    assert (tmp_path / "out" / "evaluation.html").exists()
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())["model"]
    assert (found["tokenizer"], found["zero_shot"]) == ("bytes", ["the {}"])
    for more, said in {
        "--retrieval": "have no texts; give a source with texts",
        "--templates=no name": "has no {} for the name of a class",
        "--labels=x.json": "--labels has no use with",
        "--tokenizer=absent.model": "absent.model' cannot be read",
    }.items():
        assert main(["evaluate", str(tmp_path / "run"), more, out]) == 2
        assert re.search(re.escape(said), capsys.readouterr().err)


@pytest.mark.integration
def test_commands_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, image_folder):
    monkeypatch.chdir(tmp_path)
    rows = [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(30))]
    captions = table(tmp_path, rows).removeprefix("csv:")
    text = (ROOT / "docs" / "siglip.md").read_text()
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"^vit_jax (.*)$", blocks, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "evaluate", "evaluate", "train",
                                                "evaluate", "train"]  # fmt: skip
    short = [*SHORT, "--config.evals.val.batch_size=8", "--config.evals.test.batch_size=8"]
    for command in commands:
        command = command.replace("/path/to/images", str(image_folder))
        command = command.replace("/path/to/captions.csv", captions)
        words = shlex.split(command.replace("configs/", f"{ROOT}/configs/"))
        assert main([*words, *(short if words[0] == "train" else [])]) == 0, command
    assert json.loads(Path("runs/retrieval/evaluation.json").read_text())["images"] > 0
    from vit_jax.weights import loading

    locked, before = (loading.read_weights(f"runs/{name}").flat for name in ("lit", "siglip"))
    for name, x in before.items():
        if not name.startswith("objective/"):
            np.testing.assert_array_equal(locked[name], x, err_msg=name)
    saved = Path("runs/lit/checkpoints")
    assert not [p for p in saved.rglob("*") if "embedding" in p.name]


@pytest.mark.parametrize(
    "args, parts",
    [
        (["objective=siglip(text='Q')"], ["size of a text tower", "custom"]),
        (["objective=siglip(tokenizer='absent.model')"], ["absent.model' cannot be read"]),
        (["objective=siglip(template='none', text='Ti')"], ["template='none' has no {}"]),
        (["objective=siglip(text='Ti')"], ["have no text, only image, labels"]),
        (["fewshot.method=zero_shot", "objective=auto", "model.pool=gap"], ["needs a text tower"]),
        (
            ["objective=siglip(text='Ti', template='{}', vocabulary=100)"],
            ["makes 258 different tokens", "a vocabulary of 100", "vocabulary=258"],
        ),
        (["evals.test.classes=present"], ["evals.test.classes='present'", "learns none"]),
        (["data.views=view*2: decode"], ["siglip(", "takes image"]),
        (["loss.name=sigmoid"], ["loss.name='sigmoid'", "no use"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path, capsys, image_folder, args, parts
):
    workdir = tmp_path / "run"
    more = [f"--config.{arg}" for arg in args]
    assert run(workdir, f"--config.data.source=folder:{image_folder}", *more) == 2
    said = capsys.readouterr().err
    assert [part for part in parts if part not in said] == []
    assert "Traceback" not in said
    assert not workdir.exists()


def test_evaluation_whose_classes_are_others_has_no_texts():
    columns = {"own": Evaluation({}), "few": Evaluation({}, np.array([[0, 1], [2, -1]]))}
    objectives.check_texts(Siglip(), columns)
    with pytest.raises(BadInput, match=r"evals\.few: each class of its images stands for several"):
        objectives.check_texts(Siglip(template="a {}"), columns)


def test_labels_are_needed_to_learn_classes(tmp_path, capsys):
    spec = table(tmp_path, [["path", "text"], *([f"{k}.png", f"text {k}"] for k in range(30))])
    words = ["train", "--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}", *SHORT]
    assert main([*words, f"--config.data.source={spec}"]) == 2
    assert "has no labels, and objective=auto learns classes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "recipe", ["", ":texts=true", ":paper=siglip", ":paper=siglip,standin=true", ":loss=softmax"]
)
def test_recipe_is_a_valid_configuration(recipe):
    build_run.check(config_lib.load(f"configs/siglip.py{recipe}"))


@pytest.mark.integration
def test_branch_goes_on_bit_for_bit_with_the_same_texts(tmp_path):
    rows = [["path", "text"], *([f"{k}.png", f"a {k}\nb {k}\nc {k}"] for k in range(30))]
    data = [f"--config.data.source={table(tmp_path, rows)}", "--config.length=4 steps"]
    data += ["--config.checkpoint.every=2 steps", "--config.checkpoint.keep_every=2 steps"]
    assert run(tmp_path / "whole", *data) == 0
    assert run(tmp_path / "cut", *data, f"--branch={tmp_path / 'whole'}@2") == 0
    from vit_jax.weights import loading

    one, two = (loading.read_weights(f"{tmp_path / name}@4").flat for name in ("whole", "cut"))
    assert one.keys() == two.keys()
    for name, x in one.items():
        np.testing.assert_array_equal(x, two[name], err_msg=name)
