"""Writes exports of batch schedulers and simulators with invented values, after their manuals."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

PBS_DAY = 1_709_280_000
"""2024-03-01 08:00:00 UTC, from which the times of the sample count."""


def pbs(second: int, kind: str, name: str, fields: str = "") -> str:
    """Return one record; `@N` in its fields is the second N of the sample."""
    clock = f"03/01/2024 {second // 3600 + 8:02}:{second // 60 % 60:02}:{second % 60:02}"
    words = [
        f"{word.partition('@')[0]}{PBS_DAY + int(word.partition('@')[2])}"
        if "@" in word and word.partition("@")[2].isdigit()
        else word
        for word in fields.split(" ")
    ]
    return f"{clock};{kind};{name};{' '.join(words)}\n"


_ANA = 'user=ana group=lab account="vision lab" project=_pbs_project_default queue=gpu'
_BEN = "user=ben group=lab project=speech jobname='a; b' queue=gpu"
_ASKED = "Resource_List.ncpus=16 Resource_List.ngpus=8 Resource_List.select=2:ncpus=8:ngpus=4"
_GOT = "exec_host=n1/0*8+n2/0*8 exec_vnode=(n1:ncpus=8:ngpus=4:mem=64gb)+(n2:ncpus=8:ngpus=4)"
PBS = "".join(
    [
        pbs(0, "Q", "1.head", "queue=gpu"),
        pbs(5, "S", "1.head", f"{_ANA} ctime=@0 qtime=@0 etime=@0 start=@5 {_GOT} {_ASKED}"),
        pbs(
            3605,
            "E",
            "1.head",
            f"{_ANA} ctime=@0 qtime=@0 etime=@0 start=@5 {_GOT} {_ASKED} "
            "Resource_List.walltime=24:00:00 session=7 end=@3605 Exit_status=0 "
            "resources_used.walltime=00:59:58 run_count=1",
        ),
        pbs(10, "L", "license", "floating license hour:3 day:3 month:3 max:10"),
        # two tasks of an array, and the record of the array itself
        pbs(
            70,
            "E",
            "2[1].head",
            f"{_BEN} ctime=@10 qtime=@10 etime=@40 start=@60 exec_vnode=(n3:ncpus=1) "
            "Resource_List.ngpus=1 Resource_List.gpu_type=a100 end=@70 Exit_status=271",
        ),
        pbs(80, "E", "2[2].head", f"{_BEN} ctime=@10 qtime=@10 start=@60 end=@80 Exit_status=1 "
            "Resource_List.select=1:ncpus=2:ngpus=2+3:ncpus=1:ngpus=1"),
        pbs(81, "E", "2[].head", f"{_BEN} ctime=@10 start=@60 end=@80 Resource_List.ngpus=1"),
        # a job that was requeued once
        pbs(120, "R", "3.head", f"{_ANA} ctime=@20 start=@100 {_GOT} {_ASKED} end=@120 "
            "Exit_status=-3 run_count=1"),
        pbs(900, "E", "3.head", f"{_ANA} ctime=@20 start=@300 {_GOT} {_ASKED} end=@900 "
            "Exit_status=0 resources_used.walltime=00:05:00 run_count=2"),
        # jobs without GPUs, deleted before they ran, still running, and of Torque
        pbs(60, "E", "4.head", f"{_ANA} ctime=@30 start=@31 end=@60 exec_vnode=(n4:ncpus=2) "
            "Resource_List.ngpus=0 Exit_status=0"),
        pbs(40, "Q", "5.head", "queue=gpu"),
        pbs(50, "D", "5.head", "requestor=ana@login"),
        pbs(60, "S", "6.head", f"{_ANA} ctime=@50 start=@60 {_GOT}"),
        pbs(95, "E", "7.torque", "user=cho group=text jobname=x queue=batch ctime=@55 qtime=@55 "
            "etime=@55 start=@65 exec_host=n5/0-3 Resource_List.nodes=2:ppn=4:gpus=2 session=9 "
            "end=@95 Exit_status=0 resources_used.walltime=00:00:30"),
    ]
)  # fmt: skip


LSF_FIELDS = (
    "user_id=1000 options=0 processors=1 submit_time=@0 begin_time=0 term_time=0 start_time=@5 "
    "user='ana' queue='gpu' res_req='' depend_cond='' pre_exec='' from_host='login' cwd='' "
    "in_file='' out_file='' err_file='' job_file='' asked_hosts= exec_hosts='n1' status=64 "
    "host_factor=60.0 job_name='' command='train' "
    + " ".join(f"rusage{number}=-1" for number in range(19))
    + " mail_user='' project='vision' exit_status=0 max_processors=1 login_shell='' time_event='' "
    "index=0 max_memory=0 max_swap=0 in_file_spool='' command_spool='' reservation='' sla='' "
    "except_mask=0 additional_info='' exit_info=0 warning_action='' warning_period=-1 "
    "charged_saap='' licence_project='' application='' post_exec='' runtime_estimation=-1 "
    "job_group='' requeue_values='' options2=0 resize_command='' last_resize=0 reservation_id='' "
    "description='' submit_ext= host_rusage= options3=0 run_limit=-1 average_memory=0 "
    "effective_res_req='' source_cluster='' source_job=-1 target_cluster='' target_job=-1 "
    "forward_time=0 flow_id='' wait_time=0 provision_time=0 out_dir='' run_time=0 sub_cwd='' "
    "networks= affinity='' energy=0.0 cpi=0.0 gips=0.0 gbs=0.0 gflops=0.0 slots= "
    "ineligible_time=-1 ranges= requeue_time=0 gpu_rusage="
)
"""The fields of a record by its manual, with their usual values; a list has no value, or cells."""
LSF_LISTS = {"asked_hosts": 1, "exec_hosts": 1, "submit_ext": 2, "host_rusage": 5, "networks": 2,
             "slots": 1, "ranges": 3, "gpu_rusage": 4}  # fmt: skip
"""Names of the lists, and of how many fields an item is made."""


def lsf(second: int, job: int, **fields: str) -> str:
    """Return the record of a job that ended in that second; `@N` is the second N of the sample.

    Parameters
    ----------
    second : int
        Seconds since the start of the sample.
    job : int
        The number of the job.
    **fields : str
        Fields with unusual values, in the form of the log; a list is given as its cells.
    """
    values = dict(item.split("=", 1) for item in LSF_FIELDS.split(" "))
    values = {name: value.replace("'", '"') for name, value in values.items()}
    assert fields.keys() <= values.keys()
    cells = ['"JOB_FINISH"', '"10.1"', f"{PBS_DAY + second}", f"{job}"]
    for name, usual in values.items():
        value = fields.get(name, usual)
        if name in LSF_LISTS:
            items = value.split(" ") if value else []
            cells += [f"{len(items) // LSF_LISTS[name]}", *items]
        else:
            is_moment = value.startswith("@")
            cells.append(f"{PBS_DAY + int(value[1:])}" if is_moment else value)
    return " ".join(cells) + "\n"


def _used(text: str) -> str:
    return f'"select[type == any] order[r15s:pg] rusage[mem=10.00,ngpus_physical={text}]"'


_NEW = '"EVENT_ADRSV_FINISH" "10.1" 1709280000 1709280000 1 1000 "ben#0" "ben"\n'
LSF = "".join(
    [
        lsf(3605, 1, exec_hosts='"n1" "n1" "n2" "n2"', effective_res_req=_used("4.00/host"),
            run_limit="86400", run_time="3600"),
        lsf(70, 2, index="3", submit_time="@10", start_time="@60", status="32", exit_info="14",
            submit_ext='1032 "0" 1145 "num=2:gmodel=TeslaV100:mode=shared"', user='"ben"'),
        lsf(80, 2, index="4", submit_time="@10", start_time="@60", exec_hosts='"3*n3"',
            effective_res_req=_used("1/task"), status="32", ineligible_time="30",
            command='"echo ""a b"" > c"'),
        _NEW,
        lsf(120, 3, submit_time="@20", start_time="@100", effective_res_req=_used("2/job"),
            status="32", exit_info="11", run_time="20"),
        lsf(900, 3, submit_time="@20", start_time="@300", effective_res_req=_used("2/job"),
            run_time="500", command='"two\nlines"'),
        lsf(60, 4, submit_time="@30", start_time="@31"),
        lsf(50, 5, submit_time="@40", start_time="0", exec_hosts="", status="32", exit_info="14",
            res_req=_used("1")),
        lsf(99, 6, submit_time="@50", start_time="@51",
            effective_res_req='"1*{rusage[ngpus_physical=2]}+4*{rusage[ngpus_physical=1]}"'),
    ]
)  # fmt: skip


def ray(name: str, begin: float, end: float | None, **fields: object) -> dict[str, object]:
    """Return a job as Ray's REST interface lists it; times in seconds of the sample."""
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": name,
        "driver_info": None,
        "status": "RUNNING" if end is None else "SUCCEEDED",
        "entrypoint": "python train.py",
        "message": "Job finished successfully.",
        "error_type": None,
        "start_time": round(1000 * (PBS_DAY + begin)),
        "end_time": None if end is None else round(1000 * (PBS_DAY + end)),
        "metadata": {},
        "runtime_env": {"env_vars": {"A": "1"}},
        "driver_exit_code": 0,
        **fields,
    }


