"""Reads Kubernetes jobs from the output of `kubectl get ... -o json`.

The reader accepts Kueue's Workloads, the Jobs of Kubernetes and Volcano, the pod groups of Volcano
and KAI, and pods. An object and an object that it owns in the same export count as one job. Pods in
the export show when their gang ran. For pod groups without pods, the end is unknown.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from gangline.errors import TraceError
from gangline.files.jsontext import JsonFile
from gangline.files.quantities import quantity
from gangline.trace.readers._gangs import Gang, raw_of
from gangline.trace.readers._json import Records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangline.files.source import Source
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options

NAME = "kubernetes"
GPUS = re.compile(
    r"(nvidia|amd)\.com/gpu(\.shared)?|nvidia\.com/mig-[\w.-]+|gpu\.intel\.com/\w+|habana\.ai/gaudi"
)
"""Pattern that matches the resource names of GPUs."""
TYPE_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
)
"""Node labels that name the type of a node's GPUs."""
_QUEUES = ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue", "volcano.sh/queue-name")
_GROUPS = ("pod-group-name", "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_SHARE = "gpu-fraction"
_STARTED = "kai.scheduler/last-start-timestamp"
_KINDS = ("Workload", "Job", "PodGroup", "Pod")
_ENDS = {"Completed": "finished", "Failed": "failed", "Terminated": "killed", "Aborted": "killed"}
_POD_ENDS = {"Succeeded": "finished", "Failed": "failed"}

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Quantities = dict[str, str | float]


class _Struct(msgspec.Struct, rename="camel"):
    """The base class of the decoded objects."""


class _Owner(_Struct):
    uid: str = ""


class _Meta(_Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Resources(_Struct):
    requests: Quantities | None = None
    limits: Quantities | None = None


class _Container(_Struct):
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _PodSpec(_Struct):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_selector: dict[str, str] | None = None


class _Template(_Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Set(_Struct):
    template: _Template = msgspec.field(default_factory=_Template)
    count: Count = 1
    replicas: Count = 1


class _Condition(_Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Spec(_PodSpec):
    queue_name: str | None = None
    queue: str | None = None
    pod_sets: list[_Set] | None = None
    tasks: list[_Set] | None = None
    parallelism: Count | None = None
    template: _Template | None = None
    min_resources: Quantities | None = None
    priority: int | None = None
    active_deadline_seconds: Count | None = None
    maximum_execution_time_seconds: Count | None = None


class _Terminated(_Struct):
    finished_at: str | None = None


class _State(_Struct):
    terminated: _Terminated | None = None


class _ContainerStatus(_Struct):
    state: _State = msgspec.field(default_factory=_State)


class _Phase(_Struct):
    phase: str = ""
    last_transition_time: str | None = None


class _Admission(_Struct):
    cluster_queue: str | None = None


class _Requested(_Struct):
    requested: Quantities | None = None


class _Status(_Struct):
    conditions: list[_Condition] | None = None
    phase: str = ""
    state: _Phase | None = None
    start_time: str | None = None
    completion_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    admission: _Admission | None = None
    resources_status: _Requested | None = None


class _Object(_Struct):
    kind: str = ""
    api_version: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(_Struct):
    items: list[Any] | None = None
    kind: str = ""


class _Gang(Gang, kw_only=True):
    """The known facts about one object and its pods."""

    namespace: str
    queue: str | None = None
    cpus: float = 0.0
    memory_gb: float = 0.0
    is_settled: bool = False
    is_made_of_pods: bool = False
    first_pod: float = np.nan
    last_pod: float = np.nan
    open_pods: int = 0

    def settle(self) -> None:
        """Set the gang's times, status and names; the times and the status depend on its pods."""
        if np.isfinite(self.first_pod):
            self.start = self.first_pod
            self.finish = self.last_pod if np.isfinite(self.last_pod) else self.finish
        if self.open_pods and not self.is_settled:
            self.finish = np.nan
            self.status = "running" if np.isfinite(self.start) else "unknown"
        self.name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        self.vc, self.account = self.queue or self.namespace, self.namespace


def read(source: Source, options: Options) -> Raw:
    """Read a list of objects, or a single object."""
    del options
    file = JsonFile(source, "items")
    try:
        document = file.decode(_List)
        items = document.items
        if items is None:
            file = JsonFile(source)
            items = [file.decode(Any)]
    except msgspec.ValidationError:
        raise file.shape_error(_List) from None
    records = Records(file)
    objects = records.salvage(items, _Object)
    notes: dict[str, int] = {}
    gangs = _gangs(objects, records, notes)
    if not gangs and not records.lost:
        found = ", ".join(sorted({one.kind for one in objects if one.kind})[:8]) or "none"
        expected = ", ".join(_KINDS)
        raise TraceError(
            f"{source.name}: expected objects of the kinds {expected}, got {found}",
            path=source.name,
            expected=expected,
        )
    raw = raw_of(gangs, source.name, NAME, notes)
    places = np.asarray([gang.place for gang in gangs], np.int64)
    records.attach(raw)
    raw.records = lambda rows: records.places(places[rows])
    return raw


def _gangs(objects: list[_Object], records: Records, notes: dict[str, int]) -> list[_Gang]:
    """Return a gang for each object that has no Workload or group in the export."""
    reader = _Reader(records)
    owners = {
        owner.uid
        for one in objects
        if one.kind in ("Workload", "PodGroup")
        for owner in one.metadata.owner_references or ()
        if owner.uid
    }
    gangs: dict[str, _Gang] = {}
    loose: list[_Gang] = []
    pods: list[tuple[int, _Object]] = []
    uids: dict[str, str] = {}
    for row, one in enumerate(objects):
        if one.kind == "Pod":
            pods.append((row, one))
        elif one.kind not in _KINDS:
            notes["other_kind"] = notes.get("other_kind", 0) + 1
        elif one.metadata.uid in owners:
            notes["owner_counted"] = notes.get("owner_counted", 0) + 1
        elif (gang := reader.gang(row, one)) is not None:
            key = one.metadata.uid or f"row {row}"
            if key in gangs:
                notes["repeated_record"] = notes.get("repeated_record", 0) + 1
            gangs[key] = gang
            uids[f"{one.metadata.namespace}/{one.metadata.name}"] = key
            for owner in one.metadata.owner_references or ():
                uids[owner.uid] = key
    for row, one in pods:
        gang = _of_pod(one, gangs, uids)
        if gang is None:
            found = reader.gang(row, one)
            if found is not None:
                key = _group_of(one)
                if key:
                    gangs[key] = found
                    uids[key] = key
                else:
                    loose.append(found)
        else:
            reader.add_pod(gang, row, one)
    found_gangs = [*gangs.values(), *loose]
    for gang in found_gangs:
        gang.settle()
    return found_gangs


def _group_of(pod: _Object) -> str:
    """Return the key that the pods of a gang share; empty for a single pod."""
    meta = pod.metadata
    for name in _GROUPS:
        if group := (meta.annotations or {}).get(name) or (meta.labels or {}).get(name):
            return f"{meta.namespace}/{group}"
    return next((owner.uid for owner in meta.owner_references or () if owner.uid), "")


def _of_pod(pod: _Object, gangs: Mapping[str, _Gang], uids: Mapping[str, str]) -> _Gang | None:
    names = [_group_of(pod), *(owner.uid for owner in pod.metadata.owner_references or ())]
    keys = (uids.get(name, name) for name in names if name)
    return next((gangs[key] for key in keys if key in gangs), None)


class _Reader:
    """Converts objects to gangs, and records malformed objects."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def gang(self, row: int, one: _Object) -> _Gang | None:
        """Return the gang of an object; None if the object has no creation time."""
        meta, spec, status = one.metadata, one.spec, one.status
        arrival = self._seconds(row, "metadata.creationTimestamp", meta.creation_timestamp)
        if np.isnan(arrival):
            if meta.creation_timestamp is None:
                self._wrong(row, "metadata.creationTimestamp", "an instant of creation")
            self._records.lost += 1
            return None
        labels = meta.labels or {}
        queue = spec.queue_name or spec.queue
        queue = queue or next((labels[name] for name in _QUEUES if name in labels), None)
        gang = _Gang(
            place=row,
            name=meta.name,
            namespace=meta.namespace,
            arrival=arrival,
            queue=queue,
            priority=spec.priority,
            limit=spec.maximum_execution_time_seconds or spec.active_deadline_seconds,
        )
        if one.kind == "Pod":
            gang.is_made_of_pods = True
            self.add_pod(gang, row, one)
            return gang
        for count, template in _templates(one):
            self._add(gang, row, count, template.spec, template.metadata)
        if one.kind == "PodGroup":
            asked = status.resources_status and status.resources_status.requested
            self._resources(gang, row, 1, asked or spec.min_resources or {})
            gang.is_made_of_pods = gang.gpus == 0.0
        if status.admission is not None:
            gang.partition = status.admission.cluster_queue
        self._times(gang, row, one)
        return gang

    def add_pod(self, gang: _Gang, row: int, pod: _Object) -> None:
        """Update a gang's times from a pod, and its requests if no other object states them."""
        begin = self._seconds(row, "status.startTime", pod.status.start_time)
        ends = [
            self._seconds(row, "status.containerStatuses", container.state.terminated.finished_at)
            for container in pod.status.container_statuses or ()
            if container.state.terminated is not None
        ]
        end = max(ends, default=np.nan) if pod.status.phase in _POD_ENDS else np.nan
        gang.first_pod = float(np.fmin(gang.first_pod, begin))
        gang.last_pod = float(np.fmax(gang.last_pod, end))
        phase = pod.status.phase
        if phase not in _POD_ENDS:
            gang.open_pods += 1
        if gang.is_settled:
            return
        gang.status = "failed" if "failed" in (gang.status, _POD_ENDS.get(phase)) else "finished"
        if gang.is_made_of_pods:
            self._add(gang, row, 1, pod.spec, pod.metadata)

    def _times(self, gang: _Gang, row: int, one: _Object) -> None:
        status = one.status
        conditions = {c.type: c for c in status.conditions or () if c.status == "True"}

        def at(*names: str) -> float:
            for name in names:
                if name in conditions:
                    when = conditions[name].last_transition_time
                    return self._seconds(row, "status.conditions", when)
            return float(np.nan)

        if one.kind == "Workload":
            gang.start, gang.finish = at("Admitted", "QuotaReserved"), at("Finished")
            end = conditions.get("Finished")
            if end is not None:
                said = f"{end.reason} {end.message}".lower()
                gang.status = "failed" if "fail" in said else "finished"
        elif one.api_version.startswith("batch.volcano.sh"):
            state = status.state or _Phase()
            phases = {c.status: c.last_transition_time for c in status.conditions or ()}
            gang.start = self._seconds(row, "status.conditions", phases.get("Running"))
            gang.status = _ENDS.get(state.phase, "unknown")
            if state.phase in _ENDS:
                gang.finish = self._seconds(row, "status.state", state.last_transition_time)
        elif one.kind == "Job":
            gang.start = self._seconds(row, "status.startTime", status.start_time)
            gang.finish = self._seconds(row, "status.completionTime", status.completion_time)
            gang.finish = float(np.where(np.isnan(gang.finish), at("Failed"), gang.finish))
            done = {"Complete": "finished", "Failed": "failed"}
            gang.status = next((done[name] for name in done if name in conditions), "unknown")
        else:
            when = (one.metadata.annotations or {}).get(_STARTED)
            start = self._seconds(row, f"metadata.annotations.{_STARTED}", when)
            gang.start = at("Scheduled") if np.isnan(start) else start
            gang.status = _ENDS.get(status.phase, "unknown")
        gang.is_settled = np.isfinite(gang.finish)
        if gang.status == "unknown" and np.isfinite(gang.start) and one.kind != "PodGroup":
            gang.status = "finished" if gang.is_settled else "running"

    def _add(self, gang: _Gang, row: int, count: int, spec: _PodSpec, meta: _Meta) -> None:
        """Add the requests of several identical pods to their gang."""
        total: dict[str, float] = {}
        first: dict[str, float] = {}
        for containers, sums in ((spec.containers, total), (spec.init_containers, first)):
            for container in containers or ():
                given = {
                    **(container.resources.limits or {}),
                    **(container.resources.requests or {}),
                }
                for name, amount in given.items():
                    value = self._amount(row, amount)
                    if sums is total:
                        sums[name] = sums.get(name, 0.0) + value
                    else:  # init containers run one after the other
                        sums[name] = max(sums.get(name, 0.0), value)
        for name, amount in first.items():
            total[name] = max(total.get(name, 0.0), amount)
        self._resources(gang, row, count, total)
        share = (meta.annotations or {}).get(_SHARE)
        if share is not None:
            gang.share = self._amount(row, share)
            gang.gpus += count
        selector = spec.node_selector or {}
        gang.types |= {selector[name] for name in TYPE_LABELS if name in selector}

    def _resources(
        self, gang: _Gang, row: int, count: int, amounts: Mapping[str, str | float]
    ) -> None:
        for name, amount in amounts.items():
            value = count * self._amount(row, amount)
            plain = name.removeprefix("requests.").removeprefix("limits.")
            if GPUS.fullmatch(plain):
                gang.gpus += value
                gang.is_sliced |= plain.startswith("nvidia.com/mig-") or plain.endswith(".shared")
            elif plain == "cpu":
                gang.cpus += value
            elif plain == "memory":
                gang.memory_gb += value / 2**30

    def _amount(self, row: int, amount: str | float) -> float:
        try:
            return quantity(amount)
        except ValueError:
            self._wrong(row, "spec", "quantities such as 500m, 8 or 64Gi", str(amount))
            return 0.0

    def _seconds(self, row: int, where: str, when: str | None) -> float:
        if when is None:
            return float(np.nan)
        try:
            parsed = datetime.fromisoformat(when)
            if parsed.tzinfo is None:
                raise ValueError("a local time")
            return parsed.timestamp()
        except (ValueError, OverflowError):
            self._wrong(row, where, "an instant such as 2024-03-01T10:00:00Z", when)
            return float(np.nan)

    def _wrong(self, row: int, where: str, expected: str, value: str | None = None) -> None:
        places = self._records.places(np.asarray([row], np.int64))
        self._records.faults.add(places, where, expected, None if value is None else [value])


def _templates(one: _Object) -> Iterable[tuple[int, _Template]]:
    """Return an object's pod templates, and how many pods of each template run at the same time."""
    for part in one.spec.pod_sets or ():
        yield part.count, part.template
    for part in one.spec.tasks or ():
        yield part.replicas, part.template
    if one.spec.template is not None:
        yield 1 if one.spec.parallelism is None else one.spec.parallelism, one.spec.template
