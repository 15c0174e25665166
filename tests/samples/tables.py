"""One node list of each kind, one table of each form, one cluster file: small, invented, valid."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LINGJUN = "ip,DSW,PSW,ASW\na,G,P10,S1\nb,G,P2,S1\nc,G,P10,S1\nd,G,P2,S2\n"
OPENB = (
    "sn,cpu_milli,memory_mib,gpu,model\n"
    "n0,64000,262144,2,P100\nn1,32000,131072,0,\nn2,96000,524288,8,G2\nn3,64000,262144,2,P100\n"
)
PAI = "m0,CPU,96,512,0\nm1,T4,96,512,2\nm2,MISC,96,512,8\nm3,T4,96,512,2\n"
TIRESIAS = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,64,256\n"
PHILLY = "machineId, number of GPUs, single GPU mem\nm1, 2, 12GB\nm2, 8, 24GB\nm3, 8, 24 GB\n"
HELIOS = (
    "date,vcA,vcB,total\n2020-04-01,16,8,24\n2020-04-02,16,8,24\n2020-04-04,0,8,8\n"
    "2020-04-05,16,19,36\n"
)
SPOT = (
    "gpu_model,gpu_capacity_num,cpu_num,node_name\nA100-80GB,8,96,x\nA10,1,32,y\nA100-80GB,8,96,z\n"
)
NODE_LISTS = {
    "lingjun": LINGJUN,
    "openb": OPENB,
    "pai": PAI,
    "tiresias": TIRESIAS,
    "philly": PHILLY,
    "helios-daily": HELIOS,
    "spot": SPOT,
}
EXPORTS = {
    "scontrol": "NodeName=n1 CPUTot=64\n   Gres=gpu:a100:8(S:0-1)\n   State=IDLE\n",
    "sinfo": "NODELIST|PARTITION|GRES|STATE\nn[1-2]|gpu*|gpu:a:3,gpu:b:5|down\n",
    "kubernetes": """{"apiVersion": "v1", "items": [
 {"kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}]}
""",
    "nodes": "gpu,gpus,count\nA100,8,3\nT4,4,2\n",
}
"""What schedulers print of their servers, and a table of servers."""

GAVEL: dict[str, dict[str, dict[str, Any]]] = {
    "v100": {
        "('net (batch size 8)', 1)": {
            "null": 4.0,
            "('net (batch size 8)', 1)": [3.0, 3.0],
            "('it\\'s', 1)": [2.0, 1.0],
        },
        "('net (batch size 8)', 2)": {"null": 6.0},
        '("it\'s", 1)': {"null": 5.0},
    },
    "v100_unconsolidated": {
        "('net (batch size 8)', 1)": {"null": 4.5},
        "('net (batch size 8)', 2)": {"null": 1.5},
    },
    "k80": {"('net (batch size 8)', 2)": {"null": 0.0}},
}
RATES = (
    "gpu_type,model,gpus,iters_per_s,placement\n"
    "V100,net,1,4,server\nV100,net,2,6.5,server\nV100,net,2,1.5,spread\nT4,net,1,0,server\n"
)
INTERFERENCE = "model,co_model,xi\na,b,1.5\nb,a,0.9\na,a,0\nb,b,\n"
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,4,1.0,0.0
1,8,2.0,0.0
4,4,1.5,0.5
4,8,2.5,0.5
31,4,9.0,1.0
22,4,3.0,1.0
44,4,5.0,1.0
44,8,7.0,3.0
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,4,4,4.0,2.0
4,4,8,8.0,2.0
4,16,4,16.0,4.0
4,16,8,32.0,4.0
"""
VALIDATION = "progress,iteration,metric,grad_sqr,grad_var\n10,100,0.1,1,2\n20,300,0.2,1,2\n"
CLUSTER = """name = "lab"
[[gpu_types]]
name = "V100"
memory_gb = 16
[[gpu_types]]
name = "T4"
memory_gb = 16
[[servers]]
count = 2
gpu = "V100"
gpus = 2
rack = "fill:2"
[[servers]]
count = 1
gpu = "T4"
gpus = 4
rack = 1
[[capacity]]
at_s = 0
servers = 3
[[capacity]]
at_s = 100.5
servers = 2
[sharing]
max_share = 2
interference = "constant"
xi = 1.5
[network]
preset = "pcie-25g"
oversubscription = 2
[network.models.net]
compute_s = 0.1
grad_bytes = 1e9
buckets = 25
"""


def parquet(text: str) -> bytes:
    """Return a CSV table as uncompressed Parquet."""
    from pyarrow import csv

    out = io.BytesIO()
    table = csv.read_csv(pa.BufferReader(text.encode()))
    pq.write_table(table, out, compression="none", use_dictionary=False)
    return out.getvalue()


def gavel() -> bytes:
    """Return a table in the form of Gavel's JSON."""
    return json.dumps(GAVEL, indent=1).encode()
