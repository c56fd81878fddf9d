# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published encoders give what timm and transformers give at another resolution."""

import inspect

import jax
import numpy as np
import peer_libraries
import pytest
from make_encoder_goldens import IMAGES, TIMM, TRANSFORMERS, values

import vit_jax

pytestmark = pytest.mark.integration
SIZES = (24, 12), (8, 8)
FIXED = ("beit", "timm beit", "timm aimv2")  # made for one resolution, or resized in another way


def filled(model):
    torch = peer_libraries.load("torch")
    state = {n: torch.tensor(values(n, tuple(t.shape))) for n, t in model.state_dict().items()}
    model.load_state_dict(state)
    return model.eval()


def compare(model, path, size, output):
    torch = peer_libraries.load("torch")
    images = values("image", (2, 3, *size))
    known = inspect.signature(model.forward).parameters
    more = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in known else {}
    with torch.no_grad():
        result = model(torch.tensor(images), **more)
    want = (getattr(result, output) if output else result).numpy()
    ours, params, _ = vit_jax.load(path, image_size=size)
    have = jax.jit(ours.apply)({"params": params}, np.moveaxis(images, 1, -1))
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.std(want))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if name not in FIXED])
def test_transformers_at_another_resolution(tmp_path, name, size):
    transformers = peer_libraries.load("transformers")
    stem, end, settings, output = TRANSFORMERS[name]
    config = getattr(transformers, f"{stem}Config")(**settings, **IMAGES)
    model = filled(getattr(transformers, stem + end)(config))
    model.save_pretrained(tmp_path)
    compare(model, tmp_path / "model.safetensors", size, output)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", [name for name in TIMM if name not in FIXED])
def test_timm_at_another_resolution(tmp_path, name, size):
    timm, hub = peer_libraries.load("timm"), peer_libraries.load("timm.models._hub")
    architecture, args = TIMM[name]
    model = filled(timm.create_model(architecture, num_classes=3, **args))
    hub.save_for_hf(model, tmp_path, model_args=args, safe_serialization=True)
    model.set_input_size(size)
    compare(model, tmp_path / "model.safetensors", size, "")
