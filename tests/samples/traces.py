"""One trace of each format: at most twenty lines, invented values, and usual special cases."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from samples import kubernetes, sacct, schedulers

NATIVE = """job_id,arrival_s,gpus,duration_s,iterations,model,gpu_types,batch_size,stage_times
a,0.5,1,10,100,m,A|B,32,0.5|1
b,2,2,20,,,,,
"""
PHILLY_CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-11-05 01:30:10,60.0,2,120.0,vc-b
2017-11-04 23:59:50,30.5,1,30.5,vc-a
2017-11-05 01:30:10,60.0,2,120.0,vc-b
"""
PHILLY_JSON = """[
 {"status": "Pass", "vc": "v1", "jobid": "j1", "user": "u1",
  "submitted_time": "2017-10-01 00:00:05", "attempts": [
   {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
   {"start_time": "None", "end_time": "2017-10-01 00:09:00", "detail": []},
   {"start_time": "2017-10-01 00:10:00", "end_time": "2017-10-01 00:10:30",
    "detail": [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu0", "gpu3"]}]}]},
 {"status": "Killed", "vc": "v2", "jobid": "j2", "user": "u2",
  "submitted_time": "2017-10-01 00:00:00", "attempts": []},
 {"status": "Failed", "vc": "v1", "jobid": "j3", "user": "u1",
  "submitted_time": "2017-10-01 00:00:01", "attempts": [
   {"start_time": "2017-10-01 00:00:02", "end_time": "None",
    "detail": [{"ip": "m3", "gpus": ["gpu0"]}]}]},
 {"status": "Failed", "vc": "v1", "jobid": "j4", "user": "u1",
  "submitted_time": "2017-10-01 00:00:00", "attempts": [
   {"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:00:09",
    "detail": [{"ip": "m3", "gpus": ["gpu7"]}]}]}
]
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,v1,3,12,2,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:40,2020-04-01 00:02:20,100,30
8,u2,v1,0,4,1,COMPLETED,2020-04-01 00:00:11,2020-04-01 00:00:11,2020-04-01 00:00:12,1,0
9,u2,v2,8,64,1,CANCELLED,2020-04-01 00:00:05,2020-04-01 00:00:06,2020-04-01 00:00:06,0,1
10,u2,v2,1,4,1,NODE_FAIL,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 00:01:00,55,5
11,u1,v2,1,4,1,SUSPENDED,2020-04-01 00:00:20,2020-04-01 00:00:20,2020-04-01 00:00:30,10,0
"""
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,type,state,submit_time,start_time,"
    "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
    "k1,u1,2,16,240,500,Other,COMPLETED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,"
    "2023-05-17 11:01:10+00:00,,,70,10.0,1120.0\n"
    "k2,u1,1,8,120,100,Other,FAILED,2023-05-17 18:59:50+08:00,2023-05-17 18:59:55+08:00,"
    "2023-05-17 19:00:00+08:00,,,5,5.0,40.0\n"
    "k3,u2,1,8,120,100,SFT,RUNNING,2023-05-17 11:05:00+00:00,2023-05-17 11:05:00+00:00,,,,,0,\n"
    "k4,u2,1,8,120,100,SFT,CANCELLED,2023-05-17 11:06:00+00:00,,,,,0,0,0\n"
    "k5,u2,1,0,4,100,Other,TIMEOUT,2023-05-17 11:07:00+00:00,2023-05-17 11:07:00+00:00,"
    "2023-05-17 11:08:00+00:00,,,60,0,0\n"
)
FOUR_COLUMN = "job_id,arrival_s,service_sec,gpu_count\n9#0,100.0,172800.0,8\n7#1,40.0,5.5,1\n"
WINDOWS = """u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status
0,1,0,4,1,0,50,0,Pass
1,2,8,0,4,30,60,0,Failed
2,1,1,0,1,5,0,100,Pass
3,1,2,0,1,15,7,90,Killed
"""
PAI = (
    "j1,worker,2,Terminated,100,400,600,29,150,V100\n"
    "j1,ps,1,Terminated,90,410,400,10,,\n"
    "j2,tensorflow,1,Failed,50,80,100,5,25,MISC\n"
    "j3,worker,1,Running,60,,100,5,100,T4\n"
    "j4,worker,4,Terminated,20,50,100,5,50,P100\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "p0,12000,16384,1,1000,V100M16|V100M32|V100M32,LS,Running,0,500,20\n"
    "p1,6000,12288,1,460,,LS,Succeeded,10,110,10\n"
    "p2,4000,1024,0,0,,BE,Failed,11,20,11\n"
    "p3,4000,1024,2,1000,T4,BE,Pending,12,600,\n"
)
SWF = """; Version: 2.2
; UnixStartTime: 1000000000
;
  1   100  10   60   4 -1 -1   6  120 -1 1  3 -1 -1 -1 -1 -1 -1
  2    90  -1   -1  -1 -1 -1   2   -1 -1 5  4 -1 -1 -1 -1 -1 -1
  3\t95   5   30   3 -1 -1  -1   -1 -1 0 -1 -1 -1 -1 -1 -1 -1
  4   110   5   30   3 -1 -1  -1   -1 -1 2 -1 -1 -1 -1 -1 -1 -1
  5   120   5   30  -1 -1 -1   0   -1 -1 1 -1 -1 -1 -1 -1 -1 -1
"""
BATSIM = """{"nb_res": 8, "description": "invented",
 "jobs": [
  {"id": 1, "subtime": 10, "walltime": 100, "res": 2, "profile": "d", "gpu_types": ["T4"]},
  {"id": "x", "subtime": 5.5, "walltime": -1, "res": 4, "profile": "old", "model": "m"},
  {"id": 3, "subtime": 7, "res": 1, "profile": "twice", "batch_size": 32}],
 "profiles": {
  "d": {"type": "DelayProfile", "delay": 12.5},
  "old": {"type": "delay", "delay": 3},
  "new": {"type": "SequentialCompositionProfile", "repeat": 2, "seq": ["old", "d"]},
  "twice": {"type": "composed", "nb": 2, "seq": ["new"]},
  "unused": {"type": "TraceReplayProfile"}}}
"""
_COMMAND = "python3 main.py --data_dir=%s/x --batch_size 16"
GAVEL_7 = (
    f"ResNet-18 (batch size 16)\t{_COMMAND}\t--num_steps\t1\t5000\t30.5\t2\n"
    f"A3C\t{_COMMAND}\t--max-steps\t0\t900\t0.0\t1\n"
)
GAVEL_10 = (
    f"LM (batch size 5)\t{_COMMAND}\tlm\t--steps\t1\t700\t4\t5.0\t-1.000000\t3\n"
    f"LM (batch size 80)\t{_COMMAND}\tlm\t--steps\t1\t800\t1\t1\t1.2\t0\n"
)
GAVEL_12 = (
    f"LM (batch size 5)\t{_COMMAND}\tlm\t--steps\t1\t700\t4\tstatic\t1\t2.0\t300\t3\n"
    f"LM (batch size 80)\t{_COMMAND}\tlm\t--steps\t1\t800\t1\tstatic\t1\t-1\t50\t0\n"
)
TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,60,600,vgg19,120,30
1,4,45,100,resnet,200,15
"""
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
    "0,2,0,600,dqn,128,120000,0,200,100,50,0.5,1\n"
    "1,1,1500,100,vgg,64,20500,1500,205,8,0,3,0\n"
)
CHRONUS = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
    "expect_value_list,best_effort,job_type\n"
    "0,v1,4,100,10,vgg16,50,8,80-120-300,10-5-1,0,strict\n"
    "1,v2,1,60,20,alexnet,30,8,60,10,1,best\n"
    "2,v2,0,70,20,alexnet,30,8,90,10,0,strict\n"
)
POLLUX = """name,time,application,num_replicas,batch_size
a-0,107,cifar,6,2048
b-1,20,bert,2,24
"""
ELASTICFLOW = """job_id,submission_time,duration,num_gpu
0a-1,30,600,4
0a-2,10,60.5,1
"""
TABLE = """# exported on Monday
name;submitted;nodes;per_node;begin;end;state;cost
a;2024-01-01 00:00:00;2;4;2024-01-01 00:01:00;2024-01-01 01:01:00;DONE;1
# midnight
b;2024-01-01 00:00:30;1;8;2024-01-01 00:02:00;2024-01-01 00:03:00;oom-kill;2
"""
SLURM = """\
JobID|JobName|User|Account|Partition|QOS|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES|ReqTRES
7|a|ana|lab|gpu|high|COMPLETED|2024-03-01T10:00:00|2024-03-01T10:05:00|2024-03-02T11:05:00|\
1-01:00:00|2-00:00:00|cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|cpu=8,gres/gpu=4,mem=64G,node=1
7.batch|batch||lab|||COMPLETED|2024-03-01T10:05:00|2024-03-01T10:05:00|2024-03-02T11:05:00|\
1-01:00:00||cpu=8,gres/gpu=4,mem=64G,node=1|
8_[2-9%2]|b|ben|lab|gpu|high|PENDING|2024-03-01T10:01:00|Unknown|Unknown|00:00:00|UNLIMITED||\
cpu=1,gres/gpu=1,mem=4G,node=1
8_1|b|c|ben|lab|gpu|high|CANCELLED by 75200|2024-03-01T10:01:00|2024-03-01T10:02:00|\
2024-03-01T10:03:30|00:01:30|Partition_Limit|cpu=1,gres/gpu:v100=1,mem=4000M,node=1|\
cpu=1,gres/gpu:v100=1,mem=4000M,node=1
9|two
lines|cho|lab|cpu|high|TIMEOUT|2024-03-01T10:03:00|2024-03-01T10:04:00|2024-03-01T10:05:00|\
00:01:00|00:01:00|cpu=2,mem=1T,node=2|cpu=2,mem=1T,node=2
"""


def parquet() -> bytes:
    """Return a native trace as Parquet."""
    sink = io.BytesIO()
    pq.write_table(_table(), sink)
    return sink.getvalue()


def arrow() -> bytes:
    """Return a native trace as an Arrow file."""
    sink = pa.BufferOutputStream()
    table = _table()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _table() -> pa.Table:
    return pa.table({"arrival_s": [0.0, 1.0], "gpus": [1, 2], "duration_s": [5.0, 6.0]})


# The format and content by file name. Names have no meaning, except those of PAI tables.
SAMPLES: dict[str, tuple[str, bytes]] = {
    "a.csv": ("native", NATIVE.encode()),
    "b.bin": ("native", parquet()),
    "c.bin": ("native", arrow()),
    "d.csv": ("philly-csv", PHILLY_CSV.encode()),
    "e.json": ("philly-json", PHILLY_JSON.encode()),
    "f.csv": ("helios", HELIOS.encode()),
    "g.csv": ("acme", ACME.encode()),
    "h.csv": ("four-column", FOUR_COLUMN.encode()),
    "i.csv": ("windows", WINDOWS.encode()),
    "pai_task_table.csv": ("pai", PAI.encode()),
    "j.csv": ("openb", OPENB.encode()),
    "k.txt": ("swf", SWF.encode()),
    "l.json": ("batsim", BATSIM.encode()),
    "m.trace": ("gavel", GAVEL_7.encode()),
    "n.trace": ("gavel", GAVEL_10.encode()),
    "o.trace": ("gavel", GAVEL_12.encode()),
    "p.csv": ("tiresias", TIRESIAS.encode()),
    "q.csv": ("muri", MURI.encode()),
    "r.csv": ("chronus", CHRONUS.encode()),
    "s.csv": ("pollux", POLLUX.encode()),
    "t.csv": ("elasticflow", ELASTICFLOW.encode()),
    "u.txt": ("table", TABLE.encode()),
    "v.txt": ("slurm", SLURM.encode()),
    "w.json": ("kubernetes", kubernetes.SAMPLE.encode()),
    "x.json": ("slurm", sacct.SAMPLE.encode()),
    "y.log": ("pbs", schedulers.PBS.encode()),
    "z.acct": ("lsf", schedulers.LSF.encode()),
    "ray.json": ("ray", schedulers.RAY.encode()),
    "dally.json": ("dally", schedulers.DALLY.encode()),
    "tasks.csv": ("opendc", schedulers.OPENDC.encode()),
    "tasks.bin": ("opendc", schedulers.opendc()),
}
OPTIONS: dict[str, dict[str, object]] = {
    "pollux": {"durations": {"cifar": 900.0, "bert": 50.0, "bert/2/24": 60.0}},
    "batsim": {"flops": 1e9},
    "table": {
        "columns": {
            "job_id": "name",
            "arrival_s": "submitted",
            "gpus": "nodes*per_node",
            "duration_s": "end-begin",
            "observed_start_s": "begin",
            "observed_finish_s": "end",
            "trace_status": "state",
        },
        "status_words": {"oom-kill": "failed"},
    },
}
"""What a format cannot be read without."""
