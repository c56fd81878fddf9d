# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Manifests against a strict schema, and the values that Kubernetes hands to the trainer."""

import copy
import json
import re

import jobset_schema
import kubernetes_validate
import launch_jobs
import pytest
import yaml

from launch import job
from launch.engines import gke
from launch.engines.gke import Options
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.runtime import process_identity

IMAGE = "host.example/vit@sha256:" + "0" * 64
GIVEN = Options(image=IMAGE)
VERSION = "1.33"  # of Kubernetes


def made(tmp_path, accelerator="v5e-16", options=GIVEN, **more):
    given = {"workdir": "gs://bucket/runs/mine", **more}
    return gke.render(launch_jobs.odd_job(tmp_path, accelerator, **given), options)


def manifest(*args, **more):
    """(ConfigMap, JobSet) of the first run."""
    return list(yaml.safe_load_all(made(*args, **more).files[0].content))


def pod(found):
    return found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


EVERY = [a.name for g in topology.GENERATIONS.values() if g.selector for a in topology.sold(g)]
KINDS = [
    {},
    {"slices": 4},
    {"accelerator": "h100-16"},
    {"accelerator": "h100-16", "processes": "per_gpu"},
    {"options": Options(IMAGE, queue="lab", service_account="a", spot=True), "points": 2},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_manifests_are_as_the_schema_has_it_and_always_the_same(tmp_path, kind):
    rendered = made(tmp_path, **kind)
    for file in rendered.files:
        config, found = yaml.safe_load_all(file.content)
        assert jobset_schema.errors(config, jobset_schema.CONFIG_MAP) == []
        assert jobset_schema.errors(found, jobset_schema.JOBSET) == []
    assert rendered == made(tmp_path, **kind)


def as_kubernetes_has_it(config, found, change=None):
    """Raises unless the ConfigMap, and the Job that JobSet makes of each child, are valid."""
    kubernetes_validate.validate(config, VERSION, strict=True)
    for child in found["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": child["name"]}}
        job["spec"] = child["template"]["spec"] | (change or {})
        kubernetes_validate.validate(job, VERSION, strict=True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_jobs_are_as_kubernetes_has_them(tmp_path, kind):
    for file in made(tmp_path, **kind).files:
        as_kubernetes_has_it(*yaml.safe_load_all(file.content))


@pytest.mark.parametrize("change", [{"backofLimit": 0}, {"parallelism": "four"}])
def test_kubernetes_notices_what_is_misspelt_or_of_another_type(tmp_path, change):
    with pytest.raises(kubernetes_validate.ValidationError):
        as_kubernetes_has_it(*manifest(tmp_path), change)


def test_the_schema_notices_what_is_misspelt_or_of_another_type(tmp_path):
    _, found = manifest(tmp_path)
    spec = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    for change, said in (
        ({"backofLimit": 0}, "backofLimit is unknown"),
        ({"parallelism": "4"}, "parallelism='4' is not positive"),
    ):
        wrong = copy.deepcopy(found)
        wrong["spec"]["replicatedJobs"][0]["template"]["spec"] = spec | change
        [error] = jobset_schema.errors(wrong, jobset_schema.JOBSET)
        assert error.endswith(said)


def test_pods_are_the_machines_and_take_all_their_chips(tmp_path):
    for name in EVERY:
        accelerator = topology.find(name)
        plain = launch_jobs.job(tmp_path, name, workdir="gs://bucket/runs/mine")
        _, found = yaml.safe_load_all(gke.render(plain, GIVEN).files[0].content)
        child = found["spec"]["replicatedJobs"][0]["template"]["spec"]
        [amount] = pod(found)["containers"][0]["resources"]["limits"].values()
        assert child["parallelism"] == child["completions"] == accelerator.hosts
        assert amount * child["parallelism"] == accelerator.chips
        assert accelerator.generation.selector in pod(found)["nodeSelector"].values()


def test_a_slice_is_a_child_job_on_a_node_pool_of_its_own(tmp_path):
    _, found = manifest(tmp_path, "v4-256", slices=2)
    assert found["spec"]["replicatedJobs"][0]["replicas"] == 2
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert found["metadata"]["annotations"] == {exclusive: "cloud.google.com/gke-nodepool"}
    single = manifest(tmp_path, "v5e-4")[1]  # of which a node pool has many
    assert "annotations" not in single["metadata"]
    assert pod(found)["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4x8",
    }
    assert pod(found)["terminationGracePeriodSeconds"] == 120


def test_codes_restart_or_fail(tmp_path):
    """As Kubernetes reads the rules, in their order; see its documentation of podFailurePolicy."""
    _, found = manifest(tmp_path)
    spec = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    count, fail = spec["podFailurePolicy"]["rules"]
    assert (count["action"], spec["backoffLimit"]) == ("Count", 0)
    assert (fail["action"], fail["onExitCodes"]["operator"]) == ("FailJob", "NotIn")
    needs_a_person = set(range(1, 256)) - set(fail["onExitCodes"]["values"])
    assert needs_a_person == set(range(1, 256)) - set(job.AGAIN)
    [rule] = found["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])


def expanded(value):
    """A value of `env` as Kubernetes reads it where no variable of that name is known."""
    return re.sub(r"\$(\$|\([^)]*\))?", lambda m: "$" if m[1] == "$" else m[0], value)


def test_what_is_odd_arrives_letter_by_letter(tmp_path):
    config, found = manifest(tmp_path)
    told = json.loads(config["data"]["job.json"])
    assert told["arguments"][1] == "--config=/etc/vit_jax/config.yaml"
    assert tuple(told["arguments"][3:]) == launch_jobs.OVERRIDES
    [container] = pod(found)["containers"]
    env = {e["name"]: expanded(e["value"]) for e in container["env"]}
    assert launch_jobs.ENVIRONMENT.items() <= env.items()
    assert env["VIT_JAX_CODE"] == told["code"]
    assert container["command"] == ["vit_jax", "@/etc/vit_jax/job.json"]


def test_pods_with_gpus_know_who_they_are(tmp_path):
    _, found = manifest(tmp_path, "h100-32")
    env = {
        e["name"]: e.get("value", e.get("valueFrom")) for e in pod(found)["containers"][0]["env"]
    }
    for name in ("JOBSET_NAME", "REPLICATED_JOB_NAME", "JOB_INDEX"):
        path = env[name]["fieldRef"]["fieldPath"]
        assert re.fullmatch(r"metadata\.annotations\['jobset\.sigs\.k8s\.io/[a-z-]+'\]", path)
    env |= {"JOBSET_NAME": "mine", "REPLICATED_JOB_NAME": "slice", "JOB_INDEX": "0"}
    who = process_identity.resolve({}, env | {"JOB_COMPLETION_INDEX": "3"})
    assert (who.coordinator, who.index, who.count) == ("mine-slice-0-0.mine:61440", 3, 4)


def test_each_gpu_has_a_process(tmp_path):
    _, found = manifest(tmp_path, "h100-16", processes="per_gpu")
    assert pod(found)["containers"][0]["command"] == [
        "python", "-m", "launch.node", "--count=8", "--per_gpu", "@/etc/vit_jax/job.json",
    ]  # fmt: skip


def test_kueue_queues_where_it_is_told(tmp_path):
    _, found = manifest(tmp_path, options=Options(IMAGE, queue="lab"))
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "lab"


def test_a_point_is_a_jobset(tmp_path):
    rendered = made(tmp_path, points=3)
    assert [file.name for file in rendered.files] == [f"mine-00{i}.yaml" for i in range(3)]
    assert [c.argv[-1] for c in rendered.submit] == [
        f"--filename={tmp_path}/mine-00{i}.yaml" for i in range(3)
    ]
    [cancel] = rendered.cancel
    assert cancel.argv[-1] == "--selector=vit-jax-job=mine"


@pytest.mark.parametrize(
    "accelerator, options, message",
    [
        ("v5e-16", Options(), "--image missing"),
        ("", GIVEN, "--accelerator is missing"),
        ("v2-8", GIVEN, "v2-8: GKE has no such nodes"),
        ("cpu-8", GIVEN, "cpu-8: GKE has no such nodes"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, options, message):
    with pytest.raises(BadInput, match=message):
        made(tmp_path, accelerator, options)


def test_pods_with_an_account_of_their_own_are_not_on_the_network_of_the_machine(tmp_path):
    """There they would be the machine's account."""
    plain = pod(manifest(tmp_path)[1])
    assert plain["hostNetwork"] is True
    assert "serviceAccountName" not in plain
    own = pod(manifest(tmp_path, options=Options(IMAGE, service_account="a"))[1])
    assert own["serviceAccountName"] == "a"
    assert not {"hostNetwork", "dnsPolicy"} & own.keys()


def test_a_folder_that_kubectl_would_split_is_refused(tmp_path):
    with pytest.raises(BadInput, match="kubectl cannot take a path with ,"):
        made(tmp_path / "a,b")
