"""Recounts the rules of `slurm` from the tables of runs: reservations and limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from parity.harness import run_engine

if TYPE_CHECKING:
    import gangline as gl

Row = dict[str, Any]
GPUS = 8
MANY = settings(max_examples=max(60, settings().max_examples))


def cluster_of(servers: int) -> Row:
    row = {"count": servers, "gpu": "g", "gpus": GPUS // servers}
    return {"name": "lab", "gpu_types": [{"name": "g"}], "servers": [row]}


@st.composite
def crowds(draw: st.DrawFn, *, labels: bool) -> Row:
    """Draw jobs that end exactly at their time limits, in whole seconds."""
    rows = []
    for index in range(draw(st.integers(4, 16))):
        seconds = draw(st.integers(1, 300))
        row: Row = {
            "job_id": f"j{index}",
            "arrival_s": draw(st.integers(0, 90)),
            "gpus": draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8])),
            "duration_s": seconds,
            "time_limit_s": seconds,
        }
        if labels:
            row["user"] = draw(st.sampled_from(["ann", "bob", "eve"]))
            row["qos"] = draw(st.sampled_from(["high", "low"]))
            row["account"] = draw(st.sampled_from(["lab", "sub", "shop"]))
        rows.append(row)
    return {"cluster": cluster_of(draw(st.sampled_from([1, 2, 4]))), "jobs": rows}


def held(result: gl.Result, at: float) -> list[Row]:
    """Return the segments of the jobs that run from an instant on."""
    return [row for row in result.segments.to_pylist() if row["start_s"] <= at < row["end_s"]]


def gpus_of(row: Row) -> int:
    return int(row["gpu_mask"]).bit_count()


@MANY
@given(world=crowds(labels=False), resolution=st.sampled_from([1, 7, 60]))
def test_backfill_never_delays_the_first_of_the_queue(world: Row, resolution: int) -> None:
    """The first job after a pass starts at the latest when enough jobs have ended.

    That instant is known in advance: jobs end at their limits, and the planner expects that within
    its grid. Gangs may go over servers, so GPUs need only be counted.
    """
    result = run_engine(world, "slurm", {"bf_resolution_s": float(resolution)})
    jobs = sorted(result.jobs.to_pylist(), key=lambda row: row["arrival_s"])
    last = max(row["finish_s"] for row in jobs)
    promised = 0
    for passed in range(0, int(last) + 1, 30):
        waiting = [r for r in jobs if r["arrival_s"] <= passed < r["first_start_s"]]
        if not waiting:
            continue
        first = waiting[0]
        ends: Counter[float] = Counter()
        for row in held(result, passed):
            ends[-(-row["end_s"] // resolution) * resolution] += gpus_of(row)
        free = GPUS - sum(ends.values())
        promise = next(
            end
            for end in sorted(ends)
            if free + sum(gpus for other, gpus in ends.items() if other <= end) >= first["gpus"]
        )
        assert first["first_start_s"] <= promise, (passed, first)
        promised += 1
    assert promised or all(row["first_start_s"] <= row["arrival_s"] + 300 for row in jobs)


LIMITS = {
    "qos_grp_gpus": {"low": 5},
    "qos_user_gpus": {"low": 3, "high": 4},
    "qos_user_jobs": {"high": 1},
    "account_grp_gpus": {"lab": 4, "shop": 3},
    "account_parents": {"sub": "lab"},
}


@MANY
@given(world=crowds(labels=True), preempts=st.booleans())
def test_limits_are_never_exceeded(world: Row, preempts: bool) -> None:
    """This counts GPUs and jobs of each QOS, user and account at every start."""
    world["run"] = {"on_infeasible": "drop"}
    params: Row = LIMITS | ({"qos_preempt": {"high": ["low"]}} if preempts else {})
    result = run_engine(world, "slurm", params)
    whose = {row["job_id"]: row for row in world["jobs"]}
    for at in {row["start_s"] for row in result.segments.to_pylist()}:
        gpus: Counter[Any] = Counter()
        running: dict[Any, set[str]] = {}
        for row in held(result, at):
            job = whose[row["job_id"]]
            own = (job["qos"], job["user"])
            running.setdefault(own, set()).add(row["job_id"])
            accounts = {"lab", job["account"]} if job["account"] == "sub" else {job["account"]}
            for name in (job["qos"], own, *(accounts if job["qos"] != "low" else ())):
                gpus[name] += gpus_of(row)
        assert gpus["low"] <= 5
        assert gpus["lab"] <= 4, "a limit of the QOS low takes precedence"
        assert gpus["shop"] <= 3
        for user in ("ann", "bob", "eve"):
            assert gpus["low", user] <= 3
            assert gpus["high", user] <= 4
            assert len(running.get(("high", user), ())) <= 1


def test_jobs_beyond_a_limit_of_their_own_can_never_run() -> None:
    world = {"cluster": cluster_of(1), "jobs": [], "run": {"on_infeasible": "drop"}}
    rows = [("a", 4, "low", "lab"), ("b", 3, "low", "lab"), ("c", 4, "high", "shop")]
    world["jobs"] = [
        {
            "job_id": name,
            "arrival_s": 0,
            "gpus": gpus,
            "duration_s": 5,
            "user": "ann",
            "qos": qos,
            "account": account,
        }
        for name, gpus, qos, account in rows
    ]
    result = run_engine(world, "slurm", LIMITS)
    status = {row["job_id"]: row["status"] for row in result.jobs.to_pylist()}
    assert status == {"a": "dropped", "b": "finished", "c": "dropped"}
