"""Checks which jobs an auction of themis serves, by fairness computed from the tables of a run."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st

import gangline as gl

GPUS = 2
ONE = gl.Cluster.homogeneous(servers=1, gpus=GPUS)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[dict[str, Any]], int]:
    """Draw gangs that each fill the cluster, at whole seconds, and the length of a lease."""
    second = st.integers(0, 60)
    job = st.fixed_dictionaries({"arrival_s": second, "duration_s": st.integers(1, 40)})
    rows = sorted(draw(st.lists(job, min_size=2, max_size=8)), key=lambda row: row["arrival_s"])
    return [{**row, "gpus": GPUS} for row in rows], draw(st.sampled_from([5, 7, 20]))


def rho(jobs: list[dict[str, Any]], ends: list[int], ran: list[int], at: int, job: int) -> Fraction:
    """(Age + time left) / (duration x max(1, d n / M)), n the mean number active since arrival."""
    row, age = jobs[job], at - jobs[job]["arrival_s"]
    start = row["arrival_s"]
    lives = [(other["arrival_s"], end) for other, end in zip(jobs, ends, strict=True)]
    shared = sum(max(0, min(at, end) - max(start, begin)) for begin, end in lives)
    now = sum(begin <= at < end for begin, end in lives)
    crowd = Fraction(shared, age) if age else Fraction(now)
    return Fraction(age + row["duration_s"] - ran[job]) / (row["duration_s"] * max(1, crowd))


@given(
    queue=queues(),
    fairness=st.sampled_from([0.0, 0.5, 0.999]),
    auction=st.sampled_from(["greedy", "greedy", "milp"]),
)
def test_the_worst_off_is_always_invited(
    queue: tuple[list[dict[str, Any]], int], fairness: float, auction: str
) -> None:
    """One gang runs at a time, so the job with the largest rho gets the GPUs if it is invited."""
    jobs, lease_s = queue
    table = pa.Table.from_pylist([{key: float(row[key]) for key in row} for row in jobs])
    table = table.set_column(2, "gpus", pa.array([GPUS] * len(jobs)))
    params = {"lease_s": float(lease_s), "fairness": fairness, "auction": auction}
    done = gl.simulate(ONE, table, "themis", params=params, segments=True)
    ends = [round(end) for end in done.jobs["finish_s"].to_pylist()]
    runs = [
        (round(row["start_s"]), round(row["end_s"]), int(row["job_id"]))
        for row in done.segments.to_pylist()
    ]
    assert sorted(ends) == sorted(end for end in ends if end > 0), "nobody is lost"
    for at in sorted({*range(0, max(ends), lease_s), *ends}):
        active = [i for i, row in enumerate(jobs) if row["arrival_s"] <= at < ends[i]]
        served = [job for start, end, job in runs if start <= at < end]
        if at % lease_s and not any(start == at for start, _, _ in runs):
            continue  # there is no auction if no job waits or no GPU is free
        if len(active) < 2 or not served:
            assert served or not active, "a gang that fits does not wait"
            continue
        ran = [
            sum(max(0, min(end, at) - start) for start, end, job in runs if job == i and start < at)
            for i in range(len(jobs))
        ]
        unfair = {job: rho(jobs, ends, ran, at, job) for job in active}
        invited = max(1, len(active) - int(fairness * len(active)))
        worst = sorted(active, key=lambda job: (-unfair[job], job))
        # doubles and fractions may order jobs that are equal to 1e-12 differently
        limit = unfair[worst[invited - 1]] - Fraction(1, 10**9)
        assert unfair[served[0]] >= limit, (at, unfair, served)
        event(f"{invited} invited of {len(active)}")
