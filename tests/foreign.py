# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weight files as others write them, spelled out by hand from the facts; uses no table of ours.

A model's weights are nested dicts of numpy arrays in the loop layout (`block_0`, ...), a file is a
dict of its names. Start from `random` and one of the functions named after a kind of file.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.models import variants

Weights = dict[str, Any]
File = dict[str, np.ndarray]

ENCODER = {"width": 32, "depth": 2, "mlp": 48, "heads": 4, "classes": 7}
RESNET = {"stages": (2, 1), "root_width": 32}


def vit(**changes: Any) -> variants.Config:
    """4 x 4 pixels per token."""
    return variants.config(**{"variant": "custom/4"} | ENCODER | changes)


def hybrid(**changes: Any) -> variants.Config:
    """Three units; 8 x 8 pixels per token."""
    return variants.config(**{"variant": "R+custom/8"} | ENCODER | RESNET | changes)


def bit(**changes: Any) -> variants.Config:
    return variants.config(**{"variant": "BiT-custom", "classes": 7} | RESNET | changes)


def mixer(**changes: Any) -> variants.Config:
    sizes = {"width": 32, "depth": 2, "mlp": 48, "token_mlp": 20, "classes": 7}
    return variants.config(**{"variant": "Mixer-custom/4"} | sizes | changes)


# ---------------------------------------------------------------- weights of ours


@functools.lru_cache
def _zeros(cfg: variants.Config, height: int, width: int) -> Weights:
    shapes = variants.shapes(cfg, height, width)
    zeros = jax.tree.map(lambda leaf: np.broadcast_to(np.float32(0), leaf.shape), shapes)
    return tree.unstack_blocks(zeros)


def zeros(cfg: variants.Config, height: int, width: int) -> Weights:
    """Shapes that take no memory."""
    return jax.tree.map(lambda leaf: leaf, _zeros(cfg, height, width))


def random(cfg: variants.Config, height: int, width: int, seed: int = 0) -> Weights:
    """float32, nothing at its initial value, outputs of moderate size."""
    rng = np.random.default_rng(seed)

    def one(path: str, leaf: Any) -> np.ndarray:
        kind, shape = path.split("/")[-1], leaf.shape
        inputs = shape[:1] if path.split("/")[-2:-1] in (["query"], ["key"], ["value"]) else None
        gain = 1.5 / np.sqrt(np.prod(inputs or shape[:-1])) if kind == "kernel" else 0.3
        return (rng.normal(size=shape) * gain + (kind == "scale")).astype(np.float32)

    return tree.map_with_path(one, _zeros(cfg, height, width))


def flat(weights: Weights) -> File:
    return dict(tree.leaves_with_paths(weights))


@functools.lru_cache
def _forward(cfg: variants.Config) -> Any:
    model = variants.make(cfg)
    return jax.jit(lambda params, images: model.apply({"params": params}, images))


def logits(cfg: variants.Config, params: Any, images: np.ndarray) -> np.ndarray:
    with jax.default_matmul_precision("highest"):
        return np.asarray(_forward(cfg)(params, images))


def images(height: int, width: int, batch: int = 2) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=(batch, height, width, 3)).astype(np.float32)


def assert_same(found: Any, expected: Any) -> None:
    """Trees or files with equal names and bits."""
    found, expected = flat(found), flat(expected)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# ---------------------------------------------------------------- npz


def npz(path: Path, file: File) -> Path:
    np.savez(path, **file)
    return path


def _layers(p: Weights) -> range:
    return range(sum(name.startswith("block_") for name in p))


def _units(p: Weights) -> list[tuple[int, int, Weights]]:
    """Stage, unit (both from 1 on) and weights."""
    found = []
    for name, unit in p["backbone"].items():
        if name.startswith("stage"):
            stage, number = name.removeprefix("stage").split("_unit")
            found.append((int(stage), int(number), unit))
    return found


def _kernel_bias(prefix: str, dense: Weights) -> File:
    return {f"{prefix}/kernel": dense["kernel"], f"{prefix}/bias": dense["bias"]}


def _scale_bias(prefix: str, norm: Weights) -> File:
    return {f"{prefix}/scale": norm["scale"], f"{prefix}/bias": norm["bias"]}


def _scale_bias_4d(prefix: str, norm: Weights) -> File:
    return {n: x.reshape(1, 1, 1, len(x)) for n, x in _scale_bias(prefix, norm).items()}


def _attention(prefix: str, attention: Weights) -> File:
    file: File = {}
    for name in ("query", "key", "value", "out"):
        file |= _kernel_bias(f"{prefix}/{name}", attention[name])
    return file


