"""Tests accounting logs of PBS: special cases, and drawn logs against a plain parser."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.schedulers import PBS, PBS_DAY, pbs

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

WHO = "user=ana group=lab queue=gpu"
RAN = f"{WHO} ctime=@0 qtime=@0 etime=@0 start=@10 end=@70 Exit_status=0"
NODE = "exec_vnode=(n1:ncpus=8:ngpus=4)"


def read(folder: Path, content: str | bytes, **options: Any) -> gl.Trace:
    path = folder / "20240301"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def ended(fields: str, name: str = "1.head") -> str:
    return pbs(70, "E", name, f"{RAN} {fields}".rstrip())


def test_the_sample(tmp_path: Path) -> None:
    trace = read(tmp_path, PBS)
    assert trace.metadata["reader"] == "pbs"
    assert trace.metadata["epoch"] == "2024-03-01T08:00:00 UTC"
    names = ("job_id", "arrival_s", "gpus", "duration_s", "trace_status", "account", "servers")
    assert rows(trace, *names) == [
        ("1.head", 0.0, 8, 3600.0, "finished", "vision lab", 2),
        ("2[1].head", 10.0, 1, 10.0, "killed", "speech", 1),
        ("2[2].head", 10.0, 5, 20.0, "failed", "speech", None),
        ("3.head", 20.0, 8, 620.0, "finished", "vision lab", 2),
        ("7.torque", 55.0, 4, 30.0, "finished", "text", None),
    ]
    assert trace.notes == {
        "array_parent": 1,
        "cpu_job": 1,
        "eligible_later": 1,
        "never_ran": 1,
        "other_record": 1,
        "requeued": 1,
        "still_running": 1,
        "walltime_shorter": 1,
    }
    assert trace.table.slice(0, 1).to_pylist()[0] == {
        "job_id": "1.head",
        "arrival_s": 0.0,
        "gpus": 8,
        "duration_s": 3600.0,
        "user": "ana",
        "vc": "gpu",
        "gpu_types": None,
        "trace_status": "finished",
        "observed_start_s": 5.0,
        "observed_finish_s": 3605.0,
        "time_limit_s": 86400.0,
        "account": "vision lab",
        "partition": "gpu",
        "servers": 2,
        "cpus": 16.0,
        "host_memory_gb": 64.0,
    }
    assert trace.column("gpu_types").to_pylist()[1] == ["a100"]


def test_options(tmp_path: Path) -> None:
    trace = read(tmp_path, PBS, vc="account", run_time="last", arrival="eligible")
    assert rows(trace, "job_id", "vc", "arrival_s", "duration_s") == [
        ("1.head", "vision lab", 0.0, 3600.0),
        ("2[2].head", "speech", 10.0, 20.0),
        ("3.head", "vision lab", 20.0, 600.0),
        ("2[1].head", "speech", 40.0, 10.0),
        ("7.torque", "text", 55.0, 30.0),
    ]


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        (NODE, 4),
        ("exec_vnode=(n1[0]:ncpus=4:ngpus=2+n1[1]:ncpus=4:ngpus=1)+(n2:ngpus=1)", 4),
        (f"{NODE} Resource_List.ngpus=8", 4),  # what the job got, not what it asked for
        ("exec_vnode=(n1:ncpus=8) Resource_List.ngpus=8", 8),
        ("Resource_List.select=2:ncpus=8:ngpus=4", 8),
        ("Resource_List.select=ncpus=8:ngpus=4+2:ngpus=1", 6),
        ("Resource_List.nodes=3:ppn=2:gpus=2+n7:ppn=1:gpus=1", 7),
    ],
)
def test_gpus(tmp_path: Path, fields: str, gpus: int) -> None:
    assert rows(read(tmp_path, ended(fields)), "gpus") == [(gpus,)]


@pytest.mark.parametrize(
    ("status", "word"), [("0", "finished"), ("1", "failed"), ("-29", "failed"), ("271", "killed")]
)
def test_exit_status(tmp_path: Path, status: str, word: str) -> None:
    text = ended(NODE).replace("Exit_status=0", f"Exit_status={status}")
    assert rows(read(tmp_path, text), "trace_status") == [(word,)]


@pytest.mark.parametrize(
    ("value", "account"),
    [('"a b; c=d"', "a b; c=d"), ("'e ctime=5'", "e ctime=5"), ("it's", "it's"), ('""', "lab")],
)
def test_quoted_values(tmp_path: Path, value: str, account: str) -> None:
    text = pbs(70, "E", "1.head", f"user=ana group=lab account={value} {RAN} {NODE}")
    assert rows(read(tmp_path, text), "account", "duration_s") == [(account, 60.0)]


@pytest.mark.parametrize(("limit", "seconds"), [("01:00:30", 3630.0), ("90", 90.0), ("", None)])
def test_time_limits(tmp_path: Path, limit: str, seconds: float | None) -> None:
    text = ended(f"{NODE} Resource_List.walltime={limit}")
    other = ended(f"{NODE} Resource_List.walltime=00:00:01", "2.head")
    assert rows(read(tmp_path, text + other), "time_limit_s")[0] == (seconds,)


@pytest.mark.parametrize(("size", "gib"), [("10485760kb", 10.0), ("2gb", 2.0), ("1gw", 8.0)])
def test_memory(tmp_path: Path, size: str, gib: float) -> None:
    trace = read(tmp_path, ended(f"{NODE} Resource_List.mem={size}"))
    assert rows(trace, "host_memory_gb") == [(gib,)]


def test_a_log_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    once = read(tmp_path, PBS)
    twice = read(tmp_path, PBS + PBS)
    assert twice.table.equals(once.table)
    assert twice.notes["repeated_record"] == 7  # each record of an end or of a requeue, 4 included


def test_records_may_be_in_any_order(tmp_path: Path) -> None:
    once = read(tmp_path, PBS)
    back = read(tmp_path, "".join(reversed(PBS.splitlines(keepends=True))))
    assert sorted(map(str, back.table.to_pylist())) == sorted(map(str, once.table.to_pylist()))
    assert back.notes == once.notes


def test_a_requeued_job_that_does_not_come_back(tmp_path: Path) -> None:
    again = pbs(60, "R", "2.head", f"{RAN} {NODE}")
    lost = read(tmp_path, ended(NODE) + again)
    assert (lost.column("job_id").to_pylist(), lost.notes) == (["1.head"], {"never_ended": 1})
    runs = read(tmp_path, ended(NODE) + again + pbs(80, "S", "2.head", f"{WHO} start=@80"))
    assert runs.notes == {"still_running": 1}
    gone = read(tmp_path, ended(NODE) + again + pbs(80, "D", "2.head"))
    assert gone.column("job_id").to_pylist() == ["1.head", "2.head"]


def test_negative_and_empty_runs_are_left_out(tmp_path: Path) -> None:
    back = ended(NODE, "2.head").replace(f"end={PBS_DAY + 70}", f"end={PBS_DAY + 5}")
    none = ended(NODE, "3.head").replace(f"end={PBS_DAY + 70}", f"end={PBS_DAY + 10}")
    never = ended(NODE, "4.head").replace(f"start={PBS_DAY + 10} ", "")
    trace = read(tmp_path, ended(NODE) + back + none + never)
    assert trace.column("job_id").to_pylist() == ["1.head"]
    assert trace.notes == {"never_ran": 1, "zero_duration": 2}


def test_errors_name_the_line_and_the_key(tmp_path: Path, snapshot: Snapshot) -> None:
    content = (
        "\n"
        + ended(NODE)
        + "not a record\n"
        + ended("exec_vnode=(n1:ngpus=many)", "2.head")
        + ended(NODE, "3.head").replace(f"ctime={PBS_DAY}", "ctime=yesterday")
        + ended(f"{NODE} Resource_List.walltime=long", "4.head")
        + ended("exec_vnode=(n1:ngpus=99999)", "5.head")
        + pbs(70, "E", "6.head", NODE)
    )
    with refused(TraceError, snapshot):
        read(tmp_path, content)
    trace = read(tmp_path, content, on_bad_row="drop")
    assert (trace.column("job_id").to_pylist(), trace.notes) == (["1.head"], {"bad_row": 6})


def test_other_encodings_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    text = ended(f"{NODE} jobname=Zürich")
    assert len(read(tmp_path, text.encode("latin-1"))) == 1
    with refused(TraceError, line=2):
        read(tmp_path, text + text.replace("lab", "l\0b"))


def test_a_log_without_jobs_that_ended_says_so(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, pbs(0, "Q", "1.head", "queue=gpu") + pbs(1, "S", "2.head"))


def test_too_many_lines_for_the_memory_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, ended(NODE) + "\n" * 10_000, max_bytes=1 << 20)


def test_advice(tmp_path: Path) -> None:
    read(tmp_path, PBS)
    found = gl.advise("4x8xA100", read(tmp_path, PBS.replace("gpu_type=a100", "x=y")), ["fifo"])
    assert "fifo" in str(found)


def plain(text: str) -> list[dict[str, Any]]:
    """Return the jobs with GPUs that ran to an end, by the format's description alone."""
    ends: dict[str, dict[int, dict[str, str]]] = {}
    last: dict[str, str] = {}
    for line in text.splitlines():
        _, kind, name, rest = line.split(";", 3)
        last[name] = kind
        if kind not in ("E", "R") or re.search(r"\[\]", name):
            continue
        fields = dict(word.split("=", 1) for word in shlex.split(rest) if "=" in word)
        if "start" in fields:
            ends.setdefault(name, {})[int(fields["start"])] = fields
    found = []
    for name, runs in ends.items():
        total = sum(int(one["end"]) - begin for begin, one in runs.items())
        gpus = [
            sum(int(n) for n in re.findall(r"ngpus=(\d+)", one.get("exec_vnode", "")))
            for one in runs.values()
        ]
        if last[name] in "EDA" and max(gpus) and total > 0:
            arrival = int(next(iter(runs.values()))["ctime"])
            begin = min(runs)
            finish = max(int(one["end"]) for one in runs.values())
            user = runs[max(runs)]["user"]
            found.append(
                {
                    "job_id": name,
                    "arrival_s": arrival,
                    "gpus": max(gpus),
                    "duration_s": total,
                    "observed_start_s": begin,
                    "observed_finish_s": finish,
                    "user": user,
                }
            )
    return found


