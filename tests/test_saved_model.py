# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""SavedModel: read by TensorFlow in a process that has neither this package nor jax."""

import exports
import numpy as np
import pytest
import tiny

from vit_jax.data.tensorflow import tf
from vit_jax.errors import RunFailed
from vit_jax.inference.export import forward, saved_model
from vit_jax.weights.formats.json_config import Images

READ = """
import os
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf
for kind in {kinds}:
    serve = tf.saved_model.load(kind).signatures["serving_default"]
    compare(kind, lambda images: serve(images=tf.constant(images))["logits"].numpy())
"""


readable = pytest.mark.skipif(exports.TOO_NEW, reason="TensorFlow 2.21 reads jax 0.10's")


@readable
@pytest.mark.parametrize(
    "kinds",
    [("token", "bit"), pytest.param(("gap", "map", "hybrid", "mixer"), marks=pytest.mark.slow)],
)
def test_tensorflow_alone_reads_every_family_at_any_batch(tmp_path, kinds):
    exports.artefacts(tmp_path, saved_model.write, kinds)
    program = exports.COMPARE + READ.format(kinds=kinds)
    shown = exports.clean(program, tmp_path, without=("vit_jax", "flax", "jax", "jaxlib"))
    assert shown.count("\n") == 2 * len(kinds)


def test_signature(tmp_path):
    saved_model.write(forward.make(exports.model(), None), tmp_path / "token")
    serve = tf.saved_model.load(str(tmp_path / "token")).signatures["serving_default"]
    (images,) = serve.structured_input_signature[1].values()
    assert (images.name, images.shape.as_list(), images.dtype) == (
        "images", [None, 8, 12, 3], tf.float32,
    )  # fmt: skip
    assert serve.structured_outputs["logits"].dtype == tf.float32


@readable
def test_representation_of_uint8(tmp_path):
    model = exports.model(classes=0)
    made = forward.make(model, Images(mean=(0.1, 0.2, 0.3)))
    saved_model.write(made, tmp_path / "m")
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    found = saved_model.read(tmp_path / "m")(pixels)
    np.testing.assert_allclose(found, made.reference(pixels), atol=1e-5)
    serve = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    assert list(serve.structured_outputs) == ["representation"]


@pytest.mark.skipif(not exports.TOO_NEW, reason="TensorFlow reads what this jax writes")
def test_what_tensorflow_cannot_run_is_one_message(tmp_path):
    made = forward.make(exports.model(), None)
    saved_model.write(made, tmp_path / "m")
    with pytest.raises(RunFailed, match=r"TensorFlow .* cannot run .*; install 'jax<0.11'"):
        saved_model.read(tmp_path / "m")(np.zeros((2, 8, 12, 3), np.float32))
