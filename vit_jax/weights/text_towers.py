# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the text tower of a published file of two towers; `convert` reads its image tower.

SigLIP and SigLIP 2 from safetensors of transformers, and SigLIP and LiT from npz of big_vision and
of vision_transformer. Start from `of_file`.
"""

import dataclasses
import re
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import vit_config
from vit_jax.step.objective import PARAMETERS
from vit_jax.step.siglip import Siglip
from vit_jax.weights import convert, download, files
from vit_jax.weights.formats import json_config, name_table, npz
from vit_jax.weights.formats.name_table import (
    HEAD_BIAS,
    ROWS,
    Context,
    Flat,
    Format,
    Op,
    Rule,
    rule,
)
from vit_jax.weights.formats.timm import dense, heads, norm, out

_SCALAR = Op(lambda a, _: (a.reshape(()),), lambda a, _: a[0].reshape(1))
_LAYER = "text_model.encoder.layers.{i}"
_TRANSFORMERS: tuple[Rule, ...] = (
    rule("text_model.embeddings.token_embedding.weight", "tokens"),
    rule("text_model.embeddings.position_embedding.weight", "posemb", ROWS),
    *norm(f"{_LAYER}.layer_norm1", "block_{i}/attn_norm"),
    *heads(f"{_LAYER}.self_attn.q_proj", "block_{i}/attn", ("query",)),
    *heads(f"{_LAYER}.self_attn.k_proj", "block_{i}/attn", ("key",)),
    *heads(f"{_LAYER}.self_attn.v_proj", "block_{i}/attn", ("value",)),
    *out(f"{_LAYER}.self_attn.out_proj", "block_{i}/attn"),
    *norm(f"{_LAYER}.layer_norm2", "block_{i}/mlp_norm"),
    *dense(f"{_LAYER}.mlp.fc1", "block_{i}/mlp/up"),
    *dense(f"{_LAYER}.mlp.fc2", "block_{i}/mlp/down"),
    *norm("text_model.final_layer_norm", "norm"),
    *dense("text_model.head", "projection"),
    rule("logit_scale", "temperature", _SCALAR),
    rule("logit_bias", "bias", _SCALAR),
)
_BESIDE: tuple[Rule, ...] = (
    rule("t", "temperature", _SCALAR),
    rule("b", "bias", _SCALAR),
)
_BIG_VISION = dataclasses.replace(
    npz.BIG_VISION_VIT,
    rules=(*npz.BIG_VISION_VIT.rules, rule("Embed_0/embedding", "tokens"), *_BESIDE),
)
_TABLES = {".safetensors": Format("hf", "text", _TRANSFORMERS, {}), ".npz": _BIG_VISION}

# The BERT of flaxformer, whose kernels are matrices.
_HEADS_IN = Op(  # [D, N * K] to [D, N, K]
    lambda a, context: (a.reshape(len(a), context.heads, -1),),
    lambda a, _: a[0].reshape(len(a[0]), -1),
)
_HEADS_BACK = Op(  # [N * K, D] to [N, K, D]
    lambda a, context: (a.reshape(context.heads, -1, a.shape[-1]),),
    lambda a, _: a[0].reshape(-1, a[0].shape[-1]),
)
_ROOT, _EMBEDDED = "BertEncoder_0/", "BertEncoder_0/embedder/embedders_{}_ids/embedding"
_ATTENTION = f"{_ROOT}encoder_block/layer_sequence/layers_{{i}}/attention_block"
_MLP = f"{_ROOT}encoder_block/layer_sequence/layers_{{i}}/mlp_block"
_BERT = Format(
    "npz",
    "text",
    (
        rule(_EMBEDDED.format("token"), "tokens"),
        rule(_EMBEDDED.format("position"), "posemb", ROWS),
        rule(f"{_ROOT}layer_norm/{{sb}}", "stem_norm/{sb}"),
        *(
            one
            for name in ("query", "key", "value")
            for one in (
                rule(f"{_ATTENTION}/attention_layer/{name}/kernel",
                     f"block_{{i}}/attn/{name}/kernel", _HEADS_IN),
                rule(f"{_ATTENTION}/attention_layer/{name}/bias",
                     f"block_{{i}}/attn/{name}/bias", HEAD_BIAS),
            )
        ),
        rule(f"{_ATTENTION}/dense_layer/kernel", "block_{i}/attn/out/kernel", _HEADS_BACK),
        rule(f"{_ATTENTION}/dense_layer/bias", "block_{i}/attn/out/bias"),
        rule(f"{_ATTENTION}/layer_norm/{{sb}}", "block_{i}/attn_norm/{sb}"),
        rule(f"{_MLP}/mlp/dense_layer/{{kb}}", "block_{i}/mlp/up/{kb}"),
        rule(f"{_MLP}/dense_layer/{{kb}}", "block_{i}/mlp/down/{kb}"),
        rule(f"{_MLP}/layer_norm/{{sb}}", "block_{i}/mlp_norm/{sb}"),
        rule("head/{kb}", "head/{kb}"),
        *_BESIDE,
    ),
    {},
)  # fmt: skip
_BERT_HEAD = 64  # K of every BERT that was published; the file does not tell it
_BERT_LENGTH = 16  # tokens that LiT gives to BERT, which has positions for 512
# Values of a config.json that our text tower stands for.
_ARITHMETIC: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu_pytorch_tanh", "gelu_new"), "layer_norm_eps": (1e-6,),
}  # fmt: skip
_ALONE = ("temperature", "bias")  # beside the text tower
_GEMMA = 256_000  # tokens of SigLIP 2; those of the multilingual SigLIP are 250,000


def parameters(text: str) -> Flat:
    """Returns the parameters of the objective in a file, by their paths in a run."""
    return {f"{PARAMETERS}/{name}": array for name, array in of_file(text)[1].items()}


def of_file(text: str) -> tuple[Siglip, Flat]:
    """Returns the objective that a file of two towers stands for, and its own parameters.

    The tokenizer is left as `bytes`, because no file has it.

    Raises:
      BadInput: the file has no text tower, or one of another kind.
    """
    path = download.local(text)
    arrays = files.read(path)
    content: dict[str, Any] = {}
    projection: Flat = {}
    if path.suffix == ".npz":
        arrays, projection = _of_big_vision(arrays)
    else:
        content = files.read_json(path.with_name(json_config.NAME))
        arrays = {n: a for n, a in arrays.items() if re.match(r"text_|logit_", n)}
        arrays.pop("text_model.embeddings.position_ids", None)
    bert = _EMBEDDED.format("token") in arrays
    table = _BERT if bert else _TABLES[path.suffix]
    unknown = [name for name in arrays if table.rule_for(name) is None]
    if unknown or len(arrays) < 3:
        none = "it has none, so a tokenizer or keep_text has no use with it"
        problem = f"{', '.join(unknown[:4])} are not known" if unknown else none
        raise BadInput(
            f"{text}: no text tower can be read: {problem}. Those of SigLIP and SigLIP 2, and of "
            "big_vision's Transformer and BERT are."
        )
    try:
        heads = _described_heads(text, content.get("text_config", {}))
        heads = heads or _heads(text, path.suffix, arrays)
        flat = name_table.read(table, arrays, Context(heads))
        flat = {name: np.asarray(a, np.float32) for name, a in flat.items()}
        flat |= {f"projection/{n[5:]}": flat.pop(n) for n in [*flat] if n.startswith("head/")}
        objective = _objective(flat, projection)
        own = {name if name in _ALONE else f"text/{name}": array for name, array in flat.items()}
        own |= projection
        _check(text, objective, own)
    except BadInput:
        raise
    except (KeyError, IndexError, StopIteration, ValueError, TypeError, AttributeError) as e:
        raise BadInput(
            f"{text}: its text tower is not whole: {type(e).__name__}: {e}; fetch it again."
        ) from e
    return objective, own


def _described_heads(text: str, described: dict[str, Any]) -> int:
    """Returns the heads that a config.json tells, or 0; raises BadInput for another arithmetic.

    Args:
      text: the file, for messages.
      described: its `text_config`.
    """
    for key, (ours, *others) in _ARITHMETIC.items():
        if described.get(key, ours) not in (ours, *others):
            raise BadInput(
                f"{text}: its text tower cannot be read: {key}={described[key]!r} in "
                f"{json_config.NAME}, expected {ours!r}; give weights of that kind."
            )
    return int(described.get("num_attention_heads", 0))


def _check(text: str, objective: Siglip, own: Flat) -> None:
    """Raises BadInput if parameters are missing, left over or of another shape."""
    given = own["projection/kernel" if "projection/kernel" in own else "text/projection/bias"]
    output = jax.ShapeDtypeStruct((1, given.shape[0]), np.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    wanted = jax.eval_shape(lambda key: objective.parameters(key, output), key)
    if problem := tree.difference(tree.nested(own), wanted):
        raise BadInput(f"{text}: its text tower is not whole:\n{problem}\nFetch it again.")


def _of_big_vision(arrays: Flat) -> tuple[Flat, Flat]:
    """Returns the text tower under the names of an image tower, and the image's projection."""
    arrays = {name.removeprefix("params/"): array for name, array in arrays.items()}
    inside = {n.removeprefix("txt/"): a for n, a in arrays.items() if n.startswith("txt/")}
    inside = {re.sub("^Encoder_0/", "Transformer/", n): a for n, a in inside.items()}
    twice = inside.pop("Transformer/pos_embedding", None)  # older files added positions twice
    if twice is not None:
        inside["pos_embedding"] = inside["pos_embedding"] + twice
    segments = inside.pop(_EMBEDDED.format("segment"), None)  # a text has one segment, the first
    position = _EMBEDDED.format("position")
    if segments is not None and position in inside:
        inside[position] = inside[position][:_BERT_LENGTH] + segments[:1]
    found = convert.layers(inside) | {n: arrays[n] for n in ("t", "b") if n in arrays}
    names = {f"img/head/{part}": f"projection/{part}" for part in ("kernel", "bias")}
    return found, {ours: arrays[name] for name, ours in names.items() if name in arrays}


