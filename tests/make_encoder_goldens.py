# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes golden/encoders.json: outputs of small models of timm and transformers.

Run `python tests/make_encoder_goldens.py` where torch, timm and transformers are installed. The
weights and images follow formulas, so the file holds only names, shapes and outputs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "golden" / "encoders.json"


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Weights or an image by a formula, float32, away from the values that they start from."""
    count = int(np.prod(shape))
    phase = sum(ord(letter) * (i % 7 + 1) for i, letter in enumerate(name))
    waves = np.sin(np.arange(count) * 1.7 + phase) + np.cos(np.arange(count) ** 2 % 101 + phase)
    size = 0.3 if len(shape) < 2 else 1.0 / np.sqrt(np.prod(shape[1:]))
    offset = 0.8 if len(shape) == 1 and not name.endswith("bias") else 0.0
    return (offset + size * waves.reshape(shape)).astype(np.float32)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES = SMALL | {"intermediate_size": 24}
IMAGES = {"image_size": 16, "patch_size": 4}
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "dinov2": ("Dinov2", "ForImageClassification", SMALL | {"num_labels": 3}, "logits"),
    "dinov2 giant": ("Dinov2", "Model", SMALL | {"use_swiglu_ffn": True}, "pooler_output"),
    "dinov2 registers": ("Dinov2WithRegisters", "Model", SMALL, "pooler_output"),
    "dinov3": ("DINOv3ViT", "Model", SIZES | {"num_register_tokens": 2}, "pooler_output"),
    "dinov3 plus": ("DINOv3ViT", "Model", SIZES | {"use_gated_mlp": True, "hidden_act": "silu",
                                              "num_register_tokens": 2},
                    "pooler_output"),
    "deit": ("DeiT", "ForImageClassificationWithTeacher", SIZES | {"num_labels": 3}, "logits"),
    "siglip": ("SiglipVision", "Model", SIZES, "pooler_output"),
    "clip": ("CLIPVision", "ModelWithProjection", SIZES | {"projection_dim": 3}, "image_embeds"),
    "beit": ("Beit", "ForImageClassification",
             SIZES | {"num_labels": 3, "use_relative_position_bias": True}, "logits"),
}  # fmt: skip
ARGS = {"embed_dim": 16, "depth": 2, "num_heads": 2, "img_size": 16, "patch_size": 4}
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "timm dinov2": ("vit_base_patch14_reg4_dinov2", ARGS),
    "timm dinov2 giant": ("vit_giant_patch14_dinov2", ARGS | {"mlp_ratio": 4.0}),
    "timm dinov3": ("vit_small_patch16_dinov3_qkvb", ARGS),
    "timm dinov3 plus": ("vit_small_plus_patch16_dinov3", ARGS),
    "timm deit3": ("deit3_small_patch16_224", ARGS),
    "timm deit": ("deit_small_distilled_patch16_224", ARGS),
    "timm beit": ("beit_base_patch16_224", ARGS | {"init_values": 0.1}),
    "timm siglip": ("vit_base_patch16_siglip_224", ARGS),
    "timm clip": ("vit_base_patch16_clip_quickgelu_224", ARGS),
    "timm aimv2": ("aimv2_large_patch14_224", ARGS),
    "timm eva02": ("eva02_base_patch14_224", ARGS | {"ref_feat_shape": 3}),
    "timm eva02 small": ("eva02_small_patch14_224", ARGS | {"ref_feat_shape": 4}),
    "timm pe": ("vit_pe_core_base_patch16_224", ARGS | {"ref_feat_shape": 3}),
    "timm pe gigantic": ("vit_pe_core_gigantic_patch14_448", ARGS | {"mlp_ratio": 2.0}),
    "timm pooled": ("vit_base_patch16_224", ARGS | {"global_pool": "avg"}),
}


def main() -> None:
    """Writes the file."""
    import peer_libraries

    transformers, timm = peer_libraries.load("transformers"), peer_libraries.load("timm")
    rows: dict[str, Any] = {}
    for name, (stem, end, settings, output) in TRANSFORMERS.items():
        config = getattr(transformers, f"{stem}Config")(**settings, **IMAGES)
        model = getattr(transformers, stem + end)(config)
        rows[name] = _row(model, output) | {"config": json.loads(config.to_json_string())}
    for name, (architecture, args) in TIMM.items():
        model = timm.create_model(architecture, num_classes=3, **args)
        config = {"architecture": architecture, "model_args": args, "num_classes": 3}
        config |= {"global_pool": model.global_pool}
        rows[name] = _row(model, "") | {"config": config}
    versions = {"timm": timm.__version__, "transformers": transformers.__version__}
    FILE.write_text(json.dumps({"versions": versions, "models": rows}, indent=None) + "\n")


def _row(model: Any, output: str) -> dict[str, Any]:
    import tempfile

    import torch
    from safetensors.torch import load_file, save_file

    state = {n: torch.tensor(values(n, tuple(t.shape))) for n, t in model.state_dict().items()}
    model.load_state_dict(state)
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.safetensors"
        if output:
            model.save_pretrained(folder)
        else:
            save_file(state, path)
        stored = load_file(path)
        result = model(torch.tensor(values("image", (2, 3, 16, 16))))
    result = getattr(result, output) if output else result
    # A file may have other names than memory has, or two tensors of it in one.
    origin = {tensor.numpy().tobytes(): name for name, tensor in state.items()}
    tensors = {}
    for name, tensor in stored.items():
        parts = [tensor] if tensor.numpy().tobytes() in origin else tensor.chunk(2)
        origins = [origin[part.contiguous().numpy().tobytes()] for part in parts]
        tensors[name] = ["+".join(origins), list(tensor.shape)]
    return {"tensors": tensors, "output": [[float(f"{x:.8g}") for x in row] for row in result]}


if __name__ == "__main__":
    main()
