# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the compiler is told beyond its defaults, and when: the one place for its flags.

Figures, and what did not help, are in docs/experiments.md. Start from `options` and `ahead`.
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

from vit_jax.runtime import process_exit

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


@contextlib.contextmanager
def ahead() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Gives a function that has a thread compile, one thing after another, while others go on.

    What the thread has not begun when the block fails is left. At exit the command does not wait
    for it, see `process_exit.not_for`.
    """
    wanted: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
    futures: list[Future[Any]] = []

    def work() -> None:
        while (job := wanted.get()) is not None:
            future, compiled = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(compiled())
                except BaseException as e:  # raised again by whoever asks for it
                    future.set_exception(e)

    def submit(compiled: Callable[[], Any]) -> Future[Any]:
        if not futures:
            thread.start()
            process_exit.not_for(thread)
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