def _linen_encoder(p: Weights, attention: str, second_norm: str, mlp: str) -> File:
    file: File = {}
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"Transformer/encoderblock_{i}"
        file |= _scale_bias(f"{prefix}/LayerNorm_0", block["attn_norm"])
        file |= _attention(f"{prefix}/{attention}", block["attn"])
        file |= _scale_bias(f"{prefix}/{second_norm}", block["mlp_norm"])
        file |= _kernel_bias(f"{prefix}/{mlp}/Dense_0", block["mlp"]["up"])
        file |= _kernel_bias(f"{prefix}/{mlp}/Dense_1", block["mlp"]["down"])
    return file | _scale_bias("Transformer/encoder_norm", p["norm"])


def _ends(p: Weights) -> File:
    file = _kernel_bias("embedding", p["embedding"])
    if "cls" in p:
        file["cls"] = p["cls"]
    for name in ("pre_logits", "head"):
        if name in p:
            file |= _kernel_bias(name, p[name])
    return file


def original_vit(p: Weights, *, linen: bool = False) -> File:
    """google-research/vision_transformer, hybrids too; published files have the older numbers."""
    numbers = (0, 1, 0) if linen else (1, 2, 3)
    file = _ends(p) | _linen_encoder(
        p,
        f"MultiHeadDotProductAttention_{numbers[0]}",
        f"LayerNorm_{numbers[1]}",
        f"MlpBlock_{numbers[2]}",
    )
    if "posemb" in p:
        file["Transformer/posembed_input/pos_embedding"] = p["posemb"]
    if "backbone" in p:
        file["conv_root/kernel"] = p["backbone"]["conv_root"]["kernel"]
        file |= _scale_bias_4d("gn_root", p["backbone"]["norm_root"])
        for stage, number, unit in _units(p):
            prefix = f"block{stage}/unit{number}"
            for n in (1, 2, 3):
                file[f"{prefix}/conv{n}/kernel"] = unit[f"conv{n}"]["kernel"]
                file |= _scale_bias_4d(f"{prefix}/gn{n}", unit[f"norm{n}"])
            if "conv_proj" in unit:
                file[f"{prefix}/conv_proj/kernel"] = unit["conv_proj"]["kernel"]
                file |= _scale_bias_4d(f"{prefix}/gn_proj", unit["norm_proj"])
    return file


def big_vision_vit(p: Weights) -> File:
    """google-research/big_vision as it writes today; the position embedding has no class row."""
    file = _ends(p) | _linen_encoder(
        p, "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0"
    )
    if "posemb" in p:
        file["pos_embedding"] = p["posemb"][:, 1:] if "cls" in p else p["posemb"]
    if "map_head" in p:
        head = p["map_head"]
        file["MAPHead_0/probe"] = head["probe"]
        file |= _attention("MAPHead_0/MultiHeadDotProductAttention_0", head["attn"])
        file |= _scale_bias("MAPHead_0/LayerNorm_0", head["norm"])
        file |= _kernel_bias("MAPHead_0/MlpBlock_0/Dense_0", head["mlp"]["up"])
        file |= _kernel_bias("MAPHead_0/MlpBlock_0/Dense_1", head["mlp"]["down"])
    return file


def scanned(file: File) -> File:
    """The blocks of a big_vision file as its scan keeps them: one array for all layers."""
    joined: File = {}
    for name, array in file.items():
        before, here, after = name.partition("Transformer/encoderblock_0/")
        if here:
            names = (n.replace("_0/", f"_{i}/", 1) for i in range(99) for n in [before + here])
            layers = [file[n + after] for n in names if n + after in file]
            joined[f"Transformer/encoderblock/{after}"] = np.stack(layers)
        elif "Transformer/encoderblock_" not in name:
            joined[name] = array
    return joined


def bit_of_tensorflow(p: Weights) -> File:
    """google-research/big_transfer: variables of TensorFlow."""
    file = {"resnet/root_block/standardized_conv2d/kernel": p["backbone"]["conv_root"]["kernel"]}
    for stage, number, unit in _units(p):
        for letter, n in (("a", 1), ("b", 2), ("c", 3)):
            prefix = f"resnet/block{stage}/unit{number:02d}/{letter}"
            file[f"{prefix}/standardized_conv2d/kernel"] = unit[f"conv{n}"]["kernel"]
            file[f"{prefix}/group_norm/gamma"] = unit[f"norm{n}"]["scale"]
            file[f"{prefix}/group_norm/beta"] = unit[f"norm{n}"]["bias"]
        if "conv_proj" in unit:
            name = f"resnet/block{stage}/unit{number:02d}/a/proj/standardized_conv2d/kernel"
            file[name] = unit["conv_proj"]["kernel"]
    file["resnet/group_norm/gamma"] = p["norm"]["scale"]
    file["resnet/group_norm/beta"] = p["norm"]["bias"]
    if "head" in p:
        file["resnet/head/conv2d/kernel"] = p["head"]["kernel"][np.newaxis, np.newaxis]
        file["resnet/head/conv2d/bias"] = p["head"]["bias"]
    return file


