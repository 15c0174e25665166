"""Recounts the rules of dally in drawn worlds from the segments of runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import gangline as gl

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
NEVER = 2**62
TIERS = ("server", "rack", "network")
FOR_EVER = 2.0**20  # in seconds; no lease ends in these worlds


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


@dataclass
class World:
    """A run on one GPU type without failures, in whole nanoseconds."""

    servers: list[int]  # GPUs
    racks: list[int]  # the rack of each server
    gangs: dict[str, int]
    arrivals: dict[str, int]
    finishes: dict[str, int]
    # start, end, tier, end_reason, {server: mask}
    stays: dict[str, list[tuple[int, int, str, str, dict[int, int]]]] = field(default_factory=dict)

    @property
    def server_max(self) -> int:
        return max(self.servers)

    @property
    def rack_max(self) -> int:
        return max(self.of_racks(self.servers))

    def of_racks(self, counts: list[int]) -> list[int]:
        totals: dict[int, int] = defaultdict(int)
        for rack, count in zip(self.racks, counts, strict=True):
            totals[rack] += count
        return list(totals.values())

    def narrowest(self, gang: int) -> str:
        if gang <= self.server_max:
            return "server"
        return "rack" if gang <= self.rack_max else "network"

    def free(self, instant: int, *, before: bool = False) -> list[int]:
        """Return the free GPUs of each server after an instant's decision, or just before."""
        free = list(self.servers)
        for stays in self.stays.values():
            for start, end, _, _, masks in stays:
                holds = start < instant <= end if before else start <= instant < end
                for server, mask in masks.items() if holds else ():
                    free[server] -= mask.bit_count()
        assert min(free) >= 0
        return free

    def has_room(self, gang: int, level: str, free: list[int]) -> bool:
        if level == "server":
            return max(free) >= gang
        return (max(self.of_racks(free)) if level == "rack" else sum(free)) >= gang

    def instants(self) -> list[int]:
        """Return the instants at which something changes."""
        stays = [stay for all_of in self.stays.values() for stay in all_of]
        ends = {stay[0] for stay in stays} | {stay[1] for stay in stays}
        return sorted(ends | set(self.arrivals.values()))

    def waiting(self, instant: int) -> list[tuple[str, int]]:
        """Return which jobs wait after the decision of an instant, and since when."""
        found = []
        for job, stays in self.stays.items():
            if self.arrivals[job] > instant or self.finishes[job] <= instant:
                continue
            if not any(start <= instant < end for start, end, *_ in stays):
                ended = [end for _, end, *_ in stays if end <= instant]
                found.append((job, max(ended, default=self.arrivals[job])))
        return found


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    blocks = [
        {
            "count": draw(st.integers(1, 3)),
            "gpu": "g",
            "gpus": draw(st.sampled_from([2, 4, 4])),
            "rack": rack,
        }
        for rack in range(draw(st.integers(1, 3)))
    ]
    return {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": blocks,
        "network": {"levels": {"*": [1.0, draw(st.sampled_from([1.0, 0.6])), 0.3], "x": [1, 1, 1]}},
    }


@st.composite
def crowds(draw: st.DrawFn) -> pa.Table:
    times = st.sampled_from([0.0, 0.0, 1.0, 3.0, 7.0, 10.0, 22.5])
    rows = [
        {
            "job_id": f"j{i}",
            "arrival_s": draw(times),
            "gpus": draw(st.sampled_from([1, 2, 2, 3, 3, 3, 4, 5, 7])),
            "duration_s": draw(st.sampled_from([2.0, 10.0, 31.0, 60.0])),
            "model": draw(st.sampled_from(["x", "y"])),
        }
        for i in range(draw(st.integers(4, 14)))
    ]
    return pa.Table.from_pylist(rows)


# These are seconds; leases are powers of two, so that delays in leases are exact.
DELAYS = st.sampled_from([(0.0, 0.0), (1.0, 2.0), (2.0, 2.0), (3.0, 9.0), (0.0, 5.0)])


@st.composite
def parameters(draw: st.DrawFn, mode: str) -> dict[str, Any]:
    rack, network = draw(DELAYS)
    lease = draw(st.sampled_from([4.0, 16.0, FOR_EVER, FOR_EVER]))
    return {
        "mode": mode,
        "lease_s": lease,
        "rack_delay": rack / lease,
        "network_delay": network / lease,
        "fit": draw(st.sampled_from(["best", "first"])),
        "renewal": draw(st.sampled_from(["keep", "keep", "redecide"])),
        "upgrade_on_renewal": draw(st.booleans()),
        "align_leases": draw(st.booleans()),
    }


