"""Tests Slurm's accounting: special cases of sacct, and drawn files against a plain parser."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from gangline.runs.offered_load import by_partition, unfinished
from refusals import refused
from unit.trace import sacct_oracle as oracle

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

NAMES = "JobID JobName User Partition State Submit Start End Elapsed AllocTRES ReqTRES"
FIELDS = NAMES.split()
TRES = "billing=8,cpu=8,gres/gpu=4,mem=64G,node=1"
BASE = dict(
    zip(
        FIELDS,
        ["1", "train", "ana", "gpu", "COMPLETED", "2024-03-01T10:00:00", "2024-03-01T10:05:00",
         "2024-03-01T11:05:00", "01:00:00", TRES, TRES],
        strict=True,
    )
)  # fmt: skip

ONE = {
    "job_id": "1",
    "arrival_s": 0.0,
    "gpus": 4,
    "duration_s": 3600.0,
    "user": "ana",
    "vc": "gpu",
    "trace_status": "finished",
    "observed_start_s": 300.0,
    "observed_finish_s": 3900.0,
    "time_limit_s": 86400.0,
    "account": "lab",
    "partition": "gpu",
    "qos": "high",
    "priority": 17.0,
    "servers": 1,
    "cpus": 8.0,
    "host_memory_gb": 64.0,
}
"""What is read of one job with all that a log may say of it."""


def record(**changes: str) -> dict[str, str]:
    return BASE | changes


def text_of(*records: dict[str, str], trailing: str = "") -> str:
    names = list(records[0])
    lines = ["|".join(names), *("|".join(row[name] for name in names) for row in records)]
    return "".join(f"{line}{trailing}\n" for line in lines)


def read(folder: Path, content: str | bytes, **options: Any) -> gl.Trace:
    path = folder / "sacct.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def test_one_job(tmp_path: Path) -> None:
    content = text_of(
        record(Account="lab", QOS="high", Timelimit="1-00:00:00", Priority="17", NNodes="1")
    )
    trace = read(tmp_path, content)
    assert trace.metadata["reader"] == "slurm"
    assert trace.metadata["epoch"] == "2024-03-01T10:00:00 local time"
    assert trace.table.to_pylist() == [ONE]
    assert trace.metadata["ignored_columns"] == "JobName"
    assert read(tmp_path, content, vc="account").column("vc").to_pylist() == ["lab"]


def test_parsable_ends_lines_with_a_bar(tmp_path: Path) -> None:
    assert len(read(tmp_path, text_of(BASE, trailing="|"))) == 1


@pytest.mark.parametrize("trailing", ["", "|"])
def test_without_a_header_the_fields_are_an_option(
    tmp_path: Path, trailing: str, snapshot: Snapshot
) -> None:
    body = text_of(BASE, trailing=trailing).split("\n", 1)[1]
    trace = read(tmp_path, body, format="slurm", fields=",".join(FIELDS))
    assert rows(trace, "job_id", "gpus") == [("1", 4)]
    with refused(TraceError, snapshot):
        read(tmp_path, body)


def test_steps_are_left_out_and_counted(tmp_path: Path) -> None:
    steps = [record(JobID=f"1.{name}", User="") for name in ("batch", "extern", "0", "interactive")]
    trace = read(tmp_path, text_of(BASE, *steps))
    assert rows(trace, "job_id", "gpus") == [("1", 4)]
    assert trace.notes["job_step"] == 4


def test_arrays(tmp_path: Path) -> None:
    waiting = record(JobID="5_[3-9%2]", State="PENDING", Start="Unknown", End="Unknown",
                     Elapsed="00:00:00", AllocTRES="")  # fmt: skip
    trace = read(tmp_path, text_of(record(JobID="5_1"), record(JobID="5_2"), waiting))
    assert trace.column("job_id").to_pylist() == ["5_1", "5_2"]
    assert trace.notes["pending_array"] == trace.notes["still_waiting"] == 1


def test_components_of_a_heterogeneous_job_are_one_gang(tmp_path: Path) -> None:
    leader = record(JobID="9+0", AllocTRES="cpu=2,mem=4G,node=1", ReqTRES="cpu=2,mem=4G,node=1")
    workers = record(JobID="9+1", AllocTRES="cpu=8,gres/gpu=16,mem=64G,node=2")
    trace = read(tmp_path, text_of(leader, workers))
    assert rows(trace, "job_id", "gpus", "servers", "cpus") == [("9", 16, 3, 10.0)]
    assert trace.notes == {"het_components": 1, "ignored_columns": 1}


@pytest.mark.parametrize("unknown", ["Unknown", "None", ""])
def test_jobs_that_never_ran_or_still_run(tmp_path: Path, unknown: str) -> None:
    waiting = record(JobID="2", State="PENDING", Start=unknown, End=unknown, Elapsed="00:00:00",
                     AllocTRES="")  # fmt: skip
    withdrawn = waiting | {"JobID": "3", "State": "CANCELLED by 0", "End": BASE["Start"]}
    # older versions write the moment of the withdrawal as the start
    older = withdrawn | {"JobID": "4", "Start": BASE["Start"]}
    running = record(JobID="5", State="RUNNING", End=unknown)
    trace = read(tmp_path, text_of(BASE, waiting, withdrawn, older, running))
    assert trace.column("job_id").to_pylist() == ["1"]
    counts = (trace.notes[name] for name in ("still_waiting", "never_ran", "still_running"))
    assert [*counts] == [1, 2, 1]


def test_the_work_of_jobs_that_did_not_finish(tmp_path: Path) -> None:
    ran = BASE | {"Timelimit": "1-00:00:00"}  # four GPUs for an hour of its day
    waiting = ran | {"JobID": "2", "State": "PENDING", "Start": "Unknown", "End": "Unknown",
                     "Elapsed": "00:00:00", "AllocTRES": ""}  # fmt: skip
    running = ran | {"JobID": "3", "State": "RUNNING", "End": "Unknown"}
    trace = read(tmp_path, text_of(ran, waiting, running))
    gl.write_trace(trace, tmp_path / "jobs.parquet")
    for log in (trace, gl.read_trace(tmp_path / "jobs.parquet")):
        assert unfinished(log) == (
            "The log ends with 1 waiting and 1 running jobs: they are left out, so the load and "
            "the waits are too low. If they use their time limits as the other jobs do (4.2 %), "
            "about 67 % of the work is missing (8 GPU-hours)."
        )


def test_the_work_of_each_partition(tmp_path: Path) -> None:
    """Four GPUs for an hour each: three jobs in `gpu`, one in `debug`; `idle` has no work."""
    jobs = [("1", "gpu"), ("2", "debug"), ("3", "gpu"), ("4", "gpu")]
    rows = [record(JobID=name, Partition=partition) for name, partition in jobs]
    unused = record(JobID="5", Partition="idle", State="PENDING", Start="Unknown", End="Unknown")
    said = by_partition(read(tmp_path, text_of(*rows, unused)))
    assert said.startswith(
        "The load of the whole cluster ignores partitions. Their shares of the work: gpu 75 % and "
        "debug 25 %. A partition with its own servers is overloaded if "
    )
    assert by_partition(read(tmp_path, text_of(rows[0], rows[2]))) == ""
    nameless = record(JobID="6", Partition="")
    assert by_partition(read(tmp_path, text_of(rows[0], nameless))) == ""
    many = [record(JobID=str(i), Partition=f"p{i}") for i in range(8)]
    assert "work: the 5 largest of 8 have p0 12 %, p1 12 %, p2 12 %, p3 12 % and p4 12 %." in (
        by_partition(read(tmp_path, text_of(*many)))
    )


def test_what_is_missing_without_time_limits_is_unknown(tmp_path: Path) -> None:
    running = record(JobID="5", State="RUNNING", End="Unknown")
    trace = read(tmp_path, text_of(BASE, running))
    assert unfinished(trace) == (
        "The log ends with 1 running job: it is left out, so the load and the waits are too low."
    )
    assert unfinished(read(tmp_path, text_of(BASE))) == ""


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("CANCELLED by 75200", "killed"),
        ("CANCELLED+", "killed"),
        ("OUT_OF_MEMORY", "failed"),
        ("NODE_FAIL", "failed"),
        ("DEADLINE", "failed"),
        ("PREEMPTED", "killed"),
        ("COMPLETED", "finished"),
        ("", "unknown"),
    ],
)
def test_states(tmp_path: Path, word: str, status: str) -> None:
    trace = read(tmp_path, text_of(record(State=word)))
    assert trace.column("trace_status").to_pylist() == [status]
    assert "unknown_status" not in trace.notes


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("gres/gpu:a100=4,gres/gpu=4", 4),
        ("gres/gpu=4,gres/gpu:a100=4", 4),
        ("gres/gpu:a100=4", 4),
        ("gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("billing=99,cpu=1,gres/gpu=2,gres/gpumem=40G,gres/gpuutil=90", 2),
    ],
)
def test_gpus_of_resources(tmp_path: Path, tres: str, gpus: int) -> None:
    assert rows(read(tmp_path, text_of(record(AllocTRES=tres))), "gpus") == [(gpus,)]
    assert oracle.gpus_of(tres) == gpus


def test_jobs_without_gpus_and_without_resources(tmp_path: Path) -> None:
    plain = "cpu=4,mem=8G,node=1"
    cpu = record(JobID="2", AllocTRES=plain, ReqTRES=plain)
    silent = record(JobID="3", AllocTRES="", ReqTRES="")
    trace = read(tmp_path, text_of(BASE, cpu, silent))
    assert len(trace) == 1
    assert (trace.notes["cpu_job"], trace.notes["unknown_gpus"]) == (1, 1)


def test_older_versions_count_gres(tmp_path: Path) -> None:
    old = {name: value for name, value in BASE.items() if "TRES" not in name}
    texts = {"gpu:4": 4, "gpu:a100:2": 2, "gres:gpu:8": 8, "gpu:v100:1,gpu:k80:1": 2, "mps:100": 0}
    content = text_of(*(old | {"JobID": str(i), "AllocGRES": text} for i, text in enumerate(texts)))
    found = dict(rows(read(tmp_path, content), "job_id", "gpus"))
    assert found == {str(i): gpus for i, gpus in enumerate(texts.values()) if gpus}


def test_types_are_those_asked_for(tmp_path: Path) -> None:
    asked = record(AllocTRES="gres/gpu:a100=4,gres/gpu=4")
    typed = record(JobID="2", AllocTRES="gres/gpu:v100=1", ReqTRES="gres/gpu:v100=1")
    content = text_of(asked, typed)
    assert read(tmp_path, content).column("gpu_types").to_pylist() == [None, ["v100"]]
    found = read(tmp_path, content, types="allocated").column("gpu_types").to_pylist()
    assert found == [["a100"], ["v100"]]


def test_slices_count_as_gpus_and_say_so(tmp_path: Path) -> None:
    trace = read(tmp_path, text_of(record(AllocTRES="gres/gpu:a100_1g.5gb=2")))
    assert rows(trace, "gpus") == [(2,)]
    assert trace.notes["slices_as_gpus"] == 1


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("UNLIMITED", None), ("Partition_Limit", None), ("", None), ("2-00:00:30", 172830.0)],
)
def test_time_limits(tmp_path: Path, limit: str, seconds: float | None) -> None:
    trace = read(
        tmp_path, text_of(record(Timelimit=limit), record(JobID="2", Timelimit="00:01:00"))
    )
    assert trace.column("time_limit_s").to_pylist() == [seconds, 60.0]


def test_attempts_of_a_requeued_job_are_one_job(tmp_path: Path) -> None:
    first = record(State="NODE_FAIL", End="2024-03-01T10:06:00", Elapsed="00:01:00")
    again = record(Submit="2024-03-01T10:06:00", Start="2024-03-01T10:10:00",
                   End="2024-03-01T10:12:00", Elapsed="00:02:00")  # fmt: skip
    content = text_of(first, again, record(JobID="2"))
    names = ("job_id", "arrival_s", "duration_s", "observed_start_s", "observed_finish_s")
    trace = read(tmp_path, content)
    assert rows(trace, *names)[0] == ("1", 0.0, 180.0, 300.0, 720.0)
    assert trace.column("trace_status").to_pylist() == ["finished", "finished"]
    assert trace.notes["requeued"] == 1
    assert rows(read(tmp_path, content, run_time="last"), *names)[0][2] == 120.0


def test_ids_that_were_used_again_are_other_jobs(tmp_path: Path) -> None:
    trace = read(tmp_path, text_of(BASE, record(User="ben")))
    assert trace.column("job_id").to_pylist() == ["1", "1#2"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_in_several_exports_counts_once(tmp_path: Path, order: int) -> None:
    waiting = record(State="PENDING", Start="Unknown", End="Unknown", Elapsed="00:00:00")
    running = record(State="RUNNING", End="Unknown", Elapsed="00:10:00")
    parts = [text_of(waiting), text_of(running), text_of(BASE, record(JobID="2"))][::order]
    trace = read(tmp_path, "".join(parts))
    assert rows(trace, "job_id", "duration_s") == [("1", 3600.0), ("2", 3600.0)]
    assert trace.notes["repeated_header"] == trace.notes["repeated_record"] == 2


def test_bars_quotes_and_line_breaks_in_names(tmp_path: Path, snapshot: Snapshot) -> None:
    content = text_of(
        record(JobID="1", JobName='a|b|"c'),
        record(JobID="2", JobName="two\nlines\n"),
        record(JobID="3", JobName='half "quoted'),
        record(JobID="4", JobName="|\n|"),
        record(JobID="5", Elapsed="soon"),
    )
    with refused(TraceError, snapshot):
        read(tmp_path, content)
    trace = read(tmp_path, content, on_bad_row="drop")
    assert rows(trace, "job_id", "gpus") == [(str(i), 4) for i in (1, 2, 3, 4)]
    assert (trace.notes["mended_record"], trace.notes["bad_row"]) == (3, 1)


def test_names_in_another_encoding(tmp_path: Path) -> None:
    content = text_of(record(JobName="Müller|x"), record(JobID="2", JobName="Zürich"))
    assert len(read(tmp_path, content.encode("latin-1"))) == 2


def test_zones_and_changes_of_the_clock(tmp_path: Path) -> None:
    # New York's clock went from 2:00 to 3:00 while the job ran for one hour
    job = record(Submit="2024-03-10T01:00:00", Start="2024-03-10T01:30:00",
                 End="2024-03-10T03:30:00", Elapsed="01:00:00")  # fmt: skip
    trace = read(tmp_path, text_of(job))
    names = ("duration_s", "observed_finish_s")
    assert rows(trace, *names) == [(3600.0, 9000.0)]
    assert trace.notes["elapsed_differs"] == 1
    trace = read(tmp_path, text_of(job), zone="America/New_York")
    assert rows(trace, *names) == [(3600.0, 5400.0)]
    assert "elapsed_differs" not in trace.notes


@pytest.mark.parametrize(
    "form",
    [
        lambda text: str(int(oracle.moment(text) or 0)),  # SLURM_TIME_FORMAT=%s
        lambda text: f"{text}Z",
        lambda text: f"{text}+0100",
    ],
)
def test_times_of_other_forms(tmp_path: Path, form: Any, snapshot: Snapshot) -> None:
    changed = {name: form(BASE[name]) for name in ("Submit", "Start", "End")}
    trace = read(tmp_path, text_of(record(**changed)))
    assert rows(trace, "duration_s", "observed_finish_s") == [(3600.0, 3900.0)]
    with refused(TraceError, snapshot):
        read(tmp_path, text_of(record(**changed)), zone="Europe/Berlin")


def test_arrival_when_eligible(tmp_path: Path) -> None:
    content = text_of(
        record(Eligible="2024-03-01T10:02:00"), record(JobID="2", Eligible="2024-03-01T10:00:00")
    )
    trace = read(tmp_path, content)
    assert (rows(trace, "arrival_s"), trace.notes["eligible_later"]) == ([(0.0,), (0.0,)], 1)
    assert rows(read(tmp_path, content, arrival="eligible"), "job_id", "arrival_s") == [
        ("2", 0.0),
        ("1", 120.0),
    ]
    with refused(TraceError, column="arrival", value="eligible"):
        read(tmp_path, content.replace("Eligible", "Other"), arrival="eligible")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_other_separators(tmp_path: Path, separator: str) -> None:
    plain = record(AllocTRES="gres/gpu=4", ReqTRES="gres/gpu=4")
    assert len(read(tmp_path, text_of(plain).replace("|", separator))) == 1


def test_a_missing_field_is_named_with_the_command_that_exports_it(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    content = text_of({name: value for name, value in BASE.items() if "TRES" not in name})
    with refused(TraceError, snapshot):
        read(tmp_path, content)


def test_the_table_for_people_is_refused_with_advice(tmp_path: Path, snapshot: Snapshot) -> None:
    table = (
        "JobID           JobName  Partition      State ExitCode \n"
        "------------ ---------- ---------- ---------- -------- \n"
        "1                 train        gpu  COMPLETED      0:0 \n"
    )
    with refused(TraceError, snapshot):
        read(tmp_path, table)


@pytest.mark.parametrize(
    "content",
    [
        "  JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n 4 a w d PD\n",
        "apiVersion: v1\nitems: []\n",
    ],
)
def test_exports_in_other_forms_are_refused_with_advice(
    tmp_path: Path, content: str, snapshot: Snapshot
) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, content)


START = dt.datetime.fromisoformat("2024-03-01")
MOMENTS = st.integers(0, 10**6)


def _stamp(second: int) -> str:
    return (START + dt.timedelta(seconds=second)).isoformat()


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, str]]:
    """Draw jobs with steps and attempts in the form of sacct."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        name = f"{number + 1}" + draw(st.sampled_from(["", "_3", "+0"]))
        user = draw(st.sampled_from(["ana", "ben"]))
        submit = draw(MOMENTS)
        for _ in range(draw(st.integers(1, 2))):
            begin = submit + draw(st.integers(0, 1000))
            length = draw(st.integers(0, 200_000))
            clock = f"{length // 3600 % 24:02}:{length // 60 % 60:02}:{length % 60:02}"
            gpus = draw(st.integers(0, 8))
            state = draw(st.sampled_from(["COMPLETED", "FAILED", "CANCELLED by 9", "RUNNING"]))
            tres = "cpu=4,mem=8G,node=1" + f",gres/gpu:a100={gpus},gres/gpu={gpus}" * (gpus > 0)
            found.append(
                {
                    "JobID": name,
                    "JobName": draw(st.sampled_from(["a", "", "x y", 'q"'])),
                    "User": user,
                    "Partition": "gpu",
                    "State": state,
                    "Submit": _stamp(submit),
                    "Start": _stamp(begin),
                    "End": "Unknown" if state == "RUNNING" else _stamp(begin + length),
                    "Elapsed": f"{length // 86400}-{clock}" if length >= 86400 else clock,
                    "AllocTRES": tres,
                    "ReqTRES": tres,
                }
            )
            if draw(st.booleans()):
                found.append(found[-1] | {"JobID": f"{name}.batch", "User": ""})
            submit = begin + length + 1
    return found


@given(drawn=records())
def test_drawn_files_are_read_as_a_plain_parser_reads_them(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    expected = oracle.jobs(text_of(*drawn))
    names = ("job_id", "arrival_s", "gpus", "duration_s", "observed_start_s", "observed_finish_s")
    try:
        trace = read(folder, text_of(*drawn))
    except TraceError as error:
        assert expected == []
        assert "no job is left" in str(error)
        return
    first = expected[0]["arrival_s"]
    wanted = [
        (
            job["job_id"],
            job["arrival_s"] - first,
            job["gpus"],
            job["duration_s"],
            job["observed_start_s"] - first,
            job["observed_finish_s"] - first,
        )
        for job in expected
    ]
    assert sorted(rows(trace, *names)) == sorted(wanted)
