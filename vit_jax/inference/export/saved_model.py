# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow's SavedModel: a folder that `tf.saved_model.load` reads without jax.

The signature `serving_default` maps `images` to `logits`, or to `representation` for a model
without a head. Start from `write`.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from vit_jax.data import tensorflow
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.inference.export.forward import PLATFORMS, Call, Forward

CONSUMER = "TensorFlow"
SIGNATURE = "serving_default"
_STABLEHLO = "1.15.0"  # what jax 0.10 writes; TensorFlow 2.21 does not read jax 0.12's 1.18


def check(forward: Forward) -> None:
    """Accepts every model, because the format holds every model."""


def write(forward: Forward, path: Path) -> dict[str, Any]:
    """Writes the folder; `forward.facts` needs no additions."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), forward.params)
    (batch,) = export.symbolic_shape("B")
    batch_of_images = jax.ShapeDtypeStruct((batch, *forward.shape), np.dtype(forward.dtype))
    exported = export.export(jax.jit(forward.apply), platforms=PLATFORMS)(shapes, batch_of_images)
    program, width = _portable(exported), exported.out_avals[0].shape[1]
    module = tf.Module()
    params = jax.tree.map(lambda value: tf.Variable(value, trainable=False), forward.params)
    leaves, module.params = jax.tree.leaves(params), params

    def serve(images: Any) -> dict[str, Any]:
        arguments: Any = [*leaves, images]
        outputs: Any = tensorflow.xla().call_module(
            [arguments[i] for i in exported.module_kept_var_idx],
            version=exported.calling_convention_version,
            module=program,
            Tout=[tf.float32],
            Sout=[tf.TensorShape([None, width])],
            platforms=[name.upper() for name in PLATFORMS],
        )
        return {forward.output: outputs[0]}

    images = tf.TensorSpec([None, *forward.shape], forward.dtype, name="images")
    module.serve = tf.function(serve, input_signature=[images], autograph=False)
    tf.saved_model.save(
        module, str(path), signatures={SIGNATURE: module.serve.get_concrete_function()}
    )
    return {}


def _portable(exported: export.Exported) -> bytes:
    """Returns the program in a version of StableHLO that TensorFlow reads.

    jax writes the version of four weeks before its release, which may be newer than TensorFlow.
    """
    with ir.Context() as context:
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
        try:
            return stablehlo.serialize_portable_artifact(module, _STABLEHLO)
        except ValueError as e:
            raise BadInput(
                f"the model has an operation that StableHLO {_STABLEHLO} lacks, which TensorFlow "
                "reads; export stablehlo."
            ) from e


def read(path: Path) -> Call:
    """Returns the function in a folder, run by TensorFlow alone."""
    loaded = tf.saved_model.load(str(path))
    serve = loaded.signatures[SIGNATURE]

    def call(images: Any) -> Any:
        (outputs,) = serve(images=tf.constant(images)).values()
        return outputs.numpy()

    call.loaded = loaded  # type: ignore[attr-defined] # whose variables live as long as it does
    return call
