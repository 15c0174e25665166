"""Checks the outcome, the timeline and the summary of a complete run of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.runs.arrival_window import counted, of_options

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.world import Run, World

    Bools = npt.NDArray[np.bool_]

__all__ = ["check", "fact"]

SHARE = 1e-9  # the amount by which a fraction may exceed 1, because it is a sum of floats
UTILISATION = ("gpu_utilization", "useful_utilization", "node_utilization")


def check(world: World, run: Run, findings: Findings) -> None:
    """Check how jobs ended, the timeline and the summary."""
    _lost_jobs(world, run, findings)
    _timeline(run, findings)
    _summary(world, run, findings)


def _lost_jobs(world: World, run: Run, findings: Findings) -> None:
    """Check that each job is finished or dropped, or was unfinished when the run was stopped."""
    listed, status = world.listed, world.status
    if listed is None or status is None:
        return
    labels = listed.words["status"]
    open_jobs = status.is_open & ~_left_by_a_stop(world, run)
    findings.add(
        "lost-job",
        "jobs",
        open_jobs | status.strange,
        lambda row: f"its status is {labels[row].as_py()}, although the run was not stopped",
        job=world.codes(listed),
        time=np.append(world.arrival, np.nan)[world.codes(listed)],
    )
    findings.add(
        "order",
        "jobs",
        np.diff(world.codes(listed), prepend=-1) < 0,
        lambda row: f"row {row} is out of order: jobs must have the order of the trace",
        job=world.codes(listed),
    )


def _left_by_a_stop(world: World, run: Run) -> Bools:
    """Return the rows of jobs that may be unfinished because the run was stopped.

    If the outcome is unknown, it is inferred from the segments. If one of them has the end
    `stopped`, or if their ends are unknown, any job may be unfinished. Otherwise, only jobs that
    arrive at or after the end of the last segment may be unfinished.
    """
    assert world.listed is not None, "called only with jobs"
    rows = len(world.listed)
    if run.outcome is not None:
        return np.full(rows, run.outcome != "finished")
    held = world.held
    if held is None or world.end_reason is None:
        return np.ones(rows, dtype=np.bool_)
    labels = held.words["end_reason"]
    if "stopped" in labels.dictionary.take(labels.indices.drop_null().unique()).to_pylist():
        return np.ones(rows, dtype=np.bool_)
    last = np.fmax.reduce(held["end_s"], initial=-np.inf)
    return np.asarray(np.append(world.arrival, np.nan)[world.codes(world.listed)] >= last)


def _timeline(run: Run, findings: Findings) -> None:
    if run.timeline is None:
        return
    time, busy, there = (
        np.asarray(run.timeline.column(name).to_numpy())
        for name in ("t_s", "gpus_busy", "gpus_total")
    )
    findings.add(
        "order",
        "timeline",
        np.diff(time, prepend=time[:1]) < 0,
        "{found:.9g} s comes after {allowed:.9g} s",
        time=time,
        found=time,
        allowed=np.append(np.nan, time[:-1]),
    )
    findings.add(
        "utilisation",
        "timeline",
        (busy > there) | (busy < 0),
        "{found} GPUs are busy, but there are {allowed}",
        time=time,
        found=busy,
        allowed=there,
    )


def _summary(world: World, run: Run, findings: Findings) -> None:
    """Check the shares in the summary; compare counts and the mean JCT with the jobs table."""
    if run.summary is None:
        return
    for key in UTILISATION:
        value = run.summary.get(key)
        has_run = world.held is None or len(world.held) > 0
        if value is None or (np.isnan(value) and not has_run):
            continue  # if nothing ran, the share is undefined
        fact(findings, "utilisation", key, value, 1.0, is_bad=not -SHARE <= value <= 1.0 + SHARE)
    if world.listed is None or world.status is None:
        return
    is_counted = np.ones(len(world.listed), np.bool_)
    if world.listed.has("arrival_s"):
        is_counted = counted(world.listed["arrival_s"], of_options(run.options))
    done = world.status.finished & is_counted
    facts: dict[str, float] = {"jobs": int(is_counted.sum()), "finished": int(done.sum())}
    if done.any() and world.listed.has("jct_s"):
        facts["jct_mean_s"] = float(world.listed["jct_s"][done].mean())
    for key, wanted in facts.items():
        given = run.summary.get(key)
        slack = 0.0 if isinstance(wanted, int) else 1e-6 + 1e-9 * abs(wanted)
        if given is not None:
            fact(findings, "summary", key, given, wanted, is_bad=not abs(given - wanted) <= slack)


def fact(
    findings: Findings, rule: str, key: str, given: Any, wanted: float, *, is_bad: bool
) -> None:
    """Compare one summary value with the value that follows from the tables."""
    words = "must be at most" if rule == "utilisation" else "the tables say"
    findings.add(
        rule,
        "summary",
        np.asarray([is_bad]),
        f"{key} is {{found}}, but {words} {{allowed:.9g}}",
        found=float(given),
        allowed=float(wanted),
    )
