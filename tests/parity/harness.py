"""Runs one world in the engine (by its public interface) and in the slow simulator."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pyarrow as pa

import gangline as gl
import reference
from gangline import _core
from lp.shares import Shares
from reference import exact_auction, rounds

# Nearly every drawn world takes far fewer decisions; only deep runs include the longest worlds.
DECISIONS_MAX = 3000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 400
SUMMARY = (
    "makespan_s",
    "gpu_utilization",
    "node_utilization",
    "overhead_fraction",
    "comm_fraction",
    "fragmentation",
    "gpu_hours",
    "useful_utilization",
    "share_fraction",
)
# the measures of all jobs, or of those that arrive in a window
OF_JOBS = (
    *("jobs", "finished", "dropped", "preemptions", "migrations"),
    *("jct_mean_s", "jct_p50_s", "jct_p90_s", "jct_p95_s", "jct_p99_s", "jct_max_s"),
    *("queue_mean_s", "queue_p99_s", "wait_mean_s"),
)
FAIRNESS = ("ftf_mean", "ftf_p99", "ftf_max")
DEADLINES = ("deadlines", "deadlines_met")  # only if a job has a deadline
# only if GPUs are shared
SHARING = (
    "share_gpu_fraction",
    "xi_mean",
    "packing_gain",
    "shares_started",
    "shares_refused",
    "sub_batch_starts",
)
RUN_TIME = ("lost_fraction", "checkpoint_fraction")  # only if the world has a table of run time
SCHEMA = pa.schema(
    [
        ("job_id", pa.string()),
        ("arrival_s", pa.float64()),
        ("gpus", pa.int32()),
        ("duration_s", pa.float64()),
        ("iterations", pa.float64()),
        ("model", pa.string()),
        ("batch_size", pa.int32()),
        ("user", pa.string()),
        ("vc", pa.string()),
        ("account", pa.string()),
        ("partition", pa.string()),
        ("qos", pa.string()),
        ("time_limit_s", pa.float64()),
        ("estimate_s", pa.float64()),
        ("priority", pa.float64()),
        ("nice", pa.int32()),
        ("gpu_types", pa.list_(pa.string())),
        ("memory_gb", pa.float64()),
        ("weight", pa.float64()),
        ("deadline_s", pa.float64()),
        ("min_gpus", pa.int32()),
        ("max_gpus", pa.int32()),
        ("phases", pa.string()),
    ]
)


class Service:
    """The state of finish-time fairness: seconds of an equal split for the steps done so far."""

    def __init__(self) -> None:
        self.lost: dict[int, float] = {}
        self.before: dict[int, tuple[float, float]] = {}  # steps left and rate at the last ask

    def count(self, ask: dict[str, Any]) -> list[float]:
        """Count the steps since the last call; return the seconds of each job."""
        remaining = ask.get("true_remaining", ask["remaining"])
        for job, rates, gang, steps in zip(
            ask["jobs"], ask["rates"], ask["gangs"], remaining, strict=True
        ):
            left = max(steps, 1e-9)
            if job in self.before:
                was, rate = self.before[job]
                gained = (was - left) / rate if rate > 0 else 0.0
                self.lost[job] = self.lost.get(job, 0.0) + max(gained, 0.0)
            split = [gpus / len(ask["jobs"]) / gang for gpus in ask["capacity"]]
            most = max(1.0, sum(split))
            own = sum(rate * (share / most) for rate, share in zip(rates, split, strict=True))
            self.before[job] = (left, own)
        return [self.lost.get(job, 0.0) for job in ask["jobs"]]


class _Solver:
    """The engine's own allocator, so that only the use of its shares is compared."""

    def __init__(
        self, policy: str, params: dict[str, Any], names: list[str], prices: list[float]
    ) -> None:
        self.shares = Shares(policy, params)
        self.shares.begin(names, prices)
        self.service = Service() if policy.startswith("gavel-ftf") else None

    def __call__(self, ask: dict[str, Any]) -> Any:
        names = {"gangs": "scale", "weights": "weight", "remaining": "steps_remaining"}
        unsolved = ("names", "running", "true_remaining")
        given = {key: value for key, value in ask.items() if key not in unsolved}
        if self.service is not None:
            given["service_lost_s"] = self.service.count(ask)
        given["running_type"] = [-1.0 if t is None else float(t) for t in ask["running"]]
        arrays = {names.get(key, key): np.array(value) for key, value in given.items()}
        if "kind" not in ask:
            return self.shares(**arrays).tolist()
        alone, company = self.shares.packed(**arrays)
        return alone.tolist(), company


