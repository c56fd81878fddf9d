# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TensorFlow's SavedModel: a folder that `tf.saved_model.load` reads without jax.

The signature `serving_default` maps `images` to `logits`, to `representation` for a model without
a head, or to the outputs of an objective. Start from `write`.
"""

from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from vit_jax.data import tensorflow
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.inference.export import forward as forward_lib
from vit_jax.inference.export.forward import PLATFORMS, Call, Forward

CONSUMER = "TensorFlow"
SIGNATURE = "serving_default"
_STABLEHLO = "1.15.0"  # what jax 0.10 writes; TensorFlow 2.21 does not read jax 0.12's 1.18


def check(forward: Forward) -> None:
    """Accepts every model, because the format holds every model."""


def write(forward: Forward, path: Path) -> dict[str, Any]:
    """Writes the folder; `forward.facts` needs no additions."""
    exported = forward_lib.exported(forward, weights_inside=False)
    program, avals = _portable(exported), exported.out_avals
    module = tf.Module()
    params = jax.tree.map(lambda value: tf.Variable(value, trainable=False), forward.params)
    leaves, module.params = jax.tree.leaves(params), params

    def serve(images: Any) -> dict[str, Any]:
        arguments: Any = [*leaves, images]
        outputs: Any = tensorflow.xla().call_module(
            [arguments[i] for i in exported.module_kept_var_idx],
            version=exported.calling_convention_version,
            module=program,
            Tout=[tf.as_dtype(x.dtype) for x in avals],
            Sout=[tf.TensorShape([None, *x.shape[1:]]) for x in avals],
            platforms=[name.upper() for name in PLATFORMS],
        )
        return dict(forward.named(jax.tree.unflatten(exported.out_tree, outputs)))

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
        outputs = {k: x.numpy() for k, x in serve(images=tf.constant(images)).items()}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    call.loaded = loaded  # type: ignore[attr-defined] # whose variables live as long as it does
    return call
