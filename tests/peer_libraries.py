# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The libraries that ours is compared with: timm and transformers.

Both import torchvision, and torchvision's import fails where its compiled part was built for
another torch: it registers shapes for operators that nobody declared. None of them (boxes, region
pooling) is used here, so declaring them is enough. Start from `load`.
"""

import importlib
import importlib.util
import re
import types
from pathlib import Path

import pytest

_declared = []  # a torch library lives as long as its object


def load(module: str) -> types.ModuleType:
    """A module of a peer, e.g. `timm.data`; the test is skipped where the peer is not installed."""
    for name in ("torch", "torchvision", module.split(".")[0]):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        _declare_operators()
    return importlib.import_module(module)


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    found = importlib.util.find_spec("torchvision")
    text = (Path(found.origin).parent / "_meta_registrations.py").read_text()
    for name in sorted(set(re.findall(r'register_fake\("torchvision::(\w+)"\)', text))):
        library.define(f"{name}(Tensor x) -> Tensor")
    _declared.append(library)