rounds.SOLVERS[:] = [_Solver]


def _auctioneer(
    gangs: list[int],
    bids: list[dict[str, Any]],
    rooms: list[dict[str, int]],
    room_of: dict[int, int],
) -> list[list[int]]:
    """Solve by the engine's own LP, so that the comparison is about the bids and the placement."""

    own = [
        (at, room_of[server], sum(gpu[0] == server for gpu in bid["own"]))
        for at, bid in enumerate(bids)
        for server in sorted({gpu[0] for gpu in bid["own"]})
    ]
    awards = _core.lp_award(
        gangs,
        [(bid["bidder"], bid["type"], bid["tier"], bid["value"]) for bid in bids],
        [(room["type"], room["rack"], room["free"]) for room in rooms],
        own,
        choices_max=1 << 24,
    )
    return [list(award) for award in awards]


exact_auction.AUCTIONEERS[:] = [_auctioneer]


class EndlessError(Exception):
    """The slow simulator made too many decisions for a comparison of the world."""


class _Libm:
    """The engine's mathematical functions, so that a comparison is about logic, not libraries."""

    log = staticmethod(_core.log)
    exp = staticmethod(_core.exp)
    pow = staticmethod(_core.pow)


class Twin(reference.Reference):
    """The slow simulator with the engine's mathematical functions."""

    maths = _Libm


def cluster_of(world: dict[str, Any]) -> gl.Cluster:
    """Return the world's cluster with its locality, sharing and throughput tables."""
    data = dict(world["cluster"])
    if "locality" in world:
        tiers = ("server", "rack", "network")
        rows = {"*": {}} | world["locality"]
        levels = {label: [row.get(t, 1.0) for t in tiers] for label, row in rows.items()}
        data["network"] = {"levels": levels}
    for key in ("network", "sharing", "throughput", "iter_time", "elastic", "runtime"):
        if key in world:
            data[key] = world[key]
    return gl.Cluster.from_dict(data)


def trace_of(world: dict[str, Any]) -> gl.Trace:
    """Return the world's jobs as a trace."""
    used = {name for row in world["jobs"] for name in row}
    schema = pa.schema([field for field in SCHEMA if field.name in used])
    return gl.Trace.from_arrow(pa.Table.from_pylist(world["jobs"], schema=schema))


def run_engine(
    world: dict[str, Any], policy: str, params: dict[str, Any], **options: Any
) -> gl.Result:
    """Run the engine with all checks of invariants."""
    return gl.simulate(
        cluster_of(world),
        trace_of(world),
        policy,
        params=params,
        **{"check_invariants": True, "segments": True, "timeline": "change"}
        | world.get("run", {})
        | options,
    )


def run_reference(world: dict[str, Any], policy: str, params: dict[str, Any]) -> reference.Outcome:
    """Run the slow simulator, up to a limit of decisions."""

    def stop(simulator: reference.Reference) -> None:
        if simulator.decisions > DECISIONS_MAX:
            raise EndlessError

    return reference.run(world, policy, params, step=stop, simulator=Twin)


def nanos(seconds: float) -> int | None:
    return None if math.isnan(seconds) else round(seconds * 1e9)


def engine_rows(result: gl.Result) -> dict[str, dict[str, Any]]:
    return {row["job_id"]: row for row in result.jobs.to_pylist()}


