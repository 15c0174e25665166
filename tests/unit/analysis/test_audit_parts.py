"""Tests the audit of forked jobs: several parts at once, each a whole gang on its own server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

LAB = gl.Cluster.homogeneous(servers=3, gpus=4)
TRACE = worlds.trace("a 0 2 12", "b 0 6 10")
Table = dict[str, list[Any]]


def segments() -> Table:
    """Return segments: job a has two parts until 5 and one until 7, then b is on two servers."""
    return {
        "job_id": ["a", "a", "b", "b"],
        "part": [0, 1, 0, 0],
        "start_s": [0.0, 0.0, 7.0, 7.0],
        "end_s": [5.0, 7.0, 17.0, 17.0],
        "server": [0, 1, 0, 1],
        "gpu_mask": [0b11, 0b11, 0b1111, 0b11],
        "rate": [1.0, 1.0, 1.0, 1.0],
    }


def jobs() -> Table:
    return {
        "job_id": ["a", "b"],
        "arrival_s": [0.0, 0.0],
        "first_start_s": [0.0, 7.0],
        "finish_s": [7.0, 17.0],
        "jct_s": [7.0, 17.0],
        "run_s": [7.0, 10.0],
        "gpus": [2, 6],
        "gpu_seconds": [24.0, 60.0],
        "status": ["finished", "finished"],
    }


def look(held: Table, listed: Table | None = None, **options: Any) -> gl.Audit:
    return gl.audit(pa.table(held), LAB, jobs=pa.table(listed or jobs()), trace=TRACE, **options)


def test_a_forked_run_is_clean() -> None:
    found = look(segments())
    assert found.findings.to_pylist() == []
    assert found.notes == ()
    assert {"gang", "rate", "short-run", "sums", "double-booking"} <= set(found.checked)


def test_without_the_column_parts_are_gangs_too_many() -> None:
    rows = segments()
    del rows["part"]
    assert look(rows).counts["gang"] == 1
    assert "gang" not in look(rows, max_parts=2).counts


@pytest.mark.parametrize(
    ("column", "row", "value", "words"),
    [
        ("gpu_mask", 1, 0b1, "holds 1 GPUs from 0 s; its gang size is 2"),
        ("gpu_mask", 1, 0b111, "holds 3 GPUs from 0 s; its gang size is 2"),
        ("part", 1, 0, "holds 4 GPUs from 0 s; its gang size is 2"),
        ("part", 3, 1, "holds 4 GPUs from 7 s; its gang size is 6"),
    ],
)
def test_each_part_is_a_whole_gang(column: str, row: int, value: int, words: str) -> None:
    rows = segments()
    rows[column][row] = value
    found = look(rows)
    assert words in found.findings["what"].to_pylist()
    assert found.counts["gang"] >= 1


def test_parts_of_a_job_lie_on_different_servers() -> None:
    rows = segments()
    rows["server"][1], rows["gpu_mask"][1] = 0, 0b1100
    (row,) = look(rows).findings.to_pylist()
    assert (row["rule"], row["job_id"], row["server"], row["time_s"]) == ("gang", "a", 0, 0.0)
    assert row["what"] == "several parts of the job are on server 0"


def test_a_part_of_a_forked_job_lies_on_one_server() -> None:
    rows = segments()
    for name, value in (("job_id", "a"), ("part", 1), ("start_s", 0.0), ("end_s", 7.0)):
        rows[name].append(value)
    rows["server"].append(2)
    rows["gpu_mask"][1] = 0b1
    rows["gpu_mask"].append(0b1)
    rows["rate"].append(1.0)
    found = look(rows)
    (row,) = found.findings.to_pylist()
    assert (row["rule"], row["job_id"], row["time_s"]) == ("gang", "a", 0.0)
    assert row["what"] == "part 1 of a forked job is on several servers"


def test_parts_may_come_and_go_and_be_numbered_anew() -> None:
    rows = segments()
    rows["start_s"][1], rows["end_s"][1] = 5.0, 12.0  # after part 0, not at the same time
    rows["server"][1] = 0
    rows["start_s"][2:] = [12.0, 12.0]
    rows["end_s"][2:] = [22.0, 22.0]
    listed = jobs()
    listed.update(first_start_s=[0.0, 12.0], finish_s=[12.0, 22.0], jct_s=[12.0, 22.0])
    listed.update(run_s=[12.0, 10.0])
    assert look(rows, listed).ok


def test_gpu_seconds_are_the_sum_over_parts() -> None:
    listed = jobs()
    listed["gpu_seconds"][0] = 23.0
    assert look(segments(), listed).counts == {"sums": 1}
    alone = pa.table(jobs())
    found = gl.audit(alone, LAB, trace=TRACE)
    assert set(found.counts) == {"sums", "short-run"}  # the job ran 7 s for 12 s of work
    assert any("--max-parts 2" in note for note in found.notes)
    assert gl.audit(alone, LAB, trace=TRACE, max_parts=2).ok
    listed["gpu_seconds"][0] = 29.0  # more than twice 2 x 7
    assert gl.audit(pa.table(listed), LAB, trace=TRACE, max_parts=2).counts == {"sums": 1}


def test_work_is_the_sum_over_parts() -> None:
    rows, listed = segments(), jobs()
    rows["end_s"][0] = 4.0
    listed["gpu_seconds"][0] = 22.0
    found = look(rows, listed)
    assert found.counts == {"short-run": 1}
    assert found.findings["what"].to_pylist() == ["did at most 11 of 12 iterations"]
    rows = segments()
    rows["rate"][1] = 2.0  # this is the rate of both parts, but a row has the rate of its part
    assert look(rows).counts == {"rate": 1}


WHOLE = {"job_id": ["a", "a"], "start_s": [0.0, 0.0], "end_s": [3.0, 3.0], "server": [0, 1]}


@pytest.mark.parametrize(
    ("copy_gpus", "masks", "broken"),
    [
        ("server", [0b1111, 0b1111], set()),
        ("server", [0b1111, 0b111], {"gang", "short-run"}),
        (4, [0b1111, 0b1111], set()),
        (3, [0b111, 0b111], {"short-run"}),
        ("gang", [0b1111, 0b1111], {"gang"}),
    ],
)
def test_copies_may_have_another_size_than_the_gang(
    copy_gpus: str | int, masks: list[int], broken: set[str]
) -> None:
    """A gang of 2 does 12 s of work; two copies on all 4 GPUs of a server do 4 per second."""
    job = worlds.jobs("a 0 2 12")
    for rows in (WHOLE, WHOLE | {"part": [0, 1]}):
        found = gl.audit(
            pa.table(rows | {"gpu_mask": masks}),
            LAB,
            trace=job,
            copy_gpus=copy_gpus,
            max_parts=2,
        )
        assert set(found.counts) == broken


def test_a_size_of_copies_that_is_none_is_refused() -> None:
    for wrong in ("servers", 0, True):
        with refused(gl.PolicyError, field="copy_gpus"):
            gl.audit(pa.table(WHOLE), LAB, copy_gpus=wrong)


def test_the_folder_of_a_result_tells_the_size_of_copies(tmp_path: Path) -> None:
    params = {"whole": True, "copies": 2}
    result = gl.simulate(LAB, TRACE, "toy-fork", params=params, segments=True)
    result.save(tmp_path / "run")
    assert gl.audit(tmp_path / "run", LAB, trace=TRACE).ok
    assert "gang" in gl.audit(tmp_path / "run", LAB, trace=TRACE, copy_gpus="gang").counts
