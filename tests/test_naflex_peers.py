# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""NaFlex models give what transformers and timm give, for images of several aspect ratios."""

import json

import foreign
import jax
import jax.numpy as jnp
import numpy as np
import peer_libraries
import pytest
from make_encoder_goldens import SIZES, values

import vit_jax
from vit_jax.errors import BadInput
from vit_jax.models.naflex import Canvas
from vit_jax.weights import convert, files

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


# --- timm's NaFlexVit ---

SMALL = {"embed_dim": 16, "depth": 2, "num_heads": 2, "patch_size": PATCH}
# Name -> architecture, arguments, and how ours resizes positions.
NAFLEX = {
    "siglip": ("naflexvit_base_patch16_siglip", {"pos_embed_grid_size": (3, 3)}, "bilinear"),
    "gap": ("naflexvit_base_patch16_gap", {"pos_embed_grid_size": (5, 5)}, "bicubic"),
    "par": ("naflexvit_base_patch16_par_gap", {"pos_embed_grid_size": (6, 6)}, "bicubic square"),
    "parfac": ("naflexvit_base_patch16_parfac_gap", {"pos_embed_grid_size": (5, 5)},
               "linear square"),
    "map": ("naflexvit_base_patch16_map", {"pos_embed_grid_size": (3, 3)}, "bicubic"),
    "so150m2": ("naflexvit_so150m2_patch16_reg1_gap", {}, "bicubic"),
    "vit": ("vit_base_patch16_224", {"img_size": 12, "use_naflex": True}, "bicubic"),
    "clip": ("vit_base_patch16_clip_quickgelu_224", {"img_size": 12, "use_naflex": True},
             "bicubic"),
}  # fmt: skip


def naflex_vit(folder, architecture, args):
    timm, hub = peer_libraries.load("timm"), peer_libraries.load("timm.models._hub")
    model = filled(timm.create_model(architecture, num_classes=3, **args))
    hub.save_for_hf(model, folder, model_args=args, safe_serialization=True)
    return model


def of_timm(model):
    torch = peer_libraries.load("torch")
    rows, mask, _ = patches()
    places = np.zeros((*rows.shape[:2], 2), np.int64)
    for own, (height, width) in zip(places, GRIDS, strict=True):
        own[: height * width] = np.stack(np.divmod(np.arange(height * width), width), axis=-1)
    with torch.no_grad():
        return model(*map(torch.tensor, (rows, places, mask))).numpy()


@pytest.mark.parametrize("name", NAFLEX)
def test_naflexvit_of_timm_and_back(tmp_path, name):
    """Logits at five aspect ratios; timm reads what ours writes, a factored table as its sum."""
    architecture, args, how = NAFLEX[name]
    want = of_timm(naflex_vit(tmp_path, architecture, SMALL | args))
    made, params, _ = vit_jax.load(tmp_path / "model.safetensors", image_size=16)
    by, *square = how.split()
    assert (made.cfg.naflex_filter, made.cfg.naflex_square) == (by, bool(square))
    canvas = Canvas(jnp.asarray(patches()[2]), jnp.asarray(GRIDS))
    have = jax.jit(made.apply)({"params": params}, canvas)
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.std(want))
    vit_jax.save(tmp_path / "ours" / "model.safetensors", made, params, "timm")
    timm = peer_libraries.load("timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    np.testing.assert_allclose(of_timm(again), want, rtol=0, atol=1e-6 * np.std(want))


@pytest.mark.parametrize(
    "args, said",
    [
        ({"pos_embed_grid_size": (3, 4)}, "3 x 4 positions is not square"),
        ({"class_token": True}, "leaves the class token out"),
        ({"scale_mlp_norm": True}, "mlp.norm.bias"), ({"pos_embed": "none"}, "is missing"),
        ({"rope_type": "axial"}, "rope_type='axial'"),
    ],
)  # fmt: skip
def test_what_naflexvit_has_and_ours_do_not(tmp_path, args, said):
    naflex_vit(tmp_path, "naflexvit_base_patch16_siglip", SMALL | args)
    with pytest.raises(BadInput, match=said):
        vit_jax.load(tmp_path / "model.safetensors")


def test_every_naflexvit_is_read_in_full_size_or_refused(tmp_path, monkeypatch):
    """By names and shapes; those of C-RADIO have no norm after the blocks."""
    timm, hub = peer_libraries.load("timm"), peer_libraries.load("timm.models._hub")
    for name in timm.list_models("naflexvit*"):
        with peer_libraries.load("torch").device("meta"):
            model = timm.create_model(name)
        hub.save_config_for_hf(model, tmp_path / "config.json")
        arrays = {n: np.broadcast_to(np.float32(0), t.shape) for n, t in model.state_dict().items()}
        monkeypatch.setattr(files, "read", lambda path, shapes_only, arrays=arrays: dict(arrays))
        if "radio" in name:
            with pytest.raises(BadInput, match="no norm after the blocks"):
                convert.read(tmp_path / "x.safetensors", shapes_only=True)
            continue
        weights = convert.read(tmp_path / "x.safetensors", shapes_only=True)
        assert (weights.config.naflex, weights.image_size) == (16, (384, 384))
        assert weights.config.heads == model.blocks[0].attn.num_heads
        tanh = getattr(model.blocks[0].mlp.act, "approximate", "tanh") == "tanh"
        assert weights.config.gelu == ("tanh" if tanh else "erf")
        ours = foreign.flat(foreign.zeros(weights.config, *weights.image_size))
        shapes = {n: a.shape for n, a in weights.flat.items()}
        assert {n: a.shape for n, a in ours.items()} == shapes


def test_images_are_prepared_as_by_timm(tmp_path):
    naflex_vit(tmp_path, "naflexvit_base_patch16_gap", SMALL)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    content["pretrained_cfg"] |= {"input_size": [3, 16, 16], "mean": [0.4, 0.5, 0.6]}
    path.write_text(json.dumps(content))
    prepare = vit_jax.load(tmp_path / "model.safetensors")[2]
    transform = peer_libraries.load("timm.data").create_transform(
        16, interpolation="bicubic", mean=(0.4, 0.5, 0.6), std=(0.5,) * 3, naflex=True,
        patch_size=PATCH, max_seq_len=BUDGET, patchify=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*sides, 3), np.uint8) for sides in ((20, 50), (70, 30))]
    canvas = prepare(images)
    for cells, grid, image in zip(*canvas, images, strict=True):
        want = transform(peer_libraries.load("PIL.Image").fromarray(image))
        rows = cells.reshape(4, PATCH, 4, PATCH, 3).transpose(0, 2, 1, 3, 4).reshape(BUDGET, -1)
        assert (want["patch_coord"].amax(dim=0) + 1).tolist() == grid.tolist()
        np.testing.assert_allclose(rows[: grid.prod()], want["patches"].numpy(), atol=1e-6)
