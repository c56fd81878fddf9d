# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the compiler is told beyond its defaults: the one place for its flags, and what each does.

Figures, and what was tried and did not help, are in docs/performance.md. Start from `options`.
"""

import functools
import logging

import jax

log = logging.getLogger("vit_jax")

# platform -> option of XLA -> value.
_OPTIONS: dict[str, dict[str, str]] = {
    # YNNPACK, to which jax 0.10 gives all of a CPU's products, is slower than Eigen with those of a
    # ViT (63 against 99 GFLOP/s for [3152, 384] x [384, 384] on two cores with AVX2), but faster
    # with sums along an axis. A step of S/16 in float32: 1.24 times as many images a second.
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"},
}


@functools.cache
def options(platform: str) -> dict[str, str]:
    """Options for `jax.jit(..., compiler_options=)`; none where this compiler does not know them.

    Args:
      platform: of the devices: cpu, gpu or tpu.
    """
    wanted = _OPTIONS.get(platform, {})
    if not wanted:
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=wanted).lower().compile()
    except (jax.errors.JaxRuntimeError, ValueError) as e:  # of another version
        log.info("compiler options are left out: %s", str(e).splitlines()[0])
        return {}
    return dict(wanted)