def _heads(text: str, suffix: str, arrays: Flat) -> int:
    """Returns the attention heads by the sizes of a file; big_vision's Transformer needs none."""
    if suffix == ".npz":
        tokens = arrays.get(_EMBEDDED.format("token"))
        return 0 if tokens is None else tokens.shape[1] // _BERT_HEAD
    width = arrays["text_model.embeddings.token_embedding.weight"].shape[1]
    up = "text_model.encoder.layers.{}.mlp.fc1.weight"
    depth = next(i for i in range(len(arrays)) if up.format(i) not in arrays)
    mlp = arrays[up.format(0)].shape[0]
    for name, (*sizes, number) in vit_config.SIZES.items():
        if sizes == [width, depth, mlp] and name != "b":
            return number
    raise BadInput(
        f"{text}: no file beside it says how many heads its text tower has; put its "
        f"{json_config.NAME} beside it."
    )


def _objective(flat: Flat, projection: Flat) -> Siglip:
    """Returns the objective with the sizes of a text tower, under our names."""
    vocabulary, width = flat["tokens"].shape
    depth = len({m[0] for m in (re.match(r"block_\d+/", name) for name in flat) if m})
    sizes = {
        "text_width": width, "text_depth": depth, "vocabulary": vocabulary,
        "text_mlp": flat["block_0/mlp/up/kernel"].shape[1],
        "text_heads": flat["block_0/attn/query/kernel"].shape[1],
        "length": flat["posemb"].shape[1],
        "embedding": projection["projection/kernel"].shape[1] if projection else 0,
    }  # fmt: skip
    loss = "sigmoid" if "bias" in flat else "softmax"
    how: dict[str, Any] = {"clean": "canonical"}
    pool = "map" if "map_head/probe" in flat else "last"
    if "stem_norm/scale" in flat:  # LiT with BERT
        how, pool = {"clean": "none", "pad": 0, "blocks": "bert"}, "first"
    elif loss == "softmax":  # LiT
        how = {"clean": "none"}
    elif vocabulary == _GEMMA:
        how = {"clean": "lower", "pad": 0}
    return Siglip(text="custom", pool=pool, loss=loss, **sizes, **how)
