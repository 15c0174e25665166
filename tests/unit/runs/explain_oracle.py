"""Computes what an explanation must say from the tables of its run, GPU by GPU."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import gangline as gl
    from gangline.runs.explain.explanation import Explanation
    from gangline.runs.explain.facts import RunPart, WaitPart
    from gangline.runs.explain.stretches import Stretch

LIMITS = ("limit", "over quota", "QOS limit", "user limit", "job limit", "account limit")

Gpu = tuple[int, int]
"""Server, slot."""


class Oracle:
    """A run, looked at GPU by GPU.

    Parameters
    ----------
    result : Result
        With segments.
    cluster : Cluster
        Where it ran.
    outages : rows of (server, down_s, up_s)
        When servers were away.
    """

    def __init__(
        self, result: gl.Result, cluster: gl.Cluster, outages: list[tuple[int, float, float]]
    ) -> None:
        rows = cluster.server_arrays()
        self.kind = rows["type"].tolist()
        self.size = rows["gpus"].tolist()
        self.outages = outages
        self.jobs = {row["job_id"]: row for row in result.jobs.to_pylist()}
        self.segments = result.segments.to_pylist()
        self.last_s = max(row["end_s"] for row in self.segments)
        edges = {row[key] for row in self.segments for key in ("start_s", "end_s")}
        edges |= {edge for _, down_s, up_s in outages for edge in (down_s, up_s)}
        edges |= {row["arrival_s"] for row in self.jobs.values()}
        self.edges = sorted(edge for edge in edges if math.isfinite(edge))
        # These are needed often, so each instant is computed once.
        self.held = cache(self.held)  # type: ignore[method-assign]
        self.before = cache(self.before)  # type: ignore[method-assign]
        self.running = cache(self.running)  # type: ignore[method-assign]
        self.free = cache(self.free)  # type: ignore[method-assign]

    def held(self, time_s: float) -> dict[Gpu, set[str]]:
        """Return which job holds each GPU from an instant on."""
        return _holders(row for row in self.segments if row["start_s"] <= time_s < row["end_s"])

    def before(self, time_s: float) -> dict[Gpu, set[str]]:
        """Return which job held each GPU up to an instant."""
        return _holders(row for row in self.segments if row["start_s"] < time_s <= row["end_s"])

    def running(self, time_s: float) -> set[str]:
        """Return the jobs that hold GPUs from an instant on."""
        return set().union(*self.held(time_s).values())

    def waiting(self, time_s: float) -> set[str]:
        """Return the jobs that have arrived and hold no GPUs."""
        there = {
            name
            for name, row in self.jobs.items()
            if row["arrival_s"] <= time_s
            and row["status"] != "dropped"
            and (row["finish_s"] is None or row["finish_s"] > time_s)
        }
        return there - self.running(time_s)

    def free(self, time_s: float) -> list[int]:
        """Return how many GPUs of each server are free."""
        held = self.held(time_s)
        found = []
        for server, size in enumerate(self.size):
            away = any(s == server and a <= time_s < b for s, a, b in self.outages)
            slots = range(0 if away else size)
            found.append(sum((server, slot) not in held for slot in slots))
        return found

    def pools(self, free: list[int], types: list[int], *, mixes: bool) -> list[list[int]]:
        """Return the free GPUs of the servers that a gang may choose among."""
        groups = [types] if mixes else [[kind] for kind in types]
        return [[n for n, k in zip(free, self.kind, strict=True) if k in group] for group in groups]

    def state(self, free: list[int], gang: int, types: list[int], *, mixes: bool) -> str:
        """Return whether enough GPUs are free for a gang, and on as few servers as it needs."""
        found = "too few"
        sizes = self.pools(self.size, types, mixes=mixes)
        for pool, size in zip(self.pools(free, types, mixes=mixes), sizes, strict=True):
            servers = math.ceil(gang / max(size))
            if sum(sorted(pool)[-servers:]) >= gang:
                return "together"
            if sum(pool) >= gang:
                found = "apart"
        return found


def _holders(rows: Iterable[dict[str, Any]]) -> dict[Gpu, set[str]]:
    found: dict[Gpu, set[str]] = {}
    for row in rows:
        for gpu in gpus_of(row):
            found.setdefault(gpu, set()).add(row["job_id"])
    return found


def gpus_of(row: dict[str, Any]) -> list[Gpu]:
    """Return the GPUs of a segment."""
    return [(row["server"], slot) for slot in range(64) if row["gpu_mask"] >> slot & 1]


def check(
    oracle: Oracle, said: Explanation, types: list[int], *, mixes: bool, is_strict: bool
) -> set[str]:
    """Assert that an explanation is true; return the causes that it names.

    Parameters
    ----------
    oracle : Oracle
        The run.
    said : Explanation
        What to check.
    types : list of int
        GPU types that the job can use.
    mixes : bool
        Whether a gang may have GPUs of several types.
    is_strict : bool
        Whether the placement rule may refuse a gang although enough GPUs are free.
    """
    _check_order(oracle, said)
    for run in said.runs:
        _check_run(oracle, said, run)
    causes = set()
    for wait in said.waits:
        for stretch in wait.stretches:
            _check_free(oracle, said, stretch, types, mixes=mixes)
            if stretch.cause is not None:
                causes.add(stretch.cause)
                check_cause(oracle, said, stretch, types, mixes=mixes, is_strict=is_strict)
        last = wait.stretches[-1]
        if last.cause == "next decision":
            assert wait.end_s >= min(last.until_s, oracle.last_s)
        _check_passing(oracle, said, wait, types, mixes=mixes)
        there = oracle.running(wait.start_s)
        later = {name for name in there if oracle.jobs[name]["arrival_s"] > said.arrival_s}
        assert (wait.holders, wait.later_holders) == (len(there), len(later))
    return causes


def _check_order(oracle: Oracle, said: Explanation) -> None:
    """Check that waits and runs fill the time to the finish, and stretches fill the waits."""
    spans = [(part.start_s, part.end_s) for part in (*said.waits, *said.runs)]
    spans.sort()
    assert spans[0][0] == said.arrival_s
    for one, other in itertools.pairwise(spans):
        assert one[1] == other[0]
    assert spans[-1][1] == (said.finish_s if said.status == "finished" else oracle.last_s)
    for wait in said.waits:
        assert wait.stretches[0].start_s == wait.start_s
        assert wait.stretches[-1].end_s == wait.end_s
        for one, other in zip(wait.stretches, wait.stretches[1:], strict=False):
            assert one.end_s == other.start_s


def _check_run(oracle: Oracle, said: Explanation, run: RunPart) -> None:
    for edge in [run.start_s, *(e for e in oracle.edges if run.start_s < e < run.end_s)]:
        held = [gpu for gpu, names in oracle.held(edge).items() if said.job_id in names]
        assert len(held) == run.gpus
        assert sorted({server for server, _ in held}) == run.servers
        now = [row for row in oracle.segments if row["start_s"] <= edge < row["end_s"]]
        assert run.copies == len({row["part"] for row in now if row["job_id"] == said.job_id})
    if run.end == "finished":
        assert run.taken_by == {}
        return
    mine = {gpu for gpu, names in oracle.before(run.end_s).items() if said.job_id in names}
    taken: dict[str, int] = {}
    before, after = oracle.before(run.end_s), oracle.held(run.end_s)
    for gpu in mine:
        for name in after.get(gpu, set()) - before.get(gpu, set()) - {said.job_id}:
            taken[name] = taken.get(name, 0) + 1
    assert run.taken_by == taken


def _edges(oracle: Oracle, start_s: float, end_s: float) -> list[float]:
    return [start_s, *(edge for edge in oracle.edges if start_s < edge < end_s)]


def _check_free(
    oracle: Oracle, said: Explanation, stretch: Stretch, types: list[int], *, mixes: bool
) -> None:
    assert stretch.start_s < stretch.end_s
    away = [
        sum(
            oracle.size[server]
            for server, down_s, up_s in oracle.outages
            if down_s <= edge < up_s and oracle.kind[server] in types
        )
        for edge in _edges(oracle, stretch.start_s, stretch.end_s)
    ]
    assert stretch.gpus_down_max == max(away)
    for edge in _edges(oracle, stretch.start_s, stretch.end_s):
        assert said.job_id in oracle.waiting(edge)
        free = oracle.free(edge)
        assert oracle.state(free, said.gpus_min, types, mixes=mixes) == stretch.state, edge
        totals = [sum(pool) for pool in oracle.pools(free, types, mixes=mixes)]
        assert any(stretch.gpus_free_min <= total <= stretch.gpus_free_max for total in totals)


def check_cause(
    oracle: Oracle,
    said: Explanation,
    stretch: Stretch,
    types: list[int],
    *,
    mixes: bool,
    is_strict: bool,
) -> None:
    """Assert that a reason of the policy was true when it was given."""
    reason = stretch
    # the facts at the decision, and again at the beginning of the stretch
    at = max(reason.decided_s, stretch.start_s) if reason.cause != "not asked" else stretch.start_s
    state = oracle.state(oracle.free(reason.decided_s), said.gpus_min, types, mixes=mixes)
    if reason.cause == "behind":
        assert reason.job_id != said.job_id
        assert reason.job_id in oracle.waiting(at)
    elif reason.cause in ("outranked", "outbid", "turn") or (
        reason.cause in ("search", "counted out") and reason.job_id
    ):
        assert reason.job_id != said.job_id
        assert reason.job_id in oracle.running(at)
        if reason.cause != "turn":
            assert state == "too few", (reason, stretch)
            kinds = {
                oracle.kind[server]
                for (server, _), names in oracle.held(at).items()
                if reason.job_id in names
            }
            assert kinds & set(types)
    elif reason.cause == "reserved":
        assert reason.job_id in oracle.waiting(at)
        # at once where enough GPUs are free by count and the placement rule accepts none of them
        assert (
            reason.until_s >= reason.decided_s if is_strict else reason.until_s > reason.decided_s
        )
        assert state != "too few"
    elif reason.cause in ("price", "delayed", "not looked at", "search", "counted out"):
        assert state != "too few"
        # the condition that the policy waits for has not occurred
        assert reason.cause != "delayed" or stretch.end_s <= reason.until_s
        assert reason.until_s > reason.decided_s
        assert reason.percent is None or 0 <= reason.percent <= 100
    elif reason.cause in ("order", "requeue delay", "stopped", *LIMITS):
        _check_limits(oracle, said, reason, state)
    elif reason.cause == "copies":
        _check_copies(oracle, reason, types)
    elif reason.cause == "no quota":
        _check_quota(oracle, reason, said, types)
    elif reason.cause == "next decision":
        assert reason.until_s > stretch.start_s
    elif reason.cause in ("leased", "evicted"):
        assert state == "too few" or reason.cause == "evicted"
        assert stretch.end_s <= reason.until_s
        assert reason.until_s > reason.decided_s
    elif reason.cause == "round":
        assert math.isfinite(said.round_s)
        assert stretch.state != "too few"
    elif reason.cause == "not asked":
        assert math.isfinite(said.round_s)
        boundary = math.ceil(stretch.start_s / said.round_s) * said.round_s
        assert stretch.end_s <= boundary + 1e-9
    elif reason.cause == "no partner":
        assert state == "too few"
        assert said.is_shared
    elif reason.cause in ("no place", "promised", "quota") and not is_strict:
        assert state == "too few", (reason, stretch)
    if reason.job_id is not None:
        held = sum(reason.job_id in names for names in oracle.held(reason.decided_s).values())
        assert reason.gpus == (held or oracle.jobs[reason.job_id]["gpus"])


def _check_limits(oracle: Oracle, said: Explanation, reason: Stretch, state: str) -> None:
    """Check that delayed jobs were preempted before, and that other jobs fill a limit."""
    if reason.cause == "order":
        assert state != "too few"
        return
    if reason.cause in LIMITS:
        assert oracle.running(reason.decided_s)  # other jobs fill the limit
        return
    own = [row for row in oracle.segments if row["job_id"] == said.job_id]
    stops = {row["end_s"] for row in own if row["end_reason"] == "preempted"}
    if reason.cause == "stopped":
        assert reason.decided_s in stops
        return
    assert reason.until_s > reason.decided_s
    assert stops


def _check_quota(oracle: Oracle, reason: Stretch, said: Explanation, types: list[int]) -> None:
    """Check the GPUs of the queue: those of all jobs, or of the jobs with this job's label."""
    held = {
        gpu: next(iter(names))
        for gpu, names in oracle.held(reason.decided_s).items()
        if oracle.kind[gpu[0]] in types
    }
    label = oracle.jobs[said.job_id].get("vc")
    own = sum(oracle.jobs[name].get("vc") == label for name in held.values())
    assert reason.gpus in (len(held), own)


