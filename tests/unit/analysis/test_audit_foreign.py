"""Tests the audit of tables of other simulators: their words, their columns, their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.cli.app import main
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
TRACE = worlds.trace("a 0 4 100", "b 10 4 100", "c 20 4 100")


def jobs(**columns: list[Any]) -> pa.Table:
    """Return three gangs of 4 on 8 GPUs from 0, 10 and 100 s, each for 100 s, with changes."""
    rows: dict[str, list[Any]] = {
        "job_id": ["a", "b", "c"],
        "arrival_s": [0.0, 10.0, 20.0],
        "first_start_s": [0.0, 10.0, 100.0],
        "finish_s": [100.0, 110.0, 200.0],
        "run_s": [100.0, 100.0, 100.0],
        "gpus": [4, 4, 4],
        **columns,
    }
    return pa.table({name: values for name, values in rows.items() if values})


def strange(found: gl.Audit) -> list[str]:
    """Return the notes on unknown words."""
    return [note for note in found.notes if "unknown words" in note]


OVERLAP = {"first_start_s": [0.0, 10.0, 20.0], "finish_s": [100.0, 110.0, 120.0]}
"""All three at a time: 12 GPUs of 8 from 20 to 100 s."""


def test_the_good_table_is_good() -> None:
    assert gl.audit(jobs(), LAB, trace=TRACE).ok


@pytest.mark.parametrize("word", ["completed", "COMPLETED", "Finished", "pass ", "Succeeded"])
def test_every_word_for_finished_makes_a_row_count(word: str) -> None:
    found = gl.audit(jobs(**OVERLAP, status=[word] * 3), LAB, trace=TRACE)
    assert found.counts["capacity"] == 1
    assert strange(found) == []
    empty = gl.audit(jobs(finish_s=[100.0, None, 200.0], status=[word] * 3), LAB, trace=TRACE)
    assert empty.counts == {"times": 1}


def test_a_job_that_failed_or_was_killed_held_its_gpus_but_owes_no_work() -> None:
    words = ["failed", "CANCELLED", "finished"]
    assert gl.audit(jobs(**OVERLAP, status=words), LAB).counts["capacity"] == 1
    short = jobs(finish_s=[60.0, 70.0, 200.0], run_s=[60.0, 60.0, 100.0], status=words)
    assert gl.audit(short, LAB, trace=TRACE).ok
    never_ran = jobs(first_start_s=[0.0, 10.0, None], finish_s=[100.0, 110.0, None],
                     run_s=[100.0, 100.0, None], gpus=[4, 4, 40],
                     status=["finished", "finished", "dropped"])  # fmt: skip
    assert gl.audit(never_ran, LAB).ok


def test_unknown_words_are_counted_and_such_rows_are_checked() -> None:
    words = ["EVICTED?", "done-ish", "done-ish"]
    found = gl.audit(jobs(**OVERLAP, status=words), LAB, trace=TRACE)
    assert found.counts["capacity"] == 1
    (note,) = strange(found)
    assert "`done-ish` 2, `EVICTED?` 1" in note
    assert "status=" in note
    assert note in found.to_dict()["notes"]
    empty = gl.audit(jobs(finish_s=[100.0, None, 200.0], status=words), LAB)
    assert empty.ok  # the meaning of `done-ish` is unknown, and the audit says so
    assert "`done-ish` 2" in strange(empty)[0]
    missing = gl.audit(jobs(**OVERLAP, status=[None, "finished", "finished"]), LAB, trace=TRACE)
    assert missing.counts["capacity"] == 1
    assert "(empty) 1" in strange(missing)[0]


def test_a_column_can_be_left_out() -> None:
    table = jobs(finish_s=[100.0, None, 200.0], status=["done-ish"] * 3)
    assert gl.audit(table, LAB, columns={"status": ""}).counts == {"times": 1}
    assert gl.audit(table, LAB, columns={"status": ""}).notes == ()
    wrong = jobs(run_s=[1.0, 1.0, 1.0])
    assert "short-run" in gl.audit(wrong, LAB, trace=TRACE).counts
    assert gl.audit(wrong, LAB, trace=TRACE, columns={"run_s": ""}).ok
    with refused(gl.TraceError, value="stat"):
        gl.audit(table, LAB, columns={"stat": ""})


def test_reasons_of_an_end_have_the_same_words() -> None:
    rows = {"job_id": ["a"], "start_s": [0.0], "end_s": [60.0], "gpus": [4]}
    one = TRACE.table.slice(0, 1)
    for word in ("finished", "Completed", "over"):
        table = pa.table({**rows, "end_reason": [word]})
        found = gl.audit(table, LAB, trace=one)
        assert found.counts == {"short-run": 1}
        assert bool(found.notes) == (word == "over")
    stopped = pa.table({**rows, "end_reason": ["preempted"]})
    assert gl.audit(stopped, LAB, trace=one).ok


def test_arrivals_are_those_of_the_trace() -> None:
    later = jobs(arrival_s=[0.0, 10.0, 100.0], first_start_s=[0.0, 10.0, 100.0])
    found = gl.audit(later, LAB, trace=TRACE)
    assert found.counts == {"arrival": 1}
    (row,) = found.findings.to_pylist()
    assert (row["job_id"], row["found"], row["allowed"]) == ("c", 100.0, 20.0)
    assert "arrival" in gl.audit(jobs(), LAB, trace=TRACE).checked
    assert "trace" in gl.audit(jobs(), LAB).skipped["arrival"]
    assert gl.audit(jobs(arrival_s=[0.0, 10.0, 20.0 + 5e-7]), LAB, trace=TRACE).ok


def test_a_clock_that_starts_elsewhere_is_no_moved_arrival() -> None:
    """Public traces start at their first arrival, and other simulators keep times of day."""
    day = 1_506_638_472.0
    times = {
        name: [value + day for value in jobs()[name].to_pylist()]
        for name in ("arrival_s", "first_start_s", "finish_s")
    }
    found = gl.audit(jobs(**times), LAB, trace=TRACE)
    assert found.ok
    assert "1506638472 s" in found.notes[0]
    times["first_start_s"][2] = day + 15.0
    times["finish_s"][2] = day + 115.0
    early = gl.audit(jobs(**times), LAB, trace=TRACE)
    assert "before-arrival" in early.counts


def test_the_start_follows_from_finish_and_run_time() -> None:
    given = {"first_start_s": [], "finish_s": [100.0, 110.0, 120.0]}
    found = gl.audit(jobs(**given), LAB, trace=TRACE)
    assert found.counts["capacity"] == 1
    assert any("without a break" in note for note in found.notes)
    assert found.findings["what"][0].as_py() == (
        "the cluster: 12 GPUs are held instead of at most 8, if no job was preempted"
    )
    waited = gl.audit(jobs(**given, run_s=[], wait_s=[0.0, 0.0, 0.0]), LAB, trace=TRACE)
    assert waited.counts["capacity"] == 1
    fine = gl.audit(jobs(first_start_s=[]), LAB, trace=TRACE)
    assert fine.ok
    assert "capacity" in fine.checked


def test_the_start_of_a_job_that_was_stopped_does_not_follow() -> None:
    given = {"first_start_s": [], "finish_s": [100.0, 110.0, 120.0]}
    found = gl.audit(jobs(**given, preemptions=[0, 1, 0]), LAB, trace=TRACE)
    assert "capacity" not in found.counts
    queued = jobs(**given, run_s=[], queue_s=[0.0, 0.0, 0.0], duration_s=[100.0] * 3)
    assert gl.audit(queued, LAB).counts["capacity"] == 1  # arrival + queue_s is the first start


def test_the_reason_for_a_skipped_rule_names_what_is_missing() -> None:
    unknown = gl.audit(jobs(first_start_s=[], run_s=[]), LAB, trace=TRACE)
    assert "first_start_s" in unknown.skipped["capacity"]
    unlimited = gl.audit(jobs(run_s=[]), LAB)
    assert "run_s" in unlimited.skipped["capacity"]
    assert "first_start_s" not in unlimited.skipped["capacity"]
    broken_up = gl.audit(jobs(run_s=[50.0, 50.0, 50.0]), LAB)
    assert "every job was stopped" in broken_up.skipped["capacity"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_are_read(separator: str, tmp_path: Path) -> None:
    text = "job_id,start_s,end_s,gpus\na,0,10,6\nb,5,15,6\n".replace(",", separator)
    (tmp_path / "t.csv").write_text(text)
    assert gl.audit(tmp_path / "t.csv", LAB).counts == {"capacity": 1}


@pytest.mark.parametrize("text", ['[{"job_id": "a"}]', '\n{"job_id": "a", "finish_s": 1}\n'])
def test_json_is_called_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    with refused(gl.TraceError, path=str(tmp_path / "t.json")):
        gl.audit(tmp_path / "t.json", LAB)


SACCT = """\
JobID|State|Submit|Start|End|Elapsed|AllocTRES
1|COMPLETED|2024-03-01T09:00:00|2024-03-01T09:00:00|2024-03-01T10:00:00|01:00:00|gres/gpu=4
2|COMPLETED|2024-03-01T09:00:00|2024-03-01T09:00:00|2024-03-01T10:00:00|01:00:00|gres/gpu=4
3|COMPLETED|2024-03-01T09:00:00|2024-03-01T09:30:00|2024-03-01T09:45:00|00:15:00|gres/gpu=2
"""
WIDE = """\
JobID     AllocTRES
----- -------------
    1 cpu=2,gres/gpu=4
    2 cpu=2,gres/gpu=4
