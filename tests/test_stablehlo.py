# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""StableHLO: read by jax.export in a process that has neither this package nor Flax."""

import exports
import jax
import numpy as np
import pytest
import tiny

from vit_jax.errors import BadInput
from vit_jax.inference.export import forward, stablehlo
from vit_jax.weights.formats.json_config import Images

READ = """
import jax
from jax import export
for kind in {kinds}:
    with open(kind, "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    assert exported.platforms == ("cpu", "cuda", "tpu")
    compare(kind, lambda images: np.asarray(exported.call(images)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return exports.artefacts(tmp_path_factory.mktemp("stablehlo"), stablehlo.write)


def test_jax_alone_reads_every_family_at_any_batch(folder):
    program = exports.COMPARE + READ.format(kinds=list(exports.KINDS))
    shown = exports.clean(program, folder, without=("vit_jax", "flax", "tensorflow"))
    assert shown.count("\n") == 2 * len(exports.KINDS)


def test_what_is_read_here(folder):
    with np.load(folder / "token.npz") as file:
        found = stablehlo.read(folder / "token")(file["images"])
        np.testing.assert_allclose(found, file["expected"], atol=1e-5)


def test_uint8_and_another_shape(tmp_path):
    model = exports.model()
    made = forward.make(model, Images(mean=(0.1, 0.2, 0.3)))
    assert stablehlo.write(made, tmp_path / "m") == {
        "calling_convention": jax.config.jax_export_calling_convention_version
    }
    call = stablehlo.read(tmp_path / "m")
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    np.testing.assert_allclose(call(pixels), made.reference(pixels), atol=1e-5)
    with pytest.raises(ValueError, match="Dtype mismatch"):
        call(pixels.astype(np.float32))
    with pytest.raises(ValueError, match="Shape mismatch"):
        call(pixels[:, :4])


def test_more_weights_than_a_file_holds():
    huge = np.broadcast_to(np.float32(0), (1 << 29,))
    made = forward.Forward(lambda params, images: images, {"a": huge}, (8, 8), "float32", "logits")
    with pytest.raises(BadInput, match=r"2\.1 GB.*--format=savedmodel"):
        stablehlo.check(made)
    stablehlo.check(forward.make(exports.model(), None))
