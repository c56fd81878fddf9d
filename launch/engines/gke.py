# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Google Kubernetes Engine: renders a JobSet for each run; Kueue queues it if requested.

A child Job is a slice, and its pods are the machines. Any failing pod fails its Job, and JobSet
recreates all of them, unless the exit code forbids it. The manifests need JobSet v1alpha2 with
rules in its failure policy.
"""

import dataclasses
from typing import Any

import yaml

from vit_jax.errors import BadInput
from vit_jax.hardware.topology import Accelerator

from .. import job as job_lib
from ..job import CONFIG_FILE, FILE, Command, File, Job, Rendered, Run, flag, require

CODE = "image"
MOUNT = "/etc/vit_jax"  # folder of the job file in a pod
GROUP, CONTAINER = "slice", "trainer"
LABEL = "vit-jax-job"
_NODES = "cloud.google.com/gke-"
_ANNOTATIONS = "jobset.sigs.k8s.io/"


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of this engine only."""

    image: str = flag("container image, by digest: NAME@sha256:...")
    context: str = flag("context of kubectl, which selects the cluster (default: the current one)")
    namespace: str = flag("Kubernetes namespace (default: default)", "default")
    queue: str = flag("LocalQueue of Kueue (default: no queue, pods start at once)")
    service_account: str = flag("Kubernetes account that can read and write the bucket "
                                "(default: the account of the machines)")  # fmt: skip
    spot: bool = flag("use spot nodes", False)


def render(job: Job, options: Options) -> Rendered:
    """Renders a manifest for each run, and the kubectl commands.

    Raises:
      BadInput: GKE does not have the accelerator, or a flag is missing.
    """
    require(image=options.image)
    accelerator = job.accelerator
    if accelerator is None:
        raise BadInput("--accelerator is missing; give e.g. v5e-16 or h100-16.")
    if "," in job.folder:
        raise BadInput(f"{job.folder!r}: kubectl cannot take a path with ,; give another --out.")
    if not accelerator.generation.selector:
        raise BadInput(f"{accelerator.name}: GKE has no such nodes; use tpu_vm or slurm.")
    files, submit = [], []
    kubectl = ["kubectl", *([f"--context={options.context}"] if options.context else [])]
    kubectl.append(f"--namespace={options.namespace}")
    for run in job.runs:
        told, config = job.files(run, MOUNT)
        data = {FILE: told.content, CONFIG_FILE: config.content}
        objects = [_config_map(job, options, run, data), _jobset(job, options, run, accelerator)]
        text = "---\n".join(yaml.safe_dump(one, sort_keys=False, width=1000) for one in objects)
        files.append(File(f"{run.name}.yaml", text))
        there = (*kubectl, "get", "jobset", run.name)
        create = (*kubectl, "apply", f"--filename={job.folder}/{run.name}.yaml")
        submit.append(Command(create, unless=there))
    index = f"{_ANNOTATIONS}job-index=0,batch.kubernetes.io/job-completion-index=0"
    first = f"{LABEL}={job.name},{index}"
    mine = f"--selector={LABEL}={job.name}"
    return Rendered(
        tuple(files),
        tuple(submit),
        status=(Command((*kubectl, "get", "jobsets,jobs,pods", mine)),),
        logs=(
            Command((*kubectl, "logs", "--follow", "--tail=200", "--prefix",
                     f"--max-log-requests={len(job.runs) + 4}", f"--selector={first}")),
        ),
        cancel=(Command((*kubectl, "delete", "jobsets,configmaps", mine)),),
    )  # fmt: skip


def _metadata(job: Job, options: Options, run: Run) -> dict[str, Any]:
    labels = {LABEL: job.name}
    return {"name": run.name, "namespace": options.namespace, "labels": labels}


def _config_map(job: Job, options: Options, run: Run, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, options, run),
        "data": data,
    }


