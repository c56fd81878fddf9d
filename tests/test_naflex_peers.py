# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""NaFlex models give what transformers and timm give, for images of several aspect ratios."""

import jax
import jax.numpy as jnp
import numpy as np
import peer_libraries
import pytest
from make_encoder_goldens import SIZES, values

import vit_jax
from vit_jax.models.naflex import Canvas

pytestmark = pytest.mark.integration
GRIDS = np.int32([[4, 4], [2, 8], [5, 3], [1, 16], [7, 2]])
PATCH, BUDGET = 4, 16


def filled(model):
    torch = peer_libraries.load("torch")
    state = {n: torch.tensor(values(n, tuple(t.shape))) for n, t in model.state_dict().items()}
    model.load_state_dict(state)
    return model.eval()


def patches():
    """Patches [B, L, P * P * 3] with zeros as padding, their mask, and the same as a canvas."""
    rows = values("patches", (len(GRIDS), BUDGET, PATCH, PATCH, 3))
    mask = np.arange(BUDGET) < GRIDS.prod(axis=1)[:, None]
    rows = rows * mask[..., None, None, None]
    cells = rows.reshape(len(GRIDS), 4, 4, PATCH, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    return rows.reshape(len(GRIDS), BUDGET, -1), mask, cells.reshape(len(GRIDS), 16, 16, 3)


def ours(path):
    model, params, _ = vit_jax.load(path, image_size=16)
    images = jnp.asarray(patches()[2])
    return jax.jit(model.apply)({"params": params}, Canvas(images, jnp.asarray(GRIDS)))


@pytest.mark.parametrize("side", [4, 3])
def test_siglip2_of_transformers(tmp_path, side):
    transformers, torch = peer_libraries.load("transformers"), peer_libraries.load("torch")
    config = transformers.Siglip2VisionConfig(**SIZES, num_patches=side**2, patch_size=PATCH)
    model = filled(transformers.Siglip2VisionModel(config))
    model.save_pretrained(tmp_path)
    rows, mask, _ = patches()
    with torch.no_grad():
        want = model(torch.tensor(rows), torch.tensor(mask), torch.tensor(GRIDS).long())
    want = want.pooler_output.numpy()
    have = ours(tmp_path / "model.safetensors")
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.std(want))