RAY_JOBS = [
    ray("raysubmit_a", 10.5, 70.5, entrypoint_num_gpus=2, entrypoint_num_cpus=8,
        entrypoint_memory=2**34, metadata={"user": "ana"}),
    ray("raysubmit_b", 0, 100, status="FAILED", metadata={"num_gpus": "16"}),
    ray("raysubmit_c", 20, 25, status="STOPPED", entrypoint_num_gpus=0.25),
    ray("raysubmit_d", 30, None, entrypoint_num_gpus=1),
    ray("raysubmit_e", 31, None, status="PENDING", entrypoint_num_gpus=1),
    ray("raysubmit_f", 32, 40, status="FAILED", entrypoint_num_gpus=1,
        error_type="RUNTIME_ENV_SETUP_FAILURE"),
    ray("raysubmit_g", 33, 50, entrypoint_num_gpus=0),
    ray("raysubmit_h", 34, 50, metadata={"gpus": "0"}),
    ray("raysubmit_b", 0, None, metadata={"num_gpus": "16"}),
]  # fmt: skip
RAY = json.dumps(RAY_JOBS, indent=1)


OPENDC = f"""id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity,gpu_count,parents
0,{PBS_DAY}500,60000,8,2400.0,1000,4,[]
1,{PBS_DAY}000,30500,4,2400.0,1000,1,[0]
2,{PBS_DAY}100,1000,4,2400.0,1000,,
3,{PBS_DAY}200,-5,4,2400.0,1000,2,
"""


