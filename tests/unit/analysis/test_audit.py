"""Tests the audit on tables made by hand: rules, kinds of files, foreign columns, the command."""

from __future__ import annotations

import gzip
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import gangline as gl
import worlds
from commands import gangline
from gangline.analysis.audit.findings import RULES
from gangline.cli.app import main
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from snapshots import Snapshot

LAB = worlds.lab(
    "1x2 A @0",
    "1x4 B*2 @1",
    name="lab",
    failures={"table": [{"server": 1, "down_s": 100.0, "up_s": 200.0}]},
)
TRACE = worlds.trace(
    "a 0 2 10", "b 1 3 20", "c 2 1 6", gpu_types=[["A"], None, None], memory_gb=[16.0, 12.0, 4.0]
)
World = dict[str, dict[str, list[Any]]]


def good() -> World:
    """Return tables: job a on A until 10, b on both types at A's rate, c on B, twice as fast."""
    return {
        "segments": {
            "job_id": ["a", "b", "b", "c"],
            "start_s": [0.0, 10.0, 10.0, 12.0],
            "end_s": [10.0, 30.0, 30.0, 15.0],
            "server": [0, 0, 1, 1],
            "gpu_mask": [0b11, 0b11, 0b01, 0b10],
            "rate": [1.0, 1.0, 1.0, 2.0],
            "co_runner": [""] * 4,
            "end_reason": ["finished"] * 4,
        },
        "jobs": {
            "job_id": ["a", "b", "c"],
            "arrival_s": [0.0, 1.0, 2.0],
            "first_start_s": [0.0, 10.0, 12.0],
            "finish_s": [10.0, 30.0, 15.0],
            "jct_s": [10.0, 29.0, 13.0],
            "queue_s": [0.0, 9.0, 10.0],
            "wait_s": [0.0, 9.0, 10.0],
            "run_s": [10.0, 20.0, 3.0],
            "overhead_s": [0.0, 0.0, 0.0],
            "share_s": [0.0, 0.0, 0.0],
            "gpus": [2, 3, 1],
            "gpu_seconds": [20.0, 60.0, 3.0],
            "status": ["finished"] * 3,
        },
    }