@st.composite
def logs(draw: st.DrawFn) -> str:
    """Draw a log: jobs and tasks, requeued or not, ended or not, in the order of their events."""
    events: list[tuple[int, str]] = []
    for number in range(draw(st.integers(1, 6))):
        name = f"{number}{draw(st.sampled_from(['', '[3]', '[]']))}.head"
        second = draw(st.integers(0, 1000))
        user = draw(st.sampled_from(["ana", "'ben b'", '"c;d"']))
        created = second
        events.append((second, pbs(second, "Q", name, "queue=gpu")))
        for kind in draw(st.sampled_from(["", "E", "RE", "RRE", "R", "S", "RS", "D"])):
            begin = second + draw(st.integers(1, 100))
            second = begin + draw(st.integers(0, 500))
            gpus = draw(st.integers(0, 4))
            fields = (
                f"user={user} ctime=@{created} etime=@{created} start=@{begin} "
                f"exec_vnode=(a:ncpus=1:ngpus={gpus})+(b:ngpus={gpus}) end=@{second}"
            )
            if kind != "D":
                events.append((begin, pbs(begin, "S", name, f"user={user} start=@{begin}")))
            if kind != "S":
                events.append((second, pbs(second, kind, name, fields)))
            second += 1
    return "".join(line for _, line in sorted(events, key=lambda event: event[0]))


