# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Says which settings need less memory, to a run that does not fit. Start from `out_of_memory`."""

from typing import Any

from vit_jax.build.program import Program
from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.models import variants


def stronger_remat(model: sections.Model) -> list[str]:
    """Returns the policies of `model.remat` that keep less, mildest first; [] without `remat`."""
    forms = variants.of(model, 1).FORMS
    remat = model.remat if "remat" in forms else "full"
    return {"none": ["dots", "full"], "auto": ["dots", "full"], "full": []}.get(remat, ["full"])


def out_of_memory(run: Program) -> BadInput:
    """Returns an error that says how much memory a run needs, and which settings need less."""
    from vit_jax.hardware import device_memory

    size, parts, ways = run.config.batch_size, run.config.accumulation, run.rules.batch_parts
    more = [parts * f for f in (2, 4, 8, 16) if size % (parts * f * ways) == 0]
    settings: list[dict[str, Any]] = [{"accumulation": a} for a in more]
    remat = stronger_remat(run.config.model)
    settings += [{"model.remat": policy} for policy in remat]
    settings += [
        {"accumulation": a, "model.remat": policy} for a in more[-1:] for policy in remat[-1:]
    ]
    mesh = run.rules.mesh
    most = mesh.size // (mesh.shape["replica"] * mesh.shape["tensor"])
    if mesh.shape["fsdp"] < most:
        settings.append({"mesh.fsdp": most, "mesh.data": -1})
    if size % (2 * parts * ways) == 0:
        settings.append({"batch_size": size // 2})
    limit = device_memory.limit_bytes(mesh.local_devices[0])
    return device_memory.advice(
        lambda changes: run.changed(changes).lower_step().compile(), settings, limit
    )
