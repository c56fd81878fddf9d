# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""SkyPilot: renders a YAML file for each run, as a managed job that recovers lost machines.

SkyPilot copies the checkout (`workdir`) and the job file (`file_mounts`) to each node.
"""

import dataclasses
from typing import Any

import yaml

from vit_jax.config import recipes
from vit_jax.errors import SAVED, BadInput

from .. import job as job_lib
from ..job import CONFIG_FILE, FILE, Command, File, Job, Rendered, Run, flag

CODE = "rsync"
HOME = "~/vit_jax_job"  # folder on the nodes
_GPUS = {"a100-40gb": "A100", "a100-80gb": "A100-80GB"}  # other names: upper case


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of this engine only."""

    infra: str = flag("where to run: gcp, aws/us-east-1, kubernetes (default: the cheapest)")
    spot: bool = flag("use spot machines", False)
    image: str = flag("image of the machines, docker:NAME (default: that of the cloud)")


def render(job: Job, options: Options) -> Rendered:
    """Renders the YAML files, and the `sky jobs` commands.

    Raises:
      BadInput: SkyPilot does not have the accelerator, or there are several slices.
    """
    accelerator = job.accelerator
    if accelerator is None:
        raise BadInput("--accelerator is missing; give e.g. h100-16 or v5e-16.")
    generation = accelerator.generation
    if generation.platform == "cpu" or (generation.platform == "tpu" and not generation.runtime):
        raise BadInput(f"{accelerator.name}: SkyPilot does not have it; use local, slurm or gke.")
    if job.slices > 1:
        raise BadInput("--slices: SkyPilot does not join slices; use gke or tpu_vm.")
    files, submit, logs, cancel = [], [], [], []
    several = len(job.runs) > 1
    for run in job.runs:
        task = yaml.safe_dump(_task(job, options, run), sort_keys=False, width=1000)
        name = f"{run.name}.yaml"
        files += [*job.files(run, HOME), File(name, task)]
        path = f"{job.folder}/{name}"
        there = ("bash", "-c", 'sky jobs queue --skip-finished | grep -qwF -e "$0"', run.name)
        launch = ("sky", "jobs", "launch", "--yes", "--detach-run", path)
        submit.append(Command(launch, unless=there))
        follow = ("--no-follow",) if several else ()
        logs.append(Command(("sky", "jobs", "logs", f"--name={run.name}", *follow)))
        cancel.append(Command(("sky", "jobs", "cancel", "--yes", f"--name={run.name}")))
    status = (Command(("sky", "jobs", "queue", "--skip-finished")),)
    return Rendered(tuple(files), tuple(submit), status, tuple(logs), tuple(cancel))


def _task(job: Job, options: Options, run: Run) -> dict[str, Any]:
    assert job.accelerator is not None
    on_tpu = job.accelerator.generation.platform == "tpu"
    extra = "tpu" if on_tpu else "cuda12"
    trainer = f"vit_jax @{HOME}/{FILE}"
    if job.processes == "per_gpu":
        each = job.accelerator.chips // job.accelerator.hosts
        trainer = f"python -m {job_lib.NODE} --count={each} --per_gpu @{HOME}/{FILE}"
    at = f"{job.folder}/{job.prefix(run)}"
    return {
        "name": run.name,
        "workdir": str(recipes.root()),
        "num_nodes": 1 if on_tpu else job.accelerator.hosts,
        "resources": _resources(job, options),
        "file_mounts": {f"{HOME}/{name}": f"{at}{name}" for name in (FILE, CONFIG_FILE)},
        "setup": job_lib.fill(_SETUP, {"extra": extra}),
        "run": job_lib.fill(
            _RUN,
            {
                "exports": job_lib.exports(job.environment),
                "trainer": trainer,
                "name": run.name,
                "most": job_lib.MOST_RESTARTS,
                "again": SAVED,
            },
        ),
    }


def _resources(job: Job, options: Options) -> dict[str, Any]:
    assert job.accelerator is not None
    generation, size = job.accelerator.generation, job.accelerator.name.rpartition("-")[2]
    if generation.platform == "tpu":
        name = f"tpu-{(*generation.spellings, generation.name)[0]}-{size}"
        resources: dict[str, Any] = {
            "accelerators": name,
            "accelerator_args": {"runtime_version": generation.runtime},
        }
    else:
        gpu = _GPUS.get(generation.name, generation.name.upper())
        resources = {"accelerators": f"{gpu}:{job.accelerator.chips // job.accelerator.hosts}"}
    if options.infra:
        resources["infra"] = options.infra
    if options.image:
        resources["image_id"] = options.image
    recovery = {"recover_on_exit_codes": [SAVED]}
    return {**resources, "use_spot": options.spot, "job_recovery": recovery}


# Template for `job.fill`.
_SETUP = """\
set -e
command -v uv >/dev/null || python3 -m pip install --quiet uv
[ -d ~/vit_jax_venv ] || uv venv --quiet --python 3.11 ~/vit_jax_venv
uv pip install --quiet --python ~/vit_jax_venv/bin/python \\
  --constraint requirements.lock '.[<extra>,gcs]'
"""

# SkyPilot recovers if any node ends with a code of its list. It gives 137 to the nodes that it ends
# itself after another node. So 137 is not in the list, and a task that must run again always ends
# with 42.
_RUN = """\
<exports>export PATH=~/vit_jax_venv/bin:$PATH
starts=$(($(cat ~/<name>.starts 2>/dev/null || echo 0) + 1))
echo "$starts" > ~/<name>.starts
if [ "$starts" -gt <most> ]; then
  echo "launch: given up after <most> starts on this machine" >&2
  exit 1
fi
trap 'kill -TERM "$trainer" 2>/dev/null' TERM  # a signal to this shell is for the trainer
<trainer> &
trainer=$!
wait "$trainer"
code=$?
while kill -0 "$trainer" 2>/dev/null; do
  wait "$trainer"
  code=$?
done
if [ "$code" -eq 43 ] || [ "$code" -gt 128 ]; then
  code=<again>
fi
exit "$code"
"""
