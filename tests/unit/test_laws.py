"""Each law on tables made by hand: a good run passes, and one broken cell is caught by its law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gangline.cluster import Cluster
from gangline.testing import LAW_NAMES, LawBroken, broken_laws
from gangline.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

CLUSTER = Cluster.from_dict(
    {
        "name": "two",
        "gpu_types": [{"name": "A", "memory_gb": 16}, {"name": "B", "memory_gb": 16}],
        "servers": [
            {"count": 1, "gpu": "A", "gpus": 2, "rack": 0},
            {"count": 1, "gpu": "B", "gpus": 2, "rack": 1},
        ],
        "failures": {"table": [{"server": 1, "down_s": 100.0}]},
    }
)
TRACE = Trace.from_arrow(
    pa.table(
        {
            "job_id": ["a", "b", "c"],
            "arrival_s": [0.0, 1.0, 2.0],
            "gpus": [2, 3, 1],
            "duration_s": [10.0, 20.0, 5.0],
            "gpu_types": [["A"], None, None],
        }
    )
)


def good() -> dict[str, dict[str, list[Any]]]:
    """Job a on server 0 until 10; then b on three GPUs until 30, beside c."""
    return {
        "jobs": {
            "job_id": ["a", "b", "c"],
            "arrival_s": [0.0, 1.0, 2.0],
            "first_start_s": [0.0, 10.0, 12.0],
            "finish_s": [10.0, 30.0, 17.0],
            "jct_s": [10.0, 29.0, 15.0],
            "queue_s": [0.0, 9.0, 10.0],
            "wait_s": [0.0, 9.0, 10.0],
            "run_s": [10.0, 20.0, 5.0],
            "overhead_s": [0.0, 0.0, 0.0],
            "preemptions": [0, 0, 0],
            "migrations": [0, 0, 0],
            "gpu_seconds": [20.0, 60.0, 5.0],
            "status": ["finished"] * 3,
        },
        "segments": {
            "job_id": ["a", "b", "b", "c"],
            "start_s": [0.0, 10.0, 10.0, 12.0],
            "end_s": [10.0, 30.0, 30.0, 17.0],
            "server": [0, 0, 1, 1],
            "gpu_mask": [0b11, 0b11, 0b01, 0b10],
            "tier": ["server", "network", "network", "server"],
            "rate": [1.0, 1.0, 1.0, 1.0],
            "end_reason": ["finished"] * 4,
        },
        "timeline": {"t_s": [0.0, 10.0, 30.0], "gpus_total": [4, 4, 4], "gpus_busy": [2, 3, 0]},
        "summary": {
            "jobs": 3,
            "finished": 3,
            "dropped": 0,
            "jct_mean_s": 18.0,
            "gpu_utilization": 0.7,
        },
    }


def laws_of(world: dict[str, Any], max_share: int = 1) -> list[str]:
    found = broken_laws(
        pa.table(world["jobs"]),
        pa.table(world["segments"]),
        CLUSTER,
        TRACE,
        timeline=pa.table(world["timeline"]),
        summary=world["summary"],
        max_share=max_share,
    )
    return [law for law, _ in found]


def cell(table: str, column: str, row: int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(world: dict[str, Any]) -> None:
        world[table][column][row] = value

    return change


def fact(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(world: dict[str, Any]) -> None:
        world["summary"][key] = value

    return change


BROKEN: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("known-jobs", cell("jobs", "job_id", 1, "x")),
    ("known-jobs", cell("segments", "job_id", 1, "x")),
    ("no-lost-job", cell("jobs", "status", 2, "unfinished")),
    ("no-lost-job", cell("jobs", "finish_s", 2, float("nan"))),
    ("clock", cell("segments", "end_s", 3, 12.0)),
    ("clock", cell("timeline", "t_s", 2, 5.0)),
    ("no-start-before-arrival", cell("segments", "start_s", 3, 1.5)),
    ("no-start-before-arrival", cell("jobs", "first_start_s", 2, 11.0)),
    ("gpus-exist", cell("segments", "gpu_mask", 3, 0b100)),
    ("gpus-exist", cell("segments", "server", 3, 2)),
    ("capacity", cell("segments", "gpu_mask", 3, 0b01)),
    ("capacity", cell("segments", "start_s", 1, 9.0)),
    ("gang-whole", cell("segments", "gpu_mask", 0, 0b01)),
    ("gang-whole", cell("segments", "end_s", 2, 29.0)),
    ("finishes-once", cell("segments", "end_reason", 3, "preempted")),
    ("finishes-once", cell("segments", "end_s", 3, 18.0)),
    ("gpu-seconds", cell("jobs", "gpu_seconds", 0, 19.0)),
    ("work-done", cell("segments", "rate", 3, 2.0)),
    ("work-done", cell("jobs", "overhead_s", 2, 1.0)),
    ("types-allowed", cell("segments", "server", 0, 1)),
    ("utilisation", fact("gpu_utilization", 1.01)),
    ("utilisation", cell("timeline", "gpus_busy", 1, 5)),
    ("times-add-up", cell("jobs", "jct_s", 1, 30.0)),
    ("times-add-up", cell("jobs", "wait_s", 1, 8.0)),
    ("summary-agrees", fact("finished", 2)),
    ("summary-agrees", fact("jct_mean_s", 18.1)),
]


def test_a_good_run_breaks_no_law() -> None:
    assert laws_of(good()) == []


@pytest.mark.parametrize(("law", "change"), BROKEN)
def test_one_broken_cell_is_caught_by_its_law(
    law: str, change: Callable[[dict[str, Any]], None]
) -> None:
    world = good()
    change(world)
    assert law in laws_of(world)


def test_running_on_a_dead_server_is_caught() -> None:
    world = good()
    for table, column, row, value in (
        ("segments", "start_s", 3, 98.0),
        ("segments", "end_s", 3, 103.0),
    ):
        world[table][column][row] = value
    assert "down-is-down" in laws_of(world)


def test_sharing_is_legal_up_to_the_limit() -> None:
    world = good()
    world["segments"]["gpu_mask"][3] = 0b01
    assert "capacity" in laws_of(world, max_share=1)
    assert "capacity" not in laws_of(world, max_share=2)


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
    world["jobs"]["gpu_seconds"][2] = 0.0
    assert without_summary(world) == ["no-lost-job"]
    assert without_summary(world, outcome="finished") == ["no-lost-job"]
    assert without_summary(world, outcome="limit") == []


def test_a_run_that_was_stopped_leaves_jobs_and_that_is_no_loss() -> None:
    world = good()
    for column in ("finish_s", "jct_s"):
        world["jobs"][column][2] = float("nan")
    world["jobs"]["status"][2] = "unfinished"
    world["segments"]["end_reason"][3] = "stopped"
    assert without_summary(world) == []
    assert without_summary(world, outcome="finished") == ["no-lost-job"]


def test_every_law_has_a_broken_example() -> None:
    elsewhere = {"ends", "repeats", "down-is-down"}  # the first two need policies: tests/mutants
    assert set(LAW_NAMES) - {law for law, _ in BROKEN} == elsewhere


def test_the_error_names_the_first_law_and_keeps_all() -> None:
    error = LawBroken([("capacity", "x"), ("clock", "y")])
    assert error.law == "capacity"
    assert str(error) == "capacity: x; clock: y"
    assert isinstance(error, AssertionError)
