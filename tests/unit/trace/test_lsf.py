"""Tests LSF's accounting log: each special case, and drawn logs against a plain parser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.errors import TraceError
from refusals import refused
from samples.schedulers import LSF, PBS_DAY, lsf

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

# The fields of a record in a public example of a parser of this log; its values are invented.
PUBLIC = (
    '"JOB_FINISH" "10.1" 1700001840 4321 1000 33554434 1 1700001000 0 0 1700001001 "dee" '
    '"normal" "" "" "" "login.example.org" "" "" "" "" "10/1700001000.4321" 1 "n7" 1 '
    '"n7.example.org" 32 60.0 "" "wait 2000" -1.000000 -1.000000 -1 -1 -1 -1 -1 -1 -1 '
    '-1 -1 -1 -1 -1 -1 -1 -1 -1 -1 "" "default" 256 1 "" "" 0 2048 0 "" "" "" "" 0 "" 0 "" -1 '
    '"/dee" "" "" "" -1 "" "" 5120 "" 1700001001 "" "" 2 1032 "0" 1033 "0" 0 0 0 2048 '
    '"select[type == any] order[r15s:pg] " "" -1 "" -1 0 "" 0 0 "" 839 "" 0 "" 0.000000 0.00 '
    '0.00 0.00 0.00 1 "n7.example.org" -1 0 0 0\n'
)


def read(folder: Path, content: str | bytes, **options: Any) -> gl.Trace:
    path = folder / "lsb.acct"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return gl.read_trace(path, **options)


def rows(trace: gl.Trace, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(trace.table[name].to_pylist() for name in names), strict=True))


def used(text: str) -> str:
    return f'"select[type == any] rusage[mem=10.00:ngpus_physical={text}] span[hosts=1]"'


def test_the_sample(tmp_path: Path) -> None:
    trace = read(tmp_path, LSF)
    assert trace.metadata["reader"] == "lsf"
    assert trace.metadata["epoch"] == "2024-03-01T08:00:00 UTC"
    names = ("job_id", "arrival_s", "gpus", "duration_s", "trace_status", "user", "servers", "cpus")
    assert rows(trace, *names) == [
        ("1", 0.0, 8, 3600.0, "finished", "ana", 2, 4.0),
        ("2[3]", 10.0, 2, 10.0, "killed", "ben", 1, 1.0),
        ("2[4]", 10.0, 3, 20.0, "failed", "ana", 1, 3.0),
        ("3", 20.0, 2, 520.0, "finished", "ana", 1, 1.0),
    ]
    assert trace.notes == {
        "compound_request": 1,
        "cpu_job": 1,
        "elapsed_differs": 1,
        "eligible_later": 1,
        "mended_record": 1,
        "never_ran": 1,
        "other_record": 1,
        "requeued": 1,
    }
    assert rows(trace, "observed_start_s", "observed_finish_s", "time_limit_s", "gpu_types") == [
        (5.0, 3605.0, 86400.0, None),
        (60.0, 70.0, None, ["TeslaV100"]),
        (60.0, 80.0, None, None),
        (100.0, 900.0, None, None),
    ]
    assert rows(trace, "vc", "partition", "account") == [("gpu", "gpu", "vision")] * 4


def test_options(tmp_path: Path) -> None:
    trace = read(tmp_path, LSF, vc="user", run_time="last", arrival="eligible")
    assert rows(trace, "job_id", "vc", "arrival_s", "duration_s") == [
        ("1", "ana", 0.0, 3600.0),
        ("2[3]", "ben", 10.0, 10.0),
        ("3", "ana", 20.0, 500.0),
        ("2[4]", "ana", 40.0, 20.0),
    ]


def test_a_public_record_has_the_fields_where_they_are_looked_for(tmp_path: Path) -> None:
    trace = read(tmp_path, PUBLIC.replace("order[r15s:pg] ", "rusage[ngpus_physical=1.00] "))
    names = ("job_id", "arrival_s", "gpus", "duration_s", "observed_start_s", "trace_status")
    assert rows(trace, *names) == [("4321", 0.0, 1, 839.0, 1.0, "failed")]
    assert rows(trace, "user", "account", "partition") == [("dee", "default", "normal")]
    with refused(TraceError, path=str(tmp_path / "lsb.acct")):
        read(tmp_path, PUBLIC)  # without GPUs nothing is left


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"effective_res_req": used("2")}, 4),  # on each of two hosts
        ({"effective_res_req": used("2.00/host")}, 4),
        ({"effective_res_req": used("2/task")}, 6),  # for each of three slots
        ({"effective_res_req": used("2/job")}, 2),
        ({"res_req": used("1")}, 2),
        ({"submit_ext": '1 "num=3/task:mode=shared"'}, 9),
        ({"submit_ext": '1 "j_exclusive=yes:num=3"'}, 6),
        ({"effective_res_req": used("1"), "submit_ext": '1 "num=8"'}, 2),
        ({"effective_res_req": '"rusage[ngpus_excl_p=1]"'}, 2),
    ],
)
def test_gpus(tmp_path: Path, fields: dict[str, str], gpus: int) -> None:
    text = lsf(70, 1, exec_hosts='"n1" "n1" "n2"', **fields)
    assert rows(read(tmp_path, text), "gpus") == [(gpus,)]


def test_a_selection_of_hosts_with_gpus_asks_for_none(tmp_path: Path) -> None:
    text = lsf(70, 2, effective_res_req='"select[ngpus=4 && ngpus>0] rusage[mem=1]"')
    trace = read(tmp_path, lsf(70, 1, effective_res_req=used("1")) + text)
    assert trace.notes == {"cpu_job": 1}


@pytest.mark.parametrize(
    ("status", "reason", "word"),
    [("64", "0", "finished"), ("32", "5", "failed"), ("32", "15", "killed"), ("1", "0", "unknown")],
)
def test_status(tmp_path: Path, status: str, reason: str, word: str) -> None:
    text = lsf(70, 1, effective_res_req=used("1"), status=status, exit_info=reason)
    assert rows(read(tmp_path, text), "trace_status") == [(word,)]


def test_older_versions_have_fewer_fields(tmp_path: Path) -> None:
    cells = lsf(70, 1, res_req='"rusage[ngpus_excl_p=2]"').split(" ")
    trace = read(tmp_path, " ".join(cells[:55]) + "\n")  # up to the index of the array
    assert rows(trace, "gpus", "duration_s", "trace_status") == [(2, 65.0, "finished")]


def test_a_log_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    twice = read(tmp_path, LSF + LSF)
    assert twice.table.equals(read(tmp_path, LSF).table)
    assert twice.notes["repeated_record"] == 8


def test_a_number_that_was_used_again_is_another_job(tmp_path: Path) -> None:
    one = lsf(70, 1, effective_res_req=used("1"))
    trace = read(tmp_path, one + lsf(90, 1, effective_res_req=used("1"), submit_time="@80",
                                     start_time="@85"))  # fmt: skip
    assert trace.column("job_id").to_pylist() == ["1", "1#2"]


@pytest.mark.parametrize("limit", ["-1", "0", "2147483647"])
def test_no_limit(tmp_path: Path, limit: str) -> None:
    one = lsf(70, 1, effective_res_req=used("1"), run_limit=limit)
    two = lsf(70, 2, effective_res_req=used("1"), run_limit="60")
    assert rows(read(tmp_path, one + two), "time_limit_s") == [(None,), (60.0,)]


def test_errors_name_the_line_and_the_field(tmp_path: Path, snapshot: Snapshot) -> None:
    good = lsf(70, 1, effective_res_req=used("1"))
    content = (
        good
        + "what is this\n"
        + good.replace(f" {PBS_DAY} ", " noon ", 1).replace(" 1 1000", " 2 1000")
        + lsf(70, 3, effective_res_req=used("half"))
        + lsf(70, 4, effective_res_req=used("99999"))
        + good.replace(' 1 "n1"', ' 99 "n1"').replace(" 1 1000", " 5 1000")
        + '"JOB_FINISH" "10.1" 1709280000 6 1000\n'
        + good.replace('"train"', '"train').replace(" 1 1000", " 7 1000")
        + good
    )
    with refused(TraceError, snapshot):
        read(tmp_path, content)
    trace = read(tmp_path, content, on_bad_row="drop")
    assert trace.column("job_id").to_pylist() == ["1"]
    assert trace.notes["bad_row"] == 7


def test_advice(tmp_path: Path) -> None:
    content = LSF.replace("gmodel=TeslaV100", "gmem=1G")
    assert "fifo" in str(gl.advise("4x8xA100", read(tmp_path, content), ["fifo"]))


def plain(text: str) -> list[dict[str, Any]]:
    """Return the jobs with GPUs that ran, by the manual's order of the fields."""
    runs: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for line in text.splitlines():
        cells = re.split(r" (?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", line)
        hosts = int(cells[23])  # no host was asked for
        after = 24 + hosts
        number, index = cells[3], int(cells[after + 29])
        name = f"{number}[{index}]" if index else number
        many = re.search(r"ngpus_physical=(\d+)(/\w+)?", line)
        distinct = len(set(cells[24:after]))
        per = {"/task": hosts, "/job": 1}.get((many and many[2]) or "", distinct)
        submit, start, end = int(cells[7]), int(cells[10]), int(cells[2])
        if start:
            runs.setdefault((name, submit), {})[start] = {
                "gpus": int(many[1]) * per if many else 0,
                "end": end,
                "user": cells[11].strip('"'),
            }
    found = []
    for (name, submit), attempts in runs.items():
        total = sum(one["end"] - begin for begin, one in attempts.items())
        gpus = max(one["gpus"] for one in attempts.values())
        if total > 0 and gpus:
            found.append(
                (submit, gpus, total, min(attempts), max(one["end"] for one in attempts.values()),
                 attempts[max(attempts)]["user"], name)
            )  # fmt: skip
    return found


