# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow's SavedModel, by jax2tf: a folder that `tf.saved_model.load` reads without jax.

The signature `serving_default` maps `images` to `logits`, or to `representation` for a model
without a head. Start from `write`.
"""

from pathlib import Path
from typing import Any

import jax

from vit_jax.data import tensorflow
from vit_jax.data.tensorflow import tf
from vit_jax.errors import RunFailed
from vit_jax.inference.export.forward import PLATFORMS, Call, Forward

CONSUMER = "TensorFlow"
SIGNATURE = "serving_default"


def check(forward: Forward) -> None:
    """Accepts every model, because the format holds every model."""


def write(forward: Forward, path: Path) -> dict[str, Any]:
    """Writes the folder; `forward.facts` needs no additions."""
    tensorflow.keep_off_accelerators()  # before jax2tf imports it
    from jax.experimental import jax2tf

    converted = jax2tf.convert(
        forward.apply,
        polymorphic_shapes=[None, "(B, ...)"],
        with_gradient=False,
        native_serialization_platforms=PLATFORMS,
    )
    module = tf.Module()
    module.params = tf.nest.map_structure(
        lambda value: tf.Variable(value, trainable=False), forward.params
    )
    images = tf.TensorSpec([None, *forward.shape], forward.dtype, name="images")
    module.serve = tf.function(
        lambda images: {forward.output: converted(module.params, images)},
        input_signature=[images],
        autograph=False,
    )
    tf.saved_model.save(
        module, str(path), signatures={SIGNATURE: module.serve.get_concrete_function()}
    )
    return {}


def read(path: Path) -> Call:
    """Returns the function in a folder, run by TensorFlow alone.

    Raises (when it is called):
      RunFailed: this TensorFlow cannot run what this jax wrote (2.21 cannot run jax 0.11).
    """
    loaded = tf.saved_model.load(str(path))
    serve = loaded.signatures[SIGNATURE]

    def call(images: Any) -> Any:
        try:
            (outputs,) = serve(images=tf.constant(images)).values()
        except tf.errors.InvalidArgumentError as e:
            reason = next((line for line in str(e).splitlines() if "deserialize" in line), str(e))
            raise RunFailed(
                f"TensorFlow {tf.__version__} cannot run what jax {jax.__version__} writes: "
                f"{reason[:200]}. Nothing was written; install 'jax<0.11' for it, or export "
                "stablehlo."
            ) from e
        return outputs.numpy()

    call.loaded = loaded  # type: ignore[attr-defined] # whose variables live as long as it does
    return call
