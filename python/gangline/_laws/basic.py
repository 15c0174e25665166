"""Laws of who held what and when; each returns what is wrong, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline._laws.tables import EPS_S, SLOTS, first

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline._laws.tables import Stretches, Tables


def known_jobs(t: Tables) -> str | None:
    """Every segment belongs to a job of the trace; every job of the trace is in the jobs table."""
    if t.ids != [str(name) for name in t.trace.column("job_id").to_pylist()]:
        return "the jobs table does not list the jobs of the trace in their order"
    row = first(t.seg_job < 0)
    return None if row is None else f"segment row {row} belongs to no job"


def no_lost_job(t: Tables) -> str | None:
    """Check that each job is finished, dropped or known to be unfinished, and has its end."""
    known = np.isin(t.status.astype(str), ("finished", "dropped", "unfinished"))
    bad = ~known | ((t.status == "finished") & np.isnan(t.job("finish_s")))
    bad |= (t.status == "unfinished") & ~_left_by_a_stop(t)
    ran = np.zeros(len(t.ids), dtype=bool)
    ran[t.seg_job[t.seg_job >= 0]] = True
    bad |= (t.status == "finished") & ~ran
    job = first(bad)
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
    row = first(t.seg("start_s") < arrival[t.seg_job] - 1e-9)
    if row is not None:
        return f"job {t.name(t.seg_job[row])} runs before its arrival"
    begin = np.full(len(t.ids), np.inf)
    np.minimum.at(begin, t.seg_job, t.seg("start_s"))
    start = t.job("first_start_s")
    job = first(np.isfinite(begin) & (np.abs(begin - start) > 1e-9))
    return None if job is None else f"job {t.name(job)}: first start and first segment differ"


def clock(t: Tables) -> str | None:
    """Time never goes back: segments end after they start, the timeline is sorted."""
    row = first(~(t.seg("end_s") > t.seg("start_s")))
    if row is not None:
        return f"segment row {row} of job {t.name(t.seg_job[row])} ends before it starts"
    if t.timeline is not None:
        times = np.asarray(t.timeline.column("t_s").to_numpy())
        if (np.diff(times) < 0).any():
            return "the timeline goes back"
    bad = t.job("finish_s") < t.job("first_start_s")
    job = first(bad)
    return None if job is None else f"job {t.name(job)} finishes before it starts"


def gpus_exist(t: Tables) -> str | None:
    """Every GPU that is held is one of its server."""
    server = t.seg("server").astype(np.int64)
    sizes = t.servers["gpus"].astype(np.uint64)
    outside = (server < 0) | (server >= len(sizes))
    row = first(outside)
    if row is None:
        most = sizes[server]
        full = np.where(most == 64, ~np.uint64(0), (np.uint64(1) << (most % 64)) - np.uint64(1))
        row = first((t.seg("gpu_mask").astype(np.uint64) & ~full) != 0)
    return None if row is None else f"job {t.name(t.seg_job[row])} holds a GPU that is not there"


def capacity(t: Tables) -> str | None:
    """No GPU holds more jobs at a time than allowed."""
    gpu, time, held, _ = t.sweep(np.ones(len(t.seg_job), dtype=np.int64))
    over = first(held > t.max_share)
    if over is None:
        return None
    return (
        f"GPU {gpu[over] % SLOTS} of server {gpu[over] // SLOTS} holds more than {t.max_share} "
        f"job(s) at {time[over]} s"
    )


def gang_whole(t: Tables) -> str | None:
    """Check that each part of a job has all its GPUs, and is in one place at a time."""
    held = t.stretches
    wrong = first(held.width != t.whole)
    if wrong is not None:
        return (
            f"job {t.name(held.job[wrong])} holds {held.width[wrong]} GPUs at {held.start[wrong]} "
            f"s; a part has {t.whole[wrong]}"
        )
    back = first(_same_part(held) & (held.start[1:] < held.end[:-1] - 1e-9))
    return None if back is None else f"job {t.name(held.job[back])} runs twice at a time"


def _same_part(held: Stretches) -> npt.NDArray[np.bool_]:
    """Whether a stretch is of the same part of the same job as the one before it."""
    same = (held.job[1:] == held.job[:-1]) & (held.part[1:] == held.part[:-1])
    return np.asarray(same, dtype=np.bool_)


def parts_apart(t: Tables) -> str | None:
    """Check that the parts of a job lie on one server each, no two of them on the same one."""
    held = t.stretches
    wide = first(t.in_parts[held.job] & (held.servers > 1))
    if wide is not None:
        job, part = held.job[wide], held.part[wide]
        return f"part {part} of job {t.name(job)} lies on {held.servers[wide]} servers"
    rows = np.flatnonzero(t.in_parts[t.seg_job])
    job, server, start = t.seg_job[rows], t.seg("server")[rows], t.seg("start_s")[rows]
    order = np.lexsort((start, server, job))
    rows, job, server, start = rows[order], job[order], server[order], start[order]
    end = t.seg("end_s")[rows]
    same = (job[1:] == job[:-1]) & (server[1:] == server[:-1])
    row = first(same & (start[1:] < end[:-1] - 1e-9))
    return (
        None if row is None else f"two parts of job {t.name(job[row])} lie on server {server[row]}"
    )


def finishes_once(t: Tables) -> str | None:
    """Check that a finished job ends in exactly one segment, its last, at its finish."""
    done = t.reason == "finished"
    finish = t.job("finish_s")[t.seg_job]
    row = first(done & (np.abs(t.seg("end_s") - finish) > 1e-9))
    if row is None:
        row = first(t.seg("end_s") > np.where(np.isnan(finish), np.inf, finish) + 1e-9)
    if row is not None:
        return f"job {t.name(t.seg_job[row])} has a segment that does not end by its finish"
    ends = np.zeros(len(t.ids), dtype=bool)
    ends[t.seg_job[done]] = True
    job = first(ends != (t.status == "finished"))
    return None if job is None else f"job {t.name(job)}: status and segments disagree on its end"


def gpu_seconds(t: Tables) -> str | None:
    """GPU-seconds of a job are the sum over its segments."""
    length = (t.seg("end_s") - t.seg("start_s")) * t.width
    total = np.bincount(t.seg_job, weights=length, minlength=len(t.ids))
    given = t.job("gpu_seconds")
    job = first(np.abs(total - given) > EPS_S + 1e-9 * total)
    if job is None:
        return None
    return f"job {t.name(job)}: {given[job]} GPU-s in the jobs table, {total[job]} in its segments"


def run_time(t: Tables) -> str | None:
    """Run time of a job is the time in which it holds at least one part."""
    held = t.stretches
    total = np.bincount(held.job, weights=held.length, minlength=len(t.ids))
    for job in np.flatnonzero(t.in_parts):
        mine = held.job == job
        total[job] = covered(held.start[mine], held.end[mine])
    given = t.job("run_s")
    wrong = first(np.abs(given - total) > EPS_S + 1e-9 * total)
    if wrong is None:
        return None
    return (
        f"job {t.name(wrong)} ran {given[wrong]} s by the jobs table, {total[wrong]} s by "
        "its segments"
    )


def covered(start: npt.NDArray[np.float64], end: npt.NDArray[np.float64]) -> float:
    """Return the length of the union of some intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    before = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    return float(np.maximum(end - np.maximum(start, before), 0.0).sum())


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
        hit = first((server == place) & (start < up - 1e-9) & (end > down + 1e-9))
        if hit is not None:
            return f"job {t.name(t.seg_job[hit])} runs on server {place} while it is down"
    return None


