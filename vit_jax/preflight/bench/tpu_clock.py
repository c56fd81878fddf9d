# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares our training step with the plain one by the TPU compiler's clock, without a TPU.

Both are compiled for one device. The figures are the compiler's estimates, see `plan.clock`. Start
from `table`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput, RunFailed
from vit_jax.hardware import detect, device_memory, topology
from vit_jax.models import variants
from vit_jax.preflight.bench import baseline, our_steps
from vit_jax.preflight.bench.interleaved import Asked
from vit_jax.preflight.plan import clock, compile_for, estimate
from vit_jax.runtime.worker_process import Child

log = logging.getLogger("vit_jax")


def check(names: Sequence[str]) -> None:
    """Raises BadInput unless each name is a TPU with a known clock, and the compiler is here."""
    known = [name for name, generation in topology.GENERATIONS.items() if generation.hertz]
    for name in names:
        if name not in known:
            raise BadInput(f"--tpu={name}: choose from {', '.join(known)}, with commas between.")
    if not detect.has_tpu_compiler():
        raise BadInput("bench tpu needs the TPU compiler: pip install 'vit_jax[plan]'.")


def table(
    asked: Sequence[Asked],
    names: Sequence[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    alone: bool = False,
) -> list[dict[str, Any]]:
    """Returns a row for each model and TPU.

    A row has `tpu`, `model`, `batch`, `resolution`, `dtype`, and for `ours` and `baseline` (None if
    ours is `alone`, or the model is not a plain ViT): `secs`, `img_per_sec`, `mfu`,
    `peak_bytes`, `compile_secs`, or `error`. `ratio` is our rate relative to that of the baseline.
    """
    rows, total = [], len(names) * len(asked)
    for name in names:
        accelerator = topology.sold(topology.GENERATIONS[name])[0]  # a step uses one device of it
        for one in asked:
            progress(len(rows), total)
            log.info("compiling %s for %s, which takes minutes", one.model, name)
            ours = _figures_of("ours", accelerator, one)
            has_plain = not alone and baseline.config_of(one) is not None
            plain = _figures_of("baseline", accelerator, one) if has_plain else None
            rows.append(
                {
                    "tpu": name,
                    "model": one.model,
                    "batch": one.batch,
                    "resolution": one.resolution,
                    "dtype": one.dtype,
                    "ours": ours,
                    "baseline": plain,
                    "ratio": _ratio(ours, plain),
                }
            )
    progress(total, total)
    return rows


def _figures_of(candidate: str, accelerator: topology.Accelerator, asked: Asked) -> dict[str, Any]:
    """Returns the figures of a candidate. A compiler that dies is an error of this one only."""
    try:
        with Child(answering, accelerator, asked, died=compile_for.DIED) as child:
            return child.ask(candidate)
    except RunFailed as e:
        return {"error": str(e)}


def _ratio(ours: dict[str, Any], plain: dict[str, Any] | None) -> float | None:
    if plain is None or "error" in ours or "error" in plain:
        return None
    return plain["secs"] / ours["secs"]


def answering(accelerator: topology.Accelerator, asked: Asked) -> Callable[[str], dict[str, Any]]:
    """Returns, in a fresh process, a function from a candidate to its figures."""
    compile_for.start(accelerator, 1)
    device = compile_for.devices(accelerator, 1)[0][0]

    def measure(candidate: str) -> dict[str, Any]:
        if candidate == "ours":
            made = our_steps.for_device(our_steps.config(asked), device)
            found = _measured(made.lower_step, estimate.step_flops(made), accelerator, asked)
            return {"form": made.execution} | found
        cfg = baseline.config_of(asked)
        assert cfg is not None
        side = asked.resolution
        flops = 3 * asked.batch * variants.forward_flops(cfg, side, side)
        return _measured(lambda: _plain(cfg, asked, device), flops, accelerator, asked)

    return measure


def _plain(cfg: Any, asked: Asked, device: Any) -> jax.stages.Lowered:
    state = jax.eval_shape(lambda: baseline.state(cfg, asked.resolution))
    images = (asked.batch, asked.resolution, asked.resolution, 3)
    shapes = (
        state,
        jax.ShapeDtypeStruct(images, jnp.uint8),
        jax.ShapeDtypeStruct((asked.batch,), jnp.int32),
    )
    placed = compile_for.on_device(shapes, device)
    return jax.jit(baseline.step(cfg), donate_argnums=0).lower(*placed)


def _measured(
    lower: Callable[[], jax.stages.Lowered],
    flops: float,
    accelerator: topology.Accelerator,
    asked: Asked,
) -> dict[str, Any]:
    generation, began = accelerator.generation, time.monotonic()
    try:
        compiled = lower().compile()
    except jax.errors.JaxRuntimeError as e:
        if not device_memory.is_out_of_memory(e):
            raise
        return {"error": "does not fit in memory"}
    secs = time.monotonic() - began
    text, peak = compiled.as_text() or "", generation.flops
    try:
        estimated = clock.read(text, generation.hertz, peak, lambda *_: 0.0)
    except ValueError as e:
        return {"error": f"has no estimate: {e}"}
    needs = compiled.memory_analysis()
    if estimated is None or needs is None:
        raise BadInput(f"the compiler writes no cycles for {accelerator.name}.")
    return {
        "secs": estimated.secs,
        "img_per_sec": asked.batch / estimated.secs,
        "mfu": flops / estimated.secs / peak,
        "peak_bytes": needs.peak_memory_in_bytes,
        "compile_secs": secs,
    }


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a table for people."""
    lines = ["estimated by the TPU compiler, for one device of each TPU"]
    for row in rows:
        lines.append(f"{row['model']}, {row['batch']} images, {row['tpu']}: " + "; ".join(
            f"{name} {_shown(row[name])}" for name in ("ours", "baseline") if row[name]
        ))  # fmt: skip
        if row["ratio"]:
            lines[-1] += f"; ratio {row['ratio']:.2f}"
        if form := row["ours"].get("form"):
            lines.append(f"  ours: {form}")
    return "\n".join(lines)


def _shown(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"]
    return (
        f"{1000 * found['secs']:.1f} ms, {found['img_per_sec']:,.0f} images/s, MFU "
        f"{found['mfu']:.1%}, {found['peak_bytes'] / 2**30:.2f} GiB, compiled in "
        f"{found['compile_secs']:.0f} s"
    )