def _jobset(job: Job, options: Options, run: Run, accelerator: Accelerator) -> dict[str, Any]:
    """Returns the JobSet: one child Job per slice, each with one pod per machine."""
    metadata = _metadata(job, options, run)
    if options.queue:
        metadata["labels"]["kueue.x-k8s.io/queue-name"] = options.queue
    if accelerator.generation.platform == "tpu" and accelerator.hosts > 1:  # a node pool is a slice
        exclusive = f"alpha.{_ANNOTATIONS}exclusive-topology"
        metadata["annotations"] = {exclusive: f"{_NODES}nodepool"}
    child = {
        "parallelism": accelerator.hosts,
        "completions": accelerator.hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": _pod_rules()},
        "template": {
            "metadata": {"labels": {LABEL: job.name}},
            "spec": _pod(job, options, run, accelerator),
        },
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "failurePolicy": {
                "maxRestarts": job_lib.MOST_RESTARTS,
                "rules": [
                    {
                        "name": "needs-a-person",
                        "action": "FailJobSet",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {"name": GROUP, "replicas": job.slices, "template": {"spec": child}}
            ],
        },
    }


def _pod_rules() -> list[dict[str, Any]]:
    """Returns rules by which evictions and certain exit codes count as failures that restart."""
    codes = {"containerName": CONTAINER, "operator": "NotIn", "values": list(job_lib.AGAIN)}
    return [
        {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": codes},
    ]


def _pod(job: Job, options: Options, run: Run, accelerator: Accelerator) -> dict[str, Any]:
    """Returns the pod of one machine."""
    on_tpu = accelerator.generation.platform == "tpu"
    each = accelerator.chips // accelerator.hosts
    selector = {f"{_NODES}{'tpu-' if on_tpu else ''}accelerator": accelerator.generation.selector}
    if on_tpu:
        selector[f"{_NODES}tpu-topology"] = accelerator.shape
    if options.spot:
        selector[f"{_NODES}spot"] = "true"
    volumes: list[dict[str, Any]] = [{"name": "job", "configMap": {"name": run.name}}]
    mounts = [{"name": "job", "mountPath": MOUNT, "readOnly": True}]
    if not on_tpu:  # for NCCL's shared memory
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    words = ["vit_jax", f"@{MOUNT}/{FILE}"]
    if job.processes == "per_gpu":
        words = ["python", "-m", job_lib.NODE, f"--count={each}", "--per_gpu", words[1]]
    resource = "google.com/tpu" if on_tpu else "nvidia.com/gpu"
    container = {
        "name": CONTAINER,
        "image": options.image,
        "command": words,
        "env": _environment(job, accelerator),
        "resources": {"limits": {resource: each}, "requests": {resource: each}},
        "volumeMounts": mounts,
    }
    # Pods on the network of their machine act as that machine's account, even if they have their
    # own.
    if options.service_account:
        own: dict[str, Any] = {"serviceAccountName": options.service_account}
    else:
        own = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if on_tpu else {}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job_lib.GRACE_SECS,
        **own,
        "nodeSelector": selector,
        "containers": [container],
        "volumes": volumes,
    }


def _environment(job: Job, accelerator: Accelerator) -> list[dict[str, Any]]:
    """Returns the variables of a pod, with its identity if jax cannot find its peers itself.

    Kubernetes reads `$(NAME)` in a value as another variable, and `$$` as `$`.
    """
    values = {**job.environment, "VIT_JAX_CODE": job.code}
    variables: list[dict[str, Any]] = [
        {"name": k, "value": v.replace("$", "$$")} for k, v in values.items()
    ]
    if accelerator.generation.platform == "tpu":
        return variables
    fields = {
        "JOBSET_NAME": "jobset-name",
        "REPLICATED_JOB_NAME": "replicatedjob-name",
        "JOB_INDEX": "job-index",
    }
    for name, key in fields.items():
        path = f"metadata.annotations['{_ANNOTATIONS}{key}']"
        variables.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    variables.append({"name": "JOB_PARALLELISM", "value": str(accelerator.hosts)})
    return [*variables, {"name": "JOB_REPLICAS", "value": str(job.slices)}]