def play(cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]) -> World:
    description = gl.Cluster.from_dict(cluster)
    result = gl.simulate(
        description, jobs, "dally", params=params, segments=True, on_infeasible="drop",
        check_invariants=True,
    )  # fmt: skip
    arrays = description.server_arrays()
    rows = [row for row in result.jobs.to_pylist() if row["status"] == "finished"]
    assert {row["status"] for row in result.jobs.to_pylist()} <= {"finished", "dropped"}
    assume(rows)
    world = World(
        servers=arrays["gpus"].tolist(),
        racks=arrays["rack"].tolist(),
        gangs={row["job_id"]: row["gpus"] for row in rows},
        arrivals={row["job_id"]: ns(row["arrival_s"]) for row in rows},
        finishes={row["job_id"]: ns(row["finish_s"]) for row in rows},
        stays={row["job_id"]: [] for row in rows},
    )
    held: dict[tuple[str, int], tuple[int, int, str, str, dict[int, int]]] = {}
    for row in result.segments.to_pylist():
        key = (row["job_id"], ns(row["start_s"]))
        stay = (key[1], ns(row["end_s"]), row["tier"], row["end_reason"], {})
        held.setdefault(key, stay)[4][row["server"]] = row["gpu_mask"]
    for (job, _), stay in sorted(held.items(), key=lambda item: item[0][1]):
        world.stays[job].append(stay)
    return world


def delays(params: dict[str, Any]) -> tuple[int, int]:
    if params["mode"] == "no_wait":
        return 0, 0
    if params["mode"] == "fully_consolidated":
        return NEVER, NEVER
    lease = params["lease_s"]
    return ns(params["rack_delay"] * lease), ns(params["network_delay"] * lease)


def allowed(world: World, gang: int, waited: int, waits: tuple[int, int]) -> set[str]:
    """Return the levels that a gang may use after this time."""
    narrowest = world.narrowest(gang)
    levels = {"server"}
    if waited >= waits[0] or narrowest != "server":
        levels.add("rack")
    if waited >= waits[1] or narrowest == "network":
        levels |= {"rack", "network"}
    return levels


KNOWN_DELAYS = st.sampled_from(["manual", "manual", "no_wait", "fully_consolidated"])


