"""Tests writers: bytes by hand, round trips of every column, losses, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.cluster.tables import ThroughputTable
from gangline.errors import TraceError
from gangline.trace.write import losses
from gangline.trace.writers import WRITERS, writer_of
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

JOBS = {
    "job_id": ["a", "b"],
    "arrival_s": [0.0, 90.5],
    "gpus": [1, 12],
    "duration_s": [0.25, 100.5],
    "iterations": [10.0, 2.5],
    "model": ["LM (batch size 5)", "VGG"],
    "batch_size": [5, 32],
    "user": ["ann", None],
    "vc": [None, "v"],
    "trace_status": ["killed", "running"],
    "start_s": [3.0, None],
    "time_limit_s": [None, 60.4],
    "gpu_types": [["V100", "T4"], None],
    "stage_times": [[0.001, 0.5], [0.25, 0.0]],
    "weight": [5.0, None],
}


def trace(**changes: Any) -> gl.Trace:
    kept = {name: values for name, values in {**JOBS, **changes}.items() if values is not None}
    return gl.Trace.from_arrow(pa.table(kept))


def text(tmp_path: Path, jobs: gl.Trace, name: str, **options: Any) -> str:
    path = tmp_path / "out"
    path.unlink(missing_ok=True)
    gl.write_trace(jobs, path, format=name, **options)
    return path.read_text(encoding="utf-8")


def test_swf(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "swf") == (
        "; Version: 2.2\n; Note: procs = GPUs\n"
        "1 0 3 1 1 -1 -1 1 -1 -1 5 1 -1 -1 -1 -1 -1 -1\n"
        "2 91 -1 101 12 -1 -1 12 60 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
    )
    numbered = trace(job_id=["7", "3"], user=["12", None])
    lines = text(tmp_path, numbered, "swf").splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["7", "3"]
    assert [line.split()[11] for line in lines] == ["12", "-1"]


def test_batsim_in_both_spellings(tmp_path: Path) -> None:
    new = json.loads(text(tmp_path, trace(), "batsim"))
    assert new["nb_res"] == 12
    assert new["jobs"][0] == {
        "id": "a", "subtime": 0.0, "res": 1, "profile": "delay_0.25", "gpu_types": ["V100", "T4"],
        "model": "LM (batch size 5)", "batch_size": 5,
    }  # fmt: skip
    assert new["jobs"][1]["walltime"] == 60.4
    assert new["profiles"]["delay_100.5"] == {"type": "DelayProfile", "delay": 100.5}
    old = json.loads(text(tmp_path, trace(), "batsim", spelling="old", nb_res=64))
    assert (old["nb_res"], old["profiles"]["delay_0.25"]["type"]) == (64, "delay")
    # there is one profile for each distinct duration
    same = json.loads(text(tmp_path, trace(duration_s=[4.0, 4.0]), "batsim"))
    assert list(same["profiles"]) == ["delay_4.0"]


def test_philly_json(tmp_path: Path) -> None:
    found = json.loads(text(tmp_path, trace(), "philly-json"))
    assert found[0] == {
        "status": "Killed", "vc": None, "jobid": "a",
        "attempts": [
            {
                "start_time": "2024-01-01 00:00:03", "end_time": "2024-01-01 00:00:04",
                "detail": [{"ip": "m0", "gpus": ["gpu0"]}],
            }
        ],
        "submitted_time": "2024-01-01 00:00:00", "user": "ann",
    }  # fmt: skip
    second = found[1]
    assert (second["status"], second["submitted_time"]) == ("Unknown", "2024-01-01 00:01:31")
    # twelve GPUs on two machines of at most eight
    assert [len(machine["gpus"]) for machine in second["attempts"][0]["detail"]] == [6, 6]
    told = json.loads(text(tmp_path, trace(servers=[1, 5]), "philly-json"))
    machines = told[1]["attempts"][0]["detail"]
    assert [len(machine["gpus"]) for machine in machines] == [3, 3, 2, 2, 2]


def test_philly_json_attempts_of_a_run(tmp_path: Path) -> None:
    jobs = trace(iterations=None)
    rows = {
        "job_id": ["a", "b", "b", "b", "a"],
        "start_s": [0.0, 10.0, 10.0, 15.4, 7.0],
        "end_s": [5.0, 15.4, 15.4, 20.0, 7.2],
        "server": [3, 0, 1, 0, 3],
        "gpu_mask": pa.array([2, 255, 15, 255, 1], pa.uint64()),
    }
    path = str(tmp_path / "segments.parquet")
    pq.write_table(pa.table(rows), path)
    found = json.loads(text(tmp_path, jobs, "philly-json", segments=path))
    first = found[0]["attempts"]
    assert [attempt["detail"] for attempt in first] == [
        [{"ip": "m3", "gpus": ["gpu1"]}],
        [{"ip": "m3", "gpus": ["gpu0"]}],
    ]
    # 0.2 s would round to 0, but no attempt has length 0
    assert (first[1]["start_time"], first[1]["end_time"]) == (
        "2024-01-01 00:00:07",
        "2024-01-01 00:00:08",
    )
    second = found[1]["attempts"]
    assert [len(machine["gpus"]) for machine in second[0]["detail"]] == [8, 4]
    assert [len(attempt["detail"]) for attempt in second] == [2, 1]
    with refused(gl.TraceError, path=str(tmp_path / "absent")):
        text(tmp_path, jobs, "philly-json", segments=str(tmp_path / "absent"))


def test_philly_json_of_a_real_run_keeps_gangs_and_times(tmp_path: Path) -> None:
    jobs = gl.synth.philly(jobs=60, seed=2, max_gpus=8, arrivals="batch", max_duration_s=4000.0)
    result = gl.simulate("tiresias-60", jobs, "las", segments=True)
    result.save(tmp_path / "run")
    path = tmp_path / "jobs.json"
    segments = str(tmp_path / "run" / "segments.parquet")
    gl.write_trace(jobs, path, format="philly-json", segments=segments)
    back = gl.read_trace(path)
    assert back.numbers("gpus").tolist() == jobs.numbers("gpus").tolist()
    held = result.jobs.column("run_s").to_numpy()
    counts = [len(job["attempts"]) for job in json.loads(path.read_text())]
    assert max(counts) > 1
    # each attempt is off by at most one second in total
    assert np.all(np.abs(back.numbers("duration_s") - held) <= np.asarray(counts) + 1e-6)


def test_philly_csv(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "philly-csv", epoch="2017-09-04T00:00:59") == (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-09-04 00:00:59,1,1,1,\n"
        "2017-09-04 00:02:30,101,12,1212,v\n"
    )


def test_helios_is_blank_where_nothing_is_known(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "helios") == (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
        "queue\n"
        "a,ann,,1,,,CANCELLED,2024-01-01 00:00:00,2024-01-01 00:00:03,2024-01-01 00:00:04,1,3\n"
        "b,,v,12,,,RUNNING,2024-01-01 00:01:31,,,101,\n"
    )


def test_gavel(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "gavel") == (
        "LM (batch size 5)\t-\t-\t-n\t0\t10\t1\t5\t-1\t0\nVGG\t-\t-\t-n\t0\t3\t12\t1\t-1\t90.5\n"
    )


def test_gavel_deadlines_need_a_table(tmp_path: Path) -> None:
    rates = pa.table(
        {"gpu_type": ["v100"] * 2, "model": JOBS["model"], "gpus": [1, 12], "iters_per_s": [2.0, 1]}
    )
    pq.write_table(ThroughputTable.from_arrow(rates).rates, tmp_path / "rates.parquet")
    jobs = trace(deadline_s=[20.0, None])
    assert "deadline_s" in [loss.column for loss in losses(jobs, "gavel")]
    table = str(tmp_path / "rates.parquet")
    lines = text(tmp_path, jobs, "gavel", table=table).splitlines()
    # alone 10 / 2 = 5 s, so 20 s are four times that
    assert [line.split("\t")[8] for line in lines] == ["4", "-1"]


def test_tiresias_and_muri_units(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "tiresias") == (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "a,1,0,10,LM (batch size 5),0.25,90.5\nb,12,90.5,2.5,VGG,100.5,0\n"
    )
    assert text(tmp_path, trace(), "muri") == (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
        "iteration_time,resource_time_0,resource_time_1\n"
        "a,1,0,10,LM (batch size 5),5,250,90500,25,1,500\n"
        "b,12,90500,2.5,VGG,32,100500,0,40200,250,0\n"
    )


def test_a_job_without_iterations_makes_one_per_second(tmp_path: Path) -> None:
    lines = text(tmp_path, trace(iterations=None), "tiresias").splitlines()[1:]
    assert [line.split(",")[3] for line in lines] == ["0.25", "100.5"]


def test_pollux_batches_are_those_of_the_gang(tmp_path: Path) -> None:
    assert text(tmp_path, trace(), "pollux") == (
        "name,time,application,num_replicas,batch_size\n"
        "a,0,LM (batch size 5),1,5\nb,90.5,VGG,12,384\n"
    )


def test_openb(tmp_path: Path) -> None:
    jobs = trace(gpu_fraction=[0.4605, None], cpus=[1.5, None], host_memory_gb=[None, 0.5])
    assert text(tmp_path, jobs, "openb") == (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "a,1500,0,1,461,V100|T4,LS,Unknown,0,4,3\nb,0,512,12,1000,,LS,Running,91,192,91\n"
    )


def test_the_epoch_of_the_trace_is_kept(tmp_path: Path) -> None:
    table = trace().table.replace_schema_metadata({"epoch": "2020-03-18T04:01:39 UTC+8 + 60.5 s"})
    lines = text(tmp_path, gl.Trace.from_arrow(table), "philly-csv").splitlines()
    assert lines[1].startswith("2020-03-18 04:02:39,")


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_lost_is_listed_and_refused_if_strict(name: str, tmp_path: Path) -> None:
    jobs = trace()
    lost = {loss.column for loss in losses(jobs, name)}
    carried = writer_of(name).CARRIES
    assert {column for column in jobs.columns if column not in carried | {"job_id"}} <= lost
    assert gl.write_trace(jobs, tmp_path / "out", format=name) == losses(jobs, name)
    if lost:
        out = tmp_path / "no"
        with refused(gl.TraceError, path=str(out), column=losses(jobs, name)[0].column, value=name):
            gl.write_trace(jobs, out, format=name, strict=True)
        assert not (tmp_path / "no").exists()


def test_partial_losses_say_what_becomes_of_the_column() -> None:
    jobs = trace()
    assert {str(loss) for loss in losses(jobs, "swf")} >= {
        "job_id (jobs are numbered from 1)",
        "user (names become numbers from 1)",
        "trace_status (running becomes unknown)",
        "model (left out)",
    }
    assert "batch_size (only the batch size in the label)" in map(str, losses(jobs, "gavel"))
    assert "trace_status (killed becomes unknown)" in map(str, losses(jobs, "openb"))
    assert losses(jobs, "native") == ()
    # a column without a value is not lost
    assert "user" not in {loss.column for loss in losses(trace(user=[None, None]), "gavel")}


@pytest.mark.parametrize(
    ("name", "changes", "facts"),
    [
        ("swf", {"duration_s": None}, {"column": "duration_s"}),
        ("batsim", {"duration_s": [1.0, None]}, {"column": "duration_s"}),
        ("gavel", {"iterations": None}, {"column": "iterations"}),
        ("gavel", {"model": ["x", None]}, {"column": "model"}),
        ("gavel", {"model": ["x", "a\tb"]}, {"column": "model of job b", "value": "a\tb"}),
        ("pollux", {"batch_size": None}, {"column": "batch_size"}),
        ("muri", {"stage_times": None}, {"column": "stage_times"}),
        (
            "muri",
            {"stage_times": [[1.0], [1.0, 2.0]]},
            {"column": "stage_times", "value": "1 to 2"},
        ),
        ("native", {"gpu_types": [["a|b"], None]}, {"column": "gpu_types", "value": "a|b"}),
        ("openb", {"gpu_types": [["a|b"], None]}, {"column": "gpu_types", "value": "a|b"}),
        ("four-column", {}, {"value": "four-column"}),
    ],
)
def test_what_a_format_needs_is_named(
    name: str, changes: dict[str, Any], facts: dict[str, Any], tmp_path: Path
) -> None:
    with refused(gl.TraceError, **facts):
        gl.write_trace(trace(**changes), tmp_path / "out", format=name)
    assert list(tmp_path.iterdir()) == []


def test_bad_options_and_names_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(gl.TraceError, snapshot):
        gl.write_trace(trace(), tmp_path / "out", format="swf", zone="UTC")
    with refused(gl.TraceError, column="epoch", value="soon"):
        gl.write_trace(trace(), tmp_path / "out", format="helios", epoch="soon")
    with refused(gl.TraceError, snapshot):
        gl.write_trace(trace(), tmp_path / "out.json")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        gl.write_trace(trace(), tmp_path / "file" / "out.csv")


@pytest.mark.parametrize("name", WRITERS)
def test_bytes_are_stable(name: str, tmp_path: Path) -> None:
    paths = [tmp_path / "1.gz", tmp_path / "2.gz"]
    for path in paths:
        gl.write_trace(trace(), path, format=name)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_command_line_prints_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "jobs.csv"
    gl.write_trace(trace(), source)
    out = tmp_path / "jobs.swf"
    assert main(["trace", "convert", str(source), str(out)]) == 0
    assert "not carried: model (left out)" in capsys.readouterr().err
    assert out.read_text().startswith("; Version")
    assert main(["trace", "convert", str(source), str(tmp_path / "x.swf"), "--strict"]) == 2
    assert "cannot carry" in capsys.readouterr().err
    assert not (tmp_path / "x.swf").exists()
    target = str(tmp_path / "w.json")
    arguments = ["--to", "batsim", "--set", "spelling=old", "--set", "nb_res=99", "--limit", "1"]
    assert main(["trace", "convert", str(source), target, *arguments]) == 0
    written = json.loads(Path(target).read_text())
    assert (written["nb_res"], len(written["jobs"])) == (99, 1)
    assert main(["trace", "convert", str(source), target, "--set", "spelling=odd"]) == 2
    assert main(["trace", "convert", str(source), target, "--to", "four-column"]) == 2
    assert main(["trace", "convert", str(source), str(source / "x.csv")]) == 2


def test_options_of_a_writer_say_what_there_is(tmp_path: Path, snapshot: Snapshot) -> None:
    trace = gl.synth.philly(jobs=3)
    with refused(TraceError, column="spelling", value="older"):
        gl.write_trace(trace, tmp_path / "t", format="batsim", spelling="older")
    with refused(TraceError, snapshot):
        gl.write_trace(trace, tmp_path / "t", format="batsim", spellings="old")
    assert list(tmp_path.iterdir()) == []
