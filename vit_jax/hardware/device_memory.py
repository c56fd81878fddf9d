# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how much memory a compiled step needs on a device, and which settings need less.

Start from `advice`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax

from vit_jax.errors import BadInput

GIB = 2**30


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True if an error of the runtime or the compiler means too little device memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def peak_bytes(compiled: Any) -> int:
    """Returns the peak bytes per device: arguments, results and temporaries of a compiled step."""
    memory = compiled.memory_analysis()
    kept = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes + kept


def limit_bytes(device: Any) -> int | None:
    """Returns the bytes of a device that jax may use; None where it does not say (the CPU)."""
    stats = device.memory_stats() or {}
    return stats.get("bytes_limit")


def most(devices: Iterable[Any], name: str) -> int | None:
    """Returns the highest value of a `memory_stats` figure among devices; None if not known."""
    values = [(device.memory_stats() or {}).get(name) for device in devices]
    return max((n for n in values if n is not None), default=None)


def advice(
    compile_step: Callable[[dict[str, Any]], Any],
    settings: Iterable[dict[str, Any]],
    limit: int | None,
) -> BadInput:
    """Returns an error that tells the peak of a step and of the step with other settings.

    Args:
      compile_step: settings (empty for the step as it is) -> compiled step.
      settings: the settings to try: config key -> value.
      limit: bytes of a device, if known.
    """

    def peak(changes: dict[str, Any]) -> tuple[str, int | None]:
        try:
            need = peak_bytes(compile_step(changes))
        except jax.errors.JaxRuntimeError:
            return "more than the compiler can place", None
        return f"{need / GIB:.2f} GiB", need

    lines = []
    for changes in settings:
        try:
            text, need = peak(changes)
        except BadInput:  # a mesh that does not divide the model
            continue
        flags = " ".join(f"--config.{k}={v}" for k, v in changes.items())
        fits = ""
        if limit is not None:
            fits = ", fits" if need is not None and need < limit else ", does not fit"
        lines.append(f"  {flags}: {text}{fits}")
    have = f"{limit / GIB:.2f} GiB" if limit is not None else "an amount it does not tell"
    return BadInput(
        f"out of memory: a step needs {peak({})[0]} on each device, which has {have}. "
        "The same step would need, with\n" + "\n".join(lines) + "\n"
        "Accumulation, remat and fsdp leave results as they are, up to rounding and the draws of "
        "dropout; another batch size does not."
    )