def _check_copies(oracle: Oracle, reason: Stretch, types: list[int]) -> None:
    """Check that every usable server has a copy, and that the named job has the most there."""
    copies: dict[str, set[int]] = {}
    for (server, _), names in oracle.held(reason.decided_s).items():
        for name in names:
            copies.setdefault(name, set()).add(server)
    taken = set().union(*copies.values())
    free = oracle.free(reason.decided_s)
    usable = {server for server, kind in enumerate(oracle.kind) if kind in types}
    assert all(server in taken or not free[server] for server in usable)
    of_use = {name: len(servers) for name, servers in copies.items() if servers & usable}
    assert reason.copies == of_use[str(reason.job_id)] == max(of_use.values())


def _check_passing(
    oracle: Oracle, said: Explanation, wait: WaitPart, types: list[int], *, mixes: bool
) -> None:
    """Check that these are exactly the later jobs that started during the wait."""
    newer = {n for n, row in oracle.jobs.items() if row["arrival_s"] > said.arrival_s}
    groups = [set(types)] if mixes else [{kind} for kind in types]
    found: dict[tuple[float, str], bool] = {}
    enough_s = math.nan
    for edge in _edges(oracle, wait.start_s, wait.end_s):
        before, after = oracle.before(edge), oracle.held(edge)
        began = set().union(*after.values()) - set().union(*before.values())
        free = oracle.free(edge)
        enough: set[str] = set()
        for group in groups:
            here = {gpu: names for gpu, names in after.items() if oracle.kind[gpu[0]] in group}
            own = sum(n for n, k in zip(free, oracle.kind, strict=True) if k in group)
            given = sum(names <= newer for names in here.values())
            if own + given >= said.gpus_min and given:
                enough_s = edge if math.isnan(enough_s) else enough_s
                enough = enough.union(*here.values())
        found |= {(edge, name): name in enough for name in began & newer}
    assert {(one.time_s, one.job_id): one.outranks for one in wait.passed_by} == found
    assert wait.enough_s == enough_s or (math.isnan(wait.enough_s) and math.isnan(enough_s))
