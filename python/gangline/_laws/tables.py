"""The tables of a run with what the laws need of them, each worked out once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline._laws.company import Company

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster import Cluster
    from gangline.trace.table import Trace

    Numbers = npt.NDArray[Any]

EPS_S = 1e-6  # seconds are rounded to ns; sums of many may drift by more than one
SLOTS = 64


class Stretches(NamedTuple):
    """What each part of a job did between two changes: rows on several servers are one.

    In order of job, part, start.
    """

    job: Numbers
    part: Numbers
    start: Numbers
    end: Numbers
    row: Numbers
    """A row of the segments table that stands for all of the stretch."""
    width: Numbers
    """GPUs held."""
    servers: Numbers
    """Rows, that is servers."""

    @property
    def length(self) -> Numbers:
        """Seconds."""
        return self.end - self.start


class Tables:
    """The tables of a run with what the laws need of them."""

    def __init__(
        self,
        jobs: pa.Table,
        segments: pa.Table,
        cluster: Cluster,
        trace: Trace,
        *,
        timeline: pa.Table | None,
        summary: Mapping[str, Any] | None,
        outcome: str | None,
        options: Mapping[str, Any] | None,
        max_share: int,
        copy_gpus: str | int,
        work_conserving: bool,
    ) -> None:
        self.jobs, self.segments = jobs, segments
        self.cluster, self.trace = cluster, trace
        self.timeline, self.summary = timeline, summary
        self.outcome = outcome
        self.options = options
        self.max_share = max_share
        self.copy_gpus = copy_gpus
        self.work_conserving = work_conserving
        self.servers = cluster.server_arrays()

    def job(self, name: str) -> Numbers:
        """Return a numeric column of the jobs table; unknown = NaN."""
        return np.asarray(self.jobs.column(name).to_numpy())

    def seg(self, name: str) -> Numbers:
        """Return a numeric column of the segments table."""
        return np.asarray(self.segments.column(name).to_numpy())

    def has(self, *names: str) -> bool:
        """Whether the segments table has these columns; tables of others may not."""
        return set(names) <= set(self.segments.column_names)

    @cached_property
    def ids(self) -> list[str]:
        """Identifiers, in the order of the jobs table."""
        return [str(value) for value in self.jobs.column("job_id").to_pylist()]

    @cached_property
    def seg_job(self) -> Numbers:
        """Job index of each segment; -1 = no such job."""
        index = {name: i for i, name in enumerate(self.ids)}
        names = self.segments.column("job_id").to_pylist()
        return np.asarray([index.get(str(name), -1) for name in names], dtype=np.int64)

    @cached_property
    def part(self) -> Numbers:
        """Part of each segment; 0 where the table has no parts."""
        if not self.has("part"):
            return np.zeros(len(self.segments), dtype=np.int64)
        return self.seg("part").astype(np.int64)

    @cached_property
    def reason(self) -> Numbers:
        """Why each segment ended."""
        return np.asarray(self.segments.column("end_reason").to_pylist(), dtype=object)

    @cached_property
    def status(self) -> npt.NDArray[Any]:
        """Status of each job."""
        return np.asarray(self.jobs.column("status").to_pylist(), dtype=object)

    @cached_property
    def gang(self) -> Numbers:
        """GPUs of each job's gang."""
        return np.asarray(self.trace.numbers("gpus")).astype(np.int64)

    @cached_property
    def width(self) -> Numbers:
        """GPUs of each segment row."""
        return np.bitwise_count(self.seg("gpu_mask").astype(np.uint64)).astype(np.int64)

    @cached_property
    def gpu_rows(self) -> tuple[Numbers, Numbers]:
        """Segment row and GPU (server * 64 + slot) of every GPU held."""
        mask = self.seg("gpu_mask").astype(np.uint64)
        bits = (mask[:, None] >> np.arange(SLOTS, dtype=np.uint64)) & np.uint64(1)
        row, slot = np.nonzero(bits)
        return row, self.seg("server").astype(np.int64)[row] * SLOTS + slot

    def kind_of(self, gpu: int) -> int:
        """GPU type of a GPU as `gpu_rows` numbers them."""
        return int(self.servers["type"][gpu // SLOTS])

    def sweep(self, amount: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Add an amount per row up over time on each GPU that the row holds.

        Returns the GPU, the instant, what is held there from then on, and the row of each change.
        """
        row, gpu = self.gpu_rows
        times = np.concatenate([self.seg("end_s")[row], self.seg("start_s")[row]])
        change = np.concatenate([-amount[row], amount[row]])
        where, rows = np.concatenate([gpu, gpu]), np.concatenate([row, row])
        is_start = np.repeat([False, True], len(row))
        order = np.lexsort((is_start, times, where))  # at one instant, ends come first
        return where[order], times[order], np.cumsum(change[order]), rows[order]

    @cached_property
    def stretches(self) -> Stretches:
        """The rows put together that are one stretch of one part of a job."""
        return self._stretches[0]

    @cached_property
    def stretch_of_row(self) -> Numbers:
        """Stretch of each row."""
        return self._stretches[1]

    @cached_property
    def _stretches(self) -> tuple[Stretches, Numbers]:
        key = np.zeros(
            len(self.seg_job), dtype=[("job", "i8"), ("part", "i8"), ("start", "f8"), ("end", "f8")]
        )
        key["job"], key["part"] = self.seg_job, self.part
        key["start"], key["end"] = self.seg("start_s"), self.seg("end_s")
        groups, row, inverse = np.unique(key, return_index=True, return_inverse=True)
        count = len(groups)
        stretches = Stretches(
            job=groups["job"],
            part=groups["part"],
            start=groups["start"],
            end=groups["end"],
            row=row,
            width=np.bincount(inverse, weights=self.width, minlength=count).astype(np.int64),
            servers=np.bincount(inverse, minlength=count),
        )
        return stretches, inverse

    @cached_property
    def whole(self) -> Numbers:
        """GPUs that the part of each stretch has when it is whole."""
        held = self.stretches
        if self.copy_gpus == "gang":
            return np.asarray(self.gang[held.job])
        if self.copy_gpus == "server":
            server = self.seg("server")[held.row].astype(np.int64)
            return np.asarray(self.servers["gpus"][server]).astype(np.int64)
        return np.full(len(held.job), self.copy_gpus, dtype=np.int64)

    @cached_property
    def in_parts(self) -> npt.NDArray[np.bool_]:
        """Which jobs ever held another part than their first, or parts of another size."""
        if self.copy_gpus != "gang":
            return np.ones(len(self.ids), dtype=np.bool_)
        found = np.zeros(len(self.ids), dtype=np.bool_)
        found[self.seg_job[self.part > 0]] = True
        return found

    @cached_property
    def partner(self) -> Numbers:
        """Co-runners of each segment as the table names them; "" where it does not say."""
        if not self.has("co_runner"):
            return np.full(len(self.segments), "", dtype=object)
        given = self.segments.column("co_runner").to_pylist()
        return np.asarray([name or "" for name in given], dtype=object)

    @cached_property
    def company(self) -> Company:
        """Who is beside whom."""
        return Company(self)

    @cached_property
    def base(self) -> Numbers:
        """Iterations per second of each gang alone on each GPU type, shape (jobs, types)."""
        rates: Numbers = self._core_jobs.base_rates(self.cluster.to_core())
        return rates

    @cached_property
    def base_of_row(self) -> Numbers:
        """Iterations per second alone on the GPUs of each row."""
        kinds = self.servers["type"][self.seg("server").astype(np.int64)]
        if self.copy_gpus == "gang":
            return np.asarray(self.base[self.seg_job, kinds])
        rows = [column.astype(np.uint32) for column in (self.seg_job, kinds, self.width)]
        rates: Numbers = self._core_jobs.copy_rates(self.cluster.to_core(), *rows)
        return rates

    @cached_property
    def _core_jobs(self) -> Any:
        return self.trace.to_core(self.cluster)

    @cached_property
    def label(self) -> list[str | None]:
        """Model label of each job."""
        if "model" not in self.trace.columns:
            return [None] * len(self.ids)
        return list(self.trace.column("model").to_pylist())

    def name(self, job: int) -> str:
        """Return the identifier of a job for messages."""
        return self.ids[job] if job >= 0 else "an unknown job"


def first(bad: Numbers) -> int | None:
    """Return the first place where it is bad."""
    found = np.flatnonzero(bad)
    return int(found[0]) if len(found) else None
