"""Tests the audit of idle GPUs while gangs wait, by hand and against a loop over every second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.cli.app import main
from gangline.testing import small_worlds
from refusals import refused

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
Table = dict[str, list[Any]]


def lone(start: float) -> pa.Table:
    """Return tables in which job 1 waits in an empty cluster, between two jobs that do not wait."""
    return pa.table(
        {
            "job_id": ["0", "1", "2"],
            "arrival_s": [0.0, 20.0, start],
            "first_start_s": [0.0, start, start],
            "finish_s": [10.0, start + 5.0, start + 5.0],
            "gpus": [8, 4, 1],
        }
    )


def test_a_lone_job_that_waits_in_an_empty_cluster_is_found() -> None:
    found = gl.audit(lone(100_020.0), LAB)
    assert found.counts == {"idle": 1}
    (row,) = found.findings.to_pylist()
    assert (row["job_id"], row["time_s"], row["found"]) == ("1", 20.0, 100_000.0)
    assert found.idle == {
        "gpu_seconds": 800_000.0,
        "fraction": pytest.approx(800_000.0 / (8 * 100_025.0)),
        "longest_s": 100_000.0,
        "job_id": "1",
        "time_s": 20.0,
    }
    assert found.to_dict()["idle"] == found.idle


@pytest.mark.parametrize(("limit", "ok"), [(0.0, False), (99.0, False), (100.0, True)])
def test_what_counts_is_a_wait_above_the_limit(limit: float, *, ok: bool) -> None:
    assert gl.audit(lone(120.0), LAB, max_idle_s=limit).ok is ok
    assert gl.audit(lone(3620.0), LAB).ok  # the default is an hour
    assert not gl.audit(lone(3621.0), LAB).ok
    assert gl.audit(lone(1e9), LAB, max_idle_s=float("inf")).ok
    with refused(gl.PolicyError, field="max_idle_s", value=-1.0):
        gl.audit(lone(120.0), LAB, max_idle_s=-1.0)


def figures(held: Table, jobs: Table, lab: gl.Cluster = LAB) -> tuple[float, float]:
    """Return GPU-seconds and the longest wait, of a segments table and its jobs."""
    found = gl.audit(pa.table(held), lab, trace=pa.table(jobs))
    assert found.idle is not None
    return found.idle["gpu_seconds"], found.idle["longest_s"]


def trace(gpus: list[int], arrival: list[float] | None = None, **more: Any) -> Table:
    return {
        "job_id": [str(i) for i in range(len(gpus))],
        "arrival_s": arrival or [0.0] * len(gpus),
        "gpus": gpus,
        "duration_s": [1.0] * len(gpus),
        **more,
    }


def segments(*rows: tuple[str, float, float, int, int]) -> Table:
    names = ("job_id", "start_s", "end_s", "server", "gpus")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def test_a_gang_fits_on_one_server() -> None:
    held = segments(("0", 0, 50, 0, 4), ("1", 50, 60, 0, 4))
    assert figures(held, trace([4, 4])) == (200.0, 50.0)


def test_scattered_gpus_do_not_fit_a_gang_that_one_server_would_hold() -> None:
    held = segments(("0", 0, 50, 0, 2), ("1", 0, 50, 1, 2), ("2", 50, 60, 0, 4))
    assert figures(held, trace([2, 2, 4])) == (0.0, 0.0)
    assert figures(held, trace([2, 2, 2])) == (200.0, 50.0)  # its row does not count here


def test_a_blocked_gang_may_be_why_others_wait() -> None:
    held = segments(
        ("0", 0, 50, 0, 4), ("1", 50, 60, 0, 4), ("1", 50, 60, 1, 4), ("2", 60, 70, 0, 1)
    )
    assert figures(held, trace([4, 8, 1])) == (200.0, 0.0)
    alone = segments(("0", 0, 50, 0, 4), ("2", 60, 70, 0, 1))
    # job 1 never ran and is dropped
    assert figures(alone, trace([4, 8, 1])) == (4 * 50 + 8 * 10.0, 60.0)


RACKS = worlds.cluster("4x2 A @fill:2", "1x8 B @2", types={"B": {"memory_gb": 32}}, name="racks")


@pytest.mark.parametrize(
    ("busy", "gang", "more", "waits"),
    [
        ([0], 4, {}, True),  # on the B
        ([0], 4, {"gpu_types": [None, ["A"]]}, True),  # in the other rack
        ([0, 2], 4, {"gpu_types": [None, ["A"]]}, False),  # each rack has one free server
        ([4], 8, {"memory_gb": [1.0, 20.0]}, False),  # only type B has enough memory
        ([0], 8, {"memory_gb": [1.0, 20.0]}, True),
        # the gang is wider than a rack and goes over all racks
        ([], 8, {"gpu_types": [None, ["A"]]}, True),
        ([4], 8, {"gpu_types": [None, ["A"]]}, True),
        ([3], 8, {"gpu_types": [None, ["A"]]}, False),
    ],
)
def test_wide_gangs_fit_in_a_rack_of_free_servers(
    busy: list[int], gang: int, more: dict[str, Any], *, waits: bool
) -> None:
    rows = [("0", 0.0, 50.0, server, 1) for server in busy]
    held = segments(*rows, ("0", 50.0, 51.0, 0, 1), ("1", 50.0, 51.0, 4, gang))
    more = {"gpu_types": [None, None], **more}
    assert figures(held, trace([1, gang], **more), RACKS)[1] == (50.0 if waits else 0.0)


def test_a_server_that_is_down_is_not_free() -> None:
    down = {**LAB.to_dict(), "failures": {"table": [{"server": 1, "down_s": 10.0, "up_s": 40.0}]}}
    held = segments(("0", 0, 50, 0, 4), ("1", 50, 60, 0, 4))
    lab = gl.Cluster.from_dict(down)
    assert figures(held, trace([4, 4]), lab) == (80.0, 10.0)


def test_a_preempted_job_waits_and_so_does_one_that_the_run_left() -> None:
    held = segments(("0", 0, 10, 0, 4), ("0", 30, 40, 0, 4))
    assert figures(held, trace([4])) == (160.0, 20.0)
    listed = {
        "job_id": ["0", "1", "2"],
        "arrival_s": [0.0, 5.0, 5.0],
        "finish_s": [40.0, None, None],
        "gpus": [4, 4, 4],
        "status": ["finished", "unfinished", "dropped"],
    }
    found = gl.audit(pa.table(held), LAB, jobs=pa.table(listed))
    assert found.idle is not None
    # 4 or 8 GPUs are free, and 1 would fit, from 5 s to the end.
    assert (found.idle["gpu_seconds"], found.idle["longest_s"]) == (5 * 4 + 20 * 8 + 10 * 4, 35.0)
    assert found.idle["job_id"] == "1"


@pytest.mark.parametrize(("held", "gang", "fits"), [(1, 4, True), (2, 4, False), (2, 3, True),
                                                   (4, 3, False), (0, 8, True), (1, 8, False),
                                                   (7, 1, True), (8, 1, False)])  # fmt: skip
def test_without_servers_a_gang_fits_if_it_does_however_the_busy_ones_are_spread(
    held: int, gang: int, *, fits: bool
) -> None:
    rows = {
        "job_id": ["0", "1"],
        "arrival_s": [0.0, 10.0],
        "first_start_s": [0.0, 100.0],
        "finish_s": [100.0, 200.0],
        "gpus": [held or 1, gang],
    }
    if not held:
        rows["finish_s"][0] = 1.0
    found = gl.audit(pa.table(rows), LAB)
    assert found.idle is not None
    assert found.idle["longest_s"] == (90.0 if fits else 0.0)


def test_jobs_that_were_stopped_count_as_busy_and_unknown_starts_as_early() -> None:
    rows = {
        "job_id": ["0", "1"],
        "arrival_s": [0.0, 10.0],
        "first_start_s": [0.0, 100.0],
        "finish_s": [100.0, 200.0],
        "run_s": [50.0, 100.0],
        "gpus": [8, 1],
    }
    found = gl.audit(pa.table(rows), LAB)
    assert found.idle is not None
    assert found.idle["gpu_seconds"] == 0.0
    del rows["first_start_s"]
    found = gl.audit(pa.table(rows), LAB)
    assert found.idle is None
    assert "first_start_s" in found.skipped["idle"]


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "easy", "srtf", "las", "tiresias"])
def test_policies_that_start_what_comes_first_never_let_all_wait(policy: str) -> None:
    for cluster, jobs, options in small_worlds():
        result = gl.simulate(cluster, jobs, policy, segments=True, **options)
        for table, beside in ((result.segments, result.jobs), (result.jobs, None)):
            found = gl.audit(table, cluster, jobs=beside, trace=jobs)
            assert found.idle is not None
            assert found.idle["longest_s"] < 1e-6


def test_a_round_policy_lets_gangs_wait_for_the_next_round() -> None:
    cluster, jobs, _ = small_worlds()[0]
    result = gl.simulate(cluster, jobs, "gavel-las", segments=True)
    found = gl.audit(result.segments, cluster, jobs=result.jobs, trace=jobs)
    assert found.idle is not None
    assert 100.0 < found.idle["longest_s"] <= 360.0
    assert not gl.audit(result.segments, cluster, jobs=result.jobs, max_idle_s=100.0).ok


def test_waits_for_a_limit_of_slurm_are_not_checked_by_default(tmp_path: Any) -> None:
    """By hand: the user may hold 4 of 8 GPUs, so job 1 waits from 1 s until job 0 ends at 9,000."""
    jobs = trace([4, 4], [0.0, 1.0], user=["u", "u"])
    jobs["duration_s"] = jobs["time_limit_s"] = [9000.0, 1.0]
    params = {"qos_user_gpus": {"normal": 4}}
    result = gl.simulate(LAB, pa.table(jobs), "slurm", params=params, segments=True)
    result.save(tmp_path / "limited")
    found = gl.audit(tmp_path / "limited")
    assert found.ok
    assert "idle" not in found.checked
    assert "`slurm` may hold jobs back" in found.skipped["idle"]
    assert found.idle is not None
    assert found.idle["longest_s"] == 8999.0
    assert gl.audit(tmp_path / "limited", max_idle_s=3600.0).counts == {"idle": 1}
    gl.simulate(LAB, pa.table(jobs), "fifo", segments=True).save(tmp_path / "free")
    assert "idle" in gl.audit(tmp_path / "free").checked


def test_the_command_says_how_much_was_free(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.csv as pa_csv

    pa_csv.write_csv(lone(100_020.0), tmp_path / "t.csv")
    (tmp_path / "lab.toml").write_text(LAB.to_toml())
    given = ["audit", str(tmp_path / "t.csv"), "--cluster", str(tmp_path / "lab.toml")]
    assert main(given) == 3
    out = capsys.readouterr().out
    assert "idle: 800,000 GPU-s (99.98%) were free while enough GPUs were free together" in out
    assert "100,000 s (job 1 from 20 s)" in out
    assert main([*given, "--max-idle-s", "200000"]) == 0
    assert main([*given, "--max-idle-s", "inf"]) == 0


SIZES = [2, 2, 4, 4]
WORLD = worlds.cluster("2x2 A @0", "2x4 A @1", name="w")


def by_hand(arrival: list[int], gangs: list[int], rows: list[tuple[int, ...]]) -> tuple[int, int]:
    """Return GPU-seconds and the longest wait of all jobs, second by second."""
    last = max(end for _, _, end, _, _ in rows)
    ends = {job: max(end for j, _, end, _, _ in rows if j == job) for job, *_ in rows}
    free_seconds, run, longest = 0, dict.fromkeys(ends, 0), 0
    for now in range(last):
        free = list(SIZES)
        for _, start, end, server, gpus in rows:
            if start <= now < end:
                free[server] -= gpus
        whole = [size if left == size else 0 for size, left in zip(SIZES, free, strict=True)]
        holding = {job for job, start, end, _, _ in rows if start <= now < end}
        waiting = [j for j in ends if arrival[j] <= now < ends[j] and j not in holding]
        fits = {
            j: (
                any(left >= gangs[j] for left in free)
                if gangs[j] <= 4
                else max(sum(whole[:2]), sum(whole[2:])) >= gangs[j]
                if gangs[j] <= 8
                else sum(whole) >= gangs[j]
            )
            for j in waiting
        }
        if any(fits.values()):
            free_seconds += max(sum(free), 0)
        for job in run:
            run[job] = run[job] + 1 if job in waiting and all(fits.values()) else 0
            longest = max(longest, run[job])
    return free_seconds, longest


@given(st.data())
def test_the_figures_are_those_of_a_loop_over_every_second(data: st.DataObject) -> None:
    draw = data.draw
    count = draw(st.integers(1, 6))
    arrival = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    sizes = st.sampled_from([1, 2, 3, 4, 5, 8, 9, 12])
    gangs = draw(st.lists(sizes, min_size=count, max_size=count))
    rows: list[tuple[int, ...]] = []
    for job in range(count):
        at = arrival[job]
        for _ in range(draw(st.integers(0, 3))):
            start = at + draw(st.integers(0, 12))
            at = start + draw(st.integers(1, 8))
            servers = draw(st.sets(st.integers(0, 3), min_size=1, max_size=2))
            rows += [(job, start, at, s, draw(st.integers(1, SIZES[s]))) for s in servers]
    if not rows:
        return
    held = {
        name: np.asarray([row[i] for row in rows])
        for i, name in enumerate(("job_id", "start_s", "end_s", "server", "gpus"))
    }
    jobs = trace(gangs, [float(at) for at in arrival])
    found = gl.audit(pa.table(held), WORLD, trace=pa.table(jobs), max_idle_s=5.0)
    free, longest = by_hand(arrival, gangs, rows)
    assert found.idle is not None
    assert (found.idle["gpu_seconds"], found.idle["longest_s"]) == (free, longest)
    assert ("idle" in found.counts) == (longest > 5)