@st.composite
def logs(draw: st.DrawFn) -> str:
    lines = []
    for number in range(draw(st.integers(1, 6))):
        submit = draw(st.integers(1, 1000))
        second = submit
        fields = {
            "submit_time": f"@{submit}",
            "index": str(draw(st.sampled_from([0, 7]))),
            "user": draw(st.sampled_from(['"ana"', '"ben b"'])),
            "command": draw(st.sampled_from(['"a"', '"say ""hi you"" twice"', '""'])),
            "exec_hosts": draw(st.sampled_from(['"a"', '"a" "a"', '"a" "b" "b"'])),
        }
        if gpus := draw(st.integers(0, 3)):
            scope = draw(st.sampled_from(["", "/host", "/task", "/job"]))
            fields["effective_res_req"] = used(f"{gpus}{scope}")
        for _ in range(draw(st.integers(1, 3))):
            begin = second + draw(st.integers(0, 50))
            second = begin + draw(st.integers(0, 500))
            never = draw(st.booleans()) and draw(st.booleans())
            lines.append(lsf(second, number, start_time="0" if never else f"@{begin}", **fields))
            second += 1
    return "".join(draw(st.permutations(lines)))


@given(log=logs())
def test_drawn_logs_are_read_as_a_plain_parser_reads_them(
    tmp_path_factory: pytest.TempPathFactory, log: str
) -> None:
    expected = plain(log)
    try:
        trace = read(tmp_path_factory.mktemp("drawn"), log)
    except TraceError as error:
        assert expected == []
        assert "left" in str(error)
        return
    first = min(row[0] for row in expected)
    wanted = [
        (submit - first, gpus, total, begin - first, end - first, user)
        for submit, gpus, total, begin, end, user, _ in expected
    ]
    names = ("arrival_s", "gpus", "duration_s", "observed_start_s", "observed_finish_s", "user")
    assert sorted(rows(trace, *names)) == sorted(wanted)
    if len({row[-1] for row in expected}) == len(expected):
        assert sorted(trace.column("job_id").to_pylist()) == sorted(row[-1] for row in expected)


PIECES = st.sampled_from(
    ['"', '""', " ", "\n", "-1", "0", "9" * 30, "1e9", '"JOB_FINISH" "10.1" 1709280000 ', "é", "[",
     "rusage[ngpus_physical=", "num=", "*{", "99", "*", '"3*n1"']
)  # fmt: skip


@given(pieces=st.lists(PIECES, max_size=20), at=st.integers(0, len(LSF)))
def test_damaged_logs_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], at: int
) -> None:
    content = LSF[:at] + "".join(pieces) + LSF[at + 5 :]
    for policy in ("error", "drop"):
        try:
            read(tmp_path_factory.mktemp("damaged"), content, format="lsf", on_bad_row=policy)
        except TraceError as error:
            assert str(error)
