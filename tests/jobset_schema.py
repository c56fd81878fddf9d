# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A strict schema of the fields of a JobSet that we emit; anything else is an error.

Written from the published types of JobSet v1alpha2 (v0.8), Kubernetes batch/v1 and core/v1 (1.31)
and Kueue's label. A dict is an object with these keys (`?` at the end: may be absent), a list of
one is a list of such, a type is that type, a tuple lists the values, a function judges.
"""

import re


def label(value):
    return bool(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value))


def texts(value):
    return all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def codes(value):
    return (
        len(value) <= 255
        and 0 not in value
        and len(set(value)) == len(value)
        and all(type(v) is int for v in value)
    )


def positive(value):
    return type(value) is int and value > 0


METADATA = {"name": label, "namespace": label, "labels": texts, "annotations?": texts}
ENV = {"name": str, "value?": str, "valueFrom?": {"fieldRef": {"fieldPath": str}}}
AMOUNTS = {"google.com/tpu?": positive, "nvidia.com/gpu?": positive}
CONTAINER = {
    "name": label, "image": str, "command": [str], "env": [ENV],
    "resources": {"limits": AMOUNTS, "requests": AMOUNTS},
    "volumeMounts": [{"name": label, "mountPath": str, "readOnly?": bool}],
}  # fmt: skip
POD = {
    "restartPolicy": ("Never",), "terminationGracePeriodSeconds": positive, "hostNetwork?": bool,
    "dnsPolicy?": ("ClusterFirstWithHostNet",), "serviceAccountName?": str, "nodeSelector": texts,
    "containers": [CONTAINER],
    "volumes": [{"name": label, "configMap?": {"name": label},
                 "emptyDir?": {"medium": ("Memory",)}}],
}  # fmt: skip
RULE = {
    "action": ("Count", "FailJob"),
    "onExitCodes?": {"containerName": label, "operator": ("In", "NotIn"), "values": codes},
    "onPodConditions?": [{"type": ("DisruptionTarget",), "status": ("True",)}],
}
JOB = {
    "parallelism": positive, "completions": positive, "completionMode": ("Indexed",),
    "backoffLimit": int, "podFailurePolicy": {"rules": [RULE]},
    "template": {"metadata": {"labels": texts}, "spec": POD},
}  # fmt: skip
JOBSET = {
    "apiVersion": ("jobset.x-k8s.io/v1alpha2",), "kind": ("JobSet",), "metadata": METADATA,
    "spec": {
        "failurePolicy": {
            "maxRestarts": positive,
            "rules": [{"name": str, "action": ("FailJobSet",),
                       "onJobFailureReasons": [("PodFailurePolicy",)]}],
        },
        "replicatedJobs": [{"name": label, "replicas": positive, "template": {"spec": JOB}}],
    },
}  # fmt: skip
CONFIG_MAP = {"apiVersion": ("v1",), "kind": ("ConfigMap",), "metadata": METADATA, "data": texts}


def errors(value, schema, path="$"):
    """Lists what the schema does not allow in a value."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        known = {key.rstrip("?"): part for key, part in schema.items()}
        found = [f"{path}.{key} is unknown" for key in value if key not in known]
        found += [f"{path}.{k} is missing" for k in schema if k[-1] != "?" and k not in value]
        for key in value.keys() & known.keys():
            found += errors(value[key], known[key], f"{path}.{key}")
        return found
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [e for i, v in enumerate(value) for e in errors(v, schema[0], f"{path}[{i}]")]
    if isinstance(schema, tuple):
        return [] if value in schema else [f"{path}={value!r} is none of {schema}"]
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{path}={value!r} is no {schema.__name__}"]
    return [] if schema(value) else [f"{path}={value!r} is not {schema.__name__}"]
