"""Tests each law on tables made by hand: a good run passes, and its law finds a broken cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import worlds
from gangline.cluster.description import Cluster
from gangline.testing import LAW_NAMES, LawBroken, broken_laws
from gangline.trace import Trace
from unit.analysis.test_audit import BROKEN as BROKEN_TABLES
from unit.analysis.test_audit import LAB, TRACE, World, cell
from unit.analysis.test_audit import good as good_tables

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER = Cluster.from_dict(LAB)
SUMMARY = {"jobs": 3, "finished": 3, "dropped": 0, "jct_mean_s": 52.0 / 3, "gpu_utilization": 0.46}


def good() -> World:
    """Return the run of test_audit.py with its timeline."""
    timeline = {
        "t_s": [0.0, 10.0, 12.0, 15.0, 30.0],
        "gpus_total": [6] * 5,
        "gpus_busy": [2, 3, 4, 3, 0],
    }
    return good_tables() | {"timeline": timeline}


def laws_of(world: World, summary: dict[str, Any] | None = None, **more: Any) -> list[str]:
    tables = {name: pa.table(columns) for name, columns in world.items()}
    found = broken_laws(
        tables["jobs"],
        tables["segments"],
        CLUSTER,
        TRACE,
        timeline=tables["timeline"],
        summary=SUMMARY | (summary or {}),
        **more,
    )
    return [law for law, _ in found]


# These are not checked by the audit, or the tests of the audit break them without servers.
BROKEN: list[tuple[str, Callable[[World], None]]] = [
    ("lost-job", cell("jobs", "status", 2, "unfinished")),
    ("order", cell("timeline", "t_s", 2, 5.0)),
    ("utilisation", cell("timeline", "gpus_busy", 1, 7)),
]
OF_BOTH = [
    (rule, change)
    for rule, _, change, *_ in BROKEN_TABLES
    if rule not in ("idle", "utilisation", "unknown-type")
]


def test_a_good_run_breaks_no_law() -> None:
    assert laws_of(good()) == []


@pytest.mark.parametrize(("law", "change"), [*BROKEN, *OF_BOTH])
def test_one_broken_cell_is_caught_by_its_law(law: str, change: Callable[[World], None]) -> None:
    world = good()
    change(world)
    assert law in laws_of(world)


@pytest.mark.parametrize(
    ("law", "fact"),
    [
        ("utilisation", {"gpu_utilization": 1.01}),
        ("summary", {"finished": 2}),
        ("summary", {"jct_mean_s": 18.1}),
    ],
)
def test_a_wrong_number_of_the_summary_is_caught(law: str, fact: dict[str, Any]) -> None:
    assert law in laws_of(good(), fact)


def test_sharing_is_legal_up_to_the_limit() -> None:
    world = good()
    world["segments"]["gpu_mask"][3] = 0b01
    assert "double-booking" in laws_of(world, max_share=1)
    assert "double-booking" not in laws_of(world, max_share=2)


def without_summary(world: dict[str, Any], **more: Any) -> list[str]:
    jobs, segments = pa.table(world["jobs"]), pa.table(world["segments"])
    return [law for law, _ in broken_laws(jobs, segments, CLUSTER, TRACE, **more)]


def test_a_lost_job_is_caught_without_the_summary() -> None:
    world = good()
    assert without_summary(world) == []
    for column in ("first_start_s", "finish_s", "jct_s"):
        world["jobs"][column][2] = float("nan")
    world["jobs"]["status"][2] = "unfinished"
    for values in world["segments"].values():
        del values[3]
    world["jobs"]["gpu_seconds"][2] = world["jobs"]["run_s"][2] = 0.0
    assert without_summary(world) == ["lost-job"]
    assert without_summary(world, outcome="finished") == ["lost-job"]
    assert without_summary(world, outcome="limit") == []


def test_a_run_that_was_stopped_leaves_jobs_and_that_is_no_loss() -> None:
    world = good()
    for column in ("finish_s", "jct_s"):
        world["jobs"][column][2] = float("nan")
    world["jobs"]["status"][2] = "unfinished"
    world["segments"]["end_reason"][3] = "stopped"
    assert without_summary(world) == []
    assert without_summary(world, outcome="finished") == ["lost-job"]


def test_every_law_has_a_broken_example() -> None:
    # The first two need policies: tests/mutants. The next two have tests of their own here, the
    # others are rules of the audit alone.
    elsewhere = {"ends", "repeats", "summary", "work-conserving", "unknown-type", "idle"}
    assert set(LAW_NAMES) - {law for law, _ in [*BROKEN, *OF_BOTH]} == elsewhere


def test_the_error_names_the_first_law_and_keeps_all() -> None:
    error = LawBroken([("double-booking", "x"), ("order", "y")])
    assert error.law == "double-booking"
    assert str(error) == "double-booking: x; order: y"
    assert isinstance(error, AssertionError)


# One server of two GPUs; jobs of one GPU each, all at rate 1.
PLAIN = worlds.lab("2x2 A @0", name="plain")
ONE = worlds.columns("x 0 1 10")


def run_of(
    rows: list[dict[str, Any]], *, given: dict[str, Any] | None = None, **jobs: list[Any]
) -> tuple[pa.Table, pa.Table, Trace]:
    """Return tables of finished jobs from their segments, with defaults for missing values."""
    usual = {"part": 0, "server": 0, "gpu_mask": 1, "rate": 1.0, "co_runner": "", "sub_batch": 0}
    segments = pa.Table.from_pylist([{"job_id": "x", **usual, **row} for row in rows])
    trace = ONE | (given or {})
    ends = {name: [] for name in trace["job_id"]}  # type: ignore[var-annotated]
    for row in segments.to_pylist():
        ends[row["job_id"]].append(row)
    table = {
        "job_id": trace["job_id"],
        "arrival_s": trace["arrival_s"],
        "first_start_s": [min(row["start_s"] for row in of) for of in ends.values()],
        "finish_s": [max(row["end_s"] for row in of) for of in ends.values()],
        "run_s": [sum(row["end_s"] - row["start_s"] for row in of) for of in ends.values()],
        "gpu_seconds": [sum(row["end_s"] - row["start_s"] for row in of) for of in ends.values()],
        "overhead_s": [0.0] * len(ends),
        "share_s": [0.0] * len(ends),
        "status": ["finished"] * len(ends),
        "queue_s": [
            min(row["start_s"] for row in of) - at
            for of, at in zip(ends.values(), trace["arrival_s"], strict=True)
        ],
    } | jobs
    table["jct_s"] = [f - a for f, a in zip(table["finish_s"], table["arrival_s"], strict=True)]
    table["wait_s"] = [j - r for j, r in zip(table["jct_s"], table["run_s"], strict=True)]
    return pa.table(table), segments, Trace.from_arrow(pa.table(trace))


def broken_by(
    tables: tuple[pa.Table, pa.Table, Trace], cluster: dict[str, Any] = PLAIN, **more: Any
) -> dict[str, str]:
    jobs, segments, trace = tables
    return dict(broken_laws(jobs, segments, Cluster.from_dict(cluster), trace, **more))


def stint(start_s: float, end_s: float, end_reason: str, **more: Any) -> dict[str, Any]:
    return {"start_s": start_s, "end_s": end_s, "end_reason": end_reason} | more


CHECKPOINTS: list[tuple[dict[str, Any], list[dict[str, Any]], float]] = [
    # Every 3 s: of 5 s three are kept, of the next 4 (after 1 s of restart, so 3) all.
    (
        {"checkpoint_interval_s": 3.0, "restart_s": 1.0},
        [
            stint(0.0, 5.0, "preempted"),
            stint(6.0, 10.0, "moved"),
            stint(10.0, 15.0, "finished", server=1),
        ],
        2.0,
    ),
    # None: a stop keeps all, a failure of the second stint its 4 s of work not.
    (
        {"restart_s": 1.0},
        [
            stint(0.0, 4.0, "preempted"),
            stint(5.0, 10.0, "failed"),
            stint(11.0, 18.0, "finished"),
        ],
        2.0,
    ),
    # Checkpoints count from the start of progress, over changes of the rate: 6 s of 8 are kept.
    (
        {"checkpoint_interval_s": 3.0, "first_start_s": 2.0},
        [
            stint(0.0, 4.0, "retimed"),
            stint(4.0, 10.0, "failed", rate=0.5, co_runner="?"),
            stint(10.0, 16.0, "finished"),
        ],
        2.0,
    ),
]


@pytest.mark.parametrize(("options", "rows", "overhead_s"), CHECKPOINTS)
def test_work_after_checkpoints_is_counted_as_the_segments_show(
    options: dict[str, Any], rows: list[dict[str, Any]], overhead_s: float
) -> None:
    tables = run_of(rows, overhead_s=[overhead_s])
    assert "work-done" not in broken_by(tables, options=options)
    assert "work-done" not in broken_by(tables)  # options unknown: bounds, and it lies within
    late = [*rows[:-1], rows[-1] | {"end_s": rows[-1]["end_s"] + 0.5}]
    assert "did at least 10.5 of 10" in broken_by(
        run_of(late, overhead_s=[overhead_s]), options=options
    ).get("work-done", "")


def test_overheads_that_the_options_do_not_explain_leave_bounds() -> None:
    """4 s at 1/s and 6 s at 2/s (one resident less), 3 s of overhead somewhere: 10 to 13."""
    rows = [
        stint(0.0, 4.0, "preempted"),
        stint(4.0, 10.0, "finished", rate=2.0),
    ]
    for work, is_possible in ((9.9, False), (10.0, True), (13.0, True), (13.1, False)):
        given = {"duration_s": [work]}
        found = broken_by(run_of(rows, given=given, overhead_s=[3.0]), options={})
        # beside that, rate 2 is more than the GPU allows
        accused = [what for what in found.values() if "did at" in what]
        assert (not accused) == is_possible, work


def test_an_unfinished_job_has_not_done_more_than_its_work() -> None:
    rows = [stint(0.0, 10.5, "stopped")]
    tables = run_of(rows, status=["unfinished"], finish_s=[float("nan")])
    assert "did at least 10.5 of 10" in broken_by(tables, outcome="limit", options={})["work-done"]


def forked() -> list[dict[str, Any]]:
    """Two parts on two servers from 2 s on: 2 + 2 x 3 + 2 iterations by 7 s."""
    return [
        stint(0.0, 7.0, "finished"),
        stint(2.0, 5.0, "preempted", part=1, server=1),
    ]


def of_forked(rows: list[dict[str, Any]], **jobs: list[Any]) -> dict[str, str]:
    return broken_by(run_of(rows, **{"run_s": [7.0], "gpu_seconds": [10.0]} | jobs), options={})


def test_parts_of_a_job_add_up() -> None:
    assert of_forked(forked()) == {}


def test_a_part_is_a_whole_gang_on_a_server_of_its_own() -> None:
    alone, second = forked()
    same_server = [alone, second | {"server": 0, "gpu_mask": 2}]
    assert "server 0" in of_forked(same_server)["gang"]
    wide = [alone, second, second | {"server": 0, "gpu_mask": 2}]
    assert set(of_forked(wide)) >= {"gang"}
    twice = [alone, second, second | {"start_s": 4.0, "gpu_mask": 2}]
    assert "gang" in of_forked(twice)
    split = [alone, second | {"gpu_mask": 3}]
    assert "gang" in of_forked(split)


def test_a_forgotten_part_is_caught() -> None:
    assert set(of_forked(forked()[:1])) >= {"sums", "short-run"}
    assert "sums" in of_forked(forked(), run_s=[10.0])


def waits(until_s: float, **cluster: Any) -> dict[str, str]:
    """Beside job w, which needs one GPU and waits, one of the two GPUs is free until `until_s`."""
    given = {
        "job_id": ["x", "y", "w"],
        "arrival_s": [0.0, 0.0, 0.0],
        "gpus": [1, 1, 1],
        "duration_s": [10.0, 10.0 - until_s, 3.0],
    }
    rows = [
        stint(0.0, 10.0, "finished"),
        stint(until_s, 10.0, "finished", job_id="y", gpu_mask=2),
        stint(10.0, 13.0, "finished", job_id="w"),
    ]
    lab = PLAIN | {"servers": [{"count": 1, "gpu": "A", "gpus": 2, "rack": 0}]} | cluster
    return broken_by(run_of(rows, given=given), lab, work_conserving=True)


def test_a_job_that_waits_beside_free_gpus_is_caught() -> None:
    assert waits(0.0) == {}
    assert "0 s: a job of 1 GPU waits" in waits(2.0)["work-conserving"]


def test_gpus_of_servers_that_are_down_are_not_free() -> None:
    """The second server has no job and is always down."""
    two = [{"count": 2, "gpu": "A", "gpus": 2, "rack": 0}]
    assert "work-conserving" in waits(0.0, servers=two)
    down = {"table": [{"server": 1, "down_s": 0.0}]}
    assert waits(0.0, servers=two, failures=down) == {}


SHARED = PLAIN | {"sharing": {"xi": 1.25}}
PAIR = worlds.columns(
    "x 0 1 8", "y 0 1 4", memory_gb=[9.0, 8.0], batch_size=pa.array([None, 32], pa.int32())
)


def of_pair(change: Callable[[list[dict[str, Any]]], object], **more: Any) -> dict[str, str]:
    """Job x from 0 to 9 s, from 4 s on beside y, which goes at half its batch and is alone at last.

    By hand: x does 4 + 5 x 0.8; y does 5 / (1.05 x 1.25) in 5 s, and what is left at 1 / 1.05.
    """
    beside = 1.0 / (1.05 * 1.25)
    end_s = 9.0 + (4.0 - 5.0 * beside) * 1.05
    half = {"job_id": "y", "sub_batch": 16}
    rows = [
        stint(0.0, 4.0, "retimed"),
        stint(4.0, 9.0, "finished", rate=0.8, co_runner="y"),
        stint(4.0, 9.0, "retimed", rate=beside, co_runner="x", **half),
        stint(9.0, end_s, "finished", rate=1.0 / 1.05, **half),
    ]
    change(rows)
    tables = run_of(rows, given=PAIR, share_s=[5.0, 5.0])
    return broken_by(tables, SHARED, max_share=2, options={}, **more)


def test_a_pair_on_one_gpu_breaks_no_law() -> None:
    assert of_pair(lambda rows: None) == {}


def test_sums_over_shared_gpus_are_those_of_the_segments() -> None:
    """The GPU is shared for 5 s of the time that it is busy, at a slowdown factor of 1.25."""
    end_s = 9.0 + (4.0 - 5.0 / (1.05 * 1.25)) * 1.05
    right = {"share_gpu_fraction": 5.0 / end_s, "xi_mean": 1.25}
    assert of_pair(lambda rows: None, summary=right) == {}
    for key, value in right.items():
        broken = of_pair(lambda rows: None, summary=right | {key: value + 1e-3})
        assert list(broken) == ["summary"]
        assert key in broken["summary"]


def test_a_batch_that_is_too_large_for_two_is_caught() -> None:
    """9 GB and 8 GB are too much for 16; at half its batch the second needs 6."""

    def at_full_batch(rows: list[dict[str, Any]]) -> None:
        rows[2] |= {"sub_batch": 32, "rate": 0.8}

    assert "holds 17 GiB instead of at most 16" in of_pair(at_full_batch)["memory"]


def test_a_co_runner_that_is_not_re_timed_is_caught() -> None:
    def stays_fast(rows: list[dict[str, Any]]) -> None:
        rows[0] |= {"end_s": 8.0, "end_reason": "finished"}
        del rows[1]

    assert "4 s: keeps its rate" in of_pair(stays_fast)["co-runners"]

    def named_one_way(rows: list[dict[str, Any]]) -> None:
        rows[2]["co_runner"] = ""

    assert "but its row names none" in of_pair(named_one_way)["co-runners"]

    def slowed_alone(rows: list[dict[str, Any]]) -> None:
        rows[2]["rate"] = 1 / 1.05

    assert "0.95" in of_pair(slowed_alone)["rate"]
