"""The laws of a run as functions of its tables; each returns what is wrong, or None."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.trace.to_core import work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from gangline.cluster import Cluster
    from gangline.trace.table import Trace

    Numbers = npt.NDArray[Any]

Broken = tuple[str, str]
_EPS_S = 1e-6  # seconds are rounded to ns; sums of many may drift by more than one


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
        max_share: int,
    ) -> None:
        self.jobs, self.segments = jobs, segments
        self.cluster, self.trace = cluster, trace
        self.timeline, self.summary = timeline, summary
        self.outcome = outcome
        self.max_share = max_share
        self.servers = cluster.server_arrays()

    def job(self, name: str) -> Numbers:
        """Return a numeric column of the jobs table; unknown = NaN."""
        return np.asarray(self.jobs.column(name).to_numpy())

    def seg(self, name: str) -> Numbers:
        """Return a numeric column of the segments table."""
        return np.asarray(self.segments.column(name).to_numpy())

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
    def status(self) -> npt.NDArray[Any]:
        """Status of each job."""
        return np.asarray(self.jobs.column("status").to_pylist(), dtype=object)

    @cached_property
    def width(self) -> Numbers:
        """GPUs of each segment row."""
        return np.bitwise_count(self.seg("gpu_mask").astype(np.uint64)).astype(np.int64)

    @cached_property
    def gpu_rows(self) -> tuple[Numbers, Numbers]:
        """Segment row and GPU (server * 64 + slot) of every GPU held."""
        mask = self.seg("gpu_mask").astype(np.uint64)
        bits = (mask[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
        row, slot = np.nonzero(bits)
        return row, self.seg("server").astype(np.int64)[row] * 64 + slot

    def name(self, job: int) -> str:
        """Return the identifier of a job for messages."""
        return self.ids[job] if job >= 0 else "an unknown job"


def _first(bad: Numbers) -> int | None:
    found = np.flatnonzero(bad)
    return int(found[0]) if len(found) else None


def known_jobs(t: Tables) -> str | None:
    """Every segment belongs to a job of the trace; every job of the trace is in the jobs table."""
    if t.ids != [str(name) for name in t.trace.column("job_id").to_pylist()]:
        return "the jobs table does not list the jobs of the trace in their order"
    row = _first(t.seg_job < 0)
    return None if row is None else f"segment row {row} belongs to no job"


def no_lost_job(t: Tables) -> str | None:
    """Check that each job is finished, dropped or known to be unfinished, and has its end."""
    known = np.isin(t.status.astype(str), ("finished", "dropped", "unfinished"))
    bad = ~known | ((t.status == "finished") & np.isnan(t.job("finish_s")))
    bad |= (t.status == "unfinished") & ~_left_by_a_stop(t)
    ran = np.zeros(len(t.ids), dtype=bool)
    ran[t.seg_job[t.seg_job >= 0]] = True
    bad |= (t.status == "finished") & ~ran
    job = _first(bad)
    return None if job is None else f"job {t.name(job)} is lost ({t.status[job]})"


def _left_by_a_stop(t: Tables) -> npt.NDArray[np.bool_]:
    """Return the jobs that may be unfinished because the run was stopped.

    Without the outcome the tables tell: a stop cuts segments short, and leaves jobs that had not
    arrived by the last event.
    """
    if t.outcome is not None:
        return np.full(len(t.ids), t.outcome != "finished")
    reasons = t.segments.column("end_reason").to_pylist()
    if "stopped" in reasons:
        return np.ones(len(t.ids), dtype=np.bool_)
    last = t.seg("end_s").max() if len(reasons) else -np.inf
    return np.asarray(t.trace.numbers("arrival_s") >= last)


def no_start_before_arrival(t: Tables) -> str | None:
    """Nothing runs before it arrives, and the first segment is the first start."""
    arrival = t.trace.numbers("arrival_s")
    row = _first(t.seg("start_s") < arrival[t.seg_job] - 1e-9)
    if row is not None:
        return f"job {t.name(t.seg_job[row])} runs before its arrival"
    first = np.full(len(t.ids), np.inf)
    np.minimum.at(first, t.seg_job, t.seg("start_s"))
    start = t.job("first_start_s")
    job = _first(np.isfinite(first) & (np.abs(first - start) > 1e-9))
    return None if job is None else f"job {t.name(job)}: first start and first segment differ"


def clock(t: Tables) -> str | None:
    """Time never goes back: segments end after they start, the timeline is sorted."""
    row = _first(~(t.seg("end_s") > t.seg("start_s")))
    if row is not None:
        return f"segment row {row} of job {t.name(t.seg_job[row])} ends before it starts"
    if t.timeline is not None:
        times = np.asarray(t.timeline.column("t_s").to_numpy())
        if (np.diff(times) < 0).any():
            return "the timeline goes back"
    bad = t.job("finish_s") < t.job("first_start_s")
    job = _first(bad)
    return None if job is None else f"job {t.name(job)} finishes before it starts"


def gpus_exist(t: Tables) -> str | None:
    """Every GPU that is held is one of its server."""
    server = t.seg("server").astype(np.int64)
    sizes = t.servers["gpus"].astype(np.uint64)
    outside = (server < 0) | (server >= len(sizes))
    row = _first(outside)
    if row is None:
        most = sizes[server]
        full = np.where(most == 64, ~np.uint64(0), (np.uint64(1) << (most % 64)) - np.uint64(1))
        row = _first((t.seg("gpu_mask").astype(np.uint64) & ~full) != 0)
    return None if row is None else f"job {t.name(t.seg_job[row])} holds a GPU that is not there"


def capacity(t: Tables) -> str | None:
    """No GPU holds more jobs at a time than allowed."""
    row, gpu = t.gpu_rows
    start, end = t.seg("start_s")[row], t.seg("end_s")[row]
    times = np.concatenate([end, start])
    change = np.concatenate([np.full(len(end), -1), np.ones(len(start), dtype=np.int64)])
    where = np.concatenate([gpu, gpu])
    order = np.lexsort((change, times, where))  # at one instant, ends come first
    held = np.cumsum(change[order])
    over = _first(held > t.max_share)
    if over is None:
        return None
    place = int(where[order][over])
    return (
        f"GPU {place % 64} of server {place // 64} holds more than {t.max_share} job(s) "
        f"at {times[order][over]} s"
    )


def gang_whole(t: Tables) -> str | None:
    """Check that a job holds its whole gang or nothing, and runs once at a time."""
    key = np.zeros(len(t.seg_job), dtype=[("job", "i8"), ("start", "f8"), ("end", "f8")])
    key["job"], key["start"], key["end"] = t.seg_job, t.seg("start_s"), t.seg("end_s")
    groups, inverse = np.unique(key, return_inverse=True)
    total = np.bincount(inverse, weights=t.width, minlength=len(groups)).astype(np.int64)
    wrong = _first(total != t.trace.numbers("gpus")[groups["job"]])
    if wrong is not None:
        job = int(groups["job"][wrong])
        return f"job {t.name(job)} holds {total[wrong]} GPUs at {groups['start'][wrong]} s"
    same = groups["job"][1:] == groups["job"][:-1]
    back = _first(same & (groups["start"][1:] < groups["end"][:-1] - 1e-9))
    return None if back is None else f"job {t.name(int(groups['job'][back]))} runs twice at a time"


def finishes_once(t: Tables) -> str | None:
    """Check that a finished job ends in exactly one segment, its last, at its finish."""
    reason = np.asarray(t.segments.column("end_reason").to_pylist(), dtype=object)
    done = reason == "finished"
    finish = t.job("finish_s")[t.seg_job]
    row = _first(done & (np.abs(t.seg("end_s") - finish) > 1e-9))
    if row is None:
        row = _first(t.seg("end_s") > np.where(np.isnan(finish), np.inf, finish) + 1e-9)
    if row is not None:
        return f"job {t.name(t.seg_job[row])} has a segment that does not end by its finish"
    ends = np.zeros(len(t.ids), dtype=bool)
    ends[t.seg_job[done]] = True
    job = _first(ends != (t.status == "finished"))
    return None if job is None else f"job {t.name(job)}: status and segments disagree on its end"


def gpu_seconds(t: Tables) -> str | None:
    """GPU-seconds of a job are the sum over its segments."""
    length = (t.seg("end_s") - t.seg("start_s")) * t.width
    total = np.bincount(t.seg_job, weights=length, minlength=len(t.ids))
    given = t.job("gpu_seconds")
    job = _first(np.abs(total - given) > _EPS_S + 1e-9 * total)
    if job is None:
        return None
    return f"job {t.name(job)}: {given[job]} GPU-s in the jobs table, {total[job]} in its segments"


def work_done(t: Tables) -> str | None:
    """Check that a finished job at one rate and without losses did its work, no more, no less."""
    work, _, _ = work_of(t.trace)
    rate, job = t.seg("rate"), t.seg_job
    least, most = np.full(len(t.ids), np.inf), np.zeros(len(t.ids))
    np.minimum.at(least, job, rate)
    np.maximum.at(most, job, rate)
    reason = np.asarray(t.segments.column("end_reason").to_pylist(), dtype=object)
    lossless = np.ones(len(t.ids), dtype=bool)
    lossless[job[np.isin(reason.astype(str), ("failed",))]] = False
    if t.cluster.failures is not None or t.cluster.capacity or _keeps_checkpoints(t):
        lossless &= t.job("preemptions") + t.job("migrations") == 0
    checked = (t.status == "finished") & (least == most) & lossless
    done = most * (t.job("run_s") - t.job("overhead_s"))
    wrong = checked & (np.abs(done - work) > most * _EPS_S + 1e-9 * work)
    bad = _first(wrong)
    return None if bad is None else f"job {t.name(bad)} did {done[bad]} of {work[bad]}"


def _keeps_checkpoints(t: Tables) -> bool:
    return bool(t.summary is not None and t.summary.get("work_lost", 0))


def types_allowed(t: Tables) -> str | None:
    """Check that a job runs only on GPU types that it allows."""
    if "gpu_types" not in t.trace.columns:
        return None
    allowed = t.trace.column("gpu_types").to_pylist()
    names = [gpu.name for gpu in t.cluster.gpu_types]
    kinds = t.servers["type"][t.seg("server").astype(np.int64)]
    for job, kind in set(zip(t.seg_job.tolist(), kinds.tolist(), strict=True)):
        if allowed[job] is not None and names[kind] not in allowed[job]:
            return f"job {t.name(job)} runs on {names[kind]}, which it does not allow"
    return None


def down_is_down(t: Tables) -> str | None:
    """Nothing runs on a server while the failure table has it down."""
    start, end, server = t.seg("start_s"), t.seg("end_s"), t.seg("server")
    for place, down, up in t.cluster.outages():
        hit = _first((server == place) & (start < up - 1e-9) & (end > down + 1e-9))
        if hit is not None:
            return f"job {t.name(t.seg_job[hit])} runs on server {place} while it is down"
    return None


def utilisation(t: Tables) -> str | None:
    """No share of the cluster exceeds one; the timeline never shows more busy than there is."""
    for key in ("gpu_utilization", "useful_utilization", "node_utilization"):
        value = (t.summary or {}).get(key)
        if value is not None and not -1e-9 <= value <= 1.0 + 1e-9:
            return f"{key} is {value}"
    if t.timeline is not None:
        busy = np.asarray(t.timeline.column("gpus_busy").to_numpy())
        there = np.asarray(t.timeline.column("gpus_total").to_numpy())
        row = _first((busy > there) | (busy < 0))
        if row is not None:
            return f"timeline row {row}: {busy[row]} of {there[row]} GPUs busy"
    return None


def times_add_up(t: Tables) -> str | None:
    """Of a finished job: jct = finish - arrival = wait + run; overhead is part of run."""
    done = t.status == "finished"
    jct, run = t.job("jct_s"), t.job("run_s")
    wrong = np.abs(jct - (t.job("finish_s") - t.job("arrival_s"))) > _EPS_S
    wrong |= np.abs(jct - t.job("wait_s") - run) > _EPS_S
    wrong |= (t.job("overhead_s") > run + _EPS_S) | (t.job("queue_s") < -1e-9)
    job = _first(done & wrong)
    return None if job is None else f"job {t.name(job)}: its times do not add up"


def summary_agrees(t: Tables) -> str | None:
    """Check counts and mean completion time of the summary against the jobs table."""
    if t.summary is None:
        return None
    done = t.status == "finished"
    facts = {"jobs": len(t.ids), "finished": int(done.sum())}
    for key, value in facts.items():
        if key in t.summary and t.summary[key] != value:
            return f"{key} is {t.summary[key]}, the jobs table says {value}"
    if done.any() and "jct_mean_s" in t.summary:
        mean = float(t.job("jct_s")[done].mean())
        if abs(mean - t.summary["jct_mean_s"]) > 1e-6 + 1e-9 * mean:
            return f"jct_mean_s is {t.summary['jct_mean_s']}, the jobs table says {mean}"
    return None


LAWS: dict[str, Callable[[Tables], str | None]] = {
    "known-jobs": known_jobs,
    "gpus-exist": gpus_exist,
    "no-lost-job": no_lost_job,
    "clock": clock,
    "no-start-before-arrival": no_start_before_arrival,
    "capacity": capacity,
    "gang-whole": gang_whole,
    "finishes-once": finishes_once,
    "gpu-seconds": gpu_seconds,
    "work-done": work_done,
    "types-allowed": types_allowed,
    "down-is-down": down_is_down,
    "utilisation": utilisation,
    "times-add-up": times_add_up,
    "summary-agrees": summary_agrees,
}
"""Law by name, in the order in which they are looked at."""

STRUCTURE = ("known-jobs", "gpus-exist")
"""Laws that come first: if one is broken, the others cannot be looked at."""
