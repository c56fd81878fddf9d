# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""NaFlex models give what transformers and timm give, for images of several aspect ratios."""

import json

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


def test_what_is_written_is_read_by_transformers(tmp_path):
    transformers, torch = peer_libraries.load("transformers"), peer_libraries.load("torch")
    config = transformers.Siglip2VisionConfig(**SIZES, num_patches=16, patch_size=PATCH)
    model = filled(transformers.Siglip2VisionModel(config))
    model.save_pretrained(tmp_path)
    made, params, _ = vit_jax.load(tmp_path / "model.safetensors")
    vit_jax.save(tmp_path / "ours" / "model.safetensors", made, params, "hf")
    again = transformers.Siglip2VisionModel.from_pretrained(tmp_path / "ours")
    assert again.config.num_patches == 16
    state = again.state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)


def test_images_are_prepared_as_by_transformers(tmp_path):
    """Patches, grids and pixels of its processor with Pillow, on images of two shapes."""
    transformers = peer_libraries.load("transformers")
    config = transformers.Siglip2VisionConfig(**SIZES, num_patches=16, patch_size=PATCH)
    transformers.Siglip2VisionModel(config).save_pretrained(tmp_path)
    module = "transformers.models.siglip2.image_processing_pil_siglip2"
    processor = peer_libraries.load(module).Siglip2ImageProcessorPil(
        patch_size=PATCH, max_num_patches=BUDGET
    )
    content = json.loads(processor.to_json_string())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(content))
    _, _, prepare = vit_jax.load(tmp_path / "model.safetensors")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*sides, 3), np.uint8) for sides in ((20, 50), (70, 30))]
    canvas, want = prepare(images), processor(images, return_tensors="np")
    np.testing.assert_array_equal(canvas.grids, want["spatial_shapes"])
    cells = canvas.images_BHWC.reshape(2, 4, PATCH, 4, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
    np.testing.assert_allclose(cells.reshape(2, BUDGET, -1), want["pixel_values"], atol=1e-6)