def bit_of_big_vision(p: Weights) -> File:
    file = {"root_block/conv_root/kernel": p["backbone"]["conv_root"]["kernel"]}
    for stage, number, unit in _units(p):
        prefix = f"block{stage}/unit{number:02d}"
        for n in (1, 2, 3):
            file[f"{prefix}/conv{n}/kernel"] = unit[f"conv{n}"]["kernel"]
            file |= _scale_bias_4d(f"{prefix}/gn{n}", unit[f"norm{n}"])
        if "conv_proj" in unit:
            file[f"{prefix}/conv_proj/kernel"] = unit["conv_proj"]["kernel"]
    file |= _scale_bias_4d("norm-pre-head", p["norm"])
    return file | (_kernel_bias("head", p["head"]) if "head" in p else {})


def original_mixer(p: Weights) -> File:
    """google-research/vision_transformer, and big_vision."""
    file = _kernel_bias("stem", p["embedding"]) | _scale_bias("pre_head_layer_norm", p["norm"])
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"MixerBlock_{i}"
        file |= _scale_bias(f"{prefix}/LayerNorm_0", block["token_norm"])
        file |= _kernel_bias(f"{prefix}/token_mixing/Dense_0", block["token_mlp"]["up"])
        file |= _kernel_bias(f"{prefix}/token_mixing/Dense_1", block["token_mlp"]["down"])
        file |= _scale_bias(f"{prefix}/LayerNorm_1", block["channel_norm"])
        file |= _kernel_bias(f"{prefix}/channel_mixing/Dense_0", block["channel_mlp"]["up"])
        file |= _kernel_bias(f"{prefix}/channel_mixing/Dense_1", block["channel_mlp"]["down"])
    return file | (_kernel_bias("head", p["head"]) if "head" in p else {})


def older_mixer(p: Weights) -> File:
    """Names from before the publication, which big_vision reads."""
    file = _kernel_bias("embedding", p["embedding"]) | _scale_bias("Mixer/encoder_norm", p["norm"])
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"Mixer/encoderblock_{i}"
        file |= _scale_bias(f"{prefix}/LayerNorm_0", block["token_norm"])
        file |= _scale_bias(f"{prefix}/LayerNorm_2", block["channel_norm"])
        for part in ("token", "channel"):
            for n, layer in ((1, "up"), (2, "down")):
                dense = block[f"{part}_mlp"][layer]
                file[f"{prefix}/{part}_mixing_phase_0/kernel{n}"] = dense["kernel"]
                file[f"{prefix}/{part}_mixing_phase_0/bias{n}"] = dense["bias"]
    return file | (_kernel_bias("head", p["head"]) if "head" in p else {})


# ---------------------------------------------------------------- safetensors


def safetensors(path: Path, file: File) -> Path:
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.array(x, order="C") for name, x in file.items()}, path)
    return path


def _linear(prefix: str, dense: Weights) -> File:
    """[in, out] as [out, in]; several inputs or outputs are flattened."""
    bias = dense["bias"].reshape(-1)
    kernel = dense["kernel"].reshape(-1, bias.size)
    return {f"{prefix}.weight": kernel.T, f"{prefix}.bias": bias}


def _conv(name: str, kernel: np.ndarray) -> File:
    return {name: np.moveaxis(kernel, (3, 2), (0, 1))}


def _norm(prefix: str, norm: Weights) -> File:
    return {f"{prefix}.weight": norm["scale"], f"{prefix}.bias": norm["bias"]}


def _fused(prefix: str, *parts: Weights) -> File:
    """Queries, then keys, then values."""
    files = [_linear("x", part) for part in parts]
    return {
        f"{prefix}.{kind}": np.concatenate([file[f"x.{kind}"] for file in files])
        for kind in ("weight", "bias")
    }


