"""Holds the data that the rules check: segments, jobs, cluster and trace as matching arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.analysis.audit import elastic
from gangline.trace.jobs.phases import factor_ranges
from gangline.trace.jobs.to_core import GIB, elastic_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline.analysis.audit.inputs import Columns
    from gangline.analysis.audit.words import Fates
    from gangline.cluster.description import Cluster
    from gangline.cluster.elastic import ElasticJobs
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["Run", "World"]

_SUM_S = 1e-6  # sums of times that are rounded to nanoseconds drift by more than one nanosecond
_SUM_ERROR = 1e-9  # relative: a sum of a million f64 terms is off by less


@dataclass(frozen=True)
class Run:
    """Facts about a run of the engine that its jobs and segments tables do not contain.

    Attributes
    ----------
    timeline : pyarrow.Table, optional
        Counts over time.
    summary : mapping, optional
        Summary of the run.
    outcome : str, optional
        The outcome of the run: "finished", or "limit" for a run that was stopped.
    options : mapping, optional
        Run options: overheads and checkpoints.
    claims_work_conserving : bool
        Whether the policy claims that no job waits while enough GPUs that it may use are free.
    """

    timeline: pa.Table | None = None
    summary: Mapping[str, Any] | None = None
    outcome: str | None = None
    options: Mapping[str, Any] | None = None
    claims_work_conserving: bool = False

    @classmethod
    def of(cls, result: Result, *, claims_work_conserving: bool = False) -> Run:
        """Return the facts known from a result."""
        return cls(
            timeline=result.timeline,
            summary=result.summary,
            outcome=result.spec.get("outcome"),
            options=result.spec.get("options", {}),
            claims_work_conserving=claims_work_conserving,
        )


class World:
    """All known facts, indexed by job and by segment row.

    Job indices refer to the jobs of the trace; without a trace, to those of the jobs table; and
    without either, to those of the segments. An index of -1 means a job that is not among them.
    Unknown numbers are NaN, and unknown counts are -1.
    """

    def __init__(
        self,
        cluster: Cluster,
        trace: Trace | None,
        listed: Columns | None,
        held: Columns | None,
        *,
        max_share: int,
        max_parts: int,
        copy_gpus: str | int,
        max_idle_s: float,
        tolerance_s: float,
        run: Run | None = None,
    ) -> None:
        self.cluster, self.trace = cluster, trace
        self.listed, self.held = listed, held
        self.max_share, self.max_parts = max_share, max_parts
        self.copy_gpus = copy_gpus
        self.max_idle_s, self.tolerance_s = max_idle_s, tolerance_s
        self.sum_s = tolerance_s if run is None else max(tolerance_s, _SUM_S)
        self.run = run
        if trace is not None:
            reference = trace.column("job_id")
        elif listed is not None:
            reference = listed.ids.dictionary.take(listed.ids.unique().indices.drop_null())
        else:
            assert held is not None, "there is at least one table"
            reference = held.ids.dictionary
        self._codes: dict[int, Ints] = {}  # keyed by table; there are at most two
        self._reference = reference.cast(pa.string())
        self.jobs = len(self._reference)
        servers = cluster.server_arrays()
        self.server_type: Ints = servers["type"].astype(np.int64)
        self.server_gpus: Ints = servers["gpus"].astype(np.int64)
        self.server_rack: Ints = servers["rack"].astype(np.int64)
        self.types = [gpu.name for gpu in cluster.gpu_types]
        self.type_memory: Ints = np.floor(np.asarray(cluster.memories_gb()) * GIB + 0.5).astype(
            np.int64
        )
        self.gpus_by_type: Ints = np.bincount(
            self.server_type, weights=self.server_gpus, minlength=len(self.types)
        ).astype(np.int64)
        self.gpus_total = int(self.server_gpus.sum())

    def names(self, job: int) -> str | None:
        """Return the id of a job."""
        return str(self._reference[job].as_py()) if 0 <= job < self.jobs else None

    def name_of_row(self, table: Columns, row: int) -> str:
        """Return the job id in a row, even if the job is unknown."""
        return str(table.ids[row].as_py())

    def codes(self, table: Columns) -> Ints:
        """Return the job index of each row."""
        if id(table) in self._codes:
            return self._codes[id(table)]
        places = pc.index_in(table.ids.dictionary, value_set=self._reference)
        known = places.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        indices = table.ids.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._codes[id(table)] = np.append(known, -1)[indices]
        return self._codes[id(table)]

    def tolerance(self, size: Floats | float = 0.0, terms: Floats | float = 1.0) -> Any:
        """Return the possible rounding error of a sum, given its size and its number of terms."""
        return self.sum_s * terms + _SUM_ERROR * np.abs(size)

    @cached_property
    def gang(self) -> Ints:
        """GPUs of each job's gang; -1 = unknown."""
        if self.trace is not None:
            return np.asarray(self.trace.numbers("gpus")).astype(np.int64)
        return _whole(self.of_job("gpus"))

    @cached_property
    def elastic(self) -> ElasticJobs | None:
        """Jobs that may change their size; None if there are none, or if there is no trace.

        Jobs whose parts differ in size from their gang are not elastic.
        """
        if self.trace is None or self.forks:
            return None
        return elastic_of(self.trace, self.cluster)

    @property
    def may_resize(self) -> bool:
        """Return whether jobs may change their size; without a trace, they are assumed to."""
        if self.trace is None:
            return self.cluster.elastic is not None and not self.forks
        return self.elastic is not None

    @cached_property
    def sizes(self) -> tuple[Ints, Ints]:
        """Minimum and maximum number of GPUs of each job; -1 = unknown."""
        if self.trace is None and self.may_resize:
            return np.ones_like(self.gang), np.full_like(self.gang, self.gpus_total)
        return elastic.sizes(self.gang, self.elastic)

    @property
    def forks(self) -> bool:
        """Return whether parts differ in size from their job's gang."""
        return self.copy_gpus != "gang"

    def part_gpus(self, job: Ints, server: Ints) -> Ints:
        """Return the number of GPUs that a part of each job has on a server; -1 = unknown."""
        if self.copy_gpus == "gang":
            return np.append(self.gang, -1)[job]
        if self.copy_gpus == "server":
            return np.append(self.server_gpus, -1)[server]
        return np.full(len(job), self.copy_gpus, dtype=np.int64)

    @cached_property
    def part_sizes(self) -> tuple[Ints, Ints]:
        """Minimum and maximum number of GPUs that a part of each job may have; -1 = unknown."""
        if self.copy_gpus == "gang":
            return self.gang, self.gang
        sizes = self.server_gpus
        if isinstance(self.copy_gpus, int):
            sizes = np.asarray([self.copy_gpus], dtype=np.int64)
        least, most = np.full(self.jobs, sizes.min()), np.full(self.jobs, sizes.max())
        return least, most

    @cached_property
    def arrival(self) -> Floats:
        """Arrival of each job, on the clock of the tables."""
        if self.trace is not None:
            return self._trace_arrival + self.clock_s
        return self.of_job("arrival_s")

    @cached_property
    def _trace_arrival(self) -> Floats:
        assert self.trace is not None, "called only with a trace"
        return np.asarray(self.trace.numbers("arrival_s"), dtype=np.float64)

    @cached_property
    def clock_s(self) -> float:
        """Seconds by which the jobs table's clock is ahead of the trace's; 0 if jobs differ."""
        if self.trace is None or self.listed is None or not self.listed.has("arrival_s"):
            return 0.0
        ahead = self.of_job("arrival_s") - self._trace_arrival
        ahead = ahead[np.isfinite(ahead)]
        if len(ahead) <= 1 or float(np.ptp(ahead)) > self.tolerance_s:
            return 0.0
        middle = float(np.median(ahead))
        return middle if abs(middle) > self.tolerance_s else 0.0

    def of_job(self, name: str) -> Floats:
        """Return a column of the jobs table, indexed by job; a job's last row counts."""
        values = np.full(self.jobs, np.nan)
        if self.listed is not None and self.listed.has(name):
            codes = self.codes(self.listed)
            values[codes[codes >= 0]] = self.listed[name][codes >= 0]
        return values

    @cached_property
    def parts(self) -> Ints:
        """Maximum number of whole gangs that each job may hold at a time."""
        if self.held is None or not self.held.has("part"):
            return np.full(self.jobs, self.max_parts, dtype=np.int64)
        given = np.nan_to_num(self.held["part"])
        if not given.any():
            return np.ones(self.jobs, dtype=np.int64)
        numbers, part = np.unique(given, return_inverse=True)
        pairs = np.unique(self.codes(self.held) * len(numbers) + part)
        jobs = pairs[pairs >= 0] // max(len(numbers), 1)
        return np.maximum(np.bincount(jobs, minlength=self.jobs), 1)

    @cached_property
    def finished(self) -> Bools | None:
        """Return whether each job is finished; None if unknown."""
        if self.listed is not None:
            codes, done = self.codes(self.listed), self.done_rows(self.listed)
            finished = np.zeros(self.jobs, dtype=np.bool_)
            finished[codes[done & (codes >= 0)]] = True
            return finished
        reasons = self.end_reason
        if self.held is not None and reasons is not None:
            codes = self.codes(self.held)
            finished = np.zeros(self.jobs, dtype=np.bool_)
            finished[codes[(reasons.finished | reasons.strange) & (codes >= 0)]] = True
            return finished
        return None

    @cached_property
    def is_open(self) -> Bools:
        """For each job, return whether the jobs table says that it is running or waiting."""
        found = np.zeros(self.jobs, dtype=np.bool_)
        if self.listed is not None and self.status is not None:
            codes = self.codes(self.listed)
            found[codes[self.status.is_open & (codes >= 0)]] = True
        return found

    def done_rows(self, listed: Columns) -> Bools:
        """Return the rows of finished jobs; all rows if there is no status.

        If a row's status word is unknown, its finish time decides.
        """
        if self.status is None:
            return np.ones(len(listed), dtype=np.bool_)
        return self.status.finished | (self.status.strange & np.isfinite(listed["finish_s"]))

    @cached_property
    def status(self) -> Fates | None:
        """The meaning of the status in each row of the jobs table."""
        return None if self.listed is None else self.listed.fates("status")

    @cached_property
    def end_reason(self) -> Fates | None:
        """The meaning of the end reason in each row of the segments table."""
        return None if self.held is None else self.held.fates("end_reason")

    @cached_property
    def core(self) -> Any:
        """The jobs of the trace as the compiled core represents them, for this cluster."""
        assert self.trace is not None, "called only with a trace"
        return self.trace.to_core(self.cluster)

    @cached_property
    def work(self) -> Floats | None:
        """Work of each job whose run time follows from the trace and the cluster; otherwise NaN."""
        if self.trace is None:
            return None
        work: Floats = np.array(self.core.work())
        timed = np.zeros(self.jobs, dtype=np.bool_)
        if "duration_s" in self.trace.columns:
            timed = ~np.isnan(self.trace.numbers("duration_s"))
        if self.cluster.throughput is None and self.run is None:
            work[~timed] = np.nan  # only our engine is known to do one iteration per second
        return work

    @cached_property
    def base(self) -> Floats | None:
        """Iterations per second of jobs alone, shape (jobs, types); None without a trace."""
        if self.trace is None:
            return None
        rates: Floats = self.core.base_rates(self.cluster.to_core())
        return rates

    @cached_property
    def phase_factors(self) -> tuple[Floats, Floats]:
        """The smallest and largest factors by which each job's phases change its base rate."""
        if self.trace is None or "phases" not in self.trace.columns:
            return np.ones(self.jobs), np.ones(self.jobs)
        return factor_ranges(self.trace.column("phases"))

    def base_of_rows(self, job: Ints, kind: Ints, gpus: Ints) -> Floats:
        """Return the rates of jobs alone on GPUs of a type; type -1 stands for the best type."""
        assert self.base is not None, "called only with a trace"
        if not self.forks:
            best = self.base.max(axis=1)[job]
            return np.where(kind >= 0, self.base[job, np.maximum(kind, 0)], best)
        core, cluster = self.core, self.cluster.to_core()
        jobs, size = job.astype(np.uint32), gpus.astype(np.uint32)

        def rates(kinds: Ints) -> Floats:
            found: Floats = core.copy_rates(cluster, jobs, kinds.astype(np.uint32), size)
            return found

        if (kind >= 0).all():
            return rates(kind)
        every = [rates(np.full(len(job), at)) for at in range(len(self.types))]
        return np.where(kind >= 0, rates(np.maximum(kind, 0)), np.max(every, axis=0))

    @cached_property
    def best_part(self) -> Floats:
        """Iterations per second of the fastest possible part of each job; 0 if it can have none."""
        assert self.base is not None, "called only with a trace"
        if not self.forks:
            own = np.asarray((self.base * self.usable).max(axis=1))
            if self.elastic is None:
                return own
            speed = np.asarray([gpu.speed for gpu in self.cluster.gpu_types])
            best = elastic.fastest(self.elastic, self.gpus_total)
            best *= (self.usable * speed).max(axis=1)
            return np.where(self.elastic.rows, best, own)
        job, best = np.arange(self.jobs), np.zeros(self.jobs)
        for kind, gpus in {*zip(self.server_type.tolist(), self.server_gpus.tolist(), strict=True)}:
            size = gpus if self.copy_gpus == "server" else int(self.copy_gpus)
            if size <= gpus:
                shape = np.full(self.jobs, kind), np.full(self.jobs, size)
                rates = self.base_of_rows(job, *shape)
                best = np.maximum(best, np.where(self.usable[:, kind], rates, 0.0))
        return best

    @cached_property
    def allowed(self) -> npt.NDArray[np.uint64] | None:
        """GPU types that each job allows, bit t = type t; None without a trace."""
        if self.trace is None:
            return None
        masks: npt.NDArray[np.uint64] = self.core.allowed_types()
        return masks

    @cached_property
    def usable(self) -> Bools:
        """GPU types on which each job can run, shape (jobs, types); without a trace, all types."""
        if self.trace is None or self.base is None or self.allowed is None:
            return np.ones((self.jobs, len(self.types)), dtype=np.bool_)
        bit = np.uint64(1) << np.arange(len(self.types), dtype=np.uint64)
        usable: Bools = ((self.allowed[:, None] & bit) != 0) & (self.base > 0.0)
        if "memory_gb" in self.trace.columns:
            memory = np.nan_to_num(self.trace.numbers("memory_gb"))
            usable &= memory[:, None] <= self.cluster.memories_gb()
        return usable

    def restarts(self, options: Mapping[str, Any]) -> Floats:
        """For each job, return the seconds without progress after a restart."""
        restart, by_model = options.get("restart_s") or 0.0, options.get("restart_by_model") or {}
        if not by_model or self.trace is None or "model" not in self.trace.columns:
            return np.full(self.jobs, restart)
        labels = self.trace.column("model").to_pylist()
        return np.asarray([by_model.get(label, restart) for label in labels], dtype=np.float64)

    @property
    def knows_jobs(self) -> bool:
        """Return whether a trace or a jobs table defines the jobs and their order."""
        return self.trace is not None or self.listed is not None

    @property
    def has_noise(self) -> bool:
        """Whether jobs may be faster than the rates that the trace and the cluster give."""
        runtime = self.cluster.runtime
        return runtime is not None and (runtime.job_noise > 0.0 or runtime.run_noise > 0.0)

    @property
    def knows_overheads(self) -> bool:
        """Return whether a jobs table states the time without progress."""
        return self.listed is not None and self.listed.has("overhead_s")

    def ids_of(self, job: Ints) -> pa.Array:
        """Return the ids of the given jobs."""
        found = self._reference.take(pa.array(job))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def type_of_label(self, table: Columns) -> Ints:
        """Return the GPU type that each row names; -1 if the cluster does not have it."""
        labels = table.words["gpu_type"]
        names = labels.dictionary.to_pylist()
        known = [self.types.index(name) if name in self.types else -1 for name in names]
        indices = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.asarray(np.asarray([*known, -1], dtype=np.int64)[indices])

    def gpus_up(self, kind: int, time: Floats) -> Floats:
        """Return how many GPUs of a type (-1 = all types) are up at the given instants."""
        total = self.gpus_total if kind < 0 else int(self.gpus_by_type[kind])
        server, down, up = self.outages
        if kind >= 0:
            mine = self.server_type[server] == kind
            server, down, up = server[mine], down[mine], up[mine]
        if not len(server):
            return np.full(len(time), float(total))
        gpus = self.server_gpus[server]
        steps = np.concatenate([down, up - self.tolerance_s])
        order = np.argsort(steps, kind="stable")
        lost = np.append(0, np.cumsum(np.concatenate([gpus, -gpus])[order]))
        at = np.searchsorted(steps[order], time, side="right")
        return np.asarray(total - lost[at], dtype=np.float64)

    @property
    def knows_outages(self) -> bool:
        """Return whether the cluster lists all outages; it does not if failures are random."""
        failures = self.cluster.failures
        return failures is None or failures.mtbf_hours is None

    @cached_property
    def outages(self) -> tuple[Ints, Floats, Floats]:
        """Server, start and end of the cluster's listed outages, sorted by server and start."""
        rows = self.cluster.outages()
        server = np.asarray([row[0] for row in rows], dtype=np.int64)
        down = np.asarray([row[1] for row in rows], dtype=np.float64)
        up = np.asarray([row[2] for row in rows], dtype=np.float64)
        order = np.lexsort((down, server))
        return server[order], down[order], up[order]


def _whole(values: Floats) -> Ints:
    return np.where(np.isnan(values), -1.0, values).astype(np.int64)
