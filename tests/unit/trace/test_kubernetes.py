"""Tests exports of Kubernetes: each kind of object, owned objects, and left-out ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.kubernetes import (
    DAY,
    SAMPLE,
    condition,
    job,
    listed,
    meta,
    template,
    workload,
)

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


def read(folder: Path, content: str, **options: Any) -> gl.Trace:
    path = folder / "export.json"
    path.write_text(content, encoding="utf-8")
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in trace.table.to_pylist()
    ]


def pod(name: str, gpus: int, begin: str, end: str | None, **more: Any) -> dict[str, Any]:
    done = None if end is None else {"terminated": {"finishedAt": f"{DAY}{end}Z"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, **more),
        "spec": template(gpus)["spec"],
        "status": {
            "phase": "Running" if end is None else "Succeeded",
            "startTime": f"{DAY}{begin}Z",
            "containerStatuses": [{"state": done or {"running": {}}}],
        },
    }


def test_the_sample(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLE)
    assert trace.metadata["epoch"] == "2024-03-01T10:00:00 UTC"
    assert rows(trace) == [
        {
            "job_id": "team-a/wl",
            "arrival_s": 0.0,
            "gpus": 8,
            "duration_s": 3600.0,
            "vc": "lab-queue",
            "trace_status": "finished",
            "observed_start_s": 120.0,
            "observed_finish_s": 3720.0,
            "account": "team-a",
            "partition": "gpus",
            "priority": 100.0,
            "cpus": 1.0,
            "host_memory_gb": 4.0,
        },
        {
            "job_id": "team-a/plain",
            "arrival_s": 0.0,
            "gpus": 2,
            "duration_s": 600.0,
            "vc": "team-a",
            "gpu_types": ["NVIDIA-A100-SXM4-80GB"],
            "trace_status": "finished",
            "observed_start_s": 10.0,
            "observed_finish_s": 610.0,
            "account": "team-a",
            "cpus": 1.0,
            "host_memory_gb": 4.0,
        },
    ]
    assert trace.notes == {"still_waiting": 1}


def test_one_object_and_no_list(tmp_path: Path) -> None:
    item = json.loads(SAMPLE)["items"][0]
    assert [row["gpus"] for row in rows(read(tmp_path, json.dumps(item)))] == [8]


def test_a_workload_and_its_job_count_once(tmp_path: Path) -> None:
    item = json.loads(SAMPLE)["items"][0]
    owner = job("wl", 2, 4, startTime=f"{DAY}10:02:00Z")
    owner["metadata"]["uid"] = "uid-job-wl"
    trace = read(tmp_path, listed(owner, item))
    assert [row["job_id"] for row in rows(trace)] == ["team-a/wl"]
    assert trace.notes == {"owner_counted": 1}


def test_workloads_that_run_or_failed(tmp_path: Path) -> None:
    admitted = condition("Admitted", "10:02:00")
    failed = condition("Finished", "10:03:00", reason="JobFinished", message="Job failed")
    trace = read(
        tmp_path, listed(workload("a", 1, 1, admitted), workload("b", 1, 1, admitted, failed))
    )
    assert [row["trace_status"] for row in rows(trace)] == ["failed"]
    assert trace.notes == {"still_running": 1}


def test_jobs_of_volcano(tmp_path: Path) -> None:
    item = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta("vc"),
        "spec": {
            "queue": "research",
            "minAvailable": 3,
            "tasks": [
                {"name": "ps", "replicas": 1, "template": template(0)},
                {"name": "worker", "replicas": 2, "template": template(8)},
            ],
        },
        "status": {
            "state": {"phase": "Completed", "lastTransitionTime": f"{DAY}10:31:00Z"},
            "conditions": [
                {"status": "Pending", "lastTransitionTime": f"{DAY}10:00:00Z"},
                {"status": "Running", "lastTransitionTime": f"{DAY}10:01:00Z"},
                {"status": "Completed", "lastTransitionTime": f"{DAY}10:31:00Z"},
            ],
        },
    }
    (row,) = rows(read(tmp_path, listed(item)))
    assert (row["gpus"], row["duration_s"], row["observed_start_s"]) == (16, 1800.0, 60.0)
    assert (row["vc"], row["cpus"]) == ("research", 1.5)


def group(version: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "PodGroup", "metadata": meta("pg"), **more}


@pytest.mark.parametrize("scheduler", ["volcano", "kai"])
def test_pod_groups_end_with_their_pods(tmp_path: Path, scheduler: str) -> None:
    if scheduler == "volcano":
        name = {"annotations": {"scheduling.k8s.io/group-name": "pg"}}
        one = group(
            "scheduling.volcano.sh/v1beta1",
            spec={"minMember": 2, "queue": "q", "minResources": {"nvidia.com/gpu": "16"}},
            status={"phase": "Completed", "conditions": [condition("Scheduled", "10:01:00")]},
        )
    else:
        name = {"annotations": {"pod-group-name": "pg"}}
        one = group(
            "scheduling.run.ai/v2alpha2",
            spec={"minMember": 2, "queue": "q"},
            status={"resourcesStatus": {"requested": {"nvidia.com/gpu": "16"}}},
        )
        one["metadata"]["annotations"] = {"kai.scheduler/last-start-timestamp": f"{DAY}10:01:00Z"}
    pods = [
        pod("p0", 8, "10:01:05", "10:21:05", **name),
        pod("p1", 8, "10:01:06", "10:21:07", **name),
    ]
    (row,) = rows(read(tmp_path, listed(one, *pods)))
    assert (row["job_id"], row["gpus"], row["vc"]) == ("team-a/pg", 16, "q")
    assert (row["observed_start_s"], row["duration_s"]) == (65.0, 1202.0)
    other = workload(
        "x", 1, 1, condition("Admitted", "10:02:00"), condition("Finished", "10:03:00")
    )
    trace = read(tmp_path, listed(one, other))
    assert len(trace) == 1
    assert trace.notes == {"no_times": 1}  # a pod group alone does not know when it ended


def test_pods_without_their_owner_are_gangs(tmp_path: Path) -> None:
    owner = {"ownerReferences": [{"uid": "job-7"}]}
    trace = read(
        tmp_path,
        listed(
            pod("a-0", 4, "10:01:00", "10:11:00", **owner),
            pod("a-1", 4, "10:01:30", "10:12:00", **owner),
            pod("b", 1, "10:00:30", "10:00:40"),
            pod("c-0", 1, "10:00:30", None),
        ),
    )
    found = {row["job_id"]: (row["gpus"], row["duration_s"]) for row in rows(trace)}
    assert found == {"team-a/a-0": (8, 660.0), "team-a/b": (1, 10.0)}
    assert trace.notes == {"still_running": 1}


def test_pods_tell_when_a_job_really_ran(tmp_path: Path) -> None:
    status = {"startTime": f"{DAY}10:00:00Z", "completionTime": f"{DAY}10:30:00Z"}
    status["conditions"] = [condition("Complete", "10:30:00")]
    late = pod("plain-x", 1, "10:20:00", "10:30:00", ownerReferences=[{"uid": "uid-plain"}])
    (row,) = rows(read(tmp_path, listed(job("plain", 1, 1, **status), late)))
    assert (row["gpus"], row["observed_start_s"], row["duration_s"]) == (1, 1200.0, 600.0)


def test_init_containers_slices_and_shares(tmp_path: Path) -> None:
    one = pod("a", 2, "10:00:00", "10:01:00")
    big = {"resources": {"requests": {"nvidia.com/gpu": "4", "cpu": 1}}}
    one["spec"]["initContainers"] = [big, big]
    two = pod("b", 0, "10:00:00", "10:01:00", annotations={"gpu-fraction": "0.5"})
    three = pod("c", 0, "10:00:00", "10:01:00")
    three["spec"]["containers"].append({"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}})
    trace = read(tmp_path, listed(one, two, three))
    assert [row["gpus"] for row in rows(trace)] == [4, 1, 1]
    assert trace.column("gpu_fraction").to_pylist() == [None, 0.5, None]
    assert trace.notes == {"slices_as_gpus": 1}


def test_jobs_without_gpus_and_other_kinds(tmp_path: Path, snapshot: Snapshot) -> None:
    status = {"startTime": f"{DAY}10:00:00Z", "completionTime": f"{DAY}10:30:00Z"}
    other = {"apiVersion": "v1", "kind": "Service", "metadata": meta("s")}
    trace = read(tmp_path, listed(job("a", 1, 0, **status), job("b", 1, 1, **status), other))
    assert trace.notes == {"cpu_job": 1, "other_kind": 1}
    with refused(TraceError, snapshot):
        read(tmp_path, listed(other))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one["metadata"].pop("creationTimestamp"),
        lambda one: one["metadata"].update(creationTimestamp="soon"),
        lambda one: one["spec"]["podSets"][0].update(count=-1),
        lambda one: one["status"].update(conditions=7),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Any, snapshot: Snapshot) -> None:
    document = json.loads(SAMPLE)
    change(document["items"][0])
    with refused(TraceError, snapshot):
        read(tmp_path, json.dumps(document))
    trace = read(tmp_path, json.dumps(document), on_bad_row="drop")
    assert trace.notes["bad_row"] == 1


def test_nodes_are_no_trace(tmp_path: Path, snapshot: Snapshot) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta("n")}
    with refused(TraceError, snapshot):
        read(tmp_path, listed(node))
