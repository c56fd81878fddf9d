# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TPU VMs by gcloud: renders a queued resource whose machines install and run the code.

The same script serves both modes. With `startup_script` each machine runs it at every start, so
that a replaced machine begins again. With `ssh` it runs in the foreground on existing machines, for
experiments. Code, job file and configuration are in the bucket of the workdir.
"""

import dataclasses
import re
import shlex

from vit_jax.errors import BadInput

from .. import job as job_lib
from ..job import CONFIG_FILE, FILE, Command, File, Job, Rendered, Run, flag, require

CODE = "tarball"
SCRIPT, TARBALL = "startup.sh", "code.tar.gz"
HOME = "/opt/vit_jax"  # folder on the machines
UNIT = "vit_jax"
_TPUS = ("gcloud", "compute", "tpus")
_DEAD = ("SUSPENDED", "SUSPENDING", "FAILED")  # states that never become active


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of this engine only."""

    project: str = flag("Google Cloud project")
    zone: str = flag("Google Cloud zone, e.g. us-central2-b")
    capacity: str = flag(
        "capacity type: spot (default), on_demand, reserved, flex_start",
        "spot", ("spot", "on_demand", "reserved", "flex_start"),
    )  # fmt: skip
    time: str = flag("flex_start only: how long the machines stay, e.g. 8h")
    mode: str = flag(
        "how the code starts: startup_script (default) or ssh",
        "startup_script",
        ("startup_script", "ssh"),
    )
    service_account: str = flag(
        "account that can read and write the bucket (default: the project's)"
    )


def render(job: Job, options: Options) -> Rendered:
    """Renders a queued resource for each run, with the script of its machines.

    Raises:
      BadInput: gcloud does not offer the accelerator as TPU VMs, or a flag is missing.
    """
    require(project=options.project, zone=options.zone)
    _check(job, options)
    code = f"{job.workdir}/launch/code-{job.code[:12]}.tar.gz"
    files = [File(TARBALL, job.artefact)]
    upload = Command(_copy(f"{job.folder}/{TARBALL}", code))  # the target's name has the hash
    submit, status, logs, cancel = [upload], [], [], []
    for run in job.runs:
        told, config = job.files(run, f"{HOME}/job")
        script = f"{job.prefix(run)}{SCRIPT}"
        files += [told, config, File(script, _script(job, run, code), 0o755)]
        local = [f"{job.folder}/{file.name}" for file in (told, config)]
        there = _there(options, run)
        begin = [_copy(*local, f"{run.workdir}/launch/")]
        begin += _start(job, options, run, f"{job.folder}/{script}")
        submit += [Command(argv, unless=there, dead=_DEAD) for argv in begin]
        status.append(_status(job, options, run))
        logs.append(_logs(job, options, run))
        cancel.append(_cancel(job, options, run))
    return Rendered(tuple(files), tuple(submit), tuple(status), tuple(logs), tuple(cancel))


def _at(options: Options) -> tuple[str, ...]:
    return (f"--project={options.project}", f"--zone={options.zone}")


def _there(options: Options, run: Run) -> tuple[str, ...]:
    """Returns a command that succeeds and prints a state if a run's machines were requested."""
    if options.mode == "ssh":
        return ()
    described = ("queued-resources", "describe", run.name, *_at(options))
    return (*_TPUS, *described, "--format=value(state.state)")


def _status(job: Job, options: Options, run: Run) -> Command:
    if options.mode == "ssh":
        return _ssh(job, options, run, f"systemctl is-active {UNIT}")
    return Command((*_TPUS, "queued-resources", "describe", run.name, *_at(options)))


def _logs(job: Job, options: Options, run: Run) -> Command:
    """Returns the command for the journal of machine 0, followed if there is only one run."""
    name = f"{run.name}-0" if job.slices > 1 else run.name
    follow = "" if len(job.runs) > 1 else "--follow "
    read = f"sudo journalctl --unit={UNIT} --lines=200 {follow}--no-pager"
    at = _at(options)
    return Command((*_TPUS, "tpu-vm", "ssh", name, *at, "--worker=0", f"--command={read}"))


def _cancel(job: Job, options: Options, run: Run) -> Command:
    """Returns the command that ends a run.

    With `ssh` the machines stay, as we did not create them.
    """
    if options.mode == "ssh":
        return _ssh(job, options, run, f"sudo systemctl stop {UNIT}")
    at = _at(options)
    return Command((*_TPUS, "queued-resources", "delete", run.name, *at, "--force", "--quiet"))


def _ssh(job: Job, options: Options, run: Run, command: str) -> Command:
    """Returns a command that runs on all machines of a run."""
    several = job.slices > 1
    kind = ("queued-resources", "ssh") if several else ("tpu-vm", "ssh")
    nodes = ("--node=all",) if several else ()
    at = (*_at(options), "--worker=all", *nodes)
    return Command((*_TPUS, *kind, run.name, *at, f"--command={command}"))


def _check(job: Job, options: Options) -> None:
    if job.accelerator is None:
        raise BadInput("--accelerator is missing; give a TPU, e.g. v4-32.")
    if not job.accelerator.generation.runtime:
        where = "gke" if job.accelerator.generation.platform == "tpu" else "slurm, gke or sky"
        raise BadInput(f"{job.accelerator.name} is not a TPU VM of gcloud; use {where}.")
    if options.mode == "ssh" and job.sweep:
        raise BadInput("--mode=ssh serves one run; leave out --sweep, or --mode.")
    if options.capacity == "flex_start" and not re.fullmatch(r"[1-9]\d*[smhd]", options.time):
        raise BadInput(f"--time={options.time!r}: flex_start needs a duration such as 8h.")
    if options.time and options.capacity != "flex_start":
        raise BadInput(f"--time={options.time}: only --capacity=flex_start has a limit.")


