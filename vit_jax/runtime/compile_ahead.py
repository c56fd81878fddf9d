# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sets compiler options beyond the defaults, and compiles ahead; the one place for such flags.

The figures, and options that did not help, are in docs/experiments.md. Start from `options` and
`ahead`.
"""

import contextlib
import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax

from vit_jax.hardware import topology
from vit_jax.runtime import process_exit

log = logging.getLogger("vit_jax")

# platform -> option of XLA -> value.
_OPTIONS: dict[str, dict[str, str | bool | int]] = {
    # jax 0.10 gives all products on a CPU to YNNPACK. For those of a ViT it is slower than Eigen
    # (63 against 99 GFLOP/s for [3152, 384] x [384, 384] on two cores with AVX2), but faster with
    # sums along an axis. A step of S/16 in float32 then runs 1.24 times as many images a second.
    "cpu": {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"},
    # Products by cuBLAS, which adds biases and computes the GELU on the way, and no two products in
    # one, whose result is then taken apart by a copy.
    "gpu": {
        "xla_gpu_enable_triton_gemm": False,
        "xla_gpu_dot_merger_threshold_mb": 0,
    },
}
# The same, where a program runs on several devices. A TPU then sums the gradients of a layer while
# it computes those of others: sums in groups, asynchronous, and fused with that work. Each device
# gets the whole sum even where it needs a part, since the compiler does not hide a reduce-scatter.
_FUSED_SUMS = {
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
    "xla_tpu_enable_all_reduce_scatter_fusion": False,
}
_OF_SEVERAL: dict[str, dict[str, str | bool | int]] = {
    "tpu": {
        "xla_jf_crs_combiner_threshold_in_bytes": 2**20,
        "xla_enable_async_all_reduce": True,
        **_FUSED_SUMS,
    },
}
# TPUs that compute nothing meanwhile. A step would take the same time, and 3 times as long to
# compile.
_SUMS_ALONE = ("v2", "v3", "v4")


@functools.cache
def options(platform: str, devices: tuple[Any, ...] = ()) -> dict[str, str | bool | int]:
    """Returns options for `jax.jit(..., compiler_options=)`, without those a compiler lacks.

    Args:
      platform: of the devices: cpu, gpu or tpu.
      devices: those of the program, or their descriptions; the compiler of the first that this
        process has is asked; some compile for no others. (): jax's first device.
    """
    wanted = _OPTIONS.get(platform, {}).copy()
    if len(devices) > 1:
        generation = topology.generation_of(devices[0].device_kind)
        if generation is None or generation.name not in _SUMS_ALONE:
            wanted |= _OF_SEVERAL.get(platform, {})
    if not wanted:
        return {}
    mine = [device for device in devices if device.process_index == jax.process_index()]
    place = jax.sharding.SingleDeviceSharding(mine[0]) if mine else None
    if not _refusal(wanted, place):
        return wanted
    refused = {key: _refusal({key: value}, place) for key, value in wanted.items()}
    for message in filter(None, refused.values()):
        log.info("a compiler option is left out: %s", message)
    kept = {key: value for key, value in wanted.items() if not refused[key]}
    return {} if _refusal(kept, place) else kept  # {}: it takes each, but not together


def _refusal(some: dict[str, str | bool | int], place: Any) -> str:
    """Returns why the compiler of a device refuses options; "" if it takes them."""
    try:
        jax.jit(lambda: 0, out_shardings=place, compiler_options=some).lower().compile()
    except (jax.errors.JaxRuntimeError, ValueError) as e:  # another version of the compiler
        return str(e).splitlines()[0]
    return ""


def compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compiles a program.

    Sums that are fused with other work need fast memory of a TPU (vmem). Where it does not suffice,
    they are not fused.
    """
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as e:
        if "memory space vmem" not in str(e):
            raise
        log.info("sums over devices are not fused with other work: %s", str(e).splitlines()[0])
        return lowered.compile({option: not value for option, value in _FUSED_SUMS.items()})


@contextlib.contextmanager
def ahead() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Yields a function that compiles in a thread, one job after another, while others go on.

    If the block fails, jobs that the thread has not begun are dropped. At exit the command does not
    wait for the thread, see `process_exit.do_not_wait_for`.
    """
    wanted: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
    futures: list[Future[Any]] = []

    def work() -> None:
        while (job := wanted.get()) is not None:
            future, compiled = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(compiled())
                except BaseException as e:  # raised again by `Future.result`
                    future.set_exception(e)

    def submit(compiled: Callable[[], Any]) -> Future[Any]:
        if not futures:
            thread.start()
            process_exit.do_not_wait_for(thread)
        futures.append(Future())
        wanted.put((futures[-1], compiled))
        return futures[-1]

    thread = threading.Thread(target=work, name="compile", daemon=True)
    try:
        yield submit
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    finally:
        wanted.put(None)