def timm_vit(p: Weights) -> File:
    """timm's VisionTransformer, its hybrids too."""
    file = _conv("patch_embed.proj.weight", p["embedding"]["kernel"])
    file["patch_embed.proj.bias"] = p["embedding"]["bias"]
    for ours, theirs in (("cls", "cls_token"), ("posemb", "pos_embed"), ("registers", "reg_token")):
        if ours in p:
            file[theirs] = p[ours]
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"blocks.{i}"
        file |= _norm(f"{prefix}.norm1", block["attn_norm"])
        attention = block["attn"]
        qkv = (attention["query"], attention["key"], attention["value"])
        file |= _fused(f"{prefix}.attn.qkv", *qkv)
        file |= _linear(f"{prefix}.attn.proj", attention["out"])
        file |= _norm(f"{prefix}.norm2", block["mlp_norm"])
        file |= _linear(f"{prefix}.mlp.fc1", block["mlp"]["up"])
        file |= _linear(f"{prefix}.mlp.fc2", block["mlp"]["down"])
    file |= _norm("norm", p["norm"])
    if "map_head" in p:
        head = p["map_head"]
        file["attn_pool.latent"] = head["probe"]
        file |= _linear("attn_pool.q", head["attn"]["query"])
        file |= _fused("attn_pool.kv", head["attn"]["key"], head["attn"]["value"])
        file |= _linear("attn_pool.proj", head["attn"]["out"])
        file |= _norm("attn_pool.norm", head["norm"])
        file |= _linear("attn_pool.mlp.fc1", head["mlp"]["up"])
        file |= _linear("attn_pool.mlp.fc2", head["mlp"]["down"])
    if "backbone" in p:
        stages = _timm_units(p, "patch_embed.backbone.stages")
        root = "patch_embed.backbone" + (".stem" if stages else "")
        file |= stages | _conv(f"{root}.conv.weight", p["backbone"]["conv_root"]["kernel"])
        file |= _norm(f"{root}.norm", p["backbone"]["norm_root"])
    return file | (_linear("head", p["head"]) if "head" in p else {})


def _timm_units(p: Weights, stages: str) -> File:
    file: File = {}
    for stage, number, unit in _units(p):
        prefix = f"{stages}.{stage - 1}.blocks.{number - 1}"
        for n in (1, 2, 3):
            file |= _conv(f"{prefix}.conv{n}.weight", unit[f"conv{n}"]["kernel"])
            file |= _norm(f"{prefix}.norm{n}", unit[f"norm{n}"])
        if "conv_proj" in unit:
            file |= _conv(f"{prefix}.downsample.conv.weight", unit["conv_proj"]["kernel"])
        if "norm_proj" in unit:
            file |= _norm(f"{prefix}.downsample.norm", unit["norm_proj"])
    return file


def timm_bit(p: Weights) -> File:
    """timm's ResNetV2 as its `..._bit` models have it."""
    file = _conv("stem.conv.weight", p["backbone"]["conv_root"]["kernel"])
    file |= _timm_units(p, "stages") | _norm("norm", p["norm"])
    if "head" in p:
        file |= _conv("head.fc.weight", p["head"]["kernel"][np.newaxis, np.newaxis])
        file["head.fc.bias"] = p["head"]["bias"]
    return file


def timm_mixer(p: Weights) -> File:
    file = _conv("stem.proj.weight", p["embedding"]["kernel"])
    file["stem.proj.bias"] = p["embedding"]["bias"]
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"blocks.{i}"
        file |= _norm(f"{prefix}.norm1", block["token_norm"])
        file |= _linear(f"{prefix}.mlp_tokens.fc1", block["token_mlp"]["up"])
        file |= _linear(f"{prefix}.mlp_tokens.fc2", block["token_mlp"]["down"])
        file |= _norm(f"{prefix}.norm2", block["channel_norm"])
        file |= _linear(f"{prefix}.mlp_channels.fc1", block["channel_mlp"]["up"])
        file |= _linear(f"{prefix}.mlp_channels.fc2", block["channel_mlp"]["down"])
    file |= _norm("norm", p["norm"])
    return file | (_linear("head", p["head"]) if "head" in p else {})


def hf_vit(p: Weights) -> File:
    """Hugging Face's ViTForImageClassification, or ViTModel with its pooler where there is one."""
    embedding, file = "vit.embeddings.patch_embeddings.projection", {}
    file |= _conv(f"{embedding}.weight", p["embedding"]["kernel"])
    file |= {f"{embedding}.bias": p["embedding"]["bias"], "vit.embeddings.cls_token": p["cls"]}
    file["vit.embeddings.position_embeddings"] = p["posemb"]
    for i in _layers(p):
        block, prefix = p[f"block_{i}"], f"vit.encoder.layer.{i}"
        file |= _norm(f"{prefix}.layernorm_before", block["attn_norm"])
        for name in ("query", "key", "value"):
            file |= _linear(f"{prefix}.attention.attention.{name}", block["attn"][name])
        file |= _linear(f"{prefix}.attention.output.dense", block["attn"]["out"])
        file |= _norm(f"{prefix}.layernorm_after", block["mlp_norm"])
        file |= _linear(f"{prefix}.intermediate.dense", block["mlp"]["up"])
        file |= _linear(f"{prefix}.output.dense", block["mlp"]["down"])
    file |= _norm("vit.layernorm", p["norm"])
    if "pre_logits" in p:
        file |= _linear("vit.pooler.dense", p["pre_logits"])
    return file | (_linear("classifier", p["head"]) if "head" in p else {})