def assert_same(result: gl.Result, outcome: reference.Outcome) -> None:
    """Check that every job, segment and number agrees, and times agree to the nanosecond."""
    rows = engine_rows(result)
    assert len(rows) == len(outcome.jobs)
    for wanted in outcome.jobs:
        assert_job(rows[wanted["job_id"]], wanted)
    assert_segments(result, outcome)
    assert_timeline(result, outcome)
    assert result.summary["decisions"] == outcome.decisions
    done = [row for row in outcome.jobs if row["finish_ns"] is not None and row["isolated_ns"]]
    noise = max((1e-15 * row["finish_ns"] / row["isolated_ns"] for row in done), default=0.0)
    for name in FAIRNESS:
        assert_close(result.summary[name], outcome.summary[name], name, abs_tol=noise)
    for name in DEADLINES:
        assert result.summary.get(name, 0) == outcome.summary[name], name
    for name in (*SUMMARY, *OF_JOBS):
        assert_close(result.summary[name], outcome.summary[name], name)
    for name in RUN_TIME:
        if name in result.summary:
            assert_close(result.summary[name], outcome.summary[name], name)
    for name in SHARING:
        assert (name in result.summary) is (name in outcome.summary), name
        if name in outcome.summary:
            assert_close(result.summary[name], outcome.summary[name], name)


def assert_close(
    ours: float | None, theirs: float | None, *label: Any, abs_tol: float = 1e-12
) -> None:
    """Check equality except for the order of float sums; NaN equals NaN."""
    a, b = (math.nan if x is None else x for x in (ours, theirs))
    same = math.isclose(a, b, rel_tol=1e-9, abs_tol=abs_tol)
    assert same or (math.isnan(a) and math.isnan(b)), (ours, theirs, *label)


def assert_job(row: dict[str, Any], wanted: dict[str, Any]) -> None:
    label = (wanted["job_id"], row, wanted)
    assert row["status"] == wanted["status"], label
    for name in ("first_start", "finish", "run", "overhead", "share"):
        expected = wanted[f"{name}_ns"]
        got = row[f"{name}_s"]
        got = None if got is None else nanos(got)
        assert got == expected or (not expected and not got), (name, *label)
    for name in ("preemptions", "migrations"):
        assert row[name] == wanted[name], (name, *label)
    assert_close(row["gpu_seconds"], wanted["gpu_seconds"], *label)
    if wanted["finish_ns"] is not None:
        # the difference of two instants in seconds is not exact, which very short jobs show
        noise = 1e-15 * wanted["finish_ns"] / wanted["isolated_ns"]
        for name in ("slowdown", "ftf"):
            assert_close(row[name], wanted[name], name, *label, abs_tol=noise)
    assert row["comm_s"] == wanted["comm_s"] or math.isclose(
        row["comm_s"], wanted["comm_s"], rel_tol=1e-9, abs_tol=1e-9
    ), label

    if "lost_s" in row:
        assert nanos(row["lost_s"]) == wanted["lost_ns"], ("lost", *label)
        assert_close(row["checkpoint_s"], wanted["checkpoint_s"], *label, abs_tol=1e-9)
    for tier in ("server", "rack", "network"):
        lost = row.get(f"comm_{tier}_s", 0.0)
        assert math.isclose(lost, wanted["comm_tier_s"].get(tier, 0.0), abs_tol=1e-9), label


def assert_segments(result: gl.Result, outcome: reference.Outcome) -> None:
    names = ("job_id", "part", "server", "gpu_mask", "tier", "rate", "end_reason")

    def told(row: dict[str, Any], start_ns: int, end_ns: int) -> tuple[Any, ...]:
        return start_ns, end_ns, row["co_runner"] or "", *(row[name] for name in names)

    ours = [
        told(row, nanos(row["start_s"]), nanos(row["end_s"])) for row in result.segments.to_pylist()
    ]
    theirs = [told(row, row["start_ns"], row["end_ns"]) for row in outcome.segments]
    assert sorted(ours) == sorted(theirs)


def assert_timeline(result: gl.Result, outcome: reference.Outcome) -> None:
    names = ("gpus_total", "gpus_busy", "jobs_running", "jobs_waiting")
    ours = [
        (nanos(row["t_s"]), *(row[name] for name in names)) for row in result.timeline.to_pylist()
    ]
    theirs = [(row["t_ns"], *(row[name] for name in names)) for row in outcome.timeline]
    assert ours == theirs