def accelerator_type(job: Job) -> str:
    """Returns gcloud's name of an accelerator: v5e-16 is v5litepod-16 there."""
    assert job.accelerator is not None
    generation = job.accelerator.generation
    size = job.accelerator.name.rpartition("-")[2]
    return f"{(*generation.spellings, generation.name)[0]}-{size}"


def _start(job: Job, options: Options, run: Run, script: str) -> list[tuple[str, ...]]:
    """Returns the commands that create a run's machines, or run the script on existing ones."""
    several = job.slices > 1
    if options.mode == "ssh":
        there = f"{run.workdir}/launch/{SCRIPT}"
        fetch = f"gcloud storage cp {shlex.quote(there)} /tmp/{SCRIPT}"
        run_it = f"{fetch} && sudo bash /tmp/{SCRIPT} foreground"
        return [_copy(script, there), _ssh(job, options, run, run_it).argv]
    assert job.accelerator is not None
    flex = options.capacity == "flex_start"
    how = {
        "spot": ("--spot",), "on_demand": (), "reserved": ("--reserved",),
        "flex_start": ("--provisioning-model=flex-start", f"--max-run-duration={options.time}"),
    }[options.capacity]  # fmt: skip
    named = f"--node-id={run.name}"
    nodes = (f"--node-count={job.slices}", f"--node-prefix={run.name}") if several else (named,)
    account = (f"--service-account={options.service_account}",) if options.service_account else ()
    if "," in script or "=" in script:
        raise BadInput(f"{script!r}: gcloud cannot take a path with , or =; give another --out.")
    return [(
        *(("gcloud", "alpha") if flex else ("gcloud",)), *_TPUS[1:], "queued-resources", "create",
        run.name, *_at(options), f"--accelerator-type={accelerator_type(job)}",
        f"--runtime-version={job.accelerator.generation.runtime}", *nodes, *how, *account,
        f"--metadata-from-file=startup-script={script}",
    )]  # fmt: skip


def _copy(*paths: str) -> tuple[str, ...]:
    return ("gcloud", "storage", "cp", *paths)


def _script(job: Job, run: Run, code: str) -> str:
    values = {
        "home": HOME, "unit": UNIT, "job": FILE, "config": CONFIG_FILE, "hash": job.code,
        "code": shlex.quote(code), "bucket": shlex.quote(f"{run.workdir}/launch"),
        "exports": job_lib.exports({**job.environment, "VIT_JAX_CODE": job.code}),
        "again": " ".join(map(str, job_lib.AGAIN)), "most": job_lib.MOST_RESTARTS,
        "grace": job_lib.GRACE_SECS,
    }  # fmt: skip
    return job_lib.fill(_SCRIPT, values)


# Template for `job.fill`. Deaths by signal restart through on-abnormal, exit codes through the
# list; 0, 1 and 2 do not restart. The list has the four signals that systemd calls clean, because
# only the end of a machine sends them.
_SCRIPT = """\
#!/bin/bash
# Written by `python -m launch tpu_vm`; runs as root on each machine, each time that it starts.
set -euo pipefail
export HOME=/root
mkdir -p <home>/job
cd <home>

again() {  # until it works, for an hour: nobody looks, and the other machines wait
  local pause
  for pause in 10 30 60 120 300 600 600 600 600 600; do
    "$@" && return
    echo "$1 did not work; again in $pause s" >&2
    sleep "$pause"
  done
  "$@"
}
fetch() {
  gcloud storage cp <code> code.tar.gz && gcloud storage cp <bucket>/<job> <bucket>/<config> job/
}
install() {
  rm -rf code venv installed && mkdir code && tar -xzf code.tar.gz -C code &&
    python3 -m pip install --quiet uv &&
    python3 -m uv venv --quiet --python 3.11 venv &&
    python3 -m uv pip install --quiet --python venv/bin/python \\
      --constraint code/requirements.lock './code[tpu,gcs]' &&
    echo <hash> > installed
}
again fetch
echo "<hash>  code.tar.gz" | sha256sum --check --quiet
if [ "$(cat installed 2>/dev/null)" != <hash> ]; then
  again install
fi

cat > run.sh <<'END-<hash>'
#!/bin/bash
cd <home>/code || exit 2
export PATH=<home>/venv/bin:$PATH
<exports>exec vit_jax @<home>/job/<job>
END-<hash>
chmod +x run.sh

systemctl stop <unit> 2>/dev/null || true
systemctl reset-failed <unit> 2>/dev/null || true
unit=(--unit=<unit> --property=TimeoutStopSec=<grace> --property=LimitMEMLOCK=infinity
  --setenv=HOME=/root)
if [ "${1:-}" = foreground ]; then  # a unit as well: it outlives the connection, and can be stopped
  journalctl --unit=<unit> --since=now --follow --output=cat --no-pager &
  follows=$!
  code=0
  systemd-run --wait --quiet "${unit[@]}" <home>/run.sh || code=$?
  sleep 1
  kill "$follows" 2>/dev/null || true
  exit "$code"
fi
systemd-run --collect "${unit[@]}" \\
  --property=Restart=on-abnormal \\
  --property="RestartForceExitStatus=<again> SIGHUP SIGINT SIGTERM SIGPIPE" \\
  --property="RestartPreventExitStatus=0 1 2" \\
  --property=RestartSec=10 \\
  --property=StartLimitIntervalSec=infinity \\
  --property=StartLimitBurst=<most> \\
  <home>/run.sh
"""
