# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Slurm: renders a batch script that runs the trainer with srun and requeues it by exit code.

A sweep is an array with one task for each point. Values that may contain odd characters travel in
job files and single quotes; `#SBATCH` lines hold only values that `job.checked` accepts.
"""

import dataclasses
import re
import shlex

from vit_jax.checkpoints import step_folders
from vit_jax.errors import BadInput

from .. import job as job_lib
from ..job import Command, File, Job, Rendered, checked, flag

CODE = "folder"
SCRIPT, TASK = "job.sh", "task.sh"
CHECKPOINTS = "checkpoints"  # file with the path of the checkpoints
SIGNAL_SECS = 180  # before the time limit, for saving
_PROXIES = "http_proxy https_proxy all_proxy grpc_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY"


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of this engine only."""

    partition: str = flag("partition to submit to")
    account: str = flag("account to charge")
    qos: str = flag("quality of service")
    time: str = flag(
        "limit of each start, D-HH:MM:SS; before it ends, the run saves and is requeued"
    )
    gres: str = flag("generic resources of each node (default: gpu:N)")
    nodes: int = flag("nodes of each run (default: the machines of the accelerator)", 0)
    sbatch: tuple[str, ...] = flag(
        "any other option of sbatch, e.g. --sbatch=--mem=0; can be repeated", ()
    )


def render(job: Job, options: Options) -> Rendered:
    """Renders the batch script, the script of its tasks, and the job files.

    Raises:
      BadInput: there is no accelerator, Slurm's nodes do not have it, or a value is impossible.
    """
    nodes, tasks, gres, environment = _machines(job, options)
    numbers = ",".join(str(run.number) for run in job.runs)
    most = f"%{job.parallel}" if job.parallel else ""
    time = options.time
    if time and not re.fullmatch(r"(\d+-)?\d+(:\d{1,2}){0,2}", time):
        raise BadInput(f"--time={time!r}: write minutes, HH:MM:SS or D-HH:MM:SS.")
    directives = {
        "job-name": job.name, "nodes": nodes, "ntasks-per-node": tasks, "gres": gres,
        "partition": options.partition, "account": options.account, "qos": options.qos,
        "time": time, "signal": f"TERM@{SIGNAL_SECS}", "open-mode": "append",
        "array": numbers + most if job.sweep else "",
    }  # fmt: skip
    lines = [f"#SBATCH --{k}={checked(k, str(v))}" for k, v in directives.items() if v]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {_other(text)}" for text in options.sbatch)]
    values = {
        "directives": "\n".join(lines), "proxies": _PROXIES, "most": job_lib.MOST_RESTARTS,
        "exports": job_lib.exports(environment), "folder": shlex.quote(job.folder),
        "task": TASK, "point": '"/$SLURM_ARRAY_TASK_ID"' if job.sweep else "",
        "checkpoints": CHECKPOINTS,
        "id": "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.sweep else "$SLURM_JOB_ID",
    }  # fmt: skip
    files = [File(SCRIPT, job_lib.fill(_SCRIPT, values), 0o755), File(TASK, _TASK, 0o755)]
    for run in job.runs:
        files += job.files(run, f"{job.folder}/{job.prefix(run)}".rstrip("/"))
        checkpoints = f"{run.workdir}/{step_folders.FOLDER}\n"
        files.append(File(f"{job.prefix(run)}{CHECKPOINTS}", checkpoints))
    pattern = job.folder.replace("%", "%%")
    output = f"--output={pattern}/log{'-%a' if job.sweep else ''}.txt"
    which = [f"-{run.number}" for run in job.runs] if job.sweep else [""]
    logs = [f"{job.folder}/log{i}.txt" for i in which]
    columns = "--format=%.18i %.9P %.40j %.10T %.10M %.6D %R"
    return Rendered(
        files=tuple(files),
        submit=(
            Command(
                ("sbatch", output, f"{job.folder}/{SCRIPT}"),
                unless=("bash", "-c", 'squeue --noheader --name="$0" | grep -q .', job.name),
            ),
        ),
        status=(Command(("squeue", f"--name={job.name}", columns)),),
        logs=(Command(("tail", "-n", "200", "-F", *logs)),),
        cancel=(Command(("scancel", f"--name={job.name}")),),
    )


