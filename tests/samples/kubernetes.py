"""Builds objects of Kubernetes in the form of `kubectl get -o json` from a few values."""

from __future__ import annotations

import json
from typing import Any

DAY = "2024-03-01T"


def listed(*items: dict[str, Any]) -> str:
    """Return a list of objects."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}, indent=1)


def meta(name: str, created: str = "10:00:00", **more: Any) -> dict[str, Any]:
    """Return the metadata of an object."""
    found = {"name": name, "namespace": "team-a", "uid": f"uid-{name}"}
    return {**found, "creationTimestamp": f"{DAY}{created}Z", **more}


def template(gpus: int | str, selector: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the template of a pod of one container."""
    asked = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": asked}}
    return {"metadata": {"creationTimestamp": None},
            "spec": {"containers": [container], "nodeSelector": selector}}  # fmt: skip


def condition(kind: str, at: str, **more: str) -> dict[str, str]:
    """Return a condition with the status True."""
    return {"type": kind, "status": "True", "lastTransitionTime": f"{DAY}{at}Z", **more}


def workload(name: str, count: int, gpus: int, *conditions: dict[str, str]) -> dict[str, Any]:
    """Return a Workload of Kueue."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-job-{name}"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": meta(name, ownerReferences=[owner]),
        "spec": {
            "queueName": "lab-queue",
            "priority": 100,
            "podSets": [{"name": "main", "count": count, "template": template(gpus)}],
        },
        "status": {"admission": {"clusterQueue": "gpus"}, "conditions": list(conditions)},
    }


def job(name: str, parallelism: int, gpus: int, **status: Any) -> dict[str, Any]:
    """Return a Job of Kubernetes."""
    selector = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(name),
        "spec": {"parallelism": parallelism, "template": template(gpus, selector)},
        "status": status,
    }


SAMPLE = listed(
    workload("wl", 2, 4, condition("QuotaReserved", "10:01:00"), condition("Admitted", "10:02:00"),
             condition("Finished", "11:02:00", reason="Succeeded")),
    job("plain", 2, 1, startTime=f"{DAY}10:00:10Z", completionTime=f"{DAY}10:10:10Z",
        conditions=[condition("Complete", "10:10:10")]),
    workload("waiting", 1, 8),
)  # fmt: skip
