"""Tests every format on a small invented file: its detection by content, and its reading."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import worlds
from gangline.errors import TraceError
from gangline.files.source import Source
from gangline.trace import Trace, read_trace
from gangline.trace.detect import detect
from gangline.trace.formats import FORMATS, Format
from gangline.trace.jobs.notes import COUNTED, DROPPED
from gangline.trace.readers._columns import read_columns
from meta.house import ROOT
from refusals import refused
from samples import traces as samples

if TYPE_CHECKING:
    from gangline.trace.jobs.normalise import Raw
    from gangline.trace.jobs.options import Options
    from snapshots import Snapshot


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: str, **options: Any) -> Trace:
    return read_trace(put(folder, "trace.txt", content), **options)


def holds(trace: Trace, **columns: list[Any]) -> None:
    """Compare columns of a trace with the expected ones."""
    assert {name: trace.column(name).to_pylist() for name in columns} == columns


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_content_alone_tells_the_format(tmp_path: Path, name: str, snapshot: Snapshot) -> None:
    expected, content = samples.SAMPLES[name]
    path = put(tmp_path, name, content)
    if expected == "table":  # its columns may have any names, so a mapping is needed
        with refused(TraceError, snapshot):
            detect(Source(path, 1 << 20))
    else:
        assert detect(Source(path, 1 << 20)) == expected
    trace = read_trace(path, **samples.OPTIONS.get(expected, {}))
    assert trace.metadata["reader"] == expected
    assert trace.table.equals(
        read_trace(path, format=expected, **samples.OPTIONS.get(expected, {})).table
    )


def test_every_format_that_can_be_read_has_a_sample() -> None:
    assert {name for name, _ in samples.SAMPLES.values()} == {
        item.name for item in FORMATS if item.reader
    }


def test_every_format_has_a_row_in_the_documentation() -> None:
    shelf = ROOT / "docs" / "reference"
    for kind, page in (("reader", "trace-formats.md"), ("writer", "trace-writers.md")):
        text = (shelf / page).read_text("utf-8")
        names = [item.name for item in FORMATS if getattr(item, kind)]
        assert [name for name in names if f"| `{name}`" not in text] == []


def test_native_lists_and_gaps(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.NATIVE)
    holds(
        trace,
        job_id=["a", "b"],
        iterations=[100.0, None],
        gpu_types=[["A", "B"], None],
        batch_size=[32, None],
        stage_times=[[0.5, 1.0], None],
    )
    with refused(TraceError, column="stage_times", line=2, value="0.5|x"):
        read(tmp_path, samples.NATIVE.replace("0.5|1", "0.5|x"))


def test_philly_csv(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.PHILLY_CSV)
    holds(
        trace,
        job_id=["0", "1", "2"],
        arrival_s=[0.0, 5420.0, 5420.0],
        duration_s=[30.5, 60.0, 60.0],
        vc=["vc-a", "vc-b", "vc-b"],
    )
    assert trace.notes == {"repeated_hour": 2}  # it is counted but not repaired
    assert trace.metadata["epoch"] == "2017-11-04T23:59:50 local time"


def test_a_zone_makes_local_times_comparable(tmp_path: Path) -> None:
    text = samples.PHILLY_CSV.replace("01:30:10,60.0,2,120.0,vc-b\n", "02:30:10,60.0,2,120,x\n", 1)
    naive = read(tmp_path, text)
    zoned = read(tmp_path, text, zone="America/Los_Angeles")
    assert naive.numbers("arrival_s").tolist() == [0.0, 5420.0, 9020.0]
    # 02:30 was two hours after the first 01:30, because the clock was set back in between
    assert zoned.numbers("arrival_s").tolist() == [0.0, 5420.0, 12620.0]
    assert zoned.notes == {"repeated_hour": 1}
    assert zoned.metadata["zone"] == "America/Los_Angeles"
    with refused(TraceError, column="zone", value="Mars/Olympus"):
        read(tmp_path, text, zone="Mars/Olympus")
    skipped = text.replace("2017-11-04 23:59:50", "2017-03-12 02:30:00")
    with refused(TraceError, column="timestamp", line=3, value="2017-03-12 02:30:00"):
        read(tmp_path, skipped, zone="America/Los_Angeles")


def test_philly_json_adds_up_attempts(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.PHILLY_JSON)
    holds(trace, **worlds.columns("j4 0 1 9", "j1 5 3 90", start_s=[0.0, 60.0], servers=[1, 2]))
    holds(trace, vc=["v1", "v1"], user=["u1", "u1"], trace_status=["failed", "finished"])
    assert trace.notes == {"no_attempt": 1, "still_running": 1}
    span = read(tmp_path, samples.PHILLY_JSON, run_time="span")
    assert span.numbers("duration_s").tolist() == [9.0, 570.0]


def test_helios(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.HELIOS)
    holds(
        trace,
        **worlds.columns(
            "10 0 1 55", "7 10 3 100", "11 20 1 10", trace_status=["failed", "finished", "running"]
        ),
    )
    holds(
        trace,
        start_s=[5.0, 40.0, 20.0],
        servers=[1, 2, 1],
        cpus=[4.0, 12.0, 4.0],
        vc=["v2", "v1", "v2"],
    )
    assert trace.notes == {"cpu_job": 1, "zero_duration": 1}
    assert trace.metadata["epoch"] == "2020-04-01T00:00:00 UTC+8"


def test_cpu_jobs_can_be_errors_and_zero_durations_can_be_lifted(tmp_path: Path) -> None:
    with refused(TraceError, column="gpu_num", line=3, value="0"):
        read(tmp_path, samples.HELIOS, cpu_jobs="error")
    trace = read(tmp_path, samples.HELIOS, min_duration_s=1.0, status="killed")
    holds(trace, job_id=["9"], duration_s=[1.0])
    assert trace.notes == {"cpu_job": 1, "lifted_duration": 1, "other_status": 3}


def test_acme_uses_offsets_and_measured_durations(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.ACME)
    holds(trace, **worlds.columns("k2 0 8 5", "k1 10 16 60", trace_status=["failed", "finished"]))
    holds(trace, start_s=[5.0, 20.0], host_memory_gb=[100.0, 1000.0])
    assert trace.notes == {"cpu_job": 1, "duration_differs": 1, "never_ran": 1, "still_running": 1}


def test_acme_demands_offsets(tmp_path: Path) -> None:
    text = samples.ACME.replace("2023-05-17 11:00:00+00:00", "2023-05-17 11:00:00")
    with refused(TraceError, column="submit_time", line=2, value="2023-05-17 11:00:00"):
        read(tmp_path, text)


def test_four_column_says_that_it_is_clamped(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.FOUR_COLUMN)
    assert trace.metadata["clamp_s"] == "172800.0"
    assert trace.notes == {"clamped": 1}
    free = read(tmp_path, samples.FOUR_COLUMN.replace("172800.0", "172801"))
    assert (free.notes, "clamp_s" in free.metadata) == ({}, False)


def test_only_rows_that_stay_are_counted(tmp_path: Path) -> None:
    text = samples.FOUR_COLUMN + "3#2,500.0,172800.0,1\n"
    assert read(tmp_path, text).notes == {"clamped": 2}
    assert read(tmp_path, text, limit=1).notes == {"over_limit": 2}
    assert read(tmp_path, text, window=(0.0, 200.0)).notes == {"clamped": 1, "outside_window": 1}


def test_every_counter_is_said_in_words() -> None:
    root = Path(__file__).resolve().parents[3]
    places = [
        *(root / "python/gangline/trace").rglob("*.py"),
        root / "rust/synth/src/lib.rs",
    ]
    text = "\n".join(place.read_text("utf-8") for place in places)
    patterns = (
        r'(?:notes|marks)\["([a-z_]+)"\] =',
        r'notes = \{"([a-z_]+)"',
        r'notes\.insert\("([a-z_]+)"',
        r'\.drop\("([a-z_]+)"',
        r'\("([a-z_]+)", (?:running|never|~some)',
    )
    found = {name for pattern in patterns for name in re.findall(pattern, text)}
    assert len(found) > 20
    assert sorted(name for name in found if name not in {**DROPPED, **COUNTED}) == []


def test_windows_add_up_intervals_before_anything_is_dropped(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.WINDOWS)
    holds(
        trace,
        job_id=["1", "3"],
        arrival_s=[0.0, 20.0],
        gpus=[8, 2],
        time_limit_s=[None, 90.0],
        trace_status=["failed", "killed"],
    )
    assert trace.notes == {"cpu_job": 1, "zero_duration": 1}


def test_a_bad_interval_spoils_its_own_row_only(tmp_path: Path) -> None:
    text = samples.WINDOWS.replace("2,1,1,0,1,5,0", "2,1,1,0,1,?,9")
    with refused(TraceError, column="interval", line=4, value="?") as caught:
        read(tmp_path, text)
    assert len(caught.value.errors) == 1
    trace = read(tmp_path, text, on_bad_row="drop")
    assert trace.numbers("arrival_s").tolist() == [0.0, 15.0]
    assert trace.notes == {"bad_row": 1, "cpu_job": 1}


def test_pai_tasks(tmp_path: Path) -> None:
    trace = read_trace(put(tmp_path, "pai_task_table.csv", samples.PAI))
    holds(
        trace,
        **worlds.columns(
            "j4-worker 0 4 30",
            "j2-tensorflow 30 1 30",
            "j1-worker 80 4 300",
            gpu_types=[["P100"], None, ["V100"]],
        ),
    )
    holds(
        trace,
        gpu_fraction=[None, 0.25, None],
        servers=[4, 1, 2],
        cpus=[4.0, 1.0, 12.0],
        host_memory_gb=[20.0, 5.0, 58.0],
        trace_status=["finished", "failed", "finished"],
    )
    assert trace.notes == {"cpu_job": 1, "gpus_rounded_up": 2, "no_times": 1}


def test_pai_folder_by_jobs(tmp_path: Path) -> None:
    tasks = samples.PAI + "j5,a,1,Terminated,5,9,100,1,100,T4\nj5,b,2,Running,7,30,100,1,200,V100\n"
    put(tmp_path, "pai_task_table.csv", tasks)
    put(tmp_path, "pai_job_table.csv", "j1,i1,u1,Terminated,70,410\nj5,i5,u5,Running,4,30\n")
    trace = read_trace(tmp_path, unit="job")
    holds(
        trace,
        **worlds.columns(
            "j5 0 5 25", "j4 16 4 30", "j2 46 1 30", "j1 66 4 320", user=["u5", None, None, "u1"]
        ),
    )
    holds(
        trace,
        gpu_types=[None, ["P100"], None, ["V100"]],
        gpu_fraction=[None, None, 0.25, None],
        trace_status=["running", "finished", "failed", "finished"],
        servers=[3, 4, 1, 3],
    )
    assert trace.notes["no_times"] == 1
    assert trace.notes["mixed_gpu_types"] == 1
    assert len(trace.sha256) == 64


def test_pai_header_files_and_empty_folders(tmp_path: Path, snapshot: Snapshot) -> None:
    columns = "task_name,job_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
    put(tmp_path, "tasks.header", columns + "gpu_type\n")
    table = put(tmp_path, "tasks.csv", "worker,j1,2,Terminated,100,400,600,29,100,V100\n")
    assert read_trace(table).column("job_id").to_pylist() == ["j1-worker"]
    with_line = put(tmp_path, "x.csv", f"{columns}gpu_type\nw,j,1,Failed,1,2,3,4,100,T4\n")
    assert read_trace(with_line).column("job_id").to_pylist() == ["j-w"]
    with refused(TraceError, snapshot):
        read_trace(tmp_path)
    with refused(TraceError, line=1, value="3 fields"):
        read_trace(put(tmp_path, "pai_task_table.csv", "j1,w,2\n"))


def test_openb(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.OPENB)
    holds(
        trace,
        **worlds.columns("p0 0 1 480", "p1 10 1 100", gpu_types=[["V100M16", "V100M32"], None]),
    )
    holds(
        trace,
        gpu_fraction=[None, 0.46],
        trace_status=["running", "finished"],
        cpus=[12.0, 6.0],
        host_memory_gb=[16.0, 12.0],
        start_s=[20.0, 10.0],
    )
    assert trace.notes == {"cpu_job": 1, "never_ran": 1}


def test_swf(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.SWF)
    holds(
        trace,
        **worlds.columns(
            "3 0 3 30", "1 5 6 60", trace_status=["failed", "finished"], user=[None, "3"]
        ),
    )
    holds(trace, time_limit_s=[None, 120.0], start_s=[5.0, 15.0])
    assert trace.notes == {
        "partial_execution": 1,
        "processors_as_gpus": 2,
        "unknown_duration": 1,
        "unknown_processors": 1,
    }
    assert trace.metadata["epoch"] == "2001-09-09T01:46:40 UTC + 95.000 s"


def test_swf_without_header_with_more_fields_and_several_processors_per_gpu(
    tmp_path: Path,
) -> None:
    lines = [line for line in samples.SWF.splitlines() if not line.startswith(";")]
    text = "".join(f"{line}   0 \n" for line in lines)
    trace = read(tmp_path, text, procs_per_gpu=4)
    assert trace.numbers("gpus").tolist() == [1, 2]
    assert trace.notes["ignored_fields"] == 1
    with refused(TraceError, column="procs_per_gpu", value=0.0):
        read(tmp_path, text, procs_per_gpu=0)


def test_swf_errors_name_the_line_of_the_file(tmp_path: Path) -> None:
    text = samples.SWF.replace("  3\t95", "; a comment\n\n  3\tx5")
    with refused(TraceError, column="field 2", line=8, value="x5"):
        read(tmp_path, text)


def test_batsim_reads_all_spellings(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.BATSIM)
    holds(
        trace,
        **worlds.columns("x 0 4 3", "3 1.5 1 62", "1 4.5 2 12.5", time_limit_s=[None, None, 100.0]),
    )
    holds(
        trace, gpu_types=[None, None, ["T4"]], model=["m", None, None], batch_size=[None, 32, None]
    )


@pytest.mark.parametrize("kind", ["parallel_homogeneous", "ptask_homogeneous", "msg_par_hg"])
def test_batsim_computations_need_a_speed(tmp_path: Path, kind: str) -> None:
    profile = f'{{"type": "{kind}", "cpu": 4e9, "com": 1}}'
    text = samples.BATSIM.replace('{"type": "delay", "delay": 3}', profile)
    with refused(TraceError, column="profiles.old.cpu", line=8):
        read(tmp_path, text)
    trace = read(tmp_path, text, flops=1e9)
    assert trace.numbers("duration_s").tolist() == [4.0, 66.0, 12.5]
    assert trace.notes == {"communication_ignored": 2}
    total = text.replace(kind, "parallel_homogeneous_total")
    assert read(tmp_path, total, flops=1e9).numbers("duration_s").tolist() == [1.0, 66.0, 12.5]


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ('"delay": 3', '"delay": -3', {"column": "profiles.old.delay", "line": 8, "value": "-3"}),
        (
            '"type": "delay"',
            '"type": "smpi"',
            {"column": "profiles.old.type", "line": 8, "value": "smpi"},
        ),
        ('"profile": "d"', '"profile": "q"', {"column": "profiles.q", "value": "q"}),
        ('["old", "d"]', '["new"]', {"column": "profiles.new", "line": 9, "value": "new"}),
        ('"repeat": 2', '"repeat": 0', {"column": "profiles.new.repeat", "line": 9, "value": "0"}),
        ('"res": 4', '"res": 0', {"column": "jobs[1].res", "line": 4, "value": "0"}),
        ('"res": 4', '"res": "x"', {"column": "jobs[1].res", "line": 4, "value": "x"}),
        ('"subtime": 7, ', "", {"column": "jobs[2]", "line": 5, "value": "an object"}),
        (
            '"profiles"',
            '"profile"',
            {"line": 1, "value": "an object", "expected": "an object with `profiles`"},
        ),
    ],
)
def test_batsim_errors_name_key_path_and_line(
    tmp_path: Path, old: str, new: str, facts: dict[str, Any]
) -> None:
    with refused(TraceError, **facts):
        read(tmp_path, samples.BATSIM.replace(old, new, 1), format="batsim")


def test_philly_json_errors_name_key_path_and_line(tmp_path: Path) -> None:
    text = samples.PHILLY_JSON.replace('"end_time": "2017-10-01 00:10:30"', '"end_time": "soon"')
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    error = caught.value
    assert (error.line, error.column) == (7, "[0].attempts[2].end_time")
    assert str(error).endswith(
        ':7: [0].attempts[2].end_time: expected a time YYYY-MM-DD HH:MM:SS, got "soon"'
    )
    text = text.replace('"jobid": "j2"', '"jobid": 2')
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    assert [item.column for item in caught.value.errors] == [
        "[0].attempts[2].end_time",
        "[1].jobid",
    ]
    trace = read(tmp_path, text, on_bad_row="drop")
    assert trace.notes == {"bad_row": 2, "still_running": 1}


def test_broken_json_names_the_line(tmp_path: Path) -> None:
    with refused(TraceError, line=3):
        read(tmp_path, samples.PHILLY_JSON.replace('"attempts": [', '"attempts": [,', 1))
    with refused(TraceError, line=18):
        read(tmp_path, samples.PHILLY_JSON[:-3])
    with refused(TraceError, line=2, value="byte 18"):
        read_trace(put(tmp_path, "x", samples.PHILLY_JSON.encode().replace(b"ss", b"s\xff", 1)))


def test_gavel_in_three_widths(tmp_path: Path) -> None:
    seven = read(tmp_path, samples.GAVEL_7)
    holds(
        seven,
        model=["A3C", "ResNet-18 (batch size 16)"],
        arrival_s=[0.0, 30.5],
        gpus=[1, 2],
        iterations=[900.0, 5000.0],
        batch_size=[None, 16],
    )
    assert "duration_s" not in seven.columns
    ten = read(tmp_path, samples.GAVEL_10)
    holds(ten, gpus=[1, 4], weight=[1.0, 5.0], batch_size=[80, 5])
    assert ten.notes == {"slo_without_duration": 1}
    twelve = read(tmp_path, samples.GAVEL_12)
    holds(twelve, arrival_s=[0.0, 3.0], duration_s=[50.0, 300.0], deadline_s=[None, 603.0])
    with refused(TraceError, line=1, value="2 columns"):
        read(tmp_path, "a\tb\n", format="gavel")


def test_chronus_deadlines(tmp_path: Path) -> None:
    trace = read(tmp_path, samples.CHRONUS)
    holds(
        trace, job_id=["1", "0"], arrival_s=[0.0, 40.0], deadline_s=[None, 120.0], user=["v2", "v1"]
    )
    assert trace.notes == {"best_effort": 1, "cpu_job": 1}
    with refused(TraceError, column="expect_time_list", line=2, value="x-1"):
        read(tmp_path, samples.CHRONUS.replace("80-120-300", "x-1"))


def test_pollux_needs_durations(tmp_path: Path) -> None:
    with refused(TraceError, column="application", value="bert, cifar"):
        read(tmp_path, samples.POLLUX)
    with refused(TraceError, column="application", value="bert"):
        read(tmp_path, samples.POLLUX, durations={"cifar": 1.0})
    trace = read(tmp_path, samples.POLLUX, **samples.OPTIONS["pollux"])
    holds(
        trace,
        job_id=["b-1", "a-0"],
        arrival_s=[0.0, 87.0],
        duration_s=[60.0, 900.0],
        batch_size=[12, 342],
    )
    assert trace.notes == {"batch_rounded_up": 1}
    with refused(TraceError, column="durations.bert", value=0.0):
        read(tmp_path, samples.POLLUX, durations={"bert": 0})


def test_equally_near_formats_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    both = set().union(*(item.columns for item in FORMATS if item.name in ("muri", "windows")))
    with refused(TraceError, snapshot):
        read(tmp_path, ",".join(sorted(both)) + "\n")


@pytest.mark.parametrize(
    "text",
    [
        "name,submitted,cards\na,1,2\n",
        "a,0,1,10\nb,2,2,20\n",
        "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,8,T4\n",
        'name = "lab"\n[[servers]]\ncount = 1\n',
    ],
)
def test_what_is_no_trace_is_told_what_it_is(text: str, tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, text)


def test_options_of_another_format_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read(tmp_path, samples.TIRESIAS, units="job")
    with refused(TraceError, column="unit"):
        read(tmp_path, samples.TIRESIAS, unit="job")
    with refused(TraceError, column="unit", value="gang"):
        read_trace(put(tmp_path, "pai_task_table.csv", samples.PAI), unit="gang")


def test_a_zone_without_local_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("job_id,arrival_s,gpus,duration_s\na,0,1,10\n")
    with refused(TraceError, column="zone", value="Mars"):
        read_trace(path, zone="Mars")
    with refused(TraceError, column="zone", value="Mars"):
        read_trace("synth:philly?jobs=5", zone="Mars")


def test_a_generator_has_no_format() -> None:
    with refused(TraceError, column="format", value="native"):
        read_trace("synth:philly?jobs=5", format="native")


def test_a_signature_and_a_module_are_all_that_a_format_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is the first step of the recipe in CONTRIBUTING.md, for an invented format."""

    def read_lab(source: Source, options: Options) -> Raw:
        return read_columns(source, "lab", wanted)

    wanted = {
        "ticket": ("job_id", pa.string()),
        "queued": ("arrival_s", pa.float64()),
        "cards": ("gpus", pa.int64()),
        "took": ("duration_s", pa.float64()),
    }
    made_up = Format(
        name="lab", recognised="", notes="", columns=frozenset(wanted), reader="made_up"
    )
    for module in ("detect", "formats", "read"):
        monkeypatch.setattr(f"gangline.trace.{module}.FORMATS", (*FORMATS, made_up))
    reader = SimpleNamespace(read=read_lab)
    monkeypatch.setitem(sys.modules, "gangline.trace.readers.made_up", reader)
    content = "ticket,queued,cards,took\na,0,1,5\nb,3,2,6\n"
    trace = read(tmp_path, content)
    assert trace.metadata["reader"] == "lab"
    holds(trace, job_id=["a", "b"], arrival_s=[0, 3], gpus=[1, 2], duration_s=[5, 6])
    with pytest.raises(TraceError) as caught:
        read(tmp_path, content.replace("b,3", "b,x"))
    assert (caught.value.line, caught.value.column) == (3, "queued")
