"""What batch schedulers and simulators export, with invented values, by their manuals."""

from __future__ import annotations

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
        # requeued once
        pbs(120, "R", "3.head", f"{_ANA} ctime=@20 start=@100 {_GOT} {_ASKED} end=@120 "
            "Exit_status=-3 run_count=1"),
        pbs(900, "E", "3.head", f"{_ANA} ctime=@20 start=@300 {_GOT} {_ASKED} end=@900 "
            "Exit_status=0 resources_used.walltime=00:05:00 run_count=2"),
        # no GPUs, deleted before it ran, still running, and of Torque
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