def cell(table: str, column: str, row: int, value: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world[table][column][row] = value

    return change


def without(table: str, *names: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        for name in names:
            del world[table][name]

    return change


def drop(table: str, row: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        for values in world[table].values():
            del values[row]

    return change


def twice(table: str, row: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        for values in world[table].values():
            values.append(values[row])

    return change


def lost(*seconds: float) -> Callable[[World], None]:
    """Add the lost time of the three jobs, as runs with a table of run time have it."""

    def change(world: World) -> None:
        world["jobs"]["lost_s"] = list(seconds)

    return change


def types(*names: str) -> Callable[[World], None]:
    """Give GPU types by name and counts instead of servers and masks."""

    def change(world: World) -> None:
        without("segments", "server", "gpu_mask")(world)
        world["segments"].update(gpu_type=list(names), gpus=[2, 2, 1, 1])

    return change


def all_of(*changes: Callable[[World], None]) -> Callable[[World], None]:
    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


# rule, table, change, and the job, time and server of the expected finding
BROKEN: list[
    tuple[str, str, Callable[[World], None], str | None, float | None, int | None]
] = [
    ("times", "segments", cell("segments", "end_s", 3, float("nan")), "c", None, 1),
    ("times", "segments", cell("segments", "start_s", 0, -5.0), "a", None, 0),
    ("times", "jobs", cell("jobs", "finish_s", 1, None), "b", 1.0, None),
    ("times", "jobs", cell("jobs", "wait_s", 1, float("inf")), "b", 1.0, None),
    ("order", "segments", cell("segments", "end_s", 3, 11.0), "c", 12.0, 1),
    ("order", "jobs", cell("jobs", "finish_s", 2, 11.0), "c", 12.0, None),
    ("unknown-job", "segments", cell("segments", "job_id", 3, "x"), None, 12.0, 1),
    ("unknown-job", "jobs", cell("jobs", "job_id", 2, "x"), None, 2.0, None),
    ("missing-job", "segments", drop("segments", 3), "c", 2.0, None),
    ("missing-job", "jobs", drop("jobs", 2), "c", 2.0, None),
    ("duplicate-job", "jobs", twice("jobs", 2), "c", 2.0, None),
    ("unknown-server", "segments", cell("segments", "server", 3, 2), "c", 12.0, None),
    ("unknown-server", "segments", cell("segments", "gpu_mask", 3, 0b10000), "c", 12.0, 1),
    ("unknown-type", "segments", types("A", "A", "B", "C"), "c", 12.0, None),
    ("type-not-allowed", "segments", cell("segments", "server", 0, 1), "a", 0.0, 1),
    ("arrival", "jobs", cell("jobs", "arrival_s", 2, 3.0), "c", 3.0, None),
    ("before-arrival", "segments", cell("segments", "start_s", 3, 1.5), "c", 1.5, 1),
    ("before-arrival", "jobs", cell("jobs", "first_start_s", 2, 1.5), "c", 1.5, None),
    ("gang", "segments", cell("segments", "gpu_mask", 0, 0b01), "a", 0.0, None),
    ("gang", "segments", cell("segments", "end_s", 2, 29.0), "b", 29.0, None),
    ("gang", "segments", cell("segments", "gpu_mask", 3, 0), "c", 12.0, 1),
    ("gang", "jobs", cell("jobs", "gpus", 0, 1), "a", 0.0, None),
    ("capacity", "segments", types("A", "A", "A", "B"), "b", 10.0, None),
    ("capacity", "jobs", cell("jobs", "gpus", 2, 4), "c", 12.0, None),
    ("double-booking", "segments", cell("segments", "gpu_mask", 3, 0b01), "c", 12.0, 1),
    ("double-booking", "segments", cell("segments", "start_s", 1, 9.0), "b", 9.0, 0),
    (  # a and b need 16 and 12 GiB on a GPU of 16 GiB
        "memory",
        "segments",
        cell("segments", "start_s", 1, 9.0),
        "b",
        9.0,
        0,
    ),
    (
        "down",
        "segments",
        all_of(cell("segments", "start_s", 3, 98.0), cell("segments", "end_s", 3, 101.0)),
        "c",
        98.0,
        1,
    ),
    ("finish", "segments", cell("segments", "end_reason", 3, "preempted"), "c", 15.0, None),
    ("finish", "segments", cell("jobs", "status", 2, "dropped"), "c", 15.0, 1),
    ("rate", "segments", cell("segments", "rate", 0, 1.5), "a", 0.0, 0),
    ("co-runners", "segments", cell("segments", "co_runner", 3, "b"), "c", 12.0, 1),
    ("work-done", "segments", cell("segments", "end_s", 3, 16.0), "c", 2.0, None),
    ("lost-work", "segments", lost(0.0, 0.0, 1.0), "c", 2.0, None),
    ("short-run", "segments", cell("segments", "rate", 3, 1.9), "c", 2.0, None),
    ("short-run", "segments", cell("segments", "end_s", 0, 9.0), "a", 0.0, None),
    ("short-run", "jobs", cell("jobs", "run_s", 2, 2.5), "c", 12.0, None),
    ("utilisation", "jobs", all_of(
        without("jobs", "first_start_s", "queue_s", "wait_s", "jct_s", "gpu_seconds"),
        cell("jobs", "gpus", 1, 12)), "b", 30.0, None),
    (  # without the outage of server 1 it could start at its arrival
        "idle",
        "segments",
        all_of(
            cell("segments", "start_s", 1, 5000.0),
            cell("segments", "start_s", 2, 5000.0),
            cell("segments", "end_s", 1, 5020.0),
            cell("segments", "end_s", 2, 5020.0),
        ),
        "b",
        200.0,
        None,
    ),
    ("sums", "jobs", cell("jobs", "jct_s", 1, 30.0), "b", 1.0, None),
    ("sums", "jobs", cell("jobs", "gpu_seconds", 0, 21.0), "a", 0.0, None),
    ("sums", "segments", cell("jobs", "first_start_s", 2, 11.0), "c", 12.0, None),
    ("sums", "segments", cell("jobs", "run_s", 2, 2.0), "c", 2.0, None),
    ("sums", "segments", cell("jobs", "share_s", 2, 1.0), "c", 2.0, None),
]  # fmt: skip


OF_RUNS = {"lost-job", "summary", "work-conserving"}  # broken in test_laws.py


def look(world: World, **options: Any) -> gl.Audit:
    tables = {name: pa.table(columns) for name, columns in world.items()}
    given = {"jobs": tables.get("jobs"), "trace": TRACE, **options}
    return gl.audit(tables["segments"], LAB, **given)


def test_a_good_run_breaks_no_rule_and_every_rule_is_looked_at() -> None:
    world = good()
    lost(0.0, 0.0, 0.0)(world)
    found = look(world)
    assert found.ok
    assert found.counts == {}
    assert found.findings.num_rows == 0
    assert set(found.checked) == set(RULES) - OF_RUNS
    assert gl.audit(pa.table(good()["jobs"]), LAB, trace=TRACE).ok


@pytest.mark.parametrize(("rule", "table", "change", "job", "at", "server"), BROKEN)
def test_one_broken_cell_is_caught_by_its_rule(
    rule: str,
    table: str,
    change: Callable[[World], None],
    job: str | None,
    at: float | None,
    server: int | None,
) -> None:
    world = good()
    change(world)
    found = look(world)
    rows = [
        (row["table"], row["job_id"], row["server"], row["time_s"])
        for row in found.findings.to_pylist()
        if row["rule"] == rule
    ]
    near = None if at is None else pytest.approx(at, abs=1e-5)
    assert (table, job, server, near) in rows, found.findings.to_pylist()
    assert found.counts[rule] == len(rows)
    assert not found.ok


def test_every_rule_has_a_broken_example() -> None:
    assert {row[0] for row in BROKEN} == set(RULES) - OF_RUNS


def test_findings_say_how_much() -> None:
    world = good()
    cell("segments", "gpu_mask", 3, 0b01)(world)
    all_of(without("segments", "co_runner"), without("jobs", "share_s"))(world)
    (row,) = look(world).findings.to_pylist()
    assert (row["found"], row["allowed"]) == (2.0, 1.0)
    assert row["what"] == "GPU 0 of server 1 holds 2 jobs instead of at most 1"
    assert look(world, max_share=2).ok


def test_a_gang_over_two_types_may_not_beat_the_slower() -> None:
    world = good()
    cell("segments", "rate", 1, 2.0)(world)
    assert look(world).counts == {"rate": 1, "work-done": 1}


def test_forked_jobs_hold_several_gangs() -> None:
    rows = {"job_id": ["a", "a"], "start_s": [0.0, 0.0], "end_s": [5.0, 5.0], "server": [0, 1],
            "gpu_mask": [0b11, 0b11]}  # fmt: skip
    table = pa.table(rows)
    assert gl.audit(table, LAB, trace=TRACE.table.slice(0, 1)).counts["gang"] == 1
    forked = gl.audit(table, LAB, trace=TRACE.table.slice(0, 1), max_parts=2)
    assert "gang" not in forked.counts


def test_an_outage_takes_its_gpus_out_of_the_pool() -> None:
    rows = {"job_id": ["x"], "start_s": [90.0], "end_s": [150.0], "gpus": [3]}
    found = gl.audit(pa.table(rows), LAB)
    capacity = [row for row in found.findings.to_pylist() if row["rule"] == "capacity"]
    assert [(row["time_s"], row["found"], row["allowed"]) for row in capacity] == [(100.0, 3, 2)]
    rows["start_s"], rows["end_s"] = [200.0], [250.0]
    assert gl.audit(pa.table(rows), LAB).ok


@pytest.mark.parametrize(("late_s", "ok"), [(5e-7, True), (2e-6, False)])
def test_times_within_the_tolerance_are_one_instant(late_s: float, *, ok: bool) -> None:
    world = good()
    for name in ("segments", "jobs"):
        world[name].pop("rate", None)
    world["segments"]["end_s"][0] += late_s  # b starts on the same GPUs at 10
    found = look(world)
    assert found.ok is ok, found
    assert look(world, tolerance_s=1e-5).ok


def test_without_the_columns_a_rule_is_skipped_with_the_reason() -> None:
    rows = {"job_id": ["a"], "start_s": [0.0], "end_s": [1.0]}
    found = gl.audit(pa.table(rows), LAB)
    assert found.ok
    assert {"gang", "capacity", "double-booking", "short-run"} <= set(found.skipped)
    assert "trace" in found.skipped["short-run"]
    assert set(found.checked).isdisjoint(found.skipped)


def test_only_the_first_findings_are_kept_and_all_are_counted() -> None:
    rows = {"job_id": [f"j{i}" for i in range(50)], "start_s": [float(i) for i in range(50)]}
    table = pa.table({**rows, "end_s": [-1.0] * 50, "gpus": [1] * 50})
    found = gl.audit(table, LAB, first=3)
    assert found.counts["order"] == 50
    order = [row for row in found.findings.to_pylist() if row["rule"] == "order"]
    assert [row["time_s"] for row in order] == [0.0, 1.0, 2.0]


def test_it_shows_itself() -> None:
    found = look(good())
    assert repr(found) == "Audit(4 segments, 3 jobs: no rule broken, 23 checked)"
    world = good()
    cell("jobs", "jct_s", 1, 30.0)(world)
    broken = look(world)
    assert repr(broken) == "Audit(4 segments, 3 jobs: broken: sums 2)"
    assert "<table>" in broken._repr_html_()
    assert "jct_s is 30" in broken._repr_html_()
    json.dumps(broken.to_dict())


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".gz":
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(table, sink)
        path.write_bytes(gzip.compress(sink.getvalue().to_pybytes()))
    else:
        pa_csv.write_csv(table, path)


@pytest.mark.parametrize("name", ["s.parquet", "s.arrow", "s.csv", "s.csv.gz"])
def test_every_kind_of_file(name: str, tmp_path: Path) -> None:
    world = good()
    write(pa.table(world["segments"]), tmp_path / name)
    write(pa.table(world["jobs"]), tmp_path / f"jobs-{name}")
    found = gl.audit(tmp_path / name, LAB, jobs=tmp_path / f"jobs-{name}", trace=TRACE)
    assert found.rows == {"segments": 4, "jobs": 3}
    assert found.ok


def test_the_folder_of_a_result(tmp_path: Path) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    trace = gl.synth.philly(jobs=40, seed=2, max_gpus=8)
    gl.simulate(lab, trace, "srtf", segments=True).save(tmp_path / "out")
    found = gl.audit(tmp_path / "out", lab, trace=trace)
    assert found.ok
    assert set(found.rows) == {"segments", "jobs"}


def run_in_phases() -> tuple[gl.Result, gl.Cluster, gl.Trace]:
    """One job of 1,000 s: 0.3 + 0.7 / 1.6 = 0.7375, so its rates are 0.7375 and 1.18."""
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    trace = worlds.trace("a 0 2 1000", phases=["0:1;0.3:1.6"])
    return gl.simulate(lab, trace, "fifo", segments=True), lab, trace


@pytest.mark.parametrize(
    ("rates", "wrong", "allowed"),
    [
        ([0.7375, 1.18], False, None),
        ([0.7375, 1.19], True, "allow 1.18"),
        ([0.73, 1.18], True, "allow 0.7375"),
    ],
)
def test_a_job_has_the_rate_of_one_of_its_phases(
    rates: list[float],
    wrong: bool,
    allowed: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, lab, trace = run_in_phases()
    table = result.segments
    assert table["rate"].to_pylist() == pytest.approx([0.7375, 1.18], rel=1e-12)
    at = table.column_names.index("rate")
    changed = table.set_column(at, "rate", pa.array(rates))
    monkeypatch.setitem(vars(result), "segments", changed)
    result.save(tmp_path / "out")
    found = gl.audit(tmp_path / "out", lab, trace=trace)
    assert "rate" in found.checked
    assert ("rate" in found.counts) == wrong, found.findings.to_pylist()
    if allowed is not None:
        (row,) = (row for row in found.findings.to_pylist() if row["rule"] == "rate")
        assert row["what"].endswith(allowed)


def test_columns_of_other_names_and_ids_that_are_numbers() -> None:
    table = pa.table({"id": [7, 8], "begin": [0, 4], "end": [4, 9], "node": [0, 0], "n": [2, 2]})
    mapping = {"job_id": "id", "start_s": "begin", "end_s": "end", "server": "node", "gpus": "n"}
    assert gl.audit(table, LAB, columns=mapping).ok
    late = table.set_column(1, "begin", pa.array([0, 3]))
    (row,) = (
        r for r in gl.audit(late, LAB, columns=mapping).findings.to_pylist() if r["server"] == 0
    )
    assert (row["rule"], row["job_id"], row["time_s"]) == ("capacity", "8", 3.0)


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ({"job_id": ["a"]}, {}),
        ({"start_s": [0.0], "end_s": [1.0]}, {}),
        ({"job_id": ["a"], "finish_s": ["soon"]}, {}),
        ({"job_id": ["a"], "finish_s": [True]}, {}),
        ({"job_id": ["a"], "end": [1.0]}, {"columns": {"finish_s": "stop"}}),
        ({"job_id": ["a"], "end": [1.0]}, {"columns": {"finnish_s": "end"}}),
        ({"job_id": ["a"], "finish_s": [1.0]}, {"max_share": 0}),
        ({"job_id": ["a"], "finish_s": [1.0]}, {"tolerance_s": -1.0}),
    ],
)
def test_what_cannot_be_read_is_named(
    table: dict[str, Any], options: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused((gl.TraceError, gl.PolicyError), snapshot):
        gl.audit(pa.table(table), LAB, **options)


def test_the_command_says_where_and_leaves_with_3(tmp_path: Path) -> None:
    cluster = tmp_path / "lab.toml"
    cluster.write_text(gl.Cluster.from_dict(LAB).to_toml())
    table = tmp_path / "s.csv"
    table.write_text("who,from,to,node,gpu_mask\na,0,10,0,3\nb,9,30,0,1\n")
    mapping = "job_id=who,start_s=from,end_s=to,server=node"
    done = gangline("audit", str(table), "--cluster", str(cluster), "--columns", mapping)
    assert done.returncode == 3, done.stderr
    assert "double-booking" in done.stdout
    assert "GPU 0 of server 0 holds 2 jobs instead of at most 1" in done.stdout
    assert "short-run, work-done; missing: how much work there is: a trace" in done.stderr
    given = ("--cluster", str(cluster), "--columns", mapping, "--json", "--max-share", "2")
    fine = gangline("audit", str(table), *given)
    assert fine.returncode == 0, fine.stderr
    assert json.loads(fine.stdout)["ok"] is True
    bad = gangline("audit", str(table), "--cluster", str(cluster))
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.startswith("gangline: ")
    odd = gangline("audit", str(table), "--cluster", str(cluster), "--columns", "job_id")
    assert (odd.returncode, odd.stdout) == (2, "")
    assert "expected NATIVE=THEIRS" in odd.stderr


@pytest.mark.slow
def test_a_million_segments_take_seconds() -> None:
    count, servers = 1_000_000, 250
    rows = np.arange(count)
    start = (rows // (servers * 4)) * 10.0
    table = pa.table(
        {
            "job_id": pa.array(rows).cast(pa.string()),
            "start_s": start,
            "end_s": start + 10.0,
            "server": (rows % servers).astype(np.int32),
            "gpu_mask": np.uint64(0b11) << ((rows // servers) % 4 * 2).astype(np.uint64),
        }
    )
    lab = gl.Cluster.homogeneous(servers=servers, gpus=8)
    begin = time.process_time()
    assert gl.audit(table, lab).ok
    # it took 3 s when measured, but the machine may be busy
    assert time.process_time() - begin < 30.0


def test_a_folder_of_a_result_names_its_cluster(tmp_path: Path, snapshot: Snapshot) -> None:
    result = gl.simulate(LAB, gl.synth.philly(jobs=30, seed=1, max_gpus=4), "las", segments=True)
    result.save(tmp_path / "run")
    found, given = gl.audit(tmp_path / "run"), gl.audit(tmp_path / "run", LAB)
    assert found.to_dict() == given.to_dict()
    assert found.ok
    with refused(gl.ClusterError, snapshot):
        gl.audit(result.jobs)


def test_a_folder_of_several_runs_asks_for_one(tmp_path: Path, snapshot: Snapshot) -> None:
    pq.write_table(pa.table(good()["jobs"]), _made(tmp_path / "cmp" / "las-s0") / "jobs.parquet")
    with refused(gl.errors.ResultError, snapshot):
        gl.audit(tmp_path / "cmp", LAB)
    with refused(gl.errors.ResultError, path=str(tmp_path / "empty")):
        gl.audit(_made(tmp_path / "empty"), LAB)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_a_trace_of_other_jobs_is_told() -> None:
    jobs = worlds.trace("x 0 1 5")
    found = gl.audit(pa.table(good()["segments"]), LAB, trace=jobs)
    assert found.counts == {"unknown-job": 4, "missing-job": 1}


def test_what_was_not_seen_is_not_called_checked() -> None:
    """Without run times, overlapping jobs may have been preempted, so capacity is unknown."""
    rows = {
        "job_id": ["a", "b", "c"],
        "arrival_s": [0.0, 0.0, 0.0],
        "first_start_s": [0.0, 2.0, 3.0],
        "finish_s": [10.0, 5.0, 20.0],
        "gpus": [2, 2, 6],
    }
    found = gl.audit(pa.table(rows), LAB)
    assert found.ok
    assert {"capacity", "utilisation"} <= set(found.skipped)
    assert {"capacity", "utilisation"}.isdisjoint(found.checked)
    assert "run_s" in found.skipped["capacity"]
    found = gl.audit(pa.table({**rows, "run_s": [10.0, 3.0, 17.0]}), LAB)
    assert found.counts["capacity"] == 1  # from 3 to 5 all three jobs hold 10 of 6 GPUs
    assert "utilisation" in found.checked
    found = gl.audit(pa.table({**rows, "gpus": [7, 2, 6]}), LAB)  # wider than the cluster
    assert found.counts == {"capacity": 1}


def test_a_job_that_ends_before_it_starts_is_told_once() -> None:
    rows = {"job_id": ["a"], "arrival_s": [0.0], "first_start_s": [11.0], "finish_s": [10.0]}
    found = gl.audit(pa.table({**rows, "gpus": [2], "run_s": [4.0]}), LAB)
    assert set(found.counts) == {"order", "sums"}  # there is no finding of 8 GPU-s below zero


AT = "job_id=Job ID,arrival_s=submitted,first_start_s=began,finish_s=ended,gpus=cards"
THEIRS = '"Job ID", submitted, began, ended, cards\r\n'


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            "a,0,0,10,2\r\nb,0,soon,10,2\r\n",
            ':3: began (first_start_s): expected seconds, got "soon"',
        ),
        ("a,0,0,10,2\r\n\r\nb,0\r\n", ':4: expected 5 fields, got "2 fields"'),
        ('"a\nb",0,0,10,2\r\nb,0,0,9,x\r\n', ':4: cards (gpus): expected a number, got "x"'),
        ("", ": expected at least one row, got none"),
    ],
)
def test_what_is_wrong_in_a_foreign_csv_is_named_by_line(
    rows: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs.csv").write_bytes(b"\xef\xbb\xbf" + (THEIRS + rows).encode())
    arguments = ["audit", str(tmp_path / "theirs.csv"), "--cluster", "pollux-64", "--columns", AT]
    assert main(arguments) == 2
    assert f"theirs.csv{words}" in capsys.readouterr().err


def test_blanks_and_unknown_numbers_of_a_foreign_csv(tmp_path: Path) -> None:
    text = THEIRS + "007, 0, 0, 10, 2\r\nb, 0, , NaN, 2\r\nc, 0, 1, Infinity, 2\r\n"
    (tmp_path / "theirs.csv").write_text(text)
    columns = dict(item.split("=") for item in AT.split(","))
    found = gl.audit(tmp_path / "theirs.csv", LAB, columns=columns)
    assert found.rows == {"jobs": 3}
    assert found.counts == {"times": 3}
    assert found.findings["job_id"].to_pylist() == ["b", "b", "c"]


def test_the_trace_of_an_audit_is_read_as_for_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(
        "job_id,arrival_s,gpus,duration_s\na,0,1,5\nb,1,9999,5\nc,2,1,4\nd,3,1,4\n"
    )
    given = ["--trace", str(tmp_path / "t.csv"), "--cluster", "pollux-64"]
    out = str(tmp_path / "out")
    kept = ["--limit", "3"]
    run = ["run", *given, *kept, "--policy", "fifo", "--segments", "--out", out]
    assert main([*run, "--on-infeasible", "drop"]) == 0
    assert main(["audit", out, *given, *kept]) == 0
    assert main(["audit", out, *given]) == 3
    assert "missing-job" in capsys.readouterr().out
    assert main(["audit", out, "--cluster", "pollux-64", *kept]) == 2
    assert "options for reading a trace need --trace" in capsys.readouterr().err


def test_the_folder_of_a_result_knows_the_sharing_of_its_run(tmp_path: Path) -> None:
    """Of two jobs on one GPU, x is slowed down by 1.5, which is not in the cluster file."""
    lab = {**LAB, "servers": [{"count": 1, "gpu": "A", "gpus": 1}], "sharing": {"xi": 1.25}}
    del lab["failures"]
    rows = worlds.jobs("x 0 1 9", "y 1 1 9")
    trace = rows
    run = gl.simulate(lab, trace, "toy-share", sharing={"xi": 1.5}, segments=True)
    run.save(tmp_path / "run")
    # the audit also knows that jobs share GPUs
    assert gl.audit(tmp_path / "run", lab, trace=trace).ok
    found = gl.audit(tmp_path / "run", lab, trace=trace, max_share=1)
    assert found.counts["double-booking"] == 1
    gl.simulate(lab, trace, "fifo", segments=True).save(tmp_path / "alone")
    table = gl.load_result(tmp_path / "alone").segments.to_pylist()
    table[1] |= {"start_s": 1.0, "end_s": 10.0}
    assert "double-booking" in gl.audit(pa.Table.from_pylist(table), lab, trace=trace).counts
    slow = gl.Cluster.from_dict({**lab, "sharing": {"xi": 2.0}})
    tables = {"jobs": run.jobs, "trace": trace, "max_share": 2}
    assert gl.audit(run.segments, slow, **tables).counts["rate"] > 0
