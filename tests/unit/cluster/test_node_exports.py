"""Tests clusters from exports of Slurm and Kubernetes, and from tables of servers."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.cluster.node_lists.notes import NOTES
from gangline.errors import ClusterError
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

SCONTROL = """\
NodeName=gpu01 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUTot=64 CPULoad=0.02
   AvailableFeatures=(null)
   Gres=gpu:a100:8(S:0-1)
   NodeAddr=gpu01 NodeHostName=gpu01 Version=23.02.6
   OS=Linux 5.14.0 #1 SMP
   RealMemory=1048576 AllocMem=0 FreeMem=900000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A
   Partitions=gpu,debug
   CfgTRES=cpu=64,mem=1T,billing=64,gres/gpu=8,gres/gpu:a100=8

NodeName=gpu02 Arch=x86_64 CoresPerSocket=32
   CPUTot=64
   Gres=gpu:a100:8(S:0-1)
   RealMemory=1048576
   State=DOWN*+DRAIN
   Reason=NodeName is odd [root@2024-01-01T00:00:00]

NodeName=old1 CPUTot=16
   Gres=gpu:4
   RealMemory=131072
   State=MIXED

NodeName=cpu1 CPUTot=16
   Gres=(null)
   RealMemory=131072
   State=IDLE
"""
CONF = """\
# slurm.conf of a lab
ClusterName=lab
NodeName=DEFAULT CPUs=32 RealMemory=262144
NodeName=a[01-04,07] Gres=gpu:v100:4 State=UNKNOWN
NodeName=b[1-2]c[1-3],d1 CPUs=64 Gres=gpu:h100:8 \\
    RealMemory=524288