def opendc(**changes: pa.Array | None) -> bytes:
    """Return the same tasks as Parquet of newer versions; None leaves out a column."""
    moments = [1000 * PBS_DAY + more for more in (500, 0, 100, 200)]
    columns = {
        "id": pa.array([0, 1, 2, 3], pa.int32()),
        "submission_time": pa.array(moments, pa.timestamp("ms", "UTC")),
        "duration": pa.array([60000, 30500, 1000, -5], pa.int64()),
        "cpu_count": pa.array([8, 4, 4, 4], pa.int32()),
        "cpu_capacity": pa.array([2400.0] * 4),
        "mem_capacity": pa.array([1000] * 4, pa.int64()),
        "gpu_count": pa.array([4, 1, None, 2], pa.int32()),
        "parents": pa.array([[], [0], None, None], pa.list_(pa.int32())),
        **changes,
    }
    sink = io.BytesIO()
    pq.write_table(pa.table({n: array for n, array in columns.items() if array is not None}), sink)
    return sink.getvalue()


def dally(name: str, start: str, gpus: str, iterations: str, **fields: object) -> dict[str, object]:
    """Return a job of Dally's simulator, whose iterations take half a second on one GPU."""
    return {
        "job_id": name,
        "start_time": start,
        "max_parallelism": gpus,
        "total_iterations": iterations,
        "time_per_iteration": "0.5",
        "cross_rack_slowdown": "0.7",
        "loss_function_type": "sublinear",
        "random_seed": "9",
        "job_group_id": "1",
        **fields,
    }


DALLY_JOBS = [
    dally("1", "30.5", "4", "800", model="BERT", user="u1", duration="400", state="COMPLETED",
          cpu_num="16", node_num="1"),
    dally("2", "0", "1", "60", model="VGG", duration="30", state="CANCELLED"),
    dally("3", "10", "0", "60"),
    dally("4", "10", "2", "0"),
]  # fmt: skip
DALLY = json.dumps(DALLY_JOBS, indent=1)