@settings(suppress_health_check=QUIET)
@given(cluster=clusters(), jobs=crowds(), params=KNOWN_DELAYS.flatmap(parameters))
def test_nobody_waits_beside_room_it_may_use(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    """This holds after every decision, and at the exact instant at which a delay ends."""
    world = play(cluster, jobs, params)
    waits = delays(params)
    instants = world.instants()
    for now, following in zip(instants, [*instants[1:], None], strict=True):
        free = world.free(now)
        for job, since in world.waiting(now):
            gang = world.gangs[job]
            ends = [since + wait for wait in waits if wait != NEVER]
            # between two instants only the waiting time changes
            moments = [now, *(end for end in ends if following and now < end < following)]
            for moment in moments:
                for level in allowed(world, gang, moment - since, waits):
                    assert not world.has_room(gang, level, free), (job, level, moment)
                    event("somebody waits")


@settings(suppress_health_check=QUIET)
@given(cluster=clusters(), jobs=crowds(), params=KNOWN_DELAYS.flatmap(parameters))
def test_nobody_crosses_before_its_delay(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    """A start is at most as wide as its wait allows; a move leads to a narrower place."""
    world = play(cluster, jobs, params)
    waits = delays(params)
    for job, stays in world.stays.items():
        gang, since, last = world.gangs[job], world.arrivals[job], None
        for start, end, tier, reason, masks in stays:
            assert sum(mask.bit_count() for mask in masks.values()) == gang
            if last is None:
                waited = start - since
                assert tier in allowed(world, gang, waited, waits)
                if tier not in allowed(world, gang, waited - 1, waits):
                    event("started at the nanosecond at which its delay was over")
            else:
                narrower = TIERS.index(tier) < TIERS.index(last)
                assert narrower or tier in allowed(world, gang, 0, waits)
            since, last = end, tier if reason == "moved" else None
            event(f"{tier} after {reason}")


@settings(suppress_health_check=QUIET)
@given(cluster=clusters(), jobs=crowds(), params=KNOWN_DELAYS.flatmap(parameters))
def test_a_lone_start_takes_the_narrowest_place(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    """If one job starts and no other moves, no narrower level had room for it."""
    world = play(cluster, jobs, params)
    changes: dict[int, list[str]] = defaultdict(list)
    for stays in world.stays.values():
        for start, end, *_ in stays:
            changes[start].append("start")
            changes[end].append("end")
    for job, stays in world.stays.items():
        for start, _, tier, _, _ in stays:
            if changes[start] == ["start"]:
                free = world.free(start, before=True)
                for level in TIERS[: TIERS.index(tier)]:
                    assert not world.has_room(world.gangs[job], level, free)
                event(f"alone on a {tier}")


@settings(suppress_health_check=QUIET)
@given(
    cluster=clusters(),
    jobs=crowds(),
    params=st.sampled_from(["auto", "manual", "no_wait", "fully_consolidated"]).flatmap(parameters),
)
def test_leases_end_on_their_grid_and_are_not_overrun(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    """Jobs are stopped or moved only at the end of a lease; with endless leases, none is."""
    world = play(cluster, jobs, params)
    lease = ns(params["lease_s"])
    for stays in world.stays.values():
        for start, end, _, reason, _ in stays:
            if reason in ("preempted", "moved"):
                begin = 0 if params["align_leases"] else start
                assert (end - begin) % lease == 0
                assert params["lease_s"] < FOR_EVER
                event(reason)


def ended_leases(world: World, params: dict[str, Any]) -> dict[int, list[dict[int, int]]]:
    """Return the GPUs by server of jobs whose lease ends at an instant and that keep them."""
    lease = ns(params["lease_s"])
    found: dict[int, list[dict[int, int]]] = defaultdict(list)
    for stays in world.stays.values():
        for start, end, *_, masks in stays:
            first = start + lease - (start % lease if params["align_leases"] else 0)
            for boundary in range(first, end, lease):
                found[boundary].append(masks)
    return found


@settings(suppress_health_check=QUIET)
@given(cluster=clusters(), jobs=crowds(), params=KNOWN_DELAYS.flatmap(parameters))
def test_nobody_outstays_a_lease_before_one_that_never_ran(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    """At the end of a lease, its GPUs count as free for jobs without a score."""
    assume(params["lease_s"] < FOR_EVER)
    world = play(cluster, jobs, params)
    for instant, kept in ended_leases(world, params).items():
        free = world.free(instant)
        for masks in kept:
            for server, mask in masks.items():
                free[server] += mask.bit_count()
        for job, since in world.waiting(instant):
            if any(start < instant for start, *_ in world.stays[job]):
                continue
            gang = world.gangs[job]
            for level in allowed(world, gang, instant - since, delays(params)):
                assert not world.has_room(gang, level, free), (job, level, instant)
                event("a newcomer waits though leases end")


@settings(suppress_health_check=QUIET)
@given(cluster=clusters(), jobs=crowds(), params=parameters("manual"))
def test_equal_delays_of_nothing_are_no_wait_and_of_ages_are_consolidated(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any]
) -> None:
    def run(**more: Any) -> str:
        chosen = {**params, **more}
        done = gl.simulate(cluster, jobs, "dally", params=chosen, on_infeasible="drop")
        return done.log_hash

    ages = 1e9  # in leases; longer than any of these worlds
    assert run(rack_delay=0.0, network_delay=0.0) == run(mode="no_wait")
    assert run(rack_delay=ages, network_delay=ages) == run(mode="fully_consolidated")


@settings(suppress_health_check=QUIET)
@given(
    cluster=clusters(),
    jobs=crowds(),
    params=parameters("auto"),
    history=st.sampled_from([24.0, 3.0]),
)
def test_auto_is_manual_until_a_wait_of_a_lease_is_recorded(
    cluster: dict[str, Any], jobs: pa.Table, params: dict[str, Any], history: float
) -> None:
    """Without waits of a lease, the tuner uses its lower or upper limits."""
    fixed = {"lease_s": FOR_EVER, "history_leases": history}
    cap = -(-0.8 * history // 1)
    manual = {"mode": "manual", "rack_delay": min(6.0, cap), "network_delay": min(12.0, history)}
    hashes = [
        gl.simulate(
            cluster, jobs, "dally", params={**params, **fixed, **more}, on_infeasible="drop"
        ).log_hash
        for more in ({"mode": "auto"}, manual)
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("name", [name for name in gl.policies.presets if name.startswith("dally")])
@settings(suppress_health_check=QUIET, max_examples=25)
@given(cluster=clusters(), jobs=crowds(), restart_s=st.sampled_from([0.0, 1.0]))
def test_presets_lose_no_job_and_no_gpu_second(
    name: str, cluster: dict[str, Any], jobs: pa.Table, restart_s: float
) -> None:
    result = gl.simulate(
        cluster, jobs, name, params={"lease_s": 60.0}, segments=True, restart_s=restart_s,
        on_infeasible="drop", check_invariants=True,
    )  # fmt: skip
    held: dict[str, float] = defaultdict(float)
    for row in result.segments.to_pylist():
        held[row["job_id"]] += (row["end_s"] - row["start_s"]) * row["gpu_mask"].bit_count()
    for row in result.jobs.to_pylist():
        if row["status"] == "dropped":
            continue
        assert row["status"] == "finished"
        assert row["gpu_seconds"] == pytest.approx(held[row["job_id"]], abs=1e-6)
        assert row["jct_s"] == pytest.approx(row["wait_s"] + row["run_s"], abs=1e-6)
