"""Tests formats without an available file in the form in which their owners publish them.

The column names and their order, the keys and the forms of values are those that the public
descriptions, and the public files where there are some, show; the values here are invented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gangline as gl
from gangline.errors import TraceError
from gangline.trace import read_trace
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
    "queue,gpu_time\n"
    "11,u1,1,8,128,Other,FAILED,2023-03-01 00:00:20+08:00,2023-03-01 00:00:50+08:00,"
    "2023-03-01 00:02:30+08:00,100,30,800.0\n"
    "12,u1,2,16,256,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:00+08:00,"
    "2023-03-01 01:00:00+08:00,3600,0,57600.0\n"
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
    "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
    "d1,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,"
    "2023-05-17 11:00:18+00:00,2023-05-17 11:00:18+00:00,,18,10.0,1152.0\n"
    "d2,u1,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:05:00+00:00,2023-05-17 11:05:12+00:00,"
    "2023-05-17 11:06:12+00:00,,2023-05-17 11:06:12+00:00,72,12.0,4608.0\n"
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "21,u1,vcA,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:43:01,120,0\n"
    "22,u2,vcB,4,16,1,TIMEOUT,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:41:40,10,3\n"
    "23,u2,vcB,2,16,1,RUNNING,2020-06-09 18:41:28,2020-06-09 18:41:30,2020-06-09 18:41:50,20,2\n"
)
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
    "expect_value_list,best_effort,job_type\n"
    "0,vc_a,1,900,5000,vgg16,700,14,1100,10,0,strict\n"
    "1,vc_b,8,800,300,alexnet,90,8,800,10,1,best\n"
    "2,vc_b,0,850,300,alexnet,90,8,100,10,0,strict\n"
)
PHILLY_JSON = """[
    {
        "status": "Pass",
        "vc": "v1",
        "jobid": "application_1_2",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:00",
                "end_time": "2017-10-07 01:13:00",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]
            },
            {
                "start_time": "2017-10-07 01:13:30",
                "end_time": "2017-10-07 01:13:40",
                "detail": [{"ip": "m48", "gpus": ["gpu0", "gpu1"]}]
            }
        ],
        "submitted_time": "2017-10-07 01:11:30",
        "user": "u1"
    },
    {
        "status": "Failed", "vc": "v1", "jobid": "application_1_3",
        "attempts": [{"start_time": "2017-10-07 02:00:00", "end_time": null,
                      "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}],
        "submitted_time": "2017-10-07 01:20:00", "user": "u2"
    }
]
"""
Row = tuple[str, float, int, float, str]

JOBS: dict[str, tuple[str, list[Row], dict[str, int]]] = {
    "acme (Seren)": (
        SEREN,
        [("12", 0.0, 16, 3600.0, "finished"), ("11", 20.0, 8, 100.0, "failed")],
        {},
    ),
    "acme (Kalos)": (  # its durations are end - submission
        KALOS,
        [("d1", 0.0, 64, 8.0, "failed"), ("d2", 300.0, 64, 60.0, "killed")],
        {"duration_differs": 2},
    ),
    "helios": (
        HELIOS,
        [
            ("21", 0.0, 1, 120.0, "finished"),
            ("22", 26.0, 4, 10.0, "failed"),
            ("23", 27.0, 2, 20.0, "running"),
        ],
        {},
    ),
    "philly-json": (
        PHILLY_JSON,
        [("application_1_2", 0.0, 2, 70.0, "finished")],
        {"still_running": 1},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_jobs_as_published(name: str, tmp_path: Path) -> None:
    text, expected, notes = JOBS[name]
    (tmp_path / "log").write_text(text)
    trace = read_trace(tmp_path / "log")
    assert trace.metadata["reader"] == name.partition(" ")[0]
    columns = ("job_id", "arrival_s", "gpus", "duration_s", "trace_status")
    found = zip(*(trace.column(column).to_pylist() for column in columns), strict=True)
    assert list(found) == expected
    assert trace.notes == notes


def test_chronus_as_published(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(CHRONUS)
    trace = read_trace(tmp_path / "log")
    assert trace.metadata["reader"] == "chronus"
    assert trace.column("job_id").to_pylist() == ["1", "0"]
    # 1100 s after the arrival at 900 s; the clock starts at 800 s
    assert trace.column("deadline_s").to_pylist() == [None, 1200.0]
    assert trace.notes == {"best_effort": 1, "cpu_job": 1}


@pytest.mark.parametrize(("name", "words"), [("acme (Seren)", "+HH:MM"), ("helios", "HH:MM:SS")])
def test_a_missing_submission_asks_for_a_time(name: str, words: str, tmp_path: Path) -> None:
    text = JOBS[name][0].replace("2023-03-01 00:00:20+08:00", "")
    text = text.replace("2020-06-09 18:41:27", "")
    (tmp_path / "log").write_text(text)
    with refused(TraceError, column="submit_time", value="") as caught:
        read_trace(tmp_path / "log")
    assert str(caught.value).endswith(f'{words}, got ""')


def test_machines_of_philly_as_published(tmp_path: Path) -> None:
    (tmp_path / "machines").write_text(
        "machineId,number of GPUs, single GPU mem\nm31,8, 24GB\nm32,8, 24GB\nm1,2, 12GB\n"
    )
    cluster = gl.read_cluster(tmp_path / "machines")
    assert cluster.gpus_by_type() == {"GPU-24GB": 16, "GPU-12GB": 2}
    assert [gpu.memory_gb for gpu in cluster.gpu_types] == [24.0, 12.0]


def test_spot_nodes_as_published(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "gpu_model,gpu_capacity_num,cpu_num,node_name\n"
        "GPU-series-1,4,192,0\nA10,1,128,2\nA100-SXM4-80GB,8,128,3\nH800,8,192,27\n"
    )
    cluster = gl.read_cluster(tmp_path / "nodes.csv")
    assert cluster.gpus_by_type() == {"GPU-series-1": 4, "A10": 1, "A100-SXM4-80GB": 8, "H800": 8}
    assert [gpu.memory_gb for gpu in cluster.gpu_types] == [16.0, 24.0, 80.0, 80.0]
    # the type with a hidden name has a memory that nobody knows
    assert cluster.notes == {"memory_assumed": 1, "racks_assumed": 4}