PartitionName=gpu Nodes=ALL
"""
SINFO = """\
NODELIST|PARTITION|CPUS|MEMORY|GRES|STATE
n1|gpu*|64|515000|gpu:a100:4(S:0-1)|idle
n1|debug|64|515000|gpu:a100:4(S:0-1)|idle
n2|gpu*|64+|515000+|gpu:a100:4|drained
n3|cpu|64|515000|(null)|idle
"""


def read(folder: Path, content: str, **options: Any) -> gl.Cluster:
    path = folder / "nodes.txt"
    path.write_text(content, encoding="utf-8")
    return gl.Cluster.from_file(path, **options)


def blocks(cluster: gl.Cluster) -> list[tuple[Any, ...]]:
    return [(b.count, b.gpu, b.gpus, b.cpus, b.memory_gb) for b in cluster.servers]


def test_scontrol(tmp_path: Path) -> None:
    cluster = read(tmp_path, SCONTROL)
    assert blocks(cluster) == [(2, "a100", 8, 64, 1024.0), (1, "GPU", 4, 16, 128.0)]
    assert cluster.notes["servers_away"] == cluster.notes["servers_without_gpus"] == 1
    assert [kind.memory_gb for kind in cluster.gpu_types] == [80.0, 16.0]
    up = read(tmp_path, SCONTROL, up_only=True, gpu="K80")
    assert blocks(up) == [(1, "a100", 8, 64, 1024.0), (1, "K80", 4, 16, 128.0)]
    assert (up.notes.get("servers_away"), up.notes["servers_left_out"]) == (None, 1)


def test_the_name_is_that_of_the_cluster_or_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, CONF).name == "lab"
    assert read(tmp_path, SCONTROL).name == read(tmp_path, SINFO).name == "nodes"
    assert read(tmp_path, SCONTROL, name="ours").name == "ours"
    hidden = tmp_path / ".gz.d"
    hidden.mkdir()
    (hidden / "gpu-site.2024.txt.gz").write_bytes(gzip.compress(SCONTROL.encode()))
    assert gl.read_cluster(hidden / "gpu-site.2024.txt.gz").name == "gpu-site"


@pytest.mark.parametrize("command", ["run", "compare"])
def test_runs_say_which_servers_were_not_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    from gangline.cli.app import main

    path = tmp_path / "nodes.txt"
    path.write_text(SCONTROL)
    trace = "synth:philly?jobs=9&seed=1&max_gpus=4"
    assert main([command, "--trace", trace, "--cluster", str(path), "--policy", "fifo"]) == 0
    lines = capsys.readouterr().err.splitlines()
    said = [line.split(":")[1].split() for line in lines if line.startswith("note: ")]
    assert ["servers_away", "1"] in said
    assert ["servers_without_gpus", "1"] in said


def test_studies_of_a_log_say_which_servers_were_not_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gangline.cli.app import main

    (tmp_path / "nodes.txt").write_text(SCONTROL)
    (tmp_path / "log.csv").write_text(
        "job_id,arrival_s,gpus,duration_s,observed_start_s\n1,0,1,9,0\n"
    )
    nodes, log, plan = (str(tmp_path / name) for name in ("nodes.txt", "log.csv", "plan.toml"))
    grid = f'trace = ["{log}"]\ncluster = ["{nodes}", "1x4xV100"]\npolicy = ["fifo", "srtf"]'
    (tmp_path / "plan.toml").write_text(f"[grid]\n{grid}\n")
    away = "note: servers_away 1: "
    assert main(["trace", "info", log, "--cluster", nodes]) == 0
    assert capsys.readouterr().out.count(away) == 1
    assert main(["validate", "--trace", log, "--cluster", nodes, "--policy", "fifo"]) == 0
    assert capsys.readouterr().err.count(away) == 1
    assert main(["sweep", plan, "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(away)]
    assert len(said) == 1  # for both policies
    assert said[0].endswith(" (on nodes)")


def test_one_record_a_line(tmp_path: Path) -> None:
    """`scontrol -o show node` prints each record on one line."""
    lines = "\n".join(" ".join(one.split("\n")) for one in SCONTROL.split("\n\n"))
    assert blocks(read(tmp_path, lines)) == blocks(read(tmp_path, SCONTROL))


def test_slurm_conf(tmp_path: Path) -> None:
    """In slurm.conf, the state UNKNOWN is that of servers which are up."""
    assert blocks(read(tmp_path, CONF)) == [
        (5, "v100", 4, 32, 256.0),
        (7, "h100", 8, 64, 512.0),
    ]
    assert "servers_away" not in read(tmp_path, CONF).notes


@pytest.mark.parametrize(
    "content",
    [
        "PartitionName=a100\n   AllowGroups=ALL\n",
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\na100* up 3-00:00:00 1 drain a5\n",
    ],
)
def test_lists_of_partitions_are_refused_with_advice(
    tmp_path: Path, content: str, snapshot: Snapshot
) -> None:
    with refused(ClusterError, snapshot):
        read(tmp_path, content)


@pytest.mark.parametrize("form", [str, lambda text: text.replace("|", "  ")])
def test_sinfo(tmp_path: Path, form: Any) -> None:
    cluster = read(tmp_path, form(SINFO))
    assert blocks(cluster) == [(2, "a100", 4, 64, pytest.approx(502.93, abs=0.01))]
    assert cluster.notes["servers_away"] == 1


def test_sinfo_by_groups(tmp_path: Path) -> None:
    cluster = read(tmp_path, "NODES CPUS GRES\n12 64 gpu:h100:8\n3 32 (null)\n")
    assert blocks(cluster) == [(12, "h100", 8, 64, None)]


def test_servers_with_several_types_count_the_most_frequent(tmp_path: Path) -> None:
    cluster = read(tmp_path, "NODELIST|GRES\nn1|gpu:a:3,gpu:b:5,mps:100\n")
    assert [row[:3] for row in blocks(cluster)] == [(1, "b", 5)]
    assert cluster.notes["gpus_of_other_types"] == 3


def node(name: str, gpus: int, *, ready: bool = True, **labels: str) -> dict[str, Any]:
    capacity = {"cpu": "96", "memory": "1056763344Ki", "nvidia.com/gpu": str(gpus)}
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {key.replace("__", "/"): v for key, v in labels.items()},
        },
        "status": {"capacity": capacity, "conditions": [condition]},
    }


def test_nodes_of_kubernetes(tmp_path: Path) -> None:
    labels = {"nvidia.com__gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com__gpu.memory": "81559"}
    items = [node("a", 8, **labels), node("b", 8, ready=False, **labels), node("c", 0)]
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster = read(tmp_path, content)
    (block,) = blocks(cluster)
    assert block == (2, "NVIDIA-H100-80GB-HBM3", 8, 96, pytest.approx(1007.8, abs=0.1))
    assert cluster.gpu_types[0].memory_gb == pytest.approx(79.6, abs=0.1)
    assert (cluster.notes["servers_away"], cluster.notes["servers_without_gpus"]) == (1, 1)
    up = read(tmp_path, content, up_only=True)
    assert (up.gpus_total, up.notes["servers_left_out"]) == (8, 1)
    items[0]["status"]["capacity"]["nvidia.com/gpu"] = "many"
    with refused(
        ClusterError, line=1, key="capacity of a", value="many", expected="a quantity such as 64Gi"
    ):
        read(tmp_path, json.dumps({"apiVersion": "v1", "items": items}))


def test_a_table_of_servers(tmp_path: Path) -> None:
    content = "gpu,gpus,count,cpus\nA100,8,3,64\nT4,4,2,\nX,0,9,\n"
    cluster = read(tmp_path, content)
    assert blocks(cluster) == [(3, "A100", 8, 64, None), (2, "T4", 4, None, None)]
    assert cluster.notes["servers_without_gpus"] == 9


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_of_other_names(tmp_path: Path, separator: str, snapshot: Snapshot) -> None:
    content = "host,model,cards,GB\nn1,A100,8,512\nn2,A100,8,512\nn3,T4,4,64\n"
    content = content.replace(",", separator)
    columns = "gpu=model,gpus=cards,memory_gb=GB"
    cluster = read(tmp_path, content, columns=columns)
    assert blocks(cluster) == [(2, "A100", 8, None, 512.0), (1, "T4", 4, None, 64.0)]
    alone = read(tmp_path, content, columns={"gpu": "model"}, gpus=2)
    assert [row[:3] for row in blocks(alone)] == [(2, "A100", 2), (1, "T4", 2)]
    assert alone.notes["gpus_assumed"] == 3
    with refused(ClusterError, snapshot):
        read(tmp_path, content, columns="gpu=model,gpus=crads")
    with refused(ClusterError, snapshot):
        read(tmp_path, content, columns="gpux=model")


def test_the_command_line_takes_the_mapping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gangline.cli.app import main

    path = tmp_path / "nodes.csv"
    path.write_text("model;cards\nA100;8\nA100;8\n")
    assert main(["cluster", "show", str(path), "--columns", "gpu=model,gpus=cards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"][0]["count"] == 2


@pytest.mark.parametrize(
    "content",
    [
        "NodeName=a[1-999999999] Gres=gpu:8\n",
        "NodeName=a[9-1] Gres=gpu:8\n",
        "NodeName= Gres=gpu:8\n",
        "NodeName=a Gres=gpu:65\n",
        "NodeName=a Gres=(null)\n",
        "gpu,gpus,count\nA,8,1000000\nB,8,1\n",
        '{"apiVersion": "v1", "items": 7}',
    ],
)
def test_lists_that_are_refused(tmp_path: Path, content: str, snapshot: Snapshot) -> None:
    with refused(ClusterError, snapshot):
        read(tmp_path, content)


def test_every_note_has_words(tmp_path: Path) -> None:
    counted = {**read(tmp_path, SCONTROL).notes, **read(tmp_path, SINFO).notes}
    assert set(counted) <= set(NOTES)


GOOD = [SCONTROL, CONF, SINFO, json.dumps({"apiVersion": "v1", "items": [node("a", 8)]})]


@given(
    which=st.sampled_from(GOOD),
    place=st.floats(0, 1, exclude_max=True),
    removed=st.integers(0, 5),
    piece=st.binary(max_size=4)
    | st.sampled_from([b"[", b"]", b",", b"=", b"\n", b"\0", b"9" * 30]),
)
def test_damage_is_an_error_of_ours_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, which: str, place: float, removed: int, piece: bytes
) -> None:
    content = which.encode()
    at = int(place * len(content))
    path = tmp_path_factory.mktemp("damaged") / "nodes.txt"
    path.write_bytes(content[:at] + piece + content[at + removed :])
    try:
        assert gl.read_cluster(path).gpus_total > 0
    except ClusterError as error:
        assert len(str(error)) < 5000