"""
DATES = {"job_id": "JobID", "first_start_s": "Start", "finish_s": "End"}


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        pytest.param(SACCT, None, id="no job_id"),
        pytest.param(SACCT, DATES, id="dates"),
        pytest.param(SACCT.partition("\n")[2], None, id="no header"),
        pytest.param(WIDE, None, id="for people"),
        pytest.param('{"apiVersion": "v1", "kind": "List", "items": []}', None, id="JSON"),
    ],
)
def test_the_log_of_a_scheduler_is_named_once(
    text: str,
    columns: dict[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Snapshot,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "march log.txt").write_text(text)
    with refused(gl.TraceError, snapshot, errors=(), more=0):
        gl.audit("march log.txt", LAB, columns=columns)


def test_a_log_of_a_scheduler_is_audited_as_its_error_says(tmp_path: Path) -> None:
    """Jobs 1 and 2 hold all 8 GPUs of the cluster from 9:00 to 10:00, and job 3 two more."""
    (tmp_path / "sacct.txt").write_text(SACCT)
    gl.write_trace(gl.read_trace(tmp_path / "sacct.txt"), tmp_path / "jobs.parquet")
    columns = {"first_start_s": "observed_start_s", "finish_s": "observed_finish_s"}
    found = gl.audit(tmp_path / "jobs.parquet", LAB, columns=columns)
    assert found.counts["capacity"] == 1
    assert found.findings["time_s"][0].as_py() == 1800.0


def test_shared_gpus_get_a_hint() -> None:
    rows = {"job_id": ["a", "b"], "start_s": [0.0, 5.0], "end_s": [10.0, 15.0], "server": [0, 0]}
    slots = pa.table({**rows, "gpu_mask": [0b11, 0b10]})
    found = gl.audit(slots, LAB)
    assert found.counts == {"double-booking": 1}
    assert any("--max-share 2" in note for note in found.notes)
    assert gl.audit(slots, LAB, max_share=2).notes == ()
    counts = pa.table({**rows, "gpus": [4, 3]})
    assert any("--max-share 2" in note for note in gl.audit(counts, LAB).notes)
    assert gl.audit(jobs(), LAB).notes == ()


def test_gangs_that_grow_get_a_hint() -> None:
    rows = {"job_id": ["a", "a"], "start_s": [0.0, 0.0], "end_s": [5.0, 5.0], "gpus": [4, 4]}
    forked = gl.audit(pa.table(rows), LAB, trace=TRACE.table.slice(0, 1))
    assert any("--max-parts 2" in note for note in forked.notes)
    rows["gpus"] = [4, 2]
    elastic = gl.audit(pa.table(rows), LAB, trace=TRACE.table.slice(0, 1))
    assert any("grow or shrink" in note for note in elastic.notes)
    assert not any("--max-parts" in note for note in elastic.notes)


def test_a_required_rule_that_was_not_checked_fails(snapshot: Snapshot) -> None:
    table = jobs(run_s=[])
    assert gl.audit(table, LAB).ok
    found = gl.audit(table, LAB, require=["gang", "capacity"])
    assert not found.ok
    assert set(found.unmet) == {"capacity"}
    assert "run_s" in found.unmet["capacity"]
    assert found.to_dict()["unmet"] == found.unmet
    assert gl.audit(jobs(), LAB, require=["gang", "capacity"]).ok
    with refused(gl.PolicyError, snapshot):
        gl.audit(table, LAB, require=["capacitiy"])


def test_the_command_tells_which_rules_were_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text(
        "job_id,arrival_s,first_start_s,finish_s,gpus,status\na,0,0,10,2,over\n"
    )
    given = ["audit", str(tmp_path / "t.csv"), "--cluster", "pollux-64"]
    assert main(given) == 0
    out, err = capsys.readouterr()
    assert "checked: times, order, duplicate-job, before-arrival, gang" in out
    assert "not checked: capacity, utilisation" in err
    assert "`over` 1" in err
    assert main([*given, "--require", "gang,capacity"]) == 3
    out, err = capsys.readouterr()
    assert "required, but not checked: capacity" in out
    assert main([*given, "--columns", "status=", "--require", "gang"]) == 0
    assert "`over`" not in capsys.readouterr().err
    assert main([*given, "--require", "gangs"]) == 2
    assert "did you mean `gang`" in capsys.readouterr().err


def test_both_numbers_of_a_finding_are_of_one_instant() -> None:
    """On 2 GPUs jobs end at 85, 145 and 250 s with 75, 365 and 605 of 170, 290 and 500 GPU-s."""
    jobs = {
        "job_id": ["a", "b", "c"],
        "arrival_s": [0.0, 10.0, 10.0],
        "finish_s": [145.0, 85.0, 250.0],
        "gpus": [2, 1, 1],
        "run_s": [145.0, 75.0, 240.0],
    }
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    found = gl.audit(pa.table(jobs), lab)
    rows = [row for row in found.findings.to_pylist() if row["rule"] == "utilisation"]
    shown = [(row["job_id"], row["time_s"], row["found"], row["allowed"]) for row in rows]
    assert shown == [("c", 250.0, 605.0, 500.0), ("a", 0.0, 605.0, 500.0)]
    assert any("--max-share 2" in note for note in found.notes)