@given(log=logs())
def test_drawn_logs_are_read_as_a_plain_parser_reads_them(
    tmp_path_factory: pytest.TempPathFactory, log: str
) -> None:
    expected = plain(log)
    try:
        trace = read(tmp_path_factory.mktemp("drawn"), log)
    except TraceError as error:
        assert expected == []
        assert "left" in str(error) or "at least one job" in str(error)
        return
    first = min(job["arrival_s"] for job in expected)
    wanted = sorted(
        tuple(value - first if key in CLOCK else value for key, value in job.items())
        for job in expected
    )
    assert sorted(rows(trace, *expected[0])) == wanted


CLOCK = ("arrival_s", "observed_start_s", "observed_finish_s")
PIECES = st.sampled_from(
    ["E", "R", ";", "=", "+", "(", ")", ":", '"', "'", " ", "ngpus", "start", "ctime", "end", "\n",
     "exec_vnode", "Resource_List.select", "Resource_List.walltime", "Exit_status", "1", "-", "[]",
     "03/01/2024 08:00:00", "9" * 30, "é"]
)  # fmt: skip


@given(pieces=st.lists(PIECES, max_size=30), at=st.integers(0, len(PBS)))
def test_damaged_logs_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], at: int
) -> None:
    content = PBS[:at] + "".join(pieces) + PBS[at + 10 :]
    for policy in ("error", "drop"):
        try:
            read(tmp_path_factory.mktemp("damaged"), content, format="pbs", on_bad_row=policy)
        except TraceError as error:
            assert str(error)
