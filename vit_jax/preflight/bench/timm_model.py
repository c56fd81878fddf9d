# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""timm's ViT of the same sizes on PyTorch, compiled by `torch.compile`, for comparison.

The module imports torch, so only a process of its own may import it. Start from `train`.
"""

import time
from typing import Any

import jax
import timm.models.vision_transformer as timm_vit  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]

from vit_jax.preflight.bench.baseline import config_of
from vit_jax.preflight.bench.interleaved import Asked, Timed
from vit_jax.preflight.bench.our_steps import CLASSES, begin, config


def train(asked: Asked) -> Timed:
    """Prepares training steps: AdamW with weight decay, clipping at 1 and softmax cross-entropy."""
    model, images, labels = _begin(asked)
    model.train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    criterion = torch.nn.CrossEntropyLoss()

    def step(run: Any) -> torch.Tensor:
        with _cast(asked, images.device):
            loss = criterion(run(_normalised(images)), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return _timed(model, step, images.device)


def predict(asked: Asked) -> Timed:
    """Prepares predictions: the probabilities of all classes."""
    model, images, _ = _begin(asked)
    model.eval()

    @torch.inference_mode()
    def step(run: Any) -> torch.Tensor:
        with _cast(asked, images.device):
            return run(_normalised(images)).float().softmax(-1)

    return _timed(model, step, images.device)


def _begin(asked: Asked) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Returns model, images and labels on the device that jax has."""
    cfg = config_of(asked)
    assert cfg is not None, asked
    begin(config(asked))
    device = torch.device("cpu" if jax.devices()[0].platform == "cpu" else "cuda")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # on a GPU, as XLA computes float32 there
    model = timm_vit.VisionTransformer(
        img_size=asked.resolution,
        patch_size=cfg.patch,
        embed_dim=cfg.width,
        depth=cfg.depth,
        num_heads=cfg.heads,
        mlp_ratio=cfg.mlp / cfg.width,
        num_classes=CLASSES,
    ).to(device)
    shape = (asked.batch, 3, asked.resolution, asked.resolution)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    return model, images, torch.randint(0, CLASSES, (asked.batch,), device=device)


def _normalised(images: torch.Tensor) -> torch.Tensor:
    return images.float() / 127.5 - 1


def _cast(asked: Asked, device: torch.device) -> Any:
    return torch.autocast(device.type, torch.bfloat16, enabled=asked.dtype == "bfloat16")


def _timed(model: torch.nn.Module, step: Any, device: torch.device) -> Timed:
    """Prepares the step with the compiled model.

    Takes the eager model if compiling fails or is no faster.
    """

    def wait(_: Any) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def secs(run: Any) -> float:
        found = []
        for _ in range(5):
            began = time.perf_counter()
            wait(step(run))
            found.append(time.perf_counter() - began)
        return min(found)

    runs: dict[str, Any] = {"torch.compile": torch.compile(model), "eager": model}
    took, failed = dict[str, float](), ""
    for how, run in runs.items():
        try:
            took[how] = secs(run)
        except Exception as e:  # no compiler, or one of many other errors
            if how == "eager":
                raise
            failed = f" (torch.compile failed: {type(e).__name__})"
    best = min(took, key=lambda how: took[how])
    return Timed(lambda: step(runs[best]), wait, {"how": best + failed})