def utilisation(t: Tables) -> str | None:
    """No share of the cluster exceeds one; the timeline never shows more busy than there is."""
    for key in ("gpu_utilization", "useful_utilization", "node_utilization"):
        value = (t.summary or {}).get(key)
        if value is None or (np.isnan(value) and not len(t.segments)):
            continue  # where nothing ran there is no share
        if not -1e-9 <= value <= 1.0 + 1e-9:
            return f"{key} is {value}"
    if t.timeline is not None:
        busy = np.asarray(t.timeline.column("gpus_busy").to_numpy())
        there = np.asarray(t.timeline.column("gpus_total").to_numpy())
        row = first((busy > there) | (busy < 0))
        if row is not None:
            return f"timeline row {row}: {busy[row]} of {there[row]} GPUs busy"
    return None


def times_add_up(t: Tables) -> str | None:
    """Of a finished job: jct = finish - arrival = wait + run; overhead is part of what it held."""
    done = t.status == "finished"
    jct, run, overhead = t.job("jct_s"), t.job("run_s"), t.job("overhead_s")
    held = np.bincount(t.stretches.job, weights=t.stretches.length, minlength=len(t.ids))
    wrong = np.abs(jct - (t.job("finish_s") - t.job("arrival_s"))) > EPS_S
    wrong |= np.abs(jct - t.job("wait_s") - run) > EPS_S
    wrong |= (overhead < -1e-9) | (overhead > held + EPS_S) | (t.job("queue_s") < -1e-9)
    job = first(done & wrong)
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