def _machines(job: Job, options: Options) -> tuple[int, int, str, dict[str, str]]:
    """Returns (nodes, tasks per node, generic resources per node, variables)."""
    if job.accelerator is None:
        raise BadInput("--accelerator is missing; give e.g. h100-16, or cpu-8 for CPUs only.")
    platform, chips = job.accelerator.generation.platform, job.accelerator.chips
    if platform == "tpu":
        raise BadInput(
            f"{job.accelerator.name} is a TPU, which Slurm does not have; use gke, tpu_vm or sky."
        )
    nodes = options.nodes or job.accelerator.hosts
    if nodes < 1 or chips % nodes:
        fits = [n for n in range(1, chips + 1) if chips % n == 0]
        near = min(fits, key=lambda n: abs(n - nodes))
        raise BadInput(f"--nodes={nodes} cannot share {chips} devices equally; --nodes={near} can.")
    if platform == "cpu":
        flags = f"--xla_force_host_platform_device_count={chips // nodes}"
        flags = f"{job.environment.get('XLA_FLAGS', '')} {flags}".strip()
        variables = {"JAX_PLATFORMS": "cpu", **job.environment, "XLA_FLAGS": flags}
        return nodes, 1, options.gres, variables
    each = chips // nodes
    tasks = each if job.processes == "per_gpu" else 1
    return nodes, tasks, options.gres or f"gpu:{each}", dict(job.environment)


def _other(text: str) -> str:
    if not text.startswith("-"):
        raise BadInput(f"--sbatch={text!r}: write the whole option, e.g. --sbatch=--mem=0.")
    return checked("sbatch", text)


# Template for `job.fill`. The script records the code of each task, because srun returns the
# highest of all codes. That may be the code of a task that srun killed. The file exists from the
# start, because some file systems remember for long that a file is missing.
_SCRIPT = """\
#!/bin/bash
# Written by `python -m launch slurm`; `sbatch` takes it as it is.
# shellcheck disable=SC2016 # what is quoted is meant letter by letter
<directives>
set -u
unset <proxies>
<exports>folder=<folder>
point=$folder<point>
asks="$point/needs-a-person-$SLURM_JOB_ID"  # gets the code of a task that must not run again
: > "$asks"
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then  # which srun itself no longer heeds
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
fi

srun --kill-on-bad-exit=1 --label "$folder/<task>" "$point/job.json" "$asks"
code=$?
if read -r asked < "$asks"; then
  code=$asked
fi
case $code in
  42 | 43) ;;
  *) [ "$code" -gt 128 ] || exit "$code" ;;
esac
ends="$point/ends-$SLURM_JOB_ID"  # the newest checkpoint, and how often it stayed that
steps=$(cat "$point/<checkpoints>")
newest=$(find "$steps" -maxdepth 1 -regex '.*/[0-9]+' -printf '%f\n' 2>/dev/null |
  sort -n | tail -n 1)
count=0
if [ -s "$ends" ] && read -r before count < "$ends" && [ "$before" != "${newest:-none}" ]; then
  count=0
fi
if [ "$count" -ge <most> ]; then
  echo "launch: ended with code $code; given up after <most> restarts without a new checkpoint" >&2
  exit 1
fi
echo "${newest:-none} $((count + 1))" > "$ends"
echo "launch: ended with code $code; runs again" >&2
scontrol requeue "<id>"
exit "$code"
"""

_TASK = """\
#!/bin/bash
# Written by `python -m launch slurm`; what each task runs: task.sh JOB FILE-FOR-CODES.
trap : TERM  # is for the trainer, which saves and ends; this shell waits for its code
vit_jax "@$1"
code=$?
case $code in
  0 | 42 | 43) ;;
  *) [ "$code" -gt 128 ] || echo "$code" > "$2" ;;
esac
exit "$code"
"""
